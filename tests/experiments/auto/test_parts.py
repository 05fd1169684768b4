"""The parts of a race: portfolios, shares of time, what is refused, and the leaderboard."""

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from auto_common import table
from seqloom.cli import app
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.tokenizers import CharactersConfig
from seqloom.errors import ConfigError
from seqloom.experiments.auto.budget import FEWEST_STEPS, Probe, entries_of, quick_enough, seconds_of_rung
from seqloom.experiments.auto.leaders import Leaders
from seqloom.experiments.auto.plan import PORTFOLIO, AutoPlan, Entry, RaceCandidate, portfolio
from seqloom.experiments.auto.race import Race
from seqloom.experiments.auto.results import Leaderboard, LeaderboardRow
from seqloom.experiments.compare.results import Interval
from seqloom.experiments.compare.runs import RunEvaluation, RunFacts
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve


def plan_of(**changes: Any) -> AutoPlan:
    return AutoPlan(**({"data": DataConfig(train=("a.csv",)), "out": "out"} | changes))


def resolved(name: str, cache: Path) -> Resolved:
    return resolve(DataConfig(train=(name,)), RunRequest(), cache=cache)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "names"),
    [
        ("questions", ["linear", "linear-ngrams", "bag", "cnn", "bilstm", "transformer"]),
        ("dates", ["seq2seq-additive", "transformer"]),
        ("grammar", ["gru", "lstm", "transformer"]),
        ("pictures", ["conv2d", "patch-transformer"]),
    ],
)
def test_the_portfolio_is_what_the_task_offers_cheap_ones_first(data: str, names: list[str], tmp_path: Path) -> None:
    first = resolved(data, tmp_path)
    found = [one.name for one in portfolio(plan_of(), first)]
    assert found == names and first.task.recipes()[0] in found
    assert "init" in [one.name for one in portfolio(plan_of(init="model"), first)]


@pytest.mark.slow
def test_models_restrict_the_portfolio_and_the_baseline_stays(tmp_path: Path) -> None:
    first = resolved("questions", tmp_path)
    assert [one.name for one in portfolio(plan_of(models=("lstm", "cnn")), first)] == ["linear", "lstm", "cnn"]
    with pytest.raises(ConfigError, match=r"classify has no model 'cmn'.*cnn"):
        portfolio(plan_of(models=("cmn",)), first)


@pytest.mark.slow
def test_character_ngrams_race_where_there_are_words_and_enough_time(tmp_path: Path) -> None:
    def names(plan: AutoPlan, text: str = "text,label\n" + "a b c,x\nb c a d,y\n" * 20) -> list[str]:
        (tmp_path / "a.csv").write_text(text)
        request = RunRequest(encoding=plan.encoding)
        first = resolve(DataConfig(train=(str(tmp_path / "a.csv"),)), request, cache=tmp_path / "cache")
        return [one.name for one in portfolio(plan, first)]

    characters = EncodingConfig(tokenizer=CharactersConfig())
    assert "linear-ngrams" in names(plan_of())
    assert "linear-ngrams" not in names(plan_of(encoding=characters)), "there are no words"
    assert "linear-ngrams" not in names(plan_of(minutes=1e-4)), "they take longer than the race"
    assert "linear-ngrams" not in names(plan_of(), "text1,text2,label\n" + "a b,c,x\nb,a c,y\n" * 20), "two texts"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "text", "reason"),
    [
        ({"minutes": 1e-4}, "", r"n-grams of [0-9]+ tokens .* too much of 6 ms"),
        (
            {"encoding": EncodingConfig(tokenizer=CharactersConfig())},
            "",
            "of words, but the tokens are characters.*words",
        ),
        ({}, "text1,text2,label\n" + "a b,c,x\nb,a c,y\n" * 20, "for one text, but the input is "),
        ({"models": ("conv2d",)}, "", "it does not read one text. Fix: choose from .*linear, "),
    ],
    ids=["time", "characters", "pair", "pictures"],
)
def test_a_model_that_cannot_race_says_what_it_needs(
    changes: dict[str, Any], text: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text or "text,label\n" + "a b c,x\nb c a d,y\n" * 20)
    plan = plan_of(**{"models": ("linear-ngrams",)} | changes)
    first = resolve(
        DataConfig(train=(str(tmp_path / "a.csv"),)), RunRequest(encoding=plan.encoding), cache=tmp_path / "cache"
    )
    with pytest.raises(ConfigError, match=f"--models {plan.models[0]}: .*{reason}") as refused:
        portfolio(plan, first)
    if "minutes" in changes:
        minutes = re.search(r"--minutes ([0-9.]+)", str(refused.value))
        assert minutes is not None
        enough = plan_of(models=plan.models, minutes=float(minutes[1]))
        assert [one.name for one in portfolio(enough, first)] == ["linear", "linear-ngrams"]


