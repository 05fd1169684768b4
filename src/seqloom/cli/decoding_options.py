"""The options that say how text is written, and the typed way to write that they become.

What cannot be is refused by the flags that people typed, before a model is read.
"""

from typing import Annotated, Any

import typer

from seqloom.config.decoding import AnyDecoding, decoding
from seqloom.errors import ConfigError

Beam = Annotated[
    int | None, typer.Option("--beam", metavar="WIDTH", help="Search with so many texts side by side; 1 is greedy.")
]
LengthPenalty = Annotated[
    float | None, typer.Option("--length-penalty", metavar="ALPHA", help="Of a beam: the more, the longer the text.")
]

BEAM = {"width": "--beam"}  # settings whose flags have other names
DRAWN = ("temperature", "top_k", "top_p", "min_p", "seed")  # settings of a sample that a beam has not


def require_beam(width: int | None, length_penalty: float | None) -> None:
    """Refuse a length penalty where nothing is searched."""
    if length_penalty is not None and width is None:
        raise ConfigError("--length-penalty says which text of a beam is best", fix="give --beam 5 too")


def way_to_write(settings: dict[str, Any], flags: dict[str, str] = BEAM) -> AnyDecoding:
    """The way to write that settings ask for, those left out that are None; `flags` are the names of some of them."""
    given = {name: value for name, value in settings.items() if value is not None}
    _require_one_way(given)
    _require_so_many(given, flags.get("best", "--best"))
    try:
        return decoding(**given)
    except ConfigError as error:
        place, colon, rest = error.problem.partition(": ")
        name = place.rpartition(".")[2].partition("[")[0]
        if not colon or name not in given:
            raise
        raise ConfigError(f"{_flag(name, flags)}: {rest}", fix=error.fix) from None


def _require_one_way(given: dict[str, Any]) -> None:
    """Refuse to draw and to search at once."""
    drawn = [_flag(name, {}) for name in DRAWN if name in given]
    if "width" in given and drawn:
        verb = "draws" if len(drawn) == 1 else "draw"
        raise ConfigError(
            f"{', '.join(drawn)} {verb} an answer and --beam searches for one", fix="leave the one or the other out"
        )


def _require_so_many(given: dict[str, Any], flag: str) -> None:
    """Refuse more answers than a beam has texts."""
    width, best = given.get("width"), given.get("best")
    if width is not None and best is not None and best > width >= 1:
        raise ConfigError(
            f"{flag} {best} asks for more answers than the texts of --beam {width}",
            fix=f"--beam {best}, or a lower {flag}",
        )


def _flag(name: str, flags: dict[str, str]) -> str:
    return flags.get(name, f"--{name.replace('_', '-')}")
