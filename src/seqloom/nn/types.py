"""Shapes: padded sequences, states, batches and losses.

Letters used in all shape comments:

    B  rows of a batch          T  elements of a sequence       S  elements that are attended to
    D  width of a vector        H  attention heads              V  tokens in a vocabulary
    K  labels or classes        E  edges of a graph

A sequence is *right-padded*: element t of row b is real if t < lengths[b]. Several documents may be packed into one
row; `segments` then numbers them, and no information flows between documents.
"""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.nn.ops.transforms import is_transformed

# Layouts: the positions of the elements of a batch, used by every layer and computed once.
#
#     Padded ──with_values──▶ Padded ──with_values──▶ Padded
#        └────────────────┬─────┴───────────────────────┘
#                      Layout: valid, places, masks, tables of sines
#
# Masks, positions and tables depend only on lengths and documents, never on values. Without a layout, a GPU would
# compute them again for each layer, and a small model would spend most of its time on these kernels.

Made = TypeVar("Made")
Once = Callable[[Hashable, Callable[[], Any]], Any]  # the result of a function, cached for a key


class Places(NamedTuple):
    """The position of each element in its document, its document, and whether it is real or padding."""

    positions: Tensor  # [B,T] int64
    segments: Tensor  # [B,T] int64, the index of the document in its row from 1, -1 in the padding of packed rows
    valid: Tensor  # [B,T] bool

    def cut(self, start: int, stop: int) -> "Places":
        """The places of columns start..stop."""
        return Places(*(field[:, start:stop] for field in self))

    def column(self) -> "Places":
        """Shaped [B,T,1], to be compared with keys along the last axis."""
        return Places(*(field[:, :, None] for field in self))

    def row(self) -> "Places":
        """Shaped [B,1,S], to be compared with queries along the middle axis."""
        return Places(*(field[:, None, :] for field in self))


class Layout:
    """The positions of the elements of a batch, and everything else that all layers share.

    Every layer needs masks, positions and tables, which do not depend on values: the first caller computes them, and
    the others get them from here. A layout belongs to its batch (`Padded.shared`).

    >>> layout = Layout(torch.tensor([2, 1]), None, time=2)
    >>> layout.valid.tolist(), layout.valid is layout.valid
    ([[True, True], [True, False]], True)
    """

    __slots__ = ("_made", "_zeroed", "host", "lengths", "segments", "time")

    def __init__(
        self,
        lengths: Tensor,
        segments: Tensor | None,
        *,
        time: int,
        host: tuple[Tensor, Tensor | None] | None = None,
    ) -> None:
        self.lengths, self.segments, self.time = lengths, segments, time
        self.host = host  # lengths and segments on the host, if the batch was moved from there
        self._made: dict[Hashable, Any] = {}
        self._zeroed: tuple[weakref.ref[Tensor], int] | None = None  # the last result of `zeroed`, and its version

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy finds again what is cached, which weak references and tensors as keys do not survive."""
        return _layout, (self.lengths, self.segments, self.time, self.host)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the cached result of `make` for a key; it must depend only on the key and this layout.

        A tensor in a key is compared by identity, not by value.
        """
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found

    @property
    def valid(self) -> Tensor:
        """[B,T] true where an element is real."""
        return self.once("valid", lambda: self._steps() < self.lengths[:, None])

    @property
    def beyond(self) -> Tensor:
        """[B,T] true in the padding."""
        return self.once("beyond", lambda: ~self.valid)

    @property
    def padding(self) -> Tensor:
        """[P] the elements of the padding, in the batch seen as [B*T]."""
        return self.once("padding", lambda: self.beyond.flatten().nonzero()[:, 0])

    def zeroed(self, values: Tensor) -> Tensor:
        """The same values [B,T,...], zero in the padding.

        A mask is compared with every number. On a CPU it takes a quarter of the time to copy all and fill the padding,
        which is small if batches hold sequences of similar length; on a GPU the host would wait to find it. Values
        that are known to be zero there are returned as they are.
        """
        if values.device.type == "cpu" and values.numel() >= LARGE_BATCH and not is_transformed():
            if self.is_zeroed(values):
                return values
            rows, time = values.shape[:2]
            repeated = values.stride(1) == 0 != values.stride(0) and min(rows, time) > 1  # then `flatten` copies
            flat = values.flatten(0, 1)
            fill = flat.index_fill_ if repeated else flat.index_fill
            return self.keep_zeroed(fill(0, self.padding, 0).view(values.shape))
        return values.masked_fill(self.beyond.view(*self.beyond.shape, *(1,) * (values.ndim - 2)), 0)

    def is_zeroed(self, values: Tensor) -> bool:
        """Whether this very tensor is known to be zero in the padding, as its gradient will be."""
        if self._zeroed is None or self._zeroed[0]() is not values:
            return False
        return not values.is_inference() and values._version == self._zeroed[1]  # it was not changed in place

    def keep_zeroed(self, values: Tensor) -> Tensor:
        """Return the values, and remember that they are zero in the padding, and that their gradient will be."""
        if not values.is_inference():
            self._zeroed = weakref.ref(values), values._version
        return values

    @property
    def places(self) -> Places:
        """The positions of the elements in their documents."""
        return self.once("places", self._places)

    def _steps(self) -> Tensor:
        return torch.arange(self.time, device=self.lengths.device)

    def _places(self) -> Places:
        steps = self._steps().expand(len(self.lengths), self.time)
        if self.segments is None:
            return Places(steps, torch.zeros_like(steps), self.valid)
        changes = torch.ones_like(self.segments, dtype=torch.bool)
        changes[:, 1:] = self.segments[:, 1:] != self.segments[:, :-1]
        began = torch.where(changes, steps, 0).cummax(dim=1).values if self.time else steps
        # Renumbered, so that a number that is used twice, or one in the padding, never joins two documents.
        return Places(steps - began, changes.cumsum(dim=1).masked_fill(self.beyond, -1), self.valid)


