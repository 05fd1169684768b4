"""A head is called after what it reads: planted heads are found, and short or masked rows fool nobody."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faithfulness_common import planted_subject
from inspection_common import subject_of, subject_with, task_on
from seqloom.config.base import with_setting
from seqloom.config.mixers import ConvolutionConfig
from seqloom.config.stacks import BlockConfig
from seqloom.errors import DataError
from seqloom.inspect import heads as heads_module
from seqloom.inspect.attention import attention
from seqloom.inspect.heads import Counting, HeadRows, Where, heads, masks
from seqloom.inspect.readings import read
from seqloom.inspect.subject import NO_WORD, Token
from seqloom.nn.ops.relations import rotate
from seqloom.report.figures.line import Line
from seqloom.tasks.task import HeadSettings
from seqloom.text.special_tokens import BEGIN

TIME = 24


def _tokens() -> list[Token]:
    """BEGIN, then words of two pieces; tokens come again after eleven."""
    rest = [Token("x", word=at // 2, id=20 + at % 11) for at in range(TIME - 1)]
    return [Token("<begin>", word=NO_WORD, id=BEGIN), *rest]


def _kind(weights: np.ndarray, tokens: list[Token]) -> Any:
    counting, rows = Counting(), np.arange(len(tokens))
    counting.add(weights, HeadRows(Where(tokens, tokens, same=True), rows, ~np.isnan(weights)))
    return counting.numbers()


def _reading_most(mask: np.ndarray, share: float = 0.8) -> np.ndarray:
    """Rows with this share on the keys of a mask, where it has any, the rest spread evenly."""
    even = np.full(mask.shape, 1 / mask.shape[1])
    wanted = np.where(mask.any(axis=1, keepdims=True), share, 0.0)
    return wanted * mask / np.maximum(1, mask.sum(axis=1, keepdims=True)) + (1 - wanted) * even


@pytest.mark.parametrize("kind", ["itself", "previous", "next", "first", "same word", "same token", "induction"])
def test_a_head_that_reads_keys_of_a_kind_is_called_after_it(kind: str) -> None:
    tokens = _tokens()
    mask = masks(Where(tokens, tokens, same=True), np.arange(TIME))[kind]
    reads = mask.any(axis=1)
    weights = _reading_most(mask)[reads]
    counting = Counting()
    counting.add(weights, HeadRows(Where(tokens, tokens, same=True), np.arange(TIME)[reads], ~np.isnan(weights)))
    found = counting.numbers()
    assert found.kind == kind
    assert found.shares[kind] >= 0.8 and found.rows == reads.sum()


def test_an_even_head_is_broad_and_a_causal_one_too_although_its_first_rows_have_no_choice() -> None:
    tokens = _tokens()[:5]
    even = np.full((5, 5), 0.2)
    causal = np.where(np.tril(np.ones((5, 5), dtype=bool)), 1 / np.arange(1, 6)[:, None], np.nan)
    assert _kind(even, tokens).kind == _kind(causal, tokens).kind == "broad"
    assert _kind(causal, tokens).rows == 4
    assert _kind(even, tokens).normalized_entropy == pytest.approx(1.0)
    assert all(abs(lift) < 1e-6 for lift in _kind(causal, tokens).lifts.values())


def test_the_distance_of_a_head_is_the_mean_of_its_looks() -> None:
    tokens = _tokens()
    previous = np.eye(TIME, k=-1)
    previous[0, 0] = 1.0
    assert _kind(previous, tokens).distance == pytest.approx((TIME - 1) / TIME)


def _plant_previous(mixer: Any, head: int) -> None:
    """Queries that fit the key one place before, by their turning alone: q_t . k_j is largest at j = t - 1."""
    width = mixer.heads.query.weight.shape[0] // mixer.heads.num_heads
    mine = slice(head * width, (head + 1) * width)
    key = 30 * torch.tensor([1.0, 0.0]).repeat(width // 2)
    with torch.no_grad():
        for linear in (mixer.heads.query, mixer.heads.key):
            linear.weight[mine] = 0
        mixer.heads.key.bias[mine] = key
        mixer.heads.query.bias[mine] = rotate(key.view(1, 1, 1, -1), torch.tensor([[-1]]))[0, 0, 0]


def test_a_planted_previous_token_head_is_found(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    _plant_previous(subject.model.get_submodule("encoder.layers.1.mixer"), head=1)
    readings = [read(subject, "the cat sat on the mat"), read(subject, "a dog ran to the big house of a cat")]
    view = heads(subject, readings)
    assert [each.name for each in view.heads if each.kind == "previous"] == ["1.1"]
    (planted,) = (each for each in view.heads if each.name == "1.1")
    assert planted.numbers.shares["previous"] > 0.8
    assert any("previous token: 1 head (1.1)" in sentence for sentence in view.sentences())
    assert "(layer.head " in view.sentences()[0], "the first sentence says what the numbers are"
    assert view.table()[3]["kind"] == "previous"


def test_maps_are_exact_while_they_fit_and_rows_are_thinned_only_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    reading = read(subject, "the cat sat on the mat a dog")
    whole = heads(subject, reading)
    matrix = attention(subject, reading, layer=0, head=1).values
    assert whole.layers[0].every == 1
    np.testing.assert_allclose(whole.heads[1].map.maximum, matrix, atol=1e-7)
    monkeypatch.setattr(heads_module, "MOST_ROWS", 3)
    thinned = heads(subject, reading)
    assert matrix is not None and thinned.layers[0].every == 3 and thinned.layers[0].rows == ("the", "on", "a")
    np.testing.assert_allclose(thinned.heads[1].map.maximum, matrix[::3], atol=1e-7)
    assert thinned.heads[1].numbers.rows == 3 and "One query in 3" in " ".join(thinned.sentences())


@pytest.mark.slow
def test_many_heads_and_a_long_text_are_drawn_small_enough(tmp_path: Path) -> None:
    task = task_on(tmp_path, "classify")
    config = with_setting(task.model("transformer", "nano", HeadSettings()), "repeat", 16)
    subject = subject_with(task, config)
    view = heads(subject, read(subject, " ".join(["the cat sat"] * 21)))
    assert len(view.heads) > 16 and len(view.heads[0].map.maximum) > 60  # exactly, too many cells for one picture
    assert "<svg" in view.html()


def test_heads_need_an_input(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no input"):
        heads(subject_of(task_on(tmp_path, "classify"), "transformer"), [])


def test_maps_of_a_translator_have_the_tokens_of_their_own_sides(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    view = heads(subject, read(subject, "the cat sat", target="le chat"))
    tokens = {head.path: (view.layers[head.layer].rows, view.layers[head.layer].columns) for head in view.heads}
    source, read_, said = ("the", "cat", "sat"), ("<begin>", "le", "chat"), ("le", "chat", "<end>")
    assert tokens["encoder.layers.0.mixer"] == (source, source)
    assert tokens["decoder.layers.0.mixer"] == (read_, read_)
    assert tokens["decoder.layers.1.cross"] == (said, source)


@pytest.mark.parametrize("attends", ["alignment", "pooling"])
def test_heads_that_all_read_another_sequence_are_drawn_without_a_distance(tmp_path: Path, attends: str) -> None:
    if attends == "alignment":
        subject = subject_of(task_on(tmp_path, "translate"), "seq2seq-dot")
        view = heads(subject, read(subject, "the cat sat", target="le chat"))
    else:
        subject = planted_subject(tmp_path, (BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(1,))),))
        view = heads(subject, read(subject, "w5 w0 w9"))
    assert np.isnan([each.numbers.distance for each in view.heads]).all()
    lines = [figure for figure in view.figures() if isinstance(figure, Line)]
    assert not lines if len(view.heads) == 1 else [series.name for series in lines[0].series] == ["entropy"]
    assert "Entropy" in view.text() and "<svg" in view.svg() and "<html" in view.html()
