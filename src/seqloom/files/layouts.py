"""What a run folder and a model folder hold: every name once.

RUN/                                             RUN/model/, or a model folder by itself
  config.toml     everything that was chosen       model.safetensors        the weights
  data.json       sums of the files, the split     config.json              what the model is made of
  places.json     where its files lie              labels.json              in the order of their numbers
  vocabulary/     labels, tokenizers               tokenizer.json           of the input, if it is text
  checkpoints/    step-00000020/, ...              target_tokenizer.json    of a target text with its own
  model/          the weights that are shipped     card.md                  what people should know about it
  metrics.jsonl   numbers that equal runs share    manifest.json            size and sha256 of each
  events.jsonl    what depends on the machine
  looks.jsonl     one line for each evaluation of the test part
  memory.json     in how many pieces a step fits into memory
  report.html   card.md   tensorboard/   .lock
"""

from enum import StrEnum


class RunFile(StrEnum):
    """The files and folders in the folder of a run."""

    CONFIG = "config.toml"
    DATA = "data.json"
    PLACES = "places.json"
    VOCABULARY = "vocabulary"
    CHECKPOINTS = "checkpoints"
    MODEL = "model"
    METRICS = "metrics.jsonl"
    EVENTS = "events.jsonl"
    LOOKS = "looks.jsonl"
    MEMORY = "memory.json"
    REPORT = "report.html"
    CARD = "card.md"
    TENSORBOARD = "tensorboard"


class VocabularyFile(StrEnum):
    """The files in the vocabulary of a run."""

    LABELS = "labels.json"
    SCHEMA = "schema.json"
    TOKENIZER = "tokenizer.json"
    TARGET_TOKENIZER = "target_tokenizer.json"


class CheckpointFile(StrEnum):
    """The files of a checkpoint beside its tensors."""

    STANDING = "standing.json"
    MACHINE = "machine.json"


class ModelFile(StrEnum):
    """The files of a model folder beside its manifest."""

    WEIGHTS = "model.safetensors"
    CONFIG = "config.json"
    CARD = "card.md"
    LABELS = "labels.json"
    TOKENIZER = "tokenizer.json"
    TARGET_TOKENIZER = "target_tokenizer.json"
