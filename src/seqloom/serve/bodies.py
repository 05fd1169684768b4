"""Request bodies: strict JSON, checked against a typed record.

Strict means UTF-8 without a byte-order mark, no key twice, no NaN or infinity, no half of a surrogate pair, and at most
32 levels. The parser reads bytes from strangers: all of its work is linear in their number, which is limited.

While the parser makes values, no other thread runs. So a body that may have many values is scanned first, in steps, and
refused if it has more than any request may have; then its items are parsed one by one.

    bytes ──▶ large, or many values? ──▶ scan ──▶ fields ──▶ items, each: parse, levels, keys ──▶ record
                       └── no ──▶ parse, levels, keys ──▶ record
"""

import asyncio
import re
from collections.abc import Callable, Collection
from functools import cache
from itertools import chain
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from seqloom.config.serving import ServingConfig
from seqloom.errors import did_you_mean
from seqloom.serve.answers import HttpRefusal, bad_value
from seqloom.serve.refusals import TimedOut

MAX_DEPTH = 32
LARGE = 1 << 16  # bytes; larger bodies are read in a thread, one at a time, so that other requests need not wait
MANY = 8_192  # values, about; the same for bodies that may have more
MAX_FIELDS = 64  # of a body; more than any record has
LONGEST_NAME = 40  # of an unknown field that is compared with those there are
MAX_SHALLOW = 100_000  # pieces in no item; more are no JSON, because items and fields are counted
STEP = 1_024  # pieces that are scanned at once
TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # it may lack its end, so that the work is linear
PIECE = rb'[^"\[\]{}]++|' + TEXT.pattern  # of what stands between brackets
SMALL = rb"[\[{](?:" + PIECE + rb"){0,64}+[\]}]"  # a list or object without another one in it
ONE_PIECE = re.compile(rb"[\[\]{}]|" + PIECE, re.DOTALL)
PIECES = re.compile(rb"(?:%b|%b){1,%d}+|[\[\]{}]" % (PIECE, SMALL, STEP), re.DOTALL)
ANY = msgspec.json.Decoder(msgspec.Raw)  # it only finds the end of a value
VALUES = msgspec.json.Decoder()
FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
ESCAPED_COLON = re.compile(rb"\\u003[aA]")
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
STREAM = "stream"
TOO_DEEP = HttpRefusal(422, "too_deep", f"the body has more than {MAX_DEPTH} levels", "use fewer brackets")


class NumberTooLarge(HttpRefusal):
    """A number in the body is beyond the range of floats."""

    def __init__(self, name: str | None = None) -> None:
        said = "a number is too large" if name is None else f"{name}: a number is too large"
        super().__init__(422, "bad_value", said, "use numbers below 1e308", field=name)


async def read_body(request: Request, kind: type[Typed], check: Callable[[Typed], None] | None = None) -> Typed:
    """Read the body of a request as this record; HttpRefusal if it is not one, or if the check raises it.

    The state of the request gets the time at which it was complete, `begun`: its clock runs while it waits for others.
    """
    try:
        body = b"".join([part async for part in request.stream()])  # not request.body(), which would keep it
    except ClientDisconnect:
        raise asyncio.CancelledError from None

    state = request.scope["state"]
    limits: ServingConfig = state["limits"]

    def read() -> Typed:
        if is_costly(body):
            require_few(body, kind.__struct_fields__, limits)
        try:
            asked = typed(parsed(body), kind)
        except NumberTooLarge:
            raise NumberTooLarge(_field_of_large_number(body, kind.__struct_fields__)) from None
        if check is not None:
            check(asked)
        return asked

    state["begun"] = asyncio.get_running_loop().time()
    if not is_costly(body):
        return read()
    try:
        async with asyncio.timeout(limits.total_seconds):
            await state["large_body"].acquire()
    except TimeoutError:
        raise TimedOut("other requests took too long to read", fix="try again later") from None
    try:
        reading = asyncio.ensure_future(asyncio.to_thread(read))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:  # the client has left, but nothing can stop the thread: it is the one at a time
            await asyncio.gather(reading, return_exceptions=True)
            raise
    finally:
        state["large_body"].release()


