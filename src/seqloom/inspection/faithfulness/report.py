"""The report: may this picture be believed on this model? One sentence, and every number beside it.

    one input         token by token: explanations side by side, the cloud of shuffles, what erasing does
    several inputs    what they come to: all measures, curves, shuffles by the largest weight, agreement

Everything is asked of the model in evaluation mode with h fixed where weights are tried, and all chance comes from one
seed: the same call gives the same report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from seqloom.errors import ConfigError, DataError
from seqloom.figures import Figure
from seqloom.inspection.asking import read
from seqloom.inspection.attention_layers import layers_of
from seqloom.inspection.attribution.methods import method_of
from seqloom.inspection.attribution.single import attribution
from seqloom.inspection.faithfulness import pictures
from seqloom.inspection.faithfulness.adversary import CANDIDATES, CLOSE, STEPS
from seqloom.inspection.faithfulness.agreement import Pair, pairs
from seqloom.inspection.faithfulness.answers import require_distributions
from seqloom.inspection.faithfulness.measuring import Draws, Example, Explain, Wishes, layer_of, measured
from seqloom.inspection.faithfulness.permuting import PERMUTATIONS
from seqloom.inspection.faithfulness.removing import chosen_removal
from seqloom.inspection.faithfulness.summary import Bin, Measure, bins, evidence, mean_curves, measures
from seqloom.inspection.faithfulness.uniform import Needed, decisions, needed
from seqloom.inspection.faithfulness.verdict import Badge, Evidence, Level, level_of, reservations, verdict
from seqloom.inspection.pace import work
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import View

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
    measures: tuple[Measure, ...]
    bins: tuple[Bin, ...]  # none without attention
    pairs: tuple[Pair, ...]
    needed: Needed | None
    examples: tuple[Example, ...]
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

    def measure(self, name: str) -> Measure:
        """The measure of this name; DataError for one that was not taken."""
        found = {each.name: each for each in self.measures}
        if name not in found:
            raise DataError(f"'{name}' was not measured", fix=f"choose from {', '.join(found)}")
        return found[name]

    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        """The numbers, with the level and the verdict before them."""
        return {"kind": self.kind, "level": self.level, "verdict": self.verdict, **super().told_values(whole=whole)}

    def figures(self) -> tuple[Figure, ...]:
        curves = pictures.removal_curves(
            mean_curves([each.rationale.told for each in self.examples]),
            mean_curves([each.rationale.chance for each in self.examples]),
            self.removal,
        )
        common = [curves, pictures.agreement_table(self.pairs), pictures.overview(self.measures)]
        if len(self.examples) == 1:
            return (*self._of_one(self.examples[0]), *common)
        sharp = [pictures.by_sharpness(self.bins)] if self.bins else []
        return (*common, *sharp, *pictures.tau_histograms(self.pairs))

    @staticmethod
    def _of_one(example: Example) -> list[Figure]:
        found = pictures.token_figures(example)
        if example.attention is not None:
            found.append(pictures.shuffles(example.attention))
            if example.attention.erased is not None:
                found.append(pictures.erasures(example.attention.erased.taken))
        return found

    def text(self, width: int = 80, *, colour: bool = False) -> str:
        """The verdict and what is said beside it, then the figures that they rest on."""
        return "\n\n".join([self.prose(width), *(figure.text(width, colour) for figure in self.figures())])

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
    wishes = Wishes(layer, explain, removal=removal, permutations=permutations, steps=steps, close=close)
    wishes = _by_method(subject, given, wishes._replace(others=tuple(others)), method)
    _require(subject, given, wishes, truths, adversaries)
    draws, examples = Draws.seeded(seed), tuple[Example, ...]()
    with work("inputs", len(given)) as moved:
        for number, reading in enumerate(given):
            examples += (measured(subject, reading, wishes, draws, search=number < adversaries),)
            moved(1)
    return _view(subject, given, wishes, examples, _needed(subject, given, examples, truths, uniform), seed)


def _by_method(subject: Subject, given: Sequence[Reading], wishes: Wishes, method: str | None) -> Wishes:
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
    wishes: Wishes,
    examples: tuple[Example, ...],
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
    subject: Subject, given: Sequence[Reading], wishes: Wishes, truths: Sequence[Any] | None, adversaries: int
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
    examples: Sequence[Example],
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
