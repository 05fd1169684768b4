"""What a language model writes when its training has ended: a few beginnings of dev texts, continued.

The weights are those in RUN/model. Tokens are sampled with a fixed seed, because the likeliest ones soon repeat.
"""

import re
from pathlib import Path

from seqloom.bundle import built, read_bundle
from seqloom.config.decoding import SampleConfig
from seqloom.data.kinds.text import cut_short
from seqloom.data.prepared import Prepared
from seqloom.errors import DataError
from seqloom.tasks.evaluation import answering
from seqloom.tasks.task import Continuer, Task
from seqloom.training.devices import Device
from seqloom.training.events import WrittenText

TEXTS = 2
PROMPT = 5  # words, or
CHARACTERS = 8  # of a text that is one word, or has no spaces
LONGEST_WORD = 30  # characters; a longer one is many words
HOW = SampleConfig(temperature=0.7, top_k=50, max_new_tokens=48, seed=0)
LAST_WORD = re.compile(r"\s+\S+$")
MOST_WEIGHTS = 50_000_000  # larger models are not loaded a second time


def written_texts(model: Path, task: Task, prepared: Prepared, device: Device) -> tuple[WrittenText, ...]:
    """The continuations; empty for tasks that do not continue texts, and for large models."""
    if not isinstance(task, Continuer) or not model.is_dir():
        return ()
    bundle = read_bundle(model)
    if bundle.config.parameters() > MOST_WEIGHTS:
        return ()
    prompts = prompts_of(prepared)
    loaded = built(bundle, device.torch)
    try:
        with answering(loaded):
            found = task.writing(HOW).continued(loaded, prompts, range(len(prompts)))
    except DataError:  # the model has no positions for what follows a prompt
        return ()
    shown = (texts[0].to_json() for texts in found)
    texts = (whole_words(one["text"]) if one["finish_reason"] == "length" else one["text"] for one in shown)
    return tuple(WrittenText(prompt, text) for prompt, text in zip(prompts, texts, strict=True))


def whole_words(text: str) -> str:
    """A text that ends at the limit of tokens, without its last word, which may be incomplete.

    >>> whole_words("and the night wa"), whole_words("nigh")
    ('and the night …', 'nigh…')
    """
    complete = LAST_WORD.sub(" …", text.rstrip())
    return complete if complete.strip() != "…" and complete.endswith(" …") else f"{text.rstrip()}…"


def prompts_of(prepared: Prepared) -> list[str]:
    """The first words of a few dev texts; an empty prompt without a dev set."""
    rows = [int(row) for row in prepared.splits["dev"][:TEXTS]]
    texts = (cut_short(prepared.dev_texts.get(row, "")) or prepared.shown(row) for row in rows)
    return [beginning(text.rstrip("…")) for text in texts] or [""]


def beginning(text: str) -> str:
    """The first words of a text, at most half of it; of one word, the first characters.

    >>> beginning("the night was dark and the rain has stopped"), beginning("all: resolved. closed"), beginning("emma")
    ('the night was dark', 'all:', 'em')
    >>> beginning("今天天气很好我们去公园散步")
    '今天天气很好'
    """
    words, first = text.split(), list[str]()
    for word in words[: min(PROMPT, max(1, len(words) // 2))]:
        if len(words) == 1 or len(word) > LONGEST_WORD:
            first.append(word[: min(CHARACTERS, max(1, len(word) // 2))])
            break
        first.append(word)
    return " ".join(first)
