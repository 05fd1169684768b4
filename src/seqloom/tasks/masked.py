"""Masked prediction: the symbols that were hidden in a text, given what stands on both sides of them.

    perplexity    exp of the mean loss over the hidden symbols
    accuracy      how many of them are the likeliest one

A model learns so from text alone; then `--init` starts a classifier or tagger from its encoder (Devlin et al. 2019).
Any encoder that sees both sides will do. Predicting fills what is written as [MASK].

Rows of about one length keep documents apart and whole; packs cut those that are longer than a row, and end each with
END. The default is `encoder`, the Transformer of Devlin et al.

Of the symbols 15 % are chosen, one at least. A chosen one is replaced by MASK eight times of ten, by any other symbol
once, and once it stays: so a model that is fine-tuned later, where no MASK ever stands, has learnt to look at every
symbol. The special symbols are never chosen.

In training the draws come from torch's generator, which a step seeds with its number: other masks in every epoch, the
same ones after a run was stopped. There 15 % are those of a row, whatever documents are packed into it. In evaluation
each document has its 15 %, and its own symbols decide which: the same ones always, alone or packed beside any others,
as a part of a run's data or as a file by itself.
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
from seqloom.config.data import Part
from seqloom.config.heads import NextTokenHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import AnyModel, ElementModelConfig
from seqloom.config.training import AnyFeed, ByLengthConfig, PacksConfig
from seqloom.data.kinds.text import cut_short
from seqloom.data.loader import Loader, feed_packs
from seqloom.data.prepared import Prepared
from seqloom.errors import ConfigError
from seqloom.metrics import perplexity, ratio
from seqloom.nn.heads import NextTokenHead
from seqloom.nn.models import ElementModel
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import Size
from seqloom.tasks.encoders import encoder_in, require_shape, sequences, stepped_input_of
from seqloom.tasks.evaluation import document_numbers
from seqloom.tasks.task import LOSS, Asking, HeadSettings, Judged, Meaning, Metric, Prediction, Task
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import COUNT, MASK
from seqloom.text.tokenizer import Tokenizer

GAP = "[MASK]"


class GapTokenizer(Tokenizer):
    """The tokeniser of a model for questions with gaps: wherever a text says [MASK], the symbol MASK stands.

    Texts that are learnt from are never read like this: there "[MASK]" is text like any other.

    >>> from seqloom.config.tokenizers import WordsConfig
    >>> plain = WordsConfig().fit(["the cat sat"])
    >>> GapTokenizer(plain).encode(["the [MASK] sat"]).values.tolist() == [*plain.encode(["the"]).values, MASK, 7]
    True
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer.config, tokenizer.cutter, tokenizer.dropped)
        # subwords begin with the space before them, so the space before a gap belongs to what is missing
        self._joined = tokenizer.config.kind() in ("bpe", "unigram")

    def encode_inner(self, texts: Sequence[str]) -> Ragged:
        """The symbols of each text without a frame, MASK where it has a gap."""
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


PER_CENT = 15  # of the symbols are chosen
MASKED, REPLACED = 0.8, 0.9  # below the first: MASK; below the second: another symbol; else it stays
DRAWS = 3


class MaskDraws(NamedTuple):
    """What chance decides: which symbols are hidden, and how."""

    places: Padded  # [B,K] where
    fate: Tensor  # [B,T] in 0..1: MASK, another symbol, or the same
    other: Tensor  # [B,T] in 0..1: which other symbol


class Hidden(NamedTuple):
    """A batch in which some symbols are hidden."""

    inputs: Padded  # [B,T] what is read
    places: Padded  # [B,K] where symbols are hidden
    targets: Tensor  # [B,K] which ones


def drawn(symbols: Padded) -> MaskDraws:
    """Draws for each row, from torch's generator of the device; nothing waits for the device."""
    values = symbols.values
    order, fate, other = torch.rand(DRAWS, *values.shape, device=values.device)
    hideable = _hideable(symbols)
    count = hideable.sum(dim=1)  # [B]
    most = min(values.shape[1], max(1, _share(values.shape[1])))  # known without asking the device
    first = order.masked_fill(~hideable, 2.0).argsort(dim=1)[:, :most]  # the smallest draws are chosen
    places = Padded(first, _share(count).clamp(min=1).minimum(count))
    return MaskDraws(places.with_values(first), fate, other)


