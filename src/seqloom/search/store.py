"""What an index stores, and the interface of a store: a folder or a database.

    documents ──▶ passages ──▶ vectors           in segments, each written completely or not at all
              └─▶ words

A *segment* has documents with their passages and vectors, and deleted ids. Segments are ordered, and the newest one
that mentions an id decides: a document that is added again replaces the old one, and a deleted id is gone from all
earlier segments. So every change writes one segment, and a reader sees the state before or after it.

Conditions on the columns of documents: `year>=2000`, `lang=en`, `title~cancer`.

    =  !=        equal, not equal; for a list: contains, does not contain
    <  <=  >  >= numbers by value, other text alphabetically, so dates such as 2024-01-31 work
    ~            the text contains this, ignoring case

A document without a value in the column matches only `!=`; `lang=` without a value finds these documents.
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

WRITTEN = re.compile(r"\s*(?P<column>[^<>=!~]+?)\s*(?P<operator>>=|<=|!=|==|=|<|>|~)\s*(?P<value>.*?)\s*", re.DOTALL)
ORDERED: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


class Condition(NamedTuple):
    """A condition on a column of a document."""

    column: str
    operator: str
    value: str

    @classmethod
    def read(cls, text: str) -> "Condition":
        """Parse a condition.

        >>> Condition.read("year >= 2000")
        Condition(column='year', operator='>=', value='2000')
        """
        found = WRITTEN.fullmatch(text)
        if found is None:
            fix = "write COLUMN, one of = != < <= > >= ~, and a value, such as year>=2000"
            raise ConfigError(f"{text!r} is not a condition", fix=fix)
        return cls(found["column"], "=" if found["operator"] == "==" else found["operator"], found["value"])

    def matches(self, value: Any) -> bool:
        """Return whether a value matches.

        >>> [Condition.read("year>=2000").matches(value) for value in (1999, 2000, "2010.5", None)]
        [False, True, True, False]
        """
        if isinstance(value, list | tuple):
            inside = any(
                self._replace(operator="=" if self.operator == "!=" else self.operator).matches(one) for one in value
            )
            return inside != (self.operator == "!=")
        if value is None or value == "":
            return (self.operator == "!=") != (self.value == "") if self.operator in ("=", "!=") else False
        if self.operator == "~":
            return self.value.casefold() in written(value).casefold()
        # as numbers if both are numbers, otherwise as text
        number = parse_number(written(value)) if not isinstance(value, bool) else None
        wanted = parse_number(self.value)
        mine, other = (written(value), self.value) if number is None or wanted is None else (number, wanted)
        if self.operator in ("=", "!="):
            return bool(mine == other) == (self.operator == "=")
        return bool(ORDERED[self.operator](mine, other))


Conditions = Sequence[Condition]


def written(value: Any) -> str:
    """Format a value as in a condition."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def conditions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Parse several conditions."""
    return tuple(map(Condition.read, texts))


def matches_all(columns: Mapping[str, Any], where: Iterable[Condition]) -> bool:
    """Return whether the columns of a document match all conditions."""
    return all(one.matches(columns.get(one.column)) for one in where)


def require_columns(where: Iterable[Condition], known: Iterable[str]) -> None:
    """Raise ConfigError for a condition on a column that no document has."""
    names = list(known)
    for one in where:
        if one.column not in names:
            fix = did_you_mean(one.column, names) if names else "the index has only text and ids"
            raise ConfigError(f"no document has a column '{one.column}'", fix=fix)


class TextDocument(NamedTuple):
    """A document: its id, text and other columns."""

    id: str
    text: str
    columns: dict[str, Any]


class ScoredDocument(NamedTuple):
    """The id of a document and its score; different rankings have different scales."""

    id: str
    score: float


class DocumentSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows of a file are stored up to a segment, so that a build that was stopped can resume."""

    name: str
    sha256: str  # of the bytes of the file and of how they are read
    stop: int  # rows of the file that are stored up to this segment
    last: bool  # whether these are all


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the documents of an index were embedded; the same for all of them."""

    model: str  # the folder; empty without a model
    identity: str  # sha256 over the files of the model; empty without one
    width: int  # 0: the index has no vectors and is searched by words
    passage: int  # the most tokens of a passage
    exact: bool = False  # whether to compare every passage instead of using a graph

    @property
    def has_vectors(self) -> bool:
        """Return whether passages have vectors."""
        return self.width > 0

    @property
    def may_have_graph(self) -> bool:
        """Return whether a graph is built if there are many passages."""
        return self.has_vectors and not self.exact


