"""An index in PostgreSQL with pgvector, given by its URL, for collections that outgrow a folder.

    settings    one row of JSON                    documents   id, text, columns, number of words
    lots        one row per segment with source    passages    document, start, stop, vector
    columns     the names of all columns           postings    word, document, count

A segment is written in one transaction. Documents that it replaces or deletes are deleted at once, so segments need not
be merged later. Only one process can write; it holds an advisory lock of the database. Results are the same as those of
a folder: the same BM25 formula over the same words, and conditions checked by the same code as rows arrive in order.
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
    Conditions,
    DocumentSource,
    IndexSummary,
    ScoredDocument,
    Segment,
    Settings,
    StoredDocument,
    TextDocument,
    WritableStore,
    delete_from,
    matches_all,
    require_columns,
)
from seqloom.search.vectors import GRAPH_FROM

FORMAT = 2  # of the tables and words; stored with the settings
SCHEMES = ("postgresql", "postgres")
LOCK = 0x5E910031  # advisory lock of the writer
BLOCK = 256  # rows fetched at a time
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
    start int not null, stop int not null, vector vector
);
create index if not exists passages_document on seqloom.passages (document);
create table if not exists seqloom.postings (
    word text collate "C" not null, document bigint not null references seqloom.documents on delete cascade,
    count int not null, primary key (word, document)
);
create index if not exists postings_document on seqloom.postings (document);
"""
WIDEST = 2_000  # the most dimensions that pgvector can index
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
COMPARED = f"{NEAREST} score desc"  # an order that the graph cannot give, so every passage is compared


