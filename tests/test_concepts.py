"""The lectures' worked numbers and formulas, row by row of the table of concepts; deck letters are the table's."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from seqloom.blocks import FeedForward, build_norm
from seqloom.config.blocks import (
    Activation,
    AlignmentConfig,
    BlockConfig,
    DecoderBlockConfig,
    FeedForwardConfig,
    SeededConfig,
)
from seqloom.config.combinations import SCORES
from seqloom.config.heads import (
    ClassHeadConfig,
    LabelsHeadConfig,
    NextTokenHeadConfig,
    NumberHeadConfig,
    ScoresHeadConfig,
)
from seqloom.config.inputs import FiltersConfig, FlatConfig, NgramsConfig, TokensConfig, VectorsConfig
from seqloom.config.mixers import (
    SHAW_RADIUS,
    T5_BUCKETS,
    T5_FARTHEST,
    AttentionConfig,
    ConvolutionConfig,
    GruConfig,
    LstmConfig,
    RnnConfig,
    SparseConfig,
    WindowConfig,
)
from seqloom.config.models import (
    ConditionedDecoderConfig,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    SequenceModelConfig,
)
from seqloom.errors import DataError
from seqloom.mixers.attention import Matcher
from seqloom.mixers.contract import Standing
from seqloom.models import SequenceModel, count_parameters
from seqloom.operators import recurrence
from seqloom.operators.attention import Request, weights
from seqloom.operators.attention_fast import EDGES, KERNELS, attend, choose
from seqloom.operators.kernels import using
from seqloom.operators.losses import binary_cross_entropy, cross_entropy, squared_error
from seqloom.operators.masks import Causal, Edges, Everything, Mask, Padding, Window
from seqloom.operators.relations import bucket
from seqloom.operators.scores import Dot, ScaledDot, score
from seqloom.positions import sinusoids
from seqloom.taps import recording
from seqloom.types import Batch, Padded, Pair, Places

ROUNDING = {"rtol": 1e-13, "atol": 1e-14}  # float64, a formula computed in another order
SLOPES = {"rtol": 1e-7, "atol": 1e-8}  # float64, central differences


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Everything here is float64 and drawn from one seed; small tensors gain nothing from threads."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


def leaves(*values: float) -> list[Tensor]:
    return [torch.tensor(float(value), requires_grad=True) for value in values]


def assert_slopes(function: Callable[[], Tensor], *tensors: Tensor) -> None:
    """The gradient of a number by each tensor has the tensor's shape, and each entry equals its central difference."""
    gradients = torch.autograd.grad(function(), tensors)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        assert gradient.shape == tensor.shape
        differences = torch.zeros_like(gradient)
        with torch.no_grad():
            for place in itertools.product(*map(range, tensor.shape)):
                kept = tensor[place].item()
                tensor[place] = kept + 1e-5
                higher = function().item()
                tensor[place] = kept - 1e-5
                differences[place] = (higher - function().item()) / 2e-5
                tensor[place] = kept
        assert_close(gradient, differences, **SLOPES)


