"""Who wins a comparison: never a model that is no better than answering without reading the input."""

import math
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import seqloom
import seqloom.cli.compare
from comparing_common import Shares, judged
from seqloom.cli import app
from seqloom.config.data import DataConfig, EncodingConfig, RandomSplit
from seqloom.config.tokenizers import BytesConfig, WordsConfig
from seqloom.errors import ConfigError, DurableError
from seqloom.experiments.compare import comparison as comparing
from seqloom.experiments.compare import winner as winning
from seqloom.experiments.compare.comparison import floors_of
from seqloom.experiments.compare.plan import Budget, ComparisonEnded, ComparisonPlan, PlannedModel
from seqloom.experiments.compare.results import Comparison, Interval
from seqloom.experiments.compare.winner import best_run, next_commands, ship_winner
from seqloom.training.devices import choose_device
from seqloom.training.request import RunRequest, requested
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from seqloom.training.run_summary import summary_of


def weighed(floor: float | None, **right: float) -> Comparison:
    """A comparison of models with these shares of right answers on 400 rows, three seeds each."""
    draws = np.random.default_rng(0)
    tables = {
        name: np.stack([(draws.random((3, 400)) < share).astype(float), np.ones((3, 400))], axis=-1)
        for name, share in right.items()
    }
    found = judged(tables, Shares())
    return msgspec.structs.replace(found, floor=floor, floor_answer="always predicting 'yes'")


@pytest.mark.slow
def test_if_all_models_are_at_the_floor_that_is_the_result_and_nobody_wins(tmp_path: Path) -> None:
    found = weighed(0.5, small=0.5, large=0.48)
    assert found.all_at_floor and found.winner is None and found.cheapest is None
    assert found.sentence().startswith("No model is significantly better than always predicting 'yes' (accuracy 0.5 ")
    assert "cheapest" not in found.sentence()
    plan = ComparisonPlan(data=DataConfig(train=("x.csv",)), out=str(tmp_path), models=("cnn",))
    with pytest.raises(ConfigError, match="no model to ship: no model is significantly better than always"):
        ship_winner(plan, found, tmp_path / "best")
    assert not (tmp_path / "best").exists()


@pytest.mark.parametrize(("added", "expected"), [("linear", "runs/cnn-0"), ("", "runs/linear-0")])
def test_without_a_winner_the_best_model_that_was_asked_for_is_looked_into(
    added: str, expected: str, tmp_path: Path
) -> None:
    found = weighed(0.8, linear=0.7, cnn=0.5, rnn=0.3)
    assert found.winner is None and found.models[0].name == "linear"
    plan = ComparisonPlan(data=DataConfig(train=("x.csv",)), out=str(tmp_path), models=("linear", "cnn", "rnn"))
    commands = next_commands(plan, found, cast(Any, None), has_test=False, added=added)
    assert commands[-1].startswith("seqloom doctor ") and expected in commands[-1]


@pytest.mark.slow
def test_a_model_at_the_floor_is_never_the_cheapest_one() -> None:
    both = weighed(None, small=0.6, large=0.6)  # not told apart, and the small one is cheaper
    assert both.cheapest is not None and both.cheapest.name == "small" and both.winner == both.models[0]
    low = both.model("small").score.low
    found = msgspec.structs.replace(both, floor=(low + both.model("large").score.low) / 2, floor_answer="always 'yes'")
    ahead = max(found.models, key=lambda one: one.score.low)
    assert found.winner == found.cheapest == ahead
    other = next(one.name for one in found.models if one != ahead)
    assert f"{other} is not significantly better" in found.text().replace("\n    ", " ")


@pytest.mark.slow
def test_a_best_score_at_the_floor_does_not_win_and_the_first_sentence_says_so() -> None:
    found = weighed(0.3, small=0.6, large=0.6)
    unsure = msgspec.structs.replace(found.models[0], score=Interval(found.models[0].score.value, 0.2, 0.9))
    found = msgspec.structs.replace(found, models=(unsure, found.models[1]))
    assert found.sentence().startswith("small has the best score of those above the floor: accuracy ")
    assert "on the dev set. The best score is that of large: accuracy " in found.sentence()


@pytest.mark.slow
def test_a_model_whose_training_diverged_is_never_the_cheapest_one() -> None:
    found = weighed(None, small=0.8, large=0.8)
    models = tuple(msgspec.structs.replace(one, diverged=int(one.name == "small")) for one in found.models)
    found = msgspec.structs.replace(found, models=models)
    assert found.cheapest is not None and found.cheapest.name == "large"
    assert "small: training ended early with 1 seed, because the loss was not finite" in " ".join(found.text().split())


