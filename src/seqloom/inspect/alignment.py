"""The alignment of a translation: which source tokens does each target token attend to?

Row t belongs to the token that is predicted at step t, not to the one that the decoder reads there. The output of a
beam search is run through the model again, so that every row belongs to the final translation.

    coverage_j = sum_t a_tj        the attention that a source token receives; T / S on average

Gold links are between words, so subwords are joined. Words are those of `text.split()`, not of the tokenizer:
punctuation belongs to its word, a space to the word after it. A target word is linked to the source word that it
attends to most; one that attends most to a special token is not linked.

    "0-0 1-2 3?4"    source word - target word; ? marks a possible link, the others are sure

    A predicted    S sure    P sure or possible
    precision = |A n P| / |A|      recall = |A n S| / |S|      AER = 1 - (|A n S| + |A n P|) / (|A| + |S|)

The alignment error rate is that of Och and Ney (2003): possible links are neither required nor counted as errors.
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
from seqloom.inspect.layer_names import chosen_title
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
    """A reference alignment."""

    sure: tuple[WordPair, ...]
    possible: tuple[WordPair, ...] = ()  # links that are allowed but not required

    @property
    def every(self) -> tuple[WordPair, ...]:
        """Sure and possible links."""
        return (*self.sure, *self.possible)


class AlignmentScores(NamedTuple):
    """Predicted links compared with gold links; None where a score is undefined."""

    error_rate: float | None
    precision: float | None
    recall: float | None
    found: int
    sure: int
    possible: int


def gold_links(given: str | Sequence[WordPair] | Gold) -> Gold:
    """Parse gold links from a text such as `0-0 1-2 3?4`, or from pairs, which are all sure.

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
            fix = "write SOURCE-TARGET, counted from 0, such as 0-0 1-2; write a possible link as 3?4"
            raise DataError(f"'{text}' is not an alignment link", fix=fix)
        links[found[2]][int(found[1]), int(found[3])] = None
    return Gold(tuple(links["-"]), tuple(pair for pair in links["?"] if pair not in links["-"]))


def _pair(given: Iterable[SupportsIndex]) -> WordPair:
    """Two integers of Python or numpy; booleans are refused."""
    try:
        one, other = given
        if isinstance(one, bool) or isinstance(other, bool):
            raise TypeError
        return index(one), index(other)
    except (TypeError, ValueError):
        fix = "give (number of the source word, number of the target word)"
        raise DataError(f"{given!r} is not an alignment link", fix=fix) from None


def alignment_scores(found: Collection[WordPair], gold: Gold) -> AlignmentScores:
    """Score predicted links against gold links.

    >>> alignment_scores([(0, 0), (1, 2)], Gold(sure=((0, 0), (1, 1)))).error_rate
    0.5
    """
    links, sure, every = set(found), set(gold.sure), set(gold.every)
    right, allowed = len(links & sure), len(links & every)
    error = 1 - (right + allowed) / (len(links) + len(sure)) if links or sure else None
    precision, recall = (allowed / len(links) if links else None), (right / len(sure) if sure else None)
    return AlignmentScores(error, precision, recall, len(links), len(sure), len(every) - len(sure))


LITTLE, MUCH = 0.25, 2.5  # of the average coverage: below the one a token is uncovered, above the other over-covered
MOST_NAMED = 12


@dataclass(frozen=True, kw_only=True)
class AlignmentView(View):
    """The cross-attention weights of one layer, and the coverage of each source token."""

    kind: ClassVar[str] = "alignment"
    weights: AttentionView
    coverage: np.ndarray  # [S]
    uncovered: tuple[int, ...]  # numbers of source tokens
    over_covered: tuple[int, ...]
    links: tuple[WordPair, ...]  # source, target: the strongest key of each target token; beyond 512 only with gold
    gold: Gold | None  # the given links, by the indices of the rows and columns shown
    scores: AlignmentScores | None  # of the predicted links against the gold links

    @property
    def source(self) -> tuple[str, ...]:
        return self.weights.columns

    @property
    def target(self) -> tuple[str, ...]:
        return self.weights.rows

    def figures(self) -> tuple[Figure, ...]:
        covered = Strip(
            title="Coverage of each source token",
            tokens=self.source,
            values=self.coverage.tolist(),
            value_label="attention received from all target tokens",
        )
        return (*self._maps(), *([covered] if len(self.source) <= MEDIUM else []))

    def _maps(self) -> list[Figure]:
        """The maps of the weights, with gold links framed where every cell is drawn."""
        found, first = list[Figure](), 0
        for drawn in self.weights.maps() if self.gold is None else self.weights.maps(numbered=SMALL):
            figure = replace(drawn, x_label="source", y_label="target")
            if isinstance(figure, Matrix) and self.gold is not None:
                inside = range(first, first + len(figure.rows))
                sure, possible = (
                    [(target - first, source) for source, target in links if target in inside] for links in self.gold
                )
                caption = f"{figure.caption} Framed: gold links; dashed: possible links."
                figure = replace(figure, framed=sure, dashed=possible, caption=caption)
                first = inside.stop
            found.append(figure)
        return found

    def _sentences(self) -> tuple[str, ...]:
        low, high = float(np.nanmin(self.coverage)), float(np.nanmax(self.coverage))
        return (
            *self._gold_sentences(),
            f"Coverage of the source tokens: {interval(low, high)}, summed over {len(self.target):,} target tokens.",
            *_listed("Uncovered", [f"'{self.source[at]}' ({at})" for at in self.uncovered]),
            *_listed("Over-covered", [f"'{self.source[at]}' ({at})" for at in self.over_covered]),
        )

    def _gold_sentences(self) -> tuple[str, ...]:
        if self.gold is None or self.scores is None:
            return ()
        rates = zip(("Alignment error rate", "precision", "recall"), self.scores[:3], strict=True)
        scores = ", ".join(f"{name} {'undefined' if rate is None else number(rate)}" for name, rate in rates)
        counts = f"{self.scores.found} predicted, {self.scores.sure} sure and {self.scores.possible} possible links"
        missed = [pair for pair in self.gold.sure if pair not in self.links]
        named = [f"'{self.source[one]}' - '{self.target[other]}'" for one, other in missed]
        return (f"{scores} ({counts}).", *_listed("Missed", named))

    def _blocks(self) -> Sequence[DocumentBlock]:
        if max(len(self.source), len(self.target)) <= SMALL:
            return super()._blocks()
        maps = self._maps()
        return [self.weights.canvas(maps), *pictures(self.figures()[len(maps) :])]


