"""Naming a kernel: whoever names one gets that one, or a refusal; and how many a process keeps."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from seqloom.errors import ConfigError, did_you_mean

OPERATORS = ("attention", "linear_attention", "recurrence", "convolution")

_named: ContextVar[Mapping[str, str]] = ContextVar("kernels named by the user", default={})  # noqa: B039 never written to


@contextmanager
def using(**kernels: str) -> Iterator[None]:
    """Inside the `with`, each operator named uses just that kernel: `using(attention="sdpa", recurrence="plain")`."""
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
    """Inside the `with`, every operator is its own specification: slow, readable, and the oracle of the others."""
    with using(**dict.fromkeys(OPERATORS, "plain")):
        yield


def named(operator: str) -> str | None:
    """The kernel that the user named for an operator, or None to choose freely."""
    return _named.get().get(operator)


# Kernels that oneDNN, and torch's layer above it, keep: else 1,024 each, one for each shape that they meet.
CAPACITIES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


@contextmanager
def few_kernels() -> Iterator[None]:
    """A block in which a process that computes on the CPU and makes its first kernel keeps few of them.

        heap    ■■■■■■■■ k ■■■■■ k ■■■■■■■■■■■ k ■■■■        ■ of one step, freed behind it    k kept, for one shape

    Texts have a new shape at nearly every step. What is kept lies between the large tensors of the steps, so freed
    memory never becomes whole again: a process grows to three times what a step needs. With few of them it stays as it
    is. A step of any convolutional recipe takes 27, so where shapes come again nothing is made twice. What somebody has
    set stays.
    """
    mine = {name: count for name, count in CAPACITIES.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
