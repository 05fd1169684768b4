"""Broken on purpose: each of these breaks one law, and the law must notice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laws import laws
from laws.subjects import Subject
from seqloom.config.mixers import (
    AttentionConfig,
    ConvolutionConfig,
    GruConfig,
    LinearAttentionConfig,
    LstmConfig,
    PoolConfig,
    WindowConfig,
)
from seqloom.nn.mixers.attention import Cache, CausalSelfAttention, SelfAttention
from seqloom.nn.mixers.contract import Mixer, StateStanding
from seqloom.nn.mixers.convolution import CausalConvolution, Convolution
from seqloom.nn.mixers.linear import CausalLinearAttention
from seqloom.nn.mixers.pool import PoolSummary, RunningPool
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.masks import Everything
from seqloom.nn.types import Padded

ATTENTION = AttentionConfig(num_heads=2)


class LooksAhead(CausalSelfAttention):
    """Its mask is dropped."""

    def __init__(self) -> None:
        super().__init__(ATTENTION, 8)
        self.pattern = Everything()


class ReadsPadding(SelfAttention):
    """It takes every row for a full one, so padding is attended to."""

    def __init__(self) -> None:
        super().__init__(ATTENTION, 8)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(super().forward(x._replace(full=True)).values)


class MixesDocuments(SelfAttention):
    """It forgets that documents are packed."""

    def __init__(self) -> None:
        super().__init__(ATTENTION, 8)

    def forward(self, x: Padded) -> Padded:
        return super().forward(x._replace(segments=None))._replace(segments=x.segments)


class LeaksNeighbor(Mixer):
    """Every row sees the mean of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.inner(x.values + x.values.mean(dim=(0, 1))))


class DirtyConvolution(Convolution):
    """It convolves whatever lies in the padding."""

    def __init__(self) -> None:
        super().__init__(ConvolutionConfig(), 8)

    def _rows(self, x: Padded) -> Padded:
        return x.with_values(self.convolve(x.values, causal=False))


class LeavesPaddingDirty(Mixer):
    """What comes out of the padding is not zero."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Padded) -> Padded:
        return x._replace(values=self.inner(x.values))


class ForgetsState(CausalConvolution):
    """Each block starts afresh."""

    def __init__(self) -> None:
        super().__init__(ConvolutionConfig(), 8)

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        return super().extend(x, self.begin(len(x.lengths)))


class DetachesState(Recurrent):
    """Values are right, gradients stop between blocks."""

    def __init__(self) -> None:
        super().__init__(GruConfig(), 8, 8)

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        y, after = super().extend(x, inner)
        return y, tuple(part.detach() for part in after)


class NeverResets(Recurrent):
    """A new document goes on with the state of the last one."""

    def __init__(self) -> None:
        super().__init__(LstmConfig(), 8, 8)

    def reset(self, inner: Any, rows: Tensor) -> Any:
        return inner


class MovesEmptyRows(CausalLinearAttention):
    """Padding enters the sums: a row that rests is changed."""

    def __init__(self) -> None:
        super().__init__(LinearAttentionConfig(num_heads=2), 8)

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        y, after = super().extend(x._replace(lengths=torch.full_like(x.lengths, x.values.shape[1])), inner)
        return x.with_values(y.values), after


class WritesInPlace(RunningPool):
    """The state it was given is changed."""

    def __init__(self) -> None:
        super().__init__(PoolConfig(), 8)

    def extend(self, x: Padded, inner: PoolSummary) -> tuple[Padded, PoolSummary]:
        y, after = super().extend(x, inner)
        inner.value.detach().copy_(after.value.detach())
        return y, after


class KeepsStateInside(CausalConvolution):
    """It remembers the rows of the last call by itself."""

    def __init__(self) -> None:
        super().__init__(ConvolutionConfig(), 8)
        self.kept: Any = None

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        known = self.kept is not None and self.kept[0].shape == inner[0].shape
        y, self.kept = super().extend(x, self.kept if known else inner)
        return y, inner


class ForgetsTooMuch(CausalSelfAttention):
    """A window that keeps one key too few."""

    def __init__(self) -> None:
        super().__init__(AttentionConfig(num_heads=2, pattern=WindowConfig(size=3)), 8)
        self.reach = 1


class CountsWrong(CausalSelfAttention):
    """Positions start at 0 in every block."""

    def __init__(self) -> None:
        super().__init__(ATTENTION, 8, "alibi")

    def extend(self, x: Padded, inner: Cache) -> tuple[Padded, Cache]:
        return super().extend(x, inner._replace(read=inner.read._replace(seen=torch.zeros_like(inner.read.seen))))


class SavesHalf(Mixer):
    """One of its tensors is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.hidden = torch.randn(8)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.inner(x.values) * self.hidden.to(x.values.dtype))


