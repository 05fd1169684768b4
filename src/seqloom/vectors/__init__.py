"""Word vectors: trained on your own text, looked up, and evaluated.

corpus.py       a file of texts as word numbers
windows.py      subsampling, windows and noise words, in blocks
tables.py       the vectors of words, also of character n-grams
objectives.py   steps of skip-gram and CBOW
training.py     `train`: from a file of texts to a file of vectors
lookup.py       nearest neighbors and analogies
evaluation.py   scores on files of analogies and of similarities
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.vectors.evaluation import VectorEvaluation, evaluate
    from seqloom.vectors.lookup import NearestWords, VectorSpace, analogy, neighbors
    from seqloom.vectors.training import TrainedVectors, train

__all__ = [
    "NearestWords",
    "TrainedVectors",
    "VectorEvaluation",
    "VectorSpace",
    "analogy",
    "evaluate",
    "neighbors",
    "train",
]

HOMES = {
    "evaluation": ("VectorEvaluation", "evaluate"),
    "lookup": ("NearestWords", "VectorSpace", "analogy", "neighbors"),
    "training": ("TrainedVectors", "train"),
}
__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
