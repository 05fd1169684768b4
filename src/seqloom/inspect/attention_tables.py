"""A table of attention of any length, block by block: words merged, symbols left out, and summaries of what passes by.

    weights of tokens ──without special keys──▶ ──by words──▶ blocks of rows ──▶ exact rows where they are few
                                                                            └──▶ entropy, mass, maps of maxima and means

Words: the weights of a word's pieces are added up as keys and averaged as queries, so that rows still add up to 1.
Maps: a maximum shows whether there is anything in a block of cells, a mean how much; each alone would mislead.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.inspect.attention_rows import AttentionRows
from seqloom.inspect.tokens import NO_WORD, Token

ROWS_AT_ONCE = 128
LARGEST_MAP = 512  # cells on a side of a pooled map
MOST_LINKS = 16
LINKS_TO_ONE = 3  # so that one token which all others read does not fill the list
NEIGHBOURS = 1  # links so near the diagonal are not worth a list


class MergedUnits(NamedTuple):
    """What the rows or the columns of a table stand for: tokens, or words of several."""

    names: tuple[str, ...]
    starts: tuple[int, ...]  # of each unit among the tokens, and after the last the number of tokens
    special: np.ndarray  # [N] bool

    @property
    def sizes(self) -> np.ndarray:
        """How many tokens each unit has."""
        return np.diff(self.starts)

    def cut(self, start: int, stop: int) -> "MergedUnits":
        """Units start..stop alone; their tokens keep their numbers."""
        return MergedUnits(self.names[start:stop], self.starts[start : stop + 1], self.special[start:stop])


def units(tokens: Sequence[Token], *, words: bool) -> MergedUnits:
    """The tokens one by one, or by the words that they are pieces of."""
    joined = [words and at > 0 and _goes_on(tokens[at - 1], token) for at, token in enumerate(tokens)]
    starts = [at for at, joins in enumerate(joined) if not joins]
    ends = [*starts[1:], len(tokens)]
    names = tuple(_name(tokens[a:b]) for a, b in zip(starts, ends, strict=True))
    special = np.array([tokens[at].is_special for at in starts], dtype=bool)
    return MergedUnits(names, (*starts, len(tokens)), special)


def _goes_on(before: Token, token: Token) -> bool:
    return token.word != NO_WORD and token.word == before.word


def _name(tokens: Sequence[Token]) -> str:
    """The text of tokens, a letter of which each byte is a token once."""
    spans = [(token.start, token.stop) if token.start < token.stop else None for token in tokens]
    again = [span is not None and span == before for before, span in zip([None, *spans], spans, strict=False)]
    return "".join(token.text for token, seen in zip(tokens, again, strict=True) if not seen)


class AskedWeights(NamedTuple):
    """Which table: heads whose mean it is, and what its rows and columns stand for."""

    heads: tuple[int, ...]
    rows: MergedUnits
    columns: MergedUnits  # all keys: what is left out of a picture still counts in its row
    left_out: np.ndarray  # [S] bool: keys whose weight is given to the others


class WeightBlock(NamedTuple):
    """Some rows of a table."""

    start: int
    values: np.ndarray  # [R,N], NaN where the mask forbids
    left_out: np.ndarray  # [R] the weight that lay on keys that are left out


def blocks(rows: AttentionRows, asked: AskedWeights, at_once: int = ROWS_AT_ONCE) -> Iterator[WeightBlock]:
    """The table, `at_once` rows at a time."""
    starts = asked.rows.starts
    for start in range(0, len(asked.rows.names), at_once):
        stop = min(start + at_once, len(asked.rows.names))
        weights = rows.mean(asked.heads, slice(starts[start], starts[stop])).double().cpu().numpy()
        weights, missing = _renormalised(weights, asked.left_out)
        firsts = np.array(starts[start:stop]) - starts[start]
        yield WeightBlock(start, _merged(weights, firsts, asked.columns), _mean_of(missing[:, None], firsts)[:, 0])


def _renormalised(weights: np.ndarray, left_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights without those of some keys, which are NaN then; and what these had."""
    if not left_out.any():
        return weights, np.zeros(len(weights))
    missing = np.nansum(weights[:, left_out], axis=1)
    kept = np.where(left_out, np.nan, weights)
    total = np.nansum(kept, axis=1, keepdims=True)
    return np.divide(kept, total, out=np.full_like(kept, np.nan), where=total > 0), missing


def _merged(weights: np.ndarray, firsts: np.ndarray, columns: MergedUnits) -> np.ndarray:
    """Keys of a word added up, then queries of a word averaged; NaN where all of it is."""
    if len(columns.names) < weights.shape[1]:
        real = np.logical_or.reduceat(~np.isnan(weights), columns.starts[:-1], axis=1)
        weights = np.where(real, np.add.reduceat(np.nan_to_num(weights), columns.starts[:-1], axis=1), np.nan)
    return _mean_of(weights, firsts)


