"""What `seqloom demo` trains and shows: a run on an embedded set for each task, through the same door as any other.

Each is small enough for a minute on two cores, and learns what its data asks for; the sizes were found by trying.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from seqloom.config.changing import with_setting
from seqloom.config.data import DataConfig, EncodingConfig, Task
from seqloom.config.models import AnyModel, EncoderDecoderConfig
from seqloom.config.text import CharactersConfig, WordsConfig
from seqloom.config.training import ByLengthConfig, EpochsConfig, LinearConfig
from seqloom.figures import Matrix
from seqloom.loaded.model import LoadedModel
from seqloom.operators.attention import weights
from seqloom.taps import recording
from seqloom.training.front import Resolved, Wishes, resolve

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


def _shallow(model: EncoderDecoderConfig) -> EncoderDecoderConfig:
    """The translator with one recurrent layer on each side: alignments are found in a third of the steps."""
    encoder = replace(model.encoder, repeat=1)
    return replace(model, encoder=encoder, decoder=replace(model.decoder, layers=model.decoder.layers[-2:]))


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
        ("the 3rd of May, 2019", "Friday 17-OCT-2031", "in 1984, on the twenty-first of June"),
        CHARACTERS,
        _plan(5, 1e-2, 1_024),
        drawn="the 3rd of May, 2019",
        shaped=_shallow,
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
    tokenizer = loaded.meaning.tokenizer
    assert tokenizer is not None, "the show reads text"
    with recording(loaded.model, "decoder.*weights") as heard:
        (said,) = loaded.predict([text])
    (requests,) = heard.values()  # one for each step of writing
    looks = [weights(request)[0, 0, 0] for request in requests]  # [S] each
    symbols = tokenizer.encode([text]).values
    return Matrix(
        title=f'Where the model looks while it writes "{said.shown()}"',
        rows=[*said.shown(), "end"],
        columns=[tokenizer.piece(int(symbol)).replace(" ", SPACE) for symbol in symbols],
        values=[[round(100 * share) for share in look[: len(symbols)].tolist()] for look in looks],
        caption="Hundredths of the attention of each written character (down) to each character read (across).",
    )
