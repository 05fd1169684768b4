import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.errors import ConfigError, KernelError
from seqloom.nn.ops import losses
from seqloom.nn.ops.kernels import observing, using
from seqloom.nn.ops.losses import (
    binary_cross_entropy,
    chunked_linear_cross_entropy,
    cross_entropy,
    cross_entropy_curvature,
    linear_cross_entropy,
    squared_error,
)
from seqloom.nn.ops.losses_fast import vocabulary_cross_entropy
from seqloom.nn.types import Loss

EXACT = {"rtol": 0.0, "atol": 1e-15}  # float64, one or two roundings
FLOAT64 = {"rtol": 1e-11, "atol": 1e-12}
BFLOAT16 = {"rtol": 2e-2, "atol": 2e-2}


def leaf(*shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype).requires_grad_()


def positive(*shape: int) -> Tensor:
    return leaf(*shape, seed=5).detach().abs() + 0.1


def labels(*shape: int, below: int, seed: int = 1) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))


# The identity of every last layer: dL/dz = a - y.


def test_the_softmax_gradient_is_prediction_minus_target() -> None:
    z, y = leaf(5, 7, scale=3), labels(5, below=7)
    (slope,) = torch.autograd.grad(cross_entropy(z, y).total, z)
    assert_close(slope, z.softmax(-1) - F.one_hot(y, 7), **EXACT)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_curvature_of_the_cross_entropy_is_that_of_autograd(smoothing: float, weighted: bool) -> None:
    z, y, along = leaf(5, 7, scale=3), labels(5, below=7), leaf(5, 7, seed=3).detach()
    named: dict[str, Any] = {"smoothing": smoothing, "weights": torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0])}
    named |= {"class_weights": positive(7)} if weighted else {}
    (slope,) = torch.autograd.grad(cross_entropy(z, y, **named).total, z, create_graph=True)
    (expected,) = torch.autograd.grad(slope, z, along)
    assert_close(cross_entropy_curvature(z.detach(), y, **named)(along), expected, **FLOAT64)


def test_the_logistic_gradient_is_prediction_minus_target() -> None:
    z = torch.tensor([-800.0, -3.0, -0.0, 0.0, 0.5, 40.0, 800.0], dtype=torch.float64, requires_grad=True)
    for y in (torch.zeros_like(z), torch.ones_like(z), torch.full_like(z, 0.3)):
        (slope,) = torch.autograd.grad(binary_cross_entropy(z, y).total, z)
        assert_close(slope, z.sigmoid() - y, **EXACT)


def test_the_squared_gradient_is_twice_prediction_minus_target() -> None:
    z, y = leaf(6), leaf(6, seed=2).detach()
    (slope,) = torch.autograd.grad(squared_error(z, y).total, z)
    assert_close(slope, 2 * (z - y), **EXACT)


def test_two_classes_of_softmax_are_the_logistic_loss_of_their_difference() -> None:
    z, y = leaf(9, 2), labels(9, below=2)
    assert_close(cross_entropy(z, y).total, binary_cross_entropy(z[:, 1] - z[:, 0], y).total, **FLOAT64)


# Parity with torch.


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("classes", ["even", "weighted"])
def test_cross_entropy_equals_torch_in_sum_mean_and_gradient(smoothing: float, classes: str) -> None:
    z, y = leaf(4, 6, 5), labels(4, 6, below=5)
    v = positive(5) if classes == "weighted" else None
    ours = cross_entropy(z, y, smoothing=smoothing, class_weights=v)
    theirs = {
        reduction: F.cross_entropy(z.flatten(0, 1), y.flatten(), v, label_smoothing=smoothing, reduction=reduction)
        for reduction in ("sum", "mean")
    }
    assert_close(ours.total, theirs["sum"], **FLOAT64)
    assert_close(ours.mean, theirs["mean"], **FLOAT64)
    assert_close(torch.autograd.grad(ours.total, z), torch.autograd.grad(theirs["sum"], z), **FLOAT64)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_zero_weights_are_what_torch_calls_an_ignored_index(smoothing: float) -> None:
    z, y, v = leaf(8, 5), labels(8, below=5), positive(5)
    y[::3] = -100
    ours = cross_entropy(z, y, weights=(y != -100).double(), smoothing=smoothing, class_weights=v)
    assert_close(ours.total, F.cross_entropy(z, y, v, label_smoothing=smoothing, reduction="sum"), **FLOAT64)
    assert_close(ours.mean, F.cross_entropy(z, y, v, label_smoothing=smoothing), **FLOAT64)


