"""The attribution of one prediction: a value for each token of the input.

up to 64 tokens     every token on its color, with its value
up to 512           the strip of tokens, the strongest tokens, and totals of sentences
beyond              totals of sentences first, a map of the text, the strongest tokens; a page expands each sentence

`attribute_file` writes the attributions of many inputs as JSON lines, in input order. It reads one input at a time. The
file appears when all inputs are done; until then a previous file stays.

    {"row": 0, "label": "yes", "answer": "“yes”", "method": "integrated_gradients", "baseline": "zero", "score": 1.2,
     "baseline_scores": [0.1], "error": 0.0004, "sides": [{"side": "input", "tokens": ["not", "bad"],
     "offsets": [[0, 3], [4, 7]], "scores": [-0.3, 1.4], "unknown": []}]}

The attributions of a linear model of n-grams are exact: its score is the sum of the weights of the text's n-grams.

    s = b + sum over n-grams g of the text of phi_g w_g

with phi_g = 1 if n-grams are counted, or their TF-IDF share if TF-IDF weights them. Longer n-grams share rows through a
hash, so an n-gram that never occurred in training may have the weight of another one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from seqloom.errors import ConfigError, DataError, SeqloomError
from seqloom.events import Progress, Show
from seqloom.files.disk import write_file
from seqloom.inspect.attention_weights import units
from seqloom.inspect.attribution.goals import AttributionGround, Goal, GroundPlace, chosen_goal, ground_of, label_of
from seqloom.inspect.attribution.gradients import ends, slopes
from seqloom.inspect.attribution.methods import METHODS, MethodOptions, method_of, outcome
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject, Token
from seqloom.inspect.view import MEDIUM, SMALL, View, plain, strongest_in
from seqloom.nn.inputs import Ngrams, Tfidf
from seqloom.report.document import DocumentBlock, Interactive
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.markup import Markup, code, ink_on, scale_of, tag
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import number, share, signed
from seqloom.text.special_tokens import UNKNOWN

ENDS = frozenset(".!?…。！？؟۔।")
LONGEST = 64  # tokens: a longer segment is cut
SHOWN = 48  # characters of the beginning of a segment


def segments(tokens: Sequence[Token], text: str | None) -> tuple[tuple[int, int], ...]:
    """Return the start and stop of each segment: segments end at sentence and line ends, or after 64 tokens.

    >>> tokens = [Token(word) for word in "It rains . We stay .".split()]
    >>> segments(tokens, None)
    ((0, 3), (3, 6))
    """
    starts = [0]
    for at in range(1, len(tokens)):
        if at - starts[-1] >= LONGEST or _ends(tokens[at - 1], tokens[at], text):
            starts.append(at)
    return tuple(zip(starts, [*starts[1:], len(tokens)], strict=True))


def _ends(before: Token, token: Token, text: str | None) -> bool:
    between = text[before.stop : token.start] if text is not None else ""
    if ENDS.intersection(between) or "\n" in between + before.text:
        return True
    closes = before.text.strip()[-1:] in ENDS
    return closes and token.text.strip()[:1] not in ENDS


def beginning(tokens: Sequence[Token], text: str | None) -> str:
    """Return the beginning of a segment, as written in the text."""
    real = [token for token in tokens if not token.is_special] or list(tokens)
    whole = text[real[0].start : real[-1].stop] if text is not None else " ".join(token.text for token in real)
    whole = " ".join(whole.split())
    return whole if len(whole) <= SHOWN else f"{whole[: SHOWN - 1]}…"


def merged(tokens: Sequence[Token], *, words: bool = True) -> tuple[tuple[Token, ...], tuple[int, ...]]:
    """Merge word pieces: return words as tokens, and the index of each word's first piece; other tokens stay."""
    found = units(tokens, words=words)
    made = []
    for name, a, b in zip(found.names, found.starts[:-1], found.starts[1:], strict=True):
        pieces = [piece for piece in tokens[a:b] if not piece.text.isspace()] or list(tokens[a:b])  # " it" is "it"
        made.append(pieces[0]._replace(text=name, stop=tokens[b - 1].stop, id=_joint_id(pieces)))
    return tuple(made), found.starts[:-1]


def _joint_id(pieces: Sequence[Token]) -> int | None:
    """Return the id of a word: that of its only piece; UNKNOWN if the vocabulary lacks one of several."""
    return pieces[0].id if len(pieces) == 1 else UNKNOWN if any(piece.is_unknown for piece in pieces) else None


