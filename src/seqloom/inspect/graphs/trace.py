"""What was recorded of one computation: its operations in order, each with its value and its gradient in brief.

Tensors are not kept: of each there are its shape, a few numbers that say how it is, and all of it where it is small.

Tensors in words: a single number as it is, a few as a list, more by their norm.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.report.numbers import number as brief

SMALL_TENSOR = 64  # numbers that are kept whole
INPUT, GIVEN = "input", "tensor"  # what an operation is called that only hands something in


class TensorSummary(NamedTuple):
    """A tensor, or several, in a few numbers; those of the finite ones, and how many are not."""

    total: int  # how many numbers
    low: float
    high: float
    mean: float
    norm: float  # Euclidean
    zeros: int
    nans: int
    infinities: int
    whole: tuple[float, ...] | None = None  # all of it, row by row, where it is small

    @property
    def is_zero(self) -> bool:
        """Whether every number of it is zero."""
        return self.total > 0 and self.zeros == self.total


class Op(NamedTuple):
    """One operation of a computation, or one thing that was handed in."""

    name: str  # linear, softmax, add; input
    label: str  # what it is called where it has a name of its own: an input
    path: tuple[str, ...]  # the calls around it, the outermost first
    parents: tuple[int, ...]  # operations whose results it reads; earlier ones
    locals: tuple[float | None, ...]  # its derivative by each of them, where all are single numbers
    weights: tuple[str, ...]  # of the model, which it reads
    shape: tuple[int, ...]  # of its (first) result
    place: str  # where it was called: file and line
    value: TensorSummary
    is_dead: bool = False  # zero throughout, and made of nothing that is
    gradient: TensorSummary | None = None  # of the number that was differentiated, by its result


class Weight(NamedTuple):
    """One weight of a model, and what came back to it."""

    name: str
    shape: tuple[int, ...]
    value: TensorSummary
    gradient: TensorSummary | None


class Trace(NamedTuple):
    """One computation, forward and back."""

    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    kinds: dict[str, str]  # the class of the module behind each call
    target: int  # the operation that gave the number which was differentiated
    result: float


def summary(tensors: Sequence[Tensor]) -> TensorSummary:
    """How tensors are, taken together."""
    return merged([_summary(tensor.detach()) for tensor in tensors])


def merged(parts: Sequence[TensorSummary]) -> TensorSummary:
    """The summary of several tensors of the summaries of each."""
    if len(parts) == 1:
        return parts[0]
    finite = [part.total - part.nans - part.infinities for part in parts]
    added = math.fsum(part.mean * many for part, many in zip(parts, finite, strict=True))
    return TensorSummary(
        sum(part.total for part in parts),
        min(part.low for part in parts),
        max(part.high for part in parts),
        added / max(1, sum(finite)),
        math.hypot(*(part.norm for part in parts)),
        sum(part.zeros for part in parts),
        sum(part.nans for part in parts),
        sum(part.infinities for part in parts),
    )


def _summary(tensor: Tensor) -> TensorSummary:
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()  # the gradient of a sparse embedding
    flat = (torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense).flatten()
    if flat.numel() <= SMALL_TENSOR:
        return _small_summary(tuple(map(float, flat.tolist())))
    known = flat if flat.is_floating_point() else flat.double()
    total, nans, infinities = known.numel(), 0, 0
    if not math.isfinite(float(known.sum(dtype=torch.float64))):  # rare: the careful way only then
        nans, infinities = int(known.isnan().sum()), int(known.isinf().sum())
        known = known[known.isfinite()]
        if not known.numel():
            return TensorSummary(total, 0.0, 0.0, 0.0, 0.0, 0, nans, infinities)
    low, high = (float(end) for end in torch.aminmax(known))
    norm = float(torch.linalg.vector_norm(known, dtype=torch.float64))
    mean = float(known.sum(dtype=torch.float64)) / known.numel()
    zeros = known.numel() - int(torch.count_nonzero(known))
    return TensorSummary(total, low, high, mean, norm, zeros, nans, infinities)


def _small_summary(numbers: tuple[float, ...]) -> TensorSummary:
    """The same without torch, which takes longer to call than a few numbers take to add up."""
    finite = [number for number in numbers if math.isfinite(number)]
    nans = sum(number != number for number in numbers)
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    mean = math.fsum(finite) / max(1, len(finite))
    infinities = len(numbers) - len(finite) - nans
    return TensorSummary(
        len(numbers), low, high, mean, math.hypot(*finite), finite.count(0.0), nans, infinities, numbers
    )


LISTED = 3  # numbers that are told one by one


def told(summary: TensorSummary) -> str:
    """A tensor in one short phrase.

    >>> told(TensorSummary(1, 2.0, 2.0, 2.0, 2.0, 0, 0, 0, (2.0,)))
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


def told_summary(summary: TensorSummary) -> str:
    """A tensor in all the numbers that are known of it."""
    if summary.whole is not None and len(summary.whole) == 1:
        return brief(summary.whole[0])
    found = [f"norm {brief(summary.norm)}", f"mean {brief(summary.mean)}"]
    found.append(f"from {brief(summary.low)} to {brief(summary.high)}")
    counts = [(summary.zeros, "zeros"), (summary.nans, "NaN"), (summary.infinities, "infinite")]
    found += [f"{count:,} of {summary.total:,} {name}" for count, name in counts if count]
    return ", ".join(found)
