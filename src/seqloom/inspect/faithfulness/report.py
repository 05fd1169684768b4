"""The faithfulness report: one verdict, and the numbers behind it.

    one input         by token: explanations side by side, the distribution of shuffles, the effect of erasing
    several inputs    summaries: all measures, curves, shuffles by the largest weight, agreement

The model is in evaluation mode, with h fixed where weights are tried. All random numbers come from one seed, so the
same call returns the same report.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention_weights import layers_of
from seqloom.inspect.attribution.attribution import attribution
from seqloom.inspect.attribution.methods import method_of
from seqloom.inspect.faithfulness.alternatives import (
    CANDIDATES,
    PERMUTATIONS,
    STEPS,
    TOLERANCE,
    UniformComparison,
    decisions,
)
from seqloom.inspect.faithfulness.bench import require_distributions
from seqloom.inspect.faithfulness.explanations import BINS, CHANCE, POINTS, AgreementPair, Curves, chosen_removal, pairs
from seqloom.inspect.faithfulness.measures import (
    Attention,
    Badge,
    Evidence,
    Explain,
    Level,
    MeasuredExample,
    MeasureDraws,
    MeasureOptions,
    MeasureSummary,
    SummaryBin,
    bins,
    evidence,
    layer_of,
    level_of,
    mean_curves,
    measured,
    measures,
    reservations,
    verdict,
)
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, View, strongest_in
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted, number, share

CELLS = 240  # of the overview of a long input
STRONGEST = 20
ANSWERS = 20  # the most frequent predictions, which get a row in the histogram
LABELS = {
    "attention": "weight",
    "explanation": "score",
    "gradient": "|gradient x input|",
    "leave-one-out": "TVD without the token",
}


def overview(measures: Sequence[MeasureSummary]) -> Figure:
    """Each measure with the range of 80% of the inputs."""
    return Bars(
        title="All measures",
        caption="Means over inputs; the line spans the 10th to the 90th percentile.",
        labels=[each.name for each in measures],
        values=[each.mean for each in measures],
        intervals=[(each.low, each.high) if each.inputs > 1 else None for each in measures],
        x_label="mean over inputs",
    )


def removal_curves(told: Curves, chance: Curves, removal: str) -> Figure:
    """Probability of the prediction against the share of tokens, by deletion and by insertion."""
    named = {
        "top tokens removed": told.deletion,
        "random tokens removed": chance.deletion,
        "only top tokens": told.insertion,
        "only random tokens": chance.insertion,
    }
    return Line(
        title=f"Removing tokens ({removal})",
        series=[Series(name=name, x=[100 * at for at in POINTS], y=y.tolist()) for name, y in named.items()],
        x_label="% of the tokens, highest score first",
        y_label="probability of the prediction",
    )


def by_sharpness(bins: Sequence[SummaryBin]) -> Figure:
    """How far shuffles move the predictions, by the largest weight."""
    return Bars(
        title="Shuffled weights, by the largest weight",
        caption="Median TVD over the shuffles of each input; shuffling uniform weights changes nothing.",
        labels=[f"{each.low:g} to {each.high:g}: {0 if each.tvd is None else each.tvd.inputs} inputs" for each in bins],
        values=[None if each.tvd is None else each.tvd.mean for each in bins],
        intervals=[None if each.tvd is None else (each.tvd.low, each.tvd.high) for each in bins],
        x_label="TVD of the predictions",
    )


def agreement_table(pairs: Sequence[AgreementPair]) -> Figure:
    """Kendall's tau and the overlap of the top tenth of each pair, over all predictions."""
    pairs = [each for each in pairs if each.answer is None]
    return Matrix(
        title="Agreement of explanations",
        caption="Tau is low when many irrelevant tokens are ranked at random, so compare the overlap too.",
        rows=[f"{each.one}, {each.other}" for each in pairs],
        columns=["tau", "standard deviation", "share p ≤ 0.05", "overlap of the top 10 %"],
        values=[[each.tau, each.spread, each.significant, each.overlap] for each in pairs],
        span=(-1.0, 1.0),
    )


