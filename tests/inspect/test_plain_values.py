"""What JSON tells of a view stays loadable whatever its size, and says what it has made smaller."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from seqloom.errors import ConfigError
from seqloom.inspect.view import MOST_BLOCKS, MOST_NUMBERS, View, blocks, plain
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Numbers(View):
    """A view of any numbers."""

    kind: ClassVar[str] = "numbers"
    values: np.ndarray
    inner: tuple["Numbers", ...] = ()

    def figures(self) -> tuple[Figure, ...]:
        return (Bars(title=self.title, labels=["x"], values=[1.0]),)


@pytest.mark.parametrize("shape", [(70_000,), (512, 512), (30, 60, 70), (1, 80_000)])
def test_blocks_are_bounded_and_hold_the_mean_and_both_extremes(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).normal(size=shape)
    told = blocks(values)
    mean, maximum, minimum = (np.array(told[name]) for name in ("mean", "maximum", "minimum"))
    assert mean.size <= MOST_BLOCKS < 4 * mean.size and mean.shape == maximum.shape
    assert maximum.max() == pytest.approx(values.max(), rel=1e-5)
    assert minimum.min() == pytest.approx(values.min(), rel=1e-5)
    first = values[tuple(slice(0, side) for side in told["block"])]
    assert mean.flat[0] == pytest.approx(first.mean(), rel=1e-4) and maximum.flat[0] == pytest.approx(
        first.max(), rel=1e-5
    )


def test_a_large_array_is_told_by_blocks_and_named_unless_the_whole_is_asked_for() -> None:
    large = np.arange(MOST_NUMBERS + 1, dtype=float)
    large[:3] = np.nan, np.inf, 2.0
    view = Numbers(title="x", values=np.array([np.nan, 1.0]), inner=(Numbers(title="y", values=large),))
    told = view.to_json()
    assert told["in_blocks"] == {"inner.0.values": [MOST_NUMBERS + 1]}
    assert told["values"] == [None, 1.0] and told["inner"][0]["values"]["minimum"][0] == 2.0
    assert len(json.dumps(told, allow_nan=False)) < 500_000
    whole = view.to_json(full=True)
    assert "in_blocks" not in whole and whole["inner"][0]["values"][:4] == [None, None, 2.0, 3.0]
    assert len(whole["inner"][0]["values"]) == MOST_NUMBERS + 1
    small = Numbers(title="x", values=np.ones(MOST_NUMBERS)).to_json()
    assert small["values"] == [1.0] * MOST_NUMBERS and "in_blocks" not in small


def test_a_block_without_a_number_is_none() -> None:
    told = blocks(np.full(MOST_NUMBERS, np.nan))
    assert set(told["mean"]) == set(told["maximum"]) == {None}
    assert plain({"a": np.float32(np.nan), "b": (np.int64(2), "x")}) == {"a": None, "b": [2, "x"]}


def test_a_truth_of_numpy_is_one_of_python() -> None:
    told = plain({"one": np.bool_(True), "many": np.array([False]), "part": np.array([True])[0]})
    assert json.loads(json.dumps(told)) == {"one": True, "many": [False], "part": True} and told["one"] is True


def test_a_file_tells_every_number_where_it_is_asked_to(tmp_path: Path) -> None:
    view = Numbers(title="x", values=np.ones(MOST_NUMBERS + 1))
    assert json.loads(view.save(tmp_path / "a.json").read_text()) == view.to_json()
    assert json.loads(view.save(tmp_path / "a.json", full=True).read_text()) == view.to_json(full=True)
    with pytest.raises(ConfigError, match=r"full is only for JSON, and the file is a\.svg"):
        view.save(tmp_path / "a.svg", full=True)
