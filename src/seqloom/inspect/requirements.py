"""Requirements of views: each function raises an error with the reason if a view is not available.

Requirements are checked on the layers of a model, its task and the input, never on the name of its family. The reasons
are shown by `Inspection.missing` and on the command line.
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

Question = Callable[[Subject, Reading], object]  # raises SeqloomError if the view is not available


def reason(question: Question, subject: Subject, reading: Reading) -> str | None:
    """The reason why a requirement is not met, or None."""
    try:
        question(subject, reading)
    except SeqloomError as error:
        return error.problem
    return None


def anything(_subject: Subject, _reading: Reading) -> None:
    """No requirement."""


def texts_read(subject: Subject) -> tuple[int, ...]:
    """The numbers of texts that an input may have; empty for a model that does not read text."""
    if isinstance(subject.model, Embedder):
        return (1, 2)  # a vector, or two texts to compare
    kind = subject.task.input_spec.schema.input
    return (kind.num_columns,) if kind.reads_tokens else ()


def words(subject: Subject, _reading: Reading) -> None:
    """An input of words."""
    if not (kind := subject.task.input_spec.schema.input).reads_tokens:
        raise ConfigError(f"an input of kind {kind} has no words to swap")


def an_answer(subject: Subject, reading: Reading) -> None:
    """A score that can be explained without naming an answer."""
    if isinstance(subject.model, Embedder) and not isinstance(reading.inputs, Both):
        raise ConfigError("an embedding model has no single answer: give two texts, or choose a dimension with answer=")


def elements(_subject: Subject, reading: Reading) -> None:
    """An input of tokens or time steps."""
    if isinstance(reading.inputs, Tensor):
        raise ConfigError("an image has no tokens: choose one answer, or activation_maps")


def answers_by_element(subject: Subject, reading: Reading) -> None:
    """An input of tokens or time steps, and a score to explain."""
    elements(subject, reading)
    an_answer(subject, reading)


def contexts(subject: Subject, reading: Reading) -> None:
    """Tokens with contextual vectors."""
    elements(subject, reading)
    states(subject, reading)


def attention(subject: Subject, reading: Reading) -> None:
    """Attention layers."""
    layers_of(subject, reading)


def keys(subject: Subject, reading: Reading) -> None:
    """Attention layers with queries and keys."""
    layers = layers_of(subject, reading)
    if all(isinstance(subject.model.get_submodule(layer.path), Pooler) for layer in layers):
        raise ConfigError("this model uses attention only for pooling: there are no keys")


def alignment(subject: Subject, reading: Reading) -> None:
    """Cross-attention layers."""
    if len(reading.sides) < 2 or all(layer.same for layer in layers_of(subject, reading, reading.sides[-1].name)):
        raise ConfigError("this model has no alignment: its target does not attend to a source")


def believable(subject: Subject, reading: Reading) -> None:
    """Probabilities that can be compared, and attention or tokens to attribute them to."""
    require_distributions(subject)
    if reason(attention, subject, reading) is not None:
        elements(subject, reading)


def gates(subject: Subject, reading: Reading) -> None:
    """LSTM or GRU layers."""
    found = (place for side in reading.sides for place in places(subject.model, reading, (Recurrent,), side.name))
    if not any(place.module(subject.model).cell.gates for place in found):
        raise ConfigError("this model has no gates: none of its layers is an LSTM or a GRU")


def recurrence(subject: Subject, _reading: Reading) -> None:
    """Recurrent layers."""
    if not any(isinstance(module, Recurrent) for module in subject.model.modules()):
        raise ConfigError("this model has no recurrent layers")


def states(subject: Subject, reading: Reading) -> None:
    """Layers between input and output."""
    layers_with_states(subject, reading)


def filters(subject: Subject, reading: Reading) -> None:
    """Convolutions over tokens."""
    convolution_place(subject, reading, None, None)


def filter_activations(subject: Subject, reading: Reading) -> None:
    """Convolutions over tokens, and a score to explain."""
    filters(subject, reading)
    an_answer(subject, reading)


def picture_filters(subject: Subject, _reading: Reading) -> None:
    """Convolutions over pixels."""
    if not HAS["picture filters"](subject.model):
        raise ConfigError("this model has no image filters: it has no 2-D convolution over images")


def two_texts(_subject: Subject, reading: Reading) -> None:
    """A model that compares two texts."""
    if not isinstance(reading.inputs, Both):
        raise ConfigError("this view needs a model that compares two texts")


def ngrams(subject: Subject, _reading: Reading) -> None:
    """A linear model of n-grams."""
    if not any(isinstance(module, Ngrams | Tfidf) for module in subject.model.modules()):
        raise ConfigError("only a linear model reads n-grams")


def next_tokens(subject: Subject, reading: Reading) -> None:
    """A model that generates text."""
    if reading.targets is None:
        problem = f"a model for {subject.task.name} does not predict next tokens"
        raise ConfigError(problem, fix="choose a language model or a translator")


def tags(subject: Subject, _reading: Reading) -> Tag:
    """A tagger."""
    if not isinstance(subject.task, Tag):
        raise ConfigError(f"a model for {subject.task.name} does not predict tags", fix="choose a model for tag")
    return subject.task
