"""The same texts give the same bytes: in another process, with another number of threads, with other hashes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from text.samples import KINDS

ROOT = Path(__file__).parents[2]
PROGRAM = """
import hashlib, sys
from seqloom.text.tokenizer import fit
from text.samples import KINDS, sentences
texts = list(sentences(int(sys.argv[1]), 3_000))
for kind in KINDS:
    limit = {} if kind == "bytes" else {"vocab_size": 700}
    tokenizer = fit(KINDS[kind](**limit), texts)
    tokens = tokenizer.encode(texts)
    found = tokenizer.to_json().encode() + tokens.values.tobytes() + tokens.starts.tobytes()
    print(kind, hashlib.sha256(found).hexdigest())
"""
SURROUNDINGS = [
    {"RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "1"},
    {"RAYON_NUM_THREADS": "2", "PYTHONHASHSEED": "2"},
    {"TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "3"},
]


def fitted_in(surroundings: dict[str, str], count: int) -> str:
    """What a fresh Python in these surroundings fits and encodes, as sums."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(count)],
        env={**os.environ, "PYTHONPATH": paths, **surroundings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 2 * len(KINDS)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000, pytest.param(6_000, marks=pytest.mark.soak)])
def test_threads_and_hashes_change_nothing(count: int) -> None:
    assert len({fitted_in(surroundings, count) for surroundings in SURROUNDINGS}) == 1
