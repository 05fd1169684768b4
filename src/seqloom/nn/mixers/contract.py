"""The interface of every sequence layer.

    Mixer             forward(x)                            the complete sequence
    CausalMixer       initial_state(n), step(x, state)      any number of further elements per row; state is a value
                      forward(x)                            equals step from initial_state
    ConditionedMixer  forward(x, memory), initial_state(memory), step(x, state)

The state is what `step` must remember: a recurrent state, the last inputs of a convolution, or the keys and values of
attention. It is passed in and returned, never stored in a module, and the batch is axis 0 of every tensor. So beam
search, several users, a shared prefix and truncated back-propagation need no extra code.

A causal mixer implements `begin` and `extend` for plain rows. `step` adds packed documents for all of them: where the
document changes, the row's state is reset.

A state may also be a *buffer*: tensors at fixed addresses with room for further elements, which one decoding engine
owns. `extend` then reads one element per row, and may write into the buffer; what it returns has the same shapes.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.nn.packing import by_document, documents_per_row, runs, unpack
from seqloom.nn.taps import Tap
from seqloom.nn.types import (
    NO_DOCUMENT,
    Once,
    Padded,
    count_rows,
    map_state,
    merge_rows,
    require_padded,
)

Inner = TypeVar("Inner")


def own_tensors(inner: Inner, once: Once) -> Inner:
    """Return the same state in tensors that nobody else has; shared tensors stay shared."""
    return map_state(lambda tensor: once(("own", tensor), tensor.clone), inner)


class Mixer(nn.Module):
    """A layer in which the positions of a sequence exchange information."""

    def forward(self, x: Padded) -> Padded:
        """Return a sequence of the same lengths; packed documents do not see one another.

        The values in the padding of x are ignored (a block passes the norm of zero there). The padding of the result is
        zero.
        """
        raise NotImplementedError

    def by_document(self, run: Callable[[Padded], Padded], x: Padded) -> Padded:
        """Return `run(x)` with every packed document in a separate row; listeners see all of them at once."""
        at_once = x.segments is not None and any(isinstance(part, Tap) and part.is_heard for part in self.modules())
        return by_document(run, x, at_once=at_once)


class StateStanding(NamedTuple, Generic[Inner]):
    """The state of a causal mixer: the current document of each row, and the state within it."""

    segment: Tensor  # [B] int64, NO_DOCUMENT before the first element
    inner: Inner


class CausalMixer(Mixer, Generic[Inner]):
    """A mixer that never looks ahead, so that it can process a sequence step by step."""

    def begin(self, batch_size: int) -> Inner:
        """Return the state before the first element of a document."""
        raise NotImplementedError

    def extend(self, x: Padded, inner: Inner) -> tuple[Padded, Inner]:
        """Process further elements of each row's document (0 or more); return their outputs and the new state."""
        raise NotImplementedError

    def reset(self, inner: Inner, rows: Tensor) -> Inner:
        """Reset the rows of the state where `rows` [B] is true."""
        return merge_rows(rows, self.begin(len(rows)), inner)

    def buffer(self, inner: Inner, room: int, once: Once) -> Any:
        """Return the state as a buffer for `room` further elements; `once` shares results between layers.

        Of a buffer, return one with this room: what is in it stays.
        """
        return own_tensors(inner, once)

    def require_endless(self) -> None:
        """Raise ConfigError if this layer cannot read an endless sequence.

        This is the case if its state grows with every element, or if it has a limited number of positions.
        """

    def initial_state(self, batch_size: int) -> StateStanding[Inner]:
        """Return the state before the first element."""
        if batch_size < 1:
            raise DataError(f"a state of {batch_size} rows", fix="give the number of rows of the next batch")
        segment = torch.full((batch_size,), NO_DOCUMENT, dtype=torch.int64, device=self.device)
        return StateStanding(segment, self.begin(batch_size))

    def step(self, x: Padded, state: StateStanding[Inner]) -> tuple[Padded, StateStanding[Inner]]:
        """Process further elements; return their outputs and the new state. A row of length 0 keeps its state.

        A block without segment numbers continues its row's document. If there is none yet, it begins document number 0,
        and a later block may continue with that number.
        """
        require_padded(x)
        _require_standing(state)
        _require_rows(x, len(state.segment))
        if x.segments is None:
            y, inner = self.extend(x, state.inner)
            started = (x.lengths > 0) & (state.segment == NO_DOCUMENT)
            return y, StateStanding(torch.where(started, 0, state.segment), inner)
        segment, inner = state
        pieces = []
        for block, number, columns in runs(x):
            here = block.lengths > 0
            inner = self.reset(inner, here & (segment != NO_DOCUMENT) & (number != segment))
            segment = torch.where(here, number, segment)
            y, inner = self.extend(block, inner)
            pieces.append((y, columns))
        if not pieces:  # all rows are empty
            pieces.append((self.extend(x._replace(segments=None), inner)[0], x.lengths.new_zeros(x.values.shape[:2])))
        return _assemble(x, pieces), StateStanding(segment, inner)

    def forward(self, x: Padded) -> Padded:
        """Process complete sequences; overridden where there is a faster way than `step`."""
        return self.by_document(lambda rows: self.extend(rows, self.begin(len(rows.lengths)))[0], x)

    @property
    def device(self) -> torch.device:
        weight = next(self.parameters(), None)
        return torch.device("cpu") if weight is None else weight.device


