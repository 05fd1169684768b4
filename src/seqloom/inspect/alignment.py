"""The alignment of a translation: which source tokens was each target token said from?

Row t belongs to the token that is said at t, not to the one that the decoder reads there, which is the one before. What
a beam wrote is read once more as it stands in the answer, so that no row can be that of another hypothesis.

    coverage_j = sum_t a_tj        what a source token got of all target tokens; T / S of them on average

Links that are known to be right are between words, so with them pieces are put together. Words are those between
spaces, numbered as `text.split()` numbers them whatever the tokeniser cuts: a mark belongs to the word that it stands
at, a space to the word behind it. A target word is linked to the source word that it looked at most; one that looked at
a special symbol most is linked to nothing.

    "0-0 1-2 3?4"    source word - target word; one with ? is possible, others are sure

    A found    S sure    P sure or possible
    precision = |A n P| / |A|      recall = |A n S| / |S|      AER = 1 - (|A n S| + |A n P|) / (|A| + |S|)

The alignment error rate is that of Och and Ney (2003): a possible link is neither asked for nor held against anybody.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import ClassVar, NamedTuple, SupportsIndex

import numpy as np

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention import AttentionView, attention
from seqloom.inspect.attention_weights import (
    AskedWeights,
    AttentionLayer,
    AttentionRows,
    blocks,
    chosen_heads,
    chosen_layer,
    heard,
    layers_of,
    units,
)
from seqloom.inspect.subject import NO_WORD, Reading, Subject, Token
from seqloom.inspect.view import MEDIUM, SMALL, View, pictures
from seqloom.report.document import DocumentBlock
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import interval, number

WordPair = tuple[int, int]  # a source word and a target word, from 0

WRITTEN = re.compile(r"(\d+)([-?])(\d+)")


class Gold(NamedTuple):
    """The links that are known."""

    sure: tuple[WordPair, ...]
    possible: tuple[WordPair, ...] = ()  # the others that may be there

    @property
    def every(self) -> tuple[WordPair, ...]:
        """All of them."""
        return (*self.sure, *self.possible)


class Fit(NamedTuple):
    """How well links fit those that are known; None where there is nothing to divide by."""

    error_rate: float | None
    precision: float | None
    recall: float | None
    found: int
    sure: int
    possible: int


def gold_links(given: str | Sequence[WordPair] | Gold) -> Gold:
    """The links of a text such as `0-0 1-2 3?4`, or of pairs, which are all sure.

    >>> gold_links("0-0 1-2 3?4")
    Gold(sure=((0, 0), (1, 2)), possible=((3, 4),))
    """
    if isinstance(given, Gold):
        return Gold(*(tuple(map(_pair, links)) for links in given))
    if not isinstance(given, str):
        return Gold(tuple(map(_pair, given)))
    links: dict[str, dict[WordPair, None]] = {"-": {}, "?": {}}  # in their order, each once
    for text in given.split():
        found = WRITTEN.fullmatch(text)
        if found is None:
            fix = "write source-target, from 0, such as 0-0 1-2; possible ones 3?4"
            raise DataError(f"'{text}' is no link", fix=fix)
        links[found[2]][int(found[1]), int(found[3])] = None
    return Gold(tuple(links["-"]), tuple(pair for pair in links["?"] if pair not in links["-"]))


def _pair(given: Iterable[SupportsIndex]) -> WordPair:
    """Two whole numbers, which numpy may have made; a truth is none."""
    try:
        one, other = given
        if isinstance(one, bool) or isinstance(other, bool):
            raise TypeError
        return index(one), index(other)
    except (TypeError, ValueError):
        fix = "give (number of the source word, number of the target word)"
        raise DataError(f"{given!r} is no link", fix=fix) from None


def fit_of(found: Collection[WordPair], gold: Gold) -> Fit:
    """How well the links that were found fit.

    >>> fit_of([(0, 0), (1, 2)], Gold(sure=((0, 0), (1, 1)))).error_rate
    0.5
    """
    links, sure, every = set(found), set(gold.sure), set(gold.every)
    right, allowed = len(links & sure), len(links & every)
    error = 1 - (right + allowed) / (len(links) + len(sure)) if links or sure else None
    precision, recall = (allowed / len(links) if links else None), (right / len(sure) if sure else None)
    return Fit(error, precision, recall, len(links), len(sure), len(every) - len(sure))


LITTLE, MUCH = 0.25, 2.5  # of the average coverage: below the one a token is uncovered, above the other over-covered
MOST_NAMED = 12


@dataclass(frozen=True, kw_only=True)
class AlignmentView(View):
    """Source x target: the weights of one layer, and how far each source token is covered."""

    kind: ClassVar[str] = "alignment"
    weights: AttentionView
    coverage: np.ndarray  # [S]
    uncovered: tuple[int, ...]  # numbers of source tokens
    over_covered: tuple[int, ...]
    links: tuple[WordPair, ...]  # source and target: what each target token looked at most; beyond 512 with gold alone
    gold: Gold | None  # the links that were given, by the numbers of what is shown
    fit: Fit | None  # of the links of the weights to those

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
        return (*self._maps(), *([covered] if len(self.source) <= MEDIUM else []))

    def _maps(self) -> list[Figure]:
        """The maps of the weights, known links framed where every cell is drawn."""
        found, first = list[Figure](), 0
        for figure in self.weights.maps():
            if isinstance(figure, Matrix) and self.gold is not None:
                inside = range(first, first + len(figure.rows))
                sure, possible = (
                    [(target - first, source) for source, target in links if target in inside] for links in self.gold
                )
                caption = f"{figure.caption} Framed: links that are known to be right, dashed ones are possible."
                figure = replace(figure, framed=sure, dashed=possible, caption=caption)
                first = inside.stop
            found.append(figure)
        return found

    def _sentences(self) -> tuple[str, ...]:
        low, high = float(np.nanmin(self.coverage)), float(np.nanmax(self.coverage))
        return (
            *self._said_of_gold(),
            f"Source tokens got {interval(low, high)} of the weight of {len(self.target):,} target tokens.",
            *_listed("Uncovered", [f"'{self.source[at]}' ({at})" for at in self.uncovered]),
            *_listed("Over-covered", [f"'{self.source[at]}' ({at})" for at in self.over_covered]),
        )

    def _said_of_gold(self) -> tuple[str, ...]:
        if self.gold is None or self.fit is None:
            return ()
        rates = zip(("Alignment error rate", "precision", "recall"), self.fit[:3], strict=True)
        told = ", ".join(f"{name} {'unknown' if rate is None else f'{number(rate)}'}" for name, rate in rates)
        counts = f"{self.fit.found} links of the weights, {self.fit.sure} sure and {self.fit.possible} possible ones"
        missed = [pair for pair in self.gold.sure if pair not in self.links]
        named = [f"'{self.source[one]}' - '{self.target[other]}'" for one, other in missed]
        return (f"{told} ({counts}).", *_listed("Missed", named))

    def _blocks(self) -> Sequence[DocumentBlock]:
        if max(len(self.source), len(self.target)) <= SMALL:
            return super()._blocks()
        maps = self._maps()
        return [self.weights.canvas(maps), *pictures(self.figures()[len(maps) :])]


def _listed(word: str, names: Sequence[str]) -> tuple[str, ...]:
    """A sentence that names the first of them; none where there are none."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (f"{word}: {', '.join(names[:MOST_NAMED])}{more}.",) if names else ()


