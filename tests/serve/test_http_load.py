"""Many requests, too many requests, slow clients, and a stop in the middle of them, with an engine that only waits.

Times are compared with times of the same run. The goals in requests per second are in benchmarks/serving_load.py.
"""

import asyncio
import http.client
import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Container
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from http_common import JSON, OUTPUTS, FakeEngine, Server, drained, one_answer, request, server, status_of
from seqloom.config.serving import ServingConfig
from seqloom.serve import bodies
from seqloom.serve.answers import HttpRefusal
from seqloom.serve.calls import LANES, Lane, checked_options
from seqloom.serve.connection import LINGER_SECONDS, LimitedProtocol
from seqloom.serve.dispatch import most_requests
from seqloom.serve.engine import Engine, ModelCard, Verb
from seqloom.serve.listener import allow_connections
from seqloom.serve.messages import (
    BatchAnswers,
    ComputeBatch,
    ContinuePrompt,
    FromWorker,
    ItemAnswer,
    PromptNews,
    PromptProgress,
    ToWorker,
    WorkerReady,
)
from seqloom.serve.refusals import TimedOut, WaitedTooLong
from seqloom.serve.room import BODIES

BODY = b'{"texts":["a small text of some words"],"model":"all"}'


def traffic(one: Server, seconds: float, clients: int = 2) -> tuple[Counter[int], list[float]]:
    """Statuses and times of clients that each send one request after the other."""
    statuses: Counter[int] = Counter()
    times: list[float] = []
    end = time.monotonic() + seconds

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=10)
        while time.monotonic() < end:
            begun = time.monotonic()
            connection.request("POST", "/v1/classify", BODY, JSON)
            answer = connection.getresponse()
            answer.read()
            statuses[answer.status] += 1
            if answer.status == 200:
                times.append(time.monotonic() - begun)
        connection.close()

    together([client] * clients)
    return statuses, sorted(times)


def together(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def quantile(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


def memory() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, pytest.param(60.0, marks=pytest.mark.soak)])
def test_load_is_answered_without_errors(seconds: float) -> None:
    with server(engine=FakeEngine(seconds=0.002)) as one:
        statuses, _ = traffic(one, seconds, clients=4)
        assert set(statuses) == {200}
        assert statuses[200] > 100 * seconds


class QueueEngine(Engine):
    """The engine as it is, with its queue and its clocks; a batch takes `seconds`, and nothing is computed."""

    def __init__(self, seconds: float, *, is_quick: bool = True, **settings: Any) -> None:
        super().__init__({"all": Path("all")}, ServingConfig(**settings))
        self.seconds, self.is_quick = seconds, is_quick
        (link,) = self._links
        link.cards["all"] = self._cards["all"] = FakeEngine().models["all"]
        link.send = self._compute  # type: ignore[method-assign]

    def is_full(self, lanes: Container[Lane], requests: int) -> bool:
        return self.is_quick and super().is_full(lanes, requests)

    def _compute(self, message: ToWorker) -> None:
        answers: FromWorker
        if isinstance(message, ContinuePrompt):
            news = PromptNews(message.id, answer=ItemAnswer([]), finish_reason="length")
            answers = PromptProgress([news], 1, self.seconds)
        else:
            assert isinstance(message, ComputeBatch), message
            answers = BatchAnswers(message.id, [ItemAnswer(OUTPUTS["classify"])] * len(message.items), self.seconds)
        asyncio.get_running_loop().call_later(self.seconds, self._received, self._links[0], answers)


QUEUE = {"max_batch": 4, "max_waiting": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_quick", "seconds"),
    [(False, 1.5), (True, 1.5), pytest.param(True, 60.0, marks=pytest.mark.soak)],
    ids=["by the engine", "before it is parsed", "long"],
)
def test_overload_is_refused_at_once_and_what_is_accepted_takes_no_longer(is_quick: bool, seconds: float) -> None:
    with server(ServingConfig(port=0), QueueEngine(0.02, is_quick=is_quick, **QUEUE)) as one:
        _, calm = traffic(one, 0.5, clients=2)
        before = memory()
        statuses, busy = traffic(one, seconds, clients=20)
        assert {200, 429} <= set(statuses) <= {200, 429, 503}
        counts = one.engine.counters
        assert counts["batch_items_total"] > 2 * counts["batches_total"], (
            "batches have to be full, or this shows nothing"
        )
        refused = counts["refused_total"]
        if is_quick:
            assert refused < 0.2 * statuses[429]  # those that came while the queue had places
        else:
            assert refused == statuses[429] + statuses[503]
        assert quantile(busy, 0.9) < 5 * quantile(calm, 0.9) + 0.25  # 20 clients share this process with the server
        assert memory() - before < 50 << 20
        _, after = traffic(one, 0.5, clients=2)
        assert quantile(after, 0.5) < 2 * quantile(calm, 0.5) + 0.05


