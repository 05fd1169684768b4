"""The grammar of expressions in mathematical notation. Python's parser decides precedence; no code is executed.

    program    = statement { (";" | new line) statement }
    statement  = [ name "=" ] sum
    sum        = product { ("+" | "-") product }
    product    = signed { ("*" | "/") signed }
    signed     = ("-" | "+") signed | power
    power      = atom [ ("**" | "^") signed ]               binds to the right, closer than a sign: -x^2 is -(x^2)
    atom       = number | name | function "(" sum { "," sum } ")" | "(" sum ")"

Other input is rejected with its line and a mark below the position. Valid input goes to `ast.parse` with one token per
line, so that the line of a node is the index of its token. Numbers and names are replaced by placeholders: here
`lambda` is an ordinary name, `^` is a power, and `007` is a number.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqloom.errors import DataError, did_you_mean
from seqloom.report.labels import columns, visible

LONGEST, DEEPEST = 20_000, 48  # characters; nested brackets
MOST_OPERATIONS = 200  # operators and functions of one statement: each may be nested in the next
TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<mark>\*\*|[-+*/^()=,])|(?P<end>;|\r?\n)"
    r"|(?P<space>[ \t]+)"
)
BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
}
SHOWN = 60  # characters shown on either side of an error


class GrammarToken(NamedTuple):
    """A token of an expression and its position."""

    kind: str  # number, name, mark, end
    text: str
    place: int


class Number(NamedTuple):
    """A number literal."""

    value: float
    place: int


class Name(NamedTuple):
    """An input, or the name of an earlier statement."""

    name: str
    place: int


class Applied(NamedTuple):
    """An operation and its arguments."""

    operation: str  # a key of OPERATIONS
    inside: tuple["Term", ...]
    place: int


Term = Number | Name | Applied


class Statement(NamedTuple):
    """One statement: an optional name, and its term."""

    name: str | None
    term: Term
    place: int


def parse(text: str, functions: Mapping[str, int | None]) -> tuple[Statement, ...]:
    """Parse the statements of a program; `functions` has the number of arguments of each, None for two or more.

    >>> parse("-x", {})
    (Statement(name=None, term=Applied(operation='neg', inside=(Name(name='x', place=1),), place=0), place=0),)
    """
    if len(text) > LONGEST:
        raise DataError(f"the expression has {len(text):,} characters", fix=f"write at most {LONGEST:,}")
    found, tokens = list[Statement](), list[GrammarToken]()
    for token in list(_tokens(text)):  # tokenize everything before parsing
        if token.kind != "end":
            tokens.append(token)
        elif tokens:
            found.append(_statement(text, tokens, token, functions))
            tokens = []
    if not found:
        raise DataError("the expression is empty", fix='write one, such as "c*(a+2*b)"')
    return tuple(found)


def fault(text: str, place: int, problem: str, fix: str) -> DataError:
    """Return an error at a position of a text: its line, a mark below the position, and the problem."""
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
        found = TOKEN.match(text, place)
        if found is None:
            problem = f"'{text[place]}' is not allowed here"
            raise fault(text, place, problem, "use numbers, names, + - * / ^ and parentheses")
        assert found.lastgroup is not None
        if found.lastgroup != "space":
            yield GrammarToken(found.lastgroup, found[0], place)
        place = found.end()
    yield GrammarToken("end", "", len(text))


def _statement(
    text: str, tokens: list[GrammarToken], end: GrammarToken, functions: Mapping[str, int | None]
) -> Statement:
    first, name = tokens[0], None
    if first.kind == "name" and len(tokens) > 1 and tokens[1].text == "=":
        if first.text in functions:
            raise fault(text, first.place, f"{first.text} is a function", "choose another name")
        name, tokens = first.text, tokens[2:]
    wrong = _first_fault([*tokens, end], functions)
    if wrong is not None:
        token, problem, fix = wrong
        raise fault(text, token.place, problem, fix)
    stand_ins = {"number": "1", "name": "x"}
    lines = [stand_ins.get(token.kind, token.text.replace("^", "**")) for token in tokens]
    return Statement(name, _term(ast.parse("\n".join(("(", *lines, ")")), mode="eval").body, tokens), first.place)


def _term(node: ast.expr, tokens: Sequence[GrammarToken]) -> Term:
    """Convert a node of Python's tree; the first token is on line 2, because line 1 has a bracket."""
    token = tokens[node.lineno - 2]
    match node:
        case ast.Constant():
            return Number(float(token.text), token.place)
        case ast.Name():
            return Name(token.text, token.place)
        case ast.UnaryOp(op=ast.UAdd()):
            return _term(node.operand, tokens)
        case ast.UnaryOp(op=ast.USub()):
            return Applied("neg", (_term(node.operand, tokens),), token.place)
        case ast.BinOp(left=left, right=right):
            after_left = tokens[(left.end_lineno or left.lineno) - 1 :]
            mark = next(token for token in after_left if token.text != ")")
            return Applied(BINARY[type(node.op)], (_term(left, tokens), _term(right, tokens)), mark.place)
        case ast.Call():
            return Applied(token.text, tuple(_term(inner, tokens) for inner in node.args), token.place)
    raise AssertionError(f"{ast.dump(node)} is not part of an expression")


