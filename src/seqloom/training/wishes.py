"""What somebody wants of a run, before any data is read: recipe, size and settings by name, the rest left open."""

from typing import Any, NamedTuple

from seqloom.config.data import EncodingConfig
from seqloom.config.models import AnyModel
from seqloom.recipes import Size


class Wishes(NamedTuple):
    """What somebody wants; what is None is chosen and said aloud."""

    model: str | AnyModel | None = None  # a recipe, or a model of one's own
    size: Size | None = None
    dropout: float | None = None
    smoothing: float = 0.0
    class_weights: str | tuple[float, ...] = ()  # "balanced": as rare labels deserve
    training: dict[str, Any] = {}  # noqa: RUF012  # settings of `TrainingConfig` that were named
    encoding: EncodingConfig | None = None

    def in_vain(self) -> tuple[str, ...]:
        """The settings of a recipe that were named although the model is ready: one's own, or that of `init`."""
        if isinstance(self.model, str) or (self.model is None and not self.training.get("init")):
            return ()
        names = ("size", "dropout", "smoothing", "class_weights")
        return tuple(name for name in names if getattr(self, name) != self._field_defaults[name])
