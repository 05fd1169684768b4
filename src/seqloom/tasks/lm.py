"""Language modelling: the next symbol, given all before it.

    perplexity    exp of the mean loss over all symbols and ENDs

Three ways to read the same text, and a figure belongs to the way in which it was measured; a set is evaluated as it was
trained on. By length and packed, every document is read from its own BEGIN; packed, one that is longer than a row
begins anew without its past. In streams a document goes on from the ones before it: the state is carried from step to
step, in training without its gradient, in evaluation too. The default is `lstm`: the best of the small ones, and its
memory does not grow with the text.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.models import AnyModel, LanguageModelConfig
from seqloom.config.training import AnyFeed, PacksConfig, StreamsConfig
from seqloom.data.feeding import feed_packs, feed_streams
from seqloom.data.loader import Loader
from seqloom.data.preparing import Prepared
from seqloom.data.schema import Part
from seqloom.data.streams import Cut, Streams
from seqloom.decoding.greedy import greedy, positions_of
from seqloom.errors import ConfigError, DataError
from seqloom.heads import Losses
from seqloom.metrics.figures import perplexity, ratio
from seqloom.models import LanguageModel
from seqloom.recipes import Size
from seqloom.tasks.contract import Graded, HeadSettings, Judged, Metric
from seqloom.tasks.judging import answering
from seqloom.tasks.predictions import TextPrediction
from seqloom.tasks.reading import require_input, wrong_shape
from seqloom.tasks.showing import LONGEST, text_shown
from seqloom.text.symbols import BEGIN, END
from seqloom.text.tokenizer import Tokenizer
from seqloom.types import Batch, Loss, Padded, places_of

DEFAULT = "lstm"
CONTINUATION = 64  # symbols that follow a prompt, at most
PROBE, PROBES = 512, 3  # symbols that are read, so many times, to see whether a memory grows


class Running(NamedTuple):
    """The inputs of a step of streams: each row goes on where it stopped in the step before."""

    symbols: Padded


class LanguageModelling(Graded):
    """The probability of a text."""

    name = "lm"
    metric = Metric("perplexity", higher_is_better=False)
    statistics = 2  # loss, weight

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the text."""
        assert self.meaning.tokenizer is not None, "a schema with text has a tokeniser"
        return self.meaning.tokenizer

    def recipes(self) -> list[str]:
        """The recipes that make a language model."""
        return [DEFAULT, *(name for name in recipes.names("language-model") if name != DEFAULT)]

    def model(self, recipe: str, size: Size, head: HeadSettings) -> LanguageModelConfig:
        """The model that a recipe makes."""
        if head.class_weights:
            raise ConfigError("class weights are for labels, and lm has none", fix="leave them out")
        model = recipes.language_model(recipe, vocab_size=self.tokenizer.vocab_size, size=size)
        return msgspec.structs.replace(model, head=msgspec.structs.replace(model.head, smoothing=head.smoothing))

    def adapted(self, model: AnyModel) -> AnyModel:
        """The model itself, if it can answer: its head goes with its vocabulary."""
        self.require(model)
        return model

    def require(self, model: AnyModel) -> None:
        """Raise ConfigError for another shape of model or vocabulary."""
        if not isinstance(model, LanguageModelConfig):
            raise wrong_shape(self.name, LanguageModelConfig.kind(), model)
        require_input(self.meaning, model.decoder.input)
        if model.head.vocab_size != self.tokenizer.vocab_size:
            raise ConfigError(
                f"the data has {self.tokenizer.vocab_size:,} symbols, and the model writes {model.head.vocab_size:,}",
                fix=f"set vocab_size = {self.tokenizer.vocab_size} in its head",
            )

    def require_feed(self, model: nn.Module, feed: AnyFeed) -> None:
        """Raise ConfigError for streams where the model's memory grows with all that it has read."""
        if isinstance(feed, StreamsConfig) and memory_grows(cast(LanguageModel, model)):
            raise ConfigError(
                "streams carry the memory from step to step, and this model's memory grows with every symbol",
                fix="take 'packs' or 'by-length', or a model that forgets, such as lstm or window",
            )

    def loader(self, prepared: Prepared, part: Part, feed: AnyFeed, *, seed: int, **how: Any) -> Loader[Any, Any]:
        """The steps of a part; the ids of batches are always rows of the prepared data."""
        if isinstance(feed, StreamsConfig):
            return _named_streams(
                feed_streams(prepared, part, rows=feed.rows, length=feed.length, **how), prepared.parts[part]
            )
        if isinstance(feed, PacksConfig):
            packs = feed_packs(prepared, part, rows=feed.rows, length=feed.length, seed=seed, **how)
            return _named_packs(packs, prepared.parts[part])
        return super().loader(prepared, part, feed, seed=seed, **how)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed loss; a step of streams hands on its state."""
        reading = cast(LanguageModel, model)
        if isinstance(batch.inputs, Running):
            return reading.continued_loss(batch._replace(inputs=batch.inputs.symbols), state)
        return reading.loss(batch), None

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor]) -> list[Judged]:
        """Each document of a batch judged, or each row of streams as if nothing had been read before."""
        return self.judge_on(model, batch, None)[0]

    def judge_on(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """The same from a state on; right is decided when all are known."""
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
        real = inputs.valid.cpu().numpy()
        numbers = _document_numbers(inputs)[real]
        totals, weights = (_summed(table.cpu().numpy()[real], numbers, len(batch.ids)) for table in losses)
        symbols, starts = batch.targets.cpu().numpy()[real], np.searchsorted(numbers, np.arange(len(batch.ids) + 1))
        for number, id_ in enumerate(batch.ids):
            if weights[number]:
                text = symbols[starts[number] : starts[number + 1]][:LONGEST]
                statistics = np.array([totals[number], weights[number]])
                said = f"perplexity {self.measure(statistics)['perplexity']:.4g}"
                yield Judged(id_, said, text_shown(self.tokenizer, text[text != END]), False, statistics)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`perplexity` and `loss`."""
        loss, weight = np.moveaxis(sums, -1, 0)
        mean = ratio(loss, weight)
        return {"perplexity": perplexity(mean), "loss": mean}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[TextPrediction]:
        """What most likely follows each row: a text, or the beginning of one."""
        reading, prompt = cast(LanguageModel, model), _begun(inputs)
        limit = positions_of(reading.config.decoder)
        most = torch.full_like(prompt.lengths, CONTINUATION)
        if limit is not None:
            most = most.clamp(max=limit + 1 - prompt.lengths)  # the last symbol that is said is not read
        with torch.no_grad():
            said = greedy(reading, reading.initial_state(len(most)), prompt, most)
        return [TextPrediction(self.tokenizer.decode(symbols)) for symbols in said]


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


