"""What is given, what is asked, and the folder that is written: the door of `seqloom import`."""

import os
from pathlib import Path

from seqloom.bundle import Bundle, bundle_files, model_folder
from seqloom.config.heads import Pooling
from seqloom.errors import ConfigError, near_name
from seqloom.files.folders import commit_folder
from seqloom.files.layouts import ModelFile
from seqloom.importing.bert import bert_bundle
from seqloom.importing.checkpoint import read_object
from seqloom.importing.static import Weighting, static_bundle

VECTORS = (".txt", ".vec", ".bin", ".txt.gz", ".vec.gz")
WEIGHTS_ALONE = (".safetensors", ".pt", ".pth", ".ckpt", ".onnx", ".h5")


def import_model(
    source: str | Path,
    out: str | Path,
    *,
    pooling: Pooling | None = None,
    weighting: Weighting | None = None,
    counts: str | Path | None = None,
) -> Path:
    """The new model folder, made of a checkpoint folder or of a file of word vectors; `seqloom.load` reads it.

    `pooling` makes the vector of a text in another way than the checkpoint's own. `weighting` and `counts` are for
    vectors of words: "sif" needs a file of texts, from which it counts how frequent words are.
    """
    out = Path(out)
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} exists, and a model folder is written once", fix="choose another name, or remove it")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}", fix="make it")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"{out.parent} cannot be written", fix="choose another folder")
    bundle = imported(source, pooling=pooling, weighting=weighting, counts=counts)
    commit_folder(out, bundle_files(bundle, card_of(bundle)))
    return out


def imported(
    source: str | Path,
    *,
    pooling: Pooling | None = None,
    weighting: Weighting | None = None,
    counts: str | Path | None = None,
) -> Bundle:
    """The same without a folder: nothing is written."""
    path = Path(source)
    if path.is_dir():
        if weighting is not None or counts is not None:
            raise ConfigError(f"{path} is a checkpoint, and weighting is for vectors of words", fix="leave it out")
        if "seqloom" in read_object(model_folder(path) / ModelFile.CONFIG):  # the version that wrote it
            fix = "give it as it is: `seqloom embed`, `seqloom index`, `seqloom train --init`"
            raise ConfigError(f"{path} is a model of Seqloom already", fix=fix)
        return bert_bundle(path, pooling)
    if not path.is_file():
        raise ConfigError(f"there is no {path}", fix=near_name(path))
    if path.suffix.lower() in WEIGHTS_ALONE:
        raise ConfigError(f"{path} is weights alone", fix="give the folder with config.json and tokenizer.json")
    if not path.name.lower().endswith(VECTORS):
        fix = "give a folder with a checkpoint, or a file of vectors of words by such a name"
        raise ConfigError(f"{path} does not end in {', '.join(VECTORS)}", fix=fix)
    if pooling not in (None, "mean"):
        raise ConfigError(f"the vectors of words are weighed and their mean taken, not '{pooling}'", fix="leave it out")
    if weighting == "sif" and counts is None:
        raise ConfigError("sif weighs words by how frequent they are", fix="give a file of texts: --counts FILE.txt")
    if weighting == "mean" and counts is not None:
        raise ConfigError("a mean counts no words", fix="leave --counts out, or take --weighting sif")
    if counts is not None and not Path(counts).is_file():
        raise ConfigError(f"there is no file {counts}", fix=near_name(Path(counts)))
    return static_bundle(path, None if counts is None else Path(counts))


def card_of(bundle: Bundle) -> str:
    """card.md: what the model is, and what is not known about it."""
    return "\n".join(
        [
            f"# embed: imported from {bundle.notes['imported']['from']}",
            "",
            "A model for the task **embed**, imported with Seqloom: nothing was trained.",
            "",
            *(f"- {line}" for line in said_of(bundle)),
            "",
            "What it was trained on, and how good it is, its makers say; on your texts `seqloom evaluate` says it.",
            "",
        ]
    )


def said_of(bundle: Bundle) -> tuple[str, ...]:
    """What was imported, in sentences."""
    facts, tokenizer = bundle.notes["imported"], bundle.meaning.tokenizer
    assert tokenizer is not None, "both kinds read text"
    longest = bundle.notes.get("longest")
    how = f"weighting {facts['weighting']}" if facts["from"] == "vectors" else f"pooling {facts['pooling']}"
    unit = ", of length one" if facts.get("unit", True) else ""
    return (
        f"{bundle.config.parameters():,} parameters, {tokenizer.vocab_size:,} symbols ({tokenizer.config.kind()})",
        f"the vector of a text: {how}{unit}",
        *([f"texts are cut after {longest:,} symbols"] if longest else []),
    )
