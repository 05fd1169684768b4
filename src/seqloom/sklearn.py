"""Estimators for scikit-learn: fit, predict, score, clone, GridSearchCV, cross_val_score, Pipeline.

    SeqloomClassifier    a label, or several, for each text, pair of texts, sequence of vectors or picture
    SeqloomRegressor     one number, or several, for each
    SeqloomTagger        a tag for each word of a sentence, or for each step of a sequence

Training is that of `seqloom.train`: the same recipes, the same defaults, the same weights for the same seed. A fitted
estimator holds the files of its model folder; that is also what a pickle of it holds, so no module is ever pickled.

What X and y are, and the file that training reads: nothing enters a model but through the readers of data.

X    texts                     ["a fine film", ...]          one column, a list, or an array of texts
     pairs of texts            [("a man", "a boy"), ...]     tuples of two, or an array [N,2] of texts
     sentences                 [["No", "way"], ...]          lists of words
     vectors                   [N,D], [N,T,D] or a list of [T,D]; a row of [N,D] is a sequence of one step
     pictures                  [N,H,W,C], or [N,H,W] with kind="picture"
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import msgspec
import numpy as np

from seqloom.config.base import from_data
from seqloom.config.data import EncodingConfig, RandomSplit
from seqloom.config.tokenizers import AnyTokenizer
from seqloom.data.inputs import given_inputs
from seqloom.data.kinds.kind import InputKind
from seqloom.data.schema import INPUT_KINDS
from seqloom.data.values import plain
from seqloom.errors import ConfigError, DataError, SeqloomError, did_you_mean, needing
from seqloom.files.disk import temporary_folder, write_file
from seqloom.files.folders import commit_folder, read_folder
from seqloom.files.layouts import RunFile
from seqloom.inference.model import LoadedModel, load
from seqloom.inference.prediction import GivenInputs
from seqloom.recipes.families import Size
from seqloom.report.numbers import counted
from seqloom.tasks.classify import LabelPrediction, LabelsPrediction
from seqloom.tasks.regress import NumbersPrediction
from seqloom.tasks.tag import TagsPrediction
from seqloom.training.devices import DeviceName, choose_device
from seqloom.training.events import Ended
from seqloom.training.home import Home
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from seqloom.training.wishes import settings_of

with needing("sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data


SIDES = ("first", "second", "third")  # columns of inputs of several texts


class BadValueError(SeqloomError, ValueError):
    """Values that no model can learn from: what scikit-learn expects as a ValueError."""


class Inputs(NamedTuple):
    """What is given as X: its kind, and one value for each example, as `LoadedModel.predict` takes them."""

    kind: InputKind
    values: list[Any]

    @classmethod
    def of(cls, given: Any, kind: str = "auto") -> "Inputs":
        """The inputs in X; `kind` says what they are where that cannot be seen."""
        if kind != "auto" and kind not in INPUT_KINDS:
            raise BadValueError(f"kind={kind!r}", fix=did_you_mean(kind, ["auto", *INPUT_KINDS]))
        if isinstance(given, str) or not hasattr(given, "__len__"):
            raise BadValueError(f"X is a list or an array, found {type(given).__name__}", fix="one value per example")
        values = [plain(value) for value in getattr(given, "to_numpy", lambda: given)()]
        if not values:
            raise BadValueError("X holds no example", fix="give at least one")
        found = INPUT_KINDS.get(kind) or next((one for one in INPUT_KINDS.values() if one.matches(values[0])), None)
        if found is None:
            what = f"X holds {type(values[0]).__name__} of {np.ndim(values[0])} axes"
            raise BadValueError(what, fix="give texts, vectors or pictures")
        inputs = cls(found, [found.whole(value) for value in values])
        inputs._require_readable()
        return inputs

    def _require_readable(self) -> None:
        """Raise BadValueError for values that no model reads, as empty texts: before any work, by their place in X."""
        ledger = GivenInputs()
        for _ in given_inputs(self.values, self.kind, ledger):
            pass
        if problems := ledger.refused:
            first, more = problems[0], ledger.skipped - 1
            others = f", and {counted(more, 'other value')} cannot be read either" if more else ""
            raise BadValueError(
                f"X[{(first.place.line or 1) - 1}]: {first.text}{others}", fix="leave it out of X and y"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the input in the file that training reads."""
        return (self.kind.name,) if self.kind.num_columns == 1 else SIDES[: self.kind.num_columns]


