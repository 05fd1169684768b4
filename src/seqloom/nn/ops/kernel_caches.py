"""Limiting how many kernels a process caches. This module does not import torch: the command line needs it first."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

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
