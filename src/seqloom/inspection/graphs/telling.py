"""Tensors in words: a single number as it is, a few as a list, more by their norm."""

from seqloom.figures.axis import brief
from seqloom.inspection.graphs.trace import Summary

LISTED = 3  # numbers that are told one by one


def told(summary: Summary) -> str:
    """A tensor in one short phrase.

    >>> told(Summary(1, 2.0, 2.0, 2.0, 2.0, 0, 0, 0, (2.0,)))
    '2'
    """
    if summary.nans:
        return f"{summary.nans:,} NaN"
    if summary.whole is not None and len(summary.whole) == 1:
        return brief(summary.whole[0])
    if summary.whole is not None and len(summary.whole) <= LISTED:
        return f"({', '.join(map(brief, summary.whole))})"
    return f"norm {brief(summary.norm)}"


def told_shape(shape: tuple[int, ...]) -> str:
    """The shape before a value: `[2, 8]  `, nothing for a single number."""
    return f"[{', '.join(map(str, shape))}]  " if shape else ""


def told_summary(summary: Summary) -> str:
    """A tensor in all the numbers that are known of it."""
    if summary.whole is not None and len(summary.whole) == 1:
        return brief(summary.whole[0])
    found = [f"norm {brief(summary.norm)}", f"mean {brief(summary.mean)}"]
    found.append(f"from {brief(summary.low)} to {brief(summary.high)}")
    counts = [(summary.zeros, "zeros"), (summary.nans, "NaN"), (summary.infinities, "infinite")]
    found += [f"{count:,} of {summary.total:,} {name}" for count, name in counts if count]
    return ", ".join(found)
