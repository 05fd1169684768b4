"""The scores of two texts that begin alike: a model that never looks ahead reads the beginning once.

    beginning ──step──▶ state ──step──▶ the rest of one        rows of the beginning are the same for both
                          └────step──▶ the rest of the other

The answers to a swap at the end of a long text so cost hardly more than reading it once; views beside them cost what
they cost. A state is a value, so both go on from it. Attention reads a text faster at once than in two steps, so the
rest must be short for it to pay. An edit counts positions from the start of a pass, and whoever listens hears a whole
text: while anybody has a hand in the model, both are read whole.
"""

import torch
from torch import Tensor, nn

from seqloom.inspection.asking import scores
from seqloom.inspection.flow import still
from seqloom.inspection.subject import Reading, Subject
from seqloom.models import LanguageModel
from seqloom.operators.kernels import OPERATORS, named
from seqloom.taps import Tap
from seqloom.types import Padded

LEAST = 256  # symbols of a text that is worth the steps
SHORT = 0.25  # of the text: a longer rest is read as fast with all that stands before it


@torch.no_grad()
def scores_of_both(subject: Subject, one: Reading, other: Reading) -> tuple[Tensor, Tensor]:
    """[R,K] of each of two readings."""
    with still(subject.model):
        model = subject.model
        if isinstance(model, LanguageModel) and not is_touched(model) and (start := _worth(one.inputs, other.inputs)):
            return _continued(model, one.inputs, other.inputs, start)
        return scores(subject, one.inputs)[0], scores(subject, other.inputs)[0]


def is_touched(model: nn.Module) -> bool:
    """Whether somebody may act inside the model: by a tap, by a hook of torch, or by a kernel that is named.

    The last is how edits inside a recurrence reach between two elements.
    """
    modules = list(model.modules())
    heard = any(isinstance(module, Tap) and module.is_heard for module in modules)
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    return heard or hooked or any(named(operator) is not None for operator in OPERATORS)


def _worth(one: Padded, other: Padded) -> int:
    """The length of the beginning, 0 where it is not worth the steps."""
    start, whole = beginning(one, other), max(one.values.shape[1], other.values.shape[1])
    return start if whole >= LEAST and whole - start <= SHORT * whole else 0


def beginning(one: Padded, other: Padded) -> int:
    """How many symbols two rows have in common at their beginning.

    >>> beginning(Padded.of(torch.tensor([[2, 7, 8]])), Padded.of(torch.tensor([[2, 7, 9, 9]])))
    2
    """
    shorter = min(one.values.shape[1], other.values.shape[1])
    same = one.values[0, :shorter] == other.values[0, :shorter]
    return int(same.long().cumprod(dim=0).sum())


def _continued(model: LanguageModel, one: Padded, other: Padded, start: int) -> tuple[Tensor, Tensor]:
    known, state = model.step(Padded.of(one.values[:, :start]), model.initial_state(1))
    found = []
    for x in (one, other):
        rest = x.values[:, start:]
        said = model.step(Padded.of(rest), state)[0].values[0] if rest.shape[1] else known.values[0, :0]
        found.append(torch.cat([known.values[0], said]))
    return found[0], found[1]
