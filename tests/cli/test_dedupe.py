"""`seqloom dedupe`: a copy in which duplicates are marked, a picture, and words about both."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.errors import ConfigError

ROWS = "text,n\nThe cat sat on the mat,1\nthe cat sat on teh mat,2\nNothing of the kind,3\n"


def dedupe(*arguments: object) -> Result:
    done = CliRunner().invoke(app, ["dedupe", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(ROWS)
    return tmp_path / "a.csv"


def marks(path: Path) -> list[str]:
    with path.open(newline="") as rows:
        return [row["duplicate_of"] for row in csv.DictReader(rows)]


def test_without_a_threshold_the_picture_and_the_one_that_was_taken_are_shown(file: Path, tmp_path: Path) -> None:
    done = dedupe(file, "-o", tmp_path / "b.csv")
    assert "0.74 threshold" in done.stdout and "threshold 0.75, the default" in done.stdout
    assert "1 duplicate among 3 rows in 1 cluster" in done.stdout
    assert marks(tmp_path / "b.csv") == ["", "1", ""]
    assert file.read_text() == ROWS


def test_with_a_threshold_no_picture_is_shown(file: Path, tmp_path: Path) -> None:
    done = dedupe(file, "-o", tmp_path / "b.csv", "--threshold", "0.95")
    assert "threshold 0" not in done.stdout and "│" not in done.stdout
    assert marks(tmp_path / "b.csv") == ["", "", ""]


def test_where_no_two_rows_are_alike_there_is_one_sentence_and_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\nThe cat sat on the mat\nNothing of the kind\n")
    shown = dedupe(tmp_path / "a.csv", "-o", tmp_path / "b.csv").stdout
    assert shown.startswith("no two rows have a similarity of 0.5 or more\nno duplicates among 2 rows")
    assert marks(tmp_path / "b.csv") == ["", ""]


def test_rows_without_text_and_lines_that_are_no_rows_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one cat\n\n \nOne cat\n")
    shown = dedupe(tmp_path / "a.txt", "-o", tmp_path / "b.csv").stdout
    assert "2 blank lines are not counted as rows" in shown and "0 rows" not in shown
    assert marks(tmp_path / "b.csv") == ["", "1"]
    (tmp_path / "a.csv").write_text("text,n\none cat,1\n,2\n")
    assert "1 row has no text\n" in dedupe(tmp_path / "a.csv", "-o", tmp_path / "c.csv").stdout
    assert marks(tmp_path / "c.csv") == ["", ""]


@pytest.mark.parametrize(("name", "begins"), [("a.svg", "<svg"), ("a.html", "<!DOCTYPE html>")])
def test_the_picture_is_saved_as_its_name_says(file: Path, tmp_path: Path, name: str, begins: str) -> None:
    dedupe(file, "-o", tmp_path / "b.csv", "--plot", tmp_path / name)
    assert (tmp_path / name).read_text().startswith(begins)


def test_a_picture_never_replaces_the_file_or_its_copy(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    file.write_text("one\ntwo\n")
    with pytest.raises(ConfigError, match="would overwrite"):
        dedupe(file, "--format", "text", "-o", tmp_path / "b.csv", "--plot", file)
    assert file.read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--by", "meaning"), "needs a model"),
        (("--by", "text", "--model", "m"), "leave out --model"),
        (("--threshold", "0.2"), r"0\.5 to 1"),
        (("--plot", "a.png"), r"\.html or \.svg"),
        (("--plot", "none/a.svg"), "does not exist"),
        (("--id", "nn"), "Did you mean 'n'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    file: Path, tmp_path: Path, options: tuple[str, ...], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        dedupe(file, "-o", tmp_path / "b.csv", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.slow
def test_a_model_compares_by_meaning(file: Path, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    run = make_run(tmp_path / "made" / "run", **make_reviews(tmp_path / "made"))
    (tmp_path / "c.csv").write_text("text\na good film\nA  good film\nbad bad bad\n")
    dedupe(tmp_path / "c.csv", "-o", tmp_path / "b.csv", "--model", run, "--threshold", "1", "--device", "cpu")
    assert marks(tmp_path / "b.csv") == ["", "1", ""]
