"""The inputs of a few rows as they stand in the data, for samples with words that the vocabulary lacks.

Prepared data keeps numbers only, so the files are read once more. A sample is not worth a long wait: where they are
large, gone or changed, it is shown as the model reads it, with <unknown> in the places of such words.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from seqloom.config.data import DataConfig
from seqloom.data.dataset import open_data
from seqloom.data.examples import Input, Words
from seqloom.data.problems import BadRows, Ledger, Place
from seqloom.data.sealing import OPEN
from seqloom.errors import SeqloomError
from seqloom.tasks.showing import cut_short, input_shown
from seqloom.text.symbols import NAMES, SEPARATOR, UNKNOWN
from seqloom.training.session import Session

MOST = 2**24  # bytes of all files that are read for it


def inputs_shown(session: Session, rows: Sequence[int]) -> list[str]:
    """The inputs of rows in one line each: what the vocabulary lacks is shown as it was written, if it can be."""
    prepared, meaning = session.prepared, session.task.meaning
    lacking = [row for row in rows if meaning.tokenizer is not None and UNKNOWN in prepared.columns["input"].row(row)]
    places = {row: prepared.place_of(row) for row in lacking if session.ranks.rank == 0}  # the others show nothing
    found = _texts(session.config.data, tuple(places.values())) if places else {}
    written = {row: found[place] for row, place in places.items() if place in found}
    return [written.get(row) or input_shown(meaning, prepared, row) for row in rows]


@lru_cache(maxsize=4)  # every look at the dev part shows the same rows
def _texts(config: DataConfig, places: tuple[Place, ...]) -> dict[Place, str]:
    """The texts at some places of the dev part; none where it cannot be read, or not at once."""
    ledger = Ledger(BadRows(skip=True, share=1.0))  # what is bad was told by the first reading
    try:
        dataset = open_data(config, ledger, ("dev",) if config.dev else OPEN)  # drawn, dev stands among train
        inputs = ((Place(*row.place[:2]), row.input) for _, row in dataset.rows(ledger))
        return dict(_first(inputs, set(places))) if 0 < dataset.size() <= MOST else {}
    except (SeqloomError, OSError):
        return {}


def _first(inputs: Iterator[tuple[Place, Input]], wanted: set[Place]) -> Iterator[tuple[Place, str]]:
    """Each wanted place with its text; nothing is read behind the last of them."""
    for place, given in inputs:
        if place in wanted:
            wanted.discard(place)
            yield place, _text(given)
        if not wanted:
            return


def _text(given: Input) -> str:
    """An input in one line; "" for one that is no text."""
    if isinstance(given, np.ndarray):
        return ""
    if isinstance(given, Words):
        return cut_short(" ".join(given.words()))
    return cut_short(given if isinstance(given, str) else f" {NAMES[SEPARATOR]} ".join(given))
