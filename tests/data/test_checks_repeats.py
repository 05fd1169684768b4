"""Ids, inputs and labels that occur twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks_common import check_parts
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.text import TextPair
from seqloom.data.kinds.words import Words
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Input, Schema
from seqloom.errors import RejectedError


def rows(path: str, inputs: list[Input], labels: str = "") -> list[Example]:
    names = labels or "ab" * len(inputs)
    return [Example(one, names[row], f"{path} {row}", Place(path, row + 1)) for row, one in enumerate(inputs)]


def checked(kind: InputKind = "text", **parts: list[Example]) -> Ledger:
    ledger = Ledger()
    check_parts(parts, Schema(kind, "label"), ledger)
    return ledger


def test_one_input_with_two_labels_is_told_with_both_lines() -> None:
    ledger = checked(train=rows("train", ["x", "y", "z", "y", "x", "y"], "aabbab"))
    assert ledger.counts == {"label.conflict": 1}
    (problem,) = ledger.samples["label.conflict"]
    assert (problem.place, "the same input as in line 2" in problem.text) == (Place("train", 4), True)


def test_a_conflict_between_parts_names_the_other_file() -> None:
    ledger = checked(train=rows("train", list("xyuv"), "abab"), dev=rows("dev", ["x", "z"], "bb"))
    assert ledger.counts == {"label.conflict": 1, "leak.overlap": 1}
    assert "the same input as at train:1" in ledger.samples["label.conflict"][0].text


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("ab")), min_size=2, max_size=12))
def test_conflicts_are_the_inputs_with_more_than_one_label(pairs: list[tuple[str, str]]) -> None:
    expected = sum(len({label for one, label in pairs if one == text}) > 1 for text in "xyz")
    examples = rows("train", [text for text, _ in pairs], "".join(label for _, label in pairs))
    examples += rows("other", ["1", "2", "3", "4"], "aabb")  # two classes, each more than once
    assert checked(train=examples).counts["label.conflict"] == expected


def test_an_overlap_of_parts_is_told_with_count_share_and_first_places() -> None:
    train = rows("train", [f"text {row}" for row in range(10)])
    dev = rows("dev", ["new", "text 3", "text 7", "newer"], "bbba")
    ledger = checked(train=train, dev=dev)
    (problem,) = ledger.samples["leak.overlap"]
    assert ledger.counts["leak.overlap"] == 2
    assert problem.place == Place("dev", 2)
    assert "2 of 4 rows in dev (50 %)" in problem.text
    assert "the same as at train:4" in problem.text


@given(st.lists(st.integers(0, 20), max_size=15), st.lists(st.integers(0, 20), max_size=15))
def test_the_overlap_is_the_number_of_rows_whose_input_is_in_the_other_part(one: list[int], other: list[int]) -> None:
    train = rows("train", [*map(str, one), "same", "same"], "a" * len(one) + "ab")
    dev = rows("dev", [*map(str, other), "new"], "a" * (len(other) + 1))
    assert checked(train=train, dev=dev).counts["leak.overlap"] == sum(number in one for number in other)


@pytest.mark.parametrize(
    ("targets", "said", "offered"),
    [
        ("ab", "identical to some in train; the first", True),
        ("xb", "in train, 1 with the same target; the first", True),
        ("xx", "identical to some in train, none with the same target; the first", False),
    ],
)
def test_a_cleaned_copy_is_offered_only_for_repeats_with_the_same_target(
    targets: str, said: str, offered: bool
) -> None:
    ledger, file = Ledger(), rows("a.tsv", ["one", "two", "three", "one", "two", "four"], f"abc{targets}d")
    check_parts({"train": file[:3], "dev": file[3:]}, Schema("text", "text"), ledger)
    (problem,) = ledger.samples["leak.overlap"]
    assert said in problem.text and ("seqloom data clean a.tsv" in problem.fix) == offered


def test_a_repeated_id_is_refused_with_both_lines() -> None:
    examples = rows("train", [f"text {row}" for row in range(6)])
    examples[4] = examples[4]._replace(id=examples[1].id)
    with pytest.raises(RejectedError, match=r"^train:5: id\.duplicate: the same id as in line 2\."):
        checked(train=examples)


def test_the_first_repeated_id_is_told_and_all_are_counted() -> None:
    examples = [row._replace(id=name) for row, name in zip(rows("train", list("uvwxyz")), "abcabc", strict=True)]
    with pytest.raises(RejectedError, match=r"^train:4: id\.duplicate: .* line 1; 3 rows repeat an id"):
        checked(train=examples)


def test_a_repeated_id_in_a_later_part_is_refused() -> None:
    dev = rows("dev", ["new", "newer", "newest"], "abb")
    dev[2] = dev[2]._replace(id=dev[0].id)
    with pytest.raises(RejectedError, match=r"^dev:3: id\.duplicate: the same id as in line 1\."):
        checked(train=rows("train", list("uvwx")), dev=dev)


def test_an_id_that_stands_twice_in_one_file_is_refused_whatever_the_parts() -> None:
    one_file = rows("data.csv", list("uvwxyz"), "ababab")
    one_file[5] = one_file[5]._replace(id=one_file[1].id)
    with pytest.raises(RejectedError, match=r"^data\.csv:6: id\.duplicate: the same id as in line 2\."):
        checked(train=one_file[:4], dev=one_file[4:])


def test_parts_may_use_the_same_ids_and_rows_may_have_none() -> None:
    train = [row._replace(id=str(at)) for at, row in enumerate(rows("train", list("uvwx")))]
    dev = [row._replace(id=str(at)) for at, row in enumerate(rows("dev", ["1", "2"]))]
    test = [row._replace(id="") for row in rows("test", ["3", "4"])]
    assert checked(train=train, dev=dev, test=test).counts == {}


@pytest.mark.parametrize(
    ("kind", "one", "twin", "other"),
    [
        ("pair", TextPair("a", "bc"), TextPair("a", "bc"), TextPair("ab", "c")),
        ("words", Words.join(["a", "b"]), Words.join(["a", "b"]), Words.join(["b", "a"])),
        ("vectors", np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 2))),
        ("picture", np.zeros((2, 2, 1)), np.zeros((2, 2, 1)), np.ones((2, 2, 1))),
    ],
)
def test_inputs_of_every_kind_are_compared(kind: InputKind, one: Input, twin: Input, other: Input) -> None:
    train, dev = rows("train", [one, other], "ab"), rows("dev", [twin], "a")
    ledger = Ledger()
    check_parts({"train": train, "dev": dev}, Schema(kind, "numbers"), ledger)
    assert ledger.counts == {"leak.overlap": 1}


def test_one_source_may_have_two_translations() -> None:
    ledger = Ledger()
    check_parts({"train": rows("train", ["x", "x"], "ab")}, Schema("text", "text"), ledger)
    assert ledger.counts == {}
