"""Decoding: outputs from a model, prompts and a configuration.

    greedy    the likeliest token at each step
    sample    a random token at each step, from a filtered distribution
    beam      beam search: `beam.py`

The output of a row does not depend on the other rows of its batch. Rows that are finished are dropped from the state. A
sample is filtered like this:

    scores ──▶ / temperature ──▶ top k ──▶ top p (nucleus) ──▶ min p ──▶ draw

Each filter sees the distribution that the previous one has left. Each row has its own random generator, made of the
seed and the number of the row.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.config.decoding import AnyDecoding, BeamConfig, GreedyConfig, SampleConfig
from seqloom.decoding.answers import (
    NEVER,
    Decode,
    Draft,
    GeneratedText,
    GrowingText,
    SteppedRows,
    Stops,
    WatchAttention,
    read,
)
from seqloom.decoding.beam import search
from seqloom.decoding.buffered import BufferedSteps, require_buffers
from seqloom.decoding.replayed import ReplayedSteps, can_replay
from seqloom.decoding.steps import PlainSteps, TokenRule, TokenSteps
from seqloom.errors import ConfigError
from seqloom.nn.capture import GraphRecorder
from seqloom.nn.types import Padded, select_rows


def filtered(logs: Tensor, how: SampleConfig) -> Tensor:
    """[B,V] the probabilities for sampling, from log-probabilities."""
    ordered, tokens = (logs / how.temperature).sort(dim=-1, descending=True, stable=True)
    if how.top_k:
        ordered[:, how.top_k :] = -torch.inf
    if how.top_p < 1:
        chances = ordered.softmax(dim=-1)
        ordered = _kept(ordered, chances.cumsum(dim=-1) - chances < how.top_p)
    if how.min_p > 0:
        chances = ordered.softmax(dim=-1)
        ordered = _kept(ordered, chances >= how.min_p * chances[:, :1])
    return torch.empty_like(ordered).scatter_(-1, tokens, ordered.softmax(dim=-1))


def _kept(ordered: Tensor, kept: Tensor) -> Tensor:
    """The scores of the tokens that are kept; the likeliest always is."""
    kept[:, 0] = True
    return ordered.masked_fill(~kept, -torch.inf)


def drawn(chances: Tensor, numbers: Sequence[float] | Tensor) -> Tensor:
    """[B] the token of each row, by inverse transform sampling from [B,V] with numbers in 0..1."""
    exact = torch.float32 if chances.device.type == "mps" else torch.float64  # MPS has no float64
    ends = chances.cumsum(dim=-1, dtype=exact)
    places = torch.as_tensor(numbers, dtype=exact, device=chances.device)[:, None] * ends[:, -1:]
    found = torch.searchsorted(ends, places, right=True)[:, 0]
    last = (chances > 0).long().cumsum(dim=-1).argmax(dim=-1)  # rounding may exceed the last one
    return torch.minimum(found, last)


def generator(seed: int, number: int, answer: int) -> np.random.Generator:
    """The random generator of one sample of a row."""
    return np.random.default_rng((seed, number, answer))


def numbers_by_content(inputs: Any) -> list[int]:
    """A number for each row of a padded batch or a tensor, made from its content: independent of batching.

    >>> numbers_by_content(Padded.of(torch.tensor([[7, 0]]), torch.tensor([1]))) == numbers_by_content(
    ...     torch.tensor([[7]])
    ... )
    True
    """
    values = inputs.values if isinstance(inputs, Padded) else inputs
    lengths = inputs.lengths.tolist() if isinstance(inputs, Padded) else [values.shape[1]] * len(values)
    rows = values.cpu().numpy()
    sums = (hashlib.sha256(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True))
    return [int.from_bytes(one.digest()[:8], "big") for one in sums]


class Likeliest:
    """The likeliest token of each row."""

    def draw(self, rows: Sequence[int]) -> list[float]:
        """Nothing is random."""
        return []

    def choose(self, logs: Tensor, numbers: Sequence[float] | Tensor) -> Tensor:
        """[B] tokens, of log-probabilities [B,V]."""
        return logs.max(dim=-1).indices  # the same as argmax, which takes three times as long on a CPU


class DrawnTokens:
    """A random token of each row."""

    def __init__(self, how: SampleConfig, numbers: Sequence[int]) -> None:
        self.how = how
        self.generators = [
            generator(how.seed, number, answer) for number in numbers for answer in range(how.num_samples)
        ]

    def draw(self, rows: Sequence[int]) -> list[float]:
        """The next random number of each row, in 0..1."""
        return [float(self.generators[row].random()) for row in rows]

    def choose(self, logs: Tensor, numbers: Sequence[float] | Tensor) -> Tensor:
        """[B] tokens, of log-probabilities [B,V]."""
        return drawn(filtered(logs, self.how), numbers)


@torch.no_grad()
def write_rows(
    model: SteppedRows,
    state: Any,
    prompt: Padded,
    most: Tensor,
    how: GreedyConfig | SampleConfig,
    *,
    stops: Stops,
    numbers: Sequence[int],
    never: Sequence[int],
) -> Iterator[list[Draft]]:
    """The drafts of all rows, before the first token and after each one; the samples of a row are neighbors."""
    if how.cuda_graphs:
        require_buffers(model, prompt.values.device)
    chooser = DrawnTokens(how, numbers) if isinstance(how, SampleConfig) else Likeliest()
    count = how.abreast
    prompts = zip(prompt.values.tolist(), prompt.lengths.tolist(), most.tolist(), strict=True)
    drafts = [Draft(tokens[:length], room, stops) for tokens, length, room in prompts for _ in range(count)]
    rows = [row for row, draft in enumerate(drafts) if draft.finish_reason is None]
    yield drafts
    if not rows:
        return
    has_room = most.to(prompt.lengths.device) > 0
    output, state = read(model, prompt.select(has_room), select_rows(state, has_room))
    scores = output.scores
    if count > 1:
        places = torch.arange(len(scores), device=scores.device).repeat_interleave(count)
        scores, state = scores[places], select_rows(state, places)
    rule = TokenRule(chooser, how.repetition_penalty, torch.tensor(never, dtype=torch.int64, device=scores.device))
    begun = (model, state, scores, rule, rows)
    longest, room = prompt.values.shape[1], int(most.max())
    steps: TokenSteps
    if how.cuda_graphs:
        steps = BufferedSteps(*begun, longest=longest, room=room, record=GraphRecorder(scores.device))
    elif can_replay(model, scores.device, room):
        steps = ReplayedSteps(*begun, longest=longest)
    else:
        steps = PlainSteps(*begun)
    while True:
        for tokens, logs in steps.further(max(drafts[row].most - len(drafts[row].tokens) for row in rows)):
            for number, token, log in zip(rows, tokens, logs, strict=True):
                if drafts[number].finish_reason is None:
                    drafts[number].add(token, log)
            yield drafts
        going = [place for place, row in enumerate(rows) if drafts[row].finish_reason is None]
        if not going:
            return
        if len(going) < len(rows):
            steps.keep(going)
            rows = [rows[place] for place in going]


def write(
    model: SteppedRows,
    state: Any,
    prompt: Padded,
    most: Tensor,
    how: AnyDecoding,
    *,
    decode: Decode | None = None,
    attention: WatchAttention | None = None,
    numbers: Sequence[int] | None = None,
    never: Sequence[int] = NEVER,
) -> list[list[GeneratedText]]:
    """Generate outputs for a batch of prompts.

    Args:
        model: scores the next token.
        state: its initial state.
        prompt: [B,T] at least one token each, such as BEGIN.
        most: [B] the most tokens of an output.
        how: greedy, sample or beam.
        decode: makes text of tokens; stop strings need it.
        attention: records the attention to the source, for a coverage penalty (`alignment.watching`).
        numbers: pick the random stream of each row (default: its index in the batch).
        never: tokens that are not generated.

    Returns:
        For each row its outputs: `num_samples` of a sample, `n_best` of a beam with the best first, else one.
    """
    stops = Stops(how.stop, decode)
    if isinstance(how, BeamConfig):
        return search(model, state, prompt, most, how, stops=stops, attention=attention, never=never)
    numbers = range(len(prompt.lengths)) if numbers is None else numbers
    *_, drafts = write_rows(model, state, prompt, most, how, stops=stops, numbers=numbers, never=never)
    answers = [draft.written() for draft in drafts]
    count = len(answers) // len(prompt.lengths)
    return [answers[start : start + count] for start in range(0, len(answers), count)]


def stream(
    model: SteppedRows,
    state: Any,
    prompt: Padded,
    most: Tensor,
    how: AnyDecoding,
    *,
    decode: Decode,
    numbers: Sequence[int] = (0,),
    never: Sequence[int] = NEVER,
) -> Iterator[str]:
    """Yield the output for one prompt as it is generated: joined, exactly the text that `write` gives.

    Yielded text never changes: half a character and the possible start of a stop string are held back.
    """
    if isinstance(how, BeamConfig):
        raise ConfigError(
            "beam search cannot be streamed: the best text is known only at the end",
            fix="leave out beam_size, or do not stream",
        )
    if len(prompt.lengths) != 1 or how.abreast != 1:
        raise ConfigError("streaming supports one prompt and one text", fix="give one prompt and num_samples = 1")
    assert not isinstance(how, BeamConfig)
    stops, growing = Stops(how.stop, decode), GrowingText()
    for (draft,) in write_rows(model, state, prompt, most, how, stops=stops, numbers=numbers, never=never):
        if further := growing.further(draft):
            yield further
