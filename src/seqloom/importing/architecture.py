"""config.json of an encoder like BERT: what of it we build, what cannot change an output, and what is refused.

A key that is not known might change what the model computes. So a file is read only if every key is one of ours, or
one that is known to be about something else: training, generation, heads, names of labels.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from seqloom.config.base import MAX_WIDTH
from seqloom.config.blocks import Activation, BlockConfig, FeedForwardConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig
from seqloom.config.models import MAX_LAYERS, EncoderConfig
from seqloom.config.words import located, quoted
from seqloom.errors import ConfigError
from seqloom.importing.reading import read_json

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
