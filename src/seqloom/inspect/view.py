"""The base class of views: immutable results with their numbers, figures and sentences.

    view.to_json()      the numbers; large arrays are summarized in blocks, unless to_json(full=True)
    view.document()     the content of every format: sentences, figures, tables
    view.show()         in a terminal as text, in a notebook as a page
    view.save(path)     .html .md .txt .svg .png .json

The figures depend on the length of the text: every label and number for few tokens, a map for hundreds, a summary and
the most interesting positions for thousands.

In JSON, a large array is summarized in blocks, each with its mean, maximum and minimum, and listed in `in_blocks`.

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
from seqloom.report.notebook import notebook_display

MOST_NUMBERS = 2**16  # of an array that is written in full
MOST_BLOCKS = 2**13  # of a larger array
DIGITS = 6  # of the numbers of blocks


def plain(value: Any) -> Any:
    """A value as plain JSON values, in full."""
    return JsonWriter(full=True).of(value)


class JsonWriter:
    """Converts values for JSON: arrays to lists, NaN and infinity to None, results to objects.

    `in_blocks` has the names and shapes of the arrays that were summarized in blocks.
    """

    def __init__(self, *, full: bool) -> None:
        self.full = full
        self.in_blocks: dict[str, list[int]] = {}

    def of(self, value: Any, name: str = "") -> Any:
        """A value as plain JSON values; `name` is used in `in_blocks`."""
        if isinstance(value, np.ndarray):
            return self._array(value, name)
        if isinstance(value, float | np.floating):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, np.integer | np.bool_):
            return value.item()
        if isinstance(value, View):
            value = value.json_values(full=self.full)
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
        if self.full or values.size <= MOST_NUMBERS or values.dtype.kind not in "fiub":
            return self._listed(values.tolist())
        self.in_blocks[name] = list(values.shape)
        return blocks(values)

    def _listed(self, values: Any) -> Any:
        if isinstance(values, list):
            return [self._listed(part) for part in values]
        return None if isinstance(values, float) and not math.isfinite(values) else values


def blocks(values: np.ndarray) -> dict[str, Any]:
    """An array in blocks: the mean, maximum and minimum of each, None for a block without values.

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
    """The mean of each block; NaN for a block without values."""
    count = _reduced(np.add, (~np.isnan(values)).astype(float), sides)
    total = _reduced(np.add, np.nan_to_num(values), sides)
    found: np.ndarray = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return found


