"""What holds for every figure, whatever its labels and values: laws over drawn inputs, and thirty hostile strings."""

import html
import html.parser
import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap, Tile, Tiles
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.network import Link, Links
from seqloom.report.figures.points import Points, Trail
from seqloom.report.figures.stack import page
from seqloom.report.figures.strip import Strip
from seqloom.report.labels import visible

SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "title", "desc", "style", "g", "rect", "path", "text", "line"}
ATTRIBUTES = {
    "x", "y", "x1", "y1", "x2", "y2", "d", "width", "height", "rx", "viewBox", "transform", "class", "role",
    "aria-label", "fill", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin", "stroke-dasharray",
    "stroke-opacity", "shape-rendering",
    "font-family", "font-size", "font-weight", "text-anchor", "direction", "unicode-bidi", "pointer-events",
}  # fmt: skip
PAGE_ELEMENTS = ELEMENTS | {"html", "head", "meta", "body", "main", "h1", "figure", "bdi"}
PAGE_ATTRIBUTES = {name.lower() for name in ATTRIBUTES} | {"xmlns", "charset", "http-equiv", "content", "name"}
ANSI = re.compile("\x1b\\[[0-9;]*m")
QUICK = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</text></svg><script>alert(1)</script>",
    "<svg onload=alert(1)>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    '" style="background:url(javascript:alert(1))',
    "<a href='javascript:alert(1)'>x</a>",
    "<a xlink:href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<foreignObject><body onload=alert(1)></foreignObject>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<style>@import 'https://example.org/x.css';</style>",
    "<use href='https://example.org/x.svg#a'/>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "&amp;lt;b&amp;gt; &nbsp; &bogus; & &",
    "]]><script>alert(1)</script><![CDATA[",
    "<!--><script>alert(1)</script>-->",
    "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>&e;",
    "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "\x1b[2J\x1b]0;title\x07\x1b[31mred\x9b31m",
    "one\r\nSet-Cookie: a=b\r\n\r\n<b>two\u2028three\u2029four\x85five",
    "abc\u202e\u2066<b>\u200f\ufeff\u200b\x7f\ud800\uffff\U000e0041",
]


def one_of_each(label: str) -> list[Figure]:
    """A figure of each kind with the label in every place that takes one."""
    words = {"title": label, "caption": label}
    series = [Series(name=label, x=[0, 1, 2], y=[1.0, None, 2.0]), Series(name="other", x=[0], y=[3.0])]
    return [
        Line(series=series, x_label=label, y_label=label, **words),
        Bars(labels=[label, "b"], values=[1.0, -2.0], intervals=[(0.5, 1.5), None], x_label=label, **words),
        Points(
            labels=[label, "b"],
            x=[1, 2],
            y=[1, 2],
            intervals=[(0, 3), None],
            marked=[True, False],
            x_label=label,
            y_label=label,
            **words,
        ),
        HeatMap(values=[[0.1, -0.2], [None, 4.0]], x_label=label, y_label=label, value_label=label, **words),
        Matrix(values=[[1.0, None]], rows=[label], columns=[label, "b"], x_label=label, y_label=label, **words),
        Strip(tokens=[label, "b"], values=[0.25, None], value_label=label, **words),
        Links(
            left=[label, "b"],
            right=[label],
            links=[Link(0, 0, 0.5, 1), Link(1, 0, 0.1)],
            groups=[label, "b"],
            left_label=label,
            right_label=label,
            value_label=label,
            **words,
        ),
        Tiles(tiles=[Tile(label, [[0.5, None]]), Tile("b", [[0.1], [0.2]])], across=2, value_label=label, **words),
        Trail(labels=[label, "b"], x=[1, 2], y=[0.5, -1], x_label=label, y_label=label, value_label=label, **words),
    ]


@cache
def plain_rectangles() -> dict[str, int]:
    """How many rectangles the figure of each kind has when its labels are harmless."""
    return {figure.kind: figure.svg().count("<rect") for figure in one_of_each("plain")}


KINDS = ["line", "bars", "points", "heat_map", "matrix", "strip", "links", "tiles", "trail"]

labels = st.text(st.characters(), max_size=12) | st.sampled_from(
    [*HOSTILE, "a label of many words " * 8, "گربه سیاه", "שלום", "词语 text", "👩‍🚀", " "]
)
numbers = st.none() | st.floats(-1e100, 1e100) | st.floats(-2, 2) | st.integers(-5, 5) | st.just(float("nan"))
real = st.floats(-1e100, 1e100) | st.integers(0, 9)


