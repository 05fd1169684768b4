"""Rows 3, 5 and 9 of the table of concepts: activations, linear models and networks, convolution."""

import itertools
import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from concepts_common import ROUNDING
from seqloom.config.heads import ClassHeadConfig, ScoresHeadConfig
from seqloom.config.inputs import FiltersConfig, FlatConfig, NgramsConfig, TokensConfig, VectorsConfig
from seqloom.config.mixers import ConvolutionConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import Activation, BlockConfig, EncoderConfig, FeedForwardConfig
from seqloom.nn.models import SequenceModel, count_parameters
from seqloom.nn.stacks import FeedForward
from seqloom.nn.taps import recording
from seqloom.nn.types import Batch, Padded

# --- 3: activations --------------------------------------------------------------------------------------------------

FORMULAS: dict[str, Callable[[float], float]] = {
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "tanh": lambda z: (1 - math.exp(-2 * z)) / (1 + math.exp(-2 * z)),  # as deck D prints it
    "relu": lambda z: max(0.0, z),
    "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
    "swiglu": lambda z: z / (1 + math.exp(-z)) * z,  # the gate of this test reads the same number
}


def activate(activation: str, values: Tensor) -> Tensor:
    """The nonlinearity of a feed-forward by itself: one hidden unit between identities."""
    layer = FeedForward(FeedForwardConfig(hidden=1, activation=activation), 1)
    for weight in layer.parameters():
        nn.init.constant_(weight, float(weight.ndim == 2))
    assert count_parameters(layer) == FeedForwardConfig(hidden=1, activation=activation).parameters(1)
    result: Tensor = layer(values[:, None])[:, 0]
    return result


def test_row_03_the_activations_are_a_closed_list() -> None:
    assert set(get_args(Activation)) == set(FORMULAS)


@pytest.mark.parametrize("activation", FORMULAS)
def test_row_03_every_activation_equals_its_formula(activation: str) -> None:
    z = torch.linspace(-4, 4, 33)
    expected = torch.tensor([FORMULAS[activation](value) for value in z.tolist()])
    assert_close(activate(activation, z), expected, **ROUNDING)


def test_row_03_sigmoid_and_tanh_saturate_and_relu_dies_below_zero() -> None:
    z = torch.tensor([-40.0, 40.0], requires_grad=True)
    for activation, dead in [("sigmoid", [True, True]), ("tanh", [True, True]), ("relu", [True, False])]:
        (slope,) = torch.autograd.grad(activate(activation, z).sum(), z)
        assert (slope < 1e-15).tolist() == dead, activation


# --- 5: linear models and networks -----------------------------------------------------------------------------------

XOR = Padded.of(torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]], [[1.0, 1.0]]], dtype=torch.float64))
TRUTH = torch.tensor([0, 1, 1, 0])


def fit_xor(hidden: tuple[int, ...]) -> tuple[SequenceModel, float]:
    """A model after 300 steps of Adam on the four rows, and its loss per row."""
    config = SequenceModelConfig(
        encoder=EncoderConfig(width=2, input=VectorsConfig(size=2)),
        hidden=hidden,
        activation="tanh",
        head=ClassHeadConfig(num_classes=2),
    )
    model = config.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        model.loss(Batch(XOR, TRUTH)).mean.backward()
        optimizer.step()
    loss = model.loss(Batch(XOR, TRUTH)).mean.item()
    assert math.isfinite(loss)
    return model, loss


@pytest.mark.slow
def test_row_05_a_network_with_a_hidden_layer_learns_xor() -> None:
    model, loss = fit_xor(hidden=(8,))
    assert torch.equal(model.predict(XOR), TRUTH)
    assert loss < 0.05


@pytest.mark.slow
def test_row_05_a_linear_model_cannot_learn_xor() -> None:
    model, loss = fit_xor(hidden=())
    scores = model(XOR)
    margins = (scores[:, 1] - scores[:, 0]) * (2 * TRUTH - 1)  # by how much the right class wins
    assert_close(margins.sum(), torch.tensor(0.0), rtol=0, atol=1e-12)  # so it cannot win in all four rows
    assert loss >= math.log(2) - 1e-12  # convex and symmetric: no linear model is better than a fair coin


