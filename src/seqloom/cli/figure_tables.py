"""Lines of figures for a terminal: each with its 95 % interval, or with the reason why it has none.

    mse     3,815,315,956   95 % between 2,367,733,718 and 5,565,557,370
    rmse           61,768   95 % between        48,659 and        74,603
    r2                  -   the true numbers are all the same

Ends of numbers stand under each other, whatever their sizes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seqloom.cli.progress import number

ONE_ROW = "no interval: one row tells nothing of others"
ALIKE = "no interval: these rows, drawn again, always give the same"
LARGE, SMALL = 10_000, 0.001  # from here on, and below, four places behind the point are too many or too few


class Figure(NamedTuple):
    """A figure, where it would lie with other rows, and why one of the two is not known."""

    value: float | None
    interval: Sequence[float] | None
    why: str = ""

    @classmethod
    def of(cls, found: Mapping[str, Any], name: str) -> "Figure":
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


def figure_lines(heads: Sequence[str], figures: Sequence[Figure]) -> list[str]:
    """A line for each figure behind its head."""
    cells = [figure.cells() for figure in figures]
    first, second, third = (max(map(len, column), default=0) for column in zip(*cells, strict=True))
    lines = []
    for head, figure, (value, low, high) in zip(heads, figures, cells, strict=True):
        ends = f"95 % between {low:>{second}} and {high:>{third}}"
        lines.append(f"{head}  {value:>{first}}   {figure.why if figure.interval is None else ends}")
    return lines
