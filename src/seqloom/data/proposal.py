"""The options with which a refused table can be read, all of them at once.

    sem.csv ──▶ refused: encoding ──▶ refused: delimiter ──▶ refused: no column names ──▶ opened
                    └── --encoding cp1252 --delimiter ';' --no-header --input 1 --target 2 --task classify

Nothing is guessed silently: the file stays refused, and the error names the options. A refusal that knows its remedy
carries it (`RejectedError.remedy`). The remedies are tried one after the other until the file opens, so that a user
does not meet the next refusal only after the first is mended.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from seqloom.config.data import DataConfig
from seqloom.config.options import typed_changes, with_flags
from seqloom.data.values import Record, is_number
from seqloom.errors import RejectedError, SeqloomError

ROUNDS = 5  # encoding, delimiter, header, input and target
NAME_WORDS = 3  # longer texts are not names of columns
ENOUGH = 20  # rows from which values that repeat are told from those that do not


def complete_remedy(
    config: DataConfig, error: RejectedError, reopen: Callable[[DataConfig], DataConfig]
) -> dict[str, Any]:
    """The settings with which the refused data opens, also those that later refusals would ask for; else empty.

    Args:
        config: the settings that were refused.
        error: the refusal.
        reopen: returns the complete settings of data that can be opened; raises RejectedError.
    """
    given: dict[str, Any] = {}
    for _ in range(ROUNDS):
        if not error.remedy or error.remedy.keys() <= given.keys():
            return {}
        given |= error.remedy
        try:
            opened = reopen(with_flags(config, given))
        except RejectedError as later:
            error = later
        except SeqloomError:
            return {}
        else:
            return given if config.task or not {"input", "target"} & given.keys() else given | {"task": opened.task}
    return {}


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


def look_at(number: int, sample: Sequence[Record]) -> ColumnLook:
    """What the first values of a column look like."""
    cells = [str(row.values[number]) for row in sample]
    words = sum(len(cell.split()) for cell in cells) / max(1, len(cells))
    return ColumnLook(number, words, 2 * len(set(cells)) <= len(cells), all(map(is_number, cells)))


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
    looks = [look_at(number, sample) for number in free]
    if not target:
        texts = [look.number for look in looks if not look.numeric]
        return (texts, None) if len(texts) == 1 else ([], None)
    if len(looks) == 2:
        first, second = looks
        swapped = not second.numeric and (first.numeric or second.words > 2 * first.words)
        return ([second.number], first.number) if swapped else ([first.number], second.number)
    targets = [look for look in looks if look.words < 2 and (look.repeats or look.numeric)]
    texts = [look.number for look in looks if look.words >= 2 and not look.numeric]
    if len(targets) == 1 and 1 <= len(texts) <= 2 and len(texts) + 1 == len(looks) and len(sample) >= ENOUGH:
        return texts, targets[0].number
    return [], None
