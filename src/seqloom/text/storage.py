"""A tokeniser as one JSON document: format, version, configuration, and what its cutter was fitted to.

    {"format": "seqloom-tokenizer", "version": 1, "config": {"kind": "bpe", ...}, "dropped": 0, "data": {"merges": ...}}

Only our own data is stored, never a description of the library's objects: those are made anew by our code, so that a
document cannot bring in special tokens, patterns or steps, and does not depend on the version of the library.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from seqloom.config.base import Config, taken
from seqloom.config.text import AnyTokenizer
from seqloom.errors import ConfigError, DataError
from seqloom.text.plain import BytesData, CharactersData
from seqloom.text.subwords import BpeData, UnigramData
from seqloom.text.wordpiece import WordpieceData
from seqloom.text.words import WordsData

FORMAT = "seqloom-tokenizer"
VERSION = 1
MAX_CHARACTERS = 2**30
DATA: dict[str, type[msgspec.Struct]] = {
    "words": WordsData,
    "characters": CharactersData,
    "bytes": BytesData,
    "bpe": BpeData,
    "unigram": UnigramData,
    "wordpiece": WordpieceData,
}
FIX = "take the file that was written with the model, or fit the tokeniser again"


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """The document; `config` and `data` are read when the version and the kind are known."""

    format: str
    version: int
    config: msgspec.Raw
    dropped: int
    data: msgspec.Raw


@contextmanager
def reading() -> Iterator[None]:
    """Inside the `with`, every error of reading says that it was a tokeniser that could not be read."""
    try:
        yield
    except (msgspec.DecodeError, ConfigError, DataError, UnicodeError, RecursionError) as error:
        problem = error.problem if isinstance(error, ConfigError | DataError) else str(error)
        raise DataError(f"this is no tokeniser: {problem.rstrip('.')}", fix=FIX) from None


def to_json(config: Config, dropped: int, data: msgspec.Struct) -> str:
    """The document of a tokeniser."""
    raw = msgspec.Raw(msgspec.json.encode(config)), msgspec.Raw(msgspec.json.encode(data))
    return msgspec.json.encode(Document(FORMAT, VERSION, raw[0], dropped, raw[1])).decode()


def from_json(text: str) -> tuple[AnyTokenizer, int, Any]:
    """The configuration, the number of dropped words, and the data of a document."""
    with reading():
        if len(text) > MAX_CHARACTERS:
            raise DataError(f"{len(text):,} characters, and the limit is {MAX_CHARACTERS:,}")
        document = msgspec.json.decode(text.encode(), type=Document)
        if document.format != FORMAT or document.version != VERSION:
            raise DataError(f"expected {FORMAT} {VERSION}, found {document.format[:40]!r} {document.version}")
        if document.dropped < 0:
            raise DataError(f"{document.dropped} words were dropped")
        config = taken(msgspec.json.decode(document.config), AnyTokenizer, "config")
        return config, document.dropped, msgspec.json.decode(document.data, type=DATA[config.kind()])
