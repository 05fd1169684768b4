"""A diagnosis: findings, each with its numbers, its figure, and the options to change.

    Diagnosis
      ├── findings   Finding: a code, a title, a sentence, evidence, a figure, advice (flags with values)
      ├── scores     the score of the run and of simple baselines on the dev set
      ├── figures    figures that are shown for every run
      ├── scored_on     the rows of the dev set on which they were computed
      ├── long_enough   whether the curves were long enough to check
      ├── model_checked whether the model could be checked on the dev set
      └── messages   what could not be checked, and why

A diagnosis is a frozen value, shown as its `document`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from seqloom.report.document import (
    Aside,
    Bullets,
    Callout,
    Code,
    CodeBlock,
    Document,
    DocumentBlock,
    Heading,
    Kind,
    Mark,
    Paragraph,
    Pictures,
    Shown,
    Spans,
    TableBlock,
)
from seqloom.report.figures.figure import Figure

FORMAT = 5  # of the JSON


class Advice(NamedTuple):
    """An option of `seqloom train` to change."""

    flag: str  # "--lr"
    value: str  # "0.0003"; empty for a flag without a value
    why: str = ""

    @property
    def typed(self) -> str:
        """The option as it is typed.

        >>> Advice("--lr", "0.0003").typed
        '--lr 0.0003'
        """
        return f"{self.flag} {self.value}".rstrip()


class Finding(NamedTuple):
    """One problem: its numbers, a figure, and what to change."""

    code: str  # "loss.jagged"
    title: str
    text: str
    evidence: dict[str, float | str]
    figure: Figure | None = None
    advice: tuple[Advice, ...] = ()

    def blocks(self) -> list[DocumentBlock]:
        return [
            Heading(Spans(Mark("warn"), self.title)),
            Aside(Code(self.code)),
            Paragraph(self.text),
            TableBlock((), list(self.evidence.items())),
            Paragraph("What to change:" if self.advice else ""),
            Bullets([Spans(Code(one.typed), f": {one.why}" if one.why else "") for one in self.advice]),
            Pictures(() if self.figure is None else (self.figure,)),
        ]


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Shown):
    """The findings about a run. None means that no known problem was found in what could be checked."""

    name: str
    findings: tuple[Finding, ...] = ()
    metric: str = ""  # of the scores
    scores: tuple[tuple[str, float], ...] = ()  # of the run and of simple baselines, on the same rows of the dev set,
    # and of the run on all rows
    scored_on: str = "the dev set"
    figures: tuple[Figure, ...] = ()
    messages: tuple[str, ...] = ()
    long_enough: bool = True  # whether the curves were long enough to check
    model_checked: bool = True  # whether the model could be run on the dev set
    scores_compared: bool = True  # whether the scores could be compared with baselines
    next: tuple[str, ...] = ()  # commands to try next, in the shell

    def __repr__(self) -> str:
        found = "".join(f"\n  {one.code}: {one.title}" for one in self.findings)
        return f"Diagnosis({self.name})\n  {self.verdict}{found}"

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings, in their order."""
        return tuple(finding.code for finding in self.findings)

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The options to change; for each one the advice of the first finding."""
        first: dict[str, Advice] = {}
        for finding in self.findings:
            for advice in finding.advice:
                first.setdefault(advice.flag, advice)
        return tuple(first.values())

    @property
    def verdict(self) -> str:
        """One sentence: how many problems were found and what to change first, or what could not be checked."""
        if not self.findings and not self.long_enough:
            return "the run is too short to check its curves"
        if not self.findings:
            if not self.model_checked:
                return "the model could not be checked (see Notes)"
            if not self.scores_compared:
                return "no known problems found, but the scores could not be compared with baselines (see Notes)"
            return "no known problems found (see Notes)" if self.messages else "no known problems found"
        count = len(self.findings)
        found = "found 1 problem" if count == 1 else f"found {count} problems"
        flags = "".join(f"; start with {advice.typed}" for advice in self.findings[0].advice[:1])
        if flags and "--model" not in flags and any("--model" in command for command in self.next):
            flags += ", or with a simpler model, which is as good (see Next)"
        return f"{found}{flags}{'' if self.long_enough else ' (the curves are too short to check)'}"

    def document(self) -> Document:
        """The verdict, each finding with its numbers, advice and figure, and the figures of every run."""
        checked: Kind = "fine" if self.long_enough and self.model_checked and self.scores_compared else "open"
        return Document(
            f"Doctor: {self.name}",
            [
                Callout(self.verdict, "warn" if self.findings else checked),
                *(block for finding in self.findings for block in finding.blocks()),
                *([Heading(f"{self.metric} on {self.scored_on}")] if self.scores else []),
                TableBlock((), list(self.scores)),
                Heading("Figures"),
                Pictures(self.figures),
                *([Heading("Notes")] if self.messages else []),
                *(Aside(text) for text in self.messages),
                *([Heading("Next"), CodeBlock("\n".join(self.next), "sh")] if self.next else []),
            ],
        )

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as plain data for JSON; `format` changes when its keys do."""
        return {
            "format": FORMAT,
            "name": self.name,
            "long_enough": self.long_enough,
            "model_checked": self.model_checked,
            "scores_compared": self.scores_compared,
            "findings": [
                {
                    **finding._asdict(),
                    "figure": None if finding.figure is None else finding.figure.data(),
                    "advice": [one._asdict() for one in finding.advice],
                }
                for finding in self.findings
            ],
            "metric": self.metric,
            "scores": [{"name": name, "score": score} for name, score in self.scores],
            "scored_on": self.scored_on,
            "figures": [figure.data() for figure in self.figures],
            "messages": list(self.messages),
            "next": list(self.next),
        }
