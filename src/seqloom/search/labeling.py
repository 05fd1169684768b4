"""Label many rows with few answers: suggest labels, choose the next question, and learn from the answers.

    rows ──▶ vectors ──▶ suggestions ──▶ next question ──▶ answer ──▶ log
                             ▲                                         │
                             └─────────────── refitted ◀───────────────┘

Suggestions are learned from labeled examples and from the answers of people. Labels that were accepted in bulk are not
learned from, because a mistake would confirm itself. Every decision is in the log (`decisions`), so labeling resumes.

Each suggestion has a probability. It comes from a fitted head or from the nearest examples. The *head* is logistic
regression on unit vectors, softmax(x W + b), which minimizes

    mean over the n examples of -log p(label)  +  |W|² / (2 C n),     C = 5

The second term keeps probabilities low while there are few examples. On SST-2 the mean probability of the suggested
label is 0.65 with 16 examples, 0.69 with 64 and 0.77 with 256, and 0.57, 0.70 and 0.75 of the suggestions are correct
(`benchmarks/labeling.py`): from a few dozen examples on, the probabilities are roughly calibrated. *Neighbors*: the
eight nearest examples vote, weighted by similarity, and one more vote is shared by all labels.

*Active* order asks about the row with the least certain suggestion, 1 - max p: uncertainty sampling (Lewis and Gale
1994). Several rows are asked about before the next fit. Uncertain rows are often similar to each other, so a row that
is close to one already chosen has to wait. (Preferring outliers would be worse than random order: they teach little
about the other rows.) Before anything is learned, the order is random, but similar rows still wait.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from seqloom.data.checks.duplicates import folded
from seqloom.data.kinds.labels import LABELS
from seqloom.data.problems import Ledger
from seqloom.data.values import BadValue, label_of
from seqloom.errors import ConfigError, did_you_mean
from seqloom.events import Work
from seqloom.search.decisions import MODEL, PERSON, Action, Decision, Decisions, WritableDecisions
from seqloom.search.documents import AddedColumn, TextFile, TextRows, find_column, named_column
from seqloom.search.vectors import HashedWordVectors, SupportsEmbed, embed_texts

STRENGTH = 5.0  # C, the inverse of the regularization strength
ROUNDS = 500  # iterations of the fit, at most
FLAT = 5e-5  # gradient at which the fit has converged
VOTES = 8
PRODUCTS = 1 << 22  # similarities to examples in memory at a time
NEARNESS = 0.1  # temperature: this difference of cosines makes a vote e times as heavy


class Suggester(Protocol):
    """Anything that suggests labels."""

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the probability of each label for each vector [N,W]."""


class UniformSuggester(NamedTuple):
    """Nothing is known yet: all labels are equally likely."""

    labels: int

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        return np.full((len(vectors), self.labels), 1 / max(1, self.labels), np.float32)


