"""Whether the files of a known set hold what the registry says: a score under its name must be a score on it.

A packed file is unpacked once more for it, about a tenth of a second for the largest set.
"""

import hashlib
from pathlib import Path

from seqloom.config.data import DataConfig
from seqloom.data.opening.compressed import chunks_of
from seqloom.data.problems import Ledger, Place
from seqloom.data.sources.registry import SOURCES
from seqloom.data.sources.shelves import Shelves, usual_shelves
from seqloom.data.sources.source import Source, SourceFile


def require_known(name: str, config: DataConfig, ledger: Ledger, shelves: Shelves | None = None) -> None:
    """Refuse files of a named set whose size or sha256 is another one; files of the user's own are not looked at."""
    source, where = SOURCES[name], shelves or usual_shelves()
    used = {*config.train, *config.dev, *config.test}
    for file in source.every_file():
        path = where.find(file)
        if path is not None and str(path) in used:
            require_content(path, file, source, where, ledger)


def require_content(path: Path, file: SourceFile, source: Source, shelves: Shelves, ledger: Ledger) -> None:
    """Refuse a file that does not hold, unpacked, what the registry says."""
    size, digest = 0, hashlib.sha256()
    for chunk in chunks_of(path, Ledger(ledger.bad_rows)):
        size += len(chunk)
        digest.update(chunk)
        if size > file.size:
            break
    if (size, digest.hexdigest()) == (file.size, file.sha256):
        return
    found = "more" if size > file.size else f"{size:,} bytes, sha256 {digest.hexdigest()[:12]}"
    expected = f"{file.size:,} bytes, sha256 {file.sha256[:12]}"
    text = f"this is not {file.plain} of the set '{source.name}': expected {expected}, found {found}"
    ledger.bad_file("source.changed", text, Place(str(path)), _cure(path, source, shelves))


def _cure(path: Path, source: Source, shelves: Shelves) -> str:
    """Our own copy can be fetched anew; a folder of the user's is only read, and comes first."""
    if path.is_relative_to(shelves.own) and source.has_addresses():
        return f"run `seqloom data get {source.name}`, or give the path to read it as a file of your own"
    return "replace it or take it away, or give the path to read it as a file of your own"
