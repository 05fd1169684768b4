"""Parts: given or drawn and never mixed, told when they come out empty, in the order of their files, read in blocks."""

import gc
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from data_settings import BY_NAME, ROWS, table
from seqloom.config.data import SPLITS, DataConfig, EncodingConfig, FoldSplit, RandomSplit, ReadingConfig
from seqloom.config.tokenizers import BytesConfig, CharactersConfig, WordsConfig
from seqloom.data.check import load_data
from seqloom.data.checks.check import BLOCK_CHARACTERS, BLOCK_ROWS
from seqloom.data.dataset import Dataset, SplitBlock, open_data
from seqloom.data.kinds.text import TextPair
from seqloom.data.kinds.words import Words
from seqloom.data.prepared import Prepared, prepare
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Examples, Input
from seqloom.data.survey import Survey, in_blocks
from seqloom.errors import ConfigError
from seqloom.text.special_tokens import UNKNOWN

GIVEN = 7  # rows of a part that is given


def with_files(folder: Path, *parts: str, **how: Any) -> DataConfig:
    """A training file of ROWS rows, and files of GIVEN rows for some parts."""
    train = BY_NAME["csv"].config(folder).train
    for part in parts:
        texts = [f"an {part} film {number}" for number in range(GIVEN)]
        (folder / f"{part}.csv").write_text(table(texts, ["pos", "neg"] * 3 + ["pos"], header="text label"))
    return DataConfig(train=train, **{part: (str(folder / f"{part}.csv"),) for part in parts}, **how)


def counts(dataset: Dataset) -> Counter[str]:
    return Counter(part for part, _ in dataset.rows(Ledger()))


@pytest.mark.parametrize(
    ("parts", "expected", "said"),
    [
        (
            ("test",),
            {"train": 36, "dev": 4, "test": GIVEN},
            "split: 10 % dev drawn from train with seed 4; test is given",
        ),
        (
            ("dev",),
            {"train": 36, "dev": GIVEN, "test": 4},
            "split: 10 % test drawn from train with seed 4; dev is given",
        ),
        (("dev", "test"), {"train": 40, "dev": GIVEN, "test": GIVEN}, "split: the given files"),
    ],
)
def test_a_draw_adds_nothing_to_a_part_that_is_given(
    parts: tuple[str, ...], expected: dict[str, int], said: str, tmp_path: Path
) -> None:
    dataset = open_data(with_files(tmp_path, *parts, split=RandomSplit(split_seed=4)), Ledger())
    assert counts(dataset) == expected
    assert said in dataset.messages
    assert isinstance(dataset.config.split, RandomSplit) and dataset.config.split.split_seed == 4


def test_a_fold_beside_a_given_dev_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"--fold uses a fold of the training data as the dev set, but --dev is also given\. Fix: leave out",
    ):
        open_data(with_files(tmp_path, "dev", split=FoldSplit()), Ledger())
    assert counts(open_data(with_files(tmp_path, "test", split=FoldSplit()), Ledger()))["test"] == GIVEN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dev", ("a.csv",)),
        ("test", ("a.csv",)),
        ("split", RandomSplit(split_seed=4)),
        ("task", "classify"),
        ("reading", ReadingConfig(format="csv")),
        ("input", ("text",)),
        ("target", ("label",)),
        ("id", "id"),
        ("label_separator", "|"),
        ("sequence", "run"),
    ],
)
def test_a_setting_beside_an_embedded_set_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"'dates' has no setting '{name}': .* Fix: leave out '{name}'"):
        open_data(DataConfig(train=("dates",), **{name: value}), Ledger())


def test_the_task_of_an_embedded_set_may_be_named_and_no_other() -> None:
    named = open_data(DataConfig(train=("grammar",), task="lm"), Ledger())
    assert named.schema == open_data(DataConfig(train=("grammar",)), Ledger()).schema
    with pytest.raises(ConfigError, match=r"has no setting 'task': .* its task is lm"):
        open_data(DataConfig(train=("grammar",), task="tag"), Ledger())


