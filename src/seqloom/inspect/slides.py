"""Slides: one view for several layers, heads or positions, with a tab for each."""

from dataclasses import dataclass
from typing import Any

from seqloom.inspect.view import View, show
from seqloom.report.document import Document, Paragraph, Shown
from seqloom.report.tabs import Tabs


@dataclass(frozen=True)
class Slides(Shown):
    """The same view for several values of one of its options.

    Attributes:
        option: the name of the option, such as "head".
        values: its values.
        views: the view for each value.
    """

    option: str
    values: tuple[Any, ...]
    views: tuple[View, ...]

    def document(self) -> Document:
        """The views in tabs."""
        panels = []
        for value, view in zip(self.values, self.views, strict=True):
            content = view.document()
            panels.append((f"{self.option} {value}", [Paragraph(content.title), *content.blocks]))
        return Document(f"{self.views[0].kind} by {self.option}", [Tabs.of("slide", panels)])

    def to_json(self) -> dict[str, Any]:
        """The values of the option, and the numbers of each view."""
        return {"option": self.option, "values": list(self.values), "views": [view.to_json() for view in self.views]}

    def show(self) -> None:
        """Show the slides: in a notebook as a page with tabs, else as text, one after the other."""
        show(self)

    def __repr__(self) -> str:
        return f"Slides({self.views[0].kind}, {self.option}: {', '.join(map(str, self.values))})"
