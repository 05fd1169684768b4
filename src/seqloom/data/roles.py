"""Which column means what: given by the user, or found by name and content, and said aloud.

Names are compared without regard to case. A file in which no name fits is refused with what was found and the flags to
use; a column is never taken because it happens to be the only one left.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from seqloom.config.data import ColumnSplit, DataConfig, FoldSplit, RandomSplit, Task
from seqloom.data.problems import Ledger, Place, escaped
from seqloom.data.schema import InputKind, Part, Schema, TargetKind
from seqloom.data.tables import Record
from seqloom.data.values import Content, content_of, is_number, whole_floats
from seqloom.errors import did_you_mean

# In the order in which they are looked for.
PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
)
TRIPLES = (("anchor", "positive", "negative"), ("query", "positive", "negative"))
RELATED = (("anchor", "positive"), ("query", "positive"), ("query", "answer"), ("question", "answer"))
TEXTS = ("text", "sentence", "review", "question", "content", "comment", "message", "tweet", "utterance", "document")
WORDS = ("tokens", "words")
ARRAYS = ("vectors", "frames", "picture", "image")
SOURCES = ("source", "src", "input")
TRANSLATIONS = ("target", "tgt", "translation", "output", "caption")
TAGS = ("tags", "ner_tags", "pos_tags", "upos", "labels")
LABELS = ("label", "labels", "class", "category", "sentiment", "intent", "topic", "target", "y")
NUMBERS = ("score", "rating", "similarity", "number", "numbers", "value", "series")
SERIES = ("series",)
SCORES = ("score", "similarity", "rating")
EMBEDDED: tuple[InputKind, ...] = ("text", "pair", "triple")  # by the number of columns
IDS = ("id", "_id", "guid", "idx")
SPLITS = ("split", "part", "fold", "set")
CODE = re.compile(r"[+-]?0\d")
MANY = 20  # different numbers that are no names of classes any more; so many rows may well have a label each
SHOWN = 8  # columns that are named as not read
PART_NAMES: dict[str, Part] = {
    "train": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "val": "dev",
    "test": "test",
}


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


class _Finder:
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
            self.refuse(f"no column '{name}'; found {self.known()}", _flagged(near, flag) or f"{flag} one of these")
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


def _flagged(guess: str, flag: str) -> str:
    """A guess at a name as the flag to give; nothing where there was no guess."""
    return guess.replace("did you mean '", f"did you mean {flag} '") if "did you" in guess else ""


def find_roles(
    config: DataConfig, columns: Sequence[str], named: bool, sample: Sequence[Record], ledger: Ledger
) -> Roles:
    """What the columns of a file mean; RejectedError names what was found if that cannot be said."""
    finder = _Finder(config, columns, named, sample, ledger)
    inputs = tuple(finder.given(name, "--input") for name in config.input) or _find_input(finder)
    kind = _input_kind(finder, inputs)
    targets, target_kind = _find_target(finder, inputs, kind)
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


def _why(finder: _Finder, targets: tuple[int, ...], kind: TargetKind) -> str:
    """What the task was inferred from, for people."""
    if kind == "numbers" and all(map(finder.numeric, targets)):
        return f"the cells of {finder.names(targets)} are numbers; with --task classify each would be a name"
    return "from the target"


def _passed_over(finder: _Finder, used: set[int | None]) -> str:
    """Which columns say nothing to the model, for one of them may be meant; nothing where all were named."""
    others = [number for number in range(len(finder.columns)) if number not in used]
    if not others or (finder.config.input and finder.config.target):
        return ""
    more = f" and {len(others) - SHOWN:,} others" if len(others) > SHOWN else ""
    return f"not read: {', '.join(finder.names([column]) for column in others[:SHOWN])}{more}"


def _find_input(finder: _Finder) -> tuple[int, ...]:
    together = (*TRIPLES, *RELATED, *PAIRS) if finder.config.task == "embed" else PAIRS
    found = next((names for names in together if all(name in finder.lower for name in names)), None)
    if found is not None:
        inputs: tuple[int, ...] = tuple(finder.lower[name] for name in found)
    elif (one := finder.first((*WORDS, *ARRAYS, *TEXTS, *SOURCES))) is not None:
        inputs = (one,)
    elif not finder.named:
        finder.refuse(
            f"{len(finder.columns)} columns without a header; which is the input? {_first_row(finder)}",
            "--input 1 --target 2, by number",
        )
    else:
        finder.refuse(
            f"no column '{TEXTS[0]}'; found {finder.known()}",
            _only_other(finder)
            or f"--input NAME --target NAME, or --no-header if this is data: {_shown(finder.columns)}",
        )
    finder.said.append(f"input: {finder.names(inputs)} (by name)")
    return inputs


def _only_other(finder: _Finder) -> str:
    """The option that names the one column that is left beside a target that the user named."""
    others = [name for name in finder.columns if name not in finder.config.target]
    return f"--input '{escaped(others[0])}'" if finder.config.target and len(others) == 1 else ""


def _first_row(finder: _Finder) -> str:
    return f"The first row is {_shown(finder.sample[0].values)}" if finder.sample else ""


def _shown(values: Sequence[Any]) -> str:
    """The first values of a row in quotes, cut short."""
    cells = [str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}..." for value in values[:6]]
    return ", ".join(f"'{escaped(cell)}'" for cell in cells)


def _input_kind(finder: _Finder, inputs: tuple[int, ...]) -> InputKind:
    if finder.config.task == "embed":
        return _embedded_kind(finder, inputs)
    contents, numeric = {finder.content(column) for column in inputs}, all(map(finder.numeric, inputs))
    if len(inputs) == 2 and contents <= {"text", "nothing"} and (_named_pair(finder, inputs) or not numeric):
        return "pair"
    if len(inputs) > 1:
        if not numeric:
            finder.refuse(
                f"{len(inputs)} input columns are two texts or all numbers; found {_first_row(finder)}",
                "give one column, two of text, or numeric ones",
            )
        return "vectors"
    if finder.columns[inputs[0]].lower() in ("picture", "image") and contents <= {"text", "picture"}:
        return "picture"
    (content,) = contents
    kinds: dict[Content, InputKind] = {"texts": "words", "vectors": "vectors", "picture": "picture"}
    if content == "number" or (content == "text" and _meant_as_number(finder, inputs[0])):
        return "vectors"
    named_words = finder.columns[inputs[0]].lower() in WORDS and finder.first(TAGS[:-1]) is not None
    if finder.config.task == "tag" or (finder.config.task is None and named_words):
        return kinds.get(content, "words")  # of text: cells of words with spaces between them
    return kinds.get(content, "text")


def _embedded_kind(finder: _Finder, inputs: tuple[int, ...]) -> InputKind:
    """One text, two or three: whatever their cells look like, they are text."""
    held = {finder.content(column) for column in inputs}
    if len(inputs) > len(EMBEDDED) or not held <= {"text", "number", "nothing"}:
        found = f"{len(inputs)} columns of {' and '.join(sorted(held))}"
        finder.refuse(f"embed reads one text, two or three, found {found}", "--input NAME of a text, up to three times")
    return EMBEDDED[len(inputs) - 1]


def _embedded_target(finder: _Finder, inputs: tuple[int, ...], kind: InputKind) -> tuple[tuple[int, ...], TargetKind]:
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


def _named_pair(finder: _Finder, inputs: tuple[int, ...]) -> bool:
    """Whether two columns are called as pairs of texts are: then digits in them are text."""
    return tuple(finder.columns[column].lower() for column in inputs) in (*PAIRS, *(pair[::-1] for pair in PAIRS))


def _meant_as_number(finder: _Finder, column: int) -> bool:
    """Whether a column that the user named holds numbers and nothing says that they are text."""
    named = column in (finder.columns.index(name) for name in finder.config.input)
    texts = (*TEXTS, *SOURCES, *WORDS)
    usual = finder.config.task in (None, "classify", "regress") and finder.columns[column].lower() not in texts
    return named and usual and bool(finder.sample) and finder.numeric(column)


def _find_target(finder: _Finder, inputs: tuple[int, ...], kind: InputKind) -> tuple[tuple[int, ...], TargetKind]:
    if finder.config.task == "embed":
        return _embedded_target(finder, inputs, kind)
    if finder.config.task == "masked":
        if kind not in ("text", "pair", "words"):
            finder.refuse(
                f"masked hides words of a text, and {finder.names(inputs)} holds {kind}", "--input NAME of a text"
            )
        return (), "masked"
    if finder.config.task == "lm":
        if kind != "text":
            finder.refuse(
                f"a language model reads text, and {finder.names(inputs)} holds {kind}", "--input NAME of a text"
            )
        return (), "nothing"
    if finder.config.target:
        targets = tuple(finder.given(name, "--target") for name in finder.config.target)
    else:
        found = _target_by_name(finder, inputs, kind)
        if found is None:
            return _without_target(finder, inputs, kind)
        targets = (found,)
        finder.said.append(f"target: {finder.names(targets)} (by name)")
    return targets, _target_kind(finder, targets, kind)


def _target_by_name(finder: _Finder, inputs: tuple[int, ...], kind: InputKind) -> int | None:
    names: dict[Task | None, tuple[str, ...]] = {
        "classify": LABELS,
        "regress": (*NUMBERS, "label", "target", "y"),
        "tag": TAGS,
        "translate": TRANSLATIONS,
        None: (*(TAGS if kind in ("words", "vectors") else ()), *LABELS, *NUMBERS, *TRANSLATIONS),
    }
    free = [name for name in names[finder.config.task] if finder.lower.get(name) not in (None, *inputs)]
    return finder.lower[free[0]] if free else None


def _without_target(finder: _Finder, inputs: tuple[int, ...], kind: InputKind) -> tuple[tuple[int, ...], TargetKind]:
    """Text alone is for language modelling; anything else without a target has a column missing."""
    if kind != "text" or finder.config.task is not None or len(finder.columns) > 1:
        wanted = {"regress": "score", "tag": "tags", "translate": "target"}.get(finder.config.task or "", "label")
        others = [name for number, name in enumerate(finder.columns) if number not in inputs]
        near = _flagged(did_you_mean(wanted, others), "--target") if others else ""
        fix = near or "--target NAME, or --task lm to model the text alone"
        finder.refuse(f"no column '{wanted}'; found {finder.known()}", fix)
    return (), "nothing"


def _target_kind(finder: _Finder, targets: tuple[int, ...], kind: InputKind) -> TargetKind:
    task, content = finder.config.task, finder.content(targets[0])
    if len(targets) > 1 and task not in (None, "regress"):
        finder.refuse(f"{len(targets)} target columns are for regress, and the task is {task}", "give one --target")
    if task == "tag" or (task is None and finder.config.sequence is not None):
        return "tags"
    if task in (None, "regress") and _is_series(finder, targets, kind):
        return "series"
    if task in ("regress", "translate"):
        return "numbers" if task == "regress" else "text"
    if kind == "words" and task is None and finder.columns[targets[0]].lower() in TAGS[:-1]:
        return "tags"
    if len(targets) > 1:
        return "numbers"
    name = finder.columns[targets[0]].lower()
    if content == "texts" or (content == "vectors" and task == "classify"):
        return "tags" if kind in ("words", "vectors") and task is None else "labels"
    if finder.config.label_separator is not None:
        return "labels"
    if task == "classify":
        return "label"
    if content == "vectors" or (name in NUMBERS and finder.measured(targets[0])) or _measures(finder, targets[0]):
        return "numbers"
    if content == "text" and (name in TRANSLATIONS[1:] or (name == "target" and finder.first(SOURCES) is not None)):
        return "text"
    return "label"


def _is_series(finder: _Finder, targets: tuple[int, ...], kind: InputKind) -> bool:
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


def _measures(finder: _Finder, column: int) -> bool:
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


def _find_id(finder: _Finder) -> int | None:
    """The column that names the rows; an empty name says that there is none."""
    if finder.config.id is not None:
        return finder.given(finder.config.id, "--id") if finder.config.id else None
    column = finder.first(IDS)
    if column is not None:
        finder.said.append(f"id: {finder.names([column])} (by name; --id '' to name none)")
    return column


def _find_split(finder: _Finder) -> int | None:
    """A column named for it whose values name parts, most of them; the others are then told as bad rows."""
    column = finder.first(SPLITS)
    if column is None:
        return None
    known = sum(str(record.values[column]).lower() in PART_NAMES for record in finder.sample)
    return column if 2 * known > len(finder.sample) else None
