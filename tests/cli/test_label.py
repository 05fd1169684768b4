"""`seqloom label`: answers from standard input, a log that grows, and the same command again."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.cli.label import Chosen, Unknown, _answered, _show, answer_of
from seqloom.cli.terminal import Screen
from seqloom.errors import ConfigError, DurableError
from seqloom.events import finished
from seqloom.search.decisions import WritableDecisions
from seqloom.search.documents import TextFile
from seqloom.search.labeling import Labeling, start_labeling

KINDS = {"good": "a fine and good film", "bad": "an awful and bad film"}


def label(*arguments: object, given: str = "") -> Result:
    done = CliRunner().invoke(app, ["label", *map(str, arguments)], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def log_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = "".join(f"{text} of {number},{number}\n" for number in range(8) for text in KINDS.values())
    (tmp_path / "a.csv").write_text(f"text,n\n{rows}")
    return tmp_path / "a.csv"


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    rows = "".join(f"{text},{name}\n" for name, text in KINDS.items()) * 3
    (tmp_path / "examples.csv").write_text(f"text,label\n{rows}")
    return tmp_path / "examples.csv"


def test_answers_become_decisions_and_the_same_command_goes_on(file: Path, tmp_path: Path) -> None:
    log = tmp_path / "labels.jsonl"
    done = label(file, "--out", log, "--labels", "good,bad", given="good\n2\nb\ns\n")
    assert [one.get("label") for one in log_of(log)] == ["good", "bad", "bad", None]
    assert "3 rows labeled, 12 rows left" in done.stdout
    label(file, "--out", log, given="+so so\nu\nq\ngood\n")  # the labels are known by now, and nothing follows a q
    found = log_of(log)
    assert [one["kind"] for one in found[4:]] == ["label", "undo"] and found[4]["label"] == "so so"
    assert len({one["row"] for one in found[:5]}) == 5


def test_a_suggestion_is_accepted_by_an_empty_answer_and_logged_with_its_confidence(
    file: Path, examples: Path, tmp_path: Path
) -> None:
    log = tmp_path / "labels.jsonl"
    label(file, "--out", log, "--examples", examples, given="\n\n\n")
    for one in log_of(log):
        text = file.read_text().splitlines()[int(one["row"])]
        assert one["label"] == one["suggested"] and KINDS[one["label"]] in text and 0.5 < one["confidence"] < 1


def test_suggestions_are_accepted_in_bulk_taken_back_at_once_and_exported(
    file: Path, examples: Path, tmp_path: Path
) -> None:
    log, out = tmp_path / "labels.jsonl", tmp_path / "out.csv"
    options = (file, "--out", log, "--examples", examples)
    assert "16 suggestions accepted" in label(*options, "--accept-above", "0.6", "--export", out).stdout
    with out.open(newline="") as rows:
        export_columns = list(csv.DictReader(rows))
    assert len(export_columns) == 16 and all(KINDS[row["label"]] in row["text"] for row in export_columns)
    assert {row["labeled_by"] for row in export_columns} == {"model"}
    assert "undone: 16 decisions" in label(*options, "--undo").stdout
    assert "nothing to undo" in label(*options, "--undo").stdout
    again = tmp_path / "again.csv"
    assert "0 labeled rows" in label(*options, "--export", again, "--column", "kind").stdout
    assert again.read_text() == "text,n,kind,labeled_by\n"


def test_commands_are_explained_and_change_nothing(file: Path, tmp_path: Path) -> None:
    done = label(file, "--out", tmp_path / "log", "--labels", "good,bad", given="?\nu\n")
    assert done.stdout.count("Enter: accept the suggestion") == 1
    assert "nothing to undo" in done.stdout and "nothing to save" in done.stdout
    assert not (tmp_path / "log").exists()


def test_a_person_is_told_which_answer_means_nothing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = TextFile(file).read()
    log = WritableDecisions(tmp_path / "log", given.by_name)
    session = finished(start_labeling(given, log, labels=["good", "s"]))
    assert isinstance(session, Labeling)
    question = session.next()
    assert question is not None
    for typed in ("bogus", ""):
        assert _answered(session, question, answer_of(typed, session.labels), Screen())
    _show(session, question, Screen())
    shown = capsys.readouterr().out
    assert "'bogus' is not a label" in shown and "there is no suggestion yet" in shown
    assert "[1 good, 2 s; u undo, q quit, ? help]" in shown and not log.current


@pytest.mark.parametrize("typed", ["what", "7", ""])  # there is no suggestion yet, so nothing is accepted
def test_an_answer_of_a_file_that_means_nothing_ends_the_work_and_no_later_answer_slips(
    file: Path, tmp_path: Path, typed: str
) -> None:
    with pytest.raises(ConfigError, match=r"to row \d+ is not a label; earlier answers are saved"):
        label(file, "--out", tmp_path / "log", "--labels", "good,bad", given=f"good\n{typed}\nbad\n")
    assert [one["label"] for one in log_of(tmp_path / "log")] == ["good"]


@pytest.mark.parametrize(
    ("typed", "labels", "meant"),
    [
        ("1\n", ["0", "1"], Chosen("1")),
        ("1\n", ["good", "bad"], Chosen("good")),
        ("3\n", ["good", "bad"], Unknown("3")),
        ("go\n", ["good", "bad"], Chosen("good")),
        ("b\n", ["bad", "best"], Unknown("b")),
        ("s\n", ["good", "s"], Chosen("s")),
        (" u \n", ["good"], "undo"),
        ("+\n", ["good"], Unknown("+")),
        ("+ new \n", ["good"], Chosen("new", new=True)),
        ("+u\n", ["good"], Unknown("+u")),
    ],
)
def test_names_win_over_commands_and_commands_over_beginnings(typed: str, labels: list[str], meant: object) -> None:
    assert answer_of(typed, labels) == meant


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ((), "--labels good,bad"),
        (("--labels", "good,,bad"), "distinct names"),
        (("--labels", "good,good"), "distinct names"),
        (("--labels", "u,v"), "'u' is a command"),
        (("--target", "x", "--labels", "a,b"), "add --examples"),
        (("--labels", "a,b", "--accept-above", "0.9"), "nothing has been learned"),
        (("--labels", "a,b", "--export", "x.xlsx"), "cannot have this extension"),
        (("--labels", "a,b", "--export", "x.csv", "--column", "n"), "already has a column 'n'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_logged(
    file: Path, tmp_path: Path, options: tuple[str, ...], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        label(file, "--out", tmp_path / "log", *options)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("out", "match"), [("a.csv", "is the input file"), ("none/log", "does not exist"), ("", "is a folder")]
)
def test_a_log_that_cannot_be_is_refused(file: Path, out: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        label(file, "--out", file.parent / out, "--labels", "a,b")


def test_a_log_that_nobody_can_write_is_refused_before_the_first_question(file: Path, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DurableError, match="log cannot be written"):
        label(file, "--out", tmp_path / "log", "--labels", "a,b", given="a\n")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("options", [("--undo",), ("--export", "out.csv")])
def test_what_was_decided_is_taken_back_and_written_without_vectors(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    label(file, "--out", tmp_path / "log", "--labels", "good,bad", given="good\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seqloom.search.labeling.embed_texts", None)
    assert "1" in label(file, "--out", tmp_path / "log", "--model", "no such model", *options).stdout


def test_rows_without_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,n\na film,1\n,2\n  ,3\n\n")
    done = label(tmp_path / "a.csv", "--out", tmp_path / "log", "--labels", "good,bad", given="good\n")
    assert "2 rows have no text" in done.stdout and "1 blank line is not counted" in done.stdout
    assert "none left" in done.stdout


@pytest.mark.parametrize(
    ("export", "match"),
    [
        ("labels.jsonl", "is the label log"),
        ("link.jsonl", "is the label log"),
        ("examples.csv", "already exists"),
        ("a.csv", "is the input file"),
    ],
)
def test_an_export_replaces_nothing(file: Path, examples: Path, tmp_path: Path, export: str, match: str) -> None:
    log = tmp_path / "labels.jsonl"
    label(file, "--out", log, "--labels", "good,bad", given="good\n")
    (tmp_path / "link.jsonl").symlink_to(log)
    before = {path: path.read_bytes() for path in (file, examples, log)}
    with pytest.raises(ConfigError, match=match):
        label(file, "--out", log, "--examples", examples, "--export", tmp_path / export)
    assert {path: path.read_bytes() for path in before} == before


def test_a_log_that_is_yet_to_come_is_no_export_and_the_examples_are_no_log(file: Path, examples: Path) -> None:
    log = file.parent / "labels.jsonl"
    with pytest.raises(ConfigError, match="is the label log"):
        label(file, "--out", log, "--examples", examples, "--accept-above", "0.6", "--export", log)
    with pytest.raises(ConfigError, match="is the file of --examples"):
        label(file, "--out", examples, "--examples", examples)
    assert not log.exists()


def test_characters_that_disturb_a_terminal_are_written_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "red \x1b[31m text"}) + "\n")
    assert "\x1b" not in label(tmp_path / "a.jsonl", "--out", tmp_path / "log", "--labels", "a,b").stdout


@pytest.mark.slow
def test_a_model_makes_the_vectors(file: Path, examples: Path, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    run = make_run(tmp_path / "made" / "run", **make_reviews(tmp_path / "made"))
    options = (file, "--out", tmp_path / "log", "--examples", examples, "--suggest", "neighbors", "--device", "cpu")
    label(*options, "--model", run, given="\n")
    assert log_of(tmp_path / "log")[0]["suggested"] in KINDS
