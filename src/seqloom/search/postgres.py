"""An index in PostgreSQL with pgvector, named by its URL: for those who outgrow a folder.

    settings    one row of JSON                    documents   id, text, columns, how many words
    lots        one row for each, with its source  passages    document, start, stop, vector
    columns     the names of all columns           postings    word, document, how often

A lot is one transaction: all of it is there, or none. Documents that it replaces or removes are deleted, so nothing has
to be joined later. One process writes, which holds an advisory lock of the database. Answers are those of the folder:
BM25 by the same formula over the same words, and conditions are read by the same code, while rows come in order.
"""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from seqloom.errors import ConfigError, DurableError, HeldError, needing
from seqloom.events import Progress, Work
from seqloom.search.bm25 import K1, B, words_of
from seqloom.search.store import (
    LINKED,
    Built,
    Conditions,
    DocumentSource,
    FoundPassage,
    Lot,
    ScoredPassage,
    Settings,
    TextDocument,
    WritableStore,
    delete_from,
    fulfil,
    require_columns,
)
from seqloom.search.vectors import GRAPH_FROM

FORMAT = 2  # of the tables and words; the settings say which it is
SCHEMES = ("postgresql", "postgres")
LOCK = 0x5E910031  # the advisory lock of whoever writes
BLOCK = 256  # rows that are fetched at a time
TABLES = """
create extension if not exists vector;
create schema if not exists seqloom;
create table if not exists seqloom.settings (value jsonb not null);
create table if not exists seqloom.lots (number bigserial primary key, source jsonb, removed text[] not null);
create table if not exists seqloom.columns (name text primary key);
create table if not exists seqloom.documents (
    number bigserial primary key, id text not null unique, body text not null, columns text not null, words int not null
);
create table if not exists seqloom.passages (
    document bigint not null references seqloom.documents on delete cascade,
    start int not null, stop int not null, vector vector not null
);
create index if not exists passages_document on seqloom.passages (document);
create table if not exists seqloom.postings (
    word text collate "C" not null, document bigint not null references seqloom.documents on delete cascade,
    count int not null, primary key (word, document)
);
create index if not exists postings_document on seqloom.postings (document);
"""
WIDEST = 2_000  # numbers of a vector of which pgvector makes a graph
GRAPH = "create index if not exists passages_graph on seqloom.passages using hnsw (vector vector_ip_ops)"
GRAPH_USED = """
select 1 from pg_indexes
where schemaname = 'seqloom' and indexname = 'passages_graph' and current_setting('enable_indexscan') = 'on'
"""
BY_WORDS = f"""
with known as (select count(*)::float8 as total, avg(words)::float8 as mean from seqloom.documents),
     asked as (select word, document, count::float8, count(*) over (partition by word)::float8 as having_it
               from seqloom.postings where word = any(%s))
select d.id, d.columns, sum(
    ln(1 + (total - having_it + 0.5) / (having_it + 0.5))
    * asked.count * {K1 + 1} / (asked.count + {K1} * ({1 - B} + {B} * d.words / mean))) as score
from asked join seqloom.documents d on d.number = asked.document cross join known
group by d.number, d.id, d.columns order by score desc, d.number
"""
NEAREST = """
select d.id, d.columns, -(p.vector <#> %s::vector) as score
from seqloom.passages p join seqloom.documents d on d.number = p.document order by"""
BY_VECTOR = f"{NEAREST} p.vector <#> %s::vector"
COMPARED = f"{NEAREST} score desc"  # the same in an order that no graph gives


