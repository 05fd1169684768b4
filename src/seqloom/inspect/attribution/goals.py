"""Which number of the answer is explained: a class, a tag at a place, a next symbol, a similarity, all of it together.

One answer may be explained against another ("why *cat* and not *dog*"): then the number is the difference of their
scores, and what speaks for both of them falls out (contrastive explanations, Yin and Neubig 2022).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.inspect.attention_rows import chosen_token
from seqloom.inspect.flow import still
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import ModelAnswer, Reading, Subject, decided
from seqloom.inspect.tokens import Token


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
    rows = _rows(reading, at)
    said = _said(subject, reading, found) if answer is None else (subject.column(answer),) * len(reading.rows)
    other = None if against is None else subject.column(against)
    answers = tuple(_answer(subject, found, ModelAnswer(row, said[row], other)) for row in rows)
    if len(answers) > 1:
        return Goal(answers, _together(subject, answers, one_name=answer is not None))
    return Goal(answers, named(subject, reading, answers[0]))


def every_goal(subject: Subject, reading: Reading, rows: Sequence[int]) -> tuple[Goal, ...]:
    """A goal for each of some rows: what the model says there, or was made to say."""
    found = _scores(subject, reading)
    said = _said(subject, reading, found)
    answers = [_answer(subject, found, ModelAnswer(row, said[row])) for row in rows]
    return tuple(Goal((answer,), named(subject, reading, answer)) for answer in answers)


def named(subject: Subject, reading: Reading, answer: ModelAnswer) -> str:
    """An answer in words."""
    if len(reading.sides) > 1 and reading.said is None:
        return "the similarity"
    said = _quoted(subject, answer.column)
    less = "" if answer.against is None else f" rather than {_quoted(subject, answer.against)}"
    if len(reading.rows) == 1:
        return said + less
    if reading.said is None:
        return f"{said}{less} at “{reading.rows[answer.row]}” ({answer.row})"
    after = "after" if len(reading.sides) == 1 else "as"
    where = f"“{reading.rows[answer.row]}” ({answer.row})" if len(reading.sides) == 1 else f"symbol {answer.row}"
    return f"{said}{less} {after} {where}"


def _together(subject: Subject, answers: Sequence[ModelAnswer], *, one_name: bool) -> str:
    """Several answers in words: what the model says in each row, or everywhere the one that was asked for."""
    count = "both" if len(answers) == 2 else f"all {len(answers):,}"
    less = "" if answers[0].against is None else f" rather than {_quoted(subject, answers[0].against)}"
    if not one_name:
        return f"{count} answers{less} together"
    return f"{_quoted(subject, answers[0].column)}{less} in {count} rows together"


def label_of(subject: Subject, reading: Reading, goal: Goal) -> str | None:
    """The one answer of a goal as programs compare it; None where it is a sum of several, or a similarity."""
    is_similarity = len(reading.sides) > 1 and reading.said is None
    return None if is_similarity or len(goal.answers) > 1 else subject.name(goal.answers[0].column)


def _quoted(subject: Subject, column: int) -> str:
    """The name of an answer; one that is a number and no label has none."""
    name = subject.name(column)
    unnamed = name == str(column) and not subject.task.meaning.schema.labels
    return f"number {name}" if unnamed else f"“{name}”"


@torch.no_grad()
def _scores(subject: Subject, reading: Reading) -> Tensor:
    with still(subject.model):
        return scores(subject, reading.inputs)[0]


def _rows(reading: Reading, at: int | str | None) -> tuple[int, ...]:
    if at is not None:
        return (chosen_token([Token(row) for row in reading.rows], at),)
    if reading.said is not None and len(reading.sides) == 1:
        return (len(reading.rows) - 1,)
    return tuple(range(len(reading.rows)))


def _answer(subject: Subject, found: Tensor, meant: ModelAnswer) -> ModelAnswer:
    """The answer that is meant; DataError for one that the scores [R,K] have not, or against itself."""
    for each in (meant.column, meant.against):
        if each is not None and not 0 <= each < found.shape[1]:
            raise DataError(
                f"there is no answer {each}", fix=f"the answers are numbered from 0 to {found.shape[1] - 1}"
            )
    if meant.column == meant.against:
        raise DataError(f"“{subject.name(meant.column)}” was asked for against itself", fix="name two answers")
    return meant


def _said(subject: Subject, reading: Reading, found: Tensor) -> tuple[int, ...]:
    """What was said in each row; behind the end of a running text nothing was yet, and the likeliest is meant."""
    if reading.rows == ("vector",):
        raise DataError(
            f"a vector has {found.shape[1]} numbers, and none of them is the answer",
            fix="compare two texts, or name the number with answer=",
        )
    if reading.said is None:
        return tuple(decided(subject, found))
    if len(reading.sides) > 1:
        return reading.said
    return (*reading.said[:-1], *decided(subject, found[-1:]))
