"""Questions to an index: documents ranked by words, by vectors or by both, with the passage that answers best.

    question ──▶ by words   ─┐
             └─▶ by vectors ─┴─▶ fused by ranks ──▶ hits ──▶ best passage ──▶ best sentence

A ranking is a class of its own; a searcher has one of them or several, whose orders it fuses. Passage and sentence are
chosen by the ranking that found the document: the one in whose order it stands highest.

Several orders made one: reciprocal rank fusion (Cormack, Clarke and Büttcher 2009).

    score(d) = sum over the orders in which d stands of  1 / (60 + rank of d)

Only ranks count, so scores of any scale can be fused, as those of words and those of vectors. What stands high in two
orders beats what stands at the top of one.

The first hits, read again by a model of pairs: slower by far than a product of vectors, and better.

The model reads question and passage together: a regression's number is the score, or the probability of the label of
a classifier that means "relevant". What it did not read keeps its place behind.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from seqloom.errors import ConfigError, did_you_mean
from seqloom.search.bm25 import words_of
from seqloom.search.passages import Span, sentences_of
from seqloom.search.store import Conditions, IndexStore, ScoredPassage, conditions
from seqloom.search.vectors import Embeds, ModelEmbeds, require_same, unit

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel


DAMPING = 60  # how little the first few ranks differ; the authors' own, and all who followed them


def fused(orders: Iterable[Sequence[str]]) -> list[ScoredPassage]:
    """All that stands in one of the orders, the best first; of equal ones, what was named first.

    >>> [name for name, _ in fused([["a", "b", "c"], ["c", "b"]])]
    ['c', 'b', 'a']
    """
    scores: dict[str, float] = {}
    for order in orders:
        for rank, name in enumerate(order, 1):
            scores[name] = scores.get(name, 0.0) + 1 / (DAMPING + rank)
    best = sorted(scores.items(), key=lambda one: -one[1])
    return [ScoredPassage(name, score) for name, score in best]


def highest(orders: Sequence[Sequence[str]]) -> dict[str, int]:
    """The number of the order in which each name stands highest; of equal ones, the first.

    >>> highest([["a", "b"], ["b", "a", "c"]])
    {'a': 0, 'b': 1, 'c': 1}
    """
    places = {(rank, number): name for number, order in enumerate(orders) for rank, name in enumerate(order)}
    found: dict[str, int] = {}
    for (_, number), name in sorted(places.items()):
        found.setdefault(name, number)
    return found


DEPTH = 100  # documents of each order that are fused, if fewer are asked for


class SearchQuestion(NamedTuple):
    """A question as the rankings read it."""

    text: str
    vector: np.ndarray | None  # [W] of length 1; none where nobody asks a model

    @property
    def is_known(self) -> bool:
        """Whether a model makes something of it; a static one may know none of its words."""
        return self.vector is not None and bool(self.vector.any())


class Ranking(Protocol):
    """One way to rank documents, and the parts of a document."""

    def ranked(self, store: IndexStore, question: SearchQuestion, where: Conditions, count: int) -> list[ScoredPassage]:
        """The best documents, the best one first."""

    def fits(self, question: SearchQuestion, texts: Sequence[str], cosines: np.ndarray) -> np.ndarray:
        """[N] how well each of some texts answers, of which the cosines [N] are known; 0 where nobody asks a model."""


class ByWords:
    """By the words that document and question share: BM25."""

    def ranked(self, store: IndexStore, question: SearchQuestion, where: Conditions, count: int) -> list[ScoredPassage]:
        """The best documents, the best one first."""
        return store.by_words(question.text, where, count)

    def fits(self, question: SearchQuestion, texts: Sequence[str], cosines: np.ndarray) -> np.ndarray:
        """[N] how many different words of the question each text has; of equal ones the nearest is the best."""
        wanted = set(words_of(question.text))
        shared = [len(wanted.intersection(words_of(text))) for text in texts]
        return np.asarray(np.array(shared) + cosines / 3)  # cosines are -1 to 1, so less than one word apart


class ByVectors:
    """By meaning: the cosine of the question and the best passage."""

    def ranked(self, store: IndexStore, question: SearchQuestion, where: Conditions, count: int) -> list[ScoredPassage]:
        """The best documents, the best one first; none for a vector of zeros, which is near to nothing."""
        assert question.vector is not None, "who ranks by vectors has a model"
        return store.by_vector(question.vector, where, count) if question.is_known else []

    def fits(self, question: SearchQuestion, texts: Sequence[str], cosines: np.ndarray) -> np.ndarray:
        """[N] the cosines."""
        return cosines


WORDS, VECTORS = ByWords(), ByVectors()
RANKINGS: dict[str, tuple[Ranking, ...]] = {"both": (WORDS, VECTORS), "vectors": (VECTORS,), "words": (WORDS,)}


class SearchResult(NamedTuple):
    """A document that answers, its score, and the ranking that found it."""

    id: str
    score: float
    by: Ranking


class Hit(NamedTuple):
    """A document that answers a question, and where in it the answer stands."""

    id: str
    score: float
    text: str  # the whole document
    passage: Span  # the part that answers best, in characters
    sentence: Span  # and its best sentence
    columns: dict[str, Any]
    cosine: float | None = None  # of the question and this passage; none where nobody asked a model

    def to_json(self) -> dict[str, Any]:
        """The hit as programs read it."""
        passage, sentence = (self.text[slice(*span)] for span in (self.passage, self.sentence))
        cosine = None if self.cosine is None else round(self.cosine, 6)
        told = {"id": self.id, "score": round(self.score, 6), "cosine": cosine}
        return told | {"passage": passage, "sentence": sentence, "columns": self.columns}


class Searcher:
    """A store and a model that answer questions; without a model, by words alone."""

    def __init__(self, store: IndexStore, model: Embeds | None, rankings: Sequence[Ranking]) -> None:
        self.store, self.model, self.rankings = store, model, tuple(rankings)

    def search(self, question: str, *, count: int = 10, where: Sequence[str] = ()) -> list[Hit]:
        """The best documents for a question, the best one first; `where` are conditions such as "year>=2000"."""
        asked = self._asked(question)
        return self._hits(asked, self._ranked(asked, conditions(where), count))

    def ranked(self, question: str, *, count: int, where: Sequence[str] = ()) -> list[ScoredPassage]:
        """The same without a look into the documents."""
        found = self._ranked(self._asked(question), conditions(where), count)
        return [ScoredPassage(one.id, one.score) for one in found]

    def _asked(self, question: str) -> SearchQuestion:
        if not question.strip():
            raise ConfigError("the question is empty", fix="ask for something")
        vector = None if self.model is None else unit(self.model.embed([question]))[0]
        return SearchQuestion(question, vector)

    def _ranked(self, asked: SearchQuestion, where: Conditions, count: int) -> list[SearchResult]:
        if count < 1:
            raise ConfigError(f"{count} answers are none", fix="ask for at least 1")
        if len(self.rankings) == 1:
            (only,) = self.rankings
            return [SearchResult(*one, only) for one in only.ranked(self.store, asked, where, count)]
        found = [one.ranked(self.store, asked, where, max(DEPTH, count)) for one in self.rankings]
        orders = [[one.id for one in order] for order in found]
        by = highest(orders)
        return [SearchResult(*one, self.rankings[by[one.id]]) for one in fused(orders)[:count]]

    def _hits(self, asked: SearchQuestion, answers: Sequence[SearchResult]) -> list[Hit]:
        if not answers:
            return []
        hits, spans = list[Hit](), list[list[Span]]()  # and the sentences of each passage
        for one, whole in zip(answers, self.store.found([one.id for one in answers]), strict=True):
            text, cosines = whole.document.text, _cosines(whole.vectors, asked)
            best = _best(one.by, asked, text, whole.passages, cosines)
            start, stop = passage = whole.passages[best]
            spans.append([(start + a, start + b) for a, b in sentences_of(text[start:stop])] or [passage])
            near = float(cosines[best]) if asked.is_known else None
            hits.append(Hit(one.id, one.score, text, passage, passage, whole.document.columns, near))
        sentences = [hit.text[a:b] for hit, some in zip(hits, spans, strict=True) for a, b in some]
        cosines = np.zeros(len(sentences), np.float32)
        if self.model is not None:  # all sentences are embedded together
            cosines = _cosines(unit(self.model.embed(sentences)), asked)
        parts = np.split(cosines, np.cumsum([len(some) for some in spans])[:-1])
        return [
            hit._replace(sentence=some[_best(one.by, asked, hit.text, some, part)])
            for one, hit, some, part in zip(answers, hits, spans, parts, strict=True)
        ]


def _cosines(vectors: np.ndarray, asked: SearchQuestion) -> np.ndarray:
    """[N] the cosines of the question and vectors [N,W] of length 1; zeros where nobody asked a model."""
    return np.zeros(len(vectors), np.float32) if asked.vector is None else np.asarray(vectors @ asked.vector)


def _best(by: Ranking, asked: SearchQuestion, text: str, spans: Sequence[Span], cosines: np.ndarray) -> int:
    """The number of the part of a text that answers best by a ranking, the first of several."""
    return int(np.argmax(by.fits(asked, [text[start:stop] for start, stop in spans], cosines)))


def searcher(store: IndexStore, *, by: str = "both", model: str | Path | None = None, device: str = "cpu") -> Searcher:
    """What answers questions to a store: `by` "vectors", "words" or "both", with the model that made its vectors."""
    if by not in RANKINGS:
        raise ConfigError(f"a search by {by!r}", fix=did_you_mean(by, RANKINGS))
    if by == "words":
        return Searcher(store, None, RANKINGS[by])
    settings = store.settings
    assert settings is not None, "an index that was opened has documents"
    path = Path(settings.model if model is None else model)
    if not path.exists():
        raise ConfigError(f"the model of the index is no longer at {path}", fix="say where it is: --model MODEL")
    from seqloom.inference.model import load

    asked = ModelEmbeds(load(path, device=device))
    require_same(settings, asked)
    return Searcher(store, asked, RANKINGS[by])


RELEVANT = ("relevant", "yes", "true", "1", "entailment", "duplicate", "related", "positive", "similar")


class Reranker:
    """A model of pairs that puts hits in order."""

    label: str | None  # the one that means that a passage answers a question; None for a number

    def __init__(self, loaded: "LoadedModel", label: str | None = None) -> None:
        schema = loaded.meaning.schema
        ranks = schema.target.one_label or (schema.target.measured and not schema.target.of_steps)
        if schema.input.num_columns != 2 or not ranks:
            found = f"{loaded.path} goes from {schema.input} to {schema.target}"
            raise ConfigError(f"{found}, and hits are ranked by a label or number of a pair", fix="take another model")
        self.loaded, self.label = loaded, None
        if schema.target.one_label:
            usual, found = [one for one in schema.labels if one.lower() in RELEVANT], ", ".join(schema.labels)
            if label is not None and label not in schema.labels:
                raise ConfigError(f"the re-ranker has no label '{label}'", fix=f"choose from {found}")
            if label is None and len(usual) != 1:
                text = f"which label of {found} means that a passage answers"
                raise ConfigError(text, fix="name it: --rerank-label LABEL")
            self.label = label or usual[0]

    def reranked(self, question: str, hits: Sequence[Hit]) -> list[Hit]:
        """The hits in the order of what the model says, each with its score; of equal ones, as they were."""
        said = self.loaded.predict([(question, hit.text[slice(*hit.passage)]) for hit in hits]) if hits else []
        scored = [hit._replace(score=self._score(one)) for hit, one in zip(hits, said, strict=True)]
        return sorted(scored, key=lambda hit: -hit.score)

    def _score(self, prediction: Any) -> float:
        told = prediction.to_json()
        return float(told["numbers"][0] if self.label is None else told["scores"][self.label])
