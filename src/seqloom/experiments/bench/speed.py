"""How fast a trained model trains and predicts on this machine, by threads, batch size and precision; with advice.

Everything is measured on the data of its run: steps of training on a copy of the model, and predictions for rows of all
lengths. Settings are measured in turn, several times, so that a machine that becomes busy affects all of them; medians
and the middle half are shown. One setting changes at a time, the others stay those of the run or the fastest so far.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from seqloom.config.options import strict
from seqloom.config.training import AnyBatching, ByLengthConfig, Precision, TrainingConfig
from seqloom.data.prepared import Prepared
from seqloom.experiments.baselines import training_batches
from seqloom.experiments.bench.explain import KernelReport, Phase, explain_kernels
from seqloom.experiments.compare.costs import TOGETHER, inputs_of, measured_rows, timed
from seqloom.experiments.compare.results import Spread
from seqloom.inference.model import LoadedModel, load
from seqloom.nn.types import Batch
from seqloom.report.document import (
    Aside,
    Bullets,
    Document,
    DocumentBlock,
    Heading,
    KeyFigures,
    Paragraph,
    Shown,
    TableBlock,
)
from seqloom.report.numbers import counted, number
from seqloom.training.devices import Alone, Device, DeviceName, choose_device, describe
from seqloom.training.state import TrainingState
from seqloom.training.step import Update, elements_of
from seqloom.training.threads import threads_kept

ROUNDS = 9  # at most
TOKENS = 40_000  # of the batches that are trained on in turn
WORTH = 1.1  # advice is given for a setting that is faster by this factor
ALONE = 1  # examples in a call


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of training or prediction with some settings."""

    phase: Phase
    threads: int
    batch: int  # tokens of a training step, padding included; examples of a prediction
    precision: Precision
    speed: Spread  # tokens per second in training, padding not counted; examples per second in prediction
    milliseconds: Spread  # of a step, or of a call


class SpeedReport(msgspec.Struct, Shown, frozen=True, kw_only=True):
    """The speed of a model on a machine, with advice."""

    name: str
    device: str
    threads: int  # of torch here
    measurements: tuple[Measurement, ...]
    advice: tuple[str, ...]
    messages: tuple[str, ...] = ()

    def document(self) -> Document:
        """The advice and the tables of measurements."""
        training, prediction = (self._of(phase) for phase in ("training", "prediction"))
        figures: list[tuple[str | float, str]] = []
        if training:
            figures.append((f"{max(one.speed.median for one in training):,.0f}", "tokens per second in training"))
        if prediction:
            fastest = min(one.milliseconds.median for one in prediction if one.batch == ALONE)
            figures.append((f"{number(fastest)} ms", "per prediction of one example"))
        blocks: list[DocumentBlock] = [
            KeyFigures(figures),
            Heading("Advice"),
            Bullets(self.advice),
            Heading("Training"),
            TableBlock(("threads", "batch (tokens)", "precision", "tokens/s", "middle half", "ms"), _rows(training)),
            Heading("Prediction"),
            TableBlock(("threads", "examples", "precision", "examples/s", "middle half", "ms"), _rows(prediction)),
            *(Paragraph(message) for message in self.messages),
            Aside(
                "Medians of several rounds in which all settings took turns. Other programs make all of them slower."
            ),
        ]
        return Document(f"Speed of {self.name} on {self.device} with {counted(self.threads, 'thread')}", blocks)

    def _of(self, phase: Phase) -> list[Measurement]:
        return [one for one in self.measurements if one.phase == phase]


def _rows(measurements: Sequence[Measurement]) -> list[tuple[str, ...]]:
    return [
        (
            str(one.threads),
            f"{one.batch:,}",
            one.precision,
            f"{one.speed.median:,.0f}",
            f"{one.speed.low:,.0f} to {one.speed.high:,.0f}",
            number(one.milliseconds.median),
        )
        for one in measurements
    ]


class SpeedTrial(NamedTuple):
    """Settings, and a function that uses them once and returns how many tokens or examples that were."""

    phase: Phase
    threads: int
    batch: int
    precision: Precision
    run: Callable[[], int]


