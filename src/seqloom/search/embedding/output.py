"""How vectors are stored: dtype and loss, the folder of unfinished work, and the final file.

    float32   4 bytes per number   as computed
    float16   2                    rounded to 11 bits
    int8      1                    round(x / s), one scale s per dimension: the largest |x| of the first rows / 127
    binary    1/8                  x > 0, packed eight to a byte, the first in the highest bit

Values beyond the scale of int8 are clipped. The loss, from storing fewer bits or computing in int8, is measured on a
sample of the rows: *cosine* is the mean of |cos(a, b) - cos(a', b')| over random pairs, where a' is the stored a;
*recall* is the share of the 10 nearest neighbors of a row in the sample that stay among its 10 nearest, ignoring ties.

The file is written shard by shard, so only one is in memory.

    .npy       [rows, columns], for numpy.load; a row without a vector is NaN, or zeros in int8 and binary
    .parquet   id (of the data, or the line) and vector, a list of fixed size; null without a vector

Beside it is a card, `vectors.npy.json`: the settings, the scale of int8, rows without a vector, warnings, and the loss.
A parquet file has the scale in its metadata too.

The folder of unfinished work has the settings and one committed folder (a shard) per finished window:

    vectors.npy.work/
      ├── job.json               the settings; a job with other settings is an error
      ├── .lock                  only one process can write
      ├── rows-000000000000/     vectors.bin, sample.bin, segment.json, manifest.json
      └── rows-000000002048/

When a process dies, committed shards stay. A damaged shard and all after it are computed again.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np

from seqloom.errors import ConfigError, DamagedError, DurableError, did_you_mean, needing
from seqloom.files.disk import write_file
from seqloom.files.folders import commit_folder, numbered, read_folder, remove_folder
from seqloom.search.documents import ChunkBuffer
from seqloom.search.embedding.windows import EmbeddingNote, FailedRow, WindowVectors

VectorDtype = Literal["float32", "float16", "int8", "binary"]
DTYPES: tuple[VectorDtype, ...] = get_args(VectorDtype)
STORED = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|u1"}
LARGEST = 127


class VectorFormat(NamedTuple):
    """How vectors of one width are stored."""

    dtype: VectorDtype
    width: int
    scale: np.ndarray | None = None  # [D] float32, for int8

    @property
    def numpy_dtype(self) -> np.dtype:
        """Return the numpy type on disk, the same on every machine."""
        return np.dtype(STORED[self.dtype])

    @property
    def columns(self) -> int:
        """Return the number of values per row: dimensions, or bytes of bits."""
        return -(-self.width // 8) if self.dtype == "binary" else self.width

    @property
    def is_fitted(self) -> bool:
        """Return whether vectors can be encoded: only int8 needs a scale first."""
        return self.dtype != "int8" or self.scale is not None

    def fitted(self, vectors: np.ndarray) -> "VectorFormat":
        """Return the format with the scale of these vectors [N,D], if it needs one and has none."""
        if self.is_fitted:
            return self
        largest = np.nan_to_num(np.abs(vectors)).max(axis=0, initial=0.0)
        return self._replace(scale=np.where(largest > 0, largest, 1).astype(np.float32) / np.float32(LARGEST))

    def encoded(self, vectors: np.ndarray) -> np.ndarray:
        """[N,columns] encode vectors [N,D] for storage.

        >>> VectorFormat("binary", 3).encoded(np.array([[0.5, -1.0, 2.0]])).tolist()
        [[160]]
        """
        if self.dtype == "binary":
            return np.packbits(vectors > 0, axis=1)
        if self.dtype == "int8":
            whole: np.ndarray = np.rint(np.nan_to_num(vectors / self._scale))
            return whole.clip(-LARGEST, LARGEST).astype(self.numpy_dtype)
        with np.errstate(over="ignore"):  # overflow of float16 becomes infinity; the loss shows it
            return vectors.astype(self.numpy_dtype)

    def decoded(self, kept: np.ndarray) -> np.ndarray:
        """[N,D] decode to float32 vectors; bits become 1 and -1."""
        if self.dtype == "binary":
            return np.unpackbits(kept, axis=1, count=self.width).astype(np.float32) * 2 - 1
        return kept.astype(np.float32) * self._scale if self.dtype == "int8" else kept.astype(np.float32)

    @property
    def _scale(self) -> np.ndarray:
        assert self.scale is not None, "int8 is fitted before anything is stored"
        return self.scale


def require_dtype(name: str) -> VectorDtype:
    """Return the dtype with this name; ConfigError if it does not exist."""
    for kind in DTYPES:
        if kind == name:
            return kind
    raise ConfigError(f"unknown dtype '{name}'", fix=did_you_mean(name, DTYPES))


SAMPLE_ROWS = 1_000  # spread over the file
PAIRS = 10_000
NEAREST = 10


class QuantizationLoss(NamedTuple):
    """The loss of stored vectors, measured on this many rows."""

    rows: int
    cosine: float
    recall: float


def sample_rows(rows: int, start: int, stop: int) -> np.ndarray:
    """Return the row numbers from `start` to `stop` that are in the evenly spaced sample of all rows.

    >>> sample_rows(5, 0, 3).tolist(), sample_rows(3_000, 0, 10).tolist()
    ([0, 1, 2], [0, 3, 6, 9])
    """
    count = min(rows, SAMPLE_ROWS)
    chosen = np.arange(count) * rows // max(1, count)
    return chosen[(chosen >= start) & (chosen < stop)]


def measure_loss(exact: np.ndarray, kept: np.ndarray) -> QuantizationLoss | None:
    """Measure the loss of stored vectors [N,D] against exact ones [N,D]; None for fewer than two."""
    there = np.isfinite(exact).all(axis=1)
    exact, kept = _unit(exact[there]), _unit(kept[there])
    if len(exact) < 2:
        return None
    true, found = exact @ exact.T, kept @ kept.T
    draws = np.random.Generator(np.random.PCG64(0))
    first = draws.integers(0, len(exact), PAIRS)
    second = (first + draws.integers(1, len(exact), PAIRS)) % len(exact)  # never itself
    cosine = float(np.abs(true[first, second] - found[first, second]).mean())
    count = min(NEAREST, len(true) - 1)
    for cosines in (true, found):
        np.fill_diagonal(cosines, -np.inf)  # a row is not its own neighbor
    chosen = np.argpartition(-found, count - 1, axis=1)[:, :count]
    least = -np.partition(-true, count - 1, axis=1)[:, count - 1 : count]
    recall = float((np.take_along_axis(true, chosen, axis=1) >= least - 1e-9).mean())
    return QuantizationLoss(len(exact), cosine, recall)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Scale to unit vectors in float64; vectors that are zero or not finite become zero."""
    finite = np.nan_to_num(vectors.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(finite, axis=1, keepdims=True)
    return finite / np.where(lengths > 0, lengths, 1)


FORMAT = 1
JOB, PREFIX = "job.json", "rows-"
OWN = re.compile(r"\.lock|job\.json|rows-\d{12}|\.(job\.json|rows-\d{12})\..+")  # names in the folder
SEGMENT, VECTORS, SAMPLE = "segment.json", "vectors.bin", "sample.bin"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that determines the bytes of the output, as far as known."""

    format: int
    source: str  # sha256 of the file and of how it is read
    rows: int
    model: str  # sha256 of its files
    width: int
    dtype: VectorDtype
    precision: str
    batch_tokens: int
    device: str
    threads: int  # sums may depend on their number


class ShardRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a shard."""

    start: int
    stop: int
    ids: list[str]
    bad: list[FailedRow]
    notes: list[EmbeddingNote]
    scale: list[float] | None  # for int8


class Shard(NamedTuple):
    """The rows of one window, as read back."""

    record: ShardRecord
    vectors: np.ndarray  # [N,columns] as stored
    sample: np.ndarray  # [S,D] float32, exact


class Shards:
    """The shards of a job in its folder."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder, self.job = folder, job
        self.plain = VectorFormat(job.dtype, job.width)  # without a scale

    def require_own(self) -> None:
        """Raise ConfigError if the folder has files that Seqloom did not write, because it is removed in the end."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        strays = [name for name in names if not OWN.fullmatch(name)]
        if strays:
            fix = "choose another name, or move the folder away"
            raise ConfigError(f"{self.folder} exists and has a file that Seqloom did not write: {min(strays)}", fix=fix)

    def is_begun(self) -> bool:
        """Return whether the folder has unfinished work of this job."""
        path = self.folder / JOB
        return path.is_file() and _read(path) == self.job

    def begin(self) -> int:
        """Return the number of finished rows; ConfigError if the folder belongs to another job."""
        path = self.folder / JOB
        if not path.exists():
            write_file(path, msgspec.json.encode(self.job))
        elif (there := _read(path)) != self.job:
            fix, other = f"give the same file and settings, or delete {self.folder}", differences(there, self.job)
            raise ConfigError(f"{self.folder} has unfinished work with other settings: {other}", fix=fix)
        done = 0  # the end of complete, consecutive shards; others are removed
        for start, folder in self._listed():
            stop = None
            if start == done:
                with suppress(DurableError, ValueError):  # it is incomplete
                    stop = self._shard(folder).record.stop
            if stop is None:
                remove_folder(folder)
            else:
                done = stop
        return done

    def _listed(self) -> list[tuple[int, Path]]:
        """Return the first row and the folder of each shard, in order."""
        return sorted(numbered(self.folder, PREFIX)[0])

    def add(self, made: WindowVectors, numbers: VectorFormat) -> None:
        """Write the rows of a window durably."""
        stop, scale = made.start + len(made.vectors), None if numbers.scale is None else numbers.scale.tolist()
        record = ShardRecord(made.start, stop, made.ids, made.bad, made.notes, scale)
        files = {
            SEGMENT: msgspec.json.encode(record),
            VECTORS: numbers.encoded(made.vectors).tobytes(),
            SAMPLE: made.exact.astype("<f4").tobytes(),
        }
        commit_folder(self.folder / f"{PREFIX}{made.start:012d}", files)

    def numbers(self) -> VectorFormat:
        """Return the vector format, with the scale of the first rows if they are done."""
        first = next(iter(self), None)
        if first is None or first.record.scale is None:
            return self.plain
        return self.plain._replace(scale=np.array(first.record.scale, np.float32))

    def __iter__(self) -> Iterator[Shard]:
        """Iterate over the shards in order, one in memory at a time."""
        return (self._shard(path) for _, path in self._listed())

    def _shard(self, path: Path) -> Shard:
        files = dict(read_folder(path))
        if files.keys() != {SEGMENT, VECTORS, SAMPLE}:
            raise DamagedError(f"{path}: this is not a shard; it has the files {', '.join(files)}", fix="delete it")
        record = msgspec.json.decode(files[SEGMENT], type=ShardRecord)
        shape = record.stop - record.start, self.plain.columns
        vectors = np.frombuffer(files[VECTORS], self.plain.numpy_dtype).reshape(shape)
        sample = np.frombuffer(files[SAMPLE], "<f4").reshape(-1, self.job.width)
        return Shard(record, vectors, sample)


def _read(path: Path) -> Job | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Job)
    except msgspec.MsgspecError:
        return None


