"""The costs of inference: latency, memory and disk space, measured side by side.

Models predict in turn, several times, so that a machine that becomes warm or busy affects all of them. Texts are
encoded before; the measurement covers the model with its task, up to finished predictions. A language model continues
the beginning of each document: the documents of running text can be as long as a book. Memory is the peak of the
weights and all live tensors, counted as they are created and freed: the same number on every machine.
"""

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqloom.config.data import SplitName
from seqloom.data.prepared import Prepared
from seqloom.experiments.compare.results import Cost, Spread
from seqloom.files.folders import read_manifest
from seqloom.inference.model import LoadedModel
from seqloom.nn.types import on_device
from seqloom.tasks.evaluation import answering

TOGETHER = 32  # examples of a full batch
ALONE = 16  # examples that are predicted one by one
PROMPT = 256  # most tokens of a document that a language model continues
ROUNDS = 7
SECONDS = 5.0  # for each model, after which no further round begins, nor a further single prediction of a round


def measure_costs(
    models: Mapping[str, LoadedModel], prepared: Mapping[str, Prepared], part: SplitName
) -> dict[str, Cost]:
    """The costs of each model, measured on the same examples of all lengths, which are prepared for each model."""
    rows = measured_rows(next(iter(prepared.values())), part)
    full = {name: inputs_of(prepared[name], rows) for name in models}
    alone = {
        name: [inputs_of(prepared[name], rows[at : at + 1]) for at in range(min(ALONE, len(rows)))] for name in models
    }
    singles: dict[str, list[float]] = {name: [] for name in models}
    batches: dict[str, list[float]] = {name: [] for name in models}
    for name, model in models.items():
        timed(model, full[name])  # warmup: the first prediction is slow
    spent = time.perf_counter()
    for turn in range(ROUNDS):
        if turn and time.perf_counter() - spent > SECONDS * len(models):
            break
        for name, model in models.items():
            singles[name] += timed_alone(model, alone[name], SECONDS)
            batches[name].append(len(rows) / timed(model, full[name]))
    return {
        name: Cost(
            latency=Spread.of(singles[name]),
            throughput=Spread.of(batches[name]),
            memory=memory_of(model, full[name]),
            disk=sum(entry.size for entry in read_manifest(model.path).files.values()),
        )
        for name, model in models.items()
    }


def measure_latency(model: LoadedModel, prepared: Prepared, part: SplitName) -> float:
    """The median milliseconds of a prediction for one example, over examples of all lengths."""
    alone = [inputs_of(prepared, row[None]) for row in measured_rows(prepared, part)[:ALONE]]
    timed(model, alone[0])  # warmup
    return float(np.median(timed_alone(model, alone * ROUNDS, SECONDS / ROUNDS)))


def measured_rows(prepared: Prepared, part: SplitName) -> np.ndarray:
    """Rows from the shortest to the longest in even steps, shuffled; rows of a small set are repeated."""
    ordered = prepared.splits[part]
    ordered = ordered[np.argsort(prepared.columns["input"].lengths[ordered], kind="stable")]
    places = np.linspace(0, len(ordered) - 1, TOGETHER).round().astype(np.int64)
    return np.asarray(ordered[places][np.random.Generator(np.random.PCG64(0)).permutation(TOGETHER)])


def inputs_of(prepared: Prepared, rows: np.ndarray) -> Any:
    kind, tokenizer = prepared.schema.input, prepared.tokenizer
    chosen = {name: column.select(rows) for name, column in prepared.columns.items()}
    if prepared.schema.target.is_running:
        chosen = kind.cut(chosen, PROMPT, framed=tokenizer is not None and tokenizer.config.framed)
    return kind.collate(chosen)


def timed_alone(model: LoadedModel, inputs: Sequence[Any], seconds: float) -> list[float]:
    """The milliseconds of each prediction; after so many seconds none begins, but there is at least one."""
    found, began = list[float](), time.perf_counter()
    for one in inputs:
        found.append(1000 * timed(model, one))
        if time.perf_counter() - began > seconds:
            break
    return found


def timed(model: LoadedModel, inputs: Any) -> float:
    """The seconds of a prediction, with all work of the device."""
    _synchronize(model.device)
    begin = time.perf_counter()
    _answer(model, inputs)
    _synchronize(model.device)
    return time.perf_counter() - begin


def _answer(model: LoadedModel, inputs: Any) -> None:
    with answering(model.model):
        model.task.predict(model.model, on_device(inputs, model.device))


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if device.type == "mps":
        torch.mps.synchronize()


def memory_of(model: LoadedModel, inputs: Any) -> int:
    """Bytes of the weights plus the peak of all tensors during a prediction."""
    with _Counting() as counting:
        _answer(model, inputs)
    storages = [one.untyped_storage() for one in model.model.state_dict().values()]
    sizes = {one.data_ptr(): one.nbytes() for one in storages}  # shared weights count once
    return int(counting.most) + int(sum(sizes.values()))


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Counts the bytes of the tensors that operators return, until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.most = 0
        self._known: dict[int, int] = {}  # how many tensors share a storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {_address(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        for one in tree_leaves(result):
            if isinstance(one, Tensor) and (_address(one) in self._known or _address(one) not in given):
                self._hold(one)
        return result

    def _hold(self, tensor: Tensor) -> None:
        address, size = _address(tensor), tensor.untyped_storage().nbytes()
        if address not in self._known:
            self.alive += size
            self.most = max(self.most, self.alive)
        self._known[address] = self._known.get(address, 0) + 1
        weakref.finalize(tensor, self._let_go, address, size)

    def _let_go(self, address: int, size: int) -> None:
        self._known[address] -= 1
        if not self._known[address]:
            del self._known[address]
            self.alive -= size


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
