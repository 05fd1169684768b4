"""Faster linear maps: they equal the plain one as far as their numbers allow, row by row."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from embedding_common import small_model, some_texts
from seqloom.errors import ConfigError
from seqloom.inference.model import load
from seqloom.search.embedding.packed_linears import Int8Linear, PackedLinear, quantize_rows, with_precision


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load(small_model(tmp_path_factory.mktemp("small")))


def linear(*, bias: bool = True) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(24, 40, bias=bias)


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("bias", [True, False])
def test_packed_weights_give_the_same(bias: bool) -> None:
    plain = linear(bias=bias)
    for shape in ((1, 24), (7, 24), (3, 5, 24)):
        torch.testing.assert_close(PackedLinear(plain)(rows(*shape)), plain(rows(*shape)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_int8_equals_the_definition_in_whole_numbers(bias: bool) -> None:
    plain, values = linear(bias=bias), rows(3, 5, 24)
    (row_scale, whole), (scale, weight) = (
        quantize_rows(values.flatten(0, 1)),
        quantize_rows(plain.weight.detach()),
    )
    product = whole.double() @ weight.double().T * row_scale.double() * scale.T.double()
    wanted = product + (plain.bias.double() if bias else 0)
    found = Int8Linear(plain)(values)
    assert found.shape == (3, 5, 40)
    torch.testing.assert_close(found.flatten(0, 1), wanted.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found, plain(values), rtol=0.0, atol=0.05)  # and is near what it stands for


def test_in_int8_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    values = rows(9, 24)
    values[3] *= 1_000
    alone = torch.cat([Int8Linear(linear())(row[None]) for row in values])
    assert torch.equal(Int8Linear(linear())(values), alone)


def test_rows_of_zeros_give_the_bias() -> None:
    assert torch.equal(Int8Linear(linear())(torch.zeros(2, 24)), linear().bias.detach().expand(2, 40))


@pytest.mark.parametrize(("precision", "least"), [("float32", 1 - 1e-6), ("int8", 0.98)])
def test_a_faster_model_gives_nearly_the_same_vectors_and_leaves_the_model_alone(loaded, precision, least) -> None:
    texts, before = some_texts(40), copy.deepcopy(loaded.model.state_dict())
    wanted = loaded.embed(texts)
    faster = with_precision(loaded, precision)
    assert (faster.embed(texts) * wanted).sum(axis=1).min() > least  # cosines
    assert (loaded.embed(texts) == wanted).all()
    assert before.keys() == loaded.model.state_dict().keys()
    kind = Int8Linear if precision == "int8" else PackedLinear
    assert sum(isinstance(module, kind) for module in faster.model.modules()) == 12
    assert {id(one) for one in faster.model.parameters()} == {id(one) for one in loaded.model.parameters()}  # shared


@pytest.mark.slow
def test_a_batch_in_int8_equals_its_rows_one_by_one(loaded) -> None:
    faster, texts = with_precision(loaded, "int8"), some_texts(30)
    alone = np.concatenate([faster.embed([text]) for text in texts])
    np.testing.assert_allclose(faster.embed(texts), alone, atol=1e-2)
    assert (faster.embed(texts) * alone).sum(axis=1).min() > 0.9999


def test_an_unknown_precision_and_int8_elsewhere_than_on_a_processor_are_refused(loaded) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'int8'"):
        with_precision(loaded, "int4")
    elsewhere = copy.copy(loaded)
    elsewhere.device = torch.device("cuda")
    with pytest.raises(ConfigError, match="--device cpu"):
        with_precision(elsewhere, "int8")
