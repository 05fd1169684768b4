"""What columns mean: found by name and content, overridden by the user, refused with what was found."""

from typing import Any, get_args

import numpy as np
import pytest

from seqloom.config.data import ColumnSplit, DataConfig, Task
from seqloom.data.problems import Ledger
from seqloom.data.roles import NEEDS, Roles, find_roles
from seqloom.data.values import Record
from seqloom.errors import RejectedError

PICTURE = np.zeros((4, 4, 1), np.uint8)


def roles(columns: str, *rows: tuple[Any, ...], named: bool = True, path: str = "a.csv", **settings: Any) -> Roles:
    """The roles found in a file with these columns and rows."""
    sample = [Record(row, path, line) for line, row in enumerate(rows, start=2)]
    return find_roles(DataConfig(train=(path,), **settings), columns.split(), named, sample, Ledger())


@pytest.mark.parametrize(
    ("columns", "row", "kinds", "task"),
    [
        ("text label", ("a b", "x"), ("text", "label"), "classify"),
        ("label text", ("x", "a b"), ("text", "label"), "classify"),
        ("Review Sentiment", ("a b", "x"), ("text", "label"), "classify"),
        ("text label", ("a b", 1), ("text", "label"), "classify"),
        ("text label", ("a b", True), ("text", "label"), "classify"),
        ("text labels", ("a b", ["x", "y"]), ("text", "labels"), "classify"),
        ("text score", ("a b", "0.5"), ("text", "numbers"), "regress"),
        ("text label", ("a b", 0.25), ("text", "numbers"), "regress"),
        ("text score", ("a b", "good"), ("text", "label"), "classify"),
        ("premise hypothesis label", ("a", "b", "x"), ("pair", "label"), "classify"),
        ("premise hypothesis label", ("1", "2", "x"), ("pair", "label"), "classify"),
        ("sentence1 sentence2 score", ("a", "b", "4.5"), ("pair", "numbers"), "regress"),
        ("tokens tags", (["a"], ["O"]), ("words", "tags"), "tag"),
        ("tokens ner_tags", (("a",), ("O",)), ("words", "tags"), "tag"),
        ("tokens upos xpos spaces", (("a",), ("X",), ("Y",), (True,)), ("words", "tags"), "tag"),
        ("tokens label", (["a"], "x"), ("words", "label"), "classify"),
        ("source target", ("a", "b"), ("text", "text"), "translate"),
        ("src tgt", ("a", "b"), ("text", "text"), "translate"),
        ("text target", ("a", "b"), ("text", "label"), "classify"),
        ("text", ("a",), ("text", "nothing"), "lm"),
        ("vectors label", ([[1.0, 2.0]], "x"), ("vectors", "label"), "classify"),
        ("vectors tags", (np.ones((2, 3)), ("a", "b")), ("vectors", "tags"), "tag"),
        ("vectors caption", ([[1.0, 2.0]], "a b"), ("vectors", "text"), "translate"),
        ("picture label", (PICTURE, "x"), ("picture", "label"), "classify"),
        ("picture caption", (PICTURE, "a cat"), ("picture", "text"), "translate"),
        ("image label", ("cat.png", "x"), ("picture", "label"), "classify"),
    ],
)
def test_kinds_and_task_follow_from_names_and_content(
    columns: str, row: tuple[Any, ...], kinds: tuple[str, str], task: str
) -> None:
    found = roles(columns, row)
    assert (found.schema.input.name, found.schema.target.name) == kinds
    assert found.schema.task == task


@pytest.mark.parametrize(
    ("cells", "name", "kind"),
    [
        ([f"{number}.50" for number in range(30)], "price", "numbers"),
        ([str(7 * number) for number in range(30)], "price", "numbers"),
        (["1", "2.5", "3"], "price", "numbers"),
        ([7 * number for number in range(30)], "price", "numbers"),
        ([str(number % 2) for number in range(30)], "price", "label"),
        ([str(number % 5 + 1) for number in range(30)], "price", "label"),
        ([f"{number % 3}.5" for number in range(30)], "price", "label"),
        ([str(number) for number in range(19)], "price", "label"),
        ([f"{number:04}" for number in range(30)], "price", "label"),
        ([*map(str, range(29)), "cheap"], "price", "label"),
        ([str(7 * number) for number in range(30)], "label", "label"),
        ([f"{number}.50" for number in range(30)], "label", "numbers"),
    ],
)
def test_numbers_are_measured_unless_they_name_classes(cells: list[Any], name: str, kind: str) -> None:
    found = roles(f"text {name}", *(("a", cell) for cell in cells), target=(name,))
    assert found.schema.target.name == kind
    assert (f"'{name}' has numbers" in " ".join(found.messages)) == (kind == "numbers")


