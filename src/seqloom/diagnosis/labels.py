"""Labels: what the data check said about them, and what the model makes of them on the dev part."""

from collections import Counter
from collections.abc import Iterable, Sequence

from seqloom.data.report.findings import Finding as DataFinding
from seqloom.diagnosis.findings import Advice, Finding
from seqloom.figures import Bars

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
        (*(weighing if uneven else ()), Advice("--find-lr", "", "measures the rate")),
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
