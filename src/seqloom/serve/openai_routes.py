"""Routes in the form of OpenAI, for clients that people already have: completions and embeddings."""

import base64
import secrets
import sys
import time
from array import array
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from seqloom.config.serving import ServingConfig
from seqloom.serve.answers import answer_of, bad_value
from seqloom.serve.bodies import read_body
from seqloom.serve.engine import Engine, TextPart, TokenUsage
from seqloom.serve.openapi import RouteOperation
from seqloom.serve.outputs import CompletionAnswer, EmbeddingAnswer
from seqloom.serve.policies import OPENAI, plain
from seqloom.serve.refusals import ITEMS, BadItem, Refusal, naming
from seqloom.serve.requests import completion_kind, embedding_kind

MAX_TOKENS = 16  # the default of OpenAI
COLDEST = 0.001  # lower temperatures are greedy
SEEDS = 2**31
FINISHED = {"end": "stop", "stop": "stop", "length": "length"}
COMPLETION = {ITEMS: "prompt", "max_new_tokens": "max_tokens", "num_samples": "n"}  # our names and those of OpenAI


class EventStream(Response):
    """Server-sent events, sent as they come. The generator is closed when the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
        del self.headers["content-length"]
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self.events) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class OpenAIRoutes:
    """The two routes."""

    def __init__(self, engine: Engine, config: ServingConfig) -> None:
        self.engine, self.config = engine, config
        self.completion, self.embedding = completion_kind(config), embedding_kind(config)

    def operations(self) -> list[RouteOperation]:
        """Return both, with what they read."""
        completing = "Continue prompts, in the form of OpenAI; with stream as server-sent events."
        embedding = "Compute vectors, in the form of OpenAI."
        return [
            RouteOperation(
                "POST",
                "/v1/completions",
                OPENAI,
                completing,
                self.completions,
                self.completion,
                CompletionAnswer,
                media_types=("application/json", EventStream.media_type),
            ),
            RouteOperation(
                "POST", "/v1/embeddings", OPENAI, embedding, self.embeddings, self.embedding, EmbeddingAnswer
            ),
        ]

    async def completions(self, request: Request) -> Response:
        """Continue prompts."""
        asked: Any = await read_body(request, self.completion)
        prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
        note(request, self.engine, asked.model, len(prompts))
        options, state = self._decoding(asked), request.scope["state"]
        with _one_or_several(asked.prompt), naming(COMPLETION):
            if asked.stream_options is not None and not asked.stream:
                raise bad_value(
                    "stream_options", "stream_options were given without a stream", "add stream, or leave it out"
                )
            if asked.stream:
                return await self._streamed(asked, prompts, options, state)
            found, usage = await self.engine.ask_counted(
                asked.model, "generate", prompts, options, begun=state["begun"]
            )
        choices = [
            _choice(number, (prompt if asked.echo else "") + one["text"], one["finish_reason"])
            for number, (prompt, one) in enumerate(
                (prompt, one) for prompt, texts in zip(prompts, found, strict=True) for one in texts
            )
        ]
        return plain(200, msgspec.json.encode(_completion(asked.model) | {"choices": choices, "usage": _usage(usage)}))

    def _decoding(self, asked: Any) -> dict[str, Any]:
        """The options of a completion under our names."""
        stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
        options = {"max_new_tokens": asked.max_tokens or min(MAX_TOKENS, self.config.max_new_tokens), "stop": stop}
        temperature = 1.0 if asked.temperature is None else asked.temperature
        if temperature >= COLDEST:
            seed = secrets.randbelow(SEEDS) if asked.seed is None else asked.seed
            options |= {"temperature": temperature, "top_p": asked.top_p, "top_k": asked.top_k, "seed": seed}
            options["num_samples"] = asked.n
        elif asked.n not in (None, 1):
            raise bad_value("n", "several texts were asked with temperature 0, which gives one", "raise temperature")
        return {name: value for name, value in options.items() if value is not None}

    async def _streamed(
        self, asked: Any, prompts: Sequence[str], options: dict[str, Any], state: dict[str, Any]
    ) -> Response:
        if len(prompts) != 1 or asked.n not in (None, 1):
            raise bad_value("stream", "a stream is for one prompt and one text", "leave out stream, or send one prompt")
        options.pop("num_samples", None)
        parts = self.engine.stream(asked.model, prompts[0], options, begun=state["begun"])
        first = await anext(parts)  # a refusal has its own status until the first event is sent
        counted = asked.stream_options is not None and asked.stream_options.include_usage
        echo = prompts[0] if asked.echo else ""
        return EventStream(_events(_completion(asked.model), echo, first, parts, state, counted=counted))

    async def embeddings(self, request: Request) -> Response:
        """Compute vectors."""
        asked: Any = await read_body(request, self.embedding)
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        note(request, self.engine, asked.model, len(texts))
        card = self.engine.models.get(asked.model)  # the engine refuses an unknown one
        if card is not None and asked.dimensions not in (None, card.vector_size):
            said = f"the vectors of this model have {card.vector_size} dimensions"
            raise bad_value("dimensions", said, "leave it out")
        with _one_or_several(asked.input), naming({ITEMS: "input"}):
            begun = request.scope["state"]["begun"]
            found, usage = await self.engine.ask_counted(asked.model, "embed", texts, {}, begun=begun)
        form = _in_base64 if asked.encoding_format == "base64" else list
        data = [
            {"object": "embedding", "index": number, "embedding": form(one["vector"])}
            for number, one in enumerate(found)
        ]
        read = {"prompt_tokens": usage.read, "total_tokens": usage.read}
        return plain(200, msgspec.json.encode({"object": "list", "data": data, "model": asked.model, "usage": read}))


def note(request: Request, engine: Engine, model: str, items: int) -> None:
    """Note for the log what is asked; not a name that no model has, which may be anything."""
    request.scope["state"] |= {"model": model if model in engine.models else "", "items": items}


@contextmanager
def _one_or_several(given: str | Sequence[str]) -> Iterator[None]:
    """Make refusals in the block give no number of an item if one text was given, without a list."""
    try:
        yield
    except BadItem as refusal:
        refusal.index = None if isinstance(given, str) else refusal.index
        raise


def _in_base64(vector: Sequence[float]) -> str:
    """The numbers as float32 in little-endian order."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()


