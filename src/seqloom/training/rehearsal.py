"""How long a run will take, found out before it begins: a few steps with a model of its own, which is thrown away."""

import statistics
import time

from seqloom.config.training import SecondsConfig
from seqloom.training.devices import Device
from seqloom.training.distributed import Alone
from seqloom.training.length import expected_steps
from seqloom.training.resolve import Resolved
from seqloom.training.run import built_model
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

STEPS = 4  # the first one warms up
PATIENCE = 10.0  # seconds after which no further step is tried
MOST_WEIGHTS = 50_000_000  # more of them are not allocated twice for an estimate


def expected_seconds(resolved: Resolved, device: Device) -> float | None:
    """About how long the steps of the whole run take; None where it cannot be tried cheaply."""
    config, prepared = resolved.config.training, resolved.prepared
    if isinstance(config.length, SecondsConfig):
        return config.length.count
    if config.compile or resolved.config.model.parameters() > MOST_WEIGHTS:
        return None
    if config.strengths:  # one strength takes two steps, another twenty
        return None
    loader = resolved.task.loader(prepared, "train", config.feed, seed=config.seed, workers=0)
    symbols = int(prepared.schema.target.sizes(prepared.columns)[prepared.parts["train"]].sum())
    steps = expected_steps(config.length, loader.plan, symbols)
    update = Update(resolved.task, built_model(resolved, device)[0], config, Alone(), device)
    standing, taken, began = TrainingState(seed=config.seed, pieces=config.pieces), list[float](), time.monotonic()
    for step in loader.steps():
        start = time.monotonic()
        update.step(step.batch, carried=step.carried, standing=standing, rate=0.0)
        update.read()
        taken.append(time.monotonic() - start)
        if len(taken) == STEPS or time.monotonic() - began > PATIENCE:
            break
    return None if steps is None else steps * statistics.median(taken[1:] or taken)
