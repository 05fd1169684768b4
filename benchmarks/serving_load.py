"""A server under load: `seqloom serve` with a small classifier, and a client on the same machine.

    python benchmarks/serving_load.py [SECONDS]

First 16 connections ask as fast as they are answered: the capacity. Then requests come at fixed times, whether or not
earlier ones are answered: at 300 per second, at 70 % of the capacity, at 2 and 5 times the capacity or as fast as the
client can send, and at half of the capacity. A time is from the moment a request is sent to the end of its answer.

Each goal, for two cores, is printed beside its figure; the exit code is 1 if one is missed. The client shares the cores
with the server, and the more it sends the less is left. So the goodput of an overloaded server, in accepted requests
per second, is that of the server and the client together.
"""

import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from serving import make_model, texts

SECONDS = 10.0
FAMILY = "cnn"
CLIENTS, MAX_CONNECTIONS = 16, 800
GOAL, SHARE, OVERLOADS = 300, 0.7, (2.0, 5.0)
P50, P99, OVERLOADED_P99, REFUSED_P99 = 15.0, 100.0, 250.0, 50.0  # ms
GOODPUT = 0.9  # of the capacity
GROWTH = 50.0  # MiB, of all processes of the server
WARM_UP = 1.0
LONGEST = 10.0  # seconds after the last request in which an answer may come
LENGTH = re.compile(rb"content-length: ([0-9]+)")


