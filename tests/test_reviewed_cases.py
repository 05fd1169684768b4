"""Cases that once went wrong, each named after what must hold."""

import copy

import pytest
import torch

from seqloom import recipes
from seqloom.config.heads import CrfHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import (
    AttentionConfig,
    BidirectionalConfig,
    ConvolutionConfig,
    GruConfig,
    LinearAttentionConfig,
    PoolConfig,
    WindowConfig,
)
from seqloom.config.models import ElementModelConfig
from seqloom.config.stacks import DecoderBlockConfig, DecoderConfig, EncoderConfig, FeedForwardConfig
from seqloom.errors import ConfigError, DataError, KernelError
from seqloom.nn.ops import attention_blocked, linear_attention, pooling
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.attention_fast import attend
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.losses import chunked_linear_cross_entropy
from seqloom.nn.ops.masks import Causal, Edges, WindowMask
from seqloom.nn.ops.relations import Buckets, NoBias
from seqloom.nn.ops.scores import Additive, ScaledDot
from seqloom.nn.taps import recording
from seqloom.nn.types import NO_DOCUMENT, Batch, Padded, places_of
from tolerances import assert_equal_up_to_rounding


def test_the_feature_map_of_linear_attention_is_positive_far_below_zero() -> None:
    x = torch.linspace(-60, 20, 161)
    found, exact = linear_attention.feature(x), torch.where(x > 0, x.double() + 1, x.double().exp())
    assert bool((found > 0).all())
    assert bool(((found - exact).abs() <= 1e-6 * exact).all())
    low = torch.full((1, 1, 3, 4), -20.0)
    ones = linear_attention.everywhere(low, low, torch.ones(1, 1, 3, 4), torch.ones(1, 3, dtype=torch.bool))
    assert_equal_up_to_rounding(ones, torch.ones(1, 1, 3, 4), "a mean of ones")


def _decoder_block() -> torch.nn.Module:
    config = DecoderBlockConfig(mixer=GruConfig(), num_heads=2, feed_forward=FeedForwardConfig(hidden=8))
    return config.build(8).double().eval()


def test_packed_documents_read_the_sources_of_their_own_row() -> None:
    x = Padded.of(torch.randn(2, 4, 8).double(), segments=torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]]))
    memory = Padded.of(torch.randn(2, 4, 8).double(), segments=torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]]))
    with pytest.raises(DataError, match=r"rows with \[2, 1\] packed documents cannot read rows with \[1, 2\]"):
        _decoder_block()(x, memory)


def test_an_empty_packed_row_is_one_empty_document() -> None:
    segments = torch.tensor([[0, 0], [0, 0], [0, 1]])
    x = Padded.of(torch.randn(3, 2, 8).double(), torch.tensor([2, 0, 2]), segments)
    memory = Padded.of(torch.randn(3, 2, 8).double(), segments=torch.tensor([[5, 5], [5, 5], [5, 6]]))
    y = _decoder_block()(x, memory)
    assert y.values.shape == x.values.shape
    assert bool((y.values[1] == 0).all())


@pytest.mark.parametrize("numbers", [[-5, -5, -5, 3, 3, 3], [0, 0, 0, -1, -1, -1], [7, 7, 7, 7, -2, 7]])
def test_any_number_may_name_a_document(numbers: list[int]) -> None:
    torch.manual_seed(0)
    mixer = GruConfig().build_causal(8).double()
    x = Padded.of(torch.randn(1, 6, 8).double(), segments=torch.tensor([numbers]))
    whole = mixer(x).values
    for cut in (0, 2, 3, 5, 6):
        first, state = mixer.step(x.cut(0, cut), mixer.initial_state(1))
        rest, _ = mixer.step(x.cut(cut, 6), state)
        assert_equal_up_to_rounding(torch.cat([first.values, rest.values], dim=1), whole, f"cut at {cut}")


EVERY_MIXER = [
    GruConfig(),
    PoolConfig(),
    ConvolutionConfig(),
    LinearAttentionConfig(num_heads=2),
    BidirectionalConfig(),
    AttentionConfig(num_heads=2),
]


@pytest.mark.parametrize("config", EVERY_MIXER, ids=lambda config: config.kind())
@pytest.mark.parametrize("time", [0, 3])
def test_a_batch_of_empty_rows_gives_empty_rows(config: AttentionConfig, time: int) -> None:
    nothing = torch.zeros(2, time, dtype=torch.int64)
    for segments in (None, nothing):
        x = Padded.of(torch.randn(2, time, 8), torch.zeros(2, dtype=torch.int64), segments)
        assert bool((config.build(8)(x).values == 0).all())


def test_a_crf_tags_an_empty_sentence_with_nothing() -> None:
    encoder = EncoderConfig(input=TokensConfig(vocab_size=5), width=8)
    model = ElementModelConfig(encoder=encoder, head=CrfHeadConfig(labels=("O", "B-X", "I-X"), scheme="bio")).build()
    empty = Padded.of(torch.zeros(1, 3, dtype=torch.int64), torch.tensor([0]))
    assert model.predict(empty).tolist() == [[0, 0, 0]]
    assert model.loss(Batch(empty, torch.zeros(1, 3, dtype=torch.int64))).total == 0


