"""`linear` against scikit-learn: accuracy and seconds of the whole job, from a csv file to a saved model.

    python benchmarks/linear.py               artificial long texts, and with SEQLOOM_DATA the public datasets
    python benchmarks/linear.py --dev         the dev sets instead of the test sets, for choosing settings
    python benchmarks/linear.py long trec     some of the datasets
    python benchmarks/linear.py --times 3     every job three times, alternating, and the median seconds

    seqloom     seqloom.train(..., model="linear") with all defaults
    default     TfidfVectorizer(sublinear_tf=True) and LogisticRegression with defaults, run until convergence
    chosen      the same with the best of seven C on the dev set, as `linear` chooses its regularization
    same        the best of seven C with the features of `linear`: lowercased words and punctuation, and bigrams where
                `linear` uses them. (Bigrams count half there, which a TfidfVectorizer cannot express.)
    chars       seqloom.train(..., model="linear", char_encoder="ngrams"): also character n-grams inside words
    same chars  `same`, joined with TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5)) of the same words

Each job is a process with one thread. Seconds are CPU time without imports, which have their own column. The garbage
collector ignores what imports created, on both sides. There are two times:

    core        from a csv file to a model chosen on the dev set: read, features, fit, choose. For seqloom this is
                everything except what only `whole` includes; checking the data and its cache are part of it
    whole       with what scikit-learn does not do: checkpoints after each regularization strength, a model folder with
                its card, calibration and intervals, report and pages of the run, all synced to disk
"""

import csv
import gc
import hashlib
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CLASSES, GROUPS, VOCABULARY, OWN = 20, 5, 40_000, 400
ROWS = (6_000, 1_000, 3_000)  # train, dev, test
TOPICAL = 0.12  # mean share of words specific to the class; twice that for its group of classes
AGAIN = 0.3  # share of words that repeat an earlier word of the text
STRENGTHS = (1 / 3, 1.0, 1 / 0.3, 10.0, 1 / 0.03, 100.0, 1 / 0.003)  # C
MOST_STEPS = 10_000
SPLITS = ("train", "dev", "test")
WORDS_AND_MARKS = r"\w+|[^\w\s]"

Rows = list[tuple[str, str]]


class JobResult(NamedTuple):
    """The result of a job."""

    accuracy: float
    imports: float  # CPU seconds
    core: float
    whole: float
    order: int = 1  # highest order of n-grams


def words(count: int, draw: np.random.Generator) -> list[str]:
    """Return this many distinct artificial words."""
    onsets = "b br c ch d dr f fl g h j k l m n p pl r s sh st t tr v w z".split()  # noqa: SIM905  # readable
    vowels = "a e i o u ai ea ou".split()  # noqa: SIM905
    found: dict[str, None] = {}
    while len(found) < count:
        pairs = draw.integers((len(onsets), len(vowels)), size=(int(draw.integers(2, 5)), 2))
        found["".join(onsets[onset] + vowels[vowel] for onset, vowel in pairs)] = None
    return list(found)


def topic_documents(rows: int, seed: int) -> Rows:
    """Return long texts with their topics: few words depend on the topic, and words repeat.

    Word frequencies follow Zipf's law. Topics come in groups that share words, so neighbors are easily confused.
    """
    world = np.random.default_rng(7)  # the same for all splits
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
    """Split off about one in `share` rows, chosen by a hash of the row number; returns the rest and those."""
    out = [int(hashlib.sha256(str(number).encode()).hexdigest(), 16) % share == 0 for number in range(len(rows))]
    return [row for row, is_out in zip(rows, out, strict=True) if not is_out], [
        row for row, is_out in zip(rows, out, strict=True) if is_out
    ]


def public(name: str, folder: Path) -> tuple[Rows, Rows, Rows]:
    """Return train, dev and test of a public dataset."""

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
    """Yield the datasets by name."""
    data = os.environ.get("SEQLOOM_DATA")
    for name in ("trec", "sst2", "sms", "atis") if data else ():
        if not wanted or name in wanted:
            yield name, public(name, Path(str(data)))
    if not wanted or "long" in wanted:
        train, dev, test = (topic_documents(count, seed) for seed, count in enumerate(ROWS, start=1))
        yield "long", (train, dev, test)


