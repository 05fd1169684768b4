"""Import of an encoder with the BERT architecture (Devlin et al. 2019): its weights under Seqloom's names.

    BERT                                                Seqloom
    embeddings.word_embeddings                          encoder.input.table, rows in Seqloom's token order
    embeddings.position_embeddings, token_type[0]       encoder.entry.0.table: every text has type 0, so its vector is
                                                        added to all positions
    embeddings.LayerNorm                                encoder.entry.1.module
    encoder.layer.N.attention.self.query, key, value    encoder.layers.N.mixer.heads.query, key, value
    encoder.layer.N.attention.output.dense              encoder.layers.N.mixer.heads.output
    encoder.layer.N.attention.output.LayerNorm          encoder.layers.N.around.norm
    encoder.layer.N.intermediate.dense, output.dense    encoder.layers.N.feed_forward.inward, outward
    encoder.layer.N.output.LayerNorm                    encoder.layers.N.around_feed_forward.norm

Pretraining heads (pooler, cls, classifier) are left out: sentence vectors do not depend on them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from seqloom.bundle import Bundle
from seqloom.config.base import MAX_WIDTH, located, quoted
from seqloom.config.heads import Pooling, VectorHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig
from seqloom.config.models import EmbedderConfig
from seqloom.config.stacks import MAX_LAYERS, Activation, BlockConfig, EncoderConfig, FeedForwardConfig
from seqloom.config.tokenizers import WordpieceConfig
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DataError
from seqloom.files.tensors import Slot
from seqloom.importing.checkpoint import WeightsFile, read_json, read_object
from seqloom.tasks.task import ModelSpec
from seqloom.text.special_tokens import BEGIN, COUNT, END, MASK, PAD, SEPARATOR, UNKNOWN
from seqloom.text.subwords import INSIDE, WordpieceData, WordpieceSegmenter
from seqloom.text.tokenizer import Tokenizer

# How a checkpoint computes the vector of a text: pooling, normalization, and the maximum length.
#
#     modules.json                  Transformer, Pooling, Normalize: the order of the modules, and their folders
#     1_Pooling/config.json         mean, max, first or last token
#     sentence_bert_config.json     the maximum number of tokens
#
# A checkpoint without these files is only an encoder: mean pooling and normalization are used.

POOLINGS: dict[str, Pooling] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
SIZES = ("word_embedding_dimension", "embedding_dimension", "include_prompt")
ANOTHER = "give a checkpoint of an encoder with mean, max, first or last pooling"


class Sentences(NamedTuple):
    """How a text becomes one vector."""

    encoder: Path  # the folder
    pooling: Pooling
    unit: bool
    longest: int | None  # tokens of a text; None: not given


class _Module(msgspec.Struct, frozen=True):
    type: str
    path: str


def read_sentences(folder: Path) -> Sentences:
    """The sentence-vector settings of a checkpoint."""
    path = folder / "modules.json"
    if not path.exists():
        return Sentences(folder, "mean", unit=True, longest=_longest(folder))
    modules = read_json(path, list[_Module])
    kinds = tuple(module.type.rpartition(".")[2] for module in modules)
    if kinds not in (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize")):
        named = quoted(", ".join(kinds))
        raise ConfigError(
            f"{path}: the modules {named} are not supported, only Transformer, Pooling, Normalize", fix=ANOTHER
        )
    settings = folder / "config_sentence_transformers.json"
    if prompt := read_object(settings).get("default_prompt_name"):
        fix = "set default_prompt_name to null, and add the prompt to your texts"
        raise ConfigError(
            f"{settings}: the checkpoint adds the prompt {quoted(str(prompt))} to every text, which is not supported",
            fix=fix,
        )
    for module in modules[:2]:
        if not folder.joinpath(module.path).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{path}: {quoted(module.path)} is outside the checkpoint folder", fix="correct it")
    encoder, pooling = (folder / module.path for module in modules[:2])
    return Sentences(encoder, _pooling(pooling / "config.json"), len(kinds) == 3, _longest(encoder))


def _pooling(path: Path) -> Pooling:
    given = read_json(path, dict[str, Any])
    with located(str(path)):
        for key in given:
            if key not in (*FLAGS, *SIZES, "pooling_mode"):
                raise ConfigError(f"the setting {quoted(key)} is unknown and could change the vectors", fix=ANOTHER)
        flagged = [mode for flag, mode in FLAGS.items() if given.get(flag)]
        named = given.get("pooling_mode")
        modes = flagged if named is None else [str(named)]
        if len(modes) != 1 or modes[0] not in POOLINGS:
            raise ConfigError(f"the pooling {quoted(' and '.join(modes) or 'none')} is not supported", fix=ANOTHER)
        return POOLINGS[modes[0]]


def _longest(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    settings = read_object(path)
    if settings.get("do_lower_case"):
        raise ConfigError(
            f"{path}: do_lower_case outside the tokenizer is not supported",
            fix="set it to false, and lowercase your texts",
        )
    longest = settings.get("max_seq_length")
    if longest is None:
        longest = read_object(folder / "tokenizer_config.json").get("model_max_length")
    if longest is None or (isinstance(longest, int | float) and longest >= 2**24):  # "no limit" is written as 1e30
        return None
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 3:
        raise ConfigError(f"{path}: the maximum length is {longest!r}", fix="give an integer of at least 3")
    return longest


# tokenizer.json of BERT: the same subwords with Seqloom's ids, and the row of each in the original embedding table.
#
#     [PAD] [UNK] [CLS] [SEP] [MASK]   ──▶   PAD UNKNOWN BEGIN END MASK, the first ids of every vocabulary
#     all others, in their order       ──▶   the following ids
#
# BERT has no equivalent of SEPARATOR (between two texts); it starts with the vector of [SEP].

SPECIAL = {PAD: "[PAD]", UNKNOWN: "[UNK]", BEGIN: "[CLS]", END: "[SEP]", MASK: "[MASK]", SEPARATOR: "[SEP]"}
OTHER_FILE = "give a checkpoint with the tokenizer of BERT"


class Vocabulary(NamedTuple):
    """A tokenizer, and the row of the original embedding table for each of its tokens."""

    tokenizer: Tokenizer
    rows: np.ndarray  # [V] int64


class _Model(msgspec.Struct, frozen=True):
    type: str
    vocab: dict[str, int]
    unk_token: str = SPECIAL[UNKNOWN]
    continuing_subword_prefix: str = INSIDE
    max_input_chars_per_word: int = 100


class _Normalizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    clean_text: bool = True
    handle_chinese_chars: bool = True
    strip_accents: bool | None = None  # None: only if text is lowercased
    lowercase: bool = True


class _Step(msgspec.Struct, frozen=True):
    type: str


class _Added(msgspec.Struct, frozen=True):
    id: int
    content: str


class _File(msgspec.Struct, frozen=True):
    model: dict[str, Any]
    normalizer: dict[str, Any] | None
    pre_tokenizer: _Step | None
    post_processor: dict[str, Any] | None
    added_tokens: list[_Added] = []


def read_vocabulary(folder: Path) -> Vocabulary:
    """The tokenizer of a checkpoint; ConfigError for one that differs from that of BERT."""
    path = folder / "tokenizer.json"
    file = read_json(path, _File)
    with located(str(path)):
        model = _model(file)
        steps = [
            ("normalizer", "BertNormalizer", (file.normalizer or {}).get("type")),
            ("pre_tokenizer", "BertPreTokenizer", getattr(file.pre_tokenizer, "type", None)),
        ]
        for step, wanted, kind in steps:
            if kind != wanted:
                raise ConfigError(f"the {step} is {quoted(str(kind))}, but only {wanted} is supported", fix=OTHER_FILE)
        normalizer: _Normalizer = _converted(file.normalizer or {}, _Normalizer)
        _require_alike(normalizer, read_object(folder / "tokenizer_config.json"))
        _require_frame(file.post_processor or {}, model.vocab)
        for one in file.added_tokens:  # they are matched before anything else
            if one.content not in SPECIAL.values() or model.vocab[one.content] != one.id:
                raise ConfigError(f"the added token {quoted(one.content)} is not supported", fix=OTHER_FILE)
        lower = normalizer.lowercase
        config = WordpieceConfig(
            lowercase=lower,
            clean=normalizer.clean_text,
            chinese_apart=normalizer.handle_chinese_chars,
            accents=not (lower if normalizer.strip_accents is None else normalizer.strip_accents),
            max_word_length=model.max_input_chars_per_word,
        )
        pieces = [piece for piece in sorted(model.vocab, key=model.vocab.__getitem__) if piece not in SPECIAL.values()]
        rows = [model.vocab[SPECIAL[token]] for token in range(COUNT)] + [model.vocab[piece] for piece in pieces]
        return Vocabulary(Tokenizer(config, WordpieceSegmenter(config, WordpieceData(tuple(pieces)))), np.array(rows))


def _model(file: _File) -> _Model:
    if (kind := file.model.get("type", "WordPiece")) != "WordPiece":
        raise ConfigError(f"the tokenizer is {quoted(str(kind))}, but only WordPiece is supported", fix=OTHER_FILE)
    model: _Model = _converted({"type": "WordPiece", **file.model}, _Model)
    if model.unk_token != SPECIAL[UNKNOWN] or model.continuing_subword_prefix != INSIDE:
        found = f"{quoted(model.unk_token)} and {quoted(model.continuing_subword_prefix)}"
        raise ConfigError(
            f"the unknown token and the subword prefix are {found}, expected [UNK] and ##", fix=OTHER_FILE
        )
    if sorted(model.vocab.values()) != list(range(len(model.vocab))):
        raise ConfigError("the token ids are not 0, 1, 2, ..., each once", fix="check whether the file is damaged")
    for piece in SPECIAL.values():
        if piece not in model.vocab:
            raise ConfigError(f"the vocabulary has no {piece}", fix=OTHER_FILE)
    return model


def _converted(given: dict[str, Any], form: Any) -> Any:
    try:
        return msgspec.convert(given, form)
    except ValueError as error:
        raise ConfigError(str(error)[:200], fix=OTHER_FILE) from None


def _require_alike(normalizer: _Normalizer, settings: dict[str, Any]) -> None:
    """Raise ConfigError for tokenizer settings that contradict the tokenizer."""
    names = ("lowercase", "strip_accents", "handle_chinese_chars")
    for setting, name in zip(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), names, strict=True):
        if setting in settings and settings[setting] != (before := getattr(normalizer, name)):
            text = f"{name} is {before}, but tokenizer_config.json has {setting} = {settings[setting]}"
            raise ConfigError(text, fix="make both the same")


def _require_frame(step: dict[str, Any], vocab: dict[str, int]) -> None:
    """Raise ConfigError unless texts are put between [CLS] and [SEP]."""
    if step.get("type") == "BertProcessing":
        right = [step.get(key) for key in ("cls", "sep")] == [[piece, vocab[piece]] for piece in ("[CLS]", "[SEP]")]
    else:
        parts = [next(iter(part.items())) for part in step.get("single", ()) if isinstance(part, dict) and part]
        names = [(kind, value.get("id")) for kind, value in parts if isinstance(value, dict)]
        frame = [("SpecialToken", "[CLS]"), ("Sequence", "A"), ("SpecialToken", "[SEP]")]
        right = step.get("type") == "TemplateProcessing" and names == frame
    if not right:
        raise ConfigError("texts are not put between [CLS] and [SEP]", fix=OTHER_FILE)


# config.json of a BERT encoder: settings that are supported, ignored, or refused.
#
# An unknown key could change what the model computes. So every key must be supported, or be known to concern something
# else: training, generation, heads, label names.

Size = Annotated[int, Meta(ge=1, le=MAX_WIDTH)]
Share = Annotated[float, Meta(ge=0.0, lt=1.0)]
# "gelu" is the exact one, x Phi(x); "gelu_new" and others are approximations that differ in the fourth digit
ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu", "gelu_python": "gelu", "relu": "relu"}

HARMLESS = {
    # names and versions
    *("_name_or_path", "architectures", "transformers_version", "model_name", "torch_dtype", "dtype"),
    # training and its heads
    *("initializer_range", "classifier_dropout", "finetuning_task", "problem_type", "id2label", "label2id"),
    *("num_labels", "gradient_checkpointing", "directionality", "pooler_fc_size", "pooler_num_attention_heads"),
    *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
    # how outputs are returned, and memory
    *("output_attentions", "output_hidden_states", "output_past", "return_dict", "use_cache", "torchscript"),
    *("chunk_size_feed_forward", "tie_word_embeddings", "attn_implementation", "_attn_implementation"),
    # ids of special tokens: tokenizer.json defines them
    *("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id"),
    *("unk_token_id", "decoder_start_token_id"),
}


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an encoder in config.json; the defaults are BERT's."""

    model_type: str
    hidden_size: Size
    num_hidden_layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Annotated[int, Meta(ge=3, le=2**24)]
    vocab_size: Annotated[int, Meta(ge=1, le=2**24)]
    type_vocab_size: Size = 2
    hidden_act: str = "gelu"
    hidden_dropout_prob: Share = 0.1
    attention_probs_dropout_prob: Share = 0.1
    layer_norm_eps: Annotated[float, Meta(ge=1e-12, le=0.1)] = 1e-12
    position_embedding_type: str = "absolute"
    is_decoder: bool = False
    add_cross_attention: bool = False
    pruned_heads: dict[str, Any] = {}

    def encoder(self, tokens: int) -> EncoderConfig:
        """The encoder of this architecture, for a vocabulary of `tokens`."""
        block = BlockConfig(
            mixer=AttentionConfig(num_heads=self.num_attention_heads, dropout=self.attention_probs_dropout_prob),
            arrangement="post",
            norm_epsilon=self.layer_norm_eps,
            feed_forward=FeedForwardConfig(hidden=self.intermediate_size, activation=ACTIVATIONS[self.hidden_act]),
            dropout=self.hidden_dropout_prob,
        )
        return EncoderConfig(
            input=TokensConfig(vocab_size=tokens),
            width=self.hidden_size,
            position="learned",
            max_length=self.max_position_embeddings,
            layers=(block,),
            repeat=self.num_hidden_layers,
            entry_norm="layer",
            norm_epsilon=self.layer_norm_eps,
            dropout=self.hidden_dropout_prob,
        )


