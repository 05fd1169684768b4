"""Attention weights, recomputed from queries and keys while the model keeps its fused kernel.

    attention           softmax of scores, masks and biases, for the requested queries of one head
    linear attention    a_ij = phi(q_i) . phi(k_j) / sum: the matrix that it implies
    attention pooling   one row over the tokens

Only the requested rows of one head are computed, so memory does not grow with the square of the length. Weights are
those before dropout; masked cells are NaN. Queries and keys of each kind of layer:

    self-attention     the tokens of a side, to the same tokens
    cross-attention    the tokens of the target, where they are predicted, to the tokens of the source
    pooling            one row, to the tokens of a side

A table of any length is computed block by block: words joined, special tokens excluded, summaries collected.

    weights of tokens ──without special keys──▶ ──by words──▶ blocks of rows ──▶ exact rows where they are few
                                                                            └──▶ entropy, received, maps of blocks

Words: weights of subwords are summed over keys and averaged over queries, so that rows still sum to 1.
Maps: the maximum of a block shows whether there is any attention in it, the mean shows how much.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.flow import still
from seqloom.inspect.layers import chosen, read_by, required
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import NO_WORD, Reading, Subject, Token
from seqloom.nn.heads import Pooler
from seqloom.nn.mixers.contract import ConditionedMixer
from seqloom.nn.ops.attention import Request, weights
from seqloom.nn.ops.linear_attention import LinearQueries
from seqloom.nn.ops.masks import dense
from seqloom.nn.ops.relations import Alibi, Buckets
from seqloom.nn.ops.scores import Additive, Bilinear
from seqloom.nn.taps import listening, taps
from seqloom.nn.types import Places

MOST_CELLS = 2**22  # cells of an additive score in memory at a time: each needs a vector


class AttentionRows(ABC):
    """The attention of one layer for one example, row by row on demand."""

    num_heads: int
    num_queries: int
    num_keys: int

    @abstractmethod
    def weights(self, head: int, asked: slice) -> Tensor:
        """[R,S] the weights of some queries in one head; NaN where masked."""

    def mean(self, heads: tuple[int, ...], asked: slice) -> Tensor:
        """[R,S] the mean over heads."""
        total = self.weights(heads[0], asked)
        for head in heads[1:]:
            total = total + self.weights(head, asked)
        return total / len(heads)


class SoftmaxRows(AttentionRows):
    """Rows of self-attention, cross-attention and recurrent attention."""

    def __init__(self, request: Request) -> None:
        self.request = request
        _, self.num_heads, self.num_queries, _ = request.query.shape
        self.num_keys = request.key.shape[2]

    def weights(self, head: int, asked: slice) -> Tensor:
        mine, score = one_head(self.request, head, asked), self.request.score
        inner = score.direction.shape[1] if isinstance(score, Additive) else 1
        count, each = mine.query.shape[2], max(1, MOST_CELLS // max(1, inner * self.num_keys))
        found = []
        for at in range(0, count, each):
            some = mine.rows(at, min(at + each, count))
            allowed = dense(some.mask, some.query_places, some.key_places)[0, 0]
            found.append(weights(some)[0, 0].masked_fill(~allowed, torch.nan))
        return torch.cat(found)


class LinearRows(AttentionRows):
    """Rows of the matrix that linear attention implies."""

    def __init__(self, asked: LinearQueries) -> None:
        self.asked = asked
        _, self.num_heads, self.num_queries, _ = asked.query.shape
        self.num_keys = asked.key.shape[2]

    def weights(self, head: int, asked: slice) -> Tensor:
        mine = one_linear_head(self.asked, head, asked)
        allowed = dense(mine.mask, mine.query_places, mine.key_places)[0, 0]
        return mine.weights()[0, 0].masked_fill(~allowed, torch.nan)


class PooledRows(AttentionRows):
    """The one row of attention pooling."""

    num_heads = num_queries = 1

    def __init__(self, pooled: Tensor) -> None:
        self.pooled = pooled  # [B,S]
        self.num_keys = pooled.shape[1]

    def weights(self, head: int, asked: slice) -> Tensor:
        return self.pooled[:1][asked]


OFFERED: Mapping[type, Callable[[Any], AttentionRows]] = {
    Request: SoftmaxRows,
    LinearQueries: LinearRows,
    Tensor: PooledRows,
}


def rows_of(offered: Request | LinearQueries | Tensor) -> AttentionRows:
    """The rows of a `weights` tap, for the first example of the batch."""
    return OFFERED[type(offered)](offered)


def one_head(request: Request, head: int, asked: slice) -> Request:
    """The request for some queries of one head."""
    mine, score, bias = slice(head, head + 1), request.score, request.bias
    if isinstance(score, Bilinear | Additive):
        score = type(score)(*(part[mine] for part in score))
    if isinstance(bias, Alibi):
        bias = Alibi(bias.slopes[mine])
    elif isinstance(bias, Buckets):
        bias = bias._replace(table=bias.table[:, mine])
    return request._replace(
        query=request.query[:1, mine, asked],
        key=request.key[:1, mine],
        value=request.value[:1, mine],
        query_places=_first(request.query_places, asked),
        key_places=_first(request.key_places),
        score=score,
        bias=bias,
        aligned=False,
        shared=None,
    )


def one_linear_head(request: LinearQueries, head: int, asked: slice) -> LinearQueries:
    """The same for linear attention."""
    mine = slice(head, head + 1)
    return request._replace(
        query=request.query[:1, mine, asked],
        key=request.key[:1, mine],
        query_places=_first(request.query_places, asked),
        key_places=_first(request.key_places),
        before=request.before[:1, mine],
    )


def _first(places: Places, queries: slice = slice(None)) -> Places:
    """The positions of the first example."""
    return Places(*(field[:1, queries] for field in places))


TAP = ".weights"
MOST_NAMED = 12  # positions of a repeated token that a message lists

Taken = TypeVar("Taken")


class AttentionLayer(NamedTuple):
    """An attention layer with its queries (rows) and keys (columns)."""

    path: str
    side: str  # of the queries
    queries: tuple[Token, ...]
    keys: tuple[Token, ...]
    same: bool  # queries and keys are the same tokens
    call: int = 0  # number of the call in the same pass: 1 for the second of two texts

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.queries)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.keys)


def layers_of(subject: Subject, reading: Reading, side: str | None = None) -> tuple[AttentionLayer, ...]:
    """All attention layers in the order of the model, or those whose queries belong to one side.

    If the same layers read two texts, the default is the first text.
    """
    wanted = None if side is None else reading.side(side).name
    if side is None and len({each.stack for each in reading.sides}) < len(reading.sides):
        wanted = reading.sides[0].name
    every = tuple(
        layer for name in taps(subject.model) if name.endswith(TAP) for layer in _uses(subject, reading, name)
    )
    required(every, subject.model, "attention", "none of its layers uses attention")
    found = tuple(layer for layer in every if wanted in (None, layer.side))
    if not found:
        there = ", ".join(dict.fromkeys(layer.side for layer in every))
        raise ConfigError(
            f"no attention layer of this model has queries from the side '{side}'", fix=f"choose from {there}"
        )
    return found


def _uses(subject: Subject, reading: Reading, name: str) -> Iterator[AttentionLayer]:
    path = name.removesuffix(TAP)
    owner = subject.model.get_submodule(path)
    if isinstance(owner, Pooler):
        if owner.how == "attention":
            for call, side in enumerate(reading.sides):
                yield AttentionLayer(path, side.name, (Token("pooled"),), side.tokens, same=False, call=call)
        return
    readers = [side for side in reading.sides if path.startswith(f"{side.stack}.")]
    for call, side in enumerate(readers):
        if isinstance(owner, ConditionedMixer):
            yield AttentionLayer(path, side.name, side.tokens, reading.sides[0].tokens, same=False, call=call)
        else:
            tokens = read_by(reading, side)
            yield AttentionLayer(path, side.name, tokens, tokens, same=True, call=call)


def chosen_layer(layers: Sequence[AttentionLayer], layer: int | str | None) -> AttentionLayer:
    """The layer with this number or path (default: the last)."""
    wanted = layer.removesuffix(TAP) if isinstance(layer, str) else layer
    return chosen({each.path: each for each in layers}, wanted, "layers with attention")


def chosen_heads(layer: AttentionLayer, count: int, head: int | None) -> tuple[int, ...]:
    """The head with this number, or all heads."""
    if head is None:
        return tuple(range(count))
    if not 0 <= head < count:
        heads = f"{count} heads, 0 to {count - 1}" if count > 1 else "1 head, 0"
        raise ConfigError(f"there is no head {head}: {layer.path} has {heads}", fix="choose one of them")
    return (head,)


def chosen_token(tokens: Sequence[Token], token: int | str) -> int:
    """The number of a token given by its number or text; DataError if there is none or more than one."""
    if isinstance(token, int):
        if not -len(tokens) <= token < len(tokens):
            raise DataError(f"there is no token {token}: the tokens are 0 to {len(tokens) - 1}", fix="choose one")
        return token % len(tokens)
    places = [number for number, each in enumerate(tokens) if token in (each.text, each.text.strip())]
    if not places:
        raise DataError(f"no token is '{token}'", fix=did_you_mean(token, {each.text for each in tokens}))
    if len(places) > 1:
        more = ", ..." if len(places) > MOST_NAMED else ""
        there = ", ".join(map(str, places[:MOST_NAMED])) + more
        raise DataError(f"'{token}' occurs {len(places)} times, at {there}", fix="give the number of one of them")
    return places[0]


@torch.no_grad()
def heard(
    subject: Subject,
    reading: Reading,
    layers: Sequence[AttentionLayer],
    take: Callable[[AttentionLayer, AttentionRows], Taken],
) -> tuple[Taken, ...]:
    """Call `take` on the attention of each layer, during one forward pass, and return the results."""
    wanted = {(layer.path, layer.call): layer for layer in layers}
    calls: dict[str, int] = {}
    taken: dict[tuple[str, int], Taken] = {}

    def listen(name: str, offered: object) -> None:
        path = name.removesuffix(TAP)
        use = path, calls.get(path, 0)
        calls[path] = use[1] + 1
        if use in wanted:
            taken[use] = take(wanted[use], rows_of(offered))  # type: ignore[arg-type]  # the value of a `weights` tap

    with still(subject.model), listening(subject.model, f"*{TAP}", listen):
        scores(subject, reading.inputs)
    return tuple(taken[layer.path, layer.call] for layer in layers)


ROWS_AT_ONCE = 128
LARGEST_MAP = 512  # cells on a side of a pooled map
MOST_LINKS = 16
LINKS_TO_ONE = 3  # so that one token that all others attend to does not fill the list
NEIGHBORS = 1  # links this close to the diagonal are not listed


class MergedUnits(NamedTuple):
    """The rows or columns of a table: tokens, or words of several tokens."""

    names: tuple[str, ...]
    starts: tuple[int, ...]  # first token of each unit, then the number of tokens
    special: np.ndarray  # [N] bool

    def cut(self, start: int, stop: int) -> "MergedUnits":
        """Only the units start..stop; token numbers do not change."""
        return MergedUnits(self.names[start:stop], self.starts[start : stop + 1], self.special[start:stop])


def units(tokens: Sequence[Token], *, words: bool) -> MergedUnits:
    """The tokens one by one, or joined to words."""
    names, starts = list[str](), list[int]()
    numbers = _word_numbers(tokens)
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else None
        if not words or before is None or numbers[at] == NO_WORD or numbers[at] != numbers[at - 1]:
            names.append(token.text)
            starts.append(at)
        elif token.start >= token.stop or token[1:3] != before[1:3]:  # a character may have several byte tokens
            names[-1] += token.text
    special = np.array([tokens[at].is_special for at in starts], dtype=bool)
    if words:  # the spaces between words are not shown
        names = [name.strip() or name for name in names]
    return MergedUnits(tuple(names), (*starts, len(tokens)), special)


def _word_numbers(tokens: Sequence[Token]) -> list[int]:
    """The number of the word of each token; a space belongs to the word after it."""
    numbers = [token.word for token in tokens]
    for at in reversed(range(len(tokens) - 1)):
        if numbers[at] == NO_WORD and tokens[at].text.isspace():
            numbers[at] = numbers[at + 1]
    return numbers


class AskedWeights(NamedTuple):
    """The requested table: heads to average, rows and columns."""

    heads: tuple[int, ...]
    rows: MergedUnits
    columns: MergedUnits  # all keys: columns outside a figure still count in its rows
    left_out: np.ndarray  # [S] bool: keys whose weight goes to the others


class WeightBlock(NamedTuple):
    """Some rows of a table."""

    start: int
    values: np.ndarray  # [R,N], NaN where masked
    left_out: np.ndarray  # [R] the weight of the excluded keys


def blocks(rows: AttentionRows, asked: AskedWeights, at_once: int = ROWS_AT_ONCE) -> Iterator[WeightBlock]:
    """The table, `at_once` rows at a time."""
    starts = asked.rows.starts
    for start in range(0, len(asked.rows.names), at_once):
        stop = min(start + at_once, len(asked.rows.names))
        weights = rows.mean(asked.heads, slice(starts[start], starts[stop])).double().cpu().numpy()
        missing = np.zeros((len(weights), 1))
        if asked.left_out.any():  # distribute the weight of these keys over the others
            missing = np.nansum(weights[:, asked.left_out], axis=1, keepdims=True)
            weights = np.where(asked.left_out, np.nan, weights)
            total = np.nansum(weights, axis=1, keepdims=True)
            weights = np.divide(weights, total, out=np.full_like(weights, np.nan), where=total > 0)
        if len(asked.columns.names) < weights.shape[1]:  # sum the keys of a word; NaN if all are NaN
            edges = asked.columns.starts[:-1]
            real = np.logical_or.reduceat(~np.isnan(weights), edges, axis=1)
            weights = np.where(real, np.add.reduceat(np.nan_to_num(weights), edges, axis=1), np.nan)
        firsts = np.array(starts[start:stop]) - starts[start]
        yield WeightBlock(start, _mean_of(weights, firsts), _mean_of(missing, firsts)[:, 0])


def _mean_of(values: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """The mean over the rows of each word, without fully masked rows."""
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
    mean: np.ndarray  # over the cells of a block; masked cells count as 0
    down: int
    across: int
    shape: tuple[int, int]  # of the table

    @property
    def areas(self) -> np.ndarray:
        """The number of cells in each block."""
        heights = np.diff([*range(0, self.shape[0], self.down), self.shape[0]])
        widths = np.diff([*range(0, self.shape[1], self.across), self.shape[1]])
        found: np.ndarray = np.outer(heights, widths)
        return found


def pooled(values: np.ndarray, down: int, across: int) -> Pooled:
    """The maximum and the mean of blocks; NaN for a block without values."""
    edges = np.arange(0, values.shape[0], down), np.arange(0, values.shape[1], across)
    maximum = np.fmax.reduceat(np.fmax.reduceat(values, edges[0], axis=0), edges[1], axis=1)
    sums = np.add.reduceat(np.add.reduceat(np.nan_to_num(values), edges[0], axis=0), edges[1], axis=1)
    found = Pooled(maximum, sums, down, across, (values.shape[0], values.shape[1]))
    return found._replace(mean=np.where(np.isnan(maximum), np.nan, sums / found.areas))


def coarser(map_: Pooled, largest: int) -> Pooled:
    """The map with at most `largest` blocks on a side."""
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
    """A table of attention with its summaries; `values` if requested."""

    values: np.ndarray | None  # [R,N]
    entropy: np.ndarray  # [R] per row, in nats; NaN for a row without keys
    received: np.ndarray  # [N] per column, summed over rows
    pooled: Pooled
    links: tuple[WeightLink, ...]  # the strongest, off the diagonal, without special tokens
    left_out: float  # the mean weight of the excluded keys


def table(rows: AttentionRows, asked: AskedWeights, *, exact: bool, same: bool, shown: slice) -> AttentionTable:
    """The summaries of a table, computed block by block; with all values if `exact`.

    Only the columns in `shown` are kept; the entropy is over all columns.
    """
    columns = asked.columns.cut(shown.start, shown.stop)
    shape = len(asked.rows.names), len(columns.names)
    down, across = (-(-side // LARGEST_MAP) for side in shape)
    links, parts = list[WeightLink](), []
    for block in blocks(rows, asked, down * max(1, ROWS_AT_ONCE // down)):
        values = block.values[:, shown]
        here = asked.rows.starts[block.start : block.start + len(values)] if same else None
        links += [link._replace(row=block.start + link.row) for link in _strongest(values, columns, here)]
        pool = pooled(values, down, across)
        kept = values if exact else values[:0]
        mass = np.nansum(values, axis=0)[None]
        parts.append((kept, entropy_of(block.values), mass, pool.maximum, pool.mean, block.left_out))
    kept, entropy, mass, maxima, means, left_out = (np.concatenate(each) for each in zip(*parts, strict=True))
    return AttentionTable(
        kept if exact else None,
        entropy,
        np.where(columns.special & asked.left_out.any(), np.nan, sum(mass)),
        Pooled(maxima, means, down, across, shape),
        _best(links),
        float(left_out.mean()),
    )


def entropy_of(values: np.ndarray) -> np.ndarray:
    """[R] -sum a log a of each row, in nats; NaN for a row without a value."""
    logs = np.log(values, out=np.zeros_like(values), where=np.nan_to_num(values) > 0)
    found: np.ndarray = -np.nansum(values * logs, axis=1)
    return np.where(np.isnan(values).all(axis=1), np.nan, found + 0.0)


def _strongest(values: np.ndarray, columns: MergedUnits, here: Sequence[int] | None) -> list[WeightLink]:
    """The strongest link of each row; `here` are the tokens of the rows, if rows and columns are the same."""
    values = np.nan_to_num(values) * ~columns.special
    if here is not None:
        own = np.searchsorted(columns.starts[:-1], here)
        near = np.abs(np.arange(values.shape[1])[None] - own[:, None]) <= NEIGHBORS
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
