"""A model folder: weights, configuration, tokenizer and labels, in one folder that can be copied anywhere.

    my-model/
    ├── model.safetensors       the weights; tied ones once. Its header has the checksums of the next four files
    ├── tokenizer.json          the tokenizer                   (missing for vectors and pictures)
    ├── target_tokenizer.json   the tokenizer of target texts, if different
    ├── words.json              how raw text is split into words (only for taggers of words)
    ├── labels.json             the labels or tags in the order of their numbers
    ├── config.json             format, version, task, model, kinds of input and target, notes
    ├── card.md                 the model card
    ├── estimator.json          parameters and classes, only if a scikit-learn estimator saved the folder
    └── manifest.json           size and sha256 of every file

A folder is loaded only if the checksum of every file matches, and if the weights were written with this vocabulary and
these labels: two swapped tokens would make all predictions wrong without changing a weight. Nothing in it is code. The
tensor format is in `files/tensors.py`, the file names are in `files/layouts.py`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from seqloom.config.base import taken
from seqloom.config.models import AnyModel
from seqloom.config.old_names import renamed
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DamagedError, DataError, SeqloomError, near_folder
from seqloom.files.folders import Manifest, read_file_of, read_manifest
from seqloom.files.layouts import ModelFile, RunFile
from seqloom.files.tensors import HEADER_LIMIT, Slot, from_bytes, not_finite, read_header, to_bytes
from seqloom.metrics.calibration import Calibration
from seqloom.tasks.task import ModelSpec
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.word_splitter import WordSplitter
from seqloom.version import __version__

# The names and shapes of the weights of a configuration.
#
# A model is built once to find them; `require_covered` is called first, so that a small file cannot request a large
# model. (Torch's meta device would need no memory, but two seconds: initialization there imports the compiler.)
#
# A tied head shares the matrix of its input: one weight with two names. It is written once, under its first name.

SHOWN = 3  # names in a message
ALWAYS_BUILT = 2**22  # weights, 16 MiB: any file may request this many


class Outline(NamedTuple):
    """The names and shapes of the weights of a model, and which of them are tied."""

    slots: dict[str, Slot]
    aliases: dict[str, str]  # second name of a tied weight: its first name

    @property
    def size(self) -> int:
        """The size of the weights in bytes."""
        return sum(slot.size for name, slot in self.slots.items() if name not in self.aliases)


@lru_cache(maxsize=4)
def outline_of(config: AnyModel) -> Outline:
    """The outline of the model that a configuration builds."""
    with untouched_draws():
        model = config.build()
    first: dict[int, str] = {}
    aliases = {}
    parameters, buffers = (named(remove_duplicate=False) for named in (model.named_parameters, model.named_buffers))
    for name, weight in chain(parameters, buffers):
        known = first.setdefault(id(weight), name)
        if known != name:
            aliases[name] = known
    return Outline({name: Slot.of(weight) for name, weight in model.state_dict().items()}, aliases)


def require_covered(config: AnyModel, size: int, place: str) -> None:
    """Raise ConfigError if a configuration needs more weights than a file of this size can hold."""
    asked = config.parameters()
    if asked > max(ALWAYS_BUILT, size):  # a weight has at least one byte
        text = f"the configuration has {asked:,} weights, but the file has {size:,} bytes"
        raise ConfigError(f"{place}: {text}", fix="use weights and configuration of the same folder")


@contextmanager
def untouched_draws() -> Iterator[None]:
    """Restore the caller's random state after the block, in which a model may be initialized."""
    with torch.random.fork_rng(devices=[]):
        yield


def require_fitting(slots: Mapping[str, Slot], outline: Outline, place: str, fix: str) -> None:
    """Raise ConfigError for weights that are missing, unexpected, or of another shape."""
    wanted = {name: slot for name, slot in outline.slots.items() if name not in outline.aliases}
    faults = [
        *(f"'{name}' is missing" for name in wanted if name not in slots),
        *(f"'{name}' is unexpected" for name in slots if name not in wanted),
        *(
            f"'{name}' is {slots[name]}, expected {wanted[name]}"
            for name in wanted
            if name in slots and slots[name] != wanted[name]
        ),
    ]
    if faults:
        more = f", and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
        raise ConfigError(f"{place}: the weights do not fit the model: {'; '.join(faults[:SHOWN])}{more}", fix=fix)


# The files of a bundle, and a bundle from its files.

FORMAT = (
    4  # what changed: 2 added units and a calibration; 3 vectors as outputs and a norm after the input; 4 renamed keys
)
RENAMED_IN = 4  # formats before this one have old names of settings and notes
OLD_NOTES = {"rate": "lr", "longest": "max_length"}
# Files that belong to the weights: their checksums are in the header of the weights.
BOUND = (ModelFile.TOKENIZER, ModelFile.TARGET_TOKENIZER, ModelFile.LABELS, ModelFile.WORDS)
NEEDED: tuple[str, ...] = (ModelFile.WEIGHTS, ModelFile.CONFIG, ModelFile.CARD, ModelFile.LABELS)
LARGEST_CONFIG = 16 << 20  # bytes
_RESTORE = "restore the folder from a copy"


