"""Names that a reader meets: each class name means one thing."""

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "seqloom"


def repeated(texts: list[str]) -> list[str]:
    """The names of classes that are defined more than once."""
    trees = map(ast.parse, texts)
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in names.items() if count > 1)


def test_every_class_name_is_defined_once() -> None:
    assert repeated([path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))]) == []


def test_a_class_name_that_is_defined_twice_is_seen() -> None:
    assert repeated(["class A:\n    class B: ...\n", "class B: ...\n"]) == ["B"]
