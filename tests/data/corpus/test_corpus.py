"""The bad-input corpus at the front door: every file gets the outcome, the code and the words that were written down.

`messages.txt` holds every message, read once by a person. SEQLOOM_FREEZE=1 writes it anew.
"""

import os
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from data.corpus.case import Case
from data.corpus.cases import CASES
from data.corpus.running import Run, check, run

MESSAGES = Path(__file__).with_name("messages.txt")
FREEZE = os.environ.get("SEQLOOM_FREEZE") == "1"
SEVERITIES = {"REJECT": "reject", "WARN": "warn", "OK": "note"}
ROWS = {"E": 13, "L": 9, "C": 28, "J": 15, "T": 16, "M": 7, "U": 12, "F": 14}  # of the table
LATER = {  # rows of which reading shows a part only, what is owed, and the capability that brings it
    "C26": ("a csv file that we write puts ' before such a cell", "predictions in a file"),
    "U02": ("a page isolates such text with <bdi>", "the studio"),
    "F10": ("an uploaded link that leaves the data folder", "the studio"),
    "F11": ("a file that changed before a run is resumed", "training"),
    "F14": ("a run's folder that is read-only or full", "training"),
}
# Codes of a whole file, which name no line.
WHOLE = ("data.", "file.", "gz.", "out.", "enc.utf16", "par.same_file", "label.none", "label.single", "label.too_many")
OVERRIDES = "\u202a\u202b\u202c\u202d\u202e"  # of the direction of text
LIGHT = [case for case in CASES if case.memory is None]


def section(case: Case, outcome: Run) -> str:
    """The entry of a case in the file of messages."""
    return f"=== {case.name} === {case.outcome} {case.code}\n{outcome.message()}"


def frozen() -> dict[str, str]:
    """The entries of the file of messages by the names of their cases."""
    entries = re.split(r"(?m)^(?==== )", MESSAGES.read_text(encoding="utf-8"))
    return {entry.split(" === ")[0].removeprefix("=== "): entry.rstrip("\n") for entry in entries if entry}


def require(case: Case, outcome: Run) -> None:
    """The outcome is that of the table, and the message holds every fact that was asked for."""
    message = outcome.message()
    assert outcome.code == (2 if case.outcome == "REJECT" else 0), message
    assert {one.code for one in outcome.found} == {case.code, *case.also} - {""}, message
    for said in outcome.found:
        if said.code == case.code:
            assert said.severity == SEVERITIES[case.outcome], message
            assert said.lines[0].startswith(f"{case.place}: {case.code}: " if case.place else ""), message
    for fact in case.says:
        assert fact in message
    assert case.rows in (None, sum(part["rows"] for part in outcome.report.get("splits", ())))
    assert all(character.isprintable() or character == "\n" for character in message)


def require_lines(outcome: Run) -> None:
    """What is wrong with a row is told with its file and its line."""
    for said in outcome.found:
        for line in said.lines if said.severity == "reject" and not said.code.startswith(WHOLE) else ():
            assert re.match(rf"[^:]+:\d+(:\d+)?: {re.escape(said.code)}: |[\d,]+ problems in all", line), line


def contents(folder: Path) -> dict[str, int]:
    """Every path below a folder, and its size."""
    return {str(path): path.lstat().st_size for path in folder.rglob("*")}


@pytest.mark.slow
@pytest.mark.parametrize("case", LIGHT, ids=lambda case: case.name)
def test_a_case_has_the_outcome_and_the_words_of_the_table(case: Case, tmp_path: Path) -> None:
    outcome = run(case, tmp_path)
    require(case, outcome)
    require_lines(outcome)
    assert FREEZE or section(case, outcome) == frozen()[case.name]


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in LIGHT if case.id not in ("F11", "U11")], ids=lambda case: case.name)
def test_a_case_leaves_its_files_alone_and_its_report_fits_a_terminal(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path)
    before = contents(tmp_path)
    outcome = check(tmp_path, *case.arguments, around=case.around)
    assert outcome.code == (2 if case.outcome == "REJECT" else 0)
    assert contents(tmp_path) == before
    assert case.code in outcome.out + outcome.err
    shown = set((outcome.out + outcome.err).replace("\n", ""))
    assert not [one for one in shown if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") or one in OVERRIDES]


def test_every_row_of_the_table_has_a_case() -> None:
    known = {f"{letter}{number:02}" for letter, count in ROWS.items() for number in range(1, count + 1)}
    assert {case.id for case in CASES} == known
    assert len(known) == 114 and LATER.keys() <= known and len(known - LATER.keys()) >= 108
    assert Counter(case.name for case in CASES).most_common(1)[0][1] == 1


def test_the_file_of_messages_has_the_entries_of_these_cases_and_no_other(tmp_path: Path) -> None:
    if FREEZE:
        folders = {case.name: tmp_path / str(number) for number, case in enumerate(CASES)}
        for folder in folders.values():
            folder.mkdir()
        text = "\n".join(f"{section(case, run(case, folders[case.name]))}\n" for case in CASES)
        MESSAGES.write_text(text, encoding="utf-8")
    assert list(frozen()) == [case.name for case in CASES]
