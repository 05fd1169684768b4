"""The doctor on runs that `seqloom train` made, of every task, and on what is left of one when parts of it are gone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.data.synthetic.registry import NAMES
from seqloom.experiments.doctor import diagnosis
from seqloom.experiments.doctor.diagnosis import diagnose
from seqloom.files.layouts import RunFile
from seqloom.training.run_summary import read_scores

pytestmark = pytest.mark.slow

RUNS = {
    "classify": ("classify.csv", "--model", "bag"),
    "regress": ("scores.csv", "--task", "regress", "--model", "cnn"),
    "tag": ("tags.conll", "--task", "tag"),
    "lm": ("text.txt", "--task", "lm", "--model", "lstm"),
    "translate": ("dates.tsv", "--task", "translate", "--input", "source", "--target", "target"),
}
SHORT = ("--size", "nano", "--device", "cpu", "--steps", "12", "--workers", "0", "--patience", "0")


def verb(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def doubtful(path: Path) -> None:
    """Texts of which some have two labels, and some labels are written in two ways: the data check warns of both."""
    rows = [(f"the {word} tree", label) for word in ("oak", "elm", "fir", "ash") for label in ("yes", "no")] * 6
    rows += [(f"tree number {number}", "Yes" if number == 7 else "yes") for number in range(40)]
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A short run of each task, all by the command line."""
    place = tmp_path_factory.mktemp("runs")
    doubtful(place / "classify.csv")
    made = {name: list(NAMES[name].examples("train", count=200)) for name in ("dates", "grammar", "movies")}
    lines = {
        "dates.tsv": ["source\ttarget", *(f"{one.input}\t{one.target}" for one in made["dates"])],
        "scores.csv": ["text,score", *(f"{'very ' * (number % 7)}good {number},{number % 7}" for number in range(200))],
        "text.txt": [str(one.input) for one in made["grammar"]],
        "tags.conll": [line for one in made["movies"] for line in _conll(one)],
    }
    for name, content in lines.items():
        (place / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    for task, (data, *how) in RUNS.items():
        shown = verb("train", place / data, *how, *SHORT, "--out", place / task)
        assert shown.exit_code == 0, shown.output
    return {task: place / task for task in RUNS}


def _conll(example: Any) -> list[str]:
    words = zip(example.input.text.split(" "), example.target, strict=True)
    return [*(f"{word} {tag}" for word, tag in words), ""]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", RUNS)
def test_the_doctor_looks_into_a_real_run_of_every_task(runs: dict[str, Path], task: str) -> None:
    shown = verb("doctor", runs[task], "--json")
    assert shown.exit_code == 0, shown.output
    short, *of_parts = json.loads(shown.output)["messages"]
    assert "has 0 steps" not in short and "its curves can be checked from" in short
    known = (
        "dev scores may be too high",
        "the dev set has",
        "never found in the dev set",
        "that the dev set does not have",
        "were not compared with baselines: that needs a dev set",
    )
    assert all(any(one in text for one in known) for text in of_parts)
    assert verb("doctor", runs[task]).exit_code == 0


def test_a_note_names_the_types_that_a_tagger_never_found(runs: dict[str, Path]) -> None:
    scores = read_scores(runs["tag"] / RunFile.MODEL)
    assert scores is not None
    missed = [name for name, one in scores.per_class.items() if one["f1"] == 0 and one["support"]]
    (note,) = [text for text in diagnose(runs["tag"]).messages if "never found" in text]
    assert missed and all(f"{name} ({scores.per_class[name]['support']:g})" in note for name in missed)
    assert note.startswith("entity types ")


def test_a_score_of_a_part_of_the_dev_set_stands_beside_that_of_all_rows(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [name for name, _ in diagnose(runs["tag"]).scores if "all" in name] == []
    for least in ("BATCHES", "ROWS", "SCORED_TOKENS"):
        monkeypatch.setattr(diagnosis, least, 1)
    found, scores = diagnose(runs["tag"]), read_scores(runs["tag"] / RunFile.MODEL)
    assert scores is not None and found.scored_on.endswith("of 20 dev rows")
    assert dict(found.scores)["this run on all 20 dev rows"] == scores.dev["f1"]


def test_what_the_data_check_warned_of_reaches_the_doctor(runs: dict[str, Path]) -> None:
    (finding,) = (one for one in diagnose(runs["classify"]).findings if one.code == "label.data")
    assert {"label.conflict", "label.case"} <= finding.evidence.keys() and "correct the data" in finding.text


def test_what_is_left_of_a_run_is_looked_at(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["classify"], tmp_path / "run"))
    lines = (run / RunFile.METRICS).read_bytes().splitlines(keepends=True)
    (run / RunFile.METRICS).write_bytes(lines[0])
    assert "its curves can be checked from" in diagnose(run).messages[0]
    (run / RunFile.METRICS).write_bytes(lines[0][:-3])  # as a machine that lost its power leaves it
    assert "has 0 steps" in diagnose(run).messages[0]
    (run / RunFile.METRICS).unlink()
    (run / "events.jsonl").unlink()
    assert "has 0 steps" in diagnose(run).messages[0]
    shutil.rmtree(run / "model")
    said = " ".join(verb("doctor", run).output.split())
    assert "the model was not checked" in said
    assert diagnose(run).codes == ("label.data",)


@pytest.mark.parametrize(
    "content", [None, b"not JSON", b'{"fingerprints": {}, "split": {}, "findings": [{"code": 1}]}']
)
def test_facts_about_the_data_that_cannot_be_read_are_said(
    runs: dict[str, Path], content: bytes | None, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(runs["classify"], tmp_path / "run"))
    if content is None:
        (run / "data.json").unlink()
    else:
        (run / "data.json").write_bytes(content)
    assert any("data.json" in line for line in diagnose(run).messages)
