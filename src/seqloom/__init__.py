"""Seqloom: a workbench for neural sequence models.

Public names are loaded when they are first used, so that `import seqloom` is quick and does not import torch.
"""

from typing import TYPE_CHECKING, Any

from seqloom.lazy import loading
from seqloom.version import __version__

if TYPE_CHECKING:
    from seqloom import recipes, vectors
    from seqloom.config.models import model_from_json, model_from_toml, read_model
    from seqloom.data.check import check_data, load_data
    from seqloom.data.clean import clean_data
    from seqloom.errors import SeqloomError
    from seqloom.experiments.auto.race import auto
    from seqloom.experiments.auto.results import Leaderboard
    from seqloom.experiments.compare.comparison import compare
    from seqloom.experiments.compare.results import Comparison
    from seqloom.importing.models import import_model
    from seqloom.inference.model import LoadedModel, load
    from seqloom.nn.ops.kernels import using
    from seqloom.nn.taps import recording
    from seqloom.nn.types import Batch, Loss, Padded, Pair
    from seqloom.search.embedding.bulk import embed_file
    from seqloom.training.run import TrainedRun, train

__all__ = [
    "Batch",
    "Comparison",
    "Leaderboard",
    "LoadedModel",
    "Loss",
    "Padded",
    "Pair",
    "SeqloomError",
    "TrainedRun",
    "__version__",
    "auto",
    "check_data",
    "clean_data",
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
    "vectors",
]


HOMES = {
    "config.models": ("model_from_json", "model_from_toml", "read_model"),
    "data.check": ("check_data", "load_data"),
    "data.clean": ("clean_data",),
    "errors": ("SeqloomError",),
    "experiments.auto.race": ("auto",),
    "experiments.auto.results": ("Leaderboard",),
    "experiments.compare.comparison": ("compare",),
    "experiments.compare.results": ("Comparison",),
    "importing.models": ("import_model",),
    "inference.model": ("LoadedModel", "load"),
    "nn.ops.kernels": ("using",),
    "nn.taps": ("recording",),
    "nn.types": ("Batch", "Loss", "Padded", "Pair"),
    "search.embedding.bulk": ("embed_file",),
    "training.run": ("TrainedRun", "train"),
}
_load = loading(__name__, HOMES)


def __getattr__(name: str) -> Any:
    if name == "recipes":
        from importlib import import_module

        return import_module("seqloom.recipes")
    if name == "vectors":
        from importlib import import_module

        return import_module("seqloom.vectors")
    return _load(name)


def __dir__() -> list[str]:
    return __all__
