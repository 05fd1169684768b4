"""Pretrained word vectors: read for the words that are wanted, and laid out as the table of a tokeniser.

with_words(tokenizer, first_words(path, 100_000))     the file's most frequent words join those of the training data
read_vectors(path, wanted_words(tokenizer))           ──▶ WordVectors ── table(tokenizer) ──▶ [V,D], and who was found

Most files hold lower-cased words only. A tokeniser that was joined with one reads a word as it stands, and if nobody
knows it then in lower case; its table finds vectors by the same rule.
"""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Literal, NamedTuple, NoReturn

import msgspec
import numpy as np

from seqloom.config.base import MAX_WIDTH, quoted
from seqloom.config.tokenizers import WordsConfig
from seqloom.errors import DataError, RejectedError, near_name
from seqloom.text.special_tokens import COUNT, PAD
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.words import WordCutter, WordsData

# The bytes of a file of vectors: a regular file, unpacked where its name ends in .gz, and never more than is honest.
#
# The words and the limits are those of `seqloom.data.readers`, which stands above this package and cannot be asked.

Stream = io.BufferedReader
CHUNK = 1 << 20  # bytes, unpacked
RATIO = 200  # of the unpacked size to what was read
FLOOR = 16 << 20  # bytes that a small and very regular file reaches honestly
LARGEST = 64 << 30  # bytes, unpacked
GZIP = b"\x1f\x8b"


def refuse(path: Path, line: int | None, code: str, text: str, fix: str) -> NoReturn:
    """Raise RejectedError in the form that all refusals have."""
    place = str(path) if str(path).isprintable() else quoted(str(path))
    end = "" if fix.endswith("?") else "."
    shown = f"{place}:{line}" if line is not None else place
    raise RejectedError([f"{shown}: {code}: {text}. Fix: {fix}{end}"], codes=[code], total=1)


def is_packed(path: Path) -> bool:
    """Whether the name promises gzip."""
    return path.suffix.lower() == ".gz"


@contextmanager
def open_bytes(path: Path) -> Iterator[Stream]:
    """The bytes of the file, unpacked, while they are read; what is wrong with them is refused."""
    _require_regular(path)
    try:
        with path.open("rb") as stored:
            yield io.BufferedReader(_Unpacked(path, stored), CHUNK) if is_packed(path) else stored
    except PermissionError:
        refuse(path, None, "file.permission", "no permission to read this", "change its rights: chmod u+r")
    except EOFError:
        refuse(path, None, "gz.truncated", "the packed file ends too early (truncated copy?)", "copy it again")
    except (gzip.BadGzipFile, zlib.error) as error:
        refuse(path, None, "gz.crc", f"the packed bytes are damaged ({error})", "copy it again")
    except OSError as error:
        refuse(path, None, "file.unreadable", f"the system says: {error.strerror or error}", "check the disk")


class _Unpacked(io.RawIOBase):
    """What a gzip file holds; refused as soon as it is far more than what was read of the file could honestly hold."""

    def __init__(self, path: Path, stored: IO[bytes]) -> None:
        if stored.read(len(GZIP)) not in (GZIP, b""):
            refuse(path, None, "file.magic", "the name promises gzip, the content is something else", "take .gz off")
        stored.seek(0)
        self._path, self._stored = path, stored
        self._inner = gzip.GzipFile(fileobj=stored)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._inner.read1(len(buffer))
        buffer[: len(chunk)] = chunk
        limit = min(LARGEST, max(FLOOR, RATIO * self._stored.tell()))  # of what was read so far: a bomb need not be all
        if self._inner.tell() > limit:
            text = f"unpacks to more than {limit:,} bytes, {RATIO} times what was read or the largest size"
            refuse(self._path, None, "gz.bomb", text, "unpack it yourself if that is meant")
        return len(chunk)


