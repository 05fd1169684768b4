"""Rules about the curves of a run: the advice of the lectures (deck D), on numbers.

    jagged          ╱╲╱╲╱╲    lower the learning rate              nearly linear   ╲       raise the learning rate
    gap             ╲__╱      regularize                  plateau         ╲____   another schedule, or a larger model
    flat            ─────     nothing is learned           unfinished      ‾‾╲     train longer
    exploding       norms far above the clip

Each rule is a pure function of the curves and the configuration. All use the initial loss as their unit: a loss of 0.01
that doubles is still almost no loss.

The user chooses how often steps are logged. Rules about roughness must not depend on that: a mean over one step is
three times as rough as a mean over ten. So log lines are merged into blocks of `STEPS` steps or more.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, dropwhile, pairwise
from statistics import fmean, linear_regression, median
from typing import Any, NamedTuple

from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.experiments.doctor.findings import Advice, Finding
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import counted, number
from seqloom.tasks.task import Metric

OVERFITS = "The model overfits"
STEPS = 10  # of a block, at least
ENOUGH = 8  # blocks; shorter curves are not checked


class StepBlock(NamedTuple):
    """Means over at least `STEPS` steps; `max_grad_norm` is the largest norm of them."""

    step: int  # the last one
    steps: int
    loss: float
    lr: float
    grad_norm: float
    max_grad_norm: float
    padding: float


class Story(NamedTuple):
    """The course of a run, from its logs."""

    blocks: tuple[StepBlock, ...]
    dev: tuple[tuple[int, float], ...]  # steps and losses of the validations, NaN included
    data_waits: tuple[float, ...]  # shares of the time
    end_reason: str = ""  # empty if the run has not ended
    steps: int = 0  # all steps, also those after the last block
    skipped: int = 0  # of them
    began: float = math.nan  # the first logged loss
    progress: float = math.nan  # the share of the training that is done
    dev_metrics: tuple[Mapping[str, float | None], ...] = ()  # of each validation in `dev`

    @property
    def is_long_enough(self) -> bool:
        """Whether the curve is long enough to check."""
        return len(self.blocks) >= ENOUGH

    @property
    def first(self) -> float:
        return self.blocks[0].loss

    @property
    def last(self) -> float:
        """The final loss: the mean of the last fifth."""
        tail = self.blocks[-max(1, len(self.blocks) // 5) :]
        return fmean(block.loss for block in tail)

    @property
    def dev_losses(self) -> tuple[tuple[int, float], ...]:
        """The steps and losses of the validations, without NaN."""
        return tuple((step, loss) for step, loss in self.dev if math.isfinite(loss))

    @property
    def has_dev_curve(self) -> bool:
        """Whether the curves of both sets are long enough to see where they part."""
        return self.is_long_enough and len(self.dev_losses) >= 3


def story_of(metrics: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]] = ()) -> Story:
    """The course of a run from the lines of `metrics.jsonl` and `events.jsonl`."""
    records = list(metrics)
    steps = [record for record in records if record["kind"] == "step"]
    losses = [float(record["loss"]) for record in steps if record["loss"] is not None]
    ends = [str(record["reason"]) for record in records if record["kind"] == "end"]
    speeds = [record["data_wait"] for record in events if record["kind"] == "speed"]
    waits = [float(share) for share in speeds if share is not None]
    validations = [record for record in records if record["kind"] == "validation" and "loss" in record["metrics"]]
    dev = [(int(one["step"]), one["metrics"]["loss"]) for one in validations]
    reached = max((int(record["step"]) for record in records if "step" in record), default=0)
    # The progress is that of the last logged step, and a run may stop some steps later.
    progress = min(1.0, steps[-1].get("progress", math.nan) * reached / steps[-1]["step"]) if steps else math.nan
    return Story(
        tuple(_blocks(steps)),
        tuple((step, math.nan if loss is None else float(loss)) for step, loss in dev),
        tuple(waits),
        ends[-1] if ends else "",
        steps=reached,
        skipped=int(sum(record["skipped"] for record in steps)),
        began=losses[0] if losses else math.nan,
        progress=progress,
        dev_metrics=tuple(one["metrics"] for one in validations),
    )


def _blocks(records: Sequence[Mapping[str, Any]]) -> Iterator[StepBlock]:
    """Log lines merged until they cover enough steps; the rest at the end is left out."""
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

    largest = [float(record["max_grad_norm"]) for _, record in taken if record["max_grad_norm"] is not None]
    return StepBlock(
        step=step,
        steps=sum(steps for steps, _ in taken),
        loss=mean("loss"),
        lr=mean("lr"),
        grad_norm=mean("grad_norm"),
        max_grad_norm=max(largest, default=math.nan),
        padding=mean("padding"),
    )


def losses_drawn(story: Story, title: str) -> Line:
    """Training and dev loss as curves.

    If the initial training loss is so high that the dev loss would look flat, the curve begins below it.
    """
    blocks, name = story.blocks, "training"
    highest = max((loss for _, loss in story.dev_losses), default=math.inf)
    if story.first > STEEP * highest and story.blocks[-1].loss <= highest:
        blocks = tuple(dropwhile(lambda block: not block.loss <= highest, story.blocks))
        name = f"training from step {blocks[0].step:,}"
    drawn = [Series(name=name, x=[float(block.step) for block in blocks], y=[block.loss for block in blocks])]
    if story.dev_losses:
        x, y = zip(*story.dev_losses, strict=True)
        drawn.append(Series(name="dev", x=[float(step) for step in x], y=list(y)))
    return Line(title=title, series=drawn, x_label="step", y_label="loss")


def risen_dev_loss(story: Story, metric: Metric) -> Iterator[str]:
    """A message about a dev loss that rises while the training loss nears zero, although the metric still improves."""
    found = [
        (loss, step, metrics.get(metric.name))
        for (step, loss), metrics in zip(story.dev, story.dev_metrics, strict=True)
    ]
    known = [(loss, step, score) for loss, step, score in found if math.isfinite(loss) and score is not None]
    if not story.is_long_enough or len(known) < 3 or story.last > LITTLE * story.first:
        return
    (lowest, step, before), (loss, _, now) = min(known), known[-1]
    if loss >= (1 + CLEARLY) * lowest and metric.better(now, before):
        yield (
            f"the dev loss rose from {number(lowest)} at step {step:,} to {number(loss)}, while the training loss fell "
            f"to {number(story.last)}; {metric.name} still improved, from {number(before)} to {number(now)}, so the "
            "predictions are better, but their probabilities are too sure"
        )


SEEN = 6.0  # standard errors that a descent must have to count


class Descent(NamedTuple):
    """How the loss fell over the sum of learning rates."""

    descent: float  # of a line through all points
    error: float  # of that
    second: float  # the share of the descent in the second half

    @property
    def is_seen(self) -> bool:
        """Whether the loss fell by more than noise."""
        return self.descent > SEEN * self.error


def descent_of(story: Story) -> Descent:
    """The descent of the training loss."""
    gone = list(accumulate(block.lr * block.steps for block in story.blocks))
    points = [(x, block.loss) for x, block in zip(gone, story.blocks, strict=True)]
    half = (gone[0] + gone[-1]) / 2
    descent, error = _line(points)
    first, _ = _line([point for point in points if point[0] <= half])
    second, _ = _line([point for point in points if point[0] > half])
    total = first + second
    return Descent(descent, error, second / total if total > 0 else math.nan)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """How far the regression line through the points falls, and its standard error."""
    if len(points) < 3 or (span := points[-1][0] - points[0][0]) <= 0:
        return 0.0, math.inf
    slope, level = linear_regression(*zip(*points, strict=True))
    left = sum((y - level - slope * x) ** 2 for x, y in points) / (len(points) - 2)
    spread = sum((x - fmean(x for x, _ in points)) ** 2 for x, _ in points)
    return -slope * span, math.sqrt(left / spread) * span


# Ten steps of 16 rows average 160 losses, so chance alone moves the mean by about 0.08 of a loss. More than twice that
# comes from the steps themselves.
ROUGH, VERY_ROUGH = 0.2, 0.5
# A training loss that has fallen and then rises by a third of its initial value does not recover by itself.
CLIMBED = 1 / 3
# Nor does one that has lost half of a gain that was more than chance.
WON, LOST = 0.2, 0.5
# A healthy curve bends: less than a third of the descent comes in the second half. On a straight line, half does.
LINE = (0.35, 0.75)  # above: the loss starts to fall only at the end
SLOW = 0.5  # of the initial loss: a run that is below it was not slow
FLAT = 0.03  # a smaller share of the initial loss is no descent
STILL = 0.01  # the same for the second half of a run
HIGH = 0.3  # a plateau below this share of the initial loss means that training is done
FULL_RATE = 0.5  # of the peak: below it the schedule itself flattens the loss
LEARNED = 0.25  # of the initial loss: a run that has learned less cannot overfit
GAP = 0.4  # share of the training gain that the dev set lacks; some gap is normal
RISEN, LESSER_GAP = 0.05, 0.25  # a smaller gap counts if the dev loss rises by this share of the gain, or if
# this share of the gain came after the dev loss was within LEVEL of its lowest: it was memorized. A dev loss below HIGH
# of the initial loss is exempt: there the predictions are mostly right.
MEMORIZED, LEVEL = 0.1, 0.02
LATE = 0.2  # share of the run: a dev loss that reached its level later than this before the end is still falling
MOST_DROPOUT, STRONG_DECAY = 0.5, 0.1  # beyond these, more does not help
EXPLODED = 20.0  # median norm, in multiples of the clip norm; 1 to 5 are normal
SPIKE = 100.0  # multiples of the median norm, without clipping
SKIPPED = 0.01  # of the steps; fp16 skips one in some thousands, and a few at the start
LOOKED_FOR = 16  # skipped steps that fp16 may need at the start to halve its loss scale of 2^16
ROUNDED = 0.12  # relative error that rounding a learning rate may have
BENDS = 0.15  # share of the descent in the second half, below which a curve levels off
LONGER = 3  # times as long is a run that was still learning, at least
FURTHER = (
    0.1  # of the loss: a power law with the exponents of language models loses less when it is three times as long
)
FEW_STEPS = 5_000  # a longer run that still learns is a matter of the budget
CLEAR = 3.0  # standard errors
USUAL_STEPS, MOST_TIMES = 1_000, 10  # a run with fewer steps is made this long, at most this many times as long
STEEP = 3.0  # multiples of the highest dev loss
LITTLE, CLEARLY = 0.1, 0.1  # of the initial training loss; of the lowest dev loss
DEV_EXPLODED = 20.0  # multiples of the initial loss; overfitting reaches only a few

FIND_RATE = Advice("--find-lr", "", "finds a learning rate with a range test")
Rule = Callable[[Story, TrainingConfig], Finding | None]


def curve_findings(story: Story, config: TrainingConfig, *, dropout: float = 0.0) -> tuple[Finding, ...]:
    """Findings about the curves, the most serious first; for a short run, only exploding gradients.

    Args:
        story: the course of the run.
        config: its training configuration.
        dropout: the largest dropout rate of the model.
    """
    finite = story._replace(blocks=tuple(block for block in story.blocks if math.isfinite(block.loss)))
    found = [exploding(story, config)]
    if finite.is_long_enough:
        found += [*(rule(finite, config) for rule in RULES), gap(finite, config, dropout)]
    return tuple(finding for finding in found if finding is not None)


def roughness(losses: Sequence[float]) -> float:
    """How far losses alternate above and below the mean of their neighbors; for noise, two thirds of its standard
    deviation. A bend, however sharp, is not rough, because there all losses are on the same side.

    >>> roughness([4.0, 2.0, 1.0, 0.5]), roughness([1.0, 3.0, 1.0, 3.0])
    (0.0, 2.0)
    """
    places = range(1, len(losses) - 1)
    aside = [losses[at] - (losses[at - 1] + losses[at + 1]) / 2 for at in places]
    return fmean(math.sqrt(max(0.0, -one * two)) for one, two in pairwise(aside)) if len(aside) > 1 else 0.0


def rounded(lr: float) -> str:
    """A learning rate with one digit, or with two if one would be far off.

    >>> rounded(0.001 / 3), rounded(0.03 / 10), rounded(1e-5 * 10), rounded(3 * 0.005)
    ('0.0003', '0.003', '0.0001', '0.015')
    """
    short = float(f"{lr:.0e}")
    if abs(short - lr) > ROUNDED * lr:
        short = float(f"{lr:.1e}")
    return f"{short:.7f}".rstrip("0").rstrip(".") if short >= 1e-5 else f"{short:g}"


def jagged(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss jumps up and down, or rises again: the learning rate is too high."""
    losses = [block.loss for block in story.blocks]
    scale = max(median(losses), story.first / 4)  # a run that explodes immediately has no meaningful initial loss
    rough, lowest = roughness(losses[1:]) / scale, min(losses)  # the dev loss cannot be compared: it has no dropout
    won, lost = story.first - lowest, story.last - lowest
    has_climbed = lost >= CLIMBED * scale or (won >= WON * story.first and lost >= LOST * won)
    if rough < ROUGH and not has_climbed:
        return None
    larger = (
        (Advice("--batch-tokens", str(4 * config.batching.batch_tokens), "larger batches give smoother gradients"),)
        if isinstance(config.batching, ByLengthConfig)
        else ()
    )
    part = 10 if rough >= VERY_ROUGH or story.last > story.first else 3
    return Finding(
        "loss.jagged",
        "The loss jumps",
        "The training loss jumps up and down by much more than chance, or it has risen again after it fell. The steps "
        "are too large. Lower the learning rate.",
        {
            "roughness": rough,
            "normal below": ROUGH,
            "lowest loss": lowest,
            "final loss": story.last,
            "lr": config.lr,
        },
        losses_drawn(story, "The loss jumps"),
        (
            Advice("--lr", rounded(config.lr / part), f"a {'tenth' if part == 10 else 'third'} of {config.lr:g}"),
            FIND_RATE,
            *larger,
        ),
    )


