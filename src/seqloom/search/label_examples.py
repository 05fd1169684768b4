"""Rows that have a label already, from a file: what suggestions are learnt from before anybody was asked."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.data.problems import Ledger
from seqloom.data.roles import LABELS
from seqloom.data.values import Unfit, label_of
from seqloom.errors import ConfigError, did_you_mean
from seqloom.search.rows import Rows


class Examples(NamedTuple):
    """Texts with their labels, and their vectors when they are made."""

    texts: list[str]
    of: list[str]
    vectors: np.ndarray  # [n,W] float32

    @property
    def labels(self) -> list[str]:
        """The different labels in their order."""
        return sorted(set(self.of))


NONE = Examples([], [], np.empty((0, 1), np.float32))


def read_examples(rows: Rows, target: str | None = None) -> Examples:
    """The rows of a file that have a text and a label; those without either are passed over."""
    given = rows.read()
    table = rows.table()
    column = _target(table.columns, target, rows.path)
    ledger, texts, labels = Ledger(), list[str](), list[str]()
    for record, text in zip(table.records, given.texts, strict=True):
        try:
            label = label_of(record.values[column], column)
        except Unfit as unfit:
            if unfit.code != "row.empty_label":
                ledger.bad_row(unfit.code, unfit.text, table.locate(record, column), unfit.fix)
            continue
        if text:
            texts.append(text)
            labels.append(label)
    ledger.close()
    if not texts:
        raise ConfigError(f"{rows.path} has no row with a text and a label", fix="give a file of labelled rows")
    return Examples(texts, labels, np.empty((0, 1), np.float32))


def _target(names: tuple[str, ...], target: str | None, path: Path) -> int:
    if target is not None:
        if target not in names:
            raise ConfigError(f"{path}: --target {target}: there is no such column", fix=did_you_mean(target, names))
        return names.index(target)
    lower = [name.lower() for name in names]
    found = next((lower.index(name) for name in LABELS if name in lower), None)
    if found is None:
        raise ConfigError(f"{path}: none of {', '.join(names)} is named as labels usually are", fix="--target NAME")
    return found
