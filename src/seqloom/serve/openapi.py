"""The OpenAPI document, made from the routes and the typed records that check requests: it cannot drift from them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from seqloom.serve.answers import JSON_TYPE
from seqloom.serve.policies import Policy
from seqloom.serve.requests import INPUTS, TEXTS, ErrorAnswer, OpenAIErrorAnswer
from seqloom.version import __version__

REF = "#/components/schemas/{name}"
REFUSED = {
    400: "The request or its JSON is not well-formed.",
    401: "The key is missing or unknown.",
    403: "The request comes from a page of another site.",
    404: "There is no such address or model.",
    405: "The address has another method.",
    408: "The request arrived too slowly.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "The body is not declared as JSON.",
    417: "The expectation is not supported.",
    421: "The server does not answer under this host name.",
    422: "A field cannot be used.",
    429: "Too many requests are waiting, or too many had a wrong key.",
    431: "The headers are too large.",
    500: "The server failed.",
    501: "The transfer encoding is not supported.",
    503: "No worker was free in time, or the server is stopping.",
    504: "The answer took too long.",
    505: "The version of HTTP is not supported.",
}


class RouteOperation(NamedTuple):
    """A route: its address, its policy, the record that it reads, what it answers, and the function that answers."""

    method: str
    path: str
    policy: Policy
    summary: str
    endpoint: Callable[..., Any]
    reads: type[msgspec.Struct] | None = None
    answers: type[msgspec.Struct] | None = None
    media_types: tuple[str, ...] = ("application/json",)
    also: Mapping[int, type[msgspec.Struct]] = MappingProxyType({})  # what else it answers, by status; no refusals


def openapi_document(operations: Sequence[RouteOperation], *, has_keys: bool) -> dict[str, Any]:
    """Return the document of these routes."""
    kinds = [kind for one in operations for kind in (one.reads, one.answers, *one.also.values()) if kind is not None]
    _, components = msgspec.json.schema_components([*kinds, ErrorAnswer, OpenAIErrorAnswer], ref_template=REF)
    for kind in kinds:
        if INPUTS in kind.__struct_fields__:
            components[kind.__name__]["oneOf"] = [{"required": [TEXTS]}, {"required": [INPUTS]}]
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, has_keys)
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Seqloom", "version": __version__, "description": "Models behind HTTP."},
        "paths": paths,
        "components": {"schemas": components} | ({"securitySchemes": schemes} if has_keys else {}),
    }


def _described(one: RouteOperation, has_keys: bool) -> dict[str, Any]:
    error = OpenAIErrorAnswer if one.policy.is_openai else ErrorAnswer
    found: dict[str, Any] = {"summary": one.summary, "operationId": one.endpoint.__name__.strip("_")}
    if one.reads is not None:
        found["operationId"] = one.path.rsplit("/", 1)[-1]
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(one.reads)}}}
    if "{model}" in one.path:
        schema = {"type": "string", "minLength": 1}
        found["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": schema}]
    schema_of_answer = {"schema": _ref(one.answers)} if one.answers is not None else {}
    content: dict[str, Any] = {kind: {} for kind in one.media_types}  # events and lines have a form of their own
    if JSON_TYPE in content:
        content[JSON_TYPE] = schema_of_answer
    refused = {
        str(status): {"description": text, "content": {"application/json": {"schema": _ref(error)}}}
        for status, text in REFUSED.items()
    }
    for status, kind in one.also.items():
        either = {"anyOf": [_ref(kind), _ref(error)]}
        refused[str(status)]["content"] = {"application/json": {"schema": either}}
    found["responses"] = {"200": {"description": "The answer.", "content": content}} | refused
    if has_keys and one.policy.needs_key:
        found["security"] = [{"key": []}]
    return found


def _ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": REF.format(name=kind.__name__)}
