"""The graph of an expression: backpropagation on numbers, from scratch, with every step as a figure.

    forward    in topological order: every node after its parents               value = operation(values of its parents)
    backward   in reverse order: every node after its readers                   gradient = sum over its readers of
                                                                               local derivative x gradient of the reader

All numbers are float64. Gradients are those of the last statement. The sum over all readers at every node is the sum
over all paths of the products along their edges. A number literal is a node without gradient.

A local derivative is that of one operation by one of its inputs, the factor that the chain rule multiplies by the
gradient from above. In formulas `{x}` and `{y}` are the first and the last input, `{each}` is the input in question,
`{out}` the result.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from seqloom.errors import DataError, did_you_mean
from seqloom.inspect.graphs.diagram import MOST_CARDS, Diagram, GraphWalk, NodeCard, NodeLink, WalkPart, WalkStep
from seqloom.inspect.graphs.grammar import Applied, Name, Number, Statement, Term, fault, parse
from seqloom.inspect.view import View, pictures
from seqloom.report.document import Details, DocumentBlock, Heading, Paragraphs, TableBlock
from seqloom.report.numbers import number as brief

Numbers = Sequence[float]


class Operation(NamedTuple):
    """One operation on numbers."""

    written: str  # with {x} and {y}; {all} for any number of inputs
    value: Callable[[Numbers], float]
    slopes: Callable[[Numbers, float], tuple[float, ...]]  # (inputs, result) -> the derivative by each input
    formulas: tuple[str, ...]  # one for each input; the last one is used for all further inputs
    takes: int | None = 1  # number of inputs; None: two or more
    tied: str = ""  # the formula of {ties} inputs that share the maximum or minimum


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _shares(values: Numbers) -> list[float]:
    largest = max(values)
    parts = [math.exp(value - largest) for value in values]
    return [part / sum(parts) for part in parts]


def _softmax_slopes(values: Numbers, out: float) -> tuple[float, ...]:
    _, *others = _shares(values)
    return out * (1 - out), *(-out * share for share in others)


def _power(x: float, y: float) -> float:
    """Return x^y; infinity instead of Python's OverflowError."""
    try:
        return float(x**y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


def _power_slopes(values: Numbers, out: float) -> tuple[float, ...]:
    x, y = values
    by_base = 0.0 if y == 0 else y * _power(x, y - 1) if x != 0 or y >= 1 else math.inf
    if x > 0:
        return by_base, out * math.log(x)
    return by_base, 0.0 if x == 0 and y > 0 else math.nan  # no derivative by the exponent for a negative base


def _chosen(values: Numbers, out: float) -> tuple[float, ...]:
    """Return 1 for the chosen input; equal inputs share it, as in torch."""
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
    "relu": Operation("relu({x})", lambda v: max(v[0], 0.0), lambda v, _: (float(v[0] > 0),), ("1 if {x} > 0 else 0",)),
    "sin": Operation("sin({x})", lambda v: math.sin(v[0]), lambda v, _: (math.cos(v[0]),), ("cos({x})",)),
    "cos": Operation("cos({x})", lambda v: math.cos(v[0]), lambda v, _: (-math.sin(v[0]),), ("-sin({x})",)),
    "sqrt": Operation(
        "sqrt({x})", lambda v: math.sqrt(v[0]), lambda _, out: (0.5 / out if out else math.inf,), ("1/(2*{out})",)
    ),
    "abs": Operation(
        "abs({x})", lambda v: abs(v[0]), lambda v, _: (float((v[0] > 0) - (v[0] < 0)),), ("the sign of {x}",)
    ),
    "max": Operation(
        "max({all})",
        max,
        _chosen,
        ("1 if {each} is the maximum, else 0",),
        None,
        "1/{ties}: {ties} inputs are the maximum",
    ),
    "min": Operation(
        "min({all})",
        min,
        _chosen,
        ("1 if {each} is the minimum, else 0",),
        None,
        "1/{ties}: {ties} inputs are the minimum",
    ),
    # The probability of the first input; `-log(softmax(z1, z2))` is the cross-entropy if the first class is correct.
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
LAST = "L"  # default name of the last result: a loss
LETTERS = "defghijkmnpqrstuvw"


class ScalarEdge(NamedTuple):
    """How a node depends on one of its parents."""

    parent: int
    local: float  # derivative of the node by this parent
    formula: str  # the same as text
    passed: float  # local x the gradient of the node: the part of the parent's gradient


class ScalarNode(NamedTuple):
    """A number of the computation."""

    name: str
    operation: str  # input, number, or one of OPERATIONS
    written: str  # 2*b
    with_numbers: str  # 2*1
    value: float
    gradient: float  # of the last result by this node
    edges: tuple[ScalarEdge, ...]  # to the parents that depend on an input
    parents: tuple[int, ...]  # all parents


def _require_values(text: str, statements: tuple[Statement, ...], values: Mapping[str, float]) -> None:
    """Raise DataError for inputs without a value, values without an input, and ambiguous names."""
    made = set[str]()
    inputs = dict[str, int]()
    for statement in statements:
        for read in _names(statement.term):
            if read.name not in made:
                inputs.setdefault(read.name, read.place)
        if statement.name is not None:
            if statement.name in made or statement.name in inputs:
                problem = f"{statement.name} is defined twice"
                raise fault(text, statement.place, problem, "give each statement its own name")
            made.add(statement.name)
    for name in values:
        if name in made:
            raise DataError(f"{name} is computed by the expression, but a value was also given", fix="leave one out")
        if name not in inputs:
            fix = did_you_mean(name, inputs) if inputs else "leave it out"
            raise DataError(f"the expression has no input '{name}'", fix=fix)
    for name, place in inputs.items():
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
    """The forward pass: turns every term into a node after its parents."""

    def __init__(self, text: str, statements: tuple[Statement, ...], values: Mapping[str, float]) -> None:
        self.text, self.nodes = text, list[ScalarNode]()
        self.place = {
            name: self._added(ScalarNode(name, "input", name, brief(float(value)), float(value), 0.0, (), ()))
            for name, value in values.items()
        }
        self.taken = {*values, *(one.name for one in statements if one.name is not None)}
        self.free, self.target = iter(LETTERS), 0
        for statement in statements:
            last = statement is statements[-1]
            name = statement.name or (LAST if last and LAST not in self.taken else None)
            # A statement that only renames something is a step of its own
            only_names = statement.name is not None and isinstance(statement.term, Name)
            term = Applied("same", (statement.term,), statement.term.place) if only_names else statement.term
            self.target = self._made(term, name)
            if statement.name is not None:
                self.place[statement.name] = self.target

    def _added(self, node: ScalarNode) -> int:
        if len(self.nodes) == MOST_NODES:
            raise DataError(f"the expression has more than {MOST_NODES:,} operations", fix="write a smaller expression")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _made(self, term: Term, name: str | None) -> int:
        """Return the node of a term; only new nodes get the name."""
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
        if term.operation == "pow" and isinstance(term.inside[1], Number):
            formulas[0] = _power_rule(term.inside[1].value)
        edges = tuple(
            ScalarEdge(parent, slope, _filled(formula, names, called, at), 0.0)
            for at, (parent, slope, formula) in enumerate(zip(parents, slopes, formulas, strict=True))
            if self.nodes[parent].operation == "input" or self.nodes[parent].edges  # it depends on an input
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

    def _new_name(self) -> str:
        """Return the next free letter for an intermediate value; after the letters n1, n2, ..."""
        for letter in self.free:
            if letter not in self.taken:
                return letter
        number = next(n for n in range(1, MOST_NODES + 2) if f"n{n}" not in self.taken)
        self.taken.add(f"n{number}")
        return f"n{number}"


def _formulas(operation: Operation, inputs: list[float], value: float) -> list[str]:
    """Return the derivative by each input as text; inputs that are chosen together share it."""
    ties = inputs.count(value) if operation.tied else 0
    usual = [operation.formulas[min(at, len(operation.formulas) - 1)] for at in range(len(inputs))]
    shared = operation.tied.replace("{ties}", str(ties))
    return [shared if ties > 1 and one == value else formula for one, formula in zip(inputs, usual, strict=True)]


def _power_rule(exponent: float) -> str:
    """The derivative of x^exponent by x, as on a blackboard: 2*{x} and not 2*{x}^(2 - 1).

    >>> [_power_rule(exponent) for exponent in (1.0, 2.0, 3.0, 0.5)]
    ['1', '2*{x}', '3*{x}^2', '0.5*{x}^(-0.5)']
    """
    short = {0.0: "0", 1.0: "1", 2.0: "2*{x}"}
    return short.get(exponent, f"{brief(exponent)}*{{x}}^{_bracketed(exponent - 1)}")


def _with_numbers(term: Applied, inputs: list[float]) -> str:
    """Write an operation with numbers; negative ones are in brackets unless they are arguments of a function."""
    texts = [brief(value) if term.operation in FUNCTIONS else _bracketed(value) for value in inputs]
    return _filled(OPERATIONS[term.operation].written, texts, "")


def _bracketed(value: float) -> str:
    return f"({brief(value)})" if value < 0 else brief(value)


def _filled(pattern: str, names: list[str], out: str, at: int = 0) -> str:
    return pattern.format(x=names[0], y=names[-1], each=names[at], all=", ".join(names), out=out)


def _with_gradients(nodes: list[ScalarNode], target: int) -> tuple[ScalarNode, ...]:
    """The backward pass: from the last node to the first, each passes its gradient to its parents."""
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


@dataclass(frozen=True, kw_only=True)
class ExpressionGraph(View):
    """An expression after the forward and backward pass; `nodes` are in topological order."""

    kind: ClassVar[str] = "expression_graph"
    expression: str
    nodes: tuple[ScalarNode, ...]
    target: int
    lr: float | None = None  # learning rate of a step that the view also shows

    @property
    def result(self) -> float:
        """The value of the last statement."""
        return self.nodes[self.target].value

    @property
    def inputs(self) -> dict[str, float]:
        """The given values, by name."""
        return {node.name: node.value for node in self.nodes if node.operation == "input"}

    @property
    def gradients(self) -> dict[str, float]:
        """The derivative of the result by each input."""
        return {node.name: node.gradient for node in self.nodes if node.operation == "input"}

    def __getitem__(self, name: str) -> ScalarNode:
        found = {node.name: node for node in reversed(self.nodes)}  # the first of equal names
        if name not in found:
            raise DataError(f"the expression has no value '{name}'", fix=did_you_mean(name, found))
        return found[name]

    def stepped(self, lr: float) -> "ExpressionGraph":
        """The same expression after one step of gradient descent: every input minus lr x its gradient."""
        moved = {name: value - lr * self.gradients[name] for name, value in self.inputs.items()}
        for name, value in moved.items():
            if not math.isfinite(value):
                slope = brief(self.gradients[name])
                raise DataError(
                    f"one step with learning rate {lr} and gradient {slope} takes {name} to {value}",
                    fix="give a smaller learning rate, such as 0.1, or start where the gradient is finite",
                )
        return expression_graph(self.expression, moved)

    def steps(self) -> tuple[WalkStep, ...]:
        """The walk: every value in topological order, then every gradient in the reverse order."""
        return (*self._forward(), *self._backward())

    def _drawn(self) -> dict[int, int]:
        """Return the card number of each node that has a card: number literals have none, unless named."""
        bare = {at for at, node in enumerate(self.nodes) if node.operation == "number" and node.name == node.written}
        seen = [at for at in range(len(self.nodes)) if at not in bare or at == self.target]
        return {at: card for card, at in enumerate(seen)}

    def _forward(self) -> Iterator[WalkStep]:
        for at, card in self._drawn().items():
            node = self.nodes[at]
            texts = [node.name, node.written, node.with_numbers, brief(node.value)]
            yield WalkStep(card, "value", " = ".join(dict.fromkeys(texts)))

    def _backward(self) -> Iterator[WalkStep]:
        for at, card in reversed(self._drawn().items()):
            yield WalkStep(card, "slope", self._told_gradient(at))

    def _told_gradient(self, at: int) -> str:
        """Describe the gradient of a node: the part from each reader, and the sum."""
        node, end = self.nodes[at], self.nodes[self.target].name
        whole = f"∂{end}/∂{node.name}"
        if node.operation == "number" and at != self.target:
            return f"{node.name} is a constant: it has no gradient"
        parts = [(reader, edge) for reader in self.nodes for edge in reader.edges if edge.parent == at]
        if at == self.target or not parts:
            why = "start of the backward pass" if at == self.target else f"{end} does not depend on it"
            return f"{whole} = {brief(node.gradient)}   {why}"
        if len(parts) == 1:
            return f"{whole} = {self._passed(*parts[0], node)}"
        lines = [f"  through {reader.name}: {self._passed(reader, edge, node)}" for reader, edge in parts]
        sums = " + ".join([brief(parts[0][1].passed), *(_bracketed(edge.passed) for _, edge in parts[1:])])
        return "\n".join([f"{whole} is a sum over {len(parts)} uses", *lines, f"  {sums} = {brief(node.gradient)}"])

    def _passed(self, reader: ScalarNode, edge: ScalarEdge, node: ScalarNode) -> str:
        """Describe the part from one reader: the chain rule in letters, the local derivative, then the numbers."""
        end, local = self.nodes[self.target], f"∂{reader.name}/∂{node.name}"
        rule = brief(edge.local) if edge.formula == brief(edge.local) else f"{edge.formula} = {brief(edge.local)}"
        if reader is end:
            return rule
        product = f"{_bracketed(reader.gradient)} × {_bracketed(edge.local)} = {brief(edge.passed)}"
        return f"∂{end.name}/∂{reader.name} × {local}, and {local} = {rule}, so {product}"

    def _blocks(self) -> Sequence[DocumentBlock]:
        """A slider that steps forward and backward; formats without one list the steps with their formulas."""
        drawn, *after = self.figures()
        skipped = len(self._drawn()) - len(drawn.cards)
        steps = [step._replace(card=step.card - skipped) for step in self.steps() if step.card >= skipped]
        still = [
            Heading("Forward pass: each value from its inputs"),
            _numbered(self._forward()),
            Heading("Backward pass (chain rule): upstream gradient x local derivative, summed over all uses"),
            _numbered(self._backward()),
        ]
        walk = GraphWalk(still, [WalkPart("", (), [replace(drawn, title="")], steps)])
        return [walk, Details("After one step", pictures(after))]

    def _sentences(self) -> tuple[str, ...]:
        """The result, the gradients, and warnings."""
        end = self.nodes[self.target]
        slopes = ", ".join(f"∂{end.name}/∂{name} = {brief(slope)}" for name, slope in self.gradients.items())
        found = [f"{end.name} = {brief(end.value)}." + (f" {slopes}." if slopes else "")]
        return (*found, *self._strongest(), *self._without_slope(), *self._by_agreement(), *self.step_sentences())

    def _strongest(self) -> Iterator[str]:
        """The inputs with the largest gradient, all of them in case of a tie."""
        end = self.nodes[self.target].name
        moving = {name: abs(slope) for name, slope in self.gradients.items() if slope == slope}
        most = max(moving.values(), default=0.0)
        first = [name for name, size in moving.items() if math.isclose(size, most, rel_tol=1e-9)]
        if len(moving) > 1 and most > 0:
            alike = len(first) == len(moving)
            yield (
                f"{end} is equally sensitive to {_both(first)}."
                if alike
                else f"{end} is most sensitive to {_both(first)}."
            )

    def _without_slope(self) -> Iterator[str]:
        """Nodes with zero or undefined gradient."""
        dead = [name for name, slope in self.gradients.items() if slope == 0]
        lost = [node.name for node in self.nodes if math.isnan(node.gradient)]
        endless = [node.name for node in self.nodes if math.isinf(node.gradient)]
        yield from [f"Zero gradient: {', '.join(dead)}."] if dead else []
        yield from [f"The derivative with respect to {', '.join(lost)} is undefined here."] if lost else []
        yield from [f"The derivative with respect to {', '.join(endless)} is infinite here."] if endless else []

    def _by_agreement(self) -> Iterator[str]:
        """Points where the derivative does not exist and a convention applies."""
        if any(node.operation == "relu" and self.nodes[node.parents[0]].value == 0 for node in self.nodes):
            yield "The derivative of relu at 0 is taken as 0, as in PyTorch; some lectures print 1."
        if any(node.operation == "abs" and self.nodes[node.parents[0]].value == 0 for node in self.nodes):
            yield "The derivative of abs at 0 is taken as 0, as in PyTorch."
        for node in self.nodes:
            values = [self.nodes[at].value for at in node.parents]
            if node.operation in ("max", "min") and values.count(node.value) > 1:
                yield f"{node.name} has a tie: equal inputs of {node.operation} share the gradient, as in PyTorch."

    def figures(self) -> tuple[Diagram, ...]:
        """The diagram; for a very large expression, the part nearest to the result. With `lr`, that after the step."""
        before = self._diagram()
        if self.lr is None:
            return (before,)
        after = self.stepped(self.lr)._diagram()
        sizes = [part.size or 0.0 for one in (before, after) for parts in (one.cards, one.links) for part in parts]
        moved, _, results = self.step_sentences()
        caption = " ".join(filter(None, [after.caption, moved, results]))
        title = f"After one step: {after.title}"
        span = 0.0, max(sizes)
        return replace(before, span=span), replace(after, span=span, title=title, caption=caption)

    def step_sentences(self) -> tuple[str, ...]:
        """What one step of gradient descent changes; empty without `lr`."""
        if self.lr is None:
            return ()
        after, name = self.stepped(self.lr), self.nodes[self.target].name
        moved = ", ".join(f"{one} = {brief(value)}" for one, value in after.inputs.items())
        climbs = " (negative: gradient ascent)" if self.lr < 0 else ""
        return (
            f"One step of gradient descent with learning rate {brief(self.lr)}{climbs}: {moved}.",
            "The step changes every variable; to keep one fixed, write its number into the expression.",
            f"{name}: {brief(self.result)} before, {brief(after.result)} after.",
        )

    def _diagram(self) -> Diagram:
        cards = self._drawn()
        skipped = max(0, len(cards) - MOST_CARDS)
        kept = {at: card - skipped for at, card in cards.items() if card >= skipped}
        joined = dict[tuple[int, int], list[ScalarEdge]]()
        for at in kept:
            for edge in self.nodes[at].edges:
                if edge.parent in kept:
                    joined.setdefault((kept[edge.parent], kept[at]), []).append(edge)
        links = []
        for (source, target), edges in joined.items():
            passed = sum(edge.passed for edge in edges)
            note = "; ".join(f"local derivative {edge.formula} = {brief(edge.local)}" for edge in edges)
            size = abs(passed) if abs(passed) < math.inf else None
            local = brief(sum(edge.local for edge in edges))  # a*a reads a twice
            links.append(NodeLink(source, target, size, f"{note}; passes back {brief(passed)}", local))
        caption = f"The first {skipped:,} of {len(cards):,} nodes are left out." if skipped else ""
        return Diagram(title=self.title, cards=tuple(map(self._card, kept)), links=tuple(links), caption=caption)

    def _card(self, at: int) -> NodeCard:
        node = self.nodes[at]
        name = node.name if node.written in (node.name, brief(node.value)) else f"{node.name} = {node.written}"
        written = node.operation == "number" and at != self.target
        size = abs(node.gradient) if math.isfinite(node.gradient) and not written else None
        slope = "" if written else f"gradient {brief(node.gradient)}"
        return NodeCard(
            name, f"value {brief(node.value)}", slope, size, note=self._told_gradient(at), is_input=not node.parents
        )

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        """All numbers, the result, and the sentences."""
        return {**super().json_values(full=full), "result": self.result, "sentences": self.sentences()}


def expression_graph(text: str, values: Mapping[str, float]) -> ExpressionGraph:
    """Return the graph of an expression at these values; of several statements, the gradients of the last one.

    >>> expression_graph("d = 2*b; e = a + d; L = c*e", {"a": 3, "b": 1, "c": -2}).gradients
    {'a': -2.0, 'b': -4.0, 'c': 5.0}
    """
    statements = parse(text, FUNCTIONS)
    _require_values(text, statements, values)
    built = _Builder(text, statements, values)
    given = ", ".join(f"{name} = {brief(value)}" for name, value in values.items())
    title = " ; ".join(part.strip() for part in text.split("\n") if part.strip())
    title = f"{title}  at  {given}" if given else title
    return ExpressionGraph(
        title=title, expression=text, nodes=_with_gradients(built.nodes, built.target), target=built.target
    )


def _both(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _numbered(steps: Iterable[WalkStep]) -> DocumentBlock:
    """Return the steps as a numbered list."""
    texts = [step.text.split("\n") for step in steps]
    return TableBlock((), [(str(number), Paragraphs(*lines)) for number, lines in enumerate(texts, start=1)])
