"""Arithmetic: small expressions of digits and the last digit of their value, as one of ten classes.

    ( 3 + ( 2 * 4 ) ) - 9  ->  2              1 - ( 5 * 2 )  ->  1      (-9 is 1 modulo 10)

One digit of every expression is reached through sums and differences alone. It is uniform, so the value modulo 10 is
uniform as well, whatever stands around it: the classes are balanced, and every other digit leaves all of them open.
"""

from seqloom.data.schema import Schema
from seqloom.data.synthetic.draws import Draws
from seqloom.data.synthetic.sets import Drawn, Parameter, Sizes, SyntheticSet

LABELS = tuple("0123456789")


class _Term:
    """An expression: its tokens and its value modulo 10."""

    def __init__(self, tokens: list[str], value: int) -> None:
        self.tokens, self.value = tokens, value


def _digit(draws: Draws) -> _Term:
    value = draws.below(10)
    return _Term([str(value)], value)


def _joined(left: _Term, operator: str, right: _Term) -> _Term:
    values = {"+": left.value + right.value, "-": left.value - right.value, "*": left.value * right.value}
    return _Term([*_bracketed(left), operator, *_bracketed(right)], values[operator] % 10)


def _bracketed(term: _Term) -> list[str]:
    return term.tokens if len(term.tokens) == 1 else ["(", *term.tokens, ")"]


def _any(draws: Draws, operators: int) -> _Term:
    """An expression with so many operators of any kind."""
    if not operators:
        return _digit(draws)
    left = draws.below(operators)
    return _joined(_any(draws, left), draws.pick("+-*"), _any(draws, operators - 1 - left))


def _open(draws: Draws, operators: int) -> _Term:
    """An expression with so many operators whose value is uniform modulo 10."""
    if not operators:
        return _digit(draws)
    inside = draws.below(operators)
    terms = draws.mixed([_open(draws, inside), _any(draws, operators - 1 - inside)])
    return _joined(terms[0], draws.pick("+-"), terms[1])


def _draw(draws: Draws, operators: int) -> Drawn:
    term = _open(draws, draws.between(1, operators))
    text = " ".join(term.tokens)
    return Drawn(text, ((text, LABELS[term.value]),))


ARITHMETIC = SyntheticSet(
    name="arithmetic",
    schema=Schema("text", "label", LABELS),
    description="the last digit of sums, differences and products of digits, up to so many operators",
    draw=_draw,
    sizes=Sizes(20_000, 1_000, 1_000),
    parameters={"operators": Parameter(4, 3, 100)},
)
