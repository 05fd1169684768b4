"""One answer and what moved it: each token of the input with its part.

up to 64 tokens     every token on its colour, with its number
up to 512           the strip of tokens, the strongest of them, and totals of sentences
beyond              totals of sentences first, a map of the whole, the strongest tokens; a page opens each sentence
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqloom.figures import Bars, Figure, HeatMap, Strip
from seqloom.figures.markup import tag
from seqloom.figures.page import SHEET, document
from seqloom.inspection.attribution.goals import Goal, chosen_goal, label_of
from seqloom.inspection.attribution.ground import Ground, ground_of
from seqloom.inspection.attribution.methods import METHODS, Wishes, method_of, outcome
from seqloom.inspection.attribution.opening import RULES, opening
from seqloom.inspection.attribution.parts import Part, part_of
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import MEDIUM, SMALL, View

STRONGEST = 20
TOLERATED = 0.01  # of completeness, in integrated gradients
MOST_STRETCHES = 40
MAP_CELLS = 240


@dataclass(frozen=True, kw_only=True)
class AttributionView(View):
    """What each element of an input has to do with one answer, by one method."""

    kind: ClassVar[str] = "attribution"
    method: str
    answer: str  # the number that is explained, in words
    label: str | None = None  # the answer by itself, as programs compare it; None for several answers, or a cosine
    baseline: str
    score: float
    baseline_scores: tuple[float, ...]  # of the input at its baseline; of two texts, with the first there, the second
    error: float | None  # of completeness, as a part of `rise`; None for what adds up to nothing
    steps: int  # how often the model was asked
    grouped: int  # so many elements were taken away at once, at most
    parts: tuple[Part, ...]

    @property
    def total(self) -> float:
        """What all elements come to."""
        return float(sum(np.nansum(part.values) for part in self.parts))

    @property
    def rise(self) -> float:
        """What all elements should come to: the score less that of the baseline."""
        return sum(self.score - before for before in self.baseline_scores)

    @property
    def span(self) -> tuple[float, float] | None:
        """The scale that all parts share."""
        known = np.concatenate([part.values[~np.isnan(part.values)] for part in self.parts])
        return (float(min(known.min(), 0)), float(max(known.max(), 0))) if known.size and known.any() else None

    def figures(self) -> tuple[Figure, ...]:
        return tuple(figure for part in self.parts for figure in self._figures(part))

    def _figures(self, part: Part) -> list[Figure]:
        if part.shape is not None:
            return [self._picture(part)]
        if len(part.tokens) <= SMALL:
            return [self._strip(part)]
        several = [self._totals(part)] if len(part.stretches) > 1 else []
        if len(part.tokens) <= MEDIUM:
            return [self._strip(part), self._strongest(part), *several]
        return [*several, self._map(part), self._strongest(part)]

    def _sentences(self) -> tuple[str, ...]:
        before = " and ".join(f"{score:.4g}" for score in self.baseline_scores)
        apart = ", one text at a time" if len(self.baseline_scores) > 1 else ""
        said = [
            f"{METHODS[self.method].title.capitalize()} of {self.answer}, which scores {self.score:.4g}; "
            f"the baseline ({self.baseline}{apart}) scores {before}."
        ]
        if self.error is None:
            said.append("The numbers of this method add up to no score: compare them with one another only.")
        else:
            said.append(
                f"They add up to {self.total:.4g} of a difference of {self.rise:.4g}: "
                f"completeness error {self.error:.2%}."
            )
        if self.method == "integrated" and (self.error or 0.0) > TOLERATED:
            said.append(f"That is more than {TOLERATED:.0%}: ask for more steps=, or another baseline=.")
        if self.grouped > 1:
            said.append(f"Up to {self.grouped} elements were taken away at once; each has an equal share of the loss.")
        return (*said, *(self._said(part) for part in self.parts if part.shape is None and part.strongest(1)))

    def _said(self, part: Part) -> str:
        named = ", ".join(f"“{part.tokens[at].text}” ({at}) {part.values[at]:+.3g}" for at in part.strongest(3))
        side = f" of the {part.name}" if len(self.parts) > 1 else ""
        return f"The strongest tokens{side}: {named}."

    def _title(self, part: Part, more: str = "") -> str:
        side = f", {part.name}" if len(self.parts) > 1 else ""
        return f"{self.title}{side}{more}"

    def _strip(self, part: Part) -> Figure:
        return Strip(
            title=self._title(part),
            caption=self._caption(),
            tokens=part.texts,
            values=part.numbers,
            value_label=METHODS[self.method].unit,
            span=self.span,
        )

    def _caption(self) -> str:
        if self.error is None:
            return "Adds up to no score, and has no baseline."
        return f"Baseline: {self.baseline}; completeness error {self.error:.2%}."

    def _strongest(self, part: Part) -> Figure:
        chosen, texts = part.strongest(STRONGEST) or [0], part.texts
        return Bars(
            title=self._title(part, ": the strongest tokens"),
            caption=self._caption(),
            labels=[f"{at}: {texts[at].strip() or '␣'}" for at in chosen],
            values=np.nan_to_num(part.values[chosen]).tolist(),
            x_label=METHODS[self.method].unit,
        )

    def _totals(self, part: Part) -> Figure:
        sizes = np.array([abs(each.total) for each in part.stretches])
        chosen = sorted(np.argsort(-sizes, kind="stable")[:MOST_STRETCHES].tolist())
        fewer = f"the {len(chosen)} strongest of {len(sizes)} sentences" if len(chosen) < len(sizes) else "sentences"
        return Bars(
            title=self._title(part, f": totals of {fewer}"),
            labels=[f"{part.stretches[at].start}: {part.stretches[at].beginning}" for at in chosen],
            values=[part.stretches[at].total for at in chosen],
            x_label=f"{METHODS[self.method].unit}, added up",
        )

    def _map(self, part: Part) -> Figure:
        """The whole text as two rows of cells: a sum hides a sharp token, and a maximum a crowd of weak ones."""
        across = -(-len(part.tokens) // MAP_CELLS)
        starts = np.arange(0, len(part.tokens), across)
        ups, downs = np.fmax.reduceat(part.values, starts), np.fmin.reduceat(part.values, starts)
        sums = np.where(np.isnan(ups), np.nan, np.add.reduceat(np.nan_to_num(part.values), starts))
        return HeatMap(
            title=self._title(part, ": the whole of it"),
            caption=f"Row 0: the sum over {across} tokens. Row 1: the strongest single one of them.",
            values=[sums.tolist(), np.where(ups >= -downs, ups, downs).tolist()],
            x=starts.astype(float).tolist(),
            x_label="token",
            value_label=METHODS[self.method].unit,
        )

    def _picture(self, part: Part) -> Figure:
        assert part.shape is not None
        height, width = part.shape
        numbers = part.numbers
        return HeatMap(
            title=self._title(part),
            caption=self._caption(),
            values=[numbers[row * width : (row + 1) * width] for row in range(height)],
            x_label="pixel",
            y_label="pixel",
            value_label=METHODS[self.method].unit,
            span=self.span,
        )

    def html(self) -> str:
        long = [part for part in self.parts if part.shape is None and len(part.tokens) > MEDIUM]
        if not long:
            return super().html()
        opened = [opening(self._title(part, ": every sentence"), part, self.span) for part in long]
        return document(self.title, [tag("h1", self.title), *self.body(), *opened], SHEET + RULES)


def attribution(
    subject: Subject,
    reading: Reading,
    *,
    method: str = "integrated",
    answer: str | int | None = None,
    against: str | int | None = None,
    at: int | str | None = None,
    baseline: str | None = None,
    steps: int | None = None,
    words: bool = False,
) -> AttributionView:
    """What each token of an input has to do with one answer: the predicted one, or `answer`, less `against` if given.

    `at` is the row of a tag, of a symbol of a translation or of a running text. With `words`, pieces of words are put
    together. `steps` are those of integrated gradients, as many as it takes if they are not given.
    """
    method_of(method)
    ground = ground_of(subject, reading, baseline)
    goal = chosen_goal(subject, reading, answer=answer, against=against, at=at)
    return view_of(ground, goal, method, Wishes(steps, words))


def view_of(ground: Ground, goal: Goal, method: str, wishes: Wishes) -> AttributionView:
    """What one method finds for one goal."""
    found = outcome(ground, [goal], method, wishes)
    parts = zip(ground.places, found.values, strict=True)
    return AttributionView(
        title=f"What moved {goal.name}: {METHODS[method].title}",
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
