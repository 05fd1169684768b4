"""Expressions as people write them on a blackboard, read by a grammar of our own: nothing is ever run as Python.

    program    = statement { (";" | new line) statement }
    statement  = [ name "=" ] sum
    sum        = product { ("+" | "-") product }
    product    = signed { ("*" | "/") signed }
    signed     = ("-" | "+") signed | power
    power      = atom [ ("**" | "^") signed ]               binds to the right, closer than a sign: -x^2 is -(x^2)
    atom       = number | name | function "(" sum { "," sum } ")" | "(" sum ")"

Whatever does not fit is refused with the line and a mark below the place.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from seqloom.errors import DataError, did_you_mean
from seqloom.report.figures.labels import columns, visible

LONGEST, DEEPEST = 20_000, 48  # characters; brackets, signs and powers inside each other
MOST_OPERATIONS = 200  # of one statement: each may stand inside the next one
TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<mark>\*\*|[-+*/^()=,])|(?P<end>;|\r?\n)"
)
ENDS = ("end", "close")
SHOWN = 60  # characters on either side of a fault


class GrammarToken(NamedTuple):
    """One word of an expression and where it stands."""

    kind: str  # number, name, mark, end, close
    text: str
    place: int


class Number(NamedTuple):
    """A number that was written."""

    value: float
    place: int


class Name(NamedTuple):
    """An input, or the name of an earlier statement."""

    name: str
    place: int


class Applied(NamedTuple):
    """An operation on what stands inside it."""

    operation: str  # a key of OPERATIONS
    inside: tuple["Term", ...]
    place: int


Term = Number | Name | Applied


class Statement(NamedTuple):
    """One line: a name, or None, and what it stands for."""

    name: str | None
    term: Term
    place: int


def parse(text: str, functions: Mapping[str, int | None]) -> tuple[Statement, ...]:
    """The statements of a program; `functions` says how many arguments each takes, None for two or more.

    >>> parse("-x", {})
    (Statement(name=None, term=Applied(operation='neg', inside=(Name(name='x', place=1),), place=0), place=0),)
    """
    if len(text) > LONGEST:
        raise DataError(f"an expression of {len(text):,} characters", fix=f"write at most {LONGEST:,}")
    return _Reader(text, functions).program()


def fault(text: str, place: int, problem: str, fix: str) -> DataError:
    """An error about one place of a text: the line around it, a mark below the place, and what is wrong."""
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    first, last = max(start, place - SHOWN), min(len(text) if end < 0 else end, place + SHOWN)
    before, after = visible(text[first:place]), visible(text[place:last])
    line = f"line {text.count(chr(10), 0, place) + 1}, " if "\n" in text else ""
    mark = " " * columns(before) + "^"
    return DataError(
        f"in the expression\n  {before}{after}\n  {mark}\n{line}column {place - start + 1}: {problem}", fix=fix
    )


def _tokens(text: str) -> Iterator[GrammarToken]:
    place = 0
    while place < len(text):
        if text[place] in " \t":
            place += 1
            continue
        found = TOKEN.match(text, place)
        if found is None:
            raise fault(
                text, place, f"'{text[place]}' means nothing here", "use numbers, names, + - * / ^ and brackets"
            )
        assert found.lastgroup is not None
        yield GrammarToken(found.lastgroup, found[0], place)
        place = found.end()
    yield GrammarToken("close", "", len(text))


class _Reader:
    """A text that is read from left to right, one function for each rule of the grammar."""

    def __init__(self, text: str, functions: Mapping[str, int | None]) -> None:
        self.text, self.functions = text, functions
        self.tokens = list(_tokens(text))
        self.at = self.depth = self.operations = 0

    @property
    def next(self) -> GrammarToken:
        return self.tokens[self.at]

    def take(self, *marks: str) -> GrammarToken | None:
        """The next token, if it is one of these marks."""
        token = self.next
        if token.kind != "mark" or token.text not in marks:
            return None
        self.at += 1
        return token

    def fault(self, token: GrammarToken, problem: str, fix: str) -> DataError:
        return fault(self.text, token.place, problem, fix)

    def program(self) -> tuple[Statement, ...]:
        found = []
        while True:
            while self.next.kind == "end":
                self.at += 1
            if self.next.kind == "close":
                break
            found.append(self.statement())
        if not found:
            raise DataError("there is no expression", fix='write one, such as "c*(a+2*b)"')
        return tuple(found)

    def statement(self) -> Statement:
        first, second = self.next, self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        name = None
        if first.kind == "name" and (second.kind, second.text) == ("mark", "="):
            if first.text in self.functions:
                raise self.fault(first, f"{first.text} is a function", "choose another name")
            name, self.at = first.text, self.at + 2
        self.operations = 0
        term = self.sum()
        if self.next.kind not in ENDS:
            raise self._unexpected()
        return Statement(name, term, first.place)

    def _unexpected(self) -> DataError:
        token = self.next
        if token.text == ")":
            return self.fault(token, "this bracket closes nothing", "leave it out, or open one before it")
        if token.text == "=":
            return self.fault(token, "only a name stands before =", "write each statement as name = expression")
        if token.text == ",":
            return self.fault(token, "a comma stands only between arguments", f"functions are {_list(self.functions)}")
        return self.fault(token, f"an operator is missing before '{token.text}'", "write * where you multiply")

    def sum(self) -> Term:
        return self._chain({"+": "add", "-": "sub"}, self.product)

    def product(self) -> Term:
        return self._chain({"*": "mul", "/": "div"}, self.signed)

    def _chain(self, marks: Mapping[str, str], part: Callable[[], Term]) -> Term:
        left = part()
        while (mark := self.take(*marks)) is not None:
            left = self._applied(marks[mark.text], (left, part()), mark)
        return left

    def signed(self) -> Term:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.fault(self.next, f"more than {DEEPEST} levels inside each other", "name the parts: d = ...")
        mark = self.take("-", "+")
        if mark is None:
            term = self.power()
        else:
            inner = self.signed()
            term = inner if mark.text == "+" else self._applied("neg", (inner,), mark)
        self.depth -= 1
        return term

    def power(self) -> Term:
        base = self.atom()
        mark = self.take("**", "^")
        return base if mark is None else self._applied("pow", (base, self.signed()), mark)

    def atom(self) -> Term:
        token = self.next
        self.at += token.kind != "close"
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name":
            return (
                self._call(token)
                if (self.next.kind, self.next.text) == ("mark", "(")
                else Name(token.text, token.place)
            )
        if token.text == "(":
            inner = self.sum()
            self._closed(token)
            return inner
        said = f"'{token.text}'" if token.kind == "mark" else "the end"
        raise self.fault(token, f"a number, a name or a bracket is missing before {said}", "write it there")

    def _number(self, token: GrammarToken) -> Number:
        value = float(token.text)
        if value == float("inf"):
            raise self.fault(token, "this number is too large", "use one below 1e308")
        return Number(value, token.place)

    def _call(self, name: GrammarToken) -> Term:
        if name.text not in self.functions:
            fix = f"write {name.text}*( to multiply; functions are {_list(self.functions)}"
            near = did_you_mean(name.text, self.functions)
            raise self.fault(name, f"there is no function '{name.text}'", near if near.startswith("did") else fix)
        bracket = self.next
        self.at += 1
        inside = [self.sum()]
        while self.take(",") is not None:
            inside.append(self.sum())
        self._closed(bracket)
        self._require_count(name, len(inside))
        return self._applied(name.text, tuple(inside), name)

    def _applied(self, operation: str, inside: tuple[Term, ...], token: GrammarToken) -> Applied:
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise self.fault(
                token, f"more than {MOST_OPERATIONS} operations in one statement", "name the parts: d = ..."
            )
        return Applied(operation, inside, token.place)

    def _closed(self, opening: GrammarToken) -> None:
        if self.take(")") is not None:
            return
        if self.next.kind in ENDS:
            raise self.fault(opening, "this bracket is never closed", "add a ) where it ends")
        raise self._unexpected()

    def _require_count(self, name: GrammarToken, count: int) -> None:
        wanted = self.functions[name.text]
        if (wanted is None and count < 2) or wanted not in (None, count):
            said = (
                "two or more arguments" if wanted is None else "one argument" if wanted == 1 else f"{wanted} arguments"
            )
            raise self.fault(name, f"{name.text} takes {said}, and {count} were given", "correct the arguments")


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
