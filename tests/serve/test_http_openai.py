"""Routes in the form of OpenAI, streams, and clients that leave (S11)."""

import base64
import http.client
import json
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from http_common import JSON, FakeEngine, Server, request, server


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with server() as running:
        yield running


def events(one: Server, body: dict[str, Any]) -> list[Any]:
    status, found, headers = one.ask("POST", "/v1/completions", body)
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8"), found
    parts = found.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def test_a_stream_has_the_parts_of_the_text_then_the_reason(one: Server) -> None:
    found = events(one, {"model": "all", "prompt": "a", "stream": True, "max_tokens": 3, "echo": True})
    assert "".join(part["choices"][0]["text"] for part in found) == "a 0 1 2"
    assert [part["choices"][0]["finish_reason"] for part in found] == [None, None, None, "length"]
    assert len({part["id"] for part in found}) == 1


def test_a_stream_has_its_usage_at_the_end_if_that_is_asked(one: Server) -> None:
    asked = {"model": "all", "prompt": "abcde", "stream": True, "max_tokens": 3}
    assert not any("usage" in part for part in events(one, asked | {"stream_options": {"include_usage": False}}))
    *parts, last = events(one, asked | {"stream_options": {"include_usage": True}})
    assert [part["usage"] for part in parts] == [None] * 4
    assert last["choices"] == [] and last["id"] == parts[0]["id"]
    assert last["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def test_completions(one: Server) -> None:
    asked = {"model": "all", "prompt": ["a", "b"], "n": 2, "temperature": 0.5, "stop": "x", "max_tokens": 3, "seed": 1}
    status, found = one.post("/v1/completions", asked | {"echo": True, "logprobs": None, "user": "u"})
    assert status == 200
    texts = [(choice["index"], choice["text"], choice["finish_reason"]) for choice in found["choices"]]
    assert texts == [(0, "a more", "length"), (1, "a more", "length"), (2, "b more", "length"), (3, "b more", "length")]
    assert found["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}
    options = one.engine.asked[-1][3]
    assert options == {"max_new_tokens": 3, "stop": ["x"], "temperature": 0.5, "seed": 1, "num_samples": 2}


def test_temperature_0_is_greedy_and_seeds_differ_unless_one_is_given(one: Server) -> None:
    one.post("/v1/completions", {"model": "all", "prompt": "a", "temperature": 0})
    assert one.engine.asked[-1][3] == {"max_new_tokens": 16}
    seeds = set()
    for _ in range(3):
        one.post("/v1/completions", {"model": "all", "prompt": "a"})
        seeds.add(one.engine.asked[-1][3]["seed"])
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"stream": True, "prompt": ["a", "b"]}, "stream"),
        ({"stream": True, "n": 2}, "stream"),
        ({"temperature": 0, "n": 2}, "n"),
        ({"logprobs": 3}, "logprobs"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"suffix": "x"}, "suffix"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"best_of": 3}, "best_of"),
        ({"prompt": [1, 2, 3]}, "prompt[0]"),
        ({"stop": [""]}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_all": True}}, "stream_options"),
    ],
)
def test_what_is_not_supported_is_refused_and_not_ignored(one: Server, more: dict[str, Any], field: str) -> None:
    status, found = one.post("/v1/completions", {"model": "all", "prompt": "a"} | more)
    assert status == 422, found
    assert found["error"]["param"].partition("[")[0] == field.partition("[")[0]
    assert set(found["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("path", "asked", "field"),
    [
        ("/v1/completions", {"prompt": "refuse me"}, "prompt"),
        ("/v1/completions", {"prompt": ["a", "refuse me"]}, "prompt[1]"),
        ("/v1/completions", {"prompt": "refuse me", "stream": True}, "prompt"),
        ("/v1/completions", {"prompt": "refuse the options"}, None),
        ("/v1/embeddings", {"input": "refuse me"}, "input"),
        ("/v1/completions", {"prompt": "a", "model": "none", "stream": True}, "model"),
    ],
)
def test_refusals_of_the_engine_name_fields_that_exist(
    one: Server, path: str, asked: dict[str, Any], field: str | None
) -> None:
    status, found = one.post(path, {"model": "all"} | asked)
    assert (status in (404, 422), found["error"]["param"]) == (True, field), found


def test_limits_of_integers_are_told_exactly(one: Server) -> None:
    _, found = one.post("/v1/completions", {"model": "all", "prompt": "a", "seed": -1})
    assert f"to {2**63 - 1}" in found["error"]["message"]


def test_vectors_as_numbers_and_in_base64(one: Server) -> None:
    asked = {"model": "all", "input": ["a", "bcd"]}
    _, plain = one.post("/v1/embeddings", asked)
    assert plain["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    _, packed = one.post("/v1/embeddings", asked | {"encoding_format": "base64", "dimensions": 4})
    vectors = [[0.5, -0.25, 1.0, 1.0], [0.5, -0.25, 3.0, 1.0]]
    assert [one["embedding"] for one in plain["data"]] == vectors
    decoded = [list(struct.unpack("<4f", base64.b64decode(one["embedding"]))) for one in packed["data"]]
    assert decoded == vectors
    status, found = one.post("/v1/embeddings", asked | {"dimensions": 3})
    assert (status, found["error"]["param"]) == (422, "dimensions")


def test_an_unknown_model_has_a_404_and_an_unable_one_a_422(one: Server) -> None:
    assert one.post("/v1/embeddings", {"model": "none", "input": "a"})[0] == 404
    assert one.post("/v1/embeddings", {"model": "writer", "input": "a"})[0] == 422
    assert one.post("/v1/classify", {"model": "none", "texts": ["a"]})[0] == 404


def waited(engine: Any, count: int) -> float:
    begun = time.monotonic()
    while len(engine.ended) < count and time.monotonic() < begun + 5:
        time.sleep(0.01)
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_the_work_for_a_client_that_leaves_ends_within_a_second(times: int) -> None:
    with server(engine=FakeEngine(seconds=0.1)) as mine:
        for number in range(1, times + 1):
            connection = http.client.HTTPConnection("127.0.0.1", mine.port, timeout=10)
            body = {"model": "all", "prompt": "a", "stream": True, "max_tokens": 1_000}
            connection.request("POST", "/v1/completions", json.dumps(body), JSON)
            answer = connection.getresponse()
            assert answer.readline().startswith(b"data: ")
            answer.close()
            connection.close()
            assert waited(mine.engine, number) < 1
            assert mine.engine.ended == ["cancelled"] * number
    with server(engine=FakeEngine(seconds=5)) as mine:
        for number in range(1, times + 1):
            with mine.connect() as leaving:
                leaving.sendall(request(port=mine.port))
                time.sleep(0.2)
            assert waited(mine.engine, number) < 1
            assert mine.engine.ended == ["cancelled"] * number
            assert mine.app.traffic.running == 0
    assert " 499 " in mine.log.getvalue()


@pytest.mark.slow
def test_streams_obey_the_policies_of_their_route(one: Server) -> None:
    body = {"model": "all", "prompt": "a", "stream": True}
    assert one.ask("POST", "/v1/completions", body, JSON | {"Origin": "http://evil.com"})[0] == 403
    with server(keys={"a": "x" * 30}) as mine:
        assert mine.ask("POST", "/v1/completions", body)[0] == 401
