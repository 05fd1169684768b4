"""Recipes: every model family of the lectures as a function from a size to a configuration.

    classifier          one class per sequence           tagger      one tag per element
    language_model      the next token                  translator  a sequence from another sequence
    picture_classifier  one class per picture            masked_model  masked tokens
    sequence_model      labels, numbers or one class per sequence
    embedder            one vector per text
    graph_model         labels, numbers or one class per graph
    graph_tagger        one tag per node

A recipe returns a plain configuration as a starting point: print it, change it, write it to a file.
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.recipes.families import (
        RECIPES,
        SIZES,
        AnySize,
        Body,
        Dimensions,
        ModelKind,
        Recipe,
        Size,
        SizeNumbers,
        classifier,
        embedder,
        graph_model,
        graph_tagger,
        language_model,
        masked_model,
        names,
        picture_classifier,
        sequence_model,
        tagger,
        translator,
    )

__all__ = [
    "RECIPES",
    "SIZES",
    "AnySize",
    "Body",
    "Dimensions",
    "ModelKind",
    "Recipe",
    "Size",
    "SizeNumbers",
    "classifier",
    "embedder",
    "graph_model",
    "graph_tagger",
    "language_model",
    "masked_model",
    "names",
    "picture_classifier",
    "sequence_model",
    "tagger",
    "translator",
]


__getattr__ = loading(__name__, {"families": tuple(__all__)})
