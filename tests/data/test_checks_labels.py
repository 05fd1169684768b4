"""What the checks of labels find, and what they leave in peace."""

import itertools
import tracemalloc
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks_common import check_parts
from seqloom.data.checks.labels import LONGEST_SHOWN, LONGEST_TYPO, is_typo
from seqloom.data.kinds.kind import TargetKind
from seqloom.data.kinds.words import Words
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Schema, Target
from seqloom.errors import RejectedError


def checked(kind: TargetKind = "label", **parts: Sequence[Target]) -> Ledger:
    ledger = Ledger()
    check_parts({name: examples(name, targets) for name, targets in parts.items()}, Schema("text", kind), ledger)
    return ledger


def examples(part: str, targets: Sequence[Target]) -> list[Example]:
    return [
        Example(f"{part} {row}", target, f"{part} {row}", Place(f"{part}.csv", row + 2))
        for row, target in enumerate(targets)
    ]


def found(ledger: Ledger) -> dict[str, int]:
    return dict(ledger.counts)


def only_text(ledger: Ledger, code: str) -> str:
    (problem,) = ledger.samples[code]
    return str(problem)


def test_good_labels_are_left_in_peace() -> None:
    labels = ["positive", "negative", "neutral", "très bien", "плохо", "βeta-free", "x-ray", "class1", "class2"] * 60
    assert found(checked(train=labels, dev=["neutral"])) == {}


@pytest.mark.parametrize(
    ("code", "usual", "odd"),
    [
        ("label.space", "pos", "pos "),
        ("label.space", "very good", "very  good"),
        ("label.space", "pos", "pos\u00a0"),
        ("label.case", "pos", "Pos"),
        ("label.case", "strasse", "straße"),
        ("label.normal_form", "caf\u00e9", "cafe\u0301"),
        ("label.numeric_forms", "1", "1.0"),
        ("label.numeric_forms", "1", "01"),
        ("label.numeric_forms", "0", "-0"),
        ("label.confusable", "positive", "p\u043esitive"),
        ("label.confusable", "BETA", "\u0392ETA"),
    ],
)
def test_two_spellings_of_one_label_are_told_with_counts_and_the_place_of_the_rarer(
    code: str, usual: str, odd: str
) -> None:
    ledger = checked(train=["other"] * 9 + [usual] * 7 + [odd] * 2)
    assert found(ledger) == {code: 2}
    problem = ledger.samples[code][0]
    assert f"'{usual}' (7 rows) and '{odd}' (2 rows)" in problem.text
    assert problem.place == Place("train.csv", 18)


def test_every_difference_is_blamed_once_and_on_its_own_cause() -> None:
    ledger = checked(train=["pos"] * 9 + ["pos "] * 2 + ["Pos"] * 2 + ["POS"] * 2 + ["neg"] * 9)
    assert found(ledger) == {"label.space": 2, "label.case": 4}


def test_spellings_are_compared_over_all_parts() -> None:
    ledger = checked(train=["pos", "neg"] * 200, dev=["pos"] * 120 + ["Neg"])
    assert found(ledger) == {"label.case": 1, "label.unseen": 1}


@pytest.mark.parametrize("label", [" alone", "alone\t"])
def test_white_space_around_a_label_is_told_even_without_a_twin(label: str) -> None:
    assert found(checked(train=["other"] * 3 + [label] * 3)) == {"label.space": 3}


@pytest.mark.parametrize("label", ["nan", "NULL", "None", "NA", "n/a"])
def test_labels_like_missing_values_are_told_and_kept(label: str) -> None:
    assert found(checked(train=["other"] * 3 + [label] * 3)) == {"label.null_like": 3}


@pytest.mark.parametrize("label", ["p\u0430ypal", "\u043ca\u043c\u0430"])
def test_a_word_of_two_alphabets_is_told_with_the_strange_letter(label: str) -> None:
    ledger = checked(train=["other"] * 3 + [label] * 3)
    assert found(ledger) == {"label.confusable": 3}
    assert "is U+" in only_text(ledger, "label.confusable")


def test_a_rare_label_one_slip_from_a_frequent_one_is_told_and_is_no_singleton_besides() -> None:
    ledger = checked(train=["positive"] * 2500 + ["negative"] * 2499 + ["postive"])
    assert found(ledger) == {"label.rare": 1}, "and not of few rows"
    assert "label 'postive' (1 row) may be a typo of 'positive' (2,500 rows)" in only_text(ledger, "label.rare")


