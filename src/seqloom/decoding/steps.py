"""The tokens of rows that are generated together, one after another: the plain way, with a state that is a value.

    scores ──▶ choose a token ──▶ the host looks at it ──▶ drop finished rows ──▶ read the token ──▶ scores

`replayed.py` does the same on a CPU without the Python of the model, and `buffered.py` on a GPU for several tokens
before the host looks at them.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.decoding.answers import SteppedRows, log_probabilities, read_tokens
from seqloom.nn.types import select_rows

Column = tuple[Sequence[int], Sequence[float]]  # a token of each row, and its log-probability


class Chooser(Protocol):
    """How a token is chosen."""

    def draw(self, rows: Sequence[int]) -> list[float]:
        """The random numbers of rows for one token, or nothing."""

    def choose(self, logs: Tensor, numbers: Sequence[float] | Tensor) -> Tensor:
        """[B] tokens, of log-probabilities [B,V] and these numbers."""


class TokenRule(NamedTuple):
    """How the next token follows from scores."""

    chooser: Chooser
    repetition: float
    never: Tensor  # tokens that are not generated

    def generated(self, scores: Tensor) -> Tensor | None:
        """[B,V] for the tokens that each row has generated, none yet; None without a repetition penalty."""
        return torch.zeros_like(scores, dtype=torch.bool) if self.repetition > 1 else None

    def chosen(
        self, scores: Tensor, generated: Tensor | None, numbers: Sequence[float] | Tensor
    ) -> tuple[Tensor, Tensor]:
        """[B] the next token of each row and its log-probability; `generated` is changed in place."""
        logs = log_probabilities(scores, generated, self.repetition, self.never)
        tokens = self.chooser.choose(logs, numbers)
        if generated is not None:
            generated.scatter_(1, tokens[:, None], True)
        return tokens, logs.gather(1, tokens[:, None])[:, 0]


class TokenSteps(Protocol):
    """Rows that are generated together."""

    def further(self, most: int) -> Iterable[Column]:
        """One or more further tokens of each row, at most `most`; tokens after the end of a row mean nothing."""

    def keep(self, going: Sequence[int]) -> None:
        """Go on with these rows only."""


class PlainSteps:
    """One token at a time, with a state that is a value."""

    def __init__(self, model: SteppedRows, state: Any, scores: Tensor, rule: TokenRule, rows: Sequence[int]) -> None:
        self.model, self.state, self.scores, self.rule, self.rows = model, state, scores, rule, list(rows)
        self.generated = rule.generated(scores)
        self.tokens: Tensor | None = None  # chosen, not read yet

    def further(self, most: int) -> Iterable[Column]:
        if self.tokens is not None:
            output, self.state = read_tokens(self.model, self.tokens, self.state)
            self.scores = output.scores
        numbers = self.rule.chooser.draw(self.rows)
        self.tokens, logs = self.rule.chosen(self.scores, self.generated, numbers)
        return [(self.tokens.tolist(), logs.tolist())]

    def keep(self, going: Sequence[int]) -> None:
        assert self.tokens is not None, "rows end after a token"
        kept = torch.tensor(going, device=self.tokens.device)
        self.rows = [self.rows[place] for place in going]
        self.tokens, self.state = self.tokens[kept], select_rows(self.state, kept)
        self.generated = None if self.generated is None else self.generated[kept]
