"""Tables for a terminal of what an evaluation says about labels: the figures of each, and what was taken for what.

Names come from data, so what could move a cursor is written out, and long ones are cut.
"""

from collections.abc import Mapping, Sequence

from seqloom.data.problems import counted, escaped

MOST_LABELS = 20  # with a line of their own
SQUARE = 10  # labels up to which confusions are a table, true ones down and said ones across
MISTAKES = 5  # that are told where there are more labels
LONGEST_NAME = 24  # characters
CORNER = "true, said"
Confusion = Sequence[tuple[str, str, int]]  # what is true, what was said, how often


def label_lines(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line for each label with its figures, the most frequent first; nothing where there is none."""
    if not figures:
        return []
    often = sorted(figures, key=lambda label: -figures[label]["support"])
    width = max(len(_cut(label)) for label in [*often[:MOST_LABELS], "label"])
    lines = ["", f"  {'label':<{width}}  precision  recall      f1  support"]
    for label in often[:MOST_LABELS]:
        one = figures[label]
        scores = f"{one['precision']:>9.4f}  {one['recall']:>6.4f}  {one['f1']:>6.4f}"
        lines.append(f"  {_cut(label):<{width}}  {scores}  {one['support']:>7,.0f}")
    more = len(often) - MOST_LABELS
    return [*lines, f"  and {counted(more, 'rarer label')}: --json has all"] if more > 0 else lines


def confusion_lines(confusion: Confusion) -> list[str]:
    """What was taken for what: a table for a few labels, the most frequent mistakes for many."""
    names = sorted({name for true, said, _ in confusion for name in (true, said)})
    if not names:
        return []
    return _square(confusion, names) if len(names) <= SQUARE else _mistakes(confusion)


def _square(confusion: Confusion, names: Sequence[str]) -> list[str]:
    counts = {(true, said): count for true, said, count in confusion}
    shown = [_cut(name) for name in names]
    heads = [max(len(name), len(f"{max(counts.values()):,}")) for name in shown]
    width = max(len(name) for name in [*shown, CORNER])
    across = "  ".join(f"{name:>{head}}" for name, head in zip(shown, heads, strict=True))
    lines = ["", f"  {CORNER:<{width}}  {across}"]
    for true, label in zip(names, shown, strict=True):
        row = (f"{counts.get((true, said), 0):>{head},}" for said, head in zip(names, heads, strict=True))
        lines.append(f"  {label:<{width}}  {'  '.join(row)}")
    return lines


def _mistakes(confusion: Confusion) -> list[str]:
    wrong = sorted((one for one in confusion if one[0] != one[1]), key=lambda one: -one[2])[:MISTAKES]
    lines = [f"  {_cut(true)} taken for {_cut(said)}, {counted(count, 'time')}" for true, said, count in wrong]
    return ["", "most often mistaken:", *lines] if lines else []


def _cut(name: str) -> str:
    shown = escaped(name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 1]}…"
