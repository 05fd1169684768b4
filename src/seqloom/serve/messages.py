"""Messages between the listener and its workers: a length and msgpack, over a pair of sockets. Nothing is pickled.

listener                                   worker
   │ ── StartWorker ─────────────────────────▶ │   loads all models
   │ ◀──────────────────────────── WorkerBegun │   with its process number
   │ ◀──────────────────────────── WorkerReady │   with those that it cannot load
   │ ── ComputeBatch ────────────────────────▶ │   items of one model and verb, of several requests
   │ ◀─────────────────────────── StillWorking │   now and then, during a long batch
   │ ◀─────────────────────────── BatchAnswers │   one for each item
   │ ── CancelBatch ─────────────────────────▶ │
   │ ── ContinuePrompt ──────────────────────▶ │   a row of continuous batching
   │ ◀───────────────────────── PromptProgress │   after each step, for all rows that have something new
   │ ── CancelPrompt ────────────────────────▶ │
   │ ── StageModel ──────────────────────────▶ │   loads a model beside the old one and tries it
   │ ◀─────────────────────────── StillWorking │   at once
   │ ◀──────────── ModelStaged or ModelRefused │
   │ ── SwapModel or DiscardModel ───────────▶ │
"""

from typing import Any, Literal, NamedTuple, get_args

import msgspec

Verb = Literal["classify", "regress", "tag", "fill", "translate", "generate", "embed", "search"]
VERBS: tuple[Verb, ...] = get_args(Verb)
ItemField = Literal["texts", "inputs"]  # of a request: what a model reads, if it is texts, and if it is anything else
LENGTH = 4  # bytes before each message: its length, the highest byte first


class ModelCard(msgspec.Struct, frozen=True):
    """What clients may know about a served model; all fields are plain values."""

    name: str
    task: str  # classify, regress, tag, lm, masked, translate, embed, or search for an index
    abilities: frozenset[Verb]
    input: str  # the kind of an item: text, pair, triple, words, vectors, picture, graph
    field: ItemField = "texts"  # of requests, that holds the items
    labels: tuple[str, ...] = ()
    max_length: int | None = None  # tokens or steps that are read of an item; longer ones are truncated
    positions: int | None = None  # tokens or steps that the model can read at most; longer ones are refused
    vector_size: int | None = None  # of embeddings; of an index, None if it is searched by words only
    parameters: int = 0
    fingerprint: str = ""  # sha256 over the checksums of the folder's files
    loaded_at: float = 0.0  # seconds since 1970


class TokenUsage(NamedTuple):
    """How many tokens a model has read and generated for a request."""

    read: int = 0
    written: int = 0


class TextPart(NamedTuple):
    """A further part of a generated text. The last one has a finish reason (end, stop or length), and may be empty."""

    text: str
    finish_reason: str | None = None
    usage: TokenUsage = TokenUsage()  # of the last part


class StartWorker(msgspec.Struct, frozen=True, tag=True):
    """The first message: what to load, and where."""

    number: int  # of the worker, from 0
    threads: int
    device: str
    models: dict[str, str]  # paths of folders by name
    max_tokens: int  # that a model reads of an item


class ComputeBatch(msgspec.Struct, frozen=True, tag=True):
    """Items to answer together."""

    id: int
    model: str
    verb: Verb
    items: list[Any]
    options: dict[str, Any]


class CancelBatch(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for this batch any more; it is answered, but with nothing."""

    id: int


class ContinuePrompt(msgspec.Struct, frozen=True, tag=True):
    """A prompt to continue with others; `number` is its index in the request, for its random numbers."""

    id: int
    model: str
    prompt: Any
    number: int
    options: dict[str, Any]
    streamed: bool


class CancelPrompt(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for this prompt any more."""

    id: int


class StageModel(msgspec.Struct, frozen=True, tag=True):
    """Load a model of which there is a new version, beside the old one; `number` names the version."""

    number: int
    name: str
    path: str


class SwapModel(msgspec.Struct, frozen=True, tag=True):
    """Use the staged model for everything that comes next."""

    number: int


class DiscardModel(msgspec.Struct, frozen=True, tag=True):
    """Forget the staged model."""

    number: int


class WorkerBegun(msgspec.Struct, frozen=True, tag=True):
    """The process is there and begins to load the models."""

    pid: int


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """All models are loaded, except those in `refused` (name: problem)."""

    pid: int
    cards: dict[str, ModelCard]
    refused: dict[str, tuple[str, str]] = {}


class ItemAnswer(msgspec.Struct, frozen=True):
    """The value of an item, or why there is none: a problem and its fix, or a fault of ours with its place.

    Problems are fixed sentences: no text of a request is in them. `field` is the option that cannot be used, if it is
    not the item.
    """

    value: Any = None
    problem: str = ""
    fix: str = ""
    field: str = ""
    fault: str = ""
    read: int = 0  # tokens of the item that the model has read, for `embed` and prompts
    written: int = 0  # tokens that it has generated, in all texts of a prompt

    @property
    def served(self) -> bool:
        """Whether there is a value."""
        return not self.problem and not self.fault


class StillWorking(msgspec.Struct, frozen=True, tag=True):
    """The worker computes a long batch, or has begun to load a model; it does not hang."""


class BatchAnswers(msgspec.Struct, frozen=True, tag=True):
    """The answers of a batch, in the order of its items."""

    id: int
    answers: list[ItemAnswer]
    seconds: float


class PromptNews(msgspec.Struct, frozen=True):
    """A further part of a text that is streamed, or the answer of a prompt that is finished."""

    id: int
    text: str = ""
    answer: ItemAnswer | None = None
    finish_reason: str | None = None


class PromptProgress(msgspec.Struct, frozen=True, tag=True):
    """What happened in a step of continuous batching."""

    news: list[PromptNews]
    rows: int
    seconds: float


class ModelStaged(msgspec.Struct, frozen=True, tag=True):
    """The new version of a model is loaded and has answered."""

    number: int
    card: ModelCard


class ModelRefused(msgspec.Struct, frozen=True, tag=True):
    """The new version of a model is broken; the old one stays."""

    number: int
    problem: str
    fix: str


ToWorker = (
    StartWorker | ComputeBatch | CancelBatch | ContinuePrompt | CancelPrompt | StageModel | SwapModel | DiscardModel
)
FromWorker = WorkerBegun | WorkerReady | StillWorking | BatchAnswers | PromptProgress | ModelStaged | ModelRefused
_encoder = msgspec.msgpack.Encoder()
to_worker = msgspec.msgpack.Decoder(ToWorker)
from_worker = msgspec.msgpack.Decoder(FromWorker)


def encoded(value: Any) -> msgspec.Raw:
    """A value as it is written in messages, so that one that cannot be sent never reaches a message with others."""
    return msgspec.Raw(_encoder.encode(value))


def framed(message: ToWorker | FromWorker) -> bytes:
    """The bytes of a message, with its length before them."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH, "big") + body
