"""How each kind of model reads and scores an input: an input becomes a `Reading`, a reading becomes scores.

    shape              sides             scores                       a row stands for
    sequence model     input             [N,1,K] of classes, numbers  the whole input
    element model      input             [N,T,K] of tags, tokens     an element, or a word of subwords
    language model     input             [N,T,V] of next tokens      the token that comes after token t
    encoder-decoder    source, target    [N,T,V] of next tokens      token t of the target, which is predicted there
                                                                      (the decoder reads it one step later)
    embedder           first, second     [N,1,1] the cosine           the two texts together
                       input             [N,1,D] the vector           the text

If two texts have the same beginning, a causal model reads it only once:

    beginning ──step──▶ state ──step──▶ the rest of one        rows of the beginning are the same for both
                          └────step──▶ the rest of the other

So a swap at the end of a long text costs hardly more than one pass. For attention the rest must be short to save time.
Inside an edit, or with listeners on taps, both texts are read in full.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.data.kinds.text import TextPair
from seqloom.data.kinds.words import Words
from seqloom.data.values import plain
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.flow import still
from seqloom.inspect.subject import (
    NO_WORD,
    Reading,
    Side,
    Subject,
    Token,
    numbered,
    text_tokens,
    token_tokens,
    written_tokens,
)
from seqloom.nn.models import ElementModel, Embedder, EncoderDecoder, LanguageModel, SequenceModel
from seqloom.nn.ops.kernels import OPERATORS, named
from seqloom.nn.taps import Tap
from seqloom.nn.types import Both, Padded, Pair, Spelled, Subwords
from seqloom.tasks.encoders import sequences
from seqloom.tasks.lm import begun
from seqloom.tasks.translate import Translate
from seqloom.text.special_tokens import BEGIN, END, NAMES, SEPARATOR


class Shape(NamedTuple):
    """How one kind of model reads an input and scores it."""

    read: Callable[[Subject, Any, str | None], Reading]
    scores: Callable[[Any, Any], Tensor]  # (model, inputs) -> [N,R,K], with gradients


def read(subject: Subject, given: Any, *, target: str | None = None) -> Reading:
    """One input as the model reads it; `target` is the translation to inspect, or the model translates."""
    shape = _shape(subject.model)
    if target is not None and shape is not SHAPES[EncoderDecoder]:
        raise ConfigError(
            f"target is only for translation, and the task is {subject.task.name}", fix="leave target out"
        )
    return shape.read(subject, plain(given), target)


def scores(subject: Subject, inputs: Any) -> Tensor:
    """[N,R,K] the scores of a batch of inputs; gradients are enabled by the caller."""
    return _shape(subject.model).scores(subject.model, inputs)


def left_out(subject: Subject, reading: Reading) -> int:
    """The number of truncated tokens of an input."""
    given = reading.given if isinstance(reading.inputs, Both) else [reading.given]  # for a translation, the source
    return sum(len(cut_off(subject, one, side.tokens)) for one, side in zip(given, reading.sides, strict=False))


def truncation_notes(subject: Subject, readings: Sequence[Reading]) -> tuple[str, ...]:
    """A note that inputs were truncated; empty if the model reads all of them."""
    cut = [(reading, more) for reading in readings if (more := left_out(subject, reading))]
    if not cut:
        return ()
    reading, more = cut[0]
    # Number of given sides: for a translation only the source
    given_sides = 2 if isinstance(reading.inputs, Both) else 1
    known = sum(not token.is_special for side in reading.sides[:given_sides] for token in side.tokens)
    if len(readings) > 1:
        return (f"{len(cut):,} of {len(readings):,} inputs were truncated to the maximum length.",)
    return (f"The input was truncated: the model reads {known:,} tokens, {more:,} are left out.",)


def _shape(model: nn.Module) -> Shape:
    return SHAPES[type(model)]


def _read_input(subject: Subject, given: Any, _target: str | None) -> Reading:
    inputs = subject.encode(given)
    return Reading(given, inputs, (Side("input", _tokens(subject, given, inputs), "encoder"),), ("answer",))


def _read_elements(subject: Subject, given: Any, _target: str | None) -> Reading:
    inputs = subject.encode(given)
    tokens = _tokens(subject, given, inputs)
    rows = tuple(token.text for token in tokens)
    if isinstance(inputs, Subwords):
        firsts = inputs.firsts.values[0, : int(inputs.firsts.lengths[0])].tolist()
        letters = ["".join(one.text for one in tokens[first:] if one.word == tokens[first].word) for first in firsts]
        rows = tuple(word or tokens[first].text for word, first in zip(letters, firsts, strict=True))
    return Reading(given, inputs, (Side("input", tokens, "encoder"),), rows)


def _read_running(subject: Subject, given: Any, _target: str | None) -> Reading:
    encoded: Padded = subject.encode(given)
    tokens = (Token(NAMES[BEGIN], id=BEGIN), *_tokens(subject, given, encoded))
    inputs = begun(encoded)
    after = cut_off(subject, given, tokens)  # a truncated text does not continue with END
    said = (*inputs.values[0, 1:].tolist(), after[0].id if after else END)
    return Reading(given, inputs, (Side("input", tokens, "decoder"),), tuple(token.text for token in tokens), said)


def _read_pair(subject: Subject, given: Any, target: str | None) -> Reading:
    source = subject.encode(given)
    task = cast(Translate, subject.task)
    written = task.written(subject.model, source)[0] if target is None else task.tokenizer.encode_inner([target]).row(0)
    targets = (*(int(token) for token in written if token != END), END)
    inputs = Pair(source, Padded.of(torch.tensor([[BEGIN, *targets[:-1]]], device=subject.device)))
    if target is None:
        known = written_tokens(task.tokenizer, targets)
    else:
        tokens = (token for token in text_tokens(task.tokenizer, target) if not token.is_special)
        known = (*tokens, Token(NAMES[END], len(target), len(target), NO_WORD, END))
    sides = Side("source", _tokens(subject, given, source), "encoder"), Side("target", known, "decoder")
    return Reading(given, inputs, sides, tuple(token.text for token in known), targets)


def _read_texts(subject: Subject, given: Any, _target: str | None) -> Reading:
    if isinstance(given, str):
        inputs = subject.encode(given)
        return Reading(given, inputs, (Side("input", _tokens(subject, given, inputs), "encoder"),), ("vector",))
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise DataError("this model reads one text or a pair of texts", fix="give one or two")
    both = Both(*(subject.encode(text) for text in given))
    named = zip(("first", "second"), given, both, strict=True)
    sides = tuple(Side(name, _tokens(subject, text, x), "encoder") for name, text, x in named)
    return Reading(TextPair(*given), both, sides, ("similarity",))


def _tokens(subject: Subject, given: Any, inputs: Any) -> tuple[Token, ...]:
    """The tokens of an input that the model reads, without truncated ones."""
    kind, tokenizer = subject.task.input_spec.schema.input, subject.task.input_spec.tokenizer
    if tokenizer is None or not kind.reads_tokens:  # elements that the first layer sees: steps of vectors, patches
        with torch.no_grad():
            seen: Padded = inputs if isinstance(inputs, Padded) else cast(Any, subject.model).encoder.input(inputs)
        return numbered(int(seen.lengths[0]))
    x = inputs.pieces if isinstance(inputs, Subwords) else inputs.words if isinstance(inputs, Spelled) else inputs
    tokens = [int(token) for token in x.values[0, : int(x.lengths[0])]]
    for found in _candidates(tokenizer, given):
        if [token.id for token in found[: len(tokens)]] == tokens:
            return found[: len(tokens)]
    return token_tokens(tokenizer, tokens)


def cut_off(subject: Subject, given: Any, read: tuple[Token, ...]) -> list[Token]:
    """The truncated tokens of an input, without special tokens."""
    if subject.task.input_spec.tokenizer is None or any(token.id is None for token in read):
        return []
    known = [token.id for token in read if not token.is_special]
    for candidate in _candidates(subject.task.input_spec.tokenizer, given):
        found = [token for token in candidate if not token.is_special]
        if [token.id for token in found[: len(known)]] == known:
            return found[len(known) :]
    return []


def _candidates(tokenizer: Any, given: Any) -> list[tuple[Token, ...]]:
    """The ways in which an input may have been tokenized, the most probable first."""
    if isinstance(given, str):
        return [text_tokens(tokenizer, given)]
    if isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(one, str) for one in given):
        first, second = (text_tokens(tokenizer, one) for one in given)
        count = 1 + max((token.word for token in first), default=NO_WORD)
        moved = tuple(token._replace(word=token.word + count if token.word != NO_WORD else NO_WORD) for token in second)
        joined = (*first, Token("SEPARATOR", id=SEPARATOR), *moved)
        return [joined, _word_tokens(tokenizer, Words.join(list(given)))]
    return [_word_tokens(tokenizer, Words.join(list(given)))]


def _word_tokens(tokenizer: Any, words: Words) -> tuple[Token, ...]:
    """The tokens of words that are tokenized one by one, with their offsets."""
    found = []
    for number, (start, stop) in enumerate(words.spans):
        for token in text_tokens(tokenizer, words.text[start:stop]):
            if not token.is_special:
                found.append(
                    token._replace(start=start + token.start, stop=start + token.stop, word=number, spaced=number)
                )
    return tuple(found)


def _scores_of_vectors(model: Embedder, inputs: Any) -> Tensor:
    if not isinstance(inputs, Both):
        vectors: Tensor = model(inputs)
        return vectors[:, None]
    return F.cosine_similarity(model(inputs.first), model(inputs.second))[:, None, None]


SHAPES: Mapping[type[nn.Module], Shape] = {
    SequenceModel: Shape(_read_input, lambda model, inputs: model(sequences(inputs))[:, None]),
    ElementModel: Shape(_read_elements, lambda model, inputs: model(inputs).values),
    LanguageModel: Shape(_read_running, lambda model, inputs: model(inputs).values),
    EncoderDecoder: Shape(_read_pair, lambda model, inputs: model(inputs.target, inputs.source).values),
    Embedder: Shape(_read_texts, _scores_of_vectors),
}


LEAST = 256  # shortest text that is split
SHORT = 0.25  # of the text: a longer rest takes as long as the complete text


@torch.no_grad()
def scores_of_both(subject: Subject, one: Reading, other: Reading) -> tuple[Tensor, Tensor]:
    """[R,K] of each of two readings."""
    model = subject.model
    with still(model):
        if isinstance(model, LanguageModel) and not is_touched(model):
            start = beginning(one.inputs, other.inputs)
            whole = max(reading.inputs.values.shape[1] for reading in (one, other))
            if start and whole >= LEAST and whole - start <= SHORT * whole:  # worth the steps
                return _continued(model, one.inputs, other.inputs, start)
        return scores(subject, one.inputs)[0], scores(subject, other.inputs)[0]


def is_touched(model: nn.Module) -> bool:
    """Whether the model has listeners, PyTorch hooks or a chosen kernel, as inside an edit."""
    modules = list(model.modules())
    listened = any(isinstance(module, Tap) and module.is_heard for module in modules)
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    return listened or hooked or any(named(operator) is not None for operator in OPERATORS)


def beginning(one: Padded, other: Padded) -> int:
    """How many tokens two rows have in common at their beginning.

    >>> beginning(Padded.of(torch.tensor([[2, 7, 8]])), Padded.of(torch.tensor([[2, 7, 9, 9]])))
    2
    """
    shorter = min(one.values.shape[1], other.values.shape[1])
    same = one.values[0, :shorter] == other.values[0, :shorter]
    return int(same.long().cumprod(dim=0).sum())


def _continued(model: LanguageModel, one: Padded, other: Padded, start: int) -> tuple[Tensor, Tensor]:
    known, state = model.step(Padded.of(one.values[:, :start]), model.initial_state(1))
    found = []
    for x in (one, other):
        rest = x.values[:, start:]
        values = model.step(Padded.of(rest), state)[0].values[0] if rest.shape[1] else known.values[0, :0]
        found.append(torch.cat([known.values[0], values]))
    return found[0], found[1]
