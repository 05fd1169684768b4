"""2-D filters of images: activation maps by layer, and the patches with the highest activation of each filter.

A cell of a map corresponds to a square of the image, its *receptive field*. Over layers with k x k filters and 2 x 2
maximum pooling between them

    side' = side + (k - 1) * stride        after pooling: side' = side + stride, stride' = 2 * stride

starting with side = 1 and stride = 1, and cell (y, x) starts at pixel (y * stride, x * stride).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import nn

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.layer_names import layer_title
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
    """The receptive field of a cell of a map."""

    side: int
    stride: int

    def patch(self, picture: np.ndarray, y: int, x: int) -> np.ndarray:
        """The pixels [side,side,C] of a cell."""
        top, left = y * self.stride, x * self.stride
        return picture[top : top + self.side, left : left + self.side]


class Patch(NamedTuple):
    """A part of an image with a high activation."""

    reading: int  # index of the picture
    y: int  # of its upper left pixel
    x: int
    activation: float
    pixels: np.ndarray  # [side,side] the mean over colors


@dataclass(frozen=True, kw_only=True)
class MapsView(View):
    """The activation maps of one image in one layer."""

    kind: ClassVar[str] = "maps"
    layer: str
    picture: np.ndarray  # [Y,X] the mean over colors
    maps: np.ndarray  # [filters,Y,X]
    side: int  # of the square of the picture that a cell sees

    def figures(self) -> tuple[Figure, ...]:
        shown = _most_active(self.maps.max(axis=(1, 2)), self.maps[0].size)
        tiles = [Tile(f"filter {number}", self.maps[number].tolist()) for number in shown]
        seen = HeatMap(title="Input image", values=self.picture.tolist())
        noted = f"{len(shown)} of {len(self.maps)} filters; receptive field {self.side} x {self.side} pixels."
        drawn = Tiles(
            title=f"Activation maps of {layer_title(self.layer)}",
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
        still = f"{counted(silent, 'filter')} {'is' if silent == 1 else 'are'} inactive here."
        return (f"Most active filters of {layer_title(self.layer)}: {loud}.", *([still] if silent else []))


@dataclass(frozen=True, kw_only=True)
class PictureFiltersView(View):
    """The patches with the highest activation of each filter of a layer."""

    kind: ClassVar[str] = "picture_filters"
    layer: str
    inputs: int
    patches: tuple[tuple[Patch, ...], ...]  # of each filter, the strongest first

    def figures(self) -> tuple[Figure, ...]:
        size = self.patches[0][0].pixels.size * len(self.patches[0])
        peaks = np.array([patches[0].activation for patches in self.patches])
        loudest = _most_active(peaks, size)
        shown = [unit for unit in loudest if peaks[unit] > 0] or loudest[:1]
        tiles = [
            Tile(f"{unit}: {number(patch.activation)}", patch.pixels.tolist())
            for unit in shown
            for patch in self.patches[unit]
        ]
        side = len(self.patches[0][0].pixels)
        noted = f"Each row belongs to one filter: filter number and activation. Patches of {side} x {side} pixels."
        across = len(self.patches[0])
        title = "The patches that activate each filter most"
        return (Tiles(title=title, caption=noted, tiles=tiles, across=across, value_label="brightness"),)

    def _sentences(self) -> tuple[str, ...]:
        dead = [number for number, patches in enumerate(self.patches) if patches[0].activation <= 0]
        summary = f"{counted(len(self.patches), 'filter')}, {counted(self.inputs, 'image')}."
        return (summary, *([f"Never active: {', '.join(map(str, dead))}."] if dead else []))


def activation_maps(subject: Subject, reading: Reading, *, layer: int | str | None = None) -> MapsView:
    """The activation maps of one image.

    Args:
        layer: Number or path of a layer with 2-D filters (default: the first).
    """
    path = _chosen(subject.model, layer)
    return MapsView(
        title=f"Activation maps of {layer_title(path)}",
        layer=path,
        picture=_picture(reading).mean(axis=2),
        maps=_layer_maps(subject, reading, path),
        side=field(subject, reading, path).side,
    )


def picture_filters(
    subject: Subject, readings: Sequence[Reading], *, layer: int | str | None = None, top_k: int = 4
) -> PictureFiltersView:
    """The patches with the highest activation of each filter, at most one from each image.

    Args:
        layer: Number or path of a layer with 2-D filters (default: the first).
        top_k: Patches for each filter.
    """
    path = _chosen(subject.model, layer)
    if not readings:
        raise DataError("no image was given", fix="give at least one")
    if not 1 <= top_k <= MOST_PATCHES:
        raise ConfigError(f"top_k is {top_k}", fix=f"give 1 to {MOST_PATCHES}")
    square, best = field(subject, readings[0], path), list[list[Patch]]()
    for at, reading in enumerate(readings):
        picture, maps = _picture(reading), _layer_maps(subject, reading, path)
        best = best or [[] for _ in maps]
        for kept, each in zip(best, maps, strict=True):  # the strongest cell of each filter on this picture
            y, x = (int(place) for place in np.unravel_index(int(each.argmax()), each.shape))
            value = float(each[y, x])
            if len(kept) < top_k or value > kept[-1].activation:
                pixels = square.patch(picture, y, x).mean(axis=2)
                kept.append(Patch(at, y * square.stride, x * square.stride, value, pixels))
                kept.sort(key=lambda one: -one.activation)
                del kept[top_k:]
    found = tuple(map(tuple, best))
    return PictureFiltersView(title=f"Filters of {layer_title(path)}", layer=path, inputs=len(readings), patches=found)


def field(subject: Subject, reading: Reading, path: str) -> Field:
    """The receptive field of the cells of a layer."""
    every = _maps(subject.model)
    record = heard(subject, reading, every)
    side, stride = 1, 1
    for at, name in enumerate(every):
        owner: Any = subject.model.get_submodule(name.rpartition(".maps.")[0])
        side += (int(owner.weights[at].shape[2]) - 1) * stride
        if name == path:
            break
        if min(record[name][0].shape[2:]) > 1:  # then the input is pooled
            side, stride = side + stride, 2 * stride
    return Field(side, stride)


def _maps(model: nn.Module) -> list[str]:
    return [name for name in taps(model) if PICTURE_MAPS in f".{name}"]


def _chosen(model: nn.Module, layer: int | str | None) -> str:
    found = required(_maps(model), model, "image filters", "it has no 2-D convolution over images")
    return chosen({path: path for path in found}, 0 if layer is None else layer, "layers with 2-D filters")


def _layer_maps(subject: Subject, reading: Reading, path: str) -> np.ndarray:
    """[filters,Y,X] the maps of an image in a layer."""
    maps: np.ndarray = heard(subject, reading, [path])[path][0][0].double().cpu().numpy()
    return maps


def _picture(reading: Reading) -> np.ndarray:
    """[Y,X,C] the pixels of an image."""
    pixels: np.ndarray = reading.inputs[0].double().cpu().numpy()
    return pixels


def _most_active(peaks: np.ndarray, cells: int) -> list[int]:
    """The most active filters, as many as can be drawn, in the order of their numbers."""
    count = max(1, min(MOST_TILES, CELLS // max(cells, 1)))
    return sorted(int(number) for number in np.argsort(-peaks, kind="stable")[:count])
