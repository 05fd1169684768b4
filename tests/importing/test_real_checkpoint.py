"""The real checkpoint that SEQLOOM_MINILM names (a folder with all-MiniLM-L6-v2), and STS-B in SEQLOOM_DATA.

Without them nothing runs: they are too large to be kept here.
"""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

import seqloom
from importing_common import plain_sentence
from seqloom.importing.models import import_model
from seqloom.metrics.correlation import spearman

CHECKPOINT, DATA = (os.environ.get(name, "") for name in ("SEQLOOM_MINILM", "SEQLOOM_DATA"))
TEXTS = ["A plane is taking off.", "Na\u00efve caf\u00e9s, don't they? \u5317\u4eac", "word " * 400, "x" * 150]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHECKPOINT, reason="SEQLOOM_MINILM names no checkpoint")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_model(CHECKPOINT, tmp_path_factory.mktemp("minilm") / "model")


def test_its_sentence_vectors_are_those_of_the_plain_code(model: Path) -> None:
    expected = np.stack([plain_sentence(Path(CHECKPOINT), text, longest=256).numpy() for text in TEXTS])
    assert np.abs(seqloom.load(model).embed(TEXTS) - expected).max() < 1e-5


@pytest.mark.skipif(not DATA, reason="SEQLOOM_DATA names no folder of datasets")
def test_it_reaches_the_published_figure_of_sts_b(model: Path) -> None:
    with (Path(DATA) / "stsb" / "stsb-en-test.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    loaded = seqloom.load(model)
    first, second = (loaded.embed([row[side] for row in rows]) for side in (0, 1))
    scores = np.array([float(row[2]) for row in rows])
    assert 100 * spearman((first * second).sum(axis=1), scores) == pytest.approx(82.03, abs=0.1)
