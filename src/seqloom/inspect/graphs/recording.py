"""Record the operations of torch in one forward and one backward pass, without changing the model.

A `TorchFunctionMode` receives the operations that the code calls (`linear`, `softmax`, `+`), above autograd; hooks of
modules tell which call contains each operation, and hooks of tensors receive gradients. Only operations whose result
has a gradient are recorded: those that make masks, shapes and token ids are skipped, and their results count as inputs.
A fused kernel is one operation. In-place changes are detected by torch's version counter; a change of a view is a
change of its base tensor.

Tensors are not kept, only their shapes and a few statistics, and all values of small ones.
"""

import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from seqloom.errors import DataError
from seqloom.report.numbers import number as brief

SMALL_TENSOR = 64  # a tensor with at most this many numbers is kept in full
INPUT, GIVEN = "input", "tensor"  # names of operations that only pass something in


class TensorSummary(NamedTuple):
    """Statistics of one or several tensors over their finite values, and the number of other values."""

    total: int  # number of values
    low: float
    high: float
    mean: float
    norm: float  # Euclidean
    zeros: int
    nans: int
    infinities: int
    whole: tuple[float, ...] | None = None  # all values of a small tensor, row by row
    counts: bool = False  # whether they are whole numbers, such as ids, of which a norm means nothing

    @property
    def is_zero(self) -> bool:
        return self.total > 0 and self.zeros == self.total


class Op(NamedTuple):
    """One operation of a computation, or one of its inputs."""

    name: str  # linear, softmax, add; input
    label: str  # the name of an input
    path: tuple[str, ...]  # the calls around it, outermost first
    parents: tuple[int, ...]  # indices of the operations whose results it reads
    locals: tuple[float | None, ...]  # derivative by each parent, if all are single numbers
    weights: tuple[str, ...]  # of the model that it reads
    shape: tuple[int, ...]  # of its (first) result
    place: str  # file and line of the call
    value: TensorSummary
    is_dead: bool = False  # all zero, although its inputs are not
    gradient: TensorSummary | None = None  # of the differentiated number by its result


class Weight(NamedTuple):
    """A weight of a model and its gradient."""

    name: str
    shape: tuple[int, ...]
    value: TensorSummary
    gradient: TensorSummary | None


class Trace(NamedTuple):
    """One computation, forward and back."""

    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    kinds: dict[str, str]  # class of the module of each call
    target: int  # the operation that computed the differentiated number
    result: float


def summary(tensors: Sequence[Tensor]) -> TensorSummary:
    """Summarize several tensors together."""
    return merged([_summary(tensor.detach()) for tensor in tensors])


def merged(parts: Sequence[TensorSummary]) -> TensorSummary:
    """Combine summaries."""
    if len(parts) == 1:
        return parts[0]
    finite = [part.total - part.nans - part.infinities for part in parts]
    added = math.fsum(part.mean * many for part, many in zip(parts, finite, strict=True))
    return TensorSummary(
        sum(part.total for part in parts),
        min(part.low for part in parts),
        max(part.high for part in parts),
        added / max(1, sum(finite)),
        math.hypot(*(part.norm for part in parts)),
        sum(part.zeros for part in parts),
        sum(part.nans for part in parts),
        sum(part.infinities for part in parts),
        counts=all(part.counts for part in parts),
    )


def _summary(tensor: Tensor) -> TensorSummary:
    counts = not (tensor.is_floating_point() or tensor.is_complex())
    return _of_numbers(tensor)._replace(counts=counts)


def _of_numbers(tensor: Tensor) -> TensorSummary:
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()  # the gradient of a sparse embedding
    flat = (torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense).flatten()
    if flat.numel() <= SMALL_TENSOR:
        return _small_summary(tuple(map(float, flat.tolist())))
    known = flat if flat.is_floating_point() else flat.double()
    total, nans, infinities = known.numel(), 0, 0
    if not math.isfinite(float(known.sum(dtype=torch.float64))):  # rare, so only then use the slower code
        nans, infinities = int(known.isnan().sum()), int(known.isinf().sum())
        known = known[known.isfinite()]
        if not known.numel():
            return TensorSummary(total, 0.0, 0.0, 0.0, 0.0, 0, nans, infinities)
    low, high = (float(end) for end in torch.aminmax(known))
    norm = float(torch.linalg.vector_norm(known, dtype=torch.float64))
    mean = float(known.sum(dtype=torch.float64)) / known.numel()
    zeros = known.numel() - int(torch.count_nonzero(known))
    return TensorSummary(total, low, high, mean, norm, zeros, nans, infinities)


