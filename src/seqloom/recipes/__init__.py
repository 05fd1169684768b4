"""Recipes: every family of the lectures as a function from a size to a configuration.

    classifier          one class per sequence           tagger      one tag per element
    language_model      the next symbol                  translator  a sequence from another sequence
    picture_classifier  one class per picture            masked_model  hidden symbols
    sequence_model      labels, numbers or one class per sequence
    embedder            one vector per text

A recipe is a starting point, and plain data: print it, change it, write it to a file.
"""

from seqloom.recipes.bodies import Body
from seqloom.recipes.families import RECIPES, Recipe, Shape, names
from seqloom.recipes.pictures import picture_classifier
from seqloom.recipes.shapes import classifier, embedder, language_model, masked_model, sequence_model, tagger
from seqloom.recipes.sizes import SIZES, Scale, Size
from seqloom.recipes.translators import translator

__all__ = [
    "RECIPES",
    "SIZES",
    "Body",
    "Recipe",
    "Scale",
    "Shape",
    "Size",
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
