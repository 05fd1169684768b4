"""What the tests of whole runs share: a small dataset, and a run through the front door."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.config.data import DataConfig
from seqloom.config.training import ByLengthConfig, ConstantConfig, StepsConfig
from seqloom.training import loop, validation
from seqloom.training.devices import choose_device
from seqloom.training.events import Ended, Report
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import train_run
from seqloom.training.session import Session
from seqloom.training.validation import ValidationResult

ROWS = 90
BASE: dict[str, Any] = {
    "duration": StepsConfig(steps=30),
    "batching": ByLengthConfig(batch_tokens=60),
    "validate_every": 10,
    "log_every": 5,
    "schedule": ConstantConfig(),
    "lr": 0.01,
    "patience": 0,
}


def write_data(folder: Path, rows: int = ROWS) -> Path:
    """Sentences whose last word says the label; lengths differ, so batches do too."""
    words = ["red", "green", "blue", "old", "new", "tall", "flat", "warm"]
    lines = ["text,label,split"]
    for row in range(rows):
        label = "yes" if row * 7 % 3 else "no"
        text = " ".join(words[(row * step) % 8] for step in range(1, 2 + row % 5)) + (
            " up" if label == "yes" else " down"
        )
        lines.append(f"{text},{label},{'dev' if row % 5 == 0 else 'test' if row % 5 == 1 else 'train'}")
    path = folder / "data.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def resolved(
    data: Path, *, model: str = "gru", size: Any = "nano", dropout: float | None = None, **settings: Any
) -> Resolved:
    """A run over that data; `settings` are those of `TrainingConfig`, over `BASE`."""
    from seqloom.config.data import ColumnSplit

    config = DataConfig(train=(str(data),), split=ColumnSplit(split_column="split"))
    request = RunRequest(model=model, size=size, dropout=dropout, training=BASE | settings)
    return resolve(config, request, cache=data.parent / "cache")


def run(out: Path, data: Path, **settings: Any) -> list[Report]:
    """All reports of a run."""
    return list(train_run(out, resolved(data, **settings), device=choose_device("cpu", "float32"), workers=0))


def ended(reports: Iterable[Report]) -> Ended:
    last = list(reports)[-1]
    assert isinstance(last, Ended)
    return last


def only(reports: Iterable[Report], kind: type[Any]) -> list[Any]:
    return [report for report in reports if isinstance(report, kind)]


class ScriptedLooks:
    """Looks at the dev set of a run that classifies, of which a test says how many examples they find wrong."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = iter(())
        monkeypatch.setattr(loop, "validate", self.validate)

    def says(self, *wrong: int) -> None:
        """From now on."""
        self.left = iter(wrong)

    def validate(self, session: Session) -> ValidationResult:
        found = validation.validate(session)
        assert found.evaluation is not None
        rows, wrong = found.evaluation.statistics.copy(), next(self.left)
        misses = np.arange(len(rows)) < wrong
        rows[:, 0] = np.where(misses, 1 - rows[:, 1], rows[:, 1])  # said and true, of two labels
        rows[:, -2] = np.where(misses, 2.0, 0.1)  # the loss
        metrics = {name: float(value) for name, value in session.task.measure(session.task.summed(rows)).items()}
        return found._replace(metrics=metrics, evaluation=found.evaluation._replace(statistics=rows, metrics=metrics))
