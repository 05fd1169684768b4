"""What a model decides, of its scores, and how likely it holds each answer: the one place that says so.

Each row of scores is decided by itself, but for tags: theirs is the best lawful path (see seqloom.tasks.chains), and in
a head that is a chain the likelihood of a tag is the share of all paths that go through it.
"""

from typing import Any, cast

import torch
from torch import Tensor

from seqloom.heads import CrfHead
from seqloom.inspection.subject import Subject
from seqloom.operators import crf
from seqloom.tasks.tag import Tag


@torch.no_grad()
def decided(subject: Subject, found: Tensor) -> list[int]:
    """The column that is chosen in each row of scores [R,K]."""
    if not isinstance(subject.task, Tag):
        return [int(column) for column in found.argmax(dim=-1)]
    moves = subject.task.chain.transitions(_head(subject), found)
    return [int(tag) for tag in crf.viterbi(found[None], _length(found), moves)[0][0]]


@torch.no_grad()
def likelihoods(subject: Subject, found: Tensor) -> Tensor:
    """[R,K] how likely each column is in its row, of scores [R,K] of which one is right in each row."""
    head = _head(subject)
    if not (isinstance(subject.task, Tag) and isinstance(head, CrfHead)):
        return found.softmax(dim=-1)
    return crf.marginals(found[None], _length(found), subject.task.chain.transitions(head, found))[0]


def _head(subject: Subject) -> Any:
    return cast(Any, subject.model).head


def _length(found: Tensor) -> Tensor:
    return torch.tensor([len(found)], device=found.device)
