"""The names of all files in a run folder and in a model folder.

RUN/                                             RUN/model/, or a separate model folder
  config.toml     the complete configuration       model.safetensors        the weights
  data.json       hashes of the files, the split   config.json              the configuration of the model
  paths.json      where the data files are         labels.json              in the order of their ids
  vocabulary/     labels, tokenizers               tokenizer.json           of the input, if it is text
  checkpoints/    step-00000020/, ...              target_tokenizer.json    of a target text with its own
  model/          the best weights                 words.json               how a tagger splits raw text into words
  metrics.jsonl   numbers that equal runs share    card.md                  the model card
  events.jsonl    what depends on the machine:     manifest.json            size and sha256 of each file
                  speed, memory, times             estimator.json           of a scikit-learn estimator, if saved by one
  test_evaluations.jsonl   one line for each evaluation on the test set
  memory.json     how many micro-batches a step needs, if memory ran out
  report.html   card.md   tensorboard/   .lock
"""

from enum import StrEnum


class RunFile(StrEnum):
    """The files and folders in a run folder."""

    CONFIG = "config.toml"
    DATA = "data.json"
    PATHS = "paths.json"
    VOCABULARY = "vocabulary"
    CHECKPOINTS = "checkpoints"
    MODEL = "model"
    METRICS = "metrics.jsonl"
    EVENTS = "events.jsonl"
    TEST_EVALUATIONS = "test_evaluations.jsonl"
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
    """The files of a checkpoint besides its tensors."""

    STATE = "state.json"
    MACHINE = "machine.json"


class ModelFile(StrEnum):
    """The files of a model folder besides its manifest."""

    WEIGHTS = "model.safetensors"
    CONFIG = "config.json"
    CARD = "card.md"
    LABELS = "labels.json"
    TOKENIZER = "tokenizer.json"
    TARGET_TOKENIZER = "target_tokenizer.json"
    ESTIMATOR = "estimator.json"
    WORDS = "words.json"


OLD_STATE = "standing.json"  # in checkpoints of an earlier version, which cannot be resumed
