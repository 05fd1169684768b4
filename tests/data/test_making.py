"""From values to examples: what fits its column, what does not, and where it stood."""

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_common import MANY, SOME, near_values, require_examples_or_a_place, write
from seqloom.config.data import BadRows, ColumnSplit, DataConfig, RandomSplit, Task
from seqloom.data.dataset import make_examples
from seqloom.data.kinds.text import TextPair
from seqloom.data.kinds.words import Words
from seqloom.data.problems import Ledger, Place
from seqloom.data.roles import find_roles
from seqloom.data.schema import Example
from seqloom.data.values import LARGEST, Record, Table
from seqloom.errors import ConfigError


def made(columns: str, *rows: tuple[Any, ...], **settings: Any) -> tuple[list[Example], Ledger]:
    """The examples that come of rows, and the ledger."""
    names, ledger = tuple(columns.split()), Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    records = [Record(row, "a.jsonl", line) for line, row in enumerate(rows, start=1)]
    roles = find_roles(DataConfig(train=("a.jsonl",), **settings), names, True, records, ledger)
    ledger.rows = len(records)  # as a reader counts them
    table = Table(names, iter(records), lambda record, column: Place(record.path, record.line, column + 1))
    return list(make_examples(table, roles, ledger)), ledger


def one(columns: str, row: tuple[Any, ...], **settings: Any) -> Example:
    """The only example of one row."""
    (example,), _ = made(columns, row, **settings)
    return example


def test_a_text_is_kept_as_it_stands() -> None:
    text = "  \tTabs, İstanbul, \u202e and \x0b stay "
    assert one("text label", (text, "x")).input == text


@pytest.mark.parametrize(
    ("value", "label"),
    [("x", "x"), ("nan", "nan"), (1, "1"), (True, "true"), (" x ", " x "), (10**25, "1" + "0" * 25), (0.1, "0.1")],
)
def test_labels_are_the_texts_that_stand_there(value: Any, label: str) -> None:
    assert one("text label", ("a", value), task="classify").target == label


def labels(*values: Any) -> tuple[list[Any], Ledger]:
    """The labels that values of one column become."""
    examples, ledger = made("text label", *(("a", value) for value in values), task="classify")
    return [example.target for example in examples], ledger


def test_a_whole_number_and_a_float_are_two_labels_as_they_are_spelled() -> None:
    assert labels(1, 1.0, 2.5)[0] == ["1", "1.0", "2.5"]


def test_whole_floats_of_a_column_that_has_no_other_numbers_are_the_labels_without_a_point() -> None:
    assert labels(1000001.0, None, 1000002.0)[0] == ["1000001", "1000002"]
    assert labels(1.0, 2.5)[0] == ["1.0", "2.5"]
    assert labels("1.0", "2.0")[0] == ["1.0", "2.0"]
    examples, _ = made("text labels", ("a", [1.0, 2.0]), ("b", [2.0]), task="classify", target=("labels",))
    assert [example.target for example in examples] == [("1", "2"), ("2",)]


@pytest.mark.parametrize("values", [(True, "true"), ("true", True), (1, "1"), ("1", 1)])
def test_values_of_two_types_that_only_one_label_can_stand_for_are_told(values: tuple[Any, Any]) -> None:
    found, ledger = labels(*values, *values, "x")
    assert len(set(found)) == 2 and ledger.counts == {"label.types": 2}
    assert ledger.samples["label.types"][0].place == Place("a.jsonl", 2, 2)
    assert not labels(*values[:1] * 3, "x")[1].counts


