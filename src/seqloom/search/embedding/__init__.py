"""Bulk embedding: a file of inputs becomes a file of vectors, as fast as the machine allows, and survives a kill.

source.py     the rows of a file in windows that are always the same, bad ones in their places
windows.py    the vectors of one window
linears.py    linear maps that answer faster: packed, or in whole numbers
numbers.py    how vectors are kept: float32, float16, int8, bits
losses.py     what is lost by that
segments.py   unfinished work on the disk
outputs.py    .npy and .parquet, joined from segments
front.py      `embed_file`, and `embedding`, its steps
on_ray.py     the windows spread over a Ray cluster
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.search.embedding.bulk import Finished, embed_file, embedding
    from seqloom.search.embedding.packed_linears import computing_in
    from seqloom.search.embedding.source import CheckedSource, InputSource

__all__ = ["CheckedSource", "Finished", "InputSource", "computing_in", "embed_file", "embedding"]


def __getattr__(name: str) -> Any:
    if name in ("Finished", "embed_file", "embedding"):
        from seqloom.search.embedding import bulk

        return getattr(bulk, name)
    if name == "computing_in":
        from seqloom.search.embedding import packed_linears

        return getattr(packed_linears, name)
    if name in ("CheckedSource", "InputSource"):
        from seqloom.search.embedding import source

        return getattr(source, name)
    raise AttributeError(f"module 'seqloom.search.embedding' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