@pytest.mark.slow
def test_less_is_better_turns_the_floor_round() -> None:
    found = msgspec.structs.replace(weighed(0.5, small=0.3, large=0.3), higher_is_better=False)
    assert not found.all_at_floor and msgspec.structs.replace(found, floor=0.2).all_at_floor


@pytest.mark.slow
def test_only_a_model_that_is_equal_wins_because_it_is_cheaper() -> None:
    found = weighed(None, small=0.6, large=0.6)
    assert found.models[0].name == "large" and found.verdict("small", "large") == "undecided"
    assert found.winner == found.models[0] and found.why_winner() == "has the best score"
    pairs = tuple(msgspec.structs.replace(one, verdict="equal") for one in found.pairs)
    equal = msgspec.structs.replace(found, pairs=pairs)
    assert equal.winner is not None and equal.winner.name == "small"
    assert equal.why_winner() == "is the cheapest model that is equal to the best within 0.01 accuracy"
    assert equal.sentence().startswith(f"small {equal.why_winner()}: accuracy ")
    assert "The best score is that of large: " in equal.sentence()
    assert "small is also the cheapest of those that are not significantly worse (100 parameters)" in equal.sentence()


def test_a_model_is_not_chosen_on_the_test_set(tmp_path: Path) -> None:
    given = ["compare", "missing.csv", "--models", "cnn", "--out", str(tmp_path / "out"), "--split", "test"]
    refused = CliRunner().invoke(app, [*given, "--ship", str(tmp_path / "best")])
    assert "--ship with --split test" in str(refused.exception)
    with pytest.raises(ConfigError, match=r"ship with split=\"test\".*leave split out"):
        seqloom.compare("questions", out=tmp_path / "out", models=["cnn"], split="test", ship=tmp_path / "best")
    assert not (tmp_path / "out").exists()


def test_with_one_seed_the_best_score_wins() -> None:
    found = weighed(0.5, small=0.8, large=0.7)
    one = msgspec.structs.replace(found, seeds=1)
    assert one.cheapest is None and one.winner == one.models[0] and one.why_winner() == "has the best score"


@pytest.mark.parametrize("seeds", [1, 3])
def test_models_with_exactly_the_best_score_tie_and_the_cheapest_wins(seeds: int) -> None:
    found = weighed(0.5, small=0.8, large=0.8)
    same = [msgspec.structs.replace(one, score=found.models[0].score) for one in found.models]
    large = min(same, key=lambda one: one.name)
    tied = msgspec.structs.replace(found, seeds=seeds, models=(large, *(one for one in same if one != large)))
    assert tied.winner is not None and tied.winner.name == "small", "it is cheaper"
    said = "ties with large for the best score, and is the cheapest of them"
    assert tied.why_winner() == said and tied.sentence().startswith(f"small {said}: accuracy ")
    assert "The best score is that of" not in tied.sentence()


class FloorFound(NamedTuple):
    """What a comparison takes from its task and data: the floor, its answer, and the expected values of both sets."""

    score: float
    answer: str
    train: np.ndarray
    dev: np.ndarray


def floor_of(path: Path, text: str, **settings: Any) -> FloorFound:
    """The floor on the dev set, half of the rows."""
    path.write_text(text)
    config, request = requested([path], {"dev_size": 0.5, "test_size": 0.0, "size": "nano", **settings})
    resolved = resolve(config, request)
    plan = ComparisonPlan(data=config, out=str(path.parent / "out"), models=("x",))
    opening = cast(Any, SimpleNamespace(task=resolved.task, first=resolved, plan=plan))
    found, prepared = floors_of(opening, resolved.prepared), resolved.prepared
    column = prepared.columns.get("target", prepared.columns["input"])
    values = (column.select(prepared.splits[split]).values for split in ("train", "dev"))
    return FloorFound(found["floor"], found["floor_answer"], *values)


def table(header: str, rows: Iterable[str]) -> str:
    return "\n".join([header, *rows, ""])