class Segment(NamedTuple):
    """Documents with their passages and vectors, and ids deleted from earlier segments."""

    settings: Settings
    documents: tuple[TextDocument, ...]
    passages: np.ndarray  # [P,3] document row, start and stop in characters
    vectors: np.ndarray  # [P,W] float32 unit vectors
    removed: tuple[str, ...] = ()
    source: DocumentSource | None = None


LINKED = "passages in the graph"  # the last stage of a build


class IndexSummary(NamedTuple):
    """The number of documents and passages in an index, whether it has a graph, and what a build replaced."""

    documents: int
    passages: int
    graph: bool
    replaced: int = 0  # documents that had the id of a new one


class StoredDocument(NamedTuple):
    """A document with its passages and their vectors."""

    document: TextDocument
    passages: tuple[Span, ...]
    vectors: np.ndarray  # [P,W]


class IndexStore(Protocol):
    """An index that can be searched."""

    @property
    def settings(self) -> Settings | None:
        """Return how documents were embedded; None for an empty index."""

    @property
    def source(self) -> DocumentSource | None:
        """Return which part of which file the newest segment holds, if it came from a file."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that conditions can use."""

    def __len__(self) -> int: ...

    def holds(self, ids: Iterable[str]) -> set[str]:
        """Return those of the ids that are in the index."""

    def by_words(self, query: str, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the documents with words of the query, best BM25 score first."""

    def by_vector(self, query: np.ndarray, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the documents whose best passage is nearest to a unit vector, nearest first."""

    def documents(self, ids: Sequence[str]) -> list[StoredDocument]:
        """Return the documents with these ids, in order."""


class WritableStore(IndexStore, Protocol):
    """An index that this process can change."""

    @property
    def name(self) -> str:
        """Return the name of the index for messages."""

    @property
    def removed(self) -> tuple[str, ...]:
        """Return the ids that the newest segment deletes."""

    def add(self, segment: Segment) -> None:
        """Write a segment; when this returns, it survives a power cut."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; ConfigError if an id is not in the index."""

    def compact(self) -> None:
        """Reclaim the space of replaced and deleted documents."""

    def require_graph(self, more: Iterable[int]) -> None:
        """Raise MissingExtraError if documents with these numbers of passages need a library that is not installed."""

    def finished(self) -> Work[IndexSummary]:
        """Finish a change, and return what the index has."""


def empty_segment(settings: Settings, removed: Sequence[str] = (), source: DocumentSource | None = None) -> Segment:
    """Return a segment without documents, for new settings or deleted ids."""
    nothing = np.empty((0, settings.width), np.float32)
    return Segment(settings, (), np.empty((0, 3), np.int64), nothing, tuple(removed), source)


def delete_from(store: WritableStore, ids: Sequence[str]) -> None:
    """Delete documents; ConfigError if an id is not in the index.

    Ids that the newest segment already deletes are accepted, so that a command that was killed can be repeated.
    """
    require_finished(store)
    settings, there = store.settings, store.holds(ids)
    done = there.union(store.removed)
    missing = [name for name in ids if name not in done]
    if missing:
        raise ConfigError(f"{store.name} has no document with the id '{missing[0]}'", fix="check the id")
    if settings is not None and there:
        store.add(empty_segment(settings, ids))


def set_exact(store: WritableStore, exact: bool) -> None:
    """Store whether every passage is compared, if that changes."""
    settings = store.settings
    if settings is not None and exact != settings.exact:
        changed = msgspec.structs.replace(settings, exact=exact)
        store.add(empty_segment(changed, store.removed, store.source))


def require_finished(store: WritableStore) -> None:
    """Raise ConfigError if an earlier build is unfinished."""
    source = store.source
    if source is not None and not source.last:
        found = f"{store.name} has only the first {source.stop:,} documents of {source.name}"
        raise ConfigError(found, fix=f"run the command for {source.name} again to finish it")
