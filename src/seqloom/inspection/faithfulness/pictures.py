"""The figures of a report: those of one input token by token, those of several as what they come to."""

from collections.abc import Sequence

import numpy as np

from seqloom.figures import Bars, Figure, HeatMap, Line, Matrix, Series, Strip
from seqloom.inspection.faithfulness.agreement import BINS, CHANCE, Pair
from seqloom.inspection.faithfulness.eraser import POINTS, Curves
from seqloom.inspection.faithfulness.measuring import Attention, Example
from seqloom.inspection.faithfulness.summary import Bin, Measure
from seqloom.inspection.view import MEDIUM

CELLS = 240  # of the overview of a long input
STRONGEST = 20
ANSWERS = 20  # of which a histogram has a row each, the most frequent
LABELS = {
    "attention": "weight",
    "explanation": "given",
    "gradient": "|gradient x input|",
    "leave-one-out": "TVD without it",
}


def overview(measures: Sequence[Measure]) -> Figure:
    """Every number with what eight inputs in ten lie between."""
    return Bars(
        title="All measures",
        caption="Means; the line is what one input in ten is below, and one in ten above.",
        labels=[each.name for each in measures],
        values=[each.mean for each in measures],
        intervals=[(each.low, each.high) if each.inputs > 1 else None for each in measures],
        x_label="mean over inputs",
    )


def removal_curves(told: Curves, chance: Curves, removal: str) -> Figure:
    """Probability of the answer against the share of tokens, by deletion and by insertion."""
    named = {
        "the marked tokens gone": told.deletion,
        "random tokens gone": chance.deletion,
        "the marked tokens alone": told.insertion,
        "random tokens alone": chance.insertion,
    }
    return Line(
        title=f"Tokens taken away ({removal})",
        series=[Series(name=name, x=[100 * at for at in POINTS], y=y.tolist()) for name, y in named.items()],
        x_label="% of the tokens, the most marked first",
        y_label="probability of the answer",
    )


def by_sharpness(bins: Sequence[Bin]) -> Figure:
    """How far shuffles move the answers, by the largest weight."""
    return Bars(
        title="Shuffled weights, by the largest weight",
        caption="Median TVD of 100 shuffles of each input; where weights are even a shuffle says nothing.",
        labels=[
            f"{each.low:g} to {each.high:g}: {0 if each.moved is None else each.moved.inputs} inputs" for each in bins
        ],
        values=[None if each.moved is None else each.moved.mean for each in bins],
        intervals=[None if each.moved is None else (each.moved.low, each.moved.high) for each in bins],
        x_label="TVD of the answers",
    )


def agreement_table(pairs: Sequence[Pair]) -> Figure:
    """Kendall's tau and the overlap of the top tenth, pair by pair, over all answers."""
    pairs = [each for each in pairs if each.answer is None]
    return Matrix(
        title="Do explanations agree?",
        caption="Tau is low where many irrelevant tokens stand in any order: read the overlap beside it.",
        rows=[f"{each.one}, {each.other}" for each in pairs],
        columns=["tau", "its spread", "share p ≤ 0.05", "overlap of the top tenth"],
        values=[[each.tau, each.spread, each.significant, each.overlap] for each in pairs],
        span=(-1.0, 1.0),
    )


def tau_histograms(pairs: Sequence[Pair]) -> list[Figure]:
    """How many inputs have which tau, of each pair of explanations: over all answers, and by the answer."""
    names = dict.fromkeys((each.one, each.other) for each in pairs)
    return [_histogram(name, [each for each in pairs if each[:2] == name]) for name in names]


