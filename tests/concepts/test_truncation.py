"""Row 13 of the table of concepts: back-propagation through time, cut after k steps, against one unrolled by hand."""

import torch
from torch import Tensor
from torch.testing import assert_close

from concepts_common import ROUNDING
from seqloom import recipes
from seqloom.nn.models import LanguageModel
from seqloom.nn.types import Batch, Padded

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 2, 6], [2, 7, 1, 8, 2, 8, 1]])


def model() -> LanguageModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return recipes.language_model("rnn", vocab_size=10, size="nano").build().double().eval()


def by_hand(network: LanguageModel, lengths: list[int]) -> tuple[Tensor, ...]:
    """The gradient with h_t = tanh(W x_t + U h_{t-1} + b) unrolled in plain code, h detached at each border."""
    weights = dict(network.named_parameters())
    table = network.head.table
    layers = [layer.mixer for layer in network.decoder.layers]
    states = [torch.zeros(2, table.shape[1], dtype=torch.float64) for _ in layers]
    place, total = 0, torch.zeros((), dtype=torch.float64)
    for length in lengths:
        states = [state.detach() for state in states]
        for _ in range(length):
            x, said = table[TOKENS[:, place]], TOKENS[:, place + 1]
            for number, mixer in enumerate(layers):
                one = dict(mixer.named_parameters())
                x = states[number] = torch.tanh(_affine(one, x, states[number]))
            total = total - (x @ table.T + network.head.bias).log_softmax(dim=1)[torch.arange(2), said].sum()
            place += 1
    return torch.autograd.grad(total, list(weights.values()))


def _affine(weights: dict[str, Tensor], x: Tensor, h: Tensor) -> Tensor:
    matrices = [value for value in weights.values() if value.ndim == 2]
    biases = [value for value in weights.values() if value.ndim == 1]
    inward, recurrent = matrices
    return x @ inward.T + h @ recurrent.T + sum(biases)


def by_steps(network: LanguageModel, lengths: list[int]) -> tuple[Tensor, ...]:
    """The gradient of the sum of `continued_loss` over steps of these lengths."""
    state, place, total = None, 0, torch.zeros((), dtype=torch.float64)
    for length in lengths:
        read, said = TOKENS[:, place : place + length], TOKENS[:, place + 1 : place + length + 1]
        loss, state = network.continued_loss(Batch(Padded.of(read), said), state)
        total, place = total + loss.total, place + length
    return torch.autograd.grad(total, list(network.parameters()))


def test_the_truncated_gradient_equals_the_one_unrolled_by_hand() -> None:
    network = model()
    for lengths in ([6], [3, 3], [2, 2, 2], [1, 4, 1]):
        for found, expected in zip(by_steps(network, lengths), by_hand(network, lengths), strict=True):
            assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_truncation_changes_the_gradient_and_not_the_loss() -> None:
    network = model()
    whole, cut = by_steps(network, [6]), by_steps(network, [2, 2, 2])
    assert any(not torch.allclose(one, other, rtol=1e-6) for one, other in zip(whole, cut, strict=True))
    x = Padded.of(TOKENS[:, :-1])
    total = network.loss(Batch(x, TOKENS[:, 1:])).total
    first, state = network.continued_loss(Batch(x.cut(0, 2), TOKENS[:, 1:3]), None)
    second, _ = network.continued_loss(Batch(x.cut(2, 6), TOKENS[:, 3:]), state)
    assert_close(first.total + second.total, total, **ROUNDING)
