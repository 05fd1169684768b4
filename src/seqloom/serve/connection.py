"""One HTTP connection with limits and deadlines, which uvicorn lacks.

    bytes ──▶ head: complete? within limits? well-formed? ──▶ h11 ──▶ body: bytes and chunks counted ──▶ app
              header deadline                                        body deadline

A request that is wrong in form, too large or too slow is refused here, before any route is asked, and the connection
closes. The parser is h11: it is strict and in Python, so that each event can be counted as it is read. A second request
that is sent before the answer to the first (pipelining) is not read; the connection closes after the first answer.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import h11
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from seqloom.config.serving import ServingConfig
from seqloom.serve.answers import HttpRefusal
from seqloom.serve.traffic import Traffic

MAX_REQUEST_LINE = 8_192  # bytes
MAX_HEADER_BYTES = 16_384  # of all fields
MAX_HEADER_FIELDS = 64
MAX_CHUNKS = 4_096  # of a body; each costs time, however small it is
CHUNK_BYTES = 24  # that a chunk may add to the bytes of a body: its size, an extension, line ends
LINGER_SECONDS = 1.0  # in which a client can read the last answer while it still sends
LINGER_BYTES = 1 << 22

REQUEST_LINE = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+ /[\x21-\x7e]* HTTP/1\.[01]")
VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]\.[0-9]")
# control characters, line ends that are not CR LF, and fields that continue on the next line
MALFORMED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n|\n[ \t]")

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
BUSY_BYTES = BUSY.raw().replace(b"connection: close\r\n", b"")
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,19})[ \t]*(?:\r\n|$)", re.IGNORECASE)


def body_too_large(limit: int) -> HttpRefusal:
    return HttpRefusal(413, "body_too_large", f"the body has more than {limit} bytes", "send fewer items at a time")


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
    for one in fields.split(b"\r\n")[:-1]:
        name, _, value = one.partition(b":")
        name = name.lower()
        if name in named and name in (b"content-length", b"transfer-encoding", b"host", b"content-type"):
            return MALFORMED_REQUEST
        named[name] = value.strip(b" \t")
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


class CountedConnection(h11.Connection):
    """The parser, which counts the bytes and chunks of a body and remembers why it stopped."""

    def __init__(self, max_body: int) -> None:
        super().__init__(h11.SERVER, 2 * (MAX_REQUEST_LINE + MAX_HEADER_BYTES))
        self.max_body = max_body
        self.refusal = MALFORMED_REQUEST
        self.is_last = False  # whether the connection closes after this answer
        self.bytes = self.raw_bytes = self.chunks = 0

    def receive_data(self, data: bytes) -> None:
        """Count what arrives, also between the chunks."""
        self.raw_bytes += len(data)
        super().receive_data(data)

    def next_event(self) -> Any:
        """Return the next event of the parser; raise if the body has become too large."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.bytes = self.raw_bytes = self.chunks = 0
        elif isinstance(event, h11.Data):
            self.bytes += len(event.data)
            self.chunks += event.chunk_start
            if self.bytes > self.max_body:
                self._stop(body_too_large(self.max_body))
        elif event is h11.PAUSED:
            self.is_last = True
        if self.chunks > MAX_CHUNKS:
            self._stop(REFUSALS["chunks"])
        if self.raw_bytes > self.max_body + MAX_CHUNKS * CHUNK_BYTES + MAX_HEADER_BYTES:
            self._stop(body_too_large(self.max_body))
        return event

    def _stop(self, refusal: HttpRefusal) -> None:
        self.refusal = refusal
        raise h11.RemoteProtocolError(refusal.message)

    def send(self, event: Any) -> Any:
        """Return the bytes of an event; an answer before the end of the request closes the connection."""
        if isinstance(event, h11.Response) and (self.is_last or self.their_state is h11.SEND_BODY):
            event = h11.Response(
                status_code=event.status_code, headers=[*event.headers, (b"connection", b"close")], reason=event.reason
            )
        return super().send(event)


