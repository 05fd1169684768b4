"""What `seqloom demo` trains and shows: a run on an embedded set for each task, through the same door as any other.

Each is small enough for a minute on two cores, and learns what its data asks for; the sizes were found by trying.
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
from seqloom.metrics.text import TOO_SHORT
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.types import Padded
from seqloom.report.figures.matrix import Matrix
from seqloom.tasks.translate import Translate
from seqloom.text.special_tokens import BEGIN
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.wishes import Wishes

SPACE = "_"  # in the names of columns, where nothing would be seen


class Show(NamedTuple):
    """One run of the demo."""

    data: str
    recipe: str
    width: int
    about: str
    asks: tuple[str, ...]  # inputs that the trained model is asked at the end
    encoding: EncodingConfig
    training: dict[str, Any]
    drawn: str = ""  # an input whose alignment is drawn
    shaped: Callable[[Any], AnyModel] = lambda model: model  # what else the recipe needs to be small
    limit: Callable[[], str] = lambda: ""  # what no model can do better than, told beside the score


def _shallow(model: EncoderDecoderConfig) -> EncoderDecoderConfig:
    """The translator with one recurrent layer on each side: alignments are found in a third of the steps."""
    encoder = replace(model.encoder, repeat=1)
    return replace(model, encoder=encoder, decoder=replace(model.decoder, layers=model.decoder.layers[-2:]))


def _floor() -> str:
    """The lowest perplexity on the grammar.

    >>> _floor()
    'no model can have a perplexity below 5.13 here in the long run: so much of the grammar is chance'
    """
    return (
        f"no model can have a perplexity below {worth().perplexity:.2f} here in the long run: "
        "so much of the grammar is chance"
    )


def _plan(epochs: int, rate: float, budget: int) -> dict[str, Any]:
    schedule = LinearConfig(warm_up=20)
    feed, length = ByLengthConfig(budget=budget), EpochsConfig(count=epochs)
    return {"length": length, "rate": rate, "feed": feed, "schedule": schedule, "keep": 1}


WORDS, CHARACTERS = EncodingConfig(tokenizer=WordsConfig()), EncodingConfig(tokenizer=CharactersConfig())
SHOWS: dict[Task, Show] = {
    "translate": Show(
        "dates",
        "seq2seq-dot",
        64,
        "English dates, character by character, into the form 2019-05-03",
        ("the 3rd of May, 2019", "Fri 17-Oct-2031", "in 1984, on the twenty-first of June"),
        CHARACTERS,
        _plan(5, 1e-2, 1_024),
        drawn="the 3rd of May, 2019",
        shaped=_shallow,
        limit=lambda: f"bleu_tokenised is 0 whatever is answered here: {TOO_SHORT}",
    ),
    "classify": Show(
        "questions",
        "gru",
        32,
        "statements and questions of the same words: only their order tells them apart",
        ("the cat can see the dog", "can the cat see the dog"),
        WORDS,
        _plan(3, 1e-2, 1_024),
    ),
    "tag": Show(
        "movies",
        "bilstm",
        32,
        "what people ask about films, and the spans that matter in it",
        ("who wrote the silent summer", "films like a balloon for irene"),
        WORDS,
        _plan(5, 1e-2, 1_024),
    ),
    "lm": Show(
        "grammar",
        "lstm",
        64,
        "sentences of a small grammar whose next word has a known floor of surprise",
        ("the tall fox that",),
        WORDS,
        _plan(3, 1e-2, 1_024),
        limit=_floor,
    ),
}


def resolved(show: Show) -> Resolved:
    """The run of a show with nothing left open; the recipe is made as narrow as the data allows."""
    wishes = Wishes(model=show.recipe, size="small", dropout=0.0, encoding=show.encoding, training=show.training)
    found = resolve(DataConfig(train=(show.data,)), wishes)
    model = show.shaped(with_setting(found.config.model, "width", show.width))
    return found._replace(config=replace(found.config, model=model))


def alignment(loaded: LoadedModel, text: str) -> Matrix:
    """Where a translator looks while it writes: a row for each symbol that it says, in hundredths of its attention."""
    task, tokenizer = loaded.task, loaded.meaning.tokenizer
    assert isinstance(task, Translate) and tokenizer is not None, "the show reads and writes text"
    symbols = torch.from_numpy(tokenizer.encode([text]).values.astype(np.int64)).to(loaded.device)
    source = Padded.of(symbols[None])
    (written,) = task.written(loaded.model, source)
    looks = weights_of(cast(EncoderDecoder, loaded.model), source, Padded.of(symbols.new_tensor([[BEGIN, *written]])))
    assert looks is not None, "the show has a model that aligns"
    said = task.tokenizer.decode(written)
    return Matrix(
        title=f'Where the model looks while it writes "{said}"',
        rows=[*said, "end"],
        columns=[tokenizer.piece(symbol).replace(" ", SPACE) for symbol in symbols.tolist()],
        values=[[round(100 * share) for share in look] for look in looks.tolist()],
        caption="Hundredths of the attention of each written character (down) to each character read (across).",
    )
