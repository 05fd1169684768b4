"""The vocabulary of shapes: padded sequences, states, batches and losses.

Letters used in shape comments everywhere:

    B  rows of a batch          T  elements of a sequence       S  elements that are attended to
    D  width of a vector        H  attention heads              V  symbols in a vocabulary
    K  labels or classes        E  edges of a graph

A sequence is *right-padded*: element t of row b is real when t < lengths[b]. Several documents may be packed into one
row; `segments` then numbers them, and nothing ever flows from one document into another.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.nn.layouts import Layout, Places

NO_DOCUMENT = torch.iinfo(torch.int64).min  # no document has this number; any other will do

Inputs = TypeVar("Inputs")
Targets = TypeVar("Targets")


class Padded(NamedTuple):
    """A batch of sequences of different lengths, right-padded with zeros.

    `Padded.of` checks the shapes and zeroes the padding; `with_values` keeps it zero. `full` is known on the host: it
    says that no row is shorter than T, so that kernels may skip the padding mask without asking the device.
    What is made `with_values` after `laid_out` shares one layout.

    >>> x = Padded.of(torch.ones(2, 3), torch.tensor([3, 1]))
    >>> x.values.tolist()
    [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    """

    values: Tensor  # [B,T,...]: vectors [B,T,D] or symbols [B,T]
    lengths: Tensor  # [B] int64
    segments: Tensor | None = None  # [B,T] int64: any number but NO_DOCUMENT, another one than the neighbours'
    full: bool = False
    shared: Layout | None = None  # that of the batch this one was made of; `layout` is the one to ask

    @classmethod
    def of(cls, values: Tensor, lengths: Tensor | None = None, segments: Tensor | None = None) -> "Padded":
        """A padded batch with its shapes checked and its padding zeroed; without lengths every row is full."""
        if not isinstance(values, Tensor):
            raise DataError(f"a batch is a tensor [rows, time, ...], found {type(values).__name__}")
        if values.ndim < 2:
            raise DataError(f"a batch needs at least the axes [rows, time], found shape {list(values.shape)}")
        rows, time = values.shape[:2]
        if rows == 0:
            raise DataError("the batch has no rows", fix="give at least one sequence")
        for name, whole in (("lengths", lengths), ("segments", segments)):
            if whole is not None and (not isinstance(whole, Tensor) or whole.dtype != torch.int64):
                raise DataError(f"{name} are a tensor of int64, found {getattr(whole, 'dtype', type(whole).__name__)}")
        if segments is not None and segments.shape != values.shape[:2]:
            raise DataError(f"segments of shape {list(segments.shape)} do not fit a batch of {rows} x {time} elements")
        if segments is not None and segments.device.type == "cpu" and bool((segments == NO_DOCUMENT).any()):
            raise DataError(f"{NO_DOCUMENT} is no number for a document", fix="take any other")
        if lengths is None:
            lengths = torch.full((rows,), time, dtype=torch.int64, device=values.device)
            return cls(values, lengths, segments, full=True)
        if lengths.shape != (rows,):
            raise DataError(f"{rows} rows need {rows} lengths, found shape {list(lengths.shape)}")
        if lengths.device.type == "cpu" and (int(lengths.min()) < 0 or int(lengths.max()) > time):
            raise DataError(f"lengths must lie in 0..{time}, found {lengths.tolist()}")
        full = lengths.device.type == "cpu" and int(lengths.min()) == time
        return cls(values, lengths, segments, full).with_values(values)

    @classmethod
    def stack(cls, sequences: Sequence[Tensor]) -> "Padded":
        """A padded batch of separate sequences, each of shape [time, ...]."""
        if not isinstance(sequences, list | tuple) or not all(isinstance(one, Tensor) for one in sequences):
            raise DataError("a batch is stacked from a list of tensors", fix="make each sequence a tensor [time, ...]")
        if not sequences:
            raise DataError("the batch has no rows", fix="give at least one sequence")
        if len({sequence.shape[1:] for sequence in sequences}) > 1 or sequences[0].ndim == 0:
            shapes = [list(sequence.shape) for sequence in sequences[:4]]
            raise DataError(f"sequences [time, ...] of one element size were expected, found the shapes {shapes}")
        if len(kinds := {(sequence.dtype, sequence.device) for sequence in sequences}) > 1:
            raise DataError(f"sequences of one type on one device were expected, found {sorted(map(str, kinds))}")
        values = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)
        lengths = torch.tensor([len(sequence) for sequence in sequences], device=values.device)
        return cls(values, lengths, full=bool((lengths == values.shape[1]).all()))

    @property
    def layout(self) -> Layout:
        """Where the elements stand: what other batches of this shape know already, or a fresh one."""
        known, time = self.shared, self.values.shape[1]
        if known and known.lengths is self.lengths and known.segments is self.segments and known.time == time:
            return known
        return Layout(self.lengths, self.segments, time=time)

    def laid_out(self) -> "Padded":
        """The same batch, which all that is made of it by `with_values` shares a layout with."""
        return self._replace(shared=self.layout)

    @property
    def valid(self) -> Tensor:
        """[B,T] true where an element is real."""
        return self.layout.valid

    def with_values(self, values: Tensor) -> "Padded":
        """The same batch with other values, zero in the padding."""
        if not self.full:
            beyond = self.layout.beyond
            values = values.masked_fill(beyond.view(*beyond.shape, *(1,) * (values.ndim - 2)), 0)
        return self.with_any(values)

    def with_any(self, values: Tensor) -> "Padded":
        """The same batch with other values, whatever stands in the padding: for who reads real elements alone."""
        return Padded(values, self.lengths, self.segments, self.full, self.shared)

    def to(self, device: torch.device | str) -> "Padded":
        """The same batch on another device."""
        segments = None if self.segments is None else self.segments.to(device)
        return Padded(self.values.to(device), self.lengths.to(device), segments, self.full)

    def select(self, rows: Tensor) -> "Padded":
        """The chosen rows, in the order asked for."""
        segments = None if self.segments is None else self.segments[rows]
        return Padded(self.values[rows], self.lengths[rows], segments, self.full)

    def pick(self, places: "Padded") -> "Padded":
        """The elements at the chosen places [B,W] of each row: of subwords, those where words begin.

        >>> x = Padded.of(torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([3, 2]))
        >>> x.pick(Padded.of(torch.tensor([[0, 2], [1, 0]]), torch.tensor([2, 1]))).values.tolist()
        [[5, 7], [9, 0]]
        """
        if len(places.lengths) != len(self.lengths):
            raise DataError(f"{len(places.lengths)} rows of places do not fit a batch of {len(self.lengths)} rows")
        outside = places.valid & ((places.values < 0) | (places.values >= self.lengths[:, None]))
        if places.values.device.type == "cpu" and bool(outside.any()):
            raise DataError("a place lies outside its row", fix="count places from 0, inside each row")
        if places.values.shape[1] == 0:
            return Padded(self.values[:, :0], places.lengths, None, places.full)
        rows = torch.arange(len(places.lengths), device=places.values.device)[:, None]
        segments = None if self.segments is None else self.segments[rows, places.values]
        return places._replace(segments=segments).with_values(self.values[rows, places.values])

    def cut(self, start: int, stop: int) -> "Padded":
        """Columns start..stop of every row, as far as there are any, as a batch of their own."""
        stop = max(start, stop)
        segments = None if self.segments is None else self.segments[:, start:stop]
        lengths = (self.lengths - start).clamp(0, stop - start)
        return Padded(self.values[:, start:stop], lengths, segments, self.full)

    def last(self) -> Tensor:
        """[B,...] the last real element of each row; zeros for an empty row."""
        if self.values.shape[1] == 0:
            return self.values.new_zeros(self.values.shape[0], *self.values.shape[2:])
        rows = torch.arange(len(self.lengths), device=self.values.device)
        picked = self.values[rows, (self.lengths - 1).clamp(min=0)]
        empty = (self.lengths == 0).view(-1, *(1,) * (picked.ndim - 1))
        return picked.masked_fill(empty, 0)

    def reverse(self) -> "Padded":
        """Each row read backwards, its padding still on the right."""
        time = torch.arange(self.values.shape[1], device=self.values.device)
        order = torch.where(self.valid, self.lengths[:, None] - 1 - time, time)  # [B,T]
        rows = torch.arange(len(self.lengths), device=self.values.device)[:, None]
        segments = None if self.segments is None else self.segments[rows, order]
        return self._replace(values=self.values[rows, order], segments=segments)


def require_padded(x: object) -> None:
    """Raise DataError for what is not a padded batch."""
    if not isinstance(x, Padded):
        raise DataError(f"expected a Padded batch, found {type(x).__name__}", fix="make one with Padded.of")


class Loss(NamedTuple):
    """A summed loss and the weight it was summed over; whoever takes a step divides once."""

    total: Tensor  # scalar
    weight: Tensor  # scalar

    @property
    def mean(self) -> Tensor:
        """The loss per unit of weight."""
        return self.total / self.weight.clamp(min=torch.finfo(torch.float32).tiny)


class Batch(NamedTuple, Generic[Inputs, Targets]):
    """What one step of training or evaluation looks at: inputs, targets, and the ids of the examples."""

    inputs: Inputs
    targets: Targets
    ids: tuple[str, ...] = ()
    references: Sequence[str] = ()  # where targets are texts: as they stood in the data, read only to judge
    bytes: Tensor | None = None  # [B,T] on the host, of text: what each target stands for (data/loader.py)


class Subwords(NamedTuple):
    """The inputs of a tagger: the pieces of the words, and where each word begins among them."""

    pieces: Padded  # [B,T] symbols
    firsts: Padded  # [B,W] int64, the place of the first piece of each word


class Spelled(NamedTuple):
    """Words, one symbol each, and the letters of each."""

    words: Padded  # [B,T] symbols
    letters: Tensor  # [B,T,L] uint8, zeros behind the shorter words


class Both(NamedTuple):
    """Two texts that belong together."""

    first: Padded
    second: Padded


class Triple(NamedTuple):
    """A text, one that belongs to it, and one that does not."""

    anchor: Padded
    positive: Padded
    negative: Padded


class Pair(NamedTuple):
    """The inputs of an encoder-decoder: the source, and the target as the decoder reads it (shifted right)."""

    source: Any  # what the encoder's input reads: Padded symbols or vectors, or pictures
    target: Padded


State = TypeVar("State")


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """The same nest of tuples with `function` applied to every tensor in it."""
    if isinstance(state, Tensor):
        return function(state)  # type: ignore[return-value]  # a Tensor state maps to a Tensor
    assert isinstance(state, tuple), f"a state is a nest of tuples of tensors, found {type(state)}"
    mapped = [map_state(function, part) for part in state]
    return type(state)(*mapped) if hasattr(state, "_fields") else type(state)(mapped)


def count_rows(state: Any) -> int | None:
    """How many rows a state has; None if it holds no tensor at all."""
    if isinstance(state, Tensor):
        return len(state)
    if not isinstance(state, tuple):
        raise DataError(
            f"a state is a nest of tuples of tensors, found {type(state).__name__}", fix="see initial_state"
        )
    return next((rows for part in state if (rows := count_rows(part)) is not None), None)


def select_rows(state: State, rows: Tensor) -> State:
    """The states of the chosen rows: every tensor of a state has the batch on axis 0; one that is shared stays so."""
    selected: dict[Tensor, Tensor] = {}

    def select(tensor: Tensor) -> Tensor:
        if tensor not in selected:
            selected[tensor] = tensor[rows]
        return selected[tensor]

    return map_state(select, state)


def merge_rows(chosen: Tensor, yes: State, no: State) -> State:
    """The state `yes` for the rows where `chosen` [B] is true, `no` for the others; shapes must agree."""
    if isinstance(yes, Tensor):
        assert isinstance(no, Tensor)
        return torch.where(chosen.view(-1, *(1,) * (yes.ndim - 1)), yes, no)  # type: ignore[return-value]
    assert isinstance(yes, tuple) and isinstance(no, tuple)
    merged = [merge_rows(chosen, one, other) for one, other in zip(yes, no, strict=True)]
    return type(yes)(*merged) if hasattr(yes, "_fields") else type(yes)(merged)


def places_of(x: Padded, start: Tensor | None = None) -> Places:
    """Where the elements of a batch stand; `start` [B] counts what was read of each row's document before."""
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
