import pytest

from seqloom.data.checks.check import DataFinding, FindingSample
from seqloom.experiments.doctor import data as labels
from seqloom.experiments.doctor.data import Confusion, label_findings


def codes(confusion: Confusion, data: tuple[DataFinding, ...] = ()) -> list[str]:
    return [finding.code for finding in label_findings(confusion, data)]


def test_one_label_for_everything_is_found() -> None:
    said_a = (("a", "a", 76), ("b", "a", 23), ("b", "b", 1))
    (finding,) = label_findings(said_a)
    assert finding.code == "label.dominates" and finding.evidence["label"] == "a"
    assert finding.advice[0].typed == "--class-weights balanced"


def test_a_label_that_is_nearly_all_of_the_truth_may_be_nearly_all_that_is_said() -> None:
    assert codes((("a", "a", 95), ("b", "a", 5))) == []


def test_labels_that_are_never_said_are_found() -> None:
    (finding,) = label_findings((("a", "a", 700), ("b", "b", 250), ("c", "a", 50)))
    assert finding.code == "label.never-predicted" and "c" in finding.text
    assert codes((("a", "a", 900), ("b", "b", 90), ("c", "a", 10))) == []  # one in a hundred may be missed


def test_even_labels_need_no_weights() -> None:
    (finding,) = label_findings((("a", "a", 50), ("b", "a", 50)))
    assert [advice.typed for advice in finding.advice] == ["--find-lr"]
    assert codes((("a", "a", 50), ("b", "b", 50), ("c", "b", 40))) == []


def test_good_answers_and_few_answers_have_no_finding() -> None:
    assert codes((("a", "a", 40), ("b", "b", 35), ("a", "b", 5))) == []
    assert codes((("a", "a", 20), ("b", "a", 20))) == []
    assert codes(()) == []


def test_weights_are_advised_only_where_they_are_accepted() -> None:
    rare = (("a", "a", 700), ("b", "b", 250), ("c", "a", 50))
    (weighed,), (other,) = label_findings(rare), label_findings(rare, weighing=())
    assert [advice.typed for advice in weighed.advice] == ["--class-weights balanced"]
    assert other.advice == () and "Add examples" in other.text and "weight" not in other.text
    (said_a,) = label_findings((("a", "a", 76), ("b", "a", 24)), weighing=())
    assert [advice.typed for advice in said_a.advice] == ["--find-lr"]


def test_what_the_data_check_warned_of_is_told_again() -> None:
    unseen = DataFinding("warn", "label.unseen", 12, (FindingSample("x.csv:3", "label 'x' is new"),))
    (finding,) = label_findings((), (unseen,))
    assert finding.code == "label.data" and finding.evidence == {"label.unseen": 12.0} and "label 'x'" in finding.text
    assert codes((), (unseen._replace(severity="note"), unseen._replace(code="leak.overlap"))) == []


def test_without_its_limit_the_truth_would_be_called_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "AT_MOST", 1.0)
    assert codes((("a", "a", 96), ("b", "a", 4))) == ["label.dominates"]
