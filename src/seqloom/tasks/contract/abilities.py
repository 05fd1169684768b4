"""What only some tasks can do with a model: write text, go on with it, give vectors. The others refuse, in words."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from seqloom.config.data import Task as TaskName
from seqloom.config.decoding import AnyDecoding
from seqloom.config.models import AnyModel
from seqloom.errors import ConfigError
from seqloom.tasks.contract.values import Prediction


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