@pytest.mark.slow
def test_the_floor_of_labels_is_that_of_the_most_frequent_one_of_the_training_set(tmp_path: Path) -> None:
    text = table("text,label", (f"word{at} here,{'yes' if at % 4 else 'no'}" for at in range(80)))
    found = floor_of(tmp_path / "a.csv", text)
    shares = np.bincount(found.dev) / len(found.dev)
    assert (found.score, found.answer) == (pytest.approx(shares.max()), "always predicting 'yes'")
    loss = floor_of(tmp_path / "a.csv", text, metric="loss").score
    counts = np.bincount(found.train) + 1  # Laplace
    assert loss == pytest.approx(-(shares * np.log(counts / counts.sum())).sum())
    macro = floor_of(tmp_path / "a.csv", text, metric="macro_f1").score
    assert macro == pytest.approx(shares.max() / (1 + shares.max()))  # the mean of 2p / (1 + p) and 0


@pytest.mark.parametrize(
    ("metric", "oracle"),
    [
        ("mse", lambda train, dev: ((dev - train.mean()) ** 2).mean()),
        ("rmse", lambda train, dev: ((dev - train.mean()) ** 2).mean() ** 0.5),
        ("mae", lambda train, dev: np.abs(dev - np.median(train)).mean()),
        ("r2", lambda train, dev: 1 - ((dev - train.mean()) ** 2).mean() / dev.var()),
    ],
)
def test_the_floor_of_numbers_is_that_of_the_mean_or_median_of_the_training_set(
    tmp_path: Path, metric: str, oracle: Any
) -> None:
    text = table("text,score", (f"word{at} here,{at**1.5 / 7}" for at in range(40)))
    found = floor_of(tmp_path / "a.csv", text, metric=metric)
    assert found.score == pytest.approx(oracle(found.train.astype(float), found.dev.astype(float)), rel=1e-4, abs=1e-5)


def test_the_floor_of_several_labels_is_the_best_set_of_frequent_ones(tmp_path: Path) -> None:
    text = table("text,labels", (f"word{at} here,{('a|b', 'a|c', 'a', 'd')[at % 4]}" for at in range(60)))
    found = floor_of(tmp_path / "a.csv", text, label_separator="|", metric="f1")
    (counts, learned), rows = (np.bincount(one, minlength=4) for one in (found.dev, found.train)), 30
    order = np.argsort(-learned, kind="stable")
    worth = [2 * learned[order[:k]].sum() / (k * rows + learned.sum()) for k in (1, 2, 3, 4)]
    best = int(np.argmax(worth)) + 1
    assert found.score == pytest.approx(2 * counts[order[:best]].sum() / (best * rows + counts.sum()))
    assert found.answer == f"always predicting the most frequent {best} of 4 labels"


def test_the_floor_of_tags_is_the_most_frequent_tag(tmp_path: Path) -> None:
    sentence = ["a DET", "dog NOUN", "sees VERB", "a DET", "cat NOUN", "or DET", ""]
    spans = ["Ann B-PER", "now O", "sees O", "Bo B-PER", "now O", ""]
    for name, lines, metric, score in (("pos", sentence, "accuracy", 0.5), ("ner", spans, "f1", 0.0)):
        assert floor_of(tmp_path / f"{name}.conll", "\n".join(lines * 20), metric=metric).score == score


def test_the_floor_of_texts_is_that_of_the_most_frequent_target(tmp_path: Path) -> None:
    targets = ("a new day comes now" if at % 3 else f"some other text {at} of many" for at in range(60))
    text = table("source,target", (f"word{at} here,{target}" for at, target in enumerate(targets)))
    exact = floor_of(tmp_path / "a.csv", text, task="translate", metric="exact_match").score
    assert 0.4 < exact < 0.9 and 0 < floor_of(tmp_path / "a.csv", text, task="translate", metric="bleu").score < 100


def test_the_floor_of_running_text_is_the_frequency_of_its_tokens(tmp_path: Path) -> None:
    found = floor_of(tmp_path / "a.txt", "the cat sat\nthe dog sat\n" * 200)
    shares = np.array([1, 1, 2, 2, 2]) / 8  # cat, dog, the, sat, and the end of a line
    assert found.score == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=0.1)


@pytest.mark.slow
def test_the_floor_of_a_language_model_is_known_on_the_test_set_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "_costs", lambda _, models, __: dict.fromkeys(models))  # they take long
    (tmp_path / "a.txt").write_text("the cat sat\nthe dog sat\n" * 100)
    found = seqloom.compare(
        tmp_path / "a.txt",
        out=tmp_path / "out",
        models=["bag"],
        split="test",
        seeds=1,
        tokens=300,
        size="nano",
        device="cpu",
        task="lm",
    )
    shares = np.array([1, 1, 2, 2, 2]) / 8
    assert found.floor == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=0.15)
    assert found.floor_answer == "token frequencies (unigrams)"


