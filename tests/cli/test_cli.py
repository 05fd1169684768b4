"""What people type: the verbs that exist, their exit codes, and what they say to a typing error."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqloom import demonstration, recipes
from seqloom.cli import app
from seqloom.cli.recipes import make
from seqloom.config.models import model_from_toml


def _seqloom(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seqloom", *arguments],
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
        (["recipes", "LSTM"], "Fix: did you mean 'lstm'?"),
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


def _in_a_terminal(*arguments: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "seqloom", *arguments],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "90", "TERM": "xterm-256color", **environment},
    )
    os.close(follower)
    written = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(leader)
    assert process.wait() == 0
    return written.decode()


ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.slow
def test_the_demo_draws_in_colour_in_a_terminal() -> None:
    written = _in_a_terminal("demo", COLORTERM="truecolor")
    assert "\x1b[38;2;" in written or "\x1b[48;2;" in written
    plain = ESCAPE.sub("", written)
    assert "\x1b" not in plain, "a broken escape"
    assert "[48;" not in plain
    assert "1 x  0.15" in plain


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_the_demo_draws_without_colour_where_none_is_wanted(environment: dict[str, str]) -> None:
    written = _in_a_terminal("demo", **environment)
    assert "38;2;" not in written
    assert "48;2;" not in written
    assert "1 x  0.15" in ESCAPE.sub("", written)


def test_a_path_that_cannot_be_saved_to_is_refused_before_any_work(tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    table.write_text("text")
    for path in (tmp_path, table, tmp_path / "no" / "page.html"):
        run = _seqloom("demo", "--save", str(path))
        assert run.returncode == 2
        assert run.stderr.startswith(f"{path}: out.unwritable: ")
        assert not run.stdout
    assert table.read_text() == "text"


def _films(folder: Path, rows: int = 30) -> Path:
    path = folder / "films.csv"
    path.write_text("text,label\n" + "".join(f"film number {n},{n % 2}\n" for n in range(rows)))
    return path


def test_a_narrow_terminal_gets_the_narrowest_report(tmp_path: Path) -> None:
    path = str(_films(tmp_path))
    shown = [CliRunner().invoke(app, ["data", "check", path], env={"COLUMNS": width}) for width in ("1", "20", "50")]
    assert {one.exit_code for one in shown} == {0} and len({one.stdout for one in shown}) == 1


def test_a_check_that_is_stopped_from_the_keyboard_says_one_word(tmp_path: Path) -> None:
    code = """
import os, signal, sys
import seqloom.data.report.looking as looking
looking.open_data = lambda *_: os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["seqloom", "data", "check", sys.argv[1]]
import seqloom.cli
seqloom.cli.main()
"""
    command = [sys.executable, "-c", code, str(_films(tmp_path))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "stopped\n")


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--vocabulary", "3"), ("--longest", "0"), ("--unicode", "x"), ("--format", "x"), ("--split-seed", "-1")],
)
def test_a_bad_value_is_named_with_its_flag(flag: str, value: str, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["data", "check", str(_films(tmp_path)), flag, value]).exception
    assert str(refused).startswith(f"{flag}: ")


def test_help_names_what_is_wanted_in_capitals() -> None:
    shown = CliRunner().invoke(app, ["data", "check", "--help"], env={"COLUMNS": "100"}).output
    assert "--html FILE" in shown and "--input COLUMN" in shown and "--max-bad SHARE" in shown
    assert not re.search(r"--[a-z-]+ <", shown)


def test_a_reader_that_leaves_a_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m seqloom recipes | head -n 1"
    run = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not run.stderr


def test_a_size_lists_that_size_alone() -> None:
    listed = CliRunner().invoke(app, ["recipes", "--size", "base"], env={"COLUMNS": "120"}).output
    assert "base" in listed
    assert "small" not in listed.splitlines()[0]


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
    assert page.read_text().count("<svg") == 4


@pytest.mark.slow
def test_the_models_of_the_demo_learn_what_they_can_and_not_what_they_cannot() -> None:
    data = demonstration.questions()
    assert demonstration.learn("bag", data) <= 0.55
    assert demonstration.learn("gru", data) >= 0.98
