"""Tokens of rows that are generated together, on buffers: one CUDA graph for each token, and few looks of the host.

    ┌──▶ choose a token ──▶ write it down ──▶ read it: scores, and the state in its buffer ──┐
    └────────────────────────────── replayed 1, 2, 4, 8, 16 times ◀─────────────────────────┘
                                     then the host reads the tokens, and drops finished rows

The plain way (`steps.py`) launches every kernel of every layer for every token, and waits for each token. Here the
launches are recorded once. Rows that have ended go on until the next look, and what they write means nothing; when
half of the rows have ended, the others move to a smaller buffer.

Attention reads the first columns of its buffer: 1,024, 2,048, and so on, as far as the longest row needs; each number
of columns is a graph of its own. Only `cuda_graphs` asks for this.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.decoding.answers import SteppedRows
from seqloom.decoding.pauses import pause
from seqloom.decoding.steps import Column, TokenRule
from seqloom.errors import ConfigError
from seqloom.nn.capture import Record, Run, fill
from seqloom.nn.mixers.contract import StateStanding
from seqloom.nn.ops.kernels import recorded_for_replay
from seqloom.nn.taps import taps
from seqloom.nn.types import Padded, first_columns, once_each, select_rows

MOST_UNSEEN = 16  # tokens between two looks of the host
FEWEST_COLUMNS = 1024  # that attention reads: most kernels skip empty ones, and each number of columns is a graph


def require_buffers(model: SteppedRows, device: torch.device) -> None:
    """Raise ConfigError if a model cannot generate on buffers."""
    if device.type != "cuda":
        raise ConfigError(f"cuda_graphs needs a CUDA GPU, found {device.type}", fix="leave cuda_graphs out")
    if not isinstance(model, nn.Module) or not hasattr(model, "buffer"):
        raise ConfigError("cuda_graphs needs a model with buffers, and this one has none", fix="leave cuda_graphs out")
    if any(tap.is_heard for tap in taps(model).values()):
        raise ConfigError("with cuda_graphs, values inside the model cannot be recorded", fix="leave cuda_graphs out")


class Board(NamedTuple):
    """The tensors of rows beside their state, at fixed addresses; K is `MOST_UNSEEN`."""

    scores: Tensor  # [B,V] of the next token
    generated: Tensor | None  # [B,V]
    numbers: Tensor  # [K,B] random numbers for the next tokens
    tokens: Tensor  # [K,B] since the last look
    logs: Tensor  # [K,B] their log-probabilities
    ones: Tensor  # [B]
    at: Tensor  # [1] how many

    @classmethod
    def of(cls, scores: Tensor, generated: Tensor | None) -> "Board":
        rows, device = len(scores), scores.device
        wide = torch.promote_types(scores.dtype, torch.float32)
        return cls(
            scores.clone(),
            None if generated is None else generated.clone(),
            torch.zeros(MOST_UNSEEN, rows, dtype=torch.float64, device=device),
            torch.zeros(MOST_UNSEEN, rows, dtype=torch.int64, device=device),
            torch.zeros(MOST_UNSEEN, rows, dtype=wide, device=device),
            torch.ones(rows, dtype=torch.int64, device=device),
            torch.zeros(1, dtype=torch.int64, device=device),
        )


class BufferedSteps:
    """Rows on buffers."""

    def __init__(
        self,
        model: Any,
        state: Any,
        scores: Tensor,
        rule: TokenRule,
        rows: Sequence[int],
        *,
        longest: int,
        room: int,
        record: Record | None,
    ) -> None:
        """`record` makes CUDA graphs; None: kernels are launched one by one."""
        inner = state.inner if isinstance(state, StateStanding) else state
        self.model, self.rule, self.rows, self.record = model, rule, list(rows), record
        self.inner = model.buffer(inner, room, once_each())
        self.board = Board.of(scores, rule.generated(scores))
        self.places = list(range(len(self.rows)))  # of the rows in the buffer
        self.graphs: dict[int, Run | None] = {}  # by columns; None: run once, not recorded yet
        self.unseen, self.longest = 1, longest

    def further(self, most: int) -> Iterable[Column]:
        count = min(most, self.unseen)
        self.unseen = min(2 * self.unseen, MOST_UNSEEN)
        pause()
        self._draw(count)
        self.board.at.zero_()
        for _ in range(count):
            self._step()
        found = zip(self.board.tokens[:count].tolist(), self.board.logs[:count].tolist(), strict=True)
        return [
            ([tokens[place] for place in self.places], [logs[place] for place in self.places]) for tokens, logs in found
        ]

    def keep(self, going: Sequence[int]) -> None:
        self.rows, self.places = [self.rows[place] for place in going], [self.places[place] for place in going]
        if 2 * len(self.places) > len(self.board.ones):
            return
        kept, generated = torch.tensor(self.places, device=self.board.ones.device), self.board.generated
        self.inner = select_rows(self.inner, kept)
        self.board = Board.of(self.board.scores[kept], None if generated is None else generated[kept])
        self.places, self.graphs = list(range(len(self.rows))), {}

    def _draw(self, count: int) -> None:
        """Put the random numbers of the next tokens on the board."""
        drawn = [self.rule.chooser.draw(self.rows) for _ in range(count)]
        if drawn[0]:
            places = torch.tensor(self.places, device=self.board.ones.device)
            numbers = torch.tensor(drawn, dtype=self.board.numbers.dtype, device=self.board.ones.device)
            self.board.numbers[:count, places] = numbers

    def _step(self) -> None:
        self.longest += 1
        columns = max(FEWEST_COLUMNS, 1 << (self.longest - 1).bit_length())  # as many as the longest row needs
        if columns not in self.graphs or self.record is None:
            self._run(columns)  # the first time, kernels are loaded
            self.graphs[columns] = None
            return
        replay = self.graphs[columns]
        if replay is None:
            try:
                replay = self.graphs[columns] = self.record(lambda: self._run(columns))
            except RuntimeError as error:
                reason, self.record = str(error).partition("\n")[0], None
                warnings.warn(f"tokens are generated without a CUDA graph: {reason}", RuntimeWarning, stacklevel=2)
                self._run(columns)
                return
        replay()

    @torch.no_grad()
    def _run(self, columns: int) -> None:
        """Choose a token for every row, and read it."""
        board = self.board
        numbers = board.numbers.index_select(0, board.at)[0]
        tokens, logs = self.rule.chosen(board.scores, board.generated, numbers)
        board.tokens.index_copy_(0, board.at, tokens[None])
        board.logs.index_copy_(0, board.at, logs[None])
        before = first_columns(self.inner, columns)
        with recorded_for_replay(self.record is not None):
            scores, after = self.model.extend(Padded(tokens[:, None], board.ones, full=True), before)
        board.scores.copy_(scores.values[:, 0])
        fill(before, after)
        board.at.add_(1)
