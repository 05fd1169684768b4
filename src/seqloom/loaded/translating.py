"""A model asked to translate: with a beam unless something else is said, and with words copied where that is wanted."""

from typing import Any

from torch import nn

from seqloom.config.decoding import AnyDecoding, decoding
from seqloom.errors import ConfigError
from seqloom.tasks.contract import Task
from seqloom.tasks.translate import Translate

WIDTH = 5  # texts that are written side by side


def translating(
    task: Task, model: nn.Module, given: AnyDecoding | None, settings: dict[str, Any], *, replace_unknown: bool
) -> Translate:
    """The task as it is asked here; ConfigError for a model of another task.

    `settings` are those of a beam, `given` is a whole way to write.
    """
    if not isinstance(task, Translate):
        raise ConfigError(
            f"the task of this model is {task.name}, and it translates nothing", fix="ask it with predict"
        )
    if given is not None and settings:
        raise ConfigError(f"decoding says everything, and so would {', '.join(settings)}", fix="leave one out")
    how = decoding(**({"width": WIDTH} | settings)) if given is None else given
    writing = task.writing(how)
    return writing.copying(model) if replace_unknown else writing
