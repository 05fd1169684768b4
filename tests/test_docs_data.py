"""What the pages about data say is so: codes, sets, formats, and the report that is shown."""

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.data import Format, Task
from seqloom.config.tokenizers import AnyTokenizer
from seqloom.data.readers.files import EXTENSIONS
from seqloom.data.sources import SOURCES
from seqloom.data.synthetic.registry import NAMES

ROOT = Path(__file__).parents[1]
CODE = re.compile(r'"([a-z]+\.[a-zA-Z_0-9]+)"')
NO_CODES = {"facts.json", "meta.json", "data.json", "paths.json", "a.conll"}  # names of files


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def shown_codes(text: str) -> set[str]:
    """The codes in the first column of the tables."""
    cells = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    return {code for cell in cells for code in re.findall(r"`([^`]+)`", cell)}


def codes_of_source() -> set[str]:
    files = [path for part in ("data", "text", "vectors") for path in (ROOT / "src" / "seqloom" / part).rglob("*.py")]
    found = {code for path in files for code in CODE.findall(path.read_text(encoding="utf-8"))}
    return found - NO_CODES


def test_every_code_is_on_the_page_and_no_other() -> None:
    assert shown_codes(page("data-codes.md")) == codes_of_source()


def test_a_code_that_is_missing_on_the_page_is_seen() -> None:
    text = page("data-codes.md")
    assert "enc.utf8" in codes_of_source() and "enc.utf8" in shown_codes(text)
    assert "enc.utf8" not in shown_codes(text.replace("`enc.utf8`", "`enc.utf9`"))


def missing(text: str, words: list[str]) -> list[str]:
    return [word for word in words if f"`{word}`" not in text]


def test_formats_tasks_tokenizers_and_extensions_are_named() -> None:
    kinds = [config.kind() for config in get_args(AnyTokenizer)]
    assert missing(page("data.md"), [*get_args(Format), *get_args(Task), *EXTENSIONS]) == []
    assert missing(page("tokenizers.md"), [*kinds, *(config.__name__ for config in get_args(AnyTokenizer))]) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_embedded_sets_has_the_right_sizes_and_parameters(name: str) -> None:
    one = NAMES[name]
    classes = f", {len(one.schema.labels)}" if one.task == "classify" else ""
    sizes = ", ".join(f"{size:,}" for size in one.sizes)
    assert f"| `{name}` | {one.task}{classes} | {sizes} |" in page("data-sets.md")
    assert missing(page("data-sets.md"), list(one.parameters)) == []


@pytest.mark.parametrize("name", SOURCES)
def test_the_table_of_known_sets_says_what_the_registry_says(name: str) -> None:
    one = SOURCES[name]
    rows = ", ".join(f"{part} {count:,}" for part, count in one.rows().items())
    hand = "" if one.has_addresses() else " (by hand)"
    line = f"| `{name}`{hand} | {one.task or 'search'} | {rows} | {one.description} | {one.license} |"
    assert line in page("data-sets.md")


def test_the_report_that_is_shown_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("data.md")
    (table,) = re.findall(r"^```csv\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "films.csv").write_text(table, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(app, ["data", "check", "films.csv"], env={"COLUMNS": "80"}).stdout
    assert printed.startswith(shown)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"text;label\na film;pos\n", 0),
        (b"text,label\ncaf\xe9 au lait,pos\n", 1),
        (b"good film,pos\nbad film,neg\nfine film,pos\n", 2),
    ],
)
def test_the_messages_that_are_shown_are_those_of_the_command(
    content: bytes, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = re.findall(r"^```console\n(.*?)^```$", page("data.md"), re.MULTILINE | re.DOTALL)
    (tmp_path / "films.csv").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["train", "films.csv", "--out", "run"])
    assert str(result.exception) == shown.split("\n")[line]
