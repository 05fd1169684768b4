"""A file whose near duplicates are marked: a copy with three more columns, in which nothing is missing.

text                  cluster   duplicate_of   similarity
The cat sat.          1                                      stands for its cluster
the cat sat           1         1              1.0           repeats row 1
Something else.                                              is alone
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from seqloom.search.copies import Column, require_copy, write_copy
from seqloom.search.duplicates import Duplicates, finding, require_threshold
from seqloom.search.rows import Given, Rows
from seqloom.search.similar_vectors import MakesVectors
from seqloom.search.similarity import Compared

CLUSTER, DUPLICATE_OF, SIMILARITY = COLUMNS = ("cluster", "duplicate_of", "similarity")


def mark_duplicates(
    rows: Rows, out: Path, *, model: MakesVectors | None = None, threshold: float | None = None
) -> Iterator[Given | Compared | Duplicates]:
    """What the file holds, how far it is, and in the end what was found, when the marked copy stands at `out`."""
    require_threshold(threshold)
    require_copy(out, rows, COLUMNS)
    given = rows.read()
    yield given
    for step in finding(given.texts, model=model, threshold=threshold):
        if isinstance(step, Duplicates):
            write_copy(out, rows, given.state, marks(step, given.names), np.ones(len(given.texts), bool))
        yield step


def marks(found: Duplicates, names: list[str]) -> dict[str, Column]:
    """The new columns: for each row its cluster, the name of the row it repeats, and how similar the two are."""
    cluster = [int(number) or None for number in found.clusters]
    heads = found.representatives.tolist()
    repeats = [head >= 0 and head != row for row, head in enumerate(heads)]
    of = [names[head] if is_repeat else None for head, is_repeat in zip(heads, repeats, strict=True)]
    similarity = [
        round(float(value), 4) if is_repeat else None
        for value, is_repeat in zip(found.similarities, repeats, strict=True)
    ]
    return {CLUSTER: Column(int, cluster), DUPLICATE_OF: Column(str, of), SIMILARITY: Column(float, similarity)}
