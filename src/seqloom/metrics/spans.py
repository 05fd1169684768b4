"""Spans found and missed, counted as conlleval counts them: a span is right if its borders and its type are.

What cannot go on begins anew, so tags of any scheme mean spans, lawful or not. That is what seqeval counts by default;
its strict mode leaves out unlawful spans, of which the answers of this package hold none.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.data.tags import OUTSIDE, Span, spans
from seqloom.metrics.ratios import Retrieved, ratio


class SpanCounts(NamedTuple):
    """How many spans of a sentence were said, are true, and are both."""

    right: int
    said: int
    true: int


def count_spans(said: Sequence[str], true: Sequence[str]) -> SpanCounts:
    """The counts for one sentence, from a tag for each word.

    >>> count_spans(["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "I-PER", "O", "B-ORG"])
    SpanCounts(right=1, said=2, true=2)
    """
    found, there = set(spans(said)), set(spans(true))
    return SpanCounts(len(found & there), len(found), len(there))


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
    return np.array([_counted(some, types) for some in (found & there, found, there)])


def _counted(marked: Iterable[Span], types: Sequence[str]) -> list[int]:
    counts = Counter(span.label for span in marked)
    return [counts[kind] for kind in types]


def span_figures(counts: np.ndarray) -> dict[str, np.ndarray]:
    """`f1`, `precision` and `recall` of all spans together, and `macro_f1`, each [...], from counts [...,3,types].

    The macro mean is that of the types of which a span is there or was said, as in seqeval.
    """
    right, said, true = np.moveaxis(counts, -2, 0)
    together = Retrieved(*(one.sum(axis=-1) for one in (right, said, true)))
    macro = ratio(Retrieved(right, said, true).f1.sum(axis=-1), ((said > 0) | (true > 0)).sum(axis=-1))
    return {"f1": together.f1, "precision": together.precision, "recall": together.recall, "macro_f1": macro}


def figures_by_type(counts: np.ndarray, types: Sequence[str]) -> dict[str, dict[str, float]]:
    """`precision`, `recall`, `f1` and `support` of each type of which a span is there or was said; counts [3,types].

    >>> figures_by_type(np.array([[1, 0], [2, 0], [1, 0]]), ["PER", "LOC"])
    {'PER': {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'support': 1.0}}
    """
    found = Retrieved(*counts)
    columns = {"precision": found.precision, "recall": found.recall, "f1": found.f1, "support": counts[2]}
    seen = [number for number in range(len(types)) if counts[1:, number].any()]
    return {types[number]: {name: float(column[number]) for name, column in columns.items()} for number in seen}
