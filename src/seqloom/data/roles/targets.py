"""The columns of the target, and what kind of target they make: one way for each task, and one where none is named."""

import re
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from seqloom.data.roles.finder import Finder, flagged
from seqloom.data.roles.names import LABELS, NUMBERS, SCORES, SERIES, SOURCES, TAGS, TRANSLATIONS
from seqloom.data.schema import InputKind, TargetKind
from seqloom.data.values import content_of, is_number
from seqloom.errors import did_you_mean

CODE = re.compile(r"[+-]?0\d")
MANY = 20  # different numbers that are no names of classes any more; so many rows may well have a label each
Found = tuple[tuple[int, ...], TargetKind]


def labels(finder: Finder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of labels: one in each cell, or several."""
    targets = _one(finder, inputs, LABELS, "label")
    several = finder.content(targets[0]) in ("texts", "vectors") or finder.config.label_separator is not None
    return targets, "labels" if several else "label"


def tags(finder: Finder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of tags."""
    return _one(finder, inputs, TAGS, "tags"), "tags"


def text(finder: Finder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of texts that are to be written."""
    return _one(finder, inputs, TRANSLATIONS, "target"), "text"


def numbers(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """The columns of numbers: of the whole, or of each word or step."""
    targets = _columns(finder, inputs, (*NUMBERS, "label", "target", "y")) or _missing(finder, inputs, "score")
    return targets, "series" if _is_series(finder, targets, kind) else "numbers"


def none_of_text(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """No column: the next symbol of the text is the target."""
    if kind != "text":
        found = f"a language model reads text, and {finder.names(inputs)} holds {kind}"
        finder.refuse(found, "--input NAME of a text")
    return (), "nothing"


def none_of_masked(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """No column: hidden words of the text are the target."""
    if kind not in ("text", "pair", "words"):
        found = f"masked hides words of a text, and {finder.names(inputs)} holds {kind}"
        finder.refuse(found, "--input NAME of a text")
    return (), "masked"


def score_of_pair(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """A score of a pair, if one is named, or has a usual name and is a number; else that texts stand together."""
    targets = tuple(finder.given(name, "--target") for name in finder.config.target)
    if not targets and kind == "pair":
        usual = [finder.lower[name] for name in SCORES if finder.lower.get(name) not in (None, *inputs)]
        targets = tuple(column for column in usual if finder.sample and finder.numeric(column))[:1]
        if targets:
            finder.said.append(f"target: {finder.names(targets)} (by name)")
    if targets and (kind != "pair" or len(targets) > 1):
        finder.refuse(
            f"a score is one number of two texts, found {len(targets)} of {len(inputs)}",
            "give two --input and one --target, or no --target",
        )
    return targets, "similarity" if targets else "related"


def inferred(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """The columns of a target whose task nobody named; text alone is for language modelling."""
    usual = (*(TAGS if kind in ("words", "vectors") else ()), *LABELS, *NUMBERS, *TRANSLATIONS)
    targets = _columns(finder, inputs, usual)
    if not targets and kind == "text" and len(finder.columns) == 1:
        return (), "nothing"
    targets = targets or _missing(finder, inputs, "label")
    return targets, _inferred_kind(finder, targets, kind)


def _inferred_kind(finder: Finder, targets: tuple[int, ...], kind: InputKind) -> TargetKind:
    name, content = finder.columns[targets[0]].lower(), finder.content(targets[0])
    if finder.config.sequence is not None:
        return "tags"
    if _is_series(finder, targets, kind):
        return "series"
    if kind == "words" and name in TAGS[:-1]:
        return "tags"
    if len(targets) > 1:
        return "numbers"
    if content == "texts":
        return "tags" if kind in ("words", "vectors") else "labels"
    if finder.config.label_separator is not None:
        return "labels"
    if content == "vectors" or (name in NUMBERS and finder.measured(targets[0])) or _measures(finder, targets[0]):
        return "numbers"
    if content == "text" and (name in TRANSLATIONS[1:] or (name == "target" and finder.first(SOURCES) is not None)):
        return "text"
    return "label"


def _columns(finder: Finder, inputs: tuple[int, ...], names: Sequence[str]) -> tuple[int, ...]:
    """The columns that the user named, else the first with a usual name that is no input, if there is one."""
    if finder.config.target:
        return tuple(finder.given(name, "--target") for name in finder.config.target)
    free = [name for name in names if finder.lower.get(name) not in (None, *inputs)]
    targets = tuple(finder.lower[name] for name in free[:1])
    if targets:
        finder.said.append(f"target: {finder.names(targets)} (by name)")
    return targets


def _one(finder: Finder, inputs: tuple[int, ...], names: Sequence[str], wanted: str) -> tuple[int, ...]:
    """The same for a task whose target is one column."""
    targets = _columns(finder, inputs, names) or _missing(finder, inputs, wanted)
    if len(targets) > 1:
        found = f"{len(targets)} target columns are for regress, and the task is {finder.config.task}"
        finder.refuse(found, "give one --target")
    return targets


def _missing(finder: Finder, inputs: tuple[int, ...], wanted: str) -> NoReturn:
    """Stop: there is no target."""
    others = [name for number, name in enumerate(finder.columns) if number not in inputs]
    near = flagged(did_you_mean(wanted, others), "--target") if others else ""
    fix = near or "--target NAME, or --task lm to model the text alone"
    finder.refuse(f"no column '{wanted}'; found {finder.known()}", fix)


def _is_series(finder: Finder, targets: tuple[int, ...], kind: InputKind) -> bool:
    """Whether each word or step has numbers of its own.

    A list for each step says so, and the name of the column. Steps of a table always make a list for each: then it is
    so where the steps of a sequence differ.
    """
    values = [record.values[targets[0]] for record in finder.sample]
    listed = [value for value in values if isinstance(value, list | tuple | np.ndarray) and len(value)]
    if len(targets) > 1 or kind not in ("words", "vectors") or not listed:
        return False
    if finder.columns[targets[0]].lower() in SERIES and content_of(listed[0]) == "vectors":
        return True
    nested = all(isinstance(value[0], list | tuple | np.ndarray) for value in listed)
    return nested and (finder.config.sequence is None or any(step != value[0] for value in listed for step in value))


def _measures(finder: Finder, column: int) -> bool:
    """Whether the values are numbers that were measured, and name no classes.

    Fractions are, unless the text of a few comes again and again. Whole numbers are where hardly any comes twice, in a
    column that is not called as labels are: 0 and 1, or 1 to 5, are classes. Digits as those of 007 are a name.
    """
    cells = [record.values[column] for record in finder.sample]
    texts = [cell.strip() for cell in cells if isinstance(cell, str)]
    if not cells or not all(map(is_number, cells)) or any(map(CODE.match, texts)):
        return False
    different = len(set(map(float, cells)))
    if all(float(cell).is_integer() for cell in cells):
        return len(cells) >= MANY and 2 * different > len(cells) and finder.columns[column].lower() not in LABELS
    return not texts or different > MANY or 2 * different > len(cells)
