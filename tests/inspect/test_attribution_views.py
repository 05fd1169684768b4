"""What is shown of an attribution changes with its size, and every token is shown as it was written."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from inspection_common import subject_of, task_on
from seqloom.inspect.attribution.attribution import (
    AttributionPart,
    AttributionView,
    SentenceTotal,
    attribution,
    merged,
    segments,
)
from seqloom.inspect.attribution.pairs import SimilarityPairsView
from seqloom.inspect.attribution.tables import AttributionTableView, TablePart
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Token
from seqloom.report.figures.strip import Strip


def view_of(count: int, *, sentences: int = 10, shape: tuple[int, int] | None = None) -> AttributionView:
    draws = np.random.default_rng(count)
    tokens = tuple(Token(f"w{at}", at * 6, at * 6 + 5, at) for at in range(count))
    values = draws.normal(size=count)
    values[0] = np.nan
    edges = np.linspace(0, count, sentences + 1).astype(int).tolist()
    parts = [SentenceTotal(a, b, f"w{a} and so on", float(np.nansum(values[a:b]))) for a, b in pairwise(edges)]
    return AttributionView(
        title="What moved “yes”",
        method="integrated_gradients",
        answer="“yes”",
        baseline="zero",
        score=1.0,
        baseline_scores=(0.0,),
        error=0.001,
        steps=16,
        grouped=1,
        parts=(AttributionPart("input", tokens, values, tuple(parts), shape),),
    )


def test_ten_tokens_are_shown_with_their_numbers() -> None:
    (strip,) = view_of(10, sentences=2).figures()
    assert isinstance(strip, Strip) and len(strip.tokens) == 10
    assert "completeness error 0.1 %" in strip.caption and "Baseline: zero" in strip.caption


def test_two_hundred_tokens_are_a_strip_a_ranking_and_totals_of_sentences() -> None:
    view = view_of(200)
    assert [figure.kind for figure in view.figures()] == ["strip", "bars", "bars"]
    ranking, totals = view.figures()[1:]
    sizes = np.abs(np.nan_to_num(view.parts[0].values))
    assert ranking.data()["labels"][0] == f"{sizes.argmax()}: w{sizes.argmax()}"  # type: ignore[index]
    assert sum(totals.data()["values"]) == pytest.approx(view.total)  # type: ignore[arg-type]


@pytest.mark.slow
def test_four_thousand_tokens_are_totals_first_and_a_page_opens_every_sentence() -> None:
    view = view_of(4000, sentences=300)
    assert [figure.kind for figure in view.figures()] == ["bars", "heat_map", "bars"]
    whole = view.figures()[1].data()["values"]
    assert sum(whole[0]) == pytest.approx(view.total), "the map of sums loses nothing"  # type: ignore[index]
    assert max(map(abs, whole[1])) == np.nanmax(np.abs(view.parts[0].values))  # type: ignore[index]
    page = view.html()
    assert page.count("<details>") == 300 and page.count("<mark") == 4000
    assert len(page) < 2_000_000 and "<script" not in page
    assert len(view.text(80).splitlines()) < 150


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 200, 4000])
def test_every_size_is_saved_as_every_kind_of_file(tmp_path: Path, count: int) -> None:
    view = view_of(count)
    for ending in ("html", "md", "svg", "png", "json", "txt"):
        assert view.save(tmp_path / f"a.{ending}").stat().st_size > 500
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["kind"] == "attribution" and told["parts"][0]["values"][0] is None
    assert len(told["parts"][0]["values"]) == count


def test_the_color_of_a_chip_is_that_of_the_legend_for_its_value() -> None:
    view = view_of(600, sentences=20)
    chips = re.findall(
        r'<mark style="background:(#\w+);color:#\w+" title="[^"]*: ([-\d.e]+) \(token (\d+)\)"', view.html()
    )
    assert len(chips) == 599  # one has no value
    by_value = sorted((float(value), color) for color, value, _ in chips)
    assert by_value[0][1] != by_value[-1][1]
    strongest = max(by_value, key=lambda chip: abs(chip[0]))
    assert strongest[1] == ("#8c3c06" if strongest[0] < 0 else "#14457f"), "the ends of the diverging scale"


def test_markup_in_a_text_is_text(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    view = attribution(subject, read(subject, "the <script>alert(1)</script> & <s> שלום 😀"))
    assert "<script>alert" not in view.html() and "<s>" not in view.html()
    assert "שלום" in view.html() and "😀" in view.html() and "&lt;" in view.html()


def test_segments_cover_every_token_once() -> None:
    text = "It rains. We stay! And? לא. 今日は。x\ny " + "w " * 200
    tokens, at = [], 0
    for word in re.findall(r"\w+|[^\w\s]", text):
        at = text.index(word, at)
        tokens.append(Token(word, at, at + len(word), len(tokens)))
        at += len(word)
    found = segments(tokens, text)
    assert [number for start, stop in found for number in range(start, stop)] == list(range(len(tokens)))
    assert max(stop - start for start, stop in found) <= 64
    assert [tokens[stop - 1].text for _, stop in found][:6] == [".", "!", "?", ".", "。", "x"]


def test_words_are_put_together_from_their_pieces() -> None:
    tokens = [Token("un", 0, 2, 0, 9), Token("do", 2, 4, 0, 10), Token(" ", 4, 5), Token("it", 5, 7, 1, 11)]
    words, starts = merged(tokens)
    assert [word.text for word in words] == ["undo", "it"] and starts == (0, 2)  # a space belongs to the word after it
    assert (words[0].start, words[0].stop, words[0].id) == (0, 4, None)
    assert (words[1].start, words[1].stop, words[1].word, words[1].id) == (5, 7, 1, 11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "kinds"),
    [(10, ["matrix"]), (200, ["heat_map", "bars"]), (600, ["heat_map", "heat_map", "bars"])],
)
def test_a_table_is_a_matrix_then_a_map_then_maps_of_blocks(size: int, kinds: list[str]) -> None:
    values = np.random.default_rng(0).normal(size=(size, size))
    values[np.triu_indices(size, 1)] = np.nan
    names = tuple(f"w{at}" for at in range(size))
    view = AttributionTableView(
        title="What moved each answer", method="integrated_gradients", baseline="zero", rows=names, first_row=0,
        num_answers=size, score=(0.0,) * size, error=(0.0,) * size, parts=(TablePart("target", names, values),),
    )  # fmt: skip
    assert [figure.kind for figure in view.figures()] == kinds
    strongest = view.figures()[0].data()["values"]
    known = [abs(value) for row in strongest for value in row if value is not None]  # type: ignore[attr-defined]
    assert max(known) == pytest.approx(float(np.nanmax(np.abs(values))))
    assert strongest[0][-1] is None  # type: ignore[index]


def test_pairs_of_long_texts_are_a_map() -> None:
    names = tuple(f"w{at}" for at in range(100))
    values = np.random.default_rng(0).normal(size=(100, 100))
    view = SimilarityPairsView(
        title="pairs", method="occlusion", baseline="mean", similarity=0.5, rows=names, columns=names, values=values,
        expected=0.0, error=None,
    )  # fmt: skip
    assert [figure.kind for figure in view.figures()] == ["heat_map", "bars"]
    assert "do not sum to the similarity" in view.sentences()[0]
