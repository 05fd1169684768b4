"""A model or an index in a worker: what it can do, and its answers as plain data."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from seqloom.bundle import identity_of
from seqloom.config.decoding import decoding
from seqloom.decoding.continuous import ContinuousBatch, ContinuousRow
from seqloom.decoding.pauses import pause
from seqloom.errors import ConfigError, DataError, RejectedError, SeqloomError
from seqloom.files.folders import read_manifest
from seqloom.inference.model import LoadedModel, load
from seqloom.nn.models import count_parameters
from seqloom.search.build import open_store
from seqloom.search.search import searcher
from seqloom.search.store import conditions, require_columns
from seqloom.serve.messages import ItemAnswer, ModelCard, Verb, encoded
from seqloom.serve.refusals import place_of
from seqloom.serve.watch import PARTS, is_index
from seqloom.tasks.task import Continuer, Task, Translator, Vectorizer
from seqloom.text.segmenter import require_whole

TOO_LONG = "the input is longer than the model can read", "shorten it; the model has `positions` in the list of models"
TOO_MANY = "the input has more tokens or steps than the server lets a model read", "send it in parts"
NO_TEXT = "expected text", "give a string"
UNABLE = "the model cannot use this", "give what it was trained on: `input` in the list of models says what"
NUMBERS = "expected finite numbers, in lists of the shape that the model was trained on", "check numbers and lists"
PROBLEMS = {  # what is said about an item, by the code of its problem: a message with its text is never passed on
    "row.empty_text": ("the text is empty", "leave it out"),
    "type.text": ("expected text, or a list of several texts for a model that reads several", "give strings"),
    "type.tokens": ("expected a list of words", "give a list of strings that are not empty"),
    "type.number": NUMBERS,
    "array.nonfinite": NUMBERS,
    "array.shape": NUMBERS,
    "array.width": NUMBERS,
    "seq.too_long": TOO_LONG,
}
BY_TASK: dict[str, Verb] = {
    "classify": "classify",
    "regress": "regress",
    "tag": "tag",
    "masked": "fill",
}  # by `predict`


class UnusableError(SeqloomError):
    """An item or an option that cannot be used, in a fixed sentence; `field` names the option."""

    def __init__(self, problem: str, fix: str, *, field: str = "") -> None:
        super().__init__(problem, fix=fix)
        self.field = field


class DeviceLost(BaseException):  # no error of a batch: nothing may catch it and go on
    """The GPU has failed, and everything that this process asks of it will fail too: the worker must end."""


class ServedModel:
    """A trained model with the verbs of its task. It reads at most `max_tokens` of an item; more is refused."""

    def __init__(self, name: str, path: Path, device: str, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.model: LoadedModel = load(path, device=device)
        self.running: ContinuousBatch | None = None  # the prompts that are continued
        task, kind = self.model.task, self.model.task.input_spec.schema.input
        self.card = ModelCard(
            name=name,
            task=task.name,
            abilities=frozenset(abilities_of(task)),
            input=kind.name,
            field="texts" if kind.reads_tokens and not kind.has_edges else "inputs",
            labels=tuple(self.model.spec.schema.labels),
            max_length=self.model.max_length,
            positions=self.model.positions,
            vector_size=self.model.vector_size if isinstance(task, Vectorizer) else None,
            parameters=count_parameters(self.model.model),
            fingerprint=identity_of(self.model.path),
            loaded_at=time.time(),
        )

    def check(self) -> None:
        """Raise an error if the model cannot answer one small item."""
        sample = self._sample()
        for verb in sorted(self.card.abilities) if sample is not None else ():
            options = {"max_new_tokens": 1} if verb in ("generate", "translate") else {}
            self.compute(verb, [sample], options)

    def _sample(self) -> Any:
        """A small input; None for kinds that cannot be made up."""
        kind, sizes = self.model.task.input_spec.schema.input, self.model.spec.sizes
        if kind.of_numbers or kind.fixed_size:
            return np.zeros(sizes if kind.fixed_size else (1, *sizes)).tolist()
        if self.model.spec.tokenizer is None or kind.has_edges:
            return None
        return ["a"] if kind.in_words else "a" if kind.num_columns == 1 else ["a"] * kind.num_columns

    def require_usable(self, verb: Verb, item: Any) -> None:
        """Raise the error that `compute` would raise for this item, as far as nothing must be computed."""
        self._require_short([item])
        if verb == "generate":
            self._require_texts([item])
        self.model.require_readable([item])

    def compute(self, verb: Verb, items: Sequence[Any], options: Mapping[str, Any]) -> list[ItemAnswer]:
        """The answers of items, in order; SeqloomError for one that the model cannot use."""
        self._require_short(items)
        if verb == "embed":
            found = zip(self.model.embed(items), self.model.count_tokens(items), strict=True)
            return [ItemAnswer({"vector": row.tolist()}, read=tokens) for row, tokens in found]
        if verb in ("generate", "translate"):
            return [ItemAnswer(one) for one in self._write(verb, items, options)]
        return [ItemAnswer(one.to_json()) for one in self.model.predict(items)]

    def _require_short(self, items: Sequence[Any]) -> None:
        """Refuse an item that would keep the worker busy for long; only items that may be one are counted."""
        tokenizer = self.model.spec.tokenizer
        normalized = (lambda text: text) if tokenizer is None else lambda text: tokenizer.normalized([text])[0]
        doubtful = [item for item in items if most_tokens(item, normalized) > self.max_tokens]
        if doubtful and max(self.model.count_tokens(doubtful)) > self.max_tokens:
            raise UnusableError(*TOO_MANY)

    def _require_texts(self, items: Sequence[Any]) -> None:
        if not all(isinstance(item, str) for item in items):
            raise UnusableError(*NO_TEXT)

    def _write(self, verb: Verb, items: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
        if verb == "generate":
            self._require_texts(items)
        try:
            if verb == "translate":
                return [one.to_json() for one in self.model.translate(items, **options)]
            return [[one.to_json() for one in some] for some in self.model.generate(items, **options)]
        except ConfigError:  # the settings are valid, and the items are texts
            fix = "leave out those that need attention to a source: coverage_penalty, replace_unknown"
            raise UnusableError("the model does not support these options", fix, field="options") from None

    def rows(self, prompt: Any, number: int, options: Mapping[str, Any]) -> list[ContinuousRow]:
        """The rows that continue a prompt, added to the running batch."""
        task = Continuer.of(self.model.task).writing(decoding(options))
        if not isinstance(prompt, str):
            raise UnusableError(*NO_TEXT)
        require_whole(prompt, "the prompt")
        self._require_short([prompt])
        try:
            rows = task.rows(self.model.model, prompt, number)
        except DataError:
            raise UnusableError(*TOO_LONG) from None
        if self.running is None:
            self.running = ContinuousBatch(self.model.model)  # type: ignore[arg-type]  # a Continuer has a LanguageModel
        self.running.add(rows)
        return rows

    def written(self, rows: Sequence[ContinuousRow]) -> ItemAnswer:
        """The continuations of a prompt whose rows are finished."""
        task, drafts = Continuer.of(self.model.task), [row.draft for row in rows]
        tokens = sum(len(one.tokens) + (one.finish_reason == "end") for one in drafts)  # the end is a token too
        return ItemAnswer(
            [task.continuation(row).to_json() for row in rows], read=len(drafts[0].before), written=tokens
        )


class ServedIndex:
    """An index of documents."""

    running = None

    def __init__(self, name: str, path: Path, device: str) -> None:
        store = open_store(path)
        self.searcher = searcher(store, device=device)
        names = sorted(entry for entry in path.iterdir() if entry.name.startswith(PARTS))
        sums = [read_manifest(entry).check for entry in names]
        fingerprint = hashlib.sha256(msgspec.json.encode(sums)).hexdigest()
        able: frozenset[Verb] = frozenset(("search",))
        assert store.settings is not None, "an open index has settings"
        self.card = ModelCard(
            name,
            "search",
            able,
            "text",
            vector_size=None if self.searcher.model is None else store.settings.width,
            fingerprint=fingerprint,
            loaded_at=time.time(),
        )

    def check(self) -> None:
        """Raise an error if the index cannot answer a query."""
        self.compute("search", ["a"], {"top_k": 1})

    def require_usable(self, verb: Verb, item: Any) -> None:
        """Raise the error that `compute` would raise for this query."""
        if not isinstance(item, str):
            raise UnusableError(*NO_TEXT)
        if not item.strip():
            raise UnusableError(*PROBLEMS["row.empty_text"])

    def compute(self, verb: Verb, items: Sequence[Any], options: Mapping[str, Any]) -> list[ItemAnswer]:
        """The hits of each query, best first."""
        for item in items:
            self.require_usable(verb, item)
        self._require_conditions(options.get("where", ()))
        return [self._found(item, options) for item in items]

    def _found(self, query: str, options: Mapping[str, Any]) -> ItemAnswer:
        pause()
        return ItemAnswer([hit.to_json() for hit in self.searcher.search(query, **options)])

    def _require_conditions(self, where: Sequence[str]) -> None:
        try:
            asked = conditions(where)
        except ConfigError as error:
            raise UnusableError("this is not a condition", error.fix, field="where") from None
        try:
            require_columns(asked, self.searcher.store.columns)
        except ConfigError as error:  # its fix names columns of the documents
            raise UnusableError("no document has this column", error.fix, field="where") from None

    def rows(self, prompt: Any, number: int, options: Mapping[str, Any]) -> list[ContinuousRow]:
        raise ConfigError("an index generates no text", fix="search in it")

    def written(self, rows: Sequence[ContinuousRow]) -> ItemAnswer:
        raise AssertionError("an index has no rows")


AnyServed = ServedModel | ServedIndex


def most_tokens(item: Any, normalized: Callable[[str], str] = str) -> int:
    """More tokens or steps than an item has, found without encoding: a token has at least a byte of normalized text.

    >>> most_tokens("a b"), most_tokens(["some", "words"]), most_tokens([[0.5], [1.0]])
    (3, 9, 2)
    """
    if isinstance(item, str):
        return len(normalized(item).encode(errors="replace"))
    if isinstance(item, dict):
        return sum(most_tokens(value, normalized) for value in item.values())
    texts = [one for one in item if isinstance(one, str)] if isinstance(item, list) else []
    return sum(most_tokens(text, normalized) for text in texts) if texts else len(item) if isinstance(item, list) else 1


def open_served(name: str, path: str, device: str, max_tokens: int) -> AnyServed:
    """Load a model or an index and let it answer once; SeqloomError if it is broken."""
    place = Path(path)
    served = ServedIndex(name, place, device) if is_index(place) else ServedModel(name, place, device, max_tokens)
    if not served.card.abilities:
        raise ConfigError(f"a model of the task {served.card.task} cannot be served", fix="use `seqloom predict`")
    served.check()
    return served


def abilities_of(task: Task) -> Iterator[Verb]:
    """What a model of this task can be asked for."""
    yield from (verb for name, verb in BY_TASK.items() if name == task.name)
    if isinstance(task, Translator):
        yield "translate"
    if isinstance(task, Continuer):
        yield "generate"
    if isinstance(task, Vectorizer):
        yield "embed"


def answers_of(
    compute: Callable[[Sequence[Any]], list[ItemAnswer]], items: Sequence[Any], require: Callable[[Any], None]
) -> list[ItemAnswer]:
    """The answers of a batch. If it fails, only the bad items have none: `require` raises an error for one of them.

    The others are computed together again; only if that fails, each is tried alone.
    """
    try:
        return [sendable(answer) for answer in compute(items)]
    except Exception as error:
        require_device(error)
        if len(items) == 1:
            return [refused(error)]
    problems = [_problem_of(item, require) for item in items]
    good = [item for item, problem in zip(items, problems, strict=True) if problem is None]
    if len(good) == len(items):
        return [answer for item in items for answer in answers_of(compute, [item], require)]
    answers = iter(answers_of(compute, good, require) if good else [])
    return [next(answers) if problem is None else problem for problem in problems]


def _problem_of(item: Any, require: Callable[[Any], None]) -> ItemAnswer | None:
    try:
        require(item)
    except Exception as error:
        return refused(error)
    return None


def sendable(answer: ItemAnswer) -> ItemAnswer:
    """The same answer with an encoded value; a fault for a value that cannot be sent, such as a number of 70 bits."""
    try:
        return msgspec.structs.replace(answer, value=encoded(answer.value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return refused(error)


def require_device(error: Exception) -> None:
    """Raise DeviceLost if an error says that the GPU is lost to this process, as after an illegal access to memory."""
    is_full = isinstance(error, torch.OutOfMemoryError)  # others still fit
    told = isinstance(error, torch.AcceleratorError) or (isinstance(error, RuntimeError) and "CUDA error" in str(error))
    if told and not is_full:
        raise DeviceLost(place_of(error)) from error


def refused(error: Exception) -> ItemAnswer:
    """Why an item has no answer, in fixed sentences: the message of an error may hold the item itself."""
    if isinstance(error, UnusableError):
        return ItemAnswer(problem=error.problem, fix=error.fix, field=error.field)
    if isinstance(error, SeqloomError):
        codes = error.codes if isinstance(error, RejectedError) else ()
        problem, fix = next((PROBLEMS[code] for code in codes if code in PROBLEMS), UNABLE)
        return ItemAnswer(problem=problem, fix=fix)
    return ItemAnswer(fault=place_of(error))
