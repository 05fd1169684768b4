"""Runs made to show a fault are diagnosed, following the advice helps, and a healthy run has no finding."""

import json
import os
import random
import shlex
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.data import Task
from seqloom.config.training import AdamWConfig, ByLengthConfig, ConstantConfig
from seqloom.data.synthetic.registry import NAMES
from seqloom.demo import SHOWS, resolved
from seqloom.errors import ConfigError
from seqloom.experiments.doctor.diagnosis import diagnose
from seqloom.experiments.doctor.findings import Advice, Diagnosis, Finding
from seqloom.training.devices import choose_device
from seqloom.training.events import Report, Stepped
from seqloom.training.run import TrainedRun, train, train_run

LABELED = {"good": "yes", "bad": "no"}


def written(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows), encoding="utf-8"
    )
    return path


def made(folder: Path, name: str, count: int, **parameters: int) -> Path:
    """The training and dev set of a synthetic set as files in a folder."""
    folder.mkdir()
    for part, size in (("train", count), ("dev", 200)):
        rows = NAMES[name].examples(part, count=size, **parameters)
        written(folder / f"{part}.jsonl", [(str(row.input), str(row.target)) for row in rows])
    return folder


def noisy(folder: Path, count: int, *, noise: float = 0.2) -> Path:
    """Texts in which one word of nine decides, and others may be learned by heart; some training labels are wrong."""
    folder.mkdir()
    for part, size, wrong in (("train", count, noise), ("dev", 300, 0.0)):
        draws, rows = random.Random(part), []
        for _ in range(size):
            yes = draws.random() < 0.5
            words = [f"w{draws.randrange(300)}" for _ in range(8)] + ["good" if yes else "bad"]
            draws.shuffle(words)
            rows.append((" ".join(words), "yes" if yes != (draws.random() < wrong) else "no"))
        written(folder / f"{part}.jsonl", rows)
    return folder


def trained(data: Path, name: str, **settings: Any) -> tuple[TrainedRun, Diagnosis]:
    usual = {"size": "nano", "device": "cpu", "patience": 0, "batching": ByLengthConfig(batch_tokens=320)}
    run = train(data / "train.jsonl", out=data / name, dev=(str(data / "dev.jsonl"),), **usual | settings)
    return run, diagnose(run.folder)


def followed(settings: dict[str, Any], advice: tuple[Advice, ...]) -> dict[str, Any]:
    """The settings of a run with the flags changed as advised; what only measures changes nothing."""
    changed = dict(settings)
    for flag, value, _ in advice:
        if flag in ("--lr", "--dropout", "--clip-norm"):
            changed[flag[2:].replace("-", "_")] = float(value)
        elif flag == "--weight-decay":
            changed["optimizer"] = AdamWConfig(weight_decay=float(value))
        elif flag == "--patience":
            changed["patience"] = int(value)
        elif flag == "--epochs":
            changed["epochs"] = int(value)
        elif flag == "--model":
            changed["model"] = value
    return changed


def improved(data: Path, code: str, settings: dict[str, Any], *flags: str) -> tuple[float, float]:
    """The dev score of a run that shows a fault, and of the same run with these flags of its advice followed."""
    before, diagnosis = trained(data, "before", **settings)
    assert code in diagnosis.codes, diagnosis.text()
    (finding,) = (finding for finding in diagnosis.findings if finding.code == code)
    chosen = tuple({advice.flag: advice for advice in reversed(finding.advice) if advice.flag in flags}.values())
    assert len(chosen) == len(flags)
    after, _ = trained(data, "after", **followed(settings, chosen))
    return before.metrics["accuracy"], after.metrics["accuracy"]


@pytest.mark.slow
def test_a_healthy_run_has_no_finding(tmp_path: Path) -> None:
    run, diagnosis = trained(made(tmp_path / "data", "homographs", 600), "run", model="cnn", lr=0.05, epochs=6)
    assert run.metrics["accuracy"] > 0.9
    (note,) = diagnosis.messages  # the data is that easy
    assert "not better by more than chance than the recipe linear" in note and "accuracy is 1 and 1;" in note
    assert diagnosis.codes == () and len(diagnosis.figures) == 2


