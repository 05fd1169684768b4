"""The report and the card of a run say what the folder says: all of it, safely, and the same twice."""

import html
import json
import re
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pages_common import Elements
from seqloom import recipes
from seqloom.config.base import with_setting
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import AnyModel
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import RunConfig, TrainingConfig
from seqloom.data.schema import Schema
from seqloom.errors import DamagedError, DataError
from seqloom.files.folders import commit_folder
from seqloom.files.jsonl import append_line, write_lines
from seqloom.report.figures import markup
from seqloom.tasks.task import HeadSettings, ModelSpec, task_of
from seqloom.text.tokenizer import fit
from seqloom.training.run_folder import vocabulary_of
from seqloom.training.run_report import prediction_history
from seqloom.training.run_summary import RunSummary, model_named, speeds_of_steps, summary_of, write_pages

LABELS = ["glad", "angry", "שלום"]
ENVIRONMENT = {
    "seqloom": "0.1.0",
    "torch": "2.13.0",
    "python": "3.11.2",
    "device": "cpu",
    "capability": "AVX512",
    "threads": 1,
    "ranks": 1,
    "sharded": False,
}
TOKENIZER = fit(WordsConfig(), ["a film", "another film"])
HOSTILE = ["</style><script>alert(1)</script>", "\u202etxt.exe", "\x1b[31mred\x00", '"><img src=x onerror=alert(1)>']


def step_line(step: int, **changes: Any) -> dict[str, Any]:
    plain = {"kind": "step", "step": step, "epoch": 0, "progress": step / 100, "loss": 2 / step, "lr": 0.001}
    plain |= {
        "grad_norm": 0.5,
        "max_grad_norm": 2.0,
        "clipped": 0.25,
        "skipped": 0,
        "tokens": 50 * step,
        "padding": 0.1,
    }
    return plain | changes


def validation_line(step: int, accuracy: float, *, best: bool = True, text: str = "a film") -> dict[str, Any]:
    sample = {"input": text, "predicted": LABELS[step % 3], "expected": "glad", "correct": step % 3 == 0}
    metrics = {"accuracy": accuracy, "loss": 1 / step}
    return {"kind": "validation", "step": step, "epoch": 1, "metrics": metrics, "best": best, "samples": [sample]}


def pace_line(step: int, speed: float = 1000.0) -> dict[str, Any]:
    pace = {"seconds": step * 0.1, "tokens_per_second": speed, "data_wait": 0.05, "memory": 10**8, "remaining": None}
    return {"kind": "speed", "when": "2031-02-03T04:05:06", "step": step, **pace}


METRICS = [
    *(step_line(step) for step in range(10, 101, 10)),
    validation_line(50, 0.5),
    validation_line(100, 0.75),
    {"kind": "end", "step": 100, "reason": "done", "best_step": 100, "metrics": {"accuracy": 0.75}},
]
EVENTS = [
    {"kind": "start", "folder": "x", "step": 0, "parameters": 4321, "trainable": 4000, "steps": 100}
    | {"checkpoint_bytes": 99, "environment": ENVIRONMENT, "predicted": ["cpu was chosen"]},
    *(pace_line(step) for step in range(10, 101, 10)),
    {"kind": "notice", "step": 30, "code": "step.skipped", "text": "not finite", "fix": "lower --lr"},
]
NOTES = {
    "step": 100,
    "dev": {"accuracy": 0.75, "loss": 0.01},
    "dev_rows": 40,
    "intervals": {"accuracy": [0.61, 0.87]},
    "confusion": [["glad", "glad", 20], ["glad", "angry", 7], ["angry", "angry", 13]],
}