def test_pairs_words_labels_numbers_and_targets() -> None:
    assert one("premise hypothesis label", ("a", "b", "x")).input == TextPair("a", "b")
    assert one("tokens tags", (["No", "way"], ["O", "B-X"])).input == Words("No way", ((0, 2), (3, 6)))
    spaced = one("tokens tags spaces", (("No", "!"), ("O", "O"), (False, False)))
    assert spaced.input == Words("No!", ((0, 2), (2, 3)))
    assert one("tokens tags", ("No way", "O B-X"), input=("tokens",), target=("tags",), task="tag").target == (
        "O",
        "B-X",
    )
    assert one("text labels", ("a", ["x", "y", "x"])).target == ("x", "y")
    assert one("text labels", ("a", "x|y"), label_separator="|").target == ("x", "y")
    assert one("text labels", ("a", ""), label_separator="|").target == ()
    assert one("text score", ("a", " 0.5")).target == (0.5,)
    assert one("text x y", ("a", "1", "-2e3"), target=("x", "y")).target == (1.0, -2000.0)
    assert one("source target", ("a", "b")).target == "b"


def test_vectors_come_from_lists_arrays_and_numeric_columns() -> None:
    assert np.array_equal(one("vectors label", ([[1, 2], [3, 4]], "x")).input, np.array([[1, 2], [3, 4]], np.float32))
    assert np.array_equal(one("vectors label", ([1.5, 2.5], "x")).input, np.array([[1.5], [2.5]], np.float32))
    assert np.array_equal(one("a b label", ("1", "2", "x"), input=("a", "b")).input, np.array([[1, 2]], np.float32))
    assert one("vectors tags", ([[1.0], [2.0]], ["a", "b"])).target == ("a", "b")


TWO = (["a", "b"], ["O", "O"])


@pytest.mark.parametrize(
    ("columns", "good", "bad", "column", "code", "words", "said"),
    [
        ("text label", ("a", "x"), ("", "x"), 1, "row.empty_text", "the text is empty", {}),
        ("text label", ("a", "x"), (" \t\u00a0", "x"), 1, "row.empty_text", "the text is empty", {}),
        ("text label", ("a", "x"), (["a"], "x"), 1, "type.text", "expected text, found list", {}),
        ("text label", ("a", "x"), (None, "x"), 1, "type.text", "expected text, found null", {}),
        ("text label", ("a", "x"), (3, "x"), 1, "type.text", "expected text, found number", {}),
        ("text label", ("a", "x"), ("a", ""), 2, "row.empty_label", "the label is empty", {}),
        ("text label", ("a", "x"), ("a", None), 2, "row.empty_label", "the label is empty", {}),
        ("text label", ("a", "x"), ("a", {"b": 1}), 2, "type.label", "expected a label, found object", {}),
        (
            "text score",
            ("a", "1"),
            ("a", "0,5"),
            2,
            "type.number",
            "expected a number, found '0,5'",
            {"task": "regress"},
        ),
        ("text score", ("a", "1"), ("a", "٣"), 2, "type.number", "expected a number, found '٣'", {"task": "regress"}),
        (
            "text score",
            ("a", 1),
            ("a", float("inf")),
            2,
            "type.number",
            "'inf' is not a finite number",
            {"task": "regress"},
        ),
        ("tokens tags", (["a"], ["O"]), (["a", "b"], ["O"]), 2, "tags.length", "2 tokens, but 1 tags", {}),
        ("tokens tags", (["a"], ["O"]), ([], []), 1, "row.empty_text", "there are no words", {}),
        (
            "tokens tags",
            (["a"], ["O"]),
            (["a", ""], ["O", "O"]),
            1,
            "type.tokens",
            "expected a word, found ''",
            {},
        ),
        ("tokens tags", (["a"], ["O"]), (7, ["O"]), 1, "type.tokens", "expected a list of words, found number", {}),
        ("tokens tags", (["a"], ["O"]), (["a"], 7), 2, "type.tags", "expected a list of tags, found number", {}),
        (
            "vectors label",
            ([[1, 2]], "x"),
            ([[1, 2, 3]], "x"),
            1,
            "array.width",
            "vectors of 3 numbers; the first row has 2",
            {},
        ),
        ("vectors label", ([[1, 2]], "x"), ([[1], [2, 3]], "x"), 1, "array.shape", "expected a list of vectors", {}),
        ("vectors label", ([[1, 2]], "x"), ([[1e39, 2]], "x"), 1, "array.nonfinite", "too large for float32", {}),
        ("vectors label", ([[1, 2]], "x"), ([["a", 2]], "x"), 1, "array.shape", "expected a list of vectors", {}),
        ("source target", ("a", "b"), ("a", ""), 2, "row.empty_text", "the text is empty", {}),
        *(
            ("vectors label", ([[1, 2]], "x"), (wrong, "x"), 1, "array.shape", "expected a list of vectors", {})
            for wrong in ([["1", "2"]], [["1_0", 2]], [["٣", 2]], [[True, 2]], [[True, False]], [[None, 2.0]], [{}])
        ),
        ("vectors label", ([[1, 2]], "x"), ([[10**400, 2]], "x"), 1, "array.nonfinite", "too large for float32", {}),
        ("a b label", (1, 2, "x"), (1e300, 2, "x"), 1, "type.number", "not a finite", {"input": ("a", "b")}),
        ("a b label", ("1", "2", "x"), ("1", "1e39", "x"), 2, "type.number", "not a finite", {"input": ("a", "b")}),
        *(
            ("text score", ("a", 1), ("a", wrong), 2, "type.number", "not a finite number", {"task": "regress"})
            for wrong in (1e300, "-1e300", 10**39, 10**400, float("nan"))
        ),
        *(
            ("text score", ("a", [1.0, 2.0]), ("a", wrong), 2, "type.number", "", {"task": "regress"})
            for wrong in (
                [1.0, None],
                [1.0, "a"],
                ["1", "2"],
                [True, 1.0],
                [1.0, [2.0]],
                [[1.0, 2.0]],
                [1e300, 1.0],
                [10**400, 1],
                [],
                [1.0],
                7,
                True,
            )
        ),
        *(
            ("tokens tags spaces", (*TWO, [True, False]), (*TWO, wrong), 3, "type.tokens", "each of 2 words", {})
            for wrong in ([True], 7, None, "no", [1, 0], [True] * 3)
        ),
    ],
)
def test_a_value_that_does_not_fit_spoils_its_row_and_is_located(
    columns: str,
    good: tuple[Any, ...],
    bad: tuple[Any, ...],
    column: int,
    code: str,
    words: str,
    said: dict[str, Any],
) -> None:
    examples, ledger = made(columns, good, bad, good, **said)
    assert len(examples) == ledger.rows == 2
    (problem,) = ledger.refused
    assert (problem.code, problem.place) == (code, Place("a.jsonl", 2, column))
    assert words in problem.text


