"""Claims about the log of labels: what holds is what was decided and not undone, whenever the work was stopped."""

from pathlib import Path

import numpy as np
import pytest

from seqloom.errors import ConfigError, DamagedError, HeldError
from seqloom.search.decisions import MODEL, PERSON, Choice, Decided, Decisions

TEXTS = {str(row): f"text {row}" for row in range(20)}


def choice(row: int, label: str | None, by: str = PERSON) -> Choice:
    return Choice(str(row), TEXTS[str(row)], label, by)


def test_any_decisions_and_undos_hold_again_when_the_log_is_read_again(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    log, history = Decisions(tmp_path / "log", TEXTS), list[dict[str, Decided]]()
    for _ in range(60):
        before = dict(log.standing)
        if draws.random() < 0.3:
            assert (log.undo() is None) == (not history)
            assert log.standing == (history.pop() if history else {})
        else:
            rows = draws.choice(20, draws.integers(1, 4), replace=False)
            label = ("good", "bad", None)[draws.integers(3)]
            log.take([choice(int(row), label) for row in rows])
            history.append(before)
            assert all(log.standing[str(row)].label == label for row in rows)
        assert Decisions(tmp_path / "log", TEXTS).standing == log.standing


def test_an_undo_takes_back_all_that_one_action_did_and_the_log_keeps_it(tmp_path: Path) -> None:
    log = Decisions(tmp_path / "log", TEXTS)
    log.take([choice(1, "good")])
    log.take([choice(row, "bad", MODEL) for row in range(2, 9)])
    action = log.undo()
    assert action is not None and len(action.rows) == 7
    assert log.standing == {"1": Decided("good", PERSON)}
    assert len((tmp_path / "log").read_text().splitlines()) == 9  # a label, seven labels, and the undo


def test_a_line_that_a_crash_tore_is_the_only_loss(tmp_path: Path) -> None:
    log = Decisions(tmp_path / "log", TEXTS)
    for row in range(3):
        log.take([choice(row, "good")])
    whole = (tmp_path / "log").read_bytes()
    for stop in range(0, len(whole) + 1, 11):
        (tmp_path / "torn").write_bytes(whole[:stop])
        found = Decisions(tmp_path / "torn", TEXTS)
        assert len(found.standing) == whole[:stop].count(b"\n")
        found.take([choice(9, "bad")])
        assert Decisions(tmp_path / "torn", TEXTS).standing == found.standing


@pytest.mark.parametrize(
    ("texts", "match"), [({"1": "another"}, "another text in this file"), ({"2": "text 2"}, "is not in this file")]
)
def test_decisions_about_other_texts_are_refused(tmp_path: Path, texts: dict[str, str], match: str) -> None:
    Decisions(tmp_path / "log", TEXTS).take([choice(1, "good")])
    with pytest.raises(ConfigError, match=match):
        Decisions(tmp_path / "log", texts)
    assert Decisions(tmp_path / "log", {**TEXTS, "new": "rows may come"}).labelled.keys() == {"1"}


def test_two_that_write_at_the_same_time_are_told(tmp_path: Path) -> None:
    one, other = Decisions(tmp_path / "log", TEXTS), Decisions(tmp_path / "log", TEXTS)
    one.take([choice(1, "good")])
    with pytest.raises(HeldError, match="by another process"):
        other.take([choice(1, "bad")])
    assert Decisions(tmp_path / "log", TEXTS).standing == one.standing


def test_a_log_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    from seqloom.durable import append_line

    append_line(tmp_path / "log", {"step": 7})
    with pytest.raises(DamagedError, match="something else than labels"):
        Decisions(tmp_path / "log", TEXTS)
    (tmp_path / "data.jsonl").write_text('{"text": "mine"}\n')
    with pytest.raises(DamagedError):
        Decisions(tmp_path / "data.jsonl", TEXTS)
    assert (tmp_path / "data.jsonl").read_text() == '{"text": "mine"}\n'
