"""Bytes of every damaged kind: refused with the place and a cure, or read without a character lost."""

import os
import re
import socket
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reading_common import read, refused, write
from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers.files import fingerprint, require_writable
from seqloom.data.readers.passages import CHUNK, lines_in, lines_of, open_passages, text_of
from seqloom.errors import RejectedError

UTF8 = ReadingConfig()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"caf\xe9",
            "1:4: enc.utf8: 0xE9 is not UTF-8; looks like Windows-1252, byte 3 of the file. Fix: use --encoding cp1252",
        ),
        (
            b"ok\ncaf\xe9 noir",
            "2:4: enc.utf8: 0xE9 is not UTF-8; looks like Windows-1252, byte 6 of the file. Fix: use --encoding cp1252",
        ),
        (
            b"caf\xc3",
            "1:4: enc.utf8: the file ends in the middle of a character (truncated copy?), byte 3 of the file. Fix:",
        ),
        ("é😀".encode()[:-1], "1:2: enc.utf8: the file ends in the middle of a character"),
        ("é".encode() + b"\xe9", "1:2: enc.utf8: the file ends in the middle of a character"),
        (b"\xc0\xaf", "1:1: enc.utf8: 0xC0 0xAF is an overlong form"),
        (b"\xe0\x80\xaf", "1:1: enc.utf8: 0xE0 0x80 is an overlong form"),
        (b"a\n\xed\xa0\x80", "2:1: enc.utf8: a surrogate"),
        (b"\x81\x8d", "1:1: enc.utf8: 0x81 is not UTF-8, byte 0 of the file. Fix: name the encoding"),
        (
            "hä".encode("utf-16"),
            ": enc.utf16: the file begins with FF FE, so it is UTF-16. Fix: use --encoding utf-16.",
        ),
        (b"\xfe\xff\0h", ": enc.utf16: the file begins with FE FF, so it is UTF-16."),
        (
            "hä".encode("utf-32"),
            ": enc.utf16: the file begins with FF FE 00 00, so it is UTF-32. Fix: use --encoding utf-32.",
        ),
        (
            "hello".encode("utf-16-le"),
            ": enc.utf16: every second byte is NUL, so it is UTF-16. Fix: use --encoding utf-16-le.",
        ),
        (
            "hello".encode("utf-16-be"),
            ": enc.utf16: every second byte is NUL, so it is UTF-16. Fix: use --encoding utf-16-be.",
        ),
        (b"good\nna\0me\n", "2:3: enc.nul: a NUL character."),
        (b"caf\xc3\xa9\n" * 999 + b"caf\xe9\n", "1000:4: enc.mixed: 0xE9 is not UTF-8; looks like Windows-1252"),
        (b"cafe\n" * 999 + b"caf\xe9\n", "1000:4: enc.mixed: "),
        (b"one\rtwo\rthree", "1: line.cr_only: one line of 13 characters with 2 CR and no LF"),
    ],
)
def test_damaged_characters_are_refused_with_place_and_cure(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path / "x.txt", content)
    assert refused(path).startswith(f"{path}{'' if message.startswith(':') else ':'}{message}")


def test_a_bad_byte_is_found_wherever_the_chunks_are_cut(tmp_path: Path) -> None:
    for shift in range(-3, 3):
        good = "é" * 5 + "\n" + "x" * (CHUNK - 11 + shift)
        path = write(tmp_path / "x.txt", good.encode() + "😀".encode() + b"\xff\n")
        assert f"x.txt:2:{CHUNK - 11 + shift + 2}: enc.mixed: 0xFF" in refused(path)


@pytest.mark.parametrize("encoding", ["shift-jis", "iso2022-jp", "gb18030", "utf-8", "utf-16-le"])
def test_a_bad_byte_behind_a_cut_character_has_its_column(encoding: str) -> None:
    good = "日本本日".encode(encoding)
    stored = good + {"utf-16-le": b"\x00\xd8\x00\x00"}.get(encoding, b"\xff\xff\xff\xff")
    for cut in range(len(stored)):
        with pytest.raises(RejectedError, match=rf":1:5: enc\..*byte {len(good)} of the file"):
            list(text_of(iter([stored[:cut], stored[cut:]]), encoding, Path("x"), Ledger()))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-8", "utf-8-sig", "cp1252", "latin-1"])
