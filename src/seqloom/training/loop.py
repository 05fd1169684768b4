"""The training loop: one generator of events for every family and task.

    ┌─▶ step ─▶ count ─┬─▶ log?       every `log_every` steps
    │                  ├─▶ validate?  at the end of an epoch, or every `validate_every` steps; writes RUN/model
    │                  ├─▶ save?      after each validation, or every `save_every` steps
    └──────────────────┴─▶ end?       duration reached, no improvement, a signal, or NaN

The training state changes in one place, `_take`, together with the weights. Everything else is a function of it, so a
resumed run repeats the steps that were lost, event for event.

    step.py           one step: from a batch to new weights      validation.py   the dev set; RUN/model
    learning_rate.py  learning rate and progress                 checkpoint.py   all that a run needs to resume
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from seqloom.config.training import EpochsConfig, SecondsConfig
from seqloom.data.loader import Loader, Position, Step
from seqloom.errors import DurableError
from seqloom.files.disk import reached, require_free_space
from seqloom.files.folders import remove_folder
from seqloom.files.jsonl import write_lines
from seqloom.nn.ops.kernel_caches import few_kernels
from seqloom.report.numbers import counted
from seqloom.training import checkpoint as checkpoints
from seqloom.training import devices
from seqloom.training.checkpoint import Checkpoint, in_between, mean_of, save_is_due, validation_is_due
from seqloom.training.devices import agreed, deterministic, environment
from seqloom.training.events import Ended, NoLog, Notice, Report, RunLog, Saved, Started, Stepped, Validated, Why
from seqloom.training.learning_rate import expected_steps, is_over, lr_at, progress_of, update_plateau
from seqloom.training.newton import SolutionPath, Solver
from seqloom.training.recorded import RecordedUpdate, require_recordable
from seqloom.training.session import Clock, Session
from seqloom.training.state import LossSums, Machine, TrainingState, require_plan
from seqloom.training.step import Tally, Update, WeightUpdate, elements_of
from seqloom.training.validation import (
    CheckpointChoice,
    ValidationResult,
    last_weights,
    record_validation,
    repaired_model,
    save_model,
    settle,
    validate,
)

AnyReport = TypeVar("AnyReport", bound=Report)
ROOM = 2.2  # checkpoints that must fit on the disk: one stays while the next is written
MOST_NOT_FINITE = 3  # steps in a row
MOST_FAILED = 3  # checkpoints in a row
NOT_FINITE, DISK = 5, 4  # exit codes
AT_END = "the older model is intact; it is rebuilt from the chosen checkpoint when the run ends"
BAD_BATCH = "bad_batch.jsonl"  # the examples of the last steps before NaN or infinity
LONGEST = 2_000  # characters of an input in it


def add(run_state: TrainingState, tally: Tally) -> None:
    """Add the numbers that were read from the device to the sums of the run."""
    sums = run_state.sums
    sums.steps += tally.steps
    sums.loss += tally.loss
    sums.weight += tally.weight
    sums.norm += tally.norm
    sums.largest = max(sums.largest, tally.largest)
    sums.clipped += tally.clipped
    sums.skipped += tally.skipped
    sums.elements += tally.elements
    sums.tokens += tally.tokens
    run_state.not_finite, run_state.loss_scale, run_state.scale_steps = tally.not_finite, tally.scale, tally.grown


def training(session: Session, resumed: Checkpoint | None) -> Iterator[Report]:
    """The events of a run, from its start or from a checkpoint."""
    with few_kernels(), devices.remembering(session.folder.path):
        yield from _Loop(session, resumed).run()


class _Loop:
    """A run in progress."""

    def __init__(self, session: Session, resumed: Checkpoint | None) -> None:
        self.session, self.config = session, session.config.training
        self.ranks, self.alone = session.ranks, session.ranks.count == 1
        loader = session.task.loader(
            session.prepared,
            "train",
            self.config.batching,
            seed=self.config.seed,
            workers=session.workers,
            rank=session.ranks.rank,
            ranks=session.ranks.count,
        )
        self.update: WeightUpdate  # gradient descent by batches, or newton
        self.loader: Loader[Any, Any] | SolutionPath
        if self.config.strengths:
            solver = Solver(session)
            self.update, self.loader = solver, SolutionPath(loader, solver)
        else:
            parts = (session.task, session.model, self.config, session.ranks, session.device)
            if self.config.cuda_graphs:
                require_recordable(*parts[2:])
            self.update = RecordedUpdate(*parts) if self.config.cuda_graphs else Update(*parts)
            self.loader = loader
        self.plan = self.loader.plan
        self.run_state = self._first_state(resumed)
        self.clock = Clock(resumed.machine.seconds if resumed else 0.0, session.device.torch)
        self.log = RunLog(session.folder.path, self.run_state.metrics_lines) if session.ranks.rank == 0 else NoLog()
        self.choice = CheckpointChoice(session, resumed)
        self.shipped: ValidationResult | None = None  # the validation of the weights in RUN/model, if in this session
        self.failed = 0  # checkpoints in a row that could not be saved
        self.read_every = 1 if session.device.torch.type == "cpu" else self.config.log_every
        self.recent: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=MOST_NOT_FINITE + self.read_every)
        self.lr = 0.0
        self.stop_requested = self.stop = self.halved = (
            False  # stop_requested: this process got a signal; stop: all know
        )

    def _first_state(self, resumed: Checkpoint | None) -> TrainingState:
        fitting = devices.fitting(self.session.folder.path)
        pieces, self.messages = (
            max(self.config.accumulate, fitting.micro_batches),
            (*self.session.messages, *fitting.messages),
        )
        if resumed is None:
            return TrainingState(plan_hash=self.plan.fingerprint(), seed=self.config.seed, micro_batches=pieces)
        require_plan(resumed.run_state, self.plan.fingerprint())
        self.update.load(resumed.tensors, resumed.run_state)
        resumed.run_state.micro_batches = max(resumed.run_state.micro_batches, pieces)
        if resumed.run_state.end_amount < self.config.duration.amount:
            resumed.run_state.end_reason = ""
        return resumed.run_state

    def run(self) -> Iterator[Report]:
        """All events; the last one is `Ended`."""
        try:
            with deterministic(self.config), closing(self._reports()) as reports:  # type: ignore[type-var]
                for report in reports:
                    yield report
                    if isinstance(report, Ended):
                        return
        finally:  # also when the consumer stops early, as for a pruned trial
            self._log_all()

    def _reports(self) -> Iterator[Report]:
        """The events; the consumer stops at the first `Ended`."""
        yield self._log(self._begun())
        if self.run_state.end_reason:
            # those that stayed if it was killed after its last save
            self._remove_old(checkpoints.path_of(self.session.folder.checkpoints, self.run_state.step))
            yield from self._close("done" if self.run_state.end_reason == "done" else "patience")
            return
        start = Position(self.run_state.epoch, self.run_state.index)
        until = self.config.duration.epochs if isinstance(self.config.duration, EpochsConfig) else None
        with closing(self.loader.steps(start, until=until)) as steps:  # type: ignore[type-var]  # a generator
            while not self._is_over():
                with self.clock.data():
                    step = next(steps)
                self._take(step)
                yield from self._after()
        yield from self._finish("done")

    def _begun(self) -> Started:
        """The first event; DurableError if the disk has no space for two checkpoints."""
        session, prepared = self.session, self.session.prepared
        weights, size = list(session.model.parameters()), checkpoints.estimated_bytes(self.update.tensors())
        size += 8 * len(prepared.splits["dev"]) * (1 + session.task.statistics)  # rows of the best validation
        require_free_space(session.folder.path, int(ROOM * size))
        tokens = int(sum(prepared.columns["input"].lengths[prepared.splits["train"]]))
        return Started(
            folder=session.folder.path,
            step=self.run_state.step,
            parameters=sum(weight.numel() for weight in weights),
            trainable=sum(weight.numel() for weight in weights if weight.requires_grad),
            steps=expected_steps(self.config.duration, self.plan, tokens),
            checkpoint_bytes=size,
            environment=environment(session.device, session.ranks),
            messages=(*self.messages, *self._divided()),
        )

    def _divided(self) -> tuple[str, ...]:
        """A message about how a step is split to save memory."""
        message = self.session.task.divided(self.session.model, self.run_state.micro_batches).message
        return (message,) if message else ()

    def _take(self, step: Step[Any]) -> None:
        """One step: weights and training state change together."""
        run_state = self.run_state
        if step.index == 0:
            reached("first-batch")
        pieces, self.lr = (
            run_state.micro_batches,
            lr_at(self.config, run_state.step, self._share(), run_state.plateau_factor),
        )
        self.stop_requested = self.session.stopping.signal is not None
        self.update.step(step.batch, carried=step.carried, run_state=run_state, lr=self.lr, stop=self.stop_requested)
        reached("between-update-and-count")
        last = step.index + 1 == self.plan.count(step.epoch)
        run_state.step += 1
        run_state.epoch, run_state.index = (step.epoch + 1, 0) if last else (step.epoch, step.index + 1)
        ids = step.batch.ids if step.batch is not None else ()
        run_state.examples += len(ids)
        run_state.order_hash = hashlib.sha256("\n".join((run_state.order_hash, *ids)).encode()).hexdigest()
        if self.alone and step.batch is not None:  # several processes sum their tokens in `_read`
            run_state.tokens += elements_of(step.batch)[1]
        self.recent.append((run_state.step, ids))
        self.halved = run_state.micro_batches != pieces
        if last:
            reached("last-batch")

    def _share(self) -> float:
        return progress_of(self.config.duration, self.run_state, self.plan, self.clock.agreed)

    def _is_over(self) -> bool:
        over = is_over(self.config.duration, self.run_state, self.clock.agreed)
        return over or self.update.is_done(self.run_state)

    def _after(self) -> Iterator[Report]:
        """Log, validate, save and stop after a step, as far as each is due."""
        run_state, config = self.run_state, self.config
        validates, saves = validation_is_due(config, run_state), save_is_due(config, run_state)
        if self.halved:
            ran_out = (
                f"memory ran out: each step now uses {run_state.micro_batches} micro-batches, with the same gradient"
            )
            text, fix = (
                ": ".join((ran_out, *self._divided())),
                f"next time, start with --accumulate {run_state.micro_batches}",
            )
            yield self._log(Notice(run_state.step, "memory.halved", text, fix))
        for text in self.update.notices():
            yield self._log(Notice(run_state.step, "step.recorded", text))
        if self._meets() or validates or saves:
            yield from self._read()
        over = self._is_over()  # evaluated once: the clock runs, and no step is validated twice
        if run_state.step % config.log_every == 0:
            yield self._log(self._stepped())
        if run_state.index == 0:
            reached("epoch-boundary")
        if validates and not over:
            with self.clock.aside():
                yield from self._validate()
            if config.patience and run_state.patience_count >= config.patience:
                yield from self._finish("patience")
                return
        if (saves and not over) or self.stop:
            with self.clock.aside():
                yield from self._save()
        if self.stop:
            yield from self._settle(over=False)
            signals = self.ranks.gather(str(self.session.stopping.signal or 0).encode())
            yield self._ended("stopped", 128 + max(map(int, signals)))  # some rank got a signal

    def _stepped(self) -> Stepped:
        """A summary of the steps since the last such event; the sums start at zero again."""
        run_state, share = self.run_state, self._share()
        sums, run_state.sums = run_state.sums, LossSums()
        return Stepped(
            step=run_state.step,
            epoch=run_state.epoch_number,
            progress=share,
            loss=sums.loss / sums.weight if sums.weight else float("nan"),
            lr=self.lr,
            grad_norm=sums.norm / max(1, sums.steps - sums.skipped),
            max_grad_norm=sums.largest,
            clipped=sums.clipped / max(1, sums.steps),
            skipped=sums.skipped,
            tokens=run_state.tokens,
            padding=1 - sums.tokens / sums.elements if sums.elements else 0.0,
            speed=self.clock.speed(share),
        )

    def _meets(self) -> bool:
        """Whether the host synchronizes with the device and the other ranks here: every few steps, and at the end.

        A single process knows its clock and its signals directly; several must agree.
        """
        if self.alone:
            self.clock.agree(self.ranks)
        return self.run_state.step % self.read_every == 0 or (self.alone and self.stop_requested) or self._is_over()

    def _read(self) -> Iterator[Report]:
        """Read the numbers of the last steps: the one place where the host waits for the device."""
        tally = self.update.read()
        add(self.run_state, tally)
        self.clock.tokens += tally.tokens
        self.stop = tally.stop
        if not self.alone:
            self.run_state.tokens += tally.tokens
            if isinstance(self.config.duration, SecondsConfig):  # the clocks of several processes differ
                self.clock.agree(self.ranks)
        if tally.skipped:
            text = f"skipped {counted(tally.skipped, 'step')}: loss or gradient was NaN or infinite"
            yield self._log(Notice(self.run_state.step, "step.skipped", text, "lower --lr"))
        if tally.not_finite >= MOST_NOT_FINITE:
            yield from self._not_finite("the loss or gradient was NaN or infinite in three steps in a row")

    def _require_finite(self) -> Iterator[Report]:
        """The end of the run if a tensor contains NaN or infinity: such weights are never saved."""
        if bad := self.update.finite():
            yield from self._not_finite(f"{', '.join(bad[:3])} contain NaN or infinity; nothing was saved")

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
        fix = f"lower --lr, and check the examples in {path}; the newest checkpoint has the last good weights"
        yield self._log(Notice(self.run_state.step, "not-finite", text, fix))
        yield from self._settle(over=False)
        yield self._ended("not-finite", NOT_FINITE)

    def _validate(self) -> Iterator[Report]:
        """Validate on the dev set; chosen weights are saved to RUN/model."""
        reached("validation")
        yield from self._require_finite()
        run_state = self.run_state
        with self.update.shipped():
            found, share = validate(self.session), self._share()
            lr = lr_at(self.config, run_state.step, share, run_state.plateau_factor)
            # newton has few epochs, and its loss chooses the strength
            rows = 0 if self.config.strengths else len(self.session.prepared.splits["dev"])
            better, got_on = record_validation(self.session.task.metric, found.metrics, run_state, lr, rows=rows)
            chosen = self.choice.take(found, run_state, better, lr)
            update_plateau(self.config, run_state, got_on)
            place, pace = (run_state.step, run_state.epoch_number), self.clock.now(share)
            yield self._log(Validated(*place, found.metrics, better, chosen, found.samples, pace))
            value, name = found.value(self.session), self.session.task.metric.name
            if found.metrics and not math.isfinite(value):
                text = f"{name} on the dev set is NaN or infinite"
                yield self._log(Notice(run_state.step, "validation.not-finite", text, "lower --lr"))
            if chosen and (problem := self._save_model(run_state, found)):
                yield self._log(
                    Notice(
                        run_state.step, "disk.model", f"the model in RUN/model could not be replaced: {problem}", AT_END
                    )
                )

    def _save_model(self, run_state: TrainingState, found: ValidationResult) -> str:
        """Save the current weights to RUN/model; returns the problem, empty if there was none."""
        if problem := self._flush():  # the card needs all lines
            return problem
        whole = found.gathered(self.session)
        problem = agreed(self.ranks, lambda: save_model(self.session, run_state, whole))[1]
        if not problem:
            self.shipped = whole
        return problem

    def _settle(self, *, over: bool) -> Iterator[Report]:
        """Finish RUN/model with calibration and intervals, or log a notice why not."""
        with self.clock.aside():
            problem = self._flush() or settle(self.session, self.update, self.shipped, over)
        if problem:
            text = f"the model in RUN/model has no calibration and no confidence intervals: {problem}"
            yield self._log(Notice(self.run_state.step, "disk.model", text, "fix that, and run the same command again"))
            if over:
                yield self._ended("disk", DISK)

    def _save(self) -> Iterator[Report]:
        """Save a checkpoint, or log a notice why not; three failures in a row end the run."""
        yield from self._require_finite()
        path, problem = None, self._flush()
        if not problem:
            path, problem = agreed(self.ranks, self._saved)
        self.failed = self.failed + 1 if problem else 0
        yield self._log(Saved(self.run_state.step, path or self.session.folder.checkpoints, problem))
        if problem:
            text = f"the checkpoint could not be saved (failure {self.failed} of {MOST_FAILED}): {problem}"
            yield self._log(
                Notice(self.run_state.step, "disk.save", text, "free some space; older checkpoints are intact")
            )
        if self.failed == MOST_FAILED:
            yield self._ended("disk", DISK)

    def _flush(self) -> str:
        """Write all log lines; returns the problem, empty if there was none. The same on all processes."""
        _, problem = agreed(self.ranks, self.log.flush)
        self.run_state.metrics_lines = self.log.lines
        return problem

    def _saved(self) -> Path:
        """Save a checkpoint and remove old ones, also those that a signal caused in between."""
        session, run_state, config = self.session, self.run_state, self.config
        machine = Machine(environment=environment(session.device, session.ranks), seconds=self.clock.seconds)
        folder, tensors = session.folder.checkpoints, self.update.tensors() | self.choice.tensors()
        newest = checkpoints.save(folder, Checkpoint(run_state, machine, tensors), session.ranks)
        if save_is_due(config, run_state) or run_state.end_reason:
            self._remove_old(newest)
        return newest

    def _remove_old(self, newest: Path) -> None:
        """Remove old checkpoints, also those that a signal caused in between."""
        if self.session.ranks.rank != 0:
            return
        folder, chosen = self.session.folder.checkpoints, self.run_state.chosen
        for path in in_between(folder, self.config):
            if path != newest:
                remove_folder(path)
        kept = max(self.config.keep_checkpoints, self.config.average_checkpoints)
        checkpoints.retain(folder, kept, chosen.step if chosen else None)

    def _finish(self, why: Why) -> Iterator[Report]:
        """The last validation, the last checkpoint, and the end."""
        if self.run_state.last_validation != self.run_state.step:
            yield from self._validate()
        if self.config.average_checkpoints > 1:
            yield from self._average()
        self.run_state.end_reason, self.run_state.end_amount = why, float(self.config.duration.amount)
        yield from self._save()
        if self.failed:
            yield self._ended("disk", DISK)
        yield from self._close(why)

    def _average(self) -> Iterator[Report]:
        """Validate the mean of the last checkpoints; it replaces the chosen weights if its dev score is better."""
        weights, problems = last_weights(self.session, self.run_state, self.update.tensors()["model"])
        for problem in problems:
            text = f"a checkpoint was left out of the average of the last {self.config.average_checkpoints}: {problem}"
            yield self._log(Notice(self.run_state.step, "average.damaged", text))
        with self.update.replaced(mean_of(weights)):
            yield from self._validate()

    def _close(self, why: Why) -> Iterator[Report]:
        """The end of a finished run. RUN/model is rebuilt if it is not that of the chosen validation."""
        result = repaired_model(self.session, self.update, self.run_state, self._save_model)
        if result is not None:
            chosen = self.run_state.chosen.step if self.run_state.chosen else 0
            text, fix = f"the model in RUN/model was not that of the chosen step {chosen}", ""
            if result.problem:
                code, text, fix = (
                    "disk.model",
                    f"{text}, and could not be rebuilt: {result.problem}",
                    "fix that, and run the same command again",
                )
            elif result.step == chosen:
                code, text = "model.repaired", f"{text}; it was rebuilt from the checkpoint"
            else:
                code, text = "model.other", f"{text}, whose checkpoint is gone; it is now that of step {result.step}"
            yield self._log(Notice(self.run_state.step, code, text, fix))
            if result.problem:
                yield self._ended("disk", DISK)
        yield from self._settle(over=True)
        yield self._ended(why, 0)

    def _ended(self, why: Why, code: int) -> Ended:
        best, chosen = self.run_state.best, self.run_state.chosen
        report = self._log(
            Ended(
                step=self.run_state.step,
                reason=why,
                best_step=best.step if best else 0,
                chosen_step=chosen.step if chosen else 0,
                metrics=chosen.metrics if chosen else {},
                speed=self.clock.now(1.0),
                exit_code=code,
            )
        )
        self._log_all()  # the log is complete when the event is seen
        return report

    def _log_all(self) -> None:
        with suppress(DurableError):  # the failed checkpoint has reported the full disk
            self.log.flush()

    def _log(self, report: AnyReport) -> AnyReport:
        """Log an event and return it."""
        self.log.take(report)
        return report
