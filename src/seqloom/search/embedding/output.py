"""How vectors are kept: as they are or in fewer bits, in a folder of unfinished work, and in the file made of it.

    float32   4 bytes a number    as computed
    float16   2                   rounded to 11 bits
    int8      1                   round(x / s), s one number for each dimension: the largest |x| of the first rows / 127
    binary    1/8                 whether x > 0, eight to a byte, the first one in the highest bit

What lies beyond the scale of int8 is cut to it. What is lost, by fewer bits or by computing in whole numbers, is
measured on rows of the very file: *cosine* is the mean of |cos(a, b) - cos(a', b')| over random pairs of the sample, a'
what is kept of a; *recall* is how many of the 10 nearest of a row in the sample are still among its 10 nearest, equal
ones counting as one.

The file is made of the segments one after the other; memory is that of one segment.

    .npy       [rows, columns], what numpy.load reads; a row without a vector is NaN, in int8 and binary zeros
    .parquet   id (the name that the data gives a row, or its line) and vector, a list of fixed size; null without one

Beside it stands a card, `vectors.npy.json`: what was asked, the scale of int8, the rows without a vector, what was
noticed, and what was lost. The scale is in the metadata of a parquet file too.

The folder of unfinished work beside the output: what was asked, and a committed folder for each window that is done.

    vectors.npy.work/
      ├── job.json               what was asked: another job is refused here
      ├── .lock                  one process at a time
      ├── rows-000000000000/     vectors.bin, sample.bin, segment.json, manifest.json
      └── rows-000000002048/

When a process dies, the windows that are committed stay; one that is damaged is made again, with all behind it.
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
from seqloom.search.documents import Drained
from seqloom.search.embedding.windows import Bad, Note, WindowVectors

Kind = Literal["float32", "float16", "int8", "binary"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STORED = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|u1"}
LARGEST = 127


class Numbers(NamedTuple):
    """A way to keep vectors of one width."""

    kind: Kind
    width: int
    scale: np.ndarray | None = None  # [D] float32 of int8

    @property
    def dtype(self) -> np.dtype:
        """The type of what is kept, the same on every machine."""
        return np.dtype(STORED[self.kind])

    @property
    def columns(self) -> int:
        """How many numbers, or bytes of bits, a row has."""
        return -(-self.width // 8) if self.kind == "binary" else self.width

    @property
    def is_fitted(self) -> bool:
        """Whether vectors can be kept: there is a scale, or none is needed."""
        return self.kind != "int8" or self.scale is not None

    def fitted(self, vectors: np.ndarray) -> "Numbers":
        """The same with the scale of these vectors [N,D], where one is needed and there is none."""
        if self.is_fitted:
            return self
        largest = np.nan_to_num(np.abs(vectors)).max(axis=0, initial=0.0)
        return self._replace(scale=np.where(largest > 0, largest, 1).astype(np.float32) / np.float32(LARGEST))

    def encoded(self, vectors: np.ndarray) -> np.ndarray:
        """[N,columns] what is kept of vectors [N,D].

        >>> Numbers("binary", 3).encoded(np.array([[0.5, -1.0, 2.0]])).tolist()
        [[160]]
        """
        if self.kind == "binary":
            return np.packbits(vectors > 0, axis=1)
        if self.kind == "int8":
            whole: np.ndarray = np.rint(np.nan_to_num(vectors / self._scale))
            return whole.clip(-LARGEST, LARGEST).astype(self.dtype)
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there; the loss says so
            return vectors.astype(self.dtype)

    def decoded(self, kept: np.ndarray) -> np.ndarray:
        """[N,D] float32 vectors again, as near as what is kept allows; bits are 1 and -1."""
        if self.kind == "binary":
            return np.unpackbits(kept, axis=1, count=self.width).astype(np.float32) * 2 - 1
        return kept.astype(np.float32) * self._scale if self.kind == "int8" else kept.astype(np.float32)

    @property
    def _scale(self) -> np.ndarray:
        assert self.scale is not None, "int8 is fitted before anything is kept"
        return self.scale


def require_kind(name: str) -> Kind:
    """The kind of this name; ConfigError if there is none."""
    for kind in KINDS:
        if kind == name:
            return kind
    raise ConfigError(f"there are no vectors in '{name}'", fix=did_you_mean(name, KINDS))


SAMPLE_ROWS = 1_000  # spread over the file
PAIRS = 10_000
NEAREST = 10


class QuantizationLoss(NamedTuple):
    """What was lost, on so many rows."""

    rows: int
    cosine: float
    recall: float


def sampled(rows: int, start: int, stop: int) -> np.ndarray:
    """The numbers from `start` to before `stop` that are in the sample of all rows, evenly spread.

    >>> sampled(5, 0, 3).tolist(), sampled(3_000, 0, 10).tolist()
    ([0, 1, 2], [0, 3, 6, 9])
    """
    count = min(rows, SAMPLE_ROWS)
    chosen = np.arange(count) * rows // max(1, count)
    return chosen[(chosen >= start) & (chosen < stop)]


def measured(exact: np.ndarray, kept: np.ndarray) -> QuantizationLoss | None:
    """What vectors [N,D] lose, given what is kept of each [N,D]; None for fewer than two vectors."""
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
        np.fill_diagonal(cosines, -np.inf)  # a row is not its own neighbour
    chosen = np.argpartition(-found, count - 1, axis=1)[:, :count]
    least = -np.partition(-true, count - 1, axis=1)[:, count - 1 : count]
    recall = float((np.take_along_axis(true, chosen, axis=1) >= least - 1e-9).mean())
    return QuantizationLoss(len(exact), cosine, recall)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length one in float64; what is not finite, and what has no length, is zero."""
    finite = np.nan_to_num(vectors.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(finite, axis=1, keepdims=True)
    return finite / np.where(lengths > 0, lengths, 1)


FORMAT = 1
JOB, PREFIX = "job.json", "rows-"
OWN = re.compile(r"\.lock|job\.json|rows-\d{12}|\.(job\.json|rows-\d{12})\..+")  # the names in the folder
SEGMENT, VECTORS, SAMPLE = "segment.json", "vectors.bin", "sample.bin"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that decides the bytes of the output, as far as it can be known."""

    format: int
    source: str  # sha256 of the file and of what is read of it
    rows: int
    model: str  # sha256 over its files
    width: int
    kept_as: Kind
    precision: str
    budget: int
    device: str
    threads: int  # that share a sum


class SegmentRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a segment says of itself."""

    start: int
    stop: int
    ids: list[str]
    bad: list[Bad]
    notes: list[Note]
    scale: list[float] | None  # of int8


class Segment(NamedTuple):
    """Some rows that are done, as they are read back."""

    told: SegmentRecord
    vectors: np.ndarray  # [N,columns] as they are kept
    sample: np.ndarray  # [S,D] float32, exact


class Segments:
    """The segments of one job in its folder."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder, self.job = folder, job
        self.plain = Numbers(job.kept_as, job.width)  # without a scale

    def require_own(self) -> None:
        """Raise ConfigError for a folder that holds anything but work of ours: it is removed in the end."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        strays = [name for name in names if not OWN.fullmatch(name)]
        if strays:
            fix = "choose another name, or move the folder away"
            raise ConfigError(f"{self.folder} is there, and {min(strays)} in it is not ours", fix=fix)

    def is_begun(self) -> bool:
        """Whether the folder holds work of this very job."""
        path = self.folder / JOB
        return path.is_file() and _read(path) == self.job

    def begin(self) -> int:
        """How many rows are done already; ConfigError if the folder is that of another job."""
        path = self.folder / JOB
        if not path.exists():
            write_file(path, msgspec.json.encode(self.job))
        elif (there := _read(path)) != self.job:
            fix, other = f"give the same file and settings, or delete {self.folder}", differences(there, self.job)
            raise ConfigError(f"{self.folder} holds unfinished work of another kind: {other}", fix=fix)
        done = 0  # where the segments end that are whole and follow one another; what is behind goes
        for start, folder in self._listed():
            stop = None
            if start == done:
                with suppress(DurableError, ValueError):  # it is not whole
                    stop = self._segment(folder).told.stop
            if stop is None:
                remove_folder(folder)
            else:
                done = stop
        return done

    def _listed(self) -> list[tuple[int, Path]]:
        """The first rows and the folders of all segments, in order."""
        return sorted(numbered(self.folder, PREFIX)[0])

    def add(self, made: WindowVectors, numbers: Numbers) -> None:
        """Keep the rows of a window; when this returns, they are kept for good."""
        stop, scale = made.start + len(made.vectors), None if numbers.scale is None else numbers.scale.tolist()
        told = SegmentRecord(made.start, stop, made.ids, made.bad, made.notes, scale)
        files = {
            SEGMENT: msgspec.json.encode(told),
            VECTORS: numbers.encoded(made.vectors).tobytes(),
            SAMPLE: made.exact.astype("<f4").tobytes(),
        }
        commit_folder(self.folder / f"{PREFIX}{made.start:012d}", files)

    def numbers(self) -> Numbers:
        """How vectors are kept: with the scale of the first rows, if they are done."""
        first = next(iter(self), None)
        if first is None or first.told.scale is None:
            return self.plain
        return self.plain._replace(scale=np.array(first.told.scale, np.float32))

    def __iter__(self) -> Iterator[Segment]:
        """The segments in the order of their rows, one in memory at a time."""
        return (self._segment(path) for _, path in self._listed())

    def _segment(self, path: Path) -> Segment:
        files = dict(read_folder(path))
        if files.keys() != {SEGMENT, VECTORS, SAMPLE}:
            raise DamagedError(f"{path}: expected the files of a segment, found {', '.join(files)}", fix="delete it")
        told = msgspec.json.decode(files[SEGMENT], type=SegmentRecord)
        shape = told.stop - told.start, self.plain.columns
        vectors = np.frombuffer(files[VECTORS], self.plain.dtype).reshape(shape)
        sample = np.frombuffer(files[SAMPLE], "<f4").reshape(-1, self.job.width)
        return Segment(told, vectors, sample)


def _read(path: Path) -> Job | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Job)
    except msgspec.MsgspecError:
        return None


