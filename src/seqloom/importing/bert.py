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

import numpy as np
import torch
from torch import Tensor

from seqloom.bundle import Bundle
from seqloom.bundle.weights import Slot
from seqloom.config.heads import Pooling, VectorHeadConfig
from seqloom.config.models import EmbedderConfig
from seqloom.config.words import quoted
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DataError
from seqloom.importing.architecture import Architecture, read_architecture
from seqloom.importing.reading import WeightsFile
from seqloom.importing.sentences import read_sentences
from seqloom.importing.vocabulary import read_vocabulary
from seqloom.tasks.contract import Meaning

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
