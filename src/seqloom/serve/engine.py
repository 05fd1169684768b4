"""The engine of the server: a bounded queue of requests, and worker processes that answer them.

    ask, stream ──▶ dispatch.py: a queue ──▶ batches of one model and verb ──▶ worker 0 ──▶ answers
                                 bounded     rows of generation            └─▶ worker 1
                                 every second: has a folder changed?

Nothing waits for ever: a full queue refuses, a request that no worker has begun in time is refused, and a lost worker
is replaced while its requests are refused. This process never imports torch and runs no model.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Container, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError, DurableError, fix_sentence
from seqloom.serve.calls import Call, Lane, checked_options
from seqloom.serve.dispatch import Dispatcher
from seqloom.serve.forkserver import DEVICE_LOST, ForkServer
from seqloom.serve.link import Flight, WorkerLink
from seqloom.serve.messages import (
    VERBS,
    BatchAnswers,
    FromWorker,
    ModelCard,
    ModelRefused,
    ModelStaged,
    PromptProgress,
    StartWorker,
    StillWorking,
    TextPart,
    TokenUsage,
    Verb,
    WorkerBegun,
    WorkerReady,
)
from seqloom.serve.refusals import (
    BadItem,
    Draining,
    Refusal,
    TimedOut,
    Unable,
    UnknownModel,
    WaitedTooLong,
    WorkerLost,
)
from seqloom.serve.swap import HotSwap, change_of

__all__ = ["VERBS", "CountedAnswer", "Engine", "ModelCard", "TextPart", "TokenUsage", "Verb"]

POLL = 1.0  # seconds between two looks at the workers
LONGEST_PAUSE = 5.0  # seconds before a worker that is lost again and again is started again
DOUBLINGS = 10  # of the pause; more would pass any limit, and in the end the range of a float
LONGEST_LOAD = 300.0  # seconds in which a worker must have loaded its models
HUNG = 10.0  # seconds beyond the longest request after which a worker that says nothing is killed
COUNTS = {  # what each number for monitoring means; those that end in `_total` only grow
    "requests_total": "Requests for the queue, with those that found it full.",
    "items_total": "Texts or inputs in these requests.",
    "batches_total": "Batches that were sent to workers.",
    "batch_items_total": "Texts or inputs in these batches.",
    "steps_total": "Steps in which workers continued prompts.",
    "tokens_total": "Tokens that were generated in these steps.",
    "refused_total": "Requests that were refused in the queue or by a worker.",
    "seconds_in_model_total": "Seconds in which workers computed.",
    "seconds_in_queue_total": "Seconds in which requests waited until a worker began with them.",
    "worker_restarts_total": "Workers that were lost.",
    "swaps_total": "New versions of models that took the place of the old ones.",
    "refused_swaps_total": "New versions of models that were refused.",
    "waiting": "Requests in the queue, now.",
    "running": "Requests in the workers, now.",
    "workers_ready": "Workers that have loaded their models, now.",
    "workers": "Workers, with those that still load.",
}
log = logging.getLogger("seqloom.serve")


class CountedAnswer(NamedTuple):
    """The answers of a request, and the tokens that it took."""

    outputs: list[Any]
    usage: TokenUsage


class Engine:
    """The models and their workers; an async context manager that lives in one event loop.

    It never imports torch: a request can end a worker, but not this process.

        async with Engine({"reviews": Path("runs/reviews")}, ServingConfig()) as engine:
            await engine.ask("reviews", "classify", ["a fine film"])
    """

    def __init__(self, models: Mapping[str, Path], config: ServingConfig) -> None:
        """Serve run folders, model folders and index folders by name."""
        if not models:
            raise ConfigError("there is no model to serve", fix="give a run folder or a model folder")
        self.config = config
        self.paths = {name: Path(path).absolute() for name, path in models.items()}
        self.threads = _threads(config.workers)
        self._forks = ForkServer(self.threads)
        self._links = [WorkerLink(number) for number in range(config.workers)]
        self._calls: set[Call] = set()  # that are not ended
        self._cards: dict[str, ModelCard] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: dict[str, float] = {name: 0 for name in COUNTS if name.endswith("_total")}
        self._dispatcher = Dispatcher(self._links, config, self._counts)
        self._draining = self._closed = False
        self._broken: asyncio.Future[None] | None = None  # while it starts: a model that cannot be loaded

    # Starting and stopping

    async def __aenter__(self) -> Self:
        """Start the workers and return when all models are loaded; SeqloomError for one that cannot be loaded."""
        self._broken = asyncio.get_running_loop().create_future()
        swap = HotSwap(self.paths, self._links, self._cards, self._counts)  # the folders as they are loaded
        for link in self._links:
            self._spawn(self._work(link))
        self._spawn(self._watch())
        try:
            while not all(link.ready for link in self._links):
                await asyncio.wait([self._broken], timeout=0.01)
                if self._broken.done():
                    self._broken.result()
        except BaseException:
            await self._close()
            raise
        self._broken = None
        self._spawn(swap.watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers, at once; call `drain` before for a graceful stop."""
        await self._close()

    async def drain(self, seconds: float) -> None:
        """Stop gracefully: accept nothing more, and wait until running requests have ended, or this many seconds."""
        self._draining = True
        end = asyncio.get_running_loop().time() + seconds
        while self._calls and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait([call.result for call in self._calls], timeout=left)
            await asyncio.sleep(0)  # those who wait take their answers
        for call in tuple(self._calls):
            call.fail(Draining("the server is stopping", fix="try again later"))

    async def _close(self) -> None:
        self._draining = self._closed = True
        for call in tuple(self._calls):
            call.fail(Draining("the server is stopping", fix="try again later"))
        for link in self._links:
            link.kill()
        self._forks.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links:
            link.lose()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What it is doing

    @property
    def models(self) -> Mapping[str, ModelCard]:
        """The card of each model, by name; a new one after a hot swap."""
        return MappingProxyType(self._cards)

    @property
    def ready(self) -> bool:
        """Whether at least one worker has loaded a model and the engine is not stopping."""
        return not self._draining and any(link.cards for link in self._links)

    @property
    def counters(self) -> Mapping[str, float]:
        """Numbers for monitoring, by the names in COUNTS."""
        waiting = self._dispatcher.waiting
        now = {
            "waiting": waiting,
            "running": len(self._calls) - waiting,
            "workers_ready": sum(link.ready for link in self._links),
            "workers": len(self._links),
        }
        return self._counts | now

    @property
    def worker_pids(self) -> list[int]:
        """The process numbers of the workers that are ready."""
        return [link.pid for link in self._links if link.pid is not None]

    # Requests

    def is_full(self, lanes: Container[Lane], requests: int) -> bool:
        """Whether one more request in these lanes would be refused, if so many are here or on their way.

        It is quick, so that requests can be refused before they are read.
        """
        if requests < self.config.max_waiting:
            return False
        running = len(self._calls) - self._dispatcher.waiting
        return requests - running >= self.config.max_waiting and not self._dispatcher.has_room(lanes)

    async def ask(
        self,
        model: str,
        verb: Verb,
        items: Sequence[Any],
        options: Mapping[str, Any] | None = None,
        *,
        begun: float | None = None,
    ) -> list[Any]:
        """Answer the items in order, each with a plain JSON value, whose numbers are not rounded.

        Args:
            model: its name.
            verb: one of its abilities.
            items: texts; or pairs of texts, lists of words or lists of numbers, as the model reads them.
            options: of `translate` and `generate` the settings of decoding (max_new_tokens, stop, temperature, top_k,
                top_p, min_p, num_samples, seed, beam_size, n_best, ...; translate also `replace_unknown`); of
                `search` top_k and where. None and values of None mean defaults.
            begun: since when the request waits for its answer, in the time of the event loop; None: from now on.

        Returns:
            classify, regress, tag, translate, embed: the object of `Prediction.to_json` for each item. generate: for
            each item the list of its continuations {text, score, finish_reason}. search: for each item the list of its
            hits.

        Raises a `Refusal`. A cancelled call leaves the queue; its result is dropped.
        """
        return (await self.ask_counted(model, verb, items, options, begun=begun)).outputs

    async def ask_counted(
        self,
        model: str,
        verb: Verb,
        items: Sequence[Any],
        options: Mapping[str, Any] | None = None,
        *,
        begun: float | None = None,
    ) -> CountedAnswer:
        """The same with the tokens that were read and generated, of prompts without beams and of `embed`."""
        card = self._require(model, verb)
        by_vectors = card.vector_size is not None
        chosen = checked_options(verb, options or {}, self.config, items=len(items), by_vectors=by_vectors)
        call = Call(model, verb, items, chosen)
        if not items:
            return CountedAnswer([], TokenUsage())
        try:
            self._admit(call, begun)
            return CountedAnswer(await call.result, call.usage)
        except Refusal:
            self._counts["refused_total"] += 1
            raise
        finally:
            self._leave(call)

    def stream(
        self, model: str, prompt: str, options: Mapping[str, Any] | None = None, *, begun: float | None = None
    ) -> AsyncGenerator[TextPart, None]:
        """Continue a prompt, and yield the text as it is generated; joined, it is the text that `ask` gives.

        Options are those of `generate`, without beams and several samples. UnknownModel, Unable, BadItem (of options)
        and Draining are raised by the call; other refusals by the first `anext` or later ones. Closing the generator
        (`aclose`, or cancelling the task that reads it) ends the work in the worker within a step.
        """
        self._require(model, "generate")
        chosen = checked_options("generate", options or {}, self.config)
        if not chosen.continuous or chosen.rows != 1:
            field = "num_samples" if chosen.continuous else "beam_size"
            raise BadItem(None, field, "a stream is one text, which never changes", f"leave out {field}")
        return self._parts(Call(model, "generate", [prompt], chosen, streamed=True), begun)

    async def _parts(self, call: Call, begun: float | None) -> AsyncGenerator[TextPart, None]:
        assert call.parts is not None
        try:
            self._admit(call, begun)
            while True:
                part = await call.parts.get()
                if isinstance(part, Refusal):
                    self._counts["refused_total"] += 1
                    raise part
                yield part
                if part.finish_reason is not None:
                    return
        finally:
            self._leave(call)

    def _require(self, model: str, verb: Verb) -> ModelCard:
        """The card of a model; refuse what cannot be answered by any worker."""
        if self._draining:
            raise Draining("the server is stopping", fix="try again later")
        if model not in self._cards:
            raise UnknownModel(model, self._cards)
        card = self._cards[model]
        if verb not in card.abilities:
            able = ", ".join(sorted(card.abilities))
            raise Unable(f"the model '{model}' cannot {verb}: its task is {card.task}", fix=f"it can {able}")
        return card

    def _admit(self, call: Call, begun: float | None) -> None:
        """Put a request into the queue, and into a worker that is free; TimedOut if its time has passed already."""
        self._counts["requests_total"] += 1
        self._counts["items_total"] += len(call.items)
        loop = asyncio.get_running_loop()
        end = (loop.time() if begun is None else begun) + self.config.total_seconds
        if loop.time() >= end:
            raise self._too_late()
        self._dispatcher.add(call)
        self._calls.add(call)
        call.timers.append(loop.call_at(end, lambda: call.fail(self._too_late())))
        if call.waits:
            call.timers.append(loop.call_later(self.config.queue_seconds, self._end_waiting, call))

    def _too_late(self) -> TimedOut:
        seconds = f"{self.config.total_seconds:g} s"
        return TimedOut(f"the answer took longer than {seconds}", fix="send fewer or shorter texts")

    def _end_waiting(self, call: Call) -> None:
        if call.waits:
            problem, fix = (
                f"no worker was free within {self.config.queue_seconds:g} s",
                "try again, or start more workers",
            )
            ready = [link for link in self._links if link.ready]
            if ready and not any(link.serves(call.model) for link in ready):
                problem = f"the folder of the model '{call.model}' could not be loaded"
                fix = "repair the folder; the log of the server says what is wrong"
            call.fail(WaitedTooLong(problem, fix=fix))
            self._leave(call)

    def _leave(self, call: Call) -> None:
        """Remove a request that is ended or that nobody waits for any more."""
        call.close()
        self._calls.discard(call)
        if call.left:  # else no worker has anything of it
            self._dispatcher.remove(call)

    # The workers

    async def _work(self, link: WorkerLink) -> None:
        """Keep one worker running. Whatever fails, this task lives on: nobody else restarts the worker."""
        while not self._closed:
            try:
                try:
                    await self._talk(link)
                except Exception:  # such as too many open files
                    link.kill()
                    raise
                finally:
                    link.failures += 1
                    self._lost(link)
            except Exception as error:
                why = error.strerror if isinstance(error, OSError) else type(error).__name__
                log.error("worker %d cannot be started or understood: %s", link.number, why)
            await asyncio.sleep(pause_after(link.failures))

    async def _talk(self, link: WorkerLink) -> None:
        """Start a worker, and take its messages until it is gone."""
        models = {name: str(path) for name, path in self.paths.items()}
        start = StartWorker(link.number, self.threads, self.config.device, models, self.config.max_tokens)
        async with aclosing(link.listen(self._forks.worker(), start)) as messages:
            async for message in messages:
                self._received(link, message)

    def _lost(self, link: WorkerLink) -> None:
        if self._closed:
            return
        process = link.process
        for flight in link.lose():  # first: whatever fails below, the link is free for another worker
            flight.call.fail(WorkerLost("the worker that computed this request was lost", fix="try again"))
        self._counts["worker_restarts_total"] += 1
        if self._broken is not None and not self._broken.done():
            lost = DurableError("a worker ended while it loaded the models", fix="see the messages above")
            self._broken.set_exception(lost)
        self._spawn(self._tell_end(link.number, process))

    async def _tell_end(self, number: int, process: int | None) -> None:
        """Log how a worker has ended, which is known a moment after its socket has closed."""
        code = None
        for _ in range(20):
            if process is None or (code := self._forks.ended(process)) is not None:
                break
            await asyncio.sleep(0.01)
        log.warning("worker %d is lost (%s); it is started again", number, how_it_ended(code))

    def _received(self, link: WorkerLink, message: FromWorker) -> None:
        match message:
            case BatchAnswers():
                self._answered(link, message)
            case PromptProgress():
                self._written(link, message)
            case WorkerBegun(pid=pid):
                link.process = pid
                return
            case WorkerReady():
                self._loaded(link, message)
            case StillWorking():
                pass
            case ModelStaged() | ModelRefused():
                link.staged(message)
        link.owes = asyncio.get_running_loop().time() if link.is_busy else None
        self._dispatcher.dispatch()

    def _loaded(self, link: WorkerLink, message: WorkerReady) -> None:
        link.pid, link.failures = message.pid, 0
        refused = dict(message.refused)
        for name, card in message.cards.items():
            if name in self._cards and (change := change_of(self._cards[name], card)):
                refused[name] = change, ""
            else:
                link.cards[name] = self._cards[name] = card
        for name, (problem, fix) in refused.items():
            if self._broken is not None and not self._broken.done():
                self._broken.set_exception(ConfigError(f"{name}: {problem}", fix=fix))
            cure = f". {fix_sentence(fix)}" if fix else ""
            log.error("worker %d cannot serve %s: %s%s", link.number, name, problem, cure)

    def _answered(self, link: WorkerLink, message: BatchAnswers) -> None:
        pauses = next(pauses for pauses, batch in link.batches.items() if batch.id == message.id)
        flights = link.batches.pop(pauses).flights
        self._counts["seconds_in_model_total"] += message.seconds
        for flight, answer in zip(flights, message.answers, strict=True):
            self._tell_fault(flight, answer.fault)
            flight.call.answer(flight.place, answer)

    def _written(self, link: WorkerLink, message: PromptProgress) -> None:
        self._counts["steps_total"] += bool(message.rows)
        self._counts["tokens_total"] += message.rows
        self._counts["seconds_in_model_total"] += message.seconds
        for news in message.news:
            flight = link.prompts.get(news.id)
            if flight is None:
                continue  # it was cancelled meanwhile
            if flight.call.parts is not None and (news.text or (news.answer is not None and news.answer.served)):
                usage = TokenUsage() if news.answer is None else TokenUsage(news.answer.read, news.answer.written)
                flight.call.parts.put_nowait(TextPart(news.text, news.finish_reason, usage))
            if news.answer is not None:
                del link.prompts[news.id]
                self._tell_fault(flight, news.answer.fault)
                flight.call.answer(flight.place, news.answer)

    def _tell_fault(self, flight: Flight, fault: str) -> None:
        if fault:
            log.error("%s of the model %s failed: %s", flight.call.verb, flight.call.model, fault)

    async def _watch(self) -> None:
        """End workers that hang."""
        while True:
            await asyncio.sleep(POLL)
            now = asyncio.get_running_loop().time()
            for link in self._links:
                longest = self.config.total_seconds + HUNG if link.ready else LONGEST_LOAD
                if link.owes is not None and now - link.owes > longest:
                    doing = "answer" if link.ready else "load its models"
                    log.error("worker %d does not %s; it is killed", link.number, doing)
                    if link.process is None:  # maybe nothing was forked
                        with suppress(OSError):
                            self._forks.start()
                    link.kill()


def pause_after(failures: int) -> float:
    """Seconds before a worker is started again that was lost so many times, one after the other.

    >>> [pause_after(failures) for failures in (1, 2, 3, 4, 5_000)]
    [0.0, 0.2, 0.4, 0.8, 5.0]
    """
    return min(LONGEST_PAUSE, 0.1 * 2 ** min(failures - 1, DOUBLINGS)) if failures > 1 else 0.0


def how_it_ended(code: int | None) -> str:
    """An exit code in words.

    >>> [how_it_ended(code) for code in (None, 1, 70, -9)]
    ['how is not known', 'exit code 1', 'its GPU failed', 'killed by SIGKILL']
    """
    if code is None:
        return "how is not known"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return "its GPU failed" if code == DEVICE_LOST else f"exit code {code}"


def _threads(workers: int) -> int:
    """The threads of each worker: its share of all cores but one, or what OMP_NUM_THREADS says.

    One core is for the listener. Threads wait for one another in every layer, so if one of them shares its core, all
    are slow: with threads on two busy cores, a batch of 16 took 1.2 to 2.1 times as long as with one thread.
    """
    if (asked := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        return max(1, int(asked))
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, (cores - 1) // workers)
