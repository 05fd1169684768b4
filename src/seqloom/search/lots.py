"""A lot as the files of a committed folder, and back.

    lot.json             ids, columns, removed ids, settings, source
    texts.txt            the texts, one behind the other
    words.txt            the words of the keyword index, sorted, one a line
    arrays.safetensors   where texts end, passages, vectors, postings

Everything is read into memory, and read only through the sums of the manifest.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from safetensors.numpy import load, save

from seqloom.durable import commit_folder, read_file_of, read_folder
from seqloom.errors import DamagedError
from seqloom.search.bm25 import Postings
from seqloom.search.passages import Span
from seqloom.search.store import Document, Found, Lot, Settings, Source

FORMAT = 1
HEADER, TEXTS, WORDS, ARRAYS = "lot.json", "texts.txt", "words.txt", "arrays.safetensors"
POSTINGS = ("starts", "documents", "counts", "lengths")


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a lot says about itself, without texts and vectors."""

    format: int
    first: bool  # whether all lots before it are gone: it holds what they held
    settings: Settings
    source: Source | None
    removed: tuple[str, ...]
    ids: tuple[str, ...]
    columns: dict[str, list[Any]]


class KeptLot(NamedTuple):
    """A lot as it is read."""

    header: Header
    texts: bytes  # UTF-8
    ends: np.ndarray  # [D] in bytes
    passages: np.ndarray  # [P,3]
    vectors: np.ndarray  # [P,W]
    postings: Postings

    def document(self, row: int) -> Document:
        """The document of a row."""
        start = int(self.ends[row - 1]) if row else 0
        columns = {name: values[row] for name, values in self.header.columns.items()}
        return Document(self.header.ids[row], self.texts[start : int(self.ends[row])].decode(), columns)

    def found(self, row: int) -> Found:
        """The document of a row with its passages."""
        here = slice(*np.searchsorted(self.passages[:, 0], [row, row + 1]).tolist())
        spans: tuple[Span, ...] = tuple(map(tuple, self.passages[here, 1:].tolist()))
        return Found(self.document(row), spans, self.vectors[here])


def commit_lot(path: Path, lot: Lot, *, first: bool) -> None:
    """Nothing; when it returns, the folder holds the lot for good."""
    postings = Postings.of(one.text for one in lot.documents)
    commit_folder(path, _files(Header(FORMAT, first, *_told(lot)), lot, postings))


def _told(lot: Lot) -> tuple[Any, ...]:
    names = dict.fromkeys(name for one in lot.documents for name in one.columns)
    columns = {name: [one.columns.get(name) for one in lot.documents] for name in names}
    return lot.settings, lot.source, lot.removed, tuple(one.id for one in lot.documents), columns


def _files(header: Header, lot: Lot, postings: Postings) -> dict[str, bytes]:
    texts = [one.text.encode() for one in lot.documents]
    arrays = {name: getattr(postings, name) for name in POSTINGS}
    arrays |= {"ends": np.cumsum([len(one) for one in texts], dtype=np.int64)}
    arrays |= {"passages": lot.passages.astype(np.int64), "vectors": lot.vectors.astype(np.float32)}
    return {
        HEADER: msgspec.json.encode(header),
        TEXTS: b"".join(texts),
        WORDS: "\n".join(postings.words).encode(),
        ARRAYS: save({name: np.ascontiguousarray(array) for name, array in arrays.items()}),
    }


def read_header(path: Path) -> Header:
    """What the lot in a folder says about itself."""
    return _header(read_file_of(path, HEADER), path)


def _header(data: bytes, path: Path) -> Header:
    try:
        return msgspec.json.decode(data, type=Header)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"{path}: expected a lot of an index, found another form ({error})", fix=AGAIN) from None


AGAIN = "use the Seqloom it is from, or make the index again"


def read_lot(path: Path) -> KeptLot:
    """The lot in a folder, every byte of it as it was committed."""
    files = dict(read_folder(path))
    if files.keys() != {HEADER, TEXTS, WORDS, ARRAYS}:
        raise DamagedError(f"{path}: expected the files of a lot, found {', '.join(files)}", fix=AGAIN)
    header, arrays = _header(files[HEADER], path), load(files[ARRAYS])
    words = tuple(files[WORDS].decode().split("\n")) if files[WORDS] else ()
    postings = Postings(words, *(arrays[name] for name in POSTINGS))
    return KeptLot(header, files[TEXTS], arrays["ends"], arrays["passages"], arrays["vectors"], postings)


def joined(lots: Sequence[KeptLot], rows: Iterable[tuple[int, int]]) -> Lot:
    """One lot of some documents, each given by the number of its lot and its row."""
    kept = [lots[lot].found(row) for lot, row in rows]
    newest = lots[-1].header
    passages = [(number, *span) for number, one in enumerate(kept) for span in one.passages]
    vectors = np.concatenate([np.empty((0, newest.settings.width), np.float32), *(one.vectors for one in kept)])
    documents = tuple(one.document for one in kept)
    return Lot(newest.settings, documents, as_passages(passages), vectors, (), newest.source)


def as_passages(rows: Sequence[tuple[int, ...]]) -> np.ndarray:
    """[P,3] the row of its document, and the characters where each passage starts and stops."""
    return np.array(rows, np.int64).reshape(-1, 3)