def is_table(given: Any) -> bool:
    """Whether X is rows of numbers, as most estimators take them: scikit-learn's own checks are for these.

    >>> is_table([[1.0, 2.0]]), is_table(np.ones((3, 4, 5))), is_table(["a text"]), is_table([("a", "b")])
    (True, False, False, False)
    """
    if isinstance(given, list | tuple):
        first = given[0] if given else None
        first = first[0] if isinstance(first, list | tuple) and first else first
        return isinstance(first, Number)
    if not hasattr(given, "__array__"):
        return hasattr(given, "toarray")  # sparse, which they refuse
    array = np.asarray(given)
    return array.ndim <= 2 and array.dtype.kind not in "UOST"


def write_examples(folder: Path, inputs: Inputs, targets: Sequence[Any], name: str) -> Path:
    """The file with these examples, their targets in the column `name`: JSON lines, or arrays for pictures."""
    if len(targets) != len(inputs.values):
        raise BadValueError(f"{len(inputs.values):,} examples and {len(targets):,} targets", fix="give each one target")
    if inputs.kind.fixed_size:
        return _write_pictures(folder / "data.npz", inputs, targets, name)
    rows = zip(inputs.values, targets, strict=True)
    write_file(folder / "data.jsonl", (_line(inputs, value, name, target) for value, target in rows))
    return folder / "data.jsonl"


def _line(inputs: Inputs, value: Any, name: str, target: Any) -> bytes:
    values = [one.tolist() if isinstance(one, np.ndarray) else one for one in inputs.kind.cells(value)]
    return msgspec.json.encode(dict(zip(inputs.columns, values, strict=True)) | {name: target}) + b"\n"


def _write_pictures(path: Path, inputs: Inputs, targets: Sequence[Any], name: str) -> Path:
    if name not in ("label", "numbers"):
        raise ConfigError("pictures have one label or numbers here", fix="one label for each picture")
    pictures = np.stack(inputs.values)
    kept = pictures if pictures.dtype == np.uint8 else pictures.astype(np.float32)
    data = io.BytesIO()  # only `files` writes to a disk, so numpy is given none to write to
    with zipfile.ZipFile(data, "w") as archive:
        for member, array in (("pictures", kept), (name, np.array(targets))):
            one = io.BytesIO()
            np.lib.format.write_array(one, array, allow_pickle=False)
            archive.writestr(f"{member}.npy", one.getvalue())
    write_file(path, [data.getvalue()])
    return path


# The three estimators: parameters are plain values, `fit` trains in a folder that is gone afterwards.

LOOKS = 5  # validations of a run of so many steps


