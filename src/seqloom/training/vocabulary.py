"""The vocabulary of a run as files: what the numbers in its data mean, fitted once and compared when it goes on.

labels.json        ["neg", "pos"], in the order of their numbers
schema.json        {"input": "text", "target": "label", "sizes": [], "numbers": 0}, and the units of numbers
tokenizer.json     of the input, if it is text; target_tokenizer.json of a target text that has its own
"""

import json
from collections.abc import Mapping

import msgspec

from seqloom.data.schema import InputKind, Schema, TargetKind
from seqloom.errors import DamagedError
from seqloom.tasks.contract import Meaning
from seqloom.text.tokenizer import Tokenizer

LABELS, SCHEMA, TOKENIZER, TARGET_TOKENIZER = "labels.json", "schema.json", "tokenizer.json", "target_tokenizer.json"


class _Outline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    input: InputKind
    target: TargetKind
    sizes: tuple[int, ...]
    numbers: int
    units: tuple[tuple[float, float], ...] = ()


def vocabulary_of(meaning: Meaning) -> dict[str, bytes]:
    """The files of a vocabulary."""
    first, second, schema = meaning.tokenizer, meaning.target_tokenizer, meaning.schema
    outline = _Outline(schema.input, schema.target, tuple(meaning.sizes), meaning.numbers, meaning.units)
    files = {LABELS: json.dumps(schema.labels, ensure_ascii=False).encode(), SCHEMA: msgspec.json.encode(outline)}
    if first is not None:
        files[TOKENIZER] = first.to_json().encode()
    if second is not None and second is not first:
        files[TARGET_TOKENIZER] = second.to_json().encode()
    return files


def meaning_of(files: Mapping[str, bytes]) -> Meaning:
    """What the numbers mean, from the files of a vocabulary; DamagedError for files that are none."""
    try:
        labels = msgspec.json.decode(files[LABELS], type=tuple[str, ...])
        outline = msgspec.json.decode(files[SCHEMA], type=_Outline)
    except (KeyError, msgspec.DecodeError) as error:
        raise DamagedError(
            f"the vocabulary of the run cannot be read: {error!r}", fix="restore it from a copy"
        ) from error
    first, second = (
        Tokenizer.from_json(files[name].decode()) if name in files else None for name in (TOKENIZER, TARGET_TOKENIZER)
    )
    if second is None and outline.target == "text":
        second = first
    schema = Schema(outline.input, outline.target, labels)
    return Meaning(schema, first, second, outline.sizes, outline.numbers, units=outline.units)
