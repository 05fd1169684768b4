"""Predictions in the order of the inputs, for streams of any length.

inputs ──▶ windows of some thousand ── sorted by length ──▶ batches ──▶ model ──▶ original order ──▶ predictions

A bad row is an error before any prediction of its window; with a `BadRowLedger` it is yielded in its place and the rest
is predicted, and with a `LineLedger` blank lines are yielded too. Sorting keeps padding small, windows keep memory
small. Neither changes a prediction, up to rounding.
"""

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from seqloom.config.data import ANY_ROWS, BadRows, EncodingConfig
from seqloom.data.checks.check import BLOCK_CHARACTERS, BLOCK_ROWS, bounded, weight
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.nothing import NoTarget
from seqloom.data.prepared import ExampleEncoder
from seqloom.data.problems import Ledger, Place, Problem
from seqloom.data.schema import Example, Examples, Schema
from seqloom.errors import DataError
from seqloom.tasks.task import ModelSpec, Prediction
from seqloom.text.ragged import Ragged

Answer = Callable[[Any], Sequence[Prediction]]  # from a batch of inputs


Reply = tuple[Example, Prediction] | Problem  # an example with its prediction; a bad row; a blank line
NO_LIMIT = 2**62
NAMED_FLAG = re.compile(r",? or [^,]*--.*$")  # the part of a fix that names a flag


class Limits(NamedTuple):
    """The size of arrays and the longest input that a model can read."""

    sizes: tuple[int, ...] = ()
    max_length: int | None = None


class BadRowLedger(Ledger):
    """A ledger that keeps bad rows until they are yielded, so that each can have a line among the predictions."""

    def __init__(self, bad_rows: BadRows = ANY_ROWS) -> None:
        super().__init__(bad_rows)
        self.kept: list[tuple[int, Problem]] = []  # with the number of good rows before it

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        """Count a bad row, and keep its problem; where bad rows are errors, there are no predictions after it."""
        super().bad_row(code, text, place, fix)
        if self.bad_rows.skip_bad_rows:
            self.kept.append((self.rows, Problem("reject", code, text, place, fix)))


class LineLedger(BadRowLedger):
    """The same for an output whose line n belongs to line n of the input: blank lines are kept too."""

    def blank_line(self, place: Place) -> None:
        """Keep a blank line; it is no problem, because it has a line in the output."""
        self.kept.append((self.rows, Problem("note", "text.blank", "", place)))


class GivenInputs(Ledger):
    """A ledger for values from Python: its messages name no flags."""

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        super().bad_row(code, text, place, NAMED_FLAG.sub("", fix))


def replies(
    windows: Iterable[list[Example]], encoder: ExampleEncoder, answer: Answer, *, batch_tokens: int, limits: Limits
) -> Iterator[Reply]:
    """Each example with its prediction, in order; a bad row is yielded in its place, or is an error."""
    ledger, done = encoder.ledger, 0
    for window in windows:
        columns = encoder.columns(Examples.of(window)) if window else {}
        fit = fitting(window, columns, encoder, limits)
        ledger.close()
        kept = [window[row] for row in fit]
        chosen = columns
        if len(kept) < len(window):
            chosen = {name: column.select(fit) for name, column in columns.items()}
        predicted = _answered(chosen, encoder.schema.input, answer, batch_tokens) if kept else []
        answered = [(one, prediction.with_input(one.input)) for one, prediction in zip(kept, predicted, strict=True)]
        yield from _merged(answered, ledger, done)
        done += len(answered)
    ledger.close()
    yield from _merged([], ledger, done)


def fitting(
    window: list[Example], columns: Mapping[str, Ragged], encoder: ExampleEncoder, limits: Limits
) -> np.ndarray:
    """The rows of a window that the model can read; the others are bad rows."""
    if not window:
        return np.empty(0, np.int64)
    _require_sizes(columns["input"], encoder.schema.input, limits.sizes)
    lengths, most = columns["input"].lengths, NO_LIMIT if limits.max_length is None else limits.max_length
    for row in np.flatnonzero(lengths > most).tolist():
        encoder.ledger.rows -= 1
        report_too_long(int(lengths[row]), most, window[row].place, encoder.ledger)
    return np.flatnonzero(lengths <= most)


