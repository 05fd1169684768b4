"""A process that embeds a file is killed, again and again: in the end the bytes are those of one that was not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedding_common import small_model, some_texts, write_texts
from seqloom.search.embedding import bulk, windows
from seqloom.search.embedding.bulk import embed_file

PLACES = [
    *("file-50:kill:3", "manifest-half:kill:2", "before-rename:kill:3", "after-rename:kill:2", "file-synced:kill:6"),
    *("before-manifest:kill:1", "file-new:kill:5", "after-manifest:kill:1", "file-100:kill:2", "retention-half:kill:1"),
]


def killed(folder: Path, monkeypatch, rows: int, *arguments: str) -> list[int]:
    """How the processes ended, if the bytes at the end are right."""
    small_model(folder)
    file = write_texts(folder / "a.txt", some_texts(rows))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, str(Path(__file__).with_name("killing.py")), str(folder), *arguments]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(windows, "ROWS", 8)
    monkeypatch.setattr(bulk, "ENOUGH", 8)
    embed_file(folder / "model", file, folder / "whole.npy", dtype="int8")
    for ending in ("", ".json"):
        assert (folder / f"v.npy{ending}").read_bytes() == (folder / f"whole.npy{ending}").read_bytes()
    assert not [path.name for path in folder.iterdir() if path.name.startswith((".", "v.npy.work"))]
    codes: list[int] = json.loads(done.stdout)
    return codes


@pytest.mark.slow
def test_two_kills_do_not_change_a_byte(tmp_path, monkeypatch) -> None:
    assert killed(tmp_path, monkeypatch, 45, PLACES[0], PLACES[-1]) == [-signal.SIGKILL] * 2 + [0]


@pytest.mark.soak
def test_kills_at_ten_places_do_not_change_a_byte(tmp_path, monkeypatch) -> None:
    assert killed(tmp_path, monkeypatch, 200, *PLACES) == [-signal.SIGKILL] * 10 + [0]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_ten_random_moments_do_not_change_a_byte(tmp_path, monkeypatch, seed) -> None:
    codes = killed(tmp_path, monkeypatch, 400, str(seed))
    assert codes[-1] == 0 and -signal.SIGKILL in codes
