"""A run remembers how its data is read and where it lies: no option is repeated, and no folder is the right one."""

import itertools
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

import seqloom
from seqloom.cli import app
from seqloom.config.data import BadRows
from seqloom.errors import ConfigError, RejectedError
from seqloom.files import disk
from seqloom.files.layouts import RunFile
from seqloom.training.run_location import has_results
from survival.cases import sums

pytestmark = pytest.mark.slow

WORDS = ("red", "green", "blue", "old", "new", "tall")
TOLD = ["--delimiter", ";", "--input", "review", "--target", "stars", "--skip-bad-rows", "--max-bad-rows", "20%"]
SHORT = ["--model", "linear", "--steps", "4", "--device", "cpu"]


def seqloom_(*arguments: Any) -> Result:
    """What a command came to, typed in the present folder."""
    return CliRunner().invoke(app, [str(one) for one in arguments])


def fine(*arguments: Any) -> str:
    """Everything that a command said that ended well."""
    result = seqloom_(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def write_reviews(path: Path, rows: int = 60, first: str = "review;stars;id", broken: bool = True) -> None:
    """Rows whose columns and delimiter must be told; two of them lack a field."""
    texts = [(" ".join(WORDS[(row * step) % 6] for step in range(1, 3 + row % 3)), row) for row in range(rows)]
    lines = [f"{text};{'good' if row % 2 else 'bad'};{row}" for text, row in texts]
    if broken:
        lines[7:7] = ["alone"]
        lines[30:30] = ["lonely"]
    path.write_text("\n".join([first, *lines, ""]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder with data and a run that was trained in it."""
    project = tmp_path_factory.mktemp("trained") / "project"
    (project / "data").mkdir(parents=True)
    write_reviews(project / "data/reviews.csv")
    write_reviews(project / "data/test.csv", 20)
    home = Path.cwd()
    os.chdir(project)
    try:
        fine("train", "data/reviews.csv", "--test", "data/test.csv", *TOLD, *SHORT, "--out", "run")
    finally:
        os.chdir(home)
    return project


@pytest.fixture
def project(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the project, where nothing else of it is, seen from another folder; the first one is gone meanwhile."""
    shutil.copytree(trained, tmp_path / "project")
    hidden = trained.with_name("hidden")
    trained.rename(hidden)
    monkeypatch.chdir("/")
    yield tmp_path / "project"
    hidden.rename(trained)


# The rule for bad rows


@pytest.mark.slow
def test_a_run_that_skipped_bad_rows_needs_no_option_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    assert "6 examples of the dev set" in fine("evaluate", "run")
    assert "20 examples of the test set" in fine("evaluate", "run", "--split", "test", "--max-bad-rows", "50%")
    assert "not looked into" not in fine("doctor", "run")
    assert "2 bad rows skipped, as in training" in fine("inspect", "run", "--data", "data/reviews.csv")
    assert "done after 6 steps" in fine("train", "data/reviews.csv", "--out", "run", "--steps", 6)
    assert "done after 8 steps" in fine("train", "--out", "run", "--steps", 8)
    assert seqloom.load("run").run.data.bad_rows == BadRows(skip_bad_rows=True, max_bad_rows=0.2)


def test_a_test_part_with_more_bad_rows_than_the_rule_allows_is_refused_until_it_is_allowed(project: Path) -> None:
    write_reviews(project / "data/test.csv", 6)
    refused = seqloom_("evaluate", project / "run", "--split", "test")
    assert isinstance(refused.exception, RejectedError) and "--max-bad-rows allows 20%" in str(refused.exception)
    assert not (project / "run/test_evaluations.jsonl").exists()
    assert "6 examples of the test set" in fine("evaluate", project / "run", "--split", "test", "--max-bad-rows", "30%")


def test_the_share_of_bad_rows_is_not_asked_again_of_one_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bad rows are in the dev file: few of all that training read, and many of what is judged."""
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "train.csv", broken=False)
    write_reviews(tmp_path / "dev.csv", 6)
    told = ["--delimiter", ";", "--input", "review", "--target", "stars", "--skip-bad-rows", "--max-bad-rows", "5%"]
    fine("train", "train.csv", "--dev", "dev.csv", *told, *SHORT, "--out", "run")
    assert "6 examples of the dev set" in fine("evaluate", "run")


def test_a_run_that_skipped_bad_rows_answers_the_rest_of_another_file_too(project: Path) -> None:
    done = seqloom_("predict", project / "run", project / "data/reviews.csv")
    assert done.exit_code == 7 and sum('"error"' in line for line in done.stdout.splitlines()) == 2
    strict = seqloom_("predict", project / "run", project / "data/reviews.csv", "--no-skip-bad-rows")
    assert isinstance(strict.exception, RejectedError)


def test_python_trains_with_the_rule_and_evaluates_without(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "red,a\nblue,b\n" * 20 + "alone\n")
    rule = {"skip_bad_rows": True, "max_bad_rows": 0.1}
    short = {"model": "linear", "steps": 2, "device": "cpu"}
    seqloom.train(tmp_path / "a.csv", out=tmp_path / "run", **rule, **short)
    assert seqloom.load(tmp_path / "run").evaluate().rows == 4
    seqloom.train(tmp_path / "a.csv", out=tmp_path / "run", **short | {"steps": 3})
    with pytest.raises(RejectedError):
        seqloom.load(tmp_path / "run").evaluate(skip_bad_rows=False)


# Errors inside reports


def test_an_error_inside_a_diagnosis_is_a_plain_sentence(project: Path) -> None:
    config = project / "run/config.toml"
    config.write_text(config.read_text().replace("skip_bad_rows = true", "skip_bad_rows = false"))
    said = fine("doctor", project / "run")
    assert "x0a" not in said and "\\n" not in said
    plain = " ".join(said.split())
    assert "csv.ragged: 1 field, but the header has 3." in plain and "It is the first of 2 problems." in plain


# Places


@pytest.mark.slow
def test_a_run_works_from_any_folder(project: Path) -> None:
    run = project / "run"
    assert "6 examples of the dev set" in fine("evaluate", run)
    assert "20 examples of the test set" in fine("evaluate", run, "--split", "test")
    assert "not looked into" not in fine("doctor", run)
    assert "input of" in fine("inspect", run, "--data", project / "data/reviews.csv")
    assert "done after 5 steps" in fine("train", "--out", run, "--steps", 5)
    spelled = os.path.relpath(project / "data/reviews.csv", "/")
    assert "done after 6 steps" in fine("train", spelled, "--out", run, "--steps", 6)
    assert "done after 7 steps" in fine("train", project / "run/../data/reviews.csv", "--out", run, "--steps", 7)


@pytest.mark.slow
def test_a_run_that_goes_on_from_elsewhere_ends_with_the_same_bytes(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(project, tmp_path / "other")
    fine("train", project / "data/reviews.csv", "--out", project / "run", "--steps", 9)
    monkeypatch.chdir(tmp_path / "other")
    fine("train", "data/reviews.csv", "--test", "data/test.csv", *TOLD, *SHORT[:2], "--out", "run", "--steps", 9)
    assert sums(project / "run") == sums(tmp_path / "other/run")
    assert 'train = [\n    "data/reviews.csv",\n]' in (project / "run/config.toml").read_text()


def folder_of_classes(project: Path) -> list[str]:
    for label, word in (("good", "red"), ("bad", "blue")):
        (project / "texts" / label).mkdir(parents=True)
        for number in range(10):
            (project / "texts" / label / f"{number}.txt").write_text(f"{word} old {WORDS[number % 6]}")
    return ["./texts/", *SHORT]


def pictures_in_a_table(project: Path) -> list[str]:
    (project / "pictures").mkdir()
    rows = ["picture,label"]
    for number in range(20):
        Image.new("L", (4, 4), 255 * (number % 2)).save(project / f"pictures/{number}.png")
        rows.append(f"pictures/{number}.png,{'light' if number % 2 else 'dark'}")
    (project / "table.csv").write_text("\n".join([*rows, ""]))
    return ["table.csv", "--model", "mlp", *SHORT[2:]]


def parallel_text(project: Path) -> list[str]:
    (project / "a.en").write_text("red old\nblue new\n" * 10)
    (project / "a.de").write_text("rot alt\nblau neu\n" * 10)
    return ["a.en", "a.de", "--size", "nano", *SHORT[2:]]


def word_vectors(project: Path) -> list[str]:
    (project / "a.csv").write_text("text,label\n" + "red old,good\nblue new,bad\n" * 10)
    (project / "vectors.txt").write_text("red 1 2\nblue 2 1\nold 1 1\nsky 0 1\n")
    return ["a.csv", "--word-vectors", "vectors.txt", "--model", "bag", *SHORT[2:]]


def another_model(project: Path) -> list[str]:
    (project / "a.csv").write_text("text,label\n" + "red old,good\nblue new,bad\n" * 10)
    fine("train", "a.csv", "--model", "bag", *SHORT[2:], "--out", "start")
    return ["a.csv", "--init", "start", *SHORT[2:]]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [folder_of_classes, pictures_in_a_table, parallel_text, word_vectors, another_model],
    ids=lambda one: one.__name__,
)
def test_data_of_every_kind_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], list[str]]
) -> None:
    project, moved = tmp_path / "project", tmp_path / "moved"
    project.mkdir()
    monkeypatch.chdir(project)
    command = ["train", *made(project)]
    begun = [*command, "--save-every", 2]
    assert stopped(monkeypatch, "first-batch:raise", *begun, "--out", "early")
    fine(*command, "--out", "run")
    project.rename(moved)
    monkeypatch.chdir("/")
    elsewhere = [str(moved / one) if (moved / one).exists() else one for one in command[1:]]
    assert "done after 4 steps" in fine("train", "--out", moved / "early")
    assert "done after 6 steps" in fine("train", "--out", moved / "run", "--steps", 6)
    at = elsewhere.index("4")
    assert "done after 8 steps" in fine("train", *elsewhere[:at], "8", *elsewhere[at + 1 :], "--out", moved / "run")
    assert "examples of the dev set" in fine("evaluate", moved / "run")


def test_a_run_that_read_its_data_elsewhere_knows_the_new_place(project: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (project / "data/reviews.csv").rename(tmp_path / "store/again.csv")
    assert isinstance(seqloom_("evaluate", project / "run").exception, RejectedError)
    fine("train", tmp_path / "store/again.csv", "--out", project / "run", "--steps", 5)
    assert "6 examples" in fine("evaluate", project / "run")


def test_a_copied_project_reads_its_own_data(project: Path, trained: Path) -> None:
    shutil.copytree(project, trained)  # where training was: both places hold a file
    try:
        write_reviews(trained / "data/reviews.csv", 30)
        said = fine("evaluate", project / "run")
        assert "6 examples of the dev set" in said and "data:" not in said
    finally:
        shutil.rmtree(trained)


def test_of_two_files_the_one_that_training_read_is_taken_and_told(project: Path, trained: Path) -> None:
    shutil.copytree(project, trained)
    try:
        write_reviews(project / "data/reviews.csv", 30)
        said = fine("evaluate", project / "run")
        assert "6 examples of the dev set" in said
        found = f"{trained}/data/reviews.csv, because {project}/data/reviews.csv has other contents"
        assert f"data: reading {found}" in said
    finally:
        shutil.rmtree(trained)


def test_a_file_beside_the_run_that_training_never_read_is_told(project: Path) -> None:
    write_reviews(project / "data/reviews.csv", 30)
    said = fine("evaluate", project / "run")
    assert f"data: {project}/data/reviews.csv has other contents than the file that training read" in said


def test_a_run_folder_that_moved_alone_finds_its_data_and_says_where(project: Path, tmp_path: Path) -> None:
    fine("train", "--out", project / "run", "--steps", 5)  # here its data is known by its full path
    (tmp_path / "far/away").mkdir(parents=True)
    (project / "run").rename(tmp_path / "far/away/run")
    said = fine("evaluate", tmp_path / "far/away/run")
    assert "6 examples" in said and f"data: reading {project}/data/reviews.csv, because " in said
    assert f"{tmp_path}/far/away/data/reviews.csv does not exist" in said


def test_a_run_folder_without_places_is_read_as_before(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "run" / RunFile.PATHS).unlink()
    assert isinstance(seqloom_("evaluate", project / "run").exception, RejectedError)
    monkeypatch.chdir(project)
    assert "6 examples" in fine("evaluate", "run")
    fine("train", "data/reviews.csv", "--out", "run", "--steps", 5)
    monkeypatch.chdir("/")
    assert "6 examples" in fine("evaluate", project / "run")


def test_a_config_of_an_earlier_version_has_the_strict_rule(project: Path) -> None:
    config = project / "run/config.toml"
    text = config.read_text()
    start = text.index("[data.bad_rows]")
    config.write_text(text[:start] + text[text.index("[", start + 1) :])
    assert seqloom.load(project / "run").run.data.bad_rows == BadRows()
    assert "6 examples" in fine("evaluate", project / "run", "--skip-bad-rows", "--max-bad-rows", "20%")
    fine("train", "--out", project / "run", "--steps", 5, "--skip-bad-rows", "--max-bad-rows", "20%")
    assert "6 examples" in fine("evaluate", project / "run")


def test_the_test_file_stays_sealed_by_whatever_name_it_is_given(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in ((project / "data", "test.csv"), (Path("/"), str(project / "data/test.csv"))):
        monkeypatch.chdir(folder)
        refused = seqloom_("evaluate", project / "run", name)
        assert isinstance(refused.exception, ConfigError) and "is the test set" in str(refused.exception)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--delimiter", ","], "--delimiter was ; and is now ,"),
        (["--target", "id"], "--target was stars and is now id"),
        (
            ["--dev-size", "20%", "--test-size", "20%"],
            "--dev-size was 0.1 and is now 0.2.*--test-size was 0.0 and is now 0.2|--dev-size was 0.1 and is now 0.2",
        ),
        (["--test", "{data}/reviews.csv"], "the same file is given for train and for test"),
    ],
)
def test_what_is_asked_for_otherwise_is_still_refused_by_its_name(project: Path, options: list[str], told: str) -> None:
    given = [one.replace("{data}", str(project / "data")) for one in options]
    refused = seqloom_("train", project / "data/reviews.csv", *given, "--out", project / "run", "--steps", 9)
    assert refused.exit_code != 0
    with pytest.raises(type(refused.exception), match=told):  # type: ignore[arg-type]
        raise refused.exception  # type: ignore[misc]


def test_the_command_for_a_new_folder_says_what_the_run_remembers(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    asked = ["train", "data/reviews.csv", *SHORT, "--seed", "3", "--out", "run"]
    refused = seqloom_(*asked).exception
    assert isinstance(refused, ConfigError) and "--seed was 0 and is now 3" in refused.problem
    _, command, _ = refused.fix.split("`")
    assert "--delimiter ';'" in command and "--skip-bad-rows --max-bad-rows 20%" in command
    fine(*shlex.split(command)[1:])
    before, now = (seqloom.load(name).run for name in ("run", "run-2"))
    assert now.data == before.data and now.training.seed == 3


def test_inspect_reads_over_as_many_bad_rows_as_it_is_told(project: Path) -> None:
    write_reviews(project / "few.csv", 6)
    look = ["inspect", project / "run", "--data", project / "few.csv"]
    refused = seqloom_(*look).exception
    assert isinstance(refused, RejectedError) and "--max-bad-rows allows 20%" in str(refused)
    assert "2 bad rows skipped" in fine(*look, "--max-bad-rows", "30%")
    assert isinstance(seqloom_(*look, "--no-skip-bad-rows").exception, RejectedError)


def test_a_model_that_is_solved_is_refused_several_processes_before_any_starts(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.training.launcher.launch", lambda *_, **__: pytest.fail("processes were started"))
    data = [project / "data/reviews.csv", *TOLD]
    for asked in (["--model", "linear"], ["--optimizer", "newton"]):
        refused = seqloom_("train", *data, *asked, "--processes", 2, "--out", project / "new").exception
        assert isinstance(refused, ConfigError) and "newton runs in one process, but --processes is 2" in str(refused)
    with pytest.raises(pytest.fail.Exception):  # with steps of batches it may be in several
        raise seqloom_(
            "train", *data, "--model", "linear", "--lr", 0.1, "--processes", 2, "--out", project / "new"
        ).exception or ConfigError("none", fix="")


def test_other_data_is_refused_with_both_files(project: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("text,label\n" + "red,a\nblue,b\n" * 20)
    refused = seqloom_("train", tmp_path / "b.csv", "--out", project / "run", "--steps", 9)
    assert isinstance(refused.exception, ConfigError)
    assert "contains a different run: the file data/reviews.csv belongs to the run; " in str(refused.exception)
    assert "b.csv does not" in str(refused.exception)
    write_reviews(project / "data/reviews.csv", 61)
    refused = seqloom_("train", project / "data/reviews.csv", "--out", project / "run", "--steps", 9)
    assert re.search(r"file data/reviews.csv was [0-9,]+ bytes, sha256 [0-9a-f]{12} and", str(refused.exception))


# Other files


def test_another_file_is_judged_as_training_read_its_own(project: Path) -> None:
    write_reviews(project / "other.csv", 12)
    said = fine("evaluate", project / "run", project / "other.csv", "--max-bad-rows", "50%")
    assert "12 examples of" in said
    assert f"reads {project}/other.csv as this run did: csv, delimiter ';', input review, target stars" in said


def test_what_is_said_about_another_file_wins(project: Path) -> None:
    write_reviews(project / "other.csv", 12, "review;mark;id", broken=False)
    told = ["--target", "mark"]
    assert "as this run did: csv, delimiter ';', input review\n" in fine(
        "evaluate", project / "run", project / "other.csv", *told
    )
    text = (project / "other.csv").read_text().replace(";", "|")
    (project / "other.csv").write_text(text)
    said = fine("evaluate", project / "run", project / "other.csv", *told, "--delimiter", "|")
    assert "12 examples" in said and "as this run did: csv, input review\n" in said


def test_a_file_of_another_format_is_read_by_its_own_rules(project: Path) -> None:
    rows = [{"review": "red old", "stars": "good"}, {"review": "blue", "stars": "bad"}]
    (project / "other.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = fine("evaluate", project / "run", project / "other.jsonl")
    assert "2 examples" in said and "--delimiter" not in said


def test_predict_reads_as_training_did(project: Path) -> None:
    (project / "inputs.csv").write_text("id;review\n1;red old\n2;blue\n")
    done = seqloom_("predict", project / "run", project / "inputs.csv", "--with-input")
    assert done.exit_code == 0 and done.stderr.startswith(
        f"reads {project}/inputs.csv as this run did: csv, delimiter ';', input review\n"
    )
    assert [json.loads(line)["input"] for line in done.stdout.splitlines()] == ["red old", "blue"]
    (project / "inputs.csv").write_text("id,review\n1,red old\n2,blue\n")
    assert fine("predict", project / "run", project / "inputs.csv", "--delimiter", ",").count('"label"') == 2


def test_lines_of_text_are_asked_without_the_template_that_names_their_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("good: red old\nbad: blue\n" * 20, encoding="latin-1")
    told = ["--template", "{label}: {text}", "--encoding", "latin-1"]
    fine("train", "train.txt", *told, *SHORT, "--out", "run")
    Path("labeled.txt").write_text("good: caf\xe9\nbad: blue\n", encoding="latin-1")
    said = fine("evaluate", "run", "labeled.txt")
    assert (
        "2 examples" in said and "text, encoding latin-1, template '{label}: {text}', input text, target label" in said
    )
    Path("plain.txt").write_text("caf\xe9 red\nblue\n", encoding="latin-1")
    done = seqloom_("predict", "run", "plain.txt", "--with-input")
    assert [json.loads(line)["input"] for line in done.stdout.splitlines()] == ["caf\xe9 red", "blue"]
    assert done.stderr == "reads plain.txt as this run did: text, encoding latin-1\n"


# Runs that were stopped before they kept anything


def stopped(monkeypatch: pytest.MonkeyPatch, place: str, *arguments: Any) -> bool:
    """Whether a command came to a place, at which it died."""
    with monkeypatch.context() as patched:
        patched.setenv("SEQLOOM_FAIL", place)
        disk._asked.cache_clear()
        done = seqloom_(*arguments)
    disk._asked.cache_clear()
    return isinstance(done.exception, disk.InjectedError)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("place", ["vocabulary-half", "file-new", "after-rename", "first-batch", "metrics-half"])
def test_a_run_that_was_stopped_before_it_kept_anything_starts_again_with_the_same_command_and_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "a.csv", broken=False)
    (tmp_path / "b.csv").write_text("text,label\n" + "red,a\nblue,b\ngreen,c\n" * 20)
    first = ["train", "a.csv", "--delimiter", ";", "--input", "review", "--target", "stars", *SHORT, "--save-every", 2]
    other = ["train", "b.csv", "--model", "bag", "--steps", 4, "--device", "cpu", "--lr", 0.5]
    for number, command in enumerate((first, other)):
        fine(*command, "--out", f"whole-{number}")
    struck = 0
    for time, (number, command) in itertools.product(range(1, 8), enumerate((first, other))):
        run = tmp_path / f"run-{time}-{number}"
        if not stopped(monkeypatch, f"{place}:raise:{time}", *first, "--out", run) or has_results(run):
            break
        struck += 1
        said = fine(*command, "--out", run)
        assert sums(run) == sums(tmp_path / f"whole-{number}")
        assert number or "begins in its place" not in said
    assert struck >= 2


def test_a_run_that_kept_something_is_not_replaced(project: Path) -> None:
    refused = seqloom_("train", "--out", project / "run", "--steps", 5, "--skip-bad-rows")
    assert refused.exit_code == 0
    refused = seqloom_("train", project / "data/reviews.csv", "--out", project / "run", "--clip-norm", 0.5)
    assert isinstance(refused.exception, ConfigError)
    assert "contains a different run: --clip-norm was" in str(refused.exception)
