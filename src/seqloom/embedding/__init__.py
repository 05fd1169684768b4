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

from seqloom.embedding.front import Embedded, Finished, embed_file, embedding
from seqloom.embedding.linears import computing_in
from seqloom.embedding.source import Checked, Source

__all__ = ["Checked", "Embedded", "Finished", "Source", "computing_in", "embed_file", "embedding"]