def network(head: Any, *, size: int, hidden: tuple[int, ...] = (), activation: str = "relu") -> SequenceModel:
    """A network over one vector of numbers: hidden layers and a head, the map of the input being the identity."""
    encoder = EncoderConfig(width=size, input=VectorsConfig(size=size))
    model = SequenceModelConfig(encoder=encoder, hidden=hidden, activation=activation, head=head).build()
    with torch.no_grad():
        model.encoder.input.widen.weight.copy_(torch.eye(size))
        model.encoder.input.widen.bias.zero_()
    model.encoder.requires_grad_(False)
    x = torch.randn(2, size)
    assert torch.equal(model.encoder(Padded.of(x[:, None])).values[:, 0], x)
    return model


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def request(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Request:
    """Attention between whole sequences whose elements stand at 0, 1, 2, ..."""

    def places(count: int) -> Places:
        steps = torch.arange(count).expand(len(query), count)
        return Places(steps, torch.zeros_like(steps), torch.ones_like(steps, dtype=torch.bool))

    asked = Request(query, key, value, places(query.shape[2]), places(key.shape[2]), aligned=True, **options)
    assert torch.equal(asked.rows(0, 1).query_places.positions, torch.zeros(len(query), 1, dtype=torch.int64))
    return asked


def triple(batch: int = 2, heads: int = 2, time: int = 5, width: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(batch, heads, time, width, requires_grad=True) for _ in range(3))


# --- 1: forward, loss, backward, update ------------------------------------------------------------------------------


def test_row_01_c_times_a_plus_2b_has_the_gradients_that_deck_a_derives() -> None:
    a, b, c = leaves(3, 1, -2)
    d = 2 * b
    e = a + d
    loss = c * e
    assert (d.item(), e.item(), loss.item()) == (2, 5, -10)
    assert [slope.item() for slope in torch.autograd.grad(loss, [a, b, c, d, e])] == [-2, -4, 5, -2, -2]


def test_row_01_the_gradients_of_x_plus_y_times_z_are_z_z_and_x_plus_y() -> None:
    x, y, z = leaves(-2, 5, -4)
    assert [slope.item() for slope in torch.autograd.grad((x + y) * z, [x, y, z])] == [-4, -4, 3]
    assert_slopes(lambda: (x + y) * z, x, y, z)


def test_row_01_the_two_layer_net_of_deck_a_has_the_gradients_of_its_slides() -> None:
    model = network(LabelsHeadConfig(num_labels=1), size=3, hidden=(4,), activation="relu")
    x, y = torch.randn(1, 3), torch.tensor([[1.0]])
    batch = Batch(Padded.of(x[:, None]), y)
    assert_slopes(lambda: model.loss(batch).total, *trained(model))
    (first,), second = model.hidden, model.head.linear
    z1 = x @ first.weight.T + first.bias
    a1 = z1.clamp(min=0)
    a = 1 / (1 + (-(a1 @ second.weight.T + second.bias)).exp())
    by_z2 = a - y
    by_z1 = by_z2 @ second.weight * (z1 > 0)
    found = torch.autograd.grad(model.loss(batch).total, [first.weight, first.bias, second.weight, second.bias])
    assert_close(list(found), [by_z1.T @ x, by_z1[0], by_z2.T @ a1, by_z2[0]], **ROUNDING)


def test_row_01_the_two_layer_net_of_deck_d_has_the_gradients_of_its_slides() -> None:
    model = network(NumberHeadConfig(), size=3, hidden=(4,), activation="sigmoid")
    x, y = torch.randn(1, 3), torch.randn(1, 1)
    batch = Batch(Padded.of(x[:, None]), y)
    assert_slopes(lambda: model.loss(batch).total, *trained(model))
    (first,), second = model.hidden, model.head.linear
    z1 = 1 / (1 + (-(x @ first.weight.T + first.bias)).exp())
    z2 = z1 @ second.weight.T + second.bias
    assert_close(model.loss(batch).total, ((z2 - y) ** 2).sum(), **ROUNDING)
    by_z2 = 2 * (z2 - y)
    by_h1 = by_z2 @ second.weight * z1 * (1 - z1)
    found = torch.autograd.grad(model.loss(batch).total, [first.weight, first.bias, second.weight, second.bias])
    assert_close(list(found), [by_h1.T @ x, by_h1[0], by_z2.T @ z1, by_z2[0]], **ROUNDING)


def test_row_01_linear_regression_has_the_gradients_minus_2r_and_minus_2r_x() -> None:
    model = network(NumberHeadConfig(), size=3)
    x, y = torch.randn(1, 3), torch.randn(1, 1)
    batch = Batch(Padded.of(x[:, None]), y)
    r = (y - model(batch.inputs)).detach()
    by_w, by_b = torch.autograd.grad(model.loss(batch).total, [model.head.linear.weight, model.head.linear.bias])
    assert_close(by_b, -2 * r[0], **ROUNDING)
    assert_close(by_w, -2 * r * x, **ROUNDING)


def test_row_01_a_gradient_is_the_sum_over_paths_of_the_products_over_edges() -> None:
    first, second = (FeedForward(FeedForwardConfig(hidden=4, activation="tanh"), 3) for _ in range(2))
    a = torch.randn(3)
    b = first(a)

    def edges(layer: FeedForward, values: Tensor) -> list[Tensor]:
        """What each edge of the layer multiplies a change by: into the hidden units, through them, out of them."""
        slope = 1 - torch.tanh(layer.inward(values)) ** 2
        return [layer.inward.weight, slope.diag(), layer.outward.weight]

    steps = [*edges(first, a), *edges(second, b)]
    jacobian = torch.autograd.functional.jacobian(lambda value: second(first(value)), a)
    for end, start in itertools.product(range(3), range(3)):
        through = itertools.product(*(range(len(step)) for step in steps[:-1]))
        paths = [(start, *units, end) for units in through]
        products = [math.prod(step[path[i + 1], path[i]].item() for i, step in enumerate(steps)) for path in paths]
        assert_close(jacobian[end, start].item(), math.fsum(products), **ROUNDING)


def test_row_01_every_gradient_has_the_shape_of_its_value() -> None:
    tokens = TokensConfig(vocab_size=7)
    layers = (DecoderBlockConfig(mixer=AttentionConfig(num_heads=2), num_heads=2),)
    model = EncoderDecoderConfig(
        encoder=EncoderConfig(width=4, input=tokens, layers=(BlockConfig(mixer=LstmConfig()),)),
        decoder=ConditionedDecoderConfig(width=4, input=tokens, layers=layers, position="shaw"),
        head=NextTokenHeadConfig(vocab_size=7),
    ).build()
    source, target = (Padded.of(torch.randint(7, (3, 5)), torch.tensor([5, 2, 4])) for _ in range(2))
    model.loss(Batch(Pair(source, target), torch.randint(7, (3, 5)))).total.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.shape == weight.shape, name


def test_row_01_one_update_subtracts_rate_times_gradient_and_lowers_the_loss() -> None:
    model = network(ClassHeadConfig(num_classes=3), size=4, hidden=(5,), activation="tanh")
    batch = Batch(Padded.of(torch.randn(8, 1, 4)), torch.randint(3, (8,)))
    before = model.loss(batch).mean
    before.backward()
    expected = [weight.detach() - 0.1 * weight.grad for weight in trained(model)]
    torch.optim.SGD(trained(model), lr=0.1).step()
    assert_close(trained(model), expected, **ROUNDING)
    assert model.loss(batch).mean < before


def test_row_01_the_slope_of_relu_at_zero_is_0_here_and_1_in_deck_a() -> None:
    z = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(torch.relu(z).sum(), z)
    printed = torch.tensor([0.0, 1.0, 1.0])  # "1 for z >= 0"
    assert slope.tolist() == [0, 0, 1]
    assert (slope != printed).tolist() == [False, True, False]


# --- 2: losses and a - y ---------------------------------------------------------------------------------------------


def test_row_02_each_loss_equals_its_formula() -> None:
    z = torch.randn(6, 4)
    y = torch.randint(4, (6,))
    softmax = z.exp() / z.exp().sum(dim=1, keepdim=True)
    by_hand = -sum(softmax[n, y[n]].log() for n in range(6))
    assert_close(cross_entropy(z, y).total, by_hand, **ROUNDING)
    a, b = 1 / (1 + (-z).exp()), torch.randint(2, (6, 4)).double()
    assert_close(binary_cross_entropy(z, b).total, -(b * a.log() + (1 - b) * (1 - a).log()).sum(), **ROUNDING)
    assert_close(squared_error(z, a).total, ((z - a) ** 2).sum(), **ROUNDING)


def test_row_02_the_slope_of_every_loss_by_its_scores_is_a_minus_y() -> None:
    z = torch.randn(6, 4, requires_grad=True)
    y, b, numbers = torch.randint(4, (6,)), torch.randint(2, (6, 4)).double(), torch.randn(6, 4)
    (by_softmax,) = torch.autograd.grad(cross_entropy(z, y).total, z)
    assert_close(by_softmax, z.softmax(dim=1) - F.one_hot(y, 4), rtol=0, atol=1e-15)
    (by_logistic,) = torch.autograd.grad(binary_cross_entropy(z, b).total, z)
    assert_close(by_logistic, z.sigmoid() - b, rtol=0, atol=1e-15)
    (by_square,) = torch.autograd.grad(squared_error(z, numbers).total, z)
    assert_close(by_square, 2 * (z - numbers), rtol=0, atol=1e-15)


def test_row_02_a_minus_y_reaches_the_bias_of_every_head() -> None:
    x = Padded.of(torch.randn(3, 2, 5), torch.tensor([2, 1, 2]))
    real = x.valid[:, :, None]
    classes, numbers = torch.randint(4, (3, 2)), torch.randn(3, 2, 4)
    one_hot = F.one_hot(classes, 4)
    cases: list[tuple[Any, Tensor, Callable[[Tensor], Tensor]]] = [
        (ClassHeadConfig(num_classes=4).build(5), classes, lambda z: z.softmax(dim=-1) - one_hot),
        (NextTokenHeadConfig(vocab_size=4, tied=False).build(5), classes, lambda z: z.softmax(dim=-1) - one_hot),
        (LabelsHeadConfig(num_labels=4).build(5), one_hot.double(), lambda z: z.sigmoid() - one_hot),
        (NumberHeadConfig(size=4).build(5), numbers, lambda z: 2 * (z - numbers)),
    ]
    for head, targets, slope in cases:
        bias = head.bias if hasattr(head, "bias") else head.linear.bias
        loss = head.loss(x, targets)
        assert loss.weight == 5 * targets[0, 0].numel()  # five real elements, each with one target or four
        (found,) = torch.autograd.grad(loss.total, bias)
        assert_close(found, (slope(head(x).values) * real).sum(dim=(0, 1)), **ROUNDING)


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
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        model.loss(Batch(XOR, TRUTH)).mean.backward()
        optimiser.step()
    loss = model.loss(Batch(XOR, TRUTH)).mean.item()
    assert math.isfinite(loss)
    return model, loss


def test_row_05_a_network_with_a_hidden_layer_learns_xor() -> None:
    model, loss = fit_xor(hidden=(8,))
    assert torch.equal(model.predict(XOR), TRUTH)
    assert loss < 0.05


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
        for symbol in text:
            phi[symbol] += 1  # counted
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


# --- 11: the Elman network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_row_11_the_worked_example_of_deck_c(kernel: str) -> None:
    mixer, head = RnnConfig().build(2), NumberHeadConfig().build(2)
    with torch.no_grad():
        mixer.hidden_weight.copy_(torch.tensor([[0.1, 0.2], [-0.1, 0.3]]))
        mixer.input_weight.copy_(torch.tensor([[0.4, 0.5], [0.6, 0.7]]))
        mixer.input_bias.copy_(torch.tensor([0.1, 0.2]))
        mixer.hidden_bias.zero_()
        head.linear.weight.copy_(torch.tensor([[0.8, 0.9]]))
        head.linear.bias.zero_()
    x, before = Padded.of(torch.tensor([[[1.0, 0.0]]])), torch.tensor([[0.5, -0.5]])
    assert_close(before @ mixer.hidden_weight.T, torch.tensor([[-0.05, -0.2]]), **ROUNDING)  # the slide: a matrix
    expected = torch.tensor([[math.tanh(0.45), math.tanh(0.6)]])
    hidden, _ = recurrence.KERNELS[kernel](recurrence.ELMAN_TANH, x, (before,), mixer.weights)
    assert_close(hidden[:, 0], expected, **ROUNDING)
    with using(recurrence=kernel):
        y, state = mixer.step(x, Standing(torch.zeros(1, dtype=torch.int64), (before,)))
    assert_close(y.values[:, 0], expected, **ROUNDING)
    assert_close(state.inner[0], expected, **ROUNDING)
    answer = head(y).values.item()
    assert answer == pytest.approx(0.8 * math.tanh(0.45) + 0.9 * math.tanh(0.6), rel=1e-13)
    assert f"{answer:.5f}" == "0.82086"  # the slide has 0.8215, from 0.4228 for tanh(0.45) = 0.4219
    assert abs(answer - 0.8215) < 1e-3


# --- 15: gates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_row_15_an_lstm_that_forgets_nothing_and_writes_nothing_keeps_its_cell(kernel: str) -> None:
    mixer = LstmConfig().build(3)
    with torch.no_grad():
        write, forget, _, _ = mixer.input_bias.chunk(4)
        write.fill_(-1e4)
        forget.fill_(1e4)
    x, before = Padded.of(torch.randn(2, 6, 3)), (torch.randn(2, 3), torch.randn(2, 3))
    with using(recurrence=kernel), recording(mixer, "gates") as heard:
        y, state = mixer.step(x, Standing(torch.zeros(2, dtype=torch.int64), before))
    (gates,) = heard["gates"]
    assert gates.names == ("write", "forget", "new", "show")
    written, kept, _, shown = gates.values.unbind(dim=2)
    assert torch.equal(written, torch.zeros_like(written))
    assert torch.equal(kept, torch.ones_like(kept))
    assert torch.equal(state.inner[1], before[1])
    assert_close(y.values, shown * before[1].tanh()[:, None], **ROUNDING)  # h = o * tanh(c), not deck B's o * c


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_row_15_z_in_the_gru_of_deck_d_is_one_minus_ours(kernel: str) -> None:
    width, time = 3, 5
    mixer = GruConfig().build(width)
    for bias in (mixer.input_bias, mixer.hidden_bias):
        nn.init.zeros_(bias)  # the deck's equations have none
    w_r, w_z, w = mixer.input_weight.chunk(3)
    u_r, u_z, u = mixer.hidden_weight.chunk(3)
    w_z, u_z = -w_z, -u_z  # sigmoid(-a) = 1 - sigmoid(a)
    x, h = torch.randn(time, width), torch.zeros(width)
    states, updates = [], []
    for x_t in x:
        z, r = torch.sigmoid(w_z @ x_t + u_z @ h), torch.sigmoid(w_r @ x_t + u_r @ h)
        h = (1 - z) * h + z * torch.tanh(w @ x_t + r * (u @ h))
        states.append(h)
        updates.append(z)
    with using(recurrence=kernel), recording(mixer, "gates") as heard:
        y = mixer(Padded.of(x[None]))
    assert_close(y.values[0], torch.stack(states), **ROUNDING)
    keep = heard["gates"][0].values[0, :, mixer.cell.gates.index("keep")]
    assert_close(1 - keep, torch.stack(updates), **ROUNDING)


# --- 18: the bottleneck ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [RnnConfig(), GruConfig(), LstmConfig()], ids=lambda cell: cell.kind())
def test_row_18_without_attention_the_source_passes_through_its_last_state_alone(cell: Any) -> None:
    def slopes(*layers: Any) -> Tensor:
        decoder = ConditionedDecoderConfig(width=4, input=TokensConfig(vocab_size=7), layers=layers).build()
        memory = torch.randn(2, 5, 4, requires_grad=True)
        y = decoder(Padded.of(torch.randint(7, (2, 3))), Padded.of(memory, torch.tensor([5, 3])))
        (slope,) = torch.autograd.grad(y.values.square().sum(), memory)
        return slope.abs().sum(dim=2) > 0

    last = torch.tensor([[False] * 4 + [True], [False, False, True, False, False]])
    every = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    assert torch.equal(slopes(SeededConfig(mixer=cell)), last)
    assert torch.equal(slopes(SeededConfig(mixer=cell), SeededConfig(mixer=cell)), last)
    assert torch.equal(slopes(SeededConfig(mixer=cell), AlignmentConfig()), every)


def test_row_18_sources_that_end_alike_are_one_source_to_a_seeded_decoder() -> None:
    def model(*layers: Any) -> Any:
        tokens = TokensConfig(vocab_size=7)
        return EncoderDecoderConfig(
            encoder=EncoderConfig(width=4, input=tokens),
            decoder=ConditionedDecoderConfig(width=4, input=tokens, layers=layers),
            head=NextTokenHeadConfig(vocab_size=7),
        ).build()

    sources = Padded.stack([torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6, 0, 3])])
    target = Padded.of(torch.tensor([[1, 5, 2], [1, 5, 2]]))
    narrow = model(SeededConfig(mixer=GruConfig()))(target, sources).values
    assert_close(narrow[0], narrow[1], **ROUNDING)
    wide = model(SeededConfig(mixer=GruConfig()), AlignmentConfig())(target, sources).values
    assert (wide[0] - wide[1]).abs().max() > 1e-3


