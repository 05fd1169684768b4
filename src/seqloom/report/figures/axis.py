"""Axes and numbers: round ticks that cover a range, and short readable numerals."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.report.numbers import number

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HYPHEN = re.compile(r"(?:(?<=[\s(\[=])|^)-(?=\d)")  # not that of a word, nor of a token in quotes
TOLERANCE = 0.04  # how far beyond the data, in parts of the axis, a tick may end it
ALMOST = 1e-9  # how much of a step may be missing at either end before a further tick is added
NEGLIGIBLE = 1e-90
LEAST_LOGARITHMIC = 1e-80  # the smallest value a log axis accepts
DECIMALS = ((0.01, 4), (0.1, 3), (10.0, 2), (1000.0, 1), (math.inf, 0))  # below the limit, so many decimals


@dataclass(frozen=True)
class Axis:
    """A range of values with its ticks; `place` maps the range onto 0 to 1."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """How far along the axis the value lies: 0 at `low`, 1 at `high`."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def trimmed(self, low: float, high: float) -> "Axis":
        """The axis from `low` to `high` only, with the ticks in between; a tick just outside is kept and ends it."""
        low, high = widened(low, high)
        near = TOLERANCE * (high - low)
        low, high = (self.low if low - self.low <= near else low), (self.high if self.high - high <= near else high)
        inside = [(tick, label) for tick, label in zip(self.ticks, self.labels, strict=True) if low <= tick <= high]
        return Axis(low, high, tuple(tick for tick, _ in inside), tuple(label for _, label in inside), self.is_log)


def linear_axis(low: float, high: float, *, count: int = 6, least_step: float = 0.0) -> Axis:
    """An axis whose first and last tick enclose the range, about `count` steps of 1, 2 or 5 times a power of ten.

    >>> linear_axis(0.12, 0.87).labels
    ('0.0', '0.2', '0.4', '0.6', '0.8', '1.0')
    """
    low, high = widened(low, high)
    step = max(_round_step((high - low) / count), least_step)
    first, last = math.floor(low / step + ALMOST), math.ceil(high / step - ALMOST)
    exponent = math.floor(math.log10(step) + ALMOST)
    ticks = tuple(round(index * step, max(0, -exponent)) for index in range(first, last + 1))
    return Axis(min(low, ticks[0]), max(high, ticks[-1]), ticks, _numerals(ticks, exponent))


def log_axis(low: float, high: float) -> Axis:
    """An axis of powers of ten that encloses the positive range; below one decade, of round numbers.

    >>> log_axis(0.002, 3.0).labels
    ('0.001', '0.01', '0.1', '1', '10')
    """
    if high / low < 1 + ALMOST:
        low, high = low / 1.5, high * 1.5
    if high / low < 3:
        plain = linear_axis(low, high)
        return Axis(plain.low, plain.high, plain.ticks, plain.labels, is_log=True)
    first, last = math.floor(math.log10(low) + ALMOST), math.ceil(math.log10(high) - ALMOST)
    stride = math.ceil((last - first) / 7)
    factors = (1, 2, 5) if last - first < 3 else (1,)
    ticks = [factor * 10.0**power for power in range(first, last + stride, stride) for factor in factors]
    below, above = max(t for t in ticks if t <= low * (1 + ALMOST)), min(t for t in ticks if t >= high * (1 - ALMOST))
    ticks = [tick for tick in ticks if below <= tick <= above]
    return Axis(min(low, below), max(high, above), tuple(ticks), _powers(ticks), is_log=True)


def widened(low: float, high: float) -> tuple[float, float]:
    """The range itself, or one around it where it has (almost) no extent."""
    largest = max(abs(low), abs(high))
    if high - low > max(ALMOST * largest, NEGLIGIBLE):
        return low, high
    middle, margin = (low + high) / 2, largest / 10 if largest > NEGLIGIBLE else 1.0
    return middle - margin, middle + margin


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - ALMOST))


def _numerals(ticks: Sequence[float], exponent: int) -> tuple[str, ...]:
    largest = max(map(abs, ticks))
    if 1e-3 <= largest < 1e6:
        return tuple(f"{tick + 0.0:,.{max(0, -exponent)}f}" for tick in ticks)
    digits = max(0, math.floor(math.log10(largest)) - exponent)
    return tuple(_without_padding(f"{tick:.{digits}e}") if tick else "0" for tick in ticks)


def _powers(ticks: Sequence[float]) -> tuple[str, ...]:
    plain = len(ticks) < 2 or (ticks[0] > 1e-4 and ticks[-1] < 1e5)  # else all of them as powers, none as decimals
    return tuple(number(tick) if plain else _without_padding(f"{tick:.0e}") for tick in ticks)


def _without_padding(numeral: str) -> str:
    mantissa, mark, power = numeral.partition("e")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{short}e{int(power)}" if mark else numeral


def alike(values: Sequence[float]) -> tuple[str, ...]:
    """The numbers with equally many decimals, as they stand in a table.

    >>> alike([3.0, 12.0]), alike([0.5, 0.125]), alike([150.25, 2.0])
    (('3', '12'), ('0.50', '0.12'), ('150.2', '2.0'))
    """
    largest = max(map(abs, values), default=0.0)
    if all(value == round(value) for value in values) and largest < 1e6:
        return tuple(f"{value + 0.0:,.0f}" for value in values)
    if not 1e-3 <= largest < 1e5:
        return tuple(_without_padding(f"{value + 0.0:.1e}") if value else "0" for value in values)
    decimals = next(count for limit, count in DECIMALS if largest < limit)
    return tuple(f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in values)


def minus_signed(text: str) -> str:
    """The text as printed in a picture: each number below zero with a true minus sign.

    >>> minus_signed("Together -0.75 (-2 to -1), not '-5' and not half-1")
    "Together −0.75 (−2 to −1), not '-5' and not half-1"
    """
    return HYPHEN.sub("−", text)


def typeset(numeral: str) -> str:
    """The numeral as printed in a picture: a true minus sign, a power of ten instead of an `e`.

    >>> typeset("-2e-5"), typeset("1e6"), typeset("-0.5")
    ('−2×10⁻⁵', '10⁶', '−0.5')
    """
    mantissa, mark, power = numeral.partition("e")
    body = mantissa.replace("-", "−")
    if not mark:
        return body
    ten = f"10{power.translate(SUPERSCRIPTS)}"
    return ten if body == "1" else f"{body}×{ten}"
