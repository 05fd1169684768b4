"""Questions to an index: documents ranked by words, by vectors or by both, with the passage that answers best.

    question ──▶ by words   ─┐
             └─▶ by vectors ─┴─▶ fused by ranks ──▶ hits ──▶ best passage ──▶ best sentence

A ranking is a class of its own; a searcher has one of them or several, whose orders it fuses.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from seqloom.errors import ConfigError, did_you_mean
from seqloom.loaded import load
from seqloom.search.conditions import Condition, conditions
from seqloom.search.embedders import Embeds, ModelEmbeds, require_same
from seqloom.search.fusion import fused
from seqloom.search.passages import Span, sentences_of
from seqloom.search.store import Found, Scored, Store
from seqloom.search.vectors import unit
from seqloom.search.words import words_of

DEPTH = 100  # documents of each order that are fused, if fewer are asked for


class Question(NamedTuple):
    """A question as the rankings read it."""

    text: str
    vector: np.ndarray | None  # [W] of length 1; none where nobody asks a model


class Ranking(Protocol):
    """One way to rank documents."""

    def ranked(self, store: Store, question: Question, where: Sequence[Condition], count: int) -> list[Scored]:
        """The best documents, the best one first."""


class ByWords:
    """By the words that document and question share: BM25."""

    def ranked(self, store: Store, question: Question, where: Sequence[Condition], count: int) -> list[Scored]:
        """The best documents, the best one first."""
        return store.by_words(question.text, where, count)


class ByVectors:
    """By meaning: the cosine of the question and the best passage."""

    def ranked(self, store: Store, question: Question, where: Sequence[Condition], count: int) -> list[Scored]:
        """The best documents, the best one first; none for a vector of zeros, which is near to nothing."""
        assert question.vector is not None, "who ranks by vectors has a model"
        return store.by_vector(question.vector, where, count) if question.vector.any() else []


RANKINGS: dict[str, tuple[Ranking, ...]] = {
    "both": (ByWords(), ByVectors()),
    "vectors": (ByVectors(),),
    "words": (ByWords(),),
}


class Hit(NamedTuple):
    """A document that answers a question, and where in it the answer stands."""

    id: str
    score: float
    text: str  # the whole document
    passage: Span  # the part that answers best, in characters
    sentence: Span  # and its best sentence
    columns: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The hit as programs read it."""
        passage, sentence = (self.text[slice(*span)] for span in (self.passage, self.sentence))
        told = {"id": self.id, "score": round(self.score, 6), "passage": passage, "sentence": sentence}
        return told | {"columns": self.columns}


class Searcher:
    """A store and a model that answer questions; without a model, by words alone."""

    def __init__(self, store: Store, model: Embeds | None, rankings: Sequence[Ranking]) -> None:
        self.store, self.model, self.rankings = store, model, tuple(rankings)

    def search(self, question: str, *, count: int = 10, where: Sequence[str] = ()) -> list[Hit]:
        """The best documents for a question, the best one first; `where` are conditions such as "year>=2000"."""
        asked = self._asked(question)
        return self._hits(asked, self._ranked(asked, conditions(where), count))

    def ranked(self, question: str, *, count: int, where: Sequence[str] = ()) -> list[Scored]:
        """The same without a look into the documents."""
        return self._ranked(self._asked(question), conditions(where), count)

    def _asked(self, question: str) -> Question:
        if not question.strip():
            raise ConfigError("the question is empty", fix="ask for something")
        vector = None if self.model is None else unit(self.model.embed([question]))[0]
        return Question(question, vector)

    def _ranked(self, asked: Question, where: Sequence[Condition], count: int) -> list[Scored]:
        if count < 1:
            raise ConfigError(f"{count} answers are none", fix="ask for at least 1")
        if len(self.rankings) == 1:
            return self.rankings[0].ranked(self.store, asked, where, count)
        orders = [one.ranked(self.store, asked, where, max(DEPTH, count)) for one in self.rankings]
        return fused([[one.id for one in order] for order in orders])[:count]

    def _hits(self, asked: Question, ranked: Sequence[Scored]) -> list[Hit]:
        found = self.store.found([one.id for one in ranked])
        passages = [_best_passage(one, asked) for one in found]
        marked = self._marked(asked, found, passages)
        parts = zip(ranked, found, passages, marked, strict=True)
        return [
            Hit(one.id, one.score, whole.document.text, passage, sentence, whole.document.columns)
            for one, whole, passage, sentence in parts
        ]

    def _marked(self, asked: Question, found: Sequence[Found], passages: Sequence[Span]) -> list[Span]:
        """The best sentence of each passage."""
        spans = [_inside(one.document.text, passage) for one, passage in zip(found, passages, strict=True)]
        texts = [one.document.text[a:b] for one, some in zip(found, spans, strict=True) for a, b in some]
        if asked.vector is not None and self.model is not None and texts:
            scores = unit(self.model.embed(texts)) @ asked.vector
        else:
            scores = _shared_words(asked.text, texts)
        stops = np.cumsum([len(some) for some in spans]).tolist()
        return [some[int(np.argmax(scores[stop - len(some) : stop]))] for some, stop in zip(spans, stops, strict=True)]


def _best_passage(found: Found, asked: Question) -> Span:
    """The passage nearest to the question; without a vector, the one that has most of its words."""
    if asked.vector is not None:
        return found.passages[int(np.argmax(found.vectors @ asked.vector))]
    texts = [found.document.text[start:stop] for start, stop in found.passages]
    return found.passages[int(np.argmax(_shared_words(asked.text, texts)))]


def _inside(text: str, passage: Span) -> list[Span]:
    start, stop = passage
    return [(start + a, start + b) for a, b in sentences_of(text[start:stop])] or [passage]


def _shared_words(question: str, texts: Sequence[str]) -> np.ndarray:
    """[N] how many different words of the question each text has."""
    wanted = set(words_of(question))
    return np.array([len(wanted.intersection(words_of(text))) for text in texts])


def searcher(store: Store, *, by: str = "both", model: str | Path | None = None, device: str = "cpu") -> Searcher:
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
    asked = ModelEmbeds(load(path, device=device))
    require_same(settings, asked)
    return Searcher(store, asked, RANKINGS[by])
