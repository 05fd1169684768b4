"""Laws of every task on every kind of input and target."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import EmbedderConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.config.training import ByLengthConfig, StreamsConfig
from seqloom.data.kinds.numbers import NumbersTarget
from seqloom.data.loader import collate
from seqloom.data.schema import TARGET_KINDS
from seqloom.errors import ConfigError
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.task import TASKS, HeadSettings, ModelSpec, task_class, task_of

FIRST = ["csv", "conll", "text"]
FURTHER = [
    "parallel",
    "labels",
    "numbers",
    "pairs",
    "vectors",
    "pictures",
    "words with a label",
    "several numbers",
    "npz numbers",
    "conllu",
    "vectors with tags",
    "vectors to text",
    "pictures to text",
]
KINDS = [*FIRST, *(pytest.param(kind, marks=pytest.mark.slow) for kind in FURTHER)]
Find = Callable[[str], Any]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tiny_model_of_the_default_recipe_learns_from_a_batch_and_is_judged(small: Find, kind: str) -> None:
    found = small(kind)
    task, model = found.task, found.model()
    loss, state = task.loss(model, found.batches("train")[0], None)
    loss.mean.backward()
    assert state is None
    assert all(bool(torch.isfinite(weight.grad).all()) for weight in model.parameters() if weight.grad is not None)
    assert any(weight.grad is not None and bool(weight.grad.any()) for weight in model.parameters())
    evaluation = evaluate(task, model, found.batches("dev"))
    assert evaluation.statistics.shape == (len(found.prepared.splits["dev"]), task.statistics)
    assert {"loss", task.metric.name} <= set(evaluation.metrics)
    assert all(np.isfinite(value) for value in evaluation.metrics.values())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_how_a_set_is_cut_into_batches_changes_no_figure_and_no_sample(small: Find, kind: str) -> None:
    found = small(kind)
    model, prepared = found.model(), found.prepared
    rows = prepared.splits["dev"]
    one_by_one = [collate(prepared.schema, prepared.columns, rows[at : at + 1]) for at in range(len(rows))]
    ways = [one_by_one, found.batches(batching=ByLengthConfig(batch_tokens=10_000))]
    first, second = (evaluate(found.task, model, batches, keep=5) for batches in ways)
    assert first.metrics == pytest.approx(second.metrics, rel=1e-5)
    assert [one.id for one in first.examples] == [one.id for one in second.examples]
    assert [one.expected for one in first.examples] == [one.expected for one in second.examples]
    assert first.rows == second.rows == len(rows)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_an_evaluation_is_that_of_training_without_dropout_and_smoothing(small: Find, kind: str) -> None:
    found = small(kind)
    task, model = found.task, found.model().eval()
    batches = found.batches("train")
    with torch.no_grad():
        losses = [task.loss(model, batch, None)[0] for batch in batches]
    expected = sum(loss.total.double() for loss in losses) / sum(loss.weight.double() for loss in losses)
    assert evaluate(task, model, batches).metrics["loss"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_what_was_judged_and_every_row_has_one(small: Find, kind: str) -> None:
    found = small(kind)
    model, prepared = found.model().eval(), found.prepared
    rows = prepared.splits["dev"]
    chosen = {name: column.select(rows) for name, column in prepared.columns.items()}
    with torch.no_grad():
        answers = found.task.predict(model, prepared.schema.input.collate(chosen))
        judged = found.task.evaluate_batch(model, collate(prepared.schema, prepared.columns, rows), None)[0]
    assert len(answers) == len(rows)
    if not prepared.schema.target.is_running:
        # texts are cut to a line for people
        assert [one.to_text()[:150] for one in answers] == [one.predicted[:150] for one in judged]
    assert all(isinstance(one.to_json(), dict) for one in answers)


@pytest.mark.parametrize("kind", KINDS)
def test_every_recipe_makes_a_model_that_the_task_takes(small: Find, kind: str) -> None:
    task = small(kind).task
    assert len(set(task.recipes())) == len(task.recipes()) > 2
    for recipe in task.recipes():
        model = task.model(recipe, "nano", HeadSettings())
        task.require(model)
        assert task.adapted(model) == model, recipe


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_another_shape_is_refused_with_the_shape_that_is_needed(small: Find, kind: str) -> None:
    task = small(kind).task
    tokens = TokensConfig(vocab_size=10)
    embedder = EmbedderConfig(encoder=EncoderConfig(input=tokens, width=4))  # its encoder would do for some
    translator = recipes.translator("seq2seq", source=tokens, target_vocab_size=10, size="nano")
    for refuse, other in (
        (task.require, embedder),
        (task.adapted, embedder if task.name == "translate" else translator),
    ):
        with pytest.raises(
            ConfigError, match=r"needs a model of kind .*, found one of kind (embedder|encoder-decoder)"
        ):
            refuse(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_reads_something_else_is_refused(small: Find, kind: str) -> None:
    found = small(kind)
    task = found.task
    model = task.model(task.recipes()[0], "nano", HeadSettings())
    sizes = tuple(size + 1 for size in task.spec.sizes)
    other = task_of(task.spec._replace(sizes=sizes, tokenizer=_larger(task.spec.tokenizer)))
    with pytest.raises(ConfigError, match=r"the data has .*, but the model reads"):
        other.require(model)


class _Larger:
    def __init__(self, tokenizer: Any) -> None:
        self.config, self.vocab_size = tokenizer.config, tokenizer.vocab_size + 1


def _larger(tokenizer: Any) -> Any:
    return None if tokenizer is None else _Larger(tokenizer)


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_is_shown_in_one_short_line(small: Find, kind: str) -> None:
    found = small(kind)
    line = found.prepared.shown(int(found.prepared.splits["dev"][0]))
    assert 0 < len(line) <= 200
    assert "\n" not in line


@pytest.mark.parametrize("kind", ["csv", "labels", "numbers", "conll", "parallel"])
def test_running_text_is_for_language_models_alone(small: Find, kind: str) -> None:
    found = small(kind)
    with pytest.raises(ConfigError, match="is for language models"):
        found.task.loader(found.prepared, "train", StreamsConfig(), seed=0)
    with pytest.raises(ConfigError, match="is for language models"):
        found.task.require_batching(found.model(), StreamsConfig())


def test_every_target_has_a_task_and_every_task_a_name() -> None:
    assert {name: task_class(name).name for name in TASKS} == {name: kind.task for name, kind in TARGET_KINDS.items()}


def test_a_model_starts_anew_with_a_head_for_other_labels(small: Find) -> None:
    found = small("csv")
    model = found.task.model("cnn", "nano", HeadSettings())
    three = task_of(found.task.spec._replace(schema=found.task.spec.schema._replace(labels=("a", "b", "c"))))
    with pytest.raises(ConfigError, match="3 labels"):
        three.require(model)
    adapted = three.adapted(model)
    three.require(adapted)
    assert replace(adapted, head=model.head) == model


@pytest.mark.parametrize(("whole", "each"), [("words with a label", "conll"), ("vectors", "vectors with tags")])
def test_a_tagger_and_a_classifier_take_over_the_encoder_of_each_other(small: Find, whole: str, each: str) -> None:
    classify, tag = small(whole).task, small(each).task
    tag = task_of(tag.spec._replace(tokenizer=classify.spec.tokenizer, sizes=classify.spec.sizes))
    model = classify.model("gru", "nano", HeadSettings())
    tagger = tag.adapted(model)
    tag.require(tagger)
    again = classify.adapted(tagger)
    classify.require(again)
    assert model.encoder == tagger.encoder == again.encoder


def test_a_tagger_cannot_read_what_linear_scores(small: Find) -> None:
    classify, tag = small("words with a label").task, small("conll").task
    with pytest.raises(ConfigError, match="no other head can use it"):
        tag.adapted(classify.model("linear", "nano", HeadSettings()))


def test_numbers_take_over_the_body_of_a_classifier(small: Find) -> None:
    model = small("csv").task.model("cnn", "nano", HeadSettings())
    spec: ModelSpec = small("csv").task.spec
    numbers = task_of(spec._replace(schema=spec.schema._replace(target=NumbersTarget()), numbers=3))
    numbers.require(numbers.adapted(model))
    with pytest.raises(ConfigError, match="3 numbers"):
        numbers.require(model)
