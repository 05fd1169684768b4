"""The tokens of rows on a CPU: state in buffers, and the calls of torch for a token recorded once and replayed.

    ┌──▶ read the token: scores, and the state in its buffer ──▶ choose a token ──┐
    └── drop finished rows ◀── the host looks at it ◀─────────────────────────────┘

It generates what the plain way (`steps.py`) does, for every model with buffers, without the Python of its modules for
each token (`nn/replay.py`). Buffers grow in parts: attention reads at most a quarter more columns than there are
elements, and at most `PART` if there are few. A record takes as long as three steps. So rows are read as in the plain
way until none has ended for a while, and a short text is not recorded. Whenever a row ends after that, the others wait
twice as long before the next record.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from seqloom.decoding.answers import SteppedRows
from seqloom.decoding.pauses import pause
from seqloom.decoding.steps import Column, TokenRule
from seqloom.nn.capture import fill
from seqloom.nn.mixers.contract import StateStanding
from seqloom.nn.ops.kernels import recorded_for_replay
from seqloom.nn.replay import ReplayedCalls
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded, once_each, select_rows

WAIT = 4  # steps of one row before one is recorded, which takes as long as three; twice as many of several rows
LONGEST_WAIT = 32  # steps; the wait is doubled whenever a row ends after a step was recorded
WORTHWHILE = 8  # further tokens from which a record may pay off
PART = 64  # columns


def can_replay(model: SteppedRows, device: torch.device, most: int) -> bool:
    """Whether a model can generate up to `most` tokens of each row in this way, and it may be faster."""
    if device.type != "cpu" or torch.is_autocast_enabled("cpu") or most < WAIT + WORTHWHILE:
        return False
    if not isinstance(model, nn.Module) or not hasattr(model, "buffer"):
        return False
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    return not any(_is_observed(module) for module in model.modules())


def _is_observed(module: nn.Module) -> bool:
    """Whether Python runs at a module beside its own, or instead of it."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._compiled_call_impl is not None
    return bool(hooks) or (isinstance(module, Tap) and module.is_heard)


def columns_for(count: int) -> int:
    """How many columns a buffer of this many elements has.

    >>> [columns_for(count) for count in (1, 64, 65, 513, 1025)]
    [64, 64, 128, 640, 1280]
    """
    part = max(PART, (1 << (count - 1).bit_length()) // 8)
    return -(-count // part) * part


class ReplayedSteps:
    """Rows that are read one token at a time: plainly, and on buffers when they have gone on together for a while."""

    def __init__(
        self, model: Any, state: Any, scores: Tensor, rule: TokenRule, rows: Sequence[int], *, longest: int
    ) -> None:
        """`longest` counts the elements that the longest row has read."""
        self.model, self.rule, self.rows, self.longest = model, rule, list(rows), longest
        self.inner = state.inner if isinstance(state, StateStanding) else state
        self.room: int | None = None  # further elements that find room in a buffer; None: the state is a value
        self.generated = rule.generated(scores)
        self.numbers = torch.zeros(len(rows), dtype=torch.float64, device=scores.device)
        self._draw()
        self.tokens, self.logs = rule.chosen(scores, self.generated, self.numbers)
        self.begun = False  # the first tokens are chosen, and nobody has seen them
        self.steps, self.wait = 0, WAIT if len(rows) == 1 else 2 * WAIT  # of these rows; until one is recorded
        self.replay: ReplayedCalls | None = None

    def further(self, most: int) -> Iterable[Column]:
        if self.begun:
            pause()
            self._draw()
            self._step(most)
        self.begun = True
        return [(self.tokens.tolist(), self.logs.tolist())]

    def keep(self, going: Sequence[int]) -> None:
        kept = torch.tensor(going, device=self.tokens.device)
        self.rows = [self.rows[place] for place in going]
        self.inner = select_rows(self.inner, kept)
        self.tokens, self.logs, self.numbers = self.tokens[kept], self.logs[kept], self.numbers[kept]
        self.generated = None if self.generated is None else self.generated[kept]
        if self.replay is not None:
            self.wait = min(2 * self.wait, LONGEST_WAIT)
        self.steps, self.replay = 0, None

    def _draw(self) -> None:
        """Draw the random numbers of the next token."""
        if numbers := self.rule.chooser.draw(self.rows):
            self.numbers.copy_(torch.tensor(numbers, dtype=self.numbers.dtype))

    def _step(self, most: int) -> None:
        if self.room == 0 or (self.replay is None and self.steps >= self.wait and most >= WORTHWHILE):
            self.room = columns_for(self.longest + 1) - self.longest
            self.inner = self.model.buffer(self.inner, self.room, once_each())
            recorded = self.steps >= self.wait and most >= WORTHWHILE
            self.replay = ReplayedCalls([self.numbers]) if recorded else None
        self.room, self.longest = None if self.room is None else self.room - 1, self.longest + 1
        self.steps += 1
        if self.replay is None:
            (self.tokens, self.logs), self.inner = self._read()
        else:
            self.replay(self._read_in_place)

    @torch.no_grad()
    def _read(self) -> tuple[tuple[Tensor, Tensor], Any]:
        """Read the token of every row: the next one with its log-probability, and the state after it."""
        x = Padded(self.tokens[:, None], torch.ones_like(self.tokens), full=True)
        scores, after = self.model.extend(x, self.inner)
        return self.rule.chosen(scores.values[:, 0], self.generated, self.numbers), after

    @torch.no_grad()
    def _read_in_place(self) -> None:
        """The same, in the tensors that are there."""
        with recorded_for_replay():
            chosen, after = self._read()
        fill(self.inner, after)
        fill((self.tokens, self.logs), chosen)
