"""chrF equals sacreBLEU's, whatever was said; its statistics are sums."""

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

from seqloom.metrics.text import CHRF_STATISTICS, chrf, chrf_signature, chrf_statistics

TEXTS = st.text(alphabet="abc é中\t\u00a0", max_size=20) | st.text(max_size=12)
CORPORA = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6)


def ours(pairs: list[tuple[str, str]]) -> float:
    return float(chrf(np.sum([chrf_statistics(said, true) for said, true in pairs], axis=0)))


@settings(max_examples=60, deadline=None)
@given(pairs=CORPORA)
def test_chrf_equals_sacrebleu(pairs: list[tuple[str, str]]) -> None:
    said, true = (list(texts) for texts in zip(*pairs, strict=True))
    assert ours(pairs) == pytest.approx(sacrebleu.corpus_chrf(said, [true]).score, rel=1e-9, abs=1e-12)


def test_empty_and_perfect_answers_score_as_sacrebleu_scores_them() -> None:
    references = ["The cat sat.", "No", ""]
    for said in (references, ["", "", ""], ["The cat", "", "Yes"]):
        theirs = sacrebleu.corpus_chrf(said, [references]).score
        assert ours(list(zip(said, references, strict=True))) == pytest.approx(theirs, rel=1e-9)


def test_many_sets_are_scored_at_once_as_each_alone() -> None:
    sums = np.random.default_rng(0).integers(0, 5, size=(4, 50, CHRF_STATISTICS)).astype(float)
    np.testing.assert_array_equal(chrf(sums)[3, 9], chrf(sums[3, 9]))


def test_the_signature_is_the_one_that_sacrebleu_prints() -> None:
    theirs = CHRF()
    theirs.corpus_score(["a"], [["a"]])
    assert chrf_signature() == str(theirs.get_signature())
