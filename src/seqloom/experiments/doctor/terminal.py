"""A diagnosis for a terminal: the verdict first, then each finding with its numbers, its picture and what to change."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seqloom.errors import DataError
from seqloom.experiments.doctor.words import evidence_said, verdict_said
from seqloom.report.figures.colors import Colour, in_colour
from seqloom.report.figures.labels import isolated, visible, wrap

if TYPE_CHECKING:
    from seqloom.experiments.doctor.findings import Diagnosis, Finding

NARROWEST = 50
INDENT = "  "
WARN: Colour = (199, 137, 32)
FINE: Colour = (58, 150, 98)


def written(diagnosis: "Diagnosis", width: int, colour: bool) -> str:
    """The diagnosis as lines of at most `width` columns."""
    if width < NARROWEST:
        raise DataError(f"a diagnosis {width} columns wide was asked for", fix=f"give it at least {NARROWEST}")
    sections = [list(_head(diagnosis, width, colour))]
    sections += [list(_finding(finding, width, colour)) for finding in diagnosis.findings]
    sections += [figure.text(width, colour).split("\n") for figure in diagnosis.figures]
    sections += [list(_wrapped(f"- {text}", width)) for text in diagnosis.said]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _head(diagnosis: "Diagnosis", width: int, colour: bool) -> Iterator[str]:
    fine = diagnosis.judged and not diagnosis.findings
    tint, mark = (FINE, "✓") if fine else (WARN, "!" if diagnosis.findings else "?")
    yield from _wrapped(diagnosis.name, width)
    for line in wrap(f"{mark} {verdict_said(diagnosis)}", width):
        yield in_colour(line, tint) if colour else line


def _finding(finding: "Finding", width: int, colour: bool) -> Iterator[str]:
    mark = in_colour("!", WARN) if colour else "!"
    title = f"\x1b[1m{visible(finding.title)}\x1b[0m" if colour else visible(finding.title)
    yield f"{mark} {title}"
    yield f"{INDENT}{finding.code}"
    yield from _wrapped(finding.text, width, INDENT)
    yield from _wrapped(evidence_said(finding.evidence), width, INDENT)
    for advice in finding.advice:
        yield from _wrapped(f"→ {advice.said}{f'   {advice.why}' if advice.why else ''}", width, INDENT)
    if finding.figure is not None:
        yield from (f"{INDENT}{line}" for line in finding.figure.text(width - len(INDENT), colour).split("\n"))


def _wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    return (f"{indent}{isolated(line)}" for line in wrap(visible(text), width - len(indent)))
