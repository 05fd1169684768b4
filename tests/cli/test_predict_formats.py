"""The forms of the answers of `seqloom predict`, and rows that have none: every input has its line, whatever it is."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import seqloom
from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.cli.terminal import SOME_BAD
from seqloom.data.problems import Place, Problem
from seqloom.errors import ConfigError, RejectedError
from seqloom.inference.prediction import LineLedger, _merged

TEXTS = ["good", "a bad film", "bad"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reviews")
    return make_run(place / "run", **make_reviews(place))


def predict(*arguments: object, given: str | bytes | None = None) -> Result:
    done = CliRunner().invoke(app, ["predict", *map(str, arguments), "--device", "cpu"], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_table_and_plain_text_say_what_the_objects_say(run: Path) -> None:
    asked = "\n".join(TEXTS) + "\n"
    as_objects = objects(predict(run, "-", given=asked).stdout)
    table = list(csv.DictReader(predict(run, "-", "--output-format", "csv", given=asked).stdout.splitlines()))
    assert predict(run, "-", "--output-format", "text", given=asked).stdout.split() == [
        one["label"] for one in as_objects
    ]
    for row, one in zip(table, as_objects, strict=True):
        assert (int(row["line"]), row["label"]) == (one["line"], one["label"])
        assert {name: float(row[f"scores.{name}"]) for name in one["scores"]} == one["scores"]


def test_ids_are_a_column_also_if_the_first_one_is_empty(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id,text\n,good\nb,bad\n")
    table = predict(run, tmp_path / "new.csv", "--output-format", "csv").stdout.splitlines()
    assert [one["id"] for one in csv.DictReader(table)] == ["", "b"]


@pytest.mark.parametrize("rule", ["--no-skip-bad-rows", "--skip-bad-rows"])
def test_a_table_has_a_column_for_errors_only_where_bad_rows_are_told(run: Path, rule: str) -> None:
    head = predict(run, "-", "--output-format", "csv", rule, given="good\n").stdout.splitlines()[0]
    assert head.startswith("line,label,") and head.endswith(",error") == (rule == "--skip-bad-rows")


@pytest.mark.parametrize(("name", "begins"), [("a.jsonl", "{"), ("a.csv", "line,label,"), ("a.txt", ("good", "bad"))])
def test_the_name_of_the_file_decides_the_form(run: Path, tmp_path: Path, name: str, begins: str) -> None:
    predict(run, "-", "-o", tmp_path / name, given="good\n")
    assert (tmp_path / name).read_text().startswith(begins)


BAD = '{"text": "good"}\n{"text": ""}\n{"text": 7}\n{"text": "bad"}\nnonsense\n'


@pytest.mark.parametrize("source", ["a file", "standard input"])
def test_with_skip_the_rest_is_answered_and_every_bad_row_has_its_line(run: Path, tmp_path: Path, source: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(BAD)
    asked = (run, path) if source == "a file" else (run, "-", "--format", "jsonl")
    done = predict(*asked, "--skip-bad-rows", given=BAD)
    found = objects(done.stdout)
    assert [one["line"] for one in found] == [1, 2, 3, 4, 5]
    assert [one.get("error", "")[:14] for one in found] == [
        "",
        "row.empty_text",
        "type.text: exp",
        "",
        "json.syntax: e",
    ]
    assert done.exit_code == SOME_BAD and "3 rows could not be predicted" in done.stderr


@pytest.mark.parametrize("form", ["csv", "text"])
def test_a_bad_row_has_its_line_in_every_form(run: Path, form: str) -> None:
    given = '{"text": ""}\n{"text": "good"}\n'
    done = predict(run, "-", "--format", "jsonl", "--skip-bad-rows", "--output-format", form, given=given)
    lines = done.stdout.splitlines()
    assert len(lines) == (3 if form == "csv" else 2)
    assert "row.empty_text: the text is empty" in lines[-2] and "error" not in lines[-1]


def test_a_table_without_one_answer_still_says_why(run: Path) -> None:
    done = predict(run, "-", "--format", "jsonl", "--skip-bad-rows", "--output-format", "csv", given='{"text": ""}\n')
    assert done.stdout.splitlines() == ["line,error", "1,row.empty_text: the text is empty"]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "-"])
def test_a_line_that_is_no_utf8_spoils_itself_alone(run: Path, tmp_path: Path, name: str) -> None:
    lines = [b"good", b"b\xffd", b"bad"]
    data = b"\n".join(b'{"text": "' + line + b'"}' if name == "a.jsonl" else line for line in lines) + b"\n"
    (tmp_path / "a").with_suffix(Path(name).suffix or ".none").write_bytes(data)
    source = name if name == "-" else tmp_path / name
    done = predict(run, source, "--skip-bad-rows", given=data)
    found = objects(done.stdout)
    assert ["label" in one for one in found] == [True, False, True] and "text.blank" not in done.stderr
    assert found[1]["line"] == 2 and found[1]["error"].startswith("enc.utf8: 0xFF is not UTF-8")


@pytest.mark.parametrize(
    ("text", "options", "read"),
    [
        ("text,review\ngood,bad\n", (), None),  # as in training
        ("whatever\ngood\n", (), None),  # there is nothing else
        ("src,review\ngood,bad\n", ("--input", "src"), None),  # as was asked for
        ("src,review\ngood,bad\n", (), "review"),
        ("tokens,tags,src\na,b,good\n", (), "src"),
    ],
)
def test_another_column_than_training_read_is_named(
    run: Path, tmp_path: Path, text: str, options: tuple[str, ...], read: str | None
) -> None:
    (tmp_path / "a.csv").write_text(text)
    told = predict(run, tmp_path / "a.csv", *options).stderr
    assert ("data.another_column" in told) == (read is not None)
    assert read is None or f"reading '{read}', but training read 'text'" in told


def test_a_file_without_bad_rows_ends_with_0(run: Path) -> None:
    assert predict(run, "-", "--skip-bad-rows", given="good\n").exit_code == 0


@settings(max_examples=30)
@given(st.lists(st.sampled_from([True, False, None]), max_size=12))
def test_answers_bad_rows_and_blank_lines_come_in_the_order_of_their_lines(good: list[bool | None]) -> None:
    ledger, answered = LineLedger(), []
    for line, fine in enumerate(good, 1):
        place = Place("a", line)
        if fine is None:
            ledger.blank_line(place)
        elif fine:
            ledger.rows += 1
            answered.append((seqloom.data.schema.Example("x", None, "", place), None))
        else:
            ledger.bad_row("code", "text", place)
    merged = _merged(answered, ledger, 0)  # type: ignore[arg-type]
    lines = [one.place.line if isinstance(one, Problem) else one[0].place.line for one in merged]
    assert lines == list(range(1, len(good) + 1))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(["good", "bad film", "", '"', "ä,b"]), min_size=1, max_size=6))
def test_no_row_of_a_file_is_dropped(run: Path, tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = objects(predict(run, path, "--skip-bad-rows").stdout)
    assert [one["line"] for one in found] == list(range(1, len(texts) + 1))
    assert ["error" in one for one in found] == [not text for text in texts]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_bad_rows_keep_their_places_over_many_windows(
    run: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.inference.prediction.BLOCK_ROWS", 3)
    texts = ["" if number % 4 == 1 else "bad" for number in range(14)]
    rows = ["id,text", *(f"{number},{text}" for number, text in enumerate(texts))]
    if form == "jsonl":
        rows = [json.dumps({"text": text}) for text in texts]
    (tmp_path / f"a.{form}").write_text("\n".join(rows) + "\n")
    found = objects(predict(run, tmp_path / f"a.{form}", "--skip-bad-rows").stdout)
    first = 2 if form == "csv" else 1
    assert [(one["line"], "error" in one) for one in found] == [(at, not text) for at, text in enumerate(texts, first)]


# --- texts beyond the last position ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model has learned positions for a few words only."""
    place = tmp_path_factory.mktemp("short")
    return make_run(place / "run", "encoder", encoder={"position": "learned", "max_length": 4}, **make_reviews(place))


