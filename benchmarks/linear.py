"""`linear` beside scikit-learn: accuracy and seconds of the whole job, from a csv file to a model that is kept.

    python benchmarks/linear.py               long texts that are made here, and with SEQLOOM_DATA the public sets
    python benchmarks/linear.py --dev         the dev parts instead of the test parts: settings are chosen on these
    python benchmarks/linear.py long trec     some of the sets

    seqloom     seqloom.train(..., model="linear"), nothing else said
    default     TfidfVectorizer(sublinear_tf=True) and LogisticRegression at their defaults, run until it converges
    chosen      the same with the best of seven C on the dev part, as `linear` chooses its strength

Each job is a process of its own with one thread. Seconds are those of the processor; what the imports take is beside
them, and in them.
"""

import csv
import hashlib
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CLASSES, GROUPS, VOCABULARY, OWN = 20, 5, 40_000, 400
ROWS = (6_000, 1_000, 3_000)  # of train, dev and test
TOPICAL = 0.12  # of the words of a text are of its class, in the mean, and twice as many of its group of classes
AGAIN = 0.3  # of the words repeat one that the text has already
STRENGTHS = (1 / 3, 1.0, 1 / 0.3, 10.0, 1 / 0.03, 100.0, 1 / 0.003)  # C
MOST_STEPS = 10_000
PARTS = ("train", "dev", "test")

Rows = list[tuple[str, str]]


class Done(NamedTuple):
    """What a job came to."""

    accuracy: float
    imports: float  # seconds of the processor
    seconds: float  # with the imports


def words(count: int, draw: np.random.Generator) -> list[str]:
    """So many different words that nobody knows."""
    onsets = "b br c ch d dr f fl g h j k l m n p pl r s sh st t tr v w z".split()  # noqa: SIM905  # as one reads it
    vowels = "a e i o u ai ea ou".split()  # noqa: SIM905
    found: dict[str, None] = {}
    while len(found) < count:
        pairs = draw.integers((len(onsets), len(vowels)), size=(int(draw.integers(2, 5)), 2))
        found["".join(onsets[onset] + vowels[vowel] for onset, vowel in pairs)] = None
    return list(found)


def topic_documents(rows: int, seed: int) -> Rows:
    """Long texts and the topic of each: a few words in a hundred tell it, and words that were said are said again.

    Frequencies are Zipf's. Topics come in groups that share words, so that a topic is easily taken for its neighbour.
    """
    world = np.random.default_rng(7)  # the same for all parts
    known, frequency = words(VOCABULARY, world), 1 / np.arange(10, VOCABULARY + 10) ** 1.05
    topics = [world.choice(np.arange(50, VOCABULARY), OWN, replace=False) for _ in range(CLASSES + GROUPS)]
    draw, texts = np.random.default_rng(seed), []
    for _ in range(rows):
        topic, length = int(draw.integers(CLASSES)), int(np.clip(draw.lognormal(5.2, 0.6), 40, 1_200))
        own, near = min(0.5, TOPICAL * draw.gamma(1.0)), min(0.4, 2 * TOPICAL * draw.gamma(1.0))
        kinds = draw.choice(3, length, p=[1 - own - near, own, near])
        text = draw.choice(VOCABULARY, length, p=frequency / frequency.sum())
        for kind, among in ((1, topics[topic]), (2, topics[CLASSES + topic % GROUPS])):
            share = frequency[among] / frequency[among].sum()
            text[kinds == kind] = draw.choice(among, int((kinds == kind).sum()), p=share)
        for place in np.flatnonzero(draw.random(length) < AGAIN)[1:]:
            text[place] = text[int(draw.integers(place))]
        texts.append((" ".join(known[word] for word in text), f"topic-{topic:02}"))
    return texts


def held_out(rows: Rows, share: int) -> tuple[Rows, Rows]:
    """The rows without every `share`-th, chosen by a hash of its number, and those."""
    out = [int(hashlib.sha256(str(number).encode()).hexdigest(), 16) % share == 0 for number in range(len(rows))]
    return [row for row, is_out in zip(rows, out, strict=True) if not is_out], [
        row for row, is_out in zip(rows, out, strict=True) if is_out
    ]


