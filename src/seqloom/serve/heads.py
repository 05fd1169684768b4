"""The head of a request: whether it is complete, well-formed and within limits, before any parser reads it."""

import re
from collections.abc import Iterator

from seqloom.serve.answers import HttpRefusal

MAX_REQUEST_LINE = 8_192  # bytes
MAX_HEADER_BYTES = 16_384  # of all fields
MAX_HEADER_FIELDS = 64
MAX_CHUNKS = 4_096  # of a body; each costs time, however small it is
CHUNK_BYTES = 24  # that a chunk may add to the bytes of a body: its size, an extension, line ends

REQUEST_LINE = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+ /[\x21-\x7e]* HTTP/1\.[01]")
VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]\.[0-9]")
# control characters, line ends that are not CR LF, and fields that continue on the next line; a CR may be the last byte
MALFORMED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n|\Z)|(?<!\r)\n|\n[ \t]")

MALFORMED_REQUEST = HttpRefusal(400, "malformed", "the request is not well-formed HTTP/1.1", "use an HTTP client")
REFUSALS = {
    "line": HttpRefusal(414, "line_too_long", f"the request line has more than {MAX_REQUEST_LINE} bytes", "shorten it"),
    "headers": HttpRefusal(
        431,
        "headers_too_large",
        f"the headers have more than {MAX_HEADER_BYTES} bytes or {MAX_HEADER_FIELDS} fields",
        "send fewer",
    ),
    "version": HttpRefusal(505, "version", "this version of HTTP is not supported", "use HTTP/1.1"),
    "encoding": HttpRefusal(501, "transfer_encoding", "this transfer encoding is not supported", "use chunked"),
    "expect": HttpRefusal(417, "expectation", "this expectation is not supported", "leave out Expect"),
    "chunks": HttpRefusal(413, "body_too_large", f"the body has more than {MAX_CHUNKS} chunks", "send larger chunks"),
    "slow_headers": HttpRefusal(408, "slow_headers", "the headers took too long", "send the request at once"),
    "slow_body": HttpRefusal(408, "slow_body", "the body took too long", "send the request at once"),
    "connections": HttpRefusal(
        503, "connections", "too many connections are open", "try again later", headers={"Retry-After": "1"}
    ),
}
BUSY = HttpRefusal(
    429, "overloaded", "as many requests are waiting as may wait", "try again in 1 s", headers={"Retry-After": "1"}
)
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,19})[ \t]*\r\n", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
NOTHING = (b"", b"")
CLOSE = re.compile(rb"\r\nconnection:[^\r]*close| HTTP/1\.0\r\n", re.IGNORECASE)


def body_too_large(limit: int) -> HttpRefusal:
    return HttpRefusal(413, "body_too_large", f"the body has more than {limit} bytes", "send fewer texts at a time")


def head_refusal(head: bytes, max_body: int) -> HttpRefusal | None:
    """Why a complete head (request line and fields, with the empty line) is refused; None if it is fine."""
    line, _, fields = head[:-2].partition(b"\r\n")
    if len(line) > MAX_REQUEST_LINE:
        return REFUSALS["line"]
    if len(fields) > MAX_HEADER_BYTES or fields.count(b"\r\n") > MAX_HEADER_FIELDS:
        return REFUSALS["headers"]
    if MALFORMED.search(head):
        return MALFORMED_REQUEST
    if REQUEST_LINE.fullmatch(line) is None:
        return REFUSALS["version"] if VERSION.fullmatch(line) and b" /" in line else MALFORMED_REQUEST
    return _framing_refusal(fields, max_body)


def _framing_refusal(fields: bytes, max_body: int) -> HttpRefusal | None:
    """Why the length of a body is refused: two lengths are how requests are smuggled past a proxy."""
    named: dict[bytes, bytes] = {}
    for name, value in _split(fields):
        if name in named and name in (b"content-length", b"transfer-encoding", b"host", b"content-type"):
            return MALFORMED_REQUEST
        named[name] = value
    length, encoding = named.get(b"content-length"), named.get(b"transfer-encoding")
    if length is not None:
        if encoding is not None or re.fullmatch(rb"[0-9]{1,19}", length) is None:
            return MALFORMED_REQUEST
        if int(length) > max_body:
            return body_too_large(max_body)
    if encoding is not None and encoding.lower() != b"chunked":
        return REFUSALS["encoding"]
    if named.get(b"expect", b"100-continue").lower() != b"100-continue":
        return REFUSALS["expect"]
    return None


def fields_of(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The fields of a complete head, with their names in lower case.

    >>> list(fields_of(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"))
    [(b'host', b'a')]
    """
    return _split(head[:-2].partition(b"\r\n")[2])


def _split(fields: bytes) -> Iterator[tuple[bytes, bytes]]:
    for one in fields.split(b"\r\n")[:-1]:
        name, _, value = one.partition(b":")
        yield name.lower(), value.strip(b" \t")


def early_refusal(head: bytearray, seen: int) -> HttpRefusal | None:
    """Why a head is refused that is not complete yet; `seen` bytes of it were found fine before."""
    line = head.find(b"\r\n")
    if (len(head) if line < 0 else line) > MAX_REQUEST_LINE:
        return REFUSALS["line"]
    if line >= 0 and len(head) - line > MAX_HEADER_BYTES + 4:
        return REFUSALS["headers"]
    # two bytes earlier, for an end of line that came in two parts; all of it each time would cost much
    return MALFORMED_REQUEST if MALFORMED.search(head, max(0, seen - 2)) else None


def asked_of(head: bytes) -> tuple[bytes, bytes]:
    """The method and the path of a request line; both are empty if there is none."""
    parts = head.partition(b"\r\n")[0].split(b" ")
    return (parts[0], parts[1].partition(b"?")[0]) if len(parts) == 3 else NOTHING


def body_bytes(head: bytes, rest: int) -> int:
    """How many of the bytes that came with a head are its body; the others are a next request, which is not read."""
    if (length := LENGTH.search(head)) is not None:
        return min(rest, int(length[1]))
    return rest if CHUNKED.search(head) else 0
