"""Data: the files, how they are read, their columns, and the split."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from seqloom.config.base import Config, Length, Rate
from seqloom.config.options import COLUMNS, FILES, SETS, TOKENS, Flag, said, settings
from seqloom.config.tokenizers import FittedTokenizer, WordsConfig
from seqloom.errors import ConfigError, did_you_mean

Task = Literal["classify", "regress", "tag", "lm", "masked", "translate", "embed"]
SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")
Format = Literal["csv", "tsv", "jsonl", "parquet", "conll", "conllu", "text", "parallel", "folder", "npz"]
Overlong = Literal["truncate", "error"]
Unit = Literal["line", "paragraph", "file"]
Name = Annotated[str, Meta(max_length=4_096, examples=["text"])]
NameList = Annotated[tuple[Name, ...], Meta(max_length=1_024, examples=[("text",)])]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, examples=[0])]
Folds = Annotated[int, Meta(ge=2, le=1_000, examples=[5])]
Fold = Annotated[int, Meta(ge=0, le=999, examples=[0])]
Share = Annotated[float, Meta(ge=0.0, le=1.0, examples=[0.0])]


def share_of(text: str) -> float:
    """The number of a share such as `0.1%` or `0.001`.

    >>> share_of("0.1%"), share_of("0.25")
    (0.001, 0.25)
    """
    try:
        number = float(Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1))  # 0.7% is 7 / 1000 exactly
    except (ArithmeticError, ValueError):
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(f"{text!r} is not a fraction", fix="write it like 0.1% or 0.001")
    return number


def percent_of(share: float) -> str:
    """A share as users type it, rounded to a millionth.

    >>> percent_of(0.001), percent_of(0.0022)
    ('0.1%', '0.22%')
    """
    return f"{share * 100:.4f}".rstrip("0").rstrip(".") + "%"


def _tokenizer(name: str) -> FittedTokenizer:
    """The tokenizer of this name with its defaults."""
    kinds = {kind.kind(): kind for kind in get_args(FittedTokenizer)}
    if name not in kinds:
        raise ConfigError(repr(name), fix=did_you_mean(name, kinds))
    made: FittedTokenizer = kinds[name]()
    return made


def _unescaped(mark: str) -> str:
    r"""A mark as it is typed: `\t` is a tab."""
    return mark.replace("\\t", "\t")


class ReadingConfig(Config, tag="reading", kw_only=True):
    """How a file is read. The suffix decides, and content that does not match is an error.

    Only in .txt files, words with tags and paragraphs of prose are recognized (`data/readers/guess.py`).
    """

    format: Annotated[
        Format | None,
        Flag(
            "File format: {names}; parallel is two text files with one text per line, folder is a folder with a "
            "subfolder for each label, npz is a file of NumPy arrays (default: by the file extension).",
            "NAME",
            FILES,
        ),
    ] = None
    encoding: Annotated[Name, Flag("Character encoding of the file (default: utf-8).", "NAME", FILES)] = "utf-8"
    # Of csv and conll; None: the format's own.
    delimiter: Annotated[
        Name | None,
        Flag(
            "Column delimiter (default: a comma for csv, a tab for tsv, spaces for conll).",
            "TEXT",
            FILES,
            parse=_unescaped,
        ),
    ] = None
    header: Annotated[
        bool,
        Flag("Whether the first row contains the column names (default: --header).", panel=FILES, negatable=True),
    ] = True
    # Lines are split at the marks between the names.
    template: Annotated[
        Name | None,
        Flag(
            'How to split each line of a text file into columns, such as "{label} {text}" '
            "(default: the whole line is the text).",
            "TEXT",
            FILES,
            parse=_unescaped,
        ),
    ] = None
    # None: lines, or paragraphs of prose.
    unit: Annotated[
        Unit | None,
        Flag(
            "What one row of a text file is: {names} (default: paragraph for a language model of prose with blank "
            "lines between paragraphs, else line).",
            "NAME",
            FILES,
        ),
    ] = None


class BadRows(Config, tag="bad-rows", kw_only=True):
    """Whether bad rows are skipped, and how many; by default they are errors."""

    skip_bad_rows: Annotated[
        bool,
        Flag(
            "Skip rows that cannot be used, such as rows with a wrong number of columns, an empty input or an "
            "empty label, and list them, instead of stopping with an error (default: --no-skip-bad-rows).",
            panel=FILES,
            negatable=True,
            changeable=True,
        ),
    ] = False
    max_bad_rows: Annotated[
        Share,
        Flag(
            "With --skip-bad-rows, still stop if more than this fraction of the rows is bad, such as 0.01 or 1% "
            "(default: 0.1%).",
            "FRACTION",
            FILES,
            parse=share_of,
            typed=percent_of,
            changeable=True,
        ),
    ] = 0.001


# For a look at the rows: those that are bad are reported when all is read.
ANY_ROWS = BadRows(skip_bad_rows=True, max_bad_rows=1.0)


class GivenSplit(Config, tag="given", kw_only=True):
    """Each split has its own file."""


class ColumnSplit(Config, tag="column", kw_only=True):
    """A column names the split of each row: train, dev (valid, validation) or test."""

    split_column: Annotated[
        Name,
        Flag(
            "Column that contains train, dev or test for each row (default: a column called split, if there is one).",
            "COLUMN",
            SETS,
        ),
    ]


SPLIT_SEED = Flag("Random seed for the split (default: 0).", "NUMBER", SETS)
GROUP = Flag(
    "Put all rows with the same value in this column into the same split (default: rows are split one by one).",
    "COLUMN",
    SETS,
)


class RandomSplit(Config, tag="random", kw_only=True):
    """A random split, stratified by class; rows of one group are never split."""

    dev_size: Annotated[
        Rate,
        Flag(
            "Fraction of the rows for the dev (validation) set, such as 0.1 or 10% (default: 10%).",
            "FRACTION",
            SETS,
            parse=share_of,
        ),
    ] = 0.1
    test_size: Annotated[
        Rate,
        Flag(
            "Fraction of the rows for the test set, such as 0.1 or 10% (default: 10%).",
            "FRACTION",
            SETS,
            parse=share_of,
        ),
    ] = 0.1
    split_seed: Annotated[Seed, SPLIT_SEED] = 0
    group: Annotated[Name | None, GROUP] = None

    def check(self) -> None:
        if self.dev_size + self.test_size >= 1:
            raise ConfigError(
                f"dev_size {self.dev_size:g} and test_size {self.test_size:g} leave no rows for training",
                fix="lower one of them",
            )


class FoldSplit(Config, tag="fold", kw_only=True):
    """Cross-validation: one of k folds is the validation set, the others are the training set."""

    folds: Annotated[Folds, Flag("Number of folds for --fold (default: 5).", "COUNT", SETS)] = 5
    fold: Annotated[
        Fold,
        Flag(
            "Cross-validation: validate on this fold, counted from 0, and train on the others; one run per fold "
            "(default: no folds).",
            "NUMBER",
            SETS,
        ),
    ] = 0
    split_seed: Annotated[Seed, SPLIT_SEED] = 0
    group: Annotated[Name | None, GROUP] = None

    def check(self) -> None:
        if self.fold >= self.folds:
            raise ConfigError(
                f"fold {self.fold} does not exist: there are {self.folds} folds, counted from 0",
                fix=f"use 0 to {self.folds - 1}",
            )


AnySplit = GivenSplit | ColumnSplit | RandomSplit | FoldSplit


class DataConfig(Config, tag="data", kw_only=True):
    """Files, how to read them, their columns, and the split. None means that a setting is inferred and printed."""

    train: NameList  # one path; two for parallel text; or the name of a dataset
    dev: Annotated[
        NameList,
        Flag(
            "File with the dev (validation) set; repeat it for parallel text (default: a random part of FILE, see "
            "--dev-size).",
            "FILE",
            SETS,
        ),
    ] = ()
    test: Annotated[
        NameList,
        Flag(
            "File with the test set; repeat it for parallel text (default: a random part of FILE, see --test-size).",
            "FILE",
            SETS,
        ),
    ] = ()
    reading: Annotated[ReadingConfig, Flag()] = ReadingConfig()
    task: Annotated[Task | None, Flag("Task: {names} (default: inferred from the data).", "NAME", COLUMNS)] = None
    # Several numeric columns are one vector.
    input: Annotated[
        NameList,
        Flag(
            "Column with the input; repeat it for text pairs (default: guessed from column names and content).",
            "COLUMN",
            COLUMNS,
        ),
    ] = ()
    target: Annotated[
        NameList,
        Flag("Column with the target (default: guessed from column names and content).", "COLUMN", COLUMNS),
    ] = ()
    # Empty: rows have no id, even if there is a column of that name.
    id: Annotated[
        Name | None,
        Flag("Column with the id of each row (default: a column called id, if there is one).", "COLUMN", COLUMNS),
    ] = None
    label_separator: Annotated[
        Name | None,
        Flag(
            "Separator between the labels of a row, if a row can have several (default: one label per row).",
            "TEXT",
            COLUMNS,
        ),
    ] = None
    sequence: Annotated[
        Name | None,
        Flag(
            "Join consecutive rows with the same value in this column into one sequence (default: each row is an "
            "example).",
            "COLUMN",
            COLUMNS,
        ),
    ] = None
    split: Annotated[AnySplit | None, Flag(says="how to split the rows")] = None
    bad_rows: Annotated[BadRows, Flag()] = BadRows()

    @property
    def test_files(self) -> NameList:
        """The files with rows of the test set, once the split is chosen: test files, and files that are split."""
        if isinstance(self.split, ColumnSplit):
            return (*self.train, *self.dev, *self.test)
        drawn = isinstance(self.split, RandomSplit) and self.split.test_size > 0
        return (*self.train, *self.test) if drawn else self.test

    @property
    def has_test(self) -> bool:
        """Whether the data of a run has a test set, as far as is known without reading a row of it.

        Every built-in dataset has one. Only these have no split when they are opened, because theirs is fixed.
        """
        return self.split is None or bool(self.test_files)


class VectorFileConfig(Config, tag="vector-file", kw_only=True):
    """Pretrained word vectors that the model starts from; a resumed run does not need the file."""

    path: Name
    limit: Annotated[int, Meta(ge=0, le=2**24, examples=[2])] = 100_000  # words that are added to the vocabulary


class EncodingConfig(Config, tag="encoding", kw_only=True):
    """How texts become tokens. Target texts use the tokenizer of the input unless another is given."""

    tokenizer: Annotated[
        FittedTokenizer,
        Flag("Tokenizer: {names} (default: bpe for translate, else words).", "NAME", TOKENS),
    ] = WordsConfig()
    target_tokenizer: Annotated[
        FittedTokenizer | None,
        Flag(
            "Tokenizer of target texts: words, characters, bytes, bpe or unigram (default: the same as --tokenizer).",
            "NAME",
            TOKENS,
            parse=_tokenizer,
        ),
    ] = None
    # Also of one target text.
    max_length: Annotated[
        Length,
        Flag("Maximum length of an input in tokens (default: the model's limit, if it has one).", "COUNT", TOKENS),
    ] = 2**20
    overlong: Annotated[
        Overlong,
        Flag("What to do with inputs longer than --max-length: {names} (default: truncate).", "RULE", TOKENS),
    ] = "truncate"
    word_vectors: VectorFileConfig | None = None


class EncodingOptions(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="encoding-options"):
    """The settings of the encoding that a user named without a tokenizer: it is the usual one of the task.

    It is part of no configuration, because a complete one follows from it; workers get it as JSON.
    """

    named: dict[str, Any]

    def over(self, usual: EncodingConfig) -> EncodingConfig:
        """The encoding with these settings; the others are the usual ones."""
        return msgspec.structs.replace(usual, **said(EncodingConfig, {"tokenizer": usual.tokenizer, **self.named}))


AskedEncoding = EncodingConfig | EncodingOptions


def asked_encoding(given: Mapping[str, Any]) -> AskedEncoding | None:
    """The encoding that options ask for; None, which means that of the task, without such options.

    >>> asked_encoding({"lowercase": True}).over(EncodingConfig(tokenizer=_tokenizer("bpe"))).tokenizer.kind()
    'bpe'
    """
    named = said(EncodingConfig, given)  # raises for a wrong value
    if not named or "tokenizer" in given:
        return EncodingConfig(**named) if named else None
    return EncodingOptions(named={name: given[name] for name in settings(EncodingConfig) if name in given})


def encoding_over(asked: AskedEncoding | None, usual: EncodingConfig) -> EncodingConfig:
    """The encoding that was asked for; what is left open is as usual."""
    return asked.over(usual) if isinstance(asked, EncodingOptions) else asked or usual
