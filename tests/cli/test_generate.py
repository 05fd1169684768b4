"""`seqloom generate`: prompts from anywhere, answers as text, JSON lines or a table; bad prompts told by line."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.cli import generate as verb
from seqloom.cli.terminal import SOME_BAD, Screen, work_bar
from seqloom.errors import ConfigError, RejectedError
from seqloom.events import Progress
from seqloom.inference.model import load

LINES = "once upon a time there was a cat\nthe cat sat on the mat\n"


def language_model(place: Path, recipe: str) -> Path:
    (place / "lines.txt").write_text(LINES)
    return make_run(place / "run", recipe, train=(str(place / "lines.txt"),), task="lm")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model(tmp_path_factory.mktemp("lm"), "lstm")


def generate(*arguments: object, given: str | bytes | None = None, exit_code: int = 0) -> list[str]:
    """The lines on standard output."""
    done = CliRunner().invoke(app, ["generate", *map(str, arguments), "--device", "cpu"], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == exit_code, done.output
    return done.stdout.splitlines()


def test_translate_names_the_command_of_a_language_model(run: Path) -> None:
    done = CliRunner().invoke(app, ["translate", str(run), "once", "--device", "cpu"])
    assert "its task is lm. Fix: use `seqloom generate`" in str(done.exception)


def test_a_prompt_is_gone_on_with(run: Path) -> None:
    ((answer,),) = load(run).generate(["once upon"], max_new_tokens=5)
    assert generate(run, "once upon", "--max-new-tokens", 5) == [f"once upon{answer.text}"]


def test_a_file_in_place_of_a_prompt_is_told(run: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("once\n")
    with pytest.raises(ConfigError, match=r"prompts.txt is a file.*--file .*prompts.txt"):
        generate(run, tmp_path / "prompts.txt")


def test_a_prompt_may_be_longer_than_a_file_name(run: Path) -> None:
    prompt = "once upon a time " * 20
    assert generate(run, prompt, "--max-new-tokens", 1)[0].startswith(prompt)


def test_prompts_from_a_file_and_from_standard_input_are_answered_alike(run: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("once\n\nthe cat\n")
    from_file = generate(run, "--file", tmp_path / "prompts.txt", "--output-format", "jsonl", "--max-new-tokens", 4)
    assert generate(run, "--output-format", "jsonl", "--max-new-tokens", 4, given="once\n\nthe cat\n") == from_file
    found = [json.loads(line) for line in from_file]
    assert [(one["line"], one["prompt"]) for one in found] == [(1, "once"), (3, "the cat")]
    assert {"text", "score", "finish_reason"} <= found[0].keys()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (("--temperature", 1.5, "--num-samples", 3, "--seed", 2), {"temperature": 1.5, "num_samples": 3, "seed": 2}),
        (("--top-k", 4, "--top-p", 0.9, "--min-p", 0.1), {"top_k": 4, "top_p": 0.9, "min_p": 0.1}),
        (
            ("--beam-size", 3, "--n-best", 2, "--length-penalty", 0.5),
            {"beam_size": 3, "n_best": 2, "length_penalty": 0.5},
        ),
        (
            ("--repetition-penalty", 1.5, "--stop", "cat", "--stop", r"\n"),
            {"repetition_penalty": 1.5, "stop": ("cat", "\n")},
        ),
    ],
)
def test_every_option_is_the_setting_of_its_name(run: Path, options: tuple[Any, ...], settings: Any) -> None:
    (expected,) = load(run).generate(["the"], max_new_tokens=6, **settings)
    found = [
        json.loads(line) for line in generate(run, "the", "--max-new-tokens", 6, "--output-format", "jsonl", *options)
    ]
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert [one.get("candidate") for one in found] == ([None] if len(found) == 1 else list(range(1, len(found) + 1)))


def test_on_a_terminal_an_answer_is_shown_as_it_is_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = generate(run, "once", "--max-new-tokens", 5)
    shown = list[str]()

    class Terminal(Screen):
        is_terminal = True  # type: ignore[assignment]

        def print(self, *objects: Any, end: str = "\n", **_: Any) -> None:
            shown.append("".join(map(str, objects)) + end)

    monkeypatch.setattr(verb, "Screen", Terminal)
    assert generate(run, "once", "--max-new-tokens", 5) == []
    assert "".join(shown).splitlines() == printed
    assert len(shown) > 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("once", "--output-format", "xml"), "jsonl, csv, text"),
        (("once", "--out", "a.parquet"), r"written as jsonl, csv or text, not as \.parquet\. Fix: --out a\.txt"),
        (("--file", "a.txt", "--out", "a.txt"), "is the input file"),
        (("once", "--length-penalty", 0.5), "add --beam-size 5"),
        (("once", "--file", "a.txt"), "leave one of them out"),
        (("--file", "no-such.txt"), "no file no-such.txt"),
        (
            ("once", "--temperature", 0.5, "--beam-size", 3),
            "^--temperature is for sampling, --beam-size for beam",
        ),
        (("once", "--top-k", 4, "--seed", 3, "--beam-size", 3), "^--top-k, --seed are for sampling"),
        (("once", "--temperature", 0), r"^--temperature 0: .*leave it out.*greedy"),
        (("once", "--beam-size", 0), "^--beam-size: expected a whole number from 1"),
        (
            ("once", "--beam-size", 2, "--n-best", 3),
            "^--n-best 3 is more than --beam-size 2.*--beam-size 3, or a lower --n-best",
        ),
        (("once", "--num-samples", 0), "^--num-samples: expected"),
        (("once", "--top-k", -1), "^--top-k: expected"),
        (("once", "--repetition-penalty", 0), "^--repetition-penalty: expected"),
        (("once", "--max-new-tokens", 0), "^--max-new-tokens: expected"),
    ],
)
def test_what_cannot_be_asked_is_told_before_the_model_is_read(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        generate("no-such-run", *arguments)


def test_words_of_a_prompt_that_the_model_does_not_know_are_told(run: Path) -> None:
    asked = ["generate", str(run), "once zebra", "the cat", "gnu gnu", "--max-new-tokens", "3", "--device", "cpu"]
    done = CliRunner().invoke(app, asked)
    assert done.stdout.startswith("once zebra ") and "\ngnu gnu " in done.stdout
    assert "prompts:1: prompt.unknown: not in the vocabulary: 'zebra'; the model reads them as" in done.stderr
    assert done.stderr.endswith("(2 times)\n")
    known = CliRunner().invoke(app, ["generate", str(run), "the cat", "--max-new-tokens", "3", "--device", "cpu"])
    assert known.stderr == ""


def test_people_see_how_many_prompts_are_answered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[str]()

    @contextmanager
    def bar() -> Iterator[Any]:
        yield lambda progress: shown.append(str(progress))

    monkeypatch.setattr(verb, "work_bar", bar)
    generate(run, "--max-new-tokens", 2, given="once\nthe cat\na\n")
    assert shown == ["1 of 3 texts", "2 of 3 texts", "3 of 3 texts"]


@pytest.mark.parametrize("whole", [4, 0], ids=["known", "unknown"])
def test_a_bar_tells_the_answers_and_the_time_that_is_left(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = io.StringIO()
    terminal = Console(file=seen, force_terminal=True, width=80)
    monkeypatch.setattr("seqloom.cli.terminal.Screen", lambda **_: terminal)
    with work_bar() as show:
        show(Progress("answers", 2, whole))
    assert ("2 of 4 answers" if whole else "2 answers") in seen.getvalue() and ("-:--:--" in seen.getvalue()) == bool(
        whole
    )


def test_no_prompt_at_all_is_told(run: Path) -> None:
    with pytest.raises(ConfigError, match="no prompt"):
        generate(run, given="")


@pytest.mark.parametrize("options", [(), ("--beam-size", 3, "--n-best", 2)], ids=["one", "several"])
def test_a_table_and_a_file_hold_what_json_lines_say(run: Path, tmp_path: Path, options: tuple[Any, ...]) -> None:
    asked = (run, "once", "the cat", "--max-new-tokens", 4, *options)
    said = [json.loads(line) for line in generate(*asked, "--output-format", "jsonl")]
    for name in ("a.csv", "a.jsonl", "a.txt"):
        assert generate(*asked, "--out", tmp_path / name) == []
    with (tmp_path / "a.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert table == [{key: str(value) for key, value in one.items()} for one in said]
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == said
    assert (tmp_path / "a.txt").read_text().splitlines() == [one["prompt"] + one["text"] for one in said]


LONG = "cat " * 1_100  # beyond the 1,024 positions of a gpt


@pytest.fixture(scope="module")
def positioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model(tmp_path_factory.mktemp("gpt"), "gpt")


def test_a_prompt_beyond_the_positions_is_told_by_its_line_before_any_answer(positioned: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"once\n{LONG}\nthe\n")
    with pytest.raises(
        RejectedError, match=r"a\.txt:2: seq\.too_long: the input has 1,100 tokens or steps, but .* only 1,023 learned"
    ):
        generate(positioned, "--file", tmp_path / "a.txt", "--out", tmp_path / "b.txt")
    assert not (tmp_path / "b.txt").exists()


def test_bad_prompts_have_their_lines_and_the_rest_is_answered_as_without_them(positioned: Path) -> None:
    asked = ("--output-format", "jsonl", "--max-new-tokens", 3, "--skip-bad-rows")
    given = f"once\n{LONG}\n".encode() + b"\xff\n\nthe cat\n"
    found = [json.loads(line) for line in generate(positioned, *asked, given=given, exit_code=SOME_BAD)]
    told = [(one["line"], one.get("error", "").partition(":")[0]) for one in found]
    assert told == [(1, ""), (2, "seq.too_long"), (3, "enc.utf8"), (5, "")]
    expected = load(positioned).generate(["once", "the cat"], max_new_tokens=3)
    assert [one["text"] for one in found if "text" in one] == [answer.text for (answer,) in expected]


def test_where_no_prompt_can_be_answered_each_is_told(positioned: Path) -> None:
    found = generate(positioned, LONG, LONG, "--output-format", "csv", "--skip-bad-rows", exit_code=SOME_BAD)
    assert found[0] == "line,error" and [line[:2] for line in found[1:]] == ["1,", "2,"]


def test_a_classifier_is_refused_with_the_reason_and_the_verb_that_fits(tmp_path: Path) -> None:
    reviews = make_run(tmp_path / "run", **make_reviews(tmp_path))
    with pytest.raises(ConfigError, match=r"task of this model is classify.*seqloom predict"):
        generate(reviews, "once")
