"""Places at which a test can make a run die: `SEQLOOM_FAIL=name:kill` ends the process when it comes there.

    SEQLOOM_FAIL=file-50:kill        SIGKILL at the first file that is half written
    SEQLOOM_FAIL=file-50:kill:3      at the third one
    SEQLOOM_FAIL=file-50:enospc      OSError "No space left on device" there, every time from then on
    SEQLOOM_FAIL=validation:raise    an error that nobody expects

Random kills rarely hit the few microseconds that matter; named places are hit every time. Without the variable, which
is read once, a place costs a comparison with None.
"""

import errno
import os
import signal
from collections.abc import Iterator, Mapping
from functools import cache

from seqloom.errors import ConfigError, did_you_mean

FILE = {"file-0": 0.0, "file-25": 0.25, "file-50": 0.5, "file-75": 0.75, "file-100": 1.0}
MANIFEST = {"manifest-half": 0.5}
METRICS = {"metrics-half": 0.5}
VOCABULARY = {"vocabulary-half": 0.5}

NAMES = (
    "file-new",  # before a temporary file is created
    *FILE,  # so many percent of a file are written; at 100 it is not synced yet
    "file-synced",  # after the sync of a file
    "before-rename",  # everything is synced under its temporary name
    "after-rename",  # it has its name, which is not synced yet
    "before-manifest",  # all files of a folder are whole, and nothing says so
    *MANIFEST,
    "after-manifest",
    "before-model",  # RUN/model is about to be replaced
    "after-model",  # it is replaced; the checkpoint does not know of it yet
    "retention-half",  # an old checkpoint has lost its name and its first file
    "validation",  # before the dev part is looked at
    "first-batch",  # of an epoch, before its step
    "last-batch",  # of an epoch, after its step
    "epoch-boundary",  # the next position is in the next epoch
    "between-update-and-count",  # the weights have changed, the counters not yet
    *VOCABULARY,
    "index-half",  # the cache of encoded data is being built
    *METRICS,
    "signal",  # in the handler of the first SIGINT, SIGTERM or SIGHUP
)


class InjectedError(Exception):
    """What `SEQLOOM_FAIL=name:raise` raises: no error of ours, so that nothing is prepared for it."""


class _Asked:
    """Where the process shall fail, how, and at which time that it comes there."""

    def __init__(self, name: str, how: str, time: int) -> None:
        self.name, self.how, self.time, self.come = name, how, time, 0

    def strike(self) -> None:
        self.come += 1
        if self.how == "enospc" and self.come >= self.time:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.how == "raise" and self.come == self.time:
            raise InjectedError(f"asked for by SEQLOOM_FAIL at {self.name}")
        if self.how == "kill" and self.come == self.time:
            os.kill(os.getpid(), signal.SIGKILL)


def reached(name: str) -> None:
    """Nothing, unless SEQLOOM_FAIL names this place."""
    asked = _asked()
    if asked is not None and asked.name == name:
        asked.strike()


def cut(data: memoryview, places: Mapping[str, float]) -> Iterator[memoryview]:
    """The data in one piece; in two around a place, given as its share of the data, that SEQLOOM_FAIL names."""
    asked = _asked()
    if asked is None or asked.name not in places:
        yield data
        return
    size = int(len(data) * places[asked.name])
    yield data[:size]
    asked.strike()
    yield data[size:]


@cache
def _asked() -> _Asked | None:
    text = os.environ.get("SEQLOOM_FAIL", "")
    if not text:
        return None
    name, how, time = [*text.split(":"), "1", "1"][:3]
    if name not in NAMES:
        raise ConfigError(f"SEQLOOM_FAIL={text[:80]}: unknown place", fix=did_you_mean(name[:80], NAMES))
    if how not in ("kill", "enospc", "raise") or not (time.isdecimal() and int(time[:9]) > 0):
        raise ConfigError(
            f"SEQLOOM_FAIL={text[:80]}", fix="write name:kill, name:enospc or name:raise, perhaps :number"
        )
    return _Asked(name, how, int(time[:9]))
