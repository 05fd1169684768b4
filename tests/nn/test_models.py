"""Whole models: one answer per document whatever it is batched with, losses that add up, every recipe trains a step."""

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import (
    CrfHeadConfig,
    LabelsHeadConfig,
    NextTokenHeadConfig,
    NumberHeadConfig,
    Pooling,
    VectorHeadConfig,
)
from seqloom.config.inputs import FiltersConfig, NgramsConfig, PatchesConfig, TokensConfig, VectorsConfig
from seqloom.config.mixers import GruConfig
from seqloom.config.models import ElementModelConfig, EmbedderConfig, LanguageModelConfig, SequenceModelConfig
from seqloom.config.stacks import BlockConfig, EncoderConfig
from seqloom.nn.models import SequenceModel, count_parameters
from seqloom.nn.ops.losses import aligned_rows
from seqloom.nn.types import Batch, Loss, Padded, Pair
from tolerances import assert_equal_up_to_rounding, largest

TOKENS = TokensConfig(vocab_size=11)
POOLINGS: list[Pooling] = ["mean", "sum", "max", "last", "first", "attention"]


def _drawn(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.4)
    return model.double().eval()


def _documents() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randint(0, 11, (length,)) for length in (5, 2, 7, 1)]


def _packed(documents: list[Tensor]) -> Padded:
    """Two documents in each row."""
    rows = [torch.cat(documents[first : first + 2]) for first in (0, 2)]
    numbers = [torch.cat([torch.full_like(documents[first + n], n) for n in range(2)]) for first in (0, 2)]
    return Padded.stack(rows)._replace(segments=Padded.stack(numbers).values)


def _each_alone(model: nn.Module, documents: list[Tensor]) -> Tensor:
    return torch.cat([model(Padded.of(document[None])) for document in documents])


def _gradients(model: nn.Module, answers: Tensor) -> list[Tensor]:
    model.zero_grad()
    (answers * torch.linspace(-1, 1, answers.numel()).view_as(answers)).sum().backward(retain_graph=True)
    return [weight.grad.clone() for weight in model.parameters()]


@pytest.mark.parametrize("name", recipes.names("classifier"))
def test_an_answer_does_not_depend_on_batch_mates_padding_or_packing(name: str) -> None:
    model = _drawn(recipes.classifier(name, inputs=TOKENS, num_classes=3, size="nano").build())
    documents = _documents()
    alone, batched = _each_alone(model, documents), Padded.stack(documents)
    soiled = batched._replace(values=torch.where(batched.valid, batched.values, 10_000))
    expected = _gradients(model, alone)
    for x, how in ((batched, "batched"), (soiled, "with garbage in the padding"), (_packed(documents), "packed")):
        found = model(x)
        assert_equal_up_to_rounding(found, alone, how)
        for one, other in zip(_gradients(model, found), expected, strict=True):
            assert_equal_up_to_rounding(one, other, f"{how}: gradient", floor=largest(expected) / 4)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_gives_one_vector_per_document(pooling: Pooling) -> None:
    encoder = EncoderConfig(input=TOKENS, width=8, layers=(BlockConfig(mixer=GruConfig()),))
    model = _drawn(EmbedderConfig(encoder=encoder, pooling=pooling, head=VectorHeadConfig(size=5)).build())
    documents = _documents()
    alone = _each_alone(model, documents)
    assert_equal_up_to_rounding(model(_packed(documents)), alone, pooling)
    assert_equal_up_to_rounding(alone.norm(dim=-1), torch.ones(4).double(), "of length one")


def test_an_empty_document_gives_a_finite_answer() -> None:
    for pooling in POOLINGS:
        encoder = EncoderConfig(input=TOKENS, width=8)
        model = _drawn(EmbedderConfig(encoder=encoder, pooling=pooling).build())
        vectors = model(Padded.of(torch.zeros(2, 3).long(), torch.tensor([3, 0])))
        assert bool(torch.isfinite(vectors).all()), pooling


def _targets(shape: str, x: Padded) -> Tensor:
    torch.manual_seed(2)
    return torch.randint(0, 3, x.values.shape[:1] if shape == "classifier" else x.values.shape)


def _losses(shape: str, name: str) -> tuple[nn.Module, object, Tensor]:
    tokens = torch.arange(18).view(3, 6) ** 2 % 11
    x = Padded.of(tokens, torch.tensor([6, 2, 4]))
    if shape == "classifier":
        return recipes.classifier(name, inputs=TOKENS, num_classes=3, size="nano").build(), x, _targets(shape, x)
    if shape == "tagger":
        return recipes.tagger(name, inputs=TOKENS, num_tags=3, size="nano").build(), x, _targets(shape, x)
    if shape == "language-model":
        return recipes.language_model(name, vocab_size=11, size="nano").build(), x, _targets(shape, x)
    model = recipes.translator(name, source=TOKENS, target_vocab_size=11, size="nano").build()
    return model, Pair(x, x), _targets(shape, x)


