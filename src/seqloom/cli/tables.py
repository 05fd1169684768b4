"""Lines of figures for a terminal: each with its 95 % interval, or with the reason why it has none.

    mse     3,815,315,956   95 % between 2,367,733,718 and 5,565,557,370
    rmse           61,768   95 % between        48,659 and        74,603
    r2                  -   the true numbers are all the same

Ends of numbers stand under each other, whatever their sizes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seqloom.cli.progress import number
from seqloom.data.problems import counted, escaped

ONE_ROW = "no interval: one row tells nothing of others"
ALIKE = "no interval: these rows, drawn again, always give the same"
LARGE, SMALL = 10_000, 0.001  # from here on, and below, four places behind the point are too many or too few


class FigureRow(NamedTuple):
    """A figure, where it would lie with other rows, and why one of the two is not known."""

    value: float | None
    interval: Sequence[float] | None
    why: str = ""

    @classmethod
    def of(cls, found: Mapping[str, Any], name: str) -> "FigureRow":
        """One figure of a result as programs read it."""
        why = found.get("undefined", {}).get(name) or (ONE_ROW if found["rows"] < 2 else ALIKE)
        return cls(found["metrics"][name], found["intervals"][name], why)

    def cells(self) -> tuple[str, str, str]:
        """The figure and the ends of its interval."""
        low, high = ("", "") if self.interval is None else map(shown, self.interval)
        return shown(self.value), low, high


def shown(value: float | None) -> str:
    """A figure with four places behind the point; large and small ones as the log of training writes them.

    >>> shown(0.98765), shown(1536767038.7), shown(0.00001234), shown(0.0), shown(None)
    ('0.9877', '1,536,767,039', '1.234e-05', '0.0000', '-')
    """
    if value is None:
        return "-"
    plain = value == 0 or SMALL <= abs(value) < LARGE
    return f"{value:.4f}" if plain else number(value)


def figure_lines(heads: Sequence[str], figures: Sequence[FigureRow]) -> list[str]:
    """A line for each figure behind its head."""
    cells = [figure.cells() for figure in figures]
    first, second, third = (max(map(len, column), default=0) for column in zip(*cells, strict=True))
    lines = []
    for head, figure, (value, low, high) in zip(heads, figures, cells, strict=True):
        ends = f"95 % between {low:>{second}} and {high:>{third}}"
        lines.append(f"{head}  {value:>{first}}   {figure.why if figure.interval is None else ends}")
    return lines


# -----------------------------------------------------------------------------
# Tables for a terminal of what an evaluation says about labels: the figures of each, and what was taken for what.
#
# Names come from data, so what could move a cursor is written out, and long ones are cut.
# -----------------------------------------------------------------------------

MOST_LABELS = 20  # with a line of their own
SQUARE = 10  # labels up to which confusions are a table, true ones down and said ones across
MISTAKES = 5  # that are told where there are more labels
LONGEST_NAME = 24  # characters
CORNER = "true, said"
Confusion = Sequence[tuple[str, str, int]]  # what is true, what was said, how often


def label_lines(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line for each label with its figures, the most frequent first; nothing where there is none."""
    if not figures:
        return []
    often = sorted(figures, key=lambda label: -figures[label]["support"])
    width = max(len(_cut(label)) for label in [*often[:MOST_LABELS], "label"])
    lines = ["", f"  {'label':<{width}}  precision  recall      f1  support"]
    for label in often[:MOST_LABELS]:
        one = figures[label]
        scores = f"{one['precision']:>9.4f}  {one['recall']:>6.4f}  {one['f1']:>6.4f}"
        lines.append(f"  {_cut(label):<{width}}  {scores}  {one['support']:>7,.0f}")
    more = len(often) - MOST_LABELS
    return [*lines, f"  and {counted(more, 'rarer label')}: --json has all"] if more > 0 else lines


def confusion_lines(confusion: Confusion) -> list[str]:
    """What was taken for what: a table for a few labels, the most frequent mistakes for many."""
    names = sorted({name for true, said, _ in confusion for name in (true, said)})
    if not names:
        return []
    return _square(confusion, names) if len(names) <= SQUARE else _mistakes(confusion)


def _square(confusion: Confusion, names: Sequence[str]) -> list[str]:
    counts = {(true, said): count for true, said, count in confusion}
    shown = [_cut(name) for name in names]
    heads = [max(len(name), len(f"{max(counts.values()):,}")) for name in shown]
    width = max(len(name) for name in [*shown, CORNER])
    across = "  ".join(f"{name:>{head}}" for name, head in zip(shown, heads, strict=True))
    lines = ["", f"  {CORNER:<{width}}  {across}"]
    for true, label in zip(names, shown, strict=True):
        row = (f"{counts.get((true, said), 0):>{head},}" for said, head in zip(names, heads, strict=True))
        lines.append(f"  {label:<{width}}  {'  '.join(row)}")
    return lines


def _mistakes(confusion: Confusion) -> list[str]:
    wrong = sorted((one for one in confusion if one[0] != one[1]), key=lambda one: -one[2])[:MISTAKES]
    lines = [f"  {_cut(true)} taken for {_cut(said)}, {counted(count, 'time')}" for true, said, count in wrong]
    return ["", "most often mistaken:", *lines] if lines else []


def _cut(name: str) -> str:
    shown = escaped(name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 1]}…"
