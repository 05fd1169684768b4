"""RUN/model: the chosen weights as a bundle, replaced as a whole whenever others are chosen.

At its end a run may also look at the mean of its last checkpoints, whose weights are read here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from seqloom.bundle import Bundle, bundle_files
from seqloom.errors import DurableError
from seqloom.files.disk import reached
from seqloom.files.folders import replace_folder, verify_folder
from seqloom.tasks.evaluation import Evaluation, answering, evaluate
from seqloom.tasks.task import Calibrator, Task
from seqloom.training import checkpoint as checkpoints
from seqloom.training.checkpoint import in_between
from seqloom.training.distributed import agreed
from seqloom.training.run_summary import read_scores, summary_of
from seqloom.training.session import Session
from seqloom.training.state import TrainingState
from seqloom.training.step import WeightUpdate
from seqloom.training.validation import ValidationResult, batches_of, look
from seqloom.training.weights import mean_of, plain


def ship(session: Session, standing: TrainingState, found: ValidationResult) -> None:
    """Write the model's present weights to RUN/model. Process 0 writes, the others wait for nobody."""
    if session.ranks.rank != 0 and not session.ranks.sharded:
        return
    task, evaluation = _calibrated(session, found)  # where weights are sharded, all processes compute together
    if session.ranks.rank != 0:
        return
    weights = {name: tensor.detach().cpu() for name, tensor in session.model.state_dict().items()}
    notes = _notes(session, standing, found.metrics, evaluation) | {"cross_fitted": task is not session.task}
    bundle = Bundle(session.config.model, task.meaning, weights, notes)
    files = bundle_files(bundle, summary_of(session.folder, notes).card().markdown())
    reached("before-model")
    replace_folder(session.folder.model, files)
    reached("after-model")


def _calibrated(session: Session, found: ValidationResult) -> tuple[Task, Evaluation | None]:
    """The task as the shipped model answers it, its scores read as the dev part asks for, and how good that is.

    How good: each half of dev is read as the other half asks for, so that no row is judged by what it found itself.
    """
    task = session.task
    if found.evaluation is None or not isinstance(task, Calibrator):
        return task, found.evaluation
    with answering(session.model):
        fitted = task.fitted(session.model, batches_of(session, "dev"))
    calibrated = task.calibrated(fitted.shipped, fitted.rows)
    return calibrated, evaluate(calibrated, session.model, batches_of(session, "dev"))


def _notes(
    session: Session, standing: TrainingState, metrics: dict[str, float], evaluation: Evaluation | None
) -> dict[str, Any]:
    """What is known about the weights: where they come from and how good they are on the dev part."""
    intervals = evaluation.intervals(session.task) if evaluation is not None else {}
    return {
        "step": standing.step,
        "epoch": standing.epoch,
        "examples": standing.examples,
        "dev": metrics | (evaluation.metrics if evaluation is not None else {}),
        "dev_rows": len(session.prepared.parts["dev"]),
        "metric": session.task.metric.name,
        "columns": list(session.config.data.input),
        "longest": session.config.encoding.longest,
        "rate": session.config.training.rate,
        "intervals": {name: list(interval) for name, interval in intervals.items()},
        "confusion": [list(one) for one in evaluation.confusion] if evaluation is not None else [],
    }


def shipped_step(session: Session) -> int | None:
    """The step whose weights lie in RUN/model, as process 0 finds it; None where there is no whole bundle."""
    told = b""
    if session.ranks.rank == 0:
        with suppress(DurableError):
            verify_folder(session.folder.model)
            scores = read_scores(session.folder.model)
            told = b"" if scores is None else str(scores.step).encode()
    told = session.ranks.share(told)
    return int(told) if told else None


class Last(NamedTuple):
    """The weights of the last checkpoints, and what was said of those that could not be read."""

    weights: list[dict[str, Tensor]]
    problems: list[str]


def last_weights(session: Session, standing: TrainingState, present: Mapping[str, Tensor]) -> Last:
    """The weights of the last checkpoints that were due, and the present ones: `average_last`, or as many as there are.

    Those that are damaged are left out: a mean of fewer is a mean as well.
    """
    folder, count = session.folder.checkpoints, session.config.training.average_last
    others = {path_of(session, standing.step), *in_between(folder, session.config.training)}
    found = [path for path in checkpoints.steps(folder) if path not in others][-(count - 1) :]
    tried = [agreed(session.ranks, partial(checkpoints.read, path, session.ranks)) for path in found]
    weights = [checkpoint.tensors["model"] for checkpoint, _ in tried if checkpoint is not None]
    whole = {name: plain(tensor) for name, tensor in present.items()}
    return Last([*weights, whole], [problem for _, problem in tried if problem])


def path_of(session: Session, step: int) -> Path:
    """Where the checkpoint of a step lies, if there is one."""
    return session.folder.checkpoints / f"step-{step:08d}"


# RUN/model made anew from what checkpoints keep, when it is not that of the chosen validation.
#
#     missing or damaged     somebody removed it, or a disk lost some of it
#     older than the chosen  the disk was full when other weights were to be shipped
#
# The weights are those of the chosen step. Where the run averages its last checkpoints, their mean may have been chosen
# of the last step: the dev part is asked again. Nothing of this is a validation of the run: its log stays as it is.

Tensors = Mapping[str, Mapping[str, Tensor]]


class Kept(NamedTuple):
    """Weights that can be shipped, and where the run stood when it had them."""

    standing: TrainingState
    weights: dict[str, Tensor]


class Mended(NamedTuple):
    """What RUN/model is now: the weights of a step, or what it was because of a problem."""

    step: int | None
    problem: str = ""


def mended(
    session: Session,
    update: WeightUpdate,
    standing: TrainingState,
    ship: Callable[[TrainingState, ValidationResult], str],
) -> Mended | None:
    """What became of a RUN/model that was not that of the chosen validation; None if it was, or if there is none.

    `ship` puts the model's present weights there, and says what kept it from doing so.
    """
    there, metric = shipped_step(session), session.task.metric
    if standing.chosen is None or there == standing.chosen.step:
        return None
    result, best = Mended(there), None
    for kept in _candidates(session, standing, update.tensors(), there):
        with update.replaced(kept.weights):
            found = look(session)
            if best is None or metric.better(found.value(session), best):
                result, best = Mended(kept.standing.step, ship(kept.standing, found)), found.value(session)
    return result


def _candidates(session: Session, standing: TrainingState, present: Tensors, there: int | None) -> Iterator[Kept]:
    """What the chosen weights may be, as far as they are kept; the present ones are better than no model at all."""
    assert standing.chosen is not None, "nothing was ever validated"
    chosen, ranks = standing.chosen.step, session.ranks
    checkpoint, _ = agreed(ranks, lambda: checkpoints.read(path_of(session, chosen), ranks))
    if checkpoint is not None:
        yield Kept(checkpoint.standing, _shippable(checkpoint.tensors))
    if session.config.training.average_last > 1 and chosen == standing.step:
        yield Kept(standing, mean_of(last_weights(session, standing, present["model"]).weights))
    elif checkpoint is None and there is None:
        yield Kept(standing, _shippable(present))


def _shippable(tensors: Tensors) -> dict[str, Tensor]:
    """The weights of a run that are validated and shipped: averages where it has them."""
    return {**tensors["model"], **tensors.get("average", {})}
