"""The engine of the server: a bounded queue of requests, and worker processes that answer them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, get_args

import msgspec

from seqloom.config.serving import ServingConfig

Verb = Literal["classify", "regress", "tag", "translate", "generate", "embed", "search"]
VERBS: tuple[Verb, ...] = get_args(Verb)


class ModelCard(msgspec.Struct, frozen=True):
    """What clients may know about a served model; all fields are plain values."""

    name: str
    task: str  # classify, regress, tag, lm, masked, translate, embed, or search for an index
    abilities: frozenset[Verb]
    input: str  # the kind of an item: text, pair, triple, words, vectors, picture, graph
    labels: tuple[str, ...] = ()
    max_length: int | None = None  # tokens or steps that are read of an item; longer ones are truncated
    positions: int | None = None  # tokens or steps that the model can read at most; longer ones are refused
    vector_size: int | None = None  # of embeddings
    parameters: int = 0
    fingerprint: str = ""  # sha256 over the checksums of the folder's files
    loaded_at: float = 0.0  # seconds since 1970


class TextPart(NamedTuple):
    """A further part of a generated text. The last one has a finish reason (end, stop or length), and may be empty."""

    text: str
    finish_reason: str | None = None


class Engine:
    """The models and their workers; an async context manager that lives in one event loop.

    It never imports torch: a request can end a worker, but not this process.

        async with Engine({"reviews": Path("runs/reviews")}, ServingConfig()) as engine:
            await engine.ask("reviews", "classify", ["a fine film"])
    """

    def __init__(self, models: Mapping[str, Path], config: ServingConfig) -> None:
        """Serve run folders, model folders and index folders by name."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Start the workers and return when all models are loaded; SeqloomError for one that cannot be loaded."""
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers, at once; call `drain` before for a graceful stop."""
        raise NotImplementedError

    @property
    def models(self) -> Mapping[str, ModelCard]:
        """The card of each model, by name; a new one after a hot swap."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether at least one worker has loaded the models and the engine is not stopping."""
        raise NotImplementedError

    @property
    def counters(self) -> Mapping[str, float]:
        """Numbers for monitoring, all plain; names that end in `_total` only grow.

        requests_total, items_total, batches_total, batch_items_total, tokens_total, refused_total, seconds_in_model,
        seconds_in_queue, worker_restarts_total, swaps_total, refused_swaps_total, waiting, running, workers_ready,
        workers.
        """
        raise NotImplementedError

    async def ask(
        self, model: str, verb: Verb, items: Sequence[Any], options: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Answer the items in order, each with the plain JSON value that `seqloom predict` would write.

        Args:
            model: its name.
            verb: one of its abilities.
            items: texts; or pairs of texts, lists of words or lists of numbers, as the model reads them.
            options: of `translate` and `generate` the settings of decoding (max_new_tokens, stop, temperature, top_k,
                top_p, min_p, num_samples, seed, beam_size, n_best, ...; translate also `replace_unknown`); of
                `search` top_k and where. None and values of None mean defaults.

        Returns:
            classify, regress, tag, translate, embed: the object of `Prediction.to_json` for each item. generate: for
            each item the list of its continuations {text, score, finish_reason}. search: for each item the list of its
            hits.

        Raises a `Refusal`. A cancelled call leaves the queue; its result is dropped.
        """
        raise NotImplementedError

    def stream(self, model: str, prompt: str, options: Mapping[str, Any] | None = None) -> AsyncIterator[TextPart]:
        """Continue a prompt, and yield the text as it is generated; joined, it is the text that `ask` gives.

        Options are those of `generate`, without beams and several samples. UnknownModel, Unable, BadItem (of options)
        and Draining are raised by the call; other refusals by the first `anext` or later ones. Closing the generator
        (`aclose`, or cancelling the task that reads it) ends the work in the worker within a step.
        """
        raise NotImplementedError

    async def drain(self, seconds: float) -> None:
        """Stop gracefully: accept nothing more, and wait until running requests have ended, or this many seconds."""
        raise NotImplementedError
