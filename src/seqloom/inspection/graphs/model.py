"""The graph of a model or of a function of tensors: collapsed to its parts, each of which can be opened."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from seqloom.figures import Figure
from seqloom.figures.axis import brief
from seqloom.figures.words import wrap
from seqloom.inspection.graphs.diagram import MOST_CARDS, Card, Diagram, Link
from seqloom.inspection.graphs.grids import grid_of, profile
from seqloom.inspection.graphs.parts import Box, Inside, inside, path_of
from seqloom.inspection.graphs.telling import told, told_shape, told_summary
from seqloom.inspection.graphs.trace import Op, Trace
from seqloom.inspection.graphs.walking import Part, Step, walking_page
from seqloom.inspection.view import View

MOST_OPERATIONS = 2_000  # that are told one by one; beyond it parts stay collapsed
MOST_GRIDS = 3
FEWEST_TOLD = 3  # repeats along which a gradient is followed


@dataclass(frozen=True, kw_only=True)
class ModelGraph(View):
    """One computation, forward and back; `part` is what is looked into, '' the whole."""

    kind: ClassVar[str] = "model_graph"
    trace: Trace
    part: str = ""

    def open(self, part: str) -> "ModelGraph":
        """The same graph with another part opened: a module by its path, a step of a loop, '' for the whole."""
        path_of(self.trace, part)
        return replace(self, part=part)

    @property
    def parts(self) -> tuple[str, ...]:
        """What stands directly inside the part that is open, and can be opened itself."""
        return tuple(call for box in self.inside.boxes for call in box.calls)

    @cached_property
    def inside(self) -> Inside:
        """The boxes and lines that are seen."""
        return inside(self.trace, self.part)

    @property
    def result(self) -> float:
        """The number that was differentiated."""
        return self.trace.result

    @property
    def gradients(self) -> dict[str, float | None]:
        """The norm of the gradient of every input and every weight, by name; None where none came back."""
        found = {op.label: op.gradient for op in self.trace.ops if op.label}
        found |= {weight.name: weight.gradient for weight in self.trace.weights}
        return {name: None if gradient is None else gradient.norm for name, gradient in found.items()}

    # --- what is drawn -----------------------------------------------------------------------------------------------

    def figures(self) -> tuple[Figure, ...]:
        """The diagram of the part, and for parts that repeat a grid: what is inside x which one of them."""
        seen = self.inside
        repeats = sorted((box for box in seen.boxes if len(box.items) > 1), key=lambda box: -len(box.items))
        grids = [grid_of(self.trace, box, self._name(box)) for box in repeats[:MOST_GRIDS]]
        return (self._picture(seen), *grids)

    def _picture(self, seen: Inside, known: frozenset[str] | None = None) -> Figure:
        """The diagram; of more boxes than can be followed by eye, their gradients one after the other."""
        title = f"{self.title}: {self.part}" if self.part else self.title
        if len(seen.boxes) > MOST_CARDS:
            return profile(self.trace, [box.result for box in seen.boxes], title)
        links = [Link(one.source, one.target, _size(self.trace.ops[one.op])) for one in seen.joints]
        return Diagram(
            title=title,
            cards=tuple(self._card(box, known) for box in seen.boxes),
            links=tuple(links),
            size_label="norm of the gradient",
        )

    def _name(self, box: Box) -> str:
        """What a box is called, inside the part that is open."""
        op = self.trace.ops[box.result]
        if box.is_port:
            return f"from {op.label or ' '.join([*op.path[-1:], op.name])}"
        if not box.calls:
            return op.label or op.name
        first, last = (_short(call, self.part) for call in (box.calls[0], box.calls[-1]))
        return first if len(box.calls) == 1 else f"{first} to {last}  × {len(box.calls)}"

    def _card(self, box: Box, known: frozenset[str] | None) -> Card:
        op = self.trace.ops[box.result]
        slope = "no gradient" if op.gradient is None else f"gradient {told(op.gradient)}"
        opens = box.calls[0] if box.calls and (known is None or box.calls[0] in known) else ""
        return Card(
            self._name(box),
            f"{told_shape(op.shape)}{told(op.value)}",
            slope,
            _size(op),
            badge=self._badge(box),
            note=self._note(box),
            opens=opens,
            is_input=not op.parents or box.is_port,
        )

    def _badge(self, box: Box) -> str:
        """The weights that a box reads, and the norm of what comes back to them."""
        if box.is_port:
            return ""
        names = {name for at in box.ops for name in self.trace.ops[at].weights}
        found = [weight for weight in self.trace.weights if weight.name in names and weight.gradient is not None]
        if not found:
            return ""
        norm = math.hypot(*(weight.gradient.norm for weight in found if weight.gradient is not None))
        said = found[0].name.rpartition(".")[2] if len(found) == 1 else f"{len(found)} weights"
        return f"{said}: gradient {brief(norm)}"

    def _note(self, box: Box) -> str:
        op = self.trace.ops[box.result]
        kind = self.trace.kinds.get(box.calls[0], "") if box.calls else op.name
        many = f"{len(box.ops):,} operations" if box.calls else op.place
        back = "no gradient" if op.gradient is None else told_summary(op.gradient)
        lines = [kind, many, f"value {told_summary(op.value)}", f"gradient {back}"]
        return "; ".join(line for line in lines if line)

    # --- what is said ------------------------------------------------------------------------------------------------

    def _sentences(self) -> tuple[str, ...]:
        """How large it is, and where to look: the largest gradient, the first NaN, what is dead."""
        ops = self._ops
        calls = len({op.path for op in ops if len(op.path) > len(self._path)})
        within = f" in {calls:,} parts" if calls > 1 else ""
        found = [f"{len(ops):,} operations{within}; the number is {brief(self.result)}."]
        moving = [op for op in ops if _size(op)]
        if moving:
            largest = max(moving, key=lambda op: _size(op) or 0.0)
            found.append(f"Largest gradient: norm {brief(_size(largest) or 0.0)} at {_where(largest)}.")
        else:
            found.append("No gradient comes back into this part.")
        found += [*self._fading(), *_first_nan(ops), *self._dead(ops)]
        return tuple(found)

    @cached_property
    def _path(self) -> tuple[str, ...]:
        return path_of(self.trace, self.part)

    @property
    def _ops(self) -> list[Op]:
        """The operations of the part that is open."""
        return [op for op in self.trace.ops if op.path[: len(self._path)] == self._path]

    def _fading(self) -> Iterator[str]:
        """How the gradient changes along parts that repeat, from the last back to the first."""
        for box in (box for box in self.inside.boxes if len(box.items) >= FEWEST_TOLD):
            if box.result not in box.items[-1].ops:
                continue
            within = box.items[-1].ops.index(box.result)
            first, last = (_size(self.trace.ops[box.items[at].ops[within]]) for at in (0, -1))
            if last:
                share = (first or 0.0) / last
                told = f"{brief(share)} of what it was" if share < 1 else f"{brief(share)} times what it was"
                yield f"Back from {box.calls[-1]} to {box.calls[0]} the gradient becomes {told}."

    def _dead(self, ops: list[Op]) -> Iterator[str]:
        """What no signal passes: results that are zero throughout, and weights to which nothing comes back."""
        silent = [_where(op) for op in ops if op.is_dead]
        names = {name for op in ops for name in op.weights}
        weights = [one for one in self.trace.weights if one.name in names or not self.part]
        still = [one.name for one in weights if one.gradient is None or one.gradient.is_zero]
        yield from [f"Dead: zero throughout at {_few(silent)}."] if silent else []
        yield from [f"No gradient comes back to the weights {_few(still)}."] if still else []

    def text(self, width: int = 80, *, colour: bool = False) -> str:
        """The figures and the sentences as lines."""
        drawn = [figure.text(width, colour) for figure in self.figures()]
        said = [line for sentence in self.sentences() for line in wrap(sentence, width)]
        return "\n\n".join([*drawn, "\n".join(said)])

    def steps(self) -> tuple[Step, ...]:
        """The walk through the part that is open: values in order, then gradients in the reverse order."""
        boxes = list(enumerate(self.inside.boxes))
        forward = [Step(at, "value", f"{self._name(box)}: {self._value_told(box)}") for at, box in boxes]
        backward = [Step(at, "slope", f"{self._name(box)}: {self._slope_told(box)}") for at, box in reversed(boxes)]
        return (*forward, *backward)

    def _value_told(self, box: Box) -> str:
        op = self.trace.ops[box.result]
        return f"{told_shape(op.shape)}{told_summary(op.value)}"

    def _slope_told(self, box: Box) -> str:
        """The gradient of a box; between single numbers also how each reader makes it."""
        op = self.trace.ops[box.result]
        if op.gradient is None:
            return "no gradient comes back here"
        chains = list(self._chains(box.result))
        return f"gradient {told_summary(op.gradient)}" + "".join(f"\n{chain}" for chain in chains)

    def _chains(self, at: int) -> Iterator[str]:
        for reader in (op for op in self.trace.ops if op.locals):
            for parent, local in zip(reader.parents, reader.locals, strict=False):
                above = reader.gradient and reader.gradient.whole
                if parent == at and local is not None and above:
                    product = f"{brief(above[0])} × {brief(local)} = {brief(above[0] * local)}"
                    yield f"through {reader.name}: from above × local derivative = {product}"

    # --- files -------------------------------------------------------------------------------------------------------

    def html(self) -> str:
        """A page with a slider for every part; a box opens its part."""
        shown = self._pages()
        known = frozenset(shown)
        return walking_page(self.title, [self.open(part)._section(known) for part in shown])

    def _pages(self) -> list[str]:
        """The parts that a page has room for: the one that is open first, then those inside it, level by level."""
        found, room, at = [self.part], MOST_OPERATIONS, 0
        while at < len(found) and room > 0:
            boxes = inside(self.trace, found[at]).boxes
            room -= min(len(boxes), MOST_CARDS)
            found += [call for box in boxes for call in dict.fromkeys((*box.calls[:1], *box.calls[-1:]))]
            at += 1
        return found[:at]

    def _section(self, known: frozenset[str]) -> Part:
        figures = self.figures()
        drawn = self._picture(self.inside, known)
        ways = [("the whole", ""), *((_short(call, ""), call) for call in self._path[:-1])]
        last = [box.calls[-1] for box in self.inside.boxes if len(box.calls) > 1]
        way = [*(ways if self.part else []), *((f"last: {_short(call, self.part)}", call) for call in last)]
        steps = self.steps() if isinstance(drawn, Diagram) else ()
        shown = [replace(drawn, title=""), *figures[1:]]
        return Part(self.part, self.part, self.sentences(), shown, steps, [one for one in way if one[1] in known])

    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        """The boxes that are seen, the weights, and up to 2,000 operations one by one, or all of them."""
        seen = self.inside
        ops = self._ops
        return {
            "kind": self.kind,
            "title": self.title,
            "part": self.part,
            "result": self.result,
            "boxes": [self._box_content(box) for box in seen.boxes],
            "links": seen.joints,
            "operations": ops if whole or len(ops) <= MOST_OPERATIONS else None,
            "num_operations": len(ops),
            "weights": self.trace.weights,
            "sentences": self.sentences(),
        }

    def _box_content(self, box: Box) -> dict[str, Any]:
        op = self.trace.ops[box.result]
        told_of = {"value": op.value, "gradient": op.gradient, "shape": list(op.shape)}
        return {"name": self._name(box), "parts": list(box.calls), "num_operations": len(box.ops), **told_of}


def _size(op: Op) -> float | None:
    return None if op.gradient is None or not math.isfinite(op.gradient.norm) else op.gradient.norm


def _short(label: str, part: str) -> str:
    return label.removeprefix(f"{part}.") if part else label


def _where(op: Op) -> str:
    return f"{op.path[-1]} {op.label or op.name}" if op.path else op.label or op.name


def _few(names: list[str], most: int = 4) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - most:,} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


def _first_nan(ops: list[Op]) -> Iterator[str]:
    """Where the first number that is none appears, on the way forward and on the way back."""
    forward = next((op for op in ops if op.value.nans), None)
    back = next((op for op in reversed(ops) if op.gradient is not None and op.gradient.nans), None)
    if forward is not None:
        yield f"First NaN: {forward.value.nans:,} of {forward.value.total:,} numbers at {_where(forward)}."
    if back is not None:
        yield f"First NaN on the way back: at {_where(back)}."
    if forward is None and back is None:
        yield "No NaN, forward or back."
