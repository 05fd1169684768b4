"""The words of a diagnosis that the terminal and the page share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.experiments.doctor.findings import Diagnosis


def number(value: float | str) -> str:
    """A number of the evidence as people read it.

    >>> number(0.00031), number(12_500.0), number("lstm")
    ('0.00031', '12,500', 'lstm')
    """
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def evidence_said(evidence: Mapping[str, float | str]) -> str:
    """The evidence in one line.

    >>> evidence_said({"loss at the end": 0.5, "steps": 1200})
    'loss at the end 0.5 · steps 1,200'
    """
    return " · ".join(f"{name} {number(value)}" for name, value in evidence.items())


def verdict_said(diagnosis: "Diagnosis") -> str:
    """One sentence: how much was found, and what to type; or that there was too little to judge."""
    if not diagnosis.findings and not diagnosis.judged:
        return "too short to judge: the run has no curve yet that could look wrong"
    if not diagnosis.findings:
        return "nothing that the doctor knows how to look for is wrong"
    count = len(diagnosis.findings)
    found = "one thing looks wrong" if count == 1 else f"{count} things look wrong"
    flags = " ".join(advice.said for advice in diagnosis.findings[0].advice[:1])
    short = "" if diagnosis.judged else " (the curves are too short to judge)"
    return f"{found}; begin with {flags}{short}" if flags else f"{found}{short}"
