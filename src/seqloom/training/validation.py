"""The dev part: metrics over all ranks, which weights are chosen by it, and RUN/model, which holds them.

Each rank judges its share, and only sums travel. Which weights are shipped may depend on the rows of all, and what is
shipped says more - intervals, and what was taken for what: rows are gathered when they are asked for.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.bundle import Bundle, bundle_files
from seqloom.config.data import Part
from seqloom.data.kinds.text import cut_short
from seqloom.errors import DurableError
from seqloom.files.disk import reached
from seqloom.files.folders import replace_folder, verify_folder
from seqloom.metrics.bootstrap import PairedDifference, paired_differences
from seqloom.nn.types import Batch
from seqloom.tasks.evaluation import Evaluation, answering, evaluate
from seqloom.tasks.task import LOSS, Calibrator, Evaluator, Judged, Metric
from seqloom.training import checkpoint as checkpoints
from seqloom.training.checkpoint import Checkpoint, in_between, mean_of, plain
from seqloom.training.devices import agreed
from seqloom.training.events import Sample
from seqloom.training.run_summary import read_scores, summary_of
from seqloom.training.session import Session
from seqloom.training.state import TrainingState, Validation
from seqloom.training.step import WeightUpdate, moved

SAMPLES = 4


class ValidationResult(NamedTuple):
    """What a look at the dev part found."""

    metrics: dict[str, float]
    samples: tuple[Sample, ...]
    evaluation: Evaluation | None  # of this rank's share; None if it has none

    def value(self, session: Session) -> float:
        """The metric that decides which weights are shipped; NaN without a dev part."""
        return self.metrics.get(session.task.metric.name, math.nan)

    def rows(self, session: Session) -> np.ndarray:
        """[N,1+S] the id and the statistics of each example of all ranks, in the order of ids, on all of them alike."""
        task, mine = session.task, self.evaluation
        table = np.empty((0, 1 + task.statistics))
        if mine is not None:
            table = np.column_stack([np.array(mine.ids, np.float64), mine.statistics])
        if not session.ranks.sharded:
            shares = session.ranks.gather(table.tobytes())
            table = np.frombuffer(b"".join(shares)).reshape(-1, 1 + task.statistics)
        table = table[np.argsort(table[:, 0], kind="stable")]
        table[:, 1:] = task.agreed(table[:, 1:], table[:, 1:])
        return table

    def gathered(self, session: Session) -> "ValidationResult":
        """The same with the evaluation of all ranks together, on all of them."""
        ranks = session.ranks
        if not self.metrics or ranks.sharded or ranks.count == 1:
            return self
        mine = self.evaluation
        rows = ranks.gather(b"" if mine is None else mine.statistics.astype(np.float64).tobytes())
        confused = ranks.gather(json.dumps(() if mine is None else mine.confusion).encode())
        table = np.frombuffer(b"".join(rows)).reshape(-1, session.task.statistics)
        table, metrics = session.task.agreed(table, table), self.metrics | session.task.measure_rows(table)
        counted = Counter[tuple[str, str]]()
        for true, said, count in chain.from_iterable(json.loads(data) for data in confused):
            counted[true, said] += count
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        confusion = tuple((*pair, count) for pair, count in ordered)
        judged = () if mine is None else mine.judged
        return self._replace(evaluation=Evaluation(session.task.name, metrics, len(table), table, judged, confusion))


def look(session: Session) -> ValidationResult:
    """The metrics of the model's present weights on the dev part."""
    if not len(session.prepared.parts["dev"]):
        return ValidationResult({}, (), None)
    task, ranks, rows = session.task, session.ranks, np.empty((0, session.task.statistics))
    # Where weights are sharded all ranks compute together, each on all of dev; else each has its share.
    batches = batches_of(session, "dev") if ranks.sharded else batches_of(session, "dev", ranks.rank, ranks.count)
    first = next(batches, None)  # a rank may have no share in a small part
    evaluation: Evaluation | None = None
    samples: tuple[Sample, ...] = ()
    if first is not None:
        looking: Evaluator = task
        if isinstance(task, Calibrator):  # it is prepared by all of dev, on every rank alike
            with answering(session.model):
                looking = task.looking(session.model, batches_of(session, "dev"))
        evaluation = evaluate(looking, session.model, chain([first], batches))
        rows, samples = evaluation.statistics, tuple(_sample(session, one) for one in evaluation.judged[:SAMPLES])
    sums = torch.from_numpy(task.summed(rows))
    if not ranks.sharded:
        sums = ranks.sum(sums)
    metrics = {name: float(value) for name, value in task.measure(sums.numpy()).items()}
    return ValidationResult(metrics, samples, evaluation)


