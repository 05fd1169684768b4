"""How vectors are kept: as they are, or in fewer bits.

    float32   4 bytes a number    as computed
    float16   2                   rounded to 11 bits
    int8      1                   round(x / s), s one number for each dimension: the largest |x| of the first rows / 127
    binary    1/8                 whether x > 0, eight to a byte, the first one in the highest bit

What lies beyond the scale of int8 is cut to it. A row that has no vector is NaN; in int8 and binary, where there is no
NaN, zeros.

What vectors lose by being kept in fewer bits, or computed in whole numbers: measured on rows of the very file.

cosine   the mean of |cos(a, b) - cos(a', b')| over random pairs of the sample; a' is what is kept of a
recall   how many of the 10 nearest of a row in the sample are still among its 10 nearest; equal ones count as one
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from seqloom.errors import ConfigError, did_you_mean

Kind = Literal["float32", "float16", "int8", "binary"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STORED = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|u1"}
LARGEST = 127


class Numbers(NamedTuple):
    """A way to keep vectors of one width."""

    kind: Kind
    width: int
    scale: np.ndarray | None = None  # [D] float32 of int8

    @property
    def dtype(self) -> np.dtype:
        """The type of what is kept, the same on every machine."""
        return np.dtype(STORED[self.kind])

    @property
    def columns(self) -> int:
        """How many numbers, or bytes of bits, a row has."""
        return -(-self.width // 8) if self.kind == "binary" else self.width

    @property
    def is_fitted(self) -> bool:
        """Whether vectors can be kept: there is a scale, or none is needed."""
        return self.kind != "int8" or self.scale is not None

    def fitted(self, vectors: np.ndarray) -> "Numbers":
        """The same with the scale of these vectors [N,D], where one is needed and there is none."""
        if self.is_fitted:
            return self
        largest = np.nan_to_num(np.abs(vectors)).max(axis=0, initial=0.0)
        return self._replace(scale=np.where(largest > 0, largest, 1).astype(np.float32) / np.float32(LARGEST))

    def encoded(self, vectors: np.ndarray) -> np.ndarray:
        """[N,columns] what is kept of vectors [N,D].

        >>> Numbers("binary", 3).encoded(np.array([[0.5, -1.0, 2.0]])).tolist()
        [[160]]
        """
        if self.kind == "binary":
            return np.packbits(vectors > 0, axis=1)
        if self.kind == "int8":
            whole: np.ndarray = np.rint(np.nan_to_num(vectors / self._scale))
            return whole.clip(-LARGEST, LARGEST).astype(self.dtype)
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there; the loss says so
            return vectors.astype(self.dtype)

    def decoded(self, kept: np.ndarray) -> np.ndarray:
        """[N,D] float32 vectors again, as near as what is kept allows; bits are 1 and -1."""
        if self.kind == "binary":
            return np.unpackbits(kept, axis=1, count=self.width).astype(np.float32) * 2 - 1
        return kept.astype(np.float32) * self._scale if self.kind == "int8" else kept.astype(np.float32)

    @property
    def _scale(self) -> np.ndarray:
        assert self.scale is not None, "int8 is fitted before anything is kept"
        return self.scale


def require_kind(name: str) -> Kind:
    """The kind of this name; ConfigError if there is none."""
    for kind in KINDS:
        if kind == name:
            return kind
    raise ConfigError(f"there are no vectors in '{name}'", fix=did_you_mean(name, KINDS))


SAMPLE = 1_000  # rows, spread over the file
PAIRS = 10_000
NEAREST = 10


class QuantizationLoss(NamedTuple):
    """What was lost, on so many rows."""

    rows: int
    cosine: float
    recall: float


def sampled(rows: int, start: int, stop: int) -> np.ndarray:
    """The numbers from `start` to before `stop` that are in the sample of all rows, evenly spread.

    >>> sampled(5, 0, 3).tolist(), sampled(3_000, 0, 10).tolist()
    ([0, 1, 2], [0, 3, 6, 9])
    """
    count = min(rows, SAMPLE)
    chosen = np.arange(count) * rows // max(1, count)
    return chosen[(chosen >= start) & (chosen < stop)]


def measured(exact: np.ndarray, kept: np.ndarray) -> QuantizationLoss | None:
    """What vectors [N,D] lose, given what is kept of each [N,D]; None for fewer than two vectors."""
    there = np.isfinite(exact).all(axis=1)
    exact, kept = _unit(exact[there]), _unit(kept[there])
    if len(exact) < 2:
        return None
    true, found = exact @ exact.T, kept @ kept.T
    draws = np.random.Generator(np.random.PCG64(0))
    first = draws.integers(0, len(exact), PAIRS)
    second = (first + draws.integers(1, len(exact), PAIRS)) % len(exact)  # never itself
    cosine = float(np.abs(true[first, second] - found[first, second]).mean())
    return QuantizationLoss(len(exact), cosine, _recall(true, found))


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length one in float64; what is not finite, and what has no length, is zero."""
    finite = np.nan_to_num(vectors.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(finite, axis=1, keepdims=True)
    return finite / np.where(lengths > 0, lengths, 1)


def _recall(true: np.ndarray, found: np.ndarray) -> float:
    """The share of the nearest by one matrix of cosines that are so by another; a row is not its own neighbour."""
    count = min(NEAREST, len(true) - 1)
    for cosines in (true, found):
        np.fill_diagonal(cosines, -np.inf)
    chosen = np.argpartition(-found, count - 1, axis=1)[:, :count]
    least = -np.partition(-true, count - 1, axis=1)[:, count - 1 : count]
    return float((np.take_along_axis(true, chosen, axis=1) >= least - 1e-9).mean())
