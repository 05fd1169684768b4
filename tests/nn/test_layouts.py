"""What depends on lengths and documents alone is made once, for all layers; nothing else comes of it."""

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.nn.mixers.attention import Heads
from seqloom.nn.mixers.cross import CrossAttention
from seqloom.nn.ops.attention import Request, plain
from seqloom.nn.ops.attention_sdpa import SDPA
from seqloom.nn.ops.masks import Causal, DocumentMask, Mask, Padding, WindowMask
from seqloom.nn.ops.relations import Alibi, Bias, NoBias, rotate, turn, turns
from seqloom.nn.types import Batch, Padded, Pair, places_of, select_rows
from stacks_common import FULL, NARROW, blocks
from tolerances import assert_equal_up_to_rounding

VOCABULARY = 12
# Operators that make masks, positions and tables; the values of a layer need none of them.
OF_LAYOUTS = {"arange", "lt", "le", "eq", "bitwise_not", "bitwise_and", "where", "any", "zeros", "zeros_like", "ones"}
OF_LAYOUTS |= {"cos", "sin", "pow", "cumsum", "topk", "_local_scalar_dense"}


class Heard(TorchDispatchMode):
    """Inside the `with`, every operator that reaches aten is counted by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def tokens(time: int = 5) -> Padded:
    return Padded.of(torch.randint(0, VOCABULARY, (3, time)), torch.tensor([time, time - 1, time - 2]))


def translator(depth: int) -> nn.Module:
    replace = msgspec.structs.replace
    config = recipes.translator(
        "transformer", source=TokensConfig(vocab_size=VOCABULARY), target_vocab_size=VOCABULARY, size="nano"
    )
    encoder, decoder = (replace(stack, repeat=depth) for stack in (config.encoder, config.decoder))
    return replace(config, encoder=encoder, decoder=decoder).build().eval()


def language_model(depth: int, recipe: str = "gpt") -> nn.Module:
    config = recipes.language_model(recipe, vocab_size=VOCABULARY, size="nano")
    return msgspec.structs.replace(config, decoder=msgspec.structs.replace(config.decoder, repeat=depth)).build().eval()


def alternating(depth: int) -> nn.Module:
    """A language model in which layers with a window and layers without take turns."""
    config = recipes.language_model("transformer", vocab_size=VOCABULARY, size="nano")
    stack = msgspec.structs.replace(config.decoder, layers=blocks((NARROW, FULL)), repeat=depth)
    return msgspec.structs.replace(config, decoder=stack).build().eval()


def tagger(depth: int) -> nn.Module:
    config = recipes.tagger("encoder", inputs=TokensConfig(vocab_size=VOCABULARY), num_tags=3, size="nano")
    return msgspec.structs.replace(config, encoder=msgspec.structs.replace(config.encoder, repeat=depth)).build().eval()


def learning(model: nn.Module) -> Counter[str]:
    """What the loss of a ragged batch and its gradient issue."""
    x = tokens()
    inputs = Pair(tokens(6), x) if model.config.kind() == "encoder-decoder" else x
    with Heard() as heard:
        model.loss(Batch(inputs, torch.randint(0, 3, (3, 5)))).total.backward()
    return heard.names


def stepping(model: nn.Module) -> Counter[str]:
    """What one more token issues after rows of different lengths, one of which was left out."""
    source = tokens(6) if model.config.kind() == "encoder-decoder" else 3
    with torch.no_grad():
        _, state = model.step(tokens(), model.initial_state(source))
        state = select_rows(state, torch.tensor([0, 2]))
        with Heard() as heard:
            model.step(Padded.of(torch.zeros(2, 1, dtype=torch.int64)), state)
    return heard.names


@pytest.mark.parametrize(
    ("make", "run"),
    [
        (translator, learning),
        (language_model, learning),
        (tagger, learning),
        (translator, stepping),
        (language_model, stepping),
        (partial(language_model, recipe="window"), stepping),
        (alternating, stepping),
    ],
)
def test_a_further_layer_makes_no_mask_position_or_table_again(
    make: Callable[[int], nn.Module], run: Callable[[nn.Module], Counter[str]]
) -> None:
    further = run(make(3)) - run(make(2))
    assert further.keys() & OF_LAYOUTS == set()
    assert further["addmm"] >= 4, "a further layer was looked at"


def test_what_is_asked_of_a_batch_is_made_once_for_all_that_is_made_of_it() -> None:
    x = tokens().laid_out()
    y = x.with_values(x.values + 1)
    assert y.valid is x.valid and places_of(y) is places_of(x)
    assert tokens().valid is not tokens().valid


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x._replace(lengths=x.lengths - 1),
        lambda x: x._replace(segments=(torch.arange(5) >= 2).long().expand(3, 5)),
        lambda x: x._replace(values=torch.cat([x.values, x.values], dim=1)),
        lambda x: x.cut(1, 4),
        lambda x: x.select(torch.tensor([2, 0])),
        lambda x: x.reverse(),
    ],
)
def test_a_batch_that_lies_otherwise_has_a_layout_of_its_own(other: Callable[[Padded], Padded]) -> None:
    x = tokens().laid_out()
    assert x.valid.any() and places_of(x).positions.any()  # asked before, and kept
    changed = other(x)
    fresh = Padded(changed.values, changed.lengths, changed.segments)
    assert torch.equal(changed.valid, fresh.valid)
    assert all(torch.equal(one, two) for one, two in zip(places_of(changed), places_of(fresh), strict=True))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: ForkingPickler.loads(ForkingPickler.dumps(x))], ids=["copy", "process"]
)
def test_a_laid_out_batch_can_be_copied(copied: Callable[[Padded], Padded]) -> None:
    x = Padded.of(torch.ones(3, 40, 80), torch.tensor([40, 3, 20]), torch.ones(3, 40, dtype=torch.int64)).laid_out()
    x = x.with_values(x.values + 1)
    assert x.layout.is_zeroed(x.values)
    found = copied(x)
    assert found.layout is found.shared and found.layout is not x.layout, "the copy shares a layout of its own"
    assert torch.equal(found.values, x.values) and torch.equal(found.valid, x.valid)
    assert not found.layout.is_zeroed(x.values) and torch.equal(found.with_values(x.values).values, x.values)


def test_a_tensor_that_a_state_shares_is_selected_once() -> None:
    one, other = torch.arange(3), torch.arange(3)
    (a, b), (c,) = select_rows(((one, one), (other,)), torch.tensor([2, 0]))
    assert a is b and a is not c and a.tolist() == c.tolist() == [2, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("time", [0, 1, 7])
def test_turning_by_a_table_equals_rotating_by_positions(dtype: torch.dtype, time: int) -> None:
    torch.manual_seed(time)
    leaves = [torch.randn(2, 3, time, 8, dtype=dtype).transpose(0, 1).requires_grad_() for _ in range(2)]
    leaves[1].data.copy_(leaves[0].data)
    positions = torch.randint(0, 3000, (3, time))
    wide = torch.promote_types(dtype, torch.float32)
    found = [turn(leaves[0], turns(positions, 8).to(wide)), rotate(leaves[1], positions)]
    for one in found:
        (one * torch.linspace(-1, 1, one.numel(), dtype=dtype).view_as(one)).sum().backward()
    assert_equal_up_to_rounding(found[0], found[1], "turned")
    assert_equal_up_to_rounding(leaves[0].grad, leaves[1].grad, "its gradient")


def test_projections_together_equal_projections_one_by_one() -> None:
    heads, x = Heads(8, 2).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    linears = (heads.query, heads.key, heads.value)
    together = heads.project(x, *linears)
    with torch.no_grad():
        apart = heads.project(x, *linears)
    for one, other in zip(together, apart, strict=True):
        assert_equal_up_to_rounding(one, other, "projection")


MASKS: list[Mask] = [Padding(), Causal() & Padding(), DocumentMask() & Padding(), WindowMask(2, 1) & Padding()]


@pytest.mark.parametrize("bias", [NoBias(), Alibi(torch.tensor([0.5, 0.25], dtype=torch.float64))])
@pytest.mark.parametrize("mask", MASKS)
def test_who_does_not_heed_padding_gets_the_same_for_real_elements(mask: Mask, bias: Bias) -> None:
    torch.manual_seed(2)
    segments = torch.tensor([0, 0, 1, 1, 1, 2, 2]).expand(3, 7)
    x = Padded.of(torch.zeros(3, 7), torch.tensor([7, 4, 0]), segments).laid_out()
    query, key, value = (torch.randn(3, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    asked = Request(query, key, value, places_of(x), places_of(x), mask=mask, bias=bias, aligned=True)
    heedless = asked._replace(heedless=True, shared=x.layout)
    real = x.valid[:, None, :, None]
    for _ in range(2):  # the second time with what was kept
        found, expected = SDPA.run(heedless) * real, plain(asked) * real
        assert_equal_up_to_rounding(found, expected, "attention")
        for one, other in zip(
            *(torch.autograd.grad(y.sin().sum(), (query, key, value)) for y in (found, expected)), strict=True
        ):
            assert_equal_up_to_rounding(one, other, "its gradient")


@pytest.mark.parametrize("training", [False, True])
def test_a_decoder_finds_nothing_in_an_empty_source(training: bool) -> None:
    torch.manual_seed(1)
    cross = CrossAttention("scaled_dot", 2, 8).train(training)
    nn.init.normal_(cross.heads.value.bias)
    memory = Padded.of(torch.randn(2, 3, 8), torch.tensor([3, 0]))
    with torch.set_grad_enabled(training):
        y = cross(Padded.of(torch.randn(2, 4, 8)), memory).values
    assert_equal_up_to_rounding(y[1], cross.heads.output.bias.expand(4, 8), "what is found in nothing")
    assert bool((y[0] - cross.heads.output.bias).abs().max() > 0.01), "and something in the other source"
