"""One layer with attention and one input, on which other weights are tried.

    o_i = sum_j a'_ij v_j            with a' = change(a), instead of the model's own a; everything else as it is

Special tokens keep the weights that they have: weights are moved among what was written alone. Of a running text the
last row of weights is meant, the one that the next token is foretold with; elsewhere all rows are, and all heads.

Other weights are tried hundreds of times for the same input. All that stands before the layer stays the same, so it is
computed once (`held`): the whole encoder under attention pooling, the lower layers of a Transformer. The layer itself
keeps its fused kernel (`imposed`); its own weights are recomputed a block of rows at a time, changed, and what follows
from them is put where the layer's output passes. So nothing quadratic in the length is ever held.

What a model answers are distributions that can be compared, [N,Q,K], Q of them for each input:

    one class or tag, next tokens    softmax of the scores
    labels, each yes or no            (1 - s, s) of each label, s the logistic function
    a chain of tags                   the probability of each tag at each element, over all paths

Of a running text only the last row is meant: what comes next. Numbers and vectors are no distributions.
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
    """Inside the `with`, the modules that end before the layer at this path give what they gave for this reading."""
    kept = _before(subject, reading, path)
    with ExitStack() as stack:
        for name, output in kept.items():
            stack.enter_context(_giving(subject.model.get_submodule(name), output))
        yield


@contextmanager
def _giving(module: nn.Module, output: Padded) -> Iterator[None]:
    """Inside the `with`, the module gives copies of this output; one that gave copies before does so again behind."""

    def forward(given: Any, *_more: Any) -> Padded:
        found: Padded = repeated(output, _rows(given))
        return found

    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward  # in front of the method of its class
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
    """The outputs of the outermost modules that ended before the layer began, each used once."""
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


MOST_CELLS = 2**22  # weights that are held at once


class ImposedRows(NamedTuple):
    """Some rows of a layer's weights, while it is at work."""

    weights: Tensor  # [N,H,R,S], zero where the mask forbids
    allowed: Tensor  # [N,1,R,S] bool
    start: int  # the number of the first of these rows

    @property
    def stop(self) -> int:
        """The number behind the last of them."""
        return self.start + self.weights.shape[2]


Change = Callable[[ImposedRows], Tensor]  # -> [N,H,R,S], the weights to go on with


@contextmanager
def imposed(model: nn.Module, path: str, change: Change) -> Iterator[None]:
    """Inside the `with`, the layer at this path goes on with what `change` makes of its weights."""
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
    asked: list[Any] = []
    values: list[Tensor] = []  # [N,H,S,D/H] the last ones: linear attention tells of queries and keys alone

    def hear(_name: str, offered: Any) -> None:
        asked.append(offered)

    def hear_values(_module: nn.Module, _given: Any, made: Tensor) -> None:
        values[:] = [owner.heads.split(made)]

    def replace(_name: str, mixed: Tensor) -> Tensor:
        return mixture(asked.pop(), values, change).to(mixed.dtype)

    with ExitStack() as stack:
        if hasattr(owner, "heads"):  # an alignment has none
            stack.enter_context(owner.heads.value.register_forward_hook(hear_values))
        stack.enter_context(listening(model, f"{path}.weights", hear))
        stack.enter_context(listening(model, f"{path}.mixed", replace))
        yield


def mixture(asked: Request | LinearQueries, values: Sequence[Tensor], change: Change) -> Tensor:
    """[N,H,T,D/H] what each head finds with the changed weights, a block of rows at a time."""
    rows, heads, count, _ = asked.query.shape
    cells = rows * heads * asked.key.shape[2]
    if isinstance(asked, Request) and isinstance(asked.score, Additive):
        cells *= asked.query.shape[-1]  # it holds a vector for each pair
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
    """Raise ConfigError for a model whose answers are no distributions."""
    if type(cast(Any, subject.model).head) not in PROBABILITIES:
        raise ConfigError(
            f"faithfulness compares probabilities, and a model for {subject.task.name} predicts numbers",
            fix="use a model that predicts classes, tags or tokens",
        )


def probabilities(subject: Subject, reading: Reading, inputs: Any) -> Tensor:
    """[N,Q,K] the answers to a batch of inputs, each a variant of the reading; gradients go through."""
    found = scores(subject, inputs)
    if is_running(reading):
        found = found[:, -1:]
    head = cast(Any, subject.model).head
    return PROBABILITIES[type(head)](head, found.to(torch.promote_types(found.dtype, torch.float32)))