def summed(values: np.ndarray, starts: Sequence[int]) -> np.ndarray:
    """Sum the values of each word's pieces; NaN if all pieces are NaN."""
    missing = np.logical_and.reduceat(np.isnan(values), starts)
    return np.where(missing, np.nan, np.add.reduceat(np.nan_to_num(values), starts))


class SentenceTotal(NamedTuple):
    """A sentence and the sum of its tokens' values."""

    start: int
    stop: int
    beginning: str
    total: float


class AttributionPart(NamedTuple):
    """The elements of one side and their values."""

    name: str
    tokens: tuple[Token, ...]
    values: np.ndarray  # [E], NaN where not measured
    segments: tuple[SentenceTotal, ...]
    shape: tuple[int, int] | None = None  # of a picture, whose pixels are the elements

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.tokens)

    @property
    def unknown(self) -> tuple[int, ...]:
        """The indices of the tokens that the vocabulary lacks."""
        return tuple(at for at, token in enumerate(self.tokens) if token.is_unknown)

    def strongest(self, count: int) -> list[int]:
        """Return the indices of the elements with the largest absolute values, largest first."""
        sizes = np.abs(np.nan_to_num(self.values))
        return [int(at) for at in np.argsort(-sizes, kind="stable")[:count] if sizes[at] > 0]


def part_of(place: GroundPlace, values: np.ndarray, *, words: bool) -> AttributionPart:
    """Return the values of a place by element, or by word: the values of a word's pieces are summed."""
    tokens: Sequence[Token] = place.tokens
    if words and place.shape is None:
        tokens, starts = merged(place.tokens)
        values = summed(values, starts)
    ends = segments(tokens, place.text) if place.shape is None else ()
    found = tuple(
        SentenceTotal(a, b, beginning(tokens[a:b], place.text), float(np.nansum(values[a:b]))) for a, b in ends
    )
    return AttributionPart(place.side.name, tuple(tokens), values, found, place.shape)


