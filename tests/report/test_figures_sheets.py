"""Figures together and in words: pictures of several, pages, labels that keep all of their letters, faces of a PNG."""

import io
import itertools
import math
import random
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from pictures_common import SVG, Drawn, Picture
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.network import Edge, Link, Links, Network, Node
from seqloom.report.figures.stack import EAST_ASIAN, FACES, page, png, stacked, with_faces
from seqloom.report.figures.strip import Strip
from seqloom.report.html import STYLES


def written(svg: str) -> list[str]:
    """The text of the labels, in their order."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def size_of(svg: str) -> tuple[float, float]:
    width, height = ElementTree.fromstring(svg).attrib["viewBox"].split()[2:]
    return float(width), float(height)


def boxes_of(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each figure of several."""
    found = re.findall(
        r'<g transform="translate\(([\d.]+) ([\d.]+)\)"><svg xmlns.*? width="([\d.]+)" height="([\d.]+)"', svg
    )
    return [(float(x), float(y), float(x) + float(w), float(y) + float(h)) for x, y, w, h in found]


@pytest.mark.parametrize("count", [2, 3, 9])
def test_figures_of_one_picture_do_not_overlap(count: int) -> None:
    draw = random.Random(count)
    sizes = [(draw.randint(1, 12), draw.randint(1, 12)) for _ in range(count)]
    figures = [Matrix(title="t", values=[[1.0] * w] * h, rows=["r"] * h, columns=["c"] * w) for w, h in sizes]
    svg = stacked(figures)
    boxes, (width, height) = boxes_of(svg), size_of(svg)
    assert len(boxes) == count
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert max(box[2] for box in boxes) <= width and max(box[3] for box in boxes) <= height


def test_many_figures_get_two_columns_and_few_keep_one() -> None:
    line = Line(title="t", series=[Series(name="a", x=[0, 1], y=[0, 1])])
    few, many = size_of(stacked([line] * 2)), size_of(stacked([line] * 8))
    assert few[0] == 720 and many[0] == 1440
    assert many[1] < 1.6 * many[0]


def test_a_tall_figure_leaves_no_empty_column_beside_it() -> None:
    line = Line(title="t", series=[Series(name="a", x=[0, 1], y=[0, 1])])
    tall = Bars(title="t", labels=[str(at) for at in range(40)], values=[1.0] * 40)
    boxes = boxes_of(stacked([tall, line, line]))
    assert [box[0] for box in boxes] == [0, 720, 720] and boxes[2][1] >= boxes[1][3]


def test_figures_of_one_size_are_read_row_by_row() -> None:
    line = Line(title="t", series=[Series(name="a", x=[0, 1], y=[0, 1])])
    places = [(top, left) for left, top, _, _ in boxes_of(stacked([line] * 8))]
    assert places == sorted(places)


def test_a_page_says_its_title_once_and_figures_of_other_titles_keep_theirs() -> None:
    bars, strip = Bars(title="Results", labels=["a"], values=[1.0]), Strip(title="More", tokens=["a"], values=[1.0])
    first, second = re.findall(r"<svg.*?</svg>", page("Results", [bars, strip]))
    assert "Results" not in written(first) and "More" in written(second)
    assert page("Results", [bars]).count(">Results<") == 3  # of the window, the heading, and for readers of the picture


def test_words_of_a_page_begin_where_the_pictures_do() -> None:
    heading = next(
        text
        for text in ElementTree.fromstring(Bars(title="t", labels=["a"], values=[1.0]).svg()).iter(f"{SVG}text")
        if text.text == "t"
    )
    assert heading.attrib["x"] == "20" and "margin:12px 0 12px -20px" in STYLES
    assert "main>figure{margin-left:-24px}main>figure>svg{zoom:1.2}" in STYLES  # of one that is drawn a fifth larger


def test_a_token_has_the_same_form_in_every_kind_of_figure() -> None:
    tokens = [" 3", "", "of "]
    values = [[1.0, 2.0, 3.0]] * 3
    figures: list[Figure] = [
        Strip(title="t", tokens=tokens, values=values[0]),
        Matrix(title="t", rows=tokens, columns=tokens, values=values),
        Links(title="t", left=tokens, right=tokens, links=[Link(at, at, 1.0) for at in range(3)]),
    ]
    for figure, sides in zip(figures, (1, 2, 2), strict=True):
        for form in ("␣3", "∅", "of␣"):
            assert written(figure.svg()).count(form) == figure.text(60).count(form) == sides


