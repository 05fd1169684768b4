"""The contract of a kind of input and of a kind of target.

    row of a file ──reader──▶ value ──encode──▶ columns ──collate──▶ tensors of a batch

A kind is a type without fields; its name is what files, messages and people call it. Whoever wants to know something
about the data asks the kind, by a property or a method, and never by its name. So a new kind is one file that holds a
class, and one line in `data/schema.py`.

A value of an input is one text, a tuple of texts, `Words`, or an array; what is measured or compared asks for its
`texts`. A kind whose values may be files of their own says their `suffixes` and decodes one; then folders of classes
and tables that name files are read. Every kind of input has a column "input"; a row of it may have any length.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from seqloom.config.data import Task
from seqloom.config.inputs import AnyInput
from seqloom.config.tokenizers import AnyTokenizer
from seqloom.data.problems import Ledger, Place
from seqloom.data.values import Content, Read, Remarks
from seqloom.errors import DataError
from seqloom.text.cutter import closed
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles
    from seqloom.nn.types import Padded

Columns = Mapping[str, Ragged]
Likeness = tuple[str, tuple[int | str, ...]]  # the code of a problem, and what all examples have in common


@dataclass(frozen=True, repr=False)
class Kind(ABC):
    """What kinds of input and of target share: a name, and that two of one type are equal."""

    name: ClassVar[str]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return repr(self.name)

    def likeness(self, value: Any) -> Likeness | None:
        """What all examples must have in common, as the width of vectors; None: nothing."""
        return None

    @abstractmethod
    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What makes a value of the values of a row, and raises Unfit for what is none."""

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        """[values] what the data report shows of each, by name."""
        return {}


class InputKind(Kind):
    """A kind of input. The properties answer what other code wants to know of it."""

    wanted: ClassVar[str]  # what a model of it reads, in words
    usual: ClassVar[tuple[tuple[str, ...], ...]] = ()  # names of columns that hold it, in lower case, the usual first
    num_columns: ClassVar[int] = 1
    reads_tokens: ClassVar[bool] = False  # a tokenizer cuts it
    is_text: ClassVar[bool] = False  # one text, from its beginning to its end
    in_words: ClassVar[bool] = False  # a text whose words are known one by one
    has_steps: ClassVar[bool] = False  # words or steps, each of which may have a target of its own
    fixed_size: ClassVar[bool] = False  # all examples have one size
    suffixes: ClassVar[tuple[str, ...]] = ()  # of files that hold one value each, in lower case, with the dot
    of_numbers: ClassVar[bool] = False  # columns of numbers, any count, make a step, and rows of a table the steps
    libraries: ClassVar[tuple[str, ...]] = ()  # that have a say in what is read

    @property
    def in_lines(self) -> bool:
        """Whether a line of text holds one."""
        return self.reads_tokens and self.num_columns == 1

    @property
    def in_files(self) -> bool:
        """Whether a value may be a file of its own, which stands in a folder or is named by a table."""
        return bool(self.suffixes)

    def decode(self, path: Path, place: Place, ledger: Ledger) -> Any:
        """The value in a file that is there, never a str; raises Unfit for what is none. Notes are told of `place`."""
        raise NotImplementedError(f"{self} has no files of its own")

    def require_alike(self, value: Any, first: Any) -> None:
        """Raise Unfit where the value of a file cannot stand in one folder with the first one."""

    def readable(self) -> tuple[tuple[str, ...], ...]:
        """The names of columns in which a trained model looks for its input."""
        return self.usual

    def holds(self, name: str, content: Content) -> bool:
        """Whether a column of this name, in lower case, and content can be nothing else."""
        return False

    def matches(self, value: Any) -> bool:
        """Whether a value from Python, of which nobody says what it is, is of this kind."""
        return False

    def whole(self, value: Any) -> Any:
        """An element of X of scikit-learn as the readers take it: an array has all its axes."""
        return value

    def cells(self, value: Any) -> tuple[Any, ...]:
        """The cells of a row that holds a value from Python."""
        return (value,)

    def plain(self, value: Any) -> Any:
        """A value as one gives it from Python."""
        return value

    def typed(self, texts: list[str]) -> Any:
        """The value that somebody means who types these texts."""
        return texts[0] if len(texts) == 1 else tuple(texts)

    def texts(self, value: Any) -> tuple[str, ...]:
        """The texts of a value, as many for each; none of arrays."""
        return ()

    def steps(self, value: Any) -> int:
        """How many words or steps a value has."""
        return len(value)

    def fitting_texts(self, value: Any, tokenizer: AnyTokenizer) -> tuple[str, ...]:
        """The texts that a tokenizer is fitted to."""
        return self.texts(value)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        """The characters of the texts."""
        sizes = [sum(map(len, texts)) for texts in map(self.texts, values) if texts]
        return {"characters of an input": np.array(sizes, np.int64)} if sizes else {}

    @abstractmethod
    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        """The columns of some values."""

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        """The same columns, no input longer than `most`; `framed`: between BEGIN and END, which stay."""
        short = columns["input"].shorten(np.full(columns["input"].rows, most))
        return {**columns, "input": closed(short) if framed else short}

    def sizes(self, column: Ragged) -> tuple[int, ...]:
        """The sizes of one step, or of a whole example of fixed size; none of tokens."""
        inner = tuple(column.values.shape[1:])
        return (int(column.lengths[0]), *inner) if self.fixed_size else inner

    @abstractmethod
    def collate(self, columns: Columns) -> Any:
        """The tensors of the rows of a batch."""

    @abstractmethod
    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        """The first layer of a model that reads it."""

    @abstractmethod
    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        """A row in one line, as the model reads it."""


