"""A task of one's own is one class: this file adds one, and trains, evaluates and predicts with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import seqloom
from seqloom import recipes
from seqloom.config.heads import ClassHeadConfig
from seqloom.config.models import AnyModel, SequenceModelConfig
from seqloom.errors import ConfigError
from seqloom.metrics.bootstrap import ratio
from seqloom.nn.types import Batch
from seqloom.tasks.classify import LabelPrediction
from seqloom.tasks.encoders import require_shape, stepped_input_of
from seqloom.tasks.task import LOSS, TASKS, EvaluatedExample, HeadSettings, Metric, Task

WORDS = {"1": "awful dreadful", "2": "middling plain", "3": "fine lovely"}


class Grade(Task):
    """A label on a scale: an answer is the better, the fewer grades lie between it and the truth."""

    name: Any = "grade"
    default_recipe = "classifier", "bag"
    metrics = (Metric("off_by", higher_is_better=False), LOSS)
    statistics = 3  # grades off, loss, weight

    def model(self, recipe: str, size: Any, head: HeadSettings) -> SequenceModelConfig:
        self.require_settings(head)
        answer = ClassHeadConfig(num_classes=len(self.spec.schema.labels))
        return recipes.sequence_model(recipe, inputs=stepped_input_of(self.spec), head=answer, size=size)

    def require(self, model: AnyModel) -> None:
        require_shape(self, SequenceModelConfig, model)

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Any], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        scores, labels, judged = model(batch.inputs).double(), self.spec.schema.labels, []
        losses = nn.functional.cross_entropy(scores, batch.targets, reduction="none").tolist()
        rows = zip(batch.ids, scores.argmax(dim=-1).tolist(), batch.targets.tolist(), losses, strict=True)
        for id_, said, true, loss in rows:
            statistics = np.array([abs(said - true), loss, 1.0])
            judged.append(EvaluatedExample(id_, labels[said], labels[true], said == true, statistics))
        return judged, None

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        off, loss, weight = np.moveaxis(sums, -1, 0)
        return {"off_by": ratio(off, weight), "loss": ratio(loss, weight)}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[LabelPrediction]:
        labels = self.spec.schema.labels
        likely = model(inputs).softmax(dim=-1).tolist()
        return [LabelPrediction(labels[int(np.argmax(row))], dict(zip(labels, row, strict=True))) for row in likely]


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of texts with grades; data with one label per row is for the new task."""
    monkeypatch.setitem(TASKS, "label", f"{__name__}:Grade")
    words = [(word, grade) for grade, some in WORDS.items() for word in some.split()]
    rows = [f"the {word} film {number},{grade}" for number in range(20) for word, grade in words]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


@pytest.mark.slow
def test_a_task_in_one_file_trains_evaluates_and_predicts(reviews: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"task": "classify", "dev_size": 0.2, "test_size": 0.2, "device": "cpu"}
    trained = seqloom.train(reviews, out=tmp_path / "run", size="nano", steps=20, lr=0.1, validate_every=20, **settings)
    assert trained.end.metrics["off_by"] == 0
    model = seqloom.load(tmp_path / "run")
    assert isinstance(model.task, Grade)
    evaluation = model.evaluate(split="test", errors=tmp_path / "errors.csv")
    assert (evaluation.task, evaluation.metrics["off_by"], evaluation.rows) == ("grade", 0, 24)
    low, high = evaluation.intervals(model.task)["loss"]
    assert low < evaluation.metrics["loss"] < high
    assert [one.label for one in model.predict(["a lovely film", "a dreadful film"])] == ["3", "1"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_what_it_cannot_do_is_refused_as_for_any_other(reviews: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"task": "classify", "size": "nano", "steps": 1, "device": "cpu"}
    refused = [
        ({"metric": "accuracy"}, "grade has no metric 'accuracy'"),
        ({"label_smoothing": 0.1}, "grade has neither here"),
    ]
    for wish, said in refused:
        with pytest.raises(ConfigError, match=said):
            seqloom.train(reviews, out=tmp_path / "run", **settings, **wish)
    seqloom.train(reviews, out=tmp_path / "run", **settings)
    model = seqloom.load(tmp_path / "run")
    for ask in (model.translate, model.generate, model.embed):
        with pytest.raises(ConfigError, match=r"(its task|the task of this model) is grade"):
            ask(["a text"])
