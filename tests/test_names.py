"""Names that a reader meets: each class name means one thing, and a file that is named is there."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "seqloom"


def repeated(texts: list[str]) -> list[str]:
    """The names of classes that are defined more than once."""
    trees = map(ast.parse, texts)
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in names.items() if count > 1)


@pytest.mark.slow  # it parses the whole source
def test_every_class_name_is_defined_once() -> None:
    assert repeated([path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))]) == []


def test_a_class_name_that_is_defined_twice_is_seen() -> None:
    assert repeated(["class A:\n    class B: ...\n", "class B: ...\n"]) == ["B"]


def lost(text: str, known: set[str]) -> list[str]:
    """The files of Python that a text names and that are nowhere."""
    return [name for name in re.findall(r"\b(\w+\.py)\b", text) if name not in known]


@pytest.mark.slow
def test_a_file_that_the_source_names_is_there() -> None:
    known = {path.name for path in SOURCE.rglob("*.py")}
    others = {path.name for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        elsewhere = set(re.findall(r"(?:tests|benchmarks)/(?:\w+/)*(\w+\.py)", text)) & others
        assert lost(text, known | elsewhere) == [], path.name


def test_a_file_that_is_gone_is_seen() -> None:
    assert lost("loop.py    the loop\ntelling.py what it says", {"loop.py"}) == ["telling.py"]


def unused(modules: dict[str, str]) -> list[str]:
    """The modules whose names stand in no other one, of dotted names and texts."""
    said = {name: set(re.findall(r"\w+", text)) for name, text in modules.items()}
    return [
        name
        for name in sorted(modules)
        if not any(name.rpartition(".")[2] in words for other, words in said.items() if other != name)
    ]


@pytest.mark.slow
def test_every_module_is_named_by_another_one() -> None:
    texts = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in SOURCE.rglob("*.py")
    }
    assert [name for name in unused(texts) if not name.endswith("__init__")] == ["sklearn"]  # users import it


def test_a_module_that_nobody_names_is_seen() -> None:
    assert unused({"a.loop": "from seqloom.a import step", "a.step": "", "a.left": "import os"}) == ["a.left", "a.loop"]
