"""A worker: a process with the models. It reads messages from the listener and writes answers.

    socket ──▶ thread: decodes ──▶ inbox ──▶ main thread: batches, and a step of every running generation ──▶ socket
                                     ▲
                    thread: loads a new version of a model

One thread computes. A batch that takes long, such as a beam search, pauses between two steps: the worker reads its
messages, computes a batch that came meanwhile, generates a token for the running prompts, and stops the batch if nobody
waits for it. A cancelled prompt leaves between two steps, and a new version of a model is loaded beside the
old one by another thread, so neither waits for the other. What is being generated finishes with the model that it
started with. When the socket closes, because the listener has ended, the worker ends.
"""

import gc
import logging
import os
import pkgutil
import queue
import signal
import socket
import sys
import threading
import time
from contextlib import suppress

import torch

from seqloom.decoding.answers import GrowingText
from seqloom.decoding.continuous import ContinuousRow
from seqloom.decoding.pauses import pausing
from seqloom.errors import SeqloomError
from seqloom.serve.forkserver import DEVICE_LOST
from seqloom.serve.messages import (
    LENGTH,
    BatchAnswers,
    CancelBatch,
    CancelPrompt,
    ComputeBatch,
    ContinuePrompt,
    DiscardModel,
    FromWorker,
    ItemAnswer,
    ModelRefused,
    ModelStaged,
    PromptNews,
    PromptProgress,
    StageModel,
    StartWorker,
    StillWorking,
    SwapModel,
    ToWorker,
    WorkerBegun,
    WorkerReady,
    framed,
    to_worker,
)
from seqloom.serve.refusals import place_of
from seqloom.serve.served import AnyServed, DeviceLost, answers_of, open_served, refused, require_device, sendable
from seqloom.tasks.task import TASKS
from seqloom.training.devices import LOCAL_RANK, choose_device

log = logging.getLogger("seqloom.serve")
UNLOADED = ItemAnswer(fault="the model could not be loaded again after a restart")
SIGN_OF_LIFE = 0.25  # seconds between two messages that a long batch is being computed
Arrived = ToWorker | ModelRefused | tuple[int, AnyServed]  # the last: a new version of a model that is loaded


class Stopped(BaseException):
    """Ends a batch that nobody waits for, or everything; no error of the batch, so nothing tries its items again."""


class RunningPrompt:
    """A prompt that is being continued, with its rows; `text` if it is streamed."""

    def __init__(self, id_: int, served: AnyServed, rows: list[ContinuousRow], *, streamed: bool) -> None:
        self.id, self.served, self.rows = id_, served, rows
        self.text = GrowingText() if streamed else None

    def news(self) -> PromptNews | None:
        """What is new after a step; None if there is nothing."""
        text = "" if self.text is None else self.text.further(self.rows[0].draft)
        if any(row.runs for row in self.rows):
            return PromptNews(self.id, text) if text else None
        return PromptNews(self.id, text, sendable(self.served.written(self.rows)), self.rows[0].draft.finish_reason)


