"""The files of a bundle, and a bundle from its files."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from seqloom.bundle.outline import Outline, outline_of, require_covered, require_fitting, untouched_draws
from seqloom.bundle.weights import HEADER_LIMIT, Slot, from_bytes, read_header, to_bytes
from seqloom.config.base import taken
from seqloom.config.models import AnyModel
from seqloom.data.schema import InputKind, Schema, TargetKind
from seqloom.durable import Manifest, read_file_of, read_manifest
from seqloom.errors import ConfigError, DamagedError, DataError, SeqloomError, near_folder
from seqloom.metrics.calibration import Calibration
from seqloom.tasks.contract import Meaning
from seqloom.text.tokenizer import Tokenizer
from seqloom.version import __version__

FORMAT = 3  # 1 had no units of numbers and no calibration, 2 no vectors as answers and no norm behind the input
WEIGHTS, CONFIG, CARD, LABELS = "model.safetensors", "config.json", "card.md", "labels.json"
TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "target_tokenizer.json"
BOUND = (
    TOKENIZER,
    TARGET_TOKENIZER,
    LABELS,
)  # what the weights were trained for: their sums are in the weights' header
NEEDED = (WEIGHTS, CONFIG, CARD, LABELS)
LARGEST_CONFIG = 16 << 20  # bytes
_RESTORE = "restore the folder from a copy"


def identity_of(path: Path) -> str:
    """What tells a model from another: the sha256 over the sums of all its files but the card."""
    sums = {name: entry.sha256 for name, entry in sorted(read_manifest(path).files.items()) if name != CARD}
    return hashlib.sha256(msgspec.json.encode(sums)).hexdigest()


class Bundle(NamedTuple):
    """A model, what its numbers mean, and what is known about it."""

    config: AnyModel
    meaning: Meaning
    weights: dict[str, Tensor]  # by the names of `state_dict`
    notes: dict[str, Any]  # JSON: scores, data, versions, the training in short


class _Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kinds of input and target; the labels have a file of their own."""

    input: InputKind
    target: TargetKind