DIFFERENCES = {
    "source": "different rows",
    "rows": "a different number of rows",
    "model": "a different model",
    "dtype": "--dtype",
}
DIFFERENCES |= {"precision": "--precision", "batch_tokens": "--batch-tokens", "device": "--device"}
DIFFERENCES |= {"threads": "a different number of threads (it was OMP_NUM_THREADS={})"}


def differences(there: Job | None, asked: Job) -> str:
    """Describe how two jobs differ."""
    if there is None:
        return "it was made by another version of Seqloom"
    then, now = msgspec.structs.asdict(there), msgspec.structs.asdict(asked)
    found = [word.format(then[name]) for name, word in DIFFERENCES.items() if then[name] != now[name]]
    return ", ".join(found) or "it was made by another version of Seqloom"


FileWriter = Callable[
    [Iterable[Shard], VectorFormat, int], Iterator[bytes]
]  # yields the bytes of a file with this many rows


class EmbeddingCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The card beside a file of vectors."""

    job: Job
    scale: list[float] | None
    bad: tuple[FailedRow, ...]
    notes: tuple[EmbeddingNote, ...]
    loss: QuantizationLoss | None
    sha256: str  # of the file of vectors


def card_of(out: Path) -> Path:
    """Return the path of the card of an output."""
    return out.with_name(f"{out.name}.json")


def read_card(out: Path) -> EmbeddingCard | None:
    """Read the card of an output; None if there is none that this version can read."""
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


def require_own_card(out: Path) -> None:
    """Raise ConfigError if a file that is not a card has the name of the card."""
    card = card_of(out)
    if not (card.exists() or card.is_symlink()) or read_card(out) is not None:
        return
    try:
        msgspec.json.decode(card.read_bytes(), type=_AnyCard)
    except (OSError, msgspec.MsgspecError):
        fix = "choose another name, or move it away"
        raise ConfigError(f"{card} exists and was not written by seqloom embed", fix=fix) from None
    fix = f"choose another name, or delete it and {out.name}"
    raise ConfigError(f"{card} was written by another version of Seqloom", fix=fix)


def npy(shards: Iterable[Shard], numbers: VectorFormat, rows: int) -> Iterator[bytes]:
    """Yield the bytes of a .npy file: the header, then the rows."""
    head = io.BytesIO()
    shape = (rows, numbers.columns)
    described = {"descr": np.lib.format.dtype_to_descr(numbers.numpy_dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    yield head.getvalue()
    for shard in shards:
        yield shard.vectors.tobytes()


def parquet(shards: Iterable[Shard], numbers: VectorFormat, _: int) -> Iterator[bytes]:
    """Yield the bytes of a .parquet file, one row group per shard."""
    with needing("data"):
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    scale = None if numbers.scale is None else numbers.scale.tolist()
    known = {"dtype": numbers.dtype, "width": str(numbers.width), "scale": msgspec.json.encode(scale).decode()}
    vector = pa.list_(pa.from_numpy_dtype(numbers.numpy_dtype), numbers.columns)
    schema = pa.schema([("id", pa.string()), ("vector", vector)], metadata=known)
    sink = ChunkBuffer()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd", use_dictionary=False) as writer:
        for shard in shards:
            missing = np.zeros(len(shard.vectors), bool)
            missing[[bad.row - 1 - shard.record.start for bad in shard.record.bad]] = True
            flat = pa.array(shard.vectors.reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, type=vector, mask=pa.array(missing))
            writer.write_table(pa.table([pa.array(shard.record.ids, pa.string()), vectors], schema=schema))
            yield sink.drained()
    yield sink.drained()


FORMS: dict[str, FileWriter] = {".npy": npy, ".parquet": parquet}


def writer_for(out: Path) -> FileWriter:
    """Return the writer for a file extension; ConfigError, before any work, if the file cannot be written."""
    if out.suffix.lower() not in FORMS:
        fix = f"name it {out.with_suffix('.npy').name} or {out.with_suffix('.parquet').name}"
        raise ConfigError(f"{out}: vectors can be saved as {' or '.join(FORMS)}", fix=fix)
    if out.suffix.lower() == ".parquet":
        with needing("data"):
            import pyarrow.parquet  # noqa: F401
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: the folder {out.parent} does not exist", fix="create it, or give another path")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder", fix="give the name of a file")
    return FORMS[out.suffix.lower()]
