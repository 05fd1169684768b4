"""Data: which files, how they are read, which columns mean what, and how they are divided."""

from decimal import Decimal
from typing import Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config, Length, Rate
from seqloom.config.options import Flag
from seqloom.config.tokenizers import FittedTokenizer, WordsConfig
from seqloom.errors import ConfigError

Task = Literal["classify", "regress", "tag", "lm", "masked", "translate", "embed"]
Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")
Format = Literal["csv", "tsv", "jsonl", "parquet", "conll", "conllu", "text", "parallel", "folder", "npz"]
Unit = Literal["line", "paragraph", "file"]
Name = Annotated[str, Meta(max_length=4_096, examples=["text"])]
NameList = Annotated[tuple[Name, ...], Meta(max_length=1_024, examples=[("text",)])]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, examples=[0])]
Folds = Annotated[int, Meta(ge=2, le=1_000, examples=[5])]
Fold = Annotated[int, Meta(ge=0, le=999, examples=[0])]
Share = Annotated[float, Meta(ge=0.0, le=1.0, examples=[0.0])]


def share_of(text: str) -> float:
    """The number that a share such as `0.1%` or `0.001` means.

    >>> share_of("0.1%"), share_of("0.25")
    (0.001, 0.25)
    """
    try:
        number = float(Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1))  # 0.7% is 7 / 1000 exactly
    except (ArithmeticError, ValueError):
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(f"{text!r} is no share", fix="write it like 0.1% or 0.001")
    return number


def _shares(text: str) -> dict[str, float]:
    """What is drawn for dev and for test, nothing where only one is said."""
    dev, _, test = text.partition(",")
    return {"dev": share_of(dev), "test": share_of(test or "0")}


def _fold(text: str) -> dict[str, int]:
    """One of several folds, counted from 0."""
    number, _, folds = text.partition("/")
    if not (number.isdecimal() and folds.isdecimal()):
        raise ConfigError(f"{text!r} is no fold", fix="write it like 0/5")
    return {"fold": int(number), "folds": int(folds)}


def _skips(rule: str) -> bool:
    """Whether a rule reads over bad rows."""
    if rule not in ("strict", "skip"):
        raise ConfigError(repr(rule), fix="choose from strict, skip")
    return rule == "skip"


def _unescaped(mark: str) -> str:
    r"""A mark as it is typed: `\t` is a tab."""
    return mark.replace("\\t", "\t")


class ReadingConfig(Config, tag="reading", kw_only=True):
    """How a file is read. Nothing is guessed: the extension decides, and what does not fit is refused."""

    format: Annotated[Format | None, Flag("One of {names}; else by the extension.", "NAME")] = None
    encoding: Annotated[Name, Flag("How characters are stored; else utf-8.", "NAME")] = "utf-8"
    # Of csv and conll; None: the format's own.
    delimiter: Annotated[Name | None, Flag("What stands between columns.", "MARK", parse=_unescaped)] = None
    header: Annotated[
        bool, Flag("Whether the first row names the columns; else it does.", name="--header/--no-header")
    ] = True
    # Lines are cut at the marks between the names.
    template: Annotated[Name | None, Flag('How lines of text are cut: "{label} {text}".', "TEXT", parse=_unescaped)] = (
        None
    )
    unit: Annotated[Unit, Flag("What one row of text is: {names}; else a line.", "NAME")] = "line"


class BadRows(Config, tag="bad-rows", kw_only=True):
    """How many bad rows are read over: by default not one."""

    skip: Annotated[
        bool,
        Flag(
            "strict, or skip to read over bad rows; else the run's rule, or strict.",
            "RULE",
            name="--bad-rows",
            parse=_skips,
            write=lambda rows: "skip" if rows.skip else "strict",
            free=True,
        ),
    ] = False
    share: Annotated[
        Share,
        Flag(
            "The share of bad rows that may be skipped; else 0.1%.",
            "SHARE",
            name="--max-bad",
            parse=share_of,
            free=True,
        ),
    ] = 0.001  # of all rows; more than that is refused even when skipping


class GivenSplit(Config, tag="given", kw_only=True):
    """The files are the parts."""


class ColumnSplit(Config, tag="column", kw_only=True):
    """A column names the part of each row: train, dev (valid, validation) or test."""

    column: Annotated[Name, Flag("A column that says train, dev or test.", "COLUMN", name="--split-column")]


