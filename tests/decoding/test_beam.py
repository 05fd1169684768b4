"""Beam search against every answer that there is, against greedy decoding, and against its own formulas."""

import itertools
import math
from typing import Any

import pytest
import torch

from decoding_common import (
    LANGUAGE_MODELS,
    MOST,
    TRANSLATORS,
    Scorer,
    continued,
    language_model,
    logs_after,
    plain_language_model,
    plain_translator,
    prompts,
    row_of,
    sources,
    translated,
    translator,
)
from seqloom.config.decoding import BeamConfig, GreedyConfig
from seqloom.decoding import beam as beam_module
from seqloom.decoding.alignment import alignment, watching
from seqloom.decoding.answers import GeneratedText, Stops, begins
from seqloom.decoding.beam import BeamSearch, Candidate, Hypothesis
from seqloom.decoding.decode import write
from seqloom.errors import ConfigError
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.types import Padded
from seqloom.text.special_tokens import BEGIN, COUNT, END

SMALL = COUNT + 3  # a vocabulary of END and three tokens that a text may hold
LONGEST = 4
EVERY = 3**LONGEST * 2  # more hypotheses than there are


def of_tokens(score: Scorer, tokens: list[int], why: str, how: BeamConfig) -> float:
    """The score of an answer, each token asked for by itself."""
    said = [*tokens, END] if why == "end" else tokens
    steps = (float(logs_after(score, said[:place], how.repetition_penalty)[said[place]]) for place in range(len(said)))
    return math.fsum(steps) / ((5 + len(said)) / 6) ** how.length_penalty


def every_answer(score: Scorer, how: BeamConfig, longest: int = LONGEST) -> list[GeneratedText]:
    """All answers that there are, the best first."""
    found = []
    for length in range(longest + 1):
        for tokens in itertools.product(range(COUNT, SMALL), repeat=length):
            why = "length" if length == longest else "end"
            found.append(GeneratedText(list(tokens), of_tokens(score, list(tokens), why, how), why))
    return sorted(found, key=lambda one: -one.score)


