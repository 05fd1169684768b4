"""What is looked into: a model with its task, and one input as the model reads it.

    given ──▶ Reading: tokens of each side, the tensors that the model reads ──▶ scores [N,R,K], one row for each answer

A *side* is a sequence that a stack of the model reads: the input, or the source and the target of a translation, or two
texts that are compared. An answer is a row of scores: one for a whole text, one for each element of a tagger, one for
each next symbol of a language model. Everything that looks inside a model, whatever its family, stands on this.

Every view names its rows and columns by tokens. A piece of a word shows the letters that it stands for in the text
that was given, so upper case, accents and spaces are seen as they were written; a special symbol shows its name.

What a model decides, and how likely it holds each answer, is said here alone. Each row of scores is decided by itself,
but for tags: theirs is the best lawful path (see seqloom.tasks.tag), and in a head that is a chain the likelihood of a
tag is the share of all paths that go through it.
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
from seqloom.data.schema import Schema
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
    """One element that a model reads."""

    text: str  # as it is shown
    start: int = 0  # text[start:stop] of what was given; nothing of it for a special symbol
    stop: int = 0
    word: int = NO_WORD  # the number of the word that it is a part of
    symbol: int | None = None  # in the vocabulary; None for vectors and patches
    spaced: int = NO_WORD  # the number of the word as text.split() counts; space belongs to the word behind it

    @property
    def is_special(self) -> bool:
        """Whether it stands for nothing that was written: BEGIN, END, a separator."""
        return self.symbol is not None and self.symbol < COUNT and self.symbol != UNKNOWN


def text_tokens(tokenizer: Tokenizer, text: str) -> tuple[Token, ...]:
    """The tokens of one text as its tokeniser cuts it."""
    pieces, words, spaced = tokenizer.encode_with_offsets(text), list(_numbered_words(text)), _spaced_at(text)
    found = []
    for symbol, start, stop in zip(pieces.symbols.tolist(), *pieces.spans.T.tolist(), strict=True):
        if symbol < COUNT and symbol != UNKNOWN:
            found.append(Token(NAMES[symbol], start, start, NO_WORD, symbol))
            continue
        word = next((one for one in words[start:stop] if one != NO_WORD), NO_WORD)
        shown = text[start:stop] if start < stop else tokenizer.piece(symbol)
        found.append(Token(shown, start, stop, word, symbol, spaced[min(start, len(text) - 1)] if text else NO_WORD))
    return tuple(found)


def symbol_tokens(tokenizer: Tokenizer, symbols: Sequence[int] | np.ndarray) -> tuple[Token, ...]:
    """Tokens of symbols whose text is not at hand: each by the name that its piece has, each a word of its own."""
    return tuple(
        Token(tokenizer.piece(int(symbol)), word=number if int(symbol) >= COUNT else NO_WORD, symbol=int(symbol))
        for number, symbol in enumerate(symbols)
    )


def written_tokens(tokenizer: Tokenizer, symbols: Sequence[int]) -> tuple[Token, ...]:
    """Tokens of symbols that a model wrote, with their words in the text that these make.

    A model may cut a word as its tokeniser never would. Pieces have their spaces in them then, which tell the words.
    """
    plain = [symbol for symbol in symbols if symbol >= COUNT or symbol == UNKNOWN]
    text = tokenizer.decode_copying(plain, [STAND_IN] * len(plain))
    cut = [token for token in text_tokens(tokenizer, text) if not token.is_special]
    known = [token._replace(text=NAMES[UNKNOWN]) if token.symbol == UNKNOWN else token for token in cut]
    if [token.symbol for token in known] != plain:
        known = _by_pieces(tokenizer, plain, len(text.split()))
    left = iter(known)
    return tuple(
        next(left) if symbol >= COUNT or symbol == UNKNOWN else Token(NAMES[symbol], symbol=symbol)
        for symbol in symbols
    )


def _by_pieces(tokenizer: Tokenizer, symbols: Sequence[int], count: int) -> list[Token]:
    """Tokens whose words are told by the spaces in their pieces; each one by itself where that is not what is read."""
    found, begun, going_on = list[Token](), 0, False
    for symbol in symbols:
        piece = tokenizer.piece(symbol)
        words = len(piece.split())
        first = begun - 1 if words and going_on and not piece[0].isspace() else begun
        found.append(Token(piece, word=min(first, count - 1), symbol=symbol, spaced=min(first, count - 1)))
        begun, going_on = (first + words, not piece[-1].isspace()) if words else (begun, False)
    return found if begun == count else list(symbol_tokens(tokenizer, symbols))


def numbered(count: int) -> tuple[Token, ...]:
    """Tokens of elements that have no text: steps of vectors, patches of a picture."""
    return tuple(Token(str(number), word=number, spaced=number) for number in range(count))


def _numbered_words(text: str) -> Iterator[int]:
    """The number of the word that each character belongs to; a mark of punctuation is a word, space is none.

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
    """The number of the word, as `text.split()` counts, of each character; space has that of the word behind it.

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
        """The tokens as they are shown."""
        return tuple(token.text for token in self.tokens)


class Reading(NamedTuple):
    """One input as the model reads it; tensors are batches of one row."""

    given: Any
    inputs: Any  # what the model's `features` take: Padded, Subwords, Spelled, Pair, Both, or pictures
    sides: tuple[Side, ...]
    rows: tuple[str, ...]  # what each answer is about: the token it stands at, or "answer"
    said: tuple[int, ...] | None = None  # the column that was said in each row: next symbols, those of a translation

    def side(self, name: str | None = None) -> Side:
        """The side of this name, or the first one."""
        if name is None:
            return self.sides[0]
        found = {side.name: side for side in self.sides}
        if name not in found:
            raise DataError(f"there is no side '{name}' of this input", fix=did_you_mean(name, found))
        return found[name]


Moved = Callable[[int], None]  # takes how many parts more are done


@dataclass(eq=False)
class _Work:
    """A piece of work and how much of it is done."""

    parts: str
    total: int
    done: int = 0


class WorkShown:
    """The work that goes on, each piece of it a part of the one before, and who is shown how far it is."""

    def __init__(self, show: Show | None = None) -> None:
        self._show, self._works = show, list[_Work]()
        self._told: Progress | None = None

    @contextmanager
    def work(self, parts: str, total: int) -> Iterator[Moved]:
        """A block of work of so many parts, and what says that some more of them are done.

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
            self._tell()

        self._works.append(own)
        try:
            self._tell()
            yield moved
        finally:
            self._works.remove(own)
            self._told = self._told if self._works else None

    def _tell(self) -> None:
        share, part = 0.0, 1.0
        for work in self._works:
            share, part = share + part * min(1.0, work.done / work.total), part / work.total
        before = 0.0 if self._told is None else self._told.share or 0.0
        if (first := next((work for work in self._works if work.total > 1), None)) is not None:
            self._told = Progress(first.parts, first.done, first.total)
        if self._told is not None and self._show is not None:
            self._told = self._told._replace(part=max(before, min(1.0, share)))
            self._show(self._told)


