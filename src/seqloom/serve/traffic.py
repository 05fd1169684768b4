"""What the listener counts, as text for Prometheus, and its log. Neither holds the text of a request."""

import re
import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TextIO

from seqloom.serve.engine import COUNTS
from seqloom.serve.room import Room

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
MAX_PENDING = 10_000  # lines of the log that wait for a slow reader
LOOK_SECONDS = 0.1
UNROUTED = "-"  # the route of requests that have none
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")  # others are counted together
SHOWN = ("client", "model", "items", "code")  # fields of an exchange, with their names
CONTROL = re.compile(r"[^\x20-\x7e]")


class Exchange(NamedTuple):
    """A request and its answer, as they are counted and logged."""

    method: str
    route: str
    status: int
    seconds: float
    client: str = ""  # the name of its key, else its address
    model: str = ""
    items: int = 0
    code: str = ""  # of a refusal


def printable(text: str) -> str:
    """Escape control characters and all but ASCII: a line of a log must not change a terminal or add lines.

    >>> printable("a\\x1b[2J\\n")
    'a\\\\x1b[2J\\\\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape", "replace").decode(), text)


@lru_cache(maxsize=2)
def _written(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


class Log:
    """Lines for a stream, written by a thread: a reader that stops reading must not stop the server.

    The thread looks for lines a few times per second. To wake it for each of them would cost more than the lines.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self.dropped = stream, 0
        self._lines: deque[str] = deque()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        if stream is not None:
            self._thread.start()

    def say(self, text: str) -> None:
        """Write a line with the time; it is dropped and counted if too many wait."""
        if self._stream is None:
            return
        if len(self._lines) >= MAX_PENDING:
            self.dropped += 1
        else:
            self._lines.append(f"{_written(int(time.time()))} {printable(text)}\n")

    def close(self) -> None:
        """Write what waits, for at most a second."""
        if self._stream is not None:
            self._stopped.set()
            self._thread.join(1.0)

    def _write(self) -> None:
        assert self._stream is not None
        last = False
        while not last:
            last = self._stopped.wait(LOOK_SECONDS)
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            try:
                if lines:
                    self._stream.write("".join(lines))
                    self._stream.flush()
            except (OSError, ValueError):  # nobody reads it any more
                self.dropped += len(lines)


class Traffic:
    """Counts of requests by route and status, and of the time they took."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.running = 0
        self.room = Room()
        self.answers: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self.refusals: Counter[str] = Counter()  # by code
        self.seconds: dict[str, list[float]] = {}  # by route: a count for each bucket, then the sum

    def count(self, one: Exchange) -> None:
        """Count and log a request."""
        method = one.method if one.method in METHODS else UNROUTED
        self.answers[method, one.route, one.status] += 1
        if one.code:
            self.refusals[one.code] += 1
        buckets = self.seconds.setdefault(one.route, [0.0] * (len(BUCKETS) + 2))
        buckets[bisect_left(BUCKETS, one.seconds)] += 1
        buckets[-1] += one.seconds
        more = "".join(f" {name}={value}" for name, value in zip(SHOWN, one[4:], strict=True) if value)
        self.log.say(f"{method} {one.route} {one.status} {1_000 * one.seconds:.1f}ms{more}")

    def text(self, engine: Mapping[str, float], connections: int, models: int) -> str:
        """All counts in the text format of Prometheus."""
        lines = _family("requests_total", "counter", "Answered requests.")
        for (method, route, status), count in sorted(self.answers.items()):
            lines.append(f'seqloom_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
        lines += _family("refusals_total", "counter", "Refused requests, by reason.")
        lines += [f'seqloom_refusals_total{{code="{code}"}} {count}' for code, count in sorted(self.refusals.items())]
        lines += self._histogram()
        gauges = {"requests_running": self.running, "connections": connections, "models": models}
        for name, value in gauges.items():
            lines += [
                *_family(name, "gauge", f"Current number of {name.replace('_', ' ')}."),
                f"seqloom_{name} {value}",
            ]
        lines += [*_family("log_lines_dropped_total", "counter", "Lines of the log that were not written.")]
        lines.append(f"seqloom_log_lines_dropped_total {self.log.dropped}")
        for name, number in sorted(engine.items()):
            lines += _family(f"engine_{name}", "counter" if name.endswith("_total") else "gauge", COUNTS[name])
            lines.append(f"seqloom_engine_{name} {number:g}" if number < 1e6 else f"seqloom_engine_{name} {number:.3f}")
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = "seqloom_request_seconds"
        lines = _family("request_seconds", "histogram", "Time from the head of a request to the end of its answer.")
        for route, counts in sorted(self.seconds.items()):
            below = 0.0
            for most, count in zip((*BUCKETS, "+Inf"), counts, strict=False):
                below += count
                lines.append(f'{name}_bucket{{route="{route}",le="{most}"}} {below:.0f}')
            lines.append(f'{name}_sum{{route="{route}"}} {counts[-1]:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {below:.0f}')
        return lines


def _family(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP seqloom_{name} {text}", f"# TYPE seqloom_{name} {kind}"]
