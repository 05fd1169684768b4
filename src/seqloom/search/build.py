"""Documents become an index, lot by lot: what is kept stays kept, and a build that was stopped goes on.

    file ── checked whole ──▶ documents ──▶ lots of a thousand ── passages ── vectors ──▶ committed ──▶ graph

A lot always holds the same documents of a file, whoever makes it and however often the build was stopped. So in the end
an index has the same bytes, if the model gives the same ones.

Where an index is: a folder, or a database that a URL names.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.search.documents import CheckedDocuments, Collection
from seqloom.search.embedders import Embeds, require_same, settings_of
from seqloom.search.index import open_index, writing
from seqloom.search.lots import as_passages, bounded
from seqloom.search.passages import passages_of
from seqloom.search.postgres import is_url, open_postgres, writing_postgres
from seqloom.search.store import (
    Built,
    DocumentSource,
    IndexStore,
    Lot,
    Settings,
    TextDocument,
    WritableStore,
    remember_exact,
    require_finished,
)
from seqloom.search.vectors import unit

Place = str | Path


def open_store(place: Place, *, exact: bool = False) -> IndexStore:
    """The index at a place; with `exact`, all passages are compared always."""
    return open_postgres(str(place), exact=exact) if is_url(place) else open_index(place, exact=exact)


def writing_at(place: Place) -> AbstractContextManager[WritableStore]:
    """A block in which this process alone may change the index at a place; a new one if there is none."""
    return writing_postgres(str(place)) if is_url(place) else writing(Path(place))


TOGETHER = 1_024  # passages that are embedded at a time


Step = CheckedDocuments | Progress | Built
Begin = Callable[[WritableStore, CheckedDocuments], int]  # how many documents of a file are done already


def build_index(
    out: Place, model: Embeds, collection: Collection, *, passage: int | None = None, exact: bool | None = None
) -> Iterator[Step]:
    """How far the building of an index is; it goes on where an earlier one of the same file stopped.

    With `exact` no graph is made, however many passages there are, now or later; None: as the index has it.
    """
    return _build(out, model, collection, passage, exact, _went_on)


def add_to_index(
    out: Place, model: Embeds, collection: Collection, *, passage: int | None = None, exact: bool | None = None
) -> Iterator[Step]:
    """The same for more documents; one whose id is there already takes its place."""
    return _build(out, model, collection, passage, exact, _added)


def _build(
    out: Place, model: Embeds, collection: Collection, passage: int | None, exact: bool | None, begin: Begin
) -> Iterator[Step]:
    checked = collection.checked()
    yield checked
    with writing_at(out) as index:
        settings = _settings(index, model, passage, exact)
        done = begin(index, checked)
        if not settings.exact:
            index.require_graph(_passages(collection, model, settings, done))
        yield Progress("documents", done, checked.documents, kept=done)
        if done < checked.documents:
            yield from _filled(index, model, settings, collection, checked, done)
        if exact is not None:
            remember_exact(index, exact)
        yield from index.finished()


def _passages(collection: Collection, model: Embeds, settings: Settings, done: int) -> Iterator[int]:
    """How many passages each document of a file has, from one on."""
    for one in islice(collection.documents(), done, None):
        yield len(passages_of(one.text, model.lengths, settings.passage))


def _settings(index: WritableStore, model: Embeds, passage: int | None, exact: bool | None) -> Settings:
    """Those of the index, if there is one that this model made; else new ones."""
    there = index.settings
    if there is None:
        return msgspec.structs.replace(settings_of(model, passage), exact=bool(exact))
    require_same(there, model)
    if passage not in (None, there.passage):
        fix = "leave --passage out, or make the index again"
        raise ConfigError(f"the passages of {index.name} have up to {there.passage} symbols, not {passage}", fix=fix)
    return there if exact is None else msgspec.structs.replace(there, exact=exact)


def _went_on(index: WritableStore, checked: CheckedDocuments) -> int:
    """How many documents of the file are kept already; ConfigError if the index is one of something else."""
    standing = index.standing
    if standing is not None and standing.sha256 == checked.sha256:
        return standing.stop
    if index.settings is not None:
        told = f" of {standing.name}" if standing is not None else ""
        raise ConfigError(f"{index.name} is an index{told} already", fix="--add to add to it, or choose another name")
    return 0


def _added(index: WritableStore, checked: CheckedDocuments) -> int:
    """The same for a file that is added; ConfigError if another one is not finished."""
    standing = index.standing
    if standing is not None and standing.sha256 == checked.sha256:
        return standing.stop
    require_finished(index)
    return 0


def _filled(
    index: WritableStore,
    model: Embeds,
    settings: Settings,
    collection: Collection,
    checked: CheckedDocuments,
    done: int,
) -> Iterator[Progress]:
    """How many documents are done while lots are added, from a document on."""
    documents = islice(collection.documents(), done, None)
    for some in bounded((one, len(one.text)) for one in documents):
        lot = None
        for part, lot in embedded(some, model, settings):  # noqa: B007
            yield Progress("documents", done + part, checked.documents, kept=done)
        assert lot is not None, "a lot has at least one document"
        done += len(some)
        source = DocumentSource(collection.path.name, checked.sha256, done, last=done == checked.documents)
        index.add(lot._replace(source=source))
        yield Progress("documents", done, checked.documents, kept=done)


def embedded(documents: Sequence[TextDocument], model: Embeds, settings: Settings) -> Iterator[tuple[int, Lot]]:
    """How many of the documents have vectors, and the lot of those; the last one is that of all."""
    spans = [passages_of(one.text, model.lengths, settings.passage) for one in documents]
    passages = [(row, *span) for row, some in enumerate(spans) for span in some]
    vectors = np.empty((len(passages), settings.width), np.float32)
    for start in range(0, len(passages), TOGETHER):
        some = passages[start : start + TOGETHER]
        vectors[start : start + len(some)] = unit(model.embed([documents[row].text[a:b] for row, a, b in some]))
        done = len(documents) if start + len(some) == len(passages) else some[-1][0]
        stop = start + len(some)
        yield done, Lot(settings, tuple(documents), as_passages(passages[:stop]), vectors[:stop])
