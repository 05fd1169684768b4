"""The room for requests: how many may be in progress, and how many bytes their bodies may have together.

A request that may ask a model takes a place from its last byte to its answer, so clients that are slow to send take
none, and neither do those without a key. The bytes of its body are counted as they arrive. If there is no room for
more, the oldest body that is being read for longer than a second gives way; if there is none, the one that wants more
is refused.
"""

import time
from collections.abc import Callable

BODIES = 16  # of the largest size, whose bytes may be here at a time
SLOW_SECONDS = 1.0  # a body that takes longer gives way to others


class Guest:
    """What one connection holds of the room. `evict` refuses its request, which then leaves."""

    def __init__(self, room: "Room", evict: Callable[[], None]) -> None:
        self.room, self.evict = room, evict
        self.bytes = 0
        self.is_complete = False
        self.begun = 0.0

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
        while room.bytes > most and (slowest := next(iter(room.readers))) is not self and slowest.is_slow:
            slowest.evict()
        return room.bytes <= most

    @property
    def is_slow(self) -> bool:
        """Whether its body has been read for long."""
        return time.monotonic() - self.begun > SLOW_SECONDS

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


class Room:
    """What all connections hold together."""

    def __init__(self) -> None:
        self.complete = 0  # requests that were read to their end and are not answered
        self.bytes = 0  # of bodies, in these requests and in those that are being read
        self.readers: dict[Guest, None] = {}  # those whose body is being read, the oldest first
