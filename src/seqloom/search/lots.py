"""A lot as the files of a committed folder, and back.

    lot.json             ids, columns, removed ids, settings, source
    texts.txt            the texts, one behind the other
    words.txt            the words of the keyword index, sorted, one a line
    arrays.safetensors   where texts end, passages, vectors, postings

Everything is read into memory, and read only through the sums of the manifest.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from safetensors.numpy import load, save

from seqloom.errors import DamagedError
from seqloom.files.folders import commit_folder, read_file_of, read_folder
from seqloom.search.bm25 import Postings
from seqloom.search.passages import Span
from seqloom.search.store import DocumentSource, FoundPassage, Lot, Settings, TextDocument

FORMAT = 2  # 2: words in one Unicode form with their marks; ids and joined columns are kept as columns too
DOCUMENTS, CHARACTERS = 1_024, 1 << 23  # of a lot, whichever comes first
HEADER, TEXTS, WORDS, ARRAYS = "lot.json", "texts.txt", "words.txt", "arrays.safetensors"
POSTINGS = ("starts", "documents", "counts", "lengths")
T = TypeVar("T")


class Version(msgspec.Struct, frozen=True):
    """What a lot of any version says."""

    format: int


class Join(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lots from the `first` on hold together what all lots before them held, as soon as the `last` of them is there."""

    first: int
    last: bool


class LotHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a lot says about itself, without texts and vectors."""

    format: int
    join: Join | None
    settings: Settings
    source: DocumentSource | None
    removed: tuple[str, ...]
    ids: tuple[str, ...]
    columns: dict[str, list[Any]]


class KeptLot(NamedTuple):
    """A lot as it is read."""

    header: LotHeader
    texts: bytes  # UTF-8
    ends: np.ndarray  # [D] in bytes
    passages: np.ndarray  # [P,3]
    vectors: np.ndarray  # [P,W]
    postings: Postings

    def document(self, row: int) -> TextDocument:
        """The document of a row."""
        start = int(self.ends[row - 1]) if row else 0
        columns = {name: values[row] for name, values in self.header.columns.items()}
        return TextDocument(self.header.ids[row], self.texts[start : int(self.ends[row])].decode(), columns)

    def size(self, row: int) -> int:
        """How many bytes the text of a row has."""
        return int(self.ends[row]) - (int(self.ends[row - 1]) if row else 0)

    @property
    def is_small(self) -> bool:
        """Whether there was room for much more."""
        return len(self.header.ids) < DOCUMENTS // 4 and len(self.texts) < CHARACTERS // 4

    def found(self, row: int) -> FoundPassage:
        """The document of a row with its passages."""
        here = slice(*np.searchsorted(self.passages[:, 0], [row, row + 1]).tolist())
        spans: tuple[Span, ...] = tuple(map(tuple, self.passages[here, 1:].tolist()))
        return FoundPassage(self.document(row), spans, self.vectors[here])


def commit_lot(path: Path, lot: Lot, postings: Postings | None = None, join: Join | None = None) -> None:
    """Write a lot; when this returns, the folder holds it for good. Where lots are joined its postings are known."""
    if postings is None:
        postings = Postings.of(one.text for one in lot.documents)
    names = dict.fromkeys(name for one in lot.documents for name in one.columns)
    columns = {name: [one.columns.get(name) for one in lot.documents] for name in names}
    ids = tuple(one.id for one in lot.documents)
    header = LotHeader(FORMAT, join, lot.settings, lot.source, lot.removed, ids, columns)
    texts = [one.text.encode() for one in lot.documents]
    arrays = {name: getattr(postings, name) for name in POSTINGS}
    arrays |= {"ends": np.cumsum([len(one) for one in texts], dtype=np.int64)}
    arrays |= {"passages": lot.passages.astype(np.int64), "vectors": lot.vectors.astype(np.float32)}
    files = {HEADER: msgspec.json.encode(header), TEXTS: b"".join(texts), WORDS: "\n".join(postings.words).encode()}
    files[ARRAYS] = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    commit_folder(path, files)


def read_header(path: Path) -> LotHeader:
    """What the lot in a folder says about itself."""
    with damage():
        data = read_file_of(path, HEADER)
    return _header(data, path)


def _header(data: bytes, path: Path) -> LotHeader:
    try:
        found = msgspec.json.decode(data, type=Version).format
        if found == FORMAT:
            return msgspec.json.decode(data, type=LotHeader)
    except msgspec.MsgspecError:
        raise DamagedError(f"{path}: expected a lot of an index, found something else", fix=RESTORED) from None
    raise DamagedError(f"{path}: an index of version {found}, and this Seqloom reads version {FORMAT}", fix=OLDER)


AGAIN = "make the index again of its file: seqloom index MODEL FILE --out NEW"
OLDER, RESTORED = f"{AGAIN}, or use the Seqloom that made it", f"restore it from a copy, or {AGAIN}"


@contextmanager
def damage() -> Iterator[None]:
    """A block in which damage of a committed folder is told with one cure more: its documents may still be there."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(error.problem, fix=f"{error.fix}, or {AGAIN}") from error


