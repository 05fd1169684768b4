"""Serving: dynamic batching against one request at a time, and continuous batching against static batches.

    python benchmarks/serving.py [ROUNDS]

Dynamic: 32 clients ask an engine for one classification each, again and again; with batches of up to 16, and of 1. The
clients and the listener run on the same cores as the worker. Continuous: prompts with exponentially distributed lengths
of continuations, 16 rows at a time. Static batches take the prompts in the order in which they come and drop the rows
that are finished, but start the next batch only when the last row has ended. Both sides alternate; figures are medians.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import seqloom
from seqloom import recipes
from seqloom.config.decoding import GreedyConfig
from seqloom.config.serving import ServingConfig
from seqloom.decoding.answers import NEVER, Stops
from seqloom.decoding.continuous import ContinuousBatch, ContinuousRow
from seqloom.decoding.decode import write
from seqloom.nn.types import Padded
from seqloom.serve.engine import Engine
from seqloom.text.special_tokens import BEGIN, COUNT, END

ROUNDS = 3
CLIENTS, REQUESTS = 32, 400
ROWS, PROMPTS, MEAN, LONGEST = 16, 192, 48, 384
SIZE = "small"
VOCABULARY = 4_000
FAMILIES = ("lstm", "transformer")


def make_model(place: Path, family: str) -> Path:
    """A classifier that was trained for one step: its answers do not matter."""
    words = [f"word{number}" for number in range(500)]
    lines = [" ".join(words[(row * 7 + at * 13) % 500] for at in range(4 + row % 28)) for row in range(200)]
    data = place / "data.csv"
    data.write_text("text,label\n" + "".join(f"{line},{'yes' if len(line) % 2 else 'no'}\n" for line in lines))
    out = place / family
    seqloom.train(data, model=family, size=SIZE, steps=1, out=out, device="cpu")  # type: ignore[arg-type]
    return out


def texts(count: int) -> list[str]:
    """Texts of 4 to 31 words."""
    return [" ".join(f"word{(row * 11 + at * 3) % 500}" for at in range(4 + row % 28)) for row in range(count)]


async def per_second(engine: Engine) -> float:
    """Requests per second of all clients together."""
    left = iter(texts(REQUESTS))

    async def client() -> None:
        for text in left:
            await engine.ask("model", "classify", [text])

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return REQUESTS / (time.perf_counter() - began)


async def dynamic(path: Path, rounds: int) -> list[tuple[float, float]]:
    """Requests per second one by one and in batches, for each round."""
    common: dict[str, Any] = {"device": "cpu", "max_waiting": 10_000, "queue_seconds": 600.0, "total_seconds": 600.0}
    found = []
    single, batched = (Engine({"model": path}, ServingConfig(max_batch=most, **common)) for most in (1, 16))
    batched._forks = single._forks  # torch is imported once
    async with single, batched:
        for engine in (single, batched):
            await engine.ask("model", "classify", texts(40))  # warm up
        for _ in range(rounds):
            found.append((await per_second(single), await per_second(batched)))
    return found


def prompts() -> tuple[list[list[int]], list[int]]:
    """Prompts of 4 to 20 tokens, and the number of tokens that follow each."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.exponential(MEAN, PROMPTS).astype(int), 1, LONGEST).tolist()
    return [[BEGIN, *generator.integers(COUNT, VOCABULARY, 3 + row % 17).tolist()] for row in range(PROMPTS)], lengths


def static(model: Any, given: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """The tokens of each prompt, in batches that run until their last row ends."""
    found: list[list[int]] = []
    for start in range(0, len(given), ROWS):
        rows, most = given[start : start + ROWS], torch.tensor(lengths[start : start + ROWS])
        x = Padded.stack([torch.tensor(row) for row in rows])
        state = model.initial_state(len(rows))
        found += [one.tokens for (one,) in write(model, state, x, most, GreedyConfig(), never=(*NEVER, END))]
    return found


def continuous(model: Any, given: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """The same, with the next prompt in the place of a row that ends."""
    batch, stops = ContinuousBatch(model, never=(*NEVER, END)), Stops((), None)
    rows = [ContinuousRow(row, most, GreedyConfig(), stops) for row, most in zip(given, lengths, strict=True)]
    left = iter(rows)
    batch.add(list(islice(left, ROWS)))
    while len(batch):
        batch.step()
        batch.add(list(islice(left, ROWS - len(batch))))
    return [row.draft.tokens for row in rows]


def timed(work: Any, *given: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work(*given)
    return time.perf_counter() - began, found


def generation(family: str, rounds: int) -> list[tuple[float, float]]:
    """Tokens per second of static and of continuous batches, for each round."""
    torch.manual_seed(0)
    model = recipes.language_model(family, vocab_size=VOCABULARY, size=SIZE).build().eval()
    given, lengths = prompts()
    found = []
    for _ in range(rounds):
        one, expected = timed(static, model, given, lengths)
        other, tokens = timed(continuous, model, given, lengths)
        same = sum(a == b for a, b in zip(tokens, expected, strict=True))
        assert same >= 0.95 * len(tokens), f"only {same} of {len(tokens)} texts are equal"
        found.append((sum(lengths) / one, sum(lengths) / other))
    return found


def show(name: str, unit: str, found: list[tuple[float, float]]) -> None:
    """Print one line of the table."""
    before, after = (statistics.median(one[side] for one in found) for side in (0, 1))
    ratio = statistics.median(one[1] / one[0] for one in found)
    print(f"{name:<34}{before:>10,.0f}{after:>12,.0f}  {unit:<12}{ratio:>6.2f} x")


def main(arguments: list[str]) -> None:
    """Print the table."""
    rounds = int(arguments[0]) if arguments else ROUNDS
    print(f"{SIZE} models on the CPU, {torch.get_num_threads()} threads, {rounds} rounds; medians\n")
    print(f"{f'requests, {CLIENTS} clients':<34}{'one by one':>10}{'batched':>12}")
    with tempfile.TemporaryDirectory() as place:
        for family in FAMILIES:
            folder = Path(place) / family
            folder.mkdir()
            show(f"classify, {family}", "requests/s", asyncio.run(dynamic(make_model(folder, family), rounds)))
    print(f"\n{f'generation, {PROMPTS} prompts':<34}{'static':>10}{'continuous':>12}")
    for family in FAMILIES:
        show(f"generate, {family}", "tokens/s", generation(family, rounds))


if __name__ == "__main__":
    main(sys.argv[1:])
