"""The events of a run, and the two log files that keep them.

    Started ─▶ Stepped ... Stepped ─▶ Validated ─▶ Saved ─▶ Stepped ... ─▶ Ended
                  └─▶ Notice (something to know: a skipped step, a halved micro-batch, a full disk)

    metrics.jsonl   step, validation, end: numbers that do not depend on the machine, so equal runs have equal bytes
    events.jsonl    start, speed, checkpoint, notice, end: what depends on the machine and the time of day

Lines are collected and synced together, at most once a second, because a sync may take longer than a step. `flush`
writes the lines that wait. The loop calls it before each checkpoint, so a resumed run finds all lines up to its
checkpoint, and drops those after it. Terminal, report, tests and tuning consume the same events.
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

from seqloom.config.old_names import renamed_line
from seqloom.errors import DamagedError, DurableError, needing
from seqloom.files.disk import make_folder, write_file
from seqloom.files.jsonl import append_lines, read_lines, write_lines
from seqloom.files.layouts import RunFile
from seqloom.training.state import Environment


class Started(NamedTuple):
    """A run starts or is resumed."""

    folder: Path
    step: int  # 0, or the step of the checkpoint that it resumes from
    parameters: int
    trainable: int  # parameters that are not frozen
    steps: int | None  # expected in all; None where a clock decides
    checkpoint_bytes: int
    environment: Environment
    messages: tuple[str, ...]  # chosen settings with reasons: device, precision, kernels; skipped checkpoints


class Speed(NamedTuple):
    """How fast training is; never the same twice."""

    seconds: float  # of training, without the time between a stop and its resume
    tokens_per_second: float
    data_wait: float  # share of the time that steps waited for data
    memory: int  # bytes: the peak of the process, or of the device
    remaining: float | None  # seconds to the end, None while unknown


class Stepped(NamedTuple):
    """A summary of the steps since the last such event."""

    step: int
    epoch: int  # of this step, counted from 1
    progress: float  # 0..1
    loss: float  # mean over these steps
    lr: float
    grad_norm: float  # before clipping, mean over these steps
    max_grad_norm: float
    clipped: float  # share of these steps
    skipped: int  # of these steps, because a loss or gradient was not finite
    tokens: int  # read so far
    padding: float  # share of the tokens of these steps
    speed: Speed


class Sample(NamedTuple):
    """One example of a validation."""

    input: str
    predicted: str
    expected: str
    correct: bool | None  # None where predictions are not simply right or wrong


class Validated(NamedTuple):
    """A validation: the metrics on the dev set."""

    step: int
    epoch: int  # of this step, counted from 1
    metrics: dict[str, float]
    best: bool
    chosen: bool  # its weights go to RUN/model: it is the best one, or a later one that is as good
    samples: tuple[Sample, ...]
    speed: Speed


class WrittenText(NamedTuple):
    """A prompt, and the continuation that a language model wrote."""

    prompt: str
    text: str


class Wrote(NamedTuple):
    """What a language model writes at the end of its training."""

    step: int
    texts: tuple[WrittenText, ...]


class Saved(NamedTuple):
    """A checkpoint was written, or could not be."""

    step: int
    path: Path
    problem: str = ""


class Notice(NamedTuple):
    """Something the user should know."""

    step: int
    code: str  # "step.skipped", "memory.halved", "disk.full", "resume.threads", ...
    text: str
    fix: str = ""


Why = Literal["done", "patience", "stopped", "not-finite", "disk"]


class Ended(NamedTuple):
    """The run is finished, or stops for now."""

    step: int
    reason: Why
    best_step: int
    chosen_step: int  # whose weights are in RUN/model: the best one, or a later one that is as good
    metrics: dict[str, float]  # of the chosen validation
    speed: Speed
    exit_code: int  # 0, 128 + signal, 4 for a disk, 5 for numbers that are not finite


Report = Started | Stepped | Validated | Wrote | Saved | Notice | Ended


LONGEST_TEXT = 500  # characters of a text in a sample
TOGETHER = 32  # lines that are written and synced together: all of them or, if the disk fails, none
BETWEEN_SYNCS = 1.0  # seconds
_KINDS = {
    Stepped: "step",
    Validated: "validation",
    Started: "start",
    Wrote: "texts",
    Saved: "checkpoint",
    Notice: "notice",
}


class RunLog:
    """Writes events to the two log files. `lines` counts those of `metrics.jsonl`, with those not yet written.

    A resumed run gives the number of lines at its checkpoint; later lines are dropped.
    """

    def __init__(self, folder: Path, lines: int = 0, *, clock: Callable[[], float] = time.time) -> None:
        self.metrics_path, self.events_path = folder / RunFile.METRICS, folder / RunFile.EVENTS
        self.lines = lines
        self._clock, self._synced = clock, -math.inf
        self._metrics: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        _keep(self.metrics_path, lines)

    def take(self, report: Report) -> None:
        """Log an event. It may be written with a later one; `flush` writes everything."""
        for record in metrics_of(report):
            self._metrics.append(record)
            self.lines += 1
        when = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        self._events.extend({"when": when, **record} for record in events_of(report))
        if abs(self._clock() - self._synced) >= BETWEEN_SYNCS:  # abs: clocks are also set back
            try:
                self.flush()
            except DurableError:  # the lines wait; `flush` before the next checkpoint raises again
                self._synced = self._clock()

    def flush(self) -> None:
        """Write all lines to disk. DurableError if that fails; the lines are kept."""
        for path, waiting in ((self.metrics_path, self._metrics), (self.events_path, self._events)):
            while waiting:
                append_lines(path, waiting[:TOGETHER])
                del waiting[:TOGETHER]
        self._synced = self._clock()


class NoLog:
    """The log of all processes but process 0, which writes for all."""

    lines = 0

    def take(self, report: Report) -> None:
        """Drop the event."""

    def flush(self) -> None:
        """Do nothing: there is nothing to write."""


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl or events.jsonl; those of earlier versions under their new names."""
    return [renamed_line(record) for record in read_lines(path).records]


