"""What people type: the verbs that exist, their exit codes, and what they say to a typing error."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqloom import recipes
from seqloom.cli import app, main
from seqloom.cli.recipes import make
from seqloom.config.models import model_from_toml
from seqloom.errors import near_name
from seqloom.experiments.doctor.range_test import RangeTest


def _seqloom(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seqloom", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_recipes_lists_every_recipe_with_what_it_is_for() -> None:
    listed = CliRunner().invoke(app, ["recipes"], env={"COLUMNS": "200"}).output
    for name, recipe in recipes.RECIPES.items():
        assert name in listed and recipe.purpose in listed


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_recipe_is_printed_as_a_configuration_that_reads_back(name: str) -> None:
    for shape in recipes.RECIPES[name].kinds:
        printed = CliRunner().invoke(app, ["recipes", name, "--kind", shape, "--size", "nano"]).output
        assert model_from_toml(printed) == make(name, shape, "nano")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["recipes", "LSTM"], "Did you mean 'lstm'?"),
        (["recipes", "lsmt"], "error: there is no recipe 'lsmt'. Did you mean 'lstm'?"),
        (["recipes", "lstm", "--kind", "translater"], "Did you mean 'translator'?"),
        (["recipes", "lstm", "--kind", "translator"], "'lstm' cannot make a translator"),
        (["recipes", "--kind", "nonsense"], "there is no kind of model 'nonsense'"),
        (["recipes", "lstm", "--size", "huge"], "'huge' is not one of"),
        (["trian"], "No such command 'trian'"),
        (
            ["predict", "RUN", "-", "--beam-size", "3"],
            "No such option: --beam-size; seqloom evaluate, generate, translate have it",
        ),
        (["predict", "RUN", "-", "--with-inputs"], "No such option: --with-inputs"),
    ],
)
def test_bad_usage_gets_one_clear_error_and_exit_code_2(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["seqloom", *arguments])
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="2"):
        main()
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_path_that_cannot_be_saved_to_is_refused_before_any_work(tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    table.write_text("text")
    for path in (tmp_path, table, tmp_path / "no" / "page.html"):
        run = _seqloom("data", "check", "questions", "--html", str(path))
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


@pytest.mark.slow
def test_a_check_that_is_stopped_from_the_keyboard_says_one_word(tmp_path: Path) -> None:
    code = """
import os, signal, sys
import seqloom.data.check as looking
looking.open_data = lambda *_: os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["seqloom", "data", "check", sys.argv[1]]
import seqloom.cli
seqloom.cli.main()
"""
    command = [sys.executable, "-c", code, str(_films(tmp_path))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "stopped\n")


def test_a_command_that_is_stopped_while_it_is_imported_says_one_word() -> None:
    code = """
import sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "seqloom.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from seqloom.__main__ import main
main()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "stopped\n")


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--vocab-size", "3"), ("--max-length", "0"), ("--normalize", "x"), ("--format", "x"), ("--split-seed", "-1")],
)
def test_a_bad_value_is_named_with_its_flag(flag: str, value: str, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["data", "check", str(_films(tmp_path)), flag, value]).exception
    assert str(refused).startswith(f"{flag}: ")


def test_the_check_speaks_of_rows_and_batches_and_not_of_pairs(tmp_path: Path) -> None:
    def batches(budget: int) -> str:
        arguments = ["data", "check", str(_films(tmp_path)), "--batch-tokens", str(budget)]
        told = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"}).stdout.partition("Batches\n")[2]
        return " ".join(told.split())

    assert "All rows are in one batch, so an epoch is one step." in batches(10_000)
    said = r"Of the rows in one batch, [\d.]+ % are in one batch again in the next epoch\."
    assert re.search(said, batches(40))


@pytest.mark.parametrize(
    ("missing", "there", "near"),
    [
        ("nope.csv", ["ans.csv", "dev.csv"], ""),
        ("trian.csv", ["ans.csv", "train.csv"], "train.csv"),
        ("train.csv", ["dev.csv", "train.jsonl", "train.csv.gz"], "train.csv.gz"),
        ("Train.CSV", ["dev.CSV", "train.csv"], "train.csv"),
        ("rum", ["run", "runs.txt"], "run"),
        (".hiden", ["other", ".hidden"], ".hidden"),
        (".hiden", [".other"], ""),
        ("A.csv", ["b.csv", "a.csv"], "a.csv"),
    ],
)
def test_a_near_name_is_near_without_its_ending(missing: str, there: list[str], near: str, tmp_path: Path) -> None:
    for name in there:
        (tmp_path / name).touch()
    assert near_name(tmp_path / missing) == (f"did you mean {near}?" if near else "check the path")


def test_with_its_ending_any_two_tables_would_be_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ans.csv").touch()
    monkeypatch.setattr("seqloom.errors._stem", lambda name: name)
    assert near_name(tmp_path / "nope.csv") == "did you mean ans.csv?"


def _range_test(*blow_up: float) -> RangeTest:
    losses = (*[1.0] * 10, *[1.0 - 0.05 * number for number in range(10)], *[0.5] * 10, *blow_up)
    rates = tuple(10.0 ** (number / 10 - 4) for number in range(len(losses)))
    return RangeTest(rates, losses, losses, 1e-3, rates[-1] if blow_up else None)


def test_a_blow_up_takes_no_more_of_a_picture_of_rates_than_the_fall() -> None:
    figure = _range_test(1.4, 20.0, 3_000.0).figure
    for series in figure.series:
        assert max(series.known) == 1.5 and len(series.known) == 32  # the step that is too high, and no further one
    assert "the loss explodes at 0.16" in figure.caption
    calm = _range_test().figure
    assert max(calm.series[0].known) == 1.0 and "blows up" not in calm.caption


def test_help_names_what_is_wanted_in_capitals() -> None:
    shown = CliRunner().invoke(app, ["data", "check", "--help-all"], env={"COLUMNS": "100"}).output
    assert "--html FILE" in shown and "--input COLUMN" in shown and "--max-bad-rows FRACTION" in shown
    assert not re.search(r"--[a-z-]+ <", shown)


@pytest.mark.slow
def test_a_reader_that_leaves_a_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m seqloom recipes | head -n 1"
    run = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not run.stderr


def test_a_size_lists_that_size_alone() -> None:
    listed = CliRunner().invoke(app, ["recipes", "--size", "base"], env={"COLUMNS": "120"}).output
    assert "base" in listed
    assert "small" not in listed.splitlines()[0]


@pytest.mark.slow
def test_version() -> None:
    from seqloom.version import __version__

    assert _seqloom("--version").stdout == f"seqloom {__version__}\n"


def test_the_list_of_verbs_fits_a_terminal_and_says_each_in_one_sentence() -> None:
    listed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.partition("Commands:\n")[2]
    assert len(listed.splitlines()) > 10
    assert [line for line in listed.splitlines() if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("verb", ["evaluate", "predict", "translate"])
def test_the_own_options_of_a_verb_stand_before_those_of_files(verb: str) -> None:
    shown = CliRunner().invoke(app, [verb, "--help-all"], env={"COLUMNS": "100"}).stdout
    own, _, files = shown.partition("\nReading files:\n")
    assert "--deterministic" in own.partition("\nOptions:\n")[2]
    assert "--encoding" in files and "--deterministic" not in files
