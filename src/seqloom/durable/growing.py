"""A folder whose files grow side by side, chunk by chunk, and that is committed like any other: for data beyond memory.

`commit_folder` writes one file after the other, which suits what is at hand. Columns of data come a few rows at a
time, all columns at once; so here all files stay open, each with its running sum, and memory holds one chunk.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqloom.durable.disk import REAL_FILES, Chunk, FileLayer, disk_errors, pieces
from seqloom.durable.failing import reached
from seqloom.durable.folders import FileEntry, Manifest, committing, require_name, seal
from seqloom.errors import DurableError


class _GrowingFile:
    """An open file, and the size and sum of what it holds."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self.files, self.size, self.digest = files, 0, hashlib.sha256()
        self.handle = files.create(path, 0o666)

    def append(self, chunk: Chunk) -> None:
        for piece in pieces(chunk):
            self.files.write(self.handle, piece)
            self.digest.update(piece)
            self.size += len(piece)

    def entry(self) -> FileEntry:
        return FileEntry(self.size, self.digest.hexdigest())


class GrowingFolder:
    """The files of a folder that is not committed yet."""

    def __init__(self, path: Path, partial: Path, files: FileLayer) -> None:
        self._path, self._partial, self._layer = path, partial, files
        self._files: dict[str, _GrowingFile] = {}

    def append(self, name: str, chunk: Chunk) -> None:
        """Nothing; the file of this name, a new one if there is none, has these bytes at its end."""
        require_name(name, self._path)
        if "/" in name:
            raise DurableError(f"{name!r} cannot grow in {self._path}", fix="name files without '/' here")
        with disk_errors("grow the folder", self._path):
            if name not in self._files:
                self._files[name] = _GrowingFile(self._partial / name, self._layer)
            self._files[name].append(chunk)
            reached("index-half")

    def _seal(self) -> Manifest:
        with disk_errors("commit the folder", self._path):
            for file in self._files.values():
                self._layer.sync(file.handle)
            self._close()
            entries = {name: file.entry() for name, file in self._files.items()}
            return seal(self._partial, self._path.name, entries, self._layer)

    def _close(self) -> None:
        """Close every file, also when closing one of them fails: the first failure is told."""
        failure = None
        for file in self._files.values():
            handle, file.handle = file.handle, -1
            try:
                if handle >= 0:
                    self._layer.close(handle)
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


@contextmanager
def grow_folder(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[GrowingFolder]:
    """A folder to append to; it is committed when the block ends, and then a power cut cannot take it back.

    If the block raises, nothing is left. Whatever exists at `path` is refused, as `commit_folder` does.

    >>> import tempfile
    >>> from seqloom.durable.folders import read_file_of
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with grow_folder(Path(parent, "store")) as folder:
    ...         for number in range(3):
    ...             folder.append("numbers", b"%d " % number)
    ...             folder.append("squares", b"%d " % number**2)
    ...     read_file_of(Path(parent, "store"), "squares")
    b'0 1 4 '
    """
    with committing(path, files) as partial:
        folder = GrowingFolder(path, partial, files)
        try:
            yield folder
            folder._seal()
        finally:
            with suppress(OSError):  # when all went well they are closed by now
                folder._close()


@contextmanager
def alone(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[None]:
    """A block in which one process at a time is at work on `path`; others wait, and a dead one holds up nobody.

    The lock is on an empty hidden file beside it, `.name.lock`, which stays.
    """
    lock = path.with_name(f".{path.name}.lock")
    with disk_errors("lock", lock):
        handle = files.open_to_append(lock)
    try:
        yield
    finally:
        with suppress(OSError):  # a close that reports an error has closed, and unlocked, all the same
            files.close(handle)
