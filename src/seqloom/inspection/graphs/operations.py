"""The operations of expressions: what each makes of numbers, and its local derivatives, as numbers and as a formula.

A local derivative is that of one operation by one of its own inputs, as if nothing stood around it: what the lectures
multiply by what comes from above. In formulas `{x}` and `{y}` are the first and the last input, `{each}` is the one in
question, `{out}` the result.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

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
