"""The goal, the number that is explained, and the ground, the values that attributions are computed on.

The goal is the score of a class, of a tag at a position, of a next token, a similarity, or a sum of scores. A
prediction can be explained against another ("why *cat* and not *dog*"): then the goal is the difference of the two
scores, and evidence for both cancels (contrastive explanations, Yin and Neubig 2022).

The ground is the vectors of tokens, or the numbers that a model reads directly.

    tokens      [T,D] the vector of each token, after the input layer of the stack: a path between two texts passes
                through vectors that belong to no token, never through token ids
    vectors     [T,D] the steps themselves
    pictures    [Y*X,C] the pixels themselves

Source and target move together, so their values sum to the change of the score. Two compared texts move one at a time
while the other stays: with both at the same baseline they would be the same text, with the highest similarity. Special
tokens never move, because every input has them.

    baseline     zero     vectors of zeros                          unknown, mask, pad    this token in every position
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
    """The number to explain: the score of one answer, or the sum of several."""

    answers: tuple[ModelAnswer, ...]
    name: str  # in words

    def of(self, found: Tensor) -> Tensor:
        """Return the goal [N] from scores [N,R,K]."""
        first, *others = (answer.of(found) for answer in self.answers)
        return torch.stack([first, *others]).sum(dim=0) if others else first

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(answer.row for answer in self.answers)


def chosen_goal(
    subject: Subject,
    reading: Reading,
    *,
    answer: str | int | None = None,
    against: str | int | None = None,
    at: int | str | None = None,
) -> Goal:
    """Return the goal. The default of `answer` is the prediction; the default of `at` is a running text's last row.

    For tags and translations without `at`, the goal is the sum of the scores of all answers.
    """
    found = _scores(subject, reading)
    rows: Sequence[int] = range(len(reading.rows))
    if at is not None:
        rows = (chosen_token([Token(row) for row in reading.rows], at),)
    elif reading.targets is not None and len(reading.sides) == 1:
        rows = rows[-1:]
    columns = _predicted(subject, reading, found) if answer is None else (subject.column(answer),) * len(reading.rows)
    other = None if against is None else subject.column(against)
    answers = tuple(_answer(subject, found, ModelAnswer(row, columns[row], other)) for row in rows)
    if len(answers) == 1:
        return Goal(answers, named(subject, reading, answers[0]))
    # The prediction of each row, or the requested answer in every row
    count = "both" if len(answers) == 2 else f"all {len(answers):,}"
    less = "" if other is None else f" against {_quoted(subject, other)}"
    if answer is None:
        return Goal(answers, f"{count} answers{less} together")
    return Goal(answers, f"{_quoted(subject, answers[0].column)}{less} in {count} rows together")


def every_goal(subject: Subject, reading: Reading, rows: Sequence[int]) -> tuple[Goal, ...]:
    """Return one goal per row: the model's prediction, or the given target, in that row."""
    found = _scores(subject, reading)
    columns = _predicted(subject, reading, found)
    answers = [_answer(subject, found, ModelAnswer(row, columns[row])) for row in rows]
    return tuple(Goal((answer,), named(subject, reading, answer)) for answer in answers)


def named(subject: Subject, reading: Reading, answer: ModelAnswer) -> str:
    """Describe an answer in words."""
    if len(reading.sides) > 1 and reading.targets is None:
        return "the similarity"
    text = _quoted(subject, answer.column)
    less = "" if answer.against is None else f" against {_quoted(subject, answer.against)}"
    if len(reading.rows) == 1:
        return text + less
    if reading.targets is None:
        return f"{text}{less} at “{reading.rows[answer.row]}” ({answer.row})"
    running = f"after “{reading.rows[answer.row]}” ({answer.row})"
    return f"{text}{less} {running if len(reading.sides) == 1 else f'as token {answer.row}'}"


def label_of(subject: Subject, reading: Reading, goal: Goal) -> str | None:
    """Return the label of the only answer of a goal; None for a sum of answers, or a similarity."""
    is_similarity = len(reading.sides) > 1 and reading.targets is None
    return None if is_similarity or len(goal.answers) > 1 else subject.name(goal.answers[0].column)


def _quoted(subject: Subject, column: int) -> str:
    """Return the quoted label of a column, or its dimension if the model has no labels."""
    name = subject.name(column)
    unnamed = name == str(column) and not subject.task.spec.schema.labels
    return f"dimension {name}" if unnamed else f"“{name}”"


@torch.no_grad()
def _scores(subject: Subject, reading: Reading) -> Tensor:
    with still(subject.model):
        return scores(subject, reading.inputs)[0]


