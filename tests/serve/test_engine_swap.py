"""Hot swaps: a new version of a folder is served without a failed request, and a broken one never is."""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import seqloom
from bundle_common import make_reviews, make_run
from search_common import last, some_documents, write_documents
from seqloom.bundle import Bundle, bundle_files, identity_of, read_bundle
from seqloom.files.folders import replace_folder
from seqloom.search.build import add_to_index
from seqloom.search.documents import Collection
from seqloom.serve import engine as engine_module
from seqloom.serve import swap as swap_module
from seqloom.serve.engine import Engine
from seqloom.serve.link import WorkerLink
from seqloom.serve.messages import DiscardModel, FromWorker, SwapModel, WorkerReady
from seqloom.serve.refusals import Refusal, WaitedTooLong
from serve_common import SharedForks, close_to, make_index, serving, until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "POLL", 0.02)
    monkeypatch.setattr(swap_module, "POLL", 0.02)


class Lines(logging.Handler):
    """The lines that the engine logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def log() -> Iterator[Lines]:
    handler, level = Lines(), engine_module.log.level
    engine_module.log.addHandler(handler)
    engine_module.log.setLevel(logging.INFO)
    yield handler
    engine_module.log.setLevel(level)
    engine_module.log.removeHandler(handler)


@pytest.fixture
def reviews(models: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a run that a test may change."""
    return Path(shutil.copytree(models["reviews"], tmp_path / "reviews"))


def retrain(run: Path, scale: float) -> None:
    """Write a model with other weights, as training does."""
    bundle = read_bundle(run / "model")
    weights = {name: weight * scale for name, weight in bundle.weights.items()}
    replace_folder(run / "model", bundle_files(Bundle(bundle.config, bundle.spec, weights, {}), "# Another\n"))


def spoil(run: Path) -> None:
    """Change a byte of the weights, in a copy that takes the place of the folder at once."""
    copy = Path(shutil.copytree(run / "model", run / ".copy"))
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 255
    (copy / "model.safetensors").write_bytes(data)
    (run / "model").rename(run / ".old")
    copy.rename(run / "model")
    shutil.rmtree(run / ".old")


async def load(engine: Engine, outcomes: list[Any], ends: asyncio.Event) -> None:
    while not ends.is_set():
        try:
            outcomes.append(await engine.ask("reviews", "classify", ["a good film"]))
        except Refusal as refusal:
            outcomes.append(refusal)


@pytest.mark.parametrize(
    ("workers", "more"), [(1, 0), (2, 0), *(pytest.param(count, 20, marks=pytest.mark.soak) for count in (1, 2))]
)
def test_swaps_under_load_fail_no_request_and_broken_folders_are_refused(
    workers: int, more: int, reviews: Path, forks: SharedForks, log: Lines
) -> None:
    """S12."""
    first = [one.to_json() for one in seqloom.load(reviews).predict(["a good film"])]

    async def check() -> None:
        async with serving({"reviews": reviews}, forks, workers=workers) as engine:
            outcomes: list[Any] = []
            ends = asyncio.Event()
            clients = [asyncio.create_task(load(engine, outcomes, ends)) for _ in range(4)]
            before = engine.models["reviews"]
            retrain(reviews, 3.0)
            await until(lambda: engine.counters["swaps_total"] == 1)
            second = [one.to_json() for one in seqloom.load(reviews).predict(["a good film"])]
            close_to(await engine.ask("reviews", "classify", ["a good film"]), second)
            assert engine.models["reviews"].fingerprint == identity_of(reviews / "model") != before.fingerprint
            assert engine.models["reviews"].loaded_at > before.loaded_at
            spoil(reviews)
            await until(lambda: engine.counters["refused_swaps_total"] == 1)
            close_to(await engine.ask("reviews", "classify", ["a good film"]), second)
            retrain_from(reviews, 0.5)
            await until(lambda: engine.counters["swaps_total"] == 2)
            third = [one.to_json() for one in seqloom.load(reviews).predict(["a good film"])]
            close_to(await engine.ask("reviews", "classify", ["a good film"]), third)
            for number in range(more):
                retrain(reviews, 6.0 if number % 2 == 0 else 1 / 6)  # 3.0 and 0.5
                await until(lambda count=number + 3: engine.counters["swaps_total"] == count)  # type: ignore[misc]
            ends.set()
            await asyncio.gather(*clients)
            assert [one for one in outcomes if isinstance(one, Refusal)] == []
            shown = {round(one[0]["scores"]["good"], 4) for one in outcomes}
            assert shown == {round(one[0]["scores"]["good"], 4) for one in (first, second, third)}

    asyncio.run(check())
    refused = [line for line in log.lines if "is refused, the old one is kept" in line]
    assert len(refused) == 1 and "model.safetensors" in refused[0] and ". Fix: " in refused[0]
    assert log.lines.count("a new version of reviews is served") == 2 + more


