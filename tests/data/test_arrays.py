"""Arrays in .npz files: rows come back bit for bit; pickles, bombs, damage and unknown shapes are refused unread."""

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.lib import format as npy

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers import arrays

GRID = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


def saved(path: Path, **named: Any) -> Path:
    np.savez(path, **{name: np.asarray(array) for name, array in named.items()})
    return path


def found_in(tmp_path: Path, **named: Any) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    found = read(saved(tmp_path / "a.npz", **named))
    assert [record.line for record in found.records] == list(range(1, len(found.records) + 1))
    return found.table.columns, found.values


def test_sequences_of_one_length(tmp_path: Path) -> None:
    columns, rows = found_in(tmp_path, x=GRID, y=[1, 0])
    assert columns == ("vectors", "label")
    assert [label for _, label in rows] == ["1", "0"]
    assert all(np.array_equal(row, expected) for (row, _), expected in zip(rows, GRID, strict=True))


@pytest.mark.parametrize("names", ["X y", "X Y", "Input TARGET", "X_train y_train", "X_Train Y_Train", "x_val y_val"])
def test_names_of_inputs_and_targets_are_recognized_in_any_case(tmp_path: Path, names: str) -> None:
    columns, rows = found_in(tmp_path, **dict(zip(names.split(), (GRID, [1, 0]), strict=True)))
    assert columns[:2] == ("vectors", "label") and [row[1] for row in rows] == ["1", "0"]
    assert columns[2:] == (("split",) if "_" in names else ())


def test_other_columns_keep_their_case_and_two_inputs_that_differ_only_in_it_are_refused(tmp_path: Path) -> None:
    assert found_in(tmp_path, X=GRID, Weight=[1.5, 2.5])[0] == ("vectors", "Weight")
    assert "'x' and 'X' differ only in their case" in refused(saved(tmp_path / "b.npz", x=GRID, X=GRID))


def test_sequences_that_are_padded_are_cut_to_their_lengths(tmp_path: Path) -> None:
    columns, rows = found_in(tmp_path, frames=GRID, lengths=[3, 1], tags=[["a", "b", "c"], ["d", "", ""]])
    assert columns == ("vectors", "tags")
    assert [(row.tolist(), tags) for row, tags in rows] == [
        (GRID[0].tolist(), ("a", "b", "c")),
        (GRID[1, :1].tolist(), ("d",)),
    ]


def test_sequences_one_behind_the_other_are_divided_by_their_lengths(tmp_path: Path) -> None:
    flat = np.arange(10.0).reshape(5, 2)
    columns, rows = found_in(tmp_path, input=flat, lengths=np.array([2, 3], np.uint8), target=[7, 8, 9, 8, 7])
    assert columns == ("vectors", "tags")
    assert [(row.tolist(), tags) for row, tags in rows] == [
        (flat[:2].tolist(), ("7", "8")),
        (flat[2:].tolist(), ("9", "8", "7")),
    ]


