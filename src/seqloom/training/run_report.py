"""A run as pages: report.html, where how it went comes first, and card.md, which says what its model is.

The card is part of the model folder, and equal runs have equal model folders wherever they lie: no hour, no pace and
no name of a folder stands in it. Names from outside are code in it, where nothing in them has a meaning.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from seqloom.metrics.bootstrap import alike_said
from seqloom.report.document import (
    Aside,
    Bullets,
    Callout,
    Code,
    CodeBlock,
    Details,
    Document,
    DocumentBlock,
    Heading,
    KeyFigures,
    Kind,
    Mark,
    Paragraph,
    Paragraphs,
    Pictures,
    Quote,
    Spans,
    TableBlock,
    TableCell,
)
from seqloom.report.document import Line as DocumentLine
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.frame import LEAST_LOGARITHMIC
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.labels import excerpt
from seqloom.report.numbers import NOT_FINITE, counted, duration, interval, number, share, size
from seqloom.training.run_summary import SampleLine, ValidationLine, layers_said

if TYPE_CHECKING:
    from seqloom.training.run_summary import Interval, RunScores, RunSummary, StepLine

LONGEST_TEXT, LONGEST_LABEL = 400, 60
LARGEST_CONFUSION = 20  # labels; with more a table of the most frequent confusions is clearer
MOST_CONFUSIONS, MOST_LABELS, MOST_NOTICES = 10, 40, 50
MOST_EXAMPLES, MOST_MOMENTS = 8, 4
LONGEST_NAME, CARD_MOST_LABELS, MOST_FINDINGS = 80, 30, 10
CROSS_FITTED = (
    "How sure it is, and from which probability on labels are said, was found on all of dev. These scores are of its "
    "halves, each read as the other half asks for."
)
PYTHON = 'import seqloom\n\nmodel = seqloom.load("FOLDER")\nmodel.predict([...])'
ENDINGS: dict[str, tuple[Kind, str]] = {  # how good the model is stands below: an end as asked for is neither
    "done": ("plain", "Finished"),
    "patience": (
        "plain",
        "Finished early, because the score on dev got no better for as long as --patience allows,",
    ),
    "stopped": ("warn", "Stopped by a signal; the same command goes on"),
    "not-finite": ("reject", "Stopped: losses or gradients were not finite three times in a row"),
    "disk": ("reject", "Stopped: checkpoints could not be written"),
}


def learning_curves(summary: "RunSummary") -> list[Figure]:
    """How it learned: loss, the dev metric, the rate, gradients, as far as the run has points."""
    steps, validations, metric = summary.steps, summary.validations, summary.metric
    best, chosen = summary.best, summary.chosen
    train = _series("train", [(one.step, one.loss) for one in steps])
    dev = _series("dev", [(one.step, one.metrics.get("loss")) for one in validations])
    figures = [_line("Loss", [train, dev], "Train: the mean over the steps since the last point, with dropout.")]
    if metric.name != "loss":
        points = [(one.step, one.metrics.get(metric.name)) for one in validations]
        order = "higher is better" if metric.higher_is_better else "lower is better"
        told = f"; the best is at step {best.step:,}" if best is not None else ""
        told += f", and step {chosen.step:,} is shipped" if best and chosen and chosen.step != best.step else ""
        caption = f"{order}{told}.".capitalize()
        figures.append(_line(f"Dev {metric.name}", [_series(metric.name, points)], caption))
    figures.append(_line("Learning rate", [_series("rate", [(one.step, one.rate) for one in steps])]))
    mean = _series("mean", [(one.step, _drawable(one.norm)) for one in steps])
    largest = _series("largest", [(one.step, _drawable(one.largest)) for one in steps])
    caption = gradient_said(steps) if steps else ""
    figures.append(_line("Norm of the gradient before clipping", [mean, largest], caption, y_axis="log"))
    return list(filter(None, figures))


def speed_curves(summary: "RunSummary") -> list[Figure]:
    """How fast it went, and how long it waited, as far as the run has points."""
    speed = [(one.step, one.symbols_per_second) for one in summary.paces]
    waits = [(one.step, None if one.waited is None else 100 * one.waited) for one in summary.paces]
    figures = [
        _line("Symbols per second", [_series("symbols", speed)], "Padding not counted."),
        _line("% of the time waiting for data", [_series("waiting", waits)]),
    ]
    return list(filter(None, figures))


def _line(
    title: str, series: Sequence[Series | None], caption: str = "", y_axis: Literal["linear", "log"] = "linear"
) -> Figure | None:
    known = [one for one in series if one is not None]
    return Line(title=title, series=known, x_label="step", y_axis=y_axis, caption=caption) if known else None


def _series(name: str, points: Sequence[tuple[int, float | None]]) -> Series | None:
    """A curve; None where it has no point."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Series(name=name, x=xs, y=ys) if any(y is not None for y in ys) else None


