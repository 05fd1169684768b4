"""RUN/model made anew from what checkpoints keep, when it is not that of the chosen validation.

    missing or damaged     somebody removed it, or a disk lost some of it
    older than the chosen  the disk was full when other weights were to be shipped

The weights are those of the chosen step. Where the run averages its last checkpoints, their mean may have been chosen
of the last step: the dev part is asked again. Nothing of this is a validation of the run: its log stays as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from torch import Tensor

from seqloom.training import checkpoints
from seqloom.training.agreeing import agreed
from seqloom.training.averaging import mean_of
from seqloom.training.session import Session
from seqloom.training.shipping import last_weights, path_of, shipped_step
from seqloom.training.standing import Standing
from seqloom.training.update import Update
from seqloom.training.validating import Look, look

Tensors = Mapping[str, Mapping[str, Tensor]]


class Kept(NamedTuple):
    """Weights that can be shipped, and where the run stood when it had them."""

    standing: Standing
    weights: dict[str, Tensor]


class Mended(NamedTuple):
    """What RUN/model is now: the weights of a step, or what it was because of a problem."""

    step: int | None
    problem: str = ""


def mended(
    session: Session, update: Update, standing: Standing, ship: Callable[[Standing, Look], str]
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


def _candidates(session: Session, standing: Standing, present: Tensors, there: int | None) -> Iterator[Kept]:
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
