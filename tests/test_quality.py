"""Claims about the published figures: every command is one that a user could type, and every result has its line."""

import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

from seqloom.cli import app
from seqloom.config.models import read_model

QUALITY = Path(__file__).parents[1] / "benchmarks" / "quality"
MODELS = sorted((QUALITY / "models").glob("*.toml"))


@pytest.fixture
def quality(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that runs figures; what it imports beside it is forgotten afterwards."""
    monkeypatch.syspath_prepend(QUALITY)
    for name in ("figures", "making", "run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    return run  # type: ignore[no-any-return]


def parsed(verb: str, arguments: list[str]) -> dict[str, Any]:
    """The options of a command line, by their names; what is no option of the verb raises."""
    command: Any = get_command(app)
    return command.commands[verb].make_context(verb, arguments, resilient_parsing=False).params  # type: ignore[no-any-return]


def test_every_figure_is_trained_and_judged_by_commands_that_exist(quality: ModuleType) -> None:
    places = {name: f"/{name}" for name in ("data", "models", "made", "glove")}
    for name, figure in quality.FIGURES.items():
        trained = parsed("train", quality.filled(figure.train, places))
        judged = parsed("evaluate", [name, *shlex.split(figure.judge)])
        assert trained["data"] and not re.search(r"\{(data|models|made|glove)\}", str(trained))
        assert judged["test"] == ("--test" in figure.judge)
        assert trained["test"] or not judged["test"], f"{name} has no test part to look at"


def test_every_model_file_is_used_by_a_figure_and_can_be_read(quality: ModuleType) -> None:
    commands = " ".join(figure.train for figure in quality.FIGURES.values())
    for path in MODELS:
        assert f"{{models}}/{path.name}" in commands
        assert read_model(path).parameters() > 0


def test_the_table_has_the_median_of_the_latest_result_of_each_seed(quality: ModuleType, tmp_path: Path) -> None:
    record = {"figure": "ptb-650", "part": "test", "seconds": 2.0}
    values = [(0, 90.0), (1, 80.0), (2, 75.0), (0, 70.0)]
    lines = [json.dumps(record | {"seed": seed, "metrics": {"perplexity": value}}) for seed, value in values]
    (tmp_path / "results.jsonl").write_text("\n".join(lines))
    assert quality.table(tmp_path).splitlines()[-1] == "| ptb-650 | test | 75 | 70, 80, 75 | 77 | 2 |"


def test_every_result_that_is_told_is_that_of_a_figure(quality: ModuleType) -> None:
    told = re.findall(r"^\| `([\w-]+)` \|", (QUALITY / "results.md").read_text(), re.MULTILINE)
    assert told and set(told) <= set(quality.FIGURES)
