"""A linear model of n-grams, exactly: the score is the sum of the weights of the n-grams that stand in the text.

    s = b + sum over n-grams g of the text of phi_g w_g       nothing is approximated, and nothing is left over

with phi_g = 1 where n-grams are counted, and their share in TF-IDF where that weighs them.

Longer n-grams share rows through a hash, so one that was never trained on may have a weight: that of another.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from seqloom.errors import ConfigError
from seqloom.inspect.attribution.goals import chosen_goal, ground_of
from seqloom.inspect.attribution.gradients import ends, slopes
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.nn.inputs import Ngrams, Tfidf
from seqloom.nn.types import Padded
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.numbers import number

STRONGEST = 30


class WeightedNgram(NamedTuple):
    """Tokens start..stop and what they give to the score together, beyond what shorter ones give."""

    text: str
    start: int
    stop: int
    value: float


@dataclass(frozen=True, kw_only=True)
class NgramsView(View):
    """What each n-gram of a text gives to one answer of a linear model."""

    kind: ClassVar[str] = "ngrams"
    answer: str
    score: float
    rest: float  # the score of a text without n-grams: the bias
    ngrams: tuple[WeightedNgram, ...]  # the strongest first

    def figures(self) -> tuple[Figure, ...]:
        shown = self.ngrams[:STRONGEST]
        return (
            Bars(
                title=self.title,
                caption=f"With the bias of {number(self.rest)} all {len(self.ngrams):,} come to {number(self.score)}.",
                labels=[f"{each.start}: {each.text}" for each in shown],
                values=[each.value for each in shown],
                x_label="part of the score",
            ),
        )

    def _sentences(self) -> tuple[str, ...]:
        total = self.rest + sum(each.value for each in self.ngrams)
        return (
            f"The n-grams and the bias come to {number(total)}; the score of {self.answer} is {number(self.score)}.",
        )


def ngram_contributions(
    subject: Subject, reading: Reading, *, answer: str | int | None = None, against: str | int | None = None
) -> NgramsView:
    """What each n-gram gives to an answer of a linear model; ConfigError for a model of another kind."""
    source = getattr(getattr(subject.model, "encoder", None), "input", None)
    if not isinstance(source, Ngrams | Tfidf):
        raise ConfigError("only a linear model reads n-grams", fix="look at attribution, which every model has")
    ground = ground_of(subject, reading, "zero")
    goal = chosen_goal(subject, reading, answer=answer, against=against)
    slope = slopes(ground, [goal], torch.ones(1))[0][0, 0]  # [T,D], the same everywhere: the model is linear
    score, rest = ends(ground, [goal])
    found = _weighed(source, ground.places[0].raw, slope.double())
    texts = ground.places[0].side.texts
    ngrams = [
        WeightedNgram(" ".join(texts[stop - size : stop]), stop - size, stop, value) for stop, size, value in found
    ]
    return NgramsView(
        title=f"The n-grams that moved {goal.name}",
        answer=goal.name,
        score=float(score[0]),
        rest=float(rest[0]),
        ngrams=tuple(sorted(ngrams, key=lambda each: -abs(each.value))),
    )


@torch.no_grad()
def _weighed(source: Ngrams | Tfidf, text: Padded, slope: torch.Tensor) -> list[tuple[int, int, float]]:
    """(stop, size, value) of every n-gram."""
    rows, weights = (one[0] for one in source.occurrences(text))  # [T,n]
    values = weights.double() * torch.einsum("td,tnd->tn", slope, source.table[rows].double())
    places = ((at, size) for at in range(len(rows)) for size in range(min(at + 1, rows.shape[1])))
    return [(at + 1, size + 1, float(values[at, size])) for at, size in places]
