"""What every column of a file means: the input, the target, the id, the part, and what is said of it."""

from collections.abc import Sequence
from typing import NamedTuple

from seqloom.config.data import ColumnSplit, DataConfig, FoldSplit, RandomSplit
from seqloom.data.problems import Ledger
from seqloom.data.roles.finder import Finder
from seqloom.data.roles.inputs import find_input
from seqloom.data.roles.names import IDS, PART_NAMES, SPLITS
from seqloom.data.roles.needs import NEEDS
from seqloom.data.schema import Schema, TargetKind
from seqloom.data.tables import Record

SHOWN = 8  # columns that are named as not read


class Roles(NamedTuple):
    """The columns of the input, the target, the id and the part, by their numbers, and the kinds they make."""

    input: tuple[int, ...]
    target: tuple[int, ...]
    schema: Schema
    id: int | None = None
    split: int | None = None
    spaces: int | None = None  # for words: whether a space follows each
    label_separator: str | None = None
    whole: bool = False  # labels are whole numbers that were written as floats
    stepped: bool = False  # numbers come as one list for each step of a sequence
    said: tuple[str, ...] = ()  # what was inferred, for people


def find_roles(
    config: DataConfig, columns: Sequence[str], named: bool, sample: Sequence[Record], ledger: Ledger
) -> Roles:
    """What the columns of a file mean; RejectedError names what was found if that cannot be said."""
    finder, needs = Finder(config, columns, named, sample, ledger), NEEDS[config.task]
    inputs = tuple(finder.given(name, "--input") for name in config.input) or find_input(finder, needs.together)
    kind = needs.input_kind(finder, inputs)
    targets, target_kind = needs.target(finder, inputs, kind)
    if target_kind in ("tags", "series") and kind not in ("words", "vectors"):
        held = "text" if kind == "pair" else kind
        text = f"{target_kind} belong to words or steps, and {finder.names(inputs)} holds {held}"
        finder.refuse(text, "--input NAME of a list of words, or another --task")
    schema = Schema(kind, target_kind)
    if config.task is None:
        finder.said.append(f"task: {schema.task} ({_why(finder, targets, target_kind)})")
    identity = _find_id(finder)
    split = finder.given(config.split.column, "--split-column") if isinstance(config.split, ColumnSplit) else None
    if config.split is None and not config.dev and not config.test:
        split = _find_split(finder)
    if isinstance(config.split, RandomSplit | FoldSplit) and config.split.group is not None:
        finder.given(config.split.group, "--group")
    spaces = finder.first(("spaces",)) if kind == "words" else None
    whole = target_kind in ("label", "labels", "tags") and finder.whole(targets[0])
    if passed := _passed_over(finder, {*inputs, *targets, identity, split, spaces}):
        finder.said.append(passed)
    said, stepped, separator = tuple(finder.said), config.sequence is not None, config.label_separator
    return Roles(inputs, targets, schema, identity, split, spaces, separator, whole, stepped, said)


def _why(finder: Finder, targets: tuple[int, ...], kind: TargetKind) -> str:
    """What the task was inferred from, for people."""
    if kind == "numbers" and all(map(finder.numeric, targets)):
        return f"the cells of {finder.names(targets)} are numbers; with --task classify each would be a name"
    return "from the target"


def _passed_over(finder: Finder, used: set[int | None]) -> str:
    """Which columns say nothing to the model, for one of them may be meant; nothing where all were named."""
    others = [number for number in range(len(finder.columns)) if number not in used]
    if not others or (finder.config.input and finder.config.target):
        return ""
    more = f" and {len(others) - SHOWN:,} others" if len(others) > SHOWN else ""
    return f"not read: {', '.join(finder.names([column]) for column in others[:SHOWN])}{more}"


def _find_id(finder: Finder) -> int | None:
    """The column that names the rows; an empty name says that there is none."""
    if finder.config.id is not None:
        return finder.given(finder.config.id, "--id") if finder.config.id else None
    column = finder.first(IDS)
    if column is not None:
        finder.said.append(f"id: {finder.names([column])} (by name; --id '' to name none)")
    return column


def _find_split(finder: Finder) -> int | None:
    """A column named for it whose values name parts, most of them; the others are then told as bad rows."""
    column = finder.first(SPLITS)
    if column is None:
        return None
    known = sum(str(record.values[column]).lower() in PART_NAMES for record in finder.sample)
    return column if 2 * known > len(finder.sample) else None