class ModelWorker:
    """The models, and what is being computed."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.inbox: queue.SimpleQueue[Arrived | None] = queue.SimpleQueue()  # None: the listener is gone
        self.models: dict[str, AnyServed] = {}
        self.staged: dict[int, AnyServed] = {}
        self.prompts: dict[int, RunningPrompt] = {}
        self.batches: dict[int, bool] = {}  # the ids of those that are computed, and whether anybody waits for them
        self.said = 0.0  # when the listener last heard that a batch is computed
        self.aside = 0.0  # seconds in pauses of batches
        self.ends = False
        self.device = "cpu"
        self.max_tokens = 0  # of an item

    def run(self) -> None:
        """Answer until the listener is gone."""
        threading.Thread(target=self._receive, daemon=True).start()
        self._send(WorkerBegun(os.getpid()))
        with suppress(Stopped):
            while True:
                self._take(wait=not self.prompts)
                if self.prompts:
                    self._step()

    def _receive(self) -> None:
        """Put every message into the inbox, in a thread of its own."""
        with self.link.makefile("rb") as stream:
            while len(head := stream.read(LENGTH)) == LENGTH:
                self.inbox.put(to_worker.decode(stream.read(int.from_bytes(head, "big"))))
        self.inbox.put(None)

    def _take(self, *, wait: bool) -> None:
        """Handle all messages that are there, not those that come meanwhile; `wait`: for the first."""
        for _ in range(self.inbox.qsize() or wait):
            try:
                message = self.inbox.get(block=wait)
            except queue.Empty:  # a batch has taken the others in its pauses
                return
            if message is None:
                self.ends = True
                raise Stopped
            wait = False
            self._handle(message)

    def _send(self, message: FromWorker) -> None:
        self.link.sendall(framed(message))

    def _handle(self, message: Arrived) -> None:
        match message:
            case ComputeBatch():
                self._compute(message)
            case CancelBatch(id=id_):
                if id_ in self.batches:
                    self.batches[id_] = False
            case ContinuePrompt():
                self._continue(message)
            case CancelPrompt(id=id_):
                self._cancel(id_)
            case StageModel():
                threading.Thread(target=self._stage, args=(message,), daemon=True).start()
                self._send(StillWorking())
            case (number, served):
                self.staged[number] = served
                self._send(ModelStaged(number, served.card))
            case ModelRefused():
                self._send(message)
            case SwapModel(number=number):
                if (staged := self.staged.pop(number, None)) is not None:
                    self.models[staged.card.name] = staged
            case DiscardModel(number=number):
                self.staged.pop(number, None)
            case StartWorker():
                self._start(message)

    def _start(self, asked: StartWorker) -> None:
        """Load all models. One that cannot be loaded is reported; the others are served."""
        torch.set_num_threads(asked.threads)
        self.max_tokens = asked.max_tokens
        if torch.cuda.device_count() > 1:
            os.environ[LOCAL_RANK] = str(asked.number % torch.cuda.device_count())
        broken = dict[str, tuple[str, str]]()
        for name, path in asked.models.items():
            try:
                self.device = str(choose_device(asked.device, "float32").torch)  # type: ignore[arg-type]
                self.models[name] = open_served(name, path, self.device, self.max_tokens)
            except Exception as error:
                broken[name] = _why(error)
        gc.collect()
        gc.freeze()  # they are here to stay: no later collection has to look at them
        self._send(WorkerReady(os.getpid(), {name: one.card for name, one in self.models.items()}, broken))

    def _stage(self, asked: StageModel) -> None:
        """Load a new version of a model, in a thread of its own."""
        try:
            served = open_served(asked.name, asked.path, self.device, self.max_tokens)
            self.inbox.put((asked.number, served))
        except Exception as error:
            self.inbox.put(ModelRefused(asked.number, *_why(error)))

    def _compute(self, batch: ComputeBatch) -> None:
        began, served, aside = time.perf_counter(), self.models.get(batch.model), self.aside
        if served is None:
            answers = [UNLOADED] * len(batch.items)
        else:
            answers = self._answers(served, batch)
        self._send(BatchAnswers(batch.id, answers, time.perf_counter() - began - (self.aside - aside)))

    def _answers(self, served: AnyServed, batch: ComputeBatch) -> list[ItemAnswer]:
        self.batches[batch.id], self.said = True, time.perf_counter()
        try:
            with pausing(lambda: self._between(batch.id)):
                return answers_of(
                    lambda items: served.compute(batch.verb, items, batch.options),
                    batch.items,
                    lambda item: served.require_usable(batch.verb, item),
                )
        except Stopped:
            if self.ends:
                raise
            return [ItemAnswer()] * len(batch.items)
        finally:
            del self.batches[batch.id]

    def _between(self, id_: int) -> None:
        """In a pause of a batch: do what messages say, go on with the prompts, and tell that all is well."""
        began = time.perf_counter()
        self._take(wait=False)
        if not self.batches[id_]:
            raise Stopped
        if self.prompts:
            self._step()
        elif began - self.said > SIGN_OF_LIFE:
            self.said = began
            self._send(StillWorking())
        self.aside += time.perf_counter() - began

    def _continue(self, asked: ContinuePrompt) -> None:
        served = self.models.get(asked.model)
        try:
            rows = [] if served is None else served.rows(asked.prompt, asked.number, asked.options)
            if served is not None and any(row.runs for row in rows):
                self.prompts[asked.id] = RunningPrompt(asked.id, served, rows, streamed=asked.streamed)
                return
            answer = UNLOADED if served is None else sendable(served.written(rows))
        except Exception as error:
            require_device(error)
            answer = refused(error)
        self._send(PromptProgress([PromptNews(asked.id, answer=answer, finish_reason="length")], 0, 0.0))

    def _cancel(self, id_: int) -> None:
        prompt = self.prompts.pop(id_, None)
        if prompt is not None:
            self._drop(prompt)
        self._send(PromptProgress([], 0, 0.0))  # it has been heard

    def _step(self) -> None:
        """Generate a token for every row of every model, and tell what is new."""
        began = time.perf_counter()
        rows = 0
        for served in {id(one.served): one.served for one in self.prompts.values()}.values():
            try:
                assert served.running is not None, "a running prompt has a batch"
                rows += len(served.running.step())
            except Exception as error:  # no row of this batch can go on
                require_device(error)
                self._abandon(served, refused(error))
        news = [found for prompt in self.prompts.values() if (found := self._news_of(prompt)) is not None]
        for one in news:
            if one.answer is not None:
                del self.prompts[one.id]
        self._send(PromptProgress(news, rows, time.perf_counter() - began))  # also without news

    def _news_of(self, prompt: RunningPrompt) -> PromptNews | None:
        try:
            return prompt.news()
        except Exception as error:  # others can go on
            require_device(error)
            self._drop(prompt)
            return PromptNews(prompt.id, answer=refused(error))

    def _drop(self, prompt: RunningPrompt) -> None:
        """Generate nothing more for a prompt."""
        if prompt.served.running is not None:
            for row in prompt.rows:
                prompt.served.running.drop(row)

    def _abandon(self, served: AnyServed, answer: ItemAnswer) -> None:
        lost = [prompt for prompt in self.prompts.values() if prompt.served is served]
        served.running = None
        for prompt in lost:
            del self.prompts[prompt.id]
        self._send(PromptProgress([PromptNews(prompt.id, answer=answer) for prompt in lost], 0, 0.0))


def _why(error: Exception) -> tuple[str, str]:
    """The problem and the fix of a model that cannot be loaded; a request has no part in it."""
    return (error.problem, error.fix) if isinstance(error, SeqloomError) else (place_of(error), "")


def preload() -> None:
    """Import what the models of any task need."""
    for place in TASKS.values():
        pkgutil.resolve_name(place)


def main(descriptor: int) -> int:
    """Work for the listener at the other end of this socket; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the listener, which lets requests end
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as link:
        link.setblocking(True)
        try:
            ModelWorker(link).run()
        except DeviceLost:
            return DEVICE_LOST
        except Exception as error:  # its message may hold text of a request
            log.critical("a worker failed: %s", place_of(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
