"""What rows of the corpus ask for in time and memory."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from data.corpus.case import Case
from data.corpus.cases import CASES
from data.corpus.characters import MILLION, RUNS, run_of
from data.corpus.running import Run, Said, check, run
from data.corpus.test_corpus import FREEZE, frozen, require, section
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.config.tokenizers import CharactersConfig, TokenizerConfig, WordsConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers.passages import lines_of
from seqloom.data.readers.registry import read_table
from seqloom.errors import RejectedError

TESTS = Path(__file__).parents[2]
BY_NAME = {case.name: case for case in CASES}
TICK = 0.005  # seconds: below it the clock of user time says little
TRIES = 4  # of a bound in time: others may use the machine as well
HEAVY = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.id == "U12" else [])
    for case in CASES
    if case.memory is not None
]


def seconds(call: Callable[[], object]) -> float:
    """The time a call spends in its own code; what the system needs to find memory comes in steps, not lines."""
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin


def within(limit: float, call: Callable[[], object]) -> bool:
    """Whether one of some tries takes no longer."""
    return any(seconds(call) <= limit for _ in range(TRIES))


def is_linear(small: Callable[[], object], fourfold: Callable[[], object]) -> bool:
    """Whether four times the work takes at most 6 times as long, in one of some tries; what is quadratic takes 16."""
    return any(seconds(fourfold) <= 6 * max(seconds(small), TICK) for _ in range(TRIES))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("case", HEAVY)
def test_a_case_takes_no_more_memory_than_allowed(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path)
    command = [sys.executable, "-m", "data.corpus.memory", case.name, str(tmp_path)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=True, timeout=120)
    growth, outcome = done.stdout.rstrip("\n").split("\n")
    code, found, *rest = json.loads(outcome)
    outcome = Run(code, tuple(Said(*said[:3], tuple(said[3])) for said in found), *rest)
    require(case, outcome)
    assert FREEZE or section(case, outcome) == frozen()[case.name]
    assert case.memory is not None and int(growth) <= case.memory << 10


def test_a_line_of_a_megabyte_is_read_within_fifty_milliseconds(tmp_path: Path) -> None:
    BY_NAME["L06"].write(tmp_path)
    path = tmp_path / "train.txt"
    assert path.stat().st_size > 1_000_000
    assert within(0.05, lambda: list(lines_of(path, ReadingConfig(), Ledger())))


def test_a_hundred_thousand_nested_arrays_are_refused_within_ten_milliseconds(tmp_path: Path) -> None:
    BY_NAME["J08"].write(tmp_path)

    def read() -> None:
        ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
        list(read_table((tmp_path / "train.jsonl",), ReadingConfig(), ledger).records)
        assert ledger.counts["json.depth"] == 1

    assert within(0.01, read)


@pytest.mark.parametrize("name", ["F09 device", "F09 pipe", "F09 socket"])
def test_what_has_no_end_is_refused_within_a_second(name: str, tmp_path: Path) -> None:
    begin = time.monotonic()
    assert run(BY_NAME[name], tmp_path).code == 2
    assert time.monotonic() - begin <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("one", RUNS.values(), ids=RUNS)
def test_a_million_times_one_character_takes_a_second_at_most_and_linear_time(one: str, tmp_path: Path) -> None:
    for size in (MILLION // 4, MILLION):
        (tmp_path / f"{size}.txt").write_bytes(run_of(one, size))

    def look(size: int) -> Callable[[], object]:
        return lambda: check(tmp_path, f"{size}.txt", "--json")

    assert within(1.0, look(MILLION))
    assert is_linear(look(MILLION // 4), look(MILLION))


@pytest.mark.slow
@pytest.mark.parametrize("config", [WordsConfig(normalize="nfc"), CharactersConfig(normalize="nfkd")])
def test_combining_marks_take_linear_time(config: TokenizerConfig) -> None:
    tokenizer = config.fit(["a\u0301 b"])

    def encode(count: int) -> Callable[[], object]:
        return lambda: tokenizer.encode_with_offsets("a" + "\u0301" * count + " b")

    assert is_linear(encode(25_000), encode(100_000))


def test_a_refusal_needs_no_pass_over_a_file_that_cannot_be_read() -> None:
    with pytest.raises(RejectedError, match=r"file\.not_regular"):
        read_table((Path("/dev/zero"),), ReadingConfig(format="text"), Ledger())