def largest_cells(values: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return the row and column of the cells with the largest absolute values, largest first."""
    order = np.argsort(-np.abs(np.nan_to_num(values)).ravel(), kind="stable")[:count]
    return [divmod(int(at), values.shape[1]) for at in order]


def span_of(parts: Sequence[np.ndarray]) -> tuple[float, float] | None:
    """Return the color scale that all parts share."""
    known = np.concatenate([values[~np.isnan(values)] for values in parts])
    return (float(min(known.min(), 0)), float(max(known.max(), 0))) if known.size and known.any() else None


@dataclass(frozen=True)
class OpeningSentences(Interactive):
    """A long text on a page: every sentence with its total; a click shows its tokens with their colors.

    It uses `details` elements and needs no script.
    """

    rules: ClassVar[str] = (
        ".opening details{margin:0}.opening summary{color:inherit;padding:2px 0}.opening p{line-height:1.9}"
        ".opening mark{padding:2px 4px;margin:1px;border-radius:3px;unicode-bidi:isolate}"
        ".opening .unknown{outline:1.5px dashed #59616d}"
        ".opening .none{background:none;border:1px dashed #9aa2ad;color:inherit}"
    )
    title: str
    part: AttributionPart
    span: tuple[float, float] | None

    def markup(self) -> list[Markup]:
        numbers, unknown = self.part.values, frozenset(self.part.unknown)
        scale, chips = scale_of(numbers[~np.isnan(numbers)].tolist(), self.span), list[Markup]()
        for at, (text, value) in enumerate(zip(self.part.texts, numbers.tolist(), strict=True)):
            if np.isnan(value):
                chips.append(tag("mark", text, class_="none", title=f"{text}: no value (token {at})"))
                continue
            ground = scale.shade(scale.level(value)).light
            style = f"background:{code(ground)};color:{code(ink_on(ground))}"
            lacking = {"class_": "unknown"} if at in unknown else {}
            what = f", {NOT_KNOWN}" if lacking else ""
            chips.append(tag("mark", text, style=style, title=f"{text}: {number(value)} (token {at}{what})", **lacking))
        lines = list[Markup]()
        for each in self.part.segments:
            beginning = f" {each.start}: ", tag("bdi", each.beginning)
            summary = tag("summary", tag("b", signed(each.total)), *beginning)
            lines.append(tag("details", summary, tag("p", *chips[each.start : each.stop], dir="auto")))
        return [tag("section", tag("h2", self.title), *lines, class_="opening")]


NOT_KNOWN = "not in the vocabulary"
UNKNOWN_MARK = " (unknown)"
MOST_UNKNOWN = 12  # named in a sentence


def unknown_text(part: AttributionPart) -> str:
    """Return the sentence about the unknown tokens of a part; empty without one."""
    named = [f"“{part.tokens[at].text}” ({at})" for at in part.unknown[:MOST_UNKNOWN]]
    more = f" and {len(part.unknown) - MOST_UNKNOWN} more" if len(part.unknown) > MOST_UNKNOWN else ""
    return f"{NOT_KNOWN.capitalize()}: {', '.join(named)}{more}. The model reads UNKNOWN instead." if named else ""


STRONGEST = 20
TOLERATED = 0.01  # allowed completeness error of integrated gradients
MOST_STRETCHES = 40
MAP_CELLS = 240


@dataclass(frozen=True, kw_only=True)
class AttributionView(View):
    """How much each element of an input contributes to one prediction, by one method."""

    kind: ClassVar[str] = "attribution"
    method: str
    answer: str  # the explained score, in words
    label: str | None = None  # the predicted label, for programs; None for several predictions, or a cosine
    baseline: str
    score: float
    baseline_scores: tuple[float, ...]  # at the baseline; for two texts, with the first, then the second at it
    error: float | None  # of completeness, relative to `rise`; None if the values of the method have no sum
    steps: int  # number of evaluations of the model
    grouped: int  # largest number of elements that were removed together
    parts: tuple[AttributionPart, ...]

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(sum(np.nansum(part.values) for part in self.parts))

    @property
    def rise(self) -> float:
        """The expected sum of all values: the score minus the baseline score."""
        return sum(self.score - before for before in self.baseline_scores)

    @property
    def span(self) -> tuple[float, float] | None:
        return span_of([part.values for part in self.parts])

    def figures(self) -> tuple[Figure, ...]:
        return tuple(figure for part in self.parts for figure in self._figures(part))

    def _figures(self, part: AttributionPart) -> list[Figure]:
        if part.shape is not None:
            return [self._picture(part)]
        if len(part.tokens) <= SMALL:
            return [self._strip(part)]
        several = [self._totals(part)] if len(part.segments) > 1 else []
        if len(part.tokens) <= MEDIUM:
            return [self._strip(part), self._strongest(part), *several]
        return [*several, self._map(part), self._strongest(part)]

    def _sentences(self) -> tuple[str, ...]:
        before = " and ".join(f"{number(score)}" for score in self.baseline_scores)
        apart = ", one text at a time" if len(self.baseline_scores) > 1 else ""
        lines = [
            f"{METHODS[self.method].title.capitalize()} for {self.answer}: score {number(self.score)}, "
            f"{before} with the baseline ({self.baseline}{apart})."
        ]
        if self.error is None:
            lines.append("The values of this method do not sum to the score: compare them only with each other.")
        else:
            lines.append(
                f"The values sum to {number(self.total)}, the score difference is {number(self.rise)}: "
                f"completeness error {share(self.error)}."
            )
        if self.method == "integrated_gradients" and (self.error or 0.0) > TOLERATED:
            lines.append(f"That is more than {share(TOLERATED)}: use more steps= or another baseline=.")
        if self.grouped > 1:
            lines.append(f"Up to {self.grouped} tokens were removed at a time; each gets an equal share of the change.")
        lines += [self._top(part) for part in self.parts if part.shape is None and part.strongest(1)]
        return (*lines, *filter(None, map(unknown_text, self.parts)))

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        """The numbers, and the indices of the unknown tokens of each part."""
        return {**super().json_values(full=full), "unknown": [part.unknown for part in self.parts]}

    def _top(self, part: AttributionPart) -> str:
        named = ", ".join(f"“{part.tokens[at].text}” ({at}) {signed(part.values[at])}" for at in part.strongest(3))
        side = f" of the {part.name}" if len(self.parts) > 1 else ""
        return f"Strongest tokens{side}: {named}."

    def _title(self, part: AttributionPart, more: str = "") -> str:
        side = f", {part.name}" if len(self.parts) > 1 else ""
        return f"{self.title}{side}{more}"

    def _strip(self, part: AttributionPart) -> Figure:
        return Strip(
            title=self._title(part),
            caption=self._caption(),
            tokens=part.texts,
            values=part.values.tolist(),
            value_label=METHODS[self.method].unit,
            marked=part.unknown,
            mark_label=NOT_KNOWN,
            span=self.span,
        )

    def _caption(self) -> str:
        if self.error is None:
            return "The values do not sum to the score; there is no baseline."
        return f"Baseline: {self.baseline}; completeness error {share(self.error)}."

    def _strongest(self, part: AttributionPart) -> Figure:
        chosen, texts = part.strongest(STRONGEST) or [0], part.texts
        return Bars(
            title=self._title(part, ": strongest tokens"),
            caption=self._caption(),
            labels=[f"{at}: {texts[at].strip() or '␣'}{UNKNOWN_MARK * (at in part.unknown)}" for at in chosen],
            values=np.nan_to_num(part.values[chosen]).tolist(),
            x_label=METHODS[self.method].unit,
        )

    def _totals(self, part: AttributionPart) -> Figure:
        sizes = np.array([abs(each.total) for each in part.segments])
        chosen = sorted(np.argsort(-sizes, kind="stable")[:MOST_STRETCHES].tolist())
        fewer = f"the {len(chosen)} strongest of {len(sizes)}" if len(chosen) < len(sizes) else "sentences"
        return Bars(
            title=self._title(part, f": totals by sentence ({fewer})"),
            labels=[f"{part.segments[at].start}: {part.segments[at].beginning}" for at in chosen],
            values=[part.segments[at].total for at in chosen],
            x_label=f"{METHODS[self.method].unit}, summed",
        )

    def _map(self, part: AttributionPart) -> Figure:
        """The text as two rows of cells: a sum hides one strong token, and a maximum hides many weak ones."""
        across = -(-len(part.tokens) // MAP_CELLS)
        starts = np.arange(0, len(part.tokens), across)
        return HeatMap(
            title=self._title(part, ": overview"),
            caption=f"Row 0: sum over {across} tokens. Row 1: the strongest of them.",
            values=[summed(part.values, starts.tolist()).tolist(), strongest_in(part.values, across).tolist()],
            x=starts.astype(float).tolist(),
            x_label="token",
            value_label=METHODS[self.method].unit,
        )

    def _picture(self, part: AttributionPart) -> Figure:
        assert part.shape is not None
        return HeatMap(
            title=self._title(part),
            caption=self._caption(),
            values=part.values.reshape(part.shape).tolist(),
            x_label="pixel",
            y_label="pixel",
            value_label=METHODS[self.method].unit,
            span=self.span,
        )

    def _blocks(self) -> Sequence[DocumentBlock]:
        long = [part for part in self.parts if part.shape is None and len(part.tokens) > MEDIUM]
        opened = [OpeningSentences((), self._title(part, ": sentence by sentence"), part, self.span) for part in long]
        return [*super()._blocks(), *opened]


def attribution(
    subject: Subject,
    reading: Reading,
    *,
    method: str = "integrated_gradients",
    answer: str | int | None = None,
    against: str | int | None = None,
    at: int | str | None = None,
    baseline: str | None = None,
    steps: int | None = None,
    words: bool = False,
) -> AttributionView:
    """How much each token contributes to a prediction: the model's own or `answer`, minus `against` if given.

    `at` selects the row of a tag, of a token of a translation or of a running text. `words` merges the pieces of words.
    `steps` is the number of steps of integrated gradients; by default, as many as needed.
    """
    method_of(method)
    ground = ground_of(subject, reading, baseline)
    goal = chosen_goal(subject, reading, answer=answer, against=against, at=at)
    return view_of(ground, goal, method, MethodOptions(steps, words))


def view_of(ground: AttributionGround, goal: Goal, method: str, wishes: MethodOptions) -> AttributionView:
    """Return the view of one method for one goal."""
    found = outcome(ground, [goal], method, wishes)
    parts = zip(ground.places, found.values, strict=True)
    return AttributionView(
        title=f"Attribution of {goal.name}: {METHODS[method].title}",
        method=method,
        answer=goal.name,
        label=label_of(ground.subject, ground.reading, goal),
        baseline=ground.baseline,
        score=float(found.score[0]),
        baseline_scores=tuple(found.baseline_scores[:, 0].tolist()),
        error=None if found.error is None else float(found.error[0]),
        steps=found.steps,
        grouped=found.grouped,
        parts=tuple(part_of(place, values[0], words=wishes.words) for place, values in parts),
    )


def attribute_file(
    subject: Subject,
    rows: Iterable[Any],
    out: str | Path,
    *,
    method: str = "integrated_gradients",
    answer: str | int | None = None,
    against: str | int | None = None,
    baseline: str | None = None,
    words: bool = False,
    total: int = 0,
    show: Show | None = None,
) -> int:
    """Write the attributions of all inputs to `out` and return their number; an error names the unreadable input."""
    method_of(method)
    written = 0

    def lines() -> Iterator[bytes]:
        nonlocal written
        for row, given in enumerate(rows):
            try:
                view = attribution(
                    subject,
                    read(subject, given),
                    method=method,
                    answer=answer,
                    against=against,
                    baseline=baseline,
                    words=words,
                )
            except SeqloomError as error:
                raise DataError(f"row {row}: {error.problem}", fix=error.fix) from error
            yield (json.dumps(line_of(row, view), ensure_ascii=False, allow_nan=False) + "\n").encode()
            written = row + 1
            if show is not None:
                show(Progress("rows", written, total))

    write_file(Path(out), lines())
    return written


def line_of(row: int, view: AttributionView) -> dict[str, Any]:
    """Return the JSON line of one input as a dictionary."""
    sides = [
        {
            "side": part.name,
            "tokens": list(part.texts),
            "offsets": [[token.start, token.stop] for token in part.tokens],
            "scores": plain(part.values),
            "unknown": list(part.unknown),
        }
        for part in view.parts
    ]
    names = ("label", "answer", "method", "baseline", "score", "baseline_scores", "error")
    return {"row": row, **{name: plain(getattr(view, name)) for name in names}, "sides": sides}


MOST_NGRAMS = 30  # in the figure


class WeightedNgram(NamedTuple):
    """The contribution of tokens start..stop as one n-gram, not including shorter n-grams."""

    text: str
    start: int
    stop: int
    value: float


@dataclass(frozen=True, kw_only=True)
class NgramsView(View):
    """How much each n-gram of a text contributes to one prediction of a linear model."""

    kind: ClassVar[str] = "ngrams"
    answer: str
    score: float
    bias: float  # the score of a text without n-grams
    ngrams: tuple[WeightedNgram, ...]  # strongest first

    def figures(self) -> tuple[Figure, ...]:
        shown = self.ngrams[:MOST_NGRAMS]
        return (
            Bars(
                title=self.title,
                caption=f"{len(self.ngrams):,} n-grams and the bias, {number(self.bias)}, sum to {number(self.score)}.",
                labels=[f"{each.start}: {each.text}" for each in shown],
                values=[each.value for each in shown],
                x_label="contribution to the score",
            ),
        )

    def _sentences(self) -> tuple[str, ...]:
        total = self.bias + sum(each.value for each in self.ngrams)
        return (
            f"The n-grams and the bias sum to {number(total)}; the score of {self.answer} is {number(self.score)}.",
        )


def ngram_contributions(
    subject: Subject, reading: Reading, *, answer: str | int | None = None, against: str | int | None = None
) -> NgramsView:
    """How much each n-gram contributes to a prediction of a linear model; raises ConfigError for other models."""
    source = getattr(getattr(subject.model, "encoder", None), "input", None)
    if not isinstance(source, Ngrams | Tfidf):
        raise ConfigError("only a linear model has n-gram weights", fix="choose attribution, which every model has")
    ground = ground_of(subject, reading, "zero")
    goal = chosen_goal(subject, reading, answer=answer, against=against)
    slope = slopes(ground, [goal], torch.ones(1))[0][0, 0]  # [T,D], constant because the model is linear
    score, rest = ends(ground, [goal])
    texts = ground.places[0].side.texts
    with torch.no_grad():
        rows, weights = (one[0] for one in source.occurrences(ground.places[0].raw))  # [T,n]
        values = weights.double() * torch.einsum("td,tnd->tn", slope.double(), source.table[rows].double())
    ngrams = [
        WeightedNgram(" ".join(texts[at - size : at + 1]), at - size, at + 1, float(values[at, size]))
        for at in range(len(rows))
        for size in range(min(at + 1, source.order))
    ]
    ngrams += [  # the character n-grams inside each word, together
        WeightedNgram(f"characters of {texts[at]}", at, at + 1, float(inside.sum()))
        for at, inside in enumerate(values[:, source.order :])
        if len(inside)
    ]
    return NgramsView(
        title=f"N-gram contributions to {goal.name}",
        answer=goal.name,
        score=float(score[0]),
        bias=float(rest[0]),
        ngrams=tuple(sorted(ngrams, key=lambda each: -abs(each.value))),
    )
