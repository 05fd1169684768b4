"""Interactive maps for HTML pages: a canvas, a choice of maps, and the tokens and value of the cell below the pointer.

A canvas draws 512 x 512 cells fast; as page elements they would freeze a browser. Cells are sent as two bytes each, so
values have five decimals. Maps that do not fit in 2 MB must be pooled by the caller.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqloom.inspect.view import script
from seqloom.report.document import Interactive
from seqloom.report.figures.markup import LEVELS, ColorScale, Markup, code, tag

STEPS = 65_534  # levels of a cell between 0 and the largest of its map; 65,535 means no value
NO_VALUE = 65_535
MOST_BYTES = 2_000_000  # of a page, approximately
RULES = (
    "canvas{image-rendering:pixelated;display:block;max-width:100%;margin-top:8px;margin-bottom:8px}"
    "canvas{border:1px solid #8a929c}"
    ".labeled{display:grid;grid-template-columns:auto minmax(0,1fr);justify-content:start;font-size:12px;line-height:1}"
    ".labeled canvas{margin:0}#rows,#columns{display:flex}#rows{flex-direction:column}"
    "#rows span,#columns span{flex:1 1 0;min-width:0;min-height:0;display:flex;align-items:center;white-space:pre;"
    "overflow:hidden;max-height:110px}#rows span{justify-content:flex-end;padding-right:6px;max-width:140px}"
    "#columns span{writing-mode:vertical-rl;transform:rotate(180deg);padding-top:4px}"
    ".choice{margin-top:16px}#key{width:320px;height:12px}#said{min-height:3.2em}label,select{margin:0 8px 8px 0}"
)


class Named(NamedTuple):
    """The tokens along the sides of a map, with the numbers of the first ones and the step between rows."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    first_row: int = 0
    first_column: int = 0
    every: int = 1  # step between rows, if some are left out


class Map(NamedTuple):
    """One map of a page."""

    name: str
    values: np.ndarray  # [R,N] not negative; NaN without a value
    named: Named
    down: int = 1  # named rows and columns per cell
    across: int = 1


@dataclass(frozen=True)
class MapCanvas(Interactive):
    """The maps on one canvas, with a choice between them; other formats show the blocks."""

    rules: ClassVar[str] = RULES
    title: str
    maps: Sequence[Map]
    label: str = "weight"

    def markup(self) -> list[Markup]:
        choices = [tag("option", each.name, value=str(at)) for at, each in enumerate(self.maps)]
        hidden = {} if len(self.maps) > 1 else {"hidden": "hidden"}
        size = " x ".join(map(str, self.maps[0].values.shape))
        fallback = f"A map of {size} cells; the JSON output has the numbers."
        return [
            tag(
                "div",
                tag("label", "Map ", tag("select", *choices, id="choice")),
                tag("label", tag("input", type="checkbox", id="one"), " same color scale for all maps", **hidden),
                class_="choice",
            ),
            tag(
                "div",
                tag("span", ""),
                tag("div", "", id="columns", aria_hidden="true"),
                tag("div", "", id="rows", aria_hidden="true"),
                tag("canvas", fallback, id="map", role="img", aria_label=self.title),
                class_="labeled",
            ),
            tag("canvas", "Color scale, lowest to highest.", id="key", width=LEVELS, height=1),
            tag("p", "legend", id="ends"),
            tag("p", "Point at a cell to see its value.", id="said", aria_live="polite"),
        ]

    def script(self) -> str:
        return script("map.js")

    def data(self) -> Mapping[str, Any]:
        sides = list(dict.fromkeys(each.named for each in self.maps))  # tokens of most maps are equal and sent once
        scale = ColorScale(0.0, 1.0)
        return {
            "label": self.label,
            "shades": [code(scale.shade(level).light) for level in range(LEVELS)],
            "sides": [side._asdict() for side in sides],
            "maps": [_sent(each) | {"side": sides.index(each.named)} for each in self.maps],
        }


def sent_bytes(values: np.ndarray) -> int:
    """The size of a map in an HTML page, in bytes."""
    return values.size * 2 * 4 // 3


def _sent(map_: Map) -> dict[str, object]:
    most = float(np.nanmax(map_.values, initial=0.0))
    steps = np.nan_to_num(map_.values) / (most or 1.0) * STEPS
    cells = np.where(np.isnan(map_.values), NO_VALUE, steps.round()).astype("<u2")
    height, width = map_.values.shape
    size = {"height": height, "width": width, "down": map_.down, "across": map_.across}
    return {"name": map_.name, "most": most, **size, "cells": base64.b64encode(cells.tobytes()).decode()}
