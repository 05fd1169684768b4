"""The estimators of `seqloom.sklearn`: what scikit-learn expects of any, and what they hold when they are pickled."""

import json
import pickle  # noqa: TID251  # what users do with an estimator; it holds no module of ours
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import seqloom
from seqloom.errors import ConfigError, DamagedError, SeqloomError
from seqloom.files.folders import commit_folder
from seqloom.sklearn import Inputs, SeqloomClassifier, SeqloomRegressor, SeqloomTagger

WORDS = ["good", "fine", "nice", "bad", "poor", "awful"]
TEXTS = [f"{WORDS[number % 6]} film {number}" for number in range(36)]
LABELS = ["yes" if number % 6 < 3 else "no" for number in range(36)]
QUICK: dict[str, Any] = {"size": "nano", "steps": 8, "dev_size": 0.0}


class Watched(pickle.Unpickler):
    """Reads a pickle and remembers which modules it needs."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.modules.add(module)
        return super().find_class(module, name)


@pytest.fixture(scope="module")
def fitted() -> SeqloomClassifier:
    return SeqloomClassifier("bag", **QUICK).fit(TEXTS, LABELS)


@pytest.mark.slow
def test_probabilities_are_in_the_order_of_the_classes_and_the_likeliest_is_said(fitted: SeqloomClassifier) -> None:
    likely = fitted.predict_proba(TEXTS)
    assert fitted.classes_.tolist() == ["no", "yes"] and likely.shape == (36, 2)
    np.testing.assert_allclose(likely.sum(axis=1), 1)
    assert (fitted.classes_[likely.argmax(axis=1)] == fitted.predict(TEXTS)).all()
    assert fitted.score(TEXTS, LABELS) == np.mean(fitted.predict(TEXTS) == LABELS)


@pytest.mark.slow
def test_the_answers_are_those_of_the_model(fitted: SeqloomClassifier) -> None:
    said = [one.to_json()["scores"]["yes"] for one in fitted.model_.predict(TEXTS[:5])]
    np.testing.assert_allclose(fitted.predict_proba(TEXTS[:5])[:, 1], said, rtol=1e-6)


def test_a_pickle_holds_the_files_of_the_model_and_answers_the_same(fitted: SeqloomClassifier) -> None:
    reading = Watched(BytesIO(pickle.dumps(fitted)))
    again = reading.load()
    assert again.bundle_.keys() >= {"model.safetensors", "config.json", "labels.json"}
    assert {name.partition(".")[0] for name in reading.modules} == {"seqloom", "numpy"}
    assert {name for name in reading.modules if name.startswith("seqloom")} == {"seqloom.sklearn"}
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict(TEXTS), fitted.predict(TEXTS))  # noqa: S301


def test_a_saved_estimator_is_a_model_folder_and_predicts_the_same(fitted: SeqloomClassifier, tmp_path: Path) -> None:
    place = fitted.save(tmp_path / "mine").rename(tmp_path / "moved")
    again = SeqloomClassifier.load(place)
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    np.testing.assert_array_equal(again.predict(TEXTS), fitted.predict(TEXTS))
    assert again.get_params() == fitted.get_params() and again.bundle_ == fitted.bundle_
    assert again.classes_.dtype == fitted.classes_.dtype and again.classes_.tolist() == ["no", "yes"]
    assert seqloom.load(place).predict(TEXTS[:1])[0].label == fitted.predict(TEXTS[:1])[0]
    assert not any(file.suffix in (".pkl", ".pickle", ".joblib") for file in place.iterdir())
    with pytest.raises(SeqloomError, match="already exists"):
        fitted.save(place)


@pytest.mark.parametrize("values", [[0, 1], [True, False], [1.5, 2.5], ["a", "b"], np.array(["x", "y"], object)])
def test_the_classes_of_a_saved_estimator_keep_their_type(
    fitted: SeqloomClassifier, tmp_path: Path, values: Any
) -> None:
    other = SeqloomClassifier(settings={"label_smoothing": np.float64(0.1)}, seed=np.int64(3))
    other.bundle_, other._several, other._names = fitted.bundle_, False, fitted._names
    other.classes_ = np.array(values)
    again = SeqloomClassifier.load(other.save(tmp_path / "mine"))
    assert again.classes_.dtype == other.classes_.dtype and (again.classes_ == other.classes_).all()
    assert again.get_params() == other.get_params() and (again.predict(TEXTS) == other.predict(TEXTS)).all()


def test_what_cannot_be_saved_or_loaded_is_refused(fitted: SeqloomClassifier, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        SeqloomClassifier("bag").save(tmp_path / "none")
    odd = clone(fitted).set_params(settings={"optimizer": object()})
    odd.bundle_ = fitted.bundle_
    with pytest.raises(ConfigError, match=r"settings\['optimizer'\] is a object"):
        odd.save(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    place = fitted.save(tmp_path / "mine")
    with pytest.raises(ConfigError, match="holds a SeqloomClassifier, not a SeqloomRegressor"):
        SeqloomRegressor.load(place)
    commit_folder(tmp_path / "plain", fitted.bundle_)
    with pytest.raises(ConfigError, match=r"no estimator\.json"):
        SeqloomClassifier.load(tmp_path / "plain")
    with pytest.raises(ConfigError, match="there is no model folder"):
        SeqloomClassifier.load(tmp_path / "absent")
    (place / "estimator.json").write_text("{}")
    with pytest.raises(DamagedError):
        SeqloomClassifier.load(place)


@pytest.mark.slow
def test_saved_regressors_taggers_and_several_labels_predict_the_same(tmp_path: Path) -> None:
    table = np.arange(48.0).reshape(12, 4)
    numbers = SeqloomRegressor("mlp", **QUICK | {"steps": 2}).fit(table, np.arange(12.0))
    again = SeqloomRegressor.load(numbers.save(tmp_path / "numbers"))
    np.testing.assert_array_equal(again.predict(table), numbers.predict(table))
    with pytest.raises(ValueError, match="3 features, but SeqloomRegressor is expecting 4"):
        again.predict(table[:, :3])
    wanted = np.array([[number % 6 < 3, number % 2] for number in range(36)], int)
    several = SeqloomClassifier("bag", **QUICK | {"steps": 2}).fit(TEXTS, wanted)
    both = SeqloomClassifier.load(several.save(tmp_path / "several"))
    np.testing.assert_array_equal(both.predict(TEXTS), several.predict(TEXTS))
    tagger = SeqloomTagger(**QUICK | {"steps": 2}).fit([["to", "Bonn"]] * 6, [["O", "B-city"]] * 6)
    tags = SeqloomTagger.load(tagger.save(tmp_path / "tagger"))
    assert tags.predict([["to", "Rome"]]) == tagger.predict([["to", "Rome"]])
    assert tags.classes_.tolist() == tagger.classes_.tolist()


def test_a_clone_has_the_parameters_and_nothing_learned(fitted: SeqloomClassifier) -> None:
    other = clone(fitted)
    assert other.get_params() == fitted.get_params() and other.set_params(lr=0.1).lr == 0.1
    with pytest.raises(NotFittedError):
        other.predict(TEXTS)


class Series:
    """What pandas gives: values that come as an array of objects."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> np.ndarray:
        return np.array([np.str_(one) for one in self.values], object)


