"""What search keeps, and the contract of whatever keeps it: a folder on the disk, or a database.

    documents ──▶ passages ──▶ vectors           in lots, each of them kept wholly or not at all
              └─▶ words

A *lot* is some documents with their passages and vectors, and ids that are gone. Lots have an order, and the newest one
that speaks of an id decides: a document that is given again replaces itself, and one that is removed is removed from
all lots before. So every change is one more lot, and whoever reads sees the state before it or after it.

Conditions on the columns of documents: `year>=2000`, `lang=en`, `title~cancer`.

    =  !=        equal, not equal; of a list: whether it is in it
    <  <=  >  >= numbers by their size, other text by its letters: dates as 2024-01-31 come out right
    ~            whether the text holds it, in any case of letters

A value that is missing fulfils nothing but `!=`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from seqloom.data.values import parse_number
from seqloom.errors import ConfigError, did_you_mean
from seqloom.events import Work
from seqloom.search.passages import Span

WRITTEN = re.compile(r"\s*(?P<column>[^<>=!~]+?)\s*(?P<sign>>=|<=|!=|==|=|<|>|~)\s*(?P<value>.*?)\s*", re.DOTALL)
ORDERED: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


class Condition(NamedTuple):
    """What a column of a document must be."""

    column: str
    sign: str
    value: str

    @classmethod
    def read(cls, text: str) -> "Condition":
        """The condition that is written so.

        >>> Condition.read("year >= 2000")
        Condition(column='year', sign='>=', value='2000')
        """
        found = WRITTEN.fullmatch(text)
        if found is None:
            raise ConfigError(f"{text!r} is no condition", fix="write COLUMN, one of = != < <= > >= ~, and a value")
        return cls(found["column"], "=" if found["sign"] == "==" else found["sign"], found["value"])

    def holds(self, value: Any) -> bool:
        """Whether a value fulfils it.

        >>> [Condition.read("year>=2000").holds(value) for value in (1999, 2000, "2010.5", None)]
        [False, True, True, False]
        """
        if isinstance(value, list | tuple):
            inside = any(self._replace(sign="=" if self.sign == "!=" else self.sign).holds(one) for one in value)
            return inside != (self.sign == "!=")
        if value is None or value == "":
            return (self.sign == "!=") != (self.value == "") if self.sign in ("=", "!=") else False
        if self.sign == "~":
            return self.value.casefold() in written(value).casefold()
        # Both as numbers where both are, else both as text
        number = parse_number(written(value)) if not isinstance(value, bool) else None
        wanted = parse_number(self.value)
        mine, other = (written(value), self.value) if number is None or wanted is None else (number, wanted)
        if self.sign in ("=", "!="):
            return bool(mine == other) == (self.sign == "=")
        return bool(ORDERED[self.sign](mine, other))


Conditions = Sequence[Condition]


def written(value: Any) -> str:
    """A value as people write it in a condition."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def conditions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """The conditions that are written so."""
    return tuple(map(Condition.read, texts))


def fulfil(columns: Mapping[str, Any], where: Iterable[Condition]) -> bool:
    """Whether the columns of one document fulfil all conditions."""
    return all(one.holds(columns.get(one.column)) for one in where)


def require_columns(where: Iterable[Condition], known: Iterable[str]) -> None:
    """Raise ConfigError for a condition on a column that no document has."""
    names = list(known)
    for one in where:
        if one.column not in names:
            fix = did_you_mean(one.column, names) if names else "no column but the text and the id was kept"
            raise ConfigError(f"no document has a column '{one.column}'", fix=fix)


class TextDocument(NamedTuple):
    """A text with its name, and what else is known about it."""

    id: str
    text: str
    columns: dict[str, Any]


class ScoredPassage(NamedTuple):
    """The id of a document, and how well it answers; scores of different rankings have different scales."""

    id: str
    score: float


class DocumentSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of a file that a lot holds: where a build that was stopped goes on."""

    name: str
    sha256: str  # of its bytes, and of what is read of them
    stop: int  # rows of the file that are kept with this lot
    last: bool  # whether there are no more


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the documents of an index became vectors; the same for all of them."""

    model: str  # the folder
    identity: str  # sha256 over the files of the model
    width: int
    passage: int  # the most symbols of one
    exact: bool = False  # whether all passages are compared always, however many there are


class Lot(NamedTuple):
    """Documents, their passages and vectors; and ids of which all earlier documents are gone."""

    settings: Settings
    documents: tuple[TextDocument, ...]
    passages: np.ndarray  # [P,3] the row of its document, and the characters where it starts and stops
    vectors: np.ndarray  # [P,W] float32, of length 1
    removed: tuple[str, ...] = ()
    source: DocumentSource | None = None


LINKED = "passages in the graph"  # the last stage of a build


class Built(NamedTuple):
    """What is kept when all is done, and whether a graph leads to it."""

    documents: int
    passages: int
    graph: bool


class FoundPassage(NamedTuple):
    """A document with its passages."""

    document: TextDocument
    passages: tuple[Span, ...]
    vectors: np.ndarray  # [P,W]


class IndexStore(Protocol):
    """A place that keeps lots and answers from them."""

    @property
    def settings(self) -> Settings | None:
        """How its documents became vectors; None as long as there are none."""

    @property
    def standing(self) -> DocumentSource | None:
        """What the newest lot says about its file, if it came from one."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that conditions may name."""

    def __len__(self) -> int: ...

    def holds(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that name a document."""

    def by_words(self, question: str, where: Conditions, count: int) -> list[ScoredPassage]:
        """The documents that have words of the question by BM25, the best first."""

    def by_vector(self, question: np.ndarray, where: Conditions, count: int) -> list[ScoredPassage]:
        """The documents whose best passage is nearest to a vector of length 1, the nearest first."""

    def found(self, ids: Sequence[str]) -> list[FoundPassage]:
        """The documents of these ids, in their order."""


class WritableStore(IndexStore, Protocol):
    """The same for the one process that may write there."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def removed(self) -> tuple[str, ...]:
        """The ids that the newest lot removes."""

    def add(self, lot: Lot) -> None:
        """Keep a lot; when this returns, a power cut cannot take it back."""

    def delete(self, ids: Sequence[str]) -> None:
        """Remove the documents of these ids; ConfigError if one of them was not there."""

    def join(self) -> None:
        """Give back the room of what was replaced or removed."""

    def require_graph(self, more: Iterable[int]) -> None:
        """Raise MissingExtraError if documents with so many passages each need a library that is not there."""

    def finished(self) -> Work[Built]:
        """Do what is left when lots were added, and say what is kept."""


def empty_lot(settings: Settings, removed: Sequence[str] = (), source: DocumentSource | None = None) -> Lot:
    """A lot without documents: other settings from now on, or ids that are gone."""
    nothing = np.empty((0, settings.width), np.float32)
    return Lot(settings, (), np.empty((0, 3), np.int64), nothing, tuple(removed), source)


def delete_from(store: WritableStore, ids: Sequence[str]) -> None:
    """Remove the documents of these ids; ConfigError if one of them was not there.

    Ids that the newest lot removes are done: whoever was killed behind it gives the same ones again.
    """
    require_finished(store)
    settings, there = store.settings, store.holds(ids)
    done = there.union(store.removed)
    missing = [name for name in ids if name not in done]
    if missing:
        raise ConfigError(f"{store.name} has no document '{missing[0]}'", fix="check the id")
    if settings is not None and there:
        store.add(empty_lot(settings, ids))


def remember_exact(store: WritableStore, exact: bool) -> None:
    """Tell the store whether all passages are always compared, if that is new."""
    settings = store.settings
    if settings is not None and exact != settings.exact:
        changed = msgspec.structs.replace(settings, exact=exact)
        store.add(empty_lot(changed, store.removed, store.standing))


def require_finished(store: WritableStore) -> None:
    """Raise ConfigError if the documents of a file are not all there: whoever stopped it has to go on first."""
    standing = store.standing
    if standing is not None and not standing.last:
        found = f"{store.name} holds {standing.stop:,} documents of {standing.name} and not the rest"
        raise ConfigError(found, fix=f"finish {standing.name} first, with the command that was stopped")
