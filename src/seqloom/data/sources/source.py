"""What is known about a named data set: its files and their sums, how they are read, and whose they are.

A set is not part of Seqloom: we hold its description. A variant reads the files of another set in its own way, so files
are named by their path inside a folder of sets, `sst2/train.txt.xz`, whatever the variant is called.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import AnySplit, DataConfig, ReadingConfig, Task
from seqloom.errors import DataError

PACKED = (".xz", ".gz")


class SourceFile(NamedTuple):
    """One file: where it lies in a folder of sets, what it holds when unpacked, and who serves the same bytes."""

    path: str
    sha256: str  # unpacked
    size: int  # bytes, unpacked
    rows: int  # examples or records that it gives when it is read
    url: str | None = None  # of the plain file, or of a .gz of it

    @property
    def plain(self) -> str:
        """The path of the unpacked file.

        >>> SourceFile("sst2/train.txt.xz", "", 0, 0).plain
        'sst2/train.txt'
        """
        return self.path.removesuffix(".xz")


Files = tuple[SourceFile, ...]  # two for parallel text, otherwise one


class NamedSource(NamedTuple):
    """A named set. `files` are by part (train, dev, test); a set without a task has tables by other names."""

    name: str
    description: str
    licence: str  # as the source states it
    citation: str
    origin: str  # where these bytes come from
    files: Mapping[str, Files]
    reading: ReadingConfig = ReadingConfig()
    task: Task | None = None
    input: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    split: AnySplit | None = None

    def every_file(self) -> Iterator[SourceFile]:
        """All files, part by part."""
        for files in self.files.values():
            yield from files

    def has_addresses(self) -> bool:
        """Whether every file can be downloaded."""
        return all(file.url is not None for file in self.every_file())

    def rows(self) -> dict[str, int]:
        """How many rows each part or table has."""
        return {part: files[0].rows for part, files in self.files.items()}

    def config(self, paths: Mapping[str, tuple[Path, ...]]) -> DataConfig:
        """How the set is read from these paths; DataError for tables that make no examples by themselves."""
        if self.task is None:
            tables = ", ".join(self.files)
            raise DataError(f"the set '{self.name}' has tables ({tables}), not examples", fix="name another set")
        named = {part: tuple(map(str, files)) for part, files in paths.items()}
        return DataConfig(
            train=named["train"],
            dev=named.get("dev", ()),
            test=named.get("test", ()),
            reading=self.reading,
            task=self.task,
            input=self.input,
            target=self.target,
            split=self.split,
        )
