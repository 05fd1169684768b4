"""The loop: one generator of reports for every family and task.

    ┌─▶ step ─▶ count ─┬─▶ report?    every `report_every` steps
    │                  ├─▶ validate?  at the end of an epoch, or every so many steps; the best goes to RUN/model
    │                  ├─▶ save?      after each validation, or every so many steps
    └──────────────────┴─▶ over?      the length is reached, nobody got better, a signal came, numbers went wrong

Where a run stands changes in one place, `_take`, together with the weights. Everything else is a function of it, so a
run that goes on from a checkpoint repeats what was lost, report for report.
"""

import hashlib
import math
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from seqloom.data.loader import Position, Step
from seqloom.durable import remove_folder, require_free_space
from seqloom.durable.failing import reached
from seqloom.errors import DurableError
from seqloom.training import checkpoints, lengths
from seqloom.training.averaging import mean_of
from seqloom.training.bad_batches import write_bad_batches
from seqloom.training.checkpoints import Checkpoint
from seqloom.training.clock import Clock
from seqloom.training.devices import deterministic, environment
from seqloom.training.dues import in_between, save_is_due, validation_is_due
from seqloom.training.journal import Journal
from seqloom.training.reports import Begun, Ended, Noticed, Report, Saved, Stepped, Validated, Why
from seqloom.training.schedules import plateau, rate_at
from seqloom.training.session import Session
from seqloom.training.shipping import last_weights, ship
from seqloom.training.standing import Best, Machine, Standing, Sums
from seqloom.training.update import Tally, Update
from seqloom.training.validating import look

AnyReport = TypeVar("AnyReport", bound=Report)
MOST_NOT_FINITE = 3  # steps in a row
MOST_FAILED_SAVES = 3
ROOM = 2.2  # checkpoints that must fit on the disk at the start: one stays while the next is written
NOT_FINITE, DISK = 5, 4  # exit codes


def training(session: Session, resumed: Checkpoint | None, said: tuple[str, ...] = ()) -> Iterator[Report]:
    """The reports of a run, from its beginning or from a checkpoint on."""
    yield from _Loop(session, resumed, said).run()


