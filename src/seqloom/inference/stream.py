"""A stream: one sequence without an end, answered at each element, in memory that does not grow.

    lines ──▶ elements ──▶ blocks ──▶ step ──▶ scores ──▶ answers of the task
                                       └─ state ─┘

The answer at an element is what the model says of everything up to it. It does not depend on how the sequence is cut
into lines and blocks, up to rounding. One path for every family: what differs is in `step`, and what an answer is, in
the task.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.endless import StreamVectors
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.kind import tokens as padded_tokens
from seqloom.data.problems import Ledger, escaped
from seqloom.data.schema import Example
from seqloom.errors import ConfigError
from seqloom.nn.models import ElementModel
from seqloom.nn.running import running
from seqloom.nn.types import on_device
from seqloom.tasks.encoders import sequences
from seqloom.tasks.task import ModelSpec, Prediction, Streamer, Task
from seqloom.text.flow import TextFlow
from seqloom.text.ragged import Ragged

BLOCK = 256  # elements that are read at once, if so many have arrived


class StreamAnswer(NamedTuple):
    """The answer at one element of a stream: its line, its token or word if it has one, and the prediction."""

    line: int
    token: str | None
    prediction: Prediction

    def to_json(self) -> dict[str, Any]:
        """`line`, `token` and the fields of the prediction."""
        token = {} if self.token is None else {"token": self.token}
        return {"line": self.line} | token | self.prediction.to_json()

    def to_text(self) -> str:
        """The token and the prediction with a tab between; the prediction alone for rows of numbers."""
        shown = self.prediction.to_text()
        return shown if self.token is None else f"{escaped(self.token)}\t{shown}"


class Elements(NamedTuple):
    """Further elements of the sequence."""

    columns: Mapping[str, np.ndarray]  # "input" [n, ...], and other columns of the kind that are as long
    answered: np.ndarray  # [m] the places that have an answer, in order: all, or the first subword of each word
    lines: np.ndarray  # [m] the line of each answer
    words: list[str] | None  # [m] if the elements are words

    def blocks(self, most: int) -> Iterator["Elements"]:
        """The same in parts of at most `most` elements."""
        start, whole = 0, len(self.columns["input"])
        while start < whole:
            stop = start + _part(whole - start, most)
            first, last = np.searchsorted(self.answered, [start, stop]).tolist()
            columns = {name: values[start:stop] for name, values in self.columns.items()}
            words = None if self.words is None else self.words[first:last]
            yield Elements(columns, self.answered[first:last] - start, self.lines[first:last], words)
            start = stop


def _part(waiting: int, most: int) -> int:
    """How many of the waiting elements are read next: `most`, or the largest power of two that is there.

    Kernels keep what they prepare for each length that they see, so that memory would grow with the number of lengths.

    >>> _part(600, 256), _part(37, 256), _part(5, 256)
    (256, 32, 4)
    """
    return most if waiting >= most else 1 << (waiting.bit_length() - 1)


def streamed_kind(spec: ModelSpec) -> InputKind:
    """The kind of the elements of a stream; ConfigError for inputs that are no one sequence."""
    kind = spec.schema.input
    if kind.num_columns > 1 or kind.fixed_size:
        raise ConfigError(f"a stream is one sequence, and the model reads {kind.noun}", fix="use another model")
    return StreamVectors(spec.sizes[0]) if kind.of_numbers else kind


class ModelStream:
    """Reads one sequence with a model, on and on."""

    def __init__(self, task: Task, model: nn.Module, device: torch.device, *, flows: bool, most: int = BLOCK) -> None:
        self.task, self.model, self.device, self.most = Streamer.of(task), model, device, most
        self.kind, self.tokenizer = streamed_kind(task.spec), task.spec.tokenizer
        if self.tokenizer is not None and self.tokenizer.config.framed:
            raise ConfigError(
                "the model reads every text between a first and a last token, and a stream has no end",
                fix="use a model with another tokenizer",
            )
        self.flow = TextFlow(self.tokenizer) if flows and self.tokenizer is not None else None
        self.running = running(model)
        self.state = self.running.mixer.initial_state(1)
        self.memory: Any = None  # of the answers
        if self.task.opening:
            self.memory = self._step(padded_tokens(Ragged.of([self.task.opening], np.int64)))[-1]

    def answers(self, windows: Iterable[list[Example]], ledger: Ledger) -> Iterator[list[StreamAnswer]]:
        """The answers to the elements of windows, in lists: one for each block that was read.

        RejectedError for a bad line, after the answers to the lines before it.
        """
        last = 0
        for window in windows:
            good = self._good(window, ledger)
            if good:
                last = good[-1].place.line or 0
                yield from self._answers(self._elements(good))
            ledger.close()
        if self.flow is not None:
            yield from self._answers(self._tokens(Ragged.of([self.flow.rest()], np.int32), np.array([last])))
        ledger.close()

    def _good(self, window: list[Example], ledger: Ledger) -> list[Example]:
        """The examples before the first bad line."""
        if not ledger.skipped:
            return window
        first = min(problem.place.line or 0 for problem in ledger.refused)
        return [one for one in window if (one.place.line or 0) < first]

    def _elements(self, examples: list[Example]) -> Elements:
        """The elements of some lines."""
        values, lines = [one.input for one in examples], np.array([one.place.line or 0 for one in examples])
        if self.flow is not None:
            return self._tokens(Ragged.of([self.flow.tokens(str(value)) for value in values], np.int32), lines)
        columns = self.kind.encode(values, self.tokenizer)
        rows = columns["input"]
        if "firsts" not in columns:
            return self._tokens(_closed(rows, self.task.closing), lines)
        firsts = columns["firsts"]
        answered = firsts.values + np.repeat(rows.starts[:-1], firsts.lengths)
        if not isinstance(self.model, ElementModel):  # which answers at the first subword, others when a word is read
            answered = np.append(answered[1:], len(rows.values)) - 1
        inner = {name: column.values for name, column in columns.items() if name != "firsts"}
        words = [word for value in values for word in value.words()]  # type: ignore[union-attr]  # Words
        return Elements(inner, answered, np.repeat(lines, firsts.lengths), words)

    def _tokens(self, rows: Ragged, lines: np.ndarray) -> Elements:
        """The elements of rows that all have an answer."""
        return Elements({"input": rows.values}, np.arange(len(rows.values)), np.repeat(lines, rows.lengths), None)

    def _answers(self, elements: Elements) -> Iterator[list[StreamAnswer]]:
        for block in elements.blocks(self.most):
            answers = self._block(block)
            if answers:
                yield answers

    def _block(self, block: Elements) -> list[StreamAnswer]:
        columns = {name: Ragged(values, np.array([0, len(values)])) for name, values in block.columns.items()}
        if block.words is not None:
            columns["firsts"] = Ragged(block.answered, np.array([0, len(block.answered)]))
        scores = self._step(sequences(self.kind.collate(columns)))
        if not len(block.answered):
            return []
        tokens = block.columns["input"][block.answered]
        with torch.no_grad():
            picked = scores[torch.from_numpy(block.answered).to(scores.device)]
            found, self.memory = self.task.answers_so_far(self.model, tokens, picked, self.memory)
        return [StreamAnswer(*one) for one in zip(block.lines.tolist(), self._names(block), found, strict=True)]

    def _names(self, block: Elements) -> Sequence[str | None]:
        """The tokens or words of a block as text."""
        if block.words is not None:
            return block.words
        if self.tokenizer is None:
            return [None] * len(block.answered)
        return [self.tokenizer.piece(token) for token in block.columns["input"].tolist()]

    def _step(self, raw: Any) -> Tensor:
        """[T,K] the scores at further elements."""
        with torch.no_grad():
            scores, self.state = self.running.mixer.step(self.running.enter(on_device(raw, self.device)), self.state)
        found: Tensor = scores.values[0]
        return found


def _closed(rows: Ragged, closing: tuple[int, ...]) -> Ragged:
    """The rows with tokens after each."""
    if not closing:
        return rows
    return Ragged.of([np.append(rows.row(row), closing) for row in range(rows.rows)], rows.values.dtype)
