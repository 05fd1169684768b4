"""A Triton kernel for the product of a matrix and one vector: a program for some rows of the matrix."""

# fmt: off

import triton
import triton.language as tl


@triton.jit
def one_row_product(
    X, W, BIAS, OUT, rows, width, step,
    BIASED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """OUT [rows] = W X + BIAS, with sums in float32."""
    outputs = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = outputs < rows
    W += outputs.to(tl.int64)[:, None] * step
    total = tl.zeros([BLOCK_N, BLOCK_K], dtype=tl.float32)
    for start in tl.range(0, width, BLOCK_K):
        columns = start + tl.arange(0, BLOCK_K)
        here = columns < width
        vector = tl.load(X + columns, mask=here, other=0.0).to(tl.float32)
        weight = tl.load(W + columns[None, :], mask=inside[:, None] & here[None, :], other=0.0).to(tl.float32)
        total += weight * vector[None, :]
    found = tl.sum(total, 1)
    if BIASED:
        found += tl.load(BIAS + outputs, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + outputs, found.to(OUT.dtype.element_ty), mask=inside)
