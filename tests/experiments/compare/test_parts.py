"""The parts of a comparison that need no training: sizes, costs, lengths, leaks, words and refusals."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from comparing_common import ScoreWorld, Shares, World, accuracy, judged, run_evaluation
from seqloom import recipes
from seqloom.cli import app
from seqloom.config.data import DataConfig, GivenSplit
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import AnyModel
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DataError
from seqloom.experiments.compare import costs
from seqloom.experiments.compare.comparison import baseline_of, changes
from seqloom.experiments.compare.costs import PROMPT, _Counting, inputs_of, measured_rows
from seqloom.experiments.compare.plan import Budget, ComparisonPlan, ComparisonStarted, scaled
from seqloom.experiments.compare.progress import told
from seqloom.experiments.compare.results import Comparison, Cost, LeakCount, Spread
from seqloom.experiments.compare.statistics import MOST_MORE, Margin, SeedSpread, Tables, added, resampled
from seqloom.experiments.compare.verdicts import ComparedScores, by_length, count_leaks
from seqloom.report.numbers import duration
from seqloom.tasks.classify import Classify, ClassifySeveral
from seqloom.tasks.task import Metric, ModelSpec
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve

pytestmark = pytest.mark.slow

TOKENS = TokensConfig(vocab_size=500)


class Ratios(Shares):
    """The same for a figure that is no mean of examples."""

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"accuracy": np.asarray(sums[..., 0] / (1 + sums[..., 1]))}


def weighed(worlds: dict[str, float], *, seeds: int = 3, spread: float = 0.003, task: Any = None) -> Comparison:
    """A comparison of simulated models whose accuracies differ by these gaps from 0.8."""
    draws = np.random.default_rng(1)
    example = draws.standard_normal(1000)
    world = World(seeds=seeds, spread=spread)
    tables = {name: world._model(0.8 + gap, example, draws) for name, gap in worlds.items()}
    return judged(tables, task, np.arange(1000) // 100 + 1)


@pytest.mark.parametrize("name", [name for name in recipes.names("classifier") if name != "linear"])
def test_a_recipe_is_made_as_wide_as_gives_about_so_many_parameters(name: str) -> None:
    model = recipes.classifier(name, inputs=TOKENS, num_classes=3)
    made, said = scaled(model, 300_000)
    assert said == ""
    assert made.parameters() == pytest.approx(300_000, rel=0.15)
    assert sum(one.numel() for one in made.build().parameters()) == made.parameters()


def test_a_model_without_a_width_stays_and_says_so() -> None:
    model = recipes.classifier("linear", inputs=TOKENS, num_classes=3)
    made, said = scaled(model, 1_000)
    assert made == model
    assert said == f"cannot be scaled: {model.parameters():,} parameters instead of 1,000"


@pytest.mark.parametrize(
    "model",
    [
        recipes.translator("seq2seq-dot", source=TOKENS, target_vocab_size=300),
        recipes.picture_classifier("conv2d", height=8, width=8, num_classes=3),
    ],
)
def test_both_sides_of_a_translator_and_the_filters_of_a_picture_grow(model: AnyModel) -> None:
    assert scaled(model, 400_000)[0].parameters() == pytest.approx(400_000, rel=0.15)


def test_a_task_without_linear_has_its_smallest_recipe_as_the_baseline() -> None:
    class Models:
        name = "lm"

        def recipes(self) -> list[str]:
            return ["gpt", "rnn", "bag"]

        def model(self, name: str, *_: object) -> AnyModel:
            return recipes.language_model(name, vocab_size=50)

    name, why = baseline_of(Models(), _plan())  # type: ignore[arg-type]
    assert name == "bag" and "linear is not available for lm" in why


def test_filters_over_pictures_are_compared_with_hidden_layers_over_pixels() -> None:
    class Pictures:
        name = "classify"

        def recipes(self) -> list[str]:
            return ["conv2d", *(name for name in recipes.names("picture-classifier") if name != "conv2d")]

    name, why = baseline_of(Pictures(), _plan())  # type: ignore[arg-type]
    assert (name, why) == ("mlp", "baseline: mlp (linear is not available for classify)")


def test_memory_is_that_of_the_tensors_that_are_alive_at_once() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x + 1  # 4,000 bytes
            second = first + 1  # 4,000 more, both alive
            del first
            return second + 1  # 4,000 more, and one is gone

    given = torch.zeros(1000)  # not counted: it was there before
    with _Counting() as counting:
        kept = Twice()(given)
    assert counting.most == 8_000
    assert counting.alive == 4_000
    del kept
    assert counting.alive == 0


def test_a_view_costs_nothing() -> None:
    with _Counting() as counting:
        whole = torch.ones(1000)
        kept = [whole[:10], whole.view(10, 100), whole.t()]
    assert counting.most == 4_000 and kept


@pytest.mark.parametrize(("task", "read"), [("lm", PROMPT), ("classify", 3 * PROMPT)])
def test_only_a_language_model_gets_the_beginning_of_a_long_document(task: Any, read: int, tmp_path: Path) -> None:
    draws, lines = np.random.default_rng(0), list[str]()
    for row in range(20):
        words = " ".join(draws.choice(["elm", "fir", "oak"], 3 * PROMPT))
        lines.append(words if task == "lm" else json.dumps({"text": words, "label": "ab"[row % 2]}))
    (tmp_path / (name := "a.txt" if task == "lm" else "a.jsonl")).write_text("\n".join(lines) + "\n")
    data = DataConfig(train=(str(tmp_path / name),), task=task)
    prepared = resolve(data, RunRequest(), cache=tmp_path / "cache").prepared
    inputs = inputs_of(prepared, measured_rows(prepared, "dev")[:2])
    assert inputs.lengths.tolist() == [read, read]


def test_no_prediction_begins_after_the_time_and_there_is_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def slow(*_: Any) -> float:
        clock[0] += 2.0
        return 2.0

    monkeypatch.setattr(costs, "timed", slow)
    monkeypatch.setattr(costs.time, "perf_counter", lambda: clock[0])
    model: Any = None
    for seconds, count in ((0.0, 1), (5.0, 3), (1e9, 16)):
        assert costs.timed_alone(model, range(16), seconds) == [2000.0] * count


def test_bins_of_lengths_hold_every_example_once_and_score_as_their_rows() -> None:
    (table, _), lengths = World(seeds=2).answers(np.random.default_rng(0)), np.arange(1000) % 37
    found = by_length([table], lengths, accuracy)
    assert sum(one.rows for one in found) == 1000
    assert all(one.low <= one.high < other.low for one, other in pairwise(found))
    inside = (lengths >= found[1].low) & (lengths <= found[1].high)
    assert found[1].scores[0] == pytest.approx(table[:, inside, 0].mean())


def test_inputs_that_are_equally_long_have_no_bins() -> None:
    assert by_length(World().answers(np.random.default_rng(0)), np.full(1000, 7), accuracy) == ()


def test_a_mean_is_weighed_by_two_numbers_and_a_ratio_by_all_of_them() -> None:
    rows = np.column_stack([np.arange(9.0) % 2, np.ones(9), np.arange(9.0)])
    mean, ratio = (Tables.made(task, {"a": [rows, rows]}) for task in (Shares(), Ratios()))  # type: ignore[arg-type]
    assert (mean.of["a"].shape, ratio.of["a"].shape) == ((2, 9, 2), (2, 9, 3))
    assert mean.measure(mean.of["a"].sum(axis=1)) == pytest.approx([4 / 9, 4 / 9])


def test_a_clear_winner_is_called_one_with_its_lead() -> None:
    found = weighed({"small": 0.0, "large": 0.08})
    assert [one.name for one in found.models] == ["large", "small"]
    assert found.verdict("large", "small") == "better" and found.verdict("small", "large") == "worse"
    assert found.sentence().startswith("large is the best model: accuracy 0.88")
    assert "on the dev set. It is better than the next, small, by 0.0" in found.sentence()
    assert found.rivals == (found.model("large"),)


def test_models_that_are_not_told_apart_are_undecided_and_the_cheaper_one_is_named_after_the_winner() -> None:
    found = weighed({"small": 0.0, "large": 0.0})
    assert found.winner == found.model("large")
    assert found.sentence().startswith("large has the best score: accuracy 0.")
    cheaper = "The cheapest model that is not significantly worse is small (100 parameters)."
    assert f" on the dev set. {cheaper} Undecided between large and small" in found.sentence()


def test_less_is_better_where_the_metric_says_so() -> None:
    class Errors(Shares):
        metric = Metric("accuracy", higher_is_better=False)

    found = weighed({"small": 0.0, "large": 0.08}, task=Errors())
    assert found.models[0].name == "small" and found.verdict("small", "large") == "better"


def test_one_seed_gives_no_verdict_anywhere() -> None:
    found = weighed({"small": 0.0, "large": 0.08, "other": 0.02}, seeds=1)
    assert {pair.verdict for pair in found.pairs} == {"no verdict"}
    assert {(pair.p, pair.p_adjusted) for pair in found.pairs} == {(None, None)}
    assert found.cheapest is None and found.verdict("large", "small") == "no verdict"
    assert found.sentence().startswith("large has the best score: accuracy 0.9")
    assert " on the dev set. With one seed there is no verdict: use --seeds 3." in found.sentence()
    page = found.html()
    for shown in (found.text(100), page[page.index("<main") :], json.dumps(found.to_json())):
        assert "no verdict" in shown
        assert not re.search(r"wins|\bbetter\b|worse|cheapest|difference shown|marked", shown)


def test_one_seed_shows_scores_with_intervals_over_examples() -> None:
    found = weighed({"small": 0.0, "large": 0.08}, seeds=1)
    score = found.model("small").score
    assert score.high - score.value == pytest.approx(1.96 * math.sqrt(score.value * (1 - score.value) / 1000), rel=0.1)
    assert all("over examples only" in shown for shown in (found.text(200), found.html()))


def test_an_undecided_pair_names_seeds_rows_and_time_in_text_page_and_json() -> None:
    found = weighed({"small": 0.0, "large": 0.02}, seeds=2, spread=0.02)
    (pair,) = found.pairs
    assert pair.verdict == found.verdict("small", "large") == found.verdict("large", "small") == "undecided"
    assert pair.more_seeds is not None and 2 <= pair.more_seeds <= MOST_MORE
    assert found.seed_seconds == sum(one.seconds for one in found.models)
    said = f"about {pair.more_seeds} more seeds ({duration(pair.more_seeds * found.seed_seconds)} of training)"
    assert said in found.sentence()
    assert all(f"undecided: {said}" in shown for shown in (found.text(250), found.html()))
    plain = found.to_json()["pairs"][0]
    assert (plain["verdict"], plain["more_seeds"]) == ("undecided", pair.more_seeds)


def test_the_winner_comes_first_and_what_is_true_of_several_pairs_is_said_once() -> None:
    found = weighed({"small": 0.0, "large": 0.0, "other": 0.0})
    pairs = tuple(
        msgspec.structs.replace(one, verdict="undecided", more_seeds=None, rows_needed=None) for one in found.pairs
    )
    found = msgspec.structs.replace(found, pairs=pairs)
    best, *rest = [one.name for one in found.models]
    assert found.winner == found.models[0]
    first = f"{best} has the best score: accuracy "
    assert found.sentence().startswith(first) and f">{first}" in found.html()
    assert f"Undecided between {best} and {rest[0]} or {rest[1]}: neither 10 more seeds" in found.sentence()
    text = " ".join(found.text(250).split())
    assert text.count("90 times the rows") == 2, "in the sentence and below the pairs"
    assert "Undecided without a number: neither 10 more seeds nor 90 times the rows would decide." in text


def test_a_terminal_shows_one_p_value_for_each_pair_and_a_page_all() -> None:
    found = weighed({"small": 0.0, "large": 0.02})
    names = ["p (equal)", "p (seeds and examples)", "p (examples)", "p (McNemar)"]
    assert "p (Holm)" in found.text(250) and not any(name in found.text(250) for name in names)
    assert all(name in found.html() for name in ["p (Holm)", *names])


def test_rows_that_leak_have_a_heading_only_if_there_are_some() -> None:
    found, title = weighed({"small": 0.0, "large": 0.02}), "Evaluated rows that are in the training set"
    none = LeakCount(split="dev", rows=100, exact=0, near=0, compared=100)
    assert title not in msgspec.structs.replace(found, leak=none).text()
    some = msgspec.structs.replace(none, exact=1, samples=(("a b", "a b"),))
    assert title in msgspec.structs.replace(found, leak=some).text()


def test_two_seeds_are_enough_for_90_against_29() -> None:
    """Although the seeds of the worse model lie 14 points apart, and there are three models."""
    draws = np.random.default_rng(0)
    of = {"first": (0.9, 0.9), "second": (0.88, 0.89), "third": (0.22, 0.36)}
    tables = {name: np.stack([right(hit, draws) for hit in hits]) for name, hits in of.items()}
    found = judged(tables)
    assert found.verdict("first", "third") == found.verdict("second", "third") == "better"
    assert "third is significantly worse than first" in found.sentence()


def right(share: float, draws: np.random.Generator) -> np.ndarray:
    """[300,2] answers of which exactly this share is right, and ones to divide by."""
    return np.stack([draws.permutation(300) < share * 300, np.ones(300)], axis=1).astype(np.float64)


def test_models_with_the_same_answers_are_equal_and_the_margin_is_named() -> None:
    draws = np.random.default_rng(3)
    same = np.stack([np.concatenate([right(0.8, draws) for _ in range(2)])] * 2)  # 600 rows
    found = judged({"small": same, "large": same.copy()})
    assert found.verdict("small", "large") == found.verdict("large", "small") == "equal"
    assert "small and large are equal within 0.01 accuracy" in found.sentence()
    assert all("margin 0.01 accuracy" in shown for shown in (found.text(200), found.html()))


class Scaled(Shares):
    """The share of right answers as another metric."""

    def __init__(self, name: str, whole: float, higher: bool = True) -> None:
        self.metric, self.whole = Metric(name, higher), whole

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {self.metric.name: self.whole * accuracy(sums)}


@pytest.mark.parametrize(
    ("task", "rows", "verdict"),
    [
        (Scaled("bleu", 100.0), 100, "undecided"),
        (Scaled("bleu", 100.0), 600, "equal"),
        (Scaled("mse", 1.0, higher=False), 2, "undecided"),
        (Scaled("mse", 1.0, higher=False), 600, "undecided"),  # an error has no largest value
    ],
)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_same_score_in_every_resample_is_equal_only_on_many_rows_of_a_metric_with_a_range(
    task: Scaled, rows: int, verdict: str, share: float
) -> None:
    same = np.stack([np.full((2, rows), share), np.ones((2, rows))], axis=-1)
    assert judged({"small": same, "large": same.copy()}, task, margin=0.01 * task.whole).pairs[0].verdict == verdict


@pytest.mark.parametrize(
    ("task", "low", "high"),
    [
        (Scaled("mse", 1.0, higher=False), 0.0, math.inf),
        (Scaled("bleu", 100.0), 0.0, 100.0),
        (Scaled("accuracy", 1.0), 0.0, 1.0),
    ],
)
@pytest.mark.parametrize("hits", [(0.02, 0.1), (0.98, 0.9)])
def test_an_interval_is_inside_the_range_of_its_metric(
    task: Scaled, low: float, high: float, hits: tuple[float, float]
) -> None:
    draws = np.random.default_rng(0)
    far = np.stack([right(hit, draws) for hit in hits])
    scores = [one.score for one in judged({"small": far, "large": far[::-1]}, task).models]
    assert all(low <= one.low < one.value < one.high <= high for one in scores)
    assert any(end in (low, high) for one in scores for end in (one.low, one.high)) or math.isinf(high)


def test_a_metric_that_may_be_negative_keeps_its_interval() -> None:
    far = np.stack([right(hit, np.random.default_rng(0)) for hit in (0.02, 0.1)])
    assert judged({"small": far, "large": far[::-1]}, Scaled("r2", 1.0)).models[0].score.low < 0


def test_a_wider_margin_makes_an_undecided_pair_equal() -> None:
    answers = dict(zip(("small", "large"), World(rows=2000).answers(np.random.default_rng(5)), strict=True))
    assert judged(answers).pairs[0].verdict == "undecided"
    assert judged(answers, margin=0.1).pairs[0].verdict == "equal"


def test_six_tenths_apart_with_two_seeds_is_never_called_equal() -> None:
    for trial in range(50):
        (found,) = ScoreWorld([0.1, 0.1], 2, 300, [0.1, -0.5]).differences(trial)
        assert found.p_equal(Margin(0.01)) > 0.05


def test_seeds_that_all_give_the_same_answers_have_no_spread() -> None:
    """As a convex problem does: other models are not taken to be as sure as it is."""
    draws = np.random.default_rng(1)
    first, second = World(seeds=3, spread=0.02).answers(draws)
    same = np.repeat(first[:1], 3, axis=0)
    of_both = judged({"linear": same, "second": second}).pairs[0]
    scores = resampled([same, second], accuracy)
    assert [one.vary for one in scores] == [False, True]
    assert SeedSpread.pooled(scores) == SeedSpread.pooled(scores[1:])
    assert of_both.difference.high - of_both.difference.low > 0


def test_mcnemar_is_only_where_answers_are_right_or_wrong() -> None:
    assert all(pair.p_mcnemar is not None for pair in weighed({"small": 0.0, "large": 0.02}).pairs)
    assert all(pair.p_mcnemar is None for pair in weighed({"small": 0.0, "large": 0.02}, task=Ratios()).pairs)


class Macro(Shares):
    """A macro F1 of two labels: of a single example it is 0 or 1, of several no share of right answers."""

    metric = Metric("macro_f1")

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        right, wrong = sums[..., 0], sums[..., 1] - sums[..., 0]
        return {"macro_f1": np.asarray(right**2 / np.maximum(right**2 + wrong**2, 1e-9))}


def test_mcnemar_is_not_beside_a_figure_that_is_no_share_of_right_answers() -> None:
    assert all(pair.p_mcnemar is None for pair in weighed({"small": 0.0, "large": 0.02}, task=Macro()).pairs)


def test_runs_that_shared_the_machine_are_told_beside_the_time_of_training() -> None:
    alone = weighed({"small": 0.0, "large": 0.02})
    assert "at the same time" not in alone.text(100) + alone.html()
    models = tuple(msgspec.structs.replace(one, jobs=3) for one in alone.models)
    shared = msgspec.structs.replace(alone, models=models)
    assert "Up to 3 runs trained at the same time" in shared.text(100)
    (training,) = [figure for figure in shared.figures() if figure.title.endswith("seconds of training")]
    assert "Up to 3 runs trained at the same time" in training.caption


@pytest.mark.parametrize("kind", ["label", "labels"])
def test_what_each_example_adds_to_the_sums_is_what_they_sum_to(kind: str) -> None:
    schema = Schema("text", kind, ("a", "b", "c"))  # type: ignore[arg-type]
    task = (Classify if kind == "label" else ClassifySeveral)(ModelSpec(schema, None, None))
    draws = np.random.default_rng(0)
    rows = draws.integers(0, 3, (150, task.statistics)).astype(np.float64)
    blocks = list(added(task, rows))
    assert len(blocks) == 3
    np.testing.assert_allclose(np.concatenate(blocks).sum(axis=0), task.summed(rows))
    np.testing.assert_allclose(blocks[0][7], task.summed(rows[7:8]))


def test_every_pair_is_corrected_for_all_pairs() -> None:
    found = weighed({"small": 0.0, "a": 0.01, "b": 0.02, "c": 0.03})
    assert len(found.pairs) == 6
    for pair in found.pairs:
        assert pair.p is not None and pair.p_adjusted is not None
        assert pair.p_adjusted >= max(pair.p, pair.p_examples)


def test_what_is_corrected_for_several_pairs_is_told_beside_them() -> None:
    several, one = weighed({"small": 0.0, "a": 0.01, "b": 0.02}), weighed({"small": 0.0, "large": 0.08})
    told = "p (Holm) and the verdict are corrected for 3 comparisons; the intervals are not"
    assert told in several.text(200) and told in several.html()
    assert "corrected for" not in one.text(200) + one.html()


def test_what_is_done_until_the_first_run_begins_is_told() -> None:
    begun = ComparisonStarted(Path("compared"), 9, 3, ("data: a.csv",), jobs=2)
    said = "training 2 at a time; each run first reads the data and builds its model"
    assert told(begun).lines == ("data: a.csv", "3 of 9 runs are done", said)
    assert told(begun._replace(jobs=1)).lines[-1] == said.replace("2 at", "one at")
    assert told(begun._replace(finished=9)).lines[-1] == "9 of 9 runs are done"


def test_differences_of_two_comparisons_are_few_and_short() -> None:
    before, now = {"data": ["0" * 99], "size": "nano"}, {"data": ["1" * 99], "size": "nano", "split": {"dev": 0.1}}
    assert changes(before, now) == [
        f'data was ["{"0" * 37}… and is now ["{"1" * 37}…',
        'split was not given and is now {"dev":0.1}',
    ]


def test_a_comparison_is_text_page_and_json_of_the_same_numbers() -> None:
    found = weighed({"small": 0.0, "large": 0.08})
    text, page = found.text(100), found.html()
    assert found.sentence() in page and found.sentence()[:40] in text
    assert all(len(line) <= 100 for line in text.split("\n"))
    assert [figure.kind for figure in found.figures()] == ["bars", "points", "line"]
    assert "p_adjusted" in found.to_json()["pairs"][0]


def test_runs_judged_on_other_rows_are_not_compared() -> None:
    table = World().answers(np.random.default_rng(0))[0]
    runs = {"a": [run_evaluation("a", 0, table[0])], "b": [run_evaluation("b", 0, table[0][:-1])]}
    with pytest.raises(DataError, match="b and a were evaluated on different rows"):
        ComparedScores(runs, Shares())  # type: ignore[arg-type]


def test_rows_of_dev_that_are_in_train_are_counted(tmp_path: Path) -> None:
    for part, rows in (("train", ["one two three", "four five six"]), ("dev", ["One  two three", "seven eight"])):
        (tmp_path / f"{part}.csv").write_text("text,label\n" + "".join(f"{row},x\n" for row in rows))
    data = DataConfig(train=(str(tmp_path / "train.csv"),), dev=(str(tmp_path / "dev.csv"),), split=GivenSplit())
    found = count_leaks(data, "dev")
    assert found is not None
    assert (found.exact, found.rows) == (1, 2)
    assert found.text().startswith("1 of 2 dev rows is also in the training set")


def test_a_spread_is_the_middle_half() -> None:
    assert Spread.of([5.0]) == Spread(5.0, 5.0, 5.0)
    assert Cost(latency=Spread.of([1.0]), throughput=Spread.of([1.0]), memory=1, disk=1).latency.median == 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Budget(kind="hours"), "a budget of 'hours'"),  # type: ignore[arg-type]
        (lambda: Budget(amount=0), "a budget of 0 tokens"),
        (lambda: _plan(seeds=0), "0 seeds"),
        (lambda: _plan(models=("a", "a")), "models: a, a"),
        (lambda: _plan(models=()), "models: none"),
        (lambda: _plan(split="train"), "--split 'train'"),
        (lambda: _plan(settings={"duration": {"kind": "steps", "steps": 2}}), "a duration with a budget of tokens"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


def _plan(**changes: Any) -> ComparisonPlan:
    return ComparisonPlan(**({"data": DataConfig(train=("x.csv",)), "out": "o", "models": ("cnn",)} | changes))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "hours"], "--budget 'hours'"),
        (["--budget", "seconds", "--tokens", "5"], "--tokens with --budget seconds"),
        (["--tokens", "5", "--parameters", "5"], "--parameters with --budget tokens"),
        (["--size", "huge"], "--size: unknown name 'huge'"),
        (["--epochs", "1"], "--epochs with --budget tokens (the default), which"),
        (
            ["--seconds", "9", "--epochs", "1"],
            "--epochs with --budget seconds, which already says how long to train. Fix: leave",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_anything_is_read(
    tmp_path: Path, options: list[str], words: str
) -> None:
    given = ["compare", "missing.csv", "--models", "cnn", "--out", str(tmp_path / "out"), *options]
    result = CliRunner().invoke(app, given)
    assert words in str(result.exception)
    assert not (tmp_path / "out").exists()
