"""What the curves of a run say: the advice of the lectures (deck D), as rules on numbers.

    jagged          ╱╲╱╲╱╲    lower the rate              nearly linear   ╲       raise the rate
    gap             ╲__╱      regularise                  plateau         ╲____   another schedule, or a larger model
    flat            ─────     nothing is learnt           unfinished      ‾‾╲     train longer
    exploding       norms far above the clip

Each rule is a pure function of the story and the configuration. All are measured on one scale, the loss at the
beginning: a loss of 0.01 that doubles is still a loss of nearly nothing.

Reports come every so many steps, as the user chose. A rule about roughness must not depend on that choice: a mean over
one step is three times as rough as a mean over ten. So reports are put together to blocks of `STEPS` steps or more.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean, linear_regression, median
from typing import Any, NamedTuple

from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.experiments.doctor.findings import Advice, Finding
from seqloom.report.figures.line import Line, Series

STEPS = 10  # of a block, at least
ENOUGH = 8  # blocks: below that no curve is judged


class StepBlock(NamedTuple):
    """Means over at least `STEPS` steps; `largest` is the largest norm of them."""

    step: int  # the last one
    steps: int
    loss: float
    rate: float
    norm: float
    largest: float
    padding: float


class Story(NamedTuple):
    """What the lines of a run tell."""

    blocks: tuple[StepBlock, ...]
    dev: tuple[tuple[int, float], ...]  # steps and losses of the validations, those too that are no numbers
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
        """The steps and losses of the validations, as far as they are numbers."""
        return tuple((step, loss) for step, loss in self.dev if math.isfinite(loss))


def told(metrics: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]] = ()) -> Story:
    """The story that the records of `metrics.jsonl` and `events.jsonl` tell."""
    records = list(metrics)
    steps = [record for record in records if record["kind"] == "step"]
    losses = [float(record["loss"]) for record in steps if record["loss"] is not None]
    ends = [str(record["why"]) for record in records if record["kind"] == "end"]
    waited = [float(record["waited"]) for record in events if record["kind"] == "pace" and record["waited"] is not None]
    looks = [record for record in records if record["kind"] == "validation" and "loss" in record["metrics"]]
    dev = [(int(look["step"]), look["metrics"]["loss"]) for look in looks]
    return Story(
        tuple(_blocks(steps)),
        tuple((step, math.nan if loss is None else float(loss)) for step, loss in dev),
        tuple(waited),
        ends[-1] if ends else "",
        steps=int(steps[-1]["step"]) if steps else 0,
        skipped=int(sum(record["skipped"] for record in steps)),
        began=losses[0] if losses else math.nan,
    )


def _blocks(records: Sequence[Mapping[str, Any]]) -> Iterator[StepBlock]:
    """Reports put together until they cover enough steps; the rest at the end is left out."""
    began, before, taken = 0, 0, list[tuple[int, Mapping[str, Any]]]()
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


SEEN = 6.0  # so many times its own error a descent must be, to have a form at all


class DescentKind(NamedTuple):
    """How the loss went down over the sum of the rates."""

    descent: float  # of a line through all points
    error: float  # of that
    second: float  # the share of the descent in the second half of the way

    @property
    def is_seen(self) -> bool:
        """Whether there is a descent at all, and not only noise."""
        return self.descent > SEEN * self.error


def way_of(story: Story) -> DescentKind:
    """The way of the training loss of a story."""
    gone = list(accumulate(block.rate * block.steps for block in story.blocks))
    points = [(x, block.loss) for x, block in zip(gone, story.blocks, strict=True)]
    half = (gone[0] + gone[-1]) / 2
    descent, error = _line(points)
    first, _ = _line([point for point in points if point[0] <= half])
    second, _ = _line([point for point in points if point[0] > half])
    total = first + second
    return DescentKind(descent, error, second / total if total > 0 else math.nan)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """How far the line of least squares through the points goes down, and the standard error of that."""
    if len(points) < 3 or (span := points[-1][0] - points[0][0]) <= 0:
        return 0.0, math.inf
    slope, level = linear_regression(*zip(*points, strict=True))
    left = sum((y - level - slope * x) ** 2 for x, y in points) / (len(points) - 2)
    spread = sum((x - fmean(x for x, _ in points)) ** 2 for x, _ in points)
    return -slope * span, math.sqrt(left / spread) * span


# Ten steps of 16 rows average 160 losses: a spread of one loss over their root is 0.08 of it. More than twice that is
# no chance any more, but the steps themselves.
ROUGH, VERY_ROUGH = 0.2, 0.5
# A training loss that has gone down and then climbs by a third of where it began is not coming back by itself.
CLIMBED = 1 / 3
# Nor is one that has lost half of what it had won, where that was more than chance.
WON, LOST = 0.2, 0.5
# A healthy curve bends: the second half of the way brings less than a third of the descent. A line brings half.
LINE = (0.35, 0.75)  # beyond it the loss begins to fall only at the end
SLOW = 0.5  # of the loss must still be there: who has come further was not slow
FLAT = 0.03  # a descent below this share of the first loss is none
STILL = 0.01  # the same for the second half of a run
HIGH = 0.3  # a plateau below this share of the first loss is rather the end of the way
FULL_RATE = 0.5  # of the peak: where the schedule has lowered the rate, standing still is what it is for
LEARNT = 0.25  # of the first loss: who has learnt less has nothing by heart
GAP = 0.4  # of what training has gained, the dev part has not; some always is
RISEN, LESSER_GAP = 0.05, 0.25  # less is enough where the dev loss climbs from its lowest by this share of the gain
MOST_DROPOUT, STRONG_DECAY = 0.5, 0.1  # beyond these something else is wrong
EXPLODED = 20.0  # times the clip, in the middle of all steps; norms of 1 to 5 are usual
SPIKE = 100.0  # times the median norm, where nothing is clipped
SKIPPED = 0.01  # of the steps; fp16 skips one in some thousands, and the first few while it looks for its scale
LOOKED_FOR = 16  # skipped steps: so often fp16 may halve its first scale, 2^16, until it fits
ROUNDED = 0.12  # of a rate that is told may be missing
DEV_EXPLODED = 20.0  # times the loss that the run began with; who learns by heart comes to a few times that

FIND_RATE = Advice("--find-lr", "", "measures the rate")
Rule = Callable[[Story, TrainingConfig], Finding | None]


def curve_findings(story: Story, config: TrainingConfig, *, dropout: float = 0.0) -> tuple[Finding, ...]:
    """What the curves say, the gravest first; of a run that is too short to have a form, only that it exploded.

    `dropout` is the largest one of the model.
    """
    finite = story._replace(blocks=tuple(block for block in story.blocks if math.isfinite(block.loss)))
    found = [exploding(story, config)]
    if finite.is_long_enough:
        found += [*(rule(finite, config) for rule in RULES), gap(finite, config, dropout)]
    return tuple(finding for finding in found if finding is not None)


def roughness(losses: Sequence[float]) -> float:
    """How far losses lie from the middle of their neighbours, above and below in turn; of noise, two thirds of its
    standard deviation. A bend, however sharp, is not rough: there all lie on the same side.

    >>> roughness([4.0, 2.0, 1.0, 0.5]), roughness([1.0, 3.0, 1.0, 3.0])
    (0.0, 2.0)
    """
    places = range(1, len(losses) - 1)
    aside = [losses[at] - (losses[at - 1] + losses[at + 1]) / 2 for at in places]
    return fmean(math.sqrt(max(0.0, -one * two)) for one, two in pairwise(aside)) if len(aside) > 1 else 0.0


def rounded(rate: float) -> str:
    """A rate in one digit, or in two where one would be far from it, as people type it.

    >>> rounded(0.001 / 3), rounded(0.03 / 10), rounded(1e-5 * 10), rounded(3 * 0.005)
    ('0.0003', '0.003', '0.0001', '0.015')
    """
    short = float(f"{rate:.0e}")
    if abs(short - rate) > ROUNDED * rate:
        short = float(f"{rate:.1e}")
    return f"{short:.7f}".rstrip("0").rstrip(".") if short >= 1e-5 else f"{short:g}"


def jagged(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss jumps up and down, or climbs back: the steps are too long."""
    losses = [block.loss for block in story.blocks]
    scale = max(median(losses), story.first / 4)  # the first loss of a run that explodes at once is no scale
    rough, lowest = roughness(losses[1:]) / scale, min(losses)  # dev is no measure: nothing is dropped there
    won, lost = story.first - lowest, story.last - lowest
    has_climbed = lost >= CLIMBED * scale or (won >= WON * story.first and lost >= LOST * won)
    if rough < ROUGH and not has_climbed:
        return None
    larger = (
        (Advice("--batch", str(4 * config.feed.budget), "means over more examples are smoother"),)
        if isinstance(config.feed, ByLengthConfig)
        else ()
    )
    part = 10 if rough >= VERY_ROUGH or story.last > story.first else 3
    return Finding(
        "loss.jagged",
        "The loss jumps",
        "From one report to the next the training loss moves up and down by much more than chance does, or has climbed "
        "back from where it was: the steps are too long and jump over the valley. Take a lower rate.",
        {
            "roughness": rough,
            "usual below": ROUGH,
            "lowest loss": lowest,
            "loss at the end": story.last,
            "rate": config.rate,
        },
        losses_drawn(story, "The loss jumps"),
        (
            Advice("--rate", rounded(config.rate / part), f"a {'tenth' if part == 10 else 'third'} of {config.rate:g}"),
            FIND_RATE,
            *larger,
        ),
    )


