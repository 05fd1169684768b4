"""Greedy decoding of GPT-2 (124 M parameters) on one GPU, against transformers' generate in the same run.

Both sides continue the same prompts (16 tokens) by the same number of tokens with the same weights, in bf16; END is
never generated, so that all rows are equally long. The time includes
reading the prompts, and making buffers and graphs.

    python -m benchmarks.gpu.decoding [1] [64] [families] [--profile] [--tiny]

With --tiny all sizes are tiny, to try the program; that also works without a GPU, where no graphs are recorded.

Appends one line of JSON for each row of the tables to benchmarks/gpu/results.jsonl (or in $OUT), unless tiny.
"""

import copy
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from benchmarks.gpu.training import DEVICE, GPT_WORDS, TINY, as_transformers, gpt_config, keep, synchronized
from torch import Tensor

from seqloom import recipes
from seqloom.config.decoding import GreedyConfig, SampleConfig
from seqloom.decoding.answers import NEVER
from seqloom.decoding.decode import write
from seqloom.nn.types import Padded
from seqloom.text.special_tokens import END

PROMPT, WORDS = 16, GPT_WORDS
Write = Callable[[], Any]
GRAPHED = DEVICE == "cuda"
PLAIN, GRAPHS = GreedyConfig(), GreedyConfig(cuda_graphs=GRAPHED)
SAMPLE = SampleConfig(temperature=0.8, top_k=50, top_p=0.95, cuda_graphs=GRAPHED)


class Writer(NamedTuple):
    """One way to continue the prompts."""

    name: str
    write: Write
    tokens: int  # new ones, of all rows


def compare(case: str, writers: list[Writer], *, bar: str, rounds: int = 5) -> None:
    """Print and append the new tokens per second of each, in turns."""
    speeds: dict[str, list[float]] = {one.name: [] for one in writers}
    for _ in range(rounds):
        for one in writers:
            began = synchronized()
            one.write()
            speeds[one.name].append(one.tokens / (synchronized() - began))
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    print(f"\n{case}: {rounds} texts in turns; new tokens per second")
    for name, found in speeds.items():
        ratio = medians[name] / medians[bar]
        print(f"  {name:<52} {medians[name]:>11,.0f}  ({min(found):,.0f} to {max(found):,.0f})  {ratio:5.2f}x")
        record = {"case": case, "name": name, "tokens_per_second": medians[name], "bar": bar, "ratio": ratio}
        keep(record | {"low": min(found), "high": max(found)})


def written(model: Any, prompt: Padded, new: int, how: Any = None) -> list[list[int]]:
    """The new tokens of each row."""
    most, how = torch.full((len(prompt.lengths),), new), how or GRAPHS
    state = model.initial_state(len(prompt.lengths))
    return [row[0].tokens for row in write(model, state, prompt, most, how, never=(*NEVER, END))]


def continued(peer: Any, prompt: Tensor, new: int, **settings: Any) -> Tensor:
    """The same by transformers, without an end of text."""
    options = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0, "eos_token_id": None} | settings
    with torch.no_grad():
        found: Tensor = peer.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    return found[:, prompt.shape[1] :]


def sharpened(model: Any) -> Any:
    """The model with larger weights, so that the likeliest token is far ahead and rounding hardly matters."""
    with torch.no_grad():
        for block in model.decoder.layers:
            block.feed_forward.outward.weight.mul_(4)
            block.mixer.heads.output.weight.mul_(4)
    return model


