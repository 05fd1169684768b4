"""report.html: one file without script or address. The first screen says how the run went and how good the model is."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from seqloom.data.report.page import RULES, isolate
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.markup import Markup, tag, together
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.page import document
from seqloom.training.pages.curves import learning_curves, speed_curves
from seqloom.training.pages.lines import SampleLine
from seqloom.training.pages.samples import followed
from seqloom.training.pages.words import ENDINGS, alike_said, choice_said, duration, metrics_said, share, size, value

if TYPE_CHECKING:
    from seqloom.training.pages.scores import Confused, RunScores
    from seqloom.training.pages.summary import RunSummary

LONGEST_TEXT, LONGEST_LABEL, LONGEST_CONFIG = 400, 60, 40_000
LARGEST_CONFUSION = 20  # labels; with more a table of the most frequent confusions is clearer
MOST_CONFUSIONS, MOST_LABELS, MOST_NOTICES = 10, 40, 50
STYLES = RULES + (
    "main{max-width:1400px}.verdict.plain{border-color:var(--soft)}"
    ".cards{grid-template-columns:repeat(auto-fit,minmax(160px,1fr))}"
    ".curves,.samples{display:grid;gap:8px 24px;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr))}"
    ".curves figure{margin:8px 0;min-width:0}.curves svg{width:100%}"
    ".curves text[text-anchor]{font-size:14px}"  # ticks: two figures beside each other are drawn smaller than made
    ".sample{border-left:3px solid var(--rule);padding:2px 0 2px 14px;margin:6px 0;overflow-wrap:anywhere}"
    ".right{color:var(--fine)}.wrong{color:var(--reject)}"
    "pre{background:var(--panel);padding:14px 18px;border-radius:8px;overflow:auto;max-height:480px;font-size:13px}"
    ".step{display:inline-block;min-width:92px;color:var(--soft)}"
)


def report_html(summary: "RunSummary") -> str:
    """The report on a run as one self-contained HTML document, light or dark as the reader prefers."""
    return document(f"Run {isolated_title(summary.name)}", _body(summary), STYLES)


def isolated_title(name: str) -> str:
    """The beginning of a name, for the title of a window."""
    return name[:LONGEST_LABEL]


def _body(summary: "RunSummary") -> list[Markup]:
    return [
        tag("h1", isolate(summary.name, LONGEST_TEXT)),
        tag("p", f"{summary.config.task} with {summary.model}", class_="soft"),
        _verdict(summary),
        tag("div", *_cards(summary), class_="cards"),
        *_section("Scores on dev", _scores(summary)),
        *_section("Notices", _notices(summary)),
        *_section("What was taken for what", _confusion(summary.chosen_scores)),
        *_section("Answers over time", _answers(summary)),
        *_section("Looks at the test set", _looks(summary)),
        *_section("Curves", _drawn(learning_curves(summary))),
        *_section("Data", _data(summary)),
        *_section("Configuration", _configuration(summary)),
        *_section("Environment", _environment(summary)),
        *_section("Speed, time and disk", [*_drawn(speed_curves(summary)), *_time_and_disk(summary)]),
    ]


def _section(title: str, content: Sequence[Markup]) -> list[Markup]:
    return [tag("h2", title), *content] if content else []


def _drawn(figures: Sequence[Figure]) -> list[Markup]:
    """The figures beside each other, as many as the window has room for."""
    drawn = [tag("figure", figure.drawn(styled=False)) for figure in figures]
    return [tag("div", *drawn, class_="curves")] if drawn else []


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], looks: Sequence[str]) -> Markup:
    head = tag("tr", *(tag("th", text or Markup(""), class_=look) for text, look in zip(heads, looks, strict=True)))
    lines = [tag("tr", *(tag("td", c, class_=look) for c, look in zip(row, looks, strict=True))) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *lines)), class_="scroll")


def _card(figure: str, text: str) -> Markup:
    return tag("div", tag("b", figure), tag("span", text), class_="card")


def _verdict(summary: "RunSummary") -> Markup:
    end = summary.end
    if end is None:
        said, look = (
            f"Not finished: at step {summary.reached:,} it goes on, or was cut off; the same command goes on",
            "warn",
        )
    else:
        said = f"{ENDINGS.get(end.why, end.why)} after {end.step:,} steps"
        # how good the model is stands below: an end as it was asked for is neither good nor bad
        look = {"done": "plain", "patience": "plain", "stopped": "warn"}.get(end.why, "reject")
    return tag("div", said, class_=f"verdict {look}")


def _cards(summary: "RunSummary") -> list[Markup]:
    scores, name = summary.chosen_scores, summary.metric.name
    paces = [one.symbols_per_second for one in summary.paces if one.symbols_per_second]
    cards = []
    if scores is not None:
        sure = f", 95\u00a0% interval {_ends(scores.intervals[name])}" if name in scores.intervals else ""
        cards.append(_card(value(scores.dev.get(name)), f"{name} on dev at step {scores.step:,}{sure}"))
    if summary.begun is not None:
        cards.append(_card(f"{summary.begun.parameters:,}", "parameters"))
    if summary.steps:
        last = summary.steps[-1]
        cards.append(_card(f"{summary.reached:,}", f"steps; {last.symbols:,} symbols read by step {last.step:,}"))
    if summary.seconds:
        cards.append(_card(duration(summary.seconds), "of training"))
    if paces:
        cards.append(_card(f"{sorted(paces)[len(paces) // 2]:,.0f}", "symbols per second, median"))
    looked = "look" if len(summary.looks) == 1 else "looks"
    return [*cards, _card(f"{len(summary.looks):,}", f"{looked} at the test set")]


def _notices(summary: "RunSummary") -> list[Markup]:
    rows = [
        [
            together([tag("i", Markup(""), class_="dot warn"), tag("code", one.code)]),
            f"{one.step:,}",
            together([tag("p", isolate(one.text, LONGEST_TEXT)), *_fix(one.fix)]),
        ]
        for one in summary.notices[-MOST_NOTICES:]
    ]
    rows += [
        [tag("code", "not saved"), f"{one.step:,}", isolate(one.problem, LONGEST_TEXT)]
        for one in summary.saves[-MOST_NOTICES:]
        if one.problem
    ]
    return [_table(["", "step", ""], rows, ["name", "number", "wide"])] if rows else []


def _fix(fix: str) -> list[Markup]:
    return [tag("p", together(["Fix: ", isolate(fix, LONGEST_TEXT)]), class_="fix")] if fix else []


def _scores(summary: "RunSummary") -> list[Markup]:
    scores = summary.chosen_scores
    if scores is None:
        return []
    rows = [[name, value(number), _ends(scores.intervals.get(name))] for name, number in scores.dev.items()]
    chose = f"The weights were chosen by {summary.metric.name} on dev"
    note = f"{chose}, so these scores flatter a little; only a sealed test set does not."
    return [
        _table(["metric", "value", "95 % interval"], rows, ["name", "number", "wide"]),
        *_softly(alike_said(scores.dev, scores.dev_rows) if scores.intervals else ""),
        *_softly(choice_said(summary)),
        *_softly(note),
    ]


def _softly(text: str) -> list[Markup]:
    return [tag("p", text, class_="soft")] if text else []


def _ends(interval: tuple[float | None, float | None] | None) -> str:
    return "not measured" if interval is None else f"{value(interval[0])} to {value(interval[1])}"


def _confusion(scores: "RunScores | None") -> list[Markup]:
    if scores is None or not scores.confusion:
        return []
    names = sorted({name for one in scores.confusion for name in (one.true, one.said)})
    wrong = sorted((one for one in scores.confusion if one.true != one.said), key=lambda one: -one.count)
    matrix = [tag("figure", _matrix(scores.confusion, names).drawn(styled=False))]
    rows = [
        [isolate(one.true, LONGEST_LABEL), isolate(one.said, LONGEST_LABEL), f"{one.count:,}"]
        for one in wrong[:MOST_CONFUSIONS]
    ]
    table = [_table(["right would be", "said", "times"], rows, ["wide", "wide", "number"])] if rows else []
    return [*(matrix if len(names) <= LARGEST_CONFUSION else []), *table]


def _matrix(confusion: Sequence["Confused"], names: Sequence[str]) -> Matrix:
    counts = {(one.true, one.said): one.count for one in confusion}
    grid = [[float(counts.get((true, said), 0)) for said in names] for true in names]
    shown = [name or "(empty)" for name in names]
    return Matrix(title="", values=grid, rows=shown, columns=shown, y_label="right would be", x_label="said")


def _answers(summary: "RunSummary") -> list[Markup]:
    samples = [
        tag(
            "div",
            tag("p", isolate(one.input, LONGEST_TEXT)),
            tag("p", tag("span", "right", class_="step"), isolate(one.true, LONGEST_TEXT), class_="soft"),
            *(_answer(step, sample) for step, sample in one.answers),
            class_="sample",
        )
        for one in followed(summary.validations)
    ]
    return [tag("div", *samples, class_="samples")] if samples else []


def _answer(step: int, sample: SampleLine) -> Markup:
    return tag("p", tag("span", f"step {step:,}", class_="step"), *_marks(sample), isolate(sample.said, LONGEST_TEXT))


def _marks(sample: SampleLine) -> list[Markup]:
    """A mark for what is right or wrong; none for what is only better or worse."""
    if sample.right is None:
        return []
    return [tag("b", "✓ " if sample.right else "✗ ", class_="right" if sample.right else "wrong")]


def _looks(summary: "RunSummary") -> list[Markup]:
    rows = [
        [f"{number}", one.when, metrics_said(one.metrics, one.intervals), tag("code", one.model_sha256[:12])]
        for number, one in enumerate(summary.looks, start=1)
    ]
    if not rows:
        return [tag("p", "Nobody has looked yet; seqloom evaluate RUN --test does, and writes it down.", class_="soft")]
    table = _table(["look", "when", "metrics with 95 % intervals", "model"], rows, ["number", "name", "wide", "name"])
    note = "A score that others were chosen by is no longer a test score: only the first look is one."
    tested = summary.data.rows.get("test", 0)
    alike = next(filter(None, (alike_said(one.metrics, tested) for one in summary.looks if one.intervals)), "")
    return [table, *_softly(alike), *_softly(note if len(rows) > 1 else "")]


def _data(summary: "RunSummary") -> list[Markup]:
    data = summary.data
    parts = [[name, f"{rows:,}"] for name, rows in data.rows.items()]
    table = [_table(["part", "rows"], parts, ["wide", "number"])] if parts else []
    files = [tag("p", together(["Read from ", *_separated(data.files)]))] if data.files else []
    more = f" and {len(data.labels) - MOST_LABELS:,} more" if len(data.labels) > MOST_LABELS else ""
    labels = [tag("p", f"{len(data.labels):,} labels: ", *_separated(data.labels[:MOST_LABELS]), more)]
    found = [
        [
            together([tag("i", Markup(""), class_=f"dot {one.severity}"), tag("code", one.code)]),
            f"{one.rows:,}" if one.rows else "",
            isolate(one.text, LONGEST_TEXT),
        ]
        for one in data.findings
    ]
    findings = [_table(["finding", "rows", "first case"], found, ["name", "number", "wide"])] if found else []
    return [*table, *files, *(labels if data.labels else []), *_list(data.said), *findings]


def _separated(names: Sequence[str]) -> list[Markup]:
    shown = [isolate(name, LONGEST_LABEL) for name in names]
    return [part for name in shown for part in (together([", "]), name)][1:]


def _list(lines: Sequence[str]) -> list[Markup]:
    return [tag("ul", *(tag("li", isolate(line, LONGEST_TEXT)) for line in lines))] if lines else []


def _configuration(summary: "RunSummary") -> list[Markup]:
    text = summary.config.to_toml()
    shown = text if len(text) <= LONGEST_CONFIG else f"{text[:LONGEST_CONFIG]}\n…"
    lines = together(part for line in shown.split("\n") for part in (line, Markup("\n")))
    return [tag("pre", tag("code", lines))]


def _environment(summary: "RunSummary") -> list[Markup]:
    if summary.begun is None:
        return []
    known = summary.begun.environment
    rows = [[name, isolate(str(getattr(known, name)), LONGEST_TEXT)] for name in known.__struct_fields__]
    return [_table(["", ""], rows, ["name", "wide"]), *_list(summary.begun.said)]


def _time_and_disk(summary: "RunSummary") -> list[Markup]:
    rows = [["training", duration(summary.seconds)]] if summary.seconds else []
    rows += [["most memory", size(max(one.memory for one in summary.paces))]] if summary.paces else []
    waits = [one.waited for one in summary.paces if one.waited is not None]
    rows += [["waiting for data, mean", share(sum(waits) / len(waits))]] if waits else []
    padding = [one.padding for one in summary.steps]
    rows += [["padding, mean", share(sum(padding) / len(padding))]] if padding else []
    rows += [[f"{name}", size(count)] for name, count in summary.disk.items()]
    return [_table(["", ""], rows, ["wide", "number"])] if rows else []