def surveyed(config: DataConfig) -> Ledger:
    """The ledger after everything was read."""
    ledger = Ledger()
    for _ in Survey(open_data(config, ledger), ledger).blocks():
        pass
    return ledger


def grouped(folder: Path, groups: list[str], split: RandomSplit | FoldSplit) -> DataConfig:
    texts = [f"text {number}" for number in range(len(groups))]
    (folder / "g.csv").write_text(table(texts, ["pos", "neg"] * (len(groups) // 2), groups, header="text label who"))
    return DataConfig(train=(str(folder / "g.csv"),), input=("text",), target=("label",), split=split)


@pytest.mark.parametrize("split", [RandomSplit(group="who"), FoldSplit(folds=5, fold=3, group="who")])
def test_a_part_that_no_group_fell_to_is_told(split: RandomSplit | FoldSplit, tmp_path: Path) -> None:
    empty = [seed for seed in range(5) if counts(_seeded(tmp_path, split, seed))["dev"] == 0]
    assert empty
    for seed in range(5):
        ledger = surveyed(_seeded(tmp_path, split, seed).config)
        assert any("dev is empty" in one.text for one in ledger.samples.get("split.empty", [])) == (seed in empty)


def _seeded(folder: Path, split: RandomSplit | FoldSplit, seed: int) -> Dataset:
    new = type(split)(**{name: getattr(split, name) for name in split.__struct_fields__} | {"split_seed": seed})
    return open_data(grouped(folder, ["a", "b", "c", "d"] * 10, new), Ledger())


def test_a_part_that_groups_made_too_large_is_told_and_rows_that_are_given_do_not_count(tmp_path: Path) -> None:
    even = grouped(
        tmp_path, [str(number) for number in range(400)], RandomSplit(dev_size=0.5, test_size=0.0, group="who")
    )
    assert "split.uneven" not in surveyed(even).counts
    others = [f"other {number}" for number in range(1_600)]
    (tmp_path / "test.csv").write_text(table(others, ["pos", "neg"] * 800, others, header="text label who"))
    given = DataConfig(train=even.train, test=(str(tmp_path / "test.csv"),), input=("text",), target=("label",))
    half = RandomSplit(dev_size=0.5, group="who")  # of train: a tenth of all rows
    ledger = surveyed(DataConfig(**{**_settings(given), "split": half}))
    assert "split.uneven" not in ledger.counts and "split.empty" not in ledger.counts
    uneven = grouped(tmp_path, ["one"] * 300 + [str(number) for number in range(100)], half)
    assert "split.uneven" in surveyed(uneven).counts


def _settings(config: DataConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


@pytest.mark.parametrize("rows", [12, 90, 700])
def test_a_short_text_for_a_language_model_has_all_its_parts(rows: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number} of a text\n" for number in range(rows)))
    ledger = surveyed(DataConfig(train=(str(tmp_path / "a.txt"),), task="lm"))
    assert "split.empty" not in ledger.counts


# What the parts are used for


def translated(folder: Path) -> dict[str, Any]:
    """Parallel text whose dev set has words of its own on both sides."""
    for part, (source, target) in {"train": ("a house", "ein Haus"), "dev": ("a mouse", "eine Maus")}.items():
        (folder / f"{part}.en").write_text(f"{source}\n" * 4)
        (folder / f"{part}.de").write_text(f"{target}\n" * 4)
    return {"train": _sides(folder, "train"), "dev": _sides(folder, "dev")}


def _sides(folder: Path, part: str) -> tuple[str, ...]:
    return str(folder / f"{part}.en"), str(folder / f"{part}.de")


@pytest.mark.parametrize("kind", [WordsConfig(), CharactersConfig()])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_tokenizers_are_fitted_on_the_training_part_alone(
    kind: Any, separate: bool, cached: bool, tmp_path: Path
) -> None:
    files = translated(tmp_path)
    how = {"tokenizer": kind, "target_tokenizer": kind if separate else None}
    cache = tmp_path / "cache" if cached else None
    prepared = load_data(*files["train"], dev=files["dev"], cache=cache, **how)
    for name in ("input", "target"):
        unknown = [UNKNOWN in prepared.columns[name].row(row) for row in prepared.splits["dev"]]
        assert all(unknown), name
        assert not any(UNKNOWN in prepared.columns[name].row(row) for row in prepared.splits["train"])


@pytest.mark.parametrize("name", ["csv", "tsv", "parquet", "jsonl", "parallel", "folder"])
def test_the_rows_of_a_part_come_in_the_order_of_the_file_and_know_their_place(name: str, tmp_path: Path) -> None:
    config = BY_NAME[name].config(tmp_path)
    rows = list(open_data(config, Ledger()).rows(Ledger()))
    prepared = _prepared(config)
    assert prepared.tokenizer is not None and len(rows) == ROWS
    for part, numbers in prepared.splits.items():
        expected = [(str(one.input), one.place) for row_part, one in rows if row_part == part]
        found = [(_decoded(prepared, row), prepared.place_of(row)) for row in numbers.tolist()]
        assert found == expected and len(found) > 0


def _prepared(config: DataConfig) -> Prepared:
    ledger = Ledger()
    return prepare(open_data(config, ledger), EncodingConfig(tokenizer=BytesConfig()), ledger)


def _decoded(prepared: Prepared, row: int) -> str:
    assert prepared.tokenizer is not None
    return prepared.tokenizer.decode(prepared.columns["input"].row(row))


# Blocks


def examples(inputs: list[Input]) -> list[Example]:
    return [Example(one, "x", "", Place("a", number)) for number, one in enumerate(inputs)]


def in_train(rows: list[Example]) -> SplitBlock:
    return SplitBlock(["train"] * len(rows), Examples.of(rows))


@pytest.mark.parametrize(
    "large",
    [
        "x" * 150_000,
        TextPair("x" * 75_000, "y" * 75_000),
        Words("x" * 150_000, ((0, 150_000),)),
        np.zeros((150, 250), np.float32),
    ],
)
def test_a_block_of_large_rows_is_closed_by_their_size(large: Input) -> None:
    rows = examples([large] * 100)
    blocks = [block for _, block in in_blocks([in_train(rows)])]
    assert [example for block in blocks for example in block] == rows
    assert max(map(len, blocks)) == -(-BLOCK_CHARACTERS // 150_000)


def test_a_block_of_small_rows_is_closed_by_their_number() -> None:
    blocks = [block for _, block in in_blocks([in_train(examples(["x"] * (BLOCK_ROWS + 1)))])]
    assert list(map(len, blocks)) == [BLOCK_ROWS, 1]


@pytest.mark.parametrize("largest", [2, 9])
@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_those_of_rows_that_come_one_by_one(seed: int, largest: int) -> None:
    draw = Random(seed)
    rows = [Example("x" * draw.randint(0, largest), None, "", Place("a", number)) for number in range(300)]
    splits = [draw.choice(SPLITS) for _ in rows]
    ends = [0, *accumulate(draw.randint(1, 40) for _ in rows)]
    given = [SplitBlock(splits[at:end], Examples.of(rows[at:end])) for at, end in pairwise(ends) if at < len(rows)]
    single = [SplitBlock([split], Examples.of([row])) for split, row in zip(splits, rows, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqloom.data.survey.BLOCK_ROWS", 16)
        patch.setattr("seqloom.data.survey.BLOCK_CHARACTERS", 64)
        together, alone = ([(part, list(block)) for part, block in in_blocks(these)] for these in (given, single))
    assert together == alone
    assert all(len(block) <= 16 for _, block in alone)


def test_rows_in_memory_are_no_objects_that_pythons_search_for_cycles_visits(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.csv", 20_000
    path.write_text("text,label\n" + "\n".join(f"text {row},{row % 2}" for row in range(rows)), encoding="utf-8")
    ledger = Ledger()
    survey = Survey(open_data(DataConfig(train=(str(path),)), ledger), ledger)
    gc.collect()
    before = len(gc.get_objects())
    for _ in survey.blocks():
        pass
    gc.collect()
    assert sum(survey.rows.values()) == rows
    assert len(gc.get_objects()) - before < rows / 2
