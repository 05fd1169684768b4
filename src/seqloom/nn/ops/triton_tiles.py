"""Triton kernels of attention over spans: tiles of queries x keys on the chip, softmax on the fly (Dao 2023).

Each program owns a block of queries (`forward_tiles`, `query_gradients`) or of keys (`key_gradients`) and visits only
the tiles in range. Tiles that are allowed as a whole skip the mask:

    keys of a block of queries:   | masked |  whole   whole   whole  | masked |

Shaw's vectors come in as TABLE [B,H,T,2R+1], the products of each query with them, and MASS goes out, the weight of
each query on each distance. Tiles farther than R to one side have one number per query, and the others look it up:

    distance j - i:   -R and below | -R+1 .. R-1 | R and above
                      far left     | near        | far right

Exponents have base 2, as the hardware has it. No result depends on the order of programs: there are no atomic sums.
"""

# fmt: off
# Kernels have dozens of arguments, which would take a line each.

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _range_of_tiles(first, last, real, end, SIZE: tl.constexpr):
    """The tiles that a block visits, lowest..highest, and in between those allowed as a whole, whole..rest."""
    lowest = tl.min(first, 0) // SIZE
    highest = tl.maximum(lowest, tl.cdiv(tl.max(last, 0), SIZE))
    whole = tl.cdiv(tl.max(tl.where(real, first, 0), 0), SIZE)
    whole = tl.minimum(tl.maximum(whole, lowest), highest)
    rest = tl.min(tl.where(real, last, end), 0) // SIZE
    rest = tl.minimum(tl.maximum(rest, whole), highest)
    return lowest, whole, rest, highest


@triton.jit
def _far_tiles(whole, rest, owner, OWNERS: tl.constexpr, SIZE: tl.constexpr, RADIUS: tl.constexpr):
    """Where in the tiles whole..rest those far to the left of a block end, and those far to the right begin."""
    left = rest
    right = rest
    if RADIUS > 0:
        left = tl.maximum(owner - RADIUS + 1, 0) // SIZE
        left = tl.minimum(tl.maximum(left, whole), rest)
        right = tl.minimum(tl.maximum(tl.cdiv(owner + OWNERS - 1 + RADIUS, SIZE), left), rest)
    return left, right


@triton.jit
def _vectors(START, index, step, end, BOUNDED: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr):
    """[len(index), DEPTH] rows of a matrix; zeros beyond its width, and with BOUNDED beyond its end."""
    depth = tl.arange(0, DEPTH)
    places = START + index[:, None] * step + depth[None, :]
    if BOUNDED:
        found = tl.load(places, mask=(index[:, None] < end) & (depth[None, :] < WIDTH), other=0.0)
    elif WIDTH != DEPTH:
        found = tl.load(places, mask=depth[None, :] < WIDTH, other=0.0)
    else:
        found = tl.load(places)
    return found