def _listed(word: str, names: Sequence[str]) -> tuple[str, ...]:
    """A sentence that lists the first names; nothing for an empty list."""
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
    """Which source tokens each target token attends to: the cross-attention weights of one layer.

    Args:
        layer: Number or path of a cross-attention layer (default: the last).
        head: Number of the head (default: the mean over heads).
        words: Join the subwords of each word.
        exclude_special: Take the weight off special tokens and rescale the rest.
        gold: Reference links, `"0-0 1-2 3?4"` or pairs (source word, target word), counted from 0; shown by words.
    """
    known = gold_links(gold)
    if known.every:  # gold links count words between spaces
        spaced = (tuple(token._replace(word=token.spaced) for token in side.tokens) for side in reading.sides)
        both = zip(reading.sides, spaced, strict=True)
        reading = reading._replace(sides=tuple(side._replace(tokens=tokens) for side, tokens in both))
    target_tokens = reading.sides[-1].tokens
    crossing = [each for each in layers_of(subject, reading) if not each.same and each.queries == target_tokens]
    if len(reading.sides) < 2 or not crossing:
        raise ConfigError(
            "this model has no alignment: its target does not attend to a source",
            fix="choose a translator with attention, such as transformer or seq2seq-dot",
        )
    chosen = chosen_layer(crossing, layer)
    source, target = _words_of(chosen.keys), _words_of(chosen.queries)
    shown = _shown(known, source, target) if known.every else None
    words = words or shown is not None
    weights = attention(subject, reading, layer=chosen.path, head=head, words=words, exclude_special=exclude_special)
    named = chosen_title(chosen.path, [each.path for each in crossing])
    weights = replace(weights, title=f"Alignment of {named}, {weights.title.rpartition(', ')[2]}")
    links = () if weights.values is None else _strongest([weights.values])
    fit = None
    if shown is not None:
        links = links or _links(subject, reading, chosen, head, exclude_special)
        inside = set(source.values()), set(target.values())  # without special tokens
        fit = alignment_scores([(one, other) for one, other in links if one in inside[0] and other in inside[1]], shown)
    mean = np.nanmean(weights.received)
    return AlignmentView(
        title=f"Alignment of {named}",
        weights=weights,
        coverage=weights.received,
        uncovered=tuple(int(at) for at in np.flatnonzero(weights.received < LITTLE * mean)),
        over_covered=tuple(int(at) for at in np.flatnonzero(weights.received > MUCH * mean)),
        links=links,
        gold=shown,
        scores=fit,
    )


def _words_of(tokens: Sequence[Token]) -> dict[int, int]:
    """The row or column of each word, by the number of the word."""
    firsts = [tokens[start] for start in units(tokens, words=True).starts[:-1]]
    return {token.word: at for at, token in enumerate(firsts) if token.word != NO_WORD}


def _shown(gold: Gold, source: Mapping[int, int], target: Mapping[int, int]) -> Gold:
    """Gold links by row and column numbers, which also count special tokens."""
    for one, other in gold.every:
        if one not in source or other not in target:
            raise DataError(
                f"the link {one}-{other} is outside the {len(source)} source and {len(target)} target words",
                fix="count words between spaces, from 0: SOURCE-TARGET",
            )
    return Gold(*(tuple((source[one], target[other]) for one, other in links) for links in gold))


def _links(
    subject: Subject, reading: Reading, layer: AttentionLayer, head: int | None, exclude_special: bool
) -> tuple[WordPair, ...]:
    """The predicted links of a large table, computed a block of rows at a time."""
    rows, columns = units(layer.queries, words=True), units(layer.keys, words=True)
    left_out = np.array([exclude_special and token.is_special for token in layer.keys], dtype=bool)

    def take(_: AttentionLayer, given: AttentionRows) -> tuple[WordPair, ...]:
        wanted = AskedWeights(chosen_heads(layer, given.num_heads, head), rows, columns, left_out)
        return _strongest([block.values for block in blocks(given, wanted)])

    (found,) = heard(subject, reading, [layer], take)
    return found


def _strongest(tables: Sequence[np.ndarray]) -> tuple[WordPair, ...]:
    """The source word with the largest weight for each target word."""
    best = np.concatenate([np.nan_to_num(values, nan=-1.0).argmax(axis=1) for values in tables])
    return tuple((int(source), target) for target, source in enumerate(best))
