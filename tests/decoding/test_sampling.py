"""Samples follow the distribution that plain code says, and a row draws the same alone and in a batch."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding_common import LANGUAGE_MODELS, MOST, continued, language_model, prompts, row_of, sources, translated
from decoding_common import translator as translator_of
from seqloom.config.decoding import GreedyConfig, SampleConfig
from seqloom.decoding.decode import drawn, filtered, generator, numbers_by_content
from seqloom.nn.types import Padded

SCORES = [2.0, 1.0, 0.5, 0.3, -0.5, -1.0, -2.0, -math.inf]
DRAWS = 4_000


def plainly(scores: list[float], how: SampleConfig) -> list[float]:
    """The same filters, one token after another."""
    left = {token: score / how.temperature for token, score in enumerate(scores) if score > -math.inf}
    order = sorted(left, key=lambda token: -left[token])
    kept = order[: how.top_k] if how.top_k else order
    if how.top_p < 1:
        chances, nucleus, total = shares(left, kept), list[int](), 0.0
        for token in kept:
            if nucleus and total >= how.top_p:
                break
            nucleus.append(token)
            total += chances[token]
        kept = nucleus
    if how.min_p > 0:
        chances = shares(left, kept)
        kept = [token for token in kept if chances[token] >= how.min_p * chances[kept[0]]]
    chances = shares(left, kept)
    return [chances.get(token, 0.0) for token in range(len(scores))]


def shares(scores: dict[int, float], kept: list[int]) -> dict[int, float]:
    total = math.fsum(math.exp(scores[token]) for token in kept)
    return {token: math.exp(scores[token]) / total for token in kept}


def logs(scores: list[float]) -> torch.Tensor:
    return torch.tensor([scores], dtype=torch.float64).log_softmax(dim=-1)


@settings(max_examples=25, deadline=None)
@given(
    scores=st.lists(st.integers(-40, 40).map(lambda number: number / 5), min_size=1, max_size=12, unique=True),
    temperature=st.floats(0.2, 5),
    top_k=st.integers(0, 14),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
)
def test_the_filters_keep_what_plain_code_keeps(
    scores: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    how = SampleConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    found, expected = filtered(logs(scores), how)[0].tolist(), plainly(scores, how)
    near_a_border = any((one > 0) != (other > 0) for one, other in zip(found, expected, strict=True))
    if near_a_border:  # a sum of probabilities may round to either side of top_p or min_p: then one more or less
        assert abs(sum(one > 0 for one in found) - sum(one > 0 for one in expected)) == 1
    else:
        assert found == pytest.approx(expected, abs=1e-9)


HOWS = {
    "all": SampleConfig(),
    "temperature": SampleConfig(temperature=0.6),
    "top-k": SampleConfig(top_k=3),
    "top-p": SampleConfig(top_p=0.8),
    "min-p": SampleConfig(min_p=0.2),
    "together": SampleConfig(temperature=1.7, top_k=6, top_p=0.9, min_p=0.05),
}


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS.keys())
def test_draws_pass_a_chi_square_test_against_the_plain_filter(how: SampleConfig) -> None:
    expected = np.array(plainly(SCORES, how)) * DRAWS
    draws = [generator(7, number, 0).random() for number in range(DRAWS)]
    found = drawn(filtered(logs(SCORES), how).expand(DRAWS, -1), draws)
    counts = np.bincount(found.numpy(), minlength=len(SCORES))
    possible = expected > 0
    assert counts[~possible].sum() == 0
    statistic = float(((counts - expected)[possible] ** 2 / expected[possible]).sum())
    assert statistic < chi_square(int(possible.sum()) - 1)


def chi_square(degrees: int) -> float:
    """What a chi-square of so many degrees exceeds once in a thousand times (Wilson & Hilferty 1931)."""
    return degrees * (1 - 2 / (9 * degrees) + 3.09 * math.sqrt(2 / (9 * degrees))) ** 3


@pytest.mark.slow
def test_first_tokens_of_a_model_pass_a_chi_square_test() -> None:
    model, prompt = language_model("lstm", size=0.3), prompts(1)
    (answers,) = continued(model, prompt, SampleConfig(num_samples=DRAWS, seed=3), torch.tensor([1]))
    with torch.no_grad():
        scores = model(prompt).values[0, -1]
    counts = Counter(one.tokens[0] if one.tokens else 3 for one in answers)
    allowed = [token for token in range(len(scores)) if token >= 6 or token == 3]
    chances = shares(dict(enumerate(scores.tolist())), allowed)
    statistic = sum((counts[one] - DRAWS * chances[one]) ** 2 / (DRAWS * chances[one]) for one in allowed)
    assert statistic < chi_square(len(allowed) - 1)


@pytest.mark.parametrize("numbers", [[0.0], [1.0 - 2**-53], [0.999999999999]])
def test_no_number_between_0_and_1_draws_what_has_no_probability(numbers: list[float]) -> None:
    chances = torch.tensor([[0.0, 0.3, 0.7, 0.0]])
    assert drawn(chances, numbers).item() in (1, 2)


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_batch_of_ragged_prompts_draws_what_its_rows_draw_one_by_one(name: str) -> None:
    model, prompt, how = language_model(name, size=0.3), prompts(), SampleConfig(num_samples=2, seed=5, top_p=0.9)
    together = continued(model, prompt, how)
    for row, found in enumerate(together):
        (alone,) = continued(model, row_of(prompt, row), how, MOST[row : row + 1], numbers=[row])
        assert [one.tokens for one in alone] == [one.tokens for one in found]
        assert [one.score for one in alone] == pytest.approx([one.score for one in found])


@pytest.mark.slow
def test_a_batch_of_sources_draws_what_its_rows_draw_one_by_one() -> None:
    model, source, how = translator_of("transformer", size=0.3), sources(), SampleConfig(seed=5)
    for row, found in enumerate(translated(model, source, how)):
        (alone,) = translated(model, row_of(source, row), how, MOST[row : row + 1], numbers=[row])
        assert [one.tokens for one in alone] == [one.tokens for one in found]


def test_the_same_seed_draws_the_same_and_another_seed_something_else() -> None:
    model, prompt = language_model("lstm", size=0.3), prompts()

    def said(seed: int, count: int = 1) -> list[list[list[int]]]:
        answers = continued(model, prompt, SampleConfig(seed=seed, num_samples=count))
        return [[one.tokens for one in row] for row in answers]

    assert said(1) == said(1) != said(2)
    assert [row[:1] for row in said(1, 3)] == said(1)  # more answers leave the first as it was
    assert len({tuple(tokens) for tokens in said(1, 3)[0]}) == 3


def test_nothing_is_drawn_from_the_generator_of_the_process() -> None:
    before = torch.random.get_rng_state()
    continued(language_model("lstm"), prompts(), SampleConfig())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_one_likeliest_token_is_greedy() -> None:
    model, prompt = language_model("lstm"), prompts()
    expected = [row[0].tokens for row in continued(model, prompt, GreedyConfig())]
    for how in (SampleConfig(top_k=1), SampleConfig(top_p=0.0), SampleConfig(min_p=1.0)):
        assert [row[0].tokens for row in continued(model, prompt, how)] == expected


def test_numbers_by_content_do_not_depend_on_the_padding_or_the_neighbors() -> None:
    batch = Padded.of(torch.tensor([[7, 8, 0], [7, 8, 9]]), torch.tensor([2, 3]))
    numbers = numbers_by_content(batch)
    assert numbers[0] != numbers[1]
    assert [numbers_by_content(row_of(batch, row))[0] for row in (0, 1)] == numbers
