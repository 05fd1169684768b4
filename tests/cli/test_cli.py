"""What people type: the verbs that exist, their exit codes, and what they say to a typing error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqloom import recipes
from seqloom.cli import app
from seqloom.cli.recipes import make
from seqloom.config.models import model_from_toml


def _seqloom(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seqloom.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
    )


def test_recipes_lists_every_recipe_with_what_it_is_for() -> None:
    listed = CliRunner().invoke(app, ["recipes"], env={"COLUMNS": "200"}).output
    for name, recipe in recipes.RECIPES.items():
        assert name in listed and recipe.purpose in listed


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_recipe_is_printed_as_a_configuration_that_reads_back(name: str) -> None:
    for shape in recipes.RECIPES[name].shapes:
        printed = CliRunner().invoke(app, ["recipes", name, "--shape", shape, "--size", "tiny"]).output
        assert model_from_toml(printed) == make(name, shape, "tiny")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["recipes", "lsmt"], "error: there is no recipe 'lsmt'. Fix: did you mean 'lstm'?"),
        (["recipes", "lstm", "--shape", "translater"], "Fix: did you mean 'translator'?"),
        (["recipes", "lstm", "--shape", "translator"], "'lstm' makes no translator"),
        (["recipes", "--shape", "nonsense"], "there is no shape 'nonsense'"),
        (["recipes", "lstm", "--size", "huge"], "'huge' is not one of"),
        (["trian"], "No such command 'trian'"),
    ],
)
def test_bad_usage_gets_one_clear_error_and_exit_code_2(arguments: list[str], said: str) -> None:
    run = _seqloom(*arguments)
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_version() -> None:
    from seqloom.version import __version__

    assert _seqloom("--version").stdout == f"seqloom {__version__}\n"


@pytest.mark.slow
def test_the_demo_shows_what_it_computed(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    run = _seqloom("demo", "--save", str(page))
    assert run.returncode == 0, run.stderr
    for name in recipes.names("language-model"):
        assert f"  {name} " in run.stdout
    assert "NOT THE SAME" not in run.stdout
    assert run.stdout.count("the same\n") == len(recipes.names("language-model"))
    assert page.read_text().count("<svg") == 3
