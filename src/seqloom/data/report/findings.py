"""Findings: what the ledger holds at the end, by kind, the gravest first."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from seqloom.data.checks.check import Check
from seqloom.data.problems import Ledger, Problem, Severity
from seqloom.errors import RejectedError

GRAVEST_FIRST: tuple[Severity, ...] = ("reject", "warn", "note")


class FindingSample(NamedTuple):
    """One case of a finding: where, what, and the cure."""

    place: str
    text: str
    fix: str = ""


class DataFinding(NamedTuple):
    """One kind of finding: how many rows it concerns, and the first cases."""

    severity: Severity
    code: str
    rows: int  # 0 where it concerns the whole
    samples: tuple[FindingSample, ...]

    def shown(self, count: int) -> tuple[list[FindingSample], list[FindingSample]]:
        """The samples that are shown and the rest: the first `count`, and the first of every further cure.

        A cure is told once, behind the last of the neighbours that have it.
        """
        fixes = [sample.fix for sample in self.samples]
        chosen = [at for at, fix in enumerate(fixes) if at < count or fix not in ("", *fixes[:at])]
        rest = [sample for at, sample in enumerate(self.samples) if at not in chosen]
        following = [*(fixes[at] for at in chosen[1:]), None]
        samples = [self.samples[at] for at in chosen]
        return [
            sample._replace(fix="") if sample.fix == after else sample
            for sample, after in zip(samples, following, strict=True)
        ], rest


def refusals(checks: Iterable[Check], ledger: Ledger) -> list[DataFinding]:
    """What the checks refuse; what they only warn of is written into the ledger."""
    return [finding for check in checks if (finding := _refusal(check.finish, ledger))]


def gravest_first(found: Iterable[DataFinding]) -> tuple[DataFinding, ...]:
    """The findings in the order in which people should read them."""
    return tuple(sorted(found, key=lambda finding: GRAVEST_FIRST.index(finding.severity)))


def told(ledger: Ledger) -> tuple[DataFinding, ...]:
    """What stands in a ledger: bad rows, warnings and notes, in the order in which they came up."""
    found = []
    severity: Severity = "warn" if ledger.bad_rows.skip else "reject"
    for code in dict.fromkeys(problem.code for problem in ledger.refused):
        cases = [problem for problem in ledger.refused if problem.code == code]
        found.append(DataFinding(severity, code, ledger.counts[code], _samples(cases)))
    for code, count, problems in ledger.warnings():
        found.append(DataFinding(problems[0].severity, code, count, _samples(problems)))
    return tuple(found)


def _samples(problems: list[Problem]) -> tuple[FindingSample, ...]:
    return tuple(FindingSample(str(problem.place), problem.text, problem.fix) for problem in problems)


def _refusal(finish: Callable[[Ledger], None], ledger: Ledger) -> DataFinding | None:
    """What a check refuses, if it does; its message has the form `place: code: text. Fix: ...`."""
    try:
        finish(ledger)
    except RejectedError as error:
        code = error.codes[-1]  # after the bad rows that the ledger knew before
        line = error.problem.split("\n")[len(error.codes) - 1]
        place, _, rest = line.partition(f": {code}: ")
        text, _, fix = rest.partition(" Fix: ")
        return DataFinding("reject", code, 0, (FindingSample(place, text, fix),))
    return None