def test_a_few_rows_of_a_short_label_beside_a_far_more_frequent_one_are_told() -> None:
    ledger = checked(train=["ham"] * 700 + ["spam"] * 700 + ["hamm"] * 3)
    assert "label 'hamm' (3 rows) may be a typo of 'ham' (700 rows)" in only_text(ledger, "label.rare")
    assert found(checked(train=["cat"] * 200 + ["car"] * 3)) == {"label.few": 3}, "often similar on purpose"


@pytest.mark.parametrize("label", ["class2", "neutral", "Class1", "clas"])
def test_rare_labels_that_differ_on_purpose_are_no_typing_errors(label: str) -> None:
    ledger = checked(train=["class1"] * 1000 + ["other"] * 1000 + [label] * 2)
    assert "label.rare" not in found(ledger)


def test_a_label_that_is_not_much_rarer_than_its_neighbor_is_no_typing_error() -> None:
    others = ["other"] * 5000
    assert found(checked(train=[*others, *["color"] * 60, *["colors"] * 2])) == {"label.few": 2}
    assert found(checked(train=[*others, *["color"] * 100, *["colors"] * 2])) == {"label.rare": 2}


@pytest.mark.parametrize("length", [LONGEST_TYPO - 1, LONGEST_TYPO])
def test_labels_up_to_the_longest_take_part_in_the_search_for_typing_errors(length: int) -> None:
    ledger = checked(train=["a" * length] * 2500 + ["other"] * 2499 + ["a" * (length - 1)])
    assert found(ledger) == {"label.rare": 1}


def test_long_labels_are_checked_in_little_memory_and_shown_cut() -> None:
    long = "ab" * 5_000
    labels = [long] * 60 + [long + "y"] * 60 + ["other"] * 60 + [long + "z"]
    tracemalloc.start()
    try:
        ledger = checked(train=labels)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000
    assert f"'{long[:LONGEST_SHOWN]}...' (10,001 characters) has only one example" in only_text(
        ledger, "label.singleton"
    )


def test_b_and_i_of_one_type_are_no_typing_errors_but_a_misspelled_type_is() -> None:
    tags = [("B-person", "I-person", "O")] * 1000 + [("B-person", "O"), ("I-persn", "O")]
    ledger = checked("tags", train=tags)
    assert found(ledger)["label.rare"] == 1
    assert "'persn' (1 row) may be a typo of 'person'" in only_text(ledger, "label.rare")


letters = st.text("abcd", min_size=0, max_size=5)


@given(letters, letters)
def test_a_slip_is_a_damerau_distance_of_one(one: str, other: str) -> None:
    assert is_typo(one, other) == (distance(one, other) == 1)


def distance(one: str, other: str) -> int:
    """Damerau-Levenshtein with neighbors swapped, by the textbook table."""
    table = {(row, 0): row for row in range(len(one) + 1)} | {(0, column): column for column in range(len(other) + 1)}
    for i, j in itertools.product(range(1, len(one) + 1), range(1, len(other) + 1)):
        change = table[i - 1, j - 1] + (one[i - 1] != other[j - 1])
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, change)
        if i > 1 and j > 1 and one[i - 2 : i] == other[j - 2 : j][::-1]:
            table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[len(one), len(other)]


def test_a_class_with_one_example_is_told() -> None:
    ledger = checked(train=["a"] * 9 + ["b"] * 9 + ["c"])
    assert found(ledger) == {"label.singleton": 1}
    assert str(ledger.samples["label.singleton"][0]).startswith("train.csv:20: ")


def test_a_class_of_few_rows_is_counted_in_the_whole_file_which_cleaning_reads() -> None:
    ledger = Ledger()
    parts = {"train": ["a"] * 9 + ["b"] * 9 + ["c"], "dev": ["a", "b", "c"], "test": ["c"]}
    examples = {
        part: [
            Example(f"text {row}", label, f"{part} {row}", Place("all.csv", row)) for row, label in enumerate(labels)
        ]
        for part, labels in parts.items()
    }
    check_parts(examples, Schema("text", "label"), ledger)
    assert "all-clean.csv --rare 5`, which drops such rows" in ledger.samples["label.singleton"][0].fix
    examples["dev"] += [Example("text", "c", f"more {row}", Place("all.csv", row)) for row in range(2)]
    ledger = Ledger()
    check_parts(examples, Schema("text", "label"), ledger)
    assert ledger.samples["label.singleton"][0].fix == "add examples to train", "it has enough rows in all"


def test_few_labels_not_seen_in_training_are_told_with_their_lines() -> None:
    ledger = checked(train=["a", "b"] * 20, dev=["a", "b"] * 100 + ["c"])
    assert found(ledger) == {"label.unseen": 1}
    assert str(ledger.samples["label.unseen"][0]).startswith("dev.csv:202: label.unseen: label 'c' (1 row) in dev")


def refused(kind: TargetKind = "label", **parts: Sequence[Target]) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        checked(kind, **parts)
    return caught.value


