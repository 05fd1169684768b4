"""Going on with a text: a prompt becomes symbols, a language model writes after them, and what it wrote becomes text.

The text of a continuation is what it adds to its prompt, its first space too: one put behind the other is the whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.config.decoding import AnyDecoding
from seqloom.decoding.stepping import positions_of, room
from seqloom.decoding.writing import Ended, Written, stream, write
from seqloom.models import LanguageModel
from seqloom.tasks.predictions import TextPrediction
from seqloom.text.symbols import BEGIN
from seqloom.text.tokenizer import Tokenizer
from seqloom.types import Padded

CONTINUATION = 64  # symbols that follow a prompt, at most, where nothing else is said
STAND_IN = "x"  # for what the vocabulary lacks of a prompt: a word, and a character


@dataclass(frozen=True)
class Continuation(TextPrediction):
    """What follows a prompt, how likely the model finds it, and why it ended."""

    score: float
    ended: Ended

    @classmethod
    def of(cls, written: Written) -> "Continuation":
        """The prediction of what was written."""
        return cls(text=written.text, score=written.score, ended=written.ended)

    def to_json(self) -> dict[str, Any]:
        """`text`, `score` and `ended`."""
        return super().to_json() | {"score": self.score, "ended": self.ended}


class Continuing(NamedTuple):
    """A language model with the tokeniser of its text, and a way to write."""

    model: LanguageModel
    tokenizer: Tokenizer
    how: AnyDecoding

    def write(self, prompt: Padded, numbers: Sequence[int]) -> list[list[Written]]:
        """The continuations of each row; `numbers` say which draws of the seed belong to it."""
        start, most = self.model.initial_state(len(prompt.lengths)), self.most(prompt)
        return write(self.model, start, prompt, most, self.how, decode=self.text, numbers=numbers)

    def stream(self, prompt: Padded) -> Iterator[str]:
        """The continuation of one row as it is written."""
        start, most = self.model.initial_state(1), self.most(prompt)
        return stream(self.model, start, prompt, most, self.how, decode=self.text)

    def text(self, symbols: Sequence[int]) -> str:
        """The text of symbols, a word in the place of each UNKNOWN of the prompt: what follows it has its space."""
        return self.tokenizer.decode_copying(symbols, [STAND_IN] * len(symbols))

    def most(self, prompt: Padded) -> Tensor:
        """[B] how many symbols may follow each row; DataError for one that the model cannot read."""
        longest = self.how.longest or CONTINUATION
        return room(prompt, torch.full_like(prompt.lengths, longest), positions_of(self.model.config.decoder))

    def prompts(self, texts: Sequence[str]) -> Padded:
        """BEGIN and the symbols of each text, on the model's device."""
        symbols = self.tokenizer.encode(texts)
        rows = [torch.tensor([BEGIN, *symbols.row(row).tolist()]) for row in range(symbols.rows)]
        return Padded.stack(rows).to(self.model.device)


def begun(inputs: Padded) -> Padded:
    """The prompts with BEGIN before each: no text has it, so where it stands already, it was put there."""
    if inputs.values.shape[1] and bool((inputs.values[:, 0] == BEGIN).all()):
        return inputs
    begin = torch.full_like(inputs.lengths, BEGIN)[:, None]
    return Padded(torch.cat([begin, inputs.values], dim=1), inputs.lengths + 1, None, inputs.full)
