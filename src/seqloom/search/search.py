"""Search an index: rank documents by words, by vectors or by both, and find the best passage and sentence.

    query ──▶ by words   ─┐
          └─▶ by vectors ─┴─▶ rank fusion ──▶ hits ──▶ best passage ──▶ best sentence

A searcher has one or several rankings. With several, it merges them by reciprocal rank fusion (Cormack, Clarke and
Büttcher 2009):

    score(d) = sum over the rankings that contain d of  1 / (60 + rank of d)

Only ranks count, so scores on any scale can be merged. A document that is high in two rankings beats one that is at the
top of one. The passage and the sentence are chosen by the ranking in which the document is highest.

A `Reranker` reads query and passage together with a text pair model. This is much slower than comparing vectors, and
more accurate. The score is the number of a regression model, or the probability of the label that means "relevant".
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from seqloom.config.options import strict
from seqloom.decoding.pauses import pause
from seqloom.errors import ConfigError, did_you_mean
from seqloom.search.bm25 import words_of
from seqloom.search.passages import Span, sentences_of
from seqloom.search.store import Conditions, IndexStore, ScoredDocument, conditions
from seqloom.search.vectors import IndexEmbedder, ModelEmbedder, require_same_model, unit_vectors

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel


DAMPING = 60  # the constant of the original paper


def fuse_rankings(orders: Iterable[Sequence[str]]) -> list[ScoredDocument]:
    """Merge rankings of names; returns all names, best first, ties in order of appearance.

    >>> [name for name, _ in fuse_rankings([["a", "b", "c"], ["c", "b"]])]
    ['c', 'b', 'a']
    """
    scores: dict[str, float] = {}
    for order in orders:
        for rank, name in enumerate(order, 1):
            scores[name] = scores.get(name, 0.0) + 1 / (DAMPING + rank)
    best = sorted(scores.items(), key=lambda one: -one[1])
    return [ScoredDocument(name, score) for name, score in best]


def best_ranking(orders: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return for each name the number of the ranking in which it is highest; ties go to the first ranking.

    >>> best_ranking([["a", "b"], ["b", "a", "c"]])
    {'a': 0, 'b': 1, 'c': 1}
    """
    places = {(rank, number): name for number, order in enumerate(orders) for rank, name in enumerate(order)}
    found: dict[str, int] = {}
    for (_, number), name in sorted(places.items()):
        found.setdefault(name, number)
    return found


DEPTH = 100  # documents of each ranking that are merged, if fewer are requested
TOGETHER = 64  # sentences that are embedded between two pauses


class SearchQuery(NamedTuple):
    """A query: its text and its vector."""

    text: str
    vector: np.ndarray | None  # [W] unit vector; None without a model

    @property
    def is_known(self) -> bool:
        """Return whether the model knows any of the query; a static model may know none of its words."""
        return self.vector is not None and bool(self.vector.any())