@pytest.mark.parametrize(
    ("position", "score"),
    [("none", "scaled_dot"), ("alibi", "scaled_dot"), ("t5", "dot"), ("shaw", "bilinear"), ("none", "additive")],
)
def test_blocked_attention_trains_under_autocast(position: str, score: str) -> None:
    torch.manual_seed(0)
    config = AttentionConfig(num_heads=2, score=score, pattern=WindowConfig(size=4))
    mixer = config.build_causal(8, position)
    x = Padded.of(torch.randn(1, 600, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16), using(attention="blocked"):
        loss = mixer(x).values.float().square().sum()
    loss.backward()
    assert all(weight.grad is not None and bool(torch.isfinite(weight.grad).all()) for weight in mixer.parameters())


def test_blocked_attention_refuses_a_second_derivative() -> None:
    places = places_of(Padded.of(torch.zeros(1, 40, 1)))
    query, key, value = (torch.randn(1, 1, 40, 4, requires_grad=True) for _ in range(3))
    asked = Request(query, key, value, places, places, mask=WindowMask(3, 0), aligned=True)
    with using(attention="blocked"), pytest.raises(KernelError, match="no second derivative"):
        torch.autograd.grad(attend(asked).square().sum(), value, create_graph=True)


def test_blocked_attention_keeps_its_tensors_where_checkpointing_can_reach_them() -> None:
    places = places_of(Padded.of(torch.zeros(1, 40, 1)))
    query, key, value = (torch.randn(1, 1, 40, 4, requires_grad=True) for _ in range(3))
    asked = Request(query, key, value, places, places, mask=WindowMask(3, 0), aligned=True)
    kept: list[int] = []
    with (
        using(attention="blocked"),
        torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda t: t),
    ):
        output = attend(asked)
    assert sum(kept) == 3 * 160
    assert output.grad_fn.request.query.numel() == 0


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (torch.tensor([[0, 2**31]]), "beyond 2"),
        (torch.tensor([[-1, 0]]), "below 0"),
        (torch.tensor([0, 1]), r"tensor \[edges, 2\]"),
        (torch.tensor([[0.0, 1.0]]), "int64"),
    ],
)
def test_an_edge_list_that_names_no_nodes_is_refused(pairs: torch.Tensor, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Edges(pairs)


@pytest.mark.parametrize(
    "build",
    [
        lambda: AttentionConfig(num_heads=3).build(8),
        lambda: LinearAttentionConfig(num_heads=3).build_causal(8),
        lambda: BidirectionalConfig().build(7),
        lambda: ConvolutionConfig(kernel_sizes=(3, 4, 5)).build(8),
        lambda: AttentionConfig(num_heads=2, score="additive").build(8, "rotary"),
        lambda: DecoderBlockConfig(mixer=GruConfig(), num_heads=3).build(8),
    ],
)
def test_a_layer_built_by_itself_is_checked_like_one_in_a_model(build: object) -> None:
    with pytest.raises(ConfigError):
        build()


def test_a_convolution_that_would_remember_gigabytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="numbers for each row"):
        DecoderConfig(
            input=TokensConfig(vocab_size=5),
            width=4096,
            layers=({"kind": "block", "mixer": {"kind": "convolution", "dilation": 2**18}},),
        )


def test_a_cache_forgets_documents_that_no_row_reads_any_more() -> None:
    mixer = AttentionConfig(num_heads=2).build_causal(8)
    state = mixer.initial_state(2)
    for document in range(6):
        block = Padded.of(torch.randn(2, 5, 8), segments=torch.full((2, 5), document))
        _, state = mixer.step(block, state)
    assert state.inner.keys.held.shape[2] == 5


def test_weights_keep_their_names_whatever_the_dropout() -> None:
    def names(dropout: float) -> list[str]:
        config = DecoderConfig(input=TokensConfig(vocab_size=5), width=8, position="learned", dropout=dropout)
        return list(config.build().state_dict())

    assert names(0.0) == names(0.5)


def test_the_chunked_loss_keeps_small_slopes_in_float16_until_they_are_scaled() -> None:
    features = torch.ones(1, 1, dtype=torch.float16, requires_grad=True)
    weight = torch.tensor([[0.0], [-18.0]], dtype=torch.float16, requires_grad=True)  # p of the second is 1.5e-8
    loss = chunked_linear_cross_entropy(features, weight, None, torch.tensor([0]))
    (loss.total * 65536).backward()
    exact = 65536 * torch.tensor(-18.0).exp()
    assert weight.grad[1, 0] == pytest.approx(float(exact), rel=0.01)
    assert features.grad[0, 0] == pytest.approx(-18 * float(exact), rel=0.01)


