"""Claims about building: a build that was stopped ends with the same bytes, and bad rows are told before any work."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from search_common import WordTable, built, bytes_of, last, some_documents, write_documents
from seqloom.config.data import BadRows
from seqloom.errors import ConfigError, DataError, MissingExtraError, RejectedError
from seqloom.events import Progress
from seqloom.search import build, segments
from seqloom.search import index as folder_index
from seqloom.search.build import add_to_index, build_index
from seqloom.search.documents import Collection
from seqloom.search.index import Index, open_writable_index
from seqloom.search.store import TextDocument, set_exact


class Other(WordTable):
    identity = "1" * 64


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "DOCUMENTS", 8)
    monkeypatch.setattr(build, "BATCH_SIZE", 5)


@pytest.mark.slow
def test_a_build_that_was_stopped_anywhere_ends_with_the_same_bytes(tmp_path: Path) -> None:
    file = write_documents(tmp_path / "index.jsonl", some_documents(30))
    wanted = bytes_of(built(tmp_path, some_documents(30)).path)
    steps = len(list(build_index(tmp_path / "count", WordTable(), Collection(file))))
    for stop in range(1, steps, 2):
        for each in range(3):  # stopped again and again, and then finished
            work = build_index(tmp_path / f"stopped{stop}", WordTable(), Collection(file))
            for _, _ in zip(range(stop - each), work, strict=False):
                pass
            work.close()  # type: ignore[attr-defined]
        last(build_index(tmp_path / f"stopped{stop}", WordTable(), Collection(file)))
        found = bytes_of(tmp_path / f"stopped{stop}")
        assert found.keys() == wanted.keys()
        assert {name: found[name] for name in found} == wanted


@pytest.mark.slow
def test_what_is_kept_is_not_embedded_again(tmp_path: Path) -> None:
    file = write_documents(tmp_path / "a.jsonl", some_documents(30))
    work = build_index(tmp_path / "index", WordTable(), Collection(file))
    next(one for one in work if isinstance(one, Progress) and one.done >= 17)
    work.close()  # type: ignore[attr-defined]
    _, first, *_ = build_index(tmp_path / "index", WordTable(), Collection(file))
    assert first == Progress("documents", 16, 30, kept=16)


def test_the_same_command_again_does_nothing(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(20))
    before = bytes_of(index.path)
    last(build_index(index.path, WordTable(), Collection(tmp_path / "index.jsonl")))
    assert bytes_of(index.path) == before


@pytest.mark.slow
def test_another_file_is_added_only_when_that_is_asked_for(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(20))
    file = write_documents(tmp_path / "more.jsonl", [TextDocument("d3", "Kaba.", {}), TextDocument("new", "Lodo.", {})])
    with pytest.raises(ConfigError, match=r"already an index of index.jsonl.*--add"):
        list(build_index(index.path, WordTable(), Collection(file)))
    assert last(add_to_index(index.path, WordTable(), Collection(file))).documents == 21
    assert [one.document.text for one in Index(index.path).documents(["d3", "new"])] == ["Kaba.", "Lodo."]


@pytest.mark.slow
def test_a_document_that_was_deleted_comes_back_when_its_file_is_added_again(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(20))
    with open_writable_index(index.path) as there:
        there.delete(["d3"])
    assert last(add_to_index(index.path, WordTable(), Collection(tmp_path / "index.jsonl"))).documents == 20


def test_nothing_is_added_or_deleted_before_a_file_is_finished(tmp_path: Path) -> None:
    file = write_documents(tmp_path / "a.jsonl", some_documents(30))
    more = write_documents(tmp_path / "b.jsonl", some_documents(3, seed=5))
    work = build_index(tmp_path / "index", WordTable(), Collection(file))
    next(one for one in work if isinstance(one, Progress) and one.done >= 17)
    work.close()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"only the first 16 documents of a\.jsonl"):
        list(add_to_index(tmp_path / "index", WordTable(), Collection(more)))
    with open_writable_index(tmp_path / "index") as there, pytest.raises(ConfigError, match="only the first"):
        there.delete(["d1"])


def test_another_model_is_refused(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(9))
    with pytest.raises(ConfigError, match="different model"):
        list(add_to_index(index.path, Other(), Collection(tmp_path / "index.jsonl")))


@pytest.mark.parametrize("passage", [7, 13])
def test_passages_that_the_model_cannot_read_are_refused(tmp_path: Path, passage: int) -> None:
    file = write_documents(tmp_path / "a.jsonl", some_documents(3))
    with pytest.raises(ConfigError, match="choose from 8 to 12"):
        list(build_index(tmp_path / "index", WordTable(), Collection(file), passage_tokens=passage))
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"id": "d2", "text": "Twice."}, "document.twice"),
        ({"id": "x", "text": " "}, "row.empty_text"),
        ({"id": "", "text": "Kaba."}, "document.id"),
        ({"id": None, "text": "Kaba."}, "document.id"),
        ({"id": "x", "text": 7}, "type.text"),
        ({"id": "x", "text": "Ka\0ba."}, "row.zero_byte"),
        ({"id": "\0", "text": "Kaba."}, "row.zero_byte"),
    ],
)
def test_a_bad_row_is_reported_with_its_line_before_any_work_or_skipped(
    tmp_path: Path, row: dict[str, object], code: str
) -> None:
    file = write_documents(tmp_path / "a.jsonl", [TextDocument(f"d{n}", "Kaba.", {}) for n in range(5)])
    with file.open("a") as more:
        more.write(json.dumps(row) + "\n")
    with pytest.raises(RejectedError, match=rf"a\.jsonl:6.*{code}"):
        list(build_index(tmp_path / "index", WordTable(), Collection(file)))
    assert not (tmp_path / "index").exists()
    skipping = Collection(file, bad_rows=BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    assert last(build_index(tmp_path / "index", WordTable(), skipping)).documents == 5


def test_columns_are_chosen_joined_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body,_id,year\nOn Kaba,Lodo.,7,1999\n,Mifi.,8,\n")
    collection = Collection(tmp_path / "a.csv", text=("title", "body"))
    assert list(collection.documents()) == [
        TextDocument("7", "On Kaba Lodo.", {"title": "On Kaba", "body": "Lodo.", "_id": "7", "year": "1999"}),
        TextDocument("8", "Mifi.", {"title": "", "body": "Mifi.", "_id": "8", "year": ""}),
    ]
    (whole, _) = Collection(tmp_path / "a.csv", text=("body",)).documents()
    assert list(whole.columns) == ["title", "_id", "year"]  # a text of one column is not kept twice


def test_a_document_without_an_id_is_called_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Kaba.\nLodo.\n")
    assert [one.id for one in Collection(tmp_path / "a.txt").documents()] == ["a.txt:1", "a.txt:2"]


@pytest.mark.parametrize(("named", "match"), [({"text": ("titel", "text")}, "title"), ({"id": "idd"}, "'id'")])
def test_a_column_that_is_not_there_is_refused_with_the_nearest_name(
    tmp_path: Path, named: dict[str, object], match: str
) -> None:
    (tmp_path / "a.csv").write_text("id,title,text\n1,a,b\n")
    with pytest.raises(ConfigError, match=f"Did you mean {match}|Did you mean '{match}"):
        list(Collection(tmp_path / "a.csv", **named).documents())  # type: ignore[arg-type]


def test_vectors_that_are_no_numbers_are_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    class Broken(WordTable):
        def embed(self, texts: object) -> np.ndarray:
            return np.full((1 if texts == ["width"] else len(texts), 16), np.nan, np.float32)  # type: ignore[arg-type]

    file = write_documents(tmp_path / "a.jsonl", some_documents(3))
    with pytest.raises(DataError, match="NaN or infinity"):
        list(build_index(tmp_path / "index", Broken(), Collection(file)))
    assert not (tmp_path / "index").exists()


def test_a_missing_library_is_reported_before_any_work_unless_all_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 10)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    file = write_documents(tmp_path / "a.jsonl", some_documents(12))
    with pytest.raises(MissingExtraError, match=r"seqloom\[search\]"):
        list(build_index(tmp_path / "index", WordTable(), Collection(file)))
    assert not (tmp_path / "index").exists()
    assert last(build_index(tmp_path / "index", WordTable(), Collection(file), exact=True)).documents == 12


def test_passages_and_not_documents_decide_whether_a_library_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_documents(
        tmp_path / "a.jsonl", [TextDocument("a", "Kaba lodo mifi. " * 40, {}), TextDocument("b", "Lo.", {})]
    )
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 12)
    assert last(build_index(tmp_path / "small", WordTable(), Collection(file))).passages == 11
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 11)
    with pytest.raises(MissingExtraError, match="usearch"):
        list(build_index(tmp_path / "index", WordTable(), Collection(file)))
    more = write_documents(tmp_path / "b.jsonl", [TextDocument("more", "Kaba.", {})])
    with pytest.raises(MissingExtraError, match="usearch"):
        list(add_to_index(tmp_path / "small", WordTable(), Collection(more)))
    assert len(Index(tmp_path / "small")) == 2  # nothing was embedded


@pytest.mark.slow
def test_that_all_are_compared_is_remembered_until_a_graph_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 10)
    first = write_documents(tmp_path / "a.jsonl", some_documents(9))
    more = write_documents(tmp_path / "b.jsonl", [TextDocument("more", "Kaba.", {})])
    index, table = tmp_path / "index", WordTable()
    assert not last(build_index(index, table, Collection(first), exact=True)).graph
    assert not last(add_to_index(index, table, Collection(more))).graph
    with open_writable_index(index) as there:
        there.delete(["d3"])
        there.compact()
        assert not last(there.finished()).graph
        set_exact(there, False)
        assert last(there.finished()).graph
        set_exact(there, True)
        assert not last(there.finished()).graph and not list(index.glob("graph-*"))


@pytest.mark.slow
def test_documents_are_deleted_once_and_a_deletion_that_was_killed_is_resumed(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(9))
    with open_writable_index(index.path) as there:
        there.delete([])
        assert there.source is not None  # nothing was added
        there.delete(["d1", "d2"])
        for change in (lambda: set_exact(there, True), there.compact, lambda: None):
            change()
            before = bytes_of(index.path)
            there.delete(["d2", "d1"])
            assert bytes_of(index.path) == before
        there.delete(["d1", "d3"])  # one that is there is among them
        there.delete(["d1", "d3"])
        with pytest.raises(ConfigError, match="no document with the id 'd2'"):
            there.delete(["d3", "d2"])
    more = write_documents(tmp_path / "more.jsonl", [TextDocument("d1", "Kaba.", {})])
    last(add_to_index(index.path, WordTable(), Collection(more)))
    assert Index(index.path).holds(["d1", "d2", "d3", "d4"]) == {"d1", "d4"}
    with open_writable_index(index.path) as there, pytest.raises(ConfigError, match="no document with the id 'd3'"):
        there.delete(["d3"])


PLACES = [
    *("file-new:kill:1", "after-rename:kill:1"),  # while the first segments are made
    *("before-rename:kill:5", "after-manifest:kill:18"),  # a graph is made, another one grows
    *("manifest-half:kill:11", "after-rename:kill:13"),  # segments are joined
    *("retention-half:kill:9", "before-rename:kill:24", "file-75:kill:95"),  # old ones go; the second join
    *("after-rename:kill:15", "after-rename:kill:20", "retention-half:kill:50"),  # behind a deletion
]


def killed(folder: Path, *arguments: str) -> dict[str, bool]:
    """Which kills met a process alive, if all indexes have the bytes of one that nobody killed."""
    program = [sys.executable, str(Path(__file__).with_name("killing.py")), str(folder), *arguments]
    run = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    wanted, found = bytes_of(folder / "whole"), json.loads(run.stdout)
    assert any(name.startswith("graph-") for name in wanted)
    for name in found:
        assert bytes_of(folder / name) == wanted, name
    return dict(found)


@pytest.mark.slow
def test_kills_while_an_index_is_built_changed_and_joined_do_not_change_a_byte(tmp_path: Path) -> None:
    found = killed(tmp_path, *PLACES)
    assert len(found) >= 10 and all(found.values()), found


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_kills_at_ten_random_moments_do_not_change_a_byte(tmp_path: Path, seed: int) -> None:
    assert sum(killed(tmp_path, str(seed)).values()) == 10
