"""Claims about labeling: suggestions are those of logistic regression, and doubt is asked about before certainty."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.errors import ConfigError
from seqloom.events import finished
from seqloom.search import labeling
from seqloom.search.decisions import MODEL, PERSON, WritableDecisions
from seqloom.search.documents import TextFile, TextRows
from seqloom.search.labeling import (
    NONE,
    STRENGTH,
    LabeledTexts,
    Labeling,
    LabelingOptions,
    NeighborSuggester,
    active_order,
    export_columns,
    fit_head,
    random_order,
    read_examples,
    start_labeling,
)
from seqloom.search.vectors import HashedWordVectors, unit_vectors


def ground(rows: int, seed: int = 0, width: int = 16, apart: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of two classes along a line, among noise, and the classes."""
    draws = np.random.default_rng(seed)
    truth = draws.integers(2, size=rows)
    vectors = draws.standard_normal((rows, width))
    vectors[:, 0] += apart * (2 * truth - 1)
    return unit_vectors(vectors), truth


def session(folder: Path, vectors: np.ndarray, examples: LabeledTexts = NONE, **how: Any) -> Labeling:
    names = [str(row) for row in range(len(vectors))]
    given = TextRows([f"text {row}" for row in range(len(vectors))], names, "")
    decisions = WritableDecisions(folder / "log.jsonl", given.by_name)
    return Labeling(given, vectors, decisions, labels=["0", "1"], examples=examples, options=LabelingOptions(**how))


def some_examples(vectors: np.ndarray, truth: np.ndarray, rows: Sequence[int]) -> LabeledTexts:
    return LabeledTexts([f"text {row}" for row in rows], [str(truth[row]) for row in rows], vectors[rows])


def answered(work: Labeling, truth: np.ndarray, count: int) -> list[int]:
    """The rows that were asked about, in order."""
    asked = []
    for _ in range(count):
        question = work.next()
        assert question is not None
        work.label(question, np.str_(truth[question.row]))
        asked.append(question.row)
    return asked


@pytest.mark.parametrize("labels", [2, 4])
def test_no_other_head_fits_better(labels: int) -> None:
    draws = np.random.default_rng(labels)
    vectors, classes = unit_vectors(draws.standard_normal((60, 8))), draws.integers(labels, size=60)
    head = fit_head(vectors, classes, labels)
    errors = head.probabilities(vectors) - np.eye(labels)[classes]  # the loss is convex: a slope of zero is its lowest
    assert vectors.T @ errors / 60 + head.weights / (STRENGTH * 60) == pytest.approx(0, abs=1e-4)
    assert errors.mean(axis=0) == pytest.approx(0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [2, 4])
def test_the_head_is_the_logistic_regression_of_scikit_learn(labels: int) -> None:
    from sklearn.linear_model import LogisticRegression

    draws = np.random.default_rng(labels)
    vectors, classes = unit_vectors(draws.standard_normal((60, 8))), draws.integers(labels, size=60)
    strength = STRENGTH * (2 if labels == 2 else 1)  # theirs has one column for two labels, and half the penalty
    theirs = LogisticRegression(C=strength, tol=1e-8, max_iter=1_000).fit(vectors, classes)
    ours = fit_head(vectors, classes, labels)
    assert ours.probabilities(vectors) == pytest.approx(theirs.predict_proba(vectors), abs=1e-3)


def test_neighbors_suggest_the_label_of_their_own_side_and_are_never_quite_sure() -> None:
    vectors, truth = ground(60, apart=6)
    found = NeighborSuggester(vectors[:40], truth[:40], 2).probabilities(vectors[40:])
    assert found.sum(axis=1) == pytest.approx(1)
    assert (found.argmax(axis=1) == truth[40:]).all() and (found < 1).all() and (found > 0).all()