@pytest.mark.slow
def test_a_race_that_is_resumed_with_less_time_says_so_before_what_its_models_need(tmp_path: Path) -> None:
    plan = plan_of(data=DataConfig(train=(str(table(tmp_path / "a.csv", 120, 0)),)), out=str(tmp_path / "out"))
    plan = msgspec.structs.replace(plan, models=("linear-ngrams",))
    Race(plan, 0.0)
    with pytest.raises(ConfigError, match=r"contains a race of 5 minutes, and --minutes is 0\.0001"):
        Race(msgspec.structs.replace(plan, minutes=1e-4), 0.0)
    assert [one.name for one in Race(plan, 0.0).candidates] == ["linear", "linear-ngrams"]


@pytest.mark.slow
@pytest.mark.parametrize(("person", "place", "other"), [("B-PER", "B-LOC", "softmax"), ("NAME", "TOWN", "crf")])
def test_taggers_are_raced_with_both_heads(person: str, place: str, other: str, tmp_path: Path) -> None:
    text = "".join(f"Ann {person}\nsleeps O\n\nin O\nUlm{at} {place}\n\n" for at in range(20))
    (tmp_path / "a.conll").write_text(text)
    first = resolve(DataConfig(train=(str(tmp_path / "a.conll"),)), RunRequest(), cache=tmp_path / "cache")
    found = portfolio(plan_of(), first)
    assert [one.name for one in found] == ["cnn", "gru", "bilstm", f"bilstm-{other}", "transformer"]
    assert [one.head for one in found] == [None, None, None, other, None]


def test_every_task_of_the_table_has_one_name_for_each_candidate() -> None:
    for rows in PORTFOLIO.values():
        assert len({one.name for one in rows}) == len(rows)


@st.composite
def races(draw: st.DrawFn) -> tuple[list[RaceCandidate], dict[str, Probe]]:
    count, number = draw(st.integers(1, 6)), st.floats(1e-3, 2.0)
    probes = {
        f"model-{at}": Probe(
            step_seconds=draw(number),
            validation_seconds=draw(st.floats(0.0, 5.0)),
            overhead_seconds=draw(st.floats(0.0, 5.0)),
            steps=draw(st.integers(FEWEST_STEPS, 5_000)),
            validations=draw(st.integers(1, 60)),
        )
        for at in range(count)
    }
    return [RaceCandidate(name=name, recipe=f"recipe of {name}") for name in probes], probes


@given(races(), st.floats(1.0, 3_600.0))
def test_a_rung_costs_no_more_than_its_time_but_for_those_with_the_fewest_steps(
    drawn: tuple[list[RaceCandidate], dict[str, Probe]], seconds: float
) -> None:
    racing, probes = drawn
    entries = entries_of(1, racing, probes, seconds)
    least = sum(one.seconds for one in entries if one.steps is not None and one.steps <= FEWEST_STEPS)
    assert sum(one.seconds for one in entries) <= seconds + least + 1e-6
    assert {one.candidate.name for one in entries} == set(probes)
    for one in entries:
        assert one.steps is None or FEWEST_STEPS <= one.steps <= probes[one.candidate.name].steps


