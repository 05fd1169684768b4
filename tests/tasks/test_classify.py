"""Classification against plain counts, with labels that training never saw."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqloom.config.heads import ClassHeadConfig, LabelsHeadConfig, ScoresHeadConfig
from seqloom.errors import ConfigError, DataError
from seqloom.tasks.classify import UNSEEN, Classify, ClassifySeveral
from seqloom.tasks.contract import HeadSettings
from seqloom.tasks.judging import evaluate
from seqloom.types import Batch

Write = Callable[..., Any]


def table(labels: str) -> str:
    return "text,label\n" + "".join(f"word {label * 2} and {place},{label}\n" for place, label in enumerate(labels))


def lines(*labels: list[str]) -> str:
    return "".join(
        json.dumps({"text": f"text {place} {some}", "labels": some}) + "\n" for place, some in enumerate(labels)
    )


def test_accuracy_and_confusion_are_plain_counts_and_an_unseen_label_is_an_error(written: Write) -> None:
    small = written("a.csv", table("abcabc" * 4), table("abcz" * 5))
    model = small.model("bag").eval()
    evaluation = evaluate(small.task, model, small.batches())
    labels, wrong_or_right = small.task.meaning.schema.labels, []
    losses = []
    for batch in small.batches():
        with torch.no_grad():
            scores = model(batch.inputs)
        wrong_or_right += list(zip(batch.targets.tolist(), scores.argmax(dim=1).tolist(), strict=True))
        losses.append(F.cross_entropy(scores, batch.targets, ignore_index=-1, reduction="none")[batch.targets >= 0])
    assert sum(true == -1 for true, _ in wrong_or_right) == 5
    assert evaluation.metrics["accuracy"] == sum(true == said for true, said in wrong_or_right) / 20
    assert evaluation.metrics["loss"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)
    named = [(labels[true] if true >= 0 else UNSEEN, labels[said]) for true, said in wrong_or_right]
    assert {(true, said): count for true, said, count in evaluation.confusion} == {
        pair: named.count(pair) for pair in named
    }
    assert [count for *_, count in evaluation.confusion] == sorted((c for *_, c in evaluation.confusion), reverse=True)
    unseen = [one for one in evaluation.judged if one.true == UNSEEN]
    assert unseen
    assert not any(one.right for one in unseen)


def test_without_the_care_for_unseen_labels_the_loss_refuses_them(written: Write) -> None:
    small = written("a.csv", table("abcabc" * 4), table("abcz" * 5))
    unseen = next(batch for batch in small.batches() if bool((batch.targets < 0).any()))
    with pytest.raises(DataError, match="class -1"):
        small.task.loss(small.model("bag"), unseen, None)


def test_micro_f1_is_counted_over_all_labels_and_unseen_ones_are_missed(written: Write) -> None:
    train = lines(*([["a"], ["b", "c"], ["a", "c"], []] * 6))
    small = written("a.jsonl", train, lines(["a"], ["b", "z"], ["x", "a", "c"], ["a", "c"], []))
    assert isinstance(small.task, ClassifySeveral)
    model = small.model("bag").eval()
    with torch.no_grad():
        model.head.linear.weight.zero_()
        model.head.linear.bias.copy_(torch.tensor([9.0, -9.0, 9.0]))  # says a and c, whatever it reads
    evaluation = evaluate(small.task, model, small.batches())
    right, said, true = 5, 10, 8  # of a | b z | x a c | a c | nothing
    assert evaluation.metrics["precision"] == right / said
    assert evaluation.metrics["recall"] == pytest.approx(right / true)
    assert evaluation.metrics["f1"] == pytest.approx(2 * right / (said + true))
    assert evaluation.metrics["accuracy"] == 1 / 5  # x was missed where a and c were found


def test_what_the_loader_does_not_count_is_not_missed(written: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without the counting, unseen labels would not be there at all, and recall would flatter."""
    train = lines(*([["a"], ["b", "c"], ["a", "c"], []] * 6))
    small = written("a.jsonl", train, lines(["a"], ["b", "z"], ["x", "y", "c"], []))
    model = small.model("bag")
    counted = evaluate(small.task, model, small.batches())
    monkeypatch.setattr("seqloom.tasks.classify.unseen_labels", lambda _, rows: np.zeros(len(rows), np.int64))
    assert counted.statistics[:, 4].sum() == 6
    assert evaluate(small.task, model, small.batches()).statistics[:, 4].sum() == 3


