"""What the data says: labels that the model never says or always, parts that limit what a score can say, and waste.

Waste is work on padding, and time in which a step waits for its data.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, median, quantiles

from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.data.checks.check import DataFinding
from seqloom.experiments.doctor.curves import FIND_RATE, Story
from seqloom.experiments.doctor.findings import Advice, Finding
from seqloom.report.figures.bars import Bars

ENOUGH = 50  # judged examples
DOMINATES, AT_MOST = 0.95, 0.9  # one label is nearly all that is said, though so much is not all that is true
NEVER, RARE = 20, 0.02  # a label that stands so many times, and in such a share, should be said once
UNEVEN = 3.0  # times as frequent: among even labels a missing one is a sign of little learning, not of rarity
SHOWN = 12

Confusion = Sequence[tuple[str, str, int]]  # true, said, how often
BALANCED = Advice("--class-weights", "balanced", "a rare label counts as much as a frequent one")
MORE_WEIGHT, MORE_EXAMPLES = "give it more weight", "give more examples of it"


def label_findings(
    confusion: Confusion, data_findings: Iterable[DataFinding] = (), *, weighing: tuple[Advice, ...] = (BALANCED,)
) -> tuple[Finding, ...]:
    """What is wrong with the labels; `weighing` is how this run can give a rare label more weight, if it can."""
    found = [dominating(confusion, weighing) or never_said(confusion, weighing), doubtful(data_findings)]
    return tuple(finding for finding in found if finding is not None)


def dominating(confusion: Confusion, weighing: tuple[Advice, ...]) -> Finding | None:
    """Whatever the example, the model says the same label."""
    true, said, total = _counted(confusion)
    if total < ENOUGH:
        return None
    label, count = said.most_common(1)[0]
    if count < DOMINATES * total or true[label] > AT_MOST * total:
        return None
    uneven = max(true.values()) >= UNEVEN * min(true.values())
    return Finding(
        "label.dominates",
        "One label is said for everything",
        f"Nearly every answer on the dev part is '{label}': the model has learnt how frequent labels are and nothing "
        "about the examples.",
        {"label": label, "share of the answers": count / total, "share of the truth": true[label] / total},
        _drawn(true, said, total),
        (*(weighing if uneven else ()), FIND_RATE),
    )


def never_said(confusion: Confusion, weighing: tuple[Advice, ...]) -> Finding | None:
    """Labels that stand in the dev part and are never the answer."""
    true, said, total = _counted(confusion)
    missing = [label for label, count in true.items() if count >= max(NEVER, RARE * total) and not said[label]]
    if total < ENOUGH or not missing:
        return None
    most = true.most_common(1)[0][1] / min(true[label] for label in missing)
    if most < UNEVEN:
        return None
    return Finding(
        "label.never-said",
        "Some labels are never said",
        f"{len(missing)} of {len(true)} labels of the dev part are never the answer: {', '.join(missing[:5])}. Where a "
        f"label is rare, saying another one costs little; {MORE_WEIGHT if weighing else MORE_EXAMPLES}.",
        {"labels never said": float(len(missing)), "most frequent to such a one": most},
        _drawn(true, said, total),
        weighing,
    )


def doubtful(data_findings: Iterable[DataFinding]) -> Finding | None:
    """What the data check warned of: labels that nobody learnt, that contradict one another, that look misspelt."""
    warned = [one for one in data_findings if one.severity == "warn" and one.code.startswith("label.")]
    if not warned:
        return None
    texts = [sample.text for one in warned for sample in one.samples[:1]]
    return Finding(
        "label.data",
        "The labels of the data are doubtful",
        f"The data check warned before training: {'; '.join(texts)}. No setting cures that: correct the files.",
        {one.code: float(one.rows) for one in warned},
        None,
        (),
    )


def _counted(confusion: Confusion) -> tuple[Counter[str], Counter[str], int]:
    true, said = Counter[str](), Counter[str]()
    for truth, answer, count in confusion:
        true[truth] += count
        said[answer] += count
    return true, said, sum(true.values())


def _drawn(true: Counter[str], said: Counter[str], total: int) -> Bars:
    shown = [label for label, _ in (true + said).most_common(SHOWN)]
    labels = [text for label in shown for text in (f"{label}, true", f"{label}, said")]
    values = [count[label] / total for label in shown for count in (true, said)]
    return Bars(title="How often each label is true, and said", labels=labels, values=values)


FEW = 100  # rows of a dev part, on which a share is unsure by a tenth in either direction
HALF_WIDTH = 0.98  # of the 95 % interval of a share of one half, times the root of the rows: the widest there is


def parts_said(warned: Iterable[DataFinding], dev_rows: int) -> Iterator[str]:
    """What should be known of the parts before a score is believed, in sentences; `dev_rows` is 0 where unknown."""
    leaks = [sample.text for one in warned if one.code.startswith("leak.") for sample in one.samples[:1]]
    if leaks:
        yield f"scores on dev may be too good; the data check warned before training: {'; '.join(leaks)}"
    if 0 < dev_rows < FEW:
        unsure = HALF_WIDTH / math.sqrt(dev_rows)
        yield (
            f"the dev part has {dev_rows} rows: a share of right answers is unsure by up to {unsure:.2f} in either "
            "direction; give it more rows with --dev FILE or --shares"
        )


PADDING = 0.4  # of all elements; batches by length of ordinary text have 0.02 to 0.2
WAITED = 0.3  # of the time; a loader that keeps up waits for nothing but its first batch
ENOUGH_STEPS = 3  # reports, before a pace is believed
ONE_IN, FAR = 20, 2.0  # cutting helps where the longest row in twenty is twice as long as the others
USUAL_WORKERS = 2  # of `seqloom train`; how many a run had is not written down
MOST_WORKERS = 32  # more of them rather wait for one another


def cost_findings(story: Story, config: TrainingConfig, lengths: Sequence[int] = ()) -> tuple[Finding, ...]:
    """What is wasted, the larger part first; `lengths` are those of rows of the data, where they could be read."""
    return tuple(one for one in (waiting(story), padding(story, config, lengths)) if one is not None)


def padding(story: Story, config: TrainingConfig, lengths: Sequence[int] = ()) -> Finding | None:
    """Too much of each batch is padding."""
    if not story.blocks or (share := fmean(block.padding for block in story.blocks)) < PADDING:
        return None
    feed, advice = config.feed, list[Advice]()
    if isinstance(feed, ByLengthConfig):
        advice.append(Advice("--batch", str(max(1, feed.budget // 4)), "smaller batches hold rows of nearer lengths"))
    if len(lengths) >= ONE_IN:
        # the length that nineteen rows of twenty have at most, where the twentieth is far longer
        length = max(1, math.floor(quantiles(lengths, n=ONE_IN, method="inclusive")[-1]))
        if max(lengths) >= FAR * length:
            longer = f"one row in {ONE_IN} is longer, up to {max(lengths):,}"
            advice.append(Advice("--longest", str(length), longer))
    return Finding(
        "cost.padding",
        "Much of the work is padding",
        "Rows of a batch are as long as the longest of them, and what is missing is computed for nothing. Rows of one "
        "length should stand together, or the few very long ones be cut.",
        {"share of padding": share, "usual below": PADDING},
        Bars(title="What a batch holds", labels=["symbols", "padding"], values=[1 - share, share]),
        tuple(advice),
    )


def waiting(story: Story) -> Finding | None:
    """Steps wait for their data."""
    if len(story.waited) < ENOUGH_STEPS or (share := median(story.waited)) < WAITED:
        return None
    # batches must come 1 / (1 - share) times as fast, so that nobody waits
    wanted = min(MOST_WORKERS, math.ceil(USUAL_WORKERS / max(1 - share, USUAL_WORKERS / MOST_WORKERS)))
    return Finding(
        "cost.waiting",
        "Training waits for its data",
        "Batches are made more slowly than the model reads them. Let more threads make them; if the disk is the "
        "bottleneck, keep the data on a nearer one.",
        {"share of the time": share, "usual below": WAITED},
        Bars(title="Where the time goes", labels=["training", "waiting for data"], values=[1 - share, share]),
        (Advice("--workers", str(wanted), f"threads that make batches; {USUAL_WORKERS} are usual"),),
    )
