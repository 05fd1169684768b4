"""Vectors of texts: figures against scipy and loops, and the laws of batches, chunks and objectives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from scipy.stats import pearsonr, spearmanr

from objectives_common import EVERY, OBJECTIVES, ROWS
from seqloom import recipes
from seqloom.config.heads import NextTokenHeadConfig, Pooling
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import (
    AnyObjective,
    ContrastConfig,
    ElementModelConfig,
    EmbedderConfig,
    ScoredCosineConfig,
    ViewsConfig,
)
from seqloom.config.training import ByLengthConfig
from seqloom.data.loader import collate
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError
from seqloom.nn.objectives import related
from seqloom.tasks.embed import EmbedScored
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.task import HeadSettings, task_of

Write = Callable[..., Any]
NAMED = pytest.mark.parametrize(
    ("kind", "objective"), EVERY, ids=lambda one: one if isinstance(one, str) else one.kind()
)


def built(small: Any, objective: AnyObjective | None = None, **changed: Any) -> Any:
    """A tiny model without dropout, the same one every time."""
    config = small.task.model("bag", "nano", HeadSettings(objective=objective))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return replace(config, encoder=replace(config.encoder, dropout=0.0), dropout=0.0, **changed).build()


@NAMED
def test_every_objective_learns_from_a_batch_and_is_judged(table: Any, kind: str, objective: AnyObjective) -> None:
    small = table(kind)
    model = built(small, objective)
    loss, _ = small.task.loss(model, small.batches("train")[0], None)
    loss.mean.backward()
    assert torch.isfinite(loss.mean)
    assert model.encoder.input.table.grad.abs().sum() > 0
    found = evaluate(small.task, model, small.batches())
    assert found.statistics.shape == (ROWS, small.task.statistics)
    assert {small.task.metric.name, "loss"} <= set(found.metrics)
    assert all(np.isfinite(value) for value in found.metrics.values())


@NAMED
def test_the_usual_objective_is_one_that_reads_the_data(table: Any, kind: str, objective: AnyObjective) -> None:
    task = table(kind).task
    assert task.model("bag", "nano", HeadSettings()).objective == OBJECTIVES[kind][0]
    assert task.model("bag", "nano", HeadSettings(objective=objective.kind())).objective == objective


@pytest.mark.parametrize(("kind", "name"), [("text", "rank"), ("pair", "triplet"), ("scored", "contrast")])
def test_an_objective_that_cannot_read_the_data_is_refused_with_those_that_can(
    table: Any, kind: str, name: str
) -> None:
    task = table(kind).task
    with pytest.raises(ConfigError, match=f"objective '{name}' needs .*choose from .*{OBJECTIVES[kind][0].kind()}"):
        task.model("bag", "nano", HeadSettings(objective=name))


def test_correlations_are_those_of_scipy(table: Any) -> None:
    small = table("scored")
    model = built(small).eval()
    (batch,) = small.batches(batching=ByLengthConfig(batch_tokens=10_000))
    cosines = (model(batch.inputs.first) * model(batch.inputs.second)).sum(dim=1).tolist()
    metrics = evaluate(small.task, model, small.batches()).metrics
    assert metrics["pearson"] == pytest.approx(pearsonr(cosines, batch.targets.tolist()).statistic, abs=1e-5)
    assert metrics["spearman"] == pytest.approx(spearmanr(cosines, batch.targets.tolist()).statistic, abs=1e-5)


def test_accuracy_is_how_often_the_own_text_is_the_nearest_of_the_batch(table: Any) -> None:
    small = table("pair")
    model = built(small).eval()
    (batch,) = small.batches(batching=ByLengthConfig(batch_tokens=10_000))
    first, second = batch.inputs
    near, no_negative = model(first) @ model(second).T, related(first, second, second)
    right = [
        all(near[row, row] > near[row, other] for other in range(ROWS) if other != row and not no_negative[row, other])
        for row in range(ROWS)
    ]
    found = evaluate(small.task, model, [batch])
    assert found.metrics["accuracy"] == pytest.approx(np.mean(right))


def test_rows_of_one_batch_have_losses_of_their_own_so_that_an_interval_can_be_told(table: Any) -> None:
    small = table("scored")
    (batch,) = small.batches(batching=ByLengthConfig(batch_tokens=10_000))
    losses = [one.statistics[-2] for one in small.task.evaluate_batch(built(small).eval(), batch, None)[0]]
    assert max(losses) > 1.1 * min(losses) > 0


def test_how_scored_pairs_are_cut_into_batches_changes_no_figure(table: Any) -> None:
    small = table("scored")
    model, prepared = built(small, ScoredCosineConfig()), small.prepared
    one_by_one = [collate(prepared.schema, prepared.columns, prepared.splits["dev"][at : at + 1]) for at in range(ROWS)]
    first, second = (evaluate(small.task, model, batches).metrics for batches in (one_by_one, small.batches()))
    assert first == pytest.approx(second, rel=1e-5)


@pytest.mark.parametrize("kind", ["pair", "triple", "scored"])
def test_the_loss_of_an_evaluation_is_that_of_training_without_dropout(table: Any, kind: str) -> None:
    small = table(kind)
    model = built(small).eval()
    with torch.no_grad():
        losses = [small.task.loss(model, batch, None)[0] for batch in small.batches()]
    mean = sum(float(one.total) for one in losses) / sum(float(one.weight) for one in losses)
    assert evaluate(small.task, model, small.batches()).metrics["loss"] == pytest.approx(mean, rel=1e-5)


def test_a_text_alone_is_judged_by_what_it_leaves_out_itself_wherever_it_stands(table: Any) -> None:
    small = table("text")
    model = built(small)
    elsewhere = [batch._replace(ids=tuple(f"{id_}9" for id_ in batch.ids)) for batch in small.batches()]
    first, second = (evaluate(small.task, model, batches).metrics for batches in (small.batches(), elsewhere))
    assert first == second
    assert first["loss"] > 1e-3  # a text beside itself would be found without any


def test_scores_are_scaled_by_the_range_of_the_training_part(table: Any) -> None:
    small = table("scored")
    targets = torch.cat([batch.targets for batch in small.batches("train")])
    scaled = small.task.scaled(targets)
    assert (float(scaled.min()), float(scaled.max())) == (0.0, 1.0)


@pytest.mark.parametrize("recipe", recipes.names("embedder"))
def test_a_batch_equals_its_rows_one_by_one(table: Any, recipe: str) -> None:
    small = table("text")
    model = small.model(recipe).eval()
    batch = small.batches(batching=ByLengthConfig(batch_tokens=10_000))[0].inputs
    with torch.no_grad():
        whole = model(batch)
        rows = [model(batch.select(torch.tensor([row])).cut(0, int(batch.lengths[row]))) for row in range(8)]
    torch.testing.assert_close(whole[:8], torch.cat(rows), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(whole.norm(dim=1), torch.ones(len(whole)))


@pytest.mark.parametrize("pooling", ["mean", "max", "last", "first", "attention"])
def test_any_pooling_may_be_asked_for(table: Any, pooling: Pooling) -> None:
    small = table("pair")
    model = small.task.model("gru", "nano", HeadSettings(pooling=pooling)).build()
    assert model.config.pooling == pooling
    assert torch.isfinite(small.task.loss(model, small.batches()[0], None)[0].mean)


@pytest.mark.parametrize("rows", [1, 3, ROWS])
@pytest.mark.parametrize("kind", ["pair", "triple", "scored"])
def test_micro_batches_give_the_same_loss_and_gradients(table: Any, kind: str, rows: int) -> None:
    small = table(kind)
    (batch,) = small.batches(batching=ByLengthConfig(batch_tokens=10_000))
    found = []
    for model in (built(small).double(), built(small, micro_batch=rows).double()):
        loss, _ = small.task.loss(model, batch, None)
        loss.total.backward()
        found.append([loss.total.detach(), *(weight.grad for weight in model.parameters())])
    torch.testing.assert_close(*found, atol=1e-10, rtol=1e-8)


def test_micro_batches_draw_the_same_dropout_again(table: Any) -> None:
    """Were the second computation to draw anew, the gradient would not be that of the loss: finite differences tell."""
    small = table("pair")
    batch = small.batches()[0]
    model = replace(small.task.model("bag", "nano", HeadSettings(micro_batch=2)), dropout=0.5).build().double()

    def loss() -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return small.task.loss(model, batch, None)[0].total

    loss().backward()
    table_, step = model.encoder.input.table, 1e-6
    at = int(table_.grad.abs().argmax())
    slope = float(table_.grad.flatten()[at])
    flat = table_.data.view(-1)
    flat[at] += step
    above = float(loss().detach())
    flat[at] -= 2 * step
    below = float(loss().detach())
    assert (above - below) / (2 * step) == pytest.approx(slope, rel=1e-4)


def test_no_more_rows_than_asked_for_are_computed_at_once(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small = table("pair")
    (batch,) = small.batches(batching=ByLengthConfig(batch_tokens=10_000))
    model = built(small, micro_batch=5)
    seen: list[int] = []
    model.encoder.register_forward_pre_hook(lambda _, given: seen.append(len(given[0].lengths)))
    small.task.loss(model, batch, None)[0].total.backward()
    assert max(seen) == 5
    assert sum(seen) == 4 * ROWS  # two texts, each computed twice


def test_the_encoder_of_any_model_may_be_the_start(table: Any) -> None:
    task = table("pair").task
    inputs = TokensConfig(vocab_size=task.spec.tokenizer.vocab_size)
    classifier = recipes.classifier("gru", inputs=inputs, num_classes=3, size="nano")
    masked = recipes.masked_model("transformer", inputs=inputs, size="nano")
    views = recipes.embedder("cnn", inputs=inputs, objective=ViewsConfig(), size="nano")
    for start in (classifier, masked, views):
        found = task.adapted(start)
        assert found.encoder == start.encoder
        assert found.objective == ContrastConfig()
    assert task.adapted(classifier).pooling == classifier.pooling
    assert isinstance(masked, ElementModelConfig) and isinstance(masked.head, NextTokenHeadConfig)


def test_a_classifier_may_start_from_an_embedder(written: Write) -> None:
    small = written("a.csv", "text,label\na,x\nb,y\n", "text,label\na,x\nb,y\n")
    inputs = TokensConfig(vocab_size=small.task.spec.tokenizer.vocab_size)
    embedder = recipes.embedder("bilstm", inputs=inputs, size="nano")
    found = small.task.adapted(embedder)
    assert (found.encoder, found.pooling) == (embedder.encoder, embedder.pooling)


def test_a_model_of_any_texts_is_judged_by_scored_pairs(table: Any) -> None:
    """The same vectors have the same correlations, whatever the model was trained on."""
    scored = table("scored")
    spec = scored.task.spec._replace(schema=Schema("text", "related"), units=(), numbers=0)
    config = EmbedderConfig(encoder=built(scored).config.encoder)
    task = task_of(spec)
    task.require(config)
    judge = task.for_schema(scored.prepared.schema)
    assert isinstance(judge, EmbedScored)
    torch.manual_seed(0)
    model = config.build()
    mine, theirs = (evaluate(one, model, scored.batches()).metrics for one in (judge, scored.task))
    assert {name: mine[name] for name in ("pearson", "spearman")} == pytest.approx(
        {name: theirs[name] for name in ("pearson", "spearman")}
    )
    with pytest.raises(ConfigError, match="the model reads text and predicts related, but the data has text and label"):
        task.for_schema(Schema("text", "label"))


def test_settings_of_labels_are_refused(table: Any) -> None:
    with pytest.raises(ConfigError, match="for single labels and text, but embed has neither"):
        table("pair").task.model("bag", "nano", HeadSettings(label_smoothing=0.1))
