"""What the tests of the server share: models that were never trained, one forkserver, and an engine in a thread."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bundle_common import make_reviews, make_run
from search_common import last, some_documents, write_documents
from seqloom.config.serving import ServingConfig
from seqloom.search.build import build_index
from seqloom.search.documents import Collection
from seqloom.serve.engine import Engine
from seqloom.serve.forkserver import ForkServer

Result = TypeVar("Result")
WORDS = ["the", "old", "man", "saw", "a", "red", "boat", "and", "one", "green", "tree", "near", "blue", "sea", "in"]
QUICK: dict[str, Any] = {"device": "cpu", "queue_seconds": 20.0}  # a busy machine is no failure here


class SharedForks(ForkServer):
    """A forkserver that many engines use one after the other: it has imported torch once."""

    def close(self) -> None:
        """Stay; `end` ends it."""

    def start(self) -> None:
        super().close()
        super().start()

    def end(self) -> None:
        super().close()


def sentence(number: int, words: int) -> str:
    return " ".join(WORDS[(number * 5 + place * (1 + number % 7)) % len(WORDS)] for place in range(words))


def make_models(place: Path) -> dict[str, Path]:
    """One folder for each verb, and a second language model; none was trained."""
    texts = [sentence(number, 3 + number % 9) for number in range(40)]
    files = {
        "pairs.csv": "premise,hypothesis,label\n"
        + "".join(f"{a},{a[:9]},{'yes' if len(a) % 2 else 'no'}\n" for a in texts),
        "scores.csv": "text,score\n" + "".join(f"{a},{len(a) / 7:.2f}\n" for a in texts),
        "lines.txt": "".join(f"{a}\n" for a in texts),
        "translated.tsv": "source\ttarget\n" + "".join(f"{a}\t{a.upper()}\n" for a in texts),
    }
    for name, text in files.items():
        (place / name).write_text(text)
    rows = [
        {"tokens": ["Ada", "went", "home", "."], "tags": ["B-PER", "O", "O", "O"]},
        {"tokens": ["Bo"], "tags": ["B-PER"]},
    ]
    (place / "tags.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 5))
    lines: dict[str, Any] = {"train": (str(place / "lines.txt"),), "task": "lm"}
    return {
        "reviews": make_run(place / "reviews", "lstm", **make_reviews(place)),
        "pairs": make_run(place / "pairs", "encoder", train=(str(place / "pairs.csv"),)),
        "scores": make_run(place / "scores", "cnn", train=(str(place / "scores.csv"),), target=("score",)),
        "tags": make_run(place / "tags", "bilstm", train=(str(place / "tags.jsonl"),)),
        "lm": make_run(place / "lm", "transformer", **lines),
        "gru": make_run(place / "gru", "gru", **lines),
        "translator": make_run(
            place / "translator", "transformer", train=(str(place / "translated.tsv"),), task="translate"
        ),
        "masked": make_run(place / "masked", "encoder", **lines | {"task": "masked"}),
        "index": make_index(place),
    }


def make_index(place: Path) -> Path:
    last(build_index(place / "index", None, Collection(write_documents(place / "documents.jsonl", some_documents(20)))))
    return place / "index"


def close_to(found: Any, expected: Any) -> None:
    """Equal plain data, with numbers within 1e-5."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            close_to(found[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close_to(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-5, rel=1e-5)
    else:
        assert found == expected


class RunningEngine:
    """An engine whose event loop runs in a thread, for tests that are not coroutines."""

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
        self.loop, self.engine = loop, engine

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop of the engine."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    def ask(self, *given: Any, **named: Any) -> list[Any]:
        return self.wait(self.engine.ask(*given, **named))


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> float:
    """Wait until something holds, and return how long it took."""
    began = time.perf_counter()
    while not holds():
        assert time.perf_counter() - began < seconds, "it never came true"
        await asyncio.sleep(0.005)
    return time.perf_counter() - began


@asynccontextmanager
async def serving(models: Mapping[str, Path], forks: ForkServer, **settings: Any) -> AsyncIterator[Engine]:
    """An engine with quick workers."""
    engine = Engine(models, ServingConfig(**QUICK | settings))
    engine._forks = forks
    async with engine:
        yield engine


@contextmanager
def running(models: Mapping[str, Path], forks: ForkServer, **settings: Any) -> Iterator[RunningEngine]:
    """The same in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        manager = serving(models, forks, **settings)
        engine = asyncio.run_coroutine_threadsafe(manager.__aenter__(), loop).result(timeout=60)
        try:
            yield RunningEngine(loop, engine)
        finally:
            asyncio.run_coroutine_threadsafe(manager.__aexit__(None, None, None), loop).result(timeout=60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
