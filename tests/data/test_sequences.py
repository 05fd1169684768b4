"""Steps in rows: what belongs together, what spoils a sequence, and the columns that come along."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reading_common import write
from seqloom.config.data import BadRows, ColumnSplit, DataConfig, RandomSplit, SplitName
from seqloom.data import dataset
from seqloom.data.dataset import open_data
from seqloom.data.problems import Ledger
from seqloom.data.schema import Example
from seqloom.errors import ConfigError, RejectedError

HEADER = "run,x,y,state,who,part\n"
GOOD = ["7,0.1,0.2,rest,ann,train", "7,0.3,0.1,walk,ann,train", "8,0.5,0.5,walk,bob,dev"]


def config(path: Path, lines: list[str], **settings: Any) -> DataConfig:
    """Sequences of `run` in a csv file."""
    write(path / "a.csv", HEADER + "".join(f"{line}\n" for line in lines))
    asked = {"input": ("x", "y"), "target": ("state",), "split": RandomSplit(dev_size=0, test_size=0)} | settings
    return DataConfig(train=(str(path / "a.csv"),), sequence="run", **asked)


def rows(path: Path, lines: list[str], **settings: Any) -> tuple[list[tuple[SplitName, Example]], Ledger]:
    """The sequences, and the ledger of a reading that allows every bad row."""
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    return list(open_data(config(path, lines, **settings), ledger).rows(ledger)), ledger


def only_problem(ledger: Ledger) -> str:
    (problem,) = ledger.refused
    return str(problem)


def test_neighboring_rows_are_the_steps_of_a_sequence_with_a_tag_each(tmp_path: Path) -> None:
    ((_, first), (_, second)), ledger = rows(tmp_path, GOOD)
    assert np.array_equal(first.input, np.array([[0.1, 0.2], [0.3, 0.1]], np.float32))
    assert first.target == ("rest", "walk") and second.target == ("walk",)
    assert (first.place.line, second.place.line) == (2, 4)
    assert ledger.rows == 2 and not ledger.counts


def test_the_value_of_all_steps_is_the_target_of_a_class_or_a_number(tmp_path: Path) -> None:
    found, ledger = rows(tmp_path, GOOD, task="classify", target=("who",))
    assert [example.target for _, example in found] == ["ann", "bob"] and not ledger.counts
    found, ledger = rows(tmp_path, GOOD, task="classify")
    assert [example.target for _, example in found] == ["walk"] and (ledger.rows, ledger.skipped) == (1, 1)
    assert ":3:" in only_problem(ledger) and "sequence.target" in only_problem(ledger)
    assert "'rest' and 'walk'. Fix: use --task tag" in only_problem(ledger)


def test_a_sequence_that_goes_on_after_another_one_is_a_bad_row(tmp_path: Path) -> None:
    found, ledger = rows(tmp_path, [*GOOD, GOOD[0]])
    assert len(found) == ledger.rows == 2 and ledger.skipped == 1
    assert ":5:" in only_problem(ledger) and "sequence.apart: sequence '7' continues" in only_problem(ledger)


@pytest.mark.parametrize("cell", ["", "a", "1_0", "inf", "1e300", "٣"])
def test_a_step_without_numbers_spoils_its_sequence_and_is_located(tmp_path: Path, cell: str) -> None:
    found, ledger = rows(tmp_path, [GOOD[0], f"7,0.3,{cell},walk,ann,train", GOOD[2]])
    assert [example.target for _, example in found] == [("walk",)] and (ledger.rows, ledger.skipped) == (1, 1)
    assert ":3:7: type.number" in only_problem(ledger)


def test_shares_of_bad_rows_are_shares_of_sequences(tmp_path: Path) -> None:
    lines = [f"{run},{'oops' if run == 0 else 1},1,rest,a,train" for run in range(4) for _ in range(100)]
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.2))
    with pytest.raises(RejectedError, match="25"):  # one of four, not one of 301
        list(open_data(config(tmp_path, lines), ledger).rows(ledger))


def test_a_row_that_cannot_be_read_spoils_the_sequences_it_may_belong_to(tmp_path: Path) -> None:
    lines = [f"{run},1,1,rest,a,train" for run in range(5) for _ in range(3)]
    inside = [*lines[:4], "1,1,1,rest", *lines[4:]]
    found, ledger = rows(tmp_path, inside)
    assert (len(found), ledger.rows, ledger.skipped) == (4, 4, 2)
    assert ledger.counts == {"csv.ragged": 1, "sequence.lost": 1}
    between = [*lines[:6], "1,1,1,rest", *lines[6:]]
    assert rows(tmp_path, between)[1].counts == {"csv.ragged": 1, "sequence.lost": 2}


def test_an_endless_sequence_is_refused_before_memory_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "MOST_STEPS", 3)
    assert len(rows(tmp_path, GOOD[:1] * 3)[0]) == 1
    with pytest.raises(RejectedError, match=r"a\.csv:2: sequence\.too_long: sequence '7' has more than 3 steps"):
        rows(tmp_path, GOOD[:1] * 4)


def test_the_columns_of_the_part_the_group_and_the_id_come_along(tmp_path: Path) -> None:
    found, _ = rows(tmp_path, GOOD, split=ColumnSplit(split_column="part"))
    assert [part for part, _ in found] == ["train", "dev"]
    found, _ = rows(tmp_path, GOOD, split=None)  # by its name and values
    assert [part for part, _ in found] == ["train", "dev"]
    found, _ = rows(tmp_path, GOOD, id="run")
    assert [example.id for _, example in found] == ["7", "8"]
    many = [f"{run},1,1,rest,{run % 7},train" for run in range(200) for _ in range(2)]
    found, _ = rows(tmp_path, many, split=RandomSplit(dev_size=0.3, test_size=0, group="who"), id="who")
    parts: dict[str, set[str]] = {}
    for part, example in found:
        parts.setdefault(example.id, set()).add(part)
    assert len(parts) == 7 and all(len(of_group) == 1 for of_group in parts.values())
    assert {part for part, _ in found} == {"train", "dev"}


def test_a_sequence_in_two_parts_or_groups_is_a_bad_row(tmp_path: Path) -> None:
    torn = [GOOD[0], GOOD[1].replace("train", "dev").replace("ann", "eve"), GOOD[2]]
    for settings in ({"split": ColumnSplit(split_column="part")}, {"split": RandomSplit(group="who")}, {"id": "who"}):
        found, ledger = rows(tmp_path, torn, **settings)
        assert len(found) == ledger.rows == 1 and ledger.counts == {"sequence.target": 1}
    found, ledger = rows(tmp_path, [*torn, "9,1,1,rest,a,train"], split=None)
    assert len(found) == 2 and "found 'train' and 'dev'" in only_problem(ledger)


def test_tags_that_are_numbers_and_names_that_are_none(tmp_path: Path) -> None:
    lines = [
        '{"k": 1, "x": 1, "y": 5}',
        '{"k": 1, "x": 2, "y": 6}',
        '{"k": null, "x": 1, "y": 5}',
        '{"k": [1], "x": 1, "y": 5}',
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    asked = DataConfig(train=(str(path),), sequence="k", input=("x",), target=("y",))
    ((_, example),) = open_data(asked, ledger).rows(ledger)
    assert example.target == ("5", "6") and ledger.counts == {"type.label": 1}


@pytest.mark.parametrize("settings", [{"input": ("z",)}, {"target": ("z",)}, {"id": "z"}, {"input": ()}])
def test_columns_that_are_missing_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        rows(tmp_path, GOOD, **settings)
