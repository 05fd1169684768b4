"""Selection of the attention kernel: each equals `plain` on every request it accepts, and refuses the rest.

    edges    an edge list, one score per edge
    blocked  a block of queries at a time: windows, long sequences
    sdpa     torch's fused kernel
    plain    the definition

`choose` takes the first kernel that accepts and suits the request; the order is the same on every device.
"""

from torch import Tensor

from seqloom.errors import ConfigError, KernelError, did_you_mean
from seqloom.nn.ops.attention import PLAIN, Kernel, Request
from seqloom.nn.ops.attention_blocked import BLOCKED
from seqloom.nn.ops.attention_edges import EDGES
from seqloom.nn.ops.attention_sdpa import SDPA
from seqloom.nn.ops.kernels import Choice, named, report_choice

KERNELS: tuple[Kernel, ...] = (EDGES, BLOCKED, SDPA, PLAIN)


def choose(request: Request) -> Kernel:
    """Return the kernel for a request: the one named by the user, or the first that accepts and suits."""
    name = named("attention")
    if name is None:
        return next(kernel for kernel in KERNELS if kernel.refuses(request) is None and kernel.suits(request))
    kernels = {kernel.name: kernel for kernel in KERNELS}
    if name not in kernels:
        raise ConfigError(f"there is no attention kernel '{name}'", fix=did_you_mean(name, kernels))
    if reason := kernels[name].refuses(request):
        raise KernelError(f"the attention kernel '{name}' cannot be used here: {reason}", fix="choose another kernel")
    return kernels[name]


def explained(request: Request) -> Choice:
    """The name of the chosen kernel, and why those before it in the list were not chosen."""
    kernel, refused = choose(request), dict[str, str]()
    for other in KERNELS[: KERNELS.index(kernel)] if named("attention") is None else ():
        refused[other.name] = other.refuses(request) or "another kernel is faster here"
    return Choice(kernel.name, refused)


def attend(request: Request) -> Tensor:
    """Compute attention [B,H,T,D] with the chosen kernel."""
    report_choice("attention", lambda: explained(request))
    return choose(request).run(request)
