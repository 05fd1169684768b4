"""What the tests of readers share: read everything, expect one refusal, and the law that holds for any bytes."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from seqloom.config.data import BadRows, DataConfig, ReadingConfig
from seqloom.data.dataset import open_data
from seqloom.data.problems import Ledger, Problem
from seqloom.data.readers.registry import read_table
from seqloom.data.values import Record, Table
from seqloom.errors import RejectedError

# examples of the laws for any bytes
SOME, MANY = 20 if os.environ.get("SEQLOOM_DRAWS") == "quick" else 150, pytest.param(5_000, marks=pytest.mark.soak)

PIECES = [b'"', b'""', b",", b";", b"\t", b"\n", b"\r\n", b"\r", b" ", b"a", b"text,label", b"\0", b"\xff", b"\xe9"]
PIECES += [piece.encode() for piece in ("é", "\ufeff", "\ufffd", "Ã©", "\u2028", "\x85", "😀")]
PIECES += [b"\xf0\x9f", b"\xed\xa0\x80", b"\xff\xfe", b"h\0i\0", b"PK\x03\x04", b"\x1f\x8b", b"IN: ", b" OUT: "]
any_bytes = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join) | st.binary(max_size=200)

# Any value that JSON has, and often one that could nearly be used.
single = st.sampled_from(["a", "1_0", "٣", "", " ", "true", "1", "1.0", "1e300", 1, 0, 2.5, 1.0, 1e300, -1e39, 10**25])
single |= st.sampled_from([10**400, 2**24 + 1, True, False, None, "train", "dev", "a b", "\u202e"])
json_values = st.recursive(
    single,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)
near_values = json_values | st.lists(single, max_size=3) | st.lists(st.lists(single, max_size=3), max_size=3) | single


class Read(NamedTuple):
    table: Table
    records: list[Record]
    ledger: Ledger

    @property
    def values(self) -> list[tuple[Any, ...]]:
        return [record.values for record in self.records]

    def only(self, code: str) -> Problem:
        """The one sample of the one kind of warning or note there is."""
        assert list(self.ledger.samples) == [code]
        return self.ledger.samples[code][0]


def read(*paths: Path, **reading: Any) -> Read:
    ledger = Ledger()
    table = read_table(paths, ReadingConfig(**reading), ledger)
    records = list(table.records)
    ledger.close()
    assert ledger.rows == len(records)
    return Read(table, records, ledger)


def refused(*paths: Path, **reading: Any) -> str:
    """The whole message of the refusal that must come."""
    with pytest.raises(RejectedError) as caught:
        read(*paths, **reading)
    return str(caught.value)


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def require_records_or_a_place(*paths: Path, **reading: Any) -> None:
    """Whatever stands in the files, there are records that know their place, or a refusal that names a file.

    The same holds for the examples that are made of the records.
    """
    require_examples_or_a_place(DataConfig(train=tuple(map(str, paths)), reading=ReadingConfig(**reading)))
    try:
        found = read(*paths, **reading)
    except RejectedError as error:
        require_place(error, paths)
        return
    assert found.records
    for record in found.records:
        assert len(record.values) == len(found.table.columns)
        places = [found.table.locate(record, column) for column in range(len(record.values))]
        assert all(place.path.startswith(tuple(map(str, paths))) and place.line for place in places)


def require_place(error: RejectedError, paths: Iterable[Path | str]) -> None:
    """Fail unless a refusal names one of the files."""
    assert str(error).startswith(tuple(map(str, paths))), str(error)


def require_examples_or_a_place(config: DataConfig) -> None:
    """Whatever stands in the files, every row is an example or a bad row that names its file: no other error comes."""
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    try:
        examples = [example for _, example in open_data(config, ledger).rows(ledger)]
    except RejectedError as error:
        require_place(error, config.train)
        return
    read = {example.place for example in examples}  # one long text is cut into its parts, which share their place
    assert len(read) == ledger.rows
    assert all(problem.place.path.startswith(config.train) for problem in ledger.refused)
