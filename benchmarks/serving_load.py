"""A server under load: `seqloom serve` with a small classifier, and a client on the same machine.

    python benchmarks/serving_load.py [SECONDS]

First 16 connections ask as fast as they are answered: the capacity. Then requests come at fixed times, whether or not
earlier ones are answered: at 300 per second, at 70 % of the capacity, at 2 and 5 times the capacity or as fast as the
client can send, and at half of the capacity. A time is from the moment a request is sent to the end of its answer.

Each goal, for two cores, is printed beside its figure; the exit code is 1 if one is missed. The client shares the cores
with the server, and the more it sends the less is left. So the goodput of an overloaded server, in accepted requests
per second, is that of the server and the client together.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from serving import make_model, texts

SECONDS = 10.0
FAMILY = "cnn"
CLIENTS, MAX_CONNECTIONS = 16, 800
GOAL, SHARE, OVERLOADS = 300, 0.7, (2.0, 5.0)
P50, P99, OVERLOADED_P99, REFUSED_P99 = 15.0, 100.0, 250.0, 50.0  # ms
GOODPUT = 0.9  # of the capacity
GROWTH = 50.0  # MiB, of all processes of the server
WARM_UP = 1.0


class Asker(asyncio.Protocol):
    """One connection; it has one request at a time."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.transport: Any = None
        self.data = b""
        self.sent = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self) -> None:
        self.data, self.sent = b"", time.perf_counter()
        self.transport.write(self.load.request())

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.split(b"content-length: ")[1].split(b"\r\n")[0]):
            status = int(self.data[9:12])
            self.load.answered(self, status, time.perf_counter() - self.sent)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.lost(self)


