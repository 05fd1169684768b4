"""`seqloom serve` as a user runs it: a process with real models, asked with curl and with the client of OpenAI."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from http_common import numeric_fields
from seqloom.cli import app
from seqloom.cli.serve import named
from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError
from seqloom.serve import ray
from serve_common import close_to

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
KEY = "a-long-key-of-alice-0123456789"
SPY = """
import os, sys
def hook(event, facts):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        where = facts[1] if event == "socket.connect" else facts[0]
        if not (isinstance(where, tuple) and where[0] in ("127.0.0.1", "::1")) and not isinstance(where, (str, bytes)):
            with open(os.environ["SPY_FILE"], "a") as file:
                file.write(f"{event} {facts[1:]}\\n")
        if event == "socket.getaddrinfo":
            with open(os.environ["SPY_FILE"], "a") as file:
                file.write(f"{event} {facts[0]}\\n")
sys.addaudithook(hook)
"""


class Served:
    """A server process."""

    def __init__(self, process: "subprocess.Popen[str]", lines: list[str], log: Path) -> None:
        self.process, self.lines, self.log = process, lines, log
        found = re.search(r"http://127\.0\.0\.1:(\d+)", "\n".join(lines))
        assert found is not None, lines
        self.base = found[0]

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        asked = urllib.request.Request(self.base + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


def spied(folder: Path) -> dict[str, str]:
    """An environment in which every Python writes down where it connects to, but for loopback."""
    (folder / "spy").mkdir()
    (folder / "spy" / "sitecustomize.py").write_text(SPY)
    path = os.pathsep.join([str(folder / "spy"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path, "SPY_FILE": str(folder / "connected"), "OMP_NUM_THREADS": "1"}


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Served]:
    """Start `seqloom serve` and wait for its first lines."""
    environment = spied(folder)
    log = folder / "log"
    command = [sys.executable, "-m", "seqloom", "serve", *arguments, "--port", "0", "--device", "cpu"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment)
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or not lines[-1].startswith("  "):
                line = process.stdout.readline()
                assert line, log.read_text()
                lines.append(line.rstrip("\n"))
            yield Served(process, lines, log)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


WATCHED_CURL = """#!/bin/bash
tr '\\0' '\\n' < /proc/$$/cmdline >> "$0.seen"  # what other users see of this process
tr '\\0' '\\n' < /proc/$PPID/cmdline >> "$0.seen"  # and of the shell around it
exec {curl} -sS "$@"
"""


def pasted(line: str, folder: Path) -> Any:
    """Run the printed command, in a shell as a user would; no process of it shows the key."""
    curl = shutil.which("curl")
    assert curl is not None
    watched = folder / "bin" / "curl"
    watched.parent.mkdir()
    watched.write_text(WATCHED_CURL.format(curl=curl))
    watched.chmod(0o755)
    environment = os.environ | {"PATH": f"{watched.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    seen = Path(f"{watched}.seen").read_text()
    assert "/v1/classify" in seen and KEY not in seen
    return json.loads(done.stdout)


def family_of(pid: int) -> dict[int, str]:
    """The command lines and environments of a process and all that it has started, as the process list shows them."""
    parents = dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return {
        one: "".join(Path(f"/proc/{one}/{name}").read_text(errors="replace") for name in ("cmdline", "environ"))
        for one in found
    }


def check_process_list(one: Served) -> None:
    """S10: neither the listener nor the forkserver nor a worker shows a key in its arguments or its environment."""
    family = family_of(one.process.pid)
    assert len(family) == 3 and all("seqloom" in text for text in family.values())
    assert not [pid for pid, text in family.items() if KEY in text or KEY[::-1] in text]


def worker_of(one: Served) -> int:
    """The process with the models: the one that the forkserver has started; 0 if it is not there."""
    try:
        (forkserver,) = children_of(one.process.pid)
        return max(children_of(forkserver), default=0)
    except OSError:
        return 0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def check_kill(one: Served) -> None:
    """S13: a killed worker costs at most the requests that it had, and is back at once."""
    seen: list[int] = []
    codes: set[str] = set()
    ends = threading.Event()

    def client() -> None:
        while not ends.is_set():
            status, found = one.post("/v1/classify", {"model": "reviews", "texts": ["a good film"]})
            codes.update([found["error"]["code"]] if status != 200 else [])
            seen.append(status)

    clients = [threading.Thread(target=client) for _ in range(4)]
    for thread in clients:
        thread.start()
    pid = worker_of(one)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    while worker_of(one) in (0, pid):
        assert time.monotonic() - began < 5
        time.sleep(0.01)
    before = len(seen)
    while 200 not in seen[before:]:
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    back = time.monotonic() - began
    ends.set()
    for thread in clients:
        thread.join()
    assert set(seen) <= {200, 503} and codes <= {"worker_lost", "waited_too_long"}
    assert seen.count(503) <= len(clients) * (
        1 + int(back / ServingConfig().queue_seconds)
    )  # one, and one for each wait
    assert "worker 0 is lost (killed by SIGKILL); it is started again" in one.log.read_text()


SOAK_SECONDS, WARM_UP = 600.0, 120.0
HOSTILE = (b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100, b"POST /v1/classify HTTP/1.1\r\nhost: evil\r\n\r\n", b"POST /")


def held_by(one: Served) -> tuple[float, int]:
    """MiB of all processes of the server, and the open files of the listener."""
    every = [one.process.pid, *children_of(one.process.pid), worker_of(one)]
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in every)
    return pages * 4_096 / 2**20, len(list(Path(f"/proc/{one.process.pid}/fd").iterdir()))


@pytest.mark.soak
def test_ten_minutes_of_good_and_hostile_requests_leave_nothing_behind(models: dict[str, Path], tmp_path: Path) -> None:
    """S19, in ten minutes: 5 % hostile requests, no error for the others, and memory and files stay as they are."""
    with serving(tmp_path, f"reviews={models['reviews']}") as one:
        port, samples = int(one.base.rpartition(":")[2]), list[tuple[float, float, int]]()
        began, count, next_look = time.monotonic(), 0, WARM_UP
        while (now := time.monotonic() - began) < SOAK_SECONDS:
            count += 1
            if count % 20 == 0:
                with socket.create_connection(("127.0.0.1", port), 5) as hostile:
                    hostile.sendall(HOSTILE[count // 20 % len(HOSTILE)])
            else:
                assert one.post("/v1/classify", {"texts": [f"a good film {count}"]})[0] == 200
            if now > next_look:
                samples.append((now, *held_by(one)))
                next_look = now + 5
        times, sizes, files = zip(*samples, strict=True)
        half = len(sizes) // 2
        slope = statistics.linear_regression(times, sizes).slope  # MiB per second
        growth = slope * (times[-1] - times[0])
        assert slope * 3_600 < 1 or growth < 0.25, f"{growth:.2f} MiB more"  # the noise of allocators
        assert max(files[half:]) <= max(files[:half]) + 4  # hostile connections that are just closing


@pytest.mark.slow
def test_a_server_from_its_first_line_to_its_last(models: dict[str, Path], tmp_path: Path) -> None:
    keys = tmp_path / "the keys.txt"
    keys.write_text(f"# clients: alice\nalice:{KEY}\nbob:{KEY[::-1]}\n")
    keys.chmod(0o600)
    names = [f"{name}={models[name]}" for name in ("reviews", "tags", "index", "translator", "scores")]
    names.insert(1, f"stories={models['gru']}")
    with serving(tmp_path, *names, "--keys", str(keys)) as one:
        assert one.lines[0] == "reviews: classify, embed"
        assert KEY not in one.lines[-1] and "$(" not in one.lines[-1]  # no key in arguments, which all users can see
        answer = pasted(one.lines[-1], tmp_path)
        assert answer["model"] == "reviews" and sum(answer["outputs"][0]["scores"].values()) == pytest.approx(1)
        check_process_list(one)
        check_verbs(one)
        check_openai_client(one.base)
        check_page(one.base, tmp_path)
        check_limits(one)
        check_numbers(one)
        check_kill(one)
        check_stop(one)
        log = one.log.read_text()
    assert "client=alice model=stories" in log
    assert "canary" not in log and KEY not in log
    connected = tmp_path / "connected"
    assert not connected.exists(), connected.read_text()  # no connection to anywhere, from any of its processes


def test_a_connection_to_elsewhere_would_be_seen(tmp_path: Path) -> None:
    environment = spied(tmp_path)
    tries = "import socket; s = socket.socket(); s.settimeout(0.01); s.connect_ex(('192.0.2.1', 9)); s.close()"
    subprocess.run([sys.executable, "-P", "-c", tries], env=environment, check=True)
    assert "192.0.2.1" in (tmp_path / "connected").read_text()


ALONE = ("unshare", "--map-root-user", "--net", "bash", "-ec", 'ip link set lo up && exec "$0" "$@"')


@pytest.mark.soak
def test_a_server_without_a_network_answers_and_sends_nothing_to_anywhere(models: dict[str, Path]) -> None:
    """S15, as the kernel sees it: also of code that is not Python."""
    if shutil.which(ALONE[0]) is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot make a network (`unshare`, `ip`)")
    names = [f"reviews={models['reviews']}", f"stories={models['gru']}"]
    script = str(PAGE.parents[1] / "tests" / "serve_alone.py")
    done = subprocess.run([*ALONE, sys.executable, script, *names], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "1"], done.stderr


def check_verbs(one: Served) -> None:
    tagged = one.post("/v1/tag", {"texts": ["Ada went home."]})[1]["outputs"][0]
    assert next((word["start"], word["end"]) for word in tagged["words"]) == (0, 3)
    assert len(one.post("/v1/embed", {"texts": ["a", "b"], "model": "reviews"})[1]["outputs"][1]["vector"]) > 1
    assert isinstance(one.post("/v1/regress", {"texts": ["the old man"]})[1]["outputs"][0]["numbers"][0], float)
    assert (
        "text"
        in one.post("/v1/translate", {"texts": ["the old man"], "beam_size": 2, "max_new_tokens": 3})[1]["outputs"][0]
    )
    texts = one.post(
        "/v1/generate", {"texts": ["the"], "model": "stories", "max_new_tokens": 3, "num_samples": 2, "top_k": 5}
    )[1]
    assert len(texts["outputs"][0]) == 2
    hits = one.post("/v1/search", {"texts": ["a"], "top_k": 1})[1]["outputs"][0]
    assert isinstance(hits, list)


def check_openai_client(base: str) -> None:
    """The client of OpenAI, as it is."""
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", api_key=KEY, max_retries=0)
    with client:
        assert {model.id for model in client.models.list()} >= {"reviews", "stories"}
        assert client.models.retrieve("stories").owned_by == "seqloom"
        asked: dict[str, Any] = {"model": "stories", "prompt": "the old man", "max_tokens": 6, "temperature": 0}
        whole = client.completions.create(**asked)
        assert whole.choices[0].finish_reason in ("stop", "length")
        assert whole.usage is not None and whole.usage.prompt_tokens >= 3
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        parts = list(client.completions.create(**asked, stream=True))
        assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
        *parts, last = client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        assert (last.choices, last.usage, {part.usage for part in parts}) == ([], whole.usage, {None})
        several = client.completions.create(model="stories", prompt=["a", "b"], n=2, max_tokens=2, stop=["\n"], seed=3)
        assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
        plain = client.embeddings.create(model="reviews", input=["a film", "b"], encoding_format="float")
        packed = client.embeddings.create(model="reviews", input=["a film", "b"])  # in base64
        for first, second in zip(plain.data, packed.data, strict=True):
            assert second.embedding == pytest.approx(first.embedding, abs=1e-6)
        assert plain.usage.prompt_tokens == plain.usage.total_tokens >= 3
        assert len(client.embeddings.create(model="reviews", input=["a film"] * 256).data) == 256
        with pytest.raises(openai.NotFoundError, match="no model of this name"):
            client.completions.create(model="canary", prompt="canary")
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            client.completions.create(model="stories", prompt="a", max_tokens=10_000)
        assert caught.value.param == "max_tokens"
        with pytest.raises(openai.UnprocessableEntityError, match="max_tokens: 1,000 tokens in each of 16 samples are"):
            client.completions.create(model="stories", prompt="a", max_tokens=1_000, n=16)
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").models.list()


def check_page(base: str, folder: Path) -> None:
    """The clients of docs/serve.md, run as they are printed there, but with this server's port and key."""
    page = PAGE.read_text(encoding="utf-8").replace("http://127.0.0.1:8000", base)
    clients = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(clients) == 2
    for client in clients:
        keyed = client.replace('api_key="none"', f'api_key="{KEY}"')
        keyed = keyed.replace('"application/json"}', f'"application/json", "Authorization": "Bearer {KEY}"}}')
        shown = subprocess.run([sys.executable, "-c", keyed], capture_output=True, text=True, check=False)
        assert shown.returncode == 0 and shown.stdout.strip(), shown.stderr
    (commands,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    keyed = re.sub(r"^curl ", f"curl -sSf -H 'Authorization: Bearer {KEY}' ", commands, flags=re.MULTILINE)
    done = subprocess.run(["bash", "-ec", keyed], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert '"text_completion"' in done.stdout and done.stdout.rstrip().endswith("data: [DONE]")


def check_limits(one: Served) -> None:
    """Wrong values are refused by name and end no worker."""
    assert one.post("/v1/classify", {"texts": [["a", "b"]]})[0] == 422
    assert one.post("/v1/classify", {"texts": ["a"], "model": "stories"})[0] == 422
    status, found = one.post("/v1/generate", {"texts": ["a"], "model": "stories", "beam_size": 2, "temperature": 0.5})
    assert status == 422, found
    assert one.post("/v1/generate", {"texts": ["a" * 32_768], "model": "stories", "max_new_tokens": 1})[0] in (200, 422)
    assert "\nseqloom_engine_worker_restarts_total 0\n" in metrics(one)


def check_numbers(one: Served) -> None:
    """S6: numbers at their limits and beyond are answered or refused by name, and end no worker."""
    asked: dict[str, dict[str, Any]] = {
        "/v1/generate": {"model": "stories", "texts": ["the"]},
        "/v1/translate": {"model": "translator", "texts": ["the"]},
        "/v1/search": {"model": "index", "texts": ["the"]},
        "/v1/completions": {"model": "stories", "prompt": "the"},
        "/v1/embeddings": {"model": "reviews", "input": "the"},
    }
    fields = numeric_fields(json.loads(told(one, "/openapi.json")))
    assert {path for path, _, _ in fields} == set(asked)
    for path, field, limits in fields:
        low, high = limits["minimum"], limits["maximum"]
        for value in (low, high):
            status, found = one.post(path, asked[path] | {field: value})
            assert status in (200, 422), (path, field, value, found)
        for value in (low - 1, high + 1, 1e300):
            status, found = one.post(path, asked[path] | {field: value})
            assert (status, found["error"].get("field") or found["error"].get("param")) == (422, field), found
    counted = metrics(one)
    assert "\nseqloom_engine_worker_restarts_total 0\n" in counted and 'status="5' not in counted


def metrics(one: Served) -> str:
    return told(one, "/metrics")


def told(one: Served, path: str) -> str:
    asked = urllib.request.Request(one.base + path, headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return str(answer.read(), "utf-8")


def check_stop(one: Served) -> None:
    """S14: each request that was sent before SIGTERM is answered, all later ones are refused; the exit code is 0."""
    body = {"texts": ["the"], "model": "stories", "max_new_tokens": 100}
    whole = one.post("/v1/generate", body)
    assert whole[0] == 200 and whole[1]["outputs"][0][0]["finish_reason"]
    early, late = list[Any](), list[int]()

    def client() -> None:
        early.append(one.post("/v1/generate", body))

    os.kill(worker_of(one), signal.SIGSTOP)  # so that none of them ends before the signal
    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 10
    while "\nseqloom_engine_running 8\n" not in metrics(one):
        assert time.monotonic() < end, "they did not arrive"
        time.sleep(0.01)
    one.process.send_signal(signal.SIGTERM)
    while "stopping: " not in one.log.read_text():
        assert time.monotonic() < end + 10, "it did not stop"
        time.sleep(0.01)
    late += [status_at_end(one, body) for _ in range(5)]
    assert late[0] == 503 and set(late) <= {503, 0} and not early
    os.kill(worker_of(one), signal.SIGCONT)
    while one.process.poll() is None:
        assert time.monotonic() < end + 30, "it did not end"
        late.append(status_at_end(one, body))
    assert one.process.returncode == 0
    for thread in threads:
        thread.join()
    assert set(late) <= {503, 0}
    close_to(early, [whole] * 8)


def status_at_end(one: Served, body: Any) -> int:
    try:
        return one.post("/v1/generate", body)[0]
    except OSError:
        return 0  # it has stopped listening


FIRST = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")


@pytest.mark.slow
@pytest.mark.parametrize("before", [(), FIRST], ids=["", "first process of a container"])
def test_a_signal_while_models_load_ends_the_server_in_order(
    before: tuple[str, ...], models: dict[str, Path], tmp_path: Path
) -> None:
    if before and (shutil.which(before[0]) is None or subprocess.run([*before, "true"], check=False).returncode):
        pytest.skip("this user cannot make a container (`unshare`)")
    command = [*before, sys.executable, "-m", "seqloom", "serve", f"reviews={models['reviews']}", "--port", "0"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            end = time.monotonic() + 30
            family: list[int] = []
            while len(family) < len(before[:1]) + 2:  # the server has started the process that loads the models
                assert time.monotonic() < end and process.poll() is None, (tmp_path / "log").read_text()
                family = sorted(family_of(process.pid))
            os.kill(family[len(before[:1])], signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
    assert "listening" not in (tmp_path / "log").read_text()
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]


def test_names_of_models(tmp_path: Path) -> None:
    for name in ("reviews/model", "other", "a b"):
        (tmp_path / name).mkdir(parents=True)
    run, inner, other = (str(tmp_path / name) for name in ("reviews", "reviews/model", "other"))
    assert list(named([run, f"x={other}"])) == ["reviews", "x"]
    assert list(named([inner])) == ["reviews"]
    for wrong, said in (
        ([run, inner], "two models are named reviews"),
        ([str(tmp_path / "a b")], "has no name for an address"),
        ([f"a b={run}"], "has no name for an address"),
        ([str(tmp_path / "reviewz")], "there is no folder"),
        ([f"x={tmp_path / 'no'}"], "there is no folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            named(wrong)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--host 0.0.0.0", "no keys"),
        ("--host 192.0.2.7", "no keys"),
        ("--keys nowhere.txt", "nowhere.txt"),
        ("--port 70000", "--port"),
        ("--max-items 0", "--max-items"),
        ("--hosts models.example", "no keys"),
        ("--hosts ü..x --keys keys.txt", "this is no host name"),
        ("--host 192.0.2.7 --keys keys.txt", "--host 192.0.2.7"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "keys.txt").write_text(f"a:{KEY}")
    (tmp_path / "keys.txt").chmod(0o600)
    result = CliRunner().invoke(app, ["serve", f"m={tmp_path / 'model'}", *shlex.split(arguments)])
    assert result.exit_code != 0
    assert said in f"{result.output}{result.exception}"


@pytest.mark.parametrize("name", ["seqloom.service", "Containerfile"])
def test_the_recipes_use_options_that_exist(name: str) -> None:
    command: Any = get_command(app)
    known = {flag for option in command.commands["serve"].params for flag in option.opts}
    if name == "Containerfile":
        (line,) = re.findall(r"^podman run (.*?)\n```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        assert {"--user", "--userns", "--tmpfs"} <= set(re.findall(r"--[a-z-]+", line))  # else keys.txt cannot be read
    text = (PAGE.parents[1] / "deploy" / name).read_text(encoding="utf-8")
    (line,) = re.findall(r"^(?:ExecStart=|ENTRYPOINT )(.*)$", text, re.MULTILINE)
    used = re.findall(r"--[a-z-]+", line)
    assert len(used) >= 2 and set(used) <= known
    assert name == "Containerfile" or "--host" not in used  # keys go over plain HTTP: only to a proxy on the machine


@pytest.mark.skipif(os.name != "posix", reason="the image runs Linux")
@pytest.mark.parametrize(
    ("limit", "given", "threads"),
    [
        ("400000 100000", None, "3"),
        ("150000 100000", None, "1"),
        ("50000 100000", None, "1"),
        ("max 100000", None, ""),
        ("400000 100000", "2", "2"),
        (None, None, ""),
    ],
)
def test_the_image_has_as_many_threads_as_its_limit_of_processor_time(
    limit: str | None, given: str | None, threads: str, tmp_path: Path
) -> None:
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit + "\n")
    environment = {"PATH": os.environ["PATH"], "CPU_MAX": str(tmp_path / "cpu.max")}
    environment |= {} if given is None else {"OMP_NUM_THREADS": given}
    script = PAGE.parents[1] / "deploy" / "threads.sh"
    command = ["sh", str(script), "sh", "-c", 'echo "$OMP_NUM_THREADS"']
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == f"{threads}\n"


def test_the_unit_reaches_no_other_machine_and_the_page_says_what_ray_takes() -> None:
    unit = (PAGE.parents[1] / "deploy" / "seqloom.service").read_text(encoding="utf-8").splitlines()
    assert {"IPAddressDeny=any", "IPAddressAllow=localhost", "SystemCallArchitectures=native"} <= set(unit)
    told = PAGE.read_text(encoding="utf-8").partition("seqloom.serve.ray:app")[2]
    assert all(f"`{name}`" in told and name in str(ray.__doc__) for name in (*ray.PASSED_ON, "replicas", "num_gpus"))
