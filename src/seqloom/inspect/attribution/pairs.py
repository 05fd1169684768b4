"""A similarity by pairs of tokens: how much each word of one text contributes together with each word of the other.

The cosine of two texts is u . v, with u and v their vectors normalized to length 1. Along the path from a baseline to
its text, each vector is a sum over tokens, so their product is a sum over pairs:

    u(a) - u(r) = sum_i U_i     U_i = int_0^1 (du/da_i)(a_i - r_i)      "integrated Jacobians", Moeller et al. 2023
    A_ij        = U_i . V_j     sum_ij A_ij = (u(a) - u(r)) . (v(b) - v(r))

This method is the default because its cells sum to the similarity. `occlusion` instead measures (u(a) - u(a without i))
. (v(b) - v(b without j)): the loss without both tokens of a pair that neither loss alone explains. It needs one forward
pass per token, and its cells have no meaningful sum. Derivatives are central differences, in one direction per token:
they need forward passes only, two per token at each of 16 to 256 steps, so they work for every model family.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.attribution.attribution import largest_cells, merged, summed
from seqloom.inspect.attribution.goals import AttributionGround, at_work, ground_of
from seqloom.inspect.attribution.gradients import AttributionPath, completed
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.nn.types import Both
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.numbers import number, share

STEP = 1 / 512  # of the distance between a token and its baseline, in both directions
MOST_STEPS = 256
MOST_ELEMENTS = 2**22  # tokens that are read along the path of one text: minutes for a small model
LONGEST = {"integrated_gradients": 256, "occlusion": MEDIUM}  # tokens: each moves separately, at every step or once
COMPLETE = 0.003  # relative to the change of each of the two vectors
STRONGEST = 16
PART = "contribution to the similarity"


@dataclass(frozen=True, kw_only=True)
class SimilarityPairsView(View):
    """How much each pair of tokens contributes to the similarity of two texts."""

    kind: ClassVar[str] = "similarity_pairs"
    method: str
    baseline: str
    similarity: float
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray  # [T1,T2]
    expected: float  # sum of all pairs
    error: float | None  # of completeness; None for occlusion

    def figures(self) -> tuple[Figure, ...]:
        cells = self.values.tolist()
        if max(self.values.shape) <= SMALL and self.values.size <= MOST_CELLS:
            matrix: Figure = Matrix(
                title=self.title, values=cells, rows=self.rows, columns=self.columns, x_label="second", y_label="first"
            )
        else:
            matrix = HeatMap(
                title=self.title,
                values=cells,
                x_label="token of the second text",
                y_label="token of the first text",
                value_label=PART,
            )
        chosen = largest_cells(self.values, STRONGEST)
        strongest = Bars(
            title="Strongest pairs",
            labels=[f"{row}: {self.rows[row]} – {column}: {self.columns[column]}" for row, column in chosen],
            values=[float(np.nan_to_num(self.values[pair])) for pair in chosen],
            x_label=PART,
        )
        return matrix, strongest

    def _sentences(self) -> tuple[str, ...]:
        start = f"Similarity {number(self.similarity)}; baseline: {self.baseline}"
        if self.error is None:
            return (f"{start}. The values do not sum to the similarity: compare them only with each other.",)
        return (
            f"{start}. All pairs sum to {number(np.nansum(self.values))}. They explain the product of the two text "
            "vectors, "
            f"each minus its baseline, {number(self.expected)}, not the similarity itself: completeness error "
            f"{share(self.error)}.",
        )


def similarity_pairs(
    subject: Subject,
    reading: Reading,
    *,
    method: str = "integrated_gradients",
    baseline: str | None = None,
    words: bool = False,
) -> SimilarityPairsView:
    """How much each pair of tokens contributes to the similarity of two texts.

    `method` is integrated_gradients or occlusion.
    """
    if method not in MEASURES:
        raise ConfigError(f"there is no method '{method}' for pairs", fix=did_you_mean(method, MEASURES))
    if not isinstance(reading.inputs, Both):
        raise DataError("this view needs two texts", fix="give a pair of texts")
    if max(len(side.tokens) for side in reading.sides) > LONGEST[method]:
        raise DataError(
            f"texts of more than {LONGEST[method]} tokens have too many pairs for method {method}",
            fix=f"give shorter texts; occlusion takes up to {LONGEST['occlusion']} tokens",
        )
    ground = ground_of(subject, reading, baseline)
    with at_work(ground), torch.no_grad():
        first, second = subject.made("texts", (0, 1), lambda at: MEASURES[method](ground, at))  # each [E,D]
        ends = [_units(ground, at, torch.stack([ground.here[at], ground.base[at]])).double() for at in (0, 1)]
    values = (first @ second.T).numpy()
    values[~ground.free(0)], values[:, ~ground.free(1)] = np.nan, np.nan
    rows, columns = (merged(place.tokens, words=words) for place in ground.places)
    expected = float((ends[0][0] - ends[0][1]) @ (ends[1][0] - ends[1][1]))
    total = float(np.nansum(values))
    return SimilarityPairsView(
        title=f"Pairs of tokens and the similarity: {method}",
        method=method,
        baseline=ground.baseline,
        similarity=float(ends[0][0] @ ends[1][0]),
        rows=tuple(token.text for token in rows[0]),
        columns=tuple(token.text for token in columns[0]),
        values=summed(summed(values, rows[1]).T, columns[1]).T,
        expected=expected,
        error=None if method == "occlusion" else abs(total - expected) / max(abs(expected), 1e-12),
    )


def _units(ground: AttributionGround, place: int, values: Tensor) -> Tensor:
    """Return the normalized vectors [N,D] of a text from [N,E,D] in its place."""
    alone = ground.places[place]._replace(field=None, call=0)
    reads = ground._replace(reading=ground.reading._replace(inputs=alone.raw), places=(alone,))
    parts = torch.split(values, ground.rows_at_once)
    return torch.cat([F.normalize(reads.scores([some])[:, 0], dim=-1) for some in parts])


def _integrated(ground: AttributionGround, place: int) -> Tensor:
    """Return the contribution [E,D] of each token to the vector of its text."""
    here, base = ground.here[place], ground.base[place]

    def value(shares: Sequence[float]) -> np.ndarray:
        steps = torch.tensor(shares).to(here)[:, None, None]
        return _units(ground, place, base + steps * (here - base)).double().cpu().numpy()

    rise = np.linalg.norm(np.diff(value([0.0, 1.0]), axis=0)) + 1e-12
    most = min(MOST_STEPS, MOST_ELEMENTS // (2 * len(here) ** 2))
    with ground.subject.work("steps at most", most) as moved:

        def slope(shares: np.ndarray) -> np.ndarray:
            found = list[np.ndarray]()
            for share in shares:
                found.append(_jacobian(ground, place, float(share)))
                moved(1)
            return np.stack(found)

        way = AttributionPath(slope, value, lambda missing: np.linalg.norm(missing, axis=1) / (COMPLETE * rise))
        return torch.from_numpy(completed(way, most)[0])


def _jacobian(ground: AttributionGround, place: int, share: float) -> np.ndarray:
    """Return the derivative [E,D] of a text's vector as each token moves separately along the path."""
    here, base = ground.here[place], ground.base[place]
    at = base + share * (here - base)
    found = []
    for alone in _one_by_one(ground, here):
        step = alone * (here - base) * STEP
        ahead, behind = _units(ground, place, at + step), _units(ground, place, at - step)
        found.append((ahead - behind).double() / (2 * STEP))
    return torch.cat(found).cpu().numpy()


def _one_by_one(ground: AttributionGround, here: Tensor) -> tuple[Tensor, ...]:
    """Split the identity into [N,E,1] bool blocks that fit one pass; all tokens at once would need [E,E,D]."""
    return torch.split(torch.eye(len(here), dtype=torch.bool, device=here.device)[..., None], ground.rows_at_once)


def _occluded(ground: AttributionGround, place: int) -> Tensor:
    """Return the loss [E,D] of a text's vector with each token at its baseline."""
    here, base = ground.here[place], ground.base[place]
    whole = _units(ground, place, here[None])
    found = [_units(ground, place, torch.where(gone, base, here)) for gone in _one_by_one(ground, here)]
    return (whole - torch.cat(found)).double().cpu()


MEASURES: Mapping[str, Callable[[AttributionGround, int], Tensor]] = {
    "integrated_gradients": _integrated,
    "occlusion": _occluded,
}
