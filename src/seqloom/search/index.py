"""An index in a folder: segments that are written once, and a graph over their passages if there are many.

    INDEX/
      .lock            only one process can write
      lot-000001/      a segment: documents, vectors, words; committed by its manifest
      lot-000002/      a later segment: more documents, replaced documents, deleted ids
      graph-000002/    graph over all passages up to segment 2

A build that is killed leaves complete segments, and resumes after the last one. When a quarter of the documents is
deleted or replaced, or many segments are small, all segments are merged: new segments with the remaining documents
replace the old ones once the last new one is committed. Only then are old texts removed from disk. A merge that was
killed earlier has no effect.

Only one process at a time can change an index. If it is killed, readers see the state before or after the change:

    add         writes a segment
    delete      writes a segment without documents that lists the deleted ids
    join        merges all segments
    finished    merges segments if needed, and builds or extends the graph
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from seqloom.config.options import strict
from seqloom.errors import ConfigError, DamagedError, DurableError, MissingExtraError, near_folder, needing
from seqloom.events import Work
from seqloom.files.folders import commit_folder, numbered, read_folder, remove_folder, sweep
from seqloom.files.lock import hold, remove_held
from seqloom.search.bm25 import Keywords
from seqloom.search.segments import (
    RESTORED,
    Join,
    SegmentHeader,
    StoredSegment,
    damage,
    merged_segment,
    plan_segments,
    read_header,
    read_segment,
    write_segment,
)
from seqloom.search.store import (
    LINKED,
    Condition,
    Conditions,
    DocumentSource,
    IndexSummary,
    ScoredDocument,
    Segment,
    Settings,
    StoredDocument,
    delete_from,
    require_columns,
)
from seqloom.search.vectors import GRAPH_FROM, ExactSearch, GraphSearch, PassageSearch, best, grow_graph, open_graph

KEPT = 16  # sets of conditions whose matching documents are cached


class Allowed(NamedTuple):
    """The documents [D] and passages [P] that match, and the number of documents."""

    documents: np.ndarray
    passages: np.ndarray
    total: int


class State:
    """The content of all segments, in memory."""

    def __init__(self, numbers: Sequence[int], segments: list[StoredSegment]) -> None:
        self.numbers, (self.segments, vectors) = tuple(numbers), _together(segments)
        later, there = set[str](), list[list[bool]]()  # a document is live if no later segment replaces or deletes it
        for segment in reversed(self.segments):
            there.insert(0, [name not in later for name in segment.header.ids])
            later.update(segment.header.ids, segment.header.removed)
        self.there = np.array([*chain.from_iterable(there)], bool)  # [D] live documents of all segments
        self.offsets = [0, *accumulate(len(segment.header.ids) for segment in self.segments)]
        self.ids = [name for segment in self.segments for name in segment.header.ids]  # [D]
        self.rows = {self.ids[number]: number for number in np.flatnonzero(self.there).tolist()}
        owners = [segment.passages[:, 0] + start for segment, start in zip(self.segments, self.offsets, strict=False)]
        self.owners = np.concatenate([np.empty(0, np.int64), *owners])  # [P] document of each passage
        self.exact = ExactSearch(vectors)
        self._asked: dict[tuple[Condition, ...], Allowed] = {}

    @property
    def is_joined(self) -> bool:
        """Return whether every document is live and all segments come from the last merge."""
        return bool(self.there.all()) and all(segment.header.join is not None for segment in self.segments)

    def kept(self) -> list[np.ndarray]:
        """Return the live rows of each segment."""
        return [np.flatnonzero(some) for some in np.split(self.there, self.offsets[1:-1])] if self.segments else []

    @cached_property
    def keywords(self) -> Keywords:
        """Return the keyword scores of the live documents."""
        return Keywords([segment.postings for segment in self.segments], self.there)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the names of all columns."""
        return tuple(dict.fromkeys(name for segment in self.segments for name in segment.header.columns))

    def place(self, number: int) -> tuple[int, int]:
        """Return the segment of a document, and its row there."""
        segment = bisect_right(self.offsets, number) - 1
        return segment, number - self.offsets[segment]

    def allowed(self, where: Conditions) -> Allowed:
        """Return the live documents that match all conditions; cached, because queries repeat conditions."""
        asked = tuple(where)
        if asked not in self._asked:
            require_columns(asked, self.columns)
            found = np.logical_and.reduce([self.there, *map(self._fulfilled, asked)])
            if len(self._asked) == KEPT:
                self._asked.clear()
            self._asked[asked] = Allowed(found, found[self.owners], int(found.sum()))
        return self._asked[asked]

    def _fulfilled(self, condition: Condition) -> np.ndarray:
        values = (
            value
            for segment in self.segments
            for value in segment.header.columns.get(condition.column) or [None] * len(segment.header.ids)
        )
        return np.fromiter(map(condition.matches, values), bool, len(self.there))


