"""The leaderboard of a race: score, interval, cost and outcome of each candidate, and commands for the next steps."""

import shlex
from collections.abc import Mapping
from typing import Any, Literal

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
from seqloom.report.frames import data_frame
from seqloom.report.labels import excerpt
from seqloom.report.numbers import duration, interval, number

LONGEST = 160  # characters of the title
NOISE = 1.96  # standard errors: the 95 % interval of a difference includes 0
ONE_SEED = (
    "The intervals are over dev examples. Each candidate was trained with one seed. The winner and its checkpoint were "
    "chosen on the dev set, so its score is slightly optimistic. Evaluate on the test set once, at the end."
)
ORDER = "Best score first; of equal scores, the one with the least computation (parameters times steps)."

RowState = Literal["winner", "complete", "shortened", "dropped", "failed", "not run"]


class LeaderboardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate: its best run, its cost and its outcome."""

    name: str
    state: RowState
    why: str  # the outcome as text
    score: Interval | None = None  # None: no result
    gap: float | None = None  # how much better the winner is
    gap_error: float | None = None  # the standard error of the gap, paired over examples
    parameters: int = 0
    steps: int = 0
    default_steps: int | None = None
    seconds: float = 0.0  # training time of its best run
    latency: float | None = None  # milliseconds of a prediction for one row, the median; None: not measured
    runs: tuple[str, ...] = ()  # names of its run folders, best first

    @property
    def is_in_noise(self) -> bool:
        """Whether the 95 % interval of its difference to the winner, paired over examples, includes 0."""
        return self.gap is not None and self.gap_error is not None and self.gap <= NOISE * self.gap_error

    def row(self) -> list[TableCell]:
        """A row of the table."""
        ends = "" if self.score is None else interval(self.score.low, self.score.high)
        value = None if self.score is None else self.score.value
        of = "" if self.default_steps is None else f" of {self.default_steps:,}"
        steps = f"{self.steps:,}{of}" if self.steps else ""
        training = duration(self.seconds) if self.seconds else ""
        latency = "" if self.latency is None else duration(self.latency / 1000)
        return [self.name, value, ends, training, latency, self.why, steps, self.parameters or None]


class Leaderboard(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The results of a race, best candidate first."""

    data: str
    task: str
    metric: str
    higher_is_better: bool
    dev_rows: int
    folder: str
    minutes: float
    seconds: float  # spent on the race
    rows: tuple[LeaderboardRow, ...]
    commands: tuple[str, ...]  # for the next steps
    undefined: str = ""  # why the metric is undefined on the dev set; then no model is the best

    @property
    def winner(self) -> LeaderboardRow:
        """The best candidate."""
        return self.rows[0]

    @property
    def model(self) -> str:
        """The folder of the winner's model."""
        return f"{self.folder}/model"

    def updated(self, latencies: Mapping[str, float], seconds: float) -> "Leaderboard":
        """The same leaderboard with the latencies that are known, by run, and the seconds that are spent by now."""
        rows = [msgspec.structs.replace(row, latency=latencies.get(next(iter(row.runs), ""))) for row in self.rows]
        return msgspec.structs.replace(self, rows=tuple(rows), seconds=seconds)

    def sentence(self) -> str:
        """A sentence that names the best candidate, and a cheaper one or else all that are within noise.

        If the metric is undefined, it says so instead.
        """
        best = self.winner
        assert best.score is not None, "a winner has a score"
        if self.undefined:
            return (
                f"No model is the best: {self.metric} is undefined on the dev set ({self.undefined}). Use another dev "
                f"set or another metric. The folder has the model of {best.name}."
            )
        ends = interval(best.score.low, best.score.high)
        sentence = (
            f"The best model is {best.name}: {self.metric} {number(best.score.value)} on the dev set (95%: {ends})."
        )
        near = [one for one in self.rows[1:] if one.is_in_noise]
        if not near:
            return sentence
        cheaper = [one for one in near if 0 < one.seconds < best.seconds]
        if not cheaper:
            return f"{sentence} Within noise: {', '.join(one.name for one in near)}."
        least = min(cheaper, key=lambda one: one.seconds)
        times = number(round(best.seconds / least.seconds, 1))
        return f"{sentence} Within noise: {least.name} trains {times} times faster."

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each candidate, the best first: score with interval, cost and outcome.

        `latency` is the median in milliseconds of a prediction for one row; None if it was not measured.
        """
        rows = [
            {
                "model": one.name,
                self.metric: None if one.score is None else one.score.value,
                "low": None if one.score is None else one.score.low,
                "high": None if one.score is None else one.score.high,
                "state": one.state,
                "parameters": one.parameters,
                "steps": one.steps,
                "seconds": one.seconds,
                "latency": one.latency,
            }
            for one in self.rows
        ]
        return data_frame(rows)

    def __repr__(self) -> str:
        return f"Leaderboard({excerpt(self.data, LONGEST)}, {len(self.rows)} candidates)\n  {self.sentence()}"

    def document(self) -> Document:
        """The winner, all candidates, a figure, a note and the commands for the next steps."""
        heads = ("model", self.metric, "95% interval", "training", "latency", "outcome", "steps", "parameters")
        setting = (
            f"{self.task}, {self.dev_rows:,} dev rows; {len(self.rows)} candidates in {duration(self.seconds)} of "
            f"{duration(60 * self.minutes)}"
        )
        return Document(
            excerpt(f"{self.data}: the best model in {duration(60 * self.minutes)}", LONGEST),
            [
                Aside(setting),
                Callout(self.sentence(), "warn" if self.undefined else "fine"),
                Heading("Leaderboard"),
                TableBlock(heads, [one.row() for one in self.rows]),
                Aside(ORDER),
                Heading("Figures"),
                Pictures(self.figures(), 1),
                Aside(ONE_SEED),
                Details("Next steps", [CodeBlock("\n".join(self.commands), "sh")]),
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
    """Commands that use the result of a race; `usage` is the command of the task, with RUN in place of the folder."""
    place = shlex.quote(folder)
    return (
        usage.replace("RUN", place),
        f"seqloom evaluate {place}" + (" --split test" if has_test else " FILE"),
        f"seqloom doctor {place}",
        f"seqloom train --config {shlex.quote(f'{folder}/config.toml')} --out RUN",
    )
