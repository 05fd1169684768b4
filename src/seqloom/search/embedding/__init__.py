"""Bulk embedding: a file of inputs becomes a file of vectors. It is fast, and resumes after a kill.

windows.py          split the rows of a file into fixed windows, and compute the vectors of a window
packed_linears.py   faster linear layers: packed weights, or int8
output.py           float32, float16, int8 and binary vectors and their loss; unfinished work on disk; .npy and .parquet
bulk.py             `embed_file`, and `embedding_steps`, its generator
ray_cluster.py      windows distributed over a Ray cluster
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.search.embedding.bulk import EmbeddedFile, embed_file, embedding_steps
    from seqloom.search.embedding.packed_linears import with_precision
    from seqloom.search.embedding.windows import CheckedSource, InputSource

HOMES = {  # the module of each public name, loaded on first use
    "bulk": ("EmbeddedFile", "embed_file", "embedding_steps"),
    "packed_linears": ("with_precision",),
    "windows": ("CheckedSource", "InputSource"),
}
__all__ = ["CheckedSource", "EmbeddedFile", "InputSource", "embed_file", "embedding_steps", "with_precision"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
