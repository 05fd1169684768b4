"""No code asks a recipe for its name: whoever wants to know something asks the recipe."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqloom.recipes.families import RECIPES

SOURCE = Path(__file__).parents[1] / "src" / "seqloom"
ASKED = ("recipe", "model", "name")  # what recipes and their names are called


def asked_by_name(text: str) -> Iterator[str]:
    """Every comparison of a recipe with the name of one, as source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(_is_recipe, sides)) and any(_names_one(side) for side in sides):
                yield ast.unparse(node)


def _is_recipe(node: ast.AST) -> bool:
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) in ASKED


def _names_one(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Constant) and one.value in RECIPES for one in ast.walk(node))


@pytest.mark.slow  # it parses the whole source
def test_no_code_outside_the_recipes_compares_the_name_of_one() -> None:
    files = [path for path in sorted(SOURCE.rglob("*.py")) if SOURCE / "recipes" not in path.parents]
    found = {
        f"{path.relative_to(SOURCE).as_posix()}: {line}"
        for path in files
        for line in asked_by_name(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    ['recipe == "linear"', 'request.model != "linear"', 'name in ("bilstm",)', 'spec.name not in {"transformer"}'],
)
def test_a_comparison_is_seen(text: str) -> None:
    assert list(asked_by_name(text))