class Watch:
    """Sums the CPU seconds spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, module: Any, *names: str) -> None:
        """Wrap functions of a module; none of them calls another."""
        for name in names:
            setattr(module, name, self._watched(getattr(module, name)))

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.process_time() - began

        return watched


def with_seqloom(folder: Path, part: str, **settings: Any) -> JobResult:
    """Run the job with seqloom; evaluation is not timed."""
    began = time.process_time()
    import seqloom
    from seqloom.training import checkpoint, loop, run
    from seqloom.training.run_folder import RunFolder

    loaded, out, kept = time.process_time(), Path(tempfile.mkdtemp(dir=folder)) / "run", Watch()
    kept.watch(loop, "save_model", "settle", "repaired_model")
    kept.watch(checkpoint, "save", "retain")
    kept.watch(run, "write_pages")
    gc.freeze()
    start = time.process_time()
    run.train(folder / "train.csv", dev=str(folder / "dev.csv"), model="linear", out=out, device="cpu", **settings)
    whole = time.process_time() - start
    model: Any = RunFolder(out).config().model
    found = seqloom.load(out).evaluate(folder / f"{part}.csv").metrics["accuracy"]
    return JobResult(found, loaded - began, whole - kept.seconds, whole, model.encoder.input.order)


def with_sklearn(
    folder: Path, part: str, strengths: tuple[float, ...], *, characters: bool = False, **features: Any
) -> JobResult:
    """Run the job with scikit-learn; evaluation is not timed."""
    began = time.process_time()
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import FeatureUnion

    loaded = time.process_time()
    gc.freeze()
    start = time.process_time()
    weigh = TfidfVectorizer(sublinear_tf=True, **features)
    if characters:
        spelled = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 5), preprocessor=spaced)
        weigh = FeatureUnion([("words", weigh), ("characters", spelled)])
    texts, labels = read(folder / "train.csv")
    features = weigh.fit_transform(texts)
    models = [LogisticRegression(C=strength, max_iter=MOST_STEPS).fit(features, labels) for strength in strengths]
    if len(models) > 1:
        dev, answers = read(folder / "dev.csv")
        weighed = weigh.transform(dev)
        models.sort(key=lambda model: -model.score(weighed, answers))
    seconds = time.process_time() - start
    others, answers = read(folder / f"{part}.csv")
    found = models[0].score(weigh.transform(others), answers)
    return JobResult(found, loaded - began, seconds, seconds)


def spaced(text: str) -> str:
    """Return the words and marks with a space between, so that n-grams stay inside the words of `linear`."""
    return " ".join(re.findall(WORDS_AND_MARKS, text))


def read(path: Path) -> tuple[list[str], list[str]]:
    """Read the texts and labels of a file."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def job(kind: str, folder: Path, part: str, order: int) -> JobResult:
    """Run a job in its own process, with n-grams up to an order where it can be set."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "SEQLOOM_CACHE": tempfile.mkdtemp(dir=folder), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, __file__, "--job", kind, str(folder), part, str(order)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return JobResult(**json.loads(done.stdout.strip().split("\n")[-1]))


def main(arguments: list[str]) -> None:
    """Print a line per dataset and job."""
    if arguments[:1] == ["--job"]:
        _, kind, place, part, order = arguments
        folder = Path(place)
        same = {"token_pattern": WORDS_AND_MARKS, "ngram_range": (1, int(order))}
        jobs: dict[str, Callable[[], JobResult]] = {
            "seqloom": lambda: with_seqloom(folder, part),
            "default": lambda: with_sklearn(folder, part, (1.0,)),
            "chosen": lambda: with_sklearn(folder, part, STRENGTHS),
            "same": lambda: with_sklearn(folder, part, STRENGTHS, **same),
            "chars": lambda: with_seqloom(folder, part, char_encoder="ngrams"),
            "same chars": lambda: with_sklearn(folder, part, STRENGTHS, characters=True, **same),
        }
        print(json.dumps(jobs[kind]()._asdict()))
        return
    part, times = "dev" if "--dev" in arguments else "test", 1
    if "--times" in arguments:
        at = arguments.index("--times")
        times, arguments = int(arguments[at + 1]), arguments[:at] + arguments[at + 2 :]
    print(
        f"{'set':6} {'rows':>6} {'job':10} {part + ' %':>7} {'difference':>10} {'core':>6} {'whole':>6} {'imports':>8}"
    )
    for name, parts in sets([argument for argument in arguments if not argument.startswith("-")]):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for one, rows in zip(SPLITS, parts, strict=True):
                with (folder / f"{one}.csv").open("w", newline="", encoding="utf-8") as file:
                    csv.writer(file).writerows([("text", "label"), *rows])
            found: dict[str, list[JobResult]] = {}
            for _ in range(times):
                for kind in ("seqloom", "default", "chosen", "same", "chars", "same chars"):
                    order = found["seqloom"][0].order if found else 1
                    found.setdefault(kind, []).append(job(kind, folder, part, order))
            for kind, all_ in found.items():
                accuracy = all_[0].accuracy
                apart = 100 * (found["seqloom"][0].accuracy - accuracy)
                core, whole, imports = (
                    statistics.median(getattr(done, field) for done in all_) for field in ("core", "whole", "imports")
                )
                figures = f"{100 * accuracy:7.2f} {apart:+10.2f} {core:6.2f} {whole:6.2f} {imports:8.2f}"
                print(f"{name:6} {len(parts[0]):6,} {kind:10} {figures}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
