"""Triton kernels of attention with the additive score u . tanh(l_i + r_j): nothing of size T x S x A is stored.

A tanh for each query, key and dimension is nearly all of the work, so every kernel is laid out around it:

    scores      tiles [queries, keys], one dimension a after another     the sum over a stays in registers
    gradients   tiles [rows, dimensions], one column after another       the sum over columns stays in registers

The backward pass computes dS, the gradient of the scores, for a limited number of queries at a time, and then

    dl_ia = u_a sum_j dS_ij (1 - t_ija^2)     dr_ja = u_a sum_i dS_ij (1 - t_ija^2)     du_a = sum_ij dS_ij t_ija

HOW names the tanh: "exact" by exponentials, "fast" by the instruction for float32, "packed" by the one for pairs of
bfloat16, whose operands are 32-bit words of two neighboring dimensions.
"""

# fmt: off
# Kernels have dozens of arguments, which would take a line each.

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)

PACKED_SCORE = tl.constexpr("""{
    .reg .b32 sum, t;
    .reg .f32 low, high;
    add.rn.bf16x2 sum, $2, $3;
    tanh.approx.bf16x2 t, sum;
    shl.b32 low, t, 16;
    and.b32 high, t, 0xffff0000;
    fma.rn.f32 low, $4, low, $1;
    fma.rn.f32 $0, $5, high, low;
}""")

# w (1 - t^2) of both dimensions of a word, added to two sums. Outputs are written after all inputs have been read,
# because they may share registers.
PACKED_SLOPE = tl.constexpr("""{
    .reg .b32 sum, t;
    .reg .f32 low, high, less, more;
    add.rn.bf16x2 sum, $4, $5;
    tanh.approx.bf16x2 t, sum;
    shl.b32 low, t, 16;
    and.b32 high, t, 0xffff0000;
    neg.f32 less, low;
    neg.f32 more, high;
    fma.rn.f32 low, less, low, 0f3F800000;
    fma.rn.f32 high, more, high, 0f3F800000;
    fma.rn.f32 low, $6, low, $2;
    fma.rn.f32 high, $6, high, $3;
    mov.f32 $0, low;
    mov.f32 $1, high;
}""")

# the same, and w t added to two more sums
PACKED_SLOPE_AND_TANH = tl.constexpr("""{
    .reg .b32 sum, t;
    .reg .f32 low, high, less, more, first, second;
    add.rn.bf16x2 sum, $8, $9;
    tanh.approx.bf16x2 t, sum;
    shl.b32 low, t, 16;
    and.b32 high, t, 0xffff0000;
    fma.rn.f32 first, $10, low, $6;
    fma.rn.f32 second, $10, high, $7;
    neg.f32 less, low;
    neg.f32 more, high;
    fma.rn.f32 low, less, low, 0f3F800000;
    fma.rn.f32 high, more, high, 0f3F800000;
    fma.rn.f32 low, $10, low, $4;
    fma.rn.f32 high, $10, high, $5;
    mov.f32 $0, low;
    mov.f32 $1, high;
    mov.f32 $2, first;
    mov.f32 $3, second;
}""")


@triton.jit
def _tanh(x, HOW: tl.constexpr):
    if HOW == "fast":
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    return 1.0 - 2.0 / (1.0 + tl.exp2(x * (2.0 * LOG2E)))  # infinite exponentials give 1


@triton.jit
def _scores(L, R, U, rows, columns, l_step, r_step, here, there, WORDS: tl.constexpr, HOW: tl.constexpr):
    """u . tanh(l_i + r_j) of a tile; L and R hold dimensions one after another, [A or words, T]."""
    scores = tl.zeros([rows.shape[0], columns.shape[0]], dtype=tl.float32)
    for word in tl.range(0, WORDS):
        left = tl.load(L + word * l_step + rows, mask=here, other=0)
        right = tl.load(R + word * r_step + columns, mask=there, other=0)
        if HOW == "packed":
            scores = tl.inline_asm_elementwise(
                PACKED_SCORE, "=f,f,r,r,f,f",
                [scores, left[:, None], right[None, :], tl.load(U + 2 * word), tl.load(U + 2 * word + 1)],
                dtype=tl.float32, is_pure=True, pack=1,
            )
        else:
            inner = left[:, None].to(tl.float32) + right[None, :].to(tl.float32)
            scores += tl.load(U + word) * _tanh(inner, HOW)
    return scores


