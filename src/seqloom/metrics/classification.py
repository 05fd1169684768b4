"""Precision, recall and F1 per label, and their micro and macro averages.

    macro    the mean over labels that are expected or predicted; labels that never occur do not count. The same as in
             scikit-learn for one label per example, and in seqeval for spans. For several labels, scikit-learn counts
             columns without any label as 0 unless it is given `labels`.
    micro    over all labels together; equal to the accuracy if each example has one label

Examples are stored as label numbers, not as one column per label, so a thousand labels cost no more than two. With one
label per example these are the predicted and the expected label. Sets of labels are packed: each number holds 48
labels, as a float64 holds any integer below 2^53.

Thresholds of several labels: above which probability a label is predicted, so that F1 is highest.

A threshold of 0.5 minimizes errors. F1 rewards finding rare labels, and its best threshold is half of the F1 that it
reaches (Lipton et al. 2014), so mostly below 0.5.

    micro F1 = 2 correct / (predicted + expected), summed over labels

is a ratio of sums, and its maximum l solves  max sum_k (2 correct_k - l (predicted_k + expected_k)) = 0. For a given l
each label has its own best threshold, independent of the others; with these, l grows, and converges after a few rounds
(Dinkelbach 1967). F1 never falls on the way, and of equally good thresholds the one nearest to 0.5 is taken.

A label that fewer than five rows of the dev set have, or lack, keeps 0.5.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.data.tags import OUTSIDE, spans
from seqloom.metrics.bootstrap import ratio, sums_by

PACKED = 48  # labels in a number: six bytes
TOGETHER = 2**22  # labels to unpack at a time


class Retrieved:
    """Precision, recall and F1 of labels or spans."""

    def __init__(self, correct: np.ndarray, predicted: np.ndarray, expected: np.ndarray) -> None:
        self.precision, self.recall = ratio(correct, predicted), ratio(correct, expected)
        self.f1 = ratio(2 * np.asarray(correct), np.asarray(predicted) + np.asarray(expected))  # their harmonic mean


class Counts(NamedTuple):
    """Correct, predicted and expected counts of each label or type of span, [...,K] each."""

    correct: np.ndarray
    predicted: np.ndarray
    expected: np.ndarray

    @classmethod
    def of(cls, sums: np.ndarray) -> "Counts":
        """The counts in sums [...,3K]."""
        return cls(*np.split(sums, 3, axis=-1))

    @property
    def each(self) -> Retrieved:
        """Precision, recall and F1 of each label, [...,K]."""
        return Retrieved(self.correct, self.predicted, self.expected)

    @property
    def micro(self) -> Retrieved:
        """Micro precision, recall and F1, [...]."""
        return Retrieved(*(counts.sum(axis=-1) for counts in self))

    @property
    def macro_f1(self) -> np.ndarray:
        """The mean F1 over labels that are expected or predicted, [...]."""
        return ratio(self.each.f1.sum(axis=-1), np.sum(self.predicted + self.expected > 0, axis=-1))

    @property
    def figures(self) -> dict[str, np.ndarray]:
        """Micro `f1`, `precision` and `recall`, and `macro_f1`, each [...]."""
        micro = self.micro
        return {"f1": micro.f1, "precision": micro.precision, "recall": micro.recall, "macro_f1": self.macro_f1}

    def named(self, labels: Sequence[str]) -> dict[str, dict[str, float]]:
        """The metrics of each label that is expected or predicted, by name; `support` counts how often it is expected.

        >>> Counts(np.array([1, 0]), np.array([2, 0]), np.array([1, 0])).named(["PER", "LOC"])
        {'PER': {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'support': 1.0}}
        """
        each = self.each
        columns = {"precision": each.precision, "recall": each.recall, "f1": each.f1, "support": self.expected}
        seen = np.flatnonzero(self.predicted + self.expected > 0).tolist()
        return {labels[number]: {name: float(column[number]) for name, column in columns.items()} for number in seen}


def counted(predicted: np.ndarray, expected: np.ndarray, times: np.ndarray, labels: int) -> np.ndarray:
    """[...,3K] correct, predicted and expected counts of each label, for labels [N] that are counted `times` [...,N].

    >>> counted(np.array([0, 1, 1]), np.array([0, 1, 0]), np.ones(3), 2).tolist()
    [1.0, 1.0, 1.0, 2.0, 2.0, 1.0]
    """
    predicted, expected = predicted.astype(np.int64), expected.astype(np.int64)
    rows = ((predicted, times * (predicted == expected)), (predicted, times), (expected, times))
    return np.concatenate([sums_by(numbers, weights, labels) for numbers, weights in rows], axis=-1)


def words_of(labels: int) -> int:
    """How many numbers hold a packed set of labels."""
    return -(-labels // PACKED)


def packed(chosen: np.ndarray) -> np.ndarray:
    """[N,words] sets of labels, given as [N,K] true and false, as numbers.

    >>> packed(np.array([[True, False, True]])).tolist()
    [[5.0]]
    """
    rows, labels = chosen.shape
    bits = np.zeros((rows, words_of(labels), 64), bool)
    for word in range(words_of(labels)):
        some = chosen[:, word * PACKED : (word + 1) * PACKED]
        bits[:, word, : some.shape[1]] = some
    whole = np.packbits(bits.reshape(rows, -1), axis=-1, bitorder="little").view("<u8")
    return whole.astype(np.float64)


def unpacked(numbers: np.ndarray, labels: int) -> np.ndarray:
    """[N,K] the sets that numbers [N,words] hold, as zeros and ones."""
    rows = len(numbers)
    whole = np.ascontiguousarray(numbers).astype("<u8").view(np.uint8).reshape(rows, -1)
    bits = np.unpackbits(whole, axis=-1, bitorder="little").reshape(rows, -1, 64)[:, :, :PACKED]
    return bits.reshape(rows, -1)[:, :labels]


def counted_sets(predicted: np.ndarray, expected: np.ndarray, times: np.ndarray, labels: int) -> np.ndarray:
    """[R,3K] correct, predicted and expected counts of each label, for packed sets [N,words], counted `times` [R,N]."""
    sums = np.zeros((len(times), 3 * labels))
    together = max(1, TOGETHER // labels)
    for start in range(0, len(predicted), together):
        here = slice(start, start + together)
        one, other = unpacked(predicted[here], labels), unpacked(expected[here], labels)
        sums += times[:, here] @ np.concatenate([one & other, one, other], axis=1).astype(np.float64)
    return sums


HALF = 0.5
LOWEST, HIGHEST = 0.05, 0.95
FEWEST = 5  # rows with a label, and without it, to fit its threshold
MOST_ROUNDS = 50


class _Choices(NamedTuple):
    """The possible thresholds of one label, and predicted and correct counts for each."""

    thresholds: np.ndarray  # [C], the nearest to 0.5 first
    predicted: np.ndarray
    correct: np.ndarray

    def best(self, level: float) -> int:
        """The index of the best one, given the F1 of all labels."""
        return int(np.argmax(2 * self.correct - level * self.predicted))


def best_thresholds(probabilities: np.ndarray, expected: np.ndarray) -> tuple[float, ...]:
    """The thresholds with the highest micro F1, from probabilities and labels [N,K].

    >>> likely, true = np.array([[0.4], [0.3], [0.1]] * 5), np.array([[1], [1], [0]] * 5)
    >>> [round(threshold, 3) for threshold in best_thresholds(likely, true)]
    [0.2]
    """
    columns = zip(probabilities.T.astype(np.float64), expected.T > 0, strict=True)
    labels = [_choices(likely, there) for likely, there in columns]
    positives, chosen, level = float(np.sum(expected > 0)), [0] * len(labels), -1.0  # start: 0.5 everywhere
    for _ in range(MOST_ROUNDS):
        correct = sum(float(label.correct[number]) for label, number in zip(labels, chosen, strict=True))
        predicted = sum(float(label.predicted[number]) for label, number in zip(labels, chosen, strict=True))
        reached = 2 * correct / (predicted + positives) if predicted + positives else 0.0
        if reached <= level:
            break
        level, chosen = reached, [label.best(reached) for label in labels]
    return tuple(float(label.thresholds[number]) for label, number in zip(labels, chosen, strict=True))


def _choices(likely: np.ndarray, expected: np.ndarray) -> _Choices:
    """The thresholds between the probabilities of one label [N], and 0.5."""
    thresholds = np.array([HALF])
    if min(expected.sum(), (~expected).sum()) >= FEWEST:
        values = np.unique(likely)
        between = (values[1:] + values[:-1]) / 2
        between = between[(between >= LOWEST) & (between <= HIGHEST)]
        thresholds = np.concatenate([thresholds, between[np.argsort(np.abs(between - HALF), kind="stable")]])
    return _Choices(thresholds, _above(likely, thresholds), _above(likely[expected], thresholds))


def _above(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many values are above each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds, side="right")


# Spans, counted as in conlleval: a span is correct if its boundaries and its type are.
#
# A tag that cannot continue a span starts a new one, so invalid tags mark spans too, as in the default mode of seqeval.
# Its strict mode ignores invalid spans; models of this package never predict any.


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """The types of spans in tags of a scheme, sorted.

    >>> types_of(["O", "B-PER", "I-PER", "B-LOC"])
    ('LOC', 'PER')
    """
    return tuple(sorted({label[2:] for label in labels if label != OUTSIDE}))


def count_by_type(predicted: Sequence[str], expected: Sequence[str], types: Sequence[str]) -> np.ndarray:
    """[3,types] correct, predicted and expected spans of each type in one sentence.

    >>> count_by_type(["B-PER", "I-PER", "B-LOC"], ["B-PER", "I-PER", "B-ORG"], ["LOC", "ORG", "PER"]).tolist()
    [[0, 0, 1], [1, 0, 1], [0, 1, 1]]
    """
    found, there = set(spans(predicted)), set(spans(expected))
    counts = [Counter(span.label for span in some) for some in (found & there, found, there)]
    return np.array([[one[kind] for kind in types] for one in counts])


NO_SPAN = "(none)"  # in a confusion of types: a spurious span is expected as this, a missed one predicted


def confused_types(predicted: Sequence[str], expected: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of expected and predicted types in one sentence.

    Spans with equal boundaries are paired first, then those that overlap most. The others are missed or spurious.

    >>> confused_types(["B-LOC", "I-LOC", "O", "B-PER"], ["B-ORG", "O", "B-LOC", "O"])
    (('ORG', 'LOC'), ('LOC', '(none)'), ('(none)', 'PER'))
    """
    said, true = spans(predicted), spans(expected)
    shared, there, found = dict[tuple[int, int], int](), 0, 0
    while there < len(true) and found < len(said):  # spans of one sentence are in order and do not overlap
        one, other = true[there], said[found]
        if (common := min(one.stop, other.stop) - max(one.start, other.start)) > 0:
            shared[there, found] = common
        there, found = there + (one.stop <= other.stop), found + (other.stop <= one.stop)

    def rank(pair: tuple[int, int]) -> tuple[bool, int, int, int]:
        one, other = true[pair[0]], said[pair[1]]
        return (one.start, one.stop) != (other.start, other.stop), -shared[pair], *pair

    partner: dict[int, int] = {}
    taken = set[int]()
    for there, found in sorted(shared, key=rank):
        if there not in partner and found not in taken:
            partner[there] = found
            taken.add(found)
    pairs = [(one.label, said[partner[at]].label if at in partner else NO_SPAN) for at, one in enumerate(true)]
    return (*pairs, *((NO_SPAN, other.label) for at, other in enumerate(said) if at not in taken))
