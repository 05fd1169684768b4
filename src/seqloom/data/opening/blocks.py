"""Opening a text file safely: is it a file of the kind it claims, unpacked, decoded, cut into lines, and looked at.

    path ──▶ files ──▶ compressed ──▶ characters ──▶ lines ──▶ Block of decoded lines
            regular?   .gz, .xz in    strict, with    \\n and    about 1 MiB of text each
            magic?     chunks, caps   a diagnosis     \\r\\n only

All of it is a stream; the memory needed does not grow with the file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import Format, ReadingConfig
from seqloom.data.opening.characters import require_width, text_of
from seqloom.data.opening.compressed import chunks_of, with_head
from seqloom.data.opening.files import Fingerprint, fingerprint, require_magic, require_regular, require_text_head
from seqloom.data.opening.lines import LONGEST_LINE, Passage, passages_of
from seqloom.data.problems import Ledger

__all__ = [
    "Block",
    "Fingerprint",
    "Passage",
    "blocks_of",
    "fingerprint",
    "lines_in",
    "lines_of",
    "open_passages",
    "require_magic",
    "require_regular",
]


class Block(NamedTuple):
    """Some lines that follow each other, decoded, without their line ends."""

    first_line: int
    lines: list[str]


def open_passages(path: Path, reading: ReadingConfig, ledger: Ledger, longest: int = LONGEST_LINE) -> Iterator[Passage]:
    """A text file as passages of whole lines, their line ends kept."""
    format: Format = "text" if reading.format in (None, "folder", "parallel") else reading.format  # noqa: A001
    require_regular(path, ledger)
    require_magic(path, format, ledger)
    head, chunks = with_head(chunks_of(path, ledger))
    require_text_head(path, head, format, ledger)  # again: this is what was packed
    require_width(head, reading.encoding, path, ledger)
    yield from passages_of(text_of(chunks, reading.encoding, path, ledger), path, ledger, longest)


def blocks_of(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[Block]:
    """The lines of a text file, about 1 MiB of text at a time; all checks of file, encoding and lines are done here."""
    for passage in open_passages(path, reading, ledger):
        yield Block(passage.first_line, lines_in(passage.text))


def lines_in(text: str) -> list[str]:
    r"""The lines of a passage, without their ends.

    >>> lines_in("a\r\nb\u2028c\nd")
    ['a', 'b\u2028c', 'd']
    """
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def lines_of(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[tuple[int, str]]:
    """The lines of a text file one by one, with their numbers from 1."""
    for block in blocks_of(path, reading, ledger):
        yield from enumerate(block.lines, block.first_line)