# --- 19: scores and alignment ----------------------------------------------------------------------------------------


def score_by_hand(matcher: Matcher, head: int, q: Tensor, k: Tensor) -> Tensor:
    """One score of one head from its formula."""
    if matcher.name == "bilinear":
        return q @ matcher.weight[head] @ k
    if matcher.name == "additive":
        both = torch.cat(
            [matcher.query_weight[head], matcher.key_weight[head]]
        )  # W^T, so that W [q; k] is W_q q + W_k k
        return matcher.direction[head] @ torch.tanh(both.T @ torch.cat([q, k]))
    dot = sum(a * b for a, b in zip(q, k, strict=True))
    return dot / math.sqrt(len(q)) if matcher.name == "scaled_dot" else dot


@pytest.mark.parametrize("name", SCORES)
def test_row_19_every_score_equals_its_formula(name: Any) -> None:
    matcher = Matcher(name, 2, 4)
    query, key = torch.randn(3, 2, 2, 4), torch.randn(3, 2, 5, 4)
    found = score(matcher.score(), query, key)
    assert found.shape == (3, 2, 2, 5)
    for b, h, t, s in itertools.product(*map(range, found.shape)):
        assert_close(found[b, h, t, s], score_by_hand(matcher, h, query[b, h, t], key[b, h, s]), **ROUNDING)


