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
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from seqloom.config.data import DataConfig
from seqloom.config.options import typed_changes, with_flags
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import MIXED, lines_in_windows
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
    missing: str = ""


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
            return Remedy(given, "; then {text}: {fix}".format_map(error.details[-1]).removesuffix(": "))
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


def refuse_completely(
    config: DataConfig, error: RejectedError, ledger: Ledger, reopen: Callable[[DataConfig], DataConfig]
) -> NoReturn:
    """Raise the refusal with a fix that has all options with which the data opens, as far as they are known.

    A file in two encodings cannot be opened, but cleaned: its fix is the command for that, with these options.
    """
    last = error.details[-1]
    place = Place(**{name: last[name] for name in Place._fields})  # type: ignore[arg-type]  # as it was written
    if mixed := in_two_encodings(config, error):
        remedy, missing = _remedy_of_mixed(mixed, reopen)
        cleaning = Ledger.of(with_flags(config, remedy))
        fix = cleaning.or_clean("save the whole file as UTF-8", place.path)
        if remedy and not missing:  # rows were not read, and more may be wrong with them
            fix += f"; to see all problems first: `seqloom data check {shlex.quote(place.path)} {cleaning.flags}`"
        ledger.bad_file("enc.mixed", str(last["text"]), place, f"{fix}{missing}")
    remedy, missing = complete_remedy(config, error, reopen)
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
        found, missing = complete_remedy(config, error, reopen)
        named = {name: value for name, value in found.items() if name != "task"}  # cleaning does not depend on it
        return Remedy(named, missing)
    except SeqloomError:
        pass
    return Remedy({})


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

    @property
    def is_target(self) -> bool:
        """Whether it may be a label or a number to predict."""
        return self.words < 2 and (self.repeats or self.numeric) and not self.dated


def look_at(number: int, sample: Sequence[Record]) -> ColumnLook:
    """What the first values of a column look like."""
    cells = [str(row.values[number]) for row in sample]
    words = sum(len(cell.split()) for cell in cells) / max(1, len(cells))
    dated = bool(cells) and all(map(DATE.fullmatch, cells))
    return ColumnLook(number, words, 2 * len(set(cells)) <= len(cells), all(map(is_number, cells)), dated)


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
    looks = [look for look in (look_at(number, sample) for number in free) if not look.dated]
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


def likely_target(free: Sequence[int], sample: Sequence[Record]) -> int | None:
    """The column that is likely the target: the only one, or the only one that may be; None if that is not clear."""
    found = [look.number for look in (look_at(number, sample) for number in free) if look.is_target]
    if len(free) == 1:
        return free[0]
    return found[0] if len(found) == 1 and len(sample) >= ENOUGH else None
