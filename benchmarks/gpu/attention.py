"""Attention on a GPU, forward and backward in bfloat16: our kernels beside FlexAttention and torch's fused kernels.

python -m benchmarks.gpu attention                  all tables
python -m benchmarks.gpu attention --only window    some of them
python -m benchmarks.gpu.attention tune [TEXT...]   tile sizes of our Triton kernels, each with its time

The works with a figure to reach come first.
"""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.gpu.comparison import Report, Side, clean, elapsed
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from seqloom.nn.ops import attention_additive, attention_slopes, attention_tiles, linear_attention
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.attention_fast import attend, choose
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.masks import BlockLocal, Causal, DocumentMask, Mask, Prefix, Strided, WindowMask
from seqloom.nn.ops.relations import Alibi, Shaw, alibi_slopes
from seqloom.nn.ops.scores import Additive
from seqloom.nn.types import Padded, places_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, WIDTH = 12, 64
SIZES: tuple[tuple[int, int], ...] = ((8, 4096), (2, 16384))  # rows, elements
ADDITIVE: tuple[tuple[int, int, int], ...] = ((4, 1024, 128), (4, 4096, 128))  # rows, elements, width
LONG: tuple[int, ...] = (16384, 65536)
WINDOW, PREFIX, STRIDE = 512, 1024, 128


def drawn(*shape: int) -> Tensor:
    """A leaf of normal numbers in bfloat16."""
    return torch.randn(*shape, device=DEVICE, dtype=torch.float32).bfloat16().requires_grad_()


