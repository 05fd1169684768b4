"""Whether an error says that memory ran out, and the error for people when halving does not help any more."""

import gc

import torch

from seqloom.errors import SeqloomError

# What the allocator of the host says (c10/core/impl/alloc_cpu.cpp); it has no class of its own.
HOST = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")


class OutOfMemoryError(SeqloomError):
    """A step does not fit into memory; `pieces` says with how many pieces to try again."""

    def __init__(self, problem: str, *, pieces: int, fix: str) -> None:
        self.pieces = pieces
        super().__init__(problem, fix=fix)


def ran_out(error: BaseException) -> bool:
    """Whether an error is about memory: of a device, of torch on the host, or of Python."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in HOST)


def release(device: torch.device) -> None:
    """Nothing; memory that nobody uses is given back, in whole blocks."""
    gc.collect(1)  # what the failed step left is young
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if device.type == "mps":
        torch.mps.empty_cache()
