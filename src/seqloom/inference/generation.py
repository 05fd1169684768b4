"""Text generation: prompts in batches by length, continuations in the order of the prompts.

Prompts that the model cannot read are bad rows. They are reported before any work, or kept by a `BadRowLedger` while
the others are continued.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from seqloom.config.decoding import BEAM_SIZE, AnyDecoding, decoding
from seqloom.data.problems import Ledger, Place
from seqloom.errors import ConfigError
from seqloom.inference.prediction import NO_LIMIT, GivenInputs, batches, report_too_long
from seqloom.nn.models import LanguageModel
from seqloom.tasks.encoders import longest_input
from seqloom.tasks.task import Continuer, Prediction, Task, Translator
from seqloom.text.segmenter import require_whole
from seqloom.text.special_tokens import UNKNOWN

ASSUMED_LENGTH = 64  # tokens of a continuation, to plan batches, if max_new_tokens is not given
SHOWN = 5  # unknown words of a prompt


class Prompt(NamedTuple):
    """A text to continue, and its place in a file."""

    text: str
    place: Place


Answered = tuple[int, Sequence[Prediction]]  # the index of a prompt, and its continuations


def chosen(given: AnyDecoding | None, settings: dict[str, Any]) -> AnyDecoding:
    """The decoding that is given, or the simplest one with these settings."""
    if given is not None and settings:
        raise ConfigError(
            f"both decoding and {', '.join(settings)} are given", fix="set them in decoding, or leave decoding out"
        )
    return decoding(settings) if given is None else given


def generate(
    task: Task, model: nn.Module, prompts: Iterable[str], how: AnyDecoding, *, batch_tokens: int
) -> list[Sequence[Prediction]]:
    """The continuations of each prompt, in order. Samples of a prompt depend on the seed and its index."""
    if isinstance(prompts, str):
        raise ConfigError("prompts must be a list, found one text", fix="put it in [ ]")
    given = [Prompt(_required(text, number), Place("prompts", number)) for number, text in enumerate(prompts, 1)]
    return [
        answers
        for _, answers in sorted(
            answered(task, model, given, how, GivenInputs(), batch_tokens=batch_tokens), key=by_number
        )
    ]


def answered(
    task: Task, model: nn.Module, prompts: Sequence[Prompt], how: AnyDecoding, ledger: Ledger, *, batch_tokens: int
) -> Iterator[Answered]:
    """The index of each readable prompt with its continuations, batch by batch, the longest first.

    Samples of a prompt depend on the seed and its index.
    """
    writing = Continuer.of(task).writing(how)
    fit = _fitting(task, model, prompts, ledger)
    sizes = np.array([len(prompts[row].text) for row in fit]) + (how.max_new_tokens or ASSUMED_LENGTH)
    for places in batches(sizes * how.abreast, batch_tokens) if fit else []:
        rows = [fit[place] for place in places.tolist()]
        yield from zip(rows, writing.continued(model, [prompts[row].text for row in rows], rows), strict=True)


def by_number(answer: Answered) -> int:
    """The sort key that puts answers in the order of the prompts."""
    return answer[0]


def _fitting(task: Task, model: nn.Module, prompts: Sequence[Prompt], ledger: Ledger) -> list[int]:
    """The indices of the prompts that the model has positions for; the others are bad rows."""
    tokenizer, most = task.spec.tokenizer, longest_input(cast(LanguageModel, model).config)
    assert tokenizer is not None, "a language model has a tokenizer"
    lengths = tokenizer.encode([prompt.text for prompt in prompts]).lengths.tolist() if prompts else []
    limit = NO_LIMIT if most is None else most
    for prompt, length in zip(prompts, lengths, strict=True):
        if length > limit:
            report_too_long(length, limit, prompt.place, ledger)
    fit = [row for row, length in enumerate(lengths) if length <= limit]
    ledger.rows = len(fit)
    ledger.close()
    return fit


def warn_of_unknown(task: Task, prompts: Sequence[Prompt], ledger: Ledger) -> None:
    """Warn of each prompt with words or characters that the vocabulary lacks."""
    tokenizer = task.spec.tokenizer
    if tokenizer is None or not tokenizer.has_unknown or not prompts:
        return
    tokens = tokenizer.encode([prompt.text for prompt in prompts])
    for prompt in (prompt for row, prompt in enumerate(prompts) if UNKNOWN in tokens.row(row)):
        pieces = tokenizer.encode_with_offsets(prompt.text)
        spans = pieces.spans[pieces.tokens == UNKNOWN].tolist()
        words = list(dict.fromkeys(prompt.text[start:stop] for start, stop in spans))
        more = f" and {len(words) - SHOWN:,} more" if len(words) > SHOWN else ""
        lacks = ", ".join(f"'{word}'" for word in words[:SHOWN]) + more
        text = f"not in the vocabulary: {lacks}; the model reads them as the unknown token"
        ledger.warn("prompt.unknown", text, prompt.place, "subwords (--tokenizer bpe) can read every word")


def stream(task: Task, model: nn.Module, prompt: str, how: AnyDecoding) -> Iterator[str]:
    """The continuation of one prompt, yielded as it is generated."""
    return Continuer.of(task).writing(how).streamed(model, _required(prompt, 1))


def _required(text: Any, number: int) -> str:
    """Return the text; raise ConfigError if it is not a string."""
    if not isinstance(text, str):
        raise ConfigError(f"prompt {number:,} is not a string but {type(text).__name__}", fix="give str only")
    require_whole(text, f"prompt {number:,}")
    return str.__str__(text)


# Translation: with a beam by default, and with unknown words copied on request.


def translating(
    task: Task, model: nn.Module, given: AnyDecoding | None, settings: dict[str, Any], *, replace_unknown: bool
) -> Task:
    """The task with this decoding; ConfigError for a model that cannot translate.

    `settings` are those of a beam, `given` is a complete decoding.
    """
    how = chosen(given, settings if given is not None else {"beam_size": BEAM_SIZE} | settings)
    translator = Translator.of(task).writing(how)
    return translator.copying(model) if replace_unknown else translator
