"""Tuning from Python in one call, and the generator of events behind it.

Trials run one after the other until there are enough or time is up, or in several workers that share only the storage.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import Format, Overlong, Task, Unit
from seqloom.config.options import stated, strict
from seqloom.config.tokenizers import FittedTokenizer, UnicodeForm, WordSplit
from seqloom.config.training import (
    AdamWConfig,
    AnyBatching,
    AnyOptimizer,
    AnySchedule,
    SpaceConfig,
)
from seqloom.data.check import Names
from seqloom.errors import ConfigError, HeldError, RepeatError, SeqloomError
from seqloom.experiments.progress import watcher
from seqloom.experiments.tune.plan import (
    DataGround,
    PrunerName,
    TrialEnded,
    TrialStarted,
    TuningEnded,
    TuningPlan,
    TuningReport,
    TuningStarted,
    TuningWorkerLost,
    default_request,
    near,
    require_searchable,
)
from seqloom.experiments.tune.progress import told
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.study import Study, open_storage
from seqloom.experiments.tune.trials import keep as keep_results
from seqloom.experiments.tune.trials import run_trial, tidy
from seqloom.experiments.workers import Interrupted, Why, Worker, Workers, require_jobs
from seqloom.files.disk import make_folder, remove_empty
from seqloom.files.lock import empty_held, hold, is_unused
from seqloom.training.request import requested
from seqloom.training.resolve import resolve

MOST_FAILURES = 3  # in a row: then the parameters are not the reason


class OpenTuning:
    """A search before its first trial: data read without its test set, study opened, settings checked."""

    def __init__(self, plan: TuningPlan) -> None:
        self.plan, self.began = plan, time.monotonic()
        require_searchable(plan)
        request = default_request(plan)
        first = resolve(
            plan.data, request, cache=plan.cache
        )  # with default settings; the data is read once for all trials
        if first.config.training.strengths:  # the search is over settings of gradient descent
            request = request._replace(training={**request.training, "optimizer": AdamWConfig()})
            first = resolve(plan.data, request, cache=plan.cache)
        if not len(first.prepared.splits["dev"]):
            raise ConfigError(
                "there is no dev set to tune on", fix="give --dev FILE, or --dev-size 10% --test-size 10%"
            )
        self.ground = DataGround(first)
        self.plan = plan = msgspec.structs.replace(plan, space=self.ground.filled(plan.space))
        require_searchable(plan)
        self.study = Study(plan, first.task.metric, open_storage(plan.storage))
        try:
            self.study.require_same(plan.asked(first) | {"space": plan.space})
            self.study.offer_first(near(first.config, default_request(plan), plan, self.ground))
        except BaseException:
            self.close()
            raise
        self.messages = (*first.messages, *self.study.opened.messages)

    def begun(self) -> TuningStarted:
        """The first event."""
        plan, study = self.plan, self.study
        return TuningStarted(plan.folder, plan.study, study.opened.shown, plan.trials, study.finished(), self.messages)

    def close(self) -> None:
        self.study.opened.close()

    @property
    def deadline(self) -> float:
        """When time is up."""
        return self.began + self.plan.seconds if self.plan.seconds else math.inf


def work(opening: OpenTuning) -> Iterator[TuningReport]:
    """Run trials until there are enough; yields their events. The last one is `TuningEnded`."""
    study, failures, ended = opening.study, 0, Interrupted("done", 0)
    try:
        while True:
            if time.monotonic() > opening.deadline:
                raise Interrupted("seconds", 0)
            with study.claim() as claimed:
                if claimed is None:
                    break
                for report in run_trial(claimed, study, opening.plan, opening.ground, opening.deadline):
                    yield report
                    if isinstance(report, TrialEnded):
                        failures = failures + 1 if report.state == "failed" else 0
                        if failures >= MOST_FAILURES:
                            problem = f"{failures} trials in a row failed; the last one: {report.problem}"
                            raise ConfigError(problem, fix="fix that first")
            tidy(opening.plan, study.results())
    except Interrupted as interruption:
        ended = interruption
    yield TuningEnded(ended.why, study.results(), ended.exit_code)


def watched(opening: OpenTuning, jobs: int) -> Iterator[TuningReport]:
    """The events of all trials while workers run them; RepeatError if all workers died.

    Workers share only the storage, which is polled: trials of other machines are reported too. If a worker dies, it is
    reported and the others resume its trial.
    """
    plan = msgspec.json.encode(opening.plan).decode()
    workers = Workers(jobs, _trials, plan, max(0.0, opening.deadline - time.monotonic()))
    seen: dict[int, str] = {one.number: one.state for one in opening.study.results().trials}
    words = dict[Worker, str]()
    with closing(workers.messages()) as messages:  # type: ignore[type-var]
        for one in messages:
            if one is not None:
                words[one[0]] = one[1].decode()
            yield from _news(opening.study.results(), seen)
    yield from _news(opening.study.results(), seen)
    lost = [words.get(worker) or worker.lost() for worker in workers.all if workers.stopped is None]
    lost = [problem for problem in lost if problem]
    yield from map(TuningWorkerLost, lost)
    late: Why = "seconds" if time.monotonic() > opening.deadline else "done"
    ended = workers.interruption() or Interrupted(late, 0)
    yield TuningEnded(ended.why, opening.study.results(), ended.exit_code)
    if lost and ended.why == "done" and opening.study.finished() < opening.plan.trials:
        raise RepeatError(
            f"workers ended before all trials were done: {lost[0]}",
            fix="fix that, and run the same command again to resume",
        )


def _trials(_: Callable[[], bytes], plan: str, remaining: float) -> Iterator[bytes]:
    """Run trials in a worker. It sends only why it cannot continue, because its trials are in the storage."""
    whole = msgspec.json.decode(plan, type=TuningPlan)
    if whole.seconds:
        whole = msgspec.structs.replace(whole, seconds=max(0.001, remaining))
    try:
        with closing(OpenTuning(whole)) as opening:
            for report in work(opening):
                last = report
    except SeqloomError as error:
        yield str(error).encode(errors="replace")
        raise SystemExit(1) from None
    assert isinstance(last, TuningEnded), "the last report"
    raise SystemExit(last.exit_code)


def _news(results: Results, seen: dict[int, str]) -> Iterator[TuningReport]:
    """The events since the last call."""
    for one in results.trials:
        before = seen.get(one.number)
        if one.state == before or not (one.config or one.problem):
            continue
        if before in (None, "waiting"):
            yield TrialStarted(one.number, Path(one.folder), one.params, one.is_default)
        if one.state in ("done", "pruned", "failed"):
            yield TrialEnded(one.number, one.state, one.value, results.best == one, one.problem)
        seen[one.number] = one.state


def _opened(plan: TuningPlan) -> OpenTuning:
    """The search; wrong data or options leave nothing behind."""
    new = [folder for folder in (plan.folder, *plan.folder.parents) if not folder.exists()]
    unused = is_unused(plan.folder)
    try:
        return OpenTuning(plan)
    except SeqloomError:
        if unused and plan.cache.exists() and not any(plan.folder.glob("*.db")):  # no other worker has started
            with suppress(HeldError), hold(plan.folder):
                empty_held(plan.folder)
        remove_empty(new)
        raise


def search(plan: TuningPlan, jobs: int = 1) -> Iterator[TuningReport]:
    """Start or resume a search; yields its events. At the last one, `TuningEnded`, the results are written."""
    require_jobs(jobs)
    with closing(_opened(plan)) as opening:
        make_folder(plan.folder / "trials")
        yield opening.begun()
        for report in work(opening) if jobs == 1 else watched(opening, jobs):
            if isinstance(report, TuningEnded):
                keep_results(plan, report.results)
                tidy(plan, report.results)
            yield report


@strict
def tune(
    *data: str | Path,
    out: str | Path,
    models: Sequence[str] = (),
    trials: int = 20,
    seconds: float = 0.0,
    storage: str | None = None,
    study: str | None = None,
    space: SpaceConfig = SpaceConfig(),  # noqa: B008  # frozen
    pruner: PrunerName = "median",
    jobs: int = 1,
    search_seed: int = 0,
    device: str = "auto",
    show: Callable[[TuningReport], None] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    task: Task | None = None,
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
    batching: str | AnyBatching | None = None,
    batch_tokens: int | None = None,
    batch_rows: int | None = None,
    row_length: int | None = None,
    optimizer: str | AnyOptimizer | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    l2: float | str | Sequence[float] | None = None,
    lr: float | None = None,
    schedule: str | AnySchedule | None = None,
    warmup: int | None = None,
    clip_norm: float | None = None,
    accumulate: int | None = None,
    validate_every: int | None = None,
    metric: str | None = None,
    patience: int | None = None,
    save_every: int | None = None,
    keep_checkpoints: int | None = None,
    ema: float | None = None,
    average_checkpoints: int | None = None,
    precision: str | None = None,
    compile: bool | None = None,
    cuda_graphs: bool | None = None,
    init: str | Path | None = None,
    freeze: str | Sequence[str] | None = None,
    log_every: int | None = None,
    seed: int | None = None,
    deterministic: bool | None = None,
) -> Results:
    """Search for settings that score better on the validation set, and return the results of all trials.

    Args:
        data: a file, a folder, two files of parallel text, or the name of a dataset.
        out: the folder of trials, results and the best model. A search that is there is resumed.
        models: names of recipes to choose from (default: the usual one of the task).
        trials: how many, over all processes and machines.
        seconds: stop after so long; 0: when all trials are done.
        storage: sqlite:///FILE, or postgresql://... for several machines (default: a file in `out`).
        study: the name of the study in the storage (default: that of `out`).
        space: what is searched.
        pruner: how bad trials are stopped early: median, hyperband or none.
        jobs: trials at the same time.
        search_seed: the random seed of the search.
        device: auto, cpu, cuda or mps.
        show: called with every event (default: in a notebook, a live display of the progress).

    All other arguments are options of `seqloom train`, the same in every trial. The test set is never read.
    """
    named: dict[str, Any] = {"epochs": epochs, "steps": steps, "tokens": tokens, "dev": dev, "test": test, "task": task}
    named |= {"input": input, "target": target, "id": id, "label_separator": label_separator, "sequence": sequence}
    named |= {"split_column": split_column, "dev_size": dev_size, "test_size": test_size, "split_seed": split_seed}
    named |= {"group": group, "folds": folds, "fold": fold, "format": format, "encoding": encoding}
    named |= {"delimiter": delimiter, "header": header, "template": template, "unit": unit}
    named |= {"skip_bad_rows": skip_bad_rows, "max_bad_rows": max_bad_rows, "tokenizer": tokenizer}
    named |= {"target_tokenizer": target_tokenizer, "normalize": normalize, "lowercase": lowercase}
    named |= {"vocab_size": vocab_size, "min_count": min_count, "word_split": word_split, "max_length": max_length}
    named |= {"overlong": overlong, "batching": batching, "batch_tokens": batch_tokens, "batch_rows": batch_rows}
    named |= {"row_length": row_length, "optimizer": optimizer, "momentum": momentum, "weight_decay": weight_decay}
    named["l2"] = l2
    named |= {"lr": lr, "schedule": schedule, "warmup": warmup, "clip_norm": clip_norm, "accumulate": accumulate}
    named |= {"validate_every": validate_every, "metric": metric, "patience": patience, "save_every": save_every}
    named |= {"keep_checkpoints": keep_checkpoints, "ema": ema, "average_checkpoints": average_checkpoints}
    named |= {"precision": precision, "compile": compile, "init": init, "freeze": freeze, "log_every": log_every}
    named |= {"seed": seed, "deterministic": deterministic, "cuda_graphs": cuda_graphs}
    config, request = requested(data, stated(named))
    plan = TuningPlan(
        data=config,
        out=str(out),
        storage=storage or "",
        study=study or "",
        space=msgspec.structs.replace(space, models=tuple(models)) if models else space,
        trials=trials,
        seconds=seconds,
        pruner=pruner,
        seed=search_seed,
        device=device,
        encoding=request.encoding,
        settings=msgspec.to_builtins(request.training),
    )
    watch = watcher(show, told)
    for report in search(plan, jobs):
        if watch is not None:
            watch(report)
    assert isinstance(report, TuningEnded), "the last report"
    return report.results
