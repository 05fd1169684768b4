"""Claims about evaluation: metrics match their definitions, and qrels are read in the formats of BEIR and TREC."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from seqloom.errors import ConfigError, RejectedError
from seqloom.events import Progress, finished
from seqloom.search.evaluation import SearchScores, evaluate_queries, ndcg, read_qrels, recall, reciprocal_rank

GAINS = st.lists(st.integers(0, 3), min_size=2, max_size=30).filter(any)


@given(GAINS, st.integers(1, 12))
def test_ndcg_is_that_of_scikit_learn(gains: list[int], cut: int) -> None:
    names = [str(number) for number in range(len(gains))]
    expected = ndcg_score([gains], [[-number for number in range(len(gains))]], k=cut)
    assert ndcg(names, dict(zip(names, gains, strict=True)), cut) == pytest.approx(expected, abs=1e-12)


@given(GAINS, st.integers(1, 12))
def test_recall_and_reciprocal_rank_are_those_of_their_definitions(gains: list[int], cut: int) -> None:
    names = [str(number) for number in range(len(gains))]
    known = dict(zip(names, gains, strict=True))
    assert recall(names, known, cut) == sum(gain > 0 for gain in gains[:cut]) / sum(gain > 0 for gain in gains)
    first = next(rank for rank, gain in enumerate(gains, 1) if gain > 0)
    assert reciprocal_rank(names, known, cut) == (1 / first if first <= cut else 0)


def test_the_best_order_has_an_ndcg_of_one_and_none_has_more() -> None:
    gains = {"a": 3, "b": 1, "c": 0}
    orders = {order: ndcg(list(order), gains) for order in ("abc", "acb", "bac", "bca", "cab", "cba")}
    assert orders["abc"] == 1 == max(orders.values())


def test_figures_are_means_over_queries_that_have_a_relevant_document() -> None:
    judgments = {"1": {"a": 1}, "2": {"b": 1}, "3": {"c": 0}}
    steps = list[Progress]()
    found = finished(
        evaluate_queries(lambda _: ["a", "x"], {"1": "one", "2": "two", "3": "three"}, judgments), steps.append
    )
    assert [(step.done, step.total) for step in steps] == [(1, 2), (2, 2)]
    assert found.queries == 2
    assert found.metrics == {"ndcg@10": 0.5, "recall@100": 0.5, "mrr@10": 0.5}
    low, high = found.intervals["ndcg@10"]
    assert low <= 0.5 <= high


@pytest.mark.parametrize(
    "text",
    ["query-id\tcorpus-id\tscore\n1\tb c\t2\n2\td\t0\n", "1\tb c\t2\n2\td\t0\n", "1\t0\tb c\t2\n2\tQ0\td\t0\n"],
)
def test_judgments_are_read_as_beir_and_trec_write_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "qrels.tsv").write_text(text)
    assert read_qrels(tmp_path / "qrels.tsv") == {"1": {"b c": 2}, "2": {"d": 0}}


@pytest.mark.parametrize(("text", "line"), [("1\ta\t1\n2\tb\n", 2), ("1\ta\t--5\n", 1), ("1\ta\t1x\n2\tb\t1\n", 1)])
def test_a_line_that_is_no_judgment_is_refused_with_its_place(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "qrels.tsv").write_text(text)
    with pytest.raises(RejectedError, match=rf"qrels\.tsv:{line}: qrels\.line"):
        read_qrels(tmp_path / "qrels.tsv")


def test_a_judged_query_that_is_missing_is_refused_before_any_search() -> None:
    def answer(text: str) -> list[str]:
        raise AssertionError("asked")

    with pytest.raises(ConfigError, match="'7'"):
        list(evaluate_queries(answer, {"1": "one"}, {"7": {"a": 1}}))


def test_intervals_hold_the_figures() -> None:
    draws = np.random.default_rng(0)
    names = [str(number) for number in range(40)]
    judgments = {name: {draws.choice(names): 1} for name in names}
    found = finished(evaluate_queries(lambda _: names[:20], {name: name for name in names}, judgments))
    assert isinstance(found, SearchScores)
    assert all(low <= found.metrics[name] <= high for name, (low, high) in found.intervals.items())
