"""Classification against plain counts, with labels that training never saw."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, classification_report, f1_score, log_loss

from seqloom.config.heads import ClassHeadConfig, LabelsHeadConfig, ScoresHeadConfig, UnmappedHead
from seqloom.errors import ConfigError, DataError
from seqloom.metrics.calibration import Calibration
from seqloom.nn.types import Batch
from seqloom.tasks.classify import UNSEEN, Classify, ClassifySeveral, scored, scores_of
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.task import HeadSettings

Write = Callable[..., Any]


def table(labels: str) -> str:
    return "text,label\n" + "".join(f"word {label * 2} and {place},{label}\n" for place, label in enumerate(labels))


def lines(*labels: list[str]) -> str:
    return "".join(
        json.dumps({"text": f"text {place} {some}", "labels": some}) + "\n" for place, some in enumerate(labels)
    )


def support(task: Any, evaluation: Any) -> float:
    """How many labels are true, known ones and others."""
    return sum(figures["support"] for figures in task.by_label(evaluation.statistics).values())


def test_accuracy_and_confusion_are_plain_counts_and_an_unseen_label_is_an_error(written: Write) -> None:
    small = written("a.csv", table("abcabc" * 4), table("abcz" * 5))
    model = small.model("bag").eval()
    evaluation = evaluate(small.task, model, small.batches())
    labels, wrong_or_right = small.task.spec.schema.labels, []
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
    unseen = [one for one in evaluation.examples if one.expected == UNSEEN]
    assert unseen
    assert not any(one.correct for one in unseen)


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
    (one,) = [one for one in evaluation.examples if one.expected.startswith(f"a, c, {UNSEEN}")]
    assert small.task.expected_text(one, ("x", "a", "c")) == "a, c, x"


def test_where_no_label_is_true_and_none_was_said_there_is_no_f1(written: Write) -> None:
    small = written("a.jsonl", lines(*([["a"], ["b"], []] * 6)), lines(["a"], [], []))
    model = small.model("bag").eval()
    with torch.no_grad():
        model.head.linear.weight.zero_()
        model.head.linear.bias.fill_(-9.0)  # says nothing, whatever it reads
    whole = evaluate(small.task, model, small.batches())
    labeled = {one.id for one in whole.examples if one.expected}
    empty = whole.subset(small.task, np.array([row for row, one in enumerate(whole.ids) if one not in labeled]))
    assert small.task.undefined(whole.statistics) == {} and empty.rows == 2
    assert small.task.undefined(empty.statistics) == dict.fromkeys(
        ("f1", "precision", "recall", "macro_f1"), "no labels"
    )
    assert empty.intervals(small.task).keys() & {"f1", "accuracy"} == {"accuracy"}


def test_what_the_loader_does_not_count_is_not_missed(written: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without the counting, unseen labels would not be there at all, and recall would flatter."""
    train = lines(*([["a"], ["b", "c"], ["a", "c"], []] * 6))
    small = written("a.jsonl", train, lines(["a"], ["b", "z"], ["x", "y", "c"], []))
    model = small.model("bag")
    counted = evaluate(small.task, model, small.batches())
    monkeypatch.setattr("seqloom.tasks.classify.unseen_labels", lambda _, rows: np.zeros(len(rows), np.int64))
    assert support(small.task, counted) == 6
    assert support(small.task, evaluate(small.task, model, small.batches())) == 3


def test_an_example_of_several_labels_is_right_only_if_all_are(small: Write) -> None:
    found = small("labels")
    for one in found.task.evaluate_batch(found.model(), found.batches()[0], None)[0]:
        assert one.correct == (one.predicted == one.expected) == bool(one.statistics[1])


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
    model = found.task.model(recipe, "nano", HeadSettings(0.1, (1.0, 3.0)))
    assert isinstance(model.head, ScoresHeadConfig if recipe == "linear" else ClassHeadConfig)
    assert (model.head.label_smoothing, model.head.class_weights) == (0.1, (1.0, 3.0))


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0, 3.0), (0.0, 0.0), (1.0, -1.0), (1.0, float("nan"))])
def test_class_weights_that_fit_no_labels_are_refused(small: Write, weights: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="weight"):
        small("csv").task.model("cnn", "nano", HeadSettings(class_weights=weights))


@pytest.mark.parametrize("kind", ["labels", "numbers", "text", "parallel"])
def test_class_weights_are_refused_where_there_is_no_choice_of_one_class(small: Write, kind: str) -> None:
    task = small(kind).task
    with pytest.raises(ConfigError, match="class weights are for"):
        task.model(task.recipes()[0], "nano", HeadSettings(class_weights=(1.0, 2.0)))


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_smoothing_is_refused_where_there_are_no_classes(small: Write, kind: str) -> None:
    with pytest.raises(ConfigError, match="smoothing is for single labels"):
        small(kind).task.model("cnn", "nano", HeadSettings(label_smoothing=0.1))


