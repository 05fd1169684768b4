"""Estimators for scikit-learn: fit, predict, score, clone, GridSearchCV, cross_val_score, Pipeline.

    SeqloomClassifier    a label, or several, for each text, pair of texts, sequence of vectors or picture
    SeqloomRegressor     one number, or several, for each
    SeqloomTagger        a tag for each word of a sentence, or for each step of a sequence

Training is that of `seqloom.train`: the same recipes, the same defaults, the same weights for the same seed. A fitted
estimator holds the files of its model folder; that is also what a pickle of it holds, so no module is ever pickled.

    given.py         what X and y are, and the file that training reads
    estimators.py    the three estimators
"""

from seqloom.errors import needing

with needing("sklearn"):
    import sklearn.base  # type: ignore[import-untyped]  # noqa: F401  # only to say which extra is missing

from seqloom.sklearn.estimators import SeqloomClassifier, SeqloomRegressor, SeqloomTagger

__all__ = ["SeqloomClassifier", "SeqloomRegressor", "SeqloomTagger"]
