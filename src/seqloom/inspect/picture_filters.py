"""What 2-D filters see: the maps of one picture by layer, and the patches of the data that fire each filter most.

A place of a map stands for a square of the picture, its *receptive field*. Over layers with k x k filters and 2 x 2
maximum pooling between them

    side' = side + (k - 1) * stride        after pooling: side' = side + stride, stride' = 2 * stride

from side = 1 and stride = 1 at the pixels, and place (y, x) begins at pixel (y * stride, x * stride).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import nn

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.layers import PICTURE_MAPS, chosen, heard, required
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.nn.taps import taps
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap, Tile, Tiles
from seqloom.report.numbers import counted, number

MOST_TILES = 64
MOST_PATCHES = 16  # of each filter
ACROSS = 8
CELLS = 2**16  # of all tiles together


class Field(NamedTuple):
    """The square of the picture that a place of a map stands for."""

    side: int
    stride: int

    def patch(self, picture: np.ndarray, y: int, x: int) -> np.ndarray:
        """The pixels [side,side,C] behind a place."""
        top, left = y * self.stride, x * self.stride
        return picture[top : top + self.side, left : left + self.side]


class Patch(NamedTuple):
    """A part of a picture that fires a filter."""

    reading: int  # the number of the picture
    y: int  # of its upper left pixel
    x: int
    activation: float
    pixels: np.ndarray  # [side,side] the mean over colours


@dataclass(frozen=True, kw_only=True)
class MapsView(View):
    """The activation maps of one picture in one layer."""

    kind: ClassVar[str] = "maps"
    layer: str
    picture: np.ndarray  # [Y,X] the mean over colours
    maps: np.ndarray  # [filters,Y,X]
    side: int  # of the square of the picture that a place stands for

    def figures(self) -> tuple[Figure, ...]:
        shown = _loudest(self.maps.max(axis=(1, 2)), self.maps[0].size)
        tiles = [Tile(f"filter {number}", self.maps[number].tolist()) for number in shown]
        seen = HeatMap(title="The picture", values=self.picture.tolist())
        noted = f"{len(shown)} of {len(self.maps)} filters; a place stands for {self.side} x {self.side} pixels."
        drawn = Tiles(
            title=f"Activation maps of {self.layer}",
            caption=noted,
            tiles=tiles,
            across=min(ACROSS, len(tiles)),
            value_label="activation",
        )
        return seen, drawn

    def _sentences(self) -> tuple[str, ...]:
        peaks = self.maps.max(axis=(1, 2))
        silent = int((peaks <= 0).sum())
        order = [unit for unit in np.argsort(-peaks, kind="stable")[:5] if peaks[unit] > 0]
        loud = ", ".join(f"{unit} ({number(peaks[unit])})" for unit in order) or "none"
        still = f"{counted(silent, 'filter')} {'is' if silent == 1 else 'are'} silent here."
        return (f"Loudest filters of {self.layer}: {loud}.", *([still] if silent else []))


@dataclass(frozen=True, kw_only=True)
class PictureFiltersView(View):
    """The patches of some pictures that fire each filter of a layer most."""

    kind: ClassVar[str] = "picture_filters"
    layer: str
    readings: int
    patches: tuple[tuple[Patch, ...], ...]  # of each filter, the strongest first

    def figures(self) -> tuple[Figure, ...]:
        size = self.patches[0][0].pixels.size * len(self.patches[0])
        peaks = np.array([patches[0].activation for patches in self.patches])
        loudest = _loudest(peaks, size)
        shown = [unit for unit in loudest if peaks[unit] > 0] or loudest[:1]
        tiles = [
            Tile(f"{unit}: {number(patch.activation)}", patch.pixels.tolist())
            for unit in shown
            for patch in self.patches[unit]
        ]
        side = len(self.patches[0][0].pixels)
        noted = (
            f"Each row of patches belongs to one filter: its number and the activation. {side} x {side} pixels each."
        )
        across = len(self.patches[0])
        title = "The patches that fire each filter most"
        return (Tiles(title=title, caption=noted, tiles=tiles, across=across, value_label="brightness"),)

    def _sentences(self) -> tuple[str, ...]:
        dead = [number for number, patches in enumerate(self.patches) if patches[0].activation <= 0]
        said = f"{counted(len(self.patches), 'filter')} over {counted(self.readings, 'picture')}."
        return (said, *([f"Never fired: {', '.join(map(str, dead))}."] if dead else []))


def activation_maps(subject: Subject, reading: Reading, *, layer: int | str | None = None) -> MapsView:
    """The maps of one picture in a layer of 2-D filters, the first if none is named."""
    path = _chosen(subject.model, layer)
    return MapsView(
        title=f"Activation maps of {path}",
        layer=path,
        picture=_picture(reading).mean(axis=2),
        maps=_heard(subject, reading, path),
        side=field(subject, reading, path).side,
    )


def picture_filters(
    subject: Subject, readings: Sequence[Reading], *, layer: int | str | None = None, top: int = 4
) -> PictureFiltersView:
    """The `top` patches of some pictures that fire each filter of a layer most, one of each picture at most."""
    path = _chosen(subject.model, layer)
    if not readings:
        raise DataError("filters are shown by the pictures that fire them, and none was given", fix="give some")
    if not 1 <= top <= MOST_PATCHES:
        raise ConfigError(f"{top} patches for each filter were asked for", fix=f"ask for 1 to {MOST_PATCHES}")
    square, best = field(subject, readings[0], path), list[list[Patch]]()
    for at, reading in enumerate(readings):
        picture, maps = _picture(reading), _heard(subject, reading, path)
        best = best or [[] for _ in maps]
        for kept, each in zip(best, maps, strict=True):  # the strongest place of each filter on this picture
            y, x = (int(place) for place in np.unravel_index(int(each.argmax()), each.shape))
            value = float(each[y, x])
            if len(kept) < top or value > kept[-1].activation:
                pixels = square.patch(picture, y, x).mean(axis=2)
                kept.append(Patch(at, y * square.stride, x * square.stride, value, pixels))
                kept.sort(key=lambda one: -one.activation)
                del kept[top:]
    found = tuple(map(tuple, best))
    return PictureFiltersView(title=f"Filters of {path}", layer=path, readings=len(readings), patches=found)


def field(subject: Subject, reading: Reading, path: str) -> Field:
    """The receptive field of the places of one layer's maps."""
    every = _maps(subject.model)
    record = heard(subject, reading, every)
    side, stride = 1, 1
    for at, name in enumerate(every):
        owner: Any = subject.model.get_submodule(name.rpartition(".maps.")[0])
        side += (int(owner.weights[at].shape[2]) - 1) * stride
        if name == path:
            break
        if min(record[name][0].shape[2:]) > 1:  # then the input pools
            side, stride = side + stride, 2 * stride
    return Field(side, stride)


def _maps(model: nn.Module) -> list[str]:
    return [name for name in taps(model) if PICTURE_MAPS in f".{name}"]


def _chosen(model: nn.Module, layer: int | str | None) -> str:
    found = required(_maps(model), model, "picture filters", "it reads no pictures through 2-D filters")
    return chosen({path: path for path in found}, 0 if layer is None else layer, "layers with 2-D filters")


def _heard(subject: Subject, reading: Reading, path: str) -> np.ndarray:
    """[filters,Y,X] the maps of the one picture of a reading in a layer."""
    maps: np.ndarray = heard(subject, reading, [path])[path][0][0].double().cpu().numpy()
    return maps


def _picture(reading: Reading) -> np.ndarray:
    """[Y,X,C] the pixels of the one picture of a reading."""
    pixels: np.ndarray = reading.inputs[0].double().cpu().numpy()
    return pixels


def _loudest(peaks: np.ndarray, cells: int) -> list[int]:
    """The filters that are drawn: as many as fit, the loudest, in the order of their numbers."""
    count = max(1, min(MOST_TILES, CELLS // max(cells, 1)))
    return sorted(int(number) for number in np.argsort(-peaks, kind="stable")[:count])
