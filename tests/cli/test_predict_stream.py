"""`seqloom predict --stream`: one endless sequence, an answer at each step, as soon as its line has come."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import seqloom
from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.config.data import ReadingConfig
from seqloom.config.tokenizers import CharactersConfig
from seqloom.errors import ConfigError, RejectedError

WARNING = "the model was not trained to continue after the end of a line; train it with --batching streams"
STEPS = [[0.5, 1.0], [0.25, -1.0], [2.0, 0.0]]


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lm")
    (place / "train.txt").write_text("the cat sat on a mat\na dog ran far\n" * 20)
    return make_run(place / "run", "gru", train=(str(place / "train.txt"),), task="lm")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger of rows of two numbers."""
    place = tmp_path_factory.mktemp("tagger")
    rows = [
        {"vectors": STEPS[: 2 + number % 2], "tags": ["low", "high", "low"][: 2 + number % 2]} for number in range(9)
    ]
    (place / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return make_run(place / "run", "gru", train=(str(place / "train.jsonl"),))


def invoked(run: Path, *arguments: str, given: str | bytes) -> Result:
    arguments = ("predict", str(run), "-", "--stream", "--device", "cpu", *arguments)
    return CliRunner().invoke(app, arguments, input=given)


def streamed(run: Path, *arguments: str, given: str | bytes) -> list[dict]:
    done = invoked(run, *arguments, given=given)
    if done.exception is not None:
        raise done.exception
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_language_model_answers_at_each_token_and_at_the_end_of_each_line(lm: Path) -> None:
    found = streamed(lm, given="the cat\n\na dog\n")
    assert [(one["line"], one["token"]) for one in found] == [
        *((1, word) for word in ("the", "cat", "<end>")),
        *((3, word) for word in ("a", "dog", "<end>")),
    ]
    assert all(one["loss"] > 0 and len(one["next"]) == 3 for one in found)
    assert [one["probability"] for one in found[0]["next"]] == sorted(
        (one["probability"] for one in found[0]["next"]), reverse=True
    )


def test_python_gives_the_same_answers(lm: Path) -> None:
    found = streamed(lm, given="the cat\na dog\n")
    same = [one.to_json() for one in seqloom.load(lm).predict_stream(["the cat", "a dog\n"])]
    assert [one["loss"] for one in found] == [pytest.approx(one["loss"], rel=1e-4) for one in same]
    assert [one["token"] for one in found] == [one["token"] for one in same]
    assert list(map(str, seqloom.load(lm).predict_stream("the cat\na dog\n"))) == list(
        map(str, seqloom.load(lm).predict_stream(["the cat", "a dog"]))
    )


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("0.5, 1.0\n0.25,-1\n2 0\n", ()),
        ("0.5\t1e0\n\n0.25; -1.0\n[2, 0.0]\n", ()),
        ('{"vectors": [[0.5, 1.0], [0.25, -1.0]]}\n{"vectors": [[2.0, 0.0]]}\n', ("--format", "jsonl")),
    ],
)
def test_rows_of_numbers_are_steps(tagger: Path, text: str, arguments: tuple[str, ...]) -> None:
    found = streamed(tagger, *arguments, given=text)
    whole = seqloom.load(tagger).predict([STEPS])[0]
    assert [one["tag"] for one in found] == list(whole.tags)
    arrays = [np.array(STEPS), np.array(STEPS, np.float32)[None, 0], STEPS, iter(STEPS)]
    for given in arrays[:1] + arrays[2:]:
        assert [one.prediction.tag for one in seqloom.load(tagger).predict_stream(given)] == list(whole.tags)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1, 2, 3", "array.width: 3 numbers in a step, but the model reads 2"),
        ("1", "array.width: 1 number in a step, but the model reads 2"),
        ("nan, 1", "type.number: expected a number, found 'nan'"),
        ("1, two", "type.number: expected a number, found 'two'"),
        ("[1, null]", "array.shape: expected one list of numbers"),
        ("1, 1e99", "type.number"),
    ],
)
@pytest.mark.parametrize("before", [1, 3])
def test_a_bad_row_is_one_error_with_its_line_after_the_answers_before_it(
    tagger: Path, row: str, message: str, before: int
) -> None:
    done = invoked(tagger, given="0.5, 1\n" * before + f"{row}\n0.5, 1\n")
    assert isinstance(done.exception, RejectedError)
    assert str(done.exception).startswith(f"standard input:{before + 1}: ")
    assert message in str(done.exception)
    assert len(done.stdout.splitlines()) == before


