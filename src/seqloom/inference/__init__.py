"""Trained models in Python: predict, generate, embed, evaluate.

model.py        LoadedModel and `load`
prediction.py   batches of inputs, and predictions in the order of the inputs
stream.py       one endless sequence, answered at each element
generation.py   text generation and translation
evaluation.py   which rows a model is evaluated on, the error file, and the record of test evaluations
as_trained.py   reads further files with the settings of training
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel, load

__all__ = ["LoadedModel", "load"]

__getattr__ = loading(__name__, {"model": ("LoadedModel", "load")})


def __dir__() -> list[str]:
    return __all__
