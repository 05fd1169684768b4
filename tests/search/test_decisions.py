"""Claims about the log of labels: what holds is what was decided and not undone, whenever the work was stopped."""

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.errors import ConfigError, DamagedError, DurableError, HeldError
from seqloom.files.jsonl import append_line, append_lines
from seqloom.search.decisions import MODEL, PERSON, Decision, Decisions, RowLabel, WritableDecisions, open_log

TEXTS = {str(row): f"text {row}" for row in range(20)}


def choice(row: int, label: str | None, by: str = PERSON) -> Decision:
    return Decision(str(row), TEXTS[str(row)], label, by)


@pytest.mark.slow
def test_any_decisions_and_undos_hold_again_when_the_log_is_read_again(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    log, history = WritableDecisions(tmp_path / "log", TEXTS), list[dict[str, RowLabel]]()
    for _ in range(60):
        before = dict(log.current)
        if draws.random() < 0.3:
            assert (log.undo() is None) == (not history)
            assert log.current == (history.pop() if history else {})
        else:
            rows = draws.choice(20, draws.integers(1, 4), replace=False)
            label = ("good", "bad", None)[draws.integers(3)]
            log.add([choice(int(row), label) for row in rows])
            history.append(before)
            assert all(log.current[str(row)].label == label for row in rows)
        assert Decisions(tmp_path / "log", TEXTS).current == log.current


def test_an_undo_takes_back_all_that_one_action_did_and_the_log_keeps_it(tmp_path: Path) -> None:
    log = WritableDecisions(tmp_path / "log", TEXTS)
    log.add([choice(1, "good")])
    log.add([choice(row, "bad", MODEL) for row in range(2, 9)])
    action = log.undo()
    assert action is not None and len(action.rows) == 7
    assert log.current == {"1": RowLabel("good", PERSON)}
    assert len((tmp_path / "log").read_text().splitlines()) == 9  # a label, seven labels, and the undo


def test_a_line_that_a_crash_tore_is_the_only_loss(tmp_path: Path) -> None:
    log = WritableDecisions(tmp_path / "log", TEXTS)
    for row in range(3):
        log.add([choice(row, "good")])
    whole = (tmp_path / "log").read_bytes()
    for stop in range(0, len(whole) + 1, 11):
        (tmp_path / "torn").write_bytes(whole[:stop])
        found = WritableDecisions(tmp_path / "torn", TEXTS)
        assert len(found.current) == whole[:stop].count(b"\n")
        found.add([choice(9, "bad")])
        assert Decisions(tmp_path / "torn", TEXTS).current == found.current


@pytest.mark.parametrize(
    ("texts", "match"), [({"1": "another"}, "different text in this file"), ({"2": "text 2"}, "is not in this file")]
)
def test_decisions_about_other_texts_are_refused(tmp_path: Path, texts: dict[str, str], match: str) -> None:
    WritableDecisions(tmp_path / "log", TEXTS).add([choice(1, "good")])
    with pytest.raises(ConfigError, match=match):
        Decisions(tmp_path / "log", texts)
    assert Decisions(tmp_path / "log", {**TEXTS, "new": "rows may come"}).labeled.keys() == {"1"}


def test_an_action_that_was_cut_short_holds_nothing_and_the_next_ones_do(tmp_path: Path) -> None:
    log = WritableDecisions(tmp_path / "log", TEXTS)
    log.add([choice(1, "good")])
    log.add([choice(row, "bad", MODEL) for row in range(1, 9)])
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    for kept in range(1, 9):
        (tmp_path / "cut").write_bytes(b"".join(lines[:kept]))
        found = WritableDecisions(tmp_path / "cut", TEXTS)
        assert found.current == {"1": RowLabel("good", PERSON)}
        found.add([choice(2, "good")])
        assert Decisions(tmp_path / "cut", TEXTS).current == found.current
        assert found.undo() is not None and found.undo() is not None and found.undo() is None
        assert Decisions(tmp_path / "cut", TEXTS).current == {}


def test_an_action_that_the_disk_refuses_half_way_holds_nothing_and_keeps_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = WritableDecisions(tmp_path / "log", TEXTS)

    def half(path: Path, lines: Sequence[dict[str, Any]]) -> None:
        append_lines(path, lines[:2])
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("seqloom.search.decisions.append_lines", half)
        with pytest.raises(OSError, match="full"):
            log.add([choice(row, "bad") for row in range(4)])
    log.add([choice(9, "good")])
    assert log.current.keys() == Decisions(tmp_path / "log", TEXTS).current.keys() == {"9"}


def test_one_process_writes_and_a_second_one_learns_which_does(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", TEXTS) as log:
        log.add([choice(1, "good")])
        with pytest.raises(HeldError, match=f"process {os.getpid()} on"), open_log(tmp_path / "log", TEXTS):
            pass
        assert Decisions(tmp_path / "log", TEXTS).current == log.current  # anybody may read
    with open_log(tmp_path / "log", TEXTS) as log:
        assert log.undo() is not None
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_who_opened_the_lock_while_another_ended_writes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, real, ended = open_log(tmp_path / "log", TEXTS), fcntl.flock, list[bool]()
    first.__enter__()

    def flock(handle: int, how: int) -> None:
        if not ended:
            ended.append(True)
            first.__exit__(None, None, None)
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with open_log(tmp_path / "log", TEXTS) as log:
        assert ended
        with pytest.raises(HeldError, match="in use by"), open_log(tmp_path / "log", TEXTS):
            pass
        log.add([choice(1, "good")])
        shutil.rmtree(tmp_path / ".log.held")  # a person tidies up
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_log_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".blocked.held").write_text("")
    for name, match in (("link", "it is a link"), ("blocked", "blocked cannot be written")):
        with pytest.raises(DurableError, match=match), open_log(tmp_path / name, TEXTS):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".blocked.held", "link"]


