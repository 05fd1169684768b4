"""Files of a checkpoint: JSON of a limited size, and weights in safetensors.

Pickles can run arbitrary code when they are opened, so none is read.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec
from torch import Tensor

from seqloom.errors import ConfigError, near_name
from seqloom.files.tensors import TensorHeader, from_bytes, read_header

LARGEST_JSON = 64 << 20  # bytes; tokenizer.json of a large vocabulary has a few MB
WEIGHTS = "model.safetensors"
SEVERAL = "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
FOREIGN = ("*.h5", "*.msgpack", "*.onnx", "*.ckpt.index", "*.gguf")

Read = TypeVar("Read")


def read_json(path: Path, form: type[Read]) -> Read:
    """The content of a JSON file, converted to `form`."""
    try:
        if (size := path.stat().st_size) > LARGEST_JSON:
            raise ConfigError(
                f"{path}: the file has {size:,} bytes; the limit is {LARGEST_JSON:,}", fix="is it the right file?"
            )
        return msgspec.json.decode(path.read_bytes(), type=form)
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing", fix=near_name(path)) from None
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise ConfigError(f"{path}: {str(error)[:200]}", fix="use the file that belongs to the weights") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file does not exist."""
    return read_json(path, dict[str, Any]) if path.exists() else {}


class WeightsFile:
    """A file of weights; its header is read before any tensor is created."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / WEIGHTS
        if not self.path.is_file():
            raise _no_weights(folder)
        self._data = self.path.read_bytes()
        self.header: TensorHeader = read_header(self._data, str(self.path))

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by their names in the file."""
        return from_bytes(self._data, str(self.path))[0]


def _no_weights(folder: Path) -> ConfigError:
    """The error for a folder without readable weights."""
    if (folder / SEVERAL).exists():
        return ConfigError(f"{folder}: its weights are in several files", fix=f"save them as one {WEIGHTS}")
    for patterns, why in ((PICKLED, "a pickle, which could run code and is never read"), (FOREIGN, "not supported")):
        for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
            fix = f"convert it to {WEIGHTS} where you trust it: safetensors.torch.save_file"
            return ConfigError(f"{folder} has no {WEIGHTS}; {path.name} is {why}", fix=fix)
    return ConfigError(f"{folder} has no {WEIGHTS}", fix="give the folder with config.json, tokenizer.json and weights")
