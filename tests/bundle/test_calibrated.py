"""What is shipped is calibrated on dev, says so, and is judged as it answers."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss

import seqloom
from seqloom.config.data import ColumnSplit, DataConfig
from seqloom.training.devices import choose_device
from seqloom.training.events import Report, Started, Validated
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from training_common import BASE, only, run, write_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    folder = tmp_path_factory.mktemp("run")
    return run(folder / "run", write_data(folder))


@pytest.fixture(scope="module")
def shelf(reports: list[Report]) -> Path:
    (begun,) = only(reports, Started)
    return Path(begun.folder).parent


@pytest.mark.slow
def test_a_run_ships_the_temperature_of_its_dev_part(shelf: Path) -> None:
    model = seqloom.load(shelf / "run")
    assert model.spec.calibration.temperature != 1
    evaluation = model.evaluate()
    assert evaluation.metrics == pytest.approx(model.notes["dev"])
    plain = model.task.calibrated(model.spec.calibration._replace(temperature=1.0))
    model.task = plain
    assert evaluation.metrics["loss"] < model.evaluate().metrics["loss"]


def test_the_loss_of_an_evaluation_is_the_log_loss_of_the_probabilities_of_predictions(shelf: Path) -> None:
    model = seqloom.load(shelf / "run")
    rows = [line.split(",") for line in (shelf / "data.csv").read_text().splitlines()[1:]]
    texts, labels = zip(*[(text, label) for text, label, part in rows if part == "dev"], strict=True)
    said = model.predict(texts)
    likely = [[one.to_json()["scores"][label] for label in ("no", "yes")] for one in said]
    (shelf / "dev.csv").write_text("\n".join(["text,label", *map(",".join, zip(texts, labels, strict=True)), ""]))
    metrics = model.evaluate(shelf / "dev.csv").metrics  # named as a file: read as the model answers
    assert metrics["loss"] == pytest.approx(log_loss(labels, likely, labels=["no", "yes"]), rel=1e-5)
    assert metrics["accuracy"] == np.mean([one.to_text() == label for one, label in zip(said, labels, strict=True)])


def test_dev_is_judged_by_halves_and_as_a_file_as_the_model_answers(shelf: Path) -> None:
    model = seqloom.load(shelf / "run")
    told = model.evaluate().metrics
    rows = [line.split(",") for line in (shelf / "data.csv").read_text().splitlines()[1:]]
    (shelf / "same.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label, _ in rows[::5]))
    flattered = model.evaluate(shelf / "same.csv").metrics
    assert told["accuracy"] == flattered["accuracy"]
    assert told["loss"] > flattered["loss"]
    card = (shelf / "run" / "model" / "card.md").read_text()
    assert model.notes["cross_fitted"] and "scored with the calibration of the other half" in card


def test_the_best_step_is_chosen_before_any_calibration(shelf: Path, reports: list[Report]) -> None:
    best = [one for one in only(reports, Validated) if one.best][-1]
    notes = seqloom.load(shelf / "run").notes
    assert notes["step"] == best.step
    assert notes["dev"]["accuracy"] == best.metrics["accuracy"]
    assert notes["dev"]["loss"] < best.metrics["loss"]


@pytest.mark.slow
def test_the_thresholds_of_several_labels_are_shipped_and_used(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    words = ["red", "green", "blue", "old", "new"]
    rows = []
    for number in range(240):
        chosen = [words[place] for place in draws.integers(0, 5, 4)]
        labels = [word for word in ("red", "old") if word in chosen and draws.random() < 0.7]
        part = "dev" if number % 3 == 0 else "train"
        rows.append({"text": " ".join([*chosen, str(number)]), "labels": labels, "split": part})
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = DataConfig(train=(str(path),), split=ColumnSplit(split_column="split"))
    resolved = resolve(config, RunRequest(model="bag", size="nano", training=BASE), cache=tmp_path / "cache")
    reports = list(train_run(tmp_path / "run", resolved, device=choose_device("cpu", "float32"), workers=0))
    model = seqloom.load(tmp_path / "run")
    thresholds = model.spec.calibration.thresholds
    assert len(thresholds) == 2 and thresholds != (0.5, 0.5)
    assert model.evaluate().metrics == pytest.approx(model.notes["dev"])
    (best,) = [one for one in reports if isinstance(one, Validated) and one.step == model.notes["step"]]
    assert model.notes["dev"]["f1"] == best.metrics["f1"]  # what decided is what the shipped model has
    assert model.notes["dev"]["loss"] != best.metrics["loss"]
    for one in model.predict([row["text"] for row in rows[:20]]):
        told = one.to_json()
        above = [score > bound for score, bound in zip(told["scores"].values(), thresholds, strict=True)]
        assert [label in told["labels"] for label in told["scores"]] == above
