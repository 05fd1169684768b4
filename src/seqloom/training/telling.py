"""The reports that a run makes of where it stands: how it begins, what its steps come to, how it ends."""

from typing import Any

from seqloom.data.loader import Plan
from seqloom.durable import require_free_space
from seqloom.training import checkpoints, lengths
from seqloom.training.devices import environment
from seqloom.training.mending import Mended
from seqloom.training.reports import Begun, Ended, Noticed, Pace, Stepped, Why
from seqloom.training.session import Session
from seqloom.training.standing import Standing, Sums
from seqloom.training.update import Tally, Update

ROOM = 2.2  # checkpoints that must fit on the disk at the start: one stays while the next is written


def begun(session: Session, update: Update, standing: Standing, plan: Plan[Any], said: tuple[str, ...]) -> Begun:
    """The first report; DurableError if the disk has no room for two checkpoints."""
    weights, size = list(session.model.parameters()), checkpoints.estimated_bytes(update.tensors())
    size += 8 * len(session.prepared.parts["dev"]) * (1 + session.task.statistics)  # rows of the best validation
    require_free_space(session.folder.path, int(ROOM * size))
    symbols = int(sum(session.prepared.columns["input"].lengths[session.prepared.parts["train"]]))
    return Begun(
        folder=session.folder.path,
        step=standing.step,
        parameters=sum(weight.numel() for weight in weights),
        trained=sum(weight.numel() for weight in weights if weight.requires_grad),
        steps=lengths.expected_steps(session.config.training.length, plan, symbols),
        checkpoint_bytes=size,
        environment=environment(session.device, session.ranks),
        said=(*session.said, *said, *divided(session, standing)),
    )


def add(standing: Standing, tally: Tally) -> None:
    """Nothing; what was read from the device is in the sums of the run."""
    sums = standing.sums
    sums.steps += tally.steps
    sums.loss += tally.loss
    sums.weight += tally.weight
    sums.norm += tally.norm
    sums.largest = max(sums.largest, tally.largest)
    sums.clipped += tally.clipped
    sums.skipped += tally.skipped
    sums.elements += tally.elements
    sums.symbols += tally.symbols
    standing.not_finite, standing.scale, standing.grown = tally.not_finite, tally.scale, tally.grown


def stepped(standing: Standing, share: float, rate: float, pace: Pace) -> Stepped:
    """What the steps since the last such report came to; the next one begins at zero."""
    sums, standing.sums = standing.sums, Sums()
    return Stepped(
        step=standing.step,
        epoch=standing.epoch,
        share=share,
        loss=sums.loss / sums.weight if sums.weight else float("nan"),
        rate=rate,
        norm=sums.norm / max(1, sums.steps - sums.skipped),
        largest=sums.largest,
        clipped=sums.clipped / max(1, sums.steps),
        skipped=sums.skipped,
        symbols=standing.symbols,
        padding=1 - sums.symbols / sums.elements if sums.elements else 0.0,
        pace=pace,
    )


def ended(standing: Standing, why: Why, code: int, pace: Pace) -> Ended:
    """The last report."""
    best, chosen = standing.best, standing.chosen
    return Ended(
        step=standing.step,
        why=why,
        best_step=best.step if best else 0,
        chosen_step=chosen.step if chosen else 0,
        metrics=chosen.metrics if chosen else {},
        pace=pace,
        exit_code=code,
    )


def divided(session: Session, standing: Standing) -> tuple[str, ...]:
    """What people should know about how the steps of a run are computed in less memory."""
    said = session.task.divided(session.model, standing.pieces).said
    return (said,) if said else ()


def halved(session: Session, standing: Standing) -> Noticed:
    """What people should know when memory ran out."""
    ran_out = f"memory ran out: each step is now computed in {standing.pieces} pieces; the gradient is the same"
    text = ": ".join((ran_out, *divided(session, standing)))
    return Noticed(standing.step, "memory.halved", text, f"--pieces {standing.pieces} from the start")


def mended_notice(standing: Standing, result: Mended) -> Noticed:
    """What people should know about a RUN/model that was not that of the chosen validation."""
    chosen = standing.chosen.step if standing.chosen else 0
    text = f"RUN/model was not that of the chosen step, {chosen}"
    if result.problem:
        return Noticed(standing.step, "disk.model", f"{text}, and cannot be: {result.problem}", "start again then")
    if result.step == chosen:
        return Noticed(standing.step, "model.mended", f"{text}: it was made anew from the checkpoint")
    return Noticed(
        standing.step, "model.other", f"{text}, whose weights are not kept: it is that of step {result.step}"
    )
