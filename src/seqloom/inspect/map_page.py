"""Maps on a page: a canvas, a choice between maps, and the tokens and the number of the cell below the pointer.

A map of 512 x 512 cells as elements of a page would stop a browser; as pixels it is drawn at once. Cells travel as two
bytes each, so a number that is read off is right to five digits after the point; what does not fit in 2 MB is pooled
by the caller.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqloom.report.document import Interactive
from seqloom.report.figures.markup import LEVELS, ColorScale, Markup, code, tag

STEPS = 65_534  # of a cell between 0 and the largest of its map; 65,535 says that there is no value
NO_VALUE = 65_535
MOST_BYTES = 2_000_000  # of a page, about
RULES = (
    "canvas{image-rendering:pixelated;display:block;max-width:100%;margin-top:8px;margin-bottom:8px}"
    "canvas{border:1px solid #8a929c}"
    ".choice{margin-top:16px}#key{width:320px;height:12px}#said{min-height:3.2em}label,select{margin:0 8px 8px 0}"
)
SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("map"), said = document.getElementById("said");
const choice = document.getElementById("choice"), one = document.getElementById("one");
const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const maps = data.maps.map(map => ({...map, cells: new Uint16Array(bytes(map.cells).buffer)}));
const most = Math.max(...maps.map(map => map.most));
const shades = data.shades.map(shade => shade.match(/[0-9a-f]{2}/g).map(part => parseInt(part, 16)));
let map = maps[0];
const valueAt = (row, column) => {
  const cell = map.cells[row * map.width + column];
  return cell === 65535 ? null : cell / 65534 * map.most;
};
const draw = () => {
  map = maps[Number(choice.value)];
  const high = one.checked ? most : map.most;
  canvas.width = map.width; canvas.height = map.height;
  canvas.style.width = 760 * Math.min(1, map.width / map.height) + "px";
  const pen = canvas.getContext("2d"), picture = pen.createImageData(map.width, map.height);
  for (let row = 0; row < map.height; row++) for (let column = 0; column < map.width; column++) {
    const value = valueAt(row, column), at = 4 * (row * map.width + column);
    const level = Math.min(shades.length - 1, Math.floor((value ?? 0) / (high || 1) * shades.length));
    const shade = value === null ? ((row + column) % 3 ? [255, 255, 255] : [176, 176, 176]) : shades[level];
    picture.data.set([...shade, 255], at);
  }
  pen.putImageData(picture, 0, 0);
  const key = document.getElementById("key"), brush = key.getContext("2d");
  shades.forEach((shade, at) => { brush.fillStyle = `rgb(${shade})`; brush.fillRect(at, 0, 1, 1); });
  const whose = one.checked ? "one scale for all maps" : "the scale of this map";
  document.getElementById("ends").textContent = `0 to ${high.toPrecision(3)} ${data.label}; ${whose}`;
};
const span = (names, at, size, first, every) => {
  const start = at * size, inside = names.slice(start, start + size), text = inside.slice(0, 6).join(" ");
  const last = inside.length > 1 ? "-" + (first + every * (start + inside.length - 1)) : "";
  return `${first + every * start}${last} \\u201c${text}${inside.length > 6 ? " \\u2026" : ""}\\u201d`;
};
const rowAt = row => {
  const side = data.sides[map.side];
  return span(side.rows, row, map.down, side.first_row, side.every);
};
const columnAt = column => {
  const side = data.sides[map.side];
  return span(side.columns, column, map.across, side.first_column, 1);
};
const ranked = row => {
  const cells = [...Array(map.width).keys()].filter(column => valueAt(row, column) !== null);
  cells.sort((a, b) => valueAt(row, b) - valueAt(row, a));
  return cells.slice(0, 5).map(column => `${columnAt(column)} ${valueAt(row, column).toFixed(4)}`).join(", ");
};
const read = event => {
  const box = canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / box.width * map.width);
  const row = Math.floor((event.clientY - box.top) / box.height * map.height);
  if (row < 0 || column < 0 || row >= map.height || column >= map.width) return;
  const value = valueAt(row, column);
  said.textContent = `${rowAt(row)} reads ${columnAt(column)}: ` +
    `${value === null ? "masked" : value.toFixed(5)}. Most: ${ranked(row)}.`;
};
choice.addEventListener("change", draw);
one.addEventListener("change", draw);
canvas.addEventListener("pointermove", read);
draw();
"""


class Named(NamedTuple):
    """The tokens along the sides of a map; the first has the number `first`, the others each `every` more."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    first_row: int = 0
    first_column: int = 0
    every: int = 1  # rows: where some were left out


class Map(NamedTuple):
    """One map of a page."""

    name: str
    values: np.ndarray  # [R,N] not below 0; NaN where there is no value
    named: Named
    down: int = 1  # how many of the rows and columns that are named a cell stands for
    across: int = 1


@dataclass(frozen=True)
class MapCanvas(Interactive):
    """The maps on one canvas, with a choice between them; elsewhere the figures that are given as blocks."""

    rules: ClassVar[str] = RULES
    title: str
    maps: Sequence[Map]
    label: str = "weight"

    def markup(self) -> list[Markup]:
        choices = [tag("option", each.name, value=str(at)) for at, each in enumerate(self.maps)]
        hidden = {} if len(self.maps) > 1 else {"hidden": "hidden"}
        size = " x ".join(map(str, self.maps[0].values.shape))
        told = f"A map of {size} cells; the numbers are in the file of JSON."
        return [
            tag(
                "div",
                tag("label", "Map ", tag("select", *choices, id="choice")),
                tag("label", tag("input", type="checkbox", id="one"), " one scale for all maps", **hidden),
                class_="choice",
            ),
            tag("canvas", told, id="map", role="img", aria_label=self.title),
            tag("canvas", "The colours from the lowest to the highest.", id="key", width=LEVELS, height=1),
            tag("p", "legend", id="ends"),
            tag("p", "Point at a cell to read it.", id="said", aria_live="polite"),
        ]

    def script(self) -> str:
        return SCRIPT

    def data(self) -> Mapping[str, Any]:
        sides = list(dict.fromkeys(each.named for each in self.maps))  # most have the same tokens, which are sent once
        scale = ColorScale(0.0, 1.0)
        return {
            "label": self.label,
            "shades": [code(scale.shade(level).light) for level in range(LEVELS)],
            "sides": [side._asdict() for side in sides],
            "maps": [_sent(each) | {"side": sides.index(each.named)} for each in self.maps],
        }


def sent_bytes(values: np.ndarray) -> int:
    """How many bytes of a page a map takes."""
    return values.size * 2 * 4 // 3


def _sent(map_: Map) -> dict[str, object]:
    most = float(np.nanmax(map_.values, initial=0.0))
    steps = np.nan_to_num(map_.values) / (most or 1.0) * STEPS
    cells = np.where(np.isnan(map_.values), NO_VALUE, steps.round()).astype("<u2")
    height, width = map_.values.shape
    packed = base64.b64encode(cells.tobytes()).decode()
    size = {"height": height, "width": width, "down": map_.down, "across": map_.across}
    return {"name": map_.name, "most": most, **size, "cells": packed}
