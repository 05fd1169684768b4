"""Long versions of the claims about batch mates and lost workers."""

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

import seqloom
from seqloom.serve.refusals import Refusal, WorkerLost
from serve_common import RunningEngine, SharedForks, close_to, sentence, serving, until

pytestmark = pytest.mark.soak
VERBS = {"reviews": "classify", "pairs": "classify", "scores": "regress", "tags": "tag", "lm": "generate"}
VERBS |= {"masked": "fill", "translator": "translate"}


def test_a_thousand_mixed_requests_have_the_answers_they_have_alone(
    engine: RunningEngine, models: dict[str, Path]
) -> None:
    """S16."""
    draws = random.Random(0)
    loaded = {name: seqloom.load(models[name]) for name in VERBS}
    asked = []
    for number in range(1_000):
        name, text = draws.choice(list(VERBS)), sentence(number, draws.randint(1, 60))
        asked.append((name, [text, text[:7]] if name == "pairs" else text, draws.randint(1, 20)))

    async def one(name: str, item: Any, tokens: int) -> Any:
        await asyncio.sleep(draws.random() * 5)
        options = {"max_new_tokens": tokens} if name == "lm" else {}
        return (await engine.engine.ask(name, VERBS[name], [item], options))[0]  # type: ignore[arg-type]

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(one(*request) for request in asked))

    for (name, item, tokens), found in zip(asked, engine.wait(all_of_them()), strict=True):
        if name == "lm":
            (answers,) = loaded[name].generate([item], max_new_tokens=tokens)
            close_to(found, [answer.to_json() for answer in answers])
        elif name == "translator":
            close_to(found, loaded[name].translate([item])[0].to_json())
        else:
            close_to(found, loaded[name].predict([item])[0].to_json())


def test_twenty_kills_under_load(models: dict[str, Path], forks: SharedForks) -> None:
    """S13."""

    async def check() -> None:
        async with serving({"reviews": models["reviews"]}, forks, queue_seconds=1.0) as engine:
            outcomes: list[Any] = []
            ends = asyncio.Event()

            async def client() -> None:
                while not ends.is_set():
                    try:
                        outcomes.append((await engine.ask("reviews", "classify", ["a good film"]))[0]["label"])
                    except Refusal as refusal:
                        outcomes.append(type(refusal))

            clients = [asyncio.create_task(client()) for _ in range(8)]
            slowest = 0.0
            for _ in range(20):
                await asyncio.sleep(0.2)
                (pid,) = engine.worker_pids
                os.kill(pid, signal.SIGKILL)
                back = await until(lambda pid=pid: engine.worker_pids not in ([], [pid]))  # type: ignore[misc]
                slowest = max(slowest, back)
            ends.set()
            await asyncio.gather(*clients)
            assert {one for one in outcomes if not isinstance(one, str)} == {WorkerLost}
            assert outcomes.count(WorkerLost) <= 20 * 8
            assert slowest < 5, f"back after {slowest:.2f} s"

    asyncio.run(check())