def _small_summary(numbers: tuple[float, ...]) -> TensorSummary:
    """Summarize a few numbers without torch, whose calls would take longer."""
    finite = [number for number in numbers if math.isfinite(number)]
    nans = sum(number != number for number in numbers)
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    mean = math.fsum(finite) / max(1, len(finite))
    infinities = len(numbers) - len(finite) - nans
    return TensorSummary(
        len(numbers), low, high, mean, math.hypot(*finite), finite.count(0.0), nans, infinities, numbers
    )


LISTED = 3  # numbers that are listed one by one


def told(summary: TensorSummary) -> str:
    """Describe a tensor in a short phrase.

    >>> told(TensorSummary(1, 2.0, 2.0, 2.0, 2.0, 0, 0, 0, (2.0,)))
    '2'
    """
    if summary.nans:
        return f"{summary.nans:,} NaN"
    if summary.whole is not None and len(summary.whole) == 1:
        return brief(summary.whole[0])
    if summary.whole is not None and len(summary.whole) <= LISTED:
        return f"({', '.join(map(brief, summary.whole))})"
    if summary.counts:
        return f"from {brief(summary.low)} to {brief(summary.high)}"
    return f"norm {brief(summary.norm)}"


def shape_text(shape: tuple[int, ...]) -> str:
    """Return the shape before a value: `[2, 8]  `, empty for a single number."""
    return f"[{', '.join(map(str, shape))}]  " if shape else ""


def summary_text(summary: TensorSummary) -> str:
    """Describe a tensor by all its statistics."""
    if summary.whole is not None and len(summary.whole) == 1:
        return brief(summary.whole[0])
    found = [] if summary.counts else [f"norm {brief(summary.norm)}", f"mean {brief(summary.mean)}"]
    found.append(f"from {brief(summary.low)} to {brief(summary.high)}")
    counts = [(summary.zeros, "zeros"), (summary.nans, "NaN"), (summary.infinities, "infinite")]
    found += [f"{count:,} of {summary.total:,} {name}" for count, name in counts if count]
    return ", ".join(found)


def version_of(tensor: Tensor) -> int:
    """Return the version counter of a tensor, which counts in-place changes of its memory."""
    return 0 if tensor.is_inference() else tensor._version


def is_among(tensor: Tensor, tensors: Iterable[Tensor]) -> bool:
    """Whether the tensor is one of these, by identity."""
    return any(tensor is one for one in tensors)


def called(function: Any) -> str:
    """Return the usual name of a function: `add` for `Tensor.__radd__`, `index` for `x[...]`, `mT` for a property."""
    name: str = getattr(function, "__name__", "operation")
    if name == "__get__":
        owner = function.__self__  # a property in C or Python
        name = getattr(owner, "__name__", "") or getattr(getattr(owner, "fget", None), "__name__", "property")
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        if name in ("radd", "rsub", "rmul", "rdiv", "rpow", "rtruediv", "rmatmul"):
            return name[1:]
        return {"getitem": "index", "setitem": "index_put"}.get(name, name)
    return name


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor inside tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_in(inner)