def _drawable(norm: float | None) -> float | None:
    """A norm that has a logarithm."""
    return norm if norm is not None and norm >= LEAST_LOGARITHMIC else None


def gradient_said(steps: Sequence["StepLine"]) -> str:
    """How many steps were clipped and skipped, in words; a line counts as the steps since the line before it."""
    before = [0, *(one.step for one in steps[:-1])]
    counts = [max(0, one.step - start) for one, start in zip(steps, before, strict=True)]
    clipped = sum(one.clipped * count for one, count in zip(steps, counts, strict=True))
    skipped = sum(one.skipped for one in steps)
    said = f"Clipped in {share(clipped / max(1, sum(counts)))} of the steps"
    return f"{said}; {skipped:,} of {sum(counts):,} skipped because something was not finite."


def run_document(summary: "RunSummary") -> Document:
    """The report on a run."""
    begun, environment = summary.begun, list[list[TableCell]]()
    if begun is not None:
        known = begun.environment
        environment = [[name, excerpt(str(getattr(known, name)), LONGEST_TEXT)] for name in known.__struct_fields__]
    return Document(
        excerpt(f"Run {summary.name}", LONGEST_TEXT),
        [
            Aside(f"{summary.config.task} with {summary.model}"),
            _ending(summary),
            KeyFigures(_key_figures(summary)),
            Heading("Scores on dev"),
            *_scores(summary),
            Heading("Notices"),
            TableBlock(("", "step", "what"), _notices(summary)),
            Heading("What was taken for what"),
            *_confusion(summary.chosen_scores),
            Heading("Answers over time"),
            *map(_answers, followed(summary.validations)),
            Heading("Looks at the test set"),
            *_looks(summary),
            Heading("Curves"),
            Pictures(learning_curves(summary)),
            Heading("Data"),
            *_data(summary),
            Heading("Configuration"),
            Details("config.toml", [CodeBlock(summary.config.to_toml(), "toml")]),
            Heading("Environment"),
            TableBlock((), environment),
            Bullets([excerpt(line, LONGEST_TEXT) for line in begun.said] if begun is not None else []),
            Heading("Speed, time and disk"),
            Pictures(speed_curves(summary)),
            TableBlock((), _time_and_disk(summary)),
        ],
    )


def scored(value: float | None) -> str:
    """A metric; journals have none where it was not finite."""
    return NOT_FINITE if value is None else number(value)


def ends(found: "Interval | None") -> str:
    """The ends of an interval, if it was measured."""
    return "not measured" if found is None else interval(*found)


def metrics_said(metrics: Mapping[str, float | None], intervals: Mapping[str, "Interval"]) -> str:
    """All metrics with their intervals in one line."""
    known = {name: f" ({interval(*intervals[name])})" for name in metrics if name in intervals}
    return ", ".join(f"{name} {scored(value)}{known.get(name, '')}" for name, value in metrics.items())


def choice_said(summary: "RunSummary") -> str:
    """Why the shipped weights are not those with the best score; empty where they are."""
    best, chosen, name = summary.best, summary.chosen, summary.metric.name
    if best is None or chosen is None or best.step == chosen.step:
        return ""
    if best.metrics.get(name) == chosen.metrics.get(name):
        return (
            f"Step {best.step:,} has the same {name} and a lower loss. The {name} decides, so the later weights were "
            "chosen."
        )
    return (
        f"Step {best.step:,} scored best, with {name} {scored(best.metrics.get(name))} against "
        f"{scored(chosen.metrics.get(name))}: no more than one standard error, so the later weights were chosen."
    )


def _ending(summary: "RunSummary") -> Callout:
    if summary.end is None:
        at = f"at step {summary.reached:,} it goes on, or was cut off; the same command goes on"
        return Callout(f"Not finished: {at}", "warn")
    verdict, said = ENDINGS.get(summary.end.why, ("reject", summary.end.why))
    return Callout(f"{said} after {summary.end.step:,} steps", verdict)


