"""A model folder comes back bit for bit, or not at all."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom import bundle as folder
from seqloom.bundle import FORMAT, Bundle, built, bundle_files, read_bundle
from seqloom.cli.recipes import make
from seqloom.config.heads import CrfHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import ElementModelConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.config.tokenizers import CharactersConfig, WordsConfig
from seqloom.data.kinds.kind import TargetKind
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DamagedError, DataError, SeqloomError
from seqloom.files.folders import commit_folder
from seqloom.tasks.task import ModelSpec
from seqloom.text.tokenizer import fit

FILES = ("model.safetensors", "config.json", "tokenizer.json", "labels.json", "card.md", "manifest.json")
TAGGER = ElementModelConfig(
    encoder=EncoderConfig(width=4, input=TokensConfig(vocab_size=9)), head=CrfHeadConfig(labels=("O", "B-X", "I-X"))
)
SHAPES = [
    (make("lstm", "classifier", "nano"), "label", ("x", "y")),
    (make("gpt", "language-model", "nano"), "nothing", ()),
    (make("seq2seq-additive", "translator", "nano"), "text", ()),
    (TAGGER, "tags", ("O", "B-X", "I-X")),
]


def bundle_of(config, target: TargetKind, labels: tuple[str, ...]) -> Bundle:
    tokenizer = fit(WordsConfig(), ["a b c"])
    spec = ModelSpec(Schema("text", target, labels), tokenizer, tokenizer if target == "text" else None)
    return Bundle(config, spec, config.build().state_dict(), {"step": 3})


@pytest.mark.parametrize(("config", "target", "labels"), SHAPES, ids=[shape[1] for shape in SHAPES])
def test_every_shape_of_model_comes_back_bit_for_bit(config, target, labels, write) -> None:
    bundle = bundle_of(config, target, labels)
    found = read_bundle(write(bundle))
    assert found.config == bundle.config and found.notes == bundle.notes
    assert found.spec.schema == bundle.spec.schema
    assert (found.spec.target_tokenizer is found.spec.tokenizer) == (target == "text")
    model = built(found)
    assert model.state_dict().keys() == bundle.weights.keys() and not model.training
    assert all(torch.equal(weight, bundle.weights[name]) for name, weight in model.state_dict().items())


def test_tied_weights_are_written_once_and_tied_again(write) -> None:
    bundle = bundle_of(*SHAPES[1])
    path = write(bundle)
    table = bundle.weights["head.table"]
    assert len((path / "model.safetensors").read_bytes()) < 4 * sum(one.numel() for one in bundle.weights.values())
    model = built(read_bundle(path))
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert "head.table" not in names.values() and torch.equal(model.head.table, table)
    with torch.no_grad():
        model.head.table.zero_()
    assert not model.decoder.input.table.any()


def test_tied_weights_with_two_values_are_refused(write) -> None:
    bundle = bundle_of(*SHAPES[1])
    other = {**bundle.weights, "head.table": bundle.weights["head.table"] + 1}
    with pytest.raises(ConfigError, match=r"'head.table' and 'decoder.input.table' are tied"):
        bundle_files(bundle._replace(weights=other), "")


def test_a_target_tokenizer_of_its_own_has_a_file_of_its_own(write) -> None:
    bundle = bundle_of(*SHAPES[2])
    own = fit(CharactersConfig(), ["abc"])
    path = write(bundle._replace(spec=bundle.spec._replace(target_tokenizer=own)))
    assert read_bundle(path).spec.target_tokenizer.to_json() == own.to_json()


def test_a_copied_and_renamed_folder_is_the_same_model(classifier, write, tmp_path) -> None:
    copy = shutil.copytree(write(classifier), tmp_path / "my model 2")
    assert torch.equal(read_bundle(copy).weights["head.linear.weight"], classifier.weights["head.linear.weight"])


def test_equal_bundles_have_equal_bytes_and_draw_nothing(classifier, write) -> None:
    before = torch.get_rng_state()
    assert bundle_files(classifier, "# A") == bundle_files(classifier, "# A")
    built(read_bundle(write(classifier)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture(scope="module")
def committed(classifier, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "model"
    commit_folder(path, bundle_files(classifier, "# A model\n"))
    return path


@pytest.mark.slow
@settings(max_examples=40)
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_any_single_changed_byte_of_any_file_is_detected(committed, name, where, change) -> None:
    path = committed / name
    data = path.read_bytes()
    at = int(where * len(data))
    try:
        path.write_bytes(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
        with pytest.raises(DamagedError, match=name):
            read_bundle(committed)
    finally:
        path.write_bytes(data)


@settings(max_examples=30)
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True))
def test_any_truncated_file_is_detected(committed, name, where) -> None:
    path = committed / name
    data = path.read_bytes()
    try:
        path.write_bytes(data[: int(where * len(data))])
        with pytest.raises(DamagedError, match=name):
            read_bundle(committed)
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_is_named(classifier, write, name) -> None:
    path = write(classifier)
    (path / name).unlink()
    with pytest.raises(DamagedError, match=name):
        read_bundle(path)


def test_what_does_not_belong_is_named(classifier, write) -> None:
    path = write(classifier)
    (path / "extra.pt").write_bytes(b"\x80\x04.")
    with pytest.raises(DamagedError, match=r"extra\.pt"):
        read_bundle(path)


def test_the_message_tells_both_sums(classifier, write) -> None:
    path = write(classifier)
    (path / "labels.json").write_text('["good", "bad"]\n')
    with pytest.raises(DamagedError, match=r"expected \d+ bytes, sha256 [0-9a-f]{64}; found \d+ bytes, sha256"):
        read_bundle(path)


def _swapped(tokenizer: bytes) -> bytes:
    """The tokenizer with two words in each other's place."""
    document = json.loads(tokenizer)
    words = document["data"]["words"]
    words[0], words[1] = words[1], words[0]
    return json.dumps(document).encode()


