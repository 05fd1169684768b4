"""Claims about an index in a folder: it answers as one made afresh, and no damage goes unseen."""

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from search_common import SETTINGS, WordTable, built, bytes_of, last, some_documents, some_text, write_documents
from seqloom.errors import ConfigError, DamagedError, HeldError
from seqloom.events import finished
from seqloom.files.lock import hold
from seqloom.search import bm25, segments
from seqloom.search import index as folder_index
from seqloom.search import index as index_module
from seqloom.search.bm25 import words_of
from seqloom.search.build import add_to_index, embed_documents
from seqloom.search.documents import Collection
from seqloom.search.index import Index, open_index, open_writable_index
from seqloom.search.search import RANKINGS, ByVectors, Hit, Searcher, SearchQuery
from seqloom.search.store import Segment, TextDocument, conditions

QUESTIONS = [some_text(np.random.default_rng(1000 + number), 1) for number in range(6)]
AGAIN = r"build the index again: `seqloom index \[MODEL\] FILE --out NEW"
WHERES: list[list[str]] = [[], ["year>=2000"], ["lang=en", "year!=1995"], ["year>3000"]]


def answers(index: Index) -> list[list[tuple[str, float]]]:
    """All answers to all queries by every ranking."""
    found = []
    for rankings in RANKINGS.values():
        asked = Searcher(index, WordTable(), rankings)
        for query in QUESTIONS:
            for where in WHERES:
                order = asked.ranked(query, top_k=200, where=where)
                found.append([(one.id, round(one.score, 5)) for one in order])
    return found


def same_answers(one: Index, other: Index) -> None:
    """Equal but for the order of documents that are equally good."""
    for mine, others in zip(answers(one), answers(other), strict=True):
        assert [score for _, score in mine] == [score for _, score in others]
        assert sorted(mine) == sorted(others)


def lot_of(documents: list[TextDocument], removed: tuple[str, ...] = ()) -> Segment:
    segment = finished(embed_documents(documents, WordTable(), SETTINGS, 0, len(documents)))
    return segment._replace(removed=removed)


def long_lot(count: int, name: str) -> Segment:
    """Long documents of one passage and no meaning."""
    documents = tuple(TextDocument(f"{name}{row}", f"{name}{row} {QUESTIONS[0] * 100}", {}) for row in range(count))
    passages = segments.passage_array([(row, 0, 5) for row in range(count)])
    return Segment(SETTINGS, documents, passages, np.eye(count, 16, dtype=np.float32))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("made"), some_documents(40)).path


@pytest.fixture
def index(tmp_path: Path, made: Path) -> Index:
    return Index(Path(shutil.copytree(made, tmp_path / "index")))


def changed(folder: Path, change: Callable[[dict[str, TextDocument]], list[TextDocument]]) -> dict[str, TextDocument]:
    """Documents after segments were added to the index of a folder, of which `change` gives each."""
    known = {one.id: one for one in some_documents(40)}
    with open_writable_index(folder) as there:
        there.add(lot_of(change(known)))
    return known


def test_all_documents_are_found_with_their_text_and_columns(index: Index) -> None:
    wanted = some_documents(40)
    assert [one.document for one in index.documents([one.id for one in wanted])] == wanted
    for one in index.documents(["d5", "d11"]):
        assert len(one.passages) == len(one.vectors) >= 1


@pytest.mark.slow
def test_an_index_that_was_added_to_replaced_in_and_deleted_from_answers_as_a_fresh_one(
    tmp_path: Path, index: Index
) -> None:
    known = {one.id: one for one in some_documents(40)}
    later = [one._replace(text=f"{QUESTIONS[0]} {one.text}") for one in some_documents(46)[30::3]]
    with open_writable_index(index.path) as there:
        there.add(lot_of(later))
        there.delete(["d1", "d33", "d45"])
        there.add(lot_of([known["d1"]]))
    known |= {one.id: one for one in later}
    del known["d33"], known["d45"]
    fresh = built(tmp_path, list(known.values()), "fresh")
    assert len(Index(index.path)) == len(fresh) == len(known)
    same_answers(Index(index.path), fresh)


