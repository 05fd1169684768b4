"""What is seen of a model at once: the parts directly inside one of its parts, and how they are joined.

Everything deeper is collapsed into its part; what stands outside and is read here is a port; parts in a row that do
the same are one box with their number: 12 layers, 200 steps. So no picture has more boxes than one module has children.
"""

from collections.abc import Sequence
from typing import NamedTuple

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inspection.graphs.repeats import Item, items_of, likeness
from seqloom.inspection.graphs.trace import Op, Trace


class Box(NamedTuple):
    """One thing that is seen: an operation, a part, a row of equal parts, or a port."""

    items: tuple[Item, ...]  # more than one: they do the same
    result: int  # the operation whose value and gradient stand for it: the last that is read elsewhere
    is_port: bool = False

    @property
    def calls(self) -> tuple[str, ...]:
        """The labels of its parts; none for an operation."""
        return tuple(item.call for item in self.items if item.call)

    @property
    def ops(self) -> tuple[int, ...]:
        """All operations inside it."""
        return tuple(at for item in self.items for at in item.ops)


class Joint(NamedTuple):
    """A line between two boxes, and the operation whose result goes along it."""

    source: int
    target: int
    op: int


class Inside(NamedTuple):
    """The boxes inside a part, in order, and the lines between them."""

    boxes: tuple[Box, ...]
    joints: tuple[Joint, ...]


def path_of(trace: Trace, part: str) -> tuple[str, ...]:
    """The calls that lead to a part, itself the last; ConfigError for a part that there is not."""
    if not part:
        return ()
    known = dict[str, tuple[str, ...]]()
    for op in trace.ops:
        for depth, label in enumerate(op.path, start=1):
            if label == part:
                return op.path[:depth]
            known.setdefault(label, op.path[:depth])
    fix = did_you_mean(part, known) if known else "there is only the whole"
    raise ConfigError(f"the graph has no part '{part}'", fix=_few(fix))


def _few(fix: str, most: int = 400) -> str:
    return fix if len(fix) <= most else f"{fix[:most].rpartition(',')[0]}, ..."


def inside(trace: Trace, part: str) -> Inside:
    """What stands directly inside a part; the whole computation for ''."""
    path = path_of(trace, part)
    depth = len(path)
    members = [at for at, op in enumerate(trace.ops) if op.path[:depth] == path]
    folded = _folded(trace.ops, items_of(trace.ops, members, depth), depth)
    ports = _ports(trace.ops, members, path)
    read = _readers(trace)
    boxes = [Box((Item("", (at,)),), at, is_port=True) for at in ports]
    boxes += [Box(items, _result([at for item in items for at in item.ops], read)) for items in folded]
    return Inside(tuple(boxes), tuple(_joints(trace.ops, boxes)))


def _folded(ops: Sequence[Op], items: Sequence[Item], depth: int) -> list[tuple[Item, ...]]:
    """The items, those in a row that are calls and do the same together."""
    rows, last = list[list[Item]](), None
    for item in items:
        like = likeness(ops, item, depth) if item.call else None
        if like is not None and like == last:
            rows[-1].append(item)
        else:
            rows.append([item])
        last = like
    return [tuple(row) for row in rows]


def _ports(ops: Sequence[Op], members: Sequence[int], path: tuple[str, ...]) -> list[int]:
    """The operations outside of a part whose results are read inside it."""
    own = set(members)
    return sorted({parent for at in members for parent in ops[at].parents if parent not in own}) if path else []


def _readers(trace: Trace) -> dict[int, int]:
    """For each operation the last one that reads it; the result of it all is read after everything."""
    found = {parent: at for at, op in enumerate(trace.ops) for parent in op.parents}
    return found | {trace.target: len(trace.ops)}


def _result(members: Sequence[int], readers: dict[int, int]) -> int:
    outside = [at for at in members if readers.get(at, -1) > members[-1]]
    return outside[-1] if outside else members[-1]


def _joints(ops: Sequence[Op], boxes: Sequence[Box]) -> list[Joint]:
    home = {at: number for number, box in enumerate(boxes) for at in box.ops}
    found = dict[tuple[int, int], Joint]()
    for number, box in enumerate(boxes):
        for at in () if box.is_port else box.ops:
            for parent in ops[at].parents:
                if home.get(parent, number) != number:
                    found[home[parent], number] = Joint(home[parent], number, parent)
    return list(found.values())