class _Loop:
    """A run on its way."""

    def __init__(self, session: Session, resumed: Checkpoint | None, said: tuple[str, ...]) -> None:
        self.session, self.config, self.said = session, session.config.training, said
        self.update = Update(session.task, session.model, self.config, session.ranks, session.device)
        self.loader = session.task.loader(
            session.prepared,
            "train",
            self.config.feed,
            seed=self.config.seed,
            workers=session.workers,
            rank=session.ranks.rank,
            ranks=session.ranks.count,
        )
        self.plan = self.loader.plan
        self.standing = self._standing(resumed)
        self.clock = Clock(resumed.machine.seconds if resumed else 0.0, session.device.torch)
        self.journal = Journal(session.folder.path, self.standing.lines) if session.ranks.rank == 0 else None
        self.read_every = 1 if session.device.torch.type == "cpu" else self.config.report_every
        self.recent: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=MOST_NOT_FINITE + self.read_every)
        self.failed_saves, self.rate = 0, 0.0
        self.stop = self.halved = False

    def _standing(self, resumed: Checkpoint | None) -> Standing:
        if resumed is None:
            return Standing(plan=self.plan.fingerprint(), seed=self.config.seed, pieces=self.config.pieces)
        self.update.load(resumed.tensors, resumed.standing)
        if resumed.standing.asked < self.config.length.count:
            resumed.standing.ended = ""
        return resumed.standing

    def run(self) -> Iterator[Report]:
        """All reports; the last one is `Ended`."""
        with deterministic(self.config), closing(self._reports()) as reports:  # type: ignore[type-var]  # a generator
            for report in reports:
                yield report
                if isinstance(report, Ended):
                    return

    def _reports(self) -> Iterator[Report]:
        """The reports, which nobody reads beyond the first `Ended`."""
        yield self._told(self._begun())
        if self.standing.ended:
            yield self._ended("done" if self.standing.ended == "done" else "patience", 0)
            return
        start = Position(self.standing.epoch, self.standing.index)
        with closing(self.loader.steps(start)) as steps:  # type: ignore[type-var]  # a generator
            while not lengths.is_over(self.config.length, self.standing, self.clock.seconds):
                with self.clock.data():
                    step = next(steps)
                self._take(step)
                yield from self._after(step)
        yield from self._finish("done")

    def _begun(self) -> Begun:
        session, tensors = self.session, self.update.tensors()
        weights = list(session.model.parameters())
        size = checkpoints.estimated_bytes(tensors)
        require_free_space(session.folder.path, int(ROOM * size))
        symbols = int(sum(session.prepared.columns["input"].lengths[session.prepared.parts["train"]]))
        return Begun(
            folder=session.folder.path,
            step=self.standing.step,
            parameters=sum(weight.numel() for weight in weights),
            trained=sum(weight.numel() for weight in weights if weight.requires_grad),
            steps=lengths.expected_steps(self.config.length, self.plan, symbols),
            checkpoint_bytes=size,
            environment=environment(session.device, session.ranks),
            said=(*session.said, *self.said),
        )

    def _take(self, step: Step[Any]) -> None:
        """One step: the weights and where the run stands change together."""
        standing = self.standing
        if step.index == 0:
            reached("first-batch")
        pieces, self.rate = standing.pieces, self._rate()
        self.update.step(
            step.batch,
            carried=step.carried,
            standing=standing,
            rate=self.rate,
            stop=self.session.stopping.signal is not None,
        )
        reached("between-update-and-count")
        last = step.index + 1 == self.plan.count(step.epoch)
        standing.step += 1
        standing.epoch, standing.index = (step.epoch + 1, 0) if last else (step.epoch, step.index + 1)
        ids = step.batch.ids if step.batch is not None else ()
        standing.examples += len(ids)
        standing.order = hashlib.sha256("\n".join((standing.order, *ids)).encode()).hexdigest()
        self.recent.append((standing.step, ids))
        self.halved = standing.pieces != pieces
        if last:
            reached("last-batch")

    def _rate(self) -> float:
        share = lengths.share_done(self.config.length, self.standing, self.plan, self.clock.seconds)
        return rate_at(self.config, self.standing.step, share, self.standing.factor)

    def _after(self, step: Step[Any]) -> Iterator[Report]:
        """What follows a step."""
        standing, config = self.standing, self.config
        ends = standing.index == 0  # of an epoch
        validates, saves = validation_is_due(config, standing), save_is_due(config, standing)
        over = lengths.is_over(config.length, standing, self.clock.seconds)
        if self.halved:
            text = f"memory ran out: each step is now computed in {standing.pieces} pieces; the gradient is the same"
            yield self._told(
                Noticed(standing.step, "memory.halved", text, f"--pieces {standing.pieces} from the start")
            )
        if validates or saves or over or standing.step % self.read_every == 0:
            yield from self._read()
        if standing.step % config.report_every == 0:
            yield self._told(self._stepped())
        if ends:
            reached("epoch-boundary")
        if validates and not over:
            better = yield from self._validate()
            if not better and config.patience and standing.waited >= config.patience:
                yield from self._finish("patience")
                return
        if (saves and not over) or self.stop:
            yield from self._save()
        if self.stop:
            signals = self.session.ranks.gather(str(self.session.stopping.signal or 0).encode())
            yield self._ended("stopped", 128 + max(map(int, signals)))  # some rank heard one

    def _read(self) -> Iterator[Report]:
        """Add up what the last steps left on the device: the one place where the host waits for it."""
        tally = self.update.read()
        _add(self.standing, tally)
        self.clock.symbols += tally.symbols
        self.stop = tally.stop
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

    def _stepped(self) -> Stepped:
        standing, sums = self.standing, self.standing.sums
        share = lengths.share_done(self.config.length, standing, self.plan, self.clock.seconds)
        good = max(1, sums.steps - sums.skipped)
        standing.sums = Sums()
        return Stepped(
            step=standing.step,
            epoch=standing.epoch,
            share=share,
            loss=sums.loss / sums.weight if sums.weight else float("nan"),
            rate=self.rate,
            norm=sums.norm / good,
            largest=sums.largest,
            clipped=sums.clipped / max(1, sums.steps),
            skipped=sums.skipped,
            symbols=standing.symbols,
            padding=1 - sums.symbols / sums.elements if sums.elements else 0.0,
            pace=self.clock.pace(share),
        )

    def _validate(self) -> Generator[Report, None, bool]:
        """Look at the dev part; returns whether it was better than ever before."""
        reached("validation")
        yield from self._require_finite()
        standing, session = self.standing, self.session
        share = lengths.share_done(self.config.length, standing, self.plan, self.clock.seconds)
        with self.update.shipped():
            found = look(session)
            metric = session.task.metric
            value = found.metrics.get(metric.name, float("nan"))
            before = standing.best.metrics.get(metric.name) if standing.best else None
            better = metric.better(value, before) or not found.metrics  # without a dev part the last one counts
            if better:
                standing.best = Best(step=standing.step, metrics=_finite(found.metrics))
            standing.waited = 0 if better else standing.waited + 1
            plateau(self.config, standing, better)
            report = Validated(
                standing.step, standing.epoch, found.metrics, better, found.samples, self.clock.pace(share)
            )
            yield self._told(report)
            if found.metrics and not math.isfinite(value):
                text = f"{metric.name} on the dev part is not finite"
                yield self._told(Noticed(standing.step, "validation.not-finite", text, "lower --rate"))
            if better:
                self._flush()
                ship(session, standing, found)
                session.ranks.wait("the model to be shipped")
        return better

    def _save(self) -> Iterator[Report]:
        """A checkpoint, or a notice why there is none; three failures in a row end the run."""
        yield from self._require_finite()
        session, standing = self.session, self.standing
        problem, path = "", session.folder.checkpoints
        try:
            self._flush()
            machine = Machine(environment=environment(session.device, session.ranks), seconds=self.clock.seconds)
            checkpoint = Checkpoint(standing, machine, self.update.tensors())
            path = checkpoints.save(session.folder.checkpoints, checkpoint, session.ranks)
            if session.ranks.rank == 0 and (save_is_due(self.config, standing) or standing.ended):
                self._retain(path)
        except DurableError as error:
            problem = str(error)
        problems = [text.decode() for text in session.ranks.gather(problem.encode())]
        problem = next(filter(None, problems), "")
        yield self._told(Saved(standing.step, path, problem))
        self.failed_saves = self.failed_saves + 1 if problem else 0
        if problem:
            text = f"no checkpoint was written ({self.failed_saves} of {MOST_FAILED_SAVES} allowed): {problem}"
            yield self._told(Noticed(standing.step, "disk.save", text, "the checkpoints before it are whole"))
        if self.failed_saves == MOST_FAILED_SAVES:
            yield self._ended("disk", DISK)

    def _retain(self, newest: Path) -> None:
        """Remove old checkpoints, and those that a signal asked for in between: they change nothing that comes out."""
        best, folder = self.standing.best, self.session.folder.checkpoints
        for path in in_between(folder, self.config):
            if path != newest:
                remove_folder(path)
        checkpoints.retain(folder, max(self.config.keep, self.config.average_last), best.step if best else None)

    def _finish(self, why: Why) -> Iterator[Report]:
        """The last validation, the last checkpoint, and the end."""
        if why == "done":  # patience ends a run behind a validation
            yield from self._validate()
        if self.config.average_last > 1:
            yield from self._average()
        self.standing.ended, self.standing.asked = why, float(self.config.length.count)
        yield from self._save()
        yield self._ended(why, 0)

    def _average(self) -> Iterator[Report]:
        """The mean of the last checkpoints takes the place of the best weights if the dev part likes it better."""
        weights = last_weights(self.session, self.config.average_last, self.update.tensors()["model"])
        with self.update.replaced(mean_of(weights)):
            yield from self._validate()

    def _ended(self, why: Why, code: int) -> Ended:
        best = self.standing.best
        report = Ended(
            step=self.standing.step,
            why=why,
            best_step=best.step if best else 0,
            metrics=best.metrics if best else {},
            pace=self.clock.pace(1.0),
            exit_code=code,
        )
        self._told(report)
        with suppress(DurableError):  # a full disk is told by the checkpoints that could not be written
            self._flush()
        return report

    def _told(self, report: AnyReport) -> AnyReport:
        """The report, which is also in the journal."""
        if self.journal is not None:
            self.journal.take(report)
        return report

    def _flush(self) -> None:
        if self.journal is not None:
            self.journal.flush()
            self.standing.lines = self.journal.lines


def _add(standing: Standing, tally: Tally) -> None:
    """Put what was read from the device to the sums of the run."""
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
    standing.symbols += tally.symbols
    standing.not_finite, standing.scale, standing.grown = tally.not_finite, tally.scale, tally.grown


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
