"""What a run wastes: work on padding, and time in which a step waits for its data."""

from statistics import fmean, median

from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.diagnosis.findings import Advice, Finding
from seqloom.diagnosis.story import Story
from seqloom.figures import Bars

PADDING = 0.4  # of all elements; batches by length of ordinary text have 0.02 to 0.2
WAITED = 0.3  # of the time; a loader that keeps up waits for nothing but its first batch
ENOUGH = 3  # reports, before a pace is believed


def cost_findings(story: Story, config: TrainingConfig) -> tuple[Finding, ...]:
    """What is wasted, the larger part first."""
    found = [finding for finding in (waiting(story), padding(story, config)) if finding is not None]
    return tuple(found)


def padding(story: Story, config: TrainingConfig) -> Finding | None:
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
        (*advice, Advice("--longest", "512", "cut what is longer")),
    )


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
        (Advice("--workers", "4", "threads that make batches"),),
    )
