"""What a run wastes: work on padding, and time in which a step waits for its data."""

import math
from collections.abc import Sequence
from statistics import fmean, median, quantiles

from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.diagnosis.findings import Advice, Finding
from seqloom.diagnosis.story import Story
from seqloom.figures import Bars

PADDING = 0.4  # of all elements; batches by length of ordinary text have 0.02 to 0.2
WAITED = 0.3  # of the time; a loader that keeps up waits for nothing but its first batch
ENOUGH = 3  # reports, before a pace is believed
FEW, FAR = 20, 2.0  # cutting helps where the longest row in twenty is twice as long as the others
USUAL_WORKERS = 2  # of `seqloom train`; how many a run had is not written down
MOST_WORKERS = 32  # more of them rather wait for one another


def cost_findings(story: Story, config: TrainingConfig, lengths: Sequence[int] = ()) -> tuple[Finding, ...]:
    """What is wasted, the larger part first; `lengths` are those of rows of the data, where they could be read."""
    found = [finding for finding in (waiting(story), padding(story, config, lengths)) if finding is not None]
    return tuple(found)


def padding(story: Story, config: TrainingConfig, lengths: Sequence[int] = ()) -> Finding | None:
    """Too much of each batch is padding."""
    if not story.blocks or (share := fmean(block.padding for block in story.blocks)) < PADDING:
        return None
    feed = config.feed
    advice = []
    if isinstance(feed, ByLengthConfig):
        advice.append(Advice("--batch", str(max(1, feed.budget // 4)), "smaller batches hold rows of nearer lengths"))
    return Finding(
        "cost.padding",
        "Much of the work is padding",
        "Rows of a batch are as long as the longest of them, and what is missing is computed for nothing. Rows of one "
        "length should stand together, or the few very long ones be cut.",
        {"share of padding": share, "usual below": PADDING},
        Bars(title="What a batch holds", labels=["symbols", "padding"], values=[1 - share, share]),
        (*advice, *_cut(lengths)),
    )


def _cut(lengths: Sequence[int]) -> tuple[Advice, ...]:
    """The length that nineteen rows of twenty have at most, where the twentieth is far longer.

    >>> _cut([*range(1, 100), 1000])[0].said, _cut(range(1, 101))
    ('--longest 95', ())
    """
    if len(lengths) < FEW:
        return ()
    length = max(1, math.floor(quantiles(lengths, n=FEW, method="inclusive")[-1]))
    if max(lengths) < FAR * length:
        return ()
    return (Advice("--longest", str(length), f"one row in {FEW} is longer, up to {max(lengths):,}"),)


def waiting(story: Story) -> Finding | None:
    """Steps wait for their data."""
    if len(story.waited) < ENOUGH or (share := median(story.waited)) < WAITED:
        return None
    return Finding(
        "cost.waiting",
        "Training waits for its data",
        "Batches are made more slowly than the model reads them. Let more threads make them; if the disk is the "
        "bottleneck, keep the data on a nearer one.",
        {"share of the time": share, "usual below": WAITED},
        Bars(title="Where the time goes", labels=["training", "waiting for data"], values=[1 - share, share]),
        (Advice("--workers", str(_workers(share)), f"threads that make batches; {USUAL_WORKERS} are usual"),),
    )


def _workers(waited: float) -> int:
    """So many threads that nobody waits: batches must come 1 / (1 - waited) times as fast.

    >>> _workers(0.3), _workers(0.5), _workers(1.0)
    (3, 4, 32)
    """
    return min(MOST_WORKERS, math.ceil(USUAL_WORKERS / max(1 - waited, USUAL_WORKERS / MOST_WORKERS)))
