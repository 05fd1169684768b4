"""Streams: predict at each element of one endless sequence, with constant memory.

    lines ──▶ elements ──▶ blocks ──▶ step ──▶ scores ──▶ predictions of the task
                                       └─ state ─┘

The prediction at an element depends on all elements up to it. Except for rounding, it does not depend on how the
sequence is divided into lines and blocks. The code is the same for all models: `step` of the model computes the scores,
and the task turns scores into predictions.
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

BLOCK = 256  # most elements that are read together


class StreamAnswer(NamedTuple):
    """The prediction at one element of a stream, with its line number and, for text, its token or word."""

    line: int
    token: str | None
    prediction: Prediction

    def to_json(self) -> dict[str, Any]:
        """`line`, `token` and the fields of the prediction."""
        token = {} if self.token is None else {"token": self.token}
        return {"line": self.line} | token | self.prediction.to_json()

    def to_text(self) -> str:
        """The token, a tab and the prediction; only the prediction for rows of numbers."""
        shown = self.prediction.to_text()
        return shown if self.token is None else f"{escaped(self.token)}\t{shown}"


class Elements(NamedTuple):
    """The next elements of the sequence."""

    columns: Mapping[str, np.ndarray]  # "input" [n, ...], and other columns of the input kind with n rows
    answered: np.ndarray  # [m] the positions with a prediction, in order: all, or one subword of each word
    lines: np.ndarray  # [m] the line number of each prediction
    words: list[str] | None  # [m] if the elements are words

    def blocks(self, most: int) -> Iterator["Elements"]:
        """The elements in blocks of at most `most`."""
        start, count = 0, len(self.columns["input"])
        while start < count:
            stop = start + _block_size(count - start, most)
            first, last = np.searchsorted(self.answered, [start, stop]).tolist()
            columns = {name: values[start:stop] for name, values in self.columns.items()}
            words = None if self.words is None else self.words[first:last]
            yield Elements(columns, self.answered[first:last] - start, self.lines[first:last], words)
            start = stop


def _block_size(waiting: int, most: int) -> int:
    """The number of elements to read next: `most`, or the largest power of two up to the number of waiting elements.

    Kernels cache data for each length, so with arbitrary lengths memory would grow.

    >>> _block_size(600, 256), _block_size(37, 256), _block_size(5, 256)
    (256, 32, 4)
    """
    return most if waiting >= most else 1 << (waiting.bit_length() - 1)


def streamed_kind(spec: ModelSpec) -> InputKind:
    """The input kind of the elements; ConfigError if an input of the model is not a single sequence."""
    kind = spec.schema.input
    if kind.num_columns > 1 or kind.fixed_size:
        raise ConfigError(f"a stream is one sequence, but the model reads {kind.noun}", fix="use another model")
    return StreamVectors(spec.sizes[0]) if kind.of_numbers else kind


class ModelStream:
    """Reads one endless sequence with a model and keeps its state."""

    def __init__(self, task: Task, model: nn.Module, device: torch.device, *, flows: bool, most: int = BLOCK) -> None:
        self.task, self.model, self.device, self.most = Streamer.of(task), model, device, most
        self.kind, self.tokenizer = streamed_kind(task.spec), task.spec.tokenizer
        if self.tokenizer is not None and self.tokenizer.config.framed:
            raise ConfigError(
                "the tokenizer of the model adds a token at the end of every text, and a stream has no end",
                fix="use a model with another tokenizer",
            )
        self.flow = TextFlow(self.tokenizer) if flows and self.tokenizer is not None else None
        self.running = running(model)
        self.state = self.running.mixer.initial_state(1)
        self.memory: Any = None  # what the task needs for the next predictions
        if self.task.opening:
            self.memory = self._step(padded_tokens(Ragged.of([self.task.opening], np.int64)))[-1]

    def answers(self, windows: Iterable[list[Example]], ledger: Ledger) -> Iterator[list[StreamAnswer]]:
        """Yield the predictions for all elements, in one list for each block that was read.

        Raises RejectedError for a bad line, after the predictions for the lines before it.
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
        """The elements of the given lines."""
        values, lines = [one.input for one in examples], np.array([one.place.line or 0 for one in examples])
        if self.flow is not None:
            return self._tokens(Ragged.of([self.flow.tokens(str(value)) for value in values], np.int32), lines)
        columns = self.kind.encode(values, self.tokenizer)
        rows = columns["input"]
        if "firsts" not in columns:
            return self._tokens(_closed(rows, self.task.closing), lines)
        firsts = columns["firsts"]
        answered = firsts.values + np.repeat(rows.starts[:-1], firsts.lengths)
        if not isinstance(
            self.model, ElementModel
        ):  # it predicts at the first subword of a word, other models at the last
            answered = np.append(answered[1:], len(rows.values)) - 1
        inner = {name: column.values for name, column in columns.items() if name != "firsts"}
        words = [word for value in values for word in value.words()]  # type: ignore[union-attr]  # Words
        return Elements(inner, answered, np.repeat(lines, firsts.lengths), words)

    def _tokens(self, rows: Ragged, lines: np.ndarray) -> Elements:
        """The elements of rows in which every element has a prediction."""
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
        """[T,K] the scores at the next elements."""
        with torch.no_grad():
            scores, self.state = self.running.mixer.step(self.running.enter(on_device(raw, self.device)), self.state)
        found: Tensor = scores.values[0]
        return found


def _closed(rows: Ragged, closing: tuple[int, ...]) -> Ragged:
    """The rows, each with the tokens `closing` at its end."""
    if not closing:
        return rows
    return Ragged.of([np.append(rows.row(row), closing) for row in range(rows.rows)], rows.values.dtype)
