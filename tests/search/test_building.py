"""Claims about building: a build that was stopped ends with the same bytes, and bad rows are told before any work."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from search_common import WordTable, built, bytes_of, last, some_documents, write_documents
from seqloom.data.problems import BadRows
from seqloom.errors import ConfigError, DataError, MissingExtraError, RejectedError
from seqloom.search import building
from seqloom.search.building import Embedded, add_to_index, build_index
from seqloom.search.documents import Collection
from seqloom.search.index import Index, writing
from seqloom.search.store import Document


class Other(WordTable):
    identity = "1" * 64


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "DOCUMENTS", 8)
    monkeypatch.setattr(building, "TOGETHER", 5)


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
    next(one for one in work if isinstance(one, Embedded) and one.done >= 17)
    work.close()  # type: ignore[attr-defined]
    _, first, *_ = build_index(tmp_path / "index", WordTable(), Collection(file))
    assert first == Embedded(16, 30)


def test_the_same_command_again_does_nothing(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(20))
    before = bytes_of(index.path)
    last(build_index(index.path, WordTable(), Collection(tmp_path / "index.jsonl")))
    assert bytes_of(index.path) == before


@pytest.mark.slow
def test_another_file_is_added_only_when_that_is_asked_for(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(20))
    file = write_documents(tmp_path / "more.jsonl", [Document("d3", "Kaba.", {}), Document("new", "Lodo.", {})])
    with pytest.raises(ConfigError, match=r"index of index.jsonl already.*--add"):
        list(build_index(index.path, WordTable(), Collection(file)))
    assert last(add_to_index(index.path, WordTable(), Collection(file))).documents == 21
    assert [one.document.text for one in Index(index.path).found(["d3", "new"])] == ["Kaba.", "Lodo."]


def test_a_document_that_was_deleted_comes_back_when_its_file_is_added_again(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(20))
    with writing(index.path) as there:
        there.delete(["d3"])
    assert last(add_to_index(index.path, WordTable(), Collection(tmp_path / "index.jsonl"))).documents == 20


def test_nothing_is_added_or_deleted_before_a_file_is_finished(tmp_path: Path) -> None:
    file = write_documents(tmp_path / "a.jsonl", some_documents(30))
    more = write_documents(tmp_path / "b.jsonl", some_documents(3, seed=5))
    work = build_index(tmp_path / "index", WordTable(), Collection(file))
    next(one for one in work if isinstance(one, Embedded) and one.done >= 17)
    work.close()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"16 documents of a\.jsonl and not the rest"):
        list(add_to_index(tmp_path / "index", WordTable(), Collection(more)))
    with writing(tmp_path / "index") as there, pytest.raises(ConfigError, match="not the rest"):
        there.delete(["d1"])


def test_another_model_is_refused(tmp_path: Path) -> None:
    index = built(tmp_path, some_documents(9))
    with pytest.raises(ConfigError, match="another model"):
        list(add_to_index(index.path, Other(), Collection(tmp_path / "index.jsonl")))


@pytest.mark.parametrize("passage", [7, 13])
def test_passages_that_the_model_cannot_read_are_refused(tmp_path: Path, passage: int) -> None:
    file = write_documents(tmp_path / "a.jsonl", some_documents(3))
    with pytest.raises(ConfigError, match="take 8 to 12"):
        list(build_index(tmp_path / "index", WordTable(), Collection(file), passage=passage))


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"id": "d2", "text": "Twice."}, "document.twice"),
        ({"id": "x", "text": " "}, "row.empty_text"),
        ({"id": "", "text": "Kaba."}, "document.id"),
        ({"id": None, "text": "Kaba."}, "document.id"),
        ({"id": "x", "text": 7}, "type.text"),
    ],
)
def test_a_bad_row_is_told_with_its_line_before_any_work_or_passed_over(
    tmp_path: Path, row: dict[str, object], code: str
) -> None:
    file = write_documents(tmp_path / "a.jsonl", [Document(f"d{n}", "Kaba.", {}) for n in range(5)])
    with file.open("a") as more:
        more.write(json.dumps(row) + "\n")
    with pytest.raises(RejectedError, match=rf"a\.jsonl:6.*{code}"):
        list(build_index(tmp_path / "index", WordTable(), Collection(file)))
    assert not (tmp_path / "index").exists()
    skipping = Collection(file, bad_rows=BadRows(skip=True, share=1.0))
    assert last(build_index(tmp_path / "index", WordTable(), skipping)).documents == 5


def test_columns_are_chosen_joined_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body,_id,year\nOn Kaba,Lodo.,7,1999\n,Mifi.,8,\n")
    collection = Collection(tmp_path / "a.csv", text=("title", "body"))
    assert list(collection.documents()) == [
        Document("7", "On Kaba Lodo.", {"year": "1999"}),
        Document("8", "Mifi.", {"year": ""}),
    ]


def test_a_document_without_an_id_is_called_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Kaba.\nLodo.\n")
    assert [one.id for one in Collection(tmp_path / "a.txt").documents()] == ["a.txt:1", "a.txt:2"]


@pytest.mark.parametrize(("named", "match"), [({"text": ("titel", "text")}, "title"), ({"id": "idd"}, "'id'")])
def test_a_column_that_is_not_there_is_refused_with_the_nearest_name(
    tmp_path: Path, named: dict[str, object], match: str
) -> None:
    (tmp_path / "a.csv").write_text("id,title,text\n1,a,b\n")
    with pytest.raises(ConfigError, match=f"did you mean {match}|did you mean '{match}"):
        list(Collection(tmp_path / "a.csv", **named).documents())  # type: ignore[arg-type]


def test_vectors_that_are_no_numbers_are_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    class Broken(WordTable):
        def embed(self, texts: object) -> np.ndarray:
            return np.full((1 if texts == ["width"] else len(texts), 16), np.nan, np.float32)  # type: ignore[arg-type]

    file = write_documents(tmp_path / "a.jsonl", some_documents(3))
    with pytest.raises(DataError, match="not finite"):
        list(build_index(tmp_path / "index", Broken(), Collection(file)))
    assert not list((tmp_path / "index").glob("lot-*"))


def test_a_missing_library_is_told_before_any_work_unless_all_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "GRAPH_FROM", 10)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    file = write_documents(tmp_path / "a.jsonl", some_documents(12))
    with pytest.raises(MissingExtraError, match=r"seqloom\[search\]"):
        list(build_index(tmp_path / "index", WordTable(), Collection(file)))
    assert not list(tmp_path.glob("index/lot-*"))
    assert last(build_index(tmp_path / "index", WordTable(), Collection(file), exact=True)).documents == 12


@pytest.mark.slow
def test_a_build_that_is_killed_at_any_place_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    write_documents(tmp_path / "index.jsonl", some_documents(30))
    wanted = bytes_of(built(tmp_path, some_documents(30)).path)
    program = Path(__file__).parent / "killing.py"
    run = subprocess.run([sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    places = json.loads(run.stdout)
    assert len(places) >= 10 and all(places.values()), places  # each of them killed a build
    for place in places:
        assert bytes_of(tmp_path / place) == wanted, place