def linear(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss falls along a straight line over the sum of learning rates: the learning rate is too low.

    The sum of learning rates is how far the weights may have moved, so a schedule does not bend the line.
    """
    way = descent_of(story)
    if not way.is_seen or story.last < SLOW * story.first or not LINE[0] <= way.second <= LINE[1]:
        return None
    times = 10 if way.descent < 0.2 * story.first else 3
    return Finding(
        "loss.linear",
        "The loss falls along a straight line",
        "The training loss falls slowly and evenly and has not started to level off. The steps are too small. Raise "
        "the learning rate.",
        {
            "share of the decrease in the second half": way.second,
            "initial loss": story.first,
            "final loss": story.last,
            "lr": config.lr,
        },
        losses_drawn(story, "The loss falls along a straight line"),
        (Advice("--lr", rounded(config.lr * times), f"{times} times {config.lr:g}"), FIND_RATE),
    )


def unfinished(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss has only started to fall when the run ends, or would fall much further in a longer run."""
    way = descent_of(story)
    late = way.is_seen and story.last >= SLOW * story.first and way.second > LINE[1]
    bends = way.second < BENDS or linear(story, config) is not None  # along a straight line, larger steps come first
    ahead = 0.0 if bends else further_descent(story)
    if not late and ahead < FURTHER:
        return None
    return Finding(
        "loss.unfinished",
        "The run ended while the loss was falling",
        "Most of the decrease came at the end, and the loss is still high. Train longer."
        if late
        else f"The loss is still high, and after {story.steps:,} steps it was still falling. Train longer.",
        {
            "share of the decrease in the second half": way.second,
            "expected further decrease in three times the steps": ahead,
            "initial loss": story.first,
            "final loss": story.last,
            "steps": float(story.steps),
        },
        losses_drawn(story, "The run ended while the loss was falling"),
        (longer(story, config), FIND_RATE),
    )


def short(story: Story, config: TrainingConfig) -> Finding | None:
    """The run ended after very few steps."""
    if story.end_reason != "done" or not 0 < story.steps < STEPS * ENOUGH:
        return None
    return Finding(
        "loss.unfinished",
        "The run had few steps",
        f"The run ended after {counted(story.steps, 'step')}. Few models learn much in fewer than {STEPS * ENOUGH}. "
        "Train longer.",
        {"steps": float(story.steps)},
        None,
        (longer(story, config),),
    )


def further_descent(story: Story, *, least: float = HIGH) -> float:
    """The share of its loss that a run of few steps would lose if it were three times as long; 0 if it would not.

    Losses fall along a line over the logarithm of the sum of learning rates, which a decaying schedule does not bend.
    The line is drawn through the last two thirds. The dev loss, if it is known, must fall as well. A loss below `least`
    of the initial one counts as learned.
    """
    if story.end_reason == "patience" or story.steps > FEW_STEPS or story.last < least * story.first:
        return 0.0
    gone = list(accumulate(block.lr * block.steps for block in story.blocks))
    points = [(x, block.loss) for x, block in zip(gone, story.blocks, strict=True)]
    shares = [_further(points)]
    if len(story.dev_losses) >= 3:
        at = {block.step: x for block, x in zip(story.blocks, gone, strict=True)}
        reached = [
            (max((x for step, x in at.items() if step <= one), default=0.0), loss) for one, loss in story.dev_losses
        ]
        shares.append(_further([point for point in reached if point[0] > 0]))
    return max(0.0, min(shares))


def _further(points: Sequence[tuple[float, float]]) -> float:
    """The share of the last value that a line over the logarithm of x loses when x is tripled; 0 if it is noise."""
    late = [(math.log(x), y) for x, y in points if x > points[-1][0] / 3]
    descent, error = _line(late)
    if descent <= CLEAR * error or late[-1][1] <= 0:
        return 0.0
    return descent / (late[-1][0] - late[0][0]) * math.log(3) / late[-1][1]


def longer(story: Story, config: TrainingConfig) -> Advice:
    """Train longer: until a run has enough steps, but at least three times as long. All findings say the same.

    If early stopping ended the run, only more patience makes it longer.
    """
    if story.end_reason == "patience":
        return Advice("--patience", str(2 * config.patience), f"early stopping ended the run; now {config.patience}")
    flag, count = f"--{config.duration.unit}", config.duration.amount
    chosen = min(MOST_TIMES, max(LONGER, math.ceil(USUAL_STEPS / max(1, story.steps))))
    return Advice(flag, f"{chosen * count:.12g}", f"{chosen:g} times as long; this run had {story.steps:,} steps")


def regularizing(config: TrainingConfig, dropout: float) -> tuple[Advice, ...]:
    """Stronger regularization, up to usual values."""
    advice, decay = list[Advice](), config.optimizer.weight_decay
    if dropout < MOST_DROPOUT:
        more = 0.3 if dropout < 0.3 else MOST_DROPOUT
        advice.append(Advice("--dropout", f"{more:g}", f"now {dropout:g}"))
    if decay < STRONG_DECAY:
        advice.append(Advice("--weight-decay", f"{STRONG_DECAY:g}", f"now {decay:g}"))
    if config.patience == 0:
        advice.append(Advice("--patience", "3", "stop early when the dev score does not improve"))
    return tuple(advice)


def flat(story: Story, config: TrainingConfig) -> Finding | None:
    """The loss did not fall: nothing was learned."""
    lowest = min(block.loss for block in story.blocks)
    rough = roughness([block.loss for block in story.blocks])
    moved = story.first - story.last >= FLAT * story.first or story.first - lowest >= 2 * FLAT * story.first + 3 * rough
    if moved or linear(story, config) is not None or unfinished(story, config) is not None:
        return None
    return Finding(
        "loss.flat",
        "Nothing was learned",
        "The training loss did not fall. Either the learning rate is far too low or far too high, or gradients do not "
        "reach the inputs that matter. Find a learning rate first, then look at how far gradients reach.",
        {"initial loss": story.first, "final loss": story.last, "lr": config.lr},
        losses_drawn(story, "Nothing was learned"),
        (FIND_RATE,),
    )


def plateau(story: Story, _: TrainingConfig) -> Finding | None:
    """The loss fell and then stayed high, while the learning rate was still high."""
    half = story.blocks[len(story.blocks) // 2 :]
    peak = max(block.lr for block in story.blocks)
    quarter = max(1, len(half) // 2)
    before, after = (fmean(block.loss for block in part) for part in (half[:quarter], half[-quarter:]))
    fell = (before - after) / story.first
    learned = (story.first - story.last) / story.first
    at_full = all(block.lr >= FULL_RATE * peak for block in half)
    if not at_full or learned < 2 * FLAT or story.last < HIGH * story.first or abs(fell) > STILL:
        return None
    return Finding(
        "loss.plateau",
        "The loss has reached a plateau",
        "In the second half of the run the training loss did not fall, although it is still high and so was the "
        "learning rate. Let the learning rate decay; if that does not help, the model is too small for the task.",
        {"decrease in the second half": fell, "initial loss": story.first, "final loss": story.last},
        losses_drawn(story, "The loss has reached a plateau"),
        (Advice("--schedule", "cosine", "the learning rate decays to 0"),),
    )


def gap(story: Story, config: TrainingConfig, dropout: float) -> Finding | None:
    """The dev loss is far above the training loss: it has risen, stands still, or falls more slowly."""
    if not story.has_dev_curve:
        return None
    places, losses = zip(*story.dev_losses, strict=True)
    lowest = min(losses)
    at = losses.index(lowest)
    last = fmean(losses[at + 1 :][-2:] or [lowest])
    gained = story.first - story.last
    if gained < LEARNED * story.first:
        return None
    apart, risen = (last - story.last) / gained, (last - lowest) / gained
    turned = next(step for step, loss in story.dev_losses if loss - lowest <= LEVEL * gained)
    memorized = (mean_before(story, turned) - story.last) / gained
    stands = memorized >= MEMORIZED and last >= HIGH * story.first
    if apart < GAP and (apart < LESSER_GAP or not (risen >= RISEN or stands)):
        return None
    title, cure, advice = OVERFITS, "Regularize the model or stop earlier", regularizing(config, dropout)
    if risen > LEVEL:
        now = f"has risen since step {places[at]:,} and is"
    elif places[-1] - turned >= LATE * places[-1]:
        now = f"has hardly changed since step {turned:,} and is"
    else:
        title, now = "The dev loss is far above the training loss", "is still falling, but is"
        cure, advice = "Train longer and regularize the model", (longer(story, config), *advice)
    return Finding(
        "dev.gap",
        title,
        f"The dev loss {now} far above the training loss. {cure}; more data helps most.",
        {
            "training loss": story.last,
            "dev loss": last,
            "lowest dev loss": lowest,
            "at step": float(places[at]),
            "about as low since step": float(turned),
            "loss gap between dev and training, relative to the decrease": apart,
            "share of the decrease in training loss since then": memorized,
        },
        losses_drawn(story, title),
        advice,
    )


def mean_before(story: Story, step: int) -> float:
    """The training loss at a step: the mean of the blocks before it, at most a fifth of all."""
    before = [block for block in story.blocks if block.step <= step] or [story.blocks[0]]
    return fmean(block.loss for block in before[-max(1, len(story.blocks) // 5) :])


def exploding(story: Story, config: TrainingConfig) -> Finding | None:
    """Gradients are far too large, or losses are NaN or infinite; also reported for short runs."""
    dev = story.dev[-1][1] if story.dev else 0.0  # at the end; it may be NaN
    norms = [(float(block.step), block.grad_norm) for block in story.blocks if not math.isnan(block.grad_norm)]
    middle = median(norm for _, norm in norms) if norms else math.inf
    largest = max(
        (block.max_grad_norm for block in story.blocks if not math.isnan(block.max_grad_norm)), default=math.inf
    )
    # fp16 skips some steps at the start, to find its loss scale
    few = max(LOOKED_FOR + 1, SKIPPED * story.steps) if config.precision == "fp16" else 1
    blown = (
        story.end_reason == "not-finite" or story.skipped >= few or dev >= DEV_EXPLODED * story.began or math.isnan(dev)
    )
    jumps = middle >= EXPLODED * config.clip_norm if config.clip_norm else largest >= SPIKE * middle
    if not blown and not (story.is_long_enough and (jumps or not norms)):  # a few steps are not enough
        return None
    evidence = {
        "median norm": middle,
        "largest norm": largest,
        "clip norm": config.clip_norm,
        "skipped steps": float(story.skipped),
        "all steps": float(story.steps),
        "initial loss": story.began,
        "dev loss": dev if story.dev else math.nan,
    }
    known = [(step, norm) for step, norm in norms if norm > 1e-12]
    figure = None
    if known:
        curve = Series(name="mean norm", x=[step for step, _ in known], y=[norm for _, norm in known])
        figure = Line(title="Gradient norm", series=[curve], x_label="step", y_axis="log")
    clip = () if config.clip_norm else (Advice("--clip-norm", "1", "limits the size of each step"),)
    return Finding(
        "gradient.exploding",
        "Gradients explode",
        "Gradient norms are far too large, or losses are NaN or infinite, so that a few steps destroy the weights. "
        "Clip the gradient and lower the learning rate; gated layers (lstm, gru) or layer norm also help.",
        {name: value for name, value in evidence.items() if math.isfinite(value)},
        figure,
        (*clip, Advice("--lr", rounded(config.lr / 10), f"a tenth of {config.lr:g}")),
    )


RULES: tuple[Rule, ...] = (jagged, flat, linear, unfinished, plateau)