def batches_of(session: Session, part: Part, rank: int = 0, count: int = 1) -> Iterator[Batch[Any, Any]]:
    """The batches of a part, or one rank's share of them."""
    training = session.config.training
    loader = session.task.loader(session.prepared, part, training.feed, seed=0, workers=0, rank=rank, ranks=count)
    for step in loader.steps(until=1):
        if step.batch is not None:
            yield moved(step.batch, session.device.torch)


def _sample(session: Session, judged: Judged) -> Sample:
    """What is shown of an example: its input as it was written; a true answer that is the input itself alike."""
    read = session.prepared.shown(int(judged.id))
    text = cut_short(session.prepared.written.get(int(judged.id), "")) or read
    return Sample(text, judged.said, text if judged.true == read else judged.true, judged.right)


# Which weights a run ships: the latest that are not worse than the best by more than the noise of the dev part.
#
#     step        100    200    300    400
#     accuracy   0.80   0.83   0.82   0.79        noise 0.015: step 200 is the best, and step 300 as good: it is shipped
#
# The best of many looks is in part the luckiest one, and behind it the learning rate has fallen: later weights jump
# about less, and on new data they are mostly better. So the best is shipped only if it is better than what came later
# by more than one standard error of their difference (Breiman et al. 1984 choose the simplest tree so). The difference
# is paired, for both have seen the same examples.
#
# - All are compared with the best of the whole run, so that no run drifts down step by step.
# - Only where the rate is lower than at the best. With a constant rate later is not better by itself; nor is it in a
#   warm-up, or while a plateau schedule waits.
# - Of fewer than `LEAST` examples the noise is not known: the best is shipped.
# - The metric decides alone, also where the loss has grown: most classifiers grow too sure while they still get better,
#   and what is shipped is read with a temperature. Whoever wants the least loss decides by it (`--metric loss`). Where
#   not one example tells two looks apart, as an exact match that is always 0, the loss decides in the same way.

BEST = "best"  # the group of tensors in a checkpoint
LEAST = 10  # examples
ROUNDING = 1 + 1e-9  # one example of difference is exactly one standard error: no last digit may decide