def alignment(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    words: bool = False,
    exclude_special: bool = False,
    gold: str | Sequence[WordPair] | Gold = (),
) -> AlignmentView:
    """The weights from target to source, of the last layer that looks at it and the mean of its heads if not told.

    `gold` are links that are known to be right, (number of the source word, number of the target word) or a text of
    them, `0-0 1-2 3?4`, of which those with ? are possible. They are between words as `text.split()` gives them, from
    0, which are shown then.
    """
    known = gold_links(gold)
    if known.every:  # the words are those between spaces
        spaced = (tuple(token._replace(word=token.spaced) for token in side.tokens) for side in reading.sides)
        both = zip(reading.sides, spaced, strict=True)
        reading = reading._replace(sides=tuple(side._replace(tokens=tokens) for side, tokens in both))
    target_tokens = reading.sides[-1].tokens
    crossing = [each for each in layers_of(subject, reading) if not each.same and each.queries == target_tokens]
    if len(reading.sides) < 2 or not crossing:
        raise ConfigError(
            "this model aligns nothing: no layer of a target reads a source by weights",
            fix="choose a translator with attention, such as transformer or seq2seq-dot",
        )
    chosen = chosen_layer(crossing, layer)
    source, target = _words_of(chosen.keys), _words_of(chosen.queries)
    shown = _shown(known, source, target) if known.every else None
    words = words or shown is not None
    weights = attention(subject, reading, layer=chosen.path, head=head, words=words, exclude_special=exclude_special)
    links = () if weights.values is None else _strongest([weights.values])
    fit = None
    if shown is not None:
        links = links or _links(subject, reading, chosen, head, exclude_special)
        inside = set(source.values()), set(target.values())  # what else is shown are special symbols
        fit = fit_of([(one, other) for one, other in links if one in inside[0] and other in inside[1]], shown)
    usual = np.nanmean(weights.mass)
    return AlignmentView(
        title=f"Alignment by {chosen.path}",
        weights=weights,
        coverage=weights.mass,
        uncovered=tuple(int(at) for at in np.flatnonzero(weights.mass < LITTLE * usual)),
        over_covered=tuple(int(at) for at in np.flatnonzero(weights.mass > MUCH * usual)),
        links=links,
        gold=shown,
        fit=fit,
    )


