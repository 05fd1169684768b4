"""Going on with texts: prompts in batches of about one length, answered, put back in order.

A prompt that the model cannot read is a bad row of whoever asks: all of them are told before any work, or, with a
ledger of the kind `Told`, kept there while the others are answered.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from seqloom.config.decoding import AnyDecoding, decoding
from seqloom.data.problems import Ledger, Place
from seqloom.errors import ConfigError
from seqloom.inference.prediction import NO_LIMIT, GivenInputs, batches, tell_too_long
from seqloom.nn.models import LanguageModel
from seqloom.tasks.encoders import longest_input
from seqloom.tasks.task import Continuer, Prediction, Task, Translator
from seqloom.text.cutter import require_whole
from seqloom.text.special_tokens import UNKNOWN

USUAL = 64  # symbols that an answer is taken to have, where nothing else is said, to make batches
SHOWN = 5  # unknown words of a prompt


class Prompt(NamedTuple):
    """A text to go on with, and where it stood."""

    text: str
    place: Place


Answered = tuple[int, Sequence[Prediction]]  # the number of a prompt, and what follows it


def chosen(given: AnyDecoding | None, settings: dict[str, Any]) -> AnyDecoding:
    """The way to write: the one that is given, or the simplest that has these settings."""
    if given is not None and settings:
        raise ConfigError(f"decoding says everything, and so would {', '.join(settings)}", fix="leave one out")
    return decoding(settings) if given is None else given


def generate(
    task: Task, model: nn.Module, prompts: Iterable[str], how: AnyDecoding, *, budget: int
) -> list[Sequence[Prediction]]:
    """What follows each prompt, in order; `budget` is how many symbols a batch holds. A prompt draws by its place."""
    if isinstance(prompts, str):
        raise ConfigError("prompts are a list, found one text", fix="put it in [ ]")
    given = [Prompt(_required(text, number), Place("prompts", number)) for number, text in enumerate(prompts, 1)]
    return [
        answers for _, answers in sorted(answered(task, model, given, how, GivenInputs(), budget=budget), key=by_number)
    ]


def answered(
    task: Task, model: nn.Module, prompts: Sequence[Prompt], how: AnyDecoding, ledger: Ledger, *, budget: int
) -> Iterator[Answered]:
    """The number of each prompt that the model can read with what follows it, batch by batch, the longest first.

    A prompt draws by its place.
    """
    writing = Continuer.of(task).writing(how)
    fit = _fitting(task, model, prompts, ledger)
    sizes = np.array([len(prompts[row].text) for row in fit]) + (how.longest or USUAL)
    for places in batches(sizes * how.abreast, budget) if fit else []:
        rows = [fit[place] for place in places.tolist()]
        yield from zip(rows, writing.continued(model, [prompts[row].text for row in rows], rows), strict=True)


def by_number(answer: Answered) -> int:
    """The number of its prompt, to put answers in order."""
    return answer[0]


def _fitting(task: Task, model: nn.Module, prompts: Sequence[Prompt], ledger: Ledger) -> list[int]:
    """The numbers of the prompts that the model has positions for; the others are bad rows."""
    tokenizer, most = task.meaning.tokenizer, longest_input(cast(LanguageModel, model).config)
    assert tokenizer is not None, "who goes on with text has a tokeniser"
    lengths = tokenizer.encode([prompt.text for prompt in prompts]).lengths.tolist() if prompts else []
    limit = NO_LIMIT if most is None else most
    for prompt, length in zip(prompts, lengths, strict=True):
        if length > limit:
            tell_too_long(length, limit, prompt.place, ledger)
    fit = [row for row, length in enumerate(lengths) if length <= limit]
    ledger.rows = len(fit)
    ledger.close()
    return fit


def warn_of_unknown(task: Task, prompts: Sequence[Prompt], ledger: Ledger) -> None:
    """Warn in the ledger of each prompt with words, or characters, that the model does not know."""
    tokenizer = task.meaning.tokenizer
    if tokenizer is None or not tokenizer.has_unknown or not prompts:
        return
    symbols = tokenizer.encode([prompt.text for prompt in prompts])
    for prompt in (prompt for row, prompt in enumerate(prompts) if UNKNOWN in symbols.row(row)):
        pieces = tokenizer.encode_with_offsets(prompt.text)
        spans = pieces.spans[pieces.symbols == UNKNOWN].tolist()
        words = list(dict.fromkeys(prompt.text[start:stop] for start, stop in spans))
        more = f" and {len(words) - SHOWN:,} more" if len(words) > SHOWN else ""
        lacks = ", ".join(f"'{word}'" for word in words[:SHOWN]) + more
        text = f"the model does not know {lacks}, and reads all unknown words alike"
        ledger.warn("prompt.unknown", text, prompt.place, "subwords (--tokenizer bpe) can read every word")


def stream(task: Task, model: nn.Module, prompt: str, how: AnyDecoding) -> Iterator[str]:
    """What follows one prompt, piece by piece as it is written."""
    return Continuer.of(task).writing(how).streamed(model, _required(prompt, 1))


def _required(text: Any, number: int) -> str:
    """The same text, if it is one."""
    if not isinstance(text, str):
        raise ConfigError(f"prompt {number:,} is no text but {type(text).__name__}", fix="give str only")
    require_whole(text, f"prompt {number:,}")
    return str.__str__(text)


# A model asked to translate: with a beam unless something else is said, and with words copied where that is wanted.

WIDTH = 5  # texts that are written side by side


def translating(
    task: Task, model: nn.Module, given: AnyDecoding | None, settings: dict[str, Any], *, replace_unknown: bool
) -> Task:
    """The task as it is asked here; ConfigError for a model of another task.

    `settings` are those of a beam, `given` is a whole way to write.
    """
    how = chosen(given, settings if given is not None else {"width": WIDTH} | settings)
    asked = Translator.of(task).writing(how)
    return asked.copying(model) if replace_unknown else asked
