"""Where to compute: the device and the precision, chosen once and said aloud, and the processes that do it together.

auto        a CUDA device, else Apple's (mps), else the processor
precision   auto: bf16 where the device has units for it (CUDA, capability 8 and above), else float32
            bf16, fp16: as asked; weights, moments and sums stay float32 (autocast)
"""

import gc
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import torch
from torch import Tensor, nn

from seqloom.config.training import Precision, TrainingConfig
from seqloom.errors import ConfigError, DamagedError, DurableError, RepeatError, SeqloomError
from seqloom.files.disk import write_file
from seqloom.files.layouts import RunFile
from seqloom.training.state import Environment
from seqloom.version import __version__

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
AnyPrecision = Literal["auto", "float32", "bf16", "fp16"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LOCAL_RANK = "LOCAL_RANK"  # torchrun's number of a process on its machine, from 0
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # without it matrix products on CUDA are refused as not deterministic


class Device(NamedTuple):
    """A device and a precision, and one sentence for each about why."""

    torch: torch.device
    precision: Precision = "float32"
    said: tuple[str, ...] = ()

    def mixed(self) -> AbstractContextManager[object]:
        """A block in which matrix products are computed in the precision; nothing changes for float32."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.torch.type, dtype=DTYPES[self.precision])


def choose_device(name: DeviceName, precision: AnyPrecision = "auto", deterministic: bool = False) -> Device:
    """The device and precision for a request; ConfigError with the reason where it cannot be met."""
    device, why = _device(name)
    chosen, because = _precision(precision, device)
    reasons = [f" ({reason})" if reason else "" for reason in (why, because)]  # what was asked for needs none
    said = [f"computing on {describe(device)}{reasons[0]} in {chosen}{reasons[1]}"]
    if deterministic:
        said.append("only kernels whose sums do not depend on timing are used: slower, and some layers may be refused")
    return Device(device, chosen, tuple(said))


# The processes that train one model together, as the loop sees them. Alone is the usual case, and costs nothing;
# `training.distributed` has those that speak to one another.

Result = TypeVar("Result")


class Ranks(Protocol):
    """Several processes that take every step together, each with its share of the examples."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def sharded(self) -> bool:
        """Whether each process keeps a part of the weights only."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""

    def share(self, data: bytes) -> bytes:
        """What process 0 gave, on all."""

    def gather(self, data: bytes) -> list[bytes]:
        """What each process gave, on all, in the order of their numbers."""

    def wait(self, what: str) -> None:
        """Wait until all have come here."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module such that a backward pass sums (or shards) gradients over processes."""

    def apart(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """A block whose backward passes stay in this process: all but the last of a step."""

    def whole(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """A block in which every process has all weights, as validation and shipping need them."""


class Alone:
    """One process: it has nobody to wait for, and nothing to hold back."""

    rank, count, sharded = 0, 1, False

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def share(self, data: bytes) -> bytes:
        return data

    def gather(self, data: bytes) -> list[bytes]:
        return [data]

    def wait(self, what: str) -> None:
        """Nobody to wait for."""

    def wrap(self, module: nn.Module) -> nn.Module:
        return module

    def apart(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def whole(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()


def agreed(ranks: Ranks, work: Callable[[], Result]) -> tuple[Result | None, str]:
    """What work on a disk gave here, or None and what the disk said to the first process that failed.

    Whoever went on while another process has failed would wait for it in vain.

    >>> agreed(Alone(), lambda: 3)
    (3, '')
    """
    result, problem = None, ""
    try:
        result = work()
    except DurableError as error:
        problem = str(error)
    told = next(filter(None, ranks.gather(problem.encode())), b"").decode()
    return (None, told) if told else (result, "")


def environment(device: Device, ranks: Ranks) -> Environment:
    """What bit-equality depends on besides the configuration."""
    return Environment(
        seqloom=__version__,
        torch=str(torch.__version__),
        python=platform.python_version(),
        device=describe(device.torch),
        capability=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        ranks=ranks.count,
        sharded=ranks.sharded,
    )


def describe(device: torch.device) -> str:
    """The device in a few words: "cpu", "cuda: NVIDIA H200", "mps"."""
    return f"cuda: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type


def own_gpu() -> int:
    """The number of this process's GPU: that of the process on its machine under torchrun, else the current one.

    It does not matter whether the processes have met already, so nobody can ask for it too early.
    """
    if LOCAL_RANK not in os.environ:
        return torch.cuda.current_device()
    number, count = int(os.environ[LOCAL_RANK]), torch.cuda.device_count()
    if number >= count:
        raise ConfigError(
            f"process {number} of this machine has no GPU of its own, there are {count}",
            fix="start one process for each GPU, or take --device cpu",
        )
    return number


def is_launched() -> bool:
    """Whether torchrun, or our launcher, started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def deterministic(config: TrainingConfig) -> Iterator[None]:
    """A block in which torch refuses kernels whose sums depend on timing, if the configuration asks for it.

    Afterwards everything is as it was.
    """
    if not config.deterministic:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, workspace = torch.backends.cudnn.benchmark, os.environ.get(CUBLAS)
    os.environ.setdefault(CUBLAS, ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = benchmark
        if workspace is None:
            os.environ.pop(CUBLAS, None)


def _device(name: DeviceName) -> tuple[torch.device, str]:
    if name == "auto" and torch.cuda.is_available():
        return _named("cuda"), "the fastest device here"
    if name == "auto" and torch.backends.mps.is_available():
        return _named("mps"), f"the fastest device here; {_no_cuda()}"
    if name == "auto":
        return _named("cpu"), _no_cuda()
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"the device cuda was asked for, but {_no_cuda()}", fix="take --device cpu or auto")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("the device mps was asked for, but this is no Mac with one", fix="take --device cpu or auto")
    return _named(name), ""


def _named(name: str) -> torch.device:
    """The device with its number: with several processes each has a GPU of its own."""
    return torch.device(name, own_gpu()) if name == "cuda" else torch.device(name)


def _no_cuda() -> str:
    if torch.version.cuda is None:
        return "this build of torch has no CUDA"
    return "torch finds no CUDA device: no card, no driver, or CUDA_VISIBLE_DEVICES hides it"


def _precision(asked: AnyPrecision, device: torch.device) -> tuple[Precision, str]:
    if asked == "auto":
        if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 8:
            return "bf16", "the device has units for it"
        return "float32", "nothing narrower is faster here"
    if asked != "float32" and device.type == "cpu":
        own = torch.ops.mkldnn  # whether the processor multiplies matrices in a narrow precision by itself
        native = own._is_mkldnn_bf16_supported if asked == "bf16" else own._is_mkldnn_fp16_supported
        if not native():
            return asked, "this processor has no instructions for it, so it is slower than float32"
    return asked, ""


# What happens when memory runs out: which errors mean it, how it is cured, and what a run remembers of it.
#
# one process         the step is computed again in twice as many pieces; the checkpoint knows how many
# several processes   the others are in the middle of the same step and cannot go back: all end, RUN/memory.json
#                     says in how many pieces a step fits, and the same command goes on so
# one row too many    an error: there is nothing left to halve

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
        write_file(folder / RunFile.MEMORY, msgspec.json.encode(Fitting(error.pieces)))
        raise


def ran_out(error: BaseException) -> bool:
    """Whether an error is about memory: of a device, of torch on the host, or of Python."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in HOST)


def release(device: torch.device) -> None:
    """Give back memory that nobody uses, in whole blocks."""
    gc.collect(1)  # what the failed step left is young
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if device.type == "mps":
        torch.mps.empty_cache()
