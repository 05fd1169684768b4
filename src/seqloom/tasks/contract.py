"""The contract of a task, and what its model's numbers mean.

    examples ──▶ batch ──▶ loss                    training
                   │
                   └─────▶ judge ──▶ statistics of each example ──▶ summed ──▶ measure ──▶ metrics

Every metric is a function of sums of statistics over examples: right answers, entities found, squared errors, counts
of n-grams. So a metric of a million examples needs one row of numbers, ranks add theirs up, and a confidence interval
resamples the rows (Koehn 2004) without asking the model again. The few that are no sums, such as a correlation of
ranks, are made of all rows at once (`measure_rows`), and decide nothing during training.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from torch import nn

from seqloom.config.data import Task as TaskName
from seqloom.config.decoding import AnyDecoding
from seqloom.config.models import AnyModel
from seqloom.config.training import AnyFeed, ByLengthConfig
from seqloom.data.feeding import feed as by_length
from seqloom.data.loader import Loader
from seqloom.data.preparing import Prepared
from seqloom.data.schema import Part, Schema
from seqloom.errors import ConfigError, did_you_mean
from seqloom.recipes import Size
from seqloom.text.tokenizer import Tokenizer
from seqloom.types import Batch, Loss


class Meaning(NamedTuple):
    """What the numbers that a model reads and writes mean; stored beside its weights."""

    schema: Schema
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    sizes: tuple[int, ...] = ()  # of inputs that are no text: (D,) of vectors, (H, W, C) of pictures
    numbers: int = 0  # of a target of numbers: how many

    @classmethod
    def of(cls, prepared: Prepared) -> "Meaning":
        """What the numbers of prepared data mean."""
        columns, schema = prepared.columns, prepared.schema
        element = tuple(columns["input"].values.shape[1:])
        height = (int(columns["input"].lengths[0]),) if schema.input == "picture" else ()
        numbers = int(columns["target"].lengths[0]) if schema.target == "numbers" else 0
        return cls(schema, prepared.tokenizer, prepared.target_tokenizer, (*height, *element), numbers)


class Metric(NamedTuple):
    """The name of a metric, and whether more of it is better."""

    name: str
    higher_is_better: bool = True

    def better(self, value: float, than: float | None) -> bool:
        """Whether a value is strictly better; anything finite is better than nothing."""
        if not np.isfinite(value):
            return False
        return than is None or (value > than if self.higher_is_better else value < than)


class Prediction(ABC):
    """An answer of a model to one example."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The answer as programs read it: `label` and `scores`, `spans`, `text`, ..."""

    @abstractmethod
    def shown(self) -> str:
        """The answer as people read it, in one line."""

    def located(self, given: Any) -> "Prediction":
        """The same answer to this input: one that speaks of places in it then says where they are, and quotes it."""
        return self


class Judged(NamedTuple):
    """One example and what came of it."""

    id: str
    said: str  # the prediction in one line
    true: str  # what would have been right, in one line
    right: bool  # whether the two agree; for metrics without right and wrong, whether it is better than most
    statistics: np.ndarray  # [S] float64, to be summed over examples


class HeadSettings(NamedTuple):
    """What training wants of a head."""

    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()  # one for each label; empty: all count the same


def require_by_length(task: TaskName, feed: AnyFeed) -> ByLengthConfig:
    """The feed, if it keeps examples apart; ConfigError for one of running text."""
    if not isinstance(feed, ByLengthConfig):
        raise ConfigError(f"'{feed.kind()}' feeds running text, and the task is {task}", fix="take 'by-length'")
    return feed


