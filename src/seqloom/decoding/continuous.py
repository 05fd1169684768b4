"""Continuous batching: rows join a running batch and leave it between two tokens.

    step     1      2      3      4      5
    row a    read   token  token  end
    row b           read   token  token  token
    row c                         read   token       takes the place of a, without waiting for b

A static batch runs until its longest row ends, and whatever comes meanwhile waits. Here every step generates one token
for each row that is running. New prompts are read in blocks, one per step, so that a long prompt does not stop the
others. This needs no code in the models: a state is a value with the batch on axis 0, so that rows are selected
(`select_rows`) and put together (`join_rows`).

The text of a row depends on its prompt, its decoding and its random generator, not on the other rows, up to rounding:
kernels may sum in another order when a batch has another size, so two tokens whose scores differ by less than that can
change places.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from seqloom.config.decoding import GreedyConfig, SampleConfig
from seqloom.decoding.answers import (
    BLOCK,
    NEVER,
    Draft,
    SteppedRows,
    Stops,
    log_probabilities,
    read_in_blocks,
    read_tokens,
)
from seqloom.decoding.decode import drawn, filtered, generator
from seqloom.nn.types import Padded, compact_rows, join_rows, select_rows

SHORT = 16  # tokens: shorter prompts are read together


class ContinuedModel(SteppedRows, Protocol):
    """A model that continues prompts: `LanguageModel`."""

    device: torch.device

    def initial_state(self, batch_size: int) -> Any:
        """The state before the first token."""


class ContinuousRow:
    """One text in progress: its draft, and how its next token is chosen.

    Attributes:
        prompt: at least one token, such as BEGIN.
        most: the most tokens to generate.
        how: greedy or sample, for this row only.
        stops: the stop strings.
        number, answer: the number of the prompt and of its sample; with the seed they pick the random numbers.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        most: int,
        how: GreedyConfig | SampleConfig,
        stops: Stops,
        number: int = 0,
        answer: int = 0,
    ) -> None:
        self.draft = Draft(list(prompt), most, stops)
        self.generator = generator(how.seed, number, answer) if isinstance(how, SampleConfig) else None
        # Rows with an equal rule are chosen for together; the fields that are removed say nothing about one token.
        alike: dict[str, Any] = {"max_new_tokens": None, "stop": ()}
        alike |= {"num_samples": 1, "seed": 0} if isinstance(how, SampleConfig) else {}
        self.rule = msgspec.structs.replace(how, **alike)
        self.dropped = False

    @property
    def runs(self) -> bool:
        """Whether the row needs further tokens."""
        return self.draft.finish_reason is None and not self.dropped