@pytest.mark.parametrize("kind", ["csv", "labels", "numbers"])
def test_linear_answers_every_question_about_a_text_with_a_weight_for_each_token_and_answer(
    small: Write, kind: str
) -> None:
    """One weight of a token moves the answer alone: nothing stands between the counts and the scores but a bias."""
    found = small(kind)
    assert "linear" in found.task.recipes()
    model = found.task.model("linear", "nano", HeadSettings())
    assert isinstance(model.head, UnmappedHead)
    assert found.task.adapted(model) == model
    found.task.require(model)
    assert model.parameters() == (model.encoder.input.parameters(1) + 1) * model.head.answers
    assert found.task.loss(model.build(), found.batches("train")[0], None)[0].total.isfinite()


def test_one_label_alone_is_no_choice(small: Write) -> None:
    spec = small("csv").task.spec
    with pytest.raises(ConfigError, match="the training set has 1 label"):
        Classify(spec._replace(schema=spec.schema._replace(labels=("only",))))


def test_the_targets_of_an_evaluation_do_not_reach_a_loss_by_mistake(written: Write) -> None:
    small = written("a.jsonl", lines(["a"], ["b"], ["a", "b"]), lines(["a"], ["z"]))
    (batch,) = small.batches()
    model = small.model("bag").eval()
    assert batch.targets.shape == (2, 3)
    loss, _ = small.task.loss(model, batch, None)
    known: Batch[Any, Any] = batch._replace(targets=batch.targets[:, :2])
    assert torch.equal(loss.total, model.loss(known).total)
    assert isinstance(model.config.head, LabelsHeadConfig)


def answers(small: Any, model: Any) -> tuple[list[str], list[str], np.ndarray]:
    """What is true, what is said, and the probabilities [N,K], of the dev set."""
    labels, true, said, likely = small.task.spec.schema.labels, [], [], []
    for batch in small.batches():
        true += [labels[number] if number >= 0 else UNSEEN for number in batch.targets.tolist()]
        for one in small.task.predict(model, batch.inputs):
            said.append(one.label)
            likely.append(list(one.scores.values()))
    return true, said, np.array(likely)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_every_figure_is_that_of_scikit_learn(written: Write, temperature: float) -> None:
    small = written("a.csv", table("abcabc" * 4), table("abcaac" * 5 + "zb"))
    small.task = small.task.calibrated(Calibration(temperature))
    model = small.model("bag").eval()
    evaluation = evaluate(small.task, model, small.batches())
    true, said, likely = answers(small, model)
    known = [number for number, label in enumerate(true) if label != UNSEEN]
    assert evaluation.metrics["accuracy"] == accuracy_score(true, said)
    assert evaluation.metrics["macro_f1"] == pytest.approx(f1_score(true, said, average="macro", zero_division=0))
    wanted_loss = log_loss(np.array(true)[known], likely[known], labels=small.task.spec.schema.labels)
    assert evaluation.metrics["loss"] == pytest.approx(wanted_loss, rel=1e-5)
    report = classification_report(true, said, output_dict=True, zero_division=0)
    for label, figures in small.task.by_label(evaluation.statistics).items():
        wanted = {"f1" if name == "f1-score" else name: value for name, value in report[label].items()}
        assert figures == pytest.approx(wanted)
    assert evaluation.metrics["calibration_error"] == pytest.approx(plain_calibration_error(true, said, likely))


def plain_calibration_error(true: list[str], said: list[str], likely: np.ndarray) -> float:
    right, sure, error = np.array(true) == np.array(said), likely.max(axis=1), 0.0
    for lower in range(15):
        inside = (sure > lower / 15) & (sure <= (lower + 1) / 15)
        error += abs(float((sure[inside] - right[inside]).sum())) / len(sure)
    return error


def test_the_macro_f1_of_several_labels_is_that_of_scikit_learn(written: Write) -> None:
    some = [["a"], ["b", "c"], ["a", "c"], [], ["c"]]
    small = written("a.jsonl", lines(*(some * 6)), lines(*(some * 3)))
    model, labels = small.model("bag").eval(), small.task.spec.schema.labels
    with torch.no_grad():
        model.head.linear.weight.mul_(20)  # so that it says this and that
    said, true = [], []
    for batch in small.batches():
        said += [[label in one.labels for label in labels] for one in small.task.predict(model, batch.inputs)]
        true += (batch.targets[:, : len(labels)] > 0).tolist()
    evaluation = evaluate(small.task, model, small.batches())
    for name, average in (("f1", "micro"), ("macro_f1", "macro")):
        assert evaluation.metrics[name] == pytest.approx(f1_score(true, said, average=average, zero_division=0))
    assert evaluation.metrics["accuracy"] == accuracy_score(true, said)