def replaced(value: Any, others: Mapping[Tensor, Tensor]) -> Any:
    """Return the value with some tensors replaced."""
    if isinstance(value, Tensor):
        return others.get(value, value)
    if isinstance(value, Mapping):
        return {name: replaced(inner, others) for name, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        kind: Any = type(value)
        return kind(*(replaced(inner, others) for inner in value))
    if isinstance(value, tuple | list):
        return type(value)(replaced(inner, others) for inner in value)
    return value


MOST_OPERATIONS = 100_000
TORCH = os.path.dirname(torch.__file__)  # noqa: PTH120 - compared with names of files as they are
AGAIN = "#"  # between the name of a module and the number of its call, from the second call on


class GivenTensor(NamedTuple):
    """An input tensor of the computation, with its name."""

    name: str
    tensor: Tensor


class Recorder(TorchFunctionMode):
    """Records the computation inside the `with` as operations."""

    def __init__(self, root: nn.Module | None) -> None:
        super().__init__()
        self.ops = list[Op]()
        self.gradients = dict[int, list[TensorSummary]]()
        self.kinds = dict[str, str]()
        self.strays = list[Tensor]()  # leaves that are neither inputs nor weights
        self._handles = list[RemovableHandle]()
        self._made: Any = WeakTensorKeyDictionary()  # tensor -> its operation
        self._versions: Any = WeakTensorKeyDictionary()  # tensor -> its version at that time
        self._origins: Any = WeakTensorKeyDictionary()  # tensor without gradient -> the operations that it came from
        self._functions = dict[Any, int]()  # autograd's node -> operation
        self._path: tuple[str, ...] = ()
        self._calls, self._strangers = Counter[str](), Counter[str]()  # by module; by class outside of the root
        self._modules = dict[nn.Module, str]()
        self.weights = dict[Tensor, str]()  # by identity, because that is the hash of a tensor
        self._root = root
        if root is not None:
            self._introduce(root, "")

    def _introduce(self, module: nn.Module, prefix: str) -> None:
        """Register the names of a module, its submodules and their weights."""
        for path, inner in module.named_modules():
            self._modules.setdefault(inner, ".".join(filter(None, (prefix, path))))
        for path, weight in module.named_parameters():
            self.weights.setdefault(weight, ".".join(filter(None, (prefix, path))))

    @contextmanager
    def hearing_modules(self) -> Iterator[None]:
        """Inside the `with`, record every call of a module."""
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def release(self) -> None:
        """Remove the hooks from tensors that live on."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: nn.Module, _arguments: Any) -> None:
        if module is self._root:
            return
        if module not in self._modules:
            kind = type(module).__name__
            self._strangers[kind] += 1
            self._introduce(module, kind if self._strangers[kind] == 1 else f"{kind} {self._strangers[kind]}")
        name = self._modules[module]
        self._calls[name] += 1
        label = name if self._calls[name] == 1 else f"{name}{AGAIN}{self._calls[name]}"
        self.kinds[label] = type(module).__name__
        self._path = (*self._path, label)

    def _leave(self, module: nn.Module, _arguments: Any, _result: Any) -> None:
        if module is not self._root:
            self._path = self._path[:-1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function and record it."""
        given = kwargs or {}
        inputs = list(tensors_in((args, given)))
        before = [version_of(one) for one in inputs]
        result = func(*args, **given)
        changed = [one for one, version in zip(inputs, before, strict=True) if version_of(one) != version]
        bases = [one if one._base is None else one._base for one in changed]  # bases of views
        whole = list({id(base): base for base in bases}.values())
        found = [*whole, *(tensor for tensor in tensors_in(result) if self._is_new(tensor, changed))]
        slopes = [tensor for tensor in found if tensor.requires_grad and tensor.grad_fn is not None]
        if slopes:
            is_local = len(found) == 1 and not changed
            again = (lambda clones: func(*replaced(args, clones), **replaced(given, clones))) if is_local else None
            self._note(called(func), inputs, slopes, again, [*changed, *whole])
        elif found:
            origins = tuple(dict.fromkeys(at for one in inputs for at in self._origin(one)))
            for tensor in found:
                self._origins[tensor] = origins
        return result

    def _is_new(self, tensor: Tensor, changed: list[Tensor]) -> bool:
        return all(tensor not in known for known in (self._made, self.weights)) and not is_among(tensor, changed)

    def _keep(self, tensor: Tensor, at: int) -> None:
        """Remember the operation and the current version of a tensor."""
        self._made[tensor] = at
        self._versions[tensor] = version_of(tensor)
        if tensor.grad_fn is not None:
            self._functions[tensor.grad_fn] = at

    def _origin(self, tensor: Tensor) -> tuple[int, ...]:
        if tensor in self._made:
            return (self._made[tensor],)
        return cast(tuple[int, ...], self._origins.get(tensor, ()))

    def hand_in(self, given: GivenTensor, name: str = INPUT) -> int:
        """Return the operation that represents a tensor from outside."""
        tensor = given.tensor
        at = self._add(Op(name, given.name, self._path, (), (), (), tuple(tensor.shape), "", summary([tensor])))
        self._keep(tensor, at)
        if tensor.requires_grad:
            self._watch(tensor, at)
        return at

    def _add(self, op: Op) -> int:
        if len(self.ops) == MOST_OPERATIONS:
            raise DataError(
                f"more than {MOST_OPERATIONS:,} operations", fix="use a shorter input or a part of the model"
            )
        self.ops.append(op)
        return len(self.ops) - 1

    def _watch(self, tensor: Tensor, at: int) -> None:
        """Record the gradient of a tensor."""
        kept = self.gradients.setdefault(at, [])
        handle: RemovableHandle = cast(Any, tensor).register_hook(lambda gradient: kept.append(summary([gradient])))
        if tensor.grad_fn is None:
            self._handles.append(handle)  # the tensor lives on

    def _note(self, name: str, inputs: list[Tensor], found: list[Tensor], again: Any, changed: list[Tensor]) -> None:
        inputs = [*inputs, *(one for one in changed if one in self._made)]  # also the base of a view
        weights = tuple(dict.fromkeys(self.weights[one] for one in inputs if one in self.weights))
        sources = {one: self._maker(one, changed) for one in inputs if one.requires_grad and one not in self.weights}
        parents = tuple(dict.fromkeys(sources.values() or (at for one in inputs for at in self._origin(one))))
        slopes = self._locals(sources, found[0], again) if sources and again else ()
        shape, value = tuple(found[0].shape), summary(found)
        is_dead = value.is_zero and bool(sources) and not any(self._was_zero(one, changed) for one in inputs)
        at = self._add(Op(name, "", self._path, parents, slopes, weights, shape, _place(), value, is_dead))
        for tensor in (*found, *changed):
            self._keep(tensor, at)
        for tensor in found:
            self._watch(tensor, at)

    def _maker(self, tensor: Tensor, changed: list[Tensor]) -> int:
        """Return the operation that made an input; for one that was just changed in place, the one before."""
        was_changed = tensor in self._made and is_among(tensor, changed)
        return cast(int, self._made[tensor]) if was_changed else self.operation_of(tensor)

    def _was_zero(self, tensor: Tensor, changed: list[Tensor]) -> bool:
        if tensor in self._made and is_among(tensor, changed):
            return self.ops[cast(int, self._made[tensor])].value.is_zero
        return tensor.is_floating_point() and not bool(tensor.any())

    def operation_of(self, tensor: Tensor) -> int:
        """Return the operation that made a tensor; if it was not recorded, find it through autograd.

        This includes a tensor whose memory was changed since through another tensor.
        """
        if tensor in self._made and (tensor.grad_fn is None or self._versions[tensor] == version_of(tensor)):
            return cast(int, self._made[tensor])
        if tensor.grad_fn is None:
            self.strays.append(tensor)
            return self.hand_in(GivenTensor(f"{GIVEN} {len(self.strays)}", tensor), GIVEN)
        name = tensor.grad_fn.name().removesuffix("Backward").removesuffix("Backward0").strip("_")
        parents, weights = self._behind(tensor.grad_fn)
        at = self._add(Op(name, "", self._path, parents, (), weights, tuple(tensor.shape), "", summary([tensor])))
        self._keep(tensor, at)
        self._watch(tensor, at)
        return at

    def _behind(self, function: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the recorded operations and weights behind a node of autograd, skipping unrecorded nodes."""
        parents, weights, todo, seen = dict[int, None](), dict[str, None](), [function], {function}
        while todo:
            for inner, _ in todo.pop().next_functions:
                leaf = getattr(inner, "variable", None)
                if inner in self._functions:
                    parents[self._functions[inner]] = None
                elif leaf is not None and leaf in self.weights:
                    weights[self.weights[leaf]] = None
                elif leaf is not None:
                    parents[self.operation_of(leaf)] = None
                elif inner is not None and inner not in seen:
                    seen.add(inner)
                    todo.append(inner)
        return tuple(sorted(parents)), tuple(weights)

    def _locals(self, sources: Mapping[Tensor, int], result: Tensor, again: Any) -> tuple[float | None, ...]:
        """Return the derivative of a number by each number that it was computed from, by running the operation again.

        One of several results has no derivative, because its operation shows all results together.
        """
        if any(one.numel() != 1 for one in (*sources, result)) or len(set(sources.values())) < len(sources):
            return ()
        if any(self.ops[at].value.total != 1 for at in sources.values()):
            return ()
        clones = {one: one.detach().clone().requires_grad_() for one in sources}
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            found = torch.autograd.grad(again(clones).sum(), list(clones.values()), allow_unused=True)
        return tuple(None if slope is None else float(slope) for slope in found)


def recorded(function: Callable[[], Tensor], given: Sequence[GivenTensor], root: nn.Module | None) -> Trace:
    """Run a function that returns one number, forward and backward, and return the trace."""
    recorder = Recorder(root)
    try:
        for one in given:
            recorder.hand_in(one)
        with torch.enable_grad(), recorder.hearing_modules(), recorder:
            number = function()
        if not number.requires_grad:
            raise DataError(
                "the number does not depend on anything that has a gradient",
                fix="give float inputs, or a model with trainable weights",
            )
        target = recorder.operation_of(number)
        used = {weight: name for weight, name in recorder.weights.items() if weight.requires_grad}
        leaves = [*used, *(one.tensor for one in given if one.tensor.requires_grad), *recorder.strays]
        found = torch.autograd.grad(number, leaves, allow_unused=True)
    finally:
        recorder.release()
    gradients = recorder.gradients
    ops = tuple(
        op._replace(gradient=merged(gradients[at]) if gradients.get(at) else None) for at, op in enumerate(recorder.ops)
    )
    weights = tuple(
        Weight(name, tuple(weight.shape), summary([weight]), None if slope is None else summary([slope]))
        for (weight, name), slope in zip(used.items(), found, strict=False)
    )
    return Trace(ops, weights, recorder.kinds, target, float(number.detach().reshape(())))


def _place() -> str:
    """Return file and line of the caller: the nearest frame outside of torch and this file."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith(TORCH):
            return f"{os.path.basename(file)}:{frame.f_lineno}"  # noqa: PTH119 - thousands of times
        frame = frame.f_back
    return ""
