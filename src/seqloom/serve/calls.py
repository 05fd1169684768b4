"""Requests in the engine: their items, their options, and what has been answered so far."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from seqloom.config.base import taken
from seqloom.config.data import NameList
from seqloom.config.decoding import BEAM_SIZE, AnyDecoding, BeamConfig, GreedyConfig, SampleConfig, decoding
from seqloom.config.serving import MAX_ALL_HITS, MAX_HITS, ServingConfig
from seqloom.errors import ConfigError, did_you_mean
from seqloom.serve.messages import VERBS, ItemAnswer, TextPart, TokenUsage, Verb, encoded
from seqloom.serve.refusals import ITEMS, BadItem, ModelFailed, Refusal

SEARCH_OPTIONS: dict[str, Any] = {"top_k": Annotated[int, msgspec.Meta(ge=1, le=MAX_HITS)], "where": NameList}
KINDS = (GreedyConfig, SampleConfig, BeamConfig)
SAMPLING = set(SampleConfig.__struct_fields__) - set(BeamConfig.__struct_fields__)
HITS = 10  # documents of a query, if none are asked; as in `Searcher.search`
CONTINUATION = 64  # most tokens of a continuation, if none are asked; as in `seqloom generate`
DECODING_OPTIONS = {name for kind in KINDS for name in kind.__struct_fields__} - {"cuda_graphs"}  # rows come and go

# Where a worker computes a request: three kinds of work that do not wait for each other.
Lane = Literal["prompts", "pausing", "batch"]
LANES: dict[Verb, tuple[Lane, ...]] = {  # the options of a request choose one
    **dict.fromkeys(VERBS, ("batch",)),
    "generate": ("prompts", "pausing"),
    "translate": ("pausing",),
    "search": ("batch", "pausing"),
}


class CallOptions(msgspec.Struct, frozen=True):
    """The checked options of a request."""

    values: dict[str, Any]
    key: bytes  # requests with equal keys can share a batch
    rows: int = 1  # that an item takes in a batch: its samples, beams or documents
    continuous: bool = False  # whether its items are rows of continuous batching
    pauses: bool = False  # whether its batches are long and have pauses, in which others can be computed


def checked_options(
    verb: Verb, given: Mapping[str, Any], config: ServingConfig, *, items: int = 1, by_vectors: bool = False
) -> CallOptions:
    """Return the options of a request; BadItem for one that is unknown, invalid or above a limit.

    Args:
        verb: what is asked.
        given: the options.
        config: the limits.
        items: the number of items.
        by_vectors: whether a search compares vectors, and not only words.
    """
    values = {name: value for name, value in given.items() if value is not None}
    try:
        if verb == "generate":
            return _generating(values, config)
        if verb == "translate":
            return _translating(values, config)
        if verb == "search":
            return _searching(values, items, by_vectors)
    except ConfigError as error:
        place, colon, rest = error.problem.partition(": ")
        field = place.rpartition(".")[2] if colon else "options"
        expected = rest.partition(", found ")[0]  # what is found may be text of the request
        raise BadItem(None, field, f"{field}: {expected}" if colon else error.problem, error.fix) from None
    _require_known(values, ())
    return CallOptions({}, b"")


def _generating(values: dict[str, Any], config: ServingConfig) -> CallOptions:
    _require_known(values, DECODING_OPTIONS)
    how = decoding(values)
    values |= {"max_new_tokens": _tokens(how, config, usual=CONTINUATION)}
    searched = isinstance(how, BeamConfig)
    return CallOptions(values, _key(values), how.abreast, continuous=not searched, pauses=searched)


def _translating(values: dict[str, Any], config: ServingConfig) -> CallOptions:
    copies = taken(values.get("replace_unknown", False), bool, "replace_unknown")
    settings = {name: value for name, value in values.items() if name != "replace_unknown"}
    _require_known(settings, DECODING_OPTIONS)
    how = decoding({"beam_size": BEAM_SIZE} | settings)
    tokens = _tokens(how, config, usual=config.max_new_tokens)  # the model stops earlier, by the length of the source
    values = settings | {"max_new_tokens": tokens} | ({"replace_unknown": True} if copies else {})
    return CallOptions(values, _key(values), how.abreast, pauses=True)


def _tokens(how: AnyDecoding, config: ServingConfig, usual: int) -> int:
    """The most tokens to generate, `usual` if none are asked; ConfigError for more than the server allows.

    A worker decodes one batch at a time, and others wait for its end. So the tokens of all beams together have a limit
    too.
    """
    searched = isinstance(how, BeamConfig)
    _require_most("max_new_tokens", how.max_new_tokens, config.max_new_tokens)
    _require_most("beam_size" if searched else "num_samples", how.abreast, config.max_samples)
    asked, room = how.max_new_tokens, config.max_beam_tokens // how.abreast
    if asked is None:
        return min(usual, config.max_new_tokens, room)
    if asked > room:
        several = "beams" if searched else "samples"
        raise ConfigError(
            f"max_new_tokens: {asked:,} tokens in each of {how.abreast} {several} are {asked * how.abreast:,}, "
            f"but the server allows {config.max_beam_tokens:,}",
            fix=f"use at most {room:,}, or fewer {several}",
        )
    return asked


def _searching(values: dict[str, Any], queries: int, by_vectors: bool) -> CallOptions:
    """The options of a search. All sentences of its documents are embedded, so documents are what it costs."""
    _require_known(values, SEARCH_OPTIONS)
    values = {name: taken(value, SEARCH_OPTIONS[name], name) for name, value in values.items()}
    hits = values.get("top_k", HITS)
    if hits * queries > MAX_ALL_HITS:
        raise ConfigError(
            f"top_k: {hits} documents for each of {queries:,} queries are {hits * queries:,}, "
            f"but the server allows {MAX_ALL_HITS:,}",
            fix=f"use at most {max(1, MAX_ALL_HITS // queries)}, or fewer queries",
        )
    return CallOptions(values, _key(values), hits, pauses=by_vectors)


def _require_known(values: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise BadItem for an option that the verb does not have; its name is text of the request."""
    for name in values.keys() - set(known):
        fix = did_you_mean(name[:80], known) if known else "leave it out"
        raise BadItem(None, "options", "there is no option of this name for this verb", fix)


