"""The plain losses of heads, element by element, and weights of classes, against torch."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from seqloom.config.heads import (
    ClassHeadConfig,
    CrfHeadConfig,
    LabelScoresHeadConfig,
    LabelsHeadConfig,
    NextTokenHeadConfig,
    NumberHeadConfig,
    NumberScoresHeadConfig,
    ScoresHeadConfig,
)
from seqloom.errors import ConfigError
from seqloom.nn import heads
from seqloom.nn.types import Padded

LENGTHS = torch.tensor([4, 2, 0])


def vectors(width: int = 3) -> Padded:
    draw = torch.Generator().manual_seed(0)
    return Padded.of(torch.randn(3, 4, width, generator=draw), LENGTHS)


def classes() -> torch.Tensor:
    return torch.tensor([[0, 2, 1, 2], [1, 0, 0, 0], [0, 0, 0, 0]])


def numbers(size: int) -> torch.Tensor:
    return torch.rand(3, 4, size, generator=torch.Generator().manual_seed(1)).round()


CASES: list[tuple[Any, torch.Tensor]] = [
    (ClassHeadConfig(num_classes=3), classes()),
    (ScoresHeadConfig(num_classes=3), classes()),
    (LabelsHeadConfig(num_labels=5), numbers(5)),
    (LabelScoresHeadConfig(num_labels=3), numbers(3)),
    (NumberHeadConfig(size=2), numbers(2)),
    (NumberScoresHeadConfig(size=3), numbers(3)),
    (NextTokenHeadConfig(vocab_size=7, tied=False), classes()),
    (CrfHeadConfig(labels=("a", "b", "c")), classes()),
]


@pytest.mark.parametrize(("config", "targets"), CASES, ids=lambda case: getattr(case, "kind", str)())
def test_the_losses_of_elements_add_up_to_the_loss(config: Any, targets: torch.Tensor) -> None:
    head, x = config.build(3), vectors()
    losses, loss = head.losses(x, targets), head.loss(x, targets)
    torch.testing.assert_close(losses.values.sum(), loss.total)
    torch.testing.assert_close(losses.weights.sum(), loss.weight)
    assert not losses.values[~x.valid].any()
    assert not losses.weights[~x.valid].any()
    totals, weights = losses.of_rows()
    torch.testing.assert_close(totals.sum().float(), loss.total)
    assert weights[2] == 0


@pytest.mark.parametrize("config", [case for case, _ in CASES if not case.kind().startswith(("label", "number"))])
def test_a_class_that_training_never_saw_counts_nothing(config: Any) -> None:
    head, x, targets = config.build(3), vectors(), classes()
    known = head.losses(x, targets)
    targets[1, 0] = -1
    unseen = head.losses(x, targets)
    assert unseen.weights[1].sum() == (0 if config.kind() == "crf" else 1)
    torch.testing.assert_close(unseen.values[0], known.values[0])
    assert bool(torch.isfinite(unseen.values).all())


def test_smoothing_and_class_weights_are_for_training_alone() -> None:
    plain = ClassHeadConfig(num_classes=3).build(3)
    settings = ClassHeadConfig(num_classes=3, label_smoothing=0.3, class_weights=(1.0, 5.0, 0.5)).build(3)
    settings.load_state_dict(plain.state_dict())  # the same weights: those of classes are not stored
    x = vectors()
    torch.testing.assert_close(settings.losses(x, classes()).values, plain.losses(x, classes()).values)
    assert not torch.isclose(settings.loss(x, classes()).mean, plain.loss(x, classes()).mean)


def test_long_vocabularies_are_judged_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    head, x = NextTokenHeadConfig(vocab_size=7, tied=False).build(3), vectors()
    whole = head.losses(x, classes()).values
    monkeypatch.setattr(heads, "CHUNK", 2)
    torch.testing.assert_close(head.losses(x, classes()).values, whole)


@pytest.mark.parametrize("config", [ClassHeadConfig, ScoresHeadConfig])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_class_weights_give_the_weighted_mean_of_torch(config: Any, smoothing: float) -> None:
    weights = (0.5, 2.0, 3.0)
    head, x = config(num_classes=3, label_smoothing=smoothing, class_weights=weights).build(3), vectors()
    scores = head(x).values[x.valid]
    expected = F.cross_entropy(scores, classes()[x.valid], weight=torch.tensor(weights), label_smoothing=smoothing)
    torch.testing.assert_close(head.loss(x, classes()).mean, expected)


@pytest.mark.parametrize("config", [ClassHeadConfig, ScoresHeadConfig])
@pytest.mark.parametrize("weights", [(1.0, 2.0), (0.0, 0.0, 0.0), (1.0, 2.0, -1.0), (1.0, 2.0, float("inf"))])
def test_weights_that_fit_no_classes_are_refused(config: Any, weights: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="class_weights"):
        config(num_classes=3, class_weights=weights)
