"""Every view, looked at: at 10, 200 and 4,000 tokens its pictures are whole, and colors mean what the legend says.

The models are small and untrained: what is drawn is judged here, not what they have learned.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from inspection_common import subject_of, task_on
from pictures_common import SVG, Drawn, Page, Picture
from seqloom.data.check import load_data
from seqloom.inspect.inspector import VIEWS, Inspection
from seqloom.inspect.subject import Subject
from seqloom.inspect.view import View
from seqloom.report.figures.heatmap import HeatMap, Tiles
from seqloom.report.figures.strip import Strip
from seqloom.tasks.task import ModelSpec, task_of

WORDS = ["the", "cat", "sat", "on", "a", "mat", "big", "dog", "ran", "to", "house"]
MOST_ELEMENTS, MOST_BYTES = 5_000, 2_000_000
CLOSE = 14  # of 255: colors of steps of a legend that stand side by side
DRAWN_SIDE = 256  # of a heat map: beyond it means of blocks are drawn


class Case(NamedTuple):
    """A view, a small model that has it, and what it is told."""

    task: str
    recipe: str
    options: Mapping[str, Any] = MappingProxyType({})


CASES = {
    "attention": Case("classify", "transformer"),
    "heads": Case("classify", "transformer"),
    "head_view": Case("classify", "transformer"),
    "query_key": Case("classify", "transformer"),
    "alignment": Case("translate", "seq2seq-dot"),
    "gates": Case("classify", "lstm"),
    "states": Case("classify", "lstm"),
    "probe": Case("classify", "gru", {"feature": "position"}),
    "gradients": Case("classify", "self-attention"),
    "health": Case("classify", "transformer"),
    "filters": Case("classify", "cnn"),
    "filter_activations": Case("classify", "cnn"),
    "positions": Case("classify", "transformer"),
    "attribution": Case("classify", "bag"),
    "attributions": Case("classify", "bag"),
    "attribution_table": Case("tag", "rnn", {"method": "gradient_x_input"}),
    "similarity_pairs": Case("embed", "bag", {"method": "occlusion"}),
    "ngrams": Case("classify", "linear"),
    "faithfulness": Case("classify", "self-attention", {"permutations": 10, "adversaries": 0}),
    "neighbors": Case("classify", "cnn", {"word": 1}),
    "next_tokens": Case("lm", "lstm"),
    "logit_lens": Case("lm", "gru"),
    "beam_tree": Case("lm", "lstm", {"max_new_tokens": 5}),
    "lattice": Case("tag", "rnn"),
    "tokenization": Case("classify", "bag"),
    "swap": Case("classify", "cnn", {"old": "cat", "new": "dog", "at": 0}),
    "ablate": Case("classify", "self-attention", {"views": ["attention"]}),
    "clamp": Case("lm", "gru", {"unit": 0, "value": 1.0, "views": ["gates"]}),
    "patch": Case("lm", "cnn", {"at": 1}),
    "graph": Case("classify", "lstm"),
}
OF_PICTURES = {"activation_maps", "picture_filters"}  # have no tokens
SAME_BY_DESIGN = {"heads", "health", "filters", "positions", "ngrams", "beam_tree", "graph", "probe", "attribution"}
SAME_BY_DESIGN |= {"similarity_pairs", "faithfulness"}
BOUNDED = {"attribution_table", "similarity_pairs"}  # refuse more than 512 answers or tokens, and say what to do
DEAR = {"attributions", "gradients", "faithfulness", "lattice", "ablate", "clamp", "swap"}  # seconds at 4,000 tokens


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small model of each recipe, made once."""

    @cache
    def made(task: str, recipe: str) -> Subject:
        folder: Path = tmp_path_factory.mktemp(f"{task}-{recipe}")
        return subject_of(task_on(folder, task), recipe)

    return made


def view_of(subjects: Any, name: str, count: int) -> View:
    case = CASES[name]
    draw = random.Random(1)
    words = ["the", "cat", *(draw.choice(WORDS) for _ in range(count - 2))]
    text = " ".join(words)
    given = {"tag": words, "embed": (text, text)}.get(case.task, text)
    options = dict(case.options) | ({"other": given} if name == "patch" else {})
    target = {"target": text} if case.task == "translate" else {}
    among = [given] if name == "probe" else []
    return Inspection(subjects(case.task, case.recipe), given, data=among, **target).view(name, **options)