def read_architecture(path: Path) -> Architecture:
    """The architecture in a config.json; ConfigError for another one than BERT, or for unknown settings."""
    given = read_json(path, dict[str, Any])
    with located(str(path)):
        kind = given.get("model_type")
        if kind != "bert":
            named = "no model_type" if kind is None else f"the model_type {quoted(str(kind))}"
            raise ConfigError(
                f"{named}, but only 'bert' is supported", fix="give a checkpoint of the BERT architecture"
            )
        if "auto_map" in given:
            fix = "give a checkpoint without custom code"
            raise ConfigError("'auto_map' asks for custom code, which is never run", fix=fix)
        try:
            found = msgspec.convert(given, Architecture)
        except ValueError as error:
            raise ConfigError(str(error)[:200], fix="use the file that belongs to the weights") from None
        positions = found.position_embedding_type
        refused = {  # settings that are read but not supported
            f"position_embedding_type {quoted(positions)}": positions != "absolute",
            f"the activation {quoted(found.hidden_act)}": found.hidden_act not in ACTIVATIONS,
            "a decoder": found.is_decoder or found.add_cross_attention,
            "pruned heads": bool(found.pruned_heads),
        }
        for what, is_so in refused.items():
            if is_so:
                known = f"absolute positions, the activations {', '.join(ACTIVATIONS)}, and complete encoders"
                raise ConfigError(f"{what}: only {known} are supported", fix="give another checkpoint")
        if unknown := [key for key in given if key not in Architecture.__struct_fields__ and key not in HARMLESS]:
            text = f"the setting {quoted(unknown[0])} is unknown and could change what the model computes"
            raise ConfigError(text, fix="if it does not, remove it from the file")
        return found