@pytest.mark.slow
def test_joined_segments_answer_as_before_and_what_is_gone_leaves_the_disk(tmp_path: Path, index: Index) -> None:
    secret = TextDocument("secret", "Zebrafish everywhere.", {"year": 2001, "lang": "en"})
    with open_writable_index(index.path) as there:
        there.add(lot_of([secret]))
        there.delete(["secret", "d3"])
    before = answers(Index(index.path))
    with open_writable_index(index.path) as there:
        there.compact()
    assert answers(Index(index.path)) == before
    assert not [path for path in index.path.rglob("*") if path.is_file() and b"Zebrafish" in path.read_bytes()]
    assert len(list(index.path.glob("lot-*"))) == 1


@pytest.mark.slow
def test_a_join_makes_segments_of_bounded_size_and_takes_memory_for_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "DOCUMENTS", 32)
    taken = []
    for count in (4, 16):  # segments
        with open_writable_index(tmp_path / f"{count}") as there:
            for number in range(count):
                there.add(long_lot(32, f"{number}-"))
            there.delete(["0-5"])
            assert len(there) == 32 * count - 1  # all of it is in memory
            monkeypatch.setattr(bm25, "words_of", None)  # no text is split into words again
            tracemalloc.start()
            there.compact()
            taken.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            monkeypatch.setattr(bm25, "words_of", words_of)
            assert [len(segment.header.ids) for segment in there.state.segments] == [32] * (count - 1) + [31]
            before = bytes_of(there.path)
            there.compact()
            assert bytes_of(there.path) == before
    assert taken[1] < 1.5 * taken[0]


@pytest.mark.slow
def test_readers_of_an_index_that_is_joined_meanwhile_read_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 10)
    with open_writable_index(index.path) as there:
        last(there.finished())
        there.delete(["d3"])

    def meanwhile(module: object, name: str) -> None:
        """The next reading comes only after somebody has joined all segments."""
        read = getattr(module, name)

        def late(*given: object) -> object:
            monkeypatch.setattr(module, name, read)
            with open_writable_index(index.path) as there:
                there.add(lot_of(some_documents(1)))
                there.compact()
                last(there.finished())
            return read(*given)

        monkeypatch.setattr(module, name, late)

    meanwhile(index_module, "read_header")
    assert Index(index.path).settings == SETTINGS
    meanwhile(index_module, "read_segment")
    assert len(open_index(index.path)) == 39
    asked = open_index(index.path)
    meanwhile(index_module, "read_folder")
    assert asked.nearest is asked.state.exact  # the graph of segments that it has not read
    (index.path / "lot-000099").mkdir()
    with pytest.raises(DamagedError):  # nobody changes anything
        open_index(index.path)


