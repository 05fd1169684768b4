"""Pauses in long work: whoever has asked for a text may do something else meanwhile, or stop it.

    with pausing(between):      # called before each step of every `write` and every search by vectors inside
        model.translate(texts)

A server tells that it is alive, goes on with other texts, and stops one that nobody waits for any more. To stop it,
`between` raises an error, which ends the work and reaches the caller.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_between: ContextVar[Callable[[], None] | None] = ContextVar("between", default=None)


@contextmanager
def pausing(between: Callable[[], None] | None) -> Iterator[None]:
    """Call `between` before each step of the work inside; None: no longer."""
    before = _between.set(between)
    try:
        yield
    finally:
        _between.reset(before)


def pause() -> None:
    """Let others do what they want to do. Inside, there are no pauses."""
    between = _between.get()
    if between is not None:
        with pausing(None):
            between()