@pytest.mark.slow
def test_as_many_requests_wait_as_may_whatever_else_runs() -> None:
    """A worker has prompts, a batch with pauses and one without at a time; a full lane closes no other one."""
    with ExitStack() as stack:
        one = stack.enter_context(server(ServingConfig(port=0, **QUEUE), QueueEngine(0.6, **QUEUE)))
        clients = list[socket.socket]()

        def asked(path: str, count: int) -> None:
            for _ in range(count):
                clients.append(stack.enter_context(one.connect()))
                clients[-1].sendall(request(path, BODY, port=one.port))

        def are(running: int, waiting: int) -> bool:
            return (one.engine.counters["running"], one.engine.counters["waiting"]) == (running, waiting)

        def status(path: str, body: Any) -> int:
            return one.post(path, body)[0]

        prompt, text = {"prompt": "a", "model": "all"}, {"texts": ["a"], "model": "all"}
        for path, count in (("/v1/generate", 4), ("/v1/translate", 1), ("/v1/classify", 1)):
            asked(path, count)
        wait_until(lambda: are(6, 0))
        asked("/v1/classify", 4)
        wait_until(lambda: are(6, 4))
        for path in ("/v1/classify", "/v1/translate", "/v1/generate", "/v1/completions"):
            assert status(path, prompt if path == "/v1/completions" else text) == 429
        assert one.engine.counters["refused_total"] == 0, "they were parsed"
        assert [status_of(one_answer(client)) for client in clients] == [200] * 10
        clients.clear()
        asked("/v1/generate", 8)
        wait_until(lambda: are(4, 4))
        assert (status("/v1/completions", prompt), one.engine.counters["refused_total"]) == (429, 0)
        assert [status(path, text) for path in ("/v1/classify", "/v1/translate")] == [200, 200]
        assert [status_of(one_answer(client)) for client in clients] == [200] * 8


@pytest.mark.parametrize(
    ("verb", "options", "lane"),
    [
        ("generate", {"temperature": 0.5, "num_samples": 2}, "prompts"),
        ("generate", {"beam_size": 2}, "pausing"),
        ("translate", {"beam_size": 1}, "pausing"),
        ("search", {"top_k": 3}, "pausing"),
        ("classify", {}, "batch"),
        ("embed", {}, "batch"),
    ],
)
def test_the_options_of_a_request_choose_one_of_the_lanes_of_its_verb(
    verb: Verb, options: dict[str, Any], lane: Lane
) -> None:
    chosen = checked_options(verb, options, ServingConfig(), by_vectors=True)
    assert lane == ("prompts" if chosen.continuous else "pausing" if chosen.pauses else "batch")
    assert lane in LANES[verb]


