"""What a .txt file contains, by its first lines: words with tags (CoNLL), paragraphs of prose, or lines.

    EU       B-ORG        a word and its tag on each line, blank lines between sentences      format conll
    rejects  O

    It was a dark         lines that belong together, blank lines between paragraphs          unit paragraph
    and stormy night.

Only files whose format, template and unit are not given are looked at. If the columns may be words and tags but the
tags do not look like tags, or a few lines have no word and tag, the file is refused with the line that raised the
doubt, and `--format conll` or `--format text` decides.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
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
from seqloom.report.labels import shortened

SAMPLE, CHARACTERS = 1_000, 1 << 20  # most lines and characters that are looked at
FEWEST = 4  # lines with words, and
SENTENCES = 2  # blocks of lines, below which nothing is guessed
WIDEST = 4  # cells of a line, if the last ones do not look like tags
LONGEST = 50  # lines of a mean paragraph; with fewer blank lines, these are stray
TAGGED = 2 / 3  # share of lines with a word and a tag, from which the others are taken for mistakes,
ALIKE = 0.9  # and the same if the last cells only repeat
SPOKEN = 0.25  # share of last cells that are also first ones, from which they are words and not tags
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
    lines = _first_lines(path, reading)
    blocks = blocks_of(lines)
    if words and (columns := columns_of(blocks)):
        place = Place(str(path), 1 if columns.odd is None else lines.index(columns.odd) + 1)
        decide = "--format conll for words and tags, or --format text for lines of text"
        if columns.odd is not None:
            text = f"almost every line has a word and its tag, but not this one: '{shortened(columns.odd)}'"
            ledger.bad_file("file.format", text, place, f"correct the line, or give {decide}")
        if not are_tags(columns.rows):
            text = "each line has the same number of columns: are these words and their tags, or lines of text?"
            ledger.bad_file("file.format", text, place, f"give {decide}")
        first = columns.rows[0]
        kind = "conllu" if len(first) == len(CELLS) and first[0].isdecimal() else "conll"
        text = f"format: {kind}, because each line of {path.name} has a word and its tag (--format text reads lines)"
        return GuessedReading(msgspec.structs.replace(reading, format=kind), (text,))
    if prose and len(blocks) >= SENTENCES and sum(map(len, blocks)) <= LONGEST * len(blocks):
        text = "text: a document ends at a blank line (--unit line makes each line a document)"
        return GuessedReading(msgspec.structs.replace(reading, unit="paragraph"), (text,))
    return GuessedReading(reading)


def has_sentences(path: Path, reading: ReadingConfig, labels: Collection[str] = ()) -> bool:
    """Whether the lines of a file of inputs are sentences, not words in columns: a word, or words with tags.

    Sentences may have equally many words, with a mark or capitals at the end. So what looks like a tag decides only
    after a tab or in many lines. Two lines are columns if they end in tags of the model (`labels`), not only in marks,
    which are also tags of parts of speech. One line without tabs is a sentence.
    """
    blocks = blocks_of(_first_lines(path, reading))
    lines = [line for block in blocks for line in block if not line.startswith(("#", DOCUMENT))]
    separator = "\t" if any("\t" in line for line in lines) else " "
    rows = [cells_of(line, separator) for line in lines]
    widths = {*map(len, rows)}
    if len(widths) != 1 or widths == {1}:
        return len(widths) > 1
    known = [row[-1] for row in rows if row[-1] in labels]
    are_labels = len(known) >= max(2, TAGGED * len(rows)) and any(map(str.isalnum, "".join(known)))
    return not (are_labels or (are_tags(rows) and (separator == "\t" or columns_of(blocks))))


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


class TaggedLines(NamedTuple):
    """The cells of lines that may be words and tags."""

    rows: list[list[str]]
    odd: str | None = None  # the first line that has no word and tag


def columns_of(blocks: Sequence[Sequence[str]]) -> TaggedLines | None:
    """The cells of each line if they may be words and tags; else None.

    Almost all lines have the same number of cells, two or more, with tabs or spaces between them. The last ones look
    like tags, or there are few cells and the last ones repeat. A word has no spaces, and a tag is no word of the text.
    """
    lines = [line for block in blocks for line in block if not line.startswith(("#", DOCUMENT))]
    if len(lines) < FEWEST or len(blocks) < SENTENCES or max(map(len, blocks)) < 2:
        return None
    separator = "\t" if 2 * sum("\t" in line for line in lines) > len(lines) else " "
    cells = [cells_of(line, separator) for line in lines]
    width = Counter(map(len, cells)).most_common(1)[0][0]
    fits = [len(row) == width and all(row) and " " not in row[0].strip() for row in cells]
    rows = [row for row, fit in zip(cells, fits, strict=True) if fit]
    if width < 2 or len(rows) < TAGGED * len(lines):
        return None
    tagged = [width == len(CELLS) or TAG.fullmatch(row[-1]) is not None for row in rows]
    if not _in_capitals(rows) and sum(tagged) >= max(TAGGED * len(lines), ALIKE * len(rows)):
        rest = iter(tagged)
        odd = (line for line, fit in zip(lines, fits, strict=True) if not (fit and next(rest)))
    else:
        spoken, last = {row[0] for row in rows}, [row[-1] for row in rows]
        repeated = width <= WIDEST and 3 * len({*last}) <= len(rows)
        in_words = sum(one in spoken for one in last if any(map(str.isalpha, one))) >= SPOKEN * len(rows)
        if not repeated or in_words or len(rows) < ALIKE * len(lines):
            return None
        odd = (line for line, fit in zip(lines, fits, strict=True) if not fit)
    return TaggedLines(rows, next(odd, None))


def _in_capitals(rows: Sequence[Sequence[str]]) -> bool:
    """Whether words are in capitals, as tags are: then tags of parts of speech cannot be told from words."""
    plain = not any(row[-1] == "O" or "-" in row[-1] for row in rows)
    return plain and 2 * sum(row[0].isupper() for row in rows) > len(rows)


def are_tags(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the last cells look like tags of entities or parts of speech."""
    tagged = not _in_capitals(rows) and all(TAG.fullmatch(row[-1]) for row in rows)
    return tagged or len(rows[0]) == len(CELLS)
