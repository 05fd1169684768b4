"""JSON lines: what is plain comes back as it was written, and what two parsers could read in two ways is refused."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reading_common import MANY, PIECES, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers import jsonl
from seqloom.data.readers.jsonl import careful

GOOD = '{"text": "a", "label": "x"}\n'
OF_WORDS = ' Fix: write one object per line; for a list of words {"tokens": ["...", "..."]}.'
DEEP = 100_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            GOOD * 2 + '{"text": "a" "label": 1}\n',
            '3:14: json.syntax: expecting \',\' delimiter, near \'{"text": "a" "',
        ),
        ('[{"text": "a"}]', "1: json.array: expected one object per line, found an array."),
        ('[\n{"text": "a"}\n]', "1: json.array: expected one object per line"),
        ('{\n  "text": "a"\n}\n', "1: json.multiline: expected one object per line"),
        ('{"text": "a",\n "label": "x"}\n', "1: json.multiline: "),
        (GOOD + '{"text": "a", "label": 1} {"text": "b", "label": 2}', "2:27: json.trailing: "),
        (GOOD + '{"text": "a", "text": "b"}', "2: json.dup_key: the key 'text' occurs twice in one object."),
        (GOOD + '{"text": "a", "label": "x", "te\\u0078t": "b"}', "2: json.dup_key: "),
        (GOOD + '{"text": "a", "label" : {"b": 1, "b": 1}}', "2: json.dup_key: the key 'b'"),
        (GOOD + '{"text": "a", "label": NaN}', "2:24: json.nonfinite: NaN is not a JSON number."),
        (GOOD + '{"text": "a", "label": -Infinity}', "2:24: json.nonfinite: -Infinity"),
        (GOOD + '{"text": "a", "label": 1e400}', "2:24: json.nonfinite: 1e400 is too large for a float."),
        (GOOD + '{"text": "a", "label": ' + "9" * 5_000 + "}", "2:24: json.number: a number has 5,000 digits."),
        (GOOD + "[" * DEEP, "2: json.depth: more than 32 levels of nesting."),
        (GOOD + '{"text": "a", "label": ' + "[" * 32 + "]" * 32 + "}", "2: json.depth: "),
        (GOOD + '{"text": "a"}\n', "2: json.key: the key 'label' of the first object (line 1) is missing."),
        (
            GOOD + '{"text": "a", "label": 1, "id": 7}\n',
            "2: json.key: the key 'id' is not in the first object (line 1).",
        ),
        (GOOD + '{"text": "a", "labels": 1}\n', "2: json.key: the key 'label' of the first object"),
        (GOOD + '{"text": "a", "label": 1} // good\n', "2:27: json.trailing: "),
        (GOOD + '{"text": "a", "label": 1,}\n', "2:26: json.syntax: "),
        (GOOD + '{"text": "\\ud800", "label": 1}\n', "2:11: json.surrogate: an escape for half a character."),
        (GOOD + '{"text": "\\ude00\\ud83d", "label": 1}\n', "2: json.surrogate: "),
        (GOOD + '{"text": "a\tb", "label": 1}\n', "2:12: json.syntax: invalid control character"),
        (GOOD + "7\n", "2: json.object: expected an object, found a number."),
        (GOOD + "[7]\n", "2: json.array: expected an object, found an array."),
        ('["a", "b"]\n', f"1: json.array: expected one object per line, found an array.{OF_WORDS}"),
        (GOOD + '["a"]\n', f"2: json.array: expected an object, found an array.{OF_WORDS}"),
        (GOOD + "hello\n", "2:1: json.syntax: expecting value, near 'hello'."),
        ("", ": data.empty: "),
        (" \n\n", ": data.empty: "),
    ],
)
def test_bad_lines_are_refused_with_their_place(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", content)
    assert refused(path).startswith(f"{path}:{message}".replace("::", ":"))


@pytest.mark.parametrize("first", [GOOD, ""])
def test_a_bad_line_is_refused_wherever_it_stands(tmp_path: Path, first: str) -> None:
    path = write(tmp_path / "a.jsonl", first + '{"text": 1, "text": 2}\n' + GOOD)
    assert "json.dup_key" in refused(path)


def test_deep_nesting_is_refused_at_once(tmp_path: Path) -> None:
    began = time.perf_counter()
    for text in ("[" * DEEP, '{"a":' * DEEP):
        with pytest.raises(jsonl.LineError, match=r"json\.depth"):
            careful(text)
    assert time.perf_counter() - began < 0.02


def test_thirty_two_levels_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": ' + "[" * 31 + "]" * 31 + "}\n")
    assert len(read(path).records) == 1


def test_blank_lines_are_left_out_and_noted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.jsonl", f"{GOOD}\n \r\n{GOOD}"))
    assert [record.line for record in found.records] == [1, 4]
    assert found.ledger.counts["json.blank"] == 2


def test_a_mark_at_the_start_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.jsonl", "\ufeff" + GOOD)).values == [("a", "x")]


def test_bad_rows_are_counted_and_read_over_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (GOOD + '{"text": 1}\n') * 3)
    assert refused(path).count("json.key") == 3 and refused(path).endswith("3 problems in all.")
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.5))
    table = jsonl.read((path,), ReadingConfig(), ledger)
    assert [record.line for record in table.records] == [1, 3, 5]
    ledger.close()
    assert ledger.counts["json.key"] == ledger.skipped == 3


def test_values_come_in_the_order_of_the_first_object(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"b": 1, "a": 2}\n{"a": 3, "b": 4}\n')
    found = read(path)
    assert found.table.columns == ("b", "a")
    assert found.values == [(1, 2), (4, 3)]


def test_a_problem_with_a_value_is_located_at_its_key(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.jsonl", '{"text": "say \\"label\\": x", "label": 3}\n'))
    assert str(found.table.locate(found.records[0], 1)).endswith("a.jsonl:1:30")


scalars = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=8) | st.sampled_from(['":', " :", '{"a": 1}', "\\", "[[", "\u2028", "\x85", "😀"])
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
tables = st.lists(texts, min_size=1, max_size=4, unique=True).flatmap(
    lambda keys: st.lists(st.fixed_dictionaries(dict.fromkeys(keys, values)), min_size=1, max_size=4)
)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(tables, st.booleans(), st.sampled_from([(",", ":"), (", ", ": "), (" , ", "\t:\r")]))
def test_objects_come_back_as_they_were_written(
    tmp_path: Path, rows: list[dict[str, Any]], ascii_only: bool, separators: tuple[str, str]
) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii_only, separators=separators) for row in rows]
    path = tmp_path / "a.jsonl"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    if "\0" in "".join(lines) or path.read_bytes()[257:262] == b"ustar":
        return
    found = read(path)
    assert found.table.columns == tuple(rows[0])
    assert [dict(zip(rows[0], values, strict=True)) for values in found.values] == rows


fragments = [
    b'{"a": 1}',
    b'{"a": ',
    b'"a"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"1",
    b"-",
    b"e9",
    b"NaN",
    b"\\u",
    b"d800",
    b"\\",
]
any_json = any_bytes | st.lists(st.sampled_from(fragments + PIECES[:12]), max_size=30).map(b"".join)


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_are_read_or_refused_with_a_place(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(any_json)
    def law(content: bytes) -> None:
        require_records_or_a_place(write(tmp_path / "a.jsonl", content))

    law()


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(["{", "}", '"a"', '"b"', ":", " ", ",", "1", "[", "]", "1e400", "NaN", '"\\ud800"']),
        max_size=16,
    )
)
def test_the_fast_path_takes_nothing_that_the_careful_one_refuses(tmp_path_factory: Any, pieces: list[str]) -> None:
    line = "".join(pieces)
    path = write(tmp_path_factory.getbasetemp() / "fast.jsonl", f'{{"a": 1}}\n{line}\n')
    ledger = Ledger()
    fast = [record.values for record in jsonl.read((path,), ReadingConfig(), ledger).records][1:]
    if line.strip():
        assert (fast, [problem.code for problem in ledger.refused]) == expectation(line)


def expectation(line: str) -> tuple[list[Any], list[str]]:
    """The values or the code that a line behind {"a": 1} must have, by the careful parser alone."""
    try:
        found = careful(line)
    except jsonl.LineError as error:
        return [], [error.code]
    return ([tuple(found.values())], []) if list(found) == ["a"] else ([], ["json.key"])