def test_a_text_beyond_the_last_position_is_refused_with_its_place(short: Path) -> None:
    with pytest.raises(
        RejectedError,
        match=r"standard input:2: seq\.too_long: the input has 5 tokens or steps, .* only 4 learned positions",
    ):
        predict(short, "-", given="good\na a a a a\n")
    with pytest.raises(RejectedError, match=r"inputs:1: seq\.too_long"):
        seqloom.load(short).predict(["a a a a a"])


def test_with_skip_the_texts_that_fit_are_answered(short: Path) -> None:
    found = objects(predict(short, "-", "--skip-bad-rows", given="good\na a a a a\na a a a\n").stdout)
    assert ["label" in one for one in found] == [True, False, True]
    text = predict(short, "-", "--skip-bad-rows", "--output-format", "text", given="a a a a a\n\ngood\n").stdout
    assert [line[:7] for line in text.split("\n")] == ["(error:", "", found[0]["label"], ""]


def test_no_such_text_can_be_judged_either(short: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\ngood,good\na a a a a,bad\n")
    with pytest.raises(RejectedError, match=r"a\.csv:3: seq\.too_long"):
        seqloom.load(short).evaluate(tmp_path / "a.csv")


def test_a_value_from_python_is_refused_without_a_word_about_flags(short: Path) -> None:
    with pytest.raises(RejectedError) as caught:
        seqloom.load(short).predict([""])
    assert "inputs:1: row.empty_text: the text is empty. Fix: fill it in." in str(caught.value)
    assert "--" not in str(caught.value)


# --- rows that are steps ---------------------------------------------------------------------------------------------

STEPS = "run,x,y,state\n7,0.1,0.2,a\n7,0.3,0.1,a\n8,0.2,0.0,b\n9,1,1,a\n9,0,0,a\n"


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("steps")
    (place / "train.csv").write_text(STEPS)
    (place / "dev.csv").write_text(STEPS)
    columns = {"input": ("x", "y"), "target": ("state",), "sequence": "run", "task": "classify"}
    return make_run(place / "run", "gru", train=(str(place / "train.csv"),), dev=(str(place / "dev.csv"),), **columns)


def test_rows_that_share_a_column_are_one_sequence(walker: Path, tmp_path: Path) -> None:
    (tmp_path / "as.csv").write_text("run,x,y\n1,0.1,0.2\n1,0.3,0.1\n2,1,1\n")
    (tmp_path / "other.csv").write_text("walk,x,y\n1,0.1,0.2\n1,0.3,0.1\n2,1,1\n")
    usual = objects(predict(walker, tmp_path / "as.csv").stdout)
    named = objects(predict(walker, tmp_path / "other.csv", "--sequence", "walk").stdout)
    assert usual == named and [(one["id"], one["line"]) for one in usual] == [("1", 2), ("2", 4)]
    alone = seqloom.load(walker).predict([[[0.1, 0.2], [0.3, 0.1]]])[0].to_json()["scores"]
    assert usual[0]["scores"] == pytest.approx(alone, abs=1e-5)


def test_steps_without_their_column_are_not_taken_for_sequences(walker: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,1\n")
    with pytest.raises(RejectedError, match="the model reads vectors; no column has a known name"):
        predict(walker, tmp_path / "a.csv")
    with pytest.raises(ConfigError, match="no column 'walk'"):
        predict(walker, tmp_path / "a.csv", "--sequence", "walk")


# --- answers as they come --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whoever_writes_one_line_and_waits_gets_its_answer(run: Path) -> None:
    command = [sys.executable, "-m", "seqloom", "predict", str(run), "-", "--device", "cpu"]
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "env": os.environ | {"OMP_NUM_THREADS": "1"},
    }
    with subprocess.Popen(command, **pipes) as asked:  # type: ignore[call-overload]
        for number, text in enumerate(TEXTS, 1):
            asked.stdin.write(text + "\n")
            asked.stdin.flush()
            assert json.loads(asked.stdout.readline())["line"] == number
        asked.stdin.close()
        assert asked.wait() == 0
