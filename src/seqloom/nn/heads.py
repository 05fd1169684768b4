"""Heads: outputs from contextual vectors, their loss, and the best prediction.

A head computes an output at every element. For one output per sequence, the same head reads the pooled vector as a
sequence of length one.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.heads import (
    ClassHeadConfig,
    CrfHeadConfig,
    LabelScoresHeadConfig,
    LabelsHeadConfig,
    NextTokenHeadConfig,
    NumberHeadConfig,
    NumberScoresHeadConfig,
    Pooling,
    ScoresHeadConfig,
    VectorHeadConfig,
)
from seqloom.errors import DataError
from seqloom.nn.ops import crf, pooling
from seqloom.nn.ops.kernels import is_recorded
from seqloom.nn.ops.linear import linear, one_row, one_row_refuses
from seqloom.nn.ops.losses import (
    ALIGNED,
    aligned_rows,
    binary_cross_entropy,
    cross_entropy,
    cross_entropy_curvature,
    squared_error,
)
from seqloom.nn.ops.losses_fast import vocabulary_cross_entropy
from seqloom.nn.ops.transforms import is_transformed
from seqloom.nn.packing import unpack
from seqloom.nn.taps import Tap
from seqloom.nn.types import Loss, Padded

Curvature = Callable[[Tensor], Tensor]  # the second derivative of a loss by scores, times a direction [B,T,K]
CHUNK = 1024  # elements whose scores over the vocabulary are in memory at a time


class Losses(NamedTuple):
    """The loss of each element for evaluation: no label smoothing, no class weights, no gradient.

    The weight of an element is 0 in the padding and where the target is negative, which marks a class that is not in
    the training data.
    """

    values: Tensor  # [B,T]
    weights: Tensor  # [B,T]

    def of_rows(self) -> tuple[Tensor, Tensor]:
        """[B] the loss of each row and its weight, on the CPU: summed in float64, which some devices lack."""
        return self.values.cpu().double().sum(dim=1), self.weights.cpu().double().sum(dim=1)


class Head(nn.Module):
    """Base of the heads."""

    def forward(self, x: Padded) -> Padded:
        """The scores at every element, [B,T,K]."""
        raise NotImplementedError

    def loss(self, x: Padded, targets: Tensor) -> Loss:
        """The loss summed over the real elements, and the weight it was summed over; targets [B,T,...]."""
        raise NotImplementedError

    def curvature(self, x: Padded, targets: Tensor) -> Curvature:
        """The second derivative of the summed loss by the values of `x`, as autograd finds it."""
        values = x.values.detach().requires_grad_()
        with torch.enable_grad():
            loss = self.loss(x.with_values(values), targets)
            (slope,) = torch.autograd.grad(loss.total, values, create_graph=True)

        def times(along: Tensor) -> Tensor:
            return torch.autograd.grad(slope, values, along.to(slope.dtype), retain_graph=True)[0]

        return times

    def losses(self, x: Padded, targets: Tensor) -> Losses:
        """The loss of every element for evaluation; negative classes do not count."""
        raise NotImplementedError

    def predict(self, x: Padded) -> Tensor:
        """The best prediction at every element, [B,T,...]; zero in the padding."""
        raise NotImplementedError


def require_classes(targets: Tensor, x: Padded, count: int) -> None:
    """Raise DataError for values that would be an index error deep inside torch.

    They are checked on the CPU only, and not in compiled code, which a check would split.
    """
    if targets.shape != x.values.shape[:2] or targets.dtype not in (torch.int32, torch.int64):
        expected = list(x.values.shape[:2])
        raise DataError(f"classes are int64 or int32 numbers {expected}, found {targets.dtype} {list(targets.shape)}")
    if targets.device.type == "cpu" and not is_transformed() and targets.numel():
        low, high = (int(bound) for bound in targets.masked_fill(~x.valid, 0).aminmax())
        if low < 0 or high >= count:
            raise DataError(
                f"class {low if low < 0 else high} does not exist: there are {count} classes",
                fix=f"classes are 0..{count - 1}",
            )


def require_numbers(targets: Tensor, x: Padded, size: int) -> None:
    """Raise DataError for targets of another shape, which torch would broadcast or reject."""
    expected = (*x.values.shape[:2], size)
    if targets.shape != expected:
        raise DataError(f"expected targets {list(expected)}, found {list(targets.shape)}")


def _known(x: Padded, targets: Tensor) -> Tensor:
    """[B,T] true where an element is real and its class was seen in training."""
    return x.valid & (targets >= 0)


def _documents(x: Padded) -> Padded:
    """Return every document in its own row; rows with one document are unchanged, without synchronizing the device."""
    return x if x.segments is None else unpack(x).rows


def _wide(scores: Tensor) -> Tensor:
    """Return the scores in float32 or wider: under autocast they may have less precision."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