@pytest.mark.parametrize(
    ("columns", "row", "settings", "inputs", "targets", "kinds"),
    [
        ("a b c", ("t", "u", "x"), {"input": ("b",), "target": ("a",)}, (1,), (0,), ("text", "label")),
        ("a b c", ("t", "u", "x"), {"input": ("a", "b"), "target": ("c",)}, (0, 1), (2,), ("pair", "label")),
        ("a b c", ("1", "2", "x"), {"input": ("a", "b"), "target": ("c",)}, (0, 1), (2,), ("vectors", "label")),
        ("a b c", ("t", "1", "2"), {"input": ("a",), "target": ("b", "c")}, (0,), (1, 2), ("text", "numbers")),
        (
            "premise hypothesis y",
            ("1", "2", "x"),
            {"input": ("hypothesis", "premise")},
            (1, 0),
            (2,),
            ("pair", "label"),
        ),
        ("text labels", ("t", [1, 2]), {"task": "classify"}, (0,), (1,), ("text", "labels")),
        ("a b", (None, ["O"]), {"input": ("a",), "target": ("b",), "task": "tag"}, (0,), (1,), ("words", "tags")),
        ("text label", ("t", "x"), {"task": "lm"}, (0,), (), ("text", "nothing")),
        ("text label", ("t", "3"), {"task": "regress"}, (0,), (1,), ("text", "numbers")),
        ("text target", ("t", "u"), {"task": "translate"}, (0,), (1,), ("text", "text")),
        ("text label", ("t", "x|y"), {"label_separator": "|"}, (0,), (1,), ("text", "labels")),
        ("tokens upos xpos", (("a",), ("X",), ("Y",)), {"target": ("xpos",)}, (0,), (2,), ("words", "tags")),
        ("text score", ("t", "3"), {"task": "classify", "target": ("score",)}, (0,), (1,), ("text", "label")),
    ],
)
def test_what_the_user_says_goes_first(
    columns: str, row: tuple[Any, ...], settings: dict[str, Any], inputs: Any, targets: Any, kinds: Any
) -> None:
    found = roles(columns, row, **settings)
    assert (found.input, found.target, tuple(map(str, found.schema[:2]))) == (inputs, targets, kinds)


def test_what_was_inferred_is_said_and_what_was_given_is_not() -> None:
    said = roles("text label split", ("a", "x", "train")).messages
    assert said == (
        "input: 'text' (by name)",
        "target: 'label' (by name)",
        "task: classify (from the target)",
    )
    assert roles("text label", ("a", "x"), input=("text",), target=("label",), task="classify").messages == ()


def test_columns_that_nothing_is_read_from_are_named_unless_the_user_chose() -> None:
    row = ("a", "b", "x", "7", "train")
    found = roles("question reply label id split", row)
    assert found.messages[-1] == "not read: 'reply'"
    chosen = roles("question reply label id split", row, input=("question",), target=("label",))
    assert not any("not read" in said for said in chosen.messages)
    many = " ".join(["text", "label", *(f"c{number}" for number in range(11))])
    assert roles(many, ("a", "x", *"01234567890")).messages[-1].endswith("'c6', 'c7' and 3 others")


def test_a_column_named_split_is_one_only_if_its_values_name_parts() -> None:
    assert roles("text label split", ("a", "x", "valid")).split == 2
    assert roles("text label split", ("a", "x", "up")).split is None
    mostly = [("a", "x", "train"), ("b", "y", "test"), ("c", "x", "trian")]
    assert roles("text label split", *mostly).split == 2
    assert roles("text label part", ("a", "x", "7"), split=ColumnSplit(split_column="part")).split == 2


@pytest.mark.parametrize(
    ("columns", "row", "settings", "message"),
    [
        (
            "text lable",
            ("a", "x"),
            {},
            "csv.column: there is no column 'label'; found text, lable. Did you mean --target lable?",
        ),
        (
            "description price",
            ("a", "2"),
            {"target": ("price",), "task": "regress"},
            "there is no column 'text'; found description, price. Fix: use --input description.",
        ),
        (
            "txt label",
            ("a", "x"),
            {"input": ("text",)},
            "there is no column 'text'; found txt, label. Did you mean --input txt?",
        ),
        (
            "good bad",
            ("a", "x"),
            {},
            "there is no column 'text'; found good, bad. Fix: give --input NAME --target NAME, "
            "or --no-header if this is a row: 'good', 'bad'.",
        ),
        (
            "1 2",
            ("a", "x"),
            {"named": False},
            "2 columns without a header; which one is the input? The first row is 'a', 'x'. "
            "Fix: give column numbers, such as --input 1 --target 2.",
        ),
        ("text other", ("a", "x"), {}, "Fix: give --target other, or --task lm for a language model of the text."),
        (
            "text one two",
            ("a", "x", "y"),
            {},
            "Fix: give --target NAME, or --task lm for a language model of the text.",
        ),
        ("a b c", ("t", "1", "x"), {"input": ("a", "b", "c")}, "must be two texts or all numbers"),
        ("text x y", ("t", "1", "2"), {"target": ("x", "y"), "task": "translate"}, "Fix: give one --target"),
        ("premise hypothesis tags", ("t", "u", "x y"), {"task": "tag"}, "tags need words or steps"),
    ],
)
def test_a_missing_column_is_refused_with_the_flag_to_use(
    columns: str, row: tuple[Any, ...], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RejectedError) as refused:
        roles(columns, row, **settings)
    assert message in str(refused.value)
    assert str(refused.value).startswith("a.csv:1: ")


def test_every_task_says_what_it_needs_of_its_columns() -> None:
    assert NEEDS.keys() == {None, *get_args(Task)}


def test_a_whole_number_of_hundreds_of_digits_names_a_class_and_measures_nothing() -> None:
    found = roles("text price", *(("a", 10**400 + number) for number in range(30)), target=("price",))
    assert found.schema.target.name == "label"
