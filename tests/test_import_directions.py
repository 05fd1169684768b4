"""A module imports only from modules before it: the order is this list, and every module is in it.

Inside a package any order without a circle will do. Only `build...` and `fit` of a configuration may reach forward,
from inside the function: there a configuration becomes the code that it describes. `seqloom/__init__.py` stands after
everything.
"""

import ast
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src"

ORDER = [
    "version",
    "lazy",
    "errors",
    "report",
    "events",
    "config",
    "files",
    "text",
    "nn",
    "data",
    "recipes",
    "metrics",
    "vectors",
    "decoding",
    "tasks",
    "bundle",
    "importing",
    "inspect",
    "inference",
    "search",
    "training",
    "sklearn",
    "experiments",
    "serve",
    "demo",
    "cli",
    "__main__",
]
FREE_OF_TORCH = ["version", "errors", "events", "config", "files", "report", "recipes"]
WITH_NUMPY = ["text", "data"]  # free of torch too, but for the modules that make tensors
TENSORS = [
    "seqloom.data.loader",
    "seqloom.files.tensors",
]


class Import(NamedTuple):
    """One module that a module imports, and the names of the functions around the import."""

    target: str
    line: int
    inside: tuple[str, ...] = ()


def modules(source: Path = SOURCE) -> dict[str, str]:
    """The text of every module of the package by its dotted name."""
    found = {}
    for path in sorted((source / "seqloom").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return found


@cache
def imports(text: str, known: frozenset[str]) -> tuple[Import, ...]:
    """What a module imports from this package; what only the type checker sees is left out."""
    return tuple(_imports(ast.parse(text), known, ()))


def _imports(node: ast.AST, known: frozenset[str], inside: tuple[str, ...]) -> Iterator[Import]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for child in node.orelse:
            yield from _imports(child, known, inside)
        return
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, inside) for alias in node.names if _ours(alias.name))
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        assert node.module is not None
        if _ours(node.module):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(inner if inner in known else node.module, node.lineno, inside)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        inside = (*inside, node.name)
    if not isinstance(node, ast.expr):  # no expression holds a statement
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, known, inside)


def _ours(module: str) -> bool:
    return module == "seqloom" or module.startswith("seqloom.")


def unit(module: str) -> str:
    """The entry of ORDER that a module belongs to; the package itself is none and stands after all."""
    return module.split(".")[1] if "." in module else ""


def wrong_ways(texts: dict[str, str], order: list[str]) -> list[str]:
    """Every import that goes to a later module, in words."""
    rank = {name: number for number, name in enumerate(order)} | {"": len(order)}
    wrong = []
    for module, text in texts.items():
        for found in imports(text, frozenset(texts)):
            forward = rank[unit(found.target)] > rank[unit(module)]
            if forward and not _may_reach_forward(module, found):
                wrong.append(f"{module}, line {found.line}: imports {found.target}, which comes later")
    return wrong


def _may_reach_forward(module: str, found: Import) -> bool:
    return unit(module) == "config" and bool(found.inside) and found.inside[-1].startswith(("build", "fit"))


def circles(texts: dict[str, str]) -> list[str]:
    """A circle of imports at module level inside one package, if there is one."""
    graph = {
        module: {
            found.target
            for found in imports(text, frozenset(texts))
            if not found.inside and found.target != module and unit(found.target) == unit(module)
        }
        for module, text in texts.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [" <- ".join(error.args[1])]
    return []


def test_every_module_is_in_the_order_and_every_name_in_the_order_is_a_module() -> None:
    assert {unit(module) for module in modules()} - {""} == set(ORDER)
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.slow
def test_no_module_imports_a_later_one() -> None:
    assert wrong_ways(modules(), ORDER) == []


@pytest.mark.slow
def test_no_circle_inside_a_package() -> None:
    assert circles(modules()) == []


TEXTS = {
    "seqloom": "def __getattr__(name):\n    from seqloom import late\n",
    "seqloom.early": "",
    "seqloom.config": "",
    "seqloom.config.one": "def build():\n    from seqloom.late import Late\n",
    "seqloom.late": "from seqloom import early\nfrom seqloom.config.one import build\n",
}
EARLY_TO_LATE = ["early", "config", "late"]


def test_the_example_of_this_test_is_in_order() -> None:
    assert wrong_ways(TEXTS, EARLY_TO_LATE) == []
    assert circles(TEXTS) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("seqloom.early", "from seqloom.late import Late"),
        ("seqloom.early", "import seqloom.late"),
        ("seqloom.early", "from seqloom import late"),
        ("seqloom.early", "from seqloom import __version__"),
        ("seqloom.early", "import seqloom"),
        ("seqloom.early", "def build():\n    from seqloom.late import Late"),
        ("seqloom.early", "try:\n    import seqloom.late\nexcept ImportError:\n    pass"),
        ("seqloom.early", "class A:\n    from seqloom.late import Late"),
        ("seqloom.early", "if TYPE_CHECKING:\n    pass\nelse:\n    import seqloom.late"),
        ("seqloom.config.one", "from seqloom.late import Late"),
        ("seqloom.config.one", "def check():\n    from seqloom.late import Late"),
        ("seqloom.config.one", "def build():\n    def inner():\n        from seqloom.late import Late"),
    ],
)
def test_an_import_of_a_later_module_is_seen(module: str, text: str) -> None:
    found = wrong_ways(TEXTS | {module: text}, EARLY_TO_LATE)
    assert [line.startswith(f"{module}, line ") for line in found] == [True]


def test_what_only_the_type_checker_sees_is_left_out() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from seqloom.late import Late\n"
    assert wrong_ways(TEXTS | {"seqloom.early": text}, EARLY_TO_LATE) == []


def test_a_circle_is_seen() -> None:
    one = {"seqloom.config.one": "from seqloom.config import two", "seqloom.config.two": "import seqloom.config.one"}
    assert circles(TEXTS | one) != []
    own = {"seqloom.config": "from seqloom.config import one", "seqloom.config.one": "from seqloom.config import Name"}
    assert circles(TEXTS | own) != []


def imported_by(module: str) -> set[str]:
    """What a fresh Python has imported after one import."""
    program = f"import {module}, sys; print(' '.join(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.slow
def test_what_needs_no_torch_does_not_import_it() -> None:
    parts = [module for module in modules() if unit(module) in FREE_OF_TORCH and module not in TENSORS]
    assert "seqloom.config.models" in parts
    found = imported_by(", ".join(["seqloom", *parts]))
    assert {"torch", "numpy", "seqloom.nn.types"} & found == set()


@pytest.mark.slow
def test_reading_and_tokenizing_need_no_torch() -> None:
    parts = [module for module in modules() if unit(module) in WITH_NUMPY and module not in TENSORS]
    assert "seqloom.data.survey" in parts
    assert {"torch", "seqloom.nn.types"} & imported_by(", ".join(parts)) == set()