@pytest.mark.parametrize("name", SCORES)
def test_row_19_alignment_is_tanh_of_w_times_a_and_s(name: Any) -> None:
    layer = AlignmentConfig(score=name).build(4)
    states, lengths = torch.randn(2, 5, 4), [5, 3]
    s = torch.randn(2, 3, 4)
    y = layer(Padded.of(s), Padded.of(states, torch.tensor(lengths))).values
    for b, t in itertools.product(range(2), range(3)):
        real = states[b, : lengths[b]]
        scores = torch.stack([score_by_hand(layer.matcher, 0, s[b, t], h) for h in real])
        alpha = scores.exp() / scores.exp().sum()
        a = sum(alpha[i] * real[i] for i in range(len(real)))
        assert_close(
            y[b, t], torch.tanh(layer.combine.weight @ torch.cat([a, s[b, t]]) + layer.combine.bias), **ROUNDING
        )


# --- 20, 21, 22: attention -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
def test_row_20_one_hot_keys_and_a_large_scale_make_an_exact_lookup(kernel: str) -> None:
    table = torch.randn(1, 1, 6, 3)
    keys = torch.eye(6)[None, None]
    wanted = [4, 0, 0, 5, 2, 1]
    queries = 1e4 * keys[:, :, wanted]
    with using(attention=kernel):
        assert torch.equal(attend(request(queries, keys, table, score=Dot())), table[:, :, wanted])
        mixture = attend(request(queries / 1e4, keys, table, score=Dot()))
    assert not torch.allclose(mixture, table[:, :, wanted])  # at a scale of one the lookup is soft