class _Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How scores are read."""

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
    longest: int = 0  # 0: not known
    notes: dict[str, Any]
    # from format 2 on
    units: tuple[tuple[float, float], ...] = ()
    calibration: _Calibration = _Calibration()


class _Version(msgspec.Struct, frozen=True):
    format: int  # asked before the rest, whose form it decides
    seqloom: str = "a newer one"


def bundle_files(bundle: Bundle, card: str) -> dict[str, bytes]:
    """The contents of a model folder, for `durable.commit_folder` or `durable.replace_folder`."""
    weights = _once(bundle.weights, outline_of(bundle.config))
    meaning = _meaning_files(bundle.meaning)
    note = {name: hashlib.sha256(data).hexdigest() for name, data in meaning.items()}
    files = {WEIGHTS: to_bytes(weights, note), CONFIG: _config_file(bundle), CARD: card.encode()}
    return files | meaning


def _once(weights: Mapping[str, Tensor], outline: Outline) -> dict[str, Tensor]:
    """The weights without further names of one; refused if they do not fit the model or are not numbers."""
    for name, first in outline.aliases.items():
        if name in weights and first in weights and not torch.equal(weights[name], weights[first]):
            raise ConfigError(f"'{name}' and '{first}' are one weight, and have two values", fix="give one of them")
    kept = {name: weight for name, weight in weights.items() if name not in outline.aliases}
    require_fitting({name: Slot.of(one) for name, one in kept.items()}, outline, "this bundle", "give all weights")
    if broken := _not_finite(kept):
        raise DataError(f"the weight '{broken}' holds a number that is not finite", fix="go back to a checkpoint")
    return kept


def _not_finite(weights: Mapping[str, Tensor]) -> str:
    """The name of the first weight that holds NaN or an infinity; empty if none does."""
    return next((name for name, one in weights.items() if not bool(torch.isfinite(one).all())), "")


def _meaning_files(meaning: Meaning) -> dict[str, bytes]:
    files = {LABELS: (json.dumps(list(meaning.schema.labels), ensure_ascii=False) + "\n").encode()}
    if meaning.tokenizer is not None:
        files[TOKENIZER] = meaning.tokenizer.to_json().encode()
    if meaning.target_tokenizer is not None:
        text = meaning.target_tokenizer.to_json().encode()
        if text != files.get(TOKENIZER):
            files[TARGET_TOKENIZER] = text
    return files


def _config_file(bundle: Bundle) -> bytes:
    schema = bundle.meaning.schema
    document = _Document(
        format=FORMAT,
        seqloom=__version__,
        task=schema.task,
        model=msgspec.to_builtins(bundle.config),
        schema=_Schema(schema.input, schema.target),
        sizes=bundle.meaning.sizes,
        numbers=bundle.meaning.numbers,
        longest=bundle.meaning.longest,
        notes=bundle.notes,
        units=bundle.meaning.units,
        calibration=_Calibration(*bundle.meaning.calibration),
    )
    try:
        text = msgspec.json.encode(document)  # a score that is not finite becomes null: JSON has no word for it
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"notes are not JSON: {error}", fix="note numbers, text, lists and objects") from None
    return msgspec.json.format(text, indent=1) + b"\n"


def read_bundle(path: str | Path) -> Bundle:
    """The bundle in a folder, every byte verified; the name of the folder does not matter."""
    folder = Path(path)
    manifest = _manifest(folder)
    document = _document(folder, manifest)
    _require_names(folder, manifest)
    model = _model(document, folder / CONFIG)
    require_covered(model, manifest.files[WEIGHTS].size, str(folder / WEIGHTS))
    files = {name: read_file_of(folder, name) for name in manifest.files if name not in (CONFIG, WEIGHTS)}
    meaning = _meaning(document, files, folder)
    return Bundle(model, meaning, _weights(folder, manifest, files, outline_of(model)), document.notes)


def _manifest(folder: Path) -> Manifest:
    if not folder.exists():
        raise ConfigError(f"there is no model {folder}", fix=near_folder(folder))
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is a file, and a model is a folder with weights, vocabulary and configuration",
            fix="give the folder that training wrote; pickles (.pt, .bin, .ckpt) are never read",
        )
    if not any((folder / name).exists() for name in (*NEEDED, "manifest.json")):
        raise ConfigError(f"{folder} is no model folder: it has no {WEIGHTS}", fix="give a run or the model in it")
    return read_manifest(folder)


def _document(folder: Path, manifest: Manifest) -> _Document:
    place = folder / CONFIG
    if CONFIG not in manifest.files:
        raise ConfigError(f"{folder} is no model folder: its manifest names no {CONFIG}", fix="give RUN/model")
    if (size := manifest.files[CONFIG].size) > LARGEST_CONFIG:
        raise ConfigError(f"{place}: {size:,} bytes, and the limit is {LARGEST_CONFIG:,}", fix=_RESTORE)
    text = read_file_of(folder, CONFIG)
    try:
        version = msgspec.json.decode(text, type=_Version)
        if version.format > FORMAT:
            raise ConfigError(
                f"{place}: format {version.format} of Seqloom {version.seqloom[:40]}; this is {__version__}, "
                f"which reads formats up to {FORMAT}",
                fix="pip install --upgrade seqloom",
            )
        return msgspec.json.decode(text, type=_Document)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: this describes no model ({error})", fix=_RESTORE) from None


def _require_names(folder: Path, manifest: Manifest) -> None:
    """Refuse a folder with a file too few or too many."""
    for name in NEEDED:
        if name not in manifest.files:
            raise DamagedError(f"{folder / name}: expected a file, and the manifest names none", fix=_RESTORE)
    present = {entry.name for entry in folder.iterdir()} - {"manifest.json"}
    for name in sorted((present | set(manifest.files)) - {*NEEDED, *BOUND}):
        raise DamagedError(f"{folder / name}: expected nothing of this name, found it", fix="move it elsewhere")
    for name in sorted(present - set(manifest.files)):
        raise DamagedError(f"{folder / name}: expected nothing, the manifest does not name it", fix="move it elsewhere")


def _model(document: _Document, place: Path) -> AnyModel:
    try:
        model: AnyModel = taken(document.model, AnyModel, "model")
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.problem}", fix=error.fix) from None
    return model


def _meaning(document: _Document, files: Mapping[str, bytes], folder: Path) -> Meaning:
    try:
        labels = msgspec.json.decode(files[LABELS], type=tuple[str, ...])
    except ValueError as error:
        raise DamagedError(f"{folder / LABELS}: expected a list of labels ({error})", fix=_RESTORE) from None
    schema = Schema(document.schema.input, document.schema.target, labels)
    if schema.task != document.task:
        text = f"the task '{document.task[:40]}', and a target of {schema.target} is for {schema.task}"
        raise ConfigError(f"{folder / CONFIG}: {text}", fix=_RESTORE)
    first, second = (_tokenizer(files, name, folder) for name in (TOKENIZER, TARGET_TOKENIZER))
    if second is None and schema.target == "text":
        second = first
    _require_fitting_numbers(document, schema, folder / CONFIG)
    return Meaning(
        schema,
        first,
        second,
        document.sizes,
        document.numbers,
        document.longest,
        document.units,
        Calibration(document.calibration.temperature, document.calibration.thresholds),
    )


def _require_fitting_numbers(document: _Document, schema: Schema, place: Path) -> None:
    """Refuse thresholds and units that are not one for each label and number."""
    thresholds, units = document.calibration.thresholds, document.units
    if thresholds and len(thresholds) != len(schema.labels):
        raise ConfigError(f"{place}: {len(thresholds)} thresholds for {len(schema.labels)} labels", fix=_RESTORE)
    if units and len(units) != document.numbers:
        raise ConfigError(f"{place}: {len(units)} units for {document.numbers} numbers", fix=_RESTORE)
    if any(deviation <= 0 for _, deviation in units):
        raise ConfigError(f"{place}: a deviation is not above 0", fix=_RESTORE)


def _tokenizer(files: Mapping[str, bytes], name: str, folder: Path) -> Tokenizer | None:
    if name not in files:
        return None
    try:
        return Tokenizer.from_json(files[name].decode())
    except (SeqloomError, UnicodeDecodeError) as error:
        problem = error.problem if isinstance(error, SeqloomError) else str(error)
        raise DamagedError(f"{folder / name}: {problem}", fix=_RESTORE) from None


def _weights(folder: Path, manifest: Manifest, files: Mapping[str, bytes], outline: Outline) -> dict[str, Tensor]:
    place = folder / WEIGHTS
    if (size := manifest.files[WEIGHTS].size) > (most := outline.size + HEADER_LIMIT + 8):
        raise ConfigError(f"{place}: {size:,} bytes, and the model has at most {most:,}", fix=_RESTORE)
    data = read_file_of(folder, WEIGHTS)
    header = read_header(data, str(place))
    require_fitting(header.slots, outline, str(place), "take weights and configuration from one folder")
    _require_bound(header.note, files, folder)
    weights, _ = from_bytes(data, str(place))
    if broken := _not_finite(weights):
        raise DamagedError(f"{place}: expected finite numbers, found others in '{broken}'", fix=_RESTORE)
    return weights | {name: weights[first] for name, first in outline.aliases.items()}


def _require_bound(note: Mapping[str, str], files: Mapping[str, bytes], folder: Path) -> None:
    """Refuse a vocabulary or labels that the weights were not trained with."""
    for name in BOUND:
        found = hashlib.sha256(files[name]).hexdigest() if name in files else "no such file"
        expected = note.get(name, "no such file")
        if found != expected:
            text = f"the weights were written with sha256 {expected}; found {found}"
            raise DamagedError(
                f"{folder / name}: {text}", fix="take both from one folder: numbers would change meaning"
            )


def built(bundle: Bundle, device: torch.device | str = "cpu") -> nn.Module:
    """The model with its weights, ready to answer; nothing is drawn from the caller's generator."""
    with untouched_draws():
        model = bundle.config.build()
    model.load_state_dict(bundle.weights)
    return model.eval().to(device)
