"""Other weights in the place of those that a layer computed, everything else as it is.

    o_i = sum_j a'_ij v_j            with a' = change(a), instead of the model's own a

The layer itself keeps its fused kernel; its own weights are recomputed a block of rows at a time, changed, and what
follows from them is put where the layer's output passes. So nothing quadratic in the length is ever held.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.heads import Pooler
from seqloom.operators.attention import Request, weights
from seqloom.operators.linear_attention import Asked
from seqloom.operators.masks import dense
from seqloom.operators.pooling import attentive_weights
from seqloom.operators.relations import Shaw
from seqloom.operators.scores import Additive
from seqloom.taps import listening
from seqloom.types import Padded

MOST_CELLS = 2**22  # weights that are held at once


class Rows(NamedTuple):
    """Some rows of a layer's weights, while it is at work."""

    weights: Tensor  # [N,H,R,S], zero where the mask forbids
    allowed: Tensor  # [N,1,R,S] bool
    start: int  # the number of the first of these rows

    @property
    def stop(self) -> int:
        """The number behind the last of them."""
        return self.start + self.weights.shape[2]


Change = Callable[[Rows], Tensor]  # -> [N,H,R,S], the weights to go on with


@contextmanager
def imposed(model: nn.Module, path: str, change: Change) -> Iterator[None]:
    """Inside the `with`, the layer at this path goes on with what `change` makes of its weights."""
    owner = model.get_submodule(path)
    with _pooling(owner, change) if isinstance(owner, Pooler) else _mixing(model, path, owner, change):
        yield


@contextmanager
def _pooling(pooler: Pooler, change: Change) -> Iterator[None]:
    def hook(_module: nn.Module, arguments: tuple[Padded], _pooled: Tensor) -> Tensor:
        (x,) = arguments
        own = attentive_weights(x, pooler.inner.weight, pooler.inner.bias, pooler.direction)
        changed = change(Rows(own[:, None, None], x.valid[:, None, None], 0))[:, 0, 0]
        return (changed[:, :, None].to(x.values.dtype) * x.values).sum(dim=1)

    handle = pooler.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _mixing(model: nn.Module, path: str, owner: Any, change: Change) -> Iterator[None]:
    asked: list[Any] = []

    def hear(_name: str, offered: Any) -> None:
        asked.append(offered)

    def replace(_name: str, mixed: Tensor) -> Tensor:
        return mixture(asked.pop(), values, change).to(mixed.dtype)

    values = _Values()
    with (
        values.heard_from(owner),
        listening(model, f"{path}.weights", hear),
        listening(model, f"{path}.mixed", replace),
    ):
        yield


class _Values:
    """The value vectors [N,H,S,D/H] of linear attention, which tells of queries and keys alone."""

    def __init__(self) -> None:
        self.heard: Tensor | None = None

    @contextmanager
    def heard_from(self, owner: Any) -> Iterator[None]:
        heads = getattr(owner, "heads", None)  # an alignment has none
        if heads is None:
            yield
            return
        handle = heads.value.register_forward_hook(lambda _module, _given, made: self._hear(heads.split(made)))
        try:
            yield
        finally:
            handle.remove()

    def _hear(self, value: Tensor) -> None:
        self.heard = value


def mixture(asked: Request | Asked, values: _Values, change: Change) -> Tensor:
    """[N,H,T,D/H] what each head finds with the changed weights, a block of rows at a time."""
    rows, heads, count, _ = asked.query.shape
    cells = rows * heads * asked.key.shape[2]
    if isinstance(asked, Request) and isinstance(asked.score, Additive):
        cells *= asked.query.shape[-1]  # it holds a vector for each pair
    each = max(1, MOST_CELLS // max(1, cells))
    blocks = ((start, min(start + each, count)) for start in range(0, count, each))
    return torch.cat([_block(asked.rows(start, stop), start, values, change) for start, stop in blocks], dim=2)


def _block(asked: Request | Asked, start: int, values: _Values, change: Change) -> Tensor:
    own = weights(asked) if isinstance(asked, Request) else asked.weights()
    changed = change(Rows(own, dense(asked.mask, asked.query_places, asked.key_places), start))
    value = asked.value if isinstance(asked, Request) else values.heard
    assert value is not None, "linear attention makes its values before it mixes them"
    found = changed.to(value.dtype) @ value
    if isinstance(asked, Request) and isinstance(asked.bias, Shaw):
        found = found + asked.bias.value_term(changed.to(value.dtype), asked.query_places, asked.key_places)
    return found
