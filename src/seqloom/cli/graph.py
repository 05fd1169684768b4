"""`seqloom graph`: an expression step by step, forward over its values and back over its gradients."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.options import option
from seqloom.cli.terminal import Screen
from seqloom.errors import DataError

if TYPE_CHECKING:
    from seqloom.inspect.graphs.expression import ExpressionGraph


def graph(
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPRESSION", help='What is computed: "c*(a+2*b)", or lines: "d = 2*b; e = a + d; c*e".'
        ),
    ],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=NUMBER", help="The values of its inputs: a=3 b=1 c=-2.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Also take one step of gradient descent at this rate.")
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the graph as JSON.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write it: .html with a slider, .md, .txt, .svg, .png, .json."),
    ] = None,
) -> None:
    """Show how an expression is computed, and how its gradient comes back: every value, every local derivative."""
    given = _numbers(values or [])
    if rate is not None and not math.isfinite(rate):
        raise DataError(f"the rate is {rate}, which is not a number", fix="write --rate 0.1, for example")
    from seqloom.inspect.graphs.expression import expression_graph

    view, screen = expression_graph(expression, given), Screen()
    after = "" if rate is None else _stepped(view, rate)
    if out is not None:
        view.save(out)
    if json:
        return screen.say_json(view.to_json())
    screen.show(view)
    screen.say(*([after] if after else []), *([f"\nThe graph is written to {out}"] if out is not None else []))
    return None


def _numbers(values: list[str]) -> dict[str, float]:
    """The values by name; DataError for one that is not NAME=NUMBER."""
    found = dict[str, float]()
    for value in values:
        name, mark, numeral = (part.strip() for part in value.partition("="))
        if not mark or not name.isidentifier():
            raise DataError(f"'{value}' is not a value of an input", fix="write NAME=NUMBER, such as a=3")
        if name in found:
            raise DataError(f"'{name}' was given twice", fix="give one value")
        try:
            found[name] = float(numeral)
        except ValueError:
            found[name] = math.nan
        if not math.isfinite(found[name]):
            raise DataError(f"{name} is '{numeral}', which is not a number", fix=f"write {name}=0.5, for example")
    return found


def _stepped(view: "ExpressionGraph", rate: float) -> str:
    """What one step of gradient descent changes."""
    from seqloom.report.numbers import number as brief

    after, name = view.stepped(rate), view.nodes[view.target].name
    moved = ", ".join(f"{one} = {brief(value)}" for one, value in after.inputs.items())
    climbs = ", which climbs since it is below 0" if rate < 0 else ""
    results = f"{name} was {brief(view.result)} and is {brief(after.result)}."
    return f"\nOne step at rate {brief(rate)}{climbs}: {moved}.\n{results}"
