"""Train one run of a candidate and evaluate it on the dev set; copy the winner's run to the folder of the race.

FOLDER/runs/cnn-rung-1           the run folder; an interrupted run is resumed
FOLDER/evaluations/cnn-rung-1    facts.json and the statistics of every example; if it exists, the run is finished
FOLDER/model, config.toml, ...   a copy of the winner without its checkpoints, so FOLDER is also a run folder
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from seqloom.data.run_files import keep_places, located
from seqloom.errors import ConfigError
from seqloom.experiments.auto.plan import AutoPlan, CandidateReport, Entry, resolved_run
from seqloom.experiments.auto.record import BETWEEN, NOT_VALIDATED, RaceRecord
from seqloom.experiments.compare.plan import PlannedModel
from seqloom.experiments.compare.runs import RunEvaluation, RunFacts, evaluate_folder, read_evaluation
from seqloom.experiments.workers import remove_weights
from seqloom.files.disk import make_folder, remove_files, write_file
from seqloom.files.folders import read_folder, recover, replace_folder
from seqloom.files.layouts import RunFile
from seqloom.training.events import Ended, Stepped, Validated
from seqloom.training.resolve import Resolved
from seqloom.training.run_folder import RunFolder

COPIED = (RunFile.DATA, RunFile.METRICS, RunFile.EVENTS, RunFile.CARD, RunFile.REPORT)


def run_folder(plan: AutoPlan, entry: Entry) -> Path:
    """The run folder of an entry."""
    return plan.folder / "runs" / entry.name


def evaluation_of(plan: AutoPlan, entry: Entry) -> RunEvaluation | None:
    """The evaluation of a run; None if it is not finished."""
    return read_evaluation(plan.folder / "evaluations" / entry.name)


def run(plan: AutoPlan, entry: Entry, record: RaceRecord) -> Iterator[CandidateReport]:
    """Train and evaluate a run, and yield the events of its training. Raises Interrupted if it must be resumed later.

    If the time limit is exceeded by more than the run's own time slice, the run ends with the best weights so far.
    """
    resolved = resolved_run(plan, entry)
    place, ended, last = run_folder(plan, entry), None, None
    with closing(plan.trained(place, resolved)) as reports:  # type: ignore[type-var]
        for report in reports:
            record.keep_time(BETWEEN)
            yield CandidateReport(entry, report, record.left)
            if isinstance(report, Stepped | Validated):
                last = report
            if isinstance(report, Ended):
                ended = report
            elif last is not None and record.left < -entry.seconds:
                break
    if ended is None:
        ended = _cut(last)
    if not (place / RunFile.MODEL).is_dir():
        raise ConfigError(
            "no weights were saved" if ended.reason == "not-finite" else NOT_VALIDATED,
            fix="give more --minutes",
        )
    _evaluate(plan, entry, ended, resolved)


def _cut(last: Stepped | Validated | None) -> Ended:
    """The final event of a run that took too long and was stopped."""
    assert last is not None, "a run is only stopped after a step"
    metrics = last.metrics if isinstance(last, Validated) else {}
    return Ended(last.step, "stopped", last.step, last.step, metrics, last.speed, 0)


def _evaluate(plan: AutoPlan, entry: Entry, ended: Ended, resolved: Resolved) -> RunFacts:
    into = plan.folder / "evaluations" / entry.name
    make_folder(into.parent)
    device = plan.chosen_device(resolved.config.training.precision)
    named = PlannedModel(entry.candidate.name, resolved.config.training.seed)
    return evaluate_folder(run_folder(plan, entry), into, named, ended, resolved, device)


def keep_winner(plan: AutoPlan, winner: Entry) -> None:
    """Copy the winner's run, without checkpoints, to the folder of the race, so that all commands accept it."""
    source, target = RunFolder(run_folder(plan, winner)), plan.folder
    recover(target)
    replace_folder(target / RunFile.MODEL, dict(read_folder(source.model)))
    replace_folder(target / RunFile.VOCABULARY, source.vocabulary())
    remove_files(target / name for name in COPIED if not (source.path / name).is_file())
    for name in COPIED:
        if (source.path / name).is_file():
            write_file(target / name, (source.path / name).read_bytes())
    config = source.config()
    own = located(source.path, config).config
    files = [*zip(config.data.train, own.data.train, strict=True), *zip(config.data.dev, own.data.dev, strict=True)]
    files += zip(config.data.test, own.data.test, strict=True)
    if config.training.init and own.training.init:
        files.append((config.training.init, own.training.init))
    keep_places(target, dict(files))
    write_file(target / RunFile.CONFIG, config.to_toml())  # written last, because it makes the folder a run folder


def tidy(plan: AutoPlan, entries: tuple[Entry, ...], winner: Entry) -> None:
    """Remove the weights of all runs except the winner's; keep the settings, curves and reports of all runs."""
    for entry in entries:
        if entry != winner:
            remove_weights(run_folder(plan, entry))
