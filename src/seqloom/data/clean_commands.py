"""The shell commands with which the report on a cleaned copy ends."""

import shlex
from collections.abc import Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

from seqloom.config.cleaning import READ_BY, CleaningConfig
from seqloom.config.data import DataConfig, Format
from seqloom.config.options import typed_changes, typed_settings
from seqloom.data.problems import Ledger, cleaned_name
from seqloom.data.readers.delimited import COMMAS, quoted

MOST_TYPOS = 20  # likely typing errors that are shown


class CleanCommands(NamedTuple):
    """What the commands repeat: how a file is read and cleaned, and the name of the copy."""

    config: DataConfig
    cleaning: CleaningConfig
    format: Format | None
    out: str | None  # None: nothing was written

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.config.train[0])

    def renaming(self, typos: Mapping[str, str]) -> tuple[str, ...]:
        """Write a table of these labels, and clean the file with it; none if a table is in use."""
        if not typos or self.cleaning.labels is not None:
            return ()
        place = _unused(Path(self.out or cleaned_name(str(self.path), self.format) or self.path))
        table = _unused(self.path.with_name(f"{self.path.stem}-labels.csv"))
        rows = [",".join(quoted(one, COMMAS) for one in pair) for pair in islice(typos.items(), MOST_TYPOS)]
        asked = " ".join([*typed_changes(self.cleaning), f"--labels {shlex.quote(str(table))}"])
        flags = " ".join(typed_settings(self.config, READ_BY))
        named = f"seqloom data clean {shlex.quote(str(self.path))} -o {shlex.quote(str(place))}"
        return (
            f"printf '%s\\n' {shlex.join(['from,to', *rows])} > {shlex.quote(str(table))}",
            " ".join(filter(None, (named, flags, asked))),
        )

    def next(self) -> tuple[str, ...]:
        """Train on the copy, or write it."""
        if self.out is None:
            ledger = Ledger.of(self.config)
            ledger.format = self.format
            command = ledger.clean_command(str(self.path), " ".join(typed_changes(self.cleaning)), words=True)
            return (command,) if command else ()
        names = [name for name in READ_BY if name != "encoding"]  # the copy is UTF-8
        return (" ".join(["seqloom train", shlex.quote(self.out), *typed_settings(self.config, names)]),)


def _unused(path: Path) -> Path:
    """The path, or with a number where it exists."""
    names = chain([path], (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2)))
    return next(name for name in names if not name.exists())
