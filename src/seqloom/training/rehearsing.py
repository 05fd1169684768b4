"""How long a run will take, found out before it begins: a few steps with a copy of the model, which is thrown away."""

import copy
import statistics
import time

from seqloom.config.training import SecondsConfig, StreamsConfig
from seqloom.training.lengths import expected_steps
from seqloom.training.ranks import Alone
from seqloom.training.session import Session
from seqloom.training.standing import Standing
from seqloom.training.update import Update

STEPS = 4  # the first one warms up
PATIENCE = 10.0  # seconds after which no further step is tried
MOST_WEIGHTS = 50_000_000  # a copy of more, with its moments, could cost memory that the run needs


def expected_seconds(session: Session, symbols: int) -> float | None:
    """About how long the training steps of the whole run take; None where it cannot be tried cheaply."""
    config = session.config.training
    if isinstance(config.length, SecondsConfig):
        return config.length.count
    if (
        session.ranks.count > 1
        or config.compile
        or sum(one.numel() for one in session.model.parameters()) > MOST_WEIGHTS
    ):
        return None
    loader = session.task.loader(session.prepared, "train", config.feed, seed=config.seed, workers=0)
    steps = expected_steps(config.length, loader.plan, symbols)
    update = Update(session.task, copy.deepcopy(session.model), config, Alone(), session.device)
    standing, taken, began = Standing(seed=config.seed, pieces=config.pieces), list[float](), time.monotonic()
    for step in loader.steps():
        start = time.monotonic()
        carried = step.carried and isinstance(config.feed, StreamsConfig)
        update.step(step.batch, carried=carried, standing=standing, rate=0.0)
        update.read()
        taken.append(time.monotonic() - start)
        if len(taken) == STEPS or time.monotonic() - began > PATIENCE:
            break
    return None if steps is None else steps * statistics.median(taken[1:] or taken)
