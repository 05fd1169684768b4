"""Data: which files, how they are read, which columns mean what, and how they are divided."""

from typing import Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config, Length, Rate
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


class ReadingConfig(Config, tag="reading", kw_only=True):
    """How a file is read. Nothing is guessed: the extension decides, and what does not fit is refused."""

    format: Format | None = None  # None: by the extension
    encoding: Name = "utf-8"
    delimiter: Name | None = None  # of csv and conll; None: the format's own
    header: bool = True
    template: Name | None = None  # of text: "{label} {text}" cuts each line at the marks between the names
    unit: Unit = "line"  # of text: what one row is


class BadRows(Config, tag="bad-rows", kw_only=True):
    """How many bad rows are read over: by default not one."""

    skip: bool = False
    share: Share = 0.001  # of all rows; more than that is refused even when skipping


class GivenSplit(Config, tag="given", kw_only=True):
    """The files are the parts."""


class ColumnSplit(Config, tag="column", kw_only=True):
    """A column names the part of each row: train, dev (valid, validation) or test."""

    column: Name


class RandomSplit(Config, tag="random", kw_only=True):
    """Rows drawn by a seed, each class in the same shares; rows of one group never fall in two parts."""

    dev: Rate = 0.1
    test: Rate = 0.1
    seed: Seed = 0
    group: Name | None = None  # a column

    def check(self) -> None:
        if self.dev + self.test >= 1:
            raise ConfigError(f"dev {self.dev:g} and test {self.test:g} leave nothing to train on", fix="lower one")


class FoldSplit(Config, tag="fold", kw_only=True):
    """One of k parts is the dev set, the others train: for cross-validation."""

    folds: Folds = 5
    fold: Fold = 0
    seed: Seed = 0
    group: Name | None = None

    def check(self) -> None:
        if self.fold >= self.folds:
            raise ConfigError(f"fold {self.fold} of {self.folds}", fix=f"folds are 0..{self.folds - 1}")


AnySplit = GivenSplit | ColumnSplit | RandomSplit | FoldSplit


class DataConfig(Config, tag="data", kw_only=True):
    """Files, how to read them, what their columns mean, and the parts. What is None is inferred and said aloud."""

    train: NameList  # one path; two for parallel text; or the name of a known set
    dev: NameList = ()
    test: NameList = ()
    reading: ReadingConfig = ReadingConfig()
    task: Task | None = None
    input: NameList = ()  # columns: one; two texts are a pair; several numeric ones are one vector
    target: NameList = ()
    id: Name | None = None  # empty: none, even if a column is called so
    label_separator: Name | None = None  # of cells that hold several labels: "|"
    sequence: Name | None = None  # a column: neighbouring rows that share its value are the steps of one sequence
    split: AnySplit | None = None
    bad_rows: BadRows = BadRows()


class VectorFileConfig(Config, tag="vector-file", kw_only=True):
    """Pretrained word vectors that the model starts from; a run that has begun does not need the file any more."""

    path: Name
    words: Annotated[int, Meta(ge=0, le=2**24, examples=[2])] = 100_000  # first ones that join the vocabulary


class EncodingConfig(Config, tag="encoding", kw_only=True):
    """How examples become numbers. A target text has the tokeniser of the input unless another is named."""

    tokenizer: FittedTokenizer = WordsConfig()
    target_tokenizer: FittedTokenizer | None = None
    longest: Length = 2**20  # symbols, words or steps of one input or target text
    too_long: Literal["cut", "refuse"] = "cut"
    vectors: VectorFileConfig | None = None
