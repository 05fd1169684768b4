"""Labelling many rows with few answers: what is known, what is suggested, and what to ask next.

    rows ──▶ vectors ──▶ suggestions ──▶ next question ──▶ answer ──▶ log
                             ▲                                         │
                             └───────────── fitted anew ◀──────────────┘

Suggestions are learnt from the examples and from what people decided; labels that were accepted in bulk teach nothing,
else a mistake would confirm itself. All that was decided stands in the log (`decisions`), so the same call goes on.

Labels are suggested by a fitted head, or by the nearest examples, with a probability for each. A *head* is logistic
regression on vectors of length 1, softmax(x W + b), fitted to

    mean over the n examples of -log p(label)  +  |W|² / (2 C n),     C = 5

The second term keeps probabilities modest while examples are few. On sentences of films the mean probability of the
likelier label is 0.65 with 16 examples, 0.69 with 64 and 0.77 with 256, and 0.57, 0.70 and 0.75 of these labels are
right (`benchmarks/labelling.py`): from some dozens on, it is right about as often as it says. *Neighbours* vote: each
of the eight nearest examples by its nearness, and one more vote is shared by all labels.

*Active* order asks about the row of which the suggestions are least sure, 1 - p(likeliest): uncertainty sampling
(Lewis and Gale 1994). Several rows are asked about before the next fit, and the least sure ones are often alike; so
one that is near to another of them has to wait. (To prefer rows that are far from all others would be worse than
chance: these are odd ones, from which little is learnt about the rest.) Where nothing has been learnt yet, the order
is random but for that.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from seqloom.data.checks.duplicates import folded
from seqloom.data.kinds.labels import LABELS
from seqloom.data.problems import Ledger
from seqloom.data.values import Unfit, label_of
from seqloom.errors import ConfigError, did_you_mean
from seqloom.events import Work
from seqloom.search.decisions import MODEL, PERSON, Action, Decision, Decisions, WritableDecisions
from seqloom.search.documents import AddedColumn, FileRows, GivenRows, named_column, usual_column
from seqloom.search.vectors import HashedWords, MakesVectors, embedding

STRENGTH = 5.0  # C: how far examples are believed
ROUNDS = 500  # of the fit, at most
FLAT = 5e-5  # slope at which the fit is done
VOTES = 8
PRODUCTS = 1 << 22  # similarities to examples that are in memory at a time
NEARNESS = 0.1  # the difference of cosines that makes a vote e times as heavy


class Suggests(Protocol):
    """What suggests labels."""

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the probability of each label for each vector [N,W]."""


class Even(NamedTuple):
    """Nothing is known: every label is as likely as every other."""

    labels: int

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the same everywhere."""
        return np.full((len(vectors), self.labels), 1 / max(1, self.labels), np.float32)


class SuggestionHead(NamedTuple):
    """A fitted head."""

    weights: np.ndarray  # [W,K]
    bias: np.ndarray  # [K]

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] softmax(x W + b)."""
        return _softmax(vectors @ self.weights + self.bias)


def fit_head(vectors: np.ndarray, classes: np.ndarray, labels: int) -> SuggestionHead:
    """The head fitted to examples [n,W] of length 1 and classes [n]; the same each time.

    Nesterov's accelerated descent, restarted when it overshoots (O'Donoghue and Candes 2015): the loss is convex, and
    with vectors of length 1 and the bias its curvature is at most 1 + 1/(C n), so no step has to be searched for.
    """
    inputs = np.concatenate([vectors.astype(np.float64), np.ones((len(vectors), 1))], axis=1)  # the last is the bias
    targets, decay = np.eye(labels)[classes], np.full((inputs.shape[1], 1), 1 / (STRENGTH * len(inputs)))
    decay[-1] = 0
    now = ahead = np.zeros((inputs.shape[1], labels))
    momentum = 1.0
    for _ in range(ROUNDS):
        slope = inputs.T @ (_softmax(inputs @ ahead) - targets) / len(inputs) + decay * ahead
        if np.abs(slope).max() < FLAT:
            break
        after = ahead - slope / (1 + decay.max())
        if (slope * (after - now)).sum() > 0:
            momentum = 1.0
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        now, ahead, momentum = after, after + (momentum - 1) / faster * (after - now), faster
    return SuggestionHead(ahead[:-1].astype(np.float32), ahead[-1].astype(np.float32))


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


class Neighbours(NamedTuple):
    """Examples that vote."""

    vectors: np.ndarray  # [n,W]
    classes: np.ndarray  # [n]
    labels: int

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the share of the votes of the nearest examples."""
        some = max(1, PRODUCTS // len(self.vectors))
        blocks = [self._shares(vectors[start : start + some]) for start in range(0, len(vectors), some)]
        return np.concatenate([np.empty((0, self.labels), np.float32), *blocks])

    def _shares(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the same for few vectors, each of which is compared with every example."""
        count = min(VOTES, len(self.vectors))
        products = vectors @ self.vectors.T  # [N,n]
        near = np.argpartition(products, -count, axis=1)[:, -count:]
        nearness = np.take_along_axis(products, near, axis=1)
        votes = np.exp((nearness - nearness.max(axis=1, keepdims=True)) / NEARNESS)
        shares = np.repeat(votes.mean(axis=1, keepdims=True) / self.labels, self.labels, axis=1)
        np.add.at(shares, (np.arange(len(vectors))[:, None], self.classes[near]), votes)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


SUGGESTS: dict[str, Callable[[np.ndarray, np.ndarray, int], Suggests]] = {"head": fit_head, "neighbours": Neighbours}


SAMPLE = 10_000  # free rows that are looked at for each choice
ALIKE = 0.8  # cosine from which two rows are not asked about together

Order = Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.random.Generator], list[int]]


