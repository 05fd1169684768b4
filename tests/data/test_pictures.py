"""Pictures: pixels come back as they were saved; other sizes, damage, bombs and false names are refused by file."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from PIL import Image

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.data.kinds.picture import FORMATS, PIXELS, PictureInput
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.folders import read_file

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (5, 7), np.uint8)
COLOR = RNG.integers(0, 256, (5, 7, 3), np.uint8)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def folder(root: Path, **files: bytes) -> Path:
    """A folder of classes; the name of a file is class__name__ending."""
    for name, content in files.items():
        label, stem, ending = name.split("__")
        write(root / label / f"{stem}.{ending}", content)
    return root


def test_a_folder_of_classes_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    root = folder(tmp_path, b__1__png=encoded(COLOR), a__2__bmp=encoded(COLOR, "BMP"), a__1__PNG=encoded(COLOR))
    found = read(root)
    assert found.table.columns == ("picture", "label")
    assert [(Path(record.path).name, record.values[1]) for record in found.records] == [
        ("1.PNG", "a"),
        ("2.bmp", "a"),
        ("1.png", "b"),
    ]
    assert all(np.array_equal(record.values[0], COLOR) for record in found.records)


def test_parts_make_a_column(tmp_path: Path) -> None:
    for part in ("train", "test"):
        folder(tmp_path / part, a__1__png=encoded(GRAY))
    found = read(tmp_path)
    assert found.table.columns == ("picture", "label", "split")
    assert [record.values[1:] for record in found.records] == [("a", "test"), ("a", "train")]


@settings(max_examples=50)
@given(arrays_of.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3]))))
def test_pixels_come_back_as_they_were_saved(tmp_path_factory: pytest.TempPathFactory, pixels: np.ndarray) -> None:
    for kind in ("png", "bmp"):
        path = tmp_path_factory.getbasetemp() / f"a.{kind}"
        write(path, encoded(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels, kind.upper()))
        picture = read_file(path, PictureInput(), Ledger())
        assert picture is not None
        assert np.array_equal(picture, pixels)


@pytest.mark.parametrize("ending", [".jpg", ".jpeg", ".gif"])
def test_formats_that_lose_something_are_read(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", encoded(COLOR, FORMATS[ending]))
    picture = read_file(path, PictureInput(), Ledger())
    assert picture is not None
    assert picture.shape == (5, 7, 3)


def code_of(path: Path) -> str:
    ledger = Ledger()
    assert read_file(path, PictureInput(), ledger) is None
    (problem,) = ledger.refused
    assert problem.place.path == str(path)
    assert problem.fix
    return problem.code


def header_of(width: int, height: int) -> bytes:
    """A PNG that claims to be of this size, and has next to no content."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