def test_every_view_is_looked_at() -> None:
    assert set(VIEWS) == set(CASES) | OF_PICTURES | {"edits"}


QUICK = ("attention", "attribution", "positions")
SLOW = pytest.mark.slow
SIZES = [
    pytest.param(name, count, marks=[] if name in QUICK and count == 10 else SLOW)
    for name in CASES
    for count in (10, 200, 4000)
    if count < 4000 or name not in BOUNDED | DEAR
]
SIZES += [pytest.param(name, 4000, marks=pytest.mark.soak) for name in sorted(DEAR)]


@pytest.mark.sampled(14)
@pytest.mark.parametrize(("name", "count"), SIZES)
def test_pictures_are_whole_and_their_colors_are_those_of_the_legend(subjects: Any, name: str, count: int) -> None:
    view = view_of(subjects, name, count)
    require_whole(view)
    if count == 4000 and name not in SAME_BY_DESIGN:
        few = view_of(subjects, name, 10).figures()
        assert [one.kind for one in few] != [one.kind for one in view.figures()], "the size changes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted([*OF_PICTURES, "attribution"]))
def test_the_same_of_models_that_read_pictures(tmp_path: Path, name: str) -> None:
    values = np.random.default_rng(0).random((10, 14, 14)).astype(np.float32)
    np.savez(tmp_path / "p.npz", pictures=values, y=np.arange(10) % 2)
    subject = subject_of(task_of(ModelSpec.of(load_data(tmp_path / "p.npz"))), "conv2d")
    first, *others = values[:, :, :, None]
    require_whole(Inspection(subject, first, data=others).view(name))


def require_whole(view: View) -> None:
    """Every picture has ink, keeps inside its frame, and has the colors of its legend."""
    require_bounds(view)
    for figure in view.figures():
        picture = Picture(figure.svg())
        assert picture.inked() > 0.005, f"{figure.title} is blank"
        assert picture.labels_outside() == []
        assert not picture.is_cut(), f"{figure.title} crosses its frame"
        if isinstance(figure, HeatMap | Strip | Tiles):
            require_colors(figure, picture)


def require_bounds(view: View) -> None:
    """Neither the picture nor the page grows with the text; the page is HTML that asks nobody for anything."""
    svg, html = view.svg(), view.html()
    assert svg.count("<") - svg.count("</") <= MOST_ELEMENTS
    assert max(len(svg.encode()), len(html.encode())) <= MOST_BYTES
    page = Page(html)
    assert page.faults == [] and page.open == []
    json.dumps(view.to_json(), allow_nan=False)


def require_colors(figure: HeatMap | Strip | Tiles, picture: Picture) -> None:
    """The pixels of some cells have the colors that the legend shows for their values."""
    legend = picture.legend()
    assert legend, f"{figure.title} has no legend"
    low, high = ends_of(picture, legend)
    for value, color in list(cells(figure, picture)):
        place = (value - low) / max(high - low, 1e-30) * (len(legend) - 1)
        near = [legend[min(max(round(place) + step, 0), len(legend) - 1)] for step in (-1, 0, 1)]
        known = [picture.color_in(one) for one in near]
        apart = min(max(abs(a - b) for a, b in zip(color, one, strict=True)) for one in known)
        assert apart <= CLOSE, f"{figure.title}: {value} is {color}, and the legend has {known}"


def ends_of(picture: Picture, legend: list[Drawn]) -> tuple[float, float]:
    """The numbers at the ends of the bar: those of the labels below it."""
    left, right = legend[0].number("x"), legend[-1].number("x") + legend[-1].number("width")
    below = {
        one.number("x"): "".join(one.element.itertext())
        for one in picture.elements
        if one.element.tag == f"{SVG}text" and one.y == legend[0].y and one.number("y") == 25
    }
    return tuple(float(below[x].replace("\u2212", "-").replace(",", "")) for x in (left, right))  # type: ignore[return-value]


