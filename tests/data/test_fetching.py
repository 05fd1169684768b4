"""Fetching known sets: only over https, only what verifies, and nothing half done."""

import gzip
import hashlib
import io
import json
import lzma
import re
import tracemalloc
import urllib.error
import urllib.request
import urllib.response
from collections.abc import Callable, Mapping
from email.message import Message
from http.client import IncompleteRead
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from seqloom.cli import data as data_sources
from seqloom.cli.terminal import Screen
from seqloom.config.data import ReadingConfig
from seqloom.data.download import CHUNK, DataFolders, Event, NamedSource, Opener, SourceFile, get_source, open_https
from seqloom.data.sources import SOURCES
from seqloom.data.synthetic.registry import NAMES
from seqloom.errors import ConfigError, DataError

TRAIN, DEV = b"1 good\n0 bad\n" * 20, b"1 fine\n"


def known(path: str, data: bytes, url: str | None = None) -> SourceFile:
    return SourceFile(path, hashlib.sha256(data).hexdigest(), len(data), data.count(b"\n"), url)


def toy(**urls: str) -> NamedSource:
    files = {"train": (known("toy/train.txt.xz", TRAIN, urls.get("train")),)}
    files |= {"dev": (known("toy/dev.txt", DEV, urls.get("dev")),)}
    reading = ReadingConfig(format="text", template="{label} {text}")
    return NamedSource("toy", "A toy", "none", "Nobody (2024). A toy", "our own", files, reading, "classify")


SERVED = toy(train="https://example.org/train.txt.gz", dev="https://example.org/dev.txt")
BODIES = {"https://example.org/train.txt.gz": gzip.compress(TRAIN), "https://example.org/dev.txt": DEV}


class Body(io.BytesIO):
    """An answer with a body, which may promise another length than it has."""

    def __init__(self, data: bytes, length: int | None = None) -> None:
        super().__init__(data)
        self.length = length


def serving(bodies: Mapping[str, bytes]) -> Opener:
    return lambda url: Body(bodies[url])


def failing(error: Exception) -> Opener:
    def opener(url: str) -> Body:
        raise error

    return opener


def refuse(url: str) -> Body:
    raise AssertionError(f"nothing should be asked for, but {url} was")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fetch(source: NamedSource, folders: DataFolders, opener: Opener = refuse) -> list[Event]:
    return list(get_source(source, folders, opener))


def mirror_of(folder: Path) -> Path:
    (folder / "toy").mkdir(parents=True)
    (folder / "toy/train.txt.xz").write_bytes(lzma.compress(TRAIN))
    (folder / "toy/dev.txt").write_bytes(DEV)
    return folder


def place(folder: Path, source: NamedSource, suffix: str = "") -> None:
    for file in source.every_file():
        path = folder / f"{file.plain}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


# Fetching


def test_files_are_downloaded_verified_and_placed_unpacked(tmp_path: Path) -> None:
    folders = DataFolders(None, tmp_path / "deep/own")
    events = fetch(SERVED, folders, serving(BODIES))
    assert snapshot(folders.own) == {"toy/train.txt": TRAIN, "toy/dev.txt": DEV}
    assert [event.action for event in events] == ["downloading", "downloading", "written", "written"]
    assert folders.find_all(SERVED) == {
        "train": (folders.own / "toy/train.txt",),
        "dev": (folders.own / "toy/dev.txt",),
    }


def test_a_download_is_reported_as_it_grows(tmp_path: Path) -> None:
    data = bytes(3 * CHUNK)
    source = toy()._replace(files={"train": (known("toy/big", data, "https://example.org/big"),)})
    events = fetch(source, DataFolders(None, tmp_path), lambda _: Body(data))
    assert [(event.done, event.total) for event in events[:-1]] == [(n * CHUNK, 3 * CHUNK) for n in (1, 2, 3)]


