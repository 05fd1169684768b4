"""Keys of clients: read from a file that only its owner can read, compared in constant time, guesses limited."""

import hmac
import os
import re
import stat
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from seqloom.config.base import quoted
from seqloom.errors import ConfigError, near_name
from seqloom.serve.answers import CLOSING, HttpRefusal

SHORTEST_KEY = 20  # characters, so that no one guesses it
MAX_KEYS, MAX_FILE_BYTES = 1_000, 1 << 18
FAILURES, WINDOW_SECONDS, MAX_ADDRESSES = 10, 60.0, 4_096
LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<key>[\x21-\x7e]+)")
MAKE = "python -c 'import secrets; print(\"alice:\" + secrets.token_urlsafe(32))' > keys.txt; chmod 600 keys.txt"
NEEDED = HttpRefusal(
    401,
    "key_needed",
    "this server needs a key, and the request has none that it knows",
    "send the header Authorization: Bearer KEY",
    headers={"WWW-Authenticate": "Bearer"} | CLOSING,
)


def read_keys(path: Path) -> dict[str, str]:
    """Read a file with lines of the form name:key; ConfigError unless it is private and all of it is right."""
    try:
        facts = path.stat()
        text = path.read_bytes()[: MAX_FILE_BYTES + 1]
    except OSError as error:
        raise ConfigError(f"--keys {path}: {error.strerror}", fix=near_name(path)) from None
    if os.name == "posix" and stat.S_IMODE(facts.st_mode) & _forbidden(path):
        raise ConfigError(f"--keys {path}: other users can read or change this file", fix=f"chmod 600 {path}")
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError(f"--keys {path}: the file is too large", fix="is this the right file?")
    keys: dict[str, str] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").split("\n"), 1):
        if (line := line.strip()) and not line.startswith("#"):
            name, key = _client(line, f"--keys {path}, line {number}")
            if name in keys:
                raise ConfigError(f"--keys {path}, line {number}: {quoted(name)} has a key already", fix="remove one")
            keys[name] = key
    if not keys or len(keys) > MAX_KEYS:
        raise ConfigError(f"--keys {path}: expected 1 to {MAX_KEYS:,} keys, found {len(keys):,}", fix=MAKE)
    return keys


def _forbidden(path: Path) -> int:
    """The bits of the mode that no key file may have. A copy that systemd made for this service has mode 0440."""
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    return 0o037 if given and path.resolve().is_relative_to(Path(given).resolve()) else 0o077


def _client(line: str, place: str) -> tuple[str, str]:
    found = LINE.fullmatch(line)
    if found is None:  # the line is not shown: it may be a key
        raise ConfigError(f"{place}: expected name:key, with a key of printable characters", fix=MAKE)
    if len(found["key"]) < SHORTEST_KEY:
        raise ConfigError(f"{place}: this key is shorter than {SHORTEST_KEY} characters", fix=MAKE)
    return found["name"], found["key"]


class KeyRing:
    """The keys of all clients. An address with ten wrong keys in a minute must wait before it tries others.

    A known key passes always: else anyone behind the same proxy could lock out all clients.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        # digests have one length, so that a comparison does not tell how long a key is
        self._digests = {name: sha256(key.encode()).digest() for name, key in keys.items()}
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def client(self, authorization: bytes | None, address: str) -> str:
        """Return the name of the client; raise HttpRefusal without a known key."""
        if (name := self.name_of(authorization or b"")) is not None:
            return name
        if (wait := self._wait(address)) > 0:
            raise HttpRefusal(
                429,
                "too_many_failures",
                "too many requests without a known key",
                f"wait {wait} s",
                headers={"Retry-After": str(wait)} | CLOSING,
            )
        self._count(address)
        raise NEEDED.fresh()

    def name_of(self, authorization: bytes) -> str | None:
        """Return the name of the client whose key this is; None if it is no one's."""
        scheme, _, key = authorization.partition(b" ")
        digest, found = sha256(key.strip()).digest(), None
        for name, known in self._digests.items():  # all of them, so that the time does not tell which
            if hmac.compare_digest(digest, known):
                found = name
        return found if scheme.lower() == b"bearer" else None

    def _wait(self, address: str) -> int:
        """Return the seconds until the address may try again."""
        times = self._failures.get(address)
        if times is None:
            return 0
        now = time.monotonic()
        while times and times[0] <= now - WINDOW_SECONDS:
            times.popleft()
        return int(times[0] + WINDOW_SECONDS - now) + 1 if len(times) >= FAILURES else 0

    def _count(self, address: str) -> None:
        self._failures.setdefault(address, deque(maxlen=FAILURES)).append(time.monotonic())
        self._failures.move_to_end(address)
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
