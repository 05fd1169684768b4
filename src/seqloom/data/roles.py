"""Which column means what: given by the user, or found by name and content, and said aloud.

    Finder ──▶ find_input ──▶ kind of input ──▶ columns and kind of the target ──▶ Roles

What columns are usually called, the kinds say. Names are compared without regard to case. A file in which no name fits
is refused with what was found and the flags to use; a column is never taken because it happens to be the only one
left. What each task needs stands in NEEDS, with one entry for data whose task nobody named.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from seqloom.config.data import ColumnSplit, DataConfig, FoldSplit, RandomSplit, Task
from seqloom.data.kinds.kind import InputKind, TargetKind
from seqloom.data.kinds.labels import LabelsTarget, LabelTarget, TagsTarget
from seqloom.data.kinds.nothing import MaskedTarget, NoTarget
from seqloom.data.kinds.numbers import NumbersTarget, SeriesTarget
from seqloom.data.kinds.related import RELATED, RelatedTarget, SimilarityTarget
from seqloom.data.kinds.target_text import TextTarget
from seqloom.data.kinds.text import SOURCES, TEXTS, PairInput, TextInput, TripleInput
from seqloom.data.kinds.vectors import VectorsInput
from seqloom.data.kinds.words import WordsInput
from seqloom.data.problems import Ledger, Place, escaped
from seqloom.data.readers.folders import PART_NAMES
from seqloom.data.schema import INPUT_KINDS, Schema
from seqloom.data.values import Content, Record, content_of, is_number, whole_floats
from seqloom.errors import did_you_mean


class Finder:
    """One file's columns and first records, asked for the meaning of each column."""

    def __init__(
        self, config: DataConfig, columns: Sequence[str], named: bool, sample: Sequence[Record], ledger: Ledger
    ) -> None:
        self.config, self.columns, self.named, self.sample, self.ledger = config, tuple(columns), named, sample, ledger
        self.lower = {name.lower(): number for number, name in reversed(list(enumerate(columns)))}
        self.said: list[str] = []

    def first(self, names: Sequence[str]) -> int | None:
        """The first of these names that the file has."""
        return next((self.lower[name] for name in names if name in self.lower), None)

    def content(self, column: int) -> Content:
        """What the values of a column are, by the first records."""
        values = [record.values[column] for record in self.sample]
        return next((kind for value in values if (kind := content_of(value)) != "nothing"), "nothing")

    def numeric(self, column: int) -> bool:
        """Whether every cell of the first records is a number, or text that spells one."""
        return all(is_number(record.values[column]) for record in self.sample)

    def whole(self, column: int) -> bool:
        """Whether the numbers of the first records are whole, and all written as floats."""
        return whole_floats(record.values[column] for record in self.sample)

    def measured(self, column: int) -> bool:
        """Whether most cells of the first records are numbers, be it with a decimal comma; the others are then told."""
        cells = [record.values[column] for record in self.sample]
        plain = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
        return 2 * sum(map(is_number, plain)) > len(cells)

    def given(self, name: str, flag: str) -> int:
        """The column of a name that the user gave."""
        if name not in self.columns:
            near = did_you_mean(name, self.columns)
            self.refuse(f"no column '{name}'; found {self.known()}", flagged(near, flag) or f"{flag} one of these")
        return self.columns.index(name)

    def known(self) -> str:
        """The names of the columns."""
        return ", ".join(escaped(column) for column in self.columns[:20])

    def refuse(self, text: str, fix: str) -> NoReturn:
        """Stop: a column that is needed is not there."""
        path = self.sample[0].path if self.sample else self.config.train[0]
        code = "csv.column" if ".csv" in path.lower() or ".tsv" in path.lower() else "data.column"
        self.ledger.bad_file(code, text, Place(path, 1), fix)

    def names(self, columns: Sequence[int]) -> str:
        """Columns as people call them."""
        return " and ".join(f"'{escaped(self.columns[column])}'" for column in columns)