class Subject(NamedTuple):
    """A model that is looked into."""

    task: Task
    config: AnyModel
    model: nn.Module
    encode: Callable[[Any], Any]  # one input from Python -> a batch of one row on the model's device
    shown: WorkShown = WorkShown()  # to nobody

    def work(self, parts: str, total: int) -> AbstractContextManager[Moved]:
        """A block of work of so many parts, and what says that some more of them are done."""
        return self.shown.work(parts, total)

    def made(self, parts: str, given: Sequence[Given], make: Callable[[Given], Made]) -> list[Made]:
        """What is made of each of the given, which are the parts of a block of work."""
        found = list[Made]()
        with self.work(parts, len(given)) as moved:
            for one in given:
                found.append(make(one))
                moved(1)
        return found

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def name(self, column: int) -> str:
        """What a column of the scores stands for: a label, a tag, a symbol, the number of a number."""
        labels = self.task.meaning.schema.labels
        if labels:
            return labels[column]
        return str(column) if self._writes is None else self._writes.piece(column)

    @property
    def _writes(self) -> Tokenizer | None:
        """The tokeniser whose symbols the columns are; None where they are none."""
        meaning = self.task.meaning
        return (meaning.target_tokenizer or meaning.tokenizer) if meaning.schema.target.says_tokens else None

    def column(self, name: str | int) -> int:
        """The column of a label, a tag or a symbol; DataError for one that there is not."""
        labels = self.task.meaning.schema.labels
        if isinstance(name, int):
            count = len(labels) or (self._writes.vocab_size if self._writes is not None else None)
            if count is not None and not 0 <= name < count:
                raise DataError(f"there is no answer {name}", fix=f"the answers are numbered from 0 to {count - 1}")
            return name
        if name in labels:
            return labels.index(name)
        if labels:
            raise DataError(f"the model has no answer '{name}'", fix=did_you_mean(name, labels))
        if self._writes is None and name.isdecimal():
            return int(name)
        if self._writes is None:
            raise DataError(
                f"the answers of this model are numbers, and '{name}' names none", fix="give its number, from 0"
            )
        symbols = self._writes.encode_inner([name]).row(0)
        if len(symbols) == 1 and symbols[0] != UNKNOWN:
            return int(symbols[0])
        if name in NAMES:  # as `Tokenizer.piece` calls a special one
            return NAMES.index(name)
        if len(symbols) != 1:
            raise DataError(f"'{name}' is {len(symbols)} symbols, and an answer is one", fix="name one of them")
        raise DataError(
            f"'{name}' is none of the {self._writes.vocab_size:,} symbols that the model can say",
            fix=f"name one that it learnt, or a special one: {', '.join(NAMES)}",
        )


