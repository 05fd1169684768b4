"""The fields of requests and answers, typed. The checks of requests and the OpenAPI document both come from here.

Records are made from the settings of the server, because its limits are part of them; ranges and descriptions of
decoding are those of `config/decoding.py`.
"""

from itertools import chain
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from seqloom.config.decoding import BeamConfig, SampleConfig
from seqloom.config.options import own
from seqloom.config.serving import MAX_HITS, ServingConfig
from seqloom.serve.answers import bad_value
from seqloom.serve.bodies import of_type
from seqloom.serve.calls import DECODING_OPTIONS, SAMPLING
from seqloom.serve.messages import VERBS, ItemField, Verb

MAX_STOPS, MAX_STOP_LENGTH, MAX_CONDITIONS = 16, 256, 16
MAX_TEMPERATURE = 1_000.0
DESCRIBED = {one.name: one for kind in (SampleConfig, BeamConfig) for one in own(kind) if one.name in DECODING_OPTIONS}
ModelName = Annotated[str, Meta(min_length=1, max_length=64, description="Name of the model, as in /v1/models.")]
OneModel = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        description="Name of the model, as in /v1/models. Can be left out if only one model can do this.",
    ),
]
Field = tuple[str, Any] | tuple[str, Any, Any]
TEXTS, INPUTS = get_args(ItemField)
ONLY_TEXTS: tuple[Verb, ...] = ("fill", "generate", "search")
NO_OPTIONS = ("model", TEXTS, INPUTS)


class VerbAnswer(msgspec.Struct):
    """The outputs of a model, one for each item, in order."""

    model: str
    outputs: list[Any]


class HealthAnswer(msgspec.Struct, forbid_unknown_fields=True):
    """Whether the server can answer."""

    status: str


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a stream of OpenAI."""

    include_usage: bool = False


class ErrorFields(msgspec.Struct, omit_defaults=True):
    """Why a request was refused."""

    code: Annotated[str, Meta(description="For programs; it does not change.")]
    message: Annotated[str, Meta(description="What was asked, what was found, what to do.")]
    field: str | None = None


class ErrorAnswer(msgspec.Struct):
    """A refused request."""

    error: ErrorFields


class OpenAIErrorFields(msgspec.Struct):
    """Why a request was refused, in the form that clients of OpenAI read."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorAnswer(msgspec.Struct):
    """A refused request."""

    error: OpenAIErrorFields


def request_kinds(config: ServingConfig) -> dict[Verb, type[msgspec.Struct]]:
    """The record of each verb's requests, with the limits of this server.

    >>> kinds = request_kinds(ServingConfig())
    >>> msgspec.structs.fields(kinds["search"])[1].name
    'texts'
    """
    decoding = _decoding(config)
    options: dict[Verb, list[Field]] = {
        "generate": [one for one in decoding if one[0] != "coverage_penalty"],
        "translate": [
            *(one for one in decoding if one[0] not in SAMPLING),  # a translation is searched
            _optional("replace_unknown", bool, "Copy unknown words from the source."),
        ],
        "search": [
            _optional("top_k", Annotated[int, Meta(ge=1, le=MAX_HITS)], "Number of documents to return."),
            _optional("where", _texts(MAX_CONDITIONS), 'Filters such as "year>=2000" or "lang=en".'),
        ],
    }
    return {verb: _record(f"{verb.title()}Request", [*_asked(config, verb), *options.get(verb, [])]) for verb in VERBS}


def _asked(config: ServingConfig, verb: Verb) -> list[Field]:
    """The model and what it reads. Verbs that all models of numbers, pictures or graphs lack have only texts."""
    text = Annotated[str, Meta(max_length=config.max_characters)]
    texts = _several(text | list[text], config.max_items, "Texts; or pairs of texts or lists of words, as in training.")
    model: Field = "model", OneModel | UnsetType, UNSET
    if verb in ONLY_TEXTS:
        return [model, (TEXTS, texts)]
    described = "Instead of texts, for models of other inputs: lists of numbers, or graphs with nodes and edges."
    inputs = _several(text | list[Any] | dict[str, Any], config.max_items, described)
    return [model, (TEXTS, texts | UnsetType, UNSET), (INPUTS, inputs | UnsetType, UNSET)]


def _several(kind: Any, most: int, description: str) -> Any:
    return Annotated[list[kind], Meta(min_length=1, max_length=most, description=description)]


def _decoding(config: ServingConfig) -> list[Field]:
    """The options of decoding: those of the configuration, some with a limit of the server."""
    tokens = Annotated[int, Meta(ge=1, le=config.max_new_tokens)]
    samples = Annotated[int, Meta(ge=1, le=config.max_samples)]
    limited = {"max_new_tokens": tokens, "num_samples": samples, "beam_size": samples, "n_best": samples}
    limited["stop"] = _texts(MAX_STOPS)
    return [_optional(name, limited.get(name, one.annotation), one.help) for name, one in DESCRIBED.items()]


def _texts(count: int) -> Any:
    return Annotated[list[Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]], Meta(max_length=count)]


