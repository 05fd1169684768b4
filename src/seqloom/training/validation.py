"""Validation: metrics on the dev set, the choice of weights, and RUN/model, which holds the chosen ones.

Each rank evaluates its share, and only sums are exchanged. Statistics of single rows are gathered when they are needed:
to choose weights, for confidence intervals and for the confusion matrix.
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

from seqloom.bundle import Bundle, bundle_files, read_bundle
from seqloom.config.data import SplitName
from seqloom.config.training import StreamsConfig
from seqloom.data.kinds.text import cut_short
from seqloom.errors import DurableError
from seqloom.files.disk import reached
from seqloom.files.folders import replace_folder, verify_folder
from seqloom.metrics.bootstrap import Interval, PairedDifference, paired_differences
from seqloom.nn.types import Batch
from seqloom.tasks.evaluation import ConfusionCount, Evaluation, answering, evaluate
from seqloom.tasks.task import LOSS, Calibrator, EvaluatedExample, Evaluator, Metric, Task
from seqloom.training import checkpoint as checkpoints
from seqloom.training.checkpoint import Checkpoint, in_between, mean_of, plain
from seqloom.training.devices import agreed
from seqloom.training.events import Sample
from seqloom.training.run_summary import read_scores, summary_of
from seqloom.training.session import Session
from seqloom.training.state import TrainingState, Validation
from seqloom.training.step import WeightUpdate, moved

SAMPLES, WRONG = 4, 4  # examples that every validation logs, and the worst wrong predictions among the others


class ValidationResult(NamedTuple):
    """The result of a validation."""

    metrics: dict[str, float]
    samples: tuple[Sample, ...]
    evaluation: Evaluation | None  # of the rows of this rank; None if it has none

    def value(self, session: Session) -> float:
        """The metric that chooses the weights; NaN without a dev set."""
        return self.metrics.get(session.task.metric.name, math.nan)

    def rows(self, session: Session) -> np.ndarray:
        """[N,1+S] the id and the statistics of each example, over all ranks, ordered by id; the same on all ranks."""
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
        """The same with the evaluation of all ranks together."""
        ranks = session.ranks
        if not self.metrics or ranks.sharded or ranks.count == 1:
            return self
        mine = self.evaluation
        rows = ranks.gather(b"" if mine is None else mine.statistics.astype(np.float64).tobytes())
        confused = ranks.gather(json.dumps(() if mine is None else mine.confusion).encode())
        table = np.frombuffer(b"".join(rows)).reshape(-1, session.task.statistics)
        table, metrics = session.task.agreed(table, table), self.metrics | session.task.measure_rows(table)
        counted = Counter[tuple[str, str]]()
        for true, predicted, count in chain.from_iterable(json.loads(data) for data in confused):
            counted[true, predicted] += count
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        confusion = tuple(ConfusionCount(*pair, count) for pair, count in ordered)
        examples = () if mine is None else mine.examples
        return self._replace(evaluation=Evaluation(session.task.name, metrics, len(table), table, examples, confusion))


def validate(session: Session) -> ValidationResult:
    """Evaluate the current weights on the dev set."""
    if not len(session.prepared.splits["dev"]):
        return ValidationResult({}, (), None)
    task, ranks, rows = session.task, session.ranks, np.empty((0, session.task.statistics))
    # With sharded weights all ranks compute together, each on the complete dev set; else each has its share.
    batches = batches_of(session, "dev") if ranks.sharded else batches_of(session, "dev", ranks.rank, ranks.count)
    first = next(batches, None)  # a rank may have no rows of a small set
    evaluation: Evaluation | None = None
    samples: tuple[Sample, ...] = ()
    if first is not None:
        looking: Evaluator = task
        if isinstance(task, Calibrator):  # calibrated on the complete dev set, on every rank
            with answering(session.model):
                looking = task.for_validation(session.model, batches_of(session, "dev"))
        evaluation = evaluate(looking, session.model, chain([first], batches), worst=SAMPLES + WRONG)
        rows, samples = evaluation.statistics, tuple(_sample(session, one) for one in _logged(evaluation))
    sums = torch.from_numpy(task.summed(rows))
    if not ranks.sharded:
        sums = ranks.sum(sums)
    metrics = {name: float(value) for name, value in task.measure(sums.numpy()).items()}
    return ValidationResult(metrics, samples, evaluation)


def batches_of(session: Session, part: SplitName, rank: int = 0, count: int = 1) -> Iterator[Batch[Any, Any]]:
    """The batches of a set, or one rank's share of them."""
    training = session.config.training
    loader = session.task.loader(session.prepared, part, training.batching, seed=0, workers=0, rank=rank, ranks=count)
    for step in loader.steps(until=1):
        if step.batch is not None:
            yield moved(step.batch, session.device.torch)


