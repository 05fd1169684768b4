"""A batch that does not fit a built model is refused in our words, never in torch's."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from config.configurations import TOKENS
from seqloom import recipes
from seqloom.config.heads import (
    ClassHeadConfig,
    CrfHeadConfig,
    LabelsHeadConfig,
    NextTokenHeadConfig,
    NumberHeadConfig,
    ScoresHeadConfig,
    UnmappedHead,
)
from seqloom.config.inputs import (
    AnyInput,
    FiltersConfig,
    FlatConfig,
    NgramsConfig,
    PatchesConfig,
    TokensConfig,
    VectorsConfig,
)
from seqloom.config.mixers import AttentionConfig
from seqloom.config.models import ElementModelConfig, LanguageModelConfig, SequenceModelConfig
from seqloom.config.stacks import BlockConfig, DecoderConfig, EncoderConfig
from seqloom.errors import ConfigError, DataError
from seqloom.nn.types import Batch, Padded, Pair

pytestmark = pytest.mark.skipif(
    os.environ.get("SEQLOOM_TEST_DEVICE", "cpu") != "cpu", reason="values are looked at on the CPU only"
)

CLASSES = ClassHeadConfig(num_classes=3)
TAGS = CrfHeadConfig(labels=("O", "B-X", "I-X"), scheme="bio")
PICTURES = (
    FlatConfig(height=4, width=4),
    PatchesConfig(height=4, width=4, patch=2),
    FiltersConfig(height=4, width=4, filters=(2,)),
)


@cache
def classifier(source: AnyInput = TOKENS, head: Any = CLASSES) -> nn.Module:
    width = head.answers if isinstance(head, UnmappedHead) else 8
    return SequenceModelConfig(encoder=EncoderConfig(input=source, width=width), head=head).build().eval()


@cache
def tagger(head: Any = CLASSES) -> nn.Module:
    return ElementModelConfig(encoder=EncoderConfig(input=TOKENS, width=8), head=head).build().eval()


@cache
def language_model(name: str = "gru") -> nn.Module:
    return recipes.language_model(name, vocab_size=11, size="nano").build().eval()


@cache
def four_places() -> nn.Module:
    """A language model whose learned positions end at four."""
    decoder = DecoderConfig(
        input=TOKENS,
        width=8,
        position="learned",
        max_length=4,
        layers=(BlockConfig(mixer=AttentionConfig(num_heads=2)),),
    )
    return LanguageModelConfig(decoder=decoder, head=NextTokenHeadConfig(vocab_size=11)).build().eval()


@cache
def translator(name: str = "transformer") -> nn.Module:
    return recipes.translator(name, source=TOKENS, target_vocab_size=11, size="nano").build().eval()


def tokens(rows: int, time: int) -> Tensor:
    return torch.arange(rows * time).view(rows, time) % 11


def padded(rows: int, time: int) -> Padded:
    return Padded.of(tokens(rows, time))


TWO = Padded.of(tokens(2, 3), torch.tensor([3, 2]))
PACKED = Padded.of(tokens(1, 4), segments=torch.tensor([[0, 0, 1, 1]]))


def step(model: Any, state: Any, *blocks: Padded) -> None:
    for block in blocks:
        _, state = model.step(block, state)


class Case(NamedTuple):
    """Something that does not fit, and a part of the words that refuse it."""

    name: str
    act: Callable[[], object]
    words: str


def loss(name: str, model: Callable[[], Any], inputs: Any, targets: Any, words: str) -> Case:
    return Case(name, lambda: model().loss(Batch(inputs, torch.as_tensor(targets))), words)


LABELS, NUMBERS = LabelsHeadConfig(num_labels=4), NumberHeadConfig(size=2)
CASES = [
    Case("batch-without-rows", lambda: Padded.of(tokens(0, 3)), "no rows"),
    Case("stack-of-nothing", lambda: Padded.stack([]), "no rows"),
    Case("model-without-rows", lambda: classifier()(Padded(tokens(0, 3), torch.tensor([]).long())), "no rows"),
    Case("pictures-without-rows", lambda: classifier(PICTURES[0])(torch.zeros(0, 4, 4, 1)), "found [0, 4, 4, 1]"),
    Case("batch-without-time", lambda: Padded.of(torch.arange(3)), "[rows, time]"),
    Case(
        "token-too-large",
        lambda: classifier()(Padded.of(torch.tensor([[1, 11]]))),
        "token 11 is outside the vocabulary of 11 tokens",
    ),
    Case(
        "token-negative",
        lambda: classifier()(Padded.of(torch.tensor([[1, -1]]))),
        "token -1 is outside the vocabulary of 11 tokens",
    ),
    Case("tokens-of-float", lambda: classifier()(Padded.of(torch.rand(2, 3))), "torch.float32"),
    Case("tokens-of-three-axes", lambda: classifier()(Padded.of(tokens(2, 3)[..., None])), "[2, 3, 1]"),
    Case(
        "token-of-an-ngram",
        lambda: classifier(NgramsConfig(vocab_size=4))(padded(1, 9)),
        "token 8 is outside the vocabulary of 4 tokens",
    ),
    Case(
        "ngrams-of-float", lambda: classifier(NgramsConfig(vocab_size=4))(Padded.of(torch.rand(1, 2))), "torch.float32"
    ),
    Case(
        "token-of-a-decoder",
        lambda: language_model()(Padded.of(torch.tensor([[99]]))),
        "token 99 is outside the vocabulary of 11 tokens",
    ),
    Case(
        "token-of-a-step",
        lambda: step(language_model(), language_model().initial_state(1), Padded.of(torch.tensor([[99]]))),
        "token 99 is outside the vocabulary of 11 tokens",
    ),
    Case("token-of-a-source", lambda: translator()(padded(1, 3), Padded.of(torch.tensor([[99]]))), "token 99"),
    Case(
        "vectors-of-another-size", lambda: classifier(VectorsConfig(size=5))(Padded.of(torch.rand(2, 3, 4))), "size 5"
    ),
    Case("vectors-of-two-axes", lambda: classifier(VectorsConfig(size=5))(Padded.of(torch.rand(2, 3))), "size 5"),
    *(
        Case(
            f"picture-{source.kind()}-{list(shape)}",
            lambda s=source, n=shape: classifier(s)(torch.rand(n)),
            "[rows, 4, 4, 1]",
        )
        for source in PICTURES
        for shape in ((2, 4, 5, 1), (2, 4, 4), (2, 1, 4, 4), (2, 4, 4, 3))
    ),
    Case("lengths-negative", lambda: Padded.of(tokens(2, 3), torch.tensor([-1, 2])), "from 0 to 3"),
    Case("lengths-beyond", lambda: Padded.of(tokens(2, 3), torch.tensor([4, 2])), "from 0 to 3"),
    Case("too-few-lengths", lambda: Padded.of(tokens(2, 3), torch.tensor([3])), "2 rows need 2 lengths"),
    Case("segments-of-another-shape", lambda: Padded.of(tokens(2, 3), segments=tokens(2, 2)), "segments"),
    Case("beyond-the-last-place", lambda: four_places()(padded(1, 5)), "only 4 learned positions"),
    Case(
        "step-beyond-the-last-place",
        lambda: step(four_places(), four_places().initial_state(1), padded(1, 4), padded(1, 1)),
        "only 4 learned positions",
    ),
    Case(
        "document-beyond-the-last-place",
        lambda: four_places()(Padded.of(tokens(1, 6), segments=torch.tensor([[0, 0, 0, 0, 0, 1]]))),
        "only 4 learned positions",
    ),
    Case("memory-of-other-rows", lambda: translator()(padded(2, 3), padded(3, 3)), "a memory of 3 rows"),
    Case("more-documents-than-sources", lambda: translator()(PACKED, padded(1, 3)), "packed documents cannot read"),
    Case(
        "step-of-packed-documents",
        lambda: step(translator(), translator().initial_state(padded(1, 3)), PACKED),
        "packed",
    ),
    Case("packed-memory-of-a-step", lambda: translator().initial_state(PACKED), "packed"),
    loss("tags-of-another-time", tagger, TWO, tokens(2, 4) % 3, "targets [2, 4] do not fit inputs [2, 3]"),
    loss("tags-of-other-rows", tagger, TWO, tokens(1, 3) % 3, "targets [1, 3] do not fit inputs [2, 3]"),
    loss("tags-of-one-axis", tagger, TWO, [0, 1], "targets [2] do not fit inputs [2, 3]"),
    loss("next-tokens-of-another-time", language_model, TWO, tokens(2, 2), "targets [2, 2] do not fit inputs [2, 3]"),
    loss("translation-of-another-time", translator, Pair(TWO, TWO), tokens(2, 4), "targets [2, 4]"),
    # inputs of the wrong type
    Case("tokens-of-bool", lambda: classifier()(Padded.of(tokens(2, 3) > 3)), "tokens"),
    Case("tokens-of-uint8", lambda: classifier()(Padded.of(tokens(2, 3).to(torch.uint8))), "tokens"),
    Case("vectors-of-int", lambda: classifier(VectorsConfig(size=5))(Padded.of(torch.ones(2, 3, 5).long())), "vectors"),
    Case(
        "vectors-of-float64",
        lambda: classifier(VectorsConfig(size=5))(Padded.of(torch.rand(2, 3, 5).double())),
        "vectors",
    ),
    *(
        Case(f"bytes-{source.kind()}", lambda s=source: classifier(s)(torch.zeros(2, 4, 4, 1).byte()), "pictures")
        for source in PICTURES
    ),
    Case("a-bare-tensor", lambda: classifier()(tokens(2, 3)), "Padded"),
    Case("a-list", lambda: classifier()([[1, 2]]), "Padded"),
    Case("lengths-of-float", lambda: Padded.of(tokens(2, 3), torch.tensor([3.0, 2.0])), "lengths"),
    Case("segments-of-float", lambda: Padded.of(tokens(2, 3), segments=torch.rand(2, 3)), "segments"),
    Case("stack-of-different-sizes", lambda: Padded.stack([torch.rand(2, 3), torch.rand(2, 4)]), "size"),
    # states
    *(
        Case(
            f"state-of-other-rows-{name}",
            lambda n=name: step(language_model(n), language_model(n).initial_state(2), padded(1, 1)),
            "rows",
        )
        for name in ("rnn", "gru", "lstm", "linear-attention", "transformer", "cnn", "bag")
    ),
    Case(
        "memory-of-a-step", lambda: step(translator(), translator().initial_state(padded(3, 3)), padded(2, 3)), "rows"
    ),
    # targets
    *(
        loss(f"{name}-{target}", model, TWO, target, "class")
        for name, model in (
            ("class", classifier),
            ("scores", lambda: classifier(TOKENS, ScoresHeadConfig(num_classes=3))),
            ("smoothed", lambda: classifier(TOKENS, ClassHeadConfig(num_classes=3, label_smoothing=0.1))),
        )
        for target in ([1, 3], [1, -1], [1.0, 2.0], [0, 1, 2], [[0, 1, 2], [0, 1, 2]], 1)
    ),
    *(
        loss(f"{name}-{last}", model, TWO, [[0, 0, last], [0, 0, 0]], "class")
        for name, model in (("tag", tagger), ("crf", lambda: tagger(TAGS)), ("next-token", language_model))
        for last in (-1, 11, 1.5)
    ),
    loss("translation-11", translator, Pair(TWO, TWO), [[0, 0, 11], [0, 0, 0]], "class"),
    loss("crf-move-outside-the-scheme", lambda: tagger(TAGS), TWO, [[0, 2, 0], [0, 0, 0]], "scheme"),
    *(
        loss(f"labels-{shape}", lambda: classifier(TOKENS, LABELS), TWO, torch.zeros(shape), "targets")
        for shape in ((2, 3), (2,), (2, 1), (1, 4))
    ),
    *(
        loss(f"numbers-{shape}", lambda: classifier(TOKENS, NUMBERS), TWO, torch.zeros(shape), "targets")
        for shape in ((2, 3), (2,), (2, 1), (1, 2))
    ),
    loss("numbers-of-elements", lambda: tagger(NUMBERS), TWO, torch.zeros(2, 3, 1), "targets"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_does_not_fit_is_refused(case: Case) -> None:
    with pytest.raises((ConfigError, DataError)) as refused:
        case.act()
    assert case.words in str(refused.value)


@pytest.mark.parametrize("model", [classifier, language_model], ids=["classifier", "language-model"])
def test_what_stands_in_the_padding_is_not_looked_at(model: Callable[[], nn.Module]) -> None:
    clean, odd = torch.tensor([[1, 2, 0]]), torch.tensor([[1, 2, -7]])
    lengths = torch.tensor([2])
    expected, found = model()(Padded.of(clean, lengths)), model()(Padded(odd, lengths))
    assert torch.equal(*(answer if isinstance(answer, Tensor) else answer.values for answer in (expected, found)))


def test_a_target_in_the_padding_is_not_looked_at() -> None:
    for model in (tagger(), tagger(TAGS), language_model()):
        losses = [
            model.eval().loss(Batch(TWO, torch.tensor([[0, 1, 0], [1, 0, last]]))).total for last in (0, -100, 10**6)
        ]
        assert torch.equal(losses[0], losses[1])
        assert torch.equal(losses[0], losses[2])


def test_a_row_of_no_elements_is_no_error() -> None:
    empty = Padded.of(tokens(2, 3), torch.tensor([3, 0]))
    assert bool(torch.isfinite(classifier()(empty)).all())
    assert bool(torch.isfinite(translator()(empty, empty).values).all())


def test_the_vocabulary_ends_where_it_says() -> None:
    for size in (1, 2, 11):
        model = classifier(TokensConfig(vocab_size=size))
        assert model(Padded.of(torch.tensor([[size - 1]]))).shape == (1, 3)
        with pytest.raises(DataError, match=f"token {size} is outside the vocabulary of {size} tokens"):
            model(Padded.of(torch.tensor([[size]])))
