"""The laws over the closed unions, blocks, stacks and models; the configurations come from the types themselves."""

import os
from typing import get_args
from zlib import crc32

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from laws import laws
from laws.subjects import CAUSAL, SUBJECTS, WIDTH, Subject, _can_be_causal, _label, choices, fits, mixer_kinds, stack
from seqloom.config.base import _fields
from seqloom.config.heads import (
    ClassHeadConfig,
    CrfHeadConfig,
    HeadConfig,
    LabelScoresHeadConfig,
    LabelsHeadConfig,
    NextTokenHeadConfig,
    NumberHeadConfig,
    NumberScoresHeadConfig,
    Pooling,
    ScoresHeadConfig,
)
from seqloom.config.mixers import RELATIVE, AttentionConfig, EdgesConfig, LinearAttentionConfig, MixerConfig, PoolConfig
from seqloom.errors import ConfigError
from seqloom.nn.heads import Head, Pooler
from seqloom.nn.ops import attention_blocked, attention_fast, attention_regions
from seqloom.nn.ops.attention import Kernel, never
from seqloom.nn.types import Padded
from tolerances import assert_equal_up_to_rounding

SOAKING = os.environ.get("SEQLOOM_SOAK") == "1"
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def _named(subjects: list[Subject]) -> list[pytest.param]:
    """Subjects by name; five of six are left to `make test`, so that the fast part stays fast."""
    marks = [pytest.mark.slow if number % 6 else () for number in range(len(subjects))]
    return [pytest.param(one, id=one.name, marks=mark) for one, mark in zip(subjects, marks, strict=True)]


def _precisions(subject: Subject, law: laws.Law) -> tuple[torch.dtype, ...]:
    """Double precision for every pair, and for one pair of three the others too; soak has all."""
    return DTYPES if SOAKING or crc32(f"{subject.name} {law.__name__}".encode()) % 3 == 0 else DTYPES[:1]


