"""Bundles of every released format load for ever, and give the numbers that they gave when they were written."""

import json
from pathlib import Path

import pytest

from golden.write import TEMPERATURE, logits
from seqloom.bundle import FORMAT, read_bundle
from seqloom.files.folders import commit_folder
from seqloom.metrics.calibration import Calibration

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(path for path in GOLDEN.glob("bundle-*") if path.is_dir())


def test_every_format_up_to_the_present_one_has_a_golden_bundle() -> None:
    assert [path.name for path in FOLDERS] == [f"bundle-{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_golden_bundle_gives_its_frozen_logits(folder) -> None:
    frozen = json.loads(folder.with_suffix(".json").read_text())
    found = logits(folder, frozen["texts"])
    assert found == [pytest.approx(row, abs=1e-6) for row in frozen["logits"]]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 30_000


def test_a_bundle_from_before_calibration_is_read_as_one_whose_scores_stand_as_they_are() -> None:
    first, second = (read_bundle(GOLDEN / f"bundle-{number}").spec.calibration for number in (1, 2))
    assert (first, second) == (Calibration(), Calibration(TEMPERATURE))


@pytest.mark.parametrize("number", [2, 3])
def test_keys_of_older_formats_are_read_by_their_new_names(number: int, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in (GOLDEN / f"bundle-{number}").iterdir()}
    document = json.loads(files["config.json"]) | {"longest": 7}
    document["notes"] |= {"rate": 0.5, "longest": 9}
    del files["manifest.json"]
    commit_folder(tmp_path / "old", files | {"config.json": json.dumps(document).encode()})
    found = read_bundle(tmp_path / "old")
    assert found.spec.max_length == 7
    assert found.notes == {"golden": number, "lr": 0.5, "max_length": 9}