@given(races(), st.floats(1.0, 3_600.0))
def test_what_fits_in_full_is_trained_in_full_at_once(
    drawn: tuple[list[RaceCandidate], dict[str, Probe]], spare: float
) -> None:
    racing, probes = drawn
    whole = sum(probes[one.name].cost(None) for one in racing)
    seconds = seconds_of_rung(racing, probes, whole + spare)
    assert seconds == whole + spare and all(one.is_complete for one in entries_of(1, racing, probes, seconds))


@given(races(), st.floats(0.0, 3_600.0), st.integers(0, 100))
def test_those_that_are_left_out_are_slower_than_those_that_stay_and_never_the_default(
    drawn: tuple[list[RaceCandidate], dict[str, Probe]], seconds: float, place: int
) -> None:
    racing, probes = drawn
    default = racing[place % len(racing)].recipe
    kept = quick_enough(racing, probes, seconds, default)
    costs = {one.name: probes[one.name].cost(FEWEST_STEPS) for one in racing}
    left_out = [one for one in racing if one not in kept]
    assert default in {one.recipe for one in kept}
    assert all(costs[one.name] <= costs[other.name] for one in kept if one.recipe != default for other in left_out)
    assert len(kept) == 1 or sum(costs[one.name] for one in kept) <= seconds