@pytest.mark.parametrize("law", laws.SEQUENCE_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("subject", _named(SUBJECTS))
def test_every_layer_obeys(subject: Subject, law: laws.Law) -> None:
    for dtype in _precisions(subject, law):
        law(subject, dtype, 3)


@pytest.mark.parametrize("law", laws.CAUSAL_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("subject", _named(CAUSAL))
def test_every_causal_layer_obeys(subject: Subject, law: laws.Law) -> None:
    for dtype in _precisions(subject, law):
        law(subject, dtype, 5)


@pytest.mark.parametrize("subject", _named([subject for subject in SUBJECTS if not subject.tokens]))
def test_gradients_are_those_of_the_function(subject: Subject) -> None:
    laws.gradients_are_those_of_the_function(subject, 7)


@pytest.mark.parametrize("how", get_args(Pooling))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_pooler_reads_the_padding(how: Pooling, dtype: torch.dtype) -> None:
    garbage = (laws.GARBAGE, torch.nan, torch.inf)
    laws.padding_is_never_read(Subject(how, lambda: Pooler(how, WIDTH)), lambda pooler, x: [pooler(x)], dtype, garbage)


def _heads() -> list[HeadConfig]:
    """Heads of three classes, labels or numbers; those that only add a bias read as many scores as the others."""
    tags = ("O", "B-a", "I-a")
    wide = [NumberScoresHeadConfig(size=WIDTH), LabelScoresHeadConfig(num_labels=WIDTH)]
    wide.append(ScoresHeadConfig(num_classes=WIDTH))
    return [
        ClassHeadConfig(num_classes=3),
        ClassHeadConfig(num_classes=3, label_smoothing=0.1, class_weights=(1.0, 2.0, 0.5)),
        LabelsHeadConfig(num_labels=3),
        NumberHeadConfig(size=3),
        CrfHeadConfig(labels=tags, scheme="none"),
        CrfHeadConfig(labels=tags, scheme="bio"),
        NextTokenHeadConfig(vocab_size=3, tied=False),
        *wide,
    ]


@pytest.mark.parametrize("config", _heads(), ids=_label)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_head_reads_the_padding(config: HeadConfig, dtype: torch.dtype) -> None:
    def read(head: Head, x: Padded) -> list[Tensor]:
        shape = x.values.shape[:2]
        numbers = isinstance(config, NumberHeadConfig | LabelsHeadConfig)
        wanted = torch.ones(*shape, head(x).values.shape[-1]) if numbers else torch.zeros(shape, dtype=torch.int64)
        loss, (of_rows, weights), predicted = head.loss(x, wanted), head.losses(x, wanted).of_rows(), head.predict(x)
        assert not predicted[~x.valid].any(), "a prediction in the padding"
        rows = [row[: int(length)].flatten() for row, length in zip(predicted, x.lengths, strict=True)]
        return [one.to(dtype) for one in (loss.total[None], loss.weight[None], of_rows, weights, *rows)]

    laws.padding_is_never_read(Subject(_label(config), lambda: config.build(WIDTH)), read, dtype)


def _orderless() -> list[MixerConfig]:
    scores = choices(_fields(AttentionConfig)["score"])
    attention = [AttentionConfig(num_heads=2, score=score) for score in scores]
    return [*attention, LinearAttentionConfig(num_heads=2), *(PoolConfig(how=how) for how in ("mean", "sum", "max"))]


@pytest.mark.parametrize("config", _orderless(), ids=_label)
def test_attention_without_positions_does_not_see_order(config: MixerConfig) -> None:
    laws.order_is_not_seen(Subject("orderless", lambda: config.build(8)).build(), 1)


@pytest.mark.parametrize("score", choices(_fields(AttentionConfig)["score"]))
def test_attention_along_edges_does_not_see_how_nodes_are_numbered(score: str) -> None:
    config = AttentionConfig(num_heads=2, score=score, pattern=EdgesConfig())
    laws.nodes_may_be_numbered_in_any_way(Subject("graph", lambda: config.build(8)).build(), 1)


@pytest.mark.parametrize("position", RELATIVE)
def test_every_relative_position_sees_order(position: str) -> None:
    module = Subject("ordered", lambda: AttentionConfig(num_heads=2).build(8, position)).build()
    with pytest.raises(AssertionError, match="another order"):
        laws.order_is_not_seen(module, 1)


ATTENDING = [subject for subject in SUBJECTS if subject.name.startswith("attention")]


@pytest.mark.sampled(40)
@pytest.mark.slow  # tests/nn/test_attention_kernels.py compares the kernels in the fast part
@pytest.mark.parametrize("kernel", [attention_fast.BLOCKED, attention_fast.REGIONS], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("subject", ATTENDING, ids=lambda subject: subject.name)
def test_attention_obeys_every_law_in_blocks_too(
    subject: Subject, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long sequences go through blockwise kernels: here, short ones do."""
    eager = kernel._replace(declines=never)
    for module in (attention_blocked, attention_regions):
        monkeypatch.setattr(module, "_BLOCK", 2)
    monkeypatch.setattr(attention_fast, "ORDERS", {"cpu": (eager, attention_fast.SDPA, attention_fast.PLAIN)})
    for law in laws.SEQUENCE_LAWS + (laws.CAUSAL_LAWS if subject.causal else []):
        if law is not laws.fast_equals_plain:  # which names the plain kernel, and it is not in this list by itself
            law(subject, torch.float64, 11)


@pytest.mark.slow
@pytest.mark.parametrize("config", mixer_kinds(), ids=_label)
def test_a_thousand_steps_in_bfloat16_end_where_one_reading_does(config: MixerConfig) -> None:
    torch.manual_seed(0)
    try:
        mixer = config.build_causal(8).bfloat16().eval()
    except ConfigError:
        return  # it cannot be stepped
    x = Padded.of(torch.randn(1, 1000, 8).bfloat16() + 0.5)
    with torch.no_grad():
        at_once, state = mixer(x).values, mixer.initial_state(1)
        for time in range(1000):
            y, state = mixer.step(x.cut(time, time + 1), state)
    assert_equal_up_to_rounding(y.values[:, 0], at_once[:, -1], "the thousandth output")


@st.composite
def drawn_mixers(draw: st.DrawFn) -> MixerConfig:
    """Any member of the union with any combination of the values of its fields."""
    kind = type(draw(st.sampled_from(mixer_kinds())))
    while True:
        values = {name: draw(st.sampled_from(choices(annotation))) for name, annotation in _fields(kind).items()}
        try:
            config = kind(**values)
        except ConfigError:
            continue
        if fits(config, "none"):
            return config


@st.composite
def drawn_subjects(draw: st.DrawFn) -> Subject:
    """Any mixer, in either direction."""
    config = draw(drawn_mixers())
    position = draw(st.sampled_from([word for word in ("none", *RELATIVE) if fits(config, word)]))
    causal = draw(st.booleans())

    def make() -> nn.Module:
        try:
            return config.build_causal(8, position) if causal else config.build(8, position)
        except ConfigError:
            return config.build(8, position)

    return Subject(f"{_label(config)}-{position}-{causal}", make, edges=config.reads_edges())


@pytest.mark.slow
@settings(max_examples=2_000 if SOAKING else 60)
@given(subject=drawn_subjects(), seed=st.integers(0, 10_000), data=st.data())
def test_any_drawn_configuration_obeys_any_law(subject: Subject, seed: int, data: st.DataObject) -> None:
    stepped = hasattr(subject.build(), "step")
    law = data.draw(st.sampled_from(laws.SEQUENCE_LAWS + (laws.CAUSAL_LAWS if stepped else [])))
    law(subject, torch.float64, seed)


PATTERNS = choices(_fields(AttentionConfig)["pattern"])


@st.composite
def drawn_stacks(draw: st.DrawFn) -> Subject:
    """Two to four layers, about half of them attention with any pattern, with or without a memory."""
    patterned = [AttentionConfig(num_heads=2, pattern=pattern) for pattern in PATTERNS]
    attending = st.sampled_from(list(filter(_can_be_causal, patterned)))
    mixers = tuple(draw(st.lists(st.one_of(attending, drawn_mixers().filter(_can_be_causal)), min_size=2, max_size=4)))
    positions = [word for word in ("none", *RELATIVE) if all(fits(mixer, word) for mixer in mixers)]
    position, conditioned = draw(st.sampled_from(positions)), draw(st.booleans())
    name = f"{'-'.join(map(_label, mixers))}-{position}-{conditioned}"
    return stack(name, mixers, position, conditioned=conditioned)


@pytest.mark.slow
@settings(max_examples=2_000 if SOAKING else 60)
@given(subject=drawn_stacks(), law=st.sampled_from(laws.CAUSAL_LAWS), seed=st.integers(0, 10_000))
def test_any_drawn_stack_obeys_every_law_of_stepping(subject: Subject, law: laws.Law, seed: int) -> None:
    law(subject, torch.float64, seed)
