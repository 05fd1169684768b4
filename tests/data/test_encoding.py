"""Columns of numbers: every kind of example comes back out of them, and what is too long is cut or refused aloud."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config.data import BadRows, EncodingConfig
from seqloom.config.tokenizers import BytesConfig, WordsConfig
from seqloom.data.kinds.labels import UNSEEN
from seqloom.data.kinds.text import TextPair, cut_pairs, paired
from seqloom.data.kinds.words import Words, cut_words
from seqloom.data.prepared import ExampleEncoder
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Examples, Input, Schema, Target
from seqloom.errors import RejectedError
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import SEPARATOR

BYTES = BytesConfig().fit([])


def examples(*rows: tuple[Input, Target]) -> Examples:
    """Examples of these inputs and targets."""
    return Examples.of(
        Example(given, target, str(line), Place("a", line)) for line, (given, target) in enumerate(rows, start=1)
    )


def encoder(schema: Schema, ledger: Ledger | None = None, **settings: object) -> ExampleEncoder:
    """An encoder of bytes, so that lengths are known."""
    config = EncodingConfig(tokenizer=BytesConfig(), **settings)  # type: ignore[arg-type]
    return ExampleEncoder(schema, config, BYTES, BYTES, ledger or Ledger())


def texts(column: Ragged) -> list[str]:
    """Each row as text."""
    return [BYTES.decode(column.row(row)) for row in range(column.rows)]


rows = st.lists(st.lists(st.integers(10, 99), max_size=5), max_size=8)


@given(rows, st.data())
def test_paired_rows_are_first_mark_second(first: list[list[int]], data: st.DataObject) -> None:
    second = [data.draw(st.lists(st.integers(10, 99), max_size=5)) for _ in first]
    both = paired(Ragged.of(first, np.int32), Ragged.of(second, np.int32), 9)
    assert [both.row(row).tolist() for row in range(both.rows)] == [
        [*a, 9, *b] for a, b in zip(first, second, strict=True)
    ]


def test_texts_pairs_and_targets_are_tokens_that_decode_to_them() -> None:
    columns = encoder(Schema("text", "text")).columns(examples(("früh", "early"), ("spät", "late")))
    assert texts(columns["input"]) == ["früh", "spät"] and texts(columns["target"]) == ["early", "late"]
    pair = encoder(Schema("pair", "numbers")).columns(examples((TextPair("a b", "c"), (1.5,))))
    first, second = np.split(pair["input"].row(0), np.flatnonzero(pair["input"].row(0) == SEPARATOR))
    assert (BYTES.decode(first), BYTES.decode(second)) == ("a b", "c")
    assert pair["target"].row(0).tolist() == [1.5]


def test_words_keep_their_beginnings_and_tags_their_numbers() -> None:
    schema = Schema("words", "tags", ("O", "B-X"))
    columns = encoder(schema).columns(examples((Words.join(["ab", "c", "def"]), ("O", "B-X", "B-NEW"))))
    pieces, firsts = columns["input"].row(0), columns["firsts"].row(0)
    assert [BYTES.decode(part) for part in np.split(pieces, firsts[1:])] == ["ab", "c", "def"]
    assert columns["target"].row(0).tolist() == [0, 1, UNSEEN]


def test_labels_have_the_numbers_of_the_schema_and_new_ones_none() -> None:
    schema = Schema("text", "label", ("neg", "pos"))
    columns = encoder(schema).columns(examples(("a", "pos"), ("b", "neg"), ("c", "new")))
    assert columns["target"].values.tolist() == [1, 0, UNSEEN]
    several = encoder(Schema("text", "labels", ("x", "y"))).columns(examples(("a", ("y", "x")), ("b", ())))
    assert [several["target"].row(row).tolist() for row in range(2)] == [[1, 0], []]


def test_arrays_keep_shape_and_values() -> None:
    frames = [np.ones((2, 3), np.float32), np.zeros((4, 3), np.float32)]
    columns = encoder(Schema("vectors", "nothing")).columns(examples(*((frame, None) for frame in frames)))
    assert all(np.array_equal(columns["input"].row(row), frame) for row, frame in enumerate(frames))
    picture = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    columns = encoder(Schema("picture", "nothing")).columns(examples((picture, None), (picture + 1, None)))
    assert np.array_equal(columns["input"].row(1), picture + 1) and columns["input"].values.dtype == np.uint8


@pytest.mark.parametrize("schema", [Schema("text", "nothing"), Schema("text", "text")])
def test_a_long_text_is_cut_and_the_cut_is_told(schema: Schema) -> None:
    ledger, target = Ledger(), "efgh" if schema.target.name == "text" else None
    columns = encoder(schema, ledger, max_length=3).columns(examples(("abcde", target), ("ab", target)))
    assert texts(columns["input"]) == ["abc", "ab"]
    assert ledger.counts["seq.truncated"] == (1 if target is None else 2)
    assert "truncated to 3" in ledger.samples["seq.truncated"][0].text


def test_long_sentences_and_sequences_are_cut_between_words_and_steps_with_their_tags() -> None:
    schema = Schema("words", "tags", ("O", "B-X"))
    rows = examples((Words.join(["ab", "c", "def"]), ("O", "B-X", "O")), (Words.join(["a"]), ("O",)))
    columns = encoder(schema, max_length=3).columns(rows)
    assert texts(columns["input"]) == ["abc", "a"]
    assert columns["firsts"].row(0).tolist() == [0, 2] and columns["target"].row(0).tolist() == [0, 1]
    steps = encoder(Schema("vectors", "tags", ("O", "B-X")), max_length=2)
    columns = steps.columns(examples((np.ones((3, 2), np.float32), ("O", "O", "B-X"))))
    assert columns["input"].row(0).shape == (2, 2) and columns["target"].row(0).tolist() == [0, 0]


def test_a_pair_keeps_its_separator_and_both_sides_when_it_is_cut() -> None:
    ledger = Ledger()
    rows = examples(
        (TextPair("abcdefgh", "xy"), (1.0,)), (TextPair("ab", "stuvwxyz"), (1.0,)), (TextPair("a", "x"), (1.0,))
    )
    column = encoder(Schema("pair", "numbers"), ledger, max_length=6).columns(rows)["input"]
    sides = [np.split(column.row(row), np.flatnonzero(column.row(row) == SEPARATOR)) for row in range(3)]
    assert [tuple(map(BYTES.decode, side)) for side in sides] == [("abc", "xy"), ("ab", "stu"), ("a", "x")]
    assert ledger.counts == {"seq.truncated": 2}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6), st.integers(1, 12))
def test_the_longer_side_of_a_pair_is_cut_first(sizes: list[tuple[int, int]], most: int) -> None:
    first, second = (Ragged.of([[80 + side] * size[side] for size in sizes], np.int32) for side in (0, 1))
    cut = cut_pairs(paired(first, second, SEPARATOR), most)
    for row, (a, b) in enumerate(sizes):
        while a + b + 1 > most:  # the plain rule, token by token
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert cut.row(row).tolist() == [80] * a + [SEPARATOR] + [81] * b


@given(st.lists(st.lists(st.integers(1, 5), max_size=5), max_size=6), st.integers(1, 12))
def test_sentences_are_cut_to_whole_words_and_no_more_pieces_than_allowed(words: list[list[int]], most: int) -> None:
    pieces = Ragged.of([list(range(sum(row))) for row in words], np.int32)
    firsts = Ragged.of([np.cumsum([0, *row])[:-1] for row in words], np.int32)
    left, begins = cut_words(pieces, firsts, most)
    for row, sizes in enumerate(words):
        kept = sum(end <= most for end in np.cumsum(sizes))
        kept = max(kept, 1) if sizes else 0
        assert left.row(row).tolist() == list(range(sum(sizes)))[: min(sum(sizes[:kept]), most)]
        assert begins.row(row).tolist() == firsts.row(row).tolist()[:kept]


def test_one_endless_word_is_cut_inside() -> None:
    ledger = Ledger()
    rows = examples((Words.join(["a" * 5_000, "b"]), ("O", "B-X")))
    columns = encoder(Schema("words", "tags", ("O", "B-X")), ledger, max_length=7).columns(rows)
    assert texts(columns["input"]) == ["a" * 7] and columns["firsts"].row(0).tolist() == [0]
    assert columns["target"].row(0).tolist() == [0] and "length 5,001, truncated to 7" in str(ledger.samples)


@pytest.mark.parametrize(
    ("schema", "first", "second", "words"),
    [
        (
            Schema("vectors", "nothing"),
            (np.ones((2, 3), np.float32), None),
            (np.ones((2, 4), np.float32), None),
            "found 4",
        ),
        (Schema("picture", "nothing"), (np.ones((2, 3, 1)), None), (np.ones((9, 3, 1)), None), "9 x 3 x 1"),
        (Schema("picture", "nothing"), (np.ones((2, 3, 1)), None), (np.ones((2, 3, 1), np.uint8), None), "x uint8"),
        (Schema("text", "numbers"), ("a", (1.0,)), ("a", (1.0, 2.0)), "expected 1 as in the other splits, found 2"),
    ],
)
def test_parts_with_arrays_or_numbers_of_different_sizes_are_refused(
    schema: Schema, first: tuple[Input, Target], second: tuple[Input, Target], words: str
) -> None:
    ready = encoder(schema)
    ready.columns(examples(first))
    with pytest.raises(RejectedError, match=r"^a:1: ") as refused:
        ready.columns(examples(second))
    assert words in str(refused.value)


def test_what_is_too_long_is_a_bad_row_when_the_user_says_so() -> None:
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    ledger.rows = 3
    schema = Schema("text", "label", ("x", "y"))
    rows = examples(("ab", "x"), ("abcdef", "y"), ("c", "y"))
    columns = encoder(schema, ledger, max_length=3, overlong="error").columns(rows)
    assert texts(columns["input"]) == ["ab", "c"] and columns["target"].values.tolist() == [0, 1]
    assert (ledger.skipped, ledger.rows, ledger.refused[0].place) == (1, 2, Place("a", 2))


def test_a_word_that_training_never_saw_is_unknown_and_never_lost() -> None:
    tokenizer = WordsConfig().fit(["one two"])
    ready = ExampleEncoder(Schema("text", "nothing"), EncodingConfig(), tokenizer, None, Ledger())
    assert ready.columns(examples(("one three two", None)))["input"].lengths.tolist() == [3]
