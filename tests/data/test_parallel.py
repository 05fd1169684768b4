"""Two files, line by line: never a pair out of step."""

import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.errors import ConfigError


def two(folder: Path, source: bytes | str, target: bytes | str) -> tuple[Path, Path]:
    return write(folder / "train.en", source), write(folder / "train.de", target)


def test_lines_are_paired(tmp_path: Path) -> None:
    source, target = two(tmp_path, "a\nb\r\nc", "x\ny\nz\n")
    found = read(source, target)
    assert found.table.columns == ("source", "target")
    assert found.values == [("a", "x"), ("b", "y"), ("c", "z")]
    assert found.table.locate(found.records[1], 0) == (str(source), 2, 1)
    assert found.table.locate(found.records[1], 1) == (str(target), 2, 1)


def test_one_side_may_be_packed(tmp_path: Path) -> None:
    source = write(tmp_path / "train.en.xz", lzma.compress(b"a\nb\n"))
    assert read(source, write(tmp_path / "train.de", "x\ny\n")).values == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize(("left", "right"), [(1_000, 999), (999, 1_000), (0, 3), (400_000, 2)])
def test_different_counts_are_refused_with_both(tmp_path: Path, left: int, right: int) -> None:
    source, target = two(tmp_path, "word\n" * left, "Wort\n" * right)
    expected = f"{source}:{min(left, right) + 1}: par.count: {left:,} lines, but {right:,} in {target}."
    assert refused(source, target).startswith(expected)


def test_a_bare_return_breaks_no_line(tmp_path: Path) -> None:
    source, target = two(tmp_path, "a\rb\nc\u2028d\n", "x\ny\n")
    assert read(source, target).values == [("a\rb", "x"), ("c\u2028d", "y")]


def test_blank_lines_are_refused_on_the_side_where_they_are(tmp_path: Path) -> None:
    source, target = two(tmp_path, "a\n\nc\n \n", "x\ny\n\t\n\n")
    assert [line.split(" Fix:")[0] for line in refused(source, target).split("\n")] == [
        f"{source}:2: par.blank: a blank source line.",
        f"{source}:4: par.blank: a blank line on both sides.",
        f"{target}:3: par.blank: a blank target line.",
        "3 problems in all.",
    ]


def test_a_file_is_not_its_own_translation(tmp_path: Path) -> None:
    source, target = two(tmp_path, "a\nb\n", "a\r\nb")
    (tmp_path / "link.de").symlink_to(source)
    assert refused(source, source).startswith(f"{source}: par.same_file: source and target are the same file.")
    assert ": par.same_file: source and target are the same file." in refused(source, tmp_path / "link.de")
    assert refused(source, target).startswith(f"{target}: par.same_file: every line is the same in source and target.")


def test_empty_files_are_refused(tmp_path: Path) -> None:
    assert "train.en: data.empty: " in refused(*two(tmp_path, "", ""))


def test_a_missing_side_is_named(tmp_path: Path) -> None:
    source = write(tmp_path / "train.en", "a\n")
    assert refused(source, tmp_path / "train.de").startswith(f"{tmp_path / 'train.de'}: file.missing: ")


def test_damage_is_placed_in_the_file_that_has_it(tmp_path: Path) -> None:
    source, target = two(tmp_path, "a\nb\n", b"x\n\xff\n")
    assert refused(source, target).startswith(f"{target}:2:1: enc.utf8: ")


@pytest.mark.parametrize("count", [1, 3])
def test_parallel_text_is_two_files(tmp_path: Path, count: int) -> None:
    paths = [write(tmp_path / f"{number}.txt", f"{number}\n") for number in range(count)]
    with pytest.raises(ConfigError, match=f"needs two files, source and target, found {count}"):
        read(*paths, format="parallel")


@pytest.mark.parametrize("names", [("a.csv", "b.csv"), ("a.txt", "b.jsonl"), ("a.tsv.gz", "b.de")])
def test_two_tables_are_parallel_text_only_when_that_is_said(tmp_path: Path, names: tuple[str, str]) -> None:
    table = next(name for name in names if name.split(".")[1] in ("csv", "tsv", "jsonl"))
    paths = [write(tmp_path / name, "text\n") for name in names]
    message = refused(*paths)
    assert message.startswith(f"{tmp_path / table}: file.format: two files are read as parallel text, but this is ")
    assert "--dev or --test" in message and "--format parallel" in message
    source, target = write(tmp_path / "a.csv", "one\ntwo\n"), write(tmp_path / "b.csv", "eins\nzwei\n")
    assert read(source, target, format="parallel").values == [("one", "eins"), ("two", "zwei")]


def test_of_too_many_paths_those_that_are_missing_are_named(tmp_path: Path) -> None:
    here = write(tmp_path / "here.csv", "text\na\n")
    gone = [tmp_path / "gone", tmp_path / "away.csv"]
    with pytest.raises(ConfigError, match=rf"found 3 \({gone[0]} and {gone[1]} do not exist\). .*--dev"):
        read(here, *gone)
    with pytest.raises(ConfigError, match=r"two files of parallel text, found 3\. Fix"):
        read(here, here, here)


@pytest.mark.parametrize("name", ["my file.csv", "a file of mine.csv"])
def test_a_name_with_spaces_is_asked_for_in_quotes(tmp_path: Path, name: str) -> None:
    first, *rest = str(write(tmp_path / name, "text\na\n")).split(" ")
    with pytest.raises(ConfigError, match=f"'{tmp_path / name}' was given without quotes. Fix: put quotes around"):
        read(Path(first), *map(Path, rest))


def test_two_files_are_two_even_if_a_third_has_both_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in [("a", "one\n"), ("b", "eins\n"), ("a b", "three\n")]:
        write(tmp_path / name, text)
    assert read(Path("a"), Path("b")).values == [("one", "eins")]


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_give_records_or_a_place(tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    folder = tmp_path_factory.mktemp("bytes")

    @settings(max_examples=examples)
    @given(any_bytes, any_bytes)
    def law(source: bytes, target: bytes) -> None:
        require_records_or_a_place(*two(folder, source, target))

    law()