class Postgres:
    """The index in a database."""

    def __init__(self, connection: Any, url: str) -> None:
        self.connection, self.url = connection, url

    @property
    def name(self) -> str:
        """What people call it: host and database, without a password."""
        parts = parts_of(self.url)
        host = parts.get("host", "/")
        return f"{'local' if host.startswith('/') else host}/{parts.get('dbname', '')} (PostgreSQL)"

    def _run(self, command: str, *values: Any) -> None:
        with database_errors(self.name):
            self.connection.execute(command, values or None)

    def _all(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with database_errors(self.name):
            return list(self.connection.execute(query, values or None).fetchall())

    @property
    def settings(self) -> Settings | None:
        """How its documents became vectors; None as long as there are none."""
        rows = self._all("select value from seqloom.settings")
        if not rows:
            return None
        found = rows[0][0].pop("format", 1)
        if found != FORMAT:
            made = f"{self.name}: an index of version {found}, and this Seqloom reads version {FORMAT}"
            raise DurableError(made, fix="drop its schema seqloom and make the index again")
        return msgspec.convert(rows[0][0], Settings)

    @property
    def standing(self) -> DocumentSource | None:
        """What the newest lot says about its file."""
        rows = self._all("select source from seqloom.lots order by number desc limit 1")
        return msgspec.convert(rows[0][0], DocumentSource) if rows and rows[0][0] is not None else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that conditions may name."""
        return tuple(sorted(msgspec.json.decode(name) for (name,) in self._all("select name from seqloom.columns")))

    def __len__(self) -> int:
        return int(self._all("select count(*) from seqloom.documents")[0][0])

    def holds(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that name a document."""
        return {name for (name,) in self._all("select id from seqloom.documents where id = any(%s)", list(ids))}

    def by_words(self, question: str, where: Conditions, count: int) -> list[ScoredPassage]:
        """The documents that have words of the question by BM25, the best first."""
        return self._first(BY_WORDS, (sorted(set(words_of(question))),), where, count)

    def by_vector(self, question: np.ndarray, where: Conditions, count: int) -> list[ScoredPassage]:
        """The documents whose best passage is nearest to a vector of length 1, the nearest first."""
        asked = written(question)
        found = self._first(BY_VECTOR, (asked, asked), where, count)
        if len(found) == count or not self._all(GRAPH_USED):
            return found
        # even so a graph ends after hnsw.max_scan_tuples passages: what it has not come to is compared
        return self._first(COMPARED, (asked,), where, count)

    def _first(self, query: str, values: tuple[Any, ...], where: Conditions, count: int) -> list[ScoredPassage]:
        """The first documents of an order that fulfil the conditions; of one that comes again, the first place."""
        if where:
            require_columns(where, self.columns)
        found: dict[str, float] = {}
        ranked = self.connection.cursor(name="ranked")
        with database_errors(self.name), self.connection.transaction(), ranked as rows:
            rows.itersize = BLOCK
            # a graph gives its first few hundred and then no more, unless it is told to go on
            self.connection.execute("set local hnsw.iterative_scan = strict_order")
            rows.execute(query, values)
            for name, columns, score in rows:
                if name not in found and (not where or fulfil(msgspec.json.decode(columns), where)):
                    found[name] = float(score)
                if len(found) == count:
                    break
        return [ScoredPassage(name, score) for name, score in found.items()]

    def found(self, ids: Sequence[str]) -> list[FoundPassage]:
        """The documents of these ids, in their order."""
        rows = self._all(
            "select d.id, d.body, d.columns, p.start, p.stop, p.vector::text from seqloom.documents d "
            "join seqloom.passages p on p.document = d.number where d.id = any(%s) order by d.number, p.start",
            list(ids),
        )
        found = dict[str, FoundPassage]()
        for (name, body, columns), passages in groupby(rows, key=itemgetter(0, 1, 2)):  # a row for each passage
            document, some = TextDocument(name, body, msgspec.json.decode(columns)), list(passages)
            vectors = np.array([msgspec.json.decode(row[5]) for row in some], np.float32)
            found[name] = FoundPassage(document, tuple(row[3:5] for row in some), vectors)
        return [found[name] for name in ids]


def written(vector: np.ndarray) -> str:
    """A vector as pgvector reads it, every bit of it."""
    return "[" + ",".join(f"{number:.9g}" for number in vector.tolist()) + "]"


class WritablePostgres(Postgres):
    """The same for the one process that may write there."""

    @property
    def removed(self) -> tuple[str, ...]:
        """The ids that the newest lot removes."""
        rows = self._all("select removed from seqloom.lots order by number desc limit 1")
        return tuple(rows[0][0]) if rows else ()

    def add(self, lot: Lot) -> None:
        """Keep a lot; when this returns, a power cut cannot take it back."""
        with database_errors(self.name), self.connection.transaction():
            if (settings := self.settings) is None:
                self._run("insert into seqloom.settings values (%s)", _told(lot.settings))
                self._run(f"alter table seqloom.passages alter column vector type vector({lot.settings.width})")
            elif settings != lot.settings:
                self._run("update seqloom.settings set value = %s", _told(lot.settings))
            gone = [*(one.id for one in lot.documents), *lot.removed]
            self._run("delete from seqloom.documents where id = any(%s)", gone)
            self._insert(lot)
            source = None if lot.source is None else msgspec.json.encode(lot.source).decode()
            self._run("insert into seqloom.lots (source, removed) values (%s, %s)", source, list(lot.removed))

    def _insert(self, lot: Lot) -> None:
        names = sorted({msgspec.json.encode(name).decode() for one in lot.documents for name in one.columns})
        self._run("insert into seqloom.columns select unnest(%s::text[]) on conflict do nothing", names)
        words = [Counter(words_of(one.text)) for one in lot.documents]
        rows = zip(lot.documents, words, strict=True)
        told = ((one.id, one.text, msgspec.json.encode(one.columns).decode(), some.total()) for one, some in rows)
        self._copy("documents (id, body, columns, words)", told)
        ids = [one.id for one in lot.documents]
        known = dict(self._all("select id, number from seqloom.documents where id = any(%s)", ids))
        numbers = [known[name] for name in ids]
        passages = zip(lot.passages.tolist(), lot.vectors, strict=True)
        vectors = ((numbers[row], start, stop, written(vector)) for (row, start, stop), vector in passages)
        self._copy("passages (document, start, stop, vector)", vectors)
        counted = zip(numbers, words, strict=True)
        self._copy("postings", ((word, number, often) for number, some in counted for word, often in some.items()))

    def _copy(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self.connection.cursor() as cursor, cursor.copy(f"copy seqloom.{table} from stdin") as copy:
            for row in rows:
                copy.write_row(row)

    def delete(self, ids: Sequence[str]) -> None:
        """Remove the documents of these ids; ConfigError if one of them was not there."""
        delete_from(self, ids)

    def join(self) -> None:
        """Give back the room that deleted documents took in the database."""
        self._run("vacuum (analyze) seqloom.documents, seqloom.passages, seqloom.postings")

    def require_graph(self, more: Iterable[int]) -> None:
        """Do nothing: the database has a graph of its own."""

    def finished(self) -> Work[Built]:
        """Do what is left when lots were added: the graph is made, if there are many passages it can be made of."""
        total, settings = int(self._all("select count(*) from seqloom.passages")[0][0]), self.settings
        if settings is not None and settings.exact:
            self._run("drop index if exists seqloom.passages_graph")
        elif total >= GRAPH_FROM and settings is not None and settings.width <= WIDEST:
            yield Progress(LINKED, 0, total)
            self._run(GRAPH)
        return Built(len(self), total, bool(self._all(GRAPH_USED)))


def _told(settings: Settings) -> str:
    return msgspec.json.encode({"format": FORMAT} | msgspec.to_builtins(settings)).decode()


@contextmanager
def database_errors(name: str) -> Iterator[None]:
    """A block in which an error of the database becomes one of ours."""
    with needing("postgres"):
        import psycopg
    try:
        yield
    except psycopg.Error as error:
        told = str(error).strip().partition("\n")[0]
        raise DurableError(f"{name}: {told}", fix="check the URL, the rights of its user, and the server") from error


def is_url(place: object) -> bool:
    """Whether a place is named by the URL of a database."""
    return str(place).partition("://")[0] in SCHEMES


def parts_of(url: str) -> dict[str, str]:
    """Host, database and the like of a URL; ConfigError, which shows nothing of it, if it cannot be read."""
    with needing("postgres"):
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        parts = {"host": "@"}
    ports = parts.get("port", "").replace(",", "")
    # an @ or a port of letters: a part of a password, whose marks were not written as they must be
    if "@" in parts.get("host", "") + parts.get("dbname", "") or (ports and not ports.isdecimal()):
        fix = "write the marks of its password as %25 for %, %2F for /, %40 for @, %3A for :"
        raise ConfigError("the URL of the database cannot be read", fix=fix)
    return parts


def _connected(url: str) -> Any:
    with needing("postgres"):
        import psycopg
    with database_errors(Postgres(None, url).name):
        return psycopg.connect(url, autocommit=True)


def open_postgres(url: str, *, exact: bool = False) -> Postgres:
    """The index at a URL; with `exact`, no graph is used."""
    store = Postgres(_connected(url), url)
    weakref.finalize(store, store.connection.close)
    known = store._all("select to_regclass('seqloom.settings') is not null")[0][0]
    settings = store.settings if known else None
    if settings is None:
        raise ConfigError(f"{store.name} holds no index", fix="make one: seqloom index MODEL FILE --out URL")
    if exact or settings.exact:  # remembered before the graph is dropped
        store._run("set enable_indexscan = off")
    return store


@contextmanager
def writing_postgres(url: str) -> Iterator[WritableStore]:
    """A block in which this process alone may change the index at a URL; a new one if there is none."""
    connection = _connected(url)
    store = WritablePostgres(connection, url)
    try:
        with database_errors(store.name):
            (taken,) = connection.execute("select pg_try_advisory_lock(%s)", [LOCK]).fetchone()
            if not taken:
                raise HeldError(f"{store.name} is in use by another process", fix="wait for it, or stop it")
            connection.execute(TABLES)
        yield store
    finally:
        with suppress(Exception):  # the server lets go of what a dead connection held, only a little later
            connection.execute("select pg_advisory_unlock_all()")
        connection.close()
