"""Words that are said: how likely a new one is can be learned, because those that occur once are unknown."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from seqloom.config.data import DataConfig, EncodingConfig, RandomSplit, Task
from seqloom.config.tokenizers import BpeConfig, CharactersConfig, FittedTokenizer, WordsConfig
from seqloom.config.training import StepsConfig
from seqloom.report.numbers import share
from seqloom.text.special_tokens import UNKNOWN
from seqloom.training.devices import choose_device
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import train_run
from seqloom.training.run_location import RunLocation
from training_common import BASE

HERE = choose_device("cpu", "float32")


def write_long_tail(folder: Path, lines: int = 250) -> Path:
    """Lines of words by Zipf's law: many of them occur once, and many of the dev set in no other."""
    draw, chances = np.random.default_rng(0), 1 / np.arange(1, 5_001)
    numbers = draw.choice(5_000, size=(lines, 12), p=chances / chances.sum())
    path = folder / "tail.txt"
    path.write_text("\n".join(" ".join(f"w{number}" for number in row) for row in numbers), encoding="utf-8")
    return path


def write_pairs(folder: Path) -> Path:
    lines = write_long_tail(folder, 40).read_text(encoding="utf-8").split("\n")
    path = folder / "pairs.tsv"
    path.write_text("source\ttarget\n" + "\n".join(f"{one}\t{one.upper()}" for one in lines), encoding="utf-8")
    return path


def wanting(data: Path, task: Task | None = None, home: RunLocation | None = None, **settings: Any) -> Resolved:
    request = RunRequest(size="nano", training=BASE | settings.pop("training", {}), **settings)
    config = DataConfig(train=(str(data),), task=task, split=RandomSplit(dev_size=0.2, test_size=0.0))
    return resolve(config, request, location=home, cache=data.parent / "cache")


def words(tokenizer: FittedTokenizer | None) -> WordsConfig:
    assert isinstance(tokenizer, WordsConfig)
    return tokenizer


@pytest.mark.slow
def test_a_new_word_costs_a_language_model_what_its_share_says(tmp_path: Path) -> None:
    data, costs = write_long_tail(tmp_path), dict[int | None, float]()
    for least in (None, 1):
        encoding = None if least is None else EncodingConfig(tokenizer=WordsConfig(min_count=least))
        length = {"duration": StepsConfig(steps=400), "validate_every": 400}
        found = wanting(data, "lm", model="lstm", dropout=0.0, encoding=encoding, training=length)
        for _ in train_run(tmp_path / f"run-{least}", found, device=HERE, workers=0):
            pass
        costs[least] = cost_of_unknown(found, tmp_path / f"run-{least}")
        if least is None:
            read = found.prepared.columns["input"].select(found.prepared.splits["train"]).values
            share = float((read == UNKNOWN).mean())
    assert costs[None] < 3 and 0.2 < share < 0.5
    assert costs[None] == pytest.approx(-np.log(share), abs=0.7)
    assert costs[1] > 10  # what nobody says in training becomes as unlikely as the steps allow


def cost_of_unknown(found: Resolved, folder: Path) -> float:
    """The mean loss, in nats, of the unknown words of the dev set."""
    model, costs = seqloom.load(folder).model, list[float]()
    loader = found.task.loader(found.prepared, "dev", found.config.training.batching, seed=0, workers=0)
    with torch.no_grad():
        for step in loader.steps(until=1):
            losses = model.head.losses(model.features(step.batch.inputs), step.batch.targets)  # type: ignore[operator, union-attr]
            costs += losses[0][step.batch.inputs.valid & (step.batch.targets == UNKNOWN)].tolist()
    assert len(costs) > 100
    return float(np.mean(costs))


@pytest.mark.parametrize("task", ["lm", "masked"])
def test_words_of_running_text_that_occur_once_are_unknown_and_that_is_told_and_written(
    task: Task, tmp_path: Path
) -> None:
    found = wanting(write_long_tail(tmp_path), task)
    assert words(found.config.encoding.tokenizer).min_count == 2 and "min_count = 2" in found.config.to_toml()
    (line,) = (line for line in found.messages if line.startswith("words that occur only once"))
    read = found.prepared.columns["input"].select(found.prepared.splits["train"]).values
    assert f"{share((read == UNKNOWN).mean())} of" in line and "--min-count 1 keeps them" in line


def test_of_a_translation_the_words_that_are_said_may_be_unknown(tmp_path: Path) -> None:
    data = write_pairs(tmp_path)
    shared = wanting(data, "translate", encoding=EncodingConfig(tokenizer=WordsConfig()))
    apart = wanting(data, "translate", encoding=EncodingConfig(tokenizer=WordsConfig(), target_tokenizer=WordsConfig()))
    assert words(shared.config.encoding.tokenizer).min_count == 2
    assert words(apart.config.encoding.tokenizer).min_count == 1  # its words are only read
    assert words(apart.config.encoding.target_tokenizer).min_count == 2
    for found in (shared, apart):
        said = found.prepared.columns["target"].select(found.prepared.splits["train"]).values
        assert (said == UNKNOWN).any()
        assert any(line.startswith("words that occur only once") for line in found.messages)


def test_words_that_are_only_read_are_all_known(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text,label\n" + "".join(f"once{n} often,{n % 2}\n" for n in range(40)), encoding="utf-8")
    found = wanting(path, "classify")
    assert words(found.config.encoding.tokenizer).min_count == 1
    assert UNKNOWN not in found.prepared.columns["input"].select(found.prepared.splits["train"]).values


@pytest.mark.parametrize(
    "tokenizer", [WordsConfig(min_count=1), WordsConfig(min_count=3), CharactersConfig(), BpeConfig()]
)
def test_what_is_said_about_rare_words_is_done_without_a_word(tokenizer: FittedTokenizer, tmp_path: Path) -> None:
    found = wanting(write_long_tail(tmp_path), "lm", encoding=EncodingConfig(tokenizer=tokenizer))
    assert found.config.encoding.tokenizer == tokenizer
    assert not any("--min-count" in line for line in found.messages)


def test_a_text_that_is_too_short_for_words_is_told_how_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("".join(f"the cat saw {word} once\n" for word in "abcdefghijklmnopqrst"), encoding="utf-8")
    (line,) = (line for line in wanting(path, "lm").messages if line.startswith("words that occur only once"))
    assert line == (
        "words that occur only once are replaced by the unknown token: 20 % of the training text (--min-count 1 keeps "
        "them); for so little text, --tokenizer characters or bpe fits better"
    )


@pytest.mark.slow
def test_a_run_that_began_with_every_word_goes_on_with_every_word(tmp_path: Path) -> None:
    data, folder = write_long_tail(tmp_path, 40), tmp_path / "run"
    every = EncodingConfig(tokenizer=WordsConfig(word_split="space", min_count=1))
    length = {"duration": StepsConfig(steps=1)}
    for _ in train_run(folder, wanting(data, "lm", encoding=every, training=length), device=HERE, workers=0):
        pass
    unsaid = EncodingConfig(tokenizer=WordsConfig(word_split="space"))
    for encoding in (None, unsaid):
        again = wanting(data, "lm", RunLocation(folder), model="lstm", encoding=encoding, training=length)
        assert again.config.encoding == every
