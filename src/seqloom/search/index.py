"""An index in a folder: lots that are written once, and a graph over their passages if they are many.

    INDEX/
      .lock            one process writes, a second one is refused
      lot-000001/      documents, vectors, words; committed by its manifest
      lot-000002/      later: more documents, replaced ones, removed ids
      graph-000002/    neighbours of all passages up to lot 2

A build that is killed leaves whole lots, and goes on behind the last one. When a quarter of the documents is gone, or
small lots are many, all are joined: new lots hold what is there, and take the place of all others as soon as the last
of them is kept; only then do old texts leave the disk. A join that was killed before that counts for nothing.

One process at a time changes an index, and whatever it is killed at, every reader sees the state before or after:

    add         one more lot
    delete      one more lot, without documents, that names ids
    join        new lots of what is there, and all before them gone
    finished    lots joined that should be, and the graph made or grown
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

from seqloom.errors import ConfigError, DamagedError, DurableError, MissingExtraError, near_folder, needing
from seqloom.events import Work
from seqloom.files.folders import commit_folder, numbered, read_folder, remove_folder, sweep
from seqloom.files.lock import hold, remove_held
from seqloom.search.bm25 import Keywords
from seqloom.search.lots import (
    RESTORED,
    Join,
    KeptLot,
    LotHeader,
    commit_lot,
    damage,
    divided,
    joined,
    read_header,
    read_lot,
)
from seqloom.search.store import (
    LINKED,
    Built,
    Condition,
    Conditions,
    DocumentSource,
    FoundPassage,
    Lot,
    ScoredPassage,
    Settings,
    delete_from,
    require_columns,
)
from seqloom.search.vectors import GRAPH_FROM, Exact, Graph, Nearest, best, grown, opened

KEPT = 16  # different sets of conditions whose documents are remembered


class Allowed(NamedTuple):
    """What may be found: documents [D], their passages [P], and how many documents."""

    documents: np.ndarray
    passages: np.ndarray
    total: int


class State:
    """What the lots hold together, in memory."""

    def __init__(self, numbers: Sequence[int], lots: list[KeptLot]) -> None:
        self.numbers, (self.lots, vectors) = tuple(numbers), _together(lots)
        later, there = set[str](), list[list[bool]]()  # no later lot replaces or removes what is there
        for lot in reversed(self.lots):
            there.insert(0, [name not in later for name in lot.header.ids])
            later.update(lot.header.ids, lot.header.removed)
        self.there = np.array([*chain.from_iterable(there)], bool)  # [D] of all lots, one behind the other
        self.offsets = [0, *accumulate(len(lot.header.ids) for lot in self.lots)]
        self.ids = [name for lot in self.lots for name in lot.header.ids]  # [D]
        self.rows = {self.ids[number]: number for number in np.flatnonzero(self.there).tolist()}
        owners = [lot.passages[:, 0] + start for lot, start in zip(self.lots, self.offsets, strict=False)]
        self.owners = np.concatenate([np.empty(0, np.int64), *owners])  # [P] the document of each passage
        self.exact = Exact(vectors)
        self._asked: dict[tuple[Condition, ...], Allowed] = {}

    @property
    def is_joined(self) -> bool:
        """Whether nothing is gone, and no lot came after the last join."""
        return bool(self.there.all()) and all(lot.header.join is not None for lot in self.lots)

    def kept(self) -> list[np.ndarray]:
        """The rows of each lot that are there."""
        return [np.flatnonzero(some) for some in np.split(self.there, self.offsets[1:-1])] if self.lots else []

    @cached_property
    def keywords(self) -> Keywords:
        """The words of the documents that are there."""
        return Keywords([lot.postings for lot in self.lots], self.there)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(dict.fromkeys(name for lot in self.lots for name in lot.header.columns))

    def place(self, number: int) -> tuple[int, int]:
        """The lot of a document, and its row there."""
        lot = bisect_right(self.offsets, number) - 1
        return lot, number - self.offsets[lot]

    def allowed(self, where: Conditions) -> Allowed:
        """Which documents are there and fulfil all conditions; kept, for the same ones are asked again and again."""
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
            for lot in self.lots
            for value in lot.header.columns.get(condition.column) or [None] * len(lot.header.ids)
        )
        return np.fromiter(map(condition.holds, values), bool, len(self.there))


def _together(lots: list[KeptLot]) -> tuple[tuple[KeptLot, ...], np.ndarray]:
    """The lots, and all their vectors [P,W] one behind the other, of which those of each lot are a part.

    They leave the list one by one, so that hardly more than one lot is in memory twice.
    """
    width = lots[0].vectors.shape[1] if lots else 0
    vectors, start, found = np.empty((sum(len(lot.vectors) for lot in lots), width), np.float32), 0, list[KeptLot]()
    lots.reverse()
    while lots:
        lot = lots.pop()
        part = vectors[start : start + len(lot.vectors)]
        part[:] = lot.vectors
        found.append(lot._replace(vectors=part))
        start += len(part)
    return tuple(found), vectors


LOT, GRAPH = "lot-", "graph-"
WALK, COVERS = "graph.usearch", "graph.json"
READINGS = 5  # of what somebody else takes away meanwhile, because he joins lots or makes another graph
T = TypeVar("T")


class Covers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a graph was made over: the lots from the first to the last, and how many passages they have."""

    first: int
    last: int
    passages: int