def report_too_long(length: int, most: int, place: Place, ledger: Ledger) -> None:
    """Report a row that is longer than the positions of the model."""
    text = f"the input has {length:,} tokens or steps, but the model has only {most:,} learned positions"
    ledger.bad_row("seq.too_long", text, place, "shorten it, or train a model without learned positions")


def _merged(answered: list[tuple[Example, Prediction]], ledger: Ledger, done: int) -> Iterator[Reply]:
    """Yield the predictions with each bad row and blank line at its position in the file."""
    kept = ledger.kept if isinstance(ledger, BadRowLedger) else []
    lines = defaultdict[str, list[int]](list)
    for example, _ in answered:
        lines[example.place.path].append(example.place.line or 0)
    placed = []
    for rows, problem in kept:  # placed by line, or by the number of rows before it
        own, line = lines[problem.place.path], problem.place.line or 0
        otherwise = min(max(0, rows - done), len(answered))
        placed.append((bisect_left(own, line) if len(own) == len(answered) else otherwise, line, problem))
    kept.clear()
    waiting = deque(sorted(placed, key=lambda one: one[:2]))
    for number, one in enumerate(answered):
        while waiting and waiting[0][0] <= number:
            yield waiting.popleft()[-1]
        yield one
    yield from (problem for *_, problem in waiting)


def _answered(columns: Mapping[str, Ragged], kind: InputKind, answer: Answer, batch_tokens: int) -> list[Prediction]:
    """The predictions for the rows of a window, in order."""
    predicted: dict[int, Prediction] = {}
    for rows in batches(columns["input"].lengths, batch_tokens):
        chosen = {name: column.select(rows) for name, column in columns.items()}
        predicted |= zip(rows.tolist(), answer(kind.collate(chosen)), strict=True)
    return [predicted[row] for row in range(len(predicted))]


def encoder_of(spec: ModelSpec, max_length: int, ledger: Ledger) -> ExampleEncoder:
    """An encoder of inputs; inputs that are longer than in training are truncated and counted."""
    schema = Schema(spec.schema.input, NoTarget())
    return ExampleEncoder(schema, _truncating(max_length), spec.tokenizer, None, ledger)


@cache
def _truncating(max_length: int) -> EncodingConfig:
    return EncodingConfig(max_length=max_length, overlong="truncate")


def windows_of(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """The examples in windows of some thousand."""
    return bounded(((example, weight(example)) for example in examples), BLOCK_ROWS, BLOCK_CHARACTERS)


def batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Return the rows of each batch of at most `batch_tokens` tokens, longest first: memory errors come early.

    >>> [rows.tolist() for rows in batches(np.array([1, 5, 2, 5]), batch_tokens=10)]
    [[1, 3], [2, 0]]
    """
    if batch_tokens < 1:
        raise DataError(f"--batch-tokens {batch_tokens}", fix="use at least 1")
    order, start, found = np.argsort(-lengths, kind="stable"), 0, []
    while start < len(order):
        rows = max(1, batch_tokens // max(1, int(lengths[order[start]])))
        found.append(order[start : start + rows])
        start += rows
    return found


def _require_sizes(column: Ragged, kind: InputKind, sizes: tuple[int, ...]) -> None:
    """Refuse vectors or pictures of another size than in training."""
    if not sizes:
        return
    inner = column.values.shape[1:]
    found = {(int(rows), *inner) for rows in np.unique(column.lengths)} if kind.fixed_size else {inner}
    for other in sorted(found - {tuple(sizes)}):
        asked, given = (" x ".join(map(str, one)) for one in (sizes, other))
        raise DataError(f"the model reads {kind} of size {asked}, found {given}", fix="convert them to this size")
