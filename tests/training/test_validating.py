"""A look at dev by several processes is the look of one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from seqloom.config.training import ByLengthConfig
from seqloom.data.check import load_data
from seqloom.tasks.evaluation import Evaluation, evaluate
from seqloom.tasks.task import HeadSettings, ModelSpec, task_of
from seqloom.training.devices import Alone
from seqloom.training.events import Validated
from seqloom.training.run import train
from seqloom.training.run_report import run_document
from seqloom.training.run_summary import summary_of
from seqloom.training.session import Session
from seqloom.training.validation import ValidationResult

ROWS = "text,score\n" + "".join(f"word {number * 7 % 5} and {number},{number * 3 % 11}\n" for number in range(24))


class TwoRanks:
    """The first of two processes; what the other one has is known already."""

    count, rank, sharded = 2, 0, False

    def __init__(self, others: list[bytes]) -> None:
        self.others = others

    def gather(self, data: bytes) -> list[bytes]:
        return [data, self.others.pop(0)]


def test_the_shares_of_two_processes_together_have_every_figure_of_one(tmp_path: Path) -> None:
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text(ROWS)
    dev.write_text(ROWS)
    prepared = load_data(train, dev=dev, task="regress", target="score")
    task = task_of(ModelSpec.of(prepared))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = task.model("bag", "nano", HeadSettings()).build()
    steps = task.loader(prepared, "dev", ByLengthConfig(batch_tokens=32), seed=0, workers=0).steps(until=1)
    batches = [step.batch for step in steps if step.batch is not None]
    whole, mine, other = (evaluate(task, model, some) for some in (batches, batches[::2], batches[1::2]))
    sums = {name: float(value) for name, value in task.measure(task.summed(whole.statistics)).items()}
    session: Any = SimpleNamespace(task=task, ranks=TwoRanks([other.statistics.tobytes(), b"[]"]))
    gathered = ValidationResult(sums, (), mine).gathered(cast(Session, session))
    together = cast(Evaluation, gathered.evaluation)
    assert together.metrics == pytest.approx(whole.metrics) and "spearman" in together.metrics
    assert np.allclose(np.sort(together.statistics, axis=0), np.sort(whole.statistics, axis=0))

    def rows(evaluation: Evaluation, ranks: Any) -> np.ndarray:
        session: Any = SimpleNamespace(task=task, ranks=ranks)
        return ValidationResult(sums, (), evaluation).rows(cast(Session, session))

    theirs = np.column_stack([np.array(other.ids, float), other.statistics]).tobytes()
    alone = rows(whole, Alone())
    assert np.array_equal(rows(mine, TwoRanks([theirs])), alone)
    assert alone[:, 0].tolist() == sorted(map(int, whole.ids)) == prepared.splits["dev"].tolist()


@pytest.mark.slow
def test_a_validation_logs_the_same_examples_each_time_and_the_worst_of_the_wrong_ones(tmp_path: Path) -> None:
    rows = [(f"row {at} word{at * 7 % 60}", "ab"[at * 11 % 7 % 2]) for at in range(120)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *map(",".join, rows), ""]))
    reports = list[Validated]()
    train(
        tmp_path / "a.csv",
        out=tmp_path / "run",
        dev_size=0.5,
        model="bag",
        size="nano",
        epochs=3,
        device="cpu",
        show=lambda one: reports.append(one) if isinstance(one, Validated) else None,
    )
    for one in reports:
        wrong = round(60 * (1 - one.metrics["accuracy"]))
        assert [sample.input for sample in one.samples[:4]] == [sample.input for sample in reports[0].samples[:4]]
        assert wrong >= 8 and [sample.correct for sample in one.samples[4:]] == [False] * 4
    assert sum("✗" in line for line in run_document(summary_of(tmp_path / "run")).text(100).split("\n")) >= 4