def test_an_example_of_several_labels_is_right_only_if_all_are(small: Write) -> None:
    found = small("labels")
    statistics = np.array([one.statistics for one in found.task.judge(found.model(), found.batches()[0])])
    exact, right, said, true = statistics[:, 1], statistics[:, 2], statistics[:, 3], statistics[:, 4]
    assert (exact == ((right == said) & (right == true))).all()


def test_scores_are_probabilities_and_the_label_is_the_likeliest(small: Write) -> None:
    found = small("csv")
    model, batch = found.model().eval(), found.batches()[0]
    for one in found.task.predict(model, batch.inputs):
        shown = one.to_json()
        assert sum(shown["scores"].values()) == pytest.approx(1, abs=1e-5)
        assert shown["label"] == max(shown["scores"], key=shown["scores"].get)
    several = small("labels")
    for one in several.task.predict(several.model().eval(), several.batches()[0].inputs):
        assert {label for label, score in one.to_json()["scores"].items() if score > 0.5} == set(
            one.to_json()["labels"]
        )


@pytest.mark.parametrize("recipe", ["linear", "cnn"])
def test_smoothing_and_class_weights_reach_the_head(small: Write, recipe: str) -> None:
    found = small("csv")
    model = found.task.model(recipe, "tiny", HeadSettings(0.1, (1.0, 3.0)))
    assert isinstance(model.head, ScoresHeadConfig if recipe == "linear" else ClassHeadConfig)
    assert (model.head.smoothing, model.head.class_weights) == (0.1, (1.0, 3.0))


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0, 3.0), (0.0, 0.0), (1.0, -1.0), (1.0, float("nan"))])
def test_class_weights_that_fit_no_labels_are_refused(small: Write, weights: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="weight"):
        small("csv").task.model("cnn", "tiny", HeadSettings(class_weights=weights))


@pytest.mark.parametrize("kind", ["labels", "numbers", "text", "parallel"])
def test_class_weights_are_refused_where_there_is_no_choice_of_one_class(small: Write, kind: str) -> None:
    task = small(kind).task
    with pytest.raises(ConfigError, match="class weights are for"):
        task.model(task.recipes()[0], "tiny", HeadSettings(class_weights=(1.0, 2.0)))


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_smoothing_and_the_linear_recipe_are_refused_where_there_are_no_classes(small: Write, kind: str) -> None:
    task = small(kind).task
    assert "linear" not in task.recipes()
    with pytest.raises(ConfigError, match="smoothing is for one label"):
        task.model("cnn", "tiny", HeadSettings(smoothing=0.1))
    with pytest.raises(ConfigError, match="'linear' gives one score to each class"):
        task.model("linear", "tiny", HeadSettings())


def test_one_label_alone_is_no_choice(small: Write) -> None:
    meaning = small("csv").task.meaning
    with pytest.raises(ConfigError, match="1 label in the training part"):
        Classify(meaning._replace(schema=meaning.schema._replace(labels=("only",))))


def test_the_targets_of_an_evaluation_do_not_reach_a_loss_by_mistake(written: Write) -> None:
    small = written("a.jsonl", lines(["a"], ["b"], ["a", "b"]), lines(["a"], ["z"]))
    (batch,) = small.batches()
    model = small.model("bag").eval()
    assert batch.targets.shape == (2, 3)
    loss, _ = small.task.loss(model, batch, None)
    known: Batch[Any, Any] = batch._replace(targets=batch.targets[:, :2])
    assert torch.equal(loss.total, model.loss(known).total)
    assert isinstance(model.config.head, LabelsHeadConfig)