@strict
def bench(model: str | Path, *, device: DeviceName = "auto", seconds: float = 30.0) -> SpeedReport:
    """Measure how fast a trained model trains and predicts on this machine, and advise settings.

    Args:
        model: a run folder, or the model folder in it.
        device: where to measure: auto, cpu, cuda or mps.
        seconds: how long to measure, roughly.

    Returns:
        A `SpeedReport`: `measurements`, `advice`, and `report()` to print. Nothing in the run folder changes.
    """
    chosen = choose_device(device, "auto")
    loaded = load(model, device=chosen.torch)
    prepared = loaded.own_rows("train")
    with threads_kept():
        counts = _counts(chosen)
        training, messages = _training(loaded, prepared, chosen, counts, seconds / 2)
        prediction = _prediction(loaded, prepared, counts, seconds / 2)
    name = loaded.folder.name if loaded.folder else loaded.path.name
    found = (*training, *prediction)
    return SpeedReport(
        name=name,
        device=describe(chosen.torch),
        threads=torch.get_num_threads(),
        measurements=found,
        advice=advised(found, loaded.run.training.batching if loaded.run else ByLengthConfig()),
        messages=messages,
    )


@strict
def explain(model: str | Path, *, device: DeviceName = "auto") -> KernelReport:
    """Report which kernel each layer of a trained model uses on this machine, and why faster ones cannot be used.

    Args:
        model: a run folder, or the model folder in it.
        device: auto, cpu, cuda or mps.
    """
    chosen = choose_device(device, "float32")
    loaded = load(model, device=chosen.torch)
    prepared = loaded.own_rows("train")
    training = _trained_with(loaded)
    batch = training_batches(loaded.task, prepared, training.batching, most=1)[0]
    inputs = inputs_of(prepared, measured_rows(prepared, "train"))
    return explain_kernels(loaded, batch, inputs, describe(chosen.torch))


def _trained_with(loaded: LoadedModel) -> TrainingConfig:
    return loaded.run.training if loaded.run is not None else TrainingConfig()


