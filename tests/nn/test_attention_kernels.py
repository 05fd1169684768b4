"""No mask or bias is ever dropped: kernels x masks x biases x scores equal the plain operator, or refuse."""

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from seqloom.config.mixers import SCORES, refusal
from seqloom.errors import ConfigError, KernelError
from seqloom.nn.ops import attention_blocked, attention_regions
from seqloom.nn.ops.attention import Kernel, Request, plain, weights
from seqloom.nn.ops.attention_blocked import BLOCKED
from seqloom.nn.ops.attention_edges import EDGES
from seqloom.nn.ops.attention_fast import KERNELS, ORDERS, attend, choose, explain
from seqloom.nn.ops.attention_regions import REGIONS
from seqloom.nn.ops.attention_sdpa import SDPA, without_plans
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.masks import (
    BlockLocal,
    Causal,
    DocumentMask,
    Edges,
    Everything,
    Mask,
    Neighbors,
    Padding,
    Prefix,
    Strided,
    WindowMask,
    dense,
)
from seqloom.nn.ops.relations import Alibi, Bias, Buckets, NoBias, Shaw, alibi_slopes
from seqloom.nn.ops.scores import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.types import Padded, places_of
from tolerances import assert_equal_up_to_rounding

BATCH, HEADS, TIME, DEPTH = 2, 2, 13, 4
PAIRS = torch.tensor([[i, j] for i in range(TIME) for j in range(TIME) if (3 * i + 5 * j) % 4 == 0] + [[0, 0], [0, 0]])
NEITHER = [[-1, -1]] * 2  # the second row has fewer edges
OF_ROWS = torch.tensor([[[0, 5], [5, 0], [12, 3], [3, 3], [3, 12]], [[8, 1], [8, 1], [2, 11], *NEITHER]])

MASKS: dict[str, Mask] = {
    "everything": Everything(),
    "causal": Causal(),
    "padding": Padding(),
    "document": DocumentMask(),
    "window": WindowMask(2, 3),
    "prefix": Prefix(3),
    "block-local": BlockLocal(4),
    "strided": Strided(3),
    "edges": Edges(PAIRS),
    "edges & padding": Edges(PAIRS) & Padding(),
    "neighbors": Neighbors(OF_ROWS, TIME),
    "neighbors & padding": Neighbors(OF_ROWS, TIME) & Padding(),
    "causal window & padding": WindowMask(4, 0) & Padding(),
    "causal & document & padding": Causal() & DocumentMask() & Padding(),
    "sparse": Causal() & (BlockLocal(4) | Strided(4)) & Padding(),
    "prefix | causal": (Prefix(3) | Causal()) & Padding(),
    "edges | block-local": Edges(PAIRS) | BlockLocal(3),
    "nothing": WindowMask(0, 0) & WindowMask(-2, 5),
}


def _drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def scores() -> dict[str, Score]:
    return {
        "dot": Dot(),
        "scaled_dot": ScaledDot(),
        "bilinear": Bilinear(_drawn(HEADS, DEPTH, DEPTH)),
        "additive": Additive(_drawn(HEADS, DEPTH, 5), _drawn(HEADS, DEPTH, 5), _drawn(HEADS, 5)),
    }


def biases() -> dict[str, Bias]:
    return {
        "none": NoBias(),
        "alibi": Alibi(torch.tensor(alibi_slopes(HEADS), dtype=torch.float64)),
        "t5": Buckets(_drawn(8, HEADS), two_sided=True, farthest=16),
        "shaw": Shaw(_drawn(9, DEPTH), _drawn(9, DEPTH)),
    }


LEGAL = [
    pair for pair in itertools.product(SCORES, biases()) if not refusal("attention", score=pair[0], position=pair[1])
]


def request(mask: Mask, score: str, bias: str, *, aligned: bool = True) -> Request:
    torch.manual_seed(0)
    packed = any(isinstance(part, DocumentMask) for part in mask.parts())  # else rows are one document each
    segments = (torch.arange(TIME) >= 6).long().expand(BATCH, TIME) if packed else None
    places = places_of(Padded.of(_drawn(BATCH, TIME, 1), torch.tensor([TIME, 9]), segments))
    query, key, value = (_drawn(BATCH, HEADS, TIME, DEPTH) for _ in range(3))
    return Request(
        query, key, value, places, places, score=scores()[score], mask=mask, bias=biases()[bias], aligned=aligned
    )


def _with_gradients(run: object, asked: Request) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in asked.tensors()]
    if isinstance(asked.bias, Alibi):
        leaves[-1].requires_grad_(False)  # slopes are constants
    output = run(asked.refill(iter(leaves)))  # type: ignore[operator]
    (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).sum().backward()
    return [output.detach(), *(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel.name != "plain"], ids=lambda k: k.name)
