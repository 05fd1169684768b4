"""Tabs: one panel of several is visible on a page, without a script; other formats show all of them."""

from dataclasses import dataclass

import pytest

from pages_common import Elements
from seqloom.report.document import Details, Document, Interactive, Paragraph, TableBlock
from seqloom.report.figures.markup import Markup, tag
from seqloom.report.html import TALLEST
from seqloom.report.labels import visible
from seqloom.report.tabs import Tabs

HOSTILE = "</style><script>alert(1)</script>\x1b[31m\u202e"


@dataclass(frozen=True)
class Counter(Interactive):
    """A block with a script."""

    def markup(self) -> list[Markup]:
        return [tag("p", "moving")]

    def script(self) -> str:
        return "document.title = 'counted'"


def test_a_page_has_a_button_for_each_panel_and_the_first_is_chosen() -> None:
    tabs = Tabs.of("layer", [(f"layer {at}", [Paragraph(f"text {at}")]) for at in range(3)])
    page = Document("t", [tabs]).html()
    assert page.count('type="radio"') == 3 and page.count(" checked=") == 1 and page.count("<section>") == 3
    for at in range(3):
        assert f'id="layer-{at}"' in page and f'<label for="layer-{at}">layer {at}</label><section>' in page
    assert page.index("checked=") < page.index("text 0") < page.index('id="layer-1"')
    assert ".tabs>input:checked+label+section{display:block}" in page, "the style sheet chooses, not a script"
    assert "<script" not in page and "script-src" not in page
    assert Document("t", [tabs])._repr_html_().startswith("<iframe sandbox srcdoc=")


def test_other_formats_show_every_panel_below_its_title() -> None:
    tabs = Tabs.of("head", [("head 0", [Paragraph("first")]), ("head 1", [Paragraph("second")])])
    found = Document("t", [tabs])
    for shown in (found.text(), found.markdown(), str(found.to_json())):
        assert shown.index("head 0") < shown.index("first") < shown.index("head 1") < shown.index("second")


def test_hostile_titles_and_content_do_nothing_and_scripts_of_panels_are_left_out() -> None:
    moving = Counter([Paragraph("still")])
    page = Document("t", [Tabs.of("part", [(HOSTILE, [Paragraph(HOSTILE), moving])])]).html()
    elements = Elements(page)
    assert "script" not in elements.names and visible(HOSTILE) in "".join(elements.texts)
    assert "still" in page and "moving" not in page


@pytest.mark.parametrize(("rows", "height"), [(1, 188), (4, 299), (100, TALLEST)])
def test_a_small_result_has_a_small_frame(rows: int, height: int) -> None:
    table = TableBlock(("a", "b"), [("x", 1.0)] * rows)
    assert f"height:{height}px" in Document("t", [table])._repr_html_()
    more = Document("t", [table, Details("d", [Paragraph("p")])])._repr_html_()
    assert f"height:{min(TALLEST, height + 38)}px" in more
