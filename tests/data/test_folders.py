"""Folders of text files by class: a stable order, nothing passed over in silence, nothing from outside."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.errors import ConfigError


def test_each_file_is_a_row_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("pos/b.txt", "neg/2.txt", "pos/a.TXT", "neg/10.txt"):
        write(tmp_path / name, f"text of\r\n{name}\r\n")
    write(tmp_path / "pos/c.txt.gz", gzip.compress(b"packed"))
    found = read(tmp_path)
    assert found.table.columns == ("text", "label")
    names = ["neg/10.txt", "neg/2.txt", "pos/a.TXT", "pos/b.txt"]
    expected = [(f"text of\r\n{name}\r\n", name.split("/")[0]) for name in names]
    assert found.values == [*expected, ("packed", "pos")]
    assert found.records[0].path == str(tmp_path / "neg/10.txt")
    assert not found.ledger.counts


@pytest.mark.parametrize("dev", ["dev", "valid", "validation", "val"])
def test_parts_become_a_column(tmp_path: Path, dev: str) -> None:
    for part in ("train", dev, "test"):
        for label in ("neg", "pos"):
            write(tmp_path / part / label / "1.txt", "text")
    found = read(tmp_path)
    assert found.table.columns == ("text", "label", "split")
    labels = {(label, part) for _, label, part in found.values}
    assert labels == {(label, part) for label in ("neg", "pos") for part in ("train", "dev", "test")}


def test_classes_named_like_parts_are_classes(tmp_path: Path) -> None:
    write(tmp_path / "train/1.txt", "a locomotive")
    write(tmp_path / "test/1.txt", "an exam")
    assert read(tmp_path).values == [("an exam", "test"), ("a locomotive", "train")]


def test_what_is_passed_over_is_told(tmp_path: Path) -> None:
    write(tmp_path / "pos/1.txt", "text")
    write(tmp_path / "pos/.DS_Store", "x")
    write(tmp_path / ".git/x", "x")
    write(tmp_path / "pos/notes.md", "x")
    write(tmp_path / "pos/deeper/2.txt", "x")
    write(tmp_path / "README", "x")
    (tmp_path / "neg").mkdir()
    found = read(tmp_path)
    assert found.values == [("text", "pos")]
    assert found.ledger.counts == {"folder.hidden": 2, "folder.loose": 1, "folder.other": 2, "folder.empty_class": 1}
    assert found.ledger.samples["folder.empty_class"][0].place.path == str(tmp_path / "neg")
    texts = {code: samples[0].text for code, samples in found.ledger.samples.items()}
    assert texts["folder.hidden"] == "1 hidden file, skipped"
    assert texts["folder.loose"] == "1 file next to the class folders, skipped"
    assert texts["folder.other"] == "2 files without the extension .txt in class 'pos', skipped"


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "set"
    write(root / "pos/1.txt", "text")
    outside = write(tmp_path / "secret.txt", "secret")
    (root / "pos/inside.txt").symlink_to(root / "pos/1.txt")
    assert len(read(root).records) == 2
    (root / "pos/2.txt").symlink_to(outside)
    assert refused(root).startswith(f"{root / 'pos/2.txt'}: file.escape: this link leads out of the folder")
    (root / "pos/2.txt").unlink()
    (root / "neg").symlink_to(tmp_path)
    assert refused(root).startswith(f"{root / 'neg'}: file.escape: ")


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "pos/1.txt", "text")
    (tmp_path / "pos/2.txt").symlink_to(tmp_path / "pos/3.txt")
    assert refused(tmp_path).startswith(f"{tmp_path / 'pos/2.txt'}: file.missing: ")


def test_a_folder_without_class_folders_is_refused(tmp_path: Path) -> None:
    assert "Fix: give a file, or a folder with a subfolder of files for each class" in refused(tmp_path)
    write(tmp_path / "README", "text")
    write(tmp_path / ".hidden.csv", "text")
    write(tmp_path / "1.txt", "text")
    message = f"{tmp_path}: file.is_dir: this is a folder without class folders. Fix: give the file in it: "
    assert refused(tmp_path) == f"{message}{tmp_path / '1.txt'}."
    write(tmp_path / "2.csv.gz", "text")
    assert "Fix: give a file, or a folder with a subfolder of files for each class" in refused(tmp_path)
    (tmp_path / "pos").mkdir()
    assert refused(tmp_path).startswith(f"{tmp_path}: data.empty: ")


def test_texts_and_pictures_together_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "pos/1.txt", "text")
    write(tmp_path / "pos/1.png", b"\x89PNG\r\n\x1a\n")
    assert refused(tmp_path).startswith(f"{tmp_path}: folder.mixed: ")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "text")
    assert refused(path, format="folder").startswith(f"{path}: file.format: ")


@pytest.mark.parametrize("reading", [{"unit": "paragraph"}, {"template": "{text}"}])
def test_a_file_of_a_class_is_never_cut(tmp_path: Path, reading: dict[str, str]) -> None:
    write(tmp_path / "pos/1.txt", "text")
    with pytest.raises(ConfigError, match="cannot be used with the format folder"):
        read(tmp_path, **reading)


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_give_records_or_a_place(tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    root = tmp_path_factory.mktemp("bytes")
    write(root / "neg/1.txt", "text")

    @settings(max_examples=examples)
    @given(any_bytes)
    def law(data: bytes) -> None:
        write(root / "pos/1.txt", data)
        require_records_or_a_place(root)

    law()