class Ranking(Protocol):
    """A way to rank documents, and the passages of a document."""

    def ranked(self, store: IndexStore, query: SearchQuery, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the best documents, best first."""

    def fits(self, query: SearchQuery, texts: Sequence[str], cosines: np.ndarray) -> np.ndarray:
        """[N] how well each text matches the query; the cosines [N] of the texts are given (0 without a model)."""


class ByWords:
    """By the words that document and query share: BM25."""

    def ranked(self, store: IndexStore, query: SearchQuery, where: Conditions, count: int) -> list[ScoredDocument]:
        return store.by_words(query.text, where, count)

    def fits(self, query: SearchQuery, texts: Sequence[str], cosines: np.ndarray) -> np.ndarray:
        """[N] the number of distinct query words in each text; ties are broken by cosine."""
        wanted = set(words_of(query.text))
        shared = [len(wanted.intersection(words_of(text))) for text in texts]
        return np.asarray(np.array(shared) + cosines / 3)  # cosines are -1 to 1, so they never outweigh a word


class ByVectors:
    """By meaning: the cosine of the query and the best passage."""

    def ranked(self, store: IndexStore, query: SearchQuery, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the best documents, best first; none if the vector of the query is zero."""
        assert query.vector is not None, "ranking by vectors needs a model"
        return store.by_vector(query.vector, where, count) if query.is_known else []

    def fits(self, query: SearchQuery, texts: Sequence[str], cosines: np.ndarray) -> np.ndarray:
        return cosines


WORDS, VECTORS = ByWords(), ByVectors()
RANKINGS: dict[str, tuple[Ranking, ...]] = {"both": (WORDS, VECTORS), "vectors": (VECTORS,), "words": (WORDS,)}


class RankedDocument(NamedTuple):
    """A document, its score, and the ranking that found it."""

    id: str
    score: float
    by: Ranking


class Hit(NamedTuple):
    """A document that matches a query.

    Attributes:
        id: The id of the document.
        score: The score of the ranking; higher is better. See docs/search.md for the scale.
        text: The whole document.
        passage: Start and stop of the best passage, in characters.
        sentence: Start and stop of its best sentence.
        columns: The other columns of the document.
        cosine: Cosine of the query and the passage; None without a model, or if the model knows no word of the query.
    """

    id: str
    score: float
    text: str
    passage: Span
    sentence: Span
    columns: dict[str, Any]
    cosine: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the hit as a dictionary for JSON."""
        passage, sentence = (self.text[slice(*span)] for span in (self.passage, self.sentence))
        cosine = None if self.cosine is None else round(self.cosine, 6)
        found = {"id": self.id, "score": round(self.score, 6), "cosine": cosine}
        return found | {"passage": passage, "sentence": sentence, "columns": self.columns}


class Searcher:
    """Searches a store; without a model, by words only."""

    def __init__(self, store: IndexStore, model: IndexEmbedder | None, rankings: Sequence[Ranking]) -> None:
        self.store, self.model, self.rankings = store, model, tuple(rankings)

    @strict
    def search(self, query: str, *, top_k: int = 10, where: Sequence[str] = ()) -> list[Hit]:
        """Return the best documents for a query, best first.

        Args:
            query: What to search for.
            top_k: The number of documents.
            where: Conditions such as "year>=2000"; all must hold.
        """
        asked = self._asked(query)
        return self._hits(asked, self._ranked(asked, conditions(where), top_k))

    @strict
    def ranked(self, query: str, *, top_k: int, where: Sequence[str] = ()) -> list[ScoredDocument]:
        """Return ids and scores only, which is faster."""
        found = self._ranked(self._asked(query), conditions(where), top_k)
        return [ScoredDocument(one.id, one.score) for one in found]

    @strict
    def warning(self, query: str) -> str:
        """Return a sentence if no document or the model has no word of the query; otherwise an empty string."""
        by_words = any(isinstance(one, ByWords) for one in self.rankings)
        if self.model is None:
            return ""  # ranked by words only: there are no results to explain
        is_known = self.model.knows(query) and self._asked(query).is_known
        if by_words and not self.store.by_words(query, (), 1):
            if is_known:
                return "no document contains a word of the query; the results are ranked by meaning only"
            return (
                "no word of the query is in the documents or in the vocabulary of the model; the results are not "
                "reliable"
            )
        return (
            ""
            if is_known
            else ("no word of the query is in the vocabulary of the model; its similarity scores are not reliable")
        )

    def _asked(self, query: str) -> SearchQuery:
        if not query.strip():
            raise ConfigError("the query is empty", fix="type what to search for")
        vector = None if self.model is None else unit_vectors(self.model.embed([query]))[0]
        return SearchQuery(query, vector)

    def _ranked(self, asked: SearchQuery, where: Conditions, count: int) -> list[RankedDocument]:
        if count < 1:
            raise ConfigError(f"top_k is {count}", fix="ask for at least 1 document")
        if len(self.rankings) == 1:
            (only,) = self.rankings
            return [RankedDocument(*one, only) for one in only.ranked(self.store, asked, where, count)]
        found = [one.ranked(self.store, asked, where, max(DEPTH, count)) for one in self.rankings]
        orders = [[one.id for one in order] for order in found]
        by = best_ranking(orders)
        return [RankedDocument(*one, self.rankings[by[one.id]]) for one in fuse_rankings(orders)[:count]]

    def _hits(self, asked: SearchQuery, answers: Sequence[RankedDocument]) -> list[Hit]:
        if not answers:
            return []
        hits, spans = list[Hit](), list[list[Span]]()  # hits, and the sentences of each passage
        for one, whole in zip(answers, self.store.documents([one.id for one in answers]), strict=True):
            text, cosines = whole.document.text, _cosines(whole.vectors, asked)
            best = _best(one.by, asked, text, whole.passages, cosines)
            start, stop = passage = whole.passages[best]
            spans.append([(start + a, start + b) for a, b in sentences_of(text[start:stop])] or [passage])
            near = float(cosines[best]) if asked.is_known else None
            hits.append(Hit(one.id, one.score, text, passage, passage, whole.document.columns, near))
        sentences = [hit.text[a:b] for hit, some in zip(hits, spans, strict=True) for a, b in some]
        cosines = np.zeros(len(sentences), np.float32)
        if self.model is not None:
            for start in range(0, len(sentences), TOGETHER):
                pause()
                some = self.model.embed(sentences[start : start + TOGETHER])
                cosines[start : start + TOGETHER] = _cosines(unit_vectors(some), asked)
        parts = np.split(cosines, np.cumsum([len(some) for some in spans])[:-1])
        return [
            hit._replace(sentence=some[_best(one.by, asked, hit.text, some, part)])
            for one, hit, some, part in zip(answers, hits, spans, parts, strict=True)
        ]


def _cosines(vectors: np.ndarray, asked: SearchQuery) -> np.ndarray:
    """[N] the cosines of the query and unit vectors [N,W]; zeros without a model."""
    return np.zeros(len(vectors), np.float32) if asked.vector is None else np.asarray(vectors @ asked.vector)


def _best(by: Ranking, asked: SearchQuery, text: str, spans: Sequence[Span], cosines: np.ndarray) -> int:
    """Return the number of the span of a text that matches best; the first of several."""
    return int(np.argmax(by.fits(asked, [text[start:stop] for start, stop in spans], cosines)))


@strict
def searcher(
    store: IndexStore, *, mode: str | None = None, model: str | Path | None = None, device: str = "cpu"
) -> Searcher:
    """Open a searcher.

    Args:
        store: The index, from `open_store` or `open_index`.
        mode: What to compare: "vectors", "words" or "both" (default: both, or words if the index has no vectors).
        model: The folder of the model, if it has moved (default: as recorded in the index).
        device: Where to compute: cpu, cuda or mps.
    """
    if mode is not None and mode not in RANKINGS:
        raise ConfigError(f"unknown --mode {mode!r}", fix=did_you_mean(mode, RANKINGS))
    settings = store.settings
    assert settings is not None, "an open index has settings"
    if not settings.has_vectors:
        asked_for = f"--mode '{mode}'" if mode in ("vectors", "both") else "--model" if model is not None else ""
        if asked_for:
            fix = (
                "leave it out to search by words, or build the index with a model: `seqloom index MODEL FILE --out NEW`"
            )
            raise ConfigError(f"{asked_for} needs vectors, and the index was built without a model", fix=fix)
        mode = "words"
    mode = mode or "both"
    if mode == "words":
        return Searcher(store, None, RANKINGS[mode])
    path = Path(settings.model if model is None else model)
    if not path.exists():
        raise ConfigError(f"the model of the index is no longer at {path}", fix="give its new path: --model MODEL")
    from seqloom.inference.model import load

    embedder = ModelEmbedder(load(path, device=device))
    require_same_model(settings, embedder)
    return Searcher(store, embedder, RANKINGS[mode])


RELEVANT = ("relevant", "yes", "true", "1", "entailment", "duplicate", "related", "positive", "similar")


class Reranker:
    """Reorders hits with a text pair model."""

    label: str | None  # the label that means "relevant"; None for a regression model

    def __init__(self, loaded: "LoadedModel", label: str | None = None) -> None:
        schema = loaded.spec.schema
        ranks = schema.target.one_label or (schema.target.measured and not schema.target.of_steps)
        if schema.input.num_columns != 2 or not ranks:
            found = f"{loaded.path} reads {schema.input} and predicts {schema.target}"
            raise ConfigError(
                f"{found}, and reranking needs a model that predicts a label or number for a text pair",
                fix="choose another model",
            )
        self.loaded, self.label = loaded, None
        if schema.target.one_label:
            usual, found = [one for one in schema.labels if one.lower() in RELEVANT], ", ".join(schema.labels)
            if label is not None and label not in schema.labels:
                raise ConfigError(f"the reranking model has no label '{label}'", fix=f"choose from {found}")
            if label is None and len(usual) != 1:
                text = f"cannot tell which of the labels {found} means that a passage is relevant"
                raise ConfigError(text, fix="--rerank-label LABEL")
            self.label = label or usual[0]

    def reranked(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits ordered by the score of the model, each with its new score; ties stay in order."""
        pairs = [(query, hit.text[slice(*hit.passage)]) for hit in hits]
        predictions = self.loaded.predict(pairs) if hits else []
        scored = [hit._replace(score=self._score(one)) for hit, one in zip(hits, predictions, strict=True)]
        return sorted(scored, key=lambda hit: -hit.score)

    def _score(self, prediction: Any) -> float:
        found = prediction.to_json()
        return float(found["numbers"][0] if self.label is None else found["scores"][self.label])
