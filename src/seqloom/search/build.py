"""Build an index from a file of documents, segment by segment; a build that was stopped resumes.

    file ── checked ──▶ documents ──▶ segments of about 1,000 ── passages ── vectors ──▶ committed ──▶ graph

Without a model there are no vectors and no graph, and the index is searched by words.

A segment always holds the same documents of a file, however often the build was stopped. So a build that resumed ends
with the same bytes as one that was never stopped, if the model gives the same vectors.
"""

import warnings
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from seqloom.config.options import strict
from seqloom.errors import ConfigError, SeqloomWarning
from seqloom.events import Progress, Work
from seqloom.search.documents import CheckedDocuments, Collection
from seqloom.search.index import open_index, open_writable_index
from seqloom.search.passages import passages_of
from seqloom.search.postgres import is_url, open_postgres, open_writable_postgres
from seqloom.search.segments import in_segments, passage_array
from seqloom.search.store import (
    DocumentSource,
    IndexStore,
    IndexSummary,
    Segment,
    Settings,
    TextDocument,
    WritableStore,
    require_finished,
    set_exact,
)
from seqloom.search.vectors import IndexEmbedder, WordsOnly, require_same_model, settings_for, unit_vectors

Place = str | Path


@strict
def open_store(place: Place, *, exact: bool = False) -> IndexStore:
    """Open an index for searching.

    Args:
        place: The folder of the index, or a postgresql:// URL.
        exact: Compare every passage instead of using the graph.
    """
    return open_postgres(str(place), exact=exact) if is_url(place) else open_index(place, exact=exact)


@strict
def open_writable(place: Place) -> AbstractContextManager[WritableStore]:
    """A context in which only this process can change the index at a folder or URL; creates the index if needed."""
    return open_writable_postgres(str(place)) if is_url(place) else open_writable_index(Path(place))


BATCH_SIZE = 1_024  # passages that are embedded at a time
Building = Generator[CheckedDocuments | Progress, None, IndexSummary]  # what the file contains, then progress


@strict
def build_index(
    out: Place,
    model: IndexEmbedder | None,
    collection: Collection,
    *,
    passage_tokens: int | None = None,
    exact: bool | None = None,
) -> Building:
    """Build an index; resume if an earlier build of the same file was stopped.

    Args:
        out: The folder of the index, or a postgresql:// URL.
        model: What computes the vectors, such as `ModelEmbedder(seqloom.load(MODEL))`; None: search by words only.
        collection: The file of documents.
        passage_tokens: Tokens in a passage, at most, or words without a model (default: 256, or the model's limit if
            lower).
        exact: True never makes a graph, False allows one, None keeps the setting of the index.

    Returns:
        A generator of progress; its return value (see `seqloom.events.finished`) is an `IndexSummary`.

    Warns if the model was not trained to embed.
    """
    if model is not None and model.caveat:
        warnings.warn(model.caveat, SeqloomWarning, stacklevel=3)
    return _build(out, model or WordsOnly(), collection, passage_tokens, exact, add=False)


@strict
def add_to_index(
    out: Place,
    model: IndexEmbedder | None,
    collection: Collection,
    *,
    passage_tokens: int | None = None,
    exact: bool | None = None,
) -> Building:
    """Add documents to an index; a document with a known id replaces the old one. Arguments as in `build_index`."""
    return _build(out, model or WordsOnly(), collection, passage_tokens, exact, add=True)


def _build(
    out: Place,
    model: IndexEmbedder,
    collection: Collection,
    passage_tokens: int | None,
    exact: bool | None,
    *,
    add: bool,
) -> Building:
    checked = collection.checked()
    yield checked
    with open_writable(out) as index:
        settings, source, done = _settings(index, model, passage_tokens, exact), index.source, 0
        if source is not None and source.sha256 == checked.sha256:
            done = source.stop  # documents of this file that are stored already
        elif add:
            require_finished(index)
        elif index.settings is not None:
            found = f" of {source.name}" if source is not None else ""
            fix = "add to it (`seqloom index --add`, or add_to_index in Python), or choose another name"
            raise ConfigError(f"{index.name} is already an index{found}", fix=fix)
        if settings.may_have_graph:
            texts = (one.text for one in islice(collection.documents(), done, None))
            index.require_graph(len(passages_of(text, model.lengths, settings.passage)) for text in texts)
        all_kept = len(index) + checked.documents - done  # documents, if none is replaced
        yield Progress("documents", done, checked.documents, kept=done)
        documents = islice(collection.documents(), done, None) if done < checked.documents else ()
        for some in in_segments((one, len(one.text)) for one in documents):
            segment = yield from embed_documents(some, model, settings, done, checked.documents)
            done += len(some)
            source = DocumentSource(collection.path.name, checked.sha256, done, last=done == checked.documents)
            index.add(segment._replace(source=source))
            yield Progress("documents", done, checked.documents, kept=done)
        if exact is not None:
            set_exact(index, exact)
        built = yield from index.finished()
        return built._replace(replaced=all_kept - built.documents)


def _settings(index: WritableStore, model: IndexEmbedder, passage_tokens: int | None, exact: bool | None) -> Settings:
    """Return the settings of the index if this model made it, or new ones for a new index."""
    there = index.settings
    if there is None:
        return msgspec.structs.replace(settings_for(model, passage_tokens), exact=bool(exact))
    require_same_model(there, model)
    if passage_tokens not in (None, there.passage):
        fix = "leave out --passage-tokens, or build a new index"
        raise ConfigError(f"{index.name} has passages of up to {there.passage} tokens, not {passage_tokens}", fix=fix)
    return there if exact is None else msgspec.structs.replace(there, exact=exact)


def embed_documents(
    documents: Sequence[TextDocument], model: IndexEmbedder, settings: Settings, kept: int, total: int
) -> Work[Segment]:
    """Compute the passages and vectors of some documents.

    Args:
        documents: The documents of the new segment.
        model: What computes the vectors.
        settings: The settings of the index.
        kept: Documents of the file that are stored already.
        total: Documents of the file.
    """
    spans = [passages_of(one.text, model.lengths, settings.passage) for one in documents]
    passages = [(row, *span) for row, some in enumerate(spans) for span in some]
    vectors = np.empty((len(passages), settings.width), np.float32)
    for start in range(0, len(passages), BATCH_SIZE):
        some = passages[start : start + BATCH_SIZE]
        stop = start + len(some)
        vectors[start:stop] = unit_vectors(model.embed([documents[row].text[a:b] for row, a, b in some]))
        done = len(documents) if stop == len(passages) else some[-1][0]
        yield Progress("documents", kept + done, total, kept=kept)
    return Segment(settings, tuple(documents), passage_array(passages), vectors)
