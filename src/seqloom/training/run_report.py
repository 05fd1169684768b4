"""report.html, which shows how a run went, and card.md, which describes its model.

The card is part of the model folder, and equal runs have equal model folders: it contains no time, no speed and no
folder name. Names from the data are shown as code, so that nothing in them is interpreted.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from seqloom.config.base import values_of
from seqloom.data.kinds.words import Words
from seqloom.data.tags import form_fault
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
    MarkedText,
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
from seqloom.tasks.tables import TYPES_ONLY
from seqloom.tasks.tag import TagsPrediction
from seqloom.training.progress import written_blocks
from seqloom.training.run_summary import SampleLine, ValidationLine, best_of, chosen_of, layers_text

if TYPE_CHECKING:
    from seqloom.training.run_summary import Interval, RunScores, RunSummary, StepLine

LONGEST_TEXT, LONGEST_LABEL = 400, 60
LARGEST_CONFUSION = 20  # labels; with more a table of the most frequent confusions is clearer
MOST_CONFUSIONS, MOST_LABELS, MOST_NOTICES = 10, 40, 50
MOST_EXAMPLES, MOST_MOMENTS = 8, 4
LONGEST_NAME, CARD_MOST_LABELS, MOST_FINDINGS = 80, 30, 10
CROSS_FITTED = (
    "Calibration (the temperature and thresholds) was fitted on the whole dev set. These scores are cross-fitted: each "
    "half of the dev set was scored with the calibration of the other half."
)
PYTHON = 'import seqloom\n\nmodel = seqloom.load("FOLDER")\nmodel.predict([...])'
ENDINGS: dict[str, tuple[Kind, str]] = {  # the scores show how good the model is
    "done": ("plain", "Finished"),
    "patience": (
        "plain",
        "Stopped early: the dev score did not improve within --patience,",
    ),
    "stopped": ("warn", "Stopped by a signal; run the same command again to resume"),
    "not-finite": ("reject", "Stopped: the loss or gradient was NaN or infinite three times in a row"),
    "disk": ("reject", "Stopped: checkpoints could not be saved"),
}


def learning_curves(summary: "RunSummary") -> list[Figure]:
    """Learning curves: loss, dev metric, learning rate and gradient norms, as far as the run has points."""
    steps, validations, metric = summary.steps, summary.validations, summary.metric
    best, chosen = summary.best, summary.chosen
    train = _series("train", [(one.step, one.loss) for one in steps])
    dev = _series("dev", [(one.step, one.metrics.get("loss")) for one in validations])
    figures = [_line("Loss", [train, dev], loss_text(summary))]
    if metric.name != "loss":
        points = [(one.step, one.metrics.get(metric.name)) for one in validations]
        order = "higher is better" if metric.higher_is_better else "lower is better"
        at = f"; the best value is at step {best.step:,}" if best is not None else ""
        at += (
            f", the saved model is that of step {chosen.step:,}" if best and chosen and chosen.step != best.step else ""
        )
        caption = f"{order}{at}.".capitalize()
        figures.append(_line(f"Dev {metric.name}", [_series(metric.name, points)], caption))
    figures.append(_line("Learning rate", [_series("lr", [(one.step, one.lr) for one in steps])]))
    mean = _series("mean", [(one.step, _drawable(one.grad_norm)) for one in steps])
    largest = _series("largest", [(one.step, _drawable(one.max_grad_norm)) for one in steps])
    caption = gradient_text(steps) if steps else ""
    figures.append(_line("Gradient norm before clipping", [mean, largest], caption, y_axis="log"))
    return list(filter(None, figures))


def loss_text(summary: "RunSummary") -> str:
    """What the two losses are; a smoothed one cannot be compared with the loss of the dev set."""
    said = "Train: mean over the steps since the last point, with dropout"
    smoothing = max(values_of(summary.config.model, "label_smoothing"), default=0.0)
    if not smoothing:
        return f"{said}."
    return f"{said} and label smoothing {smoothing:g}, which raises it; the dev loss has neither."


def speed_curves(summary: "RunSummary") -> list[Figure]:
    """Speed, and time spent waiting for data, as far as the run has points."""
    speed = [(one.step, one.tokens_per_second) for one in summary.speeds]
    waits = [(one.step, None if one.data_wait is None else 100 * one.data_wait) for one in summary.speeds]
    figures = [
        _line("Tokens per second", [_series("tokens", speed)], "Without padding."),
        _line("Time spent waiting for data, %", [_series("waiting", waits)]),
    ]
    return list(filter(None, figures))


def _line(
    title: str, series: Sequence[Series | None], caption: str = "", y_axis: Literal["linear", "log"] = "linear"
) -> Figure | None:
    known = [one for one in series if one is not None]
    return Line(title=title, series=known, x_label="step", y_axis=y_axis, caption=caption) if known else None


def _series(name: str, points: Sequence[tuple[int, float | None]]) -> Series | None:
    """A curve; None if it has no point."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Series(name=name, x=xs, y=ys) if any(y is not None for y in ys) else None


