"""card.md: what a model is, what it was trained on, how good it is and how sure that is, how to use it, its limits.

The card is part of the model folder, and equal runs have equal model folders wherever they lie: no hour, no pace and
no name of a folder stands in it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from seqloom.report.excerpts import excerpt
from seqloom.training.pages.naming import layers_said
from seqloom.training.pages.words import alike_said, choice_said, metrics_said, value

if TYPE_CHECKING:
    from seqloom.training.pages.summary import RunSummary

LONGEST_NAME, MOST_LABELS, MOST_FINDINGS = 80, 30, 10
CROSS_FITTED = (
    "How sure it is, and from which probability on labels are said, was found on all of dev. These scores are of its "
    "halves, each read as the other half asks for."
)


def card_md(summary: "RunSummary") -> str:
    """The card as Markdown; names from outside stand in code spans, where nothing in them has a meaning."""
    task = summary.config.task
    lines = [
        f"# {task}: {summary.model}",
        "",
        f"A model for the task **{task}**, trained with Seqloom.",
        *_section("Scores", _scores(summary)),
        *_section("The test set", _looks(summary)),
        *_section("Data", _data(summary)),
        *_section("The model", _model(summary)),
        *_section("How to use it", _use(summary)),
        *_section("Limits", _limits(summary)),
    ]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """A name as a code span of one line, cut, with nothing hidden in it.

    >>> print(code("a`b\\n# c"), code(""))
    ``a`b\\x0a# c`` (empty)
    """
    shown = excerpt(text, LONGEST_NAME)
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}" if shown.strip() else "(empty)"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *cells)]


def _scores(summary: "RunSummary") -> list[str]:
    scores = summary.chosen_scores
    if scores is None:
        return ["No validation yet."]
    rows = [[name, value(number), _ends(scores.intervals, name)] for name, number in scores.dev.items()]
    weights = f"the weights of step {scores.step:,}, which {code(summary.metric.name)} chose"
    return [
        f"On {scores.dev_rows:,} rows of dev, with {weights}:",
        "",
        *_table(["metric", "value", "95 % confidence interval"], rows),
        *_note(choice_said(summary)),
        *_note(alike_said(scores.dev, scores.dev_rows) if scores.intervals else ""),
        *_note(CROSS_FITTED if scores.cross_fitted else ""),
    ]


def _note(text: str) -> list[str]:
    return ["", text] if text else []


def _ends(intervals: Mapping[str, tuple[float | None, float | None]], name: str) -> str:
    return f"{value(intervals[name][0])} to {value(intervals[name][1])}" if name in intervals else "not measured"


def _looks(summary: "RunSummary") -> list[str]:
    """Each look, plainly; the first is the only one that nothing could have been chosen by."""
    looks, tested = summary.looks, summary.data.rows.get("test", 0)
    if not looks:
        return ["The test set has not been looked at."]
    times = "once" if len(looks) == 1 else f"{len(looks):,} times"
    rows = [
        [f"{number}", metrics_said(one.metrics, one.intervals), code(one.model_sha256[:12])]
        for number, one in enumerate(looks, start=1)
    ]
    warning = "Only the first look is a test: whoever saw it could choose by it what came after."
    return [
        f"The test set was looked at **{times}**:",
        "",
        *_table(["look", "metrics with 95 % confidence intervals", "weights"], rows),
        *_note(next(filter(None, (alike_said(one.metrics, tested) for one in looks if one.intervals)), "")),
        *_note(warning if len(looks) > 1 else ""),
    ]


def _data(summary: "RunSummary") -> list[str]:
    data = summary.data
    files = [f"Read from {', '.join(map(code, data.files))}.", ""] if data.files else []
    rows = _table(["part", "rows"], [[name, f"{count:,}"] for name, count in data.rows.items()]) if data.rows else []
    more = f" and {len(data.labels) - MOST_LABELS:,} more" if len(data.labels) > MOST_LABELS else ""
    named = ", ".join(map(code, data.labels[:MOST_LABELS]))
    labels = ["", f"{len(data.labels):,} labels: {named}{more}."] if data.labels else []
    return [*files, *rows, *labels]


def _model(summary: "RunSummary") -> list[str]:
    training, begun = summary.config.training, summary.begun
    rows = [["layers", layers_said(summary.config.model)], ["kind", code(summary.config.model.kind())]]
    if begun is not None:
        frozen = begun.parameters - begun.trained
        rows += [["parameters", f"{begun.parameters:,}" + (f", {frozen:,} of them frozen" if frozen else "")]]
        rows += [["made with", f"seqloom {begun.environment.seqloom}, torch {begun.environment.torch}"]]
    rows += [["optimiser", code(training.optimiser.kind())], ["rate", f"{training.rate:g}"]]
    rows += [["seed", f"{training.seed}"]]
    rows += [["weights", f"of step {summary.chosen.step:,}"]] if summary.chosen is not None else []
    return _table(["", ""], [*rows, ["the run", _progress(summary)]])


def _progress(summary: "RunSummary") -> str:
    """How far the run has come: in the model's own card, when it was shipped."""
    came, written = ("came", "") if summary.end is not None else ("had come", " when this was written")
    reached = f"{came} to step {summary.reached:,}{written}"
    read = [f"{one.symbols:,} symbols read by step {one.step:,}" for one in summary.steps[-1:]]
    return "; ".join([reached, *read])


def _use(summary: "RunSummary") -> list[str]:
    return [
        "This folder is all that is needed: `FOLDER` is where it lies.",
        "",
        "```python",
        "import seqloom",
        "",
        'model = seqloom.load("FOLDER")',
        "model.predict([...])",
        "```",
        "",
        "```sh",
        summary.asking.replace("RUN", "FOLDER"),
        "```",
    ]


def _limits(summary: "RunSummary") -> list[str]:
    encoding = summary.config.encoding
    rule = "cut" if encoding.too_long == "cut" else "refused"
    scores = summary.chosen_scores
    said = [
        "It knows only what stands in its training data; on texts of another kind, time or language its scores say "
        "nothing.",
        f"What is longer than {encoding.longest:,} symbols is {rule}; what its vocabulary lacks is unknown to it.",
        "Dev scores chose its weights, so they are a little too good.",
    ]
    said += ["It can say no label but those named above."] if summary.data.labels else []
    said += (
        ["The intervals say how much scores vary with the choice of rows, not with the seed."]
        if scores and scores.intervals
        else []
    )
    found = [
        f"Found in the data: {code(one.code)}" + (f" in {one.rows:,} rows" if one.rows else "") + "."
        for one in summary.data.findings[:MOST_FINDINGS]
        if one.severity != "note"
    ]
    return [f"- {line}" for line in (*said, *found)]
