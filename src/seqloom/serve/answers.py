"""Answers that are no result: why a request is refused, as JSON with a fixed form.

    {"error": {"code": "bad_value", "message": "...", "field": "texts[3]"}}

Messages are fixed sentences. They never contain the text of a request, a path, the name of a class or a traceback.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from seqloom.errors import fix_sentence
from seqloom.serve.refusals import (
    BadItem,
    Draining,
    ModelFailed,
    Overloaded,
    Refusal,
    TimedOut,
    Unable,
    UnknownModel,
    WaitedTooLong,
    WorkerLost,
)

JSON_TYPE = "application/json"
OPENAI_PATHS = (b"/v1/completions", b"/v1/embeddings")  # their refusals have the form that clients of OpenAI read
NO_MODEL = ("no model of this name is served", "GET /v1/models lists the models")
CLOSING = {"Connection": "close"}
UNNAMED = ("", "options")  # what the engine names if no single field is wrong
CODES: dict[type[Refusal], str] = {
    UnknownModel: "unknown_model",
    Unable: "unable",
    BadItem: "bad_value",
    Overloaded: "overloaded",
    Draining: "stopping",
    WaitedTooLong: "waited_too_long",
    WorkerLost: "worker_lost",
    TimedOut: "timed_out",
    ModelFailed: "internal",
}


class HttpRefusal(Exception):  # noqa: N818  # it is no fault of the server
    """A refused request: its HTTP status, a code for programs, a message for people, and the field that is wrong."""

    def __init__(
        self,
        status: int,
        code: str,
        problem: str,
        fix: str = "",
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status, self.code, self.field = status, code, field
        self.message = f"{problem}. {fix_sentence(fix)}" if fix else f"{problem}."
        self.headers = dict(headers or {})
        super().__init__(self.message)

    def fresh(self) -> "HttpRefusal":
        """Return a copy to raise: an exception that is raised twice would keep the first request in memory."""
        copy = HttpRefusal(self.status, self.code, "", field=self.field, headers=self.headers)
        copy.message = self.message
        return copy

    def body(self) -> bytes:
        """The answer in the form of Seqloom."""
        named = {} if self.field is None else {"field": self.field}
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message} | named})

    def openai_body(self) -> bytes:
        """The same in the form that clients of OpenAI read."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": kind, "param": self.field, "code": self.code}
        return msgspec.json.encode({"error": error})

    def raw(self, *, is_openai: bool = False, is_last: bool = True) -> bytes:
        """The complete HTTP answer, for requests that never reach a route; the connection closes after the last one."""
        body = self.openai_body() if is_openai else self.body()
        lines = {"content-type": JSON_TYPE, "content-length": str(len(body)), "cache-control": "no-store"}
        closing = {"connection": "close"} if is_last else {}
        own = {name.lower(): value for name, value in self.headers.items()}
        fields = "".join(f"{name}: {value}\r\n" for name, value in (lines | closing | own).items())
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{fields}\r\n".encode() + body


def answer_of(refusal: Refusal) -> HttpRefusal:
    """A refusal of the engine as an answer.

    >>> answer_of(Overloaded(64)).body()
    b'{"error":{"code":"overloaded","message":"64 requests are waiting already. Fix: try again in 1 s."}}'
    """
    field, headers = None, {}
    if isinstance(refusal, UnknownModel):  # its message has the name that was asked
        return HttpRefusal(404, CODES[UnknownModel], *NO_MODEL, field="model")
    if isinstance(refusal, BadItem) and refusal.field not in UNNAMED:
        field = refusal.field if refusal.index is None else f"{refusal.field}[{refusal.index}]"
    if isinstance(refusal, Overloaded):
        headers["Retry-After"] = str(refusal.retry_after)
    elif refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    if isinstance(refusal, ModelFailed):  # whatever its message says
        return internal_error()
    return HttpRefusal(refusal.status, CODES[type(refusal)], refusal.problem, refusal.fix, field=field, headers=headers)


def internal_error() -> HttpRefusal:
    """The answer to a request that met an error of ours; the log has the place."""
    return HttpRefusal(500, "internal", "the server failed to answer", "look into its log")


def bad_value(field: str, problem: str, fix: str = "", **named: Any) -> HttpRefusal:
    """The answer to a field that cannot be used."""
    return HttpRefusal(422, "bad_value", problem, fix, field=field, **named)
