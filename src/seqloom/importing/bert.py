"""An encoder of the architecture of BERT (Devlin et al. 2019) under our names: the numbers are the same.

    theirs                                              ours
    embeddings.word_embeddings                          encoder.input.table, its rows in our order
    embeddings.position_embeddings, token_type[0]       encoder.entry.0.table: every text is of type 0, so its vector
                                                        is added to all positions once and for ever
    embeddings.LayerNorm                                encoder.entry.1.module
    encoder.layer.N.attention.self.query, key, value    encoder.layers.N.mixer.heads.query, key, value
    encoder.layer.N.attention.output.dense              encoder.layers.N.mixer.heads.output
    encoder.layer.N.attention.output.LayerNorm          encoder.layers.N.around.norm
    encoder.layer.N.intermediate.dense, output.dense    encoder.layers.N.feed_forward.inward, outward
    encoder.layer.N.output.LayerNorm                    encoder.layers.N.around_feed_forward.norm

Heads of training (pooler, cls, classifier) are left out: no sentence vector depends on them.
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
from seqloom.tasks.task import Meaning
from seqloom.text.special_tokens import BEGIN, COUNT, END, MASK, PAD, SEPARATOR, UNKNOWN
from seqloom.text.subwords import INSIDE, WordpieceCutter, WordpieceData
from seqloom.text.tokenizer import Tokenizer

# How a checkpoint makes one vector of a text: what is pooled, whether it has length one, and where texts are cut.
#
#     modules.json                  Transformer, Pooling, Normalize: what follows what, and in which folder it lies
#     1_Pooling/config.json         mean, max, the first or the last
#     sentence_bert_config.json     the most symbols of a text
#
# A checkpoint without these files is an encoder alone; then the mean is taken, of length one.

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
    longest: int | None  # symbols of a text; None: not said


class _Module(msgspec.Struct, frozen=True):
    type: str
    path: str


def read_sentences(folder: Path) -> Sentences:
    """What a checkpoint says about its sentence vectors."""
    path = folder / "modules.json"
    if not path.exists():
        return Sentences(folder, "mean", unit=True, longest=_longest(folder))
    modules = read_json(path, list[_Module])
    kinds = tuple(module.type.rpartition(".")[2] for module in modules)
    if kinds not in (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize")):
        named = quoted(", ".join(kinds))
        raise ConfigError(f"{path}: the steps {named}; Transformer, Pooling, Normalize are read", fix=ANOTHER)
    settings = folder / "config_sentence_transformers.json"
    if prompt := read_object(settings).get("default_prompt_name"):
        fix = "set default_prompt_name to null, and write the prompt into your texts"
        raise ConfigError(f"{settings}: the prompt {quoted(str(prompt))} would be put before every text", fix=fix)
    for module in modules[:2]:
        if not folder.joinpath(module.path).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{path}: {quoted(module.path)} leads out of the checkpoint", fix="correct it")
    encoder, pooling = (folder / module.path for module in modules[:2])
    return Sentences(encoder, _pooling(pooling / "config.json"), len(kinds) == 3, _longest(encoder))


def _pooling(path: Path) -> Pooling:
    given = read_json(path, dict[str, Any])
    with located(str(path)):
        for key in given:
            if key not in (*FLAGS, *SIZES, "pooling_mode"):
                raise ConfigError(f"{quoted(key)} is not known, and might change the vectors", fix=ANOTHER)
        flagged = [mode for flag, mode in FLAGS.items() if given.get(flag)]
        named = given.get("pooling_mode")
        modes = flagged if named is None else [str(named)]
        if len(modes) != 1 or modes[0] not in POOLINGS:
            raise ConfigError(f"the pooling {quoted(' and '.join(modes) or 'none')}", fix=ANOTHER)
        return POOLINGS[modes[0]]


def _longest(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    settings = read_object(path)
    if settings.get("do_lower_case"):
        raise ConfigError(f"{path}: do_lower_case is none of the tokeniser's", fix="set it to false, or lower texts")
    longest = settings.get("max_seq_length")
    if longest is None:
        longest = read_object(folder / "tokenizer_config.json").get("model_max_length")
    if longest is None or (isinstance(longest, int | float) and longest >= 2**24):  # "no limit" is written as 1e30
        return None
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 3:
        raise ConfigError(f"{path}: texts are cut at {longest!r} symbols", fix="give a whole number from 3 on")
    return longest


# tokenizer.json of a BERT: the same pieces under our numbers, and where the row of each is in the original's table.
#
#     [PAD] [UNK] [CLS] [SEP] [MASK]   ──▶   PAD UNKNOWN BEGIN END MASK, whose numbers are the first of every vocabulary
#     all others, in their order       ──▶   the symbols behind them
#
# SEPARATOR, which stands between two texts, has no piece of its own there, and begins with the vector of [SEP].

SPECIAL = {PAD: "[PAD]", UNKNOWN: "[UNK]", BEGIN: "[CLS]", END: "[SEP]", MASK: "[MASK]", SEPARATOR: "[SEP]"}
OTHER_FILE = "give a checkpoint with the tokeniser of BERT"


class Vocabulary(NamedTuple):
    """A tokeniser, and the row of the original's table that belongs to each of its symbols."""

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
    strip_accents: bool | None = None  # None: where letters are made small
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
    """The tokeniser of a checkpoint; ConfigError for one that cuts texts in another way than BERT's."""
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
                raise ConfigError(f"the {step} is {quoted(str(kind))}, and {wanted} is read", fix=OTHER_FILE)
        normalizer: _Normalizer = _converted(file.normalizer or {}, _Normalizer)
        _require_alike(normalizer, read_object(folder / "tokenizer_config.json"))
        _require_frame(file.post_processor or {}, model.vocab)
        for one in file.added_tokens:  # they are cut out of texts before anything else
            if one.content not in SPECIAL.values() or model.vocab[one.content] != one.id:
                raise ConfigError(f"the added piece {quoted(one.content)} would be cut out of texts", fix=OTHER_FILE)
        lower = normalizer.lowercase
        config = WordpieceConfig(
            lower=lower,
            clean=normalizer.clean_text,
            chinese_apart=normalizer.handle_chinese_chars,
            accents=not (lower if normalizer.strip_accents is None else normalizer.strip_accents),
            longest_word=model.max_input_chars_per_word,
        )
        pieces = [piece for piece in sorted(model.vocab, key=model.vocab.__getitem__) if piece not in SPECIAL.values()]
        rows = [model.vocab[SPECIAL[symbol]] for symbol in range(COUNT)] + [model.vocab[piece] for piece in pieces]
        return Vocabulary(Tokenizer(config, WordpieceCutter(config, WordpieceData(tuple(pieces)))), np.array(rows))