def test_two_tokens_in_each_others_place_are_detected_although_the_manifest_is_right(classifier, write) -> None:
    path = write(classifier, tokenizer__json=_swapped(classifier.spec.tokenizer.to_json().encode()))
    with pytest.raises(DamagedError, match=r"tokenizer\.json: the weights should have sha256 [0-9a-f]{64}"):
        read_bundle(path)


def test_labels_in_another_order_are_detected_although_the_manifest_is_right(classifier, write) -> None:
    with pytest.raises(DamagedError, match=r"labels\.json: the weights should have sha256"):
        read_bundle(write(classifier, labels__json=b'["good", "bad"]'))


def test_without_the_sums_in_the_weights_a_swapped_vocabulary_is_believed(classifier, write, monkeypatch) -> None:
    monkeypatch.setattr(folder, "_require_bound", lambda *_: None)
    path = write(classifier, tokenizer__json=_swapped(classifier.spec.tokenizer.to_json().encode()))
    found = read_bundle(path).spec.tokenizer
    assert found.encode(["a"]).values.tolist() != classifier.spec.tokenizer.encode(["a"]).values.tolist()


def _changed(write, bundle, **fields) -> Path:
    document = json.loads(bundle_files(bundle, "")["config.json"]) | fields
    return write(bundle, config__json=json.dumps(document).encode())


def test_a_newer_format_is_refused_with_the_cure(classifier, write) -> None:
    path = _changed(write, classifier, format=FORMAT + 1, seqloom="9.0")
    said = rf"format {FORMAT + 1} of Seqloom 9\.0; .* Fix: `pip install --upgrade seqloom`"
    with pytest.raises(ConfigError, match=said):
        read_bundle(path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": "tag"}, "the task is 'tag', but the target is label, which belongs to the task classify"),
        ({"surprise": 1}, "surprise"),
        ({"schema": {"input": "smell", "target": "label"}}, "smell"),
        ({"model": {"kind": "os.system"}}, "unknown kind 'os.system'"),
        ({"model": {"kind": "sequence-model", "_target_": "x"}}, "unknown key '_target_'"),
        ({"sizes": "no"}, "sizes"),
        ({"calibration": {"temperature": 0.0}}, "temperature"),
        ({"calibration": {"thresholds": [0.5]}}, "1 thresholds for 2 labels"),
        ({"calibration": {"thresholds": [0.5, 1.5]}}, "thresholds"),
        ({"units": [[0.0, 1.0]]}, "1 units for 0 numbers"),
    ],
)
def test_a_configuration_that_describes_no_model_is_refused(classifier, write, fields, said) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        read_bundle(_changed(write, classifier, **fields))
    assert "config.json" in str(refused.value)


def test_weights_that_do_not_fit_the_model_are_named(classifier, write) -> None:
    wider = bundle_of(*SHAPES[0])
    document = json.loads(bundle_files(wider, "")["config.json"])
    with pytest.raises(ConfigError, match=r"is missing; .* is missing; .* is missing, and \d+ more"):
        read_bundle(_changed(write, classifier, model=document["model"]))


