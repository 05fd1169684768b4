"""Search in one's own documents: by meaning, by words, or by both.

    file ──▶ documents ──▶ passages ──▶ vectors ─┐
                      └──▶ words ────────────────┴──▶ index ◀── question ──▶ ranked documents, the best sentence marked

documents.py    the rows of a file, as texts with names or as documents; a copy of it with more columns
passages.py     long texts as passages of whole sentences
bm25.py         the words of a text, and how well documents answer words
vectors.py      what search asks of a model, and the nearest passages: all compared, or along a graph
store.py        what is kept, conditions on its columns, and the contract of whoever keeps it
lots.py         some documents as the files of a folder
index.py        an index in a folder, and the same for the one process that changes it
postgres.py     an index in PostgreSQL with pgvector
build.py        a file becomes an index, in a folder or a database, and goes on after a kill
search.py       questions and their hits, which a model of pairs may read again
evaluation.py   how good the hits are, by judgements of people
embedding/      a file of inputs becomes a file of vectors

Duplicates and labels are made with the same vectors:

    similarity.py   pairs of similar texts, by their letters or by their meaning, and a threshold from their picture
    duplicates.py   the near duplicates among texts, and a copy of a file in which they are marked
    labeling.py     labels suggested from a few examples, which row to ask about next, and what is learnt from answers
    decisions.py    the log of what was decided
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.search.build import add_to_index, build_index, open_store, writing_at
    from seqloom.search.documents import Collection
    from seqloom.search.duplicates import Duplicates, dedupe
    from seqloom.search.index import Index, open_index
    from seqloom.search.search import Hit, Searcher, searcher
    from seqloom.search.vectors import ModelEmbeds

HOMES = {  # each public name is loaded from here when it is first asked for
    "build": ("add_to_index", "build_index", "open_store", "writing_at"),
    "documents": ("Collection",),
    "duplicates": ("Duplicates", "dedupe"),
    "index": ("Index", "open_index"),
    "search": ("Hit", "Searcher", "searcher"),
    "vectors": ("ModelEmbeds",),
}
__all__ = [
    "Collection",
    "Duplicates",
    "Hit",
    "Index",
    "ModelEmbeds",
    "Searcher",
    "add_to_index",
    "build_index",
    "dedupe",
    "open_index",
    "open_store",
    "searcher",
    "writing_at",
]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
