"""Recomputed rows of attention are those of the plain operator, for every score, mask and position."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from inspection_common import subject_of, task_on
from seqloom.config.mixers import (
    POSITIONS,
    RELATIVE,
    SCORES,
    AttentionConfig,
    EdgesConfig,
    FullConfig,
    LinearAttentionConfig,
    SparseConfig,
    WindowConfig,
    refusal,
)
from seqloom.errors import ConfigError, DataError
from seqloom.inspect import attention_weights
from seqloom.inspect.attention_weights import AttentionLayer, AttentionRows, chosen_token, heard, layers_of, rows_of
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import numbered
from seqloom.nn.ops import masks
from seqloom.nn.ops.attention import Request, weights
from seqloom.nn.ops.masks import dense
from seqloom.nn.ops.relations import Alibi, Bias, Buckets, NoBias, Shaw, alibi_slopes
from seqloom.nn.ops.scores import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded, places_of

HEADS, TIME, DEPTH = 3, 11, 4
PAIRS = torch.tensor([[i, j] for i in range(TIME) for j in range(TIME) if (3 * i + 5 * j) % 4 == 0])
MASKS: list[masks.Mask] = [
    masks.Everything(),
    masks.Causal(),
    masks.Padding(),
    masks.DocumentMask() & masks.Padding(),
    masks.WindowMask(2, 3),
    masks.Prefix(3) | masks.Causal(),
    masks.BlockLocal(4),
    masks.Strided(3),
    masks.Edges(PAIRS),
    masks.Neighbors(PAIRS[None], TIME),
    masks.WindowMask(0, 0) & masks.WindowMask(-2, 5),  # nothing at all
]


def _scores() -> dict[str, Score]:
    drawn = torch.randn
    return {
        "dot": Dot(),
        "scaled_dot": ScaledDot(),
        "bilinear": Bilinear(drawn(HEADS, DEPTH, DEPTH)),
        "additive": Additive(drawn(HEADS, DEPTH, 5), drawn(HEADS, DEPTH, 5), drawn(HEADS, 5)),
    }


def _biases() -> dict[str, Bias]:
    return {
        "none": NoBias(),
        "alibi": Alibi(torch.tensor(alibi_slopes(HEADS))),
        "t5": Buckets(torch.randn(8, HEADS), two_sided=True, farthest=16),
        "shaw": Shaw(torch.randn(9, DEPTH), torch.randn(9, DEPTH)),
    }


def _request(mask: masks.Mask, score: Score, bias: Bias) -> Request:
    segments = (torch.arange(TIME) >= 6).long()[None] if isinstance(mask, masks.BothMasks) else None
    places = places_of(Padded.of(torch.zeros(1, TIME, 1), torch.tensor([9]), segments))
    tensors = (torch.randn(1, HEADS, TIME, DEPTH) for _ in range(3))
    return Request(*tensors, places, places, score=score, mask=mask, bias=bias, aligned=True)


@pytest.mark.slow
def test_rows_equal_the_plain_operator_for_every_score_mask_and_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_weights, "MOST_CELLS", 150)  # additive scores in several pieces, the last one short
    torch.manual_seed(0)
    for mask, (score, scoring), (bias, term) in itertools.product(MASKS, _scores().items(), _biases().items()):
        if refusal("attention", score=score, position=bias):  # type: ignore[arg-type]
            continue
        asked = _request(mask, scoring, term)
        whole, allowed = weights(asked)[0], dense(mask, asked.query_places, asked.key_places)[0, 0]
        for head, rows in itertools.product(range(HEADS), (slice(4, 5), slice(0, TIME, 2))):
            found = rows_of(asked).weights(head, rows)
            case = f"{mask} {score} {bias}"
            assert torch.equal(found.isnan(), ~allowed[rows]), case
            assert (found.nan_to_num() - whole[head, rows]).abs().max() <= 1e-6, case


def test_every_kind_of_mask_was_tried() -> None:
    def parts(mask: masks.Mask) -> set[type]:
        inner = [mask.left, mask.right] if isinstance(mask, masks.BothMasks | masks.Either) else []
        return {type(mask)}.union(*map(parts, inner))

    assert set().union(*map(parts, MASKS)) == set(masks.Mask.__subclasses__())


@pytest.mark.parametrize("position", POSITIONS)
def test_rows_are_what_a_layer_used_for_every_position_and_pattern(position: Any) -> None:
    torch.manual_seed(0)
    x = Padded.of(torch.randn(1, 9, 8), edges=torch.tensor([[[2, 5], [5, 2], [6, 0], [3, 8]]]))
    patterns = (FullConfig(), WindowConfig(size=3), SparseConfig(size=3), EdgesConfig())
    for score, pattern, causal in itertools.product(SCORES, patterns, (False, True)):
        if refusal("attention", score=score, position=position):
            continue
        if pattern == EdgesConfig() and (causal or position in RELATIVE):
            continue  # nodes have no order
        config = AttentionConfig(num_heads=2, score=score, pattern=pattern)
        mixer = (config.build_causal(8, position) if causal else config.build(8, position)).eval()
        with recording(mixer, "weights") as heard_, recording(mixer, "mixed") as mixed, torch.no_grad():
            mixer(x)
        (request,), (found,) = heard_["weights"], mixed["mixed"]
        for head in range(2):
            rows = rows_of(request).weights(head, slice(2, 7)).nan_to_num()
            torch.testing.assert_close(rows.sum(dim=1), torch.ones(5))
            used = rows @ request.value[0, head]
            if position == "shaw":
                cut = request.rows(2, 7)
                used = used + request.bias.value_term(rows[None, None], cut.query_places, cut.key_places)[0, 0]
            torch.testing.assert_close(used, found[0, head, 2:7], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_the_implied_matrix_of_linear_attention_makes_what_it_found(causal: bool) -> None:
    torch.manual_seed(0)
    config, x = LinearAttentionConfig(num_heads=2), Padded.of(torch.randn(1, 9, 8))
    mixer = config.build_causal(8) if causal else config.build(8)
    values: list[Tensor] = []
    mixer.heads.value.register_forward_hook(lambda _module, _given, found: values.append(found))
    with recording(mixer, "weights") as offered, recording(mixer, "mixed") as mixed, torch.no_grad():
        mixer(x)
    (asked,), value = offered["weights"], mixer.heads.split(values[0])
    for head in range(2):
        rows = rows_of(asked).weights(head, slice(0, 9))
        assert bool(rows[0, 1:].isnan().all()) == causal
        torch.testing.assert_close(rows.nansum(dim=1), torch.ones(9))
        torch.testing.assert_close(rows.nan_to_num() @ value[0, head], mixed["mixed"][0][0, head])


def test_weights_of_linear_attention_step_by_step_leave_room_for_what_was_read_before() -> None:
    torch.manual_seed(0)
    mixer = LinearAttentionConfig(num_heads=1).build_causal(4)
    x = Padded.of(torch.randn(1, 6, 4))
    with recording(mixer, "weights") as whole, torch.no_grad():
        mixer(x)
    with recording(mixer, "weights") as steps, torch.no_grad():
        _, state = mixer.step(x.cut(0, 4), mixer.initial_state(1))
        mixer.step(x.cut(4, 6), state)
    late = rows_of(steps["weights"][1]).weights(0, slice(0, 2)).nan_to_num()
    expected = rows_of(whole["weights"][0]).weights(0, slice(4, 6)).nan_to_num()
    torch.testing.assert_close(late, expected[:, 4:])
    assert bool((late.sum(dim=1) < 1).all())


def _first_head(_: AttentionLayer, rows: AttentionRows) -> Tensor:
    return rows.weights(0, slice(0, rows.num_queries))


def _sums(_: AttentionLayer, rows: AttentionRows) -> Tensor:
    every = slice(0, rows.num_queries)
    return torch.stack([rows.weights(head, every).nansum(dim=1) for head in range(rows.num_heads)])


@pytest.mark.parametrize(
    ("name", "recipe", "given", "paths"),
    [
        ("classify", "transformer", "the cat ran", 2),
        ("classify", "linear-attention", "the cat ran", 2),
        ("lm", "sparse", "the cat sat", 2),
        ("translate", "transformer", "a big cat", 6),
        ("translate", "seq2seq-additive", "a big cat", 1),
        ("embed", "transformer", ("the cat", "a dog ran"), 2),
    ],
)
def test_looking_changes_no_answer_and_every_row_adds_up_to_one(
    tmp_path: Path, name: str, recipe: str, given: Any, paths: int
) -> None:
    subject = subject_of(task_on(tmp_path, name), recipe)
    reading = read(subject, given)
    quiet = scores(subject, reading.inputs)
    layers = layers_of(subject, reading)
    assert len(layers) == paths
    still = heard(subject, reading, layers, _first_head)
    subject.model.train()
    torch.testing.assert_close(heard(subject, reading, layers, _first_head), still, equal_nan=True)
    for layer, found in zip(layers, heard(subject, reading, layers, _sums), strict=True):
        assert found.shape[1] == len(layer.queries)
        torch.testing.assert_close(found, torch.ones_like(found))  # before dropout: it would not be 1 after it
    assert all(module.training for module in subject.model.modules())
    assert torch.equal(scores(subject._replace(model=subject.model.eval()), reading.inputs), quiet)


def test_the_second_of_two_texts_has_layers_of_its_own(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "transformer")
    reading = read(subject, ("the cat", "a dog ran"))
    alone = read(subject, "a dog ran")
    second = heard(subject, reading, layers_of(subject, reading, "second"), _first_head)
    torch.testing.assert_close(second, heard(subject, alone, layers_of(subject, alone), _first_head))


def test_attention_pooling_is_one_row_over_the_tokens(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "bag", pooling="attention")
    reading = read(subject, "the cat sat")
    (layer,) = layers_of(subject, reading)
    (found,) = heard(subject, reading, [layer], lambda _, rows: rows.weights(0, slice(0, 1)))
    assert layer.path == "pooler" and layer.columns == ("the", "cat", "sat")
    assert found.shape == (1, 3) and float(found.sum()) == pytest.approx(1)


class _Largest(TorchDispatchMode):
    """Watches how many numbers the largest tensor has that is made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        parts = made if isinstance(made, tuple | list) else [made]
        _Largest.numbers = max(_Largest.numbers, *(part.numel() for part in parts if isinstance(part, Tensor)), 0)
        return made


