"""Which layers of a model attend, from which tokens to which, and what they are asked while the model reads.

    self-attention     the tokens of a side to the same tokens: those that are read, also of a decoder
    cross-attention    the symbols of the target, each where it is said, to the tokens of the source
    pooling            one row, to the tokens of a side

A layer is named by its number among those that are meant, from 0, or by its path in the model.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.heads import Pooler
from seqloom.inspection.asking import scores
from seqloom.inspection.attention_rows import AttentionRows, rows_of
from seqloom.inspection.flow import still
from seqloom.inspection.layers import chosen, read_by, required
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.tokens import Token
from seqloom.mixers.contract import ConditionedMixer
from seqloom.taps import listening, taps

TAP = ".weights"
MOST_NAMED = 12  # places of a token that stands in several

Taken = TypeVar("Taken")


class AttentionLayer(NamedTuple):
    """A layer that attends: what its rows and its columns stand for."""

    path: str
    side: str  # that the queries belong to
    queries: tuple[Token, ...]
    keys: tuple[Token, ...]
    same: bool  # queries and keys are the same tokens
    call: int = 0  # how often the layer was used before in the same pass: 1 for the second of two texts

    @property
    def rows(self) -> tuple[str, ...]:
        """The queries as they are shown."""
        return tuple(token.text for token in self.queries)

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys as they are shown."""
        return tuple(token.text for token in self.keys)


def layers_of(subject: Subject, reading: Reading, side: str | None = None) -> tuple[AttentionLayer, ...]:
    """Every layer that attends, in the order of the model; those whose queries are of one side, if it is named.

    Of two texts that the same layers read, the first is meant.
    """
    wanted = None if side is None else reading.side(side).name
    if side is None and len({each.stack for each in reading.sides}) < len(reading.sides):
        wanted = reading.sides[0].name
    every = tuple(
        layer for name in taps(subject.model) if name.endswith(TAP) for layer in _uses(subject, reading, name)
    )
    required(every, subject.model, "attention", "none of its layers reads others by weights")
    found = tuple(layer for layer in every if wanted in (None, layer.side))
    if not found:
        there = ", ".join(dict.fromkeys(layer.side for layer in every))
        raise ConfigError(f"no layer of this model attends from the side '{side}'", fix=f"choose from {there}")
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
    """The layer of a number or a path; the last one if none is named."""
    asked = layer.removesuffix(TAP) if isinstance(layer, str) else layer
    return chosen({each.path: each for each in layers}, asked, "layers with attention")


def chosen_heads(layer: AttentionLayer, count: int, head: int | None) -> tuple[int, ...]:
    """The head of a number, or all of them."""
    if head is None:
        return tuple(range(count))
    if not 0 <= head < count:
        heads = f"{count} heads, 0 to {count - 1}" if count > 1 else "one head, 0"
        raise ConfigError(f"there is no head {head}: {layer.path} has {heads}", fix="choose one of them")
    return (head,)


def chosen_token(tokens: Sequence[Token], token: int | str) -> int:
    """The number of a token that is given by its number or its text; DataError where no or more than one fits."""
    if isinstance(token, int):
        if not -len(tokens) <= token < len(tokens):
            raise DataError(
                f"there is no token {token}: they are numbered from 0 to {len(tokens) - 1}", fix="choose one"
            )
        return token % len(tokens)
    places = [number for number, each in enumerate(tokens) if token in (each.text, each.text.strip())]
    if not places:
        raise DataError(f"no token reads '{token}'", fix=did_you_mean(token, {each.text for each in tokens}))
    if len(places) > 1:
        more = ", ..." if len(places) > MOST_NAMED else ""
        there = ", ".join(map(str, places[:MOST_NAMED])) + more
        raise DataError(f"'{token}' stands in {len(places)} places: {there}", fix="give the number of one of them")
    return places[0]


@torch.no_grad()
def heard(
    subject: Subject,
    reading: Reading,
    layers: Sequence[AttentionLayer],
    take: Callable[[AttentionLayer, AttentionRows], Taken],
) -> tuple[Taken, ...]:
    """What `take` makes of each layer, in one pass; it is called while the layer is at work, and no layer is kept."""
    wanted = {(layer.path, layer.call): layer for layer in layers}
    calls: dict[str, int] = {}
    taken: dict[tuple[str, int], Taken] = {}

    def listen(name: str, offered: object) -> None:
        path = name.removesuffix(TAP)
        use = path, calls.get(path, 0)
        calls[path] = use[1] + 1
        if use in wanted:
            taken[use] = take(wanted[use], rows_of(offered))  # type: ignore[arg-type]  # what taps of weights offer

    with still(subject.model), listening(subject.model, f"*{TAP}", listen):
        scores(subject, reading.inputs)
    return tuple(taken[layer.path, layer.call] for layer in layers)