def _mean_of(values: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """The mean over the rows of each unit, of those that read anything at all."""
    if len(firsts) == len(values):
        return values
    reads = ~np.isnan(values).all(axis=1)
    counts = np.add.reduceat(reads.astype(float), firsts)[:, None]
    sums = np.add.reduceat(np.nan_to_num(values), firsts, axis=0)
    real = np.logical_or.reduceat(~np.isnan(values), firsts, axis=0)
    return np.where(real, sums / np.maximum(counts, 1.0), np.nan)


class Pooled(NamedTuple):
    """A large table as blocks of `down` x `across` cells."""

    maximum: np.ndarray
    mean: np.ndarray  # over the cells of a block, of which a forbidden one has no weight
    down: int
    across: int
    shape: tuple[int, int]  # of the table

    @property
    def areas(self) -> np.ndarray:
        """How many cells each block has: those at the end may have fewer."""
        heights = np.diff([*range(0, self.shape[0], self.down), self.shape[0]])
        widths = np.diff([*range(0, self.shape[1], self.across), self.shape[1]])
        found: np.ndarray = np.outer(heights, widths)
        return found


def pooled(values: np.ndarray, down: int, across: int) -> Pooled:
    """Maxima and means of blocks; a block without any value is NaN."""
    edges = np.arange(0, values.shape[0], down), np.arange(0, values.shape[1], across)
    maximum = np.fmax.reduceat(np.fmax.reduceat(values, edges[0], axis=0), edges[1], axis=1)
    sums = np.add.reduceat(np.add.reduceat(np.nan_to_num(values), edges[0], axis=0), edges[1], axis=1)
    found = Pooled(maximum, sums, down, across, (values.shape[0], values.shape[1]))
    return found._replace(mean=np.where(np.isnan(maximum), np.nan, sums / found.areas))


def coarser(map_: Pooled, largest: int) -> Pooled:
    """The same with at most `largest` blocks on a side, as if it had been pooled at once."""
    down, across = (-(-side // largest) for side in map_.maximum.shape)
    if down == across == 1:
        return map_
    maximum = pooled(map_.maximum, down, across).maximum
    total = pooled(map_.mean * map_.areas, down, across)
    sums = total.mean * total.areas
    found = Pooled(maximum, sums, map_.down * down, map_.across * across, map_.shape)
    return found._replace(mean=sums / found.areas)


class WeightLink(NamedTuple):
    """A row and a column with the weight between them."""

    row: int
    column: int
    weight: float


class AttentionTable(NamedTuple):
    """What is known of a whole table of attention; `values` where it is asked for."""

    values: np.ndarray | None  # [R,N]
    entropy: np.ndarray  # [R] of each row, in nats; NaN for one that reads nothing
    mass: np.ndarray  # [N] that each column gets of all rows
    pooled: Pooled
    links: tuple[WeightLink, ...]  # the strongest, off the diagonal and to no special symbol
    left_out: float  # the mean weight on the keys that are left out


class _TablePart(NamedTuple):
    """What is kept of a block."""

    values: np.ndarray
    entropy: np.ndarray
    mass: np.ndarray
    map: Pooled
    links: list[WeightLink]
    left_out: np.ndarray


def table(rows: AttentionRows, asked: AskedWeights, *, exact: bool, same: bool, shown: slice) -> AttentionTable:
    """The summaries of a table, from blocks of which one at a time is held; with all its values if `exact`.

    Of the columns those of `shown` are kept; the entropy of a row is that over all of them.
    """
    columns = asked.columns.cut(shown.start, shown.stop)
    shape = len(asked.rows.names), len(columns.names)
    down, across = (-(-side // LARGEST_MAP) for side in shape)
    parts: list[_TablePart] = []
    for block in blocks(rows, asked, down * max(1, ROWS_AT_ONCE // down)):
        values = block.values[:, shown]
        here = asked.rows.starts[block.start : block.start + len(values)] if same else None
        links = [
            WeightLink(block.start + row, column, weight) for row, column, weight in _strongest(values, columns, here)
        ]
        map_ = pooled(values, down, across)
        kept = values if exact else values[:0]
        parts.append(_TablePart(kept, entropy_of(block.values), np.nansum(values, axis=0), map_, links, block.left_out))
    maxima, means = (np.concatenate(each) for each in zip(*(part.map[:2] for part in parts), strict=True))
    return AttentionTable(
        np.concatenate([part.values for part in parts]) if exact else None,
        np.concatenate([part.entropy for part in parts]),
        np.where(columns.special & asked.left_out.any(), np.nan, sum(part.mass for part in parts)),
        Pooled(maxima, means, down, across, shape),
        _best([link for part in parts for link in part.links]),
        float(np.concatenate([part.left_out for part in parts]).mean()),
    )


def entropy_of(values: np.ndarray) -> np.ndarray:
    """[R] -sum a log a of each row, in nats; NaN for a row without a value."""
    logs = np.log(values, out=np.zeros_like(values), where=np.nan_to_num(values) > 0)
    found: np.ndarray = -np.nansum(values * logs, axis=1)
    return np.where(np.isnan(values).all(axis=1), np.nan, found + 0.0)


def _strongest(values: np.ndarray, columns: MergedUnits, here: Sequence[int] | None) -> list[WeightLink]:
    """The strongest link of each row; `here` are the tokens of the rows, where those of the columns are the same."""
    values = np.nan_to_num(values) * ~columns.special
    if here is not None:
        own = np.searchsorted(columns.starts[:-1], here)
        near = np.abs(np.arange(values.shape[1])[None] - own[:, None]) <= NEIGHBOURS
        values = np.where(near, 0.0, values)
    best = values.argmax(axis=1)
    found = zip(range(len(values)), best, values[np.arange(len(values)), best], strict=True)
    return [WeightLink(row, int(column), float(weight)) for row, column, weight in found if weight > 0]


def _best(links: Sequence[WeightLink]) -> tuple[WeightLink, ...]:
    taken: list[WeightLink] = []
    uses: dict[int, int] = {}
    for link in sorted(links, key=lambda each: -each.weight):
        if uses.get(link.column, 0) < LINKS_TO_ONE and len(taken) < MOST_LINKS:
            uses[link.column] = uses.get(link.column, 0) + 1
            taken.append(link)
    return tuple(taken)
