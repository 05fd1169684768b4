"""A model with its task (`Subject`), and one input as the model reads it (`Reading`).

    given ──▶ Reading: tokens of each side, the tensors that the model reads ──▶ scores [N,R,K], one row for each answer

A *side* is a sequence that a stack of the model reads: the input, the source and the target of a translation, or two
texts. An answer is a row of scores: one for a text, one for each token of a tagger, one for each next token of a
language model. All views are built on this.

Views label rows and columns with tokens. A subword shows its characters of the input, with upper case, accents and
spaces; a special token shows its name.

Predictions and probabilities are computed here. Each row of scores is decided separately, except for tags: they are the
best allowed path (see seqloom.tasks.tag), and with a CRF the probability of a tag is its marginal over all paths.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.data import EncodingConfig
from seqloom.config.models import AnyModel
from seqloom.data.inputs import given_inputs
from seqloom.data.kinds.nothing import NoTarget
from seqloom.data.prepared import ExampleEncoder
from seqloom.data.problems import Ledger
from seqloom.data.schema import Examples, Schema
from seqloom.errors import DataError, RejectedError, did_you_mean
from seqloom.events import Progress, Show
from seqloom.nn.heads import CrfHead
from seqloom.nn.ops import crf
from seqloom.nn.types import Padded, Subwords, on_device
from seqloom.tasks.tag import Tag
from seqloom.tasks.task import Task
from seqloom.text.special_tokens import COUNT, NAMES, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

Given = TypeVar("Given")
Made = TypeVar("Made")
NO_WORD = -1
STAND_IN = "\ufffd"  # for a word or a character that the vocabulary lacks


class Token(NamedTuple):
    """One token that a model reads."""

    text: str  # as shown
    start: int = 0  # text[start:stop] of the input; empty for a special token
    stop: int = 0
    word: int = NO_WORD  # the number of the word that it is a part of
    id: int | None = None  # in the vocabulary; None for vectors and patches
    spaced: int = NO_WORD  # the number of the word as text.split() counts; a space belongs to the next word

    @property
    def is_special(self) -> bool:
        """Whether it is a special token: BEGIN, END, a separator."""
        return self.id is not None and self.id < COUNT and self.id != UNKNOWN

    @property
    def is_unknown(self) -> bool:
        """Whether the model reads UNKNOWN instead, because the vocabulary lacks it."""
        return self.id == UNKNOWN


def text_tokens(tokenizer: Tokenizer, text: str) -> tuple[Token, ...]:
    """The tokens of one text."""
    pieces, words, spaced = tokenizer.encode_with_offsets(text), list(_numbered_words(text)), _spaced_at(text)
    found = []
    for token, start, stop in zip(pieces.tokens.tolist(), *pieces.spans.T.tolist(), strict=True):
        if token < COUNT and token != UNKNOWN:
            found.append(Token(NAMES[token], start, start, NO_WORD, token))
            continue
        word = next((one for one in words[start:stop] if one != NO_WORD), NO_WORD)
        shown = text[start:stop] if start < stop else tokenizer.piece(token)
        found.append(Token(shown, start, stop, word, token, spaced[min(start, len(text) - 1)] if text else NO_WORD))
    return tuple(found)


def token_tokens(tokenizer: Tokenizer, tokens: Sequence[int] | np.ndarray) -> tuple[Token, ...]:
    """Tokens of ids without a text; each counts as its own word."""
    return tuple(
        Token(tokenizer.piece(int(token)), word=number if int(token) >= COUNT else NO_WORD, id=int(token))
        for number, token in enumerate(tokens)
    )


def written_tokens(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[Token, ...]:
    """Tokens of ids that a model generated, with the words of the decoded text.

    A model may split a word differently from its tokenizer; then the spaces in the tokens separate the words.
    """
    plain = [token for token in tokens if token >= COUNT or token == UNKNOWN]
    text = tokenizer.decode_copying(plain, [STAND_IN] * len(plain))
    cut = [token for token in text_tokens(tokenizer, text) if not token.is_special]
    known = [token._replace(text=NAMES[UNKNOWN]) if token.id == UNKNOWN else token for token in cut]
    if [token.id for token in known] != plain:
        known = _by_pieces(tokenizer, plain, len(text.split()))
    left = iter(known)
    return tuple(
        next(left) if token >= COUNT or token == UNKNOWN else Token(NAMES[token], id=token) for token in tokens
    )


def _by_pieces(tokenizer: Tokenizer, tokens: Sequence[int], count: int) -> list[Token]:
    """Tokens whose words are separated by the spaces in them; each one is a word if that does not fit the text."""
    found, begun, going_on = list[Token](), 0, False
    for token in tokens:
        piece = tokenizer.piece(token)
        words = len(piece.split())
        first = begun - 1 if words and going_on and not piece[0].isspace() else begun
        found.append(Token(piece, word=min(first, count - 1), id=token, spaced=min(first, count - 1)))
        begun, going_on = (first + words, not piece[-1].isspace()) if words else (begun, False)
    return found if begun == count else list(token_tokens(tokenizer, tokens))


def numbered(count: int) -> tuple[Token, ...]:
    """Tokens without a text: time steps of vectors, patches of an image."""
    return tuple(Token(str(number), word=number, spaced=number) for number in range(count))


def _numbered_words(text: str) -> Iterator[int]:
    """The number of the word of each character; punctuation marks are words, spaces are not.

    >>> list(_numbered_words("No way!"))
    [0, 0, -1, 1, 1, 1, 2]
    """
    number, going_on = -1, False
    for letter in text:
        within = unicodedata.category(letter)[0] in "LMN"
        if letter.isspace():
            yield NO_WORD
        else:
            number += 0 if within and going_on else 1
            yield number
        going_on = within


def _spaced_at(text: str) -> list[int]:
    """The number of the word of each character, as `text.split()` counts; a space belongs to the next word.

    >>> _spaced_at("No way! ")
    [0, 0, 1, 1, 1, 1, 1, 1]
    """
    ends = (letter.isspace() and at > 0 and not text[at - 1].isspace() for at, letter in enumerate(text))
    last = len(text.split()) - 1
    return [min(number, last) for number in accumulate(map(int, ends))]


class Side(NamedTuple):
    """One sequence that a stack of the model reads."""

    name: str  # input; source, target; first, second
    tokens: tuple[Token, ...]
    stack: str  # the path of the stack that reads it: encoder, decoder

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.tokens)


class Reading(NamedTuple):
    """One input as the model reads it; tensors are batches of one row."""

    given: Any
    inputs: Any  # input of the model's `features`: Padded, Subwords, Spelled, Pair, Both, or pictures
    sides: tuple[Side, ...]
    rows: tuple[str, ...]  # the label of each row: its token, or "answer"
    targets: tuple[int, ...] | None = None  # the target column of each row: next tokens, or those of a translation

    def side(self, name: str | None = None) -> Side:
        """The side of this name, or the first one."""
        if name is None:
            return self.sides[0]
        found = {side.name: side for side in self.sides}
        if name not in found:
            raise DataError(f"this input has no side '{name}'", fix=did_you_mean(name, found))
        return found[name]


Moved = Callable[[int], None]  # takes the number of parts that were finished


@dataclass(eq=False)
class _Work:
    """A block of work and its progress."""

    parts: str
    total: int
    done: int = 0


class WorkShown:
    """Nested blocks of work, whose progress is reported to a callback."""

    def __init__(self, show: Show | None = None) -> None:
        self._show, self._works = show, list[_Work]()
        self._progress: Progress | None = None

    @contextmanager
    def work(self, parts: str, total: int) -> Iterator[Moved]:
        """A block of work of `total` parts; yields a function that reports finished parts.

        >>> shown = WorkShown(lambda progress: print(progress, progress.share))
        >>> with shown.work("inputs", 2) as moved:
        ...     with shown.work("steps", 4) as stepped:
        ...         stepped(1)
        ...     moved(1)
        0 of 2 inputs 0.0
        0 of 2 inputs 0.0
        0 of 2 inputs 0.125
        1 of 2 inputs 0.5
        """
        if self._show is None:
            yield lambda _count: None
            return
        own = _Work(parts, max(1, total))

        def moved(count: int) -> None:
            own.done += count
            self._report()

        self._works.append(own)
        try:
            self._report()
            yield moved
        finally:
            self._works.remove(own)
            self._progress = self._progress if self._works else None

    def _report(self) -> None:
        share, part = 0.0, 1.0
        for work in self._works:
            share, part = share + part * min(1.0, work.done / work.total), part / work.total
        before = 0.0 if self._progress is None else self._progress.share or 0.0
        if (first := next((work for work in self._works if work.total > 1), None)) is not None:
            self._progress = Progress(first.parts, first.done, first.total)
        if self._progress is not None and self._show is not None:
            self._progress = self._progress._replace(part=max(before, min(1.0, share)))
            self._show(self._progress)


class Subject(NamedTuple):
    """A model with its task."""

    task: Task
    config: AnyModel
    model: nn.Module
    encode: Callable[[Any], Any]  # one input from Python -> a batch of one row on the model's device
    shown: WorkShown = WorkShown()  # reports to no one

    def work(self, parts: str, total: int) -> AbstractContextManager[Moved]:
        """A block of work of `total` parts; yields a function that reports finished parts."""
        return self.shown.work(parts, total)

    def made(self, parts: str, given: Sequence[Given], make: Callable[[Given], Made]) -> list[Made]:
        """The results of `make` for each input, with progress."""
        found = list[Made]()
        with self.work(parts, len(given)) as moved:
            for one in given:
                found.append(make(one))
                moved(1)
        return found

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def name(self, column: int) -> str:
        """The name of a column of the scores: a label, a tag, a token, or an index."""
        labels = self.task.spec.schema.labels
        if labels:
            return labels[column]
        return str(column) if self._writes is None else self._writes.piece(column)

    @property
    def _writes(self) -> Tokenizer | None:
        """The tokenizer of the columns; None if they are not tokens."""
        spec = self.task.spec
        return (spec.target_tokenizer or spec.tokenizer) if spec.schema.target.predicts_tokens else None

    def column(self, name: str | int) -> int:
        """The column of a label, a tag or a token; DataError if there is none."""
        labels = self.task.spec.schema.labels
        if isinstance(name, int):
            count = len(labels) or (self._writes.vocab_size if self._writes is not None else None)
            if count is not None and not 0 <= name < count:
                raise DataError(f"there is no answer {name}", fix=f"choose 0 to {count - 1}")
            return name
        if name in labels:
            return labels.index(name)
        if labels:
            raise DataError(f"the model has no answer '{name}'", fix=did_you_mean(name, labels))
        if self._writes is None and name.isdecimal():
            return int(name)
        if self._writes is None:
            raise DataError(
                f"this model predicts numbers, and '{name}' is not one of them", fix="give its index, from 0"
            )
        tokens = self._writes.encode_inner([name]).row(0)
        if len(tokens) == 1 and tokens[0] != UNKNOWN:
            return int(tokens[0])
        if name in NAMES:  # the name from `Tokenizer.piece` of a special token
            return NAMES.index(name)
        if len(tokens) != 1:
            raise DataError(f"'{name}' is {len(tokens)} tokens, but an answer is one token", fix="name one of them")
        raise DataError(
            f"'{name}' is not one of the {self._writes.vocab_size:,} tokens in the vocabulary",
            fix=f"name a token of the vocabulary, or a special one: {', '.join(NAMES)}",
        )


class ModelAnswer(NamedTuple):
    """A number of the scores: that of `column` in `row`, minus that of `against` if it is given."""

    row: int
    column: int
    against: int | None = None

    def of(self, scores: Tensor) -> Tensor:
        """[N] the number, of scores [N,R,K]."""
        found = scores[:, self.row, self.column]
        return found if self.against is None else found - scores[:, self.row, self.against]


def repeated(inputs: Any, count: int) -> Any:
    """The same input `count` times as one batch."""
    if isinstance(inputs, Tensor):
        return inputs.expand(count, *inputs.shape[1:])
    if isinstance(inputs, Padded):
        edges = None if inputs.edges is None else inputs.edges.expand(count, *inputs.edges.shape[1:])
        values = inputs.values.expand(count, *inputs.values.shape[1:])
        return Padded.of(values, inputs.lengths.expand(count), edges=edges)
    kind: Any = type(inputs)
    return kind(*(repeated(part, count) for part in inputs))


def encoding(task: Task, longest: int, room: int | None, device: torch.device) -> Callable[[Any], Any]:
    """A function that encodes one input as a batch of one row of at most `longest` tokens, or `room` positions."""
    spec = task.input_spec

    def encode(value: Any) -> Any:
        ledger, schema = Ledger(), Schema(spec.schema.input, NoTarget())
        config = EncodingConfig(max_length=longest, overlong="truncate")
        try:
            examples = Examples.of(given_inputs([value], schema.input, ledger))
            ledger.close()
            encoder = ExampleEncoder(schema, config, spec.tokenizer, None, ledger)
            inputs = schema.input.collate(encoder.columns(examples))
            ledger.close()
        except RejectedError as error:  # there is only one row, so it cannot be skipped
            found = "; ".join(str(detail["text"]) for detail in error.details)
            fix = f"give an input that is not empty; the model reads {schema.input.name}"
            raise DataError(found, fix=fix) from error
        read = inputs.pieces if isinstance(inputs, Subwords) else inputs
        if room is not None and isinstance(read, Padded) and int(read.lengths[0]) > room:
            raise DataError(
                f"the input has {int(read.lengths[0]):,} tokens, more than the {room:,} learned positions of the model",
                fix="give a shorter text",
            )
        return on_device(inputs, device)

    return encode


@torch.no_grad()
def decided(subject: Subject, found: Tensor) -> list[int]:
    """The predicted column in each row of scores [R,K]."""
    if not isinstance(subject.task, Tag):
        return [int(column) for column in found.argmax(dim=-1)]
    moves = subject.task.chain.transitions(_head(subject), found)
    return [int(tag) for tag in crf.viterbi(found[None], _length(found), moves)[0][0]]


@torch.no_grad()
def likelihoods(subject: Subject, found: Tensor) -> Tensor:
    """[R,K] the probability of each column, of scores [R,K] with one correct column in each row."""
    head = _head(subject)
    if not (isinstance(subject.task, Tag) and isinstance(head, CrfHead)):
        return found.softmax(dim=-1)
    return crf.marginals(found[None], _length(found), subject.task.chain.transitions(head, found))[0]


def target_statistics(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probabilities [R,V] of scores [R,V]; log-probability and rank of the target in each row; entropy.

    Rank 1 is the most probable; entropy and log-probabilities are in nats.
    """
    logs = scores.log_softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    mine = logs.gather(1, targets[:, None])
    return logs, mine[:, 0], 1 + (logs > mine).sum(dim=1), -(logs.exp() * logs).nan_to_num().sum(dim=1)


def _head(subject: Subject) -> Any:
    return cast(Any, subject.model).head


def _length(found: Tensor) -> Tensor:
    return torch.tensor([len(found)], device=found.device)
