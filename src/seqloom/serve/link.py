"""A worker as the listener sees it: a socket to it, and what it is computing."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from seqloom.serve.calls import Call
from seqloom.serve.messages import (
    LENGTH,
    DiscardModel,
    FromWorker,
    ModelCard,
    ModelRefused,
    ModelStaged,
    StageModel,
    ToWorker,
    framed,
    from_worker,
)


class Flight(NamedTuple):
    """An item that a worker is computing."""

    call: Call
    place: int  # in its request


class SentBatch(NamedTuple):
    """Items that a worker is computing together."""

    id: int
    flights: list[Flight]
    stopped: bool = False  # the worker has been told that nobody waits for it

    @property
    def is_unwanted(self) -> bool:
        """Whether nobody waits for any of its items."""
        return all(flight.call.ended for flight in self.flights)


class WorkerLink:
    """One worker, which may be lost and started again.

    Attributes:
        cards: the models that it has loaded.
        batches: what it is computing: at most one batch that has pauses (True), and one of another verb (False) in
            them.
        prompts: the prompts that it is continuing, by id.
    """

    def __init__(self, number: int) -> None:
        self.number, self.failures = number, 0
        self._forget()

    def _forget(self) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self.process: int | None = None  # its number, from the start
        self.pid: int | None = None  # the same, once its models are loaded
        self.cards: dict[str, ModelCard] = {}
        self.batches: dict[bool, SentBatch] = {}
        self.prompts: dict[int, Flight] = {}
        self.owes: float | None = None  # since when it should have said something
        self.staging: dict[int, asyncio.Future[ModelStaged | ModelRefused | None]] = {}

    @property
    def ready(self) -> bool:
        """Whether its models are loaded."""
        return self.pid is not None

    def serves(self, model: str) -> bool:
        """Whether it has loaded this model."""
        return model in self.cards

    @property
    def rows(self) -> int:
        """The rows of its running generations."""
        return sum(flight.call.options.rows for flight in self.prompts.values())

    @property
    def is_busy(self) -> bool:
        """Whether it is computing anything."""
        return bool(self.batches or self.prompts)

    @property
    def flights(self) -> list[Flight]:
        """All items that it is computing."""
        return [flight for batch in self.batches.values() for flight in batch.flights] + list(self.prompts.values())

    async def listen(self, link: socket.socket, first: ToWorker) -> AsyncGenerator[FromWorker]:
        """Send a first message, and yield the messages of the worker until it is gone."""
        reader, self.writer = await asyncio.open_connection(sock=link)
        self.ask(first)
        with suppress(asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):  # the last: its memory is broken
            while True:
                size = int.from_bytes(await reader.readexactly(LENGTH), "big")
                yield from_worker.decode(await reader.readexactly(size))

    def lose(self) -> list[Flight]:
        """The worker is gone: forget it, and return what it was computing."""
        lost = self.flights
        for staged in self.staging.values():
            if not staged.done():
                staged.set_result(None)
        if self.writer is not None:
            self.writer.close()
        self._forget()
        return lost

    def send(self, message: ToWorker) -> None:
        """Send a message; if the worker is gone, its reader notices."""
        if self.writer is not None:
            self.writer.write(framed(message))

    def ask(self, message: ToWorker) -> None:
        """Send a message that a worker in good health answers."""
        if self.owes is None:
            self.owes = asyncio.get_running_loop().time()
        self.send(message)

    def stage(self, message: StageModel) -> asyncio.Future[ModelStaged | ModelRefused | None]:
        """Let the worker load a new version; the result is None if the worker is lost."""
        future = self.staging[message.number] = asyncio.get_running_loop().create_future()
        self.ask(message)
        return future

    def staged(self, message: ModelStaged | ModelRefused) -> None:
        """A version is loaded or refused; one that nobody waits for any more is forgotten."""
        future = self.staging.pop(message.number, None)
        if future is not None and not future.done():
            future.set_result(message)
        elif isinstance(message, ModelStaged):
            self.send(DiscardModel(message.number))

    def kill(self) -> None:
        """End the process. The socket is still open, so the process number is still its own."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
        elif self.writer is not None:  # it has not said who it is: do not wait for it any more
            self.writer.close()
