"""What `inspect` and `graph` refuse, they refuse in words that lead on: each way that is named can be gone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from inspection_common import subject_of, task_on
from seqloom.cli import app
from seqloom.cli.inspect import _require_count, typed
from seqloom.errors import ConfigError, SeqloomError
from seqloom.inspect.what_if import clamp


def called(*arguments: str) -> str:
    """What is printed; errors are raised."""
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--view", "attention", "--set", "layer=0", "--layer", "1"), "'layer' is set twice"),
        (("--view", "attention", "--target", " "), "--target is empty"),
        (("--view", "attention", "--out", "x.gif"), r"a file that ends in .*\.txt\."),
    ],
)
def test_a_wrong_wish_is_refused_before_a_model_is_read(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(SeqloomError, match=said):
        called("inspect", "no-model", "a text", *arguments)


def test_a_translator_that_gets_two_texts_is_told_about_the_target(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    loaded: Any = SimpleNamespace(subject=subject, task=subject.task)
    with pytest.raises(ConfigError, match='--target "le chat"'):
        _require_count(loaded, ["the cat", "le chat"])
    with pytest.raises(ConfigError) as raised:
        _require_count(loaded, ["the", "cat", "sat"])
    assert "--target" not in str(raised.value)


def test_a_number_that_is_none_is_asked_for_as_a_number() -> None:
    with pytest.raises(ConfigError, match=r"value is 'abc'.*give a number, such as 0\.5"):
        typed("clamp", clamp, {"unit": "1", "value": "abc"})


def test_a_rate_that_is_no_number_is_refused_before_anything_is_shown() -> None:
    for rate in ("nan", "inf"):
        with pytest.raises(SeqloomError, match="is not a number"):
            called("graph", "a*b", "a=1", "b=2", "--lr", rate)
    assert "gradient ascent" in called("graph", "a*b", "a=1", "b=2", "--lr=-1")
    assert "climbs" not in called("graph", "a*b", "a=1", "b=2", "--lr", "1")


def test_the_corner_of_abs_is_told() -> None:
    assert "The derivative of abs at 0" in called("graph", "abs(a)", "a=0")
    assert "The slope of abs" not in called("graph", "abs(a)", "a=1")
