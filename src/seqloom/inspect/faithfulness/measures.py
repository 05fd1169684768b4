"""The measures: all tests on one input, their summary over several inputs, and the verdict.

The verdict says how far the picture can be trusted for this model, by fixed thresholds:

    moves      shuffled weights move the predictions:            mean of the median TVD >= 0.1
    carries    the predictions depend on the marked tokens:      comprehensiveness - that of random tokens >= 0.1

    both       the picture can be trusted          one      in part, and the verdict says which part
    neither    it cannot be trusted                only `carries` decides for explanations that are not attention

Inputs of one token show nothing: there is no other weight, and no other token to compare with.

Reservations follow the verdict and do not change the level: very different weights give the same predictions, uniform
weights would have been enough, few inputs were measured. One test may say "used" and another "not needed", and both be
right, so the numbers are reported separately and never combined into one score.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention_weights import AttentionLayer, chosen_layer, layers_of
from seqloom.inspect.faithfulness.alternatives import (
    Adversary,
    ErasureTrial,
    PermutationTrial,
    UniformComparison,
    UniformTrial,
    adversary,
    decisions,
    erased,
    even,
    permuted,
    seed_distance,
)
from seqloom.inspect.faithfulness.bench import at_bench
from seqloom.inspect.faithfulness.explanations import (
    Agreement,
    Curves,
    Rationale,
    agreements,
    chosen_removal,
    gradient,
    left_out,
    rationale,
)
from seqloom.inspect.subject import Reading, Subject
from seqloom.report.numbers import number

TESTS = 4  # kinds of tests: weights tried, the explanation computed, others computed, tokens removed

OWN = "This explanation"  # name of an explanation that the caller passes
Explain = Callable[[Reading], Any]  # -> [T] a number per token of the first side


class MeasureOptions(NamedTuple):
    """Options of the measures."""

    layer: int | str | None = None
    explain: Explain | None = None
    explanation: str = OWN  # its name
    removal: str | None = None
    permutations: int = 100
    steps: int = 500  # of the adversarial search
    tolerance: float = 0.01
    other_seeds: tuple[Subject, ...] = ()


class Attention(NamedTuple):
    """How the weights of one input relate to its predictions."""

    permuted: PermutationTrial
    even: UniformTrial
    erased: ErasureTrial | None  # None for an input of one token
    adversary: Adversary | None  # None if not requested, or if there are too many weights
    seeds: float | None


class MeasuredExample(NamedTuple):
    """All measures of one input."""

    tokens: tuple[str, ...]
    answer: str | None  # None if there are several
    predictions: tuple[int, ...]
    scores: dict[str, np.ndarray]  # by explanation, the tested one first: [T], NaN where a token has no value
    attention: Attention | None  # None for a model without attention
    rationale: Rationale
    agreements: tuple[Agreement, ...]

    @property
    def explanation(self) -> np.ndarray:
        """[T] the tested explanation."""
        return next(iter(self.scores.values()))


class MeasureDraws:
    """The random generators, from one seed."""

    def __init__(self, seed: int) -> None:
        self.torch, self.numpy = torch.Generator().manual_seed(seed), np.random.default_rng(seed)


def layer_of(subject: Subject, reading: Reading, options: MeasureOptions) -> AttentionLayer | None:
    """Return the layer whose weights are tried; None for a model without attention that is explained otherwise."""
    try:
        layers = layers_of(subject, reading)
    except ConfigError as error:
        if options.explain is not None and options.layer is None:
            return None
        raise ConfigError(
            error.problem, fix="choose an attribution, such as method=occlusion, or give explain= in Python"
        ) from None
    found = chosen_layer(layers, options.layer)
    if options.explain is None and found.keys != reading.sides[0].tokens:
        side = reading.sides[0].name
        raise ConfigError(
            f"{found.path} does not attend to the tokens of the {side}, which are the ones to remove",
            fix=f"choose a layer that attends to the {side}, or an attribution: method=occlusion",
        )
    return found


def measured(
    subject: Subject, reading: Reading, options: MeasureOptions, draws: MeasureDraws, *, search: bool
) -> MeasuredExample:
    """Run all tests on one input; the adversarial one only with `search`."""
    layer, attention, weights = layer_of(subject, reading, options), None, None
    with subject.work("kinds of tests", TESTS) as moved:
        if layer is not None:
            with at_bench(subject, reading, layer) as bench:
                weights = bench.weights
                attention = Attention(
                    permuted(bench, draws.torch, options.permutations),
                    even(bench),
                    erased(bench, draws.numpy),
                    adversary(bench, draws.torch, steps=options.steps, tolerance=options.tolerance) if search else None,
                    seed_distance(bench, options.other_seeds, options.layer),
                )
        moved(1)
        removal = chosen_removal(subject, reading, options.removal)
        scores = weights if options.explain is None else _explained(reading, options.explain)
        assert scores is not None, "layer_of refuses a model without attention that nothing explains"
        explanations = {"attention" if options.explain is None else "explanation": scores}
        if weights is not None and weights.shape == scores.shape:  # the weights are those of the explained tokens
            explanations["attention"] = weights
        moved(1)
        explanations["gradient"] = gradient(subject, reading, layer)
        explanations["leave-one-out"] = left_out(subject, reading, removal, draws.numpy)
        moved(1)
        columns = decisions(subject, reading)
        return MeasuredExample(
            reading.sides[0].texts,
            subject.name(columns[0]) if len(columns) == 1 else None,
            columns,
            explanations,
            attention,
            rationale(subject, reading, scores, removal, draws.numpy),
            agreements(explanations),
        )


def _explained(reading: Reading, explain: Explain) -> np.ndarray:
    """Return the value of each token, NaN at special tokens; raise DataError unless there is one number per token."""
    tokens = reading.sides[0].tokens
    found = np.asarray(explain(reading), dtype=float)
    if found.shape != (len(tokens),):
        raise DataError(
            f"explain returned an array of shape {list(found.shape)} for {len(tokens)} tokens of the "
            f"{reading.sides[0].name}",
            fix="return one number for each token",
        )
    special = np.array([token.is_special for token in tokens])
    if not np.isfinite(found[~special]).all():
        raise DataError("explain returned numbers that are not finite", fix="return a finite number for each token")
    return np.where(special, np.nan, found)


MOVES, CARRIES = 0.1, 0.1
FAR = 0.2  # JSD from which other weights are a different picture
NO_WORSE = 0.01  # score difference that counts as equal
FEW = 20  # inputs

Level = Literal["faithful", "partly faithful", "not faithful", "not measured"]


class Badge(NamedTuple):
    """How far a view can be trusted, for other views to show."""

    level: Level = "not measured"
    value: float | None = None  # comprehensiveness
    baseline: float | None = None  # of random tokens
    inputs: int = 0

    @property
    def text(self) -> str:
        """The badge in words.

        >>> Badge().text
        'faithfulness: not measured'
        >>> Badge("faithful", 0.49, 0.031, 200).text
        'faithfulness: faithful, comprehensiveness 0.49 (random tokens 0.031), 200 inputs'
        """
        if self.value is None or self.baseline is None:
            return f"faithfulness: {self.level}"
        numbers = f"comprehensiveness {number(self.value)} (random tokens {number(self.baseline)})"
        return f"faithfulness: {self.level}, {numbers}, {_counted(self.inputs)}"


class Evidence(NamedTuple):
    """The numbers behind a verdict; None for those not measured."""

    inputs: int
    comprehensiveness: float
    random_comprehensiveness: float
    permutation_tvd: float | None = None  # TVD of shuffles; None: the picture is not attention
    adversarial_jsd: float | None = None  # JSD of the most distant weights with the same predictions
    seed_jsd: float | None = None  # JSD between models of other seeds
    score: float | None = None
    uniform_score: float | None = None  # of a model that was trained with uniform weights
    single_token_inputs: int = 0  # inputs of one token, with nothing to shuffle or compare


def level_of(evidence: Evidence) -> Level:
    """Return how far the picture can be trusted."""
    if evidence.single_token_inputs and evidence.single_token_inputs == evidence.inputs:
        return "not measured"
    passed = [carries(evidence)] + ([moves(evidence)] if evidence.permutation_tvd is not None else [])
    return "faithful" if all(passed) else "partly faithful" if any(passed) else "not faithful"


def moves(evidence: Evidence) -> bool:
    """Whether the predictions depend on these weights."""
    return evidence.permutation_tvd is not None and evidence.permutation_tvd >= MOVES


def carries(evidence: Evidence) -> bool:
    """Whether the predictions depend on these tokens more than on others."""
    return evidence.comprehensiveness - evidence.random_comprehensiveness >= CARRIES


def verdict(evidence: Evidence, picture: str) -> str:
    """Return the verdict as one sentence."""
    heading = {
        "faithful": f"{picture} is faithful",
        "partly faithful": f"{picture} is partly faithful",
        "not faithful": f"{picture} is not faithful",
        "not measured": f"{picture} could not be tested, because every input has only one token",
    }[level_of(evidence)]
    marked = (
        f"removing its top tokens lowers the probability of the prediction by {number(evidence.comprehensiveness)}, "
        f"removing random tokens by {number(evidence.random_comprehensiveness)}"
    )
    if evidence.permutation_tvd is None:
        return f"{heading}: {marked} ({_counted(evidence.inputs)})."
    shuffled = f"shuffling its weights changes the predictions by {number(evidence.permutation_tvd)} (TVD)"
    joint = ", and" if moves(evidence) == carries(evidence) else ", but"
    return f"{heading}: {shuffled}{joint} {marked} ({_counted(evidence.inputs)})."


def reservations(evidence: Evidence) -> tuple[str, ...]:
    """Return caveats to read before showing the picture to somebody."""
    inputs, far, seeds, sentences = _counted(evidence.inputs), evidence.adversarial_jsd, evidence.seed_jsd, list[str]()
    if 0 < evidence.single_token_inputs < evidence.inputs:
        has = "has" if evidence.single_token_inputs == 1 else "have"
        sentences.append(f"{evidence.single_token_inputs} of {inputs} {has} only one token and cannot be tested.")
    if far is not None and far >= FAR:
        found = f"Other attention weights give the same predictions, up to JSD {number(far)} away (maximum 0.69)"
        beyond = "."
        if seeds is not None:
            further = "no farther than" if far <= seeds else "farther than"
            beyond = f"; that is {further} models trained with other seeds ({number(seeds)})."
        sentences.append(f"{found}{beyond}")
    if evidence.score is not None and evidence.uniform_score is not None:
        does = "needs no attention" if evidence.uniform_score >= evidence.score - NO_WORSE else "needs attention"
        even, mine = number(evidence.uniform_score), number(evidence.score)
        sentences.append(f"The task {does}: a model trained with uniform weights scores {even}, this one {mine}.")
    if evidence.inputs < FEW:
        sentences.append(f"This rests on only {inputs}.")
    return tuple(sentences)


def _counted(count: int) -> str:
    return f"{count} input{'s' if count != 1 else ''}"


BINS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the largest weight


class MeasureSummary(NamedTuple):
    """One measure over all inputs."""

    name: str
    mean: float
    low: float  # 10% of the inputs are below
    high: float  # 10% of the inputs are above
    inputs: int  # measured inputs


class SummaryBin(NamedTuple):
    """The inputs whose largest weight is in one of four bins, and how far shuffles move their predictions."""

    low: float
    high: float
    tvd: MeasureSummary | None  # None for an empty bin


def measures(examples: Sequence[MeasuredExample]) -> tuple[MeasureSummary, ...]:
    """Summarize each measure over all inputs, those of attention only if there is any."""
    found = [_measure(name, [take(each) for each in examples]) for name, take in OF_TOKENS.items()]
    attended = [each.attention for each in examples if each.attention is not None]
    found += [_measure(name, [take(each) for each in attended]) for name, take in OF_WEIGHTS.items()]
    return tuple(each for each in found if each is not None)


def _measure(name: str, values: Sequence[float | None]) -> MeasureSummary | None:
    known = np.array([value for value in values if value is not None])
    if not known.size:
        return None
    mean, low, high = float(known.mean()), *(float(each) for each in np.quantile(known, (0.1, 0.9)))
    return MeasureSummary(name, mean, min(low, mean), max(high, mean), len(known))


COMPREHENSIVENESS, RANDOM_COMPREHENSIVENESS = "comprehensiveness", "comprehensiveness, random"
MOVED, ADVERSARY, SEEDS = "shuffled weights: TVD", "adversarial weights: JSD", "other seeds: JSD"

OF_TOKENS: dict[str, Callable[[MeasuredExample], float | None]] = {
    COMPREHENSIVENESS: lambda each: each.rationale.marked.comprehensiveness,
    RANDOM_COMPREHENSIVENESS: lambda each: each.rationale.random.comprehensiveness,
    "sufficiency": lambda each: each.rationale.marked.sufficiency,
    "sufficiency, random": lambda each: each.rationale.random.sufficiency,
    "normalized comprehensiveness": lambda each: each.rationale.marked.normalized[0],
    "normalized sufficiency": lambda each: each.rationale.marked.normalized[1],
    "area under deletion": lambda each: each.rationale.marked.areas[0],
    "area under insertion": lambda each: each.rationale.marked.areas[1],
}
OF_WEIGHTS: dict[str, Callable[[Attention], float | None]] = {
    "largest weight": lambda each: each.permuted.max_weight,
    MOVED: lambda each: each.permuted.median,
    "uniform weights: TVD": lambda each: each.even.tvd,
    "uniform weights: predictions kept": lambda each: each.even.kept,
    "largest weight erased: JS": lambda each: None if each.erased is None else each.erased.top,
    "random weight erased: JS": lambda each: None if each.erased is None else each.erased.other,
    "largest weight erased: flips": lambda each: None if each.erased is None else each.erased.top_flips,
    "random weight erased: flips": lambda each: None if each.erased is None else each.erased.other_flips,
    ADVERSARY: lambda each: None if each.adversary is None else each.adversary.distance,
    "adversarial weights found": lambda each: None if each.adversary is None else float(each.adversary.feasible),
    SEEDS: lambda each: each.seeds,
}


def evidence(
    found: Sequence[MeasureSummary],
    examples: Sequence[MeasuredExample],
    needed: UniformComparison | None,
    *,
    of_attention: bool,
) -> Evidence:
    means = {each.name: each.mean for each in found}
    alone = sum(int(np.isfinite(each.explanation).sum()) < 2 for each in examples)
    known = Evidence(
        len(examples), means[COMPREHENSIVENESS], means[RANDOM_COMPREHENSIVENESS], single_token_inputs=alone
    )
    if not of_attention:
        return known
    known = known._replace(
        permutation_tvd=means.get(MOVED), adversarial_jsd=means.get(ADVERSARY), seed_jsd=means.get(SEEDS)
    )
    return known if needed is None else known._replace(score=needed.score, uniform_score=needed.retrained_score)


def bins(examples: Sequence[MeasuredExample]) -> tuple[SummaryBin, ...]:
    """Return how far shuffles move predictions, by largest weight in four bins (Jain and Wallace 2019, figure 6)."""
    found = [each.attention.permuted for each in examples if each.attention is not None]
    places = np.digitize([each.max_weight for each in found], BINS[1:-1])
    medians = np.array([each.median for each in found])
    spans = enumerate(pairwise(BINS))
    return tuple(SummaryBin(*span, _measure(MOVED, medians[places == at].tolist())) for at, span in spans)


def mean_curves(curves: Sequence[Curves]) -> Curves:
    """Return the mean over inputs."""
    return Curves(*(np.mean([each[at] for each in curves], axis=0) for at in range(2)))
