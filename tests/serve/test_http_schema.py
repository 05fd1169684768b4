"""The server keeps its OpenAPI document, for data that fits it and for data that does not."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from http_common import Server, server


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with server() as running:
        yield running


def operations(one: Server, mode: str) -> list[Any]:
    """The routes as schemathesis reads them from the document, with NUL in texts."""
    import schemathesis  # takes seconds

    config = {"generation": {"mode": mode, "allow-x00": True}}
    loaded = one.ask("GET", "/openapi.json")[1]
    found = schemathesis.openapi.from_dict(loaded, config=schemathesis.Config.from_dict(config))
    return [result.ok() for result in found.get_all_operations()]


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(
    "examples", [pytest.param(5, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.soak)]
)
def test_the_document_tells_the_truth(one: Server, mode: str, examples: int) -> None:
    from schemathesis.generation import GenerationMode

    tested = operations(one, mode)
    assert len(tested) >= 14
    answered: dict[int, int] = {}
    for operation in tested:
        if mode == "negative" and operation.method == "get":  # without parameters nothing can be wrong
            continue
        run(operation.as_strategy(generation_mode=GenerationMode(mode)), one, mode, answered, examples)
    if mode == "positive":
        assert answered[200] > examples * len(tested) // 3
    assert one.is_healthy()


def run(cases: Any, one: Server, mode: str, answered: dict[int, int], examples: int) -> None:
    @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(cases)
    def check(case: Any) -> None:
        if mode == "positive" and isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "all"  # else it is one that does not exist
        answer = case.call(base_url=f"http://127.0.0.1:{one.port}", timeout=10)
        answered[answer.status_code] = answered.get(answer.status_code, 0) + 1
        too_large = answer.status_code == 413  # which is a refusal too
        case.validate_response(
            answer, excluded_checks=unfit(too_large=too_large)
        )  # status, type and schema are documented
        assert answer.status_code != 500

    check()


def unfit(*, too_large: bool) -> list[Any]:
    """Checks that do not hold: data may fit the schema and still ask for a stream of two prompts."""
    from schemathesis import checks

    names = ("positive_data_acceptance", *(["negative_data_rejection"] if too_large else []))
    return [check for check in checks.CHECKS.get_all() if check.__name__ in names]


def test_the_document_has_every_route_and_its_own_limits(one: Server) -> None:
    found = one.ask("GET", "/openapi.json")[1]
    assert set(found["paths"]) == {route.path for route in one.app.router.routes}  # type: ignore[attr-defined]
    texts = found["components"]["schemas"]["ClassifyRequest"]["properties"]["texts"]
    assert (texts["minItems"], texts["maxItems"]) == (1, 32)
    assert json.dumps(found).count("$ref") > 30