def public(name: str, folder: Path) -> tuple[Rows, Rows, Rows]:
    """Train, dev and test of a public set."""

    def lines(path: str) -> list[str]:
        data = (folder / path).read_bytes()
        text = (lzma.decompress(data) if path.endswith(".xz") else data).decode()
        return [line for line in text.replace("\r", "").split("\n") if line]

    if name == "trec":
        train, test = ([line.split(" ", 1) for line in lines(f"trec/{part}")] for part in ("train.txt.xz", "test.txt"))
        rest, dev = held_out([(text, label.split(":")[0]) for label, text in train], 10)
        return rest, dev, [(text, label.split(":")[0]) for label, text in test]
    if name == "sst2":
        parts = [lines(f"sst2/{part}") for part in ("train.txt.xz", "dev.txt", "test.txt")]
        return tuple([(line[2:], line[0]) for line in part] for part in parts)  # type: ignore[return-value]
    if name == "atis":
        parts = [lines(f"atis/{part}") for part in ("train.tsv.xz", "valid.tsv", "test.tsv")]
        split = [[line.split("\t") for line in part] for part in parts]
        return tuple([(text, label) for label, text, _ in part] for part in split)  # type: ignore[return-value]
    messages = [line.split("\t", 1) for line in lines("sms_spam/SMSSpamCollection.txt.xz")]
    rest, test = held_out([(text, label) for label, text in messages], 5)
    train, dev = held_out(rest, 8)
    return train, dev, test


def sets(wanted: list[str]) -> Iterator[tuple[str, tuple[Rows, Rows, Rows]]]:
    """The sets by name."""
    data = os.environ.get("SEQLOOM_DATA")
    for name in ("trec", "sst2", "sms", "atis") if data else ():
        if not wanted or name in wanted:
            yield name, public(name, Path(str(data)))
    if not wanted or "long" in wanted:
        train, dev, test = (topic_documents(count, seed) for seed, count in enumerate(ROWS, start=1))
        yield "long", (train, dev, test)


def solved(folder: Path, part: str) -> dict[str, float]:
    """The job of seqloom; evaluating the model is not in its seconds."""
    began = time.process_time()
    import seqloom
    from seqloom.training.run import train

    loaded = time.process_time()
    out = folder / "run"
    train(folder / "train.csv", dev=str(folder / "dev.csv"), model="linear", out=out, device="cpu")
    done = time.process_time()
    found = seqloom.load(out).evaluate(folder / f"{part}.csv").metrics["accuracy"]
    return {"accuracy": found, "imports": loaded - began, "seconds": done - began}


def fitted(folder: Path, part: str, *, chooses: bool) -> dict[str, float]:
    """The job of scikit-learn; evaluating the model is not in its seconds."""
    began = time.process_time()
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    loaded = time.process_time()
    weigh = TfidfVectorizer(sublinear_tf=True)
    texts, labels = read(folder / "train.csv")
    features = weigh.fit_transform(texts)
    models = [
        LogisticRegression(C=strength, max_iter=MOST_STEPS).fit(features, labels)
        for strength in (STRENGTHS if chooses else (1.0,))
    ]
    if chooses:
        dev, answers = read(folder / "dev.csv")
        models.sort(key=lambda model: -model.score(weigh.transform(dev), answers))
    done = time.process_time()
    others, answers = read(folder / f"{part}.csv")
    found = models[0].score(weigh.transform(others), answers)
    return {"accuracy": found, "imports": loaded - began, "seconds": done - began}


def read(path: Path) -> tuple[list[str], list[str]]:
    """The texts and labels of a file."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def job(kind: str, folder: Path, part: str) -> Done:
    """A job in a process of its own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    surroundings = {**os.environ, **threads, "SEQLOOM_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, __file__, "--job", kind, str(folder), part]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    return Done(**json.loads(done.stdout.strip().split("\n")[-1]))


def main(arguments: list[str]) -> None:
    """A line for each set and job."""
    if arguments[:1] == ["--job"]:
        _, kind, folder, part = arguments
        jobs: dict[str, Any] = {"seqloom": lambda: solved(Path(folder), part)}
        jobs |= {
            "default": lambda: fitted(Path(folder), part, chooses=False),
            "chosen": lambda: fitted(Path(folder), part, chooses=True),
        }
        print(json.dumps(jobs[kind]()))
        return
    part = "dev" if "--dev" in arguments else "test"
    print(f"{'set':6} {'rows':>6} {'job':8} {part + ' %':>7} {'difference':>10} {'seconds':>8} {'of imports':>10}")
    for name, parts in sets([argument for argument in arguments if not argument.startswith("-")]):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for one, rows in zip(PARTS, parts, strict=True):
                with (folder / f"{one}.csv").open("w", newline="", encoding="utf-8") as file:
                    csv.writer(file).writerows([("text", "label"), *rows])
            ours = job("seqloom", folder, part)
            for kind, done in (("seqloom", ours), *((kind, job(kind, folder, part)) for kind in ("default", "chosen"))):
                apart = 100 * (ours.accuracy - done.accuracy)
                figures = f"{100 * done.accuracy:7.2f} {apart:+10.2f} {done.seconds:8.1f} {done.imports:10.1f}"
                print(f"{name:6} {len(parts[0]):6,} {kind:8} {figures}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
