"""The server keeps its OpenAPI document, for data that fits it and for data that does not."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from http_common import FakeEngine, Server, server
from seqloom.config.serving import ServingConfig
from seqloom.serve.engine import VERBS, Verb
from seqloom.serve.outputs import CompletionAnswer, DescribedModel, EmbeddingAnswer, ModelsAnswer, answer_kind
from serve_common import RunningEngine

if TYPE_CHECKING:
    from requests import Session


LIMITS = {"max_items": 3, "max_embedding_items": 3, "max_characters": 40}  # else most of the time is spent to draw


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with server(ServingConfig(port=0, **LIMITS), able()) as running:
        yield running


def able() -> FakeEngine:
    """An engine whose two models can do everything, one with texts and one with other inputs."""
    engine = FakeEngine()
    engine.models = {
        "all": engine.models["all"],
        "numbers": msgspec.structs.replace(engine.models["numbers"], abilities=frozenset(VERBS), vector_size=4),
    }
    return engine


def operations(one: Server, mode: str) -> list[Any]:
    """The routes as schemathesis reads them from the document, with NUL in texts."""
    import schemathesis  # takes seconds

    config = {"generation": {"mode": mode, "allow-x00": True}}
    loaded = one.ask("GET", "/openapi.json")[1]
    found = schemathesis.openapi.from_dict(loaded, config=schemathesis.Config.from_dict(config))
    return [result.ok() for result in found.get_all_operations()]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_the_document_tells_the_truth(one: Server, mode: str) -> None:
    check_document(one, mode, examples=15)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_the_document_tells_the_truth_with_the_limits_of_the_default(mode: str) -> None:
    with server(engine=able()) as mine:
        check_document(mine, mode, examples=200)


def check_document(one: Server, mode: str, examples: int) -> None:
    from requests import Session
    from schemathesis.generation import GenerationMode

    tested = operations(one, mode)
    assert len(tested) >= 15
    answered: Counter[int] = Counter()
    with Session() as client:
        client.trust_env = False  # it would look for proxies before each request
        for operation in tested:
            if mode == "negative" and operation.method == "get":  # without parameters nothing can be wrong
                continue
            run(operation.as_strategy(generation_mode=GenerationMode(mode)), one, mode, examples, client, answered)
    if mode == "positive":
        assert answered[200] > examples * len(tested) // 3, answered
    assert one.is_healthy()


def run(cases: Any, one: Server, mode: str, examples: int, client: "Session", answered: Counter[int]) -> None:
    @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(cases)
    def check(case: Any) -> None:
        if mode == "positive" and isinstance(case.body, dict):
            case.body["model"] = "numbers" if "inputs" in case.body else "all"  # else it is one that does not exist
        answer = case.call(base_url=f"http://127.0.0.1:{one.port}", timeout=10, session=client)
        answered[answer.status_code] += 1
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


@pytest.mark.slow
def test_the_document_has_every_route_and_its_own_limits(one: Server) -> None:
    found = one.ask("GET", "/openapi.json")[1]
    assert set(found["paths"]) == {route.path for route in one.app.router.routes}  # type: ignore[attr-defined]
    texts = found["components"]["schemas"]["ClassifyRequest"]["properties"]["texts"]
    assert (texts["minItems"], texts["maxItems"]) == (1, LIMITS["max_items"])
    assert json.dumps(found).count("$ref") > 30


@pytest.mark.slow
def test_the_answers_of_real_models_have_the_fields_of_the_document(engine: RunningEngine) -> None:
    asked: dict[Verb, tuple[str, Any, dict[str, Any]]] = {
        "classify": ("reviews", "a film", {}),
        "regress": ("scores", "a film", {}),
        "tag": ("tags", "Ada went home.", {}),
        "fill": ("masked", "the [MASK] man", {}),
        "translate": ("translator", "the old man", {"max_new_tokens": 3, "beam_size": 2, "n_best": 2}),
        "generate": ("lm", "the old", {"max_new_tokens": 3}),
        "embed": ("reviews", "a film", {}),
        "search": ("index", "the", {"top_k": 2}),
    }
    assert set(asked) == set(VERBS)
    for verb, (model, item, options) in asked.items():
        answer = {"model": model, "outputs": engine.ask(model, verb, [item], options)}
        read = msgspec.convert(answer, answer_kind(verb))
        assert msgspec.to_builtins(read) == answer, verb  # no field is left out


@pytest.mark.slow
def test_every_answer_in_json_is_described(one: Server) -> None:
    found = one.ask("GET", "/openapi.json")[1]
    for path, methods in found["paths"].items():
        for operation in methods.values():
            content = operation["responses"]["200"]["content"]
            assert path in ("/metrics", "/openapi.json") or content["application/json"]["schema"]["$ref"], path
    for path, kind in (("/v1/models", ModelsAnswer), ("/v1/models/all", DescribedModel)):
        answer = one.ask("GET", path)[1]
        assert set(msgspec.to_builtins(msgspec.convert(answer, kind))) == set(answer)
    for path, body, kind in (
        ("/v1/completions", {"model": "all", "prompt": "a"}, CompletionAnswer),
        ("/v1/embeddings", {"model": "all", "input": "a"}, EmbeddingAnswer),
    ):
        answer = one.post(path, body)[1]
        assert msgspec.to_builtins(msgspec.convert(answer, kind)) == answer
