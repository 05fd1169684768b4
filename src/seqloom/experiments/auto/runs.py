"""Train one run of a candidate and evaluate it on the dev set; copy the winner's run to the folder of the race.

FOLDER/runs/cnn-rung-1           the run folder; an interrupted run is resumed
FOLDER/evaluations/cnn-rung-1    facts.json and the statistics of every example; if it exists, the run is finished
FOLDER/model, config.toml, ...   a copy of the best run so far, without checkpoints, so FOLDER is also a run folder
"""

import math
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
from seqloom.training.events import Ended, Stepped
from seqloom.training.resolve import Resolved
from seqloom.training.run_folder import RunFolder

COPIED = (RunFile.DATA, RunFile.METRICS, RunFile.EVENTS, RunFile.CARD, RunFile.REPORT)


def run_folder(plan: AutoPlan, entry: Entry) -> Path:
    """The run folder of an entry."""
    return plan.folder / "runs" / entry.name


def evaluation_of(plan: AutoPlan, entry: Entry) -> RunEvaluation | None:
    """The evaluation of a run; None if it is not finished."""
    return read_evaluation(plan.folder / "evaluations" / entry.name)


def run(plan: AutoPlan, entry: Entry, record: RaceRecord, *, is_first: bool) -> Iterator[CandidateReport]:
    """Train and evaluate a run, and yield the events of its training. Raises Interrupted if it must be resumed later.

    When the race is over, the run ends with the best weights so far. The first run of a race is trained until it has
    some.
    """
    resolved, place, ended = resolved_run(plan, entry), run_folder(plan, entry), None
    probe = record.decided.probe_of(entry.candidate)
    evaluation = 0.0 if probe is None else probe.validation_seconds
    with closing(plan.trained(place, resolved)) as reports:  # type: ignore[type-var]
        for report in reports:
            record.keep_time(BETWEEN)
            yield CandidateReport(entry, report, record.left)
            if isinstance(report, Ended):
                ended = report
            elif isinstance(report, Stepped):
                has_model = not is_first or (place / RunFile.MODEL).is_dir()
                if _is_cut(entry, report.step, record, is_over=record.is_over(evaluation) and has_model):
                    ended = Ended(report.step, "stopped", report.step, report.step, {}, report.speed, 0)
                    break
    assert ended is not None, "a run ends, or is stopped"
    if not (place / RunFile.MODEL).is_dir():
        raise ConfigError(
            "no weights were saved" if ended.reason == "not-finite" else NOT_VALIDATED,
            fix="give more --minutes",
        )
    _evaluate(plan, entry, ended, resolved)


def _is_cut(entry: Entry, step: int, record: RaceRecord, *, is_over: bool) -> bool:
    """Whether a run ends after this step; where is decided once, so that it ends there again after an interruption."""
    cuts = record.decided.cuts
    if entry.name not in cuts and is_over:
        cuts = record.decide(cuts=cuts | {entry.name: step}).cuts
    return step >= cuts.get(entry.name, math.inf)


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
