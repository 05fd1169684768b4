"""What if this head, this weight, this vector were different: edits that last as long as a `with`.

    with ablated(subject, layer=1, head=3):             a head finds nothing
    with attending(subject, reading, layer=1, ...):     a token reads as it is told
    with patched(subject, reading, other, at=5):        a vector comes from another text

All act through taps: the weights of the model are never touched, and behind the `with` its answers are the same, bit
for bit. Edits inside a recurrence, which has no tap between two elements, are in `recurrent_edits`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.data.problems import counted
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention_rows import chosen_heads, chosen_layer, chosen_token, layers_of
from seqloom.inspect.faithfulness.bench import ImposedRows, imposed
from seqloom.inspect.layers import LayerPlace, chosen, heard, required, state_places
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.recurrence import Cell
from seqloom.nn.taps import listening, taps

LEAST_SUM = 1e-9
MIXED = ".mixed"  # the tap of what the heads of a layer found, behind the path of the layer


@contextmanager
def ablated(subject: Subject, *, layer: int | str | None = None, head: int | None = None) -> Iterator[str]:
    """Inside the `with`, a head of a layer (all of them if none is named) finds nothing: zeros; gives its tap."""
    name = _mixing(subject, layer)
    heads: Any = getattr(subject.model.get_submodule(name.removesuffix(MIXED)), "heads", None)
    count = 1 if heads is None else int(heads.num_heads)  # an alignment is one head
    if head is not None and not 0 <= head < count:
        raise ConfigError(
            f"there is no head {head}: {name.removesuffix(MIXED)} has {counted(count, 'head')}, 0 to {count - 1}",
            fix="choose one of them",
        )

    def silence(_: str, mixed: Tensor) -> Tensor:  # [B,H,T,D/H]
        kept = torch.ones(count, dtype=mixed.dtype, device=mixed.device)
        kept[slice(None) if head is None else head] = 0
        return mixed * kept[:, None, None]

    with listening(subject.model, name, silence):
        yield name


def _mixing(subject: Subject, layer: int | str | None) -> str:
    names = [name for name in taps(subject.model) if name.endswith(MIXED)]
    found = required(names, subject.model, "heads", "no layer of it is attention")
    asked = layer.removesuffix(MIXED) if isinstance(layer, str) else layer
    return chosen({name.removesuffix(MIXED): name for name in found}, asked, "layers with heads")


@contextmanager
def attending(
    subject: Subject,
    reading: Reading,
    *,
    row: int | str,
    weights: Sequence[float],
    layer: int | str | None = None,
    head: int | None = None,
) -> Iterator[Tensor]:
    """Inside the `with`, a token reads with these weights, one for each key, made to add up to 1; gives them.

    The layer may be attention of any kind, or attention pooling, whose one row is 0.
    """
    layers = layers_of(subject, reading)
    asked = chosen_layer(layers, layer)
    at = chosen_token(asked.queries, row)
    wanted = _distribution(weights, len(asked.keys)).to(subject.device)
    turns = _Turns(asked.call, sum(each.path == asked.path for each in layers))

    def change(rows: ImposedRows) -> Tensor:
        is_mine = turns.next() if rows.start == 0 else turns.now
        if not is_mine or not rows.start <= at < rows.stop:
            return rows.weights
        mine = chosen_heads(asked, rows.weights.shape[1], head)
        if rows.weights.shape[-1] != len(wanted):
            raise DataError(
                f"{len(wanted)} weights were given, and the text that is read has {rows.weights.shape[-1]} keys",
                fix="read texts of the same length inside this edit",
            )
        if bool((wanted > 0).logical_and(~rows.allowed[0, 0, at - rows.start]).any()):
            raise DataError(f"token {at} was told to read what it may not see", fix="give such tokens the weight 0")
        changed = rows.weights.clone()
        changed[:, mine, at - rows.start] = wanted.to(changed.dtype)
        return changed

    with imposed(subject.model, asked.path, change):
        yield wanted


def _distribution(weights: Sequence[float], count: int) -> Tensor:
    wanted = torch.tensor(list(map(float, weights)))
    if len(wanted) != count:
        raise DataError(f"{len(wanted)} weights for {count} keys", fix="give one for each token that can be read")
    if not bool((wanted >= 0).all()) or not bool(wanted.isfinite().all()) or float(wanted.sum()) < LEAST_SUM:
        raise DataError("weights are not below zero, and not all of them zero", fix="give a distribution")
    return wanted / wanted.sum()


class _Turns:
    """Whose turn it is where a layer is used several times in a pass, once for each of two texts."""

    def __init__(self, mine: int, every: int) -> None:
        self.mine, self.every, self.count, self.now = mine, every, 0, False

    def next(self) -> bool:
        """Whether the use that begins is the one that was asked for."""
        self.now = self.count % self.every == self.mine
        self.count += 1
        return self.now


@contextmanager
def patched(
    subject: Subject,
    reading: Reading,
    other: Reading,
    *,
    at: int | str,
    layer: int | str | None = None,
    side: str | None = None,
) -> Iterator[str]:
    """Inside the `with`, what leaves a layer at a token is what left it in another reading at the same place.

    Gives the name of the tap. Of two texts that differ in one word, this tells where the difference is carried
    (activation patching, Vig et al. 2020).
    """
    places = required(state_places(subject.model, reading, side), subject.model, "states", "no layer of it has a tap")
    place: LayerPlace = chosen({one.path: one for one in places}, layer, "layers with states")
    token = chosen_token(place.tokens, at)
    known = heard(subject, other, [place.path])[place.path]
    vectors: Tensor = known[min(place.call, len(known) - 1)]
    if token >= vectors.shape[1]:
        raise DataError(
            f"the other text has {vectors.shape[1]} tokens, and token {token} was asked for",
            fix="choose an earlier one",
        )

    turns = _Turns(place.call, sum(side.stack == reading.side(place.side).stack for side in reading.sides))

    def replace(_: str, values: Tensor) -> Tensor:
        if not turns.next():
            return values
        if token >= values.shape[1]:
            raise DataError(
                f"token {token} is patched, and the text that is read has {values.shape[1]} tokens",
                fix="read texts that are as long inside this edit",
            )
        changed = values.clone()
        changed[:, token] = vectors[0, token]
        return changed

    with listening(subject.model, place.path, replace):
        yield place.path


# -----------------------------------------------------------------------------
# How a model stands: its weights, who listens inside it, and what was put in the place of its parts.
#
# before = standing_of(model)
# ...
# standing_of(model) == before        nobody has trained it, and no edit has begun or ended since
# -----------------------------------------------------------------------------


class ModelStanding(NamedTuple):
    """What tells one standing of a model from another; equal for the same one."""

    weights: tuple[tuple[int, int], ...]  # which tensor, and how often it was changed in place
    heard: tuple[Any, ...]  # whoever listens to taps
    hooks: tuple[Any, ...]
    cells: tuple[Cell, ...]  # of recurrences


def standing_of(model: nn.Module) -> ModelStanding:
    """How a model stands now."""
    return ModelStanding(
        tuple((id(weight), _version(weight)) for weight in model.parameters()),
        tuple(one for tap in taps(model).values() for one in tap._listeners),
        tuple(hook for module in model.modules() for hook in _hooks(module)),
        tuple(module.cell for module in model.modules() if isinstance(module, Recurrent)),
    )


def _hooks(module: nn.Module) -> tuple[Any, ...]:
    return *module._forward_pre_hooks.values(), *module._forward_hooks.values()


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