def _completion(model: str) -> dict[str, Any]:
    made = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time())}
    return made | {"model": model}


def _choice(number: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": number, "text": text, "logprobs": None, "finish_reason": FINISHED.get(finish or "")}


def _usage(counted: TokenUsage) -> dict[str, int]:
    both = counted.read + counted.written
    return {"prompt_tokens": counted.read, "completion_tokens": counted.written, "total_tokens": both}


async def _events(
    made: dict[str, Any],
    echo: str,
    first: TextPart,
    parts: AsyncGenerator[TextPart, None],
    state: dict[str, Any],
    *,
    counted: bool,
) -> AsyncGenerator[bytes, None]:
    """The parts of a text as events; a refusal in the middle is an event too, then the stream ends.

    The state of the request gets the `code` of such a refusal, because its status is 200.
    If it is to be `counted`, a last event without choices has the usage, and all others have null in its place.
    """

    def event(choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        return (
            b"data: "
            + msgspec.json.encode(made | {"choices": choices} | ({"usage": usage} if counted else {}))
            + b"\n\n"
        )

    last = first
    async with aclosing(parts):
        yield event([_choice(0, echo + first.text, first.finish_reason)])
        try:
            async for last in parts:
                yield event([_choice(0, last.text, last.finish_reason)])
        except Refusal as refusal:
            answer = answer_of(refusal)
            state["code"] = answer.code
            yield b"data: " + answer.openai_body() + b"\n\n"
            return
        if counted:
            yield event([], _usage(last.usage))
        yield b"data: [DONE]\n\n"