def linear(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss falls along a line, when drawn over the sum of the rates: the steps are too short.

    The sum of the rates is how far the weights may have gone; so a schedule that rises or falls does not bend the line.
    """
    way = way_of(story)
    if not way.is_seen or story.last < SLOW * story.first or not LINE[0] <= way.second <= LINE[1]:
        return None
    times = 10 if way.descent < 0.2 * story.first else 3
    return Finding(
        "loss.linear",
        "The loss falls along a line",
        "The training loss falls slowly and evenly and has not begun to bend: each step is short for what there is "
        "still to learn. Take a higher rate.",
        {
            "share of the descent in the second half": way.second,
            "loss at the start": story.first,
            "loss at the end": story.last,
            "rate": config.rate,
        },
        losses_drawn(story, "The loss falls along a line"),
        (Advice("--rate", rounded(config.rate * times), f"{times} times {config.rate:g}"), FIND_RATE),
    )


def unfinished(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss has only begun to fall when the run ends."""
    way = way_of(story)
    if not way.is_seen or story.last < SLOW * story.first or way.second <= LINE[1]:
        return None
    flag, count = f"--{config.length.kind()}", config.length.count
    return Finding(
        "loss.unfinished",
        "The run ends while the loss falls",
        "Most of the descent came at the end, and most of the loss is still there: the run stops where it should "
        "begin. Train longer.",
        {
            "share of the descent in the second half": way.second,
            "loss at the start": story.first,
            "loss at the end": story.last,
        },
        losses_drawn(story, "The run ends while the loss falls"),
        (Advice(flag, f"{3 * count:g}", "three times as long"), FIND_RATE),
    )


def flat(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss is where it began: nothing was learnt."""
    lowest = min(block.loss for block in story.blocks)
    rough = roughness([block.loss for block in story.blocks])
    moved = story.first - story.last >= FLAT * story.first or story.first - lowest >= 2 * FLAT * story.first + 3 * rough
    if moved or linear(story, config) is not None or unfinished(story, config) is not None:
        return None
    return Finding(
        "loss.flat",
        "Nothing was learnt",
        "The training loss at the end is that of the beginning. Either the rate is far too low or far too high, or the "
        "model cannot reach what it would need: measure the rate first, then look at how far gradients reach.",
        {"loss at the start": story.first, "loss at the end": story.last, "rate": config.rate},
        losses_drawn(story, "Nothing was learnt"),
        (FIND_RATE,),
    )


def plateau(story: Story, _: TrainingConfig) -> Finding | None:
    """The loss fell and then stood still, high up, while the rate was still at its full height."""
    half = story.blocks[len(story.blocks) // 2 :]
    peak = max(block.rate for block in story.blocks)
    quarter = max(1, len(half) // 2)
    before, after = (fmean(block.loss for block in part) for part in (half[:quarter], half[-quarter:]))
    fell = (before - after) / story.first
    learnt = (story.first - story.last) / story.first
    at_full = all(block.rate >= FULL_RATE * peak for block in half)
    if not at_full or learnt < 2 * FLAT or story.last < HIGH * story.first or abs(fell) > STILL:
        return None
    return Finding(
        "loss.plateau",
        "The loss stands still",
        "In the second half of the run the training loss did not fall, although there is much of it left and the rate "
        "was still high. A rate that falls lets it settle; if it does not, the model is too small for the task.",
        {"descent in the second half": fell, "loss at the start": story.first, "loss at the end": story.last},
        losses_drawn(story, "The loss stands still"),
        (Advice("--schedule", "cosine", "the rate falls to nothing along the run"),),
    )


def gap(story: Story, config: TrainingConfig, dropout: float) -> Finding | None:
    """Training goes on getting better, the dev part gets worse: the examples are learnt by heart."""
    if len(story.dev_losses) < 3:
        return None
    losses = [loss for _, loss in story.dev_losses]
    last, lowest = fmean(losses[-2:]), min(losses)
    gained = story.first - story.last
    if gained < LEARNT * story.first:
        return None
    apart, risen = (last - story.last) / gained, (last - lowest) / gained
    if apart < GAP and (apart < LESSER_GAP or risen < RISEN):
        return None
    turned = next(step for step, loss in story.dev_losses if loss == lowest)
    # more of each cure than there is, as long as more of it is usual
    advice, decay = list[Advice](), config.optimiser.decay
    if dropout < MOST_DROPOUT:
        more = 0.3 if dropout < 0.3 else MOST_DROPOUT
        advice.append(Advice("--dropout", f"{more:g}", f"it is {dropout:g}; units are left out of each step"))
    if decay < STRONG_DECAY:
        advice.append(Advice("--decay", f"{STRONG_DECAY:g}", f"it is {decay:g}; weights stay small"))
    if config.patience == 0:
        advice.append(Advice("--patience", "3", "stop when the dev part has not got better"))
    return Finding(
        "dev.gap",
        "Training and dev go apart",
        f"The training loss went on falling, the dev loss was lowest at step {turned:,} and is far above it: the model "
        "learns its examples by heart. Regularise it, or stop earlier; more data helps most.",
        {
            "training loss": story.last,
            "dev loss": last,
            "lowest dev loss": lowest,
            "at step": float(turned),
            "share of the gain that dev lacks": apart,
        },
        losses_drawn(story, "Training and dev go apart"),
        tuple(advice),
    )


def exploding(story: Story, config: TrainingConfig) -> Finding | None:
    """Gradients are far larger than what a step can use, or numbers are not finite at all; told of short runs too."""
    dev = story.dev[-1][1] if story.dev else 0.0  # at the end; it may be no number
    norms = [(float(block.step), block.norm) for block in story.blocks if not math.isnan(block.norm)]
    middle = median(norm for _, norm in norms) if norms else math.inf
    largest = max((block.largest for block in story.blocks if not math.isnan(block.largest)), default=math.inf)
    # fp16 skips some steps while it looks for its scale
    few = max(LOOKED_FOR + 1, SKIPPED * story.steps) if config.precision == "fp16" else 1
    blown = story.why == "not-finite" or story.skipped >= few or dev >= DEV_EXPLODED * story.began or math.isnan(dev)
    jumps = middle >= EXPLODED * config.clip if config.clip else largest >= SPIKE * middle
    if not blown and not (story.is_long_enough and (jumps or not norms)):  # of few steps nobody knows
        return None
    evidence = {
        "median norm": middle,
        "largest norm": largest,
        "clip": config.clip,
        "steps skipped": float(story.skipped),
        "of": float(story.steps),
        "loss at the start": story.began,
        "dev loss": dev if story.dev else math.nan,
    }
    known = [(step, norm) for step, norm in norms if norm > 1e-12]
    figure = None
    if known:
        curve = Series(name="mean norm", x=[step for step, _ in known], y=[norm for _, norm in known])
        figure = Line(title="Norm of the gradient", series=[curve], x_label="step", y_axis="log")
    clip = () if config.clip else (Advice("--clip", "1", "no step is longer than this norm allows"),)
    return Finding(
        "gradient.exploding",
        "Gradients explode",
        "The norms of the gradient are far above what training can use, or numbers are not finite: a few steps throw "
        "the weights far away. Clip them and take a lower rate; a gated layer (lstm, gru) or a norm keeps them in "
        "bounds.",
        {name: value for name, value in evidence.items() if math.isfinite(value)},
        figure,
        (*clip, Advice("--rate", rounded(config.rate / 10), f"a tenth of {config.rate:g}")),
    )


RULES: tuple[Rule, ...] = (jagged, flat, linear, unfinished, plateau)
