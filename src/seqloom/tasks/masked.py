"""Masked language modeling: predict masked tokens from the text on both sides.

    perplexity    exp of the mean loss over the masked tokens
    accuracy      the share of masked tokens whose most likely token is correct

Pretrain on text alone, then start a classifier or tagger from the encoder with `--init` (Devlin et al. 2019). Any
encoder that sees both sides can be used. `predict` fills each [MASK] in a text.

Batches by length do not split documents; packs split documents that are longer than a row, and end each with END. The
default is `encoder`, the Transformer of Devlin et al.

15 % of the tokens are selected, at least one. Of these, 80 % become MASK, 10 % another token, and 10 % stay, so that
the model learns to use every token and not only MASK. Special tokens are never selected.

In training, masks are drawn from torch's generator, which each step seeds with its number: they differ between epochs,
and are the same after a run is resumed. They cover 15 % of each row. In evaluation they cover 15 % of each document,
and depend only on its tokens: they are the same alone or packed with others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, NamedTuple, cast
from zlib import crc32

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.data import SplitName
from seqloom.config.heads import NextTokenHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import AnyModel, ElementModelConfig
from seqloom.config.training import AnyBatching, ByLengthConfig, PacksConfig
from seqloom.data.kinds.text import cut_short
from seqloom.data.loader import Loader, feed_packs
from seqloom.data.prepared import Prepared
from seqloom.errors import ConfigError
from seqloom.metrics.bootstrap import perplexity, ratio
from seqloom.nn.heads import NextTokenHead
from seqloom.nn.models import ElementModel
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import AnySize
from seqloom.tasks.encoders import encoder_in, require_shape, sequences, stepped_input_of
from seqloom.tasks.evaluation import document_numbers
from seqloom.tasks.task import (
    LOSS,
    Baseline,
    EvaluatedExample,
    HeadSettings,
    Metric,
    ModelSpec,
    Prediction,
    ShellUsage,
    Task,
)
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import COUNT, MASK
from seqloom.text.tokenizer import Tokenizer

GAP = "[MASK]"


class GapTokenizer(Tokenizer):
    """The tokenizer for prediction: "[MASK]" in a text is the token MASK.

    In training data, "[MASK]" is ordinary text.

    >>> from seqloom.config.tokenizers import WordsConfig
    >>> plain = WordsConfig().fit(["the cat sat"])
    >>> GapTokenizer(plain).encode(["the [MASK] sat"]).values.tolist() == [*plain.encode(["the"]).values, MASK, 7]
    True
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer.config, tokenizer.segmenter, tokenizer.dropped)
        # subwords start with the space before them, so the space before a mask belongs to the missing token
        self._joined = tokenizer.config.kind() in ("bpe", "unigram")

    def encode_inner(self, texts: Sequence[str]) -> Ragged:
        """The tokens of each text without special tokens around it, with MASK for each [MASK]."""
        split = [self._parts(text) for text in texts]
        encoded = super().encode_inner([part for parts in split for part in parts])
        rows, first = [], 0
        for parts in split:
            pieces = [encoded.row(number) for number in range(first, first + len(parts))]
            rows.append(np.concatenate([pieces[0], *(half for one in pieces[1:] for half in ([MASK], one))]))
            first += len(parts)
        return Ragged.of(rows, np.int32)

    def _parts(self, text: str) -> list[str]:
        *before, last = text.split(GAP)
        return [*(part.removesuffix(" ") if self._joined else part for part in before), last]


PER_CENT = 15  # of the tokens are selected
MASKED, REPLACED = 0.8, 0.9  # below the first: MASK; below the second: another token; else unchanged
DRAWS = 3


class MaskDraws(NamedTuple):
    """Random draws: which tokens are masked, and how."""

    places: Padded  # [B,K] where
    fate: Tensor  # [B,T] in 0..1: MASK, another token, or the same
    other: Tensor  # [B,T] in 0..1: which other token


class Hidden(NamedTuple):
    """A batch in which some tokens are masked."""

    inputs: Padded  # [B,T] what the model reads
    places: Padded  # [B,K] the positions of masked tokens
    targets: Tensor  # [B,K] the masked tokens