def flagged(guess: str, flag: str) -> str:
    """A guess at a name as the flag to give; nothing where there was no guess."""
    return guess.replace("did you mean '", f"did you mean {flag} '") if "did you" in guess else ""


def first_row(finder: Finder) -> str:
    return f"The first row is {shown(finder.sample[0].values)}" if finder.sample else ""


def shown(values: Sequence[Any]) -> str:
    """The first values of a row in quotes, cut short."""
    cells = [str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}..." for value in values[:6]]
    return ", ".join(f"'{escaped(cell)}'" for cell in cells)


IDS = ("id", "_id", "guid", "idx")
SPLITS = ("split", "part", "fold", "set")


CellKind = Callable[[Finder, int], InputKind]  # what the plain cells of one column are read as
EMBEDDED: tuple[InputKind, ...] = (TextInput(), PairInput(), TripleInput())  # by the number of columns


def find_input(finder: Finder, together: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """The columns with the usual names of an input; of names that belong together, all are there or none counts."""
    alone = (names for kind in INPUT_KINDS.values() for names in kind.usual if kind.num_columns == 1)
    found = next((names for names in (*together, *alone) if all(name in finder.lower for name in names)), None)
    if found is None and not finder.named:
        text = f"{len(finder.columns)} columns without a header; which is the input? {first_row(finder)}"
        finder.refuse(text, "--input 1 --target 2, by number")
    if found is None:
        others = [name for name in finder.columns if name not in finder.config.target]
        if finder.config.target and len(others) == 1:  # the one beside a target that the user named
            fix = f"--input '{escaped(others[0])}'"
        else:
            fix = f"--input NAME --target NAME, or --no-header if this is data: {shown(finder.columns)}"
        finder.refuse(f"no column '{TEXTS[0]}'; found {finder.known()}", fix)
    inputs = tuple(finder.lower[name] for name in found)
    finder.said.append(f"input: {finder.names(inputs)} (by name)")
    return inputs


def by_cells(cells: CellKind) -> Callable[[Finder, tuple[int, ...]], InputKind]:
    """What finds the kind of an input: by the number and content of its columns, of plain cells as `cells` has it."""

    def kind(finder: Finder, inputs: tuple[int, ...]) -> InputKind:
        contents, numeric = {finder.content(column) for column in inputs}, all(map(finder.numeric, inputs))
        names = tuple(finder.columns[column].lower() for column in inputs)
        paired = names in PairInput.usual or names[::-1] in PairInput.usual  # digits in them are text
        if len(inputs) == 2 and contents <= {"text", "nothing"} and (paired or not numeric):
            return PairInput()
        if len(inputs) > 1 and not numeric:
            text = f"{len(inputs)} input columns are two texts or all numbers; found {first_row(finder)}"
            finder.refuse(text, "give one column, two of text, or numeric ones")
        if len(inputs) > 1:
            return VectorsInput()
        (content,) = contents
        held = next((kind for kind in INPUT_KINDS.values() if kind.holds(names[0], content)), None)
        return held or cells(finder, inputs[0])

    return kind


def as_text(_finder: Finder, _column: int) -> InputKind:
    """Text, whatever it spells."""
    return TextInput()


def as_words(_finder: Finder, _column: int) -> InputKind:
    """Words with spaces between them."""
    return WordsInput()


def as_text_or_numbers(finder: Finder, column: int) -> InputKind:
    """Text, unless the user named a column of numbers and its name does not say that they are text."""
    named, texts = finder.columns[column] in finder.config.input, (*TextInput.usual, *WordsInput.usual)
    measured = (finder.columns[column].lower(),) not in texts and bool(finder.sample) and finder.numeric(column)
    return VectorsInput() if named and measured else TextInput()


def as_anything(finder: Finder, column: int) -> InputKind:
    """The same where no task is named: words, if the column is called so and tags stand beside it."""
    words = (finder.columns[column].lower(),) in WordsInput.usual and finder.first(TagsTarget.usual[:-1]) is not None
    return WordsInput() if words else as_text_or_numbers(finder, column)


def as_texts(finder: Finder, inputs: tuple[int, ...]) -> InputKind:
    """One text, two or three: whatever their cells look like, they are text."""
    held = {finder.content(column) for column in inputs}
    if len(inputs) > len(EMBEDDED) or not held <= {"text", "number", "nothing"}:
        found = f"{len(inputs)} columns of {' and '.join(sorted(held))}"
        finder.refuse(f"embed reads one text, two or three, found {found}", "--input NAME of a text, up to three times")
    return EMBEDDED[len(inputs) - 1]


CODE = re.compile(r"[+-]?0\d")
MANY = 20  # different numbers that are no names of classes any more; so many rows may well have a label each
Found = tuple[tuple[int, ...], TargetKind]


def labels(finder: Finder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of labels: one in each cell, or several."""
    targets = _one(finder, inputs, LabelTarget.usual, "label")
    several = finder.content(targets[0]) in ("texts", "vectors") or finder.config.label_separator is not None
    return targets, LabelsTarget() if several else LabelTarget()


def tags(finder: Finder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of tags."""
    return _one(finder, inputs, TagsTarget.usual, "tags"), TagsTarget()


def text(finder: Finder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of texts that are to be written."""
    return _one(finder, inputs, TextTarget.usual, "target"), TextTarget()


def numbers(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """The columns of numbers: of the whole, or of each word or step."""
    usual = (*NumbersTarget.usual, "label", "target", "y")
    targets = _columns(finder, inputs, usual) or _missing(finder, inputs, "score")
    return targets, SeriesTarget() if _is_series(finder, targets, kind) else NumbersTarget()


def none_of_text(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """No column: the next symbol of the text is the target."""
    if not kind.is_text:
        found = f"a language model reads text, and {finder.names(inputs)} holds {kind}"
        finder.refuse(found, "--input NAME of a text")
    return (), NoTarget()


def none_of_masked(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """No column: hidden words of the text are the target."""
    if not kind.reads_tokens:
        found = f"masked hides words of a text, and {finder.names(inputs)} holds {kind}"
        finder.refuse(found, "--input NAME of a text")
    return (), MaskedTarget()


def score_of_pair(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """A score of a pair, if one is named, or has a usual name and is a number; else that texts stand together."""
    targets = tuple(finder.given(name, "--target") for name in finder.config.target)
    pair = kind.num_columns == 2
    if not targets and pair:
        usual = [finder.lower[name] for name in SimilarityTarget.usual if finder.lower.get(name) not in (None, *inputs)]
        targets = tuple(column for column in usual if finder.sample and finder.numeric(column))[:1]
        if targets:
            finder.said.append(f"target: {finder.names(targets)} (by name)")
    if targets and (not pair or len(targets) > 1):
        finder.refuse(
            f"a score is one number of two texts, found {len(targets)} of {len(inputs)}",
            "give two --input and one --target, or no --target",
        )
    return targets, SimilarityTarget() if targets else RelatedTarget()


def inferred(finder: Finder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """The columns of a target whose task nobody named; text alone is for language modelling."""
    tags = TagsTarget.usual if kind.has_steps else ()
    usual = (*tags, *LabelTarget.usual, *NumbersTarget.usual, *TextTarget.usual)
    targets = _columns(finder, inputs, usual)
    if not targets and kind.is_text and len(finder.columns) == 1:
        return (), NoTarget()
    targets = targets or _missing(finder, inputs, "label")
    name, content = finder.columns[targets[0]].lower(), finder.content(targets[0])
    if finder.config.sequence is not None:
        return targets, TagsTarget()
    if _is_series(finder, targets, kind):
        return targets, SeriesTarget()
    if kind.in_words and name in TagsTarget.usual[:-1]:
        return targets, TagsTarget()
    if len(targets) > 1:
        return targets, NumbersTarget()
    if content == "texts":
        return targets, TagsTarget() if kind.has_steps else LabelsTarget()
    if finder.config.label_separator is not None:
        return targets, LabelsTarget()
    measured = name in NumbersTarget.usual and finder.measured(targets[0])
    if content == "vectors" or measured or _measures(finder, targets[0]):
        return targets, NumbersTarget()
    written = name in TextTarget.usual[1:] or (name == "target" and finder.first(SOURCES) is not None)
    return targets, TextTarget() if content == "text" and written else LabelTarget()


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
    if len(targets) > 1 or not kind.has_steps or not listed:
        return False
    if finder.columns[targets[0]].lower() in SeriesTarget.usual and content_of(listed[0]) == "vectors":
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
        named = finder.columns[column].lower() in LabelTarget.usual
        return len(cells) >= MANY and 2 * different > len(cells) and not named
    return not texts or different > MANY or 2 * different > len(cells)


class Needs(NamedTuple):
    """What finds the target of a task and the kind of its input, and the names of columns that make one together."""

    target: Callable[[Finder, tuple[int, ...], InputKind], Found]
    input_kind: Callable[[Finder, tuple[int, ...]], InputKind] = by_cells(as_text)
    together: tuple[tuple[str, ...], ...] = PairInput.usual  # in the order in which they are looked for
    each_step: bool = False  # where rows are the steps of sequences: whether each step has an answer of its own
    numbers: bool = False  # where rows are steps: whether answers are numbers, of one column or several


NEEDS: dict[Task | None, Needs] = {
    None: Needs(inferred, by_cells(as_anything), each_step=True),
    "classify": Needs(labels, by_cells(as_text_or_numbers)),
    "regress": Needs(numbers, by_cells(as_text_or_numbers), numbers=True),
    "tag": Needs(tags, by_cells(as_words), each_step=True),
    "lm": Needs(none_of_text),
    "masked": Needs(none_of_masked),
    "translate": Needs(text),
    "embed": Needs(score_of_pair, as_texts, (*TripleInput.usual, *RELATED, *PairInput.usual)),
}


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
    if target_kind.of_steps and not kind.has_steps:
        held = "text" if kind.reads_tokens else kind
        text = f"{target_kind} belong to words or steps, and {finder.names(inputs)} holds {held}"
        finder.refuse(text, "--input NAME of a list of words, or another --task")
    schema = Schema(kind, target_kind)
    if config.task is None:
        measured = target_kind.measured and all(map(finder.numeric, targets))
        numbers = f"the cells of {finder.names(targets)} are numbers; with --task classify each would be a name"
        finder.said.append(f"task: {schema.task} ({numbers if measured else 'from the target'})")
    if config.id is not None:  # an empty name says that there is none
        identity = finder.given(config.id, "--id") if config.id else None
    elif (identity := finder.first(IDS)) is not None:
        finder.said.append(f"id: {finder.names([identity])} (by name; --id '' to name none)")
    split = finder.given(config.split.column, "--split-column") if isinstance(config.split, ColumnSplit) else None
    if config.split is None and not config.dev and not config.test:
        split = _find_split(finder)
    if isinstance(config.split, RandomSplit | FoldSplit) and config.split.group is not None:
        finder.given(config.split.group, "--group")
    spaces = finder.first(("spaces",)) if kind.in_words else None
    whole = target_kind.has_labels and finder.whole(targets[0])
    others = sorted(set(range(len(columns))) - {*inputs, *targets, identity, split, spaces})
    if others and not (config.input and config.target):  # one of them may be meant
        more = f" and {len(others) - SHOWN:,} others" if len(others) > SHOWN else ""
        finder.said.append(f"not read: {', '.join(finder.names([column]) for column in others[:SHOWN])}{more}")
    said, stepped, separator = tuple(finder.said), config.sequence is not None, config.label_separator
    return Roles(inputs, targets, schema, identity, split, spaces, separator, whole, stepped, said)


def _find_split(finder: Finder) -> int | None:
    """A column named for it whose values name parts, most of them; the others are then told as bad rows."""
    column = finder.first(SPLITS)
    if column is None:
        return None
    known = sum(str(record.values[column]).lower() in PART_NAMES for record in finder.sample)
    return column if 2 * known > len(finder.sample) else None