EVERY = [
    (shape, name) for shape in ("classifier", "tagger", "language-model", "translator") for name in recipes.names(shape)
]


@pytest.mark.parametrize(("shape", "name"), EVERY)
def test_one_step_of_descent_lowers_the_loss_of_every_recipe(shape: str, name: str) -> None:
    torch.manual_seed(0)
    model, inputs, targets = _losses(shape, name)
    model.eval()  # no dropout: the two losses are of one function
    before = model.loss(Batch(inputs, targets))
    before.mean.backward()
    assert all(weight.grad is not None for weight in model.parameters()), "a weight without a gradient"
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 1e-3 * weight.grad
        after = model.loss(Batch(inputs, targets))
    assert after.mean < before.mean
    assert after.weight == (3 if shape == "classifier" else 12)


@pytest.mark.parametrize(
    ("shape", "name"), [("classifier", "lstm"), ("tagger", "transformer"), ("language-model", "gru")]
)
def test_losses_are_sums_so_parts_of_a_batch_add_up(shape: str, name: str) -> None:
    model, x, targets = _losses(shape, name)
    model = _drawn(model)
    whole = model.loss(Batch(x, targets))
    rows = [torch.tensor([row]) for row in range(3)]
    parts = [model.loss(Batch(x.select(row), targets[row])) for row in rows]
    summed = Loss(*(sum(column) for column in zip(*parts, strict=True)))
    assert_equal_up_to_rounding(summed.total, whole.total, "total")
    assert_equal_up_to_rounding(summed.weight, whole.weight, "weight")


def test_the_loss_of_a_language_model_is_the_cross_entropy_of_its_scores() -> None:
    model, x, targets = _losses("language-model", "transformer")
    model = _drawn(model)
    expected = F.cross_entropy(model(x).values[x.valid], targets[x.valid], reduction="sum")
    assert_equal_up_to_rounding(model.loss(Batch(x, targets)).total, expected, "loss")


def test_a_tied_head_reads_with_the_matrix_that_the_input_writes_with() -> None:
    tied = recipes.language_model("gru", vocab_size=11, size="nano")
    model = tied.build()
    assert model.head.table is model.decoder.input.table
    loose = LanguageModelConfig(decoder=tied.decoder, head=type(tied.head)(vocab_size=11, tied=False)).build()
    assert loose.head.table is not loose.decoder.input.table


def test_a_tied_table_narrower_than_the_model_is_read_through_a_map() -> None:
    usual = recipes.language_model("gru", vocab_size=11, size="nano")
    decoder = msgspec.structs.replace(usual.decoder, input=TokensConfig(vocab_size=11, size=3))
    config = LanguageModelConfig(decoder=decoder, head=usual.head)
    model = _drawn(config.build())
    assert count_parameters(model) == config.parameters()
    assert model.head.table is model.decoder.input.table and model.head.table.shape == (11, 3)
    x = Padded.of(torch.tensor([[3, 1, 4], [1, 5, 9]]))
    vectors = model.features(x).values @ model.head.narrow.weight.T
    scores = vectors @ model.head.table.T + model.head.bias
    assert_equal_up_to_rounding(model(x).values, scores, "scores")
    expected = F.cross_entropy(scores.flatten(0, 1), x.values.flatten(), reduction="sum")
    assert_equal_up_to_rounding(model.loss(Batch(x, x.values)).total, expected, "loss")


def test_packed_language_modeling_equals_documents_apart() -> None:
    model, _, _ = _losses("language-model", "transformer")
    model, documents = _drawn(model), _documents()
    apart = sum(model.loss(Batch(Padded.of(d[None]), d[None])).total for d in documents)
    packed = _packed(documents)
    assert_equal_up_to_rounding(model.loss(Batch(packed, packed.values)).total, apart, "loss")


def test_crf_tagging_keeps_packed_documents_apart_and_its_tags_legal() -> None:
    labels = ("O", "B-X", "I-X")
    config = ElementModelConfig(
        encoder=EncoderConfig(input=TOKENS, width=8, layers=(BlockConfig(mixer=GruConfig()),)),
        head=CrfHeadConfig(labels=labels, scheme="bio"),
    )
    model, documents = _drawn(config.build()), _documents()
    packed = _packed(documents)
    alone = [model.predict(Padded.of(document[None]))[0] for document in documents]
    found = model.predict(packed)
    assert torch.equal(found[0, :7], torch.cat(alone[:2])) and torch.equal(found[1, :8], torch.cat(alone[2:]))
    for tags in alone:
        previous = 0
        for tag in tags.tolist():
            assert tag != 2 or previous in (1, 2), "I-X after O"
            previous = tag
    gold = torch.zeros_like(packed.values)
    apart = sum(model.loss(Batch(Padded.of(d[None]), torch.zeros_like(d[None]))).total for d in documents)
    assert_equal_up_to_rounding(model.loss(Batch(packed, gold)).total, apart, "likelihood")