def test_binary_cross_entropy_equals_torch_and_keeps_the_digits_of_a_confident_answer() -> None:
    z, y = leaf(4, 3, scale=5), leaf(4, 3, seed=2).detach().sigmoid()
    assert_close(binary_cross_entropy(z, y).total, F.binary_cross_entropy_with_logits(z, y, reduction="sum"), **FLOAT64)
    confident = binary_cross_entropy(torch.tensor([40.0], dtype=torch.float64), torch.ones(1)).total
    assert confident.item() == pytest.approx(math.exp(-40), rel=1e-12, abs=0)
    far = torch.tensor([1e38, -1e38])
    assert binary_cross_entropy(far, torch.tensor([1.0, 0.0])) == (0, 2)
    assert binary_cross_entropy(far[:1], torch.zeros(1)).total == far[0]


# Sums and weights.

Function = Callable[..., Loss]
LOSSES: list[Function] = [cross_entropy, binary_cross_entropy, squared_error]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_counts_a_position_that_many_times(loss: Function) -> None:
    z = leaf(3, 4) if loss is cross_entropy else leaf(3)
    y = torch.tensor([0, 1, 1])
    weighted = loss(z, y, weights=torch.tensor([2.0, 1.0, 0.0]))
    repeated = loss(torch.stack([z[0], z[0], z[1]]), torch.tensor([0, 0, 1]))
    assert_close(tuple(weighted), tuple(repeated), **FLOAT64)
    assert repeated.weight == 3


@pytest.mark.parametrize("loss", LOSSES)
def test_parts_of_a_batch_add_up_to_the_whole(loss: Function) -> None:
    z, y, w = leaf(6, 4) if loss is cross_entropy else leaf(6), labels(6, below=2), positive(6)
    parts = [loss(z[i], y[i], weights=w[i]) for i in (slice(0, 2), slice(2, 2), slice(2, 6))]
    whole = loss(z, y, weights=w)
    assert_close(sum(part.total for part in parts), whole.total, **FLOAT64)
    assert_close(sum(part.weight for part in parts), whole.weight, **FLOAT64)


@pytest.mark.parametrize("garbage", [3e38, -3e38, torch.inf, torch.nan])
@pytest.mark.parametrize("loss", LOSSES)
def test_padding_garbage_never_changes_the_loss(loss: Function, garbage: float) -> None:
    w = torch.tensor([1.0, 0.0, 0.5, 0.0])
    z = (leaf(4, 3) if loss is cross_entropy else leaf(4)).detach().float()
    y = torch.tensor([0, -100, 1, 10**12]) if loss is cross_entropy else torch.tensor([0.0, garbage, 1.0, -garbage])
    z[1], z[3] = garbage, -garbage
    if loss is cross_entropy:
        z[1, 0] = -garbage
    z.requires_grad_()
    padded = loss(z, y, weights=w)
    alone = loss(z[::2], y[::2], weights=w[::2])
    assert_close(tuple(padded), tuple(alone), rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(padded.total, z)
    assert torch.equal(slope[1::2], torch.zeros_like(slope[1::2]))
    assert_close(slope[::2], torch.autograd.grad(alone.total, z)[0][::2], rtol=1e-6, atol=0)


def test_weights_take_no_gradient() -> None:
    w = torch.ones(3, requires_grad=True)
    assert not cross_entropy(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), weights=w).total.requires_grad
    assert not squared_error(torch.zeros(3), torch.ones(3), weights=w).total.requires_grad


@pytest.mark.parametrize("loss", LOSSES)
def test_half_precision_is_summed_in_float32(loss: Function) -> None:
    z = torch.ones(3000, 2, dtype=torch.bfloat16) if loss is cross_entropy else torch.ones(3000, dtype=torch.bfloat16)
    total, weight = loss(z, torch.zeros(3000, dtype=torch.int64))
    one = loss(z[:1], torch.zeros(1, dtype=torch.int64)).total
    assert total.dtype == weight.dtype == torch.float32 and weight == 3000
    assert_close(total, 3000 * one, rtol=1e-5, atol=0)


# The chunked pair.


