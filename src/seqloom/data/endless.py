"""Read an endless sequence from lines; each line contains the next elements.

    the cat sat           a line of text: a separate text, or a part of one text including its line break
    Anna sings .          words, separated by spaces
    0.5, 1.25             the numbers of one step, separated by commas, semicolons or spaces, or a JSON list
    {"vectors": [[...]]}  with --format jsonl: the input columns of the training data

Lines are read as they arrive (`StreamReader`), so a program can write one line and wait for its prediction.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from seqloom.config.data import ReadingConfig
from seqloom.data.inputs import STANDARD_INPUT, InputColumns, Stream, StreamReader, examples_of, require_lines
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.vectors import VectorsInput
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import lines_in, passages_of
from seqloom.data.schema import Example
from seqloom.data.values import BadValue, Read, Record, Remarks, Table, number_of, plain
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.data.roles import Roles

BETWEEN = re.compile(r"\s*[,;\s]\s*")


@dataclass(frozen=True, repr=False)
class StreamVectors(VectorsInput):
    """Vectors of a known width; a line of text has the numbers of one step."""

    width: int

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads one or more steps."""
        column = roles.input[0]

        def read(values: tuple[Any, ...]) -> np.ndarray:
            if len(roles.input) == 1 and isinstance(values[column], str):
                values = (*values[:column], [_numbers(values[column])], *values[column + 1 :])
            vectors: np.ndarray = VectorsInput.reader(self, roles, remarks)(values)
            if (found := vectors.shape[1]) != self.width:
                text = f"{counted(found, 'number')} in a step, but the model reads {self.width:,}"
                raise BadValue(column, "array.width", text, f"give {counted(self.width, 'number')} for each step")
            return vectors

        return read


def _numbers(line: str) -> list[float]:
    """The numbers of a line.

    >>> _numbers("0.5, 1.25"), _numbers("0.5 1.25"), _numbers("[0.5, 1.25]")
    ([0.5, 1.25], [0.5, 1.25], [0.5, 1.25])
    """
    line = line.strip()
    if not line.startswith("["):
        return [number_of(part, 0) for part in BETWEEN.split(line)]
    try:
        found = msgspec.json.decode(line, type=list[float])
    except msgspec.DecodeError as error:
        raise BadValue(0, "array.shape", f"expected one list of numbers: {error}", "write [0.5, 1.25]") from None
    return [number_of(number, 0) for number in found]


class TextReader(StreamReader):
    """Reads lines as parts of one text, including blank lines and line breaks."""

    def parts(self) -> Iterator[list[Example]]:
        """Yield lists of lines with their line breaks; each list has all lines that have arrived."""
        for passage in passages_of(self._characters(), self.path, self.ledger):
            lines = lines_in(passage.text)
            ended = passage.text.endswith("\n")
            self.ledger.rows += len(lines)
            yield [
                Example(line if number == len(lines) and not ended else f"{line}\n", None, None, place)
                for number, line in enumerate(lines, 1)
                for place in [Place(str(self.path), passage.first_line + number - 1)]
            ]


def read_endless(
    stream: Stream,
    kind: InputKind,
    ledger: Ledger,
    reading: ReadingConfig,
    columns: InputColumns,
    *,
    flows: bool,
    name: str = STANDARD_INPUT,
) -> Iterator[list[Example]]:
    """Yield lists of the next elements of a sequence; each list has all elements that have arrived.

    With `flows`, lines are parts of one text. ConfigError for formats that cannot be read line by line.
    """
    require_lines(reading, name)
    encoding = reading.encoding
    if reading.format == "jsonl":
        objects = StreamReader(stream, kind, ledger, encoding=encoding, name=name).objects(columns)
        return ([one._replace(input=f"{one.input}\n") for one in some] for some in objects) if flows else objects
    if flows:
        return TextReader(stream, kind, ledger, encoding=encoding, name=name).parts()
    return StreamReader(stream, kind, ledger, encoding=encoding, name=name).texts()


MANY = 256  # most elements of a list that are read together


def given_elements(values: Iterable[Any], kind: InputKind, ledger: Ledger, *, flows: bool) -> Iterator[list[Example]]:
    """Yield Python values as the next elements of a sequence: values of a list in groups, others one by one.

    A single string is split into lines. The line break at the end of a line is optional. A row of numbers is one step.
    """
    given = lines_in(values) if isinstance(values, str) else values
    size = MANY if isinstance(given, Sequence | np.ndarray) or hasattr(given, "shape") else 1
    number, rest = 1, iter(given)
    while some := list(islice(rest, size)):
        cells = [_element(plain(getattr(one, "numpy", lambda one=one: one)()), kind) for one in some]
        records = (Record((cell,), "stream", line) for line, cell in enumerate(cells, number))
        if flows:
            ledger.rows += len(some)
            yield [Example(f"{_line(one.values[0])}\n", None, None, Place(one.path, one.line)) for one in records]
        else:
            ledger.rows += len(some)
            yield list(examples_of(Table(("element",), records), kind, (0,), ledger))
        number += len(some)


def _element(value: Any, kind: InputKind) -> Any:
    """A value as the reader of its kind expects it."""
    if isinstance(value, str):
        return value.removesuffix("\n").removesuffix("\r")
    if kind.of_numbers and isinstance(value, int | float):
        return [[value]]
    flat = isinstance(value, list | tuple | np.ndarray) and len(value) and not np.ndim(value[0])
    return [list(value)] if kind.of_numbers and flat else value


def _line(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"expected a line of text, found {type(value).__name__}", fix="pass only str")
    return value
