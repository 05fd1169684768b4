"""Data loading: a file of 200,000 sentences to batches, against `encode_batch` of the tokenizers library alone.

Both alternate in one run, and the result is the ratio of medians. Then it measures the second start, from the cache,
and the memory of loading files of the size given as the second argument (in megabytes, 0 for none), with short rows
and with rows of 150 kB, each in its own process.

    python benchmarks/data_loading.py [sentences] [megabytes]
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenization import sentences

from seqloom.config.data import DataConfig, EncodingConfig, GivenSplit, RandomSplit
from seqloom.config.tokenizers import BpeConfig, WordsConfig
from seqloom.data.dataset import open_data
from seqloom.data.loader import feed
from seqloom.data.prepared import ExampleEncoder, Prepared, prepare
from seqloom.data.problems import Ledger
from seqloom.data.survey import Survey
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

ROUNDS = 5
LONG_ROW = 150_000  # characters
ENCODING = EncodingConfig(tokenizer=BpeConfig(vocab_size=8_000))


def write(path: Path, texts: list[str]) -> None:
    """Write a jsonl file of texts, each with one of four labels."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"text": text, "label": f"class {number % 4}"}, ensure_ascii=False) + "\n")


def config(path: Path) -> DataConfig:
    """Return a configuration with all rows in the training set."""
    return DataConfig(train=(str(path),), split=RandomSplit(dev_size=0.0, test_size=0.0))


def ours(path: Path, tokenizer: Tokenizer) -> int:
    """Do everything from file to tensors: read, check, encode, order, collate; returns the number of batches."""
    ledger = Ledger()
    survey = Survey(open_data(config(path), ledger), ledger)
    for _ in survey.blocks():
        pass
    encoder = ExampleEncoder(survey.schema(), ENCODING, tokenizer, None, ledger)
    blocks = [encoder.columns(block) for _, block in survey.again()]
    columns = {name: Ragged.joined([block[name] for block in blocks]) for name in blocks[0]}
    rows = {"train": np.arange(columns["input"].rows), "dev": np.empty(0, int), "test": np.empty(0, int)}
    prepared = Prepared(encoder.schema, tokenizer, None, columns, rows, (), GivenSplit(), np.empty((0, 2)), (), {})
    return sum(1 for _ in feed(prepared, "train", workers=1).steps(until=1))


def seconds(function, *arguments) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def against_the_library(path: Path, texts: list[str]) -> None:
    """Print the ratio to the library."""
    tokenizer = BpeConfig(vocab_size=8_000).fit(texts)
    library = tokenizer.segmenter._library
    pairs = [(seconds(ours, path, tokenizer), seconds(library.encode_batch, texts)) for _ in range(ROUNDS)]
    ratios = sorted(one / other for one, other in pairs)
    mine, its = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"file to batches {mine:.2f} s, encode_batch {its:.2f} s: {mine / its:.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    )


def second_start(path: Path, cache: Path) -> None:
    """Print how much faster the second start is."""
    times = []
    for _ in range(2):
        ledger = Ledger()
        times.append(
            seconds(lambda ledger=ledger: prepare(open_data(config(path), ledger), ENCODING, ledger, cache=cache))
        )
    print(f"first start {times[0]:.2f} s, second {times[1]:.3f} s: {times[0] / times[1]:.0f}x faster")


def large(folder: Path, name: str, rows: Iterable[str], megabytes: int) -> None:
    """Print the peak memory of a process that prepares a large file of these texts."""
    path = folder / "large.jsonl"
    with path.open("w", encoding="utf-8") as file:
        size = 0
        for number, text in enumerate(rows):
            size += file.write(json.dumps({"text": text, "label": str(number % 3)}) + "\n")  # ASCII
            if size > megabytes * 10**6:
                break
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--prepare", str(path)], check=True, capture_output=True, text=True
    )
    print(f"{megabytes:,} MB of {name} rows: {done.stdout.strip()}, {time.perf_counter() - began:.0f} s")


def short_rows(texts: list[str]) -> Iterator[str]:
    """Yield sentences forever, each with a number."""
    return (f"{text} {number}" for number, text in enumerate(itertools.cycle(texts)))


def long_rows(texts: list[str]) -> Iterator[str]:
    """Yield texts of 150 kB forever, each a different excerpt of the sentences."""
    whole = " ".join(itertools.islice(itertools.cycle(texts), 2 * LONG_ROW // 50))
    return (whole[start : start + LONG_ROW] for start in itertools.cycle(range(0, len(whole) - LONG_ROW, 97)))


def prepare_alone(path: Path) -> None:
    """Prepare a file in this process and print its peak memory."""
    ledger = Ledger()
    encoding = EncodingConfig(tokenizer=WordsConfig(vocab_size=50_000))
    prepared = prepare(open_data(config(path), ledger), encoding, ledger, cache=path.parent / "cache")
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # not getrusage, which includes the parent
    most = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(f"peak {most:.0f} MiB for {len(prepared.splits['train']):,} rows")


def main(arguments: Sequence[str]) -> None:
    """Run all three."""
    if arguments[:1] == ["--prepare"]:
        prepare_alone(Path(arguments[1]))
        return
    count, megabytes = (*map(int, arguments), *(200_000, 2_000)[len(arguments) :])
    texts = list(sentences(count))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sentences.jsonl")
        write(path, texts)
        against_the_library(path, texts)
        second_start(path, Path(folder, "cache"))
        for name, rows in (("short", short_rows(texts)), ("150 kB", long_rows(texts))) if megabytes else ():
            large(Path(folder), name, rows, megabytes)


if __name__ == "__main__":
    main(sys.argv[1:])
