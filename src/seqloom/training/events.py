"""What a run says while it goes on: typed reports, and the files that keep them.

    Begun ─▶ Stepped ... Stepped ─▶ Validated ─▶ Saved ─▶ Stepped ... ─▶ Ended
                  └─▶ Noticed (something to know: a skipped step, a halved micro-batch, a full disk)

    metrics.jsonl   step, validation, end: numbers that an equal run repeats, so that equal runs have equal bytes
    events.jsonl    begun, pace, saved, notice, ended: what depends on the machine and the hour, such as `Pace`

Lines are collected and synced together, once a second at most, because a sync may take longer than a step. `flush`
writes what waits; the loop calls it before each checkpoint, so that a run that goes on from one finds all lines up to
it, and drops those that came after. Terminal, pages, tests and tuning consume the same reports.
"""

import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from seqloom.errors import DamagedError, DurableError, needing
from seqloom.files.disk import make_folder, write_file
from seqloom.files.jsonl import append_lines, read_lines, write_lines
from seqloom.files.layouts import RunFile
from seqloom.training.state import Environment


class Begun(NamedTuple):
    """A run begins or goes on."""

    folder: Path
    step: int  # 0, or the step of the checkpoint that it goes on from
    parameters: int
    trained: int  # parameters that are not frozen
    steps: int | None  # expected in all; None where a clock decides
    checkpoint_bytes: int
    environment: Environment
    said: tuple[str, ...]  # what was chosen and why: device, precision, kernels; what was skipped when resuming


class Pace(NamedTuple):
    """How fast it goes; never the same twice."""

    seconds: float  # since the run began, stops not counted
    symbols_per_second: float
    waited: float  # share of the time in which a step waited for data
    memory: int  # bytes: the peak of the process, or of the device
    remaining: float | None  # seconds to the end, None while unknown


class Stepped(NamedTuple):
    """Some steps since the last such report."""

    step: int
    epoch: int
    share: float  # of the whole run, 0..1
    loss: float  # mean over these steps
    rate: float
    norm: float  # of the gradient before clipping, mean over these steps
    largest: float  # of the norms
    clipped: float  # share of these steps
    skipped: int  # of these steps, because something was not finite
    symbols: int  # read since the run began
    padding: float  # share of the elements of these steps
    pace: Pace


class Sample(NamedTuple):
    """One example of a validation."""

    input: str
    said: str
    true: str
    right: bool | None  # None where answers are only better or worse


class Validated(NamedTuple):
    """A look at the dev part."""

    step: int
    epoch: int
    metrics: dict[str, float]
    best: bool
    chosen: bool  # its weights are shipped: it is the best, or later than it and as good
    samples: tuple[Sample, ...]
    pace: Pace


class Saved(NamedTuple):
    """A checkpoint was written, or could not be."""

    step: int
    path: Path
    problem: str = ""


class Noticed(NamedTuple):
    """Something that people should know."""

    step: int
    code: str  # "step.skipped", "memory.halved", "disk.full", "resume.threads", ...
    text: str
    fix: str = ""


Why = Literal["done", "patience", "stopped", "not-finite", "disk"]


class Ended(NamedTuple):
    """The run is over, or stops for now."""

    step: int
    why: Why
    best_step: int
    chosen_step: int  # whose weights are shipped: the best one, or a later one that is as good
    metrics: dict[str, float]  # of the chosen validation
    pace: Pace
    exit_code: int  # 0, 128 + signal, 4 for a disk, 5 for numbers that are not finite


Report = Begun | Stepped | Validated | Saved | Noticed | Ended


LONGEST_TEXT = 500  # characters of a sample: a line is for people, and has a limit
TOGETHER = 32  # lines that are written and synced as one: all of them or, when the disk refuses, none
BETWEEN_SYNCS = 1.0  # seconds
_KINDS = {Stepped: "step", Validated: "validation", Begun: "begun", Saved: "saved", Noticed: "notice"}


class Journal:
    """Takes reports and keeps them; `lines` says how many `metrics.jsonl` has, those that still wait counted.

    A run that goes on gives the number of lines that its checkpoint knew of; what came after is dropped.
    """

    def __init__(self, folder: Path, lines: int = 0, *, clock: Callable[[], float] = time.time) -> None:
        self.metrics_path, self.events_path = folder / RunFile.METRICS, folder / RunFile.EVENTS
        self.lines = lines
        self._clock, self._synced = clock, -math.inf
        self._metrics: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        _keep(self.metrics_path, lines)

    def take(self, report: Report) -> None:
        """Take a report, to be written now or with one of the next; `flush` says what could not be."""
        for record in metrics_of(report):
            self._metrics.append(record)
            self.lines += 1
        when = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        self._events.extend({"when": when, **record} for record in events_of(report))
        if abs(self._clock() - self._synced) >= BETWEEN_SYNCS:  # abs: clocks are also set back
            try:
                self.flush()
            except DurableError:  # lines wait for the disk; before the next checkpoint the loop hears of it
                self._synced = self._clock()

    def flush(self) -> None:
        """Bring all lines to the disk. DurableError if that fails; the lines are kept then."""
        for path, waiting in ((self.metrics_path, self._metrics), (self.events_path, self._events)):
            while waiting:
                append_lines(path, waiting[:TOGETHER])
                del waiting[:TOGETHER]
        self._synced = self._clock()


