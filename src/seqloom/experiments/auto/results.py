"""The leaderboard of a race: score, interval and cost of each candidate, what became of it, and what to do next."""

import shlex
from typing import Literal

import msgspec

from seqloom.experiments.compare.results import Interval
from seqloom.report.document import (
    Aside,
    Callout,
    CodeBlock,
    Details,
    Document,
    Heading,
    Pictures,
    Shown,
    TableBlock,
    TableCell,
)
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.labels import excerpt
from seqloom.report.numbers import duration, interval, number

LONGEST = 160  # characters of a text
ONE_SEED = (
    "The intervals are over dev examples, with one seed each; the dev set also chose the winner and its checkpoint, so "
    "its score is slightly optimistic. Evaluate on the test set once, at the end."
)

RowState = Literal["winner", "complete", "shortened", "dropped", "failed", "not run"]


class LeaderboardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate: its best run, what it cost, and what became of it."""

    name: str
    state: RowState
    why: str  # in words
    score: Interval | None = None  # None: it has no result
    gap: float | None = None  # by how much the winner is better
    gap_error: float | None = None  # one standard error of that, paired over examples
    parameters: int = 0
    steps: int = 0
    default_steps: int | None = None
    seconds: float = 0.0  # of training of its best run
    runs: tuple[str, ...] = ()  # names of its run folders, the best one first

    @property
    def is_in_noise(self) -> bool:
        """Whether its score is within one standard error of the winner's."""
        return self.gap is not None and self.gap_error is not None and self.gap <= self.gap_error

    def row(self) -> list[TableCell]:
        """A row of the table."""
        ends = "" if self.score is None else interval(self.score.low, self.score.high)
        value = None if self.score is None else self.score.value
        of = "" if self.default_steps is None else f" of {self.default_steps:,}"
        steps = f"{self.steps:,}{of}" if self.steps else ""
        training = duration(self.seconds) if self.seconds else ""
        return [self.name, value, ends, training, self.why, steps, self.parameters or None]


class Leaderboard(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """What a race found, the best candidate first."""

    data: str
    task: str
    metric: str
    higher_is_better: bool
    dev_rows: int
    folder: str
    minutes: float
    seconds: float  # that the race took
    rows: tuple[LeaderboardRow, ...]
    commands: tuple[str, ...]  # to go on

    @property
    def winner(self) -> LeaderboardRow:
        """The best candidate."""
        return self.rows[0]

    @property
    def model(self) -> str:
        """The folder of the winner's model."""
        return f"{self.folder}/model"

    def sentence(self) -> str:
        """Which candidate is best, and whether a cheaper one is as good up to noise."""
        best = self.winner
        assert best.score is not None, "a winner has a score"
        ends = interval(best.score.low, best.score.high)
        said = f"The best model is {best.name}: {self.metric} {number(best.score.value)} on the dev set (95%: {ends})."
        cheaper = [one for one in self.rows[1:] if one.is_in_noise and 0 < one.seconds < best.seconds]
        if not cheaper:
            return said
        least = min(cheaper, key=lambda one: one.seconds)
        return (
            f"{said} Within noise: {least.name} trains {number(round(best.seconds / least.seconds, 1))} times faster."
        )

    def document(self) -> Document:
        """The winner, all candidates, a figure, notes, and the commands to go on."""
        heads = ("model", self.metric, "95% interval", "training", "outcome", "steps", "parameters")
        setting = (
            f"{self.task}, {self.dev_rows:,} dev rows; {len(self.rows)} candidates in {duration(self.seconds)} of "
            f"{duration(60 * self.minutes)}"
        )
        return Document(
            excerpt(f"{self.data}: the best model in {self.minutes:g} minutes", LONGEST),
            [
                Aside(setting),
                Callout(self.sentence(), "fine"),
                Heading("Leaderboard"),
                TableBlock(heads, [one.row() for one in self.rows]),
                Heading("Figures"),
                Pictures(self.figures(), 1),
                Aside(ONE_SEED),
                Details("Commands to go on", [CodeBlock("\n".join(self.commands), "sh")]),
            ],
        )

    def figures(self) -> list[Figure]:
        """The scores with their intervals."""
        scored = [(one, one.score) for one in self.rows if one.score is not None]
        return [
            Bars(
                title=f"{self.metric} on the dev set",
                labels=[one.name for one, _ in scored],
                values=[score.value for _, score in scored],
                intervals=[(score.low, score.high) for _, score in scored],
                caption="One seed; 95% intervals over examples.",
            )
        ]


def commands_for(folder: str, usage: str, has_test: bool) -> tuple[str, ...]:
    """The commands that use a finished race; `usage` is that of the task, in which RUN stands for the folder."""
    place = shlex.quote(folder)
    return (
        usage.replace("RUN", place),
        f"seqloom evaluate {place}" + (" --split test" if has_test else " FILE"),
        f"seqloom doctor {place}",
        f"seqloom train --config {shlex.quote(f'{folder}/config.toml')} --out RUN",
    )