def _words_of(tokens: Sequence[Token]) -> dict[int, int]:
    """Where each word, by its number, stands among what is shown."""
    firsts = [tokens[start] for start in units(tokens, words=True).starts[:-1]]
    return {token.word: at for at, token in enumerate(firsts) if token.word != NO_WORD}


def _shown(gold: Gold, source: Mapping[int, int], target: Mapping[int, int]) -> Gold:
    """Links between words by the numbers of what is shown, where special symbols stand too."""
    for one, other in gold.every:
        if one not in source or other not in target:
            raise DataError(
                f"the link {one}-{other} leads outside {len(source)} source and {len(target)} target words",
                fix="words are those between spaces: give (number of the source word, of the target word), from 0",
            )
    return Gold(*(tuple((source[one], target[other]) for one, other in links) for links in gold))


def _links(
    subject: Subject, reading: Reading, layer: AttentionLayer, head: int | None, exclude_special: bool
) -> tuple[WordPair, ...]:
    """The links of a table that is too large to be held, some rows at a time."""
    rows, columns = units(layer.queries, words=True), units(layer.keys, words=True)
    left_out = np.array([exclude_special and token.is_special for token in layer.keys], dtype=bool)

    def take(_: AttentionLayer, given: AttentionRows) -> tuple[WordPair, ...]:
        asked = AskedWeights(chosen_heads(layer, given.num_heads, head), rows, columns, left_out)
        return _strongest([block.values for block in blocks(given, asked)])

    (found,) = heard(subject, reading, [layer], take)
    return found


def _strongest(tables: Sequence[np.ndarray]) -> tuple[WordPair, ...]:
    """Of each target word, in tables of some of them each, the source word with the most weight."""
    best = np.concatenate([np.nan_to_num(values, nan=-1.0).argmax(axis=1) for values in tables])
    return tuple((int(source), target) for target, source in enumerate(best))