def strongest_in(values: np.ndarray, *sides: int) -> np.ndarray:
    """The value with the largest absolute value in each block, with its sign; NaN for a block without values."""
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
    """A view of a model: its numbers as attributes, and methods to show and save it."""

    kind: ClassVar[str]
    title: str
    notes: tuple[str, ...] = ()  # on the input and the faithfulness: that the input was truncated, ...
    hints: tuple[str, ...] = ()  # what to try next; not part of a picture, which may be shown without the tool

    @abstractmethod
    def figures(self) -> tuple[Figure, ...]:
        """The figures, at least one."""

    @final
    def sentences(self) -> tuple[str, ...]:
        """The findings in sentences, followed by the notes and the hints."""
        return (*self._sentences(), *self.notes, *self.hints)

    def _sentences(self) -> tuple[str, ...]:
        """The findings of this kind of view."""
        return ()

    def _svg_sentences(self) -> tuple[str, ...]:
        """The sentences of a picture: by default the first one."""
        return self._sentences()[:1]

    @final
    def to_json(self, *, full: bool = False) -> dict[str, Any]:
        """The numbers as plain values for JSON; a missing one is None.

        Args:
            full: Include every number; otherwise large arrays are summarized in blocks and listed in `in_blocks`.
        """
        writer = JsonWriter(full=full)
        values: dict[str, Any] = writer.of(self)
        return values | {"notes": list(self.notes)} | ({"in_blocks": writer.in_blocks} if writer.in_blocks else {})

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        """The values of `to_json` by name: the kind and every field; views override it for other content.

        With `full` nothing is summarized.
        """
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}

    def document(self) -> Document:
        """The content of the view: sentences, then figures."""
        return Document(self.title, [*map(Paragraph, self.sentences()), *self._blocks()])

    def _blocks(self) -> Sequence[DocumentBlock]:
        """The content below the sentences: by default the figures."""
        return pictures(self.figures())

    def svg(self) -> str:
        """The figures as one SVG element; sentences and notes are below the first figure."""
        first, *others = self.figures()
        sentences = filter(None, (first.caption, *self._svg_sentences(), *self.notes))
        text = " ".join(one if one[-1] in ".?!" else f"{one}." for one in sentences)
        return stacked((replace(first, caption=text), *others))

    def save(self, path: str | Path, *, full: bool = False) -> Path:
        """Write the view to a file and return its path; the suffix decides the format.

        Args:
            path: A file that ends in .html, .md, .txt, .svg, .png or .json; an existing file is replaced.
            full: For .json: include every number, as `to_json(full=True)` does.
        """
        place = Path(path)
        if place.suffix not in WRITERS:
            raise ConfigError(
                f"a view cannot be saved as '{place.name}': unknown file suffix",
                fix=did_you_mean(place.suffix, WRITERS),
            )
        if full and place.suffix != JSON:
            raise ConfigError(
                f"full is only for JSON, and the file is {place.name}", fix=f"use a file that ends in {JSON}"
            )
        write_file(place, _json(self, full=True) if full else WRITERS[place.suffix](self))
        return place

    def show(self) -> None:
        """Show the view: in a notebook as a page, else as text on standard output."""
        show(self)


def pictures(figures: Sequence[Figure]) -> list[DocumentBlock]:
    """The figures, each of its own size."""
    return [Pictures([figure]) for figure in figures]


def _json(view: View, *, full: bool) -> bytes:
    return (json.dumps(view.to_json(full=full), ensure_ascii=False, allow_nan=False) + "\n").encode()


WRITERS: Mapping[str, Callable[[View], bytes]] = {
    ".html": lambda view: view.html().encode(),
    ".md": lambda view: view.markdown().encode(),
    ".svg": lambda view: view.svg().encode(),
    ".png": lambda view: png(view.svg()),
    JSON: lambda view: _json(view, full=False),
    ".txt": lambda view: view.text(100).encode(),
}


def show(result: Shown) -> None:
    """Show a result: in a notebook as a page, else as text on standard output."""
    if (display := notebook_display()) is not None:
        display(result)
        return
    columns = shutil.get_terminal_size((80, 24)).columns
    sys.stdout.write(result.text(max(NARROWEST, min(columns, WIDEST)), sys.stdout.isatty()))


def script(name: str) -> str:
    """The text of a script of `pages/`."""
    return files("seqloom.inspect").joinpath("pages", name).read_text(encoding="utf-8")


class Blocks(NamedTuple):
    """A curve [N] in blocks of `size` points."""

    size: int
    starts: list[float]
    mean: list[float]
    maximum: list[float]


def blocks_of(values: np.ndarray, most: int) -> Blocks:
    """A curve as the mean and the maximum of at most `most` blocks.

    NaN values do not count; a block of NaN is a gap.

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
    """A line chart of the mean and the maximum of blocks of a long curve."""
    blocks = blocks_of(values, POINTS)
    series = [
        Series(name=f"mean of {blocks.size}", x=blocks.starts, y=blocks.mean),
        Series(name=f"maximum of {blocks.size}", x=blocks.starts, y=blocks.maximum),
    ]
    return Line(title=title, series=series, x_label=x_label, y_label=y_label)


def _of_known(values: np.ndarray, reduced: Callable[[np.ndarray], np.floating]) -> float:
    known = values[~np.isnan(values)]
    return float(reduced(known)) if known.size else math.nan