def _layout(lengths: Tensor, segments: Tensor | None, time: int, host: tuple[Tensor, Tensor | None] | None) -> Layout:
    return Layout(lengths, segments, time=time, host=host)


NO_DOCUMENT = torch.iinfo(torch.int64).min  # not a valid document number; any other number is
LARGE_BATCH = 2**13  # numbers of a batch from which the places of its padding are worth finding
NO_NODE = -1  # fills up the edges of rows that have fewer edges than others

Inputs = TypeVar("Inputs")
Targets = TypeVar("Targets")


class Padded(NamedTuple):
    """A batch of sequences of different lengths, right-padded with zeros.

    `Padded.of` checks the shapes and zeroes the padding; `with_values` keeps it zero. `full` is known on the host: if
    it is true, no row is shorter than T, and kernels can skip the padding mask without synchronizing the device. All
    batches made by `with_values` after `laid_out` share one layout. In a batch of graphs, the elements are nodes, and
    `edges` lists which node reads which. Rows with fewer edges than others are filled up with pairs of NO_NODE.

    >>> x = Padded.of(torch.ones(2, 3), torch.tensor([3, 1]))
    >>> x.values.tolist()
    [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    """

    values: Tensor  # [B,T,...]: vectors [B,T,D] or tokens [B,T]
    lengths: Tensor  # [B] int64
    segments: Tensor | None = None  # [B,T] int64: any number but NO_DOCUMENT, different from neighboring documents
    full: bool = False
    shared: Layout | None = None  # the layout of the batch that this one was made from; use `layout`
    edges: Tensor | None = None  # [B,E,2] int64: the node that reads and the node that is read, numbered from 0

    @classmethod
    def of(
        cls,
        values: Tensor,
        lengths: Tensor | None = None,
        segments: Tensor | None = None,
        *,
        edges: Tensor | None = None,
    ) -> "Padded":
        """Check the shapes and zero the padding of a new batch; without lengths every row is full."""
        if not isinstance(values, Tensor):
            raise DataError(f"a batch is a tensor [rows, time, ...], found {type(values).__name__}")
        if values.ndim < 2:
            raise DataError(f"a batch needs at least the axes [rows, time], found shape {list(values.shape)}")
        rows, time = values.shape[:2]
        if rows == 0:
            raise DataError("the batch has no rows", fix="give at least one sequence")
        for name, whole in (("lengths", lengths), ("segments", segments), ("edges", edges)):
            if whole is not None and (not isinstance(whole, Tensor) or whole.dtype != torch.int64):
                raise DataError(f"{name} are a tensor of int64, found {getattr(whole, 'dtype', type(whole).__name__)}")
        if segments is not None and segments.shape != values.shape[:2]:
            raise DataError(f"segments of shape {list(segments.shape)} do not fit a batch of {rows} x {time} elements")
        if segments is not None and segments.device.type == "cpu" and bool((segments == NO_DOCUMENT).any()):
            raise DataError(f"{NO_DOCUMENT} is not a valid document number", fix="use another number")
        if lengths is None:
            lengths = torch.full((rows,), time, dtype=torch.int64, device=values.device)
            _require_edges(edges, lengths)
            return cls(values, lengths, segments, full=True, edges=edges)
        if lengths.shape != (rows,):
            raise DataError(f"{rows} rows need {rows} lengths, found shape {list(lengths.shape)}")
        if lengths.device.type == "cpu" and (int(lengths.min()) < 0 or int(lengths.max()) > time):
            raise DataError(f"lengths must be from 0 to {time}, found {lengths.tolist()}")
        _require_edges(edges, lengths)
        full = lengths.device.type == "cpu" and int(lengths.min()) == time
        return cls(values, lengths, segments, full, edges=edges).with_values(values)

    @classmethod
    def stack(cls, sequences: Sequence[Tensor]) -> "Padded":
        """A padded batch of separate sequences, each of shape [time, ...]."""
        if not isinstance(sequences, list | tuple) or not all(isinstance(one, Tensor) for one in sequences):
            raise DataError("a batch is stacked from a list of tensors", fix="make each sequence a tensor [time, ...]")
        if not sequences:
            raise DataError("the batch has no rows", fix="give at least one sequence")
        if len({sequence.shape[1:] for sequence in sequences}) > 1 or sequences[0].ndim == 0:
            shapes = [list(sequence.shape) for sequence in sequences[:4]]
            raise DataError(f"expected sequences [time, ...] of one element size, found the shapes {shapes}")
        if len(kinds := {(sequence.dtype, sequence.device) for sequence in sequences}) > 1:
            raise DataError(f"expected sequences of one type on one device, found {sorted(map(str, kinds))}")
        values = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)
        lengths = torch.tensor([len(sequence) for sequence in sequences], device=values.device)
        return cls(values, lengths, full=bool((lengths == values.shape[1]).all()))

    @property
    def layout(self) -> Layout:
        """The layout: the shared one, or a new one."""
        known, time = self.shared, self.values.shape[1]
        if known and known.lengths is self.lengths and known.segments is self.segments and known.time == time:
            return known
        return Layout(self.lengths, self.segments, time=time)

    def laid_out(self) -> "Padded":
        """The same batch with a layout that all batches made by `with_values` share."""
        return self._replace(shared=self.layout)

    @property
    def valid(self) -> Tensor:
        """[B,T] true where an element is real."""
        return self.layout.valid

    def with_values(self, values: Tensor) -> "Padded":
        """The same batch with other values, zero in the padding."""
        return self.with_any(values if self.full else self.layout.zeroed(values))

    def with_any(self, values: Tensor) -> "Padded":
        """The same batch with other values, without zeroing the padding: for code that only reads real elements."""
        return Padded(values, self.lengths, self.segments, self.full, self.shared, self.edges)

    def with_kept_zeros(self, values: Tensor) -> "Padded":
        """The same batch with other values, which are zero wherever those of this batch are; so are their gradients."""
        if not self.full and self.layout.is_zeroed(self.values):
            self.layout.keep_zeroed(values)
        return self.with_any(values)

    def to(self, device: torch.device | str) -> "Padded":
        """Return the same batch on another device."""
        segments = None if self.segments is None else self.segments.to(device)
        edges = None if self.edges is None else self.edges.to(device)
        return Padded(self.values.to(device), self.lengths.to(device), segments, self.full, edges=edges)

    def select(self, rows: Tensor) -> "Padded":
        """The given rows, in this order."""
        segments = None if self.segments is None else self.segments[rows]
        edges = None if self.edges is None else self.edges[rows]
        return Padded(self.values[rows], self.lengths[rows], segments, self.full, edges=edges)

    def pick(self, places: "Padded") -> "Padded":
        """The elements at the given places [B,W] of each row, such as the first subword of each word.

        >>> x = Padded.of(torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([3, 2]))
        >>> x.pick(Padded.of(torch.tensor([[0, 2], [1, 0]]), torch.tensor([2, 1]))).values.tolist()
        [[5, 7], [9, 0]]
        """
        if len(places.lengths) != len(self.lengths):
            raise DataError(f"{len(places.lengths)} rows of positions do not fit a batch of {len(self.lengths)} rows")
        outside = places.valid & ((places.values < 0) | (places.values >= self.lengths[:, None]))
        if places.values.device.type == "cpu" and bool(outside.any()):
            raise DataError("a position is outside its row", fix="count positions from 0 in each row")
        if places.values.shape[1] == 0:
            return Padded(self.values[:, :0], places.lengths, None, places.full)
        rows = torch.arange(len(places.lengths), device=places.values.device)[:, None]
        segments = None if self.segments is None else self.segments[rows, places.values]
        return places._replace(segments=segments).with_values(self.values[rows, places.values])

    def cut(self, start: int, stop: int) -> "Padded":
        """Return the columns start..stop of every row as a batch; missing columns are left out."""
        stop = max(start, stop)
        segments = None if self.segments is None else self.segments[:, start:stop]
        lengths = (self.lengths - start).clamp(0, stop - start)
        return Padded(self.values[:, start:stop], lengths, segments, self.full)

    def last(self) -> Tensor:
        """[B,...] the last real element of each row; zeros for an empty row."""
        if self.values.shape[1] == 0:
            return self.values.new_zeros(self.values.shape[0], *self.values.shape[2:])
        if self.full:
            return self.values[:, -1]
        rows = torch.arange(len(self.lengths), device=self.values.device)
        picked = self.values[rows, (self.lengths - 1).clamp(min=0)]
        empty = (self.lengths == 0).view(-1, *(1,) * (picked.ndim - 1))
        return picked.masked_fill(empty, 0)

    def reverse(self) -> "Padded":
        """Return each row reversed, with its padding still on the right."""
        time = torch.arange(self.values.shape[1], device=self.values.device)
        order = torch.where(self.valid, self.lengths[:, None] - 1 - time, time)  # [B,T]
        rows = torch.arange(len(self.lengths), device=self.values.device)[:, None]
        segments = None if self.segments is None else self.segments[rows, order]
        return self._replace(values=self.values[rows, order], segments=segments, edges=None)


