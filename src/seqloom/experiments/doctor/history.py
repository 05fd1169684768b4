"""The lines of a run as numbers of one kind: blocks of steps, looks at the dev part, shares of waiting.

Reports come every so many steps, as the user chose. A rule about roughness must not depend on that choice: a mean over
one step is three times as rough as a mean over ten. So reports are put together to blocks of `STEPS` steps or more.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from seqloom.report.figures.line import Line, Series

STEPS = 10  # of a block, at least
ENOUGH = 8  # blocks: below that no curve is judged


class StepBlock(NamedTuple):
    """Means over at least `STEPS` steps; `largest` is the largest, `skipped` a count."""

    step: int  # the last one
    steps: int
    loss: float
    rate: float
    norm: float
    largest: float
    clipped: float
    skipped: float
    padding: float


class ValidationPoint(NamedTuple):
    """One validation."""

    step: int
    metrics: Mapping[str, float]
    best: bool


class Story(NamedTuple):
    """What the lines of a run tell."""

    blocks: tuple[StepBlock, ...]
    looks: tuple[ValidationPoint, ...]
    waited: tuple[float, ...]  # shares of the time
    why: str = ""  # it ended, if it did
    steps: int = 0  # that were reported, those after the last block too
    skipped: int = 0  # of them
    began: float = math.nan  # the loss of the first report

    @property
    def is_long_enough(self) -> bool:
        """Whether there is a curve to judge."""
        return len(self.blocks) >= ENOUGH

    @property
    def first(self) -> float:
        """The loss at the beginning."""
        return self.blocks[0].loss

    @property
    def last(self) -> float:
        """The loss at the end: the mean of the last fifth."""
        tail = self.blocks[-max(1, len(self.blocks) // 5) :]
        return fmean(block.loss for block in tail)

    @property
    def dev_losses(self) -> tuple[tuple[int, float], ...]:
        """The steps and losses of the validations."""
        found = ((look.step, look.metrics.get("loss", math.nan)) for look in self.looks)
        return tuple((step, loss) for step, loss in found if math.isfinite(loss))


def told(metrics: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]] = ()) -> Story:
    """The story that the records of `metrics.jsonl` and `events.jsonl` tell."""
    records = list(metrics)
    steps = [record for record in records if record["kind"] == "step"]
    losses = [float(record["loss"]) for record in steps if record["loss"] is not None]
    ends = [str(record["why"]) for record in records if record["kind"] == "end"]
    waited = [float(record["waited"]) for record in events if record["kind"] == "pace" and record["waited"] is not None]
    return Story(
        tuple(_blocks(steps)),
        tuple(_look(record) for record in records if record["kind"] == "validation"),
        tuple(waited),
        ends[-1] if ends else "",
        steps=int(steps[-1]["step"]) if steps else 0,
        skipped=int(sum(record["skipped"] for record in steps)),
        began=losses[0] if losses else math.nan,
    )


def _look(record: Mapping[str, Any]) -> ValidationPoint:
    known = {name: math.nan if value is None else float(value) for name, value in record["metrics"].items()}
    return ValidationPoint(int(record["step"]), known, bool(record["best"]))


def _blocks(records: Sequence[Mapping[str, Any]]) -> Iterator[StepBlock]:
    """Reports put together until they cover enough steps; the rest at the end is left out."""
    began, taken = 0, list[tuple[int, Mapping[str, Any]]]()
    before = 0
    for record in records:
        step = int(record["step"])
        taken.append((step - before, record))
        before = step
        if step - began >= STEPS:
            yield _block(step, taken)
            began, taken = step, []


def _block(step: int, taken: Sequence[tuple[int, Mapping[str, Any]]]) -> StepBlock:
    def mean(name: str) -> float:
        known = [(steps, record[name]) for steps, record in taken if record[name] is not None]
        weight = sum(steps for steps, _ in known)
        return sum(steps * value for steps, value in known) / weight if weight else math.nan

    largest = [float(record["largest"]) for _, record in taken if record["largest"] is not None]
    return StepBlock(
        step=step,
        steps=sum(steps for steps, _ in taken),
        loss=mean("loss"),
        rate=mean("rate"),
        norm=mean("norm"),
        largest=max(largest, default=math.nan),
        clipped=mean("clipped"),
        skipped=float(sum(record["skipped"] for _, record in taken)),
        padding=mean("padding"),
    )


def losses_drawn(story: Story, title: str) -> Line:
    """The curves of the loss, in training and on the dev part."""
    steps = [float(block.step) for block in story.blocks]
    drawn = [Series(name="training", x=steps, y=[block.loss for block in story.blocks])]
    if story.dev_losses:
        x, y = zip(*story.dev_losses, strict=True)
        drawn.append(Series(name="dev", x=[float(step) for step in x], y=list(y)))
    return Line(title=title, series=drawn, x_label="step", y_label="loss")
