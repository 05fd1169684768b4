"""One attention layer and one input, on which other attention weights are tried.

    o_i = sum_j a'_ij v_j            with a' = change(a) instead of the model's own a; everything else unchanged

Special tokens keep their weights: weight moves only between other tokens. For a running text only the last row of
weights is changed, which predicts the next token; elsewhere all rows and all heads.

Other weights are tried hundreds of times on the same input. The outputs before the layer do not change, so `held`
computes them once: the complete encoder under attention pooling, or the lower layers of a Transformer. The layer itself
keeps its fused kernel. `imposed` recomputes its weights a block of rows at a time, changes them, and replaces the
layer's output, so memory is never quadratic in the length.

Predictions are distributions that can be compared, [N,Q,K], Q of them for each input:

    one class or tag, next tokens     softmax of the scores
    several labels                    (1 - s, s) of each label, s the logistic function
    a chain of tags                   the probability of each tag at each element, over all paths

For a running text only the last row is used: the next token. Regression and vectors are not distributions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention_weights import AttentionLayer
from seqloom.inspect.flow import still
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject, repeated
from seqloom.nn.heads import ClassHead, CrfHead, LabelScoresHead, LabelsHead, NextTokenHead, Pooler, ScoresHead
from seqloom.nn.ops import crf
from seqloom.nn.ops.attention import Request, weights
from seqloom.nn.ops.linear_attention import LinearQueries
from seqloom.nn.ops.masks import dense
from seqloom.nn.ops.pooling import attentive_weights
from seqloom.nn.ops.relations import Shaw
from seqloom.nn.ops.scores import Additive
from seqloom.nn.taps import listening
from seqloom.nn.types import Padded


@contextmanager
def held(subject: Subject, reading: Reading, path: str) -> Iterator[None]:
    """Inside the `with`, the modules that end before the layer at this path return their saved outputs."""
    kept = _before(subject, reading, path)
    with ExitStack() as stack:
        for name, output in kept.items():
            stack.enter_context(_giving(subject.model.get_submodule(name), output))
        yield


@contextmanager
def _giving(module: nn.Module, output: Padded) -> Iterator[None]:
    """Inside the `with`, the module returns copies of this output; afterwards its previous `forward` is restored."""

    def forward(given: Any, *_more: Any) -> Padded:
        found: Padded = repeated(output, _rows(given))
        return found

    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward  # shadows the method of its class
    try:
        yield
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before


def _rows(given: Any) -> int:
    if isinstance(given, Padded):
        return len(given.lengths)
    return len(given) if isinstance(given, Tensor) else _rows(given[0])


@torch.no_grad()
def _before(subject: Subject, reading: Reading, path: str) -> dict[str, Padded]:
    """Return the outputs of the outermost modules that end before the layer starts, and that are called once."""
    ended: dict[str, list[Any]] = {}
    began: list[str] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _module, _given, output: None if began else ended.setdefault(name, []).append(output)

    def begin(name: str, _offered: Any) -> None:
        began.append(name)

    with ExitStack() as stack:
        for name, module in subject.model.named_modules():
            stack.enter_context(module.register_forward_hook(hook(name)))
        stack.enter_context(listening(subject.model, f"{path}.weights", begin))
        scores(subject, reading.inputs)
    once = {name: outputs[0] for name, outputs in ended.items() if len(outputs) == 1}
    found = {name: output for name, output in once.items() if isinstance(output, Padded)}
    within = {name for name in found if any(name.startswith(f"{other}.") for other in found if other)}
    return {name: output for name, output in found.items() if name not in within}


MOST_CELLS = 2**22  # weights in memory at a time


class ImposedRows(NamedTuple):
    """Some rows of a layer's weights during a forward pass."""

    weights: Tensor  # [N,H,R,S], zero where masked
    allowed: Tensor  # [N,1,R,S] bool
    start: int  # index of the first row

    @property
    def stop(self) -> int:
        """The index after the last row."""
        return self.start + self.weights.shape[2]


Change = Callable[[ImposedRows], Tensor]  # -> [N,H,R,S], the weights to use


@contextmanager
def imposed(model: nn.Module, path: str, change: Change) -> Iterator[None]:
    """Inside the `with`, the layer at this path uses the weights that `change` returns."""
    owner = model.get_submodule(path)
    with _pooling(owner, change) if isinstance(owner, Pooler) else _mixing(model, path, owner, change):
        yield


