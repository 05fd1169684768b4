"""tokenizer.json of a BERT: the same pieces under our numbers, and where the row of each is in the original's table.

    [PAD] [UNK] [CLS] [SEP] [MASK]   ──▶   PAD UNKNOWN BEGIN END MASK, whose numbers are the first of every vocabulary
    all others, in their order       ──▶   the symbols behind them

SEPARATOR, which stands between two texts, has no piece of its own there, and begins with the vector of [SEP].
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.config.base import located, quoted
from seqloom.config.tokenizers import WordpieceConfig
from seqloom.errors import ConfigError
from seqloom.importing.checkpoint import read_json, read_object
from seqloom.text.special_tokens import BEGIN, COUNT, END, MASK, PAD, SEPARATOR, UNKNOWN
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.wordpiece import INSIDE, WordpieceCutter, WordpieceData

SPECIAL = {PAD: "[PAD]", UNKNOWN: "[UNK]", BEGIN: "[CLS]", END: "[SEP]", MASK: "[MASK]", SEPARATOR: "[SEP]"}
ANOTHER = "give a checkpoint with the tokeniser of BERT"


class Vocabulary(NamedTuple):
    """A tokeniser, and the row of the original's table that belongs to each of its symbols."""

    tokenizer: Tokenizer
    rows: np.ndarray  # [V] int64


class _Model(msgspec.Struct, frozen=True):
    type: str
    vocab: dict[str, int]
    unk_token: str = SPECIAL[UNKNOWN]
    continuing_subword_prefix: str = INSIDE
    max_input_chars_per_word: int = 100


class _Normalizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    clean_text: bool = True
    handle_chinese_chars: bool = True
    strip_accents: bool | None = None  # None: where letters are made small
    lowercase: bool = True


class _Step(msgspec.Struct, frozen=True):
    type: str


class _Added(msgspec.Struct, frozen=True):
    id: int
    content: str


class _File(msgspec.Struct, frozen=True):
    model: dict[str, Any]
    normalizer: dict[str, Any] | None
    pre_tokenizer: _Step | None
    post_processor: dict[str, Any] | None
    added_tokens: list[_Added] = []


def read_vocabulary(folder: Path) -> Vocabulary:
    """The tokeniser of a checkpoint; ConfigError for one that cuts texts in another way than BERT's."""
    path = folder / "tokenizer.json"
    file = read_json(path, _File)
    with located(str(path)):
        model = _model(file)
        normalizer = _normalizer(file)
        _require_alike(normalizer, read_object(folder / "tokenizer_config.json"))
        _require_frame(file.post_processor or {}, model.vocab)
        _require_plain(file.added_tokens, model.vocab)
        return _vocabulary(model, normalizer)


def _model(file: _File) -> _Model:
    if (kind := file.model.get("type", "WordPiece")) != "WordPiece":
        raise ConfigError(f"a tokeniser of the type {quoted(str(kind))}, and only WordPiece is read", fix=ANOTHER)
    model: _Model = _converted({"type": "WordPiece", **file.model}, _Model)
    if model.unk_token != SPECIAL[UNKNOWN] or model.continuing_subword_prefix != INSIDE:
        found = f"{quoted(model.unk_token)} and {quoted(model.continuing_subword_prefix)}"
        raise ConfigError(f"what is unknown and what is inside a word are {found}, not [UNK] and ##", fix=ANOTHER)
    if sorted(model.vocab.values()) != list(range(len(model.vocab))):
        raise ConfigError("the numbers of the pieces are not 0, 1, 2, ..., each once", fix="is the file damaged?")
    for piece in SPECIAL.values():
        if piece not in model.vocab:
            raise ConfigError(f"the vocabulary has no {piece}", fix=ANOTHER)
    return model


def _converted(given: dict[str, Any], form: Any) -> Any:
    try:
        return msgspec.convert(given, form)
    except ValueError as error:
        raise ConfigError(str(error)[:200], fix=ANOTHER) from None


def _normalizer(file: _File) -> _Normalizer:
    steps = {
        "normalizer": (file.normalizer or {}).get("type"),
        "pre_tokenizer": getattr(file.pre_tokenizer, "type", None),
    }
    for name, wanted in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        if steps[name] != wanted:
            raise ConfigError(f"the {name} is {quoted(str(steps[name]))}, and {wanted} is read", fix=ANOTHER)
    normalizer: _Normalizer = _converted(file.normalizer or {}, _Normalizer)
    return normalizer


def _require_alike(normalizer: _Normalizer, settings: dict[str, Any]) -> None:
    """Refuse settings beside the tokeniser that would override it: what was meant cannot be known."""
    names = {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    }
    for setting, name in names.items():
        if setting in settings and settings[setting] != (before := getattr(normalizer, name)):
            text = f"{name} is {before}, and tokenizer_config.json has {setting} = {settings[setting]}"
            raise ConfigError(text, fix="make both the same")


def _require_frame(step: dict[str, Any], vocab: dict[str, int]) -> None:
    """Refuse texts that do not stand between [CLS] and [SEP]."""
    if step.get("type") == "BertProcessing":
        right = [step.get(key) for key in ("cls", "sep")] == [[piece, vocab[piece]] for piece in ("[CLS]", "[SEP]")]
    else:
        parts = [next(iter(part.items())) for part in step.get("single", ()) if isinstance(part, dict) and part]
        names = [(kind, value.get("id")) for kind, value in parts if isinstance(value, dict)]
        frame = [("SpecialToken", "[CLS]"), ("Sequence", "A"), ("SpecialToken", "[SEP]")]
        right = step.get("type") == "TemplateProcessing" and names == frame
    if not right:
        raise ConfigError("texts do not stand between [CLS] and [SEP]", fix=ANOTHER)


def _require_plain(added: list[_Added], vocab: dict[str, int]) -> None:
    """Refuse further pieces that are cut out of texts before anything else."""
    for one in added:
        if one.content not in SPECIAL.values() or vocab[one.content] != one.id:
            raise ConfigError(f"the added piece {quoted(one.content)} would be cut out of texts", fix=ANOTHER)


def _vocabulary(model: _Model, normalizer: _Normalizer) -> Vocabulary:
    lower = normalizer.lowercase
    config = WordpieceConfig(
        lower=lower,
        clean=normalizer.clean_text,
        chinese_apart=normalizer.handle_chinese_chars,
        accents=not (lower if normalizer.strip_accents is None else normalizer.strip_accents),
        longest_word=model.max_input_chars_per_word,
    )
    pieces = [piece for piece in sorted(model.vocab, key=model.vocab.__getitem__) if piece not in SPECIAL.values()]
    rows = [model.vocab[SPECIAL[symbol]] for symbol in range(COUNT)] + [model.vocab[piece] for piece in pieces]
    return Vocabulary(Tokenizer(config, WordpieceCutter(config, WordpieceData(tuple(pieces)))), np.array(rows))
