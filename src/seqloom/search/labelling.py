"""Labelling many rows with few answers: what is known, what is suggested, and what to ask next.

    rows ──▶ vectors ──▶ suggestions ──▶ next question ──▶ answer ──▶ log
                             ▲                                         │
                             └───────────── fitted anew ◀──────────────┘

Suggestions are learnt from the examples and from what people decided; labels that were accepted in bulk teach nothing,
else a mistake would confirm itself. All that was decided stands in the log (`decisions`), so the same call goes on.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from seqloom.data.checks.duplicates import folded
from seqloom.errors import ConfigError, did_you_mean
from seqloom.search.copies import Column
from seqloom.search.decisions import MODEL, PERSON, Action, Choice, Decisions, WritableDecisions
from seqloom.search.hashed_words import HashedWords
from seqloom.search.label_examples import NONE, Examples
from seqloom.search.ordering import ORDERS
from seqloom.search.rows import Given
from seqloom.search.similar_vectors import MakesVectors, embedding
from seqloom.search.similarity import Compared
from seqloom.search.suggesting import SUGGESTS, Even, Suggests

MOST_AT_ONCE = 8  # questions between two fits
LABEL, BY = "label", "labelled_by"  # columns of an export


class How(NamedTuple):
    """How suggestions are made and questions are ordered; the seed decides every draw."""

    suggest: Literal["head", "neighbours"] = "head"
    order: Literal["active", "random"] = "active"
    seed: int = 0


class Question(NamedTuple):
    """A row that needs a label, and what is suggested; None where nothing has been learnt yet."""

    row: int
    text: str
    suggested: str | None
    confidence: float | None


class Labelling:
    """Rows that are being labelled; every answer is on the disk before the next question."""

    def __init__(
        self,
        given: Given,
        vectors: np.ndarray,
        decisions: WritableDecisions,
        *,
        labels: Sequence[str] = (),
        examples: Examples = NONE,
        how: How = How(),  # noqa: B008  # an immutable value
    ) -> None:
        self.given, self.vectors, self.decisions, self.examples, self.how = given, vectors, decisions, examples, how
        logged = (decided.label for decided in decisions.labelled.values() if decided.label is not None)
        self.labels = list(dict.fromkeys(map(str, [*labels, *examples.labels, *logged])))
        self.rows = {name: row for row, name in enumerate(given.names)}
        known = {folded(text) for text in examples.texts}
        self.open = np.array([bool(text) and folded(text) not in known for text in given.texts], bool)
        self.queue: list[int] = []
        self.suggests: Suggests | None = None  # fitted when it is first needed

    @property
    def free(self) -> np.ndarray:
        """The numbers of the rows nobody decided about; rows without text, or with that of an example, need none."""
        decided = [self.rows[name] for name in self.decisions.standing]
        free = self.open.copy()
        free[decided] = False
        return np.flatnonzero(free)

    def next(self) -> Question | None:
        """The most useful question; None when every row is decided."""
        if not self.queue:
            self._fill()
        if not self.queue:
            return None
        row = self.queue[0]
        (suggested,), (confidence,) = self.suggestions(np.array([row]))
        return Question(row, self.given.texts[row], suggested, None if suggested is None else float(confidence))

    def _fill(self) -> None:
        """Fit anew, and line up a few questions: few while every answer changes much."""
        learnt = len(self._learnt()[1])
        draws = np.random.default_rng([self.how.seed, self.decisions.last])
        doubts = 1 - self.fit().probabilities(self.vectors).max(axis=1, initial=0)
        count = max(1, min(MOST_AT_ONCE, learnt // 4))
        self.queue = ORDERS[self.how.order](self.vectors, doubts, self.free, count, draws)

    def _learnt(self) -> tuple[np.ndarray, np.ndarray]:
        """The vectors [n,W] and classes [n] of the examples and of what people decided."""
        decided = {row: one.label for row, one in self.decisions.labelled.items() if one.by == PERSON}
        mine = self.vectors[[self.rows[name] for name in decided]]
        labels = [*self.examples.of, *decided.values()]
        classes = np.array([self.labels.index(str(label)) for label in labels], np.int64)
        return np.concatenate([self.examples.vectors.reshape(-1, self.vectors.shape[1]), mine]), classes

    def fit(self) -> Suggests:
        """What suggests labels, learnt anew from all that is known."""
        vectors, classes = self._learnt()
        if len(set(classes.tolist())) < 2:
            self.suggests = Even(len(self.labels))
        else:
            self.suggests = SUGGESTS[self.how.suggest](vectors, classes, len(self.labels))
        return self.suggests

    def suggestions(self, rows: np.ndarray) -> tuple[list[str | None], np.ndarray]:
        """The likeliest label of each row and its probability; None where nothing has been learnt."""
        fitted = self.fit() if self.suggests is None else self.suggests
        if isinstance(fitted, Even):
            return [None] * len(rows), np.zeros(len(rows), np.float32)
        found = fitted.probabilities(self.vectors[rows])
        return [self.labels[best] for best in found.argmax(axis=1)], found.max(axis=1)

    def label(self, question: Question, label: str) -> None:
        """Nothing; the row has this label, on the disk."""
        if label not in self.labels:
            raise ConfigError(f"there is no label {label!r}", fix=did_you_mean(label, self.labels))
        self._take(question, str(label))

    def skip(self, question: Question) -> None:
        """Nothing; the row is not asked about again, on the disk."""
        self._take(question, None)

    def _take(self, question: Question, label: str | None) -> None:
        row, text, suggested, confidence = question
        self.decisions.take([Choice(self.given.names[row], text, label, PERSON, suggested, confidence)])
        self.queue = [other for other in self.queue if other != row]

    def undo(self) -> Action | None:
        """The last action, which holds no more; a single row of it is the next question. None if there is none."""
        action = self.decisions.undo()
        if action is not None:
            self.suggests = None
            self.queue = [self.rows[name] for name in action.rows] if len(action.rows) == 1 else []
        return action

    def accept_above(self, confidence: float) -> int:
        """How many suggestions were at least so sure, and are labels now: one action, so one undo takes all back."""
        if not 0 < confidence <= 1:
            raise ConfigError(f"a confidence of {confidence:g}", fix="take one above 0 and up to 1")
        self.suggests, self.queue = None, []
        free = self.free
        labels, sure = self.suggestions(free)
        if isinstance(self.suggests, Even):
            raise ConfigError("nothing has been learnt yet: two labels need an example", fix="label some rows first")
        choices = [
            Choice(self.given.names[row], self.given.texts[row], label, MODEL, label, float(one))
            for row, label, one in zip(free.tolist(), labels, sure, strict=True)
            if one >= confidence
        ]
        if choices:
            self.decisions.take(choices)
        return len(choices)


def exported(decisions: Decisions, names: Sequence[str], column: str = LABEL) -> tuple[dict[str, Column], np.ndarray]:
    """The new columns of an export, and which of the rows with these names have a label [rows]."""
    labelled = decisions.labelled
    found = [labelled.get(name) for name in names]
    labels = Column(str, [None if one is None else one.label for one in found])
    by = Column(str, [None if one is None else one.by for one in found])
    return {column: labels, BY: by}, np.array([one is not None for one in found], bool)


def opening(
    given: Given,
    decisions: WritableDecisions,
    *,
    model: MakesVectors | None = None,
    labels: Sequence[str] = (),
    examples: Examples = NONE,
    how: How = How(),  # noqa: B008
) -> Iterator[Compared | Labelling]:
    """How far the embedding is, and in the end the rows ready to be labelled, with all that was decided."""
    made = HashedWords(given.texts) if model is None else model
    vectors = [np.empty((0, 1), np.float32)]
    filled = [text or "-" for text in (*given.texts, *examples.texts)]  # a row without text is never asked about
    for step in embedding(filled, made):
        if isinstance(step, Compared):
            yield step
        else:
            vectors = np.split(step, [len(given.texts)])
    examples = examples._replace(vectors=vectors[1])
    yield Labelling(given, vectors[0], decisions, labels=labels, examples=examples, how=how)
