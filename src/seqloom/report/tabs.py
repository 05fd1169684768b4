"""Tabs of an HTML page: one panel of several is visible. They need no script, so they work where scripts are blocked.

Each tab is a radio button, its label and its panel. The style sheet shows the panel of the checked button. The arrow
keys go through the tabs, like a slider. When a page is printed, all panels are visible.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from seqloom.report.document import DocumentBlock, Heading, Interactive, filled
from seqloom.report.figures.markup import Markup, tag
from seqloom.report.html import drawn

RULES = (
    ".tabs{display:flex;flex-wrap:wrap;gap:4px;margin:16px 0}.tabs>input{position:absolute;opacity:0}"
    ".tabs>label{padding:3px 10px;border:1px solid var(--rule);border-radius:6px;cursor:pointer;font-size:13px}"
    ".tabs>input:checked+label{background:var(--panel);border-color:var(--bar);font-weight:600}"
    ".tabs>input:focus-visible+label{outline:2px solid var(--bar)}"
    ".tabs>section{order:1;width:100%;display:none}.tabs>input:checked+label+section{display:block}"
    ".tabs figure{margin:12px 0 12px -20px}@media print{.tabs>section{display:block}}"
)


@dataclass(frozen=True)
class Tabs(Interactive):
    """Panels of a page with a button for each; other formats show them one after the other, below headings."""

    rules: ClassVar[str] = RULES
    name: str  # unique on the page, a word of letters
    panels: Sequence[tuple[str, Sequence[DocumentBlock]]]  # the title and the content of each

    @classmethod
    def of(cls, name: str, panels: Sequence[tuple[str, Sequence[DocumentBlock]]]) -> "Tabs":
        """Create tabs. Content with a script is replaced by its figures and texts, because a page has one script."""
        still = [
            (
                title,
                filled([part for one in content for part in (one.blocks if isinstance(one, Interactive) else [one])]),
            )
            for title, content in panels
        ]
        return cls([block for title, blocks in still for block in (Heading(title, 3), *blocks)], name, still)

    def markup(self) -> list[Markup]:
        parts = list[Markup]()
        for at, (title, blocks) in enumerate(self.panels):
            checked = {"checked": "checked"} if at == 0 else {}
            button = f"{self.name}-{at}"
            parts.append(tag("input", type="radio", name=self.name, id=button, **checked))
            parts.append(tag("label", title, for_=button))
            parts.append(tag("section", *map(drawn, blocks)))
        return [tag("div", *parts, class_="tabs")]
