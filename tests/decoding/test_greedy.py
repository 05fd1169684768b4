"""Greedy decoding by its laws: rows do not notice one another, and a state changes nothing but the work."""

from functools import cache
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.decoding import greedy as decoding
from seqloom.decoding.greedy import begins, greedy, likeliest, positions_of
from seqloom.models import EncoderDecoder, LanguageModel
from seqloom.text.symbols import BEGIN, COUNT, END
from seqloom.types import Padded, map_state

VOCABULARY = 20
TRANSLATORS = [
    "seq2seq",
    "seq2seq-dot",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("transformer", "linear-attention")),
]
LANGUAGE_MODELS = ["lstm", pytest.param("cnn", marks=pytest.mark.slow), "gpt"]
MOST = torch.tensor([9, 5, 12, 7, 3, 10])  # symbols that each row may say: they end at different times


@cache
def translator(name: str) -> EncoderDecoder:
    """A model that says different things to different sources."""
    source = TokensConfig(vocab_size=VOCABULARY)
    config = recipes.translator(name, source=source, target_vocab_size=VOCABULARY, size="tiny")
    for seed in range(50):
        model = shaken(config, seed)
        if len({tuple(said[:3]) for said in translated(model, sources())}) > 3:
            return model
    raise AssertionError(f"no {name} whose answers differ")


def language_model(name: str) -> LanguageModel:
    return shaken(recipes.language_model(name, vocab_size=VOCABULARY, size="tiny"), seed=3)


def shaken(config: Any, seed: int) -> Any:
    """A model whose weights are drawn so large that what it reads matters."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = replace(config, head=replace(config.head, tied=False)).build().eval().double()
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, dtype=weight.dtype, device=weight.device))
    return model


def sources(count: int = 6) -> Padded:
    draw = torch.Generator().manual_seed(0)
    return Padded.stack([torch.randint(COUNT, VOCABULARY, (2 + row % 4,), generator=draw) for row in range(count)])


def translated(model: EncoderDecoder, source: Padded, most: Tensor = MOST) -> list[list[int]]:
    return greedy(model, model.initial_state(source), begins(len(most), most.device), most)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_batch_is_decoded_as_its_rows_one_by_one(name: str) -> None:
    model, source = translator(name), sources()
    together = translated(model, source)
    rows = [torch.tensor([row]) for row in range(len(together))]
    alone = [translated(model, source.select(row).cut(0, int(source.lengths[row])), MOST[row]) for row in rows]
    assert together == [said for (said,) in alone]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_each_symbol_is_the_likeliest_after_the_whole_of_what_was_said(name: str) -> None:
    model, source = translator(name), sources()
    for row, said in enumerate(translated(model, source)):
        one = source.select(torch.tensor([row]))
        with torch.no_grad():
            scores = model(Padded.of(torch.tensor([[BEGIN, *said]])), one).values[0]
        expected = likeliest(scores).tolist()
        assert said == expected[: len(said)]
        assert len(said) == MOST[row] or expected[len(said)] == END


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_language_model_goes_on_with_prompts_of_any_lengths(name: str) -> None:
    model, prompt = language_model(name), sources()
    most = MOST - 3  # one says nothing
    together = greedy(model, model.initial_state(6), prompt, most)
    for row, said in enumerate(together):
        read = prompt.values[row, : int(prompt.lengths[row])].tolist()
        with torch.no_grad():
            scores = model(Padded.of(torch.tensor([[*read, *said]]))).values[0, len(read) - 1 :]
        expected = likeliest(scores).tolist()
        assert said == expected[: len(said)]
        assert len(said) == most[row] or expected[len(said)] == END


def test_no_special_symbol_but_end_is_ever_said() -> None:
    scores = torch.zeros(1, VOCABULARY)
    scores[0, :COUNT] = 5.0
    assert likeliest(scores).tolist() == [END]
    scores[0, END] = -1.0
    assert likeliest(scores).item() >= COUNT
    assert scores[0, 0] == 5.0  # the scores themselves are not touched


def test_rows_that_have_ended_cost_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = translator("seq2seq-dot"), sources()
    expected, reads = translated(model, source), list[int]()
    step = model.step
    monkeypatch.setattr(model, "step", lambda x, state: reads.append(len(x.lengths)) or step(x, state))
    assert translated(model, source) == expected
    assert reads == sorted(reads, reverse=True)
    assert reads[-1] < reads[0]  # what has ended costs nothing


def test_where_rows_are_left_out_of_the_symbols_alone_answers_go_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a state whose rows are not chosen with the symbols belongs to other rows."""
    model, source = translator("seq2seq-dot"), sources()
    expected = translated(model, source)
    monkeypatch.setattr(decoding, "select_rows", lambda state, rows: _first_rows(state, int(rows.sum())))
    assert translated(model, source) != expected


def _first_rows(state: Any, count: int) -> Any:
    return map_state(lambda tensor: tensor[:count], state)


def test_learned_positions_have_an_end_and_others_none() -> None:
    assert positions_of(recipes.language_model("gpt", vocab_size=9, size="tiny").decoder) == 1024
    assert positions_of(recipes.language_model("lstm", vocab_size=9, size="tiny").decoder) is None