def slow_clients(one: Server, heads: int, bodies: int, readers: int) -> list[socket.socket]:
    data = request(port=one.port)
    large = b'{"model":"all","texts":[' + b",".join([b'"a"'] * 2_000) + b"]}"
    held = []
    for count, sent in ((heads, b"GET /health HTT"), (bodies, data[:-5]), (readers, None)):
        for _ in range(count):
            slow = socket.socket()
            if sent is None:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", one.port))
            slow.sendall(request("/v1/classify", large, port=one.port) if sent is None else sent)
            held.append(slow)
    return held


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heads", "bodies", "readers", "scale"),
    [pytest.param(120, 100, 10, 0.2), pytest.param(900, 200, 100, 1.0, marks=pytest.mark.soak)],
)
def test_slow_clients_are_dropped_and_others_do_not_notice(heads: int, bodies: int, readers: int, scale: float) -> None:
    clients = heads + bodies + readers
    assert allow_connections(2 * clients) == 2 * clients, "here are both ends of each: raise `ulimit -n`"
    share, seconds = (0.99, 3.0) if scale == 1 else (0.9, 0.5)  # there are too few requests for p99 in half a second
    config = ServingConfig(
        port=0,
        max_connections=2 * clients,
        max_items=2_000,
        max_waiting=readers,
        header_seconds=5.0 * scale,
        body_seconds=10.0 * scale,
        keep_alive_seconds=10.0 * scale,
    )
    with server(config, FakeEngine(seconds=0.002)) as one:
        _, calm = traffic(one, seconds)
        threads, before = threading.active_count(), memory()
        begun = time.monotonic()
        asked = len(one.engine.asked)
        held = slow_clients(one, heads, bodies, readers)
        while len(one.listener.server_state.connections) < heads + bodies and time.monotonic() < begun + 2:
            time.sleep(0.01)
        assert len(one.listener.server_state.connections) >= heads
        while len(one.engine.asked) < asked + readers and time.monotonic() < begun + 4:
            time.sleep(0.01)  # until the answers for the slow readers are made
        statuses, busy = traffic(one, seconds)
        assert set(statuses) == {200}
        assert quantile(busy, share) < 2 * quantile(calm, share) + 0.05
        while one.listener.server_state.connections and time.monotonic() < begun + 12 * scale + 3:
            time.sleep(0.05)
        assert not one.listener.server_state.connections, time.monotonic() - begun
        assert threading.active_count() <= threads
        assert memory() - before < 64 << 20  # with the answers that the readers did not read
        for slow in held:
            slow.close()


@pytest.mark.slow
def test_far_more_requests_than_can_wait_are_refused_before_they_are_parsed_and_questions_are_answered() -> None:
    config = ServingConfig(port=0, max_waiting=2, max_batch=1)
    most = most_requests(config)
    with server(config, FakeEngine(seconds=0.5)) as one:
        data = request("/v1/classify", BODY, port=one.port)
        busy = [one.connect() for _ in range(most)]
        for client in busy:
            client.sendall(data)
        time.sleep(0.1)
        with one.connect() as late:
            for _ in range(3):  # the connection stays
                late.sendall(data)
                answer = one_answer(late)
                assert (status_of(answer), b"retry-after: 1" in answer.lower()) == (429, True)
            late.sendall(data[:-3])  # a body that is not here yet is not waited for
            answer = drained(late)
            assert (status_of(answer), b"connection: close" in answer) == (429, True)
        assert one.is_healthy()
        assert [status_of(one_answer(client)) for client in busy] == [200] * most
        with one.connect() as slow:  # it began when there was room, and others were quicker
            slow.sendall(data[:-3])
            time.sleep(0.05)
            for client in busy:
                client.sendall(data)
            time.sleep(0.1)
            slow.sendall(data[-3:])
            assert status_of(drained(slow)) == 429
        assert [status_of(one_answer(client)) for client in busy] == [200] * most
        for client in busy:
            client.close()
        assert 'seqloom_refusals_total{code="overloaded"} 5' in one.ask("GET", "/metrics")[1]


def test_a_request_that_is_refused_in_the_turn_of_an_answer_is_answered_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completed = LimitedProtocol.on_response_complete

    def refused_at_once(self: LimitedProtocol) -> None:
        completed(self)
        monkeypatch.undo()
        room = self.traffic.room
        room.complete += self.most  # others have filled it
        self.data_received(request("/v1/classify", BODY, port=one.port))
        room.complete -= self.most

    with server() as one, one.connect() as client:
        monkeypatch.setattr(LimitedProtocol, "on_response_complete", refused_at_once)
        client.sendall(request("/v1/classify", BODY, port=one.port))
        assert status_of(one_answer(client)) == 200


