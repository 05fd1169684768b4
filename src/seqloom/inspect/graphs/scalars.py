"""Backpropagation on numbers, from scratch: an expression becomes nodes, values go forward, gradients come back.

    forward    in topological order: every node after those that it reads      value = operation(values of its parents)
    backward   in the reverse order: every node after those that read it       gradient = sum over its readers of
                                                                               local derivative x gradient of the reader

All numbers are float64. The gradient of a node is that of the last statement by it; the sum over all readers at every
node is the sum over all paths of the products over their edges. A number that was written is a node without gradient.

The operations of expressions: what each makes of numbers, and its local derivatives, as numbers and as a formula.

A local derivative is that of one operation by one of its own inputs, as if nothing stood around it: what the lectures
multiply by what comes from above. In formulas `{x}` and `{y}` are the first and the last input, `{each}` is the one
in question, `{out}` the result.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from seqloom.errors import DataError, did_you_mean
from seqloom.inspect.graphs.grammar import Applied, Name, Number, Statement, Term, fault, parse
from seqloom.report.numbers import number as brief

Numbers = Sequence[float]


class Operation(NamedTuple):
    """One operation on numbers."""

    written: str  # with {x} and {y}; {all} where there may be any number of inputs
    value: Callable[[Numbers], float]
    slopes: Callable[[Numbers, float], tuple[float, ...]]  # (inputs, result) -> the derivative by each input
    formulas: tuple[str, ...]  # of those, one for each input; the last one serves all further ones
    takes: int | None = 1  # how many inputs; None: two or more
    tied: str = ""  # the formula of inputs that are chosen together, {ties} of them


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _shares(values: Numbers) -> list[float]:
    """The softmax of the values: each one's share of the sum of exponentials."""
    largest = max(values)
    parts = [math.exp(value - largest) for value in values]
    return [part / sum(parts) for part in parts]


def _softmax_slopes(values: Numbers, out: float) -> tuple[float, ...]:
    _, *others = _shares(values)
    return out * (1 - out), *(-out * share for share in others)


