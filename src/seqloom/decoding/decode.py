"""Writing: a model, prompts and a way to write become answers. Written once, against `step`.

    greedy    the likeliest symbol, again and again                     sampling.py
    sample    a symbol drawn, again and again                           sampling.py
    beam      the best of several texts, written side by side           beam.py

A batch is answered as its rows would be one by one, whatever the lengths of their prompts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from seqloom.config.decoding import AnyDecoding, BeamConfig
from seqloom.decoding.answers import NEVER, Decode, Looking, SteppedRows, Stops, Written
from seqloom.decoding.beam import search
from seqloom.decoding.sampling import write_rows
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded


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
    _require_streamable(how, prompt)
    assert not isinstance(how, BeamConfig)
    stops, shown, earlier = Stops(how.stop, decode), 0, ""
    for (draft,) in write_rows(model, state, prompt, most, how, stops=stops, numbers=numbers, never=never):
        text = stops.text(draft.before, draft.symbols) if draft.ended is None else draft.written().text
        settled = stops.settled(text, earlier) if draft.ended is None else len(text)
        earlier = text
        if settled > shown:
            yield text[shown:settled]
            shown = settled


def _require_streamable(how: AnyDecoding, prompt: Padded) -> None:
    if isinstance(how, BeamConfig):
        raise ConfigError("a beam knows its best text only at the end", fix="write it, or stream greedily or a sample")
    if len(prompt.lengths) != 1 or how.abreast != 1:
        raise ConfigError("a stream is one answer to one prompt", fix="give one prompt and count = 1")
