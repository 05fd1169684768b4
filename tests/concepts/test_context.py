"""Row 16 of the table of concepts: a word has one vector of its own, and another one in every company.

    the clerk left the bank about the loan      the heron left the bank among the reeds
                       ▲                                          ▲
                       └── one static vector, two vectors in context ──┘

A bidirectional LSTM is trained to name the sense of the homograph in a sentence. Afterwards the vectors of the
homograph in sentences that it never saw are compared: uses of one sense lie closer together than uses of two.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import seqloom
from seqloom.data.synthetic.sentences import HOMOGRAPHS
from seqloom.inference.model import LoadedModel
from seqloom.nn.types import Padded

WORDS = ("bank", "bat", "light", "spring", "seal", "note", "شیر")
Senses = dict[str, list[Tensor]]  # the vectors of a word, by sense


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A bidirectional LSTM that names senses; its plan was tried with seeds 1 to 3."""
    torch.set_default_dtype(torch.float32)
    out = tmp_path_factory.mktemp("context") / "run"
    settings = {"steps": 200, "lr": 0.02, "dropout": 0.0, "seed": 0}
    return seqloom.load(
        seqloom.train("homographs", out=out, model="bilstm", size="nano", device="cpu", **settings).folder
    )


def vectors(reader: LoadedModel, word: str) -> tuple[Senses, Senses]:
    """The static and the contextual vectors of a word in the sentences of the test set."""
    static, contextual = Senses(), Senses()
    for example in HOMOGRAPHS.examples("test"):
        if not str(example.target).startswith(f"{word}/"):
            continue
        tokens = reader.spec.tokenizer.encode([str(example.input)]).values.astype(np.int64)
        place = [reader.spec.tokenizer.piece(token) for token in tokens.tolist()].index(word)
        read = Padded.of(torch.from_numpy(tokens)[None])
        with torch.no_grad():
            static.setdefault(example.target, []).append(reader.model.encoder.input(read).values[0, place])
            contextual.setdefault(example.target, []).append(reader.model.encoder(read).values[0, place])
    return static, contextual


def distances(senses: Senses) -> tuple[float, float]:
    """The mean cosine distance of two uses of one sense, and of two uses of different senses."""
    table = F.normalize(torch.stack([vector for uses in senses.values() for vector in uses]).double(), dim=1)
    sense = torch.tensor([number for number, uses in enumerate(senses.values()) for _ in uses])
    away, same = 1 - table @ table.T, sense[:, None] == sense
    pairs = ~torch.eye(len(sense), dtype=torch.bool)
    return float(away[same & pairs].mean()), float(away[~same].mean())


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_row_16_two_senses_are_further_apart_than_two_uses_of_one(reader: LoadedModel, word: str) -> None:
    static, contextual = vectors(reader, word)
    assert min(map(len, contextual.values())) >= 10
    assert distances(static) == pytest.approx((0, 0), abs=1e-6)  # one vector per word cannot tell
    one, two = distances(contextual)
    assert two > 2 * one
    assert two - one > 0.05  # more than the rounding that static vectors differ by
