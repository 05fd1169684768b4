"""What looked wrong in the data that a run is about to learn from, in a line for each kind of warning.

    warning: leak.overlap: dev.csv:7: 12 of 200 rows of dev (6.0%) have an input that train has too; ... Fix: ...

The findings are those of the checks that preparing data runs. `seqloom data check` looks for more.
"""

from collections.abc import Iterable

from seqloom.data.checks.check import DataFinding, FindingSample
from seqloom.data.problems import escaped
from seqloom.report.numbers import counted


def warnings_said(findings: Iterable[DataFinding]) -> list[str]:
    """A line for each kind of warning: its code, its first case and the cure, and how many rows it concerns.

    >>> case = FindingSample("a.csv:3", "a label of one row", "give it more")
    >>> warnings_said([DataFinding("warn", "label.rare", 4, (case,)), DataFinding("note", "text.blank", 1, ())])
    ['warning: label.rare: a.csv:3: a label of one row. Fix: give it more. (4 rows in all)']
    """
    return [_line(finding) for finding in findings if finding.severity == "warn"]


def _line(finding: DataFinding) -> str:
    case = "".join(map(_case, finding.samples[:1]))
    rows = f" ({counted(finding.rows, 'row')} in all)" if finding.rows > 1 else ""
    return f"warning: {finding.code}{case}{rows}"


def _case(sample: FindingSample) -> str:
    fix = f" Fix: {_sentence(sample.fix)}" if sample.fix else ""
    return escaped(f": {sample.place}: {_sentence(sample.text)}{fix}")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
