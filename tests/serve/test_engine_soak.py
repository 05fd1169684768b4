"""Long versions of the claims about batch mates and lost workers."""

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from search_common import last, some_documents, some_text, write_documents
from seqloom.search.build import build_index
from seqloom.search.documents import Collection
from seqloom.search.index import open_index
from seqloom.search.search import searcher
from seqloom.search.vectors import ModelEmbedder
from seqloom.serve.messages import ComputeBatch
from seqloom.serve.refusals import Refusal, WorkerLost
from serve_common import SharedForks, close_to, running, sentence, serving, until

pytestmark = pytest.mark.soak
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("reviews", "classify", {}),
    ("pairs", "classify", {}),
    ("scores", "regress", {}),
    ("tags", "tag", {}),
    ("masked", "fill", {}),
    ("reviews", "embed", {}),
    ("translator", "translate", {}),
    ("index", "search", {"top_k": 3}),
    ("meanings", "search", {"top_k": 3}),
    ("lm", "generate", {"beam_size": 3, "n_best": 2, "max_new_tokens": 8}),
    ("lm", "generate", {}),  # with up to 20 tokens
    ("gru", "generate", {"temperature": 0.8, "top_k": 12, "num_samples": 2}),  # the same, and each with its own seed
]
ALONE = [kind for kind in KINDS if kind[1] == "generate" and "beam_size" not in kind[2]]  # rows of continuous batching


def drawn_request(number: int, draws: random.Random) -> tuple[str, str, Any, dict[str, Any]]:
    """The model, verb, item and options of a request."""
    kind = draws.choice(KINDS)
    name, verb, options = kind
    item: Any = sentence(number, draws.randint(1, 60))
    if name == "pairs":
        item = [item, item[:7]]
    elif verb == "fill":
        item = f"{item} [MASK]"
    elif verb == "search":
        item = some_text(np.random.default_rng(number), 1)
    if kind in ALONE:
        options = options | {"max_new_tokens": draws.randint(1, 20)} | ({"seed": number} if options else {})
    return name, verb, item, options


def answer_alone(model: Any, verb: str, item: Any, options: dict[str, Any]) -> Any:
    """What a model or an index answers if nothing else is asked."""
    if verb == "search":
        return [hit.to_json() for hit in model.search(item, **options)]
    if verb == "generate":
        return [one.to_json() for one in model.generate([item], **options)[0]]
    if verb == "embed":
        return {"vector": model.embed([item])[0].tolist()}
    return (model.translate([item]) if verb == "translate" else model.predict([item]))[0].to_json()


def test_a_thousand_mixed_requests_have_the_answers_they_have_alone(
    models: dict[str, Path], forks: SharedForks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S16, for all verbs, samples, beams and searches by words and by vectors; all of them in batches with others."""
    draws = random.Random(0)
    embedder, documents = ModelEmbedder(seqloom.load(models["reviews"])), some_documents(20)
    last(build_index(tmp_path / "meanings", embedder, Collection(write_documents(tmp_path / "texts.jsonl", documents))))
    paths = models | {"meanings": tmp_path / "meanings"}
    loaded: dict[str, Any] = {
        name: searcher(open_index(paths[name])) if verb == "search" else seqloom.load(paths[name])
        for name, verb, _ in KINDS
    }
    asked = [drawn_request(number, draws) for number in range(1_000)]
    shared: set[tuple[str, str, bool]] = set()
    with running(paths, forks, max_waiting=10_000) as engine:
        (link,) = engine.engine._links
        send = link.send

        def seen(message: Any) -> None:
            if isinstance(message, ComputeBatch) and len(message.items) > 1:
                shared.add((message.model, message.verb, "beam_size" in message.options))
            send(message)

        monkeypatch.setattr(link, "send", seen)

        async def one(name: str, verb: Any, item: Any, options: dict[str, Any]) -> Any:
            await asyncio.sleep(draws.randrange(20) * 0.25)  # about 50 at a time
            return (await engine.engine.ask(name, verb, [item], options))[0]

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(one(*request) for request in asked))

        answers, counts = engine.wait(all_of_them()), engine.engine.counters
    for (name, verb, item, options), found in zip(asked, answers, strict=True):
        close_to(found, answer_alone(loaded[name], verb, item, options))
    assert shared == {(name, verb, "beam_size" in options) for name, verb, options in KINDS} - {
        (name, verb, False) for name, verb, _ in ALONE
    }, "every kind has to share batches, or this shows nothing"
    assert counts["batch_items_total"] > 2 * counts["batches_total"]
    assert counts["tokens_total"] > 2 * counts["steps_total"], "prompts have to run together"


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