def test_more_than_one_percent_of_unseen_labels_is_refused() -> None:
    error = refused(train=["a", "b"] * 20, dev=["a", "b"] * 49 + ["c", "c"])
    assert error.codes == ("label.unseen",)
    assert "2 of 100 labels in dev are not in train: 'c' (2)" in str(error)


def test_unseen_tags_are_counted_by_their_occurrences() -> None:
    sentences = [("O",) * 60, ("B-x",) + ("O",) * 60]
    assert found(checked("tags", train=sentences * 3, dev=[*sentences, ("B-y",)])) == {"label.unseen": 1}
    assert refused("tags", train=sentences * 3, dev=[*sentences, ("B-y", "B-y")]).codes == ("label.unseen",)


@pytest.mark.parametrize(("kind", "target"), [("label", "a"), ("tags", ("O", "O"))])
def test_one_class_only_is_refused(kind: TargetKind, target: Target) -> None:
    assert refused(kind, train=[target] * 5).codes == ("label.single",)


def test_rows_of_several_labels_are_refused_if_no_row_of_train_has_any() -> None:
    error = refused("labels", train=[()] * 60, dev=[("a",)])
    assert error.codes == ("label.none",)
    assert (
        str(error).startswith("train.csv: ")
        and "no row of train has a label" in str(error)
        and "name the label column with --target" in str(error)
    )
    assert "label.none" not in found(checked("labels", train=[("a",), ("b",), ()] * 20, dev=[()]))


def test_labels_that_are_nearly_all_different_are_refused_but_not_in_a_handful_of_rows() -> None:
    numbered = [f"text {row}" for row in range(19)]
    assert "label.too_many" not in found(checked(train=numbered))
    error = refused(train=[*numbered, "more"])
    assert error.codes == ("label.too_many",)
    assert "20 different labels in 20 rows; is this the right column?" in str(error)
    assert "--task regress" not in str(error)


def test_numbers_that_are_nearly_all_different_are_refused_with_the_task_for_them() -> None:
    assert "Fix: use --task regress" in str(refused(train=[f"{row}.5" for row in range(20)]))


def test_a_small_dev_set_may_have_a_label_in_every_row() -> None:
    names = [f"intent {row}" for row in range(30)]
    assert found(checked(train=names * 3, dev=names)) == {}


def test_exactly_half_of_the_rows_may_have_a_label_of_their_own() -> None:
    assert "label.singleton" in found(checked(train=[f"{row}" for row in range(19)] + ["x"] * 21))


@pytest.mark.parametrize("kind", ["labels", "tags"])
def test_counting_ends_at_a_number_that_no_set_of_classes_has(
    kind: TargetKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqloom.data.checks import labels
    from seqloom.data.survey import Checks

    monkeypatch.setattr(labels, "MOST_LABELS", 30)
    checks, everything = Checks(Schema("text", kind)), examples("train", [(f"name{row}",) for row in range(100)])
    for start in range(0, 100, 10):
        checks.update("train", everything[start : start + 10])
    with pytest.raises(RejectedError, match=r"40 different (label|tag)s in 100 rows"):
        checks.finish(Ledger())


def test_several_labels_a_row_are_checked_one_by_one() -> None:
    ledger = checked("labels", train=[("a", "b"), ("b", "B"), (), ("a",)])
    assert found(ledger) == {"label.case": 1}


def test_no_flood_of_samples() -> None:
    labels = [f"{name}{end}" for name in range(300) for end in ("", " ") for _ in range(2)]
    ledger = checked("labels", train=[(label,) for label in labels])
    assert ledger.counts["label.space"] == 600
    assert len(ledger.samples["label.space"]) == 5


@given(st.lists(st.text(max_size=4), min_size=2, max_size=8), st.integers(1, 9))
def test_findings_do_not_depend_on_how_the_rows_are_cut_into_blocks(labels: list[str], rows: int) -> None:
    from seqloom.data.survey import Checks

    def run(size: int) -> Mapping[str, object]:
        ledger, checks = Ledger(), Checks(Schema("text", "labels"))
        everything = examples("train", [(label,) for label in labels])
        for start in range(0, len(everything), size):
            checks.update("train", everything[start : start + size])
        checks.finish(ledger)
        return {"counts": ledger.counts, "samples": ledger.samples}

    assert run(rows) == run(1000)


def test_words_are_examples_too() -> None:
    ledger = Ledger()
    rows = [Example(Words.join(["a", "b"]), ("O", "B-x"), "", Place("x.conll", line)) for line in range(1, 4)]
    check_parts({"train": rows}, Schema("words", "tags"), ledger)
    assert found(ledger) == {}
