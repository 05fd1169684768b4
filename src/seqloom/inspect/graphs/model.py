"""The graph of a model or a function of tensors, collapsed into parts that can be opened.

A figure shows the parts directly inside one part and their connections. Deeper parts are collapsed; values from outside
are ports; consecutive parts that do the same are one box with their number: 12 layers, 200 steps. So no figure has more
boxes than one module has children. A recurrence written as a loop is one long list of repeated operations: its steps
become parts like modules.

Repeated parts are also shown as a grid with their content as rows and the repeats as columns: operations x steps shows
time. The color is log10 of the gradient's size, so that a vanishing or exploding gradient is visible.
"""

import inspect
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.attribution.goals import chosen_goal
from seqloom.inspect.graphs.diagram import MOST_CARDS, Diagram, GraphWalk, NodeCard, NodeLink, WalkPart, WalkStep
from seqloom.inspect.graphs.expression import ExpressionGraph, expression_graph
from seqloom.inspect.graphs.recording import (
    INPUT,
    GivenTensor,
    Op,
    Trace,
    recorded,
    replaced,
    shape_text,
    summary_text,
    tensors_in,
    told,
)
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.report.document import Document, Paragraph
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.numbers import counted
from seqloom.report.numbers import number as brief

LONGEST_BODY = 96  # operations or parts of one step
FEWEST_STEPS = 3  # fewer may be a coincidence
NUMBERS = re.compile(r"#?\d+")  # of a layer or a call


class Item(NamedTuple):
    """A direct child of a part: a call, or a single operation."""

    call: str  # its label; empty for an operation
    ops: tuple[int, ...]


class RepeatRun(NamedTuple):
    """Items that repeat, from `start` on: `times` repetitions of a body of `length` items."""

    start: int
    length: int
    times: int


def items_of(ops: Sequence[Op], indices: Sequence[int], depth: int) -> list[Item]:
    """Return the direct children of a part at this depth that has these operations, in order."""
    found = list[tuple[str, list[int]]]()
    for at in indices:
        call = ops[at].path[depth] if len(ops[at].path) > depth else ""
        if call and found and found[-1][0] == call:
            found[-1][1].append(at)
        else:
            found.append((call, [at]))
    return [Item(call, tuple(members)) for call, members in found]


def likeness(ops: Sequence[Op], item: Item, depth: int) -> Hashable:
    """Return a key that is equal for items that do the same: names, shapes and, for single operations, weights."""
    if not item.call:
        op = ops[item.ops[0]]
        return op.name, op.shape, op.weights, op.label
    inside = tuple(
        (ops[at].name, ops[at].shape, NUMBERS.sub("", "/".join(ops[at].path[depth + 1 :]))) for at in item.ops
    )
    return NUMBERS.sub("", item.call), inside


def with_steps(trace: Trace) -> Trace:
    """Return the trace with the steps of loops as calls."""
    ops = list(trace.ops)
    _label(ops, range(len(ops)), 0)
    return trace._replace(ops=tuple(ops))


def _label(ops: list[Op], indices: Sequence[int], depth: int) -> None:
    items = items_of(ops, indices, depth)
    before = [len(ops[item.ops[0]].path) for item in items]
    for number, run in enumerate(runs([likeness(ops, item, depth) for item in items]), start=1):
        for step in range(run.times):
            first = run.start + step * run.length
            name = f"step {step}" if number == 1 else f"loop {number} step {step}"
            for item in items[first : first + run.length]:
                for at in item.ops:
                    path = ops[at].path
                    label = f"{path[depth - 1]}.{name}" if depth else name
                    ops[at] = ops[at]._replace(path=(*path[:depth], label, *path[depth:]))
    for item, was in zip(items, before, strict=True):
        if item.call:
            _label(ops, item.ops, depth + 1 + len(ops[item.ops[0]].path) - was)