def test_a_named_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "x.txt", "hä\nzweite\n".encode(encoding))
    assert read(path, encoding=encoding).values == [("hä",), ("zweite",)]


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (b"x", "uft-8", ": enc.unknown: there is no encoding 'uft-8'. Did you mean 'utf-8'?"),
        (b"x", "rot13", ": enc.unknown: "),
        (b"x", "zlib", ": enc.unknown: "),
        (b"x", "a\0b", ": enc.unknown: there is no encoding 'a\\x00b'"),
        (b"ab\n\x81", "cp1252", ":2:1: enc.bytes: 0x81 is not cp1252"),
        ("hä\nb".encode("utf-16-le") + b"x", "utf-16-le", ":2:2: enc.bytes: 0x78 is not utf-16-le (truncated data)"),
        (
            "hä".encode("utf-16-be"),
            "utf-16",
            ": enc.utf16: UTF-16 without a byte order mark. Fix: use --encoding utf-16-le",
        ),
        ("日本\nx".encode("shift-jis") + b"\xff", "shift-jis", ":2:2: enc.bytes: 0xFF is not shift-jis"),
    ],
)
def test_an_encoding_that_does_not_fit_is_refused(tmp_path: Path, content: bytes, encoding: str, message: str) -> None:
    path = write(tmp_path / "x.txt", content)
    assert refused(path, encoding=encoding).startswith(f"{path}{message}")


def test_the_mark_at_the_start_is_no_character_and_one_inside_is_warned_about(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "\ufefftext\n" + "b\n" * 999 + "\ufeffc\n")
    found = read(path)
    assert (found.values[0], found.values[-1]) == (("text",), ("\ufeffc",))
    assert found.only("enc.bom_inside").place == (str(path), 1001, 1)


def test_lost_characters_are_counted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.txt", "a\nb\ufffd\ufffd\n"))
    assert found.only("enc.replacement").place[1:] == (2, 2)
    assert found.ledger.counts["enc.replacement"] == 2


def test_mojibake_in_more_than_one_of_a_thousand_lines_is_warned_about(tmp_path: Path) -> None:
    broken = ["cafÃ©", "itâ€™s Ã¼ber", "Â£5", "NÃ£o", "Ã¤"]
    found = read(write(tmp_path / "x.txt", "\n".join([*broken, *["fine"] * 4_000])))
    assert found.ledger.counts["enc.mojibake"] == 5
    assert [sample.place.line for sample in found.ledger.samples["enc.mojibake"]] == [1, 2, 3]
    assert "'cafÃ©'" in found.ledger.samples["enc.mojibake"][0].text
    assert not read(write(tmp_path / "x.txt", "\n".join([*broken, *["fine"] * 5_000]))).ledger.counts


def test_words_with_these_letters_are_no_mojibake(tmp_path: Path) -> None:
    assert not read(write(tmp_path / "x.txt", "NÃO\nÂNGELO\nâge\n‘Ãlvaro’\n")).ledger.counts


def test_lines_end_at_lf_and_crlf_only(tmp_path: Path) -> None:
    odd = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"
    path = write(tmp_path / "x.txt", f"{odd}\nbare\rreturn\r\nlast")
    assert list(lines_of(path, UTF8, Ledger())) == [(1, odd), (2, "bare\rreturn"), (3, "last")]


def test_mixed_line_ends_are_noted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.txt", "a\r\nb\nc\n"))
    assert found.values == [("a",), ("b",), ("c",)]
    assert found.only("line.mixed").text == "1 line ends with CR LF and 2 with LF"
    assert not read(write(tmp_path / "x.txt", "a\r\nb\r\n")).ledger.counts


@pytest.mark.parametrize(("inside", "after"), [("\n", "\r\n"), ("\r\n", "\n")])
def test_line_ends_inside_quotes_are_not_mixed_with_those_of_rows(tmp_path: Path, inside: str, after: str) -> None:
    quoted = f'"two{inside}lines"'
    found = read(write(tmp_path / "x.csv", after.join(["text,label", f"{quoted},a", f"{quoted},b", ""])))
    assert found.values == [(f"two{inside}lines", label) for label in "ab"] and not found.ledger.counts
    mixed = read(write(tmp_path / "x.csv", f"text,label\r\n{quoted},a\n{quoted},b\r\n"))
    assert mixed.only("line.mixed").text == "2 lines end with CR LF and 1 with LF"