def _logged(evaluation: Evaluation) -> list[EvaluatedExample]:
    """The examples of a validation for display: the same ones each time, and the worst wrong ones of this time."""
    always = list(evaluation.examples[:SAMPLES])
    known = {one.id for one in always}
    wrong = [one for one in evaluation.worst if one.correct is False and one.id not in known]
    return always + wrong[:WRONG]


def _sample(session: Session, example: EvaluatedExample) -> Sample:
    """Return an example for display: its input as written; also the expected text if that is the input itself."""
    if isinstance(session.config.training.batching, StreamsConfig):  # a row of a stream is not one document
        return Sample(example.expected, example.predicted, example.expected, example.correct)
    read = session.prepared.shown(int(example.id))
    text = cut_short(session.prepared.dev_texts.get(int(example.id), "")) or read
    return Sample(text, example.predicted, text if example.expected == read else example.expected, example.correct)


# Which weights are chosen: the latest that are not worse than the best by more than the noise of the dev set.
#
#     step        100    200    300    400
#     accuracy   0.80   0.83   0.82   0.79        noise 0.015: step 200 is the best, step 300 is as good and is chosen
#
# The best of many validations is partly luck. After it the learning rate has fallen: later weights vary less, and are
# mostly better on new data. So the best weights are chosen only if they beat the later ones by more than one standard
# error of the difference (the rule by which Breiman et al. 1984 choose a tree). The difference is paired, because both
# were evaluated on the same examples.
#
# - All are compared with the best of the whole run, so that the score cannot drift down step by step.
# - Only if the learning rate is lower than at the best. With a constant learning rate, in the warmup, or while a
#   plateau schedule waits, later weights are not better by themselves.
# - With fewer than `LEAST` examples the noise is not known: the best is chosen.
# - The metric decides alone, also if the loss has grown: most classifiers become overconfident while they still
#   improve, and a temperature corrects that. `--metric loss` chooses by the loss. If not one example differs between
#   two validations, as with an exact match that is always 0, the loss decides in the same way.

BEST = "best"  # the group of tensors in a checkpoint
LEAST = 10  # examples
ROUNDING = 1 + 1e-9  # one example of difference is exactly one standard error: rounding must not decide


