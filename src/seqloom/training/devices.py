"""Device and precision of a run, the processes that train together, and what happens when memory runs out.

auto        a CUDA device, else mps (Apple), else the CPU
precision   auto: bf16 where the device supports it (CUDA capability 8 and above), else float32
            bf16, fp16: autocast; weights, moments and sums stay float32
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
from seqloom.training.estimate import Processor
from seqloom.training.state import Environment
from seqloom.version import __version__

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
AnyPrecision = Literal["auto", "float32", "bf16", "fp16"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LOCAL_RANK = "LOCAL_RANK"  # torchrun's number of a process on its machine, from 0
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # without it matrix products on CUDA are refused as not deterministic


class Device(NamedTuple):
    """A device and a precision, with messages that say why they were chosen."""

    torch: torch.device
    precision: Precision = "float32"
    messages: tuple[str, ...] = ()

    def mixed(self) -> AbstractContextManager[object]:
        """A context that computes matrix products in this precision (autocast); it does nothing for float32."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.torch.type, dtype=DTYPES[self.precision])


def choose_device(name: DeviceName, precision: AnyPrecision = "auto", deterministic: bool = False) -> Device:
    """Choose the device and precision. ConfigError with the reason if a requested one is not available."""
    device, why = _device(name)
    chosen, because = _precision(precision, device)
    reasons = [f" ({reason})" if reason else "" for reason in (why, because)]  # an explicit choice needs none
    messages = [f"device: {describe(device)}{reasons[0]}, precision: {chosen}{reasons[1]}"]
    if deterministic:
        messages.append("only deterministic kernels are used: slower, and some layers may not support it")
    return Device(device, chosen, tuple(messages))


# The processes that train one model together, as the training loop sees them. `training.distributed` implements this
# for several processes.

Result = TypeVar("Result")


