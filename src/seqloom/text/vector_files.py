r"""Files of word vectors: three forms of rows, and every way in which they can be broken.

    glove              the 0.418 0.24968 -0.41242        one row a line; a word may hold spaces
    word2vec           400000 50\n the 0.418 ...         the same below a header: rows and width (also fastText's .vec)
    word2vec-binary    400000 50\n the <50 x float32>    little-endian, the next word follows, sometimes after \n

The extension decides (.vec, .bin, .txt, each text also with .gz); a .txt has a header if its first line is two whole
numbers. What a header promises is compared with the size of the file before anything is kept.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from seqloom.config.base import MAX_WIDTH
from seqloom.config.words import quoted
from seqloom.text.vector_bytes import CHUNK, Stream, is_packed, open_bytes, refuse

VectorFormat = Literal["glove", "word2vec", "word2vec-binary"]
MAX_LINE = 2**22  # bytes
MAX_WORD = 4_096  # bytes
MAX_ROWS = 2**31
FASTTEXT_MODEL = b"\xba\x16\x4f\x2f"
LARGEST = float(np.finfo(np.float32).max)


class Row(NamedTuple):
    """One row as it stands in the file: the word, and its numbers not yet read."""

    word: bytes
    numbers: bytes
    line: int  # from 1; the number of the row in a binary file


class VectorFile(NamedTuple):
    """An open file of vectors: its rows, and how the numbers of one are read."""

    path: Path
    width: int
    rows: Iterator[Row]
    read: Callable[[bytes], np.ndarray]  # raises ValueError

    def vector(self, row: Row) -> np.ndarray:
        """[D] the numbers of a row as float32."""
        try:
            values = self.read(row.numbers)
        except ValueError as error:
            refuse(self.path, row.line, "vec.number", str(error), "is the file damaged?")
        if not (np.abs(values) <= LARGEST).all():  # false for NaN
            refuse(self.path, row.line, "vec.number", f"a number of {_shown(row.word)} is not finite", "leave it out")
        return values.astype(np.float32)

    def name(self, word: bytes) -> str:
        """A word as text."""
        try:
            return word.decode()
        except UnicodeDecodeError:
            refuse(self.path, None, "enc.utf8", f"the word {_shown(word)} is not UTF-8", "convert the file to UTF-8")


def _shown(word: bytes) -> str:
    return quoted(word.decode("utf-8", "backslashreplace"))


@contextmanager
def open_vectors(path: Path, form: VectorFormat | None, width: int | None) -> Iterator[VectorFile]:
    """The file, open while its rows are read."""
    with open_bytes(path) as file:
        size = None if is_packed(path) else path.stat().st_size
        yield _opened(path, file, form or _form_by_extension(path), width, size)


def _form_by_extension(path: Path) -> VectorFormat | None:
    """The format that an extension means; None for .txt, where the first line decides."""
    forms: dict[str, VectorFormat | None] = {".vec": "word2vec", ".bin": "word2vec-binary", ".txt": None}
    suffix = Path(path.stem).suffix.lower() if is_packed(path) else path.suffix.lower()
    if suffix not in forms:
        fix = "give format='glove', 'word2vec' or 'word2vec-binary'"
        refuse(path, None, "vec.format", f"the extension '{suffix}' does not say what the file holds", fix)
    return forms[suffix]


def _opened(path: Path, file: Stream, form: VectorFormat | None, width: int | None, size: int | None) -> VectorFile:
    if form == "word2vec-binary":
        if size is None:
            refuse(path, None, "vec.format", "a binary file is read without .gz", "unpack it")
        count, width = _header(path, file, width, size, binary=True)
        return VectorFile(path, width, _binary_rows(path, file, count, width), lambda data: np.frombuffer(data, "<f4"))
    if form is None:
        form = _form_by_first_line(path, _first_line(path, file))
    if form == "word2vec":
        count, width = _header(path, file, width, size, binary=False)
        return VectorFile(path, width, _text_rows(path, file, width, count), _numbers)
    width = width or _first_line(path, file).count(b" ")
    if not 1 <= width <= MAX_WIDTH:
        refuse(
            path, 1, "vec.fields", f"expected a word and its numbers, found {width} numbers", "is it the right file?"
        )
    return VectorFile(path, width, _text_rows(path, file, width, None), _numbers)


def _line(path: Path, file: Stream, number: int) -> bytes | None:
    """The next line without its end and the space that some programs leave there; None behind the last."""
    line = file.readline(MAX_LINE)
    if len(line) == MAX_LINE:
        refuse(path, number, "line.too_long", f"over {MAX_LINE:,} bytes", "is this a file of vectors?")
    return line.rstrip(b"\n").removesuffix(b"\r").rstrip(b" ") if line else None


def _first_line(path: Path, file: Stream) -> bytes:
    line = _line(path, file, 1)
    if line is None:
        refuse(path, None, "data.empty", "the file is empty", "give a file of vectors")
    file.seek(0)
    return line


def _form_by_first_line(path: Path, line: bytes) -> VectorFormat:
    fields = line.split(b" ")
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return "glove"
    if int(fields[1][:20]) == 1:
        text = f"the first line {_shown(line)} is a header, or a word with one number"
        refuse(path, 1, "vec.format", text, "give format='word2vec' or format='glove'")
    return "word2vec"


def _header(path: Path, file: Stream, width: int | None, size: int | None, *, binary: bool) -> tuple[int, int]:
    """Rows and width, both possible in a file of this size."""
    line = file.readline(64)
    fields = line.split()
    if line.startswith(FASTTEXT_MODEL):
        refuse(path, None, "vec.format", "this is a model of fastText, not vectors", "take the .vec file beside it")
    if len(fields) != 2 or not all(field.isdigit() for field in fields) or not line.endswith(b"\n"):
        text = f"expected 'rows width', found {_shown(line)}"
        refuse(path, 1, "vec.header", text, "is it a file without a header: format='glove'?")
    rows, found = int(fields[0][:20]), int(fields[1][:20])
    if not (1 <= found <= MAX_WIDTH and rows <= MAX_ROWS):
        text = f"{rows:,} rows of {found:,} numbers, and at most {MAX_ROWS:,} of {MAX_WIDTH:,} are read"
        refuse(path, 1, "vec.header", text, "is the file damaged?")
    if width not in (None, found):
        refuse(
            path, 1, "vec.header", f"the vectors have {found:,} numbers, and {width:,} were asked for", "ask for these"
        )
    least = rows * (4 * found + 2 if binary else 2 * found + 1)  # " 0" for each number at least
    if size is not None and least > size:
        text = f"{rows:,} rows of {found:,} numbers need {least:,} bytes at least, and the file has {size:,}"
        refuse(path, 1, "vec.truncated", text, "copy the file again")
    return rows, found


def _text_rows(path: Path, file: Stream, width: int, count: int | None) -> Iterator[Row]:
    """The rows of a text; `count` is what a header promised, and then no word holds a space."""
    number = before = 0 if count is None else 1
    while (line := _line(path, file, number + 1)) is not None:
        number += 1
        fields = line.count(b" ")
        word, _, numbers = line.partition(b" ") if fields == width else _word_with_spaces(line, width)
        if fields < width or not word or (fields > width and (count is not None or _is_number(word))):
            text = f"expected a word and {width:,} numbers, found {fields:,} spaces"
            refuse(path, number, "vec.fields", text, "correct the line, or give the width")
        yield Row(word, numbers, number)
    if count is not None and number - before != count:
        text = f"the header promises {count:,} rows, and there are {number - before:,}"
        refuse(path, number, "vec.truncated", text, "copy the file again")
    if number == before:
        refuse(path, None, "data.empty", "there are no rows", "give a file of vectors")


def _word_with_spaces(line: bytes, width: int) -> tuple[bytes, bytes, bytes]:
    word, *numbers = line.rsplit(b" ", width)
    return word, b" ", b" ".join(numbers)


def _is_number(word: bytes) -> bool:
    """Whether a word ends in a number, so that its line holds one number too many."""
    try:
        float(word.rpartition(b" ")[2])
    except ValueError:
        return False
    return True


def _numbers(text: bytes) -> np.ndarray:
    if b"_" in text:  # Python would read 1_0 as 10
        raise ValueError(f"{_shown(text)} holds what is no number")
    try:
        return np.array([float(field) for field in text.split(b" ")])
    except ValueError:
        raise ValueError(f"{_shown(text)} holds what is no number") from None


def _binary_rows(path: Path, file: Stream, count: int, width: int) -> Iterator[Row]:
    r"""The rows of a binary file, read in blocks; the \n that some programs write behind each row is left out."""
    held, at, size = b"", 0, 4 * width
    for number in range(1, count + 1):
        if len(held) - at <= MAX_WORD + 1 + size:
            held, at = held[at:] + file.read(CHUNK), 0  # the widest row is smaller
        space = held.find(b" ", at, at + MAX_WORD + 1)
        if space < 0:
            ends = len(held) - at <= MAX_WORD
            problem = "the file ends" if ends else f"there is no word of at most {MAX_WORD:,} bytes"
            refuse(path, number, "vec.truncated", f"{problem} in row {number:,}", "copy the file again")
        word, numbers, at = held[at:space], held[space + 1 : space + 1 + size], space + 1 + size
        if len(numbers) < size:
            text = f"the file ends in row {number:,} of {count:,}"
            refuse(path, number, "vec.truncated", text, "copy the file again")
        yield Row(word.removeprefix(b"\n"), numbers, number)
    if held[at:] + file.read(2) not in (b"", b"\n"):
        refuse(path, count, "vec.header", f"bytes are left behind the last of {count:,} rows", "is the header right?")
