"""The vectors that the first layer reads: heard, or replaced by others.

Attributions need the gradient at the vectors of tokens, not at their numbers; neighbours need them as they are before
any context. The input of every stack is a module, whatever it reads, so a hook on it serves all families.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from seqloom.types import Padded

Change = Callable[[int, Padded], Padded]  # (how many times it was called before, its vectors) -> those to go on with


@contextmanager
def changed_vectors(model: nn.Module, stack: str, change: Change) -> Iterator[None]:
    """Inside the `with`, a stack goes on with what `change` makes of the vectors of its input."""
    calls = 0

    def hook(_module: nn.Module, _arguments: Any, vectors: Padded) -> Padded:
        nonlocal calls
        calls += 1
        return change(calls - 1, vectors)

    handle = input_of(model, stack).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def input_of(model: nn.Module, stack: str) -> nn.Module:
    """The module that turns what a stack reads into vectors."""
    found = model.get_submodule(stack).input
    assert isinstance(found, nn.Module), "every stack reads through a module"
    return found