def _together(segments: list[StoredSegment]) -> tuple[tuple[StoredSegment, ...], np.ndarray]:
    """Return the segments, and all their vectors in one array [P,W], of which each segment has a view.

    Segments leave the list one by one, so that little more than one segment is in memory twice.
    """
    width = segments[0].vectors.shape[1] if segments else 0
    vectors, start, found = (
        np.empty((sum(len(segment.vectors) for segment in segments), width), np.float32),
        0,
        list[StoredSegment](),
    )
    segments.reverse()
    while segments:
        segment = segments.pop()
        part = vectors[start : start + len(segment.vectors)]
        part[:] = segment.vectors
        found.append(segment._replace(vectors=part))
        start += len(part)
    return tuple(found), vectors


SEGMENT, GRAPH = "lot-", "graph-"
WALK, COVERS = "graph.usearch", "graph.json"
READINGS = 5  # attempts to read while another process merges segments or replaces the graph
T = TypeVar("T")


class GraphCoverage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a graph covers: the first and last segment, and the number of passages."""

    first: int
    last: int
    passages: int


class Index:
    """An index in a folder; its files are read on first use."""

    def __init__(self, path: Path, *, exact: bool = False) -> None:
        self.path, self.always_exact = path, exact

    def __len__(self) -> int:
        return len(self.state.rows)

    @cached_property
    def state(self) -> State:
        """Return the content of all segments, verified."""
        return self._steadily(self._read)

    def _steadily(self, read: Callable[[], T]) -> T:
        """Read; try again if it failed because another process replaced files meanwhile."""
        for _ in range(READINGS - 1):
            before = _folders(self.path)
            try:
                return read()
            except DurableError:
                if _folders(self.path) == before:
                    raise
        return read()

    def _read(self) -> State:
        numbers, segments, start = self.counting(), list[StoredSegment](), 1
        for number in reversed(numbers):
            segments.append(read_segment(segment_path(self.path, number)))
            start = segments[-1].header.join.first if segments[-1].header.join is not None else start
            if number <= start:
                break
        numbers = numbers[len(numbers) - len(segments) :]
        missing = sorted(set(range(start, max(numbers, default=0))) - set(numbers))
        if missing:
            raise DamagedError(
                f"{segment_path(self.path, missing[0])}: this segment of the index is missing", fix=RESTORED
            )
        return State(numbers, segments[::-1])

    def counting(self) -> list[int]:
        """Return the numbers of the valid segments; an unfinished merge is ignored."""
        numbers = segment_numbers(self.path)
        while (
            numbers and (join := read_header(segment_path(self.path, numbers[-1])).join) is not None and not join.last
        ):
            numbers.pop()
        return numbers

    @property
    def _newest(self) -> SegmentHeader | None:
        def read() -> SegmentHeader | None:
            numbers = self.counting()
            return read_header(segment_path(self.path, numbers[-1])) if numbers else None

        return self._steadily(read)

    @property
    def settings(self) -> Settings | None:
        """Return how documents were embedded; None for an empty index."""
        return None if (newest := self._newest) is None else newest.settings

    @property
    def source(self) -> DocumentSource | None:
        """Return which part of which file the newest segment holds."""
        return None if (newest := self._newest) is None else newest.source

    @property
    def columns(self) -> tuple[str, ...]:
        return self.state.columns

    @cached_property
    def nearest(self) -> PassageSearch:
        """Return what finds the nearest passages: the graph if there is one and it may be used, or exact search."""
        exact = self.always_exact or any(segment.header.settings.exact for segment in self.state.segments[-1:])
        kept = None if exact else self.graph()
        return self.state.exact if kept is None else GraphSearch(open_graph(kept[1]), self.state.exact)

    def graph(self) -> tuple[int, bytes] | None:
        """Return the newest graph over these segments: the number of passages it covers, and its bytes."""
        state = self.state

        def read() -> tuple[int, bytes] | None:
            for _, folder in numbered(self.path, GRAPH)[0]:
                with damage():
                    files = dict(read_folder(folder))
                covers = msgspec.json.decode(files[COVERS], type=GraphCoverage)
                if state.numbers and covers.first == state.numbers[0] and covers.passages <= len(state.owners):
                    return covers.passages, files[WALK]
            return None

        return self._steadily(read)

    def holds(self, ids: Iterable[str]) -> set[str]:
        """Return those of the ids that are in the index."""
        return {name for name in ids if name in self.state.rows}

    def by_words(self, query: str, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the documents with words of the query, best BM25 score first."""
        scores = self.state.keywords.scores(query)
        numbers = np.flatnonzero(self.state.allowed(where).documents & (scores > 0))
        found = best(numbers, scores[numbers], count)
        return self._named(found.passages.tolist(), found.scores.tolist())

    def by_vector(self, query: np.ndarray, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the documents whose best passage is nearest to a unit vector, nearest first."""
        owners, allowed = self.state.owners, self.state.allowed(where)
        count = min(count, allowed.total)
        wanted = (
            count * len(owners) // max(1, len(self.state.there))
        )  # passages that this many documents have on average
        while True:  # a document with many near passages counts once, so ask for more until there are enough
            near = self.nearest.nearest(query, allowed.passages, max(1, wanted))
            found: dict[int, float] = {}
            for owner, score in zip(owners.take(near.passages).tolist(), near.scores.tolist(), strict=True):
                found.setdefault(owner, score)
            if len(found) >= count or wanted >= len(owners):
                return self._named(list(found)[:count], found.values())
            wanted = min(2 * wanted, len(owners))

    def _named(self, numbers: Iterable[int], scores: Iterable[float]) -> list[ScoredDocument]:
        return list(map(ScoredDocument, map(self.state.ids.__getitem__, numbers), scores))

    def documents(self, ids: Sequence[str]) -> list[StoredDocument]:
        places = [self.state.place(self.state.rows[name]) for name in ids]
        return [self.state.segments[segment].found(row) for segment, row in places]


def segment_path(path: Path, number: int) -> Path:
    return path / f"{SEGMENT}{number:06d}"


def segment_numbers(path: Path) -> list[int]:
    """Return the numbers of all segments in order."""
    return sorted(number for number, _ in numbered(path, SEGMENT)[0])


def _folders(path: Path) -> list[Path]:
    """Return all segments and graphs."""
    return [folder for prefix in (SEGMENT, GRAPH) for _, folder in numbered(path, prefix)[0]]


@strict
def open_index(path: str | Path, *, exact: bool = False) -> Index:
    """Open an index in a folder and verify its files.

    Args:
        path: The folder.
        exact: Compare every passage instead of using the graph.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"the index {folder} does not exist", fix=near_folder(folder))
    index = Index(folder, exact=exact)
    if not index.state.segments:
        raise ConfigError(f"{folder} is not an index", fix="build one: `seqloom index FILE --out INDEX`")
    return index


