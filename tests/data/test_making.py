"""From values to examples: what fits its column, what does not, and where it stood."""

from typing import Any

import numpy as np
import pytest

from seqloom.config.data import DataConfig
from seqloom.data.examples import Example, TextPair, Words
from seqloom.data.making import make_examples
from seqloom.data.problems import BadRows, Ledger, Place
from seqloom.data.roles import find_roles
from seqloom.data.tables import Record, Table


def made(columns: str, *rows: tuple[Any, ...], **settings: Any) -> tuple[list[Example], Ledger]:
    """The examples that come of rows, and the ledger."""
    names, ledger = tuple(columns.split()), Ledger(BadRows(skip=True, share=1.0))
    records = [Record(row, "a.jsonl", line) for line, row in enumerate(rows, start=1)]
    roles = find_roles(DataConfig(train=("a.jsonl",), **settings), names, True, records, ledger)
    ledger.rows = len(records)  # as a reader counts them
    table = Table(names, iter(records), lambda record, column: Place(record.path, record.line, column + 1))
    return [example for example, _ in make_examples(table, roles, ledger)], ledger


def one(columns: str, row: tuple[Any, ...], **settings: Any) -> Example:
    """The only example of one row."""
    (example,), _ = made(columns, row, **settings)
    return example


def test_a_text_is_kept_as_it_stands() -> None:
    text = "  \tTabs, İstanbul, \u202e and \x0b stay "
    assert one("text label", (text, "x")).input == text


@pytest.mark.parametrize(
    ("value", "label"), [("x", "x"), ("nan", "nan"), (1, "1"), (1.0, "1"), (True, "true"), (" x ", " x ")]
)
def test_labels_are_the_texts_that_stand_there(value: Any, label: str) -> None:
    assert one("text label", ("a", value), task="classify").target == label


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


@pytest.mark.parametrize(
    ("columns", "good", "bad", "column", "code", "words", "settings"),
    [
        ("text label", ("a", "x"), ("", "x"), 1, "row.empty_text", "the text is empty", {}),
        ("text label", ("a", "x"), (" \t\u00a0", "x"), 1, "row.empty_text", "the text is empty", {}),
        ("text label", ("a", "x"), (["a"], "x"), 1, "type.text", "expected a string, got list", {}),
        ("text label", ("a", "x"), (None, "x"), 1, "type.text", "expected a string, got null", {}),
        ("text label", ("a", "x"), (3, "x"), 1, "type.text", "expected a string, got number", {}),
        ("text label", ("a", "x"), ("a", ""), 2, "row.empty_label", "the label is empty", {}),
        ("text label", ("a", "x"), ("a", None), 2, "row.empty_label", "the label is empty", {}),
        ("text label", ("a", "x"), ("a", {"b": 1}), 2, "type.label", "expected a label, got object", {}),
        ("text score", ("a", "1"), ("a", "0,5"), 2, "type.number", "expected a number, got '0,5'", {"task": "regress"}),
        ("text score", ("a", "1"), ("a", "٣"), 2, "type.number", "expected a number, got '٣'", {"task": "regress"}),
        (
            "text score",
            ("a", 1),
            ("a", float("inf")),
            2,
            "type.number",
            "inf is not a finite number",
            {"task": "regress"},
        ),
        ("tokens tags", (["a"], ["O"]), (["a", "b"], ["O"]), 2, "tags.length", "2 tokens, 1 tags", {}),
        ("tokens tags", (["a"], ["O"]), ([], []), 1, "row.empty_text", "there are no words", {}),
        (
            "tokens tags",
            (["a"], ["O"]),
            (["a", ""], ["O", "O"]),
            1,
            "type.tokens",
            "expected words of text, got ''",
            {},
        ),
        ("tokens tags", (["a"], ["O"]), (7, ["O"]), 1, "type.tokens", "expected a list of words, got number", {}),
        ("tokens tags", (["a"], ["O"]), (["a"], 7), 2, "type.tags", "expected a list of tags, got number", {}),
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
    ],
)
def test_a_value_that_does_not_fit_spoils_its_row_and_is_located(
    columns: str,
    good: tuple[Any, ...],
    bad: tuple[Any, ...],
    column: int,
    code: str,
    words: str,
    settings: dict[str, Any],
) -> None:
    examples, ledger = made(columns, good, bad, good, **settings)
    assert len(examples) == ledger.rows == 2
    (problem,) = ledger.refused
    assert (problem.code, problem.place) == (code, Place("a.jsonl", 2, column))
    assert words in problem.text


def test_pictures_of_another_size_than_the_first_are_refused() -> None:
    first, second = np.zeros((4, 4, 1), np.uint8), np.zeros((4, 5, 1), np.uint8)
    examples, ledger = made("picture label", (first, "x"), (second, "x"))
    assert len(examples) == 1 and ledger.refused[0].code == "picture.size"


def test_ids_are_what_a_column_holds() -> None:
    assert one("text label", ("a", "x")).id == ""
    assert one("text label id", ("a", "x", "q7")).id == "q7"
    assert one("text label key", ("a", "x", 9), id="key").id == "9"
