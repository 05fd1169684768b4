"""The CRF loss, forward and backward, against pytorch-crf: 9 labels, 32 rows, 32 and 128 elements."""

import torch
from benchmarks.peers.harness import side_by_side, table
from torchcrf import CRF

from seqloom.nn.ops.crf import Transitions, fast_log_likelihood

LABELS, ROWS = 9, 32


def main() -> None:
    """Check that losses and gradients agree, and print a table for each length."""
    for time in (32, 128):
        torch.manual_seed(0)
        peer = CRF(LABELS, batch_first=True)
        scores = torch.randn(ROWS, time, LABELS, requires_grad=True)
        lengths = torch.randint(time // 2, time + 1, (ROWS,))
        lengths[0] = time
        tags = torch.randint(LABELS, (ROWS, time))
        mask = torch.arange(time) < lengths[:, None]
        free = torch.ones(LABELS, dtype=torch.bool), torch.ones(LABELS, LABELS, dtype=torch.bool)
        moves = Transitions(
            peer.start_transitions, peer.transitions, peer.end_transitions, free[0], free[1], free[0].clone()
        )
        weights = [scores, *moves[:3]]

        def theirs(arguments=(peer, scores, tags, mask, weights)) -> tuple:
            peer, scores, tags, mask, weights = arguments
            return torch.autograd.grad(peer(scores, tags, mask, reduction="sum"), weights)

        def ours(arguments=(scores, tags, lengths, moves, weights)) -> tuple:
            scores, tags, lengths, moves, weights = arguments
            return torch.autograd.grad(fast_log_likelihood(scores, tags, lengths, moves).sum(), weights)

        torch.testing.assert_close(ours(), theirs(), rtol=1e-3, atol=1e-4)
        taken = side_by_side({"pytorch-crf": theirs, "seqloom": ours}, 40, warm_up=3)
        table(f"CRF loss, K={LABELS} B={ROWS} T={time}, forward and backward", taken)


if __name__ == "__main__":
    main()
