"""`seqloom bench`: every setting is measured, advice follows the numbers, and kernels are told with their reasons."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.training import ByLengthConfig, StreamsConfig
from seqloom.errors import ConfigError
from seqloom.experiments.bench import speed
from seqloom.experiments.bench.explain import KERNELS
from seqloom.experiments.bench.speed import Measurement, advised, bench, explain, measured
from seqloom.experiments.compare.results import Spread
from seqloom.nn.ops import losses_fast
from seqloom.training.run import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    rows = [f"{'good' if row % 2 else 'bad'} film number {row},{'yes' if row % 2 else 'no'}" for row in range(40)]
    (folder / "data.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    train(folder / "data.csv", out=folder / "run", model="transformer", size="nano", steps=2, device="cpu")
    return folder / "run"


def one(phase: str, threads: int, rate: float, batch: int = 64, precision: str = "float32") -> Measurement:
    spread = Spread(rate, rate, rate)
    settings = {"phase": phase, "threads": threads, "batch": batch, "precision": precision}
    return Measurement(**settings, speed=spread, milliseconds=Spread(1000 / rate, 1000 / rate, 1000 / rate))


@pytest.mark.slow
def test_a_run_is_measured_and_stays_as_it_was(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "ROUNDS", 2)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = CliRunner().invoke(app, ["bench", str(run), "--seconds", "0.1", "--json", "--device", "cpu"])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.output)["measurements"]
    assert {(row["phase"], row["batch"]) for row in rows if row["phase"] == "prediction"} == {
        ("prediction", 1),
        ("prediction", 32),
    }
    batches = sorted(row["batch"] for row in rows if row["phase"] == "training")
    assert batches[0] * 4 == batches[1] * 2 == batches[-1]
    assert all(row["speed"]["low"] <= row["speed"]["median"] <= row["speed"]["high"] for row in rows)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_advice_follows_the_numbers() -> None:
    batching = ByLengthConfig(batch_tokens=64)
    found = [one("training", 1, 200.0), one("training", 2, 100.0), one("training", 1, 300.0, 128)]
    found += [one("prediction", 1, 10.0, 1), one("prediction", 2, 8.0, 1)]
    found += [one("prediction", 1, 80.0, 32), one("prediction", 2, 120.0, 32)]
    assert advised(found, batching) == (
        "Training is fastest with 1 thread: 2 times as fast as with 2 (seqloom train chooses this by itself).",
        "--batch-tokens 128 reads 1.5 times as many tokens per second. An epoch then has other steps, so compare the "
        "dev scores too.",
        "Predicting one example is fastest with 1 thread: 1.2 times as fast as with 2 (set OMP_NUM_THREADS).",
        "Predicting 32 examples at once with 2 threads is 1.5 times as fast as with 1.",
        "Predict many examples in one call: 32 at once are 12 times as fast for each.",
    )
    rows = StreamsConfig(batch_rows=2, row_length=32)
    assert "--batch-rows 4 reads" in advised([one("training", 1, 1.0), one("training", 1, 2.0, 128)], rows)[0]
    slow = advised([one("training", 1, 4.0), one("training", 1, 1.0, 64, "bf16")], batching)
    assert slow == ("--precision bf16 trains 0.25 times as fast as float32: stay with float32.",)


def test_settings_take_turns_and_the_first_turn_does_not_count() -> None:
    turns: list[int] = []
    trials = [
        speed.SpeedTrial(
            "training", torch.get_num_threads(), size, "float32", lambda size=size: turns.append(size) or 1
        )
        for size in (1, 2)
    ]
    found = measured(trials, seconds=0.0)
    assert turns == [1, 2, 1, 2] and [each.batch for each in found] == [1, 2]


@pytest.mark.slow
def test_kernels_are_told_by_layer_for_training_and_prediction(run: Path) -> None:
    found = explain(run, device="cpu")
    assert {layer.phase for layer in found.layers} == {"training", "prediction"}
    first = found.layers[0]
    assert (first.operator, first.kernel) == ("attention", "sdpa") and first.layer.endswith("layers.0.mixer")
    assert "edges" in first.refused and "and 1 more layer" in found.text(200)
    assert {("cross_entropy", kernel) for kernel in losses_fast.KERNELS} <= set(KERNELS), "each has a line"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--explain", "--seconds", "3"], "--seconds is for measuring"),
        (["--seconds", "0"], "--seconds 0"),
        (["--device", "tpu"], "--device 'tpu'"),
    ],
)
def test_options_that_make_no_sense_are_refused(run: Path, arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["bench", str(run), *arguments])
    assert isinstance(found.exception, ConfigError) and said in str(found.exception)


def test_a_model_without_its_run_has_no_data_to_measure(run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    for path in (run / "model").iterdir():
        (alone / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match="contains no data"):
        bench(alone)
