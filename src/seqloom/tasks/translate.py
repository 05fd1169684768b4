"""Translate: a text from another text, from vectors or from a picture, decoded greedily or with a beam.

    bleu              of detokenized text against the original reference, 0..100; see `seqloom.metrics.text`
    bleu_tokenized    of tokens between spaces, in the case of the model: as papers report it
    chrf              of characters, 0..100
    exact_match       the share of examples whose complete text is correct, token for token
    perplexity        exp of the mean loss over target tokens and END (teacher forcing)

BLEU decides; chrF for texts without spaces; exact match if most targets are single forms, such as dates or inflected
words. A target with a token that the vocabulary lacks never matches exactly. The default is the `transformer`: on the
embedded dates its loss was 0.002 after 870 steps, where `seq2seq-dot` had 0.41 after 2,030.
"""

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.decoding import AnyDecoding, GreedyConfig
from seqloom.config.models import AnyModel, EncoderDecoderConfig
from seqloom.data.kinds.text import cut_short, text_shown
from seqloom.data.prepared import Prepared
from seqloom.decoding.alignment import alignment, watching
from seqloom.decoding.answers import NEVER, GeneratedText, begins, positions_of, room
from seqloom.decoding.decode import numbers_by_content, write
from seqloom.errors import ConfigError
from seqloom.metrics import text as texts
from seqloom.metrics.bootstrap import perplexity, ratio
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.types import Batch, Loss, Padded, Pair
from seqloom.recipes.families import AnySize
from seqloom.tasks.encoders import input_of, require_shape, sequences
from seqloom.tasks.task import (
    LOSS,
    Baseline,
    EvaluatedExample,
    HeadSettings,
    Metric,
    ModelSpec,
    ShellUsage,
    TextPrediction,
    Translator,
)
from seqloom.text.special_tokens import BEGIN, END, UNKNOWN
from seqloom.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Copying:
    """Unknown replacement (Luong et al. 2015): unknown tokens of an output are copied from the source text.

        source      Ms Quark sleeps          the model may generate the unknown token; it is replaced by the source word
        output      Frau <unknown> schläft   with the highest attention: names and numbers often stay the same
        result      Frau Quark schläft

    It needs a model with attention to its source, and tokenizers of the same kind, with unknown tokens, on both sides.
    """

    tokens: tuple[int, ...]
    aligned: tuple[int, ...]  # for each unknown token: the index of the source element
    source: Tokenizer
    target: Tokenizer

    def text(self, given: str) -> str:
        """The output for this source text, with all unknown tokens replaced."""
        spans = self.source.encode_with_offsets(given).spans.tolist()
        return self.target.decode_copying(self.tokens, [given[slice(*spans[place])] for place in self.aligned])


@dataclass(frozen=True, repr=False)
class Translation(TextPrediction):
    """The best text for a source; with n_best > 1 also its score and the next best texts as `alternatives`."""

    score: float | None = None  # higher is better, among the texts for one source
    alternatives: tuple["Translation", ...] = ()  # the best first

    def to_json(self) -> dict[str, Any]:
        """`text`; with n_best > 1 also `score` and `alternatives`, each with text and score."""
        score = {} if self.score is None else {"score": self.score}
        others = {"alternatives": [one.to_json() for one in self.alternatives]} if self.alternatives else {}
        return {"text": self.text} | score | others


@dataclass(frozen=True, repr=False)
class UnknownsTranslation(Translation):
    """A text with unknown tokens, which are copied from its source."""

    copying: Copying | None = None

    def with_input(self, given: Any) -> Translation:
        """The text with its unknown tokens copied from this source."""
        assert self.copying is not None
        others = tuple(cast(Translation, other.with_input(given)) for other in self.alternatives)
        return Translation(self.copying.text(given), self.score, others)