def _model(file: _File) -> _Model:
    if (kind := file.model.get("type", "WordPiece")) != "WordPiece":
        raise ConfigError(f"a tokeniser of the type {quoted(str(kind))}, and only WordPiece is read", fix=OTHER_FILE)
    model: _Model = _converted({"type": "WordPiece", **file.model}, _Model)
    if model.unk_token != SPECIAL[UNKNOWN] or model.continuing_subword_prefix != INSIDE:
        found = f"{quoted(model.unk_token)} and {quoted(model.continuing_subword_prefix)}"
        raise ConfigError(f"what is unknown and what is inside a word are {found}, not [UNK] and ##", fix=OTHER_FILE)
    if sorted(model.vocab.values()) != list(range(len(model.vocab))):
        raise ConfigError("the numbers of the pieces are not 0, 1, 2, ..., each once", fix="is the file damaged?")
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
    """Refuse settings beside the tokeniser that would override it: what was meant cannot be known."""
    names = ("lowercase", "strip_accents", "handle_chinese_chars")
    for setting, name in zip(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), names, strict=True):
        if setting in settings and settings[setting] != (before := getattr(normalizer, name)):
            text = f"{name} is {before}, and tokenizer_config.json has {setting} = {settings[setting]}"
            raise ConfigError(text, fix="make both the same")


def _require_frame(step: dict[str, Any], vocab: dict[str, int]) -> None:
    """Refuse texts that do not stand between [CLS] and [SEP]."""
    if step.get("type") == "BertProcessing":
        right = [step.get(key) for key in ("cls", "sep")] == [[piece, vocab[piece]] for piece in ("[CLS]", "[SEP]")]
    else:
        parts = [next(iter(part.items())) for part in step.get("single", ()) if isinstance(part, dict) and part]
        names = [(kind, value.get("id")) for kind, value in parts if isinstance(value, dict)]
        frame = [("SpecialToken", "[CLS]"), ("Sequence", "A"), ("SpecialToken", "[SEP]")]
        right = step.get("type") == "TemplateProcessing" and names == frame
    if not right:
        raise ConfigError("texts do not stand between [CLS] and [SEP]", fix=OTHER_FILE)


