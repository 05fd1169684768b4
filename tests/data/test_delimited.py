"""csv and tsv: what was written comes back, and what is broken is refused at its place."""

import csv
import io
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers.registry import read_table
from seqloom.errors import ConfigError, RejectedError

LINES = '"a ""quoted"", text",x\r\nplain,y\r\n"two\nlines",z\r\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": data.empty: the file is empty."),
        (b"\n\r\n  \n", ": data.empty: "),
        (b"text,label\n", ": data.no_rows: the file has a header but no rows."),
        (b"text,label\n\n\n", ": data.no_rows: "),
        (b"text,label,text\na,b,c\n", ":1:12: csv.dup_header: columns 1 and 3 are both named 'text'."),
        (
            b"text,label\n" + b"a,b\n" * 5 + b"a\n",
            ":7: csv.ragged: 1 field, but the header has 2. The row is 'a'. Fix: add the missing fields",
        ),
        (
            b"text,label\n" + b"ab " * 27 + b",x,y\n",
            ":2: csv.ragged: 3 fields, but the header has 2; is there an unquoted comma? The row begins "
            f"'{('ab ' * 27)[:80]}...'. Fix: quote the field",
        ),
        (
            b"text,label\na,b,c\n",
            ":2: csv.ragged: 3 fields, but the header has 2; is there an unquoted comma? The row is 'a,b,c'. "
            "Fix: quote the field",
        ),
        (
            b'text,label\na,b\nx,"c\nd,e\n',
            ":3:3: csv.quote: a quote opened in line 3 is never closed.",
        ),
        (b'text,label\n"a"b,c\n', ":2:4: csv.quote: text follows a closing quote. Fix: write a quote inside quotes"),
        (
            b'text,label\n"a\\"b",c\n',
            ":2:5: csv.quote: text follows a closing quote. Fix: write a quote inside quotes",
        ),
        (b'"text"s,label\na,b\n', ":1:7: csv.quote: "),
        (
            b"text;label\na;b\n",
            ":1: csv.delimiter: 1 column; the delimiter looks like ';'. Fix: use --delimiter ';', or --delimiter ','",
        ),
        (
            b"text\tlabel\na\tb\n",
            ":1: csv.delimiter: 1 column; the delimiter looks like '\\t'. Fix: use --delimiter '\\t'",
        ),
        (",".join(map(str, range(10_000))).encode(), ":1: csv.too_many_columns: 10,000 columns; the limit is 1,024."),
        (b"text,label\na\0,b\n", ":2:2: enc.nul: "),
    ],
)
def test_a_broken_table_is_refused_at_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path / "x.csv", content)
    assert refused(path).startswith(f"{path}{message}")


def test_a_quote_that_swallowed_other_rows_stops_the_reading_even_where_bad_rows_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'text,label\na,b\n"c,d\ne,f\n"g, h",i\n' + "a,b\n" * 98)
    said = f"{path}:3:1: csv.quote: a quote opened in line 3 is closed in line 5 and followed by text"
    assert refused(path).startswith(said)
    with pytest.raises(RejectedError, match="opened in line 3"):
        list(read_table((path,), ReadingConfig(), Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.5))).records)


def test_every_ragged_row_is_counted_and_good_ones_can_be_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text,label\n" + "a,b\n" * 98 + "c\n" + '"d"e,f\n')
    assert "csv.quote" in refused(path)
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.02))
    assert len(list(read_table((path,), ReadingConfig(), ledger).records)) == 98
    ledger.close()
    assert ledger.skipped == 2


def test_a_broken_header_is_never_read_over(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", '"text"s,label\na,b\nc,d\n')
    with pytest.raises(RejectedError, match=r":1:7: csv\.quote: "):
        read_table((path,), ReadingConfig(), Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0)))


def test_rows_keep_their_fields_lines_and_columns(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.csv", f"text,label\r\n{LINES}last,w"))
    assert found.values == [('a "quoted", text', "x"), ("plain", "y"), ("two\nlines", "z"), ("last", "w")]
    assert [record.line for record in found.records] == [2, 3, 4, 6]
    places = [found.table.locate(record, 1)[1:] for record in found.records]
    assert places == [(2, 22), (3, 7), (5, 8), (6, 6)]
    assert found.records[2].raw == '"two\nlines",z'


def test_line_ends_inside_quotes_stay_what_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'text,label\r\n"a\r\nb\nc\rd",x\r\ne\rf,y\r\n')
    assert read(path).values == [("a\r\nb\nc\rd", "x"), ("e\rf", "y")]


@pytest.mark.slow
def test_a_quoted_field_may_go_through_several_blocks(tmp_path: Path) -> None:
    long = "a line of many\r\n" * 200_000
    found = read(write(tmp_path / "x.csv", f'text,label\r\n"{long}",x\r\nshort,y\r\n'))
    assert found.values == [(long, "x"), ("short", "y")]
    assert found.table.locate(found.records[0], 1)[1:] == (200_002, 3)


