"""Language modelling: the next symbol, given all before it.

    perplexity       exp of the mean loss over all symbols and ENDs
    bits_per_byte    the same loss per byte of the original text: comparable whatever the tokeniser, as long as the text
                     can be read back from its symbols: `unknown`, the share of those that stand for anything new, is
                     zero, and case, spacing and unicode form are kept; `signatures` say what is not

Three ways to read the same text, and a figure belongs to the way in which it was measured; a set is evaluated as it was
trained on. By length and packed, every document is read from its own BEGIN; packed, one that is longer than a row
begins anew without its past. In streams a document goes on from the ones before it: the state is carried from step to
step, in training without its gradient, in evaluation too; a test part is read in one row, from its first symbol on.

The text of a continuation is what it adds to its prompt, its first space too: one put behind the other is the whole.

The default is `lstm`: the best of the small ones, and its memory does not grow with the text.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.data import Part
from seqloom.config.models import AnyModel, LanguageModelConfig
from seqloom.config.training import AnyFeed, ByLengthConfig, PacksConfig, StreamsConfig
from seqloom.data.kinds.text import LONGEST, text_shown
from seqloom.data.loader import Loader, feed_packs, feed_streams
from seqloom.data.prepared import Prepared
from seqloom.decoding.answers import Ended, Written, positions_of, room
from seqloom.decoding.decode import numbers_by_content, stream, write
from seqloom.errors import ConfigError, DataError
from seqloom.metrics import perplexity, ratio
from seqloom.nn.heads import Losses
from seqloom.nn.models import LanguageModel
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import Size
from seqloom.tasks.encoders import require_shape
from seqloom.tasks.evaluation import answering, document_numbers
from seqloom.tasks.task import LOSS, Asking, Continuer, HeadSettings, Judged, Metric, TextPrediction
from seqloom.text.special_tokens import BEGIN, END, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

CONTINUATION = 64  # symbols that follow a prompt, at most, where nothing else is said
STAND_IN = "x"  # for what the vocabulary lacks of a prompt: a word, and a character
PROBE, PROBES = 512, 3  # symbols that are read, so many times, to see whether a memory grows


@dataclass(frozen=True)
class Continuation(TextPrediction):
    """What follows a prompt, how likely the model finds it, and why it ended."""

    score: float
    ended: Ended


def begun(inputs: Padded) -> Padded:
    """The prompts with BEGIN before each: no text has it, so where it stands already, it was put there."""
    if inputs.values.shape[1] and bool((inputs.values[:, 0] == BEGIN).all()):
        return inputs
    begin = torch.full_like(inputs.lengths, BEGIN)[:, None]
    return Padded(torch.cat([begin, inputs.values], dim=1), inputs.lengths + 1, None, inputs.full)


class Running(NamedTuple):
    """The inputs of a step of streams: each row goes on where it stopped in the step before."""

    symbols: Padded


class LanguageModelling(Continuer):
    """The probability of a text."""

    name = "lm"
    made_by = "language-model", "lstm"
    settings = frozenset({"smoothing"})
    feeds = (ByLengthConfig, PacksConfig, StreamsConfig)
    metrics = (Metric("perplexity", higher_is_better=False), Metric("bits_per_byte", higher_is_better=False), LOSS)
    asking = Asking('seqloom generate RUN "some text"', "seqloom generate RUN --file FILE")
    statistics = 4  # bytes of the original, symbols that are UNKNOWN, loss, weight

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the text."""
        assert self.meaning.tokenizer is not None, "a schema with text has a tokeniser"
        return self.meaning.tokenizer

    def model(self, recipe: str, size: Size, head: HeadSettings) -> LanguageModelConfig:
        self.require_settings(head)
        model = recipes.language_model(recipe, vocab_size=self.tokenizer.vocab_size, size=size)
        return msgspec.structs.replace(model, head=msgspec.structs.replace(model.head, smoothing=head.smoothing))

    def require(self, model: AnyModel) -> None:
        written = require_shape(self, LanguageModelConfig, model).head.vocab_size
        if written != self.tokenizer.vocab_size:
            raise ConfigError(
                f"the data has {self.tokenizer.vocab_size:,} symbols, and the model writes {written:,}",
                fix=f"set vocab_size = {self.tokenizer.vocab_size} in its head",
            )

    def require_feed(self, model: nn.Module, feed: AnyFeed) -> None:
        """Raise ConfigError for streams where the model's memory grows with all that it has read."""
        if isinstance(feed, StreamsConfig) and memory_grows(cast(LanguageModel, model)):
            raise ConfigError(
                "streams carry the memory from step to step, and this model's memory grows with every symbol",
                fix="take 'packs' or 'by-length', or a model that forgets, such as lstm or window",
            )

    def fed(self, prepared: Prepared, part: Part, feed: AnyFeed, seed: int) -> Loader[Any, Any]:
        """The steps of a part.

        A test part in streams is one row from its first symbol to its last, as published figures have it: no row has
        to begin in the middle of the text with an empty memory.
        """
        if isinstance(feed, PacksConfig):
            return feed_packs(prepared, part, rows=feed.rows, length=feed.length, seed=seed)
        if not isinstance(feed, StreamsConfig):
            return super().fed(prepared, part, feed, seed)
        rows, length = (1, feed.rows * feed.length) if part == "test" else (feed.rows, feed.length)
        streams = feed_streams(prepared, part, rows=rows, length=length)

        def running(cut: Any) -> Batch[Running, Tensor]:
            batch: Batch[Any, Tensor] = streams.make_batch(cut)
            return batch._replace(inputs=Running(batch.inputs))

        return Loader(streams.plan, running)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed loss; a step of streams hands on its state."""
        reading = cast(LanguageModel, model)
        if isinstance(batch.inputs, Running):
            return reading.continued_loss(batch._replace(inputs=batch.inputs.symbols), state)
        return reading.loss(batch), None

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each document of a batch judged, or each row of streams from a state on."""
        reading = cast(LanguageModel, model)
        if isinstance(batch.inputs, Running):
            inputs = batch.inputs.symbols
            x, state = reading.continued_features(inputs, state)
        else:
            inputs, state = batch.inputs, None
            x = reading.features(inputs)
        losses = reading.head.losses(x, batch.targets)
        return list(self._judged(batch, inputs, losses)), state

    def _judged(self, batch: Batch[Any, Tensor], inputs: Padded, losses: Losses) -> Iterator[Judged]:
        """Each document, with its loss and its number of symbols; rows of streams that are at their end are none."""
        real, symbols = inputs.valid.cpu().numpy(), batch.targets.cpu().numpy()
        numbers, count = document_numbers(inputs)[real], len(batch.ids)
        worth = np.zeros_like(symbols) if batch.bytes is None else batch.bytes.cpu().numpy()
        tables = (worth, symbols == UNKNOWN, *(table.cpu().numpy() for table in losses))
        statistics = np.stack([np.bincount(numbers, table[real], count) for table in tables], axis=1)
        symbols, starts = symbols[real], np.searchsorted(numbers, np.arange(count + 1))
        for number, (id_, sums) in enumerate(zip(batch.ids, statistics, strict=True)):
            if sums[-1]:
                text = symbols[starts[number] : starts[number + 1]][:LONGEST]
                said = f"perplexity {self.measure(sums)['perplexity']:.4g}"
                yield Judged(id_, said, text_shown(self.tokenizer, text[text != END]), None, sums)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`perplexity`, `bits_per_byte`, `unknown` (the share of symbols that are UNKNOWN) and `loss`."""
        worth, unknown, loss, weight = np.moveaxis(sums, -1, 0)
        mean = ratio(loss, weight)
        return {
            "perplexity": perplexity(mean),
            "bits_per_byte": ratio(loss, worth * math.log(2)),
            "unknown": ratio(unknown, weight),
            "loss": mean,
        }

    def signatures(self, statistics: np.ndarray) -> dict[str, str]:
        """What bits per byte leave out: what the tokeniser forgets of a text need not be said, so they flatter."""
        if not (lost := self.tokenizer.config.forgets):
            return {}
        said = f"of text without its {' and '.join(lost)}: compare it with none that keeps more"
        return {"bits_per_byte": said}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[TextPrediction]:
        """What follows each row, a text or the beginning of one: the best, or the first that was drawn."""
        prompt = begun(inputs)
        written = self._written(model, prompt, numbers_by_content(prompt))
        return [TextPrediction(answers[0].text) for answers in written]

    def continued(self, model: nn.Module, prompts: Sequence[str], numbers: Sequence[int]) -> list[list[TextPrediction]]:
        written = self._written(model, self._prompts(model, prompts), numbers)
        return [[Continuation(one.text, one.score, one.ended) for one in answers] for answers in written]

    def streamed(self, model: nn.Module, prompt: str) -> Iterator[str]:
        writing, given = cast(LanguageModel, model), self._prompts(model, [prompt])
        most = self._most(writing, given)
        return stream(writing, writing.initial_state(1), given, most, self.decoding, decode=self._text)

    def _written(self, model: nn.Module, prompt: Padded, numbers: Sequence[int]) -> list[list[Written]]:
        """The continuations of each row; `numbers` say which draws of the seed belong to it."""
        writing = cast(LanguageModel, model)
        start, most = writing.initial_state(len(prompt.lengths)), self._most(writing, prompt)
        return write(writing, start, prompt, most, self.decoding, decode=self._text, numbers=numbers)

    def _prompts(self, model: nn.Module, texts: Sequence[str]) -> Padded:
        """BEGIN and the symbols of each text, on the model's device."""
        symbols = self.tokenizer.encode(texts)
        rows = [torch.tensor([BEGIN, *symbols.row(row).tolist()]) for row in range(symbols.rows)]
        return Padded.stack(rows).to(cast(LanguageModel, model).device)

    def _text(self, symbols: Sequence[int]) -> str:
        """The text of symbols, a word in the place of each UNKNOWN of the prompt: what follows it has its space."""
        return self.tokenizer.decode_copying(symbols, [STAND_IN] * len(symbols))

    def _most(self, model: LanguageModel, prompt: Padded) -> Tensor:
        """[B] how many symbols may follow each row; DataError for one that the model cannot read."""
        longest = torch.full_like(prompt.lengths, self.decoding.longest or CONTINUATION)
        return room(prompt, longest, positions_of(model.config.decoder))


def memory_grows(model: LanguageModel) -> bool:
    """Whether what a model remembers grows with every symbol, rather than up to a size of its own."""
    x = Padded.of(torch.full((1, PROBE), BEGIN, device=model.device))
    state, sizes = model.initial_state(1), list[int]()
    with answering(model):
        for _ in range(PROBES):
            try:
                _, state = model.continued_features(x, state)
            except DataError:  # learned positions have come to their end
                return True
            sizes.append(_size(state))
    return sizes[-1] > sizes[-2]


def _size(state: Any) -> int:
    """How many numbers a state holds."""
    return state.numel() if isinstance(state, Tensor) else sum(map(_size, state))