class Ranks(Protocol):
    """The processes that take every step together, each with its share of the examples."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def count(self) -> int:
        """The number of processes."""

    @property
    def sharded(self) -> bool:
        """Whether each process keeps only a part of the weights."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""

    def share(self, data: bytes) -> bytes:
        """The data of process 0, on all processes."""

    def gather(self, data: bytes) -> list[bytes]:
        """The data of all processes, on each of them, by rank."""

    def wait(self, what: str) -> None:
        """Wait for all processes."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module, wrapped so that a backward pass sums (or shards) gradients over processes."""

    def apart(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """A context without gradient synchronization: for all backward passes of a step but the last."""

    def whole(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """A context in which every process has all weights, for validation and saving."""


class Alone:
    """A single process."""

    rank, count, sharded = 0, 1, False

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def share(self, data: bytes) -> bytes:
        return data

    def gather(self, data: bytes) -> list[bytes]:
        return [data]

    def wait(self, what: str) -> None:
        """Return immediately."""

    def wrap(self, module: nn.Module) -> nn.Module:
        return module

    def apart(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def whole(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()


def agreed(ranks: Ranks, work: Callable[[], Result]) -> tuple[Result | None, str]:
    """The result of `work` and an empty text; or None and the disk error of the first process that failed.

    All processes get the same answer, so that none waits for one that has failed.

    >>> agreed(Alone(), lambda: 3)
    (3, '')
    """
    result, problem = None, ""
    try:
        result = work()
    except DurableError as error:
        problem = str(error)
    first = next(filter(None, ranks.gather(problem.encode())), b"").decode()
    return (None, first) if first else (result, "")


def environment(device: Device, ranks: Ranks) -> Environment:
    """What bit-identical results depend on besides the configuration."""
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
    """The name of a device: "cpu", "cuda: NVIDIA H200", "mps"."""
    return f"cuda: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type


def own_gpu() -> int:
    """The GPU of this process: its local rank under torchrun, else the current GPU.

    It can be called before the process group exists.
    """
    if LOCAL_RANK not in os.environ:
        return torch.cuda.current_device()
    number, count = int(os.environ[LOCAL_RANK]), torch.cuda.device_count()
    if number >= count:
        raise ConfigError(
            f"local rank {number} has no GPU of its own: this machine has {count}",
            fix="start one process per GPU, or use --device cpu",
        )
    return number


def is_launched() -> bool:
    """Whether torchrun or `--processes` started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def machine_of(device: Device) -> Processor | None:
    """The machine that defaults are fitted to; None for a GPU, which is fast, and for several processes.

    Processes may be on different machines, but must all choose the same.
    """
    return None if device.torch.type != "cpu" or is_launched() else Processor(torch.get_num_threads())


@contextmanager
def deterministic(config: TrainingConfig) -> Iterator[None]:
    """A context in which torch uses only deterministic kernels, if the configuration asks for it.

    It restores torch's settings at the end.
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
        raise ConfigError(f"--device cuda, but {_no_cuda()}", fix="use --device cpu or auto")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("--device mps, but this machine has no Apple GPU", fix="use --device cpu or auto")
    return _named(name), ""


def _named(name: str) -> torch.device:
    """The device with its index: each of several processes has a GPU of its own."""
    return torch.device(name, own_gpu()) if name == "cuda" else torch.device(name)


def _no_cuda() -> str:
    if torch.version.cuda is None:
        return "this build of torch has no CUDA"
    return "torch finds no CUDA device: no GPU, no driver, or CUDA_VISIBLE_DEVICES hides it"


def _precision(wanted: AnyPrecision, device: torch.device) -> tuple[Precision, str]:
    if wanted == "auto":
        if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 8:
            return "bf16", "supported by this GPU"
        return "float32", "the fastest precision here"
    if wanted != "float32" and device.type == "cpu":
        own = torch.ops.mkldnn  # whether the CPU has instructions for this precision
        native = own._is_mkldnn_bf16_supported if wanted == "bf16" else own._is_mkldnn_fp16_supported
        if not native():
            return wanted, "slower than float32: this CPU has no instructions for it"
    return wanted, ""


# What happens when memory runs out:
#
# one process         the step is repeated with twice as many micro-batches; the checkpoint remembers how many
# several processes   the others are in the middle of the same step and cannot repeat it: all stop, RUN/memory.json
#                     remembers how many micro-batches a step needs, and the same command resumes with them
# one row             an error: there is nothing left to halve

# Messages of the CPU allocator (c10/core/impl/alloc_cpu.cpp), which has no error class of its own.
HOST = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")


class OutOfMemoryError(SeqloomError):
    """Not even one row fits into memory."""


class HalvedError(RepeatError):
    """A step does not fit into memory on one of several ranks; resumed, it uses `micro_batches` micro-batches."""

    def __init__(self, problem: str, *, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        fix = (
            f"run the same command again: it resumes with {micro_batches} micro-batches per step and computes the "
            "same gradient"
        )
        super().__init__(problem, fix=fix)


class MemoryFit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many micro-batches a step needs to fit into memory; the content of RUN/memory.json."""

    micro_batches: Annotated[int, msgspec.Meta(ge=1)] = 1

    @property
    def messages(self) -> tuple[str, ...]:
        """A message about it."""
        if self.micro_batches == 1:
            return ()
        return (
            f"memory ran out before: each step now uses {self.micro_batches} micro-batches, with the same gradient",
        )


def fitting(folder: Path) -> MemoryFit:
    """Return the saved number of micro-batches; one if memory never ran out."""
    path = folder / RunFile.MEMORY
    try:
        return msgspec.json.decode(path.read_bytes(), type=MemoryFit)
    except FileNotFoundError:
        return MemoryFit()
    except (OSError, msgspec.DecodeError) as error:
        raise DamagedError(
            f"{path}: expected the number of micro-batches per step ({error})",
            fix="remove the file; the run then finds the number again",
        ) from error


@contextmanager
def remembering(folder: Path) -> Iterator[None]:
    """A context that writes RUN/memory.json if memory runs out in it on this rank."""
    try:
        yield
    except HalvedError as error:
        write_file(folder / RunFile.MEMORY, msgspec.json.encode(MemoryFit(error.micro_batches)))
        raise


def ran_out(error: BaseException) -> bool:
    """Whether an error means that memory ran out: on a device, in torch on the host, or in Python."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in HOST)


def release(device: torch.device) -> None:
    """Release cached memory that is not in use."""
    gc.collect(1)  # the garbage of the failed step is young
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if device.type == "mps":
        torch.mps.empty_cache()
