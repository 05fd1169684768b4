"""What a power cut, a full disk and a careless writer do to files: the machinery behind tests/durable.

A recorded trace of operations is replayed on a model of a disk that promises no more than POSIX does:

    the bytes of a file      are kept for sure after its own sync; before, any part of the change may be
    the names in a folder    are kept for sure after the folder's own sync; before, any subset of the changes may be
    one rename               happens wholly or not at all

`crash_states` gives every tree that may be found after a cut at any moment.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from seqloom.files.disk import RealFiles

Tree = dict[str, "bytes | Tree"]
ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS]


class QuickFiles(RealFiles):
    """The real layer without the waiting: nobody pulls the plug while a test runs. Syncs come one after the other."""

    def sync(self, handle: int) -> None:
        pass

    @contextmanager
    def syncing(self) -> Iterator[Callable[[int], None]]:
        yield self.sync

    def sync_folder(self, path: Path) -> None:
        pass


class Recorder(QuickFiles):
    """A layer that works and writes down what it did; `forgets` names the operations that do nothing: the twin."""

    def __init__(self, forgets: Callable[[str, Path], bool]) -> None:
        self.trace: list[tuple] = []
        self.forgets = forgets
        self._paths: dict[int, Path] = {}

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self.trace.append(("make_folder", path))

    def create(self, path: Path, mode: int) -> int:
        handle = super().create(path, mode)
        self._paths[handle] = path
        self.trace.append(("create", path))
        return handle

    def open_to_append(self, path: Path) -> int:
        return self._opened(path, super().open_to_append)

    def open_to_hold(self, path: Path) -> int:
        return self._opened(path, super().open_to_hold)

    def _opened(self, path: Path, opening: Callable[[Path], int]) -> int:
        new = not path.exists()
        handle = opening(path)
        self._paths[handle] = path
        if new:
            self.trace.append(("create", path))
        return handle

    def write(self, handle: int, data: memoryview) -> None:
        super().write(handle, data)
        self.trace.append(("write", self._paths[handle], bytes(data)))

    def truncate(self, handle: int, size: int) -> None:
        super().truncate(handle, size)
        self.trace.append(("truncate", self._paths[handle], size))

    def sync(self, handle: int) -> None:
        if not self.forgets("sync", self._paths[handle]):
            self.trace.append(("sync", self._paths[handle]))

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self.trace.append(("rename", old, new))

    def remove_file(self, path: Path) -> None:
        super().remove_file(path)
        self.trace.append(("remove", path))

    def remove_folder(self, path: Path) -> None:
        super().remove_folder(path)
        self.trace.append(("remove", path))

    def sync_folder(self, path: Path) -> None:
        if not self.forgets("sync_folder", path):
            self.trace.append(("sync_folder", path))


class FailingFiles(QuickFiles):
    """A layer whose operation number `at` fails with `code`, a write after half of its bytes; for good if `lasting`."""

    def __init__(self, at: int, code: int, *, lasting: bool = False) -> None:
        self.at, self.code, self.lasting = at, code, lasting
        self.count = 0
        self.failed = False

    def _strike(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.count += 1
        if self.count == self.at or (self.failed and self.lasting):
            self.failed = True
            meanwhile()
            raise OSError(self.code, os.strerror(self.code))

    def make_folder(self, path: Path) -> None:
        self._strike()
        super().make_folder(path)

    def create(self, path: Path, mode: int) -> int:
        self._strike()
        return super().create(path, mode)

    def open_to_append(self, path: Path) -> int:
        self._strike()
        return super().open_to_append(path)

    def open_to_hold(self, path: Path) -> int:
        self._strike()
        return super().open_to_hold(path)

    def write(self, handle: int, data: memoryview) -> None:
        self._strike(lambda: os.write(handle, data[: len(data) // 2]) and None)
        super().write(handle, data)

    def truncate(self, handle: int, size: int) -> None:
        self._strike()
        super().truncate(handle, size)

    def sync(self, handle: int) -> None:
        self._strike()
        super().sync(handle)

    def close(self, handle: int) -> None:
        super().close(handle)  # a close that reports an error has closed all the same
        self._strike()

    def rename(self, old: Path, new: Path) -> None:
        self._strike()
        super().rename(old, new)

    def remove_file(self, path: Path) -> None:
        self._strike()
        super().remove_file(path)

    def remove_folder(self, path: Path) -> None:
        self._strike()
        super().remove_folder(path)

    def sync_folder(self, path: Path) -> None:
        self._strike()
        super().sync_folder(path)


@dataclass
class _File:
    synced: bytes = b""
    now: bytes = b""

    def variants(self) -> list[bytes]:
        """What a cut may leave: as synced, three cuts of the change, zeros instead of all or half of it, whole."""
        if self.synced == self.now:
            return [self.now]
        pairs = enumerate(zip(self.synced, self.now, strict=False))
        same = next((i for i, (a, b) in pairs if a != b), min(len(self.synced), len(self.now)))
        kept, change = self.now[:same], self.now[same:]
        half = len(change) // 2
        cuts = [change[:1], change[:half], change[:-1], bytes(len(change)), change[:half] + bytes(len(change) - half)]
        return list(dict.fromkeys([self.synced, *(kept + cut for cut in cuts), self.now]))


@dataclass
class _Folder:
    synced: dict[str, "_File | _Folder"] = field(default_factory=dict)
    changes: list[dict[str, "_File | _Folder | None"]] = field(default_factory=list)

    def after(self, changes: Sequence[dict[str, "_File | _Folder | None"]]) -> dict[str, "_File | _Folder"]:
        names: dict[str, _File | _Folder | None] = dict(self.synced)
        for change in changes:
            names |= change
        return {name: node for name, node in names.items() if node is not None}

    def variants(self) -> Iterator[Tree]:
        for chosen in product([True, False], repeat=len(self.changes)):
            names = self.after([change for change, done in zip(self.changes, chosen, strict=True) if done])
            for contents in product(*(node.variants() for node in names.values())):
                yield dict(zip(names, contents, strict=True))


class _Disk:
    """The model: a tree in which every node knows what is synced and what is only asked for."""

    def __init__(self, root: Path, tree: Tree) -> None:
        self.root_path = root
        self.root = self._settled(tree)

    def _settled(self, tree: Tree) -> _Folder:
        nodes = {k: self._settled(v) if isinstance(v, dict) else _File(v, v) for k, v in tree.items()}
        return _Folder(nodes)

    def find(self, path: Path) -> "_File | _Folder":
        node: _File | _Folder = self.root
        for part in path.relative_to(self.root_path).parts:
            node = node.after(node.changes)[part]
        return node

    def change(self, folder: Path, names: dict[str, "_File | _Folder | None"]) -> None:
        self.find(folder).changes.append(names)

    def apply(self, operation: str, path: Path, *details) -> None:
        if operation == "make_folder":
            self.change(path.parent, {path.name: _Folder()})
        elif operation == "create":
            self.change(path.parent, {path.name: _File()})
        elif operation == "write":
            self.find(path).now += details[0]
        elif operation == "truncate":
            self.find(path).now = self.find(path).now[: details[0]]
        elif operation == "sync":
            self.find(path).synced = self.find(path).now
        elif operation == "rename":
            assert path.parent == details[0].parent
            self.change(path.parent, {path.name: None, details[0].name: self.find(path)})
        elif operation == "remove":
            self.change(path.parent, {path.name: None})
        elif operation == "sync_folder":
            folder = self.find(path)
            folder.synced, folder.changes = folder.after(folder.changes), []
        else:
            raise AssertionError(operation)


def _frozen(tree: Tree) -> tuple:
    return tuple(sorted((name, _frozen(node) if isinstance(node, dict) else node) for name, node in tree.items()))


def crash_states(root: Path, before: Tree, trace: Sequence[tuple], since: int = 0) -> Iterator[tuple[Tree, bool]]:
    """Every different tree a power cut may leave, with whether all operations had returned by then.

    `since` leaves out cuts before that operation: without syncs the states are too many to see them all.
    """
    disk, seen = _Disk(root, before), set()
    for done in range(len(trace) + 1):
        if done:
            disk.apply(*trace[done - 1])
        for tree in disk.root.variants() if done >= since else ():
            key = (_frozen(tree), done == len(trace))
            if key not in seen:
                seen.add(key)
                yield tree, done == len(trace)


def read_tree(root: Path) -> Tree:
    """The folder as a value."""
    return {path.name: read_tree(path) if path.is_dir() else path.read_bytes() for path in root.iterdir()}


def write_tree(root: Path, tree: Tree) -> None:
    """The value as a folder."""
    root.mkdir()
    for name, node in tree.items():
        if isinstance(node, dict):
            write_tree(root / name, node)
        else:
            (root / name).write_bytes(node)
