"""One document in every form: the same facts, nothing hidden, no line too wide, and what is empty left out."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass

import pytest

from pages_common import Elements
from seqloom.errors import DataError
from seqloom.report.document import (
    Aside,
    Bar,
    Bullets,
    Callout,
    Code,
    CodeBlock,
    Details,
    Document,
    DocumentBlock,
    Heading,
    Interactive,
    KeyFigures,
    Mark,
    MarkedText,
    Paragraph,
    Paragraphs,
    Pictures,
    Quote,
    Spans,
    TableBlock,
    TextMark,
)
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.markup import Markup, tag
from seqloom.report.labels import columns, visible

HOSTILE = "</style><script>alert(1)</script>\x1b[31m\u202e`|* \n# x"
PICTURE = Bars(title="Scores", labels=["a", "b"], values=[0.5, 0.75])


def blocks(text: str) -> tuple[DocumentBlock, ...]:
    """A block of every kind, with this text wherever a text can be."""
    line = Spans(Mark("warn"), Code(text), f" in {text}")
    return (
        Callout(line, "reject"),
        MarkedText(text, [TextMark(0, len(text), text, text)]),
        Aside(text),
        KeyFigures([(12345.6, text), ("412 MB", "of memory")]),
        Heading(line),
        Paragraph(line),
        Bullets([text, line]),
        Quote([text, line]),
        CodeBlock(text, "toml"),
        TableBlock((text, "value", ""), [(line, 0.93333, Bar(0.5)), (Paragraphs(text, line), None, Bar(0.0))]),
        Pictures([PICTURE, PICTURE], brief=1),
        Details(text, [Paragraph(text)]),
    )


def test_hostile_text_is_shown_and_does_nothing_in_any_form() -> None:
    found = Document(HOSTILE, blocks(HOSTILE))
    page, text, marked = found.html(), found.text(100), found.markdown()
    elements = Elements(page)
    assert elements.names.isdisjoint({"script", "link", "img"}) and elements.attributes.isdisjoint({"src", "href"})
    assert visible(HOSTILE) in "".join(elements.texts)
    for shown in (page, text, marked):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", shown)
    outside = re.sub(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)", "", marked, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<script|^# x", outside, re.MULTILINE)
    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    assert found._repr_html_().startswith("<iframe sandbox srcdoc=")


@pytest.mark.slow
@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_asked_for(width: int, color: bool) -> None:
    for text in ("a", "词" * 300, "many words " * 40, "שלום " * 50, "x" * 500):
        lines = Document(text, blocks(text)).text(width, color).split("\n")
        assert max(columns(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines) <= width


@dataclass(frozen=True)
class Greeting(Interactive):
    """A block with a script that reads a name."""

    name: str

    def markup(self) -> list[Markup]:
        return [tag("p", "nobody yet", id="greeted")]

    def script(self) -> str:
        return "document.getElementById('greeted').textContent = JSON.parse(data.textContent).name"

    def data(self) -> dict[str, str]:
        return {"name": self.name}


def test_a_page_runs_the_script_of_a_block_alone_and_other_forms_show_something_else() -> None:
    hostile = "</script><script>alert(1)</script>"
    block = Greeting([Heading("Greeting"), Paragraph("hello"), Pictures([])], hostile)
    found = Document("Scores", [Paragraph("first"), block, Pictures([PICTURE])])
    page = found.html()
    assert page.count("<script") == 2 and "<script>alert" not in page and "nobody yet" in page and "hello" not in page
    named = base64.b64encode(hashlib.sha256(block.script().encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{named}&#x27;" in page and "script-src" not in Document("t", [Aside("a")]).html()
    assert found._repr_html_().startswith('<iframe sandbox="allow-scripts" srcdoc=')
    for shown in (found.text(), found.markdown(), str(found.to_json())):
        assert "Greeting" in shown and "hello" in shown and "nobody" not in shown and "alert" not in shown
    assert found.text().count("Scores") == found.markdown().count("Scores") == 1, "a figure repeats no title"
    assert [one["kind"] for one in found.to_json()["blocks"]] == ["paragraph", "heading", "paragraph", "pictures"]


def test_the_same_value_looks_the_same_in_every_form() -> None:
    found = Document(
        "Run", (TableBlock(("metric", "value"), [("mse", 12345.6), ("loss", None)]), KeyFigures([(12345.6, "mse")]))
    )
    for shown in (found.text(), found.html(), found.markdown()):
        assert shown.count("12,346") == 2 and "12345" not in shown
    assert found.to_json()["blocks"][0]["rows"] == [["mse", 12345.6], ["loss", None]]


def test_what_is_empty_is_left_out_and_so_is_a_heading_with_nothing_below() -> None:
    empty = [Heading("A"), Paragraph(""), TableBlock(("x",), []), Heading("B"), Heading("C", 3), Pictures([])]
    assert Document("t", [*empty, Details("d", [Bullets([])])]).blocks == ()
    kept = Document("t", [*empty, Heading("D"), Heading("E", 3), Paragraph("text")]).blocks
    assert [type(block).__name__ for block in kept] == ["Heading", "Heading", "Paragraph"]


def test_a_table_that_is_too_wide_wraps_its_texts_and_then_lists_columns_below() -> None:
    words = TableBlock(("code", "text"), [("x.odd", "word " * 30)])
    lines = Document("t", [words]).text(50).split("\n")
    assert lines[2] == "code   text" and all(line.startswith("       word") for line in lines[4:-1])
    many = TableBlock([f"name{at}" for at in range(9)], [[f"value {at}" for at in range(9)]])
    text = Document("t", [many]).text(50)
    assert all(f"value {at}" in text for at in range(9)) and "· name7 value 7" in text


def test_numbers_of_a_column_stand_with_their_points_below_each_other() -> None:
    table = TableBlock(("metric", "value"), [("accuracy", 0.5), ("mse", 12345.6), ("loss", 0.1234), ("r2", None)])
    assert Document("t", [table]).text().split("\n")[3:7] == [
        "accuracy       0.5",
        "mse       12,346",
        "loss           0.1234",
        "r2",
    ]


def test_a_terminal_shows_the_first_rows_and_counts_the_others_and_a_page_has_all() -> None:
    table = TableBlock(("n",), [(f"row {at}",) for at in range(9)], brief=2)
    found = Document("t", [table, Details("more", [Paragraph("folded")])])
    assert "row 1\nand 7 more" in found.text() and "row 2" not in found.text() and "folded" not in found.text()
    assert "row 8" in found.html() and "<details><summary>more</summary><p>folded</p>" in found.html()


def test_marked_text_is_colored_on_a_page_and_has_labels_in_brackets_elsewhere() -> None:
    text = "Ada <i> met\nBo, the [great]"
    block = MarkedText(text, [TextMark(0, 3, "PER"), TextMark(12, 14, "<x>", 'confidence "1"')], ["LOC", "PER"])
    found = Document("Names", [block])
    page = found.html()
    assert '<mark class="m1">Ada<small>PER</small></mark> &lt;i&gt; met <mark' in page
    assert 'title="confidence &quot;1&quot;">Bo<small>&lt;x&gt;</small></mark>' in page
    light, dark = page.split("@media (prefers-color-scheme:dark){.marked", 1)
    assert ".marked .m1{background:#ab3b00" in light and ".m1{background:#e97a38" in dark
    assert "[Ada](PER)" in found.text(60) and r"\[Ada\](PER)" in found.markdown()
    assert found.to_json()["blocks"][0]["marks"][0] == [0, 3, "PER", ""]
    assert ".marked" not in Document("Names", [Paragraph(text)]).html()


@pytest.mark.parametrize("marks", [[(2, 2)], [(0, 9)], [(2, 4), (3, 5)], [(3, 5), (0, 1)]])
def test_marks_that_overlap_or_lie_outside_the_text_are_refused(marks: list[tuple[int, int]]) -> None:
    with pytest.raises(DataError, match="give marks in order"):
        MarkedText("a text", [TextMark(*one, "X") for one in marks]).line()
