"""Which number of the answer is explained, and where attributions are taken: the goal and the ground.

The number is that of a class, a tag at a place, a next token, a similarity, or of all of them together. One answer may
be explained against another ("why *cat* and not *dog*"): then the number is the difference of their scores, and what
speaks for both of them falls out (contrastive explanations, Yin and Neubig 2022).

The ground is the vectors of tokens, or the numbers that a model reads as they are.

    tokens     [T,D] the vector of each token, behind the input of the stack: a path between two texts goes through
                vectors that belong to no token, and never through tokens whose numbers lie in between
    vectors     [T,D] the steps themselves
    pictures    [Y*X,C] the pixels themselves

Source and target move together, so that what they are given adds up to the whole change of the score. Two texts that
are compared move one at a time, the other being what it is: with both at the same baseline they would be the same
text, and as alike as can be. Special tokens stay as they are: they stand in every input.

    baseline     zero     vectors of zeros                          unknown, mask, pad    the token, in every place
                 mean     the mean over the vocabulary, or over the steps or pixels of this input
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.attention_weights import chosen_token
from seqloom.inspect.flow import still
from seqloom.inspect.layers import call_of, changed_vectors, input_of, read_by
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import ModelAnswer, Reading, Side, Subject, Token, decided, numbered, repeated
from seqloom.nn.types import Both, Padded, Pair, Spelled, Subwords
from seqloom.text.special_tokens import MASK, PAD, UNKNOWN


class Goal(NamedTuple):
    """A number that is explained: that of one answer, or of several added up."""

    answers: tuple[ModelAnswer, ...]
    name: str  # in words

    def of(self, found: Tensor) -> Tensor:
        """[N] the number, of scores [N,R,K]."""
        first, *others = (answer.of(found) for answer in self.answers)
        return torch.stack([first, *others]).sum(dim=0) if others else first

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of its answers."""
        return tuple(answer.row for answer in self.answers)


def chosen_goal(
    subject: Subject,
    reading: Reading,
    *,
    answer: str | int | None = None,
    against: str | int | None = None,
    at: int | str | None = None,
) -> Goal:
    """The goal that is meant; without `answer` what the model says, without `at` the last row of a running text.

    Of tags and translations without `at` all answers are explained together: the sum of their scores.
    """
    found = _scores(subject, reading)
    rows: Sequence[int] = range(len(reading.rows))
    if at is not None:
        rows = (chosen_token([Token(row) for row in reading.rows], at),)
    elif reading.targets is not None and len(reading.sides) == 1:
        rows = rows[-1:]
    said = _said(subject, reading, found) if answer is None else (subject.column(answer),) * len(reading.rows)
    other = None if against is None else subject.column(against)
    answers = tuple(_answer(subject, found, ModelAnswer(row, said[row], other)) for row in rows)
    if len(answers) == 1:
        return Goal(answers, named(subject, reading, answers[0]))
    # What the model says in each row, or everywhere the one that was asked for
    count = "both" if len(answers) == 2 else f"all {len(answers):,}"
    less = "" if other is None else f" against {_quoted(subject, other)}"
    if answer is None:
        return Goal(answers, f"{count} answers{less} together")
    return Goal(answers, f"{_quoted(subject, answers[0].column)}{less} in {count} rows together")


def every_goal(subject: Subject, reading: Reading, rows: Sequence[int]) -> tuple[Goal, ...]:
    """A goal for each of some rows: what the model says there, or was made to say."""
    found = _scores(subject, reading)
    said = _said(subject, reading, found)
    answers = [_answer(subject, found, ModelAnswer(row, said[row])) for row in rows]
    return tuple(Goal((answer,), named(subject, reading, answer)) for answer in answers)


def named(subject: Subject, reading: Reading, answer: ModelAnswer) -> str:
    """An answer in words."""
    if len(reading.sides) > 1 and reading.targets is None:
        return "the similarity"
    said = _quoted(subject, answer.column)
    less = "" if answer.against is None else f" against {_quoted(subject, answer.against)}"
    if len(reading.rows) == 1:
        return said + less
    if reading.targets is None:
        return f"{said}{less} at “{reading.rows[answer.row]}” ({answer.row})"
    running = f"after “{reading.rows[answer.row]}” ({answer.row})"
    return f"{said}{less} {running if len(reading.sides) == 1 else f'as token {answer.row}'}"


def label_of(subject: Subject, reading: Reading, goal: Goal) -> str | None:
    """The one answer of a goal as programs compare it; None where it is a sum of several, or a similarity."""
    is_similarity = len(reading.sides) > 1 and reading.targets is None
    return None if is_similarity or len(goal.answers) > 1 else subject.name(goal.answers[0].column)


def _quoted(subject: Subject, column: int) -> str:
    """The name of an answer; one that is a number and no label has none."""
    name = subject.name(column)
    unnamed = name == str(column) and not subject.task.spec.schema.labels
    return f"dimension {name}" if unnamed else f"“{name}”"


