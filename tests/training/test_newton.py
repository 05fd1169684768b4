"""`linear` solved: its features and optima are scikit-learn's, and its runs are runs like any other."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from seqloom.bundle import read_bundle
from seqloom.config.data import DataConfig
from seqloom.config.heads import ClassHeadConfig, LabelsHeadConfig, MappedHead, NumberHeadConfig
from seqloom.config.inputs import NgramsConfig, TfidfConfig, TokensConfig
from seqloom.config.training import AdamWConfig, CosineConfig, EpochsConfig, NewtonConfig
from seqloom.errors import ConfigError
from seqloom.experiments.doctor.diagnosis import OF_STEPS, diagnose
from seqloom.experiments.doctor.range_test import range_test
from seqloom.nn.inputs import Tfidf
from seqloom.nn.models import SequenceModel
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import sequence_model
from seqloom.training.devices import Alone, choose_device
from seqloom.training.events import Ended, Saved, Stepped, Validated
from seqloom.training.learning_rate import default_training
from seqloom.training.newton import NewtonPoint, NewtonProblem, ScoredTexts, Texts, newton_step
from seqloom.training.request import RunRequest, requested
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import train_run
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_summary import summary_of

VOCABULARY, TEXTS, CLASSES = 30, 60, 3
TOLERANCE = 1e-6


def drawn_texts() -> list[list[int]]:
    """Texts in which words repeat."""
    draw = random.Random(0)
    return [[6 + int(24 * draw.random() ** 3) for _ in range(draw.randint(1, 20))] for _ in range(TEXTS)]


def padded(texts: list[list[int]]) -> Padded:
    return Padded.stack([torch.tensor(text) for text in texts])


def sklearn_features(texts: list[list[int]]) -> Any:
    """What TfidfVectorizer makes of the same tokens, a column for each token."""
    known = [str(token) for token in range(VOCABULARY)]
    weigh = TfidfVectorizer(sublinear_tf=True, analyzer=lambda text: list(map(str, text)), vocabulary=known)
    return weigh.fit_transform(texts)


def fitted_input(texts: list[list[int]], order: int = 1, width: int = VOCABULARY) -> Tfidf:
    source = Tfidf(TfidfConfig(vocab_size=VOCABULARY, order=order, buckets=16), width)
    source.fit([padded(texts[:25]), padded(texts[25:])])
    return source


def test_the_features_are_those_of_scikit_learn() -> None:
    texts = drawn_texts()
    source = fitted_input(texts)
    torch.nn.init.eye_(source.table)
    np.testing.assert_allclose(
        source(padded(texts)).values.sum(dim=1).detach(), sklearn_features(texts).toarray(), atol=1e-6
    )


def test_a_text_is_of_length_one_whatever_stands_beside_it_and_unknown_ngrams_count_nothing() -> None:
    texts = drawn_texts()
    source = fitted_input(texts, order=2, width=VOCABULARY + 16)
    torch.nn.init.eye_(source.table)
    together = source(padded(texts)).values.sum(dim=1)
    np.testing.assert_allclose(together.norm(dim=1).detach(), 1, atol=1e-6)
    alone = source(padded(texts[3:4])).values.sum(dim=1)
    torch.testing.assert_close(alone[0], together[3])
    packed = Padded.of(
        torch.tensor([texts[3] + texts[4]]), segments=torch.tensor([[0] * len(texts[3]) + [1] * len(texts[4])])
    )
    values = source(packed).values[0]
    torch.testing.assert_close(values[: len(texts[3])].sum(dim=0), together[3])
    torch.testing.assert_close(values[len(texts[3]) :].sum(dim=0), together[4])
    assert not source(padded([[2, 2]])).values[..., :VOCABULARY].any(), "2 stands in no text"


class Answered:
    """As much of a task as a problem asks for."""

    def loss(self, model: Any, batch: Batch[Any, Any], state: Any) -> tuple[Loss, Any]:
        """The loss of a batch."""
        return model.loss(batch), state


def solved(
    head: MappedHead, targets: torch.Tensor, strength: float, texts: list[list[int]]
) -> tuple[np.ndarray, np.ndarray, float]:
    """The weights of each token [V,K], the bias, and the largest slope where Newton steps end."""
    source = fitted_input(texts, width=head.unmapped().answers)
    batch = Batch(padded(texts), targets, tuple(map(str, range(len(texts)))))
    found = Texts.of(source, [batch])
    problem = NewtonProblem(Answered(), ScoredTexts(head.unmapped().build(1).double()), found, strength)  # type: ignore[arg-type]
    count = head.unmapped().answers
    place = problem.at(NewtonPoint(torch.zeros(len(found.rows), count), torch.zeros(count)))
    for _ in range(30):
        place = newton_step(problem, place)
    weights = np.zeros((VOCABULARY, count))
    weights[found.rows] = place.point.weights
    return weights, place.point.bias.numpy(), place.gradient.largest()


@pytest.mark.slow
@pytest.mark.parametrize("strength", [10.0, 1.0, 0.05])
@pytest.mark.parametrize("balanced", [False, True])
def test_classes_are_solved_as_scikit_learn_solves_them(strength: float, balanced: bool) -> None:
    texts, draw = drawn_texts(), random.Random(1)
    targets = torch.tensor([(max(text) + draw.randint(0, 2)) % CLASSES for text in texts])
    share = (TEXTS / CLASSES / np.bincount(targets)).tolist()
    head = ClassHeadConfig(num_classes=CLASSES, class_weights=tuple(share) if balanced else ())
    weights, bias, slope = solved(head, targets, strength, texts)
    model = LogisticRegression(C=1 / strength, tol=1e-9, max_iter=10_000, class_weight="balanced" if balanced else None)
    model.fit(sklearn_features(texts), targets.numpy())
    assert slope < TOLERANCE
    sizes = np.array(share if balanced else [1.0] * CLASSES)[targets]

    def objective(weights: np.ndarray, bias: np.ndarray) -> float:
        scores = torch.from_numpy(sklearn_features(texts) @ weights + bias)
        losses = torch.nn.functional.cross_entropy(scores, targets, reduction="none").numpy()
        return float(sizes @ losses + strength / 2 * (weights**2).sum())

    assert objective(weights, bias) <= objective(model.coef_.T, model.intercept_) * (1 + 1e-6)
    np.testing.assert_allclose(weights, model.coef_.T, atol=2e-3 / strength**0.5)
    np.testing.assert_allclose(bias - bias.mean(), model.intercept_ - model.intercept_.mean(), atol=5e-3)


@pytest.mark.slow
def test_several_labels_are_solved_one_by_one() -> None:
    texts = drawn_texts()
    targets = torch.tensor([[float(token in text) for token in (7, 9)] for text in texts])
    weights, bias, slope = solved(LabelsHeadConfig(num_labels=2), targets, 0.5, texts)
    assert slope < TOLERANCE
    for label in range(2):
        model = LogisticRegression(C=2.0, tol=1e-9, max_iter=10_000).fit(sklearn_features(texts), targets[:, label])
        np.testing.assert_allclose(weights[:, label], model.coef_[0], atol=2e-3)
        np.testing.assert_allclose(bias[label], model.intercept_[0], atol=2e-3)


def test_numbers_are_solved_as_ridge_regression() -> None:
    texts = drawn_texts()
    targets = torch.tensor([[float(len(text)), float(text[0])] for text in texts])
    weights, bias, slope = solved(NumberHeadConfig(size=2), targets, 2.0, texts)  # 2 |error|^2 / 2 is alpha 1
    model = Ridge(alpha=1.0).fit(sklearn_features(texts), targets.numpy())
    assert slope < 1e-4
    np.testing.assert_allclose(weights, model.coef_.T, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(bias, model.intercept_, rtol=1e-3)


def topics(rows: int, seed: int) -> list[tuple[str, str]]:
    """Long texts in which whatever was said is said again and again, and one word in eight tells the topic."""
    draw = random.Random(seed)
    texts = []
    for _ in range(rows):
        topic, words = draw.randrange(6), list[str]()
        for _ in range(draw.randint(40, 160)):
            if words and draw.random() < 0.5:
                words.append(draw.choice(words))
            elif draw.random() < 0.12:
                words.append(f"of{topic}w{int(40 * draw.random() ** 2)}")
            else:
                common = f"any{int(3_000 * draw.random() ** 3)}"
                words.append(common if draw.random() < 0.8 else f"of{draw.randrange(6)}w1")
        texts.append((" ".join(words), f"topic{topic}"))
    return texts


def written(folder: Path, texts: list[tuple[str, str]], name: str) -> str:
    path = folder / name
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in texts), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    folder = tmp_path_factory.mktemp("topics")
    train, dev = written(folder, topics(300, 0), "train.csv"), written(folder, topics(150, 1), "dev.csv")
    return DataConfig(train=(train,), dev=(dev,))


def resolved(data: DataConfig, model: str = "linear", **training: Any) -> Resolved:
    request = RunRequest(model=model, size="nano", training=training)
    return resolve(data, request, cache=Path(data.train[0]).parent / "cache")


def reports_of(out: Path, found: Resolved) -> list[Any]:
    return list(train_run(out, found, device=choose_device("cpu", "float32"), workers=0))


@pytest.mark.slow
def test_linear_is_as_good_as_scikit_learn_on_long_texts(data: DataConfig, tmp_path: Path) -> None:
    """Raw counts and steps by batches were 20 points worse: words that are said again drown the others."""
    reports = reports_of(tmp_path / "run", resolved(data))
    ours = reports[-1].metrics["accuracy"]
    train, dev = topics(300, 0), topics(150, 1)
    weigh = TfidfVectorizer(sublinear_tf=True)
    features, others = weigh.fit_transform([text for text, _ in train]), weigh.transform([text for text, _ in dev])
    scores = []
    for strength in (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003):
        model = LogisticRegression(C=1 / strength, max_iter=1_000).fit(features, [label for _, label in train])
        scores.append(model.score(others, [label for _, label in dev]))
    assert ours >= max(scores) - 0.01
    looks = [report.metrics["accuracy"] for report in reports if isinstance(report, Validated)]
    assert len(looks) == 7 and ours == max(looks), "the best strength of all is shipped"


@pytest.mark.slow
def test_its_idf_and_its_strengths_are_kept_with_the_model(data: DataConfig, tmp_path: Path) -> None:
    reports_of(tmp_path / "run", resolved(data))
    assert float(read_bundle(tmp_path / "run" / "model").weights["encoder.input.idf"].max()) > 2
    assert isinstance(RunFolder(tmp_path / "run").config().training.optimizer, NewtonConfig)
    found = summary_of(tmp_path / "run")
    assert found.chosen is not None and found.l2 == NewtonConfig().l2[found.chosen.epoch - 1]
    told = f"{found.l2:g}, the best of 3, 1, 0.3, 0.1, 0.03, 0.01, 0.003 on the dev set"
    assert f"| L2 strength | {told} |" in (tmp_path / "run" / "card.md").read_text()
    assert f"L2 strength: {told}." in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_the_strength_is_an_option(data: DataConfig) -> None:
    _, request = requested(data.train, {"model": "linear", "optimizer": "newton", "l2": "0.3"})
    assert request.training["optimizer"] == NewtonConfig(l2=(0.3,))
    assert requested(data.train, {"optimizer": "newton", "l2": 0.3})[1].training == request.training
    assert resolve(data, request).config.training.strengths == (0.3,)
    with pytest.raises(ConfigError, match=r"--l2 'much'.*such as 0\.3"):
        requested(data.train, {"optimizer": "newton", "l2": "much"})
    with pytest.raises(ConfigError, match=r"--l2 is a setting of newton.*add --optimizer newton"):
        requested(data.train, {"model": "linear", "l2": "0.3"})


@pytest.mark.slow
def test_every_seed_gives_the_same_weights(data: DataConfig, tmp_path: Path) -> None:
    for seed in (0, 1):
        reports_of(tmp_path / str(seed), resolved(data, seed=seed, duration=EpochsConfig(epochs=2)))
    one, other = (read_bundle(tmp_path / str(seed) / "model").weights for seed in (0, 1))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_run_that_was_stopped_between_two_steps_ends_with_the_same_bytes(data: DataConfig, tmp_path: Path) -> None:
    found = resolved(data, save_every=1, duration=EpochsConfig(epochs=3))
    reports_of(tmp_path / "whole", found)
    for last in (2, 4, 5):  # inside a strength, and behind one
        for report in train_run(tmp_path / "cut", found, device=choose_device("cpu", "float32"), workers=0):
            if isinstance(report, Saved) and report.step >= last:
                break
    reports_of(tmp_path / "cut", found)
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


@pytest.mark.slow
def test_a_strength_ends_where_the_objective_is_flat(data: DataConfig, tmp_path: Path) -> None:
    found = resolved(data, optimizer=NewtonConfig(l2=(1.0,), tolerance=1e-4))
    reports = reports_of(tmp_path / "run", found)
    norms = [report.grad_norm for report in reports if isinstance(report, Stepped)]
    assert 2 <= len(norms) < 20 and norms[-1] < norms[0] / 10


@pytest.mark.slow
def test_settings_of_steps_take_steps(data: DataConfig, tmp_path: Path) -> None:
    for named in ({"lr": 0.05}, {"optimizer": AdamWConfig()}):
        assert isinstance(resolved(data, **named).config.training.optimizer, AdamWConfig)
    found = resolved(data, lr=0.05, duration=EpochsConfig(epochs=2))
    assert isinstance(reports_of(tmp_path / "run", found)[-1], Ended)
    assert float(read_bundle(tmp_path / "run" / "model").weights["encoder.input.idf"].max()) > 2


@pytest.mark.slow
def test_what_is_solved_starts_from_a_model_that_learned_at_any_rate(data: DataConfig, tmp_path: Path) -> None:
    by_steps = resolved(data, optimizer=AdamWConfig(), duration=EpochsConfig(epochs=1))
    reports_of(tmp_path / "by-steps", by_steps)
    assert by_steps.config.training.lr < 1
    found = resolved(data, init=str(tmp_path / "by-steps"), seed=1)
    assert found.init is not None and found.config.training.strengths and found.config.training.lr == 1
    assert isinstance(reports_of(tmp_path / "solved", found)[-1], Ended)


def test_without_a_dev_part_the_usual_strength_is_solved(data: DataConfig) -> None:
    prepared = resolved(data).prepared
    bare = prepared._replace(splits=prepared.splits | {"dev": prepared.splits["dev"][:0]})
    assert default_training(bare, "linear", "nano", {})["optimizer"].l2 == (1.0,)
    one = default_training(bare, "linear", "nano", {"optimizer": NewtonConfig(l2=(0.1,))})
    assert one["optimizer"].l2 == (0.1,) and one["duration"].epochs == 1
    with pytest.raises(ConfigError, match="newton has 7 strengths to choose from"):
        default_training(bare, "linear", "nano", {"optimizer": NewtonConfig()})


def test_pairs_of_words_are_for_short_texts(data: DataConfig, tmp_path: Path) -> None:
    texts = [(" ".join(text.split()[:30]), label) for text, label in topics(60, 0)]
    short = resolved(DataConfig(train=(written(tmp_path, texts, "short.csv"),), dev=data.dev))
    orders = [one.config.model.encoder.input.order for one in (short, resolved(data))]  # type: ignore[union-attr]
    assert orders == [2, 1]


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda data: resolved(data, "cnn", optimizer=NewtonConfig()), "newton trains only the recipe linear"),
        (lambda data: resolved(data, ema=0.9), "ema cannot be used with newton"),
        (lambda data: resolved(data, freeze=("*.bias",)), "freeze cannot be used with newton"),
        (lambda data: resolved(data, average_checkpoints=3), "average_checkpoints cannot be used with newton"),
        (lambda data: resolved(data, optimizer=NewtonConfig(), lr=0.1), "lr cannot be used with newton"),
        (
            lambda data: resolved(data, optimizer=NewtonConfig(), schedule=CosineConfig()),
            "schedule cannot be used with newton",
        ),
    ],
)
def test_what_newton_cannot_do_is_refused(refused: Callable[[DataConfig], Any], said: str, data: DataConfig) -> None:
    with pytest.raises(ConfigError, match=said):
        refused(data)


class Two(Alone):
    """Two processes, as far as anybody asks."""

    count = 2


def test_several_processes_are_refused_in_one_sentence(data: DataConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="newton runs in one process, but there are 2"):
        list(train_run(tmp_path / "run", resolved(data), ranks=Two(), device=choose_device("cpu", "float32")))


@pytest.mark.slow
def test_nobody_is_told_to_change_the_rate_of_what_is_solved(data: DataConfig, tmp_path: Path) -> None:
    found = resolved(data)
    reports_of(tmp_path / "run", found)
    told = diagnose(tmp_path / "run")
    assert told.long_enough and not any("80 steps" in line for line in told.messages)
    assert not [advice for finding in told.findings for advice in finding.advice if advice.flag in OF_STEPS]
    with pytest.raises(ConfigError, match="newton has no learning rate to find"):
        range_test(found.task, torch.nn.Linear(1, 1), found.config.training, [], choose_device("cpu", "float32"))


def test_a_model_folder_of_counts_keeps_its_numbers() -> None:
    """A configuration of before has no TF-IDF in it, and reads as it did."""
    config = sequence_model("linear", inputs=TokensConfig(vocab_size=9), head=ClassHeadConfig(num_classes=2))
    assert isinstance(config.encoder.input, TfidfConfig)
    counted = NgramsConfig(vocab_size=9)
    old = sequence_model("linear", inputs=counted, head=ClassHeadConfig(num_classes=2))
    assert old.encoder.input == counted
    model = old.build()
    assert isinstance(model, SequenceModel) and "encoder.input.idf" not in model.state_dict()