@pytest.mark.slow
def test_a_full_queue_changes_nothing_for_requests_that_are_wrong_and_openai_routes_keep_their_form() -> None:
    config = ServingConfig(port=0, max_waiting=1, max_batch=1)
    with server(config, FakeEngine(seconds=0.5)) as one:
        busy = [one.connect() for _ in range(most_requests(config))]
        for client in busy:
            client.sendall(request("/v1/classify", BODY, port=one.port))
        time.sleep(0.1)
        wrong = {
            "transfer-encoding: chunked": 400,
            "content-length: 9": 400,
            "host: evil": 400,
            "connection: close": 429,
        }
        for more, status in wrong.items():  # all of them close, else this would wait
            assert status_of(one.raw(request("/v1/classify", BODY, more, port=one.port))) == status, more
        evil = request("/v1/classify", BODY, "connection: close", port=one.port).replace(b"host: 127", b"host: 128")
        assert status_of(one.raw(evil)) == 421
        status, found = one.post("/v1/completions", {"model": "all", "prompt": "a"})
        assert (status, set(found["error"])) == (429, {"message", "type", "param", "code"})
        for client in busy:
            assert status_of(one_answer(client)) == 200
            client.close()


NUMBERS = json.dumps({"inputs": [list(range(9)) * 3_000] * 7, "model": "numbers"}).encode()


@pytest.mark.slow
def test_large_bodies_beyond_what_can_wait_are_refused_and_do_not_delay_questions() -> None:
    config = ServingConfig(port=0, max_waiting=2, max_batch=1)
    statuses: Counter[int] = Counter()
    with server(config, FakeEngine(seconds=0.3)) as one:

        def client() -> None:
            statuses[status_of(one.raw(request("/v1/regress", NUMBERS, "connection: close", port=one.port)))] += 1

        times: list[float] = []

        def question() -> None:
            for _ in range(10):
                begun = time.monotonic()
                assert one.is_healthy()
                times.append(time.monotonic() - begun)

        together([*[client] * 40, question])
        assert set(statuses) == {200, 429}
        assert len(one.engine.asked) == statuses[200] < 20
        assert quantile(sorted(times), 0.5) < 0.25


@pytest.mark.slow
def test_large_bodies_are_parsed_in_a_thread_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, seen = [0], set[tuple[str, int]]()

    def parsed(body: bytes) -> Any:
        running[0] += 1
        time.sleep(0.02)
        seen.add((threading.current_thread().name.partition("_")[0], running[0]))
        running[0] -= 1
        return json.loads(body)

    with server() as one:
        listener = next(thread.name for thread in threading.enumerate() if "<lambda>" in thread.name)
        monkeypatch.setattr(bodies, "parsed", parsed)
        large = BODY + b" " * bodies.LARGE
        together([lambda: one.raw(request("/v1/classify", large, "connection: close", port=one.port)) and None] * 4)
        assert seen == {("asyncio", 1)}
        one.raw(request("/v1/classify", BODY, "connection: close", port=one.port))
        assert seen == {("asyncio", 1), (listener, 1)}


@pytest.mark.slow
def test_a_client_that_leaves_after_a_large_part_of_a_body_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.protocols.http.h11_impl.HIGH_WATER_LIMIT", 10)  # else 64 KiB, which come in parts
    with server(engine=FakeEngine(seconds=30)) as one:
        with one.connect() as client:
            data = request("/v1/classify", BODY, port=one.port)
            client.sendall(data[:-20])
            wait_until(lambda: one.app.traffic.running == 1)
            time.sleep(0.05)  # it waits for the rest
            client.sendall(data[-20:])
            wait_until(lambda: one.engine.running == 1)
        wait_until(lambda: one.engine.ended == ["cancelled"])


@pytest.mark.slow
def test_a_client_that_leaves_after_a_request_that_is_not_read_leaves_no_connection() -> None:
    with server(engine=FakeEngine(seconds=0.2)) as one:
        with one.connect() as client:
            data = request("/v1/classify", BODY, port=one.port)
            client.sendall(data)
            wait_until(lambda: one.engine.running == 1)
            client.sendall(data)
            time.sleep(0.05)
        wait_until(lambda: not one.listener.server_state.connections)


