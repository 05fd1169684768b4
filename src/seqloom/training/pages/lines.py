"""The lines of a run's journals as typed values; what a later version adds to a line is passed over."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seqloom.errors import DamagedError
from seqloom.files.jsonl import read_lines
from seqloom.training.state import Environment

Kind = TypeVar("Kind")


class StepLine(msgspec.Struct, frozen=True):
    """Some steps: see `reports.Stepped`; None where a number was not finite."""

    step: int
    epoch: int
    loss: float | None
    rate: float
    norm: float | None
    largest: float | None
    clipped: float
    skipped: int
    symbols: int
    padding: float
    share: float = 0.0


class SampleLine(msgspec.Struct, frozen=True):
    """One example of a validation."""

    input: str
    said: str
    true: str
    right: bool | None


class ValidationLine(msgspec.Struct, frozen=True):
    """A look at the dev part."""

    step: int
    epoch: int
    metrics: dict[str, float | None]
    best: bool
    samples: tuple[SampleLine, ...] = ()
    chosen: bool | None = None  # None in the journals of old runs, which shipped the best


class EndLine(msgspec.Struct, frozen=True):
    """The run is over, or stopped for now."""

    step: int
    why: str
    best_step: int = 0
    chosen_step: int = 0
    metrics: dict[str, float | None] = {}


class BegunLine(msgspec.Struct, frozen=True):
    """The run began or went on."""

    step: int
    parameters: int
    trained: int
    checkpoint_bytes: int
    environment: Environment
    steps: int | None = None
    said: tuple[str, ...] = ()


class PaceLine(msgspec.Struct, frozen=True):
    """How fast it went."""

    step: int
    seconds: float
    symbols_per_second: float | None = None
    waited: float | None = None
    memory: int = 0


class NoticeLine(msgspec.Struct, frozen=True):
    """Something that people should know."""

    step: int
    code: str
    text: str
    fix: str = ""


class SavedLine(msgspec.Struct, frozen=True):
    """A checkpoint was written, or could not be."""

    step: int
    problem: str = ""


class TestLook(msgspec.Struct, frozen=True):
    """One look at the test part."""

    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float | None, float | None]] = {}
    when: str = ""
    seqloom: str = ""
    model_sha256: str = ""


def records_of(path: Path) -> tuple[dict[str, Any], ...]:
    """The whole lines of a journal; one that was torn by a crash is left out."""
    return read_lines(path).records


def of_kind(records: Iterable[dict[str, Any]], kind: str, line: type[Kind], path: Path) -> tuple[Kind, ...]:
    """The records of one kind, typed; DamagedError for one that lacks what such a line has."""
    return tuple(typed(record, line, path) for record in records if record.get("kind") == kind)


def typed(record: dict[str, Any], line: type[Kind], path: Path) -> Kind:
    """A record as a typed value."""
    try:
        return msgspec.convert(record, line)
    except msgspec.ValidationError as error:
        raise DamagedError(f"{path}: a line is not what training writes: {error}", fix="train again") from None


def paces_of_steps(records: Iterable[dict[str, Any]], reported: Collection[int], path: Path) -> tuple[PaceLine, ...]:
    """The pace at each of the reported steps that the events know, in order.

        events   begun  S10  S20 V20  V25  S30 | begun  S30  S40      S: a report of steps, V: a validation; | a kill
        paces            10   20                         30   40

    A validation has a line of the kind "pace" too, of the few steps since the report before it, often of none, which
    would draw a pace of 0. Of two lines for a step in one start the first is of the steps; and of steps that were taken
    again, after a kill, the last time counts.
    """
    found: dict[int, PaceLine] = {}
    before: int | None = None  # the step of the pace before this one, in the same start
    for record in records:
        if record.get("kind") == "begun":
            before = None
        elif record.get("kind") == "pace":
            pace = typed(record, PaceLine, path)
            if pace.step in reported and pace.step != before:
                found[pace.step] = pace
            before = pace.step
    return tuple(found[step] for step in sorted(found))
