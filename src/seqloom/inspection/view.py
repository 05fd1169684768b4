"""What all views are: frozen results with their numbers, which show and save themselves.

    view.to_json()      the numbers, as programs read them
    view.show()         in a terminal as text, in a notebook as a picture
    view.save(path)     .html .svg .png .json .txt

A view gives figures that suit its size: with few tokens every label and number, with hundreds a map, with thousands a
summary and the places worth looking at. The same figures serve every surface.
"""

import json
import math
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqloom.durable import write_file
from seqloom.errors import ConfigError, did_you_mean
from seqloom.figures import Figure
from seqloom.figures.markup import Markup, tag
from seqloom.figures.page import document
from seqloom.figures.stack import png, stacked
from seqloom.figures.words import visible

SMALL, MEDIUM = 64, 512  # tokens: up to the first every label is shown, up to the second every cell


@dataclass(frozen=True, kw_only=True)
class View(ABC):
    """A look inside a model, as a value."""

    kind: ClassVar[str]
    title: str

    @abstractmethod
    def figures(self) -> tuple[Figure, ...]:
        """The pictures of it, at least one, by its size."""

    def sentences(self) -> tuple[str, ...]:
        """What there is to say about it in words, one line each."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain values that JSON can hold; a missing one is None."""
        return {"kind": self.kind, **{field.name: plain(getattr(self, field.name)) for field in fields(self)}}

    def text(self, width: int = 80, *, colour: bool = False) -> str:
        """The view as lines of at most `width` columns."""
        drawn = [figure.text(width, colour) for figure in self.figures()]
        said = "\n".join(map(visible, self.sentences()))  # tokens may hold what steers a terminal
        return "\n\n".join([*drawn, *([said] if said else [])])

    def svg(self) -> str:
        """The figures as one SVG element; what is said first about the view stands below the first of them."""
        first, *others = self.figures()
        said = " ".join(filter(None, (first.caption, *self.sentences()[:1])))
        return stacked((replace(first, caption=said), *others))

    def html(self) -> str:
        """The view as one HTML file that needs nothing else."""
        return document(self.title, [tag("h1", self.title), *self.body()])

    def body(self) -> list[Markup]:
        """What stands below the title of the page."""
        said = [tag("p", sentence) for sentence in self.sentences()]
        return [*said, *(tag("figure", figure.drawn(styled=False)) for figure in self.figures())]

    def save(self, path: str | Path) -> Path:
        """The file that was written, of the kind that its ending says; a file that is there is replaced at once."""
        place = Path(path)
        if place.suffix not in WRITERS:
            raise ConfigError(
                f"'{place.name}' has the ending of no kind of file that a view is saved as",
                fix=did_you_mean(place.suffix, WRITERS),
            )
        write_file(place, WRITERS[place.suffix](self))
        return place

    def show(self) -> None:
        """Nothing; the view is shown: in a notebook as a picture, else as text on standard output."""
        if (display := notebook()) is not None:
            display(self)
            return
        columns = shutil.get_terminal_size((80, 24)).columns
        sys.stdout.write(self.text(max(40, min(columns, 160)), colour=sys.stdout.isatty()) + "\n")

    def _repr_html_(self) -> str:
        return "".join(self.body())


WRITERS: Mapping[str, Callable[[View], bytes]] = {
    ".html": lambda view: view.html().encode(),
    ".svg": lambda view: view.svg().encode(),
    ".png": lambda view: png(view.svg()),
    ".json": lambda view: (json.dumps(view.to_json(), ensure_ascii=False, allow_nan=False) + "\n").encode(),
    ".txt": lambda view: (view.text(100) + "\n").encode(),
}


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, NaN and infinity as None, results as objects."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, View):
        return value.to_json()
    if hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value


def notebook() -> Callable[[Any], Any] | None:
    """What shows a value in a notebook, where one is running."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    found: Callable[[Any], Any] = display
    return found