@pytest.mark.slow
def test_a_body_whose_client_has_left_keeps_its_turn_and_its_room_while_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most, may_end = [0], [0], threading.Event()

    def parsed(body: bytes) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        may_end.wait(10)
        running[0] -= 1
        raise HttpRefusal(400, "bad_json", "the body is not JSON", "check it")

    monkeypatch.setattr(bodies, "parsed", parsed)
    with server() as one:
        large, room = BODY + b" " * bodies.LARGE, one.app.traffic.room
        with one.connect() as first:
            first.sendall(request("/v1/classify", large, port=one.port))
            wait_until(lambda: running == [1])
        wait_until(lambda: not one.listener.server_state.connections)
        assert (room.complete, room.bytes) == (1, len(large))
        with one.connect() as second:
            second.sendall(request("/v1/classify", large, port=one.port))
            wait_until(lambda: room.complete == 2)
            time.sleep(0.05)
        wait_until(lambda: room.complete == 1)  # one that only waited leaves at once
        assert most == [1]
        may_end.set()
        wait_until(lambda: room.bytes == room.complete == one.app.traffic.running == 0)


@pytest.mark.slow
def test_a_body_that_waits_to_be_parsed_for_too_long_gets_504(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def parsed(body: bytes) -> Any:
        may_end.wait(10)
        return json.loads(body)

    monkeypatch.setattr(bodies, "parsed", parsed)
    with server(ServingConfig(port=0, total_seconds=0.2)) as one, one.connect() as first:
        data = request("/v1/classify", BODY + b" " * bodies.LARGE, "connection: close", port=one.port)
        first.sendall(data)
        wait_until(one.app.large_body.locked)
        with one.connect(5) as second:
            second.sendall(data)
            assert status_of(drained(second)) == 504
        may_end.set()
        assert status_of(drained(first)) == 200  # this engine has no clock


def engine_without_workers(**settings: Any) -> Engine:
    engine = Engine({"m": Path("m")}, ServingConfig(**settings))
    engine._cards["m"] = ModelCard("m", "classify", frozenset({"classify"}), "text")
    return engine


def test_a_worker_that_can_serve_no_model_is_not_ready_and_requests_hear_why(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_without_workers(queue_seconds=0.02)
    (link,) = engine._links
    with pytest.raises(WaitedTooLong, match="no worker was free"):
        asyncio.run(engine.ask("m", "classify", ["a"]))
    told: list[str] = []
    monkeypatch.setattr("seqloom.serve.engine.log.error", lambda text, *given: told.append(text % given))
    engine._loaded(link, WorkerReady(1, {}, {"m": ("it is broken", "repair it")}))
    assert not engine.ready and told == ["worker 0 cannot serve m: it is broken. Fix: repair it."]
    with pytest.raises(WaitedTooLong, match="'m' could not be loaded"):
        asyncio.run(engine.ask("m", "classify", ["a"]))
    engine._loaded(link, WorkerReady(1, dict(engine.models)))
    assert engine.ready


def test_the_clock_of_a_request_starts_before_the_engine_has_it() -> None:
    engine = engine_without_workers(total_seconds=5.0, queue_seconds=60.0)

    async def check() -> None:
        for passed in (5.0, 4.9):  # the first is too late for the queue
            begun = asyncio.get_running_loop().time() - passed
            with pytest.raises(TimedOut):
                await asyncio.wait_for(engine.ask("m", "classify", ["a"], begun=begun), 2)

    asyncio.run(check())


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


@pytest.mark.slow
def test_bodies_together_have_a_limit_and_slow_ones_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.serve.room.SLOW_SECONDS", 0.2)
    with server(ServingConfig(port=0, max_body_bytes=65_536)) as one:
        body = BODY + b" " * (60_000 - len(BODY))
        data = request("/v1/classify", body, "connection: close", port=one.port)
        slow = [one.connect() for _ in range(BODIES + 1)]
        for client in slow:
            client.sendall(data[:-10])
        room = one.app.traffic.room
        while room.bytes < BODIES * 59_000:
            time.sleep(0.01)
        assert status_of(one.raw(data)) == 429  # they may be about to end
        time.sleep(0.3)
        assert status_of(one.raw(data)) == 200
        assert status_of(drained(slow[0])) == 429
        slow[-1].sendall(data[-10:])
        assert status_of(drained(slow[-1])) == 200
        for client in slow:
            client.close()


@pytest.mark.slow
def test_answers_that_nobody_reads_have_a_limit_together_and_slow_clients_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seqloom.serve.room.SLOW_SECONDS", 0.5)
    monkeypatch.setattr("seqloom.serve.room.UNREAD_BYTES", 1 << 20)
    body = json.dumps({"texts": ["a"] * 100_000, "model": "all"}).encode()  # an answer of 6 MB
    with server(ServingConfig(port=0, max_items=100_000)) as one, ExitStack() as stack:
        room = one.app.traffic.room

        def lazy() -> socket.socket:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", one.port))
            client.sendall(request("/v1/classify", body, "connection: close", port=one.port))
            wait_until(lambda: room.unread > 1 << 20)
            return client

        first = lazy()
        assert one.post("/v1/classify", {"texts": ["a"]})[0] == 429  # the first may be about to read
        assert one.is_healthy()
        time.sleep(0.6)
        assert one.post("/v1/classify", {"texts": ["a"]})[0] == 200
        assert room.unread == 0
        whole = drained(lazy())
        assert 0 < len(drained(first)) < len(whole)


@pytest.mark.slow
def test_small_answers_are_not_delayed() -> None:
    with server() as one:
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=10)
        for _ in range(10):
            connection.request("POST", "/v1/classify", BODY, JSON)
            assert connection.getresponse().read()
        connection.close()
        assert time.monotonic() - begun < 0.3  # each would wait 40 ms for the second packet of its answer


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "seconds"), [(5, 1.0), pytest.param(60, 5.0, marks=pytest.mark.soak)])
def test_a_stop_lets_running_requests_end_and_refuses_new_ones(clients: int, seconds: float) -> None:
    with server(engine=FakeEngine(seconds=seconds)) as one:
        found: list[int] = []

        def ask() -> None:
            found.append(status_of(one.raw(request("/v1/classify", BODY, "connection: close", port=one.port))))

        idle = one.connect()
        running = [threading.Thread(target=ask) for _ in range(clients)]
        for thread in running:
            thread.start()
        wait_until(lambda: one.engine.running == clients)
        one.listener.handle_exit(15, None)
        time.sleep(0.05)
        late, _, headers = one.ask("POST", "/v1/classify", BODY)
        assert (late, headers["connection"]) == (503, "close")
        assert one.ask("GET", "/health")[0] == 503
        for thread in running:
            thread.join()
        assert found == [200] * clients
        begun = time.monotonic()
        assert idle.recv(10) == b""  # closed
        assert time.monotonic() - begun < 3
        idle.close()
    assert one.engine.drained


