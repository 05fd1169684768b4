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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from torch import Tensor, nn

from seqloom.config.data import Task as TaskName
from seqloom.config.decoding import AnyDecoding
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.models import AnyModel, EncoderDecoderConfig, LanguageModelConfig, SequenceModelConfig
from seqloom.config.objectives import AnyObjective
from seqloom.config.training import AnyFeed, ByLengthConfig
from seqloom.data.loader import Loader
from seqloom.data.loader import feed as by_length
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Part, Schema, Target
from seqloom.errors import ConfigError, did_you_mean
from seqloom.metrics.calibration import Calibration, Fitted
from seqloom.nn.types import Batch, Loss
from seqloom.recipes.bodies import Size
from seqloom.text.tokenizer import Tokenizer

# -----------------------------------------------------------------------------
# What goes into a task and comes out of it: wishes for a head, answers, judged examples, names of metrics.
# -----------------------------------------------------------------------------


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
    right: bool | None  # whether the two agree; None where answers are only better or worse
    statistics: np.ndarray  # [S] float64, to be summed over examples


class HeadSettings(NamedTuple):
    """What training wants of a head."""

    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()  # one for each label; empty: all count the same
    kind: HeadKind = "class"
    pooling: Pooling | None = None  # of a model whose answers are vectors, as the next two; None: the recipe's
    objective: str | AnyObjective | None = None  # None: as the data asks for
    rows_at_once: int | None = None


class Asking(NamedTuple):
    """How a model is asked from a shell; RUN stands for its folder."""

    text: str  # one text; for models that read such
    file: str  # a file of inputs
    then: tuple[str, ...] = ()  # what else such a model is for


# -----------------------------------------------------------------------------
# What the numbers that a model reads and writes mean.
# -----------------------------------------------------------------------------


class Meaning(NamedTuple):
    """What the numbers that a model reads and writes mean; stored beside its weights."""

    schema: Schema
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    sizes: tuple[int, ...] = ()  # of inputs that are no text: (D,) of vectors, (H, W, C) of pictures
    numbers: int = 0  # of a target of numbers: how many
    longest: int = 0  # symbols or steps of the longest input of the training part; 0: not known
    # Mean and deviation of each number of a target in the training part; of a similarity the least, and the range.
    units: tuple[tuple[float, float], ...] = ()
    calibration: Calibration = Calibration()

    @classmethod
    def of(cls, prepared: Prepared) -> "Meaning":
        """What the numbers of prepared data mean."""
        columns, schema = prepared.columns, prepared.schema
        sizes = schema.input.sizes(columns["input"])
        numbers = schema.target.count(columns["target"]) if schema.target.measured else 0
        longest = int(columns["input"].lengths[prepared.parts["train"]].max(initial=0))
        tokenizers = prepared.tokenizer, prepared.target_tokenizer
        return cls(schema, *tokenizers, sizes, numbers, longest, _units(prepared, numbers))


def _units(prepared: Prepared, numbers: int) -> tuple[tuple[float, float], ...]:
    """The units of each number of the targets of the training part."""
    if not numbers:
        return ()
    chosen = prepared.columns["target"].select(prepared.parts["train"]).values.reshape(-1, numbers).astype(np.float64)
    if not len(chosen):
        return ((0.0, 1.0),) * numbers
    return prepared.schema.target.units(chosen)


# -----------------------------------------------------------------------------
# What only some tasks can do with a model: write text, go on with it, give vectors. The others refuse, in words.
# -----------------------------------------------------------------------------


class Abilities:
    """A task that writes nothing and gives no vectors; one that does has methods of its own instead."""

    name: ClassVar[TaskName]

    def writing(self, how: AnyDecoding) -> Self:
        """The same task whose answers are written in this way; ConfigError where no text is written."""
        raise ConfigError(
            f"'{how.kind()}' says how text is written, and the task of this model is {self.name}, which writes none",
            fix="leave it out",
        )

    def translating(self, how: AnyDecoding) -> Self:
        """The same task whose texts for sources are written in this way; ConfigError where there are no sources."""
        raise self._translates_nothing()

    def copying(self, model: nn.Module) -> Self:
        """The same task that copies what the vocabulary lacks from the source; ConfigError where it cannot."""
        raise self._translates_nothing()

    def _translates_nothing(self) -> ConfigError:
        found = f"the task of this model is {self.name}, and it translates nothing"
        return ConfigError(found, fix="`seqloom predict` answers with it")

    @classmethod
    def require_settings_of_vectors(cls, names: Sequence[str]) -> None:
        """Raise ConfigError for settings of models whose answers are vectors, where a task has none such."""
        if names:
            found = f"{', '.join(names)}: for embed, and the task is {cls.name}"
            raise ConfigError(found, fix="--task embed, or leave it out")

    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        """[N,D] one vector for each row of a batch of inputs; ConfigError where a model makes none."""
        raise self._has_no_vectors()

    def vector_size(self, model: AnyModel) -> int:
        """How many numbers such a vector has; ConfigError as above."""
        raise self._has_no_vectors()

    def _has_no_vectors(self) -> ConfigError:
        found = f"the task of this model is {self.name}, and it makes no vector of a whole input"
        return ConfigError(found, fix="take a model of embed, classify or regress")

    def going_on(self, how: AnyDecoding) -> Self:
        """The same task that goes on with texts in this way; ConfigError where a model goes on with no text."""
        raise self._goes_on_with_nothing()

    def continued(
        self, model: nn.Module, prompts: Sequence[str], numbers: Sequence[int]
    ) -> Sequence[Sequence[Prediction]]:
        """What follows each prompt, one answer or several; ConfigError where a model goes on with no text.

        `numbers` say which draws of the seed belong to each prompt.
        """
        raise self._goes_on_with_nothing()

    def streamed(self, model: nn.Module, prompt: str) -> Iterator[str]:
        """What follows a prompt, piece by piece as it is written; ConfigError as above."""
        raise self._goes_on_with_nothing()

    def _goes_on_with_nothing(self) -> ConfigError:
        found = f"going on with a text needs a language model, and the task of this one is {self.name}"
        return ConfigError(found, fix="`seqloom predict` answers with it")