text_lines = st.lists(st.text(st.characters(exclude_characters="\n\r\0\ufeff", codec="utf-8"), max_size=20))


@pytest.mark.slow
@given(text_lines, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, ended: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    lines = [*lines, "x"]
    text = end.join(lines) + (end if ended else "")
    if text.encode()[257:262] != b"ustar":
        assert list(lines_of(write(path, text), UTF8, Ledger())) == list(enumerate(lines, 1))


@pytest.mark.slow
def test_passages_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    lines = [f"line {number} é" for number in range(300_000)]
    path = write(tmp_path / "x.txt", "\n".join(lines))
    passages = list(open_passages(path, UTF8, Ledger()))
    assert len(passages) > 3
    assert [line for passage in passages for line in lines_in(passage.text)] == lines
    numbers = [1, *(passage.first_line + len(lines_in(passage.text)) for passage in passages)]
    assert [passage.first_line for passage in passages] == numbers[:-1]
    assert max(len(passage.text) for passage in passages) <= 2 * CHUNK


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert list(lines_of(write(tmp_path / "x.txt", b""), UTF8, Ledger())) == []
    assert list(lines_of(write(tmp_path / "x.txt", b"\n"), UTF8, Ledger())) == [(1, "")]


def test_a_line_of_a_megabyte_is_read(tmp_path: Path) -> None:
    assert [len(value) for (value,) in read(write(tmp_path / "x.txt", b"a" * 1_000_000 + b"\nb")).values] == [10**6, 1]


@pytest.mark.slow
def test_many_long_lines_are_not_one_that_is_too_long(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", (b"a" * 999_999 + b"\n") * 50)
    assert sum(1 for _ in lines_of(path, UTF8, Ledger())) == 50


def test_a_line_without_end_is_refused_in_little_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"short\n" + b"a" * (20 << 20))
    tracemalloc.start()
    message = refused(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message.startswith(f"{path}:2: line.too_long: line 2 is longer than 16 MiB")
    assert peak < 24 << 20


def test_old_line_ends_are_told_from_a_long_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", (b"a" * 999 + b"\r") * (20 << 10) + b"\n")
    assert re.search(r"x.txt:1: line.cr_only: one line of more than 16.8 MB with 1\d,\d{3} CR", refused(path))


def test_a_missing_file_names_the_one_that_is_near(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", b"")
    assert refused(tmp_path / "tran.csv").endswith("file.missing: there is no such file. Did you mean train.csv?")
    assert refused(tmp_path / "zzz.csv").endswith("Fix: check the path.")
    assert "is missing too" in refused(tmp_path / "nowhere" / "train.csv")


@pytest.mark.parametrize("name", ["a\0b.csv", "x" * 300 + ".csv", "loop.csv"])
def test_a_name_that_leads_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    assert ": file.missing: " in refused(tmp_path / name)


def test_pipes_sockets_and_devices_are_refused_unopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.csv")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.csv")
        for path, kind in [("pipe.csv", "a named pipe"), ("socket.csv", "a socket"), ("/dev/zero", "a device")]:
            assert refused(Path(path)).startswith(f"{path}: file.not_regular: this is {kind}")


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.csv", b"text\na\n")
    monkeypatch.setattr(os, "access", lambda *_: False)  # the rights themselves do not bind a root user
    assert refused(path).startswith(f"{path}: file.permission: ")


def test_a_name_with_escapes_is_shown_harmless(tmp_path: Path) -> None:
    path = write(tmp_path / "a\n\x1b[31m.csv", b"text\na\nb,c\n")
    assert "a\\n\\x1b[31m.csv:3: csv.ragged" in refused(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"PK\x03\x04rest", "file.magic: this is a zip (xlsx?), not csv. Fix: export it as csv, or unpack it"),
        ("x.csv", b"\x1f\x8brest", "file.magic: this is gzip, not csv. Fix: add .gz to its name."),
        ("x.csv", b"\xfd7zXZ\0rest", "file.magic: this is xz, not csv. Fix: add .xz to its name."),
        ("x.csv", b"PAR1rest", "file.magic: this is parquet, not csv. Fix: use --format parquet."),
        ("x.csv.gz", b"text\na\n", "file.magic: expected gzip by its name, but the content is something else."),
        ("x.csv.gz", b"\xfd7zXZ\0rest", "file.magic: expected gzip by its name, but the content is xz."),
        ("x.csv", bytes(257) + b"ustar", "file.archive: this is a tar archive. Fix: unpack it"),
        ("x.zip", b"PK\x03\x04", "file.archive: this is a zip archive."),
        ("x.tar.gz", b"\x1f\x8b", "file.archive: this is a tar archive."),
        ("x.tgz", b"\x1f\x8b", "file.archive: this is a tgz archive."),
        ("x.xlsx", b"PK\x03\x04", "file.magic: this is a zip (xlsx?), not text. Fix: export it as csv, or unpack it"),
        (
            "x.xls",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            "file.magic: this is an old Office file (xls?), not text. Fix: ex",
        ),
        ("x.json", b"[]", "file.format: unknown file extension '.json'. Fix: write one object per line and name"),
        ("x.parquet", b"text\na\n", "file.magic: expected parquet by its name, but the content is something else."),
        ("x.parquet", b"PAR1 cut", "file.magic: the end of this parquet file is missing."),
        ("x.npz", b"PAR1", "file.magic: expected npz by its name, but the content is parquet."),
        ("x.npz", b"", "data.empty: "),
        ("x.dat", b"text", "file.format: unknown file extension '.dat'. Fix: give --format, one of csv, tsv,"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = write(tmp_path / name, content)
    assert refused(path).startswith(f"{path}: {message}")


def test_a_name_with_zip_in_its_middle_is_no_archive(tmp_path: Path) -> None:
    path = write(tmp_path / "how.zip.works.txt", b"text")
    assert list(lines_of(path, UTF8, Ledger())) == [(1, "text")]


@pytest.mark.slow
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"line\n" * 600_000)
    lines = lines_of(path, UTF8, Ledger())
    next(lines)
    with path.open("ab") as file:
        file.write(b"more\n")
    with pytest.raises(RejectedError, match=r"x.txt: data.changed: .*3,000,000 bytes.*3,000,005 bytes"):
        list(lines)


def test_the_fingerprint_is_that_of_the_stored_bytes(tmp_path: Path) -> None:
    found = fingerprint(write(tmp_path / "x", b"abc"))
    assert found == (3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")  # FIPS 180-2


@pytest.mark.parametrize("address", ["https://example.org/a.csv", "http://example.org/a", "https://example.org/a.zip"])
def test_an_address_is_no_file(address: str) -> None:
    message = refused(Path(address))
    assert "file.missing: this is a URL; only files are read. Fix: download it" in message


def unwritable(path: Path, *inputs: Path) -> str:
    """Why a page may not be written to a path."""
    with pytest.raises(RejectedError) as caught:
        require_writable(path, inputs, Ledger())
    assert caught.value.codes == ("out.unwritable",)
    return str(caught.value)


def test_a_page_never_replaces_the_data(tmp_path: Path) -> None:
    data = write(tmp_path / "data.html", "text")
    (tmp_path / "second.html").hardlink_to(data)
    require_writable(data, [tmp_path / "other.html", Path("a set")], Ledger())
    for path in (data, tmp_path / "second.html", tmp_path / "." / "data.html"):
        assert "this is the data itself, which the report would overwrite" in unwritable(
            path, tmp_path / "train.csv", data
        )


def test_a_page_replaces_nothing_but_a_page(tmp_path: Path) -> None:
    page = write(tmp_path / "page.html", "old")
    (tmp_path / "link.html").symlink_to(page)
    (tmp_path / "nowhere.html").symlink_to(tmp_path / "gone.html")
    os.mkfifo(tmp_path / "pipe.html")
    for name, kind in [("link", "a link"), ("nowhere", "a link"), ("pipe", "a named pipe")]:
        assert f"this is {kind}, which the report would overwrite" in unwritable(tmp_path / f"{name}.html")
    assert "this is a device" in unwritable(Path("/dev/full"))
    for name in ("data.csv", "page", "html", ".html", "page.html.gz"):
        assert "the name of a report must end in .html or .htm" in unwritable(tmp_path / name)
    for name in ("page.html", "new.HTML", "new.htm"):
        require_writable(tmp_path / name, (), Ledger())


@pytest.mark.parametrize("name", ["data.csv/page.html", "no/page.html"])
def test_a_page_needs_a_folder(tmp_path: Path, name: str) -> None:
    write(tmp_path / "data.csv", "text")
    assert f"there is no folder {(tmp_path / name).parent}" in unwritable(tmp_path / name)
