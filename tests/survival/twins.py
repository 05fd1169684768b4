"""Guards taken away: each function breaks one of them in this process, and the tests must notice."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from seqloom import files as durable
from seqloom.data.loader import Position
from seqloom.training import checkpoint as checkpoints
from seqloom.training import events as log
from seqloom.training import loop, session, validation
from seqloom.training import loop as saving
from seqloom.training import step as update
from seqloom.training.checkpoint import Checkpoint
from seqloom.training.state import LossSums


def unseeded() -> None:
    """A step draws from wherever torch's generator happens to be."""
    update.drawing = lambda *_: nullcontext()  # type: ignore[assignment]


def by_chance() -> None:
    """What a step draws is different each time."""
    torch.seed()
    unseeded()


def counted_early() -> None:
    """A checkpoint says that a step was taken whose weights it has not."""
    step, save, before = update.Update.step, checkpoints.save, {}

    def stepped(self: Any, *given: Any, **named: Any) -> None:
        before["tensors"] = {
            part: {name: tensor.clone() for name, tensor in tensors.items()} for part, tensors in self.tensors().items()
        }
        step(self, *given, **named)

    def saved(folder: Path, checkpoint: Checkpoint, ranks: Any) -> Path:
        return save(folder, checkpoint._replace(tensors=before["tensors"]), ranks)

    update.Update.step = stepped  # type: ignore[method-assign]
    checkpoints.save = saved  # type: ignore[assignment]


def unshortened() -> None:
    """The lines of steps that will be taken again stay in metrics.jsonl."""
    log._keep = lambda *_: None  # type: ignore[assignment]


def off_by_one() -> None:
    """A run that goes on begins one batch too late."""
    loop.Position = lambda epoch, index: Position(epoch, index + bool(index))  # type: ignore[assignment,misc]


def without(part: str) -> Any:
    """A part of the checkpoint is not put back."""
    load, copy_all = update.Update.load, update.copy_all

    def broken() -> None:
        update.copy_all = lambda name, *given: None if name == part else copy_all(name, *given)
        update.Update.load = lambda self, tensors, run_state: load(  # type: ignore[method-assign]
            self, {name: group for name, group in tensors.items() if name != part or name != "carried"}, run_state
        )

    return broken


def forgetting(field: str, value: Any) -> Any:
    """What the run state says of one thing is not taken up again."""
    newest = checkpoints.newest

    def forgetful(*given: Any) -> Any:
        found, skipped = newest(*given)
        if found is not None:
            setattr(found.run_state, field, value)
        return found, skipped

    def broken() -> None:
        checkpoints.newest = forgetful  # type: ignore[assignment]

    return broken


def in_place() -> None:
    """A checkpoint is written under its own name from the first byte on."""
    durable.begin_shared = lambda path, **_: path.mkdir() or path  # type: ignore[assignment]
    durable.seal_shared = lambda partial, path, entries, files: durable.folders.seal(  # type: ignore[assignment]
        partial, path.name, entries, files
    )


def in_between_counts() -> None:
    """A checkpoint that a signal asked for is one like all others."""
    validation.in_between = saving.in_between = lambda *_: iter(())  # type: ignore[assignment]


def deaf() -> None:
    """Signals do what they do in any program."""
    session.SIGNALS = ()  # type: ignore[assignment]


def patient() -> None:
    """The second signal is remembered like the first."""
    session.StopSignals._handle = lambda self, number, _: setattr(self, "signal", number)  # type: ignore[method-assign]


TWINS = {
    "unseeded": unseeded,
    "by chance": by_chance,
    "counted early": counted_early,
    "unshortened": unshortened,
    "off by one": off_by_one,
    "without optimizer": without("optimizer"),
    "without ema": without("ema"),
    "without carried": without("carried"),
    "without factor": forgetting("plateau_factor", 1.0),
    "without sums": forgetting("sums", LossSums()),
    "in place": in_place,
    "in between counts": in_between_counts,
    "deaf": deaf,
    "patient": patient,
}