class Watch(TorchDispatchMode):
    """Remembers the name of each operation and the shape of each tensor that came out of one."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, Tensor):
                self.shapes.add(tuple(part.shape))
        return result

    @property
    def products(self) -> int:
        return sum(name in ("mm", "addmm", "addmm_") for name in self.names)

    @property
    def largest(self) -> int:
        return max(math.prod(shape) for shape in self.shapes)


@contextmanager
def largest_saved() -> Iterator[list[int]]:
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (sizes.append(x.numel()), x)[1], lambda x: x):
        yield sizes


def problem(n: int, d: int, v: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
    weights = torch.rand(n, generator=torch.Generator().manual_seed(seed))
    weights[weights < 0.3] = 0
    targets = labels(n, below=v, seed=seed).masked_fill(weights == 0, -100)
    inputs = [leaf(n, d, seed=seed, dtype=dtype), leaf(v, d, seed=seed + 1, dtype=dtype), leaf(v, seed=7, dtype=dtype)]
    return inputs, targets, weights


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 9),
    d=st.integers(1, 4),
    v=st.integers(1, 7),
    chunk=st.integers(1, 10),
    smoothing=st.sampled_from([0.0, 0.1]),
    bias=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_chunked_equals_plain_in_value_and_all_gradients(
    n: int, d: int, v: int, chunk: int, smoothing: float, bias: bool, seed: int
) -> None:
    inputs, y, w = problem(n, d, v, seed=seed)
    inputs = inputs if bias else inputs[:2]
    x, m, b = (*inputs, None)[:3]
    plain = linear_cross_entropy(x, m, b, y, weights=w, smoothing=smoothing)
    fast = chunked_linear_cross_entropy(x, m, b, y, weights=w, smoothing=smoothing, chunk=chunk)
    assert_close(tuple(fast), tuple(plain), **FLOAT64)
    # An upstream gradient other than one: the mean's.
    assert_close(torch.autograd.grad(fast.total / 3, inputs), torch.autograd.grad(plain.total / 3, inputs), **FLOAT64)


def test_the_cross_entropy_of_a_vocabulary_tells_its_kernel_and_takes_a_named_one() -> None:
    inputs, y, w = problem(9, 3, 5)
    plain, told = linear_cross_entropy(*inputs, y, weights=w, smoothing=0.1), list[tuple[str, str]]()

    def compute() -> Loss:
        return vocabulary_cross_entropy(*inputs, y, weights=w, smoothing=0.1)

    with observing(lambda operator, choice: told.append((operator, choice.kernel))):
        assert_close(tuple(compute()), tuple(plain), **FLOAT64)
        for kernel in ("plain", "aligned", "chunked"):
            with using(cross_entropy=kernel):
                assert_close(tuple(compute()), tuple(plain), **FLOAT64)
    assert told == [("cross_entropy", kernel) for kernel in ("chunked", "plain", "aligned", "chunked")]
    with using(cross_entropy="fused"), pytest.raises(KernelError, match="cannot be used here"):
        compute()  # float64
    with using(cross_entropy="flash"), pytest.raises(ConfigError, match="no cross-entropy kernel 'flash'"):
        compute()


def test_a_chunk_on_a_cpu_has_so_many_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "SCORES_OF_CHUNK", 10)
    inputs, y, w = problem(9, 3, 5)
    with Watch() as watch:
        chunked_linear_cross_entropy(*inputs, y, weights=w)
    assert (2, 5) in watch.shapes and (9, 5) not in watch.shapes


def test_chunked_without_weights_counts_every_row() -> None:
    (x, m, b), _, _ = problem(7, 3, 5)
    y = labels(7, below=5)
    fast, plain = chunked_linear_cross_entropy(x, m, b, y, chunk=3), linear_cross_entropy(x, m, b, y)
    assert fast.weight == 7
    assert_close(tuple(fast), tuple(plain), **FLOAT64)


@pytest.mark.parametrize("garbage", [1e38, torch.inf, torch.nan])
def test_padding_garbage_never_changes_the_chunked_loss(garbage: float) -> None:
    inputs, y, w = problem(9, 3, 5, dtype=torch.float32)
    clean = chunked_linear_cross_entropy(*inputs, y, weights=w, chunk=4)
    dirty_x = inputs[0].detach().masked_fill(w[:, None] == 0, garbage).requires_grad_()
    dirty = chunked_linear_cross_entropy(dirty_x, *inputs[1:], y, weights=w, chunk=4)
    assert (w == 0).any() and torch.equal(dirty.total, clean.total)
    slopes = torch.autograd.grad(dirty.total, [dirty_x, *inputs[1:]])
    assert_close(slopes, torch.autograd.grad(clean.total, inputs), rtol=0, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunked_never_holds_the_scores_of_all_rows(smoothing: float) -> None:
    n, d, v, chunk = 96, 4, 50, 8
    inputs, y, w = problem(n, d, v)
    with Watch() as plain, largest_saved() as plain_saved:
        linear_cross_entropy(*inputs, y, weights=w, smoothing=smoothing).total.backward()
    with Watch() as fast, largest_saved() as fast_saved:
        chunked_linear_cross_entropy(*inputs, y, weights=w, smoothing=smoothing, chunk=chunk).total.backward()
    bound = max(chunk * v, v * d, n * d)
    assert plain.largest == n * v and max(plain_saved) == n * v  # the yardstick sees what it should see
    assert fast.largest <= bound and max(fast_saved) <= bound


def test_without_gradients_chunked_does_no_gradient_work() -> None:
    inputs, y, w = problem(12, 3, 5)
    with torch.no_grad(), Watch() as watch:
        silent = chunked_linear_cross_entropy(*inputs, y, weights=w, chunk=4)
    assert watch.products == 3 and "scatter_add_" not in watch.names  # one product for each of the three chunks
    assert not silent.total.requires_grad
    assert_close(silent.total, linear_cross_entropy(*inputs, y, weights=w).total, **FLOAT64)
    with Watch() as watch:
        chunked_linear_cross_entropy(*(x.detach() for x in inputs), y, weights=w, chunk=4)
    assert watch.products == 3


@pytest.mark.parametrize(
    "wanted", [(True, False, False), (False, True, False), (False, False, True), (True, True, False)]
)
def test_chunked_computes_only_the_gradients_that_are_wanted(wanted: tuple[bool, bool, bool]) -> None:
    inputs, y, w = problem(12, 3, 5)
    inputs = [x.detach().requires_grad_(want) for x, want in zip(inputs, wanted, strict=True)]
    needed = [x for x in inputs if x.requires_grad]
    with Watch() as watch:
        fast = chunked_linear_cross_entropy(*inputs, y, weights=w, chunk=4).total
    assert watch.products == 3 * (1 + wanted[0] + wanted[1])
    plain = linear_cross_entropy(*inputs, y, weights=w).total
    assert_close(torch.autograd.grad(fast, needed), torch.autograd.grad(plain, needed), **FLOAT64)


def test_chunked_gradients_survive_a_second_backward_pass_but_refuse_a_second_derivative() -> None:
    inputs, y, w = problem(6, 3, 5)
    total = chunked_linear_cross_entropy(*inputs, y, weights=w, chunk=4).total
    first, second = (torch.autograd.grad(total, inputs, retain_graph=True) for _ in range(2))
    assert_close(first, second, rtol=0, atol=0)
    with pytest.raises(KernelError, match="use linear_cross_entropy"):
        torch.autograd.grad(total, inputs, create_graph=True)


@pytest.mark.slow
def test_bfloat16_gradients_are_summed_in_float32_over_the_chunks() -> None:
    # 2,000 equal contributions: a bfloat16 sum would stand still after about 256 of them.
    x, m = torch.ones(2000, 1, dtype=torch.bfloat16), torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    b = torch.zeros(2, dtype=torch.bfloat16, requires_grad=True)
    loss = chunked_linear_cross_entropy(x, m, b, torch.zeros(2000, dtype=torch.int64), chunk=1)
    by_weight, by_bias = torch.autograd.grad(loss.total, [m, b])
    assert loss.total.dtype == torch.float32 and by_weight.dtype == by_bias.dtype == torch.bfloat16
    assert_close(by_weight.flatten().tolist(), [-1000.0, 1000.0], rtol=0.004, atol=0)
    assert_close(by_bias.tolist(), [-1000.0, 1000.0], rtol=0.004, atol=0)
    assert loss.total.item() == pytest.approx(2000 * math.log(2), rel=1e-4)


@pytest.mark.parametrize("way", ["bfloat16", "autocast"])
def test_chunked_equals_plain_in_bfloat16(way: str) -> None:
    inputs, y, w = problem(20, 8, 11, dtype=torch.bfloat16 if way == "bfloat16" else torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
        plain = linear_cross_entropy(*inputs, y, weights=w, smoothing=0.1)
        fast = chunked_linear_cross_entropy(*inputs, y, weights=w, smoothing=0.1, chunk=6)
    assert fast.total.dtype == torch.float32
    assert_close(tuple(fast), tuple(plain), rtol=1e-5, atol=0)
    assert_close(torch.autograd.grad(fast.total, inputs), torch.autograd.grad(plain.total, inputs), **BFLOAT16)
