"""Estimators for scikit-learn: they work with clone, GridSearchCV, cross_val_score and Pipeline.

    SeqloomClassifier    one label or several for each text, pair of texts, sequence of vectors or picture
    SeqloomRegressor     one number or several for each
    SeqloomTagger        a tag for each word of a sentence, or for each step of a sequence

`fit` trains like `seqloom.train`: the same recipes, defaults and weights for the same seed. A fitted estimator holds
the files of its model folder as bytes, and so does its pickle; no module is pickled.

What X may be:

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

from seqloom.bundle import read_bundle
from seqloom.config.options import arguments_in_errors, require_arguments, strict
from seqloom.data.inputs import given_inputs
from seqloom.data.kinds.kind import InputKind
from seqloom.data.schema import INPUT_KINDS
from seqloom.data.values import plain
from seqloom.errors import ConfigError, DamagedError, DataError, SeqloomError, did_you_mean, needing
from seqloom.files.disk import temporary_folder, write_file
from seqloom.files.folders import commit_folder, read_file_of, read_folder, read_manifest
from seqloom.files.layouts import ModelFile, RunFile
from seqloom.inference.model import LoadedModel, load
from seqloom.inference.prediction import GivenInputs
from seqloom.recipes.families import Size
from seqloom.report.numbers import counted
from seqloom.tasks.classify import LabelPrediction, LabelsPrediction
from seqloom.tasks.regress import NumbersPrediction
from seqloom.tasks.tag import TagsPrediction
from seqloom.training.devices import DeviceName, choose_device, machine_of
from seqloom.training.events import Ended
from seqloom.training.request import requested
from seqloom.training.resolve import resolve
from seqloom.training.run import train, train_run
from seqloom.training.run_location import RunLocation

with needing("sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data


SIDES = ("first", "second", "third")  # columns of inputs of several texts


class BadValueError(SeqloomError, ValueError):
    """X or y cannot be used. A ValueError, as scikit-learn expects."""


class Inputs(NamedTuple):
    """X: its kind, and one value for each example, as `LoadedModel.predict` takes them."""

    kind: InputKind
    values: list[Any]

    @classmethod
    def of(cls, given: Any, kind: str = "auto") -> "Inputs":
        """The inputs in X; `kind` says what they are if that cannot be recognized."""
        if kind != "auto" and kind not in INPUT_KINDS:
            raise BadValueError(f"kind={kind!r}", fix=did_you_mean(kind, ["auto", *INPUT_KINDS]))
        if isinstance(given, str) or not hasattr(given, "__len__"):
            raise BadValueError(
                f"X must be a list or an array, found {type(given).__name__}", fix="give one value per example"
            )
        values = [plain(value) for value in getattr(given, "to_numpy", lambda: given)()]
        if not values:
            raise BadValueError("X is empty", fix="give at least one example")
        found = INPUT_KINDS.get(kind) or next((one for one in INPUT_KINDS.values() if one.matches(values[0])), None)
        if found is None:
            what = f"X has {type(values[0]).__name__} of {np.ndim(values[0])} dimensions"
            raise BadValueError(what, fix="give texts, vectors or pictures")
        inputs = cls(found, [found.whole(value) for value in values])
        inputs._require_readable()
        return inputs

    def _require_readable(self) -> None:
        """Raise BadValueError for values that no model reads, such as empty texts, with their index in X."""
        ledger = GivenInputs()
        for _ in given_inputs(self.values, self.kind, ledger):
            pass
        if problems := ledger.refused:
            first, more = problems[0], ledger.skipped - 1
            others = f", and {counted(more, 'other value')} cannot be used either" if more else ""
            raise BadValueError(f"X[{(first.place.line or 1) - 1}]: {first.text}{others}", fix="remove it from X and y")

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns of the file that training reads."""
        return (self.kind.name,) if self.kind.num_columns == 1 else SIDES[: self.kind.num_columns]


def is_table(given: Any) -> bool:
    """Whether X is a 2D array of numbers, for which scikit-learn has its own checks.

    >>> is_table([[1.0, 2.0]]), is_table(np.ones((3, 4, 5))), is_table(["a text"]), is_table([("a", "b")])
    (True, False, False, False)
    """
    if isinstance(given, list | tuple):
        first = given[0] if given else None
        first = first[0] if isinstance(first, list | tuple) and first else first
        return isinstance(first, Number)
    if not hasattr(given, "__array__"):
        return hasattr(given, "toarray")  # sparse, which these checks refuse
    array = np.asarray(given)
    return array.ndim <= 2 and array.dtype.kind not in "UOST"


