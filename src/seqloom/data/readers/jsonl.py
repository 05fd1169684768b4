"""JSON lines: one object per line, with the columns as keys; ambiguous JSON is rejected.

A line takes the fast path if msgspec, which is strict, accepts it and it cannot contain a repeated key or deep nesting.
Other lines are parsed again more carefully, which also gives a precise error message:

    line ──▶ msgspec ──▶ as many keys and colons as the first object? ──▶ values
                │                              │ no
                └──── error ────▶ careful: every pair of every object ──▶ values, or a LineError
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import lines_of
from seqloom.data.values import Record, Table

DEPTH = 32  # levels of nested objects and lists, including the line's own object
AROUND = 20  # characters shown on either side of an error
MEND = "write one JSON object per line: double quotes, no trailing comma, no comments"
WORDS_FIX = 'write one object per line; for a list of words {"tokens": ["...", "..."]}'
OF_WORDS = re.compile(r'\s*\[\s*"[^"]*"\s*[,\]]')
CONTAINERS = frozenset({list, dict})
BLANKS = re.compile(r"[ \t\r\n]*")
SURROGATE = re.compile("[\ud800-\udfff]")
LONE_ESCAPE = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
KINDS = {str: "a string", int: "a number", float: "a number", bool: "true or false", type(None): "null"}

Line = tuple[int, str]  # its number and text


class LineError(Exception):
    """An error in one line; `at` is its column, or a pattern that finds it."""

    def __init__(self, code: str, text: str, fix: str = "", at: str | int | None = None) -> None:
        super().__init__(code, text)
        self.code, self.text, self.fix, self.at = code, text, fix, at

    def column(self, line: str) -> int | None:
        """The column of the error, from 1, if it is known."""
        return _column_of(self.at, line) if isinstance(self.at, str) else self.at


class First(NamedTuple):
    """The first object; its keys are the columns, which all others must have."""

    line: Line
    columns: tuple[str, ...]


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of the objects in a file; the keys of the first one are its columns."""
    (path,) = paths
    lines = _content(path, reading, ledger)
    first = first_object(lines, path, ledger)
    if first is None:
        ledger.bad_file("data.empty", "there is no object in the file", Place(str(path)), "write one object per line")
    keys = [re.escape(json.dumps(column, ensure_ascii=False)) for column in first.columns]

    def locate(record: Record, column: int) -> Place:
        return Place(record.path, record.line, _column_of(keys[column], record.raw))

    return Table(first.columns, records_of(path, first, chain([first.line], lines), ledger), locate)


