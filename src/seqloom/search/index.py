"""An index in a folder: lots that are written once, and a graph over their passages if they are many.

    INDEX/
      .lock            one process writes, a second one is refused
      lot-000001/      documents, vectors, words; committed by its manifest
      lot-000002/      later: more documents, replaced ones, removed ids
      graph-000002/    neighbours of all passages up to lot 2

A build that is killed leaves whole lots, and goes on behind the last one. When a quarter of the documents is gone, or
small lots are many, all are joined into one that takes their place; only then do old texts leave the disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import starmap
from pathlib import Path

import msgspec
import numpy as np

from seqloom.durable import commit_folder, hold, numbered, read_folder, remove_folder, sweep
from seqloom.errors import ConfigError, DamagedError, DurableError, near_folder
from seqloom.search.conditions import Condition
from seqloom.search.lots import Header, KeptLot, commit_lot, joined, read_header, read_lot
from seqloom.search.state import State
from seqloom.search.store import Built, Found, Linked, Lot, Scored, Settings, Source, require_finished
from seqloom.search.vectors import GRAPH_FROM, Graph, Nearest, best, grown, opened, saved

LOT, GRAPH = "lot-", "graph-"
WALK, COVERS = "graph.usearch", "graph.json"
MANY, SMALL = 32, 256  # so many lots with so few documents are joined
GONE = 0.25  # so is an index of which so many documents are gone
BEHIND = 0.1  # a graph grows when so many passages came after it
READINGS = 3  # of the list of lots, while somebody joins them


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
        for _ in range(READINGS - 1):
            try:
                return self._read()
            except DurableError:
                if all((self.path / f"{LOT}{number:06d}").is_dir() for number in _lots(self.path)):
                    raise  # else somebody has joined them while they were read
        return self._read()

    def _read(self) -> State:
        numbers, lots = _lots(self.path), list[KeptLot]()
        while numbers and len(lots) < len(numbers) and not (lots and lots[-1].header.first):
            lots.append(read_lot(_lot(self.path, numbers[-1 - len(lots)])))
        read = numbers[len(numbers) - len(lots) :]
        _require_all(self.path, read, lots[-1].header.first if lots else True)
        return State(read, lots[::-1])

    @property
    def _newest(self) -> Header | None:
        numbers = _lots(self.path)
        return read_header(_lot(self.path, numbers[-1])) if numbers else None

    @property
    def settings(self) -> Settings | None:
        """How its documents became vectors; None as long as there are none."""
        return None if (newest := self._newest) is None else newest.settings

    @property
    def standing(self) -> Source | None:
        """What the newest lot says about its file."""
        return None if (newest := self._newest) is None else newest.source

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that conditions may name."""
        return self.state.columns

    @cached_property
    def nearest(self) -> Nearest:
        """What finds the nearest passages: the graph if there is one and it is wanted."""
        kept = None if self.always_exact else _read_graph(self.path, self.state)
        return self.state.exact if kept is None else Graph(opened(kept), self.state.exact)

    def holds(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that name a document."""
        return {name for name in ids if name in self.state.rows}

    def by_words(self, question: str, where: Sequence[Condition], count: int) -> list[Scored]:
        """The documents that have words of the question by BM25, the best first."""
        scores = self.state.keywords.scores(question)
        numbers = np.flatnonzero(self.state.allowed(where).documents & (scores > 0))
        return self._named(*best(numbers, scores[numbers], count))

    def by_vector(self, question: np.ndarray, where: Sequence[Condition], count: int) -> list[Scored]:
        """The documents whose best passage is nearest to a vector of length 1, the nearest first."""
        owners, allowed = self.state.owners, self.state.allowed(where)
        wanted, count = count, min(count, allowed.total)
        while True:  # of a document with many near passages one counts, so more are asked for
            wanted = min(2 * wanted, len(owners))
            near = self.nearest.nearest(question, allowed.passages, wanted)
            found, first = np.unique(owners[near.passages], return_index=True)
            if len(found) >= count or wanted == len(owners):
                return self._named(*best(found, near.scores[first], count))

    def _named(self, numbers: np.ndarray, scores: np.ndarray) -> list[Scored]:
        pairs = zip(map(self.state.name, numbers.tolist()), scores.tolist(), strict=True)
        return list(starmap(Scored, pairs))

    def found(self, ids: Sequence[str]) -> list[Found]:
        """The documents of these ids, in their order."""
        places = [self.state.place(self.state.rows[name]) for name in ids]
        return [self.state.lots[lot].found(row) for lot, row in places]


class WritableIndex(Index):
    """The same for the one process that may write there: see `writing`."""

    @property
    def name(self) -> str:
        """What people call it."""
        return str(self.path)

    def add(self, lot: Lot) -> None:
        """Nothing; when it returns, the lot is kept, and a power cut cannot take it back."""
        self._commit(lot, first=False)

    def _commit(self, lot: Lot, *, first: bool) -> int:
        number = max(_lots(self.path), default=0) + 1
        commit_lot(_lot(self.path, number), lot, first=first)
        for name in ("state", "nearest"):  # what was read is no longer all
            self.__dict__.pop(name, None)
        return number

    def delete(self, ids: Sequence[str]) -> None:
        """Nothing; the documents of these ids are gone. ConfigError if one of them is not there."""
        require_finished(self)
        newest, there = self._newest, self.holds(ids)
        missing = [name for name in ids if name not in there]
        if missing:
            raise ConfigError(f"{self.path} has no document '{missing[0]}'", fix="check the id")
        if newest is None or not ids:
            return
        nothing = np.empty((0, newest.settings.width), np.float32)
        self.add(Lot(newest.settings, (), np.empty((0, 3), np.int64), nothing, tuple(ids)))

    def join(self) -> None:
        """Nothing; one lot holds what is there, and what was replaced or removed has left the disk."""
        state = self.state
        if state.lots:
            rows = map(state.place, np.flatnonzero(state.there).tolist())
            self._drop_before(self._commit(joined(state.lots, rows), first=True))

    def tidy(self) -> None:
        """Nothing; lots are joined if many are small or much is gone, and what earlier joins left behind is removed."""
        state = self.state
        small = sum(len(lot.header.ids) < SMALL for lot in state.lots)
        if small > MANY or np.count_nonzero(~state.there) > GONE * max(1, len(state.there)):
            self.join()
        elif state.numbers:
            self._drop_before(state.numbers[0])

    def _drop_before(self, first: int) -> None:
        for number, path in [*numbered(self.path, LOT)[0], *numbered(self.path, GRAPH)[0]]:
            if number < first:
                remove_folder(path)

    def finished(self, *, exact: bool = False) -> Iterator[Linked | Built]:
        """What is left to do when lots were added: small ones joined, the graph made or grown."""
        self.tidy()
        total = len(self.state.owners)
        if not exact:
            yield from (Linked(done, total) for done in self.grow_graph())
        yield Built(len(self), total, self.nearest is not self.state.exact)

    def grow_graph(self) -> Iterator[int]:
        """How many passages are in the graph, while it is made or grows; nothing if it need not.

        Below `GRAPH_FROM` passages there is none: all are compared.
        """
        state, kept = self.state, _read_graph(self.path, self.state)
        total = len(state.owners)
        before = len(opened(kept)) if kept is not None else 0
        if total < GRAPH_FROM or total - before <= BEHIND * before:
            return
        walk = None
        for done, walk in grown(kept, state.exact.blocks, state.lots[-1].header.settings.width):  # noqa: B007
            yield done
        covers = Covers(state.numbers[0], state.numbers[-1], total)
        path = self.path / f"{GRAPH}{state.numbers[-1]:06d}"
        commit_folder(path, {WALK: saved(walk), COVERS: msgspec.json.encode(covers)})
        self.__dict__.pop("nearest", None)
        for _, other in numbered(self.path, GRAPH)[0]:
            if other != path:
                remove_folder(other)


def _lot(path: Path, number: int) -> Path:
    return path / f"{LOT}{number:06d}"


def _lots(path: Path) -> list[int]:
    """The numbers of the lots, the first one first."""
    return sorted(number for number, _ in numbered(path, LOT)[0])


def _require_all(path: Path, numbers: Sequence[int], first: bool) -> None:
    """Raise DamagedError if a lot is missing between others, or before them all."""
    start = numbers[0] if first and numbers else 1
    missing = sorted(set(range(start, max(numbers, default=0))) - set(numbers))
    if missing:
        raise DamagedError(f"{_lot(path, missing[0])}: expected a lot, found nothing there", fix="restore it")


def _read_graph(path: Path, state: State) -> bytes | None:
    """The newest graph that was made over these lots, if there is one."""
    for _, folder in numbered(path, GRAPH)[0]:
        files = dict(read_folder(folder))
        covers = msgspec.json.decode(files[COVERS], type=Covers)
        if state.numbers and covers.first == state.numbers[0] and covers.passages <= len(state.owners):
            return files[WALK]
    return None


def open_index(path: str | Path, *, exact: bool = False) -> Index:
    """The index in a folder, every byte of it as it was written; with `exact`, all passages are compared always."""
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"there is no index {folder}", fix=near_folder(folder))
    index = Index(folder, exact=exact)
    if not index.state.lots:
        raise ConfigError(f"{folder} holds no index", fix="make one: seqloom index MODEL FILE --out INDEX")
    return index


@contextmanager
def writing(path: Path) -> Iterator[WritableIndex]:
    """A block in which this process alone may change the index in a folder; a new one if there is none."""
    if path.is_dir() and not _lots(path) and any(one.name[0] != "." for one in path.iterdir()):
        raise ConfigError(f"{path} is there and holds no index", fix="choose another name")
    with hold(path):
        sweep(path)
        yield WritableIndex(path)
