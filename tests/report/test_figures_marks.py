"""Matrices with words and frames: what stands in a cell is read on every surface, frames are where they were put."""

import re

import pytest

from seqloom.errors import DataError
from seqloom.report.figures.matrix import Matrix

WORDS = [["cat", "<b>"], ["a\u202eb", "猫 and dogs and more"]]


def lettered(**options: object) -> Matrix:
    given: dict[str, object] = {"rows": ["x", "y"], "columns": ["0", "1"], "values": [[0.25, 0.5], [0.75, None]]}
    return Matrix(title="Lens", **(given | options))  # type: ignore[arg-type]


def test_words_stand_in_the_cells_and_their_numbers_are_told() -> None:
    drawn = lettered(words=WORDS)
    assert "cat 0.25" in drawn.text() and "cat 0.25" in drawn.svg() and ">cat</text>" in drawn.svg()
    assert ">&lt;b&gt;</text>" in drawn.svg() and "\u202e" not in drawn.svg() + drawn.text()
    assert drawn.data()["words"] == WORDS
    assert lettered().text() != drawn.text() and "cat" not in lettered().svg()


def test_a_word_that_is_too_long_is_cut_in_its_cell() -> None:
    text = lettered(words=WORDS, values=[[0.25, 0.5], [0.75, 0.5]]).svg()
    assert "猫 and dogs…" in text and "and more" not in text


def test_frames_are_around_the_cells_that_they_were_asked_for() -> None:
    drawn = lettered(framed=[(0, 1)], dashed=[(1, 0)])
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"[^>]*stroke-dasharray="([^"]+)"', drawn.svg())
    (sure, possible) = sorted(boxes, key=lambda box: box[2], reverse=True)
    assert sure[2] == "none" and possible[2] == "4 3"
    assert float(sure[0]) > float(possible[0]) and float(sure[1]) < float(possible[1])
    lines = drawn.text().splitlines()
    assert "[0.50]" in lines[-2] and "(0.75)" in lines[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"framed": [(2, 0)]}, r"framed has the cell \(2, 0\) of 2 x 2"),
        ({"dashed": [(0, -1)]}, r"dashed has the cell \(0, -1\)"),
        ({"words": [["a", "b"]]}, "words"),
        ({"words": [["a"], ["b"]]}, "each row of words"),
    ],
)
def test_what_does_not_fit_the_matrix_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        lettered(**options)
