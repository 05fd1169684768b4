"""The alignment of a translation: which source tokens was each target token said from?

Row t belongs to the token that is said at t, not to the one that the decoder reads there, which is the one before. What
a beam wrote is read once more as it stands in the answer, so that no row can be that of another hypothesis.

    coverage_j = sum_t a_tj        what a source token got of all target tokens; T / S of them on average
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqloom.errors import ConfigError, DataError
from seqloom.figures import Figure, Strip
from seqloom.inspection.attention import AttentionView, attention
from seqloom.inspection.attention_layers import chosen_layer, layers_of
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import MEDIUM, SMALL, View

LITTLE, MUCH = 0.25, 2.5  # of the average coverage: below the one a token is uncovered, above the other over-covered
MOST_NAMED = 12

Pair = tuple[int, int]  # a target token and a source token


@dataclass(frozen=True, kw_only=True)
class AlignmentView(View):
    """Source x target: the weights of one layer, and how far each source token is covered."""

    kind: ClassVar[str] = "alignment"
    weights: AttentionView
    coverage: np.ndarray  # [S]
    uncovered: tuple[int, ...]  # numbers of source tokens
    over_covered: tuple[int, ...]
    links: tuple[Pair, ...]  # of each target token the source token that it looked at most; none beyond 512 tokens
    error_rate: float | None  # of these links against those that were given, where there are any

    @property
    def source(self) -> tuple[str, ...]:
        """The source as it is shown."""
        return self.weights.columns

    @property
    def target(self) -> tuple[str, ...]:
        """The target as it is shown, each token where it is said."""
        return self.weights.rows

    def figures(self) -> tuple[Figure, ...]:
        covered = Strip(
            title="How far each source token is covered",
            tokens=self.source,
            values=self.coverage.tolist(),
            value_label="weight it got of all target tokens",
        )
        return (*self.weights.maps(), *([covered] if len(self.source) <= MEDIUM else []))

    def sentences(self) -> tuple[str, ...]:
        low, high = float(np.nanmin(self.coverage)), float(np.nanmax(self.coverage))
        error = (
            [] if self.error_rate is None else [f"Alignment error rate {self.error_rate:.3f} against the given links."]
        )
        return (
            f"Source tokens got from {low:.2f} to {high:.2f} of the weight of {len(self.target):,} target tokens.",
            *self._named("Uncovered", self.uncovered),
            *self._named("Over-covered", self.over_covered),
            *error,
        )

    def html(self) -> str:
        if max(len(self.source), len(self.target)) <= SMALL:
            return super().html()
        return self.weights.page(self.title, self.sentences(), self.figures()[len(self.weights.maps()) :])

    def _named(self, word: str, places: tuple[int, ...]) -> tuple[str, ...]:
        if not places:
            return ()
        named = ", ".join(f"'{self.source[at]}' ({at})" for at in places[:MOST_NAMED])
        more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
        return (f"{word}: {named}{more}.",)


def alignment(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    words: bool = False,
    exclude_special: bool = False,
    gold: Sequence[Pair] = (),
) -> AlignmentView:
    """The weights from target to source, of the last layer that looks at it and the mean of its heads if not told.

    `gold` are links that are known to be right, (number of the target token, number of the source token).
    """
    target = reading.sides[-1]
    crossing = [each for each in layers_of(subject, reading) if not each.same and each.queries == target.tokens]
    if len(reading.sides) < 2 or not crossing:
        raise ConfigError(
            "this model aligns nothing: no layer of a target reads a source by weights",
            fix="choose a translator with attention, such as transformer or seq2seq-dot",
        )
    chosen = chosen_layer(crossing, layer)
    weights = attention(subject, reading, layer=chosen.path, head=head, words=words, exclude_special=exclude_special)
    _require_inside(gold, weights)
    links = () if weights.values is None else _strongest(weights.values)
    usual = np.nanmean(weights.mass)
    return AlignmentView(
        title=f"Alignment by {chosen.path}",
        weights=weights,
        coverage=weights.mass,
        uncovered=tuple(int(at) for at in np.flatnonzero(weights.mass < LITTLE * usual)),
        over_covered=tuple(int(at) for at in np.flatnonzero(weights.mass > MUCH * usual)),
        links=links,
        error_rate=error_rate(links, gold) if gold and links else None,
    )


def error_rate(found: Sequence[Pair], gold: Sequence[Pair]) -> float:
    """1 - 2 |A n G| / (|A| + |G|): the alignment error rate of Och & Ney 2003 where all given links are sure.

    >>> error_rate([(0, 0), (1, 2)], [(0, 0), (1, 1)])
    0.5
    """
    return 1 - 2 * len(set(found) & set(gold)) / (len(set(found)) + len(set(gold)))


def _require_inside(gold: Sequence[Pair], weights: AttentionView) -> None:
    for target, source in gold:
        if not (0 <= target < len(weights.rows) and 0 <= source < len(weights.columns)):
            raise DataError(
                f"the link ({target}, {source}) leads outside {len(weights.rows)} target and "
                f"{len(weights.columns)} source tokens",
                fix="give (number of the target token, number of the source token), from 0",
            )


def _strongest(values: np.ndarray) -> tuple[Pair, ...]:
    known = np.nan_to_num(values, nan=-1.0)
    return tuple((row, int(best)) for row, best in enumerate(known.argmax(axis=1)))
