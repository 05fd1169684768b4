"""Products by oneDNN equal torch's own, with their gradients, and are used only where they are faster."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom import recipes
from seqloom.errors import ConfigError, KernelError
from seqloom.nn.ops import linear_onednn
from seqloom.nn.ops.kernels import observing, using
from seqloom.nn.ops.linear import add_linear, linear, through
from seqloom.nn.ops.linear_onednn import mkl_is_slow, onednn_declines, onednn_refuses
from seqloom.nn.types import Batch, Padded
from seqloom.recipes.families import Dimensions

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or torch.get_default_device().type != "cpu", reason="no oneDNN"
)


def tensors(*shape: int, outputs: int, bias: bool) -> list[Tensor | None]:
    draw = torch.Generator().manual_seed(0)
    drawn = [torch.randn(size, generator=draw) for size in (shape, (outputs, shape[-1]), (outputs,))]
    return [one.requires_grad_() for one in drawn[: 2 + bias]] + [None] * (not bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 12), (3, 5, 12), (1, 1, 12), (2, 3, 4, 12)], ids=str)
def test_products_and_their_gradients_equal_the_plain_ones(shape: tuple[int, ...], bias: bool) -> None:
    found, expected = tensors(*shape, outputs=20, bias=bias), tensors(*shape, outputs=20, bias=bias)
    with using(linear="onednn"):
        y = linear(*found)  # type: ignore[arg-type]
    assert "OneDnn" in type(y.grad_fn).__name__
    plain = F.linear(*expected)  # type: ignore[arg-type]
    torch.testing.assert_close(y, plain, rtol=1e-5, atol=1e-5)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    for one, product in ((found, y), (expected, plain)):
        with using(linear="onednn"):
            product.backward(upstream)
        assert all(part is None or part.grad is not None for part in one)
    for one, other in zip(found, expected, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-4)


def test_only_wanted_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    values, weight, bias = (one.detach() for one in tensors(7, 12, outputs=20, bias=True) if one is not None)
    product, shapes = linear_onednn._product, list[tuple[int, ...]]()
    monkeypatch.setattr(linear_onednn, "_product", lambda *these: shapes.append(these[0].shape) or product(*these))
    with using(linear="onednn"):
        linear(values, weight.requires_grad_(), bias).sum().backward()
        assert values.grad is None and weight.grad is not None
        assert shapes == [(7, 12), (20, 7)]
        with torch.no_grad():
            assert linear(values, weight, bias).grad_fn is None


@pytest.mark.parametrize("first", [0, 1], ids=["values", "weight"])
def test_a_gradient_has_a_gradient(first: int) -> None:
    rows = list[Tensor]()
    for kernel in ("onednn", "plain"):
        values, weight, _ = tensors(4, 6, outputs=5, bias=False)
        assert values is not None and weight is not None
        with using(linear=kernel):
            both = (values, weight)
            (slope,) = torch.autograd.grad(linear(*both, None).tanh().sum(), both[first], create_graph=True)
            slope.square().sum().backward()
        for one in both:
            assert one.grad is not None
            rows.append(one.grad)
    torch.testing.assert_close(rows[:2], rows[2:], rtol=1e-4, atol=1e-5)


def test_the_rows_of_a_batch_decide_in_every_product(slow_mkl: None) -> None:
    """They are the rows of scores, and the inner axis of the gradient of weights."""
    weight, seen = torch.randn(70, 12), list[str]()
    with observing(lambda operator, _: seen.append(operator)):
        for rows, expected in ((130, 0), (128, 2)):
            values, slopes = torch.randn(2, rows // 2, 12), torch.randn(rows, 70)
            linear(values, weight, None)
            add_linear(torch.zeros(70, 12), slopes.T, values.flatten(0, 1).T)
            assert len(seen) == expected, rows


def test_a_product_is_added_to_a_total() -> None:
    values, weight = torch.randn(20, 7).T, torch.randn(12, 20)  # rows are columns of another tensor
    for kernel in ("onednn", "plain"):
        total = torch.ones(7, 12)
        with using(linear=kernel):
            add_linear(total, values, weight)
        torch.testing.assert_close(total, 1 + values @ weight.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["column", "expanded"])
def test_a_bias_may_lie_anywhere(layout: str) -> None:
    values, weight, table = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 7)
    bias = table[:, 2] if layout == "column" else table[0, :1].expand(5)
    with using(linear="onednn"):
        found = linear(values, weight, bias)
    torch.testing.assert_close(found, F.linear(values, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "outputs"), [(0, 5), (3, 0), (0, 0)])
def test_a_product_of_nothing_has_a_gradient(rows: int, outputs: int) -> None:
    values, weight, bias = tensors(rows, 4, outputs=outputs, bias=True)
    assert values is not None and weight is not None and bias is not None
    with using(linear="onednn"):
        linear(values, weight, bias).sum().backward()
    for one in (values, weight, bias):
        assert one.grad is not None and one.grad.shape == one.shape and not one.grad.any()


@pytest.fixture
def slow_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU of AMD, and products of every size are large."""
    monkeypatch.setattr(linear_onednn, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(linear_onednn, "MANY_PRODUCTS", 0)


def test_what_onednn_does_not_compute_is_left_to_torch(slow_mkl: None) -> None:
    values, weight = torch.randn(3, 4), torch.randn(5, 4)
    assert onednn_refuses(values, weight) is None
    assert onednn_refuses(values.double(), weight.double()) is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert onednn_refuses(values, weight) is not None
        assert linear(values, weight, None).dtype == torch.bfloat16
    with using(linear="onednn"), pytest.raises(KernelError, match="needs float32"):
        linear(values.double(), weight.double(), None)
    with using(linear="onednnn"), pytest.raises(ConfigError, match="no kernel 'onednnn'"):
        linear(values, weight, None)


def test_small_products_and_other_cpus_keep_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many, weight = torch.empty(16, 512), torch.empty(512, 512), torch.empty(512, 512)
    large = torch.empty(2048, 512)
    monkeypatch.setattr(linear_onednn, "mkl_is_slow", lambda: True)
    assert onednn_declines(few, weight, 16) == "the product is too small"
    assert onednn_declines(many, weight, 512) is None
    assert onednn_declines(few[:1], large, 1) is None
    assert onednn_declines(many, weight, 511) == "511 rows are a number that hardly repeats"
    monkeypatch.setattr(linear_onednn, "mkl_is_slow", lambda: False)
    assert onednn_declines(many, weight, 512) == "MKL uses all of this CPU"


@pytest.mark.parametrize(
    ("capability", "vendor", "expected"),
    [("AVX512", "AuthenticAMD", True), ("AVX2", "AuthenticAMD", False), ("AVX512", "GenuineIntel", False)],
)
def test_mkl_is_slow_on_cpus_of_amd_with_avx512(
    capability: str, vendor: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"processor: 0\nvendor_id: {vendor}\n")
    assert mkl_is_slow.__wrapped__() is expected


def test_a_layer_with_a_hook_applies_itself(slow_mkl: None) -> None:
    layer, seen = nn.Linear(4, 4), list[str]()
    with observing(lambda operator, choice: seen.append(f"{operator} {choice.kernel}")):
        expected = through(layer, torch.ones(2, 4))
        assert seen == ["linear onednn"]
        hook = layer.register_forward_hook(lambda *_: seen.append("hook"))
        torch.testing.assert_close(through(layer, torch.ones(2, 4)), expected)
        hook.remove()
    assert seen[1:] == ["hook"]


def test_a_layer_with_a_forward_pass_of_its_own_applies_itself(slow_mkl: None) -> None:
    layer, values = nn.Linear(4, 4), torch.ones(2, 4)
    layer.forward = lambda x: x + 1  # type: ignore[method-assign]
    assert torch.equal(through(layer, values), values + 1)
    compiled = nn.Linear(4, 4)
    compiled._compiled_call_impl = lambda x: x + 2  # as `compile` of a module does
    assert torch.equal(through(compiled, values), values + 2)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # in torch itself
def test_tangents_go_through_torchs_own_product(slow_mkl: None) -> None:
    values, weight, slope = torch.randn(3, 4), nn.Parameter(torch.randn(5, 4)), torch.randn(3, 4)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(values, slope)
            tangent = torch.autograd.forward_ad.unpack_dual(linear(dual, weight, None)).tangent
        assert tangent is not None
        torch.testing.assert_close(tangent, slope @ weight.T)


def test_transforms_of_torch_func_take_torchs_own_product(slow_mkl: None) -> None:
    values, weight = torch.randn(8, 4), torch.randn(5, 4)
    each = torch.func.vmap(torch.func.grad(lambda w, x: linear(x, w, None).square().sum()), in_dims=(None, 0))
    expected = [2 * torch.outer(weight @ x, x) for x in values]
    torch.testing.assert_close(each(weight, values), torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_a_model_trains_the_same(slow_mkl: None) -> None:
    model = recipes.language_model("gpt", vocab_size=50, size=Dimensions("small", width=32, layers=2, heads=2)).build()
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(6, 50, (3, 9), generator=draw)
    batch = Batch(Padded.of(tokens[:, :-1], torch.tensor([8, 3, 5])), tokens[:, 1:])
    model.eval()  # no dropout
    found, kernels = list[dict[str, Tensor]](), set[str]()
    for kernel in ("onednn", "plain"):
        model.zero_grad()
        with using(linear=kernel), observing(lambda operator, choice: kernels.add(f"{operator} {choice.kernel}")):
            loss = model.loss(batch).mean
        loss.backward()
        found.append({"loss": loss.detach()} | {name: weight.grad.clone() for name, weight in model.named_parameters()})
    assert "linear onednn" in kernels
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-4, atol=1e-5, msg=name)
