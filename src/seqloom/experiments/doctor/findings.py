"""What a diagnosis is made of: findings, each with its numbers, its picture, and the flag to change.

    Diagnosis
      ├── findings   Finding: a code, a title, a sentence, evidence, a figure, advice (flags with values)
      ├── figures    pictures that are worth a look whether or not something is wrong
      ├── judged     whether there was a curve to judge
      └── said       what could not be looked at, and why

A diagnosis is a frozen value; `text` writes it for a terminal, `html` as a page, `to_json` as plain values.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from seqloom.experiments.doctor.page import RULES, body, framed
from seqloom.experiments.doctor.terminal import written
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.page import document

FORMAT = 1  # of the plain values


class Advice(NamedTuple):
    """One flag of `seqloom train` to give another value; the exact words to type are `said`."""

    flag: str  # "--rate"
    value: str  # "0.0003"; empty for a flag that takes none
    why: str = ""

    @property
    def said(self) -> str:
        """The flag as it is typed.

        >>> Advice("--rate", "0.0003").said
        '--rate 0.0003'
        """
        return f"{self.flag} {self.value}".rstrip()


class Finding(NamedTuple):
    """One thing that is wrong: how it shows, in numbers and in a picture, and what to change."""

    code: str  # "loss.jagged"
    title: str
    text: str
    evidence: dict[str, float | str]
    figure: Figure | None = None
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found in a run; none means that nothing that we know how to look for is wrong, if it was judged."""

    name: str
    findings: tuple[Finding, ...] = ()
    figures: tuple[Figure, ...] = ()
    said: tuple[str, ...] = ()
    judged: bool = True  # whether the run was long enough for its curves to be judged

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings, in their order."""
        return tuple(finding.code for finding in self.findings)

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The changes to make: of several for one flag, the first finding's."""
        first: dict[str, Advice] = {}
        for finding in self.findings:
            for advice in finding.advice:
                first.setdefault(advice.flag, advice)
        return tuple(first.values())

    def text(self, width: int = 80, colour: bool = False) -> str:
        """The diagnosis as lines of at most `width` columns, with 24-bit terminal colours if asked for."""
        return written(self, width, colour)

    def html(self) -> str:
        """The diagnosis as one self-contained HTML document: no script, no address, light and dark."""
        return document(f"Doctor: {self.name}", body(self), RULES)

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as plain values that JSON can hold; `format` changes when what programs read does."""
        return {
            "format": FORMAT,
            "name": self.name,
            "judged": self.judged,
            "findings": [_plain(finding) for finding in self.findings],
            "figures": [figure.data() for figure in self.figures],
            "said": list(self.said),
        }

    def _repr_html_(self) -> str:
        return framed(self.html())


def _plain(finding: Finding) -> dict[str, Any]:
    figure = None if finding.figure is None else finding.figure.data()
    return {**finding._asdict(), "figure": figure, "advice": [one._asdict() for one in finding.advice]}