def retrain_from(run: Path, scale: float) -> None:
    """The same although the folder is broken: from a fresh run."""
    shutil.rmtree(run / "model")
    place = run / "fresh"
    place.mkdir()
    make_run(place / "run", "lstm", **make_reviews(place))
    retrain(place / "run", scale)
    (place / "run" / "model").rename(run / "model")


def test_a_version_that_is_copied_file_by_file_is_served_in_the_end(
    reviews: Path, tmp_path: Path, forks: SharedForks, log: Lines
) -> None:
    """The manifest comes first, and the weights so late that the folder was tried and refused meanwhile."""
    new = Path(shutil.copytree(reviews, tmp_path / "new"))
    retrain(new, 3.0)
    expected = [one.to_json() for one in seqloom.load(new).predict(["a good film"])]

    async def check() -> None:
        async with serving({"reviews": reviews}, forks) as engine:
            files = sorted((new / "model").iterdir(), key=lambda file: file.name == "model.safetensors")
            for file in files[:-1]:
                shutil.copy2(file, reviews / "model" / file.name)
            await until(lambda: engine.counters["refused_swaps_total"] == 1)
            for size in (1_000, 2_000):  # a part of the weights: refused again, without a further line
                (reviews / "model" / files[-1].name).write_bytes(files[-1].read_bytes()[:size])
                await asyncio.sleep(0.2)
            assert engine.counters["swaps_total"] == 0
            shutil.copy2(files[-1], reviews / "model" / files[-1].name)
            await until(lambda: engine.counters["swaps_total"] == 1)
            close_to(await engine.ask("reviews", "classify", ["a good film"]), expected)
            assert engine.counters["refused_swaps_total"] == 1

    asyncio.run(check())
    assert sum("is refused" in line for line in log.lines) == 1


def test_a_worker_that_hangs_during_a_swap_is_replaced_and_serves_the_new_version(
    reviews: Path, forks: SharedForks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "HUNG", 0.1)

    async def check() -> None:
        async with serving({"reviews": reviews}, forks, total_seconds=0.4) as engine:
            os.kill(engine.worker_pids[0], signal.SIGSTOP)
            retrain(reviews, 3.0)
            await until(lambda: engine.counters["worker_restarts_total"] == 1 and engine.ready)
            assert engine.models["reviews"].fingerprint == identity_of(reviews / "model")
            retrain(reviews, 0.5)  # nothing waits for the worker that is lost
            await until(lambda: engine.counters["swaps_total"] == 1)

    asyncio.run(check())


def test_a_swap_waits_only_so_long_for_a_worker_and_is_tried_again(
    reviews: Path, forks: SharedForks, monkeypatch: pytest.MonkeyPatch, log: Lines
) -> None:
    monkeypatch.setattr(swap_module, "LONGEST_LOAD", 0.1)

    async def check() -> None:
        async with serving({"reviews": reviews}, forks) as engine:
            os.kill(engine.worker_pids[0], signal.SIGSTOP)
            retrain(reviews, 3.0)
            await until(lambda: engine.counters["refused_swaps_total"] == 1)
            sent = list[Any]()
            send = engine._links[0].send
            engine._links[0].send = lambda message: sent.append(message) or send(message)  # type: ignore[func-returns-value]
            monkeypatch.setattr(swap_module, "LONGEST_LOAD", 60.0)
            os.kill(engine.worker_pids[0], signal.SIGCONT)
            await until(lambda: engine.counters["swaps_total"] == 1)
            assert engine.models["reviews"].fingerprint == identity_of(reviews / "model")
            assert engine.counters["worker_restarts_total"] == 0
            await until(lambda: DiscardModel(1) in sent)  # what came too late, even after the next, is not kept

    asyncio.run(check())
    assert sum("took too long" in line for line in log.lines) == 1


def test_a_worker_that_was_restarted_ignores_a_version_that_it_has_not_staged(
    models: dict[str, Path], forks: SharedForks
) -> None:
    async def check() -> None:
        async with serving({"reviews": models["reviews"]}, forks) as engine:
            engine._links[0].send(SwapModel(99))
            assert await engine.ask("reviews", "classify", ["a good film"])
            assert engine.counters["worker_restarts_total"] == 0

    asyncio.run(check())


