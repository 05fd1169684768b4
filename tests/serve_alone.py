"""Runs `seqloom serve` in a network that has only loopback, and prints how often the kernel was asked for more.

    unshare --map-root-user --net bash -ec 'ip link set lo up && exec python tests/serve_alone.py NAME=RUN ...'

Two numbers: the packets to addresses without a route that the server tried to send, and those of one attempt that is
made afterwards, which shows that they are counted. The kernel counts them for all processes of the network, whatever
language they are written in.
"""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

ASKED: dict[str, dict[str, Any]] = {
    "classify": {"texts": ["a good film"]},
    "embed": {"texts": ["a"]},
    "generate": {"texts": ["a"], "max_new_tokens": 3},
}


def attempts() -> int:
    """The packets without a route, since this network was made."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines()[:2])
    found = re.search(r"Ip6OutNoRoutes\s+(\d+)", Path("/proc/net/snmp6").read_text())
    assert found is not None
    return int(values[names.index("OutNoRoutes")]) + int(found[1])


def main(models: list[str]) -> None:
    command = [sys.executable, "-m", "seqloom", "serve", *models, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base = None
        while base is None:
            line = server.stdout.readline()
            assert line, "the server has ended"
            base = re.search(r"http://127\.0\.0\.1:\d+", line)
        for verb, body in ASKED.items():
            headers = {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"{base[0]}/v1/{verb}", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(asked, timeout=30) as answer:
                assert json.loads(answer.read())["outputs"]
        server.terminate()
        assert server.wait(20) == 0
    quiet = attempts()
    with socket.socket() as one:
        one.connect_ex(("192.0.2.1", 9))
    sys.stdout.write(f"{quiet} {attempts() - quiet}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