class CheckpointChoice:
    """Chooses the weights that are shipped; keeps the statistics of each example at the best validation."""

    def __init__(self, session: Session, resumed: Checkpoint | None) -> None:
        kept = {} if resumed is None else resumed.tensors.get(BEST, {})
        self._session, self._rows = session, kept["rows"].numpy() if kept else None

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What a checkpoint keeps of it."""
        return {} if self._rows is None else {BEST: {"rows": torch.from_numpy(self._rows)}}

    def take(self, found: ValidationResult, standing: TrainingState, is_best: bool, rate: float) -> bool:
        """Whether the weights of this look are shipped: where the run stands says so from now on."""
        best = standing.best
        if best is None or not (is_best or rate < best.rate):
            return False
        rows = found.rows(self._session)
        known = len(rows) >= LEAST and bool(np.isfinite(rows).all())
        if is_best:
            self._rows = rows if known else None
        elif not (known and self._is_as_good(rows) and self._is_new(found, standing)):
            return False
        standing.chosen = validation(found.metrics, standing, rate)
        return True

    def _is_as_good(self, rows: np.ndarray) -> bool:
        best = self._rows
        if best is None or not np.array_equal(rows[:, 0], best[:, 0]):
            return False
        return is_as_good(self._session.task, rows[:, 1:], best[:, 1:])

    def _is_new(self, found: ValidationResult, standing: TrainingState) -> bool:
        """Whether nothing of this step is chosen yet, or something worse: of its weights and a mean the better one."""
        chosen = standing.chosen
        if chosen is None or chosen.step != standing.step:
            return True
        return is_better(self._session.task.metric, found.metrics, chosen.metrics)


def is_as_good(task: Evaluator, rows: np.ndarray, best: np.ndarray) -> bool:
    """Whether `best` [N,S] is better than `rows` [N,S], of the same examples, by one standard error at most."""
    found = paired_differences(best, rows, task.summed, task.measure)
    decisive = task.metric if found[task.metric.name] != PairedDifference(0.0, 0.0) else LOSS
    lead, error = found[decisive.name]
    return (lead if decisive.higher_is_better else -lead) <= error * ROUNDING


# Which validation is the best so far, and whether a run still gets anywhere: one rule for all tasks.
#
# The metric of the task decides; where it is equal, the loss on the dev part does. A metric that counts whole answers
# stays at 0, or at 1, for many validations while the loss tells good weights from better ones. For the same reason
# patience waits for either of them: a run whose dev loss still falls is not done.


def is_better(metric: Metric, found: Mapping[str, float], best: Mapping[str, float] | None) -> bool:
    """Whether a look at the dev part is better than the best one: by the metric, and by the loss if that is equal.

    >>> is_better(Metric("accuracy"), {"accuracy": 1.0, "loss": 0.1}, {"accuracy": 1.0, "loss": 0.2})
    True
    """
    value, before = found.get(metric.name, math.nan), None if best is None else best.get(metric.name)
    if value == before and best is not None:
        return LOSS.better(found.get("loss", math.nan), best.get("loss"))
    return metric.better(value, before)


def judge(metric: Metric, found: Mapping[str, float], standing: TrainingState, rate: float) -> tuple[bool, bool]:
    """Whether a look is the best so far, and whether it got anywhere: where the run stands says so from now on."""
    better = is_better(metric, found, standing.best.metrics if standing.best else None)
    better = better or not found  # without a dev part the last one counts
    falls = LOSS.better(found.get("loss", math.nan), standing.lowest)
    if falls:
        standing.lowest = found["loss"]
    if better:
        standing.best = validation(found, standing, rate)
    standing.waited, standing.validated = 0 if better or falls else standing.waited + 1, standing.step
    return better, better or falls


def validation(found: Mapping[str, float], standing: TrainingState, rate: float) -> Validation:
    """What a run remembers of a look: the figures that are finite."""
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    return Validation(step=standing.step, metrics=finite, rate=rate)


def ship(session: Session, standing: TrainingState, found: ValidationResult) -> None:
    """Write the model's present weights to RUN/model. Process 0 writes, the others wait for nobody."""
    if session.ranks.rank != 0 and not session.ranks.sharded:
        return
    task, evaluation = session.task, found.evaluation
    if evaluation is not None and isinstance(task, Calibrator):
        # The shipped model reads its scores as the dev part asks for. How good that is: each half of dev is read as the
        # other half asks for, so that no row is judged by what it found itself.
        with answering(session.model):  # where weights are sharded, all processes compute together
            fitted = task.fitted(session.model, batches_of(session, "dev"))
        task = task.calibrated(fitted.shipped, fitted.rows)
        evaluation = evaluate(task, session.model, batches_of(session, "dev"))
    if session.ranks.rank != 0:
        return
    weights = {name: tensor.detach().cpu() for name, tensor in session.model.state_dict().items()}
    config, intervals = session.config, evaluation.intervals(session.task) if evaluation is not None else {}
    notes = {
        "step": standing.step,
        "epoch": standing.epoch,
        "examples": standing.examples,
        "dev": found.metrics | (evaluation.metrics if evaluation is not None else {}),
        "dev_rows": len(session.prepared.parts["dev"]),
        "metric": session.task.metric.name,
        "columns": list(config.data.input),
        "longest": config.encoding.longest,
        "rate": config.training.rate,
        "intervals": {name: list(interval) for name, interval in intervals.items()},
        "confusion": [list(one) for one in evaluation.confusion] if evaluation is not None else [],
        "cross_fitted": task is not session.task,
    }
    bundle = Bundle(session.config.model, task.meaning, weights, notes)
    files = bundle_files(bundle, summary_of(session.folder, notes).card().markdown())
    reached("before-model")
    replace_folder(session.folder.model, files)
    reached("after-model")


