"""Packed files are read as what they hold; cut, damaged and exploding ones are refused."""

import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers.passages import chunks_of, lines_of
from seqloom.errors import RejectedError

TEXT = "".join(f"row {number * 7919 % 1000}\n" for number in range(1_000)).encode()
PACKERS = {".gz": gzip.compress, ".xz": lzma.compress}
both = pytest.mark.parametrize("suffix", PACKERS)


@both
def test_members_one_behind_the_other_are_one_text(tmp_path: Path, suffix: str) -> None:
    packed = PACKERS[suffix](TEXT[:501]) + PACKERS[suffix](b"") + PACKERS[suffix](TEXT[501:]) + bytes(8)
    found = read(write(tmp_path / f"x.txt{suffix}", packed))
    assert "\n".join(value for (value,) in found.values).encode() + b"\n" == TEXT


@pytest.mark.slow
@both
def test_many_small_members_take_linear_time(tmp_path: Path, suffix: str) -> None:
    found = read(write(tmp_path / f"x.txt{suffix}", PACKERS[suffix](b"a\n") * 20_000))
    assert len(found.records) == 20_000


@pytest.mark.slow
@both
def test_a_large_text_is_unpacked_in_pieces(tmp_path: Path, suffix: str) -> None:
    lines = 1 << 19
    path = write(tmp_path / f"x.txt{suffix}", PACKERS[suffix](b"a text that packs well\n" * lines))  # 12 MiB
    tracemalloc.start()
    found = sum(1 for _ in lines_of(path, ReadingConfig(), Ledger()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == lines
    assert peak < 24 << 20  # all lines together are more than 40


@both
@pytest.mark.parametrize("missing", [1, 5, 40])
def test_a_packed_file_cut_short_is_refused(tmp_path: Path, suffix: str, missing: int) -> None:
    path = write(tmp_path / f"x.txt{suffix}", PACKERS[suffix](TEXT)[:-missing])
    assert refused(path).startswith(f"{path}: {suffix[1:]}.truncated: the compressed file ends too early")


@pytest.mark.slow
@both
def test_every_flipped_bit_is_noticed(tmp_path: Path, suffix: str) -> None:
    packed = PACKERS[suffix](TEXT[:100])
    unnoticed = range(3, 10) if suffix == ".gz" else range(0)  # flags, time and system of a gzip header are no data
    for at in (at for at in range(len(packed)) if at not in unnoticed):
        flipped = packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :]
        message = refused(write(tmp_path / f"x.txt{suffix}", flipped))
        assert any(code in message for code in ("gz.crc", "gz.trunc", "xz.damaged", "xz.trunc", "file.magic")), message


@both
def test_garbage_behind_the_last_member_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"x.txt{suffix}", PACKERS[suffix](TEXT) + b"garbage garbage garbage")
    assert ": gz.crc: " in refused(path) or ": xz.damaged: " in refused(path)


@pytest.mark.slow
@both
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"x.txt{suffix}", PACKERS[suffix](b"0123456\n" * (3 << 20)))  # 24 MiB
    tracemalloc.start()
    with pytest.raises(RejectedError) as caught:
        sum(len(chunk) for chunk in chunks_of(path, Ledger()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: {suffix[1:]}.bomb: the file unpacks to more than ")
    assert peak < 16 << 20


@pytest.mark.slow
@both
def test_a_small_file_may_pack_very_well(tmp_path: Path, suffix: str) -> None:
    packed = PACKERS[suffix](b"0123456789012345678\n" * 50_000)
    assert len(packed) * 200 < 1_000_000
    assert len(read(write(tmp_path / f"x.txt{suffix}", packed)).records) == 50_000


def test_a_dictionary_larger_than_the_memory_allowed_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    path = write(tmp_path / "x.txt.xz", lzma.compress(TEXT, filters=filters))
    assert "xz.damaged: unpacking needs more than 128 MiB of memory. Fix: compress it again" in refused(path)


@both
def test_an_archive_inside_a_packed_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"x.txt{suffix}", PACKERS[suffix](bytes(257) + b"ustar" + bytes(400)))
    assert refused(path).startswith(f"{path}: file.archive: this is a tar archive.")


@pytest.mark.parametrize("examples", [SOME, MANY])
@pytest.mark.parametrize("suffix", PACKERS)
def test_any_bytes_behind_a_packed_name_give_records_or_a_place(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, examples: int
) -> None:
    path = tmp_path_factory.mktemp("packed") / f"x.txt{suffix}"
    genuine = PACKERS[suffix](b"one\ntwo\n" * 9)

    @settings(max_examples=examples)
    @given(any_bytes, st.integers(0, len(genuine)), st.booleans())
    def law(data: bytes, cut: int, inside: bool) -> None:
        content = PACKERS[suffix](data) if inside else genuine[:cut] + data + genuine[cut:]
        require_records_or_a_place(write(path, content))

    law()