class ModelAnswer(NamedTuple):
    """Which number of the scores is meant: the score of `column` in `row`, less that of `against` where it is given."""

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
        return Padded.of(inputs.values.expand(count, *inputs.values.shape[1:]), inputs.lengths.expand(count))
    kind: Any = type(inputs)
    return kind(*(repeated(part, count) for part in inputs))


def encoding(task: Task, longest: int, room: int | None, device: torch.device) -> Callable[[Any], Any]:
    """What makes a batch of one row of one input; `longest` symbols are read, `room` is what positions there are."""
    meaning = task.asked

    def encode(value: Any) -> Any:
        ledger, schema = Ledger(), Schema(meaning.schema.input, NoTarget())
        config = EncodingConfig(longest=longest, too_long="cut")
        try:
            examples = list(given_inputs([value], schema.input, ledger))
            ledger.close()
            encoder = ExampleEncoder(schema, config, meaning.tokenizer, None, ledger)
            inputs = schema.input.collate(encoder.columns(examples))
            ledger.close()
        except RejectedError as error:  # one refused input: there are no other rows that could be read without it
            found = "; ".join(str(detail["text"]) for detail in error.details)
            fix = f"give one input that is not empty: the model reads {schema.input.name}"
            raise DataError(found, fix=fix) from error
        read = inputs.pieces if isinstance(inputs, Subwords) else inputs
        if room is not None and isinstance(read, Padded) and int(read.lengths[0]) > room:
            raise DataError(
                f"{int(read.lengths[0]):,} symbols, and the learned positions of the model end at {room:,}",
                fix="look at a part of the text",
            )
        return on_device(inputs, device)

    return encode


@torch.no_grad()
def decided(subject: Subject, found: Tensor) -> list[int]:
    """The column that is chosen in each row of scores [R,K]."""
    if not isinstance(subject.task, Tag):
        return [int(column) for column in found.argmax(dim=-1)]
    moves = subject.task.chain.transitions(_head(subject), found)
    return [int(tag) for tag in crf.viterbi(found[None], _length(found), moves)[0][0]]


@torch.no_grad()
def likelihoods(subject: Subject, found: Tensor) -> Tensor:
    """[R,K] how likely each column is in its row, of scores [R,K] of which one is right in each row."""
    head = _head(subject)
    if not (isinstance(subject.task, Tag) and isinstance(head, CrfHead)):
        return found.softmax(dim=-1)
    return crf.marginals(found[None], _length(found), subject.task.chain.transitions(head, found))[0]


def said_in(scores: Tensor, said: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of scores [R,V] the log-probabilities [R,V]; of the column `said` in each row its own and its rank; the entropy.

    A rank of 1 is the likeliest, entropy and log-probabilities are in nats.
    """
    logs = scores.log_softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    mine = logs.gather(1, said[:, None])
    return logs, mine[:, 0], 1 + (logs > mine).sum(dim=1), -(logs.exp() * logs).nan_to_num().sum(dim=1)


def _head(subject: Subject) -> Any:
    return cast(Any, subject.model).head


def _length(found: Tensor) -> Tensor:
    return torch.tensor([len(found)], device=found.device)
