"""The contextual vectors of inputs of any length, read through overlapping windows.

    words       0   1   2   3   4   5   6   7   8   9  10  11
    window      [===============-------]                          each window answers where it is marked ===:
                        [-------=======-------]                   an element is answered by the window in which
                                        [-------===============]  it stands furthest from a border

Windows begin half a window apart, so every answer has seen a quarter of a window on both sides at least, or all that
there is. A model is thus never asked about more than it has seen in training, nor about a position that it has no
vector for. What reads the vectors of the whole, a head, knows nothing of windows: there is one loss and one best path.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.data.loader import Loader
from seqloom.nn.models import ElementModel
from seqloom.nn.types import Batch, Padded, Spelled, Subwords, places_of

LEAST = 32  # symbols or steps of a window: what was trained on a few words may be asked about a sentence
USUAL = 512  # where it is not known how long the inputs of training were
BUDGET = 8_192  # symbols or steps that are read at once


class TextWindow(NamedTuple):
    """A stretch of words or steps, and the part of it that it answers for."""

    start: int
    stop: int
    first: int
    last: int  # the first one that it does not answer for


def window_size(model: ElementModel, longest: int) -> int:
    """How many symbols or steps a model reads at once, if the longest input of its training had so many; 0: unknown."""
    size, limit = max(LEAST, longest) if longest else USUAL, model.config.encoder.limit()
    return size if limit is None else min(size, limit)


def windows(ends: np.ndarray, size: int) -> list[TextWindow]:
    """The windows over words whose pieces end at these places, each of `size` pieces at most, or of one long word.

    >>> [tuple(one) for one in windows(np.arange(1, 13), 6)]
    [(0, 6, 0, 5), (3, 9, 5, 8), (6, 12, 8, 12)]
    """
    begins = np.concatenate([[0], ends[:-1]])
    starts, stops = [0], [_stop(begins, ends, 0, size)]
    while stops[-1] < len(ends):
        middle = int(np.searchsorted(begins, begins[starts[-1]] + size // 2))
        starts.append(min(stops[-1], max(starts[-1] + 1, middle)))
        stops.append(_stop(begins, ends, starts[-1], size))
    if len(starts) > 1:  # the last window is as full as the others
        starts[-1] = min(starts[-1], int(np.searchsorted(begins, ends[-1] - size)))
    borders = [0, *((start + stop + 1) // 2 for start, stop in zip(starts[1:], stops, strict=False)), len(ends)]
    return [TextWindow(*one) for one in zip(starts, stops, borders[:-1], borders[1:], strict=True)]


def _stop(begins: np.ndarray, ends: np.ndarray, start: int, size: int) -> int:
    """The first word behind a window that begins with the word `start`; one word at least is in it."""
    return max(start + 1, int(np.searchsorted(ends, begins[start] + size, side="right")))


def features(model: ElementModel, inputs: Any, size: int) -> Padded:
    """What `model.features` gives, [B,W,D]; of inputs longer than `size`, window by window."""
    if int(_read(inputs).lengths.max()) <= size:
        return model.features(inputs)
    words = inputs.firsts if isinstance(inputs, Subwords) else _read(inputs)
    ends = [_ends(inputs, row) for row in range(len(words.lengths))]
    planned = [
        (row, window) for row, of_row in enumerate(ends) for window in (windows(of_row, size) if len(of_row) else ())
    ]
    vectors: Tensor | None = None
    for some in _groups(planned, max(1, BUDGET // size)):
        found = model.features(_cut(inputs, some, ends, size)).values
        if vectors is None:
            vectors = found.new_zeros(*words.values.shape[:2], found.shape[-1])
        for (row, window), values in zip(some, found, strict=True):
            begin = window.first - window.start
            vectors[row, window.first : window.last] = values[begin : begin + window.last - window.first]
    assert vectors is not None, "a row is longer than a window"
    return Padded(vectors, words.lengths, None, words.full)


def _read(inputs: Any) -> Padded:
    """What is read one by one: the pieces of words, words with their letters, or steps."""
    read: Padded = inputs[0] if isinstance(inputs, Subwords | Spelled) else inputs
    return read


def _groups(planned: Sequence[tuple[int, TextWindow]], count: int) -> Iterator[Sequence[tuple[int, TextWindow]]]:
    return (planned[start : start + count] for start in range(0, len(planned), count))


def _ends(inputs: Any, row: int) -> np.ndarray:
    """[W] where the pieces of each word of a row end; a step is a word of one piece."""
    if not isinstance(inputs, Subwords):
        return np.arange(1, int(_read(inputs).lengths[row]) + 1)
    firsts = inputs.firsts.values[row, : int(inputs.firsts.lengths[row])].cpu().numpy()
    return np.append(firsts[1:], int(inputs.pieces.lengths[row]))[: len(firsts)]


def _cut(inputs: Any, some: Sequence[tuple[int, TextWindow]], ends: Sequence[np.ndarray], size: int) -> Any:
    """The inputs of some windows, each as a row of its own."""
    rows = torch.tensor([row for row, _ in some])
    words = torch.tensor([(window.start, window.stop) for _, window in some])
    if isinstance(inputs, Spelled):
        letters = Padded(inputs.letters, inputs.words.lengths)
        return Spelled(_stretches(inputs.words, rows, words), _stretches(letters, rows, words).values)
    if not isinstance(inputs, Subwords):
        return _stretches(inputs, rows, words)
    begins = [int(ends[row][window.start - 1]) if window.start else 0 for row, window in some]
    stops = [int(ends[row][window.stop - 1]) for row, window in some]
    pieces = torch.tensor([(begin, min(stop, begin + size)) for begin, stop in zip(begins, stops, strict=True)])
    firsts = _stretches(inputs.firsts, rows, words)
    inside = firsts.values - pieces[:, :1].to(firsts.values.device)
    return Subwords(_stretches(inputs.pieces, rows, pieces), firsts.with_values(inside))


def _stretches(x: Padded, rows: Tensor, borders: Tensor) -> Padded:
    """Elements start..stop of the chosen rows; borders [N,2]."""
    lengths, device = borders[:, 1] - borders[:, 0], x.values.device
    places = (borders[:, :1] + torch.arange(int(lengths.max()))).clamp(max=x.values.shape[1] - 1)
    return Padded.of(x.values[rows[:, None].to(device), places.to(device)], lengths.to(device))


# Documents in batches of text: which one each element belongs to, whether rows hold one each or several, packed.


def document_numbers(inputs: Padded) -> np.ndarray:
    """[B,T] the document that each element belongs to, counted in reading order; rows are one each unless packed."""
    rows, time = inputs.values.shape[:2]
    if inputs.segments is None:
        return np.repeat(np.arange(rows), time).reshape(rows, time)
    within = places_of(inputs).segments.cpu().numpy()  # 1, 2, ... in each row, -1 in the padding
    counts = within.max(axis=1)
    before: np.ndarray = np.cumsum(counts) - counts - 1
    return np.asarray(within + before[:, None])


def summed(values: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """[count] the sums of values that share a number, in float64."""
    return np.bincount(numbers, weights=values, minlength=count)


def named_packs(loader: Loader[Any, Any], rows: np.ndarray) -> Loader[Any, Any]:
    """The same steps; documents are called by their rows of the prepared data, not by their numbers in the part."""
    make_batch = loader.make_batch

    def named(packed: Any) -> Batch[Padded, Tensor]:
        batch = make_batch(packed)
        return batch._replace(ids=tuple(str(rows[int(id_)]) for id_ in batch.ids))  # type: ignore[no-any-return]

    loader.make_batch = named
    return loader