SPLIT_SEED = Flag("The seed of the drawn parts.", "NUMBER", name="--split-seed", shown=True)
GROUP = Flag("Rows that share this column stay in one part.", "COLUMN")


class RandomSplit(Config, tag="random", kw_only=True):
    """Rows drawn by a seed, each class in the same shares; rows of one group never fall in two parts."""

    dev: Annotated[
        Rate,
        Flag(
            "What is drawn for dev and test, such as 10%,10%.",
            "DEV,TEST",
            name="--shares",
            parse=_shares,
            write=lambda split: f"{split.dev},{split.test}",
        ),
    ] = 0.1
    test: Rate = 0.1
    seed: Annotated[Seed, SPLIT_SEED] = 0
    group: Annotated[Name | None, GROUP] = None

    def check(self) -> None:
        if self.dev + self.test >= 1:
            raise ConfigError(f"dev {self.dev:g} and test {self.test:g} leave nothing to train on", fix="lower one")


class FoldSplit(Config, tag="fold", kw_only=True):
    """One of k parts is the dev set, the others train: for cross-validation."""

    folds: Folds = 5
    fold: Annotated[
        Fold,
        Flag(
            "One of k folds as dev, such as 0/5.",
            "FOLD/FOLDS",
            parse=_fold,
            write=lambda split: f"{split.fold}/{split.folds}",
        ),
    ] = 0
    seed: Annotated[Seed, SPLIT_SEED] = 0
    group: Annotated[Name | None, GROUP] = None

    def check(self) -> None:
        if self.fold >= self.folds:
            raise ConfigError(f"fold {self.fold} of {self.folds}", fix=f"folds are 0..{self.folds - 1}")


AnySplit = GivenSplit | ColumnSplit | RandomSplit | FoldSplit


class DataConfig(Config, tag="data", kw_only=True):
    """Files, how to read them, what their columns mean, and the parts. What is None is inferred and said aloud."""

    train: NameList  # one path; two for parallel text; or the name of a known set
    dev: Annotated[NameList, Flag("The dev file; twice for parallel text.", "FILE")] = ()
    test: Annotated[NameList, Flag("The test file; twice for parallel text.", "FILE")] = ()
    reading: Annotated[ReadingConfig, Flag()] = ReadingConfig()
    task: Annotated[Task | None, Flag("One of {names}; else inferred.", "NAME")] = None
    # Several numeric columns are one vector.
    input: Annotated[NameList, Flag("The input column; twice for a pair of texts.", "COLUMN")] = ()
    target: Annotated[NameList, Flag("The target column.", "COLUMN")] = ()
    # Empty: no row has a name, even if a column is called so.
    id: Annotated[Name | None, Flag("A column that names each row.", "COLUMN")] = None
    label_separator: Annotated[Name | None, Flag("Cells hold several labels with this between them.", "MARK")] = None
    # Neighbouring rows.
    sequence: Annotated[Name | None, Flag("Rows that share this column are the steps of one sequence.", "COLUMN")] = (
        None
    )
    split: Annotated[AnySplit | None, Flag(says="how rows are divided")] = None
    bad_rows: Annotated[BadRows, Flag()] = BadRows()


class VectorFileConfig(Config, tag="vector-file", kw_only=True):
    """Pretrained word vectors that the model starts from; a run that has begun does not need the file any more."""

    path: Name
    words: Annotated[int, Meta(ge=0, le=2**24, examples=[2])] = 100_000  # first ones that join the vocabulary


class EncodingConfig(Config, tag="encoding", kw_only=True):
    """How examples become numbers. A target text has the tokeniser of the input unless another is named."""

    tokenizer: Annotated[FittedTokenizer, Flag("words, characters, bytes, bpe or unigram.", "KIND", shown=True)] = (
        WordsConfig()
    )
    target_tokenizer: FittedTokenizer | None = None
    # Also of one target text.
    longest: Annotated[Length, Flag("The most symbols, words or steps of one input.", "COUNT", shown=True)] = 2**20
    too_long: Annotated[Literal["cut", "refuse"], Flag("cut what is longer, or refuse it.", "RULE", shown=True)] = "cut"
    vectors: VectorFileConfig | None = None