class HeadSuggester(NamedTuple):
    """A fitted logistic regression."""

    weights: np.ndarray  # [W,K]
    bias: np.ndarray  # [K]

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] softmax(x W + b)."""
        return _softmax(vectors @ self.weights + self.bias)


def fit_head(vectors: np.ndarray, classes: np.ndarray, labels: int) -> HeadSuggester:
    """Fit logistic regression to unit vectors [n,W] and classes [n]; deterministic.

    Nesterov's accelerated gradient descent with restarts (O'Donoghue and Candes 2015). The loss is convex, and with
    unit vectors and the bias its curvature is at most 1 + 1/(C n), so no line search is needed.
    """
    inputs = np.concatenate(
        [vectors.astype(np.float64), np.ones((len(vectors), 1))], axis=1
    )  # the last column is the bias
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
    return HeadSuggester(ahead[:-1].astype(np.float32), ahead[-1].astype(np.float32))


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


class NeighborSuggester(NamedTuple):
    """The nearest examples vote."""

    vectors: np.ndarray  # [n,W]
    classes: np.ndarray  # [n]
    labels: int

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the share of the votes of the nearest examples."""
        some = max(1, PRODUCTS // len(self.vectors))
        blocks = [self._shares(vectors[start : start + some]) for start in range(0, len(vectors), some)]
        return np.concatenate([np.empty((0, self.labels), np.float32), *blocks])

    def _shares(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the same for a block of vectors, compared with every example."""
        count = min(VOTES, len(self.vectors))
        products = vectors @ self.vectors.T  # [N,n]
        near = np.argpartition(products, -count, axis=1)[:, -count:]
        nearness = np.take_along_axis(products, near, axis=1)
        votes = np.exp((nearness - nearness.max(axis=1, keepdims=True)) / NEARNESS)
        shares = np.repeat(votes.mean(axis=1, keepdims=True) / self.labels, self.labels, axis=1)
        np.add.at(shares, (np.arange(len(vectors))[:, None], self.classes[near]), votes)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


SUGGESTERS: dict[str, Callable[[np.ndarray, np.ndarray, int], Suggester]] = {
    "head": fit_head,
    "neighbors": NeighborSuggester,
}


SAMPLE = 10_000  # undecided rows that are considered for each choice
ALIKE = 0.8  # cosine from which two rows are not asked about together

Order = Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.random.Generator], list[int]]


def active_order(
    vectors: np.ndarray, doubts: np.ndarray, free: np.ndarray, count: int, draws: np.random.Generator
) -> list[int]:
    """Choose `count` undecided rows: the most uncertain [N] first, avoiding similar rows while there are others."""
    sample = draws.permutation(free)[:SAMPLE]
    rows = sample[np.argsort(-doubts[sample], kind="stable")]  # ties in random order
    found, waits = list[int](), np.zeros(len(rows), bool)
    for _ in range(min(count, len(rows))):
        best = int(np.argmin(waits))  # the first row that does not wait, or the first
        found.append(int(rows[best]))
        waits = waits[np.arange(len(rows)) != best]
        rows = np.delete(rows, best)
        waits |= vectors[rows] @ vectors[found[-1]] >= ALIKE
    return found


def random_order(
    _vectors: np.ndarray, _doubts: np.ndarray, free: np.ndarray, count: int, draws: np.random.Generator
) -> list[int]:
    """Choose `count` undecided rows at random."""
    return [int(row) for row in draws.permutation(free)[:count]]


ORDERS: dict[str, Order] = {"active": active_order, "random": random_order}


class LabeledTexts(NamedTuple):
    """Labeled texts, and their vectors once they are computed."""

    texts: list[str]
    labels: list[str]
    vectors: np.ndarray  # [n,W] float32

    @property
    def distinct_labels(self) -> list[str]:
        """Return the distinct labels, sorted."""
        return sorted(set(self.labels))


NONE = LabeledTexts([], [], np.empty((0, 1), np.float32))


def read_examples(rows: TextFile, target: str | None = None) -> LabeledTexts:
    """Read the rows of a file that have both a text and a label."""
    given = rows.read()
    table = rows.table()
    column = find_column(LABELS, table.columns)
    if target is not None:
        column = named_column(target, table.columns, "--target", rows.path)
    if column is None:
        names = ", ".join(table.columns)
        raise ConfigError(
            f"{rows.path}: cannot tell which of the columns {names} has the labels", fix="--target COLUMN"
        )
    ledger, texts, labels = Ledger(), list[str](), list[str]()
    for record, text in zip(table.records, given.texts, strict=True):
        try:
            label = label_of(record.values[column], column)
        except BadValue as bad:
            if bad.code != "row.empty_label":
                ledger.bad_row(bad.code, bad.text, table.locate(record, column), bad.fix)
            continue
        if text:
            texts.append(text)
            labels.append(label)
    ledger.close()
    if not texts:
        raise ConfigError(f"{rows.path} has no rows with both a text and a label", fix="give a file of labeled rows")
    return LabeledTexts(texts, labels, np.empty((0, 1), np.float32))


MOST_AT_ONCE = 8  # questions between two fits, at most
LABEL, BY = "label", "labeled_by"  # columns of an export


class LabelingOptions(NamedTuple):
    """How labels are suggested and questions ordered; `seed` seeds the random order."""

    suggest: Literal["head", "neighbors"] = "head"
    order: Literal["active", "random"] = "active"
    seed: int = 0


class LabelQuestion(NamedTuple):
    """A row to label, and the suggested label; None if nothing has been learned yet."""

    row: int
    text: str
    suggested: str | None
    confidence: float | None


class Labeling:
    """A labeling session; every answer is on disk before the next question."""

    def __init__(
        self,
        given: TextRows,
        vectors: np.ndarray,
        decisions: WritableDecisions,
        *,
        labels: Sequence[str] = (),
        examples: LabeledTexts = NONE,
        options: LabelingOptions = LabelingOptions(),  # noqa: B008  # an immutable value
    ) -> None:
        self.given, self.vectors, self.decisions, self.examples, self.options = (
            given,
            vectors,
            decisions,
            examples,
            options,
        )
        logged = (decided.label for decided in decisions.labeled.values() if decided.label is not None)
        self.labels = list(dict.fromkeys(map(str, [*labels, *examples.distinct_labels, *logged])))
        self.rows = {name: row for row, name in enumerate(given.names)}
        known = {folded(text) for text in examples.texts}
        self.open = np.array([bool(text) and folded(text) not in known for text in given.texts], bool)
        self.queue: list[int] = []
        self.suggester: Suggester | None = None  # fitted when first needed

    @property
    def free(self) -> np.ndarray:
        """Return the undecided rows; rows without text, or with the text of an example, need no decision."""
        decided = [self.rows[name] for name in self.decisions.current]
        free = self.open.copy()
        free[decided] = False
        return np.flatnonzero(free)

    def next(self) -> LabelQuestion | None:
        """Return the next question; None when every row is decided."""
        if not self.queue:
            self._fill()
        if not self.queue:
            return None
        row = self.queue[0]
        (suggested,), (confidence,) = self.suggestions(np.array([row]))
        return LabelQuestion(row, self.given.texts[row], suggested, None if suggested is None else float(confidence))

    def _fill(self) -> None:
        """Refit, and queue the next questions: few while each answer changes much."""
        learned = len(self._learned()[1])
        draws = np.random.default_rng([self.options.seed, self.decisions.last])
        doubts = 1 - self.fit().probabilities(self.vectors).max(axis=1, initial=0)
        count = max(1, min(MOST_AT_ONCE, learned // 4))
        self.queue = ORDERS[self.options.order](self.vectors, doubts, self.free, count, draws)

    def _learned(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors [n,W] and classes [n] of the examples and of the decisions of people."""
        decided = {row: one.label for row, one in self.decisions.labeled.items() if one.by == PERSON}
        mine = self.vectors[[self.rows[name] for name in decided]]
        labels = [*self.examples.labels, *decided.values()]
        classes = np.array([self.labels.index(str(label)) for label in labels], np.int64)
        return np.concatenate([self.examples.vectors.reshape(-1, self.vectors.shape[1]), mine]), classes

    def fit(self) -> Suggester:
        """Refit the suggestions to everything that is known, and return them."""
        vectors, classes = self._learned()
        if len(set(classes.tolist())) < 2:
            self.suggester = UniformSuggester(len(self.labels))
        else:
            self.suggester = SUGGESTERS[self.options.suggest](vectors, classes, len(self.labels))
        return self.suggester

    def suggestions(self, rows: np.ndarray) -> tuple[list[str | None], np.ndarray]:
        """Return the most probable label of each row and its probability; None before anything is learned."""
        fitted = self.fit() if self.suggester is None else self.suggester
        if isinstance(fitted, UniformSuggester):
            return [None] * len(rows), np.zeros(len(rows), np.float32)
        found = fitted.probabilities(self.vectors[rows])
        return [self.labels[best] for best in found.argmax(axis=1)], found.max(axis=1)

    def label(self, question: LabelQuestion, label: str) -> None:
        """Give a row a label, and write it to the log."""
        if label not in self.labels:
            raise ConfigError(f"unknown label {label!r}", fix=did_you_mean(label, self.labels))
        self._take(question, str(label))

    def skip(self, question: LabelQuestion) -> None:
        """Skip a row for good, and write that to the log."""
        self._take(question, None)

    def _take(self, question: LabelQuestion, label: str | None) -> None:
        row, text, suggested, confidence = question
        self.decisions.add([Decision(self.given.names[row], text, label, PERSON, suggested, confidence)])
        self.queue = [other for other in self.queue if other != row]

    def undo(self) -> Action | None:
        """Undo the last action and return it (None if there is none); a single row of it is asked about again."""
        action = self.decisions.undo()
        if action is not None:
            self.suggester = None
            self.queue = [self.rows[name] for name in action.rows] if len(action.rows) == 1 else []
        return action

    def accept_above(self, confidence: float) -> int:
        """Accept all suggestions with at least this probability as one action, and return their number."""
        if not 0 < confidence <= 1:
            raise ConfigError(f"confidence {confidence:g} is out of range", fix="choose one above 0 and up to 1")
        self.suggester, self.queue = None, []
        free = self.free
        labels, sure = self.suggestions(free)
        if isinstance(self.suggester, UniformSuggester):
            raise ConfigError(
                "nothing has been learned yet: at least two labels need an example", fix="label some rows first"
            )
        choices = [
            Decision(self.given.names[row], self.given.texts[row], label, MODEL, label, float(one))
            for row, label, one in zip(free.tolist(), labels, sure, strict=True)
            if one >= confidence
        ]
        if choices:
            self.decisions.add(choices)
        return len(choices)


def export_columns(
    decisions: Decisions, names: Sequence[str], column: str = LABEL
) -> tuple[dict[str, AddedColumn], np.ndarray]:
    """Return the new columns of an export, and which rows [rows] have a label."""
    labeled = decisions.labeled
    found = [labeled.get(name) for name in names]
    labels = AddedColumn(str, [None if one is None else one.label for one in found])
    by = AddedColumn(str, [None if one is None else one.by for one in found])
    return {column: labels, BY: by}, np.array([one is not None for one in found], bool)


def start_labeling(
    given: TextRows,
    decisions: WritableDecisions,
    *,
    model: SupportsEmbed | None = None,
    labels: Sequence[str] = (),
    examples: LabeledTexts = NONE,
    options: LabelingOptions = LabelingOptions(),  # noqa: B008
) -> Work[Labeling]:
    """Start or resume labeling.

    Args:
        given: The rows to label, `TextFile(path).read()`.
        decisions: The log, from `open_log`.
        model: Anything with `embed(texts)` (default: word features).
        labels: Labels to choose from; those of the examples and of the log are added.
        examples: Labeled rows to learn from, from `read_examples`.
        options: How to suggest and in which order to ask.

    Returns:
        A generator of progress; its return value (see `seqloom.events.finished`) is a `Labeling`.
    """
    filled = [text or "-" for text in (*given.texts, *examples.texts)]  # rows without text are never asked about
    vectors = yield from embed_texts(filled, HashedWordVectors(given.texts) if model is None else model)
    mine, theirs = np.split(vectors, [len(given.texts)])
    return Labeling(given, mine, decisions, labels=labels, examples=examples._replace(vectors=theirs), options=options)
