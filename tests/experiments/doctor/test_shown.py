import json
import re
from dataclasses import replace

import pytest

from diagnosis_common import falling, looks, steps
from seqloom.config.training import TrainingConfig
from seqloom.errors import DataError
from seqloom.experiments.doctor.curves import curve_findings, losses_drawn, story_of
from seqloom.experiments.doctor.data import label_findings
from seqloom.experiments.doctor.findings import Advice, Diagnosis, Finding
from seqloom.report.labels import columns

STORY = story_of(steps(falling) + looks([1.5, 1.2, 1.0, 1.1, 1.3, 1.5]))
HOSTILE = "<script>\x1b[31m\u202e"
ILL = Diagnosis(
    name=f"run {HOSTILE}",
    findings=(
        *curve_findings(STORY, TrainingConfig()),
        *label_findings(((HOSTILE, HOSTILE, 50), ("b", HOSTILE, 49), ("b", "b", 1))),
    ),
    figures=(losses_drawn(STORY, "Loss"),),
    messages=(f"no model {HOSTILE}",),
)
WELL = Diagnosis(name="run", figures=(losses_drawn(STORY, "Loss"),))


@pytest.mark.parametrize("width", [50, 80, 100])
@pytest.mark.parametrize("diagnosis", [ILL, WELL])
def test_no_line_is_wider_than_asked_for_and_nothing_hidden_gets_through(diagnosis: Diagnosis, width: int) -> None:
    lines = diagnosis.text(width).split("\n")
    assert max(map(columns, lines)) <= width
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_the_text_has_the_evidence_the_flag_and_the_picture() -> None:
    text = ILL.text(100)
    assert "dev.gap" in text and "- --dropout 0.3: now 0" in text and "training: " in text
    assert re.search(r"lowest dev loss +1\n", text)
    assert "no known problems found" in WELL.text(100)


def test_a_run_that_is_too_short_has_no_tick_in_any_form() -> None:
    short = replace(WELL, long_enough=False)
    assert "? the run is too short to check" in short.text(100) and "✓" not in short.text(100)
    assert (
        '<div class="verdict open">the run is too short to check' in short.html()
        and short.to_json()["long_enough"] is False
    )
    assert (
        "✓ no known" in WELL.text(100) and '<div class="verdict fine">' in WELL.html() and WELL.to_json()["long_enough"]
    )
    assert "start with --dropout" in replace(ILL, long_enough=False).text(100)  # what was found is told all the same


def test_a_model_that_could_not_be_checked_has_no_tick() -> None:
    unseen = replace(WELL, model_checked=False)
    assert "? the model could not be checked (see Notes)" in unseen.text(100) and "✓" not in unseen.text(100)
    assert '<div class="verdict open">' in unseen.html() and unseen.to_json()["model_checked"] is False


def test_a_table_of_scores_says_on_which_rows() -> None:
    scored = replace(WELL, metric="accuracy", scores=(("this run", 0.9),), scored_on="65 of 74 dev rows")
    assert "accuracy on 65 of 74 dev rows" in scored.text(100) and scored.to_json()["scored_on"] == "65 of 74 dev rows"


def test_color_only_adds_escapes() -> None:
    assert "\x1b[" in ILL.text(80, color=True)
    with pytest.raises(DataError, match="at least 50"):
        ILL.text(49)


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    page = ILL.html()
    assert "<script" not in page and "\x1b" not in page and "http-equiv" in page
    assert page.count("<h2>") == len(ILL.findings) + 2
    assert "&lt;script&gt;" in page and ILL._repr_html_().startswith("<iframe sandbox")


def test_plain_values_survive_json() -> None:
    plain = ILL.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert [finding["code"] for finding in plain["findings"]] == list(ILL.codes) == ["dev.gap", "label.dominates"]
    assert plain["findings"][0]["advice"][0] == {"flag": "--dropout", "value": "0.3"} | {"why": "now 0"}


def test_of_two_pieces_of_advice_for_one_flag_the_first_counts() -> None:
    two = [Finding("x", "", "", {}, None, (Advice("--lr", value),)) for value in ("1", "2")]
    assert Diagnosis(name="", findings=tuple(two)).advice == (Advice("--lr", "1"),)