@pytest.mark.slow
def test_a_stop_does_not_wait_for_ever() -> None:
    with server(ServingConfig(port=0, drain_seconds=0.3), FakeEngine(seconds=60)) as one, one.connect() as waiting:
        waiting.sendall(request(port=one.port))
        time.sleep(0.1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 8


@pytest.mark.slow
@pytest.mark.parametrize(("drain_seconds", "is_whole"), [(10.0, True), (0.2, False)])
def test_a_stop_lets_clients_read_their_answers_to_the_end(drain_seconds: float, is_whole: bool) -> None:
    config = ServingConfig(port=0, max_items=100_000, drain_seconds=drain_seconds)
    body = json.dumps({"texts": ["a"] * 100_000, "model": "all"}).encode()  # an answer of 6 MB
    with server(config) as one, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.settimeout(10)
        slow.connect(("127.0.0.1", one.port))
        slow.sendall(request("/v1/classify", body, port=one.port))
        begin = slow.recv(1_024)
        wait_until(lambda: not one.app.traffic.running)
        one.listener.handle_exit(15, None)
        time.sleep(2 * LINGER_SECONDS + 1)
        head, _, answer = (begin + drained(slow)).partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        assert (len(answer) == length) is is_whole


@pytest.mark.slow
def test_a_stop_answers_in_json_whatever_it_interrupts() -> None:
    with server(ServingConfig(port=0, drain_seconds=0.2), FakeEngine(seconds=60)) as one:
        sending, waiting = one.connect(), one.connect()
        data = request(port=one.port)
        sending.sendall(data[:-5])  # the rest of its body never comes
        waiting.sendall(data)
        wait_until(lambda: one.app.traffic.running == 2)
        one.listener.handle_exit(15, None)
        for client in (sending, waiting):
            head, _, body = drained(client).partition(b"\r\n\r\n")
            assert status_of(head) == 503 and head.lower().count(b"connection: close") == 1
            assert json.loads(body)["error"]["code"] == "stopping"
            client.close()