MANY = 32  # small segments before all are merged
GONE = 0.25  # share of deleted or replaced documents before all segments are merged
BEHIND = 0.1  # share of passages outside the graph before it is extended


class WritableIndex(Index):
    """An index that this process can change; see `open_writable_index`."""

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def removed(self) -> tuple[str, ...]:
        return () if (newest := self._newest) is None else newest.removed

    def add(self, segment: Segment) -> None:
        """Write a segment; when this returns, it survives a power cut."""
        write_segment(segment_path(self.path, max(segment_numbers(self.path), default=0) + 1), segment)
        self._forget()

    def _forget(self) -> None:
        for name in ("state", "nearest"):  # cached content is out of date
            self.__dict__.pop(name, None)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; ConfigError if an id is not in the index."""
        delete_from(self, ids)

    def compact(self) -> None:
        """Merge all segments, and remove replaced and deleted texts from disk."""
        state = self.state
        if state.is_joined:
            return
        first, parts = state.numbers[-1] + 1, plan_segments(state.segments, state.kept())
        for number, places in enumerate(parts, first):
            join = Join(first, last=number == first + len(parts) - 1)
            write_segment(segment_path(self.path, number), *merged_segment(state.segments, places), join)
        self._forget()
        self._drop_before(first)

    def tidy(self) -> None:
        """Merge segments if many are small or many documents are deleted; remove leftovers of earlier merges."""
        state = self.state
        small = sum(segment.is_small for segment in state.segments)
        if small > MANY or np.count_nonzero(~state.there) > GONE * max(1, len(state.there)):
            self.compact()
        elif state.numbers:
            self._drop_before(state.numbers[0])

    def _drop_before(self, first: int) -> None:
        """Remove segments and graphs that a merge replaced."""
        for number, path in [*numbered(self.path, SEGMENT)[0], *numbered(self.path, GRAPH)[0]]:
            if number < first:
                remove_folder(path)

    def drop_unfinished(self) -> None:
        """Remove the segments of a merge that was killed, last one first."""
        for number in reversed(segment_numbers(self.path)[len(self.counting()) :]):
            remove_folder(segment_path(self.path, number))

    def require_graph(self, more: Iterable[int]) -> None:
        """Raise MissingExtraError if documents with these numbers of passages need usearch and it is not installed."""
        try:
            with needing("search"):
                import usearch.index  # noqa: F401
        except MissingExtraError:
            if any(total >= GRAPH_FROM for total in accumulate(more, initial=len(self.state.owners))):
                raise

    def finished(self) -> Work[IndexSummary]:
        """Finish a change: merge segments if needed, and build or extend the graph."""
        self.tidy()
        settings = self.settings
        if settings is not None and settings.may_have_graph:
            yield from self.grow_graph()
        else:
            self._drop_graphs()
        return IndexSummary(len(self), len(self.state.owners), self.nearest is not self.state.exact)

    def grow_graph(self) -> Work[None]:
        """Build or extend the graph if needed; below `GRAPH_FROM` passages there is none."""
        state, (before, kept) = self.state, self.graph() or (0, None)
        total = len(state.owners)
        if total < GRAPH_FROM or total - before <= BEHIND * before:
            return
        walk = yield from grow_graph(kept, state.exact.vectors, LINKED)
        covers = GraphCoverage(state.numbers[0], state.numbers[-1], total)
        path = self.path / f"{GRAPH}{state.numbers[-1]:06d}"
        commit_folder(path, {WALK: bytes(walk.save()), COVERS: msgspec.json.encode(covers)})
        self.__dict__.pop("nearest", None)
        self._drop_graphs(but=path)

    def _drop_graphs(self, but: Path | None = None) -> None:
        for _, path in numbered(self.path, GRAPH)[0]:
            if path != but:
                remove_folder(path)


@contextmanager
def open_writable_index(path: Path) -> Iterator[WritableIndex]:
    """A context in which only this process can change the index in a folder; creates it if needed.

    A new folder to which nothing was added is removed again.
    """
    if path.is_dir() and not segment_numbers(path) and any(one.name[0] != "." for one in path.iterdir()):
        raise ConfigError(f"{path} exists and is not an index", fix="choose another name")
    new = not path.exists()
    with hold(path):
        sweep(path)
        index = WritableIndex(path)
        index.drop_unfinished()
        try:
            yield index
        finally:
            if new and not segment_numbers(path):
                remove_held(path)
