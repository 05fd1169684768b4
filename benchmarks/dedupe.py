"""`seqloom dedupe` on sentences with planted duplicates: recall, precision, time and memory.

    python benchmarks/dedupe.py [ROWS]

A quarter of the rows are copies of another row with small edits: letters, case, punctuation, swapped, missing or
doubled words. Another quarter are near misses: a third to a half of the words of a sentence are replaced. Words follow
Zipf's law. Two rows should be in one cluster if they are copies of the same sentence.
"""

import resource
import sys
import time
from collections.abc import Sequence

import numpy as np

from seqloom.search.duplicates import dedupe

ROWS = 200_000
WORDS = 30_000
SYLLABLES = [
    f"{first}{second}" for first in "bcdfghklmnprstvwz" for second in ("a", "e", "i", "o", "u", "an", "er", "il")
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PER_EDIT = 40  # characters of a sentence per edited letter


class Language:
    """Words of an artificial language; the n-th is drawn about 1/n as often as the first (Zipf)."""

    def __init__(self, draws: np.random.Generator) -> None:
        counts = draws.choice([1, 2, 3, 4], WORDS, p=[0.2, 0.4, 0.3, 0.1])
        self.words = ["".join(draws.choice(SYLLABLES, count)) for count in np.sort(counts)]
        shares = 1 / np.arange(10, WORDS + 10)
        self.sums, self.draws = np.cumsum(shares / shares.sum()), draws

    def some(self, count: int) -> list[str]:
        """Return this many random words."""
        numbers = np.searchsorted(self.sums, self.draws.random(count))
        return [self.words[min(number, WORDS - 1)] for number in numbers]


def _letter(text: str, draws: np.random.Generator) -> str:
    at = int(draws.integers(len(text)))
    letter = LETTERS[draws.integers(26)]
    return (text[:at] + letter + text[at + 1 :], text[:at] + text[at + 1 :], text[:at] + letter + text[at:])[
        draws.integers(3)
    ]


def _letters(words: list[str], draws: np.random.Generator) -> list[str]:
    text = " ".join(words)
    for _ in range(1 + len(text) // PER_EDIT):
        text = _letter(text, draws)
    return text.split(" ")


def _case(words: list[str], draws: np.random.Generator) -> list[str]:
    return [(str.upper, str.title, str.lower)[draws.integers(3)](word) for word in words]


def _marks(words: list[str], draws: np.random.Generator) -> list[str]:
    return [word + ("", "", "", ",", ";", " -", "...")[draws.integers(7)] for word in words]


def _swapped(words: list[str], draws: np.random.Generator) -> list[str]:
    at = int(draws.integers(len(words) - 1))
    return [*words[:at], words[at + 1], words[at], *words[at + 2 :]]


def _doubled(words: list[str], draws: np.random.Generator) -> list[str]:
    at = int(draws.integers(len(words)))
    return [*words[: at + 1], words[at], *words[at + 1 :]]


EDITS = (_letters, _case, _marks, _swapped, _doubled)


def edited(words: list[str], draws: np.random.Generator) -> list[str]:
    """Return a sentence after one or two small edits."""
    for edit in draws.choice(len(EDITS), draws.integers(1, 3), replace=False):
        words = EDITS[edit](words, draws)
    return words


def near_miss(words: list[str], language: Language) -> list[str]:
    """Return a sentence with a third to a half of its words replaced."""
    share = language.draws.uniform(1 / 3, 1 / 2)
    at = language.draws.choice(len(words), max(2, round(share * len(words))), replace=False)
    others = dict(zip(at.tolist(), language.some(len(at)), strict=True))
    return [others.get(number, word) for number, word in enumerate(words)]


def planted(rows: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Return sentences in random order, and for each the number of the sentence that it copies, or its own."""
    draws = np.random.default_rng(seed)
    language = Language(draws)
    sentences = [language.some(int(draws.integers(6, 25))) for _ in range(rows // 2)]
    repeats = draws.integers(rows // 4, size=rows // 4)  # some sentences are copied once, some several times
    near = draws.integers(rows // 2, size=rows - rows // 2 - rows // 4)
    texts = [
        *sentences,
        *(edited(sentences[one], draws) for one in repeats),
        *(near_miss(sentences[one], language) for one in near),
    ]
    truth = np.concatenate([np.arange(rows // 2), repeats, np.arange(rows // 2, rows // 2 + len(near))])
    order = draws.permutation(rows)
    return [" ".join(texts[row]).capitalize() + "." for row in order], truth[order]


def pairs_in(groups: np.ndarray) -> int:
    """Return the number of pairs of rows in the same group."""
    _, counts = np.unique(groups, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def scores(clusters: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return recall and precision of pairs; cluster 0 means no duplicates."""
    rows = len(clusters)
    found = np.where(clusters > 0, clusters, -1 - np.arange(rows))
    both = pairs_in(np.unique(np.stack([found, truth]), axis=1, return_inverse=True)[1].ravel())
    return both / pairs_in(truth), both / max(1, pairs_in(found))


def main(arguments: Sequence[str] = ()) -> None:
    rows = int(arguments[0]) if arguments else ROWS
    texts, truth = planted(rows)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.perf_counter()
    found = dedupe(texts)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(found.histogram.figure(found.threshold).text(80))
    recall, precision = scores(found.clusters, truth)
    print(f"{rows:,} rows in {seconds:.0f} s, peak {peak:.0f} MiB ({before:.0f} MiB before)")
    print(f"threshold {found.threshold:.2f}: recall {recall:.4f}, precision {precision:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
