"""What the tests of search share: a model that is a table of random words, and small collections."""

import hashlib
import json
import re
import zlib
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.events import finished
from seqloom.search.build import build_index
from seqloom.search.documents import Collection
from seqloom.search.index import Index
from seqloom.search.store import IndexSummary, Settings, TextDocument

WIDTH = 16
VOCABULARY = [f"{first}{second}" for first in ("ka", "lo", "mi", "nu", "pe") for second in ("ba", "do", "fi", "gu")]


class WordTable:
    """The mean of a random vector for each word: texts with the same words are near one another."""

    path, identity, caveat, max_length = Path("table"), "0" * 64, "", 12

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,16] the vectors of the texts."""
        return np.stack([np.mean([_vector(word) for word in text.split() or [""]], axis=0) for text in texts])

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """[N] how many words each has."""
        return np.array([len(text.split()) for text in texts])

    def knows(self, text: str) -> bool:
        """Whether a text has a word of the small language."""
        return any(re.sub(r"\W", "", word).lower() in VOCABULARY for word in text.split())


def _vector(word: str) -> np.ndarray:
    draws = np.random.Generator(np.random.PCG64(zlib.crc32(re.sub(r"\W", "", word).lower().encode())))
    return draws.standard_normal(WIDTH).astype(np.float32)


SETTINGS = Settings("table", WordTable.identity, WIDTH, WordTable.max_length)


def some_text(draws: np.random.Generator, sentences: int = 3) -> str:
    """A few sentences of a small language."""
    made = [" ".join(draws.choice(VOCABULARY, draws.integers(2, 9))).capitalize() + "." for _ in range(sentences)]
    return " ".join(made)


def some_documents(count: int, seed: int = 0) -> list[TextDocument]:
    """Documents of several lengths with a year and a language."""
    draws = np.random.default_rng(seed)
    return [
        TextDocument(
            name, some_text(draws, 1 + number % 6), {"id": name, "year": 1990 + number % 30, "lang": "en fi"[::2]}
        )
        for number, name in enumerate(map("d{}".format, range(count)))
    ]


def write_documents(path: Path, documents: Iterable[TextDocument]) -> Path:
    """The file of documents."""
    rows = ({"id": one.id, "text": one.text, **one.columns} for one in documents)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def built(folder: Path, documents: Sequence[TextDocument], name: str = "index") -> Index:
    """A fresh index of documents."""
    file = write_documents(folder / f"{name}.jsonl", documents)
    last(build_index(folder / name, WordTable(), Collection(file)))
    return Index(folder / name)


def last(work: Generator[Any, None, IndexSummary]) -> IndexSummary:
    """What a build ends with."""
    return finished(work)


def bytes_of(folder: Path) -> dict[str, str]:
    """The sums of all files of an index but its lock, by their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