WORDS, POSITIONS, TYPES = (f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type"))
ENTRY_NORM = "embeddings.LayerNorm"
OF_A_LAYER = {
    "attention.self.query": "mixer.heads.query",
    "attention.self.key": "mixer.heads.key",
    "attention.self.value": "mixer.heads.value",
    "attention.output.dense": "mixer.heads.output",
    "attention.output.LayerNorm": "around.norm",
    "intermediate.dense": "feed_forward.inward",
    "output.dense": "feed_forward.outward",
    "output.LayerNorm": "around_feed_forward.norm",
}
LEFT_OUT = ("pooler.", "cls.", "classifier.", "qa_outputs.", "embeddings.position_ids")
FINE_TUNING = (
    0.02  # over the width: the learning rate of fine-tuning, 5e-5 at a width of 384, 3e-5 at 768 (Devlin et al. 2019)
)
SHOWN = 3
NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def bert_bundle(folder: Path, pooling: Pooling | None) -> Bundle:
    """The bundle of a checkpoint folder, with its own pooling or another one."""
    sentences = read_sentences(folder)
    architecture = read_architecture(sentences.encoder / "config.json")
    vocabulary = read_vocabulary(sentences.encoder)
    if (pieces := int(vocabulary.rows.max()) + 1) > architecture.vocab_size:
        text = f"tokenizer.json has {pieces:,} tokens, but config.json has a vocabulary of {architecture.vocab_size:,}"
        raise ConfigError(f"{sentences.encoder}: {text}", fix="use files of the same checkpoint")
    weights = _weights(WeightsFile(sentences.encoder), architecture, vocabulary.rows)
    chosen = pooling or sentences.pooling
    config = EmbedderConfig(
        encoder=architecture.encoder(vocabulary.tokenizer.vocab_size),
        head=VectorHeadConfig(unit=sentences.unit),
        pooling=chosen,
    )
    longest = min(sentences.longest or architecture.max_position_embeddings, architecture.max_position_embeddings)
    facts = {"from": "bert", "pooling": chosen, "unit": sentences.unit}
    notes = {"imported": facts, "max_length": longest, "lr": FINE_TUNING / architecture.hidden_size}
    return Bundle(config, ModelSpec(Schema("text", "related"), vocabulary.tokenizer, None), weights, notes)


def _weights(file: WeightsFile, architecture: Architecture, rows: np.ndarray) -> dict[str, Tensor]:
    """The weights by our names, float32; shapes are checked against config.json before a tensor is created."""
    names = _plain_names(file)
    shapes = dict(_shapes(architecture))
    _require_fitting({name: file.header.slots[given] for name, given in names.items()}, shapes, str(file.path))
    tensors = file.tensors()
    given = {name: tensors[names[name]].float() for name in shapes}
    for name, tensor in given.items():
        if not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{file.path}: {names[name]} has NaN or infinite values", fix="copy the file again")
    return dict(_renamed(given, architecture.num_hidden_layers, rows))


def _plain_names(file: WeightsFile) -> dict[str, str]:
    """The names in the file by their plain form: without the prefix "bert.", norms with weight and bias."""
    names: dict[str, str] = {}
    for given in file.header.slots:
        plain = given.removeprefix("bert.")
        if "LayerNorm." in plain:
            plain = plain.replace(".gamma", ".weight").replace(".beta", ".bias")
        if plain in names:
            raise ConfigError(f"{file.path}: {plain} occurs twice", fix="remove one of them")
        if not plain.startswith(LEFT_OUT):
            names[plain] = given
    return names


def _shapes(architecture: Architecture) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name and shape of every weight of the architecture."""
    width, hidden = architecture.hidden_size, architecture.intermediate_size
    yield WORDS, (architecture.vocab_size, width)
    yield POSITIONS, (architecture.max_position_embeddings, width)
    yield TYPES, (architecture.type_vocab_size, width)
    yield from _shapes_of(ENTRY_NORM, width)
    for number in range(architecture.num_hidden_layers):
        for part in OF_A_LAYER:
            inner = hidden if part == "output.dense" else width
            outer = hidden if part == "intermediate.dense" else width
            yield from _shapes_of(f"encoder.layer.{number}.{part}", outer, inner)


def _shapes_of(name: str, outer: int, inner: int = 0) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The shapes of a norm, or of a linear layer from `inner` to `outer`."""
    yield f"{name}.weight", (outer,) if name.endswith("LayerNorm") else (outer, inner)
    yield f"{name}.bias", (outer,)


def _require_fitting(found: Mapping[str, Slot], shapes: Mapping[str, tuple[int, ...]], place: str) -> None:
    """Raise ConfigError for weights that are missing, unknown, of another shape or dtype."""
    faults = [
        *(f"{name} is missing" for name in shapes if name not in found),
        *(f"{quoted(name)} is unexpected" for name in found if name not in shapes),
        *(
            f"{name} is {found[name]}, expected {list(shape)}"
            for name, shape in shapes.items()
            if name in found and (found[name].shape != shape or found[name].dtype not in NUMBERS)
        ),
    ]
    if faults:
        more = f", and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
        text = f"the weights do not fit config.json: {'; '.join(faults[:SHOWN])}{more}"
        raise ConfigError(f"{place}: {text}", fix="use weights and config.json of the same checkpoint")


def _renamed(given: Mapping[str, Tensor], layers: int, rows: np.ndarray) -> Iterator[tuple[str, Tensor]]:
    yield "encoder.input.table", given[WORDS][torch.from_numpy(rows)]
    yield "encoder.entry.0.table", given[POSITIONS] + given[TYPES][0]
    for kind in ("weight", "bias"):
        yield f"encoder.entry.1.module.{kind}", given[f"{ENTRY_NORM}.{kind}"]
        for number in range(layers):
            for theirs, ours in OF_A_LAYER.items():
                yield f"encoder.layers.{number}.{ours}.{kind}", given[f"encoder.layer.{number}.{theirs}.{kind}"]