def tau_histograms(pairs: Sequence[AgreementPair]) -> list[Figure]:
    """Histograms of tau for each pair of explanations: over all predictions, and by prediction."""
    found = list[Figure]()
    for name in dict.fromkeys((each.one, each.other) for each in pairs):
        every, *by_answer = (each for each in pairs if each[:2] == name)
        shown = [every, *sorted(by_answer, key=lambda each: -each.inputs)[:ANSWERS]]
        chance = "tau is undefined for all inputs"
        if every.significant is not None:
            chance = f"p ≤ {CHANCE:g} for {share(every.significant)} of them; undefined for {every.undefined} more"
        matrix = Matrix(
            title=f"Kendall's tau of {name[0]} and {name[1]}",
            caption=f"Number of inputs by tau (lower edge of each column); {chance}.",
            rows=["all answers" if each.answer is None else each.answer for each in shown],
            columns=[f"{edge:.1f}" for edge in np.linspace(-1, 1, BINS + 1)[:-1]],
            values=[list(each.histogram) for each in shown],
            x_label="tau",
        )
        found.append(matrix)
    return found


def shuffles(attention: Attention) -> Figure:
    """The distribution of shuffles of one input."""
    found = attention.permuted
    moved = np.sort(found.tvd)
    return Line(
        title="Shuffled weights",
        caption=f"Median {number(found.median)}; the largest weight is {number(found.max_weight)}.",
        series=[Series(name="TVD of the predictions", x=range(1, len(moved) + 1), y=moved.tolist())],
        x_label="shuffles, sorted",
        y_label="TVD of the predictions",
    )


def erasures(taken: dict[str, float | None]) -> Figure:
    """The fraction of one input that is erased when its decision flips, by order."""
    return Bars(
        title="Weights erased until the prediction flips",
        caption="Share of tokens; no value: it never flips.",
        labels=[f"by {name}" for name in taken],
        values=list(taken.values()),
        x_label="share of the tokens",
    )