def test_bytes_that_are_no_text_and_lines_without_an_end_are_one_error(
    lm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = invoked(lm, given=b"the cat\n\xff\xfe\nthe\n")
    assert "standard input:2:1: enc.utf8" in str(done.exception)
    assert len(done.stdout.splitlines()) == 3
    monkeypatch.setattr("seqloom.data.inputs.LONGEST_LINE", 1_000)
    done = invoked(lm, given="the cat\n" + "a" * 2_000)
    assert "standard input:2: line.too_long" in str(done.exception)


def test_tables_have_one_header_and_text_shows_tokens(lm: Path) -> None:
    table = invoked(lm, "--output-format", "csv", "--batch-tokens", "1", given="the cat\na dog\n").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["token"] for row in rows] == ["the", "cat", "<end>", "a", "dog", "<end>"]
    shown = invoked(lm, "--output-format", "text", given="the cat\n").stdout.splitlines()
    assert [line.split("\t")[0] for line in shown] == ["the", "cat", "<end>"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "a.jsonl"), "a stream has no end. Fix: use > FILE"),
        (("--with-input",), "--with-input"),
        (("--skip-bad-rows",), "all later predictions"),
        (("--sequence", "a"), "--sequence"),
        (("--format", "csv"), "csv cannot be read from standard input"),
    ],
)
def test_options_without_a_meaning_are_refused(lm: Path, arguments: tuple[str, ...], message: str) -> None:
    done = invoked(lm, *arguments, given="the cat\n")
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
    assert done.stdout == ""


def test_a_model_that_sees_both_sides_is_refused_with_the_reason(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "cnn", **make_reviews(tmp_path))
    done = invoked(run, given="a good film\n")
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == (
        "a stream is read from left to right, but this model also reads later elements (Convolution). "
        "Fix: train a model that reads from left to right: --model rnn, gru or lstm."
    )


def test_the_text_of_a_classifier_goes_on_over_its_lines(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "gru", **make_reviews(tmp_path))
    found = streamed(run, given="a good\n\nfilm\n")
    assert [one["token"] for one in found] == ["a", "good", "film"]
    texts = ["a", "a good", "a good film"]
    wanted = [one.to_json()["scores"] for one in seqloom.load(run).predict(texts)]
    assert [one["scores"] for one in found] == [pytest.approx(one, rel=1e-4) for one in wanted]


@pytest.mark.parametrize("unit", ["file", "paragraph"])
def test_a_model_of_whole_files_reads_lines_as_one_text(tmp_path: Path, unit: str) -> None:
    (tmp_path / "train.txt").write_text("the cat\nsat on\n\na mat\n\nand the dog\nran far\n\n" * 9)
    reading = ReadingConfig(unit=unit)
    tokenizer = CharactersConfig()
    run = make_run(
        tmp_path / "run", "gru", tokenizer=tokenizer, train=(str(tmp_path / "train.txt"),), task="lm", reading=reading
    )
    text = "the cat\n\nsat"
    found = streamed(run, given=text)
    assert "".join(one["token"] for one in found) == text
    assert [one["line"] for one in found] == [1] * 8 + [2] + [3] * 3
    objects = streamed(run, "--format", "jsonl", given='{"text": "the cat"}\n{"text": "sat"}\n')
    assert "".join(one["token"] for one in objects) == "the cat\nsat\n"


def test_a_file_is_read_like_standard_input(lm: Path, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("the cat\na dog\n")
    arguments = ["predict", str(lm), str(tmp_path / "a.log"), "--stream", "--device", "cpu"]
    assert CliRunner().invoke(app, arguments).stdout == invoked(lm, given="the cat\na dog\n").stdout
    (tmp_path / "a.csv").write_text("text\nthe cat\n")
    for name, message in (("a.csv", "not from .csv"), ("b.log", "there is no file")):
        done = CliRunner().invoke(app, ["predict", str(lm), str(tmp_path / name), "--stream", "--device", "cpu"])
        assert isinstance(done.exception, ConfigError) and message in str(done.exception)


def test_only_a_language_model_that_never_read_on_after_a_line_is_warned_of(lm: Path, tagger: Path) -> None:
    assert invoked(lm, given="the cat\n").stderr.splitlines() == [WARNING]
    assert invoked(tagger, given="1, 2\n").stderr == ""
    config = lm / "config.toml"
    before = config.read_text()
    try:
        config.write_text(
            before.replace('[training.batching]\nkind = "by-length"', '[training.batching]\nkind = "streams"')
        )
        assert config.read_text() != before
        assert invoked(lm, given="the cat\n").stderr == ""
    finally:
        config.write_text(before)


@pytest.fixture
def process(lm: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, which waits for lines."""
    command = [sys.executable, "-m", "seqloom", "predict", str(lm), "-", "--stream", "--device", "cpu"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, bufsize=1, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as started:
        yield started
        started.kill()


def told(process: subprocess.Popen[str], line: str, count: int) -> list[str]:
    """The answers to a line, read before anything more is written."""
    assert process.stdin and process.stdout
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return [json.loads(process.stdout.readline())["token"] for _ in range(count)]


@pytest.mark.slow
def test_a_line_is_answered_before_the_next_one_and_ctrl_c_stops(process: subprocess.Popen[str]) -> None:
    assert told(process, "the cat", 3) == ["the", "cat", "<end>"]
    assert told(process, "a", 2) == ["a", "<end>"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped"
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_stream_without_an_error(process: subprocess.Popen[str]) -> None:
    assert told(process, "the cat", 3) == ["the", "cat", "<end>"]
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write("a dog\n" * 20)
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read().splitlines() == [WARNING]
