"""A server on a free port of loopback: the real listener, and an engine that answers without models."""

import asyncio
import http.client
import io
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from seqloom.config.serving import ServingConfig
from seqloom.serve.app import HttpApp
from seqloom.serve.engine import VERBS, CountedAnswer, ModelCard, TextPart, TokenUsage
from seqloom.serve.keys import KeyRing
from seqloom.serve.listener import Listener, bound
from seqloom.serve.policies import Access, host_names
from seqloom.serve.refusals import BadItem, Overloaded, TimedOut, Unable, UnknownModel
from seqloom.serve.traffic import Log, Traffic

WIDTH = 4
JSON = {"Content-Type": "application/json"}


OUTPUTS: dict[str, Any] = {
    "classify": {"label": "good", "scores": {"bad": 0.25, "good": 0.75}},
    "regress": {"numbers": [0.5]},
    "tag": {"tags": ["O"]},
    "fill": {"text": "a", "masks": [[{"text": "a", "probability": 0.5}]]},
    "translate": {"text": "a"},
    "search": [],
}


class FakeEngine:
    """An engine without models. `most` requests may run at a time; each takes `seconds`, and may take `longest`."""

    def __init__(self, *, seconds: float = 0.0, most: int = 1_000_000, longest: float = 60.0) -> None:
        self.seconds, self.most, self.longest = seconds, most, longest
        self.running = 0
        self.asked: list[tuple[str, str, Sequence[Any], Mapping[str, Any]]] = []
        self.ended: list[str] = []  # how streams and calls ended
        self.drained = False
        self.ready = True
        self.part = ""  # that each part of a stream begins with
        every = ModelCard(
            "all", "classify", frozenset(VERBS), "text", labels=("bad", "good"), vector_size=WIDTH, loaded_at=1.0
        )
        writer = ModelCard("writer", "lm", frozenset({"generate"}), "text")
        numbers = ModelCard("numbers", "regress", frozenset({"regress"}), "vectors", "inputs")
        self.models = {"all": every, "writer": writer, "numbers": numbers}

    @property
    def counters(self) -> dict[str, float]:
        return {"requests_total": float(len(self.asked)), "waiting": 0.0}

    async def ask(
        self,
        model: str,
        verb: str,
        items: Sequence[Any],
        options: Mapping[str, Any] | None = None,
        *,
        begun: float | None = None,
    ) -> Any:
        self._require_known(model)
        if verb not in self.models[model].abilities:
            raise Unable("this model cannot do that", fix="ask another one")
        if self.running >= self.most:
            raise Overloaded(self.most)
        for index, item in enumerate(items):
            if item == "refuse me":
                raise BadItem(index, "items", "this item cannot be used", "send another")
            if item == "refuse the options":
                raise BadItem(None, "options", "these options do not fit together", "change one")
            if item == "fail":
                raise RuntimeError("fail")  # with the text of the request
        self.running += 1
        try:
            await asyncio.sleep(min(self.seconds, self.longest))
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        finally:
            self.running -= 1
        if self.seconds > self.longest:
            raise TimedOut("the answer took too long", fix="send less")
        self.asked.append((model, verb, items, dict(options or {})))
        if verb == "embed":
            return [{"vector": [0.5, -0.25, float(len(one)), 1.0]} for one in items]
        if verb == "generate":
            count = (options or {}).get("num_samples", 1)
            return [[{"text": " more", "score": -1.0, "finish_reason": "length"}] * count for _ in items]
        return [OUTPUTS.get(verb, OUTPUTS["classify"]) for _ in items]

    async def ask_counted(self, *asked: Any, begun: float | None = None) -> CountedAnswer:
        """The same, with the characters of the items as the tokens that were read, and 3 for each one written."""
        return CountedAnswer(await self.ask(*asked), TokenUsage(sum(map(len, asked[2])), 3 * len(asked[2])))

    async def stream(
        self, model: str, prompt: str, options: Any = None, *, begun: float | None = None
    ) -> AsyncIterator[TextPart]:
        self._require_known(model)
        if prompt == "refuse me":
            raise BadItem(0, "items", "this item cannot be used", "send another")
        self.asked.append((model, "stream", [prompt], dict(options or {})))
        end = asyncio.get_running_loop().time() + self.longest
        try:
            for number in range(int((options or {}).get("max_new_tokens", 8))):
                await asyncio.sleep(self.seconds)
                if asyncio.get_running_loop().time() > end:
                    raise TimedOut("the answer took too long", fix="send less")
                yield TextPart(f"{self.part} {number}")
            yield TextPart("", "length", TokenUsage(len(prompt), number + 1))
            self.ended.append("done")
        except (GeneratorExit, asyncio.CancelledError):
            self.ended.append("cancelled")
            raise

    def is_full(self, lanes: Sequence[str], requests: int) -> bool:
        return False  # the listener has a limit too

    def _require_known(self, model: str) -> None:
        if model not in self.models:
            raise UnknownModel(model, self.models)

    async def drain(self, seconds: float) -> None:
        self.drained = True


