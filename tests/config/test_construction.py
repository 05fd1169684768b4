"""A configuration made in Python is checked as one that is read from a file, in the same words."""

import copy
import re
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.configurations import TOKENS
from seqloom.config.base import Config, Heads, Rate, Span, Width, taken
from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig, NextTokenHeadConfig
from seqloom.config.inputs import PatchesConfig, TokensConfig
from seqloom.config.mixers import (
    AttentionConfig,
    BidirectionalConfig,
    ConvolutionConfig,
    FullConfig,
    LinearAttentionConfig,
    LstmConfig,
    WindowConfig,
)
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import BlockConfig, DecoderBlockConfig, DecoderConfig, EncoderConfig, FeedForwardConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.errors import ConfigError
from seqloom.nn.ops.crf import legal_transitions

HEADS = "expected a whole number from 1 to 1,024"
RATE = "expected a number of at least 0 and below 1"

REFUSED: list[tuple[type[Config], dict[str, Any], str]] = [
    (AttentionConfig, {"num_heads": 0}, f"attention.num_heads: {HEADS}, found 0. Fix: use at least 1."),
    (AttentionConfig, {"num_heads": True}, f"attention.num_heads: {HEADS}, found true. Fix: give a whole number."),
    (
        AttentionConfig,
        {"num_heads": "4"},
        f"attention.num_heads: {HEADS}, found the text '4'. Fix: write 4 without quotes.",
    ),
    (AttentionConfig, {"num_heads": 4.0}, f"attention.num_heads: {HEADS}, found 4.0. Fix: write 4."),
    (AttentionConfig, {"num_heads": None}, f"attention.num_heads: {HEADS}, found null. Fix: give a whole number."),
    (
        AttentionConfig,
        {"num_heads": np.array([4])},
        f"attention.num_heads: {HEADS}, found something of type ndarray. Fix: give a whole number.",
    ),
    (AttentionConfig, {"dropout": 1}, f"attention.dropout: {RATE}, found 1. Fix: use less than 1.0."),
    (
        AttentionConfig,
        {"dropout": float("nan")},
        f"attention.dropout: {RATE}, found nan. Fix: give a number in this range.",
    ),
    (
        AttentionConfig,
        {"dropout": -(10**400)},
        f"attention.dropout: {RATE}, found a number of 1,329 bits. Fix: use at least 0.0.",
    ),
    (AttentionConfig, {"score": "dott"}, "attention.score: unknown name 'dott'. Did you mean 'dot'?"),
    (AttentionConfig, {"heads": 4}, "attention: unknown key 'heads'. Did you mean 'num_heads'?"),
    (
        AttentionConfig,
        {"pattern": LstmConfig()},
        "attention.pattern: 'lstm' is not possible here. Fix: choose from edges, full, sparse, window.",
    ),
    (
        AttentionConfig,
        {"pattern": "full"},
        "attention.pattern: expected a table, found the text 'full'. "
        "Fix: give one of kind edges, full, sparse, window.",
    ),
    (
        AttentionConfig,
        {"pattern": WindowConfig},
        "attention.pattern: expected a table, found something of type Closed. "
        "Fix: give one of kind edges, full, sparse, window.",
    ),
    (FullConfig, {"foo": 1}, "full: unknown key 'foo'. Fix: 'full' has no settings: leave it out."),
    (TokensConfig, {}, "tokens: missing key 'vocab_size'. Fix: add it: 'tokens' has no default for it."),
    (BlockConfig, {}, "block: missing key 'mixer'. Fix: add it: 'block' has no default for it."),
    (BlockConfig, {"mixer": {"kind": "lsmt"}}, "block.mixer: unknown kind 'lsmt'. Did you mean 'lstm'?"),
    (
        BlockConfig,
        {"mixer": {"kind": "attention", "num_head": 2}},
        "block.mixer: unknown key 'num_head'. Did you mean 'num_heads'?",
    ),
    (
        ConvolutionConfig,
        {"kernel_sizes": 3},
        "convolution.kernel_sizes: expected an array, found 3. Fix: write it in [ ].",
    ),
    (
        ConvolutionConfig,
        {"kernel_sizes": (3, 0)},
        "convolution.kernel_sizes[1]: expected a whole number from 1 to 1,025, found 0. Fix: use at least 1.",
    ),
    (
        DecoderBlockConfig,
        {"mixer": BidirectionalConfig()},
        "decoder-block.mixer: 'bidirectional' is not possible here. "
        "Fix: choose from attention, convolution, gru, linear-attention, lstm, pool, rnn.",
    ),
    (
        DecoderConfig,
        {"width": 8, "input": PatchesConfig(height=4, width=4, patch=2)},
        "decoder.input: 'patches' is not possible here. Fix: choose from ngrams, tokens, vectors.",
    ),
    (
        NextTokenHeadConfig,
        {"vocab_size": 5, "tied": "yes"},
        "next-token.tied: expected true or false, found the text 'yes'. Fix: write true or false.",
    ),
    (
        EncoderConfig,
        {"width": 8, "input": TOKENS, "layers": (BlockConfig(mixer=AttentionConfig(num_heads=3)),)},
        "layers[0].mixer: a width of 8 cannot be divided among 3 heads evenly. Fix: use num_heads = 2 or width = 9.",
    ),
]


