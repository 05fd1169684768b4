"""The roles of columns: given by the user, or inferred from names and content, and reported.

    ColumnFinder ──▶ find_input ──▶ kind of input ──▶ columns and kind of the target ──▶ Roles

The kinds define common column names, compared without regard to case. If no name matches, the file is rejected with the
names found and the flags to use; a column is never used only because it is the last one left. NEEDS says what each task
needs, with one entry for data without a given task.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from seqloom.config.data import ColumnSplit, DataConfig, FoldSplit, RandomSplit, Task
from seqloom.data.kinds.graph import GraphInput
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
from seqloom.data.proposal import (
    has_running_numbers,
    likely_columns,
    likely_target,
    look_at,
    looks_like_row,
    suggested_columns,
)
from seqloom.data.readers.folders import SPLIT_NAMES
from seqloom.data.schema import INPUT_KINDS, Schema
from seqloom.data.values import Content, Record, content_of, is_number, whole_floats
from seqloom.errors import did_you_mean

CODE = re.compile(r"\s*[+-]?0\d")
MANY = 20  # more different numbers are not labels; rows needed to tell
FEW = 10  # different integers that are labels, whatever the name of their column


class ColumnFinder:
    """The columns and first records of a file, from which the roles of columns are inferred."""

    def __init__(
        self, config: DataConfig, columns: Sequence[str], named: bool, sample: Sequence[Record], ledger: Ledger
    ) -> None:
        self.config, self.columns, self.named, self.sample, self.ledger = config, tuple(columns), named, sample, ledger
        self.lower = {name.lower(): number for number, name in reversed(list(enumerate(columns)))}
        self.messages: list[str] = []

    def first(self, names: Sequence[str]) -> int | None:
        """The first of these names that the file has."""
        return next((self.lower[name] for name in names if name in self.lower), None)

    def content(self, column: int) -> Content:
        """The content of a column, by the first records."""
        values = [record.values[column] for record in self.sample]
        return next((kind for value in values if (kind := content_of(value)) != "nothing"), "nothing")

    def numeric(self, column: int) -> bool:
        """Whether every cell in the first records is a number, or text that spells one."""
        return all(is_number(record.values[column]) for record in self.sample)

    def whole(self, column: int) -> bool:
        """Whether the numbers in the first records are integers written as floats."""
        return whole_floats(record.values[column] for record in self.sample)

    def measured(self, column: int) -> bool:
        """Whether most cells in the first records are numbers, even with a decimal comma."""
        cells = [record.values[column] for record in self.sample]
        plain = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
        return 2 * sum(map(is_number, plain)) > len(cells)

    def counted(self, column: int) -> int:
        """How many different integers there are in the first records, if they are few and repeat; else 0."""
        cells = [record.values[column] for record in self.sample]
        if len(cells) < MANY or not all(is_number(cell) and float(cell).is_integer() for cell in cells):
            return 0
        different = len(set(map(float, cells)))
        return different if different <= FEW else 0

    def coded(self, column: int) -> bool:
        """Whether a number in the first records is a code, such as 007."""
        return any(isinstance(cell := record.values[column], str) and CODE.match(cell) for record in self.sample)

    def written(self, column: int) -> bool:
        """Whether the first records have texts that rarely repeat, such as translations, and not labels.

        In a table with a header they must have several words: one word may be a name, an id or a code.
        """
        look = look_at(column, self.sample)
        return len(self.sample) >= MANY and not look.repeats and (look.words >= 2 or not self.named)

    def given(self, name: str, flag: str) -> int:
        """The number of a column that the user named."""
        if name not in self.columns:
            near = did_you_mean(name, self.columns)
            text = f"there is no column '{name}'; found {self.known()}"
            self.refuse(text, flagged(near, flag) or f"give {flag} one of these")
        return self.columns.index(name)

    def known(self) -> str:
        """The names of the columns."""
        return ", ".join(escaped(column) for column in self.columns[:20])

    def refuse(
        self, text: str, fix: str, remedy: Mapping[str, Any] | None = None, suggested: Mapping[str, Any] | None = None
    ) -> NoReturn:
        """Raise RejectedError: a column is missing or does not fit; `remedy` are settings that may mend it."""
        path = self.sample[0].path if self.sample else self.config.train[0]
        code = "csv.column" if ".csv" in path.lower() or ".tsv" in path.lower() else "data.column"
        self.ledger.bad_file(code, text, Place(path, 1), fix, remedy, suggested)

    def suggestion(self) -> dict[str, tuple[str, ...]]:
        """The settings of the columns that may be the input and the target, where that is not certain."""
        found = suggested_columns(len(self.columns), self.sample)
        return (
            {}
            if found is None
            else dict(zip(("input", "target"), ((self.columns[one],) for one in found), strict=True))
        )

    def remedy(self, *, target: bool) -> dict[str, Any]:
        """The settings of the columns that are likely the input and the target; empty if that is not clear."""
        given = [self.columns.index(name) for name in self.config.target if name in self.columns]
        free = [number for number in range(len(self.columns)) if number not in given or not target]
        if given and target:
            looks = [look_at(number, self.sample) for number in free]
            texts = [look.number for look in looks if look.words >= 2 and not look.dated]
            likely = free if len(free) == 1 else texts
            return {"input": (self.columns[likely[0]],)} if len(likely) == 1 else {}
        inputs, wanted = likely_columns(free, self.sample, target=target)
        found = {"input": tuple(self.columns[number] for number in inputs)} if inputs else {}
        return found if wanted is None else found | {"target": (self.columns[wanted],)}

    def names(self, columns: Sequence[int]) -> str:
        """The names of columns for a message."""
        return " and ".join(f"'{escaped(self.columns[column])}'" for column in columns)


def flagged(guess: str, flag: str) -> str:
    """A suggested name with its flag; empty if there is no suggestion."""
    near = re.fullmatch(r"did you mean '(.*)'\?", guess, re.DOTALL)
    return f"did you mean {flag} {shlex.quote(near[1])}?" if near else ""


def first_row(finder: ColumnFinder) -> str:
    return f"The first row is {shown(finder.sample[0].values)}" if finder.sample else ""


def shown(values: Sequence[Any]) -> str:
    """The first values of a row, in quotes and shortened."""
    cells = [str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}..." for value in values[:6]]
    return ", ".join(f"'{escaped(cell)}'" for cell in cells)


IDS = ("id", "_id", "guid", "idx")
SPLIT_COLUMNS = ("split", "part", "fold", "set")


CellKind = Callable[[ColumnFinder, int], InputKind]  # the kind of input of one column of plain cells
EMBEDDED: tuple[InputKind, ...] = (TextInput(), PairInput(), TripleInput())  # by the number of columns


def find_input(finder: ColumnFinder, needs: "Needs") -> tuple[int, ...]:
    """The input columns by their common names; names that belong together must all be there."""
    together = needs.together
    alone = (names for kind in INPUT_KINDS.values() for names in kind.column_names if kind.num_columns == 1)
    found = next((names for names in (*together, *alone) if all(name in finder.lower for name in names)), None)
    if found is None and not finder.named:
        text = f"{len(finder.columns)} columns without a header; which one is the input? {first_row(finder)}"
        maybe = finder.suggestion() if needs.has_target else {}
        such = " ".join(f"--{name} {shlex.quote(value)}" for name, (value,) in maybe.items()) or "--input 1 --target 2"
        remedy = finder.remedy(target=needs.has_target)
        finder.refuse(text, f"give column numbers, such as {such}", remedy, maybe)
    if found is None:
        row = looks_like_row(finder.columns, finder.sample)
        likely = finder.remedy(target=needs.has_target)
        remedy = {"header": False} if row else likely
        if finder.config.target and likely and not row:  # the only one besides the given target
            fix = f"use --input {shlex.quote(escaped(likely['input'][0]))}"
        else:
            fix = f"give --input NAME --target NAME, or --no-header if this is a row: {shown(finder.columns)}"
        finder.refuse(f"there is no column '{TEXTS[0]}'; found {finder.known()}", fix, remedy)
    inputs = tuple(finder.lower[name] for name in found)
    finder.messages.append(f"input: {finder.names(inputs)} (by name)")
    return inputs


def by_cells(cells: CellKind) -> Callable[[ColumnFinder, tuple[int, ...]], InputKind]:
    """A function that finds the kind of input by the number and content of its columns; `cells` decides plain cells."""

    def kind(finder: ColumnFinder, inputs: tuple[int, ...]) -> InputKind:
        contents, numeric = {finder.content(column) for column in inputs}, all(map(finder.numeric, inputs))
        names = tuple(finder.columns[column].lower() for column in inputs)
        found = tuple(finder.content(column) for column in inputs)
        several = next((kind for kind in INPUT_KINDS.values() if kind.holds_together(names, found)), None)
        if several is not None:
            return several
        paired = names in PairInput.column_names or names[::-1] in PairInput.column_names  # digits in them are text
        if len(inputs) == 2 and contents <= {"text", "nothing"} and (paired or not numeric):
            return PairInput()
        if len(inputs) > 1 and not numeric:
            text = f"{len(inputs)} input columns must be two texts or all numbers. {first_row(finder)}"
            finder.refuse(text, "give one input column, two of text, or only numbers")
        if len(inputs) > 1:
            return VectorsInput()
        (content,) = contents
        matching = next((kind for kind in INPUT_KINDS.values() if kind.holds(names[0], content)), None)
        return matching or cells(finder, inputs[0])

    return kind


def as_text(_finder: ColumnFinder, _column: int) -> InputKind:
    """Text, even if it spells numbers."""
    return TextInput()


def as_words(_finder: ColumnFinder, _column: int) -> InputKind:
    """Words with spaces between them."""
    return WordsInput()


def as_text_or_numbers(finder: ColumnFinder, column: int) -> InputKind:
    """Text, unless the user named a column of numbers that does not have the name of a text column."""
    named, texts = finder.columns[column] in finder.config.input, (*TextInput.column_names, *WordsInput.column_names)
    measured = (finder.columns[column].lower(),) not in texts and bool(finder.sample) and finder.numeric(column)
    return VectorsInput() if named and measured and not finder.coded(column) else TextInput()


def as_anything(finder: ColumnFinder, column: int) -> InputKind:
    """The same without a given task: words, if the column has the name of a words column and there is a column of
    tags.
    """
    words = (finder.columns[column].lower(),) in WordsInput.column_names and finder.first(
        TagsTarget.column_names[:-1]
    ) is not None
    return WordsInput() if words else as_text_or_numbers(finder, column)


def as_texts(finder: ColumnFinder, inputs: tuple[int, ...]) -> InputKind:
    """One, two or three texts, even if they spell numbers."""
    held = {finder.content(column) for column in inputs}
    if len(inputs) > len(EMBEDDED) or not held <= {"text", "number", "nothing"}:
        found = f"{len(inputs)} columns of {' and '.join(sorted(held))}"
        fix = "give --input NAME of a text column, up to three times"
        finder.refuse(f"embed needs one, two or three texts, found {found}", fix)
    return EMBEDDED[len(inputs) - 1]


Found = tuple[tuple[int, ...], TargetKind]


def labels(finder: ColumnFinder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of labels: one in each cell, or several."""
    targets = _one(finder, inputs, LabelTarget.column_names, "label")
    several = finder.content(targets[0]) in ("texts", "vectors") or finder.config.label_separator is not None
    return targets, LabelsTarget() if several else LabelTarget()


