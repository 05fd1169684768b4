"""The attention matrix shows every weight, then a map, then maxima and means: and always the numbers that were used."""

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inspection_common import subject_of, subject_with, task_on
from seqloom.config.base import with_setting
from seqloom.config.mixers import POSITIONS, SCORES, AttentionConfig, refusal
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.alignment import Gold, alignment, alignment_scores, gold_links
from seqloom.inspect.attention import attention
from seqloom.inspect.attention_weights import layers_of, rows_of
from seqloom.inspect.head_view import HeadLinesView, PinnedTokenView, head_view, nucleus
from seqloom.inspect.heads import heads
from seqloom.inspect.map_page import Map, MapCanvas, Named
from seqloom.inspect.query_key import SPLITS, query_key
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.ops.attention import weights
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded
from seqloom.report.document import Document
from seqloom.report.figures.matrix import Matrix
from seqloom.report.numbers import number, share
from seqloom.tasks.task import HeadSettings

WORDS = ("the", "cat", "sat", "on", "the", "mat", "a", "dog", "ran", "to", "the", "big", "house")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(task_on(tmp_path_factory.mktemp("classify"), "classify"), "transformer")


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(task_on(tmp_path_factory.mktemp("lm"), "lm"), "gpt")


def _text(count: int) -> str:
    return " ".join(WORDS[(7 * at + at // 5) % len(WORDS)] for at in range(count))


def _sent(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize(
    ("count", "kinds"),
    [
        (10, ["matrix", "strip", "strip"]),
        (30, ["matrix", "strip", "strip"]),
        (50, ["heat_map", "strip", "strip"]),
        (100, ["heat_map", "line", "bars"]),
        (300, ["heat_map", "heat_map", "line", "bars"]),
        (600, ["heat_map", "heat_map", "line", "bars"]),
    ],
)
def test_what_is_shown_follows_the_number_of_tokens(classifier: Subject, count: int, kinds: list[str]) -> None:
    view = attention(classifier, read(classifier, _text(count)))
    assert [figure.kind for figure in view.figures()] == kinds
    assert (view.values is not None) == (count <= 512) and (view.pooled is not None) == (count > 512)


def test_a_row_and_a_window_are_parts_of_the_whole(classifier: Subject) -> None:
    reading = read(classifier, _text(600))
    small = attention(classifier, reading, layer=0, head=1, window=(100, 140))
    row = attention(classifier, reading, layer=0, head=1, token=120)
    assert small.values is not None and row.values is not None
    assert small.values.shape == (40, 40) and row.values.shape == (1, 600)
    np.testing.assert_allclose(small.values[20], row.values[0, 100:140], atol=1e-6)
    assert small.rows[20] == row.rows[0] and small.first_row == small.first_column == 100
    whole = attention(classifier, reading, layer=0, head=1)
    assert whole.pooled is not None
    assert whole.entropy[120] == pytest.approx(row.entropy[0], abs=1e-5)
    assert small.entropy[20] == pytest.approx(row.entropy[0], abs=1e-5), "over all keys, not those of the window"


def test_the_mean_of_the_heads_is_their_mean(classifier: Subject) -> None:
    reading = read(classifier, _text(9))
    each = [attention(classifier, reading, head=head).values for head in range(2)]
    np.testing.assert_allclose(attention(classifier, reading).values, (each[0] + each[1]) / 2)


def test_masked_cells_are_no_zeros_and_special_tokens_can_be_left_out(writer: Subject) -> None:
    reading = read(writer, "the cat sat on the mat")
    plain, without = attention(writer, reading), attention(writer, reading, exclude_special=True)
    assert plain.values is not None and without.values is not None and without.excluded is not None
    np.testing.assert_array_equal(np.isnan(plain.values), ~np.tril(np.ones((7, 7), dtype=bool)))
    assert without.excluded == pytest.approx(plain.values[:, 0].mean(), abs=1e-6)
    np.testing.assert_allclose(np.nansum(without.values[1:], axis=1), 1.0, atol=1e-6)
    assert share(without.excluded) in " ".join(without.sentences())
    assert plain.to_json()["values"][0][1] is None


@pytest.mark.parametrize("count", [10, 200])
def test_the_page_has_the_numbers_of_the_view(classifier: Subject, count: int) -> None:
    view = attention(classifier, read(classifier, _text(count)))
    page = view.html()
    assert view.values is not None
    if count <= 64:
        assert f">{number(view.values[1, 2])}</td>" in page and "<canvas" not in page
        return
    data = _sent(page)
    (map_,) = data["maps"]
    cells = struct.unpack(f"<{count * count}H", base64.b64decode(map_["cells"]))
    np.testing.assert_allclose(np.reshape(cells, (count, count)) / 65_534 * map_["most"], view.values, atol=1e-5)
    assert len(page) < 2_000_000 and data["sides"][map_["side"]]["rows"] == list(view.rows)


def test_a_map_of_a_page_tells_no_value_from_zero_and_escapes_tokens() -> None:
    token = "</script><script>alert(1)</script>"
    values = np.array([[0.0, np.nan], [0.5, 0.25]])
    page = Document(token, [MapCanvas((), token, [Map(token, values, Named((token, "b"), ("c", token)))])]).html()
    assert page.count("<script") == 2 and "<script>alert" not in page
    (map_,) = _sent(page)["maps"]
    assert struct.unpack("<4H", base64.b64decode(map_["cells"])) == (0, 65_535, 65_534, 32_767)


def test_unknown_layers_heads_rows_and_windows_are_refused_with_what_there_is(classifier: Subject) -> None:
    reading = read(classifier, "the cat sat on the mat")
    with pytest.raises(ConfigError, match=r"no layer 2.*2 layers with attention.*1 \(encoder.layers.1.mixer\)"):
        attention(classifier, reading, layer=2)
    with pytest.raises(ConfigError, match=r"Did you mean 'encoder.layers.1.mixer'"):
        attention(classifier, reading, layer="encoder.layer.1.mixer")
    with pytest.raises(ConfigError, match=r"no head 2: encoder.layers.1.mixer has 2 heads, 0 to 1"):
        attention(classifier, reading, head=2)
    with pytest.raises(DataError, match="'the' occurs 2 times, at 0, 4"):
        attention(classifier, reading, token="the")
    with pytest.raises(ConfigError, match="from 3 to 9 is not inside the 6 tokens"):
        attention(classifier, reading, window=(3, 9))
    with pytest.raises(ConfigError, match="token and window are both given"):
        attention(classifier, reading, token=1, window=(0, 2))
    with pytest.raises(ConfigError, match="no alignment"):
        alignment(classifier, reading)


def test_the_nucleus_is_the_fewest_keys_with_the_mass() -> None:
    draws = np.random.default_rng(0)
    for _ in range(50):
        row = draws.dirichlet(np.full(9, 0.4))
        keys = nucleus(row, most=9)
        assert row[keys].sum() >= 0.8 - 1e-9 and row[keys[:-1]].sum() < 0.8
        assert min(row[keys]) >= max((row[at] for at in range(9) if at not in keys), default=0.0)
    assert len(nucleus(np.full(100, 0.01))) == 12


def test_lines_are_the_nuclei_of_every_row_and_a_pinned_token_has_a_row_of_each_head(classifier: Subject) -> None:
    reading = read(classifier, _text(10))
    lines, pinned = head_view(classifier, reading, layer=0), head_view(classifier, reading, token=3)
    assert isinstance(lines, HeadLinesView) and isinstance(pinned, PinnedTokenView)
    assert pinned.names == ("0.0", "0.1", "1.0", "1.1")
    matrix = attention(classifier, reading, layer=0, head=1).values
    assert matrix is not None
    np.testing.assert_allclose(pinned.values[1], matrix[3], atol=1e-7)
    mine = [edge.column for edge in lines.edges if edge.group == 1 and edge.row == 3]
    assert mine == list(pinned.nuclei()["0.1"])
    assert all(edge.weight == pytest.approx(matrix[edge.row, edge.column]) for edge in lines.edges if edge.group == 1)


def test_every_head_of_a_wide_layer_has_its_lines(tmp_path: Path) -> None:
    task = task_on(tmp_path, "classify")
    config = with_setting(with_setting(task.model("transformer", "nano", HeadSettings()), "width", 32), "num_heads", 16)
    subject = subject_with(task, config)
    lines = head_view(subject, read(subject, _text(10)), layer=0)
    assert isinstance(lines, HeadLinesView) and {edge.group for edge in lines.edges} == set(range(16))
    assert "<svg" in lines.html()


def test_many_tokens_have_one_line_each_and_very_many_a_ranked_list(classifier: Subject) -> None:
    some = head_view(classifier, read(classifier, _text(100)))
    many = head_view(classifier, read(classifier, _text(600)))
    assert isinstance(some, HeadLinesView) and len(some.edges) == 100
    assert isinstance(many, PinnedTokenView) and many.row == 599
    assert [figure.kind for figure in many.figures()] == ["heat_map", "bars"]


@pytest.mark.parametrize(
    ("name", "recipe"), [("classify", "transformer"), ("classify", "linear-attention"), ("lm", "gpt")]
)
def test_the_parts_of_a_logit_add_up_and_give_the_weight(tmp_path: Path, name: str, recipe: str) -> None:
    subject = subject_of(task_on(tmp_path, name), recipe)
    view = query_key(subject, read(subject, _text(9)), layer=0, head=1, token=5)
    known = ~np.isnan(view.weights)
    whole = view.products.sum(axis=1)
    expected = view.logit if "Rotary" in view.separated else view.content
    np.testing.assert_allclose(whole, expected[list(view.keys)], rtol=1e-5)
    odds = view.logit if recipe == "linear-attention" else np.exp(view.logit)
    np.testing.assert_allclose(view.weights[known], odds[known] / odds[known].sum(), rtol=1e-4)


@pytest.mark.parametrize("position", POSITIONS)
def test_content_and_position_give_the_weights_for_every_score_and_position(position: Any) -> None:
    torch.manual_seed(0)
    x = Padded.of(torch.randn(1, 9, 8))
    for score in SCORES:
        if refusal("attention", score=score, position=position):
            continue
        mixer = AttentionConfig(num_heads=2, score=score).build_causal(8, position).eval()
        with recording(mixer, "weights") as heard, torch.no_grad():
            mixer(x)
        rows = rows_of(heard["weights"][0])
        parts = SPLITS[type(rows)](rows, 1, 6, position == "rotary")
        logit = (parts.content + parts.position)[:7]
        torch.testing.assert_close(logit.softmax(dim=0), parts.weights[:7])
        assert bool(parts.weights[7:].isnan().all())
        whole = parts.content + parts.position if position == "rotary" else parts.content
        torch.testing.assert_close(parts.products.sum(dim=1), whole)
        if position in ("none", "learned", "sinusoidal"):
            assert not parts.position.any()
        if position in ("alibi", "rotary"):  # distance 0 adds nothing
            assert abs(float(parts.position[6])) < 1e-5 and float(parts.position[:6].abs().max()) > 1e-3


@pytest.mark.parametrize("recipe", ["transformer", "seq2seq-additive"])
@pytest.mark.parametrize("target", [None, "le chat assis"])
def test_row_t_of_an_alignment_is_where_the_decoder_looked_before_it_said_t(
    tmp_path: Path, recipe: str, target: str | None
) -> None:
    """Also of what a search wrote (tensorflow/nmt#138): each row is that of the answer's own path."""
    subject = subject_of(task_on(tmp_path, "translate"), recipe)
    reading = read(subject, "the cat sat on a mat", target=target)
    view = alignment(subject, reading)
    expected = _step_by_step(subject.model, reading, f"{view.weights.layer}.weights")
    assert view.weights.values is not None
    np.testing.assert_allclose(view.weights.values, expected, atol=1e-5)
    assert view.target == reading.sides[1].texts and view.source[1] == "cat"
    drawn = view.figures()[0]
    assert isinstance(drawn, Matrix) and (drawn.x_label, drawn.y_label) == ("source", "target")
    np.testing.assert_allclose(view.coverage.sum(), len(view.target), rtol=1e-5)


@torch.no_grad()
def _step_by_step(model: Any, reading: Reading, tap: str) -> np.ndarray:
    """[T,S] where a decoder looks that is given one token after the other."""
    state, rows = model.decoder.initial_state(model.encoder(reading.inputs.source)), []
    for token in reading.inputs.target.values[0]:
        with recording(model, tap) as heard:
            _, state = model.decoder.step(Padded.of(token.view(1, 1)), state)
        ((request,),) = heard.values()
        rows.append(weights(request)[0].mean(dim=0)[0].numpy())
    return np.stack(rows)


def test_links_are_judged_by_those_that_are_known_to_be_right(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    reading = read(subject, "the cat sat", target="le chat assis")
    plain = alignment(subject, reading)
    assert [target for _, target in plain.links] == [0, 1, 2, 3] and plain.gold is None and plain.scores is None
    links = plain.links[:3]  # END is no word
    assert alignment(subject, reading, gold=links).scores == (0.0, 1.0, 1.0, 3, 3, 0)
    wrong = [((source + 1) % 3, target) for source, target in links]
    assert alignment(subject, reading, gold=wrong).scores == (1.0, 0.0, 0.0, 3, 3, 0)
    told = alignment(subject, reading, gold=[links[0], *wrong[1:]])
    assert told.scores is not None and told.scores.error_rate == pytest.approx(2 / 3)
    assert any("Missed: " in sentence for sentence in told.sentences())
    assert "error rate 0.6667, precision 0.3333, recall 0.3333" in told.text()
    with pytest.raises(DataError, match=r"link 3-0 is outside the 3 source and 3 target words"):
        alignment(subject, reading, gold=[(3, 0)])
    with pytest.raises(DataError, match=r"'0:1' is not an alignment link"):
        alignment(subject, reading, gold="0:1")


def test_possible_links_are_neither_asked_for_nor_held_against_anybody() -> None:
    """By hand: A = 00 11 22 34, S = 00 11 33, P = S + 22 12: |A n S| = 2, |A n P| = 3."""
    gold = gold_links("0-0 1-1 3-3 2?2 1?2 3?3")
    assert gold == Gold(((0, 0), (1, 1), (3, 3)), ((2, 2), (1, 2)))  # 3?3 is sure already
    fit = alignment_scores([(0, 0), (1, 1), (2, 2), (3, 4)], gold)
    assert fit.error_rate == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert (fit.precision, fit.recall) == (3 / 4, pytest.approx(2 / 3))
    assert (fit.found, fit.sure, fit.possible) == (4, 3, 2)
    assert alignment_scores(gold.sure, gold).error_rate == 0 and alignment_scores([*gold.every], gold).error_rate == 0
    assert alignment_scores([], Gold((), ((0, 0),))) == (None, None, None, 0, 0, 1)


def test_known_links_are_framed_in_their_cells(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    view = alignment(subject, read(subject, "the cat sat", target="le chat assis"), gold="1-0 2?1")
    (matrix, _) = view.figures()
    assert isinstance(matrix, Matrix)
    assert (matrix.framed, matrix.dashed) == (((0, 1),), ((1, 2),))  # target word down, source word across
    drawn = matrix.svg()
    assert drawn.count('stroke-dasharray="none"') == 1 and drawn.count('stroke-dasharray="4 3"') == 1
    rows = [line for line in matrix.text().splitlines() if line.startswith(("le ", "chat "))]
    assert ("[" in rows[0], "(" in rows[1]) == (True, True)


def test_uncovered_and_over_covered_source_tokens_are_named(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq-dot")
    model: Any = subject.model

    def loud(_module: Any, _given: Any, memory: Any) -> Any:
        values = torch.zeros_like(memory.values)
        values[:, 1] = 1000.0  # a source state that takes all of the weight of a query, or none
        return memory.with_values(values)

    handle = model.encoder.register_forward_hook(loud)
    view = alignment(subject, read(subject, "the cat sat on", target="le chat"))
    handle.remove()
    shares = view.coverage / view.coverage.mean()
    assert view.uncovered == tuple(np.flatnonzero(shares < 0.25)) and view.uncovered
    assert view.over_covered == tuple(np.flatnonzero(shares > 2.5))
    assert f"Uncovered: '{view.source[view.uncovered[0]]}'" in " ".join(view.sentences())


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_every_view_shows_and_saves_itself(tmp_path: Path, classifier: Subject, count: int) -> None:
    reading: Reading = read(classifier, _text(count))
    views = [
        heads(classifier, reading),
        head_view(classifier, reading, token=2),
        query_key(classifier, reading),
        attention(classifier, reading),
    ]
    for view in views:
        for ending in ("html", "svg", "json", "txt"):
            assert view.save(tmp_path / f"{view.kind}.{ending}").stat().st_size > 200
        assert json.loads((tmp_path / f"{view.kind}.json").read_text(encoding="utf-8"))["kind"] == view.kind


def test_a_logit_is_taken_apart_in_a_layer_with_keys_and_never_in_a_pool(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "self-attention", pooling="attention")
    reading = read(subject, "the cat sat")
    pool = layers_of(subject, reading)[-1].path
    view = query_key(subject, reading)
    assert view.layer != pool and view.layer == query_key(subject, reading, layer=0).layer
    with pytest.raises(ConfigError, match="there is no layer"):
        query_key(subject, reading, layer=len(layers_of(subject, reading)) - 1)
    with pytest.raises(ConfigError, match="no keys"):
        query_key(subject, reading, layer=pool)