def _counts(device: Device) -> list[int]:
    """The numbers of threads to try: 1, half and all on the CPU; a GPU does not use them."""
    everything = torch.get_num_threads()
    return sorted({1, max(1, everything // 2), everything}) if device.torch.type == "cpu" else [everything]


def _training(
    loaded: LoadedModel, prepared: Prepared, device: Device, counts: list[int], seconds: float
) -> tuple[list[Measurement], tuple[str, ...]]:
    """Steps of training by threads, then by batch size and precision with the fastest number of threads."""
    config = _trained_with(loaded)
    if config.strengths:
        return [], ("Training was not measured: this model was fitted by Newton's method, without batches.",)
    batches = training_batches(loaded.task, prepared, config.batching, TOKENS)
    whole = size_of(config.batching)

    def steps(threads: int, batching: AnyBatching, precision: Precision) -> SpeedTrial:
        own = batches if batching == config.batching else training_batches(loaded.task, prepared, batching, TOKENS)
        run = _steps(loaded, config, own, device._replace(precision=precision))
        return SpeedTrial("training", threads, size_of(batching), precision, run)

    found = measured([steps(threads, config.batching, "float32") for threads in counts], seconds / 2)
    best = max(found, key=lambda one: one.speed.median)
    others = [steps(best.threads, scaled(config.batching, factor), "float32") for factor in (0.5, 1.0, 2.0)]
    messages: tuple[str, ...] = ()
    if device.torch.type == "cpu" and not _multiplies_in_bf16():
        messages = ("bf16 was not measured: this CPU has no instructions for it, so it is several times slower.",)
    else:
        others.append(steps(best.threads, config.batching, "bf16"))
    unlike = [one for one in measured(others, seconds / 2) if (one.batch, one.precision) != (whole, "float32")]
    return [*found, *unlike], messages


def _multiplies_in_bf16() -> bool:
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def size_of(batching: AnyBatching) -> int:
    """The tokens of a batch, padding included."""
    return batching.batch_tokens if isinstance(batching, ByLengthConfig) else batching.batch_rows * batching.row_length


def scaled(batching: AnyBatching, factor: float) -> AnyBatching:
    """Batches that are larger or smaller by a factor.

    >>> scaled(ByLengthConfig(batch_tokens=100), 0.5).batch_tokens
    50
    """
    name = "batch_tokens" if isinstance(batching, ByLengthConfig) else "batch_rows"
    return msgspec.structs.replace(batching, **{name: max(1, round(getattr(batching, name) * factor))})


def _steps(
    loaded: LoadedModel, config: TrainingConfig, batches: Sequence[Batch[Any, Any]], device: Device
) -> Callable[[], int]:
    """A function that trains a copy of the model by one step and returns the number of tokens."""
    model = copy.deepcopy(loaded.model).requires_grad_(True)
    update = Update(loaded.task, model, msgspec.structs.replace(config, compile=False, ema=0.0), Alone(), device)
    state, turns = TrainingState(seed=config.seed), cycle(batches)

    def step() -> int:
        batch = next(turns)
        update.step(batch, carried=False, run_state=state, lr=config.lr)
        update.read()  # waits for the device
        state.step += 1
        return elements_of(batch)[1]

    return step


def _prediction(loaded: LoadedModel, prepared: Prepared, counts: list[int], seconds: float) -> list[Measurement]:
    """Predictions of one example and of a full batch, by threads."""
    rows = measured_rows(prepared, "train")
    singles = cycle([inputs_of(prepared, rows[at : at + 1]) for at in range(len(rows))])
    full = inputs_of(prepared, rows)

    def one() -> int:
        timed(loaded, next(singles))
        return 1

    def all_() -> int:
        timed(loaded, full)
        return len(rows)

    trials = [
        SpeedTrial("prediction", threads, batch, "float32", run)
        for threads in counts
        for batch, run in ((ALONE, one), (TOGETHER, all_))
    ]
    return measured(trials, seconds)


def measured(trials: Sequence[SpeedTrial], seconds: float) -> list[Measurement]:
    """Run all trials in turn until the time is over, but at least twice each; the first time is a warmup."""
    taken: list[list[tuple[float, int]]] = [[] for _ in trials]
    began = time.perf_counter()
    for turn in range(ROUNDS + 1):
        for trial, times in zip(trials, taken, strict=True):
            torch.set_num_threads(trial.threads)
            start = time.perf_counter()
            count = trial.run()
            times.append((time.perf_counter() - start, count))
        if turn and time.perf_counter() - began > seconds:
            break
    return [
        Measurement(
            phase=trial.phase,
            threads=trial.threads,
            batch=trial.batch,
            precision=trial.precision,
            speed=Spread.of([count / spent for spent, count in times[1:]]),
            milliseconds=Spread.of([1_000 * spent for spent, _ in times[1:]]),
        )
        for trial, times in zip(trials, taken, strict=True)
    ]


def advised(found: Sequence[Measurement], batching: AnyBatching) -> tuple[str, ...]:
    """What to change, from measurements; each piece of advice names its numbers."""
    return (*_about_training([one for one in found if one.phase == "training"], batching), *_about_prediction(found))


def _about_training(found: Sequence[Measurement], batching: AnyBatching) -> Iterator[str]:
    if not found:
        return
    whole = size_of(batching)
    by_threads = [one for one in found if (one.batch, one.precision) == (whole, "float32")]
    yield from _about_threads(by_threads, "Training", "seqloom train chooses this by itself")
    best = max(by_threads, key=lambda one: one.speed.median)
    for one in found:
        gain = one.speed.median / best.speed.median
        if one.precision != best.precision:
            verdict = f"--precision {one.precision} trains {gain:.2g} times as fast as float32"
            yield f"{verdict}: use it." if gain > WORTH else f"{verdict}: stay with float32."
        elif one.batch != whole and gain > WORTH:
            flag = "--batch-tokens" if isinstance(batching, ByLengthConfig) else "--batch-rows"
            size = one.batch if isinstance(batching, ByLengthConfig) else one.batch // batching.row_length
            yield (
                f"{flag} {size} reads {gain:.2g} times as many tokens per second. An epoch then has other steps, so "
                "compare the dev scores too."
            )


def _about_prediction(found: Sequence[Measurement]) -> Iterator[str]:
    alone = [one for one in found if one.phase == "prediction" and one.batch == ALONE]
    together = [one for one in found if one.phase == "prediction" and one.batch != ALONE]
    if not alone or not together:
        return
    yield from _about_threads(alone, "Predicting one example", "set OMP_NUM_THREADS")
    yield from _about_threads(together, f"Predicting {together[0].batch} examples at once", "set OMP_NUM_THREADS")
    gain = max(one.speed.median for one in together) / max(one.speed.median for one in alone)
    if gain > WORTH:
        yield f"Predict many examples in one call: {together[0].batch} at once are {gain:.2g} times as fast for each."


def _about_threads(found: Sequence[Measurement], what: str, how: str) -> Iterator[str]:
    """Which number of threads is fastest, if there was a choice."""
    if len(found) < 2:
        return
    best, most = max(found, key=lambda one: one.speed.median), max(found, key=lambda one: one.threads)
    gain = best.speed.median / most.speed.median
    if best is not most and gain > WORTH:
        fewer = counted(best.threads, "thread")
        yield f"{what} is fastest with {fewer}: {gain:.2g} times as fast as with {most.threads} ({how})."
    else:
        least = min(found, key=lambda one: one.threads)
        gain = most.speed.median / least.speed.median
        yield f"{what} with {most.threads} threads is {gain:.2g} times as fast as with {least.threads}."
