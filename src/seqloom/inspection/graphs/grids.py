"""Parts that repeat, as a grid: what stands inside one of them down, which one of them across.

Of a recurrence that is the picture of time: operations x steps; of a stack of layers it is parts x layers. The colour
is the size of the gradient by tens, so that one that fades or grows along the way is seen at once.
"""

import math
from collections.abc import Sequence

from seqloom.figures import Figure, HeatMap, Line, Matrix, Series
from seqloom.inspection.graphs.parts import Box
from seqloom.inspection.graphs.repeats import items_of
from seqloom.inspection.graphs.trace import Op, Trace

MOST_ROWS = 48
MOST_NUMBERED = 12  # repeats whose cells have their number written in
COLOUR = "log10 of the gradient's norm, 0 for the largest"


def grid_of(trace: Trace, box: Box, name: str) -> Figure:
    """The grid of a row of parts that do the same."""
    depth = trace.ops[box.items[0].ops[0]].path.index(box.calls[0]) + 1
    inner = [items_of(trace.ops, item.ops, depth) for item in box.items]
    labels = [_label(trace, part.call or trace.ops[part.ops[-1]].name) for part in inner[0]][:MOST_ROWS]
    cells = _below_largest([[_tens(trace.ops[parts[row].ops[-1]]) for parts in inner] for row in range(len(labels))])
    left_out = len(inner[0]) - len(labels)
    gap = any(cell is None for row in cells for cell in row)
    said = [f"{left_out} more rows are left out."] if left_out else []
    caption = " ".join([*said, *(["Hatched: no gradient at all."] if gap else [])])
    across = "which one of them"
    if len(inner) <= MOST_NUMBERED:
        heads = [str(number) for number in range(len(inner))]
        title = f"{name}: {COLOUR}"
        return Matrix(title=title, rows=labels, columns=heads, values=cells, x_label=across, caption=caption)
    rows = "; ".join(f"{number} {label}" for number, label in enumerate(labels))
    told = f"Rows: {rows}. {caption}".strip()
    return HeatMap(title=name, values=cells, x_label=across, y_label="row", value_label=COLOUR, caption=told)


def profile(trace: Trace, ops: Sequence[int], title: str) -> Figure:
    """The gradients of more boxes than a diagram holds, one after the other."""
    known = [(at, size) for at, op in enumerate(ops) if (size := _tens(trace.ops[op])) is not None]
    x, y = [float(at) for at, _ in known] or [0.0], [size for _, size in known] or [0.0]
    series = Series(name="gradient", x=x, y=y)
    caption = f"{len(ops):,} operations are too many for a diagram: open a part of it."
    return Line(
        title=title, series=[series], x_label="operation", y_label="log10 of the gradient's norm", caption=caption
    )


def _tens(op: Op) -> float | None:
    norm = 0.0 if op.gradient is None else op.gradient.norm
    return math.log10(norm) if norm > 0 and math.isfinite(norm) else None


def _below_largest(cells: list[list[float | None]]) -> list[list[float | None]]:
    """The cells less the largest: one scale from there down, whatever the gradients are."""
    largest = max((cell for row in cells for cell in row if cell is not None), default=0.0)
    return [[None if cell is None else cell - largest for cell in row] for row in cells]


def _label(trace: Trace, name: str) -> str:
    return name.rpartition(".")[2] if name in trace.kinds else name
