"""Selecting kernels by name, observing which are chosen, and limiting how many kernels a process caches."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from seqloom.errors import ConfigError, did_you_mean


class Choice(NamedTuple):
    """The kernel that computes an operator, and why kernels that would have been preferred cannot."""

    kernel: str
    refused: Mapping[str, str]  # kernel -> reason


OPERATORS = ("attention", "linear_attention", "recurrence", "convolution")

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
    """Return the kernel that the user named for an operator, or None to choose freely."""
    return _named.get().get(operator)


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
    observer = _observer.get()
    if observer is not None:
        observer(operator, choice())


# Capacity of the kernel caches of oneDNN and torch; the default is 1,024 each, with one kernel per shape.
CAPACITIES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


@contextmanager
def few_kernels() -> Iterator[None]:
    """Limit the kernel caches while a process on the CPU creates its first kernel.

        heap    ■■■■■■■■ k ■■■■■ k ■■■■■■■■■■■ k ■■■■        ■ of one step, freed after it    k cached, for one shape

    Texts have a new shape at nearly every step. Cached kernels are allocated between the large tensors of the steps, so
    freed memory is fragmented, and a process grows to three times what a step needs. With a small cache it does not
    grow. A step of any convolutional recipe needs 27 kernels, so repeated shapes still hit the cache. Variables that
    the user has set are not changed.
    """
    mine = {name: count for name, count in CAPACITIES.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