@pytest.mark.slow
def test_a_cheaper_model_comes_with_its_command_and_labels_without_dev_rows_are_named(tmp_path: Path) -> None:
    draws = random.Random(0)
    lines = [f"{' '.join(draws.choices('abcdefg', k=7))} {word};{label}" for word, label in 300 * [*LABELED.items()]]
    (tmp_path / "my films.csv").write_text("\n".join(["body;stars", *lines, "one thing;odd", "more;odd", ""]))
    given: dict[str, Any] = {"delimiter": ";", "input": ("body",), "target": ("stars",), "metric": "macro_f1"}
    usual: dict[str, Any] = {"model": "bag", "size": "nano", "lr": 0.05, "epochs": 4, "device": "cpu"}
    run = train(tmp_path / "my films.csv", out=tmp_path / "run", split_seed=2, **given, **usual)
    found = diagnose(run.folder)
    command, then = found.next
    assert then == f"seqloom evaluate {run.folder} --split test"
    files = f"seqloom train '{tmp_path}/my films.csv' --delimiter ';'"
    assert command.startswith(files) and command.endswith("--no-lowercase --metric macro_f1 --model linear")
    assert "--split-seed 2" in command and "--input body --target stars" in command
    assert command in found.text(60), "a command is not broken into lines"
    assert "use --model linear (see Next)" in " ".join(found.messages)
    gap = Finding("dev.gap", "The model overfits", "", {}, None, (Advice("--dropout", "0.5"),))
    assert "start with --dropout 0.5, or with a simpler model" in replace(found, findings=(gap,)).verdict
    missing = "labels that the dev set does not have, with their number in the training set: odd (2)"
    assert f"{missing}; no dev score covers them" in found.messages
    ran = CliRunner().invoke(app, [*shlex.split(command)[1:], "--out", str(tmp_path / "linear")])
    assert ran.exit_code == 0 and diagnose(tmp_path / "linear").next == (
        then.replace(str(run.folder), f"{tmp_path}/linear"),
    )
    assert dict(diagnose(tmp_path / "linear").scores)["this run"] == dict(found.scores)["the recipe linear"]


@pytest.mark.slow
def test_entity_types_without_dev_spans_are_named(tmp_path: Path) -> None:
    for part, some in (("train", ("B-PER", "B-ORG")), ("dev", ("B-PER",))):
        lines = [f"w{at % 7} O\nAnn {some[at % len(some)]}\n" for at in range(60)]
        (tmp_path / f"{part}.conll").write_text("\n".join(lines))
    dev = (str(tmp_path / "dev.conll"),)
    run = train(tmp_path / "train.conll", out=tmp_path / "run", dev=dev, model="cnn", size="nano", epochs=1)
    (note,) = (one for one in diagnose(run.folder).messages if "does not have" in one)
    assert note.startswith("entity types that the dev set does not have") and "ORG (30); no dev score" in note


@pytest.mark.slow
def test_healthy_runs_of_taggers_and_of_numbers_have_no_finding(tmp_path: Path) -> None:
    usual: dict[str, Any] = {"size": "nano", "device": "cpu", "patience": 0, "lr": 0.01}
    tagged = train("movies", out=tmp_path / "tag", model="bilstm", epochs=3, **usual)
    assert tagged.metrics["f1"] > 0.9 and diagnose(tagged.folder).codes == ()
    draws, lines = random.Random(0), ["text,score"]
    for _ in range(1_200):
        words = draws.choices(["a", "b", "c", "good", "bad"], k=draws.randint(3, 12))
        lines.append(f"{' '.join(words)},{words.count('good') - words.count('bad') + draws.gauss(0, 0.1):.3f}")
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    usual |= {"task": "regress", "model": "gru", "epochs": 6}
    numbers = train(tmp_path / "scores.csv", out=tmp_path / "regress", **usual)
    assert numbers.metrics["mse"] < 0.3 and diagnose(numbers.folder).codes == ()


@pytest.mark.soak
@pytest.mark.parametrize("task", SHOWS)
def test_the_runs_of_the_demo_have_no_finding(tmp_path: Path, task: Task) -> None:
    for _ in train_run(tmp_path / "run", resolved(SHOWS[task]), device=choose_device("cpu", "float32"), workers=0):
        pass
    assert diagnose(tmp_path / "run").codes == ()


@pytest.mark.slow
def test_a_rate_that_is_too_high_is_found_and_the_lower_one_is_better(tmp_path: Path) -> None:
    settings = {"model": "cnn", "lr": 0.5, "epochs": 6, "schedule": ConstantConfig()}
    before, after = improved(made(tmp_path / "data", "homographs", 600), "loss.jagged", settings, "--lr")
    assert after > before + 0.1


@pytest.mark.slow
def test_a_short_run_whose_numbers_were_not_finite_is_an_explosion(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "cnn", "lr": 900.0, "epochs": 20}
    run, diagnosis = trained(noisy(tmp_path / "data", 60), "run", **settings)
    assert "gradient.exploding" in diagnosis.codes, diagnosis.text()
    assert json.loads(doctor(run.folder, "--json").output)["findings"][0]["code"] == "gradient.exploding"


@pytest.mark.slow
def test_a_rate_that_is_too_low_is_found_and_the_higher_one_is_better(tmp_path: Path) -> None:
    settings = {"model": "bag", "lr": 1e-3, "epochs": 10, "schedule": ConstantConfig()}
    before, after = improved(made(tmp_path / "data", "homographs", 600), "loss.linear", settings, "--lr")
    assert after > before + 0.1