@st.composite
def series(draw: st.DrawFn) -> Series:
    points = draw(st.lists(st.tuples(real, numbers), min_size=1, max_size=12))
    x = sorted(float(point[0]) for point in points)
    y = [point[1] for point in points]
    y[draw(st.integers(0, len(y) - 1))] = draw(real)
    return Series(name=draw(labels), x=x, y=y)


@st.composite
def figures(draw: st.DrawFn) -> Figure:
    words = {"title": draw(labels), "caption": draw(labels)}
    kind = draw(st.sampled_from(KINDS))
    if kind == "line":
        found = draw(st.lists(series(), min_size=1, max_size=3))
        return Line(series=found, x_label=draw(labels), y_label=draw(labels), **words)
    count, rows = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    names = draw(st.lists(labels, min_size=count, max_size=count))
    values = draw(st.lists(numbers, min_size=count, max_size=count))
    if kind == "bars":
        around = [None if v is None or v != v else (v - abs(v) / 2, v + abs(v) / 2) for v in values]
        around = [None if pair and max(map(abs, pair)) > 1e100 else pair for pair in around]
        return Bars(
            labels=names, values=values, intervals=draw(st.none() | st.just(around)), x_label=draw(labels), **words
        )
    if kind == "points":
        places = [draw(st.lists(real, min_size=count, max_size=count)) for _ in "xy"]
        around = [(v, v) if n % 2 else None for n, v in enumerate(places[1])]
        marked = draw(st.none() | st.just([n % 2 == 0 for n in range(count)]))
        return Points(
            labels=names, x=places[0], y=places[1], intervals=around, marked=marked, x_label=names[0], **words
        )
    if kind == "trail":
        places = [draw(st.lists(real, min_size=count, max_size=count)) for _ in "xy"]
        return Trail(labels=names, x=places[0], y=places[1], x_label=names[0], y_label=draw(labels), **words)
    if kind == "strip":
        return Strip(tokens=names, values=values, value_label=draw(labels), **words)
    table = draw(st.lists(st.lists(numbers, min_size=count, max_size=count), min_size=rows, max_size=rows))
    axes = {"x_label": draw(labels), "y_label": draw(labels)}
    if kind == "links":
        drawn = st.builds(Link, st.integers(0, count - 1), st.integers(0, count - 1), st.floats(0, 1e100))
        sides = {"left_label": names[0], "right_label": draw(labels), "groups": draw(st.just(()) | st.just(names))}
        return Links(left=names, right=names, links=draw(st.lists(drawn, max_size=9)), **sides, **words)
    if kind == "tiles":
        tiles = [Tile(name, table) for name in names]
        return Tiles(tiles=tiles, across=rows, value_label=draw(labels), **words)
    if kind == "heat_map":
        return HeatMap(values=table, value_label=draw(labels), **axes, **words)
    return Matrix(
        values=table, rows=draw(st.lists(labels, min_size=rows, max_size=rows)), columns=names, **axes, **words
    )


def breadth(line: str) -> int:
    """Terminal columns, counted apart from the library: wide characters two, marks and format characters none."""
    wide = {"W": 2, "F": 2}
    silent = ("Mn", "Me", "Cf")
    return sum(0 if unicodedata.category(c) in silent else wide.get(unicodedata.east_asian_width(c), 1) for c in line)


def assert_only_what_is_allowed(markup: str) -> ElementTree.Element:
    root = ElementTree.fromstring(markup.encode())
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS
        assert set(element.attrib) <= ATTRIBUTES
        assert not any(
            "url" in value or "javascript" in value for key, value in element.attrib.items() if key != "aria-label"
        )
    return root


@pytest.mark.slow
@QUICK
@given(figure=figures())
def test_svg_is_xml_with_allowed_elements_only(figure: Figure) -> None:
    root = assert_only_what_is_allowed(figure.svg())
    assert root.attrib["role"] == "img"
    assert root[0].tag == f"{SVG}title" and root[0].text == (visible(figure.title) or None)
    assert root[1].tag == f"{SVG}desc" and root[1].text


