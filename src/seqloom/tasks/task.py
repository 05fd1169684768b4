"""The contract of a task: four small parts that every task has, and a few that only some have.

    ModelMaker    which model answers: recipes, what they are told, what a model of one's own must be
    Feeder        how examples become batches, and batches a loss
    Evaluator     how answers become statistics, and statistics metrics
    Predictor     what is asked of a trained model, and what it answers

What only some tasks can do with a model - write text, go on with it, make vectors - are parts that the others lack.

A new task is one class in one file, and a line in `registry.py`. Nobody else asks for its name.

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
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.data import Part
from seqloom.config.data import Task as TaskName
from seqloom.config.decoding import AnyDecoding, GreedyConfig
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.models import AnyModel, AnyObjective
from seqloom.config.tokenizers import FittedTokenizer, WordsConfig
from seqloom.config.training import AnyFeed, ByLengthConfig
from seqloom.data.loader import WORKERS, Loader
from seqloom.data.loader import feed as by_length
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema, Target
from seqloom.errors import ConfigError, did_you_mean
from seqloom.metrics.calibration import Calibration, Fitted
from seqloom.nn.types import Batch, Loss
from seqloom.recipes.families import Shape, Size, names
from seqloom.text.tokenizer import Tokenizer

# What a model may be told besides its recipe and size; "letters" are read beside words unless somebody says no.
Setting = Literal["smoothing", "class_weights", "pooling", "objective", "rows_at_once", "vectors", "letters"]


class Metric(NamedTuple):
    """The name of a metric, and whether more of it is better."""

    name: str
    higher_is_better: bool = True

    def better(self, value: float, than: float | None) -> bool:
        """Whether a value is strictly better; anything finite is better than nothing."""
        if not np.isfinite(value):
            return False
        return than is None or (value > than if self.higher_is_better else value < than)


SHOWN_NUMBERS = 6  # digits
LOSS = Metric("loss", higher_is_better=False)


class Prediction(ABC):
    """An answer of a model to one example: a dataclass."""

    def to_json(self) -> dict[str, Any]:
        """The answer as programs read it: `label` and `scores`, `spans`, `text`, ...; its fields, by their names."""
        return cast(dict[str, Any], msgspec.to_builtins(self))

    @abstractmethod
    def shown(self) -> str:
        """The answer as people read it, in one line."""

    def located(self, given: Any) -> "Prediction":
        """The same answer to this input: one that speaks of places in it then says where they are, and quotes it."""
        return self


@dataclass(frozen=True)
class TextPrediction(Prediction):
    """A text: a translation, or what follows a prompt."""

    text: str

    def shown(self) -> str:
        return " ".join(self.text.split())


def numbers_shown(numbers: Iterable[float]) -> str:
    """Numbers for people.

    >>> numbers_shown((0.5, 1234.5678))
    '0.5, 1234.57'
    """
    return ", ".join(f"{number:.{SHOWN_NUMBERS}g}" for number in numbers)


class Judged(NamedTuple):
    """One example and what came of it."""

    id: str
    said: str  # the prediction in one line
    true: str  # what would have been right, in one line
    right: bool | None  # whether the two agree; None where answers are only better or worse
    statistics: np.ndarray  # [S] float64, to be summed over examples
    confused: tuple[str, str] | None = None  # what is true and what was said, where a table of confusions has them


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


# What the numbers that a model reads and writes mean.


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


# The four parts of every task.


class ModelMaker(ABC):
    """Which model answers."""

    name: ClassVar[TaskName]
    meaning: Meaning
    heads: ClassVar[tuple[HeadKind, ...]] = ("class",)  # what its recipes may end in, the usual one first
    settings: ClassVar[frozenset[Setting]] = frozenset()  # what they may be told
    usual_tokenizer: ClassVar[FittedTokenizer] = WordsConfig()
    made_by: ClassVar[tuple[Shape, str]]  # the shape of its recipes, and the default

    def recipes(self) -> list[str]:
        """The recipes that make a model for it, the default first."""
        return names(*self.made_by)

    @abstractmethod
    def model(self, recipe: str, size: Size, head: HeadSettings) -> AnyModel:
        """The model that a recipe makes."""

    def adapted(self, model: AnyModel) -> AnyModel:
        """The model that starts from another one's weights: its body, with the head that this task needs."""
        self.require(model)
        return model

    @abstractmethod
    def require(self, model: AnyModel) -> None:
        """Raise ConfigError if a model of somebody's own cannot answer: another shape, or another number of labels."""

    def require_settings(self, head: HeadSettings) -> None:
        """Raise ConfigError for what is about one label of several, where there is none."""
        if head.smoothing and "smoothing" not in self.settings:
            found = f"smoothing is for one label of several, and {self.name} has none here"
            raise ConfigError(found, fix="leave it out")
        if head.class_weights and "class_weights" not in self.settings:
            found = f"class weights are for one label of several, and {self.name} has none here"
            raise ConfigError(found, fix="leave them out")