def parsed(body: bytes) -> Any:
    """Return the JSON value of a body. The parser is strict itself; it does not tell a key twice.

    >>> parsed(b'{"texts": ["a"]}')
    {'texts': ['a']}
    """
    if not body.strip(b" \t\r\n"):
        raise HttpRefusal(400, "empty_body", "the body is empty", "send a JSON object")
    if body.startswith(b"\xef\xbb\xbf"):
        raise HttpRefusal(400, "bad_json", "the body starts with a byte-order mark", "send UTF-8 without one")
    if not is_costly(body):
        return _checked(body, MAX_DEPTH)
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        _decoded(ANY, body)
        return None  # it is well-formed, and no request
    fields = _decoded(FIELDS, body)
    _require_once(body, fields)
    return {name: _in_parts(bytes(value)) for name, value in fields.items()}


def is_costly(body: bytes) -> bool:
    """Whether a body may have so many values that other requests would notice."""
    return len(body) > LARGE or sum(map(body.count, (b",", b":", b"[", b"{"))) > MANY


def require_few(body: bytes, fields: Collection[str], limits: ServingConfig) -> None:
    """Refuse a body with more items than a request may have, or with an item that must be too long.

    A comma or a bracket separates two values or is a character of a text, so their number is a bound. What is not JSON
    passes: it is parsed later.
    """
    most = max(limits.max_items, limits.max_embedding_items)
    depth = keys = items = commas = brackets = shallow = at = 0
    name = ""
    while at < len(body) and shallow < MAX_SHALLOW:
        found = (ONE_PIECE if depth <= 2 else PIECES).match(body, at)
        assert found is not None
        part, at, shallow = found[0], found.end(), shallow + (depth <= 2)
        if part in (b"[", b"{"):
            depth += 1
            items = 0 if depth == 2 else items
            commas, brackets = (0, 0) if depth == 3 else (commas, brackets + 1)
        elif part in (b"]", b"}"):
            depth -= 1
            if depth <= 0:  # the end
                return
        elif depth > 2:
            commas, brackets = commas + part.count(b","), brackets + part.count(b"[") + part.count(b"{")
        elif part.startswith(b'"'):
            name = part[1:-1].decode(errors="replace") if depth == 1 else name
        elif depth == 1:
            keys += part.count(b":")
        else:
            items += part.count(b",")
        if depth > MAX_DEPTH:
            raise TOO_DEEP.fresh()
        if keys > MAX_FIELDS or items >= most or max(commas, brackets) > 3 * limits.max_characters:
            named = name if name in fields else None
            said = f"{named or 'a field of the body'} has more values than a request may have"
            raise HttpRefusal(422, "bad_value", said, "send less at a time", field=named)


def _in_parts(value: bytes) -> Any:
    """The value of a field; the items of an array are parsed one by one."""
    if not value.startswith(b"["):
        return _checked(value, MAX_DEPTH - 1)
    return [_checked(bytes(item), MAX_DEPTH - 2) for item in _decoded(ITEMS, value)]


def _checked(body: bytes, levels: int) -> Any:
    value = _decoded(VALUES, body)
    _require_shallow(body, value, levels)
    _require_once(body, value)
    return value


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except UnicodeDecodeError:
        raise HttpRefusal(400, "bad_json", "the body is not UTF-8", "encode it as UTF-8") from None
    except RecursionError:
        raise TOO_DEEP.fresh() from None
    except msgspec.ValidationError:
        raise NumberTooLarge from None
    except msgspec.DecodeError:
        raise HttpRefusal(400, "bad_json", "the body is not JSON", "check quotes, commas and brackets") from None


def _field_of_large_number(body: bytes, fields: Collection[str]) -> str | None:
    """The first field with a number that is too large; None if the record has no such field."""
    for name, value in _decoded(FIELDS, body).items():
        try:
            _decoded(VALUES, bytes(value))
        except NumberTooLarge:
            return name if name in fields else None
    return None


