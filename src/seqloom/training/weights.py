"""The tensors of a run by name: what is kept in a checkpoint, and put back from one."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.bundle import Bundle
from seqloom.config.training import AnyFeed
from seqloom.data.prepared import Prepared
from seqloom.data.word_vectors import VectorTable, read_vectors, wanted_words
from seqloom.errors import ConfigError, DurableError
from seqloom.nn.inputs import Tfidf
from seqloom.nn.types import Batch
from seqloom.report.numbers import share
from seqloom.tasks.encoders import sequences
from seqloom.tasks.task import Feeder
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.training import distributed
from seqloom.training.wishes import WORD_VECTORS


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers of a model as they are; what is known by two names (a tied table) comes under the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in found.values()}


@torch.no_grad()
def put(mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Copy the numbers of `given` into `mine`."""
    for name, tensor in mine.items():
        distributed.put(tensor, given[name])


def copy_all(part: str, mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Put every tensor of a part back. DurableError if one is missing, unknown, or of another shape."""
    wrong = sorted(mine.keys() ^ given.keys())
    wrong = wrong or [name for name, tensor in mine.items() if tensor.shape != given[name].shape]
    if wrong:
        raise DurableError(
            f"the part '{part}' of the checkpoint does not fit this run: {', '.join(wrong[:3])}"
            f"{' and so on' if len(wrong) > 3 else ''} {'is' if len(wrong) == 1 else 'are'} not on both sides alike",
            fix="go on with the model and the optimiser of the run, or begin in a new folder",
        )
    put(mine, given)


def leaves_of(state: Any) -> list[Tensor]:
    """The tensors of a nest of tuples, from left to right."""
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in leaves_of(part)]


def plain(tensor: Tensor) -> Tensor:
    """The tensor, whole: one that is spread over ranks is gathered."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


# Weights averaged over time: along the way (exponential moving average), or over the last checkpoints.
#
#     average <- average + (1 - decay) (weights - average)                       Polyak and Juditsky 1992
#     decay of step n = min(decay, (1 + n) / (10 + n))       so that the random start is soon forgotten
#
# Averaged weights are what is validated and shipped; training goes on from its own.


class Average:
    """The moving average of a model's weights, on their device."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._weights = [weight.detach() for weight in trained.values()]
        self.values = {name: weight.detach().clone() for name, weight in trained.items()}

    @torch.no_grad()
    def follow(self, step: int, hold: Tensor) -> None:
        """Move the average a little nearer to the weights, or leave it bit for bit if `hold` is 1."""
        values = list(self.values.values())
        pace = (1 - min(self.decay, (1 + step) / (10 + step))) * (1 - hold)
        change = torch._foreach_sub(self._weights, values)
        torch._foreach_mul_(change, pace)
        torch._foreach_add_(values, change)


def mean_of(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' weights, name by name; whole numbers are those of the last.

    >>> mean_of([{"w": torch.tensor([1.0, 4.0])}, {"w": torch.tensor([3.0, 4.0])}])
    {'w': tensor([2., 4.])}
    """
    last = weights[-1]
    return {
        name: _mean([one[name] for one in weights]) if last[name].is_floating_point() else last[name] for name in last
    }


def _mean(tensors: list[Tensor]) -> Tensor:
    """The mean, added up in float64 where the device has it, so that it does not depend on the order."""
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    total = torch.zeros_like(tensors[0], dtype=wide)
    for tensor in tensors:
        total += tensor.to(total.device)
    return (total / len(tensors)).to(tensors[0].dtype)


# Where training starts when it does not start at random: the weights of another model, some of them held fast.
#
#     --init MODEL        weights with equal names and shapes are copied; the others stay fresh, and are named
#     --vectors FILE      the vectors of words are copied; those of other words are drawn as wide as they
#     --freeze PATTERN    weights whose names fit are never changed: "encoder.*", "*.table"
#
# A fine-tuned model usually has another head than the one it starts from. That is no error; that nothing fits at all
# is.

AnyBatch = Batch[Any, Any]
SHOWN = 3  # names in a sentence
MUCH = 0.1  # of the symbols of a training part: what cannot be read cannot be learnt from


def start_from(model: nn.Module, bundle: Bundle) -> tuple[str, ...]:
    """What was taken over from a bundle and what stayed fresh, in sentences; ConfigError if nothing fits."""
    mine, given = weights_of(model), bundle.weights
    fitting = {name: mine[name] for name in mine if name in given and mine[name].shape == given[name].shape}
    if not fitting:
        raise ConfigError(
            f"none of the {len(mine)} weights of this model has the name and shape of one of the {len(given)} given",
            fix="start from a model of the same recipe and size, or leave --init out",
        )
    put(fitting, given)
    said = [_taken(mine, fitting)]
    if fresh := [name for name in mine if name not in fitting]:
        said.append(f"fresh: {_some([_why(name, mine[name].shape, bundle) for name in fresh])}")
    return tuple(said)


def training_texts(task: Feeder, prepared: Prepared, feed: AnyFeed) -> Iterator[AnyBatch]:
    """The batches of the training part once, in an order that no seed changes."""
    loader = task.loader(prepared, "train", feed, seed=0, workers=0)
    batches = (step.batch for step in loader.steps(until=1) if step.batch is not None)
    return (batch._replace(inputs=sequences(batch.inputs)) for batch in batches)


def fit_input(model: nn.Module, task: Feeder, prepared: Prepared, feed: AnyFeed) -> None:
    """Tell an input that weighs n-grams in how many texts of the training part each stands."""
    for module in model.modules():
        if isinstance(module, Tfidf):
            module.fit(batch.inputs for batch in training_texts(task, prepared, feed))


def unknown_said(prepared: Prepared) -> tuple[str, ...]:
    """How much of the training part the tokeniser of --init does not know, in a sentence; none where it knows all."""
    read = prepared.columns["input"].select(prepared.parts["train"]).values
    unknown = float((read == UNKNOWN).mean()) if prepared.tokenizer is not None and len(read) else 0.0
    if not unknown:
        return ()
    cure = "; pretrain on text that has these words, or with --tokenizer bpe" if unknown >= MUCH else ""
    return (f"{share(unknown)} of the symbols are unknown to the tokeniser of --init{cure}",)


def start_from_vectors(model: nn.Module, path: str, prepared: Prepared, seed: int) -> str:
    """How many of the words of the training part were found in a file of vectors, from which the model's now start."""
    assert prepared.tokenizer is not None, "vectors are refused where no words are read"
    table = read_vectors(path, wanted_words(prepared.tokenizer)).table(prepared.tokenizer, seed)
    put({WORD_VECTORS: weights_of(model)[WORD_VECTORS]}, {WORD_VECTORS: torch.from_numpy(table.rows)})
    return _found(table, prepared)


def _found(table: VectorTable, prepared: Prepared) -> str:
    symbols = np.unique(prepared.columns["input"].select(prepared.parts["train"]).values)
    words = symbols[symbols >= COUNT]
    own, lowered = int(table.own[words].sum()), int(table.lowered[words].sum())
    further = len(table.rows) - COUNT - len(words)
    return (
        f"vectors: {own:,} of {len(words):,} words of the training part have one as they stand, {lowered:,} in lower "
        f"case, {len(words) - own - lowered:,} none; {further:,} further words are known"
    )


def freeze(model: nn.Module, patterns: Sequence[str]) -> tuple[str, ...]:
    """What is held fast, in sentences; ConfigError for a pattern that fits nothing, and if nothing is left to train."""
    weights = dict(model.named_parameters())
    held: set[str] = set()
    for pattern in patterns:
        fitting = {name for name in weights if fnmatchcase(name, pattern)}
        if not fitting:
            raise ConfigError(f"no weight has a name like '{pattern}'", fix=_near(pattern, list(weights)))
        held |= fitting
    if len(held) == len(weights):
        raise ConfigError(f"{', '.join(patterns)} freeze all {len(weights)} weights", fix="leave some to be trained")
    for name in held:
        weights[name].requires_grad_(False)
    return (f"{len(held)} of {len(weights)} weights are frozen: {_some(sorted(held))}",) if held else ()


def _taken(mine: Mapping[str, Tensor], fitting: Mapping[str, Tensor]) -> str:
    """How much of a model is not fresh, in numbers: a name that fits may be of three numbers or of three million."""
    taken, of = (sum(weight.numel() for weight in weights.values()) for weights in (fitting, mine))
    text = f"{len(fitting)} of {len(mine)} weights ({taken:,} of {of:,} numbers) start from the given model"
    another = "; most are fresh: it is of another kind or size, and little of what it learned is left"
    return text if 2 * taken >= of else text + another


def _why(name: str, shape: Sequence[int], bundle: Bundle) -> str:
    given = bundle.weights.get(name)
    return f"{name} (not given)" if given is None else f"{name} ({list(given.shape)} given, {list(shape)} needed)"


def _near(pattern: str, names: list[str]) -> str:
    near = difflib.get_close_matches(pattern, names, n=SHOWN, cutoff=0.3)
    return f"take a name, or a pattern as in shells ('encoder.*'), such as fits {_some(near or names)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