@torch.no_grad()
def _scores(subject: Subject, reading: Reading) -> Tensor:
    with still(subject.model):
        return scores(subject, reading.inputs)[0]


def _answer(subject: Subject, found: Tensor, meant: ModelAnswer) -> ModelAnswer:
    """The answer that is meant; DataError for one that the scores [R,K] have not, or against itself."""
    for each in (meant.column, meant.against):
        if each is not None and not 0 <= each < found.shape[1]:
            raise DataError(f"there is no answer {each}", fix=f"choose 0 to {found.shape[1] - 1}")
    if meant.column == meant.against:
        raise DataError(f"answer and against are both “{subject.name(meant.column)}”", fix="name two different answers")
    return meant


def _said(subject: Subject, reading: Reading, found: Tensor) -> tuple[int, ...]:
    """What was said in each row; behind the end of a running text nothing was yet, and the likeliest is meant."""
    if reading.rows == ("vector",):
        raise DataError(
            f"this model predicts a vector of {found.shape[1]} numbers, not one answer",
            fix="give two texts, or choose a dimension with answer=",
        )
    if reading.targets is None:
        return tuple(decided(subject, found))
    if len(reading.sides) > 1:
        return reading.targets
    return (*reading.targets[:-1], *decided(subject, found[-1:]))


MOST_ELEMENTS = 4096  # of a pass: so many tokens at once, in as many rows as they are
TOKENS_AT_ONCE = 65_536


class GroundPlace(NamedTuple):
    """A sequence whose elements attributions are given to."""

    side: Side
    tokens: tuple[Token, ...]  # as its stack reads them
    field: str | None  # of the inputs; None where they are nothing else
    raw: Any  # one row of what the stack reads
    call: int  # how often the stack reads in the same pass before it comes to this
    text: str | None = None  # that the tokens are parts of, where it is one
    shape: tuple[int, int] | None = None  # height and width of a picture

    @property
    def is_numbers(self) -> bool:
        """Whether the model reads it as it is."""
        return self.shape is not None or (isinstance(self.raw, Padded) and self.raw.values.is_floating_point())

    @property
    def held(self) -> np.ndarray:
        """[E] which elements stay as they are."""
        return np.array([token.is_special for token in self.tokens], dtype=bool)

    def numbers(self) -> Tensor:
        """[E,D] what the model reads as it is."""
        values: Tensor = self.raw if isinstance(self.raw, Tensor) else self.raw.values
        return values[0].reshape(len(self.tokens), -1)

    def filled(self, values: Tensor) -> Any:
        """What the stack reads, of numbers [N,E,D]."""
        if self.shape is not None:
            return values.reshape(len(values), *self.raw.shape[1:])
        return repeated(self.raw, len(values)).with_values(values)

    def replaced(self, token: int) -> Any:
        """What the stack reads, with this token in place of all that are not special."""
        tokens = self.raw.words if isinstance(self.raw, Spelled) else _pieces(self.raw)
        stays = torch.from_numpy(self.held).to(tokens.values.device)
        other = tokens.with_values(torch.where(stays, tokens.values, token))
        return _spelled(other) if isinstance(self.raw, Spelled) else other


