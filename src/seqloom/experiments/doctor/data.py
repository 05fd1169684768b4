"""Rules about the data: labels that are never or always predicted, small or leaking dev sets, and wasted time.

Time is wasted on padding, and when steps wait for their data.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median, quantiles

import numpy as np

from seqloom.config.data import SplitName
from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.data.checks.check import DataFinding
from seqloom.data.prepared import Prepared
from seqloom.experiments.doctor.curves import FIND_RATE, Story
from seqloom.experiments.doctor.findings import Advice, Finding
from seqloom.report.figures.bars import Bars
from seqloom.report.numbers import counted
from seqloom.tasks.task import LOSS, Metric

ENOUGH = 50  # evaluated examples
DOMINATES, AT_MOST = 0.95, 0.9  # share of the predictions that have one label, and at most this share of true labels
NEVER, RARE = 20, 0.02  # a label with this many examples, and this share, should be predicted at least once
UNEVEN = 3.0  # ratio of label frequencies: with balanced labels, a missing one means little learning, not rarity
SHOWN = 12
EVALUATED: tuple[SplitName, SplitName] = ("train", "dev")

Confusion = Sequence[tuple[str, str, int]]  # true label, predicted label, count
BALANCED = Advice("--class-weights", "balanced", "gives rare labels as much weight as frequent ones")
MORE_WEIGHT, MORE_EXAMPLES = "Give rare labels more weight", "Add examples of rare labels"


def label_findings(
    confusion: Confusion, data_findings: Iterable[DataFinding] = (), *, weighing: tuple[Advice, ...] = (BALANCED,)
) -> tuple[Finding, ...]:
    """Findings about labels; `weighing` is how this run can give a rare label more weight, if it can."""
    found = [dominating(confusion, weighing) or never_predicted(confusion, weighing), doubtful(data_findings)]
    return tuple(finding for finding in found if finding is not None)


def dominating(confusion: Confusion, weighing: tuple[Advice, ...]) -> Finding | None:
    """The model predicts the same label for nearly every example."""
    true, predicted, total = _counted(confusion)
    if total < ENOUGH:
        return None
    label, count = predicted.most_common(1)[0]
    if count < DOMINATES * total or true[label] > AT_MOST * total:
        return None
    uneven = max(true.values()) >= UNEVEN * min(true.values())
    return Finding(
        "label.dominates",
        "Nearly all predictions are the same label",
        f"Nearly every prediction on the dev set is '{label}'. The model has learned only which label is frequent.",
        {"label": label, "share of predictions": count / total, "share of true labels": true[label] / total},
        _drawn(true, predicted, total),
        (*(weighing if uneven else ()), FIND_RATE),
    )


def never_predicted(confusion: Confusion, weighing: tuple[Advice, ...]) -> Finding | None:
    """Labels of the dev set that are never predicted."""
    true, predicted, total = _counted(confusion)
    missing = [label for label, count in true.items() if count >= max(NEVER, RARE * total) and not predicted[label]]
    if total < ENOUGH or not missing:
        return None
    most = true.most_common(1)[0][1] / min(true[label] for label in missing)
    if most < UNEVEN:
        return None
    return Finding(
        "label.never-predicted",
        "Some labels are never predicted",
        f"{len(missing)} of {len(true)} labels of the dev set are never predicted: {', '.join(missing[:5])}. "
        f"{MORE_WEIGHT if weighing else MORE_EXAMPLES}.",
        {"labels never predicted": float(len(missing)), "times rarer than the most frequent label": most},
        _drawn(true, predicted, total),
        weighing,
    )


def doubtful(data_findings: Iterable[DataFinding]) -> Finding | None:
    """Warnings of the data check about labels: unseen in training, contradictory, or misspelled."""
    warned = [one for one in data_findings if one.severity == "warn" and one.code.startswith("label.")]
    if not warned:
        return None
    texts = [sample.text for one in warned for sample in one.samples[:1]]
    return Finding(
        "label.data",
        "The data check found problems with the labels",
        f"The data check warned before training: {'; '.join(texts)}. No setting helps here: correct the data.",
        {one.code: float(one.rows) for one in warned},
        None,
        (),
    )


def _counted(confusion: Confusion) -> tuple[Counter[str], Counter[str], int]:
    true, predicted = Counter[str](), Counter[str]()
    for truth, answer, count in confusion:
        true[truth] += count
        predicted[answer] += count
    return true, predicted, sum(true.values())


def _drawn(true: Counter[str], predicted: Counter[str], total: int) -> Bars:
    shown = [label for label, _ in (true + predicted).most_common(SHOWN)]
    labels = [text for label in shown for text in (f"{label}, true", f"{label}, predicted")]
    values = [count[label] / total for label in shown for count in (true, predicted)]
    return Bars(title="True and predicted labels", labels=labels, values=values)


def never_found(per_class: Mapping[str, Mapping[str, float | None]], *, spans: bool) -> Iterator[str]:
    """A message about labels of the dev set, or types of spans, of which no prediction is right.

    >>> scores = {"person": {"f1": 0.4, "support": 42}, "group": {"f1": 0.0, "support": 15}}
    >>> list(never_found(scores, spans=True))
    ['entity types never found in the dev set, with their number there: group (15)']
    """
    support = {name: int(one.get("support") or 0) for name, one in per_class.items() if one.get("f1") == 0}
    missed = sorted((name for name, count in support.items() if count), key=lambda name: -support[name])
    if missed:
        kind = "entity types" if spans else "labels"
        yield f"{kind} never found in the dev set, with their number there: {_listed(missed, support)}"


def never_scored(prepared: Prepared, span_types: Collection[str] = ()) -> Iterator[str]:
    """A message about labels of the training set that the dev set does not have; of spans, their types."""
    labels, target = prepared.schema.labels, prepared.columns.get("target")
    if not labels or target is None:
        return
    names = [label.partition("-")[2] for label in labels] if span_types else labels
    of_train, of_dev = (_by_name(names, target.select(prepared.splits[part]).values) for part in EVALUATED)
    known = span_types or dict.fromkeys(names)
    missing = sorted((name for name in known if of_train[name] and not of_dev[name]), key=lambda name: -of_train[name])
    if missing:
        kind = "entity types" if span_types else prepared.schema.target.noun + "s"
        number = "number of tags" if prepared.schema.target.of_steps else "number"
        yield (
            f"{kind} that the dev set does not have, with their {number} in the training set: "
            f"{_listed(missing, of_train)}; no dev score covers them"
        )


def _by_name(names: Sequence[str], numbers: np.ndarray) -> Counter[str]:
    """How often each name occurs; several numbers may have one name, and negative ones have none."""
    found = Counter[str]()
    for name, count in zip(names, np.bincount(numbers[numbers >= 0], minlength=len(names)).tolist(), strict=True):
        found[name] += count
    return found


def _listed(names: Sequence[str], counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name} ({counts[name]:,})" for name in names[:SHOWN])
    return listed + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")


FEW = 100  # rows of a dev set on which accuracy is uncertain by a tenth in either direction
HALF_WIDTH = 0.98  # of the 95% interval of an accuracy of 0.5, times the square root of the rows
SHARES = ("accuracy", "exact_match", "f1", "macro_f1")  # metrics with about such an interval


def split_messages(warned: Iterable[DataFinding], dev_rows: int, metric: Metric = LOSS) -> Iterator[str]:
    """Messages about the dev set that limit what its scores mean; `dev_rows` is 0 if rows do not matter."""
    leaks = [sample.text for one in warned if one.code.startswith("leak.") for sample in one.samples[:1]]
    if leaks:
        yield f"dev scores may be too high; the data check warned before training: {'; '.join(leaks)}"
    if 0 < dev_rows < FEW:
        by = f" by up to {HALF_WIDTH / math.sqrt(dev_rows):.2f} in either direction" if metric.name in SHARES else ""
        yield (
            f"the dev set has only {counted(dev_rows, 'row')}, so {metric.name} is uncertain{by}; use a larger one "
            "with --dev FILE or --dev-size"
        )


PADDING = 0.4  # of all tokens; ordinary text in batches by length has 0.02 to 0.2
WAITED = 0.3  # of the time; a loader that keeps up waits only for its first batch
ENOUGH_STEPS = 3  # log lines that are needed
ONE_IN, FAR = 20, 2.0  # truncation helps if the longest 1 in 20 rows are twice as long as the others
USUAL_WORKERS = 2  # the default of `seqloom train`; a run does not record its own
MOST_WORKERS = 32  # more do not help


def cost_findings(story: Story, config: TrainingConfig, lengths: Sequence[int] = ()) -> tuple[Finding, ...]:
    """Findings about wasted time; `lengths` are those of the rows of the dev set, if it could be read."""
    return tuple(one for one in (waiting(story), padding(story, config, lengths)) if one is not None)


def padding(story: Story, config: TrainingConfig, lengths: Sequence[int] = ()) -> Finding | None:
    """Too much of each batch is padding."""
    if not story.blocks or (share := fmean(block.padding for block in story.blocks)) < PADDING:
        return None
    feed, advice = config.batching, list[Advice]()
    if isinstance(feed, ByLengthConfig):
        advice.append(
            Advice(
                "--batch-tokens",
                str(max(1, feed.batch_tokens // 4)),
                "smaller batches have rows of more similar length",
            )
        )
    if len(lengths) >= ONE_IN:
        # the 95th percentile of the lengths, if the longest rows are far longer
        length = max(1, math.floor(quantiles(lengths, n=ONE_IN, method="inclusive")[-1]))
        if max(lengths) >= FAR * length:
            longer = f"1 in {ONE_IN} rows is longer, up to {max(lengths):,} tokens"
            advice.append(Advice("--max-length", str(length), longer))
    return Finding(
        "cost.padding",
        "Much of each batch is padding",
        "All rows of a batch are padded to the longest one, and padding is wasted computation. Put rows of similar "
        "length together, or truncate the few very long ones.",
        {"share of padding": share, "normal below": PADDING},
        Bars(title="Content of a batch", labels=["tokens", "padding"], values=[1 - share, share]),
        tuple(advice),
    )


def waiting(story: Story) -> Finding | None:
    """Steps wait for their data."""
    if len(story.data_waits) < ENOUGH_STEPS or (share := median(story.data_waits)) < WAITED:
        return None
    # batches must be loaded 1 / (1 - share) times as fast
    wanted = min(MOST_WORKERS, math.ceil(USUAL_WORKERS / max(1 - share, USUAL_WORKERS / MOST_WORKERS)))
    return Finding(
        "cost.waiting",
        "Training waits for its data",
        "Loading batches is slower than training on them. Use more workers; if the disk is the bottleneck, copy the "
        "data to a faster one.",
        {"share of the time": share, "normal below": WAITED},
        Bars(title="Where the time goes", labels=["training", "waiting for data"], values=[1 - share, share]),
        (Advice("--workers", str(wanted), f"processes that load batches; the default is {USUAL_WORKERS}"),),
    )
