"""Run a race: `auto` runs it in one call, and `race` yields its events.

    baseline     is solved in full before anything is measured, so there is a model soon
    probes       measure a few steps of each other candidate
    rungs        give each candidate a time slice; the better half continues with about three times the steps
    variants     try changed settings of the best candidates, while there is time

A candidate whose default duration fits into its time slice trains in full and is not run again. The candidate with the
best score on the dev set wins; of several with the same score, the one with the least computation. The folder of the
race always has the best model so far.

All decisions follow from recorded facts. The time left is that of a planned clock: the time before the first rung is
measured and recorded once, and each run counts for as long as its steps take at the recorded speed.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.base import dropouts
from seqloom.config.data import Format, Overlong, Unit
from seqloom.config.data import Task as TaskName
from seqloom.config.options import stated, strict
from seqloom.config.tokenizers import FittedTokenizer, UnicodeForm, WordSplit
from seqloom.data.check import Names
from seqloom.errors import ConfigError, DamagedError, DurableError, SeqloomError
from seqloom.experiments.auto import budget, record
from seqloom.experiments.auto.budget import (
    WORTHWHILE,
    Probe,
    corrected_pace,
    entries_of,
    quick_enough,
    seconds_of_rung,
)
from seqloom.experiments.auto.latency import measure_latencies, read_latencies
from seqloom.experiments.auto.leaders import Leaders
from seqloom.experiments.auto.plan import (
    MINUTES,
    AutoEnded,
    AutoEvent,
    AutoPlan,
    AutoStarted,
    CandidateEnded,
    CandidateStarted,
    Entry,
    Probed,
    RaceCandidate,
    RungStarted,
    portfolio,
    resolved_run,
)
from seqloom.experiments.auto.progress import told
from seqloom.experiments.auto.record import (
    DECISIONS,
    NOT_MEASURED,
    TIME_UP,
    TOO_SLOW,
    RaceRecord,
    Rung,
    earlier_decisions,
    is_lack_of_time,
    opened_record,
    require_own_folder,
)
from seqloom.experiments.auto.results import Leaderboard
from seqloom.experiments.auto.runs import evaluation_of, keep_winner, run, run_folder, tidy
from seqloom.experiments.auto.variants import Parent, variants_of
from seqloom.experiments.progress import watcher
from seqloom.experiments.workers import FAILURES, Interrupted, Why, reason_of
from seqloom.files.disk import make_folder, remove_empty, write_file
from seqloom.files.lock import empty_held, hold, is_unused
from seqloom.report.numbers import duration
from seqloom.training.request import RunRequest, requested
from seqloom.training.resolve import resolve
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_location import RUNS, require_writable

RESERVE = (
    0.05  # share of the time that is kept for probes of larger sizes, and for the evaluations and pages at the end
)
# A candidate competes in its smallest size if fewer steps of it fit into the complete time, or if its default training
# takes more than so many times that time: then more steps of a smaller model are worth more.
FEW, FAR = 100, 4.0
TINY = "-tiny"  # at the end of the name of a candidate in its smallest size
PARENTS = 2  # number of candidates whose variants are tried
LEADERBOARD = "leaderboard"  # the name of its .json and .html files
# Share of the time left in which speeds are measured, and of what is then left for 100 steps of every candidate. The
# last ones are not measured if the others take longer, and the slowest are left out if all need more.
SHARE_TO_START = 0.5


class Race:
    """A race. Creating it reads the data without the test set, and checks the candidates and settings.

    `began` is when this start of the race began, by `record.now`.
    """

    def __init__(self, plan: AutoPlan, began: float) -> None:
        request = RunRequest(training=plan.shared, encoding=plan.encoding)
        first = resolve(plan.data, request, cache=plan.cache)  # most candidates read the data in this way
        self.plan, self.first, self.task = plan, first, first.task
        if not len(first.prepared.splits["dev"]):
            raise ConfigError("there is no dev set to compare the models on", fix="give --dev FILE, or --dev-size 10%")
        if plan.init and first.prepared.schema.target.is_running:
            raise ConfigError(
                "--init: scores of language models are per token. The model of --init has its own tokenizer, so its "
                "scores cannot be compared",
                fix="leave --init out, or use `seqloom train --init`",
            )
        settings = plan.asked(first) | {"models": plan.models, "init": plan.init}
        decided = earlier_decisions(plan, settings)
        self.candidates = portfolio(plan, first)
        for one in self.candidates:
            if not one.recipe:
                resolved_run(plan, Entry(candidate=one, steps=None))  # raises if the --init model is missing or unfit
        self.record: RaceRecord = opened_record(plan, settings, decided, began)
        self.leaders = Leaders(self.task)
        for entry in self.record.decided.entries:
            self._take(entry)

    def started(self) -> AutoStarted:
        """The first event."""
        names = tuple(one.name for one in self.candidates)
        spent, seconds = self.record.spent, self.record.decided.seconds
        return AutoStarted(
            self.plan.folder, names, self.task.metric.name, seconds, spent, tuple(self.first.facts.messages)
        )

    def events(self) -> Iterator[AutoEvent]:
        """Run everything and yield the events; runs that were planned before an interruption come first."""
        self._keep_best()  # if it was interrupted between an evaluation and this
        yield from self._baseline()
        yield from self._rungs()
        yield from self._variants()

    def _keep_best(self) -> None:
        """Copy the best run so far to the folder of the race."""
        if self.leaders.winner is not None:
            keep_winner(self.plan, self.leaders.winner)

    def _take(self, entry: Entry) -> None:
        """Add the evaluation of a run to the leaders, if it has one."""
        if (found := evaluation_of(self.plan, entry)) is not None:
            self.leaders.take(entry, found)

    def _baseline(self) -> Iterator[AutoEvent]:
        """Run the candidates that are solved instead of trained in steps."""
        before = self.record.decided.baseline
        solved = [Entry(candidate=one, steps=None) for one in self.candidates if one.is_solved]
        if new := [entry for entry in solved if entry not in before]:  # more time has room for more of them
            self.record.decide(baseline=(*before, *new))
        yield from self._runs(self.record.decided.baseline)

    def _rungs(self) -> Iterator[AutoEvent]:
        """Run the rungs one after another, until one candidate is left or the time is up."""
        at = 0
        while True:
            if at == len(self.record.decided.rungs):
                new = yield from self._entering()
                rung = self._first_rung(new) if at == 0 else self._next_rung(new)
                if rung is None or not rung.entries:
                    return
                self.record.decide(rungs=(*self.record.decided.rungs, rung))
            rung = self.record.decided.rungs[at]
            yield RungStarted(rung.number, rung.entries, rung.dropped)
            yield from self._runs(rung.entries)
            at += 1

    def _entering(self) -> Generator[AutoEvent, None, list[RaceCandidate]]:
        """Measure the candidates that are in no rung yet; return those that enter the next one.

        Before the first rung, these are all candidates. After it, there are some only if the race continues with more
        time: those that were left out before, and those that competed in their smallest size.
        """
        decided, found = self.record.decided, list[RaceCandidate]()
        raced = {entry.candidate.name for rung in decided.rungs for entry in rung.entries}
        waiting = [one for one in self.candidates if not one.is_solved and one.name not in raced]
        if self.leaders and self._left() <= 0:
            known = raced | decided.problems.keys()
            late = {one.name: TIME_UP for one in waiting if not known & {one.name, f"{one.name}{TINY}"}}
            if late:
                self.record.decide(problems=decided.problems | late)
            return []
        until = self.record.spent + SHARE_TO_START * self._left()
        for one in waiting:
            if (found or self.leaders) and self.record.spent > until and self._is_dispensable(one):
                self.record.decide(problems=self.record.decided.problems | {one.name: NOT_MEASURED})
                continue
            candidate, probe = one, self._probed(one)
            if probe is not None and one.recipe and self._is_too_large(probe):
                candidate = msgspec.structs.replace(one, name=f"{one.name}{TINY}", size="tiny")
                probe = self._probed(candidate)
            is_decided = decided.rungs and candidate.name in raced | self.record.decided.problems.keys()
            if probe is not None and not is_decided:
                found.append(candidate)
                yield Probed(candidate.name, probe.step_seconds, probe.cost(None))
        return self._quick(found)

    def _is_dispensable(self, candidate: RaceCandidate) -> bool:
        """Whether a candidate need not be measured: nothing is recorded of it, and it is not the default recipe."""
        known = self.record.decided.probes.keys() | self.record.decided.problems.keys()
        return candidate.name not in known and candidate.recipe != self.task.recipes()[0]

    def _is_too_large(self, probe: Probe) -> bool:
        """Whether the smallest size is the better one for the time of the race."""
        return probe.steps_in(self.plan.seconds) < FEW or probe.cost(None) > FAR * self.plan.seconds

    def _quick(self, entering: list[RaceCandidate]) -> list[RaceCandidate]:
        """The candidates that are fast enough for the time left; the others are recorded as too slow."""
        if not entering:
            return []
        self._set_clock()
        left, decided = self._left(), self.record.decided
        quick = quick_enough(entering, decided.probes, left * SHARE_TO_START, self.task.recipes()[0])
        if decided.rungs:  # there are results already, so nothing has to be tried at any cost
            quick = [one for one in quick if decided.probes[one.name].cost(budget.FEWEST_STEPS) <= left]
        slow = [one.name for one in entering if one not in quick]
        if slow:
            why = {name: TOO_SLOW.format(duration(decided.probes[name].step_seconds)) for name in slow}
            self.record.decide(problems=decided.problems | why)
        return quick

    def _first_rung(self, racing: list[RaceCandidate]) -> Rung | None:
        """Divide the time of the first rung among the candidates."""
        if not racing:
            return None
        left, probes = self._left(), self.record.decided.probes
        seconds = seconds_of_rung(racing, probes, left)
        return Rung(number=1, entries=entries_of(1, racing, probes, seconds), left=left)

    def _probed(self, candidate: RaceCandidate) -> Probe | None:
        """The speed of a candidate, from the record or measured now; None if it cannot be built, which is recorded."""
        decided = self.record.decided
        if candidate.name in decided.probes or candidate.name in decided.problems:
            return decided.probes.get(candidate.name)
        began = time.monotonic()
        try:
            resolved = resolved_run(self.plan, Entry(candidate=candidate, steps=None))
            device = self.plan.chosen_device(resolved.config.training.precision)
            found = budget.probe(resolved, device, time.monotonic() - began)
        except FAILURES as error:
            self.record.decide(problems=decided.problems | {candidate.name: reason_of(error)})
            return None
        self.record.decide(probes=decided.probes | {candidate.name: found})
        return found

    def _next_rung(self, new: list[RaceCandidate]) -> Rung | None:
        """The rung after the last one: the better half of the shortened candidates, with more steps, and new ones."""
        decided = self.record.decided
        last = decided.rungs[-1]
        short = [entry for entry in last.entries if not entry.is_complete]
        ranked = [entry for entry in self.leaders.ranked(short) if entry.name not in decided.problems]
        if (len(short) < 2 or not ranked) and not new:
            return None
        self._set_clock()
        left, pace = self._left(), self.record.decided.pace
        if left <= 0:
            return None
        staying, dropped = ranked[: -(-len(short) // 2)], ranked[-(-len(short) // 2) :]
        racing = [*(entry.candidate for entry in staying), *new]
        seconds = seconds_of_rung(racing, decided.probes, left, pace)
        before = {entry.candidate.name: entry.steps or 0 for entry in staying}
        entries = entries_of(last.number + 1, racing, decided.probes, seconds, pace)
        worth = tuple(
            one
            for one in entries
            if (one.steps or one.default_steps or 0) >= WORTHWHILE * before.get(one.candidate.name, 0)
        )
        names = tuple(entry.candidate.name for entry in dropped)
        return Rung(number=last.number + 1, entries=worth, left=left, pace=pace, dropped=names)

    def _variants(self) -> Iterator[AutoEvent]:
        """Run variants of the best candidates, as long as one fits into the remaining time."""
        yield from self._runs(self.record.decided.variants)
        while (entry := self._next_variant()) is not None:
            self.record.decide(variants=(*self.record.decided.variants, entry))
            yield from self._runs((entry,))

    def _next_variant(self) -> Entry | None:
        tried = {entry.candidate.name for entry in self.record.decided.entries}
        self._set_clock()
        for parent in self._parents():
            left, name = self._left(), parent.entry.candidate.name

            def is_better(other: str, name: str = name) -> bool | None:
                return self.leaders.is_better(other, name)

            for entry in variants_of(parent, is_better, self._probed, left):
                if entry.candidate.name not in tried and entry.seconds <= left:
                    return entry
        return None

    def _parents(self) -> Iterator[Parent]:
        decided = self.record.decided
        originals = [entry for rung in decided.rungs for entry in rung.entries]
        for entry in islice(self.leaders.best_of_each(originals), PARENTS):
            facts, config = self.leaders.facts(entry), RunFolder(run_folder(self.plan, entry)).config()
            dropout = max(dropouts(config.model), default=0.0)
            probe, model = decided.probes[entry.candidate.name], _model_of(entry)
            rates = tuple(one.effective_lr_factor(probe.lr) for one in decided.entries if _model_of(one) == model)
            yield Parent(entry, facts.steps, self._estimated(entry), probe, dropout, rates, decided.pace)

    def _left(self) -> float:
        """The planned seconds left, minus the reserve for the end; the measured ones until the clock is set."""
        decided = self.record.decided
        spent = self.record.spent if decided.extra is None else decided.extra + decided.pace * self._runs_so_far()
        return (1 - RESERVE) * decided.seconds - spent

    def _set_clock(self) -> None:
        """Record the time spent before the first rung; later, correct the pace if it is far from the measured one."""
        decided, runs = self.record.decided, self._runs_so_far()
        if decided.extra is None:
            self.record.decide(extra=self.record.spent - decided.pace * runs)
            return
        pace = corrected_pace(decided.extra, runs, self.record.spent, decided.pace, decided.seconds)
        if pace != decided.pace:
            self.record.decide(pace=pace)

    def _runs_so_far(self) -> float:
        """The estimated seconds of all evaluated runs with a measured speed."""
        decided = self.record.decided
        return sum(self._estimated(one) for one in decided.entries if one in self.leaders)

    def _estimated(self, entry: Entry) -> float:
        """The seconds that the steps of an evaluated run take at the measured speed; 0 if it was not measured."""
        probe = self.record.decided.probe_of(entry.candidate)
        if probe is None:
            return 0.0
        return probe.cost_of(self.leaders.facts(entry).steps) if entry.steps is None else probe.cost(entry.steps)

    def _runs(self, entries: Sequence[Entry]) -> Iterator[AutoEvent]:
        """Train and evaluate the runs that have no result yet; after the time is up, only if there is no model yet."""
        for entry in entries:
            if entry in self.leaders or entry.name in self.record.decided.problems:
                continue
            if self.record.is_over() and self.leaders and entry.name not in self.record.decided.cuts:
                self._note(entry, TIME_UP)
                continue
            began, problem = self.record.spent, ""
            yield CandidateStarted(entry, run_folder(self.plan, entry), self.record.left)
            try:
                yield from run(self.plan, entry, self.record, is_first=not self.leaders)
                self._take(entry)
            except FAILURES as error:  # a disk error stops the race
                problem = reason_of(error)
                self._note(entry, problem)
            self.record.keep_time()
            score, best = self.leaders.score(entry), self.leaders.winner == entry
            if best:
                self._keep_best()
            yield CandidateEnded(entry, score, best, self.record.spent - began, self.record.left, problem)

    def _note(self, entry: Entry, problem: str) -> None:
        self.record.decide(problems=self.record.decided.problems | {entry.name: problem})

    def leaderboard(self) -> Leaderboard | None:
        """The leaderboard so far; None if no candidate has a score."""
        if self.leaders.winner is None:
            return None
        board = self.leaders.board(self.plan, self.record, has_test=self.first.config.data.has_test)
        return board.updated(read_latencies(self.plan), self.record.spent)

    def finish(self) -> Leaderboard:
        """Write the leaderboard and the winner's model, and mark the race as finished."""
        winner, decided = self.leaders.winner, self.record.decided
        if winner is None:
            why = next((why for why in decided.problems.values() if not is_lack_of_time(why)), None)
            if why is None:
                raise ConfigError("no candidate was trained: the time was too short", fix="give more --minutes")
            raise ConfigError(f"no candidate was trained: {why.removesuffix('.')}")  # it names its fix
        board = self.leaderboard()
        assert board is not None, "there is a winner"
        self._write(board)  # before latencies are measured, which may be killed
        measure_latencies(self.plan, self.leaders.shown(), self.record)  # before the weights of the others are removed
        board = board.updated(read_latencies(self.plan), self.record.spent)
        self._write(board)
        tidy(self.plan, decided.entries, winner)
        self.record.decide(finished=True)
        return board

    def _write(self, board: Leaderboard) -> None:
        folder = self.plan.folder
        write_file(folder / f"{LEADERBOARD}.json", msgspec.json.format(msgspec.json.encode(board), indent=2))
        write_file(folder / f"{LEADERBOARD}.html", board.html())


