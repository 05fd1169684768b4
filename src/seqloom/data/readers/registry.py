"""Readers, one for each format; all of them return a `Table`.

    .csv .tsv           delimited     .conll .bio .iob   conll      .npz       arrays
    .jsonl .ndjson      jsonl         .conllu            conll      .parquet   parquet
    .txt                text          two files          text       a folder   folders

Text formats may be compressed, with .gz or .xz after the extension. The extension or `reading.format` decides; content
that does not match is rejected.
"""

import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import get_args

import msgspec

from seqloom.config.data import Format, ReadingConfig
from seqloom.data.problems import Ledger, Place, escaped
from seqloom.data.readers import arrays, conll, delimited, folders, jsonl, parquet, text
from seqloom.data.readers.files import is_folder, is_there, known_format, opened, require_regular
from seqloom.data.schema import INPUT_KINDS
from seqloom.data.values import Table
from seqloom.errors import ConfigError

Reader = Callable[[tuple[Path, ...], ReadingConfig, Ledger], Table]

READERS: dict[Format, Reader] = {
    "csv": delimited.read,
    "tsv": delimited.read,
    "jsonl": jsonl.read,
    "parquet": parquet.read,
    "conll": conll.read_conll,
    "conllu": conll.read_conllu,
    "text": text.read,
    "parallel": text.read_parallel,
    "folder": folders.read,
    "npz": arrays.read,
}
USED_BY: dict[str, tuple[Format, ...]] = {
    "delimiter": ("csv", "tsv", "conll"),
    "header": ("csv", "tsv"),
    "template": ("text",),
    "unit": ("text",),
}


def read_table(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table in a file, in two parallel files, or in a folder of classes."""
    paths = tuple(Path(path) for path in paths)
    joined = Path(" ".join(map(str, paths)))  # a name with spaces, which the shell has split
    if len(paths) > 1 and is_there(joined) and not all(map(is_there, paths)):
        raise ConfigError(f"'{joined}' was given without quotes", fix="put quotes around a name with spaces")
    format = _format(paths, reading, ledger)
    _require_count(paths, format, reading.format is not None)
    defaults = ReadingConfig()
    for setting, formats in USED_BY.items():  # do not ignore a setting silently
        if getattr(reading, setting) != getattr(defaults, setting) and format not in formats:
            flag = "--no-header" if setting == "header" else f"--{setting}"
            fix = f"leave it out; it is for {' and '.join(formats)}"
            raise ConfigError(f"{flag} cannot be used with the format {format}", fix=fix)
    for path in paths if format != "folder" else ():
        require_regular(path, ledger)
    return READERS[format](paths, msgspec.structs.replace(reading, format=format), ledger)


def _require_count(paths: tuple[Path, ...], format: Format, said: bool) -> None:
    """Raise ConfigError for a wrong number of paths, and name those that do not exist."""
    asked = "two files, source and target" if format == "parallel" else "one path"
    if len(paths) == (2 if format == "parallel" else 1):
        return
    text = f"the format {format} needs {asked}" if said else "expected one path, or two files of parallel text"
    missing = [str(path) for path in paths if not is_there(path)]
    gone = f" ({escaped(' and '.join(missing))} {'does' if len(missing) == 1 else 'do'} not exist)" if missing else ""
    fix = f"give {asked}" if said else "give one path, and other splits with --dev and --test"
    raise ConfigError(f"{text}, found {len(paths)}{gone}", fix=fix)


def _format(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Format:
    if reading.format is not None:
        return reading.format
    if len(paths) != 1:
        for path in paths if len(paths) == 2 else ():
            found = known_format(path)
            if found not in (None, "text"):  # a table: probably another split
                text = f"two files are read as parallel text, but this is {found}"
                lines = "use --format parallel if line n of one translates line n of the other"
                fix = f"give other splits with --dev or --test; {lines}"
                ledger.bad_file("file.format", text, Place(str(path)), fix)
        return "parallel"
    return "folder" if is_folder(paths[0]) else format_of(paths[0], ledger)


def as_lines(path: Path, reading: ReadingConfig) -> ReadingConfig:
    """The same settings, with format text if the extension is unknown: source files are often named .en or .de.

    >>> [as_lines(Path(f"letters{end}"), ReadingConfig()).format for end in (".en", ".csv")]
    ['text', None]
    """
    named = reading.format is not None or known_format(path) is not None or is_folder(path)
    others = {".json", *chain.from_iterable(kind.suffixes for kind in INPUT_KINDS.values())}
    other = others & {suffix.lower() for suffix in path.suffixes}
    return reading if named or other else msgspec.structs.replace(reading, format="text")


def format_of(path: Path, ledger: Ledger) -> Format:
    """The format of the extension; raises RejectedError for an unknown one."""
    found = known_format(path)
    if found is None:
        require_regular(path, ledger)
        with opened(path, ledger, "text"):
            pass  # a known binary file is reported by its first bytes
        suffix = "".join(path.suffixes[-2:])
        usual = f"give --format, one of {', '.join(get_args(Format))}"
        is_json = re.fullmatch(r".*\.json(\.gz|\.xz)?", path.name, re.IGNORECASE | re.DOTALL)
        fix = "write one object per line and name the file .jsonl" if is_json else usual
        ledger.bad_file("file.format", f"unknown file extension '{suffix}'", Place(str(path)), fix)
    return found