def _answer(subject: Subject, found: Tensor, given: ModelAnswer) -> ModelAnswer:
    """Return the answer; raise DataError if the scores [R,K] do not have it, or if it is compared with itself."""
    for each in (given.column, given.against):
        if each is not None and not 0 <= each < found.shape[1]:
            raise DataError(f"there is no answer {each}", fix=f"choose 0 to {found.shape[1] - 1}")
    if given.column == given.against:
        raise DataError(f"answer and against are both “{subject.name(given.column)}”", fix="name two different answers")
    return given


def _predicted(subject: Subject, reading: Reading, found: Tensor) -> tuple[int, ...]:
    """Return the predicted column of each row; for the last row of a running text, the most probable next token."""
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


MOST_ELEMENTS = 4096  # tokens of all variants in one forward pass
TOKENS_AT_ONCE = 65_536


class GroundPlace(NamedTuple):
    """A sequence of the input whose elements get attributions."""

    side: Side
    tokens: tuple[Token, ...]  # as its stack reads them
    field: str | None  # of the inputs; None if the input is one sequence
    raw: Any  # one row of the stack's input
    call: int  # index of the stack's call in one forward pass
    text: str | None = None  # the text of the tokens, if there is one
    shape: tuple[int, int] | None = None  # height and width of a picture

    @property
    def is_numbers(self) -> bool:
        """Whether the model reads numbers instead of tokens."""
        return self.shape is not None or (isinstance(self.raw, Padded) and self.raw.values.is_floating_point())

    @property
    def held(self) -> np.ndarray:
        """[E] True for special tokens, which keep their vectors."""
        return np.array([token.is_special for token in self.tokens], dtype=bool)

    def numbers(self) -> Tensor:
        """Return the numbers [E,D] that the model reads."""
        values: Tensor = self.raw if isinstance(self.raw, Tensor) else self.raw.values
        return values[0].reshape(len(self.tokens), -1)

    def filled(self, values: Tensor) -> Any:
        """Return the input of the stack for numbers [N,E,D]."""
        if self.shape is not None:
            return values.reshape(len(values), *self.raw.shape[1:])
        return repeated(self.raw, len(values)).with_values(values)

    def replaced(self, token: int) -> Any:
        """Return the input of the stack with this token in place of all tokens that are not special."""
        tokens = self.raw.words if isinstance(self.raw, Spelled) else _pieces(self.raw)
        stays = torch.from_numpy(self.held).to(tokens.values.device)
        other = tokens.with_values(torch.where(stays, tokens.values, token))
        return _spelled(other) if isinstance(self.raw, Spelled) else other


class AttributionGround(NamedTuple):
    """An input and its baseline."""

    subject: Subject
    reading: Reading
    places: tuple[GroundPlace, ...]
    here: tuple[Tensor, ...]  # [E,D] of each place
    base: tuple[Tensor, ...]  # of the baseline; `here` for a place that does not move
    baseline: str
    moving: tuple[int, ...]  # indices of the places that move

    @property
    def rows_at_once(self) -> int:
        """How many variants of the input fit into one forward pass."""
        return max(1, MOST_ELEMENTS // sum(len(values) for values in self.here))

    def moves(self) -> "list[AttributionGround]":
        """Split into groups of places that move together, one ground each."""
        if not isinstance(self.reading.inputs, Both) or len(self.moving) < 2:
            return [self]
        bases = [(*self.here[:at], self.base[at], *self.here[at + 1 :]) for at in self.moving]
        return [self._replace(base=base, moving=(at,)) for at, base in zip(self.moving, bases, strict=True)]

    def free(self, number: int) -> np.ndarray:
        """Return [E], True for the elements of a place that move."""
        return ~self.places[number].held & (number in self.moving)

    def along(self, shares: Tensor) -> list[Tensor]:
        """Return [N,E,D] for each place: the points at fractions [N] of the path from the baseline to the input."""
        steps = shares.to(self.here[0])[:, None, None]
        return [base + steps * (here - base) for here, base in zip(self.here, self.base, strict=True)]

    def scores(self, values: Sequence[Tensor]) -> Tensor:
        """Return the scores [N,R,K] for vectors [N,E,D] in each place."""
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
    """Return the ground of an input; raise ConfigError if its kind of input does not have this baseline.

    The default is "zero", or "mean" for a pair of texts, because a cosine is undefined at zero.
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
    """Return all sequences of an input, in the order of its sides."""
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
    """Return the vectors [N,E,D] that the input layer of the stack computes."""
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
    """Return words without characters."""
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
    """Enable gradients without dropout inside the `with`.

    The fused recurrent kernels of cuDNN have no backward pass outside training, so they are disabled.
    """
    with torch.enable_grad(), still(ground.subject.model), torch.backends.cudnn.flags(enabled=False):
        yield
