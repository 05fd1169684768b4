"""card.md: what a model is, what it was trained on, how good it is and how sure that is, how to use it, its limits.

The card is part of the model folder, and equal runs have equal model folders wherever they lie: no hour, no pace and
no name of a folder stands in it. Names from outside are code in it, where nothing in them has a meaning.
"""

from typing import TYPE_CHECKING

from seqloom.metrics.bootstrap import alike_said
from seqloom.report.document import (
    Block,
    Bullets,
    Code,
    CodeBlock,
    Document,
    Heading,
    Line,
    Paragraph,
    Spans,
    TableBlock,
    TableCell,
)
from seqloom.report.excerpts import excerpt
from seqloom.report.numbers import counted, number
from seqloom.training.pages.naming import layers_said
from seqloom.training.pages.report import choice_said, ends, looks_alike, metrics_said, scored

if TYPE_CHECKING:
    from seqloom.training.pages.summary import RunSummary

LONGEST_NAME, MOST_LABELS, MOST_FINDINGS = 80, 30, 10
CROSS_FITTED = (
    "How sure it is, and from which probability on labels are said, was found on all of dev. These scores are of its "
    "halves, each read as the other half asks for."
)
PYTHON = 'import seqloom\n\nmodel = seqloom.load("FOLDER")\nmodel.predict([...])'


def card_document(summary: "RunSummary") -> Document:
    """The card of a model."""
    task = summary.config.task
    return Document(
        f"{task}: {summary.model}",
        [
            Paragraph(f"A model for the task {task}, trained with Seqloom."),
            Heading("Scores"),
            *_scores(summary),
            Heading("The test set"),
            *_looks(summary),
            Heading("Data"),
            *_data(summary),
            Heading("The model"),
            TableBlock((), _model(summary)),
            Heading("How to use it"),
            Paragraph(Spans("This folder is all that is needed: ", Code("FOLDER"), " is where it lies.")),
            CodeBlock(PYTHON, "python"),
            CodeBlock(summary.asking.replace("RUN", "FOLDER"), "sh"),
            Heading("Limits"),
            Bullets(_limits(summary)),
        ],
    )


def _name(text: str) -> Code:
    return Code(excerpt(text, LONGEST_NAME))


def _scores(summary: "RunSummary") -> list[Block]:
    scores = summary.chosen_scores
    if scores is None:
        return [Paragraph("No validation yet.")]
    rows = [[name, scored(value), ends(scores.intervals.get(name))] for name, value in scores.dev.items()]
    weights = f"On {scores.dev_rows:,} rows of dev, with the weights of step {scores.step:,}, which "
    return [
        Paragraph(Spans(weights, _name(summary.metric.name), " chose:")),
        TableBlock(("metric", "value", "95 % confidence interval"), rows),
        Paragraph(choice_said(summary)),
        Paragraph(alike_said(scores.dev, scores.dev_rows) if scores.intervals else ""),
        Paragraph(CROSS_FITTED if scores.cross_fitted else ""),
    ]


def _looks(summary: "RunSummary") -> list[Block]:
    """Each look, plainly; the first is the only one that nothing could have been chosen by."""
    looks = summary.looks
    if not looks:
        return [Paragraph("The test set has not been looked at.")]
    rows = [
        [f"{at}", metrics_said(one.metrics, one.intervals), _name(one.model_sha256[:12])]
        for at, one in enumerate(looks, start=1)
    ]
    warning = "Only the first look is a test: whoever saw it could choose by it what came after."
    return [
        Paragraph(f"The test set was looked at {'once' if len(looks) == 1 else counted(len(looks), 'time')}:"),
        TableBlock(("look", "metrics with 95 % confidence intervals", "weights"), rows),
        Paragraph(looks_alike(summary)),
        Paragraph(warning if len(looks) > 1 else ""),
    ]


def _listed(names: tuple[str, ...], end: str) -> Spans:
    """Names as code, with commas between."""
    return Spans(*[span for name in names for span in (", ", _name(name))][1:], end)


def _data(summary: "RunSummary") -> list[Block]:
    data = summary.data
    more = f" and {len(data.labels) - MOST_LABELS:,} more" if len(data.labels) > MOST_LABELS else ""
    labels = _listed(data.labels[:MOST_LABELS], f"{more}.")
    return [
        Paragraph(Spans("Read from ", *_listed(data.files, ".")) if data.files else ""),
        TableBlock(("part", "rows"), list(data.rows.items())),
        Paragraph(Spans(f"{len(data.labels):,} labels: ", *labels) if data.labels else ""),
    ]


def _model(summary: "RunSummary") -> list[list[TableCell]]:
    training, begun = summary.config.training, summary.begun
    rows: list[list[TableCell]] = [
        ["layers", layers_said(summary.config.model)],
        ["kind", _name(summary.config.model.kind())],
    ]
    if begun is not None:
        frozen = begun.parameters - begun.trained
        rows += [["parameters", f"{begun.parameters:,}" + (f", {frozen:,} of them frozen" if frozen else "")]]
        rows += [["made with", f"seqloom {begun.environment.seqloom}, torch {begun.environment.torch}"]]
    rows += [["optimiser", _name(training.optimiser.kind())], ["rate", number(training.rate)], ["seed", training.seed]]
    rows += [["weights", f"of step {summary.chosen.step:,}"]] if summary.chosen is not None else []
    came, written = ("came", "") if summary.end is not None else ("had come", " when this was written")
    read = "".join(f"; {one.symbols:,} symbols read by step {one.step:,}" for one in summary.steps[-1:])
    return [*rows, ["the run", f"{came} to step {summary.reached:,}{written}{read}"]]


def _limits(summary: "RunSummary") -> list[Line]:
    encoding, scores = summary.config.encoding, summary.chosen_scores
    rule = "cut" if encoding.too_long == "cut" else "refused"
    said: list[Line] = [
        "It knows only what stands in its training data; on texts of another kind, time or language its scores say "
        "nothing.",
        f"What is longer than {encoding.longest:,} symbols is {rule}; what its vocabulary lacks is unknown to it.",
        "Dev scores chose its weights, so they are a little too good.",
    ]
    said += ["It can say no label but those named above."] if summary.data.labels else []
    if scores and scores.intervals:
        said += ["The intervals say how much scores vary with the choice of rows, not with the seed."]
    return said + [
        Spans("Found in the data: ", _name(one.code), f" in {one.rows:,} rows." if one.rows else ".")
        for one in summary.data.findings[:MOST_FINDINGS]
        if one.severity != "note"
    ]