def _content(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[Line]:
    """Yield the lines that are not blank; the first one shows whether the file is JSON lines at all."""
    name, at_start, blank = str(path), True, 0
    for number, text in lines_of(path, reading, ledger):
        if not text or text.isspace():
            blank += 1
            continue
        if at_start:
            at_start, bare, place = False, text.strip(), Place(name, number)
            fix = "write one object per line (.jsonl), without line breaks inside"
            if bare.startswith("["):
                fix = WORDS_FIX if OF_WORDS.match(bare) else fix
                ledger.bad_file("json.array", "expected one object per line, found an array", place, fix)
            if bare.startswith("{") and bare.endswith(("{", "[", ",", ":")):
                what = "expected one object per line, found one over several lines"
                ledger.bad_file("json.multiline", what, place, fix)
        yield number, text
    if blank:
        ledger.note("json.blank", "blank lines, skipped", Place(name), count=blank)


def first_object(lines: Iterator[Line], path: Path, ledger: Ledger) -> First | None:
    """The first line that is an object; lines before it are bad rows."""
    for line in lines:
        try:
            return First(line, tuple(careful(line[1])))
        except LineError as error:
            _refuse(error, line, path, ledger)
    return None


def records_of(path: Path, first: First, lines: Iterator[Line], ledger: Ledger) -> Iterator[Record]:
    """Yield the records of lines that are not blank; all other lines are bad rows."""
    decode, name, count = msgspec.json.Decoder().decode, str(path), len(first.columns)
    pick = itemgetter(*first.columns) if count > 1 else lambda found: tuple(found[key] for key in first.columns)
    for number, text in lines:
        try:
            found = decode(text)
            # A key is followed by optional white space and a colon, so every key is counted.
            colons = text.count('":') + text.count(" :") + text.count("\t:") + text.count("\r:")
            if colons != count or type(found) is not dict or len(found) != count:
                found = careful(text)
                _require_keys(found, first)
            elif text.count("[") >= DEPTH:
                _require_shallow(found)
            values = pick(found)
        except (msgspec.MsgspecError, RecursionError, LineError, KeyError) as error:
            _refuse(_explained(error, text, first), (number, text), path, ledger)
            continue
        ledger.rows += 1
        yield Record(values, name, number, text)


def _explained(error: Exception, text: str, first: First) -> LineError:
    if isinstance(error, LineError):
        return error
    try:
        _require_keys(careful(text), first)
    except LineError as mistake:
        return mistake
    return LineError("json.syntax", str(error), MEND)  # only msgspec found an error


def _refuse(error: LineError, line: Line, path: Path, ledger: Ledger) -> None:
    number, text = line
    ledger.unreadable_row(error.code, error.text, Place(str(path), number, error.column(text)), error.fix)


def careful(text: str) -> dict[str, Any]:
    """The object on a line; raises LineError for invalid and for ambiguous JSON.

    >>> careful('{"text": "a", "label": 1}')
    {'text': 'a', 'label': 1}
    """
    try:
        found = CAREFUL.decode(text)
    except json.JSONDecodeError as error:
        around = error.doc[max(0, error.pos - AROUND) : error.pos + AROUND]
        if error.msg == "Extra data":
            text = f"more text follows the object, near {around!r}"
            raise LineError("json.trailing", text, "write one object per line", error.pos + 1) from None
        what = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        raise LineError("json.syntax", f"{what}, near {around!r}", MEND, error.pos + 1) from None
    except RecursionError:
        raise _too_deep() from None
    if type(found) is list:
        fix = WORDS_FIX if OF_WORDS.match(text) else "write one object per line"
        raise LineError("json.array", "expected an object, found an array", fix)
    if type(found) is not dict:
        raise LineError("json.object", f"expected an object, found {KINDS[type(found)]}", "write one object per line")
    _require_shallow(found)
    if LONE_ESCAPE.search(text) and SURROGATE.search(json.dumps(found, ensure_ascii=False)):
        fix = "write both halves, or the character itself"
        raise LineError("json.surrogate", "an escape for half a character", fix, LONE_ESCAPE.pattern)
    return found


def with_values(text: str, changed: Mapping[str, Any]) -> str:
    """Return the text of an object with other values of some keys; all others are as they were written.

    >>> with_values('{"x": 2.50, "label":"Pos"}', {"label": "pos"})
    '{"x": 2.50, "label":"pos"}'
    """
    parts, done, at = list[str](), 0, text.index("{")
    while text[at] != "}":
        key, at = AS_TEXT.raw_decode(text, text.index('"', at))
        start = _content_at(text, text.index(":", at) + 1)
        _, at = AS_TEXT.raw_decode(text, start)
        if key in changed:
            parts += [text[done:start], json.dumps(changed[key], ensure_ascii=False)]
            done = at
        at = _content_at(text, at)
    return "".join([*parts, text[done:]])


def _content_at(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    found = BLANKS.match(text, at)
    assert found is not None, "also no blank is a match"
    return found.end()


def _constant(name: str) -> NoReturn:
    raise LineError("json.nonfinite", f"{name} is not a JSON number", "remove the row", re.escape(name))


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python's own limit of digits
        raise LineError("json.number", f"a number has {len(digits):,} digits", "round it", re.escape(digits)) from None


def _decimal(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        shown = digits if len(digits) <= AROUND else f"{digits[:AROUND]}..."
        raise LineError("json.nonfinite", f"{shown} is too large for a float", "remove the row", re.escape(digits))
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise LineError("json.dup_key", f"the key {key!r} occurs twice in one object", "keep one of the two")
    return found


CAREFUL = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_decimal
)


AS_TEXT = json.JSONDecoder(parse_int=str, parse_float=str)  # of a line that was read before


def _too_deep() -> LineError:
    return LineError("json.depth", f"more than {DEPTH} levels of nesting", "flatten the value")


def _require_shallow(found: dict[str, Any]) -> None:
    level: list[Any] = [found]
    for _ in range(DEPTH):
        rows = (outer.values() if type(outer) is dict else outer for outer in level)
        deep = (row for row in rows if not CONTAINERS.isdisjoint(map(type, row)))  # fast for lists of numbers
        level = [value for row in deep for value in row if type(value) in CONTAINERS]
        if not level:
            return
    raise _too_deep()


def _require_keys(found: dict[str, Any], first: First) -> None:
    if found.keys() == set(first.columns):
        return
    missing = [key for key in first.columns if key not in found]
    new = [key for key in found if key not in first.columns]
    there = f"the first object (line {first.line[0]})"
    text = f"the key {missing[0]!r} of {there} is missing" if missing else f"the key {new[0]!r} is not in {there}"
    raise LineError("json.key", text, "give all objects the same keys")


def _column_of(pattern: str, text: str) -> int | None:
    """The column of a pattern, if it occurs exactly once."""
    found = [match.start() for match in re.finditer(pattern, text)]
    return found[0] + 1 if len(found) == 1 else None
