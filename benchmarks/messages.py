"""Long messages with 8 topics: `seqloom train` and `seqloom auto` beside TF-IDF with logistic regression.

    python benchmarks/messages.py                  4,400 rows; `auto` has 5 minutes
    python benchmarks/messages.py --minutes 1      a shorter race
    python benchmarks/messages.py train            only the default of `seqloom train`

All read the same 4,400 rows of a csv file and are scored on 2,000 other rows, the test file. Seqloom draws its dev set
(10 %) from the 4,400 rows and has no other option; scikit-learn learns from all of them.

    train      seqloom train messages.csv
    auto       seqloom auto messages.csv --minutes 5
    sklearn    TfidfVectorizer() and LogisticRegression(max_iter=1000)
    chosen     TfidfVectorizer(sublinear_tf=True) with the best of seven C on a tenth of the rows, fitted to all of them

The messages are artificial: greetings and closings, sentences of frequent words, and words of the topic and of a
neighboring topic, so that topics are confused. The last line has the best score of each side.
"""

import csv
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from linear import STRENGTHS, read, words

ROWS, TEST_ROWS = 4_400, 2_000
TOPICS = ("billing", "delivery", "login", "refund", "repair", "returns", "shipping", "warranty")
VOCABULARY, OWN = 12_000, 250  # words in all, and of each topic
MINE, NEAR = 0.05, 0.05  # mean share of the words of the topic, and of a neighboring one
LONGEST_SENTENCE = 18  # words
SHORTEST, LONGEST = 40, 600  # words in a message
MINUTES = 5.0

Rows = list[tuple[str, str]]


def messages(count: int, seed: int) -> Rows:
    """Return messages with their topics; word frequencies follow Zipf's law."""
    world = np.random.default_rng(11)  # the same for both files
    known = words(VOCABULARY, world)
    frequency = 1 / np.arange(10, VOCABULARY + 10)
    topical = [world.choice(np.arange(100, VOCABULARY), OWN, replace=False) for _ in TOPICS]
    names, draw, found = known[:40], np.random.default_rng(seed), Rows()
    for _ in range(count):
        topic = int(draw.integers(len(TOPICS)))
        near = (topic + int(draw.choice((1, -1)))) % len(TOPICS)
        length = int(np.clip(draw.lognormal(4.8, 0.5), SHORTEST, LONGEST))
        mine, other = min(0.4, MINE * draw.gamma(1.0)), min(0.4, NEAR * draw.gamma(1.0))
        kinds = draw.choice(3, length, p=[1 - mine - other, mine, other])
        text = draw.choice(VOCABULARY, length, p=frequency / frequency.sum())
        for kind, among in ((1, topical[topic]), (2, topical[near])):
            share = frequency[among] / frequency[among].sum()
            text[kinds == kind] = draw.choice(among, int((kinds == kind).sum()), p=share)
        found.append((written([known[word] for word in text], names, draw), TOPICS[topic]))
    return found


def written(parts: list[str], names: list[str], draw: np.random.Generator) -> str:
    """Return words as a message: a greeting, sentences, and a closing."""
    sentences, at = [f"Hello {draw.choice(names).title()},"], 0
    while at < len(parts):
        size = int(draw.integers(4, LONGEST_SENTENCE))
        one = " ".join(parts[at : at + size])
        sentences.append(f"{one[0].upper()}{one[1:]}{draw.choice(('.', '.', '!', '?'))}")
        at += size
    return " ".join([*sentences, f"Regards, {draw.choice(names).title()}"])


def write(path: Path, rows: Rows) -> Path:
    """Write a csv file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


def with_train(folder: Path) -> float:
    """Return the accuracy of the default model."""
    import seqloom

    out = folder / "train-run"
    seqloom.train(folder / "messages.csv", test=str(folder / "test.csv"), out=out, device="cpu")
    return float(seqloom.load(out).evaluate(split="test").metrics["accuracy"])


def with_auto(folder: Path, minutes: float) -> float:
    """Return the accuracy of the model that wins the race."""
    import seqloom

    out = folder / "auto-run"
    seqloom.auto(folder / "messages.csv", test=str(folder / "test.csv"), out=out, minutes=minutes, device="cpu")
    return float(seqloom.load(out).evaluate(split="test").metrics["accuracy"])


def with_sklearn(folder: Path, strengths: tuple[float, ...], **features: Any) -> float:
    """Return the accuracy of logistic regression; with several strengths, of the best one on a tenth of the rows."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    def fitted(strength: float, texts: list[str], labels: list[str]) -> Callable[[list[str], list[str]], float]:
        weigh = TfidfVectorizer(**features)
        model = LogisticRegression(C=strength, max_iter=1_000).fit(weigh.fit_transform(texts), labels)
        return lambda others, answers: float(model.score(weigh.transform(others), answers))

    texts, labels = read(folder / "messages.csv")
    best = strengths[0]
    if len(strengths) > 1:
        tenth = len(texts) // 10
        best = max(strengths, key=lambda one: fitted(one, texts[tenth:], labels[tenth:])(texts[:tenth], labels[:tenth]))
    return fitted(best, texts, labels)(*read(folder / "test.csv"))


def main(arguments: list[str]) -> None:
    """Print a line per job, and the best of both sides."""
    minutes = MINUTES
    if "--minutes" in arguments:
        at = arguments.index("--minutes")
        minutes, arguments = float(arguments[at + 1]), arguments[:at] + arguments[at + 2 :]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder / "messages.csv", messages(ROWS, seed=1))
        write(folder / "test.csv", messages(TEST_ROWS, seed=2))
        ours: dict[str, Callable[[], float]] = {
            "train": lambda: with_train(folder),
            "auto": lambda: with_auto(folder, minutes),
        }
        theirs: dict[str, Callable[[], float]] = {
            "sklearn": lambda: with_sklearn(folder, (1.0,)),
            "chosen": lambda: with_sklearn(folder, STRENGTHS, sublinear_tf=True),
        }
        wanted = {name: job for name, job in ours.items() if not arguments or name in arguments}
        print(f"{'job':8} {'accuracy':>8} {'seconds':>8}   {ROWS:,} rows, {TEST_ROWS:,} to score")
        scores: dict[str, float] = {}
        for name, job in (wanted | theirs).items():
            began = time.monotonic()
            scores[name] = job()
            print(f"{name:8} {100 * scores[name]:8.2f} {time.monotonic() - began:8.1f}", flush=True)
        best = [max(100 * scores[name] for name in side) for side in (wanted, theirs)]
        print(f"best of seqloom {best[0]:.2f}, of scikit-learn {best[1]:.2f}: {best[0] - best[1]:+.2f} points")


if __name__ == "__main__":
    main(sys.argv[1:])
