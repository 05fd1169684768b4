"""Runs without training: a folder as training leaves it, its model as it is drawn or with weights that answer."""

from pathlib import Path
from typing import Any

import msgspec
import torch

from seqloom.bundle import Bundle, bundle_files
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.tokenizers import FittedTokenizer
from seqloom.config.training import RunConfig, TrainingConfig
from seqloom.data.dataset import open_data
from seqloom.data.prepared import prepare
from seqloom.data.problems import Ledger
from seqloom.files.folders import commit_folder
from seqloom.tasks.task import HeadSettings, ModelSpec, task_of

TRAIN = "text,label\na good film,good\na bad film,bad\ngood,good\nbad bad,bad\n"
DEV = "text,label\nbad,bad\ngood film,good\na film good,good\n"
TEST = "text,label\na good good film,good\nbad film,bad\n"


def make_run(
    folder: Path,
    recipe: str = "bag",
    encoder: dict[str, Any] | None = None,
    tokenizer: FittedTokenizer | None = None,
    **settings: Any,
) -> Path:
    """A run folder with a model that was never trained; settings are those of the data, `encoder` changes its own."""
    config = open_data(DataConfig(**settings), Ledger()).config
    encoding = EncodingConfig() if tokenizer is None else EncodingConfig(tokenizer=tokenizer)
    prepared = prepare(open_data(config, Ledger()), encoding, Ledger())
    task = task_of(ModelSpec.of(prepared))
    model = task.model(recipe, "nano", HeadSettings())
    if encoder is not None:
        model = msgspec.structs.replace(model, encoder=msgspec.structs.replace(model.encoder, **encoder))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = model.build().state_dict()
    run = RunConfig(task=task.name, data=config, encoding=encoding, model=model, training=TrainingConfig())
    folder.mkdir()
    (folder / "config.toml").write_text(run.to_toml())
    commit_folder(folder / "model", bundle_files(Bundle(model, task.spec, weights, {}), "# A model\n"))
    return folder


def make_reviews(place: Path) -> dict[str, Any]:
    """The three files of a small set of reviews, as settings of the data."""
    for name, text in {"train": TRAIN, "dev": DEV, "test": TEST}.items():
        (place / f"{name}.csv").write_text(text)
    return {part: (str(place / f"{part}.csv"),) for part in ("train", "dev", "test")}
