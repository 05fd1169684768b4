"""How a checkpoint makes one vector of a text: what is pooled, whether it has length one, and where texts are cut.

    modules.json                  Transformer, Pooling, Normalize: what follows what, and in which folder it lies
    1_Pooling/config.json         mean, max, the first or the last
    sentence_bert_config.json     the most symbols of a text

A checkpoint without these files is an encoder alone; then the mean is taken, of length one.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.base import located, quoted
from seqloom.config.heads import Pooling
from seqloom.errors import ConfigError
from seqloom.importing.checkpoint import read_json, read_object

POOLINGS: dict[str, Pooling] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
SIZES = ("word_embedding_dimension", "embedding_dimension", "include_prompt")
ANOTHER = "give a checkpoint of an encoder with mean, max, first or last pooling"


class Sentences(NamedTuple):
    """How a text becomes one vector."""

    encoder: Path  # the folder
    pooling: Pooling
    unit: bool
    longest: int | None  # symbols of a text; None: not said


class _Module(msgspec.Struct, frozen=True):
    type: str
    path: str


def read_sentences(folder: Path) -> Sentences:
    """What a checkpoint says about its sentence vectors."""
    path = folder / "modules.json"
    if not path.exists():
        return Sentences(folder, "mean", unit=True, longest=_longest(folder))
    modules = read_json(path, list[_Module])
    kinds = tuple(module.type.rpartition(".")[2] for module in modules)
    if kinds not in (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize")):
        named = quoted(", ".join(kinds))
        raise ConfigError(f"{path}: the steps {named}; Transformer, Pooling, Normalize are read", fix=ANOTHER)
    _require_no_prompt(folder)
    encoder, pooling = (_inside(folder, module.path) for module in modules[:2])
    return Sentences(encoder, _pooling(pooling / "config.json"), len(kinds) == 3, _longest(encoder))


def _inside(folder: Path, name: str) -> Path:
    """A folder in the checkpoint; whatever leads out of it is refused."""
    if not folder.joinpath(name).resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{folder / 'modules.json'}: {quoted(name)} leads out of the checkpoint", fix="correct it")
    return folder / name


def _pooling(path: Path) -> Pooling:
    given = read_json(path, dict[str, Any])
    with located(str(path)):
        for key in given:
            if key not in (*FLAGS, *SIZES, "pooling_mode"):
                raise ConfigError(f"{quoted(key)} is not known, and might change the vectors", fix=ANOTHER)
        flagged = [mode for flag, mode in FLAGS.items() if given.get(flag)]
        named = given.get("pooling_mode")
        modes = flagged if named is None else [str(named)]
        if len(modes) != 1 or modes[0] not in POOLINGS:
            raise ConfigError(f"the pooling {quoted(' and '.join(modes) or 'none')}", fix=ANOTHER)
        return POOLINGS[modes[0]]


def _require_no_prompt(folder: Path) -> None:
    """Refuse a checkpoint that puts words of its own before every text."""
    path = folder / "config_sentence_transformers.json"
    settings = read_object(path)
    if name := settings.get("default_prompt_name"):
        raise ConfigError(
            f"{path}: the prompt {quoted(str(name))} would be put before every text",
            fix="set default_prompt_name to null, and write the prompt into your texts",
        )


def _longest(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    settings = read_object(path)
    if settings.get("do_lower_case"):
        raise ConfigError(f"{path}: do_lower_case is none of the tokeniser's", fix="set it to false, or lower texts")
    longest = settings.get("max_seq_length")
    if longest is None:
        longest = read_object(folder / "tokenizer_config.json").get("model_max_length")
    if longest is None or (isinstance(longest, int | float) and longest >= 2**24):  # "no limit" is written as 1e30
        return None
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 3:
        raise ConfigError(f"{path}: texts are cut at {longest!r} symbols", fix="give a whole number from 3 on")
    return longest
