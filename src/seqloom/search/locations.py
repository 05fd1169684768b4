"""Where an index is: a folder, or a database that a URL names."""

from contextlib import AbstractContextManager
from pathlib import Path

from seqloom.search.index import open_index
from seqloom.search.index_writer import writing
from seqloom.search.postgres import is_url, open_postgres, writing_postgres
from seqloom.search.store import IndexStore, WritableStore

Place = str | Path


def open_store(place: Place, *, exact: bool = False) -> IndexStore:
    """The index at a place; with `exact`, all passages are compared always."""
    return open_postgres(str(place), exact=exact) if is_url(place) else open_index(place, exact=exact)


def writing_at(place: Place) -> AbstractContextManager[WritableStore]:
    """A block in which this process alone may change the index at a place; a new one if there is none."""
    return writing_postgres(str(place)) if is_url(place) else writing(Path(place))
