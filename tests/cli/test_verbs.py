"""One verb, one file: what verbs share stands in a module of its own, and none imports from another verb."""

import ast
from pathlib import Path

from seqloom.cli import app

ROOM = Path(__file__).parents[2] / "src" / "seqloom" / "cli"
VERBS = {one.name for one in (*app.registered_commands, *app.registered_groups)} - {"import"} | {"import_"}


def test_no_verb_is_imported_by_another_module_than_the_list_of_verbs() -> None:
    assert all((ROOM / f"{verb}.py").is_file() for verb in VERBS)
    for path in ROOM.glob("*.py"):
        if path.name == "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("seqloom.cli"):
                inside = node.module.removeprefix("seqloom.cli").removeprefix(".")
                named = {inside} if inside else {name.name for name in node.names}
                assert not named & VERBS, f"{path.name} imports {named & VERBS}"
