"""Models under the transforms of torch.func: gradients, gradients of each sample, and tangents."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.testing import assert_close

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.errors import DataError
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.linear import linear, onednn_refuses
from seqloom.nn.ops.lookup import look_up
from seqloom.nn.types import LARGE_BATCH, Padded

# Torch's own code for tangents and for many samples.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]
Weights = dict[str, Tensor]
WORDS, CLASSES = 40, 3


@pytest.fixture(params=["bag", "transformer", "cnn", "bilstm"])
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    inputs = TokensConfig(vocab_size=WORDS)
    return recipes.classifier(request.param, inputs=inputs, num_classes=CLASSES, size="nano").build().eval()


def batch(rows: int = 4, time: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    lengths = torch.randint(1, time + 1, (rows,))
    return Padded.of(torch.randint(1, WORDS, (rows, time)), lengths).values, lengths, torch.randint(CLASSES, (rows,))


def loss(model: nn.Module, weights: Weights, tokens: Tensor, lengths: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(functional_call(model, weights, (Padded(tokens, lengths),)), classes)


def weights_of(model: nn.Module) -> Weights:
    return {name: weight.detach() for name, weight in model.named_parameters()}


def test_gradients_are_those_of_a_backward_pass(model: nn.Module) -> None:
    drawn = batch(40, 2 * LARGE_BATCH // 40)
    found = grad(lambda weights: loss(model, weights, *drawn))(weights_of(model))
    loss(model, dict(model.named_parameters()), *drawn).backward()
    for name, weight in model.named_parameters():
        assert_close(found[name], weight.grad)


def test_gradients_of_each_sample_are_those_of_a_loop(model: nn.Module) -> None:
    weights, drawn = weights_of(model), batch()

    def of_one(weights: Weights, *sample: Tensor) -> Weights:
        return grad(lambda weights: loss(model, weights, *(part[None] for part in sample)))(weights)

    found = vmap(of_one, in_dims=(None, 0, 0, 0))(weights, *drawn)
    for at, sample in enumerate(zip(*drawn, strict=True)):
        for name, wanted in of_one(weights, *sample).items():
            assert_close(found[name][at], wanted)


@pytest.mark.parametrize("model", ["bag", "transformer", "cnn"], indirect=True)  # torch's LSTM has no tangent
def test_a_tangent_is_the_product_of_gradient_and_direction(model: nn.Module) -> None:
    weights, drawn = weights_of(model), batch()
    directions = {name: torch.randn_like(weight) for name, weight in weights.items()}
    with using(attention="plain"):  # that of torch has no forward derivative
        _, tangent = jvp(lambda weights: loss(model, weights, *drawn), (weights,), (directions,))
        found = grad(lambda weights: loss(model, weights, *drawn))(weights)
    assert_close(tangent, torch.stack([(found[name] * directions[name]).sum() for name in weights]).sum())


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")
def test_products_by_onednn_have_gradients_of_each_sample() -> None:
    x, weight, bias = torch.randn(3, 64), torch.randn(32, 64), torch.randn(32)
    if (reason := onednn_refuses(x, weight)) is not None:
        pytest.skip(reason)
    with using(linear="onednn"):
        found = vmap(grad(lambda weight, x: linear(x[None], weight, bias).sum()), (None, 0))(weight, x)
    assert_close(found, x[:, None].expand(3, 32, 64))


def test_looked_up_rows_have_a_tangent_outside_of_transforms() -> None:
    rows, table, direction = torch.tensor([[0, 2, 2]]), torch.randn(4, 3), torch.randn(4, 3)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(look_up(rows, forward_ad.make_dual(table, direction)))
    assert torch.equal(found.primal, table[rows]) and torch.equal(found.tangent, direction[rows])


def test_a_token_outside_the_vocabulary_is_still_refused_where_nothing_is_transformed(model: nn.Module) -> None:
    with pytest.raises(DataError, match="outside the vocabulary"):
        model(Padded(torch.full((1, 2), WORDS), torch.tensor([2])))
