"""Which files a configuration names, part by part, and in which state they are: nothing of them is read as examples."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seqloom.config.data import DataConfig, Part
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import fingerprint, is_file, is_folder, refuse_unreadable, state_of

Files = dict[Part, tuple[Path, ...]]


def files_of(config: DataConfig) -> Files:
    """The files of each part that was given."""
    given: dict[Part, tuple[str, ...]] = {"train": config.train, "dev": config.dev, "test": config.test}
    return {part: tuple(map(Path, paths)) for part, paths in given.items() if paths}


def stored(files: Files) -> Iterator[Path]:
    """Every file that is given, those in folders one by one."""
    given = (path for group in files.values() for path in group)
    paths = (inner for path in given for inner in (sorted(path.rglob("*")) if is_folder(path) else [path]))
    return filter(is_file, paths)


def states(paths: Iterable[Path]) -> dict[Path, str]:
    """What shows that a file was written since, without reading it."""
    return {path: state_of(path) for path in paths}


class FileSums:
    """Size and sha256 of files; one is read again only if its state says that somebody wrote it."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], list[Any]]] = {}  # the state before it was read; what was found

    def of(self, paths: Iterable[Path]) -> dict[str, Any]:
        """Size and sha256 of every file."""
        return {str(path): self._sum(path) for path in paths}

    def _sum(self, path: Path) -> list[Any]:
        try:
            status, known = path.stat(), self._known.get(path)
            state = (status.st_size, status.st_mtime_ns, status.st_ino)
            if known is None or known[0] != state:
                known = self._known[path] = state, list(fingerprint(path))
            return known[1]
        except OSError as error:
            refuse_unreadable(path, error, Ledger())


def require_apart(files: Files, ledger: Ledger) -> None:
    """Refuse a file that is given as two parts."""
    seen: dict[Path, Part] = {}
    for part, paths in files.items():
        for path in paths:
            before = seen.setdefault(path.resolve(), part)
            if before != part:
                text = f"the same file is given as {before} and as {part}"
                ledger.bad_file("data.same_file", text, Place(str(path)), "give another file, or none to draw a part")
