r"""Pretrained word vectors: read for the words of a tokenizer, as the table of its embeddings.

with_words(tokenizer, first_words(path, 100_000))     adds the file's most frequent words
read_vectors(path, wanted_words(tokenizer))           ──▶ WordVectors ── table(tokenizer) ──▶ [V,D], and the words found

Most files have only lowercase words. A tokenizer with added words looks up a word as it is, then in lower case; its
table finds vectors in the same way.

There are three file formats; a malformed file is rejected with the place of the problem:

    glove              the 0.418 0.24968 -0.41242        one row per line; a word may contain spaces
    word2vec           400000 50\n the 0.418 ...        the same below a header: rows and width (also fastText's .vec)
    word2vec-binary    400000 50\n the <50 x float32>    little-endian, the next word follows, sometimes after \n

The extension decides (.vec, .bin, .txt; text also with .gz); a .txt has a header if its first line is two integers. The
header is compared with the size of the file before anything is read.
"""

import io
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, NoReturn

import msgspec
import numpy as np

from seqloom.config.base import MAX_WIDTH, quoted
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import PACKED, is_folder, require_regular
from seqloom.data.readers.passages import chunks_of
from seqloom.errors import ConfigError, DataError
from seqloom.files.disk import write_file
from seqloom.text.special_tokens import COUNT, PAD
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.words import WordsData, WordSegmenter

VectorFormat = Literal["glove", "word2vec", "word2vec-binary"]
CHUNK = 1 << 20  # bytes
MAX_LINE = 2**22  # bytes
MAX_WORD = 4_096  # bytes
MAX_ROWS = 2**31
FASTTEXT_MODEL = b"\xba\x16\x4f\x2f"
LARGEST_NUMBER = float(np.finfo(np.float32).max)