def _model_of(entry: Entry) -> RaceCandidate:
    """The candidate of a run without its name and its learning rate: equal for runs of the same model."""
    return msgspec.structs.replace(entry.candidate, name="", variant_of="", lr_factor=1.0)


def race(plan: AutoPlan) -> Iterator[AutoEvent]:
    """Start or resume a race and yield its events.

    Before the last event, `AutoEnded`, the model and the leaderboard are written, unless the race was interrupted.
    """
    require_own_folder(plan.folder)
    require_writable(plan.folder)
    new = [folder for folder in (plan.folder, *plan.folder.parents) if not folder.exists()]
    try:
        yield from _race(plan, unused=is_unused(plan.folder))
    finally:
        remove_empty(new)  # those that remain after an error in the data or the options


def _race(plan: AutoPlan, *, unused: bool) -> Iterator[AutoEvent]:
    began = record.now()  # the time to read the data counts
    with hold(plan.folder):
        try:
            opened = Race(plan, began)
            make_folder(plan.folder / "runs")
        except SeqloomError:
            if unused and not (plan.folder / DECISIONS).exists():  # wrong data or options leave nothing behind
                empty_held(plan.folder)
            raise
        yield opened.started()
        written = plan.folder / f"{LEADERBOARD}.json"
        if opened.record.decided.finished and written.is_file():
            yield AutoEnded("done", _written_leaderboard(written), 0)
            return
        try:
            yield from opened.events()
        except Interrupted as interruption:
            opened.record.keep_time()
            yield AutoEnded(interruption.why, opened.leaderboard(), interruption.exit_code)
            return
        late = TIME_UP in opened.record.decided.problems.values()
        reason: Why = "seconds" if late else "done"
        yield AutoEnded(reason, opened.finish(), 0)


