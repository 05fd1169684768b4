"""CoNLL-U, the format of Universal Dependencies: ten columns with tabs between them, comments, a blank line at the end.

    # text = Vámonos al mar.
    1-2   Vámonos  _       ...            a range: how words 1 and 2 are written; skipped and counted
    1     Vamos    ir      VERB  ...
    2     nos      nosotros PRON ...
    5.1   ...                             an empty node: not written in the text; skipped and counted

The words are the *syntactic* ones (Vamos, nos), since these have the parts of speech. `spaces` says whether a space
follows each: no after `SpaceAfter=No`. Inside a range there is none, and after its last word the range's own MISC
decides. So joined words show the original text only where there are no ranges; `text` holds it in any case.
See https://universaldependencies.org/format.html.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place, counted
from seqloom.data.readers.conll import Fault, Sentence, sentences_of
from seqloom.data.tables import Record, Table

COLUMNS = ("tokens", "upos", "xpos", "lemma", "feats", "deprel", "spaces", "text")
CELLS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
ID, FORM, LEMMA, UPOS, XPOS, FEATS, _, DEPREL, _, MISC = range(len(CELLS))
TEXT = re.compile(r"# *text *= *(.*)", re.DOTALL)
RANGE = re.compile("([1-9][0-9]{0,5})-([1-9][0-9]{0,5})")
EMPTY = re.compile(r"[0-9]{1,6}\.[1-9][0-9]{0,5}")
NO_SPACE = "SpaceAfter=No"


class Parsed(NamedTuple):
    """A sentence: the line of its first word, the cells of its words, and which of them a space follows."""

    line: int
    words: list[list[str]]
    spaces: list[bool]
    skipped: int  # ranges and empty nodes


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of the sentences: seven columns of tuples, one entry per word, and the text of the whole."""
    (path,) = paths
    records = _records(sentences_of(path, reading, ledger, _is_blank), ledger)
    first = next(records, None)
    if first is None:
        fix = "give a file with ten columns separated by tabs"
        return ledger.bad_file("data.empty", "there is no sentence in this file", Place(str(path)), fix)
    return Table(COLUMNS, chain([first], records))


def _is_blank(line: str) -> bool:
    return not line or line.isspace()


def _records(sentences: Iterator[Sentence], ledger: Ledger) -> Iterator[Record]:
    for sentence in sentences:
        parsed = _parse(sentence)
        if isinstance(parsed, Fault):
            parsed.report(sentence.path, ledger)
        elif parsed.words:
            if parsed.skipped:
                place = Place(sentence.path, parsed.line)
                ledger.note("conllu.skipped", "ranges and empty nodes are no words", place, parsed.skipped)
            ledger.rows += 1
            values = (*_columns(parsed), tuple(parsed.spaces), _text(sentence.lines))
            yield Record(values, sentence.path, parsed.line)


def _columns(parsed: Parsed) -> Iterator[tuple[str, ...]]:
    for column in (FORM, UPOS, XPOS, LEMMA, FEATS, DEPREL):
        yield tuple(word[column] for word in parsed.words)


def _text(lines: list[str]) -> str:
    return next((match[1] for line in lines if (match := TEXT.fullmatch(line))), "")


def _parse(sentence: Sentence) -> Parsed | Fault:
    """The words of a sentence, or what is wrong with the first bad line."""
    words: list[list[str]] = []
    spaces: list[bool] = []
    line = skipped = range_stop = 0
    range_space = True
    for number, text in zip(sentence.numbers, sentence.lines, strict=True):
        if text.startswith("#") and not line:
            continue
        line = line or number
        cells = text.split("\t")
        if fault := _fault(cells, number):
            return fault
        following, space = len(words) + 1, NO_SPACE not in cells[MISC].split("|")
        if cells[ID] == str(following):
            words.append(cells)
            spaces.append(space if following > range_stop else range_space and following == range_stop)
        elif stop := _range_stop(cells[ID], following, range_stop):
            range_stop, range_space = stop, space
            skipped += 1
        elif EMPTY.fullmatch(cells[ID]) and cells[ID].startswith(f"{len(words)}."):
            skipped += 1
        else:
            text = f"the id {cells[ID]!r} does not fit, word {following} was expected"
            return Fault(number, "conllu.id", text, "number the words of each sentence from 1")
    if range_stop > len(words):
        text = f"a range ends at word {range_stop}, the sentence at word {len(words)}"
        return Fault(sentence.numbers[-1], "conllu.id", text, "number the words of each sentence from 1")
    return Parsed(line, words, spaces, skipped)


def _range_stop(number: str, following: int, before: int) -> int:
    """The last word of a range that begins with the following word, behind the range before; 0 if it is none."""
    match = RANGE.fullmatch(number)
    if match is None or int(match[1]) != following or following <= before or int(match[2]) < following:
        return 0
    return int(match[2])


def _fault(cells: list[str], number: int) -> Fault | None:
    if len(cells) != len(CELLS):
        text = f"{counted(len(cells), 'column')}, CoNLL-U has {len(CELLS)}, separated by tabs"
        return Fault(number, "conll.columns", text, "write _ for what is not known")
    if all(cells):
        return None
    if not cells[FORM]:
        return Fault(number, "conll.empty_token", "the word itself is empty", "write the word")
    return Fault(number, "conll.columns", f"{CELLS[cells.index('')]} is empty", "write _ for what is not known")
