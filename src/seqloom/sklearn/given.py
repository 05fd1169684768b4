"""What X and y are, and the file that training reads: nothing enters a model but through the readers of data.

X    texts                     ["a fine film", ...]          one column, a list, or an array of texts
     pairs of texts            [("a man", "a boy"), ...]     tuples of two, or an array [N,2] of texts
     sentences                 [["No", "way"], ...]          lists of words
     vectors                   [N,D], [N,T,D] or a list of [T,D]; a row of [N,D] is a sequence of one step
     pictures                  [N,H,W,C], or [N,H,W] with kind="picture"
"""

import io
import zipfile
from collections.abc import Sequence
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np

from seqloom.data.inputs import given_inputs
from seqloom.data.problems import counted
from seqloom.data.schema import InputKind
from seqloom.data.values import plain
from seqloom.durable import write_file
from seqloom.errors import ConfigError, SeqloomError, did_you_mean
from seqloom.loaded.predicting import Given

COLUMNS: dict[InputKind, tuple[str, ...]] = {"text": ("text",), "pair": ("first", "second"), "words": ("words",)}
AXES: dict[int, InputKind] = {2: "vectors", 3: "vectors", 4: "picture"}


class BadValueError(SeqloomError, ValueError):
    """Values that no model can learn from: what scikit-learn expects as a ValueError."""


class Inputs(NamedTuple):
    """What is given as X: its kind, and one value for each example, as `LoadedModel.predict` takes them."""

    kind: InputKind
    values: list[Any]

    @classmethod
    def of(cls, given: Any, kind: str = "auto") -> "Inputs":
        """The inputs in X; `kind` says what they are where that cannot be seen."""
        if kind != "auto" and kind not in get_args(InputKind):
            raise BadValueError(f"kind={kind!r}", fix=did_you_mean(kind, ["auto", *get_args(InputKind)]))
        if isinstance(given, str) or not hasattr(given, "__len__"):
            raise BadValueError(f"X is a list or an array, found {type(given).__name__}", fix="one value per example")
        values = [plain(value) for value in getattr(given, "to_numpy", lambda: given)()]
        if not values:
            raise BadValueError("X holds no example", fix="give at least one")
        found = kind if kind != "auto" else _kind_of(values[0])
        inputs = cls(found, [_value(value, found) for value in values])  # type: ignore[arg-type]  # one of them
        inputs._require_readable()
        return inputs

    def _require_readable(self) -> None:
        """Raise BadValueError for values that no model reads, as empty texts: before any work, by their place in X."""
        ledger = Given()
        for _ in given_inputs(self.values, self.kind, ledger):
            pass
        if problems := ledger.refused:
            first, more = problems[0], ledger.skipped - 1
            others = f", and {counted(more, 'other value')} cannot be read either" if more else ""
            raise BadValueError(
                f"X[{(first.place.line or 1) - 1}]: {first.text}{others}", fix="leave it out of X and y"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the input in the file that training reads."""
        return COLUMNS.get(self.kind, (self.kind,))


def is_table(given: Any) -> bool:
    """Whether X is rows of numbers, as most estimators take them: scikit-learn's own checks are for these.

    >>> is_table([[1.0, 2.0]]), is_table(np.ones((3, 4, 5))), is_table(["a text"]), is_table([("a", "b")])
    (True, False, False, False)
    """
    if isinstance(given, list | tuple):
        first = given[0] if given else None
        first = first[0] if isinstance(first, list | tuple) and first else first
        return isinstance(first, Number)
    if not hasattr(given, "__array__"):
        return hasattr(given, "toarray")  # sparse, which they refuse
    array = np.asarray(given)
    return array.ndim <= 2 and array.dtype.kind not in "UOST"


def _kind_of(value: Any) -> InputKind:
    """What the first value is: the others must be the same, which the readers see to."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, tuple | list) and value and all(isinstance(one, str) for one in value):
        return "pair" if isinstance(value, tuple) and len(value) == 2 else "words"
    axes = np.ndim(value) + 1
    if axes not in AXES or np.asarray(value).dtype.kind not in "iufb":
        raise BadValueError(f"X holds {type(value).__name__} of {axes - 1} axes", fix="give texts, vectors or pictures")
    return AXES[axes]


def _value(value: Any, kind: str) -> Any:
    """One input as the readers take it: arrays with all their axes."""
    if kind not in ("vectors", "picture"):
        return value
    array = np.asarray(value)
    if kind == "picture":
        return array[:, :, None] if array.ndim == 2 else array
    return np.asarray(array[None] if array.ndim == 1 else array, np.float32)


def write_examples(folder: Path, inputs: Inputs, targets: Sequence[Any], name: str) -> Path:
    """The file with these examples, their targets in the column `name`: JSON lines, or arrays for pictures."""
    if len(targets) != len(inputs.values):
        raise BadValueError(f"{len(inputs.values):,} examples and {len(targets):,} targets", fix="give each one target")
    if inputs.kind == "picture":
        return _write_pictures(folder / "data.npz", inputs, targets, name)
    rows = zip(inputs.values, targets, strict=True)
    write_file(folder / "data.jsonl", (_line(inputs, value, name, target) for value, target in rows))
    return folder / "data.jsonl"


def _line(inputs: Inputs, value: Any, name: str, target: Any) -> bytes:
    values = value if inputs.kind == "pair" else (value.tolist() if isinstance(value, np.ndarray) else value,)
    if len(values) != len(inputs.columns):
        raise BadValueError(f"a pair has two texts, found {len(values)}", fix="give each example two")
    return msgspec.json.encode(dict(zip(inputs.columns, values, strict=True)) | {name: target}) + b"\n"


def _write_pictures(path: Path, inputs: Inputs, targets: Sequence[Any], name: str) -> Path:
    if name not in ("label", "numbers"):
        raise ConfigError("pictures have one label or numbers here", fix="one label for each picture")
    pictures = np.stack(inputs.values)
    kept = pictures if pictures.dtype == np.uint8 else pictures.astype(np.float32)
    write_file(path, [_archive({"pictures": kept, name: np.array(targets)})])
    return path


def _archive(arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of an .npz file: only `durable` writes to a disk, so numpy is given none to write to."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", one.getvalue())
    return data.getvalue()