def test_what_is_here_and_right_is_not_fetched_again(tmp_path: Path) -> None:
    folders = DataFolders(None, tmp_path)
    fetch(SERVED, folders, serving(BODIES))
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert [event.action for event in fetch(SERVED, folders)] == ["here", "here"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times


def test_a_mirror_is_copied_and_never_written_to(tmp_path: Path) -> None:
    folders = DataFolders(mirror_of(tmp_path / "mirror"), tmp_path / "own")
    before = snapshot(tmp_path / "mirror")
    events = fetch(SERVED, folders)
    assert [event.action for event in events] == ["copied", "copied", "written", "written"]
    assert snapshot(folders.own) == {"toy/train.txt": TRAIN, "toy/dev.txt": DEV}
    assert snapshot(tmp_path / "mirror") == before


def test_a_file_that_was_put_there_packed_is_here(tmp_path: Path) -> None:
    mirror_of(tmp_path)
    assert [event.action for event in fetch(toy(), DataFolders(None, tmp_path))] == ["here", "here"]


def test_a_wrong_file_of_ours_is_replaced(tmp_path: Path) -> None:
    mirror_of(tmp_path)
    (tmp_path / "toy/dev.txt").write_bytes(DEV.swapcase())
    events = fetch(SERVED, DataFolders(None, tmp_path), serving(BODIES))
    assert [event.action for event in events] == ["here", "downloading", "written"]
    assert (tmp_path / "toy/dev.txt").read_bytes() == DEV


def changed(data: bytes, at: int, by: int) -> bytes:
    return data[:at] + bytes([(data[at] + by) % 256]) + data[at + 1 :]


WRONG: dict[str, tuple[bytes, str]] = {
    "another byte": (changed(DEV, 2, 1), "sha256"),
    "truncated": (DEV[:-1], "ends after 6 of the 7 bytes"),
    "empty": (b"", "ends after 0 of the 7 bytes"),
    "one byte more": (DEV + b"\n", "too large"),
    "endless": (DEV * 100_000, "too large"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_refused_and_nothing_is_placed(tmp_path: Path, wrong: str) -> None:
    body, words = WRONG[wrong]
    bodies = BODIES | {"https://example.org/dev.txt": body}
    with pytest.raises(DataError, match=words) as caught:
        fetch(SERVED, DataFolders(None, tmp_path), serving(bodies))
    assert "https://example.org/dev.txt" in caught.value.problem
    assert f"put toy/train.txt, toy/dev.txt (plain, .xz or .gz) into {tmp_path}" in caught.value.fix
    assert snapshot(tmp_path) == {}  # not even the file that was right


@pytest.mark.slow
@given(data=st.data())
def test_no_damaged_packed_answer_is_taken_for_the_file(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    packed = gzip.compress(TRAIN, mtime=0)
    cut = data.draw(st.integers(0, len(packed)))
    at, by = data.draw(st.integers(0, len(packed) - 1)), data.draw(st.integers(1, 255))
    body = data.draw(st.sampled_from([packed[:cut], changed(packed, at, by), packed + b"more"]))
    folder = tmp_path_factory.mktemp("own")
    try:
        fetch(SERVED, DataFolders(None, folder), serving(BODIES | {"https://example.org/train.txt.gz": body}))
    except DataError:
        assert snapshot(folder) == {}
    else:
        assert snapshot(folder) == {"toy/train.txt": TRAIN, "toy/dev.txt": DEV}


@pytest.mark.slow
def test_a_packed_answer_that_unpacks_to_too_much_is_refused_without_unpacking_it(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="too large"):
            fetch(SERVED, DataFolders(None, tmp_path), serving(BODIES | {"https://example.org/train.txt.gz": bomb}))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_no_more_is_read_than_the_file_can_have(tmp_path: Path) -> None:
    body = Body(DEV * 100_000)
    with pytest.raises(DataError, match="too large"):
        fetch(SERVED._replace(files={"dev": SERVED.files["dev"]}), DataFolders(None, tmp_path), lambda _: _kept(body))
    assert body.place == CHUNK


def _kept(body: "Body") -> "Body":
    body.close = lambda: setattr(body, "place", body.tell())  # type: ignore[method-assign]
    return body


def test_a_wrong_file_in_the_mirror_is_named(tmp_path: Path) -> None:
    mirror = mirror_of(tmp_path / "mirror")
    (mirror / "toy/dev.txt").write_bytes(DEV.upper())
    with pytest.raises(
        DataError, match=r"mirror/toy/dev.txt is not the expected toy/dev.txt: sha256 [0-9a-f]{64}, exp"
    ):
        fetch(SERVED, DataFolders(mirror, tmp_path / "own"))
    (mirror / "toy/train.txt.xz").write_bytes(lzma.compress(TRAIN)[:-20])
    with pytest.raises(DataError, match=r"mirror/toy/train.txt.xz: xz.truncated"):
        fetch(SERVED, DataFolders(mirror, tmp_path / "own"))
    assert snapshot(tmp_path / "own") == {}


def test_without_an_address_the_cure_is_to_put_the_files_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no known URL for toy/train.txt. Fix: put toy/train.txt"):
        fetch(toy(), DataFolders(None, tmp_path))
    mirror_of(tmp_path)
    (tmp_path / "toy/dev.txt").write_bytes(DEV.upper())
    with pytest.raises(DataError, match=r"toy/dev.txt is not the expected toy/dev.txt"):
        fetch(toy(), DataFolders(None, tmp_path))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (urllib.error.URLError(OSError("Name or service not known")), "Name or service not known"),
        (TimeoutError("timed out"), "timed out"),
        (ConnectionResetError(), "ConnectionResetError"),
        (IncompleteRead(b""), "IncompleteRead"),
        (urllib.error.HTTPError("u", 404, "Not\x1b Found", Message(), None), r"the server answered 404 Not\\x1b Found"),
    ],
)
def test_without_a_network_one_error_says_what_to_put_where(tmp_path: Path, error: Exception, words: str) -> None:
    with pytest.raises(DataError, match=f"cannot download https://example.org/train.txt.gz: {words}") as caught:
        fetch(SERVED, DataFolders(None, tmp_path), failing(error))
    assert caught.value.fix.startswith("check the network, or put toy/train.txt, toy/dev.txt")
    assert snapshot(tmp_path) == {}


def test_a_connection_that_breaks_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def breaking(url: str) -> Body:
        body = Body(BODIES[url])
        body.read = failing(ConnectionResetError("reset by peer"))  # type: ignore[assignment, method-assign]
        return body

    with pytest.raises(DataError, match="reset by peer"):
        fetch(SERVED, DataFolders(None, tmp_path), breaking)
    assert snapshot(tmp_path) == {}


# https alone


@pytest.mark.parametrize("url", ["http://example.org/a", "ftp://example.org/a", "file:///etc/passwd", "example.org"])
def test_another_scheme_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(DataError, match="only https"):
        open_https(url)


class Redirecting(urllib.request.BaseHandler):
    """A server that sends everyone elsewhere, once."""

    def __init__(self, location: str) -> None:
        self.location = location

    def https_open(self, asked: urllib.request.Request) -> urllib.response.addinfourl:
        headers, moved = Message(), asked.full_url.endswith("/moved")
        if moved:
            headers["Location"] = self.location
        answer = urllib.response.addinfourl(io.BytesIO(b"body"), headers, asked.full_url, 302 if moved else 200)
        answer.msg = ""  # type: ignore[attr-defined]
        return answer


@pytest.mark.parametrize("location", ["http://example.org/a", "ftp://example.org/a"])
def test_a_redirection_to_another_scheme_is_refused(location: str) -> None:
    with pytest.raises(DataError, match=f"only https is allowed, but the URL is {location}"):
        open_https("https://example.org/moved", Redirecting(location))


def test_a_redirection_to_a_local_file_is_refused() -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        open_https("https://example.org/moved", Redirecting("file:///etc/passwd"))
    caught.value.close()


def test_a_redirection_to_https_is_followed() -> None:
    answer = open_https("https://example.org/moved", Redirecting("https://example.org/here"))
    assert answer.read(10) == b"body"
    answer.close()


# The command line


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    app = typer.Typer()
    app.command("list")(data_sources.list_sources)
    app.command("get")(data_sources.get_source)
    monkeypatch.setenv("SEQLOOM_DATA", str(tmp_path / "mirror"))
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setitem(SOURCES, "toy", toy())

    def run(*arguments: str) -> str:
        return CliRunner().invoke(app, arguments, catch_exceptions=False).output

    return run


def test_get_shows_license_and_citation_and_a_second_time_does_nothing(
    command: Callable[..., str], tmp_path: Path
) -> None:
    mirror_of(tmp_path / "mirror")
    first = command("get", "toy")
    assert "license:  none" in first and "cite:     Nobody (2024). A toy" in first
    assert "'toy' is complete; 2 of its 2 files are new" in first
    assert "nothing to do: all 2 files of 'toy' exist and are verified" in command("get", "toy")
    assert snapshot(tmp_path / "own") == {"data/toy/train.txt": TRAIN, "data/toy/dev.txt": DEV}


def test_list_shows_every_set_and_whether_it_is_here(command: Callable[..., str], tmp_path: Path) -> None:
    mirror_of(tmp_path / "mirror")
    lines = [line.split() for line in command("list").split("\n")]
    first = {words[0]: words[1:4] for words in lines if len(words) > 3}
    assert first.keys() >= SOURCES.keys() | NAMES.keys()
    assert first["toy"] == ["classify", "41", "yes"]
    assert first["sst2"] == ["classify", "9,613", "no"]
    assert first["trec"][2:] == ["by"]  # hand
    assert first["dates"][2] == "built-in"


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_in_a_narrow_terminal_names_stay_whole_and_descriptions_have_lines_of_their_own(
    command: Callable[..., str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = command("list")
    assert max(map(len, shown.split("\n"))) <= width
    assert {line.split()[0] for line in shown.split("\n") if line[:1].isalpha()} >= SOURCES.keys() | NAMES.keys()
    indented = [line for line in shown.split("\n") if line.startswith("  ")]
    assert sum(len(line.split()) for line in indented) / len(indented) > 4  # words a line
    assert " ".join(SOURCES["sst2"].description.split()) in " ".join(shown.split())


def test_list_shows_the_sets_of_one_task(command: Callable[..., str]) -> None:
    shown = command("list", "--task", "regress")
    assert "stsb" in shown and "adding" in shown and "sst2" not in shown and "dates" not in shown
    assert "scifact" in command("list", "--task", "search")
    with pytest.raises(ConfigError, match="Did you mean 'classify'"):
        command("list", "--task", "clasify")


def test_list_as_json_has_every_set_with_its_parts(command: Callable[..., str]) -> None:
    sets = {one["name"]: one for one in json.loads(command("list", "--json"))}
    assert sets.keys() == SOURCES.keys() | NAMES.keys()
    assert sets["sst2"]["rows"] == {"train": 6920, "dev": 872, "test": 1821}
    assert [sets[name]["here"] for name in ("sst2", "trec", "dates")] == ["no", "by hand", "built-in"]
    assert (sets["sst2"]["license"], sets["dates"]["license"]) == (SOURCES["sst2"].license, None)


def test_on_a_terminal_a_download_shows_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    events = get_source(SERVED, DataFolders(None, tmp_path), serving(BODIES))
    assert data_sources._watch(events, Screen()) == 2
    shown = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().out)
    assert re.search(r"toy/dev\.txt .* 7/7 bytes .* 0:00:0", shown)


def test_get_tells_an_embedded_set_from_an_unknown_one(command: Callable[..., str]) -> None:
    assert "'dates' is a built-in dataset" in command("get", "dates")
    with pytest.raises(ConfigError, match="Did you mean 'toy'"):
        command("get", "toyy")
