"""The commands of the page "Pictures for a lecture" are run as they are written there."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqloom.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "lecture-pictures.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line)[1:] for block in BLOCKS for line in block.splitlines()]
DEMO = ["demo", "--out", "demo-run"]
QUICK = ["train", "dates", "--model", "seq2seq-dot", "--size", "nano", "--steps", "20", "--out", "demo-run"]


def run_all(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, str]:
    """Run the commands in a folder; return what each that wrote a picture printed, by the name of the picture."""
    monkeypatch.chdir(folder)
    printed = {}
    for command in commands:
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        if command[-1].endswith(".png"):
            assert Path(command[-1]).read_bytes().startswith(b"\x89PNG")
            printed[command[-1]] = done.output
    return printed


@pytest.mark.slow
def test_each_command_writes_its_picture_and_gradients_vanish_as_the_page_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("resvg_py")
    assert DEMO in COMMANDS  # it has tests of its own
    printed = run_all([QUICK if command == DEMO else command for command in COMMANDS], monkeypatch, tmp_path)
    assert len(printed) == 12
    factors = dict(
        re.findall(r"new-(\w+): the gradient norm changes by a factor of ([\d.]+)", printed["vanishing.png"])
    )
    assert float(factors["rnn"]) == pytest.approx(0.5, abs=0.1)
    assert float(factors["gru"]) == pytest.approx(0.7, abs=0.1)
    assert float(factors["lstm"]) == pytest.approx(0.9, abs=0.1)