def _key_figures(summary: "RunSummary") -> list[tuple[str | float, str]]:
    scores, name = summary.chosen_scores, summary.metric.name
    paces = sorted(one.symbols_per_second for one in summary.paces if one.symbols_per_second)
    figures: list[tuple[str | float, str]] = []
    if scores is not None:
        sure = f", 95 % interval {ends(scores.intervals[name])}" if name in scores.intervals else ""
        figures.append((scored(scores.dev.get(name)), f"{name} on dev at step {scores.step:,}{sure}"))
    if summary.begun is not None:
        figures.append((summary.begun.parameters, "parameters"))
    if summary.steps:
        last = summary.steps[-1]
        figures.append((summary.reached, f"steps; {last.symbols:,} symbols read by step {last.step:,}"))
    if summary.seconds:
        figures.append((duration(summary.seconds), "of training"))
    if paces:
        figures.append((round(paces[len(paces) // 2]), "symbols per second, median"))
    return [*figures, (len(summary.looks), f"{'look' if len(summary.looks) == 1 else 'looks'} at the test set")]


def _scores(summary: "RunSummary") -> list[DocumentBlock]:
    scores = summary.chosen_scores
    if scores is None:
        return []
    rows = [[name, scored(value), ends(scores.intervals.get(name))] for name, value in scores.dev.items()]
    chose = f"The weights were chosen by {summary.metric.name} on dev"
    return [
        TableBlock(("metric", "value", "95 % interval"), rows),
        Aside(alike_said(scores.dev, scores.dev_rows) if scores.intervals else ""),
        Aside(choice_said(summary)),
        Aside(f"{chose}, so these scores flatter a little; only a sealed test set does not."),
    ]


def _notices(summary: "RunSummary") -> list[list[TableCell]]:
    told: list[list[TableCell]] = [
        [
            Spans(Mark("warn"), Code(one.code)),
            one.step,
            Paragraphs(
                excerpt(one.text, LONGEST_TEXT), *([f"Fix: {excerpt(one.fix, LONGEST_TEXT)}"] if one.fix else [])
            ),
        ]
        for one in summary.notices[-MOST_NOTICES:]
    ]
    unsaved = [one for one in summary.saves[-MOST_NOTICES:] if one.problem]
    return told + [[Code("not saved"), one.step, excerpt(one.problem, LONGEST_TEXT)] for one in unsaved]


def _confusion(scores: "RunScores | None") -> list[DocumentBlock]:
    if scores is None or not scores.confusion:
        return []
    names = sorted({name for one in scores.confusion for name in (one.true, one.said)})
    wrong = sorted((one for one in scores.confusion if one.true != one.said), key=lambda one: -one.count)
    counts = {(one.true, one.said): one.count for one in scores.confusion}
    shown = [name or "(empty)" for name in names]
    matrix = Matrix(
        title="",
        values=[[float(counts.get((true, said), 0)) for said in names] for true in names],
        rows=shown,
        columns=shown,
        y_label="right would be",
        x_label="said",
    )
    rows: list[list[TableCell]] = [
        [excerpt(one.true, LONGEST_LABEL), excerpt(one.said, LONGEST_LABEL), one.count]
        for one in wrong[:MOST_CONFUSIONS]
    ]
    return [
        Pictures([matrix] if len(names) <= LARGEST_CONFUSION else []),
        TableBlock(("right would be", "said", "times"), rows),
    ]


class Followed(NamedTuple):
    """One example and the answers to it, the earliest first."""

    input: str
    true: str
    answers: tuple[tuple[int, SampleLine], ...]


def followed(validations: Sequence[ValidationLine]) -> list[Followed]:
    """A few examples of the last validation with what was said to them before; wrong answers first.

    The moments are the first validation, the last one, and some in between.
    """
    if not validations:
        return []
    count = min(MOST_MOMENTS, len(validations))
    places = [round(at * (len(validations) - 1) / max(1, count - 1)) for at in range(count)]
    moments = [validations[place] for place in places[:-1]] + [validations[-1]]
    known = [(one.step, {(sample.input, sample.true): sample for sample in one.samples}) for one in moments]
    last = sorted(known[-1][1], key=lambda key: known[-1][1][key].right is True)[:MOST_EXAMPLES]
    return [Followed(*key, tuple((step, samples[key]) for step, samples in known if key in samples)) for key in last]


def _answers(example: Followed) -> Quote:
    """An example and its answers, with a mark for what is right or wrong; none for what is only better or worse."""
    lines: list[DocumentLine] = [excerpt(example.input, LONGEST_TEXT), f"right: {excerpt(example.true, LONGEST_TEXT)}"]
    for step, sample in example.answers:
        mark = [] if sample.right is None else [Mark("fine" if sample.right else "reject")]
        lines.append(Spans(f"step {step:,}: ", *mark, excerpt(sample.said, LONGEST_TEXT)))
    return Quote(lines)


def _looks(summary: "RunSummary") -> list[DocumentBlock]:
    rows = [
        [f"{at}", one.when, metrics_said(one.metrics, one.intervals), Code(one.model_sha256[:12])]
        for at, one in enumerate(summary.looks, start=1)
    ]
    if not rows:
        return [Aside("Nobody has looked yet; seqloom evaluate RUN --test does, and writes it down.")]
    note = "A score that others were chosen by is no longer a test score: only the first look is one."
    return [
        TableBlock(("look", "when", "metrics with 95 % intervals", "model"), rows),
        Aside(looks_alike(summary)),
        Aside(note if len(rows) > 1 else ""),
    ]


def looks_alike(summary: "RunSummary") -> str:
    """What the interval of the first perfect look at the test set is; empty where there is none."""
    tested = summary.data.rows.get("test", 0)
    return next(filter(None, (alike_said(one.metrics, tested) for one in summary.looks if one.intervals)), "")


def _data(summary: "RunSummary") -> list[DocumentBlock]:
    data = summary.data
    more = f" and {len(data.labels) - MOST_LABELS:,} more" if len(data.labels) > MOST_LABELS else ""
    labels = ", ".join(excerpt(label, LONGEST_LABEL) for label in data.labels[:MOST_LABELS])
    found = [
        [Spans(Mark(one.severity), Code(one.code)), one.rows or None, excerpt(one.text, LONGEST_TEXT)]
        for one in data.findings
    ]
    files = ", ".join(excerpt(name, LONGEST_LABEL) for name in data.files)
    return [
        TableBlock(("part", "rows"), list(data.rows.items())),
        Paragraph(f"Read from {files}" if files else ""),
        Paragraph(f"{len(data.labels):,} labels: {labels}{more}" if data.labels else ""),
        Bullets([excerpt(line, LONGEST_TEXT) for line in data.said]),
        TableBlock(("finding", "rows", "first case"), found),
    ]


def _time_and_disk(summary: "RunSummary") -> list[list[TableCell]]:
    waits = [one.waited for one in summary.paces if one.waited is not None]
    padding = [one.padding for one in summary.steps]
    rows: list[list[TableCell]] = [["training", duration(summary.seconds)]] if summary.seconds else []
    rows += [["most memory", size(max(one.memory for one in summary.paces))]] if summary.paces else []
    rows += [["waiting for data, mean", share(sum(waits) / len(waits))]] if waits else []
    rows += [["padding, mean", share(sum(padding) / len(padding))]] if padding else []
    return rows + [[name, size(count)] for name, count in summary.disk.items()]


def card_document(summary: "RunSummary") -> Document:
    """The card of a model."""
    task = summary.config.task
    return Document(
        f"{task}: {summary.model}",
        [
            Paragraph(f"A model for the task {task}, trained with Seqloom."),
            Heading("Scores"),
            *_card_scores(summary),
            Heading("The test set"),
            *_card_looks(summary),
            Heading("Data"),
            *_card_data(summary),
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


def _card_scores(summary: "RunSummary") -> list[DocumentBlock]:
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


def _card_looks(summary: "RunSummary") -> list[DocumentBlock]:
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


def _card_data(summary: "RunSummary") -> list[DocumentBlock]:
    data = summary.data
    more = f" and {len(data.labels) - CARD_MOST_LABELS:,} more" if len(data.labels) > CARD_MOST_LABELS else ""
    labels = _listed(data.labels[:CARD_MOST_LABELS], f"{more}.")
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


def _limits(summary: "RunSummary") -> list[DocumentLine]:
    encoding, scores = summary.config.encoding, summary.chosen_scores
    rule = "cut" if encoding.too_long == "cut" else "refused"
    said: list[DocumentLine] = [
        "It knows only what stands in its training data; on texts of another kind, time or language its scores say "
        "nothing.",
        f"What is longer than {encoding.longest:,} symbols is {rule}; what its vocabulary lacks is unknown to it.",
        "Dev scores chose its weights, so they are a little too good.",
    ]
    said += ["It can say no label but those named above."] if summary.data.labels else []
    if scores and scores.intervals:
        said += ["The intervals say how much scores vary with the choice of rows, not with the seed."]
    return said + [
        Spans("Found in the data: ", _name(one.code), f" in {counted(one.rows, 'row')}." if one.rows else ".")
        for one in summary.data.findings[:MOST_FINDINGS]
        if one.severity != "note"
    ]
