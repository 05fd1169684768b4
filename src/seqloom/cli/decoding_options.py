"""How text is written, made of what was typed: what cannot be is refused by its flags, before a model is read."""

from collections.abc import Mapping
from typing import Any

from seqloom.config.decoding import GREEDY, AnyDecoding, BeamConfig, SampleConfig, decoding
from seqloom.config.options import own, said
from seqloom.errors import ConfigError


def way_to_write(given: Mapping[str, Any]) -> AnyDecoding:
    """The way to write that was typed; `count` is how many answers are drawn, or how many of a beam are the best."""
    if "length_penalty" in given and "beam" not in given:
        raise ConfigError("--length-penalty says which text of a beam is best", fix="give --beam 5 too")
    if given.get("temperature") == 0:
        raise ConfigError("--temperature: found 0, and nothing can be divided by it", fix=GREEDY)
    named = said(SampleConfig, given) | said(BeamConfig, given)
    if "beam" in given:
        drawn = [one.flag for one in own(SampleConfig) if one.name in given and one not in own(BeamConfig)]
        several = "--count" if "--count" in drawn else "--best"
        if others := [flag for flag in drawn if flag != "--count"]:
            draw = "draws" if len(others) == 1 else "draw"
            problem = f"{', '.join(others)} {draw} an answer and --beam searches for one"
            raise ConfigError(problem, fix="leave the one or the other out")
        if "count" in named:
            named["best"] = named.pop("count")
        if (best := named.get("best", 1)) > named["width"]:
            raise ConfigError(
                f"{several} {best} asks for more answers than the texts of --beam {named['width']}",
                fix=f"--beam {best}, or a lower {several}",
            )
    return decoding(named)