class SeqloomEstimator(BaseEstimator):  # type: ignore[misc]  # it has no types
    """What the estimators share. A parameter that is None is chosen by the task and the size of the data.

    model, size        a recipe and its size                      epochs, steps   how long, one of them
    rate, dropout      of the training                            validation      share that chooses the best weights
    tokenizer, lower   how texts are cut                          kind            what X is, if that cannot be seen
    seed, device       everything that is drawn; where            settings        any other setting of `seqloom.train`
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        size: Size | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        rate: float | None = None,
        dropout: float | None = None,
        validation: float = 0.1,
        tokenizer: str = "words",
        lower: bool = False,
        kind: str = "auto",
        seed: int = 0,
        device: DeviceName = "cpu",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.size, self.epochs, self.steps = model, size, epochs, steps
        self.rate, self.dropout, self.validation = rate, dropout, validation
        self.tokenizer, self.lower, self.kind = tokenizer, lower, kind
        self.seed, self.device, self.settings = seed, device, settings

    @property
    def model_(self) -> LoadedModel:
        """The model that was trained, as `seqloom.load` gives it."""
        check_is_fitted(self, "bundle_")
        if not hasattr(self, "_loaded"):  # it was pickled
            with temporary_folder("model") as folder:
                commit_folder(folder / RunFile.MODEL, self.bundle_)
                self._loaded = load(folder / RunFile.MODEL, device=choose_device(self.device, "float32").torch)
        return self._loaded

    def __getstate__(self) -> dict[str, Any]:
        """Parameters and the bytes of the model folder; the model itself is made of them again."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a model."""
        return hasattr(self, "bundle_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may give: texts and arrays."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.three_d_array = True
        return tags

    def _given(self, X: Any, *, reset: bool = False) -> Inputs:
        """The inputs; rows of numbers are checked as scikit-learn does, and their width remembered."""
        if is_table(X):
            X = validate_data(self, X, reset=reset, dtype=np.float32)
        return Inputs.of(X, self.kind)

    def _train(self, inputs: Inputs, targets: Sequence[Any], task: str, name: str) -> None:
        """Train, and leave the files of the model in `bundle_`."""
        with temporary_folder("fit") as folder:
            data = write_examples(folder, inputs, targets, name)
            wanted = self._wanted() | {"task": task, "input": inputs.columns, "target": (name,)}
            config, wishes = settings_of((data,), wanted)
            home = Home(folder / "run")
            resolved = resolve(config, wishes, home=home, cache=folder / "cache")
            device = choose_device(self.device, resolved.config.training.precision)
            for report in train_run(folder / "run", resolved, device=device, workers=0):
                # Stop where training could not go on; a signal that ended it is the caller's again.
                if isinstance(report, Ended) and report.why == "stopped":
                    raise KeyboardInterrupt
                if isinstance(report, Ended) and report.why == "not-finite":
                    raise DataError("training met numbers that are not finite", fix="a lower rate")
            self.bundle_ = dict(read_folder(folder / "run" / RunFile.MODEL))
            self._loaded = load(folder / "run" / RunFile.MODEL, device=device.torch)

    def _wanted(self) -> dict[str, Any]:
        """The settings that are said, by the names that `seqloom.train` has for them."""
        names = ("model", "size", "epochs", "steps", "rate", "dropout", "seed")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        tokenizer = from_data({"kind": self.tokenizer, "lower": self.lower}, AnyTokenizer)
        split = RandomSplit(dev=self.validation, test=0.0, seed=self.seed)
        looks = (
            {} if self.steps is None else {"validate_every": max(1, self.steps // (LOOKS if self.validation else 1))}
        )
        usual = {"encoding": EncodingConfig(tokenizer=tokenizer), "split": split} | looks
        return usual | said | dict(self.settings or {})

    def _answers(self, X: Any) -> list[Any]:
        check_is_fitted(self, "bundle_")
        return self.model_.predict(self._given(X).values)


class SeqloomClassifier(ClassifierMixin, SeqloomEstimator):  # type: ignore[misc]
    """A classifier: `y` is a label for each example, or a matrix [N,K] of zeros and ones for several labels each.

    After `fit`: `classes_`, the labels in the order of the columns of `predict_proba`; `model_`.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """The classifier, trained."""
        _require_target(self, y)
        inputs, wanted = self._given(X, reset=True), np.asarray(y)
        check_classification_targets(wanted)
        self._several = wanted.ndim == 2 and wanted.shape[1] > 1
        if self._several:
            self.classes_ = np.arange(wanted.shape[1])
            self._names = [str(label) for label in self.classes_]
            targets: list[Any] = [[self._names[at] for at in np.flatnonzero(row)] for row in wanted]
        else:
            self.classes_, numbers = np.unique(column_or_1d(wanted, warn=True), return_inverse=True)
            self._names = _names(self.classes_)
            targets = [self._names[number] for number in numbers]
            if len(self.classes_) < 2:
                raise BadValueError("y holds 1 class, and a choice needs two", fix="give data with two labels at least")
        self._train(inputs, targets, "classify", "labels" if self._several else "label")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[N] the likeliest label of each example, or [N,K] ones for the labels that it has."""
        answers = cast("list[LabelPrediction | LabelsPrediction]", self._answers(X))
        if self._several:
            said = [set(cast(LabelsPrediction, one).labels) for one in answers]
            return np.array([[int(name in one) for name in self._names] for one in said])
        at = {name: number for number, name in enumerate(self._names)}
        return np.asarray(self.classes_[[at[cast(LabelPrediction, one).label] for one in answers]])

    def predict_proba(self, X: Any) -> np.ndarray:
        """[N,K] the probability of each label, in the order of `classes_`."""
        answers = cast("list[LabelPrediction | LabelsPrediction]", self._answers(X))
        scores = np.array([[one.scores.get(name, 0.0) for name in self._names] for one in answers])
        return scores if self._several else scores / scores.sum(axis=1, keepdims=True)

    def __sklearn_tags__(self) -> Any:
        """Several labels may be given."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class SeqloomRegressor(RegressorMixin, SeqloomEstimator):  # type: ignore[misc]
    """A regressor: `y` is a number for each example, or [N,K] several."""

    def fit(self, X: Any, y: Any) -> Self:
        """The regressor, trained."""
        _require_target(self, y)
        inputs, numbers = self._given(X, reset=True), np.asarray(y, np.float64)
        if not np.isfinite(numbers).all():
            raise BadValueError("y holds NaN or infinite numbers", fix="leave these examples out")
        self._single = numbers.ndim == 1
        self._train(inputs, numbers.reshape(len(numbers), -1).tolist(), "regress", "numbers")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[N] a number for each example, or [N,K] as many as `y` had."""
        found = np.array([cast(NumbersPrediction, one).numbers for one in self._answers(X)])
        return found[:, 0] if self._single else found

    def __sklearn_tags__(self) -> Any:
        """Several numbers may be given."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SeqloomTagger(SeqloomEstimator):
    """A tagger: X are sentences, lists of words, or sequences of vectors; `y` is a list of tags for each."""

    def fit(self, X: Any, y: Any) -> Self:
        """The tagger, trained."""
        self._train(Inputs.of(X, self._kind(X)), [list(map(str, tags)) for tags in y], "tag", "tags")
        self.classes_ = np.array(self.model_.meaning.schema.labels)
        return self

    def predict(self, X: Any) -> list[list[str]]:
        """The tag of each word or step of each sentence."""
        check_is_fitted(self, "bundle_")
        answers = self.model_.predict(Inputs.of(X, self._kind(X)).values)
        return [list(cast(TagsPrediction, one).tags) for one in answers]

    def score(self, X: Any, y: Any) -> float:
        """The metric of the task: F1 of the spans that tags mark, or the share of right tags where they mark none."""
        check_is_fitted(self, "bundle_")
        inputs = Inputs.of(X, self._kind(X))
        with temporary_folder("score") as folder:
            data = write_examples(folder, inputs, [list(map(str, tags)) for tags in y], "tags")
            found = self.model_.evaluate(data, task="tag", input=inputs.columns, target="tags")
        return found.metrics[self.model_.task.metric.name]

    def _kind(self, X: Any) -> str:
        """Lists of texts are words here, also where they are two."""
        words = self.kind == "auto" and len(X) and isinstance(X[0], list | tuple) and isinstance(X[0][0], str)
        return "words" if words else self.kind


def _require_target(estimator: SeqloomEstimator, y: Any) -> None:
    """Raise a ValueError, in the words that scikit-learn looks for, where there is nothing to learn."""
    if y is None:
        name = type(estimator).__name__
        raise BadValueError(f"{name} requires y to be passed, but the target y is None", fix="fit(X, y)")


def _names(classes: np.ndarray) -> list[str]:
    """A name for each class that data can hold: its own, if all of them have one."""
    names = [str(one) for one in classes]
    own = len(set(names)) == len(names) and all(name.strip() == name != "" for name in names)
    return names if own else [str(number) for number in range(len(names))]
