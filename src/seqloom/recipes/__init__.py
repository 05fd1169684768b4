"""Recipes: every family of the lectures as a function from a size to a configuration.

    classifier          one class per sequence           tagger      one tag per element
    language_model      the next symbol                  translator  a sequence from another sequence
    picture_classifier  one class per picture            masked_model  hidden symbols
    sequence_model      labels, numbers or one class per sequence
    embedder            one vector per text

A recipe is a starting point, and plain data: print it, change it, write it to a file.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.recipes.bodies import SIZES, Body, Size, SizeNumbers
    from seqloom.recipes.families import RECIPES, Recipe, Shape, names
    from seqloom.recipes.shapes import (
        classifier,
        embedder,
        language_model,
        masked_model,
        picture_classifier,
        sequence_model,
        tagger,
        translator,
    )

__all__ = [
    "RECIPES",
    "SIZES",
    "Body",
    "Recipe",
    "Shape",
    "Size",
    "SizeNumbers",
    "classifier",
    "embedder",
    "language_model",
    "masked_model",
    "names",
    "picture_classifier",
    "sequence_model",
    "tagger",
    "translator",
]


def __getattr__(name: str) -> Any:
    if name in ("Body", "SIZES", "SizeNumbers", "Size"):
        from seqloom.recipes import bodies

        return getattr(bodies, name)
    if name in ("RECIPES", "Recipe", "Shape", "names"):
        from seqloom.recipes import families

        return getattr(families, name)
    if name in (
        "picture_classifier",
        "classifier",
        "embedder",
        "language_model",
        "masked_model",
        "sequence_model",
        "tagger",
        "translator",
    ):
        from seqloom.recipes import shapes

        return getattr(shapes, name)
    raise AttributeError(f"module 'seqloom.recipes' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
