"""Triton kernels of generation: attention of one query for each row, and the write of its key and value.

One query leaves matrix units idle, so products are sums of vectors on the chip. A program owns a head of a row, or a
part of its keys; it first looks where the mask allows anything, and reads keys and values only there:

    mask:   . . . . x x x x . x x x x x x x x . . . . . . . . .
                    | tile  | tile  | tile  |

Exponents have base 2, as the hardware has it.
"""

# fmt: off
# Kernels have dozens of arguments, which would take a line each.

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
NOTHING = tl.constexpr(-1e38)  # the level of a part without keys: finite, so that parts without keys can be merged


@triton.jit(do_not_specialize=["end"])
def single_query(
    Q, K, V, MASK, BIAS, OUT, LEVEL, scale, q_row, q_head, k_row, k_head, k_time, v_row, v_head, v_time,
    o_row, o_head, o_part, mask_row, bias_row, bias_head, heads, end,
    MASKED: tl.constexpr, BIASED: tl.constexpr, PARTS: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK: tl.constexpr, SCAN: tl.constexpr,
):
    """OUT [B,H,PARTS,D], and LEVEL [B,H,PARTS]: the logarithm to base 2 of the sum of the exponentials of a part."""
    row, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    part, depth = tl.program_id(1), tl.arange(0, DEPTH)
    query = tl.load(Q + row * q_row + head * q_head + depth, mask=depth < WIDTH, other=0.0).to(tl.float32)
    query = query * (scale * LOG2E)
    K += row * k_row + head * k_head
    V += row * v_row + head * v_head
    MASK += row * mask_row
    BIAS += row * bias_row + head * bias_head
    lowest = tl.zeros([SCAN], dtype=tl.int32)
    highest = tl.zeros([SCAN], dtype=tl.int32) + end
    if MASKED:
        lowest += end
        highest -= end
        for start in tl.range(0, end, SCAN):
            columns = start + tl.arange(0, SCAN)
            allowed = tl.load(MASK + columns, mask=columns < end, other=0) != 0
            lowest = tl.minimum(lowest, tl.where(allowed, columns, end))
            highest = tl.maximum(highest, tl.where(allowed, columns + 1, 0))
    stop = tl.max(highest, 0)
    first = tl.min(lowest, 0) // BLOCK
    last = tl.maximum(tl.cdiv(stop, BLOCK), first)
    each = tl.cdiv(last - first, PARTS)
    first += part * each
    last = tl.minimum(first + each, last)
    peak = tl.full([1], float("-inf"), dtype=tl.float32)
    total = tl.zeros([1], dtype=tl.float32)
    mixed = tl.zeros([DEPTH], dtype=tl.float32)
    for number in tl.range(0, last - first):  # from `first` on, the compiler would read keys two bytes at a time
        columns = (first + number) * BLOCK + tl.arange(0, BLOCK)
        inside = (columns < stop)[:, None] & (depth < WIDTH)[None, :]
        key = tl.load(K + columns[:, None] * k_time + depth[None, :], mask=inside, other=0.0).to(tl.float32)
        value = tl.load(V + columns[:, None] * v_time + depth[None, :], mask=inside, other=0.0).to(tl.float32)
        scores = tl.sum(key * query[None, :], 1)
        if BIASED:
            scores += tl.load(BIAS + columns, mask=columns < stop, other=0.0).to(tl.float32) * LOG2E
        allowed = columns < stop
        if MASKED:
            allowed = allowed & (tl.load(MASK + columns, mask=allowed, other=0) != 0)
        scores = tl.where(allowed, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        share = tl.exp2(scores - level)
        shrink = tl.exp2(peak - level)
        total = total * shrink + tl.sum(share, 0)
        mixed = mixed * shrink + tl.sum(share[:, None] * value, 0)
        peak = higher
    read = total > 0
    mixed = mixed / tl.where(read, total, 1.0)
    OUT += row * o_row + head * o_head + part * o_part
    tl.store(OUT + depth, mixed.to(OUT.dtype.element_ty), mask=depth < WIDTH)
    if PARTS > 1:
        level = tl.where(read, peak + tl.log2(tl.where(read, total, 1.0)), NOTHING)
        tl.store(LEVEL + tl.program_id(0) * PARTS + part + tl.arange(0, 1), level)


@triton.jit
def write_column(
    KEYS, VALUES, KEY, VALUE, COLUMN, k_row, k_head, k_time, v_row, v_head, v_time,
    key_row, key_head, value_row, value_head, heads, WIDTH: tl.constexpr, DEPTH: tl.constexpr,
):
    """KEYS and VALUES [B,H,S,D] get KEY and VALUE [B,H,D] in the column [B] of each row."""
    row, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    column, depth = tl.load(COLUMN + row), tl.arange(0, DEPTH)
    inside = depth < WIDTH
    key = tl.load(KEY + row * key_row + head * key_head + depth, mask=inside)
    value = tl.load(VALUE + row * value_row + head * value_head + depth, mask=inside)
    tl.store(KEYS + row * k_row + head * k_head + column * k_time + depth, key, mask=inside)
    tl.store(VALUES + row * v_row + head * v_head + column * v_time + depth, value, mask=inside)