class Postgres:
    """An index in a database."""

    def __init__(self, connection: Any, url: str) -> None:
        self.connection, self.url = connection, url

    @property
    def name(self) -> str:
        """Return the host and database for messages, without the password."""
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
        """Return how documents were embedded; None for an empty index."""
        rows = self._all("select value from seqloom.settings")
        if not rows:
            return None
        found = rows[0][0].pop("format", 1)
        if found != FORMAT:
            made = f"{self.name}: the index has format {found}, but this version of Seqloom reads format {FORMAT}"
            raise DurableError(made, fix="drop its schema seqloom and build the index again")
        return msgspec.convert(rows[0][0], Settings)

    @property
    def source(self) -> DocumentSource | None:
        """Return which part of which file the newest segment holds."""
        rows = self._all("select source from seqloom.lots order by number desc limit 1")
        return msgspec.convert(rows[0][0], DocumentSource) if rows and rows[0][0] is not None else None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(sorted(msgspec.json.decode(name) for (name,) in self._all("select name from seqloom.columns")))

    def __len__(self) -> int:
        return int(self._all("select count(*) from seqloom.documents")[0][0])

    def holds(self, ids: Iterable[str]) -> set[str]:
        """Return those of the ids that are in the index."""
        return {name for (name,) in self._all("select id from seqloom.documents where id = any(%s)", list(ids))}

    def by_words(self, query: str, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the documents with words of the query, best BM25 score first."""
        return self._first(BY_WORDS, (sorted(set(words_of(query))),), where, count)

    def by_vector(self, query: np.ndarray, where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the documents whose best passage is nearest to a unit vector, nearest first."""
        asked = written(query)
        found = self._first(BY_VECTOR, (asked, asked), where, count)
        if len(found) == count or not self._all(GRAPH_USED):
            return found
        # the graph stops after hnsw.max_scan_tuples passages, so compare all if there are too few results
        return self._first(COMPARED, (asked,), where, count)

    def _first(self, query: str, values: tuple[Any, ...], where: Conditions, count: int) -> list[ScoredDocument]:
        """Return the first documents of a ranking that match the conditions; each document counts once."""
        if where:
            require_columns(where, self.columns)
        found: dict[str, float] = {}
        ranked = self.connection.cursor(name="ranked")
        with database_errors(self.name), self.connection.transaction(), ranked as rows:
            rows.itersize = BLOCK
            # without this the graph returns only its first few hundred passages
            self.connection.execute("set local hnsw.iterative_scan = strict_order")
            rows.execute(query, values)
            for name, columns, score in rows:
                if name not in found and (not where or matches_all(msgspec.json.decode(columns), where)):
                    found[name] = float(score)
                if len(found) == count:
                    break
        return [ScoredDocument(name, score) for name, score in found.items()]

    def documents(self, ids: Sequence[str]) -> list[StoredDocument]:
        rows = self._all(
            "select d.id, d.body, d.columns, p.start, p.stop, p.vector::text from seqloom.documents d "
            "join seqloom.passages p on p.document = d.number where d.id = any(%s) order by d.number, p.start",
            list(ids),
        )
        found = dict[str, StoredDocument]()
        for (name, body, columns), passages in groupby(rows, key=itemgetter(0, 1, 2)):  # one row per passage
            document, some = TextDocument(name, body, msgspec.json.decode(columns)), list(passages)
            vectors = np.array([msgspec.json.decode(row[5] or "[]") for row in some], np.float32)
            found[name] = StoredDocument(document, tuple(row[3:5] for row in some), vectors)
        return [found[name] for name in ids]


def written(vector: np.ndarray) -> str:
    """Format a vector for pgvector without losing precision."""
    return "[" + ",".join(f"{number:.9g}" for number in vector.tolist()) + "]"


class WritablePostgres(Postgres):
    """An index in a database that this process can change."""

    @property
    def removed(self) -> tuple[str, ...]:
        rows = self._all("select removed from seqloom.lots order by number desc limit 1")
        return tuple(rows[0][0]) if rows else ()

    def add(self, segment: Segment) -> None:
        """Write a segment; when this returns, it survives a power cut."""
        with database_errors(self.name), self.connection.transaction():
            if (settings := self.settings) is None:
                self._run("insert into seqloom.settings values (%s)", _settings_json(segment.settings))
                if segment.settings.has_vectors:
                    width = segment.settings.width
                    self._run(f"alter table seqloom.passages alter column vector type vector({width})")
            elif settings != segment.settings:
                self._run("update seqloom.settings set value = %s", _settings_json(segment.settings))
            gone = [*(one.id for one in segment.documents), *segment.removed]
            self._run("delete from seqloom.documents where id = any(%s)", gone)
            self._insert(segment)
            source = None if segment.source is None else msgspec.json.encode(segment.source).decode()
            self._run("insert into seqloom.lots (source, removed) values (%s, %s)", source, list(segment.removed))

    def _insert(self, segment: Segment) -> None:
        names = sorted({msgspec.json.encode(name).decode() for one in segment.documents for name in one.columns})
        self._run("insert into seqloom.columns select unnest(%s::text[]) on conflict do nothing", names)
        words = [Counter(words_of(one.text)) for one in segment.documents]
        rows = zip(segment.documents, words, strict=True)
        rows_of_documents = (
            (one.id, one.text, msgspec.json.encode(one.columns).decode(), some.total()) for one, some in rows
        )
        self._copy("documents (id, body, columns, words)", rows_of_documents)
        ids = [one.id for one in segment.documents]
        known = dict(self._all("select id, number from seqloom.documents where id = any(%s)", ids))
        numbers = [known[name] for name in ids]
        passages = zip(segment.passages.tolist(), segment.vectors, strict=True)
        vectors = (
            (numbers[row], start, stop, written(vector) if len(vector) else None)
            for (row, start, stop), vector in passages
        )
        self._copy("passages (document, start, stop, vector)", vectors)
        counted = zip(numbers, words, strict=True)
        self._copy("postings", ((word, number, often) for number, some in counted for word, often in some.items()))

    def _copy(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self.connection.cursor() as cursor, cursor.copy(f"copy seqloom.{table} from stdin") as copy:
            for row in rows:
                copy.write_row(row)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; ConfigError if an id is not in the index."""
        delete_from(self, ids)

    def compact(self) -> None:
        """Reclaim the space of deleted documents."""
        self._run("vacuum (analyze) seqloom.documents, seqloom.passages, seqloom.postings")

    def require_graph(self, more: Iterable[int]) -> None:
        """Do nothing: the database has its own graph."""

    def finished(self) -> Work[IndexSummary]:
        """Finish a change: build the graph if there are many passages and pgvector can index them."""
        total, settings = int(self._all("select count(*) from seqloom.passages")[0][0]), self.settings
        if settings is not None and settings.exact:
            self._run("drop index if exists seqloom.passages_graph")
        elif total >= GRAPH_FROM and settings is not None and 0 < settings.width <= WIDEST:
            yield Progress(LINKED, 0, total)
            self._run(GRAPH)
        return IndexSummary(len(self), total, bool(self._all(GRAPH_USED)))


def _settings_json(settings: Settings) -> str:
    return msgspec.json.encode({"format": FORMAT} | msgspec.to_builtins(settings)).decode()


@contextmanager
def database_errors(name: str) -> Iterator[None]:
    """A context in which database errors become Seqloom errors."""
    with needing("postgres"):
        import psycopg
    try:
        yield
    except psycopg.Error as error:
        message = str(error).strip().partition("\n")[0]
        raise DurableError(
            f"{name}: {message}", fix="check the URL, the permissions of its user, and the server"
        ) from error


def is_url(place: object) -> bool:
    """Return whether a place is the URL of a database."""
    return str(place).partition("://")[0] in SCHEMES


def parts_of(url: str) -> dict[str, str]:
    """Split a URL into host, database and so on; ConfigError, without showing the URL, if it is invalid."""
    with needing("postgres"):
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        parts = {"host": "@"}
    ports = parts.get("port", "").replace(",", "")
    # an @ or a port with letters is part of a password with characters that were not percent-encoded
    if "@" in parts.get("host", "") + parts.get("dbname", "") or (ports and not ports.isdecimal()):
        fix = "percent-encode the password: %25 for %, %2F for /, %40 for @, %3A for :"
        raise ConfigError("the database URL is invalid", fix=fix)
    return parts


def _connected(url: str) -> Any:
    with needing("postgres"):
        import psycopg
    with database_errors(Postgres(None, url).name):
        return psycopg.connect(url, autocommit=True)


def open_postgres(url: str, *, exact: bool = False) -> Postgres:
    """Open the index at a URL; with `exact`, no graph is used."""
    store = Postgres(_connected(url), url)
    weakref.finalize(store, store.connection.close)
    known = store._all("select to_regclass('seqloom.settings') is not null")[0][0]
    settings = store.settings if known else None
    if settings is None:
        raise ConfigError(f"{store.name} has no index", fix="build one: `seqloom index FILE --out URL`")
    if exact or settings.exact:  # the setting is stored before the graph is dropped
        store._run("set enable_indexscan = off")
    return store


@contextmanager
def open_writable_postgres(url: str) -> Iterator[WritableStore]:
    """A context in which only this process can change the index at a URL; creates it if needed."""
    connection = _connected(url)
    store = WritablePostgres(connection, url)
    try:
        with database_errors(store.name):
            (taken,) = connection.execute("select pg_try_advisory_lock(%s)", [LOCK]).fetchone()
            if not taken:
                raise HeldError(f"{store.name} is being changed by another process", fix="wait for it, or stop it")
            connection.execute(TABLES)
        yield store
    finally:
        with suppress(Exception):  # the server releases the lock of a dead connection a little later
            connection.execute("select pg_advisory_unlock_all()")
        connection.close()