def metrics_of(report: Report) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl for an event.

    >>> from seqloom.training.events import Saved
    >>> metrics_of(Saved(20, Path("checkpoints")))
    []
    """
    if isinstance(report, Stepped | Validated):
        fields = _plain(report)
        del fields["speed"]
        return [{"kind": _KINDS[type(report)], **fields}]
    if isinstance(report, Ended):
        fields = _plain(report)
        shared = ("step", "reason", "best_step", "chosen_step", "metrics")
        return [{"kind": "end"} | {name: fields[name] for name in shared}]
    return []


def events_of(report: Report) -> list[dict[str, Any]]:
    """The lines of events.jsonl for an event."""
    if isinstance(report, Stepped | Validated):
        return [{"kind": "speed", "step": report.step, **_plain(report.speed)}]
    if isinstance(report, Ended):
        return [{"kind": "end", **_plain(report)}]
    return [{"kind": _KINDS[type(report)], **_plain(report)}]


def _plain(value: Any) -> Any:
    """The value as JSON: a number that is not finite becomes null, a long text is truncated."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path | str):
        text = str(value).encode(errors="replace").decode()  # half a surrogate pair is not text
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
    """Keep the first `lines` lines; later ones belong to steps that are repeated."""
    found = read_lines(path)
    if len(found.records) < lines:
        raise DamagedError(
            f"{path} has {len(found.records):,} lines; the checkpoint expects {lines:,}",
            fix="restore the file from a backup, or train in a new folder",
        )
    if len(found.records) > lines or found.torn:
        write_lines(path, found.records[:lines])


# Curves for TensorBoard, written with its own record writer: the extra `tensorboard` must be installed.
#
# TensorBoard reads the files of a folder in the order of their names, so each validation writes the points since the
# last one to a new file. A resumed run hides the points after its checkpoint.

LARGEST = 3.4e38  # of the floats that TensorBoard keeps
TRAIN = ("loss", "lr", "grad_norm", "padding")  # of `Stepped`


def require_tensorboard() -> None:
    """Raise MissingExtraError if TensorBoard is not installed."""
    with needing("tensorboard"):
        import tensorboard  # noqa: F401


def drawn(reports: Iterator[Report], folder: Path) -> Iterator[Report]:
    """The same events; their numbers are also written to a folder that TensorBoard opens.

    A full disk does not stop the run: the points are written next time, and `metrics.jsonl` has them all.
    """
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    waiting: list[Event] = []
    files = 0
    for report in reports:
        if isinstance(report, Started) and report.step > 0:
            hide = SessionLog(status=SessionLog.START)  # all later points of earlier files
            waiting.append(Event(wall_time=time.time(), step=report.step + 1, session_log=hide))
        if points := points_of(report):
            values = [Summary.Value(tag=name, simple_value=value) for name, value in points.items()]
            waiting.append(Event(wall_time=time.time(), step=report.step, summary=Summary(value=values)))
        if isinstance(report, Validated | Ended) and waiting:
            name = f"events.out.tfevents.{time.time_ns():020d}.{files:06d}.seqloom"
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
    """The numbers of an event by the names of their curves; those that TensorBoard cannot store are left out."""
    if isinstance(report, Stepped):
        points = {f"train/{name}": float(getattr(report, name)) for name in TRAIN}
        points["speed/tokens per second"] = report.speed.tokens_per_second
    elif isinstance(report, Validated):
        points = {f"dev/{name}": value for name, value in report.metrics.items()}
    else:
        points = {}
    return {name: value for name, value in points.items() if abs(value) <= LARGEST}