class Coding(NamedTuple):
    """What targets are encoded with: tokenizers, the numbers of labels, and the inputs beside them."""

    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    numbers: Mapping[str, int]
    longest: int
    kind: InputKind
    inputs: Sequence[Any]
    lengths: np.ndarray  # [rows] of the encoded inputs


class TargetKind(Kind):
    """A kind of target. The properties answer what other code wants to know of it."""

    task: ClassVar[Task]
    usual: ClassVar[tuple[str, ...]] = ()  # names of columns that hold it, in lower case, the usual first
    thing: ClassVar[str] = "label"  # what one answer is called
    has_labels: ClassVar[bool] = False  # answers are names out of a list
    one_label: ClassVar[bool] = False  # each example has one of them
    exclusive: ClassVar[bool] = False  # of the possible answers one is right in each place
    of_steps: ClassVar[bool] = False  # each word or step of the input has one
    length_code: ClassVar[str] = ""  # the code of a row that has more or fewer of them than steps
    measured: ClassVar[bool] = False  # numbers
    is_text: ClassVar[bool] = False  # a text that is written
    is_running: ClassVar[bool] = False  # the text of the input itself: neighbouring lines belong together
    apart: ClassVar[bool] = False  # each text of an input is read by itself

    @property
    def says_tokens(self) -> bool:
        """Whether the answers of a model are tokens."""
        return self.is_text or self.is_running

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:  # there is nothing to read
        """What makes a target of the values of a row."""
        return lambda _values: None

    def labels(self, value: Any) -> Iterable[str]:
        """The labels of a value."""
        return ()

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The columns of some values; none where there is nothing to keep."""
        return {}

    def lengths(self, columns: Columns) -> np.ndarray:
        """[rows] what is compared with the longest text that is allowed; 0 where any length is."""
        return np.zeros(columns["input"].rows, np.int64)

    def cut(self, columns: Columns, most: int) -> dict[str, Ragged]:
        """The columns that change when the inputs, which are cut already, are no longer than `most`.

        Of targets of words or steps those are left whose word or step is.
        """
        if not self.of_steps:
            return {}
        return {"target": columns["target"].shorten(columns.get("firsts", columns["input"]).lengths)}

    @abstractmethod
    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The inputs and the targets of a batch: what is to be said may also be read."""

    def sizes(self, columns: Columns) -> np.ndarray:
        """[N,S] how many elements a batch holds for each row, on each side, BEGIN and END included."""
        return columns["input"].lengths[:, None]

    def count(self, column: Ragged) -> int:
        """How many numbers a target has, or each step of one; 0 where targets are no numbers."""
        return 0

    def units(self, numbers: np.ndarray) -> tuple[tuple[float, float], ...]:
        """The mean and the deviation of each column of numbers [rows,K]; 1 for one that never changes."""
        deviations = np.where(np.ptp(numbers, axis=0) > 0, numbers.std(axis=0), 1.0)
        return tuple(zip(numbers.mean(axis=0).tolist(), deviations.tolist(), strict=True))


# From columns to tensors: what kinds collate a batch with. torch is imported when the first batch is made.


def filled(column: Ragged, dtype: type[np.generic]) -> np.ndarray:
    """[B,T,...] rows side by side, zeros behind the short ones."""
    lengths = column.lengths
    matrix = np.zeros((len(lengths), int(lengths.max()), *column.values.shape[1:]), dtype)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = column.values
    return matrix


def tensor(array: np.ndarray) -> "Tensor":
    """The same numbers as a tensor, not copied."""
    import torch

    return torch.from_numpy(array)


def padded(matrix: np.ndarray, lengths: np.ndarray) -> "Padded":
    """The rows of a matrix as far as their lengths go."""
    from seqloom.nn.types import Padded

    full = bool((lengths == matrix.shape[1]).all())
    return Padded(tensor(matrix), tensor(np.asarray(lengths, np.int64)), None, full)


def tokens(column: Ragged) -> "Padded":
    """[B,T] the tokens of each row."""
    return padded(filled(column, np.int64), column.lengths)


def shifted(read: "Padded") -> tuple["Padded", "Tensor"]:
    """What is read, BEGIN and the tokens, and what is to be said there, the tokens and END."""
    import torch

    batch, lengths = len(read.lengths), read.lengths
    before = torch.cat([torch.full((batch, 1), BEGIN), read.values], dim=1)
    said = torch.cat([read.values, torch.zeros(batch, 1, dtype=torch.int64)], dim=1)
    said[torch.arange(batch), lengths] = END
    return read._replace(values=before, lengths=lengths + 1), said


def even(column: Ragged, what: str) -> np.ndarray:
    """[B,T,...] rows that must have one length."""
    lengths = column.lengths
    if int(lengths.min()) != int(lengths.max()):
        raise DataError(
            f"{what} of one size were expected, found {int(lengths.min())} and {int(lengths.max())}",
            fix="bring all examples to one size",
        )
    return column.values.reshape(len(lengths), int(lengths[0]), *column.values.shape[1:])
