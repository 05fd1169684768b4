"""Triton kernels of the cross-entropy: two passes over the scores, the second of which turns them into their slope.

    level_i = log2 sum_c exp(z_ic)                 `cross_entropy_levels`: a program for each row
    z_ic <- w_i (exp(z_ic) / 2^level_i - q_ic)     `cross_entropy_slopes`: a program for some rows and some classes

Exponents have base 2, as the hardware has it. No result depends on the order of programs: there are no atomic sums.
"""

# fmt: off
# Kernels have dozens of arguments, which would take a line each.

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def cross_entropy_levels(SCORES, TARGETS, WEIGHTS, LEVEL, LOSS, step, classes, smoothing, BLOCK: tl.constexpr):
    """LEVEL [N] and LOSS [N] of SCORES [N,step], of which the first `classes` count."""
    row = tl.program_id(0).to(tl.int64)
    SCORES += row * step
    peak = tl.load(SCORES).to(tl.float32) * LOG2E
    total = tl.zeros([BLOCK], dtype=tl.float32)
    plain = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, step, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        # The mask of a wide load must end where the aligned row ends, not where the classes do.
        scores = tl.load(SCORES + columns, mask=columns < step, other=0.0).to(tl.float32)
        real = columns < classes
        plain += tl.where(real, scores, 0.0)
        scores = tl.where(real, scores * LOG2E, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 0))
        floor = tl.where(higher == float("-inf"), 0.0, higher)  # no NaN from scores that are all -inf
        total = total * tl.exp2(peak - floor) + tl.exp2(scores - floor)
        peak = higher
    level = peak + tl.log2(tl.sum(total, 0))
    hit = tl.load(SCORES + tl.load(TARGETS + row)).to(tl.float32)
    expected = (1.0 - smoothing) * hit + smoothing * tl.sum(plain, 0) / classes
    tl.store(LEVEL + row, level)
    weight = tl.load(WEIGHTS + row)
    tl.store(LOSS + row, tl.where(weight == 0.0, 0.0, weight * (level * LN2 - expected)))


@triton.jit
def cross_entropy_slopes(
    SCORES, TARGETS, WEIGHTS, LEVEL, SUMS, rows, step, classes, smoothing,
    SUMMED: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """SCORES become dL/dz, zero behind the last class; SUMS [groups,step] are the sums over each GROUP of rows."""
    begin = tl.program_id(1) * GROUP
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, real = columns < step, columns < classes
    sums = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(begin, tl.minimum(begin + GROUP, rows), ROWS, num_stages=3):
        index = start + tl.arange(0, ROWS)
        here = index < rows
        level = tl.load(LEVEL + index, mask=here, other=0.0)
        target = tl.load(TARGETS + index, mask=here, other=-1)
        weight = tl.load(WEIGHTS + index, mask=here, other=0.0)
        places = SCORES + index.to(tl.int64)[:, None] * step + columns[None, :]
        both = here[:, None] & inside[None, :]
        scores = tl.load(places, mask=both, other=0.0).to(tl.float32)
        slope = tl.exp2(scores * LOG2E - level[:, None]) - smoothing / classes
        slope -= tl.where(columns[None, :] == target[:, None], 1.0 - smoothing, 0.0)
        counted = (weight != 0.0)[:, None] & real[None, :]
        slope = tl.where(counted, slope * weight[:, None], 0.0)
        tl.store(places, slope.to(SCORES.dtype.element_ty), mask=both)
        if SUMMED:
            sums += slope
    if SUMMED:
        tl.store(SUMS + tl.program_id(1).to(tl.int64) * step + columns, tl.sum(sums, 0), mask=inside)
