"""The runs of `seqloom demo`: one per task, on a built-in dataset.

Each takes less than a minute on two cores; the sizes were found by experiment.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from msgspec.structs import replace

from seqloom.config.base import with_setting
from seqloom.config.data import DataConfig, EncodingConfig, Task
from seqloom.config.models import AnyModel, EncoderDecoderConfig
from seqloom.config.tokenizers import CharactersConfig, WordsConfig
from seqloom.config.training import ByLengthConfig, EpochsConfig, LinearConfig
from seqloom.data.synthetic.grammar import worth
from seqloom.decoding.alignment import alignment as weights_of
from seqloom.inference.model import LoadedModel
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.types import Padded
from seqloom.report.figures.matrix import Matrix
from seqloom.tasks.translate import Translate
from seqloom.text.special_tokens import BEGIN, END, NAMES
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve


class Show(NamedTuple):
    """One run of the demo."""

    data: str
    recipe: str
    width: int
    about: str
    inputs: tuple[str, ...]  # predicted at the end
    encoding: EncodingConfig
    training: dict[str, Any]
    drawn: str = ""  # an input whose attention is drawn
    shaped: Callable[[Any], AnyModel] = lambda model: model  # further changes that make the recipe small
    limit: Callable[[], str] = lambda: ""  # the best possible score, shown next to the score


def _shallow(model: EncoderDecoderConfig) -> EncoderDecoderConfig:
    """The translator with one recurrent layer on each side: it learns to align in a third of the steps."""
    encoder = replace(model.encoder, repeat=1)
    return replace(model, encoder=encoder, decoder=replace(model.decoder, layers=model.decoder.layers[-2:]))


def _floor() -> str:
    """The lowest perplexity on the grammar.

    >>> _floor()
    'the lowest possible perplexity on this data is 5.13: the grammar is partly random'
    """
    return f"the lowest possible perplexity on this data is {worth().perplexity:.2f}: the grammar is partly random"


def _plan(epochs: int, lr: float, batch_tokens: int) -> dict[str, Any]:
    schedule = LinearConfig(warmup=20)
    batching, duration = ByLengthConfig(batch_tokens=batch_tokens), EpochsConfig(epochs=epochs)
    return {"duration": duration, "lr": lr, "batching": batching, "schedule": schedule, "keep_checkpoints": 1}


WORDS, CHARACTERS = EncodingConfig(tokenizer=WordsConfig()), EncodingConfig(tokenizer=CharactersConfig())
SHOWS: dict[Task, Show] = {
    "translate": Show(
        "dates",
        "seq2seq-dot",
        64,
        "English dates into the form 2019-05-03, character by character",
        ("the 3rd of May, 2019", "Fri 17-Oct-2031", "in 1984, on the twenty-first of June"),
        CHARACTERS,
        _plan(5, 1e-2, 1_024),
        drawn="the 3rd of May, 2019",
        shaped=_shallow,
    ),
    "classify": Show(
        "questions",
        "gru",
        32,
        "statements and questions with the same words in different order",
        ("the cat can see the dog", "can the cat see the dog"),
        WORDS,
        _plan(3, 1e-2, 1_024),
    ),
    "tag": Show(
        "movies",
        "bilstm",
        32,
        "questions about films, with the names in them",
        ("who wrote the silent summer", "films like a balloon for irene"),
        WORDS,
        _plan(5, 1e-2, 1_024),
    ),
    "lm": Show(
        "grammar",
        "lstm",
        64,
        "sentences of a small grammar with a known lowest perplexity",
        ("the tall fox that",),
        WORDS,
        _plan(3, 1e-2, 1_024),
        limit=_floor,
    ),
}


def resolved(show: Show) -> Resolved:
    """Return the run of a show with all settings, with the recipe as narrow as the data allows."""
    request = RunRequest(model=show.recipe, size="small", dropout=0.0, encoding=show.encoding, training=show.training)
    found = resolve(DataConfig(train=(show.data,)), request)
    model = show.shaped(with_setting(found.config.model, "width", show.width))
    return found._replace(config=replace(found.config, model=model))


def alignment(loaded: LoadedModel, text: str) -> Matrix:
    """Return the attention of a translator while it decodes: a row for each output token, in percent."""
    task, tokenizer = loaded.task, loaded.spec.tokenizer
    assert isinstance(task, Translate) and tokenizer is not None, "the show reads and writes text"
    tokens = torch.from_numpy(tokenizer.encode([text]).values.astype(np.int64)).to(loaded.device)
    source = Padded.of(tokens[None])
    (written,) = task.written(loaded.model, source)
    target = Padded.of(tokens.new_tensor([[BEGIN, *written]]))
    attention = weights_of(cast(EncoderDecoder, loaded.model), source, target)
    assert attention is not None, "the show has a model that aligns"
    written_text = task.tokenizer.decode(written)
    return Matrix(
        title=f'Attention of the model while it writes "{written_text}"',
        rows=[*written_text, NAMES[END]],
        columns=[tokenizer.piece(token) for token in tokens.tolist()],
        values=[[round(100 * weight) for weight in row] for row in attention.tolist()],
        caption="Attention weights in percent: rows are output characters, columns are input characters.",
    )