def test_vectors_in_numbers_or_labels_out() -> None:
    encoder = EncoderConfig(input=VectorsConfig(size=3), width=8, layers=(BlockConfig(mixer=GruConfig()),))
    x = Padded.of(torch.randn(2, 4, 3), torch.tensor([4, 2]))
    numbers = SequenceModelConfig(encoder=encoder, head=NumberHeadConfig(size=2)).build()
    assert numbers(x).shape == (2, 2)
    assert numbers.loss(Batch(x, torch.zeros(2, 2))).weight == 4
    per_step = ElementModelConfig(encoder=encoder, head=NumberHeadConfig()).build()
    assert per_step.loss(Batch(x, torch.zeros(2, 4, 1))).weight == 6
    labels = SequenceModelConfig(encoder=encoder, head=LabelsHeadConfig(num_labels=3)).build()
    assert labels.predict(x).dtype == torch.bool
    assert labels.loss(Batch(x, torch.ones(2, 3))).weight == 6


@pytest.mark.parametrize("name", recipes.names("picture-classifier"))
def test_pictures_are_classified(name: str) -> None:
    config = recipes.picture_classifier(name, height=8, width=8, channels=3, num_classes=4, size="nano")
    model = _drawn(config.build())
    pictures = torch.randn(3, 8, 8, 3).double()
    together = model(pictures)
    assert together.shape == (3, 4)
    for row in range(3):
        assert_equal_up_to_rounding(model(pictures[row : row + 1])[0], together[row], "a picture alone")


def test_patches_are_read_in_reading_order() -> None:
    patches = PatchesConfig(height=4, width=4, channels=2, patch=2).build(8)
    nn.init.eye_(patches.widen.weight)
    nn.init.zeros_(patches.widen.bias)
    picture = torch.arange(32.0).view(1, 4, 4, 2)
    found = patches(picture).values[0]
    assert torch.equal(found[1], picture[0, 0:2, 2:4].flatten())
    assert torch.equal(found[2], picture[0, 2:4, 0:2].flatten())


def test_a_caption_model_writes_while_looking_at_a_picture() -> None:
    source = FiltersConfig(height=8, width=8, filters=(4,))
    model = recipes.translator("seq2seq-additive", source=source, target_vocab_size=11, size="nano").build().eval()
    pictures, words = torch.randn(2, 8, 8, 1), Padded.of(torch.randint(0, 11, (2, 5)), torch.tensor([5, 3]))
    whole = model(words, pictures)
    state, pieces = model.initial_state(pictures), []
    for start in range(5):
        y, state = model.step(words.cut(start, start + 1), state)
        pieces.append(y.values)
    assert_equal_up_to_rounding(torch.cat(pieces, dim=1), whole.values, "one word at a time")


def test_counted_ngrams_are_weights_times_counts() -> None:
    config = recipes.classifier("linear", inputs=NgramsConfig(vocab_size=TOKENS.vocab_size), num_classes=3)
    model = _drawn(config.build())
    assert isinstance(model, SequenceModel)
    document = torch.tensor([4, 4, 7])
    table, bias = model.encoder.input.table, model.head.bias
    rows, known = model.encoder.input.features(torch.cat([torch.tensor([-1]), document])[None], 3)
    counts = torch.zeros(len(table)).double()
    for row in rows[known]:
        counts[row] += 1
    assert counts.sum() == 5, "three words and two pairs"
    assert_equal_up_to_rounding(model(Padded.of(document[None]))[0], counts @ table + bias, "W phi(x) + b")


def test_dropout_acts_in_training_and_not_in_evaluation() -> None:
    for name in recipes.names("language-model"):
        torch.manual_seed(0)
        model, x, _ = _losses("language-model", name)
        assert not torch.equal(model.train()(x).values, model.train()(x).values), name
        assert torch.equal(model.eval()(x).values, model.eval()(x).values), name


def test_scores_with_room_behind_the_table_are_the_same() -> None:
    torch.manual_seed(0)
    head = NextTokenHeadConfig(vocab_size=70, tied=False).build(8, None)
    for weight in (head.table, head.bias):
        torch.nn.init.normal_(weight)
    table, features = head.table.detach().clone(), torch.randn(3, 8)
    assert aligned_rows(head.table) is None
    expected = F.linear(features, head.table, head.bias)
    head.make_room()
    assert torch.equal(head.table, table) and head.state_dict()["table"].shape == (70, 8)
    wide = F.linear(features, aligned_rows(head.table), aligned_rows(head.bias))
    assert wide.shape == (3, 128)
    assert_equal_up_to_rounding(wide[:, :70], expected, "scores")
