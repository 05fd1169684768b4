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
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from seqloom.bundle import Bundle
from seqloom.config.base import MAX_WIDTH, located, quoted
from seqloom.config.blocks import Activation, BlockConfig, FeedForwardConfig
from seqloom.config.heads import Pooling, VectorHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig
from seqloom.config.models import EmbedderConfig
from seqloom.config.stacks import MAX_LAYERS, EncoderConfig
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DataError
from seqloom.files.tensors import Slot
from seqloom.importing.checkpoint import WeightsFile, read_json
from seqloom.importing.sentences import read_sentences
from seqloom.importing.vocabulary import read_vocabulary
from seqloom.tasks.task import Meaning

# -----------------------------------------------------------------------------
# config.json of an encoder like BERT: what of it we build, what cannot change an output, and what is refused.
#
# A key that is not known might change what the model computes. So a file is read only if every key is one of ours, or
# one that is known to be about something else: training, generation, heads, names of labels.
# -----------------------------------------------------------------------------

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
        _require_bert(given)
        try:
            found = msgspec.convert(given, Architecture)
        except ValueError as error:
            raise ConfigError(str(error)[:200], fix="take the file that belongs to the weights") from None
        _require_understood(found)
        _require_known(given)
        return found


def _require_bert(given: dict[str, Any]) -> None:
    kind = given.get("model_type")
    if kind != "bert":
        named = "no model_type" if kind is None else f"the model_type {quoted(str(kind))}"
        raise ConfigError(f"{named}, and only 'bert' is read", fix="give a checkpoint of the BERT architecture")
    if "auto_map" in given:
        raise ConfigError("'auto_map' names code that computes the outputs", fix="give a checkpoint that needs no code")


def _require_understood(found: Architecture) -> None:
    """Refuse what we read and do not build."""
    refused = {
        f"positions of the type {quoted(found.position_embedding_type)}": found.position_embedding_type != "absolute",
        f"the activation {quoted(found.hidden_act)}": found.hidden_act not in ACTIVATIONS,
        "a decoder": found.is_decoder or found.add_cross_attention,
        "heads that were cut out": bool(found.pruned_heads),
    }
    for what, is_so in refused.items():
        if is_so:
            known = f"absolute positions, the activations {', '.join(ACTIVATIONS)}, and whole encoders"
            raise ConfigError(f"{what}: only {known} are read", fix="give another checkpoint")


def _require_known(given: dict[str, Any]) -> None:
    unknown = [key for key in given if key not in Architecture.__struct_fields__ and key not in HARMLESS]
    if unknown:
        raise ConfigError(
            f"{quoted(unknown[0])} is not known, and might change what the model computes",
            fix="if it does not, take it out of the file",
        )


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
    file = WeightsFile(sentences.encoder)
    weights = _weights(file, architecture, vocabulary.rows)
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