MOVING = io.BytesIO()
Image.fromarray(GRAY).save(MOVING, "GIF", save_all=True, append_images=[Image.fromarray(255 - GRAY)])


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.png", encoded(COLOR)[:-30], "picture.damaged"),
        ("a.jpg", encoded(RNG.integers(0, 256, (64, 64, 3), np.uint8), "JPEG")[:600], "picture.damaged"),
        ("a.png", encoded(COLOR)[:60] + b"\0" + encoded(COLOR)[61:], "picture.damaged"),
        ("a.png", b"not a picture", "picture.damaged"),
        ("a.png", b"", "picture.damaged"),
        ("a.png", header_of(10_000, 9_000), "picture.bomb"),  # pillow would only warn
        ("a.png", header_of(60_000, 60_000), "picture.bomb"),
        ("a.png", encoded(COLOR, "JPEG"), "picture.magic"),
        ("a.jpg", encoded(COLOR, "PNG"), "picture.magic"),
        ("a.png", encoded(COLOR, "TIFF"), "picture.damaged"),
        ("a.png", encoded(GRAY.astype(np.uint16)), "picture.mode"),
        ("a.gif", MOVING.getvalue(), "picture.frames"),
    ],
)
def test_what_is_no_sound_picture_is_refused(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    assert code_of(write(tmp_path / name, content)) == code


def test_the_bound_on_pixels_is_below_what_the_cases_claim() -> None:
    assert PIXELS < 10_000 * 9_000 < 2 * PIXELS


def test_a_picture_that_is_not_there_is_a_bad_row_of_the_table_that_names_it(tmp_path: Path) -> None:
    ledger = Ledger()
    assert read_file(tmp_path / "no.png", PictureInput(), ledger, Place("table.csv", 7, 2)) is None
    assert str(ledger.refused[0]).startswith("table.csv:7:2: file.missing: there is no picture file ")


def test_another_size_is_refused_naming_both(tmp_path: Path) -> None:
    root = folder(tmp_path, a__1__png=encoded(COLOR), a__2__png=encoded(COLOR[:4]), b__1__png=encoded(GRAY))
    message = refused(root)
    assert "2.png: picture.size: 7 x 4 pixels in color; the first picture has 7 x 5 pixels in color." in message
    assert "1.png: picture.size: 7 x 5 pixels in gray; the first picture has 7 x 5 pixels in color." in message


def test_transparent_pixels_are_laid_on_white_and_noted(tmp_path: Path) -> None:
    alpha = np.full((5, 7), 255, np.uint8)
    alpha[0, 0] = 0
    path, ledger = write(tmp_path / "a.png", encoded(np.dstack([COLOR, alpha]))), Ledger()
    picture = read_file(path, PictureInput(), ledger)
    expected = COLOR.copy()
    expected[0, 0] = 255
    assert np.array_equal(picture, expected)
    assert ledger.counts["picture.alpha"] == 1


def test_an_alpha_channel_without_transparency_changes_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    solid = np.dstack([GRAY, np.full((5, 7), 255, np.uint8)])
    picture = read_file(write(tmp_path / "a.png", encoded(solid)), PictureInput(), ledger)
    assert picture is not None
    assert np.array_equal(picture[..., 0], GRAY) and not ledger.counts


def test_a_picture_that_lies_on_its_side_is_turned_and_noted(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees, clockwise
    path, ledger = write(tmp_path / "a.png", encoded(COLOR, exif=exif)), Ledger()
    assert np.array_equal(read_file(path, PictureInput(), ledger), np.rot90(COLOR, -1))
    assert ledger.counts["picture.turned"] == 1


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path / "secret.png", encoded(GRAY))
    root = folder(tmp_path / "data", a__1__png=encoded(GRAY))
    (root / "a" / "2.png").symlink_to(outside)
    assert "2.png: file.escape: " in refused(root)


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    assert "data.empty" in refused(folder(tmp_path, a__1__webp=b"x"))


def test_other_files_are_left_out_with_a_warning(tmp_path: Path) -> None:
    found = read(folder(tmp_path, a__1__png=encoded(GRAY), a__2__webp=b"x"))
    assert len(found.records) == 1
    assert found.only("folder.other").severity == "warn"


WHOLE = [encoded(COLOR), encoded(COLOR, "JPEG"), encoded(COLOR, "GIF"), encoded(COLOR, "BMP"), encoded(GRAY)]
changed = st.tuples(st.sampled_from(WHOLE), st.integers(0, 2_000), st.binary(max_size=6), st.integers(0, 6)).map(
    lambda cut: cut[0][: cut[1] % len(cut[0])] + cut[2] + cut[0][cut[1] % len(cut[0]) + cut[3] :]
)


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_are_read_or_refused_with_a_place(tmp_path: Path, examples: int) -> None:
    """Also for whole files of which some bytes were changed, or a piece is missing."""

    @settings(max_examples=examples)
    @given(any_bytes | changed, st.sampled_from(sorted(FORMATS)))
    def law(content: bytes, ending: str) -> None:
        path = write(tmp_path / "a" / f"1{ending}", content)
        require_records_or_a_place(tmp_path)
        path.unlink()

    law()