@pytest.mark.parametrize(("kind", "wrong", "expected"), REFUSED)
def test_a_bad_call_is_refused_in_these_words(kind: type[Config], wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kind(**wrong)
    assert str(refused.value) == expected


def test_a_setting_without_its_name_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        AttentionConfig(4)  # type: ignore[misc]
    assert str(refused.value) == (
        "attention: settings are given by name, found 4 without one. Fix: write AttentionConfig(name=value)."
    )


def test_a_changed_copy_is_checked_again() -> None:
    good = AttentionConfig(num_heads=4)
    assert msgspec.structs.replace(good, num_heads=2) == AttentionConfig(num_heads=2)
    with pytest.raises(ConfigError, match=r"attention\.num_heads"):
        msgspec.structs.replace(good, num_heads=0)
    encoder = EncoderConfig(input=TOKENS, width=8, layers=(BlockConfig(mixer=good),))
    with pytest.raises(ConfigError, match="a width of 9 cannot be divided among 4 heads"):
        msgspec.structs.replace(encoder, width=9)
    assert copy.deepcopy(encoder) == encoder == copy.copy(encoder)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        AttentionConfig().num_heads = 0  # type: ignore[misc]


def test_lists_and_plain_data_are_held_as_a_file_would_give_them() -> None:
    listed = ConvolutionConfig(kernel_sizes=[3, 4])  # type: ignore[arg-type]
    assert listed == ConvolutionConfig(kernel_sizes=(3, 4))
    assert hash(listed) == hash(ConvolutionConfig(kernel_sizes=(3, 4)))
    assert BlockConfig(mixer={"kind": "lstm"}) == BlockConfig(mixer=LstmConfig())  # type: ignore[arg-type]
    whole = FeedForwardConfig(dropout=0)
    assert type(whole.dropout) is float
    assert type(AttentionConfig(dropout=np.float64(0.5)).dropout) is float
    given = WordsConfig(vocab_size=np.int64(100), normalize=np.str_("nfc"))  # type: ignore[arg-type]
    assert given.to_toml() == WordsConfig(vocab_size=100, normalize="nfc").to_toml()
    assert AttentionConfig(dropout=np.float32(0.5)).to_json() == AttentionConfig(dropout=0.5).to_json()


@pytest.mark.slow
def test_the_numbers_that_a_message_proposes_are_legal() -> None:
    tried = 0
    for width in (*range(1, 70), 65_535):
        for mixer in (
            *(AttentionConfig(num_heads=heads) for heads in range(1, 20)),
            *(LinearAttentionConfig(num_heads=heads) for heads in range(1, 20)),
            *(ConvolutionConfig(kernel_sizes=(3,) * count) for count in range(1, 9)),
            BidirectionalConfig(),
        ):
            for position in ("none", "rotary"):
                tried += _legal_proposals(mixer, width, position)
    assert tried > 1000


def _legal_proposals(mixer: Any, width: int, position: Any) -> int:
    """How many numbers the refusal proposes, each found to be legal; 0 if nothing is refused."""
    try:
        mixer.fit(width, position)
    except ConfigError as error:
        proposals = re.findall(r"(num_heads|width) = (\d+)", error.fix)
        assert proposals or position == "rotary"
        for name, number in proposals:
            if name == "width":
                mixer.fit(taken(int(number), Width, "width"), position)
            else:
                msgspec.structs.replace(mixer, num_heads=int(number)).fit(width, position)
        return len(proposals)
    return 0


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_patches_that_tile_are_taken_and_for_others_one_that_does_is_proposed(
    height: int, width: int, patch: int
) -> None:
    if height % patch == width % patch == 0:
        assert PatchesConfig(height=height, width=width, patch=patch).length() == height * width / patch**2
        return
    with pytest.raises(ConfigError) as refused:
        PatchesConfig(height=height, width=width, patch=patch)
    proposed = int(refused.value.fix.split()[3].rstrip(","))
    assert PatchesConfig(height=height, width=width, patch=proposed).length() >= 1


label = st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "B-", "-X", "BI-X", "X", "", "o", "B-X-Y", "I", "Z-X"])


@settings(max_examples=300)
@given(st.lists(label, min_size=2, max_size=4, unique=True), st.sampled_from(["none", "bio", "bioes"]))
def test_labels_are_refused_before_building_exactly_when_the_operator_would(labels: list[str], scheme: Any) -> None:
    def taken_by(make: Any) -> bool:
        try:
            make()
        except ConfigError:
            return False
        return True

    config = taken_by(lambda: CrfHeadConfig(labels=tuple(labels), scheme=scheme))
    assert config == taken_by(lambda: legal_transitions(labels, scheme))


@pytest.mark.parametrize(("annotation", "low", "high"), [(Width, 1, 65_536), (Heads, 1, 1_024), (Span, 1, 2**20)])
def test_both_ends_of_a_range_are_taken_and_the_next_is_not(annotation: Any, low: int, high: int) -> None:
    assert taken(low, annotation, "size") == low
    assert taken(high, annotation, "size") == high
    for beyond in (low - 1, high + 1):
        with pytest.raises(ConfigError, match="size: expected"):
            taken(beyond, annotation, "size")


def test_a_rate_is_taken_from_zero_up_to_but_without_one() -> None:
    below = 1.0 - 2**-53
    assert taken(0, Rate, "rate") == 0.0
    assert taken(below, Rate, "rate") == below
    for beyond in (1.0, 1, -1e-300, float("inf"), float("-inf"), float("nan")):
        with pytest.raises(ConfigError, match="rate: expected"):
            taken(beyond, Rate, "rate")


def test_a_whole_model_in_python_is_the_one_from_plain_data() -> None:
    model = SequenceModelConfig(
        encoder=EncoderConfig(input=TOKENS, width=8, layers=(BlockConfig(mixer=LstmConfig()),)),
        head=ClassHeadConfig(num_classes=3),
    )
    assert taken(msgspec.to_builtins(model), SequenceModelConfig, "") == model
