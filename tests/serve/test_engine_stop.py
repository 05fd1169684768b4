"""Two times Ctrl-C: the first one lets requests finish, the second one does not wait for them."""

import asyncio
import io
import signal
import time

from http_common import FakeEngine
from seqloom.config.serving import ServingConfig
from seqloom.serve.app import HttpApp
from seqloom.serve.listener import Listener
from seqloom.serve.policies import Access, host_names
from seqloom.serve.traffic import Log, Traffic


class SlowToDrain(FakeEngine):
    """An engine whose requests take long; it keeps how long it may wait for them."""

    waits: tuple[float, ...] = ()

    async def drain(self, seconds: float) -> None:
        self.waits = (*self.waits, seconds)
        await asyncio.sleep(seconds)


def test_a_second_interrupt_waits_for_nothing() -> None:
    config, engine, lines = ServingConfig(port=0, drain_seconds=5.0), SlowToDrain(), Log(io.StringIO())
    app = HttpApp(engine, config, Access(host_names("127.0.0.1", 1, ()), None), Traffic(lines))  # type: ignore[arg-type]
    app.traffic.running = 1
    listener = Listener(app, config)
    listener.servers = []

    async def stop() -> float:
        began = time.perf_counter()
        listener.handle_exit(signal.SIGINT, None)
        asyncio.get_running_loop().call_later(0.1, listener.handle_exit, signal.SIGINT, None)
        await listener.shutdown([])
        return time.perf_counter() - began

    assert 0.1 <= asyncio.run(stop()) < 2  # the first one waits for the request that runs
    assert engine.waits == (0.0,)
    lines.close()
