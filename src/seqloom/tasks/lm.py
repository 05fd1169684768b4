"""Language modeling: predict the next token from all tokens before it.

    perplexity       exp of the mean loss over all tokens and ENDs
    bits_per_byte    the same loss per byte of the original text. It can be compared between tokenizers if they lose
                     nothing: `unknown`, the share of unknown tokens, is zero, and case, spacing and Unicode form are
                     kept. `signatures` lists the losses.

The perplexity depends on how the text is batched, and a model is evaluated as it was trained. By length and packed,
each document starts with its own BEGIN; packed, a document that is longer than a row continues without its past. In
streams the state is carried from document to document and from step to step, in training without its gradient. A test
set in streams is read as one row, from its first token to its last.

A continuation is the text after its prompt, including its first space: prompt + continuation is the complete text.

The default is `lstm`: the best of the small models, and its memory does not grow with the text.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.data import SplitName
from seqloom.config.decoding import AnyDecoding, BeamConfig, GreedyConfig
from seqloom.config.models import AnyModel, LanguageModelConfig
from seqloom.config.training import AnyBatching, ByLengthConfig, PacksConfig, StreamsConfig
from seqloom.data.kinds.text import LONGEST, text_shown
from seqloom.data.loader import Loader, feed_packs, feed_streams
from seqloom.data.prepared import Prepared
from seqloom.decoding.answers import FinishReason, GeneratedText, Stops, positions_of, room
from seqloom.decoding.continuous import ContinuousRow
from seqloom.decoding.decode import numbers_by_content, stream, write
from seqloom.errors import ConfigError, DataError
from seqloom.metrics.bootstrap import perplexity, ratio
from seqloom.nn.heads import Losses
from seqloom.nn.models import LanguageModel
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import AnySize
from seqloom.tasks.encoders import require_shape
from seqloom.tasks.evaluation import answering, document_numbers
from seqloom.tasks.task import (
    LOSS,
    Baseline,
    Continuer,
    EvaluatedExample,
    HeadSettings,
    Metric,
    Prediction,
    ShellUsage,
    Streamer,
    TextPrediction,
)
from seqloom.text.special_tokens import BEGIN, END, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

CONTINUATION = 64  # most tokens of a continuation, if max_new_tokens is not given
STAND_IN = "x"  # for unknown tokens of a prompt: a word, and a character
EXPECTED = 3  # number of most likely next tokens in a prediction of a stream
PROBE, PROBES = 512, 3  # tokens to read, and how often, to see whether the state grows


@dataclass(frozen=True, repr=False)
class Continuation(TextPrediction):
    """A continuation of a prompt, its log-probability, and its finish reason: end, stop or length."""

    score: float
    finish_reason: FinishReason


def begun(inputs: Padded) -> Padded:
    """The prompts with BEGIN before each, unless they have it already."""
    if inputs.values.shape[1] and bool((inputs.values[:, 0] == BEGIN).all()):
        return inputs
    begin = torch.full_like(inputs.lengths, BEGIN)[:, None]
    return Padded(torch.cat([begin, inputs.values], dim=1), inputs.lengths + 1, None, inputs.full)


class TokenCandidate(NamedTuple):
    """A possible next token and its probability."""

    token: str
    probability: float


@dataclass(frozen=True, repr=False)
class NextPrediction(Prediction):
    """The loss of a token of a stream, and the most likely next tokens.

    `loss` is -log(probability of the token), in nats. `next` lists the most likely tokens after it.
    """

    loss: float
    next: tuple[TokenCandidate, ...]

    def to_json(self) -> dict[str, Any]:
        """`loss`, and `next` with `token` and `probability`."""
        return {"loss": self.loss, "next": [one._asdict() for one in self.next]}

    def to_text(self) -> str:
        return f"{self.loss:.4f}"


class Running(NamedTuple):
    """The inputs of a step of streams: each row continues where it stopped in the previous step."""

    tokens: Padded


def tokens_read(batch: Batch[Any, Tensor]) -> Padded:
    """The tokens of a batch before each target."""
    read: Padded = batch.inputs.tokens if isinstance(batch.inputs, Running) else batch.inputs
    return read


class BigramCounts(NamedTuple):
    """How often each token and each pair of tokens occurs in the training set.

        P(w) = (c(w) + 1) / (N + V)                                    add-one smoothing
        P(w | v) = (c(v, w) + t(v) P(w)) / (c(v) + t(v))               t(v): the different tokens after v

    The second is the interpolation of Witten and Bell (1991).
    """

    tokens: np.ndarray  # [V] c(w)
    before: np.ndarray  # [V] c(v)
    kinds: np.ndarray  # [V] t(v)
    pairs: np.ndarray  # v V + w of each pair that occurs, sorted
    counts: np.ndarray  # c(v, w)

    @classmethod
    def of(cls, batches: Sequence[Batch[Any, Tensor]], size: int) -> "BigramCounts":
        """The counts of batches, with a vocabulary of this size."""
        valid = [tokens_read(batch).valid.cpu().numpy() for batch in batches]
        read = [tokens_read(batch).values.cpu().numpy()[real] for batch, real in zip(batches, valid, strict=True)]
        before = np.concatenate(read).astype(np.int64)
        after = np.concatenate([batch.targets.cpu().numpy()[real] for batch, real in zip(batches, valid, strict=True)])
        pairs, counts = np.unique(before * size + after, return_counts=True)
        kinds = np.bincount(pairs // size, minlength=size)
        return cls(np.bincount(after, minlength=size), np.bincount(before, minlength=size), kinds, pairs, counts)

    def unigram(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """The probability of tokens, whatever comes before them."""
        return np.asarray((self.tokens[after] + 1) / (self.tokens.sum() + len(self.tokens)))

    def bigram(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """The probability of tokens after the tokens before them."""
        wanted = before.astype(np.int64) * len(self.tokens) + after
        places = np.searchsorted(self.pairs, wanted).clip(max=len(self.pairs) - 1)
        seen, kinds = np.where(self.pairs[places] == wanted, self.counts[places], 0), self.kinds[before]
        alone = self.unigram(before, after)
        return np.asarray(np.where(kinds, (seen + kinds * alone) / np.maximum(1, self.before[before] + kinds), alone))


class LanguageModeling(Streamer, Continuer):
    """The probability of a text, token by token."""

    name = "lm"
    default_recipe = "language-model", "lstm"
    settings = frozenset({"label_smoothing"})
    batchings = (ByLengthConfig, PacksConfig, StreamsConfig)
    metrics = (Metric("perplexity", higher_is_better=False), Metric("bits_per_byte", higher_is_better=False), LOSS)
    usage = ShellUsage('seqloom generate RUN "some text"', "seqloom generate RUN --file FILE")
    opening, closing = (BEGIN,), (END,)
    statistics = 4  # bytes of the original text, unknown tokens, loss, weight
    decoding: AnyDecoding = GreedyConfig()

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.spec.tokenizer is not None, "a schema with text has a tokenizer"
        return self.spec.tokenizer

    def model(self, recipe: str, size: AnySize, head: HeadSettings) -> LanguageModelConfig:
        self.require_settings(head)
        model = recipes.language_model(recipe, vocab_size=self.tokenizer.vocab_size, size=size)
        return msgspec.structs.replace(
            model, head=msgspec.structs.replace(model.head, label_smoothing=head.label_smoothing)
        )

    def require(self, model: AnyModel) -> None:
        written = require_shape(self, LanguageModelConfig, model).head.vocab_size
        if written != self.tokenizer.vocab_size:
            raise ConfigError(
                f"the data has a vocabulary of {self.tokenizer.vocab_size:,} tokens, but the model has {written:,}",
                fix=f"set vocab_size = {self.tokenizer.vocab_size} in its head",
            )

    def require_batching(self, model: nn.Module, batching: AnyBatching) -> None:
        """Raise ConfigError for streams if the state of the model grows with the text."""
        if isinstance(batching, StreamsConfig) and memory_grows(cast(LanguageModel, model)):
            raise ConfigError(
                "streams carry the state from step to step, but the state of this model grows with every token",
                fix="choose 'packs' or 'by-length', or a model with a bounded state, such as lstm or window",
            )

    def make_loader(self, prepared: Prepared, split: SplitName, batching: AnyBatching, seed: int) -> Loader[Any, Any]:
        """The batches of a split.

        A test set in streams is one row from its first token to its last, as in published results: no row starts in
        the middle of the text with an empty state.
        """
        if isinstance(batching, PacksConfig):
            return feed_packs(prepared, split, rows=batching.batch_rows, length=batching.row_length, seed=seed)
        if not isinstance(batching, StreamsConfig):
            return super().make_loader(prepared, split, batching, seed)
        rows, length = (
            (1, batching.batch_rows * batching.row_length)
            if split == "test"
            else (batching.batch_rows, batching.row_length)
        )
        streams = feed_streams(prepared, split, rows=rows, length=length, seed=seed)

        def running(cut: Any) -> Batch[Running, Tensor]:
            batch: Batch[Any, Tensor] = streams.make_batch(cut)
            return batch._replace(inputs=Running(batch.inputs))

        return Loader(streams.plan, running)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed loss; a step of streams passes on its state."""
        reading = cast(LanguageModel, model)
        if isinstance(batch.inputs, Running):
            return reading.continued_loss(batch._replace(inputs=batch.inputs.tokens), state)
        return reading.loss(batch), None

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """The evaluated documents of a batch, or the rows of streams, which start from a state."""
        reading = cast(LanguageModel, model)
        if isinstance(batch.inputs, Running):
            inputs = batch.inputs.tokens
            x, state = reading.continued_features(inputs, state)
        else:
            inputs, state = batch.inputs, None
            x = reading.features(inputs)
        losses = reading.head.losses(x, batch.targets)
        return list(self._evaluated(batch, inputs, losses)), state

    def _evaluated(self, batch: Batch[Any, Tensor], inputs: Padded, losses: Losses) -> Iterator[EvaluatedExample]:
        """Each document with its loss and its number of tokens; rows of streams that have ended are left out."""
        real, tokens = inputs.valid.cpu().numpy(), batch.targets.cpu().numpy()
        numbers, count = document_numbers(inputs)[real], len(batch.ids)
        worth = np.zeros_like(tokens) if batch.bytes is None else batch.bytes.cpu().numpy()
        tables = (worth, tokens == UNKNOWN, *(table.cpu().numpy() for table in losses))
        statistics = np.stack([np.bincount(numbers, table[real], count) for table in tables], axis=1)
        tokens, starts = tokens[real], np.searchsorted(numbers, np.arange(count + 1))
        for number, (id_, sums) in enumerate(zip(batch.ids, statistics, strict=True)):
            if sums[-1]:
                text = tokens[starts[number] : starts[number + 1]][:LONGEST]
                predicted = f"perplexity {self.measure(sums)['perplexity']:.4g}"
                yield EvaluatedExample(id_, predicted, text_shown(self.tokenizer, text[text != END]), None, sums)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`perplexity`, `bits_per_byte`, `unknown` (the share of tokens that are UNKNOWN) and `loss`."""
        worth, unknown, loss, weight = np.moveaxis(sums, -1, 0)
        mean = ratio(loss, weight)
        return {
            "perplexity": perplexity(mean),
            "bits_per_byte": ratio(loss, worth * math.log(2)),
            "unknown": ratio(unknown, weight),
            "loss": mean,
        }

    def constant_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """Unigrams: the frequency of each token."""
        return Baseline("token frequencies (unigrams)", self._counted(BigramCounts.of(train, self._size).unigram, dev))

    def simple_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """Bigrams: the frequency of each token after the token before it."""
        return Baseline(
            "counts of token pairs (bigrams)", self._counted(BigramCounts.of(train, self._size).bigram, dev)
        )

    @property
    def _size(self) -> int:
        return self.tokenizer.vocab_size

    def _counted(
        self, likely: Callable[[np.ndarray, np.ndarray], np.ndarray], dev: Sequence[Batch[Any, Tensor]]
    ) -> np.ndarray:
        """[N,S] the statistics of probabilities of a token after another."""
        found = list[np.ndarray]()
        for batch in dev:
            inputs = tokens_read(batch)
            losses = -np.log(likely(inputs.values.cpu().numpy(), batch.targets.cpu().numpy()))
            known = inputs.valid.cpu()
            values = torch.from_numpy(losses).masked_fill(~known, 0)
            found += [row.statistics for row in self._evaluated(batch, inputs, Losses(values, known.double()))]
        return np.stack(found)

    def signatures(self, statistics: np.ndarray) -> dict[str, str]:
        """Return what the tokenizer loses: it is not predicted, so bits per byte are too low."""
        if not (lost := self.tokenizer.config.forgets):
            return {}
        lacks = f"the tokenizer ignores {' and '.join(lost)}; compare only with models that ignore the same"
        return {"bits_per_byte": lacks}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[TextPrediction]:
        """The best continuation of each row, or the first sample."""
        prompt = begun(inputs)
        written = self._written(model, prompt, numbers_by_content(prompt))
        return [TextPrediction(answers[0].text) for answers in written]

    def continued(self, model: nn.Module, prompts: Sequence[str], numbers: Sequence[int]) -> list[list[TextPrediction]]:
        written = self._written(model, self._prompts(model, prompts), numbers)
        return [[Continuation(one.text, one.score, one.finish_reason) for one in answers] for answers in written]

    def streamed(self, model: nn.Module, prompt: str) -> Iterator[str]:
        writing, given = cast(LanguageModel, model), self._prompts(model, [prompt])
        most = self._most(writing, given)
        return stream(writing, writing.initial_state(1), given, most, self.decoding, decode=self._text)

    def rows(self, model: nn.Module, prompt: str, number: int) -> list[ContinuousRow]:
        how, given = self.decoding, self._prompts(model, [prompt])
        if isinstance(how, BeamConfig):
            raise ConfigError("the rows of a beam depend on one another", fix="leave out beam_size")
        most = int(self._most(cast(LanguageModel, model), given)[0])
        stops, before = Stops(how.stop, self._text, self.tokenizer.context), given.values[0].tolist()
        return [ContinuousRow(before, most, how, stops, number, answer) for answer in range(how.abreast)]

    def continuation(self, row: ContinuousRow) -> Continuation:
        one = row.draft.written()
        return Continuation(one.text, one.score, one.finish_reason)

    def answers_so_far(
        self, model: nn.Module, tokens: np.ndarray, scores: Tensor, memory: Any
    ) -> tuple[Sequence[NextPrediction], Any]:
        """The loss of each token and the most likely next tokens."""
        before = torch.cat([memory[None], scores[:-1]])
        losses = F.cross_entropy(before.float(), torch.from_numpy(tokens).long().to(scores.device), reduction="none")
        most = min(EXPECTED, scores.shape[-1])
        likely, which = scores.float().softmax(dim=-1).topk(most, dim=-1)
        rows = zip(losses.tolist(), which.tolist(), likely.tolist(), strict=True)
        piece = self.tokenizer.piece
        return [
            NextPrediction(
                loss, tuple(TokenCandidate(piece(one), share) for one, share in zip(found, shares, strict=True))
            )
            for loss, found, shares in rows
        ], scores[-1]

    def _written(self, model: nn.Module, prompt: Padded, numbers: Sequence[int]) -> list[list[GeneratedText]]:
        """The continuations of each row; `numbers` pick its random stream."""
        writing = cast(LanguageModel, model)
        start, most = writing.initial_state(len(prompt.lengths)), self._most(writing, prompt)
        return write(writing, start, prompt, most, self.decoding, decode=self._text, numbers=numbers)

    def _prompts(self, model: nn.Module, texts: Sequence[str]) -> Padded:
        """BEGIN and the tokens of each text, on the model's device."""
        tokens = self.tokenizer.encode(texts)
        rows = [torch.tensor([BEGIN, *tokens.row(row).tolist()]) for row in range(tokens.rows)]
        return Padded.stack(rows).to(cast(LanguageModel, model).device)

    def _text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, with a stand-in word for each unknown token, so that spaces are kept."""
        return self.tokenizer.decode_copying(tokens, [STAND_IN] * len(tokens))

    def _most(self, model: LanguageModel, prompt: Padded) -> Tensor:
        """[B] how many tokens may follow each row; DataError for a prompt that is too long."""
        longest = torch.full_like(prompt.lengths, self.decoding.max_new_tokens or CONTINUATION)
        return room(prompt, longest, positions_of(model.config.decoder))


def memory_grows(model: LanguageModel) -> bool:
    """Whether the state of a model grows with every token, without a limit."""
    x = Padded.of(torch.full((1, PROBE), BEGIN, device=model.device))
    state, sizes = model.initial_state(1), list[int]()
    with answering(model):
        for _ in range(PROBES):
            try:
                _, state = model.continued_features(x, state)
            except DataError:  # beyond the learned positions
                return True
            sizes.append(_size(state))
    return sizes[-1] > sizes[-2]


def _size(state: Any) -> int:
    """The number of values in a state."""
    return state.numel() if isinstance(state, Tensor) else sum(map(_size, state))
