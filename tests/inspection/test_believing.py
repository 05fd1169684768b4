"""The badge: each picture of attention or attribution says how far it may be believed, and tells no other report."""

from pathlib import Path

import pytest

from inspection_common import subject_of, task_on
from seqloom.inspection.believing import PICTURES
from seqloom.inspection.front import LOOKS, Inspection

QUICK = {"permutations": 3, "adversaries": 0}


@pytest.fixture
def inspection(tmp_path: Path) -> Inspection:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    return Inspection(subject, "the cat sat", among=["a big dog ran"])


def test_a_picture_that_was_not_measured_says_so_wherever_it_is_shown(inspection: Inspection) -> None:
    view = inspection.attention()
    said = "Faithfulness not measured: ask .faithfulness(), or --view faithfulness."
    assert view.sentences()[-1] == said
    assert said in view.text(120) and said in view.html() and "Faithfulness not measured" in view.svg()
    assert "method=" in inspection.attribution(method="gradient_x_input").sentences()[-1]
    assert view.to_json()["notes"] == [said]


def test_what_was_measured_is_told_with_value_baseline_and_sample(inspection: Inspection) -> None:
    report = inspection.faithfulness(**QUICK)
    told = inspection.heads().sentences()[-1]
    assert told.lower().startswith(report.badge().text.lower())
    assert f"{report.level}, comprehensiveness" in told and "random tokens" in told and "2 inputs" in told
    assert f"measured of the attention of {report.layer}" in told
    assert "not measured" in inspection.attribution(method="gradient_x_input").sentences()[-1], "of another picture"


@pytest.mark.slow
def test_a_report_on_an_attribution_is_told_by_attributions_alone(inspection: Inspection) -> None:
    inspection.faithfulness(method="gradient_x_input", **QUICK)
    assert "measured of the attribution by" in inspection.attribution(method="gradient_x_input").sentences()[-1]
    assert "not measured" in inspection.attention().sentences()[-1]


@pytest.mark.slow
def test_other_views_carry_no_badge_and_other_inputs_no_report(inspection: Inspection) -> None:
    inspection.faithfulness(**QUICK)
    assert not any("aithfulness" in sentence for sentence in inspection.cutting().sentences())
    again = Inspection(inspection.subject, "the cat sat")
    assert "not measured" in again.attention().sentences()[-1]
    assert set(PICTURES) <= set(LOOKS)


def test_where_nothing_can_be_measured_the_reason_is_told(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "bag")
    view = Inspection(subject, ("the cat", "a dog")).similarity_pairs(method="occlusion")
    assert view.sentences()[-1].startswith("Faithfulness cannot be measured: ")