class Asker:
    """One connection; it has one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.data = b""
        self.sent = 0.0

    def ask(self, request: bytes) -> None:
        """Send a request, which fits into the buffer of an idle socket."""
        self.data, self.sent = b"", time.perf_counter()
        self.socket.send(request)

    def received(self) -> int | None:
        """The status of the answer when all of it is here; 0 if the server has closed the connection."""
        try:
            part = self.socket.recv(1 << 16)
        except OSError:
            return 0
        if not part:
            return 0
        self.data += part
        head, found, body = self.data.partition(b"\r\n\r\n")
        if found and len(body) >= int(LENGTH.search(head)[1]):  # type: ignore[index]  # every answer has it
            return int(head[9:12])
        return None


class Load:
    """What is asked, and what came back. One loop over sockets, which takes less of the shared cores than asyncio."""

    def __init__(self, port: int) -> None:
        self.port = port
        fields = f"POST /v1/classify HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        bodies = [f'{{"texts":["{text}"]}}'.encode() for text in texts(64)]
        self.requests = [f"{fields}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.ready = select.epoll()
        self.open: dict[int, Asker] = {}
        self.idle: list[Asker] = []
        self.reset()

    def reset(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.times: dict[bool, list[float]] = {True: [], False: []}  # of accepted and of refused requests
        self.count = 0

    def connected(self) -> Asker:
        one = Asker(self.port)
        self.open[one.socket.fileno()] = one
        self.ready.register(one.socket, select.EPOLLIN)
        return one

    def ask(self, one: Asker) -> None:
        self.count += 1
        one.ask(self.requests[self.count % len(self.requests)])

    def receive(self, seconds: float) -> list[Asker]:
        """Read what arrives within this time; return the connections that have their answer."""
        answered = []
        for number, _ in self.ready.poll(seconds):
            one = self.open[number]
            status = one.received()
            if status:
                self.statuses[str(status)] += 1
                self.times[status == 200].append(time.perf_counter() - one.sent)
                answered.append(one)
            elif status is not None:
                self._lost(one)
        return answered

    def _lost(self, one: Asker) -> None:
        if one in self.idle:
            self.idle.remove(one)
        else:
            self.statuses["reset"] += 1
        self.ready.unregister(one.socket)
        del self.open[one.socket.fileno()]
        one.socket.close()

    def capacity(self, seconds: float) -> float:
        """Requests per second of connections that ask again at once."""
        for _ in range(CLIENTS):
            self.ask(self.connected())
        for duration in (WARM_UP, seconds):
            self.reset()
            until = time.perf_counter() + duration
            while (left := until - time.perf_counter()) > 0:
                for one in self.receive(left):
                    self.ask(one)
        per_second = len(self.times[True]) / seconds
        self.print(f"{CLIENTS} clients", per_second, seconds)
        self._finish()
        return per_second

    def arrivals(self, name: str, rate: float, seconds: float) -> None:
        """Send at fixed times."""
        self.reset()
        begun, number = time.perf_counter(), 0
        while (now := time.perf_counter() - begun) < seconds:
            while number <= now * rate:
                number += 1
                if self.idle:
                    self.ask(self.idle.pop())
                elif len(self.open) < MAX_CONNECTIONS:
                    self.ask(self.connected())
                else:
                    self.statuses["not sent"] += 1
            self.idle += self.receive(max(0.0, number / rate - (time.perf_counter() - begun)))
        sent = self.count / (time.perf_counter() - begun)
        self._finish()
        self.print(name, sent, seconds)

    def _finish(self) -> None:
        """Wait for the answers to what was sent."""
        until = time.perf_counter() + LONGEST
        while len(self.idle) < len(self.open) and time.perf_counter() < until:
            self.idle += self.receive(0.1)
        self.statuses["no answer"] += len(self.open) - len(self.idle)

    def close(self) -> None:
        for one in self.open.values():
            one.socket.close()
        self.ready.close()

    def print(self, name: str, rate: float, seconds: float) -> None:
        cells = [f"{name:>14}{rate:9.0f}{len(self.times[True]) / seconds:10.0f}"]
        for times in (sorted(self.times[True]), sorted(self.times[False])):
            cells += [
                f"{1_000 * times[int(share * (len(times) - 1))]:8.1f}" if times else f"{'-':>8}"
                for share in (0.5, 0.99)
            ]
        every = ", ".join(f"{status} x {count:,}" for status, count in sorted(self.statuses.items()) if count)
        print("".join(cells) + f"   {every}", flush=True)


def measured(port: int, pid: int, seconds: float) -> "Goals":
    load, goals = Load(port), Goals()
    print(f"{'load':>14}{'sent/s':>9}{'200/s':>10}{'p50':>8}{'p99':>8}{'refused':>8}{'p99':>8}   answers (times in ms)")
    capacity = load.capacity(seconds)
    goals.least("capacity", capacity, GOAL)
    for name, rate in ((f"{GOAL}/s", GOAL), (f"{SHARE:.0%}", SHARE * capacity)):
        load.arrivals(name, rate, seconds)
        goals.only(f"{name}: errors", load.statuses, {"200"})
        goals.most(f"{name}: p50", quantile(load.times[True], 0.5), P50)
        goals.most(f"{name}: p99", quantile(load.times[True], 0.99), P99)
    before = memory(pid)
    for times in OVERLOADS:
        name = f"{times:g}x"
        load.arrivals(f"{name} overload", times * capacity, seconds)
        goals.only(f"{name}: errors", load.statuses, {"200", "429", "503", "not sent"})
        goals.most(f"{name}: p99 of accepted", quantile(load.times[True], 0.99), OVERLOADED_P99)
        goals.most(f"{name}: p99 of refused", quantile(load.times[False], 0.99), REFUSED_P99)
        goals.least(f"{name}: accepted, with the client", len(load.times[True]) / seconds, GOODPUT * capacity)
    goals.most("growth of memory", memory(pid) - before, GROWTH, "MiB")
    load.arrivals("50% after it", 0.5 * capacity, seconds)
    goals.only("50%: errors", load.statuses, {"200"})
    goals.most("50%: p99", quantile(load.times[True], 0.99), P99)
    load.close()
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
            goals = measured(int(found[1]), server.pid, seconds)
        finally:
            server.terminate()
            code = server.wait(20)
            server.stdout.close()
        print(f"exit code after SIGTERM: {code}")
    return int(bool(goals.missed or code))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