def test_weights_of_another_shape_are_named_with_both_shapes(classifier) -> None:
    weights = {**classifier.weights, "head.linear.bias": torch.zeros(3)}
    with pytest.raises(ConfigError, match=r"'head.linear.bias' is float32 \[3\], expected float32 \[2\]"):
        bundle_files(classifier._replace(weights=weights), "")


def test_a_weight_too_many_is_named(classifier) -> None:
    weights = {**classifier.weights, "backdoor": torch.zeros(3)}
    with pytest.raises(ConfigError, match="'backdoor' is unexpected"):
        bundle_files(classifier._replace(weights=weights), "")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_neither_written_nor_read(classifier, write, value, monkeypatch) -> None:
    weights = {**classifier.weights, "head.linear.bias": torch.tensor([0.0, value])}
    broken = classifier._replace(weights=weights)
    with pytest.raises(DataError, match=r"'head.linear.bias' has NaN or infinite values"):
        bundle_files(broken, "")
    with monkeypatch.context() as unguarded:
        unguarded.setattr(folder, "not_finite", lambda _: [])
        path = write(broken)
    with pytest.raises(DamagedError, match=r"head\.linear\.bias"):
        read_bundle(path)


def test_notes_that_are_no_json_are_refused_and_an_infinite_score_is_null(classifier, write) -> None:
    with pytest.raises(ConfigError, match="notes are not JSON"):
        bundle_files(classifier._replace(notes={"model": torch.zeros(1)}), "")
    noted = classifier._replace(notes={"perplexity": float("inf"), "f1": float("nan"), "loss": 0.5})
    assert read_bundle(write(noted)).notes == {"perplexity": None, "f1": None, "loss": 0.5}


@pytest.mark.parametrize("name", ["weights.pt", "model.bin", "last.ckpt", "model.safetensors", "model.pkl"])
def test_a_file_is_no_model_and_a_pickle_is_never_read(tmp_path, name) -> None:
    canary = tmp_path / "canary"
    (tmp_path / name).write_bytes(b"cpathlib\nPath.touch\n(V" + str(canary).encode() + b"\ntR.")
    with pytest.raises(ConfigError, match=r"pickles .* are never read"):
        read_bundle(tmp_path / name)
    assert not canary.exists()


def test_a_folder_of_something_else_and_no_folder_are_told_apart(tmp_path) -> None:
    (tmp_path / "modle").mkdir()
    (tmp_path / "model.csv").touch()  # nearer, and no model
    with pytest.raises(ConfigError, match="is not a model folder"):
        read_bundle(tmp_path / "modle")
    with pytest.raises(ConfigError, match=r"there is no model .* Did you mean modle\?"):
        read_bundle(tmp_path / "model")


def test_a_checkpoint_is_not_taken_for_a_model(tmp_path) -> None:
    commit_folder(tmp_path / "step-1", {"model.safetensors": b"", "state.json": b"{}"})
    with pytest.raises(SeqloomError, match="is not a model folder"):
        read_bundle(tmp_path / "step-1")


class BuiltError(Exception):
    """The model was built."""


def _refuse_to_build(_: object) -> None:
    raise BuiltError


@pytest.fixture
def large(classifier, write) -> Path:
    """A configuration of four billion weights beside a file of a kilobyte."""
    config = json.loads(make("lstm", "classifier", "nano").to_json())
    config["encoder"]["input"]["vocab_size"] = 2**24
    config["encoder"]["width"] = 256
    return _changed(write, classifier, model=config)


def test_a_small_file_cannot_make_a_large_model(large, monkeypatch) -> None:
    monkeypatch.setattr(folder, "outline_of", _refuse_to_build)
    with pytest.raises(ConfigError, match=r"has 4,\d{3},\d{3},\d{3} weights, but the file has \d+,?\d* bytes"):
        read_bundle(large)


def test_without_the_guard_the_large_model_would_be_built(large, monkeypatch) -> None:
    monkeypatch.setattr(folder, "require_covered", lambda *_: None)
    monkeypatch.setattr(folder, "outline_of", _refuse_to_build)
    with pytest.raises(BuiltError):
        read_bundle(large)


def test_without_the_sums_a_changed_weight_is_believed(classifier, write, monkeypatch) -> None:
    monkeypatch.setattr(folder, "read_file_of", lambda path, name: (path / name).read_bytes())
    path = write(classifier)
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[:-4] + bytes(3) + b"\x3f")
    found = read_bundle(path).weights
    assert any(not torch.equal(weight, classifier.weights[name]) for name, weight in found.items())