class PromptReading:
    """Rows whose prompts are being read; rows with equal prompts, such as samples, share one."""

    def __init__(self, model: ContinuedModel, rows: list[ContinuousRow]) -> None:
        given = [tuple(row.draft.before) for row in rows]
        prompts = {prompt: place for place, prompt in enumerate(dict.fromkeys(given))}
        self.rows, self.places = rows, torch.tensor([prompts[prompt] for prompt in given])
        x = Padded.stack([torch.tensor(prompt) for prompt in prompts]).to(model.device)
        self.left = -(-x.values.shape[1] // BLOCK)
        self.blocks = read_in_blocks(model, x, model.initial_state(len(prompts)))

    def read_on(self) -> tuple[Tensor, Any] | None:
        """Read a block of tokens; after the last one return the scores [B,V] and the state of all rows."""
        output, state = next(self.blocks)
        self.left -= 1
        if self.left:
            return None
        places = self.places.to(output.scores.device)
        return output.scores[places], select_rows(state, places)


class ContinuousBatch:
    """The rows of one model that are generated together."""

    def __init__(self, model: ContinuedModel, *, never: Sequence[int] = NEVER) -> None:
        self.model, self.never = model, never
        self.entering: list[ContinuousRow] = []
        self.reading: list[PromptReading] = []
        self.rows: list[ContinuousRow] = []
        self.scores: Tensor | None = None  # [B,V] of the next token of each row
        self.state: Any = None

    def __len__(self) -> int:
        return len(self.entering) + sum(len(one.rows) for one in self.reading) + len(self.rows)

    def add(self, rows: Sequence[ContinuousRow]) -> None:
        """Add rows; they join at the next step. A row without room for a token is finished already."""
        self.entering += [row for row in rows if row.runs]

    def drop(self, row: ContinuousRow) -> None:
        """Remove a row; it gets no further token."""
        row.dropped = True
        self.entering = [one for one in self.entering if one is not row]

    @torch.no_grad()
    def step(self) -> list[ContinuousRow]:
        """Generate one token for every row that is running, and return these rows; finished ones have left."""
        self._keep()
        self._read_on()
        if not self.rows:
            return []
        tokens, logs = self._choose()
        told = self.rows
        for row, token, log in zip(told, tokens.tolist(), logs.tolist(), strict=True):
            row.draft.add(token, log)
        places = self._keep()
        if self.rows:
            chosen = tokens if places is None else tokens[places]
            output, self.state = read_tokens(self.model, chosen, self.state)
            self.scores = output.scores
        return told

    def _keep(self) -> Tensor | None:
        """Let the rows leave that need no further token; return the places of the others, None if all stay."""
        going = [place for place, row in enumerate(self.rows) if row.runs]
        if len(going) == len(self.rows):
            return None
        self.rows = [self.rows[place] for place in going]
        if not self.rows:
            self.state = self.scores = None
            return None
        assert self.scores is not None
        places = torch.tensor(going, device=self.scores.device)
        self.state, self.scores = compact_rows(select_rows(self.state, places)), self.scores[places]
        return places

    def _read_on(self) -> None:
        """Read one more block of each prompt; rows whose prompts are complete join the batch."""
        similar: dict[int, list[ContinuousRow]] = {}  # by length, so that short prompts are not padded to long ones
        for row in self.entering:
            similar.setdefault(max(SHORT, len(row.draft.before)).bit_length(), []).append(row)
        self.entering = []
        self.reading += [PromptReading(self.model, rows) for rows in similar.values()]
        self.reading = [one for one in self.reading if any(row.runs for row in one.rows)]
        for one in tuple(self.reading):
            found = one.read_on()
            if found is not None:
                self.reading.remove(one)
                self._join(one.rows, *found)

    def _join(self, rows: list[ContinuousRow], scores: Tensor, state: Any) -> None:
        if self.rows:
            assert self.scores is not None
            scores, state = torch.cat([self.scores, scores]), join_rows([compact_rows(self.state), state])
        self.rows, self.scores, self.state = [*self.rows, *rows], scores, state
        self._keep()  # rows that were dropped while their prompt was read

    def _choose(self) -> tuple[Tensor, Tensor]:
        """[B] the next token of each row, and its log-probability."""
        assert self.scores is not None
        groups: dict[GreedyConfig | SampleConfig, list[int]] = {}
        for place, row in enumerate(self.rows):
            groups.setdefault(row.rule, []).append(place)
        if len(groups) == 1:
            return self._chosen(self.scores, self.rows)
        tokens = torch.empty(len(self.rows), dtype=torch.int64, device=self.scores.device)
        logs = torch.empty(len(self.rows), dtype=torch.promote_types(self.scores.dtype, torch.float32)).to(
            tokens.device
        )
        for group in groups.values():
            places = torch.tensor(group, device=tokens.device)
            tokens[places], logs[places] = self._chosen(self.scores[places], [self.rows[place] for place in group])
        return tokens, logs

    def _chosen(self, scores: Tensor, rows: Sequence[ContinuousRow]) -> tuple[Tensor, Tensor]:
        """The same for rows with one rule."""
        rule = rows[0].rule
        generated = _generated(scores, rows) if rule.repetition_penalty > 1 else None
        logs = log_probabilities(scores, generated, rule.repetition_penalty, self.never)
        if isinstance(rule, SampleConfig):
            tokens = drawn(filtered(logs, rule), [float(row.generator.random()) for row in rows if row.generator])
        else:
            tokens = logs.argmax(dim=-1)
        return tokens, logs.gather(1, tokens[:, None])[:, 0]


def _generated(scores: Tensor, rows: Sequence[ContinuousRow]) -> Tensor:
    """[B,V] true for the tokens that each row has generated."""
    found = torch.zeros_like(scores, dtype=torch.bool)
    for place, row in enumerate(rows):
        found[place, row.draft.tokens] = True
    return found