def _key(values: dict[str, Any]) -> bytes:
    return msgspec.json.encode(values, order="sorted")


def _require_most(field: str, asked: int | None, most: int) -> None:
    if asked is not None and asked > most:
        raise ConfigError(f"{field}: {asked:,} is more than the server allows", fix=f"use at most {most:,}")


class Call:
    """One request: its items, which are computed in one or several batches, and its answers."""

    def __init__(
        self, model: str, verb: Verb, items: Sequence[Any], options: CallOptions, *, streamed: bool = False
    ) -> None:
        self.model, self.verb, self.options = model, verb, options
        self.items = [_encoded(item, index) for index, item in enumerate(items)]
        self.key = (model, verb, options.key)
        self.next = 0  # the first item that no worker has yet
        self.left = len(self.items)  # that are not answered
        self.answers: list[Any] = [None] * len(self.items)
        self.usage = TokenUsage()
        self.result: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.parts: asyncio.Queue[TextPart | Refusal] | None = asyncio.Queue() if streamed else None
        self.timers: list[asyncio.TimerHandle] = []
        self.arrived = asyncio.get_running_loop().time()

    @property
    def waits(self) -> bool:
        """Whether no worker has any of its items yet."""
        return self.next == 0

    @property
    def left_to_send(self) -> int:
        """The number of items that no worker has."""
        return len(self.items) - self.next

    @property
    def ended(self) -> bool:
        """Whether it has all its answers, or will get none."""
        return self.result.done()

    def answer(self, index: int, answer: ItemAnswer) -> None:
        """Take the answer of an item; one that is refused ends the request."""
        if self.ended:
            return
        if answer.fault:
            self.fail(ModelFailed("the model failed on this request", fix="see the log of the server"))
        elif answer.problem:
            at, field = (None, answer.field) if answer.field else (index, ITEMS)
            self.fail(BadItem(at, field, answer.problem, answer.fix))
        else:
            self.answers[index] = answer.value
            self.usage = TokenUsage(self.usage.read + answer.read, self.usage.written + answer.written)
            self.left -= 1
            if not self.left:
                self.result.set_result(self.answers)

    def fail(self, refusal: Refusal) -> None:
        """End the request without an answer."""
        if self.ended:
            return
        self.result.set_exception(refusal)
        if self.parts is not None:
            self.result.exception()  # it is raised where the parts are read
            self.parts.put_nowait(refusal)

    def close(self) -> None:
        """Stop its clocks, and drop what still comes."""
        for timer in self.timers:
            timer.cancel()
        if not self.ended:
            self.result.cancel()


def _encoded(item: Any, index: int) -> msgspec.Raw:
    """An item as msgpack, so that one that cannot be sent never reaches a batch of others."""
    try:
        return encoded(item)
    except (TypeError, ValueError, OverflowError, RecursionError):  # half of a surrogate pair, a number of 70 bits
        raise BadItem(index, ITEMS, "this value cannot be read", "give text or finite numbers") from None