def token_figures(example: MeasuredExample) -> list[Figure]:
    """The values of each explanation for the tokens of one input, with adversarial weights if there are any."""
    explanations = dict(example.scores)
    far = None if example.attention is None else example.attention.adversary
    if far is not None and far.weights.shape == example.explanation.shape:
        explanations["other weights, same prediction"] = far.weights
    if len(example.tokens) <= MEDIUM:
        return [
            Strip(
                title=name.capitalize(),
                tokens=example.tokens,
                values=values.tolist(),
                value_label=LABELS.get(name, "weight"),
            )
            for name, values in explanations.items()
            if not np.isnan(values).all()
        ]
    across = -(-len(example.tokens) // CELLS)
    names = ", ".join(f"row {number}: {name}" for number, name in enumerate(explanations))
    rows = [strongest_in(np.abs(values), across) for values in explanations.values()]
    whole = HeatMap(
        title="Overview of the input",
        caption=f"Each cell is the largest of {across} tokens, relative to the largest of its row; {names}.",
        values=[(row / np.nanmax(row, initial=np.finfo(float).tiny)).tolist() for row in rows],
        x=[float(at) for at in range(0, len(example.tokens), across)],
        x_label="token",
        value_label="relative to the largest",
    )
    chosen = np.argsort(-np.nan_to_num(example.explanation, nan=-np.inf), kind="stable")[:STRONGEST]
    strongest = Bars(
        title="Tokens with the highest scores",
        labels=[f"{at}: {example.tokens[at].strip() or '␣'}" for at in chosen],
        values=example.explanation[chosen].tolist(),
        x_label=LABELS[next(iter(example.scores))],
    )
    return [whole, strongest]


ADVERSARIES = 20  # inputs with an adversarial search: half a second each
USUAL = "integrated_gradients"  # attribution for a model without attention
MOST_PERMUTATIONS, MOST_STEPS = 10_000, 10_000


@dataclass(frozen=True, kw_only=True)
class FaithfulnessView(View):
    """How far a picture can be trusted."""

    kind: ClassVar[str] = "faithfulness"
    explanation: str  # the tested explanation, in words
    layer: str | None  # path of the layer whose weights were tried
    removal: str
    evidence: Evidence
    measures: tuple[MeasureSummary, ...]
    bins: tuple[SummaryBin, ...]  # empty without attention
    agreements: tuple[AgreementPair, ...]
    uniform_weights: UniformComparison | None
    examples: tuple[MeasuredExample, ...]
    permutations: int  # per input, as requested
    seed: int

    @property
    def level(self) -> Level:
        """The level: faithful, in part, or not."""
        return level_of(self.evidence)

    @property
    def verdict(self) -> str:
        """The verdict in one sentence, with its numbers."""
        return verdict(self.evidence, self.explanation)

    def badge(self) -> Badge:
        """The badge that other views show."""
        if self.level == "not measured":
            return Badge()
        return Badge(
            self.level, self.evidence.comprehensiveness, self.evidence.random_comprehensiveness, self.evidence.inputs
        )

    def measure(self, name: str) -> MeasureSummary:
        """Return the measure of this name; raise DataError if it was not taken."""
        found = {each.name: each for each in self.measures}
        if name not in found:
            raise DataError(f"'{name}' was not measured", fix=f"choose from {', '.join(found)}")
        return found[name]

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        """Return the values, level and verdict first."""
        return {"kind": self.kind, "level": self.level, "verdict": self.verdict, **super().json_values(full=full)}

    def figures(self) -> tuple[Figure, ...]:
        curves = removal_curves(
            mean_curves([each.rationale.marked for each in self.examples]),
            mean_curves([each.rationale.random for each in self.examples]),
            self.removal,
        )
        common = [curves, agreement_table(self.agreements), overview(self.measures)]
        if len(self.examples) > 1:
            sharp = [by_sharpness(self.bins)] if self.bins else []
            return (*common, *sharp, *tau_histograms(self.agreements))
        found, attention = token_figures(self.examples[0]), self.examples[0].attention
        if attention is not None:
            found.append(shuffles(attention))
            if attention.erased is not None:
                found.append(erasures(attention.erased.taken))
        return (*found, *common)

    def _sentences(self) -> tuple[str, ...]:
        return (self.verdict, *reservations(self.evidence), *self._methods())

    def _methods(self) -> list[str]:
        """Describe how the measures were taken."""
        sentences = [f"Tokens were removed by {'deleting' if self.removal == 'delete' else 'masking'} them."]
        searched = [each.attention.adversary for each in self.examples if each.attention and each.attention.adversary]
        if searched:
            found = sum(each.feasible for each in searched)
            sentences.append(
                f"Adversarial attention: {CANDIDATES} searches on each of {counted(len(searched), 'input')}; "
                f"found other weights with the same prediction on {found}."
            )
        elif self.layer is not None:
            sentences.append("Adversarial attention was not searched: adversaries=0, or too many weights.")
        tried = [len(each.attention.permuted.tvd) for each in self.examples if each.attention is not None]
        if tried and min(tried) < self.permutations:
            sentences.append(f"Only {min(tried)} of {self.permutations} shuffles were run on the largest input.")
        out = [int((~np.isnan(each.scores["leave-one-out"])).sum()) for each in self.examples]
        whole = [int((~np.isnan(each.scores["gradient"])).sum()) for each in self.examples]
        if out != whole:
            at = int(np.argmin(np.array(out) / whole))
            sentences.append(f"Leave-one-out used {out[at]:,} of {whole[at]:,} tokens of the longest input.")
        return sentences


def faithfulness(
    subject: Subject,
    readings: Reading | list[Reading],
    *,
    layer: int | str | None = None,
    method: str | None = None,
    explain: Explain | None = None,
    removal: str | None = None,
    labels: Sequence[str | int] | None = None,
    uniform_model: Subject | None = None,
    other_seeds: Sequence[Subject] = (),
    permutations: int = PERMUTATIONS,
    adversaries: int = ADVERSARIES,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> FaithfulnessView:
    """How far the attention of a layer, or an attribution by `method`, can be trusted on these inputs.

    By default the attention is tested, or integrated gradients for a model without attention. `explain` returns a
    number for each token of a reading, for your own explanations. `uniform_model` is a model of the same architecture
    that was trained with uniform weights, and `other_seeds` are models from other seeds. `adversaries` is the number of
    inputs with an adversarial search.
    """
    given: list[Reading] = [readings] if isinstance(readings, Reading) else list(readings)
    options = MeasureOptions(
        layer, explain, removal=removal, permutations=permutations, steps=steps, tolerance=tolerance
    )
    options = _by_method(subject, given, options._replace(other_seeds=tuple(other_seeds)), method)
    _require(subject, given, options, labels, adversaries)
    draws = MeasureDraws(seed)
    examples = subject.made(
        "inputs",
        range(len(given)),
        lambda at: measured(subject, given[at], options, draws, search=at < adversaries),
    )
    cost = _needed(subject, given, examples, labels, uniform_model)
    tried, found = layer_of(subject, given[0], options), measures(examples)
    picture = options.explanation if options.explain is not None or tried is None else f"Attention of {tried.path}"
    return FaithfulnessView(
        title="Faithfulness",
        explanation=picture,
        layer=None if tried is None else tried.path,
        removal=examples[0].rationale.removal,
        evidence=evidence(found, examples, cost, of_attention=options.explain is None),
        measures=found,
        bins=() if tried is None else bins(examples),
        agreements=pairs([each.agreements for each in examples], [each.answer for each in examples]),
        uniform_weights=cost,
        examples=tuple(examples),
        permutations=options.permutations,
        seed=seed,
    )


def _by_method(
    subject: Subject, given: Sequence[Reading], options: MeasureOptions, method: str | None
) -> MeasureOptions:
    """Return the options with an attribution as the explanation, if one is named or the model has no attention."""
    if method is not None and options.explain is not None:
        raise ConfigError("method and explain are both given", fix="leave one of them out")
    if method is None:
        if not given or options.explain is not None or options.layer is not None:
            return options
        with suppress(ConfigError):  # a model without attention
            layers_of(subject, given[0])
            return options
    if any(isinstance(reading.inputs, Tensor) for reading in given):
        raise ConfigError(
            "an image has no tokens to remove: its attributions are for pixels",
            fix="choose attribution or activation_maps",
        )
    name = method or USUAL
    called = f"Attribution by {method_of(name).title}"

    def explain(reading: Reading) -> np.ndarray:
        return attribution(subject, reading, method=name).parts[0].values

    return options._replace(explain=explain, explanation=called)


def _require(
    subject: Subject, given: Sequence[Reading], options: MeasureOptions, labels: Sequence[Any] | None, adversaries: int
) -> None:
    """Raise before any work if something cannot be measured."""
    require_distributions(subject)
    if not given:
        raise DataError("no input was given", fix="give at least one")
    if labels is not None and len(labels) != len(given):
        raise DataError(f"{len(labels)} labels for {len(given)} inputs", fix="give one label for each input")
    for truth in labels or ():
        subject.column(truth)
    for name, value, low, high in (
        ("permutations", options.permutations, 1, MOST_PERMUTATIONS),
        ("steps", options.steps, 1, MOST_STEPS),
        ("adversaries", adversaries, 0, 10**9),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} is {value}", fix=f"give {low} to {high:,}")
    if not 0 < options.tolerance < 1:
        raise ConfigError(f"tolerance is {options.tolerance}", fix="give a TVD between 0 and 1, such as 0.01")
    for reading in given:
        layer_of(subject, reading, options)
        chosen_removal(subject, reading, options.removal)
        if all(token.is_special for token in reading.sides[0].tokens):
            raise DataError("an input has only special tokens", fix="leave it out")


def _needed(
    subject: Subject,
    given: Sequence[Reading],
    examples: Sequence[MeasuredExample],
    labels: Sequence[str | int] | None,
    uniform_model: Subject | None,
) -> UniformComparison | None:
    """Return the effect of uniform weights; None without attention."""
    evens = [each.attention.even for each in examples if each.attention is not None]
    if not evens:
        return None
    moved, kept = (float(np.mean([getattr(each, name) for each in evens])) for name in ("tvd", "kept"))
    if labels is None:
        return UniformComparison(moved, kept)
    if any(len(each.predictions) != 1 for each in examples):
        raise DataError(
            "labels are one for each input, and these inputs have several predictions", fix="leave labels out"
        )
    columns = np.array([subject.column(truth) for truth in labels])

    def score(found: Sequence[Sequence[int]]) -> float:
        return float(np.mean(np.concatenate(found) == columns))

    again = (
        None
        if uniform_model is None
        else score([decisions(uniform_model, read(uniform_model, reading.given)) for reading in given])
    )
    return UniformComparison(
        moved, kept, score([each.predictions for each in examples]), score([each.predictions for each in evens]), again
    )
