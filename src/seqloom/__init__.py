"""Seqloom: a workbench for neural sequence models.

Public names are loaded when they are first used, so that `import seqloom` is quick and does not import torch.
"""

from typing import TYPE_CHECKING, Any

from seqloom.version import __version__

if TYPE_CHECKING:
    from seqloom import recipes
    from seqloom.config.models import model_from_json, model_from_toml, read_model
    from seqloom.data.check import check_data, load_data
    from seqloom.errors import SeqloomError
    from seqloom.experiments.compare.comparison import compare
    from seqloom.experiments.compare.results import Comparison
    from seqloom.importing.models import import_model
    from seqloom.inference.model import LoadedModel, load
    from seqloom.nn.ops.kernels import using
    from seqloom.nn.taps import recording
    from seqloom.nn.types import Batch, Loss, Padded, Pair
    from seqloom.search.embedding.bulk import embed_file
    from seqloom.training.run import Trained, train

__all__ = [
    "Batch",
    "Comparison",
    "LoadedModel",
    "Loss",
    "Padded",
    "Pair",
    "SeqloomError",
    "Trained",
    "__version__",
    "check_data",
    "compare",
    "embed_file",
    "import_model",
    "load",
    "load_data",
    "model_from_json",
    "model_from_toml",
    "read_model",
    "recipes",
    "recording",
    "train",
    "using",
]


def __getattr__(name: str) -> Any:
    if name == "recipes":
        from importlib import import_module

        return import_module("seqloom.recipes")
    if name in ("model_from_json", "model_from_toml", "read_model"):
        from seqloom.config import models

        return getattr(models, name)
    if name in ("check_data", "load_data"):
        from seqloom.data import check

        return getattr(check, name)
    if name in ("LoadedModel", "load"):
        from seqloom import inference

        return getattr(inference, name)
    if name == "embed_file":
        from seqloom.search import embedding

        return embedding.embed_file
    if name == "import_model":
        from seqloom import importing

        return importing.import_model
    if name in ("Comparison", "compare"):
        from seqloom.experiments import compare

        return getattr(compare, name)
    if name in ("Trained", "train"):
        from seqloom.training import run as training

        return getattr(training, name)
    if name == "SeqloomError":
        from seqloom import errors

        return errors.SeqloomError
    if name == "using":
        from seqloom.nn.ops import kernels

        return kernels.using
    if name == "recording":
        from seqloom.nn import taps

        return taps.recording
    if name in ("Batch", "Loss", "Padded", "Pair"):
        from seqloom.nn import types

        return getattr(types, name)
    raise AttributeError(f"module 'seqloom' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