WORDS = {"source": "other rows", "rows": "another number of rows", "model": "another model", "kept_as": "--as"}
WORDS |= {"precision": "--precision", "budget": "--budget", "device": "--device"}
WORDS |= {"threads": "another number of threads, then OMP_NUM_THREADS={}"}


def differences(there: Job | None, asked: Job) -> str:
    """What is not the same in two jobs, for people."""
    if there is None:
        return "it is of another version"
    then, now = msgspec.structs.asdict(there), msgspec.structs.asdict(asked)
    found = [word.format(then[name]) for name, word in WORDS.items() if then[name] != now[name]]
    return ", ".join(found) or "it is of another version"


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


def require_own_card(out: Path) -> None:
    """Raise ConfigError for a file where the card will stand that is no card of ours."""
    card = card_of(out)
    if not (card.exists() or card.is_symlink()) or read_card(out) is not None:
        return
    try:
        msgspec.json.decode(card.read_bytes(), type=_AnyCard)
    except (OSError, msgspec.MsgspecError):
        fix = "choose another name, or move it away"
        raise ConfigError(f"{card} is there, and is no card of ours", fix=fix) from None
    fix = f"choose another name, or delete it and {out.name}"
    raise ConfigError(f"{card} is there, the card of another version of Seqloom", fix=fix)


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
    sink = Drained()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd", use_dictionary=False) as writer:
        for segment in segments:
            missing = np.zeros(len(segment.vectors), bool)
            missing[[bad.row - 1 - segment.told.start for bad in segment.told.bad]] = True
            flat = pa.array(segment.vectors.reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, type=vector, mask=pa.array(missing))
            writer.write_table(pa.table([pa.array(segment.told.ids, pa.string()), vectors], schema=schema))
            yield sink.drained()
    yield sink.drained()


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