@pytest.mark.slow
def test_what_the_doctor_calls_useless_does_not_win(tmp_path: Path) -> None:
    found = msgspec.structs.replace(weighed(0.01, small=0.3, large=0.2), metric="bleu")
    assert found.winner is not None
    limited = msgspec.structs.replace(found, useful_from=0.25)
    assert limited.winner is not None and limited.winner.name == "small" and not limited.all_at_floor
    assert "Almost no prediction of large is right: bleu below 0.25" in " ".join(limited.text().split())
    useless = msgspec.structs.replace(found, useful_from=5.0)
    assert useless.winner is None and useless.all_at_floor
    assert useless.sentence().startswith("Almost no prediction of any model is right (bleu below 5 on the dev set).")
    (tmp_path / "a.csv").write_text(table("source,target", (f"word{at} here,a text {at % 7}" for at in range(60))))
    given = {"dev_size": 0.5, "test_size": 0.0, "task": "translate", "metric": "bleu", "size": "nano"}
    resolved = resolve(*requested([tmp_path / "a.csv"], given))
    plan = ComparisonPlan(data=DataConfig(train=("a.csv",)), out=str(tmp_path), models=("x",))
    opening = cast(Any, SimpleNamespace(task=resolved.task, first=resolved, plan=plan))
    assert floors_of(opening, resolved.prepared)["useful_from"] == resolved.task.floors["bleu"]


def diverged(found: Comparison, *names: str) -> Comparison:
    models = tuple(msgspec.structs.replace(one, diverged=int(one.name in names)) for one in found.models)
    return msgspec.structs.replace(found, models=models)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_model_whose_training_diverged_never_wins(seeds: int, tmp_path: Path) -> None:
    found = msgspec.structs.replace(weighed(0.5, small=0.9, middle=0.9, large=0.7), seeds=seeds)
    some = diverged(found, "small", "middle")
    assert some.winner is not None and some.winner.name == "large"
    assert some.why_winner().endswith("of those whose training did not diverge")
    assert some.sentence().startswith(f"large {some.why_winner()}: accuracy ")
    assert f"The best score is that of {some.models[0].name}, whose training diverged: " in some.sentence()
    assert "cheapest" not in some.sentence()
    every = diverged(found, "small", "middle", "large")
    assert every.winner is None and not every.all_at_floor and "diverged" in every.sentence()
    plan = ComparisonPlan(data=DataConfig(train=("x.csv",)), out=str(tmp_path), models=("cnn",))
    with pytest.raises(ConfigError, match="no model to ship: the training of "):
        ship_winner(plan, every, tmp_path / "best")
    assert not (tmp_path / "best").exists()


