"""What a diagnosis is made of: findings, each with its numbers, its picture, and the flag to change.

    Diagnosis
      ├── findings   Finding: a code, a title, a sentence, evidence, a figure, advice (flags with values)
      ├── figures    pictures that are worth a look whether or not something is wrong
      ├── judged     whether there was a curve to judge
      └── said       what could not be looked at, and why

A diagnosis is a frozen value, shown as its `document`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from seqloom.report.document import (
    Aside,
    Bullets,
    Callout,
    Code,
    Document,
    DocumentBlock,
    Heading,
    Mark,
    Paragraph,
    Pictures,
    Shown,
    Spans,
    TableBlock,
)
from seqloom.report.figures.figure import Figure

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

    def blocks(self) -> list[DocumentBlock]:
        """It in a document."""
        return [
            Heading(Spans(Mark("warn"), self.title)),
            Aside(Code(self.code)),
            Paragraph(self.text),
            TableBlock((), list(self.evidence.items())),
            Paragraph("What to change:" if self.advice else ""),
            Bullets([Spans(Code(one.said), f": {one.why}" if one.why else "") for one in self.advice]),
            Pictures(() if self.figure is None else (self.figure,)),
        ]


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Shown):
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

    @property
    def verdict(self) -> str:
        """One sentence: how much was found, and what to type; or that there was too little to judge."""
        if not self.findings and not self.judged:
            return "too short to judge: the run has no curve yet that could look wrong"
        if not self.findings:
            return "nothing that the doctor knows how to look for is wrong"
        count = len(self.findings)
        found = "one thing looks wrong" if count == 1 else f"{count} things look wrong"
        flags = "".join(f"; begin with {advice.said}" for advice in self.findings[0].advice[:1])
        return f"{found}{flags}{'' if self.judged else ' (the curves are too short to judge)'}"

    def document(self) -> Document:
        """The verdict, each finding with its numbers, what to change and its picture, and pictures of every run."""
        return Document(
            f"Doctor: {self.name}",
            [
                Callout(self.verdict, "warn" if self.findings else "fine" if self.judged else "open"),
                *(block for finding in self.findings for block in finding.blocks()),
                Heading("Pictures"),
                Pictures(self.figures),
                *([Heading("What to know")] if self.said else []),
                *(Aside(text) for text in self.said),
            ],
        )

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as plain values that JSON can hold; `format` changes when what programs read does."""
        return {
            "format": FORMAT,
            "name": self.name,
            "judged": self.judged,
            "findings": [
                {
                    **finding._asdict(),
                    "figure": None if finding.figure is None else finding.figure.data(),
                    "advice": [one._asdict() for one in finding.advice],
                }
                for finding in self.findings
            ],
            "figures": [figure.data() for figure in self.figures],
            "said": list(self.said),
        }
