"""Whole training steps on one GPU, against torch.nn and transformers in the same run.

    lstm, gru, rnn   language model of PTB-medium size (2 x 650, 10,000 words, 20 x 35 tokens, float32, state carried)
    gpt              GPT-2 of 124 M parameters (bf16 autocast, 32 x 1,024 tokens)
    translate        encoder-decoder of base size (6 + 6 layers, width 512) on ragged pairs (bf16 autocast)
    encode           classifier of ragged texts by an encoder (6 layers, width 512, bf16 autocast)

Contestants of a case take turns: a round is a few steps of each, and the median over rounds counts. Before that, both
sides compute the losses of the same batches from the same weights, where their architectures agree.

    python -m benchmarks.gpu.training [CASE...] [--profile] [--quick] [--tiny] [--by-hand] [--no-compilers]

With --by-hand the recurrent layers of torch.nn are also recorded as a CUDA graph; with --no-compilers, ragged batches
are not compiled, which takes minutes.
With --tiny all sizes are tiny, to try the program; that also works without a GPU, where no graphs are recorded.

Appends one line of JSON for each row of the tables to benchmarks/gpu/results.jsonl (or in $OUT), unless tiny.
"""

import copy
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.gpu.comparison import commit
from msgspec.structs import replace
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import (
    AdamWConfig,
    AnyBatching,
    ByLengthConfig,
    ConstantConfig,
    StreamsConfig,
    TrainingConfig,
)
from seqloom.data.order import Order
from seqloom.nn.types import Batch, Loss, Padded, Pair
from seqloom.recipes.families import Dimensions
from seqloom.tasks.task import Division
from seqloom.training.devices import Alone, choose_device
from seqloom.training.recorded import RecordedUpdate
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

RESULTS = Path(os.environ.get("OUT", "benchmarks/gpu")) / "results.jsonl"
CLIP, LR = 1.0, 1e-4
TINY = "--tiny" in sys.argv
DEVICE: Any = "cuda" if torch.cuda.is_available() else "cpu"
AnyBatch = Batch[Any, Any]
Step = Callable[[], Any]


class Contestant(NamedTuple):
    """One way to take a step: all of its steps in a round, and the real target tokens of these."""

    name: str
    step: Step
    tokens: int


