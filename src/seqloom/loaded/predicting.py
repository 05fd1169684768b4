"""Answers in the order of the inputs, however many there are.

inputs ──▶ windows of some thousand ── sorted by length ──▶ batches ──▶ model ──▶ put back in order ──▶ answers

Sorting keeps padding small, a window keeps memory small. Neither changes an answer: a row of a batch is answered as if
it were alone, up to the last bits of a sum.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from seqloom.config.data import EncodingConfig
from seqloom.data.batches import INPUTS
from seqloom.data.checks.blocks import BLOCK_CHARACTERS, BLOCK_ROWS, weight
from seqloom.data.encoding import Encoder
from seqloom.data.examples import Example, Words
from seqloom.data.problems import Ledger
from seqloom.data.schema import InputKind, Schema
from seqloom.errors import DataError
from seqloom.ragged import Ragged
from seqloom.tasks.contract import Meaning, Prediction


@runtime_checkable
class Marks(Protocol):
    """An answer about places in a text."""

    def located(self, words: Words, /) -> Prediction:
        """The same answer, counted in the characters of the text."""


Answer = Callable[[Any], Sequence[Prediction]]  # from a batch of inputs


def answers(
    examples: Iterable[Example], encoder: Encoder, answer: Answer, *, budget: int, sizes: tuple[int, ...]
) -> Iterator[tuple[Example, Prediction]]:
    """Each example with its answer, in order; a bad row stops the work at the end of its window, before any answer."""
    for window in _windows(examples):
        encoder.ledger.close()
        columns = encoder.columns(window)
        _require_sizes(columns["input"], encoder.schema.input, sizes)
        said = _answered(columns, encoder.schema.input, answer, budget)
        yield from ((example, _located(one, example)) for example, one in zip(window, said, strict=True))
    encoder.ledger.close()


def _answered(columns: Mapping[str, Ragged], kind: InputKind, answer: Answer, budget: int) -> list[Prediction]:
    """The answers to the rows of a window, in their order."""
    said: dict[int, Prediction] = {}
    for rows in batches(columns["input"].lengths, budget):
        chosen = {name: column.select(rows) for name, column in columns.items()}
        said |= zip(rows.tolist(), answer(INPUTS[kind](chosen)), strict=True)
    return [said[row] for row in range(len(said))]


def _located(said: Prediction, example: Example) -> Prediction:
    """The answer, quoting the text it is about if it marks places in one."""
    return said.located(example.input) if isinstance(said, Marks) and isinstance(example.input, Words) else said


def encoder_of(meaning: Meaning, longest: int, ledger: Ledger) -> Encoder:
    """An encoder of inputs alone; what is longer than the model was trained for is cut and counted."""
    schema = Schema(meaning.schema.input, "nothing")
    return Encoder(schema, EncodingConfig(longest=longest, too_long="cut"), meaning.tokenizer, None, ledger)


def _windows(examples: Iterable[Example]) -> Iterator[list[Example]]:
    window: list[Example] = []
    size = 0
    for example in examples:
        window.append(example)
        size += weight(example)
        if len(window) == BLOCK_ROWS or size >= BLOCK_CHARACTERS:
            yield window
            window, size = [], 0
    if window:
        yield window


def batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """The rows of each batch: the longest first, so that memory runs out at once or never; at most `budget` elements.

    >>> [rows.tolist() for rows in batches(np.array([1, 5, 2, 5]), budget=10)]
    [[1, 3], [2, 0]]
    """
    if budget < 1:
        raise DataError(f"a budget of {budget} symbols holds nothing", fix="take at least 1")
    order, start, found = np.argsort(-lengths, kind="stable"), 0, []
    while start < len(order):
        rows = max(1, budget // max(1, int(lengths[order[start]])))
        found.append(order[start : start + rows])
        start += rows
    return found


def _require_sizes(column: Ragged, kind: InputKind, sizes: tuple[int, ...]) -> None:
    """Refuse vectors or pictures of another size than the model was trained for."""
    if not sizes:
        return
    inner = column.values.shape[1:]
    found = {(int(rows), *inner) for rows in np.unique(column.lengths)} if kind == "picture" else {inner}
    for other in sorted(found - {tuple(sizes)}):
        asked, given = (" x ".join(map(str, one)) for one in (sizes, other))
        raise DataError(f"the model reads {kind} of size {asked}, found {given}", fix="bring them to this size")


def on_device(value: Any, device: torch.device) -> Any:
    """The same batch, inputs or targets on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # Padded, Pair, Subwords, Batch
        kind: Any = type(value)
        return kind(*(on_device(one, device) for one in value))
    return value
