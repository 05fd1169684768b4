"""Continuous batching: whoever joins or leaves the batch, each row generates what it would generate alone."""

from typing import Any

import pytest
import torch

from seqloom import recipes
from seqloom.config.decoding import GreedyConfig, SampleConfig
from seqloom.decoding.answers import BLOCK, GeneratedText, Stops
from seqloom.decoding.continuous import ContinuousBatch, ContinuousRow
from seqloom.decoding.decode import write
from seqloom.nn.types import Padded, compact_rows, join_rows, select_rows
from seqloom.recipes.families import names
from seqloom.text.special_tokens import BEGIN, COUNT

VOCABULARY = 40
FAMILIES = names("language-model")
HOW: list[Any] = [
    GreedyConfig(),
    SampleConfig(seed=3),
    GreedyConfig(repetition_penalty=1.5),
    SampleConfig(temperature=0.7, top_k=9, seed=4),
    SampleConfig(temperature=1.3, top_p=0.9, min_p=0.05, repetition_penalty=1.2, seed=5),
]


def language_model(family: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return recipes.language_model(family, vocab_size=VOCABULARY, size="nano").build().eval()


def prompt_of(number: int, length: int) -> list[int]:
    return [BEGIN, *(COUNT + (number * 31 + place * 7) % (VOCABULARY - COUNT) for place in range(length))]


def decode(tokens: list[int]) -> str:
    return "".join(chr(ord("A") + token) for token in tokens)


def alone(model: Any, prompt: list[int], most: int, how: Any, number: int) -> GeneratedText:
    given = Padded.of(torch.tensor([prompt]))
    ((answer,),) = write(
        model, model.initial_state(1), given, torch.tensor([most]), how, decode=decode, numbers=[number]
    )
    return answer


def require_equal(found: GeneratedText, expected: GeneratedText) -> None:
    assert found._replace(score=0.0) == expected._replace(score=0.0)
    assert found.score == pytest.approx(expected.score, abs=1e-4)


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_generates_what_it_generates_alone(family: str) -> None:
    model, batch = language_model(family), ContinuousBatch(language_model(family))
    asked = []
    for number in range(10):
        how, length, most = HOW[number % len(HOW)], (number * 5) % 17, 3 + (number * 7) % 19
        asked.append((prompt_of(number, length), most, how, number))
    rows = [ContinuousRow(prompt, most, how, Stops((), decode), number) for prompt, most, how, number in asked]
    for number, row in enumerate(rows):  # one joins every second step, and others end meanwhile
        batch.add([row])
        batch.step()
        if number % 2:
            batch.step()
    while len(batch):
        batch.step()
    for row, (prompt, most, how, number) in zip(rows, asked, strict=True):
        require_equal(row.draft.written(), alone(model, prompt, most, how, number))


def test_rows_leave_at_a_stop_string_and_at_the_end() -> None:
    model = language_model("lstm")
    whole = alone(model, prompt_of(1, 4), 20, GreedyConfig(), 0).text
    stop = whole[3:5]
    batch = ContinuousBatch(model)
    row = ContinuousRow(prompt_of(1, 4), 20, GreedyConfig(stop=(stop,)), Stops((stop,), decode))
    batch.add([row])
    while len(batch):
        batch.step()
    assert row.draft.written().finish_reason == "stop"
    assert row.draft.written().text == whole[: whole.index(stop)]


def test_a_long_prompt_is_read_in_blocks_while_others_run() -> None:
    model = language_model("transformer")
    batch, prompt = ContinuousBatch(model), prompt_of(2, 2 * BLOCK + 5)
    short, long = (ContinuousRow(one, 8, GreedyConfig(), Stops((), decode)) for one in (prompt_of(1, 2), prompt))
    batch.add([short])
    batch.step()
    batch.add([long])
    batch.step()
    batch.step()
    assert (len(short.draft.tokens), len(long.draft.tokens)) == (3, 0)
    while len(batch):
        batch.step()
    require_equal(long.draft.written(), alone(model, prompt, 8, GreedyConfig(), 0))
    require_equal(short.draft.written(), alone(model, prompt_of(1, 2), 8, GreedyConfig(), 0))


def test_a_dropped_row_gets_no_further_token() -> None:
    model = language_model("gru")
    batch = ContinuousBatch(model)
    rows = [ContinuousRow(prompt_of(one, 3), 9, GreedyConfig(), Stops((), decode)) for one in range(3)]
    batch.add(rows)
    batch.step()
    batch.drop(rows[1])
    batch.step()
    assert [len(row.draft.tokens) for row in rows] == [2, 1, 2]
    assert len(batch) == 2
    late = ContinuousRow(prompt_of(5, 3), 9, GreedyConfig(), Stops((), decode))
    batch.add([late])
    batch.drop(late)
    assert len(batch) == 2


def test_samples_of_a_prompt_share_its_reading_and_differ() -> None:
    model, how = language_model("lstm"), SampleConfig(num_samples=3, seed=1, max_new_tokens=6)
    batch, prompt = ContinuousBatch(model), prompt_of(4, 5)
    rows = [ContinuousRow(prompt, 6, how, Stops((), decode), 2, answer) for answer in range(3)]
    batch.add(rows)
    while len(batch):
        batch.step()
    given = Padded.of(torch.tensor([prompt]))
    (expected,) = write(model, model.initial_state(1), given, torch.tensor([6]), how, decode=decode, numbers=[2])
    for row, one in zip(rows, expected, strict=True):
        require_equal(row.draft.written(), one)
    assert len({row.draft.written().text for row in rows}) > 1


@pytest.mark.slow
def test_a_cache_keeps_only_what_its_rows_can_read() -> None:
    """Without it, the cache of a batch that never empties would grow for ever."""
    model = language_model("transformer")
    batch = ContinuousBatch(model)
    for number in range(30):
        batch.add([ContinuousRow(prompt_of(number, 3), 6, GreedyConfig(), Stops((), decode))])
        batch.step()
        batch.step()
    assert len(batch)
    assert cached(batch.state) <= 1 + 3 + 6


def test_a_cache_shrinks_when_its_longest_row_leaves() -> None:
    batch = ContinuousBatch(language_model("transformer"))
    long, short = (ContinuousRow(prompt_of(n, n), 2 + 4 * (n < 9), GreedyConfig(), Stops((), decode)) for n in (40, 2))
    batch.add([long, short])
    for _ in range(4):
        batch.step()
    assert len(batch) == 1 and cached(batch.state) <= 1 + 2 + 4


def test_a_short_prompt_does_not_wait_for_a_long_one_that_came_with_it() -> None:
    batch = ContinuousBatch(language_model("gru"))
    lengths = (2 * BLOCK, 2)
    long, short = (ContinuousRow(prompt_of(1, n), 4, GreedyConfig(), Stops((), decode)) for n in lengths)
    batch.add([long, short])
    batch.step()
    assert (len(long.draft.tokens), len(short.draft.tokens)) == (0, 1)


def cached(state: Any) -> int:
    """The columns of the largest cache in a state."""
    if hasattr(state, "keys"):
        return int(state.keys.held.shape[2])
    return max(map(cached, state), default=0) if isinstance(state, tuple) else 0


@pytest.mark.parametrize("family", FAMILIES)
def test_joined_states_go_on_like_the_separate_ones(family: str) -> None:
    """A law of states: put together, selected again, and compacted, they give the same scores."""
    model = language_model(family)
    with torch.no_grad():
        one, two = (
            model.step(Padded.of(torch.tensor([prompt_of(number, 3 + 6 * number)])), model.initial_state(1))[1]
            for number in (0, 1)
        )
        joined = join_rows([one, two])
        again = compact_rows(select_rows(joined, torch.tensor([0])))
        x = Padded.of(torch.tensor([[9], [9]]))
        both, _ = model.step(x, joined)
        for row, state in ((0, one), (1, two), (0, again)):
            apart, _ = model.step(x.select(torch.tensor([row])), state)
            torch.testing.assert_close(both.values[row], apart.values[0], atol=1e-5, rtol=1e-5)
