"""Who may ask: Host (S8), pages of other sites (S9), keys (S10), and paths that lead nowhere (S7)."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from http_common import JSON, FakeEngine, Server, one_answer, request, server, status_of
from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError
from seqloom.serve import heads
from seqloom.serve.keys import FAILURES, KeyRing, read_keys
from seqloom.serve.openapi import REFUSED
from seqloom.serve.policies import PolicyRoute, guarded, host_names
from seqloom.serve.room import Guest

GOOD = b'{"texts":["a"],"model":"all"}'
KEYS = {"alice": "a-long-key-of-alice-0123456789", "bob": "a-long-key-of-bob-9876543210xyz"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with server(ServingConfig(port=0, hosts=("models.example",), keys="of this test")) as running:
        yield running


def evil_hosts(port: int) -> list[str]:
    names = [
        "evil.com",
        "localhost.evil.com",
        "127.0.0.1.nip.io",
        "127.0.0.1@evil",
        "evil@127.0.0.1",
        "0.0.0.0",
        "[::]",
    ]
    names += [
        "127.0.0.1.",
        "localhost.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.0.0.2",
        "[::ffff:127.0.0.1]",
    ]
    names += ["[::ffff:7f00:1]", "::1", "models.example.evil.com", "evilmodels.example", "models.example/", "a" * 5_000]
    ports = [
        f"127.0.0.1:{port + 1}",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:",
        f"127.0.0.1:0{port}",
        f"127.0.0.1:{port}:{port}",
    ]
    return [f"{name}:{port}" for name in names] + names + ports + ["", f"{port}", "localhost:80", "models.example:80"]


def test_only_the_names_of_the_server_pass(one: Server) -> None:
    good = [f"127.0.0.1:{one.port}", f"localhost:{one.port}", f"LOCALHOST:{one.port}", f"[::1]:{one.port}"]
    for host in (*good, "models.example", f"models.example:{one.port}"):
        assert one.ask("GET", "/health", None, {"Host": host})[0] == 200, host
    for host in evil_hosts(one.port):
        answer = one.raw(f"GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        assert status_of(answer) == 421, host


@pytest.mark.soak
def test_a_name_with_one_other_character_does_not_pass(one: Server) -> None:
    for name in (f"127.0.0.1:{one.port}", f"localhost:{one.port}", f"[::1]:{one.port}", "models.example"):
        edges = [(name[:at], name[at:]) for at in range(len(name) + 1)]
        near = {begin + more + end[cut:] for begin, end in edges for more in ("", *"0aZ.:-@/[]%_,") for cut in (0, 1)}
        for host in sorted(host for host in near if host.lower().encode() not in one.app.access.hosts):
            answer = one.raw(f"GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
            assert status_of(answer) == 421, host


@pytest.mark.slow
def test_a_wrong_host_is_refused_before_the_key_and_before_the_body_is_read() -> None:
    with server(keys=KEYS) as mine:
        head = f"POST /v1/classify HTTP/1.1\r\nhost: evil.com:{mine.port}\r\ncontent-length: 1000\r\n\r\n"
        assert status_of(mine.raw(head.encode())) == 421  # its body never comes
        assert mine.app.access.keys is not None
        assert not mine.app.access.keys._failures


def test_host_names() -> None:
    assert b"10.0.0.1:80" in host_names("10.0.0.1", 80, ())
    assert b"10.0.0.1" in host_names("10.0.0.1", 80, ())
    assert b"0.0.0.0:8000" not in host_names("0.0.0.0", 8000, ())
    assert b"[::1]:8000" in host_names("::1", 8000, ())


def every_route(one: Server) -> list[tuple[str, str]]:
    """All methods of all routes, from the router itself."""
    paths = [route.path.replace("{model}", "all") for route in one.app.router.routes if isinstance(route, PolicyRoute)]
    assert len(paths) >= 14
    return list(itertools.product(METHODS, paths))


ORIGINS = [
    {"Origin": "http://evil.com"},
    {"Origin": "null"},
    {"Origin": "https://127.0.0.1"},
    {"Origin": "http://localhost"},
]
SITES = [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "anything")]
PAGES = [*ORIGINS, *SITES, ORIGINS[0] | SITES[0]]
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a")
ALL_PAGES = [page | site | {"Content-Type": kind} for page in PAGES for site in SITES for kind in FORMS]


@pytest.mark.slow
@pytest.mark.parametrize("pages", [PAGES, pytest.param(ALL_PAGES, marks=pytest.mark.soak)], ids=len)
def test_no_page_of_another_site_gets_an_answer_on_any_route(pages: list[dict[str, str]], one: Server) -> None:
    for method, path in every_route(one):
        for headers in pages:
            status, _, answered = one.ask(method, path, GOOD, JSON | headers)
            assert status == 403, (method, path, headers)
            assert not [name for name in answered if name.startswith("access-control")]


@pytest.mark.slow
def test_simple_content_types_that_any_page_can_send_are_refused_everywhere(one: Server) -> None:
    for method, path in every_route(one):
        for kind in FORMS:
            status, _, answered = one.ask(method, path, GOOD, {"Content-Type": kind})
            reads = path.startswith("/v1/") and not path.startswith("/v1/models")
            if method == "POST" and reads:
                assert status == 415, path
            else:
                assert status in (200, 405), (method, path)
            assert "access-control-allow-origin" not in answered
            assert "location" not in answered


def test_own_origins_and_programs_pass(one: Server) -> None:
    own = f"http://localhost:{one.port}"
    for headers in ({}, {"Origin": own}, {"Origin": own, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert one.ask("POST", "/v1/classify", GOOD, JSON | headers)[0] == 200
    assert one.ask("POST", "/v1/classify", GOOD, JSON | {"Origin": "https://models.example"})[0] == 200


def test_methods(one: Server) -> None:
    for method, path in every_route(one):
        status, _, headers = one.ask(method, path, GOOD if method != "GET" else None)
        reads = path.startswith("/v1/") and not path.startswith("/v1/models")
        allowed = ("POST",) if reads else ("GET", "HEAD")
        assert (status == 405) == (method not in allowed), (method, path, status)
        assert status != 405 or headers["allow"] == ", ".join(allowed)


async def nothing(request: Request) -> Response:
    return Response()


def test_a_route_without_a_policy_fails_when_the_application_is_built() -> None:
    for route in (Route("/new", nothing), Mount("/files", nothing)):
        with pytest.raises(AssertionError, match="has no policy"):
            guarded([route])
    with pytest.raises(AssertionError, match="has no policy"):
        guarded([PolicyRoute("/new", nothing, method="GET", policy=None)])  # type: ignore[arg-type]


WRONG_KEYS = ["", "Bearer", "Bearer ", "Bearer None", "Bearer null", "Basic YWxpY2U6YQ==", "bearer", "Token abc"]
WRONG_KEYS += [
    f"Bearer {KEYS['alice'][:-1]}",
    f"Bearer {KEYS['alice']}x",
    f"Bearer {KEYS['alice'].upper()}",
    KEYS["alice"],
]
WRONG_KEYS += [f"Bearer alice:{KEYS['alice']}", f"Basic {KEYS['alice']}", "Bearer \xe4\xf6", f"Bearer {'a' * 15_000}"]


NEAR_KEYS = [
    f"Bearer {key[:at]}{more}{key[at + 1 :]}" for key in KEYS.values() for at in range(30) for more in ("", "_", "__")
]


@pytest.mark.slow
@pytest.mark.parametrize("wrong_keys", [WRONG_KEYS, pytest.param(NEAR_KEYS, marks=pytest.mark.soak)], ids=len)
def test_requests_need_a_key(wrong_keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.serve.keys.FAILURES", 10**6)
    with server(keys=KEYS) as mine:
        for wrong in wrong_keys:
            head = request("/v1/classify", GOOD, f"authorization: {wrong}", "connection: close", port=mine.port)
            assert status_of(mine.raw(head.replace(b"\xc3", b""))) == 401, wrong
        for path in (f"/v1/classify?key={KEYS['alice']}", f"/v1/classify?authorization=Bearer%20{KEYS['alice']}"):
            status, found, headers = mine.ask("POST", path, GOOD)
            assert (status, found["error"]["code"], headers["www-authenticate"]) == (401, "key_needed", "Bearer")
        for name, key in KEYS.items():
            assert mine.ask("POST", "/v1/classify", GOOD, JSON | {"Authorization": f"Bearer {key}"})[0] == 200, name
        assert mine.ask("GET", "/health")[0] == 200  # for those that restart servers
        assert mine.ask("GET", "/metrics")[0] == 401
        assert mine.ask("POST", "/v1/completions", GOOD)[1]["error"]["type"] == "invalid_request_error"
    log = mine.log.getvalue()
    assert "client=alice" in log
    assert not any(key in log for key in KEYS.values())


@pytest.mark.slow
def test_ten_wrong_keys_in_a_minute_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(keys=KEYS) as mine:
        codes = [mine.ask("GET", "/v1/models")[0] for _ in range(FAILURES + 1)]
        assert codes == [401] * FAILURES + [429]
        status, found, headers = mine.ask("GET", "/v1/models")
        assert (status, found["error"]["code"]) == (429, "too_many_failures")
        assert 50 <= int(headers["retry-after"]) <= 60
        right = {"Authorization": f"Bearer {KEYS['alice']}"}
        assert mine.ask("GET", "/v1/models", None, right)[0] == 200  # others at its address cannot lock a client out
        assert mine.is_healthy()
        monkeypatch.setattr("seqloom.serve.keys.WINDOW_SECONDS", 0.0)
        assert mine.ask("GET", "/v1/models")[0] == 401


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "fields", "status"),
    [("", (), 401), (KEYS["alice"][:-1], (), 401), (KEYS["alice"], ("origin: http://evil.com",), 403)],
)
def test_a_request_that_may_not_ask_takes_no_room_from_those_that_may(
    key: str, fields: tuple[str, ...], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.serve.keys.FAILURES", 10**6)
    right = f"authorization: Bearer {KEYS['alice']}"
    with server(ServingConfig(port=0, max_waiting=0, max_batch=1), FakeEngine(seconds=1.0), keys=KEYS) as mine:
        taken: list[int] = []
        monkeypatch.setattr(Guest, "complete", lambda self: taken.append(self.bytes))
        wrong = request("/v1/classify", GOOD, f"authorization: Bearer {key}", *fields, port=mine.port)
        assert status_of(mine.raw(wrong + b"\r\n")) == status
        assert not taken
        monkeypatch.undo()
        with mine.connect() as busy:
            busy.sendall(request("/v1/classify", GOOD, right, port=mine.port))
            while not mine.app.traffic.room.complete:
                time.sleep(0.005)
            assert status_of(mine.raw(wrong + b"\r\n")) == status  # there is no room, and it needs none
            assert mine.app.traffic.room.complete == 1
            assert status_of(one_answer(busy)) == 200


def test_a_connection_closes_after_a_wrong_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.serve.keys.FAILURES", 1)
    with server(keys=KEYS) as mine:
        for status in (401, 429):
            answer = mine.raw(request("/v1/classify", GOOD, port=mine.port))  # it reads to the end
            assert (status_of(answer), b"connection: close" in answer.lower()) == (status, True)


FORWARDED = [{"X-Forwarded-For": "10.0.0.1"}, {"Forwarded": "for=10.0.0.1"}]


def test_a_server_without_keys_answers_nobody_behind_a_proxy() -> None:
    with server() as mine, server(keys=KEYS) as keyed:
        for headers in FORWARDED:
            status, found = mine.post("/v1/classify", {"texts": ["a"]}, **headers)
            assert (status, found["error"]["code"]) == (403, "forwarded") and "--keys" in found["error"]["message"]
            right = {"Authorization": f"Bearer {KEYS['alice']}"}
            assert keyed.post("/v1/classify", {"texts": ["a"], "model": "all"}, **headers, **right)[0] == 200


def test_failures_of_many_addresses_are_forgotten_oldest_first() -> None:
    ring = KeyRing(KEYS)
    for number in range(5_000):
        ring._count(f"10.0.{number // 250}.{number % 250}")
    assert len(ring._failures) == 4_096


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def compared(one: bytes, other: bytes) -> bool:
        seen.append((one, other))
        return one == other

    monkeypatch.setattr("seqloom.serve.keys.hmac.compare_digest", compared)
    ring = KeyRing(KEYS)
    assert ring.client(b"Bearer " + KEYS["alice"].encode(), "a") == "alice"
    assert len(seen) == len(KEYS)  # no early end
    assert {len(part) for pair in seen for part in pair} == {32}


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "keys.txt"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_of_keys(tmp_path: Path) -> None:
    path = key_file(tmp_path, "# clients\nalice:abcdefghijklmnopqrstuvwxyz\n\nbob:a:b:c:d:e:f:g:h:i:j:k\n")
    assert read_keys(path) == {"alice": "abcdefghijklmnopqrstuvwxyz", "bob": "a:b:c:d:e:f:g:h:i:j:k"}


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("a:abcdefghijklmnopqrstuvwxyz", 0o640, "chmod 600"),
        ("a:abcdefghijklmnopqrstuvwxyz", 0o604, "chmod 600"),
        ("", 0o600, "found 0"),
        ("secret-without-a-name", 0o600, "line 1: expected name:key"),
        ("a:short", 0o600, "shorter than 20"),
        ("a:abcdefghijklmnopqrstuvwxyz\na:bbcdefghijklmnopqrstuvwxyz", 0o600, "has a key already"),
    ],
)
def test_a_file_of_keys_that_is_not_private_or_wrong_is_refused(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    if os.name != "posix" and mode != 0o600:
        return
    with pytest.raises(ConfigError, match=said) as caught:
        read_keys(key_file(tmp_path, text, mode))
    assert "abcdefgh" not in str(caught.value) and "without-a-name" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_group_may_read_a_copy_that_systemd_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key_file(tmp_path, "alice:abcdefghijklmnopqrstuvwxyz", 0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert set(read_keys(path)) == {"alice"}
    for mode in (0o460, 0o444):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            read_keys(path)
    path.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "other"))
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keys(path)


@pytest.mark.parametrize("name", ["ü..x", "ü" * 70])
def test_a_host_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--hosts"):
        host_names("127.0.0.1", 8000, [name])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.com", "127.0.0.2"])
def test_other_machines_need_keys(host: str) -> None:
    with pytest.raises(ConfigError, match="no keys"):
        ServingConfig(host=host)


def test_names_of_other_machines_need_keys_and_those_of_loopback_do_not() -> None:
    with pytest.raises(ConfigError, match=r"--hosts 'models.example' .*no keys"):  # behind a proxy
        ServingConfig(hosts=("localhost", "models.example"))
    assert ServingConfig(hosts=("LOCALHOST", "[::1]", "127.0.0.1")).keys is None


CANARY = "root-of-all"
PARTS = [
    "..%2f",
    "%2e%2e/",
    "../",
    "..\\",
    "%2e%2e%2f",
    "..%5c",
    "..%252f",
    "%c0%ae%c0%ae/",
    "....//",
    "..;/",
    "./",
    "//",
    "..%00/",
]
TARGETS = ["etc/passwd", CANARY, f"{CANARY}%00.json", f"data-evil/{CANARY}"]


@pytest.mark.slow
@pytest.mark.parametrize("climbs", [(5,), pytest.param((1, 2, 3, 8, 13), marks=pytest.mark.soak)])
def test_paths_that_climb_lead_nowhere(climbs: tuple[int, ...], one: Server, tmp_path: Path) -> None:
    (tmp_path / CANARY).write_text("canary")
    starts = ("/", "/v1/models/", "/v1/", "/static/", f"//{tmp_path}/", "/v1/models/all/")
    climbing = [part * climb for part in PARTS for climb in climbs]
    climbing += (
        [first + second for first in climbing[:: len(climbs)] for second in climbing[1::5]] if len(climbs) > 1 else []
    )
    paths = [start + climb + target for start in starts for climb in climbing for target in TARGETS]
    paths += [
        f"/v1/models/{tmp_path}/{CANARY}",
        f"/{'%2e' * 50}",
        "/V1/MODELS/ALL",
        "/HEALTH",
        "/v1/models/",
        "/health/",
    ]
    for path in paths:
        status, found, headers = one.ask("GET", path)
        assert status == 404, path
        assert "canary" not in str(found) and "location" not in headers
    for path in (f"/health?path={tmp_path}/{CANARY}", "/v1/models?file=../../etc/passwd"):
        assert "canary" not in str(one.ask("GET", path)[1])


def test_every_status_of_a_refusal_is_in_the_document(one: Server) -> None:
    document = one.ask("GET", "/openapi.json")[1]
    assert {refusal.status for refusal in heads.REFUSALS.values()} <= set(REFUSED)
    unwell = document["paths"]["/health"]["get"]["responses"]["503"]["content"]["application/json"]["schema"]
    assert {"$ref": "#/components/schemas/HealthAnswer"} in unwell["anyOf"]
    for methods in document["paths"].values():
        for operation in methods.values():
            assert {str(status) for status in REFUSED} <= set(operation["responses"])
