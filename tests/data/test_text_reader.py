"""Plain text by line, paragraph and file, and lines cut by a template."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.data.readers import text as text_reader
from seqloom.data.readers.text import NoFit, Template
from seqloom.errors import ConfigError


def test_lines_are_rows_and_blank_ones_are_counted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.txt", " one \n\n \t\ntwo\n"))
    assert found.table.columns == ("text",)
    assert found.values == [(" one ",), ("two",)]
    assert [record.line for record in found.records] == [1, 4]
    assert found.ledger.counts == {"text.blank": 2}


def test_paragraphs_end_at_blank_lines(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.txt", "\na\nb\n\n  \nc\r\n\r\nd"), unit="paragraph")
    assert found.values == [("a\nb",), ("c",), ("d",)]
    assert [record.line for record in found.records] == [2, 6, 8]


def test_a_file_as_one_row_keeps_every_character(tmp_path: Path) -> None:
    content = "\n a\r\nb\rc\u2028\n\n"
    assert read(write(tmp_path / "x.txt", content), unit="file").values == [(content,)]


def test_one_row_may_be_a_line_longer_than_any_other_unit_allows(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"a " * (9 << 20))
    assert "line.too_long" in refused(path)
    assert len(read(path, unit="file").values[0][0]) == 18 << 20


@pytest.mark.parametrize("unit", ["line", "paragraph", "file"])
@pytest.mark.parametrize("content", ["", "\n\n \n"])
def test_a_text_without_text_is_refused(tmp_path: Path, unit: str, content: str) -> None:
    path = write(tmp_path / "x.txt", content)
    assert refused(path, unit=unit).startswith(f"{path}: data.empty: ")


@pytest.mark.parametrize(("unit", "place"), [("paragraph", ":3:"), ("file", ":")])
def test_a_row_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str, place: str
) -> None:
    monkeypatch.setattr(text_reader, "LARGEST_FILE", 100)
    monkeypatch.setattr(text_reader, "LARGEST_PARAGRAPH", 100)
    path = write(tmp_path / "x.txt", "short\n\n" + "a line of text\n" * 20)
    assert refused(path, unit=unit).startswith(f"{path}{place} text.too_long: ")


@pytest.mark.parametrize(
    ("template", "line", "fields"),
    [
        ("{label} {text}", "DESC:manner How did it go ?", ("DESC:manner", "How did it go ?")),
        ("IN: {source} OUT: {target}", "IN: jump OUT: I_JUMP OUT: x", ("jump", "I_JUMP OUT: x")),
        ("{label}\\t{text}\\t{rest}", "ham\tGo until\t\t", ("ham", "Go until", "\t")),
        ("({a}|||{b})", "(x|||)", ("x", "")),
        ("{text}", "", ("",)),
        ("a{x}aa", "aaaa", ("a",)),
    ],
)
def test_a_template_cuts_at_the_first_mark(template: str, line: str, fields: tuple[str, ...]) -> None:
    assert Template.parse(template).cut(line) == fields


@pytest.mark.parametrize(
    ("template", "line", "why"),
    [
        ("IN: {source} OUT: {target}", "in: jump OUT: x", NoFit("IN: ", 0)),
        ("IN: {source} OUT: {target}", "IN: jump", NoFit(" OUT: ", 4)),
        ("{x}aa", "a", NoFit("aa", 0)),
        ("a{x}aa", "aa", NoFit("aa", 1)),
    ],
)
def test_a_line_that_does_not_fit_says_which_mark_is_missing(template: str, line: str, why: NoFit) -> None:
    assert Template.parse(template).cut(line) == why


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "has no field"),
        ("text", "has no field"),
        ("}{text}", "has no field"),
        ("{a}{b}", "has no mark before '{b}'"),
        ("{a} {a}", "names 'a' twice"),
        ("{a} {b", "do not match"),
        ("{a}} {b}", "do not match"),
        ("{} {b}", "do not match"),
        ("{a}\n{b}", "contains a line end"),
    ],
)
def test_a_template_without_meaning_is_refused_before_reading(tmp_path: Path, template: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(write(tmp_path / "x.txt", b"\xff"), template=template)


def test_a_template_and_another_unit_than_lines_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--template is for lines, but --unit is file"):
        read(write(tmp_path / "x.txt", "a b"), template="{a} {b}", unit="file")


def test_rows_of_a_template_know_their_columns_and_bad_ones_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "IN: jump OUT: J\nIN: walk twice OUT: W W\n")
    found = read(path, template="IN: {source} OUT: {target}")
    assert found.table.columns == ("source", "target")
    assert found.values == [("jump", "J"), ("walk twice", "W W")]
    assert found.table.locate(found.records[1], 1) == (str(path), 2, 21)
    message = refused(write(path, "IN: jump OUT: J\nIN: walk\n\n"), template="IN: {source} OUT: {target}")
    first, second, total = message.split("\n")
    assert total == "2 problems in all."
    assert first.startswith(f"{path}:2:5: text.template: expected ' OUT: ' from here on; the template is 'IN: ")
    assert second.startswith(f"{path}:3:1: text.template: a blank line")


names = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4, unique=True)


@settings(max_examples=SOME)
@given(st.data(), names)
def test_a_cut_line_put_together_again_is_the_line(data: st.DataObject, fields: list[str]) -> None:
    marks = data.draw(st.lists(st.text("xy |", min_size=1, max_size=3), min_size=len(fields), max_size=len(fields)))
    template = Template.parse("".join(f"{{{name}}}{mark}" for name, mark in zip(fields, marks, strict=True)))
    line = data.draw(st.text("xy |é", max_size=30))
    cut = template.cut(line)
    if isinstance(cut, NoFit):
        assert cut.mark not in line[cut.start :] or not line.endswith(cut.mark)
        return
    assert "".join(part for pair in zip(cut, marks, strict=True) for part in pair) == line
    assert all(mark not in field for field, mark in zip(cut[:-1], marks, strict=False) if field)
    assert all(line.startswith(field, template.start(cut, column)) for column, field in enumerate(cut))


def test_a_template_takes_linear_time(tmp_path: Path) -> None:
    template = Template.parse("{a}xxy{b}xxy{c}")

    def seconds(size: int) -> float:
        start = time.process_time()
        template.cut("x" * size)
        return time.process_time() - start

    assert seconds(4_000_000) < 40 * max(seconds(400_000), 0.001)


@pytest.mark.parametrize("examples", [SOME, MANY])
@pytest.mark.parametrize("template", [None, "{label} {text}", "IN: {source} OUT: {target}"])
def test_any_bytes_give_records_or_a_place(
    tmp_path_factory: pytest.TempPathFactory, template: str | None, examples: int
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "x.txt"

    @settings(max_examples=examples)
    @given(any_bytes, st.just("line") if template else st.sampled_from(["line", "paragraph", "file"]))
    def law(data: bytes, unit: str) -> None:
        require_records_or_a_place(write(path, data), unit=unit, template=template)

    law()
