"""Variants of the best candidates, for the time left after the last rung.

    longer         a shortened candidate with as many steps as fit into the time
    lr-3x, ...     another learning rate, if the candidate was not trained with that rate before
    base, ...      the next larger size
    dropout-0.5    more dropout, if the recipe has dropout

Each variant is trained from the start and compared with all other runs on the dev set. Different seeds are never tried,
because the best of several seeds is best by chance.
"""

from collections.abc import Callable, Iterator, Mapping
from math import isclose
from typing import NamedTuple

import msgspec

from seqloom.experiments.auto.budget import WORTHWHILE, Probe
from seqloom.experiments.auto.plan import Entry, RaceCandidate, larger

LR_FACTORS = (3.0, 1 / 3)
MORE_DROPOUT = 0.5
SLOWER = 1.1  # estimated time of a variant / that of the run whose settings are changed
LARGER = 3.0  # a larger size is only measured if at least this many times the time of the run is left


class Parent(NamedTuple):
    """The best run of a candidate; variants change its settings."""

    entry: Entry
    steps: int  # trained
    seconds: float  # estimated
    probe: Probe
    dropout: float  # the highest rate in its model; 0 if it has no dropout
    rates: tuple[float, ...] = ()  # learning rates of earlier runs of this model, as factors of the default
    pace: float = 1.0  # of the race

    @property
    def again(self) -> float:
        """The estimated seconds of another run with the same number of steps."""
        return SLOWER * self.pace * self.seconds


def variants_of(
    parent: Parent,
    is_better: Callable[[str], bool | None],
    measured: Callable[[RaceCandidate], Probe | None],
    left: float,
) -> Iterator[Entry]:
    """The variants of a run, most promising first.

    Args:
        parent: the run.
        is_better: takes the name of a variant and returns whether it is better than the parent; None without a score.
        measured: measures a larger candidate and returns its speed; None if it cannot be built.
        left: the planned seconds left.
    """
    base = parent.entry.candidate
    if parent.entry.steps is not None:
        yield from _longer(parent, left)
    for factor in LR_FACTORS:
        name = f"{base.name}-lr-{factor:.2g}x"
        variant = _changed(parent, parent.again, name=name, lr_factor=base.lr_factor * factor)
        if not any(isclose(variant.effective_lr_factor(parent.probe.lr), rate, rel_tol=1e-6) for rate in parent.rates):
            yield variant
        if is_better(name):  # a change in the other direction is not worth its time
            break
    size = larger(base.size) if base.recipe else None
    if size is not None and LARGER * parent.again <= left:
        candidate = msgspec.structs.replace(base, name=f"{base.name}-{size}", size=size, variant_of=base.name)
        probe = measured(candidate)
        if probe is not None:
            cost = probe.cost(parent.entry.steps, parent.pace)
            entry = _changed(parent, 0.0, name=candidate.name, size=size)
            yield msgspec.structs.replace(entry, seconds=cost, default_steps=probe.steps)
    if base.recipe and 0 < parent.dropout < MORE_DROPOUT:
        yield _changed(parent, parent.again, name=f"{base.name}-dropout-{MORE_DROPOUT:g}", dropout=MORE_DROPOUT)


def _longer(parent: Parent, left: float) -> Iterator[Entry]:
    entry, probe, pace = parent.entry, parent.probe, SLOWER * parent.pace
    fits = probe.cost(None, pace) <= left
    steps = None if fits else min(probe.steps, probe.steps_in(left, pace))
    if (probe.steps if steps is None else steps) >= WORTHWHILE * parent.steps:
        longer = _changed(parent, probe.cost(steps, pace), name=f"{entry.candidate.name}-longer")
        validations, factor = probe.validation_count(steps), probe.lr_factor(steps)
        yield msgspec.structs.replace(longer, steps=steps, validations=validations, lr_factor=factor)


def _changed(parent: Parent, seconds: float, **settings: object) -> Entry:
    entry = parent.entry
    candidate = msgspec.structs.replace(entry.candidate, variant_of=entry.candidate.name, **settings)
    return msgspec.structs.replace(entry, candidate=candidate, rung=0, seconds=seconds)


def described(entry: Entry, known: Mapping[str, RaceCandidate], default_lr: float | None) -> str:
    """A text that describes the changed setting of a variant.

    A learning rate is given as a factor of the parent's, and of the default, which the rate of a shortened run exceeds.

    >>> cnn = RaceCandidate(name="cnn", recipe="cnn")
    >>> faster = RaceCandidate(name="cnn-lr-3x", recipe="cnn", lr_factor=3.0, variant_of="cnn")
    >>> described(Entry(candidate=faster, steps=100, lr_factor=2.0), {"cnn": cnn}, 0.001)
    'cnn with 3 x its learning rate (6 x the default)'
    """
    candidate, parent, changed = entry.candidate, known[entry.candidate.variant_of], list[str]()
    if candidate.lr_factor != parent.lr_factor:
        factor = f"{candidate.lr_factor / parent.lr_factor:.2g} x its learning rate"
        changed.append(f"{factor} ({entry.effective_lr_factor(default_lr):.2g} x the default)")
    if candidate.size != parent.size:
        changed.append(f"size {candidate.size}")
    if candidate.dropout != parent.dropout:
        changed.append(f"dropout {candidate.dropout:g}")
    return f"{parent.name} with {' and '.join(changed)}" if changed else f"{parent.name} for longer"