def _require_edges(edges: Tensor | None, lengths: Tensor) -> None:
    """Raise DataError for edges with a wrong shape or, on the CPU, with a node that the row does not have."""
    if edges is None:
        return
    rows = len(lengths)
    if edges.ndim != 3 or edges.shape[0] != rows or edges.shape[2] != 2:
        raise DataError(f"edges of {rows} rows are a tensor [{rows}, edges, 2], found {list(edges.shape)}")
    if edges.device.type != "cpu" or lengths.device.type != "cpu":
        return
    none = (edges == NO_NODE).all(dim=2, keepdim=True)
    if bool((((edges < 0) | (edges >= lengths[:, None, None])) & ~none).any()):
        raise DataError("an edge contains a node that its row does not have", fix="number the nodes of each row from 0")


def require_padded(x: object) -> None:
    """Raise DataError unless this is a padded batch."""
    if not isinstance(x, Padded):
        raise DataError(f"expected a Padded batch, found {type(x).__name__}", fix="make one with Padded.of")


class Loss(NamedTuple):
    """A summed loss and its weight; the training step divides once."""

    total: Tensor  # scalar
    weight: Tensor  # scalar

    @property
    def mean(self) -> Tensor:
        """The loss per unit of weight."""
        return self.total / self.weight.clamp(min=torch.finfo(torch.float32).tiny)


