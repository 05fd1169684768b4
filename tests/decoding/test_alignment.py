"""The alignment of an example is the attention that the decoder used."""

import pytest
import torch

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.decoding.alignment import alignment
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.types import Padded

SOURCE, TARGET = Padded.of(torch.arange(6, 11)[None]), Padded.of(torch.tensor([[2, 7, 8]]))


def model(name: str) -> EncoderDecoder:
    config = recipes.translator(name, source=TokensConfig(vocab_size=20), target_vocab_size=20, size="nano")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return config.build().eval()


@pytest.mark.parametrize("name", ["seq2seq-dot", "seq2seq-additive", "transformer"])
def test_each_row_is_a_distribution_over_the_source(name: str) -> None:
    found = alignment(model(name), SOURCE, TARGET)
    assert found is not None
    assert found.shape == (3, 5)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(3))


def test_it_is_the_dot_of_decoder_and_encoder_states() -> None:
    translator = model("seq2seq-dot")
    with torch.no_grad():
        memory = translator.encoder(SOURCE)
        x, state = TARGET, translator.decoder.begin(memory)
        x, _ = translator.decoder.entry.extend(x, state[0])
        for layer, part in zip(list(translator.decoder.layers)[:-1], state[1:-1], strict=True):
            x, _ = layer.extend(x, part)
        expected = (x.values[0] @ memory.values[0].T).softmax(dim=-1)
    found = alignment(translator, SOURCE, TARGET)
    assert found is not None
    torch.testing.assert_close(found, expected)


def test_a_decoder_with_one_vector_between_looks_at_nothing() -> None:
    assert alignment(model("seq2seq"), SOURCE, TARGET) is None
