"""Answers in the order of the inputs, however many there are.

inputs ──▶ windows of some thousand ── sorted by length ──▶ batches ──▶ model ──▶ put back in order ──▶ answers

A bad row stops everything before the answers of its window; with a ledger of the kind `Told` it is told in its place,
and the rest is answered. Sorting keeps padding small, a window keeps memory small. Neither changes an answer: a row of
a batch is answered as if it were alone, up to the last bits of a sum.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.config.data import BadRows, EncodingConfig
from seqloom.data.checks.check import BLOCK_CHARACTERS, BLOCK_ROWS, weight
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.nothing import NoTarget
from seqloom.data.prepared import ExampleEncoder
from seqloom.data.problems import Ledger, Place, Problem
from seqloom.data.schema import Example, Schema
from seqloom.errors import DataError
from seqloom.tasks.task import Meaning, Prediction
from seqloom.text.ragged import Ragged

Answer = Callable[[Any], Sequence[Prediction]]  # from a batch of inputs


Reply = tuple[Example, Prediction] | Problem  # an example with its answer, or what is wrong with a row
NO_LIMIT = 2**62


class Limits(NamedTuple):
    """What a model can be asked: arrays of one size, and inputs up to a length."""

    sizes: tuple[int, ...] = ()
    longest: int | None = None


class PredictionNote(Ledger):
    """A ledger that keeps every bad row until it is taken, so that each can have a line among the answers."""

    def __init__(self) -> None:
        super().__init__(BadRows(skip=True, share=1.0))
        self.kept: list[tuple[int, Problem]] = []  # and how many good rows stood before

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        """Count a row that cannot be used, and keep what is wrong with it."""
        super().bad_row(code, text, place, fix)
        self.kept.append((self.rows, Problem("reject", code, text, place, fix)))


class GivenInputs(Ledger):
    """A ledger for values from Python, where nobody can type a flag."""

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        """Count a value that cannot be used."""
        super().bad_row(code, text, place, fix.partition(", or --")[0])


def replies(
    windows: Iterable[list[Example]], encoder: ExampleEncoder, answer: Answer, *, budget: int, limits: Limits
) -> Iterator[Reply]:
    """Each example with its answer, in order; a bad row is told in its place, or stops the work before any answer."""
    ledger, done = encoder.ledger, 0
    for window in windows:
        columns = encoder.columns(window) if window else {}
        fit = _fitting(window, columns, encoder, limits)
        ledger.close()
        asked = [window[row] for row in fit]
        chosen = {name: column.select(fit) for name, column in columns.items()}
        said = _answered(chosen, encoder.schema.input, answer, budget) if asked else []
        answered = [(one, prediction.located(one.input)) for one, prediction in zip(asked, said, strict=True)]
        yield from _merged(answered, ledger, done)
        done += len(answered)
    ledger.close()
    yield from _merged([], ledger, done)


def _fitting(
    window: list[Example], columns: Mapping[str, Ragged], encoder: ExampleEncoder, limits: Limits
) -> np.ndarray:
    """The rows of a window that the model can be asked about; the others are bad rows."""
    if not window:
        return np.empty(0, np.int64)
    _require_sizes(columns["input"], encoder.schema.input, limits.sizes)
    lengths, most = columns["input"].lengths, NO_LIMIT if limits.longest is None else limits.longest
    for row in np.flatnonzero(lengths > most).tolist():
        encoder.ledger.rows -= 1
        tell_too_long(int(lengths[row]), most, window[row].place, encoder.ledger)
    return np.flatnonzero(lengths <= most)


def tell_too_long(length: int, most: int, place: Place, ledger: Ledger) -> None:
    """Tell the ledger of a row that is longer than the positions of the model."""
    text = f"{length:,} long, and the learned positions of the model end at {most:,}"
    ledger.bad_row("seq.too_long", text, place, "shorten it, or train a model with other positions")


def _merged(answered: list[tuple[Example, Prediction]], ledger: Ledger, done: int) -> Iterator[Reply]:
    """The answers, and each bad row before the first answer that stands behind it in the same file."""
    kept = ledger.kept if isinstance(ledger, PredictionNote) else []
    told = []
    for rows, problem in kept:  # by lines, or by what was read before it
        path, line, _ = problem.place
        lines = [example.place.line or 0 for example, _ in answered if example.place.path == path]
        otherwise = min(max(0, rows - done), len(answered))
        told.append((bisect_left(lines, line or 0) if len(lines) == len(answered) else otherwise, problem))
    kept.clear()
    told.sort(key=lambda one: one[0])
    for number, one in enumerate(answered):
        while told and told[0][0] <= number:
            yield told.pop(0)[1]
        yield one
    yield from (problem for _, problem in told)


def _answered(columns: Mapping[str, Ragged], kind: InputKind, answer: Answer, budget: int) -> list[Prediction]:
    """The answers to the rows of a window, in their order."""
    said: dict[int, Prediction] = {}
    for rows in batches(columns["input"].lengths, budget):
        chosen = {name: column.select(rows) for name, column in columns.items()}
        said |= zip(rows.tolist(), answer(kind.collate(chosen)), strict=True)
    return [said[row] for row in range(len(said))]


def encoder_of(meaning: Meaning, longest: int, ledger: Ledger) -> ExampleEncoder:
    """An encoder of inputs alone; what is longer than the model was trained for is cut and counted."""
    schema = Schema(meaning.schema.input, NoTarget())
    return ExampleEncoder(schema, EncodingConfig(longest=longest, too_long="cut"), meaning.tokenizer, None, ledger)


def windows_of(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """The examples, some thousand at a time."""
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
    found = {(int(rows), *inner) for rows in np.unique(column.lengths)} if kind.fixed_size else {inner}
    for other in sorted(found - {tuple(sizes)}):
        asked, given = (" x ".join(map(str, one)) for one in (sizes, other))
        raise DataError(f"the model reads {kind} of size {asked}, found {given}", fix="bring them to this size")
