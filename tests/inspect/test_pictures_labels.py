"""Labels of pictures can be read and mean one thing: titles fit, tokens and numbers are apart, gates have names."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from inspection_common import subject_of, task_on
from pictures_common import SVG, Picture
from seqloom.errors import ConfigError
from seqloom.inspect import graph
from seqloom.inspect.alignment import alignment
from seqloom.inspect.attention import attention
from seqloom.inspect.attribution.attribution import attribute_file, attribution
from seqloom.inspect.attribution.tables import attribution_table
from seqloom.inspect.flow import Flow, reach_text
from seqloom.inspect.gates import gates
from seqloom.inspect.gradients import gradients
from seqloom.inspect.graphs.diagram import Diagram
from seqloom.inspect.graphs.recording import summary, summary_text, told
from seqloom.inspect.heads import heads
from seqloom.inspect.inspector import Inspection
from seqloom.inspect.map_page import MapCanvas
from seqloom.inspect.query_key import query_key
from seqloom.inspect.readings import read
from seqloom.report.figures.figure import MARGIN, TITLE_SIZE
from seqloom.report.figures.heatmap import HeatMap, Tiles
from seqloom.report.figures.line import Line
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.strip import Strip
from seqloom.tasks.task import Task

TEXT = "the cat sat on the mat"
# Advance widths of DejaVu Sans Bold, the default sans-serif font of many systems, in 1/100 em
BOLD = dict(zip("abcdefghijklmnopqrstuvwxyz", (67, 72, 59, 72, 68, 44, 72, 71, 34, 34, 67, 34, 104), strict=False))
BOLD |= dict(zip("nopqrstuvwxyz", (71, 69, 72, 72, 49, 60, 48, 71, 65, 92, 65, 65, 58), strict=True))
BOLD |= {" ": 35, "'": 31, ",": 38, ".": 38, ":": 40, "(": 46, ")": 46}


def bold_width(text: str) -> float:
    """The width of a title in a browser with this font; other letters are as wide as the widest digits and capitals."""
    return TITLE_SIZE * sum(BOLD.get(letter, 85 if letter.isupper() else 70) for letter in text) / 100


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("data"), "classify")


@pytest.mark.parametrize("words", [3, 8, 20])
def test_a_title_fits_its_picture_in_a_wide_font(words: int) -> None:
    title = " ".join(["Attribution of each prediction: integrated gradients"] * words)[: 9 * words]
    picture = Picture(Matrix(title=title, rows=["a"], columns=["b"], values=[[1]]).svg())
    lines = ["".join(one.element.itertext()) for one in picture.elements if one.element.get("font-size") == "16"]
    assert "".join(lines).replace(" ", "") == title.replace(" ", "")
    assert all(MARGIN + bold_width(line) <= picture.width for line in lines)


def test_the_number_of_a_key_and_its_text_are_apart(task: Task) -> None:
    subject = subject_of(task, "transformer")
    terms = query_key(subject, read(subject, "the 19 1 cat 2 mat")).figures()[0]
    assert isinstance(terms, Matrix) and {"1: 19", "2: 1", "4: 2"} <= set(terms.rows)


@pytest.mark.parametrize(("recipe", "names"), [("lstm", ("input", "forget", "output")), ("gru", ("reset", "update"))])
def test_gates_are_called_by_their_names(task: Task, recipe: str, names: tuple[str, ...]) -> None:
    subject = subject_of(task, recipe)
    kept = "forget" if recipe == "lstm" else "update"
    for text in (TEXT, " ".join([TEXT] * 12)):
        view = gates(subject, read(subject, text))
        first, *_, last = view.figures()
        labels = first.rows if isinstance(first, Matrix) else [one.name for one in first.series]  # type: ignore[attr-defined]
        assert all(any(one.endswith(f"{name} gate") for one in labels) for name in names)
        assert last.caption == f"1 / (1 - mean of the {kept} gate)."
        for name, title in (
            (kept, f"{kept.capitalize()} gate, encoder layer 1"),
            ("hidden", "Hidden state, encoder layer 1"),
        ):
            assert [one.title for one in gates(subject, read(subject, text), gate=name).figures()] == [title]


def test_gates_have_one_scale_and_states_their_own_and_the_caption_names_the_unit(task: Task) -> None:
    subject = subject_of(task, "lstm")
    reading = read(subject, TEXT)
    view = gates(subject, reading)
    table, states, _ = view.figures()
    assert isinstance(table, Matrix) and len(table.rows) == 3 + 3 and table.span == (0.0, 1.0)
    assert isinstance(states, Matrix) and len(states.rows) == 3 and states.span is not None and states.span[0] <= -1
    large = replace(view, values=5 * view.values / np.abs(view.of("cell")).max())
    assert large._states_of_unit().span == pytest.approx((-5.0, 5.0), rel=0.5)
    assert "whose hidden state varies most" in table.caption and "from 0 (closed) to 1 (open)" in table.value_label
    assert "gate=forget" in " ".join(view.sentences()) and "gate=forget" not in view.svg()
    assert "A forget gate of 1 keeps the old cell state" in table.caption
    asked = gates(subject, reading, unit=3)
    assert asked.figures()[0].caption.startswith(f"Unit 3 of {asked.values.shape[2]}, and the mean")
    several = gates(subject, reading, unit=3, gate="forget").figures()[0]
    assert (
        isinstance(several, Matrix) and several.rows[0] == "unit 3" and several.caption.startswith("Unit 3, and the ")
    )
    assert several.values[0] == pytest.approx(asked.of("forget")[:, 3].tolist())
    with pytest.raises(ConfigError, match=r"no gate or state 'reset'.*input, forget, candidate, output, cell, hidden"):
        gates(subject, reading, gate="reset")


@pytest.mark.parametrize("recipe", ["lstm", "bilstm", "transformer", "cnn"])
def test_titles_and_sentences_name_layers_in_words_not_by_their_paths(task: Task, recipe: str) -> None:
    subject = subject_of(task, recipe)
    inspection = Inspection(subject, TEXT)
    for name in {"attention", "head_view", "gates", "states", "gradients", "filters", "query_key"} & {
        *inspection.views()
    }:
        view = inspection.view(name)
        told = [view.title, *view.sentences(), *(text for one in view.figures() for text in (one.title, one.caption))]
        assert not [one for one in told if ".layers." in one]


def test_a_text_of_one_token_has_bars_instead_of_a_curve_of_one_point(task: Task) -> None:
    subject = subject_of(task, "lstm")
    view = gradients(subject, read(subject, "cat"))
    assert not any(isinstance(figure, Line) for figure in view.figures())
    assert view.figures()[0].data()["values"] == [each.norms[0] for each in view.totals]


def test_the_maps_of_heads_name_their_tokens(task: Task) -> None:
    subject = subject_of(task, "transformer")
    view = heads(subject, read(subject, TEXT))
    tiles = view.figures()[0]
    assert isinstance(tiles, Tiles) and tiles.tiles[0].rows == tiles.tiles[0].columns == tuple(TEXT.split())
    drawn = [one.text for one in Picture(tiles.svg()).root.iter(f"{SVG}text")]
    assert all(drawn.count(word) == 2 * len(view.heads) * TEXT.split().count(word) for word in set(TEXT.split()))
    (canvas,) = (block for block in view.document().blocks if isinstance(block, MapCanvas))
    assert 'id="rows"' in view.html() and 'name("columns", side.columns' in canvas.script()


def test_maps_of_blocks_of_tokens_have_no_names_of_tokens(task: Task) -> None:
    subject = subject_of(task, "transformer")
    tiles = heads(subject, read(subject, " ".join([TEXT] * 30))).figures()[0]
    assert isinstance(tiles, Tiles) and not tiles.tiles[0].rows
    assert "maximum of each block" in tiles.value_label


def test_heads_of_a_short_text_have_named_axes_no_blocks_and_a_bar_chart_for_each_measure(task: Task) -> None:
    subject = subject_of(task, "transformer")
    view = heads(subject, read(subject, TEXT))
    tiles, table, *measures = view.figures()
    assert isinstance(tiles, Tiles) and "block" not in tiles.value_label
    assert "key →" in tiles.svg() and "query ↓" in tiles.svg()
    assert "share of the head's weight" in table.caption
    assert [(one.kind, one.x_label.split(",")[0]) for one in measures] == [  # type: ignore[attr-defined]
        ("bars", "nats"),
        ("bars", "tokens between query and key"),
    ]


def test_the_number_in_a_title_is_the_one_that_the_option_layer_accepts(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq-dot")
    reading = read(subject, "the cat sat", target="le chat")
    aligned = alignment(subject, reading, layer=0)
    last = aligned.weights.layer.split(".")[2]
    assert last != "0", "the decoder has a recurrent layer below"
    assert aligned.title == f"Alignment of layer 0 (decoder layer {last})"
    assert aligned.figures()[0].title == f"{aligned.title}, head 0"
    assert attention(subject, reading, layer=0).title == f"Attention of layer 0 (decoder layer {last}), head 0"
    with pytest.raises(ConfigError, match=r"this model has 1 layer with attention\."):
        alignment(subject, reading, layer=1)


def test_the_scale_of_entropies_ends_at_uniform_attention(task: Task) -> None:
    subject = subject_of(task, "transformer")
    entropies = attention(subject, read(subject, TEXT)).figures()[-1]
    assert isinstance(entropies, Strip) and entropies.span == pytest.approx((0.0, np.log(len(TEXT.split()))))


def test_attention_of_many_tokens_is_a_map_with_their_names(task: Task) -> None:
    subject = subject_of(task, "transformer")
    drawn = attention(subject, read(subject, " ".join([TEXT] * 7))).figures()[0]  # 42 tokens
    assert isinstance(drawn, HeatMap) and drawn.rows == tuple(TEXT.split() * 7) == drawn.columns
    picture = Picture(drawn.svg())
    assert picture.width < 800 and drawn.svg().count(">sat</text>") == 14
    assert "'sat'" in unescape(drawn.svg()), "tooltips name the tokens"
    assert drawn.svg().count("rotate(-90") == 42
    assert "rotate(-90" not in replace(drawn, rows=["a"] * 42, columns=["b"] * 42).svg(), "letters need no turn"


def test_a_backward_direction_that_read_one_token_is_not_told_to_vanish(tmp_path: Path) -> None:
    """At the last word the backward direction has read only this word."""
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    caption = gradients(subject, read(subject, TEXT.split())).figures()[0].caption
    last = len(TEXT.split()) - 1
    assert f"layer 1 back hidden: a gradient only at token {last}" in caption
    assert "factor 0 per" not in caption


def test_a_backward_direction_is_followed_toward_the_end(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    view = gradients(subject, read(subject, TEXT.split()), at=0)
    back = next(each for each in view.totals if each.layer.endswith("1.mixer.back") and each.part == "hidden")
    steps = np.diff(np.log(back.norms))[1:]  # in the order of the text: away from the answer at 0
    assert (back.factor < 1) == (steps.mean() < 0)
    caption = view.figures()[0].caption
    assert re.search(r"layer 1 back hidden: the norm changes by a factor of [\d.]+ per token toward the end", caption)
    assert "input vectors: the norm" not in caption, "both directions read it, so there is no farther end"
    assert "layer 0" not in caption, "its gradients come from both directions of layer 1"


def test_no_factor_is_told_where_distance_does_not_explain_the_norms(tmp_path: Path) -> None:
    """In a short text the norms follow the words; a layer that reads backward does not explode because of that."""
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    for words in (TEXT.split()[:3], TEXT.split()[:5]):
        sentences = gradients(subject, read(subject, words))._sentences()
        assert len(sentences) == 5 and not any("factor" in sentence for sentence in sentences)
        assert sum("toward the end, because it reads backward" in sentence for sentence in sentences) == 2, (
            "one for each layer"
        )
        assert sentences[-1].endswith("it reads in both directions.")


def test_a_factor_that_distance_explains_is_told() -> None:
    steady = Flow("rnn", tuple(0.5**at for at in range(12)))
    assert "a factor of 0.5 per token" in reach_text(steady)
    wild = Flow("rnn", (1.0, 0.2, 0.9, 0.1, 3.0, 0.4, 2.0))
    assert reach_text(wild).startswith(
        "the gradient norm has no steady change with distance; relative to distance 1 it lies between 0.5 and 15"
    )
    assert "factor" not in reach_text(steady._replace(reads="both"))


def test_a_curve_that_falls_and_rises_again_has_no_factor() -> None:
    turned = Flow("lstm", (0.065, 0.03, 0.032, 0.045, 0.058, 0.07, 0.085))
    assert "no steady change" in reach_text(turned), "from distance 1 on it is near a line"
    assert "factor of 1.2" in reach_text(turned._replace(norms=(0.02, *turned.norms[1:])))
    scattered = Flow("lstm", tuple(0.95**at * (0.5 if at % 4 < 2 else 1.0) for at in range(32)))
    assert "no steady change" in reach_text(scattered)


def test_the_caption_of_the_gradients_at_each_token_has_factors_only_of_steady_curves(task: Task) -> None:
    subject = subject_of(task, "gru")
    view = gradients(subject, read(subject, TEXT))
    _, straight, turned = view.totals
    straight = straight._replace(norms=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0))
    turned = turned._replace(norms=(0.25, 0.12, 0.03, 0.03, 0.1, 0.2))
    caption = replace(view, totals=(straight, turned)).figures()[0].caption
    assert caption == (
        "layer 0 hidden: the norm changes by a factor of 0.5 per token toward the start; "
        "layer 1 hidden: no steady change toward the start"
    )


def test_every_edge_of_an_expression_shows_its_local_derivative() -> None:
    view = graph("c*(a+2*b) + a*a", {"a": 3, "b": 1, "c": -2})
    (diagram,) = view.figures()
    assert isinstance(diagram, Diagram)
    names = [card.name.partition(" ")[0] for card in diagram.cards]
    locals_ = {(names[link.source], names[link.target]): link.local for link in diagram.links}
    assert locals_["b", "d"] == "2" and locals_["c", "f"] == "5" and locals_["e", "f"] == "-2"
    assert locals_["a", "g"] == "6", "a*a reads a twice: 3 + 3"
    texts = [one for one in Picture(diagram.svg()).elements if one.element.tag == f"{SVG}text"]
    numbers = [one for one in texts if one.element.get("text-anchor") == "middle"]
    assert sorted(one.element.text or "" for one in numbers) == sorted(
        local.replace("-", "−") for local in locals_.values()
    )
    places = [(one.number("x"), one.number("y")) for one in numbers]
    assert all(abs(x - u) > 20 or abs(y - v) > 12 for at, (x, y) in enumerate(places) for u, v in places[:at]), (
        "no number hides another, also where lines cross"
    )
    assert "c (local derivative 5)" in diagram.text()


def test_gradients_say_where_their_axes_begin_and_in_which_direction_a_factor_holds(task: Task) -> None:
    subject = subject_of(task, "gru")
    curve = gradients(subject, read(subject, TEXT)).figures()[0]
    assert (
        isinstance(curve, Line)
        and curve.y_label.endswith("log scale")
        and "per token toward the start" in curve.caption
    )
    assert curve.x_label.startswith("token, from 0 (“")


def test_ids_have_a_range_and_no_norm() -> None:
    import torch

    assert told(summary([torch.arange(9)])) == "from 0 to 8" and "norm" not in summary_text(summary([torch.arange(99)]))
    assert told(summary([torch.ones(9)])) == "norm 3"


def test_edges_between_tensors_tell_the_shapes_of_their_derivative() -> None:
    import torch

    view = graph(lambda x: (x * 2.0).sum(), torch.ones(3))
    links = view.figures()[0].links  # type: ignore[attr-defined]
    assert "local derivative of [3] by [3]" in [link.note for link in links]
    numbers = graph(lambda a, b: (a * b).tanh(), (0.5, 2.0)).figures()[0]
    assert isinstance(numbers, Diagram) and [link.local for link in numbers.links][:2] == ["2", "0.5"]


def test_words_that_the_vocabulary_lacks_are_marked_in_attributions(task: Task, tmp_path: Path) -> None:
    subject = subject_of(task, "bag")
    view = attribution(subject, read(subject, "the zyx sat"), method="gradient_x_input")
    assert view.parts[0].unknown == (1,)
    assert "[zyx]" in view.text() and "Not in the vocabulary: “zyx” (1)." in view.text()
    assert view.to_json()["unknown"] == [[1]]
    svg = view.figures()[0].svg()
    assert svg.count('stroke-dasharray="4 3"') == 1 and "Dashed frame: not in the vocabulary." in svg
    assert "(token 1, not in the vocabulary)" in view.html()
    attribute_file(subject, ["the zyx sat"], tmp_path / "a.jsonl", method="gradient_x_input")
    assert json.loads((tmp_path / "a.jsonl").read_text())["sides"][0]["unknown"] == [1]
    known = attribution(subject, read(subject, "the cat sat"), method="gradient_x_input")
    assert "vocabulary" not in known.text() and "stroke-dasharray" not in known.figures()[0].svg()
    table = attribution_table(subject, read(subject, "the zyx sat"), method="gradient_x_input").figures()[0]
    assert isinstance(table, Matrix) and table.columns == ("the", "zyx (unknown)", "sat")
