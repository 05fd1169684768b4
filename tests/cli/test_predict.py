"""`seqloom predict`: one answer a line in the order of the inputs, whole or not at all."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.cli.terminal import exit_code_of
from seqloom.errors import ConfigError, DamagedError, DurableError, RejectedError, SeqloomError


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("reviews")
    return make_run(place / "run", **make_reviews(place))


def predict(*arguments: object, given: str | bytes | None = None) -> list[dict]:
    """The answers on standard output."""
    done = CliRunner().invoke(app, ["predict", *map(str, arguments), "--device", "cpu"], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_lines_of_standard_input_are_answered_in_order(run) -> None:
    found = predict(run, "-", given="a good film\n\nbad\n")
    assert [one["line"] for one in found] == [1, 3]  # a blank line is passed over, and nobody is put off by it
    assert {one["label"] for one in found} <= {"bad", "good"}
    assert [sum(one["scores"].values()) for one in found] == [pytest.approx(1, abs=1e-5)] * 2


def test_one_word_is_a_text_unless_it_is_a_file_or_looks_like_one(run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (wanted,) = predict(run, "-", given="good\n")
    assert predict(run, "good") == [wanted]
    done = CliRunner().invoke(app, ["predict", str(run), "good", "--device", "cpu"])
    assert "text: 'good', because there is no file of this name" in done.stderr
    for name in ("example.com", "films/good"):
        with pytest.raises(RejectedError, match=r"there is no such file.*is read from standard input: -"):
            predict(run, name)
    with pytest.raises(ConfigError, match="the input is empty"):
        predict(run, "")
    (tmp_path / "good").write_text("bad film\n")
    assert predict(run, "good", "--format", "text") == predict(run, "-", given="bad film\n")


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", "id,text,label\n7,good,x\n8,bad film,y\n", ()),
        ("a.tsv", "text\tother\ngood\t1\nbad film\t2\n", ()),
        ("a.csv", "what,why\ngood,1\nbad film,2\n", ("--input", "what")),
        ("a.csv", "whatever\ngood\nbad film\n", ()),
        ("a.jsonl", '{"text": "good"}\n{"text": "bad film"}\n', ()),
        ("a.txt", "good\nbad film\n", ()),
        ("a.dat", "good\nbad film\n", ("--format", "text")),
    ],
)
def test_every_format_gives_the_same_answers(run, tmp_path, name, text, options) -> None:
    (tmp_path / name).write_text(text)
    found = predict(run, tmp_path / name, *options)
    wanted = predict(run, "-", given="good\nbad film\n")
    assert [one["scores"] for one in found] == [pytest.approx(one["scores"]) for one in wanted]
    assert [one.get("id") for one in found] == (["7", "8"] if "id," in text else [None, None])


def test_the_output_file_holds_the_same_lines_and_nothing_is_printed(run, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("good\nbad film\n")
    printed = predict(run, tmp_path / "a.txt")
    assert predict(run, tmp_path / "a.txt", "-o", tmp_path / "out.jsonl") == []
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == printed


def test_many_windows_keep_the_order(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("seqloom.inference.prediction.BLOCK_ROWS", 7)
    texts = ["bad " * (number % 5 + 1) for number in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    found = predict(run, tmp_path / "a.txt", "--batch-tokens", "16")
    assert [one["line"] for one in found] == list(range(1, 51))
    assert [one["scores"] for one in found[5:]] == [pytest.approx(one["scores"], abs=1e-6) for one in found[:45]]


def test_a_bad_row_leaves_the_old_output_as_it_was(run, tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{"text": 7}\n')
    (tmp_path / "out.jsonl").write_text("old\n")
    with pytest.raises(RejectedError, match=r"a\.jsonl:2.*: type\.text: expected text, found number"):
        predict(run, tmp_path / "a.jsonl", "-o", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "old\n" and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.csv", "--input", "txt"), r"no column 'txt'; found 'body', 'title'"),
        (
            ("a.csv",),
            r"the model reads one text; no column has a known name\. The columns are 'body', 'title'.*--input NAME",
        ),
        (("a.csv", "--input", "body", "--input", "title"), r"the model reads one text; --input names 2"),
        (("a.csv", "-o", "a.csv"), r"is the input file"),
        (("aa.csv",), r"aa\.csv: file\.missing.*Did you mean a\.csv\?"),
        (("nope.csv",), r"nope\.csv: file\.missing: there is no such file\. Fix: check the path\.$"),
        (
            ("a.csv", "-o", "out.xlsx"),
            r"predictions are written as jsonl, csv or text, not as \.xlsx\. Fix: --out out\.jsonl",
        ),
        (("a.csv", "-o", "out.JSON"), r"not as \.JSON\. Fix: --out out\.jsonl"),
        (
            ("a.csv", "-o", "out.csv", "--output-format", "text"),
            r"predictions are written as text, not as \.csv\. Fix: --out out\.txt",
        ),
        (("a.csv", "--output-format", "xml"), r"--output-format 'xml'\. Fix: choose from jsonl, csv, text"),
        (("a.csv", "--sequence", "title"), r"--sequence is for vectors, but the model reads one text"),
        (("a.png",), r"a\.png: file\.format: this is a picture, but the model reads one text"),
        (("-", "--format", "csv"), r"csv cannot be read from standard input"),
        (("a.csv", "--device", "tpu"), r"--device 'tpu'. Fix: choose from auto, cpu, cuda, mps"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_the_cure(run, tmp_path, monkeypatch, arguments, said) -> None:
    (tmp_path / "a.csv").write_text("body,title\ngood,x\n")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["predict", str(run), *arguments])
    assert isinstance(done.exception, SeqloomError) and done.stdout == ""
    assert re.search(said, str(done.exception))


@pytest.mark.parametrize("name", ["out.jsonl", "out.ndjson", "out"])
def test_a_name_that_promises_no_other_format_is_taken(run, tmp_path, name) -> None:
    assert predict(run, "-", "-o", tmp_path / name, given="good\n") == []
    assert json.loads((tmp_path / name).read_text())["line"] == 1


def test_no_score_has_more_than_six_digits(run) -> None:
    found = predict(run, "-", given="good\nbad film\n")
    scores = [score for one in found for score in one["scores"].values()]
    assert all(score == float(f"{score:.6g}") for score in scores)


def test_without_rounding_a_score_would_have_more_digits(run, monkeypatch) -> None:
    monkeypatch.setattr("seqloom.cli.predictions.rounded_text", lambda value: value)
    found = predict(run, "-", given="good\nbad film\n")
    assert any(score != float(f"{score:.6g}") for one in found for score in one["scores"].values())


def test_the_input_stands_beside_its_answer_only_if_that_is_wanted(run) -> None:
    plain, repeated = (predict(run, "-", *more, given="a good film\n") for more in ((), ("--with-input",)))
    assert sorted(plain[0]) == ["label", "line", "scores"]
    assert repeated == [plain[0] | {"input": "a good film"}]


def test_the_code_of_a_warning_is_told_once_and_a_count_only_of_several(run) -> None:
    def told(given: str) -> str:
        return CliRunner().invoke(app, ["predict", str(run), "-", "--device", "cpu"], input=given).stderr

    assert told("good\n\n") == "standard input:2: text.blank: a blank line, skipped.\n"
    assert told("good\n\n\n") == "standard input:2: text.blank: a blank line, skipped. (2 times)\n"


@pytest.mark.parametrize(("terminal", "device"), [(False, "auto"), (True, "cpu"), (True, "auto")])
def test_the_device_is_told_to_people_who_left_its_choice_open(run, monkeypatch, terminal, device) -> None:
    monkeypatch.setattr("seqloom.cli.terminal.Screen.is_terminal", terminal)
    said = CliRunner().invoke(app, ["evaluate", str(run), "--device", device], env={"TERM": "dumb"}).stderr
    assert ("device: " in said) == (terminal and device == "auto")
    assert "as asked" not in said


def test_bytes_that_are_no_utf8_are_refused_with_their_place(run) -> None:
    with pytest.raises(RejectedError, match=r"standard input:2:2: enc\.utf8: 0xFF is not UTF-8"):
        predict(run, "-", given=b"good\nb\xffd\n")


def test_vectors_come_from_arrays(tmp_path) -> None:
    rows = [{"vectors": [[float(n), 2.0]], "label": "x" if n % 2 else "y"} for n in range(4)]
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {part: (str(tmp_path / f"{part}.jsonl"),) for part in ("train", "dev")}
    run = make_run(tmp_path / "run", "gru", **files)
    np.savez(tmp_path / "a.npz", x=np.ones((3, 5, 2), np.float32))
    assert len(predict(run, tmp_path / "a.npz")) == 3
    with pytest.raises(
        ConfigError, match=r"--with-input is for texts, but the model reads vectors\. Fix: leave it out"
    ):
        predict(run, tmp_path / "a.npz", "--with-input")
    with pytest.raises(ConfigError, match="standard input has lines of text, but the model reads vectors"):
        predict(run, "-", given="1\n")


def test_pictures_come_from_a_folder_and_from_one_file(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part in ("train", "dev"):
        for label in ("x", "y"):
            (tmp_path / part / label).mkdir(parents=True)
            for number in range(2):
                image.new("L", (8, 8), number * 9).save(tmp_path / part / label / f"{number}.png")
    run = make_run(tmp_path / "run", "mlp", **{part: (str(tmp_path / part),) for part in ("train", "dev")})
    found = predict(run, tmp_path / "train" / "x")
    assert [Path(one["file"]).name for one in found] == ["0.png", "1.png"]
    (alone,) = predict(run, tmp_path / "train" / "x" / "1.png")
    assert alone["scores"] == pytest.approx(found[1]["scores"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (FileNotFoundError(2, "x"), 2),
        (DamagedError("x"), 3),
        (OSError(28, "No space left on device"), 4),
        (DurableError("x"), 2),
    ],
)
def test_errors_have_their_exit_codes(error, code) -> None:
    assert exit_code_of(error) == code


def test_a_full_disk_behind_an_error_is_a_disk_error() -> None:
    error = DurableError("cannot write")
    error.__cause__ = OSError(28, "No space left on device")
    assert exit_code_of(error) == 4


@pytest.mark.slow
def test_a_damaged_model_ends_with_exit_code_3(run, tmp_path) -> None:
    weights = run / "model" / "model.safetensors"
    data = weights.read_bytes()
    try:
        weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        command = [sys.executable, "-m", "seqloom", "predict", str(run), "-"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, input="good\n", capture_output=True, text=True, check=False, env=environment)
    finally:
        weights.write_bytes(data)
    assert done.returncode == 3 and done.stdout == ""
    assert "model.safetensors: expected" in done.stderr and "Traceback" not in done.stderr
