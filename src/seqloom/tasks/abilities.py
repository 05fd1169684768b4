"""The parts that only some tasks have: a calibration, writing text, going on with it, making vectors.

`Translator.of(task)` is the same task with the methods of the part, or the one refusal of whoever asks a classifier for
a translation. Nothing here stands in the other tasks, not even as a method that raises.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from seqloom.config.decoding import AnyDecoding, GreedyConfig
from seqloom.config.models import AnyModel
from seqloom.errors import ConfigError
from seqloom.metrics.calibration import Calibration, Fitted
from seqloom.nn.types import Batch
from seqloom.tasks.task import Prediction, Task


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
