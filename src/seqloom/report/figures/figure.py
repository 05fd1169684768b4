"""Base class of all figures: frozen values with a title that render as SVG and as text.

Arguments are converted to tuples of text and finite numbers; anything else raises `DataError`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar, NamedTuple, TypeVar

from seqloom.errors import DataError
from seqloom.report.figures.markup import FONT, Markup, label, look, style_sheet, tag, together
from seqloom.report.labels import ems, fit, isolated, minus_signed, visible, wrap

LARGEST = 1e100  # the difference of two larger values may overflow

Row = tuple[float | None, ...]
Interval = tuple[float, float]
Item = TypeVar("Item")


def quoted_label(label: str) -> str:
    """Return the label for a message: visible, shortened and quoted."""
    return f"'{fit(visible(label), 40)}'"


def checked_text(value: object, what: str) -> str:
    """Return the value; raise DataError if it is not text."""
    if isinstance(value, str):
        return value
    raise DataError(f"{what} must be text, found {type(value).__name__}", fix="convert it with str()")


def checked_labels(values: Iterable[object], what: str) -> tuple[str, ...]:
    """Return the labels as a tuple of text."""
    if isinstance(values, str):
        found = f"found one string {quoted_label(values)}"
        raise DataError(f"{what} must be a list of labels, {found}", fix="put it in a list")
    return tuple(checked_text(value, f"{what}[{index}]") for index, value in enumerate(checked_items(values, what)))


def checked_number(value: object, what: str) -> float | None:
    """Return the value as a float; None and NaN mean a missing value."""
    if value is None:
        return None
    try:
        if isinstance(value, str | bytes | bytearray):  # float() would parse these
            raise TypeError(value)
        real = float(value)  # type: ignore[arg-type]
    except OverflowError:  # an int with more than 308 digits
        real = math.inf
    except (TypeError, ValueError, RuntimeError):  # not a number, or an array of several
        raise DataError(f"{what} must be a number, found {type(value).__name__}", fix="pass plain numbers") from None
    if math.isnan(real):
        return None
    if abs(real) > LARGEST:
        found = f"{real}" if math.isinf(real) else f"{real:g}, beyond {LARGEST:g}"
        raise DataError(f"{what} is {found}", fix="draw finite values; None or NaN leaves a gap")
    return real


def checked_numbers(values: Iterable[object], what: str) -> Row:
    """Return the values as a tuple of floats, None where one is missing."""
    return tuple(
        value if type(value) is float and -LARGEST <= value <= LARGEST else checked_number(value, f"{what}[{index}]")
        for index, value in enumerate(checked_items(values, what))
    )


def every_number(values: Iterable[object], what: str) -> tuple[float, ...]:
    """Return the values as a tuple of floats; raise DataError if one is missing."""
    found = checked_numbers(values, what)
    if None in found:
        raise DataError(f"{what}[{found.index(None)}] is missing", fix="give a number at each place")
    return tuple(value for value in found if value is not None)


def checked_grid(values: Iterable[Iterable[object]], *, largest: int, fix: str) -> tuple[Row, ...]:
    """Return the rows as tuples of equal length, with 1 to `largest` cells."""
    rows = [tuple(checked_items(row, f"values[{index}]")) for index, row in enumerate(checked_items(values, "values"))]
    if not rows or not rows[0]:
        raise DataError(f"values has {len(rows)} rows and no cell", fix="give at least one row with one value")
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            equal = "make all rows equally long; None or NaN marks a cell without a value"
            raise DataError(f"values[{index}] has {len(row)} cells, values[0] has {len(rows[0])}", fix=equal)
    if len(rows) * len(rows[0]) > largest:
        raise DataError(f"values has {len(rows)} x {len(rows[0])} cells, more than {largest:,}", fix=fix)
    return tuple(checked_numbers(row, f"values[{index}]") for index, row in enumerate(rows))


def require_some(values: Sized, what: str, *, largest: int) -> None:
    """Require between one and `largest` values."""
    if not len(values):
        raise DataError(f"{what} is empty", fix="give at least one")
    if len(values) > largest:
        raise DataError(f"{what} has {len(values):,} entries, more than {largest:,}", fix="draw a part of them")


def require_same_count(values: Sized, what: str, others: Sized, other: str) -> None:
    """Require the same number of entries in both."""
    if len(values) != len(others):
        raise DataError(f"{what} has {len(values)} entries, {other} has {len(others)}", fix="give one for each")


def checked_span(value: Iterable[object] | None, rows: Iterable[Row]) -> tuple[float, float] | None:
    """Return the two ends of a color scale; they must be in order and enclose every value."""
    if value is None:
        return None
    ends = every_number(value, "span")
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise DataError(f"span is {ends}", fix="give two different numbers, the lower first")
    for row_index, row in enumerate(rows):
        for index, entry in enumerate(row):
            if entry is not None and not ends[0] <= entry <= ends[1]:
                where = f"row {row_index}, column {index}"
                raise DataError(f"value {entry:g} at {where} lies outside span {ends}", fix="widen the span")
    return ends[0], ends[1]


def checked_intervals(
    intervals: Sequence[Interval | None] | None, values: Sequence[float | None], around: str
) -> tuple[Interval | None, ...] | None:
    """Return the interval of each value, if any."""
    if intervals is None:
        return None
    given = tuple(checked_items(intervals, "intervals"))
    require_same_count(given, "intervals", values, "labels")
    found: list[Interval | None] = []
    for index, (interval, value) in enumerate(zip(given, values, strict=True)):
        ends = None if interval is None else every_number(interval, f"intervals[{index}]")
        if ends is not None and (value is None or len(ends) != 2 or not ends[0] <= value <= ends[1]):
            fix = f"give (low, high) around {around}"
            raise DataError(f"intervals[{index}] is {ends} around the value {value}", fix=fix)
        found.append(None if ends is None else (ends[0], ends[1]))
    return tuple(found)


def checked_instances(values: Iterable[object], kind: type[Item], what: str) -> tuple[Item, ...]:
    """Return the values as a tuple; raise DataError if one is of another type."""
    found = tuple(checked_items(values, what))
    for index, value in enumerate(found):
        if not isinstance(value, kind):
            name, wanted = type(value).__name__, kind.__name__
            raise DataError(f"{what}[{index}] must be a {wanted}, found {name}", fix=f"make a {wanted} of it")
    return tuple(value for value in found if isinstance(value, kind))


def checked_items(values: Iterable[Item], what: str) -> Iterable[Item]:
    """Return the values; raise DataError if they are not iterable."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise DataError(f"{what} must be a sequence, found {type(values).__name__}", fix="pass a list")
    return values


