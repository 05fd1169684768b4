"""The Triton kernels equal the plain operator: interpreted on the CPU, compiled under `make test-gpu`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from seqloom.errors import KernelError
from seqloom.nn.ops import attention_additive, attention_single, attention_tiles, losses_fused
from seqloom.nn.ops import linear as linear_module
from seqloom.nn.ops.attention import Request, plain
from seqloom.nn.ops.attention_fast import attend, reason_against
from seqloom.nn.ops.attention_single import SINGLE, write_fused, write_plain
from seqloom.nn.ops.attention_tiles import TileSizes
from seqloom.nn.ops.kernels import on_its_device, recorded_for_replay, using
from seqloom.nn.ops.losses import linear_cross_entropy
from seqloom.nn.ops.losses_fused import fused_linear_cross_entropy
from seqloom.nn.ops.masks import (
    BlockLocal,
    Causal,
    DocumentMask,
    Edges,
    Everything,
    Mask,
    Padding,
    Prefix,
    Strided,
    WindowMask,
)
from seqloom.nn.ops.relations import Alibi, Buckets, Shaw, alibi_slopes
from seqloom.nn.ops.scores import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.types import Padded, places_of
from tolerances import assert_equal_up_to_rounding

pytest.importorskip("triton")  # there is none for some systems
pytestmark = pytest.mark.gpu
ON_GPU = torch.get_default_device().type == "cuda"
DTYPES = (torch.float32, torch.bfloat16, torch.float16) if ON_GPU else (torch.float32,)

MASKS: dict[str, Mask] = {
    "everything": Everything(),
    "causal": Causal(),
    "padding": Padding(),
    "window & padding": WindowMask(9, 4) & Padding(),
    "causal & document & padding": Causal() & DocumentMask() & Padding(),
    "document & block-local": DocumentMask() & BlockLocal(7),
    "sparse": Causal() & (BlockLocal(4) | Strided(5)) & DocumentMask(),
    "prefix | causal": (Prefix(21) | Causal()) & Padding(),
    "prefix & document": Prefix(3) & DocumentMask(),
    "strided": Strided(3) & WindowMask(5, -1),
    "nothing": WindowMask(0, 0) & WindowMask(-2, 5),
}

BIASES = ("none", "alibi", "shaw")
SINGLE_BIASES = ("none", "alibi", "t5")  # Shaw's values are refused
SPARSE = {"sparse": 1, "strided": 2}  # masks whose kernels are compiled apart


def on_a_gpu(*kinds: int) -> torch.dtype:
    """The dtype of a case: on a GPU every kind of case has another one, because each pair would be compiled anew."""
    return DTYPES[sum(kinds) % len(DTYPES)]


def sampled(count: int) -> pytest.MarkDecorator:
    """So many cases where kernels are interpreted, and all on a GPU."""
    return pytest.mark.sampled(1000 if ON_GPU else count)


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Triton interpret loops with NumPy 2.4, and prepare its language once a launch, not once a call."""
    if ON_GPU:
        return
    import triton.language as tl
    from triton.runtime import interpreter

    def number(tensor: type, scope: Any, usual: Any = interpreter._patch_lang_tensor) -> None:
        usual(tensor, scope)
        # NumPy no longer turns an array of one element into a number
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    everything = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", number)
    monkeypatch.setattr(interpreter, "_patch_lang", lambda _, usual=interpreter._patch_lang: usual(everything))
    monkeypatch.setattr(
        interpreter.InterpretedFunction, "__call__", lambda self, *args, **more: self.rewrite()(*args, **more)
    )


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, the last one short, in a sequence that an interpreter takes in a moment."""
    if not ON_GPU:
        small_tiles(monkeypatch, 16)
        small = attention_additive.AdditiveSizes(queries=16, keys=16, rows=16, dimensions=4, unroll=2)
        monkeypatch.setattr(attention_additive, "BLOCKS", small)
        monkeypatch.setattr(attention_additive, "_ROOM", 2 * 16 * 32)  # sixteen queries at a time
        for name, size in {
            "_MOST": 12 * 64,
            "_LEVEL_BLOCK": 32,
            "_SLOPE_BLOCK": 32,
            "_SLOPE_ROWS": 4,
            "_GROUP": 8,
        }.items():
            monkeypatch.setattr(losses_fused, name, size)


def sequence(mask: Mask, *, heads: int = 1, width: int = 20, time: int | None = None) -> Request:
    torch.manual_seed(0)
    time = time or (333 if ON_GPU else 35)
    packed = any(isinstance(part, DocumentMask) for part in mask.parts())
    starts = torch.arange(time) >= torch.tensor([[time // 3], [time // 2]])
    segments = starts.long() + (torch.arange(time) > time - 12) if packed else None
    places = places_of(Padded.of(torch.zeros(2, time, 1), torch.tensor([time, max(1, time - 9)]), segments))
    query, key, value = (torch.randn(2, time, heads, width).transpose(1, 2) for _ in range(3))  # as a mixer splits them
    return Request(query, key, value, places, places, mask=mask, aligned=True)


def with_gradients(run: object, asked: Request, dtype: torch.dtype) -> list[Tensor]:
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in asked.tensors()]
    if isinstance(asked.bias, Alibi):
        leaves[-1] = leaves[-1].detach()  # slopes are constants
    output = run(asked.refill(iter(leaves)))  # type: ignore[operator]
    torch.manual_seed(1)
    upstream = torch.randn(output.shape).to(dtype)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [output.detach(), *torch.autograd.grad(output, wanted, upstream)]


def assert_equal_to_plain(kernel: str, asked: Request, dtype: torch.dtype) -> None:
    rounded = asked.refill(iter([tensor.to(dtype).double() for tensor in asked.tensors()]))
    expected = with_gradients(plain, rounded, torch.float64)
    with using(attention=kernel):
        found = with_gradients(attend, asked, dtype)
    floor = max(float(one.abs().max()) for one in expected[1:]) / 4
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if dtype == torch.float16:  # the table has no row for it: between the other two
            one, other = one.bfloat16(), other.bfloat16()
        assert_equal_up_to_rounding(
            one, other.to(one.dtype), f"{kernel} {dtype} {number}", floor=floor if number else 0
        )


def small_tiles(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for name in ("forward_blocks", "query_blocks", "key_blocks"):
        monkeypatch.setattr(attention_tiles, name, lambda *_: TileSizes(size, size))


@sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", MASKS)
def test_tiles_equal_plain(mask: str, bias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if ON_GPU:
        small_tiles(monkeypatch, 32)  # they are compiled in a third of the time
    dtype = on_a_gpu(SPARSE.get(mask, 0), BIASES.index(bias))
    asked = sequence(MASKS[mask])
    if bias == "alibi":
        asked = asked._replace(bias=Alibi(torch.tensor(alibi_slopes(1))))
    if bias == "shaw":
        asked = asked._replace(bias=Shaw(*torch.randn(2, 33 if ON_GPU else 9, 20)))
    assert_equal_to_plain("tiles", asked, dtype)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU: run it with make test-gpu")
@pytest.mark.parametrize("bias", ["alibi", "shaw"])
def test_tiles_of_the_usual_sizes_equal_plain(bias: str) -> None:
    extra = Alibi(torch.tensor(alibi_slopes(1))) if bias == "alibi" else Shaw(*torch.randn(2, 33, 64))
    assert_equal_to_plain("tiles", sequence(Causal(), width=64)._replace(bias=extra), torch.bfloat16)


SCORES: dict[str, Score] = {"dot": Dot(), "scaled": ScaledDot(), "bilinear": Bilinear(torch.zeros(0))}


@sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("width", [64, 128, pytest.param(65, marks=pytest.mark.soak)] if ON_GPU else [16])
def test_tiles_take_every_dot_product_and_width(width: int, score: str) -> None:
    dtype = torch.bfloat16 if width in (64, 128) else torch.float32
    asked = sequence(Causal() & WindowMask(11, 0), width=width)
    scoring = Bilinear(torch.randn(1, width, width) / width) if score == "bilinear" else SCORES[score]
    if score == "dot":
        asked = asked._replace(query=asked.query / 4)
    assert_equal_to_plain("tiles", asked._replace(score=scoring), dtype)


def additive(asked: Request, inner: int) -> Request:
    heads, width = asked.query.shape[1], asked.query.shape[3]
    left, right = torch.randn(2, heads, width, inner) / width**0.5
    return asked._replace(score=Additive(left, right, torch.randn(heads, inner)))


@sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", [*DTYPES[:2], *(pytest.param(one, marks=pytest.mark.soak) for one in DTYPES[2:])], ids=str
)
@pytest.mark.parametrize("mask", ["everything", "padding", "causal & document & padding", "prefix | causal"])
def test_additive_equals_plain(mask: str, dtype: torch.dtype) -> None:
    inner = {torch.float32: 7, torch.bfloat16: 128, torch.float16: 64}[dtype] if ON_GPU else 5
    asked = sequence(MASKS[mask], time=None if ON_GPU else 21)
    assert_equal_to_plain("additive", additive(asked, inner), dtype)


@pytest.mark.slow
def test_additive_reads_another_sequence_with_padding_anywhere() -> None:
    asked, other = sequence(Padding(), time=19), sequence(Padding(), time=17)
    holes = other.key_places._replace(valid=torch.rand(2, 17) < 0.6)
    asked = asked._replace(key=other.key, value=other.value, key_places=holes, aligned=False)
    assert_equal_to_plain("additive", additive(asked, 7), torch.float32)


@sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("longest", [1024, 16], ids=["one part", "parts"])
@pytest.mark.parametrize("bias", SINGLE_BIASES)
@pytest.mark.parametrize("mask", ["everything", "window & padding", "sparse", "nothing"])
def test_a_single_query_equals_plain(mask: str, bias: str, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_single, "_LONGEST", longest)
    monkeypatch.setattr(attention_single, "_TILE", 512)
    monkeypatch.setattr(attention_single, "_SCAN", 16)
    dtype = on_a_gpu(SINGLE_BIASES.index(bias))
    whole = sequence(MASKS[mask], heads=2, time=50)
    if bias == "alibi":
        whole = whole._replace(bias=Alibi(torch.tensor(alibi_slopes(2))))
    if bias == "t5":
        whole = whole._replace(bias=Buckets(torch.randn(8, 2), False, 20))
    for query in (0, 49):
        asked = whole.rows(query, query + 1)
        rounded = [tensor.to(dtype) for tensor in asked.tensors()]
        with using(attention="single"), torch.no_grad():
            found = attend(asked.refill(iter(rounded)))
        expected = plain(asked.refill(iter([tensor.double() for tensor in rounded])))
        if dtype == torch.float16:
            found = found.bfloat16()
        assert_equal_up_to_rounding(found, expected.to(found.dtype), f"{mask} {bias} {dtype} {query}")


@pytest.mark.parametrize("bias", [True, False])
def test_the_product_of_one_row_equals_plain_or_is_refused(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(linear_module, "_TILE", 64)
    monkeypatch.setattr(linear_module, "_WIDEST", 16)
    weight, shift = torch.randn(37, 40)[:, :37], torch.randn(37) if bias else None
    values = torch.randn(1, 1, 37)
    with torch.no_grad():
        found = linear_module.one_row(values, weight, shift)
    assert_equal_up_to_rounding(found, F.linear(values, weight, shift), "one row")
    with pytest.raises(KernelError, match="no gradient"):
        linear_module.one_row(values, weight, shift)
    for wrong, reason in ((values.expand(2, 1, 37), "one row"), (values.double(), "one dtype")):
        with torch.no_grad(), pytest.raises(KernelError, match=reason):
            linear_module.one_row(wrong, weight, shift)


def test_a_layer_with_hooks_of_any_kind_applies_itself() -> None:
    layer, values, calls = nn.Linear(3, 3), torch.randn(1, 1, 3), list[str]()
    plain = F.linear(values, layer.weight, layer.bias)
    register: dict[str, Callable[..., Any]] = {
        "before": layer.register_forward_pre_hook,
        "after": layer.register_forward_hook,
        "before all": register_module_forward_pre_hook,
        "after all": register_module_forward_hook,
    }
    with recorded_for_replay(), torch.no_grad():
        for name, hook in register.items():
            handle = hook(lambda *_, name=name: calls.append(name))
            assert_equal_up_to_rounding(linear_module.through(layer, values), plain, name)
            handle.remove()
        linear_module.through(layer, values)
    assert calls == list(register)


def test_a_single_query_has_its_kernel_where_its_launch_is_free() -> None:
    asked = sequence(Causal()).rows(3, 4)
    assert reason_against(SINGLE, asked) == "outside of CUDA graphs its launch costs more than it saves"
    with recorded_for_replay():
        assert reason_against(SINGLE, asked) is None
        with recorded_for_replay(False):
            assert reason_against(SINGLE, asked) is not None


def test_kernels_are_launched_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = list[Any]()

    @contextmanager
    def current(device: Any) -> Iterator[None]:
        entered.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "device", current)
    run, second = on_its_device(lambda _, more: (more, *entered)), torch.device("cuda", 1)
    assert run(SimpleNamespace(is_cuda=True, device=second), 5) == (5, second)
    entered.clear()
    assert run(torch.zeros(1, device="cpu"), 5) == (5,)


def test_a_key_and_a_value_are_written_as_by_the_plain_operator() -> None:
    torch.manual_seed(0)
    key, value = torch.randn(2, 3, 1, 2, 20).permute(2, 0, 1, 3, 4)[:, :, :, :1].expand(2, -1, -1, -1, -1)
    buffers = [[torch.zeros(2, 3, 9, 20)[:, :, :7] for _ in range(2)] for _ in range(2)]
    column = torch.tensor([6, 2])[:, None, None, None]
    for (keys, values), write in zip(buffers, (write_plain, write_fused), strict=True):
        write(keys, values, column, key, value + 1)
    assert torch.equal(buffers[0][0], buffers[1][0]) and torch.equal(buffers[0][1], buffers[1][1])
    assert buffers[0][0][0, :, 6].equal(key[0, :, 0])


def test_triton_kernels_refuse_what_they_cannot_compute() -> None:
    tiles, sums = sequence(Causal()), additive(sequence(Causal()), 4)
    learned = Alibi(torch.ones(1, requires_grad=True))
    edges = Edges(torch.tensor([[0, 1]]))
    cases = [
        ("tiles", tiles._replace(mask=edges), "not a range"),
        ("tiles", tiles._replace(mask=BlockLocal(4) | WindowMask(1, 1)), "not a range"),
        ("tiles", tiles._replace(mask=Strided(2) & Strided(3)), "more than one sparse pattern"),
        ("tiles", tiles._replace(aligned=False), "different sequences"),
        ("tiles", tiles._replace(dropout=0.1), "dropout"),
        ("tiles", tiles._replace(bias=learned), "no gradient for the slopes"),
        ("tiles", sums, "additive"),
        ("single", tiles, "one query for each row"),
        ("single", sums.rows(3, 4), "additive"),
        ("single", tiles.rows(3, 4)._replace(dropout=0.1), "dropout"),
        ("single", tiles.rows(3, 4)._replace(bias=Shaw(*torch.randn(2, 9, 20))), "Shaw"),
        ("single", tiles.rows(3, 4)._replace(bias=learned), "no gradient"),
        ("tiles", sequence(Causal(), width=129), "at most 128"),
        ("tiles", tiles.refill(iter([one.double() for one in tiles.tensors()])), "float64"),
        ("additive", tiles, "only the additive score"),
        ("additive", sums._replace(mask=Strided(2)), "sparse"),
        ("additive", sums._replace(bias=learned), "neither a bias"),
        ("additive", sums._replace(aligned=False), "different sequences"),
    ]
    for kernel, asked, reason in cases:
        with using(attention=kernel), pytest.raises(KernelError, match=reason):
            attend(asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "bias", "smoothing", "weighted", "classes"),
    [
        (torch.float32, True, 0.1, True, 50),
        (torch.float32, False, 0.0, False, 64),
        (torch.float32, True, 0.0, True, 3),
        (torch.bfloat16, True, 0.1, True, 50),
    ],
    ids=str,
)
def test_the_fused_loss_equals_plain(
    dtype: torch.dtype, bias: bool, smoothing: float, weighted: bool, classes: int
) -> None:
    torch.manual_seed(0)
    rows = 2000 if ON_GPU else 21
    classes = classes * (200 if ON_GPU else 1)
    inputs = [torch.randn(rows, 8), torch.randn(classes, 8), torch.randn(classes)][: 2 + bias]
    targets, weights = torch.randint(classes, (rows,)), torch.rand(rows)
    weights[::3] = 0
    if weighted:
        targets[::3] = -100
    more = {"smoothing": smoothing, "weights": weights if weighted else None}
    found, expected = [], []
    for made, run, kind in (
        (found, fused_linear_cross_entropy, dtype),
        (expected, linear_cross_entropy, torch.float64),
    ):
        leaves = [one.to(dtype).to(kind).requires_grad_() for one in inputs]
        if weighted and run is fused_linear_cross_entropy:  # rows of weight zero do not matter
            leaves[0] = leaves[0].detach().index_fill(0, torch.arange(0, rows, 3), torch.nan).requires_grad_()
        loss = run(leaves[0], leaves[1], leaves[2] if bias else None, targets, **more)
        made += [loss.weight, loss.total, *torch.autograd.grad(loss.total / 3, leaves)]
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert_equal_up_to_rounding(one.to(dtype), other.to(dtype), f"{dtype} {number}")


@pytest.mark.slow
def test_the_fused_loss_under_autocast_keeps_float32_gradients_and_refuses_other_dtypes() -> None:
    torch.manual_seed(0)
    x, table, targets = torch.randn(9, 8), torch.randn(11, 8, requires_grad=True), torch.randint(11, (9,))
    with torch.autocast(x.device.type, torch.bfloat16):
        found, expected = (
            torch.autograd.grad(run(x, table, None, targets).total, table)[0]
            for run in (fused_linear_cross_entropy, linear_cross_entropy)
        )
    assert found.dtype == torch.float32
    assert_equal_up_to_rounding(found.bfloat16(), expected.bfloat16(), "autocast")
    with torch.no_grad():
        assert not fused_linear_cross_entropy(x, table, None, targets).total.requires_grad
    with pytest.raises(KernelError, match="float64"):
        fused_linear_cross_entropy(x.double(), table.double(), None, targets)
    total = fused_linear_cross_entropy(x, table, None, targets).total
    with pytest.raises(KernelError, match="no second derivative"):
        torch.autograd.grad(total, table, create_graph=True)


@pytest.mark.parametrize("kernel", ["tiles", "additive"])
def test_a_second_derivative_is_refused(kernel: str) -> None:
    asked = sequence(Causal(), time=4)
    asked = additive(asked, 4) if kernel == "additive" else asked
    leaf = asked.query.requires_grad_()
    with using(attention=kernel):
        output = attend(asked)
    with pytest.raises(KernelError, match="no second derivative"):
        torch.autograd.grad(output.sum(), leaf, create_graph=True)


def test_an_operator_without_gradients_needs_none() -> None:
    short = sequence(Causal(), time=5)
    for kernel, asked in (("tiles", short), ("additive", additive(short, 4))):
        with using(attention=kernel), torch.no_grad():
            assert_equal_up_to_rounding(attend(asked), plain(asked), kernel)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU: run it with make test-gpu")
@pytest.mark.parametrize("kernel", ["tiles", "additive"])
def test_memory_is_linear_in_the_length(kernel: str) -> None:
    def peak(length: int) -> int:
        asked = sequence(WindowMask(255, 0), heads=1, width=64, time=length)
        asked = additive(asked, 64) if kernel == "additive" else asked
        with_gradients(lambda one: attend(one), asked, torch.bfloat16)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with using(attention=kernel):
            with_gradients(attend, asked, torch.bfloat16)
        return torch.cuda.max_memory_allocated() - before

    assert peak(16384) <= 2.2 * peak(8192) + 2**20


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU: run it with make test-gpu")
@pytest.mark.parametrize("kernel", ["tiles", "additive", "slopes"])
def test_kernels_can_be_compiled_from_outside(kernel: str) -> None:
    asked = sequence(Causal(), time=256)
    asked = additive(asked, 16) if kernel == "additive" else asked
    if kernel == "slopes":
        asked = asked._replace(bias=Alibi(torch.tensor(alibi_slopes(1))))

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with using(attention=kernel):
            return attend(asked._replace(query=query, key=key, value=value))

    vectors = [tensor.bfloat16() for tensor in (asked.query, asked.key, asked.value)]
    asked = asked.refill(iter([tensor.bfloat16() for tensor in asked.tensors()]))
    assert_equal_up_to_rounding(torch.compile(run)(*vectors), run(*vectors), kernel)
