"""What a model answers, as distributions that can be compared: [N,Q,K], Q of them for each input.

    one class or tag, next symbols    softmax of the scores
    labels, each yes or no            (1 - s, s) of each label, s the logistic function
    a chain of tags                   the probability of each tag at each element, over all paths

Of a running text only the last row is meant: what comes next. Numbers and vectors are no distributions.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.heads import ClassHead, CrfHead, LabelScoresHead, LabelsHead, NextTokenHead, ScoresHead
from seqloom.inspection.asking import scores
from seqloom.inspection.subject import Reading, Subject
from seqloom.operators import crf


def require_distributions(subject: Subject) -> None:
    """Raise ConfigError for a model whose answers are no distributions."""
    if type(cast(Any, subject.model).head) not in PROBABILITIES:
        raise ConfigError(
            f"faithfulness compares probabilities of answers, and the task {subject.task.name} answers with numbers",
            fix="ask a model that chooses: a class, labels, tags or symbols",
        )


def probabilities(subject: Subject, reading: Reading, inputs: Any) -> Tensor:
    """[N,Q,K] the answers to a batch of inputs, each a variant of the reading; gradients go through."""
    found = scores(subject, inputs)
    if is_running(reading):
        found = found[:, -1:]
    head = cast(Any, subject.model).head
    return PROBABILITIES[type(head)](head, found.to(torch.promote_types(found.dtype, torch.float32)))


def is_running(reading: Reading) -> bool:
    """Whether an input is a text that goes on, whose every row foretells the next."""
    return reading.said is not None and len(reading.sides) == 1


def decided(found: Tensor) -> Tensor:
    """[Q] the answers that are given, of probabilities [Q,K]."""
    return found.argmax(dim=-1)


def confidence(found: Tensor, columns: Tensor) -> Tensor:
    """[N] how probable the answers [Q] are under [N,Q,K], the mean over Q."""
    return found.gather(-1, columns.expand(len(found), -1)[..., None])[..., 0].mean(dim=1)


def flipped(found: Tensor, columns: Tensor) -> Tensor:
    """[N] the share of the answers [Q] that [N,Q,K] would give otherwise."""
    return (found.argmax(dim=-1) != columns).double().mean(dim=1)


def _softmax(_head: nn.Module, found: Tensor) -> Tensor:
    return found.softmax(dim=-1)


def _yes_or_no(_head: nn.Module, found: Tensor) -> Tensor:
    yes = found.sigmoid().flatten(1)
    return torch.stack([1 - yes, yes], dim=-1)


def _chain(head: CrfHead, found: Tensor) -> Tensor:
    lengths = torch.full((len(found),), found.shape[1], device=found.device)
    if not found.requires_grad:
        return crf.marginals(found, lengths, head.transitions)
    log_partition = crf.log_partition(found, lengths, head.transitions)
    return torch.autograd.grad(log_partition.sum(), found, create_graph=True)[0]


PROBABILITIES: Mapping[type[nn.Module], Callable[[Any, Tensor], Tensor]] = {
    ClassHead: _softmax,
    ScoresHead: _softmax,
    NextTokenHead: _softmax,
    LabelsHead: _yes_or_no,
    LabelScoresHead: _yes_or_no,
    CrfHead: _chain,
}
