"""The interface of a task: four small parts that every task has, and a few that only some have.

    ModelMaker    builds the model: recipes, their settings, and the requirements for a custom model
    Batcher       turns examples into batches, and batches into a loss
    Evaluator     turns predictions into statistics, and statistics into metrics
    Predictor     turns inputs into predictions with a trained model

Only some tasks can generate text, continue a prompt or embed texts. These abilities are separate classes below.

A new task is one class in one file, and a line in `TASKS`. No other code depends on its name.

    examples ──▶ batch ──▶ loss                    training
                   │
                   └─────▶ evaluate_batch ──▶ statistics of each example ──▶ summed ──▶ measure ──▶ metrics

Every metric is a function of sums of statistics over examples: correct predictions, entities found, squared errors,
counts of n-grams. So a metric over a million examples needs one row of numbers, distributed ranks can add their sums,
and a confidence interval resamples the rows (Koehn 2004) without running the model again. A few metrics, such as rank
correlations, are not functions of sums. They are computed from all rows (`measure_rows`) and cannot choose checkpoints.
"""

import copy
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.data import SplitName
from seqloom.config.data import Task as TaskName
from seqloom.config.decoding import AnyDecoding
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.models import AnyModel, AnyObjective
from seqloom.config.training import AnyBatching, ByLengthConfig
from seqloom.data.cells import flat
from seqloom.data.kinds.words import RawWords
from seqloom.data.loader import WORKERS, Loader
from seqloom.data.loader import feed as by_length
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema, Target
from seqloom.decoding.continuous import ContinuousRow
from seqloom.errors import ConfigError, did_you_mean
from seqloom.metrics.calibration import Calibration, Fitted
from seqloom.nn.types import Batch, Loss
from seqloom.recipes.families import AnySize, ModelKind, names
from seqloom.report.document import Document, Paragraph, TableBlock
from seqloom.report.labels import excerpt
from seqloom.report.numbers import number
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.word_splitter import WordSplitter

# Settings of a model besides its recipe and size; "char_encoder" is on unless it is turned off.
Setting = Literal[
    "label_smoothing", "class_weights", "pooling", "objective", "micro_batch", "word_vectors", "char_encoder"
]


class Metric(NamedTuple):
    """The name of a metric, and whether a higher value is better; then `highest` is the value of a perfect model."""

    name: str
    higher_is_better: bool = True
    highest: float = 1.0

    def is_perfect(self, value: float) -> bool:
        """Whether no model can score better.

        >>> Metric("accuracy").is_perfect(1.0), Metric("bleu", highest=100.0).is_perfect(1.0)
        (True, False)
        """
        return self.higher_is_better and value >= self.highest

    def better(self, value: float, than: float | None) -> bool:
        """Whether `value` is strictly better than `than`; any finite value is better than None."""
        if not np.isfinite(value):
            return False
        return than is None or (value > than if self.higher_is_better else value < than)


SHOWN_NUMBERS = 6  # digits
SHOWN_VALUES = 4  # of a list or dictionary in the `repr` of a prediction
SHOWN_ROWS = 20  # of a prediction in a notebook
SHOWN_TEXT = 60  # characters
LOSS = Metric("loss", higher_is_better=False)


class Prediction(ABC):
    """The prediction of a model for one input: a dataclass, with one subclass for each kind of output.

    Subclasses are dataclasses with `repr=False`: that of a dataclass would print a thousand scores.

    `LabelPrediction`, `LabelsPrediction`, `NumbersPrediction`, `SeriesPrediction`, `TagsPrediction`, `TextPrediction`,
    `Translation`, `Continuation`, `FilledPrediction` and `VectorPrediction`.
    """

    def to_json(self) -> dict[str, Any]:
        """The prediction as a JSON object, such as `{"label": ..., "scores": {...}}`: its fields by name."""
        return cast(dict[str, Any], msgspec.to_builtins(self))

    def __repr__(self) -> str:
        """The attributes that `to_json` has, shortened.

        >>> TextPrediction("a fine film " * 20)
        TextPrediction(text='a fine film a fine film a fine film a fine film a fine film …')
        """
        return _written(self, {name: getattr(self, name) for name in self.to_json()})

    def _repr_html_(self) -> str:
        rows = [(excerpt(name, SHOWN_TEXT), _cell(one)) for name, one in flat(self.to_json()).items()]
        table = TableBlock((), rows[:SHOWN_ROWS])
        more = f"and {len(rows) - SHOWN_ROWS:,} more" if len(rows) > SHOWN_ROWS else ""
        return Document(type(self).__name__, [table, Paragraph(more)])._repr_html_()

    @abstractmethod
    def to_text(self) -> str:
        """The prediction as one line of text for people."""

    def with_input(self, given: Any) -> "Prediction":
        """The same prediction with its input: spans then have character offsets and text, and masks are filled in."""
        return self


