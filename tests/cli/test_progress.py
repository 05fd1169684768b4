"""Claims about what a run shows: samples where they are news, marks where there is right and wrong, warnings first."""

from pathlib import Path

import pytest

from seqloom.cli.terminal import ProgressFacts, sample_lines, validation_lines, warnings_said
from seqloom.data.check import load_data
from seqloom.data.checks.check import DataFinding
from seqloom.data.checks.check import FindingSample as Case
from seqloom.training.events import Sample, Speed, Validated

RIGHT, WRONG = Sample("a fine film", "good", "good", True), Sample("a film", "good", "bad", False)
BETTER, WORSE = Sample("a fox", "perplexity 4", "a fox", None), Sample("the fox", "perplexity 9", "the fox", None)
NEAR, FAR = Sample("warm", "21.2", "21.5", None), Sample("cold", "9.1", "2.5", None)


def shown(*samples: Sample, best: bool = True) -> list[str]:
    """The lines under the scores of a validation."""
    report = validated(*samples, best=best)
    return [line.plain for line in validation_lines(report, "accuracy", ProgressFacts("accuracy").news(report))[1:]]


def validated(*samples: Sample, best: bool = True) -> Validated:
    return Validated(20, 1, {"accuracy": 0.5}, best, best, samples, Speed(1.0, 1.0, 0.0, 1, None))


def test_samples_are_shown_when_the_best_changes() -> None:
    assert shown(WRONG, best=False) == []
    assert shown(WRONG, best=True) == ["  wrong: a film -> good   expected: bad"]


def test_a_validation_whose_weights_are_shipped_says_why() -> None:
    def last_word(best: bool, chosen: bool) -> str:
        report = validated(best=best)._replace(chosen=chosen)
        return validation_lines(report, "accuracy", [])[0].plain.split(" · ")[-1]

    assert last_word(True, True) == "best so far" and last_word(False, False) == "dev accuracy 0.5"
    assert last_word(False, True) == "kept"


def test_samples_that_were_shown_just_so_are_not_shown_again() -> None:
    facts = ProgressFacts("accuracy")
    better = WRONG._replace(predicted="bad", correct=True)
    told = [facts.news(validated(RIGHT, one)) for one in (WRONG, WRONG, better, better, WRONG)]
    assert told == [[WRONG, RIGHT], [], [RIGHT, better], [], [WRONG, RIGHT]]


def test_two_samples_are_shown_and_wrong_ones_come_first() -> None:
    assert shown(RIGHT, RIGHT, WRONG, RIGHT) == [
        "  wrong: a film -> good   expected: bad",
        "  correct: a fine film -> good",
    ]


@pytest.mark.parametrize("samples", [(BETTER, WORSE), (WORSE,), (WORSE, WORSE)])
def test_a_surprise_has_no_mark_since_no_text_is_right_or_wrong(samples: tuple[Sample, ...]) -> None:
    assert all(line.startswith(("  a fox -> ", "  the fox -> ")) and "true" not in line for line in shown(*samples))


def test_a_number_has_no_mark_and_the_true_one_is_told_of_the_better_ones_too() -> None:
    assert shown(NEAR, FAR) == ["  warm -> 21.2   expected: 21.5", "  cold -> 9.1   expected: 2.5"]


def test_copying_a_text_is_right_or_wrong_though_the_truth_is_the_input() -> None:
    copied, missed = Sample("abc", "abc", "abc", True), Sample("abd", "abb", "abd", False)
    assert shown(copied, missed) == ["  wrong: abd -> abb", "  correct: abc -> abc"]


def test_spans_are_marked_in_the_text_and_not_shown_as_tags() -> None:
    text, right = "John Smith left Acme", "B-PER I-PER O B-ORG"
    wrong, none = Sample(text, "B-PER I-PER O O", right, False), Sample(text, "O O O O", right, False)
    assert shown(wrong) == ["  wrong: [John Smith](PER) left Acme   expected: [John Smith](PER) left [Acme](ORG)"]
    assert shown(none) == [f"  wrong: {text}   expected: [John Smith](PER) left [Acme](ORG)"]
    assert shown(Sample(text, right, right, True)) == ["  correct: [John Smith](PER) left [Acme](ORG)"]
    cut = Sample("John Smith …", "B-PER I-PER …", "O O …", False)
    assert shown(cut) == ["  wrong: John Smith … -> B-PER I-PER …   expected: O O …"]


def test_an_answer_that_is_neither_right_nor_wrong_has_no_mark_even_if_it_says_what_is_true() -> None:
    (line,) = sample_lines([Sample("cool", "9", "9", None)])
    assert line.plain == "  cool -> 9"


# --- warnings about data ---------------------------------------------------------------------------------------------


def test_a_warning_of_prepared_data_is_told_with_its_code_its_place_and_its_count(tmp_path: Path) -> None:
    for part, rows in {"train": range(20), "dev": range(15, 30)}.items():
        table = "".join(f"film number {number},{'good' if number % 2 else 'bad'}\n" for number in rows)
        (tmp_path / f"{part}.csv").write_text(f"text,label\n{table}")
    prepared = load_data(tmp_path / "train.csv", dev=(str(tmp_path / "dev.csv"),))
    (line,) = (line for line in warnings_said(prepared.findings) if "leak.overlap" in line)
    assert line.startswith(f"warning: leak.overlap: {tmp_path / 'dev.csv'}:2: 5 of 15 rows in dev (33.3 %) have inputs")
    assert " Fix: remove these rows from train; " in line and line.endswith(" (5 rows in all)")


def test_only_warnings_are_told_and_no_word_of_the_data_can_steer_the_terminal() -> None:
    evil = Case("a\x1b[2J.csv:3", "the label '\u202e' has one row?", "")
    findings = [DataFinding("warn", "label.rare", 1, (evil,)), DataFinding("note", "text.blank", 3, (evil,))]
    assert warnings_said(findings) == [r"warning: label.rare: a\x1b[2J.csv:3: the label '\u202e' has one row?"]
    assert warnings_said([DataFinding("warn", "data.few", 0, ())]) == ["warning: data.few"]