def require_copying(spec: ModelSpec, model: nn.Module) -> None:
    """Raise ConfigError if no word can be copied."""
    source, target = spec.tokenizer, spec.target_tokenizer
    if not spec.schema.input.is_text or source is None or target is None:
        raise ConfigError(
            f"--replace-unknown copies words of a source text, but this model reads {spec.schema.input}",
            fix="leave it out",
        )
    kinds = source.config.kind(), target.config.kind()
    if not target.has_unknown:
        raise ConfigError(
            f"--replace-unknown has no effect: a {kinds[1]} tokenizer has no unknown tokens", fix="leave it out"
        )
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"--replace-unknown needs the same kind of tokenizer on both sides, but they are {kinds[0]} and {kinds[1]}",
            fix="leave it out, or train with one tokenizer for both sides",
        )
    if watching(cast(EncoderDecoder, model)) is None:
        raise ConfigError(
            "--replace-unknown needs a model with attention to the source", fix="train seq2seq-dot or transformer"
        )


def copying(spec: ModelSpec, model: nn.Module, source: Padded, tokens: Sequence[int]) -> Copying:
    """The unknown replacement for an output of one source, a batch of one row."""
    assert spec.tokenizer is not None and spec.target_tokenizer is not None
    gaps = [place for place, token in enumerate(tokens) if token == UNKNOWN]
    aligned: list[int] = []
    if gaps:
        read = torch.tensor([[BEGIN, *tokens[:-1]]], device=source.values.device)
        weights = alignment(cast(EncoderDecoder, model), source, Padded.of(read))
        assert weights is not None, "checked by require_copying"
        aligned = weights[gaps, : int(source.lengths[0])].argmax(dim=-1).tolist()
    return Copying(tuple(tokens), tuple(aligned), spec.tokenizer, spec.target_tokenizer)


OF_TEXTS = tuple(Metric(name, highest=100.0) for name in ("bleu", "bleu_tokenized", "chrf"))
TARGETS_READ = 1_000  # targets that decide on the metric
ALONG, BEYOND, OTHERWISE = 2, 32, 8  # an output has at most ALONG x source + BEYOND tokens; see `most_tokens`


