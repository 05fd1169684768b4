"""One function for every graph: of an expression, of a function of tensors, of a model."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.inspect.attribution.goals import chosen_goal
from seqloom.inspect.graphs.expression import ExpressionGraph, expression_graph
from seqloom.inspect.graphs.model import ModelGraph, with_steps
from seqloom.inspect.graphs.recording import GivenTensor, Trace, recorded, replaced, tensors_in
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject

ANSWER = "answer"  # the part of a graph that stands behind the model


@overload
def graph(of: str, inputs: Mapping[str, float]) -> ExpressionGraph: ...


@overload
def graph(of: Callable[..., Any], inputs: Any, *, number: Callable[[Any], Tensor] | None = None) -> ModelGraph: ...


def graph(of: Any, inputs: Any, *, number: Callable[[Any], Tensor] | None = None) -> ExpressionGraph | ModelGraph:
    """The graph of an expression, a function or a model at these inputs: values forward, gradients back.

    `inputs` is what it is called with: a mapping by name, a tuple or list by place, anything else as the one argument;
    numbers become float64 tensors. The gradients are those of one number: `number` makes it of the result, else a
    result of one number is it, else the largest number of the result is. A model is looked at in evaluation mode and
    left as it was; `model.loss` and other methods of a model are functions whose parts have the names of the model.
    """
    if isinstance(of, str):
        return expression_graph(of, inputs)
    if not callable(of):
        raise DataError(f"a graph was asked of a {type(of).__name__}", fix="give an expression, a function or a model")
    owner = of if isinstance(of, nn.Module) else getattr(of, "__self__", None)
    root = owner if isinstance(owner, nn.Module) else None
    given, arguments, named = _arguments(of, inputs)
    title = f"Graph of {type(root).__name__ if root is not None else getattr(of, '__name__', 'a function')}"

    def run() -> Tensor:
        return _one_number(of(*arguments, **named), number)

    with resting(root):
        return ModelGraph(title=title, trace=with_steps(recorded(run, given, root)))


def answer_graph(
    subject: Subject, reading: Reading, *, answer: str | int | None = None, at: int | str | None = None
) -> ModelGraph:
    """The graph of the score of one answer: in row `at`, or the last; `answer`, or what the model says there."""
    goal = chosen_goal(subject, reading, answer=answer, at=len(reading.rows) - 1 if at is None else at)
    inputs = _ready(reading.inputs)

    def run() -> Tensor:
        return goal.of(scores(subject, inputs))[0]

    with resting(subject.model):
        trace = with_steps(_answered(recorded(run, list(_named("", inputs)), subject.model)))
    return ModelGraph(title=f"Graph of {goal.name}", trace=trace)


def _answered(trace: Trace) -> Trace:
    """The same with what stands behind the model, how one number is taken out of its scores, as a part of its own."""
    last = max((at for at, op in enumerate(trace.ops) if op.path), default=len(trace.ops))
    ops = [op._replace(path=(ANSWER,)) if at > last else op for at, op in enumerate(trace.ops)]
    return trace._replace(ops=tuple(ops))


@contextmanager
def resting(root: nn.Module | None) -> Iterator[None]:
    """Inside the `with`, a model is in evaluation mode; afterwards every part of it is in the mode that it was in."""
    modes = {} if root is None else {module: module.training for module in root.modules()}
    for module in modes:
        # cuDNN's recurrences go back only in training mode, which without dropout computes the same
        module.training = isinstance(module, nn.RNNBase) and module.dropout == 0
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _arguments(of: Any, inputs: Any) -> tuple[list[GivenTensor], tuple[Any, ...], dict[str, Any]]:
    """The tensors that are handed in, by name, and the arguments to call with: those tensors, ready for gradients."""
    if isinstance(inputs, Mapping):
        values, names = list(inputs.values()), [str(name) for name in inputs]
    elif isinstance(inputs, tuple | list) and not hasattr(inputs, "_fields"):
        values, names = list(inputs), _parameters(of)
    else:
        values, names = [inputs], _parameters(of)
    names += [f"input {at}" for at in range(len(names), len(values))]
    ready = [_ready(value) for value in values]
    given = [one for name, value in zip(names, ready, strict=False) for one in _named(name, value)]
    if isinstance(inputs, Mapping):
        return given, (), dict(zip(names, ready, strict=True))
    return given, tuple(ready), {}


def _parameters(of: Any) -> list[str]:
    function = of.forward if isinstance(of, nn.Module) else of
    try:
        return [one.name for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    except (TypeError, ValueError):
        return []


def _ready(value: Any) -> Any:
    """The same, its tensors of floats as leaves of their own, whose gradients can be heard."""
    if isinstance(value, bool | int | float):
        return torch.tensor(float(value), dtype=torch.float64, requires_grad=True)
    fresh = {one: one.detach().requires_grad_() for one in tensors_in(value) if one.is_floating_point()}
    return replaced(value, fresh)


def _named(name: str, value: Any) -> Iterator[GivenTensor]:
    """The tensors inside an argument, by the names of the fields around them."""
    if isinstance(value, Tensor):
        yield GivenTensor(name or "input", value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named(f"{name}[{key}]", inner)
    elif isinstance(value, tuple | list):
        fields = getattr(value, "_fields", None)
        for at, inner in enumerate(value):
            yield from _named(f"{name}.{fields[at]}".lstrip(".") if fields else f"{name}[{at}]", inner)


def _one_number(result: Any, number: Callable[[Any], Tensor] | None) -> Tensor:
    if number is not None:
        found = number(result)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise DataError("`number` gave something else than one number", fix="end it with .sum() or .mean()")
        return found
    floats = [one for one in tensors_in(result) if one.is_floating_point()]
    if not floats:
        raise DataError(
            f"the result is a {type(result).__name__} without a tensor of floats",
            fix="say what number is meant: number=lambda result: ...",
        )
    return floats[0] if floats[0].numel() == 1 else floats[0].max()
