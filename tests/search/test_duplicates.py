"""Claims about duplicates: what was planted is found, in any order of the rows, in memory that grows with them."""

import importlib.util
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from search_common import WordTable
from seqloom.data.checks.minhash import clusters, members
from seqloom.errors import ConfigError, DataError
from seqloom.events import Progress, finished
from seqloom.search.duplicates import Duplicates, dedupe, find_duplicates
from seqloom.search.similarity import ByMeaning, ByText, Histogram, Measure, Pairs, concatenate_pairs, features
from seqloom.search.vectors import unit_vectors

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "dedupe.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_dedupe", BENCHMARK)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.WORDS = 3_000  # made in a moment
    return module


class Table:
    """A model that knows the vectors of texts that are numbers."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self.vectors[int(text)] for text in texts])


def found_pairs(measure: Measure, least: float) -> Pairs:
    return finished(measure.pairs(least))


def partition(found: Duplicates) -> set[frozenset[int]]:
    return {
        frozenset(np.flatnonzero(found.clusters == number).tolist()) for number in range(1, found.clusters.max() + 1)
    }


@pytest.mark.slow
def test_planted_duplicates_are_found_and_near_misses_are_not(benchmark: ModuleType) -> None:
    texts, truth = benchmark.planted(1_500, seed=3)
    found = dedupe(texts)
    recall, precision = benchmark.scores(found.clusters, truth)
    assert found.valley_found and recall >= 0.98 and precision >= 0.98
    assert (
        max(benchmark.scores(np.zeros(len(texts), int), truth)[0], benchmark.scores(np.ones(len(texts), int), truth)[1])
        < 0.02
    )


@pytest.mark.slow
def test_memory_grows_with_the_rows_and_not_with_their_square(benchmark: ModuleType) -> None:
    peaks = []
    for rows in (2_000, 8_000):
        texts, _ = benchmark.planted(rows)
        tracemalloc.start()
        dedupe(texts, threshold=0.7)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 5 * peaks[0]


def test_a_file_of_one_pattern_keeps_a_few_pairs_of_each_row() -> None:
    texts = [f"Order number {row * 7919 % 100_003} was shipped on day {row % 28}" for row in range(600)]
    pairs = found_pairs(ByText(texts), 0.5)
    assert 0 < len(pairs.ones) <= 20 * len(texts)  # of 179,700


def test_the_pairs_of_a_measure_are_the_same_each_time() -> None:
    measure = ByText(["the cat sat", "The cat sat.", "the cat sits"])
    first, again = found_pairs(measure, 0.5), found_pairs(measure, 0.5)
    assert [part.tolist() for part in first] == [part.tolist() for part in again]
    assert len(measure.runs) == measure.starts[-1]


@pytest.mark.slow
def test_the_order_of_the_rows_changes_no_cluster(benchmark: ModuleType) -> None:
    texts, _ = benchmark.planted(400, seed=5)
    order = np.random.default_rng(0).permutation(len(texts))
    straight, mixed = dedupe(texts, threshold=0.7), dedupe([texts[row] for row in order], threshold=0.7)
    assert partition(straight) == {frozenset(order[list(group)].tolist()) for group in partition(mixed)}


@pytest.mark.slow
def test_every_pair_that_letters_make_similar_is_found_with_its_jaccard_similarity(benchmark: ModuleType) -> None:
    texts, _ = benchmark.planted(300, seed=1)
    sets = [features(text) for text in texts]
    exact = {(a, b): len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in combinations(range(len(texts)), 2)}
    pairs = found_pairs(ByText(texts), 0.6)
    found = dict(zip(zip(pairs.ones.tolist(), pairs.others.tolist(), strict=True), pairs.similarities, strict=True))
    assert found == {pair: pytest.approx(exact[pair]) for pair in found}
    wanted = {pair for pair, similarity in exact.items() if similarity >= 0.7}
    assert len(wanted - found.keys()) <= 0.02 * len(wanted)


@pytest.mark.parametrize("other", ["THE CAT, SAT!", "sat the cat", "  the\tcat -- sat ", "ｔｈｅ cat sat"])
def test_case_marks_and_the_order_of_words_change_nothing(other: str) -> None:
    found = dedupe(["the cat sat", "no such thing at all", other])
    assert found.clusters.tolist() == [1, 0, 1]
    assert found.similarities[2] == 1


def test_texts_that_are_empty_or_hold_no_words_are_no_duplicates_of_one_another() -> None:
    found = dedupe(["", "  ", "!!!", "???", "", "!!!"])
    assert found.clusters.tolist() == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("texts", [[], [""], ["one"], ["", "one"]])
def test_too_few_texts_are_no_fault(texts: list[str]) -> None:
    for model in (None, WordTable()):
        assert dedupe(texts, model=model).clusters.tolist() == [0] * len(texts)


def test_rows_are_together_by_meaning_exactly_where_a_chain_of_cosines_joins_them() -> None:
    draws = np.random.default_rng(2)
    centers = draws.standard_normal((12, 8))
    vectors = unit_vectors(centers[draws.integers(12, size=60)] + 0.25 * draws.standard_normal((60, 8)))
    cosines = vectors @ vectors.T
    near = cosines >= 0.9
    for _ in range(6):
        near = (near.astype(int) @ near.astype(int)) > 0  # chains of twice the length
    wanted = {frozenset(np.flatnonzero(row).tolist()) for row in near if row.sum() > 1}
    found = dedupe([str(row) for row in range(60)], model=Table(vectors), threshold=0.9)
    assert partition(found) == wanted and len(wanted) > 2
    rows = np.flatnonzero(found.clusters)
    assert found.similarities[rows] == pytest.approx(cosines[rows, found.representatives[rows]], abs=1e-6)


@pytest.mark.parametrize("graph_from", [0, 1_000])
def test_a_cluster_of_more_texts_than_neighbors_are_kept_is_one(graph_from: int) -> None:
    draws = np.random.default_rng(6)
    groups = np.repeat(np.eye(2, 12).repeat(3, axis=0) + 0.1 * draws.standard_normal((6, 12)), 10, axis=0)
    vectors = unit_vectors(groups + 0.001 * draws.standard_normal((60, 12)))
    measure = ByMeaning([str(row) for row in range(60)], Table(vectors), graph_from)
    near = found_pairs(measure, 0.85)
    assert len(set(clusters(60, near.ones, near.others).tolist())) > 2  # the nearest of each are not enough
    near = concatenate_pairs([near, finished(measure.bridges(near, 0.85))])
    assert (near.similarities >= 0.85 - 1e-6).all()
    wanted = clusters(60, *np.nonzero(vectors @ vectors.T >= 0.85))
    assert clusters(60, near.ones, near.others).tolist() == wanted.tolist() and len(set(wanted.tolist())) == 2


@pytest.mark.slow
def test_duplicates_of_a_template_are_found_wherever_they_stand_in_the_file() -> None:
    draws = np.random.default_rng(0)
    words = ["".join(draws.choice(["ba", "ko", "li", "mu", "ne", "pa", "ro", "si", "tu", "ve"], 3)) for _ in range(500)]
    texts = [" ".join([*words[:24], *draws.choice(words, 8)]) for _ in range(300)]
    texts += [f"{text[:-1]}x" for text in texts]
    order = draws.permutation(600)
    straight, mixed = dedupe(texts, threshold=0.9), dedupe([texts[row] for row in order], threshold=0.9)
    assert all(straight.clusters[:300]) and (straight.clusters[:300] == straight.clusters[300:]).all()
    assert partition(straight) == {frozenset(order[list(group)].tolist()) for group in partition(mixed)}


def test_a_graph_finds_the_neighbors_that_comparing_all_finds() -> None:
    draws = np.random.default_rng(4)
    centers = draws.standard_normal((100, 16))
    vectors = unit_vectors(np.repeat(centers, 3, axis=0) + 0.05 * draws.standard_normal((300, 16)))
    texts = [str(row) for row in range(300)]
    found = [found_pairs(ByMeaning(texts, Table(vectors), graph_from=at), 0.9) for at in (0, 1_000)]
    assert all((pairs.ones != pairs.others).all() for pairs in found)  # no text is its own neighbor
    walked, compared = (clusters(300, pairs.ones, pairs.others) for pairs in found)
    assert (walked == compared).all() and len(set(walked.tolist())) == 100


def test_the_representative_is_the_longest_text_or_the_one_nearest_to_the_center() -> None:
    found = dedupe(["a small brown dog", "something else", "a small brown dog!!", "a small browm dog"], threshold=0.6)
    assert found.representatives.tolist() == [2, -1, 2, 2]
    vectors = unit_vectors(np.array([[1, 0.3], [1, 0], [1, -0.1], [-1, 0]]))
    found = dedupe(list("0123"), model=Table(vectors), threshold=0.9)
    assert found.representatives.tolist() == [1, 1, 1, -1]


def test_members_of_clusters_are_all_rows_that_pairs_join() -> None:
    draws = np.random.default_rng(0)
    ones, others = draws.integers(50, size=(2, 30))
    leaders = clusters(50, ones, others)
    assert (leaders[ones] == leaders[others]).all() and (leaders <= np.arange(50)).all()
    alone = set(range(50)) - {*ones[ones != others].tolist(), *others[ones != others].tolist()}
    assert alone == set(range(50)) - {int(row) for group in members(leaders) for row in group}


@pytest.mark.parametrize("middle", [0.6, 0.68, 0.75])
def test_the_threshold_is_found_in_the_valley_between_two_hills(middle: float) -> None:
    draws = np.random.default_rng(1)
    low, high = draws.normal(middle - 0.1, 0.03, 3_000), draws.normal(middle + 0.12, 0.03, 900)
    peak = np.ones(5_000)  # equal texts
    valley = Histogram.of(np.concatenate([low, high, peak])).valley()
    assert valley is not None and abs(valley - middle) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("copied", "copies"), [(str.upper, 4), (lambda text: f"{text}!", 40)])
def test_planted_copies_of_unrelated_rows_are_told_apart_by_the_gap_between(
    benchmark: ModuleType, copied: Callable[[str], str], copies: int
) -> None:
    language = benchmark.Language(np.random.default_rng(copies))
    sentences = [language.some(9) for _ in range(60)]
    rows = [" ".join(one) for one in (*sentences, *(benchmark.near_miss(one, language) for one in sentences[:30]))]
    unrelated = max(bar for bar, count in enumerate(dedupe(rows).histogram.counts) if count)
    found = dedupe([*rows, *map(copied, rows[-copies:])])
    assert found.valley_found and 0.5 + 0.02 * unrelated <= found.threshold < 1
    assert found.duplicates == copies


@pytest.mark.parametrize("scale", [1.0, 0.02])
def test_one_hill_has_no_valley_and_the_default_threshold_is_reported(scale: float) -> None:
    draws = np.random.default_rng(1)
    hill = np.clip(draws.normal(0.7, 0.1 * scale, 2_000), 0, 0.97)
    assert Histogram.of(hill).valley() is None
    found = dedupe(["one text", "quite another"])
    assert (found.threshold, found.valley_found) == (ByText.default_threshold, False)


def test_rows_that_are_like_no_other_are_part_of_the_lower_hill() -> None:
    hill = np.random.default_rng(1).normal(0.85, 0.03, 400)
    valley = Histogram.of(np.concatenate([np.full(900, 0.2), hill, np.ones(300)])).valley()
    assert valley is not None and 0.5 < valley < 0.78


def test_equal_rows_are_counted_at_1() -> None:
    assert dedupe(["one of two", "one  of TWO", "another"]).histogram.counts[-1] == 2


def test_the_picture_counts_every_row_and_marks_the_threshold() -> None:
    histogram = Histogram.of(np.array([-1, 0.2, 0.55, 0.81, 0.81, 1.0]))
    figure = histogram.figure(0.75)
    assert sum(histogram.counts) + histogram.apart == 6
    assert [label for label in figure.labels if "threshold" in label] == ["0.74 threshold"]
    assert "not shown: 2 rows" in figure.caption


@pytest.mark.parametrize("threshold", [0.49, 1.01, float("nan"), -1])
def test_a_threshold_that_means_nothing_is_refused_before_any_work(threshold: float) -> None:
    with pytest.raises(ConfigError, match=r"0\.5 to 1"):
        next(find_duplicates(["a", "b"], model=Table(np.empty((0, 1))), threshold=threshold))


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(DataError, match="give a list"):
        dedupe("a text")


def test_how_far_it_is_is_reported_up_to_the_end() -> None:
    steps = [
        step
        for step in find_duplicates([str(row) for row in range(30)], model=Table(np.eye(30)))
        if isinstance(step, Progress)
    ]
    assert {step.stage for step in steps} == {"texts embedded", "texts compared"}
    assert steps[-1].done == steps[-1].total == 30


def test_the_chart_has_no_empty_bins_at_its_ends_and_no_empty_caption() -> None:
    counts = [0] * 25
    counts[15] = 2
    chart = Histogram(tuple(counts), 0).figure(0.75)
    assert list(chart.labels) == ["0.74 threshold", "0.76", "0.78", "0.80"] and list(chart.values) == [0, 0, 0, 2]
    assert chart.caption == ""
    assert Histogram(tuple(counts), 1).figure(0.75).caption == "not shown: 1 row without a similar row (below 0.5)"
