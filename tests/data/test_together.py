"""Texts that stand together: read as such, joined by SEPARATOR, and cut apart exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.data.check import load_data
from seqloom.data.kinds.related import cut_apart, cut_texts, longest_texts
from seqloom.data.kinds.text import paired
from seqloom.data.loader import collate
from seqloom.errors import RejectedError
from seqloom.nn.types import Both, Padded, Triple
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import SEPARATOR

TOKENS = st.lists(st.integers(6, 9), max_size=4)


def joined(rows: list[list[list[int]]]) -> Ragged:
    """Rows of texts, SEPARATORs between."""
    columns = [Ragged.of([row[at] for row in rows], np.int32) for at in range(len(rows[0]))]
    whole = columns[0]
    for column in columns[1:]:
        whole = paired(whole, column, SEPARATOR)
    return whole


def rows_of(column: Ragged) -> list[list[int]]:
    return [column.row(row).tolist() for row in range(column.rows)]


@given(st.integers(1, 3).flatmap(lambda count: st.lists(st.lists(TOKENS, min_size=count, max_size=count), min_size=1)))
@settings(max_examples=20, deadline=None)
def test_joined_texts_are_cut_apart_exactly_also_empty_ones(rows: list[list[list[int]]]) -> None:
    texts = cut_apart(joined(rows))
    assert [list(row) for row in zip(*map(rows_of, texts), strict=True)] == rows


@given(
    st.integers(1, 3).flatmap(lambda count: st.lists(st.lists(TOKENS, min_size=count, max_size=count), min_size=1)),
    st.integers(1, 5),
)
@settings(max_examples=20, deadline=None)
def test_each_text_is_cut_as_if_it_were_alone(rows: list[list[list[int]]], most: int) -> None:
    whole = joined(rows)
    texts = cut_apart(cut_texts(whole, most))
    assert [list(row) for row in zip(*map(rows_of, texts), strict=True)] == [
        [one[:most] for one in row] for row in rows
    ]
    assert longest_texts(whole).tolist() == [max(map(len, row)) for row in rows]


def test_rows_of_a_batch_need_not_begin_where_the_column_does() -> None:
    whole = joined([[[6], [7]], [[8], []], [[], [9, 9]]]).select(np.array([2, 1]))
    assert [rows_of(text) for text in cut_apart(whole)] == [[[], [8]], [[9, 9], []]]


def prepared(folder: Path, header: str, rows: list[str], **settings: Any) -> Any:
    path = folder / "data.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return load_data(path, **{"task": "embed"} | settings)


@pytest.mark.parametrize(
    ("header", "kinds", "inputs"),
    [
        ("text", ("text", "related"), Padded),
        ("question,answer", ("pair", "related"), Both),
        ("anchor,positive,negative", ("triple", "related"), Triple),
        ("sentence1,sentence2,score", ("pair", "similarity"), Both),
        ("sentence1,sentence2,label", ("pair", "related"), Both),
    ],
)
def test_columns_of_usual_names_are_found(tmp_path: Path, header: str, kinds: tuple[str, str], inputs: type) -> None:
    cells = ["a dog", "the dog", "cats"][: header.count(",") + 1]
    if header.endswith("score"):
        cells[-1] = "2.5"
    data = prepared(
        tmp_path, header, [",".join(f"{cell}{'' if '.' in cell else row}" for cell in cells) for row in range(30)]
    )
    assert (data.schema.input.name, data.schema.target.name, data.schema.task) == (*kinds, "embed")
    batch = collate(data.schema, data.columns, data.splits["train"][:3])
    assert isinstance(batch.inputs, inputs)
    assert len(batch.targets) == 3


def test_texts_are_numbers_of_the_same_tokens_wherever_they_stand(tmp_path: Path) -> None:
    data = prepared(tmp_path, "anchor,positive,negative", ["one two,two,three one"] * 20)
    (first, second, third), _, *_ = collate(data.schema, data.columns, data.splits["train"][:2])
    encode = data.tokenizer.encode
    for found, text in ((first, "one two"), (second, "two"), (third, "three one")):
        assert found.values[0].tolist() == encode([text]).values.tolist()
        assert found.lengths.tolist() == [len(encode([text]).values)] * 2


def test_longest_is_that_of_one_text(tmp_path: Path) -> None:
    rows = ["a b c,d e f"] * 20
    data = prepared(tmp_path, "question,answer", rows, max_length=3)
    assert not any("truncated" in finding.code for finding in data.findings)
    cut = prepared(tmp_path, "question,answer", rows, max_length=2)
    assert {len(cut.columns["input"].row(row)) for row in cut.splits["train"].tolist()} == {5}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"input": ("a",), "target": ("d",)}, "embed with a score needs two input columns"),
        ({"input": ("a", "b", "c"), "target": ("d",)}, "embed with a score needs two input columns"),
        ({"input": ("a", "b", "c", "d")}, "embed needs one, two or three texts"),
    ],
)
def test_what_cannot_stand_together_is_refused_with_the_columns(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(RejectedError, match=words):
        prepared(tmp_path, "a,b,c,d", ["x,y,z,1"] * 20, **settings)


def test_a_score_that_is_no_number_spoils_its_row(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match=r"data\.csv:3"):
        prepared(tmp_path, "sentence1,sentence2,score", ["a,b,1.5", "a,b,high", *["a,c,2.5"] * 20], target=("score",))
