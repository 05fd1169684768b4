"""Progress in a notebook: one output, updated in place, from the same events as the terminal; nothing elsewhere."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import seqloom
from pages_common import Elements
from seqloom.experiments.auto.race import auto
from seqloom.experiments.compare.comparison import compare
from seqloom.experiments.progress import MOST_LINES, ExperimentProgress, Told
from seqloom.experiments.tune.tuning import tune
from seqloom.report.notebook import BETWEEN_UPDATES, notebook_display
from seqloom.training.events import Ended, Notice, Speed, Stepped, Validated
from seqloom.training.notebook import MOST_VALIDATIONS, NotebookProgress
from training_common import write_data

SPEED = Speed(3.0, 100.0, 0.0, 1_000_000, 4.0)


class ZMQInteractiveShell:
    """The shell of a notebook kernel."""


class Shell(ZMQInteractiveShell):
    """The shell of Colab."""


class Output:
    """An output of a notebook: what it shows now, and how often that changed."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def __call__(self, shown: Any, *, display_id: bool = False) -> "Output":
        assert display_id, "without an id the output could not be updated"
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.pages.append(shown._repr_html_())


def stepped(step: int, loss: float = 0.5) -> Stepped:
    return Stepped(step, 0, step / 100, loss, 0.1, 1.0, 1.0, 0.0, 0, 10 * step, 0.1, SPEED)


def validated(step: int, accuracy: float, *, best: bool) -> Validated:
    return Validated(step, 1, {"accuracy": accuracy, "loss": 0.25}, best, best, (), SPEED)


def a_clock() -> tuple[list[float], Callable[[], float]]:
    now = [0.0]
    return now, lambda: now[0]


def in_notebook(monkeypatch: pytest.MonkeyPatch, shell: Any) -> Output:
    output, module, display = Output(), ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    display.display = output  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return output


def test_one_output_shows_steps_validations_notices_and_the_end() -> None:
    output, (now, clock) = Output(), a_clock()
    lines = NotebookProgress("accuracy", output, clock)
    now[0] += BETWEEN_UPDATES
    lines.take(stepped(10, 0.123))
    assert "step 10" in output.pages[-1] and "loss 0.123" in output.pages[-1] and 'value="0.1"' in output.pages[-1]
    for step in range(20, 40):
        lines.take(validated(step, step / 100, best=step == 39))
    rows = output.pages[-1].count("<tr>") - 1
    assert rows == MOST_VALIDATIONS and "0.39" in output.pages[-1] and "best so far" in output.pages[-1]
    lines.take(Notice(40, "step.skipped", "<script>alert(1)</script>", "use a lower lr"))
    lines.take(Ended(40, "done", 39, 39, {"accuracy": 0.39, "loss": 0.25}, SPEED, 0))
    elements = Elements(output.pages[-1])
    assert "script" not in elements.names and "done after 40 steps" in output.pages[-1]
    assert 'value="1"' in output.pages[-1] and repr(lines).startswith("done after 40 steps, 3 s · dev accuracy 0.39")


def test_fast_steps_do_not_flood_a_notebook_and_no_validation_is_lost() -> None:
    output, (now, clock) = Output(), a_clock()
    lines = NotebookProgress("accuracy", output, clock)
    for step in range(1, 1001):
        now[0] += BETWEEN_UPDATES / 100
        lines.take(stepped(step))
    assert 9 <= len(output.pages) - 1 <= 10
    before = len(output.pages)
    lines.take(validated(1000, 0.5, best=True))
    assert len(output.pages) == before + 1


def test_a_notebook_is_recognized_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_display() is None and "IPython" not in sys.modules
    for shell, found in ((None, False), (object(), False), (ZMQInteractiveShell(), True), (Shell(), True)):
        output = in_notebook(monkeypatch, shell)
        assert (notebook_display() is output) == found


@pytest.mark.slow
def test_training_shows_its_progress_in_a_notebook_alone_and_not_beside_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, short = write_data(tmp_path), {"model": "bag", "size": "nano", "device": "cpu", "steps": 2}
    output = in_notebook(monkeypatch, ZMQInteractiveShell())
    seqloom.train(data, out=tmp_path / "shown", **short)  # type: ignore[arg-type]
    assert "done after 2 steps" in output.pages[-1] and "dev accuracy" in output.pages[-1]
    before, told = len(output.pages), list[Any]()
    seqloom.train(data, out=tmp_path / "own", show=told.append, **short)  # type: ignore[arg-type]
    assert len(output.pages) == before and told
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_a_notebook_shows_the_choices_the_estimate_and_what_a_language_model_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paragraphs = (f"the rain fell over hill {n % 7}\nand the night was dark {n % 3}" for n in range(60))
    (tmp_path / "prose.txt").write_text("\n\n".join(paragraphs))
    output = in_notebook(monkeypatch, ZMQInteractiveShell())
    seqloom.train(
        tmp_path / "prose.txt", model="lstm", size="nano", steps=2, lowercase=True, device="cpu", out=tmp_path / "run"
    )
    page = output.pages[-1]
    assert "estimated time: " in page and "a document ends at a blank line (unit=" in page
    assert "The model continues the first words of dev texts, from | on:" in page and "the rain fell over hill|" in page


def test_an_experiment_has_one_output_with_a_bar_and_its_latest_lines() -> None:
    output, (now, clock) = Output(), a_clock()
    progress = ExperimentProgress(lambda told: told, output, clock)
    progress.take(Told(("0 of 4 runs are done",), wanted=4))
    for number in range(3):
        progress.take(Told((f"run {number}: <b>0.5</b>",), finished=1))
    assert 'value="0.75"' in output.pages[-1] and "3 of 4 runs" in output.pages[-1]
    assert "<b>" not in output.pages[-1] and "run 1: " in output.pages[-1]
    before = len(output.pages)
    for _ in range(10):
        progress.take(Told(now="step 7"))
    assert len(output.pages) == before, "steps do not flood it"
    now[0] += BETWEEN_UPDATES
    progress.take(Told(now="step 8"))
    assert "step 8" in output.pages[-1] and repr(progress) == "3 of 4 runs · step 8"
    progress.take(Told(tuple(f"line {number}" for number in range(2 * MOST_LINES))))
    assert output.pages[-1].count("<li>") == MOST_LINES


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("verb", ["compare", "tune", "auto"])
def test_experiments_show_their_progress_in_a_notebook_alone_and_not_beside_show(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = write_data(tmp_path), in_notebook(monkeypatch, ZMQInteractiveShell())
    calls: dict[str, Callable[..., Any]] = {
        "compare": lambda **named: compare(data, models=["bag"], seeds=1, tokens=500, size="nano", **named),
        "tune": lambda **named: tune(data, models=["bag"], trials=1, steps=3, **named),
        "auto": lambda **named: auto(data, models=["bag"], minutes=0.02, **named),
    }
    calls[verb](out=tmp_path / "shown", device="cpu")
    assert len(output.pages) > 3 and "<progress" in output.pages[-1]
    assert ("trial 0 done" if verb == "tune" else "bag") in output.pages[-1]
    assert 'value="1"' in output.pages[-1] or verb == "auto"
    before, told = len(output.pages), list[Any]()
    calls[verb](out=tmp_path / "own", device="cpu", show=told.append)
    assert len(output.pages) == before and told
    assert capsys.readouterr() == ("", "")
