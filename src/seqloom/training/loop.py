"""The loop: one generator of reports for every family and task.

    ┌─▶ step ─▶ count ─┬─▶ report?    every `report_every` steps
    │                  ├─▶ validate?  at the end of an epoch, or every so many steps; what is chosen goes to RUN/model
    │                  ├─▶ save?      after each validation, or every so many steps
    └──────────────────┴─▶ over?      the length is reached, nobody got better, a signal came, numbers went wrong

Where a run stands changes in one place, `_take`, together with the weights. Everything else is a function of it, so a
run that goes on from a checkpoint repeats what was lost, report for report.

    telling.py     the reports of how far a run is    saving.py     checkpoints, and what to do when a disk refuses
    validating.py  a look at the dev part             shipping.py   RUN/model
    bettering.py   which look is the best             choice.py     which weights are shipped
    lengths.py     how far it is                      mending.py    RUN/model made anew from what is kept
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, TypeVar

from seqloom.config.training import NewtonConfig
from seqloom.data.loader import Loader, Position, Step
from seqloom.durable.failing import reached
from seqloom.errors import DurableError
from seqloom.training import lengths, memory, telling
from seqloom.training.agreeing import agreed
from seqloom.training.averaging import mean_of
from seqloom.training.bad_batches import write_bad_batches
from seqloom.training.bettering import judge
from seqloom.training.checkpoints import Checkpoint
from seqloom.training.choice import CheckpointChoice
from seqloom.training.clock import Clock
from seqloom.training.devices import deterministic
from seqloom.training.dues import save_is_due, validation_is_due
from seqloom.training.journal import Journal, Silent
from seqloom.training.kernel_caches import few_kernels
from seqloom.training.mending import mended
from seqloom.training.pieces import elements_of
from seqloom.training.reports import Ended, Noticed, Report, Saved, Validated, Why
from seqloom.training.saving import MOST_FAILED, Saves
from seqloom.training.schedules import plateau, rate_at
from seqloom.training.session import Session
from seqloom.training.shipping import last_weights, ship
from seqloom.training.solving import Path, Solver
from seqloom.training.standing import Standing, require_plan
from seqloom.training.update import Update
from seqloom.training.validating import Look, look

AnyReport = TypeVar("AnyReport", bound=Report)
MOST_NOT_FINITE = 3  # steps in a row
NOT_FINITE, DISK = 5, 4  # exit codes
AT_END = "what was there is whole; it is made anew from the chosen checkpoint when the run is over"


def training(session: Session, resumed: Checkpoint | None, said: tuple[str, ...] = ()) -> Iterator[Report]:
    """The reports of a run, from its beginning or from a checkpoint on."""
    with few_kernels(), memory.remembering(session.folder.path):
        yield from _Loop(session, resumed, said).run()


def changing(session: Session, loader: Loader[Any, Any]) -> tuple[Update, Loader[Any, Any] | Path]:
    """What changes the weights, and what it reads: batch after batch, or all texts at once."""
    config = session.config.training
    if isinstance(config.optimiser, NewtonConfig):
        solver = Solver(session)
        return solver, Path(loader, solver)
    return Update(session.task, session.model, config, session.ranks, session.device), loader


class _Loop:
    """A run on its way."""

    def __init__(self, session: Session, resumed: Checkpoint | None, said: tuple[str, ...]) -> None:
        self.session, self.config, self.said = session, session.config.training, said
        self.ranks, self.alone = session.ranks, session.ranks.count == 1
        loader = session.task.loader(
            session.prepared,
            "train",
            self.config.feed,
            seed=self.config.seed,
            workers=session.workers,
            rank=session.ranks.rank,
            ranks=session.ranks.count,
        )
        self.update, self.loader = changing(session, loader)
        self.plan = self.loader.plan
        self.standing = self._standing(resumed)
        self.clock = Clock(resumed.machine.seconds if resumed else 0.0, session.device.torch)
        self.journal = Journal(session.folder.path, self.standing.lines) if session.ranks.rank == 0 else Silent()
        self.choice = CheckpointChoice(session, resumed)
        self.saves = Saves(session, self.update, self.choice, self.journal, self.clock)
        self.read_every = 1 if session.device.torch.type == "cpu" else self.config.report_every
        self.recent: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=MOST_NOT_FINITE + self.read_every)
        self.rate = 0.0
        self.heard = self.stop = self.halved = False  # heard: by this process; stop: all know

    def _standing(self, resumed: Checkpoint | None) -> Standing:
        fitting = memory.fitting(self.session.folder.path)
        pieces, self.said = max(self.config.pieces, fitting.pieces), (*self.said, *fitting.said)
        if resumed is None:
            return Standing(plan=self.plan.fingerprint(), seed=self.config.seed, pieces=pieces)
        require_plan(resumed.standing, self.plan.fingerprint())
        self.update.load(resumed.tensors, resumed.standing)
        resumed.standing.pieces = max(resumed.standing.pieces, pieces)
        if resumed.standing.asked < self.config.length.count:
            resumed.standing.ended = ""
        return resumed.standing

    def run(self) -> Iterator[Report]:
        """All reports; the last one is `Ended`."""
        try:
            with deterministic(self.config), closing(self._reports()) as reports:  # type: ignore[type-var]
                for report in reports:
                    yield report
                    if isinstance(report, Ended):
                        return
        finally:  # also when nobody wants further reports, as of a trial that is pruned
            self._log_all()

    def _reports(self) -> Iterator[Report]:
        """The reports, which nobody reads beyond the first `Ended`."""
        yield self._told(telling.begun(self.session, self.update, self.standing, self.plan, self.said))
        if self.standing.ended:
            yield from self._close("done" if self.standing.ended == "done" else "patience")
            return
        start = Position(self.standing.epoch, self.standing.index)
        with closing(self.loader.steps(start)) as steps:  # type: ignore[type-var]  # a generator
            while not self._is_over():
                with self.clock.data():
                    step = next(steps)
                self._take(step)
                yield from self._after()
        yield from self._finish("done")

    def _take(self, step: Step[Any]) -> None:
        """One step: the weights and where the run stands change together."""
        standing = self.standing
        if step.index == 0:
            reached("first-batch")
        pieces, self.rate = standing.pieces, rate_at(self.config, standing.step, self._share(), standing.factor)
        self.heard = self.session.stopping.signal is not None
        self.update.step(step.batch, carried=step.carried, standing=standing, rate=self.rate, stop=self.heard)
        reached("between-update-and-count")
        last = step.index + 1 == self.plan.count(step.epoch)
        standing.step += 1
        standing.epoch, standing.index = (step.epoch + 1, 0) if last else (step.epoch, step.index + 1)
        ids = step.batch.ids if step.batch is not None else ()
        standing.examples += len(ids)
        standing.order = hashlib.sha256("\n".join((standing.order, *ids)).encode()).hexdigest()
        if self.alone and step.batch is not None:  # several know how many symbols they read when they next meet
            standing.symbols += elements_of(step.batch)[1]
        self.recent.append((standing.step, ids))
        self.halved = standing.pieces != pieces
        if last:
            reached("last-batch")

    def _share(self) -> float:
        return lengths.share_done(self.config.length, self.standing, self.plan, self.clock.agreed)

    def _is_over(self) -> bool:
        reached_end = lengths.is_over(self.config.length, self.standing, self.clock.agreed)
        return reached_end or self.update.is_done(self.standing)

    def _after(self) -> Iterator[Report]:
        """What follows a step."""
        standing, config = self.standing, self.config
        validates, saves = validation_is_due(config, standing), save_is_due(config, standing)
        if self.halved:
            yield self._told(telling.halved(self.session, standing))
        if self._meets() or validates or saves:
            yield from self._read()
        over = self._is_over()  # asked once: time goes on, and no step is looked at twice
        if standing.step % config.report_every == 0:
            share = self._share()
            yield self._told(telling.stepped(standing, share, self.rate, self.clock.pace(share)))
        if standing.index == 0:
            reached("epoch-boundary")
        if validates and not over:
            with self.clock.aside():
                yield from self._validate()
            if config.patience and standing.waited >= config.patience:
                yield from self._finish("patience")
                return
        if (saves and not over) or self.stop:
            with self.clock.aside():
                yield from self._save()
        if self.stop:
            signals = self.ranks.gather(str(self.session.stopping.signal or 0).encode())
            yield self._ended("stopped", 128 + max(map(int, signals)))  # some rank heard one

    def _meets(self) -> bool:
        """Whether the host waits for the device here, and for the other ranks: every so often, and at the end.

        One that is alone knows its clock and what it heard at once; several must come to the same answer.
        """
        if self.alone:
            self.clock.agree(self.ranks)
        return self.standing.step % self.read_every == 0 or (self.alone and self.heard) or self._is_over()

    def _read(self) -> Iterator[Report]:
        """Add up what the last steps left on the device: the one place where the host waits for it."""
        tally = self.update.read()
        telling.add(self.standing, tally)
        self.clock.symbols += tally.symbols
        self.stop = tally.stop
        if not self.alone:
            self.standing.symbols += tally.symbols
            if lengths.goes_by_clock(self.config.length):
                self.clock.agree(self.ranks)
        if tally.skipped:
            text = f"{tally.skipped} skipped: a loss or a gradient was not finite; the weights are unchanged"
            yield self._told(Noticed(self.standing.step, "step.skipped", text, "lower --rate"))
        if tally.not_finite >= MOST_NOT_FINITE:
            yield from self._not_finite("losses or gradients of three steps in a row were not finite")

    def _require_finite(self) -> Iterator[Report]:
        """The end of the run if one of its tensors holds a number that is not finite: it is never shipped or saved."""
        if bad := self.update.finite():
            yield from self._not_finite(f"{', '.join(bad[:3])} hold numbers that are not finite; nothing was saved")

    def _not_finite(self, text: str) -> Iterator[Report]:
        path = write_bad_batches(self.session, self.recent)
        fix = f"look at the examples in {path}; lower --rate; the last good weights are in the newest checkpoint"
        yield self._told(Noticed(self.standing.step, "not-finite", text, fix))
        yield self._ended("not-finite", NOT_FINITE)

    def _validate(self) -> Iterator[Report]:
        """A look at the dev part; the weights are shipped if they are chosen."""
        reached("validation")
        yield from self._require_finite()
        standing = self.standing
        with self.update.shipped():
            found, share = look(self.session), self._share()
            rate = rate_at(self.config, standing.step, share, standing.factor)
            better, got_on = judge(self.session.task.metric, found.metrics, standing, rate)
            chosen = self.choice.take(found, standing, better, rate)
            plateau(self.config, standing, got_on)
            place, pace = (standing.step, standing.epoch), self.clock.now(share)
            yield self._told(Validated(*place, found.metrics, better, chosen, found.samples, pace))
            value, name = found.value(self.session), self.session.task.metric.name
            if found.metrics and not math.isfinite(value):
                text = f"{name} on the dev part is not finite"
                yield self._told(Noticed(standing.step, "validation.not-finite", text, "lower --rate"))
            if chosen and (problem := self._ship(standing, found)):
                yield self._told(Noticed(standing.step, "disk.model", f"RUN/model was not replaced: {problem}", AT_END))

    def _ship(self, standing: Standing, found: Look) -> str:
        """Why the model's present weights are not in RUN/model; empty if they are."""
        if problem := self.saves.flush(self.standing):  # the card tells of all lines
            return problem
        whole = found.gathered(self.session)
        return agreed(self.ranks, lambda: ship(self.session, standing, whole))[1]

    def _save(self) -> Iterator[Report]:
        """A checkpoint, or a notice why there is none; three failures in a row end the run."""
        yield from self._require_finite()
        path, problem = self.saves.write(self.standing)
        yield self._told(Saved(self.standing.step, path, problem))
        if problem:
            text = f"no checkpoint was written ({self.saves.failed} of {MOST_FAILED} allowed): {problem}"
            yield self._told(Noticed(self.standing.step, "disk.save", text, "the checkpoints before it are whole"))
        if self.saves.failed == MOST_FAILED:
            yield self._ended("disk", DISK)

    def _finish(self, why: Why) -> Iterator[Report]:
        """The last validation, the last checkpoint, and the end."""
        if self.standing.validated != self.standing.step:
            yield from self._validate()
        if self.config.average_last > 1:
            yield from self._average()
        self.standing.ended, self.standing.asked = why, float(self.config.length.count)
        yield from self._save()
        if self.saves.failed:
            yield self._ended("disk", DISK)
        yield from self._close(why)

    def _average(self) -> Iterator[Report]:
        """The mean of the last checkpoints takes the place of the chosen weights if the dev part likes it better."""
        last = last_weights(self.session, self.standing, self.update.tensors()["model"])
        for problem in last.problems:
            text = f"a checkpoint is not in the mean of the last {self.config.average_last}: {problem}"
            yield self._told(Noticed(self.standing.step, "average.damaged", text))
        with self.update.replaced(mean_of(last.weights)):
            yield from self._validate()

    def _close(self, why: Why) -> Iterator[Report]:
        """The end of a run that is over: RUN/model is that of its chosen validation, made anew if need be."""
        result = mended(self.session, self.update, self.standing, self._ship)
        if result is not None:
            yield self._told(telling.mended_notice(self.standing, result))
            if result.problem:
                yield self._ended("disk", DISK)
        yield self._ended(why, 0)

    def _ended(self, why: Why, code: int) -> Ended:
        report = self._told(telling.ended(self.standing, why, code, self.clock.now(1.0)))
        self._log_all()  # whoever hears of the end finds it in the log
        return report

    def _log_all(self) -> None:
        with suppress(DurableError):  # a full disk is told by the checkpoints that could not be written
            self.journal.flush()

    def _told(self, report: AnyReport) -> AnyReport:
        """The report, which is also in the journal."""
        self.journal.take(report)
        return report