@given(races(), st.floats(0.0, 3_600.0), st.floats(1.0, 3.0))
def test_as_many_steps_as_fit_into_the_time(
    drawn: tuple[list[RaceCandidate], dict[str, Probe]], seconds: float, pace: float
) -> None:
    for probe in drawn[1].values():
        steps = probe.steps_in(seconds, pace)
        assert steps == 0 or probe.cost(steps, pace) <= seconds
        assert probe.cost(steps + 1, pace) > seconds


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--minutes", "0"), "--minutes 0. Fix: give a positive number"),
        (("--minutes", "-3"), "--minutes -3. Fix: give a positive number"),
        (("--models", "cmn"), "--models: classify has no model 'cmn'"),
        (("--models", "cnn,cnn"), "models: cnn, cnn. Fix: name each recipe once"),
        (("--device", "tpu"), "--device 'tpu'"),
        (("--init", "nowhere"), "nowhere"),
        (("--metric", "bleu"), "no metric 'bleu'"),
        (("--dev-size", "0"), "there is no dev set to compare the models on"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_run(more: tuple[str, ...], words: str, tmp_path: Path) -> None:
    data = table(tmp_path / "a.csv", 40, 0)
    refusal = (
        CliRunner()
        .invoke(app, ["auto", str(data), "--minutes", "0.01", "--out", str(tmp_path / "out"), *more])
        .exception
    )
    assert isinstance(refusal, ConfigError) and words in str(refusal)
    assert not list((tmp_path / "out").glob("runs/*"))


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    data, out = table(tmp_path / "a.csv", 40, 0), tmp_path / "out"
    out.mkdir()
    (out / "config.toml").write_text("")
    for words in ("contains a run, not a race", "contains thesis.tex"):
        refusal = CliRunner().invoke(app, ["auto", str(data), "--minutes", "0.01", "--out", str(out)]).exception
        assert isinstance(refusal, ConfigError) and words in str(refusal)
        (out / "config.toml").rename(out / "thesis.tex") if (out / "config.toml").exists() else None


def row(
    name: str, score: float, seconds: float, gap: float | None = None, error: float | None = None
) -> LeaderboardRow:
    return LeaderboardRow(
        name=name,
        state="complete",
        why="in full",
        score=Interval(score, score - 0.1, score + 0.1),
        gap=gap,
        gap_error=error,
        parameters=1_000,
        steps=100,
        seconds=seconds,
        runs=(name,),
    )


def board(*rows: LeaderboardRow) -> Leaderboard:
    facts: dict[str, Any] = {"data": "a.csv", "task": "classify", "metric": "accuracy", "higher_is_better": True}
    return Leaderboard(
        **facts,
        dev_rows=40,
        folder="out",
        minutes=5.0,
        seconds=200.0,
        rows=rows,
        commands=("seqloom predict out FILE",),
    )


def test_a_cheaper_one_within_noise_is_told_and_the_best_score_stays_the_winner() -> None:
    close, far = row("linear", 0.79, 2.0, 0.01, 0.02), row("bag", 0.7, 1.0, 0.1, 0.02)
    found = board(row("cnn", 0.8, 60.0), close, far)
    assert found.winner.name == "cnn" and "Within noise: linear trains 30 times faster." in found.sentence()
    assert "Within noise" not in board(row("cnn", 0.8, 60.0), far).sentence()


def test_a_winner_by_one_row_is_within_noise_of_a_model_that_trained_longer() -> None:
    one_row = (1 / 126, (1 / 126) * (1 - 1 / 126) ** 0.5)  # the only row on which they differ
    found = board(row("bag-lr-3x", 0.9365, 2.0), row("linear", 0.9286, 5.0, *one_row), row("gru", 0.7, 9.0, 0.2, 0.02))
    assert found.sentence().endswith(" Within noise: linear.")


def test_the_leaderboard_is_shown_in_every_form() -> None:
    found = board(row("cnn", 0.8, 60.0), LeaderboardRow(name="gru", state="failed", why="failed: no memory"))
    for text in (found.text(100), found.html(), found.markdown()):
        assert "cnn" in text and "failed: no memory" in text and "accuracy" in text
    assert "seqloom predict out FILE" in found.html() and found.to_json()["rows"][1]["score"] is None


def evaluated(name: str, accuracy: float, loss: float, steps: int) -> tuple[Entry, RunEvaluation]:
    facts = RunFacts(
        model=name,
        seed=0,
        split="dev",
        task="classify",
        metric="accuracy",
        metrics={"accuracy": accuracy, "loss": loss},
        rows=4,
        parameters=10,
        steps=steps,
        tokens=50,
        seconds=1.5,
        end_reason="done",
        device="cpu",
    )
    return Entry(candidate=RaceCandidate(name=name, recipe=name), steps=None), RunEvaluation(
        facts, np.arange(4), np.eye(4)
    )


@given(st.permutations(["cheap", "sure", "worse"]))
def test_of_equal_scores_the_least_computation_wins_and_the_loss_decides_who_continues(order: list[str]) -> None:
    class Accuracy:
        class metric:  # noqa: N801
            higher_is_better = True

    leaders = Leaders(Accuracy)  # type: ignore[arg-type]
    runs = {"cheap": (0.9, 0.5, 10), "sure": (0.9, 0.1, 200), "worse": (0.8, 0.2, 5)}
    for name in order:
        leaders.take(*evaluated(name, *runs[name]))
    assert [entry.name for entry in leaders.placed()] == ["cheap", "sure", "worse"]
    assert leaders.winner is not None and leaders.winner.name == "cheap"
    assert [entry.name for entry in leaders.ranked()] == ["sure", "cheap", "worse"]


def test_a_metric_is_undefined_only_if_it_is_for_a_run_with_the_best_score() -> None:
    class Nothing:
        class metric:  # noqa: N801
            name, higher_is_better = "accuracy", True

        def undefined(self, statistics: np.ndarray) -> dict[str, str]:
            return {} if statistics.any() else {"accuracy": "no labels"}

    leaders = Leaders(Nothing())  # type: ignore[arg-type]
    for name, accuracy, is_defined in (("best", 0.1, True), ("worse", 0.0, False), ("as-good", 0.1, False)):
        entry, found = evaluated(name, accuracy, 0.5, 10)
        leaders.take(entry, msgspec.structs.replace(found, statistics=np.eye(4) * is_defined))
        assert leaders.why_undefined() == ("no labels" if name == "as-good" else "")


def test_the_leaderboard_states_its_order() -> None:
    assert "the one with the least computation" in board(row("cnn", 0.8, 60.0)).html()
