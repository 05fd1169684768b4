"""Prepare files that the experiments need beside the datasets: splits of tiny Shakespeare, images of digits."""

import lzma
import os
from pathlib import Path

import numpy as np

NANOGPT_TRAIN = 0.9  # share of the characters of tiny Shakespeare for training; the rest is the dev set


def prepare_data(out: Path) -> Path:
    """Write the files and return their folder."""
    folder = out / "made"
    folder.mkdir(exist_ok=True)
    _shakespeare(folder)
    _digits(folder)
    return folder


def _shakespeare(folder: Path) -> None:
    """Split tiny Shakespeare as nanoGPT does."""
    source = Path(os.environ["SEQLOOM_DATA"]) / "tinyshakespeare" / "input.txt.xz"
    if (folder / "shakespeare-dev.txt").exists() or not source.exists():
        return
    text = lzma.decompress(source.read_bytes()).decode()
    border = int(len(text) * NANOGPT_TRAIN)
    (folder / "shakespeare-train.txt").write_text(text[:border], encoding="utf-8")
    (folder / "shakespeare-dev.txt").write_text(text[border:], encoding="utf-8")


def _digits(folder: Path) -> None:
    """Write the digits of scikit-learn, 8 x 8 pixels, stratified 60/20/20 with seed 0; skipped if not installed."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        return
    pixels, labels = load_digits(return_X_y=True)
    pictures = (pixels.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    train, rest = train_test_split(np.arange(len(labels)), test_size=0.4, stratify=labels, random_state=0)
    dev, test = train_test_split(rest, test_size=0.5, stratify=labels[rest], random_state=0)
    for name, rows in (("train", train), ("dev", dev), ("test", test)):
        np.savez(folder / f"digits-{name}.npz", x=pictures[rows], y=labels[rows])
