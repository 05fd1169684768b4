"""Claims about SciFact as BEIR has it: words alone reach 0.66, and words and vectors together beat both.

SEQLOOM_DATA names the folder of datasets, SEQLOOM_MINILM the checkpoint all-MiniLM-L6-v2; without them nothing runs.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from search_common import WordTable, last
from seqloom.events import finished
from seqloom.importing.models import import_model
from seqloom.inference.model import load
from seqloom.search.build import build_index
from seqloom.search.documents import Collection
from seqloom.search.evaluation import DEEP, SearchScores, evaluate_queries, read_qrels, read_queries
from seqloom.search.index import open_index
from seqloom.search.search import RANKINGS, Searcher
from seqloom.search.vectors import IndexEmbedder, ModelEmbedder

DATA, CHECKPOINT = os.environ.get("SEQLOOM_DATA", ""), os.environ.get("SEQLOOM_MINILM", "")
FOLDER = Path(DATA) / "scifact"
pytestmark = pytest.mark.skipif(not DATA, reason="SEQLOOM_DATA names no folder of datasets")


def ndcg_by(name: str, index: Path, model: IndexEmbedder | None) -> float:
    """nDCG@10 of the test claims by one way to rank."""
    asked = Searcher(open_index(index), model, RANKINGS[name])
    queries = read_queries(Collection(FOLDER / "queries.jsonl"))
    judgments = read_qrels(FOLDER / "qrels_test.tsv")
    found = finished(
        evaluate_queries(lambda text: [one.id for one in asked.ranked(text, top_k=DEEP)], queries, judgments)
    )
    assert isinstance(found, SearchScores) and found.queries == 300
    return found.metrics["ndcg@10"]


def built_with(model: IndexEmbedder, out: Path) -> Path:
    documents = Collection(FOLDER / "corpus.jsonl.xz", text=("title", "text"), id="_id")
    assert last(build_index(out, model, documents)).documents == 5_183
    return out


class NoVectors(WordTable):
    """Vectors of which nobody asks, made at once."""

    longest = 10_000

    def embed(self, texts: object) -> np.ndarray:
        """[N,1] ones."""
        return np.ones((len(texts), 1), np.float32)  # type: ignore[arg-type]


@pytest.mark.slow
def test_words_alone_reach_what_is_published(tmp_path: Path) -> None:
    assert ndcg_by("words", built_with(NoVectors(), tmp_path / "index"), None) > 0.66


@pytest.mark.soak
@pytest.mark.skipif(not CHECKPOINT, reason="SEQLOOM_MINILM names no checkpoint")
def test_words_and_vectors_together_beat_both(tmp_path: Path) -> None:
    model = ModelEmbedder(load(import_model(Path(CHECKPOINT), tmp_path / "model")))
    index = built_with(model, tmp_path / "index")
    figures = {name: ndcg_by(name, index, model) for name in RANKINGS}
    assert figures["vectors"] == pytest.approx(0.645, abs=0.005)
    assert figures["both"] > max(figures["words"], figures["vectors"])
