"""Going on with texts: prompts in batches of about one length, answered, put back in order."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import nn

from seqloom.config.decoding import AnyDecoding, decoding
from seqloom.errors import ConfigError
from seqloom.loaded.predicting import batches
from seqloom.tasks.contract import Prediction, Task
from seqloom.text.contract import require_whole

USUAL = 64  # symbols that an answer is taken to have, where nothing else is said, to make batches


def chosen(given: AnyDecoding | None, settings: dict[str, Any]) -> AnyDecoding:
    """The way to write: the one that is given, or the simplest that has these settings."""
    if given is not None and settings:
        raise ConfigError(f"decoding says everything, and so would {', '.join(settings)}", fix="leave one out")
    return decoding(**settings) if given is None else given


def generate(
    task: Task, model: nn.Module, prompts: Iterable[str], how: AnyDecoding, *, budget: int
) -> list[Sequence[Prediction]]:
    """What follows each prompt, in order; `budget` is how many symbols a batch holds. A prompt draws by its place."""
    if isinstance(prompts, str):
        raise ConfigError("prompts are a list, found one text", fix="put it in [ ]")
    writing, texts = task.writing(how), list(prompts)
    for number, text in enumerate(texts, 1):
        _require_text(text, number)
    sizes = np.array([len(text) for text in texts]) + (how.longest or USUAL)
    said: dict[int, Sequence[Prediction]] = {}
    for rows in batches(sizes * how.abreast, budget) if texts else []:
        chosen = rows.tolist()
        said |= zip(chosen, writing.continued(model, [texts[row] for row in chosen], chosen), strict=True)
    return [said[row] for row in range(len(texts))]


def stream(task: Task, model: nn.Module, prompt: str, how: AnyDecoding) -> Iterator[str]:
    """What follows one prompt, piece by piece as it is written."""
    _require_text(prompt, 1)
    return task.writing(how).streamed(model, prompt)


def _require_text(text: Any, number: int) -> None:
    if not isinstance(text, str):
        raise ConfigError(f"prompt {number:,} is no text but {type(text).__name__}", fix="give str only")
    require_whole(text, f"prompt {number:,}")
