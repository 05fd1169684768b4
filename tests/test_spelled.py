"""Words with their letters as an input: laws of padding and batches, oracles from torch, and words read as unknown."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import SpelledConfig
from seqloom.config.models import ElementModelConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.errors import ConfigError, DataError
from seqloom.nn.inputs import LetterFilters, LetterReaders, SpelledWords
from seqloom.nn.types import Batch, Padded, Spelled
from seqloom.tasks.tag import features
from seqloom.text.characters import letters_of
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.training.step import cut, elements_of, moved

WIDTH, VOCABULARY = 6, 12
BOTH = pytest.mark.parametrize("letters", ["cnn", "lstm"])
SENTENCES = st.lists(st.lists(st.text("abcé", min_size=1, max_size=9), min_size=1, max_size=4), min_size=1, max_size=4)


def config(letters: Any = "cnn", **settings: Any) -> SpelledConfig:
    return SpelledConfig(
        vocab_size=VOCABULARY, size=5, char_encoder=letters, letter_size=4, spelling_size=6, **settings
    )


def built(letters: Any = "cnn", **settings: Any) -> SpelledWords:
    torch.manual_seed(3)
    return SpelledWords(config(letters, **settings), WIDTH).double().eval()


def spelled(sentences: list[list[str]], token: int | None = None) -> Spelled:
    """The batch of some sentences; the token of a word is drawn from its length, or is the same for all."""
    rows = [torch.tensor([token or COUNT + len(word) % 6 for word in words]) for words in sentences]
    words = Padded.stack(rows)
    letters = torch.zeros(*words.values.shape, 32, dtype=torch.uint8)
    for row, some in enumerate(sentences):
        letters[row, : len(some)] = torch.from_numpy(letters_of(some).copy())
    return Spelled(words, letters[:, :, : max(1, int((letters > 0).sum(-1).max()))])


@pytest.mark.slow
@BOTH
@settings(max_examples=10)
@given(sentences=SENTENCES)
def test_a_batch_equals_its_rows_one_by_one(letters: str, sentences: list[list[str]]) -> None:
    model = built(letters)
    together = model(spelled(sentences)).values
    for row, words in enumerate(sentences):
        alone = model(spelled([words])).values[0]
        torch.testing.assert_close(together[row, : len(words)], alone)
        assert not together[row, len(words) :].any()


@BOTH
def test_columns_without_letters_change_nothing(letters: str) -> None:
    model, batch = built(letters), spelled([["abc", "a"], ["bb"]])
    wider = Spelled(batch.words, nn.functional.pad(batch.letters, (0, 5)))
    torch.testing.assert_close(model(wider).values, model(batch).values)


@BOTH
def test_unknown_words_differ_by_their_spelling_alone(letters: str) -> None:
    one, same, other = built(letters)(spelled([["abc", "abc", "acb"]], UNKNOWN)).values[0]
    torch.testing.assert_close(one, same)
    assert not torch.allclose(one, other)


def test_filters_are_the_convolution_of_torch_at_its_largest() -> None:
    reader = LetterFilters(4, 6).double()
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    expected = nn.functional.conv1d(x.transpose(1, 2), reader.weight, reader.bias, padding="same").amax(dim=2)
    torch.testing.assert_close(reader(Padded.of(x)), expected)


def test_readers_are_the_two_last_states_of_the_lstm_of_torch() -> None:
    reader, lengths = LetterReaders(4, 6).double(), torch.tensor([7, 3, 1])
    oracle = nn.LSTM(4, 3, batch_first=True, bidirectional=True).double()
    for suffix, mine in (("", reader.onward), ("_reverse", reader.back)):
        for name, weight in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), mine.weights, strict=True):
            getattr(oracle, f"{name}_l0{suffix}").data.copy_(weight)
    x = Padded.of(torch.randn(3, 7, 4, dtype=torch.float64), lengths)
    packed = nn.utils.rnn.pack_padded_sequence(x.values, lengths, batch_first=True)
    _, (last, _) = oracle(packed)
    torch.testing.assert_close(reader(x), torch.cat([last[0], last[1]], dim=1))


def test_rare_words_are_read_as_unknown_at_their_rate_in_training_alone() -> None:
    model = built(rare_from=9, unknown_rate=0.3)
    tokens = torch.arange(VOCABULARY).repeat(4_000, 1)
    assert torch.equal(model._some_unknown(tokens), tokens)
    model.train()
    torch.manual_seed(0)
    read = model._some_unknown(tokens)
    assert torch.equal(read[:, :9], tokens[:, :9])
    replaced = read[:, 9:] == UNKNOWN
    assert torch.equal(read[:, 9:][~replaced], tokens[:, 9:][~replaced])
    assert replaced.double().mean().item() == pytest.approx(0.3, abs=0.02)


def test_a_spelled_word_teaches_the_vector_of_unknown_words() -> None:
    """Without it the vector of UNKNOWN would stay as it was drawn: no word of the training set is unknown."""
    model = built(rare_from=COUNT, unknown_rate=0.9).train()
    model(spelled([["abc", "ab", "b"]] * 8)).values.sum().backward()
    assert bool(model.table.grad[UNKNOWN].any())


@BOTH
def test_pieces_of_a_batch_give_the_gradient_of_the_whole(letters: str) -> None:
    torch.manual_seed(0)
    base = recipes.tagger("bilstm", inputs=config(letters), num_tags=3, size="nano")
    model = base.build().double().eval()
    inputs = spelled([["abc", "a"], ["bb"], ["cab", "b", "a"], ["a"]])
    whole: Batch[Spelled, Tensor] = Batch(inputs, torch.randint(3, inputs.words.values.shape), tuple("abcd"))
    gradients = []
    for pieces in (1, 3):
        model.zero_grad()
        for piece in cut(whole, pieces):
            model.loss(moved(piece, torch.device("cpu"))).total.backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert elements_of(whole) == (12, 7)  # words are counted, not their letters


@BOTH
def test_windows_over_long_documents_cut_letters_with_their_words(letters: Any) -> None:
    """Without layers a vector depends on its word alone, so windows must give what one reading gives."""
    encoder = EncoderConfig(input=config(letters), width=WIDTH)
    model = ElementModelConfig(encoder=encoder, head=ClassHeadConfig(num_classes=2)).build().double().eval()
    long = spelled([[f"{'abc'[n % 3] * (n % 5 + 1)}" for n in range(23)], ["ab", "c"]])
    torch.testing.assert_close(features(model, long, 6).values, model.features(long).values)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (Padded.of(torch.zeros(1, 2, dtype=torch.int64)), r"expected words with their characters, found Padded"),
        (Spelled(Padded.of(torch.full((1, 2), 99)), torch.ones(1, 2, 3, dtype=torch.uint8)), "token 99"),
        (Spelled(Padded.of(torch.full((1, 2), 7)), torch.ones(1, 2, 3)), r"characters are bytes .*float32"),
        (Spelled(Padded.of(torch.full((1, 2), 7)), torch.ones(1, 3, 3, dtype=torch.uint8)), r"\[1, 3, 3\] for words"),
    ],
)
def test_what_is_no_batch_of_spelled_words_is_refused(raw: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        built()(raw)


def test_an_odd_size_cannot_be_shared_by_two_readers() -> None:
    with pytest.raises(ConfigError, match=r"spelling_size 7 is odd.*use 8"):
        SpelledConfig(vocab_size=9, char_encoder="lstm", spelling_size=7)