def _power(x: float, y: float) -> float:
    """x^y; infinite where it is too large for a number, which Python would not say of its own accord."""
    try:
        return float(x**y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


def _power_slopes(values: Numbers, out: float) -> tuple[float, ...]:
    x, y = values
    by_base = 0.0 if y == 0 else y * _power(x, y - 1) if x != 0 or y >= 1 else math.inf
    if x > 0:
        return by_base, out * math.log(x)
    return by_base, 0.0 if x == 0 and y > 0 else math.nan  # a negative base has no derivative by its exponent


def _chosen(values: Numbers, out: float) -> tuple[float, ...]:
    """1 for the input that was chosen; inputs that are equal share it, as in torch."""
    chosen = [value == out for value in values]
    return tuple(each / sum(chosen) for each in chosen)


OPERATIONS: Mapping[str, Operation] = {
    "add": Operation("{x} + {y}", lambda v: v[0] + v[1], lambda *_: (1.0, 1.0), ("1", "1"), 2),
    "sub": Operation("{x} - {y}", lambda v: v[0] - v[1], lambda *_: (1.0, -1.0), ("1", "-1"), 2),
    "mul": Operation("{x}*{y}", lambda v: v[0] * v[1], lambda v, _: (v[1], v[0]), ("{y}", "{x}"), 2),
    "div": Operation(
        "{x}/{y}", lambda v: v[0] / v[1], lambda v, out: (1 / v[1], -out / v[1]), ("1/{y}", "-{out}/{y}"), 2
    ),
    "pow": Operation("{x}^{y}", lambda v: v[0] ** v[1], _power_slopes, ("{y}*{x}^({y} - 1)", "{out}*log({x})"), 2),
    "same": Operation("{x}", lambda v: v[0], lambda *_: (1.0,), ("1",)),  # another name: b = a
    "neg": Operation("-{x}", lambda v: -v[0], lambda *_: (-1.0,), ("-1",)),
    "exp": Operation("exp({x})", lambda v: math.exp(v[0]), lambda _, out: (out,), ("{out}",)),
    "log": Operation("log({x})", lambda v: math.log(v[0]), lambda v, _: (1 / v[0],), ("1/{x}",)),
    "tanh": Operation("tanh({x})", lambda v: math.tanh(v[0]), lambda _, out: (1 - out**2,), ("1 - {out}^2",)),
    "sigmoid": Operation(
        "sigmoid({x})", lambda v: _sigmoid(v[0]), lambda _, out: (out * (1 - out),), ("{out}*(1 - {out})",)
    ),
    # The derivative at 0 is 0, as in torch; the lectures of deck A print 1.
    "relu": Operation(
        "relu({x})",
        lambda v: max(v[0], 0.0),
        lambda v, _: (float(v[0] > 0),),
        ("1 if {x} > 0 else 0",),
    ),
    "sin": Operation("sin({x})", lambda v: math.sin(v[0]), lambda v, _: (math.cos(v[0]),), ("cos({x})",)),
    "cos": Operation("cos({x})", lambda v: math.cos(v[0]), lambda v, _: (-math.sin(v[0]),), ("-sin({x})",)),
    "sqrt": Operation(
        "sqrt({x})",
        lambda v: math.sqrt(v[0]),
        lambda _, out: (0.5 / out if out else math.inf,),
        ("1/(2*{out})",),
    ),
    "abs": Operation(
        "abs({x})", lambda v: abs(v[0]), lambda v, _: (float((v[0] > 0) - (v[0] < 0)),), ("the sign of {x}",)
    ),
    "max": Operation(
        "max({all})",
        max,
        _chosen,
        ("1 if {each} is the largest, else 0",),
        None,
        "1 shared by the {ties} that are the largest",
    ),
    "min": Operation(
        "min({all})",
        min,
        _chosen,
        ("1 if {each} is the smallest, else 0",),
        None,
        "1 shared by the {ties} that are the smallest",
    ),
    # The share of the first input; `-log(softmax(z1, z2))` is the cross-entropy when the first class is the right one.
    "softmax": Operation(
        "softmax({all})",
        lambda v: _shares(v)[0],
        _softmax_slopes,
        ("{out}*(1 - {out})", "-{out} * the share of {each}"),
        None,
    ),
}
SIGNS = ("add", "sub", "mul", "div", "pow", "neg", "same")
FUNCTIONS: Mapping[str, int | None] = {name: it.takes for name, it in OPERATIONS.items() if name not in SIGNS}


MOST_NODES = 2_000
LAST = "L"  # the name of the last result, where it has none: a loss, as in the lectures
LETTERS = "defghijkmnpqrstuvw"


class ScalarEdge(NamedTuple):
    """How a node depends on one of its parents."""

    parent: int
    local: float  # the derivative of the node by this parent alone
    formula: str  # the same, written
    passed: float  # local x the gradient of the node: what the parent gets from it


class ScalarNode(NamedTuple):
    """One number of the computation."""

    name: str
    operation: str  # input, number, or one of OPERATIONS
    written: str  # 2*b
    with_numbers: str  # 2*1
    value: float
    gradient: float  # of the last result by this one
    edges: tuple[ScalarEdge, ...]  # to the parents that depend on an input
    parents: tuple[int, ...]  # all of them


class Computation(NamedTuple):
    """An expression that was computed, forward and back."""

    nodes: tuple[ScalarNode, ...]  # in topological order, the inputs first
    target: int  # the node whose gradient by all the others was taken


def evaluate(text: str, values: Mapping[str, float]) -> Computation:
    """The nodes of an expression with their values, and the gradients of its last statement by each.

    >>> [(node.name, node.value, node.gradient) for node in evaluate("c*a", {"a": 3, "c": -2}).nodes]
    [('a', 3.0, -2.0), ('c', -2.0, 3.0), ('L', -6.0, 1.0)]
    """
    statements = parse(text, FUNCTIONS)
    _require_values(text, statements, values)
    built = _Builder(text, statements, values)
    return Computation(_with_gradients(built.nodes, built.target), built.target)


def _require_values(text: str, statements: tuple[Statement, ...], values: Mapping[str, float]) -> None:
    """Raise DataError for inputs without a value, values without an input, and names that stand for two things."""
    made = set[str]()
    asked = dict[str, int]()
    for statement in statements:
        for read in _names(statement.term):
            if read.name not in made:
                asked.setdefault(read.name, read.place)
        if statement.name is not None:
            if statement.name in made or statement.name in asked:
                problem = f"{statement.name} stands for something already"
                raise fault(text, statement.place, problem, "give each statement a name of its own")
            made.add(statement.name)
    for name in values:
        if name in made:
            raise DataError(f"{name} is computed by the expression, and a value was given for it", fix="leave one out")
        if name not in asked:
            fix = did_you_mean(name, asked) if asked else "leave it out"
            raise DataError(f"a value was given for '{name}', which the expression does not read", fix=fix)
    for name, place in asked.items():
        if name in FUNCTIONS:
            raise fault(text, place, f"{name} is a function", f"write {name}(...)")
        if name not in values:
            raise fault(text, place, f"{name} has no value", f"give it one: {name}=1")
        if not math.isfinite(values[name]):
            raise DataError(f"{name} is {values[name]}", fix="give a finite number")


def _names(term: Term) -> Iterator[Name]:
    if isinstance(term, Name):
        yield term
    elif isinstance(term, Applied):
        for inner in term.inside:
            yield from _names(inner)


class _Builder:
    """The forward pass: every term becomes a node, after the nodes that it reads."""

    def __init__(self, text: str, statements: tuple[Statement, ...], values: Mapping[str, float]) -> None:
        self.text, self.nodes = text, list[ScalarNode]()
        self.place = {name: self._input(name, float(value)) for name, value in values.items()}
        self.taken = {*values, *(one.name for one in statements if one.name is not None)}
        self.free, self.target = iter(LETTERS), 0
        for statement in statements:
            last = statement is statements[-1]
            name = statement.name or (LAST if last and LAST not in self.taken else None)
            self.target = self._made(_renamed(statement), name)
            if statement.name is not None:
                self.place[statement.name] = self.target

    def _input(self, name: str, value: float) -> int:
        return self._added(ScalarNode(name, "input", name, brief(value), value, 0.0, (), ()))

    def _added(self, node: ScalarNode) -> int:
        if len(self.nodes) == MOST_NODES:
            raise DataError(f"the expression has more than {MOST_NODES:,} operations", fix="write a smaller one")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _made(self, term: Term, name: str | None) -> int:
        """The node of a term; a name on its own is given only to something new."""
        if isinstance(term, Name):
            return self.place[term.name]
        if isinstance(term, Number):
            numeral = brief(term.value)
            return self._added(ScalarNode(name or numeral, "number", numeral, numeral, term.value, 0.0, (), ()))
        parents = tuple(self._made(inner, None) for inner in term.inside)
        return self._added(self._applied(term, parents, name))

    def _applied(self, term: Applied, parents: tuple[int, ...], name: str | None) -> ScalarNode:
        operation = OPERATIONS[term.operation]
        inputs = [self.nodes[at].value for at in parents]
        value = self._value(term, inputs)
        called = name or self._new_name()
        names = [self.nodes[at].name for at in parents]
        slopes = operation.slopes(inputs, value)
        formulas = _formulas(operation, inputs, value)
        edges = tuple(
            ScalarEdge(parent, slope, _filled(formula, names, called, at), 0.0)
            for at, (parent, slope, formula) in enumerate(zip(parents, slopes, formulas, strict=True))
            if self._depends(parent)
        )
        return ScalarNode(
            called,
            term.operation,
            _filled(operation.written, names, called),
            _with_numbers(term, inputs),
            value,
            0.0,
            edges,
            parents,
        )

    def _value(self, term: Applied, inputs: list[float]) -> float:
        try:
            value = OPERATIONS[term.operation].value(inputs)
        except (ValueError, ZeroDivisionError):
            value = math.nan
        except OverflowError:
            value = math.inf
        if isinstance(value, complex) or not math.isfinite(value):
            why = "is too large for a number" if value == math.inf else "is not a number"
            raise fault(self.text, term.place, f"{_with_numbers(term, inputs)} {why}", "choose other values")
        return value

    def _depends(self, at: int) -> bool:
        node = self.nodes[at]
        return node.operation == "input" or bool(node.edges)

    def _new_name(self) -> str:
        """The next letter that is free, as the lectures name what stands between; after them n1, n2, ..."""
        for letter in self.free:
            if letter not in self.taken:
                return letter
        number = next(n for n in range(1, MOST_NODES + 2) if f"n{n}" not in self.taken)
        self.taken.add(f"n{number}")
        return f"n{number}"


def _renamed(statement: Statement) -> Term:
    """What a statement computes; one that only gives another name to something is a step of its own."""
    if statement.name is not None and isinstance(statement.term, Name):
        return Applied("same", (statement.term,), statement.term.place)
    return statement.term


def _formulas(operation: Operation, inputs: list[float], value: float) -> list[str]:
    """The derivative by each input, written; where several inputs are chosen together, that they share it."""
    ties = inputs.count(value) if operation.tied else 0
    usual = [operation.formulas[min(at, len(operation.formulas) - 1)] for at in range(len(inputs))]
    shared = operation.tied.replace("{ties}", str(ties))
    return [shared if ties > 1 and one == value else formula for one, formula in zip(inputs, usual, strict=True)]


def _with_numbers(term: Applied, inputs: list[float]) -> str:
    """An operation on numbers, written: below zero in brackets, but where those of a function stand around it."""
    told = [brief(value) if term.operation in FUNCTIONS else _bracketed(value) for value in inputs]
    return _filled(OPERATIONS[term.operation].written, told, "")


def _bracketed(value: float) -> str:
    return f"({brief(value)})" if value < 0 else brief(value)


def _filled(pattern: str, names: list[str], out: str, at: int = 0) -> str:
    return pattern.format(x=names[0], y=names[-1], each=names[at], all=", ".join(names), out=out)


def _with_gradients(nodes: list[ScalarNode], target: int) -> tuple[ScalarNode, ...]:
    """The backward pass: from the last node to the first, each passes its gradient on to its parents."""
    gradients = [0.0] * len(nodes)
    gradients[target] = 1.0
    done = list(nodes)
    for at in range(len(nodes) - 1, -1, -1):
        node = nodes[at]
        edges = tuple(edge._replace(passed=edge.local * gradients[at]) for edge in node.edges)
        for edge in edges:
            gradients[edge.parent] += edge.passed
        done[at] = node._replace(gradient=gradients[at], edges=edges)
    return tuple(done)
