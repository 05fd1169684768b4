"""Crash-safe files: the only package of Seqloom that writes to disk. A file is either complete or absent.

After a power cut, any part of the data that was written but not synced may be lost. So nothing is changed in place: new
data is written next to the old data, synced, and moved into place by one rename, which file systems do atomically:

    one file                                   one folder, committed by its manifest

    .config.toml.tmp-5f1c      write, sync     .step-000020.partial-93ab/
          │                                      ├── model.safetensors     write, sync
          │ rename                               ├── trainer.json          write, sync
          ▼                                      └── manifest.json         last: size and sha256 of each; sync
    config.toml                                     │ sync the folder (its list of names)
          │                                         │ rename
          ▼                                         ▼
    sync the folder                            step-000020/ ───▶ sync the parent: only now it is saved

    removing a folder:   step-000010/ ── rename ──▶ .step-000010.trash-77e0/ ── delete file by file
    replacing a folder:  model/ ── rename ──▶ .model.old-51c7/, new one ── rename ──▶ model/, sync, delete the old one

A crash before the rename leaves the old state and a hidden leftover, which `sweep` removes. A crash after it leaves the
new state. After a crash between the two renames of a replacement, `recover` restores the old folder. Disks also
corrupt data, so readers check all checksums: `verify_folder`, `read_file_of`, `read_folder`, `newest_verified`.

    disk.py      operations that change the disk, their errors, atomic writes of one file, fail points for tests
    folders.py   write-once folders with a manifest: written in one call, appended to, shared by processes, or replacing
                 another; the newest numbered folder that verifies; retention
    jsonl.py     append-only JSON lines with checksums; the one file that grows, so its last line may be torn
    lock.py      the lock of a folder in which one process writes for hours
    layouts.py   the names of all files in a run folder and a model folder
    tensors.py   tensors to bytes and back

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

from seqloom.files.disk import make_folder, remove_files, write_file, write_files
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
    "write_files",
]
