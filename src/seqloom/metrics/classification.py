"""Labels said and labels true, counted for each label: precision, recall and F1, of each and of all.

    macro    the mean over labels, the rare ones counting as much as the frequent ones: over those that were said or
             are true, so a label that never came up has no say. For one label of each example that is scikit-learn's,
             for spans seqeval's; for several labels, scikit-learn takes a matrix, and unless it is told `labels` counts
             such columns as 0
    micro    of all labels together: where each example has one label and one answer, this is the accuracy

Examples are kept as numbers of labels, not as a column for each label, so a thousand labels cost no more than two. For
one label an example has two numbers, the said one and the true one. For several, sets of labels are packed: each number
holds 48 of them, as a float64 holds any whole number below 2^53.

Thresholds: from which probability on each of several labels is said, so that F1 is largest.

Saying what is more likely than not makes the fewest errors. F1 does not count errors: it asks that rare labels be
found, and its best threshold is half of the F1 that it reaches (Lipton et al. 2014), so mostly below one half.

    micro F1 = 2 right / (said + true), summed over labels

is a ratio of sums, and its largest value l solves  max sum_k (2 right_k - l (said_k + true_k)) = 0. For a given l
each label has its own best threshold, whatever the others have; with these, l grows, and after a few rounds it stands
still (Dinkelbach 1967). F1 never falls on the way, and where thresholds are equally good the one nearest to a half is
taken.

A label that fewer than five rows of the dev part have, or lack, keeps a half: nothing is known of it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.data.tags import OUTSIDE, spans
from seqloom.metrics import ratio

PACKED = 48  # labels in a number: six bytes
TOGETHER = 2**22  # labels of rows that are unpacked at a time


class Retrieved:
    """Precision, recall and F1 of things that were to be found: spans, or labels of several."""

    def __init__(self, right: np.ndarray, said: np.ndarray, true: np.ndarray) -> None:
        self.precision, self.recall = ratio(right, said), ratio(right, true)
        self.f1 = ratio(2 * np.asarray(right), np.asarray(said) + np.asarray(true))  # their harmonic mean


class Counts(NamedTuple):
    """How often each label, or a span of each type, was right, said and true, [...,K] each."""

    right: np.ndarray
    said: np.ndarray
    true: np.ndarray

    @classmethod
    def of(cls, sums: np.ndarray) -> "Counts":
        """The counts that stand behind each other in sums [...,3K]."""
        return cls(*np.split(sums, 3, axis=-1))

    @property
    def each(self) -> Retrieved:
        """Precision, recall and F1 of each label, [...,K]."""
        return Retrieved(self.right, self.said, self.true)

    @property
    def micro(self) -> Retrieved:
        """The same of all labels together, [...]."""
        return Retrieved(*(counts.sum(axis=-1) for counts in self))

    @property
    def macro_f1(self) -> np.ndarray:
        """The mean F1 of the labels that were said or are true, [...]."""
        return ratio(self.each.f1.sum(axis=-1), np.sum(self.said + self.true > 0, axis=-1))

    @property
    def figures(self) -> dict[str, np.ndarray]:
        """`f1`, `precision` and `recall` of all labels together, and `macro_f1`, each [...]."""
        micro = self.micro
        return {"f1": micro.f1, "precision": micro.precision, "recall": micro.recall, "macro_f1": self.macro_f1}

    def named(self, labels: Sequence[str]) -> dict[str, dict[str, float]]:
        """The figures of each label that was said or is true, by its name; `support` is how often it is true.

        >>> Counts(np.array([1, 0]), np.array([2, 0]), np.array([1, 0])).named(["PER", "LOC"])
        {'PER': {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'support': 1.0}}
        """
        each = self.each
        columns = {"precision": each.precision, "recall": each.recall, "f1": each.f1, "support": self.true}
        seen = np.flatnonzero(self.said + self.true > 0).tolist()
        return {labels[number]: {name: float(column[number]) for name, column in columns.items()} for number in seen}


def counted(said: np.ndarray, true: np.ndarray, times: np.ndarray, labels: int) -> np.ndarray:
    """[3K] how often each label was right, said and true, for one label of each example [N], each taken so often.

    >>> counted(np.array([0, 1, 1]), np.array([0, 1, 0]), np.ones(3), 2).tolist()
    [1.0, 1.0, 1.0, 2.0, 2.0, 1.0]
    """
    said, true = said.astype(np.int64), true.astype(np.int64)
    rows = ((said, times * (said == true)), (said, times), (true, times))
    return np.concatenate([np.bincount(numbers, weights, minlength=labels) for numbers, weights in rows])


def words_of(labels: int) -> int:
    """How many numbers hold a set of labels."""
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


def counted_sets(said: np.ndarray, true: np.ndarray, times: np.ndarray, labels: int) -> np.ndarray:
    """[R,3K] how often each label was right, said and true, for packed sets [N,words], taken so often [R,N]."""
    sums = np.zeros((len(times), 3 * labels))
    together = max(1, TOGETHER // labels)
    for start in range(0, len(said), together):
        here = slice(start, start + together)
        one, other = unpacked(said[here], labels), unpacked(true[here], labels)
        sums += times[:, here] @ np.concatenate([one & other, one, other], axis=1).astype(np.float64)
    return sums


HALF = 0.5
LOWEST, HIGHEST = 0.05, 0.95
FEWEST = 5  # rows with a label, and without it, from which its threshold is found
MOST_ROUNDS = 50


class _Choices(NamedTuple):
    """The thresholds that one label may have, and what is said and right with each."""

    thresholds: np.ndarray  # [C], the nearest to a half first
    said: np.ndarray
    right: np.ndarray

    def best(self, level: float) -> int:
        """Which is best where the F1 of all is so large."""
        return int(np.argmax(2 * self.right - level * self.said))


def best_thresholds(probabilities: np.ndarray, true: np.ndarray) -> tuple[float, ...]:
    """The threshold of each label that together make the largest F1, from [N,K] each; what is above it is said.

    >>> likely, true = np.array([[0.4], [0.3], [0.1]] * 5), np.array([[1], [1], [0]] * 5)
    >>> [round(threshold, 3) for threshold in best_thresholds(likely, true)]
    [0.2]
    """
    columns = zip(probabilities.T.astype(np.float64), true.T > 0, strict=True)
    labels = [_choices(likely, there) for likely, there in columns]
    positives, chosen, level = float(np.sum(true > 0)), [0] * len(labels), -1.0  # first: a half everywhere
    for _ in range(MOST_ROUNDS):
        right = sum(float(label.right[number]) for label, number in zip(labels, chosen, strict=True))
        said = sum(float(label.said[number]) for label, number in zip(labels, chosen, strict=True))
        reached = 2 * right / (said + positives) if said + positives else 0.0
        if reached <= level:
            break
        level, chosen = reached, [label.best(reached) for label in labels]
    return tuple(float(label.thresholds[number]) for label, number in zip(labels, chosen, strict=True))


def _choices(likely: np.ndarray, true: np.ndarray) -> _Choices:
    """The thresholds between the probabilities of one label [N], and a half."""
    thresholds = np.array([HALF])
    if min(true.sum(), (~true).sum()) >= FEWEST:
        values = np.unique(likely)
        between = (values[1:] + values[:-1]) / 2
        between = between[(between >= LOWEST) & (between <= HIGHEST)]
        thresholds = np.concatenate([thresholds, between[np.argsort(np.abs(between - HALF), kind="stable")]])
    return _Choices(thresholds, _above(likely, thresholds), _above(likely[true], thresholds))


def _above(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many values are above each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds, side="right")


# Spans found and missed, counted as conlleval counts them: a span is right if its borders and its type are.
#
# What cannot go on begins anew, so tags of any scheme mean spans, lawful or not. That is what seqeval counts by
# default; its strict mode leaves out unlawful spans, of which the answers of this package hold none.


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """The types that tags of a scheme speak of, in the order of the alphabet.

    >>> types_of(["O", "B-PER", "I-PER", "B-LOC"])
    ('LOC', 'PER')
    """
    return tuple(sorted({label[2:] for label in labels if label != OUTSIDE}))


def count_by_type(said: Sequence[str], true: Sequence[str], types: Sequence[str]) -> np.ndarray:
    """[3,types] how many spans of each type of one sentence are right, said and true.

    >>> count_by_type(["B-PER", "I-PER", "B-LOC"], ["B-PER", "I-PER", "B-ORG"], ["LOC", "ORG", "PER"]).tolist()
    [[0, 0, 1], [1, 0, 1], [0, 1, 1]]
    """
    found, there = set(spans(said)), set(spans(true))
    counts = [Counter(span.label for span in some) for some in (found & there, found, there)]
    return np.array([[one[kind] for kind in types] for one in counts])
