"""What the tests of a step share: models and batches of several families and tasks, and steps taken with them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import CrfHeadConfig, LabelsHeadConfig, NumberHeadConfig
from seqloom.config.inputs import TokensConfig, VectorsConfig
from seqloom.config.mixers import GruConfig
from seqloom.config.models import ElementModelConfig, SequenceModelConfig
from seqloom.config.stacks import BlockConfig, EncoderConfig
from seqloom.config.training import AdamWConfig, AnyBatching, ByLengthConfig, ConstantConfig, TrainingConfig
from seqloom.nn.types import Batch, Loss, Padded, Pair
from seqloom.tasks.task import Division
from seqloom.training.devices import Alone, Device, Ranks
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

AnyBatch = Batch[Any, Any]
VOCABULARY = 11
PLAIN = TrainingConfig(optimizer=AdamWConfig(), schedule=ConstantConfig(), lr=0.01, clip_norm=0.0)
HERE = torch.device(torch.empty(0).device)


class Asked:
    """As much of a task as a step asks for; a model with `continued_loss` carries its state."""

    def has_one_shape(self, feed: AnyBatching) -> bool:
        return not isinstance(feed, ByLengthConfig)

    def divided(self, model: nn.Module, pieces: int) -> Division:
        return Division(self, pieces)

    def loss(self, model: nn.Module, batch: AnyBatch, state: Any) -> tuple[Loss, Any]:
        return model.loss(batch), None


class Continued(Asked):
    """A language model that reads on."""

    def loss(self, model: nn.Module, batch: AnyBatch, state: Any) -> tuple[Loss, Any]:
        loss, after = model.continued_loss(batch, state)
        return loss, after


class Case(NamedTuple):
    """A model without dropout, and how to draw a ragged batch for it."""

    build: Callable[[], nn.Module]
    batch: Callable[[int], AnyBatch]


def ragged(rows: int, time: int = 7, *, size: int = 0) -> Padded:
    """Rows of different lengths, of tokens or of vectors."""
    lengths = torch.randint(1, time + 1, (rows,))
    values = torch.randn(rows, time, size) if size else torch.randint(VOCABULARY, (rows, time))
    return Padded.of(values, lengths)


def _classified(rows: int) -> AnyBatch:
    return Batch(ragged(rows), torch.randint(3, (rows,)), tuple(map(str, range(rows))))


def _tagged(rows: int) -> AnyBatch:
    return Batch(ragged(rows), torch.randint(3, (rows, 7)))


def _measured(rows: int) -> AnyBatch:
    return Batch(ragged(rows, size=4), torch.randn(rows, 2))


def _labeled(rows: int) -> AnyBatch:
    return Batch(ragged(rows), torch.randint(2, (rows, 3)).float())


def _said(rows: int) -> AnyBatch:
    return Batch(ragged(rows), torch.randint(VOCABULARY, (rows, 7)))


def _translated(rows: int) -> AnyBatch:
    return Batch(Pair(ragged(rows, 5), ragged(rows)), torch.randint(VOCABULARY, (rows, 7)))


TOKENS = TokensConfig(vocab_size=VOCABULARY)


def _encoder(width: int, inputs: Any = TOKENS) -> EncoderConfig:
    return EncoderConfig(width=width, input=inputs, layers=(BlockConfig(mixer=GruConfig()),))


CASES: dict[str, Case] = {
    "classify, lstm": Case(recipes.classifier("lstm", inputs=TOKENS, num_classes=3, size="nano").build, _classified),
    "classify, cnn": Case(recipes.classifier("cnn", inputs=TOKENS, num_classes=3, size="nano").build, _classified),
    "labels, gru": Case(SequenceModelConfig(encoder=_encoder(8), head=LabelsHeadConfig(num_labels=3)).build, _labeled),
    "regress, gru": Case(
        SequenceModelConfig(encoder=_encoder(8, VectorsConfig(size=4)), head=NumberHeadConfig(size=2)).build, _measured
    ),
    "tag, transformer": Case(recipes.tagger("transformer", inputs=TOKENS, num_tags=3, size="nano").build, _tagged),
    "tag, crf": Case(
        ElementModelConfig(encoder=_encoder(8), head=CrfHeadConfig(labels=("O", "B-X", "I-X"))).build, _tagged
    ),
    "lm, lstm": Case(recipes.language_model("lstm", vocab_size=VOCABULARY, size="nano").build, _said),
    "lm, gpt": Case(recipes.language_model("gpt", vocab_size=VOCABULARY, size="nano").build, _said),
    "translate, seq2seq": Case(
        recipes.translator("seq2seq", source=TOKENS, target_vocab_size=VOCABULARY, size="nano").build, _translated
    ),
}


def drawn(case: Case, *, dropout: float = 0.0) -> nn.Module:
    """A fresh model, always the same one."""
    torch.manual_seed(0)
    model = case.build().to(HERE)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return model


def batch_of(case: Case, rows: int, *, seed: int = 1) -> AnyBatch:
    """A batch, the same one for the same number."""
    torch.manual_seed(seed)
    return case.batch(rows)


def updating(
    model: nn.Module,
    config: TrainingConfig = PLAIN,
    *,
    task: Any = None,
    ranks: Ranks | None = None,
    precision: Any = "float32",
) -> Update:
    """What takes the steps of a model here."""
    return Update(task or Asked(), model, config, ranks or Alone(), Device(HERE, precision))


def take(
    update: Update, batch: AnyBatch | None, run_state: TrainingState, *, lr: float = 0.01, carried: bool = False
) -> None:
    """One step, counted as the loop counts it."""
    update.step(batch, carried=carried, run_state=run_state, lr=lr)
    run_state.step += 1


def copied(update: Update) -> dict[str, dict[str, Tensor]]:
    """All tensors as they are now."""
    return {part: {name: one.clone() for name, one in all_.items()} for part, all_ in update.tensors().items()}


def assert_same(found: dict[str, dict[str, Tensor]], expected: dict[str, dict[str, Tensor]]) -> None:
    """Fail unless all tensors agree bit for bit."""
    assert found.keys() == expected.keys()
    for part, tensors in expected.items():
        assert found[part].keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(found[part][name], tensor), f"{part}: {name}"
