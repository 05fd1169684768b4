"""Limits and deadlines, each at the limit and one beyond it."""

import asyncio
import errno
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from http_common import FakeEngine, Server, drained, one_answer, request, server, status_of
from seqloom.config.serving import ServingConfig
from seqloom.serve.connection import LINGER_SECONDS, MOST_LINGERING
from seqloom.serve.dispatch import most_requests
from seqloom.serve.heads import MAX_CHUNKS, MAX_HEADER_BYTES, MAX_HEADER_FIELDS, MAX_REQUEST_LINE, early_refusal
from seqloom.serve.listener import MOST_ACCEPTED, SPARE_FILES, LoopErrors

SHORT = {"header_seconds": 0.3, "body_seconds": 0.5, "keep_alive_seconds": 0.4, "total_seconds": 0.6}
BODY_BYTES = 4_096


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A server with small limits and short deadlines."""
    with server(ServingConfig(port=0, max_body_bytes=BODY_BYTES, max_characters=50, max_connections=8, **SHORT)) as one:
        yield one


def body_of(size: int) -> bytes:
    empty = b'{"texts":["a"],"model":"all"}'
    return empty + b" " * (size - len(empty))


def chunked(body: bytes, size: int, port: int) -> bytes:
    head = f"POST /v1/classify HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head.encode() + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n" + framed + b"0\r\n\r\n"


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 413)])
def test_a_body_of_the_limit_is_read_and_one_more_byte_is_not(small: Server, more: int, status: int) -> None:
    data = request("/v1/classify", body_of(BODY_BYTES + more), "connection: close", port=small.port)
    assert status_of(small.raw(data)) == status
    assert status_of(small.raw(chunked(body_of(BODY_BYTES + more), 100, small.port))) == status


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(small: Server) -> None:
    begin = request("/v1/classify", body_of(BODY_BYTES + 1), port=small.port).partition(b"\r\n\r\n")[0]
    assert status_of(small.raw(begin + b"\r\n\r\n")) == 413


@pytest.mark.slow
def test_what_stands_between_the_chunks_of_a_body_is_counted_too() -> None:
    with server() as one:
        first, _, chunks = chunked(body_of(100), 1, one.port).partition(b"\r\n\r\n")
        long = chunks.replace(b"1\r\n", b"1;" + b"a" * 20_000 + b"\r\n")
        assert status_of(one.raw(first + b"\r\n\r\n" + long)) == 413


@pytest.mark.slow
def test_the_default_limit_of_a_body_is_one_mebibyte() -> None:
    with server() as one:
        for size, status in ((1 << 20, 200), ((1 << 20) + 1, 413)):
            assert (
                status_of(one.raw(request("/v1/classify", body_of(size), "connection: close", port=one.port))) == status
            )


@pytest.mark.slow
@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 413)])
def test_the_chunks_of_a_body_are_counted(more: int, status: int) -> None:
    with server() as one:
        data = chunked(body_of(MAX_CHUNKS + more), 1, one.port)
        assert status_of(one.raw(data)) == status


def head(port: int, line: str = "GET /health HTTP/1.1", *fields: str) -> bytes:
    return "\r\n".join([line, f"host: 127.0.0.1:{port}", "connection: close", *fields, "", ""]).encode()


@pytest.mark.parametrize(("more", "status"), [(0, 404), (1, 414)])
def test_the_length_of_the_request_line(small: Server, more: int, status: int) -> None:
    line = "GET /" + "a" * (MAX_REQUEST_LINE + more - len("GET / HTTP/1.1")) + " HTTP/1.1"
    assert status_of(small.raw(head(small.port, line))) == status


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 431)])
def test_the_bytes_of_the_headers(small: Server, more: int, status: int) -> None:
    used = len(head(small.port)) - len("GET /health HTTP/1.1\r\n\r\n")
    padding = "a: " + "b" * (MAX_HEADER_BYTES + more - used - len("a: \r\n"))
    assert status_of(small.raw(head(small.port, "GET /health HTTP/1.1", padding))) == status


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 431)])
def test_the_number_of_header_fields(small: Server, more: int, status: int) -> None:
    fields = [f"a{number}: b" for number in range(MAX_HEADER_FIELDS + more - 2)]
    assert status_of(small.raw(head(small.port, "GET /health HTTP/1.1", *fields))) == status


def test_items_and_characters(small: Server) -> None:
    for count, status in ((32, 200), (33, 422), (0, 422)):
        got, found = small.post("/v1/classify", {"texts": ["a"] * count})
        assert got == status, found
    assert found["error"]["field"] == "texts"
    for size, status in ((50, 200), (51, 422)):
        for text in ("a" * size, ["a" * (size - 1), "b"]):
            got, found = small.post("/v1/classify", {"texts": ["b", text]})
            assert got == status, found
            assert status == 200 or found["error"]["field"] == "texts[1]"
        for other in ([1] * size, {"nodes": "a" * (size - 5)}):
            got, found = small.post("/v1/regress", {"inputs": [[1], other], "model": "numbers"})
            assert got == status, found
            assert status == 200 or found["error"]["field"] == "inputs[1]"


def test_embeddings_take_256_items_a_call(small: Server) -> None:
    for count, status in ((256, 200), (257, 422)):
        got, _ = small.post("/v1/embeddings", {"model": "all", "input": ["a"] * count})
        assert got == status


@pytest.mark.slow
def test_depth() -> None:
    with server() as one:
        for depth, status in ((32, 200), (33, 422), (250_000, 422)):
            inner = "[" * (depth - 2) + "]" * (depth - 2)
            got, found = one.post("/v1/regress", f'{{"model":"numbers","inputs":[{inner}]}}'.encode())
            assert got == status
        assert found["error"]["code"] == "too_deep"
        texts = {"texts": ["[" * 100]}
        assert one.post("/v1/classify", texts)[0] == 200  # brackets of texts are no levels


def timed(one: Server, data: bytes) -> tuple[int, float]:
    begun = time.monotonic()
    answer = one.raw(data)
    return status_of(answer), time.monotonic() - begun


@pytest.mark.slow
def test_slow_headers_get_408(small: Server) -> None:
    status, seconds = timed(small, b"GET /health HTTP/1.1\r\nhost:")
    assert (status, 0.25 < seconds < 2) == (408, True)


@pytest.mark.slow
def test_a_slow_body_gets_408_whatever_trickles_in(small: Server) -> None:
    data = request(port=small.port)
    with small.connect() as one:
        begun = time.monotonic()
        one.sendall(data[:-6])
        for byte in data[-6:-1]:  # a byte now and then must not extend the deadline
            time.sleep(0.07)
            one.sendall(bytes([byte]))
        assert status_of(drained(one)) == 408
        assert 0.4 < time.monotonic() - begun < 2


@pytest.mark.slow
def test_a_trickle_of_headers_does_not_extend_their_deadline(small: Server) -> None:
    with small.connect() as one:
        begun = time.monotonic()
        try:
            for byte in b"GET /health HTTP/1.1\r\n" * 4:
                one.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            pass
        assert time.monotonic() - begun < 1.5
    assert small.is_healthy()


@pytest.mark.slow
def test_idle_connections_are_closed(small: Server) -> None:
    with small.connect() as one:  # before the first request
        begun = time.monotonic()
        assert one.recv(10) == b""
        assert 0.25 < time.monotonic() - begun < 2
    with small.connect() as one:  # and after one
        one.sendall(head(small.port).replace(b"connection: close\r\n", b""))
        assert b"200 OK" in one_answer(one)
        begun = time.monotonic()
        assert one.recv(10) == b""
        assert 0.3 < time.monotonic() - begun < 2


@pytest.mark.slow
def test_an_answer_that_takes_too_long_gets_504_and_a_stream_an_event() -> None:
    with server(ServingConfig(port=0, **SHORT), FakeEngine(seconds=0.1, longest=0.05)) as one:
        status, found = one.post("/v1/classify", {"texts": ["a"]})
        assert (status, found["error"]["code"]) == (504, "timed_out")
    with server(ServingConfig(port=0, total_seconds=0.1), FakeEngine(seconds=0.03, longest=0.2)) as one:
        body = {"model": "all", "prompt": "a", "stream": True, "max_tokens": 100}
        status, text, _ = one.ask("POST", "/v1/completions", body)  # the engine has the clock
        *parts, last, end = text.split("\n\n")
        assert (status, end, len(parts) > 1) == (200, "", True)
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timed_out"
        counted = one.ask("GET", "/metrics")[1]
        assert 'seqloom_requests_total{method="POST",route="/v1/completions",status="200"} 1' in counted
        assert 'seqloom_refusals_total{code="timed_out"} 1' in counted
    assert re.search(r"POST /v1/completions 200 .* code=timed_out\n", one.log.getvalue())


@pytest.mark.slow
def test_what_is_refused_before_any_route_is_counted_with_what_is_known_of_it() -> None:
    key = "a-long-key-of-alice-0123456789"
    config = ServingConfig(port=0, max_waiting=0, max_batch=1, header_seconds=0.3, body_seconds=0.3)
    with server(config, FakeEngine(seconds=1.0), {"alice": key}) as one, ExitStack() as stack:
        fields, text = (f"authorization: Bearer {key}", "connection: close"), b'{"texts":["a"],"model":"all"}'
        data = request("/v1/embed", text, *fields, port=one.port)
        assert status_of(one.raw(data[:-1])) == 408
        for _ in range(most_requests(config)):
            stack.enter_context(one.connect()).sendall(data)
        until(lambda: one.engine.running == most_requests(config))
        assert status_of(one.raw(request("/v1/classify", text, *fields, port=one.port))) == 429
        assert status_of(one.raw(request("/v1/tag", text, "content-length: 9", port=one.port))) == 400
        assert status_of(one.raw(b"BREW /secret HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n")) == 400
        assert status_of(one.raw(b"GET /hea")) == 408
        counted = one.ask("GET", "/metrics", headers={"Authorization": f"Bearer {key}"})[1]
    for method, route, status in (
        ("POST", "/v1/embed", 408),
        ("POST", "/v1/classify", 429),
        ("POST", "/v1/tag", 400),
        ("-", "-", 400),
        ("-", "-", 408),
    ):
        assert f'requests_total{{method="{method}",route="{route}",status="{status}"}} 1\n' in counted
    (seconds,) = re.findall(r'request_seconds_sum{route="/v1/embed"} (\S+)', counted)
    assert 0.25 < float(seconds) < 2
    lines = [line.partition(" ")[2] for line in one.log.getvalue().splitlines()]
    assert any(re.match(r"POST /v1/embed 408 [2-9]\d\d\.\dms client=alice code=slow_body", line) for line in lines)
    assert any(re.match(r"POST /v1/classify 429 \S+ client=alice code=overloaded", line) for line in lines)
    assert any(re.match(r"- - 408 \S+ client=127.0.0.1 code=slow_headers", line) for line in lines)


@pytest.mark.slow
def test_one_connection_too_many_gets_503(small: Server) -> None:
    time.sleep(0.05)
    held = [small.connect() for _ in range(8)]
    try:
        time.sleep(0.1)
        with small.connect() as late:
            assert status_of(drained(late)) == 503
        held.pop().close()
        time.sleep(0.1)
        assert small.is_healthy()
    finally:
        for one in held:
            one.close()


@pytest.mark.slow
def test_a_full_queue_gets_429_with_retry_after() -> None:
    with server(engine=FakeEngine(most=0)) as one:
        status, found, headers = one.ask("POST", "/v1/classify", {"texts": ["a"]})
        assert (status, found["error"]["code"], headers["retry-after"]) == (429, "overloaded", "1")


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    with server(ServingConfig(port=0, max_items=100_000, **SHORT)) as one:
        body = json.dumps({"texts": ["a"] * 60_000, "model": "all"}).encode()  # an answer of 3 MB
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            lazy.connect(("127.0.0.1", one.port))
            lazy.sendall(request("/v1/classify", body, port=one.port))
            time.sleep(0.3)
            assert len(one.listener.server_state.connections) == 1
            deadline = time.monotonic() + 5
            while one.listener.server_state.connections and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not one.listener.server_state.connections


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_the_whole_of_a_last_answer() -> None:
    with server(ServingConfig(port=0, max_items=100_000)) as one:
        body = json.dumps({"texts": ["a"] * 60_000, "model": "all"}).encode()  # an answer of 3 MB
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", one.port))
            slow.sendall(request("/v1/classify", body, "connection: close", port=one.port))
            begin = slow.recv(1_024)
            time.sleep(LINGER_SECONDS + 0.3)
            head, _, answer = (begin + drained(slow)).partition(b"\r\n\r\n")
        assert len(answer) == int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])


GOOD_HEAD = b"GET / HTTP/1.1\r\na: b\r\nc: d\r\n\r"


@pytest.mark.parametrize(
    ("wrong", "is_refused"),
    [(b"", False), (b"\x00", True), (b"\r", True), (b"\n", True), (b"\n ", True), (b"\r\n ", True)],
)
def test_a_head_in_pieces_is_refused_as_a_whole_one_and_read_once(wrong: bytes, is_refused: bool) -> None:
    text = GOOD_HEAD.replace(b"a: b", b"a: b" + wrong + b"x" * bool(wrong))
    for size in (1, 2, 3, len(text)):
        refused = [early_refusal(bytearray(text[: end + size]), end) is not None for end in range(0, len(text), size)]
        assert any(refused) == is_refused, size
    assert early_refusal(bytearray(b"GET / HTTP/1.1\r\n\x00aaaaaa"), 22) is None  # what was seen is not read again


def test_a_refused_client_that_still_sends_can_read_why(small: Server) -> None:
    data = request("/v1/classify", b"x" * 100_000, port=small.port)
    with small.connect() as one:
        for start in range(0, len(data), 10_000):
            one.sendall(data[start : start + 10_000])  # what comes after the refusal is discarded: no reset
            time.sleep(0.01)
        assert status_of(drained(one)) == 413


@pytest.mark.slow
def test_a_client_that_does_not_read_its_stream_is_dropped() -> None:
    engine = FakeEngine()
    engine.part = "x" * (1 << 18)
    with server(ServingConfig(port=0, body_seconds=0.5), engine) as one, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        lazy.connect(("127.0.0.1", one.port))
        body = b'{"model":"all","prompt":"a","stream":true,"max_tokens":1000}'
        lazy.sendall(request("/v1/completions", body, port=one.port))
        deadline = time.monotonic() + 5
        while not engine.ended and time.monotonic() < deadline:
            time.sleep(0.02)
        assert engine.ended == ["cancelled"]


def test_requests_follow_each_other_on_one_connection(small: Server) -> None:
    data = request(port=small.port)
    with small.connect() as one:
        for _ in range(5):
            one.sendall(data)
            assert b"200 OK" in one_answer(one)


def test_a_request_that_does_not_wait_for_the_answer_before_it_is_not_read(small: Server) -> None:
    data = request(port=small.port)
    assert small.raw(data * 1_000).count(b"HTTP/1.1 200 OK") == 1


def streamed(one: Server, client: socket.socket) -> None:
    """Ask for a stream, and wait for its first part."""
    body = b'{"model":"all","prompt":"a","stream":true,"max_tokens":4}'
    client.sendall(request("/v1/completions", body, port=one.port))
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_what_comes_during_a_streamed_answer_is_dropped_and_never_read_as_a_request() -> None:
    with server(engine=FakeEngine(seconds=0.15)) as one:
        inner = f"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1:{one.port}\r\n\r\n".encode()
        head = request("/v1/classify", inner, port=one.port)[: -len(inner)]
        with one.connect() as client:
            streamed(one, client)
            client.sendall(head)  # the head of a request, whose body is a request too
            time.sleep(0.05)
            client.sendall(inner)
            begun = time.monotonic()
            found = drained(client)
            assert time.monotonic() - begun < one.listener.limits.keep_alive_seconds / 2  # it closes after the answer
        assert b"[DONE]" in found and b"HTTP/1.1" not in found
        with one.connect() as client:
            streamed(one, client)
            client.sendall(b"\r\n")
            assert b"[DONE]" in drained(client)


@pytest.mark.slow
@pytest.mark.parametrize("more", [b"\r\n", b"GET /health HTTP/1.1\r\n"])
def test_a_client_that_leaves_after_more_bytes_than_its_request_is_noticed(more: bytes) -> None:
    with server(engine=FakeEngine(seconds=30)) as one:
        for is_apart in (True, False):
            with one.connect() as client:
                client.sendall(request(port=one.port) + (b"" if is_apart else more))
                until(lambda: one.engine.running == 1)
                if is_apart:
                    client.sendall(more)
                    time.sleep(0.05)
            until(lambda: one.engine.running == 0)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


@pytest.mark.slow
def test_far_too_many_connections_leave_files_for_other_things() -> None:
    most, tried = 20, 200
    with server(ServingConfig(port=0, max_connections=most)) as one, ExitStack() as stack:
        held = [stack.enter_context(one.connect()) for _ in range(tried)]
        refused = 'seqloom_refusals_total{code="connections"}'
        until(lambda: one.app.traffic.refusals["connections"] == tried - most)
        assert len(one.listener.server_state.connections) <= most + MOST_LINGERING, "lingering ones are files too"
        answers = [drained(client) for client in held[most:]]
        assert {status_of(answer) for answer in answers} <= {503, 0}
        stack.close()
        until(one.is_healthy)
        assert f"{refused} {tried - most}" in one.ask("GET", "/metrics")[1]


def test_connections_are_accepted_in_small_groups_and_errors_of_the_loop_are_lines() -> None:
    with server() as one:
        assert one.is_healthy()
        assert one.listener.config.backlog == MOST_ACCEPTED  # asyncio accepts as many before any of them is counted
        assert 3 * MOST_ACCEPTED + MOST_LINGERING < SPARE_FILES
        loop = asyncio.new_event_loop()
        handle = LoopErrors(one.app.traffic.log)
        for text in ("secret text", "another"):
            context = {
                "message": f"Exception in callback f({text})",
                "exception": OSError(errno.EMFILE, "no file", text),
            }
            handle(loop, context)
        handle(loop, {"message": "secret text"})
        loop.close()
        until(lambda: one.log.getvalue().count("error: ") >= 2)
        first, second = (line for line in one.log.getvalue().splitlines() if "error: " in line)
        assert first.endswith("error: no file: OSError at ") and second.endswith("error: the event loop")
        assert "secret" not in one.log.getvalue()


@pytest.mark.skipif(os.name != "posix", reason="limits of files")
def test_a_server_takes_no_more_connections_than_the_system_has_files() -> None:
    script = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1_024)); " + (
        "from seqloom.serve.listener import allow_connections as allow; "
        "print(allow(100), resource.getrlimit(resource.RLIMIT_NOFILE)[0], allow(1_024))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["100", "356", str(1_024 - SPARE_FILES)]
