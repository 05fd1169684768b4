"""Search your own documents by meaning, by words, or by both.

    file ──▶ documents ──▶ passages ──▶ vectors ─┐
                      └──▶ words ────────────────┴──▶ index ◀── query ──▶ ranked documents with the best sentence

documents.py    the rows of a file as named texts or as documents; a copy of a file with more columns
passages.py     split long texts into passages of whole sentences
bm25.py         split text into words, and BM25 scores
vectors.py      embedders, and nearest neighbors: exact or with a graph
store.py        what an index stores, conditions on columns, and the interface of a store
segments.py     documents as the files of a folder
index.py        an index in a folder, for reading and for writing
postgres.py     an index in PostgreSQL with pgvector
build.py        build an index in a folder or a database, and resume
search.py       queries, hits and reranking
evaluation.py   nDCG, recall and MRR against relevance judgments
embedding/      a file of inputs becomes a file of vectors

Duplicates and labels use the same vectors:

    similarity.py   pairs of similar texts, by text or by meaning, and a threshold from their histogram
    duplicates.py   near duplicates among texts, and a copy of a file with duplicates marked
    labeling.py     suggest labels, choose the next question, learn from answers
    decisions.py    the log of labels
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.search.build import add_to_index, build_index, open_store, open_writable
    from seqloom.search.documents import Collection
    from seqloom.search.duplicates import Duplicates, dedupe
    from seqloom.search.index import Index, open_index
    from seqloom.search.search import Hit, Searcher, searcher
    from seqloom.search.vectors import ModelEmbedder

HOMES = {  # the module of each public name, loaded on first use
    "build": ("add_to_index", "build_index", "open_store", "open_writable"),
    "documents": ("Collection",),
    "duplicates": ("Duplicates", "dedupe"),
    "index": ("Index", "open_index"),
    "search": ("Hit", "Searcher", "searcher"),
    "vectors": ("ModelEmbedder",),
}
__all__ = [
    "Collection",
    "Duplicates",
    "Hit",
    "Index",
    "ModelEmbedder",
    "Searcher",
    "add_to_index",
    "build_index",
    "dedupe",
    "open_index",
    "open_store",
    "open_writable",
    "searcher",
]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