def run_folder(
    path: Path,
    *,
    metrics: list[dict[str, Any]] = METRICS,
    events: list[dict[str, Any]] = EVENTS,
    notes: dict[str, Any] | None = NOTES,
    labels: list[str] = LABELS,
    file: str = "reviews.csv",
    model: AnyModel | None = None,
    metric: str | None = None,
) -> Path:
    """A folder such as training leaves."""
    if model is None:
        model = recipes.classifier("gru", inputs=TokensConfig(vocab_size=50), num_classes=3, size="nano")
    config = RunConfig(
        task="classify",
        data=DataConfig(train=(file[:200],)),
        encoding=EncodingConfig(),
        model=model,
        training=TrainingConfig(metric=metric),
    )
    findings = [["warn", "labels.rare", 12, [[f"{file}:7", "a label has 3 rows", "add rows"]]]]
    split = {"rule": {"kind": "random"}, "counts": {"train": 400, "dev": 40}}
    facts = {"fingerprints": {file: "a1"}, "split": split, "findings": findings, "predicted": ["input: text"]}
    (path / "model").mkdir(parents=True)
    (path / "config.toml").write_text(config.to_toml())
    (path / "data.json").write_text(json.dumps(facts))
    spec = ModelSpec(Schema("text", "label", tuple(labels)), TOKENIZER, None)
    commit_folder(path / "vocabulary", vocabulary_of(spec))
    if notes is not None:
        (path / "model" / "config.json").write_text(json.dumps({"notes": notes}))
    write_lines(path / "metrics.jsonl", metrics)
    write_lines(path / "events.jsonl", events)
    return path


def look(accuracy: float) -> dict[str, Any]:
    return {"when": "2031-02-03", "seqloom": "0.1.0", "model_sha256": "ab" * 32, "rows": 41} | {
        "metrics": {"accuracy": accuracy},
        "intervals": {"accuracy": [accuracy - 0.1, accuracy + 0.1]},
    }


def report_html(summary: RunSummary) -> str:
    return summary.html()


def card_md(summary: RunSummary) -> str:
    return summary.card().markdown()


def test_the_report_shows_curves_scores_confusion_answers_data_configuration_and_environment(tmp_path: Path) -> None:
    page = report_html(summary_of(run_folder(tmp_path / "run")))
    for title in ("Loss", "Dev accuracy", "Learning rate", "Gradient norm", "Tokens per second"):
        assert title in page
    for words in ("Clipped in 25 % of the steps", "0.61 to 0.87", "angry", "a film", "labels.rare", "reviews.csv"):
        assert words in page
    for words in ("4,321", "kind = &quot;run&quot;", "AVX512", "lower --lr", "Finished after 100 steps", "400"):
        assert words in page


def test_a_smoothed_training_loss_says_that_the_dev_loss_is_not_smoothed(tmp_path: Path) -> None:
    model = recipes.classifier("gru", inputs=TokensConfig(vocab_size=50), num_classes=3, size="nano")
    said = "and label smoothing 0.1, which raises it; the dev loss has neither."
    smoothed = run_folder(tmp_path / "smoothed", model=with_setting(model, "label_smoothing", 0.1))
    assert said in report_html(summary_of(smoothed))
    assert "label smoothing 0" not in report_html(summary_of(run_folder(tmp_path / "plain", model=model)))


def test_the_report_needs_nothing_from_outside(tmp_path: Path) -> None:
    page = report_html(summary_of(run_folder(tmp_path / "run")))
    found = Elements(page)
    assert found.names.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "form", "base"})
    assert found.attributes.isdisjoint({"src", "href", "onerror", "onload", "onclick"})
    assert "url(" not in page and "@import" not in page
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 1_000_000])
def test_hostile_text_is_shown_and_does_nothing(tmp_path: Path, text: str) -> None:
    metrics = [validation_line(50, 0.5, text=text[:2000]), validation_line(100, 0.75, text=text[:2000])]
    events = [*EVENTS, {"kind": "notice", "step": 3, "code": "x", "text": text[:2000], "fix": text[:2000]}]
    notes = NOTES | {"confusion": [[text, "glad", 2], ["glad", text, 1]]}
    labels, name = [*LABELS, text], re.sub(r"[/\x00]", "_", text)[:100]
    run = run_folder(tmp_path / name, metrics=metrics, events=events, notes=notes, labels=labels, file=text)
    summary = summary_of(run)
    page, card = report_html(summary), card_md(summary)
    assert Elements(page).names.isdisjoint({"script", "img"})
    for written in (page, card):
        assert len(written) < 200_000
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", written)
    spans = re.sub(r"(`+).+?\1", "", card)  # Markdown gives no meaning to what is inside a code span
    assert "<script" not in spans and "<img" not in spans


