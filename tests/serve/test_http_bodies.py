"""Bodies and numbers that cannot be used (S5, S6), hostile texts (S17), and what errors and logs tell (S18)."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from http_common import JSON, Server, numeric_fields, server
from seqloom.config.serving import ServingConfig
from seqloom.serve import bodies
from seqloom.serve.answers import HttpRefusal
from seqloom.serve.bodies import MAX_DEPTH, parsed, require_few, typed
from seqloom.serve.engine import VERBS
from seqloom.serve.requests import _size, completion_kind, request_kinds, require_short


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with server() as running:
        yield running


GOOD = '{"texts":["a"],"model":"all"}'
BODIES = {
    "empty": (b"", 400),
    "blank": (b" \n", 400),
    "half": (GOOD[:-1].encode(), 400),
    "two values": (GOOD.encode() * 2, 400),
    "single quotes": (b"{'texts':['a']}", 400),
    "trailing comma": (b'{"texts":["a"],}', 400),
    "comment": (b'{"texts":["a"]} // a', 400),
    "bad utf-8": (b'{"texts":["\xff"]}', 400),
    "overlong utf-8": (b'{"texts":["\xc0\x80"]}', 400),
    "surrogate in utf-8": (b'{"texts":["\xed\xa0\x80"]}', 400),
    "byte-order mark": (b"\xef\xbb\xbf" + GOOD.encode(), 400),
    "utf-16": (GOOD.encode("utf-16"), 400),
    "utf-16-le": (GOOD.encode("utf-16-le"), 400),
    "utf-32-be": (GOOD.encode("utf-32-be"), 400),
    "raw NUL": (b'{"texts":["\x00"]}', 400),
    "half a surrogate pair": (rb'{"texts":["\ud800"]}', 400),
    "half a pair in a key": (rb'{"texts":["a"],"\udc00":1}', 400),
    "key twice": (b'{"texts":["a"],"texts":["b"]}', 400),
    "inner key twice": (b'{"texts":[{"a":1,"a":2}]}', 400),
    "NaN": (b'{"inputs":[[NaN]]}', 400),
    "Infinity": (b'{"inputs":[[-Infinity]]}', 400),
    "1e400": (b'{"inputs":[[1e400]]}', 422),
    "many digits": (b'{"inputs":[[' + b"9" * 10_000 + b"]]}", 422),
    "array": (b"[]", 422),
    "text": (b'"texts"', 422),
    "number": (b"1", 422),
    "null": (b"null", 422),
    "no texts": (b"{}", 422),
    "texts of null": (b'{"texts":null}', 422),
    "texts of a text": (b'{"texts":"a"}', 422),
    "a number as text": (b'{"texts":[1]}', 422),
    "a list of numbers as text": (b'{"texts":[[1]]}', 422),
    "texts and inputs": (b'{"texts":["a"],"inputs":[[1]]}', 422),
    "unknown field": (b'{"texts":["a"],"item":1}', 422),
    "model of a number": (b'{"texts":["a"],"model":1}', 422),
    "deep": (b'{"texts":' + b"[" * 250_000 + b"]" * 250_000 + b"}", 422),
    "deep objects": (b'{"a":' * 60_000 + b"1" + b"}" * 60_000, 422),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_cannot_be_used_is_refused_in_one_form(one: Server, name: str) -> None:
    body, expected = BODIES[name]
    status, found = one.post("/v1/classify", body)
    assert status == expected
    assert set(found) == {"error"} and {"code", "message"} <= set(found["error"]) <= {"code", "message", "field"}


@pytest.mark.parametrize("name", [name for name in BODIES if "deep" not in name])
def test_a_body_is_judged_the_same_whole_and_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged() -> Any:
        try:
            return parsed(BODIES[name][0])
        except HttpRefusal as refusal:
            return refusal.body()

    whole = judged()
    monkeypatch.setattr(bodies, "MANY", -1)
    assert judged() == (whole if isinstance(whole, dict | bytes) else None)


ITEM_VALUES = st.recursive(
    st.one_of(st.integers(0, 9), st.text(alphabet='a,:[]{}"\\\u00e9', max_size=9)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a:,"', max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


@settings(max_examples=1_000)
@given(st.lists(ITEM_VALUES, max_size=4))
def test_the_scan_passes_every_body_within_the_limits_and_parts_are_the_whole(items: list[Any]) -> None:
    body = json.dumps({"inputs": items, "model": "a,[b", "options": {"a": {}}}).encode()
    most = max([0, *(_size([item]) for item in items)])
    require_few(body, ("inputs",), ServingConfig(max_items=max(1, len(items)), max_characters=max(1, most)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "MANY", -1)
        assert parsed(body) == json.loads(body)


MEBIBYTE = 1 << 20
FLOODS = {
    "objects": (b'{"inputs":[' + b",".join([b'{"a":{}}'] * 110_000) + b"]}", "inputs"),
    "lists": (b'{"inputs":[' + b"[]," * 340_000 + b"[]]}", "inputs"),
    "colons": (b'{"\\u003a":["' + b'","'.join([b":"] * 250_000) + b'"]}', None),
    "an item of numbers": (b'{"inputs":[[' + b"1," * 500_000 + b"1]]}", "inputs"),
    "chains": (b'{"inputs":[[' + b",".join([b"[" * 28 + b"1" + b"]" * 28] * 18_000) + b"]]}", "inputs"),
    "keys": (b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_far_too_many_values_are_refused_before_they_are_parsed(
    one: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(bodies, "parsed", asked.append)
    body, field = FLOODS[name]
    assert len(body) < MEBIBYTE
    status, found = one.post("/v1/classify", body)
    assert (status, found["error"]["code"], found["error"].get("field")) == (422, "bad_value", field)
    assert not asked


@pytest.mark.slow
@pytest.mark.parametrize("part", [b"]", b"[]", b"{}", b'""', b"{[]", b"[[]]", b'"a" '])
def test_what_is_no_json_is_scanned_in_no_time(part: bytes) -> None:
    for begin in (b"", b"{", b"{[", b'{"a":[['):
        body, begun = begin + part * (MEBIBYTE // len(part)), time.monotonic()
        with suppress(HttpRefusal):
            require_few(body, (), ServingConfig())
            parsed(body)
        assert time.monotonic() - begun < 5  # usually below 0.1 s


@pytest.mark.slow
def test_the_items_of_a_large_body_are_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    checked = bodies._checked
    monkeypatch.setattr(bodies, "_checked", lambda body, levels: sizes.append(len(body)) or checked(body, levels))
    asked = {"inputs": [[[number]] * 8_000 for number in range(32)], "model": "all"}
    body = json.dumps(asked).encode()
    require_few(body, ("inputs",), ServingConfig())
    assert parsed(body) == asked
    assert len(sizes) == 33 and max(sizes) < len(body) / 25


def test_a_stream_that_an_address_does_not_have_is_refused_by_name(one: Server) -> None:
    status, answer = one.post("/v1/generate", {"texts": ["a"], "model": "writer", "stream": True})
    assert status == 422 and answer["error"]["field"] == "stream" and "/v1/completions" in answer["error"]["message"]


def test_a_translation_has_the_options_of_a_search_and_none_of_sampling() -> None:
    names = set(request_kinds(ServingConfig())["translate"].__struct_fields__)
    assert {"beam_size", "n_best", "length_penalty"} <= names and not {"temperature", "top_p", "num_samples"} & names


def test_good_bodies(one: Server) -> None:
    for body in (
        GOOD,
        rb'{"texts":["\ud83d\ude00\u0000"]}'.decode(),
        f" \n{GOOD}\t",
        '{"texts":[["a","b"],["c"]]}',
    ):
        assert one.post("/v1/classify", body.encode())[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "field", "said"),
    [
        ("/v1/classify", {}, "texts", "the field texts is missing. Fix: add it"),
        ("/v1/search", {}, "texts", "the field texts is missing. Fix: add it"),
        ("/v1/classify", {"texts": ["a"], "inputs": ["a"]}, "inputs", "both texts and inputs"),
        ("/v1/classify", {"inputs": ["a"]}, "inputs", "reads text, not inputs. Fix: send texts"),
        ("/v1/regress", {"texts": ["a"], "model": "numbers"}, "texts", "reads vectors, not texts. Fix: send inputs"),
        ("/v1/generate", {"inputs": ["a"], "model": "all"}, None, "the fields are model, texts, "),
        ("/v1/classify", {"items": ["a"]}, None, "The fields are model, texts, inputs"),
        ("/v1/classify", {"texts": ["b", "refuse me"]}, "texts[1]", "cannot be used"),
        ("/v1/regress", {"inputs": [[1], "refuse me"], "model": "numbers"}, "inputs[1]", "cannot be used"),
    ],
)
def test_texts_are_in_texts_and_all_else_in_inputs(
    one: Server, path: str, body: dict[str, Any], field: str | None, said: str
) -> None:
    status, found = one.post(path, body)
    assert (status, found["error"].get("field")) == (422, field), found
    assert said in found["error"]["message"]
    assert one.post("/v1/regress", {"inputs": [[[1, 2e3]], {"nodes": [1]}], "model": "numbers"})[0] == 200
    fields = {model["id"]: model["field"] for model in one.ask("GET", "/v1/models")[1]["data"]}
    assert fields == {"all": "texts", "writer": "texts", "numbers": "inputs"}


ODD = [
    "application/json; charset=utf-16",
    "application/json, text/plain",
    "text/json",
    "application/json;",
    "a" * 5_000,
]


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        *ODD,
    ],
)
def test_only_json_is_read(one: Server, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    status, found, _ = one.ask("POST", "/v1/classify", GOOD, headers)
    assert (status, found["error"]["code"]) == (415, "content_type")
    assert found["error"]["message"] == "the header Content-Type: application/json is missing. Fix: send it."


def test_compressed_bodies_are_refused(one: Server) -> None:
    for encoding in ("gzip", "br", "deflate", "gzip, gzip"):
        assert one.ask("POST", "/v1/classify", GOOD, JSON | {"Content-Encoding": encoding})[0] == 415


WRONG = [
    "true",
    '"1"',
    "[]",
    "{}",
    "9223372036854775808",
    "-9223372036854775809",
    "1e300",
    "1e400",
    "-1",
    '"NaN"',
    "1" * 30,
]


@pytest.mark.slow
@pytest.mark.parametrize("powers", [1, pytest.param(30, marks=pytest.mark.soak)])
def test_every_number_has_a_range_and_a_type_and_the_refusal_names_it(powers: int, one: Server) -> None:
    fields = numeric_fields(one.ask("GET", "/openapi.json")[1])
    assert len(fields) >= 25
    rest = {"/v1/completions": '"prompt":"a","model":"all"', "/v1/embeddings": '"input":"a","model":"all"'}
    for path, field, limits in fields:
        assert {"minimum", "maximum"} <= set(limits), (path, field)
        step = 1 if limits["type"] == "integer" else 1e-6 * max(1.0, limits["maximum"])
        steps = [step * 10**power for power in range(powers)]
        beyond = [str(number) for more in steps for number in (limits["maximum"] + more, limits["minimum"] - more)]
        for value in (limits["minimum"], limits["maximum"]):
            status, found = one.post(path, ("{" + rest.get(path, '"texts":["a"]') + f',"{field}":{value}}}').encode())
            named = None if status == 200 else found["error"].get("field") or found["error"].get("param")
            assert named != field or field == "dimensions", (path, field, value, found)  # those of the model only
        others = ["0.5"] if limits["type"] == "integer" else []
        nulls = [] if path in rest else ["null"]  # which clients of OpenAI send
        for value in (*WRONG, *beyond, *others, *nulls):
            body = "{" + rest.get(path, '"texts":["a"]') + f',"{field}":{value}}}'
            status, found = one.post(path, body.encode())
            named = found["error"].get("field") or found["error"].get("param")
            assert (status, named) == (422, field), (path, field, value, found)
        for value in ("NaN", "Infinity"):  # not JSON at all
            body = f'{{"texts":["a"],"{field}":{value}}}'
            assert one.post(path, body.encode())[0] == 400
    assert one.is_healthy()


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b'{"texts":["a"],"inputs":[1e400]}', 422, "inputs"),
        (b'{"texts":["a"],"other":[1e400]}', 422, None),
        (b"[1e400]", 422, None),
        (b'{"inputs":[1e400],}', 400, None),
    ],
)
def test_a_number_beyond_the_range_of_floats_is_refused_with_its_field(
    body: bytes, status: int, field: str | None, one: Server
) -> None:
    for padding in (0, bodies.LARGE):  # read whole, and in parts
        found, answer = one.post("/v1/regress", body + b" " * padding)
        assert (found, answer["error"].get("field")) == (status, field)


HOSTILE = {
    "carets": "^" * 32_768,
    "letters": "a" * 32_768,
    "underscores": "_" * 32_768,
    "spaces": " " * 32_768,
    "nul": "\x00" * 32_768,
    "combining": "e" + "\u0301" * 30_000,
    "rtl": "\u202e" * 30_000,
    "emoji": "\U0001f468\u200d" * 16_000,
    "quotes": '"' * 32_768,
    "backslashes": "\\" * 32_768,
    "brackets": "[{" * 16_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_parsed_in_no_time(one: Server, name: str) -> None:
    begun = time.monotonic()
    assert one.post("/v1/classify", {"texts": [HOSTILE[name]]})[0] == 200
    assert time.monotonic() - begun < 1.0


SLOW: list[Callable[[int], bytes]] = [  # of about as many bytes
    lambda size: b'"' + b'\\"' * (size // 2),
    lambda size: b"[]," * (size // 3),
    lambda size: b"{}" * (size // 2),
    lambda size: b'"\\' * (size // 2),
    lambda size: b"[" + b"{}," * (size // 3) + b"{}]",
    lambda size: b"[" + b"[[[[{}]]]]," * (size // 11) + b"1]",
    lambda size: b'["\\u003a"' + b',":"' * (size // 4) + b"]",
]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SLOW)))
def test_the_work_of_the_parser_is_linear(number: int) -> None:
    def seconds(size: int) -> float:
        body = SLOW[number](size)
        begun = time.perf_counter()
        with suppress(HttpRefusal):
            parsed(body)
        return time.perf_counter() - begun

    assert seconds(1_000_000) < 2.5
    short = min(seconds(250_000) for _ in range(3))
    assert min(seconds(1_000_000) for _ in range(3)) < 20 * short + 0.05


def test_a_body_of_numbers_is_read_without_a_call_of_python_for_each() -> None:
    body = json.dumps({"inputs": [list(range(9)) * 3_000] * 3}).encode()
    calls = 0

    def count(_frame: Any, event: str, _fact: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        value = parsed(body)
        require_short(value["inputs"], "inputs", 32_768)
    finally:
        sys.setprofile(None)
    assert calls < 200


def test_wrong_items_fill_no_cache() -> None:
    kind = request_kinds(ServingConfig())["classify"]

    def kept() -> int:
        return sum(one.cache_info().currsize for one in vars(bodies).values() if hasattr(one, "cache_info"))

    before = kept()
    for place in range(20):
        with pytest.raises(HttpRefusal, match=rf"texts\[0\]\[{place}\]"):
            bodies.typed({"texts": [["a"] * place + [1]]}, kind)
    assert kept() == before + 1


def test_empty_values_count() -> None:
    for empty in ("", [], {}):
        with pytest.raises(HttpRefusal, match="has 11 characters"):
            require_short([[empty] * 11], "inputs", 10)
        require_short([[empty] * 10], "inputs", 10)
    require_short([["ab", [1, {"c": 4}]]], "inputs", 5)


@pytest.mark.parametrize(
    "body", [rb'{"a":1,"b":[{"c":2,"c":"\u003a"}]}', rb'{"a:":1,"a:":2}', rb'{"a":1,"\u0061":"\u003A:"}']
)
def test_a_key_twice_is_found_whatever_colons_the_texts_have(body: bytes) -> None:
    with pytest.raises(HttpRefusal, match="key twice"):
        parsed(body)
    assert parsed(rb'{"a:":":","\u003a":{"b:":"\u003a"},"c":[{"a:":1}]}')["a:"] == ":"


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(TREES, st.booleans())
def test_all_json_is_read_as_it_was_written(value: Any, ascii_only: bool) -> None:
    assert parsed(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")) == value


@settings(max_examples=2_000)
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
def test_anything_else_is_refused_and_nothing_else_happens(body: bytes) -> None:
    with suppress(HttpRefusal):
        parsed(body)


def test_depth_is_counted_as_the_parser_does() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parsed(deep.encode()) is not None
    with pytest.raises(HttpRefusal):
        parsed(f"[{deep}]".encode())


CANARY = "canary-5f2e"
SPOKEN = [
    {"texts": [CANARY]},
    {"texts": [CANARY, 1]},
    {"texts": [CANARY], CANARY: 1},
    {"texts": [CANARY], f"a` - at `$.{CANARY}": 1},
    {"texts": [CANARY], f"a` - at `$.texts.{CANARY}": 1},
    {"texts": ["fail", CANARY]},
    {"texts": ["refuse me", CANARY]},
    {"texts": [CANARY], "model": CANARY},
    {"texts": [{CANARY: CANARY}]},
    {"texts": [[CANARY, 1]]},
    f'{{"texts":["{CANARY}"],"{CANARY}":1e400}}',
    {"inputs": [CANARY, {CANARY: 1}]},
    {"texts": [CANARY], "top_k": CANARY},
    {"texts": [CANARY], "stop": [CANARY, 1]},
]


SPEAKING = ("classify", "generate", "search", "completions", f"{CANARY}?a={CANARY}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "places",
    [SPEAKING, pytest.param((*SPEAKING, *VERBS, "embeddings", "models", f"models/{CANARY}"), marks=pytest.mark.soak)],
    ids=len,
)
def test_no_text_of_a_request_is_in_errors_logs_or_metrics(places: tuple[str, ...]) -> None:
    with server() as mine:
        for body in SPOKEN:
            for place in places:
                status, found, headers = mine.ask("POST", f"/v1/{place}", body, JSON | {"X-Note": CANARY})
                assert status == 200 or CANARY not in f"{found}{headers}", (place, body)
        mine.ask("GET", f"/v1/models/{CANARY}")
        mine.ask(CANARY, "/health")
        mine.raw(f"GET /{CANARY} HTTP/3.7\r\n{CANARY}\r\n\r\n".encode())
        assert CANARY not in mine.ask("GET", "/metrics")[1]
    assert "classify" in mine.log.getvalue()
    assert CANARY not in mine.log.getvalue()


@pytest.mark.slow
def test_a_failure_of_ours_tells_its_place_to_the_log_and_nothing_to_the_client() -> None:
    with server() as mine:
        status, found = mine.post("/v1/classify", {"texts": ["fail"]})
        assert (status, found["error"]["code"]) == (500, "internal")
    assert re.search(r"error: RuntimeError at http_common.py:\d+ ask < app.py:\d+ endpoint", mine.log.getvalue())


def test_an_unknown_field_is_answered_with_the_nearest_one_and_never_repeated() -> None:
    kind = request_kinds(ServingConfig())["classify"]
    for body, meant in (({"text": "a"}, True), ({"zzz": "a"}, False), ({"x" * 100_000: 1}, False)):
        with pytest.raises(HttpRefusal) as refused:
            typed(body, kind)
        message = refused.value.message
        assert ("Did you mean 'texts'?" in message) is meant and "he fields are model, texts" in message
        assert "zzz" not in message and "xxx" not in message and refused.value.field is None


def test_a_key_that_looks_like_a_place_is_not_one() -> None:
    kind = completion_kind(ServingConfig())
    asked = {"model": "a", "prompt": "a", "stream_options": {"a` - at `$.secret": 1}}
    for more, field in (({}, "stream_options"), ({"a` - at `$.model.secret": 1}, None)):
        with pytest.raises(HttpRefusal, match="has an unknown field") as refused:
            typed(asked | more, kind)
        assert refused.value.field == field and "secret" not in refused.value.message