def _optional(name: str, kind: Any, description: str) -> Field:
    return name, Annotated[kind, Meta(description=description)] | UnsetType, UNSET


def _record(name: str, fields: list[Field]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def completion_kind(config: ServingConfig) -> type[msgspec.Struct]:
    """The record of POST /v1/completions: the fields of OpenAI, as far as models of Seqloom have them."""
    text = Annotated[str, Meta(max_length=config.max_characters)]
    prompts = Annotated[list[text], Meta(min_length=1, max_length=config.max_items)]
    none, zero = "Not supported: leave it out, or null.", Annotated[float, Meta(ge=0.0, le=0.0)]
    tokens = Annotated[int, Meta(ge=1, le=config.max_new_tokens)]
    temperature = Annotated[float, Meta(ge=0.0, le=MAX_TEMPERATURE)]
    named = {
        "max_tokens": (tokens, "Most tokens to generate (default: 16)."),
        "temperature": (temperature, "Sample with this temperature; 0 is greedy (default: 1)."),
        "top_p": (Annotated[float, Meta(ge=0.0, le=1.0)], DESCRIBED["top_p"].help),
        "top_k": (DESCRIBED["top_k"].annotation, DESCRIBED["top_k"].help),
        "n": (Annotated[int, Meta(ge=1, le=config.max_samples)], "Number of texts for each prompt (default: 1)."),
        "seed": (DESCRIBED["seed"].annotation, "Random seed (default: another one for each request)."),
        "stop": (Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)] | _texts(MAX_STOPS), "Stop texts."),
        "stream": (bool, "Send the text as server-sent events while it is generated; for one prompt and n of 1."),
        "stream_options": (StreamOptions, "Of a stream: include_usage adds an event with the numbers of tokens."),
        "echo": (bool, "Begin each text with its prompt."),
        "user": (Annotated[str, Meta(max_length=256)], "Ignored."),
        "best_of": (Annotated[int, Meta(ge=1, le=1)], "Only 1 is supported."),
        "frequency_penalty": (zero, "Only 0 is supported."),
        "presence_penalty": (zero, "Only 0 is supported."),
    }
    fields: list[Field] = [("model", ModelName), ("prompt", text | prompts)]
    fields += [(name, Annotated[kind | None, Meta(description=text)], None) for name, (kind, text) in named.items()]
    fields += [(name, Annotated[None, Meta(description=none)], None) for name in ("logprobs", "logit_bias", "suffix")]
    return _record("CompletionRequest", fields)


def embedding_kind(config: ServingConfig) -> type[msgspec.Struct]:
    """The record of POST /v1/embeddings."""
    text = Annotated[str, Meta(max_length=config.max_characters)]
    texts = Annotated[list[text], Meta(min_length=1, max_length=config.max_embedding_items)]
    formats = Annotated[Literal["float", "base64"] | None, Meta(description="Form of the vectors (default: float).")]
    size = Annotated[int, Meta(ge=1, le=2**20)]
    sizes = Annotated[size | None, Meta(description="Only the size of the model's vectors.")]
    return _record(
        "EmbeddingRequest",
        [
            ("model", ModelName),
            ("input", text | texts),
            ("encoding_format", formats, None),
            ("dimensions", sizes, None),
            ("user", Annotated[str, Meta(max_length=256)] | None, None),
        ],
    )


def options_of(request: msgspec.Struct) -> dict[str, Any]:
    """The options of a verb's request that were given."""
    given = msgspec.structs.asdict(request)
    return {name: value for name, value in given.items() if name not in NO_OPTIONS and value is not UNSET}


def items_of(request: Any) -> tuple[ItemField, list[Any]]:
    """The field of a verb's request that holds its items, and the items; HttpRefusal unless there is one such field."""
    texts, inputs = request.texts, getattr(request, INPUTS, UNSET)
    if texts is not UNSET and inputs is not UNSET:
        raise bad_value(INPUTS, "the body has both texts and inputs", "send one of them")
    if texts is UNSET and inputs is UNSET:
        raise bad_value(TEXTS, "the field texts is missing", "add it; models that read no text have inputs instead")
    return ("texts", texts) if inputs is UNSET else ("inputs", inputs)


def require_short(items: list[Any], field: str, most: int) -> None:
    """Raise HttpRefusal for an item of several texts or numbers that is too long.

    A number counts as a character, and so does an empty text, list or object: it has its cost too.
    """
    for index, item in enumerate(items):
        if not isinstance(item, str) and (size := _size(item)) > most:
            place = f"{field}[{index}]"
            raise bad_value(place, f"{place} has {size:,} characters; the limit is {most:,}", "send less at a time")


def _size(item: Any) -> int:
    """Count level by level, without recursion: an item can have half a million numbers."""
    size, level = 0, [item]
    while level:
        texts, arrays, objects = (of_type(level, kind) for kind in (str, list, dict))
        size += sum(map(len, texts)) + len(level) - len(texts) - len(arrays) - len(objects)
        size += texts.count("") + arrays.count([]) + objects.count({})
        level = list(chain.from_iterable(chain(arrays, objects, map(dict.values, objects))))
    return size