# config.json of an encoder like BERT: what of it we build, what cannot change an output, and what is refused.
#
# A key that is not known might change what the model computes. So a file is read only if every key is one of ours, or
# one that is known to be about something else: training, generation, heads, names of labels.

Size = Annotated[int, Meta(ge=1, le=MAX_WIDTH)]
Share = Annotated[float, Meta(ge=0.0, lt=1.0)]
# "gelu" is the exact one, x Phi(x); "gelu_new" and others are approximations that differ in the fourth digit
ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu", "gelu_python": "gelu", "relu": "relu"}

HARMLESS = {
    # names and versions, of which none is computed with
    *("_name_or_path", "architectures", "transformers_version", "model_name", "torch_dtype", "dtype"),
    # training and its heads
    *("initializer_range", "classifier_dropout", "finetuning_task", "problem_type", "id2label", "label2id"),
    *("num_labels", "gradient_checkpointing", "directionality", "pooler_fc_size", "pooler_num_attention_heads"),
    *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
    # how outputs are handed over, and how memory is spent
    *("output_attentions", "output_hidden_states", "output_past", "return_dict", "use_cache", "torchscript"),
    *("chunk_size_feed_forward", "tie_word_embeddings", "attn_implementation", "_attn_implementation"),
    # numbers of special symbols: tokenizer.json says which they are
    *("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id"),
    *("unk_token_id", "decoder_start_token_id"),
}


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json says about an encoder; the defaults are those of the original."""

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

    def encoder(self, symbols: int) -> EncoderConfig:
        """Our encoder of this architecture, for so many symbols."""
        block = BlockConfig(
            mixer=AttentionConfig(num_heads=self.num_attention_heads, dropout=self.attention_probs_dropout_prob),
            arrangement="post",
            norm_epsilon=self.layer_norm_eps,
            feed_forward=FeedForwardConfig(hidden=self.intermediate_size, activation=ACTIVATIONS[self.hidden_act]),
            dropout=self.hidden_dropout_prob,
        )
        return EncoderConfig(
            input=TokensConfig(vocab_size=symbols),
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
    """The architecture in a config.json; ConfigError for one that is not that of BERT, or says more than we know."""
    given = read_json(path, dict[str, Any])
    with located(str(path)):
        kind = given.get("model_type")
        if kind != "bert":
            named = "no model_type" if kind is None else f"the model_type {quoted(str(kind))}"
            raise ConfigError(f"{named}, and only 'bert' is read", fix="give a checkpoint of the BERT architecture")
        if "auto_map" in given:
            fix = "give a checkpoint that needs no code"
            raise ConfigError("'auto_map' names code that computes the outputs", fix=fix)
        try:
            found = msgspec.convert(given, Architecture)
        except ValueError as error:
            raise ConfigError(str(error)[:200], fix="take the file that belongs to the weights") from None
        positions = found.position_embedding_type
        refused = {  # what we read and do not build
            f"positions of the type {quoted(positions)}": positions != "absolute",
            f"the activation {quoted(found.hidden_act)}": found.hidden_act not in ACTIVATIONS,
            "a decoder": found.is_decoder or found.add_cross_attention,
            "heads that were cut out": bool(found.pruned_heads),
        }
        for what, is_so in refused.items():
            if is_so:
                known = f"absolute positions, the activations {', '.join(ACTIVATIONS)}, and whole encoders"
                raise ConfigError(f"{what}: only {known} are read", fix="give another checkpoint")
        if unknown := [key for key in given if key not in Architecture.__struct_fields__ and key not in HARMLESS]:
            text = f"{quoted(unknown[0])} is not known, and might change what the model computes"
            raise ConfigError(text, fix="if it does not, take it out of the file")
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
GOES_ON = 0.02  # over the width: the rate of further training, 5e-5 at a width of 384, 3e-5 at 768 (Devlin et al. 2019)
SHOWN = 3
NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def bert_bundle(folder: Path, pooling: Pooling | None) -> Bundle:
    """The bundle of the checkpoint in a folder; with another pooling than its own, if one is asked for."""
    sentences = read_sentences(folder)
    architecture = read_architecture(sentences.encoder / "config.json")
    vocabulary = read_vocabulary(sentences.encoder)
    if (pieces := int(vocabulary.rows.max()) + 1) > architecture.vocab_size:
        text = f"tokenizer.json has {pieces:,} pieces, and config.json a vocabulary of {architecture.vocab_size:,}"
        raise ConfigError(f"{sentences.encoder}: {text}", fix="take both from one checkpoint")
    weights = _weights(WeightsFile(sentences.encoder), architecture, vocabulary.rows)
    chosen = pooling or sentences.pooling
    config = EmbedderConfig(
        encoder=architecture.encoder(vocabulary.tokenizer.vocab_size),
        head=VectorHeadConfig(unit=sentences.unit),
        pooling=chosen,
    )
    longest = min(sentences.longest or architecture.max_position_embeddings, architecture.max_position_embeddings)
    facts = {"from": "bert", "pooling": chosen, "unit": sentences.unit}
    notes = {"imported": facts, "longest": longest, "rate": GOES_ON / architecture.hidden_size}
    return Bundle(config, Meaning(Schema("text", "related"), vocabulary.tokenizer, None), weights, notes)


def _weights(file: WeightsFile, architecture: Architecture, rows: np.ndarray) -> dict[str, Tensor]:
    """The weights under our names, float32; every shape is compared with config.json before a tensor is made."""
    names = _plain_names(file)
    shapes = dict(_shapes(architecture))
    _require_fitting({name: file.header.slots[given] for name, given in names.items()}, shapes, str(file.path))
    tensors = file.tensors()
    given = {name: tensors[names[name]].float() for name in shapes}
    for name, tensor in given.items():
        if not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{file.path}: {names[name]} holds a number that is not finite", fix="copy the file again")
    return dict(_renamed(given, architecture.num_hidden_layers, rows))


def _plain_names(file: WeightsFile) -> dict[str, str]:
    """The names in the file by their plain form: without "bert." before them, norms with weight and bias."""
    names: dict[str, str] = {}
    for given in file.header.slots:
        plain = given.removeprefix("bert.")
        if "LayerNorm." in plain:
            plain = plain.replace(".gamma", ".weight").replace(".beta", ".bias")
        if plain in names:
            raise ConfigError(f"{file.path}: {plain} is there twice", fix="take one of the two out")
        if not plain.startswith(LEFT_OUT):
            names[plain] = given
    return names


def _shapes(architecture: Architecture) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name and shape of every weight that the architecture has."""
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
    """The shapes of a norm, or of a linear map to `outer` from `inner`."""
    yield f"{name}.weight", (outer,) if name.endswith("LayerNorm") else (outer, inner)
    yield f"{name}.bias", (outer,)