class Translate(Translator):
    """A text for each example."""

    name = "translate"
    default_recipe = "translator", "transformer"
    settings = frozenset({"label_smoothing"})
    metrics = (Metric("exact_match"), *OF_TEXTS, LOSS)
    usage = ShellUsage('echo "some text" | seqloom translate RUN', "seqloom translate RUN FILE")
    statistics = 2 + texts.TEXT_STATISTICS + 2  # examples, exact ones, those of text scores, loss, weight
    # Unrelated texts reach a BLEU of about 1 and a chrF of about 10.
    floors = MappingProxyType({"bleu": 5.0, "bleu_tokenized": 5.0, "chrf": 15.0, "exact_match": 0.02})
    weak = MappingProxyType({"bleu": 10.0, "bleu_tokenized": 10.0})  # the gist of a sentence is seldom understood
    copies = False  # unknown replacement
    decoding: AnyDecoding = GreedyConfig()

    def copying(self, model: nn.Module) -> Self:
        require_copying(self.spec, model)
        chosen = copy.copy(self)
        chosen.copies = True
        return chosen

    def default_metric(self, prepared: Prepared) -> str:
        """BLEU, or chrF for sentences without spaces; exact match if most targets are single forms."""
        rows = prepared.splits["train"]
        sample = rows[:: max(1, len(rows) // TARGETS_READ)].tolist()
        column = prepared.columns["target"]
        return texts.deciding_score([self.tokenizer.decode(column.row(row).tolist()) for row in sample])

    def default_label_smoothing(self, prepared: Prepared) -> float:
        """0.1 for sentences, of which several translations are good; 0 for single forms."""
        return 0.0 if self.default_metric(prepared) == "exact_match" else 0.1

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of targets."""
        assert self.spec.target_tokenizer is not None, "a schema with a target text has a tokenizer for it"
        return self.spec.target_tokenizer

    def model(self, recipe: str, size: AnySize, head: HeadSettings) -> EncoderDecoderConfig:
        self.require_settings(head)
        source, vocab_size = input_of(self.spec), self.tokenizer.vocab_size
        model = recipes.translator(recipe, source=source, target_vocab_size=vocab_size, size=size)
        return msgspec.structs.replace(
            model, head=msgspec.structs.replace(model.head, label_smoothing=head.label_smoothing)
        )

    def require(self, model: AnyModel) -> None:
        written = require_shape(self, EncoderDecoderConfig, model).head.vocab_size
        if written != self.tokenizer.vocab_size:
            raise ConfigError(
                f"the target vocabulary has {self.tokenizer.vocab_size:,} tokens, but that of the model has "
                f"{written:,}",
                fix=f"set vocab_size = {self.tokenizer.vocab_size} in its head and its decoder's input",
            )

    def loss(self, model: nn.Module, batch: Batch[Pair, Tensor], state: Any) -> tuple[Loss, Any]:
        return cast(EncoderDecoder, model).loss(batch._replace(inputs=_read(batch.inputs))), None

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Pair, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """Return the evaluated rows: correct if the complete text is the expected one."""
        writing, inputs = cast(EncoderDecoder, model), _read(batch.inputs)
        losses = writing.head.losses(writing.features(inputs), batch.targets)
        rows = zip(batch.targets.tolist(), inputs.target.lengths.tolist(), strict=True)
        expected = [tokens[: length - 1] for tokens, length in rows]
        references = batch.references or [self.tokenizer.decode(tokens) for tokens in expected]
        predicted, sums = self.written(model, inputs.source), [column.tolist() for column in losses.of_rows()]
        return list(map(self._evaluated, batch.ids, predicted, expected, references, *sums)), None

    def _evaluated(
        self, id_: str, predicted: list[int], expected: list[int], reference: str, loss: float, weight: float
    ) -> EvaluatedExample:
        correct = predicted == expected and UNKNOWN not in expected
        tokenizer, text = self.tokenizer, self.tokenizer.decode(predicted)
        (normalized,) = tokenizer.normalized([reference])
        counts = texts.text_statistics(
            text, reference, predicted_tokenized=tokenizer.tokenized(predicted), expected_tokenized=normalized
        )
        statistics = np.array([1, correct, *counts, loss, weight], np.float64)
        return EvaluatedExample(id_, text_shown(tokenizer, predicted), cut_short(reference), correct, statistics)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        examples, correct, loss, weight = (sums[..., place] for place in (0, 1, -2, -1))
        mean = ratio(loss, weight)
        scores = texts.text_scores(sums[..., 2:-2])
        return {"exact_match": ratio(correct, examples)} | scores | {"loss": mean, "perplexity": perplexity(mean)}

    def constant_baseline(
        self, train: Sequence[Batch[Pair, Tensor]], dev: Sequence[Batch[Pair, Tensor]]
    ) -> Baseline | None:
        """The most frequent target; of several, the one of median length. Its loss is that of token frequencies."""
        rows = [tuple(tokens) for batch in train for tokens, _ in _targets(batch)]
        times = Counter(rows)
        most = max(times.values())
        often = sorted((one for one, count in times.items() if count == most), key=len)
        common = often[len(often) // 2]
        counts = np.bincount([token for row in rows for token in (*row, END)], minlength=self.tokenizer.vocab_size) + 1
        return Baseline("the most frequent target for every row", self._guessed(dev, lambda *_: [*common], counts))

    def simple_baseline(
        self, train: Sequence[Batch[Pair, Tensor]], dev: Sequence[Batch[Pair, Tensor]]
    ) -> Baseline | None:
        """A copy of the source; None for a source that is no text."""
        source = self.spec.tokenizer
        if not self.spec.schema.input.is_text or source is None:
            return None

        def copied(batch: Batch[Pair, Tensor], row: int) -> list[int]:
            read = batch.inputs.source
            text = source.decode(read.values[row, : int(read.lengths[row])].tolist())
            tokens: list[int] = self.tokenizer.encode([text]).row(0).tolist()
            return tokens

        return Baseline("copying the source", self._guessed(dev, copied, None))

    def _guessed(
        self,
        dev: Sequence[Batch[Pair, Tensor]],
        guess: Callable[[Batch[Pair, Tensor], int], list[int]],
        counts: np.ndarray | None,
    ) -> np.ndarray:
        """[N,S] the statistics of a guess for each row; the loss is that of token `counts`, if they are given."""
        losses = np.zeros(self.tokenizer.vocab_size) if counts is None else -np.log(counts / counts.sum())
        found = list[np.ndarray]()
        for batch in dev:
            for row, (expected, reference) in enumerate(_targets(batch)):
                given = reference or self.tokenizer.decode(expected)
                ended, weight = [*expected, END], 0 if counts is None else len(expected) + 1
                one = self._evaluated(batch.ids[row], guess(batch, row), expected, given, losses[ended].sum(), weight)
                found.append(one.statistics)
        return self.agreed(np.stack(found), np.stack(found))

    def agreed(self, rows: np.ndarray, everyone: np.ndarray) -> np.ndarray:
        """Rows whose `bleu_tokenized` follows the rule that all references choose together."""
        ruled = rows.copy()
        ruled[:, 2:-2] = texts.agreed(rows[:, 2:-2], everyone[:, 2:-2])
        return ruled

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """BLEU, if no output has four words."""
        return texts.too_short(self.summed(statistics)[2:-2])

    def signatures(self, statistics: np.ndarray) -> dict[str, str]:
        """The signatures of BLEU and chrF, in the format of sacreBLEU."""
        return texts.text_signatures(self.summed(statistics)[2:-2], lower=self.tokenizer.config.lowercase)

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[Translation]:
        """The text for each source, and the next best ones if n_best > 1."""
        source = sequences(inputs.source if isinstance(inputs, Pair) else inputs)
        answers = self.answers(model, source)
        return [self._prediction(model, source, row, few) for row, few in enumerate(answers)]

    def _prediction(self, model: nn.Module, source: Any, row: int, answers: list[GeneratedText]) -> Translation:
        best, *others = self._predictions(model, source, row, answers)
        return dataclasses.replace(best, alternatives=tuple(others))

    def _predictions(
        self, model: nn.Module, source: Any, row: int, answers: list[GeneratedText]
    ) -> Iterator[Translation]:
        """A prediction for each output of a row."""
        for tokens, score, _, text in answers:
            shown = score if len(answers) > 1 else None
            if not self.copies:
                yield Translation(text, shown)
            else:
                alone = source.select(torch.tensor([row], device=source.lengths.device))
                yield UnknownsTranslation(text, shown, copying=copying(self.spec, model, alone, tokens))

    def written(self, model: nn.Module, source: Any) -> list[list[int]]:
        """The tokens of the best output for each source."""
        return [answers[0].tokens for answers in self.answers(model, source)]

    def answers(self, model: nn.Module, source: Any) -> list[list[GeneratedText]]:
        """The outputs for each source, the best first; samples depend on the seed and the content of the source."""
        writing, how = cast(EncoderDecoder, model), self.decoding
        if isinstance(source, Padded):
            lengths = source.lengths
        else:  # the height of a picture counts as its length
            lengths = torch.full((len(source),), source.shape[1], device=source.device)
        most = self.most_tokens(lengths)
        most = most if how.max_new_tokens is None else most.clamp(max=how.max_new_tokens)
        prompt = begins(len(lengths), lengths.device)
        never = [token for token in NEVER if not (self.copies and token == UNKNOWN)]
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
                attention=watching(writing),
                numbers=numbers_by_content(source),
                never=never,
            )

    def most_tokens(self, lengths: Tensor) -> Tensor:
        """[B] the most tokens of an output, by the length of its source.

        Twice the source and some more if both tokenizers are of one kind; otherwise more, because one source token may
        correspond to many target tokens. Never less than the longest training target: a short command may stand for a
        long program.
        """
        source = self.spec.tokenizer
        alike = source is not None and source.config.kind() == self.tokenizer.config.kind()
        by_source = lengths * (ALONG if alike else OTHERWISE) + BEYOND
        return by_source.clamp(min=self.spec.max_target_length + 1)  # with END


def _targets(batch: Batch[Pair, Tensor]) -> Iterator[tuple[list[int], str]]:
    """The tokens of each target, and its original text if it is known."""
    rows = zip(batch.targets.tolist(), batch.inputs.target.lengths.tolist(), strict=True)
    for row, (tokens, length) in enumerate(rows):
        yield tokens[: length - 1], batch.references[row] if batch.references else ""


def _read(inputs: Pair) -> Pair:
    return inputs._replace(source=sequences(inputs.source))
