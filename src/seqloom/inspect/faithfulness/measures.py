"""Every test on one input."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention_weights import AttentionLayer, chosen_layer, layers_of
from seqloom.inspect.faithfulness.agreement import Agreement, agreements, gradient, left_out
from seqloom.inspect.faithfulness.alternatives import (
    Adversary,
    Erased,
    Evened,
    Permuted,
    adversary,
    decisions,
    erased,
    even,
    permuted,
    seed_distance,
)
from seqloom.inspect.faithfulness.bench import Bench, at_bench
from seqloom.inspect.faithfulness.eraser import Rationale, chosen_removal, rationale
from seqloom.inspect.subject import Reading, Subject

TESTS = 4  # kinds of them: weights tried, the explanation made, others made, tokens taken away

OWN = "This explanation"  # what one that the caller gives is called
Explain = Callable[[Reading], Any]  # -> [T] a number for each token of the first side


class MeasureOptions(NamedTuple):
    """What is measured, and how."""

    layer: int | str | None = None
    explain: Explain | None = None
    explanation: str = OWN  # what it is called
    removal: str | None = None
    permutations: int = 100
    steps: int = 500  # of an adversary
    close: float = 0.01
    others: tuple[Subject, ...] = ()


class Attention(NamedTuple):
    """What the weights of one input have to do with its answers."""

    permuted: Permuted
    even: Evened
    erased: Erased | None  # None of an input of one token
    adversary: Adversary | None  # None where it was not asked for, or there are too many weights
    seeds: float | None


class MeasuredExample(NamedTuple):
    """All that was measured on one input."""

    tokens: tuple[str, ...]
    answer: str | None  # None where there are several
    decided: tuple[int, ...]
    scores: dict[str, np.ndarray]  # by explanation, the first is the picture: [T], NaN where a token has none
    attention: Attention | None  # None of a model without attention
    rationale: Rationale
    agreements: tuple[Agreement, ...]

    @property
    def picture(self) -> np.ndarray:
        """[T] what is asked about."""
        return next(iter(self.scores.values()))


class MeasureDraws(NamedTuple):
    """Where all chance comes from."""

    torch: torch.Generator
    numpy: np.random.Generator

    @classmethod
    def seeded(cls, seed: int) -> "MeasureDraws":
        """Two generators of one seed."""
        return cls(torch.Generator().manual_seed(seed), np.random.default_rng(seed))


def layer_of(subject: Subject, reading: Reading, wishes: MeasureOptions) -> AttentionLayer | None:
    """The layer whose weights are tried; None of a model without attention that is explained otherwise."""
    try:
        layers = layers_of(subject, reading)
    except ConfigError as error:
        if wishes.explain is not None and wishes.layer is None:
            return None
        raise ConfigError(
            error.problem, fix="name a method of attribution, method=occlusion, or give explain= in Python"
        ) from None
    found = chosen_layer(layers, wishes.layer)
    if wishes.explain is None and found.keys != reading.sides[0].tokens:
        side = reading.sides[0].name
        raise ConfigError(
            f"{found.path} does not look at the tokens of the {side}, and tokens are taken away from these",
            fix=f"choose a layer that reads the {side}, or name a method of attribution: method=occlusion",
        )
    return found


def measured(
    subject: Subject, reading: Reading, wishes: MeasureOptions, draws: MeasureDraws, *, search: bool
) -> MeasuredExample:
    """Every test on one input; the adversary only if there shall be a `search` for one."""
    layer, attention, weights = layer_of(subject, reading, wishes), None, None
    with subject.work("kinds of tests", TESTS) as moved:
        if layer is not None:
            with at_bench(subject, reading, layer) as bench:
                attention, weights = _attention(bench, wishes, draws, search=search), bench.weights
        moved(1)
        removal = chosen_removal(subject, reading, wishes.removal)
        scores = weights if wishes.explain is None else _explained(reading, wishes.explain)
        assert scores is not None, "layer_of refuses a model without attention that nothing explains"
        told = {"attention" if wishes.explain is None else "explanation": scores}
        told |= {} if weights is None or wishes.explain is None else _fitting(weights, scores)
        moved(1)
        told["gradient"] = gradient(subject, reading, layer)
        told["leave-one-out"] = left_out(subject, reading, removal, draws.numpy)
        moved(1)
        columns = decisions(subject, reading)
        return MeasuredExample(
            reading.sides[0].texts,
            subject.name(columns[0]) if len(columns) == 1 else None,
            columns,
            told,
            attention,
            rationale(subject, reading, scores, removal, draws.numpy),
            agreements(told),
        )


def _attention(bench: Bench, wishes: MeasureOptions, draws: MeasureDraws, *, search: bool) -> Attention:
    return Attention(
        permuted(bench, draws.torch, wishes.permutations),
        even(bench),
        erased(bench, draws.numpy),
        adversary(bench, draws.torch, steps=wishes.steps, close=wishes.close) if search else None,
        seed_distance(bench, wishes.others, wishes.layer),
    )


def _fitting(weights: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    """The weights, where they are those of the tokens that are explained."""
    return {"attention": weights} if weights.shape == scores.shape else {}


def _explained(reading: Reading, explain: Explain) -> np.ndarray:
    """What was given for each token, NaN at special symbols; DataError where it is not one number each."""
    tokens = reading.sides[0].tokens
    found = np.asarray(explain(reading), dtype=float)
    if found.shape != (len(tokens),):
        raise DataError(
            f"explain gave numbers of the shape {list(found.shape)} for {len(tokens)} tokens of the "
            f"{reading.sides[0].name}",
            fix="give one number for each token",
        )
    special = np.array([token.is_special for token in tokens])
    if not np.isfinite(found[~special]).all():
        raise DataError("explain gave numbers that are not finite", fix="give a finite number for each token")
    return np.where(special, np.nan, found)