@pytest.mark.slow
def test_examples_learned_by_heart_are_found_and_regularizing_is_better(tmp_path: Path) -> None:
    settings = {"model": "bag", "size": "small", "lr": 0.01, "epochs": 15, "dropout": 0.0}
    settings |= {"optimizer": AdamWConfig(weight_decay=0.0), "batching": ByLengthConfig(batch_tokens=160)}
    flags = "--dropout", "--weight-decay", "--patience"
    before, after = improved(noisy(tmp_path / "data", 200), "dev.gap", settings, *flags)
    assert after > before + 0.02


@pytest.mark.slow
def test_a_memory_that_does_not_reach_is_found_and_a_gated_one_is_better(tmp_path: Path) -> None:
    settings = {"model": "rnn", "epochs": 10, "batching": ByLengthConfig(batch_tokens=640)}
    data = made(tmp_path / "data", "copy", 1000, distance=16)
    before, after = improved(data, "gradient.vanishing", settings, "--model")
    assert after > before + 0.1


@pytest.mark.slow
def test_labels_of_which_one_is_said_for_everything_are_found(tmp_path: Path) -> None:
    draws = random.Random(0)
    for part, size in (("train", 600), ("dev", 200)):  # nothing in a text says which label it has
        texts = [" ".join(f"w{draws.randrange(50)}" for _ in range(8)) for _ in range(size)]
        written(tmp_path / f"{part}.jsonl", [(text, "no" if at % 5 == 0 else "yes") for at, text in enumerate(texts)])
    _, diagnosis = trained(tmp_path, "run", model="bag", lr=5e-3, epochs=6)
    assert "label.dominates" in diagnosis.codes
    assert "--class-weights balanced" in [advice.typed for advice in diagnosis.advice]


# --- the verb --------------------------------------------------------------------------------------------------------


def doctor(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


@pytest.mark.slow
def test_the_verb_shows_a_run_as_text_json_and_page_and_says_what_it_could_not_look_at(tmp_path: Path) -> None:
    data = noisy(tmp_path / "data", 100)
    trained(data, "run", model="bag", lr=0.01, epochs=2)
    shown = doctor(data / "run", "--html", tmp_path / "page.html")
    assert shown.exit_code == 0 and "its curves can be checked from" in shown.output.replace("\n", " ")
    assert "too short to check" in shown.output.replace("\n", " ") and "✓" not in shown.output
    assert "<!DOCTYPE html>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert json.loads(doctor(data / "run", "--json").output)["format"] == 5
    (data / "dev.jsonl").unlink()
    assert "the model was not checked" in doctor(data / "run").output.replace("\n", " ")


def test_a_folder_that_is_no_run_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ConfigError, match=r"config\.toml"):
            diagnose(place)


def test_every_flag_that_a_finding_names_is_one_of_train() -> None:
    """The flags stand in the source as texts; each must be an option of `seqloom train`."""
    source = Path(__file__).parents[3] / "src" / "seqloom" / "experiments" / "doctor"
    named = {
        part.split('"')[0]
        for path in source.glob("*.py")
        for part in path.read_text(encoding="utf-8").split('Advice("')[1:]
    }
    shown = CliRunner().invoke(app, ["train", "--help-all"], env={"COLUMNS": "200"}).output
    assert {"--lr", "--clip-norm", "--dropout"} <= named
    assert [flag for flag in sorted(named) if f"{flag} " not in shown] == []


@pytest.mark.slow
def test_a_run_that_was_stopped_is_told_with_its_share_until_it_is_resumed(tmp_path: Path) -> None:
    data = written(tmp_path / "a.jsonl", [(f"row {n} {'good' if n % 2 else 'bad'}", "ny"[n % 2]) for n in range(60)])
    given: dict[str, Any] = {"out": tmp_path / "run", "model": "bag", "size": "nano", "steps": 40, "device": "cpu"}

    def stop(report: Report) -> None:
        if isinstance(report, Stepped) and report.step == 10:
            os.kill(os.getpid(), signal.SIGINT)

    with suppress(KeyboardInterrupt):
        train(data, **given, log_every=10, show=stop)
    first = diagnose(tmp_path / "run").findings[0]
    assert first.code == "run.stopped" and not first.advice  # no option is to change
    assert first.evidence["share of the training"] == pytest.approx(first.evidence["steps"] / 40)  # type: ignore[operator]
    assert f"seqloom train --out {tmp_path / 'run'}" in first.text
    train(data, **given)
    assert "run.stopped" not in diagnose(tmp_path / "run").codes


@pytest.mark.slow
def test_a_language_model_that_reads_streams_has_its_gradients_measured_and_no_accuracy(tmp_path: Path) -> None:
    prose = "\n\n".join(f"the rain fell over hill {n % 7} and the night was dark {n % 3}" for n in range(60))
    (tmp_path / "prose.txt").write_text(prose)
    train(tmp_path / "prose.txt", out=tmp_path / "run", model="lstm", size="nano", steps=2, device="cpu")
    found = diagnose(tmp_path / "run")
    assert [
        figure.title for figure in found.figures if figure.title.startswith("Gradient of the last output by distance")
    ]
    assert "accuracy" not in found.text() and not any("has only" in one for one in found.messages)
