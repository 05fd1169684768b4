"""The file of vectors, made of the segments one after the other; memory is that of one segment.

    .npy       [rows, columns], what numpy.load reads; a row without a vector is NaN, in int8 and binary zeros
    .parquet   id (the name that the data gives a row, or its line) and vector, a list of fixed size; null without one

Beside it stands a card, `vectors.npy.json`: what was asked, the scale of int8, the rows without a vector, what was
noticed, and what was lost. The scale is in the metadata of a parquet file too.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from seqloom.errors import ConfigError, needing
from seqloom.search.embedding.quantization import Numbers, QuantizationLoss
from seqloom.search.embedding.segments import Job, Segment
from seqloom.search.embedding.windows import Bad, Note

Written = Callable[[Iterable[Segment], Numbers, int], Iterator[bytes]]  # the bytes of segments of so many rows


class EmbeddingCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands beside the vectors."""

    job: Job
    scale: list[float] | None
    bad: tuple[Bad, ...]
    notes: tuple[Note, ...]
    loss: QuantizationLoss | None
    sha256: str  # of the vectors it stands beside


def card_of(out: Path) -> Path:
    """The path of the card of an output."""
    return out.with_name(f"{out.name}.json")


def read_card(out: Path) -> EmbeddingCard | None:
    """The card beside an output; None if there is none of ours."""
    try:
        return msgspec.json.decode(card_of(out).read_bytes(), type=EmbeddingCard)
    except (OSError, msgspec.MsgspecError):
        return None


class _AnyJob(msgspec.Struct, frozen=True):
    format: int
    source: str


class _AnyCard(msgspec.Struct, frozen=True):
    """What cards of all versions have."""

    job: _AnyJob
    sha256: str


def is_of_another_version(out: Path) -> bool:
    """Whether the card beside an output, which cannot be read, is that of another Seqloom."""
    try:
        msgspec.json.decode(card_of(out).read_bytes(), type=_AnyCard)
    except (OSError, msgspec.MsgspecError):
        return False
    return True


def npy(segments: Iterable[Segment], numbers: Numbers, rows: int) -> Iterator[bytes]:
    """The bytes of a .npy file: the header, which says how many rows will follow, and the rows."""
    head = io.BytesIO()
    shape = (rows, numbers.columns)
    described = {"descr": np.lib.format.dtype_to_descr(numbers.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    yield head.getvalue()
    for segment in segments:
        yield segment.vectors.tobytes()


def parquet(segments: Iterable[Segment], numbers: Numbers, _: int) -> Iterator[bytes]:
    """The bytes of a .parquet file, a group of rows for each segment."""
    with needing("data"):
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    scale = None if numbers.scale is None else numbers.scale.tolist()
    known = {"kind": numbers.kind, "width": str(numbers.width), "scale": msgspec.json.encode(scale).decode()}
    vector = pa.list_(pa.from_numpy_dtype(numbers.dtype), numbers.columns)
    schema = pa.schema([("id", pa.string()), ("vector", vector)], metadata=known)
    sink = _Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd", use_dictionary=False) as writer:
        for segment in segments:
            writer.write_table(_table(segment, schema))
            yield sink.taken()
    yield sink.taken()


def _table(segment: Segment, schema: Any) -> Any:
    import pyarrow as pa

    missing = np.zeros(len(segment.vectors), bool)
    missing[[bad.row - 1 - segment.told.start for bad in segment.told.bad]] = True
    flat = pa.array(segment.vectors.reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type, mask=pa.array(missing))
    return pa.table([pa.array(segment.told.ids, pa.string()), vectors], schema=schema)


class _Sink(io.RawIOBase):
    """A file that keeps what is written until it is taken."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        self.size += len(self.pieces[-1])
        return len(self.pieces[-1])

    def tell(self) -> int:
        return self.size

    def taken(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self.pieces)
        self.pieces.clear()
        return taken


FORMS: dict[str, Written] = {".npy": npy, ".parquet": parquet}


def form_of(out: Path) -> Written:
    """How the file of this name is written; ConfigError, before any work, for one that cannot be."""
    if out.suffix.lower() not in FORMS:
        fix = f"name it {out.with_suffix('.npy').name} or {out.with_suffix('.parquet').name}"
        raise ConfigError(f"{out}: vectors are kept in {' or '.join(FORMS)}", fix=fix)
    if out.suffix.lower() == ".parquet":
        with needing("data"):
            import pyarrow.parquet  # noqa: F401
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}", fix="make it, or give another path")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder", fix="give the name of a file")
    return FORMS[out.suffix.lower()]