class Task(ABC):
    """What a model is asked: one small class for each task, the only place that knows it."""

    name: ClassVar[TaskName]
    statistics: int  # how many numbers are summed over examples
    can_balance: ClassVar[bool] = False  # whether each example has one label, so that class weights may be "balanced"
    metric: Metric  # what decides which model is the best
    others: tuple[Metric, ...] = ()  # what else could

    def __init__(self, meaning: Meaning) -> None:
        self.meaning = meaning

    def deciding_by(self, name: str | None) -> Self:
        """The same task with another metric to decide which model is the best; None: its own."""
        possible = {metric.name: metric for metric in (self.metric, *self.others)}
        if name is None or name == self.metric.name:
            return self
        if name not in possible:
            raise ConfigError(f"{self.name} has no metric '{name}' that decides", fix=did_you_mean(name, possible))
        chosen = copy.copy(self)
        chosen.metric = possible.pop(name)
        chosen.others = tuple(possible.values())
        return chosen

    def writing(self, how: AnyDecoding) -> Self:
        """The same task whose answers are written in this way; ConfigError where no text is written."""
        raise ConfigError(f"'{how.kind()}' says how text is written, and {self.name} writes none", fix="leave it out")

    @abstractmethod
    def recipes(self) -> list[str]:
        """The recipes that make a model for it, the default first."""

    @abstractmethod
    def model(self, recipe: str, size: Size, head: HeadSettings) -> AnyModel:
        """The model that a recipe makes; ConfigError where it makes none, with the reason."""

    @abstractmethod
    def adapted(self, model: AnyModel) -> AnyModel:
        """The same model with the head that this task needs; ConfigError if it is another shape of model."""

    @abstractmethod
    def require(self, model: AnyModel) -> None:
        """Raise ConfigError if a model of somebody's own cannot answer: another shape, or another number of labels."""

    def require_feed(self, model: nn.Module, feed: AnyFeed) -> None:
        """Raise ConfigError for a feed that makes no sense here, or not with this model."""
        require_by_length(self.name, feed)

    def has_one_shape(self, feed: AnyFeed) -> bool:
        """Whether all full batches of this feed have one shape, so that compiling once is enough."""
        return not isinstance(feed, ByLengthConfig)

    def loader(self, prepared: Prepared, part: Part, feed: AnyFeed, *, seed: int, **how: Any) -> Loader[Any, Any]:
        """The steps of a part; `how` goes to the `Loader`. ConfigError for a feed that makes no sense here."""
        feed = require_by_length(self.name, feed)
        return by_length(prepared, part, budget=feed.budget, seed=seed, **how)

    def loss(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[Loss, Any]:
        """The summed loss, and the state that the next step goes on from: None where nothing is carried."""
        return cast(Any, model).loss(batch), None

    @abstractmethod
    def judge(self, model: nn.Module, batch: Batch[Any, Any]) -> list[Judged]:
        """Each row of a batch judged; the last statistics are always the loss and its weight."""

    def judge_on(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[list[Judged], Any]:
        """The same for a batch that goes on where the one before it stopped, and the state after it."""
        return self.judge(model, batch), None

    def settled(self, judged: Sequence[Judged], statistics: np.ndarray) -> tuple[Judged, ...]:
        """The judged with `right` as the statistics [N,S] of all examples decide it; most tasks know it before."""
        return tuple(judged)

    def confused(self, judged: Judged) -> tuple[tuple[str, str], ...]:
        """What an example adds to the table of confusions: pairs of what is true and what was said."""
        return ()

    @abstractmethod
    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """The metrics of summed statistics [...,S], each [...]; `loss` and the name of `metric` are among them."""

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        """The figures that are no function of sums, of the statistics [N,S] of all examples; most tasks have none."""
        return {}

    def badness(self, judged: Judged) -> float:
        """How far from right an answer is, for lists with the worst first: its mean loss."""
        loss, weight = judged.statistics[-2:]
        return float(loss / weight) if weight else float("inf")

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Any) -> Sequence[Prediction]:
        """The answers to the rows of a batch of inputs, as `seqloom.data.batches.INPUTS` makes them."""


class Graded(Task):
    """A task whose answers are better or worse, not right or wrong: the better half counts as right."""

    def settled(self, judged: Sequence[Judged], statistics: np.ndarray) -> tuple[Judged, ...]:
        """The judged, each right if its metric is no worse than the median of all."""
        sign = 1 if self.metric.higher_is_better else -1
        median = np.median(sign * self.measure(statistics)[self.metric.name])
        return tuple(
            one._replace(right=bool(sign * self.measure(one.statistics)[self.metric.name] >= median)) for one in judged
        )