@pytest.mark.parametrize(("score", "bias"), LEGAL)
@pytest.mark.parametrize("mask", MASKS)
def test_a_kernel_equals_plain_or_refuses(
    kernel: Kernel, mask: str, score: Score, bias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (attention_blocked, attention_regions):
        monkeypatch.setattr(module, "_BLOCK", 4)  # several blocks, the last one short
    asked = request(MASKS[mask], score, bias)
    with using(attention=kernel.name):
        if kernel.refuses(asked):
            with pytest.raises(KernelError, match=kernel.name):
                attend(asked)
            return
        for name, found, expected in zip(
            ["output", "query", "key", "value", "extra", "extra", "extra"],
            _with_gradients(attend, asked),
            _with_gradients(plain, asked),
            strict=False,
        ):
            assert_equal_up_to_rounding(found, expected, f"{kernel.name}: {name}")


@pytest.mark.slow
def test_each_kernel_accepts_something_and_the_fast_ones_refuse_something() -> None:
    table = {
        kernel.name: [
            kernel.refuses(request(mask, score, bias)) is None
            for mask, score, bias in itertools.product(MASKS.values(), SCORES, biases())
        ]
        for kernel in KERNELS
    }
    assert all(table["plain"])
    assert all(table["blocked"]), "blocked takes every score, mask and bias of one sequence"
    for name in ("sdpa", "edges", "regions", "slopes"):
        assert any(table[name]) and not all(table[name])


@pytest.mark.parametrize("mask", MASKS)
def test_masks_equal_their_definition_cell_by_cell(mask: str) -> None:
    asked = request(MASKS[mask], "dot", "none")
    found = dense(asked.mask, asked.query_places, asked.key_places)[:, 0]
    where, edges = asked.query_places, {tuple(pair) for pair in PAIRS.tolist()}
    of_rows = [{tuple(pair) for pair in pairs} for pairs in OF_ROWS.tolist()]
    for row, i, j in itertools.product(range(BATCH), range(TIME), range(TIME)):
        here, there = int(where.positions[row, i]), int(where.positions[row, j])
        same, real = bool(where.segments[row, i] == where.segments[row, j]), bool(where.valid[row, j])
        expected = {
            "everything": True,
            "causal": there <= here,
            "padding": real,
            "document": same,
            "window": -3 <= here - there <= 2,
            "prefix": there < 3,
            "block-local": here // 4 == there // 4,
            "strided": (here - there) % 3 == 0,
            "edges": (here, there) in edges,
            "edges & padding": (here, there) in edges and real,
            "neighbors": here == there or (here, there) in of_rows[row],
            "neighbors & padding": (here == there or (here, there) in of_rows[row]) and real,
            "causal window & padding": 0 <= here - there <= 4 and real,
            "causal & document & padding": there <= here and same and real,
            "sparse": there <= here and (here // 4 == there // 4 or (here - there) % 4 == 0) and real,
            "prefix | causal": (there < 3 or there <= here) and real,
            "edges | block-local": (here, there) in edges or here // 3 == there // 3,
            "nothing": False,
        }[mask]
        assert bool(found[row, i, j]) == expected, (row, i, j)


@pytest.mark.parametrize("mask", MASKS)
def test_the_reach_of_a_mask_covers_all_it_allows(mask: str) -> None:
    asked = request(MASKS[mask], "dot", "none")
    allowed = dense(asked.mask & DocumentMask(), asked.query_places, asked.key_places)[:, 0]
    before, after = asked.mask.reach()
    _, i, j = allowed.nonzero().unbind(dim=1)
    if len(i):
        assert before is None or int((i - j).max()) <= before
        assert after is None or int((j - i).max()) <= after


def test_weights_are_distributions_over_what_may_be_read() -> None:
    for name, mask in MASKS.items():
        asked = request(mask, "scaled_dot", "none")
        found, allowed = weights(asked), dense(mask, asked.query_places, asked.key_places)
        assert bool((found[~allowed.expand_as(found)] == 0).all()), name
        some = allowed.any(dim=-1).expand(BATCH, HEADS, TIME)
        assert_equal_up_to_rounding(found.sum(dim=-1), some.double(), name)


def test_any_rows_can_be_recomputed_alone() -> None:
    asked = request(Causal() & Padding(), "scaled_dot", "alibi")
    assert_equal_up_to_rounding(weights(asked.rows(4, 6)), weights(asked)[:, :, 4:6], "rows 4..6")


def test_the_choice_is_stated_and_can_be_shown() -> None:
    def long(mask: Mask, time: int, *, bias: Bias = NoBias()) -> Request:  # noqa: B008
        places = places_of(Padded.of(torch.zeros(1, time, 1)))
        tensor = torch.zeros(1, 2, time, 4)
        return Request(tensor, tensor, tensor, places, places, mask=mask, bias=bias, aligned=True)

    assert choose(long(Causal(), 4096)) is SDPA
    assert choose(long(WindowMask(255, 0), 4096)) is REGIONS
    assert choose(long(WindowMask(255, 0), 64)) is SDPA
    assert choose(long(Causal(), 4096, bias=Alibi(torch.ones(2)))) is REGIONS
    assert choose(long(Causal(), 4096, bias=Buckets(torch.ones(4, 2), two_sided=False, farthest=9))) is BLOCKED
    assert choose(long(Edges(PAIRS), 16)) is EDGES
    assert choose(long(Neighbors(OF_ROWS[:1], 16), 16)) is SDPA
    assert choose(long(Neighbors(OF_ROWS[:1], 1024), 1024)) is EDGES


def test_every_kernel_before_the_chosen_one_says_why_it_is_not_chosen() -> None:
    order = [kernel.name for kernel in ORDERS["cpu"]]
    for mask, (score, bias) in itertools.product(MASKS.values(), LEGAL):
        asked = request(mask, score, bias)
        choice = explain(asked)
        assert choice.kernel == choose(asked).name
        assert all(choice.refused.values())
        assert [*choice.refused, choice.kernel] == order[: len(choice.refused) + 1]
    with using(attention="plain"):
        assert explain(request(Causal(), "dot", "none")) == ("plain", {})


def test_a_named_kernel_refuses_instead_of_falling_back() -> None:
    asked = request(Everything(), "additive", "none")
    with using(attention="sdpa"), pytest.raises(KernelError, match="additive score"):
        attend(asked)
    with using(attention="blocked"), pytest.raises(KernelError, match="different sequences"):
        attend(asked._replace(aligned=False))
    with using(attention="sdqa"), pytest.raises(ConfigError, match="Did you mean 'sdpa'"):
        attend(asked)


@pytest.mark.slow
def test_dropout_of_weights_keeps_the_expectation() -> None:
    asked = request(Causal(), "scaled_dot", "none")
    for kernel in ("plain", "sdpa", "blocked"):
        torch.manual_seed(1)
        with using(attention=kernel):
            draws = torch.stack([attend(asked._replace(dropout=0.3)) for _ in range(3000)])
        gap = (draws.mean(dim=0) - plain(asked)).abs().max() / plain(asked).abs().max()
        assert 0 < gap < 0.1, kernel


def test_blocked_drops_the_same_weights_again_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_blocked, "_BLOCK", 4)
    asked = request(WindowMask(3, 0), "scaled_dot", "none")._replace(dropout=0.4)

    def seeded(*tensors: Tensor) -> Tensor:
        torch.manual_seed(5)
        with using(attention="blocked"):
            return attend(asked.refill(iter(tensors)))

    leaves = [tensor.clone().requires_grad_() for tensor in asked.tensors()]
    assert torch.autograd.gradcheck(seeded, leaves, fast_mode=True)
    torch.manual_seed(5)
    output = seeded(*leaves)
    before = torch.get_rng_state()
    output.sum().backward()
    assert torch.equal(torch.get_rng_state(), before), "the backward pass moved the caller's generator"


def test_alibi_is_rounded_once_in_bfloat16() -> None:
    places = places_of(Padded.of(torch.zeros(1, 1000, 1)))
    slope = torch.tensor([0.7], dtype=torch.bfloat16)
    bias = Alibi(slope).term(places.cut(999, 1000), places)[0, 0, 0]
    exact = -slope.float() * torch.arange(999, -1, -1)
    assert bool(((bias.float() - exact).abs() <= exact.abs() * 1.001 / 256).all())  # half a unit of its last bit
    twice = -slope * torch.arange(999, -1, -1).bfloat16()
    assert bool(((twice.float() - exact).abs() > exact.abs() * 1.001 / 256).any()), "counting in bfloat16 would fail"


def test_cudnn_plans_nothing_that_has_a_mask_and_comes_back_after_it() -> None:
    on_gpu, mask = cast(Any, SimpleNamespace(is_cuda=True)), torch.zeros(1)
    enabled = torch.backends.cuda.cudnn_sdp_enabled
    before = enabled()
    with without_plans(on_gpu, mask):
        assert not enabled()
    assert enabled() == before
    with without_plans(on_gpu, None):
        assert enabled() == before
    with without_plans(cast(Any, SimpleNamespace(is_cuda=False)), mask):
        assert enabled() == before


@pytest.mark.parametrize(
    ("mask", "cut"), [(Causal(), True), (WindowMask(300, -40), False)], ids=["causal", "far keys only"]
)
def test_keys_whose_weight_rounds_to_nothing_are_left_out(
    mask: Mask, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    places = places_of(Padded.of(_drawn(1, 300, 1)))
    query, key, value = (_drawn(1, 2, 300, 4) for _ in range(3))
    bias = Alibi(torch.tensor([2.0, 0.01], dtype=torch.float64))
    asked = Request(query, key, value, places, places, mask=mask, bias=bias, aligned=True)
    terms, attended = list[Tensor](), attention_regions._attend

    def spy(*arguments: object, attn_mask: Tensor, scale: float) -> object:
        terms.append(attn_mask)
        return attended(*arguments, attn_mask=attn_mask, scale=scale)

    monkeypatch.setattr(attention_regions, "_attend", spy)
    monkeypatch.setattr(attention_regions, "_BLOCK", 16)
    found = _with_gradients(REGIONS.run, asked)
    for one, expected in zip(found, _with_gradients(plain, asked), strict=True):
        assert_equal_up_to_rounding(one, expected, "far keys")
    alike = [term for term in terms if term.shape[2] == 1]  # one number for each key
    assert alike and any(bool((term < -1e300).any()) for term in alike) is cut
    assert all(bool((term[:, 1] > -1e300).all()) for term in alike)
