"""What came out of a tuning: the trials, the best of them, and which parameters mattered.

How much a parameter matters is its share of what sets the best trials apart, five of them or a tenth (PED-ANOVA,
Watanabe et al. 2023), as Optuna computes it from the trials that were not pruned.
"""

from typing import Literal

import msgspec

from seqloom.training.pages.shown import Shown

TrialState = Literal["done", "pruned", "failed", "running", "waiting"]
FEWEST = 5  # finished trials before anything is said about what mattered


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """One trial."""

    number: int
    state: TrialState
    value: float | None  # the best score on dev; of a pruned trial the best until then
    params: dict[str, str | int | float]
    seconds: float
    is_default: bool = False  # the settings that nobody tuned
    host: str = ""
    folder: str = ""
    config: str = ""  # TOML
    problem: str = ""  # why it failed


class Results(Shown, frozen=True, kw_only=True):
    """A study as it stands."""

    study: str
    metric: str
    higher_is_better: bool
    trials: tuple[TrialResult, ...]
    importances: dict[str, float]  # shares that sum to 1; the greatest first; empty while trials are too few

    @property
    def done(self) -> tuple[TrialResult, ...]:
        """The trials that were trained to their end, the best first; of equal ones the earlier."""
        sign = -1 if self.higher_is_better else 1
        known = [
            (sign * one.value, one.number, one) for one in self.trials if one.state == "done" and one.value is not None
        ]
        return tuple(one for *_, one in sorted(known, key=lambda entry: entry[:2]))

    @property
    def best(self) -> TrialResult | None:
        """The best trial, if one is finished."""
        return self.done[0] if self.done else None

    @property
    def default(self) -> TrialResult | None:
        """The trial with the settings that nobody tuned."""
        return next((one for one in self.done if one.is_default), None)

    def text(self, width: int = 80, colour: bool = False) -> str:
        """The results for a terminal."""
        from seqloom.experiments.tune.terminal import written

        return written(self, width, colour)

    def html(self) -> str:
        """The results as one self-contained page."""
        from seqloom.experiments.tune.page import results_html

        return results_html(self)