@pytest.mark.slow
@QUICK
@given(figure=figures())
def test_every_coordinate_is_a_finite_number_inside_the_picture(figure: Figure) -> None:
    root = ElementTree.fromstring(figure.svg().encode())
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for element, down in placed(root, 0.0):
        place = {key: float(element.attrib[key]) for key in ("x", "x1", "x2", "y", "y1", "y2") if key in element.attrib}
        right = float(element.attrib["width"]) if element.tag == f"{SVG}rect" else 0.0
        below = float(element.attrib["height"]) if element.tag == f"{SVG}rect" else 0.0
        assert all(place[key] >= -0.1 and place[key] + right <= width + 0.1 for key in place if key[0] == "x")
        assert all(-0.1 <= down + place[key] <= height + 0.1 - below for key in place if key[0] == "y")
        assert not {"nan", "inf"} & set(re.findall("[a-z]+", element.attrib.get("d", "")))


def placed(element: ElementTree.Element, down: float) -> Iterator[tuple[ElementTree.Element, float]]:
    """Every element inside with the distance by which the groups around it are moved down."""
    for child in element:
        moved = re.fullmatch(r"translate\(0 ([\d.]+)\)", child.attrib.get("transform", ""))
        yield child, down
        yield from placed(child, down + (float(moved[1]) if moved else 0.0))


@QUICK
@given(figure=figures(), width=st.integers(40, 120), color=st.booleans())
def test_text_keeps_to_its_width_and_emits_no_control_character(figure: Figure, width: int, color: bool) -> None:
    written = figure.text(width, color=color)
    plain = ANSI.sub("", written) if color else written
    for line in plain.split("\n"):
        assert breadth(line) <= width
        assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
        assert line.count("\u2068") == line.count("\u2069")
    plain.encode()


@pytest.mark.slow
@QUICK
@given(figure=figures())
def test_data_is_json_with_the_kind_first(figure: Figure) -> None:
    data = figure.data()
    assert next(iter(data)) == "kind" and data["kind"] in KINDS
    again = json.loads(json.dumps(data, allow_nan=False))
    assert again == data


@pytest.mark.slow
@QUICK
@given(figure=figures())
def test_equal_figures_are_drawn_equally_and_notebooks_show_the_same(figure: Figure) -> None:
    assert figure.svg() == figure.svg() == figure._repr_svg_() == figure._repr_html_()
    assert hash(figure) == hash(figure)


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_label_becomes_text_and_nothing_else(hostile: str) -> None:
    for figure in one_of_each(hostile):
        root = assert_only_what_is_allowed(drawn := figure.svg())
        texts = ["".join(element.itertext()) for element in root.iter() if element.tag != f"{SVG}style"]
        assert any(visible(hostile) in text for text in texts)
        assert root.find(f"{SVG}style").text.count("{") == root.find(f"{SVG}style").text.count("}")
        assert drawn.count("<rect") == plain_rectangles()[figure.kind]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_label_in_a_page_becomes_text_and_nothing_else(hostile: str) -> None:
    reader = Reader()
    reader.feed(page(hostile, one_of_each(hostile)))
    reader.close()
    assert reader.elements <= PAGE_ELEMENTS
    assert reader.attributes <= PAGE_ATTRIBUTES
    assert reader.others == ["DOCTYPE html"]
    assert visible(hostile) in "".join(reader.texts)


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_label_reaches_a_terminal_only_as_visible_escapes(hostile: str) -> None:
    for figure in one_of_each(hostile):
        written = figure.text(100)
        assert not [c for c in written if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c != "\n"]
        allowed = {"\u2068", "\u2069"}
        assert {c for c in written if unicodedata.category(c) == "Cf"} <= allowed


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.others: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_decl(self, decl: str) -> None:
        self.others.append(decl)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)


def test_page_forbids_everything_but_inline_style_and_refers_to_nothing() -> None:
    document = page("Results", one_of_each("a"))
    assert 'content="default-src &#x27;none&#x27;; style-src &#x27;unsafe-inline&#x27;"' in document
    assert set(re.findall(r"https?://[^\s\"<]+", document)) == {"http://www.w3.org/2000/svg"}
    assert document.count("<style>") == 1
    assert document.count("<svg ") == len(KINDS)


@pytest.mark.slow
@given(label=st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8))
@QUICK
def test_ordinary_labels_appear_as_they_are(label: str) -> None:
    shown = html.escape(label, quote=True)
    for figure in one_of_each(label):
        assert shown in figure.svg()


def test_dark_and_light_are_both_given() -> None:
    for figure in one_of_each("a"):
        drawn = figure.svg()
        assert "@media (prefers-color-scheme:dark)" in drawn
        used = set(re.findall(r'class="(sl-[a-z0-9]+)"', drawn))
        ruled = set(re.findall(r"\.seqloom \.(sl-[a-z0-9]+)\{(?:fill|stroke):", drawn))
        assert used and used == ruled