def test_without_escaping_hostile_text_would_act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_folder(tmp_path / "run", metrics=[validation_line(50, 0.5, text=HOSTILE[0])])
    monkeypatch.setattr(markup, "_escaped", str)
    assert "script" in Elements(report_html(summary_of(run))).names


def test_a_second_look_at_the_test_set_is_reported_plainly(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    assert "has not been evaluated on the test set" in card_md(summary_of(run))
    append_line(run / "test_evaluations.jsonl", look(0.7))
    once = card_md(summary_of(run))
    assert (
        "Evaluated on the test set once" in once
        and "0.7 (0.6 to 0.8)" in once
        and "Only the first evaluation" not in once
    )
    append_line(run / "test_evaluations.jsonl", look(0.5))
    twice = card_md(summary_of(run))
    assert "Evaluated on the test set 2 times" in twice and "Only the first evaluation is unbiased" in twice
    assert "0.7 (0.6 to 0.8)" in twice and "0.5 (0.4 to 0.6)" in twice
    assert "Only the first evaluation is unbiased" in report_html(summary_of(run))


def test_equal_runs_have_equal_cards_wherever_and_whenever_they_ran(tmp_path: Path) -> None:
    slow = [line | ({"seconds": 9e9, "when": "2099"} if line["kind"] == "speed" else {}) for line in EVENTS]
    here, there = run_folder(tmp_path / "here"), run_folder(tmp_path / "there", events=slow)
    for run in (here, there):
        append_line(run / "test_evaluations.jsonl", look(0.7))
    assert card_md(summary_of(here)) == card_md(summary_of(there))
    assert "2031" not in card_md(summary_of(here))
    assert report_html(summary_of(here)) == report_html(summary_of(here))


def test_scores_of_other_weights_than_the_best_are_not_shown_as_theirs(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", notes=NOTES | {"step": 50})
    assert "0.61" not in card_md(summary_of(run)) and "not measured" in card_md(summary_of(run))
    assert "0.61 to 0.87" in card_md(summary_of(run, NOTES))  # the model that is about to be shipped


def test_a_run_that_took_steps_again_has_one_point_for_each(tmp_path: Path) -> None:
    again = [*(pace_line(step, 1.0) for step in (10, 20, 30)), *(pace_line(step, 2.0) for step in (20, 30, 40))]
    summary = summary_of(run_folder(tmp_path / "run", events=[EVENTS[0], *again]))
    assert [(one.step, one.tokens_per_second) for one in summary.speeds] == [(10, 1.0), (20, 2.0), (30, 2.0), (40, 2.0)]
    assert "Tokens per second" in report_html(summary)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ([], "Not finished: at step 0"),
        ([step_line(10)], "Not finished: at step 10"),
        ([step_line(10, loss=None, grad_norm=None, max_grad_norm=None)], "Not finished"),
        ([*METRICS, step_line(110)], "Not finished: at step 110"),
        (
            [{"kind": "end", "step": 7, "reason": "not-finite", "best_step": 0, "metrics": {}}],
            "NaN or infinite three times",
        ),
    ],
)
def test_runs_that_are_not_finished_have_pages_too(tmp_path: Path, metrics: list[dict[str, Any]], words: str) -> None:
    run = run_folder(tmp_path / "run", metrics=metrics, events=[], notes=None)
    write_pages(run)
    assert words in html.unescape((run / "report.html").read_text())
    assert (run / "card.md").read_text().startswith("# classify: gru, nano\n")


