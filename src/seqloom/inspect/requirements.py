"""Whether a model has what a view shows: each question raises the reason why not, and costs less than the view.

What a model lacks is seen from its layers, its task and the input, never from the name of its family. The reason is a
sentence that a person can read, for `Inspection.missing` and for the command line.
"""

from collections.abc import Callable

from torch import Tensor

from seqloom.errors import ConfigError, SeqloomError
from seqloom.inspect.attention_weights import layers_of
from seqloom.inspect.faithfulness.bench import require_distributions
from seqloom.inspect.filters import convolution_place
from seqloom.inspect.layers import HAS, places
from seqloom.inspect.states import layers_with_states
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.heads import Pooler
from seqloom.nn.inputs import Ngrams, Tfidf
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.models import Embedder
from seqloom.nn.types import Both
from seqloom.tasks.tag import Tag

Question = Callable[[Subject, Reading], object]  # raises SeqloomError if the model has nothing of the kind


def reason(question: Question, subject: Subject, reading: Reading) -> str | None:
    """Why the model lacks it, or None."""
    try:
        question(subject, reading)
    except SeqloomError as error:
        return error.problem
    return None


def anything(_subject: Subject, _reading: Reading) -> None:
    """What every model has."""


def texts_read(subject: Subject) -> tuple[int, ...]:
    """How many texts an input of the model may consist of; none where it reads no texts."""
    if isinstance(subject.model, Embedder):
        return (1, 2)  # a vector, or two that are compared
    kind = subject.task.asked.schema.input
    return (kind.num_columns,) if kind.reads_tokens else ()


def words(subject: Subject, _reading: Reading) -> None:
    """An input of words."""
    if not (kind := subject.task.asked.schema.input).reads_tokens:
        raise ConfigError(f"there are no words to swap in an input of the kind {kind}")


def an_answer(subject: Subject, reading: Reading) -> None:
    """A number that can be asked about without naming it."""
    if isinstance(subject.model, Embedder) and not isinstance(reading.inputs, Both):
        raise ConfigError("a vector has many numbers, and none of them is the answer: compare two texts, or name one")


def elements(_subject: Subject, reading: Reading) -> None:
    """An input of tokens or steps."""
    if isinstance(reading.inputs, Tensor):
        raise ConfigError("a picture has no tokens: look at one answer, or at where its filters fire")


def answers_by_element(subject: Subject, reading: Reading) -> None:
    """An input of tokens or steps, and answers that they give to."""
    elements(subject, reading)
    an_answer(subject, reading)


def contexts(subject: Subject, reading: Reading) -> None:
    """Tokens with vectors that hang on what stands around them."""
    elements(subject, reading)
    states(subject, reading)


def attention(subject: Subject, reading: Reading) -> None:
    """Layers that read others by weights."""
    layers_of(subject, reading)


def keys(subject: Subject, reading: Reading) -> None:
    """Layers whose weights come from queries and keys."""
    layers = layers_of(subject, reading)
    if all(isinstance(subject.model.get_submodule(layer.path), Pooler) for layer in layers):
        raise ConfigError("this model only pools by weights: there are no keys")


def alignment(subject: Subject, reading: Reading) -> None:
    """Layers of a target that read a source."""
    if len(reading.sides) < 2 or all(layer.same for layer in layers_of(subject, reading, reading.sides[-1].name)):
        raise ConfigError("this model aligns nothing: no layer of a target reads a source by weights")


def believable(subject: Subject, reading: Reading) -> None:
    """Answers that can be compared, and attention, or tokens that they can be attributed to."""
    require_distributions(subject)
    if reason(attention, subject, reading) is not None:
        elements(subject, reading)


def gates(subject: Subject, reading: Reading) -> None:
    """Layers of cells with gates."""
    found = (place for side in reading.sides for place in places(subject.model, reading, (Recurrent,), side.name))
    if not any(place.module(subject.model).cell.gates for place in found):
        raise ConfigError("this model has no gates: none of its layers is an LSTM or a GRU")


def recurrence(subject: Subject, _reading: Reading) -> None:
    """Layers that go from element to element."""
    if not any(isinstance(module, Recurrent) for module in subject.model.modules()):
        raise ConfigError("this model has no recurrence: nothing is carried from token to token")


def states(subject: Subject, reading: Reading) -> None:
    """Layers between the input and the answer."""
    layers_with_states(subject, reading)


def filters(subject: Subject, reading: Reading) -> None:
    """Convolutions over tokens."""
    convolution_place(subject, reading, None, None)


def fired_filters(subject: Subject, reading: Reading) -> None:
    """The same, and an answer that they give to."""
    filters(subject, reading)
    an_answer(subject, reading)


def picture_filters(subject: Subject, _reading: Reading) -> None:
    """Convolutions over pixels."""
    if not HAS["picture filters"](subject.model):
        raise ConfigError("this model has no picture filters: it reads no pictures by convolution")


def two_texts(_subject: Subject, reading: Reading) -> None:
    """Two texts that are compared."""
    if not isinstance(reading.inputs, Both):
        raise ConfigError("pairs of tokens belong to two texts that are compared, and this is none")


def ngrams(subject: Subject, _reading: Reading) -> None:
    """A linear model of n-grams."""
    if not any(isinstance(module, Ngrams | Tfidf) for module in subject.model.modules()):
        raise ConfigError("only a linear model reads n-grams")


def next_symbols(subject: Subject, reading: Reading) -> None:
    """A model that writes."""
    if reading.said is None:
        problem = f"a model for {subject.task.name} says no next symbol"
        raise ConfigError(problem, fix="choose a language model or a translator")


def tags(subject: Subject, _reading: Reading) -> Tag:
    """The task of a model that tags."""
    if not isinstance(subject.task, Tag):
        raise ConfigError(f"a model for {subject.task.name} gives no tags", fix="choose a model for tag")
    return subject.task
