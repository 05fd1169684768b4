"""A trained model in Python: it predicts, it is judged, and every look at the test set is written down.

model.py        LoadedModel and `load`
prediction.py   inputs in windows, sorted by length, answered, put back in order
generation.py   prompts in batches, gone on with, and translations
evaluation.py   which rows of which data a model is judged on, and the record of every look at the test part
as_trained.py   how other files are read as training was told
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel, load

__all__ = ["LoadedModel", "load"]

__getattr__ = loading(__name__, {"model": ("LoadedModel", "load")})


def __dir__() -> list[str]:
    return __all__
