"""Writing: a model, prompts and a way to write become answers. Written once, against `step`.

    greedy    the likeliest symbol, again and again
    sample    a symbol drawn, again and again, from the part of the distribution that is worth drawing from
    beam      the best of several texts, written side by side: `beam.py`

A batch is answered as its rows would be one by one, whatever the lengths of their prompts. Rows that have ended are
left out of the state, and cost nothing more. A sample is filtered and drawn like this:

    scores ──▶ / temperature ──▶ the k likeliest ──▶ the nucleus p ──▶ a share min_p of the likeliest ──▶ draw

Each filter sees the distribution that the one before it has left. A row draws from a generator of its own, made of
the seed and the row's number: what it says does not depend on the rows beside it.
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
    Looking,
    SteppedRows,
    Stops,
    Written,
    log_probabilities,
    read,
    read_symbols,
)
from seqloom.decoding.beam import search
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded, select_rows


def filtered(logs: Tensor, how: SampleConfig) -> Tensor:
    """[B,V] the probabilities that symbols are drawn with, from their log-probabilities."""
    ordered, symbols = (logs / how.temperature).sort(dim=-1, descending=True, stable=True)
    if how.top_k:
        ordered[:, how.top_k :] = -torch.inf
    if how.top_p < 1:
        chances = ordered.softmax(dim=-1)
        ordered = _kept(ordered, chances.cumsum(dim=-1) - chances < how.top_p)
    if how.min_p > 0:
        chances = ordered.softmax(dim=-1)
        ordered = _kept(ordered, chances >= how.min_p * chances[:, :1])
    return torch.empty_like(ordered).scatter_(-1, symbols, ordered.softmax(dim=-1))


def _kept(ordered: Tensor, kept: Tensor) -> Tensor:
    """The scores of what is kept; the likeliest always is."""
    kept[:, 0] = True
    return ordered.masked_fill(~kept, -torch.inf)


def drawn(chances: Tensor, numbers: Sequence[float]) -> Tensor:
    """[B] the symbol of each row's distribution [B,V] in which a number between 0 and 1 falls."""
    exact = torch.float32 if chances.device.type == "mps" else torch.float64  # which has no larger numbers
    ends = chances.cumsum(dim=-1, dtype=exact)
    places = torch.tensor(numbers, dtype=exact, device=chances.device)[:, None] * ends[:, -1:]
    found = torch.searchsorted(ends, places, right=True)[:, 0]
    last = (chances > 0).long().cumsum(dim=-1).argmax(dim=-1)  # rounding may lead beyond the last one
    return torch.minimum(found, last)


def generator(seed: int, number: int, answer: int) -> np.random.Generator:
    """The generator of one answer to the row of a number."""
    return np.random.default_rng((seed, number, answer))


def numbers_by_content(inputs: Any) -> list[int]:
    """A number for each row of a padded batch or a tensor, made of what it holds: however batches are cut, the same.

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
    """The likeliest symbol of each row."""

    def choose(self, logs: Tensor, rows: Sequence[int]) -> Tensor:
        """[B] symbols, of log-probabilities [B,V]."""
        return logs.argmax(dim=-1)


class DrawnTokens:
    """A symbol that each row draws for itself."""

    def __init__(self, how: SampleConfig, numbers: Sequence[int]) -> None:
        self.how = how
        self.generators = [generator(how.seed, number, answer) for number in numbers for answer in range(how.count)]

    def choose(self, logs: Tensor, rows: Sequence[int]) -> Tensor:
        """[B] symbols, of log-probabilities [B,V]."""
        return drawn(filtered(logs, self.how), [float(self.generators[row].random()) for row in rows])


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
    """The drafts of all rows, before the first symbol and after each; `count` drafts of a row stand side by side."""
    chooser = DrawnTokens(how, numbers) if isinstance(how, SampleConfig) else Likeliest()
    count = how.abreast
    prompts = zip(prompt.values.tolist(), prompt.lengths.tolist(), most.tolist(), strict=True)
    drafts = [Draft(symbols[:length], room, stops) for symbols, length, room in prompts for _ in range(count)]
    rows = [row for row, draft in enumerate(drafts) if draft.ended is None]
    yield drafts
    if not rows:
        return
    has_room = most.to(prompt.lengths.device) > 0
    heard, state = read(model, prompt.select(has_room), select_rows(state, has_room))
    places = torch.arange(len(heard.scores), device=heard.scores.device).repeat_interleave(count)
    heard, state = heard.select(places), select_rows(state, places)
    said = torch.zeros_like(heard.scores, dtype=torch.bool) if how.repetition > 1 else None
    while True:
        logs = log_probabilities(heard.scores, said, how.repetition, never)
        symbols = chooser.choose(logs, rows)
        if said is not None:
            said = said.scatter(1, symbols[:, None], True)
        chosen = logs.gather(1, symbols[:, None])[:, 0]
        for number, symbol, log in zip(rows, symbols.tolist(), chosen.tolist(), strict=True):
            drafts[number].add(symbol, log)
        yield drafts
        going = [place for place, row in enumerate(rows) if drafts[row].ended is None]
        if not going:
            return
        if len(going) < len(rows):
            kept = torch.tensor(going, device=symbols.device)
            rows, symbols, state = [rows[place] for place in going], symbols[kept], select_rows(state, kept)
            said = None if said is None else said[kept]
        heard, state = read_symbols(model, symbols, state)


def write(
    model: SteppedRows,
    state: Any,
    prompt: Padded,
    most: Tensor,
    how: AnyDecoding,
    *,
    decode: Decode | None = None,
    looks: Looking | None = None,
    numbers: Sequence[int] | None = None,
    never: Sequence[int] = NEVER,
) -> list[list[Written]]:
    """The answers to each row: `count` of a sample, as they were drawn, `best` of a beam, the best first, else one.

    A prompt [B,T] has at least one symbol, BEGIN, and gets an answer of at most `most` [B] symbols, which whoever asks
    makes of `how.longest`. `decode` makes the text of symbols; stop strings need it. `looks` watches where a decoder
    looks, for the coverage penalty (`seqloom.decoding.alignment.looking`). `numbers` say which draws of the seed belong
    to each row, by default its place in the batch. `never` are symbols that are not said.
    """
    stops = Stops(how.stop, decode)
    if isinstance(how, BeamConfig):
        return search(model, state, prompt, most, how, stops=stops, looks=looks, never=never)
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
    """The text of the answer to one prompt as it is written: together exactly the text that `write` gives.

    Nothing that is shown is ever taken back: half a character and what may become a stop string are held back.
    """
    if isinstance(how, BeamConfig):
        raise ConfigError("a beam knows its best text only at the end", fix="write it, or stream greedily or a sample")
    if len(prompt.lengths) != 1 or how.abreast != 1:
        raise ConfigError("a stream is one answer to one prompt", fix="give one prompt and count = 1")
    assert not isinstance(how, BeamConfig)
    stops, shown, earlier = Stops(how.stop, decode), 0, ""
    for (draft,) in write_rows(model, state, prompt, most, how, stops=stops, numbers=numbers, never=never):
        text = stops.text(draft.before, draft.symbols) if draft.ended is None else draft.written().text
        settled = stops.settled(text, earlier) if draft.ended is None else len(text)
        earlier = text
        if settled > shown:
            yield text[shown:settled]
            shown = settled
