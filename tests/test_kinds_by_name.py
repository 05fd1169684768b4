"""No code asks a kind of input or target for its name or its type: whoever wants to know something asks the kind."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqloom.data.schema import INPUT_KINDS, TARGET_KINDS

SOURCE = Path(__file__).parents[1] / "src" / "seqloom"
NAMES = {*INPUT_KINDS, *TARGET_KINDS}
TYPES = {type(kind).__name__ for kind in (*INPUT_KINDS.values(), *TARGET_KINDS.values())}
ASKED = ("input", "target", "kind", "input_kind", "target_kind")  # what values of these types are called


def asked_by_name(text: str) -> Iterator[str]:
    """Every comparison of a kind with a name, and every test of its type, as source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(_is_kind, sides)) and any(NAMES & set(_strings(side)) for side in sides):
                yield ast.unparse(node)
        if isinstance(node, ast.Match) and _is_kind(node.subject):
            yield f"match {ast.unparse(node.subject)}"
        if isinstance(node, ast.Call) and _calls_isinstance(node) and TYPES & set(_names(node.args[1])):
            yield ast.unparse(node)


def _is_kind(node: ast.AST) -> bool:
    """Whether an expression, or an item of a tuple, is called as kinds are; also the name of one."""
    if isinstance(node, ast.Tuple):
        return any(map(_is_kind, node.elts))
    if isinstance(node, ast.Attribute):
        return node.attr in ASKED or (node.attr == "name" and _is_kind(node.value))
    return isinstance(node, ast.Name) and node.id in ASKED


def _calls_isinstance(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "isinstance"


def _names(node: ast.AST) -> Iterator[str]:
    return (one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def _strings(node: ast.AST) -> Iterator[str]:
    return (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


@pytest.mark.slow  # it parses the whole source
def test_no_code_outside_the_kinds_compares_the_name_of_a_kind() -> None:
    files = [path for path in sorted(SOURCE.rglob("*.py")) if SOURCE / "data" / "kinds" not in path.parents]
    found = {
        f"{path.relative_to(SOURCE).as_posix()}: {line}"
        for path in files
        for line in asked_by_name(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        'schema.input == "picture"',
        'schema.input.name != "picture"',
        'prepared.schema.target in ("label", "labels")',
        '(schema.input, schema.target) == ("text", "text")',
        'kind not in {"words"}',
        "isinstance(schema.input, TextInput | PairInput)",
        'match schema.target:\n    case "label":\n        pass',
    ],
)
def test_a_comparison_is_seen(text: str) -> None:
    assert list(asked_by_name(text))
