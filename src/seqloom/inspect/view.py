"""What all views are: frozen results with their numbers, which show and save themselves.

    view.to_json()      the numbers, as programs read them: very many of them by blocks, unless to_json(whole=True)
    view.document()     what is shown on every surface: sentences, figures, tables
    view.show()         in a terminal as text, in a notebook as a page
    view.save(path)     .html .md .txt .svg .png .json

A view gives figures that suit its size: with few tokens every label and number, with hundreds a map, with thousands a
summary and the places worth looking at. The same document serves every surface.

A file of numbers is for programs, and no program wants twelve megabytes for one picture: an array of very many numbers
is told by blocks, each with its mean, its largest and its smallest number, and what was told so is listed by name.

    {"shape": [512, 512], "block": [8, 4], "mean": [[...], ...], "maximum": [[...], ...], "minimum": [[...], ...]}
"""

import json
import math
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from seqloom.errors import ConfigError, did_you_mean
from seqloom.files.disk import write_file
from seqloom.report.document import Document, DocumentBlock, Paragraph, Pictures, Shown
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.stack import png, stacked

MOST_NUMBERS = 2**16  # of an array that is told number by number
MOST_BLOCKS = 2**13  # of one that is not
DIGITS = 6  # of the numbers of blocks


def plain(value: Any) -> Any:
    """A value as JSON has it, all of it."""
    return Telling(whole=True).of(value)


class Telling:
    """Values as JSON has them: arrays as lists, NaN and infinity as None, results as objects.

    `in_blocks` is what of them was told by blocks, with its shape.
    """

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.in_blocks: dict[str, list[int]] = {}

    def of(self, value: Any, name: str = "") -> Any:
        """A value as JSON has it; `name` is what it is called where it is told by blocks."""
        if isinstance(value, np.ndarray):
            return self._array(value, name)
        if isinstance(value, float | np.floating):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, np.integer | np.bool_):
            return value.item()
        if isinstance(value, View):
            value = value.told_values(whole=self.whole)
        elif hasattr(value, "_asdict"):
            value = value._asdict()
        elif is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Mapping):
            return {str(key): self.of(part, f"{name}.{key}".lstrip(".")) for key, part in value.items()}
        if isinstance(value, tuple | list):
            return [self.of(part, f"{name}.{at}") for at, part in enumerate(value)]
        return value

    def _array(self, values: np.ndarray, name: str) -> Any:
        if self.whole or values.size <= MOST_NUMBERS or values.dtype.kind not in "fiub":
            return self._listed(values.tolist())
        self.in_blocks[name] = list(values.shape)
        return blocks(values)

    def _listed(self, values: Any) -> Any:
        if isinstance(values, list):
            return [self._listed(part) for part in values]
        return None if isinstance(values, float) and not math.isfinite(values) else values