def synchronized() -> float:
    """The time when all kernels have ended."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def compare(case: str, contestants: list[Contestant], *, bar: str, rounds: int = 9, steps: int = 4) -> None:
    """Print and append the tokens per second of each contestant, in turns; ratios are to the contestant `bar`."""
    speeds: dict[str, list[float]] = {one.name: [] for one in contestants}
    for _ in range(rounds):
        for one in contestants:
            began = synchronized()
            for _ in range(steps):
                one.step()
            speeds[one.name].append(steps * one.tokens / (synchronized() - began))
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    print(f"\n{case}: {rounds} rounds of {steps} steps in turns; target tokens per second")
    for name, found in speeds.items():
        ratio = medians[name] / medians[bar]
        print(f"  {name:<52} {medians[name]:>11,.0f}  ({min(found):,.0f} to {max(found):,.0f})  {ratio:5.2f}x")
        record = {"case": case, "name": name, "tokens_per_second": medians[name], "bar": bar, "ratio": ratio}
        keep(record | {"low": min(found), "high": max(found)})


def keep(record: dict[str, Any]) -> None:
    """Append a row to the results, with the machine; figures of tiny sizes say nothing."""
    if TINY:
        return
    record |= {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__), "commit": commit()}
    with RESULTS.open("a") as file:
        file.write(json.dumps(record) + "\n")


def warmed(one: Contestant, times: int = 5) -> Contestant:
    """The contestant after some steps, with the time that the first took and the memory that it needs."""
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before, began = torch.cuda.memory_allocated(), synchronized()
    for number in range(times):
        one.step()
        if number == 0:
            first = synchronized() - began
    print(f"  {one.name}: first step {first:.1f} s, {(torch.cuda.max_memory_allocated() - before) / 2**30:.1f} GiB")
    return one


def profiled(one: Contestant) -> None:
    """Print the kernels of a step that take longest."""
    if "--profile" not in sys.argv or DEVICE != "cuda":
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            one.step()
        torch.cuda.synchronize()
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows)
    print(f"  kernels of {one.name}: {total / 3e3:.2f} ms a step, {sum(row.count for row in rows) // 3} kernels")
    for row in rows[:40]:
        print(f"    {row.self_device_time_total / 3e3:8.3f} ms {row.count // 3:>5} x  {row.key[:130]}")


class Read:
    """As much of a task as a step needs; a model that carries its state reads on."""

    def __init__(self, *, carries: bool = False, one_shape: bool = True) -> None:
        self.carries, self.one_shape = carries, one_shape

    def has_one_shape(self, batching: AnyBatching) -> bool:
        """Whether all batches have one shape."""
        return self.one_shape

    def divided(self, model: nn.Module, pieces: int) -> Division:
        """A step in micro-batches."""
        return Division(self, pieces)  # type: ignore[arg-type]  # the parts that a step needs

    def loss(self, model: Any, batch: AnyBatch, state: Any) -> tuple[Loss, Any]:
        """The loss of a batch, and the state after it."""
        if self.carries:
            found: tuple[Loss, Any] = model.continued_loss(batch, state)
            return found
        return model.loss(batch), None


def ours(
    name: str,
    model: nn.Module,
    batches: list[AnyBatch],
    config: TrainingConfig,
    precision: Any,
    *,
    kind: type[Update] = RecordedUpdate,
    task: Read | None = None,
    tokens: int,
    each: int = 1,
    read_every: int = 10,
) -> Contestant:
    """Steps of the training loop over batches, `each` in a round's step; 0: the caller reads the statistics."""
    task, config = task or Read(), replace(config, cuda_graphs=kind is RecordedUpdate and DEVICE == "cuda")
    kind = kind if DEVICE == "cuda" else Update
    update = kind(task, model, config, Alone(), choose_device(DEVICE, precision))  # type: ignore[arg-type]
    run_state, numbers = TrainingState(seed=1), count()

    def step() -> None:
        for _ in range(each):
            number = next(numbers)
            run_state.step = number
            carried = task.carries and number > 0
            update.step(batches[number % len(batches)], carried=carried, run_state=run_state, lr=config.lr)
            if read_every and (number + 1) % read_every == 0:
                update.read()
                for text in update.notices():
                    print(f"  {name}: {text}")

    contestant = Contestant(name, step, tokens)
    contestant.step.update = update  # type: ignore[attr-defined]  # to read losses
    return contestant


def copied(model: nn.Module) -> nn.Module:
    """A copy on the GPU, whose weights are laid out for it again."""
    return copy.deepcopy(model).to(DEVICE)


def graphed(step: Step, warm_up: int = 3) -> Step:
    """A step of a peer as one CUDA graph, as torch's documentation does it."""
    if DEVICE != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replayed(_owner: Step = step) -> None:  # the graph reads the weights of the step, which must live as long
        graph.replay()

    return replayed


# Recurrent language models