@pytest.mark.slow
def test_a_quote_that_swallows_too_much_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'text,label\na,b\n"c,d\n' + ("many rows follow," + "here " * 200 + "\n") * 18_000)
    assert refused(path).startswith(f"{path}:3:1: csv.quote: a quote opened in line 3 is not closed after 16 MiB.")


def test_a_stray_quote_is_read_as_it_stands_and_warned_about(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.csv", 'text,label\n3.5" disk,x\n5",y\n'))
    assert found.values == [('3.5" disk', "x"), ('5"', "y")]
    assert found.only("csv.stray_quote").place[1:] == (2, 4)
    assert found.ledger.counts["csv.stray_quote"] == 2


def test_blank_lines_are_passed_over_and_noted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.csv", "\ntext,label\n\na,b\n \nc,d\n\n"))
    assert found.values == [("a", "b"), ("c", "d")]
    assert found.ledger.counts == {"csv.blank": 4}
    assert read(write(tmp_path / "x.csv", "text\na\n\nb\n")).values == [("a",), ("b",)]


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize(("name", "mark"), [("x.csv", ","), ("x.tsv", "\t")])
def test_a_line_of_delimiters_alone_is_blank(tmp_path: Path, name: str, mark: str, count: int) -> None:
    rows = ["text,label".replace(",", mark), mark * count, f"a{mark}b", mark * count]
    found = read(write(tmp_path / name, "\n".join([mark, *rows])))
    assert found.table.columns == ("text", "label") and found.values == [("a", "b")]
    assert found.ledger.counts == {"csv.blank": 3}
    assert found.only("csv.blank").text == "a line with only delimiters, skipped"


@pytest.mark.parametrize("row", [" ,", ", ", '"",', '"",""', ",b"])
def test_a_line_with_more_than_delimiters_is_a_row(tmp_path: Path, row: str) -> None:
    found = read(write(tmp_path / "x.csv", f"text,label\n{row}\n"))
    assert found.values == [tuple(field.strip('"') for field in row.split(","))]


@pytest.mark.parametrize("header", ["text,label,,", "text,label,, ", 'text,label,"",'])
def test_columns_at_the_end_without_a_name_are_not_used(tmp_path: Path, header: str) -> None:
    found = read(write(tmp_path / "x.csv", f"{header}\na,b,,\n,d,,\n,,,\n"))
    assert (found.table.columns, found.values) == (("text", "label"), [("a", "b"), ("", "d")])
    assert found.ledger.counts == {"csv.blank": 1}
    assert found.table.locate(found.records[0], 1)[1:] == (2, 3)


def test_what_stands_in_a_column_without_a_name_is_told(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.csv", 'text,label,,\na,b,,\n"c,c",d,,e\nf,g,h,i\n'))
    assert found.values == [("a", "b"), ("c,c", "d"), ("f", "g")]
    assert found.only("csv.unnamed").place[1:] == (3, 10) and found.ledger.counts == {"csv.unnamed": 2}


def test_columns_before_others_may_have_no_name(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.csv", ",,text\n1,2,a\n"))
    assert (found.table.columns, found.values) == (("", "", "text"), [("1", "2", "a")])


@pytest.mark.parametrize(
    ("line", "delimiter", "fix"),
    [
        ("sep=;", None, "delete this line and give --delimiter ';'."),
        ("SEP=,", None, "delete this line."),
        ('"sep=;"', None, "delete this line and give --delimiter ';'."),
        ("sep=;", ";", "delete this line."),
        ("sep=\t", None, "delete this line and give --delimiter '\\t'."),
    ],
)
@pytest.mark.parametrize("header", [True, False])
def test_the_line_that_names_a_delimiter_is_refused(
    tmp_path: Path, line: str, delimiter: str | None, fix: str, header: bool
) -> None:
    path = write(tmp_path / "x.csv", f"{line}\ntext;label\na;b\n")
    message = refused(path, delimiter=delimiter, header=header)
    assert message.startswith(f"{path}:1: csv.sep_line: 'sep=") and message.endswith(f"Fix: {fix}")


def test_a_column_may_be_named_sep(tmp_path: Path) -> None:
    assert read(write(tmp_path / "x.csv", "sep,label\na,b\n")).table.columns == ("sep", "label")
    assert read(write(tmp_path / "x.csv", "sep=x\na\n")).table.columns == ("sep=x",)


def test_a_row_of_quoted_empty_fields_is_a_row(tmp_path: Path) -> None:
    assert read(write(tmp_path / "x.csv", 'text\n""\n" "\n \n')).values == [("",), (" ",), (" ",)]


def test_a_formula_and_a_very_long_field_are_text(tmp_path: Path) -> None:
    formula, long = '=HYPERLINK("http://x")', "x" * 200_000
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text"], [formula], [long]])
    assert read(path).values == [(formula,), (long,)]


def test_the_mark_at_the_start_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert read(write(tmp_path / "x.csv", '\ufeff"text",label\na,b\n')).table.columns == ("text", "label")


def test_without_a_header_columns_are_numbers(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.csv", "a,b\n,d\n"), header=False)
    assert (found.table.columns, found.table.named) == (("1", "2"), False)
    assert found.values == [("a", "b"), ("", "d")]
    assert "the first row has 2" in refused(write(tmp_path / "x.csv", "a,b\nc\n"), header=False)


@pytest.mark.parametrize(("given", "between"), [(";", ";"), ("\t", "\t"), ("\\t", "\t"), ("::", "::"), (" ", " ")])
def test_a_named_delimiter_is_used(tmp_path: Path, given: str, between: str) -> None:
    lines = [["text", "label"], ["a,b", "c"], [f'"d{between}e"', "f"], ["", "g"]]
    path = write(tmp_path / "x.csv", "".join(between.join(line) + "\n" for line in lines))
    found = read(path, delimiter=given)
    assert found.values == [("a,b", "c"), (f"d{between}e", "f"), ("", "g")]


@pytest.mark.parametrize("delimiter", ["", '"', "\n", "a\r"])
def test_an_impossible_delimiter_is_refused(tmp_path: Path, delimiter: str) -> None:
    with pytest.raises(ConfigError, match="is not a delimiter"):
        read(write(tmp_path / "x.csv", "a,b\nc,d\n"), delimiter=delimiter)


def test_one_column_with_other_marks_can_be_insisted_on(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text; or so\na;b\n")
    assert "--delimiter ',' if the file has one column" in refused(path)
    assert read(path, delimiter=",").values == [("a;b",)]


def test_a_quote_in_tsv_is_a_character(tmp_path: Path) -> None:
    found = read(write(tmp_path / "x.tsv", 'text\tlabel\n"a\tb"\n'))
    assert found.values == [('"a', 'b"')]
    assert found.table.locate(found.records[0], 1)[1:] == (2, 4)
    assert not found.ledger.counts


cells = st.text(st.characters(exclude_characters="\0\r\ufeff", codec="utf-8"), max_size=8) | st.sampled_from(
    ['"', '""', ",", "\n", '","', '"\n', " ", "", "\u2028", "\x0b"]
)
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1))


@settings(max_examples=SOME)
@given(tables, st.sampled_from(["\n", "\r\n"]), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_what_the_csv_writer_writes_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str, quoting: int
) -> None:
    file = io.StringIO(newline="")
    header = [f"column {number}" for number in range(len(rows[0]))]
    csv.writer(file, lineterminator=end, quoting=quoting).writerows([header, *rows])  # type: ignore[arg-type]
    path = write(tmp_path_factory.getbasetemp() / "written.csv", file.getvalue())
    kept = rows if quoting == csv.QUOTE_ALL or len(header) == 1 else [row for row in rows if any(row)]
    if not kept:
        assert "data.no_rows" in refused(path, delimiter=",")
        return
    found = read(path, delimiter=",")
    assert found.table.columns == tuple(header)
    assert found.values == [tuple(row) for row in kept]
    assert found.ledger.counts["csv.blank"] == len(rows) - len(kept)
    lines = file.getvalue().split("\n")
    for record in found.records:
        for column, value in enumerate(record.values):
            _, line, start = found.table.locate(record, column)
            assert line is not None and start is not None
            rest = "\n".join(lines[line - 1 :])[start - 1 :]
            assert rest.startswith((value, '"' + value.replace('"', '""') + '"'))


@pytest.mark.parametrize("examples", [SOME, MANY])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_any_bytes_give_records_or_a_place(tmp_path_factory: pytest.TempPathFactory, name: str, examples: int) -> None:
    path = tmp_path_factory.mktemp("bytes") / name

    @settings(max_examples=examples)
    @given(any_bytes, st.booleans(), st.sampled_from([b"", b"text,label\n", b"text\tlabel\n"]))
    def law(data: bytes, header: bool, before: bytes) -> None:
        require_records_or_a_place(write(path, before + data), header=header)

    law()


@pytest.mark.slow
def test_time_is_linear_in_quotes_and_lines(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        path = write(tmp_path / "x.csv", 'text\n"' + '""\n' * count + '"\n')
        start = time.process_time()
        assert len(read(path).values[0][0]) == 2 * count
        return time.process_time() - start

    seconds(1_000)
    assert seconds(400_000) < 30 * max(seconds(40_000), 0.005)


def test_two_tables_are_not_one(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text\na\n")
    with pytest.raises(ConfigError, match="the format csv needs one path, found 2"):
        read(path, path, format="csv")
    with pytest.raises(RejectedError):
        read(path, path)


@pytest.mark.parametrize(
    ("name", "settings", "flag"),
    [
        ("a.jsonl", {"delimiter": ";"}, "--delimiter"),
        ("a.jsonl", {"header": False}, "--no-header"),
        ("a.csv", {"template": "{label} {text}"}, "--template"),
        ("a.csv", {"unit": "file"}, "--unit"),
    ],
)
def test_a_setting_that_a_format_has_no_use_for_is_refused(
    tmp_path: Path, name: str, settings: dict[str, Any], flag: str
) -> None:
    path = tmp_path / name
    path.write_text('{"text": "a"}\n')
    with pytest.raises(ConfigError, match=f"{flag} cannot be used with the format"):
        read_table((path,), ReadingConfig(**settings), Ledger())
