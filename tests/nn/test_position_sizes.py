"""At the start of training, positions neither drown what they are added to nor are drowned by it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from seqloom import recipes
from seqloom.cli.recipes import make
from seqloom.config.inputs import PatchesConfig, PictureConfig, SpelledConfig, TokensConfig, VectorsConfig
from seqloom.config.stacks import StackConfig
from seqloom.nn.positions import Positions
from seqloom.nn.types import Padded, Spelled

ROWS, LENGTH, WORDS = 8, 40, 100
OTHER_SEQUENCES = {
    "vectors": VectorsConfig(size=8),
    "words-and-letters": SpelledConfig(vocab_size=WORDS),
    "narrow-words": TokensConfig(vocab_size=WORDS, size=50),
}
SIZES: tuple[recipes.Size, ...] = ("nano", "small", "base")
PATCHES = PatchesConfig(height=24, width=24, patch=4)


def _models(size: recipes.Size) -> Iterator[tuple[str, Any]]:
    """Every shape of every recipe on tokens, or on pictures where it reads those; and what else recipes read."""
    for recipe in recipes.RECIPES.values():
        for shape in recipe.kinds:
            yield f"{recipe.name}-{shape}", make(recipe.name, shape, size)
    for name in recipes.names("classifier"):
        if name != "linear":  # it only counts
            for kind, inputs in OTHER_SEQUENCES.items():
                yield f"{name}-{kind}", recipes.classifier(name, inputs=inputs, num_classes=2, size=size)
    for name in recipes.names("translator"):
        yield f"{name}-pictures", recipes.translator(name, source=PATCHES, target_vocab_size=WORDS, size=size)


def _added() -> dict[str, StackConfig]:
    """Every encoder and decoder of these models whose positions are added to its inputs."""
    return {
        f"{name}-{size}-{part}": getattr(config, part)
        for size in SIZES
        for name, config in _models(size)
        for part in ("encoder", "decoder")
        if hasattr(config, part) and getattr(config, part).absolute()
    }


ADDED = _added()


def _drawn(stack: StackConfig) -> Any:
    """A batch; numbers have a root mean square of one."""
    inputs, words = stack.source(), Padded.of(torch.randint(WORDS, (ROWS, LENGTH)))
    if isinstance(inputs, VectorsConfig):
        return Padded.of(torch.randn(ROWS, LENGTH, inputs.size))
    if isinstance(inputs, SpelledConfig):
        return Spelled(words, torch.randint(ord("a"), ord("z") + 1, (ROWS, LENGTH, 6), dtype=torch.uint8))
    if isinstance(inputs, PictureConfig):
        return torch.randn(ROWS, inputs.height, inputs.width, inputs.channels)
    return words


def _size(values: torch.Tensor) -> float:
    return float(values.detach().square().mean().sqrt())


@pytest.mark.parametrize("name", ADDED)
def test_positions_and_what_they_are_added_to_are_of_one_size(name: str) -> None:
    stack = ADDED[name]
    inputs: Padded = stack.source().build(stack.width)(_drawn(stack))
    scaled = stack.input_scale * inputs.values
    ratio = _size(Positions(stack)(inputs).values - scaled) / _size(scaled)
    plain_tokens = isinstance(stack.source(), TokensConfig) and stack.source().size is None
    most = 2.0 if plain_tokens else 4.0
    assert ratio < most, f"{ratio:.2f} of positions for 1 of inputs"
    if plain_tokens or stack.position == "sinusoidal":  # a learned table may start small: its size is learned too
        assert ratio > 1 / most, f"{ratio:.2f} of positions for 1 of inputs"


def test_every_recipe_with_positions_is_looked_at() -> None:
    recipes_seen = {name.partition("-nano-")[0] for name in ADDED if "-nano-" in name}
    assert {"self-attention-tagger", "linear-attention-translator", "gpt-language-model"} <= recipes_seen