def _require_fitting(found: Mapping[str, Slot], shapes: Mapping[str, tuple[int, ...]], place: str) -> None:
    """Refuse weights that are missing, unknown, of another shape, or no numbers."""
    faults = [
        *(f"{name} is missing" for name in shapes if name not in found),
        *(f"{quoted(name)} is not known" for name in found if name not in shapes),
        *(
            f"{name} is {found[name]} where {list(shape)} is needed"
            for name, shape in shapes.items()
            if name in found and (found[name].shape != shape or found[name].dtype not in NUMBERS)
        ),
    ]
    if faults:
        more = f", and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
        text = f"the weights do not fit config.json: {'; '.join(faults[:SHOWN])}{more}"
        raise ConfigError(f"{place}: {text}", fix="take weights and config.json from one checkpoint")


def _renamed(given: Mapping[str, Tensor], layers: int, rows: np.ndarray) -> Iterator[tuple[str, Tensor]]:
    yield "encoder.input.table", given[WORDS][torch.from_numpy(rows)]
    yield "encoder.entry.0.table", given[POSITIONS] + given[TYPES][0]
    for kind in ("weight", "bias"):
        yield f"encoder.entry.1.module.{kind}", given[f"{ENTRY_NORM}.{kind}"]
        for number in range(layers):
            for theirs, ours in OF_A_LAYER.items():
                yield f"encoder.layers.{number}.{ours}.{kind}", given[f"encoder.layer.{number}.{theirs}.{kind}"]
