"""Heads: how contextual vectors become a class, numbers, tags, the next token or a sentence vector."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config, Names, Rate, VocabSize, Width, quoted
from seqloom.config.work import Work, linear_work
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from seqloom.nn.heads import Head, VectorHead

Scheme = Literal["none", "bio", "bioes"]
HeadKind = Literal["softmax", "crf"]  # heads for tags that a recipe may have
Pooling = Literal["mean", "sum", "max", "last", "first", "attention"]
Classes = Annotated[int, Meta(ge=2, le=2**20, examples=[3])]
ClassWeight = Annotated[float, Meta(ge=0.0, le=1e6, examples=[1.0])]
ClassWeights = Annotated[tuple[ClassWeight, ...], Meta(max_length=2**20, examples=[()])]


class HeadConfig(Config):
    """Base of the heads."""

    def fit(self, width: int) -> None:
        """Raise ConfigError if the head cannot read vectors of this width."""

    def parameters(self, width: int) -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def work(self, width: int, count: float) -> Work:
        """What it computes for this many vectors."""
        return Work(count * self.parameters(width), 2 * count * self.parameters(width) / (width + 1), 1)

    def build(self, width: int) -> "Head":
        raise NotImplementedError


class ClassHeadConfig(HeadConfig, tag="class", kw_only=True):
    """One of several classes: softmax of a linear map."""

    num_classes: Classes
    label_smoothing: Rate = 0.0
    class_weights: ClassWeights = ()  # weight of each class in the loss; empty: all the same

    def check(self) -> None:
        if self.class_weights and len(self.class_weights) != self.num_classes:
            problem = f"class_weights: {len(self.class_weights):,} weights for {self.num_classes:,} classes"
            raise ConfigError(problem, fix="give one for each class")
        if self.class_weights and not any(self.class_weights):
            problem = "class_weights: all weights are 0"
            raise ConfigError(problem, fix="give at least one class a weight above 0")

    def unmapped(self) -> "ScoresHeadConfig":
        """Return the head for the same classes that reads the scores directly."""
        smoothing, weights = self.label_smoothing, self.class_weights
        return ScoresHeadConfig(num_classes=self.num_classes, label_smoothing=smoothing, class_weights=weights)

    def parameters(self, width: int) -> int:
        return (width + 1) * self.num_classes

    def build(self, width: int) -> "Head":
        from seqloom.nn.heads import ClassHead

        return ClassHead(self, width)


class ScoresHeadConfig(ClassHeadConfig, tag="scores", kw_only=True):
    """One of several classes; the input vector, plus a bias, is the scores: the last step of a linear model."""

    @property
    def answers(self) -> int:
        """The number of scores."""
        return self.num_classes

    def fit(self, width: int) -> None:
        require_scores(self, width, "class")

    def parameters(self, width: int) -> int:
        return self.num_classes

    def build(self, width: int) -> "Head":
        from seqloom.nn.heads import ScoresHead

        return ScoresHead(self)


def require_scores(head: "UnmappedHead", width: int, mapped: str) -> None:
    """Raise ConfigError unless the vector has one number per output."""
    if width != head.answers:
        raise ConfigError(
            f"a '{head.kind()}' head needs width {head.answers}, one number per class, found width {width}",
            fix=f"use width = {head.answers}, or a '{mapped}' head",
        )


class LabelsHeadConfig(HeadConfig, tag="labels", kw_only=True):
    """Any subset of several labels: a logistic regression for each."""

    num_labels: VocabSize

    def unmapped(self) -> "LabelScoresHeadConfig":
        """Return the head for the same labels that reads their scores directly."""
        return LabelScoresHeadConfig(num_labels=self.num_labels)

    def parameters(self, width: int) -> int:
        return (width + 1) * self.num_labels

    def build(self, width: int) -> "Head":
        from seqloom.nn.heads import LabelsHead

        return LabelsHead(self, width)


class LabelScoresHeadConfig(LabelsHeadConfig, tag="label-scores", kw_only=True):
    """Any subset of several labels; the input vector, plus a bias, is their scores."""

    @property
    def answers(self) -> int:
        """The number of scores."""
        return self.num_labels

    def fit(self, width: int) -> None:
        require_scores(self, width, "labels")

    def parameters(self, width: int) -> int:
        return self.num_labels

    def build(self, width: int) -> "Head":
        from seqloom.nn.heads import LabelScoresHead

        return LabelScoresHead(self)


class NumberHeadConfig(HeadConfig, tag="number", kw_only=True):
    """One or several real numbers: linear regression."""

    size: Width = 1

    def unmapped(self) -> "NumberScoresHeadConfig":
        """Return the head for as many numbers that reads them directly."""
        return NumberScoresHeadConfig(size=self.size)

    def parameters(self, width: int) -> int:
        return (width + 1) * self.size

    def build(self, width: int) -> "Head":
        from seqloom.nn.heads import NumberHead

        return NumberHead(self, width)


class NumberScoresHeadConfig(NumberHeadConfig, tag="number-scores", kw_only=True):
    """One or several real numbers; the input vector, plus a bias, is the numbers."""

    @property
    def answers(self) -> int:
        """The number of outputs."""
        return self.size

    def fit(self, width: int) -> None:
        require_scores(self, width, "number")

    def parameters(self, width: int) -> int:
        return self.size

    def build(self, width: int) -> "Head":
        from seqloom.nn.heads import NumberScoresHead

        return NumberScoresHead(self)


class CrfHeadConfig(HeadConfig, tag="crf", kw_only=True):
    """A tag per element, chosen jointly: a linear map and learned transitions that follow the scheme."""

    labels: Names
    scheme: Scheme = "none"

    def check(self) -> None:
        if len(self.labels) < 2:
            raise ConfigError(f"labels: expected two or more, found {len(self.labels)}", fix="name every tag")
        if repeated := [label for label, count in Counter(self.labels).items() if count > 1]:
            raise ConfigError(f"labels: {quoted(repeated[0])} is given twice", fix="name every tag once")
        if self.scheme != "none":
            require_scheme(self.labels, self.scheme)

    def parameters(self, width: int) -> int:
        count = len(self.labels)
        return (width + 1) * count + count * (count + 2)

    def work(self, width: int, count: float) -> Work:
        tags = len(self.labels)
        # A step of the recursion, forward and backward, is a product with the matrix of transitions and some maps
        return linear_work(count, width, tags) + Work(4 * count * tags * tags, 12 * count * tags, 3 * count)

    def build(self, width: int) -> "Head":
        from seqloom.nn.heads import CrfHead

        return CrfHead(self, width)


def require_scheme(labels: tuple[str, ...], scheme: Literal["bio", "bioes"]) -> None:
    """Raise ConfigError if a label does not fit the scheme, or if no label may form a sequence by itself."""
    positions = {"bio": "BI", "bioes": "BIES"}[scheme]
    for label in labels:
        position, _, kind = label.partition("-")
        if label != "O" and not (len(position) == 1 and position in positions and kind):
            expected = ", ".join(["O", *(f"{letter}-TYPE" for letter in positions)])
            raise ConfigError(
                f"labels: {quoted(label)} does not fit the scheme '{scheme}', which expects {expected}",
                fix="rename the label, or choose the scheme 'none'",
            )
    alone = {"bio": "B", "bioes": "S"}[scheme]
    if not any(label == "O" or label.startswith(f"{alone}-") for label in labels):
        raise ConfigError(
            f"labels: the scheme '{scheme}' needs O or a label {alone}-TYPE for spans of one element, but the labels "
            "have neither",
            fix="add the label 'O', or choose the scheme 'none'",
        )


class NextTokenHeadConfig(HeadConfig, tag="next-token", kw_only=True):
    """The next (or masked) token: softmax over the vocabulary; if tied, its matrix is the input's."""

    vocab_size: VocabSize
    tied: bool = True
    label_smoothing: Rate = 0.0

    def parameters(self, width: int) -> int:
        return self.vocab_size + (0 if self.tied else width * self.vocab_size)

    def work(self, width: int, count: float) -> Work:
        return linear_work(count, width, self.vocab_size) + Work(0.0, count * self.vocab_size, 1)  # and the softmax

    def build(self, width: int, tied_to: "nn.Parameter | None" = None) -> "Head":
        from seqloom.nn.heads import NextTokenHead

        return NextTokenHead(self, width, tied_to)


class VectorHeadConfig(Config, tag="vector", kw_only=True):
    """A sentence vector, optionally of another size and of length one."""

    size: Width | None = None
    unit: bool = True

    def parameters(self, width: int) -> int:
        """The number of weights it will have."""
        return 0 if self.size is None else (width + 1) * self.size

    def build(self, width: int) -> "VectorHead":
        from seqloom.nn.heads import VectorHead

        return VectorHead(self, width)


def pooling_parameters(pooling: Pooling, width: int) -> int:
    """The number of weights of a pooling: attention has a linear map and a direction."""
    return width * width + 2 * width if pooling == "attention" else 0


MappedHead = ClassHeadConfig | LabelsHeadConfig | NumberHeadConfig
UnmappedHead = ScoresHeadConfig | LabelScoresHeadConfig | NumberScoresHeadConfig  # the last step of a linear model
SequenceHead = MappedHead | UnmappedHead
ElementHead = ClassHeadConfig | NumberHeadConfig | CrfHeadConfig | NextTokenHeadConfig
