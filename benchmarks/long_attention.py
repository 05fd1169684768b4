"""A window and ALiBi over a long sequence on the CPU: our operator against torch's with a dense mask or bias.

Forward and backward in float32, alternating in one run. The dense matrix is made once, outside of the measured time.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.attention_fast import attend, choose
from seqloom.nn.ops.masks import Causal, Mask, WindowMask, dense
from seqloom.nn.ops.relations import Alibi, Bias, NoBias, alibi_slopes
from seqloom.nn.types import Padded, places_of

TIME, HEADS, WIDTH, WINDOW, ROUNDS = 8_192, 2, 64, 256, 5


def once(run: Callable[..., Tensor], vectors: Sequence[Tensor]) -> tuple[float, list[Tensor]]:
    """Return the seconds of a forward and backward pass, the output and the gradients."""
    start = time.perf_counter()
    output = run(*vectors)
    gradients = torch.autograd.grad(output.square().sum(), vectors)
    return time.perf_counter() - start, [output.detach(), *gradients]


def compare(name: str, mask: Mask, bias: Bias) -> None:
    """Check that both sides agree, and print their times."""
    torch.manual_seed(0)
    vectors = [torch.randn(1, HEADS, TIME, WIDTH, requires_grad=True) for _ in range(3)]
    places = places_of(Padded.of(torch.zeros(1, TIME, 1)))
    matrix = dense(mask, places, places)
    if isinstance(bias, Alibi):
        matrix = bias.term(places, places).masked_fill(~matrix, float("-inf"))

    def request(*tensors: Tensor) -> Request:
        query, key, value = tensors
        return Request(query, key, value, places, places, mask=mask, bias=bias, aligned=True)

    def ours(*tensors: Tensor) -> Tensor:
        return attend(request(*tensors))

    def theirs(*tensors: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*tensors, matrix)

    for found, expected in zip(once(ours, vectors)[1], once(theirs, vectors)[1], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    rounds = [(once(ours, vectors)[0], once(theirs, vectors)[0]) for _ in range(ROUNDS)]
    mine, other = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratios = sorted(slow / quick for quick, slow in rounds)
    print(
        f"{name:12} {choose(request(*vectors)).name:8} {mine:8.3f} {other:8.3f} {other / mine:8.2f}x"
        f"  ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def main() -> None:
    """Print one line for each kind of attention."""
    print(f"T={TIME} H={HEADS} d={WIDTH} float32, {ROUNDS} rounds, {torch.get_num_threads()} threads")
    print(f"{'':12} {'kernel':8} {'seconds':>8} {'SDPA':>8} {'speed-up':>9}  (range)")
    compare(f"window {WINDOW}", WindowMask(WINDOW - 1, 0), NoBias())
    compare("ALiBi", Causal(), Alibi(torch.tensor(alibi_slopes(HEADS))))


if __name__ == "__main__":
    main()
