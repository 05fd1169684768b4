"""Greedy decoding by its laws: rows do not notice one another, and a state changes nothing but the work."""

from typing import Any

import pytest
import torch

from decoding_common import (
    LANGUAGE_MODELS,
    MOST,
    TRANSLATORS,
    VOCABULARY,
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
from seqloom import recipes
from seqloom.config.decoding import GreedyConfig
from seqloom.decoding import answers as stepping
from seqloom.decoding import decode, replayed, steps
from seqloom.decoding.answers import NEVER, GeneratedText, log_probabilities, positions_of, room
from seqloom.errors import DataError
from seqloom.nn.types import Padded, map_state
from seqloom.text.special_tokens import COUNT, END

HOW = GreedyConfig()


def plainly(score: Scorer, most: int, repetition: float = 1.0) -> GeneratedText:
    """The plain loop: everything is read again for each token."""
    said, total = list[int](), 0.0
    while len(said) < most:
        logs = logs_after(score, said, repetition)
        token = int(logs.argmax())
        total += float(logs[token])
        if token == END:
            return GeneratedText(said, total, "end")
        said.append(token)
    return GeneratedText(said, total, "length")


def assert_same(found: GeneratedText, expected: GeneratedText) -> None:
    assert (found.tokens, found.finish_reason) == (expected.tokens, expected.finish_reason)
    assert found.score == pytest.approx(expected.score, abs=1e-9)


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_each_token_is_the_likeliest_after_the_whole_of_what_was_said(name: str) -> None:
    model, source = translator(name), sources()
    for row, (answer,) in enumerate(translated(model, source, HOW)):
        assert_same(answer, plainly(plain_translator(model, source, row), int(MOST[row])))


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_language_model_that_remembers_says_what_one_says_that_reads_everything_again(name: str) -> None:
    model, prompt, most = language_model(name), prompts(), MOST - 3  # one says nothing
    for row, (answer,) in enumerate(continued(model, prompt, HOW, most)):
        assert_same(answer, plainly(plain_language_model(model, prompt, row), int(most[row])))


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_batch_of_sources_is_answered_as_its_rows_one_by_one(name: str) -> None:
    model, source = translator(name), sources()
    for row, (answer,) in enumerate(translated(model, source, HOW)):
        ((alone,),) = translated(model, row_of(source, row), HOW, MOST[row : row + 1])
        assert_same(alone, answer)


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_batch_of_ragged_prompts_is_answered_as_its_rows_one_by_one(name: str) -> None:
    model, prompt = language_model(name), prompts()
    for row, (answer,) in enumerate(continued(model, prompt, HOW)):
        ((alone,),) = continued(model, row_of(prompt, row), HOW, MOST[row : row + 1])
        assert_same(alone, answer)


def test_answers_to_different_sources_differ() -> None:
    """Else the laws above would hold for a model that hears nothing."""
    said = [tuple(answer.tokens[:3]) for (answer,) in translated(translator("seq2seq-dot"), sources(), HOW)]
    assert len(set(said)) > 3


@pytest.mark.parametrize("block", [1, 2, 3])
def test_a_prompt_read_in_blocks_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    model, prompt = language_model("lstm"), prompts()
    expected = continued(model, prompt, HOW)
    monkeypatch.setattr(stepping, "BLOCK", block)
    for (found,), (answer,) in zip(continued(model, prompt, HOW), expected, strict=True):
        assert_same(found, answer)


def test_no_special_token_but_end_is_ever_said() -> None:
    scores = torch.zeros(1, VOCABULARY)
    scores[0, :COUNT] = 5.0
    assert log_probabilities(scores, None, 1.0, NEVER).argmax().item() == END
    scores[0, END] = -1.0
    assert log_probabilities(scores, None, 1.0, NEVER).argmax().item() >= COUNT
    assert scores[0, 0] == 5.0  # the scores themselves are not touched


@pytest.fixture(params=["plain", "replayed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that generates the tokens of rows."""
    if request.param == "plain":
        monkeypatch.setattr(decode, "can_replay", lambda *_: False)
        return steps
    if torch.get_default_device().type != "cpu":
        pytest.skip("only CPUs replay")
    return replayed


def test_rows_that_have_ended_cost_nothing_more(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = translator("seq2seq-dot"), sources()
    expected, reads = translated(model, source, HOW), list[int]()
    extend = model.extend  # Python runs after rows have ended, also where calls are replayed
    monkeypatch.setattr(model, "extend", lambda x, state: reads.append(len(x.lengths)) or extend(x, state))
    assert translated(model, source, HOW) == expected
    assert reads == sorted(reads, reverse=True)
    assert reads[-1] < reads[0]


def test_where_rows_are_left_out_of_the_tokens_alone_answers_go_wrong(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: a state whose rows are not chosen with the tokens belongs to other rows."""
    model, source = translator("seq2seq-dot"), sources()
    expected = translated(model, source, HOW)
    monkeypatch.setattr(way, "select_rows", lambda state, rows: _first_rows(state, len(rows)))
    assert translated(model, source, HOW) != expected


def _first_rows(state: Any, count: int) -> Any:
    return map_state(lambda tensor: tensor[:count], state)


def test_a_repeated_token_is_divided_where_its_score_is_positive_and_multiplied_where_negative() -> None:
    scores = torch.tensor([[0.0, 0, 0, 0, 0, 0, 2.0, -2.0, 2.0, -2.0]])
    said = torch.zeros_like(scores, dtype=torch.bool)
    said[0, [6, 7]] = True
    expected = torch.tensor([[0.0, 0, 0, 0, 0, 0, 1.0, -4.0, 2.0, -2.0]]).log_softmax(dim=-1)
    assert torch.equal(log_probabilities(scores, said, 2.0, ()), expected)


def test_a_repetition_penalty_gives_what_the_plain_loop_gives_with_it() -> None:
    model, prompt, how = language_model("lstm"), prompts(), GreedyConfig(repetition_penalty=1.3)
    answers = continued(model, prompt, how)
    assert answers != continued(model, prompt, HOW)
    for row, (answer,) in enumerate(answers):
        assert_same(answer, plainly(plain_language_model(model, prompt, row), int(MOST[row]), 1.3))


def test_learned_positions_have_an_end_and_others_none() -> None:
    assert positions_of(recipes.language_model("gpt", vocab_size=9, size="nano").decoder) == 1024
    assert positions_of(recipes.language_model("lstm", vocab_size=9, size="nano").decoder) is None


def test_an_answer_stops_where_positions_end() -> None:
    model = language_model("gpt")
    prompt = Padded.of(torch.full((1, 1022), COUNT))
    most = room(prompt, torch.tensor([64]), positions_of(model.config.decoder))
    ((answer,),) = continued(model, prompt, HOW, most)
    assert (len(answer.tokens), answer.finish_reason) == (3, "length")  # the last one is said and not read


def test_a_prompt_without_room_is_refused_and_told_how_long_it_may_be() -> None:
    with pytest.raises(DataError, match=r"1,025 tokens.*1,024 positions.*last 1,023"):
        room(Padded.of(torch.full((1, 1025), COUNT)), torch.tensor([64]), 1024)
