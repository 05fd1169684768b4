"""Large matrices in int8: close to float, each row by itself, and only without gradients."""

import pytest
import torch
from torch import nn

from seqloom import recipes
from seqloom.config.mixers import AttentionConfig
from seqloom.errors import ConfigError
from seqloom.nn import int8
from seqloom.nn.int8 import Int8Product, QuantizedLinear, quantize
from seqloom.nn.mixers.attention import CausalSelfAttention
from seqloom.nn.types import Padded


def test_products_are_close_and_rows_do_not_depend_on_one_another() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(512, 64), torch.randn(3, 4, 512)
    x[0, 0] *= 1e4
    x[1, 1] = 0
    product = Int8Product(linear.weight, linear.bias)
    exact, found = linear(x).detach(), product(x)
    assert ((found - exact).norm(dim=-1) < 0.03 * exact.norm(dim=-1)).all()
    assert torch.equal(found[2, 3], product(x[2, 3:4])[0]) and torch.equal(found[1, 1], linear.bias)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_vectors_of_any_precision_are_multiplied(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    product, x = Int8Product(torch.randn(4, 16), torch.randn(4)), torch.randn(2, 3, 16, dtype=dtype)
    assert torch.equal(product(x), product(x.float())) and product(x).dtype == torch.float32


def test_a_model_scores_in_int8_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = recipes.language_model("transformer", vocab_size=50, size="nano").build().eval()
    x = Padded.of(torch.randint(5, 50, (2, 7)))
    with torch.no_grad():
        exact = model(x).values
        monkeypatch.setattr(int8, "LARGE", 1)
        quantize(model)
        with torch.autocast("cpu", torch.bfloat16):
            assert (model(x).values - exact).norm() < 0.1 * exact.norm()


def test_the_scale_of_rows_does_not_depend_on_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4, 8)
    few = int8._largest(x)
    monkeypatch.setattr(int8, "MANY", 1)
    assert torch.equal(int8._largest(x), few)


@pytest.mark.parametrize(("vnni", "large"), [(True, [True, False, True]), (False, [False, False, True])])
def test_matrices_from_512_x_512_are_large_enough_with_vnni_and_else_twice_as_large_ones(
    vnni: bool, large: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: vnni)
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 511), nn.Linear(512, 1024))
    quantize(model)
    assert [type(layer) is QuantizedLinear for layer in model] == large


def test_a_model_scores_in_int8_and_trains_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = recipes.language_model("transformer", vocab_size=50, size="nano").build().eval()
    x = Padded.of(torch.randint(5, 50, (2, 7)))
    exact = model(x).values
    quantize(model)
    with torch.no_grad():
        assert torch.equal(model(x).values, exact)  # all of its matrices are small
    monkeypatch.setattr(int8, "LARGE", 1)
    quantize(model)
    assert torch.equal(model(x).values, exact)
    with torch.no_grad():
        gap = (model(x).values - exact).norm() / exact.norm()
    assert 0 < gap < 0.05
    with pytest.raises(ConfigError, match="on the CPU in float32"):
        quantize(model.double())


def test_processors_without_the_product_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    with pytest.raises(ConfigError, match="int8 is for the CPUs of x86 and fbgemm, found qnnpack"):
        quantize(nn.Linear(2, 2))


def test_queries_keys_and_values_are_one_product_with_the_numbers_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = CausalSelfAttention(AttentionConfig(num_heads=2), 16), torch.randn(2, 3, 16)
    heads = layer.heads
    linears = heads.query, heads.key, heads.value
    quantize(layer)
    assert heads.together is None  # too small
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True)
    monkeypatch.setattr(int8, "LARGE", 3 * 16 * 16)
    quantize(layer)
    with torch.no_grad():
        found = heads.project(x, *linears)
        apart = [heads.split(Int8Product(linear.weight, linear.bias)(x)) for linear in linears]
        assert type(heads.query) is nn.Linear and all(map(torch.equal, found, apart))
        assert not torch.equal(found[0], heads.project(x, heads.query)[0])
