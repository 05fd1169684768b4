"""BLEU equals sacreBLEU's, whatever was said; its statistics are sums."""

from time import process_time

import numpy as np
import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from seqloom.metrics.text import BLEU_STATISTICS, SACREBLEU, bleu, bleu_signature, bleu_statistics, words_13a

WORDS = st.sampled_from(["a", "b", "the", "cat", "Über", "3.14", "1,000", "x-y", "it's", "(", "dog.", "9-", "&quot;"])
SENTENCES = st.lists(WORDS, max_size=9).map(" ".join)
MARKS = st.text(alphabet="ab 1.,-\n&;<>quotamplg'\"()[]{}|~^_:/@!?\t\u00a0é中\u200d", max_size=25)
TEXTS = SENTENCES | MARKS | st.text(max_size=12)
CORPORA = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6)


def ours(pairs: list[tuple[str, str]], tokenizer: str) -> float:
    cut = {"13a": words_13a, "none": str.split}[tokenizer]
    return float(bleu(np.sum([bleu_statistics(cut(said), cut(true)) for said, true in pairs], axis=0)))


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["13a", "none"])
@settings(max_examples=40, deadline=None)
@given(pairs=CORPORA)
def test_bleu_equals_sacrebleu(pairs: list[tuple[str, str]], tokenizer: str) -> None:
    said, true = (list(texts) for texts in zip(*pairs, strict=True))
    theirs = sacrebleu.corpus_bleu(said, [true], tokenize=tokenizer, force=True).score
    assert ours(pairs, tokenizer) == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@settings(max_examples=60, deadline=None)
@example(text="a-\nb <skipped>c\nd &quot;e&amp;&lt;f&gt;")
@example(text="end-\n")
@given(text=TEXTS)
def test_words_of_13a_are_those_of_sacrebleu(text: str) -> None:
    assert words_13a(text) == BLEU(tokenize="13a").tokenizer(text.rstrip()).split()


def test_good_and_empty_answers_score_as_sacrebleu_scores_them() -> None:
    references = ["the cat sat on the mat .", "a dog barked at the red car .", "no one came"]
    for said in (references, ["", "", ""], ["the cat sat on the mat .", "", ""], ["cat", "dog", "one"]):
        theirs = sacrebleu.corpus_bleu(said, [references], tokenize="none", force=True).score
        assert ours(list(zip(said, references, strict=True)), "none") == pytest.approx(theirs, rel=1e-9)
    assert ours(list(zip(references, references, strict=True)), "none") == pytest.approx(100)


def test_many_sets_are_scored_at_once_as_each_alone() -> None:
    draw = np.random.default_rng(0)
    sums = draw.integers(0, 5, size=(4, 50, BLEU_STATISTICS)).astype(float)
    assert bleu(sums).shape == (4, 50)
    np.testing.assert_array_equal(bleu(sums)[2, 7], bleu(sums[2, 7]))


def test_the_signature_is_the_one_that_sacrebleu_prints() -> None:
    assert sacrebleu.__version__ == SACREBLEU
    for tokenizer, case in (("13a", "mixed"), ("none", "lc")):
        theirs = BLEU(tokenize=tokenizer, lowercase=case == "lc")
        theirs.corpus_score(["a"], [["a"]])
        assert bleu_signature(tokenizer, case=case) == str(theirs.get_signature())


@pytest.mark.slow
def test_a_thousand_sentences_are_counted_in_a_moment() -> None:
    sentence = "a man in a blue shirt is standing on a ladder cleaning the window of a house ."
    began = process_time()
    for number in range(1_000):
        bleu_statistics(words_13a(sentence), words_13a(f"{sentence} {number}"))
    assert process_time() - began < 0.5