class Batch(NamedTuple, Generic[Inputs, Targets]):
    """The inputs, targets and example ids of one step of training or evaluation."""

    inputs: Inputs
    targets: Targets
    ids: tuple[str, ...] = ()
    references: Sequence[str] = ()  # for target texts: the original texts, for evaluation
    bytes: Tensor | None = None  # [B,T] on the CPU, for text: the bytes of each target (data/loader.py)


class Subwords(NamedTuple):
    """The inputs of a tagger: subwords, and the index of the first subword of each word."""

    pieces: Padded  # [B,T] tokens
    firsts: Padded  # [B,W] int64, the index of the first subword of each word


class Spelled(NamedTuple):
    """Words, one token each, and the characters of each."""

    words: Padded  # [B,T] tokens
    letters: Tensor  # [B,T,L] uint8, padded with zeros


class Both(NamedTuple):
    """Two matching texts."""

    first: Padded
    second: Padded


class Triple(NamedTuple):
    """A text, a matching one, and one that does not match."""

    anchor: Padded
    positive: Padded
    negative: Padded


class Pair(NamedTuple):
    """The inputs of an encoder-decoder: the source, and the target as the decoder reads it (shifted right)."""

    source: Any  # what the encoder's input reads: Padded tokens or vectors, or pictures
    target: Padded