def test_a_log_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    append_line(tmp_path / "log", {"step": 7})
    with pytest.raises(DamagedError, match="line 1: expected a decision about a label"):
        Decisions(tmp_path / "log", TEXTS)
    (tmp_path / "data.jsonl").write_text('{"text": "mine"}\n')
    with pytest.raises(DamagedError):
        Decisions(tmp_path / "data.jsonl", TEXTS)
    assert (tmp_path / "data.jsonl").read_text() == '{"text": "mine"}\n'


@pytest.mark.parametrize(
    "record",
    [
        {"action": 2, "kind": "label"},
        {"action": 2, "kind": "label", "row": 3, "text": "00", "label": "good", "by": PERSON},
        {"action": "2", "kind": "skip", "row": "3", "text": "00"},
        {"action": 2, "kind": "undo", "undone": 7},
        {"action": 2, "kind": "undo"},
        {"action": 2, "kind": "praise"},
    ],
)
def test_a_line_that_is_no_decision_is_reported_with_its_number(tmp_path: Path, record: dict[str, Any]) -> None:
    WritableDecisions(tmp_path / "log", TEXTS).add([choice(1, "good")])
    append_line(tmp_path / "log", record)
    with pytest.raises(DamagedError, match="line 2: expected a decision"):
        Decisions(tmp_path / "log", TEXTS)


def test_what_an_undo_costs_does_not_grow_with_the_log(tmp_path: Path) -> None:
    log = WritableDecisions(tmp_path / "log", TEXTS)
    log.add([choice(row, "good") for row in range(20)])
    log.add([choice(3, "bad")])
    touched = Counted(log.current)
    log.current = touched
    log.undo()
    assert touched.changes == 1 and touched["3"].label == "good"


class Counted(dict[str, RowLabel]):
    """A dictionary that counts how many of its values are set."""

    changes = 0

    def __setitem__(self, key: str, value: RowLabel) -> None:
        self.changes += 1
        super().__setitem__(key, value)
