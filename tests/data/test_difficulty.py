"""The embedded sets have the difficulty that they promise, on test examples drawn after the plans were fixed.

`benchmarks/difficulty.py` has the whole table over several seeds.
"""

import pytest

from fitting_common import Plan, fit_classes, fit_dates, fit_grammar, fit_movies, fit_pictures, spans


@pytest.mark.slow
def test_a_bag_of_words_cannot_tell_questions_from_statements() -> None:
    assert fit_classes("questions", "bag", Plan(1e-2, 1), count=2_000) <= 0.55


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("family", ["cnn", "gru"])
def test_models_that_see_order_tell_questions_from_statements(family: str) -> None:
    assert fit_classes("questions", family, Plan(1e-2, 4)) >= 0.98


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("family", ["linear", "bag"])
def test_counting_words_does_not_understand_reviews(family: str) -> None:
    assert 0.55 <= fit_classes("reviews", family, Plan(1e-2, 3)) <= 0.8


@pytest.mark.slow
def test_a_bilstm_with_crf_finds_titles_and_people_that_it_never_saw() -> None:
    assert fit_movies(Plan(1e-2, 5)) >= 0.95


@pytest.mark.soak  # `make test` has them in test_families.py
def test_filters_learn_the_pictures() -> None:
    assert fit_pictures("conv2d", Plan(1e-2, 10)) >= 0.95


@pytest.mark.slow
def test_a_gru_reads_the_context_of_homographs() -> None:
    assert fit_classes("homographs", "gru", Plan(5e-3, 5), width=48) >= 0.95


@pytest.mark.soak
def test_patches_learn_the_pictures() -> None:
    assert fit_pictures("patch-transformer", Plan(5e-3, 20)) >= 0.95


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_lstm_comes_near_the_floor_of_the_grammar_and_never_below_it(seed: int) -> None:
    assert 0 <= fit_grammar("lstm", Plan(1e-2, 10), seed=seed) <= 0.25  # bits per word; a bag has 2.4


@pytest.mark.soak
@pytest.mark.parametrize(("family", "plan"), [("lstm", Plan(5e-3, 10)), ("transformer", Plan(2e-3, 8))])
def test_models_with_memory_understand_reviews(family: str, plan: Plan) -> None:
    assert fit_classes("reviews", family, plan, width=64) >= 0.95


@pytest.mark.soak
def test_attention_writes_dates_without_a_mistake() -> None:
    assert fit_dates("seq2seq-dot", Plan(5e-3, 10)) >= 0.98


@pytest.mark.soak
def test_a_plain_recurrence_forgets_what_was_shown_a_hundred_steps_ago() -> None:
    assert fit_classes("copy", "rnn", Plan(2e-3, 4), width=64, count=5_000) <= 0.3


@pytest.mark.soak
def test_attention_remembers_what_was_shown_a_hundred_steps_ago() -> None:
    assert fit_classes("copy", "transformer", Plan(2e-3, 8), width=64, count=5_000) >= 0.95


def test_spans_are_whole_entities() -> None:
    tags = ["B-TITLE", "I-TITLE", "B-TITLE", "O", "B-PERSON", "I-PERSON"]
    assert spans(tags) == {(0, 2, "TITLE"), (2, 3, "TITLE"), (4, 6, "PERSON")}
