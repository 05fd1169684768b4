"""Seqloom: a workbench for neural sequence models.

Public names are loaded when they are first used, so that `import seqloom` is quick and does not import torch.
"""

from typing import TYPE_CHECKING, Any

from seqloom.version import __version__

if TYPE_CHECKING:
    from seqloom import recipes
    from seqloom.comparing import Comparison, compare
    from seqloom.config.models import model_from_json, model_from_toml, read_model
    from seqloom.data.front import check_data, load_data
    from seqloom.embedding import embed_file
    from seqloom.errors import SeqloomError
    from seqloom.importing import import_model
    from seqloom.loaded import LoadedModel, load
    from seqloom.operators.kernels import using
    from seqloom.taps import recording
    from seqloom.training.front import Trained, train
    from seqloom.types import Batch, Loss, Padded, Pair

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
        from seqloom.data import front

        return getattr(front, name)
    if name in ("LoadedModel", "load"):
        from seqloom import loaded

        return getattr(loaded, name)
    if name == "embed_file":
        from seqloom import embedding

        return embedding.embed_file
    if name == "import_model":
        from seqloom import importing

        return importing.import_model
    if name in ("Comparison", "compare"):
        from seqloom import comparing

        return getattr(comparing, name)
    if name in ("Trained", "train"):
        from seqloom.training import front as training

        return getattr(training, name)
    if name == "SeqloomError":
        from seqloom import errors

        return errors.SeqloomError
    if name == "using":
        from seqloom.operators import kernels

        return kernels.using
    if name == "recording":
        from seqloom import taps

        return taps.recording
    if name in ("Batch", "Loss", "Padded", "Pair"):
        from seqloom import types

        return getattr(types, name)
    raise AttributeError(f"module 'seqloom' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
