"""Bulk embedding: a file of inputs becomes a file of vectors, as fast as the machine allows, and survives a kill.

windows.py          the rows of a file in windows that are always the same, and the vectors of one window
packed_linears.py   linear maps that answer faster: packed, or in whole numbers
output.py           how vectors are kept, float32, float16, int8 or bits, and what is lost by that;
                    unfinished work on the disk, and the .npy or .parquet that is joined from it
bulk.py             `embed_file`, and `embedding`, its steps
ray_cluster.py      the windows spread over a Ray cluster
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.search.embedding.bulk import Finished, embed_file, embedding
    from seqloom.search.embedding.packed_linears import computing_in
    from seqloom.search.embedding.windows import CheckedSource, InputSource

HOMES = {  # each public name is loaded from here when it is first asked for
    "bulk": ("Finished", "embed_file", "embedding"),
    "packed_linears": ("computing_in",),
    "windows": ("CheckedSource", "InputSource"),
}
__all__ = ["CheckedSource", "Finished", "InputSource", "computing_in", "embed_file", "embedding"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
