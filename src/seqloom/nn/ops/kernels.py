"""Selecting kernels by name, and observing which are chosen."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib.util import find_spec
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from seqloom.errors import ConfigError, did_you_mean


class Choice(NamedTuple):
    """The kernel that computes an operator, and why kernels that would have been preferred cannot."""

    kernel: str
    refused: Mapping[str, str]  # kernel -> reason


TRITON_INSTALLED = find_spec("triton") is not None  # looked up here: compilers cannot trace a search for packages
OPERATORS = ("attention", "linear_attention", "recurrence", "convolution", "cross_entropy", "linear")

_named: ContextVar[Mapping[str, str]] = ContextVar("kernels named by the user", default={})  # noqa: B039 never written to


@contextmanager
def using(**kernels: str) -> Iterator[None]:
    """Use exactly these kernels in the block: `using(attention="sdpa", recurrence="plain")`."""
    for operator in kernels:
        if operator not in OPERATORS:
            raise ConfigError(f"there is no operator '{operator}'", fix=did_you_mean(operator, OPERATORS))
    token = _named.set({**_named.get(), **kernels})
    try:
        yield
    finally:
        _named.reset(token)


@contextmanager
def plainly() -> Iterator[None]:
    """Use the plain specification of every operator in the block: slow and readable, the reference for tests."""
    with using(**dict.fromkeys(OPERATORS, "plain")):
        yield


def named(operator: str) -> str | None:
    """Return the kernel that the user named for an operator, or None to choose freely.

    Compiled code keeps the kernels that were named when it was compiled.
    """
    return _named.get().get(operator)


# Compilers cannot read context variables. `torch.compiler.assume_constant_result` does the same, but imports the
# compiler, which would take two seconds of every command.
named._dynamo_marked_constant = True  # type: ignore[attr-defined]


_is_recorded: ContextVar[bool] = ContextVar("what runs is recorded", default=False)


@contextmanager
def recorded_for_replay(recorded: bool = True) -> Iterator[None]:
    """What runs in the block is recorded, or runs once before, so that its kernels are compiled.

    It is recorded as a CUDA graph, or on a CPU as calls that are replayed (`nn/replay.py`).
    """
    token = _is_recorded.set(recorded)
    try:
        yield
    finally:
        _is_recorded.reset(token)


def is_recorded() -> bool:
    """Whether what runs is recorded, to be replayed by a CUDA graph or on a CPU.

    Then launches are nearly free: from Python, a small kernel costs more than it saves. Generation of one text on an
    H200, without CUDA graphs: 138 tokens a second without the kernels of Triton, 109 with them. Compiled code keeps
    the answer of the time when it was compiled.
    """
    return _is_recorded.get()


is_recorded._dynamo_marked_constant = True  # type: ignore[attr-defined]


P = ParamSpec("P")
R = TypeVar("R")


def on_its_device(run: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Tensor, P], R]:
    """The same function with the device of its first tensor as the current one, on which Triton launches kernels."""

    @wraps(run)
    def guarded(first: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not first.is_cuda:
            return run(first, *args, **kwargs)
        with torch.cuda.device(first.device):
            return run(first, *args, **kwargs)

    return guarded


KernelObserver = Callable[[str, Choice], None]  # the operator, and its kernel
_observer: ContextVar[KernelObserver | None] = ContextVar("observer of chosen kernels", default=None)


@contextmanager
def observing(observer: KernelObserver) -> Iterator[None]:
    """Call `observer` in the block whenever an operator is computed."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def report_choice(operator: str, choice: Callable[[], Choice]) -> None:
    """Tell the observer, if there is one, which kernel computes an operator; the choice is computed only then."""
    if torch.compiler.is_compiling():  # compilers cannot read context variables
        return
    observer = _observer.get()
    if observer is not None:
        observer(operator, choice())


def triton_refuses(device: torch.device) -> str | None:
    """Return why kernels written in Triton cannot run on a device; with TRITON_INTERPRET=1 they run on the CPU."""
    if not TRITON_INSTALLED:
        return "it needs the package triton, which is not installed"
    if device.type == "cuda" or triton_interpreted():
        return None
    return f"it runs on CUDA GPUs, not on the device {device.type}"


def triton_interpreted() -> bool:
    """Whether Triton interprets its kernels instead of compiling them; it reads the variable when they are defined."""
    return os.environ.get("TRITON_INTERPRET") == "1"
