"""An index in a folder, changed: lots are added, joined and taken away, and the graph grows.

    add         one more lot
    delete      one more lot, without documents, that names ids
    join        new lots of what is there, and all before them gone
    finished    lots joined that should be, and the graph made or grown

One process does that at a time, and whatever it is killed at, every reader sees the state before or after.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np

from seqloom.errors import ConfigError, MissingExtraError, needing
from seqloom.events import Progress
from seqloom.files.folders import commit_folder, remove_folder, sweep
from seqloom.files.lock import hold, remove_held
from seqloom.files.numbered_folders import numbered
from seqloom.search.index import COVERS, GRAPH, LOT, WALK, Covers, Index, lot_at, lots_in
from seqloom.search.lots import Join, commit_joined, commit_lot, divided, joined
from seqloom.search.store import LINKED, Built, Lot, delete_from
from seqloom.search.vectors import GRAPH_FROM, grown, saved

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
        """Nothing; when it returns, the lot is kept, and a power cut cannot take it back."""
        commit_lot(lot_at(self.path, max(lots_in(self.path), default=0) + 1), lot)
        self._forget()

    def _forget(self) -> None:
        for name in ("state", "nearest"):  # what was read is no longer what is there
            self.__dict__.pop(name, None)

    def delete(self, ids: Sequence[str]) -> None:
        """Nothing; the documents of these ids are gone. ConfigError if one of them was not there."""
        delete_from(self, ids)

    def join(self) -> None:
        """Nothing; new lots hold what is there, and what was replaced or removed has left the disk."""
        state = self.state
        if state.is_joined:
            return
        first, parts = state.numbers[-1] + 1, divided(state.lots, state.kept())
        for number, places in enumerate(parts, first):
            join = Join(first, last=number == first + len(parts) - 1)
            commit_joined(lot_at(self.path, number), *joined(state.lots, places), join)
        self._forget()
        self._drop_before(first)

    def tidy(self) -> None:
        """Nothing; lots are joined if many are small or much is gone, and what earlier joins left behind is removed."""
        state = self.state
        small = sum(lot.is_small for lot in state.lots)
        if small > MANY or np.count_nonzero(~state.there) > GONE * max(1, len(state.there)):
            self.join()
        elif state.numbers:
            self._drop_before(state.numbers[0])

    def _drop_before(self, first: int) -> None:
        """Nothing; lots and graphs whose place others have taken are gone."""
        for number, path in [*numbered(self.path, LOT)[0], *numbered(self.path, GRAPH)[0]]:
            if number < first:
                remove_folder(path)

    def drop_unfinished(self) -> None:
        """Nothing; the lots of a join that was killed are gone, the last one first."""
        for number in reversed(lots_in(self.path)[len(self.counting()) :]):
            remove_folder(lot_at(self.path, number))

    def require_graph(self, more: Iterable[int]) -> None:
        """Nothing; MissingExtraError if documents with so many passages each need usearch, and it is not there."""
        try:
            with needing("search"):
                import usearch.index  # noqa: F401
        except MissingExtraError:
            if any(total >= GRAPH_FROM for total in accumulate(more, initial=len(self.state.owners))):
                raise

    def finished(self) -> Iterator[Progress | Built]:
        """What is left to do when lots were added: small ones joined, the graph made or grown."""
        self.tidy()
        total, settings = len(self.state.owners), self.settings
        if settings is not None and settings.exact:
            self._drop_graphs()
        else:
            yield from (Progress(LINKED, done, total) for done in self.grow_graph())
        yield Built(len(self), total, self.nearest is not self.state.exact)

    def grow_graph(self) -> Iterator[int]:
        """How many passages are in the graph, while it is made or grows; nothing if it need not.

        Below `GRAPH_FROM` passages there is none: all are compared.
        """
        state, kept = self.state, self.graph()
        total, before = len(state.owners), kept.passages if kept is not None else 0
        if total < GRAPH_FROM or total - before <= BEHIND * before:
            return
        walk = None
        for done, walk in grown(None if kept is None else kept.walk, state.exact.vectors):  # noqa: B007
            yield done
        covers = Covers(state.numbers[0], state.numbers[-1], total)
        path = self.path / f"{GRAPH}{state.numbers[-1]:06d}"
        commit_folder(path, {WALK: saved(walk), COVERS: msgspec.json.encode(covers)})
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
