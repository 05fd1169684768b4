"""The options that say what the data is and how it is read: the same for every verb that takes data.

What was not given is left to be inferred; `DataOptions` turns the rest into typed configurations.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Protocol, cast, get_args

import msgspec
import typer

from seqloom.config.data import (
    AnySplit,
    BadRows,
    ColumnSplit,
    DataConfig,
    EncodingConfig,
    FoldSplit,
    Format,
    RandomSplit,
    ReadingConfig,
    Task,
    Unit,
)
from seqloom.config.reading import from_data
from seqloom.config.tokenizers import FittedTokenizer, UnicodeForm
from seqloom.errors import ConfigError

Data = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="A file, a folder, two files of parallel text, or the name of a set."),
]
Dev = Annotated[list[str] | None, typer.Option("--dev", metavar="FILE", help="The dev file; twice for parallel text.")]
Test = Annotated[
    list[str] | None, typer.Option("--test", metavar="FILE", help="The test file; twice for parallel text.")
]
TaskName = Annotated[
    str | None, typer.Option("--task", metavar="NAME", help=f"One of {', '.join(get_args(Task))}; else inferred.")
]
Input = Annotated[
    list[str] | None, typer.Option("--input", metavar="COLUMN", help="The input column; twice for a pair of texts.")
]
Target = Annotated[list[str] | None, typer.Option("--target", metavar="COLUMN", help="The target column.")]
Id = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="A column that names each row.")]
LabelSeparator = Annotated[
    str | None,
    typer.Option("--label-separator", metavar="MARK", help="Cells hold several labels with this between them."),
]
Sequence = Annotated[
    str | None,
    typer.Option("--sequence", metavar="COLUMN", help="Rows that share this column are the steps of one sequence."),
]
FormatName = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help=f"One of {', '.join(get_args(Format))}; else by the extension."),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", metavar="NAME", help="How characters are stored; else utf-8.")
]
Delimiter = Annotated[str | None, typer.Option("--delimiter", metavar="MARK", help="What stands between columns.")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first row names the columns; else it does.")
]
Template = Annotated[
    str | None, typer.Option("--template", metavar="TEXT", help='How lines of text are cut: "{label} {text}".')
]
UnitName = Annotated[
    str | None,
    typer.Option("--unit", metavar="NAME", help=f"What one row of text is: {', '.join(get_args(Unit))}; else a line."),
]
SplitColumn = Annotated[
    str | None, typer.Option("--split-column", metavar="COLUMN", help="A column that says train, dev or test.")
]
Shares = Annotated[
    str | None, typer.Option("--shares", metavar="DEV,TEST", help="What is drawn for dev and test, such as 10%,10%.")
]
Folds = Annotated[
    str | None, typer.Option("--fold", metavar="NUMBER/COUNT", help="One of k folds as dev, such as 0/5.")
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="COLUMN", help="Rows that share this column stay in one part.")
]
Seed = Annotated[int, typer.Option("--split-seed", metavar="NUMBER", help="The seed of the drawn parts.")]
BadRowsRule = Annotated[
    str | None,
    typer.Option(
        "--bad-rows", metavar="RULE", help="strict, or skip to read over bad rows; else the run's rule, or strict."
    ),
]
MaxBad = Annotated[
    str | None, typer.Option("--max-bad", metavar="SHARE", help="The share of bad rows that may be skipped; else 0.1%.")
]
Tokeniser = Annotated[
    str, typer.Option("--tokenizer", metavar="KIND", help="words, characters, bytes, bpe or unigram.")
]
Vocabulary = Annotated[
    int | None, typer.Option("--vocabulary", metavar="COUNT", help="The most symbols of the tokeniser.")
]
WordSplit = Annotated[
    str,
    typer.Option("--word-split", metavar="RULE", help="Words end at punctuation, or only at space (text cut before)."),
]
Least = Annotated[
    int | None,
    typer.Option("--least", metavar="COUNT", help="How often a word or character must occur, else it is unknown."),
]
Lower = Annotated[bool, typer.Option("--lower", help="Lower-case the text.")]
Unicode = Annotated[
    str, typer.Option("--unicode", metavar="FORM", help=f"The form of the text: {', '.join(get_args(UnicodeForm))}.")
]
Longest = Annotated[
    int, typer.Option("--longest", metavar="COUNT", help="The most symbols, words or steps of one input.")
]
TooLong = Annotated[str, typer.Option("--too-long", metavar="RULE", help="cut what is longer, or refuse it.")]

FLAGS = {"limit": "--vocabulary", "least": "--least", "split": "--word-split", "longest": "--longest"}
FLAGS |= {"too_long": "--too-long", "unicode": "--unicode"}
FLAGS |= {"format": "--format", "unit": "--unit", "task": "--task", "seed": "--split-seed"}  # by the names of settings


@contextmanager
def flags_named() -> Iterator[None]:
    """Inside, a setting that is refused is called by the flag that people typed."""
    try:
        yield
    except ConfigError as error:
        place, colon, rest = error.problem.partition(": ")
        flag = FLAGS.get(place.rpartition(".")[2])
        raise (ConfigError(f"{flag}: {rest}", fix=error.fix) if colon and flag else error) from None


def share(text: str, flag: str) -> float:
    """The number that a share such as `0.1%` or `0.001` means.

    >>> share("0.1%", "--max-bad"), share("0.25", "--max-bad")
    (0.001, 0.25)
    """
    try:
        number = float(Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1))  # 0.7% is 7 / 1000 exactly
    except (ArithmeticError, ValueError):
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(f"{flag} {text!r} is no share", fix="write it like 0.1% or 0.001")
    return number


def bad_rows(rule: str | None, most: str | None, usual: BadRows = BadRows()) -> BadRows:  # noqa: B008  # frozen
    """How bad rows are treated: as is said, else as usual."""
    if rule not in (None, "strict", "skip"):
        raise ConfigError(f"--bad-rows {rule!r}", fix="choose from strict, skip")
    return BadRows(
        skip=usual.skip if rule is None else rule == "skip",
        share=usual.share if most is None else share(most, "--max-bad"),
    )


def split(column: str | None, shares: str | None, fold: str | None, group: str | None, seed: int) -> AnySplit | None:
    """The rule that divides the rows; None where nothing was said about it."""
    if sum(option is not None for option in (column, shares, fold)) > 1:
        raise ConfigError("--split-column, --shares and --fold exclude one another", fix="give one of them")
    if column is not None:
        if group is not None:
            raise ConfigError("--group is for parts that are drawn", fix="leave it or --split-column out")
        return ColumnSplit(column=column)
    if fold is not None:
        number, _, folds = fold.partition("/")
        if not (number.isdecimal() and folds.isdecimal()):
            raise ConfigError(f"--fold {fold!r} is no fold", fix="write it like 0/5")
        return FoldSplit(folds=int(folds), fold=int(number), seed=seed, group=group)
    if shares is None and group is None and seed == 0:
        return None
    dev, _, test = (shares or "10%,10%").partition(",")
    return RandomSplit(dev=share(dev, "--shares"), test=share(test or "0", "--shares"), seed=seed, group=group)


class ReadingOptions(Protocol):
    """The options about how files are read, which several verbs have; what was not given is None."""

    @property
    def format_(self) -> str | None: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def delimiter(self) -> str | None: ...
    @property
    def header(self) -> bool | None: ...
    @property
    def template(self) -> str | None: ...
    @property
    def unit(self) -> str | None: ...


def reading_settings(options: ReadingOptions) -> dict[str, Any]:
    """The settings of `ReadingConfig` that were given, checked."""
    settings = {"format": options.format_, "encoding": options.encoding, "header": options.header, "unit": options.unit}
    settings |= {"delimiter": unescaped(options.delimiter), "template": unescaped(options.template)}
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    with flags_named():
        ReadingConfig(**given)
    return given


def encoding_config(
    kind: str,
    vocabulary: int | None,
    least: int | None,
    word_split: str,
    lower: bool,
    unicode: str,
    longest: int,
    too_long: str,
) -> EncodingConfig:
    """How examples become numbers."""
    settings: dict[str, Any] = {"kind": kind, "lower": lower, "unicode": unicode}
    if word_split != "punctuation":
        if kind != "words":
            raise ConfigError(f"--word-split {word_split}: a tokeniser of {kind} has no words", fix="leave it out")
        settings["split"] = word_split
    tokenizer = from_data(settings, FittedTokenizer)
    limits = {name: value for name, value in (("limit", vocabulary), ("least", least)) if value is not None}
    for name in limits:
        if name not in tokenizer.__struct_fields__:
            raise ConfigError(f"a tokeniser of {kind} has no {name}", fix=f"leave {FLAGS[name]} out")
    if limits:
        tokenizer = from_data(settings | limits, FittedTokenizer)
    return EncodingConfig(tokenizer=tokenizer, longest=longest, too_long=cast(Any, too_long))


def unescaped(mark: str | None) -> str | None:
    r"""A delimiter as it is typed: `\t` is a tab."""
    return None if mark is None else mark.replace("\\t", "\t")


ENCODING = ("tokenizer", "vocabulary", "least", "word_split", "lower", "unicode", "longest", "too_long")


class DataOptions(NamedTuple):
    """What a verb that trains is told about its data, in the order of its help."""

    dev: Dev = None
    test: Test = None
    task: TaskName = None
    input_: Input = None
    target: Target = None
    id_: Id = None
    label_separator: LabelSeparator = None
    sequence: Sequence = None
    format_: FormatName = None
    encoding: Encoding = None
    delimiter: Delimiter = None
    header: Header = None
    template: Template = None
    unit: UnitName = None
    split_column: SplitColumn = None
    shares: Shares = None
    fold: Folds = None
    group: Group = None
    split_seed: Seed = 0
    bad_rows: BadRowsRule = None
    max_bad: MaxBad = None
    tokenizer: Tokeniser = "words"
    vocabulary: Vocabulary = None
    least: Least = None
    word_split: WordSplit = "punctuation"
    lower: Lower = False
    unicode: Unicode = "as-is"
    longest: Longest = 2**20
    too_long: TooLong = "cut"

    def data(self, train: list[str], before: DataConfig | None = None) -> DataConfig:
        """What the data in these files is, and how it is divided; what was not given is as it was `before`."""
        usual = DataConfig(train=tuple(train)) if before is None else before
        reading = msgspec.structs.replace(usual.reading, **reading_settings(self))
        with flags_named():
            settings: dict[str, Any] = {
                "dev": self.dev,
                "test": self.test,
                "task": self.task,
                "input": self.input_,
                "target": self.target,
                "id": self.id_,
                "label_separator": self.label_separator,
                "sequence": self.sequence,
                "split": split(self.split_column, self.shares, self.fold, self.group, self.split_seed),
                "bad_rows": bad_rows(self.bad_rows, self.max_bad, usual.bad_rows),
            }
            given = {name: value for name, value in settings.items() if value is not None}
            return msgspec.structs.replace(usual, train=tuple(train), reading=reading, **given)

    def encoded(self, given: Collection[str]) -> EncodingConfig | None:
        """How examples become numbers; None, which is by the task, where no option about it was given."""
        with flags_named():
            how = encoding_config(*(getattr(self, name) for name in ENCODING))
        return how if set(ENCODING) & set(given) else None


class FileOptions(NamedTuple):
    """What a verb that asks a model is told about one file, and about the machine."""

    input_: Input = None
    format_: FormatName = None
    encoding: Encoding = None
    delimiter: Delimiter = None
    header: Header = None
    template: Template = None
    unit: UnitName = None
    budget: Annotated[int | None, typer.Option("--budget", min=1, metavar="COUNT", help="Symbols in one batch.")] = None
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto"

    def reading(self) -> ReadingConfig:
        """How the file is read."""
        return ReadingConfig(**reading_settings(self))