@pytest.mark.parametrize("name", ["pictures", "images"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pictures_of_three_axes_are_gray(tmp_path: Path, name: str, dtype: type) -> None:
    columns, rows = found_in(tmp_path, **{name: GRID.astype(dtype)}, labels=["é", "b"])
    assert columns == ("picture", "label")
    assert [row.shape for row, _ in rows] == [(3, 4, 1)] * 2 and rows[0][0].dtype == dtype
    assert [label for _, label in rows] == ["é", "b"]


def test_further_arrays_are_columns_of_their_names(tmp_path: Path) -> None:
    further: dict[str, Any] = {"group": ["a", "b"], "id": [7, 8], "share": [0.5, np.nan]}
    columns, rows = found_in(tmp_path, x=GRID, y=[1, 0], **further)
    assert columns == ("vectors", "label", "group", "id", "share")
    assert [row[1:] for row in rows] == [("1", "a", 7, 0.5), ("0", "b", 8, None)]
    parted = {f"{name}_{part}": array for part in ("train", "test") for name, array in further.items()}
    columns, rows = found_in(tmp_path, x_train=GRID, x_test=GRID, **parted)
    assert columns == ("vectors", "group", "id", "share", "split")
    assert [row[1] for row in rows] == ["a", "b", "a", "b"]


def test_four_axes_are_pictures_by_any_name(tmp_path: Path) -> None:
    columns, rows = found_in(tmp_path, x=np.zeros((2, 5, 6, 3), np.uint8))
    assert columns == ("picture",)
    assert rows[0][0].shape == (5, 6, 3)


@pytest.mark.parametrize(
    ("target", "kind", "values"),
    [
        ({"y": [0.5, 1.5]}, "numbers", [(0.5,), (1.5,)]),
        ({"y": [[0.5, 1.0], [1.5, 2.0]]}, "numbers", [(0.5, 1.0), (1.5, 2.0)]),
        ({"numbers": [3, 4]}, "numbers", [(3.0,), (4.0,)]),
        ({"y": np.array([1, 2], ">i4")}, "label", ["1", "2"]),
        ({"y": [[1, 2, 3], [4, 5, 6]]}, "tags", [("1", "2", "3"), ("4", "5", "6")]),
    ],
)
def test_the_target_is_what_its_type_and_shape_say(tmp_path: Path, target: Any, kind: str, values: Any) -> None:
    columns, rows = found_in(tmp_path, x=GRID, **target)
    assert columns == ("vectors", kind)
    assert [row[1] for row in rows] == values


def test_parts_make_a_column(tmp_path: Path) -> None:
    columns, rows = found_in(tmp_path, x_test=GRID, y_test=[1, 2], x_train=GRID[:1], y_train=[3])
    assert columns == ("vectors", "label", "split")
    assert [row[1:] for row in rows] == [("3", "train"), ("1", "test"), ("2", "test")]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"x": np.array([{"a": 1}, None])}, "array.pickle: 'x' is a pickle, and pickles are never read"),
        ({"x": GRID, "y": np.array(["a", None])}, "array.pickle: 'y' is a pickle"),
        ({"x": GRID.astype(complex)}, "array.dtype: 'x' is complex128 [2, 3, 4]"),
        ({"x": GRID > 3}, "array.dtype: 'x' is bool"),
        ({"x": GRID, "y": [b"a", b"b"]}, "array.dtype: 'y' is |S1 [2]"),
        ({"x": np.zeros((2, 2), [("a", "f4")])}, "array.dtype: 'x' is"),
        ({"x": GRID[0]}, "array.shape: 'x' is float32 [3, 4]; expected numbers [N,T,D], or [total,D] and the array"),
        ({"x": np.array([[["a"]]])}, "array.shape: 'x' is <U1 [1, 1, 1]"),
        ({"x": GRID[:, :0]}, "array.shape: 'x' is float32 [2, 0, 4]"),
        ({"x": GRID[:0]}, "array.shape: 'x' is float32 [0, 3, 4]"),
        ({"x": np.float32(1)}, "array.shape: 'x' is float32 []"),
        ({"pictures": GRID.astype(np.int64)}, "array.shape: 'pictures' is int64 [2, 3, 4]; expected uint8 or floats"),
        ({"x": np.zeros((2, 3, 8, 8), np.uint8)}, "array.shape: 'x' is uint8 [2, 3, 8, 8]; expected"),
        ({"x": GRID, "y": [1, 2, 3]}, "array.shape: 'y' is int64 [3]; expected [2] for a label each, or [2, 3]"),
        ({"x": GRID, "y": [1.0, 2.0, 3.0]}, "array.shape: 'y' is float64 [3]; expected floats [2] or [2,K]"),
        ({"images": GRID, "y": [[1, 2], [3, 4]]}, "array.shape: 'y' is int64 [2, 2]; expected [2] for a label each."),
        ({"x": GRID[0], "lengths": [1, 1]}, "array.shape: 'lengths' is int64 [2]; expected lengths that add up to 3"),
        ({"x": GRID[0], "lengths": [4, -1]}, "array.shape: 'lengths' is"),
        ({"x": GRID[0], "lengths": np.array([2**64 - 1, 4], np.uint64)}, "array.shape: 'lengths' is"),
        ({"x": GRID, "lengths": [3, 4]}, "array.shape: 'lengths' is int64 [2]; expected lengths that are at most 3"),
        ({"x": GRID, "lengths": [3]}, "array.shape: 'lengths' is int64 [1]; expected one length for each of 2 rows"),
        ({"x": GRID, "lengths": [1.0, 2.0]}, "array.shape: 'lengths' is float64 [2]; expected integers [N]"),
        ({"images": GRID, "lengths": [3, 3]}, "array.shape: 'lengths' is int64 [2]; expected no lengths"),
        ({"features": GRID}, "array.name: unknown array 'features': float32 [2, 3, 4]"),
        ({"x": GRID, "group": [1, 2, 3]}, "array.name: unknown array 'group': int64 [3]; another column must have"),
        (
            {"x": GRID, "y": [0.5, 1.5], "category": [1, 2]},
            "array.name: unknown array 'category': int64 [2]; this name",
        ),
        ({"x": GRID, "words": ["a", "b"]}, "array.name: unknown array 'words': <U1 [2]; this name"),
        ({"x_dev": GRID, "split_dev": ["a", "b"]}, "array.name: unknown array 'split_dev': <U1 [2]; this name"),
        ({"x": GRID, "images": GRID}, "array.name: expected one input and one target, found x, images"),
        ({"y": [1, 2]}, "array.name: expected one input and one target, found y"),
        ({"x_train": GRID, "y_test": [1]}, "array.name: expected one input and one target for test, found y"),
        ({"x_train": GRID, "x_test": GRID, "y_test": [1, 2]}, "array.parts: expected the columns vectors, split"),
        ({"x": GRID, "x_test": GRID}, "array.parts: "),
        ({}, "data.empty: "),
    ],
)
def test_what_is_no_plain_set_of_arrays_is_refused_by_name(tmp_path: Path, named: Any, message: str) -> None:
    path = saved(tmp_path / "a.npz", **named)
    assert refused(path).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"x": np.where(GRID == 13, np.nan, GRID)}, "array.nonfinite"),
        ({"x": GRID, "y": [1.0, np.inf]}, "array.nonfinite"),
        ({"x": GRID, "lengths": [3, 0]}, "array.empty"),
        ({"x": GRID, "y": ["a", "\ud800"]}, "array.text"),
        ({"x": GRID, "y": np.array([97, 0x110000], np.uint32).view("<U1")}, "array.text"),
        ({"x": GRID, "tags": [["a", "😀", "c"], ["d", "\udfff", "e"]]}, "array.text"),
        ({"x": GRID, "group": ["a", "\udfff"]}, "array.text"),
    ],
)
def test_a_bad_row_is_counted_and_the_others_are_read(tmp_path: Path, named: Any, code: str) -> None:
    path = saved(tmp_path / "a.npz", **named)
    assert refused(path).startswith(f"{path}:2: {code}: ")
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.5))
    assert [record.line for record in arrays.read((path,), ReadingConfig(), ledger).records] == [1]