@pytest.mark.parametrize("kind", ["csv", "labels"])
def test_sums_of_shares_are_the_sums_of_all_and_rows_may_be_taken_often(small: Write, kind: str) -> None:
    found = small(kind)
    rows = evaluate(found.task, found.model("bag"), found.batches()).statistics
    assert np.allclose(found.task.summed(rows), found.task.summed(rows[:3]) + found.task.summed(rows[3:]))
    times = np.random.default_rng(0).integers(0, 4, (5, len(rows)))
    together = found.task.summed(rows, times)
    for row, one in zip(together, times, strict=True):
        assert np.allclose(row, found.task.summed(np.repeat(rows, one, axis=0)))
        assert np.allclose(row, found.task.summed(rows, one))


def test_a_temperature_is_found_that_lowers_the_loss_and_changes_no_label(small: Write) -> None:
    found = small("csv")
    model = found.model("bag").eval()
    with torch.no_grad():
        model.head.linear.weight.mul_(30)  # much too sure
        calibration = found.task.fitted(model, found.batches()).shipped
    assert calibration.temperature > 1 and calibration.thresholds == ()
    calibrated = found.task.calibrated(calibration)
    before, after = (evaluate(task, model, found.batches()) for task in (found.task, calibrated))
    assert after.metrics["loss"] < before.metrics["loss"]
    assert after.metrics["accuracy"] == before.metrics["accuracy"]
    assert after.confusion == before.confusion
    inputs = found.batches()[0].inputs
    assert [one.label for one in found.task.predict(model, inputs)] == [
        one.label for one in calibrated.predict(model, inputs)
    ]
    with torch.no_grad():
        assert found.task.fitted(model, found.batches()).shipped == calibration


@pytest.mark.parametrize("name", ["f1", "macro_f1"])
def test_thresholds_are_found_that_raise_the_f1_that_decides(written: Write, name: str) -> None:
    draws = np.random.default_rng(0)
    some = [["a"] if draws.random() < 0.3 else ["b", "a"] if draws.random() < 0.3 else ["c"] for _ in range(60)]
    small = written("a.jsonl", lines(*some), lines(*some))
    task, model = small.task.with_metric(name), small.model("bag").eval()
    with torch.no_grad():
        model.head.linear.bias.fill_(-1.0)  # says nothing by itself
        calibration = task.fitted(model, small.batches()).shipped
    calibrated = task.calibrated(calibration)
    before, after = (evaluate(one, model, small.batches()).metrics for one in (task, calibrated))
    assert after[name] > before[name]
    assert after["loss"] <= before["loss"]
    for one in calibrated.predict(model, small.batches()[0].inputs):
        above = [score > bound for score, bound in zip(one.scores.values(), calibration.thresholds, strict=True)]
        assert [label in one.labels for label in one.scores] == above


def test_a_calibration_looks_at_no_more_scores_than_it_needs(small: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    found = small("csv")
    model, batches = found.model("bag").eval(), found.batches()
    assert len(batches) > 1
    monkeypatch.setattr("seqloom.tasks.classify.MOST_SCORES", 1)
    with torch.no_grad():
        few = found.task.fitted(model, batches)
        assert few == found.task.fitted(model, batches[:1])


def test_a_calibration_of_many_scores_looks_at_batches_from_one_end_to_the_other(small: Write) -> None:
    found = small("csv")
    model, batches = found.model("bag").eval(), found.batches()
    many = [batches[0]._replace(ids=(str(number),)) for number in range(100)]
    scores = scores_of(model, batches[0].inputs).numel()
    for most in (1, 4 * scores, 7 * scores, 10**9):
        with torch.no_grad():
            seen = scored(model, many, most)
        numbers = [int(id_) for id_ in seen.ids]
        assert len(set(np.diff(numbers))) <= 1  # every k-th
        assert seen.scores.numel() <= most or len(numbers) == 1
        assert len(numbers) == 1 or numbers[-1] >= 64
        assert most < 10**9 or numbers == list(range(100))


def test_rows_that_found_thresholds_are_not_judged_by_them(written: Write) -> None:
    draws = np.random.default_rng(0)
    some = [[label for label in "abcdefgh" if draws.random() < 0.2] for _ in range(80)]  # of which no word tells
    small = written("a.jsonl", lines(*some), lines(*some))
    model = small.model("bag").eval()
    with torch.no_grad():
        model.head.linear.bias.fill_(-1.5)  # as often as labels are there
        fitted = small.task.fitted(model, small.batches())
        looked = small.task.for_validation(model, small.batches())
    tasks = small.task.calibrated(fitted.shipped), small.task.calibrated(fitted.shipped, fitted.rows), looked
    flattered, told, look = (evaluate(task, model, small.batches()).metrics for task in tasks)
    assert told["f1"] < flattered["f1"]
    assert look["f1"] == told["f1"]
    assert look["loss"] == evaluate(small.task, model, small.batches()).metrics["loss"]


@pytest.mark.parametrize("kind", ["csv", "labels"])
def test_the_macro_f1_may_decide(small: Write, kind: str) -> None:
    task = small(kind).task.with_metric("macro_f1")
    assert task.metric.name == "macro_f1" and task.metric.higher_is_better
