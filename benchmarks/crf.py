"""CRF log-likelihood: the fast operator against the plain one, forward and backward, alternating in one run."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from seqloom.nn.ops.crf import Transitions, fast_log_likelihood, legal_transitions, log_likelihood

LABELS = ["O", *(f"{position}-{kind}" for kind in ("LOC", "MISC", "ORG", "PER") for position in "BI")]
BATCH, TIMES, ROUNDS = 32, (32, 128), 60

Likelihood = Callable[[Tensor, Tensor, Tensor, Transitions], Tensor]


def problem(time_steps: int) -> tuple[Tensor, Tensor, Tensor, Transitions]:
    """Return scores, tags, lengths and transitions of a batch in the BIO scheme; rows are half full to full."""
    generator = torch.Generator().manual_seed(0)
    size = len(LABELS)
    scores = torch.randn(BATCH, time_steps, size, generator=generator).requires_grad_()
    lengths = torch.randint(time_steps // 2, time_steps + 1, (BATCH,), generator=generator)
    tags = torch.randint(2, (BATCH, time_steps), generator=generator)  # O and B-LOC: legal in any order
    start, between, end = (
        torch.randn(*shape, generator=generator).requires_grad_() for shape in ((size,), (size, size), (size,))
    )
    return scores, tags, lengths, Transitions(start, between, end, *legal_transitions(LABELS, "bio"))


def seconds(function: Likelihood, batch: tuple[Tensor, Tensor, Tensor, Transitions]) -> float:
    """Return the seconds of one forward and backward pass."""
    scores, tags, lengths, transitions = batch
    began = time.perf_counter()
    torch.autograd.grad(function(scores, tags, lengths, transitions).sum(), [scores, *transitions[:3]])
    return time.perf_counter() - began


def main() -> None:
    """Print one line per sequence length."""
    print(
        f"K={len(LABELS)} B={BATCH} float32, forward and backward, {ROUNDS} rounds, {torch.get_num_threads()} threads"
    )
    print(f"{'T':>4} {'plain ms':>9} {'fast ms':>9} {'speed-up':>9}  (10th to 90th percentile of the rounds)")
    for time_steps in TIMES:
        batch = problem(time_steps)
        for function in (log_likelihood, fast_log_likelihood):
            seconds(function, batch)
        rounds = [(seconds(log_likelihood, batch), seconds(fast_log_likelihood, batch)) for _ in range(ROUNDS)]
        plain, fast = (statistics.median(column) * 1e3 for column in zip(*rounds, strict=True))
        ratios = statistics.quantiles([slow / quick for slow, quick in rounds], n=10)
        print(
            f"{time_steps:>4} {plain:>9.2f} {fast:>9.2f} {plain / fast:>8.2f}x  ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
