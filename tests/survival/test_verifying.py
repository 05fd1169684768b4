"""`seqloom verify resume`: the proof on one's own configuration, and that it can fail."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.training import CosineConfig, RunConfig, StepsConfig
from seqloom.errors import ConfigError
from seqloom.training import verification
from seqloom.training.run import train_run
from seqloom.training.verification import ComparedRuns, ResumeProof, Schedule, shortened, verify_resume
from survival.cases import resolved
from survival.forking import Runs


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps."""
    out = tmp_path_factory.mktemp("verified") / "run"
    list(train_run(out, resolved("gru", data, data / "cache", duration=StepsConfig(steps=4)), workers=0))
    return out


def state_of(run: Path) -> dict[str, tuple[int, str]]:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}


@pytest.mark.parametrize("steps", range(4, 60))
def test_the_kill_comes_between_two_saves_and_behind_work_that_is_lost(steps: int) -> None:
    schedule = Schedule.of(steps)
    saved = [step for step in range(1, schedule.killed_in) if step % schedule.save_every == 0]
    assert 0 < saved[-1] < schedule.killed_in <= steps
    assert schedule.killed_in - saved[-1] <= schedule.save_every  # no save is due in between


def test_a_run_is_shortened_and_nothing_else_about_it_changes(data: Path) -> None:
    config = resolved("gru", data, data / "cache", schedule=CosineConfig(warmup=3), patience=4).config
    short = shortened(config, Schedule.of(12))
    changed = {
        name
        for name in config.training.__struct_fields__
        if getattr(config.training, name) != getattr(short.training, name)
    }
    assert changed == {"duration", "save_every", "validate_every", "log_every", "patience"}
    assert msgspec.structs.replace(short, training=config.training) == config
    assert msgspec.toml.decode(short.to_toml(), type=RunConfig) == short


def test_too_few_steps_and_a_folder_that_is_no_run_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--steps 3 is too few"):
        verify_resume(tmp_path, steps=3)
    with pytest.raises(ConfigError, match=r"it has no config\.toml"):
        verify_resume(tmp_path)
    result = CliRunner().invoke(app, ["verify", "resume", str(tmp_path / "nothing")])
    assert result.exit_code != 0 and isinstance(result.exception, ConfigError)


def proof(*, equal: bool, repeats: bool) -> ResumeProof:
    parts = (
        ComparedRuns("weights", "aa" * 32, ("aa" if equal else "bb") * 32),
        ComparedRuns("metrics", "cc" * 32, "cc" * 32),
    )
    return ResumeProof(Path("runs/one"), 12, 8, 6, parts, repeats, {"torch": "2.13"})


@pytest.mark.parametrize(
    ("equal", "repeats", "words"),
    [(True, True, "equal:"), (False, True, "different: weights;"), (False, False, "--deterministic")],
)
def test_the_command_shows_a_table_and_a_verdict_and_its_code_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, equal: bool, repeats: bool, words: str
) -> None:
    found = proof(equal=equal, repeats=repeats)
    monkeypatch.setattr(verification, "verify_resume", lambda *_, **__: found)
    shown = CliRunner().invoke(app, ["verify", "resume", "runs/one"])
    assert shown.exit_code == (0 if equal else 1)
    assert words in shown.output and "killed in step 8 of 12, resumed from step 6: 2 steps" in shown.output
    assert ("DIFFERENT" in shown.output) == (not equal)
    told = CliRunner().invoke(app, ["verify", "resume", "runs/one", "--json"])
    record = json.loads(told.stdout)
    assert told.exit_code == shown.exit_code and record == json.loads(json.dumps(found.to_json()))
    assert (record["equal"], record["parts"][0]["equal"], record["run"]) == (equal, equal, "runs/one")


def forked(runs: Runs, twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a proof come from the server, perhaps without a guard."""

    def started(self: verification._Child, name: str, *, killed_in: int = 0) -> Path:
        fail = f"{verification.PLACE}:kill:{killed_in}" if killed_in else ""
        asked = {"config": str(self.place / "config.toml"), "out": str(self.place / name), "fail": fail, "twin": twin}
        (outcome,) = runs.run("survival.jobs:short", 1, asked)
        assert outcome.code == (-9 if killed_in else 0), outcome.stderr
        return self.place / name

    monkeypatch.setattr(verification._Child, "run", started)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("twin", "wrong"),
    [
        ("", set()),
        ("unseeded", {"weights"}),
        ("off by one", {"weights", "order of examples"}),
        ("without optimizer", {"optimizer"}),
        ("without ema", {"ema"}),
    ],
)
def test_the_proof_sees_what_is_missing(
    runs: Runs, run: Path, monkeypatch: pytest.MonkeyPatch, twin: str, wrong: set[str]
) -> None:
    forked(runs, twin, monkeypatch)
    found = verify_resume(run, device="cpu")
    different = {part.part for part in found.parts if not part.equal}
    assert different >= wrong and found.equal == (not twin) and found.repeats
    assert (found.killed_in, found.resumed_from) == (8, 6)


@pytest.mark.slow
def test_a_machine_that_does_not_repeat_itself_is_told_apart(
    runs: Runs, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked(runs, "by chance", monkeypatch)
    found = verify_resume(run, device="cpu")
    assert not found.equal and not found.repeats and "--deterministic" in found.verdict


@pytest.mark.slow
def test_the_command_proves_a_run_with_a_real_kill_and_leaves_it_alone(run: Path) -> None:
    before = state_of(run)
    result = CliRunner().invoke(app, ["verify", "resume", str(run), "--steps", "8", "--device", "cpu", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["equal"] and record["resumed_from"] == 4 and record["environment"]["ranks"] == 1
    names = [part["part"] for part in record["parts"]]
    assert {"weights", "optimizer", "ema", "order of examples", "metrics", "model"} <= set(names)
    assert state_of(run) == before


@pytest.mark.slow
def test_a_run_whose_data_is_gone_says_so(run: Path, tmp_path: Path) -> None:
    text = (run / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(text.replace("labels.csv", "gone.csv"))
    with pytest.raises(ConfigError, match=r"ended with exit code 1: .*gone\.csv"):
        verify_resume(tmp_path, device="cpu")