def shipped_step(session: Session) -> int | None:
    """The step whose weights lie in RUN/model, as process 0 finds it; None where there is no whole bundle."""
    told = b""
    if session.ranks.rank == 0:
        with suppress(DurableError):
            verify_folder(session.folder.model)
            scores = read_scores(session.folder.model)
            told = b"" if scores is None else str(scores.step).encode()
    told = session.ranks.share(told)
    return int(told) if told else None


def last_weights(
    session: Session, standing: TrainingState, present: Mapping[str, Tensor]
) -> tuple[list[dict[str, Tensor]], list[str]]:
    """The weights of the last checkpoints that were due, and the present ones: `average_last`, or as many as there are.

    Those that are damaged are left out, and what was said of them is told: a mean of fewer is a mean as well.
    """
    folder, count = session.folder.checkpoints, session.config.training.average_last
    others = {checkpoints.path_of(folder, standing.step), *in_between(folder, session.config.training)}
    found = [path for path in checkpoints.steps(folder) if path not in others][-(count - 1) :]
    tried = [agreed(session.ranks, partial(checkpoints.read, path, session.ranks)) for path in found]
    weights = [checkpoint.tensors["model"] for checkpoint, _ in tried if checkpoint is not None]
    whole = {name: plain(tensor) for name, tensor in present.items()}
    return [*weights, whole], [problem for _, problem in tried if problem]


# RUN/model made anew from what checkpoints keep, when it is not that of the chosen validation.
#
#     missing or damaged     somebody removed it, or a disk lost some of it
#     older than the chosen  the disk was full when other weights were to be shipped
#
# The weights are those of the chosen step. Where the run averages its last checkpoints, their mean may have been chosen
# of the last step: the dev part is asked again. Nothing of this is a validation of the run: its log stays as it is.

Tensors = Mapping[str, Mapping[str, Tensor]]


class Mended(NamedTuple):
    """What RUN/model is now: the weights of a step, or what it was because of a problem."""

    step: int | None
    problem: str = ""


def mended(
    session: Session,
    update: WeightUpdate,
    standing: TrainingState,
    ship: Callable[[TrainingState, ValidationResult], str],
) -> Mended | None:
    """What became of a RUN/model that was not that of the chosen validation; None if it was, or if there is none.

    `ship` puts the model's present weights there, and says what kept it from doing so.
    """
    there, metric = shipped_step(session), session.task.metric
    if standing.chosen is None or there == standing.chosen.step:
        return None
    result, best = Mended(there), None
    for stood, weights in _candidates(session, standing, update.tensors(), there):
        with update.replaced(weights):
            found = look(session)
            if best is None or metric.better(found.value(session), best):
                result, best = Mended(stood.step, ship(stood, found)), found.value(session)
    return result


def _candidates(
    session: Session, standing: TrainingState, present: Tensors, there: int | None
) -> Iterator[tuple[TrainingState, dict[str, Tensor]]]:
    """What the chosen weights may be, as far as they are kept, and where the run stood when it had them.

    The present ones are better than no model at all.
    """
    assert standing.chosen is not None, "nothing was ever validated"
    chosen, ranks = checkpoints.path_of(session.folder.checkpoints, standing.chosen.step), session.ranks
    checkpoint, _ = agreed(ranks, lambda: checkpoints.read(chosen, ranks))
    if checkpoint is not None:
        yield checkpoint.standing, _shippable(checkpoint.tensors)
    if session.config.training.average_last > 1 and standing.chosen.step == standing.step:
        yield standing, mean_of(last_weights(session, standing, present["model"])[0])
    elif checkpoint is None and there is None:
        yield standing, _shippable(present)


def _shippable(tensors: Tensors) -> dict[str, Tensor]:
    """The weights of a run that are validated and shipped: averages where it has them."""
    return {**tensors["model"], **tensors.get("average", {})}
