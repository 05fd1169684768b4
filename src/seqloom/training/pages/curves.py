"""The curves of a run: how it learned (loss, the dev metric, the rate, gradients), and how fast it went."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqloom.report.figures.axis import LEAST_LOGARITHMIC
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import share

if TYPE_CHECKING:
    from seqloom.training.pages.lines import StepLine
    from seqloom.training.pages.summary import RunSummary

STEP = "step"


def learning_curves(summary: "RunSummary") -> list[Figure]:
    """The figures of learning for which the run has points."""
    return list(filter(None, [_loss(summary), _metric(summary), _rate(summary), _gradient(summary)]))


def speed_curves(summary: "RunSummary") -> list[Figure]:
    """The figures of speed and of waiting for which the run has points."""
    return list(filter(None, [_speed(summary), _waiting(summary)]))


def _line(title: str, series: Sequence[Series | None], caption: str = "") -> Figure | None:
    known = [one for one in series if one is not None]
    return Line(title=title, series=known, x_label=STEP, caption=caption) if known else None


def _series(name: str, points: Sequence[tuple[int, float | None]]) -> Series | None:
    """A curve; None where it has no point."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Series(name=name, x=xs, y=ys) if any(y is not None for y in ys) else None


def _loss(summary: "RunSummary") -> Figure | None:
    train = _series("train", [(one.step, one.loss) for one in summary.steps])
    dev = _series("dev", [(one.step, one.metrics.get("loss")) for one in summary.validations])
    return _line("Loss", [train, dev], "Train: the mean over the steps since the last point, with dropout.")


def _metric(summary: "RunSummary") -> Figure | None:
    metric, best, chosen = summary.metric, summary.best, summary.chosen
    if metric.name == "loss":
        return None
    points = [(one.step, one.metrics.get(metric.name)) for one in summary.validations]
    order = "higher is better" if metric.higher_is_better else "lower is better"
    told = f"; the best is at step {best.step:,}" if best is not None else ""
    told += f", and step {chosen.step:,} is shipped" if best and chosen and chosen.step != best.step else ""
    return _line(f"Dev {metric.name}", [_series(metric.name, points)], f"{order}{told}.".capitalize())


def _rate(summary: "RunSummary") -> Figure | None:
    return _line("Learning rate", [_series("rate", [(one.step, one.rate) for one in summary.steps])])


def _gradient(summary: "RunSummary") -> Figure | None:
    mean = _series("mean", [(one.step, _drawable(one.norm)) for one in summary.steps])
    largest = _series("largest", [(one.step, _drawable(one.largest)) for one in summary.steps])
    known = [one for one in (mean, largest) if one is not None]
    if not known:
        return None
    return Line(
        title="Norm of the gradient before clipping",
        series=known,
        x_label=STEP,
        y_axis="log",
        caption=gradient_said(summary.steps),
    )


def gradient_said(steps: Sequence["StepLine"]) -> str:
    """How many steps were clipped and skipped, in words; a line counts as the steps since the line before it."""
    before = [0, *(one.step for one in steps[:-1])]
    counts = [max(0, one.step - start) for one, start in zip(steps, before, strict=True)]
    clipped = sum(one.clipped * count for one, count in zip(steps, counts, strict=True))
    skipped = sum(one.skipped for one in steps)
    said = f"Clipped in {share(clipped / max(1, sum(counts)))} of the steps"
    return f"{said}; {skipped:,} of {sum(counts):,} skipped because something was not finite."


def _drawable(norm: float | None) -> float | None:
    """A norm that has a logarithm."""
    return norm if norm is not None and norm >= LEAST_LOGARITHMIC else None


def _speed(summary: "RunSummary") -> Figure | None:
    points = [(one.step, one.symbols_per_second) for one in summary.paces]
    return _line("Symbols per second", [_series("symbols", points)], "Padding not counted.")


def _waiting(summary: "RunSummary") -> Figure | None:
    points = [(one.step, None if one.waited is None else 100 * one.waited) for one in summary.paces]
    return _line("% of the time waiting for data", [_series("waiting", points)])