@pytest.mark.parametrize("higher", [True, False])
def test_a_score_that_is_not_finite_is_the_worst(higher: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [math.nan, 0.1, math.inf if higher else -math.inf, 0.2, None]
    monkeypatch.setattr(winning, "_dev_score", lambda _, entry, __: scores[entry.seed])
    found = msgspec.structs.replace(weighed(None, small=0.8), seeds=5, higher_is_better=higher)
    plan = ComparisonPlan(data=DataConfig(train=("x.csv",)), out=str(tmp_path), models=("small",), seeds=5)
    assert best_run(plan, found, "small").seed == (3 if higher else 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"split": "test", "margin": 0.025, "settings": {"validate_every": 2, "metric": "macro_f1"}},
        {"budget": Budget(kind="seconds", amount=2.5), "encoding": EncodingConfig(tokenizer=BytesConfig())},
        {
            "budget": Budget(kind="parameters", amount=3e6),
            "settings": {"duration": {"kind": "epochs", "epochs": 2}},
            "encoding": EncodingConfig(tokenizer=WordsConfig(lowercase=True), max_length=7),
        },
    ],
    ids=str,
)
def test_the_command_that_ships_the_winner_repeats_the_same_comparison(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my data.csv"
    file.write_text(table("text,label", (f"word{at} here,{'yes' if at % 4 else 'no'}" for at in range(20))))
    data = DataConfig(train=(str(file),), split=RandomSplit(dev_size=0.25))
    given: dict[str, Any] = {"data": data, "out": str(tmp_path / "my out")}
    given |= {
        "models": ("small", "large"),
        "budget": Budget(kind="tokens", amount=2e6),
        "size": "nano",
        "device": "cpu",
    }
    plan = ComparisonPlan(**given | changes)
    monkeypatch.setattr(winning, "_dev_score", lambda *_: 0.5)
    first = resolve(plan.data, RunRequest(model="bag", size="nano"))
    *_, command = next_commands(plan, weighed(0.5, small=0.9, large=0.8), first, has_test=False)
    read = list[ComparisonPlan]()

    def told(plan: ComparisonPlan, *_: Any) -> Iterator[Any]:
        read.append(plan)
        return iter(())

    monkeypatch.setattr(seqloom.cli.compare, "_reports", told)
    done = next_commands(
        plan, weighed(0.5, small=0.9, large=0.8), first, has_test=True, shipped=tmp_path / "best"
    )  # then nothing ships it again
    assert not any("--ship" in one for one in done) and str(tmp_path / "best") in done[0]
    assert done[1].endswith("--split test") and "small-0" in done[1]
    assert done[2].startswith(f"seqloom tune {shlex.quote(str(file))} ") and "--models small " in done[2]
    words = shlex.split(command)
    ended = CliRunner().invoke(app, words[1:])
    assert ended.exit_code == 0, ended.output
    assert read == [msgspec.structs.replace(plan, split="dev")] and words[-2:] == [
        "--ship",
        f"{tmp_path / 'my out'}-model",
    ]


@pytest.mark.slow
def test_the_command_that_trains_on_all_rows_repeats_the_strength_that_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text(table("text,label", (f"word{at} {'yn'[at % 2]}o,{at % 2}" for at in range(40))))
    monkeypatch.setattr(winning, "_dev_score", lambda *_: 0.5)
    data = DataConfig(train=(str(tmp_path / "a.csv"),))
    plan = ComparisonPlan(data=data, out=str(tmp_path / "out"), models=("linear",), device="cpu")
    first, folder = resolve(data, RunRequest(model="linear")), plan.run_folder(PlannedModel("linear", 0))
    assert list(train_run(folder, first, device=choose_device("cpu", "float32"), workers=0))
    commands = next_commands(plan, weighed(0.5, linear=0.9), first, has_test=False)
    (whole,) = (one for one in commands if "--dev-size 0" in one)
    assert not any("seqloom tune" in one for one in commands), "newton has tried its strengths"
    chosen = summary_of(folder).l2
    assert chosen not in (None, 1.0) and f"--model linear --size small --optimizer newton --l2 {chosen:g} " in whole
    assert CliRunner().invoke(app, shlex.split(whole)[1:]).exit_code == 0
    assert summary_of(tmp_path / "out-final").l2 == chosen


@pytest.mark.slow
def test_a_comparison_that_the_shell_cannot_repeat_has_no_command_to_ship_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text(table("text,label", (f"word{at} here,{at % 2}" for at in range(20))))
    monkeypatch.setattr(winning, "_dev_score", lambda *_: 0.5)
    data = DataConfig(train=(str(tmp_path / "a.csv"),))
    first = resolve(data, RunRequest(model="bag", size="nano"))
    given: dict[str, Any] = {"data": data, "out": "out", "models": ("small",)}
    for changes in ({"settings": {"lr": 0.1}}, {"model_settings": {"dropout": 0.1}}):
        commands = next_commands(ComparisonPlan(**given | changes), weighed(0.5, small=0.9), first, has_test=False)
        assert not [one for one in commands if one.startswith("seqloom compare")]


@pytest.mark.parametrize(("why", "error"), [("disk", DurableError), ("stopped", KeyboardInterrupt)])
def test_only_an_interruption_is_a_keyboard_interrupt(
    why: Any, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "run_comparison", lambda *_, **__: iter([ComparisonEnded(why, None, 4)]))
    with pytest.raises(error) as raised:
        seqloom.compare("questions", out=tmp_path / "out", models=["cnn"])
    assert error is KeyboardInterrupt or "free disk space" in str(raised.value)


@pytest.mark.slow
def test_a_model_that_is_solved_is_said_to_be_outside_a_budget_of_tokens(tmp_path: Path) -> None:
    def notes(kind: Any) -> tuple[str, ...]:
        config, _ = requested(["questions"], {})
        budget = Budget(kind=kind, amount=900)
        plan = ComparisonPlan(
            data=config, out=str(tmp_path / kind), models=("cnn",), budget=budget, size="nano", device="cpu"
        )
        return comparing.OpenedComparison(plan).said

    assert [one for one in notes("tokens") if one.startswith("linear is solved: ")]
    assert not [one for one in notes("seconds") if "solved" in one]
