"""One answer after another symbol: greedy decoding and sampling.

Greedy takes the likeliest symbol, sampling draws one; all else is the same loop. Rows that have ended are left out of
the state, and cost nothing more.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from seqloom.config.decoding import GreedyConfig, SampleConfig
from seqloom.decoding.drafts import Draft, Stops
from seqloom.decoding.sampling import drawn, filtered, generator
from seqloom.decoding.scoring import log_probabilities
from seqloom.decoding.stepping import Stepped, read, read_symbols
from seqloom.types import Padded, select_rows


class Likeliest:
    """The likeliest symbol of each row."""

    def choose(self, logs: Tensor, rows: Sequence[int]) -> Tensor:
        """[B] symbols, of log-probabilities [B,V]."""
        return logs.argmax(dim=-1)


class Drawn:
    """A symbol that each row draws for itself."""

    def __init__(self, how: SampleConfig, numbers: Sequence[int]) -> None:
        self.how = how
        self.generators = [generator(how.seed, number, answer) for number in numbers for answer in range(how.count)]

    def choose(self, logs: Tensor, rows: Sequence[int]) -> Tensor:
        """[B] symbols, of log-probabilities [B,V]."""
        return drawn(filtered(logs, self.how), [float(self.generators[row].random()) for row in rows])


@torch.no_grad()
def write_rows(
    model: Stepped,
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
    chooser = Drawn(how, numbers) if isinstance(how, SampleConfig) else Likeliest()
    count = how.abreast
    drafts = [draft for draft in begun(prompt, most, stops) for draft in (draft, *_more(draft, count - 1))]
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
        _say(drafts, rows, symbols, logs.gather(1, symbols[:, None])[:, 0])
        yield drafts
        going = [place for place, row in enumerate(rows) if drafts[row].ended is None]
        if not going:
            return
        if len(going) < len(rows):
            kept = torch.tensor(going, device=symbols.device)
            rows, symbols, state = [rows[place] for place in going], symbols[kept], select_rows(state, kept)
            said = None if said is None else said[kept]
        heard, state = read_symbols(model, symbols, state)


def begun(prompt: Padded, most: Tensor, stops: Stops) -> list[Draft]:
    """An empty draft for each row."""
    rows = zip(prompt.values.tolist(), prompt.lengths.tolist(), most.tolist(), strict=True)
    return [Draft(symbols[:length], allowed, stops) for symbols, length, allowed in rows]


def _more(draft: Draft, count: int) -> list[Draft]:
    return [Draft(draft.before, draft.most, draft.stops) for _ in range(count)]


def _say(drafts: list[Draft], rows: list[int], symbols: Tensor, logs: Tensor) -> None:
    for row, symbol, log in zip(rows, symbols.tolist(), logs.tolist(), strict=True):
        drafts[row].add(symbol, log)