def test_the_same_examples_are_followed_and_wrong_ones_come_first() -> None:
    from seqloom.training.run_summary import SampleLine, ValidationLine

    def at(step: int) -> ValidationLine:
        samples = tuple(SampleLine(name, f"{name}{step}", name, name == "a") for name in "abc")
        return ValidationLine(step, 0, {}, True, samples)

    shown = prediction_history([at(step) for step in range(1, 101)])
    assert [one.input for one in shown] == ["b", "c", "a"]
    assert [step for step, _ in shown[0].answers] == [1, 34, 67, 100]
    assert [sample.predicted for _, sample in shown[0].answers] == ["b1", "b34", "b67", "b100"]


def test_a_summary_is_whole_as_json_and_draws_itself_in_a_notebook(tmp_path: Path) -> None:
    summary = summary_of(run_folder(tmp_path / "run"))
    plain = summary.to_json()
    assert set(plain) == set(RunSummary.__struct_fields__) and len(plain["steps"]) == 10
    assert summary._repr_html_().startswith("<iframe sandbox srcdoc=")


@pytest.mark.slow
def test_what_is_no_run_is_refused_with_a_cure(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    with pytest.raises(DataError, match=r"no config\.toml.*Did you mean run\?"):
        summary_of(tmp_path / "rum")
    with pytest.raises(DataError, match="seqloom train --out"):
        summary_of(tmp_path)
    facts = (run / "data.json").read_text()
    (run / "data.json").write_text("[")
    with pytest.raises(DamagedError, match=r"data\.json is not JSON"):
        summary_of(run)
    (run / "data.json").write_text('{"findings": [7]}')
    with pytest.raises(DamagedError, match=r"data\.json is not readable"):
        summary_of(run)
    (run / "data.json").write_text(facts)
    write_lines(run / "metrics.jsonl", [{"kind": "step", "step": "ten"}])
    with pytest.raises(DamagedError, match=r"metrics\.jsonl: a line is not readable"):
        summary_of(run)


EARLY = [
    *(step_line(step) for step in range(10, 51, 10)),
    validation_line(56, 0.5),
    *(step_line(step) for step in range(60, 101, 10)),
    validation_line(104, 0.4, best=False),
    {"kind": "end", "step": 104, "reason": "patience", "best_step": 56, "metrics": {"accuracy": 0.5}},
]


def test_the_card_counts_the_rows_of_the_test_set_once_a_model_was_evaluated_on_it(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    for draw in (card_md, report_html):
        assert "not read by training" in draw(summary_of(run))
    append_line(run / "test_evaluations.jsonl", look(1.0))
    card = card_md(summary_of(run))
    assert re.search(r"\| train \| +400 \|\n\| dev \| +40 \|\n\| test \| +41 \|", card), card
    assert "The accuracy of all rows is 1" in card.partition("## The test set")[2].partition("## Data")[0]


def test_the_card_names_the_step_of_the_weights_and_the_step_that_the_run_came_to(tmp_path: Path) -> None:
    card = card_md(summary_of(run_folder(tmp_path / "run", metrics=EARLY, notes=NOTES | {"step": 56})))
    assert "| weights | of step 56 |" in card
    assert "| last step | 104 |\n| tokens read | 5,000 by step 100 |" in card


def test_the_card_of_a_model_names_its_step_when_it_is_shipped_between_two_reports(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", metrics=EARLY[:6], notes=None)
    card = card_md(summary_of(run, NOTES | {"step": 56}))
    assert "| weights | of step 56 |" in card
    assert "| last step | 56 when this was written |\n| tokens read | 2,500 by step 50 |" in card


@pytest.mark.slow
def test_the_report_counts_the_steps_after_the_last_report_of_steps(tmp_path: Path) -> None:
    page = report_html(summary_of(run_folder(tmp_path / "run", metrics=EARLY)))
    assert "<b>104</b><span>steps</span>" in page and "<b>5,000</b><span>tokens read by step 100</span>" in page
    cut_off = report_html(summary_of(run_folder(tmp_path / "cut", metrics=EARLY[:6])))
    assert "Not finished: at step 56" in cut_off and "<b>56</b><span>steps" in cut_off


@pytest.mark.slow
def test_a_perfect_score_is_shown_with_the_rule_of_three_and_others_without(tmp_path: Path) -> None:
    perfect = {"dev": {"accuracy": 1.0, "loss": 0.01}, "intervals": {"accuracy": [0.8638, 1.0], "loss": [0.009, 0.02]}}
    summary = summary_of(run_folder(tmp_path / "perfect", notes=NOTES | perfect))
    plain = summary_of(run_folder(tmp_path / "plain"))
    for draw in (card_md, report_html):
        assert "The accuracy of all rows is 1" in draw(summary) and "rule of three" in draw(summary)
        assert "rule of three" not in draw(plain)
    append_line(tmp_path / "plain" / "test_evaluations.jsonl", look(1.0))
    for draw in (card_md, report_html):
        assert "rule of three" in draw(summary_of(tmp_path / "plain"))


def paces(*lines: dict[str, Any]) -> list[tuple[int, float | None]]:
    """What is drawn of them, if the steps 10, 20, ... are reported."""
    found = speeds_of_steps(lines, range(10, 101, 10), Path("events.jsonl"))
    return [(one.step, one.tokens_per_second) for one in found]


BEGUN, VALIDATED = EVENTS[0], 0.0  # a validation tells of a pace over almost no time


def test_paces_at_validations_are_left_out() -> None:
    together = [pace_line(10, 900.0), pace_line(10, VALIDATED)]
    alone = [pace_line(15, 300.0), pace_line(20, 800.0)]
    assert paces(BEGUN, *together, *alone) == [(10, 900.0), (20, 800.0)]


def test_steps_that_are_taken_again_after_a_kill_have_their_last_pace() -> None:
    first = [pace_line(10, 1.0), pace_line(10, VALIDATED)]  # killed before its first checkpoint
    again = [pace_line(10, 2.0), pace_line(10, VALIDATED), pace_line(20, 2.0)]
    assert paces(BEGUN, *first, BEGUN, *again) == [(10, 2.0), (20, 2.0)]


def test_without_the_beginnings_a_step_taken_again_would_pass_for_a_validation() -> None:
    assert paces(BEGUN, pace_line(10, 1.0), pace_line(10, 2.0)) == [(10, 1.0)]


def test_the_time_of_a_run_goes_to_its_last_validation(tmp_path: Path) -> None:
    events = [BEGUN, pace_line(10, 900.0), pace_line(15, VALIDATED)]
    assert summary_of(run_folder(tmp_path / "run", events=events)).seconds == pytest.approx(1.5)


def test_many_labels_are_confused_in_a_table_without_a_picture(tmp_path: Path) -> None:
    names = [f"label-{at}" for at in range(70)]
    pairs = [[true, other, 1] for true, other in zip(names, names[1:] + names[:1], strict=True)]
    metrics = [validation_line(50, 0.5), validation_line(100, 0.75)]
    page = report_html(summary_of(run_folder(tmp_path / "run", metrics=metrics, notes=NOTES | {"confusion": pairs})))
    assert "label-0" in page


def test_scores_confusions_and_answers_come_before_curves_and_speed_comes_last(tmp_path: Path) -> None:
    page = report_html(summary_of(run_folder(tmp_path / "run")))
    order = ["Scores on the dev set", "Confusion matrix", "Predictions over time", ">Loss<", "Configuration"]
    places = [page.index(words) for words in (*order, ">Tokens per second<")]
    assert places == sorted(places)


@pytest.mark.parametrize("why", ["done", "patience"])
def test_an_end_as_asked_for_is_told_in_plain_words_and_a_neutral_color(tmp_path: Path, why: str) -> None:
    end = METRICS[-1] | {"reason": why, "metrics": {"accuracy": 0.0}}
    page = report_html(summary_of(run_folder(tmp_path / "run", metrics=[*METRICS[:-1], end])))
    banner = page.split('class="verdict ')[1].split("</div>")[0]
    assert (
        banner.startswith('plain">Finished' if why == "done" else 'plain">Stopped early')
        and "`" not in banner
        and "after 100 steps" in banner
    )


@pytest.mark.parametrize(("accuracy", "why"), [(1.0, "is perfect and has stayed so"), (0.75, "did not improve")])
def test_an_early_stop_at_a_perfect_score_is_told_as_such(tmp_path: Path, accuracy: float, why: str) -> None:
    end = METRICS[-1] | {"reason": "patience", "metrics": {"accuracy": accuracy}}
    notes = NOTES | {"dev": {"accuracy": accuracy, "loss": 0.01}}
    page = report_html(summary_of(run_folder(tmp_path / "run", metrics=[*METRICS[:-1], end], notes=notes)))
    assert f"Stopped early: the dev score {why}" in page


def test_pages_call_a_model_by_its_recipe_and_size(tmp_path: Path) -> None:
    summary = summary_of(run_folder(tmp_path / "run"))
    assert "classify with gru, nano" in report_html(summary)
    assert card_md(summary).startswith("# classify: gru, nano\n")


MEANINGS = {
    "classify": ModelSpec(Schema("text", "label", ("a", "b")), TOKENIZER, None),
    "tag": ModelSpec(Schema("text", "tags", ("O", "B-X")), TOKENIZER, None),
    "lm": ModelSpec(Schema("text", "nothing", ()), TOKENIZER, None),
    "translate": ModelSpec(Schema("text", "text", ()), TOKENIZER, TOKENIZER),
    "vectors": ModelSpec(Schema("vectors", "numbers", ()), None, None, (3,), 2),
    "picture": ModelSpec(Schema("picture", "label", ("a", "b")), None, None, (28, 28, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEANINGS)
def test_every_recipe_and_size_is_found_again_whatever_dropout_and_head(kind: str) -> None:
    task = task_of(MEANINGS[kind])
    head = HeadSettings(label_smoothing=0.0 if MEANINGS[kind].numbers else 0.1)  # numbers have nothing to smooth
    for recipe, size in zip(task.recipes(), cycle(recipes.SIZES), strict=False):
        model = with_setting(task.model(recipe, size, head), "dropout", 0.45)
        assert model_named(model, task) in (f"{recipe}, {size}", recipe)
    default = task.recipes()[0]
    assert model_named(task.model(default, "small", HeadSettings()), task) == f"{default}, small"


def test_a_model_of_somebodys_own_is_called_by_its_layers(tmp_path: Path) -> None:
    made = recipes.classifier("gru", inputs=TokensConfig(vocab_size=50), num_classes=3, size="nano")
    own = msgspec.structs.replace(made, encoder=msgspec.structs.replace(made.encoder, repeat=5, final_norm="layer"))
    summary = summary_of(run_folder(tmp_path / "run", model=own))
    assert summary.model == "5 x gru, width 12" and "classify: 5 x gru, width 12" in card_md(summary)


def test_curves_share_a_row_where_the_window_has_room(tmp_path: Path) -> None:
    page = report_html(summary_of(run_folder(tmp_path / "run")))
    assert [group.count("<figure") for group in page.split('<div class="figures">')[1:]] == [4, 2]
    narrowest = re.search(r"\.figures{[^}]*minmax\(min\(100%,(\d+)px\),1fr\)", page)
    assert narrowest is not None and 2 * int(narrowest[1]) + 24 + 32 <= 1100  # with the gap and the margins of the page


def test_pages_tell_the_metric_that_chose_the_weights(tmp_path: Path) -> None:
    notes = NOTES | {"dev": {"accuracy": 0.75, "macro_f1": 0.5, "loss": 0.01}}
    scored = [validation_line(step, 0.75) for step in (50, 100)]
    for line in scored:
        line["metrics"]["macro_f1"] = 0.5
    summary = summary_of(run_folder(tmp_path / "run", metric="macro_f1", notes=notes, metrics=scored))
    page = Elements(report_html(summary)).texts
    assert "macro_f1 on the dev set at step 100" in page and "Dev macro_f1" in page
    assert not any("accuracy on the dev set" in text or "Dev accuracy" in text for text in page)
    assert "chosen by `macro_f1`" in card_md(summary)