class ClassHead(Head):
    """softmax(W x + b)."""

    class_weights: Tensor | None

    def __init__(self, config: ClassHeadConfig, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, config.num_classes)
        self._weigh(config)

    def _weigh(self, config: ClassHeadConfig | ScoresHeadConfig) -> None:
        """Set label smoothing and class weights; they are settings, so they are not stored with the weights."""
        weights = torch.tensor(config.class_weights) if config.class_weights else None
        self.smoothing = config.label_smoothing
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.linear(x.values))

    def loss(self, x: Padded, targets: Tensor) -> Loss:
        scores = self(x).values
        require_classes(targets, x, scores.shape[-1])
        return cross_entropy(
            scores, targets, weights=x.valid, smoothing=self.smoothing, class_weights=self.class_weights
        )

    def losses(self, x: Padded, targets: Tensor) -> Losses:
        scores, known = _wide(self(x).values), _known(x, targets)
        values = -scores.log_softmax(dim=-1).gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1)
        return Losses(values.masked_fill(~known, 0), known.to(values.dtype))

    def predict(self, x: Padded) -> Tensor:
        return x.with_values(self(x).values.argmax(dim=-1)).values


class ScoresHead(ClassHead):
    """softmax(x + b): the vector already contains the scores."""

    def __init__(self, config: ScoresHeadConfig) -> None:
        Head.__init__(self)
        self.bias = nn.Parameter(torch.zeros(config.num_classes))
        self._weigh(config)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(x.values + self.bias)

    @torch.no_grad()
    def curvature(self, x: Padded, targets: Tensor) -> Curvature:
        """The second derivative in closed form, in float32."""
        scores = self(x).values.float()
        return cross_entropy_curvature(
            scores, targets, weights=x.valid, smoothing=self.smoothing, class_weights=self.class_weights
        )


class LabelsHead(Head):
    """sigmoid(W x + b): each label is independent; targets are zeros and ones [B,T,K]."""

    def __init__(self, config: LabelsHeadConfig, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, config.num_labels)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.linear(x.values))

    def loss(self, x: Padded, targets: Tensor) -> Loss:
        scores = self(x).values
        require_numbers(targets, x, scores.shape[-1])
        return binary_cross_entropy(scores, targets, weights=x.valid[:, :, None].expand_as(scores))

    def losses(self, x: Padded, targets: Tensor) -> Losses:
        scores = _wide(self(x).values)
        require_numbers(targets, x, scores.shape[-1])
        values = F.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype), reduction="none").sum(dim=-1)
        return Losses(values.masked_fill(~x.valid, 0), x.valid * float(scores.shape[-1]))

    def predict(self, x: Padded) -> Tensor:
        return x.with_values(self(x).values > 0).values


class LabelScoresHead(LabelsHead):
    """sigmoid(x + b): the vector already contains the scores of the labels."""

    def __init__(self, config: LabelScoresHeadConfig) -> None:
        Head.__init__(self)
        self.bias = nn.Parameter(torch.zeros(config.num_labels))

    def forward(self, x: Padded) -> Padded:
        return x.with_values(x.values + self.bias)


class NumberHead(Head):
    """W x + b, one number or several; targets [B,T,K]."""

    def __init__(self, config: NumberHeadConfig, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, config.size)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.linear(x.values))

    def loss(self, x: Padded, targets: Tensor) -> Loss:
        numbers = self(x).values
        require_numbers(targets, x, numbers.shape[-1])
        return squared_error(numbers, targets, weights=x.valid[:, :, None].expand_as(numbers))

    def losses(self, x: Padded, targets: Tensor) -> Losses:
        numbers = _wide(self(x).values)
        require_numbers(targets, x, numbers.shape[-1])
        values = (numbers - targets).square().sum(dim=-1)
        return Losses(values.masked_fill(~x.valid, 0), x.valid * float(numbers.shape[-1]))

    def predict(self, x: Padded) -> Tensor:
        numbers: Padded = self(x)
        return numbers.values


