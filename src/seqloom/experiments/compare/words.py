"""How the results of a comparison are put, in the terminal and on the page alike."""

from collections.abc import Sequence

from seqloom.experiments.compare.results import Comparison, Interval, ModelResult, PairResult

ONE_SEED = (
    "No verdict from one seed: run with --seeds 3. The intervals are over examples alone; "
    "other seeds may turn the order round."
)
AS_FOUND = "if the difference and the spread of the seeds stay as found"
AT_ONCE = "Up to {:,} runs trained at the same time and shared the machine"


def number(value: float) -> str:
    """A score in four digits.

    >>> number(0.83333), number(41.018), number(123456.0)
    ('0.8333', '41.02', '1.235e+05')
    """
    return f"{value:.4g}"


def between(found: Interval) -> str:
    """An interval in words."""
    return f"{number(found.low)} to {number(found.high)}"


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def sentence(found: Comparison) -> str:
    """Which wins and by how much, or that no difference is shown; and what is the cheapest that will do."""
    if len(found.models) == 1:
        return f"{found.models[0].name}: {_scored(found, found.models[0])}; there is nothing to compare it with."
    if found.seeds == 1:
        return ONE_SEED
    return " ".join(filter(None, [_won(found), _cheapest(found)]))


def _won(found: Comparison) -> str:
    best, rivals = found.models[0], found.rivals
    if len(rivals) == 1:
        second = found.models[1]
        pair = _pair(found, best.name, second.name)
        gap = Interval(abs(pair.difference.value), *sorted(map(abs, (pair.difference.low, pair.difference.high))))
        return (
            f"{best.name} wins on {found.part}: {_scored(found, best)}, better by {number(gap.value)} "
            f"(95 %: {between(gap)}) than {second.name}, the next."
        )
    worse = [one.name for one in found.models if one not in rivals]
    beaten = (
        f" {listed(worse)} {'is' if len(worse) == 1 else 'are'} shown to be worse than {best.name}." if worse else ""
    )
    return f"{_rivals(found)} The best found on {found.part} is {best.name} with {_scored(found, best)}.{beaten}"


def _rivals(found: Comparison) -> str:
    """What is known of the best and those that are not shown to be worse than it."""
    best = found.models[0].name
    pairs = {one.name: _pair(found, best, one.name) for one in found.rivals[1:]}
    equal = [name for name, pair in pairs.items() if pair.more_seeds is None]
    undecided = [name for name in pairs if name not in equal]
    said = []
    if equal:
        least = max(pair.detectable or 0.0 for pair in pairs.values())
        shown = f"; from {number(least)} on it would have been" if least else ""
        said.append(f"No difference shown between {listed([best, *equal])}{shown}.")
    if undecided:
        more = _seeds(max(pair.more_seeds or 0 for pair in pairs.values()))
        said.append(f"Undecided between {best} and {listed(undecided)}: {more} would decide, {AS_FOUND}.")
    return " ".join(said)


def _seeds(more: int) -> str:
    return f"about {more} more {'seed' if more == 1 else 'seeds'}"


def _scored(found: Comparison, model: ModelResult) -> str:
    return f"{found.metric} {number(model.score.value)} (95 %: {between(model.score)})"


def _pair(found: Comparison, one: str, other: str) -> PairResult:
    return next(pair for pair in found.pairs if {pair.one, pair.other} == {one, other})


def _cheapest(found: Comparison) -> str:
    cheapest = found.cheapest
    if cheapest is None or len(found.rivals) == 1:
        return ""
    cost = f"{cheapest.parameters:,} parameters"
    if cheapest.cost is not None:
        cost = f"{number(cheapest.cost.latency.median)} ms for an answer, {cost}"
    return f"The cheapest that is not shown to be worse is {cheapest.name} ({cost})."


def verdict(pair: PairResult) -> str:
    """The verdict of a pair with what would have been needed for another one."""
    if pair.more_seeds is not None:
        return f"undecided, {_seeds(pair.more_seeds)}"
    return pair.verdict if pair.detectable is None else f"{pair.verdict} (from {number(pair.detectable)} on)"


def setting(found: Comparison) -> str:
    """What was compared, in one line."""
    seeds = "1 seed" if found.seeds == 1 else f"{found.seeds} seeds"
    return f"{found.task} on {found.rows:,} {found.part} rows, {found.budget}, {seeds}; baseline: {found.baseline}"


def notes(found: Comparison) -> list[str]:
    """What people should know before they believe the numbers."""
    told = [*found.said]
    if found.seeds == 2:
        told.append("Two seeds tell badly how far seeds lie apart, so the intervals are wide: take three or more.")
    if any(pair.more_seeds is not None for pair in found.pairs):
        told.append(f"How many more seeds would decide is a projection, {AS_FOUND}: differences often shrink.")
    if any(pair.detectable is not None for pair in found.pairs):
        told.append("From ... on: so large a difference would have been shown with these seeds and examples.")
    if (most := max(one.together for one in found.models)) > 1:
        told.append(f"{AT_ONCE.format(most)}: alone, each would have been trained sooner.")
    if found.part == "dev":
        told.append("The dev part also chose the checkpoint of each run; --on-test judges on rows that chose nothing.")
    if found.leak is not None:
        told.append(f"{found.leak.said()}.")
    if found.pairs and found.pairs[0].p_mcnemar is not None:
        told.append("McNemar's p is that of the first seed of each model alone: it says nothing about other seeds.")
    return told


def corrected(found: Comparison) -> str:
    """What is to be known beside the table of pairs: what the correction for several of them is in, and what not."""
    if len(found.pairs) < 2 or found.seeds == 1:
        return ""
    return (
        f"p (Holm) and the verdict are corrected for {len(found.pairs)} pairs; each interval is that of its pair alone "
        "and may leave out 0 where no difference is shown."
    )


def size(count: int) -> str:
    """Bytes for people.

    >>> size(512), size(20_480), size(3_145_728)
    ('512 B', '20 KiB', '3 MiB')
    """
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 2**power:
            return f"{count / 2**power:.3g} {unit}"
    return f"{count} B"


def probability(p: float | None) -> str:
    """A p as it is printed.

    >>> probability(0.0321), probability(0.00001), probability(None)
    ('0.032', '< 0.001', '')
    """
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"
