"""Nothing in the repository can turn data into code: no pickles, no eval, no import by a name from outside, no shell.

The lint reads the syntax tree of every Python file and follows import aliases, so that a new name for `torch.load` is
still `torch.load`. What is allowed all the same is in one reviewed list.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")

MODULES = {
    **dict.fromkeys(
        ("pickle", "cPickle", "_pickle", "pickletools", "cloudpickle", "dill", "jsonpickle", "joblib", "shelve"),
        "pickles run code when they are read",
    ),
    **dict.fromkeys(("marshal", "runpy", "code", "codeop"), "runs or loads code"),
    **dict.fromkeys(("yaml", "ruamel", "ruamel.yaml"), "configurations are TOML and JSON"),
}
NAMES = {
    **dict.fromkeys(
        (
            "torch.load",
            "torch.save",
            "torch.jit.load",
            "torch.jit.save",
            "torch.package.PackageImporter",
            "torch.export.load",
            "torch.hub.load",
            "torch.distributed.all_gather_object",
            "torch.distributed.broadcast_object_list",
            "torch.distributed.gather_object",
            "torch.distributed.scatter_object_list",
            "torch.distributed.send_object_list",
            "torch.distributed.recv_object_list",
            "numpy.core.multiarray._reconstruct",
            "pandas.read_pickle",
            "copyreg.pickle",
        ),
        "it pickles or unpickles",
    ),
    **dict.fromkeys(("eval", "exec", "compile", "builtins.eval", "builtins.exec", "builtins.compile"), "it runs text"),
    **dict.fromkeys(("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"), "it is a shell"),
}
BY_NAME = ("importlib.import_module", "__import__", "builtins.__import__", "importlib.__import__")

# (file, rule): why it is allowed
ALLOWED: dict[tuple[str, str], str] = {
    ("src/seqloom/lazy.py", "importlib.import_module"): "the names are those of our own modules, from tables in code",
    ("tests/distributed/forking.py", "importlib.import_module"): "the names are those of test modules, from the tests",
    (
        "tests/sklearn/test_estimators.py",
        "pickle",
    ): "what users do with an estimator: the test reads what it wrote itself",
    **dict.fromkeys(
        [
            ("src/seqloom/training/run.py", "compile"),
            ("src/seqloom/experiments/compare/comparison.py", "compile"),
            ("src/seqloom/experiments/tune/tuning.py", "compile"),
        ],
        "it is the parameter of this name: whether torch compiles the model",
    ),
}


class Hit(NamedTuple):
    """A place where something forbidden stands."""

    line: int
    rule: str
    reason: str


def hits(text: str, *, source: bool) -> list[Hit]:
    """Everything forbidden in a file; `source`: it belongs to the package itself."""
    nodes = list(ast.walk(ast.parse(text)))
    names = dict(_bindings(nodes))
    found = [hit for node in nodes for hit in _hits(node, names)]
    if source:
        found += [hit for node in nodes for hit in _line_splitting(node)]
    return sorted(set(found))


def _bindings(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """What each imported name stands for: `import numpy as np` makes np stand for numpy."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    """The full name that an expression stands for, or nothing."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value, names)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _hits(node: ast.AST, names: dict[str, str]) -> Iterator[Hit]:
    if isinstance(node, ast.Import):
        yield from (_module(alias.name, node.lineno) for alias in node.names if _module_reason(alias.name))
    if isinstance(node, ast.ImportFrom) and node.module:
        if _module_reason(node.module):
            yield _module(node.module, node.lineno)
        for alias in node.names:
            if (full := f"{node.module}.{alias.name}") in NAMES:
                yield Hit(node.lineno, full, NAMES[full])
    if isinstance(node, ast.Attribute) and (full := _dotted(node, names)) in NAMES:
        yield Hit(node.lineno, full, NAMES[full])
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and (full := names.get(node.id, node.id)) in NAMES:
        yield Hit(node.lineno, full, NAMES[full])
    if isinstance(node, ast.Call):
        yield from _calls(node, names)


def _module_reason(name: str) -> str:
    return MODULES.get(name, MODULES.get(name.split(".")[0], ""))


def _module(name: str, line: int) -> Hit:
    return Hit(line, name.split(".")[0], _module_reason(name))


