"""The loop: one generator of reports for every family and task.

    ┌─▶ step ─▶ count ─┬─▶ report?    every `report_every` steps
    │                  ├─▶ validate?  at the end of an epoch, or every so many steps; what is chosen goes to RUN/model
    │                  ├─▶ save?      after each validation, or every so many steps
    └──────────────────┴─▶ over?      the length is reached, nobody got better, a signal came, numbers went wrong

Where a run stands changes in one place, `_take`, together with the weights. Everything else is a function of it, so a
run that goes on from a checkpoint repeats what was lost, report for report.

    step.py           one step: from a batch to new weights      validation.py   the dev part; RUN/model
    learning_rate.py  the rate of a step; how far a run is       checkpoint.py   all that a run needs to go on
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from seqloom.config.training import SecondsConfig
from seqloom.data.loader import Loader, Position, Step
from seqloom.errors import DurableError
from seqloom.files.disk import reached, require_free_space
from seqloom.files.folders import remove_folder
from seqloom.files.jsonl import write_lines
from seqloom.training import checkpoint as checkpoints
from seqloom.training import devices
from seqloom.training.checkpoint import Checkpoint, in_between, mean_of, save_is_due, validation_is_due
from seqloom.training.devices import agreed, deterministic, environment
from seqloom.training.events import Begun, Ended, Journal, Noticed, Report, Saved, Silent, Stepped, Validated, Why
from seqloom.training.launcher import few_kernels
from seqloom.training.learning_rate import expected_steps, is_over, plateau, rate_at, share_done
from seqloom.training.newton import SolutionPath, Solver
from seqloom.training.session import Clock, Session
from seqloom.training.state import LossSums, Machine, TrainingState, require_plan
from seqloom.training.step import Tally, Update, WeightUpdate, elements_of
from seqloom.training.validation import CheckpointChoice, ValidationResult, judge, last_weights, look, mended, ship

AnyReport = TypeVar("AnyReport", bound=Report)
ROOM = 2.2  # checkpoints that must fit on the disk at the start: one stays while the next is written
MOST_NOT_FINITE = 3  # steps in a row
MOST_FAILED = 3  # checkpoints in a row
NOT_FINITE, DISK = 5, 4  # exit codes
AT_END = "what was there is whole; it is made anew from the chosen checkpoint when the run is over"
BAD_BATCH = "bad_batch.jsonl"  # the examples that were being read when numbers stopped being finite
LONGEST = 2_000  # characters of an input in it


def add(standing: TrainingState, tally: Tally) -> None:
    """Add what was read from the device to the sums of the run."""
    sums = standing.sums
    sums.steps += tally.steps
    sums.loss += tally.loss
    sums.weight += tally.weight
    sums.norm += tally.norm
    sums.largest = max(sums.largest, tally.largest)
    sums.clipped += tally.clipped
    sums.skipped += tally.skipped
    sums.elements += tally.elements
    sums.symbols += tally.symbols
    standing.not_finite, standing.scale, standing.grown = tally.not_finite, tally.scale, tally.grown


def training(session: Session, resumed: Checkpoint | None) -> Iterator[Report]:
    """The reports of a run, from its beginning or from a checkpoint on."""
    with few_kernels(), devices.remembering(session.folder.path):
        yield from _Loop(session, resumed).run()


class _Loop:
    """A run on its way."""

    def __init__(self, session: Session, resumed: Checkpoint | None) -> None:
        self.session, self.config = session, session.config.training
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
        self.update: WeightUpdate  # batch after batch, or all texts at once
        self.loader: Loader[Any, Any] | SolutionPath
        if self.config.strengths:
            solver = Solver(session)
            self.update, self.loader = solver, SolutionPath(loader, solver)
        else:
            self.update = Update(session.task, session.model, self.config, session.ranks, session.device)
            self.loader = loader
        self.plan = self.loader.plan
        self.standing = self._standing(resumed)
        self.clock = Clock(resumed.machine.seconds if resumed else 0.0, session.device.torch)
        self.journal = Journal(session.folder.path, self.standing.lines) if session.ranks.rank == 0 else Silent()
        self.choice = CheckpointChoice(session, resumed)
        self.failed = 0  # checkpoints in a row that could not be written
        self.read_every = 1 if session.device.torch.type == "cpu" else self.config.report_every
        self.recent: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=MOST_NOT_FINITE + self.read_every)
        self.rate = 0.0
        self.heard = self.stop = self.halved = False  # heard: by this process; stop: all know

    def _standing(self, resumed: Checkpoint | None) -> TrainingState:
        fitting = devices.fitting(self.session.folder.path)
        pieces, self.said = max(self.config.pieces, fitting.pieces), (*self.session.said, *fitting.said)
        if resumed is None:
            return TrainingState(plan=self.plan.fingerprint(), seed=self.config.seed, pieces=pieces)
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
        yield self._told(self._begun())
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

    def _begun(self) -> Begun:
        """The first report; DurableError if the disk has no room for two checkpoints."""
        session, prepared = self.session, self.session.prepared
        weights, size = list(session.model.parameters()), checkpoints.estimated_bytes(self.update.tensors())
        size += 8 * len(prepared.parts["dev"]) * (1 + session.task.statistics)  # rows of the best validation
        require_free_space(session.folder.path, int(ROOM * size))
        symbols = int(sum(prepared.columns["input"].lengths[prepared.parts["train"]]))
        return Begun(
            folder=session.folder.path,
            step=self.standing.step,
            parameters=sum(weight.numel() for weight in weights),
            trained=sum(weight.numel() for weight in weights if weight.requires_grad),
            steps=expected_steps(self.config.length, self.plan, symbols),
            checkpoint_bytes=size,
            environment=environment(session.device, session.ranks),
            said=(*self.said, *self._divided()),
        )

    def _divided(self) -> tuple[str, ...]:
        """What people should know about how the steps of a run are computed in less memory."""
        said = self.session.task.divided(self.session.model, self.standing.pieces).said
        return (said,) if said else ()

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
        return share_done(self.config.length, self.standing, self.plan, self.clock.agreed)

    def _is_over(self) -> bool:
        over = is_over(self.config.length, self.standing, self.clock.agreed)
        return over or self.update.is_done(self.standing)

    def _after(self) -> Iterator[Report]:
        """What follows a step."""
        standing, config = self.standing, self.config
        validates, saves = validation_is_due(config, standing), save_is_due(config, standing)
        if self.halved:
            ran_out = f"memory ran out: each step is now computed in {standing.pieces} pieces; the gradient is the same"
            text, fix = ": ".join((ran_out, *self._divided())), f"--pieces {standing.pieces} from the start"
            yield self._told(Noticed(standing.step, "memory.halved", text, fix))
        if self._meets() or validates or saves:
            yield from self._read()
        over = self._is_over()  # asked once: time goes on, and no step is looked at twice
        if standing.step % config.report_every == 0:
            yield self._told(self._stepped())
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

    def _stepped(self) -> Stepped:
        """What the steps since the last such report came to; the next one begins at zero."""
        standing, share = self.standing, self._share()
        sums, standing.sums = standing.sums, LossSums()
        return Stepped(
            step=standing.step,
            epoch=standing.epoch,
            share=share,
            loss=sums.loss / sums.weight if sums.weight else float("nan"),
            rate=self.rate,
            norm=sums.norm / max(1, sums.steps - sums.skipped),
            largest=sums.largest,
            clipped=sums.clipped / max(1, sums.steps),
            skipped=sums.skipped,
            symbols=standing.symbols,
            padding=1 - sums.symbols / sums.elements if sums.elements else 0.0,
            pace=self.clock.pace(share),
        )

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
        add(self.standing, tally)
        self.clock.symbols += tally.symbols
        self.stop = tally.stop
        if not self.alone:
            self.standing.symbols += tally.symbols
            if isinstance(self.config.length, SecondsConfig):  # time decides, of which several processes have several
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
        prepared, rank = self.session.prepared, "" if self.alone else f"rank-{self.ranks.rank}-"
        path = self.session.folder.path / f"{rank}{BAD_BATCH}"
        records = []
        for step, ids in self.recent:
            for name in ids:
                place, shown = prepared.place_of(int(name)), prepared.shown(int(name))
                record = {"step": step, "id": name, "file": place.path, "line": place.line, "input": shown[:LONGEST]}
                records.append(record)
        write_lines(path, records)
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

    def _ship(self, standing: TrainingState, found: ValidationResult) -> str:
        """Why the model's present weights are not in RUN/model; empty if they are."""
        if problem := self._flush():  # the card tells of all lines
            return problem
        whole = found.gathered(self.session)
        return agreed(self.ranks, lambda: ship(self.session, standing, whole))[1]

    def _save(self) -> Iterator[Report]:
        """A checkpoint, or a notice why there is none; three failures in a row end the run."""
        yield from self._require_finite()
        path, problem = None, self._flush()
        if not problem:
            path, problem = agreed(self.ranks, self._saved)
        self.failed = self.failed + 1 if problem else 0
        yield self._told(Saved(self.standing.step, path or self.session.folder.checkpoints, problem))
        if problem:
            text = f"no checkpoint was written ({self.failed} of {MOST_FAILED} allowed): {problem}"
            yield self._told(Noticed(self.standing.step, "disk.save", text, "the checkpoints before it are whole"))
        if self.failed == MOST_FAILED:
            yield self._ended("disk", DISK)

    def _flush(self) -> str:
        """Why the lines of the journal are not on the disk; empty if they are. The same on all processes."""
        _, problem = agreed(self.ranks, self.journal.flush)
        self.standing.lines = self.journal.lines
        return problem

    def _saved(self) -> Path:
        """The checkpoint, and old ones gone; so are those that a signal asked for in between, which change nothing."""
        session, standing, config = self.session, self.standing, self.config
        machine = Machine(environment=environment(session.device, session.ranks), seconds=self.clock.seconds)
        folder, tensors = session.folder.checkpoints, self.update.tensors() | self.choice.tensors()
        newest = checkpoints.save(folder, Checkpoint(standing, machine, tensors), session.ranks)
        if session.ranks.rank == 0 and (save_is_due(config, standing) or standing.ended):
            for path in in_between(folder, config):
                if path != newest:
                    remove_folder(path)
            chosen = standing.chosen.step if standing.chosen else None
            checkpoints.retain(folder, max(config.keep, config.average_last), chosen)
        return newest

    def _finish(self, why: Why) -> Iterator[Report]:
        """The last validation, the last checkpoint, and the end."""
        if self.standing.validated != self.standing.step:
            yield from self._validate()
        if self.config.average_last > 1:
            yield from self._average()
        self.standing.ended, self.standing.asked = why, float(self.config.length.count)
        yield from self._save()
        if self.failed:
            yield self._ended("disk", DISK)
        yield from self._close(why)

    def _average(self) -> Iterator[Report]:
        """The mean of the last checkpoints takes the place of the chosen weights if the dev part likes it better."""
        weights, problems = last_weights(self.session, self.standing, self.update.tensors()["model"])
        for problem in problems:
            text = f"a checkpoint is not in the mean of the last {self.config.average_last}: {problem}"
            yield self._told(Noticed(self.standing.step, "average.damaged", text))
        with self.update.replaced(mean_of(weights)):
            yield from self._validate()

    def _close(self, why: Why) -> Iterator[Report]:
        """The end of a run that is over: RUN/model is that of its chosen validation, made anew if need be."""
        result = mended(self.session, self.update, self.standing, self._ship)
        if result is not None:
            chosen = self.standing.chosen.step if self.standing.chosen else 0
            text, fix = f"RUN/model was not that of the chosen step, {chosen}", ""
            if result.problem:
                code, text, fix = "disk.model", f"{text}, and cannot be: {result.problem}", "start again then"
            elif result.step == chosen:
                code, text = "model.mended", f"{text}: it was made anew from the checkpoint"
            else:
                code, text = "model.other", f"{text}, whose weights are not kept: it is that of step {result.step}"
            yield self._told(Noticed(self.standing.step, code, text, fix))
            if result.problem:
                yield self._ended("disk", DISK)
        yield self._ended(why, 0)

    def _ended(self, why: Why, code: int) -> Ended:
        best, chosen = self.standing.best, self.standing.chosen
        report = self._told(
            Ended(
                step=self.standing.step,
                why=why,
                best_step=best.step if best else 0,
                chosen_step=chosen.step if chosen else 0,
                metrics=chosen.metrics if chosen else {},
                pace=self.clock.now(1.0),
                exit_code=code,
            )
        )
        self._log_all()  # whoever hears of the end finds it in the log
        return report

    def _log_all(self) -> None:
        with suppress(DurableError):  # a full disk is told by the checkpoints that could not be written
            self.journal.flush()

    def _told(self, report: AnyReport) -> AnyReport:
        """The report, which is also in the journal."""
        self.journal.take(report)
        return report
