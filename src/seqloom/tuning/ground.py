"""What the data says before any trial: how large a batch is usual for it, and how many steps a trial has.

A space speaks of shares, because data differ: batches of half, once and twice the usual size, a warm-up of a tenth of
the steps. Here shares become the numbers of a configuration.
"""

from typing import NamedTuple

import msgspec

from seqloom.config.training import AnyFeed, ByLengthConfig
from seqloom.config.tuning import SpaceConfig
from seqloom.data.sizes import sizes_of
from seqloom.tasks.contract import HeadSettings, Task
from seqloom.training.front import Resolved
from seqloom.training.lengths import expected_steps

AROUND = (0.5, 1.0, 2.0)  # times the usual batch
UNKNOWN = 1_000  # steps, where a clock decides how many there are


class Ground(NamedTuple):
    """The run that nobody tuned, which all trials start from."""

    first: Resolved

    @property
    def batch(self) -> int:
        """The symbols of its batch."""
        return symbols_of(self.first.config.training.feed)

    def feed(self, symbols: int) -> AnyFeed:
        """Its feed with so many symbols in a batch."""
        feed = self.first.config.training.feed
        if isinstance(feed, ByLengthConfig):
            return ByLengthConfig(budget=symbols)
        return msgspec.structs.replace(feed, rows=max(1, symbols // feed.length))

    def steps(self, feed: AnyFeed) -> int:
        """About how many steps a trial with this feed has."""
        training, prepared = self.first.config.training, self.first.prepared
        loader = self.first.task.loader(prepared, "train", feed, seed=training.seed, workers=0)
        symbols = int(sizes_of(prepared.schema, prepared.columns)[prepared.parts["train"]].sum())
        return expected_steps(training.length, loader.plan, symbols) or UNKNOWN

    def filled(self, space: SpaceConfig) -> SpaceConfig:
        """The space with what it leaves to the task and to the data."""
        models = space.models or tuple(self.first.task.recipes()[:1])
        batch = space.batch or tuple(sorted({max(1, round(times * self.batch)) for times in AROUND}))
        _require_able(self.first.task, models, space)
        return msgspec.structs.replace(space, models=models, batch=batch)


def _require_able(task: Task, models: tuple[str, ...], space: SpaceConfig) -> None:
    """ConfigError for a recipe that cannot do the task in every size that is searched."""
    for name in models:
        for size in space.sizes:
            task.model(name, size, HeadSettings())


def symbols_of(feed: AnyFeed) -> int:
    """How many symbols a batch has.

    >>> symbols_of(ByLengthConfig(budget=512))
    512
    """
    return feed.budget if isinstance(feed, ByLengthConfig) else feed.rows * feed.length