@contextmanager
def _pooling(pooler: Pooler, change: Change) -> Iterator[None]:
    def hook(_module: nn.Module, arguments: tuple[Padded], _pooled: Tensor) -> Tensor:
        (x,) = arguments
        own = attentive_weights(x, pooler.inner.weight, pooler.inner.bias, pooler.direction)
        changed = change(ImposedRows(own[:, None, None], x.valid[:, None, None], 0))[:, 0, 0]
        return (changed[:, :, None].to(x.values.dtype) * x.values).sum(dim=1)

    with pooler.register_forward_hook(hook):
        yield


@contextmanager
def _mixing(model: nn.Module, path: str, owner: Any, change: Change) -> Iterator[None]:
    requests: list[Any] = []
    values: list[Tensor] = []  # [N,H,S,D/H] the latest ones: linear attention reports only queries and keys

    def record(_name: str, offered: Any) -> None:
        requests.append(offered)

    def hear_values(_module: nn.Module, _given: Any, made: Tensor) -> None:
        values[:] = [owner.heads.split(made)]

    def replace(_name: str, mixed: Tensor) -> Tensor:
        return mixture(requests.pop(), values, change).to(mixed.dtype)

    with ExitStack() as stack:
        if hasattr(owner, "heads"):  # an alignment has no heads
            stack.enter_context(owner.heads.value.register_forward_hook(hear_values))
        stack.enter_context(listening(model, f"{path}.weights", record))
        stack.enter_context(listening(model, f"{path}.mixed", replace))
        yield


