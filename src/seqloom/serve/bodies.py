"""Request bodies: strict JSON, checked against a typed record.

Strict means UTF-8 without a byte-order mark, no key twice, no NaN or infinity, no half of a surrogate pair, and at most
32 levels. The parser reads bytes from strangers: all of its work is linear in their number, which is limited.
"""

import asyncio
import json
import math
import re
from functools import cache
from typing import Any, NoReturn, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from seqloom.serve.answers import HttpRefusal, bad_value

MAX_DEPTH = 32
LARGE = 1 << 16  # bytes; larger bodies are parsed in a thread, so that other requests need not wait
TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # it may lack its end, so that the work is linear
ONE_KIND = bytes.maketrans(b"{}", b"[]")
OTHERS = bytes(code for code in range(256) if code not in b"[]{}")
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
AT = re.compile(r" - at `\$\.?(?P<place>[^`]*)`$")
KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
ABBREVIATED = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}  # types of JSON schemas
RANGES = (
    ("minimum", "maximum", "from {} to {}"),
    ("minItems", "maxItems", "of {} to {}"),
    ("minLength", "maxLength", "of {} to {} characters"),
)
Typed = TypeVar("Typed", bound=msgspec.Struct)


class NotStrict(ValueError):  # noqa: N818  # a problem of the request
    """JSON that is read differently by different programs."""


async def read_body(request: Request, kind: type[Typed]) -> Typed:
    """Read the body of a request as this record; HttpRefusal if it is not one."""
    try:
        body = await request.body()
    except ClientDisconnect:
        raise asyncio.CancelledError from None
    value = parsed(body) if len(body) <= LARGE else await asyncio.to_thread(parsed, body)
    return typed(value, kind)


def parsed(body: bytes) -> Any:
    """Return the JSON value of a body.

    >>> parsed(b'{"items": ["a"]}')
    {'items': ['a']}
    """
    if not body.strip(b" \t\r\n"):
        raise HttpRefusal(400, "empty_body", "the body is empty", "send a JSON object")
    if body.startswith(b"\xef\xbb\xbf"):
        raise HttpRefusal(400, "bad_json", "the body starts with a byte-order mark", "send UTF-8 without one")
    _require_shallow(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise HttpRefusal(400, "bad_json", "the body is not UTF-8", "encode it as UTF-8") from None
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_finite, parse_int=_integer
        )
    except NotStrict as error:
        raise HttpRefusal(400, "bad_json", str(error), "send strict JSON") from None
    except (ValueError, RecursionError):
        raise HttpRefusal(400, "bad_json", "the body is not JSON", "check quotes, commas and brackets") from None
    if SURROGATE.search(body):
        _require_whole(value)
    return value


def _require_shallow(body: bytes) -> None:
    """Refuse deep nesting before a parser recurses into it: pairs of brackets are removed from the inside out."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    rest = TEXT.sub(b"", body).translate(ONE_KIND, OTHERS)
    for _ in range(MAX_DEPTH):
        rest, before = rest.replace(b"[]", b""), rest
        if len(rest) == len(before):
            break
    if b"[]" in rest or rest.count(b"[") > MAX_DEPTH:
        raise HttpRefusal(422, "too_deep", f"the body has more than {MAX_DEPTH} levels", "use fewer brackets")


def _require_whole(value: Any) -> None:
    try:
        msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        raise HttpRefusal(400, "bad_json", "a text has half of a surrogate pair", "send whole characters") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotStrict("an object has a key twice")
    return found


def _constant(_: str) -> NoReturn:
    raise NotStrict("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise NotStrict("a number is too large")
    return number


def _integer(text: str) -> int | float:
    """An integer; one of more digits than any limit has is a float, which is refused by its range."""
    return int(text) if len(text) < 20 else _finite(text)


def typed(value: Any, kind: type[Typed]) -> Typed:
    """Return a value as a record; HttpRefusal names the first field that is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), kind) from None


def _refusal(problem: str, kind: type[msgspec.Struct]) -> HttpRefusal:
    """Say in our words what msgspec found; its message may hold a key of the request."""
    found = AT.search(problem)
    place = found["place"] if found else ""
    text = problem[: found.start()] if found else problem
    names = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        inner = f"{place}.{missing[1]}" if place else missing[1]
        return bad_value(inner, f"the field {inner} is missing", "add it")
    if text.startswith("Object contains unknown field"):
        return HttpRefusal(422, "unknown_field", "the body has an unknown field", f"the fields are {names}")
    if not place:
        return HttpRefusal(422, "bad_value", "the body must be a JSON object", f"its fields are {names}")
    return bad_value(place, f"{place}: {_in_words(text)}", wanted(kind, place))


def _in_words(text: str) -> str:
    """A sentence of msgspec without its type names."""
    if text.startswith("Invalid enum value"):
        return "expected another name"
    text = re.sub(r"`(.*?)`", lambda found: _kinds(found[1]), text).replace(", got ", ", found ")
    return text[0].lower() + text[1:]


def _kinds(names: str) -> str:
    return " or ".join(KINDS.get(one.strip(), one.strip()) for one in names.split("|"))


@cache
def wanted(kind: type[msgspec.Struct], place: str) -> str:
    """What a field may hold, from the schema that is checked.

    >>> from seqloom.config.serving import ServingConfig
    >>> from seqloom.serve.requests import request_kinds
    >>> kinds = request_kinds(ServingConfig())
    >>> wanted(kinds["generate"], "temperature"), wanted(kinds["generate"], "items")
    ('give a number from 0.001 to 1000', 'give an array of 1 to 32')
    """
    _, components = msgspec.json.schema_components([kind])
    found = components[kind.__name__]["properties"].get(re.split(r"[.\[]", place)[0], {})
    if "[" in place and found.get("type") == "array":
        found = found["items"]
    return f"give {_possible(found)}"


def _possible(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_possible(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join("null" if one is None else str(one) for one in schema["enum"])
    noun = KINDS.get(ABBREVIATED.get(schema.get("type", ""), schema.get("type", "")), "another value")
    for low, high, after in RANGES:
        if low in schema and high in schema:
            return f"{noun} {after.format(f'{schema[low]:.12g}', f'{schema[high]:.19g}')}"
        if high in schema:
            return f"{noun} of at most {schema[high]} {'characters' if high == 'maxLength' else 'items'}"
    return noun