State = TypeVar("State")


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """Apply `function` to every tensor in a nest of tuples."""
    if isinstance(state, Tensor):
        return function(state)  # type: ignore[return-value]  # a Tensor state maps to a Tensor
    assert isinstance(state, tuple), f"a state is a nest of tuples of tensors, found {type(state)}"
    mapped = [map_state(function, part) for part in state]
    return type(state)(*mapped) if hasattr(state, "_fields") else type(state)(mapped)


def count_rows(state: Any) -> int | None:
    """The number of rows of a state; None if it has no tensor."""
    if isinstance(state, Tensor):
        return len(state)
    if not isinstance(state, tuple):
        raise DataError(
            f"a state is a nest of tuples of tensors, found {type(state).__name__}", fix="see initial_state"
        )
    return next((rows for part in state if (rows := count_rows(part)) is not None), None)


@runtime_checkable
class SelectsRows(Protocol):
    """A part of a state that selects rows in its own way."""

    def selected_rows(self, rows: Tensor) -> "SelectsRows":
        """The rows with these indices [N]."""


@runtime_checkable
class DependsOnInput(Protocol):
    """A part of a state that may depend on the input of its row alone, not on what was written since."""

    @property
    def depends_on_input_alone(self) -> bool:
        """Whether rows with the same input have the same part."""


def select_rows(state: State, rows: Tensor, *, same_inputs: bool = False) -> State:
    """Select rows of a state: every tensor has the batch on axis 0; shared tensors stay shared.

    Args:
        state: a nest of tuples.
        rows: [N] the indices of the rows, or [B] true for those that are kept.
        same_inputs: each row goes on from a row with the same input, as in a beam: parts that depend on nothing else
            stay as they are (`DependsOnInput`).
    """
    places = rows.nonzero()[:, 0] if rows.dtype == torch.bool else rows
    if rows.dtype == torch.bool and len(places) == len(rows):
        return state
    selected: dict[int, Any] = {}

    def select(part: Any) -> Any:
        if same_inputs and isinstance(part, DependsOnInput) and part.depends_on_input_alone:
            return part
        if not isinstance(part, Tensor | SelectsRows):
            assert isinstance(part, tuple), f"a state is a nest of tuples of tensors, found {type(part)}"
            inner = map(select, part)
            return type(part)(*inner) if hasattr(part, "_fields") else type(part)(inner)
        if id(part) not in selected:
            selected[id(part)] = (
                part.index_select(0, places) if isinstance(part, Tensor) else part.selected_rows(places)
            )
        return selected[id(part)]

    whole: State = select(state)
    return whole


