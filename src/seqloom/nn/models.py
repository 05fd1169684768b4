"""Models: input, encoder or decoder, and head. Each computes scores, a summed loss, and the best prediction."""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqloom.config.heads import NextTokenHeadConfig
from seqloom.config.models import (
    ElementModelConfig,
    EmbedderConfig,
    EncoderDecoderConfig,
    LanguageModelConfig,
    SequenceModelConfig,
)
from seqloom.errors import DataError
from seqloom.nn.heads import Pooler
from seqloom.nn.inputs import Tokens
from seqloom.nn.mixers.contract import CausalMixer, ConditionedMixer
from seqloom.nn.ops.activations import ACTIVATIONS
from seqloom.nn.ops.dropout import Dropout
from seqloom.nn.types import Batch, Loss, Padded, Pair, Subwords, map_state, places_of


class SequenceModel(nn.Module):
    """One prediction per sequence: a class, labels or numbers."""

    def __init__(self, config: SequenceModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = config.encoder.build()
        self.pooler = Pooler(config.pooling, config.encoder.width)
        widths = config.widths()
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.activation = ACTIVATIONS[config.activation] if config.hidden else None
        self.dropout = Dropout(config.dropout)
        self.head = config.head.build(widths[-1])

    def features(self, inputs: Any) -> Padded:
        """The vector that the head reads, as a sequence of length one, [N,1,D]."""
        return Padded.of(self.hidden_of(self.pooler(self.encoder(inputs)))[:, None])

    def hidden_of(self, pooled: Tensor) -> Tensor:
        """Apply the hidden layers to pooled vectors [...,D]."""
        pooled = self.dropout(pooled)
        for linear in self.hidden:
            assert self.activation is not None
            pooled = self.dropout(self.activation(linear(pooled)))
        return pooled

    def forward(self, inputs: Any) -> Tensor:
        """The scores of each sequence, [N,K]."""
        scores: Padded = self.head(self.features(inputs))
        return scores.values[:, 0]

    def loss(self, batch: Batch[Any, Tensor]) -> Loss:
        """The loss summed over the sequences; targets [N] of classes, [N,K] of labels or numbers."""
        _require_batch(batch)
        if batch.targets.ndim == 0:
            raise DataError("expected targets [rows] of classes or [rows, ...] of numbers, found one number")
        return self.head.loss(self.features(batch.inputs), batch.targets[:, None])

    def predict(self, inputs: Any) -> Tensor:
        """The best prediction for each sequence, [N] or [N,K]."""
        return self.head.predict(self.features(inputs))[:, 0]


class ElementModel(nn.Module):
    """One prediction per element: tags, classes or numbers per step, or masked tokens.

    For words in subwords, all subwords are read, and the output of a word is at its first one (Devlin et al. 2019).
    """

    def __init__(self, config: ElementModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = config.encoder.build()
        width = config.encoder.width
        if isinstance(config.head, NextTokenHeadConfig):
            self.head = config.head.build(width, _table(self.encoder.input, config.head))
        else:
            self.head = config.head.build(width)

    def features(self, inputs: Any) -> Padded:
        """The vectors that the head reads: of all elements [B,T,D], or of the words of `Subwords` [B,W,D]."""
        if not isinstance(inputs, Subwords):
            x: Padded = self.encoder(inputs)
            return x
        pieces: Padded = self.encoder(inputs.pieces)
        return pieces.pick(inputs.firsts)

    def forward(self, inputs: Any) -> Padded:
        """The scores at each element, [B,T,K]."""
        scores: Padded = self.head(self.features(inputs))
        return scores

    def loss(self, batch: Batch[Any, Tensor]) -> Loss:
        """The loss summed over the real elements; targets [B,T] or [B,T,K]."""
        _require_batch(batch)
        x = self.features(batch.inputs)
        return self.head.loss(x, _fitting(batch.targets, x))

    def predict(self, inputs: Any) -> Tensor:
        """The best prediction at each element, [B,T] or [B,T,K]."""
        return self.head.predict(self.features(inputs))


class LanguageModel(CausalMixer[Any]):
    """P(x_{t+1} | x_1..x_t) at every t, for tokens read from left to right."""

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.decoder = config.decoder.build()
        self.head = config.head.build(config.decoder.width, _table(self.decoder.input, config.head))

    def begin(self, batch_size: int) -> Any:
        return self.decoder.begin(batch_size)

    def reset(self, inner: Any, rows: Tensor) -> Any:
        return self.decoder.reset(inner, rows)

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        y, after = self.decoder.extend(x, inner)
        return self.head(y), after

    def features(self, inputs: Padded) -> Padded:
        """The vectors that the head reads, [B,T,D]."""
        x: Padded = self.decoder(inputs)
        return x

    def continued_features(self, inputs: Padded, state: Any) -> tuple[Padded, Any]:
        """The same for further elements of each row, and the state after them; None is the initial state."""
        return self.decoder.step(inputs, self.initial_state(len(inputs.lengths)) if state is None else state)

    def forward(self, x: Padded) -> Padded:
        """The scores of the next token at each element, [B,T,V]."""
        scores: Padded = self.head(self.features(x))
        return scores

    def loss(self, batch: Batch[Padded, Tensor]) -> Loss:
        """The negative log-likelihood summed over the real elements; targets [B,T] are the tokens that came next."""
        _require_batch(batch)
        x = self.features(batch.inputs)
        return self._penalized(self.head.loss(x, _fitting(batch.targets, x)), x)

    def continued_loss(self, batch: Batch[Padded, Tensor], state: Any) -> tuple[Loss, Any]:
        """Return the loss of continuing from a state, and the detached state after it, for the next step.

        So gradients end at step boundaries but the state continues: truncated back-propagation through time.
        """
        _require_batch(batch)
        x, after = self.continued_features(batch.inputs, state)
        loss = self._penalized(self.head.loss(x, _fitting(batch.targets, x)), x)
        return loss, map_state(Tensor.detach, after)

    def _penalized(self, loss: Loss, x: Padded) -> Loss:
        """The training loss with penalties on large and on changing vectors x (AR and TAR, Merity et al. 2017)."""
        size, change = self.config.size_penalty, self.config.change_penalty
        if not self.training or not (size or change):
            return loss
        values, places = x.values, places_of(x)
        goes_on = places.valid[:, 1:] & (places.segments[:, 1:] == places.segments[:, :-1])  # [B,T-1]
        changes = values.diff(dim=1).square().mean(dim=-1).masked_fill(~goes_on, 0)
        penalty = size * values.square().mean(dim=-1).sum() + change * changes.sum()  # the padding of x is zero
        return loss._replace(total=loss.total + penalty)

    def predict(self, inputs: Padded) -> Tensor:
        """The likeliest next token at each element, [B,T]."""
        return self.head.predict(self.features(inputs))


class EncoderDecoder(ConditionedMixer[Any]):
    """P(y_{t+1} | source, y_1..y_t) at every t: a decoder attends to the output of an encoder."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder = config.encoder.build(), config.decoder.build()
        if config.shared:
            assert isinstance(self.encoder.input, Tokens) and isinstance(self.decoder.input, Tokens)
            self.encoder.input.table = self.decoder.input.table
        self.head = config.head.build(config.decoder.width, _table(self.decoder.input, config.head))

    def begin(self, source: Any) -> Any:
        """The state before the first target token: the encoder reads the source once."""
        return self.decoder.begin(self.encoder(source))

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        y, after = self.decoder.extend(x, inner)
        return self.head(y), after

    def initial_state(self, source: Any) -> Any:
        """The state before the first target token."""
        return self.decoder.initial_state(self.encoder(source))

    def features(self, inputs: Pair) -> Padded:
        """The vectors that the head reads, [B,T,D]."""
        _require_pair(inputs)
        y: Padded = self.decoder(inputs.target, self.encoder(inputs.source))
        return y

    def forward(self, target: Padded, source: Any) -> Padded:
        """The scores of the next target token at each element, [B,T,V]."""
        scores: Padded = self.head(self.features(Pair(source, target)))
        return scores

    def loss(self, batch: Batch[Pair, Tensor]) -> Loss:
        """The negative log-likelihood summed over the real target elements."""
        _require_batch(batch)
        y = self.features(batch.inputs)
        return self.head.loss(y, _fitting(batch.targets, y))

    def predict(self, inputs: Pair) -> Tensor:
        """The likeliest next target token at each element, given the true ones before it, [B,T]."""
        return self.head.predict(self.features(inputs))


class Embedder(nn.Module):
    """One vector per sequence, learned from texts, pairs or triples."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = config.encoder.build()
        self.pooler = Pooler(config.pooling, config.encoder.width)
        self.dropout = Dropout(config.dropout)
        self.head = config.head.build(config.encoder.width)
        self.objective = config.objective.build()

    def forward(self, inputs: Any) -> Tensor:
        """[N,D]."""
        vectors: Tensor = self.head(self.dropout(self.pooler(self.encoder(inputs))))
        return vectors

    def read(self, texts: Padded, *, chunks: int = 1) -> Tensor:
        """The same; with gradients, in chunks whose activations are recomputed in the backward pass.

        There are at least `chunks` chunks, each with at most `micro_batch` rows (from the configuration).
        """
        rows = len(texts.lengths)
        size = min(self.config.micro_batch or rows, -(-rows // chunks))
        if rows <= size or not torch.is_grad_enabled():
            vectors: Tensor = self(texts)
            return vectors
        parts = torch.split(torch.arange(rows, device=texts.lengths.device), size)
        # Dropout draws the same masks again: checkpoint restores the random state of each chunk
        return torch.cat([checkpoint(self, texts.select(part), use_reentrant=False) for part in parts])

    def loss(self, batch: Batch[Any, Tensor], *, chunks: int = 1) -> Loss:
        """Return the objective's loss, summed over the rows; inputs are Padded, Both or Triple, targets scores [B]."""
        _require_batch(batch)
        return self.objective(partial(self.read, chunks=chunks), batch.inputs, batch.targets).loss


def _table(source: nn.Module, head: NextTokenHeadConfig) -> nn.Parameter | None:
    """The matrix of a tied head."""
    if not head.tied:
        return None
    assert isinstance(source, Tokens), "require_tieable has checked it"
    return source.table


def _require_batch(batch: Any) -> None:
    if not isinstance(batch, Batch) or not isinstance(batch.targets, Tensor):
        raise DataError("a loss needs a batch with a tensor of targets", fix="give Batch(inputs, targets)")


def _require_pair(inputs: Any) -> None:
    if not isinstance(inputs, Pair):
        raise DataError(
            f"an encoder-decoder reads a source and a target, found {type(inputs).__name__}",
            fix="give Pair(source, target)",
        )


def _fitting(targets: Tensor, x: Padded) -> Tensor:
    if targets.shape[:2] != x.values.shape[:2]:
        raise DataError(f"targets {list(targets.shape)} do not fit inputs {list(x.values.shape[:2])}")
    return targets


def count_parameters(model: nn.Module) -> int:
    """The number of parameters of a model; tied ones count once."""
    return sum(weight.numel() for weight in set(model.parameters()) if isinstance(weight, torch.Tensor))
