"""Runs that failed are compared with simple baselines on their own data; a run that beats them has no finding."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diagnosis_common import falling, looks, steps
from seqloom import recipes
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.training import (
    ByLengthConfig,
    ConstantConfig,
    EpochsConfig,
    NewtonConfig,
    RunConfig,
    TrainingConfig,
)
from seqloom.data.synthetic.registry import NAMES
from seqloom.experiments.baselines import batches_of, training_batches
from seqloom.experiments.doctor import diagnosis
from seqloom.experiments.doctor import scores as scoring
from seqloom.experiments.doctor.curves import Story, curve_findings, longer, story_of
from seqloom.experiments.doctor.diagnosis import diagnose
from seqloom.experiments.doctor.findings import Diagnosis, Finding
from seqloom.experiments.doctor.scores import (
    BaselineScore,
    ScoreBatches,
    Scores,
    as_good,
    linear_baseline,
    linear_rows,
    measure_scores,
    score_findings,
)
from seqloom.nn.types import Batch, Padded
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.lm import BigramCounts
from seqloom.tasks.tag import TagCounts
from seqloom.tasks.task import Metric
from seqloom.training.newton import solutions
from seqloom.training.request import requested
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import train
from seqloom.training.run_folder import RunFolder
from seqloom.training.step import elements_of

CONFIG = TrainingConfig(lr=1e-3, duration=EpochsConfig(epochs=20))
STORY = Story((), (), (), "done", steps=500)
SCORES = Scores(Metric("accuracy"), 0.8, constant_loss=0.7, train_loss=0.3, dev_loss=0.4, larger="base")


def codes(scores: Scores, story: Story = STORY) -> list[str]:
    return [finding.code for finding in score_findings(scores, story, CONFIG)]


def advised(scores: Scores, story: Story = STORY) -> list[str]:
    return [advice.typed for advice in score_findings(scores, story, CONFIG, dropout=0.1)[0].advice]


# --- rules -----------------------------------------------------------------------------------------------------------


def test_a_run_that_beats_its_baselines_has_no_finding() -> None:
    assert codes(SCORES._replace(baselines=(BaselineScore("always 'no'", 0.6, wins=False),), floor=0.5)) == []
    assert codes(Scores()) == []  # nothing could be measured


def test_a_run_that_learned_too_little_is_to_be_longer_larger_and_faster() -> None:
    behind = SCORES._replace(baselines=(BaselineScore("always 'no'", 0.8, wins=True),), train_loss=0.5)
    assert codes(behind) == ["score.baseline"]
    assert advised(behind) == ["--epochs 60", "--size base", "--lr 0.003"]
    assert advised(behind, STORY._replace(steps=100))[0] == "--epochs 200"
    assert advised(behind._replace(larger=None)) == ["--epochs 60", "--lr 0.003"]


def test_a_run_that_was_still_learning_gets_one_advice_about_its_length_and_no_larger_model() -> None:
    behind = SCORES._replace(baselines=(BaselineScore("always 'no'", 0.8, wins=True),), train_loss=0.5)
    for records in (steps(undertrained), steps(lambda share: 2.0 - 0.8 * share**4)):
        story = story_of(records)
        (curve,) = (one for one in curve_findings(story, CONFIG) if one.code == "loss.unfinished")
        assert advised(behind, story) == [curve.advice[0].typed, "--lr 0.003"]
        assert "--size tiny" in advised(behind._replace(larger="tiny"), story)
    assert "--size base" in advised(behind, story_of(steps(lambda share: 1 + math.exp(-20 * share))))


def test_a_run_that_learned_only_its_training_set_is_to_be_regularized() -> None:
    behind = SCORES._replace(baselines=(BaselineScore("the recipe linear", 0.9, wins=True, recipe="linear"),))
    overfitted = behind._replace(train_loss=0.01, dev_loss=0.9)
    assert advised(overfitted)[:3] == ["--model linear", "--dropout 0.3", "--weight-decay 0.1"]
    assert advised(behind._replace(memorized=True)) == advised(overfitted), "the curves may say so too"
    assert advised(behind)[0] == "--epochs 60" and advised(behind)[-1] == "--model linear"


def test_a_loss_as_high_as_without_inputs_is_underfitting() -> None:
    assert codes(SCORES._replace(train_loss=0.65)) == ["loss.high"]
    assert codes(SCORES._replace(train_loss=0.04, constant_loss=0.045)) == [], "nearly all labels are the same"


def test_a_model_of_the_smallest_size_that_left_much_unlearned_is_small() -> None:
    nano = SCORES._replace(larger="tiny")
    assert codes(nano) == ["model.small"] and advised(nano)[0] == "--size tiny"
    assert codes(nano._replace(train_loss=0.05, dev_loss=0.2)) == [], "it has learned its training set"
    assert codes(nano._replace(train_loss=0.2, dev_loss=1.2)) == ["dev.gap"], "a larger model would overfit more"
    assert codes(nano._replace(larger="small")) == [], "a default may choose tiny"
    assert codes(nano._replace(own=0.95)) == [], "there is little left to learn"
    assert codes(nano._replace(train_loss=0.65)) == ["loss.high"], "told once"


@pytest.mark.parametrize("validations", [[], [1.4], [1.0, 1.4]])
def test_a_run_with_too_few_validations_for_a_curve_overfits_if_its_losses_are_far_apart(
    validations: list[float],
) -> None:
    story = story_of(steps(falling) + (looks(validations) if validations else []))
    apart = SCORES._replace(own=0.72, constant_loss=0.69, train_loss=0.02, dev_loss=1.4)
    assert codes(apart, story) == ["dev.gap"]
    assert advised(apart, story) == ["--dropout 0.3", "--weight-decay 0.1", "--patience 3"]
    assert codes(apart._replace(dev_loss=0.3), story) == [], "some gap is normal"
    assert codes(apart._replace(own=0.92), story) == [], "there is little left to learn"
    solved = TrainingConfig(lr=1.0, schedule=ConstantConfig(), optimizer=NewtonConfig())
    assert score_findings(apart, story, solved) == (), "its strength is the best on the dev set"


def test_the_curves_decide_about_overfitting_if_they_are_long_enough() -> None:
    apart = SCORES._replace(train_loss=0.02, dev_loss=1.4)
    close = steps(falling) + looks([1.5, 1.0, 0.8, 0.6, 0.5, 0.4])
    assert codes(apart, story_of(close)) == [] and codes(apart, story_of(close[:7] + close[-6:])) == ["dev.gap"]


def test_a_run_that_is_not_better_than_a_recipe_by_more_than_chance_is_told_so() -> None:
    linear = BaselineScore("the recipe linear", 0.79, wins=False, recipe="linear", loses=False)
    (note,) = as_good(SCORES._replace(baselines=(linear,)))
    assert "not better by more than chance than the recipe linear" in note and note.endswith(
        "use --model linear (see Next)"
    )
    assert "accuracy is 0.8 and 0.79" in note
    for other in (linear._replace(loses=True), linear._replace(wins=True), linear._replace(recipe=None)):
        assert list(as_good(SCORES._replace(baselines=(other,)))) == []


def test_a_score_at_the_floor_is_useless() -> None:
    low = SCORES._replace(metric=Metric("bleu"), own=1.7, floor=5.0, train_loss=0.5)
    assert codes(low) == ["score.floor"]
    assert codes(low._replace(own=5.1)) == []


LOW = SCORES._replace(metric=Metric("f1"), own=0.45, weak=0.5, train_loss=0.25, dev_loss=0.3)


def told(scores: Scores, records: list[dict[str, Any]], config: TrainingConfig = CONFIG) -> Diagnosis:
    model = recipes.language_model("gru", vocab_size=9, size="nano")
    run = RunConfig(
        data=DataConfig(train=("a.csv",)), task="lm", encoding=EncodingConfig(), model=model, training=config
    )
    return diagnosis.diagnosis("run", run, story_of(records), diagnosis.ModelMeasurements(scores=scores))


def test_a_weak_score_is_found_if_nothing_else_is() -> None:
    close = steps(falling) + looks([0.6, 0.45, 0.41, 0.4, 0.4, 0.4])
    weak = told(LOW, close)
    assert weak.codes == ("score.weak",) and weak.advice[0].typed == "--size base"
    assert [advice.flag for advice in weak.advice] == ["--size", "--epochs", "--lr"]
    memorized = told(LOW._replace(train_loss=0.1, dev_loss=0.4), close)
    assert memorized.codes == ("score.weak",) and memorized.advice[0].flag == "--dropout"
    assert told(LOW._replace(own=0.5), close).codes == ()
    assert told(LOW._replace(weak=None), close).codes == ()
    assert told(LOW, steps(falling) + looks([1.5, 1.2, 1.0, 1.1, 1.3, 1.5])).codes == ("dev.gap",), "told once"


def test_more_patience_makes_a_run_longer_that_early_stopping_ended() -> None:
    patient = TrainingConfig(lr=1e-3, patience=4)
    assert longer(STORY._replace(end_reason="patience"), patient).typed == "--patience 8"


def undertrained(share: float) -> float:
    return 4.0 - 1.2 * share**0.4


def found(records: list[dict[str, Any]]) -> dict[str, Finding]:
    return {finding.code: finding for finding in curve_findings(story_of(records), CONFIG)}


def test_a_loss_that_would_fall_much_further_is_unfinished() -> None:
    finding = found(steps(undertrained))["loss.unfinished"]
    assert finding.advice[0].typed == "--epochs 60"
    assert finding.evidence["expected further decrease in three times the steps"] > 0.1
    assert found(steps(falling)) == {}


def test_a_loss_that_falls_is_finished_if_early_stopping_ended_the_run_or_it_had_many_steps() -> None:
    ended = {"kind": "end", "step": 400, "reason": "patience"}
    assert "loss.unfinished" not in found([*steps(undertrained), ended])
    many = [record | {"step": 20 * record["step"]} for record in steps(undertrained)]
    assert "loss.unfinished" not in found(many)


# --- the baselines of tasks ------------------------------------------------------------------------------------------


@given(rows=st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=8), min_size=1, max_size=5))
def test_the_probabilities_of_token_counts_add_up_to_one_after_any_token(rows: list[list[int]]) -> None:
    batches = [Batch(Padded.of(torch.tensor([row[:-1]])), torch.tensor([row[1:]]), ("0",)) for row in rows]
    counts, after = BigramCounts.of(batches, 6), np.arange(6)
    for before in range(6):
        for likely in (counts.unigram, counts.bigram):
            assert math.isclose(likely(np.full(6, before), after).sum(), 1.0)


def test_pairs_that_occur_are_likelier_than_tokens_alone() -> None:
    batch = Batch(Padded.of(torch.tensor([[1, 2, 1, 2, 1]])), torch.tensor([[2, 1, 2, 1, 2]]), ("0",))
    counts = BigramCounts.of([batch], 4)
    # After 1 comes 2, three times of three: (3 + 1 P(2)) / (3 + 1), and P(2) = (3 + 1) / (5 + 4).
    assert math.isclose(counts.bigram(np.array([1]), np.array([2]))[0], (3 + 4 / 9) / 4)


def test_a_word_has_its_most_frequent_tag_and_a_new_one_that_of_all_words() -> None:
    words, tags = torch.tensor([[7, 8, 7, 7, 9, 9]]), torch.tensor([[1, 0, 1, 2, 0, 0]])
    counts = TagCounts([Batch(Padded.of(words), tags, ("0",))], 3)
    assert [counts.of_word(word, 0)[0] for word in (7, 8, 9, 10)] == [1, 0, 0, 0]
    for word in (7, 10):
        assert math.isclose(sum(counts.of_word(word, tag)[1] for tag in range(3)), 1.0)


# --- a model and its batches -----------------------------------------------------------------------------------------


def rare(path: Path, count: int, *, words: int = 4) -> Path:
    """Texts of which one in twenty is labeled `yes`, by one of its words."""
    texts = [
        " ".join(["odd" if row % 20 == 0 else "usual", *(f"w{row % (7 + at)}" for at in range(words))])
        for row in range(count)
    ]
    lines = [f"{text},{'no' if row % 20 else 'yes'}" for row, text in enumerate(texts)]
    path.write_text("\n".join(["text,label", *lines, ""]), encoding="utf-8")
    return path


def opened(path: Path, **settings: Any) -> Resolved:
    given = {"dev_size": 0.3, "test_size": 0.0, "size": "nano", "model": "bag", **settings}
    return resolve(*requested([path], given))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"label_smoothing": 0.1}, {"class_weights": "balanced"}], ids=str)
def test_label_smoothing_and_class_weights_are_no_part_of_the_losses_that_are_compared(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "linear_baseline", lambda *_: None)
    resolved = opened(rare(tmp_path / "rare.csv", 400), **settings)
    task, prepared, training = resolved.task, resolved.prepared, resolved.config.training
    torch.manual_seed(0)
    model = resolved.config.model.build()
    batches = ScoreBatches(
        training_batches(task, prepared, training.batching), [*batches_of(task, prepared, "dev", training.batching)]
    )

    def losses() -> Scores:
        own = evaluate(task, model, batches.dev)
        return measure_scores(task, model, training, prepared, batches, own)

    assert "loss.high" in codes(losses()), "before training"
    steps = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(30):
        for batch in batches.train:
            loss = task.loss(model, batch, None)[0]
            steps.zero_grad()
            (loss.total / loss.weight).backward()
            steps.step()
    found = losses()
    assert found.own > 0.99 and codes(found) == [], found
    assert found.train_loss == evaluate(task, model, batches.train[: len(batches.dev)]).metrics["loss"]


def test_baselines_learn_from_a_number_of_tokens_and_not_of_batches(tmp_path: Path) -> None:
    resolved = opened(rare(tmp_path / "rare.csv", 400), batching=ByLengthConfig(batch_tokens=50))
    of = resolved.task, resolved.prepared, resolved.config.training.batching
    every = training_batches(*of)
    assert len(every) == len([*batches_of(of[0], of[1], "train", of[2])])
    for most in (1, 200, 555):
        some = training_batches(*of, most)
        tokens = [elements_of(batch)[1] for batch in some]
        assert len(some) == 1 or sum(tokens) <= most
        assert sum(tokens) + elements_of(every[len(some)])[1] > most


def test_a_linear_baseline_reads_fewer_rows_the_longer_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (opened(rare(tmp_path / f"{words}.csv", 60, words=words)).prepared for words in (3, 19))
    assert linear_rows(short) == linear_rows(long) == scoring.LINEAR_ROWS
    monkeypatch.setattr(scoring, "LINEAR_WEIGHTED", 400)
    assert (linear_rows(short), linear_rows(long)) == (400 // (4 * 2), 400 // (20 * 2))


def test_a_linear_baseline_solves_every_strength_however_slow_the_machine_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = opened(rare(tmp_path / "rare.csv", 100))
    task, prepared, training = resolved.task, resolved.prepared, resolved.config.training
    solved = list[float]()

    def counted(*given: Any) -> Iterator[float]:
        for strength in solutions(*given):
            solved.append(strength)
            yield strength

    monkeypatch.setattr(scoring, "solutions", counted)
    monkeypatch.setattr(time, "monotonic", lambda: 1e6 * (len(solved) + 1))
    found = linear_baseline(task, training, prepared, [*batches_of(task, prepared, "dev", training.batching)])
    assert found is not None and found.recipe == "linear"
    assert tuple(solved) == NewtonConfig().l2


def test_only_a_baseline_that_a_recipe_makes_is_advised_as_a_model() -> None:
    named = SCORES._replace(baselines=(BaselineScore("always predicting 'linear'", 0.9, wins=True),))
    assert not [one for one in advised(named) if one.startswith("--model")]


# --- real runs -------------------------------------------------------------------------------------------------------


def trained(out: Path, data: str | Path, **settings: Any) -> Diagnosis:
    usual: dict[str, Any] = {"size": "nano", "device": "cpu", "patience": 0, "out": out}
    return diagnose(train(data, **usual | settings).folder)


@pytest.mark.slow
def test_a_tagger_below_the_most_frequent_tag_of_each_word_is_found(tmp_path: Path) -> None:
    diagnosed = trained(tmp_path / "run", "movies", model="bilstm", steps=30)
    finding = next(one for one in diagnosed.findings if one.code == "score.baseline")
    assert "the most frequent tag of each word" in finding.text
    assert [advice.typed for advice in finding.advice][:2] == ["--steps 300", "--size tiny"]
    assert diagnosed.scores[0][0] == "this run" and "the most frequent tag of each word" in diagnosed.text()


def lines(path: Path, name: str, count: int, *, header: str = "") -> Path:
    """Some examples of a synthetic set as a file."""
    made = NAMES[name].examples("train", count=count)
    rows = [str(one.input) if one.target is None else f"{one.input}\t{one.target}" for one in made]
    path.write_text("\n".join([*filter(None, [header]), *rows, ""]), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_tagger_of_the_smallest_size_does_not_pass(tmp_path: Path) -> None:
    diagnosed = trained(tmp_path / "run", "movies", model="bilstm", steps=200)
    assert dict(diagnosed.scores)["this run"] < 0.9 and "score.baseline" not in diagnosed.codes, "no baseline is better"
    assert "model.small" in diagnosed.codes, diagnosed.text()


@pytest.mark.slow
def test_an_undertrained_tagger_of_a_larger_size_does_not_pass(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"size": "tiny", "lr": 0.002, "steps": 105, "patience": 0}
    diagnosed = trained(tmp_path / "run", "movies", model="bilstm", **quick)
    assert dict(diagnosed.scores)["this run"] < 0.8 and "score.baseline" not in diagnosed.codes, "no baseline is better"
    assert "loss.unfinished" in diagnosed.codes, diagnosed.text()
    assert diagnosed.advice[0].flag == "--steps"


@pytest.mark.slow
def test_a_tagger_of_a_larger_size_whose_f1_stays_low_does_not_pass(tmp_path: Path) -> None:
    """Names have a random type, so no training helps; but the doctor cannot know that."""
    draw, rows = np.random.default_rng(0), []
    for _ in range(600):
        words = [f"{word} O" for word in draw.choice(["the", "met", "saw", "in", "near", "old"], 5)]
        kind = draw.choice(["PER", "ORG", "LOC"])
        words.insert(int(draw.integers(6)), f"{draw.choice(['Ann', 'Bo', 'Cy', 'Di'])} B-{kind}")
        rows.append("\n".join(words))
    (tmp_path / "names.conll").write_text("\n\n".join(rows) + "\n")
    settled: dict[str, Any] = {"size": "tiny", "lr": 0.004, "steps": 300, "dropout": 0.5}
    diagnosed = trained(tmp_path / "run", tmp_path / "names.conll", model="bilstm", **settled)
    assert 0.2 < dict(diagnosed.scores)["this run"] < 0.5 and diagnosed.codes == ("score.weak",), diagnosed.text()
    assert diagnosed.advice[0].typed == "--size small"


def test_an_ended_run_of_few_steps_is_found_unless_its_score_is_good() -> None:
    few = STORY._replace(steps=79)
    assert (
        codes(SCORES, few) == codes(Scores(), few) == ["loss.unfinished"] and codes(SCORES._replace(own=0.9), few) == []
    )
    assert advised(SCORES, few) == ["--epochs 200"]
    for other in (few._replace(steps=80), few._replace(end_reason="stopped"), few._replace(end_reason="patience")):
        assert codes(SCORES, other) == []


@pytest.mark.slow
def test_a_masked_model_below_token_frequencies_is_found(tmp_path: Path) -> None:
    diagnosed = trained(tmp_path / "run", lines(tmp_path / "text.txt", "grammar", 800), task="masked", steps=5)
    assert "unigrams" in next(one.text for one in diagnosed.findings if one.code == "score.baseline")


@pytest.mark.slow
@pytest.mark.parametrize("scored", [False, True])
def test_an_embedder_below_shared_words_is_found(scored: bool, tmp_path: Path) -> None:
    draw, words = np.random.default_rng(0), [f"w{number}" for number in range(60)]
    rows = []
    for _ in range(600):
        first = draw.choice(words, 6, replace=False)
        kept = int(draw.integers(0, 7)) if scored else 4
        second = draw.permutation([*first[:kept], *draw.choice(words, 6 - kept)])
        rows.append([" ".join(first), " ".join(second), str(kept)][: 3 if scored else 2])
    header = ["text", "other", "score"][: len(rows[0])]
    (tmp_path / "pairs.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    named: dict[str, Any] = {"input": ("text", "other"), "task": "embed", "steps": 2, "lr": 1e-5}
    named |= {"target": "score"} if scored else {}
    diagnosed = trained(tmp_path / "run", tmp_path / "pairs.csv", **named)
    finding = next(one for one in diagnosed.findings if one.code == "score.baseline")
    assert "TF-IDF of the tokens" in finding.text
    assert dict(diagnosed.scores)["TF-IDF of the tokens, without training"] > 0.7


@pytest.mark.slow
def test_a_language_model_below_token_pairs_is_found(tmp_path: Path) -> None:
    diagnosed = trained(tmp_path / "run", lines(tmp_path / "text.txt", "grammar", 800), task="lm", steps=10)
    assert {"score.baseline", "loss.high"} <= set(diagnosed.codes), diagnosed.text()
    assert "bigrams" in next(one.text for one in diagnosed.findings if one.code == "score.baseline")


@pytest.mark.slow
def test_a_language_model_that_ended_too_early_is_found(tmp_path: Path) -> None:
    text = lines(tmp_path / "text.txt", "grammar", 4_000)
    quick: dict[str, Any] = {"steps": 120, "lr": 0.02, "schedule": ConstantConfig(), "validate_every": 30}
    quick |= {"batching": ByLengthConfig(batch_tokens=512)}
    diagnosed = trained(tmp_path / "run", text, task="lm", **quick)
    assert "loss.unfinished" in diagnosed.codes, diagnosed.text()
    assert diagnosed.advice[0].typed == "--steps 1080"


@pytest.mark.slow
def test_a_translator_without_a_correct_output_is_found(tmp_path: Path) -> None:
    file = lines(tmp_path / "dates.tsv", "dates", 600, header="source\ttarget")
    assert "score.floor" in trained(tmp_path / "run", file, task="translate", steps=5).codes


def sentences(folder: Path, count: int) -> Path:
    """Texts whose label is one of their words, and a test set that nobody may read."""
    rows = [f"w{number % 7} w{number % 11} {('good', 'bad')[number % 2]} w{number % 5}" for number in range(count)]
    lines = [f"{text},{('yes', 'no')[number % 2]}" for number, text in enumerate(rows)]
    folder.mkdir()
    for name, some in (("train", lines[: -count // 4]), ("dev", lines[-count // 4 :]), ("test", lines[:9])):
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *some, ""]), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_classifier_below_linear_is_found_without_its_test_set(tmp_path: Path) -> None:
    data = sentences(tmp_path / "data", 400)
    files = {"dev": str(data / "dev.csv"), "test": str(data / "test.csv")}
    diagnosed = trained(tmp_path / "run", data / "train.csv", model="cnn", steps=5, lr=1e-5, **files)
    finding = next(one for one in diagnosed.findings if one.code == "score.baseline")
    assert "the recipe linear" in finding.text and finding.advice[-1].typed == "--model linear"
    assert dict(diagnosed.scores)["the recipe linear"] == 1.0
    (data / "test.csv").write_bytes(b"\xff\x00 no csv")
    assert diagnose(tmp_path / "run").to_json() == diagnosed.to_json()
    (data / "train.csv").unlink()
    without = diagnose(tmp_path / "run")
    assert without.scores == () and any("not compared with baselines" in text for text in without.messages)


@pytest.mark.slow
def test_the_linear_baseline_scores_as_the_recipe_trained_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "BATCHES", 10**6)
    data = sentences(tmp_path / "data", 200)
    lines = (data / "train.csv").read_text().splitlines()
    wrong = [line.replace("yes", "?").replace("no", "yes").replace("?", "no") for line in lines[1::4]]
    (data / "train.csv").write_text("\n".join([*lines, *wrong, *wrong, ""]))
    settings: dict[str, Any] = {"dev": str(data / "dev.csv"), "metric": "loss"}
    run = train(data / "train.csv", out=tmp_path / "linear", device="cpu", model="linear", **settings)
    diagnosed = trained(tmp_path / "run", data / "train.csv", model="bag", steps=2, **settings)
    metrics = [validation["metrics"]["loss"] for validation in validations(tmp_path / "linear")]
    assert math.isclose(dict(diagnosed.scores)["the recipe linear"], min(metrics), rel_tol=1e-4)
    assert "score.baseline" not in diagnose(run.folder).codes


def validations(run: Path) -> list[dict[str, Any]]:
    return [record for record in RunFolder(run).metrics() if record["kind"] == "validation"]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "scored"), [(600, 180), (100, 30)])
def test_a_small_dev_set_is_scored_completely_and_one_that_is_too_small_is_told(
    rows: int, scored: int, tmp_path: Path
) -> None:
    path = rare(tmp_path / "rare.csv", rows)
    settings: dict[str, Any] = {"dev_size": 0.3, "test_size": 0.0, "batch_tokens": 12, "lr": 0.03}
    diagnosed = trained(tmp_path / "run", path, model="bag", size="nano", epochs=8, **settings)
    names = [name for name, _ in diagnosed.scores]
    assert diagnosed.scored_on == "the dev set"
    if scored >= scoring.ROWS:
        assert {"always predicting 'no'", "the recipe linear"} <= set(names) and diagnosed.scores_compared
        return
    assert names == ["this run"] and not diagnosed.scores_compared
    told = "that needs a dev set of at least 50 rows, and this one has 31; train a new run with --dev-size 49%, or on"
    assert any(told in text for text in diagnosed.messages)
    verdict = "no known problems found, but the scores could not be compared with baselines (see Notes)"
    assert replace(diagnosed, findings=()).verdict == verdict
    assert replace(diagnosed, findings=()).text().splitlines()[1].startswith("?")
