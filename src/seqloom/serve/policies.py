"""Who may ask what: a policy for each route, and a router that has no route without one.

The checks come in this order, each before the next: the Host header (against DNS rebinding), where the request comes
from (against pages of other sites, and proxies of a server without keys), the key, the method, and the content type.
Only then is the body read.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from seqloom.config.base import quoted
from seqloom.errors import ConfigError
from seqloom.serve.answers import JSON_TYPE, HttpRefusal
from seqloom.serve.keys import KeyRing

MISDIRECTED = HttpRefusal(
    421,
    "wrong_host",
    "this server does not answer under the name in the Host header",
    "use one of its names, or start it with --hosts NAME",
)
FOREIGN = HttpRefusal(
    403, "foreign_origin", "the request comes from a page of another site", "send it from a program or your own server"
)
FORWARDED = HttpRefusal(
    403,
    "forwarded",
    "the request comes through a proxy, but this server has no keys and is only for programs of its machine",
    "start it with --keys FILE",
)
FORWARDED_BY = (b"forwarded", b"x-forwarded-for")
JSON_TYPES = (JSON_TYPE, f"{JSON_TYPE}; charset=utf-8", f"{JSON_TYPE};charset=utf-8")
NOT_JSON = HttpRefusal(415, "content_type", f"the header Content-Type: {JSON_TYPE} is missing", "send it")
ENCODED = HttpRefusal(415, "content_encoding", "compressed bodies are not read", "leave out Content-Encoding")
SAME_SITE = (b"same-origin", b"none")  # values of Sec-Fetch-Site that our own pages and the address bar send


class Policy(NamedTuple):
    """What a route asks of a request. No route changes anything on the server."""

    needs_key: bool  # if the server has keys
    reads_json: bool
    is_openai: bool = False  # whether refusals have the form that clients of OpenAI read


ANSWERS = Policy(needs_key=True, reads_json=True)  # of a model
OPENAI = Policy(needs_key=True, reads_json=True, is_openai=True)
FACTS = Policy(needs_key=True, reads_json=False)
PUBLIC = Policy(needs_key=False, reads_json=False)


class Access(NamedTuple):
    """The names that the server answers to, and the keys of its clients; None: it needs no keys."""

    hosts: frozenset[bytes]  # as in the Host header, in lower case
    keys: KeyRing | None

    def require_host(self, scope: Scope) -> None:
        """Refuse a request for another server: a page can make a browser send it here."""
        if field(scope, b"host").lower() not in self.hosts:
            raise MISDIRECTED.fresh()

    def require_origin(self, scope: Scope) -> None:
        """Refuse a request that a page of another site made."""
        origin = field(scope, b"origin")
        if origin and origin.lower().removeprefix(b"http://").removeprefix(b"https://") not in self.hosts:
            raise FOREIGN.fresh()
        if (site := field(scope, b"sec-fetch-site")) and site not in SAME_SITE:
            raise FOREIGN.fresh()

    def require_direct(self, scope: Scope) -> None:
        """Refuse a request that a proxy says to pass on, if there are no keys: its sender may be anywhere."""
        if self.keys is None and any(name in FORWARDED_BY for name, _ in scope["headers"]):
            raise FORWARDED.fresh()

    def admitted(self, fields: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return who sends a request with these fields, "" if there are no keys; None if it may not ask a model.

        The routes check it again, and say why it may not.
        """
        scope = {"headers": list(fields)}
        try:
            self.require_host(scope)
            self.require_origin(scope)
            self.require_direct(scope)
            require_json(scope)
        except HttpRefusal:
            return None
        return "" if self.keys is None else self.keys.name_of(field(scope, b"authorization"))

    def client(self, scope: Scope) -> str:
        """Return the name of the client; empty if the server has no keys."""
        if self.keys is None:
            return ""
        address = scope["client"][0] if scope["client"] else ""
        return self.keys.client(field(scope, b"authorization"), address)


def field(scope: Scope, name: bytes) -> bytes:
    """Return the value of a header field; empty without it."""
    return next((value for key, value in scope["headers"] if key == name), b"")


class PolicyRoute(Route):
    """A route that checks its policy before its endpoint is called."""

    def __init__(self, path: str, endpoint: Callable[[Request], Any], *, method: str, policy: Policy) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.policy = policy

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse by policy, or answer."""
        state = scope["state"]
        access: Access = state["access"]
        state["route"], state["policy"] = self.path, self.policy
        access.require_origin(scope)
        access.require_direct(scope)
        if self.policy.needs_key:
            state["client"] = access.client(scope)
        assert self.methods is not None
        if scope["method"] not in self.methods:
            allowed = ", ".join(sorted(self.methods))
            said = "this address has another method", f"use {allowed}"
            raise HttpRefusal(405, "method", *said, headers={"Allow": allowed})
        if self.policy.reads_json:
            require_json(scope)
        await super().handle(scope, receive, send)


def require_json(scope: Scope) -> None:
    """Refuse a body that is not declared as JSON: forms and plain text can be sent by any page."""
    if field(scope, b"content-type").decode("latin-1").lower() not in JSON_TYPES:
        raise NOT_JSON.fresh()
    if field(scope, b"content-encoding").lower() not in (b"", b"identity"):
        raise ENCODED.fresh()


def guarded(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Return the routes; AssertionError for one without a policy, which is a bug."""
    every = list(routes)
    for route in every:
        policy = getattr(route, "policy", None)
        assert isinstance(route, PolicyRoute) and isinstance(policy, Policy), f"{route} has no policy"
    return every


def host_names(address: str, port: int, names: Iterable[str]) -> frozenset[bytes]:
    """The values of the Host header that are accepted: the address, the names of loopback, and configured names.

    Configured names pass with the port of the server and without one, as behind a proxy; loopback only with the port.

    >>> sorted(host_names("127.0.0.1", 8000, ["models.example"]))[-2:]
    [b'models.example', b'models.example:8000']
    """
    own = {"localhost", "127.0.0.1", "[::1]", f"[{address}]" if ":" in address else address} - {"0.0.0.0", "[::]"}
    every = {f"{name}:{port}" for name in own} | (own if port == 80 else set())
    for name in names:
        written = _written(name)
        every |= {written, f"{written}:{port}"}
    return frozenset(name.lower().encode() for name in every)


def _written(name: str) -> str:
    """A name as browsers write it into the Host header; ConfigError if it cannot be one."""
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        raise ConfigError(f"--hosts {quoted(name)}: this is no host name", fix="give one such as example.com") from None


def plain(status: int, body: bytes, media_type: str = JSON_TYPE) -> Response:
    """Return an answer that no one stores and no browser reads as a page; in a terminal it ends its line."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(body if body.endswith(b"\n") else body + b"\n", status, headers, media_type)