class _Joined(io.RawIOBase):
    """Chunks of bytes as one stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._pending = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._pending = self._pending or memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count


class VectorRow(NamedTuple):
    """One row of the file: the word, and its numbers, not parsed yet."""

    word: bytes
    numbers: bytes
    line: int  # from 1; the number of the row in a binary file


class VectorFile:
    """An open file of vectors: its `rows` of `width` numbers, and how to parse them."""

    def __init__(self, path: Path, stream: BinaryIO, form: VectorFormat | None, width: int | None) -> None:
        self.path, self._stream = path, stream
        form = form or self._form_by_extension()
        self._binary = form == "word2vec-binary"
        if self._binary and _is_packed(path):
            self._refuse(None, "vec.format", "binary files cannot be read with .gz", "unpack it")
        first = None if form in ("word2vec", "word2vec-binary") else self._line(1)
        if form is None and first is not None:
            form = self._form_by_first_line(first)
        if form in ("word2vec", "word2vec-binary"):
            count, self.width = self._header(stream.readline(64) if first is None else first + b"\n", width)
            self.rows = self._binary_rows(count) if self._binary else self._text_rows(None, count)
            return
        if first is None:
            self._refuse(None, "data.empty", "the file is empty", "give a file of vectors")
        self.width = width or first.count(b" ")
        if not 1 <= self.width <= MAX_WIDTH:
            text = f"expected a word and its numbers, found {self.width} numbers"
            self._refuse(1, "vec.fields", text, "check that this is a file of word vectors")
        self.rows = self._text_rows(first, None)

    def _refuse(self, line: int | None, code: str, text: str, fix: str) -> NoReturn:
        Ledger().bad_file(code, text, Place(str(self.path), line), fix)

    def read(self, numbers: bytes) -> np.ndarray:
        """The numbers of a row; raises ValueError for anything else."""
        if self._binary:
            return np.frombuffer(numbers, "<f4")
        try:
            if b"_" not in numbers:  # Python would read 1_0 as 10
                return np.array([float(field) for field in numbers.split(b" ")])
        except ValueError:
            pass
        raise ValueError(f"expected numbers, found {_shown(numbers)}")

    def vector(self, row: VectorRow) -> np.ndarray:
        """[D] the numbers of a row as float32."""
        try:
            values = self.read(row.numbers)
        except ValueError as error:
            self._refuse(row.line, "vec.number", str(error), "check the file for damage")
        if not (np.abs(values) <= LARGEST_NUMBER).all():  # false for NaN
            self._refuse(row.line, "vec.number", f"a number of {_shown(row.word)} is not finite", "remove the row")
        return values.astype(np.float32)

    def name(self, word: bytes) -> str:
        try:
            return word.decode()
        except UnicodeDecodeError:
            self._refuse(None, "enc.utf8", f"the word {_shown(word)} is not UTF-8", "convert the file to UTF-8")

    def _form_by_extension(self) -> VectorFormat | None:
        """The format of the extension; None for .txt, where the first line decides."""
        forms: dict[str, VectorFormat | None] = {".vec": "word2vec", ".bin": "word2vec-binary", ".txt": None}
        suffix = Path(self.path.stem if _is_packed(self.path) else self.path).suffix.lower()
        if suffix not in forms:
            fix = "give format='glove', 'word2vec' or 'word2vec-binary'"
            self._refuse(None, "vec.format", f"unknown extension '{suffix}' of a file of word vectors", fix)
        return forms[suffix]

    def _form_by_first_line(self, line: bytes) -> VectorFormat:
        fields = line.split(b" ")
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            return "glove"
        if int(fields[1][:20]) == 1:
            text = f"the first line {_shown(line)} may be a header or a word with one number"
            self._refuse(1, "vec.format", text, "give format='word2vec' or format='glove'")
        return "word2vec"

    def _line(self, number: int) -> bytes | None:
        """The next line without line end and trailing spaces; None at the end."""
        line = self._stream.readline(MAX_LINE)
        if len(line) == MAX_LINE:
            fix = "check that this is a file of word vectors"
            self._refuse(number, "line.too_long", f"a line of more than {MAX_LINE:,} bytes", fix)
        return line.rstrip(b"\n").removesuffix(b"\r").rstrip(b" ") if line else None

    def _header(self, line: bytes, width: int | None) -> tuple[int, int]:
        """The rows and width of the header, checked against the size of the file."""
        fields = line.split()
        if line.startswith(FASTTEXT_MODEL):
            fix = "use the .vec file of the model"
            self._refuse(None, "vec.format", "this is a fastText model, not a file of vectors", fix)
        if len(fields) != 2 or not all(field.isdigit() for field in fields) or not line.endswith(b"\n"):
            text = f"expected a header 'rows width', found {_shown(line)}"
            self._refuse(1, "vec.header", text, "use format='glove' for a file without a header")
        rows, found = int(fields[0][:20]), int(fields[1][:20])
        if not (1 <= found <= MAX_WIDTH and rows <= MAX_ROWS):
            text = f"{rows:,} rows of {found:,} numbers; the limit is {MAX_ROWS:,} rows of {MAX_WIDTH:,}"
            self._refuse(1, "vec.header", text, "check the file for damage")
        if width not in (None, found):
            text = f"expected vectors of {width:,} numbers, found {found:,}"
            self._refuse(1, "vec.header", text, f"give width={found}")
        least = rows * (4 * found + 2 if self._binary else 2 * found + 1)  # " 0" for each number at least
        if not _is_packed(self.path) and least > (size := self.path.stat().st_size):
            text = f"{rows:,} rows of {found:,} numbers need at least {least:,} bytes, but the file has {size:,}"
            self._refuse(1, "vec.truncated", text, "copy the file again")
        return rows, found

    def _text_rows(self, line: bytes | None, count: int | None) -> Iterator[VectorRow]:
        """Yield the rows of a text file; `line` is the first, if it was read. With a header, words have no spaces."""
        number = before = 0 if count is None else 1
        line = self._line(number + 1) if line is None else line
        while line is not None:
            number += 1
            fields = line.count(b" ")
            word, *numbers = line.split(b" ", 1) if fields == self.width else line.rsplit(b" ", self.width)
            if fields < self.width or not word or (fields > self.width and (count is not None or _is_number(word))):
                text = f"expected a word and {self.width:,} numbers, found {fields:,} spaces"
                self._refuse(number, "vec.fields", text, "correct the line, or give the width")
            yield VectorRow(word, b" ".join(numbers), number)
            line = self._line(number + 1)
        if count is not None and number - before != count:
            text = f"the header says {count:,} rows, but there are {number - before:,}"
            self._refuse(number, "vec.truncated", text, "copy the file again")
        if number == before:
            self._refuse(None, "data.empty", "there are no rows", "give a file of vectors")

    def _binary_rows(self, count: int) -> Iterator[VectorRow]:
        r"""Yield the rows of a binary file; the \n that some programs write after each row is removed."""
        pending, at, size = b"", 0, 4 * self.width
        for number in range(1, count + 1):
            if len(pending) - at <= MAX_WORD + 1 + size:
                pending, at = pending[at:] + self._stream.read(CHUNK), 0  # the widest row is smaller
            space = pending.find(b" ", at, at + MAX_WORD + 1)
            if space < 0:
                ends = len(pending) - at <= MAX_WORD
                problem = "the file ends" if ends else f"there is no word of at most {MAX_WORD:,} bytes"
                self._refuse(number, "vec.truncated", f"{problem} in row {number:,}", "copy the file again")
            word, numbers, at = pending[at:space], pending[space + 1 : space + 1 + size], space + 1 + size
            if len(numbers) < size:
                text = f"the file ends in row {number:,} of {count:,}"
                self._refuse(number, "vec.truncated", text, "copy the file again")
            yield VectorRow(word.removeprefix(b"\n"), numbers, number)
        if pending[at:] + self._stream.read(2) not in (b"", b"\n"):
            text = f"more bytes follow the last of {count:,} rows"
            self._refuse(count, "vec.header", text, "check the number of rows in the header")


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() in PACKED


def _shown(word: bytes) -> str:
    return quoted(word.decode("utf-8", "backslashreplace"))


def _is_number(word: bytes) -> bool:
    """Whether a word ends in a number, so that its line has one number too many."""
    try:
        float(word.rpartition(b" ")[2])
    except ValueError:
        return False
    return True


@contextmanager
def open_vectors(path: Path, form: VectorFormat | None, width: int | None) -> Iterator[VectorFile]:
    """Open a file of word vectors."""
    ledger = Ledger()
    if is_folder(path):
        ledger.bad_file("file.is_dir", "this is a folder", Place(str(path)), "give a file of vectors")
    require_regular(path, ledger)
    chunks = chunks_of(path, ledger, "text" if _is_packed(path) else None)
    with io.BufferedReader(_Joined(chunks), CHUNK) as stream:
        yield VectorFile(path, stream, form, width)


class VectorTable(NamedTuple):
    """A vector for every token of a tokenizer."""

    rows: np.ndarray  # [V,D] float32; PAD is zero
    own: np.ndarray  # [V] bool: words with their own vector
    lowered: np.ndarray  # [V] bool: words with the vector of their lowercase form

    @property
    def coverage(self) -> float:
        """The share of the words that were found."""
        return (self.found + int(self.lowered.sum())) / max(self.words, 1)

    @property
    def found(self) -> int:
        """The number of words with their own vector."""
        return int(self.own.sum())

    @property
    def words(self) -> int:
        """The number of words."""
        return len(self.rows) - COUNT


class WordVectors(NamedTuple):
    """Words and their vectors."""

    words: tuple[str, ...]
    matrix: np.ndarray  # [words, D] float32
    duplicates: int = 0  # rows ignored because their word occurred before

    def table(self, tokenizer: Tokenizer, seed: int = 0) -> VectorTable:
        """Return the vectors of a word tokenizer; tokens without a vector get random ones of the same spread."""
        numbers = known_words(tokenizer)
        rows = {word: row for row, word in enumerate(self.words)}
        own: dict[int, int] = {}
        lowered: dict[int, int] = {}
        for word, token in numbers.items():
            if word in rows:
                own[token] = rows[word]
            elif _lowers(tokenizer) and word.lower() in rows:
                lowered[token] = rows[word.lower()]
        if not own and not lowered:
            text = f"none of the {len(numbers):,} words of the tokenizer has a vector"
            raise DataError(text, fix="use vectors of the same language and case")
        tokens, places = (np.fromiter(part, np.int64) for part in zip(*(own | lowered).items(), strict=True))
        spread = float(self.matrix[places].std(dtype=np.float64))
        drawn = np.random.default_rng(seed).normal(0.0, spread, (tokenizer.vocab_size, self.matrix.shape[1]))
        table = drawn.astype(np.float32)
        table[tokens] = self.matrix[places]
        table[PAD] = 0.0
        known = (np.isin(np.arange(len(table)), list(part)) for part in (own, lowered))
        return VectorTable(table, *known)


def known_words(tokenizer: Tokenizer) -> dict[str, int]:
    """The words of a tokenizer with their tokens; raises DataError unless it is of kind "words"."""
    if not isinstance(tokenizer.segmenter, WordSegmenter):
        kind = tokenizer.config.kind()
        raise DataError(f"word vectors need --tokenizer words, but this tokenizer is {kind}", fix="use words")
    return tokenizer.segmenter.numbers


def _lowers(tokenizer: Tokenizer) -> bool:
    return isinstance(tokenizer.config, WordsConfig) and tokenizer.config.lowercase_fallback


def wanted_words(tokenizer: Tokenizer) -> set[str]:
    """The words for which this tokenizer needs vectors."""
    words = known_words(tokenizer)
    return {*words, *(word.lower() for word in words)} if _lowers(tokenizer) else set(words)


def with_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """Return the tokenizer with more words added; words it does not know are looked up in lower case."""
    known_words(tokenizer)  # raises for other kinds
    assert isinstance(tokenizer.segmenter, WordSegmenter) and isinstance(tokenizer.config, WordsConfig)
    both = (*tokenizer.segmenter.data().words, *tokenizer.segmenter.whole(tokenizer.normalized(words)))
    limit = max(tokenizer.config.vocab_size, COUNT + len(both))
    config = msgspec.structs.replace(tokenizer.config, vocab_size=limit, lowercase_fallback=True)
    return Tokenizer(config, WordSegmenter(config, WordsData(both)), tokenizer.dropped)


def first_words(path: str | Path, count: int) -> tuple[str, ...]:
    """The first words of a file of vectors, which are usually the most frequent."""
    with open_vectors(Path(path), None, None) as file:
        return tuple(file.name(row.word) for row in islice(file.rows, count))


def width_of(path: str | Path) -> int:
    """The size of the vectors of a file."""
    with open_vectors(Path(path), None, None) as file:
        return file.width


def read_vectors(
    path: str | Path,
    words: Collection[str] | None = None,
    *,
    format: VectorFormat | None = None,  # the word of ReadingConfig
    width: int | None = None,
) -> WordVectors:
    """Read word vectors from a file of GloVe, word2vec or fastText.

    Args:
        path: the file.
        words: only these words are kept, so that a large file needs little memory (default: all).
        format: the file format (default: by the extension).
        width: size of the vectors; needed only for GloVe files whose first word contains a space.

    Returns the words and their vectors. Of a repeated word the first row is kept.
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