def _require_shallow(body: bytes, value: Any, levels: int) -> None:
    """Refuse deep nesting, level by level: recursion in Python would be slow."""
    if body.count(b"[") + body.count(b"{") <= levels:
        return
    level = [value]
    for _ in range(levels + 1):
        arrays, objects = of_type(level, list), of_type(level, dict)
        if not arrays and not objects:
            return
        level = list(chain.from_iterable(chain(arrays, map(dict.values, objects))))
    raise TOO_DEEP.fresh()


def of_type(level: list[Any], kind: type) -> list[Any]:
    """The values of a type; quick for half a million values, as long as they are alike."""
    kinds = set(map(type, level))
    if kinds == {kind}:
        return level
    return [one for one in level if type(one) is kind] if kind in kinds else []


def _require_once(body: bytes, value: Any) -> None:
    """Refuse an object with a key twice: the parser keeps the last one, so that the value has fewer colons."""
    if isinstance(value, dict) and body.count(b":") == len(value):  # most bodies; no text has a colon
        return
    written = msgspec.json.encode(value)
    few, many = written.count(b":"), body.count(b":")
    if ESCAPED_COLON.search(body):
        few, many = few - _colons_in_texts(written), many - _colons_in_texts(body)
    if few < many:
        raise HttpRefusal(400, "bad_json", "an object has a key twice", "send strict JSON")


def _colons_in_texts(body: bytes) -> int:
    return sum(text[0].count(b":") for text in TEXT.finditer(body))  # in steps, while other threads run


def typed(value: Any, kind: type[Typed]) -> Typed:
    """Return a value as a record; HttpRefusal names the first field that is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), kind, value) from None


def _refusal(problem: str, kind: type[msgspec.Struct], value: Any) -> HttpRefusal:
    """Say in our words what msgspec found; its message may hold a key of the request, which may look like a place."""
    found = AT.search(problem)
    place = found["place"] if found else ""
    text = problem[: found.start()] if found else problem
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    names = ", ".join(known)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        inner = f"{place}.{missing[1]}" if place else missing[1]
        return bad_value(inner, f"the field {inner} is missing", "add it")
    if text.startswith("Object contains unknown field"):
        given = next((name for name in value if name not in known), None)
        if given is None:
            return bad_value(place, f"{place} has an unknown field", "leave it out")
        if given == STREAM:  # people expect it; other names are not told
            return bad_value(STREAM, "this address does not stream", "leave it out, or ask /v1/completions")
        meant = did_you_mean(given[:LONGEST_NAME], known)  # it names our fields alone; a long name would take long
        fix = f"{meant} The fields are {names}" if meant.endswith("?") else f"the fields are {names}"
        return HttpRefusal(422, "unknown_field", "the body has an unknown field", fix)
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


def wanted(kind: type[msgspec.Struct], place: str) -> str:
    """What a field may hold, from the schema that is checked.

    >>> from seqloom.config.serving import ServingConfig
    >>> from seqloom.serve.requests import request_kinds
    >>> kinds = request_kinds(ServingConfig())
    >>> wanted(kinds["generate"], "temperature"), wanted(kinds["generate"], "texts")
    ('give a number from 0.001 to 1000', 'give an array of 1 to 32')
    """
    return _wanted(kind, re.split(r"[.\[]", place)[0], is_inner="[" in place)


@cache  # by fields, of which there are few; requests choose the numbers of items
def _wanted(kind: type[msgspec.Struct], field: str, *, is_inner: bool) -> str:
    _, components = msgspec.json.schema_components([kind])
    found = components[kind.__name__]["properties"].get(field, {})
    if is_inner and found.get("type") == "array":
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
            return f"{noun} {after.format(_number(schema[low]), _number(schema[high]))}"
        if high in schema:
            return f"{noun} of at most {schema[high]} {'characters' if high == 'maxLength' else 'items'}"
    return noun


def _number(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:.12g}"