def merge_rows(chosen: Tensor, yes: State, no: State) -> State:
    """Return the state `yes` for rows where `chosen` [B] is true and `no` for the others; shapes must agree."""
    if isinstance(yes, Tensor):
        assert isinstance(no, Tensor)
        return torch.where(chosen.view(-1, *(1,) * (yes.ndim - 1)), yes, no)  # type: ignore[return-value]
    assert isinstance(yes, tuple) and isinstance(no, tuple)
    merged = [merge_rows(chosen, one, other) for one, other in zip(yes, no, strict=True)]
    return type(yes)(*merged) if hasattr(yes, "_fields") else type(yes)(merged)


def join_rows(states: Sequence[State]) -> State:
    """Return one state with the rows of several, in their order; shared tensors stay shared.

    Rows may have read different numbers of elements. Tensors that grow with them are filled up with zeros at the end: a
    state marks which of its elements are real, because rows of one batch may differ too.

    >>> join_rows([(torch.ones(1, 2),), (torch.ones(2, 1),)])[0].tolist()
    [[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    """
    joined: dict[tuple[int, ...], Tensor] = {}

    def join(*parts: Any) -> Any:
        if isinstance(parts[0], Tensor):
            key = tuple(map(id, parts))
            if key not in joined:
                joined[key] = _stacked(parts)
            return joined[key]
        together = [join(*some) for some in zip(*parts, strict=True)]
        kind = type(parts[0])
        return kind(*together) if hasattr(kind, "_fields") else kind(together)

    whole: State = join(*states)
    return whole


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors below one another on axis 0; other axes are filled up with zeros."""
    sizes = {one.shape[1:] for one in tensors}
    if len(sizes) == 1:
        return torch.cat(tuple(tensors))
    whole = tensors[0].new_zeros(sum(map(len, tensors)), *map(max, zip(*sizes, strict=True)))
    start = 0
    for one in tensors:
        whole[(slice(start, start + len(one)), *map(slice, one.shape[1:]))] = one
        start += len(one)
    return whole


def once_each() -> Once:
    """Return a function that caches results by a key."""
    made: dict[Hashable, Any] = {}

    def once(key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in made:
            made[key] = make()
        return made[key]

    return once


def compact_rows(state: State) -> State:
    """Return an equal state in which parts that grow have only the elements that some row has (`compacted`)."""
    return _each_part(state, "compacted", once_each())


def first_columns(state: State, count: int) -> State:
    """Return a buffer as one with room for `count` elements, at the same addresses (`first`)."""
    return _each_part(state, "first", count)


def _each_part(state: State, method: str, argument: Any) -> State:
    """Return the state with a method applied to the parts that have it."""

    def changed(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part
        if hasattr(part, method):
            return getattr(part, method)(argument)
        inner = map(changed, part)
        return type(part)(*inner) if hasattr(part, "_fields") else type(part)(inner)

    whole: State = changed(state)
    return whole


def places_of(x: Padded, start: Tensor | None = None) -> Places:
    """The positions of the elements of a batch; `start` [B] counts the elements that were read before."""
    places = x.layout.places
    if start is None:
        return places
    assert x.segments is None, "packed documents are read from their beginning"
    return places._replace(positions=places.positions + start[:, None])


def on_device(value: Any, device: torch.device) -> Any:
    """The same batch, inputs or targets on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # Padded, Pair, Subwords, Batch
        kind: Any = type(value)
        return kind(*(on_device(one, device) for one in value))
    return value