@pytest.mark.slow
def test_neighbors_vote_in_blocks_as_they_do_all_at_once_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, truth = ground(2_000)
    neighbors = NeighborSuggester(vectors[:500], truth[:500], 3)
    at_once, peaks = neighbors.probabilities(vectors), list[int]()
    monkeypatch.setattr(labeling, "PRODUCTS", 50_000)
    for rows in (1_000, 2_000):
        tracemalloc.start()
        found = neighbors.probabilities(vectors[:rows])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert found == pytest.approx(at_once, abs=1e-6)
    assert max(peaks) < 500 * 2_000 * 4 / 2  # half of what the products of all would take
    assert neighbors.probabilities(vectors[:0]).shape == (0, 3)


def test_confidence_is_about_the_share_that_is_right() -> None:
    vectors, truth = ground(3_000, width=24)
    found = fit_head(vectors[:100], truth[:100], 2).probabilities(vectors[100:])
    right = (found.argmax(axis=1) == truth[100:]).mean()
    assert abs(found.max(axis=1).mean() - right) < 0.08


def test_active_order_asks_about_the_most_doubtful_first_and_never_twins_together() -> None:
    vectors = unit_vectors(np.array([[1, 0], [1, 0.01], [0, 1], [-1, 0], [1, 0.02]]))
    doubts = np.array([0.5, 0.49, 0.3, 0.2, 0.48])
    draws = np.random.default_rng(0)
    assert active_order(vectors, doubts, np.arange(5), 3, draws) == [0, 2, 3]
    assert active_order(vectors, doubts, np.arange(5), 9, draws) == [0, 2, 3, 1, 4]  # twins come last, but they come
    assert active_order(vectors, doubts, np.array([3, 4]), 1, draws) == [4]


@pytest.mark.parametrize("order", [active_order, random_order])
def test_an_order_gives_every_free_row_once(order: Any) -> None:
    vectors, _ = ground(30)
    free = np.arange(0, 30, 2)
    assert sorted(order(vectors, np.full(30, 0.5), free, 99, np.random.default_rng(1))) == free.tolist()
    assert order(vectors, np.zeros(30), np.array([], int), 3, np.random.default_rng(1)) == []


@pytest.mark.slow
def test_active_order_learns_a_line_between_two_classes_from_fewer_labels_than_random_order(tmp_path: Path) -> None:
    vectors, _ = ground(1_200, apart=0)
    truth = (vectors[:, 0] > 0).astype(int)
    areas: dict[str, list[float]] = {"active": [], "random": []}
    for seed in range(4):
        first = np.random.default_rng(seed).choice(800, 8, replace=False)
        examples = some_examples(vectors, truth, first.tolist())
        for order, found in areas.items():
            folder = tmp_path / f"{order}{seed}"
            folder.mkdir()
            work = session(folder, vectors[:800], examples, order=order, seed=seed)
            accuracies = []
            for _ in range(8):
                answered(work, truth, 8)
                right = work.fit().probabilities(vectors[800:]).argmax(axis=1) == truth[800:]
                accuracies.append(right.mean())
            found.append(float(np.mean(accuracies)))
    assert np.mean(areas["active"]) > np.mean(areas["random"]) + 0.01


def test_work_that_was_stopped_resumes_with_the_same_questions(tmp_path: Path) -> None:
    vectors, truth = ground(50)
    (tmp_path / "whole").mkdir()
    wanted = answered(session(tmp_path / "whole", vectors, seed=3), truth, 12)
    (tmp_path / "parts").mkdir()
    found = [row for _ in range(12) for row in answered(session(tmp_path / "parts", vectors, seed=3), truth, 1)]
    assert found[:8] == wanted[:8]  # one question at a time, up to here
    assert len(set(found)) == 12


def test_every_row_is_asked_about_once_and_then_there_is_no_question(tmp_path: Path) -> None:
    vectors, truth = ground(20)
    work = session(tmp_path, vectors)
    assert sorted(answered(work, truth, 20)) == list(range(20))
    assert work.next() is None
    assert session(tmp_path, vectors).next() is None