def write_examples(folder: Path, inputs: Inputs, targets: Sequence[Any], name: str) -> Path:
    """Write examples to a file, with targets in the column `name`: JSON lines, or arrays for pictures."""
    if len(targets) != len(inputs.values):
        raise BadValueError(
            f"X has {len(inputs.values):,} examples and y has {len(targets):,}", fix="give one target per example"
        )
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
        raise ConfigError("pictures can have one label or numbers", fix="give one label for each picture")
    pictures = np.stack(inputs.values)
    kept = pictures if pictures.dtype == np.uint8 else pictures.astype(np.float32)
    data = io.BytesIO()  # only `files` writes to disk
    with zipfile.ZipFile(data, "w") as archive:
        for member, array in (("pictures", kept), (name, np.array(targets))):
            one = io.BytesIO()
            np.lib.format.write_array(one, array, allow_pickle=False)
            archive.writestr(f"{member}.npy", one.getvalue())
    write_file(path, [data.getvalue()])
    return path


# The three estimators. Parameters are plain values; `fit` trains in a temporary folder.

VALIDATIONS = 5  # in a run with a given number of steps
LEARNED = ("classes_", "n_features_in_", "feature_names_in_", "_several", "_names", "_single")  # besides the model
ARRAYS = "biufUO"  # kinds of NumPy arrays whose values JSON can hold


class SavedEstimator(msgspec.Struct, frozen=True):
    """What an estimator has besides its model, as in `estimator.json`."""

    estimator: str  # the name of its class
    parameters: dict[str, Any]
    learned: dict[str, Any]  # attributes that `fit` set; an array is {"dtype": ..., "values": [...]}


