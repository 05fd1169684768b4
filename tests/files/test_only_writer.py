"""Claims about who writes: no module but seqloom.files, which needs next to nothing itself."""

import ast
import sys
from pathlib import Path

import pytest

import seqloom
from seqloom.files import disk

WRITING_METHODS = {
    *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "symlink_to", "hardlink_to", "rename", "renames"),
    *("save_file", "savez", "savez_compressed", "savetxt", "tofile", "save_pretrained", "to_csv", "to_parquet"),
    *("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory", "fdopen"),
}
WRITING_CALLS = {
    *("os.open", "os.replace", "os.link", "os.truncate", "torch.save", "np.save", "numpy.save", "shutil.copy"),
    *("shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move", "shutil.rmtree", "shutil.copyfileobj"),
    *("shutil.make_archive", "shutil.unpack_archive"),
}


def writes(source: str) -> list[int]:
    """The lines of a program that open a file for writing, make, move or delete one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            last = name.rpartition(".")[2]
            is_path_replace = last == "replace" and "." in name and len(node.args) == 1 and not node.keywords
            if last in WRITING_METHODS or name in WRITING_CALLS or is_path_replace or _opens_for_writing(node, name):
                found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and any(
            f"{node.module}.{alias.name}" in WRITING_CALLS or alias.name in WRITING_METHODS for alias in node.names
        ):
            found.append(node.lineno)
    return found


def _dotted(called: ast.expr) -> str:
    """The name that is called; what a method is called on counts only as far as it is a name itself."""
    if isinstance(called, ast.Attribute):
        return f"{_dotted(called.value)}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


def _opens_for_writing(call: ast.Call, name: str) -> bool:
    if name.rpartition(".")[2] != "open":
        return False
    # builtin and module functions take the path first, methods of a path the mode
    takes_path = name in {"open", "io.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open"}
    mode = next((k.value for k in call.keywords if k.arg == "mode"), None)
    if mode is None and len(call.args) > takes_path:
        mode = call.args[takes_path]
        if not takes_path and not isinstance(mode, ast.Constant):
            return False  # the method of something else that opens
    if mode is None:
        return False
    return not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))


@pytest.mark.slow  # it parses the whole source
def test_no_other_module_writes_a_file() -> None:
    source = Path(seqloom.__file__).parent
    modules = [path for path in source.rglob("*.py") if path.parent != source / "files"]
    assert modules
    culprits = [f"{path.relative_to(source)}:{line}" for path in modules for line in writes(path.read_text())]
    assert culprits == []
    assert writes(Path(disk.__file__).read_text()) != []


@pytest.mark.parametrize(
    "program",
    [
        "open('a', 'w')",
        "open('a', mode='ab')",
        "open('a', 'r+')",
        "open('a', mode)",
        "Path('a').open('x')",
        "path.open(mode='wb')",
        "gzip.open('a', 'wb')",
        "Path('a').write_text('')",
        "path.write_bytes(b'')",
        "os.rename(a, b)",
        "os.replace(a, b)",
        "path.replace(other)",
        "path.rename(other)",
        "shutil.copy(a, b)",
        "from shutil import rmtree",
        "from os import replace",
        "safetensors.torch.save_file(x, 'a')",
        "from safetensors.torch import save_file",
        "np.save('a', x)",
        "numpy.savez('a', x)",
        "torch.save(x, 'a')",
        "path.mkdir()",
        "tempfile.NamedTemporaryFile()",
        "os.open(path, os.O_WRONLY)",
    ],
)
def test_a_writing_line_is_seen(program: str) -> None:
    assert writes(program) == [1]


@pytest.mark.parametrize(
    "program",
    [
        "open('a')",
        "open('a', 'rb')",
        "open('warp.txt', mode='r')",
        "path.open()",
        "path.open('rb')",
        "gzip.open('wax')",
        "gate.open(x, y)",
        "text.replace('a', 'b')",
        "dataclasses.replace(x, a=1)",
        "shutil.disk_usage(path)",
        "write_file(path, b'')",
        "sys.stdout.write('x')",
    ],
)
def test_a_reading_line_is_not_taken_for_a_writing_one(program: str) -> None:
    assert writes(program) == []


def test_the_writer_needs_nothing_but_the_standard_library_and_msgspec() -> None:
    allowed = set(sys.stdlib_module_names) | {"msgspec", "seqloom.errors", "seqloom.files"}
    for path in Path(disk.__file__).parent.glob("*.py"):
        if path.name == "tensors.py":  # turns tensors into bytes, and writes nothing
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert all(any(m == a or m.startswith(f"{a}.") for a in allowed) for m in modules), (path.name, modules)