def runs(keys: Sequence[Hashable]) -> Iterator[RepeatRun]:
    """Yield runs of bodies of at least two items, from left to right; the longest if several begin at one item.

    >>> list(runs("xababababy"))
    [RepeatRun(start=1, length=2, times=4)]
    """
    numbers = dict[Hashable, int]()
    known = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    same = {length: _alike(known, length) for length in range(2, min(LONGEST_BODY, len(known) // FEWEST_STEPS) + 1)}
    at = 0
    while at < len(known):
        best = RepeatRun(at, 1, 1)
        for length, alike in same.items():
            count = 1 + int(alike[at]) // length
            if count >= FEWEST_STEPS and length * count > best.length * best.times:
                best = RepeatRun(at, length, count)
        if best.times > 1 and len(set(known[at : at + best.length].tolist())) > 1:
            yield best
            at += best.length * best.times
        else:
            at += 1


def _alike(keys: np.ndarray, length: int) -> np.ndarray:
    """Return for each position how many items from there equal those `length` later."""
    equal = np.zeros(len(keys) + 1, dtype=np.int64)
    equal[: len(keys) - length] = keys[:-length] == keys[length:]
    broken = np.flatnonzero(equal == 0)
    return broken[np.searchsorted(broken, np.arange(len(keys)))] - np.arange(len(keys))


class Box(NamedTuple):
    """A box: an operation, a part, several equal parts in a row, or a port."""

    items: tuple[Item, ...]  # several if they do the same
    result: int  # the operation whose value and gradient are shown: the last one that is read elsewhere
    is_port: bool = False

    @property
    def calls(self) -> tuple[str, ...]:
        """The labels of its parts; empty for an operation."""
        return tuple(item.call for item in self.items if item.call)

    @property
    def ops(self) -> tuple[int, ...]:
        """All operations inside."""
        return tuple(at for item in self.items for at in item.ops)


class Joint(NamedTuple):
    """A line between two boxes, and the operation whose result goes along it."""

    source: int
    target: int
    op: int


class InsidePart(NamedTuple):
    """The boxes inside a part, in order, and the lines between them."""

    boxes: tuple[Box, ...]
    joints: tuple[Joint, ...]


def path_of(trace: Trace, part: str) -> tuple[str, ...]:
    """Return the calls that lead to a part, including itself; raise ConfigError if there is no such part."""
    if not part:
        return ()
    known = dict[str, tuple[str, ...]]()
    for op in trace.ops:
        for depth, label in enumerate(op.path, start=1):
            if label == part:
                return op.path[:depth]
            known.setdefault(label, op.path[:depth])
    fix = did_you_mean(part, known) if known else "the graph has no parts"
    few = fix if len(fix) <= 400 else f"{fix[:400].rpartition(',')[0]}, ..."
    raise ConfigError(f"the graph has no part '{part}'", fix=few)


def inside(trace: Trace, part: str) -> InsidePart:
    """Return the direct content of a part; '' is the complete computation.

    Whole numbers from outside that only masks and indices read, such as lengths, have no line and no box.
    """
    path = path_of(trace, part)
    depth = len(path)
    # The last reader of each operation; the target is read after everything
    read = {parent: at for at, op in enumerate(trace.ops) for parent in op.parents} | {trace.target: len(trace.ops)}
    boxed = (at for at, op in enumerate(trace.ops) if at in read or op.name != INPUT or not op.value.counts)
    members = [at for at in boxed if trace.ops[at].path[:depth] == path]
    # Operations outside of the part whose results are read inside
    own = set(members)
    ports = sorted({parent for at in members for parent in trace.ops[at].parents if parent not in own}) if path else []
    boxes = [Box((Item("", (at,)),), at, is_port=True) for at in ports]
    # Consecutive calls that do the same share a box; operations never do
    items = items_of(trace.ops, members, depth)
    for _, row in groupby(items, lambda item: likeness(trace.ops, item, depth) if item.call else item):
        box = Box(tuple(row), 0)
        outside = [at for at in box.ops if read.get(at, -1) > box.ops[-1]]
        boxes.append(box._replace(result=(outside or box.ops)[-1]))
    return InsidePart(tuple(boxes), tuple(_joints(trace.ops, boxes)))


def _joints(ops: Sequence[Op], boxes: Sequence[Box]) -> Iterable[Joint]:
    home = {at: number for number, box in enumerate(boxes) for at in box.ops}
    found = dict[tuple[int, int], Joint]()
    for number, box in enumerate(boxes):
        for at in () if box.is_port else box.ops:
            for parent in ops[at].parents:
                if home.get(parent, number) != number:
                    found[home[parent], number] = Joint(home[parent], number, parent)
    return found.values()


MOST_ROWS = 48
MOST_NUMBERED = 12  # repeats whose cells show their numbers
COLOR = "log10 of the gradient's norm, 0 for the largest"


def grid_of(trace: Trace, box: Box, name: str) -> Figure:
    """The grid of several equal parts in a row."""
    depth = trace.ops[box.items[0].ops[0]].path.index(box.calls[0]) + 1
    inner = [items_of(trace.ops, item.ops, depth) for item in box.items]
    names = [part.call or trace.ops[part.ops[-1]].name for part in inner[0]][:MOST_ROWS]
    labels = [one.rpartition(".")[2] if one in trace.kinds else one for one in names]
    sizes = [[_tens(trace.ops[parts[row].ops[-1]]) for parts in inner] for row in range(len(labels))]
    # Relative to the largest: one scale for all gradients
    largest = max((size for row in sizes for size in row if size is not None), default=0.0)
    cells = [[None if size is None else size - largest for size in row] for row in sizes]
    left_out = len(inner[0]) - len(labels)
    gap = any(cell is None for row in cells for cell in row)
    notes = [f"{left_out} more rows are not shown."] if left_out else []
    caption = " ".join([*notes, *(["Hatched: no gradient."] if gap else [])])
    across = "call number"
    if len(inner) <= MOST_NUMBERED:
        heads = [str(number) for number in range(len(inner))]
        title = f"{name}: {COLOR}"
        return Matrix(title=title, rows=labels, columns=heads, values=cells, x_label=across, caption=caption)
    rows = "; ".join(f"{number}: {label}" for number, label in enumerate(labels))
    full = f"Rows: {rows}. {caption}".strip()
    return HeatMap(title=name, values=cells, x_label=across, y_label="row", value_label=COLOR, caption=full)


def _tens(op: Op) -> float | None:
    norm = 0.0 if op.gradient is None else op.gradient.norm
    return math.log10(norm) if norm > 0 and math.isfinite(norm) else None


MOST_OPERATIONS = 2_000  # that are listed one by one; beyond it parts stay collapsed
MOST_GRIDS = 3
MOST_NAMED = 4  # in one sentence
FEWEST_TOLD = 3  # repeats along which a gradient is followed


@dataclass(frozen=True, kw_only=True)
class ModelGraph(View):
    """One computation with its values and gradients; `part` is the open part, '' for all."""

    kind: ClassVar[str] = "model_graph"
    trace: Trace
    part: str = ""

    def open(self, part: str) -> "ModelGraph":
        """Return the same graph with another part open: the path of a module, a step of a loop, or '' for all."""
        path_of(self.trace, part)
        return replace(self, part=part)

    @property
    def parts(self) -> tuple[str, ...]:
        """The direct children of the open part that can be opened."""
        return tuple(call for box in self.inside.boxes for call in box.calls)

    @cached_property
    def inside(self) -> InsidePart:
        """The visible boxes and lines."""
        return inside(self.trace, self.part)

    @property
    def result(self) -> float:
        """The number whose gradients were computed."""
        return self.trace.result

    @property
    def gradients(self) -> dict[str, float | None]:
        """The norm of the gradient of every input and weight, by name; None without a gradient."""
        found = {op.label: op.gradient for op in self.trace.ops if op.label}
        found |= {weight.name: weight.gradient for weight in self.trace.weights}
        return {name: None if gradient is None else gradient.norm for name, gradient in found.items()}

    def figures(self) -> tuple[Figure, ...]:
        """The diagram of the part, and a grid for repeated parts: content x repeats."""
        seen = self.inside
        repeats = sorted((box for box in seen.boxes if len(box.items) > 1), key=lambda box: -len(box.items))
        grids = [grid_of(self.trace, box, self._name(box)) for box in repeats[:MOST_GRIDS]]
        return (self._picture(seen), *grids)

    def _picture(self, seen: InsidePart, known: frozenset[str] | None = None) -> Figure:
        """The diagram; with too many boxes, a chart of their gradients instead."""
        title = f"{self.title}: {self.part}" if self.part else self.title
        if len(seen.boxes) > MOST_CARDS:
            sizes = [(float(at), _tens(self.trace.ops[box.result])) for at, box in enumerate(seen.boxes)]
            drawn = [(at, size) for at, size in sizes if size is not None] or [(0.0, 0.0)]
            series = Series(name="gradient", x=[at for at, _ in drawn], y=[size for _, size in drawn])
            caption = f"{len(seen.boxes):,} operations are too many for a diagram: open a part."
            label = "log10 of the gradient's norm"
            return Line(title=title, series=[series], x_label="operation", y_label=label, caption=caption)
        links = [self._link(seen, one) for one in seen.joints]
        return Diagram(
            title=title,
            cards=tuple(self._card(box, known) for box in seen.boxes),
            links=tuple(links),
            size_label="norm of the gradient",
        )

    def _link(self, seen: InsidePart, joint: Joint) -> NodeLink:
        """Return a line with the local derivative between two numbers, or with the shapes of the tensors."""
        read, reader = self.trace.ops[joint.op], self.trace.ops[seen.boxes[joint.target].result]
        if seen.boxes[joint.target].calls or not reader.locals:
            shapes = [shape_text(op.shape).strip() or "a number" for op in (reader, read)]
            return NodeLink(joint.source, joint.target, _size(read), f"local derivative of {shapes[0]} by {shapes[1]}")
        pairs = zip(reader.parents, reader.locals, strict=False)
        found = [local for parent, local in pairs if parent == joint.op and local is not None]
        local = brief(sum(found)) if found else ""
        return NodeLink(joint.source, joint.target, _size(read), f"local derivative {local}" if local else "", local)

    def _name(self, box: Box) -> str:
        """Return the name of a box inside the open part."""
        op = self.trace.ops[box.result]
        if box.is_port:
            return f"from {op.label or ' '.join([*op.path[-1:], op.name])}"
        if not box.calls:
            return op.label or op.name
        first, last = (call.removeprefix(f"{self.part}.") for call in (box.calls[0], box.calls[-1]))
        return first if len(box.calls) == 1 else f"{first} to {last}  × {len(box.calls)}"

    def _card(self, box: Box, known: frozenset[str] | None) -> NodeCard:
        op = self.trace.ops[box.result]
        slope = "no gradient" if op.gradient is None else f"gradient {told(op.gradient)}"
        opens = box.calls[0] if box.calls and (known is None or box.calls[0] in known) else ""
        return NodeCard(
            self._name(box),
            f"{shape_text(op.shape)}{told(op.value)}",
            slope,
            _size(op),
            badge=self._badge(box),
            note=self._note(box),
            opens=opens,
            is_input=not op.parents or box.is_port,
        )

    def _badge(self, box: Box) -> str:
        """The weights that a box reads, and the norms of their gradients."""
        if box.is_port:
            return ""
        names = {name for at in box.ops for name in self.trace.ops[at].weights}
        found = [weight for weight in self.trace.weights if weight.name in names and weight.gradient is not None]
        if not found:
            return ""
        norm = math.hypot(*(weight.gradient.norm for weight in found if weight.gradient is not None))
        label = found[0].name.rpartition(".")[2] if len(found) == 1 else f"{len(found)} weights"
        return f"{label}: gradient {brief(norm)}"

    def _note(self, box: Box) -> str:
        op = self.trace.ops[box.result]
        kind = self.trace.kinds.get(box.calls[0], "") if box.calls else op.name
        many = f"{len(box.ops):,} operations" if box.calls else op.place
        back = "no gradient" if op.gradient is None else summary_text(op.gradient)
        lines = [kind, many, f"value {summary_text(op.value)}", f"gradient {back}"]
        return "; ".join(line for line in lines if line)

    def _sentences(self) -> tuple[str, ...]:
        """The size of the graph, the largest gradient, the first NaN, and dead operations."""
        ops = self._ops
        calls = len({op.path for op in ops if len(op.path) > len(self._path)})
        within = f" in {calls:,} parts" if calls > 1 else ""
        found = [f"{counted(len(ops), 'operation')}{within}; output {brief(self.result)}."]
        largest = max(ops, key=lambda op: _size(op) or 0.0)
        if norm := _size(largest):
            found.append(f"Largest gradient: norm {brief(norm)} at {_where(largest)}.")
        else:
            found.append("This part gets no gradient.")
        return (*found, *self._fading(), *_first_nan(ops), *self._dead(ops))

    @cached_property
    def _path(self) -> tuple[str, ...]:
        return path_of(self.trace, self.part)

    @property
    def _ops(self) -> list[Op]:
        """The operations of the open part."""
        return [op for op in self.trace.ops if op.path[: len(self._path)] == self._path]

    def _fading(self) -> Iterator[str]:
        """How the gradient changes along repeated parts, from the last to the first."""
        for box in (box for box in self.inside.boxes if len(box.items) >= FEWEST_TOLD):
            if box.result not in box.items[-1].ops:
                continue
            within = box.items[-1].ops.index(box.result)
            first, last = (_size(self.trace.ops[box.items[at].ops[within]]) for at in (0, -1))
            if last:
                share = (first or 0.0) / last
                change = f"{brief(share)} of its size" if share < 1 else f"{brief(share)} times its size"
                yield f"From {box.calls[-1]} back to {box.calls[0]}, the gradient norm becomes {change}."

    def _dead(self, ops: list[Op]) -> Iterator[str]:
        """Operations whose results are all zero, and weights without a gradient."""
        silent = [_where(op) for op in ops if op.is_dead]
        names = {name for op in ops for name in op.weights}
        weights = [one for one in self.trace.weights if one.name in names or not self.part]
        still = [one.name for one in weights if one.gradient is None or one.gradient.is_zero]
        yield from [f"Dead: all values are zero at {_few(silent)}."] if silent else []
        yield from [f"These weights get no gradient: {_few(still)}."] if still else []

    def steps(self) -> tuple[WalkStep, ...]:
        """The walk through the open part: values in order, then gradients in reverse order."""
        boxes = list(enumerate(self.inside.boxes))
        forward = []
        for at, box in boxes:
            op = self.trace.ops[box.result]
            told_value = f"{shape_text(op.shape)}{summary_text(op.value)}"
            forward.append(WalkStep(at, "value", f"{self._name(box)}: {told_value}"))
        backward = [WalkStep(at, "slope", f"{self._name(box)}: {self._slope_told(box)}") for at, box in reversed(boxes)]
        return (*forward, *backward)

    def _slope_told(self, box: Box) -> str:
        """Describe the gradient of a box; between single numbers also the part from each reader."""
        op = self.trace.ops[box.result]
        if op.gradient is None:
            return "no gradient"
        return "\n".join((f"gradient {summary_text(op.gradient)}", *self._chains(box.result)))

    def _chains(self, at: int) -> Iterator[str]:
        for reader in (op for op in self.trace.ops if op.locals):
            for parent, local in zip(reader.parents, reader.locals, strict=False):
                above = reader.gradient and reader.gradient.whole
                if parent == at and local is not None and above:
                    product = f"{brief(above[0])} × {brief(local)} = {brief(above[0] * local)}"
                    yield f"through {reader.name}: upstream gradient × local derivative = {product}"

    def document(self) -> Document:
        """A page with a slider for each part; a box opens its part."""
        shown = self._pages()
        known = frozenset(shown)
        still = [*map(Paragraph, self.sentences()), *self._blocks()]
        return Document(self.title, [GraphWalk(still, [self.open(part)._section(known) for part in shown])])

    def _pages(self) -> list[str]:
        """The parts that fit on a page: the open one first, then those inside it, level by level."""
        found, room, at = [self.part], MOST_OPERATIONS, 0
        while at < len(found) and room > 0:
            boxes = inside(self.trace, found[at]).boxes
            room -= min(len(boxes), MOST_CARDS)
            found += [call for box in boxes for call in dict.fromkeys((*box.calls[:1], *box.calls[-1:]))]
            at += 1
        return found[:at]

    def _section(self, known: frozenset[str]) -> WalkPart:
        figures = self.figures()
        drawn = self._picture(self.inside, known)
        way = [("the whole graph", ""), *((call, call) for call in self._path[:-1])] if self.part else []
        last = [box.calls[-1] for box in self.inside.boxes if len(box.calls) > 1]
        way += [(f"last: {call.removeprefix(f'{self.part}.')}", call) for call in last]
        steps = self.steps() if isinstance(drawn, Diagram) else ()
        shown = [replace(drawn, title=""), *figures[1:]]
        return WalkPart(self.part, self.sentences(), shown, steps, [one for one in way if one[1] in known])

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        """The visible boxes, the weights, and up to 2,000 operations, or all with `full`."""
        seen = self.inside
        ops = self._ops
        return {
            "kind": self.kind,
            "title": self.title,
            "part": self.part,
            "result": self.result,
            "boxes": [self._box_content(box) for box in seen.boxes],
            "links": seen.joints,
            "operations": ops if full or len(ops) <= MOST_OPERATIONS else None,
            "num_operations": len(ops),
            "weights": self.trace.weights,
            "sentences": self.sentences(),
        }

    def _box_content(self, box: Box) -> dict[str, Any]:
        op = self.trace.ops[box.result]
        told_of = {"value": op.value, "gradient": op.gradient, "shape": op.shape}
        return {"name": self._name(box), "parts": box.calls, "num_operations": len(box.ops), **told_of}


def _size(op: Op) -> float | None:
    return None if op.gradient is None or not math.isfinite(op.gradient.norm) else op.gradient.norm


def _where(op: Op) -> str:
    return f"{op.path[-1]} {op.label or op.name}" if op.path else op.label or op.name


def _few(names: list[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - MOST_NAMED:,} more" if len(distinct) > MOST_NAMED else ""
    return ", ".join(distinct[:MOST_NAMED]) + more


def _first_nan(ops: list[Op]) -> Iterator[str]:
    """The first operations with NaN in the forward and backward pass."""
    forward = next((op for op in ops if op.value.nans), None)
    back = next((op for op in reversed(ops) if op.gradient is not None and op.gradient.nans), None)
    if forward is not None:
        yield f"First NaN: {forward.value.nans:,} of {forward.value.total:,} numbers at {_where(forward)}."
    if back is not None:
        yield f"First NaN in the backward pass: at {_where(back)}."
    if forward is None and back is None:
        yield "No NaN in the forward or backward pass."


ANSWER = "answer"  # the part of a graph after the model


@overload
def graph(of: str, inputs: Mapping[str, float]) -> ExpressionGraph: ...


@overload
def graph(of: Callable[..., Any], inputs: Any, *, number: Callable[[Any], Tensor] | None = None) -> ModelGraph: ...


def graph(of: Any, inputs: Any, *, number: Callable[[Any], Tensor] | None = None) -> ExpressionGraph | ModelGraph:
    """The graph of an expression, a function or a model at these inputs: values forward, gradients backward.

    `inputs` are the arguments: a mapping by name, a tuple or list by position, anything else as the only argument;
    numbers become float64 tensors. `number` computes the scalar to differentiate from the result; by default it is the
    result if that is a single number, else its largest number. A model runs in evaluation mode and is not changed.
    `model.loss` and other methods of a model work like functions, with parts named as in the model.
    """
    if isinstance(of, str):
        return expression_graph(of, inputs)
    if not callable(of):
        raise DataError(f"cannot make a graph of {type(of).__name__}", fix="give an expression, a function or a model")
    owner = of if isinstance(of, nn.Module) else getattr(of, "__self__", None)
    root = owner if isinstance(owner, nn.Module) else None
    given, arguments, named = _arguments(of, inputs)
    title = f"Graph of {type(root).__name__ if root is not None else getattr(of, '__name__', 'a function')}"
    with resting(root):
        trace = recorded(lambda: _one_number(of(*arguments, **named), number), given, root)
    return ModelGraph(title=title, trace=with_steps(trace))


def answer_graph(
    subject: Subject, reading: Reading, *, answer: str | int | None = None, at: int | str | None = None
) -> ModelGraph:
    """The graph of the score of `answer` (by default the prediction) in row `at` (by default the last)."""
    goal = chosen_goal(subject, reading, answer=answer, at=len(reading.rows) - 1 if at is None else at)
    inputs = _ready(reading.inputs)
    with resting(subject.model):
        trace = recorded(lambda: goal.of(scores(subject, inputs))[0], list(_named("", inputs)), subject.model)
    # The operations after the model, which select one number of its scores, are a separate part
    last = max((at for at, op in enumerate(trace.ops) if op.path), default=len(trace.ops))
    ops = tuple(op._replace(path=(ANSWER,)) if at > last else op for at, op in enumerate(trace.ops))
    return ModelGraph(title=f"Graph of {goal.name}", trace=with_steps(trace._replace(ops=ops)))


@contextmanager
def resting(root: nn.Module | None) -> Iterator[None]:
    """Inside the `with`, a model is in evaluation mode; afterwards every module has its previous mode."""
    modes = {} if root is None else {module: module.training for module in root.modules()}
    for module in modes:
        # cuDNN's recurrences have a backward pass only in training mode, which is equivalent without dropout
        module.training = isinstance(module, nn.RNNBase) and module.dropout == 0
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _arguments(of: Any, inputs: Any) -> tuple[list[GivenTensor], tuple[Any, ...], dict[str, Any]]:
    """Return the input tensors by name, and the arguments to call with, which contain them ready for gradients."""
    if isinstance(inputs, Mapping):
        values, names = list(inputs.values()), [str(name) for name in inputs]
    else:
        several = isinstance(inputs, tuple | list) and not hasattr(inputs, "_fields")
        values, names = list(inputs) if several else [inputs], _parameters(of)
    names += [f"input {at}" for at in range(len(names), len(values))]
    ready = [_ready(value) for value in values]
    given = [one for name, value in zip(names, ready, strict=False) for one in _named(name, value)]
    if isinstance(inputs, Mapping):
        return given, (), dict(zip(names, ready, strict=True))
    return given, tuple(ready), {}


def _parameters(of: Any) -> list[str]:
    function = of.forward if isinstance(of, nn.Module) else of
    try:
        return [one.name for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    except (TypeError, ValueError):
        return []


def _ready(value: Any) -> Any:
    """Return the value with its float tensors as new leaves that get gradients."""
    if isinstance(value, bool | int | float):
        return torch.tensor(float(value), dtype=torch.float64, requires_grad=True)
    fresh = {one: one.detach().requires_grad_() for one in tensors_in(value) if one.is_floating_point()}
    return replaced(value, fresh)


def _named(name: str, value: Any) -> Iterator[GivenTensor]:
    """Yield the tensors inside an argument, named by their fields."""
    if isinstance(value, Tensor):
        yield GivenTensor(name or "input", value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named(f"{name}[{key}]", inner)
    elif isinstance(value, tuple | list):
        fields = getattr(value, "_fields", None)
        for at, inner in enumerate(value):
            yield from _named(f"{name}.{fields[at]}".lstrip(".") if fields else f"{name}[{at}]", inner)


def _one_number(result: Any, number: Callable[[Any], Tensor] | None) -> Tensor:
    if number is not None:
        found = number(result)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise DataError("`number` did not return a single number", fix="end it with .sum() or .mean()")
        return found
    floats = [one for one in tensors_in(result) if one.is_floating_point()]
    if not floats:
        raise DataError(
            f"the result is a {type(result).__name__} without a float tensor",
            fix="choose one number: number=lambda result: ...",
        )
    return floats[0] if floats[0].numel() == 1 else floats[0].max()