def _cell(value: Any) -> str | float:
    """A plain value as a cell of a table."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return excerpt(value if isinstance(value, str) else brief(value), 2 * SHOWN_TEXT)


def brief(value: Any) -> str:
    """A value as short text: scores with four digits, the largest first, and the first values of a list.

    Named tuples have their names, and only what is known, so that they are not taken for dictionaries.

    >>> brief({"good": 0.7, "bad": 0.29999}), brief([0.5, 2, None, True, "x"])
    ("{'good': 0.7, 'bad': 0.3}", '[0.5, 2, None, True, …; 5 in all]')
    >>> brief(Metric("f1"))
    "Metric(name='f1', higher_is_better=True, highest=1)"
    """
    if hasattr(value, "_asdict"):
        return _written(value, {name: one for name, one in value._asdict().items() if one is not None})
    if isinstance(value, np.ndarray):
        return brief(value.tolist())
    if isinstance(value, dict):
        scores = all(isinstance(one, float) for one in value.values())
        names = sorted(value, key=lambda name: -value[name])[:SHOWN_VALUES] if scores else list(value)
        count = len(value) if scores else len(names)  # a record, such as an entity, is shown with all its fields
        return _listed([f"{name!r}: {brief(value[name])}" for name in names], count).join("{}")
    if isinstance(value, list | tuple):
        return _listed([brief(one) for one in value[:SHOWN_VALUES]], len(value)).join("[]")
    if isinstance(value, str):
        return repr(value if len(value) <= SHOWN_TEXT else f"{value[: SHOWN_TEXT - 1].rstrip()} …")
    return number(value) if isinstance(value, float) else repr(value)


def _written(value: Any, fields: Mapping[str, Any]) -> str:
    return f"{type(value).__name__}({', '.join(f'{name}={brief(one)}' for name, one in fields.items())})"


def _listed(shown: list[str], count: int) -> str:
    return ", ".join(shown) + (f", …; {count:,} in all" if count > len(shown) else "")


@dataclass(frozen=True, repr=False)
class TextPrediction(Prediction):
    """A generated text."""

    text: str

    def to_text(self) -> str:
        return " ".join(self.text.split())


def numbers_shown(numbers: Iterable[float]) -> str:
    """Numbers as text, with six significant digits.

    >>> numbers_shown((0.5, 1234.5678))
    '0.5, 1234.57'
    """
    return ", ".join(f"{number:.{SHOWN_NUMBERS}g}" for number in numbers)


class EvaluatedExample(NamedTuple):
    """One example of an evaluation: its prediction, its target, and its statistics."""

    id: str
    predicted: str  # the prediction in one line
    expected: str  # the target in one line
    correct: bool | None  # whether they agree; None for targets such as numbers, where predictions are only near or far
    statistics: np.ndarray  # [S] float64, to be summed over examples
    confusion_pairs: tuple[tuple[str, str], ...] = ()  # expected and predicted labels, for a confusion matrix


class Baseline(NamedTuple):
    """A simple way to predict, learned from the training set, which a model should beat."""

    name: str  # "always predicting 'no'"
    statistics: np.ndarray  # [N,S] of the examples of the dev batches, in their order
    recipe: str | None = None  # that makes it, if one does


class HeadSettings(NamedTuple):
    """Settings of the head of a model."""

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()  # one per label; empty: all labels weigh the same
    kind: HeadKind = "softmax"
    pooling: Pooling | None = None  # for embedding models, like the next two; None: the recipe's
    objective: str | AnyObjective | None = None  # None: chosen by the data
    micro_batch: int | None = None


class ShellUsage(NamedTuple):
    """The commands that use a trained model; RUN stands for its folder."""

    text: str  # for one text
    file: str  # for a file of inputs
    then: tuple[str, ...] = ()  # further commands


# What the inputs and outputs of a model mean.


class ModelSpec(NamedTuple):
    """Schema, tokenizers, sizes and calibration of a model: everything besides its weights. Stored next to them."""

    schema: Schema
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    sizes: tuple[int, ...] = ()  # of inputs other than text: (D,) for vectors, (H, W, C) for pictures
    numbers: int = 0  # how many numbers a numeric target has
    max_length: int = 0  # tokens or steps of the longest training input; 0: unknown
    # Mean and standard deviation of each target number in the training set; for similarities minimum and range.
    units: tuple[tuple[float, float], ...] = ()
    calibration: Calibration = Calibration()
    max_target_length: int = 0  # tokens of the longest training target; 0: unknown, or the target is no text
    splitter: WordSplitter | None = None  # of raw text into words; None: at spaces

    @classmethod
    def of(cls, prepared: Prepared) -> "ModelSpec":
        """The spec of a model for prepared data."""
        columns, schema = prepared.columns, prepared.schema
        sizes = schema.input.sizes(columns["input"])
        numbers = schema.target.count(columns["target"]) if schema.target.measured else 0
        longest = int(columns["input"].lengths[prepared.splits["train"]].max(initial=0))
        tokenizers = prepared.tokenizer, prepared.target_tokenizer
        is_text = prepared.target_tokenizer is not None
        target = int(columns["target"].lengths[prepared.splits["train"]].max(initial=0)) if is_text else 0
        units, splitter = _units(prepared, numbers), prepared.splitter
        return cls(schema, *tokenizers, sizes, numbers, longest, units, max_target_length=target, splitter=splitter)


def _units(prepared: Prepared, numbers: int) -> tuple[tuple[float, float], ...]:
    """The units of each target number in the training set."""
    if not numbers:
        return ()
    chosen = prepared.columns["target"].select(prepared.splits["train"]).values.reshape(-1, numbers).astype(np.float64)
    if not len(chosen):
        return ((0.0, 1.0),) * numbers
    return prepared.schema.target.units(chosen)


# The four parts of every task.


class ModelMaker(ABC):
    """Builds the model."""

    name: ClassVar[TaskName]
    spec: ModelSpec
    heads: ClassVar[tuple[HeadKind, ...]] = ("softmax",)  # heads that its recipes may have
    settings: ClassVar[frozenset[Setting]] = frozenset()  # that its recipes accept
    default_recipe: ClassVar[tuple[ModelKind, str]]  # the kind of its recipes, and the default one

    def recipes(self) -> list[str]:
        """The names of the recipes for this task, the default first."""
        return names(*self.default_recipe)

    @abstractmethod
    def model(self, recipe: str, size: AnySize, head: HeadSettings) -> AnyModel:
        """The configuration that a recipe makes."""

    def adapted(self, model: AnyModel) -> AnyModel:
        """The configuration for fine-tuning another model: its encoder, with the head that this task needs."""
        self.require(model)
        return model

    @abstractmethod
    def require(self, model: AnyModel) -> None:
        """Raise ConfigError if a custom model does not fit: another shape, or another number of labels."""

    def default_label_smoothing(self, prepared: Prepared) -> float:
        """Return the label smoothing of a recipe if the user gives none."""
        return 0.0

    def default_head(self, recipe: str) -> HeadKind:
        """The head of a recipe if the user names none."""
        return self.heads[0]

    def require_settings(self, head: HeadSettings) -> None:
        """Raise ConfigError for label smoothing or class weights if the task does not use them."""
        if head.label_smoothing and "label_smoothing" not in self.settings:
            found = f"label smoothing is for single labels and text, but {self.name} has neither here"
            raise ConfigError(found, fix="leave it out")
        if head.class_weights and "class_weights" not in self.settings:
            found = f"class weights are for single labels and tags, but {self.name} has neither here"
            raise ConfigError(found, fix="leave them out")


class Batcher(ABC):
    """Turns examples into batches, and batches into a loss."""

    name: ClassVar[TaskName]
    spec: ModelSpec
    batchings: ClassVar[tuple[type, ...]] = (ByLengthConfig,)  # that the task supports

    def require_batching(self, model: nn.Module, batching: AnyBatching) -> None:
        """Raise ConfigError for a kind of batching that the task or this model does not support."""
        if not isinstance(batching, self.batchings):
            raise wrong_batching(self.name, batching)

    def has_one_shape(self, batching: AnyBatching) -> bool:
        """Whether all full batches have one shape, so that compiling once is enough."""
        schema = self.spec.schema
        fixed = schema.input.fixed_size and not schema.target.is_text
        return fixed or not isinstance(batching, ByLengthConfig)

    def make_loader(self, prepared: Prepared, split: SplitName, batching: AnyBatching, seed: int) -> Loader[Any, Any]:
        """The batches of a split; ConfigError for a kind of batching that the task does not support."""
        if not isinstance(batching, ByLengthConfig):
            raise wrong_batching(self.name, batching)
        return by_length(prepared, split, batch_tokens=batching.batch_tokens, seed=seed)

    def loader(
        self,
        prepared: Prepared,
        split: SplitName,
        batching: AnyBatching,
        *,
        seed: int,
        workers: int = WORKERS,
        rank: int = 0,
        ranks: int = 1,
    ) -> Loader[Any, Any]:
        """The batches of a split for one rank.

        Args:
            prepared: the data.
            split: train, dev or test.
            batching: how examples are grouped into batches.
            seed: decides the order of the batches.
            workers: processes that make batches.
            rank, ranks: which share of the batches, of how many.
        """
        steps = self.make_loader(prepared, split, batching, seed)
        return Loader(steps.plan, steps.make_batch, workers=workers, rank=rank, ranks=ranks)

    def loss(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[Loss, Any]:
        """The summed loss, and the state that the next step starts from (None if nothing is carried)."""
        return cast(Any, model).loss(batch), None

    def divided(self, model: nn.Module, pieces: int) -> "Division":
        """How a training step is computed in `micro_batches` (gradient accumulation).

        The loss of most tasks is a sum over rows, so a batch can be split. A contrastive loss compares the rows of a
        batch with each other and must see them all: it computes their vectors in chunks instead.
        """
        return Division(self, pieces)


class Division(NamedTuple):
    """How a step is computed in less memory; the gradient is that of the complete batch."""

    task: Batcher  # computes the loss of each micro-batch
    micro_batches: int
    message: str = ""  # shown to the user


def wrong_batching(task: TaskName, batching: AnyBatching) -> ConfigError:
    """The error for batching that only suits running text."""
    return ConfigError(
        f"--batching {batching.kind()} is for language models, but the task is {task}",
        fix="leave out --batching",
    )


class Evaluator(ABC):
    """Turns predictions into statistics of each example, and sums of these into metrics."""

    name: ClassVar[TaskName]
    spec: ModelSpec
    metrics: tuple[Metric, ...]  # that may choose the best checkpoint; the first one does
    statistics: int  # numbers that are kept for each example
    span_types: tuple[str, ...] = ()  # types of the spans that its tags mark, if they do
    floors: ClassVar[Mapping[str, float]] = MappingProxyType(
        {}
    )  # metrics below which predictions are useless for any data, by name
    weak: ClassVar[Mapping[str, float]] = MappingProxyType({})  # metrics below which a score is low, by name

    @property
    def metric(self) -> Metric:
        """The metric that chooses the best checkpoint."""
        return self.metrics[0]

    def default_metric(self, prepared: Prepared) -> str | None:
        """The metric that chooses checkpoints for this data; None: the first of `metrics`."""
        return None

    def with_metric(self, name: str | None) -> Self:
        """The same task with another metric to choose checkpoints; None: no change."""
        if name is None or name == self.metric.name:
            return self
        chosen, first = copy.copy(self), _decider(self.name, self.metrics, name)
        chosen.metrics = (first, *(metric for metric in self.metrics if metric != first))
        return chosen

    @abstractmethod
    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Any], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """The evaluated examples of a batch, and the state that the next batch starts from (None if none is carried).

        The last two statistics are always the loss and its weight.
        """

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """The sums [...,W] that `measure` takes: rows [N,S] added up, each `times` [...,N] times (default: once).

        Most tasks add the statistics themselves. A classifier keeps label numbers in a row and counts them here, so
        that a row for a thousand labels is not a thousand columns wide.
        """
        return statistics.sum(axis=0) if times is None else np.asarray(times @ statistics)

    @abstractmethod
    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """All metrics, each [...], of sums [...,W] from `summed`; among them `loss` and the metric that decides."""

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        """Metrics that are not functions of sums, from the statistics [N,S] of all examples; most tasks have none."""
        return {}

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """Metrics that are undefined for rows [N,S], by name, with the reason.

        F1 without any expected or predicted label is 0 by convention. Reports show it as undefined.
        """
        return {}

    def by_label(self, statistics: np.ndarray) -> dict[str, dict[str, float]]:
        """Per-class `precision`, `recall`, `f1` and `support` from all rows [N,S]; empty for tasks without labels.

        Labels come in the order of their numbers; labels that are neither expected nor predicted are left out.
        """
        return {}

    def signatures(self, statistics: np.ndarray) -> dict[str, str]:
        """Signatures of metrics, by name, as in sacreBLEU: the exact settings of each."""
        return {}

    def agreed(self, rows: np.ndarray, everyone: np.ndarray) -> np.ndarray:
        """Return rows [N,S] that follow the rule which all rows [M,S] of an evaluation choose together.

        If a metric has several rules and the data decides, slices, resamples and single rows must use the same rule.
        Most tasks have nothing to decide.
        """
        return rows

    def details(self, evaluated: EvaluatedExample) -> dict[str, Any]:
        """Further columns of an error file for one example: its own metrics."""
        sums = self.summed(evaluated.statistics[None])
        left_out = {"loss", *self.undefined(evaluated.statistics[None])}
        figures = {name: float(value) for name, value in self.measure(sums).items() if name not in left_out}
        return {name: value for name, value in figures.items() if np.isfinite(value)}

    def constant_baseline(self, train: Sequence[Batch[Any, Any]], dev: Sequence[Batch[Any, Any]]) -> Baseline | None:
        """The best prediction that ignores its input, such as the most frequent label; None if the task has none.

        It is learned from batches of the training set, for the metric that decides, and evaluated on batches of the
        dev or the test set. A model must beat it to have learned anything.
        """
        return None

    def simple_baseline(self, train: Sequence[Batch[Any, Any]], dev: Sequence[Batch[Any, Any]]) -> Baseline | None:
        """A simple prediction that uses its input, such as the most frequent tag of each word; None if it has none."""
        return None

    def expected_text(self, evaluated: EvaluatedExample, target: Target) -> str:
        """The expected output in one line, given the target as the data has it.

        Labels that are not in the training data have no number; only the data has their names.
        """
        return evaluated.expected


class Predictor(ABC):
    """Turns inputs into predictions."""

    spec: ModelSpec
    usage: ClassVar[ShellUsage] = ShellUsage('echo "some text" | seqloom predict RUN -', "seqloom predict RUN FILE")
    max_length: ClassVar[int | None] = None  # tokens or steps that are read of an input; None: as in training

    @property
    def input_spec(self) -> ModelSpec:
        """The spec of inputs for prediction: as in training, unless the task reads them differently.

        Raw text is split into words as the training data was.
        """
        if self.spec.splitter is None:
            return self.spec
        return self.spec._replace(schema=self.spec.schema._replace(input=RawWords(self.spec.splitter)))

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Any) -> Sequence[Prediction]:
        """The predictions for the rows of a batch of inputs, as the kind of input collates them."""


class Task(ModelMaker, Batcher, Evaluator, Predictor):
    """The purpose of a model: one class for each task, which contains all code that is specific to it."""

    VERB: ClassVar[str] = "predict"  # the command for its models, which errors name

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    @classmethod
    def check(
        cls,
        *,
        metric: str | None = None,
        head: HeadKind | None = None,
        settings: Sequence[str] = (),
        batching: AnyBatching | None = None,
    ) -> None:
        """Raise ConfigError for settings that the task does not have, before any data is read."""
        if metric is not None:
            _decider(cls.name, cls.metrics, metric)
        if head is not None and head not in cls.heads:
            why = ": a crf scores sequences of tags" if head == "crf" else ""
            raise ConfigError(f"{cls.name} has no '{head}' head{why}", fix=did_you_mean(head, cls.heads))
        if others := [name for name in settings if name not in cls.settings]:
            found = f"{', '.join(others)}: only for the task embed, but the task is {cls.name}"
            raise ConfigError(found, fix="use --task embed, or leave it out")
        if batching is not None and not isinstance(batching, cls.batchings):
            raise wrong_batching(cls.name, batching)

    def for_schema(self, found: Schema) -> "Task":
        """The task that evaluates the model on data of this schema; ConfigError if it cannot."""
        asked = self.spec.schema
        if (found.input, found.target) != (asked.input, asked.target):
            raise ConfigError(
                f"the model reads {asked.input} and predicts {asked.target}, but the data has {found.input} and "
                f"{found.target}",
                fix="name the columns with --input and --target",
            )
        return self


def _decider(task: TaskName, metrics: Sequence[Metric], name: str) -> Metric:
    """The metric of a name; ConfigError for one that cannot choose checkpoints."""
    possible = {metric.name: metric for metric in metrics}
    if name not in possible:
        raise ConfigError(f"{task} has no metric '{name}' to choose checkpoints by", fix=did_you_mean(name, possible))
    return possible[name]


# Abilities that only some tasks have: calibration, generating text, continuing a prompt, embedding.
#
# `Translator.of(task)` returns the task itself, typed as a translator, or raises the error for a model that cannot
# translate.


class Calibrator(Task):
    """A task whose probabilities are calibrated on the dev set."""

    readings: Mapping[str, Calibration] = MappingProxyType({})  # calibrations of single examples, by id

    @abstractmethod
    def fitted(self, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> Fitted:
        """The calibration of a model, fitted on the dev set."""

    def calibrated(self, calibration: Calibration, rows: Mapping[str, Calibration] = MappingProxyType({})) -> Self:
        """The same task with a calibration, and with others for the examples in `rows`, by id."""
        chosen = copy.copy(self)
        chosen.spec, chosen.readings = self.spec._replace(calibration=calibration), rows
        return chosen

    def reading_of(self, id_: str) -> Calibration:
        """The calibration for one example."""
        return self.readings.get(id_, self.spec.calibration)

    def temperatures(self, ids: Sequence[str]) -> Tensor:
        """[B,1] the temperature for each example."""
        return torch.tensor([[self.reading_of(id_).temperature] for id_ in ids], dtype=torch.float64)

    def for_validation(self, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> Self:
        """Return the task that validation uses to choose checkpoints; `batches` are the complete dev set.

        Single labels need no thresholds, so no batch is read.
        """
        return self


class Ability(Task):
    """Something that only some tasks can do."""

    LACKING: ClassVar[tuple[str, str]]  # the message for a task without it, and its fix

    @classmethod
    def of(cls, task: Task, asked: str = "") -> Self:
        """Return the same task, typed with this ability, or raise ConfigError. `asked` names the option."""
        if not isinstance(task, cls):
            found, fix = cls.LACKING
            raise ConfigError(found.format(task=task.name, asked=asked), fix=fix.format(verb=task.VERB))
        return task


class Writer(Ability):
    """A task whose predictions are text."""

    LACKING = (
        "'{asked}' is for models that generate text, but the task of this model is {task}",
        "leave it out",
    )
    decoding: AnyDecoding

    def writing(self, how: AnyDecoding) -> Self:
        """The same task with another decoding."""
        chosen = copy.copy(self)
        chosen.decoding = how
        return chosen


class Translator(Writer):
    """A task that generates a text for a source."""

    LACKING = ("this model cannot translate: its task is {task}", "use `seqloom {verb}`")
    VERB = "translate"

    @abstractmethod
    def copying(self, model: nn.Module) -> Self:
        """The same task with unknown replacement: words that the vocabulary lacks are copied from the source."""


class Continuer(Writer):
    """A task that continues prompts."""

    LACKING = (
        "generating text needs a language model, but the task of this model is {task}",
        "use `seqloom {verb}`",
    )
    VERB = "generate"

    @abstractmethod
    def continued(
        self, model: nn.Module, prompts: Sequence[str], numbers: Sequence[int]
    ) -> Sequence[Sequence[Prediction]]:
        """One continuation or several for each prompt; `numbers` pick the random stream of each."""

    @abstractmethod
    def streamed(self, model: nn.Module, prompt: str) -> Iterator[str]:
        """The continuation of a prompt, yielded as it is generated."""

    @abstractmethod
    def rows(self, model: nn.Module, prompt: str, number: int) -> list[ContinuousRow]:
        """The same as rows of a continuous batch, one for each sample; ConfigError for a beam."""

    @abstractmethod
    def continuation(self, row: ContinuousRow) -> Prediction:
        """The prediction of a row that is finished."""


class Streamer(Ability):
    """A task whose model can predict at each element of an endless sequence.

    The prediction at an element is the one of `predict` for everything read so far. For a tagger it is the last tag.
    """

    LACKING = (
        "this model cannot read a stream: its task is {task}",
        "use a model of the task lm, tag, classify or regress",
    )
    opening: ClassVar[tuple[int, ...]] = ()  # tokens to read before the first element
    closing: ClassVar[tuple[int, ...]] = ()  # tokens to read after each line

    @abstractmethod
    def answers_so_far(
        self, model: nn.Module, tokens: np.ndarray, scores: Tensor, memory: Any
    ) -> tuple[Sequence[Prediction], Any]:
        """Return one prediction for each new element, and the memory for the next call.

        Args:
            model: the model.
            tokens: [T] the elements, if they are tokens.
            scores: [T,K] the output of the model's head at each element.
            memory: the memory of the previous call; in the first call, the scores [K] after `opening`, or None.
        """


class Vectorizer(Ability):
    """A task whose model can embed a complete input."""

    LACKING = (
        "this model cannot embed texts: its task is {task}",
        "use a model of the task embed, classify or regress",
    )

    @abstractmethod
    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        """[N,D] the vector of each row of a batch."""

    @abstractmethod
    def vector_size(self, model: AnyModel) -> int:
        """The number of dimensions of these vectors."""


# The module of each task, by kind of target. Only the required one is imported.
TASKS = {
    "label": "seqloom.tasks.classify:Classify",
    "labels": "seqloom.tasks.classify:ClassifySeveral",
    "numbers": "seqloom.tasks.regress:Regress",
    "tags": "seqloom.tasks.tag:Tag",
    "series": "seqloom.tasks.regress:RegressSteps",
    "nothing": "seqloom.tasks.lm:LanguageModeling",
    "masked": "seqloom.tasks.masked:MaskedPrediction",
    "text": "seqloom.tasks.translate:Translate",
    "related": "seqloom.tasks.embed:Embed",
    "similarity": "seqloom.tasks.embed:EmbedScored",
}


def task_class(target: str) -> type[Task]:
    """Return the task for this kind of target, by its name."""
    found: type[Task] = pkgutil.resolve_name(TASKS[target])
    return found


def task_of(spec: ModelSpec) -> Task:
    """Return the task of a model, by the kinds of its data."""
    return task_class(spec.schema.target.name)(spec)
