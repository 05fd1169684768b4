"""What the tests of seqloom.files share: small checkpoints and records, and how they are damaged and listed."""

import random
from pathlib import Path

from hypothesis import settings

from durable_faults import QuickFiles

QUICK = QuickFiles()
OLD, NEW = b"width = 64\n" * 7, b"width = 128\n" * 5
RECORDS = [{"step": i, "loss": 1 / (i + 1), "note": "é"} for i in range(4)]
properties = settings(derandomize=True, database=None, deadline=None, max_examples=60)


def checkpoint(step: int) -> dict[str, bytes]:
    """The files of a small checkpoint; weights of 3 pages, so that a page can be lost."""
    weights = random.Random(step).randbytes(3 * 4096)
    labels = "".join(f"label {step} {i}\n" for i in range(5)).encode()
    return {"model.bin": weights, "trainer.json": b'{"step": %d}' % step, "text/labels.txt": labels}


def listing(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