@pytest.mark.slow
def test_a_join_that_was_killed_before_the_old_segments_went_is_finished_later(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writable_index(index.path) as there:
        there.delete(["d3"])
        before = answers(there)
        monkeypatch.setattr(folder_index, "remove_folder", lambda _: None)
        there.compact()
    assert len(list(index.path.glob("lot-*"))) == 3
    assert answers(Index(index.path)) == before
    monkeypatch.undo()
    with open_writable_index(index.path) as there:
        there.tidy()
    assert answers(Index(index.path)) == before
    assert len(list(index.path.glob("lot-*"))) == 1


@pytest.mark.slow
def test_many_small_segments_are_joined(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_index, "MANY", 3)
    for number in range(4):
        file = write_documents(tmp_path / "one.jsonl", [TextDocument(f"n{number}", QUESTIONS[number], {})])
        last(add_to_index(index.path, WordTable(), Collection(file)))
    assert len(list(index.path.glob("lot-*"))) < 4
    assert len(Index(index.path)) == 44


def test_conditions_choose_exactly_the_documents_that_fulfil_them(index: Index) -> None:
    wanted = {one.id for one in some_documents(40) if one.columns["year"] >= 2010}
    found = index.by_vector(np.ones(16, np.float32) / 4, conditions(["year>=2010"]), 100)
    assert {one.id for one in found} == wanted


def test_a_condition_on_an_unknown_column_is_refused(index: Index) -> None:
    with pytest.raises(ConfigError, match=r"'yeer'.*Did you mean 'year'"):
        index.by_words("x", conditions(["yeer=3"]), 3)


def test_documents_are_ranked_by_their_best_passage(index: Index) -> None:
    query = WordTable().embed(["Kaba mido"])[0]
    query /= np.linalg.norm(query)
    best = {one.document.id: float((one.vectors @ query).max()) for one in index.documents(sorted(index.state.rows))}
    found = index.by_vector(query, (), 7)
    assert [one.score for one in found] == pytest.approx(sorted(best.values(), reverse=True)[:7], abs=1e-6)


def test_a_hit_shows_the_best_passage_and_its_best_sentence(tmp_path: Path) -> None:
    texts = " ".join(f"Kaba lodo {'mifi ' * 6}nugu." for _ in range(3)) + " Peba pedo pefi pegu."
    index = built(tmp_path, [TextDocument("long", texts, {}), TextDocument("other", "Kaba.", {})])
    for rankings in RANKINGS.values():
        (hit, *_) = Searcher(index, WordTable(), rankings).search("peba pedo pefi")
        assert hit.to_json()["sentence"] == "Peba pedo pefi pegu."
        assert hit.id == "long" and hit.passage[0] > 0
    (hit, *_) = Searcher(index, None, RANKINGS["words"]).search("peba pedo pefi")
    assert isinstance(hit, Hit) and hit.to_json()["sentence"] == "Peba pedo pefi pegu."


@pytest.mark.slow
def test_a_graph_gives_the_answers_of_exact_search(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 10)
    with open_writable_index(index.path) as there:
        assert last(there.finished()).graph
        there.add(lot_of(some_documents(43)[40:]))
        there.delete(["d7"])
    walked, compared = Index(index.path), Index(index.path, exact=True)
    assert walked.nearest is not compared.nearest and compared.nearest is compared.state.exact
    assert answers(walked) == answers(compared)


@pytest.mark.slow
def test_a_graph_grows_and_the_one_before_goes(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 10)
    with open_writable_index(index.path) as there:
        last(there.finished())
        there.add(lot_of([one._replace(id=f"x{one.id}") for one in some_documents(40, seed=1)]))
        last(there.finished())
        assert list(there.grow_graph()) == []
    assert [path.name for path in index.path.glob("graph-*")] == ["graph-000002"]


@pytest.mark.parametrize("file", ["lot.json", "texts.txt", "words.txt", "arrays.safetensors", "manifest.json"])
def test_a_byte_that_changed_or_is_missing_is_seen_before_any_answer(index: Index, file: str) -> None:
    path = index.path / "lot-000001" / file
    data = path.read_bytes()
    for damaged in (data[:-1], data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :], b""):
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=AGAIN):
            open_index(index.path)
    path.unlink()
    with pytest.raises(DamagedError, match=AGAIN):
        open_index(index.path)


def test_a_graph_that_is_damaged_is_seen(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 10)
    with open_writable_index(index.path) as there:
        last(there.finished())
    path = index.path / "graph-000001" / "graph.usearch"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedError, match=rf"graph\.usearch.*{AGAIN}"):
        answers(open_index(index.path))


def test_a_segment_that_is_missing_is_seen(tmp_path: Path, index: Index) -> None:
    changed(index.path, lambda known: [known["d3"]])
    changed(index.path, lambda known: [known["d4"]])
    (index.path / "lot-000002").rename(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=f"lot-000002.*{AGAIN}"):
        open_index(index.path)


def test_a_second_writer_is_refused_and_a_reader_is_not(index: Index) -> None:
    with hold(index.path):
        assert len(open_index(index.path)) == 40
        with pytest.raises(HeldError), open_writable_index(index.path):
            pass


def test_a_delete_of_an_unknown_id_changes_nothing(index: Index) -> None:
    before = bytes_of(index.path)
    with open_writable_index(index.path) as there, pytest.raises(ConfigError, match="no document with the id 'nobody'"):
        there.delete(["d3", "nobody"])
    assert bytes_of(index.path) == before


def test_a_query_whose_vector_is_zero_is_near_to_nothing(index: Index) -> None:
    width = len(index.state.segments[0].vectors[0])
    assert ByVectors().ranked(index, SearchQuery("zzz", np.zeros(width, np.float32)), (), 5) == []


def test_a_delete_of_nothing_changes_nothing(index: Index) -> None:
    before = bytes_of(index.path)
    with open_writable_index(index.path) as there:
        there.delete([])
    assert bytes_of(index.path) == before


@pytest.mark.parametrize("kind", ["missing", "empty", "other"])
def test_what_is_no_index_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    if kind != "missing":
        folder.mkdir()
    if kind == "other":
        (folder / "thesis.tex").write_text("mine")
        with pytest.raises(ConfigError, match="not an index"), open_writable_index(folder):
            pass
    with pytest.raises(ConfigError, match=r"does not exist|not an index"):
        open_index(folder)