class NumberScoresHead(NumberHead):
    """x + b: the vector already contains the numbers."""

    def __init__(self, config: NumberScoresHeadConfig) -> None:
        Head.__init__(self)
        self.bias = nn.Parameter(torch.zeros(config.size))

    def forward(self, x: Padded) -> Padded:
        return x.with_values(x.values + self.bias)


class CrfHead(Head):
    """A CRF: W x + b for each element, and learned transition scores between tags."""

    legal_start: Tensor
    legal_between: Tensor
    legal_end: Tensor

    def __init__(self, config: CrfHeadConfig, width: int) -> None:
        super().__init__()
        count = len(config.labels)
        self.linear = nn.Linear(width, count)
        self.start, self.end = nn.Parameter(torch.zeros(count)), nn.Parameter(torch.zeros(count))
        self.between = nn.Parameter(torch.zeros(count, count))
        legal = crf.legal_transitions(config.labels, config.scheme)
        for name, table in zip(("legal_start", "legal_between", "legal_end"), legal, strict=True):
            self.register_buffer(name, table, persistent=False)

    @property
    def transitions(self) -> crf.Transitions:
        """The transition scores in the form that the operators take."""
        return crf.Transitions(self.start, self.between, self.end, self.legal_start, self.legal_between, self.legal_end)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.linear(x.values))

    def loss(self, x: Padded, targets: Tensor) -> Loss:
        require_classes(targets, x, len(self.start))
        rows, tags = _documents(x), _documents(x.with_values(targets)).values
        self._require_legal(tags, rows.lengths)
        likelihood = crf.fast_log_likelihood(self(rows).values, tags, rows.lengths, self.transitions)
        return Loss(-likelihood.sum(), rows.lengths.sum().to(likelihood.dtype))

    def _require_legal(self, tags: Tensor, lengths: Tensor) -> None:
        """Raise DataError for forbidden transitions between tags; checked on the CPU only, to avoid a GPU sync.

        Files are checked when they are read, so this check is for tensors from user code.
        """
        if tags.device.type == "cpu" and bool(crf.forbidden(tags, lengths, self.transitions).any()):
            raise DataError("a sequence of tags has a transition that the scheme forbids", fix="correct the tags")

    def losses(self, x: Padded, targets: Tensor) -> Losses:
        """A sequence has one loss, at its first element; sequences with unseen tags do not count."""
        unpacked, known = unpack(x), unpack(x.with_values(targets)).rows
        rows, tags = unpacked.rows, known.values.clamp(min=0)
        bad = (known.valid & (known.values < 0)).any(dim=1) | crf.forbidden(tags, rows.lengths, self.transitions)
        likelihood = crf.fast_log_likelihood(_wide(self(rows).values), tags, rows.lengths, self.transitions)
        values = torch.zeros_like(tags, dtype=likelihood.dtype)
        values[:, :1] = -likelihood.masked_fill(bad, 0)[:, None]
        counted = rows.with_values((rows.valid & ~bad[:, None]).to(likelihood.dtype))
        return Losses(unpacked.repack(rows.with_values(values), x).values, unpacked.repack(counted, x).values)

    def predict(self, x: Padded) -> Tensor:
        unpacked = unpack(x)
        tags, _ = crf.viterbi(self(unpacked.rows).values, unpacked.rows.lengths, self.transitions)
        repacked: Padded = unpacked.repack(unpacked.rows.with_values(tags), x)
        return repacked.values


