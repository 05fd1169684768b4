"""Naming a kernel: whoever names one gets that one, or a refusal."""

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
