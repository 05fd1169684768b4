"""A small checkpoint of the architecture of BERT, drawn by a seed, and the architecture written plainly beside it.

Nothing of Seqloom is used here: texts are cut by the `tokenizers` library from the very tokenizer.json, and the layers
are torch's functions on the tensors of the very file.
"""

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch import Tensor

WIDTH, HEADS, HIDDEN, LAYERS, POSITIONS = 16, 4, 24, 2, 20
FIRST = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "!", ".", ",", "'"]
PIECES = [*FIRST, "the", "cat", "sat", "un", "##aff", "##able", "##s", "mask", "cls", "北", "caf", "##e", "##é", "Cat"]
PIECES += ["great", "bad", "film", "##ing", "i", "a", "b", "##c"]
TEXTS = [
    "The cat sat.",
    "unaffable cats!",
    "Café CAFÉ 北cat",
    "[MASK] the [CLS]",
    "zzz unknownish a",
    "the cat sat " * 20,
    "\tA\u00a0b\u200bc\x07",
]


def config(**changes: Any) -> dict[str, Any]:
    """config.json of the small checkpoint."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": POSITIONS,
        "vocab_size": len(PIECES),
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.125,
        "attention_probs_dropout_prob": 0.25,
        "layer_norm_eps": 1e-12,
    } | changes


def tensors(settings: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """The weights under the names of the original."""
    draw = torch.Generator().manual_seed(seed)
    width, hidden = settings["hidden_size"], settings["intermediate_size"]

    def linear(name: str, outer: int, inner: int) -> dict[str, Tensor]:
        weight = torch.randn(outer, inner, generator=draw) * inner**-0.5
        return {f"{name}.weight": weight, f"{name}.bias": torch.randn(outer, generator=draw) * 0.1}

    def norm(name: str) -> dict[str, Tensor]:
        scale, shift = torch.randn(2, width, generator=draw) * 0.2
        return {f"{name}.weight": 1 + scale, f"{name}.bias": shift}

    sizes = {"word": settings["vocab_size"], "position": settings["max_position_embeddings"], "token_type": 2}
    made = {
        f"embeddings.{name}_embeddings.weight": torch.randn(size, width, generator=draw) for name, size in sizes.items()
    }
    made |= norm("embeddings.LayerNorm")
    for number in range(settings["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            made |= linear(f"{layer}.{part}", width, width)
        made |= linear(f"{layer}.intermediate.dense", hidden, width) | linear(f"{layer}.output.dense", width, hidden)
        made |= norm(f"{layer}.attention.output.LayerNorm") | norm(f"{layer}.output.LayerNorm")
    ignored = {"embeddings.position_ids": torch.arange(sizes["position"])[None]} | linear("pooler.dense", width, width)
    return made | ignored


def library(*, lower: bool = True, template: bool = True) -> Library:
    """The tokenizer of the small checkpoint, as the library has it."""
    vocab = {piece: number for number, piece in enumerate(PIECES)}
    made = Library(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocab[name]) for name in ("[CLS]", "[SEP]")]
    framed = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=None, special_tokens=ends)
    made.post_processor = framed if template else processors.BertProcessing(ends[1], ends[0])
    return made


def write_json(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def write_sentences(folder: Path, *, normalize: bool = True, longest: int = 12, **pooling: bool) -> None:
    """The files that say how a sentence vector is made."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    steps = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    write_json(folder / "modules.json", steps)
    flags = {f"pooling_mode_{name}": value for name, value in (pooling or {"mean_tokens": True}).items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": WIDTH, **flags})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})


def write_checkpoint(folder: Path, *, lower: bool = True, template: bool = True, **changes: Any) -> Path:
    """A whole checkpoint: weights, configuration, tokenizer, and the mean of length one of twelve tokens."""
    folder.mkdir(exist_ok=True)
    settings = config(**changes)
    write_json(folder / "config.json", settings)
    save_file(tensors(settings), folder / "model.safetensors", metadata={"format": "pt"})
    made = library(lower=lower, template=template)
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.save(str(folder / "tokenizer.json"))
    write_sentences(folder)
    return folder


def plain_ids(folder: Path, text: str, longest: int) -> list[int]:
    """The numbers of the original; it finds its special pieces in texts, unless their brackets are set apart."""
    cut = Library.from_file(str(folder / "tokenizer.json"))
    cut.no_padding()
    cut.enable_truncation(longest)
    ids: list[int] = cut.encode(text.replace("[", " [ ").replace("]", " ] ")).ids
    return ids


def plain_vectors(folder: Path, ids: list[int]) -> Tensor:
    """[T,D] what the last layer gives for each number."""
    given = load_file(folder / "model.safetensors")
    weights = {_plain(name): tensor.float() for name, tensor in given.items()}
    settings = json.loads((folder / "config.json").read_text())
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    activation = {"gelu": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)), "relu": torch.relu}[settings["hidden_act"]]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        centered = x - x.mean(dim=-1, keepdim=True)
        root = (centered.square().mean(dim=-1, keepdim=True) + settings["layer_norm_eps"]).sqrt()
        return centered / root * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    words, places, kinds = (
        weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    x = norm(words[ids] + kinds[0] + places[: len(ids)], "embeddings.LayerNorm")
    for number in range(settings["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            linear(x, f"{layer}.attention.self.{name}").view(-1, heads, width // heads).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        looked = ((query @ key.transpose(1, 2)) / (width // heads) ** 0.5).softmax(dim=-1) @ value
        joined = linear(looked.transpose(0, 1).reshape(-1, width), f"{layer}.attention.output.dense")
        x = norm(x + joined, f"{layer}.attention.output.LayerNorm")
        inner = activation(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x


def _plain(name: str) -> str:
    return name.removeprefix("bert.").replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias")


def plain_sentence(folder: Path, text: str, longest: int = 12) -> Tensor:
    """[D] the mean of the vectors, of length one."""
    return F.normalize(plain_vectors(folder, plain_ids(folder, text, longest)).mean(dim=0), dim=0)