WIDTH = 720.0  # default width of a picture
MARGIN = 20.0
NARROWEST, LEAST_COLUMNS = 360.0, 40
TITLE_SIZE, NOTE_SIZE = 16.0, 12.0
# Widths as in DejaVu Sans, the widest of the common default fonts: a title or note that fits in it fits in all
BOLD_SIZE, PLAIN_SIZE = TITLE_SIZE * 1.2, NOTE_SIZE * 1.05
NAMESPACE = "http://www.w3.org/2000/svg"


class Plot(NamedTuple):
    """The middle of a picture, drawn from its upper edge down, and the notes below it."""

    marks: Markup
    width: float
    height: float
    notes: tuple[str, ...] = ()


class FigureBlock(NamedTuple):
    """The middle of a figure as terminal lines, and the notes below it."""

    lines: list[str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figure(ABC):
    """Base class of figures; the subclasses are in the other modules, from `Line` to `Trail`."""

    kind: ClassVar[str]
    title: str
    caption: str = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind or cls.kind

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in ("title", "caption") or field.name.endswith("_label"):
                checked_text(getattr(self, field.name), field.name)

    def _check_labels(self, *names: str, largest: int | None = None) -> None:
        """Convert these fields to tuples of text with 1 to `largest` entries."""
        for name in names:
            labels = checked_labels(getattr(self, name), name)
            if largest is not None:
                require_some(labels, name, largest=largest)
            object.__setattr__(self, name, labels)

    def _check_parts(self, name: str, kind: type[object], largest: int | None = None) -> None:
        """Convert a field to a tuple of instances of a class, with 1 to `largest` entries."""
        parts = checked_instances(getattr(self, name), kind, name)
        if largest is not None:
            require_some(parts, name, largest=largest)
        object.__setattr__(self, name, parts)

    def _check_numbers(self, *names: str, others: str, gaps: bool = False) -> None:
        """Convert these fields to tuples of numbers, as many as the field `others` has; values may be missing if
        `gaps`.
        """
        for name in names:
            numbers = (checked_numbers if gaps else every_number)(getattr(self, name), name)
            require_same_count(numbers, name, getattr(self, others), others)
            object.__setattr__(self, name, numbers)

    @abstractmethod
    def _plot(self) -> Plot: ...

    @abstractmethod
    def _block(self, width: int, color: bool) -> FigureBlock: ...

    @abstractmethod
    def _summary(self) -> str: ...

    def svg(self) -> str:
        """Return one self-contained SVG element with a light and a dark theme."""
        return self.drawn(styled=True)

    def drawn(self, *, styled: bool, titled: bool = True) -> Markup:
        """Return the SVG element; without style sheet or title if the page around it has them already."""
        plot = self._plot()
        notes = [note for note in (self.caption, *plot.notes) if note]
        body, width, height = _framed(plot, self.title if titled else "", notes)
        style = [tag("style", style_sheet(body))] if styled else []
        named = [tag("title", self.title), tag("desc", " ".join([self._summary(), *notes]))]
        size: dict[str, str | float] = {"viewBox": f"0 0 {width:g} {height:g}", "width": width, "height": height}
        reader = {"role": "img", "aria_label": self.title or self.kind}
        look_of = {"class_": "seqloom", "font_family": FONT}
        return tag("svg", *named, *style, body, xmlns=NAMESPACE, **size, **reader, **look_of)

    def text(self, width: int = 80, color: bool = False) -> str:
        """Return the figure as lines of at most `width` columns, with 24-bit terminal colors if `color` is set."""
        if width < LEAST_COLUMNS:
            raise DataError(f"a figure of {width} columns is too narrow", fix=f"give it at least {LEAST_COLUMNS}")
        block = self._block(width, color)
        titles = _written(self.title, width)
        notes = [line for note in (self.caption, *block.notes) for line in _written(note, width)]
        return "\n".join(line.rstrip() for line in (*titles, *block.lines, *notes))

    def data(self) -> dict[str, object]:
        """Return the figure as plain values for JSON, its `kind` first; a missing number is None."""
        return {"kind": self.kind, **_plain_fields(self)}

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return self.svg()


def _framed(plot: Plot, title: str, notes: Sequence[str]) -> tuple[Markup, float, float]:
    """Return the plot between its title and its notes on its own background, with total width and height."""
    room = max(plot.width, min(WIDTH, BOLD_SIZE * ems(visible(title)) + 2 * MARGIN + 1)) - 2 * MARGIN
    width = room + 2 * MARGIN
    titles = wrap(visible(title), room / BOLD_SIZE, ems) if title else []
    below = [line for note in notes for line in wrap(minus_signed(visible(note)), room / PLAIN_SIZE, ems)]
    top = MARGIN + 24 * len(titles)
    end = top + plot.height
    height = end + 18 * len(below) + MARGIN
    heads = [label(line, MARGIN, MARGIN + 14 + 24 * at, size=TITLE_SIZE) for at, line in enumerate(titles)]
    feet = [label(line, MARGIN, end + 14 + 18 * at, size=NOTE_SIZE, theme="soft") for at, line in enumerate(below)]
    ground = tag("rect", width=width, height=height, **look("ground"))
    middle = tag("g", plot.marks, transform=f"translate(0 {top:g})")
    return together([ground, tag("g", *heads, font_weight=600), middle, *feet]), width, height


def _written(text: str, width: int) -> list[str]:
    return [isolated(line) for line in wrap(visible(text), width)] if text else []


def _plain_fields(value: object) -> dict[str, object]:
    assert is_dataclass(value)
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return _plain_fields(value) if is_dataclass(value) else value