def is_running(reading: Reading) -> bool:
    """Whether an input is a text that goes on, whose every row foretells the next."""
    return reading.targets is not None and len(reading.sides) == 1


def decided(found: Tensor) -> Tensor:
    """[Q] the answers that are given, of probabilities [Q,K]."""
    return found.argmax(dim=-1)


def confidence(found: Tensor, columns: Tensor) -> Tensor:
    """[N] how probable the answers [Q] are under [N,Q,K], the mean over Q."""
    return found.gather(-1, columns.expand(len(found), -1)[..., None])[..., 0].mean(dim=1)


def flipped(found: Tensor, columns: Tensor) -> Tensor:
    """[N] the share of the answers [Q] that [N,Q,K] would give otherwise."""
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


MOST_ELEMENTS = 8192  # tokens of all variants that one pass reads
MOST_TRIED = 2**28  # weights of all variants of one experiment: at 4,096 tokens, 16 variants of one head
FEWEST = 4  # variants, whatever they cost

Trial = Callable[[ImposedRows, slice], Tensor]  # weights of some variants, which ones these are: those to go on with


class Bench(NamedTuple):
    """A layer at work on one input, with what it gives by its own weights."""

    subject: Subject
    reading: Reading
    layer: AttentionLayer
    free: Tensor  # [S] bool, the keys that are no special tokens
    asked: Tensor  # [T] bool, the rows that are meant
    own: Tensor  # [Q,K] the answers
    weights: np.ndarray  # [S] what each key gets: the mean over heads and the rows that are meant; NaN if it is special
    sharpness: float  # the largest weight of a row on a free key, the mean over rows and heads
    cells: int  # heads x rows that are meant x keys

    def movable(self, rows: ImposedRows) -> Tensor:
        """[N,1,R,S] the weights that may be moved."""
        return rows.allowed & self.free & self.asked[rows.start : rows.stop, None]

    def has_choice(self, rows: ImposedRows) -> Tensor:
        """[R] the rows that are meant and have two weights or more that may be moved: others have to stay."""
        return self.movable(rows)[0, 0].sum(dim=-1) > 1

    def affordable(self, count: int) -> int:
        """How many of so many variants are tried: all, unless the weights are too many."""
        return min(count, max(FEWEST, MOST_TRIED // max(1, self.cells)))

    @property
    def at_once(self) -> int:
        """How many variants one pass reads."""
        return max(1, MOST_ELEMENTS // max(1, len(self.layer.keys), len(self.layer.queries)))

    def under(self, trial: Trial, count: int) -> Tensor:
        """[count,Q,K] the answers under so many variants of the weights; gradients go through."""
        parts = (slice(start, min(start + self.at_once, count)) for start in range(0, count, self.at_once))
        return torch.cat([self._under(trial, part) for part in parts])

    def _under(self, trial: Trial, part: slice) -> Tensor:
        inputs = repeated(self.reading.inputs, part.stop - part.start)
        with imposed(self.subject.model, self.layer.path, lambda rows: trial(rows, part)):
            return probabilities(self.subject, self.reading, inputs)


@contextmanager
def at_bench(subject: Subject, reading: Reading, layer: AttentionLayer) -> Iterator[Bench]:
    """Inside the `with`, the layer can be tried; DataError for an input that has nothing but special tokens."""
    free = torch.tensor([not token.is_special for token in layer.keys], device=subject.device)
    if not bool(free.any()):
        raise DataError("this input has only special tokens", fix="give a text with words")
    asked = torch.ones(len(layer.queries), dtype=torch.bool, device=subject.device)
    if is_running(reading) and layer.same:
        asked[:-1] = False
    columns = torch.zeros(len(free), dtype=torch.float64, device=subject.device)
    largest, heads = 0.0, 1

    def hear(rows: ImposedRows) -> Tensor:
        nonlocal largest, heads
        meant = rows.weights[0, :, asked[rows.start : rows.stop]].double()  # [H,R,S]
        heads = len(meant)
        columns.add_(meant.sum(dim=(0, 1)))
        largest += float(meant[..., free].amax(dim=-1).sum())
        return rows.weights

    with torch.no_grad(), still(subject.model), held(subject, reading, layer.path):
        with imposed(subject.model, layer.path, hear):
            scores(subject, reading.inputs)
        own = probabilities(subject, reading, reading.inputs)[0]
        count = max(1, int(asked.sum()) * heads)
        weights = (columns / count).masked_fill(~free, torch.nan).cpu().numpy()
        yield Bench(subject, reading, layer, free, asked, own, weights, largest / count, count * len(free))
