"""What if this head, this weight, this vector were different: edits that last as long as a `with`.

    with ablated(subject, layer=1, head=3):             a head finds nothing
    with attending(subject, reading, layer=1, ...):     a token reads as it is told
    with patched(subject, reading, other, at=5):        a vector comes from another text

All act through taps: the weights of the model are never touched, and behind the `with` its answers are the same, bit
for bit. Edits inside a recurrence, which has no tap between two elements, are in `recurrent_edits`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspection.attention_layers import chosen_heads, chosen_layer, chosen_token, layers_of
from seqloom.inspection.layers import Place, chosen, heard, required, state_places
from seqloom.inspection.recurrent_edits import carried, clamped
from seqloom.inspection.subject import Reading, Subject
from seqloom.operators.attention import Request
from seqloom.operators.relations import Shaw
from seqloom.taps import listening, taps

__all__ = ["ablated", "attending", "carried", "clamped", "patched"]

LEAST_SUM = 1e-9


@contextmanager
def ablated(subject: Subject, *, layer: int | str | None = None, head: int | None = None) -> Iterator[str]:
    """Inside the `with`, a head of a layer (all of them if none is named) finds nothing: zeros; gives its tap."""
    name = _mixing(subject, layer)
    heads: Any = getattr(subject.model.get_submodule(name.removesuffix(".mixed")), "heads", None)
    count = 1 if heads is None else int(heads.num_heads)  # an alignment is one head
    if head is not None and not 0 <= head < count:
        raise ConfigError(
            f"there is no head {head}: {name} has {count} heads, 0 to {count - 1}", fix="choose one of them"
        )

    def silence(_: str, mixed: Tensor) -> Tensor:  # [B,H,T,D/H]
        kept = torch.ones(count, dtype=mixed.dtype, device=mixed.device)
        kept[slice(None) if head is None else head] = 0
        return mixed * kept[:, None, None]

    with listening(subject.model, name, silence):
        yield name


def _mixing(subject: Subject, layer: int | str | None) -> str:
    names = [name for name in taps(subject.model) if name.endswith(".mixed")]
    found = required(names, subject.model, "heads", "no layer of it is attention")
    return chosen({name: name for name in found}, layer, "layers with heads")


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
    """Inside the `with`, a token reads with these weights, one for each key, made to add up to 1; gives them."""
    asked = chosen_layer(layers_of(subject, reading), layer)
    name = f"{asked.path}.mixed"
    if name not in taps(subject.model):
        fixable = [each.path for each in layers_of(subject, reading) if f"{each.path}.mixed" in taps(subject.model)]
        raise ConfigError(f"the weights of {asked.path} cannot be replaced", fix=did_you_mean(asked.path, fixable))
    at = chosen_token(asked.queries, row)
    wanted = _distribution(weights, len(asked.keys)).to(subject.device)
    latest: list[Request] = []

    def keep(_: str, request: object) -> None:
        if not isinstance(request, Request):
            raise ConfigError(f"{asked.path} has no rows of its own to replace", fix="ablate a head instead")
        chosen_heads(asked, request.query.shape[1], head)
        latest[:] = [request]

    def replace(_: str, mixed: Tensor) -> Tensor:
        changed = mixed.clone()
        mine = slice(None) if head is None else slice(head, head + 1)
        changed[:, mine, at] = _mixed(latest[0], wanted, at)[:, mine]
        return changed

    with listening(subject.model, f"{asked.path}.weights", keep), listening(subject.model, name, replace):
        yield wanted


def _distribution(weights: Sequence[float], count: int) -> Tensor:
    wanted = torch.tensor(list(map(float, weights)))
    if len(wanted) != count:
        raise DataError(f"{len(wanted)} weights for {count} keys", fix="give one for each token that can be read")
    if not bool((wanted >= 0).all()) or not bool(wanted.isfinite().all()) or float(wanted.sum()) < LEAST_SUM:
        raise DataError("weights are not below zero, and not all of them zero", fix="give a distribution")
    return wanted / wanted.sum()


def _mixed(request: Request, wanted: Tensor, at: int) -> Tensor:
    """[B,H,D] what every head finds at a query with these weights [S]."""
    row = wanted.to(request.value.dtype).expand(*request.value.shape[:2], 1, -1)  # [B,H,1,S]
    found = row @ request.value
    if isinstance(request.bias, Shaw):  # the values of distances are mixed too
        found = found + request.bias.value_term(row, request.query_places.cut(at, at + 1), request.key_places)
    return found[:, :, 0]


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
    place: Place = chosen({one.path: one for one in places}, layer, "layers with states")
    token = chosen_token(place.tokens, at)
    known = heard(subject, other, [place.path])[place.path]
    vectors: Tensor = known[min(place.call, len(known) - 1)]
    if token >= vectors.shape[1]:
        raise DataError(
            f"the other text has {vectors.shape[1]} tokens, and token {token} was asked for",
            fix="choose an earlier one",
        )

    def replace(_: str, values: Tensor) -> Tensor:
        changed = values.clone()
        changed[:, token] = vectors[0, token]
        return changed

    with listening(subject.model, place.path, replace):
        yield place.path