def read_lot(path: Path) -> KeptLot:
    """The lot in a folder, every byte of it as it was committed."""
    with damage():
        files = dict(read_folder(path))
    if files.keys() != {HEADER, TEXTS, WORDS, ARRAYS}:
        raise DamagedError(f"{path}: expected the files of a lot, found {', '.join(files)}", fix=RESTORED)
    header, arrays = _header(files[HEADER], path), load(files[ARRAYS])
    words = tuple(files[WORDS].decode().split("\n")) if files[WORDS] else ()
    postings = Postings(words, *(arrays[name] for name in POSTINGS))
    return KeptLot(header, files[TEXTS], arrays["ends"], arrays["passages"], arrays["vectors"], postings)


Rowed = tuple[int, int]  # the number of a lot, and a row there


def divided(lots: Sequence[KeptLot], rows: Sequence[np.ndarray]) -> list[list[Rowed]]:
    """Some rows of each lot, in their order, as they are put into new lots; at least one, if need be without any."""
    places = [(lot, row) for lot, some in enumerate(rows) for row in some.tolist()]
    return [*bounded((place, lots[place[0]].size(place[1])) for place in places)] or [[]]


def joined(lots: Sequence[KeptLot], places: Sequence[Rowed]) -> tuple[Lot, Postings]:
    """One lot of some documents in the order of their lots, and its postings; no text is read for them."""
    kept = [lots[lot].found(row) for lot, row in places]
    newest = lots[-1].header
    passages = [(number, *span) for number, one in enumerate(kept) for span in one.passages]
    vectors = np.concatenate([np.empty((0, newest.settings.width), np.float32), *(one.vectors for one in kept)])
    documents = tuple(one.document for one in kept)
    # what the newest one said last is still known: whoever was killed goes on by it
    lot = Lot(newest.settings, documents, as_passages(passages), vectors, newest.removed, newest.source)
    by_lot = groupby(places, key=itemgetter(0))
    return lot, Postings.joined([(lots[one].postings, np.array([row for _, row in some])) for one, some in by_lot])


def bounded(sized: Iterable[tuple[T, int]], most: int = 0, longest: int = 0) -> Iterator[list[T]]:
    """Things with the lengths of their texts, in lists up to a number of them or of characters: usually those of lots.

    >>> [len(some) for some in bounded((name, 1 << 22) for name in "abc")]
    [2, 1]
    """
    lot: list[T] = []
    characters = 0
    for one, size in sized:
        lot.append(one)
        characters += size
        if len(lot) == (most or DOCUMENTS) or characters >= (longest or CHARACTERS):
            yield lot
            lot, characters = [], 0
    if lot:
        yield lot


def as_passages(rows: Sequence[tuple[int, ...]]) -> np.ndarray:
    """[P,3] the row of its document, and the characters where each passage starts and stops."""
    return np.array(rows, np.int64).reshape(-1, 3)
