"""Parity with torch: the same weights give the same values and the same gradients, by every input and every weight."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom.blocks import Block, DecoderBlock, FeedForward, build_norm
from seqloom.config.blocks import BlockConfig, DecoderBlockConfig, FeedForwardConfig
from seqloom.config.inputs import FiltersConfig, VectorsConfig
from seqloom.config.mixers import (
    AttentionConfig,
    BidirectionalConfig,
    ConvolutionConfig,
    GruConfig,
    LstmConfig,
    RecurrentConfig,
    RnnConfig,
)
from seqloom.config.models import ConditionedDecoderConfig, DecoderConfig, EncoderConfig
from seqloom.mixers.attention import CrossAttention, Heads
from seqloom.mixers.recurrent import Recurrent
from seqloom.operators import convolution
from seqloom.operators.attention import weights
from seqloom.operators.kernels import using
from seqloom.operators.relations import alibi_slopes, bucket, rotate
from seqloom.stacks import ConditionedDecoder, Encoder
from seqloom.taps import recording
from seqloom.types import Padded

# Allowed error, as a share of the largest entry of the tensor that torch gives. Measured over this file: at most 2.4e-6
# in float32 (a gradient by a norm's shift, two layers deep) and 1.5e-14 in float64 (rotary scores 1,000 places away).
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}

WIDTH, ROWS, TIME, SOURCE = 12, 4, 6, 7
RAGGED, RAGGED_SOURCE = torch.tensor([4, 6, 1, 3]), torch.tensor([2, 5, 7, 1])

either_precision = pytest.mark.parametrize("dtype", TOLERANCES, ids=["float32", "float64"])
full_and_ragged = pytest.mark.parametrize("lengths", [None, RAGGED], ids=["full", "ragged"])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads, and on a busy machine lose much."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- two sides of one comparison -------------------------------------------------------------------------------------


class Twins(NamedTuple):
    """A parameter of torch and the ones of ours that hold the same numbers: one below another they are its rows."""

    theirs: Tensor
    ours: tuple[Tensor, ...]


def copy_weights(theirs: nn.Module, ours: nn.Module, twins: Sequence[Twins]) -> None:
    """Torch's weights, moved at random so that no bias is zero and no norm one, on both sides; none may be left out."""
    assert {id(twin.theirs) for twin in twins} == {id(weight) for weight in theirs.parameters()}
    trained = [id(weight) for weight in ours.parameters() if weight.requires_grad]
    assert sorted(id(part) for twin in twins for part in twin.ours) == sorted(trained)
    with torch.no_grad():
        for twin in twins:
            twin.theirs.add_(torch.empty_like(twin.theirs).uniform_(-0.3, 0.3))
            for part, rows in zip(twin.ours, twin.theirs.split([len(part) for part in twin.ours]), strict=True):
                part.copy_(rows)


def assert_same(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), what
    largest = theirs.abs().max()
    assert largest > 0, f"{what}: nothing to compare"
    error = ((ours - theirs).abs().max() / largest).item()
    assert error <= TOLERANCES[theirs.dtype], f"{what}: off by {error:.1e} of the largest entry"


def assert_parity(
    ours: Iterable[Tensor], theirs: Iterable[Tensor], inputs: Sequence[Tensor], twins: Sequence[Twins] = ()
) -> None:
    """Equal values, and for one random upstream gradient equal gradients by the inputs and by every weight.

    Weights are compared as torch stores them. The gradient by a bias of keys alone is zero but for rounding, because
    softmax does not see what is added to all scores; beside those of queries and values it is compared to something.
    """
    ours, theirs = list(ours), list(theirs)
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert_same(mine, other, f"output {number}")
    upstream = [torch.randn_like(other) for other in theirs]
    parts = [part for twin in twins for part in twin.ours]
    found = iter(torch.autograd.grad(ours, [*inputs, *parts], upstream))
    expected = iter(torch.autograd.grad(theirs, [*inputs, *(twin.theirs for twin in twins)], upstream))
    for number, _ in enumerate(inputs):
        assert_same(next(found), next(expected), f"gradient by input {number}")
    for number, twin in enumerate(twins):
        joined = torch.cat([next(found) for _ in twin.ours])
        assert_same(joined, next(expected), f"gradient by weight {number} {list(twin.theirs.shape)}")


