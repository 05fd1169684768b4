"""The shell commands with which the report on a cleaned copy ends."""

import shlex
from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from seqloom.config.cleaning import READ_BY, CleaningConfig
from seqloom.config.data import DataConfig, Format
from seqloom.config.options import typed_changes, typed_settings
from seqloom.data.problems import Ledger, cleaned_name, unused
from seqloom.data.readers.delimited import COMMAS, quoted

MOST_LABELS = 20  # of each kind that are shown: likely typing errors, rare labels


class CleanCommands(NamedTuple):
    """What the commands repeat: how a file is read and cleaned, and the name of the copy."""

    config: DataConfig
    cleaning: CleaningConfig
    format: Format | None
    out: str | None  # None: nothing was written
    planned: str | None = None  # the name of the copy that a dry run would write

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.config.train[0])

    def relabeling(self, typos: Mapping[str, str], rare: str) -> tuple[str, ...]:
        """Write a table of likely typing errors, and clean the file with it and these options for rare labels."""
        if not typos and not rare:
            return ()
        place = unused(Path(self.out or self.planned or cleaned_name(str(self.path), self.format) or self.path))
        write_table, by_table = label_table(self.path, dict(islice(typos.items(), MOST_LABELS)))
        own = ["rare", "rare_label"] if rare else []
        asked = [*typed_changes(self.cleaning, own), *([by_table] if typos else [])]
        asked += [rare] if rare else []
        flags = " ".join(typed_settings(self.config, READ_BY))
        named = f"seqloom data clean {shlex.quote(str(self.path))} -o {shlex.quote(str(place))}"
        return (*([write_table] if typos else []), " ".join(filter(None, (named, flags, *asked))))

    def next(self, is_clean: bool) -> tuple[str, ...]:
        """Train on the copy, or write it; train on the file itself if there is nothing to change."""
        if self.out is None and is_clean:
            return (_train(str(self.path), self.config, READ_BY),)
        if self.out is None:
            ledger = Ledger.of(self.config)
            ledger.format = self.format
            asked = " ".join(typed_changes(self.cleaning))
            command = ledger.clean_command(str(self.path), asked, words=True, out=self.planned)
            return (command,) if command else ()
        own = ("encoding", "skip_bad_rows", "max_bad_rows")  # the copy is UTF-8 without bad rows
        return (_train(self.out, self.config, [name for name in READ_BY if name not in own]),)


def label_table(path: Path, renames: Mapping[str, str]) -> tuple[str, str]:
    """The command that writes a table of labels beside a file, and the option that cleans a file with it."""
    table = unused(path.with_name(f"{path.stem}-labels.csv"))
    rows = [",".join(quoted(one, COMMAS) for one in pair) for pair in renames.items()]
    command = f"printf '%s\\n' {shlex.join(['from,to', *rows])} > {shlex.quote(str(table))}"
    return command, f"--labels {shlex.quote(str(table))}"


def _train(path: str, config: DataConfig, names: Collection[str]) -> str:
    return " ".join(["seqloom train", shlex.quote(path), *typed_settings(config, names)])
