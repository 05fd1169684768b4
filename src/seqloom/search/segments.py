"""Write a segment of an index as the files of a committed folder, and read it back.

    lot.json             ids, columns, deleted ids, settings, source
    texts.txt            the texts, concatenated
    words.txt            the words of the keyword index, sorted, one per line
    arrays.safetensors   ends of texts, passages, vectors, postings

Everything is read into memory and verified with the checksums of the manifest.
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

from seqloom.data.checks.check import bounded
from seqloom.errors import DamagedError
from seqloom.files.folders import commit_folder, read_file_of, read_folder
from seqloom.search.bm25 import Postings
from seqloom.search.passages import Span
from seqloom.search.store import DocumentSource, Segment, Settings, StoredDocument, TextDocument

FORMAT = 2  # 2: words in NFKC with their marks; ids and joined columns are stored as columns too
DOCUMENTS, CHARACTERS = 1_024, 1 << 23  # of a segment, whichever comes first
HEADER, TEXTS, WORDS, ARRAYS = "lot.json", "texts.txt", "words.txt", "arrays.safetensors"
POSTINGS = ("starts", "documents", "counts", "lengths")
T = TypeVar("T")


class Version(msgspec.Struct, frozen=True):
    """What a segment of any version has."""

    format: int


class Join(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The segments from `first` on replace all earlier ones, as soon as the `last` of them is written."""

    first: int
    last: bool


class SegmentHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a segment, without texts and vectors."""

    format: int
    join: Join | None
    settings: Settings
    source: DocumentSource | None
    removed: tuple[str, ...]
    ids: tuple[str, ...]
    columns: dict[str, list[Any]]


class StoredSegment(NamedTuple):
    """A segment that was read from its files."""

    header: SegmentHeader
    texts: bytes  # UTF-8
    ends: np.ndarray  # [D] in bytes
    passages: np.ndarray  # [P,3]
    vectors: np.ndarray  # [P,W]
    postings: Postings

    def document(self, row: int) -> TextDocument:
        start = int(self.ends[row - 1]) if row else 0
        columns = {name: values[row] for name, values in self.header.columns.items()}
        return TextDocument(self.header.ids[row], self.texts[start : int(self.ends[row])].decode(), columns)

    def size(self, row: int) -> int:
        """Return the size of the text of a row in bytes."""
        return int(self.ends[row]) - (int(self.ends[row - 1]) if row else 0)

    @property
    def is_small(self) -> bool:
        """Return whether the segment is less than a quarter full."""
        return len(self.header.ids) < DOCUMENTS // 4 and len(self.texts) < CHARACTERS // 4

    def found(self, row: int) -> StoredDocument:
        """Return the document of a row with its passages."""
        here = slice(*np.searchsorted(self.passages[:, 0], [row, row + 1]).tolist())
        spans: tuple[Span, ...] = tuple(map(tuple, self.passages[here, 1:].tolist()))
        return StoredDocument(self.document(row), spans, self.vectors[here])


def write_segment(path: Path, segment: Segment, postings: Postings | None = None, join: Join | None = None) -> None:
    """Write a segment durably; `postings` are given if they are known from a merge."""
    if postings is None:
        postings = Postings.of(one.text for one in segment.documents)
    names = dict.fromkeys(name for one in segment.documents for name in one.columns)
    columns = {name: [one.columns.get(name) for one in segment.documents] for name in names}
    ids = tuple(one.id for one in segment.documents)
    header = SegmentHeader(FORMAT, join, segment.settings, segment.source, segment.removed, ids, columns)
    texts = [one.text.encode() for one in segment.documents]
    arrays = {name: getattr(postings, name) for name in POSTINGS}
    arrays |= {"ends": np.cumsum([len(one) for one in texts], dtype=np.int64)}
    arrays |= {"passages": segment.passages.astype(np.int64), "vectors": segment.vectors.astype(np.float32)}
    files = {HEADER: msgspec.json.encode(header), TEXTS: b"".join(texts), WORDS: "\n".join(postings.words).encode()}
    files[ARRAYS] = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    commit_folder(path, files)


def read_header(path: Path) -> SegmentHeader:
    """Read the metadata of the segment in a folder."""
    with damage():
        data = read_file_of(path, HEADER)
    return _header(data, path)


def _header(data: bytes, path: Path) -> SegmentHeader:
    try:
        found = msgspec.json.decode(data, type=Version).format
        if found == FORMAT:
            return msgspec.json.decode(data, type=SegmentHeader)
    except msgspec.MsgspecError:
        raise DamagedError(f"{path}: this is not a segment of an index", fix=RESTORED) from None
    raise DamagedError(
        f"{path}: the index has format {found}, but this version of Seqloom reads format {FORMAT}", fix=OLDER
    )


AGAIN = "build the index again: `seqloom index [MODEL] FILE --out NEW`"
OLDER, RESTORED = f"{AGAIN}, or use the version of Seqloom that made it", f"restore it from a copy, or {AGAIN}"


@contextmanager
def damage() -> Iterator[None]:
    """A context in which an error about a damaged folder also suggests to build the index again."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(error.problem, fix=f"{error.fix}, or {AGAIN}") from error