def gpt2(rows: int, new: int) -> None:
    """Run the case of so many rows."""
    torch.manual_seed(0)
    wide = sharpened(gpt_config().build().eval()).to(DEVICE)
    model = copy.deepcopy(wide).to(torch.bfloat16)
    peer = as_transformers(wide, use_cache=True).eval().to(torch.bfloat16)
    tokens = torch.randint(5, WORDS, (rows, PROMPT), device=DEVICE)
    prompt = Padded.of(tokens)
    checked = min(32, new)
    mine, plain = written(model, prompt, new), written(model, prompt, checked, PLAIN)
    theirs = continued(peer, tokens, checked, suppress_tokens=[*NEVER, END]).tolist()
    same = sum(one[:checked] == other for one, other in zip(mine, plain, strict=True))
    agreed = sum(a == b for one, two in zip(mine, theirs, strict=True) for a, b in zip(one, two, strict=False))
    share = agreed / (checked * rows)
    print(f"  buffered equals plain in {same} of {rows} rows; {share:.0%} of tokens equal transformers'")
    writers = [
        Writer("transformers generate", lambda: continued(peer, tokens, new // 4), rows * (new // 4)),
        Writer("seqloom, buffers and graphs (--cuda-graphs)", lambda: written(model, prompt, new), rows * new),
        Writer("seqloom, plain steps", lambda: written(model, prompt, new // 4, PLAIN), rows * (new // 4)),
        Writer("seqloom, buffers and graphs, float32", lambda: written(wide, prompt, new), rows * new),
        Writer("seqloom, sampling, buffers and graphs", lambda: written(model, prompt, new, SAMPLE), rows * new),
    ]
    static = {"cache_implementation": "static"}
    best = Writer("transformers, static cache", lambda: continued(peer, tokens, new, **static), rows * new)
    try:
        best.write()  # compiles
        writers.insert(1, best)
    except Exception:
        traceback.print_exc()
    for one in writers:
        one.write()
    profiled(next(one for one in writers if "--cuda-graphs" in one.name))
    compare(f"greedy, GPT-2 124M, batch {rows}, bf16", writers, bar="transformers generate")


def profiled(one: Writer) -> None:
    """Print the kernels of a text that take longest."""
    if "--profile" not in sys.argv or not GRAPHED:
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        one.write()
        torch.cuda.synchronize()
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows)
    print(f"  kernels of {one.name}: {total / 1e3:.1f} ms of {one.tokens} tokens")
    for row in rows[:16]:
        print(f"    {row.self_device_time_total / 1e3:8.2f} ms {row.count:>6} x  {row.key[:100]}")


def families(new: int = 256) -> None:
    """Every family of language models at base size, 8 rows: buffers against plain steps, which must agree."""
    for name in recipes.names("language-model"):
        try:
            torch.manual_seed(0)
            model = recipes.language_model(name, vocab_size=8_000, size="base").build().eval().to(DEVICE)
            prompt = Padded.of(torch.randint(5, 8_000, (8, PROMPT), device=DEVICE))
            mine = written(model, prompt, new)
            plain = written(model, prompt, 64, PLAIN)
            same = sum(one[:64] == other for one, other in zip(mine, plain, strict=True))
            print(f"  {name}: buffered equals plain in {same} of 8 rows")
            writers = [
                Writer("plain", lambda: written(model, prompt, 64, PLAIN), 8 * 64),  # noqa: B023
                Writer("buffers", lambda: written(model, prompt, new), 8 * new),  # noqa: B023
            ]
            compare(f"greedy, {name}, base, batch 8, float32", writers, bar="plain", rounds=2)
        except Exception:
            traceback.print_exc()


def main() -> None:
    """Run the cases, each apart from the others."""
    if DEVICE != "cuda" and not TINY:
        sys.exit("this benchmark needs a CUDA device; --tiny tries it without one")
    one, many = (8, 8) if TINY else (512, 256)
    cases = {"1": lambda: gpt2(1, one), "64": lambda: gpt2(2 if TINY else 64, many), "families": families}
    for name in [one for one in sys.argv[1:] if one in cases] or cases:
        began = time.perf_counter()
        print(f"== decoding {name}")
        try:
            cases[name]()
        except Exception:
            traceback.print_exc()
        torch.cuda.empty_cache()
        print(f"== decoding {name} took {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