class Narrows(Mixer):
    """One number comes out where a vector went in."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.inner(x.values))


TWINS: list[tuple[Callable[[], nn.Module], laws.Law]] = [
    (Narrows, laws.the_shape_is_kept),
    (LooksAhead, laws.the_future_never_changes_the_past),
    (ReadsPadding, laws.padding_never_matters),
    (ReadsPadding, laws.neighbors_never_matter),
    (MixesDocuments, laws.packing_never_matters),
    (LeaksNeighbor, laws.neighbors_never_matter),
    (DirtyConvolution, laws.padding_never_matters),
    (LeavesPaddingDirty, laws.padding_never_matters),
    (ForgetsState, laws.any_cutting_into_blocks_gives_the_same),
    (DetachesState, laws.any_cutting_into_blocks_gives_the_same),
    (NeverResets, laws.any_cutting_into_blocks_gives_the_same),
    (MovesEmptyRows, laws.an_empty_row_keeps_its_state),
    (WritesInPlace, laws.step_leaves_its_argument_intact),
    (KeepsStateInside, laws.selecting_rows_commutes_with_stepping),
    (ForgetsTooMuch, laws.any_cutting_into_blocks_gives_the_same),
    (CountsWrong, laws.any_cutting_into_blocks_gives_the_same),
    (SavesHalf, laws.saving_and_loading_changes_nothing),
]


CLAIMS = {
    laws.the_shape_is_kept: "shape .* instead of",
    laws.the_future_never_changes_the_past: "the past of element",
    laws.padding_never_matters: "padding",
    laws.neighbors_never_matter: r"row \d alone",
    laws.packing_never_matters: "packing",
    laws.any_cutting_into_blocks_gives_the_same: "step in blocks",
    laws.an_empty_row_keeps_its_state: "a row that rested",
    laws.step_leaves_its_argument_intact: "the same step twice|the state was changed",
    laws.selecting_rows_commutes_with_stepping: "selected rows",
    laws.saving_and_loading_changes_nothing: "saved and loaded",
}


@pytest.mark.parametrize(("twin", "law"), TWINS, ids=lambda part: part.__name__)
def test_the_law_notices(twin: Callable[[], nn.Module], law: laws.Law) -> None:
    with pytest.raises(AssertionError, match=CLAIMS[law]):
        law(Subject(twin.__name__, twin, causal=True), torch.float64, 3)


def test_a_wrong_fast_operator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqloom.nn.ops import convolution

    monkeypatch.setitem(
        convolution.KERNELS, "windows", lambda *args, **kwargs: convolution.plain(*args, **kwargs) * 1.001
    )
    with pytest.raises(AssertionError, match="fast and plain"):
        laws.fast_equals_plain(Subject("convolution", lambda: ConvolutionConfig().build(8)), torch.float64, 3)


def test_a_wrong_gradient_is_noticed() -> None:
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

    class WrongGradient(Mixer):
        def forward(self, x: Padded) -> Padded:
            return x.with_values(Halved.apply(x.values))

    with pytest.raises(RuntimeError, match="Jacobian"):
        laws.gradients_are_those_of_the_function(Subject("wrong", WrongGradient), 3)


def test_a_state_without_its_batch_first_is_noticed() -> None:
    class SidewaysState(Recurrent):
        def __init__(self) -> None:
            super().__init__(GruConfig(), 8, 8)

        def initial_state(self, batch_size: int) -> Any:
            return self._turned(super().initial_state(batch_size))

        def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
            y, after = super().step(x, StateStanding(state.segment, (state.inner[0].T,)))
            return y, self._turned(after)

        def _turned(self, state: Any) -> Any:
            return StateStanding(state.segment, (state.inner[0].T,))

    with pytest.raises((AssertionError, RuntimeError)):
        laws.selecting_rows_commutes_with_stepping(Subject("sideways", SidewaysState), torch.float64, 3)
