"""Claims about imported encoders: they compute what the original computes, and are models as any other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import seqloom
from importing_common import (
    PIECES,
    TEXTS,
    config,
    library,
    plain_ids,
    plain_sentence,
    plain_vectors,
    tensors,
    write_checkpoint,
    write_json,
    write_sentences,
)
from seqloom.bundle import built, read_bundle
from seqloom.config.models import EmbedderConfig
from seqloom.errors import DamagedError
from seqloom.importing.bert import read_vocabulary
from seqloom.importing.models import import_model, imported
from seqloom.nn.types import Padded

EXACT = 1e-5


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "bert")


def rewritten(folder: Path, change: Any) -> None:
    """The weights of a checkpoint changed, each with its name."""
    path = folder / "model.safetensors"
    save_file(dict(change(name, tensor) for name, tensor in load_file(path).items()), path)


def assert_exact(checkpoint: Path, folder: Path) -> None:
    """The imported model gives the vectors of the plain code: of every token, and of every text."""
    bundle, vocabulary = read_bundle(folder), read_vocabulary(checkpoint)
    model, tokenizer = built(bundle), vocabulary.tokenizer
    for text in [*TEXTS, ""]:
        tokens = tokenizer.encode([text]).values
        if len(tokens) <= 12:  # longer ones are cut when they are embedded
            ids = plain_ids(checkpoint, text, 12)
            assert vocabulary.rows[tokens].tolist() == ids
            with torch.no_grad():
                found = model.encoder(Padded.of(torch.from_numpy(tokens.astype(np.int64))[None])).values[0]
            assert float((found - plain_vectors(checkpoint, ids)).abs().max()) < EXACT, text
    expected = torch.stack([plain_sentence(checkpoint, text) for text in TEXTS]).numpy()
    assert np.abs(seqloom.load(folder).embed(TEXTS) - expected).max() < EXACT


def test_the_vectors_of_tokens_and_of_texts_are_those_of_the_original(checkpoint: Path, tmp_path: Path) -> None:
    assert import_model(checkpoint, tmp_path / "model") == tmp_path / "model"
    assert_exact(checkpoint, tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"lower": False},
        {"template": False},
        {"hidden_act": "relu"},
        {"layer_norm_eps": 0.05},
        {"num_hidden_layers": 1, "intermediate_size": 7, "num_attention_heads": 1},
        {"vocab_size": len(PIECES) + 9},  # padded: rows that no piece has
    ],
    ids=str,
)
def test_other_settings_are_followed(settings: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "bert", **settings)
    assert_exact(checkpoint, import_model(checkpoint, tmp_path / "model"))


@pytest.mark.slow
def test_names_of_the_original_of_2018_and_weights_of_a_whole_masked_model_are_understood(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "bert")
    old = {"Norm.weight": "Norm.gamma", "Norm.bias": "Norm.beta"}
    for new, before in old.items():
        rewritten(checkpoint, lambda name, tensor, new=new, before=before: (name.replace(new, before), tensor))
    rewritten(checkpoint, lambda name, tensor: (f"bert.{name}", tensor))
    path = checkpoint / "model.safetensors"
    save_file(load_file(path) | {"cls.predictions.bias": torch.zeros(3), "classifier.weight": torch.zeros(2, 2)}, path)
    assert_exact(checkpoint, import_model(checkpoint, tmp_path / "model"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_taken_as_the_numbers_that_they_are(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path / "bert")
    rewritten(checkpoint, lambda name, one: (name, one.to(dtype) if one.is_floating_point() else one))
    folder = import_model(checkpoint, tmp_path / "model")
    assert {tensor.dtype for tensor in read_bundle(folder).weights.values()} == {torch.float32}
    assert_exact(checkpoint, folder)


def sentence(checkpoint: Path, **how: Any) -> np.ndarray:
    """[D] what an import of the checkpoint makes of "the cat sat"."""
    bundle = imported(checkpoint, **how)
    tokens = bundle.spec.tokenizer.encode(["the cat sat"]).values
    with torch.no_grad():
        return built(bundle)(Padded.of(torch.from_numpy(tokens.astype(np.int64))[None]))[0].numpy()


@pytest.mark.slow
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize(("mode", "pooling"), [("cls_token", "first"), ("max_tokens", "max"), ("mean_tokens", "mean")])
def test_the_pooling_of_the_checkpoint_is_taken_or_another_one(
    mode: str, pooling: Any, unit: bool, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path / "bert")
    write_sentences(checkpoint, normalize=unit, **{"cls_token": False, "mean_tokens": False, mode: True})
    vectors = plain_vectors(checkpoint, plain_ids(checkpoint, "the cat sat", 12))
    pooled = {"first": vectors[0], "max": vectors.amax(dim=0), "mean": vectors.mean(dim=0)}
    given = {name: F.normalize(one, dim=0) if unit else one for name, one in pooled.items()}
    assert np.abs(sentence(checkpoint) - given[pooling].numpy()).max() < EXACT
    assert np.abs(sentence(checkpoint, pooling="max") - given["max"].numpy()).max() < EXACT


@pytest.mark.slow
def test_an_encoder_alone_gives_the_mean_of_length_one_of_as_many_tokens_as_it_has_positions(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "bert")
    for name in ("modules.json", "sentence_bert_config.json"):
        (checkpoint / name).unlink()
    folder = import_model(checkpoint, tmp_path / "model")
    expected = torch.stack([plain_sentence(checkpoint, text, longest=20) for text in TEXTS]).numpy()
    assert np.abs(seqloom.load(folder).embed(TEXTS) - expected).max() < EXACT
    write_json(checkpoint / "tokenizer_config.json", {"model_max_length": 5, "do_lower_case": True})
    assert imported(checkpoint).notes["max_length"] == 5
    write_json(checkpoint / "tokenizer_config.json", {"model_max_length": 1000000000000000019884624838656})
    assert imported(checkpoint).notes["max_length"] == 20


@pytest.mark.slow
def test_an_encoder_may_lie_in_a_folder_of_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    inner = write_checkpoint(tmp_path / "0_Transformer")
    (tmp_path / "1_Pooling").mkdir()
    steps = [{"type": "a.Transformer", "path": "0_Transformer"}, {"type": "a.Pooling", "path": "1_Pooling"}]
    write_json(tmp_path / "modules.json", steps)
    write_json(tmp_path / "1_Pooling" / "config.json", {"embedding_dimension": 16, "pooling_mode": "mean"})
    found, expected = sentence(tmp_path), sentence(checkpoint)
    assert np.abs(found / np.linalg.norm(found) - expected).max() < EXACT
    assert inner.exists()


def test_rates_of_dropout_become_those_of_the_model(checkpoint: Path) -> None:
    model = imported(checkpoint).config
    assert isinstance(model, EmbedderConfig)
    (block,) = model.encoder.layers
    assert (model.encoder.dropout, block.dropout, block.mixer.dropout) == (0.125, 0.125, 0.25)  # type: ignore[union-attr]
    assert block.feed_forward is not None
    assert block.feed_forward.dropout == 0.0  # BERT has none there


def test_what_is_imported_twice_has_the_same_bytes_and_every_byte_is_verified(checkpoint: Path, tmp_path: Path) -> None:
    first, second = (import_model(checkpoint, tmp_path / name) for name in ("a", "b"))
    names = sorted(path.name for path in first.iterdir() if path.name != "manifest.json")
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    path = second / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DamagedError):
        seqloom.load(second)


def test_the_seed_of_the_caller_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    import_model(checkpoint, tmp_path / "model")
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.slow
def test_the_plain_code_is_not_ours(checkpoint: Path) -> None:
    """The oracle feels every tensor: whichever is changed, the vectors change."""
    ids = plain_ids(checkpoint, "the cat sat", 12)
    given, path = load_file(checkpoint / "model.safetensors"), checkpoint / "model.safetensors"
    before = plain_vectors(checkpoint, ids)
    try:
        for name in (name for name in given if not name.startswith(("pooler", "embeddings.position_ids"))):
            noise = torch.randn(given[name].shape, generator=torch.Generator().manual_seed(1))
            save_file(given | {name: given[name] + noise}, path)
            changed = plain_vectors(checkpoint, ids)
            # softmax does not feel what is added to all scores of a query
            assert torch.allclose(changed, before, atol=1e-4) == name.endswith("self.key.bias"), name
    finally:
        save_file(given, path)


def test_the_small_checkpoint_is_whole() -> None:
    assert set(json.loads(library().to_str())["model"]["vocab"]) == set(PIECES)
    assert len(tensors(config())) == 3 + 2 + 2 * 16 + 3