class SeqloomEstimator(BaseEstimator):  # type: ignore[misc]  # it has no types
    """The base class of the estimators.

    Args:
        model: the recipe (default: chosen by the data).
        size: nano, tiny, small, ... (default: chosen by the data).
        width: the width of the layers (default: that of the size).
        layers: the number of layers (default: that of the size).
        heads: the number of attention heads (default: that of the size).
        epochs: how many epochs to train (default: chosen by the data). Give `epochs` or `steps`.
        steps: how many steps to train.
        lr: the peak learning rate (default: chosen by recipe and size).
        dropout: the dropout rate (default: that of the recipe).
        dev_size: share of the rows that is held out to choose the best checkpoint; with 0 the last weights are used.
        tokenizer: words, characters, bpe, unigram, ...
        lowercase: convert texts to lower case (default: as in `seqloom.train`, by the model and the task).
        kind: what X holds (text, pair, words, vectors, picture), if it cannot be recognized.
        seed: the random seed of the split, the weights and the order of batches.
        device: auto, cpu, cuda or mps.
        settings: further arguments of `seqloom.train`, by name.

    Attributes:
        bundle_: the files of the model folder, by name, as bytes.
        model_: the trained model, as `seqloom.load` returns it.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        size: Size | None = None,
        width: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        lr: float | None = None,
        dropout: float | None = None,
        dev_size: float = 0.1,
        tokenizer: str = "words",
        lowercase: bool | None = None,
        kind: str = "auto",
        seed: int = 0,
        device: DeviceName = "cpu",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.size, self.epochs, self.steps = model, size, epochs, steps
        self.width, self.layers, self.heads = width, layers, heads
        self.lr, self.dropout, self.dev_size = lr, dropout, dev_size
        self.tokenizer, self.lowercase, self.kind = tokenizer, lowercase, kind
        self.seed, self.device, self.settings = seed, device, settings

    @property
    def model_(self) -> LoadedModel:
        """The trained model, as `seqloom.load` returns it."""
        check_is_fitted(self, "bundle_")
        if not hasattr(self, "_loaded"):  # after unpickling
            with temporary_folder("model") as folder:
                commit_folder(folder / RunFile.MODEL, self.bundle_)
                self._loaded = load(folder / RunFile.MODEL, device=choose_device(self.device, "float32").torch)
        return self._loaded

    @strict
    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator to a new folder, without a pickle, and return the path.

        Args:
            path: the folder. It is a model folder that `seqloom.load` reads too, with one more file, estimator.json.
        """
        check_is_fitted(self, "bundle_")
        learned = {name: _array_json(getattr(self, name)) for name in LEARNED if hasattr(self, name)}
        saved = SavedEstimator(
            type(self).__name__,
            {name: _json(value, name) for name, value in self.get_params(deep=False).items()},
            {name: _json(value, name) for name, value in learned.items()},
        )
        commit_folder(Path(path), self.bundle_ | {ModelFile.ESTIMATOR: msgspec.json.encode(saved)})
        return Path(path)

    @classmethod
    @strict
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote. It has the same parameters and makes the same predictions.

        Args:
            path: the folder; the checksum of every file in it is verified.
        """
        folder = Path(path)
        read_bundle(folder)  # raises if it is not a model folder, or if a file is damaged
        files = {name: read_file_of(folder, name) for name in read_manifest(folder).files}
        text = files.pop(ModelFile.ESTIMATOR, None)
        if text is None:
            raise ConfigError(
                f"{folder} has a model but no {ModelFile.ESTIMATOR}, so it is not a saved estimator",
                fix="use seqloom.load(path), or write the folder with the save method of an estimator",
            )
        try:
            saved = msgspec.json.decode(text, type=SavedEstimator)
        except msgspec.MsgspecError as error:
            raise DamagedError(f"{folder / ModelFile.ESTIMATOR}: {error}", fix="save the estimator again") from None
        if saved.estimator != cls.__name__:
            raise ConfigError(
                f"{folder} holds a {saved.estimator}, not a {cls.__name__}", fix=f"use {saved.estimator}.load(path)"
            )
        if unknown := saved.parameters.keys() - set(cls._get_param_names()):
            raise ConfigError(
                f"{folder}: this version has no parameter {', '.join(sorted(unknown))}",
                fix="use the version of Seqloom that saved the estimator, or seqloom.load(path)",
            )
        estimator = cls(**saved.parameters)
        for name in saved.learned.keys() & set(LEARNED):
            setattr(estimator, name, _from_json(saved.learned[name]))
        estimator.bundle_ = files
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """The parameters and the bytes of the model folder; the model is rebuilt from them."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the estimator is fitted."""
        return hasattr(self, "bundle_")

    def __sklearn_tags__(self) -> Any:
        """The tags of scikit-learn: X may be texts and 3D arrays."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.three_d_array = True
        return tags

    def _given(self, X: Any, *, reset: bool = False) -> Inputs:
        """The inputs; 2D arrays of numbers are validated by scikit-learn."""
        if is_table(X):
            X = validate_data(self, X, reset=reset, dtype=np.float32)
        return Inputs.of(X, self.kind)

    def _train(self, inputs: Inputs, targets: Sequence[Any], task: str, name: str) -> None:
        """Train, and store the files of the model in `bundle_`; errors name the arguments of `seqloom.train`."""
        with arguments_in_errors(train), temporary_folder("fit") as folder:
            data = write_examples(folder, inputs, targets, name)
            wanted = self._wanted() | {"task": task, "input": inputs.columns, "target": (name,)}
            config, request = requested((data,), wanted)
            home = RunLocation(folder / "run")
            machine = machine_of(choose_device(self.device))
            resolved = resolve(config, request, location=home, cache=folder / "cache", machine=machine)
            device = choose_device(self.device, resolved.config.training.precision)
            for report in train_run(folder / "run", resolved, device=device, workers=0):
                # An interrupted training raises the interrupt again.
                if isinstance(report, Ended) and report.reason == "stopped":
                    raise KeyboardInterrupt
                if isinstance(report, Ended) and report.reason == "not-finite":
                    raise DataError("the loss became NaN or infinite", fix="use a lower lr")
            self.bundle_ = dict(read_folder(folder / "run" / RunFile.MODEL))
            self._loaded = load(folder / "run" / RunFile.MODEL, device=device.torch)

    def _wanted(self) -> dict[str, Any]:
        """Return the arguments of `seqloom.train` for these parameters."""
        require_arguments(train, self.settings or {})
        sized = ("model", "size", "width", "layers", "heads", "dropout")
        names = (*sized, "epochs", "steps", "lr", "dev_size", "tokenizer", "lowercase", "seed")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.steps is not None:
            given["validate_every"] = max(1, self.steps // (VALIDATIONS if self.dev_size else 1))
        return {"test_size": 0.0, "split_seed": self.seed} | given | dict(self.settings or {})

    def _answers(self, X: Any) -> list[Any]:
        check_is_fitted(self, "bundle_")
        return list(self.model_.predict(self._given(X).values))


class SeqloomClassifier(ClassifierMixin, SeqloomEstimator):  # type: ignore[misc]
    """A classifier. Parameters as in `SeqloomEstimator`.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train the classifier.

        Args:
            X: texts, pairs of texts, lists of words, vectors or pictures.
            y: one label for each example, or [N,K] zeros and ones for several labels.

        Returns:
            The estimator itself.
        """
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
                raise BadValueError(
                    "y has 1 class, but a classifier needs two or more", fix="give data with at least two labels"
                )
        self._train(inputs, targets, "classify", "labels" if self._several else "label")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[N] the most likely label of each example, or [N,K] zeros and ones for several labels."""
        answers = cast("list[LabelPrediction | LabelsPrediction]", self._answers(X))
        if self._several:
            chosen = [set(cast(LabelsPrediction, one).labels) for one in answers]
            return np.array([[int(name in one) for name in self._names] for one in chosen])
        at = {name: number for number, name in enumerate(self._names)}
        return np.asarray(self.classes_[[at[cast(LabelPrediction, one).label] for one in answers]])

    def predict_proba(self, X: Any) -> np.ndarray:
        """[N,K] the probability of each label, in the order of `classes_`."""
        answers = cast("list[LabelPrediction | LabelsPrediction]", self._answers(X))
        scores = np.array([[one.scores.get(name, 0.0) for name in self._names] for one in answers])
        return scores if self._several else scores / scores.sum(axis=1, keepdims=True)

    def __sklearn_tags__(self) -> Any:
        """The tags of scikit-learn: y may have several labels."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class SeqloomRegressor(RegressorMixin, SeqloomEstimator):  # type: ignore[misc]
    """A regressor. Parameters as in `SeqloomEstimator`."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train the regressor.

        Args:
            X: texts, pairs of texts, lists of words, vectors or pictures.
            y: [N] one number for each example, or [N,K] several.

        Returns:
            The estimator itself.
        """
        _require_target(self, y)
        inputs, numbers = self._given(X, reset=True), np.asarray(y, np.float64)
        if not np.isfinite(numbers).all():
            raise BadValueError("y has NaN or infinite numbers", fix="remove these examples")
        self._single = numbers.ndim == 1
        self._train(inputs, numbers.reshape(len(numbers), -1).tolist(), "regress", "numbers")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[N] a number for each example, or [N,K] if `y` had K."""
        found = np.array([cast(NumbersPrediction, one).numbers for one in self._answers(X)])
        return found[:, 0] if self._single else found

    def __sklearn_tags__(self) -> Any:
        """The tags of scikit-learn: y may have several columns."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SeqloomTagger(SeqloomEstimator):
    """A tagger. Parameters as in `SeqloomEstimator`.

    Attributes:
        classes_: the tags.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train the tagger.

        Args:
            X: sentences as lists of words, or sequences of vectors.
            y: a list of tags for each.

        Returns:
            The estimator itself.
        """
        self._train(Inputs.of(X, self._kind(X)), [list(map(str, tags)) for tags in y], "tag", "tags")
        self.classes_ = np.array(self.model_.spec.schema.labels)
        return self

    def predict(self, X: Any) -> list[list[str]]:
        """The tags of the words or steps of each example."""
        check_is_fitted(self, "bundle_")
        answers = self.model_.predict(Inputs.of(X, self._kind(X)).values)
        return [list(cast(TagsPrediction, one).tags) for one in answers]

    def score(self, X: Any, y: Any) -> float:
        """F1 of spans, or the accuracy of tags that mark no spans."""
        check_is_fitted(self, "bundle_")
        inputs = Inputs.of(X, self._kind(X))
        with temporary_folder("score") as folder:
            data = write_examples(folder, inputs, [list(map(str, tags)) for tags in y], "tags")
            found = self.model_.evaluate(data, task="tag", input=inputs.columns, target="tags")
        return found.metrics[self.model_.task.metric.name]

    def _kind(self, X: Any) -> str:
        """Return the kind of X; lists of texts are words, even if there are two."""
        words = self.kind == "auto" and len(X) and isinstance(X[0], list | tuple) and isinstance(X[0][0], str)
        return "words" if words else self.kind


def _json(value: Any, name: str) -> Any:
    """A parameter or learned attribute as plain values for JSON; ConfigError if it has none."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, Mapping):
        return {str(key): _json(one, f"{name}[{key!r}]") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json(one, name) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    raise ConfigError(
        f"the estimator cannot be saved: {name} is a {type(value).__name__}",
        fix="use text, numbers, or lists of them instead",
    )


def _array_json(value: Any) -> Any:
    """An array as its values and their type; anything else unchanged."""
    if isinstance(value, np.ndarray) and value.dtype.kind in ARRAYS:
        return {"dtype": value.dtype.str, "values": value.tolist()}
    return value


def _from_json(value: Any) -> Any:
    return np.array(value["values"], np.dtype(value["dtype"])) if isinstance(value, dict) else value


def _require_target(estimator: SeqloomEstimator, y: Any) -> None:
    """Raise the ValueError that scikit-learn expects if y is None."""
    if y is None:
        name = type(estimator).__name__
        raise BadValueError(f"{name} requires y to be passed, but the target y is None", fix="fit(X, y)")


def _names(classes: np.ndarray) -> list[str]:
    """A name for each class: its text, if these are all different, else its number."""
    names = [str(one) for one in classes]
    own = len(set(names)) == len(names) and all(name.strip() == name != "" for name in names)
    return names if own else [str(number) for number in range(len(names))]