def _drawable(norm: float | None) -> float | None:
    """A norm that has a logarithm."""
    return norm if norm is not None and norm >= LEAST_LOGARITHMIC else None


def gradient_text(steps: Sequence["StepLine"]) -> str:
    """How many steps were clipped and skipped; a log line covers the steps since the line before it."""
    before = [0, *(one.step for one in steps[:-1])]
    counts = [max(0, one.step - start) for one, start in zip(steps, before, strict=True)]
    clipped = sum(one.clipped * count for one, count in zip(steps, counts, strict=True))
    skipped = sum(one.skipped for one in steps)
    return (
        f"Clipped in {share(clipped / max(1, sum(counts)))} of the steps; {skipped:,} of {sum(counts):,} steps skipped "
        "because of NaN or infinity."
    )


def run_document(summary: "RunSummary") -> Document:
    """The report on a run."""
    begun, environment = summary.start, list[list[TableCell]]()
    if begun is not None:
        known = begun.environment
        environment = [[name, excerpt(str(getattr(known, name)), LONGEST_TEXT)] for name in known.__struct_fields__]
    return Document(
        excerpt(f"Run {summary.name}", LONGEST_TEXT),
        [
            Aside(f"{summary.config.task} with {summary.model}"),
            _ending(summary),
            KeyFigures(_key_figures(summary)),
            Heading("Scores on the dev set"),
            *_scores(summary),
            Heading("Notices"),
            TableBlock(("", "step", "message"), _notices(summary)),
            Heading("Scores by label"),
            _per_class(summary.chosen_scores),
            Heading("Confusion matrix"),
            *_confusion(summary.chosen_scores, of_spans=bool(summary.span_types)),
            Heading("Predictions over time"),
            *(block for one in prediction_history(summary.validations) for block in _answers(one, summary.span_types)),
            Heading("Texts that the model writes"),
            *written_blocks(summary.written),
            Heading("Evaluations on the test set"),
            *_test_evaluations(summary),
            Heading("Curves"),
            Pictures(learning_curves(summary)),
            Heading("Data"),
            *_data(summary),
            Heading("Configuration"),
            Details("config.toml", [CodeBlock(summary.config.to_toml(), "toml")]),
            Heading("Environment"),
            TableBlock((), environment),
            Bullets([excerpt(line, LONGEST_TEXT) for line in begun.messages] if begun is not None else []),
            Heading("Speed, time and disk"),
            Pictures(speed_curves(summary)),
            TableBlock((), _time_and_disk(summary)),
        ],
    )


def scored(value: float | None) -> str:
    """A metric as text; the log has None for one that was not finite."""
    return NOT_FINITE if value is None else number(value)


def ends(found: "Interval | None") -> str:
    """An interval as text, if it was measured."""
    return "not measured" if found is None else interval(*found)


def metrics_text(metrics: Mapping[str, float | None], intervals: Mapping[str, "Interval"]) -> str:
    """All metrics with their intervals in one line."""
    known = {name: f" ({interval(*intervals[name])})" for name in metrics if name in intervals}
    return ", ".join(f"{name} {scored(value)}{known.get(name, '')}" for name, value in metrics.items())


def choice_text(validations: Sequence["ValidationLine"], name: str) -> str:
    """Why the saved weights are not those with the best score; empty if they are. `name` is that of the metric."""
    best, chosen = best_of(validations), chosen_of(validations)
    if best is None or chosen is None or best.step == chosen.step:
        return ""
    lead, losses = f"Step {best.step:,} has the best {name}, {scored(best.metrics.get(name))}", ("", "")
    if name != "loss":
        losses = (f", and loss {scored(best.metrics.get('loss'))}", f" and loss {scored(chosen.metrics.get('loss'))}")
    return (
        f"{lead}{losses[0]}. Of later validations within one standard error of it, the last one is chosen: "
        f"step {chosen.step:,}, with {name} {scored(chosen.metrics.get(name))}{losses[1]}."
    )


def _choice(summary: "RunSummary") -> str:
    """The same beside scores that may be those after calibration."""
    text, scores = choice_text(summary.validations, summary.metric.name), summary.chosen_scores
    return f"{text} These were measured before calibration." if text and scores and scores.cross_fitted else text