def test_no_word_is_lost_in_a_terminal() -> None:
    long = "an overlap of the top tenth of all of the tokens"
    nodes = [Node(0, row, f"tag-{row}", 0.1 * row) for row in range(30)]
    figures: list[Figure] = [
        Matrix(title="t", rows=[long], columns=[long], values=[[1.0]]),
        Bars(title="t", labels=[long], values=[1.0]),
        Links(
            title="t", left=["a"], right=[f"b{at}" for at in range(40)], links=[Link(0, at, 1.0) for at in range(40)]
        ),
    ]
    for figure, words in zip(figures, (long.split(), long.split(), [f"b{at}" for at in range(40)]), strict=True):
        said = re.split(r"[\s│█,]+", figure.text(60))
        assert all(said.count(word) >= words.count(word) for word in words)
    said = Network(title="t", nodes=nodes, edges=[]).text(60)
    assert all(f"tag-{row} " in said.replace("\n", " ") for row in range(30))


def corners(one: Drawn) -> tuple[float, float, float, float]:
    x, y = one.x + one.number("x"), one.y + one.number("y")
    return x, y, x + one.number("width"), y + one.number("height")


def test_numbers_on_the_lines_of_a_network_touch_neither_boxes_nor_one_another() -> None:
    draw = random.Random(3)
    nodes = [Node(column, row, "0.25", draw.random()) for column in range(8) for row in range(4)]
    paths = [[4 * column + draw.randrange(4) for column in range(8)] for _ in range(2)]
    edges = [
        Edge(a, b, group, f"{draw.uniform(-9, 9):.2f}")
        for group, path in enumerate(paths)
        for a, b in itertools.pairwise(path)
    ]
    picture = Picture(Network(title="t", nodes=nodes, edges=edges, groups=["best", "second"]).svg())
    boxes = [corners(one) for one in picture.rectangles() if one.element.get("rx") == "4"]
    grounds = [corners(one) for one in picture.rectangles() if one.element.get("rx") == "2"]
    assert len(boxes) == 32 and len(grounds) == len({(edge.start, edge.stop, edge.text) for edge in edges})
    for one, other in [*itertools.product(grounds, boxes), *itertools.combinations(grounds, 2)]:
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert not any(
        "-" in text for text in written(Network(title="t", nodes=nodes, edges=edges, groups=["a", "b"]).svg())
    )


def test_pictures_have_one_minus_sign() -> None:
    figure = Bars(title="t", labels=["a"], values=[-2.0], caption="Together -2 (-3 to -1); the token '-5' is as it is.")
    assert "Together −2 (−3 to −1); the token '-5' is as it is." in " ".join(written(figure.svg()))


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("plain ≤ ␣3 −1", ""),
        ("שלום", ""),
        ("مرحبا", ""),
        ("Ωмир", ""),
        ("词语 ok", EAST_ASIAN),
        ("ひらがな", EAST_ASIAN),
        ("한국", EAST_ASIAN),
        ("हिन्दी", "'Noto Sans Devanagari'"),
        ("ไทย", "'Noto Sans Thai'"),
    ],
)
def test_labels_name_the_faces_of_their_scripts(text: str, first: str) -> None:
    named = with_faces(Bars(title="t", labels=[text], values=[1.0]).svg())
    root = ElementTree.fromstring(named)
    assert root.attrib["font-family"] == FACES and root.attrib["font-stretch"] == "condensed"
    (found,) = [one for one in root.iter(f"{SVG}text") if one.text == text]
    assert found.get("font-family") == (f"{first}, {FACES}" if first else None)


def has_face() -> bool:
    try:
        return "DejaVu Sans" in subprocess.run(["fc-list"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return False


@pytest.mark.skipif(not has_face(), reason="this machine has none of the faces that hold rare signs")
@pytest.mark.parametrize("sign", ["≤", "␣", "−", "∅", "→", "∂", "⁻"])
def test_a_rare_sign_does_not_change_the_face_of_its_label(sign: str) -> None:
    def letters(label: str) -> np.ndarray:
        looks = f'font-family="{FACES}" font-stretch="condensed" font-size="14"'
        words = f'<text x="5" y="20" {looks}>{label}</text>'
        drawn = png(f'<svg xmlns="http://www.w3.org/2000/svg" width="200" height="30">{words}</svg>')
        return np.asarray(Image.open(io.BytesIO(drawn)).convert("L"))[:, :100]  # the first fifty units

    assert (letters(f"handgloves {sign}") == letters("handgloves x")).all()
    assert letters("handgloves x").min() < 100


def test_nothing_is_as_wide_as_a_picture_without_a_reason() -> None:
    few = Strip(title="t", tokens=["a", "b"], values=[1.0, 2.0], value_label="nats")
    assert size_of(few.svg())[0] == 360
    matrix = Picture(Matrix(title="t", rows=["a", "b"], columns=["a", "b", "c"], values=[[1.0] * 3] * 2).svg())
    cells = [corners(one) for one in matrix.rectangles()][1:]
    assert max(cell[2] for cell in cells) - min(cell[0] for cell in cells) >= 0.4 * matrix.width
    assert math.isclose(matrix.width, 360)
