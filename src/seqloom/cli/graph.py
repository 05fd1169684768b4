"""`seqloom graph`: an expression step by step, its values forward and its gradients backward."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.options import option, takes
from seqloom.cli.terminal import Screen
from seqloom.config.options import new_name
from seqloom.errors import DataError, did_you_mean


@takes(
    examples=(
        'seqloom graph "c*(a+2*b)" a=3 b=1 c=-2',
        'seqloom graph "(w*x - y)**2" w=1 x=2 y=3 --lr 0.1 --out graph.html',
    )
)
def graph(
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPRESSION",
            help='Expression such as "c*(a+2*b)", or several steps such as "d = 2*b; e = a + d; c*e".',
        ),
    ],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=NUMBER", help="Value of each variable: a=3 b=1 c=-2.")
    ] = None,
    lr: Annotated[
        float | None,
        option(
            "--lr",
            "NUMBER",
            "Also take one step of gradient descent on all variables, with this learning rate (default: no step).",
        ),
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the graph as JSON (default: text).")] = False,
    out: Annotated[
        Path | None,
        option(
            "--out -o",
            "FILE",
            "Also write the graph to .html (interactive), .md, .txt, .svg, .png or .json (default: off).",
        ),
    ] = None,
) -> None:
    """Show the computation graph of an expression, with all values, local derivatives and gradients."""
    given = _numbers(values or [])
    if lr is not None and not math.isfinite(lr):
        raise DataError(f"--lr {lr} is not a number", fix="write --lr 0.1, for example")
    from seqloom.inspect.graphs.expression import expression_graph

    view, screen = replace(expression_graph(expression, given), lr=lr), Screen()
    if out is not None:
        view.save(out)
    if json:
        return screen.say_json(view.to_json())
    screen.show(view)
    screen.say(*([f"\nThe graph is written to {out}"] if out is not None else []))
    return None


def _numbers(values: list[str]) -> dict[str, float]:
    """Return the values by name; raise DataError unless each is NAME=NUMBER."""
    found = dict[str, float]()
    for value in values:
        if value.startswith("--"):  # unknown options arrive here, because an expression may start with a minus
            known = ("lr", "json", "out", "help", "help_all")
            option_name = value[2:].partition("=")[0].replace("-", "_")
            new = new_name(option_name, known)
            fix = did_you_mean(option_name, known) if new is None else f"use --{new}"
            raise DataError(f"there is no option {value}", fix=fix)
        name, mark, numeral = (part.strip() for part in value.partition("="))
        if not mark or not name.isidentifier():
            raise DataError(f"'{value}' is not the value of a variable", fix="write NAME=NUMBER, such as a=3")
        if name in found:
            raise DataError(f"'{name}' was given twice", fix="give one value")
        try:
            found[name] = float(numeral)
        except ValueError:
            found[name] = math.nan
        if not math.isfinite(found[name]):
            raise DataError(f"{name} is '{numeral}', which is not a number", fix=f"write {name}=0.5, for example")
    return found