class Index:
    """The index in a folder: what it holds and what it finds; nothing is read before it is asked."""

    def __init__(self, path: Path, *, exact: bool = False) -> None:
        self.path, self.always_exact = path, exact

    def __len__(self) -> int:
        return len(self.state.rows)

    @cached_property
    def state(self) -> State:
        """All lots, verified."""
        return self._steadily(self._read)

    def _steadily(self, read: Callable[[], T]) -> T:
        """What is read; read again where it failed because another process put something else in its place."""
        for _ in range(READINGS - 1):
            before = _folders(self.path)
            try:
                return read()
            except DurableError:
                if _folders(self.path) == before:
                    raise
        return read()

    def _read(self) -> State:
        numbers, lots, start = self.counting(), list[KeptLot](), 1
        for number in reversed(numbers):
            lots.append(read_lot(lot_at(self.path, number)))
            start = lots[-1].header.join.first if lots[-1].header.join is not None else start
            if number <= start:
                break
        numbers = numbers[len(numbers) - len(lots) :]
        missing = sorted(set(range(start, max(numbers, default=0))) - set(numbers))
        if missing:
            raise DamagedError(f"{lot_at(self.path, missing[0])}: expected a lot, found nothing there", fix=RESTORED)
        return State(numbers, lots[::-1])

    def counting(self) -> list[int]:
        """The numbers of the lots that count: of a join, all or none."""
        numbers = lots_in(self.path)
        while numbers and (join := read_header(lot_at(self.path, numbers[-1])).join) is not None and not join.last:
            numbers.pop()
        return numbers

    @property
    def _newest(self) -> LotHeader | None:
        def read() -> LotHeader | None:
            numbers = self.counting()
            return read_header(lot_at(self.path, numbers[-1])) if numbers else None

        return self._steadily(read)

    @property
    def settings(self) -> Settings | None:
        """How its documents became vectors; None as long as there are none."""
        return None if (newest := self._newest) is None else newest.settings

    @property
    def standing(self) -> DocumentSource | None:
        """What the newest lot says about its file."""
        return None if (newest := self._newest) is None else newest.source

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that conditions may name."""
        return self.state.columns

    @cached_property
    def nearest(self) -> Nearest:
        """What finds the nearest passages: the graph if there is one and it is wanted."""
        exact = self.always_exact or any(lot.header.settings.exact for lot in self.state.lots[-1:])
        kept = None if exact else self.graph()
        return self.state.exact if kept is None else Graph(opened(kept[1]), self.state.exact)

    def graph(self) -> tuple[int, bytes] | None:
        """The newest graph that was made over these lots, if there is one: over how many passages, and its bytes."""
        state = self.state

        def read() -> tuple[int, bytes] | None:
            for _, folder in numbered(self.path, GRAPH)[0]:
                with damage():
                    files = dict(read_folder(folder))
                covers = msgspec.json.decode(files[COVERS], type=Covers)
                if state.numbers and covers.first == state.numbers[0] and covers.passages <= len(state.owners):
                    return covers.passages, files[WALK]
            return None

        return self._steadily(read)

    def holds(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that name a document."""
        return {name for name in ids if name in self.state.rows}

    def by_words(self, question: str, where: Conditions, count: int) -> list[ScoredPassage]:
        """The documents that have words of the question by BM25, the best first."""
        scores = self.state.keywords.scores(question)
        numbers = np.flatnonzero(self.state.allowed(where).documents & (scores > 0))
        found = best(numbers, scores[numbers], count)
        return self._named(found.passages.tolist(), found.scores.tolist())

    def by_vector(self, question: np.ndarray, where: Conditions, count: int) -> list[ScoredPassage]:
        """The documents whose best passage is nearest to a vector of length 1, the nearest first."""
        owners, allowed = self.state.owners, self.state.allowed(where)
        count = min(count, allowed.total)
        wanted = count * len(owners) // max(1, len(self.state.there))  # passages that so many documents have usually
        while True:  # of a document with many near passages one counts, so more are asked for
            near = self.nearest.nearest(question, allowed.passages, max(1, wanted))
            found: dict[int, float] = {}
            for owner, score in zip(owners.take(near.passages).tolist(), near.scores.tolist(), strict=True):
                found.setdefault(owner, score)
            if len(found) >= count or wanted >= len(owners):
                return self._named(list(found)[:count], found.values())
            wanted = min(2 * wanted, len(owners))

    def _named(self, numbers: Iterable[int], scores: Iterable[float]) -> list[ScoredPassage]:
        return list(map(ScoredPassage, map(self.state.ids.__getitem__, numbers), scores))

    def found(self, ids: Sequence[str]) -> list[FoundPassage]:
        """The documents of these ids, in their order."""
        places = [self.state.place(self.state.rows[name]) for name in ids]
        return [self.state.lots[lot].found(row) for lot, row in places]


