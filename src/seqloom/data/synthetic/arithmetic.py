"""Arithmetic and ListOps: expressions of digits and the value to predict.

Arithmetic: the last digit of the value of a small expression, as one of ten classes.

    ( 3 + ( 2 * 4 ) ) - 9  ->  2              1 - ( 5 * 2 )  ->  1      (-9 is 1 modulo 10)

One digit of every expression enters only through sums and differences. It is uniform, so the value modulo 10 is uniform
too: the classes are balanced, and no other digit narrows them down.
"""

from statistics import median

from seqloom.data.schema import Schema
from seqloom.data.synthetic.set import DrawnExample, Parameter, RandomDraws, Sizes, SyntheticSet

LABELS = tuple("0123456789")


class _Term:
    """An expression: its tokens and its value modulo 10."""

    def __init__(self, tokens: list[str], value: int) -> None:
        self.tokens, self.value = tokens, value


def _digit(draws: RandomDraws) -> _Term:
    value = draws.below(10)
    return _Term([str(value)], value)


def _joined(left: _Term, operator: str, right: _Term) -> _Term:
    values = {"+": left.value + right.value, "-": left.value - right.value, "*": left.value * right.value}
    return _Term([*_bracketed(left), operator, *_bracketed(right)], values[operator] % 10)


def _bracketed(term: _Term) -> list[str]:
    return term.tokens if len(term.tokens) == 1 else ["(", *term.tokens, ")"]


def _any(draws: RandomDraws, operators: int) -> _Term:
    """Draw an expression with this many operators of any kind."""
    if not operators:
        return _digit(draws)
    left = draws.below(operators)
    return _joined(_any(draws, left), draws.pick("+-*"), _any(draws, operators - 1 - left))


def _open(draws: RandomDraws, operators: int) -> _Term:
    """Draw an expression with this many operators whose value is uniform modulo 10."""
    if not operators:
        return _digit(draws)
    inside = draws.below(operators)
    terms = draws.mixed([_open(draws, inside), _any(draws, operators - 1 - inside)])
    return _joined(terms[0], draws.pick("+-"), terms[1])


def _draw(draws: RandomDraws, operators: int) -> DrawnExample:
    term = _open(draws, draws.between(1, operators))
    text = " ".join(term.tokens)
    return DrawnExample(text, ((text, LABELS[term.value]),))


ARITHMETIC = SyntheticSet(
    name="arithmetic",
    schema=Schema("text", "label", LABELS),
    description="last digit of expressions with sums, differences and products of digits",
    draw=_draw,
    sizes=Sizes(20_000, 1_000, 1_000),
    parameters={"operators": Parameter(4, 3, 100)},
)


# ListOps: nested lists of digits and operations, and their value (Nangia and Bowman 2018).
#
#     [MAX 4 [SM 7 8 X 3 X  ->  5
#
# `listops` is the task of Long Range Arena (Tay et al. 2021). A tree grows from depth 1: at a depth below 10 a node is
# an operator with probability 1/4 and otherwise a digit, at depth 10 always a digit; an operator is MIN, MAX, MED (the
# median, rounded down) or SM (the sum modulo 10) with 2 to 10 arguments. Digits count 1 and operators 2, and only trees
# of more than 500 and fewer than 2,000 are kept, without duplicates. The text is what the published models read: round
# brackets are dropped, "]" is renamed "X". Truncation to 2,000 tokens cuts nothing, because length counts tokens.
# Labels are not balanced.
#
# `listops_small` is the same with lengths 20 to 100 and a depth of 4, for quick runs.

OPERATORS = ("MIN", "MAX", "MED", "SM")
OPENING = tuple(f"[{operator}" for operator in OPERATORS)
MOST_ARGUMENTS, CLOSING = 10, "X"


def apply(operator: str, values: list[int]) -> int:
    """Return the value of an operation.

    >>> [apply(operator, [9, 4, 8, 1]) for operator in OPERATORS]
    [1, 9, 6, 2]
    """
    if operator == "MED":
        return int(median(values))
    if operator == "SM":
        return sum(values) % 10
    return min(values) if operator == "MIN" else max(values)


def evaluate(tokens: list[str]) -> int:
    """Return the value of a list.

    >>> evaluate("[MAX 4 [SM 7 8 X 3 X".split())
    5
    """
    waiting: list[tuple[str, list[int]]] = [("MAX", [])]  # open operations; the outermost collects the answer
    for token in tokens:
        if token.startswith("["):
            waiting.append((token[1:], []))
        else:
            value = apply(*waiting.pop()) if token == CLOSING else int(token)
            waiting[-1][1].append(value)
    return apply(*waiting[0])


def _tree(draws: RandomDraws, depth: int, enough: int) -> list[str]:
    """Return the tokens of a tree with at most `depth` levels; stop early once its length reaches `enough`."""
    tokens: list[str] = []
    missing = [1]  # missing arguments of the open operators, below the root
    while missing and len(tokens) < enough:
        if not missing[-1]:
            missing.pop()
            tokens += [CLOSING] if missing else []
            continue
        missing[-1] -= 1
        node = draws.below(40)
        if node < 30 or len(missing) == depth:
            tokens.append(LABELS[node % 10])
        else:  # a quarter of the nodes
            tokens.append(OPENING[draws.below(4)])
            missing.append(draws.between(2, MOST_ARGUMENTS))
    return tokens


def _draw_lists(draws: RandomDraws, more_than: int, fewer_than: int, depth: int) -> DrawnExample:
    tokens: list[str] = []
    while not more_than < len(tokens) < fewer_than:
        tokens = _tree(draws, depth, fewer_than)
    text = " ".join(tokens)
    return DrawnExample(text, ((text, LABELS[evaluate(tokens)]),))


LISTOPS = SyntheticSet(
    name="listops",
    schema=Schema("text", "label", LABELS),
    description="value of long nested list operations (ListOps of Long Range Arena)",
    draw=_draw_lists,
    sizes=Sizes(96_000, 2_000, 2_000),
    parameters={
        "more_than": Parameter(500, 0, 10_000),
        "fewer_than": Parameter(2_000, 20, 20_000),
        "depth": Parameter(10, 3, 50),
    },
)
LISTOPS_SMALL = LISTOPS._replace(
    name="listops_small",
    description="value of nested list operations with 20 to 100 tokens",
    sizes=Sizes(20_000, 1_000, 1_000),
    parameters={
        "more_than": Parameter(19, 0, 10_000),
        "fewer_than": Parameter(101, 20, 20_000),
        "depth": Parameter(4, 3, 50),
    },
)