class AttributionGround(NamedTuple):
    """An input between its baseline and itself."""

    subject: Subject
    reading: Reading
    places: tuple[GroundPlace, ...]
    here: tuple[Tensor, ...]  # [E,D] of each place
    base: tuple[Tensor, ...]  # the same of the baseline; where a place does not move, `here`
    baseline: str
    moving: tuple[int, ...]  # the numbers of the places that move

    @property
    def rows_at_once(self) -> int:
        """How many variants of the input one pass reads."""
        return max(1, MOST_ELEMENTS // sum(len(values) for values in self.here))

    def moves(self) -> "list[AttributionGround]":
        """The same with the places that move together, one group after another."""
        if not isinstance(self.reading.inputs, Both) or len(self.moving) < 2:
            return [self]
        bases = [(*self.here[:at], self.base[at], *self.here[at + 1 :]) for at in self.moving]
        return [self._replace(base=base, moving=(at,)) for at, base in zip(self.moving, bases, strict=True)]

    def free(self, number: int) -> np.ndarray:
        """[E] which elements of a place move."""
        return ~self.places[number].held & (number in self.moving)

    def along(self, shares: Tensor) -> list[Tensor]:
        """[N,E,D] of each place: these shares [N] of the way from the baseline to the input."""
        steps = shares.to(self.here[0])[:, None, None]
        return [base + steps * (here - base) for here, base in zip(self.here, self.base, strict=True)]

    def scores(self, values: Sequence[Tensor]) -> Tensor:
        """[N,R,K] the scores, with [N,E,D] in each place."""
        inputs = repeated(self.reading.inputs, len(values[0]))
        changes: dict[str, dict[int, Tensor]] = {}
        for place, given in zip(self.places, values, strict=True):
            if place.is_numbers:
                part = place.filled(given)
                inputs = part if place.field is None else inputs._replace(**{place.field: part})
            else:
                changes.setdefault(place.side.stack, {})[place.call] = given
        with ExitStack() as stack:
            for path, by_call in changes.items():
                stack.enter_context(changed_vectors(self.subject.model, path, partial(_changed, by_call)))
            return scores(self.subject, inputs)


def _changed(by_call: Mapping[int, Tensor], call: int, vectors: Padded) -> Padded:
    return vectors.with_values(by_call[call]) if call in by_call else vectors


def ground_of(subject: Subject, reading: Reading, baseline: str | None = None) -> AttributionGround:
    """The ground of one input; ConfigError for a baseline that its kind of input has not.

    Without a name it is that of zeros, but the mean where texts are compared: a cosine has no value at zero.
    """
    baseline = baseline or ("mean" if isinstance(reading.inputs, Both) else "zero")
    if baseline not in BASELINES:
        raise ConfigError(f"there is no baseline '{baseline}'", fix=did_you_mean(baseline, BASELINES))
    places = places_of(reading)
    if not any((~place.held).any() for place in places):
        raise DataError("this input has only special tokens", fix="give a text with words")
    here, ends = list[Tensor](), list[Tensor]()
    with torch.no_grad(), still(subject.model):
        for place in places:
            own = place.numbers() if place.is_numbers else _through(subject, place, _pieces(place.raw))[0]
            base = BASELINES[baseline](subject, place, own)
            here.append(own)
            ends.append(torch.where(torch.from_numpy(place.held).to(own.device)[:, None], own, base))
    return AttributionGround(subject, reading, places, tuple(here), tuple(ends), baseline, tuple(range(len(places))))


def places_of(reading: Reading) -> tuple[GroundPlace, ...]:
    """Every sequence of an input, in the order of its sides."""
    inputs = reading.inputs
    fields: tuple[str | None, ...] = inputs._fields if isinstance(inputs, Pair | Both) else (None,)
    found = []
    for number, (side, field) in enumerate(zip(reading.sides, fields, strict=True)):
        raw = inputs if field is None else getattr(inputs, field)
        text = reading.given[number] if isinstance(inputs, Both) else reading.given
        shown = text if isinstance(text, str) and field != "target" else None
        shape = (raw.shape[1], raw.shape[2]) if isinstance(raw, Tensor) else None
        tokens = read_by(reading, side) if shape is None else numbered(shape[0] * shape[1])
        found.append(GroundPlace(side, tokens, field, raw, call_of(reading, side), shown, shape))
    return tuple(found)


def _pieces(raw: Any) -> Any:
    return raw.pieces if isinstance(raw, Subwords) else raw


def _through(subject: Subject, place: GroundPlace, raw: Any) -> Tensor:
    """[N,E,D] what the input of the stack makes of what it reads."""
    found: Padded = input_of(subject.model, place.side.stack)(raw)
    return found.values


def _mean(subject: Subject, place: GroundPlace, here: Tensor) -> Tensor:
    if place.is_numbers:
        return here.mean(dim=0).expand_as(here)
    tokenizer = subject.task.input_spec.tokenizer if place.field != "target" else subject.task.spec.target_tokenizer
    size = (tokenizer or subject.task.input_spec.tokenizer).vocab_size  # type: ignore[union-attr]  # tokens have one
    every = torch.arange(size, device=here.device)[:, None]
    total = torch.zeros_like(here[0])
    for tokens in torch.split(every, TOKENS_AT_ONCE):
        raw = _spelled(Padded.of(tokens)) if isinstance(place.raw, Spelled) else Padded.of(tokens)
        total += _through(subject, place, raw).sum(dim=(0, 1))
    return (total / size).expand_as(here)


def _spelled(words: Padded) -> Spelled:
    """Words without letters."""
    return Spelled(words, torch.zeros(*words.values.shape, 1, dtype=torch.uint8, device=words.values.device))


def _token(token: int, name: str) -> Callable[[Subject, GroundPlace, Tensor], Tensor]:
    def made(subject: Subject, place: GroundPlace, _here: Tensor) -> Tensor:
        if place.is_numbers:
            raise ConfigError(
                f"the baseline '{name}' needs tokens, and this model reads numbers", fix="choose zero or mean"
            )
        return _through(subject, place, place.replaced(token))[0]

    return made


BASELINES: Mapping[str, Callable[[Subject, GroundPlace, Tensor], Tensor]] = {
    "zero": lambda _subject, _place, here: torch.zeros_like(here),
    "mean": _mean,
    "unknown": _token(UNKNOWN, "unknown"),
    "mask": _token(MASK, "mask"),
    "pad": _token(PAD, "pad"),
}


@contextmanager
def at_work(ground: AttributionGround) -> Iterator[None]:
    """Inside the `with`, the model is asked for gradients without dropout.

    The fused recurrent kernels of cuDNN refuse to go backwards outside training; the plain ones do not.
    """
    with torch.enable_grad(), still(ground.subject.model), torch.backends.cudnn.flags(enabled=False):
        yield