def test_a_worker_that_is_lost_after_it_has_staged_is_not_told_to_swap(reviews: Path, forks: SharedForks) -> None:
    """One of two workers stages, is lost and restarted, while the other one still loads."""

    async def check() -> None:
        async with serving({"reviews": reviews}, forks, workers=2) as engine:
            first, second = engine._links
            sent: list[Any] = []
            os.kill(engine.worker_pids[1], signal.SIGSTOP)
            retrain(reviews, 3.0)
            await until(lambda: 1 in second.staging and 1 not in first.staging)  # the first one has answered
            pid = engine.worker_pids[0]
            os.kill(pid, signal.SIGKILL)
            await until(lambda: first.ready and first.pid != pid)
            first.send = sent.append  # type: ignore[method-assign]
            os.kill(engine.worker_pids[1], signal.SIGCONT)
            await until(lambda: engine.counters["swaps_total"] == 1)
            assert not [one for one in sent if isinstance(one, SwapModel | DiscardModel)]

    asyncio.run(check())


def test_a_worker_that_loaded_the_old_version_just_before_a_swap_gets_the_new_one(
    reviews: Path, forks: SharedForks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ready only after the swap, as if it had other models to load."""
    listen, loaded, may_be_ready = WorkerLink.listen, asyncio.Event(), asyncio.Event()
    may_be_ready.set()

    async def late(link: WorkerLink, *given: Any) -> AsyncGenerator[FromWorker]:
        async with aclosing(listen(link, *given)) as messages:
            async for message in messages:
                if isinstance(message, WorkerReady) and link.number == 1:
                    loaded.set()
                    await may_be_ready.wait()
                yield message

    monkeypatch.setattr(WorkerLink, "listen", late)

    async def check() -> None:
        async with serving({"reviews": reviews}, forks, workers=2) as engine:
            loaded.clear()
            may_be_ready.clear()
            os.kill(engine.worker_pids[1], signal.SIGKILL)
            await loaded.wait()
            retrain(reviews, 3.0)
            await until(lambda: engine.counters["swaps_total"] == 1)
            may_be_ready.set()
            new = identity_of(reviews / "model")
            await until(
                lambda: (
                    [link.serves("reviews") and link.cards["reviews"].fingerprint for link in engine._links]
                    == [new, new]
                )
            )
            assert engine.models["reviews"].fingerprint == new
            swaps = engine.counters["swaps_total"]
            await asyncio.sleep(0.1)
            assert engine.counters["swaps_total"] == swaps  # it is settled

    asyncio.run(check())


def test_a_row_in_progress_ends_with_the_model_it_began_with(
    models: dict[str, Path], tmp_path: Path, forks: SharedForks
) -> None:
    run = Path(shutil.copytree(models["gru"], tmp_path / "gru"))
    (expected,) = seqloom.load(run).generate(["the"], max_new_tokens=600)

    async def check() -> None:
        async with serving({"gru": run}, forks) as engine:
            running = asyncio.ensure_future(engine.ask("gru", "generate", ["the"], {"max_new_tokens": 600}))
            await until(lambda: engine.counters["tokens_total"] > 3)
            retrain(run, 2.0)
            await until(lambda: engine.counters["swaps_total"] == 1)
            assert not running.done(), "the swap has to come before its end, or this shows nothing"
            ((answer,),) = await running
            assert answer["text"] == expected[0].text

    asyncio.run(check())


def test_a_model_of_another_task_is_refused(models: dict[str, Path], reviews: Path, forks: SharedForks) -> None:
    async def check() -> None:
        async with serving({"reviews": reviews}, forks) as engine:
            shutil.copytree(models["scores"] / "model", reviews / ".copy")
            (reviews / "model").rename(reviews / ".old")
            (reviews / ".copy").rename(reviews / "model")
            await until(lambda: engine.counters["refused_swaps_total"] == 1)
            assert engine.models["reviews"].task == "classify"
            assert "label" in (await engine.ask("reviews", "classify", ["a good film"]))[0]
            (pid,) = engine.worker_pids
            os.kill(pid, signal.SIGKILL)
            await until(lambda: engine.worker_pids not in ([pid], []))
            assert engine.models["reviews"].task == "classify"  # neither does it come in by a restart

    asyncio.run(check())


def test_a_folder_that_still_changes_is_left_alone_and_the_same_model_is_no_new_version(
    reviews: Path, forks: SharedForks, log: Lines
) -> None:
    async def check() -> None:
        async with serving({"reviews": reviews}, forks) as engine:
            before = engine.models["reviews"].loaded_at
            staged = list[Any]()
            stage = engine._links[0].stage
            engine._links[0].stage = lambda message: staged.append(message) or stage(message)  # type: ignore[func-returns-value]
            for number in range(60):  # as if it were being written
                os.utime(reviews / "model" / "model.safetensors", ns=(number, number))
                await asyncio.sleep(0.005)
            assert staged == []
            await until(lambda: engine.models["reviews"].loaded_at > before)
            assert len(staged) == 1 and engine.counters["swaps_total"] == 0

    asyncio.run(check())
    assert log.lines == ["reviews is loaded again; its version is the same"]


def test_a_folder_that_is_gone_for_a_while_changes_nothing_and_is_logged(
    reviews: Path, forks: SharedForks, log: Lines
) -> None:
    """Once, and when it is back."""

    async def check() -> None:
        async with serving({"reviews": reviews}, forks) as engine:
            for number in (1, 2):
                reviews.rename(reviews.with_name("away"))
                await until(lambda lines=2 * number - 1: len(log.lines) == lines)  # type: ignore[misc]
                await asyncio.sleep(0.1)
                assert await engine.ask("reviews", "classify", ["a good film"])
                reviews.with_name("away").rename(reviews)
                await until(lambda lines=2 * number: len(log.lines) == lines)  # type: ignore[misc]
                await asyncio.sleep(0.1)
            assert engine.counters["swaps_total"] == engine.counters["refused_swaps_total"] == 0

    asyncio.run(check())
    gone = "the folder of reviews is missing or incomplete: workers that have loaded it go on, new ones cannot"
    assert log.lines == [f"{gone}. Fix: put it back.", "the folder of reviews is back"] * 2


def test_a_worker_that_starts_on_a_broken_folder_serves_the_other_models(
    models: dict[str, Path], reviews: Path, forks: SharedForks
) -> None:
    """The old weights are lost with the worker: requests are refused until the folder is repaired."""

    async def check() -> None:
        both = {"reviews": reviews, "scores": models["scores"]}
        async with serving(both, forks, queue_seconds=0.3) as engine:
            spoil(reviews)
            await until(lambda: engine.counters["refused_swaps_total"] == 1)
            (pid,) = engine.worker_pids
            os.kill(pid, signal.SIGKILL)
            await until(lambda: engine.worker_pids not in ([pid], []))
            assert await engine.ask("scores", "regress", ["a good film"])
            with pytest.raises(WaitedTooLong):
                await engine.ask("reviews", "classify", ["a good film"])
            retrain_from(reviews, 2.0)
            await until(lambda: engine.counters["swaps_total"] == 1)
            assert await engine.ask("reviews", "classify", ["a good film"])

    asyncio.run(check())


def test_a_folder_that_was_away_when_a_worker_started_is_loaded_when_it_is_back(
    models: dict[str, Path], reviews: Path, forks: SharedForks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not changed: the same files are back."""
    monkeypatch.setattr(swap_module, "RETRY", 0.1)

    async def check() -> None:
        both = {"reviews": reviews, "scores": models["scores"]}
        async with serving(both, forks) as engine:
            (pid,) = engine.worker_pids
            (reviews / "model").rename(reviews / ".away")
            os.kill(pid, signal.SIGKILL)
            await until(lambda: engine.worker_pids not in ([pid], []))
            assert not engine._links[0].serves("reviews")
            (reviews / ".away").rename(reviews / "model")
            await until(lambda: engine._links[0].serves("reviews"))
            assert await engine.ask("reviews", "classify", ["a good film"])

    asyncio.run(check())


def test_documents_that_are_added_to_an_index_are_found(tmp_path: Path, forks: SharedForks) -> None:
    index = make_index(tmp_path)

    async def check() -> None:
        async with serving({"index": index}, forks) as engine:
            (before,) = await engine.ask("index", "search", ["zebra"])
            assert before == []
            more = [one._replace(text=f"zebra {one.text}") for one in some_documents(2)]  # they replace two
            last(add_to_index(index, None, Collection(write_documents(tmp_path / "more.jsonl", more))))
            await until(lambda: engine.counters["swaps_total"] >= 1)
            (after,) = await engine.ask("index", "search", ["zebra"])
            assert {hit["id"] for hit in after} == {one.id for one in more}

    asyncio.run(check())