class NextTokenHead(Head):
    """softmax(E x + b) over the vocabulary; if tied, E is the input's embedding table (Press and Wolf 2017).

    If that table has another width than the model, E P x + b: a map P before it.
    """

    def __init__(self, config: NextTokenHeadConfig, width: int, tied_to: nn.Parameter | None = None) -> None:
        super().__init__()
        assert (tied_to is not None) == config.tied, "whoever builds a tied head hands it the table"
        fresh = nn.Parameter(torch.randn(config.vocab_size, width) * width**-0.5) if tied_to is None else tied_to
        self.table, self.bias = fresh, nn.Parameter(torch.zeros(config.vocab_size))
        self.smoothing = config.label_smoothing
        if fresh.shape[1] != width:
            self.narrow = nn.Linear(width, fresh.shape[1], bias=False)
        self.matrix: Callable[[Tensor], Tensor] | None = None  # E x + b in other precision, for prediction

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.table.is_cuda and not hasattr(self.table, "full_tensor"):  # sharded tables stay as they are
            self.make_room()
        return self

    def make_room(self) -> None:
        """Store table and bias with room behind them for a whole number of `ALIGNED` tokens."""
        for weight in (self.table, self.bias):
            if aligned_rows(weight) is None:
                room = weight.new_zeros(len(weight) + -len(weight) % ALIGNED, *weight.shape[1:])
                weight.data = room[: len(weight)].copy_(weight.detach())

    def _narrowed(self, features: Tensor) -> Tensor:
        return self.narrow(features) if hasattr(self, "narrow") else features

    def _scores(self, features: Tensor) -> Tensor:
        features = self._narrowed(features)
        if self.matrix is not None and not torch.is_grad_enabled():
            return self.matrix(features)
        if self.table.is_cuda and not torch.is_grad_enabled():
            if is_recorded() and one_row_refuses(features, self.table) is None:
                return one_row(features, self.table, self.bias)
            table, bias = aligned_rows(self.table), aligned_rows(self.bias)
            if table is not None and bias is not None:
                return F.linear(features, table, bias)[..., : len(self.table)]
        return linear(features, self.table, self.bias)

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self._scores(x.values))

    def loss(self, x: Padded, targets: Tensor) -> Loss:
        require_classes(targets, x, len(self.table))
        features, tokens, weights = x.values.flatten(0, 1), targets.flatten(), None
        if not x.full and (
            x.values.is_cuda or torch.compiler.is_compiling()
        ):  # selecting rows would synchronize with the device
            weights = x.valid.flatten()
        elif not x.full:
            real = x.valid.flatten()
            features, tokens = features[real], tokens[real]
        features = self._narrowed(features)
        return vocabulary_cross_entropy(
            features, self.table, self.bias, tokens, weights=weights, smoothing=self.smoothing
        )

    def losses(self, x: Padded, targets: Tensor) -> Losses:
        known = _known(x, targets)
        chunks = zip(torch.split(x.values[known], CHUNK), torch.split(targets[known], CHUNK), strict=True)
        found = [F.cross_entropy(_wide(self._scores(one)), target, reduction="none") for one, target in chunks]
        values = torch.zeros(targets.shape, dtype=found[0].dtype, device=targets.device)
        values[known] = torch.cat(found)
        return Losses(values, known.to(values.dtype))

    def predict(self, x: Padded) -> Tensor:
        return x.with_values(self(x).values.argmax(dim=-1)).values


class VectorHead(nn.Module):
    """The pooled vector, optionally mapped to another size and scaled to length 1."""

    def __init__(self, config: VectorHeadConfig, width: int) -> None:
        super().__init__()
        self.unit = config.unit
        self.linear = nn.Identity() if config.size is None else nn.Linear(width, config.size)

    def forward(self, pooled: Tensor) -> Tensor:
        """[N,D]."""
        vectors: Tensor = self.linear(pooled)
        return F.normalize(vectors, dim=-1) if self.unit else vectors


class Pooler(nn.Module):
    """One vector for each document of a batch, in reading order."""

    def __init__(self, how: Pooling, width: int) -> None:
        super().__init__()
        self.how = how
        if how == "attention":
            self.inner = nn.Linear(width, width)
            self.direction = nn.Parameter(torch.randn(width) * width**-0.5)
        self.weights = Tap()  # [B,T] of attention pooling, computed only for listeners

    def forward(self, x: Padded) -> Tensor:
        """[N,D], with N the number of documents: the rows, unless documents are packed."""
        if x.segments is not None:
            x = unpack(x).rows
        if self.how != "attention":
            return pooling.SUMMARIES[self.how](x)
        arguments = (x, self.inner.weight, self.inner.bias, self.direction)
        self.weights.offer(lambda: pooling.attentive_weights(*arguments))
        return pooling.attentive(*arguments)
