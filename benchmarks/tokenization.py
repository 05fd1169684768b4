"""Seqloom's encoding against the tokenizers library, on word-like text: ratios of medians in one run, with their range.

python benchmarks/tokenization.py [sentences]
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from seqloom.config.tokenizers import AnyTokenizer, BpeConfig, BytesConfig, CharactersConfig, UnigramConfig, WordsConfig
from seqloom.text.subwords import SubwordSegmenter
from seqloom.text.tokenizer import fit

ROUNDS = 5
CONFIGS: tuple[AnyTokenizer, ...] = (
    BpeConfig(vocab_size=8_000),
    UnigramConfig(vocab_size=8_000),
    WordsConfig(),
    CharactersConfig(),
    BytesConfig(),
)


def sentences(count: int, words: int = 60_000) -> list[str]:
    """Return sentences of fifteen words on average, with some words far more frequent than others."""
    draw = np.random.default_rng(0)
    syllables = ["ba", "ke", "lo", "mi", "nu", "ra", "st", "en", "ing", "ed", "un", "er", "th", "qu", "é", "ß"]
    parts, counts = draw.choice(syllables, (words, 4)).tolist(), draw.integers(1, 5, words).tolist()
    known = ["".join(some[:size]) for some, size in zip(parts, counts, strict=True)]
    lengths = draw.integers(5, 26, count)
    picks = iter((draw.random(lengths.sum()) ** 3 * words).astype(int).tolist())
    ends = draw.choice([".", "!", ", 12", "?"], count)
    return [
        " ".join(known[next(picks)] for _ in range(length)) + end for length, end in zip(lengths, ends, strict=True)
    ]


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main(arguments: Sequence[str]) -> None:
    """Print a row per tokenizer: the median, and for those of the library the ratio to its `encode_batch`."""
    texts = sentences(int(arguments[0]) if arguments else 200_000)
    print(f"{len(texts):,} sentences, {sum(map(len, texts)):,} characters, {ROUNDS} rounds, CPU time")
    for config in CONFIGS:
        tokenizer = fit(config, texts[:20_000])
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            ours.append(seconds(lambda tokenizer=tokenizer: tokenizer.encode(texts)))  # type: ignore[misc]
            if isinstance(tokenizer.segmenter, SubwordSegmenter):
                library = tokenizer.segmenter._library
                theirs.append(seconds(lambda library=library: library.encode_batch(texts, add_special_tokens=False)))  # type: ignore[misc]
        print(row(config.kind(), ours, theirs))


def row(kind: str, ours: list[float], theirs: list[float]) -> str:
    """Return one row of the table."""
    mine = f"{kind:12} {statistics.median(ours):7.2f} s ({min(ours):.2f}-{max(ours):.2f})"
    if not theirs:
        return mine
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    other = f"library {statistics.median(theirs):7.2f} s ({min(theirs):.2f}-{max(theirs):.2f})"
    return f"{mine}   {other}   ratio {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


if __name__ == "__main__":
    main(sys.argv[1:])