def test_row_21_thinking_machines_scores_112_and_96_become_88_and_12_percent() -> None:
    mixer = AttentionConfig(num_heads=1).build(64)
    for linear in (mixer.heads.query, mixer.heads.key, mixer.heads.value, mixer.heads.output):
        nn.init.eye_(linear.weight)
    x = torch.zeros(1, 2, 64)
    x[0, 0, 0] = math.sqrt(112)
    x[0, 1, :2] = torch.tensor([96 / math.sqrt(112), 1.0])
    with recording(mixer, "weights") as heard:
        y = mixer(Padded.of(x)).values
    (asked,) = heard["weights"]
    assert_close(score(Dot(), asked.query, asked.key)[0, 0, 0], torch.tensor([112.0, 96.0]), **ROUNDING)
    assert_close(score(asked.score, asked.query, asked.key)[0, 0, 0], torch.tensor([14.0, 12.0]), **ROUNDING)
    share = weights(asked)[0, 0]
    assert [f"{value:.2f}" for value in share[0].tolist()] == ["0.88", "0.12"]
    assert_close(share[0, 0].item(), 1 / (1 + math.exp(-2)), **ROUNDING)
    for i in range(2):
        assert_close(y[0, i], share[i, 0] * x[0, 0] + share[i, 1] * x[0, 1], **ROUNDING)


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
def test_row_21_the_output_sums_the_values_of_the_keys_not_of_the_query(kernel: str) -> None:
    query, key, value = triple()
    asked = request(query, key, value)
    shares = weights(asked)
    with using(attention=kernel):
        output = attend(asked)
    for b, h, i in itertools.product(range(2), range(2), range(5)):
        e = torch.stack([query[b, h, i] @ key[b, h, j] / 2 for j in range(5)])  # the root of 4
        a = e.exp() / e.exp().sum()
        assert_close(shares[b, h, i], a, **ROUNDING)
        assert_close(output[b, h, i], sum(a[j] * value[b, h, j] for j in range(5)), **ROUNDING)


def test_row_22_the_variance_of_a_dot_product_is_its_width_and_scaling_makes_it_one() -> None:
    width, samples = 200, 10_000
    query, key = torch.randn(samples, 1, 1, width), torch.randn(samples, 1, 1, width)
    assert score(Dot(), query, key).var().item() == pytest.approx(width, rel=0.05)
    assert score(ScaledDot(), query, key).var().item() == pytest.approx(1, rel=0.05)


# --- 24: masking -----------------------------------------------------------------------------------------------------


def test_row_24_causal_weights_are_the_softmax_of_scores_with_minus_infinity_above_the_diagonal() -> None:
    asked = request(*triple(), mask=Causal())
    scores = score(asked.score, asked.query, asked.key)
    above = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert_close(weights(asked), scores.masked_fill(above, -math.inf).softmax(dim=-1), **ROUNDING)
    assert torch.equal(weights(asked).masked_select(above), torch.zeros(2 * 2 * 10))


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
def test_row_24_the_future_never_changes_the_past(kernel: str) -> None:
    query, key, value = triple()
    with using(attention=kernel):
        output = attend(request(query, key, value, mask=Causal()))
        for t in range(5):
            by_key, by_value = torch.autograd.grad(
                output[:, :, : t + 1].square().sum(), [key, value], retain_graph=True
            )
            assert not by_key[:, :, t + 1 :].any() and not by_value[:, :, t + 1 :].any()
            assert by_value[:, :, t].all()
            changed = [tensor.detach().clone() for tensor in (query, key, value)]
            for tensor in changed:
                tensor[:, :, t + 1 :] = 1e3 * torch.randn_like(tensor[:, :, t + 1 :])
            again = attend(request(*changed, mask=Causal()))
            assert_close(again[:, :, : t + 1], output[:, :, : t + 1], **ROUNDING)


def test_row_24_attention_without_positions_commutes_with_permuting_its_inputs() -> None:
    mixer = AttentionConfig(num_heads=2).build(4)
    x, order = torch.randn(2, 6, 4), torch.randperm(6)
    assert_close(mixer(Padded.of(x[:, order])).values, mixer(Padded.of(x)).values[:, order], **ROUNDING)
    placed = EncoderConfig(
        width=4,
        input=VectorsConfig(size=4),
        position="sinusoidal",
        layers=(BlockConfig(mixer=AttentionConfig(num_heads=2)),),
    ).build()
    assert not torch.allclose(placed(Padded.of(x[:, order])).values, placed(Padded.of(x)).values[:, order])


