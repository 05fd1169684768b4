"""The run of two checkpoints that most tests of seqloom.files begin with."""

from pathlib import Path

import pytest

from durable_common import QUICK, checkpoint
from seqloom.files.folders import commit_folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 10 and 20."""
    for step in (10, 20):
        commit_folder(tmp_path / f"step-{step:06d}", checkpoint(step), files=QUICK)
    return tmp_path