def drawn_by_content(symbols: Padded) -> MaskDraws:
    """Draws for each document, from its symbols alone."""
    numbers, values = document_numbers(symbols), symbols.values.cpu().numpy().astype(np.int64)
    hideable = _hideable(symbols).cpu().numpy()  # neither padding nor the END of a packed document says anything
    draws = np.zeros((DRAWS, *numbers.shape), np.float32)
    for number in range(int(numbers.max(initial=-1)) + 1):
        mine = numbers == number
        chance = np.random.Generator(np.random.PCG64(crc32(values[mine & hideable].tobytes())))
        draws[:, mine] = chance.random((int(mine.sum()), DRAWS), np.float32).T
    order, fate, other = draws
    device = symbols.values.device
    first, counts = _first_of_documents(order, numbers, hideable)
    places = Padded(torch.from_numpy(first).to(device), torch.from_numpy(counts).to(device))
    return MaskDraws(places.with_values(places.values), *(torch.from_numpy(one).to(device) for one in (fate, other)))


def _first_of_documents(order: np.ndarray, numbers: np.ndarray, hideable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[B,K] the places of the smallest draws of each document, and [B] how many there are in each row."""
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
    """How many of so many symbols are chosen, for one count or a table of them."""
    return (count * PER_CENT + 50) // 100


def _hideable(symbols: Padded) -> Tensor:
    """[B,T] true where an ordinary symbol stands."""
    return symbols.valid & (symbols.values >= COUNT)


def hide(symbols: Padded, draws: MaskDraws, vocab_size: int) -> Hidden:
    """The batch with some of its symbols hidden, as the draws decide."""
    values, places = symbols.values, draws.places
    targets, fate, other = (each.gather(1, places.values) for each in (values, draws.fate, draws.other))  # [B,K]
    drawn_symbols = COUNT + (other * (vocab_size - COUNT)).long().clamp(max=vocab_size - COUNT - 1)
    instead = torch.where(fate < MASKED, MASK, torch.where(fate < REPLACED, drawn_symbols, targets))
    column = torch.where(places.valid, places.values, values.shape[1])  # one more column takes what is put nowhere
    wide = torch.cat([values, values[:, :1]], dim=1).scatter(1, column, instead)
    return Hidden(symbols._replace(values=wide[:, :-1]), places, targets)


LIKELIEST = 5  # symbols that are told for each gap


class Guess(NamedTuple):
    """A symbol that may stand in a gap."""

    text: str
    probability: float


@dataclass(frozen=True)
class FilledPrediction(Prediction):
    """What most likely stands in each gap of a text, the likeliest first, and the text with all gaps filled."""

    gaps: tuple[tuple[Guess, ...], ...]
    text: str = ""

    def located(self, given: Any) -> "FilledPrediction":
        """The same with the text that was asked about, its gaps filled; one that was not read stays a gap."""
        written = getattr(given, "text", given)  # of words: the text that they stand in
        first, *rest = written.split(GAP) if isinstance(written, str) else [""]
        likeliest = chain((guesses[0].text for guesses in self.gaps), repeat(GAP))  # without end
        filled = (f"{said}{part}" for said, part in zip(likeliest, rest, strict=False))
        return replace(self, text=first + "".join(filled))

    def to_json(self) -> dict[str, Any]:
        """`text` with all gaps filled, and `gaps`: for each the likeliest symbols with their probabilities."""
        return {"text": self.text, "gaps": [[guess._asdict() for guess in guesses] for guesses in self.gaps]}

    def shown(self) -> str:
        return " ".join(self.text.split())


class MaskedPrediction(Task):
    """The probability of hidden symbols."""

    name = "masked"
    made_by = "masked-model", "encoder"
    settings = frozenset({"smoothing"})
    feeds = (ByLengthConfig, PacksConfig)  # rows of streams go on from step to step, and both sides are looked at
    metrics = (Metric("perplexity", higher_is_better=False), Metric("accuracy"), LOSS)
    asking = Asking(f'echo "some {GAP} text" | seqloom predict RUN -', "seqloom predict RUN FILE")
    statistics = 3  # right ones, loss, weight

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the text."""
        assert self.meaning.tokenizer is not None, "a schema with text has a tokeniser"
        return self.meaning.tokenizer

    @property
    def asked(self) -> Meaning:
        """What texts with gaps mean."""
        return self.meaning._replace(tokenizer=GapTokenizer(self.tokenizer))

    def model(self, recipe: str, size: Size, head: HeadSettings) -> ElementModelConfig:
        self.require_settings(head)
        inputs = stepped_input_of(self.meaning)
        if not isinstance(inputs, TokensConfig):
            raise ConfigError(
                f"masked hides symbols, and the input '{inputs.kind()}' would tell them by something else",
                fix="leave --letters out",
            )
        model = recipes.masked_model(recipe, inputs=inputs, size=size)
        return msgspec.structs.replace(model, head=msgspec.structs.replace(model.head, smoothing=head.smoothing))

    def adapted(self, model: AnyModel) -> ElementModelConfig:
        """The same encoder with a head that reads its vocabulary."""
        if not isinstance(model, ElementModelConfig) or not isinstance(model.head, NextTokenHeadConfig):
            encoder = encoder_in(self, ElementModelConfig, model)
            model = ElementModelConfig(encoder=encoder, head=NextTokenHeadConfig(vocab_size=self.tokenizer.vocab_size))
        self.require(model)
        return model

    def require(self, model: AnyModel) -> None:
        head, size = require_shape(self, ElementModelConfig, model).head, self.tokenizer.vocab_size
        if not isinstance(head, NextTokenHeadConfig) or head.vocab_size != size:
            raise ConfigError(
                f"masked needs a head that reads {size:,} symbols, found '{head.kind()}'",
                fix=f"give it a head of kind next-token with vocab_size = {size}",
            )

    def fed(self, prepared: Prepared, part: Part, feed: AnyFeed, seed: int) -> Loader[Any, Any]:
        """The steps of a part; rows of packs hold what a language model would say: all symbols, and ENDs."""
        if not isinstance(feed, PacksConfig):
            return super().fed(prepared, part, feed, seed)
        packs = feed_packs(prepared, part, rows=feed.rows, length=feed.length, seed=seed)

        def unshifted(packed: Any) -> Batch[Padded, Tensor]:
            batch: Batch[Padded, Tensor] = packs.make_batch(packed)
            return batch._replace(inputs=batch.inputs._replace(values=batch.targets))

        return Loader(packs.plan, unshifted)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed loss of the hidden symbols, drawn anew at every step."""
        hidden = hide(batch.inputs, drawn(batch.inputs), self.tokenizer.vocab_size)
        return cast(ElementModel, model).head.loss(_read(model, hidden), hidden.targets), None

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each document judged by the symbols that it decides by itself; one without a symbol to hide is left out."""
        hidden = hide(batch.inputs, drawn_by_content(batch.inputs), self.tokenizer.vocab_size)
        x, head = _read(model, hidden), cast(NextTokenHead, cast(ElementModel, model).head)
        losses, said = head.losses(x, hidden.targets), head.predict(x)
        real = hidden.places.valid.cpu().numpy()
        numbers = np.take_along_axis(document_numbers(batch.inputs), hidden.places.values.cpu().numpy(), axis=1)[real]
        right = (said == hidden.targets).cpu().numpy()
        tables = [table[real] for table in (right, *(table.cpu().numpy() for table in losses))]
        statistics = np.stack([np.bincount(numbers, table, len(batch.ids)) for table in tables], axis=1)
        answers, true = (table.cpu().numpy()[real] for table in (said, hidden.targets))
        return [
            Judged(id_, self._shown(answers[numbers == number]), self._shown(true[numbers == number]), None, sums)
            for number, (id_, sums) in enumerate(zip(batch.ids, statistics, strict=True))
            if sums[-1]
        ], None

    def _shown(self, symbols: np.ndarray) -> str:
        return cut_short(", ".join(map(self._text, symbols.tolist())))

    def _text(self, symbol: int) -> str:
        """A symbol as it is filled in: subwords without the space that they begin with."""
        return self.tokenizer.decode([symbol]) or self.tokenizer.piece(symbol)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        right, loss, weight = np.moveaxis(sums, -1, 0)
        mean = ratio(loss, weight)
        return {"perplexity": perplexity(mean), "accuracy": ratio(right, weight), "loss": mean}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[FilledPrediction]:
        """What most likely stands where MASK stands, in each row."""
        symbols: Padded = sequences(inputs)
        with torch.no_grad():
            scores = cast(ElementModel, model)(symbols).values
        found = []
        for row, values in zip(scores, symbols.values, strict=True):
            probabilities = row[values == MASK].float().softmax(dim=-1).topk(min(LIKELIEST, scores.shape[-1]))
            pairs = zip(probabilities.indices.tolist(), probabilities.values.tolist(), strict=True)
            found.append(FilledPrediction(tuple(tuple(map(self._guess, *gap)) for gap in pairs)))
        return found

    def _guess(self, symbol: int, probability: float) -> Guess:
        return Guess(self._text(symbol), probability)


def _read(model: nn.Module, hidden: Hidden) -> Padded:
    """[B,K,D] the vectors from which hidden symbols are read."""
    x: Padded = cast(ElementModel, model).features(hidden.inputs)
    return x.pick(hidden.places)