@dataclass
class Bracket:
    """An open bracket."""

    opening: GrammarToken
    function: GrammarToken | None  # the name before it
    arguments: int = 1


def _first_fault(
    tokens: Sequence[GrammarToken], functions: Mapping[str, int | None]
) -> tuple[GrammarToken, str, str] | None:
    """Return the first invalid token, its problem and the fix, or None; the last token is the end.

    Python rejects the same texts, but message and position differ between its versions.
    """
    brackets, operations = list[Bracket](), 0
    wanted = True  # whether a number, a name or a bracket must follow
    for at, token in enumerate(tokens):
        if wanted:
            if token.text == "(":
                called = tokens[at - 1] if at and tokens[at - 1].kind == "name" else None
                brackets.append(Bracket(token, called))
                operations += called is not None
                if len(brackets) > DEEPEST:
                    return token, f"more than {DEEPEST} nested levels", "name the parts: d = ..."
            elif token.kind == "number":
                wanted = False
                if float(token.text) == float("inf"):
                    return token, "this number is too large", "use one below 1e308"
            elif token.kind == "name":
                wanted = tokens[at + 1].text == "("
                if wanted and token.text not in functions:
                    near = did_you_mean(token.text, functions)
                    fix = f"write {token.text}*( to multiply; functions are {', '.join(sorted(functions))}"
                    return token, f"there is no function '{token.text}'", near if near.startswith("did") else fix
            elif token.text in ("+", "-"):
                operations += 1
            else:
                shown = "the end" if token.kind == "end" else f"'{token.text}'"
                return token, f"a number, a name or a parenthesis is missing before {shown}", "write it there"
        elif token.text == ")":
            if not brackets:
                return token, "this parenthesis has no opening one", "leave it out, or open one before it"
            function, arguments = brackets[-1].function, brackets.pop().arguments
            takes = functions[function.text] if function is not None else 1
            if function is not None and (arguments < 2 if takes is None else arguments != takes):
                many = {None: "two or more arguments", 1: "one argument"}.get(takes, f"{takes} arguments")
                return function, f"{function.text} takes {many}, got {arguments}", "correct the arguments"
        elif token.text == ",":
            if not brackets or brackets[-1].function is None:
                fix = f"functions are {', '.join(sorted(functions))}"
                return token, "a comma is only allowed between arguments of a function", fix
            brackets[-1].arguments += 1
            wanted = True
        elif token.text == "=":
            return token, "only a name is allowed before =", "write each statement as name = expression"
        elif token.kind == "end":
            if brackets:
                return brackets[-1].opening, "this parenthesis is never closed", "add a ) where it ends"
        elif token.kind == "mark" and token.text != "(":
            wanted, operations = True, operations + 1
        else:
            return token, f"an operator is missing before '{token.text}'", "write * to multiply"
        if operations > MOST_OPERATIONS:
            return token, f"more than {MOST_OPERATIONS} operations in one statement", "name the parts: d = ..."
    return None
