"""The listener: binds the address, runs the application, and stops in order.

On SIGTERM and SIGINT it answers new requests with 503, lets running ones finish and clients read their answers, ends
the workers and returns.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

import uvicorn
from msgspec import structs

from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError
from seqloom.serve.app import HttpApp
from seqloom.serve.connection import LINGER_SECONDS, LimitedProtocol
from seqloom.serve.engine import Engine
from seqloom.serve.keys import KeyRing, read_keys
from seqloom.serve.policies import Access, host_names
from seqloom.serve.refusals import place_of
from seqloom.serve.traffic import Log, Traffic

BACKLOG = 2_048  # connections that wait for a turn of the event loop
MOST_ACCEPTED = 32  # in a turn: the limit of connections counts them only later
SPARE_FILES = 256  # that the process may open besides its connections
SAME_SECONDS = 1.0  # in which the same error of the event loop is one line
TICK = 0.02  # seconds
SWITCH_SECONDS = 0.0005  # after which the thread that reads a large body lets the event loop run


class Listener(uvicorn.Server):
    """The server of uvicorn, which refuses new requests and finishes running ones before it stops."""

    def __init__(self, app: HttpApp, config: ServingConfig) -> None:
        protocol = partial(LimitedProtocol, limits=config, traffic=app.traffic)
        super().__init__(
            uvicorn.Config(
                app,
                http=cast(Any, protocol),
                ws="none",
                loop="asyncio",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=MOST_ACCEPTED,
                timeout_keep_alive=cast(int, config.keep_alive_seconds),
                timeout_graceful_shutdown=2 * int(LINGER_SECONDS),
            )
        )
        # Its messages hold parts of requests; all that is worth a line is in our own log.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
        self.app, self.limits = app, config
        self.stopped_by = 0
        app.connections = lambda: len(self.server_state.connections)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal; uvicorn would raise it again at the end, and the exit code would be that of a kill."""
        if threading.current_thread() is not threading.main_thread():  # only there Python allows handlers
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and say in a line what goes wrong in the event loop, which has pages for it."""
        asyncio.get_running_loop().set_exception_handler(LoopErrors(self.app.traffic.log))
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(BACKLOG)  # asyncio has one number for these and for those that it accepts in a turn

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second Ctrl-C does not wait for anything."""
        if self.stopped_by and sig == signal.SIGINT:
            self.force_exit = True
        self.stopped_by = self.stopped_by or sig
        self.app.is_draining = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what runs and what is being read, then close all connections."""
        app, deadline = self.app, time.monotonic() + self.limits.drain_seconds
        app.traffic.log.say(f"stopping: {app.traffic.running} requests are running")
        while self._is_answering and time.monotonic() < deadline and not self.force_exit:
            await asyncio.sleep(TICK)
        await app.engine.drain(0.0 if self.force_exit else max(0.0, deadline - time.monotonic()))
        await super().shutdown(sockets)
        if self.server_state.tasks:  # they were canceled, and say so to their clients
            await asyncio.wait(self.server_state.tasks, timeout=LINGER_SECONDS)
        await asyncio.sleep(TICK)
        for one in tuple(self.server_state.connections):
            cast(LimitedProtocol, one).socket.abort()
        await asyncio.sleep(0)

    @property
    def _is_answering(self) -> bool:
        """Whether requests are running, or clients have not read all of their answers."""
        every = self.server_state.connections
        return self.app.traffic.running > 0 or any(cast(LimitedProtocol, one).is_sending for one in every)


def bound(config: ServingConfig) -> socket.socket:
    """Return a socket at the address; ConfigError if it cannot be had."""
    kind = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    one = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, else asyncio delays small packets
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind((config.host, config.port))
        one.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        one.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"--host {config.host} --port {config.port}: {reason}",
            fix="give another --port, or --port 0 for a free one",
        ) from None
    one.setblocking(False)
    return one


def allow_connections(asked: int) -> int:
    """Let the process open a file for each connection; return how many connections the system allows.

    A connection that finds no file would stop the server from accepting others.
    """
    if os.name != "posix":
        return asked
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = asked + SPARE_FILES if hard == resource.RLIM_INFINITY else min(asked + SPARE_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(1, min(asked, wanted - SPARE_FILES))


def access_of(config: ServingConfig, port: int) -> Access:
    """Return the host names and keys of these settings."""
    keys = None if config.keys is None else KeyRing(read_keys(Path(config.keys)))
    return Access(host_names(config.host, port, config.hosts), keys)


class LoopErrors:
    """Writes errors that nobody handles to the log: a line for each kind, at most one in a second."""

    def __init__(self, lines: Log) -> None:
        self.lines = lines
        self.said: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Write what happened; a message of asyncio may hold the arguments of a function, and so bytes of a request."""
        error = context.get("exception")
        text = place_of(error) if isinstance(error, Exception) else "the event loop"
        if isinstance(error, OSError) and error.strerror:
            text = f"{error.strerror}: {text}"
        if loop.time() - self.said.get(text, -SAME_SECONDS) >= SAME_SECONDS:
            self.said[text] = loop.time()
            self.lines.say(f"error: {text}")


class LogHandler(logging.Handler):
    """Writes the messages of the engine to the log of the server."""

    def __init__(self, lines: Log) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        self.lines.say(f"{record.levelname.lower()}: {record.getMessage()}")


Started = Callable[[Engine, int], None]


def serve(models: Mapping[str, Path], config: ServingConfig, *, log: TextIO | None, started: Started) -> int:
    """Serve models until a signal comes, and return its number.

    Args:
        models: run, model or index folders by name.
        config: where to listen, and the limits.
        log: where a line for each request is written; None: nowhere.
        started: is called with the engine and the port when requests are answered.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    if (allowed := allow_connections(config.max_connections)) < config.max_connections:
        if log is not None:
            log.write(f"the system allows {allowed:,} connections instead of {config.max_connections:,} (ulimit -n)\n")
        config = structs.replace(config, max_connections=allowed)
    with bound(config) as at:
        access = access_of(config, at.getsockname()[1])
        return asyncio.run(_served(models, config, at, access, log, started))


async def _served(
    models: Mapping[str, Path],
    config: ServingConfig,
    at: socket.socket,
    access: Access,
    log: TextIO | None,
    started: Started,
) -> int:
    lines = Log(log)
    handler = LogHandler(lines)
    messages = logging.getLogger("seqloom.serve")  # of the engine: lost workers, new models
    messages.addHandler(handler)
    messages.setLevel(logging.INFO)
    try:
        engine = Engine(models, config)
        listener = Listener(HttpApp(engine, config, access, Traffic(lines)), config)
        with listener.capture_signals():  # no other handler ends the first process of a container
            async with AsyncExitStack() as stack:
                loading = asyncio.ensure_future(stack.enter_async_context(engine))
                while not loading.done() and not listener.should_exit:
                    await asyncio.wait([loading], timeout=TICK)
                if listener.should_exit:
                    lines.say("stopping: the models are not loaded yet")
                    loading.cancel()
                    await asyncio.gather(loading, return_exceptions=True)
                    return listener.stopped_by
                loading.result()
                gc.collect()
                gc.freeze()  # modules and routes are here to stay: no pause while requests wait, to look at them again
                started(engine, at.getsockname()[1])
                await listener.serve(sockets=[at])
        return listener.stopped_by
    finally:
        messages.removeHandler(handler)
        lines.close()