def leaf(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def beyond(lengths: Tensor, time: int) -> Tensor:
    """[B,T] true in the padding, which is how torch's attention wants to be told."""
    return torch.arange(time) >= lengths[:, None]


def real(values: Tensor, lengths: Tensor | None) -> Tensor:
    """The values with zeros in the padding, where torch's attention leaves whatever came out."""
    return values if lengths is None else values.masked_fill(beyond(lengths, values.shape[1])[:, :, None], 0)


def read_as_it_is(stack: Any) -> Any:
    """The stack with the linear map of its input made the identity, so that its first layer reads what it is given."""
    with torch.no_grad():
        stack.input.widen.weight.copy_(torch.eye(WIDTH))
        stack.input.widen.bias.zero_()
    stack.input.requires_grad_(False)
    vectors = torch.randn(2, 3, WIDTH, dtype=stack.input.widen.weight.dtype)
    assert torch.equal(stack.input(Padded.of(vectors)).values, vectors)
    return stack


VECTORS = VectorsConfig(size=WIDTH)


# --- recurrence ------------------------------------------------------------------------------------------------------

RECURRENCES: dict[str, tuple[RecurrentConfig, Callable[..., nn.RNNBase]]] = {
    "rnn-tanh": (RnnConfig(), nn.RNN),
    "rnn-relu": (RnnConfig(activation="relu"), partial(nn.RNN, nonlinearity="relu")),
    "gru": (GruConfig(), nn.GRU),
    "lstm": (LstmConfig(), nn.LSTM),
}

every_recurrence = pytest.mark.parametrize("name", RECURRENCES)
one_and_more_layers = pytest.mark.parametrize("layers", [1, 3], ids=["1-layer", "3-layers"])
either_kernel = pytest.mark.parametrize("kernel", ["plain", "fused"])


def recurrent_twins(theirs: nn.RNNBase, mixers: Sequence[Recurrent]) -> list[Twins]:
    return [
        Twins(weight, (mine,))
        for weights, mixer in zip(theirs.all_weights, mixers, strict=True)
        for weight, mine in zip(weights, mixer.weights, strict=True)
    ]


def run_torch(theirs: nn.RNNBase, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """Torch's outputs [B,T,D] and final states, h or h and c, each [layers * directions,B,D]."""
    if lengths is None:
        outputs, final = theirs(x)
    else:
        packed, final = theirs(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
    return outputs, list(final) if isinstance(final, tuple) else [final]


@either_kernel
@either_precision
@full_and_ragged
@one_and_more_layers
@every_recurrence
def test_a_recurrent_stack_equals_torchs(
    name: str, layers: int, lengths: Tensor | None, dtype: torch.dtype, kernel: str
) -> None:
    torch.manual_seed(0)
    config, make = RECURRENCES[name]
    theirs = make(WIDTH, WIDTH, num_layers=layers, batch_first=True, dtype=dtype)
    stack = EncoderConfig(width=WIDTH, input=VECTORS, layers=(BlockConfig(mixer=config),), repeat=layers)
    ours = read_as_it_is(stack.build().to(dtype))
    twins = recurrent_twins(theirs, [block.mixer for block in ours.layers])
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    with using(recurrence=kernel):
        y = ours(Padded.of(x, lengths))
    assert_parity([y.values], [run_torch(theirs, x, lengths)[0]], [x], twins)


@either_kernel
@either_precision
@full_and_ragged
@one_and_more_layers
@every_recurrence
def test_the_state_after_stepping_is_torchs_final_state(
    name: str, layers: int, lengths: Tensor | None, dtype: torch.dtype, kernel: str
) -> None:
    torch.manual_seed(1)
    config, make = RECURRENCES[name]
    theirs = make(WIDTH, WIDTH, num_layers=layers, batch_first=True, dtype=dtype)
    stack = DecoderConfig(width=WIDTH, input=VECTORS, layers=(BlockConfig(mixer=config),), repeat=layers)
    ours = read_as_it_is(stack.build().to(dtype))
    twins = recurrent_twins(theirs, [layer.mixer for layer in ours.layers])
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    with using(recurrence=kernel):
        y, state = ours.step(Padded.of(x, lengths), ours.initial_state(ROWS))
    final = [torch.stack(part) for part in zip(*state.inner[2:], strict=True)]  # h, or h and c, [layers,B,D]
    outputs, expected = run_torch(theirs, x, lengths)
    assert_parity([y.values, *final], [outputs, *expected], [x], twins)


@either_precision
@full_and_ragged
@pytest.mark.parametrize("layers", [1, 2], ids=["1-layer", "2-layers"])
@every_recurrence
def test_two_directions_equal_torchs_bidirectional(
    name: str, layers: int, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(2)
    config, make = RECURRENCES[name]
    half = WIDTH // 2
    theirs = make(WIDTH, half, num_layers=layers, bidirectional=True, batch_first=True, dtype=dtype)
    block = BlockConfig(mixer=BidirectionalConfig(mixer=config))
    ours = read_as_it_is(EncoderConfig(width=WIDTH, input=VECTORS, layers=(block,), repeat=layers).build().to(dtype))
    twins = recurrent_twins(theirs, [way for layer in ours.layers for way in (layer.mixer.ahead, layer.mixer.back)])
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    y = ours(Padded.of(x, lengths))
    outputs, expected = run_torch(theirs, x, lengths)
    final = torch.stack([y.last()[:, :half], y.values[:, 0, half:]])  # forward ends at the end, backward at the start
    assert_parity([y.values, final], [outputs, expected[0][-2:]], [x], twins)


# --- attention -------------------------------------------------------------------------------------------------------

CAUSAL = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)  # true where torch must not look


def attention_twins(theirs: nn.MultiheadAttention, ours: Heads) -> list[Twins]:
    projections = (ours.query, ours.key, ours.value)
    return [
        Twins(theirs.in_proj_weight, tuple(linear.weight for linear in projections)),
        Twins(theirs.in_proj_bias, tuple(linear.bias for linear in projections)),
        *pairs(theirs.out_proj, ours.output),
    ]


def pairs(theirs: nn.Module, ours: nn.Module) -> list[Twins]:
    """The weights of two modules of one kind, in order."""
    return [Twins(weight, (mine,)) for weight, mine in zip(theirs.parameters(), ours.parameters(), strict=True)]


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
@either_precision
@full_and_ragged
@pytest.mark.parametrize("heads", [1, 2, 12])
@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
def test_self_attention_equals_torchs(
    causal: bool, heads: int, lengths: Tensor | None, dtype: torch.dtype, kernel: str
) -> None:
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(WIDTH, heads, batch_first=True, dtype=dtype)
    config = AttentionConfig(num_heads=heads)
    ours = (config.build_causal(WIDTH) if causal else config.build(WIDTH)).to(dtype)
    twins = attention_twins(theirs, ours.heads)
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    with using(attention=kernel):
        y = ours(Padded.of(x, lengths))
    padding = None if lengths is None else beyond(lengths, TIME)
    mixed, _ = theirs(x, x, x, key_padding_mask=padding, attn_mask=CAUSAL if causal else None)
    assert_parity([y.values], [real(mixed, lengths)], [x], twins)


@pytest.mark.parametrize("kernel", ["plain", "sdpa"])
@either_precision
@full_and_ragged
def test_cross_attention_equals_torchs(lengths: Tensor | None, dtype: torch.dtype, kernel: str) -> None:
    torch.manual_seed(4)
    theirs = nn.MultiheadAttention(WIDTH, 2, batch_first=True, dtype=dtype)
    ours = CrossAttention("scaled_dot", 2, WIDTH).to(dtype)
    twins = attention_twins(theirs, ours.heads)
    copy_weights(theirs, ours, twins)
    x, memory = leaf(ROWS, TIME, WIDTH, dtype=dtype), leaf(ROWS, SOURCE, WIDTH, dtype=dtype)
    source = None if lengths is None else RAGGED_SOURCE
    with using(attention=kernel):
        y = ours(Padded.of(x, lengths), Padded.of(memory, source))
    padding = None if source is None else beyond(source, SOURCE)
    mixed, _ = theirs(x, memory, memory, key_padding_mask=padding)
    assert_parity([y.values], [real(mixed, lengths)], [x, memory], twins)


def test_the_weights_that_a_tap_hears_are_torchs() -> None:
    torch.manual_seed(5)
    theirs = nn.MultiheadAttention(WIDTH, 2, batch_first=True, dtype=torch.float64)
    ours = AttentionConfig(num_heads=2).build(WIDTH).double()
    copy_weights(theirs, ours, attention_twins(theirs, ours.heads))
    x = torch.randn(ROWS, TIME, WIDTH, dtype=torch.float64)
    with recording(ours, "weights") as heard:
        ours(Padded.of(x, RAGGED))
    _, expected = theirs(x, x, x, key_padding_mask=beyond(RAGGED, TIME), average_attn_weights=False)
    rows = ~beyond(RAGGED, TIME)[:, None, :, None]  # of real queries: torch lets the padding ask too
    assert_same(weights(heard["weights"][0]) * rows, expected * rows, "weights")


@either_precision
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_norm_equals_torchs(norm: str, dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    theirs = nn.LayerNorm(WIDTH, dtype=dtype) if norm == "layer" else nn.RMSNorm(WIDTH, eps=1e-6, dtype=dtype)
    ours = build_norm(norm, WIDTH).to(dtype)
    twins = pairs(theirs, ours)
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    assert_parity([ours(x)], [theirs(x)], [x], twins)


# --- Transformers ----------------------------------------------------------------------------------------------------

HIDDEN = 20

either_arrangement = pytest.mark.parametrize("arrangement", ["post", "pre"])
either_activation = pytest.mark.parametrize("activation", ["relu", "gelu"])
# nn.TransformerEncoder says so whenever it is given a pre-norm layer
silent_about_nesting = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")


def feed_forward_twins(theirs: nn.Module, ours: FeedForward) -> list[Twins]:
    return [*pairs(theirs.linear1, ours.inward), *pairs(theirs.linear2, ours.outward)]


def encoder_layer_twins(theirs: nn.TransformerEncoderLayer, ours: Block) -> list[Twins]:
    return [
        *attention_twins(theirs.self_attn, ours.mixer.heads),
        *feed_forward_twins(theirs, ours.feed_forward),
        *pairs(theirs.norm1, ours.around.norm),
        *pairs(theirs.norm2, ours.around_feed_forward.norm),
    ]


def decoder_layer_twins(theirs: nn.TransformerDecoderLayer, ours: DecoderBlock) -> list[Twins]:
    return [
        *attention_twins(theirs.self_attn, ours.mixer.heads),
        *attention_twins(theirs.multihead_attn, ours.cross.heads),
        *feed_forward_twins(theirs, ours.feed_forward),
        *pairs(theirs.norm1, ours.around.norm),
        *pairs(theirs.norm2, ours.around_cross.norm),
        *pairs(theirs.norm3, ours.around_feed_forward.norm),
    ]


def stack_twins(theirs: Any, ours: Any, layer_twins: Callable[[Any, Any], list[Twins]]) -> list[Twins]:
    """The weights of two stacks: their layers and, where torch has one, the norm after them."""
    layers = zip(theirs.layers, ours.layers, strict=True)
    norms = [] if theirs.norm is None else pairs(theirs.norm, ours.exit)
    return [twin for pair in layers for twin in layer_twins(*pair)] + norms


def our_encoder(arrangement: str, activation: str, *, ends_in_norm: bool, dtype: torch.dtype) -> Encoder:
    block = BlockConfig(
        mixer=AttentionConfig(num_heads=2),
        arrangement=arrangement,
        feed_forward=FeedForwardConfig(hidden=HIDDEN, activation=activation),
    )
    norm = "layer" if ends_in_norm else None
    config = EncoderConfig(width=WIDTH, input=VECTORS, layers=(block,), repeat=2, final_norm=norm)
    return read_as_it_is(config.build().to(dtype))


def our_decoder(arrangement: str, activation: str, *, ends_in_norm: bool, dtype: torch.dtype) -> ConditionedDecoder:
    block = DecoderBlockConfig(
        mixer=AttentionConfig(num_heads=2),
        num_heads=2,
        arrangement=arrangement,
        feed_forward=FeedForwardConfig(hidden=HIDDEN, activation=activation),
    )
    norm = "layer" if ends_in_norm else None
    config = ConditionedDecoderConfig(width=WIDTH, input=VECTORS, layers=(block,), repeat=2, final_norm=norm)
    return read_as_it_is(config.build().to(dtype))


def torch_options(arrangement: str, activation: str, dtype: torch.dtype) -> dict[str, Any]:
    first = arrangement == "pre"
    return {"activation": activation, "norm_first": first, "dropout": 0.0, "batch_first": True, "dtype": dtype}


@silent_about_nesting
@either_precision
@full_and_ragged
@either_activation
@either_arrangement
def test_an_encoder_equals_torchs(
    arrangement: str, activation: str, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    ends_in_norm = arrangement == "pre"
    norm = nn.LayerNorm(WIDTH, dtype=dtype) if ends_in_norm else None
    theirs = nn.TransformerEncoder(layer, 2, norm=norm)
    ours = our_encoder(arrangement, activation, ends_in_norm=ends_in_norm, dtype=dtype)
    twins = stack_twins(theirs, ours, encoder_layer_twins)
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    padding = None if lengths is None else beyond(lengths, TIME)
    expected = real(theirs(x, src_key_padding_mask=padding), lengths)
    assert_parity([ours(Padded.of(x, lengths)).values], [expected], [x], twins)


@silent_about_nesting
@either_precision
@either_activation
@either_arrangement
def test_an_encoder_equals_torchs_fast_path_of_evaluation(
    arrangement: str, activation: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(8)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    ours = our_encoder(arrangement, activation, ends_in_norm=False, dtype=dtype)
    copy_weights(theirs, ours, stack_twins(theirs, ours, encoder_layer_twins))
    x = torch.randn(ROWS, TIME, WIDTH, dtype=dtype)
    with torch.no_grad():
        expected = theirs.eval()(x, src_key_padding_mask=beyond(RAGGED, TIME))
        assert_same(ours.eval()(Padded.of(x, RAGGED)).values, real(expected, RAGGED), "output")


@either_precision
@full_and_ragged
@either_activation
@either_arrangement
def test_a_decoder_with_a_memory_equals_torchs(
    arrangement: str, activation: str, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(9)
    layer = nn.TransformerDecoderLayer(WIDTH, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    ends_in_norm = arrangement == "pre"
    theirs = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(WIDTH, dtype=dtype) if ends_in_norm else None)
    ours = our_decoder(arrangement, activation, ends_in_norm=ends_in_norm, dtype=dtype)
    twins = stack_twins(theirs, ours, decoder_layer_twins)
    copy_weights(theirs, ours, twins)
    x, memory = leaf(ROWS, TIME, WIDTH, dtype=dtype), leaf(ROWS, SOURCE, WIDTH, dtype=dtype)
    source = None if lengths is None else RAGGED_SOURCE
    padding = None if source is None else beyond(source, SOURCE)
    expected = real(theirs(x, memory, tgt_mask=CAUSAL, memory_key_padding_mask=padding), lengths)
    assert_parity([ours(Padded.of(x, lengths), Padded.of(memory, source)).values], [expected], [x, memory], twins)


@silent_about_nesting
@either_precision
@full_and_ragged
@either_activation
@either_arrangement
def test_an_encoder_and_decoder_equal_torchs_transformer(
    arrangement: str, activation: str, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(10)
    theirs = nn.Transformer(WIDTH, 2, 2, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    encoder = our_encoder(arrangement, activation, ends_in_norm=True, dtype=dtype)
    decoder = our_decoder(arrangement, activation, ends_in_norm=True, dtype=dtype)
    twins = [
        *stack_twins(theirs.encoder, encoder, encoder_layer_twins),
        *stack_twins(theirs.decoder, decoder, decoder_layer_twins),
    ]
    copy_weights(theirs, nn.ModuleList([encoder, decoder]), twins)
    source, target = leaf(ROWS, SOURCE, WIDTH, dtype=dtype), leaf(ROWS, TIME, WIDTH, dtype=dtype)
    source_lengths = None if lengths is None else RAGGED_SOURCE
    y = decoder(Padded.of(target, lengths), encoder(Padded.of(source, source_lengths)))
    padding = None if source_lengths is None else beyond(source_lengths, SOURCE)
    expected = theirs(
        source,
        target,
        tgt_mask=CAUSAL,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
        tgt_key_padding_mask=None if lengths is None else beyond(lengths, TIME),
    )
    assert_parity([y.values], [real(expected, lengths)], [source, target], twins)


# --- convolution -----------------------------------------------------------------------------------------------------


@either_precision
@pytest.mark.parametrize("dilation", [1, 2, 5])
@pytest.mark.parametrize("left", ["causal", "centred", "ahead"])
@pytest.mark.parametrize("taps", [1, 2, 3, 4])
@either_kernel
def test_a_convolution_equals_torchs(kernel: str, taps: int, left: str, dilation: int, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    x, weight, bias = (leaf(*shape, dtype=dtype) for shape in [(ROWS, TIME, WIDTH), (5, WIDTH, taps), (5,)])
    before = {"causal": taps - 1, "centred": (taps - 1) // 2, "ahead": 0}[left]
    y = convolution.KERNELS[kernel](x, weight, bias, left=before, dilation=dilation)
    every = F.conv1d(x.transpose(1, 2), weight, bias, padding=(taps - 1) * dilation, dilation=dilation)
    start = (taps - 1 - before) * dilation  # where the first element meets the tap that is its own
    expected = every[:, :, start : start + TIME].transpose(1, 2)
    assert_parity([y], [expected], [x, weight, bias])


@either_precision
@full_and_ragged
def test_a_centred_convolution_mixer_equals_torchs_layers(lengths: Tensor | None, dtype: torch.dtype) -> None:
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
