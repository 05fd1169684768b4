"""The HTTP application: routes, and what every request passes on its way to the engine.

connection.py ──▶ HttpApp: Host, log ──▶ policies.py ──▶ bodies.py ──▶ engine ──▶ JSON
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from seqloom.config.serving import ServingConfig
from seqloom.serve.answers import CLOSING, HttpRefusal, answer_of, bad_value, internal_error
from seqloom.serve.bodies import read_body
from seqloom.serve.engine import VERBS, Engine, ModelCard, Verb
from seqloom.serve.openai_routes import OpenAIRoutes, note
from seqloom.serve.openapi import RouteOperation, openapi_document
from seqloom.serve.outputs import DescribedModel, ModelsAnswer, answer_kind
from seqloom.serve.policies import ANSWERS, FACTS, PUBLIC, Access, Policy, PolicyRoute, guarded, plain
from seqloom.serve.refusals import ITEMS, Refusal, UnknownModel, naming, place_of
from seqloom.serve.requests import HealthAnswer, VerbAnswer, items_of, options_of, request_kinds, require_short
from seqloom.serve.traffic import UNROUTED, Exchange, Traffic

LEFT = 499  # in the log: the client did not wait for the answer
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
NOT_FOUND = HttpRefusal(
    404,
    "not_found",
    "there is nothing at this address",
    "GET /openapi.json lists all addresses; clients of OpenAI need a base_url that ends in /v1, and there is no chat",
)
STOPPING = HttpRefusal(
    503, "stopping", "the server is stopping", "try again later", headers={"Retry-After": "5"} | CLOSING
)
TOLD = (  # limits that matter to clients
    *("max_body_bytes", "max_items", "max_embedding_items", "max_characters", "max_tokens"),
    *("max_new_tokens", "max_samples", "max_beam_tokens", "total_seconds"),
)
SUMMARIES: dict[Verb, str] = {
    "classify": "Predict labels with their probabilities.",
    "regress": "Predict numbers.",
    "tag": "Tag words and find spans, with their offsets in characters.",
    "fill": "Predict the tokens for each [MASK] in texts.",
    "translate": "Translate texts.",
    "generate": "Continue prompts.",
    "embed": "Compute vectors.",
    "search": "Search an index for queries.",
}


class HttpApp:
    """The application. Counts and logs every request, and turns every error into JSON.

    Args:
        engine: a started engine.
        config: the limits.
        access: the host names and keys.
        traffic: what counts and logs.
    """

    def __init__(self, engine: Engine, config: ServingConfig, access: Access, traffic: Traffic) -> None:
        self.engine, self.config, self.access, self.traffic = engine, config, access, traffic
        self.kinds = request_kinds(config)
        self.large_body = asyncio.Lock()  # of the one that is parsed
        self.is_draining = False
        self.connections: Callable[[], int] = lambda: 0  # set by the listener
        self.operations = self._operations()
        self.paths = frozenset(one.path.encode() for one in self.operations)
        document = openapi_document(self.operations, has_keys=access.keys is not None)
        self.document = msgspec.json.encode(document)
        routes = [PolicyRoute(one.path, one.endpoint, method=one.method, policy=one.policy) for one in self.operations]
        self.router = Router(guarded(routes), redirect_slashes=False, default=_not_found)

    def _operations(self) -> list[RouteOperation]:
        answering = [
            RouteOperation(
                "POST",
                f"/v1/{verb}",
                ANSWERS,
                SUMMARIES[verb],
                self._endpoint(verb),
                self.kinds[verb],
                answer_kind(verb),
            )
            for verb in VERBS
        ]
        return [
            *answering,
            *OpenAIRoutes(self.engine, self.config).operations(),
            RouteOperation(
                "GET", "/v1/models", FACTS, "List the models and their limits.", self._models, None, ModelsAnswer
            ),
            RouteOperation(
                "GET", "/v1/models/{model}", FACTS, "Describe a model.", self._one_model, None, DescribedModel
            ),
            RouteOperation(
                "GET",
                "/health",
                PUBLIC,
                "Whether the server can answer.",
                self._health,
                answers=HealthAnswer,
                also={503: HealthAnswer},
            ),
            RouteOperation(
                "GET", "/metrics", FACTS, "Counts for Prometheus.", self._metrics, media_types=("text/plain",)
            ),
            RouteOperation("GET", "/openapi.json", FACTS, "This document.", self._document),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, whatever it is."""
        if scope["type"] != "http":
            return
        state = scope.setdefault("state", {})
        state |= {"access": self.access, "large_body": self.large_body, "limits": self.config}
        state |= {"task": asyncio.current_task(), "route": UNROUTED}
        begun, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.traffic.running += 1
        code = ""
        try:
            refusal = await self._refusal(scope, receive, watched)
            if refusal is not None:
                code = refusal.code
                if not status:  # else it is too late to say so: the connection closes in the middle of the answer
                    await _answer(refusal, state.get("policy"))(scope, receive, watched)
        except asyncio.CancelledError:
            if state.get("is_ended") or status:  # by the connection: the client has left, or heard why
                status = LEFT
            else:  # the time of a stop is over
                code = STOPPING.code
                await _answer(STOPPING, state.get("policy"))(scope, receive, watched)
        finally:
            self.traffic.running -= 1
            if not state.get("is_refused"):
                self._count(scope, status, time.monotonic() - begun, code)

    def _count(self, scope: Scope, status: int, seconds: float, code: str) -> None:
        state = scope["state"]
        client = state.get("client") or (scope["client"][0] if scope.get("client") else "")
        model, items = state.get("model", ""), state.get("items", 0)
        code = code or state.get("code", "")  # of a refusal in the middle of a stream
        self.traffic.count(Exchange(scope["method"], state["route"], status, seconds, client, model, items, code))

    async def _refusal(self, scope: Scope, receive: Receive, send: Send) -> HttpRefusal | None:
        """Let a route answer; return why it does not."""
        try:
            self.access.require_host(scope)
            if self.is_draining:
                return STOPPING
            await self.router(scope, receive, send)  # the connection and the engine have clocks
        except HttpRefusal as refusal:
            return refusal
        except Refusal as refusal:
            return answer_of(refusal)
        except Exception as error:
            self.traffic.log.say(f"error: {place_of(error)}")
            return internal_error()
        return None

    def _endpoint(self, verb: Verb) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            asked: Any = await read_body(request, self.kinds[verb], self._check_items)
            field, items = items_of(asked)
            model = self._model(asked.model, verb)
            note(request, self.engine, model, len(items))
            card = self.engine.models.get(model)  # the engine refuses an unknown one
            if card is not None and card.field != field:
                raise bad_value(field, f"the model '{model}' reads {card.input}, not {field}", f"send {card.field}")
            with naming({ITEMS: field}):
                outputs = await self.engine.ask(
                    model, verb, items, options_of(asked), begun=request.scope["state"]["begun"]
                )
            return plain(200, msgspec.json.encode(VerbAnswer(model, outputs)))

        return endpoint

    def _check_items(self, asked: Any) -> None:
        field, items = items_of(asked)
        require_short(items, field, self.config.max_characters)

    def _model(self, name: str | msgspec.UnsetType, verb: Verb) -> str:
        """Return the name of the model that is asked: the only one that is able to, unless one is named."""
        if isinstance(name, str):
            return name
        able = [one.name for one in self.engine.models.values() if verb in one.abilities]
        if len(able) != 1:
            count = f"{len(able)} models" if able else "no model here"
            fix = f"add model, one of {', '.join(able)}" if able else "GET /v1/models tells what the models can do"
            raise bad_value("model", f"no model is named, and {count} can {verb}", fix)
        return able[0]

    async def _models(self, request: Request) -> Response:
        cards = [self._described(card) for card in self.engine.models.values()]
        return plain(200, msgspec.json.encode({"object": "list", "data": cards, "limits": self._limits()}))

    async def _one_model(self, request: Request) -> Response:
        name = request.path_params["model"]
        card = self.engine.models.get(name)
        if card is None:
            raise UnknownModel(name, self.engine.models)
        return plain(200, msgspec.json.encode(self._described(card)))

    def _described(self, card: ModelCard) -> dict[str, Any]:
        """A card with the fields that clients of OpenAI expect."""
        fields = {"id": card.name, "object": "model", "created": int(card.loaded_at), "owned_by": "seqloom"}
        facts = msgspec.to_builtins(card)
        facts["abilities"] = sorted(card.abilities)
        return {**fields, **facts, "limits": self._limits()}

    def _limits(self) -> dict[str, float]:
        return {name: getattr(self.config, name) for name in TOLD}

    async def _health(self, request: Request) -> Response:
        is_ready = self.engine.ready
        return plain(200 if is_ready else 503, b'{"status":"ok"}' if is_ready else b'{"status":"no model is ready"}')

    async def _metrics(self, request: Request) -> Response:
        counted = self.traffic.text(self.engine.counters, self.connections(), len(self.engine.models))
        return plain(200, counted.encode(), PROMETHEUS)

    async def _document(self, request: Request) -> Response:
        return plain(200, self.document)


async def _not_found(*_: Any) -> None:
    raise NOT_FOUND.fresh()


def _answer(refusal: HttpRefusal, policy: Policy | None) -> Response:
    body = refusal.openai_body() if policy is not None and policy.is_openai else refusal.body()
    answer = plain(refusal.status, body)
    answer.headers.update(refusal.headers)
    return answer
