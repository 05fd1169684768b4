"""When a validation and a checkpoint are due, and which checkpoints lie elsewhere.

A signal asks for a checkpoint in between. It must leave no trace in what comes out: it takes the place of no other one,
is in no mean of checkpoints, and goes when the next one that is due is there.
"""

from collections.abc import Iterator
from pathlib import Path

from seqloom.config.training import TrainingConfig
from seqloom.errors import DurableError
from seqloom.training import checkpoints
from seqloom.training.standing import Standing


def validation_is_due(config: TrainingConfig, standing: Standing) -> bool:
    """Whether the dev part is looked at here: at the end of an epoch, or every so many steps."""
    return standing.index == 0 if config.validate_every == 0 else standing.step % config.validate_every == 0


def save_is_due(config: TrainingConfig, standing: Standing) -> bool:
    """Whether a checkpoint is written here: behind a validation, or every so many steps.

    >>> save_is_due(TrainingConfig(save_every=7), Standing(step=21)), save_is_due(TrainingConfig(), Standing(index=1))
    (True, False)
    """
    return validation_is_due(config, standing) if config.save_every == 0 else standing.step % config.save_every == 0


def in_between(folder: Path, config: TrainingConfig) -> Iterator[Path]:
    """The checkpoints, oldest first, that were not due where they lie."""
    for path in checkpoints.steps(folder):
        try:
            if not save_is_due(config, checkpoints.read_standing(path)):
                yield path
        except DurableError:  # one that is damaged is for `retain`
            continue
