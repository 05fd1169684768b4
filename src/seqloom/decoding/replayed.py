"""The tokens of rows on a CPU: state in buffers, and the calls of torch for a token recorded once and replayed.

    ┌──▶ read the token: scores, and the state in its buffer ──▶ choose a token ──┐
    └── drop finished rows ◀── the host looks at it ◀─────────────────────────────┘

It generates what the plain way (`steps.py`) does, for every model with buffers, without the Python of its modules for
each token (`nn/replay.py`). Buffers grow in parts: attention reads at most a quarter more columns than there are
elements, and at most `PART` if there are few. The first steps of rows are run, so a short text is not recorded, and
neither are rows of which one ends every few tokens.
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
from seqloom.nn.ops.kernels import launched_by_a_graph
from seqloom.nn.replay import ReplayedCalls
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded, once_each, select_rows

RUN = 2  # steps of the same rows before one is recorded, which takes as long as three steps
PART = 64  # columns


def can_replay(model: SteppedRows, device: torch.device, most: int) -> bool:
    """Whether a model can generate up to `most` tokens of each row in this way, and it may be faster."""
    if device.type != "cpu" or most <= 2 * RUN or not isinstance(model, nn.Module) or not hasattr(model, "buffer"):
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
    """Rows on buffers, one token at a time."""

    def __init__(
        self, model: Any, state: Any, scores: Tensor, rule: TokenRule, rows: Sequence[int], *, longest: int
    ) -> None:
        """`longest` counts the elements that the longest row has read."""
        self.model, self.rule, self.rows, self.longest = model, rule, list(rows), longest
        self.inner = state.inner if isinstance(state, StateStanding) else state
        self.room = 0  # further elements that find room
        self.generated = rule.generated(scores)
        self.numbers = torch.zeros(len(rows), dtype=torch.float64, device=scores.device)
        self._draw()
        self.tokens, self.logs = rule.chosen(scores, self.generated, self.numbers)
        self.begun = False  # the first tokens are chosen, and nobody has seen them
        self.steps, self.replay = 0, ReplayedCalls([self.numbers])

    def further(self, most: int) -> Iterable[Column]:
        if self.begun:
            pause()
            self._draw()
            self._step()
        self.begun = True
        return [(self.tokens.tolist(), self.logs.tolist())]

    def keep(self, going: Sequence[int]) -> None:
        kept = torch.tensor(going, device=self.tokens.device)
        self.rows = [self.rows[place] for place in going]
        self.inner = select_rows(self.inner, kept)
        self.tokens, self.logs, self.numbers = self.tokens[kept], self.logs[kept], self.numbers[kept]
        self.generated = None if self.generated is None else self.generated[kept]
        self.steps, self.replay = 0, ReplayedCalls([self.numbers])

    def _draw(self) -> None:
        """Draw the random numbers of the next token."""
        if numbers := self.rule.chooser.draw(self.rows):
            self.numbers.copy_(torch.tensor(numbers, dtype=self.numbers.dtype))

    def _step(self) -> None:
        if not self.room:
            self.room = columns_for(self.longest + 1) - self.longest
            self.inner = self.model.buffer(self.inner, self.room, once_each())
            self.replay = ReplayedCalls([self.numbers])
        self.room, self.longest, self.steps = self.room - 1, self.longest + 1, self.steps + 1
        if self.steps <= RUN:
            self._run()
        else:
            self.replay(self._run)

    @torch.no_grad()
    def _run(self) -> None:
        """Read the token of every row, and choose the next one."""
        x = Padded(self.tokens[:, None], torch.ones_like(self.tokens), full=True)
        with launched_by_a_graph():
            scores, after = self.model.extend(x, self.inner)
        fill(self.inner, after)
        fill((self.tokens, self.logs), self.rule.chosen(scores.values[:, 0], self.generated, self.numbers))
