"""How vectors are kept: as they are, or in fewer bits.

    float32   4 bytes a number    as computed
    float16   2                   rounded to 11 bits
    int8      1                   round(x / s), s one number for each dimension: the largest |x| of the first rows / 127
    binary    1/8                 whether x > 0, eight to a byte, the first one in the highest bit

What lies beyond the scale of int8 is cut to it. A row that has no vector is NaN; in int8 and binary, where there is no
NaN, zeros.
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