WORDS, WIDTH, ROWS, TIME = (200, 32, 4, 7) if TINY else (10_000, 650, 20, 35)
STREAMS = TrainingConfig(
    optimizer=AdamWConfig(weight_decay=0.0),
    schedule=ConstantConfig(),
    lr=LR,
    clip_norm=CLIP,
    batching=StreamsConfig(batch_rows=ROWS, row_length=TIME),
)
LAYERS: dict[str, type[nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class BareRecurrent(nn.Module):
    """The same model in torch.nn."""

    def __init__(self, family: str, like: Any, rate: float, between: float) -> None:
        super().__init__()
        self.table = nn.Parameter(like.decoder.input.table.detach().clone())  # tied to the output
        self.bias = nn.Parameter(like.head.bias.detach().clone())
        self.layers = LAYERS[family](WIDTH, WIDTH, 2, dropout=between, batch_first=True)
        self.enter, self.leave = nn.Dropout(rate), nn.Dropout(between)
        for number, block in enumerate(like.decoder.layers):
            for theirs, mine in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), block.mixer.weights, strict=True):
                getattr(self.layers, f"{theirs}_l{number}").data.copy_(mine)

    def forward(self, tokens: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The scores and the next state."""
        embedded = self.enter(nn.functional.embedding(tokens, self.table))
        y, after = self.layers(embedded, tuple(state) if len(state) == 2 else state[0])
        after = list(after) if isinstance(after, tuple) else [after]
        return nn.functional.linear(self.leave(y), self.table, self.bias), after


def bare_recurrent(
    name: str, model: BareRecurrent, tokens: Tensor, *, fused: bool, captured: bool
) -> tuple[Contestant, list]:
    """A plain loop; the state is carried in place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, fused=fused, capturable=captured)
    states = 2 if isinstance(model.layers, nn.LSTM) else 1
    state, losses = [torch.zeros(2, ROWS, WIDTH, device=DEVICE) for _ in range(states)], []
    place, numbers = torch.zeros_like(tokens[0]), count()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        scores, after = model(place[:, :-1], state)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), place[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimizer.step()
        for kept, new in zip(state, after, strict=True):
            kept.copy_(new.detach())
        losses[:] = [loss.detach()]

    run = graphed(step) if captured else step

    def taken() -> None:
        place.copy_(tokens[next(numbers) % len(tokens)])
        run()

    return Contestant(name, taken, ROWS * TIME), losses


def recurrent(family: str) -> None:
    """Run the case of a family."""
    torch.manual_seed(0)
    config = recipes.language_model(family, vocab_size=WORDS, size=Dimensions("base", width=WIDTH))
    model = config.build().to(DEVICE)
    tokens = torch.randint(5, WORDS, (8, ROWS, TIME + 1), device=DEVICE)
    batches = [Batch(Padded.of(one[:, :-1].cpu()), one[:, 1:].contiguous().cpu()) for one in tokens]
    same_losses(family, model, batches, tokens)

    def contestant(name: str, kind: type[Update]) -> Contestant:
        options = {"kind": kind, "task": Read(carries=True), "tokens": ROWS * TIME}
        return ours(name, copied(model), batches, STREAMS, "float32", **options)

    def peer(name: str, *, fused: bool, captured: bool = False) -> Contestant:
        bare = BareRecurrent(family, model, 0.2, 0.3).to(DEVICE)
        return bare_recurrent(name, bare, tokens, fused=fused, captured=captured)[0]

    bar = f"torch.nn.{LAYERS[family].__name__} loop"
    field = [
        peer(bar, fused=False),
        peer("the same, fused AdamW", fused=True),
        contestant("seqloom, plain step", Update),
        contestant("seqloom, recorded step (--cuda-graphs)", RecordedUpdate),
    ]
    if "--by-hand" in sys.argv:
        field.insert(2, peer("the same, one CUDA graph by hand", fused=True, captured=True))
    for one in field:
        warmed(one, 3 if TINY else 30)
    profiled(next(one for one in field if one.name == "seqloom, plain step"))  # a recorded one would crash the profiler
    compare(f"{family}, PTB-medium, B20 T35, float32", field, bar=bar, steps=50)


def same_losses(family: str, model: nn.Module, batches: list[AnyBatch], tokens: Tensor) -> None:
    """Print the losses of both sides over 16 steps without dropout."""
    mine = copied(model)
    for module in mine.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    step = ours("", mine, batches, STREAMS, "float32", task=Read(carries=True), tokens=1, read_every=0).step
    bare = BareRecurrent(family, model, 0.0, 0.0).to(DEVICE)
    peer, losses = bare_recurrent("", bare, tokens, fused=True, captured=False)
    found, expected = [], []
    for _ in range(16):
        step()
        tally = step.update.read()  # type: ignore[attr-defined]
        found.append(tally.loss / max(1, tally.weight))
        peer.step()
        expected.append(float(losses[0]))
    furthest = max(abs(one - other) for one, other in zip(found, expected, strict=True))
    print(f"  losses of 16 steps: ours {found[0]:.5f} to {found[-1]:.5f}, furthest from torch.nn {furthest:.2e}")
    assert furthest < 5e-3, (found, expected)


# GPT-2

GPT_ROWS, GPT_TIME, GPT_WORDS = (4, 32, 300) if TINY else (32, 1_024, 50_257)
GPT_SIZE = (
    Dimensions("base", width=32, layers=2, heads=2) if TINY else Dimensions("base", width=768, layers=12, heads=12)
)
PACKED = TrainingConfig(
    optimizer=AdamWConfig(weight_decay=0.1), schedule=ConstantConfig(), lr=LR, clip_norm=CLIP, batching=StreamsConfig()
)


def gpt_config(dropout: float = 0.0) -> Any:
    """GPT-2 small: the recipe at its size."""
    config = recipes.language_model("gpt", vocab_size=GPT_WORDS, size=GPT_SIZE)
    layers = tuple(replace(layer, dropout=dropout) for layer in config.decoder.layers)
    decoder = replace(config.decoder, layers=layers, dropout=dropout, max_length=1_024)
    return replace(config, decoder=decoder)


def as_transformers(model: Any, **settings: Any) -> Any:
    """The same weights in transformers' GPT-2; our output bias is zero at the start, and it has none."""
    from transformers import GPT2Config, GPT2LMHeadModel  # the peer is optional

    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": GPT_WORDS, "n_embd": GPT_SIZE.width, "n_layer": GPT_SIZE.layers, "n_head": GPT_SIZE.heads}
    sizes |= {"bos_token_id": 0, "eos_token_id": 0} if TINY else {}
    peer = GPT2LMHeadModel(
        GPT2Config(**{**none, **sizes, "activation_function": "gelu", "use_cache": False, **settings})
    )
    state = {"transformer.wte.weight": model.decoder.input.table, "lm_head.weight": model.decoder.input.table}
    state["transformer.wpe.weight"] = model.decoder.entry[0].table
    for number, block in enumerate(model.decoder.layers):
        at, heads = f"transformer.h.{number}.", block.mixer.heads
        linears = (heads.query, heads.key, heads.value)
        state[f"{at}attn.c_attn.weight"] = torch.cat([one.weight for one in linears]).T
        state[f"{at}attn.c_attn.bias"] = torch.cat([one.bias for one in linears])
        named = {"attn.c_proj": heads.output, "mlp.c_fc": block.feed_forward.inward}
        for name, linear in (named | {"mlp.c_proj": block.feed_forward.outward}).items():
            state[f"{at}{name}.weight"], state[f"{at}{name}.bias"] = linear.weight.T, linear.bias
        for name, norm in (("ln_1", block.around.norm), ("ln_2", block.around_feed_forward.norm)):
            state[f"{at}{name}.weight"], state[f"{at}{name}.bias"] = norm.weight, norm.bias
    final = model.decoder.exit[0].module
    state["transformer.ln_f.weight"], state["transformer.ln_f.bias"] = final.weight, final.bias
    peer.load_state_dict(state, strict=False)
    return peer.to(DEVICE)


def peer_gpt(
    name: str, peer: Any, tokens: Tensor, targets: Tensor, *, compiled: bool, fused: bool = True
) -> Contestant:
    """A plain loop over transformers' model, its loss from its scores."""
    optimizer = torch.optim.AdamW(peer.parameters(), lr=LR, weight_decay=0.1, fused=fused)

    def loss_of(read: Tensor, wanted: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            scores = peer(input_ids=read).logits
            return nn.functional.cross_entropy(scores.flatten(0, 1).float(), wanted.flatten())

    run = torch.compile(loss_of) if compiled else loss_of

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = run(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(peer.parameters(), CLIP)
        optimizer.step()
        return loss

    return Contestant(name, step, tokens.numel())


def gpt() -> None:
    """Run the case."""
    rows = 8 if "--quick" in sys.argv else GPT_ROWS
    torch.manual_seed(0)
    model = gpt_config().build().to(DEVICE)
    print(f"  {sum(weight.numel() for weight in model.parameters()) / 1e6:.1f} M parameters")
    tokens = torch.randint(5, GPT_WORDS, (2, rows, GPT_TIME), device=DEVICE)
    batch = Batch(Padded.of(tokens[0].cpu()), tokens[1].cpu())
    with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
        mine = float(model.loss(Batch(Padded.of(tokens[0]), tokens[1])).mean)
        scores = as_transformers(model)(input_ids=tokens[0][:4]).logits
        part = float(model.loss(Batch(Padded.of(tokens[0][:4]), tokens[1][:4])).mean)
        theirs = float(nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens[1][:4].flatten()))
    print(f"  loss {mine:.4f}; on four rows {part:.4f}, transformers {theirs:.4f}")
    assert abs(part - theirs) < 0.02, "the two models differ"

    def contestant(name: str, **changes: Any) -> Contestant:
        config = replace(PACKED, **{key: value for key, value in changes.items() if key == "compile"})
        precision = changes.get("precision", "bf16")
        return ours(name, copied(model), [batch], config, precision, tokens=tokens[0].numel())

    makers: list[Callable[[], Contestant]] = [
        lambda: peer_gpt("transformers, compiled, fused AdamW", as_transformers(model), *tokens, compiled=True),
        lambda: contestant("seqloom, compiled", compile=True),
        lambda: contestant("seqloom, not compiled"),
    ]
    if "--quick" not in sys.argv:
        makers.append(
            lambda: peer_gpt("transformers, eager, fused AdamW", as_transformers(model), *tokens, compiled=False)
        )
    field = tried(makers)
    for one in field:
        if one.name.startswith("seqloom"):
            profiled(one)
    told_graphs()
    compare("gpt, GPT-2 124M, B32 T1024, bf16", field, bar=field[0].name, rounds=7)


def tried(makers: list[Callable[[], Contestant]], times: int = 5) -> list[Contestant]:
    """The contestants that can be made and warmed up; the others are printed with their traceback."""
    field = []
    for make in makers:
        try:
            field.append(warmed(make(), times))
        except Exception:
            traceback.print_exc()
            torch.cuda.empty_cache()
    return field


def told_graphs() -> None:
    """Print how torch.compile has split what it compiled."""
    counters = torch._dynamo.utils.counters
    print(f"  torch.compile: {dict(counters['stats'])}; breaks: {dict(counters['graph_break'])}"[:2_000])


# Encoder-decoder

PAIRS, ROWS_OF_PAIRS, TARGET_WORDS = (64, 8, 300) if TINY else (8_192, 256, 32_000)


def ragged_pairs() -> np.ndarray:
    """[N,2] lengths of source and target as in translation data: most short, some long, similar on both sides."""
    draw = np.random.default_rng(0)
    source = np.clip(np.exp(draw.normal(3.1, 0.4, PAIRS)), 3, 52).astype(np.int64)
    return np.stack([source, np.clip(source * draw.normal(1.05, 0.15, PAIRS), 3, 58).astype(np.int64)], axis=1)


def pair_batches(sizes: np.ndarray, groups: list[np.ndarray]) -> list[AnyBatch]:
    """Batches of random tokens with these lengths."""

    def side(lengths: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.randint(5, TARGET_WORDS, (len(lengths), int(lengths.max()))), torch.from_numpy(lengths)

    made = []
    for rows in groups:
        source, target = (side(sizes[rows, number]) for number in (0, 1))
        pair = Pair(Padded.of(*source), Padded.of(*target))
        made.append(Batch(pair, torch.randint(5, TARGET_WORDS, target[0].shape) * pair.target.valid))
    return made


def marian() -> Any:
    """transformers' Marian model of base size."""
    from transformers import MarianConfig, MarianMTModel  # the peer is optional

    width = 32 if TINY else 512
    sizes = {"d_model": width, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}
    sizes["max_position_embeddings"] = 256
    layers = {"encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8}
    tokens = {"vocab_size": TARGET_WORDS, "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2}
    return MarianMTModel(MarianConfig(**sizes, **layers, **tokens, dropout=0.1, share_encoder_decoder_embeddings=False))


def peer_marian(name: str, batches: list[AnyBatch], *, compiled: bool, each: int) -> Contestant:
    """A plain loop over transformers' model."""
    peer = marian().to(DEVICE)
    optimizer = torch.optim.AdamW(peer.parameters(), lr=LR, fused=True)
    numbers = count()

    def loss_of(source: Tensor, valid: Tensor, target: Tensor, wanted: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            scores = peer(input_ids=source, attention_mask=valid, decoder_input_ids=target, use_cache=False).logits
            return nn.functional.cross_entropy(scores.flatten(0, 1).float(), wanted.flatten(), ignore_index=0)

    run = torch.compile(loss_of, dynamic=True) if compiled else loss_of
    moved = [
        [
            part.to(DEVICE)
            for part in (x.inputs.source.values, x.inputs.source.valid.long(), x.inputs.target.values, x.targets)
        ]
        for x in batches
    ]

    def step() -> None:
        for _ in range(each):
            optimizer.zero_grad(set_to_none=True)
            run(*moved[next(numbers) % len(moved)]).backward()
            nn.utils.clip_grad_norm_(peer.parameters(), CLIP)
            optimizer.step()

    return Contestant(name, step, real_tokens(batches))


def real_tokens(batches: list[AnyBatch]) -> int:
    """The target tokens of batches without padding."""
    return sum(int(batch.inputs.target.lengths.sum()) for batch in batches)


def translate() -> None:
    """Run the case: an epoch over the same pairs for everyone."""
    torch.manual_seed(0)
    sizes = ragged_pairs()
    unsorted = pair_batches(sizes, np.array_split(np.random.default_rng(1).permutation(PAIRS), PAIRS // ROWS_OF_PAIRS))
    order = np.argsort(sizes[:, 1], kind="stable")
    alike = pair_batches(sizes, np.array_split(order, PAIRS // ROWS_OF_PAIRS))
    tokens = int(
        sizes.sum() / len(unsorted) * 1.1
    )  # as many tokens in a batch as the peer's, a little padding included
    sorted_ours = pair_batches(sizes, Order(sizes, tokens, seed=0).batches(0))
    for name, batches in (("random", unsorted), ("sorted", alike), ("seqloom", sorted_ours)):
        whole = sum(batch.inputs.target.values.numel() for batch in batches)
        shapes = len({tuple(batch.inputs.target.values.shape) for batch in batches})
        print(f"  {name}: {len(batches)} batches of {shapes} shapes, {1 - real_tokens(batches) / whole:.0%} padding")
    source = TokensConfig(vocab_size=TARGET_WORDS)
    config = recipes.translator(
        "transformer", source=source, target_vocab_size=TARGET_WORDS, size="nano" if TINY else "base"
    )
    training = replace(PACKED, batching=ByLengthConfig(batch_tokens=tokens), lr=LR)
    model = config.build().to(DEVICE)
    print(
        f"  parameters: seqloom {sum(one.numel() for one in model.parameters()) / 1e6:.1f} M, "
        f"transformers {sum(one.numel() for one in marian().parameters()) / 1e6:.1f} M; "
        "positions and norms differ, so losses cannot be compared"
    )

    def contestant(name: str, *, compile_it: bool) -> Contestant:
        options = {"task": Read(one_shape=False), "tokens": real_tokens(sorted_ours), "each": len(sorted_ours)}
        return ours(name, copied(model), sorted_ours, replace(training, compile=compile_it), "bf16", **options)

    epoch = len(unsorted)
    title = "translate, base, ragged pairs, bf16"
    field = tried(
        [
            lambda: peer_marian("transformers Marian, eager, padded", unsorted, compiled=False, each=epoch),
            lambda: contestant("seqloom, by length", compile_it=False),
        ],
        3,
    )  # epochs; a shape is recorded in the third
    profiled(field[-1])
    compare(title, field, bar=field[0].name, rounds=5, steps=1)  # compilers may take longer than there is time
    if "--no-compilers" in sys.argv:
        return
    field += tried(
        [
            lambda: peer_marian("transformers Marian, compiled, sorted", alike, compiled=True, each=epoch),
            lambda: contestant("seqloom, by length, compiled", compile_it=True),
        ],
        3,
    )
    told_graphs()
    compare(f"{title}, compiled", field, bar=field[0].name, rounds=5, steps=1)


# Encoder classifier

TEXTS, ROWS_OF_TEXTS, CLASSES = (32, 8, 4) if TINY else (2_048, 64, 4)
ENCODER = Dimensions("base", width=32, layers=1, heads=2) if TINY else Dimensions("base", width=512, layers=6, heads=8)
SHORTEST, LONGEST = (4, 12) if TINY else (16, 256)


def peer_bert(name: str, batches: list[AnyBatch], *, compiled: bool, **settings: float) -> Contestant:
    """An epoch of a plain loop over transformers' BERT with a classification head."""
    from transformers import BertConfig, BertForSequenceClassification  # the peer is optional

    sizes = {"vocab_size": TARGET_WORDS, "hidden_size": ENCODER.width, "num_hidden_layers": ENCODER.layers}
    sizes |= {"num_attention_heads": ENCODER.heads, "intermediate_size": 4 * (ENCODER.width or 0)}
    config = BertConfig(**sizes, max_position_embeddings=LONGEST, num_labels=CLASSES, **settings)
    peer = BertForSequenceClassification(config).to(DEVICE).train()
    optimizer = torch.optim.AdamW(peer.parameters(), lr=LR, fused=True)

    def loss_of(read: Tensor, valid: Tensor, wanted: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            found: Tensor = peer(input_ids=read, attention_mask=valid, labels=wanted).loss
        return found

    run = torch.compile(loss_of, dynamic=True) if compiled else loss_of
    moved = [[part.to(DEVICE) for part in (one.inputs.values, one.inputs.valid.long(), one.targets)] for one in batches]

    def step() -> None:
        for one in moved:
            optimizer.zero_grad(set_to_none=True)
            run(*one).backward()
            nn.utils.clip_grad_norm_(peer.parameters(), CLIP)
            optimizer.step()

    return Contestant(name, step, sum(int(one.inputs.lengths.sum()) for one in batches))


def encode() -> None:
    """Run the case: an epoch over the same texts for everyone."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    sizes = draw.integers(SHORTEST, LONGEST + 1, TEXTS)
    texts = [torch.randint(5, TARGET_WORDS, (int(size),)) for size in sizes]
    labels = torch.randint(CLASSES, (TEXTS,))

    def batches(groups: list[np.ndarray]) -> list[AnyBatch]:
        return [Batch(Padded.stack([texts[row] for row in rows]), labels[rows]) for rows in groups]

    mixed = batches(np.array_split(draw.permutation(TEXTS), TEXTS // ROWS_OF_TEXTS))
    tokens = int(sizes.sum() / len(mixed) * 1.1)  # as many in a batch as the peer's, a little padding included
    alike = batches(Order(sizes[:, None], tokens, seed=0).batches(0))
    config = recipes.classifier(
        "encoder", inputs=TokensConfig(vocab_size=TARGET_WORDS), num_classes=CLASSES, size=ENCODER
    )
    model, training = config.build().to(DEVICE), replace(PACKED, batching=ByLengthConfig(batch_tokens=tokens), lr=LR)

    def contestant(name: str, *, compile_it: bool) -> Contestant:
        options = {"task": Read(one_shape=False), "tokens": int(sizes.sum()), "each": len(alike)}
        return ours(name, copied(model), alike, replace(training, compile=compile_it), "bf16", **options)

    title = "encoder classifier, 512 x 6, ragged texts, bf16"
    exact = {"attention_probs_dropout_prob": 0.0}
    bar = "transformers BERT, defaults, padded"
    field = tried(
        [
            lambda: peer_bert(bar, mixed, compiled=False),
            lambda: peer_bert("the same, no attention dropout, sorted", alike, compiled=False, **exact),
            lambda: contestant("seqloom, by length", compile_it=False),
        ],
        3,
    )
    profiled(field[-1])
    compare(title, field, bar=bar, rounds=5, steps=1)
    if "--no-compilers" in sys.argv:
        return
    field += tried(
        [
            lambda: peer_bert("the same, no attention dropout, sorted, compiled", alike, compiled=True, **exact),
            lambda: contestant("seqloom, by length, compiled", compile_it=True),
        ],
        3,
    )
    told_graphs()
    compare(f"{title}, compiled", field, bar=bar, rounds=5, steps=1)


CASES: dict[str, Callable[[], None]] = {
    **{family: partial(recurrent, family) for family in LAYERS},
    "gpt": gpt,
    "translate": translate,
    "encode": encode,
}


def chosen() -> Iterator[str]:
    """The cases named on the command line, or all."""
    named = [name for name in sys.argv[1:] if name in CASES]
    yield from named or CASES


def main() -> None:
    """Run the cases, each apart from the others."""
    if DEVICE != "cuda" and not TINY:
        sys.exit("this benchmark needs a CUDA device; --tiny tries it without one")
    torch.set_float32_matmul_precision("highest")
    for name in chosen():
        began = time.perf_counter()
        print(f"== {name}")
        try:
            CASES[name]()
        except Exception:
            traceback.print_exc()
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        print(f"== {name} took {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
