"""How each shape of model is asked: an input becomes a `Reading`, and a reading becomes scores.

    shape              sides             scores                       a row stands for
    sequence model     input             [N,1,K] of classes, numbers  the whole input
    element model      input             [N,T,K] of tags, symbols     an element, or a word of subwords
    language model     input             [N,T,V] of next symbols      the symbol that comes after token t
    encoder-decoder    source, target    [N,T,V] of next symbols      symbol t of the target: the one said there, not
                                                                      the one read (the decoder reads it one later)
    embedder           first, second     [N,1,1] the cosine           the two texts together
                       input             [N,1,D] the vector           the text

A shape is an entry in a table, not a branch; a family has no place here at all. Of two texts that begin alike, a model
that never looks ahead reads the beginning once:

    beginning ──step──▶ state ──step──▶ the rest of one        rows of the beginning are the same for both
                          └────step──▶ the rest of the other

The answers to a swap at the end of a long text so cost hardly more than reading it once; views beside them cost what
they cost. A state is a value, so both go on from it. Attention reads a text faster at once than in two steps, so the
rest must be short for it to pay. An edit counts positions from the start of a pass, and whoever listens hears a whole
text: while anybody has a hand in the model, both are read whole.
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
    symbol_tokens,
    text_tokens,
    written_tokens,
)
from seqloom.nn.models import ElementModel, Embedder, EncoderDecoder, LanguageModel, SequenceModel
from seqloom.nn.ops.kernels import OPERATORS, named
from seqloom.nn.taps import Tap
from seqloom.nn.types import Both, Padded, Pair, Spelled, Subwords
from seqloom.tasks.encoders import sequences
from seqloom.tasks.lm import begun
from seqloom.tasks.translate import Translate
from seqloom.text.special_tokens import BEGIN, END, SEPARATOR


class Shape(NamedTuple):
    """How one shape of model reads an input, and what it scores."""

    read: Callable[[Subject, Any, str | None], Reading]
    scores: Callable[[Any, Any], Tensor]  # (model, inputs) -> [N,R,K], gradients going through


def read(subject: Subject, given: Any, *, target: str | None = None) -> Reading:
    """One input as the model reads it; `target` is the translation that is looked at, else what the model writes."""
    shape = _shape(subject.model)
    if target is not None and shape is not SHAPES[EncoderDecoder]:
        raise ConfigError(f"a target belongs to a translation, and the task is {subject.task.name}", fix="leave it out")
    return shape.read(subject, plain(given), target)


def scores(subject: Subject, inputs: Any) -> Tensor:
    """[N,R,K] the scores of a batch of inputs, as a `Reading` has them; gradients go through where they are wanted."""
    return _shape(subject.model).scores(subject.model, inputs)


def left_out(subject: Subject, reading: Reading) -> int:
    """How many symbols of what was given the model does not read: they lie behind the longest text that it takes."""
    given = reading.given if isinstance(reading.inputs, Both) else [reading.given]  # of a translation the source
    return sum(len(cut_off(subject, one, side.tokens)) for one, side in zip(given, reading.sides, strict=False))


def cut_said(subject: Subject, readings: Sequence[Reading]) -> tuple[str, ...]:
    """That inputs were cut, in a sentence; none where the model reads all of them."""
    cut = [(reading, more) for reading in readings if (more := left_out(subject, reading))]
    if not cut:
        return ()
    reading, more = cut[0]
    # How many sides were given: of a translation the source alone
    given_sides = 2 if isinstance(reading.inputs, Both) else 1
    known = sum(not token.is_special for side in reading.sides[:given_sides] for token in side.tokens)
    if len(readings) > 1:
        return (f"{len(cut):,} of {len(readings):,} inputs were cut: they are longer than the model reads.",)
    return (f"The input was cut: the model reads {known:,} symbols of it, and {more:,} more are left out.",)


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
    tokens = (Token("BEGIN", symbol=BEGIN), *_tokens(subject, given, encoded))
    inputs = begun(encoded)
    after = cut_off(subject, given, tokens)  # what comes next in a text that is cut is not its end
    said = (*inputs.values[0, 1:].tolist(), after[0].symbol if after else END)
    return Reading(given, inputs, (Side("input", tokens, "decoder"),), tuple(token.text for token in tokens), said)


def _read_pair(subject: Subject, given: Any, target: str | None) -> Reading:
    source = subject.encode(given)
    task = cast(Translate, subject.task)
    written = task.written(subject.model, source)[0] if target is None else task.tokenizer.encode_inner([target]).row(0)
    said = (*(int(symbol) for symbol in written if symbol != END), END)
    inputs = Pair(source, Padded.of(torch.tensor([[BEGIN, *said[:-1]]], device=subject.device)))
    if target is None:
        known = written_tokens(task.tokenizer, said)
    else:
        tokens = (token for token in text_tokens(task.tokenizer, target) if not token.is_special)
        known = (*tokens, Token("END", len(target), len(target), NO_WORD, END))
    sides = Side("source", _tokens(subject, given, source), "encoder"), Side("target", known, "decoder")
    return Reading(given, inputs, sides, tuple(token.text for token in known), said)


def _read_texts(subject: Subject, given: Any, _target: str | None) -> Reading:
    if isinstance(given, str):
        inputs = subject.encode(given)
        return Reading(given, inputs, (Side("input", _tokens(subject, given, inputs), "encoder"),), ("vector",))
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise DataError(
            "vectors are looked at of a text, or of a pair of texts that are compared", fix="give one or two"
        )
    both = Both(*(subject.encode(text) for text in given))
    named = zip(("first", "second"), given, both, strict=True)
    sides = tuple(Side(name, _tokens(subject, text, x), "encoder") for name, text, x in named)
    return Reading(TextPair(*given), both, sides, ("similarity",))


def _tokens(subject: Subject, given: Any, inputs: Any) -> tuple[Token, ...]:
    """The tokens of an input, as many as the model reads of it: what is cut off has none."""
    kind, tokenizer = subject.task.asked.schema.input, subject.task.asked.tokenizer
    if tokenizer is None or not kind.reads_tokens:  # elements that the first layer sees: steps of vectors, patches
        with torch.no_grad():
            seen: Padded = inputs if isinstance(inputs, Padded) else cast(Any, subject.model).encoder.input(inputs)
        return numbered(int(seen.lengths[0]))
    x = inputs.pieces if isinstance(inputs, Subwords) else inputs.words if isinstance(inputs, Spelled) else inputs
    symbols = [int(symbol) for symbol in x.values[0, : int(x.lengths[0])]]
    for found in _candidates(tokenizer, given):
        if [token.symbol for token in found[: len(symbols)]] == symbols:
            return found[: len(symbols)]
    return symbol_tokens(tokenizer, symbols)


def cut_off(subject: Subject, given: Any, read: tuple[Token, ...]) -> list[Token]:
    """The tokens of an input behind those that the model reads; special ones, which stand for no text, aside."""
    if subject.task.asked.tokenizer is None or any(token.symbol is None for token in read):
        return []
    known = [token.symbol for token in read if not token.is_special]
    for candidate in _candidates(subject.task.asked.tokenizer, given):
        found = [token for token in candidate if not token.is_special]
        if [token.symbol for token in found[: len(known)]] == known:
            return found[len(known) :]
    return []


def _candidates(tokenizer: Any, given: Any) -> list[tuple[Token, ...]]:
    """How an input may have been cut, the likeliest first; which one it was, the symbols themselves tell."""
    if isinstance(given, str):
        return [text_tokens(tokenizer, given)]
    if isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(one, str) for one in given):
        first, second = (text_tokens(tokenizer, one) for one in given)
        count = 1 + max((token.word for token in first), default=NO_WORD)
        moved = tuple(token._replace(word=token.word + count if token.word != NO_WORD else NO_WORD) for token in second)
        joined = (*first, Token("SEPARATOR", symbol=SEPARATOR), *moved)
        return [joined, _word_tokens(tokenizer, Words.join(list(given)))]
    return [_word_tokens(tokenizer, Words.join(list(given)))]


def _word_tokens(tokenizer: Any, words: Words) -> tuple[Token, ...]:
    """The tokens of words that are cut one by one, each piece with its place in the text."""
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


LEAST = 256  # symbols of a text that is worth the steps
SHORT = 0.25  # of the text: a longer rest is read as fast with all that stands before it


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
    """Whether somebody may act inside the model: by a tap, by a hook of torch, or by a kernel that is named.

    The last is how edits inside a recurrence reach between two elements.
    """
    modules = list(model.modules())
    heard = any(isinstance(module, Tap) and module.is_heard for module in modules)
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    return heard or hooked or any(named(operator) is not None for operator in OPERATORS)


def beginning(one: Padded, other: Padded) -> int:
    """How many symbols two rows have in common at their beginning.

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
        said = model.step(Padded.of(rest), state)[0].values[0] if rest.shape[1] else known.values[0, :0]
        found.append(torch.cat([known.values[0], said]))
    return found[0], found[1]
