"""How the results of a tuning are put, in the terminal and on the page alike."""

from seqloom.experiments.tune.results import FEWEST, Results, TrialResult


def verdict(results: Results) -> str:
    """What came out, in one sentence."""
    best, default = results.best, results.default
    if best is None or best.value is None:
        return "No trial is finished yet"
    said = f"Best dev {results.metric} {best.value:.4g} in trial {best.number}"
    if default is None or default.value is None:
        return said
    if best.is_default:
        return f"{said}: the settings that nobody tuned"
    return f"{said}; {default.value:.4g} without tuning"


def counts(results: Results) -> str:
    """How many trials ended how."""
    states = [one.state for one in results.trials]
    kinds = ("done", "pruned", "failed", "running", "waiting")
    return ", ".join(f"{states.count(kind):,} {kind}" for kind in kinds if kind in states) or "no trials"


def too_few(results: Results) -> str:
    """Why nothing is said about what mattered; empty where something is."""
    if results.importances:
        return ""
    return f"What mattered is told from {FEWEST} finished trials on that do not all score the same"


def shown(value: str | int | float) -> str:
    """A parameter in three digits.

    >>> shown("lstm"), shown(0.0012345), shown(4096)
    ('lstm', '0.00123', '4096')
    """
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def parameters(trial: TrialResult) -> str:
    """The parameters of a trial in one line."""
    return ", ".join(f"{name} {shown(value)}" for name, value in trial.params.items())


def marked(trial: TrialResult) -> str:
    """The number of a trial, and whether it is the one that nobody tuned."""
    return f"{trial.number}{' (default)' if trial.is_default else ''}"


def score(trial: TrialResult) -> str:
    """The score of a trial."""
    return "" if trial.value is None else f"{trial.value:.4g}"
