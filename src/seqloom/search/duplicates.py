"""Near duplicates: clusters of rows with nearly the same text, each with a representative. Nothing is deleted.

    texts ── equal texts merged ──▶ similar pairs ──▶ histogram ──▶ threshold ──▶ clusters ──▶ representatives
                                    by text or                      given, or
                                    by meaning                      in the valley

Clusters are chains of similar pairs, so two rows of a large cluster may be less similar than the threshold. Each row
therefore has its similarity to the representative. A marked copy of a file has three more columns:

text                  cluster   duplicate_of   similarity
The cat sat.          1                                      representative of its cluster
the cat sat           1         1              1.0           duplicate of row 1
Something else.                                              no duplicates
"""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.config.options import strict
from seqloom.data.checks.duplicates import folded
from seqloom.data.checks.minhash import clusters, members
from seqloom.errors import ConfigError, DataError
from seqloom.events import Progress, Work, finished
from seqloom.search.documents import AddedColumn, TextFile, TextRows, require_copy, write_copy
from seqloom.search.similarity import MIN_SIMILARITY, ByMeaning, ByText, Histogram, Measure, Pairs, concatenate_pairs
from seqloom.search.vectors import SupportsEmbed

NONE = -1


class Duplicates(NamedTuple):
    """The result of `dedupe`; arrays have one entry per row.

    Attributes:
        clusters: Cluster number of each row, from 1 in the order of first rows; 0 for a row without duplicates.
        representatives: Row number of the cluster's representative (its own number for the representative), or -1.
        similarities: Similarity to the representative; NaN for a row without duplicates.
        threshold: Similarity from which two rows are duplicates.
        histogram: For each row, the similarity of its most similar row, counted in bins.
        valley_found: Whether the threshold comes from a valley of the histogram.
    """

    clusters: np.ndarray  # [rows] int64
    representatives: np.ndarray  # [rows] int64
    similarities: np.ndarray  # [rows] float32
    threshold: float
    histogram: Histogram
    valley_found: bool

    @property
    def duplicates(self) -> int:
        """Return the number of rows that duplicate another row."""
        rows = np.arange(len(self.representatives))
        return int(((self.representatives != NONE) & (self.representatives != rows)).sum())


@strict
def dedupe(texts: Sequence[str], *, model: SupportsEmbed | None = None, threshold: float | None = None) -> Duplicates:
    """Find near duplicates among texts; empty texts have none.

    Args:
        texts: The texts.
        model: Anything with `embed(texts)`, to compare by meaning (default: compare the text itself).
        threshold: Similarity of duplicates, from 0.5 to 1 (default: the valley of the histogram of similarities, or
            0.75 by text and 0.9 by meaning if there is no valley).

    >>> found = dedupe(["The cat sat on the mat.", "Something else", "the cat sat on a mat", "Sat on the mat, the cat"])
    >>> found.clusters.tolist(), found.representatives.tolist()
    ([1, 0, 1, 1], [0, -1, 0, 0])
    """
    return finished(find_duplicates(texts, model=model, threshold=threshold))


def find_duplicates(
    texts: Sequence[str], *, model: SupportsEmbed | None = None, threshold: float | None = None
) -> Work[Duplicates]:
    """Do the same as `dedupe`, as a generator that yields progress."""
    if isinstance(texts, str):
        raise DataError("expected a list of texts, got one string", fix="give a list of texts")
    require_threshold(threshold)
    same = _DistinctTexts.of(texts)
    measure: Measure = ByText(same.texts) if model is None else ByMeaning(same.texts, model)
    pairs = near = concatenate_pairs([])
    if same.texts:
        pairs = yield from measure.pairs(MIN_SIMILARITY if threshold is None else threshold)
    histogram = Histogram.of(same.nearest(pairs))
    valley = histogram.valley() if threshold is None else None
    chosen = threshold if threshold is not None else valley if valley is not None else measure.default_threshold
    if same.texts:
        near = pairs.above(chosen)
        near = concatenate_pairs([near, (yield from measure.bridges(near, chosen))])
    found = _numbered(same, measure, clusters(len(same.texts), near.ones, near.others))
    return Duplicates(*found, threshold=chosen, histogram=histogram, valley_found=valley is not None)


def require_threshold(threshold: float | None) -> None:
    """Raise ConfigError for a threshold out of range."""
    if threshold is not None and not MIN_SIMILARITY <= threshold <= 1:
        raise ConfigError(f"threshold {threshold:g} is out of range", fix=f"choose one from {MIN_SIMILARITY} to 1")


class _DistinctTexts(NamedTuple):
    """The distinct texts: the first row of each, and for each row the number of its text (-1 if it is empty).

    Texts that differ only in white space, case or Unicode form count as equal.
    """

    texts: list[str]
    firsts: np.ndarray  # [texts] int64
    numbers: np.ndarray  # [rows] int64

    @classmethod
    def of(cls, texts: Sequence[str]) -> "_DistinctTexts":
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
        """[rows] the similarity of the most similar row; -1 if there is none."""
        best = np.full(len(self.texts), -1, np.float32)
        np.maximum.at(best, pairs.ones, pairs.similarities)
        np.maximum.at(best, pairs.others, pairs.similarities)
        best[np.bincount(self.numbers[self.numbers != NONE], minlength=len(best)) > 1] = 1  # an equal row
        return np.asarray(best[self.numbers[self.numbers != NONE]])


def _numbered(same: _DistinctTexts, measure: Measure, leaders: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cluster, the representative and the similarity to it, for each row."""
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
    rows: TextFile, out: Path, *, model: SupportsEmbed | None = None, threshold: float | None = None
) -> Generator[TextRows | Progress, None, Duplicates]:
    """Write a copy of a file with near duplicates marked.

    Args:
        rows: The file of texts.
        out: The copy to write.
        model: Anything with `embed(texts)`, to compare by meaning.
        threshold: Similarity of duplicates, as in `dedupe`.

    Returns:
        A generator that yields the rows of the file, then progress; its return value is a `Duplicates`.
    """
    require_threshold(threshold)
    require_copy(out, rows, COLUMNS)
    given = rows.read()
    yield given
    found = yield from find_duplicates(given.texts, model=model, threshold=threshold)
    # cluster, name of the representative, and similarity, for each row
    heads = [head if head not in (NONE, row) else None for row, head in enumerate(found.representatives.tolist())]
    alike = zip(heads, found.similarities.tolist(), strict=True)
    columns = (
        AddedColumn(int, [number or None for number in found.clusters.tolist()]),
        AddedColumn(str, [None if head is None else given.names[head] for head in heads]),
        AddedColumn(float, [None if head is None else round(value, 4) for head, value in alike]),
    )
    write_copy(out, rows, given.state, dict(zip(COLUMNS, columns, strict=True)), np.ones(len(given.texts), bool))
    return found
