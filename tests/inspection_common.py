"""What the tests of inspection share: subjects of every shape and family, small and untrained unless said."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from seqloom.data.check import load_data
from seqloom.inspect.subject import Subject, encoding
from seqloom.nn.models import EncoderDecoder, LanguageModel
from seqloom.tasks.encoders import longest_input
from seqloom.tasks.task import HeadSettings, ModelSpec, Task, task_of
from seqloom.text.special_tokens import END

LINES = {
    "classify": ("a.csv", "text,label\n", ["the cat sat on the mat,yes", "a dog ran to the big house,no"]),
    "tag": ("a.conll", "", ["the O\ncat B-X\nsat O\n", "a O\nbig B-X\ndog I-X\n"]),
    "lm": ("a.txt", "", ["the cat sat on the mat", "a dog ran to the big house"]),
    "translate": ("a.tsv", "source\ttarget\n", ["the cat sat\tle chat assis", "a big dog\tun grand chien"]),
    "embed": ("a.csv", "first,second\n", ["the cat sat,a cat was sitting", "a dog ran,the dog was running"]),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "translate": {"task": "translate", "input": ("source",), "target": "target", "tokenizer": "words"},
    "embed": {"task": "embed", "input": ("first", "second")},
    "lm": {"task": "lm"},
}


def task_on(folder: Path, name: str, *, rows: Sequence[str] | None = None, **settings: Any) -> Task:
    """A task on a few lines, twelve times over; `rows` are lines of one's own."""
    file, head, lines = LINES[name]
    path = folder / file
    joint = "\n" if name == "tag" else ""
    path.write_text(head + "".join(f"{line}\n{joint}" for line in list(rows or lines) * 12), encoding="utf-8")
    chosen = SETTINGS.get(name, {}) | settings
    return task_of(ModelSpec.of(load_data(path, **chosen)))


def subject_of(task: Task, recipe: str | None = None, *, size: Any = "nano", seed: int = 1, **head: Any) -> Subject:
    """A subject with a fresh model in evaluation mode, the same one for the same seed."""
    config = task.model(recipe or task.recipes()[0], size, HeadSettings(**head))
    return subject_with(task, config, seed=seed)


def subject_with(task: Task, config: Any, *, seed: int = 1) -> Subject:
    """The same with a configuration of one's own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = config.build()
    if isinstance(model, EncoderDecoder | LanguageModel):
        with torch.no_grad():
            model.head.bias[END] += 1.0  # or it would write for ever before it has learned to stop
    room = longest_input(config)
    return Subject(task, config, model.eval(), encoding(task, 1_000_000, room, torch.device("cpu")))


def make_paths_differ(tagger: Subject) -> None:
    """The tag I-X is likeliest everywhere, so that the likeliest tags by themselves are no lawful path."""
    with torch.no_grad():
        head: Any = tagger.model.head
        head.linear.bias[tagger.column("I-X")] += 2.0
        if hasattr(head, "between"):
            head.between += 6 * torch.randn(head.between.shape, generator=torch.Generator().manual_seed(3))