class Load:
    """What is asked, and what came back."""

    def __init__(self, port: int) -> None:
        self.port = port
        fields = f"POST /v1/classify HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        bodies = [f'{{"texts":["{text}"]}}'.encode() for text in texts(64)]
        self.requests = [f"{fields}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.idle: list[Asker] = []
        self.busy: set[Asker] = set()
        self.closed_loop = False
        self.reset()

    def reset(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.times: dict[bool, list[float]] = {True: [], False: []}  # of accepted and of refused requests
        self.count = 0

    def request(self) -> bytes:
        self.count += 1
        return self.requests[self.count % len(self.requests)]

    def answered(self, one: Asker, status: int, seconds: float) -> None:
        self.statuses[str(status)] += 1
        self.times[status == 200].append(seconds)
        if self.closed_loop:
            one.ask()
        else:
            self.busy.discard(one)
            self.idle.append(one)

    def lost(self, one: Asker) -> None:
        if one in self.busy:
            self.statuses["reset"] += 1
            self.busy.discard(one)
        elif one in self.idle:
            self.idle.remove(one)

    async def connected(self) -> Asker:
        _, one = await asyncio.get_running_loop().create_connection(lambda: Asker(self), "127.0.0.1", self.port)
        return one

    async def capacity(self, seconds: float) -> float:
        """Requests per second of connections that ask again at once."""
        self.closed_loop = True
        self.busy = {await self.connected() for _ in range(CLIENTS)}
        for one in self.busy:
            one.ask()
        await asyncio.sleep(WARM_UP)
        self.reset()
        await asyncio.sleep(seconds)
        per_second = len(self.times[True]) / seconds
        self.closed_loop = False
        await asyncio.sleep(0.3)
        self.print(f"{CLIENTS} clients", per_second, seconds)
        return per_second

    async def arrivals(self, name: str, rate: float, seconds: float) -> None:
        """Send at fixed times."""
        self.reset()
        begun = time.perf_counter()
        number = 0
        while (now := time.perf_counter() - begun) < seconds:
            while number <= now * rate:
                number += 1
                if self.idle:
                    one = self.idle.pop()
                elif len(self.busy) < MAX_CONNECTIONS:
                    one = await self.connected()
                else:
                    self.statuses["not sent"] += 1
                    continue
                self.busy.add(one)
                one.ask()
            await asyncio.sleep(0.001)
        sent = self.count / (time.perf_counter() - begun)
        for _ in range(200):
            if not self.busy:
                break
            await asyncio.sleep(0.05)
        self.statuses["no answer"] += len(self.busy)
        self.print(name, sent, seconds)

    def print(self, name: str, rate: float, seconds: float) -> None:
        cells = [f"{name:>14}{rate:9.0f}{len(self.times[True]) / seconds:10.0f}"]
        for times in (sorted(self.times[True]), sorted(self.times[False])):
            cells += [
                f"{1_000 * times[int(share * (len(times) - 1))]:8.1f}" if times else f"{'-':>8}"
                for share in (0.5, 0.99)
            ]
        every = ", ".join(f"{status} x {count:,}" for status, count in sorted(self.statuses.items()) if count)
        print("".join(cells) + f"   {every}", flush=True)


async def measured(port: int, pid: int, seconds: float) -> "Goals":
    load, goals = Load(port), Goals()
    print(f"{'load':>14}{'sent/s':>9}{'200/s':>10}{'p50':>8}{'p99':>8}{'refused':>8}{'p99':>8}   answers (times in ms)")
    capacity = await load.capacity(seconds)
    goals.least("capacity", capacity, GOAL)
    for name, rate in ((f"{GOAL}/s", GOAL), (f"{SHARE:.0%}", SHARE * capacity)):
        await load.arrivals(name, rate, seconds)
        goals.only(f"{name}: errors", load.statuses, {"200"})
        goals.most(f"{name}: p50", quantile(load.times[True], 0.5), P50)
        goals.most(f"{name}: p99", quantile(load.times[True], 0.99), P99)
    before = memory(pid)
    for times in OVERLOADS:
        name = f"{times:g}x"
        await load.arrivals(f"{name} overload", times * capacity, seconds)
        goals.only(f"{name}: errors", load.statuses, {"200", "429", "503", "not sent"})
        goals.most(f"{name}: p99 of accepted", quantile(load.times[True], 0.99), OVERLOADED_P99)
        goals.most(f"{name}: p99 of refused", quantile(load.times[False], 0.99), REFUSED_P99)
        goals.least(f"{name}: accepted, with the client", len(load.times[True]) / seconds, GOODPUT * capacity)
    goals.most("growth of memory", memory(pid) - before, GROWTH, "MiB")
    await load.arrivals("50% after it", 0.5 * capacity, seconds)
    goals.only("50%: errors", load.statuses, {"200"})
    goals.most("50%: p99", quantile(load.times[True], 0.99), P99)
    for one in load.idle:
        one.transport.abort()
    return goals


def quantile(times: list[float], share: float) -> float:
    """Milliseconds; 0 without any times."""
    return 1_000 * sorted(times)[int(share * (len(times) - 1))] if times else 0.0


class Goals:
    """What is wanted, beside what was measured."""

    def __init__(self) -> None:
        self.missed = 0

    def most(self, name: str, found: float, most: float, unit: str = "ms") -> None:
        self._print(name, f"{found:.1f} {unit}", f"at most {most:g} {unit}", found <= most)

    def least(self, name: str, found: float, least: float) -> None:
        self._print(name, f"{found:.0f}/s", f"at least {least:.0f}/s", found >= least)

    def only(self, name: str, found: Counter[str], allowed: set[str]) -> None:
        others = {status: count for status, count in found.items() if count and status not in allowed}
        self._print(name, f"{others or 'none'}", f"nothing but {', '.join(sorted(allowed))}", not others)

    def _print(self, name: str, found: str, wanted: str, is_met: bool) -> None:
        self.missed += not is_met
        print(f"{'' if is_met else 'MISSED':>8} {name:<34}{found:>16}   {wanted}", flush=True)


def memory(pid: int) -> float:
    """MiB of a process and all that it has started; 0 where there is no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20 + sum(memory(int(child)) for child in children)


def main(arguments: list[str]) -> int:
    """Print a line for each load and each goal; return the exit code."""
    seconds = float(arguments[0]) if arguments else SECONDS
    with tempfile.TemporaryDirectory() as place:
        model = make_model(Path(place), FAMILY)
        command = [sys.executable, "-m", "seqloom", "serve", str(model), "--port", "0", "--device", "cpu"]
        with (Path(place) / "log").open("w") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ.copy())
        assert server.stdout is not None
        try:
            lines = ""
            while (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", lines)) is None:
                line = server.stdout.readline()
                assert line, (Path(place) / "log").read_text()
                lines += line
            goals = asyncio.run(measured(int(found[1]), server.pid, seconds))
        finally:
            server.terminate()
            code = server.wait(20)
            server.stdout.close()
        print(f"exit code after SIGTERM: {code}")
    return int(bool(goals.missed or code))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
