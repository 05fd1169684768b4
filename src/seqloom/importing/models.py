"""`import_model`, the function behind `seqloom import`."""

import os
from pathlib import Path

from seqloom.bundle import Bundle, bundle_files, model_folder
from seqloom.config.heads import Pooling
from seqloom.config.options import strict
from seqloom.errors import ConfigError, near_name
from seqloom.files.folders import commit_folder
from seqloom.files.layouts import ModelFile
from seqloom.importing.bert import bert_bundle
from seqloom.importing.checkpoint import read_object
from seqloom.importing.static import Weighting, static_bundle

VECTORS = (".txt", ".vec", ".bin", ".txt.gz", ".vec.gz")
WEIGHTS_ALONE = (".safetensors", ".pt", ".pth", ".ckpt", ".onnx", ".h5")


@strict
def import_model(
    source: str | Path,
    out: str | Path,
    *,
    pooling: Pooling | None = None,
    weighting: Weighting | None = None,
    counts: str | Path | None = None,
) -> Path:
    """Import a pretrained sentence encoder or word vectors as a model folder.

    Args:
        source: a checkpoint folder of the BERT architecture, or a file of word vectors.
        out: the model folder to write; it must not exist.
        pooling: how token vectors become the vector of a text (default: as in the checkpoint).
        weighting: for word vectors, "mean" or "sif" (default: "sif" if counts are given).
        counts: for "sif", a file of texts to count word frequencies in.

    Returns:
        The path of the model folder; `seqloom.load` reads it.
    """
    out = Path(out)
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} already exists", fix="choose another name, or remove it")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}", fix="create it")
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
    """The imported model without writing a folder. Arguments as in `import_model`."""
    path = Path(source)
    if path.is_dir():
        if weighting is not None or counts is not None:
            raise ConfigError(
                f"{path} is a checkpoint folder, but --weighting and --counts are for word vectors",
                fix="leave them out",
            )
        if "seqloom" in read_object(model_folder(path) / ModelFile.CONFIG):  # the version that wrote it
            fix = "use it directly: `seqloom embed`, `seqloom index`, `seqloom train --init`"
            raise ConfigError(f"{path} is already a Seqloom model", fix=fix)
        return bert_bundle(path, pooling)
    if not path.is_file():
        raise ConfigError(f"there is no {path}", fix=near_name(path))
    if path.suffix.lower() in WEIGHTS_ALONE:
        raise ConfigError(
            f"{path} is only a file of weights", fix="give the folder with config.json and tokenizer.json"
        )
    if not path.name.lower().endswith(VECTORS):
        fix = f"give a checkpoint folder, or a word vector file with the extension {', '.join(VECTORS)}"
        raise ConfigError(f"{path} does not have the extension of a word vector file", fix=fix)
    if pooling not in (None, "mean"):
        raise ConfigError(f"word vectors are pooled by their mean, not by '{pooling}'", fix="leave out --pooling")
    if weighting == "sif" and counts is None:
        raise ConfigError("the weighting sif needs word counts", fix="give a file of texts: --counts FILE.txt")
    if weighting == "mean" and counts is not None:
        raise ConfigError(
            "the weighting 'mean' does not use counts", fix="leave out --counts, or choose --weighting sif"
        )
    if counts is not None and not Path(counts).is_file():
        raise ConfigError(f"there is no file {counts}", fix=near_name(Path(counts)))
    return static_bundle(path, None if counts is None else Path(counts))


def card_of(bundle: Bundle) -> str:
    return "\n".join(
        [
            f"# embed: imported from {bundle.notes['imported']['from']}",
            "",
            "A model for the task **embed**, imported with Seqloom without training.",
            "",
            *(f"- {line}" for line in facts_of(bundle)),
            "",
            "See the documentation of its authors for its training data and scores. `seqloom evaluate` measures it "
            "on your texts.",
            "",
        ]
    )


def facts_of(bundle: Bundle) -> tuple[str, ...]:
    """Return a summary of the imported model in short lines."""
    facts, tokenizer = bundle.notes["imported"], bundle.spec.tokenizer
    assert tokenizer is not None, "both kinds read text"
    longest = bundle.notes.get("max_length")
    how = f"weighting {facts['weighting']}" if facts["from"] == "vectors" else f"pooling {facts['pooling']}"
    unit = ", scaled to length 1" if facts.get("unit", True) else ""
    return (
        f"{bundle.config.parameters():,} parameters, {tokenizer.vocab_size:,} tokens ({tokenizer.config.kind()})",
        f"text vectors: {how}{unit}",
        *([f"texts are truncated after {longest:,} tokens"] if longest else []),
    )