class Case:
    """Queries, keys and values, with an upstream gradient; every side returns the output and three gradients."""

    def __init__(self, rows: int, time: int, documents: int = 1) -> None:
        torch.manual_seed(0)
        self.rows, self.time = rows, time
        self.vectors = [drawn(rows, HEADS, time, WIDTH) for _ in range(3)]
        self.upstream = torch.randn_like(self.vectors[0])
        lengths = torch.arange(time, device=DEVICE)
        self.segments = (lengths * documents // time).expand(rows, time).contiguous()
        whole = Padded.of(torch.zeros(rows, time, 1, device=DEVICE), None, self.segments if documents > 1 else None)
        self.padded = whole.laid_out()
        self.places = places_of(self.padded)
        self.slopes = torch.tensor(alibi_slopes(HEADS), device=DEVICE)

    def side(self, run: Callable[..., Tensor], *extra: Tensor) -> Callable[[], Sequence[Tensor]]:
        """One forward and backward pass."""

        def once() -> Sequence[Tensor]:
            output = run(*self.vectors)
            return [output, *torch.autograd.grad(output, [*self.vectors, *extra], self.upstream)]

        return once

    def request(self, mask: Mask, **more: Any) -> Callable[..., Request]:
        """The request to our operator for given vectors."""
        return partial(
            Request,
            query_places=self.places,
            key_places=self.places,
            mask=mask,
            aligned=True,
            heedless=True,
            shared=self.padded.layout,
            **more,
        )

    def ours(self, mask: Mask, kernel: str | None = None, **more: Any) -> Callable[[], Sequence[Tensor]]:
        """Our operator, by the kernel that it chooses or by a named one."""
        make = self.request(mask, **more)

        def run(*vectors: Tensor) -> Tensor:
            if kernel is None:
                return attend(make(*vectors))
            with using(attention=kernel):
                return attend(make(*vectors))

        return self.side(run)

    def chosen(self, mask: Mask, **more: Any) -> str:
        """The name of the kernel that is chosen, for the table."""
        return f"seqloom: {choose(self.request(mask, **more)(*self.vectors)).name}"

    def flash(self, backend: SDPBackend = SDPBackend.FLASH_ATTENTION) -> Callable[[], Sequence[Tensor]]:
        """Plain causal attention by one of torch's fused kernels."""

        def run(*vectors: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*vectors, is_causal=True)

        return self.side(run)

    def flex(self, mask: Callable[..., Tensor], score: Callable[..., Tensor] | None = None) -> Callable[..., Any]:
        """FlexAttention, compiled, with its block mask made once."""
        from torch.nn.attention.flex_attention import create_block_mask

        # not compiled: for a window over 16,384 elements the compiler of its kernels took more than a minute
        blocks = create_block_mask(mask, self.rows, None, self.time, self.time, device=DEVICE)
        return self.side(partial(compiled_flex(), block_mask=blocks, score_mod=score))


@cache
def compiled_flex() -> Callable[..., Tensor]:
    """FlexAttention, compiled anew for each shape and mask."""
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = 64
    return torch.compile(flex_attention, dynamic=False)


def causal(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Causal mask, for FlexAttention."""
    return i >= j


def windowed(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Causal window, for FlexAttention."""
    return (i >= j) & (i - j < WINDOW)


def prefixed(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Prefix language model, for FlexAttention."""
    return (i >= j) | (j < PREFIX)


def sparse(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """The sparse pattern of Child et al. 2019, for FlexAttention."""
    return (i >= j) & ((i // STRIDE == j // STRIDE) | ((i - j) % STRIDE == 0))


def full_attention(report: Report, case: Case) -> None:
    """Causal attention: ours is torch's fused kernel."""
    size = f"B={case.rows} T={case.time}"
    report.compare(
        f"causal, {size}",
        [
            Side(case.chosen(Causal()), case.ours(Causal())),
            Side("SDPA, flash", case.flash(), peer=True),
            Side("SDPA, cuDNN", case.flash(SDPBackend.CUDNN_ATTENTION)),
            Side("seqloom: tiles", case.ours(Causal(), "tiles")),
        ],
    )


def alibi(report: Report, case: Case) -> None:
    """ALiBi: the bar is 1.6 times plain causal flash attention."""
    slopes = case.slopes
    ours = {"bias": Alibi(slopes)}

    def score(products: Tensor, _b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return products - slopes[h] * (i - j)

    sides = [
        Side(case.chosen(Causal(), **ours), case.ours(Causal(), **ours)),
        Side("plain causal, SDPA flash", case.flash(), peer=True, yardstick=True),
        Side("plain causal, SDPA cuDNN", case.flash(SDPBackend.CUDNN_ATTENTION), yardstick=True),
        Side("seqloom: slopes (named)", case.ours(Causal(), "slopes", **ours)),
        *(
            Side(f"slopes, {name}, wider values", case.side(partial(with_wider_values, slopes, backend)))
            for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION))
        ),
        Side("FlexAttention", lazily(lambda: case.flex(causal, score))),
    ]
    report.compare(f"ALiBi, causal, B={case.rows} T={case.time}", sides)


def with_wider_values(slopes: Tensor, backend: SDPBackend, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """ALiBi in extra dimensions of the keys, by a given kernel, with values of the same width."""
    rows, heads, time, width = query.shape
    units, steps = attention_slopes.extra_dimensions(slopes, time, width**-0.5, query.dtype)
    query = torch.cat([query, units.expand(rows, heads, time, 8)], dim=-1)
    key = torch.cat([key, steps.expand(rows, -1, -1, -1)], dim=-1)
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(query, key, F.pad(value, (0, 8)), is_causal=True, scale=width**-0.5)[
            ..., :width
        ]


def lazily(make: Callable[[], Callable[[], Sequence[Tensor]]]) -> Callable[[], Sequence[Tensor]]:
    """A side whose preparation may fail or take long: it is prepared at the first run."""
    prepared = cache(make)
    return lambda: prepared()()


def window(report: Report, case: Case) -> None:
    """A causal window beside FlexAttention, with full causal flash attention as a yardstick."""
    mask: Mask = WindowMask(WINDOW - 1, 0)
    report.compare(
        f"window {WINDOW}, B={case.rows} T={case.time}",
        [
            Side(case.chosen(mask), case.ours(mask)),
            Side("FlexAttention", lazily(lambda: case.flex(windowed)), peer=True),
            Side("seqloom: tiles, as a CUDA graph", lazily(lambda: recorded(case.ours(mask)))),
            Side("full causal, SDPA flash", case.flash(), yardstick=True),
        ],
    )


def recorded(run: Callable[[], Sequence[Tensor]]) -> Callable[[], Sequence[Tensor]]:
    """The same as a CUDA graph: what is left when the host launches nothing."""
    found, graph, side = [], torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        found[:] = run()

    def replay() -> Sequence[Tensor]:
        graph.replay()
        return found

    return replay


def other_masks(report: Report, case: Case) -> None:
    """Further masks beside FlexAttention."""
    whole = Side("full causal, SDPA flash", case.flash(), yardstick=True)
    size = f"B={case.rows} T={case.time}"
    packed = Case(case.rows, case.time, documents=16)
    segments = packed.segments

    def same_document(b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (segments[b, i] == segments[b, j])

    document = Causal() & DocumentMask()
    others: list[tuple[str, Case, Mask, Callable[..., Tensor]]] = [
        ("16 packed documents", packed, document, same_document),
        (f"prefix {PREFIX}", case, Prefix(PREFIX) | Causal(), prefixed),
        (f"sparse {STRIDE}", case, Causal() & (BlockLocal(STRIDE) | Strided(STRIDE)), sparse),
    ]
    for name, of, mask, theirs in others:
        report.compare(
            f"{name}, {size}",
            [
                Side(of.chosen(mask), of.ours(mask)),
                Side("FlexAttention", lazily(partial(of.flex, theirs)), peer=True),
                whole,
            ],
        )
    shaw = {"bias": Shaw(*(torch.randn(33, WIDTH, device=DEVICE).bfloat16() for _ in range(2)))}
    report.compare(f"Shaw, causal, {size}", [Side(case.chosen(Causal(), **shaw), case.ours(Causal(), **shaw)), whole])


def additive(report: Report, rows: int, time: int, width: int) -> None:
    """Additive attention of one head beside its formula, compiled."""
    torch.manual_seed(0)
    vectors = [drawn(rows, 1, time, width) for _ in range(3)]
    weights = [(drawn(1, width, width) / width**0.5).detach().requires_grad_() for _ in range(2)]
    direction, upstream = drawn(1, width), torch.randn_like(vectors[0])
    places = places_of(Padded.of(torch.zeros(rows, time, 1, device=DEVICE)))

    def both(run: Callable[..., Tensor]) -> Callable[[], Sequence[Tensor]]:
        def once() -> Sequence[Tensor]:
            leaves = [*vectors, *weights, direction]
            output = run(*leaves)
            return [output, *torch.autograd.grad(output, leaves, upstream)]

        return once

    def ours(query: Tensor, key: Tensor, value: Tensor, *score: Tensor) -> Tensor:
        return attend(Request(query, key, value, places, places, score=Additive(*score), aligned=True))

    def formula(query: Tensor, key: Tensor, value: Tensor, left: Tensor, right: Tensor, u: Tensor) -> Tensor:
        inner = torch.tanh((query @ left)[:, :, :, None] + (key @ right)[:, :, None])
        return torch.softmax((inner * u[:, None, None]).sum(dim=-1), dim=-1) @ value

    chosen = choose(
        Request(*vectors, places, places, score=Additive(*weights, direction), aligned=True)  # type: ignore[misc,arg-type]
    ).name
    report.compare(
        f"additive, B={rows} T={time} d={width}",
        [
            Side(f"seqloom: {chosen}", both(ours)),
            Side("formula, torch.compile", both(torch.compile(formula, dynamic=False)), peer=True),
        ],
    )


def linear(report: Report, time: int) -> None:
    """Causal linear attention: its time must be linear."""
    vectors = [drawn(1, HEADS, time, WIDTH) for _ in range(3)]
    upstream = torch.randn_like(vectors[0])
    valid = torch.ones(1, time, dtype=torch.bool, device=DEVICE)
    sums = linear_attention.AttentionSums(
        torch.zeros(1, HEADS, WIDTH, WIDTH, device=DEVICE), torch.zeros(1, HEADS, WIDTH, device=DEVICE)
    )

    def once() -> Sequence[Tensor]:
        output, _ = linear_attention.causal(*vectors, valid, sums)
        return [output, *torch.autograd.grad(output, vectors, upstream)]

    def flash() -> Sequence[Tensor]:
        output = F.scaled_dot_product_attention(*vectors, is_causal=True)
        return [output, *torch.autograd.grad(output, vectors, upstream)]

    sides = [Side("seqloom: linear attention", once), Side("softmax attention, SDPA", flash, yardstick=True)]
    report.compare(f"linear attention, B=1 T={time}", sides)


def run(report: Report) -> None:
    """All tables of attention: first those with a figure to reach, then the others."""
    small, large = (partial(Case, *size) for size in SIZES)
    works: list[Callable[[], None]] = [
        lambda: additive(report, *ADDITIVE[-1]),
        lambda: window(report, large()),
        lambda: alibi(report, large()),
        lambda: window(report, small()),
        lambda: other_masks(report, large()),
        *(partial(linear, report, time_) for time_ in LONG),
        lambda: alibi(report, small()),
        lambda: full_attention(report, large()),
        lambda: full_attention(report, small()),
        *(partial(additive, report, *sizes) for sizes in ADDITIVE[:-1]),
    ]
    for work in works:
        work()
        clean()


def tune(only: Sequence[str]) -> None:
    """Time tile sizes of the Triton kernels one after another, at the longest size, as CUDA graphs."""
    rows, time_ = SIZES[-1]
    case = Case(rows, time_)
    for name, mask, more in (
        (f"window {WINDOW}", WindowMask(WINDOW - 1, 0), {}),
        ("causal ALiBi", Causal(), {"bias": Alibi(case.slopes)}),
    ):
        for function, backward in (("forward_blocks", False), ("query_blocks", True), ("key_blocks", True)):
            usual = getattr(attention_tiles, function)
            for sizes in TILES[function]:
                title, blocks = f"{name} {function} {sizes}", attention_tiles.TileSizes(*sizes)
                if only and not any(text in title for text in only):
                    continue
                setattr(attention_tiles, function, lambda *_, blocks=blocks: blocks)
                report_time(title, partial(tiled, case, case.request(mask, **more), backward))
            setattr(attention_tiles, function, usual)
    if only and not any(text in "additive" for text in only):
        return
    usual_blocks = attention_additive.BLOCKS
    rows, time_, width = ADDITIVE[-1]
    vectors = [drawn(rows, 1, time_, width) for _ in range(3)]
    score = Additive(*(drawn(1, width, width) for _ in range(2)), drawn(1, width))
    places = places_of(Padded.of(torch.zeros(rows, time_, 1, device=DEVICE)))
    asked = Request(*vectors, places, places, score=score, aligned=True)  # type: ignore[misc,arg-type]
    upstream = torch.randn_like(vectors[0])
    for sizes in ADDITIVE_TILES:
        attention_additive.BLOCKS = attention_additive.AdditiveSizes(*sizes)
        report_time(f"additive forward {sizes}", lambda: [attend(asked)])
        report_time(f"additive both {sizes}", lambda: torch.autograd.grad(attend(asked), vectors, upstream))
    attention_additive.BLOCKS = usual_blocks


TILES = {
    "forward_blocks": [
        (128, 64, 4, 3),
        (128, 128, 4, 3),
        (128, 128, 8, 3),
        (128, 64, 8, 3),
        (64, 64, 4, 3),
        (64, 32, 4, 3),
    ],
    "query_blocks": [
        (128, 64, 8, 3),
        (128, 64, 4, 3),
        (128, 128, 8, 2),
        (64, 64, 4, 3),
        (64, 128, 4, 2),
        (64, 32, 4, 3),
    ],
    "key_blocks": [(64, 128, 8, 3), (64, 128, 4, 3), (128, 128, 8, 2), (64, 64, 4, 3), (32, 128, 4, 3), (32, 64, 4, 3)],
}
ADDITIVE_TILES = [
    (64, 64, 16, 128, 4),
    (64, 64, 16, 64, 4),
    (64, 64, 32, 64, 4),
    (64, 64, 8, 128, 4),
    (64, 64, 16, 128, 8),
    (64, 32, 16, 128, 4),
    (32, 64, 16, 128, 4),
    (128, 64, 16, 128, 4),
]


def tiled(case: Case, make: Callable[..., Request], backward: bool) -> Sequence[Tensor]:
    """One pass of the kernel `tiles`; with the backward pass if asked."""
    with using(attention="tiles"):
        output = attend(make(*case.vectors))
    return torch.autograd.grad(output, case.vectors, case.upstream) if backward else [output]


def report_time(name: str, run: Callable[[], Sequence[Tensor]]) -> None:
    """Print the milliseconds of a variant, or that it failed."""
    try:
        begin = time.perf_counter()
        run()
        first = time.perf_counter() - begin
        replay = recorded(run)
        best = min(elapsed(replay, 10) for _ in range(3))
        print(f"{name:60} {best:8.3f} ms   (first call {first:.1f} s)", flush=True)
    except Exception:
        print(f"{name:60} failed")
        traceback.print_exc(limit=-3)


if __name__ == "__main__":
    if sys.argv[1:2] == ["tune"]:
        tune(sys.argv[2:])
    else:
        run(Report())
