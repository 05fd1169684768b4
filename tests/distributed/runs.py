"""Whole runs in several processes, as `seqloom train` does them, with failures on demand; also a program by itself.

python -m distributed.runs '{"data": ..., "out": ..., "failures": {"0": [1, "killed"]}}'
"""

import hashlib
import json
import os
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from distributed.cases import FAILURES
from seqloom.cli.terminal import exit_code_of
from seqloom.config.training import ByLengthConfig, StepsConfig
from seqloom.data.check import data_config
from seqloom.errors import SeqloomError
from seqloom.training import devices
from seqloom.training.devices import choose_device
from seqloom.training.distributed import joined
from seqloom.training.events import Ended, Started, Stepped
from seqloom.training.launcher import MEETING
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from seqloom.training.state import TrainingState
from seqloom.training.step import Update, cut, rows_of

WORDS = ("red", "green", "blue", "tall", "small", "old", "new")
FAILING_STEP = 8


def write_data(path: Path) -> None:
    """A hundred short texts, and whether they name red more often than blue."""
    draw = random.Random(0)
    texts = [[draw.choice(WORDS) for _ in range(draw.randint(2, 9))] for _ in range(100)]
    lines = [f"{' '.join(text)},{'yes' if text.count('red') > text.count('blue') else 'no'}" for text in texts]
    path.write_text("\n".join(["text,label", *lines]) + "\n")


def run(
    data: str,
    out: str,
    steps: int = 20,
    save_every: int = 5,
    dropout: float = 0.1,
    sharded: bool = False,
    timeout: float = 60.0,
    place: str = "",
    who: int = 0,
    failures: dict[str, Any] | None = None,
    room: int = 0,
    forgetful: bool = False,
    late: bool = False,
) -> dict[str, Any]:
    """The losses and the order of examples of a run that goes on where it was; perhaps it fails.

    `place` is where rank `who` fails, as SEQLOOM_FAIL says it; `failures`: for each start of all ranks, who does how.
    From the failing step on, rank `who` has `room` for so many rows at a time; a forgetful run writes none of it down.
    `late`: the others begin when rank `who` has begun to encode the data.
    """
    if place and rank() == who:
        os.environ["SEQLOOM_FAIL"] = place
    while late and rank() != who and not (Path(data).parent / "cache").exists():
        time.sleep(0.005)
    if room and rank() == who:
        _narrowed(room)
    if forgetful:
        devices.remembering = lambda _: nullcontext()
    asked = (who, "asked to end") if place.startswith("signal") else None  # the place in the handler is come to so
    seen = _recorded(asked or (failures or {}).get(Path(os.environ.get(MEETING, "")).name))
    settings = {
        "duration": StepsConfig(steps=steps),
        "batching": ByLengthConfig(batch_tokens=160),
        "validate_every": 10,
        "save_every": save_every,
        "log_every": 1,
        "patience": 0,
    }
    request = RunRequest(model="gru", size="nano", dropout=dropout, training=settings)
    resolved = resolve(data_config((data,), {}), request, cache=Path(data).parent / "cache")
    try:
        with joined(sharded=sharded, timeout=timeout) as ranks:
            reports = list(train_run(Path(out), resolved, ranks=ranks, device=choose_device("cpu"), workers=1))
    except SeqloomError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        sys.exit(exit_code_of(error))
    begun, ended = reports[0], reports[-1]
    assert isinstance(begun, Started) and isinstance(ended, Ended)
    losses = [report.loss for report in reports if isinstance(report, Stepped)]
    return {"losses": losses, "seen": seen, "said": begun.messages, "code": ended.exit_code}


def rank() -> int:
    """The number of this process."""
    return int(os.environ.get("RANK", "0"))


def _narrowed(room: int) -> None:
    """Let memory run out where a piece has more rows than there is room for."""
    backward = Update._backward

    def narrow(self: Update, batch: Any, state: Any, run_state: TrainingState) -> Any:
        if run_state.step + 1 >= FAILING_STEP and max(map(rows_of, cut(batch, run_state.micro_batches))) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return backward(self, batch, state, run_state)

    Update._backward = narrow  # type: ignore[method-assign]


def _recorded(failure: tuple[int, str] | None) -> list[list[str]]:
    """The ids of each step that will be taken; in one of them this rank may fail."""
    seen: list[list[str]] = []
    take = Update.step

    def step(self: Update, batch: Any, **how: Any) -> None:
        seen.append([] if batch is None else list(batch.ids))
        if failure is not None and len(seen) == FAILING_STEP and rank() == failure[0]:
            FAILURES[failure[1]]()
        take(self, batch, **how)

    Update.step = step  # type: ignore[method-assign]
    return seen


def sums(out: Path) -> dict[str, str]:
    """The sha256 of everything that two equal runs have in common."""
    kept = [*out.glob("checkpoints/*/*"), *out.glob("model/*.safetensors"), out / "metrics.jsonl"]
    kept = [path for path in kept if path.name not in ("machine.json", "manifest.json")]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(kept)}


if __name__ == "__main__":
    sys.exit(run(**json.loads(sys.argv[1]))["code"])
