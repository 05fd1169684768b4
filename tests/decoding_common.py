"""What the tests of decoding share: tiny models of every family whose answers differ, and the plain way to ask them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from seqloom import recipes
from seqloom.config.decoding import AnyDecoding
from seqloom.config.inputs import TokensConfig
from seqloom.decoding.alignment import watching
from seqloom.decoding.answers import NEVER, GeneratedText, begins
from seqloom.decoding.decode import write
from seqloom.nn.models import EncoderDecoder, LanguageModel
from seqloom.nn.types import Padded
from seqloom.text.special_tokens import BEGIN, COUNT
from stacks_common import STACKS, blocks, decoder_blocks

VOCABULARY = 20
# One family of each kind, and one stack of layers that differ; the others are slow by their number.
QUICK = {"seq2seq-dot", "lstm", "gpt", "window-full"}


def _families(shape: recipes.ModelKind) -> list[Any]:
    every = [*sorted(recipes.names(shape)), *STACKS]
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in every]


TRANSLATORS, LANGUAGE_MODELS = _families("translator"), _families("language-model")
MOST = torch.tensor([9, 5, 12, 7, 3, 10])  # tokens that each row may say: they end at different times


def shaken(config: Any, seed: int, size: float = 1.0) -> Any:
    """A model whose weights are drawn so large that what it reads matters."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = replace(config, head=replace(config.head, tied=False)).build().eval().double()
        for weight in model.parameters():
            weight.add_(size * torch.randn(weight.shape, dtype=weight.dtype, device=weight.device))
    return model


@cache
def translator(name: str, vocabulary: int = VOCABULARY, seed: int = 0, size: float = 1.0) -> EncoderDecoder:
    recipe, source = "transformer" if name in STACKS else name, TokensConfig(vocab_size=VOCABULARY)
    config = recipes.translator(recipe, source=source, target_vocab_size=vocabulary, size="nano")
    if name in STACKS:
        config = replace(config, decoder=_stacked(config.decoder, decoder_blocks(STACKS[name])))
    return shaken(config, seed, size)


@cache
def language_model(name: str, vocabulary: int = VOCABULARY, seed: int = 3, size: float = 1.0) -> LanguageModel:
    config = recipes.language_model("gpt" if name in STACKS else name, vocab_size=vocabulary, size="nano")
    if name in STACKS:
        config = replace(config, decoder=_stacked(config.decoder, blocks(STACKS[name])))
    return shaken(config, seed, size)


def _stacked(decoder: Any, layers: tuple[Any, ...]) -> Any:
    return replace(decoder, layers=layers, repeat=1, position="sinusoidal")


def sources(count: int = 6) -> Padded:
    draw = torch.Generator().manual_seed(0)
    return Padded.stack([torch.randint(COUNT, VOCABULARY, (2 + row % 4,), generator=draw) for row in range(count)])


def prompts(count: int = 6, vocabulary: int = VOCABULARY) -> Padded:
    """Ragged prompts, each with BEGIN."""
    draw = torch.Generator().manual_seed(1)
    drawn = [torch.randint(COUNT, vocabulary, (row % 4,), generator=draw) for row in range(count)]
    return Padded.stack([torch.cat([torch.tensor([BEGIN]), row]) for row in drawn])


def row_of(x: Padded, row: int) -> Padded:
    """One row alone, without its padding."""
    return x.select(torch.tensor([row])).cut(0, int(x.lengths[row]))


def translated(
    model: EncoderDecoder, source: Padded, how: AnyDecoding, most: Tensor = MOST, **settings: Any
) -> list[list[GeneratedText]]:
    prompt = begins(len(most), most.device)
    return write(model, model.initial_state(source), prompt, most, how, attention=watching(model), **settings)


def continued(
    model: LanguageModel, prompt: Padded, how: AnyDecoding, most: Tensor = MOST, **settings: Any
) -> list[list[GeneratedText]]:
    return write(model, model.initial_state(len(most)), prompt, most, how, **settings)


Scorer = Callable[[tuple[int, ...]], Tensor]  # from all tokens so far to the scores [V] of the next one


def logs_after(score: Scorer, said: list[int], repetition: float = 1.0) -> Tensor:
    """The log-probabilities [V] of the next token, each step of it written out."""
    scores = score(tuple(said)).clone()
    for token in set(said):
        scores[token] = scores[token] / repetition if scores[token] > 0 else scores[token] * repetition
    logs = scores - scores.logsumexp(dim=0)
    logs[list(NEVER)] = -torch.inf
    return logs


def plain_translator(model: EncoderDecoder, source: Padded, row: int) -> Scorer:
    """The whole prefix read again for each token."""
    alone = row_of(source, row)

    @cache
    def score(said: tuple[int, ...]) -> Tensor:
        with torch.no_grad():
            return model(Padded.of(torch.tensor([[BEGIN, *said]])), alone).values[0, -1]

    return score


def plain_language_model(model: LanguageModel, prompt: Padded, row: int) -> Scorer:
    """The whole prefix read again for each token."""
    before = row_of(prompt, row).values[0].tolist()

    @cache
    def score(said: tuple[int, ...]) -> Tensor:
        with torch.no_grad():
            return model(Padded.of(torch.tensor([[*before, *said]]))).values[0, -1]

    return score