def read_segment(path: Path) -> StoredSegment:
    """Read the segment in a folder and verify every byte."""
    with damage():
        files = dict(read_folder(path))
    if files.keys() != {HEADER, TEXTS, WORDS, ARRAYS}:
        raise DamagedError(
            f"{path}: this is not a segment of an index; it has the files {', '.join(files)}", fix=RESTORED
        )
    header, arrays = _header(files[HEADER], path), load(files[ARRAYS])
    words = tuple(files[WORDS].decode().split("\n")) if files[WORDS] else ()
    postings = Postings(words, *(arrays[name] for name in POSTINGS))
    return StoredSegment(header, files[TEXTS], arrays["ends"], arrays["passages"], arrays["vectors"], postings)


Rowed = tuple[int, int]  # number of a segment, and a row there


def plan_segments(segments: Sequence[StoredSegment], rows: Sequence[np.ndarray]) -> list[list[Rowed]]:
    """Distribute the selected rows of each segment, in order, over new segments; at least one, even if it is empty."""
    places = [(segment, row) for segment, some in enumerate(rows) for row in some.tolist()]
    return [*in_segments((place, segments[place[0]].size(place[1])) for place in places)] or [[]]


def merged_segment(segments: Sequence[StoredSegment], places: Sequence[Rowed]) -> tuple[Segment, Postings]:
    """Return one segment of selected documents in order, and its postings, without reading the texts again."""
    kept = [segments[segment].found(row) for segment, row in places]
    newest = segments[-1].header
    passages = [(number, *span) for number, one in enumerate(kept) for span in one.passages]
    vectors = np.concatenate([np.empty((0, newest.settings.width), np.float32), *(one.vectors for one in kept)])
    documents = tuple(one.document for one in kept)
    # keep the source and deleted ids of the newest segment: a killed command resumes from them
    segment = Segment(newest.settings, documents, passage_array(passages), vectors, newest.removed, newest.source)
    by_segment = groupby(places, key=itemgetter(0))
    return segment, Postings.joined(
        [(segments[one].postings, np.array([row for _, row in some])) for one, some in by_segment]
    )


def in_segments(sized: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Group items, given with the length of their text, as a segment holds them.

    >>> [len(some) for some in in_segments((name, 1 << 22) for name in "abc")]
    [2, 1]
    """
    return bounded(sized, DOCUMENTS, CHARACTERS)


def passage_array(rows: Sequence[tuple[int, ...]]) -> np.ndarray:
    """[P,3] document row, start and stop in characters of each passage."""
    return np.array(rows, np.int64).reshape(-1, 3)
