"""Heads: how contextual vectors become a class, numbers, tags, the next token or a sentence vector."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config, Rate, Symbols, Width
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.heads import Head, VectorHead

Scheme = Literal["none", "bio", "bioes"]
Pooling = Literal["mean", "sum", "max", "last", "first", "attention"]
Classes = Annotated[int, Meta(ge=2, le=2**20, examples=[3])]


class HeadConfig(Config):
    """Base of the heads."""

    def fit(self, width: int) -> None:
        """Raise ConfigError if the head cannot read vectors of this width."""

    def parameters(self, width: int) -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def build(self, width: int) -> "Head":
        """The head."""
        raise NotImplementedError


class ClassHeadConfig(HeadConfig, tag="class", kw_only=True):
    """One of several classes: softmax of a linear map."""

    num_classes: Classes
    smoothing: Rate = 0.0

    def parameters(self, width: int) -> int:
        return (width + 1) * self.num_classes

    def build(self, width: int) -> "Head":
        from seqloom.heads import ClassHead

        return ClassHead(self, width)


class ScoresHeadConfig(HeadConfig, tag="scores", kw_only=True):
    """One of several classes whose scores are the vector itself, plus a bias: the last step of a linear model."""

    num_classes: Classes
    smoothing: Rate = 0.0

    def fit(self, width: int) -> None:
        if width != self.num_classes:
            raise ConfigError(
                f"a 'scores' head takes the vector as the scores of {self.num_classes} classes, but the width is {width}",
                fix=f"take a width of {self.num_classes}, or a 'class' head",
            )

    def parameters(self, width: int) -> int:
        return self.num_classes

    def build(self, width: int) -> "Head":
        from seqloom.heads import ScoresHead

        return ScoresHead(self)


class LabelsHeadConfig(HeadConfig, tag="labels", kw_only=True):
    """Any subset of several labels: a logistic regression for each."""

    num_labels: Symbols

    def parameters(self, width: int) -> int:
        return (width + 1) * self.num_labels

    def build(self, width: int) -> "Head":
        from seqloom.heads import LabelsHead

        return LabelsHead(self, width)


class NumberHeadConfig(HeadConfig, tag="number", kw_only=True):
    """One or several real numbers: linear regression."""

    size: Width = 1

    def parameters(self, width: int) -> int:
        return (width + 1) * self.size

    def build(self, width: int) -> "Head":
        from seqloom.heads import NumberHead

        return NumberHead(self, width)


class CrfHeadConfig(HeadConfig, tag="crf", kw_only=True):
    """A tag per element, chosen jointly: a linear map and a chain of learned transitions that keeps to the scheme."""

    labels: tuple[str, ...]
    scheme: Scheme = "none"

    def check(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"crf.labels needs two or more different names, found {list(self.labels)[:8]}")

    def parameters(self, width: int) -> int:
        count = len(self.labels)
        return (width + 1) * count + count * (count + 2)

    def build(self, width: int) -> "Head":
        from seqloom.heads import CrfHead

        return CrfHead(self, width)


class NextTokenHeadConfig(HeadConfig, tag="next-token", kw_only=True):
    """The next (or the hidden) symbol: softmax over the vocabulary; tied, its matrix is the input's."""

    vocab_size: Symbols
    tied: bool = True
    smoothing: Rate = 0.0

    def parameters(self, width: int) -> int:
        return self.vocab_size + (0 if self.tied else width * self.vocab_size)

    def build(self, width: int, tied_to: "Tensor | None" = None) -> "Head":
        from seqloom.heads import NextTokenHead

        return NextTokenHead(self, width, tied_to)


class VectorHeadConfig(Config, tag="vector", kw_only=True):
    """A sentence vector, optionally of another size and of length one."""

    size: Width | None = None
    unit: bool = True

    def parameters(self, width: int) -> int:
        """The number of weights it will have."""
        return 0 if self.size is None else (width + 1) * self.size

    def build(self, width: int) -> "VectorHead":
        """The head."""
        from seqloom.heads import VectorHead

        return VectorHead(self, width)


SequenceHead = ClassHeadConfig | ScoresHeadConfig | LabelsHeadConfig | NumberHeadConfig
ElementHead = ClassHeadConfig | NumberHeadConfig | CrfHeadConfig | NextTokenHeadConfig
