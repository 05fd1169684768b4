"""Check, with the configuration of a run, that a killed and resumed run ends with the same bytes.

    whole      ●──●──●──●──●──●──●──●──●──●──●──●   a run of a few steps without interruption
    resumed    ●──●──●──●──●──●──●──✗               the same run, killed (SIGKILL) in the middle of a step
                              └─●──●──●──●──●──●──●   and resumed from its newest checkpoint

Each is a process of its own, in a temporary folder; the run folder itself is only read. The kill comes after the
weights have changed and before the step is counted, as late after a checkpoint as possible. Model, data, optimizer,
seed and precision are those of the run; only its duration and its intervals are shorter.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.data import ANY_ROWS
from seqloom.config.training import RunConfig, StepsConfig
from seqloom.data.run_files import located
from seqloom.errors import ConfigError, DurableError, near_name
from seqloom.files.disk import temporary_folder, write_file
from seqloom.files.layouts import CheckpointFile, ModelFile, RunFile
from seqloom.training import checkpoint
from seqloom.training.devices import DeviceName, choose_device
from seqloom.training.events import Ended
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from seqloom.training.run_folder import RunFolder

STEPS, FEWEST = 12, 4
KILLED = -9
PLACE = "between-update-and-count"  # of `files.disk`


class Schedule(NamedTuple):
    """When the runs of the check save, and in which step one of them is killed."""

    steps: int
    save_every: int
    killed_in: int

    @classmethod
    def of(cls, steps: int) -> "Schedule":
        """Four saves, and a kill as long after the second one as possible.

        >>> Schedule.of(12)
        Schedule(steps=12, save_every=3, killed_in=8)
        """
        if steps < FEWEST:
            raise ConfigError(
                f"--steps {steps} is too few: the run is killed between two checkpoints", fix=f"give {FEWEST} or more"
            )
        every = steps // 4
        return cls(steps, every, 2 * every + max(1, every - 1))


class ComparedRuns(NamedTuple):
    """A part of both runs, by its sha256."""

    part: str
    whole: str
    resumed: str

    @property
    def equal(self) -> bool:
        return self.whole == self.resumed


class ResumeProof(NamedTuple):
    """The result of the check."""

    run: Path
    steps: int
    killed_in: int  # the step during which the process was killed
    resumed_from: int  # the step of the checkpoint that it resumed from
    parts: tuple[ComparedRuns, ...]
    repeats: bool  # whether two uninterrupted runs are equal; checked only if the parts differ
    environment: dict[str, Any]  # machine and library versions

    @property
    def equal(self) -> bool:
        """Whether the killed run ended with the same bytes as the other."""
        return all(part.equal for part in self.parts)

    @property
    def verdict(self) -> str:
        if self.equal:
            return "equal: the run that was killed in the middle of a step and resumed is the same, byte for byte"
        if not self.repeats:
            return "different, but two uninterrupted runs also differ: train with --deterministic, or use --device cpu"
        return f"different: {', '.join(part.part for part in self.parts if not part.equal)}; please report it"

    def to_json(self) -> dict[str, Any]:
        parts = [part._asdict() | {"equal": part.equal} for part in self.parts]
        plain = self._asdict() | {"run": str(self.run), "parts": parts}
        return plain | {"equal": self.equal, "verdict": self.verdict}


def verify_resume(run: str | Path, *, steps: int = STEPS, device: DeviceName = "auto", workers: int = 2) -> ResumeProof:
    """Check that a run can be resumed bit for bit, with three short runs; the run folder itself is only read.

    Args:
        run: the run folder.
        steps: how many steps the short runs have.
        device: auto, cpu, cuda or mps.
        workers: the number of processes that load data.
    """
    folder, schedule = Path(run), Schedule.of(steps)
    if not (folder / RunFile.CONFIG).is_file():
        fix = near_name(folder) if not folder.exists() else "give the folder of `seqloom train --out`"
        raise ConfigError(f"{folder} is not a run folder: it has no {RunFile.CONFIG}", fix=fix)
    short = shortened(located(folder, RunFolder(folder).config()).config, schedule)
    choose_device(device, short.training.precision)  # raises here, and not three processes later
    with temporary_folder("verify") as place:
        child = _Child(place, device, workers)
        write_file(place / RunFile.CONFIG, short.to_toml())
        whole = child.run("whole")
        resumed = child.run("resumed", killed_in=schedule.killed_in)
        went_on = RunFolder(resumed).run_state()
        child.run("resumed")
        parts = compared(whole, resumed)
        equal = all(part.equal for part in parts)
        machine = RunFolder(whole).machine()
        return ResumeProof(
            run=folder,
            steps=schedule.steps,
            killed_in=schedule.killed_in,
            resumed_from=went_on.step if went_on is not None else 0,
            parts=parts,
            repeats=equal or all(part.equal for part in compared(whole, child.run("again"))),
            environment={} if machine is None else msgspec.to_builtins(machine.environment),
        )


def shortened(config: RunConfig, schedule: Schedule) -> RunConfig:
    """The same configuration with a duration of a few steps."""
    training = msgspec.structs.replace(
        config.training,
        duration=StepsConfig(steps=schedule.steps),
        save_every=schedule.save_every,
        validate_every=2 * schedule.save_every,
        log_every=1,
        patience=0,
    )
    if training.strengths:  # no strength ends early
        solving = msgspec.structs.replace(training.optimizer, tolerance=0.0)
        training = msgspec.structs.replace(training, optimizer=solving)
    return msgspec.structs.replace(config, training=training)


class _Child(NamedTuple):
    """How the processes of the check are started."""

    place: Path
    device: DeviceName
    workers: int

    def run(self, name: str, *, killed_in: int = 0) -> Path:
        """Run a process to its end, or until it is killed in a step; returns its run folder."""
        surroundings = {**os.environ, "SEQLOOM_FAIL": f"{PLACE}:kill:{killed_in}" if killed_in else ""}
        arguments = [str(self.place / RunFile.CONFIG), str(self.place / name), self.device, str(self.workers)]
        command = [sys.executable, "-m", "seqloom.training.verification", *arguments]
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
        if done.returncode != (KILLED if killed_in else 0):
            last = (done.stderr.strip() or "no output").split("\n")[-1]
            raise ConfigError(
                f"a run of the check ended with exit code {done.returncode}: {last[:300]}",
                fix="check that `seqloom train` works with this configuration, and that its data is still there",
            )
        return self.place / name


def compared(whole: Path, resumed: Path) -> tuple[ComparedRuns, ...]:
    """Two runs, part by part."""
    first, second = sums_of(whole), sums_of(resumed)
    return tuple(
        ComparedRuns(name, first.get(name, ""), second.get(name, "")) for name in dict.fromkeys([*first, *second])
    )


def sums_of(run: Path) -> dict[str, str]:
    """The sha256 of each part of a run that does not depend on the machine."""
    newest = checkpoint.steps(run / RunFile.CHECKPOINTS)[-1:]
    if not newest:
        raise DurableError(f"{run} has no checkpoint", fix="give more --steps")
    run_state = checkpoint.read_state(newest[0])
    files = {path.stem: path for path in sorted(newest[0].glob("*.safetensors"))}
    named = {"weights": files.pop("model"), "optimizer": files.pop("optimizer"), **files}
    sums = {name: _sum(path.read_bytes()) for name, path in named.items()}
    sums["order of examples"] = run_state.order_hash
    sums["training state"] = _sum((newest[0] / CheckpointFile.STATE).read_bytes())
    sums["metrics"] = _sum((run / RunFile.METRICS).read_bytes())
    sums["model"] = _sum((run / RunFile.MODEL / ModelFile.WEIGHTS).read_bytes())
    return sums


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def short_run(config: Path, out: Path, device: DeviceName, workers: int) -> int:
    """Train with this configuration, or resume; returns the exit code."""
    saved = RunFolder(config.parent).config()
    request = RunRequest(model=saved.model, training=msgspec.structs.asdict(saved.training), encoding=saved.encoding)
    resolved = resolve(msgspec.structs.replace(saved.data, bad_rows=ANY_ROWS), request)
    place = choose_device(device, saved.training.precision, saved.training.deterministic)
    *_, last = train_run(out, resolved, device=place, workers=workers)
    assert isinstance(last, Ended), "the last report"
    return last.exit_code


if __name__ == "__main__":
    _config, _out, _device, _workers = sys.argv[1:]
    sys.exit(short_run(Path(_config), Path(_out), _device, int(_workers)))  # type: ignore[arg-type]