# -----------------------------------------------------------------------------
# The task itself: how it makes a model, feeds it, judges it and asks it.
# -----------------------------------------------------------------------------


def require_by_length(task: TaskName, feed: AnyFeed) -> ByLengthConfig:
    """The feed, if it keeps examples apart; ConfigError for one of running text."""
    if not isinstance(feed, ByLengthConfig):
        raise ConfigError(
            f"'{feed.kind()}' feeds running text, and the task is {task}", fix=f"leave --{feed.kind()} out"
        )
    return feed


class Division(NamedTuple):
    """How a step is computed in less memory; its gradient stays that of the whole batch."""

    task: "Task"  # whose loss is taken of each piece
    pieces: int  # into which the batch is cut
    said: str = ""  # what else people should know about it


class Task(Abilities, ABC):
    """What a model is asked: one small class for each task, the only place that knows it."""

    statistics: int  # how many numbers are kept of each example
    heads: ClassVar[tuple[HeadKind, ...]] = ("class",)  # what its recipes may end in
    asking: ClassVar[Asking] = Asking('echo "some text" | seqloom predict RUN -', "seqloom predict RUN FILE")
    in_windows: ClassVar[bool] = False  # whether inputs of any length are read, none of them cut
    can_balance: ClassVar[bool] = False  # whether each example has one label, so that class weights may be "balanced"
    metric: Metric  # what decides which model is the best
    others: tuple[Metric, ...] = ()  # what else could
    readings: Mapping[str, Calibration] = MappingProxyType({})  # of the scores of single examples, by id

    def __init__(self, meaning: Meaning) -> None:
        self.meaning = meaning

    @property
    def asked(self) -> Meaning:
        """What the inputs of questions to a trained model mean: as in training, unless they are written otherwise."""
        return self.meaning

    @classmethod
    def deciders(cls) -> tuple[Metric, ...]:
        """Every metric that may decide, whatever the labels of the data turn out to be."""
        return (cls.metric, *cls.others)

    @classmethod
    def require_decider(cls, name: str | None) -> None:
        """Raise ConfigError for a metric that no data of the task has: known before it is read."""
        names = [metric.name for metric in cls.deciders()]
        if name is not None and name not in names:
            raise ConfigError(f"{cls.name} has no metric '{name}' that decides", fix=did_you_mean(name, names))

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

    def judging(self, found: Schema) -> "Task":
        """The task that judges a model by data of these kinds; ConfigError where it cannot."""
        asked = self.meaning.schema
        if (found.input, found.target) != (asked.input, asked.target):
            raise ConfigError(
                f"the model goes from {asked.input} to {asked.target}, and the data from {found.input} to "
                f"{found.target}",
                fix="name the columns, with --input and --target",
            )
        return self

    def lengths(self, prepared: Prepared) -> np.ndarray:
        """[N] how many symbols or steps of each row a model reads at once."""
        return np.asarray(prepared.columns["input"].lengths)

    @classmethod
    def head_kind(cls, asked: HeadKind | None) -> HeadKind:
        """The kind of head that its recipes end in, asked for or the usual one; ConfigError where they cannot."""
        if asked is not None and asked not in cls.heads:
            why = ": it chains one tag to the next" if asked == "crf" else ""
            raise ConfigError(f"{cls.name} has no head of kind '{asked}'{why}", fix=did_you_mean(asked, cls.heads))
        return asked or cls.heads[0]

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

    @classmethod
    def require_feeding(cls, feed: AnyFeed) -> None:
        """Raise ConfigError for a feed that makes no sense with any model of the task."""
        require_by_length(cls.name, feed)

    def require_feed(self, model: nn.Module, feed: AnyFeed) -> None:
        """Raise ConfigError for a feed that makes no sense here, or not with this model."""
        self.require_feeding(feed)

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

    def divided(self, model: nn.Module, pieces: int) -> Division:
        """How a step of this model is computed in so many pieces.

        The loss of most tasks is a sum over rows, and a batch may be cut. One that compares the rows of a batch with
        each other must see them all: it computes what it compares in chunks instead.
        """
        return Division(self, pieces)

    @abstractmethod
    def judge(self, model: nn.Module, batch: Batch[Any, Any]) -> list[Judged]:
        """Each row of a batch judged; the last statistics are always the loss and its weight."""

    def judge_on(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[list[Judged], Any]:
        """The same for a batch that goes on where the one before it stopped, and the state after it."""
        return self.judge(model, batch), None

    def settled(self, judged: Sequence[Judged]) -> tuple[Judged, ...]:
        """The judged as they are told: for most tasks as they are."""
        return tuple(judged)

    def confused(self, judged: Judged) -> tuple[tuple[str, str], ...]:
        """What an example adds to the table of confusions: pairs of what is true and what was said."""
        return ()

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """What `measure` takes, [...,W]: the rows [N,S] added up, each as often as `times` [...,N] says, or once.

        Most tasks add the statistics themselves. One with many labels keeps the numbers of labels in a row, and counts
        them here: so the rows of a thousand labels are not a thousand columns wide.
        """
        return statistics.sum(axis=0) if times is None else np.asarray(times @ statistics)

    @abstractmethod
    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """The metrics of sums [...,W], as `summed` makes them, each [...]; `loss` and that of `metric` among them."""

    def agreed(self, rows: np.ndarray, everyone: np.ndarray) -> np.ndarray:
        """Rows [N,S] with what all rows of an evaluation [M,S] decide together written into each of them.

        Where a figure has several rules and the examples vote for one, their parts follow it too: slices, resamples
        and single rows. Most tasks have nothing to vote on.
        """
        return rows

    def by_label(self, statistics: np.ndarray) -> dict[str, dict[str, float]]:
        """`precision`, `recall`, `f1` and `support` of each label or type, from all rows [N,S]; most tasks have none.

        The labels stand in the order of their numbers; those that neither were true nor said are left out.
        """
        return {}

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        """The figures that are no function of sums, of the statistics [N,S] of all examples; most tasks have none."""
        return {}

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """The figures that say nothing of rows [N,S], by name, each with the reason; most tasks have none.

        F1 where nothing is true and nothing was said is 0 by convention: so sums stay numbers, and whoever shows the
        figure to people asks here first.
        """
        return {}

    def badness(self, judged: Judged) -> float:
        """How far from right an answer is, for lists with the worst first: its mean loss."""
        loss, weight = judged.statistics[-2:]
        return float(loss / weight) if weight else float("inf")

    def details(self, judged: Judged) -> dict[str, Any]:
        """What a list of errors tells of an answer besides what was said and true: the figures of it alone."""
        sums = self.summed(judged.statistics[None])
        left_out = {"loss", *self.undefined(judged.statistics[None])}
        figures = {name: float(value) for name, value in self.measure(sums).items() if name not in left_out}
        return {name: value for name, value in figures.items() if np.isfinite(value)}

    def truth(self, judged: Judged, target: Target) -> str:
        """What would have been right, in one line, with the target as the data has it.

        Most judged examples know it already. Labels that training never saw have no number, only the data names them.
        """
        return judged.true

    def fitted(self, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> Fitted:
        """How the scores of a model are to be read so that probabilities are honest, found on a dev part.

        Most tasks read them as they are, and look at no batch.
        """
        return Fitted()

    def calibrated(self, calibration: Calibration, rows: Mapping[str, Calibration] = MappingProxyType({})) -> Self:
        """The same task whose scores are read so, those of `rows`, by their ids, each in its own way."""
        chosen = copy.copy(self)
        chosen.meaning, chosen.readings = self.meaning._replace(calibration=calibration), rows
        return chosen

    def reading_of(self, id_: str) -> Calibration:
        """How the scores of an example are read."""
        return self.readings.get(id_, self.meaning.calibration)

    def looking(self, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> Self:
        """The task as a look at the dev part judges it, which decides what is the best; `batches` are all of dev.

        Most tasks are judged as they are, and look at no batch.
        """
        return self

    def longest_input(self, model: AnyModel) -> int | None:
        """How many symbols or steps of one input a model has positions for; None: any number.

        Elements are read window by window, so that theirs have no end.
        """
        if isinstance(model, LanguageModelConfig):
            limit = model.decoder.limit()
            return None if limit is None else limit - 1  # BEGIN stands before them
        limited = (
            isinstance(model, SequenceModelConfig | EncoderDecoderConfig) and not self.meaning.schema.input.fixed_size
        )
        return model.encoder.limit() if limited else None

    def signatures(self, statistics: np.ndarray) -> dict[str, str]:
        """How the metrics of rows [N,S] that others compute too are computed, as the field writes it; by name."""
        return {}

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Any) -> Sequence[Prediction]:
        """The answers to the rows of a batch of inputs, as the kind of input collates them."""


class Graded(Task):
    """A task whose answers are better or worse, not right or wrong."""

    def settled(self, judged: Sequence[Judged]) -> tuple[Judged, ...]:
        """The judged, none of them called right or wrong."""
        return tuple(one._replace(right=None) for one in judged)