class Server:
    """A running listener, seen from outside."""

    def __init__(self, listener: Listener, app: HttpApp, port: int, log: io.StringIO) -> None:
        self.listener, self.app, self.port, self.log = listener, app, port, log

    @property
    def engine(self) -> Any:
        return self.app.engine

    def connect(self, seconds: float = 10.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), seconds)

    def raw(self, data: bytes, seconds: float = 10.0) -> bytes:
        """Send bytes and return all that comes back until the server closes."""
        with self.connect(seconds) as one:
            with suppress(OSError):  # it may have answered already
                one.sendall(data)
            return drained(one)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Send a request; return the status, the JSON (or text) and the headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        sent = body if isinstance(body, bytes | str | None) else json.dumps(body).encode()
        given = dict(JSON if headers is None else headers)
        connection.request(method, path, sent, given)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        is_json = fields.get("content-type") == "application/json" and data
        return answer.status, json.loads(data) if is_json else data.decode(), fields

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        status, found, _ = self.ask("POST", path, body, JSON | headers)
        return status, found

    def is_healthy(self) -> bool:
        return self.ask("GET", "/health")[0] == 200


def drained(one: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            part = one.recv(1 << 16)
        except ConnectionResetError:
            return found
        if not part:
            return found
        found += part


def one_answer(one: socket.socket) -> bytes:
    """Read one answer of a connection that stays open."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += one.recv(1 << 16)
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += one.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def status_of(answer: bytes) -> int:
    """The status of a raw answer; 0 for none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def request(
    path: str = "/v1/classify", body: bytes = b'{"texts":["a"],"model":"all"}', *fields: str, port: int
) -> bytes:
    """The bytes of a request."""
    named = ["content-type: application/json", f"content-length: {len(body)}", *fields]
    head = "\r\n".join([f"POST {path} HTTP/1.1", f"host: 127.0.0.1:{port}", *named])
    return head.encode() + b"\r\n\r\n" + body


def numeric_fields(document: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Every field of a number of every route, with its schema, from the OpenAPI document of a server."""
    found = []
    for path, methods in document["paths"].items():
        if "requestBody" in methods.get("post", {}):
            name = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[-1]
            for field, schema in document["components"]["schemas"][name]["properties"].items():
                every = [schema, *schema.get("anyOf", [])]
                limits = [part for part in every if part.get("type") in ("integer", "number")]
                found += [(path, field, limits[0])] if limits else []
    return found


@contextmanager
def server(
    config: ServingConfig | None = None, engine: Any = None, keys: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a listener in a thread."""
    config = config or ServingConfig(port=0)
    engine = engine or FakeEngine()
    at = bound(config)
    port = at.getsockname()[1]
    log = io.StringIO()
    access = Access(host_names(config.host, port, config.hosts), None if keys is None else KeyRing(keys))
    lines = Log(log)
    app = HttpApp(engine, config, access, Traffic(lines))
    listener = Listener(app, config)
    thread = threading.Thread(target=lambda: asyncio.run(listener.serve(sockets=[at])), daemon=True)
    thread.start()
    try:
        yield Server(listener, app, port, log)
    finally:
        listener.should_exit = True
        thread.join(15)
        lines.close()
    assert not thread.is_alive(), "the listener did not stop"
    room = app.traffic.room
    assert (app.traffic.running, room.complete, room.bytes, len(room.readers)) == (0, 0, 0, 0)
    assert (room.unread, len(room.unread_by)) == (0, 0)
