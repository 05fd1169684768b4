"""From files to a loss: every format goes through reading, encoding, ordering and a tiny model, cached or not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from data_settings import BY_NAME, LABELS, ROWS, SENTENCES, SETTINGS, Setting, save_picture, table
from seqloom import recipes
from seqloom.config.data import SPLITS, DataConfig, EncodingConfig, FoldSplit, RandomSplit, SplitName
from seqloom.config.heads import LabelsHeadConfig, NumberHeadConfig
from seqloom.config.inputs import AnyInput, PatchesConfig, TokensConfig, VectorsConfig
from seqloom.data.dataset import open_data
from seqloom.data.loader import collate
from seqloom.data.order import Order
from seqloom.data.prepared import Prepared, prepare
from seqloom.data.problems import Ledger
from seqloom.data.splits import SplitSummary
from seqloom.errors import RejectedError
from seqloom.events import Progress
from seqloom.nn.types import Batch, Padded, Pair, Subwords

every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
CSV = BY_NAME["csv"]


def prepared_from(config: DataConfig, cache: Path | None = None, **how: Any) -> Prepared:
    """The data of a configuration, encoded."""
    ledger = Ledger()
    return prepare(open_data(config, ledger), EncodingConfig(**how), ledger, cache=cache)


def batches_of(prepared: Prepared, part: SplitName) -> list[Batch[Any, Any]]:
    """The batches of the first epoch of a part."""
    rows = prepared.splits[part]
    order = Order(prepared.schema.target.sizes(prepared.columns)[rows], batch_tokens=200, seed=0)
    return [collate(prepared.schema, prepared.columns, rows[batch]) for batch in order.batches(0)]


def input_of(prepared: Prepared) -> AnyInput:
    """What reads the inputs of a set."""
    if prepared.tokenizer is not None:
        return TokensConfig(vocab_size=prepared.tokenizer.vocab_size)
    shape = prepared.columns["input"].values.shape
    if prepared.schema.input.name == "vectors":
        return VectorsConfig(size=shape[1])
    return PatchesConfig(height=int(prepared.columns["input"].lengths[0]), width=shape[1], channels=shape[2], patch=2)


def model_of(prepared: Prepared) -> nn.Module:
    """The smallest recipe that learns the task of a set."""
    schema, inputs = prepared.schema, input_of(prepared)
    if schema.target.name == "nothing":
        assert prepared.tokenizer is not None
        return recipes.language_model("gru", vocab_size=prepared.tokenizer.vocab_size, size="nano").build()
    if schema.target.name == "text":
        assert prepared.target_tokenizer is not None
        vocabulary = prepared.target_tokenizer.vocab_size
        name = "transformer" if schema.input.name == "picture" else "seq2seq-dot"
        return recipes.translator(name, source=inputs, target_vocab_size=vocabulary, size="nano").build()
    if schema.target.name == "series":
        tagger = recipes.tagger("bilstm", inputs=inputs, num_tags=2, size="nano")  # type: ignore[arg-type]
        numbers = NumberHeadConfig(size=prepared.columns["target"].values.shape[1])
        return msgspec.structs.replace(tagger, head=numbers).build()
    if schema.target.name == "tags":
        return recipes.tagger("bilstm", inputs=inputs, num_tags=len(schema.labels), size="nano").build()  # type: ignore[arg-type]
    return classifier_of(prepared, inputs).build()


def classifier_of(prepared: Prepared, inputs: AnyInput) -> Any:
    """A classifier, with another head for labels and numbers."""
    schema, classes = prepared.schema, max(2, len(prepared.schema.labels))
    if isinstance(inputs, PatchesConfig):
        return recipes.picture_classifier(
            "conv2d", height=inputs.height, width=inputs.width, num_classes=2, size="nano"
        )
    config = recipes.classifier("gru", inputs=inputs, num_classes=classes, size="nano")  # type: ignore[arg-type]
    if schema.target.name == "labels":
        return msgspec.structs.replace(config, head=LabelsHeadConfig(num_labels=classes))
    if schema.target.name == "numbers":
        size = int(prepared.columns["target"].lengths[0])
        return msgspec.structs.replace(config, head=NumberHeadConfig(size=size))
    return config


def require_shapes(batch: Batch[Any, Any], setting: Setting) -> None:
    """Inputs and targets have the shapes that their kinds promise."""
    rows = len(batch.ids)
    given = batch.inputs.source if setting.target == "text" else batch.inputs
    assert isinstance(batch.inputs, Pair) == (setting.target == "text")
    if setting.input == "picture":
        assert given.shape == (rows, 8, 8, 1) and 0 <= float(given.min()) <= float(given.max()) <= 1
    elif setting.input == "words":
        assert isinstance(given, Subwords) and batch.targets.shape[:2] == given.firsts.values.shape
    else:
        assert isinstance(given, Padded) and len(given.lengths) == rows
    if setting.target in ("label", "labels", "numbers"):
        assert len(batch.targets) == rows and batch.targets.ndim == (1 if setting.target == "label" else 2)
    if setting.target == "text":
        assert batch.targets.shape == batch.inputs.target.values.shape
    if setting.target == "nothing" or (setting.input, setting.target) == ("vectors", "tags"):
        assert batch.targets.shape == given.values.shape[:2]


def same_columns(one: Prepared, other: Prepared) -> bool:
    """Whether two sets have the same numbers in the same rows of the same parts."""
    return (
        one.columns.keys() == other.columns.keys()
        and all(np.array_equal(one.columns[name].values, other.columns[name].values) for name in one.columns)
        and all(np.array_equal(one.columns[name].starts, other.columns[name].starts) for name in one.columns)
        and all(np.array_equal(one.splits[part], other.splits[part]) for part in SPLITS)
        and (one.schema, one.split, one.findings) == (other.schema, other.split, other.findings)
    )


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a file may be summed, but not read as data."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a source was read again")

    monkeypatch.setattr("seqloom.data.survey.Survey.blocks", refuse)
    monkeypatch.setattr("seqloom.data.survey.Survey.again", refuse)


@every_setting
def test_files_become_batches_that_a_model_learns_from(setting: Setting, tmp_path: Path) -> None:
    prepared = prepared_from(setting.config(tmp_path))
    assert (prepared.schema.input.name, prepared.schema.target.name) == (setting.input, setting.target)
    assert {len(column.lengths) for column in prepared.columns.values()} == {
        sum(prepared.split_summary.counts.values())
    }
    torch.manual_seed(0)
    model = model_of(prepared)
    batches = batches_of(prepared, "train")
    assert sum(len(batch.ids) for batch in batches) == len(prepared.splits["train"]) > 0
    for batch in batches:
        require_shapes(batch, setting)
    loss = model.loss(batches[0])
    loss.mean.backward()
    assert bool(torch.isfinite(loss.total)) and float(loss.weight) > 0
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)


@every_setting
def test_a_cache_gives_what_memory_gives_and_reads_no_source_again(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, cache = setting.config(tmp_path), tmp_path / "cache"
    in_memory = prepared_from(config)
    assert same_columns(prepared_from(config, cache), in_memory)
    dataset = open_data(config, Ledger())
    forbid_reading(monkeypatch)
    assert same_columns(prepare(dataset, EncodingConfig(), Ledger(), cache=cache), in_memory)


def changed_csv(folder: Path) -> None:
    """One word of the table becomes another of the same length."""
    path = folder / "a.csv"
    path.write_text(path.read_text().replace("the good film 0", "one good film 0"))


def changed_picture(folder: Path) -> None:
    """A picture that the table names becomes another one; the table stays."""
    save_picture(folder / "shapes/3.png", 50)


@pytest.mark.parametrize(("name", "change"), [("csv", changed_csv), ("pictures of a table", changed_picture)])
def test_a_changed_source_is_encoded_anew(name: str, change: Callable[[Path], None], tmp_path: Path) -> None:
    config, cache = BY_NAME[name].config(tmp_path), tmp_path / "cache"
    before = prepared_from(config, cache)
    change(tmp_path)
    after = prepared_from(config, cache)
    assert not same_columns(before, after)
    assert same_columns(after, prepared_from(config))


@pytest.mark.parametrize("name", ["input.values", "input.starts", "target.values", "split.values", "facts.json"])
def test_a_flipped_bit_in_the_cache_is_encoded_anew(name: str, tmp_path: Path) -> None:
    config, cache = CSV.config(tmp_path), tmp_path / "cache"
    before = prepared_from(config, cache)
    columns = {key: column.values.copy() for key, column in before.columns.items()}
    (path,) = cache.rglob(name)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    after = prepared_from(config, cache)
    assert all(np.array_equal(after.columns[key].values, values) for key, values in columns.items())
    (mended,) = cache.rglob(name)
    assert mended.read_bytes() != damaged


def test_a_source_that_changes_while_it_is_encoded_is_not_kept(tmp_path: Path) -> None:
    config, cache = CSV.config(tmp_path), tmp_path / "cache"
    dataset, told = open_data(config, Ledger()), []

    def watch(progress: Progress) -> None:
        if progress.stage == "rows encoded" and not told:
            told.append(changed_csv(tmp_path))

    with pytest.raises(RejectedError, match=r"data\.changed: the file changed while it was read: .* before, .* after"):
        prepare(dataset, EncodingConfig(), Ledger(), cache=cache, show=watch)
    assert not list(cache.glob("*/facts.json"))


def test_progress_tells_the_share_of_what_was_read_and_encoded(tmp_path: Path) -> None:
    told: list[Progress] = []
    prepare(open_data(CSV.config(tmp_path), Ledger()), EncodingConfig(), Ledger(), show=told.append)
    assert {progress.stage for progress in told} == {"rows read", "rows encoded"}
    assert all(0 < progress.share <= 1 for progress in told if progress.share is not None)
    assert (told[-1].done, told[-1].share) == (ROWS, 1.0)
    assert max(progress.share or 0 for progress in told if progress.stage == "rows read") == 1.0


def test_the_split_is_written_down_as_it_was_drawn(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CSV.config(tmp_path), split=RandomSplit(dev_size=0.2, test_size=0.1, split_seed=3))
    prepared = prepared_from(config)
    written = msgspec.json.decode(prepared.split_summary.to_json())
    assert written["counts"] == {part: len(rows) for part, rows in prepared.splits.items()}
    assert written["rule"] == msgspec.to_builtins(config.split)
    assert prepared.split_summary == SplitSummary(
        RandomSplit(dev_size=0.2, test_size=0.1, split_seed=3), written["counts"]
    )
    every = np.sort(np.concatenate(list(prepared.splits.values())))
    assert every.tolist() == list(range(ROWS))
    assert 0.6 * ROWS <= written["counts"]["train"] <= 0.8 * ROWS


def test_every_row_is_in_dev_in_exactly_one_fold(tmp_path: Path) -> None:
    config, seen = CSV.config(tmp_path), list[str]()
    for fold in range(4):
        dataset = open_data(
            msgspec.structs.replace(config, split=FoldSplit(folds=4, fold=fold, split_seed=1)), Ledger()
        )
        dev = [str(example.input) for part, example in dataset.rows(Ledger()) if part == "dev"]
        assert len(dev) == ROWS // 4
        seen += dev
    assert sorted(seen) == sorted(SENTENCES)


def test_parts_that_are_given_are_the_parts_and_unseen_labels_have_no_number(tmp_path: Path) -> None:
    train = CSV.config(tmp_path).train
    for part, label in (("dev", "pos"), ("test", "neg")):
        names = [f"a new film, number {number}".replace(",", "") for number in range(200)]
        labels = [*([label, *LABELS] * 5)[:199], "odd"]
        (tmp_path / f"{part}.csv").write_text(table(names, labels, header="text label"))
    config = DataConfig(train=train, dev=(str(tmp_path / "dev.csv"),), test=(str(tmp_path / "test.csv"),))
    prepared = prepared_from(config)
    assert prepared.split_summary.counts == {"train": ROWS, "dev": 200, "test": 200}
    assert prepared.schema.labels == ("neg", "pos")
    targets = prepared.columns["target"].values
    for part in ("dev", "test"):
        assert np.flatnonzero(targets[prepared.splits[part]] == -1).tolist() == [199]
    assert "label.unseen" in [finding.code for finding in prepared.findings]


def test_a_part_is_read_as_the_training_part_is(tmp_path: Path) -> None:
    train = BY_NAME["numbers"].config(tmp_path).train
    (tmp_path / "dev.csv").write_text("text,score\na film,much\nanother,1\n")
    with pytest.raises(RejectedError, match=r"dev\.csv:2:8: type\.number: expected a number, found 'much'"):
        prepared_from(DataConfig(train=train, dev=(str(tmp_path / "dev.csv"),)))


def test_a_part_whose_labels_are_lists_is_not_read_as_another_task(tmp_path: Path) -> None:
    train = BY_NAME["jsonl"].config(tmp_path).train
    (tmp_path / "dev.jsonl").write_text('{"text": "a film", "label": ["pos"]}\n')
    with pytest.raises(RejectedError, match=r"dev\.jsonl:1:20: type\.label: expected a label, found list"):
        prepared_from(DataConfig(train=train, dev=(str(tmp_path / "dev.jsonl"),)))


@pytest.mark.parametrize("cached", [False, True])
def test_rows_that_are_too_long_are_refused_when_all_is_encoded(cached: bool, tmp_path: Path) -> None:
    config, cache = CSV.config(tmp_path), tmp_path / "cache" if cached else None
    with pytest.raises(
        RejectedError, match=rf"seq\.too_long: length 7; at most 6 is allowed[\s\S]*{ROWS} problems in all"
    ):
        prepared_from(config, cache, max_length=6, overlong="error")
    assert not cached or not list((tmp_path / "cache").glob("*/facts.json"))
    assert prepared_from(config, cache, max_length=6).columns["input"].lengths.max() == 6


@pytest.mark.parametrize("name", ["vectors", "pairs", "conll", "pictures", "npz tags"])
def test_a_language_model_is_made_of_text_alone(name: str, tmp_path: Path) -> None:
    config = msgspec.structs.replace(BY_NAME[name].config(tmp_path), task="lm")
    with pytest.raises(RejectedError, match=r"data\.column: a language model reads text"):
        open_data(config, Ledger())


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../outside.png", "file.escape"),
        ("/dev/null", "file.escape"),
        ("link.png", "file.escape"),
        ("circle.png", "file.missing"),
        ("n" * 300 + ".png", "file.missing"),
        ("shapes/none.png", "file.missing"),
        ("shapes", "file.missing"),
        ("a.csv", "picture.damaged"),
        ("large.png", "picture.size"),
    ],
)
def test_a_path_in_a_table_leads_to_a_picture_inside_its_folder(name: str, code: str, tmp_path: Path) -> None:
    from PIL import Image

    folder = tmp_path / "data"
    folder.mkdir()
    config = BY_NAME["pictures of a table"].config(folder)
    save_picture(tmp_path / "outside.png", 0)
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "circle.png").symlink_to(folder / "circle.png")
    Image.new("L", (9, 9)).save(folder / "large.png")
    with (folder / "a.csv").open("a") as file:
        file.writelines([f"{name},pos\n"])
    with pytest.raises(RejectedError) as caught:
        prepared_from(config)
    assert caught.value.codes == (code,)
    assert str(caught.value).startswith(f"{folder / 'a.csv'}:{ROWS + 2}:1: {code}: ")


def test_tables_of_pictures_may_be_moved_with_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    before = prepared_from(BY_NAME["pictures of a table"].config(folder))
    shutil.move(folder, tmp_path / "there")
    assert same_columns(before, prepared_from(DataConfig(train=(str(tmp_path / "there/a.csv"),))))
