"""A file of weights is believed no further than its bytes reach."""

import json
import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import DamagedError
from seqloom.files import tensors as weights
from seqloom.files.tensors import from_bytes, read_header, to_bytes

ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def file(header: Any, numbers: bytes = bytes(8), size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little", signed=False) + text + numbers


LIES = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "an empty header": file(b""),
    "a header of 2^63 bytes": file({"a": ONE}, size=2**63),
    "a header beyond the file": file({"a": ONE}, size=1_000),
    "a header of 9 MiB": file(b'{"a":' + b" " * (9 << 20) + b"1}"),
    "no object": file([ONE]),
    "no JSON": file(b"{not json"),
    "not UTF-8": file(b'{"\xff": 1}'),
    "brackets without end": file(b"[" * 100_000),
    "a name twice": file(b'{"a": {"dtype":"U8","shape":[8],"data_offsets":[0,8]}, "a": 1}'),
    "an overlap": file({"a": ONE, "b": ONE}),
    "a hole": file({"a": ONE, "b": {**ONE, "data_offsets": [12, 20]}}, bytes(20)),
    "past the end": file({"a": {**ONE, "shape": [4], "data_offsets": [0, 16]}}),
    "bytes left over": file({"a": ONE}, bytes(9)),
    "numbers missing": file({"a": ONE}, bytes(7)),
    "backwards": file({"a": {**ONE, "data_offsets": [8, 0]}}),
    "a negative place": file({"a": {**ONE, "data_offsets": [-8, 0]}}),
    "a place of three": file({"a": {**ONE, "data_offsets": [0, 4, 8]}}),
    "a shape beyond all bytes": file({"a": {**ONE, "shape": [2**40, 2**40]}}),
    "a shape of 2^62": file({"a": {**ONE, "shape": [2**62, 4]}}),
    "a negative shape": file({"a": {**ONE, "shape": [-2]}}),
    "a broken shape": file({"a": {**ONE, "shape": [2.5]}}),
    "an unknown type": file({"a": {**ONE, "dtype": "OBJECT"}}),
    "a key too many": file({"a": {**ONE, "reduce": "x"}}),
    "metadata of numbers": file({"__metadata__": {"seqloom": 1}, "a": ONE}),
    "metadata that is no JSON": file({"__metadata__": {"seqloom": "{"}, "a": ONE}),
    "a name with a NUL": file({"a\0": ONE}),
    "a name that climbs": file({"../a": ONE}),
    "a name without letters": file({"": ONE}),
    "a name of 1,000 letters": file({"a" * 1_000: ONE}),
    "too many tensors": file(
        {f"t{n}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(65_537)}, b""
    ),
    "a pickle": b"\x80\x04\x95" + bytes(40),
    "a zip": b"PK\x03\x04" + bytes(40),
}


@pytest.mark.parametrize("data", LIES.values(), ids=LIES)
def test_every_lie_is_refused_at_once_with_the_place(data) -> None:
    begun = time.process_time()
    for reading in (read_header, from_bytes):
        with pytest.raises(DamagedError, match=r"model\.safetensors: expected weights, found"):
            reading(data, "model.safetensors")
    assert time.process_time() - begun < 1


def test_a_true_header_is_believed() -> None:
    tensors, note = from_bytes(file({"__metadata__": {"seqloom": '{"x": "y"}'}, "a": ONE}), "here")
    assert tensors["a"].tolist() == [0.0, 0.0] and note == {"x": "y"}


def test_without_our_check_an_overlap_comes_through_our_own_reading(monkeypatch) -> None:
    monkeypatch.setattr(weights, "_require_filled", lambda *_: None)
    assert set(read_header(LIES["an overlap"], "here").slots) == {"a", "b"}


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
SHAPES = st.lists(st.integers(0, 4), max_size=3)


@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_.]{0,9}", fullmatch=True), st.tuples(st.sampled_from(DTYPES), SHAPES))
)
def test_any_tensors_come_back_bit_for_bit(kinds) -> None:
    kinds.pop("__metadata__", None)
    tensors = {
        name: torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype) for name, (dtype, shape) in kinds.items()
    }
    found, note = from_bytes(to_bytes(tensors, {"b": "2", "a": "1"}), "here")
    assert note == {"a": "1", "b": "2"} and found.keys() == tensors.keys()
    assert all(found[name].dtype == one.dtype and torch.equal(found[name], one) for name, one in tensors.items())


def test_a_view_of_a_larger_tensor_is_written_by_itself() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    found, _ = from_bytes(to_bytes({"row": whole[1], "column": whole[:, 1]}, {}), "here")
    assert found["row"].tolist() == [4, 5, 6, 7] and found["column"].tolist() == [1, 5, 9]
