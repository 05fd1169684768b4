"""Pretrained vectors: every format as its program writes it, only the wanted rows, and no broken file gets through."""

import gzip
import os
import re
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.config.tokenizers import BytesConfig, WordsConfig
from seqloom.data import word_vectors
from seqloom.data.word_vectors import (
    MAX_WORD,
    WordVectors,
    first_words,
    known_words,
    read_vectors,
    wanted_words,
    width_of,
    with_words,
)
from seqloom.errors import DataError, RejectedError
from seqloom.text.special_tokens import COUNT, PAD, UNKNOWN
from seqloom.text.tokenizer import Tokenizer, fit

Rows = list[tuple[str, list[float]]]
ROWS: Rows = [("the", [0.5, -1.25, 3.0]), ("café", [1e-3, 2.0, -0.0]), ("北京", [7.0, 8.5, 9.0])]


def text_of(rows: Rows, end: str = "\n") -> bytes:
    return "".join(f"{word} {' '.join(map(repr, numbers))}{end}" for word, numbers in rows).encode()


def glove(rows: Rows) -> bytes:
    return text_of(rows)


def word2vec(rows: Rows) -> bytes:
    """As word2vec.c and fastText write it: a header, and a space behind the last number."""
    return f"{len(rows)} {len(rows[0][1])}\n".encode() + text_of(rows, " \n")


def binary(rows: Rows, end: bytes = b"\n") -> bytes:
    """As word2vec.c writes it; other programs leave the end out."""
    body = [word.encode() + b" " + struct.pack(f"<{len(numbers)}f", *numbers) + end for word, numbers in rows]
    return f"{len(rows)} {len(rows[0][1])}\n".encode() + b"".join(body)


WAYS: dict[str, Callable[[Rows], bytes]] = {
    "glove.txt": glove,
    "glove.txt.gz": lambda rows: gzip.compress(glove(rows)),
    "windows.txt": lambda rows: text_of(rows, "\r\n"),
    "google.txt": word2vec,
    "fasttext.vec": word2vec,
    "fasttext.vec.gz": lambda rows: gzip.compress(word2vec(rows)),
    "google.bin": binary,
    "gensim.bin": lambda rows: binary(rows, b""),
    "UPPER.BIN": binary,
}


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str, bytes], Path]:
    """Writes a file."""

    def make(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return make


@pytest.mark.parametrize("name", WAYS)
def test_every_format_gives_the_same_words_and_numbers(name: str, made: Any) -> None:
    vectors = read_vectors(made(name, WAYS[name](ROWS)))
    assert vectors.words == ("the", "café", "北京") and vectors.duplicates == 0
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, np.array([numbers for _, numbers in ROWS], np.float32))


@pytest.mark.parametrize("name", WAYS)
def test_only_wanted_words_are_kept(name: str, made: Any) -> None:
    vectors = read_vectors(made(name, WAYS[name](ROWS)), {"北京", "missing", "the"})
    assert vectors.words == ("the", "北京")
    np.testing.assert_array_equal(vectors.matrix, np.float32([ROWS[0][1], ROWS[2][1]]))
    assert read_vectors(made(name, WAYS[name](ROWS)), []).matrix.shape == (0, 3)


@pytest.mark.parametrize("name", WAYS)
def test_the_first_of_two_rows_wins_and_the_other_is_counted(name: str, made: Any) -> None:
    vectors = read_vectors(made(name, WAYS[name]([*ROWS, ("the", [9.0, 9.0, 9.0])])))
    assert vectors.duplicates == 1
    np.testing.assert_array_equal(vectors.matrix[0], np.float32(ROWS[0][1]))


WORD = st.text(st.characters(codec="utf-8", exclude_characters=" \n\r"), min_size=1, max_size=8)
NUMBER = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", ["glove.txt", "fasttext.vec", "google.bin", "gensim.bin"])
@settings(max_examples=40)
@given(data=st.data(), width=st.integers(2, 5))
def test_what_was_written_is_read(name: str, data: st.DataObject, width: int, tmp_path_factory: Any) -> None:
    numbers = st.lists(NUMBER, min_size=width, max_size=width)
    rows = data.draw(st.lists(st.tuples(WORD, numbers), min_size=1, max_size=5, unique_by=lambda row: row[0]))
    path = tmp_path_factory.mktemp("vectors") / name
    path.write_bytes(WAYS[name](rows))
    vectors = read_vectors(path, format="glove" if name == "glove.txt" else None)
    assert vectors.words == tuple(word for word, _ in rows)
    np.testing.assert_array_equal(vectors.matrix, np.float32([numbers for _, numbers in rows]))


