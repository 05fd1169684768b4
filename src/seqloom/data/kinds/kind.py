"""The interfaces of a kind of input and of a kind of target.

    row of a file ──reader──▶ value ──encode──▶ columns ──collate──▶ tensors of a batch

A kind is a class without fields; its name is used in files and messages. Other code asks a kind by its properties and
methods, never by its name. So a new kind is one file with a class, and one line in `data/schema.py`.

A value of an input is one text, a tuple of texts, `Words`, or an array; `texts` returns its texts. A kind whose values
are files defines their `suffixes` and `decode`; then class folders and tables with file names work too. Every kind of
input has a column "input"; its rows may have any length.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from seqloom.config.data import Task
from seqloom.config.inputs import AnyInput
from seqloom.config.tokenizers import AnyTokenizer, FittedTokenizer, WordsConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.values import Content, Read, ReadMany, Remarks
from seqloom.errors import DataError
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import closed
from seqloom.text.special_tokens import BEGIN, END
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles
    from seqloom.nn.types import Padded

Columns = Mapping[str, Ragged]
CommonShape = tuple[str, tuple[int | str, ...]]  # the code of a problem, and the shape that all examples share


@dataclass(frozen=True, repr=False)
class Kind(ABC):
    """Base of the kinds of input and target. Two instances of one class are equal."""

    name: ClassVar[str]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return repr(self.name)

    def common_shape(self, value: Any) -> CommonShape | None:
        """The shape that all examples must share, such as the width of vectors; None: any shape."""
        return None

    @abstractmethod
    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """Return a function that maps the values of a row to an input or target, or raises BadValue."""

    def readers(self, roles: "Roles", remarks: Remarks) -> tuple[Read, ReadMany]:
        """Return `reader`, and a function that reads columns of several rows if none of them needs a message."""
        return self.reader(roles, remarks), lambda _columns: None

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        """[values] lengths or numbers whose distribution the data report shows, by name."""
        return {}


class InputKind(Kind):
    """A kind of input. Other code reads its properties."""

    noun: ClassVar[str]  # in messages: "the model reads ..."
    column_names: ClassVar[tuple[tuple[str, ...], ...]] = ()  # common names of its columns, in lower case
    num_columns: ClassVar[int] = 1
    reads_tokens: ClassVar[bool] = False  # it is tokenized
    is_text: ClassVar[bool] = False  # one text
    in_words: ClassVar[bool] = False  # a text that is already split into words
    has_steps: ClassVar[bool] = False  # words or steps, each of which may have a target
    has_edges: ClassVar[bool] = False  # its steps are the nodes of a graph, without an order
    fixed_size: ClassVar[bool] = False  # all examples have one size
    suffixes: ClassVar[tuple[str, ...]] = ()  # of files that hold one value each, in lower case, with the dot
    of_numbers: ClassVar[bool] = False  # columns of numbers form a step, and rows of a table the steps
    libraries: ClassVar[tuple[str, ...]] = ()  # whose versions affect what is read

    @property
    def in_lines(self) -> bool:
        """Whether a line of text is one input."""
        return self.reads_tokens and self.num_columns == 1

    def line(self, text: str) -> Any:
        """The value of a line of text, which is one input."""
        return text

    @property
    def in_files(self) -> bool:
        """Whether a value may be a file, in a folder or named in a table."""
        return bool(self.suffixes)

    def decode(self, path: Path, place: Place, ledger: Ledger) -> Any:
        """Return the value in an existing file, never a str; raise BadValue if there is none. Notes get `place`."""
        raise NotImplementedError(f"{self} has no files")

    def require_same_shape(self, value: Any, first: Any) -> None:
        """Raise BadValue if the value of a file has another shape than the first one."""

    def readable(self) -> tuple[tuple[str, ...], ...]:
        """The names of columns in which a trained model searches its input."""
        return self.column_names

    def holds(self, name: str, content: Content) -> bool:
        """Whether a column with this name, in lower case, and content must be of this kind."""
        return False

    def holds_together(self, names: tuple[str, ...], contents: tuple[Content, ...]) -> bool:
        """Whether several columns with these names and contents, in this order, must be of this kind."""
        return False

    def matches(self, value: Any) -> bool:
        """Whether a Python value is of this kind."""
        return False

    def whole(self, value: Any) -> Any:
        """An element of X in scikit-learn, as readers expect it: an array with all its axes."""
        return value

    def cells(self, value: Any) -> tuple[Any, ...]:
        """The cells of a row with this Python value."""
        return (value,)

    def plain(self, value: Any) -> Any:
        """A value as a user would give it in Python."""
        return value

    def typed(self, texts: list[str]) -> Any:
        """The value of texts typed on the command line."""
        return texts[0] if len(texts) == 1 else tuple(texts)

    def in_columns(self) -> "InputKind":
        """The kind that reads the columns of training in a table of the same format; raw text may need another."""
        return self

    def texts(self, value: Any) -> tuple[str, ...]:
        """The texts of a value; none for arrays."""
        return ()

    def steps(self, value: Any) -> int:
        """The number of words or steps of a value."""
        return len(value)

    def tokenizer(self, requested: AnyTokenizer) -> AnyTokenizer:
        """The tokenizer to use in place of the requested one; ConfigError if the requested one does not fit."""
        return requested

    def fitting_texts(self, value: Any, tokenizer: AnyTokenizer) -> tuple[str, ...]:
        """The texts for fitting a tokenizer."""
        return self.texts(value)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        """The number of characters of each input."""
        sizes = [sum(map(len, texts)) for texts in map(self.texts, values) if texts]
        return {"characters per input": np.array(sizes, np.int64)} if sizes else {}

    @abstractmethod
    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        """The columns of some values."""

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        """Truncate inputs to `most` tokens; with `framed`, BEGIN and END are kept."""
        short = columns["input"].shorten(np.full(columns["input"].rows, most))
        return {**columns, "input": closed(short) if framed else short}

    def sizes(self, column: Ragged) -> tuple[int, ...]:
        """Return the shape of one step, or of a complete example of fixed size; empty for tokens."""
        inner = tuple(column.values.shape[1:])
        return (int(column.lengths[0]), *inner) if self.fixed_size else inner

    @abstractmethod
    def collate(self, columns: Columns) -> Any:
        """The tensors of a batch."""

    @abstractmethod
    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        """The configuration of the input layer of a model."""

    @abstractmethod
    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        """A row in one line, as the model reads it."""


class Coding(NamedTuple):
    """The data for encoding targets: tokenizers, label ids, and the inputs."""

    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    numbers: Mapping[str, int]
    longest: int
    kind: InputKind
    inputs: Sequence[Any]
    lengths: np.ndarray  # [rows] of the encoded inputs


class TargetKind(Kind):
    """A kind of target. Other code reads its properties."""

    task: ClassVar[Task]
    column_names: ClassVar[tuple[str, ...]] = ()  # common names of its column, in lower case
    noun: ClassVar[str] = "label"  # in messages
    has_labels: ClassVar[bool] = False  # targets are labels from a fixed list
    one_label: ClassVar[bool] = False  # exactly one label per example
    exclusive: ClassVar[bool] = False  # exactly one answer is right in each place
    of_steps: ClassVar[bool] = False  # a target for each word or step of the input
    length_code: ClassVar[str] = ""  # code for a row with more or fewer targets than steps
    measured: ClassVar[bool] = False  # numbers
    is_text: ClassVar[bool] = False  # a text to generate
    is_running: ClassVar[bool] = False  # the text of the input itself: neighboring lines belong together
    separate_texts: ClassVar[bool] = False  # the texts of an input are encoded one by one
    default_tokenizer: ClassVar[FittedTokenizer] = WordsConfig()

    @property
    def predicts_tokens(self) -> bool:
        """Whether a model predicts tokens."""
        return self.is_text or self.is_running

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:  # there is nothing to read
        """Return a function that maps the values of a row to a target."""
        return lambda _values: None

    def labels(self, value: Any) -> Iterable[str]:
        """The labels of a value."""
        return ()

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The columns of some values; none if there is nothing to store."""
        return {}

    def lengths(self, columns: Columns) -> np.ndarray:
        """[rows] the lengths to compare with the maximum length; 0 for no limit."""
        return np.zeros(columns["input"].rows, np.int64)

    def cut(self, columns: Columns, most: int) -> dict[str, Ragged]:
        """The target columns for inputs that were truncated to `most`: targets of removed steps are removed too."""
        if not self.of_steps:
            return {}
        return {"target": columns["target"].shorten(columns.get("firsts", columns["input"]).lengths)}

    @abstractmethod
    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The inputs and targets of a batch; inputs may include the target shifted by one (teacher forcing)."""

    def sizes(self, columns: Columns) -> np.ndarray:
        """[N,S] the elements of each row in a batch, on each side, BEGIN and END included."""
        return columns["input"].lengths[:, None]

    def count(self, column: Ragged) -> int:
        """The numbers per target, or per step; 0 if targets are not numbers."""
        return 0

    def units(self, numbers: np.ndarray) -> tuple[tuple[float, float], ...]:
        """The mean and standard deviation of each column of numbers [rows,K]; a deviation of 0 becomes 1."""
        deviations = np.where(np.ptp(numbers, axis=0) > 0, numbers.std(axis=0), 1.0)
        return tuple(zip(numbers.mean(axis=0).tolist(), deviations.tolist(), strict=True))


# From columns to tensors: helpers to collate a batch. torch is imported with the first batch.


def filled(column: Ragged, dtype: type[np.generic]) -> np.ndarray:
    """[B,T,...] the rows, padded with zeros."""
    lengths = column.lengths
    matrix = np.zeros((len(lengths), int(lengths.max()), *column.values.shape[1:]), dtype)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = column.values
    return matrix


def tensor(array: np.ndarray) -> "Tensor":
    """The same numbers as a tensor, not copied."""
    import torch

    return torch.from_numpy(array)


def padded(matrix: np.ndarray, lengths: np.ndarray) -> "Padded":
    """A padded batch of the rows of a matrix."""
    from seqloom.nn.types import Padded

    full = bool((lengths == matrix.shape[1]).all())
    return Padded(tensor(matrix), tensor(np.asarray(lengths, np.int64)), None, full)


def tokens(column: Ragged) -> "Padded":
    """[B,T] the tokens of each row."""
    return padded(filled(column, np.int64), column.lengths)


def shifted(read: "Padded") -> tuple["Padded", "Tensor"]:
    """Inputs (BEGIN and the tokens) and targets (the tokens and END) for teacher forcing."""
    import torch

    batch, lengths = len(read.lengths), read.lengths
    before = torch.cat([torch.full((batch, 1), BEGIN), read.values], dim=1)
    targets = torch.cat([read.values, torch.zeros(batch, 1, dtype=torch.int64)], dim=1)
    targets[torch.arange(batch), lengths] = END
    return read._replace(values=before, lengths=lengths + 1), targets


def even(column: Ragged, what: str) -> np.ndarray:
    """[B,T,...] rows that must all have one length."""
    lengths = column.lengths
    if int(lengths.min()) != int(lengths.max()):
        raise DataError(
            f"expected {what} of one size, found {int(lengths.min())} and {int(lengths.max())}",
            fix="give all examples one size",
        )
    return column.values.reshape(len(lengths), int(lengths[0]), *column.values.shape[1:])