class Feeder(ABC):
    """How examples become batches, and batches a loss."""

    name: ClassVar[TaskName]
    meaning: Meaning
    feeds: ClassVar[tuple[type, ...]] = (ByLengthConfig,)  # the kinds that make sense

    def require_feed(self, model: nn.Module, feed: AnyFeed) -> None:
        """Raise ConfigError for a feed that makes no sense here, or not with this model."""
        if not isinstance(feed, self.feeds):
            raise wrong_feed(self.name, feed)

    def has_one_shape(self, feed: AnyFeed) -> bool:
        """Whether all full batches of this feed have one shape, so that compiling once is enough."""
        schema = self.meaning.schema
        fixed = schema.input.fixed_size and not schema.target.is_text
        return fixed or not isinstance(feed, ByLengthConfig)

    def fed(self, prepared: Prepared, part: Part, feed: AnyFeed, seed: int) -> Loader[Any, Any]:
        """The steps of a part; ConfigError for a feed that makes no sense here."""
        if not isinstance(feed, ByLengthConfig):
            raise wrong_feed(self.name, feed)
        return by_length(prepared, part, budget=feed.budget, seed=seed)

    def loader(
        self,
        prepared: Prepared,
        part: Part,
        feed: AnyFeed,
        *,
        seed: int,
        workers: int = WORKERS,
        rank: int = 0,
        ranks: int = 1,
    ) -> Loader[Any, Any]:
        """The steps of a part that are this rank's, made by so many workers."""
        steps = self.fed(prepared, part, feed, seed)
        return Loader(steps.plan, steps.make_batch, workers=workers, rank=rank, ranks=ranks)

    def loss(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[Loss, Any]:
        """The summed loss, and the state that the next step goes on from: None where nothing is carried."""
        return cast(Any, model).loss(batch), None

    def divided(self, model: nn.Module, pieces: int) -> "Division":
        """How a step of this model is computed in so many pieces.

        The loss of most tasks is a sum over rows, and a batch may be cut. One that compares the rows of a batch with
        each other must see them all: it computes what it compares in chunks instead.
        """
        return Division(self, pieces)


class Division(NamedTuple):
    """How a step is computed in less memory; its gradient stays that of the whole batch."""

    task: Feeder  # whose loss is taken of each piece
    pieces: int  # into which the batch is cut
    said: str = ""  # what else people should know about it


def wrong_feed(task: TaskName, feed: AnyFeed) -> ConfigError:
    """The error about a feed of running text, where examples stand for themselves."""
    return ConfigError(f"'{feed.kind()}' feeds running text, and the task is {task}", fix=f"leave --{feed.kind()} out")


class Evaluator(ABC):
    """How answers become statistics of examples, and sums of these metrics."""

    name: ClassVar[TaskName]
    meaning: Meaning
    metrics: tuple[Metric, ...]  # that may decide which model is the best; the first one does
    statistics: int  # how many numbers are kept of each example

    @property
    def metric(self) -> Metric:
        """What decides which model is the best."""
        return self.metrics[0]

    def deciding_by(self, name: str | None) -> Self:
        """The same task with another metric to decide which model is the best; None: its own."""
        if name is None or name == self.metric.name:
            return self
        chosen, first = copy.copy(self), _decider(self.name, self.metrics, name)
        chosen.metrics = (first, *(metric for metric in self.metrics if metric != first))
        return chosen

    @abstractmethod
    def judge(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[list[Judged], Any]:
        """Each example of a batch judged, and the state that the next batch goes on from: None where none is carried.

        The last statistics are always the loss and its weight.
        """

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """What `measure` takes, [...,W]: the rows [N,S] added up, each as often as `times` [...,N] says, or once.

        Most tasks add the statistics themselves. One with many labels keeps the numbers of labels in a row, and counts
        them here: so the rows of a thousand labels are not a thousand columns wide.
        """
        return statistics.sum(axis=0) if times is None else np.asarray(times @ statistics)

    @abstractmethod
    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """The metrics of sums [...,W], as `summed` makes them, each [...]; `loss` and that of `metric` among them."""

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        """The figures that are no function of sums, of the statistics [N,S] of all examples; most tasks have none."""
        return {}

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """The figures that say nothing of rows [N,S], by name, each with the reason; most tasks have none.

        F1 where nothing is true and nothing was said is 0 by convention: so sums stay numbers, and whoever shows the
        figure to people asks here first.
        """
        return {}

    def by_label(self, statistics: np.ndarray) -> dict[str, dict[str, float]]:
        """`precision`, `recall`, `f1` and `support` of each label or type, from all rows [N,S]; most tasks have none.

        The labels stand in the order of their numbers; those that neither were true nor said are left out.
        """
        return {}

    def signatures(self, statistics: np.ndarray) -> dict[str, str]:
        """How the metrics of rows [N,S] that others compute too are computed, as the field writes it; by name."""
        return {}

    def agreed(self, rows: np.ndarray, everyone: np.ndarray) -> np.ndarray:
        """Rows [N,S] with what all rows of an evaluation [M,S] decide together written into each of them.

        Where a figure has several rules and the examples vote for one, their parts follow it too: slices, resamples
        and single rows. Most tasks have nothing to vote on.
        """
        return rows

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


class Predictor(ABC):
    """What is asked of a trained model, and what it answers."""

    meaning: Meaning
    asking: ClassVar[Asking] = Asking('echo "some text" | seqloom predict RUN -', "seqloom predict RUN FILE")
    longest: ClassVar[int | None] = None  # symbols or steps of an input that are read; None: as many as in training

    @property
    def asked(self) -> Meaning:
        """What the inputs of questions to a trained model mean: as in training, unless they are written otherwise."""
        return self.meaning

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Any) -> Sequence[Prediction]:
        """The answers to the rows of a batch of inputs, as the kind of input collates them."""


class Task(ModelMaker, Feeder, Evaluator, Predictor):
    """What a model is asked: one class for each task, the only place that knows it."""

    def __init__(self, meaning: Meaning) -> None:
        self.meaning = meaning

    @classmethod
    def check(
        cls,
        *,
        metric: str | None = None,
        head: HeadKind | None = None,
        settings: Sequence[str] = (),
        feed: AnyFeed | None = None,
    ) -> None:
        """Raise ConfigError for what no data of the task can have: known before it is read."""
        if metric is not None:
            _decider(cls.name, cls.metrics, metric)
        if head is not None and head not in cls.heads:
            why = ": it chains one tag to the next" if head == "crf" else ""
            raise ConfigError(f"{cls.name} has no head of kind '{head}'{why}", fix=did_you_mean(head, cls.heads))
        if others := [name for name in settings if name not in cls.settings]:
            found = f"{', '.join(others)}: for embed, and the task is {cls.name}"
            raise ConfigError(found, fix="--task embed, or leave it out")
        if feed is not None and not isinstance(feed, cls.feeds):
            raise wrong_feed(cls.name, feed)

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


def _decider(task: TaskName, metrics: Sequence[Metric], name: str) -> Metric:
    """The metric of a name; ConfigError for one that decides nothing."""
    possible = {metric.name: metric for metric in metrics}
    if name not in possible:
        raise ConfigError(f"{task} has no metric '{name}' that decides", fix=did_you_mean(name, possible))
    return possible[name]


# The parts that only some tasks have: a calibration, writing text, going on with it, making vectors.
#
# `Translator.of(task)` is the same task with the methods of the part, or the one refusal of whoever asks a classifier
# for a translation. Nothing here stands in the other tasks, not even as a method that raises.


class Calibrator(Task):
    """A task whose scores are read in a way that the dev part finds, so that probabilities are honest."""

    readings: Mapping[str, Calibration] = MappingProxyType({})  # of the scores of single examples, by id

    @abstractmethod
    def fitted(self, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> Fitted:
        """How the scores of a model are to be read, found on a dev part."""

    def calibrated(self, calibration: Calibration, rows: Mapping[str, Calibration] = MappingProxyType({})) -> Self:
        """The same task whose scores are read so, those of `rows`, by their ids, each in its own way."""
        chosen = copy.copy(self)
        chosen.meaning, chosen.readings = self.meaning._replace(calibration=calibration), rows
        return chosen

    def reading_of(self, id_: str) -> Calibration:
        """How the scores of an example are read."""
        return self.readings.get(id_, self.meaning.calibration)

    def temperatures(self, ids: Sequence[str]) -> Tensor:
        """[B,1] what the scores of examples are divided by."""
        return torch.tensor([[self.reading_of(id_).temperature] for id_ in ids], dtype=torch.float64)

    def looking(self, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> Self:
        """The task as a look at the dev part judges it, which decides what is the best; `batches` are all of dev.

        One label is judged as it is, and no batch is looked at.
        """
        return self


class Ability(Task):
    """A part that a task may lack."""

    LACKING: ClassVar[tuple[str, str]]  # what is said of a task without it, and what to do

    @classmethod
    def of(cls, task: Task, asked: str = "") -> Self:
        """The same task, which has this part; ConfigError for one that has not, with what was `asked` for."""
        if not isinstance(task, cls):
            found, fix = cls.LACKING
            raise ConfigError(found.format(task=task.name, asked=asked), fix=fix)
        return task


class Writer(Ability):
    """A task whose answers are text."""

    LACKING = (
        "'{asked}' says how text is written, and the task of this model is {task}, which writes none",
        "leave it out",
    )
    decoding: AnyDecoding = GreedyConfig()

    def writing(self, how: AnyDecoding) -> Self:
        """The same task whose answers are written in this way."""
        chosen = copy.copy(self)
        chosen.decoding = how
        return chosen


class Translator(Writer):
    """A task whose texts are for sources."""

    LACKING = ("the task of this model is {task}, and it translates nothing", "`seqloom predict` answers with it")

    @abstractmethod
    def copying(self, model: nn.Module) -> Self:
        """The same task that copies what the vocabulary lacks from the source; ConfigError where it cannot."""


class Continuer(Writer):
    """A task that goes on with texts."""

    LACKING = (
        "going on with a text needs a language model, and the task of this one is {task}",
        "`seqloom predict` answers with it",
    )

    @abstractmethod
    def continued(
        self, model: nn.Module, prompts: Sequence[str], numbers: Sequence[int]
    ) -> Sequence[Sequence[Prediction]]:
        """What follows each prompt, one answer or several; `numbers` say which draws of the seed belong to each."""

    @abstractmethod
    def streamed(self, model: nn.Module, prompt: str) -> Iterator[str]:
        """What follows a prompt, piece by piece as it is written."""


class Vectorizer(Ability):
    """A task whose model makes a vector of a whole input."""

    LACKING = (
        "the task of this model is {task}, and it makes no vector of a whole input",
        "take a model of embed, classify or regress",
    )

    @abstractmethod
    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        """[N,D] one vector for each row of a batch of inputs."""

    @abstractmethod
    def vector_size(self, model: AnyModel) -> int:
        """How many numbers such a vector has."""