HOWS = [
    BeamConfig(beam_size=EVERY, n_best=5, length_penalty=0.0),
    BeamConfig(beam_size=EVERY, n_best=5, length_penalty=1.0),
    pytest.param(
        BeamConfig(beam_size=EVERY, n_best=5, length_penalty=3.0, repetition_penalty=1.5), marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize("how", HOWS, ids=lambda how: f"alpha-{how.length_penalty}")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_a_beam_that_is_wide_enough_finds_the_best_of_all_answers(how: BeamConfig, seed: int) -> None:
    model, prompt = language_model("lstm", SMALL, seed, 0.3), prompts(2, SMALL)
    answers = continued(model, prompt, how, torch.tensor([LONGEST] * 2))
    for row, found in enumerate(answers):
        expected = every_answer(plain_language_model(model, prompt, row), how)[:5]
        assert [(one.tokens, one.finish_reason) for one in found] == [
            (one.tokens, one.finish_reason) for one in expected
        ]
        assert [one.score for one in found] == pytest.approx([one.score for one in expected])


@pytest.mark.parametrize("name", TRANSLATORS)
def test_one_beam_without_penalties_is_greedy_for_translators(name: str) -> None:
    model, source = translator(name), sources()
    found = translated(model, source, BeamConfig(beam_size=1, length_penalty=0.0))
    assert _plain(found) == _plain(translated(model, source, GreedyConfig()))


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_one_beam_without_penalties_is_greedy_for_language_models(name: str) -> None:
    model, prompt = language_model(name), prompts()
    found = continued(model, prompt, BeamConfig(beam_size=1, length_penalty=0.0, repetition_penalty=1.2))
    assert _plain(found) == _plain(continued(model, prompt, GreedyConfig(repetition_penalty=1.2)))


def _plain(answers: list[list[GeneratedText]]) -> list[list[tuple[object, ...]]]:
    return [[(one.tokens, one.finish_reason, pytest.approx(one.score, abs=1e-9)) for one in row] for row in answers]


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_batch_is_searched_as_its_rows_one_by_one(name: str) -> None:
    model, source, how = translator(name, size=0.3), sources(), BeamConfig(beam_size=3, n_best=3)
    for row, found in enumerate(translated(model, source, how)):
        (alone,) = translated(model, row_of(source, row), how, MOST[row : row + 1])
        assert _plain([alone]) == _plain([found])


@pytest.mark.sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_best_are_sorted_different_and_worth_what_the_formula_says(name: str) -> None:
    model, source, how = translator(name, size=0.3), sources(), BeamConfig(beam_size=4, n_best=4, length_penalty=0.7)
    for row, found in enumerate(translated(model, source, how)):
        assert len({tuple(one.tokens) for one in found}) == len(found) == 4
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        score = plain_translator(model, source, row)
        assert [one.score for one in found] == [
            pytest.approx(of_tokens(score, one.tokens, one.finish_reason, how)) for one in found
        ]


@pytest.mark.slow
def test_a_wider_beam_is_not_worse() -> None:
    model, source = translator("seq2seq-dot", size=0.3), sources()
    totals = [
        sum(row[0].score for row in translated(model, source, BeamConfig(beam_size=width, length_penalty=0.0)))
        for width in (1, 4, 16)
    ]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


def search_for(most: int, **settings: float) -> BeamSearch:
    return BeamSearch([BEGIN], most, BeamConfig(beam_size=2, **settings), Stops((), None))


START = Hypothesis([], 0.0, 0)


def test_a_search_ends_when_no_unfinished_one_can_win() -> None:
    search = search_for(9, length_penalty=0.0)
    search.advance([Candidate(START, END, -1.0), Candidate(START, 7, -1.1)], lambda _: 0.0)
    assert not search.beam  # -1.1 can only fall
    assert search.answers() == [GeneratedText([], -1.0, "end")]


def test_a_search_goes_on_while_an_unfinished_one_can_win() -> None:
    search = search_for(9, length_penalty=1.0)
    search.advance([Candidate(START, END, -1.0), Candidate(START, 7, -1.1)], lambda _: 0.0)
    assert [one.tokens for one in search.beam] == [[7]]  # nine tokens of -1.1 together would be worth -0.47


def test_an_ending_beyond_the_width_is_no_answer() -> None:
    search = search_for(9, length_penalty=0.0)
    likeliest = [Candidate(START, 7, -0.1), Candidate(START, 8, -0.2), Candidate(START, END, -0.3)]
    search.advance(likeliest, lambda _: 0.0)
    assert search.answers() == []
    assert [one.tokens for one in search.beam] == [[7], [8]]


class Endings:
    """A model that would rather end than say one of two tokens, always."""

    def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
        chances = torch.zeros(*x.values.shape, SMALL)
        chances[..., [END, COUNT, COUNT + 1]] = torch.tensor([0.6, 0.2, 0.2])
        return x.with_values(chances.log().clamp(min=-99)), state


def test_as_many_as_the_width_go_on_however_many_end() -> None:
    how = BeamConfig(beam_size=2, n_best=2, length_penalty=8.0)  # three tokens and END are worth more than fewer
    (answers,) = write(Endings(), (), begins(1, torch.device("cpu")), torch.tensor([4]), how)
    assert [(len(answer.tokens), answer.finish_reason) for answer in answers] == [(3, "end")] * 2


def test_what_may_say_nothing_is_answered_with_nothing() -> None:
    model = translator("seq2seq-dot")
    found = translated(model, sources(), BeamConfig(beam_size=2), torch.tensor([0, 2, 0, 1, 0, 0]))
    assert [len(row[0].tokens) <= 2 for row in found] == [True] * 6
    assert found[0] == [GeneratedText([], 0.0, "length")]


def covered_plainly(model: EncoderDecoder, source: Padded, row: int, answer: GeneratedText) -> float:
    """The coverage penalty of Wu et al. 2016 for beta = 1, from the alignment of the whole answer."""
    looks = alignment(model, row_of(source, row), Padded.of(torch.tensor([[BEGIN, *answer.tokens]])))
    assert looks is not None
    counted = (
        looks if answer.finish_reason == "end" else looks[:-1]
    )  # the last row looks for what was not said any more
    return sum(math.log(min(float(column.sum()), 1.0)) for column in counted.T)


@pytest.mark.parametrize("name", ["seq2seq-dot", pytest.param("transformer", marks=pytest.mark.slow)])
def test_the_coverage_penalty_is_that_of_the_whole_alignment(name: str) -> None:
    model, source = translator(name, size=0.3), sources()
    how = BeamConfig(beam_size=3, n_best=3, length_penalty=0.5, coverage_penalty=0.4)
    for row, found in enumerate(translated(model, source, how)):
        score = plain_translator(model, source, row)
        for one in found:
            plain = of_tokens(score, one.tokens, one.finish_reason, how) + 0.4 * covered_plainly(
                model, source, row, one
            )
            assert one.score == pytest.approx(plain)


@pytest.mark.slow
def test_a_coverage_penalty_chooses_answers_that_look_at_more_of_the_source() -> None:
    model, source = translator("seq2seq-dot", size=0.5), sources()

    def covered(beta: float) -> float:
        answers = translated(model, source, BeamConfig(beam_size=16, coverage_penalty=beta))
        return sum(covered_plainly(model, source, row, found[0]) for row, found in enumerate(answers))

    assert covered(5.0) > covered(0.0)


def test_a_coverage_penalty_is_refused_where_the_source_is_never_looked_at() -> None:
    assert watching(translator("seq2seq")) is None
    with pytest.raises(ConfigError, match="this model has none"):
        translated(translator("seq2seq"), sources(), BeamConfig(coverage_penalty=0.2))


def test_nobody_watches_a_model_when_the_search_is_over() -> None:
    model = translator("seq2seq-dot")
    translated(model, sources(), BeamConfig(coverage_penalty=0.2))
    watched = watching(model)
    assert watched is not None
    with watched() as looked, pytest.raises(IndexError):
        looked()  # nothing has been heard yet


def test_candidates_are_those_of_all_tokens_of_all_rows_in_order() -> None:
    torch.manual_seed(0)
    logs = torch.randn(3, 7).log_softmax(dim=-1)
    logs[1, 2:] = -torch.inf
    how, searches = BeamConfig(beam_size=2), list[BeamSearch]()
    for beam in ([Hypothesis([4], -1.0, 0), Hypothesis([5], -0.1, 1)], [Hypothesis([6], -2.0, 2)]):
        searches.append(BeamSearch([BEGIN], 9, how, Stops((), None)))
        searches[-1].beam = beam
    for search, found in zip(searches, beam_module._candidates(searches, logs, 4), strict=True):
        sums = [(one.log + logs[one.row, token].item(), one, token) for one in search.beam for token in range(7)]
        expected = sorted((one for one in sums if one[0] > -torch.inf), key=lambda one: -one[0])
        every = list(found)
        assert [(one.parent, one.token) for one in every] == [one[1:] for one in expected]
        assert [one.log for one in every] == pytest.approx([one[0] for one in expected])


def test_only_rows_of_another_source_are_selected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, select = list[bool](), beam_module.select_rows

    def spy(state: Any, rows: torch.Tensor, *, same_inputs: bool = False) -> Any:
        kept.append(same_inputs)
        return select(state, rows, same_inputs=same_inputs)

    monkeypatch.setattr(beam_module, "select_rows", spy)
    model = translator("transformer")
    translated(model, sources(2), BeamConfig(beam_size=2), torch.tensor([6, 3]), never=(END,))
    # the prompts, the first tokens of two beams, two more; one beam has ended, and the other goes on
    assert kept == [False, False, True, False, True, True]
