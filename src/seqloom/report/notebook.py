"""Notebooks: whether the code runs in one, and its function to display a result."""

import sys
from collections.abc import Callable
from typing import Any

KERNEL = "ZMQInteractiveShell"  # the shell of Jupyter kernels, and a base class of Colab's


def notebook_display() -> Callable[..., Any] | None:
    """Return `IPython.display.display` in a notebook, and None elsewhere. IPython is never imported by this.

    >>> notebook_display() is None
    True
    """
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    if not any(one.__name__ == KERNEL for one in type(shell).__mro__):
        return None
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    found: Callable[..., Any] = display
    return found
