"""The folder of unfinished work beside the output: what was asked, and a committed folder for each window that is done.

    vectors.npy.work/
      ├── job.json               what was asked: another job is refused here
      ├── .lock                  one process at a time
      ├── rows-000000000000/     vectors.bin, sample.bin, segment.json, manifest.json
      └── rows-000000002048/

When a process dies, the windows that are committed stay; one that is damaged is made again, with all behind it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from seqloom.errors import ConfigError, DamagedError, DurableError
from seqloom.files.disk import write_file
from seqloom.files.folders import commit_folder, read_folder, remove_folder
from seqloom.files.numbered_folders import numbered
from seqloom.search.embedding.quantization import Kind, Numbers
from seqloom.search.embedding.windows import Bad, Note, WindowVectors

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

    def require_own(self) -> None:
        """Raise ConfigError for a folder that holds anything but work of ours: it is removed in the end."""
        strays = (
            [path.name for path in self.folder.iterdir() if not OWN.fullmatch(path.name)]
            if self.folder.is_dir()
            else []
        )
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
            fix = f"give the same file and settings, or delete {self.folder}"
            raise ConfigError(
                f"{self.folder} holds unfinished work of another kind: {differences(there, self.job)}", fix=fix
            )
        return self._whole()

    def _whole(self) -> int:
        """Where the segments end that are whole and follow one another; what is behind goes."""
        done = 0
        for start, path in self._listed():
            stop = self._stop(path) if start == done else None
            if stop is None:
                remove_folder(path)
            else:
                done = stop
        return done

    def _listed(self) -> list[tuple[int, Path]]:
        """The first rows and the folders of all segments, in order."""
        return sorted(numbered(self.folder, PREFIX)[0])

    def _stop(self, path: Path) -> int | None:
        """Where a segment ends; None for one that is not whole."""
        try:
            return self._segment(path).told.stop
        except (DurableError, ValueError):
            return None

    def add(self, made: WindowVectors, numbers: Numbers) -> None:
        """Nothing; when it returns, the rows are kept for good."""
        told = SegmentRecord(
            made.start,
            made.start + len(made.vectors),
            made.ids,
            made.bad,
            made.notes,
            None if numbers.scale is None else numbers.scale.tolist(),
        )
        files = {
            SEGMENT: msgspec.json.encode(told),
            VECTORS: numbers.encoded(made.vectors).tobytes(),
            SAMPLE: made.exact.astype("<f4").tobytes(),
        }
        commit_folder(self.folder / f"{PREFIX}{made.start:012d}", files)

    def numbers(self) -> Numbers:
        """How vectors are kept: with the scale of the first rows, if they are done."""
        plain = Numbers(self.job.kept_as, self.job.width)
        first = next(iter(self), None)
        if first is None or first.told.scale is None:
            return plain
        return plain._replace(scale=np.array(first.told.scale, np.float32))

    def __iter__(self) -> Iterator[Segment]:
        """The segments in the order of their rows, one in memory at a time."""
        return (self._segment(path) for _, path in self._listed())

    def _segment(self, path: Path) -> Segment:
        files = dict(read_folder(path))
        if files.keys() != {SEGMENT, VECTORS, SAMPLE}:
            raise DamagedError(f"{path}: expected the files of a segment, found {', '.join(files)}", fix="delete it")
        told = msgspec.json.decode(files[SEGMENT], type=SegmentRecord)
        plain = Numbers(self.job.kept_as, self.job.width)
        vectors = np.frombuffer(files[VECTORS], plain.dtype).reshape(told.stop - told.start, plain.columns)
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