def test_row_05_the_linear_model_of_texts_equals_w_times_phi() -> None:
    vocab_size, buckets, classes = 6, 64, 3
    source = NgramsConfig(vocab_size=vocab_size, order=2, buckets=buckets)
    model = SequenceModelConfig(
        encoder=EncoderConfig(width=classes, input=source),
        pooling="sum",
        head=ScoresHeadConfig(num_classes=classes),
    ).build()
    for weight in model.parameters():
        nn.init.normal_(weight)
    texts = [[1, 4, 4, 2], [5], [0, 1, 0]]
    x = Padded.stack([torch.tensor(text) for text in texts])
    table = model.encoder.input.table
    for text, found in zip(texts, model(x), strict=True):
        phi = torch.zeros(vocab_size + buckets)
        for token in text:
            phi[token] += 1  # counted
        for earlier, later in itertools.pairwise(text):
            rows, _ = model.encoder.input.features(torch.tensor([[earlier, later]]), 1)
            phi[rows[0, 0, 1]] += 1  # hashed
        assert_close(found, table.T @ phi + model.head.bias, **ROUNDING)


# --- 9: convolution --------------------------------------------------------------------------------------------------


def test_row_09_six_5x5_filters_make_a_28x28x6_picture_of_a_32x32x3_one() -> None:
    model = FiltersConfig(height=32, width=32, channels=3, filters=(6,), kernel_size=5).build(8)
    assert model.weights[0].shape == (6, 3, 5, 5)  # a filter extends over the full depth
    picture = torch.randn(1, 32, 32, 3)
    with recording(model, "maps.0") as heard:
        model(picture)
    (maps,) = heard["maps.0"]
    assert maps.permute(0, 2, 3, 1).shape == (1, 28, 28, 6)
    for number, row, column in [(0, 0, 0), (3, 27, 27), (5, 11, 4)]:
        patch = picture[0, row : row + 5, column : column + 5].permute(2, 0, 1)
        dot = (patch * model.weights[0][number]).sum() + model.biases[0][number]
        assert_close(maps[0, number, row, column], dot.clamp(min=0), **ROUNDING)


def test_row_09_a_second_layer_filters_the_maps_of_the_first() -> None:
    model = FiltersConfig(height=32, width=32, channels=3, filters=(6, 10), kernel_size=5).build(8)
    with recording(model, "maps.*") as heard:
        y = model(torch.randn(2, 32, 32, 3))
    assert heard["maps.0"][0].shape == (2, 6, 28, 28)
    assert model.weights[1].shape == (10, 6, 5, 5)
    assert heard["maps.1"][0].shape == (2, 10, 10, 10)  # 28 is halved to 14, and 14 - 5 + 1 is 10
    assert y.values.shape == (2, 25, 8)


def test_row_09_a_fully_connected_layer_reads_the_picture_as_3072_numbers() -> None:
    model = FlatConfig(height=32, width=32, channels=3).build(8)
    assert model.widen.weight.shape == (8, 3072)
    assert model(torch.randn(2, 32, 32, 3)).values.shape == (2, 1, 8)


def test_row_09_a_text_filter_of_size_n_fires_on_n_grams_and_the_strongest_is_kept() -> None:
    sizes = (1, 2, 3)
    model = SequenceModelConfig(
        encoder=EncoderConfig(
            width=6,
            input=TokensConfig(vocab_size=9),
            layers=(BlockConfig(mixer=ConvolutionConfig(kernel_sizes=sizes)),),
        ),
        pooling="max",
        head=ClassHeadConfig(num_classes=2),
    ).build()
    text = [3, 1, 4, 1, 5]
    vectors = model.encoder.input.table[text]
    padded = F.pad(vectors, (0, 0, 1, 1))  # one zero on each side is all that these sizes reach
    maps: list[list[float]] = []
    for size, filters in zip(sizes, model.encoder.layers[0].mixer.filters, strict=True):
        assert filters.weight.shape == (2, 6, size)
        first = 1 - (size - 1) // 2
        grams = [padded[first + t : first + t + size] for t in range(len(text))]  # each [size, 6]
        for weight, bias in zip(filters.weight, filters.bias, strict=True):
            maps.append([max(0.0, ((gram.T * weight).sum() + bias).item()) for gram in grams])
    with recording(model, "encoder.layers.0.mixer.maps") as heard:
        features = model.features(Padded.of(torch.tensor([text])))
    (found,) = heard["encoder.layers.0.mixer.maps"]
    assert_close(found[0].T, torch.tensor(maps), **ROUNDING)
    assert_close(features.values[0, 0], torch.tensor([max(fired) for fired in maps]), **ROUNDING)
