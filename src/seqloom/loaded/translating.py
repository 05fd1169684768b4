"""A model asked to translate: with a beam unless something else is said, and with words copied where that is wanted."""

from typing import Any

from torch import nn

from seqloom.config.decoding import AnyDecoding, decoding
from seqloom.errors import ConfigError
from seqloom.tasks.contract import Task

WIDTH = 5  # texts that are written side by side


def translating(
    task: Task, model: nn.Module, given: AnyDecoding | None, settings: dict[str, Any], *, replace_unknown: bool
) -> Task:
    """The task as it is asked here; ConfigError for a model of another task.

    `settings` are those of a beam, `given` is a whole way to write.
    """
    if given is not None and settings:
        raise ConfigError(f"decoding says everything, and so would {', '.join(settings)}", fix="leave one out")
    how = decoding(**({"width": WIDTH} | settings)) if given is None else given
    asked = task.translating(how)
    return asked.copying(model) if replace_unknown else asked
