"""A new mixer is one class, one configuration and one line in the union: the laws then run on it by themselves."""

from typing import Annotated, Any

import pytest
import torch
from msgspec import Meta
from torch import Tensor, nn

from laws import laws, subjects
from seqloom.config.mixers import AnyMixer, MixerConfig, Position
from seqloom.nn.mixers.contract import CausalMixer
from seqloom.nn.types import Padded


class Decay(CausalMixer[tuple[Tensor]]):
    """y_t = r y_{t-1} + W x_t: what a new mixer may look like."""

    def __init__(self, rate: float, width: int) -> None:
        super().__init__()
        self.rate, self.width, self.enter = rate, width, nn.Linear(width, width)

    def begin(self, batch_size: int) -> tuple[Tensor]:
        return (self.enter.weight.new_zeros(batch_size, self.width),)

    def extend(self, x: Padded, inner: tuple[Tensor]) -> tuple[Padded, tuple[Tensor]]:
        (state,), entering, outputs = inner, self.enter(x.values), []
        for time in range(x.values.shape[1]):
            state = torch.where(x.valid[:, time, None], self.rate * state + entering[:, time], state)
            outputs.append(state)
        return x.with_values(torch.stack(outputs, dim=1) if outputs else entering), (state,)


class DecayConfig(MixerConfig, tag="decay", kw_only=True):
    """The configuration of the new mixer."""

    rate: Annotated[float, Meta(ge=0, lt=1, examples=[0.5, 0.9])] = 0.5

    def parameters(self, width: int, position: Position = "none") -> int:
        return width * width + width

    def build(self, width: int, position: Position = "none") -> Decay:
        return Decay(self.rate, width)

    def build_causal(self, width: int, position: Position = "none") -> Decay:
        return Decay(self.rate, width)


@pytest.fixture
def _one_line_in_the_union(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "AnyMixer", AnyMixer | DecayConfig)


@pytest.mark.slow
@pytest.mark.usefixtures("_one_line_in_the_union")
def test_a_new_member_of_the_union_brings_its_own_subjects_and_obeys_the_laws() -> None:
    new = [subject for subject in subjects.mixers() if subject.name.startswith("decay")]
    assert [subject.name for subject in new] == ["decay", "decay-causal", "decay-rate=0.9", "decay-rate=0.9-causal"]
    for subject in new:
        for law in laws.SEQUENCE_LAWS + laws.CAUSAL_LAWS:
            law(subject, torch.float64, 3)
        laws.gradients_are_those_of_the_function(subject, 3)


@pytest.mark.usefixtures("_one_line_in_the_union")
def test_a_new_member_that_breaks_a_law_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def peeking(self: Decay, x: Padded, inner: Any) -> tuple[Padded, Any]:
        y, after = Decay.__dict__["kept"](self, x, inner)
        return y.with_values(y.values + x.values.mean(dim=1, keepdim=True)), after

    monkeypatch.setattr(Decay, "kept", Decay.extend, raising=False)
    monkeypatch.setattr(Decay, "extend", peeking)
    (subject,) = (subject for subject in subjects.mixers() if subject.name == "decay-causal")
    with pytest.raises(AssertionError):
        laws.the_future_never_changes_the_past(subject, torch.float64, 3)