def test_two_sided_linear_attention_sums_in_float32() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, 70_000, 2) for _ in range(3))
    valid = torch.ones(1, 70_000, dtype=torch.bool)
    expected = linear_attention.two_sided(query[:, :, :50], key, value, valid)
    found = linear_attention.two_sided(query[:, :, :50].half(), key.half(), value.half(), valid).float()
    assert (found - expected).abs().max() <= 0.02 * expected.abs().max()


@pytest.mark.slow
def test_causal_linear_attention_sums_in_float32_under_autocast() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, 70_000, 2) + 1 for _ in range(3))
    valid = torch.ones(1, 70_000, dtype=torch.bool)
    start = linear_attention.AttentionSums(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2))
    expected, _ = linear_attention.causal(query, key, value, valid, start)
    with torch.autocast("cpu", dtype=torch.float16):
        found, _ = linear_attention.causal(query, key, value, valid, start)
    assert (found[:, :, -10:] - expected[:, :, -10:]).abs().max() <= 1e-3 * expected.abs().max()


def test_the_chunked_loss_keeps_small_slopes_under_autocast() -> None:
    features = torch.ones(1, 1, requires_grad=True)
    weight = torch.tensor([[0.0], [-18.0]], requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = chunked_linear_cross_entropy(features, weight, None, torch.tensor([0]))
    (loss.total * 65536).backward()
    assert weight.grad[1, 0] == pytest.approx(float(65536 * torch.tensor(-18.0).exp()), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["plain", "blocked"])
@pytest.mark.parametrize("asked_for", ["t5", "additive"])
def test_gradients_that_are_long_sums_do_not_stand_still_in_bfloat16(
    asked_for: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_blocked, "_BLOCK", 2)  # five hundred blocks
    torch.manual_seed(0)
    places = places_of(Padded.of(torch.zeros(1, 1000, 1)))
    score, bias = ScaledDot(), NoBias()
    if asked_for == "t5":
        bias = Buckets(torch.randn(8, 1), two_sided=False, farthest=64)
    else:
        score = Additive(torch.randn(1, 4, 4), torch.randn(1, 4, 4), torch.randn(1, 4))
    query, key, value = torch.randn(3, 1, 1, 1000, 4)
    asked = Request(query, key, value + 1, places, places, score=score, mask=Causal(), bias=bias, aligned=True)
    rounded = [tensor.bfloat16() for tensor in asked.tensors()]

    def gradients(dtype: torch.dtype, name: str) -> list[torch.Tensor]:
        leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in rounded]
        with using(attention=name):
            attend(asked.refill(iter(leaves))).sum().backward()
        return [leaf.grad for leaf in leaves]

    for found, exact in zip(gradients(torch.bfloat16, kernel), gradients(torch.float64, "plain"), strict=True):
        assert (found.double() - exact).norm() <= 0.02 * exact.norm()


def test_pooling_does_not_overflow_in_float16() -> None:
    assert pooling.mean(Padded.of(torch.full((1, 4000, 1), 40.0).half())).item() == 40


def test_a_model_copied_while_it_is_listened_to_has_no_listeners() -> None:
    mixer = GruConfig().build_causal(8)
    with recording(mixer, "hidden") as heard:
        twin = copy.deepcopy(mixer)
        twin(Padded.of(torch.randn(1, 2, 8)))
    assert not heard


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: Padded.stack([torch.tensor([1, 2]), torch.tensor([1.5])]), "of one type on one device"),
        (lambda: Padded.of(torch.zeros(1, 2), segments=[[0, 1]]), "segments are a tensor"),
        (
            lambda: Padded.of(torch.zeros(1, 2), segments=torch.full((1, 2), NO_DOCUMENT)),
            "is not a valid document number",
        ),
        (lambda: GruConfig().build_causal(8).step(torch.zeros(1, 2, 8), None), "expected a Padded batch"),
        (lambda: _decoder_block()(torch.zeros(1, 2, 8), Padded.of(torch.zeros(1, 2, 8))), "expected a Padded batch"),
        (lambda: _decoder_block().step(Padded.of(torch.zeros(1, 2, 8)), None), "a state is a nest of tuples"),
        (lambda: recipes.picture_classifier("patch-transformer", height=97, width=97, num_classes=2), "crop or pad"),
    ],
)
def test_what_does_not_fit_is_said_in_our_words(act: object, said: str) -> None:
    with pytest.raises((DataError, ConfigError), match=said):
        act()


def test_a_cut_that_ends_before_it_begins_is_empty() -> None:
    assert Padded.of(torch.zeros(2, 6)).cut(5, 3).lengths.tolist() == [0, 0]


@pytest.mark.parametrize(("height", "width"), [(5, 5), (8, 7), (28, 28), (32, 2), (2, 32), (225, 225)])
def test_pictures_of_any_side_have_a_recipe(height: int, width: int) -> None:
    config = recipes.picture_classifier("patch-transformer", height=height, width=width, num_classes=2, size="nano")
    assert config.encoder.input.patch > 1 or height * width < 100
    if min(height, width) > 2:
        recipes.picture_classifier("conv2d", height=height, width=width, num_classes=2, size="nano").build()
