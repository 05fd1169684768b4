"""Near duplicates: rows that say the same, in clusters with a representative; nothing is deleted.

    texts ── equal ones once ──▶ similar pairs ──▶ histogram ──▶ threshold ──▶ clusters ──▶ representatives
                                 by letters or                   given, or
                                 by meaning                      in the valley

Clusters are chains of pairs, so two of a large one may be less similar than the threshold; how similar each row is to
the representative is told. A file is marked in a copy with three more columns, in which nothing is missing:

text                  cluster   duplicate_of   similarity
The cat sat.          1                                      stands for its cluster
the cat sat           1         1              1.0           repeats row 1
Something else.                                              is alone
"""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.data.checks.duplicates import folded
from seqloom.data.checks.minhash import clusters, members
from seqloom.errors import ConfigError, DataError
from seqloom.events import Progress, Work, finished
from seqloom.search.documents import AddedColumn, FileRows, GivenRows, require_copy, write_copy
from seqloom.search.similarity import LEAST, ByMeaning, ByText, Histogram, Measure, Pairs, joined
from seqloom.search.vectors import MakesVectors

NONE = -1


class Duplicates(NamedTuple):
    """What was found, a number for each row.

    `clusters` counts them from 1 in the order of their first rows; 0 is a row that is alone. `representatives` is the
    row that stands for a row's cluster, its own number if it is that one itself, -1 if it is alone; `similarities` is
    how similar the two are, NaN if it is alone.
    """

    clusters: np.ndarray  # [rows] int64
    representatives: np.ndarray  # [rows] int64
    similarities: np.ndarray  # [rows] float32
    threshold: float
    histogram: Histogram
    found: bool  # whether the threshold lies in a valley of the histogram

    @property
    def duplicates(self) -> int:
        """How many rows another one stands for."""
        rows = np.arange(len(self.representatives))
        return int(((self.representatives != NONE) & (self.representatives != rows)).sum())


def dedupe(texts: Sequence[str], *, model: MakesVectors | None = None, threshold: float | None = None) -> Duplicates:
    """The near duplicates among texts, by the vectors of a model or by their letters; empty texts have none.

    Without a threshold, the one in the valley of the similarities, or a usual one if there is no valley.

    >>> found = dedupe(["The cat sat on the mat.", "Something else", "the cat sat on a mat", "Sat on the mat, the cat"])
    >>> found.clusters.tolist(), found.representatives.tolist()
    ([1, 0, 1, 1], [0, -1, 0, 0])
    """
    return finished(finding(texts, model=model, threshold=threshold))


def finding(
    texts: Sequence[str], *, model: MakesVectors | None = None, threshold: float | None = None
) -> Work[Duplicates]:
    """The same as work that tells how far it is."""
    if isinstance(texts, str):
        raise DataError("duplicates are found among several texts, found one", fix="give a list of texts")
    require_threshold(threshold)
    same = _Same.of(texts)
    measure: Measure = ByText(same.texts) if model is None else ByMeaning(same.texts, model)
    pairs = near = joined([])
    if same.texts:
        pairs = yield from measure.pairs(LEAST if threshold is None else threshold)
    histogram = Histogram.of(same.nearest(pairs))
    valley = histogram.valley() if threshold is None else None
    least = threshold if threshold is not None else valley if valley is not None else measure.usual
    if same.texts:
        near = pairs.above(least)
        near = joined([near, (yield from measure.bridges(near, least))])
    found = _numbered(same, measure, clusters(len(same.texts), near.ones, near.others))
    return Duplicates(*found, threshold=least, histogram=histogram, found=valley is not None)


def require_threshold(threshold: float | None) -> None:
    """Raise ConfigError for what no two texts can reach, or nearly all do."""
    if threshold is not None and not LEAST <= threshold <= 1:
        raise ConfigError(f"a threshold of {threshold:g}", fix=f"take one from {LEAST} to 1")


class _Same(NamedTuple):
    """Equal texts taken together: the first row of each, and for each row the number of its text, -1 for an empty one.

    Equal is what differs in white space, case and Unicode form only.
    """

    texts: list[str]
    firsts: np.ndarray  # [texts] int64
    numbers: np.ndarray  # [rows] int64

    @classmethod
    def of(cls, texts: Sequence[str]) -> "_Same":
        known: dict[str, int] = {}
        firsts: list[int] = []
        numbers = np.full(len(texts), NONE, np.int64)
        for row, text in enumerate(texts):
            if key := folded(text):
                numbers[row] = known.setdefault(key, len(known))
                if len(firsts) < len(known):
                    firsts.append(row)
        return cls([texts[row] for row in firsts], np.array(firsts, np.int64), numbers)

    def nearest(self, pairs: Pairs) -> np.ndarray:
        """[rows] the similarity of the row most like each; -1 where there is none."""
        best = np.full(len(self.texts), -1, np.float32)
        np.maximum.at(best, pairs.ones, pairs.similarities)
        np.maximum.at(best, pairs.others, pairs.similarities)
        best[np.bincount(self.numbers[self.numbers != NONE], minlength=len(best)) > 1] = 1  # an equal row
        return np.asarray(best[self.numbers[self.numbers != NONE]])


def _numbered(same: _Same, measure: Measure, leaders: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cluster, the representative and the similarity to it, for each row."""
    rows = len(same.numbers)
    numbers, heads = np.zeros(rows, np.int64), np.full(rows, NONE, np.int64)
    filled = np.flatnonzero(same.numbers != NONE)
    texts = np.full(rows, NONE, np.int64)  # the text of the representative
    for number, group in enumerate(members(leaders[same.numbers[filled]]), 1):
        inside = filled[group]
        head = measure.representative(np.unique(same.numbers[inside]))
        numbers[inside], heads[inside], texts[inside] = number, same.firsts[head], head
    similarities = np.full(rows, np.nan, np.float32)
    there = np.flatnonzero(numbers)
    similarities[there] = np.where(
        same.numbers[there] == texts[there], 1, measure.between(same.numbers[there], texts[there])
    )
    return numbers, heads, similarities


COLUMNS = ("cluster", "duplicate_of", "similarity")


def mark_duplicates(
    rows: FileRows, out: Path, *, model: MakesVectors | None = None, threshold: float | None = None
) -> Generator[GivenRows | Progress, None, Duplicates]:
    """What was found, when the marked copy stands at `out`; it tells what the file holds, and how far it is."""
    require_threshold(threshold)
    require_copy(out, rows, COLUMNS)
    given = rows.read()
    yield given
    found = yield from finding(given.texts, model=model, threshold=threshold)
    # for each row its cluster, the name of the row it repeats, and how similar the two are
    heads = [head if head not in (NONE, row) else None for row, head in enumerate(found.representatives.tolist())]
    alike = zip(heads, found.similarities.tolist(), strict=True)
    columns = (
        AddedColumn(int, [number or None for number in found.clusters.tolist()]),
        AddedColumn(str, [None if head is None else given.names[head] for head in heads]),
        AddedColumn(float, [None if head is None else round(value, 4) for head, value in alike]),
    )
    write_copy(out, rows, given.state, dict(zip(COLUMNS, columns, strict=True)), np.ones(len(given.texts), bool))
    return found
