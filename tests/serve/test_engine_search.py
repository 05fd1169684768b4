"""Searches by vectors embed the sentences of all documents that they find: others are answered meanwhile."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from search_common import last, some_text, write_documents
from seqloom.config.serving import MAX_ALL_HITS, ServingConfig
from seqloom.decoding.pauses import pausing
from seqloom.errors import SeqloomWarning
from seqloom.files.folders import commit_folder
from seqloom.inference.model import load
from seqloom.search.build import build_index
from seqloom.search.documents import Collection
from seqloom.search.index import COVERS, WALK, GraphCoverage
from seqloom.search.search import TOGETHER
from seqloom.search.store import TextDocument
from seqloom.search.vectors import ModelEmbedder
from seqloom.serve.calls import checked_options
from seqloom.serve.refusals import BadItem
from seqloom.serve.served import ServedIndex, answers_of
from serve_common import SharedForks, serving, until

pytestmark = pytest.mark.slow
DOCUMENTS, SENTENCES = 100, 20


@pytest.fixture(scope="module")
def meanings(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with vectors, whose documents have many sentences."""
    place, draws = tmp_path_factory.mktemp("meanings"), np.random.default_rng(0)
    texts = [some_text(draws, SENTENCES) for _ in range(DOCUMENTS)]
    documents = [TextDocument(f"d{number}", text, {"id": f"d{number}"}) for number, text in enumerate(texts)]
    embedder = ModelEmbedder(load(models["reviews"], device="cpu"))
    with pytest.warns(SeqloomWarning, match="not to embed"):
        last(build_index(place / "index", embedder, Collection(write_documents(place / "texts.jsonl", documents))))
    return place / "index"


def test_others_are_answered_while_many_documents_are_searched(
    models: dict[str, Path], meanings: Path, forks: SharedForks
) -> None:
    async def check() -> None:
        async with serving({"index": meanings, "reviews": models["reviews"]}, forks) as engine:
            search = asyncio.ensure_future(engine.ask("index", "search", ["kado"] * 10, {"top_k": DOCUMENTS}))
            await until(lambda: bool(engine._links[0].batches))
            for answered in range(3):
                assert await engine.ask("reviews", "classify", ["a good film"])
                assert engine._links[0].batches and engine.counters["batches_total"] <= 2 + 2 * answered
            other = await engine.ask("index", "search", ["lofi"], {"top_k": 1})
            assert len(other[0]) == 1 and not search.done()  # it takes its turn between two queries
            search.cancel()
            await until(lambda: not engine._links[0].batches)
            assert engine.counters["batches_total"] < 3 + 1 + 10  # a query is a batch, and the last ones are not begun

    asyncio.run(check())


def test_a_search_pauses_before_each_query_and_each_batch_of_sentences(meanings: Path) -> None:
    class Unwanted(BaseException):
        """Nobody waits for the answers."""

    served, pauses = ServedIndex("index", meanings, "cpu"), [0]

    def between() -> None:
        pauses[0] += 1
        if pauses[0] == 20:
            raise Unwanted

    with pausing(between):
        served.compute("search", ["kado", "lofi"], {"top_k": 1})
        assert 2 < pauses[0] < 19
        pauses[0] = 0
        with pytest.raises(Unwanted):
            answers_of(lambda items: served.compute("search", items, {"top_k": DOCUMENTS}), ["kado"], lambda _: None)
    assert served.card.vector_size and TOGETHER * 20 < DOCUMENTS * SENTENCES


def test_the_fingerprint_of_an_index_covers_its_graph(meanings: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(meanings, tmp_path / "index"))
    before = ServedIndex("index", place, "cpu").card.fingerprint
    assert before == ServedIndex("index", meanings, "cpu").card.fingerprint
    other = GraphCoverage(first=99, last=99, passages=1)  # of segments that are not there, so it is not used
    commit_folder(place / "graph-000099", {WALK: b"", COVERS: msgspec.json.encode(other)})
    assert ServedIndex("index", place, "cpu").card.fingerprint != before


def test_documents_of_a_request_have_a_limit() -> None:
    config = ServingConfig()
    assert checked_options("search", {}, config, items=100).rows == 10
    assert checked_options("search", {"top_k": 31}, config, items=32).rows == 31
    with pytest.raises(BadItem) as refusal:
        checked_options("search", {"top_k": 32}, config, items=32)
    assert refusal.value.field == "top_k" and refusal.value.fix == "use at most 31, or fewer queries"
    assert "32 documents for each of 32 queries are 1,024" in str(refusal.value) and MAX_ALL_HITS == 1_000
    assert [checked_options("search", {}, config, by_vectors=one).pauses for one in (False, True)] == [False, True]
