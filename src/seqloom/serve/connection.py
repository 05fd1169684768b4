"""One HTTP connection with limits and deadlines, which uvicorn lacks.

    bytes ──▶ head: complete? within limits? well-formed? ──▶ h11 ──▶ body: bytes and chunks counted ──▶ app
              header deadline                                        body deadline

A request that is wrong in form, too large or too slow is refused here, before any route is asked, and the connection
closes. The parser is h11: it is strict and in Python, so that each event can be counted as it is read. A second request
that is sent before the answer to the first (pipelining) is not read; the connection closes after the first answer.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import h11
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from seqloom.config.serving import ServingConfig
from seqloom.serve.answers import OPENAI_PATHS, HttpRefusal
from seqloom.serve.calls import LANES, Lane
from seqloom.serve.dispatch import most_requests
from seqloom.serve.heads import (
    BUSY,
    CHUNK_BYTES,
    CLOSE,
    LENGTH,
    MALFORMED_REQUEST,
    MAX_CHUNKS,
    MAX_HEADER_BYTES,
    MAX_REQUEST_LINE,
    NOTHING,
    REFUSALS,
    asked_of,
    body_bytes,
    body_too_large,
    early_refusal,
    fields_of,
    head_refusal,
)
from seqloom.serve.policies import Access
from seqloom.serve.room import BODIES, Guest
from seqloom.serve.traffic import UNROUTED, Exchange, Traffic

LINGER_SECONDS = 1.0  # in which a client can read the last answer while it still sends
CLOSE_FIELD = (b"connection", b"close")
MOST_LINGERING = 64  # connections beyond the limit; further ones are closed without a word
LINGER_BYTES = 1 << 22
BUSY_ANSWERS = {is_openai: BUSY.raw(is_openai=is_openai, is_last=False) for is_openai in (False, True)}
WORK: dict[bytes, tuple[Lane, ...]] = {
    **{f"/v1/{verb}".encode(): lanes for verb, lanes in LANES.items()},
    b"/v1/completions": ("prompts",),
    b"/v1/embeddings": LANES["embed"],
}


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
            fields = [*event.headers] if CLOSE_FIELD in event.headers else [*event.headers, CLOSE_FIELD]
            event = h11.Response(status_code=event.status_code, headers=fields, reason=event.reason)
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

    def get_write_buffer_size(self) -> int:
        """The bytes that are not sent yet."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._parts))

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
        self.begun = 0.0  # when the first byte of the request came
        self.method, self.target = NOTHING
        self.sender: str | None = None  # of a request to a model
        self.guest = Guest(traffic.room, lambda: self.refuse(BUSY), lambda: self.socket.abort())
        self.discarded = 0
        self.most = most_requests(limits)
        self.most_bytes = BODIES * limits.max_body_bytes
        self.socket: asyncio.Transport = None  # type: ignore[assignment]  # set when the connection is made
        self.packets: LingeringTransport = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and give it time for its first request."""
        self.socket, self.begun = transport, self.loop.time()
        self.packets = LingeringTransport(transport, self.loop, self.leave)
        super().connection_made(cast(asyncio.Transport, self.packets))
        beyond = len(self.connections) - self.limits.max_connections
        if beyond > MOST_LINGERING:  # each is an open file, and there must be some for other things
            self._count(REFUSALS["connections"])
            self.is_leaving = True
            self.socket.abort()
        elif beyond > 0:
            self.refuse(REFUSALS["connections"])
        else:
            self._expect(self.limits.header_seconds, self._slow_headers)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the work for a client that has left; a body that is being parsed keeps its room until then."""
        self._expect(None)
        self.guest.end_waiting()
        if self.stalled is not None:
            self.stalled.cancel()
        task = self._end_work() if self.cycle is not None and not self.cycle.response_complete else None
        if task is None or not self.guest.is_complete:
            self.guest.leave()
        else:
            task.add_done_callback(lambda _: self.guest.leave())
        super().connection_lost(exc)

    def _end_work(self) -> asyncio.Task[None] | None:
        """End the task of the request, and return it; None if it has not begun."""
        self.cycle.disconnected = self.scope["state"]["is_ended"] = True
        self.cycle.message_event.set()
        task: asyncio.Task[None] | None = self.scope["state"].get("task")
        if task is not None:
            task.cancel()
        return task

    def data_received(self, data: bytes) -> None:
        """Read a head, then a body; what a refused client still sends is discarded."""
        if self.is_leaving:
            self._discard(data)
            return
        if self.head is not None:
            is_new = not self.head
            if is_new:
                self.begun, self.sender = self.loop.time(), None
                self.method, self.target = NOTHING
            found = self._read_head(data)
            if found is None:
                if is_new and self.head and self.deadline is None and not self.is_leaving:
                    self._unset_keepalive_if_required()
                    self._expect(self.limits.header_seconds, self._slow_headers)
                return
            data, body = found
            self._expect(None)
        elif self.conn.their_state is not h11.SEND_BODY:  # the next request, before this one is answered
            self.conn.is_last, self.cycle.keep_alive = True, False  # what follows cannot be understood without it
            self._discard(data)
            return
        else:
            body = len(data)
        self._read_body(data, body)

    def _discard(self, data: bytes) -> None:
        """Drop what is not read. Reading goes on, because it tells whether the client has left."""
        self.discarded += len(data)
        if self.discarded > LINGER_BYTES:
            self.socket.abort()

    def _read_body(self, data: bytes, body: int) -> None:
        """Read a part of a request, which has this many bytes of its body, as long as there is room for them."""
        if self.is_work and not self.guest.read(body, self.most_bytes):
            self.refuse(BUSY)
            return
        super().data_received(data)
        if self.is_leaving:
            return
        if self.conn.their_state is h11.SEND_BODY:
            if self.deadline is None:
                self._expect(self.limits.body_seconds, self._slow_body)
            return
        self._expect(None)
        if self.cycle is None or self.cycle.response_complete:
            self.guest.leave()
        elif self.is_full and not self.cycle.response_started:
            self.refuse(BUSY)  # others were quicker
        else:
            if self.is_work:
                self.guest.complete()
            self.flow.resume_reading()  # uvicorn pauses in large bodies; who does not read does not see a client leave

    @property
    def is_openai(self) -> bool:
        """Whether refusals have the form that clients of OpenAI read."""
        return self.target in OPENAI_PATHS

    @property
    def is_work(self) -> bool:
        """Whether a model is asked, by a client that may."""
        return self.sender is not None

    @property
    def is_full(self) -> bool:
        """Whether there is no place for a request in the engine, or none for another answer."""
        room = self.traffic.room
        return self.is_work and (
            room.complete >= self.most
            or self.app.engine.is_full(WORK.get(self.target, ()), room.complete)
            or not room.is_read()
        )

    def _refused_as_busy(self, head: bytes, body: bytes) -> bool:
        """Refuse a request that would find the queue full, before any of it is parsed.

        The connection stays if all of the request is here, and the client reads its answers.
        """
        if not self.is_full:
            return False
        length = LENGTH.search(head)
        if CLOSE.search(head) or length is None or len(body) != int(length[1]) or self.flow.write_paused:
            self.refuse(BUSY)
            return True
        self._count(BUSY)
        self.packets.flush()  # the answer to the request before this one comes first
        self.socket.write(BUSY_ANSWERS[self.is_openai])
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._expect(None)
        self.head = bytearray()
        return True

    def _read_head(self, data: bytes) -> tuple[bytes, int] | None:
        """Return the head and what follows it, and the bytes of that, when it is complete and fine; None until then."""
        assert self.head is not None
        before = len(self.head)
        self.head += data
        end = self.head.find(b"\r\n\r\n", max(0, before - 3))
        if end < 0:
            if (refusal := early_refusal(self.head, before)) is not None:
                self.refuse(refusal)
            return None
        whole = bytes(self.head)
        head = whole[: end + 4]
        self.method, self.target = asked_of(head)
        if (refusal := head_refusal(head, self.limits.max_body_bytes)) is not None:
            self.refuse(refusal)
            return None
        if self.method == b"POST":  # all others are answered at once, so they need no room
            access: Access = self.app.access  # of HttpApp
            self.sender = access.admitted(fields_of(head))
        if self._refused_as_busy(head, whole[end + 4 :]):
            return None
        self.head = None
        return whole, body_bytes(head, len(whole) - len(head))

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.guest.leave()
        super().on_response_complete()
        if not self.is_leaving and not self.conn.is_last and self.conn.their_state is h11.IDLE:
            self.head = bytearray()
            self._expect(None)

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser did not accept."""
        self.refuse(self.conn.refusal)

    def refuse(self, refusal: HttpRefusal) -> None:
        """Answer without asking a route, and close."""
        self.guest.leave()
        self._unset_keepalive_if_required()
        self._count(refusal)
        self.packets.flush()
        answered = self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started
        if not answered:  # nothing can be said in the middle of another answer
            self.socket.write(refusal.raw(is_openai=self.is_openai))
        if self.cycle is not None and not self.cycle.response_complete:
            self.scope["state"]["is_refused"] = True  # and counted, here
            self._end_work()
        self.leave(unread=True)

    def _count(self, refusal: HttpRefusal) -> None:
        """Count and log a request that is refused here, with what is known of it."""
        route = self.target.decode() if self.target in self.app.paths else UNROUTED
        sender = self.sender or (self.client[0] if self.client else "")
        seconds = self.loop.time() - self.begun
        self.traffic.count(
            Exchange(self.method.decode("latin-1"), route, refusal.status, seconds, sender, code=refusal.code)
        )

    def leave(self, *, unread: bool = False) -> None:
        """Close the connection when the client has read the answer, or after a moment."""
        self._expect(None)
        if self.is_leaving or self.socket.is_closing():
            return
        self.is_leaving = True
        self.packets.flush()
        sent = self.socket.get_write_buffer_size() == 0
        if unread or self.conn.their_state is h11.SEND_BODY or self.conn.is_last:
            with suppress(OSError):  # the client has left: reading will say so
                self.socket.write_eof()
            self.socket.resume_reading()
        else:
            self.socket.close()
        self.loop.call_later(LINGER_SECONDS, self._end, self.loop.time() + self.limits.body_seconds, sent)

    def _end(self, until: float, sent: bool) -> None:
        """Cut the connection a moment after the answer is sent, or when the client has not read it in its time."""
        if sent or self.loop.time() >= until:
            self.socket.abort()
        else:
            sent = self.socket.get_write_buffer_size() == 0
            self.loop.call_later(min(LINGER_SECONDS, max(0.0, until - self.loop.time())), self._end, until, sent)

    @property
    def is_sending(self) -> bool:
        """Whether the client has not read all that was written."""
        return self.packets.get_write_buffer_size() > 0

    def shutdown(self) -> None:
        """Close an idle connection; a busy one closes after its answer."""
        if not self.is_leaving:
            self.conn.is_last = self.cycle is not None and not self.cycle.response_complete
            super().shutdown()

    def pause_writing(self) -> None:
        """Give a client that does not read its answer some time."""
        super().pause_writing()
        self.guest.wait(self.socket.get_write_buffer_size())
        self.stalled = self.loop.call_later(self.limits.body_seconds, self.socket.abort)

    def resume_writing(self) -> None:
        """The client has read almost all of it."""
        self.guest.end_waiting()
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
