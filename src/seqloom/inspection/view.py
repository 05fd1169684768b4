"""What all views are: frozen results with their numbers, which show and save themselves.

    view.to_json()      the numbers, as programs read them: very many of them by blocks, unless to_json(whole=True)
    view.show()         in a terminal as text, in a notebook as a picture
    view.save(path)     .html .svg .png .json .txt

A view gives figures that suit its size: with few tokens every label and number, with hundreds a map, with thousands a
summary and the places worth looking at. The same figures serve every surface.
"""

import json
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, final

from seqloom.durable import write_file
from seqloom.errors import ConfigError, did_you_mean
from seqloom.figures import Figure
from seqloom.figures.markup import Markup, tag
from seqloom.figures.page import SHEET, document, framed
from seqloom.figures.stack import png, stacked
from seqloom.figures.words import visible, wrap
from seqloom.inspection.plain_values import Teller, Telling

SMALL, MEDIUM = 64, 512  # tokens: up to the first every label is shown, up to the second every cell
JSON = ".json"


@dataclass(frozen=True, kw_only=True)
class View(Teller, ABC):
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
        """What `to_json` tells, by name: the kind, and every field; kinds of views that tell something else say so."""
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}

    def text(self, width: int = 80, *, colour: bool = False) -> str:
        """The view as lines of at most `width` columns."""
        drawn = [figure.text(width, colour) for figure in self.figures()]
        said = self.prose(width)
        return "\n\n".join([*drawn, *([said] if said else [])])

    def prose(self, width: int) -> str:
        """The sentences as lines of at most `width` columns; tokens in them may hold what steers a terminal."""
        return "\n".join(line for sentence in self.sentences() for line in wrap(visible(sentence), width))

    def svg(self) -> str:
        """The figures as one SVG element; what is said first about it, and what was noted, stands below the first."""
        first, *others = self.figures()
        said = " ".join(map(_ended, filter(None, (first.caption, *self._sentences()[:1], *self.notes))))
        return stacked((replace(first, caption=said), *others))

    def html(self) -> str:
        """The view as one HTML file that needs nothing else."""
        return document(self.title, [tag("h1", self.title), *self.body()], SHEET)

    def body(self) -> list[Markup]:
        """What stands below the title of the page."""
        said = [tag("p", sentence) for sentence in self.sentences()]
        return [*said, *framed(self.title, self.figures())]

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
        """Nothing; the view is shown: in a notebook as a picture, else as text on standard output."""
        if (display := notebook()) is not None:
            display(self)
            return
        columns = shutil.get_terminal_size((80, 24)).columns
        sys.stdout.write(self.text(max(40, min(columns, 160)), colour=sys.stdout.isatty()) + "\n")

    def _repr_html_(self) -> str:
        return "".join([tag("h3", self.title), *self.body()])


def _ended(sentence: str) -> str:
    return sentence if sentence[-1] in ".?!" else f"{sentence}."


def _json(view: View, *, whole: bool) -> bytes:
    return (json.dumps(view.to_json(whole=whole), ensure_ascii=False, allow_nan=False) + "\n").encode()


WRITERS: Mapping[str, Callable[[View], bytes]] = {
    ".html": lambda view: view.html().encode(),
    ".svg": lambda view: view.svg().encode(),
    ".png": lambda view: png(view.svg()),
    JSON: lambda view: _json(view, whole=False),
    ".txt": lambda view: (view.text(100) + "\n").encode(),
}


def notebook() -> Callable[[Any], Any] | None:
    """What shows a value in a notebook, where one is running."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    found: Callable[[Any], Any] = display
    return found