def lot_at(path: Path, number: int) -> Path:
    """The folder of a lot."""
    return path / f"{LOT}{number:06d}"


def lots_in(path: Path) -> list[int]:
    """The numbers of the lots, the first one first."""
    return sorted(number for number, _ in numbered(path, LOT)[0])


def _folders(path: Path) -> list[Path]:
    """All lots and graphs."""
    return [folder for prefix in (LOT, GRAPH) for _, folder in numbered(path, prefix)[0]]


def open_index(path: str | Path, *, exact: bool = False) -> Index:
    """The index in a folder, every byte of it as it was written; with `exact`, all passages are compared always."""
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"there is no index {folder}", fix=near_folder(folder))
    index = Index(folder, exact=exact)
    if not index.state.lots:
        raise ConfigError(f"{folder} holds no index", fix="make one: seqloom index MODEL FILE --out INDEX")
    return index


MANY = 32  # so many small lots are joined
GONE = 0.25  # so is an index of which so many documents are gone
BEHIND = 0.1  # a graph grows when so many passages came after it


class WritableIndex(Index):
    """The same for the one process that may write there: see `writing`."""

    @property
    def name(self) -> str:
        """What people call it."""
        return str(self.path)

    @property
    def removed(self) -> tuple[str, ...]:
        """The ids that the newest lot removes."""
        return () if (newest := self._newest) is None else newest.removed

    def add(self, lot: Lot) -> None:
        """Keep a lot; when this returns, a power cut cannot take it back."""
        commit_lot(lot_at(self.path, max(lots_in(self.path), default=0) + 1), lot)
        self._forget()

    def _forget(self) -> None:
        for name in ("state", "nearest"):  # what was read is no longer what is there
            self.__dict__.pop(name, None)

    def delete(self, ids: Sequence[str]) -> None:
        """Remove the documents of these ids; ConfigError if one of them was not there."""
        delete_from(self, ids)

    def join(self) -> None:
        """Write what is there into new lots, and remove what was replaced or deleted from the disk."""
        state = self.state
        if state.is_joined:
            return
        first, parts = state.numbers[-1] + 1, divided(state.lots, state.kept())
        for number, places in enumerate(parts, first):
            join = Join(first, last=number == first + len(parts) - 1)
            commit_lot(lot_at(self.path, number), *joined(state.lots, places), join)
        self._forget()
        self._drop_before(first)

    def tidy(self) -> None:
        """Join lots if many are small or much is gone, and remove what earlier joins left behind."""
        state = self.state
        small = sum(lot.is_small for lot in state.lots)
        if small > MANY or np.count_nonzero(~state.there) > GONE * max(1, len(state.there)):
            self.join()
        elif state.numbers:
            self._drop_before(state.numbers[0])

    def _drop_before(self, first: int) -> None:
        """Remove lots and graphs whose place others have taken."""
        for number, path in [*numbered(self.path, LOT)[0], *numbered(self.path, GRAPH)[0]]:
            if number < first:
                remove_folder(path)

    def drop_unfinished(self) -> None:
        """Remove the lots of a join that was killed, the last one first."""
        for number in reversed(lots_in(self.path)[len(self.counting()) :]):
            remove_folder(lot_at(self.path, number))

    def require_graph(self, more: Iterable[int]) -> None:
        """Raise MissingExtraError if documents with so many passages each need usearch, and it is not there."""
        try:
            with needing("search"):
                import usearch.index  # noqa: F401
        except MissingExtraError:
            if any(total >= GRAPH_FROM for total in accumulate(more, initial=len(self.state.owners))):
                raise

    def finished(self) -> Work[Built]:
        """Do what is left when lots were added: small ones are joined, the graph is made or grows."""
        self.tidy()
        settings = self.settings
        if settings is not None and settings.exact:
            self._drop_graphs()
        else:
            yield from self.grow_graph()
        return Built(len(self), len(self.state.owners), self.nearest is not self.state.exact)

    def grow_graph(self) -> Work[None]:
        """Make the graph, or let it grow, if need be; below `GRAPH_FROM` passages there is none: all are compared."""
        state, (before, kept) = self.state, self.graph() or (0, None)
        total = len(state.owners)
        if total < GRAPH_FROM or total - before <= BEHIND * before:
            return
        walk = yield from grown(kept, state.exact.vectors, LINKED)
        covers = Covers(state.numbers[0], state.numbers[-1], total)
        path = self.path / f"{GRAPH}{state.numbers[-1]:06d}"
        commit_folder(path, {WALK: bytes(walk.save()), COVERS: msgspec.json.encode(covers)})
        self.__dict__.pop("nearest", None)
        self._drop_graphs(but=path)

    def _drop_graphs(self, but: Path | None = None) -> None:
        for _, path in numbered(self.path, GRAPH)[0]:
            if path != but:
                remove_folder(path)


@contextmanager
def writing(path: Path) -> Iterator[WritableIndex]:
    """A block in which this process alone may change the index in a folder; a new one if there is none.

    A folder that was not there and to which nothing was added is gone again afterwards.
    """
    if path.is_dir() and not lots_in(path) and any(one.name[0] != "." for one in path.iterdir()):
        raise ConfigError(f"{path} is there and holds no index", fix="choose another name")
    new = not path.exists()
    with hold(path):
        sweep(path)
        index = WritableIndex(path)
        index.drop_unfinished()
        try:
            yield index
        finally:
            if new and not lots_in(path):
                remove_held(path)