def stored(path: Path, header: dict[str, Any], content: bytes, packed: int = zipfile.ZIP_STORED) -> Path:
    """An .npz file whose header says what it likes."""
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(path, "w", packed) as file:
        file.writestr("x.npy", stream.getvalue() + content)
    return path


@pytest.mark.parametrize("shape", [(2**40, 3, 4), (2, 3, 5), (-2, -3, 4), (2**62, 2, 2), (0, 3, 4)])
def test_a_header_that_claims_another_size_is_refused_before_anything_is_allocated(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    path = stored(tmp_path / "a.npz", {"descr": "<f4", "fortran_order": False, "shape": shape}, GRID.tobytes())
    tracemalloc.start()
    message = refused(path)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    assert "array.damaged: the header of 'x' says" in message


def test_elements_without_size_cannot_make_rows_out_of_nothing(tmp_path: Path) -> None:
    header = {"descr": "<U0", "fortran_order": False, "shape": (10**12, 1, 1)}
    assert "array.dtype: " in refused(stored(tmp_path / "a.npz", header, b""))


@pytest.mark.slow
def test_a_bomb_is_refused_unpacked(tmp_path: Path) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (65 << 20, 1, 1)}
    path = stored(tmp_path / "a.npz", header, bytes(65 << 20), zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    message = refused(path)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    assert "array.bomb: " in message and "would unpack to" in message


def test_a_size_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npz", x=GRID)
    content = path.read_bytes()
    at = content.rindex(b"PK\x01\x02")  # in the list of members: sizes at 20 and 24
    lie = content[: at + 20] + struct.pack("<II", 0xFFFFFFFE, 0xFFFFFFFE) + content[at + 28 :]
    assert "array." in refused(write(path, lie))


def test_a_changed_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npz", x=GRID)
    content = bytearray(path.read_bytes())
    content[content.index(GRID.tobytes()) + 5] ^= 1
    assert "array.damaged: the file cannot be decoded: Bad CRC-32" in refused(write(path, bytes(content)))


def test_the_order_of_fortran_and_foreign_byte_order_are_understood(tmp_path: Path) -> None:
    _, rows = found_in(tmp_path, x=np.asfortranarray(GRID.astype(">f8")))
    assert all(np.array_equal(row[0], expected) for row, expected in zip(rows, GRID, strict=True))
    assert rows[0][0].dtype.isnative


@pytest.mark.slow
@settings(max_examples=100)
@given(
    arrays_of.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint64]),
        arrays_of.array_shapes(min_dims=3, max_dims=3, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_any_numbers_come_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, grid: np.ndarray) -> None:
    found = read(saved(tmp_path_factory.getbasetemp() / "a.npz", x=grid))
    assert [values[0].tobytes() for values in found.values] == [row.tobytes() for row in grid]
    assert all(values[0].dtype == grid.dtype for values in found.values)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    np.savez_compressed(path, x=GRID, y=np.array(["a", "b"]), lengths=np.array([3, 2]))
    return path.read_bytes()


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_are_read_or_refused_with_a_place(tmp_path: Path, examples: int, whole: bytes) -> None:
    """Also for whole files of which some bytes were changed, or a piece is missing."""
    changed = st.tuples(st.integers(4, len(whole) - 5), st.binary(max_size=6), st.integers(0, 6)).map(
        lambda cut: whole[: cut[0]] + cut[1] + whole[cut[0] + cut[2] :]
    )

    @settings(max_examples=examples)
    @given(any_bytes | any_bytes.map(lambda inner: b"PK\x03\x04" + inner) | changed)
    def law(content: bytes) -> None:
        require_records_or_a_place(write(tmp_path / "a.npz", content))

    law()
