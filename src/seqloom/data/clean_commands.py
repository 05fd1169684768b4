"""The shell commands with which the report on a cleaned copy ends."""

import shlex
from collections.abc import Collection, Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

from seqloom.config.cleaning import READ_BY, CleaningConfig
from seqloom.config.data import DataConfig, Format
from seqloom.config.options import typed_changes, typed_settings
from seqloom.data.problems import Ledger, cleaned_name
from seqloom.data.readers.delimited import COMMAS, quoted

MOST_LABELS = 20  # of each kind that are shown: likely typing errors, rare labels
RARE = 5  # rows; a label with fewer is hardly learned, and may be missing in the dev or the test set
MERGE_RARE = f"--rare {RARE} --rare-label other"


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

    def relabeling(self, typos: Mapping[str, str], rare: Collection[str]) -> tuple[str, ...]:
        """Write a table of likely typing errors, and clean the file with it and without rare labels, all at once."""
        if not typos and not rare:
            return ()
        place = _unused(Path(self.out or cleaned_name(str(self.path), self.format) or self.path))
        table = _unused(self.path.with_name(f"{self.path.stem}-labels.csv"))
        rows = [",".join(quoted(one, COMMAS) for one in pair) for pair in islice(typos.items(), MOST_LABELS)]
        asked = [*typed_changes(self.cleaning), *([f"--labels {shlex.quote(str(table))}"] if typos else [])]
        asked += [MERGE_RARE] if rare else []
        flags = " ".join(typed_settings(self.config, READ_BY))
        named = f"seqloom data clean {shlex.quote(str(self.path))} -o {shlex.quote(str(place))}"
        write_table = f"printf '%s\\n' {shlex.join(['from,to', *rows])} > {shlex.quote(str(table))}"
        return (*([write_table] if typos else []), " ".join(filter(None, (named, flags, *asked))))

    def next(self, is_clean: bool) -> tuple[str, ...]:
        """Train on the copy, or write it; train on the file itself if there is nothing to change."""
        if self.out is None and is_clean:
            return (_train(str(self.path), self.config, READ_BY),)
        if self.out is None:
            ledger = Ledger.of(self.config)
            ledger.format = self.format
            command = ledger.clean_command(str(self.path), " ".join(typed_changes(self.cleaning)), words=True)
            return (command,) if command else ()
        own = ("encoding", "skip_bad_rows", "max_bad_rows")  # the copy is UTF-8 without bad rows
        return (_train(self.out, self.config, [name for name in READ_BY if name not in own]),)


def _train(path: str, config: DataConfig, names: Collection[str]) -> str:
    return " ".join(["seqloom train", shlex.quote(path), *typed_settings(config, names)])


def _unused(path: Path) -> Path:
    """The path, or with a number where it exists."""
    names = chain([path], (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2)))
    return next(name for name in names if not name.exists())