class LingeringTransport:
    """A transport that sends the head and the body of an answer in one packet, and closes politely.

    Its `close` is the one of the protocol, which lets the client read the answer: a client that still sends would get
    a reset.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, close: Callable[[], None]
    ) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self.close = close

    def write(self, data: bytes) -> None:
        """Send the data after this turn of the event loop, with what else is written until then."""
        if data:
            if not self._parts:
                self._loop.call_soon(self.flush)
            self._parts.append(data)

    def flush(self) -> None:
        """Send what was written."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            if not self._transport.is_closing():
                self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(H11Protocol):
    """The protocol of uvicorn with limits and deadlines."""

    def __init__(
        self,
        config: UvicornConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ServingConfig,
        traffic: Traffic,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits, self.traffic = limits, traffic
        self.conn: CountedConnection = CountedConnection(limits.max_body_bytes)
        self.head: bytearray | None = bytearray()  # None while a body is read or an answer is made
        self.deadline: asyncio.TimerHandle | None = None
        self.stalled: asyncio.TimerHandle | None = None
        self.is_leaving = False
        self.is_counted = False  # among the complete requests that are not answered
        self.discarded = 0
        # more requests than can run and wait; the engine would refuse what is beyond, but only after it was parsed
        self.most = limits.max_waiting + limits.max_batch * limits.workers
        self.socket: asyncio.Transport = None  # type: ignore[assignment]  # set when the connection is made
        self.packets: LingeringTransport = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and give it time for its first request."""
        self.socket = transport
        self.packets = LingeringTransport(transport, self.loop, self.leave)
        super().connection_made(cast(asyncio.Transport, self.packets))
        if len(self.connections) > self.limits.max_connections:
            self.refuse(REFUSALS["connections"])
        else:
            self._expect(self.limits.header_seconds, self._slow_headers)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the work for a client that has left."""
        self._expect(None)
        self._count(False)
        if self.stalled is not None:
            self.stalled.cancel()
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_work()
        super().connection_lost(exc)

    def _end_work(self) -> None:
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        task: asyncio.Task[None] | None = self.scope["state"].get("task")
        if task is not None:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Read a head, then a body; what a refused client still sends is discarded."""
        if self.is_leaving:
            self.discarded += len(data)
            if self.discarded > LINGER_BYTES:
                self.socket.abort()
            return
        if self.head is not None:
            is_new = not self.head
            if is_new and self.traffic.complete >= self.most and self._refused_quickly(data):
                return
            found = self._read_head(data)
            if found is None:
                if is_new and self.deadline is None and not self.is_leaving:  # that of the first request has begun
                    self._unset_keepalive_if_required()
                    self._expect(self.limits.header_seconds, self._slow_headers)
                return
            data = found
            self._expect(None)
        elif self.conn.their_state is not h11.SEND_BODY:  # the next request, before this one is answered
            self.conn.is_last = True
            self.flow.pause_reading()
            return
        super().data_received(data)
        if self.conn.their_state is not h11.SEND_BODY:
            self._expect(None)
            self._count(not self.is_leaving and self.cycle is not None and not self.cycle.response_complete)
        elif self.deadline is None and not self.is_leaving:
            self._expect(self.limits.body_seconds, self._slow_body)

    def _count(self, is_complete: bool) -> None:
        """Count a request from its last byte to its answer; clients that are slow to send it take no place."""
        self.traffic.complete += is_complete - self.is_counted
        self.is_counted = is_complete

    def _refused_quickly(self, data: bytes) -> bool:
        """Refuse a complete request that would find the queue full, before any of it is parsed; the connection stays.

        Questions about the server itself are answered always.
        """
        head, end, body = data.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not (end and head.startswith(b"POST ") and length is not None and len(body) == int(length[1])):
            return False
        self.traffic.refused(BUSY, self.client[0] if self.client else "")
        self.socket.write(BUSY_BYTES)
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._expect(None)
        return True

    def _read_head(self, data: bytes) -> bytes | None:
        """Return the head and what follows it when it is complete and fine; None until then."""
        assert self.head is not None
        before = len(self.head)
        self.head += data
        end = self.head.find(b"\r\n\r\n", max(0, before - 3))
        if end < 0:
            if (refusal := self._early_refusal()) is not None:
                self.refuse(refusal)
            return None
        if (refusal := head_refusal(bytes(self.head[: end + 4]), self.limits.max_body_bytes)) is not None:
            self.refuse(refusal)
            return None
        whole, self.head = bytes(self.head), None
        return whole

    def _early_refusal(self) -> HttpRefusal | None:
        """Why a head is refused that is not complete yet."""
        assert self.head is not None
        line = self.head.find(b"\r\n")
        if (len(self.head) if line < 0 else line) > MAX_REQUEST_LINE:
            return REFUSALS["line"]
        if line >= 0 and len(self.head) - line > MAX_HEADER_BYTES + 4:
            return REFUSALS["headers"]
        return MALFORMED_REQUEST if MALFORMED.search(self.head.rstrip(b"\r")) else None

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._count(False)
        super().on_response_complete()
        if not self.is_leaving and self.conn.their_state is h11.IDLE:
            self.head = bytearray()
            self._expect(None)

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser did not accept."""
        self.refuse(self.conn.refusal)

    def refuse(self, refusal: HttpRefusal) -> None:
        """Answer without asking a route, and close."""
        self._unset_keepalive_if_required()
        self.traffic.refused(refusal, self.client[0] if self.client else "")
        self.packets.flush()
        answered = self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started
        if not answered:  # nothing can be said in the middle of another answer
            self.socket.write(refusal.raw())
        if self.cycle is not None and not self.cycle.response_complete:
            self.scope["state"]["is_refused"] = True  # and counted, here
            self._end_work()
        self.leave(unread=True)

    def leave(self, *, unread: bool = False) -> None:
        """Close the connection when the client has read the answer, or after a moment."""
        self._expect(None)
        if self.is_leaving or self.socket.is_closing():
            return
        self.is_leaving = True
        self.packets.flush()
        if unread or self.conn.their_state is h11.SEND_BODY or self.conn.is_last:
            self.socket.write_eof()
            self.socket.resume_reading()
        else:
            self.socket.close()
        self.loop.call_later(LINGER_SECONDS, self.socket.abort)

    def shutdown(self) -> None:
        """Close an idle connection; a busy one closes after its answer."""
        if not self.is_leaving:
            self.conn.is_last = self.cycle is not None and not self.cycle.response_complete
            super().shutdown()

    def pause_writing(self) -> None:
        """Give a client that does not read its answer some time."""
        super().pause_writing()
        self.stalled = self.loop.call_later(self.limits.body_seconds, self.socket.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        if self.stalled is not None:
            self.stalled.cancel()
        super().resume_writing()

    def _expect(self, seconds: float | None, late: Callable[[], None] | None = None) -> None:
        """Set the deadline of what is awaited next; None: nothing is."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = None if seconds is None or late is None else self.loop.call_later(seconds, late)

    def _slow_headers(self) -> None:
        if self.head:
            self.refuse(REFUSALS["slow_headers"])
        else:  # nothing was asked
            self.leave()

    def _slow_body(self) -> None:
        self.refuse(REFUSALS["slow_body"])
