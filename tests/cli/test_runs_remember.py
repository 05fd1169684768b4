"""Every verb that takes a run reads another file as the run read its own, and says so in one line."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import seqloom
from seqloom.cli import app
from seqloom.inference import model

pytestmark = pytest.mark.slow
REUSED = "as this run did: csv, delimiter ';', input review"


def output(*arguments: Any, typed: str = "") -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], input=typed)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on a file whose delimiter and columns were given, and another file like it."""
    folder = tmp_path_factory.mktemp("project")
    rows = "".join(f"{word} day {number};{number % 2}\n" for number in range(20) for word in ("good", "bad"))
    for name in ("train.csv", "new.csv"):
        (folder / name).write_text(f"review;stars\n{rows}")
    given = ["--delimiter", ";", "--input", "review", "--target", "stars"]
    short = ["--model", "bag", "--size", "nano", "--steps", 2, "--device", "cpu"]
    output("train", folder / "train.csv", *given, *short, "--out", folder / "run")
    return folder


VERBS = {
    "evaluate": ["evaluate", "{run}", "{file}"],
    "predict": ["predict", "{run}", "{file}"],
    "embed": ["embed", "{run}", "{file}", "--out", "{out}.npy"],
    "inspect": ["inspect", "{run}", "--data", "{file}"],
    "index": ["index", "{run}", "{file}", "--out", "{out}"],
    "dedupe": ["dedupe", "{file}", "--model", "{run}", "--out", "{out}.csv"],
    "label": ["label", "{file}", "--model", "{run}", "--labels", "a,b", "--out", "{out}.jsonl"],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore:.*not to embed:seqloom.errors.SeqloomWarning")
def test_a_file_is_read_as_the_run_read_its_own(project: Path, tmp_path: Path, verb: str) -> None:
    places = {"run": project / "run", "file": project / "new.csv", "out": tmp_path / "out"}
    command = [part.format(**places) for part in VERBS[verb]]
    shown = output(*command, typed="q\n")
    assert shown.count(f"reads {project / 'new.csv'} {REUSED}") == 1
    other = tmp_path / "other.csv"
    other.write_text((project / "new.csv").read_text().replace(";", "|"))
    command = [part.format(**places | {"file": other, "out": tmp_path / "second"}) for part in VERBS[verb]]
    assert REUSED not in output(*command, "--delimiter", "|", typed="q\n")  # an option wins


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore:.*not to embed:seqloom.errors.SeqloomWarning")
def test_the_command_that_cleans_a_file_says_how_every_verb_read_it_and_works(
    project: Path, tmp_path: Path, verb: str
) -> None:
    path = tmp_path / "mixed.csv"
    path.write_bytes((project / "new.csv").read_bytes() + "café;1\n".encode() + "naïve;0\n".encode("cp1252"))
    places = {"run": project / "run", "file": path, "out": tmp_path / "out"}
    refused = CliRunner().invoke(app, [part.format(**places) for part in VERBS[verb]], input="q\n")
    (command,) = re.findall("`seqloom (data clean [^`]*)`", str(refused.exception))
    assert "--delimiter ';'" in command and "--input review" in command
    assert command.endswith("--repeats keep"), "every row has a prediction, a vector or a score"
    assert "line in Windows-1252, converted" in " ".join(output(*shlex.split(command)).split())


def test_predictions_say_if_they_replace_a_file(project: Path, tmp_path: Path) -> None:
    command = ["predict", project / "run", project / "new.csv", "--out", tmp_path / "out.csv"]
    assert "40 predictions written to" in output(*command) and "replacing" not in output(
        *command[:-1], tmp_path / "b.csv"
    )
    assert "out.csv, replacing the earlier file" in output(*command)


def test_nothing_is_said_to_be_read_from_a_file_that_does_not_exist(project: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["predict", str(project / "run"), str(tmp_path / "none.csv")])
    assert "there is no such file" in str(found.exception) and "as this run did" not in found.output


@pytest.mark.parametrize("verb", ["dedupe", "label"])
def test_texts_are_embedded_in_batches_of_the_size_that_embed_has(
    project: Path, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, replies = set[int](), model.replies

    def recorded(*args: Any, batch_tokens: int, **named: Any) -> Any:
        sizes.add(batch_tokens)
        return replies(*args, batch_tokens=batch_tokens, **named)

    monkeypatch.setattr(model, "replies", recorded)
    (tmp_path / "examples.csv").write_text("review;stars\ngood;a\nbad;b\n")
    places = {"run": project / "run", "file": project / "new.csv", "out": tmp_path / "out"}
    more = ["--examples", tmp_path / "examples.csv", "--target", "stars"] if verb == "label" else []
    output(*(part.format(**places) for part in VERBS[verb]), *more, "--device", "cpu", typed="q\n")
    assert sizes == {model.ON_PROCESSOR}


def test_a_row_keeps_the_id_that_training_read(project: Path, tmp_path: Path) -> None:
    rows = [f"{'good' if number % 2 else 'bad'} day;{number % 2};T{number}" for number in range(20)]
    (tmp_path / "train.csv").write_text("\n".join(["review;stars;Ticket", *rows, ""]))
    (tmp_path / "new.csv").write_text("\n".join(["review;Ticket;Case", *(f"{row};C" for row in ("a;T7", "b;T8")), ""]))
    given = ["--delimiter", ";", "--input", "review", "--target", "stars", "--id", "Ticket"]
    short = ["--model", "bag", "--size", "nano", "--steps", 2, "--device", "cpu"]
    output("train", tmp_path / "train.csv", *given, *short, "--out", tmp_path / "run")

    def ids(run: Path, *options: str) -> list[str | None]:
        output("predict", run, tmp_path / "new.csv", "--delimiter", ";", *options, "--out", tmp_path / "out.jsonl")
        return [json.loads(line).get("id") for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    assert ids(tmp_path / "run") == ["T7", "T8"] and ids(project / "run") == [None, None]
    assert ids(tmp_path / "run", "--id", "Case") == ["C", "C"] and ids(tmp_path / "run", "--id", "") == [None, None]
    assert "input review, id Ticket" in output("predict", tmp_path / "run", tmp_path / "new.csv")
    lost = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--id", "Tickt"])
    assert "Did you mean --id Ticket?" in str(lost.exception)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model of a file in Windows-1252, and prompts in the same encoding."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "train.txt").write_bytes("\n".join(f"le café était fermé {n % 7}" for n in range(80)).encode("cp1252"))
    (folder / "prompts.txt").write_bytes("le café\nle café était\n".encode("cp1252"))
    short = ["--model", "lstm", "--size", "nano", "--steps", 2, "--device", "cpu"]
    output("train", folder / "train.txt", "--encoding", "cp1252", *short, "--out", folder / "run")
    return folder


def test_prompts_are_read_as_the_run_read_its_texts(old: Path, tmp_path: Path) -> None:
    command = ["generate", old / "run", "--max-new-tokens", 2, "--output-format", "jsonl"]

    def prompts(*options: Any) -> list[str]:
        return [json.loads(line)["prompt"] for line in output(*command, *options).splitlines() if line[0] == "{"]

    expected = ["le café", "le café était"]
    assert prompts("--file", old / "prompts.txt") == expected
    assert f"reads {old / 'prompts.txt'} as this run did: text, encoding cp1252" in output(
        *command, "--file", old / "prompts.txt"
    )
    (tmp_path / "prompts.csv").write_text("number;prompt\n1;le café\n2;le café était\n")
    assert prompts("--file", tmp_path / "prompts.csv", "--delimiter", ";", "--input", "prompt") == expected
    (tmp_path / "new.txt").write_text("le café\nle café était\n")
    assert prompts("--file", tmp_path / "new.txt", "--encoding", "utf-8") == expected


def test_standard_input_is_decoded_as_asked_and_options_without_a_meaning_there_are_refused(old: Path) -> None:
    runner, data = CliRunner(), (old / "prompts.txt").read_bytes()
    generate = ["generate", str(old / "run"), "--max-new-tokens", "1", "--output-format", "jsonl"]
    found = runner.invoke(app, [*generate, "--encoding", "latin-1"], input=data)
    assert [json.loads(line)["prompt"] for line in found.stdout.splitlines()] == ["le café", "le café était"]
    for options, problem in {
        ("--delimiter", ";"): "--delimiter ';': standard input is read as lines of text or JSON lines. "
        "Fix: leave out --delimiter, or give a file.",
        ("--template", "{label} {text}"): "--template '{label} {text}': standard input is read as lines",
        ("--no-header",): "--no-header: standard input is read as lines",
        ("--encoding", "utf-16"): "--encoding utf-16: lines of standard input are read from encodings whose line",
        ("--encoding", "latin9x"): "there is no encoding 'latin9x'",
        ("--encoding", "ascii"): "0xE9 is not ascii",
    }.items():
        refused = runner.invoke(app, [*generate, *options], input=data)
        assert problem in str(refused.exception), options


@pytest.mark.parametrize("verb", ["predict", "stream", "embed"])
def test_every_verb_decodes_lines_of_standard_input(project: Path, old: Path, tmp_path: Path, verb: str) -> None:
    command = {
        "predict": ["predict", project / "run", "-", "--with-input"],
        "stream": ["predict", old / "run", "-", "--stream"],
        "embed": ["embed", project / "run", "-", "--out", tmp_path / "a.npy"],
    }[verb]
    given = [*map(str, command), "--device", "cpu", "--encoding", "latin-1"]
    done = CliRunner().invoke(app, given, input="le café\n".encode("latin-1"))
    assert done.exit_code == 0, (done.output, done.exception)
    assert ("café" in done.stdout) == (verb != "embed")


def test_vectors_of_a_file_are_made_from_what_the_run_would_read(project: Path, tmp_path: Path) -> None:
    found = seqloom.embed_file(project / "run", project / "new.csv", tmp_path / "a.npy")
    output("embed", project / "run", project / "new.csv", "--out", tmp_path / "b.npy", "--device", "cpu")
    assert found.rows == 40 and (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