@pytest.mark.parametrize("second", [np.zeros((4, 5, 1), np.uint8), np.zeros((4, 4, 1), np.float32)])
def test_pictures_of_another_size_or_kind_than_the_first_are_refused(second: np.ndarray) -> None:
    examples, ledger = made("picture label", (np.zeros((4, 4, 1), np.uint8), "x"), (second, "x"))
    assert len(examples) == 1 and ledger.refused[0].code == "picture.size"


def test_what_is_infinite_in_float32_is_refused_in_pictures_and_arrays() -> None:
    pictures = [np.zeros((4, 4, 1)), np.full((4, 4, 1), 1e300)]
    examples, ledger = made("picture label", *((picture, "x") for picture in pictures))
    assert examples[0].input.dtype == np.float32 and ledger.counts == {"array.nonfinite": 1}
    _, ledger = made("vectors numbers", (np.ones((2, 2)), np.array([1.0])), (np.full((2, 2), 1e300), np.array([1.0])))
    assert ledger.counts == {"array.nonfinite": 1}
    _, ledger = made("vectors numbers", (np.ones((2, 2)), np.array([1.0])), (np.ones((2, 2)), np.array([1e300])))
    assert ledger.counts == {"type.number": 1}


@given(st.floats(2.0**127, 2.0**129) | st.sampled_from([LARGEST, float(np.nextafter(LARGEST, 0))]))
def test_a_number_is_refused_exactly_if_float32_makes_it_infinite(number: float) -> None:
    with np.errstate(over="ignore"):
        finite = bool(np.isfinite(np.float32(number)))
    for value in (number, -number, repr(number), int(number), [number]):
        examples, _ = made("text score", ("a", value), task="regress")
        assert len(examples) == finite


