"""Claims about the experiments: every command is one that a user could type, and every result has an experiment."""

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
    """The module that runs experiments; what it imports from its folder is forgotten afterwards."""
    monkeypatch.syspath_prepend(QUALITY)
    for name in ("experiments", "prepare_data", "run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    return run  # type: ignore[no-any-return]


def parsed(verb: str, arguments: list[str]) -> dict[str, Any]:
    """The options of a command line, by their names; what is no option of the verb raises."""
    command: Any = get_command(app)
    return command.commands[verb].make_context(verb, arguments, resilient_parsing=False).params  # type: ignore[no-any-return]


def test_every_experiment_is_trained_and_evaluated_by_commands_that_exist(quality: ModuleType) -> None:
    places = {name: f"/{name}" for name in ("data", "models", "made", "glove")}
    for name, experiment in quality.EXPERIMENTS.items():
        trained = parsed("train", quality.filled(experiment.train, places))
        evaluated = parsed("evaluate", [name, *shlex.split(experiment.evaluate)])
        assert trained["data"] and not re.search(r"\{(data|models|made|glove)\}", str(trained))
        assert (evaluated["split"] == "test") == ("--split test" in experiment.evaluate)
        assert trained["test"] or evaluated["split"] != "test", f"{name} has no test set"


def test_every_model_file_is_used_by_an_experiment_and_can_be_read(quality: ModuleType) -> None:
    commands = " ".join(experiment.train for experiment in quality.EXPERIMENTS.values())
    for path in MODELS:
        assert f"{{models}}/{path.name}" in commands
        assert read_model(path).parameters() > 0


def test_the_table_has_the_median_of_the_latest_result_of_each_seed(quality: ModuleType, tmp_path: Path) -> None:
    record = {"experiment": "ptb-650", "split": "test", "seconds": 2.0}
    values = [(0, 90.0), (1, 80.0), (2, 75.0), (0, 70.0)]
    lines = [json.dumps(record | {"seed": seed, "metrics": {"perplexity": value}}) for seed, value in values]
    (tmp_path / "results.jsonl").write_text("\n".join(lines))
    assert quality.table(tmp_path).splitlines()[-1] == "| ptb-650 | test | 75 | 70, 80, 75 | 77 | 2 |"


def test_every_result_in_the_table_has_an_experiment(quality: ModuleType) -> None:
    found = re.findall(r"^\| `([\w-]+)` \|", (QUALITY / "results.md").read_text(), re.MULTILINE)
    assert found and set(found) <= set(quality.EXPERIMENTS)