class CheckpointChoice:
    """Chooses the weights for RUN/model; keeps the statistics of each example at the best validation."""

    def __init__(self, session: Session, resumed: Checkpoint | None) -> None:
        kept = {} if resumed is None else resumed.tensors.get(BEST, {})
        self._session, self._rows = session, kept["rows"].numpy() if kept else None

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors that a checkpoint keeps."""
        return {} if self._rows is None else {BEST: {"rows": torch.from_numpy(self._rows)}}

    def take(self, found: ValidationResult, run_state: TrainingState, is_best: bool, lr: float) -> bool:
        """Whether the weights of this validation are chosen; `run_state.chosen` is set if so."""
        best = run_state.best
        if best is None or not (is_best or lr < best.lr):
            return False
        rows = found.rows(self._session)
        known = len(rows) >= LEAST and bool(np.isfinite(rows).all())
        if is_best:
            self._rows = rows if known else None
        elif not (known and self._is_as_good(rows) and self._is_new(found, run_state)):
            return False
        run_state.chosen = validation(found.metrics, run_state, lr)
        return True

    def _is_as_good(self, rows: np.ndarray) -> bool:
        best = self._rows
        if best is None or not np.array_equal(rows[:, 0], best[:, 0]):
            return False
        return is_as_good(self._session.task, rows[:, 1:], best[:, 1:])

    def _is_new(self, found: ValidationResult, run_state: TrainingState) -> bool:
        """Whether nothing of this step is chosen yet, or something worse: its weights or an average of checkpoints."""
        chosen = run_state.chosen
        if chosen is None or chosen.step != run_state.step:
            return True
        return is_better(self._session.task.metric, found.metrics, chosen.metrics)


def is_as_good(task: Evaluator, rows: np.ndarray, best: np.ndarray) -> bool:
    """Whether `best` [N,S] is better than `rows` [N,S] by at most one standard error; of the same examples."""
    found = paired_differences(best, rows, task.summed, task.measure)
    decisive = task.metric if found[task.metric.name] != PairedDifference(0.0, 0.0) else LOSS
    lead, error = found[decisive.name]
    return (lead if decisive.higher_is_better else -lead) <= error * ROUNDING


# Which validation is the best so far, and whether the run still improves: one rule for all tasks.
#
# The metric of the task decides; if it is equal, the loss on the dev set does. A metric that counts exact matches stays
# at 0, or at 1, for many validations while the loss still separates better weights from worse. For the same reason
# early stopping considers both: a run whose dev loss still falls is not stopped. There is one exception: if the score
# of a dev set of `DECISIVE` rows is perfect and stays so, a lower loss does not count any more. With 30 rows and no
# error, the share of errors on new data is below a tenth (by the rule of three, with a confidence of 95 %).

DECISIVE = 30  # rows


def is_better(metric: Metric, found: Mapping[str, float], best: Mapping[str, float] | None) -> bool:
    """Whether a validation is better than the best one: by the metric, and by the loss if that is equal.

    >>> is_better(Metric("accuracy"), {"accuracy": 1.0, "loss": 0.1}, {"accuracy": 1.0, "loss": 0.2})
    True
    """
    value, before = found.get(metric.name, math.nan), None if best is None else best.get(metric.name)
    if value == before and best is not None:
        return LOSS.better(found.get("loss", math.nan), best.get("loss"))
    return metric.better(value, before)


def record_validation(
    metric: Metric, found: Mapping[str, float], run_state: TrainingState, lr: float, *, rows: int = 0
) -> tuple[bool, bool]:
    """Record a validation in the state; returns whether it is the best so far, and whether metric or loss improved.

    Args:
        metric: the one that chooses the weights.
        found: all metrics on the dev set.
        run_state: the best validation so far, and the count for early stopping.
        lr: the learning rate of the next step.
        rows: rows of the dev set, if a perfect score on enough of them may end the run.
    """
    best = {} if run_state.best is None else run_state.best.metrics
    value = found.get(metric.name, math.nan)
    stays = rows >= DECISIVE and metric.is_perfect(value) and value == best.get(metric.name)
    better = is_better(metric, found, best or None)
    better = better or not found  # without a dev set the last weights are chosen
    falls = LOSS.better(found.get("loss", math.nan), run_state.lowest_loss)
    if falls:
        run_state.lowest_loss = found["loss"]
    if better:
        run_state.best = validation(found, run_state, lr)
    run_state.patience_count, run_state.last_validation = (
        0 if (better or falls) and not stays else run_state.patience_count + 1,
        run_state.step,
    )
    return better, better or falls


def validation(found: Mapping[str, float], run_state: TrainingState, lr: float) -> Validation:
    """A validation as the state keeps it: the metrics that are finite."""
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    return Validation(step=run_state.step, metrics=finite, lr=lr)


# RUN/model is written in two forms:
#
#     during training     the chosen weights and their metrics, without calibration
#     when the run ends   the same weights, calibrated on the dev set (`Calibrator`), with the metrics of that and
#                         confidence intervals: this takes another pass over the dev set, so it is done once per run


def save_model(session: Session, run_state: TrainingState, found: ValidationResult) -> None:
    """Write the current weights to RUN/model with the metrics of a validation. Only process 0 writes."""
    if session.ranks.rank == 0:
        notes = {"step": run_state.step, "epoch": run_state.epoch, "examples": run_state.examples}
        _replace_model(session, session.task, notes, found, intervals={}, settled=False)


def settle(session: Session, update: WeightUpdate, known: ValidationResult | None, over: bool) -> str:
    """Add calibration and confidence intervals to RUN/model; returns the problem, empty if there was none.

    Args:
        session: the session.
        update: the weights of the run.
        known: the validation that chose the weights in RUN/model, if it is still known.
        over: whether the run has ended. After a stop, this is repeated at the end.
    """
    if not _is_open(session):
        return ""
    bundle, problem = agreed(session.ranks, lambda: read_bundle(session.folder.model))
    if bundle is None:
        return problem
    with update.replaced(bundle.weights):
        found = validate(session).gathered(session) if known is None else known
        return agreed(session.ranks, lambda: _settle(session, bundle.notes, found, over))[1]


def _is_open(session: Session) -> bool:
    """Whether RUN/model is intact and not yet calibrated, as process 0 finds it."""
    state = b""
    if session.ranks.rank == 0:
        with suppress(DurableError):
            scores = read_scores(session.folder.model)
            state = b"open" if scores is not None and not scores.settled else b""
    return session.ranks.share(state) == b"open"


def _settle(session: Session, notes: Mapping[str, Any], found: ValidationResult, over: bool) -> None:
    if session.ranks.rank != 0 and not session.ranks.sharded:
        return
    task, evaluation = session.task, found.evaluation
    if evaluation is not None and isinstance(task, Calibrator):
        # The saved model is calibrated on the dev set. To evaluate this, each half of the dev set is calibrated on the
        # other half, so that no row is evaluated with a calibration that it was used for.
        with answering(session.model):  # with sharded weights all processes compute together
            fitted = task.fitted(session.model, batches_of(session, "dev"))
        task = task.calibrated(fitted.shipped, fitted.rows)
        evaluation = evaluate(task, session.model, batches_of(session, "dev"))
    if session.ranks.rank == 0:
        intervals = evaluation.intervals(session.task) if evaluation is not None else {}
        found = found._replace(evaluation=evaluation)
        _replace_model(session, task, notes, found, intervals=intervals, settled=over)


def _replace_model(
    session: Session,
    task: Task,
    state: Mapping[str, Any],
    found: ValidationResult,
    *,
    intervals: Mapping[str, Interval],
    settled: bool,
) -> None:
    """Write the current weights to RUN/model with their metrics; `state` has the step, epoch and examples."""
    config, evaluation = session.config, found.evaluation
    weights = {name: tensor.detach().cpu() for name, tensor in session.model.state_dict().items()}
    notes = {
        **{name: state[name] for name in ("step", "epoch", "examples")},
        "dev": found.metrics | (evaluation.metrics if evaluation is not None else {}),
        "dev_rows": len(session.prepared.splits["dev"]),
        "metric": session.task.metric.name,
        "columns": list(config.data.input),
        "max_length": config.encoding.max_length,
        "lr": config.training.lr,
        "intervals": {name: list(interval) for name, interval in intervals.items()},
        "confusion": [list(one) for one in evaluation.confusion] if evaluation is not None else [],
        "per_class": task.by_label(evaluation.statistics) if evaluation is not None else {},
        "cross_fitted": task is not session.task,
        "settled": settled,
    }
    bundle = Bundle(config.model, task.spec, weights, notes)
    files = bundle_files(bundle, summary_of(session.folder, notes, (config, session.task)).card().markdown())
    reached("before-model")
    replace_folder(session.folder.model, files)
    reached("after-model")


def saved_model_step(session: Session) -> int | None:
    """The step of the weights in RUN/model, as process 0 finds it; None if there is no intact model."""
    step = b""
    if session.ranks.rank == 0:
        with suppress(DurableError):
            verify_folder(session.folder.model)
            scores = read_scores(session.folder.model)
            step = b"" if scores is None else str(scores.step).encode()
    step = session.ranks.share(step)
    return int(step) if step else None


def last_weights(
    session: Session, run_state: TrainingState, present: Mapping[str, Tensor]
) -> tuple[list[dict[str, Tensor]], list[str]]:
    """The weights of the last `average_checkpoints` checkpoints, with the current ones; and the problems.

    Damaged checkpoints are left out and reported.
    """
    folder, count = session.folder.checkpoints, session.config.training.average_checkpoints
    others = {checkpoints.path_of(folder, run_state.step), *in_between(folder, session.config.training)}
    found = [path for path in checkpoints.steps(folder) if path not in others][-(count - 1) :]
    tried = [agreed(session.ranks, partial(checkpoints.read, path, session.ranks)) for path in found]
    weights = [checkpoint.tensors["model"] for checkpoint, _ in tried if checkpoint is not None]
    whole = {name: plain(tensor) for name, tensor in present.items()}
    return [*weights, whole], [problem for _, problem in tried if problem]


# RUN/model is rebuilt from a checkpoint if it is not that of the chosen validation.
#
#     missing or damaged     it was removed, or the disk lost a part of it
#     older than the chosen  the disk was full when it should have been replaced
#
# The weights are those of the chosen step. If the run averages its last checkpoints, their mean may have been chosen at
# the last step: it is evaluated again. This is not a validation of the run, so it is not logged.

Tensors = Mapping[str, Mapping[str, Tensor]]


class RepairedModel(NamedTuple):
    """The step of the weights that RUN/model has now, and the problem if it could not be rebuilt."""

    step: int | None
    problem: str = ""


def repaired_model(
    session: Session,
    update: WeightUpdate,
    run_state: TrainingState,
    save: Callable[[TrainingState, ValidationResult], str],
) -> RepairedModel | None:
    """Rebuild RUN/model if it is not that of the chosen validation; returns None if there is nothing to do.

    `save` writes the current weights to RUN/model, and returns the problem, empty if there was none.
    """
    there, metric = saved_model_step(session), session.task.metric
    if run_state.chosen is None or there == run_state.chosen.step:
        return None
    result, best = RepairedModel(there), None
    for state, weights in _candidates(session, run_state, update.tensors(), there):
        with update.replaced(weights):
            found = validate(session)
            if best is None or metric.better(found.value(session), best):
                result, best = RepairedModel(state.step, save(state, found)), found.value(session)
    return result


def _candidates(
    session: Session, run_state: TrainingState, present: Tensors, there: int | None
) -> Iterator[tuple[TrainingState, dict[str, Tensor]]]:
    """The weights that may be the chosen ones, each with its training state.

    The current weights are better than no model at all.
    """
    assert run_state.chosen is not None, "there was a validation"
    chosen, ranks = checkpoints.path_of(session.folder.checkpoints, run_state.chosen.step), session.ranks
    checkpoint, _ = agreed(ranks, lambda: checkpoints.read(chosen, ranks))
    if checkpoint is not None:
        yield checkpoint.run_state, _saved_weights(checkpoint.tensors)
    if session.config.training.average_checkpoints > 1 and run_state.chosen.step == run_state.step:
        yield run_state, mean_of(last_weights(session, run_state, present["model"])[0])
    elif checkpoint is None and there is None:
        yield run_state, _saved_weights(present)


def _saved_weights(tensors: Tensors) -> dict[str, Tensor]:
    """The weights that are validated and saved: with --ema their moving average."""
    return {**tensors["model"], **tensors.get("ema", {})}
