"""The badge: each picture of attention or attribution says how far it may be believed, and tells no other report."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from faithfulness_common import planted_subject
from inspection_common import subject_of, task_on
from seqloom.config.mixers import GruConfig
from seqloom.config.stacks import BlockConfig
from seqloom.inspect.edits import ablated, attending, carried, clamped, patched
from seqloom.inspect.inspector import PICTURES, VIEWS, Inspection
from seqloom.inspect.subject import Subject

QUICK = {"permutations": 3, "adversaries": 0}


@pytest.fixture
def inspection(tmp_path: Path) -> Inspection:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    return Inspection(subject, "the cat sat", data=["a big dog ran"])


def test_a_picture_that_was_not_measured_says_so_wherever_it_is_shown(inspection: Inspection) -> None:
    view = inspection.attention()
    said = "Faithfulness not measured (the view faithfulness measures it)."
    assert view.sentences()[-1] == said
    assert said in view.text(120) and said in view.html() and "aithfulness" not in view.svg()
    assert "method=" in inspection.attribution(method="gradient_x_input").sentences()[-1]
    assert view.to_json()["hints"] == [said] and view.to_json()["notes"] == []


@pytest.mark.slow
def test_what_was_measured_is_told_with_value_baseline_and_sample(inspection: Inspection) -> None:
    report = inspection.faithfulness(**QUICK)
    told = inspection.heads().sentences()[-1]
    assert told.lower().startswith(report.badge().text.lower())
    assert f"{report.level}, comprehensiveness" in told and "random tokens" in told and "2 inputs" in told
    assert f"measured for attention of {report.layer}" in told
    assert "not measured" in inspection.attribution(method="gradient_x_input").sentences()[-1], "of another picture"


@pytest.mark.slow
def test_a_report_on_an_attribution_is_told_by_attributions_alone(inspection: Inspection) -> None:
    inspection.faithfulness(method="gradient_x_input", **QUICK)
    assert "measured for attribution by" in inspection.attribution(method="gradient_x_input").sentences()[-1]
    assert "not measured" in inspection.attention().sentences()[-1]


@pytest.mark.slow
def test_other_views_carry_no_badge_and_other_inputs_no_report(inspection: Inspection) -> None:
    inspection.faithfulness(**QUICK)
    assert not any("aithfulness" in sentence for sentence in inspection.tokenization().sentences())
    again = Inspection(inspection.subject, "the cat sat")
    assert "not measured" in again.attention().sentences()[-1]
    assert set(PICTURES) <= set(VIEWS)


@pytest.mark.slow
def test_a_report_on_an_explanation_of_the_callers_own_is_no_badge_of_the_librarys(inspection: Inspection) -> None:
    inspection.faithfulness(explain=lambda reading: range(len(reading.sides[0].tokens)), **QUICK)
    for view in (inspection.attribution(method="gradient_x_input"), inspection.attention()):
        assert view.sentences()[-1].startswith("Faithfulness not measured (")


def attentive(folder: Path) -> Subject:
    """A recurrence whose states are pooled by attention."""
    return planted_subject(folder, (BlockConfig(mixer=GruConfig()),))


def transformer(folder: Path) -> Subject:
    return subject_of(task_on(folder, "classify"), "transformer")


Edit = Callable[[Inspection], AbstractContextManager[Any]]
EDITS: list[tuple[Callable[[Path], Subject], Edit]] = [
    (transformer, lambda one: ablated(one.subject, layer=0)),
    (transformer, lambda one: attending(one.subject, one.reading, token=0, weights=[1, 0, 0])),
    (transformer, lambda one: patched(one.subject, one.reading, one.data[0], at=0)),
    (attentive, lambda one: attending(one.subject, one.reading, token=0, weights=[1, 0, 0])),
    (attentive, lambda one: clamped(one.subject, unit=0, value=0.5)),
    (attentive, lambda one: carried(one.subject, one.reading, one.data[0], at=0)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("build", "edit"), EDITS)
def test_a_report_is_not_told_while_an_edit_lasts(tmp_path: Path, build: Callable[[Path], Subject], edit: Edit) -> None:
    inspection = Inspection(build(tmp_path), "w0 w3 w4", data=["w1 w5 w6"])
    inspection.faithfulness(**QUICK)
    measured = inspection.attention().sentences()[-1]
    assert "; measured for attention" in measured
    with edit(inspection):
        assert "not measured for the current model" in inspection.attention().sentences()[-1]
    assert inspection.attention().sentences()[-1] == measured


@pytest.mark.slow
def test_a_report_is_not_told_of_other_weights(inspection: Inspection) -> None:
    inspection.faithfulness(**QUICK)
    with torch.no_grad():
        next(inspection.subject.model.parameters()).mul_(1.5)
    assert "not measured for the current model" in inspection.attention().sentences()[-1]
    inspection.faithfulness(**QUICK)
    assert "; measured for attention" in inspection.attention().sentences()[-1]


def test_where_nothing_can_be_measured_the_reason_is_told(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "bag")
    view = Inspection(subject, ("the cat", "a dog")).similarity_pairs(method="occlusion")
    assert view.sentences()[-1].startswith("Faithfulness cannot be measured: ")


@pytest.mark.slow
def test_changes_of_attention_and_attribution_carry_the_badges_of_both(inspection: Inspection) -> None:
    told = inspection.swap(old="cat", new="dog").hints
    attention, attribution = (inspection.view(name).hints for name in ("attention", "attribution"))
    assert told == (*attention, *attribution) and len(told) == 2
    assert inspection.swap(old="cat", new="dog", views=["attention"]).hints == attention
    assert inspection.swap(old="cat", new="dog", views=["states"]).hints == ()
    assert inspection.ablate(layer=0, views=["attribution"]).hints == attribution


def test_a_report_that_could_measure_nothing_is_not_told_as_one(tmp_path: Path) -> None:
    alone = Inspection(subject_of(task_on(tmp_path, "classify"), "self-attention"), "cat")
    assert alone.faithfulness(**QUICK).level == "not measured"
    assert "measured of" not in alone.attention().sentences()[-1]