def identity_of(path: Path) -> str:
    """The identity of a model: the sha256 over the checksums of all files but the card."""
    sums = {name: entry.sha256 for name, entry in sorted(read_manifest(path).files.items()) if name != ModelFile.CARD}
    return hashlib.sha256(msgspec.json.encode(sums)).hexdigest()


class Bundle(NamedTuple):
    """A model: configuration, spec, weights, and notes about its training."""

    config: AnyModel
    spec: ModelSpec
    weights: dict[str, Tensor]  # by the names of `state_dict`
    notes: dict[str, Any]  # JSON values: metrics, data, versions, training settings


class _Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kinds of input and target; labels are in labels.json."""

    input: str
    target: str


class _Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Temperature and thresholds."""

    temperature: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    thresholds: tuple[Annotated[float, msgspec.Meta(ge=0, le=1)], ...] = ()


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of config.json."""

    format: int
    seqloom: str  # the version that wrote it
    task: str
    model: dict[str, Any]
    schema: _Schema
    sizes: tuple[int, ...]
    numbers: int
    max_length: int = 0  # of the training inputs; 0: unknown
    max_target_length: int = 0  # of the training targets, if they are texts; 0: unknown
    notes: dict[str, Any]
    # from format 2 on
    units: tuple[tuple[float, float], ...] = ()
    calibration: _Calibration = _Calibration()


class _BundleVersion(msgspec.Struct, frozen=True):
    format: int  # read first: it decides how to read the rest
    seqloom: str = "a newer one"


def bundle_files(bundle: Bundle, card: str) -> dict[str, bytes]:
    """The contents of a model folder, for `commit_folder` or `replace_folder`."""
    weights = _once(bundle.weights, outline_of(bundle.config))
    spec = _spec_files(bundle.spec)
    note = {name: hashlib.sha256(data).hexdigest() for name, data in spec.items()}
    files = {
        ModelFile.WEIGHTS: to_bytes(weights, note),
        ModelFile.CONFIG: _config_file(bundle),
        ModelFile.CARD: card.encode(),
    }
    return files | spec


def _once(weights: Mapping[str, Tensor], outline: Outline) -> dict[str, Tensor]:
    """Return the weights, tied ones once; raise ConfigError if they do not fit, DataError if they are not finite."""
    for name, first in outline.aliases.items():
        if name in weights and first in weights and not torch.equal(weights[name], weights[first]):
            raise ConfigError(f"'{name}' and '{first}' are tied, but have different values", fix="give one of them")
    kept = {name: weight for name, weight in weights.items() if name not in outline.aliases}
    require_fitting({name: Slot.of(one) for name, one in kept.items()}, outline, "this bundle", "give all weights")
    if broken := not_finite(kept):
        raise DataError(f"the weight '{broken[0]}' has NaN or infinite values", fix="use an earlier checkpoint")
    return kept


def _spec_files(spec: ModelSpec) -> dict[str, bytes]:
    labels = (json.dumps(list(spec.schema.labels), ensure_ascii=False) + "\n").encode()
    files = tokenizer_files(spec)
    if len(set(files.values())) < len(files):  # equal tokenizers are written once
        del files[ModelFile.TARGET_TOKENIZER]
    if spec.splitter is not None:
        files[ModelFile.WORDS] = spec.splitter.to_json()
    return {ModelFile.LABELS: labels, **files}


def tokenizer_files(spec: ModelSpec) -> dict[str, bytes]:
    """Return the tokenizers of a model as files; the target tokenizer only if it is a different one."""
    first, second = spec.tokenizer, spec.target_tokenizer
    named = {ModelFile.TOKENIZER: first, ModelFile.TARGET_TOKENIZER: None if second is first else second}
    return {name: one.to_json().encode() for name, one in named.items() if one is not None}


def read_tokenizers(
    files: Mapping[str, bytes], schema: Schema, folder: Path
) -> tuple[Tokenizer | None, Tokenizer | None]:
    """Return the tokenizers of inputs and of target texts; raise DamagedError for an invalid file."""
    found: list[Tokenizer | None] = []
    for name in (ModelFile.TOKENIZER, ModelFile.TARGET_TOKENIZER):
        try:
            found.append(Tokenizer.from_json(files[name].decode()) if name in files else None)
        except (SeqloomError, UnicodeDecodeError) as error:
            problem = error.problem if isinstance(error, SeqloomError) else str(error)
            raise DamagedError(f"{folder / name}: {problem}", fix=_RESTORE) from None
    first, second = found
    return first, first if second is None and schema.target.is_text else second


def _config_file(bundle: Bundle) -> bytes:
    schema = bundle.spec.schema
    document = _Document(
        format=FORMAT,
        seqloom=__version__,
        task=schema.task,
        model=msgspec.to_builtins(bundle.config),
        schema=_Schema(schema.input.name, schema.target.name),
        sizes=bundle.spec.sizes,
        numbers=bundle.spec.numbers,
        max_length=bundle.spec.max_length,
        max_target_length=bundle.spec.max_target_length,
        notes=bundle.notes,
        units=bundle.spec.units,
        calibration=_Calibration(*bundle.spec.calibration),
    )
    try:
        text = msgspec.json.encode(document)  # NaN and infinity become null
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"notes are not JSON: {error}", fix="use numbers, text, lists and objects") from None
    return msgspec.json.format(text, indent=1) + b"\n"


def read_bundle(path: str | Path) -> Bundle:
    """Read a model folder and verify every file; the name of the folder does not matter."""
    folder = Path(path)
    manifest = _manifest(folder)
    document = _document(folder, manifest)
    _require_names(folder, manifest)
    try:
        model: AnyModel = taken(document.model, AnyModel, "model")
    except ConfigError as error:
        raise ConfigError(f"{folder / ModelFile.CONFIG}: {error.problem}", fix=error.fix) from None
    require_covered(model, manifest.files[ModelFile.WEIGHTS].size, str(folder / ModelFile.WEIGHTS))
    files = {
        name: read_file_of(folder, name) for name in manifest.files if name not in (ModelFile.CONFIG, ModelFile.WEIGHTS)
    }
    spec = _read_spec(document, files, folder)
    return Bundle(model, spec, _weights(folder, manifest, files, outline_of(model)), document.notes)


def _manifest(folder: Path) -> Manifest:
    if not folder.exists():
        raise ConfigError(f"there is no model folder {folder}", fix=near_folder(folder))
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is a file, but a model is a folder with weights, tokenizer and configuration",
            fix="give the folder that training wrote; pickles (.pt, .bin, .ckpt) are never read",
        )
    if not any((folder / name).exists() for name in (*NEEDED, "manifest.json")):
        raise ConfigError(
            f"{folder} is not a model folder: it has no {ModelFile.WEIGHTS}", fix="give a run folder or a model folder"
        )
    return read_manifest(folder)


def _document(folder: Path, manifest: Manifest) -> _Document:
    place = folder / ModelFile.CONFIG
    if ModelFile.CONFIG not in manifest.files:
        raise ConfigError(
            f"{folder} is not a model folder: its manifest does not list {ModelFile.CONFIG}", fix="give RUN/model"
        )
    if (size := manifest.files[ModelFile.CONFIG].size) > LARGEST_CONFIG:
        raise ConfigError(f"{place}: the file has {size:,} bytes; the limit is {LARGEST_CONFIG:,}", fix=_RESTORE)
    text = read_file_of(folder, ModelFile.CONFIG)
    try:
        version = msgspec.json.decode(text, type=_BundleVersion)
        if version.format > FORMAT:
            raise ConfigError(
                f"{place}: format {version.format} of Seqloom {version.seqloom[:40]}; this is {__version__}, "
                f"which reads formats up to {FORMAT}",
                fix="`pip install --upgrade seqloom`",
            )
        if version.format < RENAMED_IN:
            return msgspec.convert(_with_new_names(msgspec.json.decode(text, type=dict[str, Any])), _Document)
        return msgspec.json.decode(text, type=_Document)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: this is not a model configuration ({error})", fix=_RESTORE) from None


def _with_new_names(document: dict[str, Any]) -> dict[str, Any]:
    """The content of config.json of an older format, with the keys of this one."""
    found = {"max_length" if key == "longest" else key: value for key, value in document.items()}
    if isinstance(found.get("model"), dict):
        found["model"] = renamed(found["model"])
    if isinstance(found.get("notes"), dict):
        found["notes"] = {OLD_NOTES.get(key, key): value for key, value in found["notes"].items()}
    return found


def _require_names(folder: Path, manifest: Manifest) -> None:
    """Raise DamagedError for missing or unexpected files."""
    for name in NEEDED:
        if name not in manifest.files:
            raise DamagedError(f"{folder / name}: this file is missing in the manifest", fix=_RESTORE)
    present = {entry.name for entry in folder.iterdir()} - {"manifest.json"}
    for name in sorted((present | set(manifest.files)) - {*NEEDED, *BOUND, ModelFile.ESTIMATOR}):
        raise DamagedError(f"{folder / name}: unexpected file", fix="move it out of the folder")
    for name in sorted(present - set(manifest.files)):
        raise DamagedError(f"{folder / name}: unexpected file, not in the manifest", fix="move it out of the folder")


def _read_spec(document: _Document, files: Mapping[str, bytes], folder: Path) -> ModelSpec:
    try:
        labels = msgspec.json.decode(files[ModelFile.LABELS], type=tuple[str, ...])
    except ValueError as error:
        raise DamagedError(f"{folder / ModelFile.LABELS}: expected a list of labels ({error})", fix=_RESTORE) from None
    try:
        schema = Schema(document.schema.input, document.schema.target, labels)
    except DataError as error:
        raise ConfigError(f"{folder / ModelFile.CONFIG}: {error.problem}", fix=error.fix) from None
    if schema.task != document.task:
        text = (
            f"the task is '{document.task[:40]}', but the target is {schema.target}, which belongs to the task "
            f"{schema.task}"
        )
        raise ConfigError(f"{folder / ModelFile.CONFIG}: {text}", fix=_RESTORE)
    tokenizers = read_tokenizers(files, schema, folder)
    place = folder / ModelFile.CONFIG
    thresholds, units = document.calibration.thresholds, document.units
    if thresholds and len(thresholds) != len(schema.labels):
        raise ConfigError(f"{place}: {len(thresholds)} thresholds for {len(schema.labels)} labels", fix=_RESTORE)
    if units and len(units) != document.numbers:
        raise ConfigError(f"{place}: {len(units)} units for {document.numbers} numbers", fix=_RESTORE)
    if any(deviation <= 0 for _, deviation in units):
        raise ConfigError(f"{place}: a standard deviation is not above 0", fix=_RESTORE)
    calibration = Calibration(document.calibration.temperature, thresholds)
    sizes, numbers, max_length = document.sizes, document.numbers, document.max_length
    splitter = _splitter(files, folder)
    return ModelSpec(
        schema, *tokenizers, sizes, numbers, max_length, units, calibration, document.max_target_length, splitter
    )


def _splitter(files: Mapping[str, bytes], folder: Path) -> WordSplitter | None:
    """The rules for splitting raw text; None in a folder without them, as of an earlier version."""
    if ModelFile.WORDS not in files:
        return None
    try:
        return WordSplitter.from_json(files[ModelFile.WORDS])
    except DataError as error:
        raise DamagedError(f"{folder / ModelFile.WORDS}: {error.problem}", fix=_RESTORE) from None


def _weights(folder: Path, manifest: Manifest, files: Mapping[str, bytes], outline: Outline) -> dict[str, Tensor]:
    place = folder / ModelFile.WEIGHTS
    if (size := manifest.files[ModelFile.WEIGHTS].size) > (most := outline.size + HEADER_LIMIT + 8):
        raise ConfigError(f"{place}: the file has {size:,} bytes, but the model needs at most {most:,}", fix=_RESTORE)
    data = read_file_of(folder, ModelFile.WEIGHTS)
    header = read_header(data, str(place))
    require_fitting(header.slots, outline, str(place), "use weights and configuration of the same folder")
    _require_bound(header.note, files, folder)
    weights, _ = from_bytes(data, str(place))
    if broken := not_finite(weights):
        raise DamagedError(f"{place}: '{broken[0]}' has NaN or infinite values", fix=_RESTORE)
    return weights | {name: weights[first] for name, first in outline.aliases.items()}


def _require_bound(note: Mapping[str, str], files: Mapping[str, bytes], folder: Path) -> None:
    """Raise DamagedError if the weights were written with another tokenizer or other labels."""
    for name in BOUND:
        found = hashlib.sha256(files[name]).hexdigest() if name in files else "no such file"
        expected = note.get(name, "no such file")
        if found != expected:
            text = f"the weights should have sha256 {expected}, but have {found}"
            raise DamagedError(f"{folder / name}: {text}", fix="use files of the same folder")


def built(bundle: Bundle, device: torch.device | str = "cpu") -> nn.Module:
    """The model with its weights, in evaluation mode; the random state of the caller does not change."""
    with untouched_draws():
        model = bundle.config.build()
    model.load_state_dict(bundle.weights)
    return model.eval().to(device)


# A model folder is `RUN/model` or any other folder. Functions take the run folder or the model folder.


def model_folder(path: str | Path) -> Path:
    """The model folder of a run, or the folder itself; ConfigError if the run has none yet."""
    folder = Path(path)
    if not (folder / RunFile.CONFIG).is_file():
        return folder
    if not (folder / RunFile.MODEL).is_dir():
        raise ConfigError(f"{folder} has no model yet", fix="train until the first validation")
    return folder / RunFile.MODEL


def run_of(folder: Path) -> Path | None:
    """The run folder of a model folder; None outside a run."""
    run = folder.parent
    return run if folder.name == RunFile.MODEL and (run / RunFile.CONFIG).is_file() else None
