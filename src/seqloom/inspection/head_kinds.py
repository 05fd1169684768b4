"""What kind of head is this? Shares of its weight on keys of a kind, against what an even look would give them.

    itself, previous, next     the key at the same place, one before, one after
    first                      the first key                       special    BEGIN, END and their like
    same word                  other pieces of the query's word    same token   the query's symbol at another place
    induction                  the key after an earlier occurrence of the query's symbol (Elhage et al. 2021)
    diagonal                   keys near the straight line from the first row and column to the last

A head is called after the kind with the largest *lift*, (share - even) / (1 - even): 0 is what an even look over the
allowed keys gives, 1 is everything. Rows that may read one key alone have no choice and are not counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.inspection.tokens import NO_WORD, Token

KINDS = ("itself", "previous", "next", "first", "special", "same word", "same token", "induction", "diagonal")
CALLED = 0.5  # the lift from which on a head is called after a kind
BROAD = 0.9  # the share of the largest possible entropy from which on a head is called broad
NEAR = 0.02  # of the length: how far from the line the diagonal goes, and at least one token
LEAST_NEAR = 1
CERTAIN = 0.95


class HeadNumbers(NamedTuple):
    """What a head does, as means over the rows that have a choice."""

    entropy: float  # in nats
    evenness: float  # entropy over that of an even look at the same keys
    distance: float  # in tokens, between the query and the keys that it reads; NaN across two sides
    shares: dict[str, float]  # of the weight, by kind
    even: dict[str, float]  # what an even look would give
    rows: int  # how many were counted

    @property
    def lifts(self) -> dict[str, float]:
        """How far each share stands above that of an even look, 1 for everything."""
        return {kind: _lift(self.shares[kind], self.even[kind]) for kind in self.shares}

    @property
    def kind(self) -> str:
        """What the head is called: the kind with the largest lift, or broad, or mixed."""
        lifts = self.lifts
        named = [kind for kind in lifts if kind != "diagonal"]
        best = max(named, key=lambda kind: lifts[kind], default="diagonal")
        for kind in (best, "diagonal"):
            if lifts.get(kind, 0.0) >= CALLED:
                return kind
        return "broad" if self.evenness >= BROAD else "mixed"


def _lift(share: float, even: float) -> float:
    return (share - even) / (1 - even) if even < CERTAIN else 0.0  # a kind that nearly all keys are of says nothing


class Where(NamedTuple):
    """The tokens of rows and columns, and whether they are the same."""

    queries: Sequence[Token]
    keys: Sequence[Token]
    same: bool


def masks(where: Where, rows: np.ndarray) -> dict[str, np.ndarray]:
    """[R,S] bool for each kind: which keys are of it, for the queries of these numbers."""
    keys, i, j = where.keys, rows[:, None], np.arange(len(where.keys))[None]
    line = i * (len(keys) - 1) / max(1, len(where.queries) - 1)
    found = {
        "first": np.broadcast_to(j == 0, (len(rows), len(keys))),
        "special": np.broadcast_to(np.array([key.is_special for key in keys])[None], (len(rows), len(keys))),
        "diagonal": np.abs(j - line) <= max(LEAST_NEAR, NEAR * len(keys)),
    }
    if not where.same:
        return found
    words = np.array([key.word for key in keys])
    symbols = np.array([-1 - at if key.symbol is None else key.symbol for at, key in enumerate(keys)])
    before = np.concatenate([[np.iinfo(np.int64).min], symbols[:-1]])
    found |= {
        "itself": i == j,
        "previous": j == i - 1,
        "next": j == i + 1,
        "same word": (words[rows][:, None] == words) & (words != NO_WORD) & (i != j),
        "same token": (symbols[rows][:, None] == symbols) & (i != j),
        "induction": (symbols[rows][:, None] == before) & (j != i + 1) & (j != i),
    }
    return {kind: found[kind] for kind in KINDS}


class Rows:
    """Some rows of a layer, whose heads all have the same masks: what is the same for all of them is made once."""

    def __init__(self, where: Where, rows: np.ndarray, allowed: np.ndarray) -> None:
        counts = allowed.sum(axis=1)
        self.choice = counts > 1
        self.most = np.log(counts[self.choice])  # the entropy of an even look
        self.count = int(self.choice.sum())
        kinds = masks(where, rows[self.choice])
        self.kinds = tuple(kinds)
        self.chosen = np.stack([mask.reshape(-1) for mask in kinds.values()]).astype(np.float32)  # [K,R*S]
        self.even = self.shares(allowed[self.choice] / counts[self.choice, None])
        apart = np.abs(rows[self.choice, None] - np.arange(allowed.shape[1])[None])
        self.apart = apart if where.same else np.full((1, 1), np.nan)

    def shares(self, weights: np.ndarray) -> np.ndarray:
        """[K] the sums of the weights [R,S] on keys of each kind."""
        found: np.ndarray = self.chosen @ weights.reshape(-1).astype(np.float32)
        return found.astype(np.float64)


class Counting:
    """Sums over rows of a head, block by block."""

    def __init__(self) -> None:
        self.rows = 0
        self.first = np.zeros(3)  # of entropy, evenness and distance
        self.shares, self.even = np.zeros(0), np.zeros(0)
        self.kinds: tuple[str, ...] = ()

    def add(self, weights: np.ndarray, rows: Rows) -> None:
        """Nothing; further rows [R,S] of the head are counted."""
        if not rows.count:
            return
        known = np.nan_to_num(weights[rows.choice])
        entropy = -np.sum(known * np.log(np.maximum(known, 1e-300)), axis=1)
        self.kinds = rows.kinds
        self.rows += rows.count
        self.first += [entropy.sum(), (entropy / rows.most).sum(), (known * rows.apart).sum()]
        self.shares = self.shares + rows.shares(known) if self.shares.size else rows.shares(known)
        self.even = self.even + rows.even if self.even.size else rows.even

    def numbers(self) -> HeadNumbers:
        """The means over all rows that were counted."""
        entropy, evenness, distance = (float(value) / max(1, self.rows) for value in self.first)
        shares, even = (
            dict(zip(self.kinds, (float(value) / self.rows for value in sums), strict=True))
            for sums in (self.shares, self.even)
        )
        return HeadNumbers(entropy, evenness, distance, shares, even, self.rows)