def _ending(summary: "RunSummary") -> Callout:
    if summary.end is None:
        text = f"Not finished: at step {summary.reached:,} it is still running, or it was killed"
        return Callout(f"{text}; run the same command again to resume", "warn")
    verdict, text = ENDINGS.get(summary.end.reason, ("reject", summary.end.reason))
    score = None if summary.chosen_scores is None else summary.chosen_scores.dev.get(summary.metric.name)
    if summary.end.reason == "patience" and score is not None and summary.metric.is_perfect(score):
        text = "Stopped early: the dev score is perfect and has stayed so (--patience),"
    return Callout(f"{text} after {summary.end.step:,} steps", verdict)


def _key_figures(summary: "RunSummary") -> list[tuple[str | float, str]]:
    scores, name = summary.chosen_scores, summary.metric.name
    paces = sorted(one.tokens_per_second for one in summary.speeds if one.tokens_per_second)
    figures: list[tuple[str | float, str]] = []
    if scores is not None:
        sure = f", 95 % interval {ends(scores.intervals[name])}" if name in scores.intervals else ""
        figures.append((scored(scores.dev.get(name)), f"{name} on the dev set at step {scores.step:,}{sure}"))
    if summary.start is not None:
        figures.append((summary.start.parameters, "parameters"))
    if summary.steps:
        last = summary.steps[-1]
        figures += [(summary.reached, "steps"), (last.tokens, f"tokens read by step {last.step:,}")]
    if summary.seconds:
        figures.append((duration(summary.seconds), "of training"))
    if paces:
        figures.append((round(paces[len(paces) // 2]), "tokens per second, median"))
    return [
        *figures,
        (
            len(summary.test_evaluations),
            f"evaluation{'' if len(summary.test_evaluations) == 1 else 's'} on the test set",
        ),
    ]


def _scores(summary: "RunSummary") -> list[DocumentBlock]:
    scores = summary.chosen_scores
    if scores is None:
        return []
    rows = [[name, scored(value), ends(scores.intervals.get(name))] for name, value in scores.dev.items()]
    chose = f"The weights were chosen by {summary.metric.name} on the dev set"
    return [
        TableBlock(("metric", "value", "95 % interval"), rows),
        Paragraph("" if summary.l2 is None else f"L2 strength: {_strength_text(summary)}."),
        Aside(alike_said(scores.dev, scores.dev_rows) if scores.intervals else ""),
        Aside(_choice(summary)),
        Aside(
            f"{chose}, so these scores are slightly optimistic. Scores on a test set that was not used before are not."
        ),
    ]


def _notices(summary: "RunSummary") -> list[list[TableCell]]:
    rows: list[list[TableCell]] = [
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
    return rows + [[Code("not saved"), one.step, excerpt(one.problem, LONGEST_TEXT)] for one in unsaved]


def _per_class(scores: "RunScores | None") -> TableBlock:
    """Precision, recall, F1 and count of each label or type of span, the most frequent first."""
    found = {} if scores is None else scores.per_class
    often = sorted(found, key=lambda label: -(found[label].get("support") or 0))
    names = ("precision", "recall", "f1", "support")
    rows = [[excerpt(label, LONGEST_LABEL), *(scored(found[label].get(name)) for name in names)] for label in often]
    return TableBlock(("label", "precision", "recall", "f1", "count"), rows[:MOST_LABELS])


def _confusion(scores: "RunScores | None", *, of_spans: bool) -> list[DocumentBlock]:
    if scores is None or not scores.confusion:
        return []
    names = sorted({name for one in scores.confusion for name in (one.expected, one.predicted)})
    wrong = sorted((one for one in scores.confusion if one.expected != one.predicted), key=lambda one: -one.count)
    counts = {(one.expected, one.predicted): one.count for one in scores.confusion}
    pictures = list[Figure]()
    if len(names) <= LARGEST_CONFUSION:
        shown = [name or "(empty)" for name in names]
        pictures.append(
            Matrix(
                title="",
                values=[[float(counts.get((true, predicted), 0)) for predicted in names] for true in names],
                rows=shown,
                columns=shown,
                y_label="expected",
                x_label="predicted",
            )
        )
    rows: list[list[TableCell]] = [
        [excerpt(one.expected, LONGEST_LABEL), excerpt(one.predicted, LONGEST_LABEL), one.count]
        for one in wrong[:MOST_CONFUSIONS]
    ]
    return [
        Pictures(pictures),
        TableBlock(("expected", "predicted", "count"), rows),
        Aside(TYPES_ONLY if of_spans else ""),
    ]


class PredictionHistory(NamedTuple):
    """One example and its predictions, the earliest first."""

    input: str
    true: str
    answers: tuple[tuple[int, SampleLine], ...]


def prediction_history(validations: Sequence[ValidationLine]) -> list[PredictionHistory]:
    """A few examples of the last validation with their earlier predictions; wrong ones first.

    They are shown at the first validation, the last one, and some in between.
    """
    if not validations:
        return []
    count = min(MOST_MOMENTS, len(validations))
    places = [round(at * (len(validations) - 1) / max(1, count - 1)) for at in range(count)]
    moments = [validations[place] for place in places[:-1]] + [validations[-1]]
    known = [(one.step, {(sample.input, sample.expected): sample for sample in one.samples}) for one in moments]
    last = sorted(known[-1][1], key=lambda key: known[-1][1][key].correct is True)[:MOST_EXAMPLES]
    return [
        PredictionHistory(*key, tuple((step, samples[key]) for step, samples in known if key in samples))
        for key in last
    ]


def marked_text(text: str, tags: str, types: Sequence[str]) -> MarkedText | None:
    """A sentence with the spans of its tags, or None if they are not known: a long text or its tags are cut."""
    words, names = Words.cut(text), tuple(tags.split(" "))
    if not types or len(names) != len(words.spans) or any(form_fault(name) is not None for name in names):
        return None
    return TagsPrediction.of(names, in_scheme=True, types=types).with_input(words).marked()


def _answers(example: PredictionHistory, types: Sequence[str]) -> list[DocumentBlock]:
    """An example and its predictions, marked as right or wrong where the task has such a distinction.

    Spans are shown in the text, if all predictions of the example can be.
    """
    marks = [[] if one.correct is None else [Mark("fine" if one.correct else "reject")] for _, one in example.answers]
    shown = [
        marked_text(example.input, tags, types)
        for tags in (example.true, *(one.predicted for _, one in example.answers))
    ]
    blocks = [block for block in shown if block is not None]
    if len(blocks) == len(shown):
        heads: list[DocumentLine] = ["expected"]
        heads += [Spans(f"step {step:,} ", *mark) for (step, _), mark in zip(example.answers, marks, strict=True)]
        pairs = zip(heads, blocks, strict=True)
        return [part for head, block in pairs for part in (Aside(head), block)]
    lines: list[DocumentLine] = [
        excerpt(example.input, LONGEST_TEXT),
        f"expected: {excerpt(example.true, LONGEST_TEXT)}",
    ]
    for (step, sample), mark in zip(example.answers, marks, strict=True):
        lines.append(Spans(f"step {step:,}: ", *mark, excerpt(sample.predicted, LONGEST_TEXT)))
    return [Quote(lines)]


def _test_evaluations(summary: "RunSummary") -> list[DocumentBlock]:
    rows = [
        [f"{at}", one.when, metrics_text(one.metrics, one.intervals), Code(one.model_sha256[:12])]
        for at, one in enumerate(summary.test_evaluations, start=1)
    ]
    if not rows:
        return [Aside("None yet. `seqloom evaluate RUN --split test` evaluates on the test set and logs the result.")]
    note = "Only the first evaluation is unbiased: later models may have been chosen by its score."
    return [
        TableBlock(("evaluation", "time", "metrics with 95 % intervals", "model"), rows),
        Aside(perfect_test_text(summary)),
        Aside(note if len(rows) > 1 else ""),
    ]


def perfect_test_text(summary: "RunSummary") -> str:
    """The interval of the first perfect test score in a sentence; empty if there is none."""
    return next(
        filter(None, (alike_said(one.metrics, one.rows) for one in summary.test_evaluations if one.intervals)), ""
    )


def _sets(summary: "RunSummary") -> TableBlock:
    """The rows of each set; those of the test set are known when a model has been evaluated on it."""
    rows: dict[str, TableCell] = dict(summary.data.rows)
    if summary.test_evaluations or (rows and summary.config.data.has_test):
        tested = summary.test_evaluations[-1].rows if summary.test_evaluations else 0
        rows.setdefault("test", tested or "not read by training")
    return TableBlock(("set", "rows"), [[name, count] for name, count in rows.items()])


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
        _sets(summary),
        Paragraph(f"Read from {files}" if files else ""),
        Paragraph(f"{len(data.labels):,} labels: {labels}{more}" if data.labels else ""),
        Bullets([excerpt(line, LONGEST_TEXT) for line in data.messages]),
        TableBlock(("finding", "rows", "first example"), found),
    ]


def _time_and_disk(summary: "RunSummary") -> list[list[TableCell]]:
    waits = [one.data_wait for one in summary.speeds if one.data_wait is not None]
    padding = [one.padding for one in summary.steps]
    rows: list[list[TableCell]] = [["training", duration(summary.seconds)]] if summary.seconds else []
    rows += [["peak memory", size(max(one.memory for one in summary.speeds))]] if summary.speeds else []
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
            *_card_test_evaluations(summary),
            Heading("Data"),
            *_card_data(summary),
            Heading("The model"),
            TableBlock((), _model(summary)),
            Heading("How to use it"),
            Paragraph(Spans("You need only this folder. Replace ", Code("FOLDER"), " by its path.")),
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
    weights = f"On the {scores.dev_rows:,} rows of the dev set, with the weights of step {scores.step:,}, chosen by "
    return [
        Paragraph(Spans(weights, _name(summary.metric.name), ":")),
        TableBlock(("metric", "value", "95 % confidence interval"), rows),
        Paragraph(_choice(summary)),
        Paragraph(alike_said(scores.dev, scores.dev_rows) if scores.intervals else ""),
        Paragraph(CROSS_FITTED if scores.cross_fitted else ""),
    ]


def _card_test_evaluations(summary: "RunSummary") -> list[DocumentBlock]:
    """Each evaluation on the test set."""
    found = summary.test_evaluations
    if not found:
        return [Paragraph("The model has not been evaluated on the test set.")]
    rows = [
        [f"{at}", metrics_text(one.metrics, one.intervals), _name(one.model_sha256[:12])]
        for at, one in enumerate(found, start=1)
    ]
    warning = "Only the first evaluation is unbiased: later models may have been chosen by its score."
    return [
        Paragraph(f"Evaluated on the test set {'once' if len(found) == 1 else counted(len(found), 'time')}:"),
        TableBlock(("evaluation", "metrics with 95 % confidence intervals", "weights"), rows),
        Paragraph(perfect_test_text(summary)),
        Paragraph(warning if len(found) > 1 else ""),
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
        _sets(summary),
        Paragraph(Spans(f"{len(data.labels):,} labels: ", *labels) if data.labels else ""),
    ]


def _model(summary: "RunSummary") -> list[list[TableCell]]:
    training, begun = summary.config.training, summary.start
    rows: list[list[TableCell]] = [
        ["layers", layers_text(summary.config.model)],
        ["kind", _name(summary.config.model.kind())],
    ]
    if begun is not None:
        frozen = begun.parameters - begun.trainable
        rows += [["parameters", f"{begun.parameters:,}" + (f", {frozen:,} of them frozen" if frozen else "")]]
        rows += [["trained with", f"seqloom {begun.environment.seqloom}, torch {begun.environment.torch}"]]
    rows += [["optimizer", _name(training.optimizer.kind())]]
    rows += [["lr", number(training.lr)]] if summary.l2 is None else [["L2 strength", _strength_text(summary)]]
    rows += [["seed", training.seed]]
    rows += [["weights", f"of step {summary.chosen.step:,}"]] if summary.chosen is not None else []
    written = "" if summary.end is not None else " when this was written"
    read: list[list[TableCell]] = [
        ["tokens read", f"{one.tokens:,} by step {one.step:,}"] for one in summary.steps[-1:]
    ]
    return [*rows, ["last step", f"{summary.reached:,}{written}"], *read]


def _strength_text(summary: "RunSummary") -> str:
    """The L2 strength of a model that newton trained, and from which it was chosen."""
    strengths, found = summary.config.training.strengths, f"{summary.l2:g}"
    several = f", the best of {', '.join(f'{one:g}' for one in strengths)} on the dev set"
    return found + (several if len(strengths) > 1 else "")


def _limits(summary: "RunSummary") -> list[DocumentLine]:
    encoding, scores = summary.config.encoding, summary.chosen_scores
    rule = "truncated" if encoding.overlong == "truncate" else "refused"
    limits: list[DocumentLine] = [
        "The scores hold for data like its training data. Expect lower ones for other kinds of text.",
        f"Inputs longer than {encoding.max_length:,} tokens are {rule}.",
        "The weights were chosen by their dev score, so dev scores are slightly optimistic.",
    ]
    limits += ["It can only predict the labels above."] if summary.data.labels else []
    if scores and scores.intervals:
        limits += ["The intervals show how much scores vary with the choice of rows, not with the seed."]
    return limits + [
        Spans("Warning about the data: ", _name(one.code), f" in {counted(one.rows, 'row')}." if one.rows else ".")
        for one in summary.data.findings[:MOST_FINDINGS]
        if one.severity != "note"
    ]
