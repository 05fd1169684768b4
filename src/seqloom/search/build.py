"""Documents become an index, lot by lot: what is kept stays kept, and a build that was stopped goes on.

    file ── checked whole ──▶ documents ──▶ lots of a thousand ── passages ── vectors ──▶ committed ──▶ graph

A lot always holds the same documents of a file, whoever makes it and however often the build was stopped. So in the end
an index has the same bytes, if the model gives the same ones.
"""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from seqloom.errors import ConfigError
from seqloom.events import Progress, Work
from seqloom.search.documents import CheckedDocuments, Collection
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
from seqloom.search.vectors import Embeds, require_same, settings_of, unit

Place = str | Path


def open_store(place: Place, *, exact: bool = False) -> IndexStore:
    """The index at a place; with `exact`, all passages are compared always."""
    return open_postgres(str(place), exact=exact) if is_url(place) else open_index(place, exact=exact)


def writing_at(place: Place) -> AbstractContextManager[WritableStore]:
    """A block in which this process alone may change the index at a place; a new one if there is none."""
    return writing_postgres(str(place)) if is_url(place) else writing(Path(place))


TOGETHER = 1_024  # passages that are embedded at a time
Building = Generator[CheckedDocuments | Progress, None, Built]  # what is in the file, and then how far it is


def build_index(
    out: Place, model: Embeds, collection: Collection, *, passage: int | None = None, exact: bool | None = None
) -> Building:
    """Build an index; it goes on where an earlier one of the same file stopped.

    With `exact` no graph is made, however many passages there are, now or later; None: as the index has it.
    """
    return _build(out, model, collection, passage, exact, add=False)


def add_to_index(
    out: Place, model: Embeds, collection: Collection, *, passage: int | None = None, exact: bool | None = None
) -> Building:
    """The same for more documents; one whose id is there already takes its place."""
    return _build(out, model, collection, passage, exact, add=True)


def _build(
    out: Place, model: Embeds, collection: Collection, passage: int | None, exact: bool | None, *, add: bool
) -> Building:
    checked = collection.checked()
    yield checked
    with writing_at(out) as index:
        settings, standing, done = _settings(index, model, passage, exact), index.standing, 0
        if standing is not None and standing.sha256 == checked.sha256:
            done = standing.stop  # so many documents of this file are kept already
        elif add:
            require_finished(index)
        elif index.settings is not None:
            told = f" of {standing.name}" if standing is not None else ""
            fix = "--add to add to it, or choose another name"
            raise ConfigError(f"{index.name} is an index{told} already", fix=fix)
        if not settings.exact:
            texts = (one.text for one in islice(collection.documents(), done, None))
            index.require_graph(len(passages_of(text, model.lengths, settings.passage)) for text in texts)
        yield Progress("documents", done, checked.documents, kept=done)
        documents = islice(collection.documents(), done, None) if done < checked.documents else ()
        for some in bounded((one, len(one.text)) for one in documents):
            lot = yield from embedded(some, model, settings, done, checked.documents)
            done += len(some)
            source = DocumentSource(collection.path.name, checked.sha256, done, last=done == checked.documents)
            index.add(lot._replace(source=source))
            yield Progress("documents", done, checked.documents, kept=done)
        if exact is not None:
            remember_exact(index, exact)
        return (yield from index.finished())


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


def embedded(documents: Sequence[TextDocument], model: Embeds, settings: Settings, kept: int, total: int) -> Work[Lot]:
    """The lot of some documents, of which so many of all are kept before."""
    spans = [passages_of(one.text, model.lengths, settings.passage) for one in documents]
    passages = [(row, *span) for row, some in enumerate(spans) for span in some]
    vectors = np.empty((len(passages), settings.width), np.float32)
    for start in range(0, len(passages), TOGETHER):
        some = passages[start : start + TOGETHER]
        stop = start + len(some)
        vectors[start:stop] = unit(model.embed([documents[row].text[a:b] for row, a, b in some]))
        done = len(documents) if stop == len(passages) else some[-1][0]
        yield Progress("documents", kept + done, total, kept=kept)
    return Lot(settings, tuple(documents), as_passages(passages), vectors)