def _begun(inputs: Padded) -> Padded:
    """The prompts with BEGIN before each: no text has it, so where it stands already, it was put there."""
    if inputs.values.shape[1] and bool((inputs.values[:, 0] == BEGIN).all()):
        return inputs
    begin = torch.full_like(inputs.lengths, BEGIN)[:, None]
    return Padded(torch.cat([begin, inputs.values], dim=1), inputs.lengths + 1, None, inputs.full)


def _document_numbers(inputs: Padded) -> np.ndarray:
    """[B,T] the document that each element belongs to, counted in reading order; rows are one each unless packed."""
    rows, time = inputs.values.shape[:2]
    if inputs.segments is None:
        return np.repeat(np.arange(rows), time).reshape(rows, time)
    within = places_of(inputs).segments.cpu().numpy()  # 1, 2, ... in each row, -1 in the padding
    counts = within.max(axis=1)
    before: np.ndarray = np.cumsum(counts) - counts - 1
    return np.asarray(within + before[:, None])


def _summed(values: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """[count] the sums of values that share a number, in float64."""
    return np.bincount(numbers, weights=values, minlength=count)


def _named_streams(loader: Loader[Any, Any], rows: np.ndarray) -> Loader[Any, Any]:
    """The same steps as running text, each row with the document in which it stands."""
    streams, make_batch = loader.plan, loader.make_batch
    assert isinstance(streams, Streams)

    def named(cut: Cut) -> Batch[Running, Tensor]:
        batch = make_batch(cut)
        places = np.minimum(cut.starts, streams.total - 1) + streams.begins[0]
        documents = np.searchsorted(streams.begins, places, side="right") - 1
        return Batch(Running(batch.inputs), batch.targets, tuple(map(str, rows[documents].tolist())))

    loader.make_batch = named
    return loader


def _named_packs(loader: Loader[Any, Any], rows: np.ndarray) -> Loader[Any, Any]:
    """The same steps; documents are called by their rows of the prepared data, not by their numbers in the part."""
    make_batch = loader.make_batch

    def named(packed: Any) -> Batch[Padded, Tensor]:
        batch = make_batch(packed)
        return batch._replace(ids=tuple(str(rows[int(id_)]) for id_ in batch.ids))  # type: ignore[no-any-return]

    loader.make_batch = named
    return loader
