"""Search in one's own documents: by meaning, by words, or by both.

    file ──▶ documents ──▶ passages ──▶ vectors ─┐
                      └──▶ words ────────────────┴──▶ index ◀── question ──▶ ranked documents, the best sentence marked

documents.py    the rows of a file as documents
passages.py     long texts as passages of whole sentences
embedders.py    what search asks of a model
words.py        the words of a text
bm25.py         how well documents answer words
vectors.py      the nearest passages: all compared, or along a graph
fusion.py       several orders made one
conditions.py   conditions on columns
store.py        what is kept, and the contract of whoever keeps it
lots.py         some documents as the files of a folder
state.py        what all lots hold together
index.py        an index in a folder
changing.py     the same for the one process that changes it
postgres.py     an index in PostgreSQL with pgvector
places.py       which of the two a name means
building.py     a file becomes an index, and goes on after a kill
searching.py    questions and their hits
reranking.py    the first hits read again by a model of pairs
judging.py      how good the hits are, by judgements of people

Duplicates and labels are made with the same vectors:

    rows.py             the rows of a file as texts with names
    copies.py           a copy of a file with more columns
    similarity.py       pairs of similar texts, and the contract of whoever finds them
    similar_texts.py    by their letters: MinHash
    similar_vectors.py  by their meaning: cosines
    valleys.py          a threshold from the picture of similarities
    duplicates.py       the near duplicates among texts
    marking.py          a copy of a file in which they are marked
    hashed_words.py     vectors without a model
    suggesting.py       labels suggested from a few examples
    ordering.py         which row to label next
    decisions.py        the log of what was decided
    label_examples.py   rows that have a label already
    labelling.py        questions, answers and what is learnt from them
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.search.build import add_to_index, build_index
    from seqloom.search.documents import Collection
    from seqloom.search.duplicates import Duplicates, dedupe
    from seqloom.search.embedders import ModelEmbeds
    from seqloom.search.index import Index, open_index
    from seqloom.search.locations import open_store, writing_at
    from seqloom.search.search import Hit, Searcher, searcher

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


def __getattr__(name: str) -> Any:
    if name in ("add_to_index", "build_index"):
        from seqloom.search import build

        return getattr(build, name)
    if name == "Collection":
        from seqloom.search import documents

        return getattr(documents, name)
    if name in ("Duplicates", "dedupe"):
        from seqloom.search import duplicates

        return getattr(duplicates, name)
    if name == "ModelEmbeds":
        from seqloom.search import embedders

        return getattr(embedders, name)
    if name in ("Index", "open_index"):
        from seqloom.search import index

        return getattr(index, name)
    if name in ("open_store", "writing_at"):
        from seqloom.search import locations

        return getattr(locations, name)
    if name in ("Hit", "Searcher", "searcher"):
        from seqloom.search import search

        return getattr(search, name)
    raise AttributeError(f"module 'seqloom.search' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
