"""The room for requests: how many may be in progress, and how many bytes their bodies and answers may have together.

A request that may ask a model takes a place from its last byte to its answer, so clients that are slow to send take
none, and neither do those without a key. The bytes of its body are counted as they arrive. If there is no room for
more, the oldest body that is being read for longer than a second gives way; if there is none, the one that wants more
is refused. The bytes of large answers are counted until their clients have read them. If there is no room for more, the
oldest answer that waits for longer than a second is cut off; if there is none, no new request is accepted.
"""

import time
from collections.abc import Callable

BODIES = 16  # of the largest size, whose bytes may be here at a time
UNREAD_BYTES = 1 << 26  # of answers that may wait to be read
SLOW_SECONDS = 1.0  # a body or an answer that takes longer gives way to others


class Guest:
    """What one connection holds of the room.

    Args:
        room: the room.
        evict: refuses the request, which then leaves.
        cut: closes the connection, though the client has not read its answer.
    """

    def __init__(self, room: "Room", evict: Callable[[], None], cut: Callable[[], None]) -> None:
        self.room, self.evict, self.cut = room, evict, cut
        self.bytes = self.unread = 0
        self.is_complete = False
        self.begun = self.answered = 0.0

    def read(self, count: int, most: int) -> bool:
        """Take room for bytes of a body; return whether there is any, of this many bytes."""
        room = self.room
        if not count:
            return True
        if not self.bytes:
            self.begun = time.monotonic()
            room.readers[self] = None
        self.bytes += count
        room.bytes += count
        while room.bytes > most and (slowest := next(iter(room.readers))) is not self and _is_long_ago(slowest.begun):
            slowest.evict()
        return room.bytes <= most

    def complete(self) -> None:
        """Take a place: the request is read."""
        self.room.readers.pop(self, None)
        self.room.complete += not self.is_complete
        self.is_complete = True

    def leave(self) -> None:
        """Give back everything: the request is answered or refused."""
        self.room.readers.pop(self, None)
        self.room.complete -= self.is_complete
        self.room.bytes -= self.bytes
        self.is_complete, self.bytes = False, 0

    def wait(self, count: int) -> None:
        """Count the bytes of an answer that its client has not read yet."""
        self.room.unread += count
        self.unread, self.answered = count, time.monotonic()
        self.room.unread_by[self] = None

    def end_waiting(self) -> None:
        """The client has read its answer, or will not get the rest of it."""
        self.room.unread_by.pop(self, None)
        self.room.unread -= self.unread
        self.unread = 0


class Room:
    """What all connections hold together."""

    def __init__(self) -> None:
        self.complete = 0  # requests that were read to their end and are not answered
        self.bytes = 0  # of bodies, in these requests and in those that are being read
        self.readers: dict[Guest, None] = {}  # those whose body is being read, the oldest first
        self.unread = 0  # bytes of answers that clients have not read
        self.unread_by: dict[Guest, None] = {}  # these clients, the oldest answer first

    def is_read(self) -> bool:
        """Return whether new answers may wait to be read; if too many do, cut off slow clients first."""
        while self.unread > UNREAD_BYTES and _is_long_ago((slowest := next(iter(self.unread_by))).answered):
            slowest.end_waiting()
            slowest.cut()
        return self.unread <= UNREAD_BYTES


def _is_long_ago(begun: float) -> bool:
    return time.monotonic() - begun > SLOW_SECONDS