@given(st.integers(-(2**40), 2**40) | st.integers(2**24 - 3, 2**24 + 3))
def test_whole_numbers_are_told_of_exactly_if_float32_rounds_them(number: int) -> None:
    told = {"number.rounded": 1} if int(np.float32(number)) != number else {}
    for value in (number, str(number), [number], np.array([number])):
        assert made("text score", ("a", value), task="regress")[1].counts == told
    for vectors in ([[number, 1]], np.array([[number, 1]]), np.array([[number, 0.5]])):
        assert made("vectors label", (vectors, "x"))[1].counts == told
    assert made("a b label", (str(number), "1", "x"), input=("a", "b"))[1].counts == told
    assert not made("text score", ("a", number + 0.5), ("a", 0.1), task="regress")[1].counts


@pytest.mark.parametrize("value", [[[1.0], [2.0]], [], np.array(["1"]), np.array([True]), np.ones((1, 1))])
def test_numbers_of_a_row_are_one_flat_list_of_numbers(value: Any) -> None:
    examples, ledger = made("text score", ("a", value), task="regress")
    assert not examples and ledger.counts == {"type.number": 1}


@pytest.mark.parametrize("value", [np.array([["1", "2"]]), np.array([[True, False]]), np.array([[1j]])])
def test_arrays_of_anything_but_numbers_are_no_vectors(value: np.ndarray) -> None:
    assert made("vectors label", (value, "x"))[1].counts == {"array.shape": 1}


def test_what_was_remarked_in_a_bad_row_is_not_told() -> None:
    examples, ledger = made("vectors label", ([[2**24 + 1]], ""), ([[1]], "x"))
    assert len(examples) == 1 and ledger.counts == {"row.empty_label": 1}


def test_ids_are_what_a_column_holds() -> None:
    assert one("text label", ("a", "x")).id is None
    assert one("text label id", ("a", "x", "q7")).id == "q7"
    assert one("text label key", ("a", "x", 9), id="key").id == "9"


COLUMNS = ["text", "label", "labels", "tokens", "tags", "spaces", "vectors", "score", "premise", "hypothesis", "target"]
COLUMNS += ["picture", "id", "split", "a", "b"]


@st.composite
def any_table(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    """Columns, and rows of values: some columns hold one value throughout, so that others are looked at."""
    columns = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True))
    usual = [draw(near_values) for _ in columns]
    rows = [[draw(near_values | st.just(value)) for value in usual] for _ in range(draw(st.integers(1, 4)))]
    return columns, rows


@st.composite
def any_settings(draw: st.DrawFn, columns: list[str]) -> dict[str, Any]:
    """What a user may say about a table with these columns."""
    names, one = st.lists(st.sampled_from(columns), max_size=2, unique=True).map(tuple), st.sampled_from(columns)
    asked = {"task": draw(st.none() | st.sampled_from(get_args(Task))), "input": draw(names), "target": draw(names)}
    asked |= {"id": draw(st.none() | one), "label_separator": draw(st.sampled_from([None, "|"]))}
    splits = st.builds(ColumnSplit, split_column=one) | st.builds(RandomSplit, group=one)
    return asked | {"split": draw(st.none() | splits), "sequence": draw(st.none() | st.none() | one)}


@pytest.mark.slow
@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_values_make_examples_or_bad_rows(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.data())
    def law(data: st.DataObject) -> None:
        columns, rows = data.draw(any_table())
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        path = write(tmp_path / "a.jsonl", "\n".join(lines))
        asked = data.draw(any_settings(columns))
        try:
            require_examples_or_a_place(DataConfig(train=(str(path),), **asked))
        except ConfigError:
            assert asked["sequence"] is not None  # which needs one target and its inputs

    law()
