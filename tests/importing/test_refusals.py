"""Claims about what is not imported: every refusal names the place and the way out, and leaves no folder behind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from importing_common import config, write_checkpoint, write_json, write_sentences
from seqloom.errors import SeqloomError
from seqloom.importing.models import import_model

Change = Callable[[Path], None]


def settings(**changes: Any) -> Change:
    """config.json with other values."""
    return lambda folder: write_json(folder / "config.json", config(**changes))


def without(key: str) -> Change:
    return lambda folder: write_json(
        folder / "config.json", {name: value for name, value in config().items() if name != key}
    )


def tokens(change: Callable[[dict[str, Any]], None]) -> Change:
    """tokenizer.json changed in place."""

    def apply(folder: Path) -> None:
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text())
        change(data)
        write_json(path, data)

    return apply


def weights(change: Callable[[dict[str, torch.Tensor]], None]) -> Change:
    """The tensors changed in place."""

    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        data = load_file(path)
        change(data)
        save_file(data, path)

    return apply


def gone(*names: str) -> Change:
    def apply(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return apply


def both(*changes: Change) -> Change:
    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply


def put(name: str, data: Any) -> Change:
    return lambda folder: write_json(folder / name, data)


def steps(*kinds: str, path: str = "1_Pooling") -> Change:
    return put(
        "modules.json", [{"type": kind, "path": path if number == 1 else ""} for number, kind in enumerate(kinds)]
    )


def broken(number: float) -> Change:
    def change(data: dict[str, torch.Tensor]) -> None:
        data["encoder.layer.1.output.dense.bias"][3] = number

    return weights(change)


KEY = "encoder.layer.0.attention.self.key.weight"
CASES: dict[str, tuple[Change, str]] = {
    # config.json
    "no configuration": (gone("config.json"), "config.json is missing"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{") and None, "config.json: "),
    "a list": (put("config.json", []), "config.json: "),
    "another architecture": (settings(model_type="roberta"), "model_type 'roberta', but only 'bert' is supported"),
    "no architecture": (without("model_type"), "no model_type"),
    "no width": (without("hidden_size"), "hidden_size"),
    "a width of text": (settings(hidden_size="16"), "hidden_size"),
    "a negative depth": (settings(num_hidden_layers=-1), "num_hidden_layers"),
    "an absurd depth": (settings(num_hidden_layers=10**9), "num_hidden_layers"),
    "an absurd vocabulary": (settings(vocab_size=2**24), "the weights do not fit config.json"),
    "an absurd width": (settings(hidden_size=65_536), "the weights do not fit config.json"),
    "heads that do not divide": (settings(num_attention_heads=3), "3 heads"),
    "relative positions": (settings(position_embedding_type="relative_key"), "position_embedding_type 'relative_key'"),
    "another activation": (settings(hidden_act="gelu_new"), "the activation 'gelu_new'"),
    "a decoder": (settings(is_decoder=True), "a decoder"),
    "pruned heads": (settings(pruned_heads={"0": [1]}), "pruned heads"),
    "code": (settings(auto_map={"AutoModel": "evil.Model"}), "asks for custom code"),
    "an unknown key": (settings(rope_theta=10_000.0), "'rope_theta' is unknown"),
    "terminal codes": (settings(**{"\x1b[2J": 1}), r"'\x1b[2J' is unknown"),
    # weights
    "no weights": (gone("model.safetensors"), "has no model.safetensors"),
    "pickled weights": (
        both(gone("model.safetensors"), put("pytorch_model.bin", [])),
        "pytorch_model.bin is a pickle",
    ),
    "weights in parts": (both(gone("model.safetensors"), put("model.safetensors.index.json", {})), "in several files"),
    "weights of another library": (
        both(gone("model.safetensors"), put("tf_model.h5", {})),
        "tf_model.h5 is not supported",
    ),
    "no weights at all": (lambda folder: (folder / "model.safetensors").write_bytes(b"") and None, "expected weights"),
    "cut weights": (
        lambda folder: (
            (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]) and None
        ),
        "expected weights",
    ),
    "a missing weight": (weights(lambda data: data.__delitem__(KEY)), f"{KEY} is missing"),
    "another shape": (weights(lambda data: data.update({KEY: torch.zeros(16, 8)})), "[16, 8], expected [16, 16]"),
    "whole numbers": (weights(lambda data: data.update({KEY: torch.zeros(16, 16).long()})), "int64 [16, 16], expected"),
    "an unknown weight": (weights(lambda data: data.update(adapter=torch.zeros(2))), "'adapter' is unexpected"),
    "a weight twice": (weights(lambda data: data.update({f"bert.{KEY}": data[KEY].clone()})), "occurs twice"),
    "more layers than said": (settings(num_hidden_layers=1), "is unexpected"),
    "not a number": (broken(float("nan")), "encoder.layer.1.output.dense.bias has NaN or infinite values"),
    "an infinity": (broken(float("inf")), "has NaN or infinite values"),
    # tokenizer.json
    "no tokenizer": (gone("tokenizer.json"), "tokenizer.json is missing"),
    "another tokenizer": (tokens(lambda data: data["model"].update(type="BPE")), "the tokenizer is 'BPE'"),
    "another normalizer": (tokens(lambda data: data["normalizer"].update(type="NFC")), "the normalizer is 'NFC'"),
    "no normalizer": (tokens(lambda data: data.update(normalizer=None)), "the normalizer is 'None'"),
    "another cut": (tokens(lambda data: data["pre_tokenizer"].update(type="Whitespace")), "pre_tokenizer is"),
    "no frame": (tokens(lambda data: data.update(post_processor=None)), "between [CLS] and [SEP]"),
    "half a frame": (tokens(lambda data: data["post_processor"]["single"].pop()), "between [CLS] and [SEP]"),
    "an added piece": (
        tokens(lambda data: data.update(added_tokens=[{"id": 99, "content": "<user>"}])),
        "the added token '<user>'",
    ),
    "no mask": (
        tokens(lambda data: data["model"]["vocab"].update({"[MASK]x": data["model"]["vocab"].pop("[MASK]")})),
        "no [MASK]",
    ),
    "a hole": (tokens(lambda data: data["model"]["vocab"].update(the=99)), "each once"),
    "another prefix": (
        tokens(lambda data: data["model"].update(continuing_subword_prefix="@@")),
        "expected [UNK] and ##",
    ),
    "more pieces than rows": (settings(vocab_size=30), "tokens, but config.json has a vocabulary of 30"),
    "another case beside it": (put("tokenizer_config.json", {"do_lower_case": False}), "do_lower_case = False"),
    # sentence vectors
    "a further step": (steps("a.Transformer", "a.Pooling", "a.Dense"), "the modules 'Transformer, Pooling, Dense'"),
    "a way out of the folder": (
        steps("a.Transformer", "a.Pooling", path="../elsewhere"),
        "is outside the checkpoint folder",
    ),
    "no pooling": (gone("1_Pooling/config.json"), "1_Pooling/config.json is missing"),
    "two poolings": (
        lambda folder: write_sentences(folder, mean_tokens=True, max_tokens=True),
        "the pooling 'mean and max'",
    ),
    "another pooling": (lambda folder: write_sentences(folder, mean_sqrt_len_tokens=True), "mean_sqrt_len_tokens"),
    "an unknown pooling": (
        put("1_Pooling/config.json", {"pooling_mode": "mean", "layers": 4}),
        "'layers' is unknown",
    ),
    "a prompt": (put("config_sentence_transformers.json", {"default_prompt_name": "query"}), "the prompt 'query'"),
    "small letters": (put("sentence_bert_config.json", {"do_lower_case": True}), "do_lower_case"),
    "texts of no token": (put("sentence_bert_config.json", {"max_seq_length": 0}), "the maximum length is 0"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a checkpoint that can be imported."""
    folder = write_checkpoint(tmp_path_factory.mktemp("whole") / "bert")
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_the_place_and_a_cure(name: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    folder, (change, message) = tmp_path / "bert", CASES[name]
    for path, data in whole.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    change(folder)
    with pytest.raises(SeqloomError) as caught:
        import_model(folder, tmp_path / "model")
    assert message in caught.value.problem
    assert caught.value.fix
    assert "\x1b" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert"]


def test_a_checkpoint_that_nothing_was_done_to_is_imported(whole: dict[str, bytes], tmp_path: Path) -> None:
    for path, data in whole.items():
        (tmp_path / "bert" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bert" / path).write_bytes(data)
    assert import_model(tmp_path / "bert", tmp_path / "model").is_dir()


@pytest.mark.parametrize(
    ("source", "out", "how", "message"),
    [
        ("nowhere", "model", {}, "there is no "),
        ("bert", "bert", {}, "already exists"),
        ("bert", "none/model", {}, "there is no folder"),
        ("bert", "model", {"weighting": "sif"}, "weighting and counts are for word vectors"),
        ("bert/model.safetensors", "model", {}, "only a file of weights"),
        ("ours", "model", {}, "is already a Seqloom model"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    source: str, out: str, how: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "bert")
    write_json(tmp_path / "ours" / "config.json", {"format": 2, "seqloom": "0.1.0"})
    with pytest.raises(SeqloomError) as caught:
        import_model(tmp_path / source, tmp_path / out, **how)
    assert message in caught.value.problem
    assert caught.value.fix
