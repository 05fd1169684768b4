"""Inputs of any length: every element is answered once, from a window with room on both sides, and nothing is cut."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seqloom.config.inputs import TokensConfig, VectorsConfig
from seqloom.config.models import ElementModelConfig
from seqloom.nn.models import ElementModel
from seqloom.nn.types import Padded, Subwords
from seqloom.recipes.families import tagger
from seqloom.tasks.tag import DEFAULT_WINDOW, SHORTEST_WINDOW, features, window_size, windows

VOCABULARY = 30


def built(config: ElementModelConfig) -> ElementModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return config.build().eval()


def model_of(recipe: str) -> ElementModel:
    return built(tagger(recipe, inputs=TokensConfig(vocab_size=VOCABULARY), num_tags=3, size="nano"))


def text(*lengths: int) -> Padded:
    generator = torch.Generator().manual_seed(1)
    return Padded.stack([torch.randint(0, VOCABULARY, (length,), generator=generator) for length in lengths])


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40), size=st.integers(1, 12))
def test_every_word_is_answered_once_by_a_window_that_holds_it(sizes: list[int], size: int) -> None:
    ends = np.cumsum(sizes)
    found = windows(ends, size)
    assert [word for one in found for word in range(one.first, one.last)] == list(range(len(sizes)))
    for one in found:
        assert one.start <= one.first <= one.last <= one.stop
        assert sum(sizes[one.start : one.stop]) <= size or one.stop == one.start + 1


@settings(max_examples=60)
@given(length=st.integers(1, 200), size=st.integers(4, 24))
def test_every_step_is_answered_with_a_quarter_of_a_window_on_both_sides_or_all_there_is(
    length: int, size: int
) -> None:
    for one in windows(np.arange(1, length + 1), size):
        assert one.first - one.start >= size // 4 or one.start == 0
        assert one.stop - one.last >= size // 4 - 1 or one.stop == length


def test_a_model_that_sees_a_few_neighbors_answers_as_if_there_were_no_windows() -> None:
    model, inputs = model_of("cnn"), text(90, 7, 41)
    with torch.no_grad():
        whole, parts = model.features(inputs), features(model, inputs, 32)
    torch.testing.assert_close(parts.values, whole.values)
    assert torch.equal(parts.lengths, whole.lengths)


def test_words_in_subwords_are_never_torn_and_answer_as_if_there_were_no_windows() -> None:
    pieces = text(60, 9)
    firsts = Padded.stack([torch.arange(0, 60, 3), torch.tensor([0, 4, 8])])
    model, inputs = model_of("cnn"), Subwords(pieces, firsts)
    with torch.no_grad():
        torch.testing.assert_close(features(model, inputs, 32).values, model.features(inputs).values)


def test_vectors_are_read_in_windows_too() -> None:
    model = built(tagger("cnn", inputs=VectorsConfig(size=2), num_tags=3, size="nano"))
    inputs = Padded.stack([torch.randn(80, 2, generator=torch.Generator().manual_seed(0)), torch.ones(3, 2)])
    with torch.no_grad():
        torch.testing.assert_close(features(model, inputs, 32).values, model.features(inputs).values)


def test_what_fits_into_a_window_is_read_as_it_is() -> None:
    model, inputs = model_of("bilstm"), text(32, 5)
    with torch.no_grad():
        assert torch.equal(features(model, inputs, 32).values, model.features(inputs).values)


def test_learned_positions_have_no_end_for_a_tagger() -> None:
    config = tagger("transformer", inputs=TokensConfig(vocab_size=VOCABULARY), num_tags=3, size="nano")
    learned = replace(config, encoder=replace(config.encoder, position="learned", max_length=24))
    model = built(learned)
    assert window_size(model, 500) == 24
    with torch.no_grad():
        found = features(model, text(100), window_size(model, 500))
    assert found.values.shape[:2] == (1, 100)
    assert bool(found.values.abs().sum(dim=-1).gt(0).all())


def test_a_window_is_as_long_as_the_longest_input_of_training() -> None:
    model = model_of("bilstm")
    assert [window_size(model, longest) for longest in (0, 5, 700)] == [DEFAULT_WINDOW, SHORTEST_WINDOW, 700]
