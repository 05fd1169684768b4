"""`seqloom generate`: prompts from anywhere, answers as text or JSON lines."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bundle_common import make_run
from seqloom.cli import app
from seqloom.cli import generate as verb
from seqloom.cli.screen import Screen
from seqloom.errors import ConfigError
from seqloom.loaded import load

LINES = "once upon a time there was a cat\nthe cat sat on the mat\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lm")
    (place / "lines.txt").write_text(LINES)
    return make_run(place / "run", "lstm", train=(str(place / "lines.txt"),), task="lm")


def generate(*arguments: object, given: str | None = None) -> list[str]:
    """The lines on standard output."""
    done = CliRunner().invoke(app, ["generate", *map(str, arguments), "--device", "cpu"], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_a_prompt_is_gone_on_with(run: Path) -> None:
    ((answer,),) = load(run).generate(["once upon"], longest=5)
    assert generate(run, "once upon", "--longest", 5) == [f"once upon{answer.text}"]


def test_prompts_from_a_file_and_from_standard_input_are_answered_alike(run: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("once\n\nthe cat\n")
    from_file = generate(run, "--file", tmp_path / "prompts.txt", "--as", "jsonl", "--longest", 4)
    assert generate(run, "--as", "jsonl", "--longest", 4, given="once\n\nthe cat\n") == from_file
    found = [json.loads(line) for line in from_file]
    assert [(one["line"], one["prompt"]) for one in found] == [(1, "once"), (3, "the cat")]
    assert {"text", "score", "ended"} <= found[0].keys()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (("--temperature", 1.5, "--count", 3, "--seed", 2), {"temperature": 1.5, "count": 3, "seed": 2}),
        (("--top-k", 4, "--top-p", 0.9, "--min-p", 0.1), {"top_k": 4, "top_p": 0.9, "min_p": 0.1}),
        (("--beam", 3, "--count", 2, "--length-penalty", 0.5), {"width": 3, "best": 2, "length_penalty": 0.5}),
        (("--repetition", 1.5, "--stop", "cat", "--stop", r"\n"), {"repetition": 1.5, "stop": ("cat", "\n")}),
    ],
)
def test_every_option_is_the_setting_of_its_name(run: Path, options: tuple[Any, ...], settings: Any) -> None:
    (expected,) = load(run).generate(["the"], longest=6, **settings)
    found = [json.loads(line) for line in generate(run, "the", "--longest", 6, "--as", "jsonl", *options)]
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert [one.get("answer") for one in found] == ([None] if len(found) == 1 else list(range(1, len(found) + 1)))


def test_on_a_terminal_an_answer_is_shown_as_it_is_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = generate(run, "once", "--longest", 5)
    shown = list[str]()

    class Terminal(Screen):
        is_terminal = True  # type: ignore[assignment]

        def print(self, *objects: Any, end: str = "\n", **_: Any) -> None:
            shown.append("".join(map(str, objects)) + end)

    monkeypatch.setattr(verb, "Screen", Terminal)
    assert generate(run, "once", "--longest", 5) == []
    assert "".join(shown).splitlines() == printed
    assert len(shown) > 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("once", "--as", "xml"), "text, jsonl"),
        (("once", "--file", "a.txt"), "leave the one or the other out"),
        (("--file", "no-such.txt"), "no file no-such.txt"),
        (("once", "--temperature", 0.5, "--beam", 3), "temperature belong to a sample"),
    ],
)
def test_what_cannot_be_asked_is_told_before_the_model_is_read(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        generate("no-such-run", *arguments)


def test_no_prompt_at_all_is_told(run: Path) -> None:
    with pytest.raises(ConfigError, match="no prompt"):
        generate(run, given="")