class Stateless(CausalMixer[tuple[()]]):
    """A causal mixer whose outputs depend only on the element itself; subclasses implement only `forward`."""

    def begin(self, batch_size: int) -> tuple[()]:
        return ()

    def reset(self, inner: tuple[()], rows: Tensor) -> tuple[()]:
        return ()

    def extend(self, x: Padded, inner: tuple[()]) -> tuple[Padded, tuple[()]]:
        return self(x), ()


def _require_standing(state: object) -> None:
    if not isinstance(state, StateStanding):
        found = type(state).__name__
        raise DataError(f"expected a state of this layer, found {found}", fix="start with initial_state(rows)")


def _require_rows(x: Padded, rows: int | None) -> None:
    """Raise DataError for the state of another batch: some torch kernels would read beyond its end."""
    if rows is not None and len(x.lengths) != rows:
        raise DataError(
            f"{len(x.lengths)} rows cannot continue from a state of {rows} rows", fix="select its rows first"
        )


def _assemble(x: Padded, pieces: list[tuple[Padded, Tensor]]) -> Padded:
    """Put the outputs of each row's documents back into their columns."""
    first = pieces[0][0].values
    values = first.new_zeros(*x.values.shape[:2], *first.shape[2:])
    for y, columns in pieces:
        rows = torch.arange(len(columns), device=columns.device)[:, None].expand_as(columns)[y.valid]
        values = values.index_put((rows, columns[y.valid]), y.values[y.valid])
    return x.with_values(values)


class ConditionedMixer(nn.Module, Generic[Inner]):
    """A causal mixer that also reads a memory: an encoder's output for another sequence."""

    def begin(self, memory: Padded) -> Inner:
        """Return the state before the first element: the memory in the form that `extend` reads."""
        raise NotImplementedError

    def extend(self, x: Padded, inner: Inner) -> tuple[Padded, Inner]:
        """Process further elements of each row (0 or more); return their outputs and the new state."""
        raise NotImplementedError

    def buffer(self, inner: Inner, room: int, once: Once) -> Any:
        """Return the state as a buffer for `room` further elements; `once` shares results between layers.

        Of a buffer, return one with this room: what is in it stays.
        """
        return own_tensors(inner, once)

    def initial_state(self, memory: Padded) -> Inner:
        """Return the state before the first element."""
        if memory.segments is not None:
            raise DataError(
                "documents packed into one row cannot be decoded step by step", fix="use one document per row"
            )
        return self.begin(memory)

    def step(self, x: Padded, state: Inner) -> tuple[Padded, Inner]:
        """Process further elements; return their outputs and the new state. A row of length 0 keeps its state."""
        require_padded(x)
        if x.segments is not None:
            raise DataError(
                "documents packed into one row cannot be decoded step by step", fix="use one document per row"
            )
        _require_rows(x, count_rows(state))
        return self.extend(x, state)

    def forward(self, x: Padded, memory: Padded) -> Padded:
        """Process complete sequences; the n-th document of a row reads the n-th document of the memory's row."""
        require_padded(x)
        if len(x.lengths) != len(memory.lengths):
            raise DataError(f"{len(x.lengths)} rows cannot read a memory of {len(memory.lengths)} rows")
        if x.segments is None and memory.segments is None:
            return self.whole(x, memory)
        read, given = documents_per_row(x), documents_per_row(memory)
        if not torch.equal(read, given):
            raise DataError(
                f"rows with {read.tolist()} packed documents cannot read rows with {given.tolist()}",
                fix="pack a document and its source into the same row, in the same order",
            )
        targets, sources = unpack(x), unpack(memory)
        return targets.repack(self.whole(targets.rows, sources.rows), x)

    def whole(self, x: Padded, memory: Padded) -> Padded:
        """Process complete rows; overridden where there is a faster way than `extend`."""
        return self.extend(x, self.begin(memory))[0]


AnyCausal = CausalMixer[Any]
