"""RUN/model: the best weights so far as a bundle, replaced as a whole whenever better ones are found."""

from typing import Any

from torch import Tensor

from seqloom.bundle import Bundle, bundle_files
from seqloom.durable import replace_folder
from seqloom.durable.failing import reached
from seqloom.training import checkpoints
from seqloom.training.dues import in_between
from seqloom.training.pages.card import card_md
from seqloom.training.pages.summary import summary_of
from seqloom.training.session import Session
from seqloom.training.standing import Standing
from seqloom.training.validating import Look


def ship(session: Session, standing: Standing, found: Look) -> None:
    """Nothing; RUN/model holds the model's present weights. Process 0 writes, the others wait for nobody."""
    if session.ranks.rank != 0:
        return
    weights = {name: tensor.detach().cpu() for name, tensor in session.model.state_dict().items()}
    notes = _notes(session, standing, found)
    bundle = Bundle(session.config.model, session.task.meaning, weights, notes)
    files = bundle_files(bundle, card_md(summary_of(session.folder, notes)))
    reached("before-model")
    replace_folder(session.folder.model, files)
    reached("after-model")


def _notes(session: Session, standing: Standing, found: Look) -> dict[str, Any]:
    """What is known about the weights: where they come from and how good they are on the dev part."""
    intervals = found.evaluation.intervals(session.task) if found.evaluation is not None else {}
    return {
        "step": standing.step,
        "epoch": standing.epoch,
        "examples": standing.examples,
        "dev": found.metrics,
        "dev_rows": len(session.prepared.parts["dev"]),
        "columns": list(session.config.data.input),
        "longest": session.config.encoding.longest,
        "intervals": {name: list(interval) for name, interval in intervals.items()},
        "confusion": [list(one) for one in found.evaluation.confusion] if found.evaluation is not None else [],
    }


def last_weights(session: Session, count: int, present: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The weights of the last checkpoints that were due and the present ones, so many in all as there are."""
    folder = session.folder.checkpoints
    others = set(in_between(folder, session.config.training))
    found = [path for path in checkpoints.steps(folder) if path not in others][-(count - 1) :]
    return [*(checkpoints.read(path, session.ranks).tensors["model"] for path in found), present]