def test_texts_of_examples_and_rows_without_text_are_not_asked_about(tmp_path: Path) -> None:
    given = TextRows(["good film", "", "bad film", "so so"], list("abcd"), "")
    examples = LabeledTexts(["GOOD film", "bad  film"], ["good", "bad"], NONE.vectors)
    work = finished(start_labeling(given, WritableDecisions(tmp_path / "log", given.by_name), examples=examples))
    assert isinstance(work, Labeling)
    assert work.free.tolist() == [3] and work.labels == ["bad", "good"]
    question = work.next()
    assert question is not None and question.suggested in ("good", "bad")


def test_suggestions_that_are_accepted_together_are_one_action_and_teach_nothing(tmp_path: Path) -> None:
    vectors, truth = ground(60, apart=6)
    work = session(tmp_path, vectors, some_examples(vectors, truth, range(20)))
    before = work.fit().probabilities(vectors)
    count = work.accept_above(0.9)
    sure = before[work.open].max(axis=1) >= 0.9
    assert count == sure.sum() > 5
    assert {one.by for one in work.decisions.labeled.values()} == {MODEL}
    assert work.fit().probabilities(vectors) == pytest.approx(before)
    assert len(work.free) == 40 - count
    action = work.undo()
    assert action is not None and len(action.rows) == count and not work.decisions.current


def test_an_undone_answer_is_asked_again_at_once(tmp_path: Path) -> None:
    vectors, truth = ground(20)
    work = session(tmp_path, vectors, order="random")
    asked = answered(work, truth, 3)
    work.undo()
    question = work.next()
    assert question is not None and question.row == asked[-1]
    work.skip(question)
    assert work.decisions.current[str(asked[-1])].label is None and len(work.decisions.labeled) == 2


def test_an_export_has_the_rows_with_a_label_and_who_gave_it(tmp_path: Path) -> None:
    vectors, truth = ground(10)
    work = session(tmp_path, vectors)
    (asked,) = answered(work, truth, 1)
    columns, wanted = export_columns(work.decisions, work.given.names, "what")
    assert np.flatnonzero(wanted).tolist() == [asked]
    assert columns["what"].values[asked] == str(truth[asked]) and columns["labeled_by"].values[asked] == PERSON


@pytest.mark.parametrize("confidence", [0, -1, 1.5, float("nan")])
def test_a_confidence_that_means_nothing_is_refused(tmp_path: Path, confidence: float) -> None:
    vectors, truth = ground(10)
    with pytest.raises(ConfigError, match="above 0 and up to 1"):
        session(tmp_path, vectors, some_examples(vectors, truth, range(6))).accept_above(confidence)


def test_nothing_is_accepted_before_anything_is_learned(tmp_path: Path) -> None:
    work = session(tmp_path, ground(10)[0])
    with pytest.raises(ConfigError, match="nothing has been learned"):
        work.accept_above(0.9)
    question = work.next()
    assert question is not None and question.suggested is None
    with pytest.raises(ConfigError, match="unknown label 'gut'"):
        work.label(question, "gut")


def test_texts_that_share_rare_words_are_nearer_than_texts_that_share_common_ones() -> None:
    texts = ["the marmot sleeps", "a marmot eats", "the train is late", "the bus is late", "the end", "the sea"]
    vectors = HashedWordVectors(texts).embed([*texts, ""])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[4] > 0
    assert not vectors[-1].any()


def test_examples_are_the_rows_that_have_a_text_and_a_label(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label,other\ngood,1,x\n,0,x\nbad,,x\nfine,1,x\n")
    found = read_examples(TextFile(tmp_path / "a.csv"))
    assert (found.texts, found.labels, found.distinct_labels) == (["good", "fine"], ["1", "1"], ["1"])
    assert read_examples(TextFile(tmp_path / "a.csv"), "other").distinct_labels == ["x"]
    with pytest.raises(ConfigError, match="Did you mean 'label'"):
        read_examples(TextFile(tmp_path / "a.csv"), "lable")
    (tmp_path / "b.csv").write_text("text,what\na,1\n")
    with pytest.raises(ConfigError, match="--target COLUMN"):
        read_examples(TextFile(tmp_path / "b.csv"))
