"""The fields of answers, typed, for the OpenAPI document: what models put out, and the forms of OpenAI."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from seqloom.serve.messages import ItemField, Verb

Finish = Literal["end", "stop", "length"]


class LabelOutput(msgspec.Struct):
    """The likeliest label; `labels` instead for models that give several."""

    scores: dict[str, float]
    label: str | UnsetType = UNSET
    labels: list[str] | UnsetType = UNSET


class NumbersOutput(msgspec.Struct):
    """Numbers; `series` instead, a list for each step, for models that give numbers for each step."""

    numbers: list[float] | UnsetType = UNSET
    series: list[list[float]] | UnsetType = UNSET


class TaggedWord(msgspec.Struct):
    """A word, and its offsets in characters."""

    text: str
    start: int
    end: int


class TagsOutput(msgspec.Struct):
    """A tag for each word or step; words and entities if they are known."""

    tags: list[str]
    words: list[TaggedWord] | UnsetType = UNSET
    entities: list[dict[str, Any]] | UnsetType = UNSET


class MaskToken(msgspec.Struct):
    """A token for a mask."""

    text: str
    probability: float


class FilledOutput(msgspec.Struct):
    """The text with all masks filled, and the likeliest tokens for each."""

    text: str
    masks: list[list[MaskToken]]


class TranslatedText(msgspec.Struct):
    """One of several translations."""

    text: str
    score: float | UnsetType = UNSET


class TranslationOutput(msgspec.Struct):
    """The best translation; the others with n_best."""

    text: str
    score: float | UnsetType = UNSET
    alternatives: list[TranslatedText] | UnsetType = UNSET


class ContinuedText(msgspec.Struct):
    """A continuation of a prompt."""

    text: str
    score: float
    finish_reason: Finish


class VectorOutput(msgspec.Struct):
    """The vector of an item."""

    vector: list[float]


class FoundDocument(msgspec.Struct):
    """A document that matches a query."""

    id: Any
    score: float
    cosine: float | None
    passage: str
    sentence: str
    columns: dict[str, Any]


OUTPUTS: dict[Verb, Any] = {
    "classify": LabelOutput,
    "regress": NumbersOutput,
    "tag": TagsOutput,
    "fill": FilledOutput,
    "translate": TranslationOutput,
    "generate": list[ContinuedText],
    "embed": VectorOutput,
    "search": list[FoundDocument],
}


def answer_kind(verb: Verb) -> type[msgspec.Struct]:
    """The record of the answers of a verb: the model, and an output for each item, in order."""
    return _answers(f"{verb.title()}Answer", OUTPUTS[verb])


def _answers(name: str, output: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, [("model", str), ("outputs", list[output])])


class CompletionUsage(msgspec.Struct):
    """Tokens that were read and generated."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionChoice(msgspec.Struct):
    """A text."""

    index: int
    text: str
    logprobs: None
    finish_reason: Literal["stop", "length"] | None


class CompletionAnswer(msgspec.Struct):
    """Completions in the form of OpenAI; in a stream each event has one choice."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class EmbeddingUsage(msgspec.Struct):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingItem(msgspec.Struct):
    """The vector of a text; as text if base64 was asked."""

    object: str
    index: int
    embedding: list[float] | str


class EmbeddingAnswer(msgspec.Struct):
    """Vectors in the form of OpenAI."""

    object: str
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage


class DescribedModel(msgspec.Struct):
    """What clients may know about a model; with the fields that clients of OpenAI expect."""

    id: str
    object: str
    created: int
    owned_by: str
    name: str
    task: str
    abilities: list[str]
    input: str
    field: ItemField
    labels: list[str]
    max_length: int | None
    positions: int | None
    vector_size: int | None
    parameters: int
    fingerprint: str
    loaded_at: float
    limits: dict[str, float]


class ModelsAnswer(msgspec.Struct):
    """All models."""

    object: str
    data: list[DescribedModel]
    limits: dict[str, float]
