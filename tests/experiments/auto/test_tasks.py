"""Short races of the tasks besides classification; the best model has the best score, whichever direction that is."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import seqloom
from auto_common import fixed_race
from seqloom.experiments.auto.results import Leaderboard

pytestmark = pytest.mark.slow
WORDS = ("elm", "fir", "hazel", "larch", "oak")


def regression(path: Path, draws: random.Random) -> Path:
    rows = [(draws.choices(("good", "bad"), k=5), draws.choice(WORDS)) for _ in range(80)]
    lines = [f"{' '.join(words)} {word},{words.count('good') + draws.random() / 5:.3f}" for words, word in rows]
    return written(path.with_suffix(".csv"), ["text,score", *lines])


def tagging(path: Path, draws: random.Random) -> Path:
    names, places = ("Ann", "Bob", "Cid"), ("Ulm", "Rom")
    rows = [f"{draws.choice(names)} B-PER\nsaw O\n{draws.choice(places)} B-LOC\n. O\n" for _ in range(60)]
    return written(path.with_suffix(".conll"), rows)


def translation(path: Path, draws: random.Random) -> Path:
    rows = [draws.choices(WORDS, k=3) for _ in range(60)]
    return written(path.with_suffix(".tsv"), ["source\ttarget", *(f"{' '.join(r)}\t{' '.join(r[::-1])}" for r in rows)])


def running(path: Path, draws: random.Random) -> Path:
    return written(path.with_suffix(".txt"), [" ".join(draws.choices(WORDS, k=8)) for _ in range(80)])


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


RACES: dict[str, tuple[Callable[[Path, random.Random], Path], tuple[str, ...]]] = {
    "regress": (regression, ("bag",)),
    "tag": (tagging, ("cnn", "gru")),
    "translate": (translation, ("seq2seq-additive", "transformer")),
    "lm": (running, ("gru", "lstm")),
}


@pytest.mark.parametrize("task", RACES)
def test_a_race_of_each_task_ends_with_its_best_model(task: str, tmp_path: Path) -> None:
    write, models = RACES[task]
    files = [write(tmp_path / name, random.Random(seed)) for seed, name in enumerate(("a", "d"))]
    board, _ = fixed_race(*files, tmp_path / "out", models=models, minutes=0.5, task=task)
    assert isinstance(board, Leaderboard) and board.task == task
    scores = [row.score.value for row in board.rows if row.score is not None]
    assert len(scores) == len(models) + (task == "regress")  # with the baseline
    assert scores == sorted(scores, reverse=board.higher_is_better)
    assert not board.undefined and board.sentence().startswith(f"The best model is {board.winner.name}")
    assert board.higher_is_better == (task in ("tag", "translate"))
    assert board.winner.score is not None and all((row.gap or 0.0) >= 0 for row in board.rows)
    found = seqloom.load(tmp_path / "out").evaluate(split="dev").metrics[board.metric]
    assert found == pytest.approx(board.winner.score.value, rel=1e-4)


@pytest.mark.parametrize(
    ("task", "models", "dev", "words"),
    [
        ("tag", ("cnn",), "saw O\n. O\n\nsaw O\n", "f1 is undefined on the dev set (no spans)"),
        ("regress", ("bag",), "text,score\ngood oak,1\n", "r2 is undefined on the dev set (the expected numbers are"),
    ],
)
def test_no_model_is_the_best_where_the_metric_is_undefined(
    task: str, models: tuple[str, ...], dev: str, words: str, tmp_path: Path
) -> None:
    train = RACES[task][0](tmp_path / "a", random.Random(0))
    (other := (tmp_path / "d").with_suffix(train.suffix)).write_text(dev)
    given = {"metric": "r2"} if task == "regress" else {}
    board, _ = fixed_race(train, other, tmp_path / "out", models=models, task=task, **given)
    assert board.sentence().startswith("No model is the best: ") and words in board.sentence()
    assert seqloom.load(tmp_path / "out").task.name == task
