"""The report: may this picture be believed on this model? One sentence, and every number beside it.

    one input         token by token: explanations side by side, the cloud of shuffles, what erasing does
    several inputs    what they come to: all measures, curves, shuffles by the largest weight, agreement

Everything is asked of the model in evaluation mode with h fixed where weights are tried, and all chance comes from one
seed: the same call gives the same report.

The figures of a report: those of one input token by token, those of several as what they come to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention_weights import layers_of
from seqloom.inspect.attribution.attribution import attribution
from seqloom.inspect.attribution.methods import method_of
from seqloom.inspect.faithfulness.agreement import BINS, CHANCE, AgreementPair, pairs
from seqloom.inspect.faithfulness.alternatives import CANDIDATES, CLOSE, PERMUTATIONS, STEPS, Needed, decisions, needed
from seqloom.inspect.faithfulness.bench import require_distributions
from seqloom.inspect.faithfulness.eraser import POINTS, Curves, chosen_removal
from seqloom.inspect.faithfulness.measures import (
    Attention,
    Explain,
    MeasuredExample,
    MeasureDraws,
    MeasureOptions,
    layer_of,
    measured,
)
from seqloom.inspect.faithfulness.verdict import (
    Badge,
    Evidence,
    Level,
    MeasureSummary,
    SummaryBin,
    bins,
    evidence,
    level_of,
    mean_curves,
    measures,
    reservations,
    verdict,
)
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import number, share

CELLS = 240  # of the overview of a long input
STRONGEST = 20
ANSWERS = 20  # of which a histogram has a row each, the most frequent
LABELS = {
    "attention": "weight",
    "explanation": "given",
    "gradient": "|gradient x input|",
    "leave-one-out": "TVD without it",
}


def overview(measures: Sequence[MeasureSummary]) -> Figure:
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


def by_sharpness(bins: Sequence[SummaryBin]) -> Figure:
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


def agreement_table(pairs: Sequence[AgreementPair]) -> Figure:
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


def tau_histograms(pairs: Sequence[AgreementPair]) -> list[Figure]:
    """How many inputs have which tau, of each pair of explanations: over all answers, and by the answer."""
    names = dict.fromkeys((each.one, each.other) for each in pairs)
    return [_histogram(name, [each for each in pairs if each[:2] == name]) for name in names]


def _histogram(name: tuple[str, str], pairs: Sequence[AgreementPair]) -> Figure:
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


def _said_of_chance(pairs: Sequence[AgreementPair]) -> str:
    """The share of inputs whose tau is hardly chance, and how many have none."""
    every = pairs[0]
    if every.significant is None:
        return "it is undefined for all of them"
    return f"p ≤ {CHANCE:g} for {share(every.significant)} of them, undefined for {every.undefined} more"


def shuffles(attention: Attention) -> Figure:
    """The cloud of shuffles of one input, from the smallest to the largest."""
    found = attention.permuted
    moved = np.sort(found.moved)
    return Line(
        title="Shuffled weights",
        caption=f"Median {number(found.median)}; the largest weight is {number(found.sharpness)}.",
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


def token_figures(example: MeasuredExample) -> list[Figure]:
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


def _strongest(example: MeasuredExample) -> Figure:
    known = np.nan_to_num(example.picture, nan=-np.inf)
    chosen = [int(at) for at in np.argsort(-known, kind="stable")[:STRONGEST]]
    return Bars(
        title="The most marked tokens",
        labels=[f"{at}: {example.tokens[at].strip() or '␣'}" for at in chosen],
        values=[float(example.picture[at]) for at in chosen],
        x_label=LABELS[next(iter(example.scores))],
    )


ADVERSARIES = 20  # inputs that adversarial weights are searched for: half a second each
USUAL = "integrated"  # attribution of a model without attention
MOST_PERMUTATIONS, MOST_STEPS = 10_000, 10_000


@dataclass(frozen=True, kw_only=True)
class FaithfulnessView(View):
    """How far a picture may be believed."""

    kind: ClassVar[str] = "faithfulness"
    picture: str  # what is asked about, in words
    layer: str | None  # the path of the layer whose weights were tried
    removal: str
    evidence: Evidence
    measures: tuple[MeasureSummary, ...]
    bins: tuple[SummaryBin, ...]  # none without attention
    pairs: tuple[AgreementPair, ...]
    needed: Needed | None
    examples: tuple[MeasuredExample, ...]
    permutations: int  # of each input, as asked
    seed: int

    @property
    def level(self) -> Level:
        """How far: believed, in part, not believed."""
        return level_of(self.evidence)

    @property
    def verdict(self) -> str:
        """How far, in one sentence with its numbers."""
        return verdict(self.evidence, self.picture)

    def badge(self) -> Badge:
        """The small value that other views show."""
        if self.level == "not measured":
            return Badge()
        return Badge(
            self.level, self.evidence.comprehensiveness, self.evidence.random_comprehensiveness, self.evidence.inputs
        )

    def measure(self, name: str) -> MeasureSummary:
        """The measure of this name; DataError for one that was not taken."""
        found = {each.name: each for each in self.measures}
        if name not in found:
            raise DataError(f"'{name}' was not measured", fix=f"choose from {', '.join(found)}")
        return found[name]

    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        """The numbers, with the level and the verdict before them."""
        return {"kind": self.kind, "level": self.level, "verdict": self.verdict, **super().told_values(whole=whole)}

    def figures(self) -> tuple[Figure, ...]:
        curves = removal_curves(
            mean_curves([each.rationale.told for each in self.examples]),
            mean_curves([each.rationale.chance for each in self.examples]),
            self.removal,
        )
        common = [curves, agreement_table(self.pairs), overview(self.measures)]
        if len(self.examples) == 1:
            return (*self._of_one(self.examples[0]), *common)
        sharp = [by_sharpness(self.bins)] if self.bins else []
        return (*common, *sharp, *tau_histograms(self.pairs))

    @staticmethod
    def _of_one(example: MeasuredExample) -> list[Figure]:
        found = token_figures(example)
        if example.attention is not None:
            found.append(shuffles(example.attention))
            if example.attention.erased is not None:
                found.append(erasures(example.attention.erased.taken))
        return found

    def _sentences(self) -> tuple[str, ...]:
        return (self.verdict, *reservations(self.evidence), *self._methods())

    def _methods(self) -> list[str]:
        """How it was measured."""
        said = [f"Tokens were taken away by {'deleting' if self.removal == 'delete' else 'masking'} them."]
        searched = [each.attention.adversary for each in self.examples if each.attention and each.attention.adversary]
        if searched:
            found = sum(each.feasible for each in searched)
            said.append(
                f"{CANDIDATES} adversarial weightings were searched for on each of {len(searched)} inputs; "
                f"on {found} one leaves the answers as they are."
            )
        elif self.layer is not None:
            said.append("Adversarial weights were not searched for: not asked for, or too many weights.")
        return said + self._budgets()

    def _budgets(self) -> list[str]:
        """What was measured on a sample."""
        said = []
        tried = [len(each.attention.permuted.moved) for each in self.examples if each.attention is not None]
        if tried and min(tried) < self.permutations:
            said.append(f"Of {self.permutations} shuffles {min(tried)} were tried where the weights are most.")
        out = [int((~np.isnan(each.scores["leave-one-out"])).sum()) for each in self.examples]
        whole = [int((~np.isnan(each.scores["gradient"])).sum()) for each in self.examples]
        if out != whole:
            at = int(np.argmin(np.array(out) / whole))
            said.append(f"One by one, {out[at]:,} of {whole[at]:,} tokens of the longest input were left out.")
        return said


def faithfulness(
    subject: Subject,
    readings: Reading | list[Reading],
    *,
    layer: int | str | None = None,
    method: str | None = None,
    explain: Explain | None = None,
    removal: str | None = None,
    truths: Sequence[str | int] | None = None,
    uniform: Subject | None = None,
    others: Sequence[Subject] = (),
    permutations: int = PERMUTATIONS,
    adversaries: int = ADVERSARIES,
    steps: int = STEPS,
    close: float = CLOSE,
    seed: int = 0,
) -> FaithfulnessView:
    """How far the attention of a layer, or an attribution by `method`, may be believed on these inputs.

    Without `method` it is the attention; of a model that has none, integrated gradients. `explain` gives a number for
    each token of a reading, for explanations of one's own.
    `uniform` is a model of the same build that learnt with equal weights, `others` are models from other seeds, and
    `truths` are the right answers. `adversaries` is the number of inputs that adversarial weights are searched for.
    """
    given: list[Reading] = [readings] if isinstance(readings, Reading) else list(readings)
    wishes = MeasureOptions(layer, explain, removal=removal, permutations=permutations, steps=steps, close=close)
    wishes = _by_method(subject, given, wishes._replace(others=tuple(others)), method)
    _require(subject, given, wishes, truths, adversaries)
    draws, examples = MeasureDraws.seeded(seed), tuple[MeasuredExample, ...]()
    with subject.work("inputs", len(given)) as moved:
        for number, reading in enumerate(given):
            examples += (measured(subject, reading, wishes, draws, search=number < adversaries),)
            moved(1)
    return _view(subject, given, wishes, examples, _needed(subject, given, examples, truths, uniform), seed)


def _by_method(
    subject: Subject, given: Sequence[Reading], wishes: MeasureOptions, method: str | None
) -> MeasureOptions:
    """The wishes with an attribution as what is asked about, where one is named or there is no attention."""
    if method is not None and wishes.explain is not None:
        raise ConfigError("method and explain are given, and one picture is asked about", fix="leave one of them out")
    if method is None and (wishes.explain is not None or wishes.layer is not None or _attends(subject, given)):
        return wishes
    if any(isinstance(reading.inputs, Tensor) for reading in given):
        raise ConfigError(
            "a picture has no tokens that could be taken away: its attributions are of pixels",
            fix="look at the attribution itself, or at where filters fire: activation_maps",
        )
    name = method or USUAL
    called = f"The attribution by {method_of(name).title}"

    def explain(reading: Reading) -> np.ndarray:
        return attribution(subject, reading, method=name).parts[0].values

    return wishes._replace(explain=explain, explanation=called)


def _attends(subject: Subject, given: Sequence[Reading]) -> bool:
    try:
        return not given or bool(layers_of(subject, given[0]))
    except ConfigError:
        return False


def _view(
    subject: Subject,
    given: Sequence[Reading],
    wishes: MeasureOptions,
    examples: tuple[MeasuredExample, ...],
    found_needed: Needed | None,
    seed: int,
) -> FaithfulnessView:
    layer, found = layer_of(subject, given[0], wishes), measures(examples)
    picture = wishes.explanation if wishes.explain is not None or layer is None else f"The attention of {layer.path}"
    return FaithfulnessView(
        title="How far may the picture be believed?",
        picture=picture,
        layer=None if layer is None else layer.path,
        removal=examples[0].rationale.removal,
        evidence=evidence(found, len(examples), found_needed, of_attention=wishes.explain is None)._replace(
            alone=sum(int(np.isfinite(each.picture).sum()) < 2 for each in examples)
        ),
        measures=found,
        bins=() if layer is None else bins(examples),
        pairs=pairs([each.agreements for each in examples], [each.answer for each in examples]),
        needed=found_needed,
        examples=examples,
        permutations=wishes.permutations,
        seed=seed,
    )


def _require(
    subject: Subject, given: Sequence[Reading], wishes: MeasureOptions, truths: Sequence[Any] | None, adversaries: int
) -> None:
    """Raise before any work for what cannot be measured."""
    require_distributions(subject)
    if not given:
        raise DataError("there is no input to measure on", fix="give one reading at least")
    if truths is not None and len(truths) != len(given):
        raise DataError(f"{len(truths)} truths for {len(given)} inputs", fix="give one for each")
    for truth in truths or ():
        subject.column(truth)
    for name, value, low, high in (
        ("permutations", wishes.permutations, 1, MOST_PERMUTATIONS),
        ("steps", wishes.steps, 1, MOST_STEPS),
        ("adversaries", adversaries, 0, 10**9),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} is {value}", fix=f"take {low} to {high:,}")
    if not 0 < wishes.close < 1:
        raise ConfigError(f"close is {wishes.close}", fix="take a TVD between 0 and 1, such as 0.01")
    for reading in given:
        layer_of(subject, reading, wishes)
        chosen_removal(subject, reading, wishes.removal)
        if all(token.is_special for token in reading.sides[0].tokens):
            raise DataError("an input has nothing but special symbols", fix="leave it out")


def _needed(
    subject: Subject,
    given: Sequence[Reading],
    examples: Sequence[MeasuredExample],
    truths: Sequence[str | int] | None,
    uniform: Subject | None,
) -> Needed | None:
    """What equal weights cost; None without attention."""
    evens = [each.attention.even for each in examples if each.attention is not None]
    if not evens:
        return None
    columns = None if truths is None else [(subject.column(truth),) for truth in truths]
    if columns is not None and any(len(each.decided) != 1 for each in examples):
        raise DataError("truths are one answer for each input, and these have several", fix="leave truths out")
    again = None if uniform is None else [decisions(uniform, read(uniform, reading.given)) for reading in given]
    return needed(evens, [each.decided for each in examples], columns, again)
