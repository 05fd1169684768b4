"""Parallel text that does not go together."""

import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from checks_common import check_parts
from seqloom.data.checks.texts import Break, find_break
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Schema


def pairs(rows: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of log-normal lengths, their translations 20 % longer and with a spread of 20 %."""
    draw = np.random.default_rng(seed)
    lengths = np.exp(draw.normal(4.0, 0.45, rows))
    ratios = 1.2 * np.exp(draw.normal(0.0, 0.2, rows))
    return [
        ("s" * max(1, round(one)), "t" * max(1, round(one * ratio))) for one, ratio in zip(lengths, ratios, strict=True)
    ]


def checked(rows: list[tuple[str, str]]) -> Ledger:
    ledger = Ledger()
    examples = [Example(one, other, "", Place("train.de", row + 1)) for row, (one, other) in enumerate(rows)]
    check_parts({"train": examples}, Schema("text", "text"), ledger)
    return ledger


def shifted(rows: list[tuple[str, str]], start: int, shift: int) -> list[tuple[str, str]]:
    """The targets from `start` on `shift` lines later (or earlier), turned round at the end."""
    targets = [target for _, target in rows]
    moved = np.roll(np.array(targets[start:], object), shift).tolist()
    return [(source, target) for (source, _), target in zip(rows, targets[:start] + moved, strict=True)]


def test_good_pairs_are_left_in_peace() -> None:
    assert checked(pairs(2000)).counts == {}


@pytest.mark.parametrize("shift", [-3, -2, -1, 1, 2, 3])
def test_a_shift_from_line_400_is_told_near_line_400(shift: int) -> None:
    ledger = checked(shifted(pairs(1000), 399, shift))
    assert ledger.counts["par.suspect"] == 1
    (problem,) = ledger.samples["par.suspect"]
    assert problem.place.line is not None
    assert abs(problem.place.line - 400) <= 12
    assert problem.text.startswith(f"the sides look misaligned from line {problem.place.line} on: ")
    assert f"{abs(shift)} line{'s' if abs(shift) > 1 else ''} {'late' if shift > 0 else 'early'}" in problem.text


def test_a_stretch_of_shifted_lines_is_found_though_the_counts_agree() -> None:
    rows = pairs(3000)
    middle = shifted(rows[1000:1300], 0, 1)
    (problem,) = checked([*rows[:1000], *middle, *rows[1300:]]).samples["par.suspect"]
    assert problem.place.line is not None
    assert abs(problem.place.line - 1001) <= 12


def test_shuffled_targets_are_found_though_no_shift_mends_them() -> None:
    rows = pairs(2000)
    order = np.random.default_rng(1).permutation(1000) + 1000
    ledger = checked([*rows[:1000], *((rows[at][0], rows[other][1]) for at, other in enumerate(order, start=1000))])
    (problem,) = ledger.samples["par.suspect"]
    assert "no longer match" in problem.text
    assert problem.place.line is not None
    assert abs(problem.place.line - 1001) <= 200


@pytest.mark.parametrize("seed", range(40))
def test_no_false_alarm_in_unrelated_sorted_or_constant_lengths(seed: int) -> None:
    draw = np.random.default_rng(seed)
    source, target = draw.normal(4, 0.5, (2, 5000)).astype(np.float32)
    related = source + draw.normal(0, 0.25, 5000).astype(np.float32)
    assert find_break(source, target) is None
    assert find_break(source, related) is None
    assert find_break(np.sort(source), related[np.argsort(source)]) is None
    assert find_break(np.full(5000, 3.0, np.float32), target) is None


def test_a_file_that_is_sorted_by_length_from_some_line_on_is_no_alarm() -> None:
    draw = np.random.default_rng(0)
    source = draw.normal(4, 0.5, 6000).astype(np.float32)
    source[3000:].sort()
    assert find_break(source, source + draw.normal(0, 0.1, 6000).astype(np.float32)) is None


def test_one_damaged_window_alone_is_no_alarm() -> None:
    source, target = np.log([[len(one), len(other)] for one, other in pairs(3000)]).astype(np.float32).T
    damaged = target.copy()
    damaged[1024:1088] = np.roll(target[1024:1088], 1)
    assert find_break(source, damaged) is None
    damaged[1088:1152] = np.roll(target[1088:1152], 1)
    assert find_break(source, damaged) is not None


def test_a_short_file_is_not_judged() -> None:
    assert find_break(np.arange(100, dtype=np.float32), -np.arange(100, dtype=np.float32)) is None


def test_copies_are_told_when_they_are_more_than_half() -> None:
    assert checked([(f"text {row}", f"text {row}") for row in range(30)]).counts == {"par.copies": 30}
    assert checked([(f"text {row}", f"text {row % 15}") for row in range(30)]).counts == {}


def test_a_pair_far_from_the_usual_ratio_is_told_with_its_line() -> None:
    rows = pairs(100)
    rows[41] = ("Ja.", "t" * 60)
    rows[77] = ("s" * 400, "No.")
    ledger = checked(rows)
    assert ledger.counts == {"par.ratio": 2}
    assert [problem.place.line for problem in ledger.samples["par.ratio"]] == [42, 78]
    usual = np.median([len(other) / len(one) for one, other in rows])
    assert f"the target is {20 / usual:.0f} times as long" in ledger.samples["par.ratio"][0].text


def test_a_usual_ratio_far_from_one_is_no_finding() -> None:
    assert checked([("s" * (2 + row % 5), "t" * (24 + 10 * (row % 5))) for row in range(50)]).counts == {}


DATA = os.environ.get("SEQLOOM_DATA", "")


@pytest.mark.skipif(not DATA, reason="SEQLOOM_DATA names no folder of datasets")
def test_real_parallel_text_gives_no_alarm_and_its_damage_is_found() -> None:
    sides = [
        [np.log(max(1, len(line))) for line in lzma.decompress(path.read_bytes()).decode().split("\n")[:-1]]
        for path in (Path(DATA) / "multi30k" / name for name in ("train.de.xz", "train.en.xz"))
    ]
    source, target = np.array(sides, np.float32)
    assert find_break(source, target) is None
    found = find_break(source, np.concatenate([target[:20_000], np.roll(target[20_000:], 1)]))
    assert found is not None
    assert found == Break(found.row, 1)
    assert abs(found.row - 20_000) <= 12
