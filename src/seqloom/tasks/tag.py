"""Tag: a tag for each word of a sentence or each step of a sequence.

    f1          of spans, if the tags follow a scheme such as BIO: boundaries and type must match (conlleval, seqeval)
    accuracy    of tags; decides if the tags mark no spans (parts of speech)

Predicted tags are always valid in their scheme, with any head (`Chain`). Inputs of any length are read in windows.
A tag that is not in the training data is always an error: neighboring ones count as one missed span.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig, ElementHead, HeadKind, Scheme
from seqloom.data.kinds.text import cut_short
from seqloom.data.kinds.words import Words
from seqloom.data.schema import Target
from seqloom.data.tags import Span, form_fault, spans
from seqloom.errors import ConfigError
from seqloom.metrics.bootstrap import ratio
from seqloom.metrics.classification import Counts, confused_types, count_by_type, types_of
from seqloom.nn.heads import CrfHead, Head
from seqloom.nn.models import ElementModel
from seqloom.nn.ops import crf
from seqloom.nn.packing import by_document
from seqloom.nn.types import Batch, Padded, Spelled, Subwords
from seqloom.recipes.families import recipe_called
from seqloom.report.document import MarkedText, TextMark
from seqloom.tasks.classify import OF_LABELS, class_head
from seqloom.tasks.encoders import OF_LABEL, ElementTask, elements
from seqloom.tasks.task import (
    LOSS,
    Baseline,
    EvaluatedExample,
    HeadSettings,
    Metric,
    ModelSpec,
    Prediction,
    Streamer,
)

ANY_LENGTH = 2**24  # the largest value that a configuration allows
OF_SPANS = (Metric("f1"), Metric("macro_f1"))


def scheme_of(labels: tuple[str, ...]) -> Scheme:
    """The scheme of tags after reading: iob1 was converted to bio, bilou to bioes.

    >>> scheme_of(("O", "B-PER", "I-PER")), scheme_of(("O", "S-PER")), scheme_of(("NOUN", "VERB"))
    ('bio', 'bioes', 'none')
    """
    if any(form_fault(label) is not None for label in labels):
        return "none"
    return "bioes" if any(label[0] in "ES" for label in labels) else "bio"


class Chain(NamedTuple):
    """Which tags may start, follow each other, and end.

    A `crf` head has learned transition scores; for a `class` head every allowed transition scores zero. In both cases
    the prediction is the allowed path with the highest score (Viterbi 1967), so an I-PER never comes without its B-PER.
    Plain tags, such as parts of speech, have no constraints: each is the most likely one at its place.
    """

    scheme: Scheme
    starts: Tensor  # [K] bool; all three are empty without constraints
    moves: Tensor  # [K,K] bool, from, to
    ends: Tensor  # [K] bool

    @classmethod
    def of(cls, labels: tuple[str, ...]) -> "Chain":
        """Return the chain of these tags; raise ConfigError if no tag may form a sequence by itself."""
        scheme = scheme_of(labels)
        legal = (torch.empty(0),) * 3 if scheme == "none" else crf.legal_transitions(labels, scheme)
        return cls(scheme, *legal)

    def best(self, head: Head, x: Padded) -> Tensor:
        """[B,T] the best allowed tags, given the features that the head reads; zero in the padding."""
        scores: Padded = head(x)
        if isinstance(head, CrfHead):
            moves = self._within(head.transitions)
            return by_document(lambda rows: rows.with_values(_best(rows, moves)), scores).values
        if self.scheme == "none":
            return scores.with_values(scores.values.argmax(dim=-1)).values
        free = self._within(_free(scores.values))
        return by_document(lambda rows: rows.with_values(_corrected(rows, free)), scores).values

    def last(self, head: Head, scores: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """[T] the last tag of the best allowed path that ends at each new element; and the memory for the next call.

        This is the forward half of the Viterbi algorithm in float64: the best score of a path to each tag. The highest
        score is subtracted at every element, so that scores neither overflow nor lose precision in long sequences.
        """
        if self.scheme == "none" and not isinstance(head, CrfHead):
            return scores.argmax(dim=-1), None
        moves = self.transitions(head, scores)
        start, between, end = (x.cpu() for x in moves.filled(-torch.inf, torch.float64))
        tags = []
        for row in scores.cpu().double():
            arrived = start if memory is None else (memory[:, None] + between).amax(dim=0)
            best = arrived + row
            memory = best - best.max()
            tags.append((memory + end).argmax())
        return torch.stack(tags), memory

    def transitions(self, head: Head, scores: Tensor) -> crf.Transitions:
        """Transition scores (zero without a crf), and which transitions the scheme allows."""
        return self._within(head.transitions if isinstance(head, CrfHead) else _free(scores))

    def _within(self, moves: crf.Transitions) -> crf.Transitions:
        """Return the same transition scores, with those that the scheme forbids marked as illegal."""
        if self.scheme == "none":
            return moves
        device = moves.start.device
        starts, between, ends = (legal.to(device) for legal in (self.starts, self.moves, self.ends))
        return moves._replace(legal_start=starts, legal_between=between, legal_end=ends)


def _free(scores: Tensor) -> crf.Transitions:
    """Return transitions that all score zero and are allowed."""
    count = scores.shape[-1]
    one, square = scores.new_zeros(count), scores.new_zeros(count, count)
    return crf.Transitions(one, square, one, one == 0, square == 0, one == 0)


def _best(scores: Padded, moves: crf.Transitions) -> Tensor:
    return crf.viterbi(scores.values, scores.lengths, moves)[0]


def _corrected(scores: Padded, free: crf.Transitions) -> Tensor:
    """[B,T] the most likely tags; rows in which they break the scheme get the best allowed path.

    If the most likely tags are an allowed path, they are the best one, so most rows need no search.
    """
    tags = scores.with_values(scores.values.argmax(dim=-1)).values
    broken = crf.forbidden(tags, scores.lengths, free).nonzero().squeeze(1)
    if len(broken):
        tags[broken] = _best(scores.select(broken), free)
    return tags


class PredictedEntity(NamedTuple):
    """A span that the tags mark, such as a name.

    `start` and `end` count characters of the text, or steps if there is no text. `confidence` is the probability of
    exactly this span with this label.
    """

    text: str
    label: str  # its type, such as PER
    start: int
    end: int
    confidence: float | None = None  # None: not computed


@dataclass(frozen=True, repr=False)
class TagsPrediction(Prediction):
    """A tag for each word or step, and the spans that the tags mark.

    `spans` counts words or steps. `entities` has the same spans with their text and character offsets, if the text is
    known.
    """

    tags: tuple[str, ...]
    spans: tuple[Span, ...] | None = ()  # None: the tags mark no spans, as parts of speech
    words: Words | None = None
    confidences: tuple[float, ...] = ()  # of each span
    types: tuple[str, ...] = ()  # all types that the model knows, in the order of their colors

    @classmethod
    def of(
        cls, tags: tuple[str, ...], *, in_scheme: bool, confidences: Sequence[float] = (), types: Sequence[str] = ()
    ) -> "TagsPrediction":
        """The prediction of these tags; plain tags mark no spans."""
        marked = tuple(spans(tags)) if in_scheme else None
        return cls(tags, marked, confidences=tuple(confidences), types=tuple(types))

    def with_input(self, given: Any) -> "TagsPrediction":
        """The same with the text that was tagged."""
        return replace(self, words=given) if isinstance(given, Words) else self

    @property
    def entities(self) -> tuple[PredictedEntity, ...]:
        """The spans with their text, label, offsets and confidence."""
        sure = self.confidences or (None,) * len(self.spans or ())
        return tuple(self._entity(span, one) for span, one in zip(self.spans or (), sure, strict=True))

    def _entity(self, span: Span, confidence: float | None) -> PredictedEntity:
        if self.words is None:
            return PredictedEntity("", span.label, span.start, span.stop, confidence)
        start, end = self.words.spans[span.start][0], self.words.spans[span.stop - 1][1]
        return PredictedEntity(self.words.text[start:end], span.label, start, end, confidence)

    def to_json(self) -> dict[str, Any]:
        """`tags`, and if known `words` with their offsets; `entities` if the tags mark spans."""
        found: dict[str, Any] = {"tags": list(self.tags)}
        if self.words is not None:
            pairs = zip(self.words.words(), self.words.spans, strict=True)
            found["words"] = [{"text": word, "start": start, "end": end} for word, (start, end) in pairs]
        if self.spans is not None:
            unknown = {name for name, value in (("text", self.words), ("confidence", self.confidences)) if not value}
            named = (entity._asdict() for entity in self.entities)
            found["entities"] = [{key: one[key] for key in one if key not in unknown} for one in named]
        return found

    def to_text(self) -> str:
        """The text with its entities, `[Anna](PER) sings`; each word with a plain tag, `Anna/NOUN`; else the tags."""
        if self.words is None:
            return " ".join(self.tags)
        if self.spans is not None:
            return " ".join(self.marked().line().split())  # a text may contain line breaks
        text = " ".join(f"{word}/{tag}" for word, tag in zip(self.words.words(), self.tags, strict=True))
        return " ".join(text.split())

    def marked(self) -> MarkedText:
        """The text with its entities marked, as a block of a report; empty if the text is not known."""
        marks = [
            TextMark(
                one.start, one.end, one.label, "" if one.confidence is None else f"confidence {one.confidence:.2f}"
            )
            for one in self.entities
        ]
        return MarkedText("" if self.words is None else self.words.text, marks, self.types)

    def _repr_html_(self) -> str:
        from seqloom.report.html import fragment

        return super()._repr_html_() if self.words is None or self.spans is None else fragment(self.marked())


@dataclass(frozen=True, repr=False)
class TagPrediction(Prediction):
    """The tag of one word or step."""

    tag: str

    def to_text(self) -> str:
        return self.tag


# Inputs of any length are read in overlapping windows. The head reads the features of all windows together, so there is
# one loss and one best path.
#
#     words       0   1   2   3   4   5   6   7   8   9  10  11
#     window      [===============-------]                          a window is used where it is marked ===:
#                         [-------=======-------]                   each element is taken from the window in which
#                                         [-------===============]  it is furthest from a border
#
# Windows start half a window apart, so every element has at least a quarter of a window as context on both sides. The
# model never reads more than in training, nor beyond its learned positions.

SHORTEST_WINDOW = 32  # tokens or steps, for models that were trained on very short inputs
DEFAULT_WINDOW = 512  # if the length of the training inputs is unknown
BATCH_TOKENS = 8_192  # tokens or steps read together


class TextWindow(NamedTuple):
    """A window of words or steps, and the part of it that is used."""

    start: int
    stop: int
    first: int
    last: int  # the first unused one


def window_size(model: ElementModel, longest: int) -> int:
    """How many tokens or steps a model reads together; `longest` is the longest training input, 0 if unknown."""
    size, limit = max(SHORTEST_WINDOW, longest) if longest else DEFAULT_WINDOW, model.config.encoder.limit()
    return size if limit is None else min(size, limit)


def windows(ends: np.ndarray, size: int) -> list[TextWindow]:
    """The windows over words whose subwords end at `ends`, each of at most `size` subwords, or of one long word.

    >>> [tuple(one) for one in windows(np.arange(1, 13), 6)]
    [(0, 6, 0, 5), (3, 9, 5, 8), (6, 12, 8, 12)]
    """
    begins = np.concatenate([[0], ends[:-1]])
    starts, stops = [0], [_stop(begins, ends, 0, size)]
    while stops[-1] < len(ends):
        middle = int(np.searchsorted(begins, begins[starts[-1]] + size // 2))
        starts.append(min(stops[-1], max(starts[-1] + 1, middle)))
        stops.append(_stop(begins, ends, starts[-1], size))
    if len(starts) > 1:  # the last window is as full as the others
        starts[-1] = min(starts[-1], int(np.searchsorted(begins, ends[-1] - size)))
    borders = [0, *((start + stop + 1) // 2 for start, stop in zip(starts[1:], stops, strict=False)), len(ends)]
    return [TextWindow(*one) for one in zip(starts, stops, borders[:-1], borders[1:], strict=True)]


def _stop(begins: np.ndarray, ends: np.ndarray, start: int, size: int) -> int:
    """The first word after a window that starts with the word `start`; it has at least one word."""
    return max(start + 1, int(np.searchsorted(ends, begins[start] + size, side="right")))


def features(model: ElementModel, inputs: Any, size: int) -> Padded:
    """`model.features`, [B,W,D]; inputs longer than `size` are read in windows, but graphs are never split."""
    if int(_read(inputs).lengths.max()) <= size or _read(inputs).edges is not None:
        return model.features(inputs)
    words = inputs.firsts if isinstance(inputs, Subwords) else _read(inputs)
    ends = [_ends(inputs, row) for row in range(len(words.lengths))]
    planned = [
        (row, window) for row, of_row in enumerate(ends) for window in (windows(of_row, size) if len(of_row) else ())
    ]
    vectors: Tensor | None = None
    for first in range(0, len(planned), count := max(1, BATCH_TOKENS // size)):
        some = planned[first : first + count]
        found = model.features(_cut(inputs, some, ends, size)).values
        if vectors is None:
            vectors = found.new_zeros(*words.values.shape[:2], found.shape[-1])
        for (row, window), values in zip(some, found, strict=True):
            begin = window.first - window.start
            vectors[row, window.first : window.last] = values[begin : begin + window.last - window.first]
    assert vectors is not None, "a row is longer than a window"
    return Padded(vectors, words.lengths, None, words.full)


def _read(inputs: Any) -> Padded:
    """The elements that are read: subwords, words with their characters, or steps."""
    read: Padded = inputs[0] if isinstance(inputs, Subwords | Spelled) else inputs
    return read


def _ends(inputs: Any, row: int) -> np.ndarray:
    """[W] where the subwords of each word of a row end; a step is one subword."""
    if not isinstance(inputs, Subwords):
        return np.arange(1, int(_read(inputs).lengths[row]) + 1)
    firsts = inputs.firsts.values[row, : int(inputs.firsts.lengths[row])].cpu().numpy()
    return np.append(firsts[1:], int(inputs.pieces.lengths[row]))[: len(firsts)]


def _cut(inputs: Any, some: Sequence[tuple[int, TextWindow]], ends: Sequence[np.ndarray], size: int) -> Any:
    """The inputs of some windows, each as a separate row."""
    rows = torch.tensor([row for row, _ in some])
    words = torch.tensor([(window.start, window.stop) for _, window in some])
    if isinstance(inputs, Spelled):
        letters = Padded(inputs.letters, inputs.words.lengths)
        return Spelled(_stretches(inputs.words, rows, words), _stretches(letters, rows, words).values)
    if not isinstance(inputs, Subwords):
        return _stretches(inputs, rows, words)
    begins = [int(ends[row][window.start - 1]) if window.start else 0 for row, window in some]
    stops = [int(ends[row][window.stop - 1]) for row, window in some]
    pieces = torch.tensor([(begin, min(stop, begin + size)) for begin, stop in zip(begins, stops, strict=True)])
    firsts = _stretches(inputs.firsts, rows, words)
    inside = firsts.values - pieces[:, :1].to(firsts.values.device)
    return Subwords(_stretches(inputs.pieces, rows, pieces), firsts.with_values(inside))


def _stretches(x: Padded, rows: Tensor, borders: Tensor) -> Padded:
    """Elements start..stop of the chosen rows; borders [N,2]."""
    lengths, device = borders[:, 1] - borders[:, 0], x.values.device
    places = (borders[:, :1] + torch.arange(int(lengths.max()))).clamp(max=x.values.shape[1] - 1)
    return Padded.of(x.values[rows[:, None].to(device), places.to(device)], lengths.to(device))


# Baselines: the most frequent tag, and the most frequent tag of each word.

Tagged = tuple[str, list[Hashable], list[int]]  # the id, words and tags of a row


def tagged_rows(batch: Batch[Any, Tensor]) -> Iterator[Tagged]:
    """Yield each row of a batch; words are their token numbers, and elements that are no tokens are all None."""
    read = elements(batch.inputs)
    rows = zip(batch.ids, read.lengths.tolist(), batch.targets.tolist(), strict=True)
    for row, (id_, length, tags) in enumerate(rows):
        words: list[Hashable] = [None] * length
        if isinstance(batch.inputs, Subwords):
            pieces = batch.inputs.pieces
            firsts = [*read.values[row, :length].tolist(), int(pieces.lengths[row])]
            tokens = pieces.values[row].tolist()
            words = [tuple(tokens[first:last]) for first, last in pairwise(firsts)]
        elif read.values.ndim == 2:
            words = read.values[row, :length].tolist()
        yield id_, words, tags[:length]


class TagCounts:
    """How often each tag occurs, in total and for each word."""

    def __init__(self, batches: Sequence[Batch[Any, Tensor]], tags: int) -> None:
        self.total = Counter[int](dict.fromkeys(range(tags), 1))  # each once more, so that none has probability 0
        self.by_word = defaultdict[Hashable, Counter[int]](Counter)
        for batch in batches:
            for _, words, found in tagged_rows(batch):
                self.total.update(tag for tag in found if tag >= 0)
                for word, tag in zip(words, found, strict=True):
                    if tag >= 0:
                        self.by_word[word][tag] += 1
        self.common, self.sum = self.total.most_common(1)[0][0], self.total.total()

    def anywhere(self, word: Hashable, tag: int) -> tuple[int, float]:
        """The most frequent tag, and the probability of `tag`."""
        return self.common, self.total[tag] / self.sum

    def of_word(self, word: Hashable, tag: int) -> tuple[int, float]:
        """The most frequent tag of a word, and the probability of `tag`; a new word has the tags of all words."""
        common, likely = self.anywhere(word, tag)
        seen = self.by_word.get(word)
        return (common, likely) if seen is None else (max(seen, key=seen.__getitem__), self._joined(seen, tag, likely))

    def _joined(self, seen: Counter[int], tag: int, likely: float) -> float:
        return (seen[tag] + likely) / (seen.total() + 1)


class Tag(Streamer, ElementTask):
    """A tag for each element."""

    name = "tag"
    heads = ("softmax", "crf")
    settings = OF_LABEL | {"char_encoder"}  # taggers see many new words
    max_length = ANY_LENGTH
    metrics = (*OF_SPANS, Metric("accuracy"), LOSS)  # those of spans if the tags mark spans
    weak = MappingProxyType({"f1": 0.5, "accuracy": 0.5})

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        labels = spec.schema.labels
        if len(labels) < 2:
            raise ConfigError(
                f"the training set has {len(labels)} tag, but a tagger needs two or more",
                fix="give data with at least two tags",
            )
        self.chain = Chain.of(labels)
        self.in_scheme = self.chain.scheme != "none"
        self.unseen = _unseen_of(labels)
        self.span_types = types_of(labels) if self.in_scheme else ()
        self.types = types_of([*labels, self.unseen]) if self.in_scheme else ()
        self.statistics = 4 + 3 * len(
            self.types
        )  # elements, correct ones; per type correct, predicted, expected; loss, weight
        self.metrics = (*(OF_SPANS if self.in_scheme else ()), Metric("accuracy"), LOSS)

    def default_head(self, recipe: str) -> HeadKind:
        """A crf if the tags of words mark spans, for recipes that score better with it."""
        marks_spans = self.in_scheme and self.spec.schema.input.in_words
        return "crf" if marks_spans and recipe_called(recipe).tags_by_crf else "softmax"

    def head(self, settings: HeadSettings) -> ClassHeadConfig | CrfHeadConfig:
        """A softmax over the tags of each element, or a crf."""
        labels = self.spec.schema.labels
        if settings.kind == "softmax":
            return class_head(settings, labels)
        if settings.label_smoothing or settings.class_weights:
            raise ConfigError(
                "label smoothing and class weights are for single tags, but a crf scores complete sequences",
                fix="leave them out, or choose --head softmax",
            )
        return CrfHeadConfig(labels=labels, scheme=self.chain.scheme)

    def require_head(self, head: ElementHead) -> None:
        labels = self.spec.schema.labels
        one_each = isinstance(head, ClassHeadConfig) and head.num_classes == len(labels)
        if not one_each and not (isinstance(head, CrfHeadConfig) and head.labels == labels):
            raise ConfigError(
                f"the data has {len(labels):,} tags, but the head '{head.kind()}' of the model does not fit them",
                fix=f"give it a head of kind class with num_classes = {len(labels)}, or crf with these tags in order",
            )

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """The evaluated rows: correct if all tags are."""
        answering = cast(ElementModel, model)
        x = self._features(answering, batch.inputs)
        losses = answering.head.losses(x, batch.targets)
        columns = (x.lengths, self.chain.best(answering.head, x), batch.targets, *losses.of_rows())
        rows = zip(batch.ids, *(column.tolist() for column in columns), strict=True)
        return [
            self._evaluated(id_, predicted[:length], expected[:length], *sums)
            for id_, length, predicted, expected, *sums in rows
        ], None

    def _features(self, model: ElementModel, inputs: Any) -> Padded:
        return features(model, inputs, window_size(model, self.spec.max_length))

    def _evaluated(
        self, id_: str, predicted: list[int], expected: list[int], loss: float, weight: float
    ) -> EvaluatedExample:
        predicted_tags, expected_tags = self._named(predicted), self._named(expected)
        correct = sum(one == other for one, other in zip(predicted, expected, strict=True))
        found = count_by_type(predicted_tags, expected_tags, self.types).flatten() if self.in_scheme else ()
        statistics = np.array([len(expected), correct, *found, loss, weight])
        shown = cut_short(" ".join(predicted_tags)), cut_short(" ".join(expected_tags))
        confused = confused_types(predicted_tags, expected_tags) if self.in_scheme else ()
        return EvaluatedExample(id_, *shown, correct == len(expected), statistics, confused)

    def _named(self, tags: list[int]) -> tuple[str, ...]:
        labels = self.spec.schema.labels
        return tuple(labels[tag] if tag >= 0 else self.unseen for tag in tags)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`f1`, `precision`, `recall` and `macro_f1` of spans if tags mark them, `accuracy` of tags, and `loss`."""
        elements, correct, loss, weight = np.moveaxis(sums[..., [0, 1, -2, -1]], -1, 0)
        of_spans = Counts.of(sums[..., 2:-2]).figures if self.in_scheme else {}
        return of_spans | {"accuracy": ratio(correct, elements), "loss": ratio(loss, weight)}

    def by_label(self, statistics: np.ndarray) -> dict[str, dict[str, float]]:
        """The metrics of each type of span; empty for plain tags."""
        return Counts.of(self.summed(statistics)[2:-2]).named(self.types) if self.in_scheme else {}

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """The metrics of spans, if no row has one and none is predicted."""
        without = self.in_scheme and not self.by_label(statistics)
        return dict.fromkeys(OF_LABELS, "no spans") if without else {}

    def constant_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """The most frequent tag, everywhere."""
        counts = TagCounts(train, len(self.spec.schema.labels))
        common = self.spec.schema.labels[counts.common]
        return Baseline(f"always predicting '{common}'", self._guessed(counts.anywhere, dev))

    def simple_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """The most frequent tag of each word; None for elements that are no words."""
        counts = TagCounts(train, len(self.spec.schema.labels))
        if None in counts.by_word:
            return None
        return Baseline("the most frequent tag of each word", self._guessed(counts.of_word, dev))

    def _guessed(
        self, guess: Callable[[Hashable, int], tuple[int, float]], dev: Sequence[Batch[Any, Tensor]]
    ) -> np.ndarray:
        """[N,S] the statistics of a guess for each word."""
        found = list[np.ndarray]()
        for batch in dev:
            for id_, words, expected in tagged_rows(batch):
                pairs = [guess(word, tag) for word, tag in zip(words, expected, strict=True)]
                losses = [-math.log(likely) for (_, likely), tag in zip(pairs, expected, strict=True) if tag >= 0]
                predicted = [tag for tag, _ in pairs]
                found.append(self._evaluated(id_, predicted, expected, sum(losses), len(losses)).statistics)
        return np.stack(found)

    def expected_text(self, evaluated: EvaluatedExample, target: Target) -> str:
        """The tags; those that are not in the training data by their names in the data."""
        unseen = isinstance(target, tuple) and self.unseen in evaluated.expected.split()
        return cut_short(" ".join(map(str, target or ()))) if unseen else evaluated.expected

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[TagsPrediction]:
        """The tags of each row; `with_input` adds the text."""
        answering = cast(ElementModel, model)
        with torch.no_grad():
            x = self._features(answering, inputs)
            best = self.chain.best(answering.head, x).tolist()
            rows = zip(x.lengths.tolist(), best, strict=True)
            found = [self._named(tags[:length]) for length, tags in rows]
            sure = self._confidences(answering.head, x, best, found) if self.in_scheme else [()] * len(found)
        return [
            TagsPrediction.of(tags, in_scheme=self.in_scheme, confidences=one, types=self.span_types)
            for tags, one in zip(found, sure, strict=True)
        ]

    def _confidences(
        self, head: Head, x: Padded, best: Sequence[Sequence[int]], named: Sequence[tuple[str, ...]]
    ) -> Sequence[Sequence[float]]:
        """The probability of exactly each predicted span: over all paths of a crf, or with independent tags."""
        scores: Padded = head(x)
        moves = self.chain.transitions(head, scores.values) if isinstance(head, CrfHead) else _free(scores.values)
        wanted = [
            [self.span_score(span, tags) for span in spans(names)] for tags, names in zip(best, named, strict=True)
        ]
        return crf.span_probabilities(scores.values, scores.lengths, moves, wanted)

    def span_score(self, span: Span, tags: Sequence[int]) -> crf.SpanScore:
        """A span of these tags; tags that continue it make it longer, in schemes that do not mark its end."""
        labels = self.spec.schema.labels
        longer = [at for at, tag in enumerate(labels) if self.chain.scheme == "bio" and tag == f"I-{span.label}"]
        return crf.SpanScore(span.start, span.stop, tuple(tags[span.start : span.stop]), tuple(longer))

    def answers_so_far(
        self, model: nn.Module, tokens: np.ndarray, scores: Tensor, memory: Any
    ) -> tuple[Sequence[TagPrediction], Any]:
        """At each element, the last tag that `predict` would return if the input ended there."""
        tags, memory = self.chain.last(cast(ElementModel, model).head, scores, memory)
        return [TagPrediction(tag) for tag in self._named(tags.tolist())], memory


def _unseen_of(labels: Sequence[str]) -> str:
    """The tag for everything that is not in the training data; no label has its type.

    >>> _unseen_of(["O", "B-?", "I-?"])
    'I-??'
    """
    tag = "I-?"
    while tag[2:] in types_of(labels):
        tag += "?"
    return tag