def mixture(asked: Request | LinearQueries, values: Sequence[Tensor], change: Change) -> Tensor:
    """Return the output [N,H,T,D/H] of each head with the changed weights, computed a block of rows at a time."""
    rows, heads, count, _ = asked.query.shape
    cells = rows * heads * asked.key.shape[2]
    if isinstance(asked, Request) and isinstance(asked.score, Additive):
        cells *= asked.query.shape[-1]  # additive scores need a vector per pair
    each = max(1, MOST_CELLS // max(1, cells))
    found = []
    for start in range(0, count, each):
        block = asked.rows(start, min(start + each, count))
        own = weights(block) if isinstance(block, Request) else block.weights()
        changed = change(ImposedRows(own, dense(block.mask, block.query_places, block.key_places), start))
        value = block.value if isinstance(block, Request) else values[-1]
        mixed = changed.to(value.dtype) @ value
        if isinstance(block, Request) and isinstance(block.bias, Shaw):
            mixed = mixed + block.bias.value_term(changed.to(value.dtype), block.query_places, block.key_places)
        found.append(mixed)
    return torch.cat(found, dim=2)


def require_distributions(subject: Subject) -> None:
    """Raise ConfigError if the model's predictions are not distributions."""
    if type(cast(Any, subject.model).head) not in PROBABILITIES:
        raise ConfigError(
            f"faithfulness compares probabilities, and a model for {subject.task.name} predicts numbers",
            fix="use a model that predicts classes, tags or tokens",
        )


def probabilities(subject: Subject, reading: Reading, inputs: Any) -> Tensor:
    """Return the predictions [N,Q,K] for a batch of variants of the reading; keeps gradients."""
    found = scores(subject, inputs)
    if is_running(reading):
        found = found[:, -1:]
    head = cast(Any, subject.model).head
    return PROBABILITIES[type(head)](head, found.to(torch.promote_types(found.dtype, torch.float32)))


def is_running(reading: Reading) -> bool:
    """Whether an input is a running text, each row of which predicts the next token."""
    return reading.targets is not None and len(reading.sides) == 1


def decided(found: Tensor) -> Tensor:
    """Return the predicted columns [Q] of probabilities [Q,K]."""
    return found.argmax(dim=-1)


def confidence(found: Tensor, columns: Tensor) -> Tensor:
    """Return the probability [N] of the columns [Q] under [N,Q,K], the mean over Q."""
    return found.gather(-1, columns.expand(len(found), -1)[..., None])[..., 0].mean(dim=1)


def flipped(found: Tensor, columns: Tensor) -> Tensor:
    """Return the fraction [N] of the columns [Q] that differ from the decisions of [N,Q,K]."""
    return (found.argmax(dim=-1) != columns).double().mean(dim=1)


def _softmax(_head: nn.Module, found: Tensor) -> Tensor:
    return found.softmax(dim=-1)


def _yes_or_no(_head: nn.Module, found: Tensor) -> Tensor:
    yes = found.sigmoid().flatten(1)
    return torch.stack([1 - yes, yes], dim=-1)


def _chain(head: CrfHead, found: Tensor) -> Tensor:
    lengths = torch.full((len(found),), found.shape[1], device=found.device)
    if not found.requires_grad:
        return crf.marginals(found, lengths, head.transitions)
    log_partition = crf.log_partition(found, lengths, head.transitions)
    return torch.autograd.grad(log_partition.sum(), found, create_graph=True)[0]


PROBABILITIES: Mapping[type[nn.Module], Callable[[Any, Tensor], Tensor]] = {
    ClassHead: _softmax,
    ScoresHead: _softmax,
    NextTokenHead: _softmax,
    LabelsHead: _yes_or_no,
    LabelScoresHead: _yes_or_no,
    CrfHead: _chain,
}


MOST_ELEMENTS = 8192  # tokens of all variants in one forward pass
MOST_TRIED = 2**28  # weights of all variants of one experiment: at 4,096 tokens, 16 variants of one head
FEWEST = 4  # variants, even if they exceed MOST_TRIED

Trial = Callable[[ImposedRows, slice], Tensor]  # weights of some variants, their indices -> the weights to use


class Bench(NamedTuple):
    """An attention layer on one input, with its own weights and predictions."""

    subject: Subject
    reading: Reading
    layer: AttentionLayer
    free: Tensor  # [S] bool, the keys that are not special tokens
    asked: Tensor  # [T] bool, the rows whose weights are changed
    own: Tensor  # [Q,K] the predictions
    weights: np.ndarray  # [S] weight of each key: the mean over heads and used rows; NaN for special tokens
    sharpness: float  # the largest weight of a row on a free key, the mean over rows and heads
    cells: int  # heads x used rows x keys

    def movable(self, rows: ImposedRows) -> Tensor:
        """Return the weights [N,1,R,S] that may be moved."""
        return rows.allowed & self.free & self.asked[rows.start : rows.stop, None]

    def has_choice(self, rows: ImposedRows) -> Tensor:
        """Return [R], True for the used rows with at least two movable weights: other rows cannot change."""
        return self.movable(rows)[0, 0].sum(dim=-1) > 1

    def affordable(self, count: int) -> int:
        """Return how many of `count` variants are tried: all, unless there are too many weights."""
        return min(count, max(FEWEST, MOST_TRIED // max(1, self.cells)))

    @property
    def at_once(self) -> int:
        """How many variants fit into one forward pass."""
        return max(1, MOST_ELEMENTS // max(1, len(self.layer.keys), len(self.layer.queries)))

    def under(self, trial: Trial, count: int) -> Tensor:
        """Return the predictions [count,Q,K] with these variants of the weights; keeps gradients."""
        parts = (slice(start, min(start + self.at_once, count)) for start in range(0, count, self.at_once))
        return torch.cat([self._under(trial, part) for part in parts])

    def _under(self, trial: Trial, part: slice) -> Tensor:
        inputs = repeated(self.reading.inputs, part.stop - part.start)
        with imposed(self.subject.model, self.layer.path, lambda rows: trial(rows, part)):
            return probabilities(self.subject, self.reading, inputs)


@contextmanager
def at_bench(subject: Subject, reading: Reading, layer: AttentionLayer) -> Iterator[Bench]:
    """Yield the bench of a layer; raise DataError if the input has only special tokens."""
    free = torch.tensor([not token.is_special for token in layer.keys], device=subject.device)
    if not bool(free.any()):
        raise DataError("this input has only special tokens", fix="give a text with words")
    used = torch.ones(len(layer.queries), dtype=torch.bool, device=subject.device)
    if is_running(reading) and layer.same:
        used[:-1] = False
    columns = torch.zeros(len(free), dtype=torch.float64, device=subject.device)
    largest, heads = 0.0, 1

    def record(rows: ImposedRows) -> Tensor:
        nonlocal largest, heads
        weights = rows.weights[0, :, used[rows.start : rows.stop]].double()  # [H,R,S]
        heads = len(weights)
        columns.add_(weights.sum(dim=(0, 1)))
        largest += float(weights[..., free].amax(dim=-1).sum())
        return rows.weights

    with torch.no_grad(), still(subject.model), held(subject, reading, layer.path):
        with imposed(subject.model, layer.path, record):
            scores(subject, reading.inputs)
        own = probabilities(subject, reading, reading.inputs)[0]
        count = max(1, int(used.sum()) * heads)
        weights = (columns / count).masked_fill(~free, torch.nan).cpu().numpy()
        yield Bench(subject, reading, layer, free, used, own, weights, largest / count, count * len(free))