def test_a_word_of_glove_may_hold_spaces(made: Any) -> None:
    vectors = read_vectors(made("a.txt", b"the 1 2 3\n. . . 4 5 6\nat a@b.c 7 8 9\n"))
    assert vectors.words == ("the", ". . .", "at a@b.c")
    first = read_vectors(made("a.txt", b". . . 4 5 6\nthe 1 2 3\n"), width=3)
    assert first.words == (". . .", "the")


def test_a_first_line_of_two_numbers_that_could_be_both_is_asked_about(made: Any) -> None:
    path = made("a.txt", b"2 1\na 5\nb 6\n")
    with pytest.raises(RejectedError, match=r"a\.txt:1: vec\.format: .* may be a header or a word with one number"):
        read_vectors(path)
    assert read_vectors(path, format="word2vec").words == ("a", "b")
    assert read_vectors(path, format="glove").words == ("2", "a", "b")


BROKEN = {
    "too few fields": (
        "a.txt",
        b"the 1 2 3\nof 1 2\n",
        ":2: vec.fields: expected a word and 3 numbers, found 2 spaces",
    ),
    "too many fields": ("a.txt", b"the 1 2 3\nof 1 2 3 4\n", ":2: vec.fields: "),
    "a blank line": ("a.txt", b"the 1 2 3\n\nof 1 2 3\n", ":2: vec.fields: "),
    "no numbers": ("a.txt", b"the\nof\n", ":1: vec.fields: "),
    "no word": ("a.txt", b"the 1 2 3\n 1 2 3\n", ":2: vec.fields: "),
    "a space in a word below a header": ("a.vec", b"1 2\nof it 1 2\n", ":2: vec.fields: "),
    "no number": ("a.txt", b"the 1 2 3\nof 1 x 3\n", ":2: vec.number: expected numbers, found '1 x 3'"),
    "two spaces": ("a.txt", b"the 1 2 3\nof 1  3\n", ":2: vec.number: "),
    "an underscore": ("a.txt", b"the 1 2 3\nof 1 1_0 3\n", ":2: vec.number: "),
    "nan": ("a.txt", b"the 1 2 3\nof 1 nan 3\n", ":2: vec.number: a number of 'of' is not finite"),
    "too large": ("a.txt", b"the 1 2 3\nof 1 1e39 3\n", ":2: vec.number: "),
    "nan in binary": ("a.bin", binary([("a", [1.0, float("nan")])]), ":1: vec.number: "),
    "inf in binary": ("a.bin", binary([("a", [1.0, float("inf")])]), ":1: vec.number: "),
    "empty": ("a.txt", b"", ": data.empty: "),
    "a header and nothing": ("a.vec", b"0 3\n", ": data.empty: "),
    "empty with a header": ("a.vec", b"", ":1: vec.header: "),
    "no header": ("a.vec", b"the 1 2 3\n", ":1: vec.header: "),
    "a header of minus one": ("a.vec", b"-1 3\n", ":1: vec.header: "),
    "a width of nothing": ("a.vec", b"3 0\n", ":1: vec.header: "),
    "a width without end": ("a.bin", b"3 99999999\n", ":1: vec.header: "),
    "digits of another script": ("a.vec", "٣ ٣\n".encode(), ":1: vec.header: "),
    "a count without end": ("a.bin", b"999999999 300\n" + b"x" * 99, ":1: vec.truncated: 999,999,999 rows of"),
    "more digits than a number has": ("a.bin", b"9" * 50 + b" 3\n", ":1: vec.header: "),
    "a text too short for its header": (
        "a.vec",
        b"9 3\na 1 2 3\n",
        ":1: vec.truncated: 9 rows of 3 numbers need at least 63 bytes",
    ),
    "fewer rows than promised": ("a.vec", b"2 1\nlonglong 1000000\n", ":2: vec.truncated: the header says 2 rows"),
    "more rows than promised": ("a.vec", b"1 1\na 1\nb 1\n", ":3: vec.truncated: "),
    "binary cut in a vector": ("a.bin", binary([("longer", [1.0, 2.0])] * 3)[:-6], ":3: vec.truncated: "),
    "binary cut in a word": ("a.bin", binary([("longer" * 9, [1.0, 2.0])] * 3)[:-12], ":3: vec.truncated: "),
    "binary with bytes left": ("a.bin", binary(ROWS) + b"more", ":3: vec.header: more bytes follow"),
    "binary without words": ("a.bin", b"1 2\n" + b"x" * 9_999, ":1: vec.truncated: "),
    "a model of fastText": ("a.bin", b"\xba\x16\x4f\x2f\x0c\0\0\0" * 20, ": vec.format: this is a fastText model"),
    "binary in gzip": ("a.bin.gz", gzip.compress(binary(ROWS)), ": vec.format: "),
    "another extension": ("a.csv", b"the 1 2\n", ": vec.format: unknown extension '.csv'"),
    "gzip cut short": ("a.txt.gz", gzip.compress(glove(ROWS))[:-10], ": gz.truncated: "),
    "gzip damaged": ("a.txt.gz", gzip.compress(glove(ROWS))[:-8] + b"12345678", ": gz.crc: "),
    "no gzip": ("a.txt.gz", glove(ROWS), ": file.magic: "),
    "an empty gzip": ("a.txt.gz", b"", ": data.empty: "),
    "Latin-1": ("a.txt", b"caf\xe9 1 2\n", ": enc.utf8: "),
    "a line without end": ("a.txt", b"1" * 2**22, ":1: line.too_long: "),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_with_its_place(case: str, made: Any) -> None:
    name, content, message = BROKEN[case]
    path = made(name, content)
    with pytest.raises(RejectedError) as caught:
        read_vectors(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert ". Fix: " in str(caught.value) and str(caught.value).endswith((".", "?"))
    assert len(str(caught.value)) < len(str(path)) + 400


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vectors.vec").write_bytes(word2vec(ROWS))
    with pytest.raises(RejectedError, match=r"file\.missing: there is no such file\. Did you mean vectors\.vec\?"):
        read_vectors(tmp_path / "vektors.vec")
    with pytest.raises(RejectedError, match=r"file\.missing.*the folder .* is missing too"):
        read_vectors(tmp_path / "none" / "vectors.vec")
    with pytest.raises(RejectedError, match=r"file\.missing: this path cannot be used"):
        read_vectors(tmp_path / ("x" * 300 + ".vec"))
    with pytest.raises(RejectedError, match=r"file\.is_dir"):
        read_vectors(tmp_path)
    os.mkfifo(tmp_path / "pipe.vec")
    with pytest.raises(RejectedError, match=r"file\.not_regular"):
        read_vectors(tmp_path / "pipe.vec")


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wide_rows(count: int) -> bytes:
    return b"".join(b"w%d" % number + b" 1" * 10_000 + b"\n" for number in range(count))


def test_a_packed_file_is_unpacked_chunk_by_chunk(made: Any) -> None:
    path = made("a.txt.gz", gzip.compress(wide_rows(600), 1))  # 12 MB
    assert peak(lambda: read_vectors(path, {"w5", "w599"})) < 6_000_000
    assert read_vectors(path, {"w5", "w599", "w600"}).words == ("w5", "w599")


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 50])
def test_a_packed_file_that_holds_far_more_than_it_should_is_refused_in_little_memory(members: int, made: Any) -> None:
    part = gzip.compress(wide_rows(4_000 // members))  # 80 MB in all
    path = made("bomb.txt.gz", part * members)

    def read() -> None:
        with pytest.raises(
            RejectedError,
            match=r"txt\.gz: gz\.bomb: the file unpacks to more than [0-9,]+ bytes, the limit for its size",
        ):
            read_vectors(path, {"none"})

    assert peak(read) < 6_000_000


@pytest.mark.parametrize("width", [1, 7, 300])
def test_binary_rows_are_read_in_blocks_wherever_these_end(width: int, made: Any, monkeypatch: Any) -> None:
    rows = [(f"w{number}" + "x" * (number % 97), [float(number)] * width) for number in range(200)]
    path = made("a.bin", binary(rows))
    for chunk in (MAX_WORD + 4 * width + 2, MAX_WORD + 4 * width + 33):
        monkeypatch.setattr(word_vectors, "CHUNK", chunk)
        vectors = read_vectors(path)
        assert vectors.words == tuple(word for word, _ in rows)
        np.testing.assert_array_equal(vectors.matrix, np.float32([numbers for _, numbers in rows]))


@settings(max_examples=150)
@given(
    content=st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: binary(ROWS)[:20] + tail),
    name=st.sampled_from(["a.txt", "a.vec", "a.bin", "a.txt.gz"]),
)
def test_any_bytes_are_read_or_refused(content: bytes, name: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("vectors") / name
    path.write_bytes(content)
    try:
        vectors = read_vectors(path)
    except RejectedError:
        return
    assert np.isfinite(vectors.matrix).all() and len(vectors.words) == len(vectors.matrix)


def test_the_table_has_known_rows_drawn_rows_and_a_zero_row() -> None:
    draw = np.random.default_rng(1)
    words = tuple(f"w{number}" for number in range(500))
    vectors = WordVectors(words, draw.normal(3.0, 0.25, (500, 20)).astype(np.float32))
    tokenizer = fit(WordsConfig(), [" ".join(words[:400]), " ".join(f"new{number}" for number in range(300))])
    table = vectors.table(tokenizer, seed=5)
    assert table.rows.shape == (tokenizer.vocab_size, 20) and table.rows.dtype == np.float32
    assert (table.found, table.words, table.coverage) == (400, 700, 400 / 700)
    for word, token in known_words(tokenizer).items():
        if word in words:
            np.testing.assert_array_equal(table.rows[token], vectors.matrix[words.index(word)])
    assert not table.rows[PAD].any()
    new = [token for word, token in known_words(tokenizer).items() if word not in words]
    assert table.rows[[*range(1, COUNT), *new]].std() == pytest.approx(vectors.matrix[:400].std(), rel=0.05)
    np.testing.assert_array_equal(table.rows, vectors.table(tokenizer, seed=5).rows)
    assert (table.rows != vectors.table(tokenizer, seed=6).rows).any()


def test_a_table_needs_words_and_one_of_them_at_least() -> None:
    vectors = WordVectors(("a",), np.ones((1, 2), np.float32))
    with pytest.raises(DataError, match="this tokenizer is bytes"):
        vectors.table(fit(BytesConfig(), ["a"]))
    with pytest.raises(DataError, match="none of the 1 words of the tokenizer has a vector"):
        vectors.table(fit(WordsConfig(), ["A"]))


# --- a tokenizer joined with the words of a file ---------------------------------------------------------------------


@settings(max_examples=50)
@given(
    own=st.lists(st.text("abAB'.", min_size=1, max_size=4), min_size=1, max_size=6),
    more=st.lists(st.text("abcAB'.", min_size=1, max_size=4), max_size=6),
    split=st.sampled_from(["punctuation", "space"]),
)
def test_joined_words_come_behind_the_own_ones_and_are_read_as_they_stand_then_in_lower_case(
    own: list[str], more: list[str], split: Any
) -> None:
    before = fit(WordsConfig(word_split=split), [" ".join(own)])
    joined = with_words(before, more)
    known, after = known_words(before), known_words(joined)
    assert {word: after[word] for word in known} == known
    for word in {*own, *more, "ABC", "b"}:
        expected = [after.get(part, after.get(part.lower(), UNKNOWN)) for part in _parts(word, split)]
        assert joined.encode([word]).values.tolist() == expected
    assert set(after) - set(known) == {word for word in more if _parts(word, split) == [word]} - set(known)
    assert Tokenizer.from_json(joined.to_json()).encode(own).values.tolist() == joined.encode(own).values.tolist()


def _parts(word: str, split: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", word) if split == "punctuation" else [word]


def test_a_table_of_a_joined_tokenizer_finds_words_in_lower_case_and_says_which() -> None:
    vectors = WordVectors(("paris", "The", "cat"), np.float32([[1, 1], [2, 2], [3, 3]]))
    tokenizer = with_words(fit(WordsConfig(), ["Paris The the Nowhere"]), vectors.words)
    numbers, table = known_words(tokenizer), vectors.table(tokenizer)
    found = {word: table.rows[token].tolist() for word, token in numbers.items() if word not in ("the", "Nowhere")}
    assert found == {"Paris": [1, 1], "paris": [1, 1], "The": [2, 2], "cat": [3, 3]}
    assert [word for word, token in numbers.items() if table.lowered[token]] == ["Paris"]
    assert (table.found, table.words, table.coverage) == (3, 6, 4 / 6)
    assert wanted_words(tokenizer) == {*numbers, "nowhere"}


def test_the_first_words_of_a_file_and_the_size_of_its_vectors(made: Any) -> None:
    path = made("a.txt", b"the 1 2\nof 3 4\nto 5 6\n")
    assert first_words(path, 2) == ("the", "of") and first_words(path, 9) == ("the", "of", "to")
    assert width_of(path) == 2


def test_only_a_tokenizer_of_words_is_joined_with_words() -> None:
    with pytest.raises(DataError, match="this tokenizer is bytes"):
        with_words(fit(BytesConfig(), ["a"]), ["b"])