class Silent:
    """The journal of a process that keeps none: process 0 writes for all."""

    lines = 0

    def take(self, report: Report) -> None:
        """Let the report go."""

    def flush(self) -> None:
        """Return at once: there is nothing to write."""


def metrics_of(report: Report) -> list[dict[str, Any]]:
    """The records of a report that equal runs share.

    >>> from seqloom.training.events import Saved
    >>> metrics_of(Saved(20, Path("checkpoints")))
    []
    """
    if isinstance(report, Stepped | Validated):
        fields = _plain(report)
        del fields["pace"]
        return [{"kind": _KINDS[type(report)], **fields}]
    if isinstance(report, Ended):
        fields = _plain(report)
        told = ("step", "why", "best_step", "chosen_step", "metrics")
        return [{"kind": "end"} | {name: fields[name] for name in told}]
    return []


def events_of(report: Report) -> list[dict[str, Any]]:
    """The records of a report that tell of this machine."""
    if isinstance(report, Stepped | Validated):
        return [{"kind": "pace", "step": report.step, **_plain(report.pace)}]
    if isinstance(report, Ended):
        return [{"kind": "ended", **_plain(report)}]
    return [{"kind": _KINDS[type(report)], **_plain(report)}]


def _plain(value: Any) -> Any:
    """The value as JSON holds it: a number that is not finite is null, a long text is cut."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path | str):
        text = str(value).encode(errors="replace").decode()  # half a surrogate pair is no text
        return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _keep(path: Path, lines: int) -> None:
    """Drop the lines after the first so many; they belong to steps that will be taken again."""
    found = read_lines(path)
    if len(found.records) < lines:
        raise DamagedError(
            f"{path} has {len(found.records):,} lines, the checkpoint knew {lines:,}",
            fix="restore the file from a copy, or train into a new folder",
        )
    if len(found.records) > lines or found.torn:
        write_lines(path, found.records[:lines])


# Curves for TensorBoard, in records of its own writer: the extra `tensorboard` has to be installed.
#
# TensorBoard reads the files of a folder in the order of their names, so each validation writes the points since the
# last one to a file of its own, as a whole. A run that goes on from a checkpoint hides what was written after it.

LARGEST = 3.4e38  # of the floats that TensorBoard keeps
TRAIN = ("loss", "rate", "norm", "padding")  # of `Stepped`


def require_tensorboard() -> None:
    """Raise MissingExtraError where TensorBoard is not installed."""
    with needing("tensorboard"):
        import tensorboard  # noqa: F401


def drawn(reports: Iterator[Report], folder: Path) -> Iterator[Report]:
    """The same reports; their numbers are written into a folder that TensorBoard opens.

    A disk that refuses stops no run: the points wait for the next time, and `metrics.jsonl` has them all.
    """
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    waiting: list[Event] = []
    files = 0
    for report in reports:
        if isinstance(report, Begun) and report.step > 0:
            hides = SessionLog(status=SessionLog.START)  # all points from here on that earlier files hold
            waiting.append(Event(wall_time=time.time(), step=report.step + 1, session_log=hides))
        if points := points_of(report):
            values = [Summary.Value(tag=name, simple_value=value) for name, value in points.items()]
            waiting.append(Event(wall_time=time.time(), step=report.step, summary=Summary(value=values)))
        if isinstance(report, Validated | Ended) and waiting:
            name = f"events.out.tfevents.{time.time_ns() // 1_000_000:014d}.{files:06d}.seqloom"
            file = io.BytesIO()
            writer = RecordWriter(file)
            for event in (Event(wall_time=time.time(), file_version="brain.Event:2"), *waiting):
                writer.write(event.SerializeToString())
            with suppress(DurableError):
                make_folder(folder)
                write_file(folder / name, file.getvalue())
                waiting, files = [], files + 1
        yield report


def points_of(report: Report) -> dict[str, float]:
    """The numbers of a report by the names of their curves; those that no float holds are left out."""
    if isinstance(report, Stepped):
        points = {f"train/{name}": float(getattr(report, name)) for name in TRAIN}
        points["pace/symbols per second"] = report.pace.symbols_per_second
    elif isinstance(report, Validated):
        points = {f"dev/{name}": value for name, value in report.metrics.items()}
    else:
        points = {}
    return {name: value for name, value in points.items() if abs(value) <= LARGEST}