def cells(figure: HeatMap | Strip | Tiles, picture: Picture) -> Iterator[tuple[float, tuple[int, int, int]]]:
    """Values, the largest and the smallest among them, and the colors of the pixels that stand for them."""
    if isinstance(figure, Strip):
        chips = {
            int(note[-1]): one for text, one in picture.noted().items() if (note := re.findall(r"token (\d+)", text))
        }
        for number in probed(list(figure.values)):
            yield float(figure.values[number]), picture.color_in(chips[number], down=0.94)  # type: ignore[arg-type]
        return
    if isinstance(figure, HeatMap):
        frame = next(one for one in picture.rectangles() if one.element.get("class") == "sl-axis")
        yield from in_grid(pooled(figure), frame, picture)
        return
    for tile in figure.tiles[:2]:
        frame = next(one for text, one in picture.noted().items() if text.startswith(f"{tile.name}: "))
        yield from in_grid(np.array(tile.values, dtype=float), frame, picture)


def in_grid(values: np.ndarray, frame: Drawn, picture: Picture) -> Iterator[tuple[float, tuple[int, int, int]]]:
    for at in probed([None if np.isnan(value) else value for value in values.ravel()]):
        row, column = divmod(at, values.shape[1])
        middle = (column + 0.5) / values.shape[1], (row + 0.5) / values.shape[0]
        yield float(values[row, column]), picture.color_in(frame, *middle)


def probed(values: list[Any]) -> list[int]:
    """The places of the largest, the smallest and one more value."""
    known = [at for at, value in enumerate(values) if value is not None]
    return [max(known, key=lambda at: values[at]), min(known, key=lambda at: values[at]), known[len(known) // 2]]


def pooled(figure: HeatMap) -> np.ndarray:
    """The means of blocks that are drawn."""
    values = np.array(figure.values, dtype=float)
    down, across = (-(-size // DRAWN_SIDE) for size in values.shape)
    if down == across == 1:
        return values
    rows = [
        [np.nanmean(values[a : a + down, b : b + across]) for b in range(0, values.shape[1], across)]
        for a in range(0, values.shape[0], down)
    ]
    return np.array(rows)


HOSTILE = [
    "<script>alert(1)</script>",
    'x"onload="alert(1)',
    "שלום",
    "مرحبا",
    "👩\u200d🔬",
    "a\u200bb",
    "\u202eabc",
    "&amp;",
]
TAGGED = ("attention", "tokenization", "lattice", "attribution", "states", "gradients")


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "attention" else SLOW) for name in TAGGED])
def test_hostile_tokens_are_text_and_what_cannot_be_seen_is_shown(subjects: Any, name: str) -> None:
    view = Inspection(subjects("tag", "transformer"), HOSTILE).view(name)
    page = Page(view.html())
    assert page.faults == [] and page.open == []
    assert page.names.count("script") <= 2  # ours, and its data
    assert "alert" in page.text and "שלום" in page.text and "👩" in page.text
    assert "<script>alert" not in view.html() + view.svg() + view._repr_html_()
    for written in (view.html(), view.svg(), view.text(), view.text(color=True), view.markdown()):
        assert not {"\u202e", "\u200b"} & set(written)


def test_a_picture_that_is_wrong_is_seen() -> None:
    figure = Strip(title="Strip", tokens=["a", "b", "c"], values=[0.1, 0.5, 1.0])
    good = figure.svg()
    require_colors(figure, Picture(good))
    with pytest.raises(AssertionError, match="and the legend has"):
        require_colors(figure, Picture(re.sub(r'(rx="3" class="sl-s\d+" fill=")#\w+', r"\1#ff0000", good)))
    with pytest.raises(AssertionError, match="has no legend"):
        require_colors(figure, Picture(re.sub(r'(<rect x="\S+ y="2" width=")5', r"\g<1>4", good)))
    assert Picture(re.sub(r'<text x="\d+', '<text x="-90', good, count=1)).labels_outside() == ["Strip"]
    assert Picture(good.replace("Strip</text>", "A title that is far too long" * 9 + "</text>")).is_cut()