def drawn(tokens: Padded) -> MaskDraws:
    """Draws for each row from torch's generator of the device, without synchronizing with it."""
    values = tokens.values
    order, fate, other = torch.rand(DRAWS, *values.shape, device=values.device)
    hideable = _hideable(tokens)
    count = hideable.sum(dim=1)  # [B]
    most = min(values.shape[1], max(1, _share(values.shape[1])))  # known without synchronizing
    first = order.masked_fill(~hideable, 2.0).argsort(dim=1)[:, :most]  # the smallest draws are selected
    places = Padded(first, _share(count).clamp(min=1).minimum(count))
    return MaskDraws(places.with_values(first), fate, other)


def drawn_by_content(tokens: Padded) -> MaskDraws:
    """Draws for each document, from its tokens alone."""
    numbers, values = document_numbers(tokens), tokens.values.cpu().numpy().astype(np.int64)
    hideable = _hideable(tokens).cpu().numpy()  # neither padding nor END
    draws = np.zeros((DRAWS, *numbers.shape), np.float32)
    for number in range(int(numbers.max(initial=-1)) + 1):
        mine = numbers == number
        chance = np.random.Generator(np.random.PCG64(crc32(values[mine & hideable].tobytes())))
        draws[:, mine] = chance.random((int(mine.sum()), DRAWS), np.float32).T
    order, fate, other = draws
    device = tokens.values.device
    first, counts = _first_of_documents(order, numbers, hideable)
    places = Padded(torch.from_numpy(first).to(device), torch.from_numpy(counts).to(device))
    return MaskDraws(places.with_values(places.values), *(torch.from_numpy(one).to(device) for one in (fate, other)))