# --- 25: positions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [6, 7], ids=["even", "odd"])
def test_row_25_sinusoids_interleave_sines_and_cosines(width: int) -> None:
    found = sinusoids(torch.arange(50), width)
    for t, column in itertools.product(range(50), range(width)):
        i = column // 2
        angle = t / 10_000 ** (2 * i / width)
        assert found[t, column].item() == pytest.approx(math.cos(angle) if column % 2 else math.sin(angle), abs=1e-13)


def stack(position: str, **options: Any) -> DecoderConfig:
    layers = () if position in ("learned", "sinusoidal") else (BlockConfig(mixer=AttentionConfig(num_heads=2)),)
    config = DecoderConfig(width=4, input=TokensConfig(vocab_size=9), position=position, layers=layers, **options)
    assert count_parameters(config.build()) == config.parameters()
    return config


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_row_25_absolute_positions_are_added_or_concatenated(position: str) -> None:
    symbols = torch.randint(9, (2, 6))
    added = stack(position, max_length=8).build()
    vectors = added.entry[0].table[:6] if position == "learned" else sinusoids(torch.arange(6), 4)
    assert_close(added(Padded.of(symbols)).values, added.input.table[symbols] + vectors, **ROUNDING)
    beside = stack(position, max_length=8, position_join="concatenate").build()
    vectors = beside.entry[0].table[:6] if position == "learned" else sinusoids(torch.arange(6), 4)
    both = torch.cat([beside.input.table[symbols], vectors.expand(2, 6, 4)], dim=-1)
    join = beside.entry[0].join
    assert_close(beside(Padded.of(symbols)).values, both @ join.weight.T + join.bias, **ROUNDING)


