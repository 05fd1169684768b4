"""The options with which a refused table can be read, all of them at once.

    sem.csv ──▶ refused: encoding ──▶ refused: delimiter ──▶ refused: no column names ──▶ opened
                    └── --encoding cp1252 --delimiter ';' --no-header --input 1 --target 2 --task classify

Nothing is guessed silently: the file stays refused, and the error names the options. A refusal that knows its remedy
carries it (`RejectedError.remedy`). The remedies are tried one after the other until the file opens, so that a user
does not meet the next refusal only after the first is mended.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import msgspec

from seqloom.config.data import DataConfig
from seqloom.config.options import typed_changes, with_flags
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import MIXED, lines_in_windows
from seqloom.data.readers.registry import read_table
from seqloom.data.values import Record, is_number
from seqloom.errors import RejectedError, SeqloomError

ROUNDS = 5  # encoding, delimiter, header, input and target
NAME_WORDS = 3  # longer texts are not names of columns
DATE = re.compile(  # with or without a time
    r"\s*(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4})"
    r"([T ]\s*\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s*[AaPp][Mm])?(\s*(Z|UTC|GMT|[-+]\d{2}(:?\d{2})?))?)?\s*"
)
ENOUGH = 20  # rows from which values that repeat are told from those that do not


class Remedy(NamedTuple):
    """Settings for refused data, and what is missing besides: empty if the data opens with these settings."""

    settings: dict[str, Any]
    problem: str = ""  # what is missing,
    fix: str = ""  # what to do about it,
    suggested: Mapping[str, object] = MappingProxyType({})  # and settings that are a guess

    @property
    def missing(self) -> str:
        """What is missing and what to do about it, after another fix."""
        return f"; then {self.problem}: {self.fix}".removesuffix(": ") if self.problem else ""


def complete_remedy(config: DataConfig, error: RejectedError, reopen: Callable[[DataConfig], DataConfig]) -> Remedy:
    """The settings with which the refused data opens, also those that later refusals would ask for, if these are clear.

    Args:
        config: the settings that were refused.
        error: the refusal.
        reopen: returns the complete settings of data that can be opened; raises RejectedError.
    """
    given: dict[str, Any] = {}
    for _ in range(ROUNDS):
        if not error.remedy or error.remedy.keys() <= given.keys():
            return _incomplete(error, given)
        given |= error.remedy
        try:
            opened = reopen(with_flags(config, given))
        except RejectedError as later:
            error = later
        except SeqloomError:
            return Remedy({})
        else:
            return Remedy(given if config.task or "input" not in given else given | {"task": opened.task})
    return Remedy({})


def _incomplete(error: RejectedError, settings: dict[str, Any]) -> Remedy:
    """The settings, and a refusal that they leave."""
    last = error.details[-1]
    return Remedy(settings, str(last["text"]), str(last["fix"]), error.suggested)


def refuse_completely(
    config: DataConfig, error: RejectedError, ledger: Ledger, reopen: Callable[[DataConfig], DataConfig]
) -> NoReturn:
    """Raise the refusal with a fix that has all options with which the data opens, as far as they are known.

    A file in two encodings cannot be opened, but cleaned. Its fix is the command for that; if it needs options, or rows
    of it were not read yet, the fix is to check it with these options, which prints the complete command.
    """
    last = error.details[-1]
    place = Place(**{name: last[name] for name in Place._fields})  # type: ignore[arg-type]  # as it was written
    if mixed := in_two_encodings(config, error):
        found = _remedy_of_mixed(mixed, reopen)
        remedy, suggested = found.settings, dict(found.suggested)
        cleaning = Ledger.of(_skipping(with_flags(mixed, remedy), place.path, config), ledger.cleaning)
        text, fix = str(last["text"]), cleaning.or_clean("save the whole file as UTF-8", place.path)
        if ledger.cleaning or not (remedy or found.problem):
            ledger.bad_file("enc.mixed", text, place, f"{fix}{found.missing}")
        options = [*typed_changes(with_flags(config, remedy | suggested))]
        if found.problem and not suggested:
            options += [f"--{name} NAME" for name in ("input", "target") if not getattr(config, name)]
        text = "; ".join(filter(None, (text, _described(remedy), found.problem)))
        sure = " if these are the columns that you mean" if suggested else ""
        check = f"run `seqloom data check {shlex.join(config.train)} {' '.join(options)}`{sure}"
        ledger.bad_file("enc.mixed", text, place, f"{check}; it prints the command that cleans the file")
    remedy, missing = (found := complete_remedy(config, error, reopen)).settings, found.missing
    if not remedy or (len(remedy) <= len(error.remedy) and not missing):  # the fix of the error is enough
        raise error
    if missing:
        fix = str(last["fix"]) if len(remedy) <= len(error.remedy) else f"add {typed_remedy(config, remedy)}"
        ledger.bad_file(str(last["code"]), str(last["text"]), place, f"{fix}{missing}", error.remedy)
    task = " (or another --task)" if "task" in remedy else ""
    names = "; if the first row has column names, give --input NAME --target NAME" if "header" in remedy else ""
    if "input" in remedy and config.reading.header and not names:
        names = "; if the first row is not a header, also --no-header and column numbers"
    fix = f"add {typed_remedy(config, remedy)}{task}{names}"
    ledger.bad_file(str(last["code"]), str(last["text"]), place, fix, remedy)


def in_two_encodings(config: DataConfig, error: RejectedError) -> DataConfig | None:
    """The settings that read a file with lines in UTF-8 and in Windows-1252, if it was refused for these; else None."""
    last, known = error.details[-1], config.reading.encoding == MIXED
    if (
        known
        or last["code"] not in ("enc.mixed", "enc.utf8")
        or not lines_in_windows(Path(str(last["path"])), Ledger())
    ):
        return None
    return msgspec.structs.replace(config, reading=msgspec.structs.replace(config.reading, encoding=MIXED))


def _remedy_of_mixed(config: DataConfig, reopen: Callable[[DataConfig], DataConfig]) -> Remedy:
    """The settings that such a file needs besides, as far as they are clear."""
    try:
        reopen(config)
    except RejectedError as error:
        found = complete_remedy(config, error, reopen) if error.remedy else _incomplete(error, {})
        named = {name: value for name, value in found.settings.items() if name != "task"}  # cleaning does not need it
        return found._replace(settings=named)
    except SeqloomError:
        pass
    return Remedy({})


def _skipping(mixed: DataConfig, path: str, config: DataConfig) -> DataConfig:
    """The settings without the encoding that reads both, and with those that leave out rows that cannot be read."""
    ledger = Ledger(config.bad_rows)
    try:
        for _ in read_table((Path(path),), mixed.reading, ledger).records:
            pass
    except RejectedError:  # it needs other settings too
        pass
    reading = msgspec.structs.replace(mixed.reading, encoding=config.reading.encoding)
    return msgspec.structs.replace(mixed, reading=reading, bad_rows=ledger.skipping() or config.bad_rows)


def _described(remedy: Mapping[str, Any]) -> str:
    """What a file looks like that needs these settings."""
    parts = [f"delimiter {remedy['delimiter']!r}"] if "delimiter" in remedy else []
    parts += ["no header"] if remedy.get("header") is False else []
    return f"the file seems to have {' and '.join(parts)}" if parts else ""


def typed_remedy(config: DataConfig, remedy: Mapping[str, Any]) -> str:
    """The remedy as flags."""
    bare = with_flags(DataConfig(train=config.train), remedy)
    return " ".join(typed_changes(msgspec.structs.replace(bare, bad_rows=DataConfig(train=()).bad_rows)))


def looks_like_row(names: Sequence[str], sample: Sequence[Record]) -> bool:
    """Whether the first line of a table is a row, not names: it has a number, a sentence, or a value that repeats.

    >>> rows = [Record(("a fine film", "good"), "films", 2), Record(("a weak one", "bad"), "films", 3)]
    >>> looks_like_row(("a dull plot", "bad"), rows), looks_like_row(("message", "topic"), rows)
    (True, False)
    """
    columns = [[row.values[number] for row in sample] for number in range(len(names))]
    return any(
        is_number(name) or len(name.split()) > NAME_WORDS or name in values
        for name, values in zip(names, columns, strict=True)
    )


class ColumnLook(NamedTuple):
    """What the first values of a column look like."""

    number: int
    words: float  # mean words of a value
    repeats: bool  # whether half of the values, or more, occur elsewhere too
    numeric: bool
    dated: bool  # whether all values are dates, which are no input and no target
    running: bool  # whether the values are running numbers, such as ids, which are none either
    different: int  # values

    @property
    def is_free(self) -> bool:
        """Whether it may be an input or a target."""
        return not self.dated and not self.running

    @property
    def is_target(self) -> bool:
        """Whether it may be a label or a number to predict."""
        return self.words < 2 and (self.repeats or self.numeric) and self.is_free


def look_at(number: int, sample: Sequence[Record]) -> ColumnLook:
    """What the first values of a column look like."""
    cells = [str(row.values[number]) for row in sample]
    words = sum(len(cell.split()) for cell in cells) / max(1, len(cells))
    dated = bool(cells) and all(map(DATE.fullmatch, cells))
    numeric, different = all(map(is_number, cells)), len(set(cells))
    running = numeric and has_running_numbers(cells, number)
    return ColumnLook(number, words, 2 * different <= len(cells), numeric, dated, running, different)


def has_running_numbers(cells: Sequence[Any], column: int) -> bool:
    """Whether the cells of a column count the rows, and enough of them to tell.

    These are integers, each 1 larger than the one before; if the column starts the row, each may be larger by any
    number. Other columns of ascending numbers are those by which a file is sorted, such as years or prices.

    >>> has_running_numbers([str(number) for number in range(1001, 1031)], 2), has_running_numbers(["1", "2", "3"], 2)
    (True, False)
    >>> even = [str(number) for number in range(0, 60, 2)]
    >>> has_running_numbers(even, 0), has_running_numbers(even, 2)
    (True, False)
    """
    if len(cells) < ENOUGH or not all(is_number(cell) and float(cell).is_integer() for cell in cells):
        return False
    steps = [float(other) - float(one) for one, other in pairwise(cells)]
    return all(step == 1 for step in steps) or (column == 0 and all(step > 0 for step in steps))


def likely_columns(
    free: Sequence[int], sample: Sequence[Record], *, target: bool = True
) -> tuple[list[int], int | None]:
    """The columns that are likely the input and the target; no input if it is not clear.

    The target repeats or is a number; a text beside it is the input, two texts are a pair. Of two texts that do not
    repeat, the first is the input and the second the target.

    Args:
        free: the columns to choose from.
        sample: the first rows.
        target: whether there is a target among them.
    """
    looks = [look for look in (look_at(number, sample) for number in free) if look.is_free]
    if not target:
        texts = [look.number for look in looks if not look.numeric]
        return (texts, None) if len(texts) == 1 else ([], None)
    if len(looks) == 2:
        first, second = looks
        swapped = not second.numeric and (first.numeric or second.words > 2 * first.words)
        return ([second.number], first.number) if swapped else ([first.number], second.number)
    targets = [look for look in looks if look.is_target]
    texts = [look.number for look in looks if look.words >= 2 and not look.numeric]
    if len(targets) == 1 and 1 <= len(texts) <= 2 and len(texts) + 1 == len(looks) and len(sample) >= ENOUGH:
        return texts, targets[0].number
    return [], None


def suggested_columns(columns: int, sample: Sequence[Record]) -> tuple[int, int] | None:
    """The columns that may be the input, the longest text, and the target, with the fewest values that repeat."""
    looks = [look for look in (look_at(number, sample) for number in range(columns)) if look.is_free]
    texts = [look for look in looks if look.words >= 2 and not look.numeric]
    if not texts:
        return None
    text = max(texts, key=lambda look: look.words)
    targets = [look for look in looks if look is not text and look.repeats and look.different > 1]
    return (text.number, min(targets, key=lambda look: look.different).number) if targets else None


def likely_target(free: Sequence[int], sample: Sequence[Record]) -> int | None:
    """The column that is likely the target: the only one, or the only one that may be; None if that is not clear."""
    found = [look.number for look in (look_at(number, sample) for number in free) if look.is_target]
    if len(free) == 1:
        return free[0]
    return found[0] if len(found) == 1 and len(sample) >= ENOUGH else None