@triton.jit
def additive_forward(
    L, R, U, V, OUT, LEVEL, FIRST, LAST, FIRST_READER, LAST_READER, v_row, v_head, v_time, o_row, o_head, o_time,
    span_row, reader_row, heads, time, end, WORDS: tl.constexpr, DIMENSIONS: tl.constexpr, WIDTH: tl.constexpr,
    DEPTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HOW: tl.constexpr, PRECISION: tl.constexpr,
):
    """OUT [B,H,T,D], and LEVEL [B,H,T]: the logarithm to base 2 of the sum of the exponentials of each row."""
    flat = tl.program_id(1).to(tl.int64)
    row, head = flat // heads, flat % heads
    rows, depth = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, DEPTH)
    real, wide = rows < time, depth[None, :] < WIDTH
    first = tl.load(FIRST + row * span_row + rows, mask=real, other=end)
    last = tl.load(LAST + row * span_row + rows, mask=real, other=0)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    mixed = tl.zeros([BLOCK_M, DEPTH], dtype=tl.float32)
    L += flat * WORDS * time
    R += flat * WORDS * end
    U += head * DIMENSIONS
    V += row * v_row + head * v_head
    for tile in tl.range(tl.min(first, 0) // BLOCK_N, tl.cdiv(tl.max(last, 0), BLOCK_N)):
        columns = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        there = columns < end
        scores = _scores(L, R, U, rows, columns, time, end, real, there, WORDS, HOW) * LOG2E
        reader = tl.load(FIRST_READER + row * reader_row + columns, mask=there, other=time)
        beyond = tl.load(LAST_READER + row * reader_row + columns, mask=there, other=0)
        allowed = (columns[None, :] >= first[:, None]) & (columns[None, :] < last[:, None])
        allowed = allowed & (rows[:, None] >= reader[None, :]) & (rows[:, None] < beyond[None, :])
        scores = tl.where(allowed, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        share = tl.exp2(scores - level[:, None])
        shrink = tl.exp2(peak - level)
        total = total * shrink + tl.sum(share, 1)
        value = tl.load(V + columns[:, None] * v_time + depth[None, :], mask=there[:, None] & wide, other=0.0)
        mixed = tl.dot(share.to(value.dtype), value, mixed * shrink[:, None], input_precision=PRECISION)
        peak = higher
    read = total > 0
    mixed = mixed / tl.where(read, total, 1.0)[:, None]
    level = tl.where(read, peak + tl.log2(tl.where(read, total, 1.0)), float("inf"))  # exp2(x - inf) is 0
    place = OUT + row * o_row + head * o_head + rows[:, None] * o_time + depth[None, :]
    tl.store(place, mixed.to(OUT.dtype.element_ty), mask=real[:, None] & wide)
    tl.store(LEVEL + flat * time + rows, level, mask=real)


@triton.jit
def additive_scores_backward(
    L, R, U, V, UPSTREAM, LEVEL, OFFSET, OF_VALUE, BY_QUERY, BY_KEY, FIRST, LAST, FIRST_READER, LAST_READER, v_row,
    v_head, v_time, u_row, u_head, u_time, span_row, reader_row, heads, time, end, start, stop, query_room, key_room,
    WORDS: tl.constexpr, DIMENSIONS: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, HOW: tl.constexpr, PRECISION: tl.constexpr,
):
    """dS of queries start..stop as BY_KEY [B,H,S,queries] and BY_QUERY [B,H,queries,S]; their part goes to OF_VALUE.

    Tiles that no query reads are left as they are.
    """
    flat = tl.program_id(1).to(tl.int64)
    row, head = flat // heads, flat % heads
    columns, depth = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, DEPTH)
    there, wide = columns < end, depth[None, :] < WIDTH
    reader = tl.load(FIRST_READER + row * reader_row + columns, mask=there, other=time)
    beyond = tl.load(LAST_READER + row * reader_row + columns, mask=there, other=0)
    value = tl.load(
        V + row * v_row + head * v_head + columns[:, None] * v_time + depth[None, :], mask=there[:, None] & wide,
        other=0.0,
    )
    place = OF_VALUE + (flat * end + columns[:, None]) * WIDTH + depth[None, :]
    of_value = tl.load(place, mask=there[:, None] & wide, other=0.0)
    L += flat * WORDS * time
    R += flat * WORDS * end
    U += head * DIMENSIONS
    UPSTREAM += row * u_row + head * u_head
    lowest = tl.maximum(tl.min(reader, 0), start) - start
    highest = tl.minimum(tl.max(beyond, 0), stop) - start
    for tile in tl.range(lowest // BLOCK_M, tl.cdiv(tl.maximum(highest, 0), BLOCK_M)):
        inner = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        rows = start + inner
        real = rows < stop
        scores = _scores(L, R, U, rows, columns, time, end, real, there, WORDS, HOW) * LOG2E
        first = tl.load(FIRST + row * span_row + rows, mask=real, other=end)
        last = tl.load(LAST + row * span_row + rows, mask=real, other=0)
        allowed = (columns[None, :] >= first[:, None]) & (columns[None, :] < last[:, None])
        allowed = allowed & (rows[:, None] >= reader[None, :]) & (rows[:, None] < beyond[None, :])
        level = tl.load(LEVEL + flat * time + rows, mask=real, other=float("inf"))
        offset = tl.load(OFFSET + flat * time + rows, mask=real, other=0.0)
        share = tl.where(allowed, tl.exp2(scores - level[:, None]), 0.0)
        upstream = tl.load(UPSTREAM + rows[:, None] * u_time + depth[None, :], mask=real[:, None] & wide, other=0.0)
        of_value = tl.dot(tl.trans(share.to(upstream.dtype)), upstream, of_value, input_precision=PRECISION)
        pull = tl.dot(upstream, tl.trans(value), input_precision=PRECISION)
        pull = share * (pull - offset[:, None])
        whole = (inner[:, None] < query_room) & (columns[None, :] < key_room)
        by_query = BY_QUERY + (flat * query_room + inner[:, None]) * key_room + columns[None, :]
        tl.store(by_query, pull, mask=whole)
        by_key = BY_KEY + (flat * key_room + columns[None, :]) * query_room + inner[:, None]
        tl.store(by_key, pull, mask=whole)
    tl.store(place, of_value, mask=there[:, None] & wide)


@triton.jit
def additive_side_gradients(
    X, Y, W, GRADIENT, DIRECTION, FIRST, LAST, span_row, heads, x_start, x_stop, x_time, y_start, y_stop, y_time,
    row_room, column_room, WORDS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, UNROLL: tl.constexpr,
    HOW: tl.constexpr, DIRECTED: tl.constexpr,
):
    """Add sum_y W_yx (1 - t^2) to GRADIENT [B,H,X,A], and with DIRECTED sum_xy W_yx t to DIRECTION [.., blocks, A].

    X and Y hold elements one after another, [B,H,T,A or words]; W [B,H,columns,rows] is dS, transposed if rows are
    queries. FIRST and LAST are the columns that matter to each row.
    """
    flat = tl.program_id(1).to(tl.int64)
    inner = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = x_start + inner
    words = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    real, known = rows < x_stop, words < WORDS
    inside = real[:, None] & known[None, :]
    x = tl.load(X + (flat * x_time + rows[:, None]) * WORDS + words[None, :], mask=inside, other=0)
    first = tl.load(FIRST + (flat // heads) * span_row + rows, mask=real, other=y_stop)
    last = tl.load(LAST + (flat // heads) * span_row + rows, mask=real, other=0)
    low = tl.zeros([BLOCK, CHUNK], dtype=tl.float32)
    high = tl.zeros([BLOCK, CHUNK], dtype=tl.float32)
    low_tanh = tl.zeros([BLOCK, CHUNK], dtype=tl.float32)
    high_tanh = tl.zeros([BLOCK, CHUNK], dtype=tl.float32)
    lowest = (tl.maximum(tl.min(first, 0), y_start) - y_start) // UNROLL * UNROLL
    highest = tl.minimum(tl.max(last, 0), y_stop) - y_start
    W += flat * column_room * row_room + inner
    Y += (flat * y_time + y_start) * WORDS + words
    for begin in tl.range(lowest, highest, UNROLL):
        for step in tl.static_range(UNROLL):
            column = begin + step
            here = column < highest
            y = tl.load(Y + column * WORDS, mask=known & here, other=0)[None, :]
            weight = tl.load(W + column * row_room, mask=(inner < row_room) & here, other=0.0)[:, None]
            if HOW == "packed":
                if DIRECTED:
                    low, high, low_tanh, high_tanh = tl.inline_asm_elementwise(
                        PACKED_SLOPE_AND_TANH, "=f,=f,=f,=f,f,f,f,f,r,r,f",
                        [low, high, low_tanh, high_tanh, x, y, weight],
                        dtype=(tl.float32, tl.float32, tl.float32, tl.float32), is_pure=True, pack=1,
                    )
                else:
                    low, high = tl.inline_asm_elementwise(
                        PACKED_SLOPE, "=f,=f,f,f,r,r,f", [low, high, x, y, weight], dtype=(tl.float32, tl.float32),
                        is_pure=True, pack=1,
                    )
            else:
                t = _tanh(x.to(tl.float32) + y.to(tl.float32), HOW)
                low += weight * (1.0 - t * t)
                if DIRECTED:
                    low_tanh += weight * t
    blocks = tl.num_programs(0)
    if HOW == "packed":
        place = GRADIENT + (flat * x_time + rows[:, None]) * (2 * WORDS) + 2 * words[None, :]
        tl.store(place, tl.load(place, mask=inside, other=0.0) + low, mask=inside)
        tl.store(place + 1, tl.load(place + 1, mask=inside, other=0.0) + high, mask=inside)
        if DIRECTED:
            sums = DIRECTION + (flat * blocks + tl.program_id(0)) * (2 * WORDS) + 2 * words
            tl.store(sums, tl.sum(low_tanh, 0), mask=known)
            tl.store(sums + 1, tl.sum(high_tanh, 0), mask=known)
    else:
        place = GRADIENT + (flat * x_time + rows[:, None]) * WORDS + words[None, :]
        tl.store(place, tl.load(place, mask=inside, other=0.0) + low, mask=inside)
        if DIRECTED:
            tl.store(DIRECTION + (flat * blocks + tl.program_id(0)) * WORDS + words, tl.sum(low_tanh, 0), mask=known)
