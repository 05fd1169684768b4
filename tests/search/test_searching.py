"""Claims about queries and hits: what is shown is what was found, and says how near it is."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_common import VOCABULARY, WordTable, built, some_documents, write_documents
from seqloom.errors import ConfigError, DamagedError
from seqloom.search import segments
from seqloom.search.build import build_index
from seqloom.search.documents import Collection
from seqloom.search.index import Index, open_index
from seqloom.search.search import RANKINGS, ByWords, Searcher, SearchQuery, best_ranking
from seqloom.search.store import Settings, TextDocument
from seqloom.search.vectors import require_same_model, unit_vectors

LONG = f"Kaba {'nugu ' * 10}. " + " ".join(f"Number {number} of {'mifi ' * 5}." for number in range(20))
ORDERS = st.lists(st.lists(st.sampled_from("abcdef"), unique=True), min_size=1, max_size=3)


class Deaf(WordTable):
    """A model to which what says "nugu" is the nearest, whatever has a question mark."""

    def embed(self, texts: object) -> np.ndarray:
        """[N,16] one vector for these, and another for the rest."""
        asked: list[str] = list(texts)  # type: ignore[call-overload]
        return np.stack([np.eye(16, dtype=np.float32)[int("nugu" not in text and "?" not in text)] for text in asked])


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return built(tmp_path_factory.mktemp("made"), some_documents(12))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of one document, of which the first passage has the vector of every query."""
    return deaf(tmp_path_factory.mktemp("long"), LONG)


def deaf(folder: Path, *texts: str) -> Path:
    """An index of documents as the deaf model has them."""
    file = write_documents(
        folder / "a.jsonl", [TextDocument(f"d{number}", text, {}) for number, text in enumerate(texts)]
    )
    list(build_index(folder / "index", Deaf(), Collection(file)))
    return folder / "index"


def test_what_words_found_is_shown_where_the_words_are(long: Path) -> None:
    shown = {}
    for name, rankings in RANKINGS.items():
        (hit,) = Searcher(open_index(long), Deaf(), rankings).search("number 13?")
        shown[name] = hit.to_json()["sentence"]
    assert shown["words"] == shown["both"] == "Number 13 of mifi mifi mifi mifi mifi ."
    assert shown["vectors"].startswith("Kaba nugu")


def test_what_vectors_ranked_higher_is_shown_where_it_is_nearest(tmp_path: Path) -> None:
    found = Searcher(open_index(deaf(tmp_path, LONG, "Number 13.")), Deaf(), RANKINGS["both"]).search("number 13?")
    shown = {hit.id: hit.to_json()["sentence"] for hit in found}
    assert shown["d1"] == "Number 13." and shown["d0"].startswith("Kaba nugu")


def test_a_word_more_outweighs_any_cosine_and_of_equal_ones_the_nearest_is_best() -> None:
    query, texts = SearchQuery("kaba lodo mifi", None), ["kaba", "lodo kaba kaba", "lodo mifi", "nugu"]
    for cosines, best in (([1.0, -1.0, -0.9, 1.0], 2), ([1.0, 0.2, 0.1, 1.0], 1)):
        assert int(np.argmax(ByWords().fits(query, texts, np.array(cosines)))) == best


@pytest.mark.parametrize("name", list(RANKINGS))
def test_the_cosine_of_a_hit_is_that_of_the_passage_that_is_shown(index: Index, long: Path, name: str) -> None:
    for there, model, query in ((index, WordTable(), VOCABULARY[3]), (open_index(long), Deaf(), "number 13?")):
        asked = unit_vectors(model.embed([query]))[0]
        hits = Searcher(there, model, RANKINGS[name]).search(query)
        for hit, found in zip(hits, there.documents([hit.id for hit in hits]), strict=True):
            shown = found.vectors[found.passages.index(hit.passage)]
            assert hit.cosine == pytest.approx(float(shown @ asked), abs=1e-6)
            assert hit.to_json()["cosine"] == round(hit.cosine or 0, 6)


def test_nothing_is_said_of_cosines_where_no_model_was_asked_and_of_nothing_found(index: Index) -> None:
    asked = Searcher(index, None, RANKINGS["words"])
    assert {hit.cosine for hit in asked.search(VOCABULARY[3])} == {None}
    assert asked.search("zzz") == []


@settings(max_examples=30)
@given(ORDERS)
def test_the_highest_order_of_a_name_is_the_first_in_which_no_other_has_it_higher(orders: list[list[str]]) -> None:
    found = best_ranking(orders)
    assert found.keys() == {name for order in orders for name in order}
    for name, number in found.items():
        places = [order.index(name) if name in order else 99 for order in orders]
        assert number == places.index(min(places))


def test_an_index_of_another_version_is_refused_in_words_for_people(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "FORMAT", segments.FORMAT + 1)
    with pytest.raises(
        DamagedError, match=r"has format 2, but this version of Seqloom reads format 3.*build the index again"
    ):
        open_index(index.path)


def test_each_model_is_reported_with_its_own_sum() -> None:
    with pytest.raises(
        ConfigError, match=r"built with mine \(checksum 1{12}\), but table \(checksum 0{12}\) is a different"
    ):
        require_same_model(Settings("mine", "1" * 64, 16, 12), WordTable())


def test_a_query_without_a_word_of_any_document_is_ranked_by_meaning_and_says_so(tmp_path: Path) -> None:
    index = built(tmp_path, [TextDocument("a", "Kaba lodo.", {}), TextDocument("b", "Mifi.", {})])
    both = Searcher(index, WordTable(), RANKINGS["both"])
    assert both.warning("kaba") == ""
    assert both.warning("pegu") == "no document contains a word of the query; the results are ranked by meaning only"
    assert "no word of the query is in the documents or in the vocabulary of the model" in both.warning("zebra")
    assert "no word of the query is in the vocabulary of the model" in Searcher(
        index, WordTable(), RANKINGS["vectors"]
    ).warning("zebra")
    assert Searcher(index, None, RANKINGS["words"]).warning("zebra") == ""