def _written_leaderboard(path: Path) -> Leaderboard:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Leaderboard)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(
            f"{path} cannot be read ({error})", fix="delete it, and run the same command to write it again"
        ) from error


def default_folder(data: str) -> Path:
    """The folder of a race without --out.

    >>> default_folder("data/reviews.csv").as_posix()
    'runs/reviews-auto'
    """
    return RUNS / f"{Path(data).name.partition('.')[0] or 'data'}-auto"


@strict
def auto(
    *data: str | Path,
    minutes: float = MINUTES,
    out: str | Path | None = None,
    models: Sequence[str] = (),
    init: str | Path | None = None,
    device: str = "auto",
    show: Callable[[AutoEvent], None] | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    task: TaskName | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split_column: str | None = None,
    dev_size: float | str | None = None,
    test_size: float | str | None = None,
    split_seed: int | None = None,
    group: str | None = None,
    folds: int | None = None,
    fold: int | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    template: str | None = None,
    unit: Unit | None = None,
    skip_bad_rows: bool | None = None,
    max_bad_rows: float | str | None = None,
    tokenizer: str | FittedTokenizer | None = None,
    target_tokenizer: str | FittedTokenizer | None = None,
    normalize: UnicodeForm | None = None,
    lowercase: bool | None = None,
    vocab_size: int | None = None,
    min_count: int | None = None,
    word_split: WordSplit | None = None,
    max_length: int | None = None,
    overlong: Overlong | None = None,
    metric: str | None = None,
    seed: int | None = None,
) -> Leaderboard:
    """Find the best model for the data within a few minutes, and return the leaderboard of all candidates.

    Args:
        data: a file, a folder, two files of parallel text, or the name of a dataset.
        minutes: the time limit of the race.
        out: the folder for the winner and all runs (default: runs/NAME-auto). If it contains a race, it is resumed.
        models: names of recipes (default: depends on the task); a linear baseline is added if the task has one.
        init: a model to fine-tune as one more candidate.
        device: auto, cpu, cuda or mps.
        show: called with every event (default: in a notebook, a live display of the progress).

    All other arguments are options of `seqloom train`; they apply to every candidate. The test set is never read.
    """
    named: dict[str, Any] = {"dev": dev, "test": test, "task": task, "input": input, "target": target, "id": id}
    named |= {"label_separator": label_separator, "sequence": sequence, "split_column": split_column}
    named |= {"dev_size": dev_size, "test_size": test_size, "split_seed": split_seed, "group": group, "folds": folds}
    named |= {"fold": fold, "format": format, "encoding": encoding, "delimiter": delimiter, "header": header}
    named |= {"template": template, "unit": unit, "skip_bad_rows": skip_bad_rows, "max_bad_rows": max_bad_rows}
    named |= {"tokenizer": tokenizer, "target_tokenizer": target_tokenizer, "normalize": normalize}
    named |= {"lowercase": lowercase, "vocab_size": vocab_size, "min_count": min_count, "word_split": word_split}
    named |= {"max_length": max_length, "overlong": overlong, "metric": metric, "seed": seed}
    config, request = requested(data, stated(named))
    plan = AutoPlan(
        data=config,
        out=str(out or default_folder(config.train[0])),
        minutes=minutes,
        models=tuple(models),
        init="" if init is None else str(init),
        settings=msgspec.to_builtins(request.training),
        encoding=request.encoding,
        device=device,
    )
    watch = watcher(show, lambda event: told(event, plan.seconds))
    for event in race(plan):
        if watch is not None:
            watch(event)
    assert isinstance(event, AutoEnded), "the last event"
    if event.reason == "disk":
        raise DurableError(
            f"the race in {plan.folder} stopped: checkpoints could not be saved",
            fix="free disk space, and make the same call again to resume",
        )
    if event.reason == "stopped" or event.leaderboard is None:
        raise KeyboardInterrupt
    return event.leaderboard
