"""Parity with torch of convolution, and of distance in attention with the papers' formulas."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity_common import (
    ROWS,
    TIME,
    WIDTH,
    assert_parity,
    assert_same,
    copy_weights,
    either_kernel,
    either_precision,
    full_and_ragged,
    leaf,
    pairs,
    real,
)
from seqloom.config.inputs import FiltersConfig
from seqloom.config.mixers import ConvolutionConfig
from seqloom.nn.ops import convolution
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.relations import alibi_slopes, bucket, rotate
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded

# --- convolution -----------------------------------------------------------------------------------------------------


@either_precision
@pytest.mark.parametrize("dilation", [1, 2, 5])
@pytest.mark.parametrize("left", ["causal", "centered", "ahead"])
@pytest.mark.parametrize("taps", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", convolution.KERNELS)
def test_a_convolution_equals_torchs(kernel: str, taps: int, left: str, dilation: int, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    x, weight, bias = (leaf(*shape, dtype=dtype) for shape in [(ROWS, TIME, WIDTH), (5, WIDTH, taps), (5,)])
    before = {"causal": taps - 1, "centered": (taps - 1) // 2, "ahead": 0}[left]
    y = convolution.KERNELS[kernel](x, weight, bias, left=before, dilation=dilation)
    every = F.conv1d(x.transpose(1, 2), weight, bias, padding=(taps - 1) * dilation, dilation=dilation)
    start = (taps - 1 - before) * dilation  # where the first element meets the tap that is its own
    expected = every[:, :, start : start + TIME].transpose(1, 2)
    assert_parity([y], [expected], [x, weight, bias])


@pytest.mark.parametrize(("time", "kernel"), [(TIME, "windows"), (2 * TIME, "fused")])
def test_small_inputs_on_a_cpu_are_convolved_by_windows(
    time: int, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "MOST_COPIED", ROWS * TIME * WIDTH * 3)
    called: list[str] = []
    for name, run in convolution.KERNELS.items():
        monkeypatch.setitem(
            convolution.KERNELS,
            name,
            lambda *given, name=name, run=run, **rest: called.append(name) or run(*given, **rest),
        )
    convolution.convolve(torch.randn(ROWS, time, WIDTH), torch.randn(5, WIDTH, 3), torch.zeros(5), left=1)
    assert called == [kernel]


@either_precision
@full_and_ragged
def test_a_centered_convolution_mixer_equals_torchs_layers(lengths: Tensor | None, dtype: torch.dtype) -> None:
    torch.manual_seed(12)
    sizes = (3, 5)
    ours = ConvolutionConfig(kernel_sizes=sizes).build(WIDTH).to(dtype)
    theirs = nn.ModuleList(
        nn.Conv1d(WIDTH, WIDTH // 2, size, padding=size // 2, padding_mode="zeros", dtype=dtype) for size in sizes
    )
    twins = pairs(theirs, ours)
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    maps = torch.cat([layer(real(x, lengths).transpose(1, 2)) for layer in theirs], dim=1).relu()
    batch = Padded.of(x, lengths)._replace(values=x)  # what stands in the padding must not leak in
    assert_parity([ours(batch).values], [real(maps.transpose(1, 2), lengths)], [x], twins)


@either_precision
@either_kernel
def test_a_picture_convolution_equals_torchs(kernel: str, dtype: torch.dtype) -> None:
    torch.manual_seed(13)
    picture, weight, bias = (leaf(*shape, dtype=dtype) for shape in [(2, 3, 9, 7), (4, 3, 3, 2), (4,)])
    run = convolution.plain_2d if kernel == "plain" else convolution.convolve_2d
    assert_parity([run(picture, weight, bias)], [F.conv2d(picture, weight, bias)], [picture, weight, bias])


@either_kernel
def test_six_5x5_filters_over_a_32x32x3_picture_give_28x28x6(kernel: str) -> None:
    torch.manual_seed(14)
    config = FiltersConfig(height=32, width=32, channels=3, filters=(6,), kernel_size=5)
    ours, theirs = config.build(WIDTH), nn.Conv2d(3, 6, 5)
    with torch.no_grad():
        theirs.weight.copy_(ours.weights[0])
        theirs.bias.copy_(ours.biases[0].uniform_(-1, 1))
    picture = torch.randn(2, 32, 32, 3)
    with using(convolution=kernel), recording(ours, "maps.*") as heard:
        ours(picture)
    (maps,) = heard["maps.0"]
    assert maps.permute(0, 2, 3, 1).shape == (2, 28, 28, 6)
    assert_same(maps, theirs(picture.permute(0, 3, 1, 2)).relu(), "activation maps")


# --- distance in attention -------------------------------------------------------------------------------------------


def bucket_by_hand(ahead: int, num_buckets: int, two_sided: bool, farthest: int) -> int:
    """The bucket of one signed distance, from the T5 paper's words, in whole numbers so that no edge is rounded.

    Distances get a bucket each up to half of the buckets; the other half covers ranges that grow logarithmically up
    to `farthest`, beyond which all share the last one. Looking both ways, each side has half of all buckets. Range m
    of `ranges` begins where d / near = (farthest / near)^(m / ranges).
    """
    if two_sided:
        num_buckets //= 2
        first = num_buckets if ahead > 0 else 0
        distance = abs(ahead)
    else:
        first, distance = 0, max(0, -ahead)
    near = num_buckets // 2
    if distance < near:
        return first + distance
    ranges = num_buckets - near
    begun = [m for m in range(ranges) if distance**ranges * near**m >= farthest**m * near**ranges]
    return first + near + max(begun)


@pytest.mark.parametrize("two_sided", [True, False], ids=["two-sided", "one-sided"])
@pytest.mark.parametrize(("num_buckets", "farthest"), [(32, 128), (32, 100), (16, 64), (8, 20)])
def test_t5_buckets_equal_the_papers_description(num_buckets: int, farthest: int, two_sided: bool) -> None:
    ahead = torch.arange(-3 * farthest, 3 * farthest + 1)
    found = bucket(ahead, num_buckets=num_buckets, two_sided=two_sided, farthest=farthest).tolist()
    assert found == [bucket_by_hand(distance, num_buckets, two_sided, farthest) for distance in ahead.tolist()]
    assert set(found) == set(range(num_buckets)) - ({num_buckets // 2} if two_sided else set())  # +0 is no distance


def turned(vectors: Tensor, positions: Tensor) -> Tensor:
    """Rotation by complex numbers: the pair (x, y) is x + iy, and turning multiplies it by e^(i angle)."""
    width = vectors.shape[-1]
    rates = torch.tensor([1 / 10_000 ** (2 * i / width) for i in range(width // 2)], dtype=torch.float64)
    angles = positions[:, None, :, None].double() * rates
    numbers = torch.view_as_complex(vectors.double().unflatten(-1, (-1, 2)))
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(vectors.dtype)


@either_precision
def test_rotary_positions_equal_multiplication_by_complex_numbers(dtype: torch.dtype) -> None:
    torch.manual_seed(15)
    x, positions = leaf(ROWS, 2, TIME, WIDTH, dtype=dtype), torch.randint(0, 1000, (ROWS, TIME))
    assert_parity([rotate(x, positions)], [turned(x, positions)], [x])


@either_precision
@pytest.mark.parametrize("shift", [1, 17, 1000])  # angles have an error of position * 1e-16, whoever computes them
def test_rotary_scores_see_only_the_difference_of_positions(shift: int, dtype: torch.dtype) -> None:
    torch.manual_seed(16)
    query, key = (leaf(ROWS, 2, TIME, WIDTH, dtype=dtype) for _ in range(2))
    positions = torch.randint(0, 50, (ROWS, TIME))

    def scores(offset: int) -> Tensor:
        return rotate(query, positions + offset) @ rotate(key, positions + offset).transpose(-1, -2)

    assert_parity([scores(shift)], [scores(0)], [query, key])
    assert_same(rotate(query, positions).norm(dim=-1), query.norm(dim=-1), "length")


def test_alibi_slopes_are_the_papers_for_8_heads_and_its_rule_for_12() -> None:
    eight = [1 / 2**power for power in range(1, 9)]  # 1/2, 1/4, ... 1/256
    assert alibi_slopes(8) == eight
    sixteen = [math.sqrt(0.5) ** power for power in range(1, 17)]  # a finer sequence, whose odd members fill the gaps
    assert alibi_slopes(12) == pytest.approx(eight + sixteen[:8:2], rel=1e-15)
