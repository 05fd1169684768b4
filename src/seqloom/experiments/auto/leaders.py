"""The results of a race so far: the best run and the leaderboard of all candidates."""

import math
from collections.abc import Iterable, Iterator

from seqloom.experiments.auto.plan import AutoPlan, Entry, RaceCandidate
from seqloom.experiments.auto.record import RaceRecord
from seqloom.experiments.auto.results import Leaderboard, LeaderboardRow, RowState, commands_for
from seqloom.experiments.auto.variants import described
from seqloom.experiments.compare.runs import RunEvaluation, RunFacts
from seqloom.experiments.compare.verdicts import ComparedScores
from seqloom.tasks.task import Task


class Leaders:
    """The evaluated runs of a race, in the order in which they were decided."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._found: dict[Entry, RunEvaluation] = {}

    def take(self, entry: Entry, found: RunEvaluation) -> None:
        """Add an evaluated run."""
        self._found[entry] = found

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._found

    def __bool__(self) -> bool:
        return bool(self._found)

    def facts(self, entry: Entry) -> RunFacts:
        """The facts about a run."""
        return self._found[entry].facts

    def score(self, entry: Entry) -> float | None:
        """The score of a run; None if it has none."""
        found = self._found.get(entry)
        return None if found is None else found.facts.metrics.get(found.facts.metric)

    def ranked(self, entries: Iterable[Entry] | None = None) -> list[Entry]:
        """The runs that have a score, the best first: by the metric, then by the loss, then the earlier one.

        A race decides in this order which candidates continue. It does not depend on measured times, so an interrupted
        race continues with the same candidates.
        """
        chosen = [entry for entry in (self._found if entries is None else entries) if self.score(entry) is not None]
        return sorted(chosen, key=self._rank)

    def _rank(self, entry: Entry) -> tuple[float, float]:
        score, loss = self.score(entry), self.facts(entry).metrics.get("loss")
        assert score is not None, "only runs with a score are ranked"
        return (-score if self.task.metric.higher_is_better else score), math.inf if loss is None else loss

    def cost(self, entry: Entry) -> int:
        """Parameters times steps: unlike seconds, it is the same after an interruption."""
        facts = self.facts(entry)
        return facts.parameters * facts.steps

    def placed(self) -> list[Entry]:
        """The runs in the order of the leaderboard: by the metric; of equal scores, the least computation first."""
        return sorted(self.ranked(), key=lambda entry: (self._rank(entry)[0], self.cost(entry)))

    @property
    def winner(self) -> Entry | None:
        """The best run; of several with the same score, the one with the least computation."""
        return next(iter(self.placed()), None)

    def best_of_each(self, entries: Iterable[Entry] | None = None) -> Iterator[Entry]:
        """The best run of each candidate, the best candidate first, in the order of `ranked`."""
        yield from _first_of_each(self.ranked(entries))

    def is_better(self, one: str, other: str) -> bool | None:
        """Whether one candidate is better than another, by their names; None if one of them has no score."""
        names = [entry.candidate.name for entry in self.best_of_each()]
        return names.index(one) < names.index(other) if one in names and other in names else None

    def shown(self) -> list[Entry]:
        """The best run of each candidate, in the order of the leaderboard."""
        return list(_first_of_each(self.placed()))

    def why_undefined(self) -> str:
        """Why the metric is undefined for a run with the best score; empty if it is not.

        An undefined metric counts as 0, which says nothing about the model.
        """
        best = [one for one in self.shown() if self.score(one) == self.score(self.shown()[0])]
        reasons = (self.task.undefined(self._found[one].statistics).get(self.task.metric.name, "") for one in best)
        return next(filter(None, reasons), "")

    def board(self, plan: AutoPlan, record: RaceRecord, *, has_test: bool) -> Leaderboard:
        """The leaderboard of all candidates, without latencies; those without a score are at the end."""
        best = self.shown()
        compared = ComparedScores({entry.candidate.name: [self._found[entry]] for entry in best}, self.task)
        known = {entry.candidate.name: entry.candidate for entry in record.decided.entries}
        rows = [self._row(entry, best[0], compared, record, known) for entry in best]
        rows += _without_score(record, {row.name for row in rows})
        return Leaderboard(
            data=" + ".join(plan.data.train),
            task=self.task.name,
            metric=self.task.metric.name,
            higher_is_better=self.task.metric.higher_is_better,
            dev_rows=self.facts(best[0]).rows,
            folder=str(plan.folder),
            minutes=record.decided.seconds / 60,
            seconds=record.spent,
            rows=tuple(rows),
            undefined=self.why_undefined(),
            commands=commands_for(str(plan.folder), self.task.usage.file, has_test),
        )

    def _row(
        self, entry: Entry, winner: Entry, compared: ComparedScores, record: RaceRecord, known: dict[str, RaceCandidate]
    ) -> LeaderboardRow:
        name, facts = entry.candidate.name, self.facts(entry)
        runs = [one for one in self.placed() if one.candidate.name == name]
        gap = None if entry == winner else compared.difference(winner.candidate.name, name)
        sign = 1 if self.task.metric.higher_is_better else -1
        state, why = self._outcome(entry, winner, record, known)
        return LeaderboardRow(
            name=name,
            state=state,
            why=why,
            score=compared.interval(name),
            gap=None if gap is None else sign * gap.value,
            gap_error=None if gap is None else math.sqrt(max(0.0, gap.uncertainty.variance)),
            parameters=facts.parameters,
            steps=facts.steps,
            default_steps=entry.default_steps,
            seconds=facts.seconds,
            runs=tuple(one.name for one in runs),
        )

    def _outcome(
        self, entry: Entry, winner: Entry, record: RaceRecord, known: dict[str, RaceCandidate]
    ) -> tuple[RowState, str]:
        """The state of a candidate, and a description of it."""
        name = entry.candidate.name
        long = "in full" if entry.is_complete else "shortened"
        if entry.candidate.variant_of:
            probe = record.decided.probes.get(entry.candidate.variant_of)
            long = described(entry, known, None if probe is None else probe.lr)
        elif self.facts(entry).end_reason == "stopped":
            long = "stopped early: it took too long"
        if entry == winner:
            return "winner", f"winner; {long}"
        for rung in record.decided.rungs:
            if name in rung.dropped:
                return "dropped", f"dropped after rung {rung.number - 1}"
        return "complete" if entry.is_complete else "shortened", long


def _first_of_each(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The first run of each candidate."""
    seen = set[str]()
    for entry in entries:
        if entry.candidate.name not in seen:
            seen.add(entry.candidate.name)
            yield entry


def _without_score(record: RaceRecord, scored: set[str]) -> Iterator[LeaderboardRow]:
    """The candidates that failed or were not run; problems are recorded by the name of a run or of a candidate."""
    candidates = {entry.name: entry.candidate.name for entry in record.decided.entries}
    problems = {candidates.get(name, name): why for name, why in record.decided.problems.items()}
    for name, why in problems.items():
        if name not in scored:
            yield LeaderboardRow(name=name, state="not run" if why.startswith("not run") else "failed", why=why)
