"""Whole runs in several processes, as `seqloom train` does them, with failures on demand; also a program by itself.

python -m distributed.runs '{"data": ..., "out": ..., "failures": {"0": [1, "killed"]}}'
"""

import hashlib
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from distributed.cases import FAILURES
from seqloom.config.training import ByLengthConfig, StepsConfig
from seqloom.data.front import data_config
from seqloom.training.devices import choose_device
from seqloom.training.front import Wishes, resolve, train_run
from seqloom.training.processes import joined
from seqloom.training.reports import Ended, Stepped
from seqloom.training.update import Update

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
) -> dict[str, Any]:
    """The losses and the order of examples of a run that goes on where it was; perhaps it fails.

    `place` is where rank `who` fails, as SEQLOOM_FAIL says it; `failures`: for each start of all ranks, who does how.
    """
    if place and int(os.environ.get("RANK", "0")) == who:
        os.environ["SEQLOOM_FAIL"] = place
    seen = _recorded((failures or {}).get(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    settings = {
        "length": StepsConfig(count=steps),
        "feed": ByLengthConfig(budget=160),
        "validate_every": 10,
        "save_every": save_every,
        "report_every": 1,
        "patience": 0,
    }
    wishes = Wishes(model="gru", size="tiny", dropout=dropout, training=settings)
    resolved = resolve(data_config((data,), {}), wishes, cache=Path(data).parent / "cache")
    with joined(sharded=sharded, timeout=timeout) as ranks:
        reports = list(train_run(Path(out), resolved, ranks=ranks, device=choose_device("cpu"), workers=1))
    assert isinstance(reports[-1], Ended)
    losses = [report.loss for report in reports if isinstance(report, Stepped)]
    return {"losses": losses, "seen": seen, "code": reports[-1].exit_code}


def _recorded(failure: tuple[int, str] | None) -> list[list[str]]:
    """The ids of each step that will be taken; in one of them this rank may fail."""
    seen: list[list[str]] = []
    take = Update.step

    def step(self: Update, batch: Any, **how: Any) -> None:
        seen.append([] if batch is None else list(batch.ids))
        if failure is not None and len(seen) == FAILING_STEP and int(os.environ.get("RANK", "0")) == failure[0]:
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