def tags(finder: ColumnFinder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of tags."""
    return _one(finder, inputs, TagsTarget.column_names, "tags"), TagsTarget()


def text(finder: ColumnFinder, inputs: tuple[int, ...], _kind: InputKind) -> Found:
    """The column of target texts."""
    return _one(finder, inputs, TextTarget.column_names, "target"), TextTarget()


def numbers(finder: ColumnFinder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """The columns of numbers: per example, or per word or step."""
    usual = (*NumbersTarget.column_names, "label", "target", "y")
    targets = _columns(finder, inputs, usual) or _missing(finder, inputs, "score")
    return targets, SeriesTarget() if _is_series(finder, targets, kind) else NumbersTarget()


def none_of_text(finder: ColumnFinder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """No column: the next token of the text is the target."""
    if not kind.is_text:
        found = f"a language model reads text, but {finder.names(inputs)} is {kind}"
        finder.refuse(found, "give --input NAME of a text column")
    return (), NoTarget()


def none_of_masked(finder: ColumnFinder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """No column: masked words of the text are the target."""
    if not kind.reads_tokens:
        found = f"masked needs text, but {finder.names(inputs)} is {kind}"
        finder.refuse(found, "give --input NAME of a text column")
    return (), MaskedTarget()


def score_of_pair(finder: ColumnFinder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """The score of a pair, if it is given or a column of numbers has the name of a score; else no target."""
    targets = tuple(finder.given(name, "--target") for name in finder.config.target)
    pair = kind.num_columns == 2
    if not targets and pair:
        usual = [
            finder.lower[name]
            for name in SimilarityTarget.column_names
            if finder.lower.get(name) not in (None, *inputs)
        ]
        targets = tuple(column for column in usual if finder.sample and finder.numeric(column))[:1]
        if targets:
            finder.messages.append(f"target: {finder.names(targets)} (by name)")
    if targets and (not pair or len(targets) > 1):
        finder.refuse(
            f"embed with a score needs two input columns and one target, found {len(inputs)} and {len(targets)}",
            "give two --input and one --target, or no --target",
        )
    return targets, SimilarityTarget() if targets else RelatedTarget()


def inferred(finder: ColumnFinder, inputs: tuple[int, ...], kind: InputKind) -> Found:
    """The target without a given task; text alone is for language modeling."""
    tags = TagsTarget.column_names if kind.has_steps else ()
    usual = (*tags, *LabelTarget.column_names, *NumbersTarget.column_names, *TextTarget.column_names)
    targets = _columns(finder, inputs, usual)
    if not targets and kind.is_text and len(finder.columns) == 1:
        return (), NoTarget()
    targets = targets or _missing(finder, inputs, "label")
    name, content = finder.columns[targets[0]].lower(), finder.content(targets[0])
    if finder.config.sequence is not None:
        return targets, TagsTarget()
    if _is_series(finder, targets, kind):
        return targets, SeriesTarget()
    if kind.in_words and name in TagsTarget.column_names[:-1]:
        return targets, TagsTarget()
    if len(targets) > 1:
        return targets, NumbersTarget()
    if content == "texts":
        return targets, TagsTarget() if kind.has_steps else LabelsTarget()
    if finder.config.label_separator is not None:
        return targets, LabelsTarget()
    measured = name in NumbersTarget.column_names and finder.measured(targets[0]) and not finder.counted(targets[0])
    if content == "vectors" or measured or _measures(finder, targets[0]):
        return targets, NumbersTarget()
    written = name in TextTarget.column_names[1:] or (name == "target" and finder.first(SOURCES) is not None)
    written = written or (name not in LabelTarget.column_names[:-2] and finder.written(targets[0]))
    return targets, TextTarget() if content == "text" and written else LabelTarget()


def _columns(finder: ColumnFinder, inputs: tuple[int, ...], names: Sequence[str]) -> tuple[int, ...]:
    """The given target columns, else the first column with a common name that is not an input."""
    if finder.config.target:
        return tuple(finder.given(name, "--target") for name in finder.config.target)
    free = [name for name in names if finder.lower.get(name) not in (None, *inputs)]
    targets = tuple(finder.lower[name] for name in free[:1])
    if targets:
        finder.messages.append(f"target: {finder.names(targets)} (by name)")
    return targets


def _one(finder: ColumnFinder, inputs: tuple[int, ...], names: Sequence[str], wanted: str) -> tuple[int, ...]:
    """The same for a task with exactly one target column."""
    targets = _columns(finder, inputs, names) or _missing(finder, inputs, wanted)
    if len(targets) > 1:
        found = f"{len(targets)} target columns, but the task {finder.config.task} needs one"
        finder.refuse(found, "give one --target, or use --task regress for several numbers")
    return targets


def _missing(finder: ColumnFinder, inputs: tuple[int, ...], wanted: str) -> NoReturn:
    """Raise RejectedError: there is no target column."""
    others = [name for number, name in enumerate(finder.columns) if number not in inputs]
    near = flagged(did_you_mean(wanted, others), "--target") if others else ""
    kept = (*IDS, *SPLIT_COLUMNS)
    free = [number for number, name in enumerate(finder.columns) if name in others and name.lower() not in kept]
    likely = None if near or not free else likely_target(free, finder.sample)
    name = "NAME" if likely is None else shlex.quote(escaped(finder.columns[likely]))
    fix = near or f"give --target {name}, or --task lm for a language model of the text"
    remedy = None if likely is None else {"target": (finder.columns[likely],)}
    finder.refuse(f"there is no column '{wanted}'; found {finder.known()}", fix, remedy)


def _is_series(finder: ColumnFinder, targets: tuple[int, ...], kind: InputKind) -> bool:
    """Whether each word or step has its own numbers.

    It does if the values are nested lists, or if the name of the column says so. Steps of a table are always nested
    lists; then the steps of a sequence must differ.
    """
    values = [record.values[targets[0]] for record in finder.sample]
    listed = [value for value in values if isinstance(value, list | tuple | np.ndarray) and len(value)]
    if len(targets) > 1 or not kind.has_steps or not listed:
        return False
    if finder.columns[targets[0]].lower() in SeriesTarget.column_names and content_of(listed[0]) == "vectors":
        return True
    nested = all(isinstance(value[0], list | tuple | np.ndarray) for value in listed)
    return nested and (finder.config.sequence is None or any(step != value[0] for value in listed for step in value))


def _measures(finder: ColumnFinder, column: int) -> bool:
    """Whether the values are measurements, and not class labels.

    Fractions are measurements, unless only a few different ones repeat. Integers are measurements if few of them repeat
    and the column does not have the name of a label: 0 and 1, or 1 to 5, are labels. Codes such as 007 are labels.
    """
    cells = [record.values[column] for record in finder.sample]
    texts = [cell.strip() for cell in cells if isinstance(cell, str)]
    if not cells or not all(map(is_number, cells)) or any(map(CODE.match, texts)):
        return False
    different = len(set(map(float, cells)))
    if all(float(cell).is_integer() for cell in cells):
        named = finder.columns[column].lower() in LabelTarget.column_names
        return len(cells) >= MANY and 2 * different > len(cells) and not named
    return not texts or different > MANY or 2 * different > len(cells)


class Needs(NamedTuple):
    """How to find the target and the kind of input of a task, and the names of columns that belong together."""

    target: Callable[[ColumnFinder, tuple[int, ...], InputKind], Found]
    input_kind: Callable[[ColumnFinder, tuple[int, ...]], InputKind] = by_cells(as_text)
    together: tuple[tuple[str, ...], ...] = (*GraphInput.column_names, *PairInput.column_names)  # searched in order
    each_step: bool = False  # whether each word, or each step of a sequence, can have its own target
    documents: bool = False  # whether paragraphs of prose can be documents
    numbers: bool = False  # if rows are steps: whether targets are numbers, of one column or several
    has_target: bool = True  # whether a column is the target


NEEDS: dict[Task | None, Needs] = {
    None: Needs(inferred, by_cells(as_anything), each_step=True, documents=True),
    "classify": Needs(labels, by_cells(as_text_or_numbers)),
    "regress": Needs(numbers, by_cells(as_text_or_numbers), numbers=True),
    "tag": Needs(tags, by_cells(as_words), each_step=True),
    "lm": Needs(none_of_text, has_target=False, documents=True),
    "masked": Needs(none_of_masked, has_target=False),
    "translate": Needs(text),
    "embed": Needs(score_of_pair, as_texts, (*TripleInput.column_names, *RELATED, *PairInput.column_names)),
}


SHOWN = 8  # unused columns named in a message
GRAPH_TASKS: tuple[Task, ...] = ("classify", "regress", "tag")


class Roles(NamedTuple):
    """The numbers of the columns of input, target, id and split, and the schema."""

    input: tuple[int, ...]
    target: tuple[int, ...]
    schema: Schema
    id: int | None = None
    split: int | None = None
    spaces: int | None = None  # for words: whether a space follows each
    label_separator: str | None = None
    whole: bool = False  # labels are integers written as floats
    stepped: bool = False  # numbers are one list for each step of a sequence
    messages: tuple[str, ...] = ()  # what was inferred


def find_roles(
    config: DataConfig, columns: Sequence[str], named: bool, sample: Sequence[Record], ledger: Ledger
) -> Roles:
    """Return the roles of the columns of a file; raise RejectedError if they cannot be inferred."""
    finder, needs = ColumnFinder(config, columns, named, sample, ledger), NEEDS[config.task]
    inputs = tuple(finder.given(name, "--input") for name in config.input) or find_input(finder, needs)
    kind = needs.input_kind(finder, inputs)
    targets, target_kind = needs.target(finder, inputs, kind)
    if target_kind.of_steps and not kind.has_steps:
        held = "text" if kind.reads_tokens else kind
        text = f"{target_kind} need words or steps, but the input {finder.names(inputs)} is {held}"
        finder.refuse(text, "give --input NAME of a column of word lists, or another --task")
    schema = Schema(kind, target_kind)
    if schema.task == "classify":
        _warn_of_running_numbers(finder, inputs)
    if kind.has_edges and schema.task not in GRAPH_TASKS:
        text = f"{schema.task} does not read graphs, and {finder.names(inputs)} are one"
        finder.refuse(text, f"use --task {', '.join(GRAPH_TASKS[:-1])} or {GRAPH_TASKS[-1]}")
    if config.task is None:
        finder.messages.append(f"task: {schema.task} ({_reason(finder, targets, target_kind)})")
    if config.id is not None:  # an empty name means no id
        identity = finder.given(config.id, "--id") if config.id else None
    elif (identity := finder.first(IDS)) is not None:
        finder.messages.append(f"id: {finder.names([identity])} (by name; --id '' for none)")
    split = finder.given(config.split.split_column, "--split-column") if isinstance(config.split, ColumnSplit) else None
    if config.split is None and not config.dev and not config.test:
        split = _find_split(finder)
    if isinstance(config.split, RandomSplit | FoldSplit) and config.split.group is not None:
        finder.given(config.split.group, "--group")
    spaces = finder.first(("spaces",)) if kind.in_words else None
    whole = target_kind.has_labels and finder.whole(targets[0])
    others = sorted(set(range(len(columns))) - {*inputs, *targets, identity, split, spaces})
    if others and not (config.input and config.target):  # one of them may be meant
        more = f" and {len(others) - SHOWN:,} others" if len(others) > SHOWN else ""
        finder.messages.append(f"not read: {', '.join(finder.names([column]) for column in others[:SHOWN])}{more}")
    messages, stepped, separator = tuple(finder.messages), config.sequence is not None, config.label_separator
    return Roles(inputs, targets, schema, identity, split, spaces, separator, whole, stepped, messages)


def _warn_of_running_numbers(finder: ColumnFinder, inputs: Sequence[int]) -> None:
    """Warn of inputs that only count the rows: nothing about a label can be learned from them."""
    for column in inputs if "input.running" not in finder.ledger.counts else ():
        if has_running_numbers([record.values[column] for record in finder.sample], column):
            text = (
                f"the input {finder.names([column])} has running numbers, such as ids, which say nothing about labels"
            )
            maybe = finder.suggestion().get("input", ("NAME",))
            fix = f"name the column of the text with --input {shlex.quote(escaped(maybe[0]))}"
            place = Place(finder.sample[0].path, finder.sample[0].line)
            finder.ledger.warn("input.running", text, place, fix, count=0)  # it concerns all rows


def _reason(finder: ColumnFinder, targets: tuple[int, ...], kind: TargetKind) -> str:
    """Why the task was inferred, and the option for another one if the target could be meant otherwise."""
    names = finder.names(targets)
    if kind.measured and all(map(finder.numeric, targets)):
        texts = "" if finder.named else ", --task translate if they are texts"
        return f"{names} has numbers; use --task classify if they are labels{texts}"
    if kind.one_label and finder.sample and finder.numeric(targets[0]) and not finder.coded(targets[0]):
        count = len({record.values[targets[0]] for record in finder.sample})
        usual = count <= 2 and finder.columns[targets[0]].lower() in LabelTarget.column_names  # 0 and 1
        return "from the target" if usual else f"{names} has few different numbers; use --task regress to predict them"
    if kind.is_text and finder.written(targets[0]):
        return f"{names} has texts that rarely repeat; use --task classify if they are labels"
    return "from the target"


def _find_split(finder: ColumnFinder) -> int | None:
    """Return a column with the name of a split column most of whose values are splits; other rows become bad rows."""
    column = finder.first(SPLIT_COLUMNS)
    if column is None:
        return None
    known = sum(str(record.values[column]).lower() in SPLIT_NAMES for record in finder.sample)
    return column if 2 * known > len(finder.sample) else None
