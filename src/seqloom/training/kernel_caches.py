"""How many kernels a process keeps that computes on the CPU.

    heap    ■■■■■■■■ k ■■■■■ k ■■■■■■■■■■■ k ■■■■        ■ of one step, freed behind it    k kept, made for one shape

oneDNN, and torch's layer above it, make a kernel for each shape that a convolution or an LSTM meets, and each keeps the
last 1,024. Texts have a new shape at nearly every step. What is kept lies between the large tensors of the steps, so
freed memory never becomes whole again: a process grows to three times what a step needs. With few of them it stays as
it is. A step of any convolutional recipe takes 27, so where shapes come again nothing is made twice.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

CAPACITIES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


@contextmanager
def few_kernels() -> Iterator[None]:
    """A block in which a process that makes its first kernel keeps few of them; what somebody has set stays."""
    mine = {name: count for name, count in CAPACITIES.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