@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES)
def test_one_row_makes_no_tensor_of_all_pairs(score: str) -> None:
    """Memory stays flat: nothing is larger than the keys of one head, or their inner vectors of an additive score."""
    torch.manual_seed(0)
    keys, time = torch.randn(1, HEADS, 500, DEPTH), 500
    places = places_of(Padded.of(torch.zeros(1, time, 1)))
    asked = Request(keys, keys, keys, places, places, score=_scores()[score], mask=masks.Causal())
    _Largest.numbers = 0
    with _Largest():
        rows_of(asked).weights(1, slice(250, 251))
    assert 0 < _Largest.numbers <= max(HEADS * time * DEPTH, time * 5)


@pytest.mark.soak
def test_one_row_of_each_head_of_a_large_model_costs_two_seconds_and_256_mib_at_most() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "inspection.py"
    cases = {}
    for case in ("forward", "inspect"):
        run = subprocess.run([sys.executable, str(script), case], check=True, capture_output=True, text=True)
        cases[case] = json.loads(run.stdout)
    assert 0 < cases["inspect"]["inspecting"] <= 2.0
    assert cases["inspect"]["peak_mib"] - cases["forward"]["peak_mib"] <= 256


def test_what_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    cnn = subject_of(task_on(tmp_path, "classify"), "cnn")
    with pytest.raises(ConfigError, match=r"no attention.*filters"):
        layers_of(cnn, read(cnn, "the cat"))
    with pytest.raises(DataError, match="'a' occurs 2 times, at 1, 3"):
        chosen_token([each._replace(text=text) for each, text in zip(numbered(4), "baca", strict=True)], "a")
    with pytest.raises(DataError, match="no token is 'zebra'"):
        chosen_token(numbered(3), "zebra")
    with pytest.raises(DataError, match="no token 3: the tokens are 0 to 2"):
        chosen_token(numbered(3), 3)