def _require_regular(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except PermissionError:
        refuse(path, None, "file.permission", "no permission to read this", "change its rights: chmod u+r")
    except FileNotFoundError:
        refuse(path, None, "file.missing", "there is no such file", near_name(path))
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL in it, links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        refuse(path, None, "file.missing", f"this name leads nowhere: {reason}", "check the path")
    if stat.S_ISDIR(mode):
        refuse(path, None, "file.is_dir", "this is a folder", "give a file of vectors")
    if not stat.S_ISREG(mode):
        refuse(path, None, "file.not_regular", "this is no regular file", "copy the vectors into a file first")


# Files of word vectors: three forms of rows, and every way in which they can be broken.
#
#     glove              the 0.418 0.24968 -0.41242        one row a line; a word may hold spaces
#     word2vec           400000 50\n the 0.418 ...        the same below a header: rows and width (also fastText's .vec)
#     word2vec-binary    400000 50\n the <50 x float32>    little-endian, the next word follows, sometimes after \n
#
# The extension decides (.vec, .bin, .txt, each text also with .gz); a .txt has a header if its first line is two whole
# numbers. What a header promises is compared with the size of the file before anything is kept.

VectorFormat = Literal["glove", "word2vec", "word2vec-binary"]
MAX_LINE = 2**22  # bytes
MAX_WORD = 4_096  # bytes
MAX_ROWS = 2**31
FASTTEXT_MODEL = b"\xba\x16\x4f\x2f"
LARGEST_NUMBER = float(np.finfo(np.float32).max)


class VectorRow(NamedTuple):
    """One row as it stands in the file: the word, and its numbers not yet read."""

    word: bytes
    numbers: bytes
    line: int  # from 1; the number of the row in a binary file


class VectorFile(NamedTuple):
    """An open file of vectors: its rows, and how the numbers of one are read."""

    path: Path
    width: int
    rows: Iterator[VectorRow]
    read: Callable[[bytes], np.ndarray]  # raises ValueError

    def vector(self, row: VectorRow) -> np.ndarray:
        """[D] the numbers of a row as float32."""
        try:
            values = self.read(row.numbers)
        except ValueError as error:
            refuse(self.path, row.line, "vec.number", str(error), "is the file damaged?")
        if not (np.abs(values) <= LARGEST_NUMBER).all():  # false for NaN
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


def _text_rows(path: Path, file: Stream, width: int, count: int | None) -> Iterator[VectorRow]:
    """The rows of a text; `count` is what a header promised, and then no word holds a space."""
    number = before = 0 if count is None else 1
    while (line := _line(path, file, number + 1)) is not None:
        number += 1
        fields = line.count(b" ")
        word, _, numbers = line.partition(b" ") if fields == width else _word_with_spaces(line, width)
        if fields < width or not word or (fields > width and (count is not None or _is_number(word))):
            text = f"expected a word and {width:,} numbers, found {fields:,} spaces"
            refuse(path, number, "vec.fields", text, "correct the line, or give the width")
        yield VectorRow(word, numbers, number)
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


def _binary_rows(path: Path, file: Stream, count: int, width: int) -> Iterator[VectorRow]:
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
        yield VectorRow(word.removeprefix(b"\n"), numbers, number)
    if held[at:] + file.read(2) not in (b"", b"\n"):
        refuse(path, count, "vec.header", f"bytes are left behind the last of {count:,} rows", "is the header right?")


class VectorTable(NamedTuple):
    """A vector for every symbol of a tokeniser."""

    rows: np.ndarray  # [V,D] float32; PAD is zero
    own: np.ndarray  # [V] bool: the words that have a vector of their own
    lowered: np.ndarray  # [V] bool: those that have that of their lower-cased form

    @property
    def coverage(self) -> float:
        """The share of the words that were found."""
        return (self.found + int(self.lowered.sum())) / max(self.words, 1)

    @property
    def found(self) -> int:
        """How many words have a vector of their own."""
        return int(self.own.sum())

    @property
    def words(self) -> int:
        """How many words there are."""
        return len(self.rows) - COUNT


class WordVectors(NamedTuple):
    """Words and their vectors."""

    words: tuple[str, ...]
    matrix: np.ndarray  # [words, D] float32
    duplicates: int = 0  # rows that were left out, as their word had come before

    def table(self, tokenizer: Tokenizer, seed: int = 0) -> VectorTable:
        """The vectors of a tokeniser of words; symbols without one are drawn with the spread of those that have one."""
        numbers = known_words(tokenizer)
        rows = {word: row for row, word in enumerate(self.words)}
        own: dict[int, int] = {}
        lowered: dict[int, int] = {}
        for word, symbol in numbers.items():
            if word in rows:
                own[symbol] = rows[word]
            elif _lowers(tokenizer) and word.lower() in rows:
                lowered[symbol] = rows[word.lower()]
        if not own and not lowered:
            raise DataError(
                f"none of {len(numbers):,} words of the tokeniser has a vector",
                fix="take vectors of the same language and case",
            )
        return self._laid_out(tokenizer.vocab_size, own, lowered, seed)

    def _laid_out(self, vocab_size: int, own: dict[int, int], lowered: dict[int, int], seed: int) -> VectorTable:
        symbols, rows = (np.fromiter(part, np.int64) for part in zip(*(own | lowered).items(), strict=True))
        spread = float(self.matrix[rows].std(dtype=np.float64))
        drawn = np.random.default_rng(seed).normal(0.0, spread, (vocab_size, self.matrix.shape[1]))
        table = drawn.astype(np.float32)
        table[symbols] = self.matrix[rows]
        table[PAD] = 0.0
        known = (np.isin(np.arange(vocab_size), list(part)) for part in (own, lowered))
        return VectorTable(table, *known)


def known_words(tokenizer: Tokenizer) -> dict[str, int]:
    """The words of a tokeniser with their symbols; only one of kind "words" has any."""
    if not isinstance(tokenizer.cutter, WordCutter):
        raise DataError(f"pretrained vectors are of words, and this tokeniser cuts {tokenizer.config.kind()}")
    return tokenizer.cutter.numbers


def _lowers(tokenizer: Tokenizer) -> bool:
    return isinstance(tokenizer.config, WordsConfig) and tokenizer.config.or_lower


def wanted_words(tokenizer: Tokenizer) -> set[str]:
    """The words under which a table of this tokeniser looks for vectors."""
    words = known_words(tokenizer)
    return {*words, *(word.lower() for word in words)} if _lowers(tokenizer) else set(words)


def with_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The tokeniser with further words behind its own; what even so is not known is looked up in lower case."""
    known_words(tokenizer)  # refuses other kinds
    assert isinstance(tokenizer.cutter, WordCutter) and isinstance(tokenizer.config, WordsConfig)
    both = (*tokenizer.cutter.data().words, *tokenizer.cutter.whole(tokenizer.normalised(words)))
    limit = max(tokenizer.config.limit, COUNT + len(both))
    config = msgspec.structs.replace(tokenizer.config, limit=limit, or_lower=True)
    return Tokenizer(config, WordCutter(config, WordsData(both)), tokenizer.dropped)


def first_words(path: str | Path, count: int) -> tuple[str, ...]:
    """The first words of a file of vectors: files begin with what is most frequent."""
    with open_vectors(Path(path), None, None) as file:
        return tuple(file.name(row.word) for row in islice(file.rows, count))


def width_of(path: str | Path) -> int:
    """How many numbers a vector of a file has."""
    with open_vectors(Path(path), None, None) as file:
        return file.width


def read_vectors(
    path: str | Path,
    words: Collection[str] | None = None,
    *,
    format: VectorFormat | None = None,  # noqa: A002  # the word of ReadingConfig
    width: int | None = None,
) -> WordVectors:
    """The vectors of the wanted words, or of all, from a file in the format that its extension or `format` names.

    Only wanted rows are kept and their numbers read, so a large file needs little memory. A word that comes again is
    counted, and its first row kept. `width` is needed only for GloVe files whose first word holds a space.
    """
    wanted = None if words is None else {word.encode("utf-8", "surrogatepass") for word in words}
    numbers: dict[bytes, int] = {}
    values = bytearray()
    with open_vectors(Path(path), format, width) as file:
        duplicates = 0
        for row in file.rows:
            if wanted is not None and row.word not in wanted:
                continue
            if row.word in numbers:
                duplicates += 1
                continue
            numbers[row.word] = len(numbers)
            values += file.vector(row).tobytes()
        names = tuple(map(file.name, numbers))
    return WordVectors(names, np.frombuffer(values, np.float32).reshape(len(names), file.width), duplicates)
