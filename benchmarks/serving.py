"""Serving: dynamic batching against one request at a time, and continuous batching against static batches.

    python benchmarks/serving.py [ROUNDS]

Dynamic: 32 clients ask an engine for one classification each, again and again; with batches of up to 16, and of 1. The
clients and the listener run on the same cores as the worker. Continuous: prompts with exponentially distributed lengths
of continuations, 16 rows at a time. A static batch takes the prompts in the order in which they come, and the next one
starts when its last row has ended. There are two: in one, rows that have ended are computed until the batch ends; in
the other they are dropped, as `generate` does. Generation is timed in CPU seconds of one thread, so that other load on
the machine does not count. The sides alternate; figures are medians.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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
ROWS, PROMPTS, MEAN, LONGEST = 16, 160, 48, 384
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


def static(model: Any, given: list[list[int]], lengths: list[int], *, drop: bool) -> list[list[int]]:
    """The tokens of each prompt, in batches that run until their last row ends."""
    found: list[list[int]] = []
    for start in range(0, len(given), ROWS):
        rows, most = given[start : start + ROWS], lengths[start : start + ROWS]
        x, state = Padded.stack([torch.tensor(row) for row in rows]), model.initial_state(len(rows))
        room = torch.tensor(most if drop else [max(most)] * len(rows))
        answers = write(model, state, x, room, GreedyConfig(), never=(*NEVER, END))
        found += [one.tokens[:length] for (one,), length in zip(answers, most, strict=True)]
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


def timed(work: Callable[[], list[list[int]]]) -> tuple[float, list[list[int]]]:
    """The CPU seconds of some work, and its result."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def generation(family: str, rounds: int) -> list[tuple[float, ...]]:
    """Tokens per second of static batches, of those that drop rows, and of continuous ones, for each round."""
    torch.manual_seed(0)
    model = recipes.language_model(family, vocab_size=VOCABULARY, size=SIZE).build().eval()
    given, lengths = prompts()
    found = []
    for _ in range(rounds):
        seconds, texts_of = zip(
            timed(lambda: static(model, given, lengths, drop=False)),
            timed(lambda: static(model, given, lengths, drop=True)),
            timed(lambda: continuous(model, given, lengths)),
            strict=True,
        )
        for other in texts_of[:2]:
            same = sum(a == b for a, b in zip(texts_of[2], other, strict=True))
            assert same >= 0.95 * len(other), f"only {same} of {len(other)} texts are equal"  # rounding may turn a tie
        found.append(tuple(sum(lengths) / one for one in seconds))
    return found


def show(name: str, unit: str, found: list[tuple[float, ...]]) -> None:
    """Print one line of the table: medians, and the ratio of the last column to each other one."""
    columns = [statistics.median(one[side] for one in found) for side in range(len(found[0]))]
    ratios = [statistics.median(one[-1] / one[side] for one in found) for side in range(len(columns) - 1)]
    shown = "".join(f"{column:>12,.0f}" for column in columns)
    print(f"{name:<26}{shown}  {unit:<11}" + "".join(f"{ratio:>7.2f} x" for ratio in ratios))


def main(arguments: list[str]) -> None:
    """Print the table."""
    rounds = int(arguments[0]) if arguments else ROUNDS
    print(f"{SIZE} models on the CPU, {torch.get_num_threads()} threads, {rounds} rounds; medians\n")
    print(f"{f'requests, {CLIENTS} clients':<26}{'one by one':>12}{'batched':>12}")
    with tempfile.TemporaryDirectory() as place:
        for family in FAMILIES:
            folder = Path(place) / family
            folder.mkdir()
            show(f"classify, {family}", "requests/s", asyncio.run(dynamic(make_model(folder, family), rounds)))
    print(f"\n{f'generation, {PROMPTS} prompts':<26}{'static':>12}{'dropping':>12}{'continuous':>12}")
    torch.set_num_threads(1)
    for family in FAMILIES:
        show(f"generate, {family}", "tokens/s", generation(family, rounds))


if __name__ == "__main__":
    main(sys.argv[1:])
