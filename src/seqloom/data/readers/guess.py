"""What a .txt file contains, by its first lines: words with tags (CoNLL), paragraphs of prose, or lines.

    EU       B-ORG        a word and its tag on each line, blank lines between sentences      format conll
    rejects  O

    It was a dark         lines that belong together, blank lines between paragraphs          unit paragraph
    and stormy night.

Only files whose format, template and unit are not given are looked at. If the columns may be words and tags but the
tags do not look like tags, the file is refused, and `--format conll` or `--format text` decides.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from seqloom.config.data import ANY_ROWS, DataConfig, ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.conll import CELLS, DOCUMENT, cells_of
from seqloom.data.readers.files import is_file, known_format
from seqloom.data.readers.passages import lines_of
from seqloom.errors import SeqloomError

SAMPLE, CHARACTERS = 1_000, 1 << 20  # most lines and characters that are looked at
FEWEST = 4  # lines with words, and
SENTENCES = 2  # blocks of lines, below which nothing is guessed
WIDEST = 4  # cells of a line, if the last ones do not look like tags
LONGEST = 50  # lines of a mean paragraph; with fewer blank lines, these are stray
TAG = re.compile(r"O|[BIOESLU][-_]\S+|[A-Z]{1,6}\$?|[.,:;!?$#'`\"()-]{1,3}|-[LR]RB-")  # of entities, parts of speech


class GuessedReading(NamedTuple):
    """How a file is read, and a message about what was guessed."""

    config: ReadingConfig
    messages: tuple[str, ...] = ()


def guess(config: DataConfig, ledger: Ledger, *, words: bool = True, prose: bool = True) -> GuessedReading:
    """How the training file is read; raise RejectedError if it may contain words and tags, but that is not sure.

    Args:
        config: the data; only its first file is looked at.
        ledger: gets the refusal.
        words: whether words with tags can be meant.
        prose: whether paragraphs of prose can be meant.
    """
    reading, path = config.reading, Path(config.train[0])
    is_open = reading.format is None and reading.template is None and reading.unit is None
    if not is_open or len(config.train) > 1 or known_format(path) != "text" or not is_file(path):
        return GuessedReading(reading)
    blocks = blocks_of(_first_lines(path, reading))
    if words and (columns := columns_of(blocks)):
        if not are_tags(columns):
            text = "each line has the same number of columns: are these words and their tags, or lines of text?"
            fix = "give --format conll for words and tags, or --format text for lines of text"
            ledger.bad_file("file.format", text, Place(str(path), 1), fix)
        kind = "conllu" if len(columns[0]) == len(CELLS) and columns[0][0].isdecimal() else "conll"
        text = f"format: {kind}, because each line of {path.name} has a word and its tag (--format text reads lines)"
        return GuessedReading(msgspec.structs.replace(reading, format=kind), (text,))
    if prose and len(blocks) >= SENTENCES and sum(map(len, blocks)) <= LONGEST * len(blocks):
        text = "text: a document ends at a blank line (--unit line makes each line a document)"
        return GuessedReading(msgspec.structs.replace(reading, unit="paragraph"), (text,))
    return GuessedReading(reading)


def has_sentences(path: Path, reading: ReadingConfig) -> bool:
    """Whether the lines of a file of inputs are sentences, not words in columns: a word, or words with tags."""
    lines = [line for line in _first_lines(path, reading) if line.strip() and not line.startswith(("#", DOCUMENT))]
    separator = "\t" if any("\t" in line for line in lines) else " "
    rows = [cells_of(line, separator) for line in lines]
    width = len(rows[0]) if rows else 1
    return any(len(row) != width for row in rows) or (width > 1 and not are_tags(rows))


def _first_lines(path: Path, reading: ReadingConfig) -> list[str]:
    lines: list[str] = []
    with suppress(SeqloomError):  # it is reported when the file is read
        room = CHARACTERS
        for _, line in islice(lines_of(path, reading, Ledger(ANY_ROWS)), SAMPLE):
            lines.append(line)
            room -= len(line)
            if room < 0:
                break
    return lines


def blocks_of(lines: Sequence[str]) -> list[list[str]]:
    """The lines between blank lines.

    >>> blocks_of(["a", "b", "", " ", "c"])
    [['a', 'b'], ['c']]
    """
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return blocks if blocks[-1] else blocks[:-1]


def columns_of(blocks: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells of each line if they may be words and tags; else an empty list.

    All lines have the same number of cells, two or more, with tabs or spaces between them. The last ones look like
    tags, or there are few cells and the last ones repeat. A word has no spaces.
    """
    words = [line for block in blocks for line in block if not line.startswith(("#", DOCUMENT))]
    if len(words) < FEWEST or len(blocks) < SENTENCES or max(map(len, blocks)) < 2:
        return []
    separator = "\t" if "\t" in words[0] else " "
    rows = [cells_of(line, separator) for line in words]
    width = len(rows[0])
    if width < 2 or any(len(row) != width or not all(row) or " " in row[0].strip() for row in rows):
        return []
    repeated = width <= WIDEST and 3 * len({row[-1] for row in rows}) <= len(rows)
    return rows if repeated or are_tags(rows) else []


def are_tags(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the last cells look like tags of entities or parts of speech."""
    return all(TAG.fullmatch(row[-1]) for row in rows) or len(rows[0]) == len(CELLS)