def _first_of_documents(order: np.ndarray, numbers: np.ndarray, hideable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[B,K] the positions of the smallest draws of each document, and [B] how many each row has."""
    rows, columns = np.nonzero(hideable)
    owner = numbers[rows, columns]
    counts = np.bincount(owner)
    sequence = np.lexsort((order[rows, columns], owner))  # document by document, the smallest draws first
    rank = np.arange(len(sequence)) - (np.cumsum(counts) - counts)[owner[sequence]]  # within its document
    chosen = sequence[rank < np.maximum(1, _share(counts))[owner[sequence]]]
    late = np.full(order.shape, len(chosen), np.int64)
    late[rows[chosen], columns[chosen]] = np.arange(len(chosen))
    found = (late < len(chosen)).sum(axis=1)
    return late.argsort(axis=1, kind="stable")[:, : max(1, int(found.max()))], found


def _share(count: Any) -> Any:
    """How many tokens are selected of `count`, a number or an array."""
    return (count * PER_CENT + 50) // 100


def _hideable(tokens: Padded) -> Tensor:
    """[B,T] true for ordinary tokens."""
    return tokens.valid & (tokens.values >= COUNT)


def hide(tokens: Padded, draws: MaskDraws, vocab_size: int) -> Hidden:
    """The batch with some tokens masked, by the draws."""
    values, places = tokens.values, draws.places
    targets, fate, other = (each.gather(1, places.values) for each in (values, draws.fate, draws.other))  # [B,K]
    drawn_tokens = COUNT + (other * (vocab_size - COUNT)).long().clamp(max=vocab_size - COUNT - 1)
    instead = torch.where(fate < MASKED, MASK, torch.where(fate < REPLACED, drawn_tokens, targets))
    column = torch.where(places.valid, places.values, values.shape[1])  # one more column takes padding
    wide = torch.cat([values, values[:, :1]], dim=1).scatter(1, column, instead)
    return Hidden(tokens._replace(values=wide[:, :-1]), places, targets)


LIKELIEST = 5  # candidates for each mask


class MaskCandidate(NamedTuple):
    """A token for a mask, and its probability."""

    text: str
    probability: float


@dataclass(frozen=True, repr=False)
class FilledPrediction(Prediction):
    """The most likely tokens for each [MASK], the likeliest first, and the text with all masks filled."""

    masks: tuple[tuple[MaskCandidate, ...], ...]
    text: str = ""

    def with_input(self, given: Any) -> "FilledPrediction":
        """The same with its text, all masks filled; a mask beyond the longest input stays."""
        written = getattr(given, "text", given)  # for words: their text
        first, *rest = written.split(GAP) if isinstance(written, str) else [""]
        likeliest = chain((guesses[0].text for guesses in self.masks), repeat(GAP))  # endless
        filled = (f"{predicted}{part}" for predicted, part in zip(likeliest, rest, strict=False))
        return replace(self, text=first + "".join(filled))

    def to_json(self) -> dict[str, Any]:
        """`text` with all masks filled, and `masks`: the most likely tokens for each, with `text` and `probability`."""
        return {"text": self.text, "masks": [[guess._asdict() for guess in guesses] for guesses in self.masks]}

    def to_text(self) -> str:
        return " ".join(self.text.split())


class MaskedPrediction(Task):
    """The probability of masked tokens."""

    name = "masked"
    default_recipe = "masked-model", "encoder"
    settings = frozenset({"label_smoothing"})
    batchings = (ByLengthConfig, PacksConfig)  # streams only carry the left side
    metrics = (Metric("perplexity", higher_is_better=False), Metric("accuracy"), LOSS)
    usage = ShellUsage(f'echo "some {GAP} text" | seqloom predict RUN -', "seqloom predict RUN FILE")
    statistics = 3  # correct tokens, loss, weight

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.spec.tokenizer is not None, "a schema with text has a tokenizer"
        return self.spec.tokenizer

    @property
    def input_spec(self) -> ModelSpec:
        """Texts for prediction have masks."""
        return self.spec._replace(tokenizer=GapTokenizer(self.tokenizer))

    def model(self, recipe: str, size: AnySize, head: HeadSettings) -> ElementModelConfig:
        self.require_settings(head)
        inputs = stepped_input_of(self.spec)
        if not isinstance(inputs, TokensConfig):
            raise ConfigError(
                f"the input '{inputs.kind()}' reads characters, which would reveal masked words",
                fix="leave out --char-encoder",
            )
        model = recipes.masked_model(recipe, inputs=inputs, size=size)
        return msgspec.structs.replace(
            model, head=msgspec.structs.replace(model.head, label_smoothing=head.label_smoothing)
        )

    def adapted(self, model: AnyModel) -> ElementModelConfig:
        """The same encoder with a head over the vocabulary."""
        if not isinstance(model, ElementModelConfig) or not isinstance(model.head, NextTokenHeadConfig):
            encoder = encoder_in(self, ElementModelConfig, model)
            model = ElementModelConfig(encoder=encoder, head=NextTokenHeadConfig(vocab_size=self.tokenizer.vocab_size))
        self.require(model)
        return model

    def require(self, model: AnyModel) -> None:
        head, size = require_shape(self, ElementModelConfig, model).head, self.tokenizer.vocab_size
        if not isinstance(head, NextTokenHeadConfig) or head.vocab_size != size:
            raise ConfigError(
                f"masked needs a head over {size:,} tokens, found '{head.kind()}'",
                fix=f"give it a head of kind next-token with vocab_size = {size}",
            )

    def make_loader(self, prepared: Prepared, split: SplitName, batching: AnyBatching, seed: int) -> Loader[Any, Any]:
        """The batches of a split; rows of packs hold all tokens and END of each document."""
        if not isinstance(batching, PacksConfig):
            return super().make_loader(prepared, split, batching, seed)
        packs = feed_packs(prepared, split, rows=batching.batch_rows, length=batching.row_length, seed=seed)

        def unshifted(packed: Any) -> Batch[Padded, Tensor]:
            batch: Batch[Padded, Tensor] = packs.make_batch(packed)
            return batch._replace(inputs=batch.inputs._replace(values=batch.targets))

        return Loader(packs.plan, unshifted)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed loss of the masked tokens, drawn anew at every step."""
        hidden = hide(batch.inputs, drawn(batch.inputs), self.tokenizer.vocab_size)
        return cast(ElementModel, model).head.loss(_read(model, hidden), hidden.targets), None

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """The evaluated documents, masked by their content; documents without maskable tokens are left out."""
        hidden = hide(batch.inputs, drawn_by_content(batch.inputs), self.tokenizer.vocab_size)
        x, head = _read(model, hidden), cast(NextTokenHead, cast(ElementModel, model).head)
        return self._documents(batch, hidden, head.losses(x, hidden.targets), head.predict(x)), None

    def _documents(
        self, batch: Batch[Any, Tensor], hidden: Hidden, losses: tuple[Tensor, Tensor], predicted: Tensor
    ) -> list[EvaluatedExample]:
        """The evaluated documents, from losses, weights and predictions [B,K] of the masked tokens."""
        real = hidden.places.valid.cpu().numpy()
        numbers = np.take_along_axis(document_numbers(batch.inputs), hidden.places.values.cpu().numpy(), axis=1)[real]
        correct = (predicted == hidden.targets).cpu().numpy()
        tables = [table[real] for table in (correct, *(table.cpu().numpy() for table in losses))]
        statistics = np.stack([np.bincount(numbers, table, len(batch.ids)) for table in tables], axis=1)
        answers, expected = (table.cpu().numpy()[real] for table in (predicted, hidden.targets))
        return [
            EvaluatedExample(
                id_, self._shown(answers[numbers == number]), self._shown(expected[numbers == number]), None, sums
            )
            for number, (id_, sums) in enumerate(zip(batch.ids, statistics, strict=True))
            if sums[-1]
        ]

    def _shown(self, tokens: np.ndarray) -> str:
        return cut_short(", ".join(map(self._text, tokens.tolist())))

    def _text(self, token: int) -> str:
        """A token as it is filled in: subwords without their leading space."""
        return self.tokenizer.decode([token]) or self.tokenizer.piece(token)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        correct, loss, weight = np.moveaxis(sums, -1, 0)
        mean = ratio(loss, weight)
        return {"perplexity": perplexity(mean), "accuracy": ratio(correct, weight), "loss": mean}

    def constant_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """Unigrams: the frequency of each token, whatever is around the mask; the most frequent one is predicted.

        P(w) = (c(w) + 1) / (N + V), add-one smoothing.
        """
        size = self.tokenizer.vocab_size
        counts = torch.zeros(size, dtype=torch.float64)
        for batch in train:
            counts += batch.inputs.values[_hideable(batch.inputs)].cpu().bincount(minlength=size)
        losses, likeliest = -((counts + 1) / (counts.sum() + size)).log(), counts.argmax()
        found = list[np.ndarray]()
        for batch in dev:
            hidden = hide(batch.inputs, drawn_by_content(batch.inputs), size)
            known = hidden.places.valid
            values = losses[hidden.targets.cpu()].to(known.device).masked_fill(~known, 0)
            predicted = torch.full_like(hidden.targets, int(likeliest))
            found += [row.statistics for row in self._documents(batch, hidden, (values, known.double()), predicted)]
        return Baseline("token frequencies (unigrams)", np.stack(found)) if found else None

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[FilledPrediction]:
        """The most likely tokens for each MASK of each row."""
        tokens: Padded = sequences(inputs)
        with torch.no_grad():
            scores = cast(ElementModel, model)(tokens).values
        found = []
        for row, values in zip(scores, tokens.values, strict=True):
            # special tokens are never candidates
            probabilities = row[values == MASK].float().softmax(dim=-1)[:, COUNT:]
            likeliest = probabilities.topk(min(LIKELIEST, probabilities.shape[-1]))
            pairs = zip((likeliest.indices + COUNT).tolist(), likeliest.values.tolist(), strict=True)
            found.append(FilledPrediction(tuple(tuple(map(self._guess, *gap)) for gap in pairs)))
        return found

    def _guess(self, token: int, probability: float) -> MaskCandidate:
        return MaskCandidate(self._text(token), probability)


def _read(model: nn.Module, hidden: Hidden) -> Padded:
    """[B,K,D] the vectors of masked tokens."""
    x: Padded = cast(ElementModel, model).features(hidden.inputs)
    return x.pick(hidden.places)