@pytest.mark.parametrize("kind", [np.array, lambda texts: [np.str_(text) for text in texts], Series])
def test_texts_of_numpy_are_texts(fitted: SeqloomClassifier, kind: Any) -> None:
    np.testing.assert_array_equal(fitted.predict_proba(kind(TEXTS)), fitted.predict_proba(TEXTS))
    assert Inputs.of(kind(TEXTS)) == Inputs.of(TEXTS)
    data = [np.array(text.split()) for text in TEXTS]
    assert Inputs.of(data) == Inputs.of([text.split() for text in TEXTS])


@pytest.mark.slow
def test_an_estimator_learns_from_texts_labels_and_settings_of_numpy() -> None:
    quick = QUICK | {"steps": np.int64(3), "seed": np.int32(1), "dropout": np.float32(0.5), "size": np.str_("nano")}
    plain = QUICK | {"steps": 3, "seed": 1, "dropout": 0.5}
    given = [np.str_(text) for text in TEXTS], np.array([np.str_(label) for label in LABELS], object)
    found = SeqloomClassifier(np.str_("bag"), **quick).fit(*given).bundle_
    assert (
        found["model.safetensors"] == SeqloomClassifier("bag", **plain).fit(TEXTS, LABELS).bundle_["model.safetensors"]
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits() -> None:
    first, second = (SeqloomClassifier("bag", **QUICK | {"steps": 3}).fit(TEXTS, LABELS).bundle_ for _ in range(2))
    assert first["model.safetensors"] == second["model.safetensors"]


@pytest.mark.parametrize(
    ("given", "kind", "shape"),
    [
        (["a", "b"], "text", None),
        (np.array(["a", "b"]), "text", None),
        ([("a", "b")], "pair", None),
        ([["a", "b"]], "words", None),
        (np.ones((2, 3)), "vectors", (1, 3)),
        (np.ones((2, 4, 3)), "vectors", (4, 3)),
        ([np.ones((2, 3)), np.ones((5, 3))], "vectors", (2, 3)),
        (np.ones((2, 8, 8, 3), np.uint8), "picture", (8, 8, 3)),
    ],
)
def test_what_x_is_can_be_seen(given: Any, kind: str, shape: tuple[int, ...] | None) -> None:
    found = Inputs.of(given)
    assert found.kind.name == kind and len(found.values) == len(given)
    assert shape is None or found.values[0].shape == shape


@pytest.mark.parametrize(
    ("given", "said"),
    [("a text", "X must be a list"), ([], "X is empty"), ([{"a": 1}], "X has dict"), ([None], "X has NoneType")],
)
def test_what_no_model_reads_is_a_value_error(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Inputs.of(given)
    assert isinstance(caught.value, SeqloomError) and caught.value.fix


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["good", "", "bad"], "X[1]: the text is empty. Fix: remove it from X and y."),
        (["", "bad", " "], "X[0]: the text is empty, and 1 other value cannot be used either."),
        (["good", 3.5, "bad"], "X[1]: "),
        ([("a", "b"), ("c", ""), ("d", "e")], "X[1]: "),
    ],
)
@pytest.mark.parametrize("asked", ["fit", "predict"])
def test_a_value_that_cannot_be_read_is_a_value_error_with_its_place_in_x(
    fitted: SeqloomClassifier, given: Any, said: str, asked: str
) -> None:
    learning = clone(fitted)
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        learning.fit(given, ["a", "b", "a"]) if asked == "fit" else fitted.predict(given)
    assert "--" not in str(caught.value) and "jsonl" not in str(caught.value)


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'label_smoothing'"):
        SeqloomClassifier("bag", settings={"label_smothing": 0.1}, **QUICK).fit(TEXTS, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        {"epochs": 2, "steps": 3},
        {"lr": -1},
        {"tokenizer": "zzz"},
        {"dev_size": 2.0},
        {"heads": 3, "model": "lstm"},
        {"settings": {"batching": "streams"}},
        {"settings": {"char_encoder": "cnn", "tokenizer": "bpe"}},
    ],
)
def test_errors_of_parameters_name_arguments(parameters: dict[str, Any]) -> None:
    with pytest.raises(SeqloomError) as refused:
        SeqloomClassifier(**{"model": "bag", "size": "nano"} | parameters).fit(TEXTS, LABELS)
    assert not re.search(r"(?<![\w-])--[a-z]", str(refused.value)), refused.value


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", "bag"])
def test_a_fit_has_the_defaults_and_weights_of_a_run(model: str, tmp_path: Path) -> None:
    rows = [{"text": text.upper(), "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    length: dict[str, Any] = {} if model == "linear" else {"size": "nano", "epochs": 3}
    named: dict[str, Any] = {"model": model, "dev_size": 0.0, **length}
    run = seqloom.train(tmp_path / "rows.jsonl", test_size=0.0, out=tmp_path / "run", device="cpu", **named)
    own = seqloom.load(run.folder).model.state_dict()
    fitted = SeqloomClassifier(**named).fit([text.upper() for text in TEXTS], LABELS).model_.model.state_dict()
    assert own.keys() == fitted.keys() and all(torch.equal(own[name], fitted[name]) for name in own)


def test_several_labels_are_a_matrix() -> None:
    wanted = np.array([[number % 6 < 3, number % 2] for number in range(36)], int)
    fitted = SeqloomClassifier("bag", **QUICK | {"steps": 60}).fit(TEXTS, wanted)
    assert fitted.predict(TEXTS).shape == wanted.shape and set(np.unique(fitted.predict(TEXTS))) <= {0, 1}
    assert fitted.predict_proba(TEXTS).shape == wanted.shape and fitted.score(TEXTS, wanted) > 0.5


@pytest.mark.slow
def test_a_grid_a_cross_validation_and_a_pipeline() -> None:
    grid = GridSearchCV(SeqloomClassifier("bag", **QUICK), {"lr": [0.0, 0.05]}, cv=2).fit(TEXTS, LABELS)
    assert grid.best_params_ == {"lr": 0.05}
    assert (cross_val_score(SeqloomClassifier("bag", lr=0.05, **QUICK), TEXTS, LABELS, cv=2) > 0.8).all()
    data = load_iris()
    lined = make_pipeline(StandardScaler(), SeqloomClassifier("mlp", lr=0.02, **QUICK | {"steps": 60}))
    assert lined.fit(data.data, data.target).score(data.data, data.target) > 0.85


@pytest.mark.slow
def test_pictures_vectors_and_pairs_are_learned() -> None:
    digits = load_digits(n_class=3)
    images = digits.images / 16
    pictures = SeqloomClassifier(kind="picture", **QUICK | {"steps": 150}).fit(images, digits.target)
    assert pictures.model_.spec.schema.input.name == "picture" and pictures.score(images, digits.target) > 0.9
    numbers = SeqloomRegressor("mlp", **QUICK | {"steps": 150}).fit(digits.data / 16, digits.target)
    assert numbers.predict(digits.data / 16).shape == (len(digits.data),)
    assert numbers.score(digits.data / 16, digits.target) > 0.5
    pairs = [(text, "film") for text in TEXTS]
    assert SeqloomClassifier("bag", **QUICK).fit(pairs, LABELS).predict(pairs).shape == (36,)


@pytest.mark.slow
def test_a_tagger_answers_for_each_word_and_its_score_is_the_metric_of_the_task() -> None:
    sentences = [["flights", "to", city] for city in ("Bonn", "Rome", "Oslo")] * 8
    tags = [["O", "O", "B-city"]] * 24
    fitted = SeqloomTagger(lr=0.02, **QUICK | {"steps": 60}).fit(sentences, tags)
    assert fitted.predict(sentences[:2]) == tags[:2] and fitted.score(sentences, tags) == 1.0
    assert {"B-city", "O"} <= set(fitted.classes_)
    assert fitted.model_.config.encoder.input.kind() == "spelled"  # as every tagger of words
    assert fitted.predict([np.array(sentence) for sentence in sentences[:2]]) == tags[:2]
    assert len(cross_val_score(SeqloomTagger(**QUICK | {"steps": 2}), sentences, tags, cv=2)) == 2


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", [SeqloomClassifier, SeqloomRegressor])
def test_every_check_of_scikit_learn_is_passed(made: Any) -> None:
    done = check_estimator(made("mlp", size="nano", steps=150, dev_size=0.0), on_fail=None, on_skip=None)
    assert [(one["check_name"], one["exception"]) for one in done if one["status"] == "failed"] == []


@pytest.mark.slow
def test_without_scikit_learn_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None\nimport seqloom.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr and "pip install 'seqloom[sklearn]'" in done.stderr


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    SeqloomClassifier("bag", **QUICK | {"steps": 1}).fit(TEXTS, LABELS)
    assert list(tmp_path.iterdir()) == []
