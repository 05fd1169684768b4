"""Selection of the attention kernel: each equals `plain` on every request it accepts, and refuses the rest.

    edges     an edge list, one score per edge
    regions   on the CPU: parts of the keys by torch's fused kernel, merged
    single    in CUDA graphs: one query for each row, without gradients
    additive  on a GPU: the additive score
    tiles     on a GPU: any mask that is a range of keys for each query
    slopes    ALiBi inside the keys, by torch's fused kernel
    blocked   a block of queries at a time: windows, long sequences
    sdpa      torch's fused kernel
    plain     the definition

`choose` takes the first kernel in the order of the device that neither refuses nor declines the request; `explain` also
tells why those before it did.
"""

from torch import Tensor

from seqloom.errors import ConfigError, KernelError, did_you_mean
from seqloom.nn.ops.attention import PLAIN, Kernel, Request
from seqloom.nn.ops.attention_additive import ADDITIVE
from seqloom.nn.ops.attention_blocked import BLOCKED
from seqloom.nn.ops.attention_edges import EDGES
from seqloom.nn.ops.attention_regions import REGIONS
from seqloom.nn.ops.attention_sdpa import SDPA
from seqloom.nn.ops.attention_single import SINGLE
from seqloom.nn.ops.attention_slopes import SLOPES
from seqloom.nn.ops.attention_tiles import TILES
from seqloom.nn.ops.kernels import Choice, named, report_choice

KERNELS: tuple[Kernel, ...] = (EDGES, REGIONS, SINGLE, ADDITIVE, TILES, SLOPES, BLOCKED, SDPA, PLAIN)
ORDERS: dict[str, tuple[Kernel, ...]] = {
    "cpu": (EDGES, REGIONS, BLOCKED, SDPA, PLAIN),
    # Causal ALiBi on an H200, 12 heads of 64 numbers in bfloat16, forward and backward: 8 rows of 4,096 elements, tiles
    # 2.87 ms and 0.24 GiB, slopes 3.21 ms and 0.41 GiB; 2 rows of 16,384 elements, 10.0 and 10.55 ms.
    # float16 was not measured.
    "cuda": (EDGES, SINGLE, ADDITIVE, TILES, SLOPES, BLOCKED, SDPA, PLAIN),
}
ANYWHERE = (EDGES, BLOCKED, SDPA, PLAIN)  # the order on other devices


def choose(request: Request) -> Kernel:
    """Return the kernel for a request: the one named by the user, or the first that accepts it."""
    if (name := named("attention")) is not None:
        return _named(name, request)
    return next(kernel for kernel in order(request) if reason_against(kernel, request) is None)


def explain(request: Request) -> Choice:
    """Return the name of the same kernel, and why those before it in the order of the device were not chosen."""
    kernel, refused = choose(request), dict[str, str]()
    for other in order(request) if named("attention") is None else ():
        if (reason := reason_against(other, request)) is None:
            break
        refused[other.name] = reason
    return Choice(kernel.name, refused)


def order(request: Request) -> tuple[Kernel, ...]:
    """Return the kernels in the order in which they are tried on the device of a request."""
    return ORDERS.get(request.query.device.type, ANYWHERE)


def reason_against(kernel: Kernel, request: Request) -> str | None:
    """Return why a kernel is not chosen for a request: it cannot compute it, or another is better."""
    return kernel.refuses(request) or kernel.declines(request)


def _named(name: str, request: Request) -> Kernel:
    kernels = {kernel.name: kernel for kernel in KERNELS}
    if name not in kernels:
        raise ConfigError(f"there is no attention kernel '{name}'", fix=did_you_mean(name, kernels))
    if reason := kernels[name].refuses(request):
        raise KernelError(f"the attention kernel '{name}' cannot be used here: {reason}", fix="choose another kernel")
    return kernels[name]


def attend(request: Request) -> Tensor:
    """Compute attention [B,H,T,D] with the chosen kernel."""
    report_choice("attention", lambda: explain(request))
    return choose(request).run(request)
