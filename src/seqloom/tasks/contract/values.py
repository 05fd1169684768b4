"""What goes into a task and comes out of it: wishes for a head, answers, judged examples, names of metrics."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.objectives import AnyObjective


class Metric(NamedTuple):
    """The name of a metric, and whether more of it is better."""

    name: str
    higher_is_better: bool = True

    def better(self, value: float, than: float | None) -> bool:
        """Whether a value is strictly better; anything finite is better than nothing."""
        if not np.isfinite(value):
            return False
        return than is None or (value > than if self.higher_is_better else value < than)


class Prediction(ABC):
    """An answer of a model to one example."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The answer as programs read it: `label` and `scores`, `spans`, `text`, ..."""

    @abstractmethod
    def shown(self) -> str:
        """The answer as people read it, in one line."""

    def located(self, given: Any) -> "Prediction":
        """The same answer to this input: one that speaks of places in it then says where they are, and quotes it."""
        return self


class Judged(NamedTuple):
    """One example and what came of it."""

    id: str
    said: str  # the prediction in one line
    true: str  # what would have been right, in one line
    right: bool | None  # whether the two agree; None where answers are only better or worse
    statistics: np.ndarray  # [S] float64, to be summed over examples


class HeadSettings(NamedTuple):
    """What training wants of a head."""

    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()  # one for each label; empty: all count the same
    kind: HeadKind = "class"
    pooling: Pooling | None = None  # of a model whose answers are vectors, as the next two; None: the recipe's
    objective: str | AnyObjective | None = None  # None: as the data asks for
    rows_at_once: int | None = None


class Asking(NamedTuple):
    """How a model is asked from a shell; RUN stands for its folder."""

    text: str  # one text; for models that read such
    file: str  # a file of inputs
    then: tuple[str, ...] = ()  # what else such a model is for
