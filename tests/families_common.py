"""What the tests of the families share: small sets of every kind of data, and the error of a family that learned one.

Five of the sets are embedded ones, taken by name. The others are written here, for kinds of data that no embedded set
has; in each of them order decides, so that a model that only counts or adds is found out:

    steps      vectors to a label      does the step with one mark come right before the step with the other?
    colors    text to labels          red, not blue: which colors are there, if "not" takes the next one away?
    adding     vectors to a number     the sum of the two marked numbers (the embedded set at a short length)
    sums       vectors to a series     at each step the sum of its number and the one before
    echo       text to text            a few letters, to be said again
    twins      two texts together      a few letters, and the same ones in another alphabet
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

import seqloom
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.heads import HeadKind
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import ByLengthConfig, LinearConfig, StepsConfig
from seqloom.data.synthetic.grammar import surprise
from seqloom.data.synthetic.registry import NAMES
from seqloom.tasks.evaluation import Evaluation
from seqloom.training.devices import choose_device
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run

SPLITS = {"train": 2_000, "dev": 200, "test": 500}
Row = dict[str, Any]
Draw = Callable[[np.random.Generator], Row]


class Plan(NamedTuple):
    """How a tiny model is trained; the rate falls to zero along a line."""

    steps: int = 300
    rate: float = 1e-2
    budget: int = 500  # tokens of a batch


def _steps(draws: np.random.Generator) -> Row:
    vectors = np.zeros((draws.integers(4, 11), 3))
    vectors[:, 0] = draws.normal(size=len(vectors)).round(2)
    at = draws.integers(len(vectors) - 1)
    forward = bool(draws.integers(2))
    vectors[at, 1 if forward else 2] = vectors[at + 1, 2 if forward else 1] = 1
    return {"vectors": vectors.tolist(), "label": "forward" if forward else "backward"}


def _colors(draws: np.random.Generator) -> Row:
    chosen = draws.permutation(["red", "green", "blue", "black", "white"])[: draws.integers(2, 6)]
    kept = draws.integers(2, size=len(chosen)).astype(bool)
    kept[draws.integers(len(chosen))] = True
    text = " ".join(color if there else f"not {color}" for color, there in zip(chosen, kept, strict=True))
    return {"text": text, "labels": sorted(chosen[kept].tolist())}


def _sums(draws: np.random.Generator) -> Row:
    numbers = draws.normal(size=draws.integers(4, 11)).round(2)
    before = np.concatenate([[0.0], numbers[:-1]])
    return {"vectors": [[one, 1.0] for one in numbers.tolist()], "series": (numbers + before).round(2).tolist()}


def _echo(draws: np.random.Generator) -> Row:
    letters = " ".join(draws.choice(list("abcdefgh"), size=draws.integers(2, 5)))
    return {"source": letters, "target": letters}


def _twins(draws: np.random.Generator) -> Row:
    letters = draws.choice(list("abcdefghijkl"), size=draws.integers(3, 7)).tolist()
    return {"one": " ".join(letters), "other": " ".join(f"{letter}{letter}" for letter in letters)}


def _drawn(draw: Draw) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each part, none of which stands in two."""
    draws, seen = np.random.default_rng(0), set[str]()
    for part, count in SPLITS.items():
        rows: list[Row] = []
        while len(rows) < count:
            row = draw(draws)
            if (key := json.dumps(row)) not in seen:
                seen.add(key)
                rows.append(row)
        yield part, rows


def _adding() -> Iterator[tuple[str, list[Row]]]:
    for part, count in SPLITS.items():
        examples = NAMES["adding"].examples(part, count=count, length=10)  # type: ignore[arg-type]
        yield part, [{"vectors": one.input.tolist(), "score": one.target} for one in examples]  # type: ignore[union-attr]


def _grammar() -> Iterator[tuple[str, list[Row]]]:
    for part, count in SPLITS.items():
        yield part, [{"text": str(one.input)} for one in NAMES["grammar"].examples(part, count=count)]  # type: ignore[arg-type]


def _written(folder: Path, parts: Iterator[tuple[str, list[Row]]]) -> DataConfig:
    paths = {}
    for part, rows in parts:
        paths[part] = (str(folder / f"{part}.jsonl"),)
        (folder / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return DataConfig(**paths)


def opened(name: str, folder: Path) -> DataConfig:
    """The set of this name; one that is not embedded is written into the folder."""
    embedded = {"adding": _adding, "hidden": _grammar}
    if name in embedded:
        return replace(_written(folder, embedded[name]()), task="masked" if name == "hidden" else None)
    if name == "twins":
        return replace(_written(folder, _drawn(_twins)), task="embed", input=("one", "other"))
    own: dict[str, Draw] = {"steps": _steps, "colors": _colors, "sums": _sums, "echo": _echo}
    return _written(folder, _drawn(own[name])) if name in own else DataConfig(train=(name,))


def missed(metric: str) -> Callable[[Evaluation], float]:
    """What is missing to a whole of a metric."""
    return lambda evaluation: 1 - evaluation.metrics[metric]


def squared(evaluation: Evaluation) -> float:
    """The mean squared error."""
    return evaluation.metrics["mse"]


def bits_above_floor(evaluation: Evaluation) -> float:
    """Bits per word above what the texts of the test set of the grammar are worth."""
    texts = [str(one.input) for one in NAMES["grammar"].examples("test")]
    floor = sum(map(surprise, texts)) / sum(len(text.split()) + 1 for text in texts)
    return evaluation.metrics["loss"] / float(np.log(2)) - floor


def evaluated(
    folder: Path, data: DataConfig, family: str, plan: Plan, *, head: HeadKind | None = None, seed: int = 0
) -> Evaluation:
    """The test set judged by a tiny model that was trained in the folder, through the doors that everybody takes."""
    training = {
        "duration": StepsConfig(steps=plan.steps),
        "batching": ByLengthConfig(batch_tokens=plan.budget),
        "lr": plan.rate,
        "schedule": LinearConfig(warmup=plan.steps // 10),
        "validate_every": plan.steps,
        "seed": seed,
    }
    words = EncodingConfig(tokenizer=WordsConfig())
    # what a family makes of words: letters, which taggers read by default, would say some of it
    request = RunRequest(family, "nano", dropout=0.0, head=head, training=training, encoding=words, char_encoder="none")
    resolved = resolve(data, request, cache=folder.parent / "cache")
    for _ in train_run(folder, resolved, device=choose_device("cpu", "float32"), workers=0):
        pass
    return seqloom.load(folder).evaluate(split="test")
