"""What happens when memory runs out: which errors mean it, how it is cured, and what a run remembers of it.

one process         the step is computed again in twice as many pieces; the checkpoint knows how many
several processes   the others are in the middle of the same step and cannot go back: all end, RUN/memory.json
                    says in how many pieces a step fits, and the same command goes on so
one row too many    an error: there is nothing left to halve
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import torch

from seqloom import files
from seqloom.errors import DamagedError, RepeatError, SeqloomError
from seqloom.files.layouts import RunFile

# What the allocator of the host says (c10/core/impl/alloc_cpu.cpp); it has no class of its own.
HOST = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")


class OutOfMemoryError(SeqloomError):
    """A step does not fit into memory, not even one row of it."""


class HalvedError(RepeatError):
    """A step does not fit into memory on one of several ranks; the run goes on in so many `pieces`."""

    def __init__(self, problem: str, *, pieces: int) -> None:
        self.pieces = pieces
        super().__init__(problem, fix=f"repeat the command: it goes on in {pieces} pieces, with the same gradient")


class Fitting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In how many pieces a step of a run is known to fit into memory."""

    pieces: Annotated[int, msgspec.Meta(ge=1)] = 1

    @property
    def said(self) -> tuple[str, ...]:
        """What people should know about it."""
        if self.pieces == 1:
            return ()
        return (f"memory ran out before: each step is computed in {self.pieces} pieces; the gradient is the same",)


def fitting(folder: Path) -> Fitting:
    """What a run remembers; one piece if its memory never ran out."""
    path = folder / RunFile.MEMORY
    try:
        return msgspec.json.decode(path.read_bytes(), type=Fitting)
    except FileNotFoundError:
        return Fitting()
    except (OSError, msgspec.DecodeError) as error:
        raise DamagedError(
            f"{path}: expected in how many pieces a step fits into memory, found something else ({error})",
            fix="remove it: the run finds out again",
        ) from error


@contextmanager
def remembering(folder: Path) -> Iterator[None]:
    """A block that ends with a word in the run folder if memory runs out in it on this rank."""
    try:
        yield
    except HalvedError as error:
        files.write_file(folder / RunFile.MEMORY, msgspec.json.encode(Fitting(error.pieces)))
        raise


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