ROWS_WRITTEN = 1_024  # at a time


def require_vector_file(path: Path) -> None:
    """Raise ConfigError, before any work, if vectors cannot be written to this path."""
    if path.suffix.lower() not in WRITERS:
        fix = "use .txt (GloVe), .vec (word2vec text) or .bin (word2vec binary)"
        raise ConfigError(f"{path}: unknown extension '{path.suffix}' of a file of word vectors", fix=fix)
    if is_folder(path):
        raise ConfigError(f"{path} is a folder", fix="give the name of a file")
    if not is_folder(path.parent):
        raise ConfigError(f"{path}: the folder {path.parent} does not exist", fix="create it first")


def write_vectors(path: Path, vectors: WordVectors) -> None:
    """Write a file of vectors in the format of its extension; complete or not at all."""
    require_vector_file(path)
    write_file(path, WRITERS[path.suffix.lower()](vectors))


def _glove_bytes(vectors: WordVectors) -> Iterator[bytes]:
    for start in range(0, len(vectors.words), ROWS_WRITTEN):
        some = slice(start, start + ROWS_WRITTEN)
        rows = zip(vectors.words[some], vectors.matrix[some].tolist(), strict=True)
        yield "".join(f"{word} {' '.join([f'{number:.6g}' for number in row])}\n" for word, row in rows).encode()


def _header_bytes(vectors: WordVectors) -> bytes:
    return f"{len(vectors.words)} {vectors.matrix.shape[1]}\n".encode()


def _word2vec_bytes(vectors: WordVectors) -> Iterator[bytes]:
    yield _header_bytes(vectors)
    yield from _glove_bytes(vectors)


def _binary_bytes(vectors: WordVectors) -> Iterator[bytes]:
    yield _header_bytes(vectors)
    for word, row in zip(vectors.words, vectors.matrix.astype("<f4"), strict=True):
        yield word.encode() + b" " + row.tobytes() + b"\n"


WRITERS: dict[str, Callable[[WordVectors], Iterator[bytes]]] = {
    ".txt": _glove_bytes,
    ".vec": _word2vec_bytes,
    ".bin": _binary_bytes,
}