@triton.jit
def _scores(
    products, owner, other, first, last, origin, slope, scale,
    ALIBI: tl.constexpr, LOCAL: tl.constexpr, STRIDE: tl.constexpr, MASKED: tl.constexpr,
):
    """Scores to base 2 of a tile [owner, other], -inf where the mask forbids; the spans are those of the owners."""
    scores = products * scale
    if ALIBI:
        scores -= slope * tl.abs(owner[:, None] - other[None, :]).to(tl.float32)
    if MASKED:
        allowed = (other[None, :] >= first[:, None]) & (other[None, :] < last[:, None])
        scores = tl.where(allowed, scores, float("-inf"))
    if STRIDE > 0:
        close = ((owner[:, None] - other[None, :]) % STRIDE) == 0
        if LOCAL > 0:
            local = ((owner - origin) // LOCAL)[:, None] == (other[None, :] - origin[:, None]) // LOCAL
            close = close | local
        scores = tl.where(close, scores, float("-inf"))
    return scores


@triton.jit
def _relative(TABLE, query, ahead, time, FAR: tl.constexpr, RADIUS: tl.constexpr):
    """The entries of a table for pairs `ahead` apart; FAR is -1 or 1 if all of them are far to one side."""
    if FAR == 0:
        entry = tl.minimum(tl.maximum(ahead, -RADIUS), RADIUS) + RADIUS
    else:
        entry = RADIUS + FAR * RADIUS
    return tl.load(TABLE + query * (2 * RADIUS + 1) + entry, mask=query < time, other=0.0)


@triton.jit
def _slope(SLOPES, head, ALIBI: tl.constexpr):
    slope = 0.0
    if ALIBI:
        slope = tl.load(SLOPES + head).to(tl.float32) * LOG2E
    return slope


@triton.jit
def _read_on(
    total, peak, mixed, right, query, rows, first, last, origin, slope, scale,
    K, V, TABLE, k_time, v_time, lowest, highest, time, end,
    ALIBI: tl.constexpr, LOCAL: tl.constexpr, STRIDE: tl.constexpr, RADIUS: tl.constexpr,
    MASKED: tl.constexpr, FAR: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):
    """Take further tiles of keys into the running softmax of a block of queries."""
    for tile in tl.range(lowest, highest):
        columns = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        key = _vectors(K, columns, k_time, end, MASKED, WIDTH, DEPTH)
        products = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        scores = _scores(products, rows, columns, first, last, origin, slope, scale, ALIBI, LOCAL, STRIDE, MASKED)
        if RADIUS > 0:
            ahead = columns[None, :] - rows[:, None]
            scores += _relative(TABLE, rows[:, None], ahead, time, FAR, RADIUS)
        higher = tl.maximum(peak, tl.max(scores, 1))
        level = higher
        if MASKED or STRIDE > 0:  # a row that has read nothing yet has no peak
            level = tl.where(higher == float("-inf"), 0.0, higher)
        share = tl.exp2(scores - level[:, None])
        shrink = tl.exp2(peak - level)
        total = total * shrink + tl.sum(share, 1)
        if RADIUS > 0:
            right = right * shrink
            if FAR == 0:
                right += tl.sum(tl.where(ahead >= RADIUS, share, 0.0), 1)
            elif FAR == 1:
                right += tl.sum(share, 1)
        value = _vectors(V, columns, v_time, end, MASKED, WIDTH, DEPTH)
        mixed = tl.dot(share.to(value.dtype), value, mixed * shrink[:, None], input_precision=PRECISION)
        peak = higher
    return total, peak, mixed, right


@triton.jit
def forward_tiles(
    Q, K, V, OUT, LEVEL, MASS, FIRST, LAST, ORIGIN, SLOPES, TABLE, scale,
    q_row, q_head, q_time, k_row, k_head, k_time, v_row, v_head, v_time, o_row, o_head, o_time, span_row, origin_row,
    heads, time, end,
    ALIBI: tl.constexpr, LOCAL: tl.constexpr, STRIDE: tl.constexpr, RADIUS: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):
    """OUT [B,H,T,D], and LEVEL [B,H,T]: the logarithm to base 2 of the sum of the exponentials of each row."""
    row, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    begin = tl.program_id(0) * BLOCK_M
    rows, depth = begin + tl.arange(0, BLOCK_M), tl.arange(0, DEPTH)
    real = rows < time
    query = _vectors(Q + row * q_row + head * q_head, rows, q_time, time, True, WIDTH, DEPTH)
    first = tl.load(FIRST + row * span_row + rows, mask=real, other=end)
    last = tl.load(LAST + row * span_row + rows, mask=real, other=0)
    origin = rows
    if LOCAL > 0:
        origin = tl.load(ORIGIN + row * origin_row + rows, mask=real, other=0)
    slope = _slope(SLOPES, head, ALIBI)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    mixed = tl.zeros([BLOCK_M, DEPTH], dtype=tl.float32)
    right = tl.zeros([BLOCK_M], dtype=tl.float32)
    flat = row * heads + head
    K += row * k_row + head * k_head
    V += row * v_row + head * v_head
    TABLE += flat * time * (2 * RADIUS + 1)
    lowest, whole, rest, highest = _range_of_tiles(first, last, real, end, BLOCK_N)
    far_left, far_right = _far_tiles(whole, rest, begin, BLOCK_M, BLOCK_N, RADIUS)
    for part in tl.static_range(5):
        if RADIUS > 0 or part == 4 or part < 2:
            if part == 0:
                start, stop = lowest, whole
            elif part == 1:
                start, stop = whole, far_left
            elif part == 2:
                start, stop = far_left, far_right
            elif part == 3:
                start, stop = far_right, rest
            else:
                start, stop = rest, highest
            total, peak, mixed, right = _read_on(
                total, peak, mixed, right, query, rows, first, last, origin, slope, scale * LOG2E,
                K, V, TABLE, k_time, v_time, start, stop, time, end, ALIBI, LOCAL, STRIDE, RADIUS,
                part % 2 == 0, (part - 2) * (part % 2), WIDTH, DEPTH, BLOCK_N, PRECISION,
            )
    read = total > 0
    mixed = mixed / tl.where(read, total, 1.0)[:, None]
    level = tl.where(read, peak + tl.log2(tl.where(read, total, 1.0)), float("inf"))  # exp2(x - inf) is 0
    places = OUT + row * o_row + head * o_head + rows[:, None] * o_time + depth[None, :]
    tl.store(places, mixed.to(OUT.dtype.element_ty), mask=real[:, None] & (depth[None, :] < WIDTH))
    tl.store(LEVEL + flat * time + rows, level, mask=real)
    if RADIUS > 0:
        near = tl.zeros([BLOCK_M], dtype=tl.float32)
        MASS += flat * time * (2 * RADIUS + 1)
        start = tl.maximum(tl.maximum(begin - RADIUS + 1, 0) // BLOCK_N, lowest)
        stop = tl.minimum(tl.cdiv(begin + BLOCK_M - 1 + RADIUS, BLOCK_N), highest)
        for tile in tl.range(start, stop):
            columns = tile * BLOCK_N + tl.arange(0, BLOCK_N)
            key = _vectors(K, columns, k_time, end, True, WIDTH, DEPTH)
            products = tl.dot(query, tl.trans(key), input_precision=PRECISION)
            scores = _scores(
                products, rows, columns, first, last, origin, slope, scale * LOG2E, ALIBI, LOCAL, STRIDE, True
            )
            ahead = columns[None, :] - rows[:, None]
            scores += _relative(TABLE, rows[:, None], ahead, time, 0, RADIUS)
            inner = (ahead > -RADIUS) & (ahead < RADIUS)
            share = tl.where(inner, tl.exp2(scores - level[:, None]), 0.0)
            tl.store(MASS + rows[:, None] * (2 * RADIUS + 1) + RADIUS + ahead, share, mask=inner & real[:, None])
            near += tl.sum(share, 1)
        right = right / tl.where(read, total, 1.0)
        tl.store(MASS + rows * (2 * RADIUS + 1) + 2 * RADIUS, right, mask=real)
        tl.store(MASS + rows * (2 * RADIUS + 1), tl.where(read, 1.0 - near - right, 0.0), mask=real)


@triton.jit
def _query_gradient(
    found, near, right, query, upstream, level, offset, rows, first, last, origin, slope, scale,
    K, V, TABLE, PULLS, OF_TABLE, k_time, v_time, lowest, highest, time, end,
    ALIBI: tl.constexpr, LOCAL: tl.constexpr, STRIDE: tl.constexpr, RADIUS: tl.constexpr,
    MASKED: tl.constexpr, FAR: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):
    """Add what further tiles of keys contribute to the gradient of a block of queries."""
    for tile in tl.range(lowest, highest):
        columns = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        key = _vectors(K, columns, k_time, end, MASKED, WIDTH, DEPTH)
        value = _vectors(V, columns, v_time, end, MASKED, WIDTH, DEPTH)
        products = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        scores = _scores(products, rows, columns, first, last, origin, slope, scale, ALIBI, LOCAL, STRIDE, MASKED)
        pull = tl.dot(upstream, tl.trans(value), input_precision=PRECISION)
        if RADIUS > 0:
            ahead = columns[None, :] - rows[:, None]
            scores += _relative(TABLE, rows[:, None], ahead, time, FAR, RADIUS)
            pull += _relative(PULLS, rows[:, None], ahead, time, FAR, RADIUS)
        pull = tl.exp2(scores - level[:, None]) * (pull - offset[:, None])
        if RADIUS > 0:
            if FAR == 0:
                inner = (ahead > -RADIUS) & (ahead < RADIUS)
                places = OF_TABLE + rows[:, None] * (2 * RADIUS + 1) + RADIUS + ahead
                tl.store(places, pull, mask=inner & (rows[:, None] < time))
                near += tl.sum(tl.where(inner, pull, 0.0), 1)
                right += tl.sum(tl.where(ahead >= RADIUS, pull, 0.0), 1)
            elif FAR == 1:
                right += tl.sum(pull, 1)
        found = tl.dot(pull.to(key.dtype), key, found, input_precision=PRECISION)
    return found, near, right


@triton.jit
def query_gradients(
    Q, K, V, OUT, UPSTREAM, LEVEL, OFFSET, OF_QUERY, FIRST, LAST, ORIGIN, SLOPES, TABLE, PULLS, OF_TABLE, scale,
    q_row, q_head, q_time, k_row, k_head, k_time, v_row, v_head, v_time, o_row, o_head, o_time,
    u_row, u_head, u_time, g_row, g_head, g_time, span_row, origin_row, heads, time, end,
    ALIBI: tl.constexpr, LOCAL: tl.constexpr, STRIDE: tl.constexpr, RADIUS: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):
    """OF_QUERY [B,H,T,D], and OFFSET [B,H,T]: the dot product of each output and its gradient.

    With Shaw's vectors, OFFSET comes in as the dot product of MASS and its gradient PULLS, and OF_TABLE goes out.
    """
    row, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    begin = tl.program_id(0) * BLOCK_M
    rows, depth = begin + tl.arange(0, BLOCK_M), tl.arange(0, DEPTH)
    real = rows < time
    query = _vectors(Q + row * q_row + head * q_head, rows, q_time, time, True, WIDTH, DEPTH)
    output = _vectors(OUT + row * o_row + head * o_head, rows, o_time, time, True, WIDTH, DEPTH)
    upstream = _vectors(UPSTREAM + row * u_row + head * u_head, rows, u_time, time, True, WIDTH, DEPTH)
    flat = row * heads + head
    offset = tl.sum(output.to(tl.float32) * upstream.to(tl.float32), 1)
    if RADIUS > 0:
        offset += tl.load(OFFSET + flat * time + rows, mask=real, other=0.0)
    tl.store(OFFSET + flat * time + rows, offset, mask=real)
    level = tl.load(LEVEL + flat * time + rows, mask=real, other=float("inf"))
    first = tl.load(FIRST + row * span_row + rows, mask=real, other=end)
    last = tl.load(LAST + row * span_row + rows, mask=real, other=0)
    origin = rows
    if LOCAL > 0:
        origin = tl.load(ORIGIN + row * origin_row + rows, mask=real, other=0)
    slope = _slope(SLOPES, head, ALIBI)
    found = tl.zeros([BLOCK_M, DEPTH], dtype=tl.float32)
    near = tl.zeros([BLOCK_M], dtype=tl.float32)
    right = tl.zeros([BLOCK_M], dtype=tl.float32)
    K += row * k_row + head * k_head
    V += row * v_row + head * v_head
    TABLE += flat * time * (2 * RADIUS + 1)
    PULLS += flat * time * (2 * RADIUS + 1)
    OF_TABLE += flat * time * (2 * RADIUS + 1)
    lowest, whole, rest, highest = _range_of_tiles(first, last, real, end, BLOCK_N)
    far_left, far_right = _far_tiles(whole, rest, begin, BLOCK_M, BLOCK_N, RADIUS)
    for part in tl.static_range(5):
        if RADIUS > 0 or part == 4 or part < 2:
            if part == 0:
                start, stop = lowest, whole
            elif part == 1:
                start, stop = whole, far_left
            elif part == 2:
                start, stop = far_left, far_right
            elif part == 3:
                start, stop = far_right, rest
            else:
                start, stop = rest, highest
            found, near, right = _query_gradient(
                found, near, right, query, upstream, level, offset, rows, first, last, origin, slope, scale * LOG2E,
                K, V, TABLE, PULLS, OF_TABLE, k_time, v_time, start, stop, time, end, ALIBI, LOCAL, STRIDE, RADIUS,
                part % 2 == 0, (part - 2) * (part % 2), WIDTH, DEPTH, BLOCK_N, PRECISION,
            )
    places = OF_QUERY + row * g_row + head * g_head + rows[:, None] * g_time + depth[None, :]
    inside = real[:, None] & (depth[None, :] < WIDTH)
    tl.store(places, (found * scale).to(OF_QUERY.dtype.element_ty), mask=inside)
    if RADIUS > 0:  # the gradients of all scores of a query add up to zero
        tl.store(OF_TABLE + rows * (2 * RADIUS + 1) + 2 * RADIUS, right, mask=real)
        tl.store(OF_TABLE + rows * (2 * RADIUS + 1), -near - right, mask=real)


@triton.jit
def _key_gradient(
    of_key, of_value, key, value, columns, first, last, origin, slope, scale,
    Q, UPSTREAM, LEVEL, OFFSET, TABLE, PULLS, q_time, u_time, lowest, highest, time,
    ALIBI: tl.constexpr, LOCAL: tl.constexpr, STRIDE: tl.constexpr, RADIUS: tl.constexpr,
    MASKED: tl.constexpr, FAR: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK_M: tl.constexpr, PRECISION: tl.constexpr,
):
    """Add what further tiles of queries contribute to the gradients of a block of keys and values."""
    for tile in tl.range(lowest, highest):
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        query = _vectors(Q, rows, q_time, time, MASKED, WIDTH, DEPTH)
        upstream = _vectors(UPSTREAM, rows, u_time, time, MASKED, WIDTH, DEPTH)
        if MASKED:
            level = tl.load(LEVEL + rows, mask=rows < time, other=float("inf"))
            offset = tl.load(OFFSET + rows, mask=rows < time, other=0.0)
        else:
            level = tl.load(LEVEL + rows)
            offset = tl.load(OFFSET + rows)
        products = tl.dot(key, tl.trans(query), input_precision=PRECISION)  # [keys, queries]
        scores = _scores(products, columns, rows, first, last, origin, slope, scale, ALIBI, LOCAL, STRIDE, MASKED)
        if RADIUS > 0:
            ahead = columns[:, None] - rows[None, :]
            scores += _relative(TABLE, rows[None, :], ahead, time, FAR, RADIUS)
        share = tl.exp2(scores - level[None, :])
        of_value = tl.dot(share.to(upstream.dtype), upstream, of_value, input_precision=PRECISION)
        pull = tl.dot(value, tl.trans(upstream), input_precision=PRECISION)
        if RADIUS > 0:
            pull += _relative(PULLS, rows[None, :], ahead, time, FAR, RADIUS)
        pull = share * (pull - offset[None, :])
        of_key = tl.dot(pull.to(query.dtype), query, of_key, input_precision=PRECISION)
    return of_key, of_value


@triton.jit
def key_gradients(
    Q, K, V, UPSTREAM, LEVEL, OFFSET, OF_KEY, OF_VALUE, FIRST, LAST, ORIGIN, SLOPES, TABLE, PULLS, scale,
    q_row, q_head, q_time, k_row, k_head, k_time, v_row, v_head, v_time, u_row, u_head, u_time,
    g_row, g_head, g_time, span_row, origin_row, heads, time, end,
    ALIBI: tl.constexpr, LOCAL: tl.constexpr, STRIDE: tl.constexpr, RADIUS: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):
    """OF_KEY and OF_VALUE [B,H,S,D]; FIRST and LAST are the readers of each key."""
    row, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    begin = tl.program_id(0) * BLOCK_N
    columns, depth = begin + tl.arange(0, BLOCK_N), tl.arange(0, DEPTH)
    real = columns < end
    key = _vectors(K + row * k_row + head * k_head, columns, k_time, end, True, WIDTH, DEPTH)
    value = _vectors(V + row * v_row + head * v_head, columns, v_time, end, True, WIDTH, DEPTH)
    first = tl.load(FIRST + row * span_row + columns, mask=real, other=time)
    last = tl.load(LAST + row * span_row + columns, mask=real, other=0)
    origin = columns
    if LOCAL > 0:
        origin = tl.load(ORIGIN + row * origin_row + columns, mask=real, other=0)
    slope = _slope(SLOPES, head, ALIBI)
    of_key = tl.zeros([BLOCK_N, DEPTH], dtype=tl.float32)
    of_value = tl.zeros([BLOCK_N, DEPTH], dtype=tl.float32)
    flat = row * heads + head
    Q += row * q_row + head * q_head
    UPSTREAM += row * u_row + head * u_head
    LEVEL += flat * time
    OFFSET += flat * time
    TABLE += flat * time * (2 * RADIUS + 1)
    PULLS += flat * time * (2 * RADIUS + 1)
    lowest, whole, rest, highest = _range_of_tiles(first, last, real, time, BLOCK_M)
    far_left, far_right = _far_tiles(whole, rest, begin, BLOCK_N, BLOCK_M, RADIUS)
    for part in tl.static_range(5):
        if RADIUS > 0 or part == 4 or part < 2:
            if part == 0:
                start, stop = lowest, whole
            elif part == 1:
                start, stop = whole, far_left
            elif part == 2:
                start, stop = far_left, far_right
            elif part == 3:
                start, stop = far_right, rest
            else:
                start, stop = rest, highest
            of_key, of_value = _key_gradient(  # queries far to the left see these keys far to the right
                of_key, of_value, key, value, columns, first, last, origin, slope, scale * LOG2E,
                Q, UPSTREAM, LEVEL, OFFSET, TABLE, PULLS, q_time, u_time, start, stop, time,
                ALIBI, LOCAL, STRIDE, RADIUS, part % 2 == 0, (2 - part) * (part % 2),
                WIDTH, DEPTH, BLOCK_M, PRECISION,
            )
    places = row * g_row + head * g_head + columns[:, None] * g_time + depth[None, :]
    inside = real[:, None] & (depth[None, :] < WIDTH)
    tl.store(OF_KEY + places, (of_key * scale).to(OF_KEY.dtype.element_ty), mask=inside)
    tl.store(OF_VALUE + places, of_value.to(OF_VALUE.dtype.element_ty), mask=inside)
