"""A local Ray cluster makes the same bytes as one process; only where the extra `ray` is installed."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from embedding_common import small_model, some_texts, write_texts
from seqloom.embedding import embed_file


@pytest.mark.soak
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
@pytest.mark.parametrize("kept_as", ["float32", "int8"])
def test_a_cluster_makes_the_same_bytes_as_one_process(tmp_path, kept_as) -> None:
    model, file = small_model(tmp_path), write_texts(tmp_path / "a.txt", some_texts(9_000))
    embed_file(model, file, tmp_path / "whole.npy", kept_as=kept_as)
    out = tmp_path / "v.npy"
    program = [sys.executable, "-m", "seqloom", "embed", model, file, "-o", out, "--engine", "ray", "--as", kept_as]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*map(str, program), "--device", "cpu"], env=environment, timeout=300, check=False)
    assert done.returncode == 0
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()
