"""A small bundle in a folder, and what is needed to change one as an attacker would."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seqloom.bundle import Bundle, bundle_files
from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.schema import Schema
from seqloom.files.folders import commit_folder
from seqloom.tasks.task import ModelSpec
from seqloom.text.tokenizer import fit

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def classifier() -> Bundle:
    """A classifier of two labels with fixed weights, a few hundred numbers."""
    tokenizer = fit(WordsConfig(), ["a good film", "a bad film"])
    encoder = EncoderConfig(width=4, input=TokensConfig(vocab_size=tokenizer.vocab_size))
    config = SequenceModelConfig(encoder=encoder, head=ClassHeadConfig(num_classes=2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        weights = config.build().state_dict()
    spec = ModelSpec(Schema("text", "label", ("bad", "good")), tokenizer, None)
    return Bundle(config, spec, weights, {"dev": {"accuracy": 0.5}})


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a bundle, some of its files replaced, under a manifest that is right for what it holds."""

    def written(bundle: Bundle, name: str = "model", **changed: bytes | None) -> Path:
        files = bundle_files(bundle, "# A model\n")
        files |= {file.replace("__", "."): data for file, data in changed.items() if data is not None}
        for file, data in changed.items():
            if data is None:
                del files[file.replace("__", ".")]
        commit_folder(tmp_path / name, files)
        return tmp_path / name

    return written