def _calls(node: ast.Call, names: dict[str, str]) -> Iterator[Hit]:
    called, options = _dotted(node.func, names), {keyword.arg: keyword.value for keyword in node.keywords}
    if called in BY_NAME and not (node.args and isinstance(node.args[0], ast.Constant)):
        yield Hit(node.lineno, called, "it imports what data names")
    if "shell" in options and not _is(options["shell"], False):
        yield Hit(node.lineno, "shell=True", "it is a shell")
    if "allow_pickle" in options and not _is(options["allow_pickle"], False):
        yield Hit(node.lineno, "allow_pickle", "it pickles or unpickles")
    if "weights_only" in options:
        yield Hit(node.lineno, "weights_only", "it unpickles")
    if called in ("getattr", "builtins.getattr") and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        full = f"{_dotted(node.args[0], names)}.{node.args[1].value}"
        if full in NAMES:
            yield Hit(node.lineno, full, NAMES[full])


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _line_splitting(node: ast.AST) -> Iterator[Hit]:
    if isinstance(node, ast.Attribute) and node.attr == "splitlines":
        yield Hit(node.lineno, "splitlines", "it also splits at U+2028, form feeds and the like: split at newlines")


def files() -> list[Path]:
    return [
        path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in path.parts
    ]


@pytest.mark.slow
def test_no_file_holds_anything_forbidden() -> None:
    found, used = [], set()
    for path in files():
        place = path.relative_to(ROOT).as_posix()
        for hit in hits(path.read_text(encoding="utf-8"), source=place.startswith("src/")):
            if (place, hit.rule) in ALLOWED:
                used.add((place, hit.rule))
            else:
                found.append(f"{place}, line {hit.line}: {hit.rule}: {hit.reason}")
    assert found == []
    assert used == set(ALLOWED), "what is allowed but no longer there is struck off the list"


def test_the_whole_repository_is_read() -> None:
    places = {path.relative_to(ROOT).parts[0] for path in files()}
    assert {"src", "tests", "benchmarks"} <= places
    assert Path(__file__) in files()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import pickle", "pickle"),
        ("import pickle as p", "pickle"),
        ("from pickle import loads", "pickle"),
        ("def f():\n    import dill", "dill"),
        ("import joblib.numpy_pickle", "joblib"),
        ("from yaml import safe_load", "yaml"),
        ("import marshal", "marshal"),
        ("import torch\ntorch.load('x')", "torch.load"),
        ("import torch as t\nt.load('x')", "torch.load"),
        ("from torch import load", "torch.load"),
        ("from torch import save as write\nwrite(1)", "torch.save"),
        ("import torch\nreader = torch.load", "torch.load"),
        ("import torch\ngetattr(torch, 'load')", "torch.load"),
        ("import torch\ntorch.distributed.broadcast_object_list([])", "torch.distributed.broadcast_object_list"),
        ("from torch import distributed as d\nd.all_gather_object(1)", "torch.distributed.all_gather_object"),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", "allow_pickle"),
        ("import numpy as np\nnp.load('x', allow_pickle=flag)", "allow_pickle"),
        ("read('x', weights_only=True)", "weights_only"),
        ("eval('1')", "eval"),
        ("run = exec", "exec"),
        ("compile('1', '', 'eval')", "compile"),
        ("import builtins\nbuiltins.eval('1')", "builtins.eval"),
        ("import os\nos.system('ls')", "os.system"),
        ("from os import popen", "os.popen"),
        ("import subprocess\nsubprocess.run('ls', shell=True)", "shell=True"),
        ("import subprocess\nsubprocess.run('ls', shell=flag)", "shell=True"),
        ("import importlib\nimportlib.import_module(name)", "importlib.import_module"),
        ("from importlib import import_module as im\nim(name)", "importlib.import_module"),
        ("__import__(name)", "__import__"),
        ("text.splitlines()", "splitlines"),
        ("list(map(str.splitlines, texts))", "splitlines"),
    ],
)
def test_what_is_forbidden_is_seen(text: str, rule: str) -> None:
    assert rule in {hit.rule for hit in hits(text, source=True)}


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "import re\nre.compile('x')",
        "import torch\ntorch.compile(model)",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "from importlib import import_module\nimport_module('seqloom.recipes')",
        "from safetensors.torch import load, save\nload(b'')",
        "text.split('\\n')",
        "def load(path): ...\nload('x')",
    ],
)
def test_what_only_looks_like_it_is_not_seen(text: str) -> None:
    assert hits(text, source=True) == []


def test_tests_may_split_lines() -> None:
    assert hits("text.splitlines()", source=False) == []
