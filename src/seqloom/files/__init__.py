"""Files that are whole or not there: the only module of Seqloom that writes to a disk.

A power cut may keep any part of what was written and not yet synced. So nothing is ever changed in place; what is new
grows beside what is old, is synced, and takes over by one rename, which a file system does wholly or not at all:

    one file                                   one folder, committed by its manifest

    .config.toml.tmp-5f1c      write, sync     .step-000020.partial-93ab/
          │                                      ├── model.safetensors     write, sync
          │ rename                               ├── trainer.json          write, sync
          ▼                                      └── manifest.json         last: size and sha256 of each; sync
    config.toml                                     │ sync the folder (its list of names)
          │                                         │ rename
          ▼                                         ▼
    sync the folder                            step-000020/ ───▶ sync the parent: only now it is saved

    a folder that goes: step-000010/ ── rename ──▶ .step-000010.trash-77e0/ ── delete piece by piece
    one that is replaced: model/ ── rename ──▶ .model.old-51c7/, new one ── rename ──▶ model/, sync, delete the old one

A crash before the rename leaves the old state and a hidden leftover, which `sweep` removes; a crash after it leaves the
new state. Between the two renames of a replacement the name is nobody's, and `recover` gives it back. Disks also rot,
so readers believe nothing but the sums: `verify_folder`, `read_file_of`, `read_folder`, `newest_verified`.

    disk.py      the operations that change a disk, their errors, one file written whole; fail points for tests
    folders.py   write-once folders with a manifest: at once, growing, shared by processes, or replacing another; of
                 numbered ones the newest that verifies, and retention
    jsonl.py     append-only JSON lines with a sum each; the one file that grows, so its last line may be torn
    lock.py      the lock of a folder in which one process writes for hours
    layouts.py   what a run folder and a model folder hold: every name once
    tensors.py   tensors as bytes and back

>>> import tempfile
>>> from pathlib import Path
>>> from seqloom.files import commit_folder, newest_verified, read_file_of
>>> with tempfile.TemporaryDirectory() as runs:
...     commit_folder(Path(runs, "step-000010"), {"weights.bin": b"abc"}).files["weights.bin"].size
...     newest = newest_verified(Path(runs)).step
...     read_file_of(newest.path, "weights.bin")
3
b'abc'
"""

from seqloom.files.disk import make_folder, remove_files, write_file
from seqloom.files.folders import (
    begin_shared,
    commit_folder,
    drop_shared,
    grow_folder,
    newest_verified,
    numbered,
    prune,
    put_shared,
    read_file_of,
    read_folder,
    read_manifest,
    recover,
    remove_folder,
    replace_folder,
    seal_shared,
    verify_folder,
)
from seqloom.files.jsonl import append_line, append_lines, read_lines
from seqloom.files.lock import alone, hold

__all__ = [
    "alone",
    "append_line",
    "append_lines",
    "begin_shared",
    "commit_folder",
    "drop_shared",
    "grow_folder",
    "hold",
    "make_folder",
    "newest_verified",
    "numbered",
    "prune",
    "put_shared",
    "read_file_of",
    "read_folder",
    "read_lines",
    "read_manifest",
    "recover",
    "remove_files",
    "remove_folder",
    "replace_folder",
    "seal_shared",
    "verify_folder",
    "write_file",
]