def blocks(values: np.ndarray) -> dict[str, Any]:
    """An array by blocks: their mean, largest and smallest number of those that there are, None where there is none.

    >>> blocks(np.arange(4 * MOST_BLOCKS))["block"]
    [4]
    """
    sides = [1] * values.ndim
    while (
        math.prod(counts := [-(-length // side) for length, side in zip(values.shape, sides, strict=True)])
        > MOST_BLOCKS
    ):
        sides[counts.index(max(counts))] *= 2
    known = np.where(np.isfinite(values), values, np.nan).astype(float)
    extremes = {"maximum": _reduced(np.fmax, known, sides), "minimum": _reduced(np.fmin, known, sides)}
    found = {"mean": block_means(known, sides), **extremes}
    return {"shape": list(values.shape), "block": sides, **{name: _brief(each) for name, each in found.items()}}


def block_means(values: np.ndarray, sides: Sequence[int]) -> np.ndarray:
    """The mean of each block with these sides over its values; NaN where it has none."""
    count = _reduced(np.add, (~np.isnan(values)).astype(float), sides)
    total = _reduced(np.add, np.nan_to_num(values), sides)
    found: np.ndarray = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return found


def strongest_in(values: np.ndarray, *sides: int) -> np.ndarray:
    """The value of the largest size in each block with these sides, with its sign; NaN where it has none."""
    ups, downs = _reduced(np.fmax, values, sides), _reduced(np.fmin, values, sides)
    return np.where(ups >= -downs, ups, downs)


def _reduced(reduce: np.ufunc, values: np.ndarray, sides: Sequence[int]) -> np.ndarray:
    for axis, side in enumerate(sides):
        values = reduce.reduceat(values, np.arange(0, values.shape[axis], side), axis=axis)
    return values


def _brief(values: np.ndarray) -> Any:
    if values.ndim > 1:
        return [_brief(part) for part in values]
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]


SMALL, MEDIUM = 64, 512  # tokens: up to the first every label is shown, up to the second every cell
POINTS = 200  # of a curve over a long text
NARROWEST, WIDEST = 50, 160  # columns of a terminal
JSON = ".json"


@dataclass(frozen=True, kw_only=True)
class View(Shown, ABC):
    """A look inside a model, as a value."""

    kind: ClassVar[str]
    title: str
    notes: tuple[str, ...] = ()  # what is to be known about the input, whatever is looked at: that it was cut

    @abstractmethod
    def figures(self) -> tuple[Figure, ...]:
        """The pictures of it, at least one, by its size."""

    @final
    def sentences(self) -> tuple[str, ...]:
        """What there is to say about it in words, one line each; last what was noted where it was made."""
        return (*self._sentences(), *self.notes)

    def _sentences(self) -> tuple[str, ...]:
        """What each kind of view has to say."""
        return ()

    @final
    def to_json(self, *, whole: bool = False) -> dict[str, Any]:
        """The numbers as plain values that JSON can hold; a missing one is None.

        Very large arrays are told by blocks, which `in_blocks` lists with their shapes; with `whole` all is told.
        """
        telling = Telling(whole=whole)
        told: dict[str, Any] = telling.of(self)
        return told | {"notes": list(self.notes)} | ({"in_blocks": telling.in_blocks} if telling.in_blocks else {})

    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        """What `to_json` tells, by name: the kind, and every field; kinds of views that tell something else say so.

        With `whole` nothing shall be made smaller.
        """
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}

    def document(self) -> Document:
        """What is shown: the sentences, and below them the figures."""
        return Document(self.title, [*map(Paragraph, self.sentences()), *self._blocks()])

    def _blocks(self) -> Sequence[DocumentBlock]:
        """What stands below the sentences; kinds of views that have more than figures say so."""
        return pictures(self.figures())

    def svg(self) -> str:
        """The figures as one SVG element; what is said first about it, and what was noted, stands below the first."""
        first, *others = self.figures()
        sentences = filter(None, (first.caption, *self._sentences()[:1], *self.notes))
        said = " ".join(one if one[-1] in ".?!" else f"{one}." for one in sentences)
        return stacked((replace(first, caption=said), *others))

    def save(self, path: str | Path, *, whole: bool = False) -> Path:
        """The file that was written, of the kind that its ending says; a file that is there is replaced at once.

        With `whole` a file of JSON tells every number, as `to_json(whole=True)` does.
        """
        place = Path(path)
        if place.suffix not in WRITERS:
            raise ConfigError(
                f"'{place.name}' has the ending of no kind of file that a view is saved as",
                fix=did_you_mean(place.suffix, WRITERS),
            )
        if whole and place.suffix != JSON:
            raise ConfigError(f"{place.name} has no numbers that could be whole", fix=f"end it in {JSON}")
        write_file(place, _json(self, whole=True) if whole else WRITERS[place.suffix](self))
        return place

    def show(self) -> None:
        """Show the view: in a notebook as a page, else as text on standard output."""
        show(self)


def pictures(figures: Sequence[Figure]) -> list[DocumentBlock]:
    """The figures, each of its own size."""
    return [Pictures([figure]) for figure in figures]


def _json(view: View, *, whole: bool) -> bytes:
    return (json.dumps(view.to_json(whole=whole), ensure_ascii=False, allow_nan=False) + "\n").encode()


WRITERS: Mapping[str, Callable[[View], bytes]] = {
    ".html": lambda view: view.html().encode(),
    ".md": lambda view: view.markdown().encode(),
    ".svg": lambda view: view.svg().encode(),
    ".png": lambda view: png(view.svg()),
    JSON: lambda view: _json(view, whole=False),
    ".txt": lambda view: view.text(100).encode(),
}


def show(result: Shown) -> None:
    """Show a result: in a notebook as a page, else as text on standard output."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    if shell is not None and type(shell).__name__ == "ZMQInteractiveShell":
        from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

        return display(result)  # type: ignore[no-any-return,unused-ignore]
    columns = shutil.get_terminal_size((80, 24)).columns
    sys.stdout.write(result.text(max(NARROWEST, min(columns, WIDEST)), sys.stdout.isatty()))
    return None


def script(name: str) -> str:
    """The text of a script for a page; they stand in `pages/`, and tests run some of them."""
    return files("seqloom.inspect").joinpath("pages", name).read_text(encoding="utf-8")


class Blocks(NamedTuple):
    """A curve [N] of which each `size` neighbours have become one point."""

    size: int
    starts: list[float]
    mean: list[float]
    maximum: list[float]


def blocks_of(values: np.ndarray, most: int) -> Blocks:
    """At most `most` points of a curve, for what there is the mean, for whether there is anything the maximum.

    Points without a value, which are NaN, do not count; a block of them alone is a gap.

    >>> blocks_of(np.array([1.0, 3.0, 5.0, 9.0, 2.0]), 3)
    Blocks(size=2, starts=[0.0, 2.0, 4.0], mean=[2.0, 7.0, 2.0], maximum=[3.0, 9.0, 2.0])
    """
    size = max(1, -(-len(values) // most))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    starts = [float(start) for start in range(0, len(values), size)]
    return Blocks(
        size, starts, [_of_known(part, np.mean) for part in parts], [_of_known(part, np.max) for part in parts]
    )


def blocks_line(values: np.ndarray, *, title: str, x_label: str, y_label: str = "") -> Line:
    """A long curve as the means and the maxima of its blocks."""
    blocks = blocks_of(values, POINTS)
    series = [
        Series(name=f"mean of {blocks.size}", x=blocks.starts, y=blocks.mean),
        Series(name=f"maximum of {blocks.size}", x=blocks.starts, y=blocks.maximum),
    ]
    return Line(title=title, series=series, x_label=x_label, y_label=y_label)


def _of_known(values: np.ndarray, reduced: Callable[[np.ndarray], np.floating]) -> float:
    known = values[~np.isnan(values)]
    return float(reduced(known)) if known.size else math.nan
