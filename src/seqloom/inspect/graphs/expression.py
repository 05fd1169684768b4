"""The graph of an expression: every number with its local derivatives, what comes from above, and its gradient."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from seqloom.errors import DataError, did_you_mean
from seqloom.inspect.graphs.diagram import MOST_CARDS, Diagram, GraphWalk, NodeCard, NodeLink, WalkPart, WalkStep
from seqloom.inspect.graphs.scalars import ScalarEdge, ScalarNode, evaluate
from seqloom.inspect.view import View
from seqloom.report.document import DocumentBlock, Heading, Paragraphs, TableBlock
from seqloom.report.figures.figure import Figure
from seqloom.report.numbers import number as brief


@dataclass(frozen=True, kw_only=True)
class ExpressionGraph(View):
    """An expression computed forward and back; `nodes` are in topological order."""

    kind: ClassVar[str] = "expression_graph"
    expression: str
    nodes: tuple[ScalarNode, ...]
    target: int

    @property
    def result(self) -> float:
        """The value of the last statement."""
        return self.nodes[self.target].value

    @property
    def inputs(self) -> dict[str, float]:
        """The values that were given, by name."""
        return {node.name: node.value for node in self.nodes if node.operation == "input"}

    @property
    def gradients(self) -> dict[str, float]:
        """The derivative of the result by each input."""
        return {node.name: node.gradient for node in self.nodes if node.operation == "input"}

    def __getitem__(self, name: str) -> ScalarNode:
        found = {node.name: node for node in reversed(self.nodes)}  # of equal names the first
        if name not in found:
            raise DataError(f"there is no number called '{name}' in the expression", fix=did_you_mean(name, found))
        return found[name]

    def stepped(self, rate: float) -> "ExpressionGraph":
        """The same expression after one step of gradient descent: each input less rate x its gradient."""
        moved = {name: value - rate * self.gradients[name] for name, value in self.inputs.items()}
        for name, value in moved.items():
            if not math.isfinite(value):
                slope = brief(self.gradients[name])
                raise DataError(
                    f"one step at rate {rate} with the gradient {slope} takes {name} to {value}",
                    fix="give a smaller rate, such as 0.1, or start where the gradient is finite",
                )
        return expression_graph(self.expression, moved)

    def steps(self) -> tuple[WalkStep, ...]:
        """The walk: every value in topological order, then every gradient in the reverse order."""
        return (*self._forward(), *self._backward())

    def _drawn(self) -> dict[int, int]:
        """The number of the card of each node that has one: numbers that were written have none, unless named."""
        seen = [at for at, node in enumerate(self.nodes) if not _is_bare(node) or at == self.target]
        return {at: card for card, at in enumerate(seen)}

    def _forward(self) -> Iterator[WalkStep]:
        for at, card in self._drawn().items():
            node = self.nodes[at]
            told = [node.name, node.written, node.with_numbers, brief(node.value)]
            yield WalkStep(card, "value", " = ".join(dict.fromkeys(told)))

    def _backward(self) -> Iterator[WalkStep]:
        for at, card in reversed(self._drawn().items()):
            yield WalkStep(card, "slope", self._told_gradient(at))

    def _told_gradient(self, at: int) -> str:
        """The gradient of one node: what each of its readers passes on, and their sum."""
        node, end = self.nodes[at], self.nodes[self.target].name
        whole = f"∂{end}/∂{node.name}"
        if node.operation == "number" and at != self.target:
            return f"{node.name} is a number that was written: nothing comes back to it"
        parts = [(reader, edge) for reader in self.nodes for edge in reader.edges if edge.parent == at]
        if at == self.target or not parts:
            why = "where the way back begins" if at == self.target else f"{end} does not depend on it"
            return f"{whole} = {brief(node.gradient)}   {why}"
        if len(parts) == 1:
            return f"{whole} = {self._passed(*parts[0], node)}"
        lines = [f"  through {reader.name}: {self._passed(reader, edge, node)}" for reader, edge in parts]
        sums = " + ".join([brief(parts[0][1].passed), *(_bracketed(edge.passed) for _, edge in parts[1:])])
        return "\n".join(
            [f"{whole} is the sum over {len(parts)} readers", *lines, f"  {sums} = {brief(node.gradient)}"]
        )

    def _passed(self, reader: ScalarNode, edge: ScalarEdge, node: ScalarNode) -> str:
        """What one reader passes on to a node: the chain rule in letters, the local derivative, then the numbers."""
        end, local = self.nodes[self.target], f"∂{reader.name}/∂{node.name}"
        rule = brief(edge.local) if edge.formula == brief(edge.local) else f"{edge.formula} = {brief(edge.local)}"
        if reader is end:
            return rule
        product = f"{_bracketed(reader.gradient)} × {_bracketed(edge.local)} = {brief(edge.passed)}"
        return f"∂{end.name}/∂{reader.name} × {local}, and {local} = {rule}, so {product}"

    def _blocks(self) -> Sequence[DocumentBlock]:
        """A slider that walks forward and back; where there is none the steps in words, each derivative a formula."""
        drawn = self._diagram()
        skipped = len(self._drawn()) - len(drawn.cards)
        steps = [step._replace(card=step.card - skipped) for step in self.steps() if step.card >= skipped]
        still = [
            Heading("Forward: every value from those before it"),
            _numbered(self._forward()),
            Heading("Back: what comes from above times the local derivative, added up over all readers"),
            _numbered(self._backward()),
        ]
        return [GraphWalk(still, [WalkPart("", "", (), [replace(drawn, title="")], steps)])]

    def _sentences(self) -> tuple[str, ...]:
        """The result, the gradients, and what of it may surprise."""
        end = self.nodes[self.target]
        slopes = ", ".join(f"∂{end.name}/∂{name} = {brief(slope)}" for name, slope in self.gradients.items())
        found = [f"{end.name} = {brief(end.value)}." + (f" {slopes}." if slopes else "")]
        return (*found, *self._strongest(), *self._without_slope(), *self._by_agreement())

    def _strongest(self) -> Iterator[str]:
        """The inputs that the result reacts to most, all of them where several do alike."""
        end = self.nodes[self.target].name
        moving = {name: abs(slope) for name, slope in self.gradients.items() if slope == slope}
        most = max(moving.values(), default=0.0)
        first = [name for name, size in moving.items() if math.isclose(size, most, rel_tol=1e-9)]
        if len(moving) > 1 and most > 0:
            alike = len(first) == len(moving)
            yield f"{end} reacts to {_both(first)} alike." if alike else f"{end} reacts most to {_both(first)}."

    def _without_slope(self) -> Iterator[str]:
        """Where no change comes back, or none that is a number."""
        dead = [name for name, slope in self.gradients.items() if slope == 0]
        lost = [node.name for node in self.nodes if math.isnan(node.gradient)]
        endless = [node.name for node in self.nodes if math.isinf(node.gradient)]
        yield from [f"Dead: no change comes back to {', '.join(dead)}."] if dead else []
        yield from [f"The derivative by {', '.join(lost)} is not defined here."] if lost else []
        yield from [f"The derivative by {', '.join(endless)} is infinite here: no step follows it."] if endless else []

    def _by_agreement(self) -> Iterator[str]:
        """Where there is a corner, and a slope was agreed on."""
        if any(node.operation == "relu" and self.nodes[node.parents[0]].value == 0 for node in self.nodes):
            yield "The slope of relu at 0 is taken to be 0, as in torch; some lectures print 1."
        if any(node.operation == "abs" and self.nodes[node.parents[0]].value == 0 for node in self.nodes):
            yield "The slope of abs at 0 is taken to be 0, as in torch: it has a corner there."
        for node in self.nodes:
            values = [self.nodes[at].value for at in node.parents]
            if node.operation in ("max", "min") and values.count(node.value) > 1:
                yield f"Inputs of {node.operation} that are equal share its slope, as in torch: {node.name} has a tie."

    def figures(self) -> tuple[Figure, ...]:
        """The diagram; of a very large expression the part of it nearest to the result."""
        return (self._diagram(),)

    def _diagram(self) -> Diagram:
        cards = self._drawn()
        skipped = max(0, len(cards) - MOST_CARDS)
        kept = {at: card - skipped for at, card in cards.items() if card >= skipped}
        links = dict[tuple[int, int], list[ScalarEdge]]()
        for at in kept:
            for edge in self.nodes[at].edges:
                if edge.parent in kept:
                    links.setdefault((kept[edge.parent], kept[at]), []).append(edge)
        caption = f"The first {skipped:,} of {len(cards):,} numbers are left out." if skipped else ""
        return Diagram(
            title=self.title,
            cards=tuple(self._card(at) for at in kept),
            links=tuple(_link(source, target, edges) for (source, target), edges in links.items()),
            caption=caption,
        )

    def _card(self, at: int) -> NodeCard:
        node = self.nodes[at]
        name = node.name if node.written in (node.name, brief(node.value)) else f"{node.name} = {node.written}"
        written = node.operation == "number" and at != self.target
        size = abs(node.gradient) if math.isfinite(node.gradient) and not written else None
        slope = "" if written else f"gradient {brief(node.gradient)}"
        return NodeCard(
            name, f"value {brief(node.value)}", slope, size, note=self._told_gradient(at), is_input=not node.parents
        )

    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        """Every number, the result, and what is said about it."""
        return {**super().told_values(whole=whole), "result": self.result, "sentences": self.sentences()}


def expression_graph(text: str, values: Mapping[str, float]) -> ExpressionGraph:
    """The graph of an expression at these values; of several statements, the gradients of the last one.

    >>> expression_graph("d = 2*b; e = a + d; L = c*e", {"a": 3, "b": 1, "c": -2}).gradients
    {'a': -2.0, 'b': -4.0, 'c': 5.0}
    """
    computed = evaluate(text, values)
    given = ", ".join(f"{name} = {brief(value)}" for name, value in values.items())
    title = " ; ".join(part.strip() for part in text.split("\n") if part.strip())
    title = f"{title}  at  {given}" if given else title
    return ExpressionGraph(title=title, expression=text, nodes=computed.nodes, target=computed.target)


def _link(source: int, target: int, edges: list[ScalarEdge]) -> NodeLink:
    passed = sum(edge.passed for edge in edges)
    note = "; ".join(f"local derivative {edge.formula} = {brief(edge.local)}" for edge in edges)
    size = abs(passed) if abs(passed) < float("inf") else None
    return NodeLink(source, target, size, f"{note}; passes back {brief(passed)}")


def _is_bare(node: ScalarNode) -> bool:
    """Whether it is a number that stands in a formula without a name."""
    return node.operation == "number" and node.name == node.written


def _both(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _bracketed(value: float) -> str:
    return f"({brief(value)})" if value < 0 else brief(value)


def _numbered(steps: Iterable[WalkStep]) -> DocumentBlock:
    """The steps with their numbers."""
    told = [step.text.split("\n") for step in steps]
    return TableBlock((), [(str(number), Paragraphs(*lines)) for number, lines in enumerate(told, start=1)])
