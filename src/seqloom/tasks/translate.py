"""Translate: a text from another text, from vectors or from a picture, written greedily or with a beam.

    exact_match       the share of examples whose whole answer is the true one, symbol for symbol
    bleu              of the text as people read it, against the original one, 0..100; see `seqloom.metrics.text`
    bleu_tokenised    of words between spaces, in the case in which the model writes: as the literature reports it
    chrf              of characters, 0..100
    perplexity        exp of the mean loss over true symbols and END, each given the true ones before it

Where the truth holds a symbol that the vocabulary lacks, no answer is exact. The default is the
`transformer`: on the embedded dates its loss was 0.002 after 870 steps, where `seq2seq-dot` had 0.41 after 2,030.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.models import AnyModel, EncoderDecoderConfig
from seqloom.config.tokenizers import BpeConfig
from seqloom.data.kinds.text import cut_short, text_shown
from seqloom.decoding.alignment import alignment, looking
from seqloom.decoding.answers import NEVER, Written, begins, positions_of, room
from seqloom.decoding.decode import numbers_by_content, write
from seqloom.errors import ConfigError
from seqloom.metrics import perplexity, ratio
from seqloom.metrics import text as texts
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.types import Batch, Loss, Padded, Pair
from seqloom.recipes.families import Size
from seqloom.tasks.encoders import input_of, require_shape, sequences
from seqloom.tasks.task import LOSS, Asking, HeadSettings, Judged, Meaning, Metric, TextPrediction, Translator
from seqloom.text.special_tokens import BEGIN, UNKNOWN
from seqloom.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Copying:
    """Unknown replacement (Luong et al. 2015): what fills the gaps of an answer once its source text is known.

        source      Ms Quark sleeps          the model may say UNKNOWN; where it does, the word of the source that it
        says        Frau <unknown> schläft   looked at most is put there: names and numbers are alike in both languages
        answer      Frau Quark schläft

    It needs a model that looks at its source, and tokenisers of one kind on both sides, which leave something unknown.
    """

    symbols: tuple[int, ...]
    looked: tuple[int, ...]  # for each UNKNOWN among them: the element of the source
    source: Tokenizer
    target: Tokenizer

    def text(self, given: str) -> str:
        """The answer to this source text, its gaps filled."""
        spans = self.source.encode_with_offsets(given).spans.tolist()
        return self.target.decode_copying(self.symbols, [given[slice(*spans[place])] for place in self.looked])


@dataclass(frozen=True)
class Translation(TextPrediction):
    """The best text for a source, and the next best ones, where several were asked for."""

    score: float | None = None  # the higher the better, among the answers to one source
    others: tuple["Translation", ...] = ()  # the best first

    def to_json(self) -> dict[str, Any]:
        """`text`; where several were asked for, `score` and `others`, each with text and score."""
        score = {} if self.score is None else {"score": self.score}
        others = {"others": [other.to_json() for other in self.others]} if self.others else {}
        return {"text": self.text} | score | others


@dataclass(frozen=True)
class Gapped(Translation):
    """A text with gaps, which the words of its source fill."""

    copying: Copying | None = None

    def located(self, given: Any) -> Translation:
        """The text with the words of this source in its gaps."""
        assert self.copying is not None
        others = tuple(cast(Translation, other.located(given)) for other in self.others)
        return Translation(self.copying.text(given), self.score, others)


def require_copying(meaning: Meaning, model: nn.Module) -> None:
    """Raise ConfigError where no word can be copied, with the reason."""
    source, target = meaning.tokenizer, meaning.target_tokenizer
    if not meaning.schema.input.is_text or source is None or target is None:
        raise ConfigError(
            f"unknown replacement copies words of a text, and the model reads {meaning.schema.input}",
            fix="leave it out",
        )
    kinds = source.config.kind(), target.config.kind()
    if not target.has_unknown:
        raise ConfigError(f"a tokeniser of {kinds[1]} can write every text, so nothing is unknown", fix="leave it out")
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"unknown replacement copies what the source is cut into, {kinds[0]}, and answers are cut into {kinds[1]}",
            fix="leave it out, or train with one tokeniser for both sides",
        )
    if looking(cast(EncoderDecoder, model)) is None:
        raise ConfigError("unknown replacement needs a model that looks at its source", fix="train seq2seq-dot")


def copying(meaning: Meaning, model: nn.Module, source: Padded, symbols: Sequence[int]) -> Copying:
    """What fills the gaps of an answer to one source, a batch of one row."""
    assert meaning.tokenizer is not None and meaning.target_tokenizer is not None
    gaps = [place for place, symbol in enumerate(symbols) if symbol == UNKNOWN]
    looked: list[int] = []
    if gaps:
        read = torch.tensor([[BEGIN, *symbols[:-1]]], device=source.values.device)
        weights = alignment(cast(EncoderDecoder, model), source, Padded.of(read))
        assert weights is not None, "`require_copying` was asked"
        looked = weights[gaps, : int(source.lengths[0])].argmax(dim=-1).tolist()
    return Copying(tuple(symbols), tuple(looked), meaning.tokenizer, meaning.target_tokenizer)


ALONG, BEYOND, OTHERWISE = 2, 32, 8  # an answer has at most ALONG x source + BEYOND symbols; see `most_symbols`


class Translate(Translator):
    """A text for each example."""

    name = "translate"
    made_by = "translator", "transformer"
    settings = frozenset({"smoothing"})
    usual_tokenizer = BpeConfig()  # new words must be written
    metrics = (Metric("exact_match"), Metric("bleu"), Metric("bleu_tokenised"), Metric("chrf"), LOSS)
    asking = Asking('echo "some text" | seqloom translate RUN', "seqloom translate RUN FILE")
    statistics = 2 + texts.TEXT_STATISTICS + 2  # examples, exact ones, those of texts, loss, weight
    copies = False  # whether words that the vocabulary lacks are copied from the source

    def copying(self, model: nn.Module) -> Self:
        require_copying(self.meaning, model)
        chosen = copy.copy(self)
        chosen.copies = True
        return chosen

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the answers."""
        assert self.meaning.target_tokenizer is not None, "a schema with a target text has a tokeniser for it"
        return self.meaning.target_tokenizer

    def model(self, recipe: str, size: Size, head: HeadSettings) -> EncoderDecoderConfig:
        self.require_settings(head)
        source, vocab_size = input_of(self.meaning), self.tokenizer.vocab_size
        model = recipes.translator(recipe, source=source, target_vocab_size=vocab_size, size=size)
        return msgspec.structs.replace(model, head=msgspec.structs.replace(model.head, smoothing=head.smoothing))

    def require(self, model: AnyModel) -> None:
        written = require_shape(self, EncoderDecoderConfig, model).head.vocab_size
        if written != self.tokenizer.vocab_size:
            raise ConfigError(
                f"answers have {self.tokenizer.vocab_size:,} symbols, and the model writes {written:,}",
                fix=f"set vocab_size = {self.tokenizer.vocab_size} in its head and its decoder's input",
            )

    def loss(self, model: nn.Module, batch: Batch[Pair, Tensor], state: Any) -> tuple[Loss, Any]:
        return cast(EncoderDecoder, model).loss(batch._replace(inputs=_read(batch.inputs))), None

    def judge(self, model: nn.Module, batch: Batch[Pair, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each row judged: right if the whole answer is the true one."""
        writing, inputs = cast(EncoderDecoder, model), _read(batch.inputs)
        losses = writing.head.losses(writing.features(inputs), batch.targets)
        rows = zip(batch.targets.tolist(), inputs.target.lengths.tolist(), strict=True)
        true = [symbols[: length - 1] for symbols, length in rows]
        references = batch.references or [self.tokenizer.decode(symbols) for symbols in true]
        said, sums = self.written(model, inputs.source), [column.tolist() for column in losses.of_rows()]
        return list(map(self._judged, batch.ids, said, true, references, *sums)), None

    def _judged(self, id_: str, said: list[int], true: list[int], reference: str, loss: float, weight: float) -> Judged:
        right = said == true and UNKNOWN not in true
        tokenizer, text = self.tokenizer, self.tokenizer.decode(said)
        (normalised,) = tokenizer.normalised([reference])
        counts = texts.text_statistics(
            text, reference, said_tokenised=tokenizer.tokenised(said), true_tokenised=normalised
        )
        statistics = np.array([1, right, *counts, loss, weight], np.float64)
        return Judged(id_, text_shown(tokenizer, said), cut_short(reference), right, statistics)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        examples, right, loss, weight = (sums[..., place] for place in (0, 1, -2, -1))
        mean = ratio(loss, weight)
        scores = texts.text_scores(sums[..., 2:-2])
        return {"exact_match": ratio(right, examples)} | scores | {"loss": mean, "perplexity": perplexity(mean)}

    def agreed(self, rows: np.ndarray, everyone: np.ndarray) -> np.ndarray:
        """Rows whose `bleu_tokenised` follows the rule that all true texts decide on."""
        told = rows.copy()
        told[:, 2:-2] = texts.agreed(rows[:, 2:-2], everyone[:, 2:-2])
        return told

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """BLEU, where no answer has words enough for it."""
        return texts.too_short(self.summed(statistics)[2:-2])

    def signatures(self, statistics: np.ndarray) -> dict[str, str]:
        """Those of BLEU and chrF, as sacreBLEU writes them."""
        return texts.text_signatures(self.summed(statistics)[2:-2], lower=self.tokenizer.config.lower)

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[Translation]:
        """The text for each row of sources, and the next best ones if several were asked for."""
        source = sequences(inputs.source if isinstance(inputs, Pair) else inputs)
        answers = self.answers(model, source)
        return [self._prediction(model, source, row, few) for row, few in enumerate(answers)]

    def _prediction(self, model: nn.Module, source: Any, row: int, answers: list[Written]) -> Translation:
        best, *others = self._predictions(model, source, row, answers)
        return dataclasses.replace(best, others=tuple(others))

    def _predictions(self, model: nn.Module, source: Any, row: int, answers: list[Written]) -> Iterator[Translation]:
        """A prediction for each answer to a row."""
        for symbols, score, _, text in answers:
            told = score if len(answers) > 1 else None
            if not self.copies:
                yield Translation(text, told)
            else:
                alone = source.select(torch.tensor([row], device=source.lengths.device))
                yield Gapped(text, told, copying=copying(self.meaning, model, alone, symbols))

    def written(self, model: nn.Module, source: Any) -> list[list[int]]:
        """The symbols of the best answer to each row of sources."""
        return [answers[0].symbols for answers in self.answers(model, source)]

    def answers(self, model: nn.Module, source: Any) -> list[list[Written]]:
        """The answers to each row of sources, the best first; a source draws by what it holds, wherever it stands."""
        writing, how = cast(EncoderDecoder, model), self.decoding
        if isinstance(source, Padded):
            lengths = source.lengths
        else:  # the rows of pixels of each picture stand for a length
            lengths = torch.full((len(source),), source.shape[1], device=source.device)
        most = self.most_symbols(lengths)
        most = most if how.longest is None else most.clamp(max=how.longest)
        prompt = begins(len(lengths), lengths.device)
        never = [symbol for symbol in NEVER if not (self.copies and symbol == UNKNOWN)]
        most = room(prompt, most, positions_of(writing.config.decoder))
        with torch.no_grad():
            state = writing.initial_state(source)
            return write(
                writing,
                state,
                prompt,
                most,
                how,
                decode=self.tokenizer.decode,
                looks=looking(writing),
                numbers=numbers_by_content(source),
                never=never,
            )

    def most_symbols(self, lengths: Tensor) -> Tensor:
        """[B] how long an answer to a source of each length may become.

        Twice the source and some more, where both sides are cut by one kind of tokeniser; where not, a word of the
        source may stand for many symbols of the answer.
        """
        source = self.meaning.tokenizer
        alike = source is not None and source.config.kind() == self.tokenizer.config.kind()
        return lengths * (ALONG if alike else OTHERWISE) + BEYOND


def _read(inputs: Pair) -> Pair:
    return inputs._replace(source=sequences(inputs.source))