def test_row_25_learned_positions_beyond_the_last_are_refused() -> None:
    decoder = stack("learned", max_length=4).build()
    symbols = Padded.of(torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(DataError, match="a sequence of 5 elements, but learned positions end at 4"):
        decoder(symbols)
    _, state = decoder.step(symbols.cut(0, 4), decoder.initial_state(2))
    with pytest.raises(DataError, match="a sequence of 5 elements, but learned positions end at 4"):
        decoder.step(symbols.cut(4, 5), state)
    padded = Padded.of(symbols.values, torch.tensor([4, 2]))  # the fifth column is padding
    assert_close(decoder(padded).values[:, :4], decoder(padded.cut(0, 4)).values, **ROUNDING)


def relative_scores(mixer: Any, asked: Request, i: int, j: int, *, two_sided: bool) -> Tensor:
    """[B,H] the score of query i with key j, from the formula of the mixer's kind of position."""
    q, k, ahead = asked.query[:, :, i], asked.key[:, :, j], j - i
    dot = (q * k).sum(dim=-1) / math.sqrt(q.shape[-1])
    position = mixer.relation.position
    if position == "alibi":
        slopes = torch.tensor([2**-4, 2**-8])  # of two heads: 2^(-8h/2)
        return dot - slopes * abs(ahead)
    if position == "t5":
        row = bucket(torch.tensor(ahead), num_buckets=T5_BUCKETS, two_sided=two_sided, farthest=T5_FARTHEST)
        return dot + mixer.relation.table[row]
    if position == "shaw":
        row = max(-SHAW_RADIUS, min(SHAW_RADIUS, ahead)) + SHAW_RADIUS
        return (q * (k + mixer.relation.keys[row])).sum(dim=-1) / math.sqrt(q.shape[-1])
    return dot


@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
@pytest.mark.parametrize("position", ["shaw", "alibi", "t5"])
def test_row_25_positions_between_two_places_equal_their_formula(position: Any, causal: bool) -> None:
    time = SHAW_RADIUS + 5  # beyond the radius the distance is clipped
    config = AttentionConfig(num_heads=2)
    mixer = config.build_causal(8, position) if causal else config.build(8, position)
    with recording(mixer, "weights") as heard, recording(mixer, "mixed") as found:
        mixer(Padded.of(torch.randn(2, time, 8)))
    (asked,), (mixed,) = heard["weights"], found["mixed"]
    for i in (0, 3, time - 1):
        seen = range(i + 1 if causal else time)
        e = torch.stack([relative_scores(mixer, asked, i, j, two_sided=not causal) for j in seen], dim=-1)  # [B,H,S]
        a = e.exp() / e.exp().sum(dim=-1, keepdim=True)
        values = [asked.value[:, :, j] for j in seen]
        if position == "shaw":
            rows = [max(-SHAW_RADIUS, min(SHAW_RADIUS, j - i)) + SHAW_RADIUS for j in seen]
            values = [value + mixer.relation.values[row] for value, row in zip(values, rows, strict=True)]
        expected = sum(a[:, :, j, None] * values[j] for j in seen)
        assert_close(mixed[:, :, i], expected, rtol=1e-12, atol=1e-13)


def test_row_25_rotary_positions_turn_each_pair_by_its_angle() -> None:
    mixer = AttentionConfig(num_heads=2).build(8, "rotary")
    x = torch.randn(2, 6, 8)
    with recording(mixer, "weights") as heard:
        mixer(Padded.of(x))
    (asked,) = heard["weights"]
    for linear, found in [(mixer.heads.query, asked.query), (mixer.heads.key, asked.key)]:
        plain = mixer.heads.split(linear(x))
        for t, i in itertools.product(range(6), range(2)):
            angle = t / 10_000 ** (2 * i / 4)
            turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            pair = slice(2 * i, 2 * i + 2)
            assert_close(found[:, :, t, pair], plain[:, :, t, pair] @ turn.T, **ROUNDING)
    assert_close(asked.value, mixer.heads.split(mixer.heads.value(x)), **ROUNDING)


# --- 26, 27: heads and blocks ----------------------------------------------------------------------------------------


def test_row_26_one_head_is_single_attention() -> None:
    mixer = AttentionConfig(num_heads=1).build(6)
    x = torch.randn(2, 5, 6)
    q, k, v = (linear(x) for linear in (mixer.heads.query, mixer.heads.key, mixer.heads.value))
    single = (q @ k.transpose(1, 2) / math.sqrt(6)).softmax(dim=-1) @ v
    assert_close(mixer(Padded.of(x)).values, mixer.heads.output(single), **ROUNDING)


def test_row_26_heads_attend_by_themselves_and_are_concatenated_and_projected() -> None:
    mixer = AttentionConfig(num_heads=3).build(6)
    x = torch.randn(2, 5, 6)
    heads = []
    for h in range(3):
        own = slice(2 * h, 2 * h + 2)
        q, k, v = (
            x @ linear.weight[own].T + linear.bias[own]
            for linear in (mixer.heads.query, mixer.heads.key, mixer.heads.value)
        )
        heads.append((q @ k.transpose(1, 2) / math.sqrt(2)).softmax(dim=-1) @ v)
    assert_close(mixer(Padded.of(x)).values, mixer.heads.output(torch.cat(heads, dim=-1)), **ROUNDING)


def test_row_26_splitting_and_joining_change_nothing_but_for_the_projection() -> None:
    heads = AttentionConfig(num_heads=3).build(6).heads
    nn.init.eye_(heads.output.weight)
    x = torch.randn(2, 5, 6)
    assert heads.split(x).shape == (2, 3, 5, 2)
    assert torch.equal(heads.join(heads.split(x)), x)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_row_27_a_pre_norm_block_whose_sub_layers_give_zero_is_the_identity(norm: Any) -> None:
    block = BlockConfig(
        mixer=AttentionConfig(num_heads=2), arrangement="pre", norm=norm, feed_forward=FeedForwardConfig(hidden=8)
    ).build(4)
    x = Padded.of(torch.randn(2, 5, 4), torch.tensor([5, 3]))
    assert not torch.allclose(block(x).values, x.values)
    for last in (block.mixer.heads.output, block.feed_forward.outward):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    assert torch.equal(block(x).values, x.values)


def test_row_27_layer_norm_divides_by_the_root_of_the_variance() -> None:
    norm, x = build_norm("layer", 5), torch.randn(7, 5) * 3 + 1
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    mean = x.sum(dim=1, keepdim=True) / 5
    variance = ((x - mean) ** 2).sum(dim=1, keepdim=True) / 5
    expected = (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
    assert_close(norm(x), expected, **ROUNDING)
    without_root = (x - mean) / (variance + norm.eps) * norm.weight + norm.bias  # as the deck prints it
    assert not torch.allclose(norm(x), without_root)


def test_row_27_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    norm, x = build_norm("rms", 5), torch.randn(7, 5) * 3 + 1
    nn.init.normal_(norm.weight)
    mean_square = (x**2).sum(dim=1, keepdim=True) / 5
    assert_close(norm(x), x / (mean_square + 1e-6).sqrt() * norm.weight, **ROUNDING)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_row_27_a_post_norm_block_is_norm_of_sum_twice(activation: Any) -> None:
    block = BlockConfig(
        mixer=AttentionConfig(num_heads=2),
        arrangement="post",
        feed_forward=FeedForwardConfig(hidden=8, activation=activation),
    ).build(4)
    x = torch.randn(2, 5, 4)
    inner = block.around.norm(x + block.mixer(Padded.of(x)).values)
    feed = block.feed_forward
    opened = feed.inward(inner).relu() if activation == "relu" else F.silu(feed.inward(inner)) * feed.gate(inner)
    expected = block.around_feed_forward.norm(inner + feed.outward(opened))
    assert_close(block(Padded.of(x)).values, expected, **ROUNDING)


# --- 28: the Transformer ---------------------------------------------------------------------------------------------

SIZES = {"base": (512, 8, 2048), "big": (1024, 16, 4096)}  # Vaswani et al. 2017, table 3


def transformer(size: str, vocab_size: int = 37_000) -> EncoderDecoderConfig:
    width, num_heads, hidden = SIZES[size]
    mixer, feed_forward = AttentionConfig(num_heads=num_heads), FeedForwardConfig(hidden=hidden)
    block = BlockConfig(mixer=mixer, arrangement="post", feed_forward=feed_forward)
    conditioned = DecoderBlockConfig(mixer=mixer, num_heads=num_heads, arrangement="post", feed_forward=feed_forward)
    common: dict[str, Any] = {
        "width": width,
        "input": TokensConfig(vocab_size=vocab_size),
        "position": "sinusoidal",
        "repeat": 6,
        "final_norm": "layer",
    }
    config = EncoderDecoderConfig(
        encoder=EncoderConfig(layers=(block,), **common),
        decoder=ConditionedDecoderConfig(layers=(conditioned,), **common),
        head=NextTokenHeadConfig(vocab_size=vocab_size),
    )
    assert config.encoder.repeat == config.decoder.repeat == 6
    return config


@pytest.mark.parametrize("size", SIZES)
def test_row_28_the_transformer_has_the_parameters_that_its_configuration_counts(size: str) -> None:
    config = transformer(size)
    with torch.device("meta"):
        model = config.build()
        width, num_heads, hidden = SIZES[size]
        theirs = nn.Transformer(width, num_heads, 6, 6, hidden, batch_first=True)
    assert all(weight.is_meta for weight in model.parameters())
    assert count_parameters(model) == config.parameters()
    around = 2 * 37_000 * width + 37_000  # two tables of symbols, and the bias of the tied head
    assert count_parameters(model) - around == count_parameters(theirs)
    # The paper counts 65 and 213 million with one table for source, target and output.
    one_table = (count_parameters(model) - 37_000 * width) / 1e6
    assert one_table == pytest.approx({"base": 65, "big": 213}[size], rel=0.03)


# --- 29: cheaper attention -------------------------------------------------------------------------------------------


def full_under(asked: Request, allowed: Tensor) -> Tensor:
    """Attention by its formula, scores outside a dense mask [T,S] at minus infinity; zero where none is left."""
    scores = (asked.query @ asked.key.transpose(-1, -2) / math.sqrt(asked.query.shape[-1])).masked_fill(
        ~allowed, -math.inf
    )
    return scores.softmax(dim=-1).nan_to_num(0.0) @ asked.value


@pytest.mark.parametrize("kernel", [None, "plain", "sdpa", "blocked"])
@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
def test_row_29_window_attention_is_full_attention_under_the_window_mask(causal: bool, kernel: str | None) -> None:
    time, size = 600, 7  # long enough for several blocks of queries
    query, key, value = triple(batch=1, time=time)
    mask = Window(size - 1, 0 if causal else size - 1)
    asked = request(query, key, value, mask=mask)
    away = torch.arange(time)[:, None] - torch.arange(time)
    allowed = (away.abs() < size) & ((away >= 0) | torch.tensor(not causal))
    if kernel is None:
        assert choose(asked).name == "blocked"
        output = attend(asked)
    else:
        with using(attention=kernel):
            output = attend(asked)
    expected = full_under(asked, allowed)
    assert_close(output, expected, **ROUNDING)
    upstream = torch.randn_like(expected)
    found = torch.autograd.grad(output, [query, key, value], upstream)
    assert_close(found, torch.autograd.grad(expected, [query, key, value], upstream), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
@pytest.mark.parametrize("pattern", [WindowConfig(size=3), SparseConfig(size=3)], ids=lambda pattern: pattern.kind())
def test_row_29_a_mixer_with_a_pattern_attends_fully_under_its_mask(pattern: Any, causal: bool) -> None:
    config = AttentionConfig(num_heads=2, pattern=pattern)
    mixer = config.build_causal(4) if causal else config.build(4)
    with recording(mixer, "weights") as heard, recording(mixer, "mixed") as found:
        mixer(Padded.of(torch.randn(2, 10, 4)))
    t, s = torch.arange(10)[:, None], torch.arange(10)
    near = (t - s).abs() < 3 if isinstance(pattern, WindowConfig) else (t // 3 == s // 3) | ((t - s) % 3 == 0)
    allowed = near & (s <= t) if causal else near
    assert_close(found["mixed"][0], full_under(heard["weights"][0], allowed), **ROUNDING)


# --- 37: graphs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_row_37_graph_attention_is_plain_attention_under_the_adjacency_matrix(padded: bool) -> None:
    nodes = 9
    adjacency = torch.rand(nodes, nodes) < 0.3
    adjacency[4] = False  # a node without neighbours reads nothing
    pairs = adjacency.nonzero()
    pairs = torch.cat([pairs, pairs[:3]])[torch.randperm(len(pairs) + 3)]  # in any order, some edges listed twice
    query, key, value = triple(time=nodes)
    mask: Mask = Edges(pairs) & (Padding() if padded else Everything())
    asked = request(query, key, value, mask=mask)
    allowed = adjacency.expand(2, 1, nodes, nodes)
    if padded:
        real = torch.arange(nodes) < torch.tensor([[9], [6]])
        places = asked.key_places._replace(valid=real)
        asked = asked._replace(query_places=places, key_places=places)
        allowed = allowed & real[:, None, None, :]
    assert choose(asked) is EDGES
    output, expected = EDGES.run(asked), full_under(asked, allowed)
    assert_close(output, expected, **ROUNDING)
    assert not output[:, :, 4].any()
    upstream = torch.randn_like(output)
    found = torch.autograd.grad(output, [query, key, value], upstream)
    by_scores = {kernel.name: kernel for kernel in KERNELS}["plain"].run(asked)  # no NaN in its gradient
    assert_close(by_scores, expected, **ROUNDING)
    assert_close(found, torch.autograd.grad(by_scores, [query, key, value], upstream), **ROUNDING)


def test_row_37_causal_attention_is_the_graph_in_which_each_node_reads_the_earlier_ones() -> None:
    time = 6
    query, key, value = triple(time=time)
    earlier = torch.tensor([(i, j) for i in range(time) for j in range(i + 1)])
    by_edges = attend(request(query, key, value, mask=Edges(earlier)))
    assert_close(by_edges, attend(request(query, key, value, mask=Causal())), **ROUNDING)


def test_row_15_a_fresh_lstm_begins_by_remembering() -> None:
    torch.manual_seed(0)
    fresh = LstmConfig().build_causal(64)
    with recording(fresh, "gates") as heard:
        fresh(Padded.of(torch.zeros(1, 1, 64)))
    opened = dict(zip(heard["gates"][0].names, heard["gates"][0].values[0, 0], strict=True))
    assert opened["forget"].min() > 0.65
    assert opened["write"].min() > 0.35
    assert opened["write"].max() < 0.65
