"""Claims about logs of lines: no record is lost, repeated or wrong, whatever is torn or killed."""

import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_common import QUICK, RECORDS, flipped, properties
from durable_faults import Recorder
from seqloom.errors import DamagedError, DurableError
from seqloom.files import disk, jsonl
from seqloom.files.jsonl import append_line, append_lines, read_lines, write_lines


def test_a_line_is_plain_json_that_ends_in_its_sum(tmp_path: Path) -> None:
    append_line(tmp_path / "log", {"step": 7, "loss": 0.25})
    append_line(tmp_path / "log", {})
    first, second = (tmp_path / "log").read_text().split("\n")[:2]
    assert json.loads(first) == {"step": 7, "loss": 0.25, "crc": "602dd470"}
    assert list(json.loads(second)) == ["crc"]
    assert read_lines(tmp_path / "log") == jsonl.Lines(({"step": 7, "loss": 0.25}, {}), torn=False)
    assert read_lines(tmp_path / "none") == jsonl.Lines((), torn=False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@properties
@given(st.lists(st.dictionaries(st.text().filter(lambda key: key != "crc"), json_values, max_size=4), max_size=4))
def test_any_records_come_back_as_they_were(records: list[dict]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        for record in records:
            append_line(log, record, files=QUICK)
        assert list(read_lines(log).records) == records
        text = log.read_bytes() if records else b""
        write_lines(log, read_lines(log).records, files=QUICK)
        assert log.read_bytes() == text  # a log that is cut back and written again has the same bytes


@pytest.mark.parametrize(
    "record",
    [{"crc": 1}, {"a": float("nan")}, {"a": float("inf")}, {"a": {1}}, {"a": "\ud800"}, {"a": "x" * (1 << 20)}],
)
def test_a_record_that_cannot_come_back_is_refused_and_the_log_stays(tmp_path: Path, record: dict) -> None:
    append_line(tmp_path / "log", {"a": 1}, files=QUICK)
    with pytest.raises(DurableError, match="a record"):
        append_line(tmp_path / "log", record, files=QUICK)
    assert read_lines(tmp_path / "log") == jsonl.Lines(({"a": 1},), torn=False)


def whole_lines(text: bytes) -> list[dict]:
    return [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in text.split(b"\n")[:-1]]


def torn_logs(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Every log a crash may leave of this one, with how many bytes of it are whole lines."""
    for size in range(len(text) + 1):
        whole = text.rfind(b"\n", 0, size) + 1
        yield text[:size], whole
        line_end = text.find(b"\n", size)
        if size > whole and line_end > 0:  # as long as it should be, but the last bytes never came
            yield text[:size] + bytes(line_end + 1 - size), whole
            yield text[:size] + bytes(line_end - size) + b"\n", whole if line_end > size else line_end + 1


def survives(path: Path, log: bytes, whole: int) -> bool:
    path.write_bytes(log)
    expected = whole_lines(log[:whole])
    found = read_lines(path)
    if list(found.records) != expected or found.torn != (whole < len(log)):
        return False
    append_line(path, {"next": 1}, files=QUICK)
    return read_lines(path) == jsonl.Lines((*expected, {"next": 1}), torn=False)


@pytest.mark.slow
def test_a_log_cut_at_any_byte_keeps_every_whole_record_and_is_repaired(tmp_path: Path) -> None:
    write_lines(tmp_path / "log", RECORDS)
    text = (tmp_path / "log").read_bytes()
    verdicts = [survives(tmp_path / "log", log, whole) for log, whole in torn_logs(text)]
    assert all(verdicts)
    assert len(verdicts) > 2 * len(text)


def test_twin_without_the_repair_a_torn_line_spoils_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_whole_size", lambda _handle, size, _path: size)
    with pytest.raises(DamagedError, match="line 2"):
        survives(tmp_path / "log", jsonl._encode({"a": 1}) + b'{"b": ', len(jsonl._encode({"a": 1})))


@pytest.mark.slow
def test_a_flipped_bit_of_a_log_never_gives_a_wrong_record(tmp_path: Path) -> None:
    write_lines(tmp_path / "log", RECORDS)
    text = (tmp_path / "log").read_bytes()
    messages, readings = [], []
    for bit in range(8 * len(text)):
        (tmp_path / "log").write_bytes(flipped(text, bit))
        try:
            readings.append(read_lines(tmp_path / "log"))
        except DamagedError as error:
            messages.append(str(error))
    assert all(re.search(r"log: expected .* found .* line \d", message) for message in messages)
    assert all(reading == jsonl.Lines(tuple(RECORDS[:-1]), torn=True) for reading in readings)
    assert len(messages) > 0.9 * 8 * len(text)


def test_twin_without_the_sum_a_flipped_bit_gives_a_wrong_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "log", RECORDS)
    (tmp_path / "log").write_bytes((tmp_path / "log").read_bytes().replace(b'"step": 1', b'"step": 0'))
    monkeypatch.setattr(jsonl, "_decode", lambda line: json.loads(line))
    assert [record["step"] for record in read_lines(tmp_path / "log").records] == [0, 0, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        b"hello",
        b"hello\n",
        b'{"a": 1}',
        b'{"a": 1}\n',
        b'{"a": 1}\n{"b": 2}\n',
        b'{"a": 1}\n{"b": ',
        b'{\n  "a": 1\n}',
        b"a,b\n1,2\n",
        b"x" * (3 << 20),
        b'{"a": "' + b"x" * (3 << 20),
        b"\n",
    ],
    ids=range(11),
)
def test_a_file_that_is_no_log_of_ours_is_never_cut(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(text)
    with pytest.raises(DamagedError, match="file: expected JSON records with valid checksums"):
        append_line(tmp_path / "file", {"a": 1}, files=QUICK)
    assert (tmp_path / "file").read_bytes() == text


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "target", RECORDS)
    before = (tmp_path / "target").read_bytes()
    (tmp_path / "log").symlink_to("target")
    with pytest.raises(DurableError, match="not a symbolic link"):
        append_line(tmp_path / "log", {"a": 1})
    assert (tmp_path / "target").read_bytes() == before


@pytest.mark.slow
def test_long_lines_are_repaired_like_short_ones(tmp_path: Path) -> None:
    long = [{"i": i, "text": "x" * ((1 << 20) - 60)} for i in range(3)]
    write_lines(tmp_path / "log", long, files=QUICK)
    text = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(text[:-5])
    append_line(tmp_path / "log", {"a": 1}, files=QUICK)
    assert read_lines(tmp_path / "log") == jsonl.Lines((*long[:2], {"a": 1}), torn=False)


def test_two_writers_of_a_log_take_turns(tmp_path: Path) -> None:
    first = disk.REAL_FILES.open_to_append(tmp_path / "log")
    second = os.open(tmp_path / "log", os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(first)
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(second)


WRITER = """if True:
    import sys
    from pathlib import Path
    from seqloom.files import append_line
    for i in range(int(sys.argv[3])):
        append_line(Path(sys.argv[1]), {"writer": int(sys.argv[2]), "i": i})
        print(i, flush=True)
"""


def lost_records(log: Path, records: int, kills: list[float]) -> int:
    """How many acknowledged records of 4 writers are not in the log; the first are killed after these seconds."""
    command = [sys.executable, "-c", WRITER, str(log)]
    writers = [
        subprocess.Popen([*command, str(number), str(records)], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    said = [0] * 4
    for number, seconds in enumerate(kills):
        said[number] += bool(writers[number].stdout.readline())
        time.sleep(seconds)
        writers[number].send_signal(signal.SIGKILL)
    for number, writer in enumerate(writers):
        said[number] += len(writer.communicate()[0].split())
    found = [[record["i"] for record in read_lines(log).records if record["writer"] == n] for n in range(4)]
    assert all(numbers == list(range(len(numbers))) for numbers in found)  # in order, none twice
    # The last record of a killed writer may be saved without an answer, never the other way round.
    return sum(max(0, count - len(numbers)) for count, numbers in zip(said, found, strict=True))


@pytest.mark.slow
def test_four_writers_lose_no_record_even_when_two_are_killed(tmp_path: Path) -> None:
    assert lost_records(tmp_path / "log", 60, kills=[0.01, 0.02]) == 0
    append_line(tmp_path / "log", {"writer": 9})
    assert not read_lines(tmp_path / "log").torn


@pytest.mark.soak
def test_four_writers_lose_no_record_in_fifty_kills(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    moments = random.Random(seed)
    for number in range(25):
        kills = [moments.random() / 5, moments.random() / 5]
        assert lost_records(tmp_path / f"log-{number}", 500, kills) == 0, f"seed {seed}"


def test_a_group_of_lines_has_the_bytes_of_single_ones_and_one_sync(tmp_path: Path) -> None:
    records = [{"step": i, "text": "é" * i} for i in range(50)]
    for record in records:
        append_line(tmp_path / "single", record, files=QUICK)
    recorder = Recorder(lambda *_: False)
    append_lines(tmp_path / "group", records, files=recorder)
    append_lines(tmp_path / "group", [], files=recorder)
    assert (tmp_path / "group").read_bytes() == (tmp_path / "single").read_bytes()
    assert [operation for operation, *_ in recorder.trace].count("sync") == 1


@pytest.mark.slow
def test_a_group_is_never_longer_than_a_line_may_be_so_that_its_tear_is_found(tmp_path: Path) -> None:
    log, big = tmp_path / "log", {"text": "x" * (jsonl.LINE_LIMIT // 3)}
    recorder = Recorder(lambda *_: False)
    append_lines(log, [big] * 7, files=recorder)
    sizes = [len(entry[2]) for entry in recorder.trace if entry[0] == "write"]
    assert len(sizes) == 4 and max(sizes) <= jsonl.LINE_LIMIT
    whole = log.read_bytes()
    for torn in (whole[:-1], whole[: -sizes[-1]] + bytes(sizes[-1]), whole[: -sizes[-1] + 9]):
        log.write_bytes(torn)
        assert read_lines(log).records == (big,) * 6 and read_lines(log).torn
        append_line(log, big, files=QUICK)
        assert log.read_bytes() == whole


def test_a_group_with_a_record_that_cannot_be_written_adds_none_of_it(tmp_path: Path) -> None:
    append_line(tmp_path / "log", {"a": 1}, files=QUICK)
    with pytest.raises(DurableError):
        append_lines(tmp_path / "log", [{"a": 2}, {"a": float("nan")}], files=QUICK)
    assert read_lines(tmp_path / "log").records == ({"a": 1},)
