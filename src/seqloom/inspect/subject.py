"""What is looked into: a model with its task, and one input as the model reads it.

    given ──▶ Reading: tokens of each side, the tensors that the model reads ──▶ scores [N,R,K], one row for each answer

A *side* is a sequence that a stack of the model reads: the input, or the source and the target of a translation, or two
texts that are compared. An answer is a row of scores: one for a whole text, one for each element of a tagger, one for
each next symbol of a language model. Everything that looks inside a model, whatever its family, stands on this.

One input from Python as the model reads it: a batch of one row.

A text that is longer than the positions of the model, empty, or of another kind than the model reads, is refused here
with what was found; what to do is said for a call from Python, not for the rows of a file.

What a model decides, of its scores, and how likely it holds each answer: the one place that says so.

Each row of scores is decided by itself, but for tags: theirs is the best lawful path (see seqloom.tasks.tag), and in
a head that is a chain the likelihood of a tag is the share of all paths that go through it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from seqloom.config.data import EncodingConfig
from seqloom.config.models import AnyModel
from seqloom.data.encoding import ExampleEncoder
from seqloom.data.inputs import given_inputs
from seqloom.data.kinds.targets.nothing import NoTarget
from seqloom.data.problems import Ledger
from seqloom.data.schema import Schema
from seqloom.errors import DataError, RejectedError, did_you_mean
from seqloom.inspect.progress import Moved, WorkShown
from seqloom.inspect.tokens import Token
from seqloom.nn.heads import CrfHead
from seqloom.nn.ops import crf
from seqloom.nn.types import Padded, Subwords, on_device
from seqloom.tasks.tag import Tag
from seqloom.tasks.task import Task
from seqloom.text.special_tokens import NAMES, UNKNOWN
from seqloom.text.tokenizer import Tokenizer


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
        writes = meaning.schema.target.says_tokens
        return (meaning.target_tokenizer or meaning.tokenizer) if writes else None

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
        if self._writes is not None:
            return _symbol(self._writes, name)
        if name.isdecimal():
            return int(name)
        raise DataError(
            f"the answers of this model are numbers, and '{name}' names none", fix="give its number, from 0"
        )


def _symbol(tokenizer: Tokenizer, name: str) -> int:
    """The symbol of a text; a special one is meant where it is called as `Tokenizer.piece` calls it."""
    symbols = tokenizer.encode_inner([name]).row(0)
    if len(symbols) == 1 and symbols[0] != UNKNOWN:
        return int(symbols[0])
    if name in NAMES:
        return NAMES.index(name)
    if len(symbols) != 1:
        raise DataError(f"'{name}' is {len(symbols)} symbols, and an answer is one", fix="name one of them")
    raise DataError(
        f"'{name}' is none of the {tokenizer.vocab_size:,} symbols that the model can say",
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
        with _worded(schema.input.name):
            examples = list(given_inputs([value], schema.input, ledger))
            ledger.close()
            inputs = schema.input.collate(
                ExampleEncoder(schema, config, meaning.tokenizer, None, ledger).columns(examples)
            )
            ledger.close()
        _require_room(inputs, room)
        return on_device(inputs, device)

    return encode


@contextmanager
def _worded(kind: str) -> Iterator[None]:
    """Inside, a refused row is one refused input: there are no other rows that could be read without it."""
    try:
        yield
    except RejectedError as error:
        found = "; ".join(str(detail["text"]) for detail in error.details)
        raise DataError(found, fix=f"give one input that is not empty: the model reads {kind}") from error


def _require_room(inputs: Any, room: int | None) -> None:
    read = inputs.pieces if isinstance(inputs, Subwords) else inputs
    if room is not None and isinstance(read, Padded) and int(read.lengths[0]) > room:
        raise DataError(
            f"{int(read.lengths[0]):,} symbols, and the learned positions of the model end at {room:,}",
            fix="look at a part of the text",
        )


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


def _head(subject: Subject) -> Any:
    return cast(Any, subject.model).head


def _length(found: Tensor) -> Tensor:
    return torch.tensor([len(found)], device=found.device)
