"""The first hits, read again by a model of pairs: slower by far than a product of vectors, and better.

The model reads question and passage together: a regression's number is the score, or the probability of the label of a
classifier that means "relevant". What it did not read keeps its place behind.
"""

from collections.abc import Sequence
from typing import Any

from seqloom.errors import ConfigError
from seqloom.loaded import LoadedModel
from seqloom.search.searching import Hit

RELEVANT = ("relevant", "yes", "true", "1", "entailment", "duplicate", "related", "positive", "similar")


class Reranker:
    """A model of pairs that puts hits in order."""

    def __init__(self, loaded: LoadedModel, label: str | None = None) -> None:
        schema = loaded.meaning.schema
        if schema.input != "pair" or schema.target not in ("label", "numbers"):
            found = f"{loaded.path} goes from {schema.input} to {schema.target}"
            raise ConfigError(f"{found}, and hits are ranked by a label or number of a pair", fix="take another model")
        self.loaded = loaded
        self.label = _relevant(schema.labels, label) if schema.target == "label" else None

    def reranked(self, question: str, hits: Sequence[Hit]) -> list[Hit]:
        """The hits in the order of what the model says, each with its score; of equal ones, as they were."""
        said = self.loaded.predict([(question, hit.text[slice(*hit.passage)]) for hit in hits]) if hits else []
        scored = [hit._replace(score=self._score(one)) for hit, one in zip(hits, said, strict=True)]
        return sorted(scored, key=lambda hit: -hit.score)

    def _score(self, prediction: Any) -> float:
        told = prediction.to_json()
        return float(told["numbers"][0] if self.label is None else told["scores"][self.label])


def _relevant(labels: Sequence[str], named: str | None) -> str:
    """The label that means that a passage answers a question."""
    usual = [label for label in labels if label.lower() in RELEVANT]
    if named is not None and named not in labels:
        raise ConfigError(f"the re-ranker has no label '{named}'", fix=f"choose from {', '.join(labels)}")
    if named is None and len(usual) != 1:
        found = ", ".join(labels)
        raise ConfigError(f"which label of {found} means that a passage answers", fix="name it: --rerank-label LABEL")
    return named or usual[0]