def active_order(
    vectors: np.ndarray, doubts: np.ndarray, free: np.ndarray, count: int, draws: np.random.Generator
) -> list[int]:
    """`count` of the rows that are free: the most doubtful [N] first, no two of them alike while there are others."""
    sample = draws.permutation(free)[:SAMPLE]
    rows = sample[np.argsort(-doubts[sample], kind="stable")]  # of equally doubtful ones, any
    found, waits = list[int](), np.zeros(len(rows), bool)
    for _ in range(min(count, len(rows))):
        best = int(np.argmin(waits))  # the first that does not wait, else the first
        found.append(int(rows[best]))
        waits = waits[np.arange(len(rows)) != best]
        rows = np.delete(rows, best)
        waits |= vectors[rows] @ vectors[found[-1]] >= ALIKE
    return found


def random_order(
    _vectors: np.ndarray, _doubts: np.ndarray, free: np.ndarray, count: int, draws: np.random.Generator
) -> list[int]:
    """`count` of the rows that are free, drawn without preference."""
    return [int(row) for row in draws.permutation(free)[:count]]


ORDERS: dict[str, Order] = {"active": active_order, "random": random_order}


class Examples(NamedTuple):
    """Texts with their labels, and their vectors when they are made."""

    texts: list[str]
    of: list[str]
    vectors: np.ndarray  # [n,W] float32

    @property
    def labels(self) -> list[str]:
        """The different labels in their order."""
        return sorted(set(self.of))


NONE = Examples([], [], np.empty((0, 1), np.float32))


def read_examples(rows: FileRows, target: str | None = None) -> Examples:
    """The rows of a file that have a text and a label; those without either are passed over."""
    given = rows.read()
    table = rows.table()
    column = usual_column(LABELS, table.columns)
    if target is not None:
        column = named_column(target, table.columns, "--target", rows.path)
    if column is None:
        names = ", ".join(table.columns)
        raise ConfigError(f"{rows.path}: none of {names} is named as labels usually are", fix="--target NAME")
    ledger, texts, labels = Ledger(), list[str](), list[str]()
    for record, text in zip(table.records, given.texts, strict=True):
        try:
            label = label_of(record.values[column], column)
        except Unfit as unfit:
            if unfit.code != "row.empty_label":
                ledger.bad_row(unfit.code, unfit.text, table.locate(record, column), unfit.fix)
            continue
        if text:
            texts.append(text)
            labels.append(label)
    ledger.close()
    if not texts:
        raise ConfigError(f"{rows.path} has no row with a text and a label", fix="give a file of labelled rows")
    return Examples(texts, labels, np.empty((0, 1), np.float32))


MOST_AT_ONCE = 8  # questions between two fits
LABEL, BY = "label", "labelled_by"  # columns of an export


class How(NamedTuple):
    """How suggestions are made and questions are ordered; the seed decides every draw."""

    suggest: Literal["head", "neighbours"] = "head"
    order: Literal["active", "random"] = "active"
    seed: int = 0


class LabelQuestion(NamedTuple):
    """A row that needs a label, and what is suggested; None where nothing has been learnt yet."""

    row: int
    text: str
    suggested: str | None
    confidence: float | None


class Labelling:
    """Rows that are being labelled; every answer is on the disk before the next question."""

    def __init__(
        self,
        given: GivenRows,
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

    def next(self) -> LabelQuestion | None:
        """The most useful question; None when every row is decided."""
        if not self.queue:
            self._fill()
        if not self.queue:
            return None
        row = self.queue[0]
        (suggested,), (confidence,) = self.suggestions(np.array([row]))
        return LabelQuestion(row, self.given.texts[row], suggested, None if suggested is None else float(confidence))

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

    def label(self, question: LabelQuestion, label: str) -> None:
        """Decide that the row has this label, on the disk."""
        if label not in self.labels:
            raise ConfigError(f"there is no label {label!r}", fix=did_you_mean(label, self.labels))
        self._take(question, str(label))

    def skip(self, question: LabelQuestion) -> None:
        """Decide that the row is not asked about again, on the disk."""
        self._take(question, None)

    def _take(self, question: LabelQuestion, label: str | None) -> None:
        row, text, suggested, confidence = question
        self.decisions.take([Decision(self.given.names[row], text, label, PERSON, suggested, confidence)])
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
            Decision(self.given.names[row], self.given.texts[row], label, MODEL, label, float(one))
            for row, label, one in zip(free.tolist(), labels, sure, strict=True)
            if one >= confidence
        ]
        if choices:
            self.decisions.take(choices)
        return len(choices)


def exported(
    decisions: Decisions, names: Sequence[str], column: str = LABEL
) -> tuple[dict[str, AddedColumn], np.ndarray]:
    """The new columns of an export, and which of the rows with these names have a label [rows]."""
    labelled = decisions.labelled
    found = [labelled.get(name) for name in names]
    labels = AddedColumn(str, [None if one is None else one.label for one in found])
    by = AddedColumn(str, [None if one is None else one.by for one in found])
    return {column: labels, BY: by}, np.array([one is not None for one in found], bool)


def opening(
    given: GivenRows,
    decisions: WritableDecisions,
    *,
    model: MakesVectors | None = None,
    labels: Sequence[str] = (),
    examples: Examples = NONE,
    how: How = How(),  # noqa: B008
) -> Work[Labelling]:
    """The rows ready to be labelled, with all that was decided; it tells how far the embedding is."""
    filled = [text or "-" for text in (*given.texts, *examples.texts)]  # a row without text is never asked about
    vectors = yield from embedding(filled, HashedWords(given.texts) if model is None else model)
    mine, theirs = np.split(vectors, [len(given.texts)])
    return Labelling(given, mine, decisions, labels=labels, examples=examples._replace(vectors=theirs), how=how)