def _histogram(name: tuple[str, str], pairs: Sequence[Pair]) -> Figure:
    every, *by_answer = pairs
    pairs = [every, *sorted(by_answer, key=lambda each: -each.inputs)[:ANSWERS]]
    edges = np.linspace(-1, 1, BINS + 1)
    return Matrix(
        title=f"Kendall's tau of {name[0]} and {name[1]}",
        caption=f"Inputs by their tau, in columns from the number above on; {_said_of_chance(pairs)}.",
        rows=["all answers" if each.answer is None else each.answer for each in pairs],
        columns=[f"{edge:.1f}" for edge in edges[:-1]],
        values=[list(each.histogram) for each in pairs],
        x_label="tau",
    )


def _said_of_chance(pairs: Sequence[Pair]) -> str:
    """The share of inputs whose tau is hardly chance, and how many have none."""
    every = pairs[0]
    if every.significant is None:
        return "it is undefined for all of them"
    return f"p ≤ {CHANCE:g} for {every.significant:.0%} of them, undefined for {every.undefined} more"


def shuffles(attention: Attention) -> Figure:
    """The cloud of shuffles of one input, from the smallest to the largest."""
    moved = np.sort(attention.permuted.moved)
    return Line(
        title="Shuffled weights",
        caption=f"Median {attention.permuted.median:.3f}; the largest weight is {attention.permuted.sharpness:.3f}.",
        series=[Series(name="TVD of the answers", x=range(1, len(moved) + 1), y=moved.tolist())],
        x_label="shuffles, sorted",
        y_label="TVD of the answers",
    )


def erasures(taken: dict[str, float | None]) -> Figure:
    """How much of one input is erased when its decision flips, by order."""
    return Bars(
        title="Weights erased until the decision flips",
        caption="The share of tokens; no value: it never flips.",
        labels=[f"by {name}" for name in taken],
        values=list(taken.values()),
        x_label="share of the tokens",
    )


def token_figures(example: Example) -> list[Figure]:
    """What each explanation says of the tokens of one input, the furthest weights with the same answer among them."""
    told = dict(example.scores)
    far = None if example.attention is None else example.attention.adversary
    if far is not None and far.weights.shape == example.picture.shape:
        told["other weights, the same answer"] = far.weights
    if len(example.tokens) > MEDIUM:
        return [_pooled(told), _strongest(example)]
    return [_strip(name, example.tokens, values) for name, values in told.items() if not np.isnan(values).all()]


def _strip(name: str, tokens: Sequence[str], values: np.ndarray) -> Figure:
    numbers = [None if np.isnan(value) else float(value) for value in values]
    return Strip(title=name.capitalize(), tokens=tokens, values=numbers, value_label=LABELS.get(name, "weight"))


def _pooled(told: dict[str, np.ndarray]) -> Figure:
    """All tokens as rows of cells, each row on the scale of its own largest number."""
    count = len(next(iter(told.values())))
    across = -(-count // CELLS)
    starts = np.arange(0, count, across)
    rows = [_cells(np.abs(values), starts) for values in told.values()]
    names = ", ".join(f"row {number}: {name}" for number, name in enumerate(told))
    return HeatMap(
        title="The whole input",
        caption=f"The largest of {across} tokens in each cell, as a share of the largest of its row; {names}.",
        values=[[None if np.isnan(value) else float(value) for value in row] for row in rows],
        x=starts.astype(float).tolist(),
        x_label="token",
        value_label="share of the largest",
    )


def _cells(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The largest value from each start on, as a share of the largest of all; NaN where no token has any."""
    known = np.maximum.reduceat(np.nan_to_num(values, nan=-1.0), starts)
    found: np.ndarray = np.where(known < 0, np.nan, known / max(known.max(), np.finfo(float).tiny))
    return found


def _strongest(example: Example) -> Figure:
    known = np.nan_to_num(example.picture, nan=-np.inf)
    chosen = [int(at) for at in np.argsort(-known, kind="stable")[:STRONGEST]]
    return Bars(
        title="The most marked tokens",
        labels=[f"{at}: {example.tokens[at].strip() or '␣'}" for at in chosen],
        values=[float(example.picture[at]) for at in chosen],
        x_label=LABELS[next(iter(example.scores))],
    )
